/*
 * Find where in Slurm this process runs: ask slurmstepd once, and return values.
 * For the remote context only.
 */
#ifndef MALLEABLE_PLACE_H
#define MALLEABLE_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include "environment.h"
#include "slurm_symbols.h"

#define PLACE_ADDR_SIZE 1025 /* NI_MAXHOST */

/* Fill in from Slurm: batch or step, user, job id and fragment. */
void place_find_job(spank_t spank, struct place *place);

/* This node's NodeAddr; false if it cannot be found. */
bool place_find_addr(char *addr, size_t size);

#endif
