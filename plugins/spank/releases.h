/*
 * Find the release of Slurm that has loaded this plugin, and whether it was tested there.
 *
 * Slurm loads a SPANK plugin only if its plugin_version names the release that loads it.
 * Otherwise it writes two lines to sbatch's stderr, even if the plugin is `optional` (22.05.8,
 * 24.11.5; a single line in 26.05.5). So the binary names the release that is running, and does
 * nothing on a release without tests. Pure: numbers in, numbers out.
 */
#ifndef MALLEABLE_RELEASES_H
#define MALLEABLE_RELEASES_H

#include <stdbool.h>
#include <stdint.h>

/* The releases on which all tests of the plugin passed, as 100 * year + month. */
#ifndef MALLEABLE_TESTED
#define MALLEABLE_TESTED 2205, 2311, 2411, 2505, 2511, 2605
#endif

/*
 * plugin_version of the release whose slurm_api_version() is `api`, or 0 if the number is older
 * than 22.05 or impossible. The number grows by 1 with each release: 38 is 22.05, 39 23.02,
 * 40 23.11, 41 24.05, and since then a release every six months.
 */
uint32_t release_find(long api);

/* True if all tests passed on the release with this plugin_version. */
bool release_is_tested(uint32_t version);

#endif
