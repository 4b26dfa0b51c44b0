/* Null distributions: see null.h. */
#include "results/compare/null.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/compare/statistics.h"

static int sum_of(const int ranks[], int count) {
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum += ranks[i];
    return sum;
}

static void add_up(struct null_distribution *null) {
    null->total = 0;
    for (int s = 0; s < null->sums; s++)
        null->total += null->ways[s];
}

int null_of_signs(const int ranks[], int count, struct null_distribution *null,
                  struct mp_error *error) {
    *null = (struct null_distribution){.sums = sum_of(ranks, count) + 1};
    null->ways = calloc((size_t)null->sums, sizeof *null->ways);
    if (!null->ways)
        return mp_no_memory(error);
    null->ways[0] = 1;
    for (int i = 0; i < count; i++)
        for (int s = null->sums - 1; s >= ranks[i]; s--)
            null->ways[s] += null->ways[s - ranks[i]];
    add_up(null);
    return MP_OK;
}

int null_of_groups(const int ranks[], int count, int choose, struct null_distribution *null,
                   struct mp_error *error) {
    *null = (struct null_distribution){.sums = sum_of(ranks, count) + 1};
    size_t sums = (size_t)null->sums;
    /* [choose + 1][sums]: ways by size of the subset */
    null_count *ways = calloc(((size_t)choose + 1) * sums, sizeof *ways);
    null->ways = calloc(sums, sizeof *null->ways);
    if (!ways || !null->ways) {
        free(ways);
        null_free(null);
        return mp_no_memory(error);
    }
    ways[0] = 1;
    for (int i = 0; i < count; i++)
        for (int k = i < choose ? i + 1 : choose; k > 0; k--) {
            null_count *row = ways + (size_t)k * sums, *before = row - sums;
            for (int s = null->sums - 1; s >= ranks[i]; s--)
                row[s] += before[s - ranks[i]];
        }
    memcpy(null->ways, ways + (size_t)choose * sums, sums * sizeof *ways);
    free(ways);
    add_up(null);
    return MP_OK;
}

void null_free(struct null_distribution *null) {
    free(null->ways);
    *null = (struct null_distribution){0};
}

double null_two_sided(const struct null_distribution *null, int sum) {
    null_count below = 0, above = 0;
    for (int s = 0; s < null->sums; s++) {
        below += s <= sum ? null->ways[s] : 0;
        above += s >= sum ? null->ways[s] : 0;
    }
    null_count smaller = below < above ? below : above;
    return fmin(1, 2 * (double)smaller / (double)null->total);
}

/* The largest sum with 40 times its lower tail within the total. */
static int quantile_of(const struct null_distribution *null) {
    null_count below = 0;
    int sum = 0;
    for (; sum < null->sums; sum++) {
        below += null->ways[sum];
        if (below > null->total / 40)
            break;
    }
    return sum - 1;
}

int null_quantile_of_signs(int count, int *quantile, struct mp_error *error) {
    int ranks[MP_EXACT_SAMPLES];
    struct null_distribution null;
    for (int i = 0; i < count; i++)
        ranks[i] = i + 1;
    int code = null_of_signs(ranks, count, &null, error);
    if (code)
        return code;
    *quantile = quantile_of(&null);
    null_free(&null);
    return MP_OK;
}

int null_quantile_of_groups(int bases, int heads, int *quantile, struct mp_error *error) {
    int ranks[MP_EXACT_SAMPLES];
    struct null_distribution null;
    for (int i = 0; i < bases + heads; i++)
        ranks[i] = i + 1;
    int code = null_of_groups(ranks, bases + heads, bases, &null, error);
    if (code)
        return code;
    int least = bases * (bases + 1) / 2; /* of the rank sum, where U is 0 */
    int largest = quantile_of(&null) - least;
    *quantile = largest < -1 ? -1 : largest;
    null_free(&null);
    return MP_OK;
}
