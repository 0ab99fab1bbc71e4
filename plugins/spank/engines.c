#include "engines.h"

#include <stddef.h>
#include <string.h>

const struct engine engines[] = {
	{"torchrun", .is_gang = true, .has_rounds = true, .by_torchrun = true, .zero_finishes = true},
	{"torchft", .is_gang = false, .has_rounds = false, .by_torchrun = true, .zero_finishes = true},
	{.name = NULL},
};

const struct engine *engine_find(const char *name)
{
	for (const struct engine *engine = engines; engine->name; engine++) {
		if (!strcmp(engine->name, name))
			return engine;
	}
	return NULL;
}
