/*
 * Pieces of the option's text, and the message on a fault in it.
 */
#ifndef MALLEABLE_ITEMS_H
#define MALLEABLE_ITEMS_H

#include <stdbool.h>
#include <stddef.h>

#define ITEM_COUNT_MAX 65535U
#define READER_QUOTE_SIZE 68 /* of the quotation in a message, with its NUL */

/* A comma-separated piece of the text; not terminated. */
struct item {
	const char *start;
	size_t length;
};

struct reader {
	const char *text;
	char *fault;
	size_t fault_size;
};

/* Write the message: the text as given, then the fault and its remedy. Always false. */
__attribute__((format(printf, 2, 3)))
bool refuse(const struct reader *reader, const char *format, ...);

/* Copy text for a message: bounded, and without control characters. */
void reader_quote(const char *text, char *quoted, size_t size);

bool item_is(struct item item, const char *text);
bool item_is_digits(struct item item);

/* A decimal number from 0 to 65535; no sign, no blanks. */
bool item_count(struct item item, unsigned *number);

/* A decimal number from 1 to 65535. */
bool item_number(struct item item, unsigned *number);

/* [a-z][a-z0-9_]{0,31}, into REQUEST_NAME_SIZE bytes. */
bool item_name(struct item item, char *name);

/* Cut at the first `mark`; false without a mark. */
bool item_cut(struct item whole, char mark, struct item *left, struct item *right);

/* Cut the word off the end of the text; false if the text does not end with it. */
bool item_cut_word(struct item *item, const char *word);

#endif
