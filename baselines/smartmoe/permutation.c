/* Equally many experts on every rank, and the largest load small: greedy, exact and hybrid. */
#include <string.h>

#include "baselines/smartmoe/smartmoe.h"

/* Largest divisor of `number` that is at most `most`. */
static int divisor_below(int number, int most) {
    int divisor = most < number ? most : number;
    while (number % divisor != 0)
        divisor--;
    return divisor;
}

/* Smallest divisor of `number` above 1. */
static int least_divisor(int number) {
    int divisor = 2;
    while (number % divisor != 0)
        divisor++;
    return divisor;
}

/* The items of one dynamic programme, none if it would have nothing to choose. */
static void choose_shape(struct mp_permutation *state, int groups) {
    int experts_each = state->experts / state->ranks;

    if (state->solver == MP_SMARTMOE_GREEDY || experts_each == 1 || state->ranks == 1)
        return;
    if (state->solver == MP_SMARTMOE_DYNAMIC_PROGRAMMING) {
        state->workers = state->ranks;
        state->each = experts_each;
        return;
    }
    int least = least_divisor(experts_each);
    if (2 * least > groups)
        return;
    state->workers = divisor_below(state->ranks, groups / least);
    if (state->workers > 1)
        state->each = divisor_below(experts_each, groups / state->workers);
    else
        state->workers = 0;
}

/* Lists the subsets of `each` items by their lowest one. */
static void list_wholes(struct mp_permutation *state) {
    int items = state->workers * state->each;
    int32_t end = 0;

    for (int low = 0; low < items; low++) {
        state->whole_begin[low] = end;
        for (unsigned set = 1u << low; set < 1u << items; set += 2u << low)
            if (__builtin_popcount(set) == state->each)
                state->whole[end++] = (uint16_t)set;
    }
    for (int low = items; low <= MP_PERMUTATION_ITEMS; low++)
        state->whole_begin[low] = end;
}

static void allocate(struct mp_arena *memory, struct mp_permutation *state) {
    size_t subsets = (size_t)1 << state->workers * state->each;

    MP_TAKE_EACH(memory, state->experts, state->order, state->device, state->other, state->member);
    MP_TAKE_EACH(memory, state->ranks, state->count, state->tally);
    MP_TAKE(memory, state->sum, state->ranks + MP_PERMUTATION_ITEMS);
    MP_TAKE_EACH(memory, subsets, state->load, state->best, state->last, state->whole);
}

int mp_permutation_create(struct mp_arena *memory, int experts, int ranks,
                          enum mp_smartmoe_solver solver, int groups, struct mp_permutation *state,
                          struct mp_error *error) {
    *state = (struct mp_permutation){.experts = experts, .ranks = ranks, .solver = solver};
    if (experts < 1 || ranks < 1 || experts % ranks != 0)
        return mp_fail(error, MP_EINVAL,
                       "smartmoe needs the same number of experts on every rank: %d experts can't "
                       "be shared by %d ranks",
                       experts, ranks);
    if (solver == MP_SMARTMOE_DYNAMIC_PROGRAMMING && experts > MP_PERMUTATION_ITEMS)
        return mp_fail(error, MP_EINVAL,
                       "smartmoe places at most %d experts of a layer by dynamic programming, as "
                       "it costs about ranks * 4^experts steps, not %d on %d ranks; the solver "
                       "hybrid can",
                       MP_PERMUTATION_ITEMS, experts, ranks);
    if (groups > MP_PERMUTATION_ITEMS)
        return mp_fail(error, MP_EINVAL, "smartmoe forms at most %d groups, not %d",
                       MP_PERMUTATION_ITEMS, groups);
    choose_shape(state, groups);
    allocate(memory, state);
    if (state->workers > 0 && !memory->lacking)
        list_wholes(state);
    return MP_OK;
}

/* Fills bins with `room` experts each: in the order given, each expert into the least loaded bin
 * that has room, its preferred one (if given) or the first of those.  bin is by expert; count and
 * sum are [bins].  Returns the largest sum. */
static int64_t fill(const int32_t expert[], int experts, const int64_t load[], int bins, int room,
                    const int32_t preferred[], int32_t bin[], int32_t count[], int64_t sum[]) {
    int64_t largest = 0;

    memset(count, 0, (size_t)bins * sizeof *count);
    memset(sum, 0, (size_t)bins * sizeof *sum);
    for (int at = 0; at < experts; at++) {
        int32_t moved = expert[at];
        int best = 0;
        while (count[best] == room)
            best++;
        for (int candidate = best + 1; candidate < bins; candidate++)
            if (count[candidate] < room && sum[candidate] < sum[best])
                best = candidate;
        if (preferred && count[preferred[moved]] < room && sum[preferred[moved]] == sum[best])
            best = preferred[moved];
        bin[moved] = best;
        count[best]++;
        sum[best] += load[moved];
        if (sum[best] > largest)
            largest = sum[best];
    }
    return largest;
}

int64_t mp_permutation_greedy(struct mp_permutation *state, const int64_t load[],
                              const int32_t current[], int32_t owner[]) {
    mp_load_hottest(load, state->experts, state->experts, state->order);
    return fill(state->order, state->experts, load, state->ranks, state->experts / state->ranks,
                current, owner, state->count, state->sum);
}

/* The next worker takes `set` when others have `placed`. */
static void try_set(struct mp_permutation *state, unsigned placed, unsigned set) {
    int64_t largest = state->load[set];

    if (largest < state->best[placed])
        largest = state->best[placed];
    if (largest < state->best[placed | set]) {
        state->best[placed | set] = largest;
        state->last[placed | set] = (uint16_t)set;
    }
}

/* Shares items of these loads among the workers as well as can be; worker is [items].  Workers are
 * alike, so that of the items left the lowest may always be on the next one. */
static int64_t share_exactly(struct mp_permutation *state, const int64_t item_load[],
                             int32_t worker[]) {
    int items = state->workers * state->each;
    unsigned all = (1u << items) - 1;

    state->load[0] = state->best[0] = 0;
    for (unsigned set = 1; set <= all; set++) {
        state->load[set] = state->load[set & (set - 1)] + item_load[__builtin_ctz(set)];
        state->best[set] = INT64_MAX;
    }
    for (unsigned placed = 0; placed < all; placed++) {
        if (state->best[placed] == INT64_MAX)
            continue;
        if (__builtin_popcount(all & ~placed) == state->each) {
            try_set(state, placed, all & ~placed);
            continue;
        }
        int low = __builtin_ctz(~placed);
        for (int32_t at = state->whole_begin[low]; at < state->whole_begin[low + 1]; at++)
            if (!(state->whole[at] & placed))
                try_set(state, placed, state->whole[at]);
    }
    int next = state->workers;
    for (unsigned left = all; left; left &= ~(unsigned)state->last[left]) {
        next--;
        for (unsigned set = state->last[left]; set; set &= set - 1)
            worker[__builtin_ctz(set)] = next;
    }
    return state->best[all];
}

/* Experts of a bin to state->member[bin * each ..]. */
static void list_members(struct mp_permutation *state, const int32_t bin[], int bins,
                         const int32_t expert[]) {
    int each = state->experts / bins;

    memset(state->count, 0, (size_t)bins * sizeof *state->count);
    for (int at = 0; at < state->experts; at++) {
        int32_t home = bin[expert[at]];
        state->member[home * each + state->count[home]++] = expert[at];
    }
}

/* Renames the bins in owner[] to ranks.  A bin and a rank that share `shared` experts are joined if
 * both are free, for `shared` from the most possible to 1; the rest in ascending order. */
static void keep_what_can_stay(struct mp_permutation *state, const int32_t current[],
                               int32_t owner[]) {
    int ranks = state->ranks, each = state->experts / ranks;
    int32_t *rank_of = state->other, *taken = state->count; /* by bin; by rank */

    list_members(state, owner, ranks, state->order);
    memset(taken, 0, (size_t)ranks * sizeof *taken);
    for (int bin = 0; bin < ranks; bin++) {
        rank_of[bin] = -1;
        state->tally[bin] = 0;
    }
    for (int shared = each; shared > 0; shared--)
        for (int bin = 0; bin < ranks; bin++) {
            const int32_t *member = &state->member[bin * each];
            if (rank_of[bin] >= 0)
                continue;
            for (int at = 0; at < each; at++) {
                int32_t rank = current[member[at]];
                if (++state->tally[rank] == shared && !taken[rank] && rank_of[bin] < 0) {
                    rank_of[bin] = rank;
                    taken[rank] = 1;
                }
            }
            for (int at = 0; at < each; at++)
                state->tally[current[member[at]]] = 0;
        }
    int free_rank = 0;
    for (int bin = 0; bin < ranks; bin++) {
        while (rank_of[bin] < 0 && taken[free_rank])
            free_rank++;
        if (rank_of[bin] < 0)
            rank_of[bin] = free_rank++;
    }
    for (int at = 0; at < state->experts; at++)
        owner[at] = rank_of[owner[at]];
}

/* The least possible largest load.  Which rank gets which set of experts is then chosen so that
 * many stay: sets and ranks that share most experts are joined first. */
static int64_t exact(struct mp_permutation *state, const int64_t load[], const int32_t current[],
                     int32_t owner[]) {
    if (state->workers == 0)
        return mp_permutation_greedy(state, load, current, owner);
    int64_t largest = share_exactly(state, load, owner);
    for (int expert = 0; expert < state->experts; expert++)
        state->order[expert] = expert;
    keep_what_can_stay(state, current, owner);
    return largest;
}

/* Places the experts of one virtual device, hottest first, on its workers. */
static int64_t place_device(struct mp_permutation *state, const int32_t member[], int device,
                            const int64_t load[], int32_t worker_of[]) {
    int items = state->workers * state->each;
    int experts = state->experts / (state->ranks / state->workers);
    int64_t *sum = state->sum + state->ranks; /* of items; the first part is in use by greedy */
    int32_t count[MP_PERMUTATION_ITEMS], worker[MP_PERMUTATION_ITEMS] = {0};

    fill(member, experts, load, items, experts / items, NULL, worker_of, count, sum);
    int64_t largest = share_exactly(state, sum, worker);
    for (int at = 0; at < experts; at++)
        worker_of[member[at]] = device * state->workers + worker[worker_of[member[at]]];
    return largest;
}

/* Ranks form virtual devices of `workers` ranks, which experts are put on greedily.  In each of
 * them experts are put greedily into `each` groups per rank, and these by dynamic programming on
 * its ranks.  There are as many ranks in a device as leave two groups for each, then as many groups
 * as the option `groups` allows.  Ranks as under exact.  What is no better than greedy is given up
 * for it. */
static int64_t hybrid(struct mp_permutation *state, const int64_t load[], const int32_t current[],
                      int32_t owner[]) {
    int64_t greedy = mp_permutation_greedy(state, load, current, owner), largest = 0;

    if (state->workers == 0)
        return greedy;
    int devices = state->ranks / state->workers, room = state->experts / devices;
    fill(state->order, state->experts, load, devices, room, NULL, state->device, state->count,
         state->sum);
    list_members(state, state->device, devices, state->order);
    for (int device = 0; device < devices; device++) {
        int64_t sum =
            place_device(state, &state->member[device * room], device, load, state->device);
        if (sum > largest)
            largest = sum;
    }
    if (largest >= greedy)
        return greedy;
    memcpy(owner, state->device, (size_t)state->experts * sizeof *owner);
    keep_what_can_stay(state, current, owner);
    return largest;
}

int64_t mp_permutation_solve(struct mp_permutation *state, const int64_t load[],
                             const int32_t current[], int32_t owner[]) {
    switch (state->solver) {
    case MP_SMARTMOE_DYNAMIC_PROGRAMMING:
        return exact(state, load, current, owner);
    case MP_SMARTMOE_HYBRID:
        return hybrid(state, load, current, owner);
    default:
        return mp_permutation_greedy(state, load, current, owner);
    }
}
