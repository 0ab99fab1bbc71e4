/*
 * How the sizes of a request fit together: its range, unit, core and the sizes it names.
 */
#ifndef MALLEABLE_SIZES_H
#define MALLEABLE_SIZES_H

#include "items.h"
#include "request.h"

/* What a unit counts, as it is written; in the order of enum request_counted. */
extern const char *const sizes_counted[];

/* Check what was read, and set the largest size; on false the fault is told. */
bool sizes_settle(const struct reader *reader, struct request *request);

#endif
