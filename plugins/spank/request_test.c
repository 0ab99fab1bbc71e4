/* Tests of the option and of the plugstack arguments, without Slurm: `make test`. */
#include "check.h"
#include "request.h"
#include "settings.h"

static const struct {
	const char *text;
	const char *canonical;
} good_requests[] = {
	{"2-16", "2-16,unit=1,engine=torchrun"},
	{"1-1", "1-1,unit=1,engine=torchrun"},
	{"1-65535", "1-65535,unit=1,engine=torchrun"},
	{"002-04", "2-4,unit=1,engine=torchrun"},
	{"4-16,unit=2", "4-16,unit=2,engine=torchrun"},
	{"2-4,engine=mpi", "2-4,unit=1,engine=mpi"},
	{"0-64,engine=pool", "0-64,unit=1,engine=pool"},
	{"00-64,engine=pool,unit=2", "0-64,unit=2,engine=pool"},
	{"0-4", "0-4,unit=1,engine=torchrun"},
	{"2-4,engine=pool,launch=srun", "2-4,unit=1,engine=pool,launch=srun"},
	{"2-4,launch=srun", "2-4,unit=1,engine=torchrun,launch=srun"},
	{"4-8,launch=srun,engine=a_1,unit=4", "4-8,unit=4,engine=a_1,launch=srun"},
	{"4-64,unit=gpu", "4-64,unit=gpu,engine=torchrun"},
	{"4-64,unit=1gpu", "4-64,unit=gpu,engine=torchrun"},
	{"4-64,unit=2gpu", "4-64,unit=2gpu,engine=torchrun"},
	{"0-512,unit=task,engine=pool", "0-512,unit=task,engine=pool"},
	{"0-512,unit=4task,engine=pool,launch=srun", "0-512,unit=4task,engine=pool,launch=srun"},
	{"65535-65535,unit=65535gpu", "65535-65535,unit=65535gpu,engine=torchrun"},
	{"65535-65535,unit=65535,engine=abcdefghijklmnopqrstuvwxyz012345,launch=srun",
	 "65535-65535,unit=65535,engine=abcdefghijklmnopqrstuvwxyz012345,launch=srun"},
};

static const struct {
	const char *text;
	const char *said; /* must be in the message */
} bad_requests[] = {
	{NULL, "--malleable=2-16"},
	{"", "--malleable=2-16"},
	{"x", "MIN-MAX"},
	{"4", "--malleable=1-4"},
	{"1", "one number is not a range; write --malleable=1-1 for 1 node"},
	{"4-2", "--malleable=2-4"},
	{"0", "MIN-MAX"},
	{"0-1,unit=2", "none lies in 0-1"},
	{"0-1,unit=2,engine=pool", "none lies in 0-1"},
	{"0-5,unit=2,engine=pool", "--malleable=0-4,unit=2"},
	{"0-0", "from 1 to 65535"},
	{"0-0,engine=pool", "from 1 to 65535"},
	{"2-65536", "from 1 to 65535"},
	{"2-99999999999999999999", "from 1 to 65535"},
	{"-4", "from 1 to 65535"},
	{"2-", "from 1 to 65535"},
	{"-", "from 1 to 65535"},
	{"2--4", "from 1 to 65535"},
	{"2-4-6", "from 1 to 65535"},
	{"+2-4", "from 1 to 65535"},
	{" 2-4", "from 1 to 65535"},
	{"2-4 ", "from 1 to 65535"},
	{"2:4", "MIN-MAX"},
	{"0x2-4", "from 1 to 65535"},
	{",2-4", "MIN-MAX"},
	{"unit=1,2-4", "MIN-MAX"},
	{"2-4,", "comma"},
	{"2-4,,unit=1", "comma"},
	{"2-4,unit", "key=value"},
	{"2-4,unit=", "unit=2"},
	{"2-4,unit=0", "unit=2"},
	{"2-4,unit=1.5", "unit=2"},
	{"2-4,unit=1,unit=1", "unit is given twice"},
	{"2-4,engine=a,engine=a", "engine is given twice"},
	{"2-4,units=2", "there is no key 'units'; write unit=N"},
	{"2-4,Unit=1", "there is no key 'Unit'; write unit=N"},
	{"2-4,eng=pool", "there is no key 'eng'; write engine=NAME"},
	{"2-4,launcher=srun", "there is no key 'launcher'; write launch=srun"},
	{"2-4,=1", "there is no key ''; the keys are unit=N, engine=NAME and launch=srun"},
	{"2-4,un=1", "there is no key 'un'; the keys are"},
	{"2-4,lease=9", "there is no key 'lease'; the keys are unit=N, engine=NAME and launch=srun"},
	{"2-4,un\x1bts=9", "there is no key 'un?ts'; the keys are"},
	{"2-4,aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg=1",
	 "there is no key 'aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffff...'"},
	{"2-4,unit=0gpu", "unit=gpu"},
	{"2-4,unit=gpus", "unit=gpu"},
	{"2-4,unit=-1gpu", "unit=gpu"},
	{"2-4,unit=gpugpu", "unit=gpu"},
	{"2-4,unit=taskgpu", "unit=gpu"},
	{"2-4,unit=2 gpu", "unit=gpu"},
	{"2-4,unit=gpu2", "unit=gpu"},
	{"2-4,unit=GPU", "unit=gpu"},
	{"2-4,unit=65536gpu", "unit=gpu"},
	{"2-4,unit=gpu,unit=task", "unit is given twice"},
	{"3-8,unit=2gpu", "--malleable=4-8,unit=2gpu"},
	{"3-5,unit=7task", "multiples of unit=7task and none lies in 3-5"},
	{"2-4,engine=", "engine=torchrun"},
	{"2-4,engine=Torchrun", "engine=torchrun"},
	{"2-4,engine=1a", "engine=torchrun"},
	{"2-4,engine=a-b", "engine=torchrun"},
	{"2-4,engine=a=b", "engine=torchrun"},
	{"2-4,engine=abcdefghijklmnopqrstuvwxyz0123456", "engine=torchrun"},
	{"2-4,launch=mpirun", "launch=srun"},
	{"2-4,launch=", "launch=srun"},
	{"2-5,unit=2", "--malleable=2-4,unit=2"},
	{"3-8,unit=2", "--malleable=4-8,unit=2"},
	{"3-5,unit=7", "none lies in 3-5"},
	{"2-4\n;rm", "2-4?;rm"},
	{"2-4,\xff\x1b[31m", "2-4,??[31m"},
};

static void test_good_requests(void)
{
	for (size_t i = 0; i < sizeof(good_requests) / sizeof(good_requests[0]); i++) {
		struct request request, again;
		char fault[REQUEST_FAULT_SIZE] = "", text[REQUEST_TEXT_SIZE] = "";
		char second[REQUEST_TEXT_SIZE] = "";

		expect(request_parse(good_requests[i].text, &request, fault, sizeof(fault)),
		       good_requests[i].text, fault);
		expect(request_print(&request, text, sizeof(text)), "print", text);
		expect_text(text, good_requests[i].canonical, good_requests[i].text);
		expect(request_parse(text, &again, fault, sizeof(fault)), text, fault);
		expect(request_print(&again, second, sizeof(second)), "print", second);
		expect_text(second, text, "canonical text changes");
	}
}

static void test_bad_requests(void)
{
	for (size_t i = 0; i < sizeof(bad_requests) / sizeof(bad_requests[0]); i++) {
		struct request request;
		char fault[REQUEST_FAULT_SIZE] = "";
		const char *text = bad_requests[i].text;

		expect(!request_parse(text, &request, fault, sizeof(fault)), "accepted", text);
		expect(strstr(fault, bad_requests[i].said) != NULL, bad_requests[i].said, fault);
		expect(!strncmp(fault, "--malleable=", 12), "begins with what was given", fault);
		expect(!strchr(fault, '\n'), "one line", fault);
	}
}

static void test_long_request(void)
{
	char text[4096], fault[REQUEST_FAULT_SIZE] = "";
	struct request request;

	memset(text, '7', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	expect(!request_parse(text, &request, fault, sizeof(fault)), "accepted", "long");
	expect(strstr(fault, "...") != NULL, "shortened", fault);
	for (size_t size = 1; size < 40; size++) {
		char *small = malloc(size);

		if (small)
			request_parse(text, &request, small, size);
		free(small);
	}
}

/* Every prefix and every one-byte change of a valid text: no crash, no partial result. */
static void test_mangled_requests(void)
{
	const char *text = "4-16,unit=2gpu,engine=torchrun,launch=srun";
	const char bytes[] = "0-,=aZ\x80 ";
	size_t length = strlen(text);
	struct request request;
	char fault[REQUEST_FAULT_SIZE], canonical[REQUEST_TEXT_SIZE];

	for (size_t at = 0; at <= length; at++) {
		for (size_t b = 0; b < sizeof(bytes); b++) {
			char *copy = strdup(text);

			if (!copy)
				return;
			copy[at] = bytes[b]; /* the last one cuts the text short */
			copy[length] = '\0';
			if (request_parse(copy, &request, fault, sizeof(fault)))
				expect(request_print(&request, canonical, sizeof(canonical)),
				       "print", copy);
			free(copy);
		}
	}
}

static void test_small_print(void)
{
	struct request request;
	char fault[REQUEST_FAULT_SIZE], text[8];

	request_parse("2-4", &request, fault, sizeof(fault));
	expect(!request_print(&request, text, sizeof(text)), "fits", text);
}

/* --- settings --- */

static void test_settings(void)
{
	static const char *const good[] = {"pythonpath=/opt/a", 
					   "max_restarts=1000000", "dir=/scratch/%A",
					   "env_store=/local/env",
					   "dir=%w/.m/%C/%A/100%%"};
	static const char *const bad[] = {"pythonpath=", "pythonpath=a", "pythonpath=/a:/b",
					  "max_restarts=1s", "max_restarts=-1", "max_restarts=",
					  "max_restarts=99999999999", "max_restarts=1000001", "dir=",
					  "dir=x/%A", "env_store=", "env_store=a", "dir=/a/%u/%A", "dir=/a/%A/%", "dir=%w/x",
					  "colour=blue", "notice", ""};
	struct settings settings;
	char fault[SETTINGS_FAULT_SIZE] = "";

	settings_default(&settings);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		expect(settings_take(&settings, good[i], fault, sizeof(fault)), good[i], fault);
	expect_text(settings.pythonpath, "/opt/a", "pythonpath");
	expect_text(settings.env_store, "/local/env", "env_store");
	expect_text(settings.dir, "%w/.m/%C/%A/100%%", "dir");
	expect(settings.max_restarts == 1000000, "max_restarts", NULL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct settings before = settings;

		expect(!settings_take(&settings, bad[i], fault, sizeof(fault)), "accepted",
		       bad[i]);
		expect(strstr(fault, "ignored") != NULL, bad[i], fault);
		expect(!memcmp(&before, &settings, sizeof(settings)), "changed by", bad[i]);
	}
}

int main(void)
{
	test_good_requests();
	test_bad_requests();
	test_long_request();
	test_mangled_requests();
	test_small_print();
	test_settings();
	return conclude("the request");
}
