/*
 * LD_PRELOAD: every open, stat, readlink and opendir below SLOW_PREFIX takes SLOW_US microseconds
 * longer, as on a loaded file system; how many there were goes to the file SLOW_COUNT. Reads are not
 * slowed, nor what the dynamic linker itself opens.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const char *prefix;
static long delay_us;
static unsigned long count;

__attribute__((constructor)) static void begin(void)
{
	prefix = getenv("SLOW_PREFIX");
	delay_us = getenv("SLOW_US") ? atol(getenv("SLOW_US")) : 0;
}

__attribute__((destructor)) static void tell(void)
{
	const char *path = getenv("SLOW_COUNT");
	FILE *file = path ? fopen(path, "w") : NULL;

	if (!file)
		return;
	fprintf(file, "%lu\n", count);
	fclose(file);
}

static void slow(const char *path)
{
	struct timespec delay = {delay_us / 1000000, delay_us % 1000000 * 1000};

	if (!prefix || !path || strncmp(path, prefix, strlen(prefix)))
		return;
	__atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
	if (delay_us)
		nanosleep(&delay, NULL);
}

#define REAL(name) __typeof__(name) *real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define SLOW_OPEN(name)                                 \
	int name(const char *path, int flags, ...)      \
	{                                               \
		REAL(name);                             \
		va_list list;                           \
		mode_t mode;                            \
                                                        \
		va_start(list, flags);                  \
		mode = flags & O_CREAT ? va_arg(list, mode_t) : 0; \
		va_end(list);                           \
		slow(path);                             \
		return real(path, flags, mode);         \
	}

#define SLOW_STAT(name, type)                           \
	int name(const char *path, struct type *found)  \
	{                                               \
		REAL(name);                             \
		slow(path);                             \
		return real(path, found);               \
	}

#define SLOW_STAT_AT(name, type)                                              \
	int name(int directory, const char *path, struct type *found, int flags) \
	{                                                                     \
		REAL(name);                                                   \
		slow(path);                                                   \
		return real(directory, path, found, flags);                   \
	}

SLOW_OPEN(open)
SLOW_OPEN(open64)
SLOW_STAT(stat, stat)
SLOW_STAT(stat64, stat64)
SLOW_STAT(lstat, stat)
SLOW_STAT(lstat64, stat64)
SLOW_STAT_AT(fstatat, stat)
SLOW_STAT_AT(fstatat64, stat64)

DIR *opendir(const char *path)
{
	REAL(opendir);
	slow(path);
	return real(path);
}

ssize_t readlink(const char *path, char *target, size_t size)
{
	REAL(readlink);
	slow(path);
	return real(path, target, size);
}
