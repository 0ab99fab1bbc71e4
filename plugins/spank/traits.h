/*
 * The kind of program that an engine is. job_submit passes it from the site's settings, so that a
 * new engine needs no new plugin (slurm_hooks/protocol/engines.py has the words).
 */
#ifndef MALLEABLE_TRAITS_H
#define MALLEABLE_TRAITS_H

#include <stdbool.h>

#define TRAITS_LENGTH_MAX 64

struct traits {
	bool is_gang;     /* all fragments are a single world; otherwise each is a separate world */
	bool has_rounds;  /* training stops while fragments come and go */
	bool by_torchrun; /* the script starts torchrun, so it gets PET_* */
	bool is_pool;     /* independent workers */
};

/* Read words like `gang+rounds`. False for NULL, an unknown word or a word twice. */
bool traits_read(const char *text, struct traits *traits);

#endif
