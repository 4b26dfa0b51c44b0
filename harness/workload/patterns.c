/* Shares of the patterns w1 .. w7 (generate.h). */
#include <math.h>

#include "harness/workload/shares.h"
#include "reference/base/random.h"

static int hot_count(const struct mp_generate_options *options) {
    if (options->hot_experts != MP_AUTO)
        return options->hot_experts;
    return options->experts < 32 ? 1 : options->experts / 16;
}

/* Every hot expert must be hotter than the others, and no expert above 1 / top_k. */
static int check_heat(const struct mp_generate_options *options, struct mp_error *error) {
    const int experts = options->experts, hot = hot_count(options);
    if (hot >= experts)
        return mp_fail(error, MP_EINVAL, "%d hot experts are wanted of %d; at most %d can be hot",
                       hot, experts, experts - 1);
    double each = options->heat / hot, other = (1 - options->heat) / (experts - hot);
    if (each * options->top_k > 1 + 1e-12)
        return mp_fail(error, MP_EINVAL,
                       "heat %g on %d hot experts gives each %.4g of all routes, but when a token "
                       "takes %d distinct experts none can have more than %.4g: heat can be %.4g, "
                       "or hot-experts %d",
                       options->heat, hot, each, options->top_k, 1.0 / options->top_k,
                       (double)hot / options->top_k, (int)ceil(options->heat * options->top_k));
    if (other * options->top_k > 1 + 1e-12)
        return mp_fail(error, MP_EINVAL,
                       "heat %g leaves each of the %d other experts %.4g of all routes, but when a "
                       "token takes %d distinct experts none can have more than %.4g",
                       options->heat, experts - hot, other, options->top_k, 1.0 / options->top_k);
    if (each < other * (1 - 1e-12))
        return mp_fail(error, MP_EINVAL,
                       "heat %g on %d of %d experts is less than the other experts get (%.4g "
                       "each); it must be at least %.4g",
                       options->heat, hot, experts, other, (double)hot / experts);
    return MP_OK;
}

/* Kinds that speak of an expert's rank: contiguous, equally many everywhere. */
static int check_ranks(const struct mp_generate_options *options, struct mp_error *error) {
    if (options->ranks < 2)
        return mp_fail(error, MP_EINVAL, "a pattern of ranks needs at least 2, not %d",
                       options->ranks);
    if (options->experts % options->ranks)
        return mp_fail(error, MP_EINVAL,
                       "a pattern of ranks needs equally many experts on each: %d experts do not "
                       "divide by %d ranks",
                       options->experts, options->ranks);
    return MP_OK;
}

static void spread_others(const struct mp_generate_options *options, double share[]) {
    int others = options->experts - hot_count(options);
    for (int e = 0; e < options->experts; e++)
        share[e] = (1 - options->heat) / others;
}

static void shuffle(const struct mp_share_wish *wish, int count) {
    mp_share_shuffle((uint64_t)wish->options->seed,
                     mp_share_stream_of(MP_STREAM_PLACES, wish->layer), count, wish->order);
}

/* A random set of experts, the one of number `spot` of the layer. */
static int heat_spot(const struct mp_share_wish *wish, int64_t spot, double share[],
                     struct mp_error *error) {
    const struct mp_generate_options *options = wish->options;
    const int experts = options->experts, hot = hot_count(options);
    MP_TRY(check_heat(options, error));
    shuffle(wish, experts);
    spread_others(options, share);
    int first = (int)(spot % experts * hot % experts);
    for (int i = 0; i < hot; i++)
        share[wish->order[(first + i) % experts]] = options->heat / hot;
    return MP_OK;
}

/* Without a period it is always the same set. */
int mp_share_hot_experts(const struct mp_share_wish *wish, double share[], struct mp_error *error) {
    return heat_spot(wish, mp_epoch_period(wish->options, wish->iteration), share, error);
}

/* Experts of one rank, or evenly over the ranks, then a second on each, and so on. */
static int heat_ranks(const struct mp_share_wish *wish, bool one_rank, double share[],
                      struct mp_error *error) {
    const struct mp_generate_options *options = wish->options;
    MP_TRY(check_ranks(options, error));
    MP_TRY(check_heat(options, error));
    const int ranks = options->ranks, hot = hot_count(options), local = options->experts / ranks;
    if (one_rank && hot > local)
        return mp_fail(error, MP_EINVAL,
                       "%d hot experts are wanted on one rank, which has %d of the %d experts", hot,
                       local, options->experts);
    int first =
        (int)mp_random_below((uint64_t)options->seed,
                             mp_share_stream_of(MP_STREAM_PLACES, wish->layer), 0, (uint64_t)ranks);
    spread_others(options, share);
    for (int i = 0; i < hot; i++) {
        int turn = i % ranks;
        int step = hot < ranks ? (int)((int64_t)turn * ranks / hot) : turn;
        share[one_rank ? first * local + i : (first + step) % ranks * local + i / ranks] =
            options->heat / hot;
    }
    return MP_OK;
}

int mp_share_hot_rank(const struct mp_share_wish *wish, double share[], struct mp_error *error) {
    return heat_ranks(wish, true, share, error);
}

int mp_share_spread(const struct mp_share_wish *wish, double share[], struct mp_error *error) {
    return heat_ranks(wish, false, share, error);
}

int mp_share_empty(const struct mp_share_wish *wish, double share[], struct mp_error *error) {
    const struct mp_generate_options *options = wish->options;
    if (options->empty_what)
        MP_TRY(check_ranks(options, error));
    const int units = options->empty_what ? options->ranks : options->experts;
    const int size = options->experts / units;
    int empty = (int)floor(options->empty * units + 0.5);
    empty = empty > 0 ? empty : 1;
    int left = (units - empty) * size;
    if (left < options->top_k)
        return mp_fail(error, MP_EINVAL,
                       "with %d of %d %s empty %d experts are left, fewer than the %d that each "
                       "token takes",
                       empty, units, options->empty_what ? "ranks" : "experts", left,
                       options->top_k);
    shuffle(wish, units);
    for (int i = 0; i < units; i++)
        for (int e = 0; e < size; e++)
            share[wish->order[i] * size + e] = i < empty ? 0 : 1.0 / left;
    return MP_OK;
}

int64_t mp_epoch_period(const struct mp_generate_options *options, int64_t iteration) {
    return options->period > 0 ? iteration / options->period : 0;
}

/* Bursts lie in the middle of their periods. */
int64_t mp_epoch_burst(const struct mp_generate_options *options, int64_t iteration) {
    int64_t place = iteration % options->period, start = (options->period - options->length) / 2;
    return place >= start && place < start + options->length;
}

int mp_share_burst(const struct mp_share_wish *wish, double share[], struct mp_error *error) {
    const struct mp_generate_options *options = wish->options;
    if (options->length >= options->period)
        return mp_fail(error, MP_EINVAL,
                       "bursts of %d iterations do not end before the next, every %d iterations",
                       options->length, options->period);
    MP_TRY(heat_spot(wish, 0, share, error)); /* checks the heat at any iteration */
    return mp_epoch_burst(options, wish->iteration) ? MP_OK : mp_share_equal(wish, share, error);
}
