/*
 * Read the environment of sbatch, salloc and srun: the user's request in the variable
 * SBATCH_MALLEABLE, and the variables of a surrounding malleable job, which are not a
 * request.
 *
 * How Slurm carries an option (22.05 to 26.05): sbatch puts it into its own
 * environment as _SLURM_SPANK_OPTION_malleable_malleable for slurmstepd, and
 * into the job control environment, each entry of which it also exports as
 * SLURM_SPANK_<entry>. All processes inside the job inherit these variables, and
 * sbatch, salloc and srun read the option back from there after the #SBATCH
 * lines, as if the user had given it.
 * This module works on the process environment of sbatch, salloc and srun. Do not
 * use it in slurmstepd.
 */
#ifndef MALLEABLE_INHERIT_H
#define MALLEABLE_INHERIT_H

#include <stdbool.h>

#include "slurm_symbols.h"

/* True if this command runs inside a malleable job. */
bool inherit_is_inside(void);

/*
 * Hand SBATCH_MALLEABLE=2-16 to sbatch as the option, in Slurm's own spelling. So it
 * overrides an #SBATCH line, and the command line overrides it, as with all SBATCH_*.
 * An empty value counts as unset.
 */
void inherit_offer_variable(void);

/* True if this is the value of the variable SBATCH_MALLEABLE. */
bool inherit_is_variable(const char *value);

/* True if this is the surrounding job's option, read back by srun, and not a new request. */
bool inherit_is_option(const char *value);

/*
 * Clean the environment of a new job submitted from inside a malleable job: it gets
 * neither the parent's option nor its variables, whatever it requests itself. The
 * user's own variables are kept, except SBATCH_MALLEABLE, which looks the same as
 * the parent's.
 */
void inherit_forget(spank_t spank);

#endif
