#include "settings.h"

#include <stdio.h>
#include <string.h>

#define RESTARTS_MAX 1000000U
#define DIGITS_MAX 7 /* of RESTARTS_MAX */

void settings_default(struct settings *settings)
{
	*settings = (struct settings){
		.pythonpath = "",
		.env_store = "",
		.dir = "%w/.malleable-%U/%C/%A",
		.max_restarts = 1000,
	};
}

static bool take_number(const char *text, unsigned most, unsigned *number)
{
	unsigned value = 0;
	size_t length = strspn(text, "0123456789");

	if (!length || length > DIGITS_MAX || text[length])
		return false;
	for (size_t i = 0; i < length; i++)
		value = value * 10 + (unsigned)(text[i] - '0');
	if (value > most)
		return false;
	*number = value;
	return true;
}

static bool take_text(const char *text, char *target)
{
	size_t length = strlen(text);

	if (length >= PATH_MAX)
		return false;
	memcpy(target, text, length + 1);
	return true;
}

/* A colon would split PYTHONPATH. A relative entry would depend on the current directory. */
static bool take_pythonpath(struct settings *settings, const char *value)
{
	return value[0] == '/' && !strchr(value, ':') && take_text(value, settings->pythonpath);
}

static bool take_env_store(struct settings *settings, const char *value)
{
	return value[0] == '/' && take_text(value, settings->env_store);
}

static bool take_dir(struct settings *settings, const char *value)
{
	if (value[0] != '/' && strncmp(value, "%w", 2))
		return false;
	for (const char *at = strchr(value, '%'); at; at = strchr(at + 2, '%')) {
		if (!at[1] || !strchr("wCAU%", at[1]))
			return false;
	}
	return strstr(value, "%A") && take_text(value, settings->dir);
}

static bool take_max_restarts(struct settings *settings, const char *value)
{
	return take_number(value, RESTARTS_MAX, &settings->max_restarts);
}

/* settings_use_untested reads it, before all other arguments. */
static bool take_untested(struct settings *settings, const char *value)
{
	(void)settings;
	return !strcmp(value, "use");
}

static const struct {
	const char *name; /* with its = */
	bool (*take)(struct settings *, const char *);
	const char *allowed;
} arguments[] = {
	{"pythonpath=", take_pythonpath, "an absolute directory without a colon"},
	{"max_restarts=", take_max_restarts, "a whole number from 0 to 1000000"},
	{"dir=", take_dir,
	 "a path that begins with / or %w and contains %A (%w: the job's work directory, "
	 "%C: cluster, %A: array job id, %U: uid, %%: a percent sign)"},
	{"env_store=", take_env_store, "an absolute directory on the nodes"},
	{"untested=", take_untested, "the word use"},
};

bool settings_take(struct settings *settings, const char *argument, char *fault,
		   size_t fault_size)
{
	for (size_t i = 0; i < sizeof(arguments) / sizeof(arguments[0]); i++) {
		size_t length = strlen(arguments[i].name);

		if (strncmp(argument, arguments[i].name, length))
			continue;
		if (arguments[i].take(settings, argument + length))
			return true;
		snprintf(fault, fault_size, "plugstack.conf: ignored '%.80s': %s takes %s",
			 argument, arguments[i].name, arguments[i].allowed);
		return false;
	}
	snprintf(fault, fault_size,
		 "plugstack.conf: ignored '%.80s': the arguments are pythonpath=, "
		 "max_restarts=, dir=, env_store= and untested=",
		 argument);
	return false;
}

bool settings_use_untested(int argc, char *const *argv)
{
	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "untested=use"))
			return true;
	}
	return false;
}
