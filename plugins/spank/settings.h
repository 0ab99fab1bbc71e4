/*
 * What the site wrote behind the plugin's name in plugstack.conf.
 *
 * Every argument stands alone: a bad one is reported and left at its default,
 * because a slip in that file must never cost somebody's job.
 */
#ifndef MALLEABLE_SETTINGS_H
#define MALLEABLE_SETTINGS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define SETTINGS_FAULT_SIZE 384

struct settings {
	char pythonpath[PATH_MAX]; /* empty: PYTHONPATH is left alone */
	char dir[PATH_MAX];        /* pattern with %w, %A, %U and %% */
	unsigned max_restarts;
};

void settings_default(struct settings *settings);

/* Take one `name=value`; on false nothing changed and `fault` says why. */
bool settings_take(struct settings *settings, const char *argument, char *fault,
		   size_t fault_size);

#endif
