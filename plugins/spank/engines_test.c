/* What the table says, one line per engine, for the test that compares it with the others. */
#include "engines.h"

#include "check.h"

int main(void)
{
	for (const struct engine *engine = engines; engine->name; engine++) {
		const struct engine *found = engine_find(engine->name);

		expect_text(found ? found->name : NULL, engine->name, "found by its name");
		printf("engine %s %d %d %d %d\n", engine->name, engine->is_gang, engine->has_rounds,
		       engine->by_torchrun, engine->is_pool);
	}
	printf("default %s\n", ENGINE_DEFAULT);
	expect(engine_find(ENGINE_DEFAULT) != NULL, "the default is one of them", ENGINE_DEFAULT);
	expect(!engine_find("tasks"), "no other", NULL);
	expect(!engine_find(""), "nor none", NULL);
	return conclude("the engines");
}
