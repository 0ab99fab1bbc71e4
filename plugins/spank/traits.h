/*
 * What kind of program an engine is. job_submit passes it from the site's settings, so that a new
 * engine needs no new plugin (slurm_hooks/words/engines.py has the words).
 */
#ifndef MALLEABLE_TRAITS_H
#define MALLEABLE_TRAITS_H

#include <stdbool.h>

#define TRAITS_LENGTH_MAX 64

struct traits {
	bool is_gang;     /* all fragments are one world; otherwise each is one of its own */
	bool has_rounds;  /* training stops while fragments come and go */
	bool by_torchrun; /* the script starts torchrun, so it gets PET_* */
	bool is_pool;     /* workers that never meet */
};

/* Read words like `gang+rounds`. False if there is none (NULL), an unknown one or one twice. */
bool traits_read(const char *text, struct traits *traits);

#endif
