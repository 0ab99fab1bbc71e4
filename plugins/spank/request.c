#include "request.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "items.h"
#include "sizes.h"
#include "taken.h"

#define TEXT_MAX (REQUEST_TEXT_SIZE - 1)
#define MIN_RUN_MAX_S 43200U
#define ALIKE_MIN 3     /* equal characters that make a wrong key resemble a right key */

static bool refuse_number(const struct reader *reader, unsigned nodes)
{
	if (nodes == 1)
		return refuse(reader,
			      "a number is not a range; write --malleable=1-1 for 1 node");
	return refuse(reader,
		      "a number is not a range; write "
		      "--malleable=1-%u for up to %u nodes, or %u-%u for a fixed size",
		      nodes, nodes, nodes, nodes);
}

static bool refuse_taken(const struct reader *reader)
{
	char quoted[READER_QUOTE_SIZE];

	reader_quote(reader->text, quoted, sizeof(quoted));
	bool is_whole = !strcmp(quoted, reader->text);
	return refuse(reader,
		      "MIN-MAX, the fewest and the most nodes, is missing, so sbatch read %s as the "
		      "value; write for example sbatch --malleable=2-16 %s%s",
		      quoted, is_whole ? quoted : "SCRIPT",
		      is_whole && *quoted == '-' ? " SCRIPT" : "");
}

/* Quote the part of the range that is no number: a blank is easily overlooked. */
static bool refuse_part(const struct reader *reader, struct item part)
{
	char text[TEXT_MAX + 1], quoted[READER_QUOTE_SIZE];

	snprintf(text, sizeof(text), "%.*s", (int)part.length, part.start);
	reader_quote(text, quoted, sizeof(quoted));
	return refuse(reader,
		      "'%s' is not a whole number of nodes from 1 to %u (engine=pool: MIN from 0); "
		      "write for example --malleable=2-16, without spaces",
		      quoted, ITEM_COUNT_MAX);
}

static bool read_range(const struct reader *reader, struct item item, struct request *request)
{
	struct item min, max;

	if (taken_is(reader->text))
		return refuse_taken(reader);
	if (!item_cut(item, '-', &min, &max)) {
		if (item_number(item, &request->min))
			return refuse_number(reader, request->min);
		return refuse(reader, "the value must begin with MIN-MAX, the fewest and the most "
				      "nodes; write for example --malleable=2-16");
	}
	if (!item_count(min, &request->min))
		return refuse_part(reader, min);
	if (!item_number(max, &request->max))
		return refuse_part(reader, max);
	if (request->min > request->max)
		return refuse(reader, "MIN %u is above MAX %u; write --malleable=%u-%u",
			      request->min, request->max, request->max,
			      request->min);
	return true;
}

/* 2, gpu, 2gpu, task or 2task */
static bool read_unit(const struct reader *reader, struct item value, struct request *request)
{
	for (unsigned i = REQUEST_GPUS; i <= REQUEST_TASKS; i++) {
		if (!item_cut_word(&value, sizes_counted[i]))
			continue;
		request->counted = (enum request_counted)i;
		if (!value.length)
			return true;
		break;
	}
	if (item_number(value, &request->unit))
		return true;
	return refuse(reader,
		      "unit is the number of nodes of a fragment, from 1 to %u, or gpu or task for "
		      "parts of nodes; write for example unit=2, unit=gpu, unit=2gpu or unit=task, "
		      "or leave unit out for 1 node",
		      ITEM_COUNT_MAX);
}

static bool read_engine(const struct reader *reader, struct item value, struct request *request)
{
	if (item_name(value, request->engine))
		return true;
	return refuse(reader, "an engine's name has 1 to 32 characters a-z, 0-9 and _ and begins "
			      "with a letter; write for example engine=torchrun");
}

static bool read_launch(const struct reader *reader, struct item value, struct request *request)
{
	request->launch_srun = item_is(value, "srun");
	if (request->launch_srun)
		return true;
	return refuse(reader, "launch can only be srun; write launch=srun if the script starts its "
			      "workers with srun, else leave launch out");
}

static bool read_core(const struct reader *reader, struct item value, struct request *request)
{
	if (item_number(value, &request->core))
		return true;
	return refuse(reader, "core is the size that is never taken, from 1 to MAX; "
			      "write for example core=2, or leave core out");
}

static bool read_core_end(const struct reader *reader, struct item value, struct request *request)
{
	if (item_is(value, "stay"))
		request->core_end = REQUEST_STAY;
	if (item_is(value, "finish"))
		request->core_end = REQUEST_FINISH;
	if (request->core_end != REQUEST_UNSAID)
		return true;
	return refuse(reader, "core_end says whether the job continues on idle nodes after its "
			      "core has ended; write core_end=stay or core_end=finish");
}

/* Read the next size, which must be larger than the last. */
static bool read_size(struct item item, struct request *request)
{
	unsigned last = request->size_count ? request->sizes[request->size_count - 1] : 0;
	unsigned size;

	if (request->size_count == REQUEST_SIZES_MAX || !item_number(item, &size) || size <= last)
		return false;
	request->sizes[request->size_count++] = size;
	return true;
}

/* x2 or 2,4,8 */
static bool read_sizes(const struct reader *reader, struct item value, struct request *request)
{
	struct item item, rest = value;
	bool more = true;

	request->doubles = item_is(value, "x2");
	if (request->doubles)
		return true;
	while (more) {
		value = item = rest;
		more = item_cut(value, ',', &item, &rest);
		if (!read_size(item, request))
			return refuse(reader,
				      "sizes are whole numbers from small to large, each once and "
				      "at most %d; write for example sizes=2,4,8, or sizes=x2 to "
				      "double MIN up to MAX", REQUEST_SIZES_MAX);
	}
	return true;
}

static bool read_prefer(const struct reader *reader, struct item value, struct request *request)
{
	if (item_number(value, &request->prefer))
		return true;
	return refuse(reader, "prefer is the size to take when several sizes are equally good; "
			      "write for example prefer=8, or leave prefer out");
}

/* Cut off `s`, `m` or `h`, and return its seconds; 1 without such a letter. */
static unsigned cut_seconds(struct item *value)
{
	if (item_cut_word(value, "h"))
		return 3600;
	if (item_cut_word(value, "m"))
		return 60;
	item_cut_word(value, "s");
	return 1;
}

/* 600, 600s, 10m or 1h */
static bool read_min_run(const struct reader *reader, struct item value, struct request *request)
{
	unsigned seconds = cut_seconds(&value), number;

	if (item_number(value, &number) && number <= MIN_RUN_MAX_S / seconds) {
		request->min_run_s = number * seconds;
		return true;
	}
	return refuse(reader, "min_run is the time for which a job does not grow after a change, "
			      "from 1s to 12h; write for example min_run=10m");
}

typedef bool (*key_reader)(const struct reader *, struct item, struct request *);

static const struct {
	const char *name;
	const char *example;
	key_reader read;
} keys[] = {
	{"unit", "unit=N or unit=gpu", read_unit},
	{"engine", "engine=NAME", read_engine},
	{"launch", "launch=srun", read_launch},
	{"core", "core=N", read_core},
	{"core_end", "core_end=finish", read_core_end},
	{"sizes", "sizes=2,4,8", read_sizes},
	{"prefer", "prefer=N", read_prefer},
	{"min_run", "min_run=10m", read_min_run},
};

#define KEY_LIST \
	"unit=N, engine=NAME, launch=srun, core=N, core_end=finish, sizes=2,4,8, prefer=N " \
	"and min_run=10m"

#define KEYS (sizeof(keys) / sizeof(keys[0]))

/* Count the shared characters if one begins with the other, as `units` and `unit`; else 0. */
static size_t count_shared(const char *wrong, const char *right)
{
	size_t length = strlen(wrong) < strlen(right) ? strlen(wrong) : strlen(right);

	for (size_t i = 0; i < length; i++) {
		char meant = wrong[i] == '-' ? '_' : wrong[i];

		if (strncasecmp(&meant, right + i, 1))
			return 0;
	}
	return length >= ALIKE_MIN ? length : 0;
}

static bool refuse_key(const struct reader *reader, struct item name)
{
	char text[TEXT_MAX + 1], quoted[READER_QUOTE_SIZE];

	snprintf(text, sizeof(text), "%.*s", (int)name.length, name.start);
	reader_quote(text, quoted, sizeof(quoted));
	size_t best = KEYS, most = 0;
	for (size_t i = 0; i < KEYS; i++) {
		size_t shared = count_shared(text, keys[i].name);

		if (shared > most) {
			best = i;
			most = shared;
		}
	}
	if (best < KEYS)
		return refuse(reader, "there is no key '%s'; write %s", quoted, keys[best].example);
	return refuse(reader, "there is no key '%s'; the keys are " KEY_LIST, quoted);
}

static bool read_key(const struct reader *reader, struct item item, struct request *request,
		     bool *seen)
{
	struct item name, value;

	if (!item.length)
		return refuse(reader, "there is an empty part beside a comma; remove that comma");
	if (!item_cut(item, '=', &name, &value))
		return refuse(reader, "after MIN-MAX write only key=value pairs; the keys are "
				      KEY_LIST);
	for (size_t i = 0; i < KEYS; i++) {
		if (!item_is(name, keys[i].name))
			continue;
		if (seen[i])
			return refuse(reader, "%s is given twice; write it once", keys[i].name);
		seen[i] = true;
		return keys[i].read(reader, value, request);
	}
	return refuse_key(reader, name);
}

static bool check_length(const struct reader *reader, const struct request *request)
{
	char text[REQUEST_TEXT_SIZE];

	if (request_print(request, text, sizeof(text)))
		return true;
	return refuse(reader, "with unit and engine the value is longer than %d characters; write "
			      "fewer sizes", TEXT_MAX);
}

/* Numbers after `sizes=` belong to it: let the item end with the last number. */
static void extend_sizes(struct item *item, struct item *rest, bool *more)
{
	struct item next, after;

	if (item->length < 6 || memcmp(item->start, "sizes=", 6) != 0)
		return;
	while (*more) {
		bool has_more = item_cut(*rest, ',', &next, &after);

		if (!has_more)
			next = *rest;
		if (!item_is_digits(next))
			return;
		item->length = (size_t)(next.start + next.length - item->start);
		*more = has_more;
		if (has_more)
			*rest = after;
	}
}

bool request_parse(const char *text, struct request *request, char *fault, size_t fault_size)
{
	struct reader reader = {text ? text : "", fault, fault_size};
	struct item rest = {reader.text, strlen(reader.text)};
	struct item item = rest;
	bool seen[KEYS] = {false};
	bool more;

	*request = (struct request){.unit = 1, .engine = REQUEST_ENGINE_DEFAULT};
	if (rest.length > TEXT_MAX)
		return refuse(&reader, "the value is longer than %d characters; write for example "
				       "--malleable=2-16", TEXT_MAX);
	more = item_cut(rest, ',', &item, &rest);
	if (!read_range(&reader, item, request))
		return false;
	while (more) {
		struct item left = rest;

		item = left;
		more = item_cut(left, ',', &item, &rest);
		extend_sizes(&item, &rest, &more);
		if (!read_key(&reader, item, request, seen))
			return false;
	}
	return sizes_settle(&reader, request) && check_length(&reader, request);
}

/* A text that grows. `used` is above `size` when the text no longer fits. */
struct writer {
	char *text;
	size_t size;
	size_t used;
};

__attribute__((format(printf, 2, 3)))
static void add(struct writer *writer, const char *format, ...)
{
	bool fits = writer->used < writer->size;
	va_list args;
	int used;

	va_start(args, format);
	used = vsnprintf(fits ? writer->text + writer->used : NULL,
			 fits ? writer->size - writer->used : 0, format, args);
	va_end(args);
	writer->used += used < 0 ? writer->size : (size_t)used;
}

static void add_sizes(struct writer *writer, const struct request *request)
{
	if (request->doubles)
		add(writer, ",sizes=x2");
	for (size_t i = 0; i < request->size_count; i++)
		add(writer, "%s%u", i ? "," : ",sizes=", request->sizes[i]);
}

bool request_print(const struct request *request, char *text, size_t size)
{
	const char *word = sizes_counted[request->counted];
	struct writer writer = {text, size, 0};

	add(&writer, "%u-%u,unit=", request->min, request->max_given);
	if (!*word || request->unit > 1) /* `gpu` is `1gpu` */
		add(&writer, "%u", request->unit);
	add(&writer, "%s,engine=%s%s", word, request->engine,
	    request->launch_srun ? ",launch=srun" : "");
	if (request->core)
		add(&writer, ",core=%u", request->core);
	if (request->core_end == REQUEST_FINISH)
		add(&writer, ",core_end=finish");
	add_sizes(&writer, request);
	if (request->prefer)
		add(&writer, ",prefer=%u", request->prefer);
	if (request->min_run_s)
		add(&writer, ",min_run=%u", request->min_run_s);
	return writer.used < size;
}
