#include "inherit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "environment.h"
#include "preposition.h"

#define OPTION_ENTRY "_SLURM_SPANK_OPTION_malleable_malleable"
#define ENV_OPTION_ENTRY "_SLURM_SPANK_OPTION_malleable_malleable_env"
#define INHERITED_ENV_OPTION "SLURM_SPANK_" ENV_OPTION_ENTRY
#define INHERITED_OPTION "SLURM_SPANK_" OPTION_ENTRY
#define VARIABLE "SBATCH_MALLEABLE"

bool inherit_is_inside(void)
{
	return getenv(ENVIRONMENT_REQUEST) || getenv(ENVIRONMENT_MARKS);
}

static const char *read_variable(void)
{
	const char *value = getenv(VARIABLE);

	return value && *value ? value : NULL;
}

void inherit_offer_variable(void)
{
	const char *value = read_variable();

	if (value)
		setenv(INHERITED_OPTION, value, 0);
}

bool inherit_is_variable(const char *value)
{
	const char *set = read_variable();

	return set && value && !strcmp(set, value);
}

bool inherit_is_option(const char *value)
{
	const char *inherited = getenv(INHERITED_OPTION);

	return inherit_is_inside() && inherited && value && !strcmp(inherited, value);
}

static void forget_entry(const char *name, const char *entry)
{
	const char *path = getenv(name);
	char *rest = path ? environment_path_without(path, entry) : NULL;

	if (rest && *rest)
		setenv(name, rest, 1);
	else if (rest)
		unsetenv(name);
	free(rest);
}

static void forget_paths(void)
{
	const char *entry = getenv(ENVIRONMENT_ENTRY);
	char bin[PATH_MAX + sizeof(ENVIRONMENT_BIN)];

	if (!entry)
		return;
	forget_entry("PYTHONPATH", entry);
	if ((size_t)snprintf(bin, sizeof(bin), "%s" ENVIRONMENT_BIN, entry) < sizeof(bin))
		forget_entry("PATH", bin);
}

static void forget_variables(void)
{
	const char *marks = getenv(ENVIRONMENT_MARKS);

	for (const char *const *name = environment_names; *name; name++) {
		if (environment_is_ours(marks, *name, getenv(*name)))
			unsetenv(*name);
	}
	forget_paths();
	unsetenv(ENVIRONMENT_MARKS);
	unsetenv(ENVIRONMENT_KEPT);
	unsetenv(ENVIRONMENT_ENTRY);
}

void inherit_forget(spank_t spank)
{
	forget_variables();
	unsetenv(VARIABLE);
	unsetenv(ENVIRONMENT_REQUEST);
	unsetenv(ENVIRONMENT_DIR);
	unsetenv(ENVIRONMENT_TRAITS);
	unsetenv(ENVIRONMENT_NOTICE);
	unsetenv(ENVIRONMENT_FAREWELL);
	unsetenv(ENVIRONMENT_SLOT);
	unsetenv(INHERITED_OPTION);
	unsetenv(OPTION_ENTRY);
	unsetenv(ENVIRONMENT_ENV);
	unsetenv(PREPOSITION_VARIABLE);
	unsetenv(INHERITED_ENV_OPTION);
	unsetenv(ENV_OPTION_ENTRY);
	/* srun has copied SLURM_SPANK_* before it asks us; sbatch and salloc have not. */
	spank_job_control_unsetenv(spank, "MALLEABLE");
	spank_job_control_unsetenv(spank, "MALLEABLE_DIR");
	spank_job_control_unsetenv(spank, "MALLEABLE_TRAITS");
	spank_job_control_unsetenv(spank, "MALLEABLE_NOTICE_S");
	spank_job_control_unsetenv(spank, "MALLEABLE_FAREWELL_S");
	spank_job_control_unsetenv(spank, "MALLEABLE_SLOT");
	spank_job_control_unsetenv(spank, OPTION_ENTRY);
	spank_job_control_unsetenv(spank, PREPOSITION_VARIABLE);
	spank_job_control_unsetenv(spank, ENV_OPTION_ENTRY);
}
