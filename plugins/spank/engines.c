#include "engines.h"

#include <stddef.h>
#include <string.h>

const struct engine engines[] = {
	{"torchrun", .is_gang = true, .has_rounds = true, .by_torchrun = true},
	{"torchft", .by_torchrun = true},
	{"mpi", .is_gang = true, .has_rounds = true},
	{"tensorflow", .is_gang = true, .has_rounds = true},
	{"command", .is_gang = true, .has_rounds = true},
	{"pool", .is_pool = true},
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
