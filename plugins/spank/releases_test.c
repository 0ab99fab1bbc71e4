#include "releases.h"

#include "check.h"

#define API(number) ((long)(number) << 16)
#define VERSION(year, month) ((uint32_t)((year) << 16 | (month) << 8))

static const struct {
	long api;
	uint32_t version;
	bool is_tested;
	const char *name;
} cases[] = {
	{API(37), 0, false, "21.08"},
	{API(38), VERSION(22, 5), true, "22.05"},
	{API(39), VERSION(23, 2), false, "23.02"},
	{API(40), VERSION(23, 11), true, "23.11"},
	{API(41), VERSION(24, 5), false, "24.05"},
	{API(42), VERSION(24, 11), true, "24.11"},
	{API(43), VERSION(25, 5), true, "25.05"},
	{API(44), VERSION(25, 11), true, "25.11"},
	{API(45), VERSION(26, 5), true, "26.05"},
	{API(46), VERSION(26, 11), false, "26.11"},
	{API(47), VERSION(27, 5), false, "27.05"},
	{API(201), 0, false, "far away"},
	{0, 0, false, "no number"},
	{-1, 0, false, "negative"},
	{38, 0, false, "not shifted"},
};

int main(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t found = release_find(cases[i].api);

		expect(found == cases[i].version, "version", cases[i].name);
		expect(release_is_tested(found) == cases[i].is_tested, "tested", cases[i].name);
	}
	return conclude("the releases");
}
