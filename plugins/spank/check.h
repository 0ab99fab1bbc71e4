/*
 * Code that the C tests share: a line for each failure, exit status 1 after a failure.
 */
#ifndef MALLEABLE_CHECK_H
#define MALLEABLE_CHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void expect(bool right, const char *name, const char *detail)
{
	if (right)
		return;
	failures++;
	fprintf(stderr, "failed: %s: %s\n", name, detail ? detail : "(none)");
}

static bool same(const char *left, const char *right)
{
	return left && right ? !strcmp(left, right) : left == right;
}

__attribute__((unused))
static void expect_text(const char *text, const char *wanted, const char *name)
{
	expect(same(text, wanted), name, text);
}

static int conclude(const char *subject)
{
	if (!failures)
		printf("malleable: all tests of %s passed\n", subject);
	return failures ? 1 : 0;
}

#endif
