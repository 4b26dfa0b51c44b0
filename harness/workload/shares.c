#include "harness/workload/shares.h"

#include "reference/base/elementary.h"
#include "reference/base/random.h"

uint64_t mp_share_stream_of(enum mp_share_stream stream, int layer) {
    return (uint64_t)layer << 32 | stream;
}

void mp_share_shuffle(uint64_t seed, uint64_t stream, int count, int order[]) {
    for (int i = 0; i < count; i++)
        order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int other = (int)mp_random_below(seed, stream, (uint64_t)i, (uint64_t)i + 1);
        int kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

static void normalise(double share[], int count) {
    double sum = 0;
    for (int e = 0; e < count; e++)
        sum += share[e];
    for (int e = 0; e < count; e++)
        share[e] /= sum;
}

int mp_share_equal(const struct mp_share_wish *wish, double share[], struct mp_error *error) {
    (void)error;
    for (int e = 0; e < wish->options->experts; e++)
        share[e] = 1.0 / wish->options->experts;
    return MP_OK;
}

int mp_share_zipf(const struct mp_share_wish *wish, double share[], struct mp_error *error) {
    const struct mp_generate_options *options = wish->options;
    const uint64_t seed = (uint64_t)options->seed;
    int64_t epoch = mp_epoch_period(options, wish->iteration);
    uint64_t stream = mp_share_stream_of(MP_STREAM_PLACES, wish->layer);
    if (epoch > 0)
        stream = mp_random_bits(seed, mp_share_stream_of(MP_STREAM_ORDERS, wish->layer),
                                (uint64_t)epoch);
    mp_share_shuffle(seed, stream, options->experts, wish->order);
    for (int i = 0; i < options->experts; i++)
        share[wish->order[i]] = mp_elementary_power(i + 1, -options->exponent);
    normalise(share, options->experts);
    double top = share[wish->order[0]];
    if (top * options->top_k <= 1)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "zipf with exponent %g gives the hottest of %d experts %.4g of all routes, but "
                   "when a token takes %d distinct experts none can have more than %.4g",
                   options->exponent, options->experts, top, options->top_k, 1.0 / options->top_k);
}

void mp_share_cut(double share[], int experts, int top_k) {
    double most = 1.0 / top_k;
    for (int round = 0; round < top_k; round++) { /* each round but the last cuts one more */
        double below = 0;
        int full = 0;
        for (int e = 0; e < experts; e++)
            if (share[e] >= most)
                full++;
            else
                below += share[e];
        for (int e = 0; e < experts; e++)
            share[e] = share[e] >= most ? most : share[e] * ((1 - full * most) / below);
    }
    for (int e = 0; e < experts; e++)
        share[e] = share[e] < most ? share[e] : most;
}

int mp_share_power(const struct mp_share_wish *wish, double share[], struct mp_error *error) {
    const struct mp_generate_options *options = wish->options;
    (void)error;
    const double most = 0.8 * options->tokens * options->ranks, power = 1 - options->exponent;
    const double top = most > 1 ? most : 1;
    uint64_t stream = mp_share_stream_of(MP_STREAM_HEIGHTS, wish->layer);
    for (int e = 0; e < options->experts; e++) {
        double u = mp_elementary_uniform((uint64_t)options->seed, stream, (uint64_t)e);
        if (power > -1e-9 && power < 1e-9) /* the limit of the formula below */
            share[e] = mp_elementary_power(top, u);
        else
            share[e] =
                mp_elementary_power(1 + u * (mp_elementary_power(top, power) - 1), 1 / power);
    }
    normalise(share, options->experts);
    mp_share_cut(share, options->experts, options->top_k);
    return MP_OK;
}

/* Shares exp(sigma z) and their max / mean - 1. */
static double lognormal(const double z[], double highest, double sigma, int experts,
                        double share[]) {
    for (int e = 0; e < experts; e++)
        share[e] = mp_elementary_exp(sigma * (z[e] - highest));
    normalise(share, experts);
    double most = 0;
    for (int e = 0; e < experts; e++)
        most = share[e] > most ? share[e] : most;
    return most * experts - 1;
}

static int bisect(const struct mp_generate_options *options, const double z[], double share[],
                  struct mp_error *error) {
    const int experts = options->experts;
    const double wanted = options->violation;
    double low = 0, high = 20, highest = -1e9;
    for (int e = 0; e < experts; e++)
        highest = z[e] > highest ? z[e] : highest;
    double reached = lognormal(z, highest, high, experts, share);
    if (reached < wanted - 1e-3)
        return mp_fail(error, MP_EINVAL,
                       "lognormal reaches a max violation of %g among %d experts with this seed, "
                       "not the wanted %g",
                       reached, experts, wanted);
    /* At most wanted when it ends, so that the hottest expert stays within 1 / top_k. */
    for (int step = 0; step < 60; step++) {
        double middle = (low + high) / 2;
        if (lognormal(z, highest, middle, experts, share) > wanted)
            high = middle;
        else
            low = middle;
    }
    lognormal(z, highest, low, experts, share);
    return MP_OK;
}

int mp_share_lognormal(const struct mp_share_wish *wish, double share[], struct mp_error *error) {
    const struct mp_generate_options *options = wish->options;
    const double limit = (double)options->experts / options->top_k - 1;
    if (options->violation > limit)
        return mp_fail(error, MP_EINVAL,
                       "a max violation of %g is wanted, but with %d experts and %d distinct "
                       "experts per token it is at most %g",
                       options->violation, options->experts, options->top_k, limit);
    uint64_t stream = mp_share_stream_of(MP_STREAM_HEIGHTS, wish->layer);
    for (int e = 0; e < options->experts; e++)
        wish->height[e] = mp_elementary_normal((uint64_t)options->seed, stream, (uint64_t)e);
    return bisect(options, wish->height, share, error);
}
