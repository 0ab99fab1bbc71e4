/*
 * What Slurm reads of a plugin before it calls it, and whether it may be used on this release.
 *
 * `make STRICT=1` ties the plugin to the headers it is built with, as other SPANK plugins are.
 */
#ifndef MALLEABLE_IDENTITY_H
#define MALLEABLE_IDENTITY_H

#include <stdbool.h>

/* Is this a release on which the plugin was tested, or for which it was built with STRICT=1? */
bool identity_is_tested(void);

#endif
