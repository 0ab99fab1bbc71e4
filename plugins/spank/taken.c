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
	return strspn(text, LETTERS "._/~") && !text[strspn(text, PLAIN)] && strpbrk(text, "./");
}

static bool is_file(const char *path)
{
	struct stat found;

	return !stat(path, &found) && !S_ISDIR(found.st_mode);
}

static const char *next(const char *word)
{
	return word + strlen(word) + 1;
}

/* True if sbatch would take a word before `end` as its script. All later words are the script's. */
static bool has_script(const char *words, const char *end)
{
	const char *before = "";

	for (const char *word = next(words); word < end; word = next(word)) {
		bool may_be_value = *before == '-' && !strchr(before, '=');

		if (*word != '-' && (!may_be_value || is_file(word)))
			return true;
		if (!strcmp(word, "--"))
			return true;
		before = word;
	}
	return false;
}

const char *taken_find(const char *words, size_t size)
{
	const char *end = words + size, *option = words, *last = words;

	if (!size || end[-1])
		return NULL;
	for (const char *word = words; word < end; word = next(word)) {
		option = last;
		last = word;
	}
	/* No file is looked at for any other command line: a path may be on a server that is gone. */
	if (option == words || strcmp(option, "--malleable") || !taken_is(last) || has_script(words, option))
		return NULL;
	return last;
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
