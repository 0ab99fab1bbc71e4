/*
 * Slurm's headers. All functions of Slurm that the plugin calls are weak symbols: a release without
 * such a function still loads the plugin without a message, even if it was linked with -z now. The
 * plugin was not tested on such a release, so it does not call them.
 */
#ifndef MALLEABLE_SLURM_SYMBOLS_H
#define MALLEABLE_SLURM_SYMBOLS_H

#pragma GCC visibility push(default)
#include <slurm/slurm.h>
#include <slurm/spank.h>
#pragma GCC visibility pop

#pragma weak slurm_error
#pragma weak slurm_spank_log
#pragma weak spank_context
#pragma weak spank_get_item
#pragma weak spank_job_control_setenv
#pragma weak spank_job_control_unsetenv
#pragma weak spank_option_register
#pragma weak spank_setenv
#pragma weak spank_strerror
#pragma weak spank_unsetenv

#endif
