/* Choices that a group's tokens make together.
 *
 * Bids follow each other, so an auction is one warp's and takes what they take: each looks at the
 * experts and, where one is full, at all tokens of the group.  Groups run beside each other.  Where
 * experts choose, a warp per token counts the tokens that an expert prefers: it reads the
 * probabilities of its whole group, from the cache for most tokens. */
#include "reference/device/cuda/expert_row.cuh"
#include "reference/device/cuda/matching.cuh"

#include <math.h>

namespace mp {

struct group_of_tokens {
    int tokens, experts, capacity, top_k;
    float accuracy;
    const float *score;
    int32_t *choice;
    float *number; /* bids, or weights */
};

/* ---- Auction ---- */

struct auction_state {
    float price[MOST_EXPERTS];
    int held[MOST_EXPERTS], cheapest[MOST_EXPERTS];
};

/* The best expert and its value, and the second best value; -1 where there is none. */
struct offer {
    int best;
    float first, second;
};

__device__ __forceinline__ void add_value(offer &o, int expert, float value) {
    if (o.best < 0 || value > o.first || (value == o.first && expert < o.best)) {
        o.second = o.first;
        o.first = value;
        o.best = expert;
    } else if (value > o.second) {
        o.second = value;
    }
}

/* The same in every lane. */
__device__ __forceinline__ offer best_offer(const group_of_tokens &a, const auction_state &s,
                                            const float *logits, bool room_only) {
    offer o = {-1, -INFINITY, -INFINITY};
    for (int e = (int)threadIdx.x; e < a.experts; e += WARP)
        if (!room_only || s.held[e] < a.capacity)
            add_value(o, e, logits[e] - s.price[e]);
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        const int best = __shfl_xor_sync(ALL_LANES, o.best, distance);
        const float first = __shfl_xor_sync(ALL_LANES, o.first, distance);
        const float second = __shfl_xor_sync(ALL_LANES, o.second, distance);
        if (best >= 0)
            add_value(o, best, first);
        o.second = fmaxf(o.second, second);
    }
    o.best = __shfl_sync(ALL_LANES, o.best, 0); /* lanes may differ where there is no number */
    return o;
}

/* The token of the lowest bid for an expert, the first of equal ones, the same in every lane. */
__device__ __forceinline__ int cheapest_of(const group_of_tokens &a, int expert) {
    float least = INFINITY;
    int at = -1;
    for (int t = (int)threadIdx.x; t < a.tokens; t += WARP)
        if (a.choice[t] == expert && (at < 0 || a.number[t] < least)) {
            least = a.number[t];
            at = t;
        }
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, least, distance);
        const int place = __shfl_xor_sync(ALL_LANES, at, distance);
        if (place >= 0 && (at < 0 || other < least || (other == least && place < at))) {
            least = other;
            at = place;
        }
    }
    return __shfl_sync(ALL_LANES, at, 0);
}

/* The token that has lost its expert to this one, or -1. */
__device__ __forceinline__ int place_token(const group_of_tokens &a, auction_state &s, int token,
                                           float step, bool room_only) {
    const offer o = best_offer(a, s, a.score + (int64_t)token * a.experts, room_only);
    const bool full = s.held[o.best] == a.capacity;
    const int loser = full ? s.cheapest[o.best] : -1;
    const float above = o.second > -INFINITY ? o.first - o.second : 0.0f;
    __syncwarp();
    if (threadIdx.x == 0) {
        if (full)
            a.choice[loser] = -1;
        else
            s.held[o.best]++;
        a.choice[token] = o.best;
        a.number[token] = s.price[o.best] + above + step;
    }
    __syncwarp();
    if (s.held[o.best] == a.capacity) {
        const int cheapest = cheapest_of(a, o.best);
        if (threadIdx.x == 0) {
            s.cheapest[o.best] = cheapest;
            s.price[o.best] = a.number[cheapest];
        }
    }
    __syncwarp();
    return loser;
}

__global__ void __launch_bounds__(WARP) auction_kernel(group_of_tokens a) {
    __shared__ auction_state s;
    const int64_t first = (int64_t)blockIdx.x * a.tokens;
    a.score += first * a.experts;
    a.choice += first;
    a.number += first;
    float least = INFINITY, most = -INFINITY;
    for (int64_t i = threadIdx.x; i < (int64_t)a.tokens * a.experts; i += WARP) {
        least = fminf(least, a.score[i]);
        most = fmaxf(most, a.score[i]);
    }
    most = warp_largest(most);
    least = -warp_largest(-least);
    const float step = fmaxf((most - least) * a.accuracy, 1e-4f);
    for (int e = (int)threadIdx.x; e < a.experts; e += WARP) {
        s.price[e] = 0;
        s.held[e] = 0;
    }
    for (int t = (int)threadIdx.x; t < a.tokens; t += WARP)
        a.choice[t] = -1;
    __syncwarp();
    int64_t left = (int64_t)MP_AUCTION_BIDS * a.tokens;
    for (int t = 0; t < a.tokens; t++)
        for (int token = t; token >= 0; left--)
            token = place_token(a, s, token, step, left <= 0);
}

void auction(struct mp_cuda *cuda, mp_stream stream, int tokens, int experts,
             const struct mp_gate_rule &rule, const float *logits, int32_t *choice, float *bid) {
    const group_of_tokens a = {rule.together, experts, rule.capacity, 1,
                               rule.accuracy, logits,  choice,        bid};
    launch(cuda, "gate, auction", stream, tokens / rule.together, WARP, auction_kernel, a);
}

/* ---- Experts that choose ---- */

constexpr int TOKEN_WARPS = 4;

__global__ void __launch_bounds__(TOKEN_WARPS *WARP)
    experts_choose_kernel(const group_of_tokens a, int64_t tokens) {
    __shared__ float keys[TOKEN_WARPS][MOST_EXPERTS];
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    const int64_t token = (int64_t)blockIdx.x * TOKEN_WARPS + warp;
    float *key = keys[warp];
    if (token >= tokens)
        return;
    const int64_t first = token / a.tokens * a.tokens;
    for (int e = lane; e < a.experts; e += WARP) {
        const float own = a.score[token * a.experts + e];
        int preferred = 0;
        for (int64_t t = first; t < first + a.tokens; t++) {
            const float other = a.score[t * a.experts + e];
            preferred += other > own || (other == own && t < token);
        }
        key[e] = preferred < a.capacity ? own : -1.0f;
    }
    __syncwarp();
    for (int j = 0; j < a.top_k; j++) {
        const int chosen = largest_of(key, a.experts), expert = chosen < 0 ? j : chosen;
        __syncwarp();
        if (lane == 0) {
            const bool taken = key[expert] >= 0;
            a.choice[token * a.top_k + j] = taken ? expert : -1 - expert;
            a.number[token * a.top_k + j] = taken ? key[expert] : 0.0f;
            key[expert] = -INFINITY;
        }
        __syncwarp();
    }
}

void experts_choose(struct mp_cuda *cuda, mp_stream stream, int tokens, int experts, int top_k,
                    const struct mp_gate_rule &rule, const float *probability, int32_t *choice,
                    float *weight) {
    const group_of_tokens a = {rule.together, experts,     rule.capacity, top_k,
                               rule.accuracy, probability, choice,        weight};
    launch(cuda, "gate, experts choose", stream, pieces_of(tokens, TOKEN_WARPS), TOKEN_WARPS * WARP,
           experts_choose_kernel, a, (int64_t)tokens);
}

} // namespace mp
