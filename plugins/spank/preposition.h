/*
 * --malleable-env=PATH: the environment that the site's Prolog may have laid on this
 * node (slurm_hooks/hooks/preposition), as the variable MALLEABLE_ENV of the job.
 */
#ifndef MALLEABLE_PREPOSITION_H
#define MALLEABLE_PREPOSITION_H

#include <stdbool.h>

#include "slurm_symbols.h"

#define PREPOSITION_VARIABLE "MALLEABLE_ENV"

/* Can this be a value of the option? */
bool preposition_is_path(const char *path);

/* On submit hosts: for Prolog and nodes. */
spank_err_t preposition_pass_on(spank_t spank, const char *path);

/*
 * On nodes, as the user: the copy below `store` if this job has one, else what the user
 * named; nothing if the job names none. `store` is the site's setting, empty if there is none.
 */
spank_err_t preposition_set(spank_t spank, const char *store);

#endif
