/* Replayed gating: choices that reproduce given loads exactly, so that every system meets them.
 *
 * Tokens are arbitrary: routes sorted by expert are dealt to the tokens in a strided order that
 * changes with iteration and layer, so that each token gets K distinct experts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reference/base/error.h"

/* Splits `routes` over experts in proportion to weight [experts] by largest remainder, ties to the
 * lower id: count [experts] sums to `routes`.  All-zero weights are an error. */
int mp_replay_apportion(int experts, const double weight[], int64_t routes, uint32_t count[],
                        struct mp_error *error);

/* weight [experts]: `share` of the routes spread evenly over the first `hot` experts, the rest
 * evenly over the others; hot == experts means all even. */
void mp_replay_skew(int experts, int hot, double share, double weight[]);

/* choice [tokens][top_k] such that expert e is chosen count[e] times and no token twice by the same
 * expert.  count sums to at most tokens * top_k, what is missing being choices that are not taken
 * (device.h: -1, the last ones), and no entry exceeds `tokens` (MP_EINVAL: a token chooses an
 * expert at most once). `turn` shifts the order, e.g. a number made of iteration and layer. */
int mp_replay_choices(int tokens, int top_k, int experts, const uint32_t count[], uint64_t turn,
                      int32_t choice[], struct mp_error *error);

/* What a gate that limits outgoing tokens (policy.outgoing_limit, FasterMoE's topology-aware gate;
 * limit_choices in device.h) makes of one source's loads, two experts for each token, in place.
 * Loads don't say which choices are a token's first and which its second, nor what it would choose
 * next.  The rule:
 * - Half of the routes outside are first choices.  Up to `limit` of them everything stands.
 * - Beyond that `limit` tokens keep one expert outside: so many routes stay there, in proportion.
 * - Inside, a token that leaves takes one expert and every other token two, as if drawn one after
 *   the other: with the source's routes there as weights, evenly where it has none.
 * What has been limited is not changed again.  inside [experts]: at least two are; limit >= 0. */
void mp_replay_limit(int experts, const bool inside[], int64_t limit, uint32_t count[]);

/* What a loss that knows the topology makes of one source's loads (policy.pull), in place: the
 * routes inside become 1 - pull of what they are and `pull` of `share` of all, rounded; on either
 * side in proportion to what experts had, evenly where none had any, none with more than `tokens`.
 * inside [experts]: without experts on both sides nothing changes. */
void mp_replay_pull(int experts, const bool inside[], double share, double pull, int64_t tokens,
                    uint32_t count[]);
