/*
 * The value of --malleable: MIN-MAX[,unit=N][,engine=NAME][,launch=srun]. MIN is 0 for
 * pools only, which job_submit checks. Sizes count nodes; with unit=gpu or unit=2gpu they
 * count GPUs, with unit=task or unit=2task tasks, and fragments take parts of nodes.
 *
 * One parser for the command line, #SBATCH lines and the value that reaches the
 * node. It uses neither Slurm nor the process environment, so it is compiled and
 * tested on its own.
 */
#ifndef MALLEABLE_REQUEST_H
#define MALLEABLE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#define REQUEST_ENGINE_DEFAULT "torchrun"
#define REQUEST_NAME_SIZE 33  /* longest engine name and its NUL */
#define REQUEST_TEXT_SIZE 128 /* holds every canonical text */
#define REQUEST_FAULT_SIZE 384

enum request_counted { REQUEST_NODES, REQUEST_GPUS, REQUEST_TASKS };

struct request {
	unsigned min; /* of what is counted */
	unsigned max;
	unsigned unit; /* nodes per fragment; GPUs or tasks of a fragment are multiples of it */
	enum request_counted counted;
	char engine[REQUEST_NAME_SIZE];
	bool launch_srun; /* the script starts its workers with srun */
};

/*
 * Parse `text` into `request`. On false `request` must not be used and `fault`
 * says what was given, what is wrong and what to write instead.
 */
bool request_parse(const char *text, struct request *request, char *fault, size_t fault_size);

/* Write the canonical spelling that all other parts read; false if it does not fit. */
bool request_print(const struct request *request, char *text, size_t size);

#endif
