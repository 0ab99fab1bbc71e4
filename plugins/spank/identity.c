#include "identity.h"

#include <stdint.h>

#include "releases.h"

#ifdef MALLEABLE_STRICT

#pragma GCC visibility push(default)
#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(malleable, 1)
#pragma GCC visibility pop

bool identity_is_tested(void)
{
	return true;
}

#else /* not spank.h: there plugin_version is a constant */

#pragma GCC visibility push(default)
extern const char plugin_name[], plugin_type[];
extern const unsigned int spank_plugin_version;
extern unsigned int plugin_version;

const char plugin_name[] = "malleable";
const char plugin_type[] = "spank";
const unsigned int spank_plugin_version = 1;
unsigned int plugin_version; /* while it is 0, Slurm does not load the plugin */
#pragma GCC visibility pop

/* In libslurmfull, which every command and daemon that loads a plugin has loaded. */
extern long slurm_api_version(void) __attribute__((weak));

/* dlopen runs this before Slurm looks at plugin_version. */
__attribute__((constructor)) static void take_version_of_slurm(void)
{
	if (slurm_api_version)
		plugin_version = release_find(slurm_api_version());
}

bool identity_is_tested(void)
{
	return release_is_tested(plugin_version);
}

#endif
