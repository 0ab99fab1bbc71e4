/* Tests of whose value wins, without Slurm: `make test`. */
#include "check.h"
#include "environment.h"

static const char *decided(const struct environment *environment, const char *name)
{
	for (size_t i = 0; i < environment->count; i++) {
		if (!strcmp(environment->set[i].name, name))
			return environment->set[i].value;
	}
	return NULL;
}

struct scene {
	struct request request;
	struct settings settings;
	struct place place;
	const char *traits; /* as job_submit passes them; NULL if it does not */
	struct environment environment;
};

static void prepare(struct scene *scene, const char *text)
{
	char fault[REQUEST_FAULT_SIZE];

	request_parse(text, &scene->request, fault, sizeof(fault));
	settings_default(&scene->settings);
	scene->traits = "gang+rounds+torchrun";
	scene->place = (struct place){
		.in_array = true,
		.is_batch = true,
		.job_id = 42,
		.fragment = 3,
		.user_id = 1000,
		.node_addr = "10.0.0.7",
		.work_dir = "/home/ada/run",
		.cluster = "alpha",
	};
}

static void decide(struct scene *scene, char *const *list)
{
	char traits[128], *with_traits[8] = {NULL};
	size_t count = 0;

	for (; list && list[count]; count++)
		with_traits[count] = list[count];
	snprintf(traits, sizeof(traits), ENVIRONMENT_TRAITS "=%s",
		 scene->traits ? scene->traits : "");
	if (scene->traits)
		with_traits[count] = traits;
	expect(environment_decide(&scene->request, &scene->settings, &scene->place, with_traits,
				  &scene->environment),
	       "decide", NULL);
}

static void test_everything_is_set(void)
{
	static const char *const wanted[][2] = {
		{"PET_NNODES", "2:8"},
		{"PET_RDZV_BACKEND",
		 "malleable-needs-torch-2.6-or-newer-and-the-PYTHONPATH-of-the-job"},
		{"PET_RDZV_ID", "42"},
		{"PET_RDZV_ENDPOINT", "/home/ada/run/.malleable-1000/alpha/42"},
		{"PET_LOCAL_ADDR", "10.0.0.7"},
		{"PET_MAX_RESTARTS", "1000"},
		{"MALLEABLE_JOB_ID", "42"},
		{"MALLEABLE_FRAGMENT", "3"},
		{"MALLEABLE_MIN", "4"},
		{"MALLEABLE_MAX", "16"},
		{"MALLEABLE_UNIT", "2"},
		{"MALLEABLE_ENGINE", "torchrun"},
		{"MALLEABLE_DIR", "/home/ada/run/.malleable-1000/alpha/42"},
		{"MALLEABLE_NOTICE_S", "35"},
		{"MALLEABLE_FAREWELL_S", "1.5"},
	};
	char *list[] = {"HOME=/home/ada", "PET_NNODESX=9",
			"SLURM_SPANK_MALLEABLE_NOTICE_S=35",
			"SLURM_SPANK_MALLEABLE_FAREWELL_S=1.5", NULL};
	struct scene scene;

	prepare(&scene, "4-16,unit=2");
	decide(&scene, list);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		const char *value = decided(&scene.environment, wanted[i][0]);

		expect_text(value, wanted[i][1], wanted[i][0]);
		expect(environment_is_ours(scene.environment.marks, wanted[i][0], value),
		       "marked", wanted[i][0]);
	}
	expect(scene.environment.count == ENVIRONMENT_VARIABLES - 1, "count", NULL);
	for (size_t i = 0; environment_names[i]; i++)
		expect((!strcmp(environment_names[i], "MALLEABLE_ADDR") ||
			!strcmp(environment_names[i], "PET_NPROC_PER_NODE")) ==
			       !decided(&scene.environment, environment_names[i]),
		       "listed", environment_names[i]);
	expect_text(scene.environment.kept, "", "kept");
	environment_free(&scene.environment);
}

static void test_fixed_size(void)
{
	struct scene scene;

	prepare(&scene, "4-4");
	decide(&scene, NULL);
	expect_text(decided(&scene.environment, "PET_NNODES"), "4", "equal MIN and MAX");
	environment_free(&scene.environment);
}

/* srun starts torchrun on every node, the batch script only on the first of a fragment. */
static void test_agents(void)
{
	struct scene scene;

	prepare(&scene, "4-16,unit=2,launch=srun");
	decide(&scene, NULL);
	expect_text(decided(&scene.environment, "PET_NNODES"), "4:16", "one agent a node");
	environment_free(&scene.environment);
}

/* With torchft a fragment is a replica group: torchrun's world is that fragment alone. */
static void test_replica_groups(void)
{
	struct scene scene;

	prepare(&scene, "4-16,unit=2,engine=torchft");
	scene.traits = "torchrun";
	decide(&scene, NULL);
	expect_text(decided(&scene.environment, "PET_NNODES"), "1", "one agent a group");
	expect_text(decided(&scene.environment, "PET_RDZV_BACKEND"),
		    "malleable-needs-torch-2.6-or-newer-and-the-PYTHONPATH-of-the-job",
		    "rendezvous");
	expect_text(decided(&scene.environment, "MALLEABLE_ENGINE"), "torchft", "engine");
	environment_free(&scene.environment);
	prepare(&scene, "4-16,unit=2,engine=torchft,launch=srun");
	scene.traits = "torchrun";
	decide(&scene, NULL);
	expect_text(decided(&scene.environment, "PET_NNODES"), "2", "one agent a node");
	environment_free(&scene.environment);
}

/* A fragment has some GPUs of one node, and one agent. */
static void test_parts_of_nodes(void)
{
	static const char *const cases[][5] = {
		/* request, traits, PET_NNODES, PET_NPROC_PER_NODE, MALLEABLE_UNIT */
		{"4-64,unit=gpu", "gang+rounds+torchrun", "1:64", "gpu", "1"},
		{"4-64,unit=2gpu", "gang+rounds+torchrun", "1:32", "gpu", "2"},
		{"4-64,unit=4gpu,launch=srun", "gang+rounds+torchrun", "1:16", "gpu", "4"},
		{"8-8,unit=8gpu", "gang+rounds+torchrun", "1", "gpu", "8"},
		{"4-64,unit=2gpu,engine=torchft", "torchrun", "1", "gpu", "2"},
		{"4-64,unit=task", "gang+rounds+torchrun", "1:64", NULL, "1"},
		{"0-64,unit=gpu,engine=pool", "pool", NULL, NULL, "1"},
		{"4-64,unit=2", "gang+rounds+torchrun", "2:32", NULL, "2"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *text = cases[i][0];
		struct scene scene;

		prepare(&scene, text);
		scene.traits = cases[i][1];
		decide(&scene, NULL);
		expect_text(decided(&scene.environment, "PET_NNODES"), cases[i][2], text);
		expect_text(decided(&scene.environment, "PET_NPROC_PER_NODE"), cases[i][3], text);
		expect_text(decided(&scene.environment, "MALLEABLE_UNIT"), cases[i][4], text);
		environment_free(&scene.environment);
	}
}

static void test_workers_of_a_fragment_of_tasks(void)
{
	static const char *const cases[][3] = {
		{"SLURM_JOB_CPUS_PER_NODE=12", "SLURM_SPANK_MALLEABLE_SLOT=cpu:3+mem:100", "4"},
		{"SLURM_JOB_CPUS_PER_NODE=14", "SLURM_SPANK_MALLEABLE_SLOT=cpu:3", "4"},
		{"SLURM_CPUS_PER_TASK=9", "SLURM_SPANK_MALLEABLE_SLOT=cpu:3", "3"},
		{"SLURM_JOB_CPUS_PER_NODE=2", "SLURM_SPANK_MALLEABLE_SLOT=cpu:3", NULL},
		{"SLURM_JOB_CPUS_PER_NODE=12", "SLURM_SPANK_MALLEABLE_SLOT=mem:100", NULL},
		{"SLURM_JOB_CPUS_PER_NODE=12", "SLURM_SPANK_MALLEABLE_SLOT=cpu:0", NULL},
		{"SLURM_JOB_CPUS_PER_NODE=x", "SLURM_SPANK_MALLEABLE_SLOT=cpu:1", NULL},
		{"SLURM_JOB_CPUS_PER_NODE=12", "OTHER=", NULL},
		{"SLURM_JOB_CPUS_PER_NODE=99999999999999999999999", "SLURM_SPANK_MALLEABLE_SLOT=cpu:1",
		 NULL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char cpus[64], slot[64], *list[] = {cpus, slot, NULL};
		struct scene scene;

		snprintf(cpus, sizeof(cpus), "%s", cases[i][0]);
		snprintf(slot, sizeof(slot), "%s", cases[i][1]);
		prepare(&scene, "2-8,unit=task");
		decide(&scene, list);
		expect_text(decided(&scene.environment, "PET_NPROC_PER_NODE"), cases[i][2], slot);
		environment_free(&scene.environment);
	}
}

static void test_the_users_number_of_workers_is_kept(void)
{
	char *list[] = {"PET_NPROC_PER_NODE=2", NULL};
	struct scene scene;

	prepare(&scene, "4-64,unit=2gpu");
	decide(&scene, list);
	expect_text(decided(&scene.environment, "PET_NPROC_PER_NODE"), NULL, "kept");
	expect_text(scene.environment.kept, "PET_NPROC_PER_NODE", "kept");
	environment_free(&scene.environment);
}

/* Each fragment has another size than the submission, which srun must not read. */
static void test_sizes_of_the_submission_are_dropped(void)
{
	char *list[] = {"SLURM_GPUS=8", "SLURM_GPUS_ON_NODE=4", "SLURM_MEM_PER_GPU=",
			"TORCH_ELASTIC_WORKER_IDENTICAL=1", NULL};
	struct scene scene;

	prepare(&scene, "4-64,unit=gpu");
	decide(&scene, list);
	expect_text(scene.environment.unset[0], "SLURM_GPUS", "unset");
	expect_text(scene.environment.unset[1], "SLURM_MEM_PER_GPU", "unset, though empty");
	expect_text(scene.environment.unset[2], "TORCH_ELASTIC_WORKER_IDENTICAL", "unset");
	expect_text(scene.environment.unset[3], NULL, "the end");
	expect(scene.environment.was_identical, "identical", NULL);
	environment_free(&scene.environment);

	scene.place.is_batch = false;
	decide(&scene, list);
	expect_text(scene.environment.unset[0], NULL, "a step's own");
	environment_free(&scene.environment);

	prepare(&scene, "4-64,unit=2");
	decide(&scene, list);
	expect_text(scene.environment.unset[0], NULL, "whole nodes");
	expect(!scene.environment.was_identical, "not dropped", NULL);
	environment_free(&scene.environment);
}

static void test_users_value_wins(void)
{
	char *list[] = {"PET_MAX_RESTARTS=3", "PET_RDZV_ID=mine", "MALLEABLE_MIN=2", NULL};
	struct scene scene;

	prepare(&scene, "2-4");
	decide(&scene, list);
	expect_text(decided(&scene.environment, "PET_MAX_RESTARTS"), NULL, "kept");
	expect_text(scene.environment.kept, "PET_RDZV_ID,PET_MAX_RESTARTS", "reported");
	expect(!environment_is_ours(scene.environment.marks, "MALLEABLE_MIN", "2"),
	       "the same value is still the user's", scene.environment.marks);
	environment_free(&scene.environment);
}

/* A step finds what the batch step set; the script changed one value. */
static void test_step(void)
{
	struct scene scene;
	char marks[ENVIRONMENT_MARKS_SIZE + 16];
	char *list[] = {marks, "PET_LOCAL_ADDR=10.0.0.7", "PET_MAX_RESTARTS=5",
			"PET_RDZV_ENDPOINT=/home/ada/run/.malleable-1000/alpha/42", NULL};

	prepare(&scene, "2-4");
	decide(&scene, NULL);
	snprintf(marks, sizeof(marks), "MALLEABLE_SET=%s", scene.environment.marks);
	environment_free(&scene.environment);
	scene.place.is_batch = false;
	scene.place.node_addr = "10.0.0.8";
	scene.place.work_dir = NULL;
	decide(&scene, list);
	expect_text(decided(&scene.environment, "PET_LOCAL_ADDR"), "10.0.0.8", "this node's");
	expect_text(decided(&scene.environment, "PET_RDZV_ENDPOINT"), NULL, "left as it is");
	expect(environment_is_ours(scene.environment.marks, "PET_RDZV_ENDPOINT",
				   "/home/ada/run/.malleable-1000/alpha/42"),
	       "still ours", scene.environment.marks);
	expect_text(scene.environment.kept, "PET_MAX_RESTARTS", "changed by the script");
	environment_free(&scene.environment);
}

/* With srun --export=NONE the directory is known only from the batch step. */
static void test_handed_down_dir(void)
{
	struct scene scene;

	prepare(&scene, "2-4");
	decide(&scene, NULL);
	expect_text(scene.environment.dir, "/home/ada/run/.malleable-1000/alpha/42", "found");
	environment_free(&scene.environment);
	scene.place.is_batch = false;
	scene.place.work_dir = NULL;
	decide(&scene, NULL);
	expect_text(scene.environment.dir, "", "unknown");
	expect_text(decided(&scene.environment, "PET_RDZV_ENDPOINT"), NULL, "left as it is");
	expect_text(decided(&scene.environment, "MALLEABLE_DIR"), NULL, "unknown");
	environment_free(&scene.environment);
	scene.place.dir = "/handed/42";
	decide(&scene, NULL);
	expect_text(decided(&scene.environment, "PET_RDZV_ENDPOINT"), "/handed/42", "handed");
	environment_free(&scene.environment);
}

/* Its working directory is missing on the node: it must not train alone elsewhere. */
static void test_astray(void)
{
	struct scene scene;

	prepare(&scene, "2-4");
	scene.place.work_dir = NULL;
	decide(&scene, NULL);
	expect_text(decided(&scene.environment, "PET_RDZV_ENDPOINT"),
		    "the-work-directory-of-the-job-is-not-on-this-node", "no rendezvous");
	expect_text(decided(&scene.environment, "MALLEABLE_DIR"), NULL, "no directory");
	environment_free(&scene.environment);
	expect(environment_is_astray("/tmp"), "astray", NULL);
	expect(!environment_is_astray("/tmp/run"), "at home", NULL);
}

static void test_rigid(void)
{
	struct scene scene;

	prepare(&scene, "2-4");
	scene.place.in_array = false;
	decide(&scene, NULL);
	expect(scene.environment.count == 4, "only the request", NULL);
	expect_text(decided(&scene.environment, "MALLEABLE_MAX"), "4", "MAX");
	expect_text(decided(&scene.environment, "PET_NNODES"), NULL, "PET_NNODES");
	environment_free(&scene.environment);
}

/* What PET_LOCAL_ADDR is for torchrun; nothing else starts with torchrun's own names. */
static void test_without_torchrun(void)
{
	static const char *const texts[][2] = {{"2-4,engine=mpi", "gang+rounds"},
					       {"2-4,engine=of_the_site", "gang+rounds"},
					       {"0-4,engine=pool", "pool"}};
	struct scene scene;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		const char *text = texts[i][0];

		prepare(&scene, text);
		scene.traits = texts[i][1];
		decide(&scene, NULL);
		expect_text(decided(&scene.environment, "MALLEABLE_ADDR"), "10.0.0.7", text);
		expect_text(decided(&scene.environment, "PET_LOCAL_ADDR"), NULL, text);
		expect_text(decided(&scene.environment, "MALLEABLE_DIR"),
			    "/home/ada/run/.malleable-1000/alpha/42", text);
		environment_free(&scene.environment);
	}
	decide(&scene, (char *[]){"MALLEABLE_ADDR=lo", NULL});
	expect_text(scene.environment.kept, "MALLEABLE_ADDR", "the user's own");
	environment_free(&scene.environment);
	prepare(&scene, "0-4,engine=pool");
	scene.traits = "pool";
	decide(&scene, NULL);
	expect_text(decided(&scene.environment, "MALLEABLE_MIN"), "0", "MIN");
	environment_free(&scene.environment);
}

/* torchrun must not start a training of one fragment, whatever the engine is called. */
static void test_without_traits(void)
{
	static const char *const traits[] = {NULL, "", "gang+daemon"};
	static const char *const texts[] = {"2-4", "2-4,engine=tasks"};
	struct scene scene;

	for (size_t i = 0; i < 6; i++) {
		prepare(&scene, texts[i % 2]);
		scene.traits = traits[i / 2];
		decide(&scene, NULL);
		expect(scene.environment.lacks_traits, "found", scene.traits);
		expect_text(decided(&scene.environment, "PET_RDZV_ENDPOINT"),
			    "job_submit-did-not-say-what-the-engine-of-this-job-is", "endpoint");
		expect_text(decided(&scene.environment, "MALLEABLE_DIR"), NULL, "directory");
		expect_text(decided(&scene.environment, "MALLEABLE_ADDR"), NULL, "address");
		expect_text(decided(&scene.environment, "MALLEABLE_JOB_ID"), "42", "job id");
		expect_text(decided(&scene.environment, "MALLEABLE_NOTICE_S"), NULL, "not said");
		environment_free(&scene.environment);
	}
}

static void test_marks(void)
{
	expect(!environment_is_ours(NULL, "A", "1"), "no marks", NULL);
	expect(!environment_is_ours("", "A", "1"), "empty", NULL);
	expect(!environment_is_ours(",,,", "A", "1"), "commas", NULL);
	expect(!environment_is_ours("A:350ca8af", "A", NULL), "no value", NULL);
	expect(environment_is_ours("A:350ca8af", "A", "0"), "FNV-1a of 0", NULL);
	expect(environment_is_ours("B:1,A:350ca8af,", "A", "0"), "second", NULL);
	expect(!environment_is_ours("AA:350ca8af", "A", "0"), "other name", NULL);
	expect(!environment_is_ours("A:350ca8af0", "A", "0"), "longer", NULL);
}

static void test_cluster(void)
{
	static const struct {
		const char *line, *found;
	} cases[] = {
		{"SLURM_CLUSTER_NAME=alpha", "alpha"},
		{"SLURM_CLUSTER_NAME=", NULL},
		{"SLURM_CLUSTER_NAME=(null)", NULL},
		{"X=alpha", NULL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *const list[] = {(char *)cases[i].line, NULL};

		expect_text(environment_cluster(list), cases[i].found, cases[i].line);
	}
}

static void test_expand(void)
{
	struct place place = {.in_array = true, .job_id = 7, .user_id = 5, .work_dir = "/w",
			      .cluster = "c1"};
	char path[16];

	expect(environment_expand("%w/%U/%C/%A/%%", &place, path, sizeof(path)), "expand", NULL);
	expect_text(path, "/w/5/c1/7/%", "expanded");
	expect(!environment_expand("/a/long/path/to/%A", &place, path, sizeof(path)), "fits",
	       path);
	expect(!environment_expand("/a/long/path/%A", &place, path, strlen("/a/long/path/7")),
	       "its end fits", path);
	place.work_dir = NULL;
	expect(!environment_expand("%w/%A", &place, path, sizeof(path)), "unknown", path);
	expect(environment_expand("/s/%A", &place, path, sizeof(path)), "not wanted", path);
	place.cluster = NULL;
	expect(environment_expand("/s/%C/%A", &place, path, sizeof(path)), "unknown cluster", path);
	expect_text(path, "/s/cluster/7", "unknown cluster");
}

static void expect_path(char *found, const char *wanted, const char *what)
{
	expect_text(found, wanted, what);
	free(found);
}

static void test_python_path(void)
{
	expect_path(environment_path_with(NULL, "/j"), "/j", "none");
	expect_path(environment_path_with("", "/j"), "/j", "empty");
	expect_path(environment_path_with("/a:/b", "/j"), "/j:/a:/b", "in front");
	expect_path(environment_path_with("/a:", "/j"), "/j:/a:", "empty entry");
	expect_path(environment_path_with("/j", "/j"), NULL, "already alone");
	expect_path(environment_path_with("/a:/j:/b", "/j"), NULL, "already there");
	expect_path(environment_path_with("/jj:/a/j", "/j"), "/j:/jj:/a/j", "similar");
	expect_path(environment_path_without("/j:/a", "/j"), "/a", "first");
	expect_path(environment_path_without("/a:/j", "/j"), "/a", "last");
	expect_path(environment_path_without("/a:/j:/b:/j", "/j"), "/a:/b", "all");
	expect_path(environment_path_without("/j::/a", "/j"), ":/a", "empty entry");
	expect_path(environment_path_without("/j", "/j"), "", "alone");
	expect_path(environment_path_without("/a", "/j"), NULL, "not there");
	expect_path(environment_path_without("", "/j"), NULL, "empty");
}

int main(void)
{
	test_everything_is_set();
	test_fixed_size();
	test_agents();
	test_replica_groups();
	test_parts_of_nodes();
	test_workers_of_a_fragment_of_tasks();
	test_the_users_number_of_workers_is_kept();
	test_sizes_of_the_submission_are_dropped();
	test_users_value_wins();
	test_step();
	test_handed_down_dir();
	test_astray();
	test_rigid();
	test_without_torchrun();
	test_without_traits();
	test_marks();
	test_cluster();
	test_expand();
	test_python_path();
	return conclude("the environment");
}
