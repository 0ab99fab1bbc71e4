/*
 * One row per engine. A test compares them with the table of the reconciler and of jobs
 * (slurm_hooks/words/engines.py).
 */
#ifndef MALLEABLE_ENGINES_H
#define MALLEABLE_ENGINES_H

#include <stdbool.h>

#define ENGINE_DEFAULT "torchrun"

struct engine {
	const char *name;   /* as in --malleable=...,engine=NAME; NULL ends the table */
	bool is_gang;       /* all fragments are one world; otherwise each is one of its own */
	bool has_rounds;    /* training stops while fragments come and go */
	bool by_torchrun;   /* the script starts torchrun, so it gets PET_* */
	bool is_pool;       /* workers that never meet: MIN may be 0, exit code 0: none left for me */
};

extern const struct engine engines[];

/* The row of that name. NULL if there is none: a script then gets its request and no more. */
const struct engine *engine_find(const char *name);

#endif
