/*
 * The value of --malleable: MIN-MAX[,unit=N][,engine=NAME][,launch=srun][,core=N]
 * [,core_end=stay|finish][,sizes=A,B,...|x2][,prefer=N][,min_run=TIME]. Only a pool may
 * have MIN 0, which job_submit checks. Sizes count nodes; with unit=gpu or unit=2gpu
 * they count GPUs, with unit=task or unit=2task tasks, and fragments take parts of
 * nodes. plugins/lua/malleable_text.lua reads and checks the same text.
 *
 * The same parser reads the command line, #SBATCH lines and the value that reaches
 * the node. It uses neither Slurm nor the process environment, so it is compiled
 * and tested alone.
 */
#ifndef MALLEABLE_REQUEST_H
#define MALLEABLE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#define REQUEST_ENGINE_DEFAULT "torchrun"
#define REQUEST_NAME_SIZE 33  /* longest engine name and its NUL */
#define REQUEST_SIZES_MAX 16  /* as many as doubling yields */
#define REQUEST_TEXT_SIZE 201 /* of the longest text, written or canonical, and its NUL */
#define REQUEST_FAULT_SIZE 384

enum request_counted { REQUEST_NODES, REQUEST_GPUS, REQUEST_TASKS };
enum request_core_end { REQUEST_UNSAID, REQUEST_STAY, REQUEST_FINISH };

struct request {
	unsigned min; /* nodes, GPUs or tasks */
	unsigned max;
	unsigned max_given; /* as it was written: above `max` if doubling ends below it */
	unsigned unit; /* nodes per fragment; GPUs or tasks of a fragment are multiples of it */
	enum request_counted counted;
	char engine[REQUEST_NAME_SIZE];
	bool launch_srun; /* the script starts its workers with srun */
	unsigned core;    /* nodes that are never taken; 0: no core */
	enum request_core_end core_end;
	bool doubles; /* sizes=x2: MIN, 2 MIN, 4 MIN and so on */
	unsigned sizes[REQUEST_SIZES_MAX]; /* the only sizes, from small to large */
	size_t size_count;                 /* 0: any size, or the sizes of `doubles` */
	unsigned prefer;                   /* the preferred size; 0: no preference */
	unsigned min_run_s;                /* seconds without growth after a change */
};

/*
 * Parse `text` into `request`. On false `request` must not be used, and `fault`
 * quotes the text, names the fault and says how to mend it.
 */
bool request_parse(const char *text, struct request *request, char *fault, size_t fault_size);

/* Write the canonical spelling that all other parts read; false if it does not fit. */
bool request_print(const struct request *request, char *text, size_t size);

#endif
