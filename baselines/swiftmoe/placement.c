/* SYMI's placement scheduler: slots per expert in proportion to popularity (SYMI, arXiv
 * 2504.19925). */
#include "baselines/swiftmoe/swiftmoe.h"

/* Differences are count - goal times the sum of all routes, which keeps them whole. */
static int32_t least_difference(const int64_t difference[], int experts) {
    int32_t least = 0;

    for (int32_t expert = 1; expert < experts; expert++)
        if (difference[expert] < difference[least])
            least = expert;
    return least;
}

/* The most above its goal of those that can lose a slot, or -1. */
static int32_t greatest_difference(const int64_t difference[], const int32_t count[], int experts) {
    int32_t greatest = -1;

    for (int32_t expert = 0; expert < experts; expert++)
        if (count[expert] > 1 && (greatest < 0 || difference[expert] > difference[greatest]))
            greatest = expert;
    return greatest;
}

int mp_swiftmoe_counts(const int64_t popularity[], int experts, int slots, int64_t difference[],
                       int32_t count[], struct mp_error *error) {
    int64_t sum = 0, given = 0;

    for (int expert = 0; expert < experts; expert++)
        sum += popularity[expert];
    bool equal = sum == 0;
    if (equal)
        sum = experts;
    if (sum > (INT64_MAX / 2) / slots)
        return mp_fail(error, MP_ELIMIT, "%lld routes are too many to be shared by %d slots",
                       (long long)sum, slots);
    for (int expert = 0; expert < experts; expert++) {
        int64_t goal = (equal ? 1 : popularity[expert]) * slots; /* times sum */
        count[expert] = goal < sum ? 1 : (int32_t)(goal / sum);
        difference[expert] = count[expert] * sum - goal;
        given += count[expert];
    }
    for (; given > slots; given--) {
        int32_t expert = greatest_difference(difference, count, experts);
        count[expert]--;
        difference[expert] -= sum;
    }
    for (; given < slots; given++) {
        int32_t expert = least_difference(difference, experts);
        count[expert]++;
        difference[expert] += sum;
    }
    return MP_OK;
}

void mp_swiftmoe_place(const int32_t count[], struct mp_slots *slots) {
    int32_t *slot = slots->expert;

    for (int32_t expert = 0; expert < slots->experts; expert++)
        for (int32_t instance = 0; instance < count[expert]; instance++)
            *slot++ = expert;
    mp_slots_index(slots, 0);
}
