/*
 * Feeds whatever comes to the parts of the plugin that read what others wrote, for tests/fuzz.
 *
 * Texts come on standard input, each ended by a NUL. Each is answered by one letter: `a` if it is a
 * request, `r` if not. The sanitizers, with which this is built, end it at a fault.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "environment.h"
#include "request.h"
#include "settings.h"

#define LINES 64

/* A request that is read is written so that it is read again, and says the same. */
static bool read_request(const char *text, struct request *request)
{
	char fault[REQUEST_FAULT_SIZE], written[REQUEST_TEXT_SIZE], again[REQUEST_TEXT_SIZE];
	struct request second;

	if (!request_parse(text, request, fault, sizeof(fault)))
		return false;
	if (!request_print(request, written, sizeof(written)) ||
	    !request_parse(written, &second, fault, sizeof(fault)) ||
	    !request_print(&second, again, sizeof(again)) || strcmp(written, again))
		abort();
	return true;
}

static void read_settings(const char *text, struct settings *settings)
{
	char fault[SETTINGS_FAULT_SIZE];
	char *argument = strdup(text);

	settings_default(settings);
	settings_take(settings, text, fault, sizeof(fault));
	settings_use_untested(1, &argument);
	free(argument);
}

/* The lines of the text as a job's environment. */
static void read_environment(char *text, const struct request *request,
			     const struct settings *settings)
{
	struct place place = { .in_array = true, .is_batch = true, .job_id = 7, .user_id = 65534,
			       .node_addr = "n1", .work_dir = text, .cluster = "c1" };
	struct environment found;
	char *list[LINES + 1], *rest = strdup(text), *all = rest, *path;
	char expanded[PATH_MAX];
	size_t count = 0;

	for (char *line; count < LINES && (line = strsep(&rest, "\n"));)
		list[count++] = line;
	list[count] = NULL;
	environment_decide(request, settings, &place, list, &found);
	environment_free(&found);
	environment_is_ours(text, "PYTHONPATH", text);
	environment_is_astray(text);
	environment_expand(text, &place, expanded, sizeof(expanded));
	path = environment_path_with(text, "/opt/x");
	free(path);
	path = environment_path_without(text, "/opt/x");
	free(path);
	free(all);
}

int main(void)
{
	struct request request, plain;
	struct settings settings;
	char fault[REQUEST_FAULT_SIZE];
	char *text = NULL;
	size_t size = 0;

	if (!request_parse("1-4", &plain, fault, sizeof(fault)))
		return 1;
	while (getdelim(&text, &size, '\0', stdin) > 0) {
		bool is_request = read_request(text, &request);

		read_settings(text, &settings);
		read_environment(text, is_request ? &request : &plain, &settings);
		putchar(is_request ? 'a' : 'r');
		fflush(stdout);
	}
	free(text);
	return 0;
}
