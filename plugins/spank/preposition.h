/*
 * --malleable-env=PATH: the environment that the site's Prolog may have copied to this
 * node (slurm_hooks/hooks/preposition), as the variable MALLEABLE_ENV of the job.
 */
#ifndef MALLEABLE_PREPOSITION_H
#define MALLEABLE_PREPOSITION_H

#include <stdbool.h>

#include "slurm_symbols.h"

#define PREPOSITION_VARIABLE "MALLEABLE_ENV"

/* True if this can be a value of the option. */
bool preposition_is_path(const char *path);

/* On submit hosts: pass the path on to Prolog and nodes. */
spank_err_t preposition_pass_on(spank_t spank, const char *path);

/*
 * On nodes, as the user: set MALLEABLE_ENV to the copy below `store` if this job has a copy,
 * else to the user's path. Do nothing if the job names no path. `store` is the site's setting,
 * or empty.
 */
spank_err_t preposition_set(spank_t spank, const char *store);

#endif
