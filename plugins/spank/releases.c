#include "releases.h"

#include <stddef.h>

#define STRINGS(...) #__VA_ARGS__
#define LIST(...) STRINGS(__VA_ARGS__)

/* Shows in the binary the releases on which an installed plugin was tested. */
__attribute__((used)) static const char tested_text[] =
	"malleable: tested with Slurm " LIST(MALLEABLE_TESTED);

static const unsigned tested[] = {MALLEABLE_TESTED};
static const unsigned irregular[] = {2205, 2302, 2311}; /* from API number 38 on */

#define FIRST 38L
#define REGULAR 41L /* 24.05 */
#define LAST 200L   /* year 103 */

static uint32_t version_of(unsigned release)
{
	return (uint32_t)(release / 100 << 16 | release % 100 << 8);
}

uint32_t release_find(long api)
{
	long current = api >> 16; /* slurm_api_version() is SLURM_VERSION_NUM(current, 0, 0) */

	if (current < FIRST || current > LAST)
		return 0;
	if (current < REGULAR)
		return version_of(irregular[current - FIRST]);
	return version_of((unsigned)(2400 + (current - REGULAR) / 2 * 100 +
				     ((current - REGULAR) % 2 ? 11 : 5)));
}

bool release_is_tested(uint32_t version)
{
	for (size_t i = 0; i < sizeof(tested) / sizeof(tested[0]); i++) {
		if (version == version_of(tested[i]))
			return true;
	}
	return false;
}
