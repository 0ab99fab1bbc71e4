#define _GNU_SOURCE
#include "paths.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "environment.h"

/*
 * Resolve a link in the site's setting to its current target, so that an upgrade
 * changes no module under a running script. A step uses the target of its script,
 * unless this node lacks it.
 */
static const char *find_entry(const char *of_script, const char *job_path,
			      char resolved[PATH_MAX])
{
	/* access() would check the real user, which is root here, and so reveal root's files. */
	if (of_script && !faccessat(AT_FDCWD, of_script, R_OK, AT_EACCESS))
		return of_script;
	return realpath(job_path, resolved) ? resolved : job_path;
}

static spank_err_t put_in_front(spank_t spank, const char *name, const char *value,
				const char *entry)
{
	char *path = environment_path_with(value, entry);
	spank_err_t error = path ? spank_setenv(spank, name, path, 1) : ESPANK_SUCCESS;

	free(path);
	return error;
}

/* Without a PATH, shells use a default, which a PATH with only our entry would hide. */
static spank_err_t set_programs(spank_t spank, const char *entry)
{
	char bin[PATH_MAX + sizeof(ENVIRONMENT_BIN)];
	char **list = NULL;
	const char *path = NULL;

	if (spank_get_item(spank, S_JOB_ENV, &list) == ESPANK_SUCCESS)
		path = environment_value(list, "PATH");
	if (!path || !*path)
		return ESPANK_SUCCESS;
	snprintf(bin, sizeof(bin), "%s" ENVIRONMENT_BIN, entry);
	return put_in_front(spank, "PATH", path, bin);
}

spank_err_t paths_set(spank_t spank, const char *job_path)
{
	char **list = NULL;
	char resolved[PATH_MAX], entry[PATH_MAX];
	spank_err_t error = spank_get_item(spank, S_JOB_ENV, &list);

	if (error || !*job_path)
		return error;
	/* A copy, since it may point into the environment that is about to change. */
	snprintf(entry, sizeof(entry), "%s",
		 find_entry(environment_value(list, ENVIRONMENT_ENTRY), job_path, resolved));
	error = put_in_front(spank, "PYTHONPATH", environment_value(list, "PYTHONPATH"), entry);
	if (!error)
		error = set_programs(spank, entry);
	if (!error)
		error = spank_setenv(spank, ENVIRONMENT_ENTRY, entry, 1);
	return error;
}
