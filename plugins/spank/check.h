/*
 * What the C tests share: one line per failure, exit status 1 if there is any.
 */
#ifndef MALLEABLE_CHECK_H
#define MALLEABLE_CHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void expect(bool right, const char *what, const char *detail)
{
	if (right)
		return;
	failures++;
	fprintf(stderr, "failed: %s: %s\n", what, detail ? detail : "(none)");
}

static bool same(const char *left, const char *right)
{
	return left && right ? !strcmp(left, right) : left == right;
}

__attribute__((unused))
static void expect_text(const char *found, const char *wanted, const char *what)
{
	expect(same(found, wanted), what, found);
}

static int conclude(const char *subject)
{
	if (!failures)
		printf("malleable: all tests of %s passed\n", subject);
	return failures ? 1 : 0;
}

#endif
