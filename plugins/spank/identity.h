/*
 * The symbols that Slurm reads before it calls a plugin, and the check of the release.
 *
 * `make STRICT=1` ties the plugin to the headers it is built with, as other SPANK plugins are.
 */
#ifndef MALLEABLE_IDENTITY_H
#define MALLEABLE_IDENTITY_H

#include <stdbool.h>

/* True on a release on which the plugin was tested, or for which it was built with STRICT=1. */
bool identity_is_tested(void);

#endif
