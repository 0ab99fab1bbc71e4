/*
 * Put the job path in PYTHONPATH and its programs in PATH, for the batch script and
 * its steps. For the remote context only.
 */
#ifndef MALLEABLE_PATHS_H
#define MALLEABLE_PATHS_H

#include "slurm_symbols.h"

/* `job_path` is the site's setting. If it is empty, do nothing. */
spank_err_t paths_set(spank_t spank, const char *job_path);

#endif
