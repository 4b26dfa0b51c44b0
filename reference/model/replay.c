#include "reference/model/replay.h"

#include <math.h>
#include <stdbool.h>

/* What an expert's quota, routes * weight / total, has behind its whole part, in units of
 * 1 / total: exact for whole weights, so that equal remainders are equal in the comparison, too. */
static double remainder_of(int64_t routes, double weight, double total) {
    return fmod((double)routes * weight, total);
}

int mp_replay_apportion(int experts, const double weight[], int64_t routes, uint32_t count[],
                        struct mp_error *error) {
    double total = 0;
    for (int e = 0; e < experts; e++) {
        if (!(weight[e] >= 0 && isfinite(weight[e])))
            return mp_fail(error, MP_EINVAL, "load of expert %d is %g, not a number of routes", e,
                           weight[e]);
        total += weight[e];
    }
    if (!(total > 0))
        return mp_fail(error, MP_EINVAL, "a load must have at least one route");
    int64_t given = 0;
    for (int e = 0; e < experts; e++) {
        double rest = remainder_of(routes, weight[e], total);
        count[e] = (uint32_t)llround(((double)routes * weight[e] - rest) / total);
        given += count[e];
    }
    /* Fewer than `experts` routes are left; one each to the largest remainders, whose order is
     * found by looking for the next one below the last. */
    int last = -1;
    double last_rest = total;
    for (; given < routes; given++) {
        int best = -1;
        double most = 0;
        for (int e = 0; e < experts; e++) {
            double rest = remainder_of(routes, weight[e], total);
            bool is_left = rest < last_rest || (rest == last_rest && e > last);
            if (weight[e] > 0 && is_left && (best < 0 || rest > most)) {
                most = rest;
                best = e;
            }
        }
        count[best]++;
        last = best;
        last_rest = most;
    }
    return MP_OK;
}

void mp_replay_skew(int experts, int hot, double share, double weight[]) {
    for (int e = 0; e < experts; e++)
        weight[e] = hot == experts ? 1 : e < hot ? share / hot : (1 - share) / (experts - hot);
}

static int common_divisor(int a, int b) {
    while (b) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int mp_replay_choices(int tokens, int top_k, int experts, const uint32_t count[], uint64_t turn,
                      int32_t choice[], struct mp_error *error) {
    /* A stride near the golden section spreads an expert's routes over the whole batch. */
    int stride = (int)(tokens * 0.6180339887);
    while (common_divisor(stride, tokens) != 1)
        stride++;
    int64_t position = 0;
    for (int e = 0; e < experts; e++) {
        if (count[e] > (uint32_t)tokens)
            return mp_fail(error, MP_EINVAL,
                           "expert %d would get %u routes of %d tokens, but a token chooses an "
                           "expert at most once",
                           e, count[e], tokens);
        for (uint32_t i = 0; i < count[e]; i++, position++) {
            if (position >= (int64_t)tokens * top_k)
                return mp_fail(error, MP_EINVAL, "loads hold more than %d x %d routes", tokens,
                               top_k);
            int64_t slot = position % tokens;
            int64_t token = (slot * stride + (int64_t)(turn % (uint64_t)tokens)) % tokens;
            choice[token * top_k + position / tokens] = e;
        }
    }
    if (position != (int64_t)tokens * top_k)
        return mp_fail(error, MP_EINVAL, "loads hold %lld routes, not %d x %d", (long long)position,
                       tokens, top_k);
    return MP_OK;
}
