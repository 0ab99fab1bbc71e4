/* Only the four words are traits. tests/unit/test_engines.py reads what Python writes. */
#include "traits.h"

#include "check.h"

static const char *const bad[] = {
	NULL, "", "+", "gang+", "+gang", "gang++rounds", "gang+gang", "Gang", "gan", "gangs",
	"gang,rounds", "gang rounds", "gang+daemon", "true",
	"gang+rounds+torchrun+pool+gang+rounds+torchrun+pool+gang+rounds+torchrun",
};

int main(int argc, char *argv[])
{
	struct traits traits;

	if (argc > 1) {
		bool is_read = traits_read(argv[1], &traits);

		printf("%d %d %d %d %d\n", is_read, traits.is_gang, traits.has_rounds,
		       traits.by_torchrun, traits.is_pool);
		return 0;
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		expect(!traits_read(bad[i], &traits), "refused", bad[i]);
	expect(traits_read("gang+rounds+torchrun", &traits), "read", NULL);
	expect(traits.is_gang && traits.has_rounds && traits.by_torchrun && !traits.is_pool,
	       "as written", NULL);
	expect(traits_read("pool", &traits) && traits.is_pool && !traits.is_gang, "alone", NULL);
	return conclude("the traits");
}
