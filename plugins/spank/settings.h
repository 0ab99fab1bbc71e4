/*
 * The plugin's arguments in plugstack.conf.
 *
 * Every argument stands alone: a bad one is reported and keeps its default,
 * because an error in that file must never cost a user a job.
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
	char env_store[PATH_MAX];  /* empty: no environments are laid on nodes */
	unsigned max_restarts;
};

void settings_default(struct settings *settings);

/* Apply one `name=value`; on false nothing changed and `fault` says why. */
bool settings_take(struct settings *settings, const char *argument, char *fault,
		   size_t fault_size);

/* Does the line say that the plugin is to work on a release on which it was not tested? */
bool settings_use_untested(int argc, char *const *argv);

#endif
