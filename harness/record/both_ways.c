/* All-to-alls of one name for both ways (matches.h). */
#include <stdlib.h>

#include "harness/record/matches.h"

/* An exchange, experts or what stands between layers, in its iteration. */
struct step {
    int32_t iteration;
    bool is_back; /* an exchange behind its experts */
    size_t match;
};

/* One iteration. */
struct pass {
    struct mp_mapping *mapping;
    struct step *step;
    size_t steps;
    int64_t forward; /* runs of experts */
};

static bool is_exchange(const struct match *match) {
    return match->rule->phase == MP_PHASE_DISPATCH && !match->outer &&
           (match->phase == MP_PHASE_DISPATCH || match->by_order);
}

static bool is_experts(const struct match *match) {
    return match->phase == MP_PHASE_EXPERT;
}

/* What stands between one layer's experts and the next one's. */
static bool is_between(const struct match *match) {
    return match->phase == MP_PHASE_ATTENTION || match->phase == MP_PHASE_GATE ||
           match->phase == MP_PHASE_EMBED || match->phase == MP_PHASE_HEAD;
}

static struct match *match_at(const struct pass *pass, size_t step) {
    return &pass->mapping->match[pass->step[step].match];
}

MP_COMPARE(compare_steps, struct step,
           MP_ORDER(a->iteration, b->iteration) ?: MP_ORDER(a->match, b->match))

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

/* The layer of experts that begin a run, by their order where it isn't said: `runs` are those
 * before, of the other pass and backward. */
static int64_t layer_of_run(const struct pass *pass, const struct match *experts, int64_t runs[2]) {
    const bool is_backward = experts->direction == MP_BACKWARD;
    const int64_t run = runs[is_backward]++;
    return is_backward ? pass->forward - 1 - run : run;
}

/* By how many exchanges stand before experts. */
static void tell_in_order(struct pass *pass) {
    const struct match *experts = NULL;
    int64_t runs[2] = {0}, layer = 0;
    size_t told = 0;
    if (!find_ways_back(pass->mapping, pass->step, pass->steps, &pass->forward))
        return;
    for (size_t i = 0; i < pass->steps; i++) {
        struct match *match = match_at(pass, i);
        if (is_exchange(match) && !pass->step[i].is_back)
            continue;
        if (is_exchange(match)) {
            tell(match, experts, true, layer);
            continue;
        }
        if (i == 0 || !is_experts(match_at(pass, i - 1)))
            layer = layer_of_run(pass, match, runs);
        experts = match;
        for (; told < i; told++)
            if (is_exchange(match_at(pass, told)) && !pass->step[told].is_back)
                tell(match_at(pass, told), experts, false, layer);
    }
}

/* ---- by what stands between layers ---- */

/* The only run of experts from `first` to `end`; false: there is none or are several. */
static bool only_run(const struct pass *pass, size_t first, size_t end, size_t *begin,
                     size_t *behind) {
    *begin = first;
    while (*begin < end && !is_experts(match_at(pass, *begin)))
        ++*begin;
    *behind = *begin;
    while (*behind < end && is_experts(match_at(pass, *behind)))
        ++*behind;
    for (size_t i = *behind; i < end; i++)
        if (is_experts(match_at(pass, i)))
            return false;
    return *begin < end;
}

/* Whether an exchange begins the backward pass. */
static bool is_turn(const struct pass *pass, size_t step) {
    return is_exchange(match_at(pass, step)) && match_at(pass, step)->direction == MP_BACKWARD &&
           match_at(pass, step - 1)->direction != MP_BACKWARD;
}

/* Where the piece from `first` ends: at what stands between, or before the backward pass. */
static size_t end_of_piece(const struct pass *pass, size_t first) {
    size_t end = first;
    while (end < pass->steps && !is_between(match_at(pass, end)) &&
           (end == first || !is_turn(pass, end)))
        end++;
    return end;
}

static size_t next_piece(const struct pass *pass, size_t end) {
    return end + (end == pass->steps || is_between(match_at(pass, end)));
}

/* Whether experts have something between them: no two runs have not. */
static bool is_divided(struct pass *pass) {
    size_t begin, behind, between = 0;
    pass->forward = 0;
    for (size_t first = 0, end; first < pass->steps; first = next_piece(pass, end)) {
        end = end_of_piece(pass, first);
        between += end < pass->steps && is_between(match_at(pass, end));
        if (only_run(pass, first, end, &begin, &behind))
            pass->forward += match_at(pass, begin)->direction != MP_BACKWARD;
        else if (begin < end)
            return false;
    }
    return between > 0 && pass->forward > 0;
}

/* Of exchanges without a direction as many as the first layer has come back behind experts: the
 * last layer's are followed by the backward pass. */
static bool tell_divided(struct pass *pass) {
    size_t begin, behind, most = SIZE_MAX;
    int64_t runs[2] = {0};
    if (!is_divided(pass))
        return false;
    for (size_t first = 0, end; first < pass->steps; first = next_piece(pass, end)) {
        end = end_of_piece(pass, first);
        if (!only_run(pass, first, end, &begin, &behind))
            continue;
        const struct match *experts = match_at(pass, begin);
        const bool is_backward = experts->direction == MP_BACKWARD;
        const int64_t layer = layer_of_run(pass, experts, runs);
        size_t back = 0;
        for (size_t i = first; i < end; i++) {
            struct match *match = match_at(pass, i);
            const bool is_open = match->direction == MP_NO_DIRECTION;
            if (is_experts(match) ||
                (!is_open && (match->direction == MP_BACKWARD) != is_backward) ||
                (i >= behind && back == most))
                continue;
            back += i >= behind;
            tell(match, experts, i >= behind, layer);
        }
        most = most == SIZE_MAX ? back : most;
    }
    return true;
}

/* ---- the backward pass, and what can't be told ---- */

/* Where the run of experts before a step begins; 0 and no experts: there is none. */
static size_t run_before(const struct pass *pass, size_t step) {
    while (step > 0 && !is_experts(match_at(pass, step - 1)))
        step--;
    while (step > 0 && is_experts(match_at(pass, step - 1)))
        step--;
    return step;
}

static bool is_untold(const struct match *match) {
    return is_exchange(match) && !match->by_order && match->original == NO_ORIGINAL;
}

/* Of as many exchanges behind all experts as were told, or that are known to be backward, each
 * layer has the same number, the last layer the first. */
static bool tell_backward(struct pass *pass, size_t behind) {
    int64_t told = 0, untold = 0, number = 0;
    bool known = true;
    for (size_t i = 0; i < pass->steps; i++) {
        const struct match *match = match_at(pass, i);
        if ((is_untold(match) && i < behind) ||
            (is_experts(match) && match->direction == MP_BACKWARD))
            return false;
        told += match->by_order;
        untold += is_untold(match);
        known = known && (!is_untold(match) || match->direction == MP_BACKWARD);
    }
    if (pass->forward == 0 || untold % pass->forward || (untold != told && !known))
        return false;
    const int64_t each = untold / pass->forward;
    size_t run = behind;
    for (size_t i = behind; i < pass->steps; i++) {
        struct match *match = match_at(pass, i);
        if (!is_untold(match))
            continue;
        match->phase = number % each < each / 2 ? MP_PHASE_COMBINE : MP_PHASE_DISPATCH;
        match->direction = MP_BACKWARD;
        run = number % each ? run : run_before(pass, run);
        if (match->rule->layer.source == MP_RULE_COUNT || match->layer < 0)
            match->layer = is_experts(match_at(pass, run)) && match_at(pass, run)->layer >= 0
                               ? match_at(pass, run)->layer
                               : pass->forward - 1 - number / each;
        match->by_order = true;
        number++;
    }
    return true;
}

/* Counting is no layer where exchanges are more or fewer than experts, which say theirs. */
static void forget_counts(struct pass *pass) {
    int64_t exchanges = 0, runs = 0;
    for (size_t i = 0; i < pass->steps; i++) {
        const struct match *match = match_at(pass, i);
        exchanges += is_exchange(match);
        runs += is_experts(match) && match->layer >= 0 &&
                (i == 0 || !is_experts(match_at(pass, i - 1)));
    }
    for (size_t i = 0; i < pass->steps && runs > 0 && exchanges != runs; i++) {
        struct match *match = match_at(pass, i);
        if (!is_untold(match) || match->rule->layer.source != MP_RULE_COUNT)
            continue;
        match->layer = -1;
        match->by_order = true;
    }
}

static void tell_iteration(struct pass *pass) {
    size_t kept = 0, behind = 0;
    const bool told = tell_divided(pass);
    for (size_t i = 0; i < pass->steps; i++)
        if (!is_between(match_at(pass, i)))
            pass->step[kept++] = pass->step[i];
    pass->steps = kept;
    if (!told)
        tell_in_order(pass);
    for (size_t i = 0; i < pass->steps; i++)
        behind = is_experts(match_at(pass, i)) ? i + 1 : behind;
    if (!tell_backward(pass, behind))
        forget_counts(pass);
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
    MP_AUTO(memory) struct step *step = NULL;
    size_t steps = 0;
    bool has_combine = false;
    MP_TRY(MP_NEW(step, mapping->matches + 1, error));
    for (size_t i = 0; i < mapping->matches; i++) {
        const struct match *match = &mapping->match[i];
        if (!match_is_span(mapping, match))
            continue;
        has_combine = has_combine || match->phase == MP_PHASE_COMBINE;
        if (is_exchange(match) || is_experts(match) || is_between(match))
            step[steps++] = (struct step){match->iteration, false, i};
    }
    MP_SORT(step, steps, compare_steps);
    for (size_t first = 0, end; !has_combine && first < steps; first = end) {
        for (end = first + 1; end < steps && step[end].iteration == step[first].iteration;)
            end++;
        struct pass pass = {mapping, step + first, end - first, 0};
        tell_iteration(&pass);
    }
    for (size_t i = 0; i < mapping->matches; i++)
        follow_original(mapping, &mapping->match[i]);
    return MP_OK;
}
