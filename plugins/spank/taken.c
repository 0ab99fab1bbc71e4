#define _GNU_SOURCE
#include "taken.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_SIZE 4096 /* of a command line that is read */
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define PLAIN LETTERS "0123456789._/~+:-"

static bool is_option(const char *text)
{
	return !strncmp(text, "--", 2) && strspn(text + 2, LETTERS);
}

bool taken_is(const char *text)
{
	if (is_option(text))
		return !text[strspn(text, PLAIN "=,")];
	return strspn(text, LETTERS "._/~") && !text[strspn(text, PLAIN)];
}

static bool is_file(const char *path)
{
	struct stat found;

	return !stat(path, &found) && S_ISREG(found.st_mode);
}

const char *taken_find(const char *words, size_t size)
{
	const char *end = words + size, *before = "";

	if (!size || end[-1])
		return NULL;
	for (const char *word = words + strlen(words) + 1; word < end; word += strlen(word) + 1) {
		bool is_last = word + strlen(word) + 1 == end;

		if (!strcmp(before, "--malleable"))
			return is_last && taken_is(word) ? word : NULL;
		if (*word != '-' && is_file(word)) /* the script: all other words are its own */
			return NULL;
		before = word;
	}
	return NULL;
}

bool taken_read(char *word, size_t size)
{
	char line[LINE_SIZE];
	const char *found = NULL;
	int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? -1 : read(file, line, sizeof(line));

	if (file >= 0)
		close(file);
	if (length > 0 && (size_t)length < sizeof(line))
		found = taken_find(line, (size_t)length);
	return found && (size_t)snprintf(word, size, "%s", found) < size;
}
