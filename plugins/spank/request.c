#include "request.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define COUNT_MAX 65535U
#define DIGITS_MAX 5    /* of COUNT_MAX */
#define QUOTE_MAX 60    /* characters of the given text that a message quotes */
#define TEXT_MAX (REQUEST_TEXT_SIZE - 1)
#define MIN_RUN_MAX_S 43200U
#define ALIKE_MIN 3     /* characters of a wrong key that stand for a right one */

/* One comma-separated piece of the text; not terminated. */
struct item {
	const char *start;
	size_t length;
};

struct reader {
	const char *text;
	char *fault;
	size_t fault_size;
};

/* Copy text for a message: bounded, and without bytes that could upset a terminal. */
static void quote(const char *text, char *quoted, size_t size)
{
	size_t i = 0;

	for (; text[i] && i < QUOTE_MAX && i + 4 < size; i++)
		quoted[i] = (text[i] >= ' ' && text[i] <= '~') ? text[i] : '?';
	snprintf(quoted + i, size - i, "%s", text[i] ? "..." : "");
}

/* Say what was given, what is wrong and what to write; always false. */
__attribute__((format(printf, 2, 3)))
static bool refuse(const struct reader *reader, const char *format, ...)
{
	char quoted[QUOTE_MAX + 8];
	va_list args;
	int used;

	quote(reader->text, quoted, sizeof(quoted));
	used = snprintf(reader->fault, reader->fault_size, "--malleable=%s: ", quoted);
	if (used < 0 || (size_t)used >= reader->fault_size)
		return false;
	va_start(args, format);
	vsnprintf(reader->fault + used, reader->fault_size - (size_t)used, format, args);
	va_end(args);
	return false;
}

static bool is_text(struct item item, const char *text)
{
	return item.length == strlen(text) && !memcmp(item.start, text, item.length);
}

static bool is_digits(struct item item)
{
	for (size_t i = 0; i < item.length; i++) {
		if (item.start[i] < '0' || item.start[i] > '9')
			return false;
	}
	return item.length > 0;
}

/* A decimal number from 0 to 65535; no sign, no blanks. */
static bool read_count(struct item item, unsigned *number)
{
	unsigned value = 0;

	if (item.length > DIGITS_MAX || !is_digits(item))
		return false;
	for (size_t i = 0; i < item.length; i++)
		value = value * 10 + (unsigned)(item.start[i] - '0');
	*number = value;
	return value <= COUNT_MAX;
}

/* The same from 1 on. */
static bool read_number(struct item item, unsigned *number)
{
	return read_count(item, number) && *number;
}

static bool is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

/* [a-z][a-z0-9_]{0,31} */
static bool read_name(struct item item, char *name)
{
	if (!item.length || item.length >= REQUEST_NAME_SIZE || !is_lower(item.start[0]))
		return false;
	for (size_t i = 1; i < item.length; i++) {
		char c = item.start[i];

		if (!is_lower(c) && !(c >= '0' && c <= '9') && c != '_')
			return false;
	}
	memcpy(name, item.start, item.length);
	name[item.length] = '\0';
	return true;
}

/* Cut at the first `mark`; false if there is none. */
static bool cut(struct item whole, char mark, struct item *left, struct item *right)
{
	const char *at = whole.length ? memchr(whole.start, mark, whole.length) : NULL;

	if (!at)
		return false;
	*left = (struct item){whole.start, (size_t)(at - whole.start)};
	*right = (struct item){at + 1, whole.length - left->length - 1};
	return true;
}

static bool refuse_number(const struct reader *reader, unsigned nodes)
{
	if (nodes == 1)
		return refuse(reader,
			      "one number is not a range; write --malleable=1-1 for 1 node");
	return refuse(reader,
		      "one number is not a range; write "
		      "--malleable=1-%u for up to %u nodes, or %u-%u for a fixed size",
		      nodes, nodes, nodes, nodes);
}

static bool read_range(const struct reader *reader, struct item item, struct request *request)
{
	struct item min, max;

	if (!cut(item, '-', &min, &max)) {
		if (read_number(item, &request->min))
			return refuse_number(reader, request->min);
		return refuse(reader, "it must begin with MIN-MAX, the fewest and the most nodes; "
				      "write for example --malleable=2-16");
	}
	if (!read_count(min, &request->min) || !read_number(max, &request->max))
		return refuse(reader,
			      "MIN and MAX must be whole numbers of nodes from 1 to %u "
			      "(engine=pool: MIN from 0); write for example --malleable=2-16",
			      COUNT_MAX);
	if (request->min > request->max)
		return refuse(reader, "MIN %u is above MAX %u; write --malleable=%u-%u",
			      request->min, request->max, request->max,
			      request->min);
	return true;
}

/* What a unit counts, as it is written; in the order of enum request_counted. */
static const char *const words[] = {"", "gpu", "task"};

#define WORDS (sizeof(words) / sizeof(words[0]))

/* Does the text end with the word? Then cut it off. */
static bool cut_word(struct item *item, const char *word)
{
	size_t length = strlen(word);

	if (item->length < length ||
	    memcmp(item->start + item->length - length, word, length) != 0)
		return false;
	item->length -= length;
	return true;
}

/* 2, gpu, 2gpu, task or 2task */
static bool read_unit(const struct reader *reader, struct item value, struct request *request)
{
	for (unsigned i = REQUEST_GPUS; i < WORDS; i++) {
		if (!cut_word(&value, words[i]))
			continue;
		request->counted = (enum request_counted)i;
		if (!value.length)
			return true;
		break;
	}
	if (read_number(value, &request->unit))
		return true;
	return refuse(reader,
		      "unit is the number of nodes per fragment, from 1 to %u, or gpu or task for "
		      "parts of nodes; write for example unit=2, unit=gpu, unit=2gpu or unit=task, "
		      "or leave it out for 1 node",
		      COUNT_MAX);
}

static bool read_engine(const struct reader *reader, struct item value, struct request *request)
{
	if (read_name(value, request->engine))
		return true;
	return refuse(reader, "an engine's name has 1 to 32 characters a-z, 0-9 and _ and begins "
			      "with a letter; write for example engine=torchrun");
}

static bool read_launch(const struct reader *reader, struct item value, struct request *request)
{
	request->launch_srun = is_text(value, "srun");
	if (request->launch_srun)
		return true;
	return refuse(reader, "the only launch is srun; write launch=srun if the script starts its "
			      "workers with srun, else leave it out");
}

static bool read_core(const struct reader *reader, struct item value, struct request *request)
{
	if (read_number(value, &request->core))
		return true;
	return refuse(reader, "core is the number of nodes that are never taken, from 1 to MAX; "
			      "write for example core=2, or leave it out for none");
}

static bool read_core_end(const struct reader *reader, struct item value, struct request *request)
{
	if (is_text(value, "stay"))
		request->core_end = REQUEST_STAY;
	if (is_text(value, "finish"))
		request->core_end = REQUEST_FINISH;
	if (request->core_end != REQUEST_UNSAID)
		return true;
	return refuse(reader, "when the time of the core is over, the job stays as long as nodes "
			      "are left over, or it ends; write core_end=stay or core_end=finish");
}

/* One more of the sizes, which rise. */
static bool read_size(struct item item, struct request *request)
{
	unsigned last = request->size_count ? request->sizes[request->size_count - 1] : 0;
	unsigned size;

	if (request->size_count == REQUEST_SIZES_MAX || !read_number(item, &size) || size <= last)
		return false;
	request->sizes[request->size_count++] = size;
	return true;
}

/* x2 or 2,4,8 */
static bool read_sizes(const struct reader *reader, struct item value, struct request *request)
{
	struct item item, rest = value;
	bool more = true;

	request->doubles = is_text(value, "x2");
	if (request->doubles)
		return true;
	while (more) {
		value = item = rest;
		more = cut(value, ',', &item, &rest);
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
	if (read_number(value, &request->prefer))
		return true;
	return refuse(reader, "prefer is the size that the job likes best of those that are worth "
			      "the same; write for example prefer=8, or leave it out");
}

/* Seconds of `s`, `m` and `h`; 1 without a letter, which stays. */
static unsigned cut_seconds(struct item *value)
{
	if (cut_word(value, "h"))
		return 3600;
	if (cut_word(value, "m"))
		return 60;
	cut_word(value, "s");
	return 1;
}

/* 600, 600s, 10m or 1h */
static bool read_min_run(const struct reader *reader, struct item value, struct request *request)
{
	unsigned seconds = cut_seconds(&value), number;

	if (read_number(value, &number) && number <= MIN_RUN_MAX_S / seconds) {
		request->min_run_s = number * seconds;
		return true;
	}
	return refuse(reader, "min_run is the time without growth after a change, from 1s to 12h; "
			      "write for example min_run=10m");
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

/* Does one begin with the other, as `units` and `unit` do? */
static bool is_alike(const char *wrong, const char *right)
{
	size_t length = strlen(wrong) < strlen(right) ? strlen(wrong) : strlen(right);

	return length >= ALIKE_MIN && !strncasecmp(wrong, right, length);
}

static bool refuse_key(const struct reader *reader, struct item name)
{
	char text[TEXT_MAX + 1], quoted[QUOTE_MAX + 8];

	snprintf(text, sizeof(text), "%.*s", (int)name.length, name.start);
	quote(text, quoted, sizeof(quoted));
	for (size_t i = 0; i < KEYS; i++) {
		if (is_alike(text, keys[i].name))
			return refuse(reader, "there is no key '%s'; write %s", quoted,
				      keys[i].example);
	}
	return refuse(reader, "there is no key '%s'; the keys are " KEY_LIST, quoted);
}

static bool read_key(const struct reader *reader, struct item item, struct request *request,
		     bool *seen)
{
	struct item name, value;

	if (!item.length)
		return refuse(reader, "there is an empty part beside a comma; remove that comma");
	if (!cut(item, '=', &name, &value))
		return refuse(reader, "after MIN-MAX come only key=value pairs; the keys are "
				      KEY_LIST);
	for (size_t i = 0; i < KEYS; i++) {
		if (!is_text(name, keys[i].name))
			continue;
		if (seen[i])
			return refuse(reader, "%s is given twice; write it once", keys[i].name);
		seen[i] = true;
		return keys[i].read(reader, value, request);
	}
	return refuse_key(reader, name);
}

/* The multiples of unit around the given range: what the user probably meant. */
static bool check_unit(const struct reader *reader, const struct request *request)
{
	const char *word = words[request->counted];
	unsigned unit = request->unit;
	unsigned low = (request->min + unit - 1) / unit * unit;
	unsigned high = request->max / unit * unit;

	if (request->min == low && request->max == high)
		return true;
	if (low > high || !high)
		return refuse(reader,
			      "MIN and MAX must be multiples of unit=%u%s and none lies in %u-%u; "
			      "write another range or leave unit out",
			      unit, word, request->min, request->max);
	return refuse(reader, "MIN and MAX must be multiples of unit=%u%s; write "
			      "--malleable=%u-%u,unit=%u%s", unit, word, low, high, unit, word);
}

/* The size `index` of those that the job may have; false if there are no more. */
static bool find_size(const struct request *request, size_t index, unsigned *size)
{
	if (!request->doubles) {
		if (index >= request->size_count)
			return false;
		*size = request->sizes[index];
		return true;
	}
	if (!request->min || index >= REQUEST_SIZES_MAX)
		return false;
	*size = request->min << index;
	return *size <= request->max;
}

static bool has_sizes(const struct request *request)
{
	return request->doubles || request->size_count;
}

/* The largest size up to `number` that the job may have, else the smallest. Without a list these
 * are whole units from `least` to MAX. */
static unsigned nearest_size(const struct request *request, unsigned number, unsigned least)
{
	unsigned found = 0, size;

	if (!has_sizes(request)) {
		found = (number < request->max ? number : request->max) / request->unit *
			request->unit;
		if (found < least)
			found = least;
		return found < request->unit ? request->unit : found;
	}
	for (size_t i = 0; find_size(request, i, &size); i++) {
		if (!i || size <= number)
			found = size;
	}
	return found;
}

/* MIN and MAX are sizes, too. */
static bool check_sizes(const struct reader *reader, const struct request *request)
{
	unsigned first = request->sizes[0];
	unsigned last = request->size_count ? request->sizes[request->size_count - 1] : 0;

	if (request->doubles && !request->min)
		return refuse(reader, "sizes=x2 doubles MIN, which is 0; write a MIN of 1 or more");
	for (size_t i = 0; i < request->size_count; i++) {
		if (request->sizes[i] % request->unit)
			return refuse(reader,
				      "size %u is no multiple of unit=%u%s; leave it out of sizes",
				      request->sizes[i], request->unit, words[request->counted]);
	}
	if (!request->size_count || (first == request->min && last == request->max))
		return true;
	return refuse(reader,
		      "sizes begin with MIN %u and end with MAX %u; write --malleable=%u-%u for "
		      "these sizes", request->min, request->max, first, last);
}

static bool check_core(const struct reader *reader, const struct request *request)
{
	unsigned size = nearest_size(request, request->core, request->unit);

	if (!request->core && request->core_end == REQUEST_UNSAID)
		return true;
	if (!request->core)
		return refuse(reader, "core_end says what happens when a core ends; write core=N "
				      "with it, or leave it out");
	if (request->counted != REQUEST_NODES)
		return refuse(reader, "cores take whole nodes; leave core=%u or the unit out",
			      request->core);
	if (size == request->core)
		return true;
	if (has_sizes(request))
		return refuse(reader, "core=%u is none of the sizes; write core=%u", request->core,
			      size);
	return refuse(reader, "core=%u is not from unit=%u to MAX %u, or no multiple of unit; "
			      "write core=%u", request->core, request->unit, request->max, size);
}

static bool check_prefer(const struct reader *reader, const struct request *request)
{
	unsigned size = nearest_size(request, request->prefer, request->min);

	if (!request->prefer || size == request->prefer)
		return true;
	return refuse(reader, "prefer=%u is none of the sizes that the job may have; write "
			      "prefer=%u", request->prefer, size);
}

static bool check_length(const struct reader *reader, const struct request *request)
{
	char text[REQUEST_TEXT_SIZE];

	if (request_print(request, text, sizeof(text)))
		return true;
	return refuse(reader, "with unit and engine it is longer than %d characters; write fewer "
			      "sizes", TEXT_MAX);
}

/* Doubling may end below MAX, and then the job grows no further. */
static void settle_max(struct request *request)
{
	request->max_given = request->max;
	if (request->doubles && request->min)
		request->max = nearest_size(request, request->max, 0);
}

/* Numbers after `sizes=` belong to it: let the item end with the last of them. */
static void extend_sizes(struct item *item, struct item *rest, bool *more)
{
	struct item next, after;

	if (item->length < 6 || memcmp(item->start, "sizes=", 6) != 0)
		return;
	while (*more) {
		bool has_more = cut(*rest, ',', &next, &after);

		if (!has_more)
			next = *rest;
		if (!is_digits(next))
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
		return refuse(&reader, "it is longer than %d characters; write for example "
				       "--malleable=2-16", TEXT_MAX);
	more = cut(rest, ',', &item, &rest);
	if (!read_range(&reader, item, request))
		return false;
	while (more) {
		struct item left = rest;

		item = left;
		more = cut(left, ',', &item, &rest);
		extend_sizes(&item, &rest, &more);
		if (!read_key(&reader, item, request, seen))
			return false;
	}
	settle_max(request);
	return check_unit(&reader, request) && check_sizes(&reader, request) &&
	       check_core(&reader, request) && check_prefer(&reader, request) &&
	       check_length(&reader, request);
}

/* A text that grows; `used` is above `size` once it does not fit. */
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
	const char *word = words[request->counted];
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
