/* All-to-alls of one name for both ways (matches.h). */
#include <stdlib.h>

#include "harness/record/matches.h"

/* An exchange or experts, in its iteration. */
struct step {
    int32_t iteration;
    bool is_back; /* an exchange behind its experts */
    size_t match;
};

static bool is_exchange(const struct match *match) {
    return match->phase == MP_PHASE_DISPATCH && match->rule->phase == MP_PHASE_DISPATCH;
}

static int compare_steps(const void *left, const void *right) {
    const struct step *a = left, *b = right;
    if (a->iteration != b->iteration)
        return a->iteration < b->iteration ? -1 : 1;
    return (a->match > b->match) - (a->match < b->match);
}

/* Finds the ways back of one iteration and counts the runs of forward experts; false: it is not
 * like that. */
static bool find_ways_back(const struct mp_mapping *mapping, struct step step[], size_t steps,
                           int64_t *forward) {
    int64_t pending = 0; /* exchanges whose ways back have not come */
    bool is_behind = false, is_inside = false, is_closed = false;
    bool is_backward = false; /* the latest experts */
    *forward = 0;
    for (size_t i = 0; i < steps; i++) {
        const struct match *match = &mapping->match[step[i].match];
        if (is_exchange(match)) {
            if (is_behind && match->direction != MP_NO_DIRECTION &&
                (match->direction == MP_BACKWARD) != is_backward)
                return false; /* it is known to be of the other pass */
            step[i].is_back = is_behind;
            pending += is_behind ? -1 : 1;
            is_closed = is_closed || pending == 0;
            is_behind = is_behind && pending > 0;
            is_inside = false;
            continue;
        }
        is_backward = match->direction == MP_BACKWARD;
        if (!is_inside) {
            if (pending == 0)
                return false;
            *forward += !is_backward;
            is_behind = is_inside = true;
            is_closed = false;
        }
    }
    return is_closed;
}

static void tell(struct match *match, const struct match *experts, bool is_back, int64_t layer) {
    const bool is_backward = experts->direction == MP_BACKWARD;
    match->by_order = true;
    match->phase = is_back == is_backward ? MP_PHASE_DISPATCH : MP_PHASE_COMBINE;
    if (match->direction == MP_NO_DIRECTION)
        match->direction = experts->direction;
    if (match->rule->layer.source == MP_RULE_COUNT || match->layer < 0)
        match->layer = experts->layer >= 0 ? experts->layer : layer;
}

static void tell_iteration(struct mp_mapping *mapping, struct step step[], size_t steps) {
    const struct match *experts = NULL;
    int64_t forward, runs[2] = {0}, layer = 0; /* runs: other ones, backward ones */
    size_t told = 0;
    if (!find_ways_back(mapping, step, steps, &forward))
        return;
    for (size_t i = 0; i < steps; i++) {
        struct match *match = &mapping->match[step[i].match];
        if (is_exchange(match) && !step[i].is_back)
            continue;
        if (is_exchange(match)) {
            tell(match, experts, true, layer);
            continue;
        }
        if (i == 0 || mapping->match[step[i - 1].match].phase != MP_PHASE_EXPERT) {
            const bool is_backward = match->direction == MP_BACKWARD;
            const int64_t run = runs[is_backward]++;
            layer = is_backward ? forward - 1 - run : run;
        }
        experts = match;
        for (; told < i; told++)
            if (is_exchange(&mapping->match[step[told].match]) && !step[told].is_back)
                tell(&mapping->match[step[told].match], experts, false, layer);
    }
}

/* What is not told goes the way of what it echoes. */
static void follow_original(const struct mp_mapping *mapping, struct match *match) {
    const struct match *original =
        match->original == NO_ORIGINAL ? NULL : &mapping->match[match->original];
    if (!original || !original->by_order || match->by_order)
        return;
    match->by_order = true;
    match->phase = original->phase;
    match->layer = original->layer;
}

int mapping_tell_combines(struct mp_mapping *mapping, struct mp_error *error) {
    struct step *step = calloc(mapping->matches + 1, sizeof *step);
    size_t steps = 0;
    bool has_combine = false;
    if (!step)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for %zu ranges", mapping->path,
                       mapping->matches);
    for (size_t i = 0; i < mapping->matches; i++) {
        const struct match *match = &mapping->match[i];
        if (!match_is_span(mapping, match))
            continue;
        has_combine = has_combine || match->phase == MP_PHASE_COMBINE;
        if (is_exchange(match) || match->phase == MP_PHASE_EXPERT)
            step[steps++] = (struct step){match->iteration, false, i};
    }
    if (steps > 0)
        qsort(step, steps, sizeof *step, compare_steps);
    for (size_t first = 0, end; !has_combine && first < steps; first = end) {
        for (end = first + 1; end < steps && step[end].iteration == step[first].iteration;)
            end++;
        tell_iteration(mapping, step + first, end - first);
    }
    free(step);
    for (size_t i = 0; i < mapping->matches; i++)
        follow_original(mapping, &mapping->match[i]);
    return MP_OK;
}
