#include "traits.h"

#include <stddef.h>
#include <string.h>

static bool *find(struct traits *traits, const char *word, size_t length)
{
	const struct {
		const char *word;
		bool *trait;
	} words[] = {
		{"gang", &traits->is_gang},
		{"rounds", &traits->has_rounds},
		{"torchrun", &traits->by_torchrun},
		{"pool", &traits->is_pool},
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (length == strlen(words[i].word) && !memcmp(word, words[i].word, length))
			return words[i].trait;
	}
	return NULL;
}

bool traits_read(const char *text, struct traits *traits)
{
	*traits = (struct traits){.is_gang = false};
	if (!text || strnlen(text, TRAITS_LENGTH_MAX + 1) > TRAITS_LENGTH_MAX)
		return false;
	for (;; text++) {
		size_t length = strcspn(text, "+");
		bool *trait = find(traits, text, length);

		if (!trait || *trait)
			return false;
		*trait = true;
		text += length;
		if (!*text)
			return true;
	}
}
