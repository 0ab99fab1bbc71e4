#include "request.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define COUNT_MAX 65535U
#define DIGITS_MAX 5    /* of COUNT_MAX */
#define QUOTE_MAX 60    /* characters of the given text that a message quotes */
#define TEXT_MAX 256    /* longer than any sensible request */
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

/* A decimal number from 0 to 65535; no sign, no blanks. */
static bool read_count(struct item item, unsigned *number)
{
	unsigned value = 0;

	if (!item.length || item.length > DIGITS_MAX)
		return false;
	for (size_t i = 0; i < item.length; i++) {
		if (item.start[i] < '0' || item.start[i] > '9')
			return false;
		value = value * 10 + (unsigned)(item.start[i] - '0');
	}
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

typedef bool (*key_reader)(const struct reader *, struct item, struct request *);

static const struct {
	const char *name;
	const char *example;
	key_reader read;
} keys[] = {
	{"unit", "unit=N or unit=gpu", read_unit},
	{"engine", "engine=NAME", read_engine},
	{"launch", "launch=srun", read_launch},
};

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
	return refuse(reader, "there is no key '%s'; the keys are unit=N, engine=NAME and "
			      "launch=srun", quoted);
}

static bool read_key(const struct reader *reader, struct item item, struct request *request,
		     bool *seen)
{
	struct item name, value;

	if (!item.length)
		return refuse(reader, "there is an empty part beside a comma; remove that comma");
	if (!cut(item, '=', &name, &value))
		return refuse(reader, "after MIN-MAX come only key=value pairs; write unit=N, "
				      "engine=NAME or launch=srun");
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
		if (!read_key(&reader, item, request, seen))
			return false;
	}
	return check_unit(&reader, request);
}

bool request_print(const struct request *request, char *text, size_t size)
{
	const char *word = words[request->counted];
	char number[12] = "";
	int used;

	if (!*word || request->unit > 1) /* `gpu` is `1gpu` */
		snprintf(number, sizeof(number), "%u", request->unit);
	used = snprintf(text, size, "%u-%u,unit=%s%s,engine=%s%s", request->min, request->max,
			number, word, request->engine, request->launch_srun ? ",launch=srun" : "");
	return used >= 0 && (size_t)used < size;
}
