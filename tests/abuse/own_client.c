/*
 * Submits a batch job with fields that no command of Slurm lets a user set, as anybody can who
 * writes a client of his own: own_client WORK_DIR SCRIPT FIELD=VALUE... A FIELD may be
 * admin_comment, comment, partition, array, name, spank (an entry NAME=VALUE, repeatable) or env.
 * Prints the id of the job, or Slurm's error and exits with 1.
 */
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 64

static char *value_of(char *word, const char *field)
{
	size_t length = strlen(field);

	return !strncmp(word, field, length) && word[length] == '=' ? word + length + 1 : NULL;
}

static char *read_script(const char *path)
{
	static char text[1 << 16];
	FILE *file = fopen(path, "r");
	size_t size = file ? fread(text, 1, sizeof(text) - 1, file) : 0;

	text[size] = '\0';
	if (file)
		fclose(file);
	return text;
}

int main(int argc, char *argv[])
{
	job_desc_msg_t job;
	submit_response_msg_t *answer = NULL;
	char *environment[MOST] = {"PATH=/usr/bin:/bin"}, *spank[MOST];
	uint32_t known = 1, passed = 0;

	slurm_init(NULL);
	slurm_init_job_desc_msg(&job);
	job.user_id = getuid();
	job.group_id = getgid();
	job.work_dir = argv[1];
	job.script = read_script(argv[2]);
	job.std_in = job.std_out = job.std_err = "/dev/null";
	job.name = "own";
	job.min_nodes = job.max_nodes = 1;
	for (int i = 3; i < argc; i++) {
		char *value;

		if ((value = value_of(argv[i], "admin_comment")))
			job.admin_comment = value;
		else if ((value = value_of(argv[i], "comment")))
			job.comment = value;
		else if ((value = value_of(argv[i], "partition")))
			job.partition = value;
		else if ((value = value_of(argv[i], "array")))
			job.array_inx = value;
		else if ((value = value_of(argv[i], "name")))
			job.name = value;
		else if ((value = value_of(argv[i], "priority")))
			job.priority = strtoul(value, NULL, 10);
		else if ((value = value_of(argv[i], "spank")) && passed < MOST)
			spank[passed++] = value;
		else if ((value = value_of(argv[i], "env")) && known < MOST)
			environment[known++] = value;
	}
	job.environment = environment;
	job.env_size = known;
	job.spank_job_env = passed ? spank : NULL;
	job.spank_job_env_size = passed;
	if (slurm_submit_batch_job(&job, &answer) || !answer) {
		slurm_perror("own_client");
		return 1;
	}
	printf("%u\n", answer->job_id);
	return 0;
}
