#define _GNU_SOURCE
#include "preposition.h"

#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "environment.h"

bool preposition_is_path(const char *path)
{
	return path && path[0] == '/' && strlen(path) < PATH_MAX;
}

spank_err_t preposition_pass_on(spank_t spank, const char *path)
{
	return spank_job_control_setenv(spank, PREPOSITION_VARIABLE, path, 1);
}

/* The Prolog has made a link with the job's id. It leads to the copy beside it. */
static bool find_copy(spank_t spank, const char *store, char *copy)
{
	char link[PATH_MAX];
	uint32_t job = 0;
	uid_t user = 0;
	int used;

	if (!*store || spank_get_item(spank, S_JOB_ID, &job) ||
	    spank_get_item(spank, S_JOB_UID, &user))
		return false;
	used = snprintf(link, sizeof(link), "%s/%u/job-%u", store, (unsigned)user, (unsigned)job);
	return used > 0 && (size_t)used < sizeof(link) && realpath(link, copy) &&
	       !faccessat(AT_FDCWD, copy, R_OK | X_OK, AT_EACCESS);
}

spank_err_t preposition_set(spank_t spank, const char *store)
{
	char copy[PATH_MAX], original[PATH_MAX];
	const char *path = NULL;
	char **list = NULL;

	if (spank_get_item(spank, S_JOB_ENV, &list) == ESPANK_SUCCESS)
		path = environment_value(list, ENVIRONMENT_ENV);
	if (!preposition_is_path(path))
		return ESPANK_SUCCESS;
	/* A copy, since `path` points into the environment that is about to change. */
	snprintf(original, sizeof(original), "%s", path);
	return spank_setenv(spank, PREPOSITION_VARIABLE,
			    find_copy(spank, store, copy) ? copy : original, 1);
}
