/*
 * A script or an option that sbatch took as the value of --malleable, as the value is
 * missing: in `sbatch --malleable train.sh` the next word is the value.
 */
#ifndef MALLEABLE_TAKEN_H
#define MALLEABLE_TAKEN_H

#include <stdbool.h>
#include <stddef.h>

/* True for a name or an option that needs no quotes in a shell. */
bool taken_is(const char *text);

/*
 * The word that a command line has in place of the value, else NULL. `words` are
 * `size` bytes: each word with its NUL. Only the last word counts, since after it sbatch
 * has no script. The words of a script's own command line do not count.
 */
const char *taken_find(const char *words, size_t size);

/* The same word of this process, copied to `word`; false without such a word. */
bool taken_read(char *word, size_t size);

#endif
