/*
 * How the sizes of a request fit together: its range, unit, core and the sizes it names.
 */
#ifndef MALLEABLE_SIZES_H
#define MALLEABLE_SIZES_H

#include "items.h"
#include "request.h"

/* The words for the things that a unit counts, in the order of enum request_counted. */
extern const char *const sizes_counted[];

/* Check the sizes, and set the largest; on false the reader has the fault. */
bool sizes_settle(const struct reader *reader, struct request *request);

#endif
