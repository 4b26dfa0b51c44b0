/* Shares: what each kind of generator gives to each expert (generate.h says what they mean). */
#pragma once

#include "harness/workload/generate.h"

/* Streams of random numbers, so that no two draws share a number. */
enum mp_share_stream {
    MP_STREAM_PLACES = 1, /* which experts, ranks are meant; + layer in the upper half */
    MP_STREAM_HEIGHTS,
    MP_STREAM_LARGEST,
    MP_STREAM_TOKENS,
    MP_STREAM_PHASE,
    MP_STREAM_LAYERS, /* dynamics: what is a layer's own */
    MP_STREAM_WANDER, /* dynamics; + scale in the second 16 bits */
    MP_STREAM_NOISE,
    MP_STREAM_TOPICS,
    MP_STREAM_ORDERS /* zipf: streams of the orders after the first */
};

typedef int mp_share_function(const struct mp_share_wish *wish, double share[],
                              struct mp_error *error);
mp_share_function mp_share_equal, mp_share_zipf, mp_share_power, mp_share_lognormal;
mp_share_function mp_share_hot_experts, mp_share_hot_rank, mp_share_spread, mp_share_empty;
mp_share_function mp_share_burst, mp_share_dynamics;

int64_t mp_epoch_period(const struct mp_generate_options *options, int64_t iteration);
int64_t mp_epoch_burst(const struct mp_generate_options *options, int64_t iteration);
int64_t mp_epoch_dynamics(const struct mp_generate_options *options, int64_t iteration);

/* Stream number of a layer. */
uint64_t mp_share_stream_of(enum mp_share_stream stream, int layer);

/* order[count]: a permutation of 0 .. count - 1 of (seed, stream) alone (Fisher and Yates). */
void mp_share_shuffle(uint64_t seed, uint64_t stream, int count, int order[]);

/* Cuts shares at 1 / top_k and gives what is cut to the others in proportion, until none is above.
 */
void mp_share_cut(double share[], int experts, int top_k);
