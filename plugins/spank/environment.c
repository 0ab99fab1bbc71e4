#include "environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traits.h"

#define NUMBER_SIZE 16 /* a 32-bit number or two 16-bit ones and a colon */

const char *const environment_names[] = {
	"PET_NNODES", "PET_RDZV_BACKEND", "PET_RDZV_ID", "PET_RDZV_ENDPOINT", "PET_LOCAL_ADDR",
	"PET_MAX_RESTARTS", "PET_NPROC_PER_NODE", "MALLEABLE_JOB_ID", "MALLEABLE_FRAGMENT", "MALLEABLE_MIN",
	"MALLEABLE_MAX", "MALLEABLE_UNIT", "MALLEABLE_ENGINE", "MALLEABLE_DIR",
	"MALLEABLE_NOTICE_S", "MALLEABLE_FAREWELL_S", "MALLEABLE_ADDR", NULL,
};

/* Agents of a gang have as many workers as their fragments have GPUs, so their numbers differ. */
#define IDENTICAL "TORCH_ELASTIC_WORKER_IDENTICAL"

/*
 * Variables in which sbatch wrote the size of an element. Slurm gives each fragment another size,
 * but srun reads these. SLURM_NTASKS and SLURM_NPROCS are right, as job_submit writes them, and so
 * is SLURM_CPUS_PER_TASK, which Slurm changes with the element.
 */
static const char *const sizes[] = {
	"SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
	"SLURM_TRES_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_CPU",
	"SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_GPU", "SLURM_GPU_BIND", "SLURM_TRES_BIND",
	IDENTICAL, NULL,
};

_Static_assert(sizeof(sizes) / sizeof(sizes[0]) <= ENVIRONMENT_UNSET, "all can be unset");

const char *environment_value(char *const *list, const char *name)
{
	size_t length = strlen(name);

	for (; list && *list; list++) {
		if (!strncmp(*list, name, length) && (*list)[length] == '=')
			return *list + length + 1;
	}
	return NULL;
}

const char *environment_cluster(char *const *list)
{
	const char *name = environment_value(list, "SLURM_CLUSTER_NAME");

	return name && *name && strcmp(name, "(null)") ? name : NULL;
}

/* FNV-1a, 32 bits: http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint32_t hash(const char *text)
{
	uint32_t value = 2166136261U;

	for (; *text; text++)
		value = (value ^ (unsigned char)*text) * 16777619U;
	return value;
}

/* Append `item` to a comma-separated list. */
static bool append(char *list, size_t size, const char *item)
{
	size_t used = strlen(list);
	int added = snprintf(list + used, size - used, "%s%s", used ? "," : "", item);

	return added >= 0 && (size_t)added < size - used;
}

static bool make_mark(const char *name, const char *value, char *mark, size_t size)
{
	int used = snprintf(mark, size, "%s:%08x", name, (unsigned)hash(value));

	return used >= 0 && (size_t)used < size;
}

bool environment_is_ours(const char *marks, const char *name, const char *value)
{
	char mark[64];

	if (!marks || !value || !make_mark(name, value, mark, sizeof(mark)))
		return false;
	while (*marks) {
		size_t length = strcspn(marks, ",");

		if (length == strlen(mark) && !memcmp(marks, mark, length))
			return true;
		marks += length;
		marks += *marks == ',';
	}
	return false;
}

static bool remember(struct environment *environment, const char *name, const char *value)
{
	char mark[64];

	return make_mark(name, value, mark, sizeof(mark)) &&
	       append(environment->marks, sizeof(environment->marks), mark);
}

static bool put(struct environment *environment, const char *name, const char *value)
{
	struct variable *variable = &environment->set[environment->count];

	if (environment->count == ENVIRONMENT_VARIABLES)
		return false;
	variable->value = strdup(value);
	if (!variable->value)
		return false;
	variable->name = name;
	environment->count++;
	return remember(environment, name, value);
}

/*
 * Settle a variable. A `value` of NULL is unknown here (a step does not know the
 * job's working directory): then the value from the batch step is kept.
 */
static bool settle(struct environment *environment, char *const *list, const char *name,
		   const char *value)
{
	const char *present = environment_value(list, name);
	bool ours = environment_is_ours(environment_value(list, ENVIRONMENT_MARKS), name, present);

	if (!value)
		return ours ? remember(environment, name, present) : true;
	if (!present || ours)
		return put(environment, name, value);
	if (strcmp(present, value))
		return append(environment->kept, sizeof(environment->kept), name);
	return true;
}

static bool settle_number(struct environment *environment, char *const *list, const char *name,
			  unsigned value)
{
	char text[NUMBER_SIZE];

	snprintf(text, sizeof(text), "%u", value);
	return settle(environment, list, name, text);
}

/* The request, for programs inside the job, whatever the engine. */
static bool settle_request(struct environment *environment, char *const *list,
			   const struct request *request)
{
	return settle_number(environment, list, "MALLEABLE_MIN", request->min) &&
	       settle_number(environment, list, "MALLEABLE_MAX", request->max) &&
	       settle_number(environment, list, "MALLEABLE_UNIT", request->unit) &&
	       settle(environment, list, "MALLEABLE_ENGINE", request->engine);
}

static bool settle_fragment(struct environment *environment, char *const *list,
			    const struct place *place, const char *dir)
{
	return settle_number(environment, list, "MALLEABLE_JOB_ID", place->job_id) &&
	       settle_number(environment, list, "MALLEABLE_FRAGMENT", place->fragment) &&
	       settle(environment, list, "MALLEABLE_DIR", dir) &&
	       settle(environment, list, "MALLEABLE_NOTICE_S",
		      environment_value(list, ENVIRONMENT_NOTICE)) &&
	       settle(environment, list, "MALLEABLE_FAREWELL_S",
		      environment_value(list, ENVIRONMENT_FAREWELL));
}

/* Fragments that take parts of nodes have at least a unit each, on one node. */
static void find_agents(const struct request *request, bool is_gang, unsigned *min, unsigned *max)
{
	unsigned per_agent = request->launch_srun ? 1 : request->unit;

	if (request->counted != REQUEST_NODES) {
		*min = 1;
		*max = is_gang ? request->max / request->unit : 1;
		return;
	}
	*min = (is_gang ? request->min : request->unit) / per_agent;
	*max = (is_gang ? request->max : request->unit) / per_agent;
}

/*
 * The number of agents, which torchrun takes as --nnodes: an agent for each fragment,
 * started by the batch script; with launch=srun an agent for each node. Without a gang
 * every fragment is a separate world.
 */
static void print_nnodes(const struct request *request, bool is_gang, char *text, size_t size)
{
	unsigned min, max;

	find_agents(request, is_gang, &min, &max);
	if (min == max)
		snprintf(text, size, "%u", min);
	else
		snprintf(text, size, "%u:%u", min, max);
}

/* The number behind `name` in a text such as cpu:4+mem:100; 0 without such a number. */
static unsigned long find_number(const char *text, const char *name)
{
	const char *at = text ? strstr(text, name) : NULL;

	return at ? strtoul(at + strlen(name), NULL, 10) : 0;
}

/*
 * torchrun starts a worker for each GPU of the fragment, or for each task. The number of tasks
 * follows from the CPUs that were requested. The fragment may have more CPUs, as Slurm gives whole
 * cores. False if the number is unknown, or sizes count nodes.
 */
static bool print_workers(const struct request *request, char *const *list, char *text,
			  size_t size)
{
	unsigned long all, each;

	if (request->counted == REQUEST_GPUS)
		return snprintf(text, size, "gpu") > 0;
	all = find_number(environment_value(list, "SLURM_CPUS_PER_TASK"), "");
	if (!all)
		all = find_number(environment_value(list, "SLURM_JOB_CPUS_PER_NODE"), "");
	each = find_number(environment_value(list, ENVIRONMENT_SLOT), "cpu:");
	if (request->counted != REQUEST_TASKS || !each || all < each)
		return false;
	return snprintf(text, size, "%lu", all / each) < (int)size;
}

/*
 * A torch that is too old for our rendezvous, or cannot import it, only says that a backend of
 * this name is not registered. So the name says which part is missing.
 */
#define BACKEND "malleable-needs-torch-2.6-or-newer-and-the-PYTHONPATH-of-the-job"

/*
 * Without a directory that all fragments share, each fragment would train alone. So the rendezvous
 * gets an endpoint that it refuses, and its message shows the reason.
 */
#define NO_ENDPOINT "the-work-directory-of-the-job-is-not-on-this-node"

/* The endpoint to refuse if job_submit did not pass the kind of the engine. */
#define NO_TRAITS "job_submit-did-not-say-what-the-engine-of-this-job-is"

/* torchrun reads PET_<OPTION> for every option missing from its command line. */
static bool settle_torchrun(struct environment *environment, char *const *list,
			    const struct request *request, bool is_gang,
			    const struct place *place, const char *dir)
{
	char nnodes[NUMBER_SIZE], workers[NUMBER_SIZE];
	const char *endpoint = dir || !place->is_batch ? dir : NO_ENDPOINT;

	print_nnodes(request, is_gang, nnodes, sizeof(nnodes));
	if (print_workers(request, list, workers, sizeof(workers)) &&
	    !settle(environment, list, "PET_NPROC_PER_NODE", workers))
		return false;
	return settle(environment, list, "PET_NNODES", nnodes) &&
	       settle(environment, list, "PET_RDZV_BACKEND", BACKEND) &&
	       settle_number(environment, list, "PET_RDZV_ID", place->job_id) &&
	       settle(environment, list, "PET_RDZV_ENDPOINT", endpoint) &&
	       settle(environment, list, "PET_LOCAL_ADDR", place->node_addr);
}

static bool find_dir(const char *pattern, const struct place *place, char *dir, size_t size)
{
	int used;

	if (!place->dir && environment_expand(pattern, place, dir, size))
		return true;
	used = snprintf(dir, size, "%s", place->dir ? place->dir : "");
	if (used > 0 && (size_t)used < size)
		return true;
	*dir = '\0';
	return false;
}

/* Only in the batch step: an srun in the job may set the size of its own step. */
static void drop_sizes(struct environment *environment, char *const *list)
{
	size_t count = 0;

	for (const char *const *name = sizes; *name; name++) {
		if (environment_value(list, *name))
			environment->unset[count++] = *name;
	}
	environment->was_identical = environment_value(list, IDENTICAL) != NULL;
}

bool environment_decide(const struct request *request, const struct settings *settings,
			const struct place *place, char *const *list,
			struct environment *environment)
{
	struct traits traits;
	const char *dir = environment->dir;

	*environment = (struct environment){.count = 0};
	if (!settle_request(environment, list, request))
		return false;
	if (!place->in_array)
		return true;
	if (request->counted != REQUEST_NODES && place->is_batch)
		drop_sizes(environment, list);
	if (!find_dir(settings->dir, place, environment->dir, sizeof(environment->dir)))
		dir = NULL;
	environment->lacks_traits =
		!traits_read(environment_value(list, ENVIRONMENT_TRAITS), &traits);
	if (!settle_fragment(environment, list, place, environment->lacks_traits ? NULL : dir))
		return false;
	if (environment->lacks_traits)
		return settle_torchrun(environment, list, request, true, place, NO_TRAITS);
	if (!traits.by_torchrun)
		return settle(environment, list, "MALLEABLE_ADDR", place->node_addr);
	return settle_torchrun(environment, list, request, traits.is_gang, place, dir) &&
	       settle_number(environment, list, "PET_MAX_RESTARTS", settings->max_restarts);
}

bool environment_is_astray(const char *cwd)
{
	return !strcmp(cwd, "/tmp");
}

void environment_free(struct environment *environment)
{
	for (size_t i = 0; i < environment->count; i++)
		free(environment->set[i].value);
	environment->count = 0;
}

bool environment_expand(const char *pattern, const struct place *place, char *path, size_t size)
{
	const char *cluster = place->cluster ? place->cluster : "cluster";
	char id[NUMBER_SIZE], user[NUMBER_SIZE];
	size_t used = 0;

	snprintf(id, sizeof(id), "%u", (unsigned)place->job_id);
	snprintf(user, sizeof(user), "%u", (unsigned)place->user_id);
	for (; *pattern; pattern++) {
		char plain[2] = {*pattern, '\0'};
		const char *part = plain;
		int added;

		if (*pattern == '%' && pattern[1]) {
			pattern++;
			part = *pattern == 'w'   ? place->work_dir
			       : *pattern == 'C' ? cluster
			       : *pattern == 'A' ? id
			       : *pattern == 'U' ? user
						 : "%";
		}
		if (!part)
			return false;
		added = snprintf(path + used, size - used, "%s", part);
		if (added < 0 || (size_t)added >= size - used)
			return false;
		used += (size_t)added;
	}
	return used > 0;
}

static bool is_entry(const char *start, size_t length, const char *entry)
{
	return length == strlen(entry) && !memcmp(start, entry, length);
}

char *environment_path_with(const char *path, const char *entry)
{
	const char *rest = path ? path : "";
	size_t size = strlen(entry) + strlen(rest) + 2;
	char *result;

	for (const char *at = rest; *at; at += *at == ':') {
		size_t length = strcspn(at, ":");

		if (is_entry(at, length, entry))
			return NULL;
		at += length;
	}
	result = malloc(size);
	if (result)
		snprintf(result, size, "%s%s%s", entry, *rest ? ":" : "", rest);
	return result;
}

char *environment_path_without(const char *path, const char *entry)
{
	size_t used = 0;
	bool first = true, has_entry = false;
	char *result = malloc(strlen(path) + 1);

	if (!result)
		return NULL;
	for (const char *at = path;; at++) {
		size_t length = strcspn(at, ":");

		if (is_entry(at, length, entry)) {
			has_entry = true;
		} else {
			/* Keep empty entries: they have a meaning for Python and shells. */
			if (!first)
				result[used++] = ':';
			memcpy(result + used, at, length);
			used += length;
			first = false;
		}
		at += length;
		if (!*at)
			break;
	}
	result[used] = '\0';
	if (has_entry)
		return result;
	free(result);
	return NULL;
}
