/* Tests of the option and of the plugstack arguments, without Slurm: `make test`. */
#include "check.h"
#include "request.h"
#include "settings.h"
#include "taken.h"

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
	{"2-16,core=2", "2-16,unit=1,engine=torchrun,core=2"},
	{"2-16,core_end=stay,core=16", "2-16,unit=1,engine=torchrun,core=16"},
	{"2-16,core=2,core_end=finish,engine=mpi", "2-16,unit=1,engine=mpi,core=2,core_end=finish"},
	{"4-16,core=8,unit=4", "4-16,unit=4,engine=torchrun,core=8"},
	{"4-16,core=1", "4-16,unit=1,engine=torchrun,core=1"},
	{"2-16,sizes=2,4,8,16,prefer=8", "2-16,unit=1,engine=torchrun,sizes=2,4,8,16,prefer=8"},
	{"2-16,prefer=08,sizes=2,04,8,16", "2-16,unit=1,engine=torchrun,sizes=2,4,8,16,prefer=8"},
	{"4-4,sizes=4", "4-4,unit=1,engine=torchrun,sizes=4"},
	{"2-16,sizes=x2", "2-16,unit=1,engine=torchrun,sizes=x2"},
	{"3-13,sizes=x2,prefer=12,core=6", "3-13,unit=1,engine=torchrun,core=6,sizes=x2,prefer=12"},
	{"2-13,sizes=x2,unit=2", "2-13,unit=2,engine=torchrun,sizes=x2"},
	{"1-65535,sizes=x2,prefer=32768", "1-65535,unit=1,engine=torchrun,sizes=x2,prefer=32768"},
	{"4-16,unit=2gpu,sizes=4,6,16", "4-16,unit=2gpu,engine=torchrun,sizes=4,6,16"},
	{"0-16,engine=pool,prefer=5", "0-16,unit=1,engine=pool,prefer=5"},
	{"2-16,min_run=10m", "2-16,unit=1,engine=torchrun,min_run=600"},
	{"2-16,min_run=12h", "2-16,unit=1,engine=torchrun,min_run=43200"},
	{"2-16,min_run=90s", "2-16,unit=1,engine=torchrun,min_run=90"},
	{"2-16,min_run=1", "2-16,unit=1,engine=torchrun,min_run=1"},
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
	{"s.sh", "MIN-MAX, the fewest and the most nodes, is missing, so sbatch read s.sh as the "
	 "value; write for example sbatch --malleable=2-16 s.sh"},
	{"/a/train-2.sh", "; write for example sbatch --malleable=2-16 /a/train-2.sh"},
	{"--gres=gpu:1", "; write for example sbatch --malleable=2-16 --gres=gpu:1 SCRIPT"},
	{"/home/aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffff/train.sh",
	 "fff... as the value; write for example sbatch --malleable=2-16 SCRIPT"},
	{"yes", "the value must begin with MIN-MAX"},
	{"s.sh;x", "the value must begin with MIN-MAX"},
	{"unit=2", "the value must begin with MIN-MAX"},
	{"4", "--malleable=1-4"},
	{"1-4:2", "'4:2' is not a whole number of nodes from 1 to 65535"},
	{"1-4 ,unit=2", "'4 ' is not a whole number"},
	{"1", "a number is not a range; write --malleable=1-1 for 1 node"},
	{"4-2", "--malleable=2-4"},
	{"0", "MIN-MAX"},
	{"0-1,unit=2", "0-1 contains no multiple"},
	{"0-1,unit=2,engine=pool", "0-1 contains no multiple"},
	{"0-5,unit=2,engine=pool", "--malleable=0-4,unit=2"},
	{"0-0", "from 1 to 65535"},
	{"0-0,engine=pool", "from 1 to 65535"},
	{"2-65536", "from 1 to 65535"},
	{"2-99999999999999999999", "from 1 to 65535"},
	{"-4", "from 1 to 65535"},
	{"--4", "from 1 to 65535"},
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
	{"2-4,=1", "there is no key ''; the keys are unit=N, engine=NAME, launch=srun, core=N, "
	 "core_end=finish, sizes=2,4,8, prefer=N and min_run=10m"},
	{"2-4,core-end=finish", "there is no key 'core-end'; write core_end=finish"},
	{"2-4,min-run=9", "there is no key 'min-run'; write min_run=10m"},
	{"2-4,cores=1", "there is no key 'cores'; write core=N"},
	{"2-4,un=1", "there is no key 'un'; the keys are"},
	{"2-4,lease=9", "there is no key 'lease'; the keys are unit=N, engine=NAME"},
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
	{"3-5,unit=7task", "multiples of unit=7task, and 3-5 contains no multiple"},
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
	{"3-5,unit=7", "3-5 contains no multiple"},
	{"2-4,core=0", "write for example core=2"},
	{"2-4,core=-1", "write for example core=2"},
	{"2-4,core=", "write for example core=2"},
	{"2-4,core=65536", "write for example core=2"},
	{"2-4,core=5", "write core=4"},
	{"2-4,core=1,core=1", "core is given twice"},
	{"4-8,unit=4,core=2", "write core=4"},
	{"4-8,unit=4,core=6", "write core=4"},
	{"2-8,sizes=2,4,8,core=5", "not among the sizes; write core=4"},
	{"2-8,sizes=2,8,core=1", "write core=2"},
	{"2-13,sizes=x2,core=13", "write core=8"},
	{"4-8,unit=2gpu,core=3", "core=3 is not a multiple of unit=2 up to MAX 8; write core=2"},
	{"2-4,core_end=finish", "write core=N with it"},
	{"2-4,core_end=stay", "write core=N with it"},
	{"2-4,core=2,core_end=die", "core_end=stay or core_end=finish"},
	{"2-4,cores=2", "there is no key 'cores'; write core=N"},
	{"2-8,sizes=", "sizes=2,4,8, or sizes=x2"},
	{"2-8,sizes=x3", "sizes=2,4,8, or sizes=x2"},
	{"2-8,sizes=x2,4", "sizes=2,4,8, or sizes=x2"},
	{"2-8,sizes=8,2", "from small to large"},
	{"2-8,sizes=2,2,8", "each once"},
	{"0-8,sizes=0,8,engine=pool", "sizes=2,4,8, or sizes=x2"},
	{"2-8,sizes=2,8,", "comma"},
	{"2-8,sizes=2,8,x", "key=value"},
	{"2-8,prefer=2,4", "key=value"},
	{"2-8,sizes=2-8", "sizes=2,4,8, or sizes=x2"},
	{"2-8,size=2,8", "there is no key 'size'; write sizes=2,4,8"},
	{"1-17,sizes=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "at most 16"},
	{"2-8,sizes=4,8", "sizes must begin with MIN 2 and end with MAX 8; write --malleable=4-8"},
	{"2-9,sizes=2,4,8", "write --malleable=2-8"},
	{"2-8,unit=2,sizes=2,3,8", "size 3 is no multiple of unit=2"},
	{"0-8,engine=pool,sizes=x2", "doubles MIN, which is 0"},
	{"2-16,sizes=2,4,16,prefer=8", "write prefer=4"},
	{"2-16,prefer=17", "write prefer=16"},
	{"2-16,prefer=1", "write prefer=2"},
	{"2-16,prefer=0", "write for example prefer=8"},
	{"4-16,unit=4,prefer=6", "write prefer=4"},
	{"2-16,prefered=8", "there is no key 'prefered'; write prefer=N"},
	{"2-16,min_run=0", "write for example min_run=10m"},
	{"2-16,min_run=13h", "from 1s to 12h"},
	{"2-16,min_run=43201", "from 1s to 12h"},
	{"2-16,min_run=65535h", "from 1s to 12h"},
	{"2-16,min_run=10min", "write for example min_run=10m"},
	{"2-16,min_run=m", "write for example min_run=10m"},
	{"2-16,min_run=10hm", "write for example min_run=10m"},
	{"10000-65535,sizes=10000,10001,10002,10003,10004,10005,10006,10007,10008,10009,10010,10011,"
	 "10012,10013,10014,65535,engine=abcdefghijklmnopqrstuvwxyz012345,core=65535,"
	 "core_end=finish,min_run=12h", "with unit and engine the value is longer than 200 characters"},
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
static void mangle(const char *text)
{
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

static void test_mangled_requests(void)
{
	mangle("4-16,unit=2gpu,engine=torchrun,launch=srun");
	mangle("2-16,core=4,core_end=finish,sizes=2,4,8,16,prefer=8,min_run=10m");
	mangle("2-16,sizes=x2,core=4,min_run=1h");
}

/* Doubling may end below MAX, where the job ends to grow. */
static void test_doubled_max(void)
{
	struct request request;
	char fault[REQUEST_FAULT_SIZE];

	expect(request_parse("3-13,sizes=x2", &request, fault, sizeof(fault)), "3-13", fault);
	expect(request.max == 12, "the largest size", NULL);
	expect(request_parse("2-16,sizes=2,4,16", &request, fault, sizeof(fault)), "2-16", fault);
	expect(request.max == 16 && request.size_count == 3, "as written", NULL);
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

static const struct {
	const char *words; /* separated by NULs */
	size_t size;
	const char *taken;
} command_lines[] = {
#define LINE(words) words, sizeof(words)
	{LINE("sbatch\0--malleable\0train.sh"), "train.sh"},
	{LINE("sbatch\0-N\0004\0--malleable\0./train-2"), "./train-2"},
	{LINE("sbatch\0--malleable\0--gres=gpu:1"), "--gres=gpu:1"},
	{LINE("sbatch\0--malleable\0--gres=gpu:1\0train.sh"), NULL}, /* take_option refuses it */
	{LINE("sbatch\0--malleable\0002-16"), NULL},
	{LINE("sbatch\0--malleable\0train.sh; x"), NULL},
	{LINE("sbatch\0--malleable"), NULL},
	{LINE("--malleable\0train.sh"), NULL},
	{LINE("sbatch\0--malleable\0yes"), NULL},
	{LINE("sbatch\0--\0--malleable\0train.sh"), NULL},
	{LINE("sbatch\0-H\0/dev/null\0--malleable\0train.sh"), NULL},
	{LINE("sbatch\0-D\0/tmp\0--malleable\0train.sh"), "train.sh"},
	{LINE("sbatch\0-D\0/tmp\0script2.sh\0--malleable\0train.sh"), NULL}, /* words of a script */
	{LINE("sbatch\0--nodes=2\0script2.sh\0--malleable\0train.sh"), NULL},
	{LINE("sbatch\0in_path\0--malleable\0train.sh"), NULL},
	{LINE("sbatch\0--malleable=2-16\0train.sh"), NULL},
	{LINE("sbatch\0/proc/self/cmdline\0--malleable\0name"), NULL}, /* words of a script */
	{LINE("sbatch"), NULL},
#undef LINE
	{"sbatch\0--malleable\0train.sh", sizeof("sbatch\0--malleable\0train"), NULL}, /* cut */
	{"\0", 0, NULL},
};

static void test_command_lines(void)
{
	for (size_t i = 0; i < sizeof(command_lines) / sizeof(command_lines[0]); i++) {
		const char *words = command_lines[i].words;

		expect_text(taken_find(words, command_lines[i].size), command_lines[i].taken,
			    words + strlen(words) + 1);
	}
}

int main(void)
{
	test_good_requests();
	test_bad_requests();
	test_long_request();
	test_mangled_requests();
	test_doubled_max();
	test_small_print();
	test_settings();
	test_command_lines();
	return conclude("the request");
}
