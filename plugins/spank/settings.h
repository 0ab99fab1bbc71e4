/*
 * The plugin's arguments in plugstack.conf.
 *
 * A bad argument is reported and keeps its default, because an error in that file
 * must never cost a user a job.
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
	char env_store[PATH_MAX];  /* empty: the site copies no environments to nodes */
	unsigned max_restarts;
};

void settings_default(struct settings *settings);

/* Apply a `name=value`; on false the settings are unchanged and `fault` says why. */
bool settings_take(struct settings *settings, const char *argument, char *fault,
		   size_t fault_size);

/* True if the line allows the plugin to work on a release without tests. */
bool settings_use_untested(int argc, char *const *argv);

#endif
