#include "reference/model/replay.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

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

/* Routes are dealt to tokens `stride` apart, all their first choices before the second ones:
 * without a division, as this is done for every layer of a step. */
struct dealing {
    int tokens, top_k, stride;
    int token, dealt; /* the next one, and how many have this choice */
    int32_t *choice;  /* this one of token 0 */
};

static void deal(struct dealing *to, int64_t routes, int32_t expert) {
    for (; routes > 0; routes--) {
        to->choice[(size_t)to->token * (size_t)to->top_k] = expert;
        to->token += to->stride;
        to->token -= to->token >= to->tokens ? to->tokens : 0;
        if (++to->dealt == to->tokens) { /* and the next token is the first one again */
            to->dealt = 0;
            to->choice++;
        }
    }
}

int mp_replay_choices(int tokens, int top_k, int experts, const uint32_t count[], uint64_t turn,
                      int32_t choice[], struct mp_error *error) {
    int64_t left = (int64_t)tokens * top_k;
    /* A stride near the golden section spreads an expert's routes over the whole batch. */
    struct dealing to = {tokens,
                         top_k,
                         (int)(tokens * 0.6180339887),
                         tokens > 0 ? (int)(turn % (uint64_t)tokens) : 0,
                         0,
                         choice};
    while (common_divisor(to.stride, tokens) != 1)
        to.stride++;
    for (int e = 0; e < experts; left -= count[e++]) {
        if (count[e] > (uint32_t)tokens)
            return mp_fail(error, MP_EINVAL,
                           "expert %d would get %u routes of %d tokens, but a token chooses an "
                           "expert at most once",
                           e, count[e], tokens);
        if (count[e] > left)
            return mp_fail(error, MP_EINVAL, "loads hold more than %d x %d routes", tokens, top_k);
        deal(&to, count[e], e);
    }
    deal(&to, left, -1);
    return MP_OK;
}

/* ---- a gate's limit ---- */

/* Whole parts of a sum in proportion to weights, by rounding what has been given out so far: each
 * within one of its quota. */
struct parts {
    double weights, sum; /* all of them; what is split */
    double passed;
    int64_t given;
};

static uint32_t next_part(struct parts *parts, double weight, int64_t most) {
    parts->passed += weight;
    int64_t part = (int64_t)(parts->passed / parts->weights * parts->sum + 0.5) - parts->given;
    part = part < most ? part : most;
    parts->given += part;
    return (uint32_t)part;
}

/* Chances of an expert that has `share` of the weights of `insiders`: to be the first of a token's
 * choices, and to be among two.  odds: sum over all of share / (1 - share). */
struct chances {
    double first, any;
};

static struct chances chances_of(double share, double odds, int insiders) {
    if (share == 1)
        return (struct chances){1, 1};
    if (isinf(odds)) /* beside one that all choose */
        return (struct chances){0, 1.0 / (insiders - 1)};
    return (struct chances){share, share * (1 + odds - share / (1 - share))};
}

/* All but `leaving` of the `routes` go to experts inside, which had `had` of them. */
static void choose_inside(int experts, const bool inside[], int64_t routes, int64_t leaving,
                          int64_t had, uint32_t count[]) {
    int64_t tokens = (routes + 1) / 2, sum = routes - leaving;
    int insiders = 0;
    double odds = 0;
    for (int e = 0; e < experts; e++)
        insiders += inside[e];
    for (int e = 0; e < experts; e++) {
        double share = had > 0 ? (double)count[e] / (double)had : 1.0 / insiders;
        odds += inside[e] ? share / (1 - share) : 0;
    }
    struct parts parts = {.weights = (double)(2 * tokens - leaving), .sum = (double)sum};
    for (int e = 0; e < experts; e++) {
        double share = had > 0 ? (double)count[e] / (double)had : 1.0 / insiders;
        struct chances chances = chances_of(share, odds, insiders);
        double quota = (double)leaving * chances.first + (double)(tokens - leaving) * chances.any;
        if (inside[e])
            count[e] = next_part(&parts, quota, tokens);
    }
    for (int e = 0; e < experts && parts.given < sum; e++)
        if (inside[e] && count[e] < tokens) { /* what rounding has left */
            count[e]++;
            parts.given++;
        }
}

void mp_replay_limit(int experts, const bool inside[], int64_t limit, uint32_t count[]) {
    int64_t inner = 0, outer = 0;
    for (int e = 0; e < experts; e++)
        *(inside[e] ? &inner : &outer) += count[e];
    if (outer <= 2 * limit)
        return;
    struct parts parts = {.weights = (double)outer, .sum = (double)limit};
    for (int e = 0; e < experts; e++)
        if (!inside[e])
            count[e] = next_part(&parts, count[e], INT64_MAX);
    choose_inside(experts, inside, inner + outer, limit, inner, count);
}

/* ---- a loss by topology ---- */

/* A side's experts share `sum` routes, of which they had `had`. */
static void share_side(int experts, const bool inside[], bool side, int64_t had, int64_t sum,
                       int64_t tokens, uint32_t count[]) {
    int members = 0;
    for (int e = 0; e < experts; e++)
        members += inside[e] == side;
    struct parts parts = {.weights = had > 0 ? (double)had : members, .sum = (double)sum};
    for (int e = 0; e < experts; e++)
        if (inside[e] == side)
            count[e] = next_part(&parts, had > 0 ? count[e] : 1, tokens);
    for (int e = 0; e < experts; e++)
        if (inside[e] == side) { /* what the tokens' number has left */
            int64_t more = sum - parts.given, room = tokens - count[e];
            more = more < room ? more : room;
            count[e] += (uint32_t)more;
            parts.given += more;
        }
}

void mp_replay_pull(int experts, const bool inside[], double share, double pull, int64_t tokens,
                    uint32_t count[]) {
    int64_t inner = 0, outer = 0, insiders = 0;
    for (int e = 0; e < experts; e++) {
        *(inside[e] ? &inner : &outer) += count[e];
        insiders += inside[e];
    }
    int64_t all = inner + outer, most = insiders * tokens,
            least = all - (experts - insiders) * tokens;
    if (insiders == 0 || insiders == experts)
        return;
    int64_t wanted = (int64_t)((1 - pull) * (double)inner + pull * share * (double)all + 0.5);
    wanted = wanted < least ? least : wanted;
    wanted = wanted < most ? wanted : most;
    share_side(experts, inside, true, inner, wanted, tokens, count);
    share_side(experts, inside, false, outer, all - wanted, tokens, count);
}
