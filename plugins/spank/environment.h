/*
 * Decide which variables the processes of a malleable job get, and which existing
 * variables are ours.
 *
 * Pure: values in, values out. It uses no SPANK handle, file, process
 * environment or clock, so every rule about whose value wins can be tested
 * without Slurm.
 *
 * MALLEABLE_SET lists our variables as NAME:HASH[,NAME:HASH...]. The hash shows
 * whether the user has replaced our value.
 */
#ifndef MALLEABLE_ENVIRONMENT_H
#define MALLEABLE_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "request.h"
#include "settings.h"

#define ENVIRONMENT_VARIABLES 16 /* of one job at most: PET_* or MALLEABLE_ADDR */
#define ENVIRONMENT_UNSET 16     /* names and a NULL */
#define ENVIRONMENT_MARKS_SIZE 512
#define ENVIRONMENT_KEPT_SIZE 384

/* Bookkeeping variables: always ours, never the user's. */
#define ENVIRONMENT_MARKS "MALLEABLE_SET"
#define ENVIRONMENT_KEPT "MALLEABLE_KEPT"
#define ENVIRONMENT_ENTRY "MALLEABLE_PYTHONPATH"
#define ENVIRONMENT_BIN "/bin" /* below that directory: the entry of PATH */

/*
 * The canonical request, the shared directory, the notice and the farewell, under
 * names that Slurm keeps even with --export=NONE, where 22.05 drops the
 * option's own variable and srun drops MALLEABLE_DIR. The first is Slurm's
 * spelling of the job control variable MALLEABLE, the second is set in the
 * batch step, the others by job_submit from the site's settings.
 */
#define ENVIRONMENT_REQUEST "SLURM_SPANK_MALLEABLE"
#define ENVIRONMENT_DIR "SLURM_SPANK_MALLEABLE_DIR"
#define ENVIRONMENT_ENV "SLURM_SPANK_MALLEABLE_ENV" /* the path of --malleable-env */
#define ENVIRONMENT_TRAITS "SLURM_SPANK_MALLEABLE_TRAITS" /* of the engine */
#define ENVIRONMENT_NOTICE "SLURM_SPANK_MALLEABLE_NOTICE_S"
#define ENVIRONMENT_FAREWELL "SLURM_SPANK_MALLEABLE_FAREWELL_S"
#define ENVIRONMENT_SLOT "SLURM_SPANK_MALLEABLE_SLOT" /* the needs of a worker, on parts of nodes */

/* Where this process runs. An unknown string is NULL, and variables that need it stay unset. */
struct place {
	bool in_array;         /* an array element; if not, the job runs as a rigid one */
	bool is_batch;         /* the batch script, not a step of srun */
	uint32_t job_id;       /* of the array */
	uint32_t fragment;     /* array task id */
	uint32_t user_id;
	const char *node_addr; /* the node's NodeAddr */
	const char *work_dir;  /* the job's, if it is on this node; a step's may differ */
	const char *cluster;   /* Slurm's ClusterName: array ids of two clusters may be equal */
	const char *dir;       /* the shared directory, as a batch step found it earlier */
};

struct variable {
	const char *name;
	char *value; /* owned */
};

struct environment {
	struct variable set[ENVIRONMENT_VARIABLES];
	size_t count;
	char marks[ENVIRONMENT_MARKS_SIZE]; /* the new MALLEABLE_SET */
	char kept[ENVIRONMENT_KEPT_SIZE];   /* names, comma-separated; empty if none */
	char dir[PATH_MAX];                 /* the job's shared directory; empty if unknown */
	bool lacks_traits;                  /* job_submit did not say what the engine is */
	const char *unset[ENVIRONMENT_UNSET]; /* names to remove; NULL ends the list */
	bool was_identical; /* TORCH_ELASTIC_WORKER_IDENTICAL is among them */
};

/* The value of `name` in a NULL-terminated NAME=VALUE list, or NULL. */
const char *environment_value(char *const *list, const char *name);

/*
 * SLURM_CLUSTER_NAME of the list, or NULL if Slurm does not know it: slurmstepd of 23.11.0 to 23.11.4
 * sets "(null)" for the batch script, and has the name nowhere (mended in 23.11.5).
 */
const char *environment_cluster(char *const *list);

/*
 * Decide which variables to add to `list`, the job's current environment. `set`
 * lacks the user's own values; `kept` lists those that differ from ours.
 * False: out of memory or space, and no variable may be set. Call
 * environment_free in either case.
 */
bool environment_decide(const struct request *request, const struct settings *settings,
			const struct place *place, char *const *list,
			struct environment *environment);

/*
 * True for the directory that slurmstepd takes if the job's working directory is missing (22.05.8,
 * 24.11.5, 26.05.5). A job submitted from there has no directory that its nodes share, either.
 */
bool environment_is_astray(const char *cwd);

void environment_free(struct environment *environment);

/* Every variable that environment_decide may set; NULL ends the list. */
extern const char *const environment_names[];

/* True if `marks` (MALLEABLE_SET, may be NULL) records this `value` of `name`. */
bool environment_is_ours(const char *marks, const char *name, const char *value);

/* Expand %w, %C, %A, %U and %%; false if it does not fit or %w is used but unknown. */
bool environment_expand(const char *pattern, const struct place *place, char *path, size_t size);

/*
 * PYTHONPATH or PATH with `entry` in front, or without `entry`. The caller frees the
 * result. NULL if the path does not change, or memory is out.
 */
char *environment_path_with(const char *path, const char *entry);
char *environment_path_without(const char *path, const char *entry);

#endif
