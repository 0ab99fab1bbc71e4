#include "items.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "request.h"

#define DIGITS_MAX 5 /* of ITEM_COUNT_MAX */
#define QUOTE_MAX 60 /* characters of the given text that a message quotes */

void reader_quote(const char *text, char *quoted, size_t size)
{
	size_t i = 0;

	for (; text[i] && i < QUOTE_MAX && i + 4 < size; i++)
		quoted[i] = (text[i] >= ' ' && text[i] <= '~') ? text[i] : '?';
	snprintf(quoted + i, size - i, "%s", text[i] ? "..." : "");
}

bool refuse(const struct reader *reader, const char *format, ...)
{
	char quoted[READER_QUOTE_SIZE];
	va_list args;
	int used;

	reader_quote(reader->text, quoted, sizeof(quoted));
	used = snprintf(reader->fault, reader->fault_size, "--malleable=%s: ", quoted);
	if (used < 0 || (size_t)used >= reader->fault_size)
		return false;
	va_start(args, format);
	vsnprintf(reader->fault + used, reader->fault_size - (size_t)used, format, args);
	va_end(args);
	return false;
}

bool item_is(struct item item, const char *text)
{
	return item.length == strlen(text) && !memcmp(item.start, text, item.length);
}

bool item_is_digits(struct item item)
{
	for (size_t i = 0; i < item.length; i++) {
		if (item.start[i] < '0' || item.start[i] > '9')
			return false;
	}
	return item.length > 0;
}

bool item_count(struct item item, unsigned *number)
{
	unsigned value = 0;

	if (item.length > DIGITS_MAX || !item_is_digits(item))
		return false;
	for (size_t i = 0; i < item.length; i++)
		value = value * 10 + (unsigned)(item.start[i] - '0');
	*number = value;
	return value <= ITEM_COUNT_MAX;
}

bool item_number(struct item item, unsigned *number)
{
	return item_count(item, number) && *number;
}

static bool is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

bool item_name(struct item item, char *name)
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

bool item_cut(struct item whole, char mark, struct item *left, struct item *right)
{
	const char *at = whole.length ? memchr(whole.start, mark, whole.length) : NULL;

	if (!at)
		return false;
	*left = (struct item){whole.start, (size_t)(at - whole.start)};
	*right = (struct item){at + 1, whole.length - left->length - 1};
	return true;
}

bool item_cut_word(struct item *item, const char *word)
{
	size_t length = strlen(word);

	if (item->length < length ||
	    memcmp(item->start + item->length - length, word, length) != 0)
		return false;
	item->length -= length;
	return true;
}
