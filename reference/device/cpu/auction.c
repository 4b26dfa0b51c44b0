#include "reference/device/cpu/auction.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { MOST_EXPERTS = 1024 };

/* Of tokens that decide together. */
struct auction {
    int tokens, experts, capacity;
    const float *logits;
    int32_t *choice; /* [tokens] its expert so far, or -1 */
    float *bid;      /* [tokens] what it has been had for */
    float step;
    float price[MOST_EXPERTS];
    int held[MOST_EXPERTS];
    int cheapest[MOST_EXPERTS]; /* of an expert without room: the token of the lowest bid */
};

struct arguments {
    int experts;
    const struct mp_gate_rule *rule;
    const float *logits;
    int32_t *choice;
    float *bid;
};

/* Of equal bids the earlier token's is the cheapest. */
static void set_price(struct auction *a, int expert) {
    int cheapest = -1;
    if (a->held[expert] < a->capacity)
        return;
    for (int t = 0; t < a->tokens; t++)
        if (a->choice[t] == expert && (cheapest < 0 || a->bid[t] < a->bid[cheapest]))
            cheapest = t;
    a->cheapest[expert] = cheapest;
    a->price[expert] = a->bid[cheapest];
}

/* The token that has lost its expert to this one, or -1. */
static int place(struct auction *a, int token, bool room_only) {
    const float *logits = a->logits + (size_t)token * (size_t)a->experts;
    float first = -INFINITY, second = -INFINITY;
    int best = -1, loser = -1;
    for (int e = 0; e < a->experts; e++) {
        float value = logits[e] - a->price[e];
        if (room_only && a->held[e] == a->capacity)
            continue;
        if (best < 0 || value > first) {
            second = first;
            first = value;
            best = e;
        } else if (value > second) {
            second = value;
        }
    }
    if (a->held[best] == a->capacity) {
        loser = a->cheapest[best];
        a->choice[loser] = -1;
    } else {
        a->held[best]++;
    }
    a->choice[token] = best;
    a->bid[token] = a->price[best] + (second > -INFINITY ? first - second : 0) + a->step;
    set_price(a, best);
    return loser;
}

static void run(struct auction *a, float accuracy) {
    float least = INFINITY, most = -INFINITY;
    int64_t left = (int64_t)MP_AUCTION_BIDS * a->tokens;
    for (size_t i = 0; i < (size_t)a->tokens * (size_t)a->experts; i++) {
        least = fminf(least, a->logits[i]);
        most = fmaxf(most, a->logits[i]);
    }
    a->step = fmaxf((most - least) * accuracy, 1e-4f);
    memset(a->price, 0, sizeof a->price);
    memset(a->held, 0, sizeof a->held);
    for (int t = 0; t < a->tokens; t++)
        a->choice[t] = -1;
    for (int t = 0; t < a->tokens; t++)
        for (int token = t; token >= 0; left--)
            token = place(a, token, left <= 0);
}

static void auction_range(const void *argument, size_t begin, size_t end) {
    const struct arguments *a = argument;
    int together = a->rule->together;
    for (size_t group = begin; group < end; group++) {
        size_t token = group * (size_t)together;
        struct auction auction = {.tokens = together,
                                  .experts = a->experts,
                                  .capacity = a->rule->capacity,
                                  .logits = a->logits + token * (size_t)a->experts,
                                  .choice = a->choice + token,
                                  .bid = a->bid + token};
        run(&auction, a->rule->accuracy);
    }
}

void MP_CPU_NAME(auction)(struct mp_device *device, int tokens, int experts,
                          const struct mp_gate_rule *rule, const float *logits, int32_t *choice,
                          float *bid) {
    const struct arguments arguments = {experts, rule, logits, choice, bid};
    size_t groups = (size_t)(tokens / rule->together);
    mp_cpu_parallel(mp_cpu_of(device), groups,
                    mp_cpu_grain((size_t)rule->together * (size_t)experts), auction_range,
                    &arguments);
}
