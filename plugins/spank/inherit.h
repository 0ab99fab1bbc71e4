/*
 * What sbatch, salloc and srun find in their environment: the user's request, in
 * the variable SBATCH_MALLEABLE, and what a surrounding malleable job left there, which
 * they must not mistake for one.
 *
 * How Slurm carries an option (22.05 to 26.05): sbatch puts it into its own
 * environment as _SLURM_SPANK_OPTION_malleable_malleable for slurmstepd, and
 * into the job control environment, each entry of which it also exports as
 * SLURM_SPANK_<entry>. Whatever starts inside the job inherits those, and
 * sbatch, salloc and srun read the option back from there after the #SBATCH
 * lines, as if the user had given it.
 * This module works on the process environment of sbatch, salloc and srun; it
 * must not be used in slurmstepd.
 */
#ifndef MALLEABLE_INHERIT_H
#define MALLEABLE_INHERIT_H

#include <stdbool.h>

#include "slurm_symbols.h"

/* Does this command run inside a malleable job? */
bool inherit_is_inside(void);

/*
 * Hand SBATCH_MALLEABLE=2-16 to sbatch as the option, in Slurm's own spelling: so it
 * counts for more than an #SBATCH line and for less than the command line, as SBATCH_* do.
 * An empty one is none.
 */
void inherit_offer_variable(void);

/* Is this value the one of the variable SBATCH_MALLEABLE? */
bool inherit_is_variable(const char *value);

/* Is this the surrounding job's option, read back by srun, and not a new request? */
bool inherit_is_option(const char *value);

/*
 * A new job submitted from inside a malleable one starts clean: it gets neither
 * the parent's option nor its variables, whatever it requests itself. What the
 * user set is left in place, except SBATCH_MALLEABLE, which cannot be told from the
 * parent's.
 */
void inherit_forget(spank_t spank);

#endif
