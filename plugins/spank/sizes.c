#include "sizes.h"

const char *const sizes_counted[] = {"", "gpu", "task"};

/* Suggest the multiples of unit around the given range. */
static bool check_unit(const struct reader *reader, const struct request *request)
{
	const char *word = sizes_counted[request->counted];
	unsigned unit = request->unit;
	unsigned low = (request->min + unit - 1) / unit * unit;
	unsigned high = request->max / unit * unit;

	if (request->min == low && request->max == high)
		return true;
	if (low > high || !high)
		return refuse(reader,
			      "MIN and MAX must be multiples of unit=%u%s, and %u-%u contains no "
			      "multiple; write another range or leave unit out",
			      unit, word, request->min, request->max);
	return refuse(reader, "MIN and MAX must be multiples of unit=%u%s; write "
			      "--malleable=%u-%u,unit=%u%s", unit, word, low, high, unit, word);
}

/* The size with number `index` of the job's sizes; false behind the last. */
static bool find_size(const struct request *request, size_t index, unsigned *size)
{
	if (!request->doubles) {
		if (index >= request->size_count)
			return false;
		*size = request->sizes[index];
		return true;
	}
	if (!request->min || index >= REQUEST_SIZES_MAX)
		return false;
	*size = request->min << index;
	return *size <= request->max;
}

static bool has_sizes(const struct request *request)
{
	return request->doubles || request->size_count;
}

/* The largest size up to `number` that the job may have, else the smallest. Without a list of
 * sizes, whole units from `least` to MAX are sizes. */
static unsigned nearest_size(const struct request *request, unsigned number, unsigned least)
{
	unsigned nearest = 0, size;

	if (!has_sizes(request)) {
		nearest = (number < request->max ? number : request->max) / request->unit *
			  request->unit;
		if (nearest < least)
			nearest = least;
		return nearest < request->unit ? request->unit : nearest;
	}
	for (size_t i = 0; find_size(request, i, &size); i++) {
		if (!i || size <= number)
			nearest = size;
	}
	return nearest;
}

/* MIN and MAX must be sizes. */
static bool check_sizes(const struct reader *reader, const struct request *request)
{
	unsigned first = request->sizes[0];
	unsigned last = request->size_count ? request->sizes[request->size_count - 1] : 0;

	if (request->doubles && !request->min)
		return refuse(reader, "sizes=x2 doubles MIN, which is 0; write a MIN of 1 or more");
	for (size_t i = 0; i < request->size_count; i++) {
		if (request->sizes[i] % request->unit)
			return refuse(reader,
				      "size %u is no multiple of unit=%u%s; leave it out of sizes",
				      request->sizes[i], request->unit, sizes_counted[request->counted]);
	}
	if (!request->size_count || (first == request->min && last == request->max))
		return true;
	return refuse(reader,
		      "sizes must begin with MIN %u and end with MAX %u; write --malleable=%u-%u "
		      "for these sizes", request->min, request->max, first, last);
}

static bool check_core(const struct reader *reader, const struct request *request)
{
	unsigned size = nearest_size(request, request->core, request->unit);

	if (!request->core && request->core_end == REQUEST_UNSAID)
		return true;
	if (!request->core)
		return refuse(reader, "core_end needs a core; write core=N with it, or leave "
				      "core_end out");
	if (size == request->core)
		return true;
	if (has_sizes(request))
		return refuse(reader, "core=%u is not among the sizes; write core=%u", request->core,
			      size);
	return refuse(reader, "core=%u is not a multiple of unit=%u up to MAX %u; write core=%u",
		      request->core, request->unit, request->max, size);
}

static bool check_prefer(const struct reader *reader, const struct request *request)
{
	unsigned size = nearest_size(request, request->prefer, request->min);

	if (!request->prefer || size == request->prefer)
		return true;
	return refuse(reader, "prefer=%u is not a size that the job may have; write prefer=%u",
		      request->prefer, size);
}

/* Doubling may end below MAX, and then the job grows no further. */
static void settle_max(struct request *request)
{
	request->max_given = request->max;
	if (request->doubles && request->min)
		request->max = nearest_size(request, request->max, 0);
}

bool sizes_settle(const struct reader *reader, struct request *request)
{
	settle_max(request);
	return check_unit(reader, request) && check_sizes(reader, request) &&
	       check_core(reader, request) && check_prefer(reader, request);
}
