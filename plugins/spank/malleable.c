/*
 * SPANK plugin `malleable`: the option --malleable and the environment that
 * comes with it.
 *
 * This file only dispatches:
 *   identity.c     says on which releases of Slurm the plugin works
 *   request.c      parses the option, with items.c and sizes.c
 *   taken.c        finds a script that sbatch took as the option's value
 *   settings.c     reads the plugstack line
 *   environment.c  decides on variables
 *   paths.c        puts the job path in front of PYTHONPATH and PATH
 *   preposition.c  names the copy of the job's environment
 *   place.c        finds the job, the fragment and the node
 *   inherit.c      drops the variables of a surrounding job
 * The plugin must never fail or delay a job. So it should be `optional` in
 * plugstack.conf, and it ignores a job without the option. It opens no file
 * but, in sbatch, the process's own command line.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "environment.h"
#include "identity.h"
#include "inherit.h"
#include "paths.h"
#include "place.h"
#include "preposition.h"
#include "request.h"
#include "settings.h"
#include "slurm_symbols.h"
#include "taken.h"

static bool is_on; /* false on a release without tests: then it calls no function of Slurm */
static bool is_requested;
static bool is_taken; /* the value is a word that is not meant as one, and the user has read so */
static struct request request;
static char env_path[PATH_MAX]; /* of --malleable-env; empty without the option */
static struct settings settings; /* read in slurmstepd only */

/*
 * salloc keeps its options in a global `saopt`, sbatch in `sbopt` (seen in
 * 22.05.8, 24.11.5 and 26.05.5). That works for renamed and wrapped commands
 * too. The program name is checked next. If in doubt, it is sbatch.
 */
static bool is_salloc(void)
{
	if (dlsym(RTLD_DEFAULT, "sbopt"))
		return false;
	return dlsym(RTLD_DEFAULT, "saopt") || !strcmp(program_invocation_short_name, "salloc");
}

static int refuse_command(const char *command)
{
	slurm_error("malleable: %s cannot take --malleable: only a batch job can be malleable; "
		    "use sbatch --malleable=MIN-MAX SCRIPT", command);
	return -1;
}

static int read_option(const char *value)
{
	char fault[REQUEST_FAULT_SIZE] = "";

	is_requested = request_parse(value, &request, fault, sizeof(fault));
	if (is_requested)
		return 0;
	if (!is_taken)
		slurm_error("malleable: %s", fault);
	return -1;
}

/* 22.05 calls this twice in a step: from srun's message and from the environment. */
static int take_option(int val, const char *value, int remote)
{
	(void)val;
	if (!remote && spank_context() == S_CTX_LOCAL)
		return inherit_is_option(value) ? 0 : refuse_command("srun");
	if (!remote && is_salloc())
		return refuse_command("salloc");
	if (!read_option(value))
		return 0;
	if (!remote && inherit_is_variable(value))
		slurm_error("malleable: the environment variable SBATCH_MALLEABLE has this value; "
			    "for an ordinary job, unset it");
	return -1;
}

/*
 * sbatch reads the script before it calls take_option. In `sbatch --malleable train.sh` it has no
 * script, so it waits at the terminal without any other message.
 */
static void report_taken(void)
{
	char word[REQUEST_TEXT_SIZE];

	if (!taken_read(word, sizeof(word)) || !read_option(word))
		return;
	is_taken = true;
	if (isatty(STDIN_FILENO))
		slurm_error("malleable: sbatch now reads a script from the terminal; press Ctrl-C");
}

static struct spank_option option = {
	.name = "malleable",
	.arginfo = "MIN-MAX[,KEY=VALUE...]",
	.usage = "run on MIN to MAX nodes, and follow the number of idle nodes. "
		 "unit: nodes of a fragment (default 1), or gpu, 2gpu, task, 4task to count GPUs "
		 "or tasks on parts of nodes. "
		 "engine: the kind of program (default torchrun; with pool MIN may be 0). "
		 "launch=srun: the script starts its workers with srun. "
		 "core=N: wait for N nodes in your own partition, which are never taken. "
		 "core_end=finish: end the job when its core ends. "
		 "sizes=2,4,8 or sizes=x2: run at these sizes only. "
		 "prefer=N: prefer this size. "
		 "min_run=10m: do not grow for so long after a change. For sbatch only",
	.has_arg = 1,
	.val = 0,
	.cb = take_option,
};

/* srun reads the option back in a job; only sbatch can set it. */
static int take_env(int val, const char *value, int remote)
{
	(void)val;
	if (remote || spank_context() != S_CTX_ALLOCATOR)
		return 0;
	if (!preposition_is_path(value)) {
		slurm_error("malleable: --malleable-env=%.80s: this is not an absolute path; write "
			    "for example --malleable-env=$PWD/env.tar", value ? value : "");
		return -1;
	}
	snprintf(env_path, sizeof(env_path), "%s", value);
	return 0;
}

static struct spank_option env_option = {
	.name = "malleable-env",
	.arginfo = "PATH",
	.usage = "with --malleable: copy this tar, directory or squashfs image to each node before "
		 "the script starts there, if the site offers that; MALLEABLE_ENV holds its path",
	.has_arg = 1,
	.val = 1,
	.cb = take_env,
};

/* srun may instead start a step of the current job. */
static bool is_new_job(spank_context_t context)
{
	return context == S_CTX_ALLOCATOR || (context == S_CTX_LOCAL && !getenv("SLURM_JOB_ID"));
}

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
	spank_context_t context;
	spank_err_t error;

	is_on = identity_is_tested() || settings_use_untested(argc, argv);
	if (!is_on)
		return 0;
	context = spank_context();
	if (context != S_CTX_ALLOCATOR && context != S_CTX_LOCAL && context != S_CTX_REMOTE)
		return 0;
	if (is_new_job(context) && inherit_is_inside())
		inherit_forget(spank);
	else if (context == S_CTX_ALLOCATOR && !is_salloc())
		inherit_offer_variable();
	if (context == S_CTX_ALLOCATOR && !is_salloc())
		report_taken();
	error = spank_option_register(spank, &option);
	if (!error)
		error = spank_option_register(spank, &env_option);
	if (error)
		slurm_error("malleable: cannot register --malleable: %s", spank_strerror(error));
	return 0;
}

/* Pass the canonical request to job_submit, Prolog and Epilog. */
static int pass_request_on(spank_t spank)
{
	char text[REQUEST_TEXT_SIZE] = "";
	spank_err_t error = ESPANK_NOSPACE;

	if (request_print(&request, text, sizeof(text)))
		error = spank_job_control_setenv(spank, "MALLEABLE", text, 1);
	if (!error && *env_path)
		error = preposition_pass_on(spank, env_path);
	if (!error)
		return 0;
	slurm_error("malleable: cannot pass --malleable=%s on to the controller: %s", text,
		    spank_strerror(error));
	return -1;
}

/* Called before the job's log is open, so errors go to slurmd's log. */
static void read_settings(int argc, char *argv[])
{
	char fault[SETTINGS_FAULT_SIZE];

	settings_default(&settings);
	for (int i = 0; i < argc; i++) {
		if (!settings_take(&settings, argv[i], fault, sizeof(fault)))
			slurm_error("malleable: %s", fault);
	}
}

/* With sbatch --export=NONE, 22.05 does not pass the option itself to the node. */
static void read_request_of_job(spank_t spank)
{
	char **list = NULL;
	const char *text = NULL;

	if (spank_get_item(spank, S_JOB_ENV, &list) == ESPANK_SUCCESS)
		text = environment_value(list, ENVIRONMENT_REQUEST);
	if (text)
		read_option(text);
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
	if (!is_on)
		return 0;
	if (spank_context() == S_CTX_ALLOCATOR && is_requested)
		return pass_request_on(spank);
	if (spank_context() == S_CTX_ALLOCATOR && *env_path) /* too late to refuse it */
		slurm_error("malleable: --malleable-env is ignored: it needs --malleable=MIN-MAX");
	if (spank_context() != S_CTX_REMOTE)
		return 0;
	if (!is_requested)
		read_request_of_job(spank);
	if (is_requested)
		read_settings(argc, argv);
	return 0;
}

/* Write lines to the job's own log, which slurm_spank_log reaches from user_init on. */
static void report(const struct place *place, const struct environment *environment)
{
	if (!place->in_array)
		slurm_spank_log("malleable: this job is not an array, so it runs as a rigid job and "
				"--malleable has no effect; ask your administrator whether "
				"job_submit supports malleable jobs");
	if (place->in_array && !*environment->dir)
		slurm_spank_log("malleable: this fragment cannot meet the others: the job's work "
				"directory is not on this node, or is /tmp, which nodes do not "
				"share; submit from a directory that all nodes share");
	if (environment->lacks_traits)
		slurm_spank_log("malleable: job_submit did not say what kind of program engine=%s "
				"is, so the fragments of this job cannot meet; if the job is older "
				"than the last upgrade, submit it again, else ask your "
				"administrator to install the Lua modules of this version",
				request.engine);
	if (environment->was_identical)
		slurm_spank_log("malleable: TORCH_ELASTIC_WORKER_IDENTICAL is unset: fragments have "
				"different numbers of workers; drop it from sbatch's environment");
	if (*environment->kept)
		slurm_spank_log("malleable: %s: your own values are kept; unset them before sbatch "
				"to get the values of the malleable job", environment->kept);
}

static spank_err_t set_variables(spank_t spank, const struct environment *environment)
{
	spank_err_t error = ESPANK_SUCCESS;

	for (size_t i = 0; i < environment->count && !error; i++)
		error = spank_setenv(spank, environment->set[i].name, environment->set[i].value,
				     1);
	if (!error)
		error = spank_setenv(spank, ENVIRONMENT_MARKS, environment->marks, 1);
	if (!error && *environment->dir)
		error = spank_setenv(spank, ENVIRONMENT_DIR, environment->dir, 1);
	if (!error && *environment->kept)
		error = spank_setenv(spank, ENVIRONMENT_KEPT, environment->kept, 1);
	else if (!error)
		spank_unsetenv(spank, ENVIRONMENT_KEPT);
	for (const char *const *name = environment->unset; *name; name++)
		spank_unsetenv(spank, *name);
	return error;
}

/*
 * For the batch script and steps, as the user. slurmstepd has changed to the
 * working directory before it calls this; a step's may not be the job's.
 */
int slurm_spank_user_init(spank_t spank, int argc, char *argv[])
{
	struct environment environment = {.count = 0};
	struct place place = {.in_array = false};
	char work_dir[PATH_MAX], addr[PLACE_ADDR_SIZE];
	char **list = NULL;

	(void)argc;
	(void)argv;
	if (!is_requested)
		return 0;
	if (spank_get_item(spank, S_JOB_ENV, &list))
		goto fail;
	place_find_job(spank, &place);
	place.cluster = environment_cluster(list);
	if (!place.is_batch)
		place.dir = environment_value(list, ENVIRONMENT_DIR);
	else if (getcwd(work_dir, sizeof(work_dir)) && !environment_is_astray(work_dir))
		place.work_dir = work_dir;
	if (place_find_addr(addr, sizeof(addr)))
		place.node_addr = addr;
	if (!environment_decide(&request, &settings, &place, list, &environment))
		goto fail;
	if (place.is_batch)
		report(&place, &environment);
	if (set_variables(spank, &environment))
		goto fail;
	if (place.in_array && paths_set(spank, settings.pythonpath))
		goto fail;
	if (preposition_set(spank, settings.env_store))
		goto fail;
	environment_free(&environment);
	return 0;
fail:
	slurm_error("malleable: cannot set the environment of the malleable job; "
		    "it runs without it");
	environment_free(&environment);
	return 0;
}
