#define _GNU_SOURCE
#include "place.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * Find NodeAddr in Slurm, since node names need not resolve. Neither function is
 * public, so dlsym finds both: slurm_conf_get_address(NodeName) returns a string
 * to be freed with slurm_xfree (22.05.8, 24.11.5, 26.05.5). The similar
 * slurm_conf_get_nodeaddr is keyed by host name and misses nodes whose
 * NodeHostname differs. slurmstepd has SLURMD_NODENAME in its own environment.
 *
 * No SPANK item and no variable of slurmd or of the job has the address. Asking slurmctld would be
 * a request of every fragment at its start. Resolving the node's name here could delay the job, and
 * NodeAddr may belong to another network. The function reads slurm.conf if the process has not done
 * so, and may end the process if it cannot. But without a slurm.conf slurmstepd does not get this
 * far (docs/developers/slurm-facts/spank.md).
 */
bool place_find_addr(char *addr, size_t size)
{
	char *(*get_address)(const char *) = NULL;
	void (*xfree)(void **) = NULL;
	const char *node = getenv("SLURMD_NODENAME");
	char *address = NULL;
	bool fits;

	*(void **)&get_address = dlsym(RTLD_DEFAULT, "slurm_conf_get_address");
	*(void **)&xfree = dlsym(RTLD_DEFAULT, "slurm_xfree");
	if (!node || !get_address || !xfree)
		return false;
	address = get_address(node);
	if (!address)
		return false;
	fits = (size_t)snprintf(addr, size, "%s", address) < size;
	xfree((void **)&address);
	return fits;
}

static bool is_batch(spank_t spank)
{
	uint32_t step = 0;

	return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
	       step == SLURM_BATCH_SCRIPT;
}

/* In a step of srun, Slurm reads the array ids from SLURM_ARRAY_* (22.05 and later). */
static void find_array(spank_t spank, struct place *place)
{
	uint32_t job_id = 0, task_id = NO_VAL;

	if (spank_get_item(spank, S_JOB_ARRAY_ID, &job_id) ||
	    spank_get_item(spank, S_JOB_ARRAY_TASK_ID, &task_id))
		return;
	place->in_array = job_id && task_id != NO_VAL;
	place->job_id = job_id;
	place->fragment = task_id;
}

void place_find_job(spank_t spank, struct place *place)
{
	uid_t user = geteuid();

	spank_get_item(spank, S_JOB_UID, &user);
	place->user_id = user;
	place->is_batch = is_batch(spank);
	find_array(spank, place);
}
