#include "results/compare/changes.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/median.h"
#include "reference/base/random.h"

struct search {
    const double *value;
    double *shuffled, *sorted; /* [count] */
    struct mp_change *change;  /* [count] */
    int changes;
};

struct split {
    int at;        /* values in front of it; 0: none */
    double energy; /* distance of its sides */
};

/* Sum of |value - other| over [count] others. */
static double distance_to(double value, const double other[], int count) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += fabs(value - other[i]);
    return sum;
}

/* The farthest split: one value after the other goes from the right side to the left. */
static struct split find_split(const double value[], int count) {
    struct split best = {0, 0};
    double left = 0, between = 0, right = 0; /* sums over pairs inside and across */
    for (int i = 1; i < count; i++)
        right += distance_to(value[i], value, i);
    for (int m = 1; m < count; m++) {
        const double moved = value[m - 1], to_left = distance_to(moved, value, m - 1),
                     to_right = distance_to(moved, value + m, count - m);
        const double n = count - m;
        left += to_left;
        right -= to_right;
        between += to_right - to_left;
        if (m < MP_CHANGES_LEAST || count - m < MP_CHANGES_LEAST)
            continue;
        const double energy =
            m * n / count *
            (2 * between / (m * n) - 2 * left / (m * (m - 1.)) - 2 * right / (n * (n - 1)));
        if (energy > best.energy)
            best = (struct split){m, energy};
    }
    return best;
}

/* Fisher and Yates. */
static void shuffle(double value[], int count, uint64_t stream) {
    for (int i = count - 1; i > 0; i--) {
        const int other = (int)mp_random_below(1, stream, (uint64_t)i, (uint64_t)i + 1);
        const double kept = value[i];
        value[i] = value[other];
        value[other] = kept;
    }
}

/* How rare such a split is by chance; 1 as soon as it can't be rare any more. */
static double chance_of(const struct search *search, const double value[], int count,
                        double energy) {
    int as_far = 0;
    for (int i = 0; i < MP_CHANGES_SHUFFLES; i++) {
        memcpy(search->shuffled, value, (size_t)count * sizeof *value);
        shuffle(search->shuffled, count, (uint64_t)i);
        as_far += find_split(search->shuffled, count).energy >= energy;
        if (as_far + 1 > MP_CHANGES_SIGNIFICANCE * (MP_CHANGES_SHUFFLES + 1))
            return 1;
    }
    return (as_far + 1.) / (MP_CHANGES_SHUFFLES + 1);
}

static void find_changes(struct search *search, int first, int count) {
    if (count < 2 * MP_CHANGES_LEAST)
        return;
    const struct split split = find_split(search->value + first, count);
    if (split.at == 0)
        return;
    const double p = chance_of(search, search->value + first, count, split.energy);
    if (p > MP_CHANGES_SIGNIFICANCE)
        return;
    find_changes(search, first, split.at);
    search->change[search->changes++] = (struct mp_change){.index = first + split.at, .p = p};
    find_changes(search, first + split.at, count - split.at);
}

static double level(const struct search *search, int first, int end) {
    memcpy(search->sorted, search->value + first, (size_t)(end - first) * sizeof *search->sorted);
    return mp_median_of(search->sorted, end - first);
}

static void find_levels(const struct search *search, int count) {
    for (int i = 0; i < search->changes; i++) {
        struct mp_change *change = &search->change[i];
        change->before = level(search, i > 0 ? search->change[i - 1].index : 0, change->index);
        change->after = level(search, change->index,
                              i + 1 < search->changes ? search->change[i + 1].index : count);
    }
}

int mp_changes_find(const double value[], int count, struct mp_change **change, int *changes,
                    struct mp_error *error) {
    const size_t values = (size_t)count + 1;
    *change = NULL;
    *changes = 0;
    if (count > MP_CHANGES_VALUES)
        return mp_fail(error, MP_ELIMIT, "a series of %d values; at most %d are looked at", count,
                       MP_CHANGES_VALUES);
    for (int i = 0; i < count; i++)
        if (!isfinite(value[i]))
            return mp_fail(error, MP_EINVAL, "value %d of a series is no number", i);
    struct search search = {.value = value,
                            .shuffled = calloc(values, sizeof *search.shuffled),
                            .sorted = calloc(values, sizeof *search.sorted),
                            .change = calloc(values, sizeof *search.change)};
    const bool has_memory = search.shuffled && search.sorted && search.change;
    if (has_memory) {
        find_changes(&search, 0, count);
        find_levels(&search, count);
        *change = search.change;
        *changes = search.changes;
    } else {
        free(search.change);
    }
    free(search.shuffled);
    free(search.sorted);
    return has_memory ? MP_OK : mp_no_memory(error);
}
