#include "reference/plan/routes.h"

#include <stdlib.h>
#include <string.h>

void mp_load_drop_routes(struct mp_load *load) {
    if (load->routes) {
        free(load->routes->begin);
        free(load->routes->expert);
    }
    free(load->routes);
    load->routes = NULL;
}

/* Room for so many choices, with nothing in it.  False: there is none; the load has no routes. */
static bool take_routes(struct mp_load *load, int top_k, size_t choices) {
    struct mp_routes *routes = load->routes = calloc(1, sizeof *routes);
    if (routes) {
        routes->top_k = top_k;
        routes->begin = calloc((size_t)load->ranks + 1, sizeof *routes->begin);
        routes->expert = malloc((choices + !choices) * sizeof *routes->expert);
    }
    if (routes && routes->begin && routes->expert)
        return true;
    mp_load_drop_routes(load);
    return false;
}

int mp_load_give_routes(struct mp_load *load, int top_k, const int32_t tokens[],
                        struct mp_error *error) {
    int64_t all = 0;
    bool wrong = top_k < 1 || top_k > load->experts;
    mp_load_drop_routes(load);
    for (int rank = 0; rank < load->ranks; rank++) {
        wrong |= tokens[rank] < 0;
        all += tokens[rank];
    }
    if (wrong || all > INT32_MAX / top_k)
        return mp_fail(error, MP_EINVAL,
                       "%lld tokens with %d of %d experts each: a token has 1 to all experts, and "
                       "there are at most %d choices",
                       (long long)all, top_k, load->experts, INT32_MAX);
    const size_t choices = (size_t)all * (size_t)top_k;
    if (!take_routes(load, top_k, choices))
        return mp_fail(error, MP_ENOMEM, "no memory for the experts of %lld tokens",
                       (long long)all);
    struct mp_routes *routes = load->routes;
    for (int rank = 0; rank < load->ranks; rank++)
        routes->begin[rank + 1] = routes->begin[rank] + tokens[rank];
    memset(routes->expert, 0xff, choices * sizeof *routes->expert); /* -1 */
    return MP_OK;
}

int mp_load_copy_routes(struct mp_load *to, const struct mp_load *from, struct mp_error *error) {
    const struct mp_routes *routes = from->routes;
    mp_load_drop_routes(to);
    if (!routes)
        return MP_OK;
    const int32_t tokens = routes->begin[from->ranks];
    const size_t choices = (size_t)tokens * (size_t)routes->top_k;
    if (!take_routes(to, routes->top_k, choices))
        return mp_fail(error, MP_ENOMEM, "no memory for the experts of %d tokens", (int)tokens);
    memcpy(to->routes->begin, routes->begin, ((size_t)from->ranks + 1) * sizeof *routes->begin);
    memcpy(to->routes->expert, routes->expert, choices * sizeof *routes->expert);
    return MP_OK;
}

int mp_load_count_first(struct mp_load *load, struct mp_error *error) {
    const struct mp_routes *routes = load->routes;
    free(load->first);
    load->first = NULL;
    if (!routes)
        return MP_OK;
    MP_TRY(mp_load_give_first(load, error));
    for (int rank = 0; rank < load->ranks; rank++)
        for (int64_t t = routes->begin[rank]; t < routes->begin[rank + 1]; t++) {
            int32_t expert = routes->expert[t * routes->top_k];
            if (expert >= 0)
                load->first[(int64_t)rank * load->experts + expert]++;
        }
    return MP_OK;
}

void mp_routes_count(const struct mp_routes *routes, int rank, uint32_t count[]) {
    int64_t end = (int64_t)routes->begin[rank + 1] * routes->top_k;
    for (int64_t i = (int64_t)routes->begin[rank] * routes->top_k; i < end; i++)
        if (routes->expert[i] >= 0)
            count[routes->expert[i]]++;
}

/* What is wrong with a token's choices, or NULL. */
static const char *fault_of(const int32_t expert[], int top_k, int experts) {
    for (int j = 0; j < top_k; j++) {
        if (expert[j] >= experts || expert[j] < -experts)
            return "an expert that there is not";
        for (int i = 0; i < j && expert[j] >= 0; i++)
            if (expert[i] == expert[j])
                return "an expert twice";
    }
    return NULL;
}

static int check_rank(const struct mp_load *load, int rank, uint32_t count[],
                      struct mp_error *error) {
    const struct mp_routes *routes = load->routes;
    for (int32_t t = routes->begin[rank]; t < routes->begin[rank + 1]; t++) {
        const char *fault = fault_of(routes->expert + (size_t)t * (size_t)routes->top_k,
                                     routes->top_k, load->experts);
        if (fault)
            return mp_fail(error, MP_EFORMAT, "token %d of rank %d has %s among %d",
                           (int)(t - routes->begin[rank]), rank, fault, load->experts);
    }
    memset(count, 0, (size_t)load->experts * sizeof *count);
    mp_routes_count(routes, rank, count);
    for (int e = 0; e < load->experts; e++)
        if (count[e] != mp_load_at(load, rank, e))
            return mp_fail(error, MP_EFORMAT,
                           "rank %d has %u routes to expert %d, but its tokens' experts make %u",
                           rank, mp_load_at(load, rank, e), e, count[e]);
    return MP_OK;
}

int mp_load_check_routes(const struct mp_load *load, struct mp_error *error) {
    MP_AUTO(memory) uint32_t *count = NULL;
    MP_TRY(MP_NEW(count, load->experts, error));
    for (int rank = 0; rank < load->ranks; rank++)
        MP_TRY(check_rank(load, rank, count, error));
    return MP_OK;
}

/* ---- transitions ---- */

void mp_routes_transitions(int64_t tokens, int top_k, int experts, const int32_t expert[],
                           const int32_t following[], uint32_t next[]) {
    for (int64_t t = 0; t < tokens; t++, expert += top_k, following += top_k)
        for (int i = 0; i < top_k; i++) {
            if (expert[i] < 0)
                continue;
            uint32_t *row = next + (size_t)expert[i] * (size_t)experts;
            for (int j = 0; j < top_k; j++)
                if (following[j] >= 0)
                    row[following[j]]++;
        }
}

/* Places are of the same tokens. */
static bool same_tokens(const struct mp_load *load, const struct mp_load *following) {
    const struct mp_routes *one = load->routes, *other = following->routes;
    return one && other && load->ranks == following->ranks && one->top_k == other->top_k &&
           !memcmp(one->begin, other->begin, ((size_t)load->ranks + 1) * sizeof *one->begin);
}

bool mp_load_transitions(const struct mp_load *load, const struct mp_load *following,
                         int64_t tokens, int64_t total[], uint32_t next[]) {
    size_t experts = (size_t)load->experts;
    int64_t *from = total, *to = total + experts;
    if (same_tokens(load, following)) {
        mp_routes_transitions(load->routes->begin[load->ranks], load->routes->top_k, load->experts,
                              load->routes->expert, following->routes->expert, next);
        return true;
    }
    mp_load_expert_totals(load, from);
    mp_load_expert_totals(following, to);
    for (size_t i = 0; i < experts && tokens > 0; i++)
        for (size_t j = 0; j < experts; j++)
            next[i * experts + j] +=
                (uint32_t)(((uint64_t)from[i] * (uint64_t)to[j] + (uint64_t)tokens / 2) /
                           (uint64_t)tokens);
    return false;
}
