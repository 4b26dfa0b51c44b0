/* Calibration (Hecate, section 4): once the real loads are known, a second materialisation, taken
 * only if it pays although nothing hides it any more.
 *
 * Only two sums per rank are kept, the routes it computes and those of them that are its own
 * tokens': what leaves a rank is what its tokens make minus the latter, what enters it is what it
 * computes minus the latter.  An expert with one holder then costs nothing to account for. */
#include <string.h>

#include "reference/fssdp/fssdp.h"
#include "reference/plan/split.h"

void mp_calibrator_create(struct mp_arena *memory, const struct mp_setting *setting,
                          struct mp_calibrator *state) {
    size_t ranks = (size_t)setting->topology.ranks;

    *state = (struct mp_calibrator){.topology = setting->topology,
                                    .seconds_per_route = setting->seconds_per_route,
                                    .forward_only = setting->forward_only};
    if (setting->bandwidth > 0) {
        state->seconds_per_border = (double)setting->route_bytes / setting->bandwidth;
        state->seconds_per_copy = (double)setting->expert_bytes / setting->bandwidth;
    }
    MP_TAKE(memory, state->total, setting->experts);
    MP_TAKE_EACH(memory, ranks, state->row_total, state->computed, state->local, state->holder,
                 state->arrivals);
    MP_TAKE_EACH(memory, ranks + 1, state->share_node, state->share_all);
    mp_placement_take(memory, (int)ranks, setting->experts, &state->proposal);
}

/* Holders that routes are split over, and what is noted of the splits. */
struct split {
    int64_t *share; /* [candidates + 1], differences between neighbouring candidates' shares */
    int32_t candidates, start;
    uint64_t reciprocal; /* of candidates */
};

/* Notes `routes` as split over the candidates, which costs the same however many they are: an equal
 * share each, and one more for as many as remain from `start` on, cyclically. */
static inline void note_split(const struct split *split, uint32_t routes) {
    uint32_t each = mp_divide(routes, split->reciprocal);
    int32_t end = split->start + (int32_t)(routes - each * (uint32_t)split->candidates);
    bool wraps = end > split->candidates;

    split->share[0] += each + wraps;
    split->share[split->start]++;
    split->share[wraps ? end - split->candidates : end]--;
}

static inline void turn(struct split *split) {
    split->start = split->start + 1 < split->candidates ? split->start + 1 : 0;
}

/* Adds what note_split() noted to the holders' sums and clears the notes. */
static void settle(struct mp_calibrator *state, int64_t share[], const int32_t holder[],
                   int candidates, int sign) {
    int64_t routes = 0;

    for (int index = 0; index < candidates; index++) {
        routes += share[index];
        state->computed[holder[index]] += sign * routes;
        share[index] = 0;
    }
    share[candidates] = 0;
}

/* Accounts (sign 1) or takes back (sign -1) the routes of an expert with several holders. */
static void account_copies(struct mp_calibrator *state, const struct mp_load *load, int expert,
                           int holders, int sign) {
    const struct mp_topology *topology = &state->topology;
    struct split all = {state->share_all, holders, 0, mp_reciprocal(holders)};
    int begin = 0, end = 0;

    for (int node = 0; node < mp_topology_nodes(topology); node++) {
        int source = mp_topology_node_begin(topology, node), next = begin;
        int node_end = mp_topology_node_end(topology, node);
        while (end < holders && state->holder[end] < node_end)
            end++;
        struct split near = {state->share_node, end - begin, 0, mp_reciprocal(end - begin)};
        if (end > begin)
            near.start = source % (end - begin);
        for (; source < node_end; source++) {
            uint32_t routes = mp_load_at(load, source, expert);
            if (next < end && state->holder[next] == source) {
                state->computed[source] += sign * (int64_t)routes;
                state->local[source] += sign * (int64_t)routes;
                next++;
            } else {
                note_split(end > begin ? &near : &all, routes);
            }
            turn(&near);
            turn(&all);
        }
        settle(state, state->share_node, state->holder + begin, end - begin, sign);
        begin = end;
    }
    settle(state, state->share_all, state->holder, holders, sign);
}

static void account(struct mp_calibrator *state, const struct mp_placement *placement,
                    const struct mp_load *load, int expert, int sign) {
    const uint64_t *row = placement->holder + (long)expert * placement->words;
    int holders = 0;

    for (int word = 0; word < placement->words; word++)
        for (uint64_t bits = row[word]; bits; bits &= bits - 1)
            state->holder[holders++] = word * 64 + __builtin_ctzll(bits);
    if (holders > 1) {
        account_copies(state, load, expert, holders, sign);
    } else {
        int holder = state->holder[0];
        state->computed[holder] += sign * state->total[expert];
        state->local[holder] += sign * (int64_t)mp_load_at(load, holder, expert);
    }
}

/* The latency of the sums as they stand. */
static double latency(const struct mp_calibrator *state) {
    int64_t most_computed = 0, most_crossing = 0;

    for (int rank = 0; rank < state->topology.ranks; rank++) {
        int64_t sent = state->row_total[rank] - state->local[rank];
        int64_t received = state->computed[rank] - state->local[rank];
        int64_t crossing = sent > received ? sent : received;
        if (state->computed[rank] > most_computed)
            most_computed = state->computed[rank];
        if (crossing > most_crossing)
            most_crossing = crossing;
    }
    return mp_passes_of_compute(state->forward_only) * (double)most_computed *
               state->seconds_per_route +
           mp_passes_of_travel(state->forward_only) * (double)most_crossing *
               state->seconds_per_border;
}

double mp_calibrator_latency(struct mp_calibrator *state, const struct mp_placement *placement,
                             const struct mp_load *load) {
    mp_load_expert_totals(load, state->total);
    for (int rank = 0; rank < load->ranks; rank++) {
        const uint32_t *row = load->count + (long)rank * load->experts;
        int64_t routes = 0;
        for (int expert = 0; expert < load->experts; expert++)
            routes += row[expert];
        state->row_total[rank] = routes;
        state->computed[rank] = 0;
        state->local[rank] = 0;
    }
    for (int expert = 0; expert < load->experts; expert++)
        account(state, placement, load, expert, 1);
    return latency(state);
}

double mp_calibration_gain(struct mp_calibrator *state, struct mp_materializer *materializer,
                           const struct mp_placement *during, const struct mp_load *load,
                           int memory) {
    int most_arrivals = 0;

    double present = mp_calibrator_latency(state, during, load);
    mp_placement_copy(&state->proposal, during);
    mp_materialize(materializer, &state->proposal, state->total, memory);
    if (materializer->copies == 0)
        return 0;
    memset(state->arrivals, 0, (size_t)load->ranks * sizeof *state->arrivals);
    for (int index = 0; index < materializer->copies; index++) {
        struct mp_copy copy = materializer->copy[index];
        if (++state->arrivals[copy.rank] > most_arrivals)
            most_arrivals = state->arrivals[copy.rank];
        /* The copies of one expert follow each other. */
        if (index > 0 && materializer->copy[index - 1].expert == copy.expert)
            continue;
        account(state, during, load, copy.expert, -1);
        account(state, &state->proposal, load, copy.expert, 1);
    }
    return present - latency(state) - most_arrivals * state->seconds_per_copy;
}

bool mp_calibrate(struct mp_calibrator *state, struct mp_materializer *materializer,
                  const struct mp_placement *during, const struct mp_load *load, int memory) {
    return mp_calibration_gain(state, materializer, during, load, memory) > 0;
}

/* 1 2 3 4 6 8 12 16 24 ..: a wrong guess between two of them costs at most half as many copies
 * again. */
static int next_candidate(int candidate) {
    if (candidate < 4)
        return candidate + 1;
    return (candidate & (candidate - 1)) == 0 ? candidate + candidate / 2
                                              : candidate + candidate / 3;
}

/* A number of copies must save this share of the present latency more than a smaller one: the
 * latency model is not as exact as the last percent. */
static const double LEAST_SHARE = 0.02;

int mp_choose_overlap(struct mp_calibrator *state, struct mp_materializer *materializer,
                      const struct mp_placement *during, const struct mp_load *load, int memory) {
    int limit = materializer->overlap, best = 0;
    double most = 0, margin = LEAST_SHARE * mp_calibrator_latency(state, during, load);

    for (int candidate = 1; candidate <= limit;) {
        materializer->overlap = candidate;
        double gain = mp_calibration_gain(state, materializer, during, load, memory);
        if (gain > most + margin) {
            most = gain;
            best = candidate;
        }
        int next = next_candidate(candidate);
        candidate = next > limit && candidate < limit ? limit : next;
    }
    materializer->overlap = best;
    materializer->copies = 0;
    if (best > 0)
        mp_calibration_gain(state, materializer, during, load, memory);
    materializer->overlap = limit;
    return best;
}
