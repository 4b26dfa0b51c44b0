/* Slots, and spreading routes over them. */
#include "reference/plan/slots.h"

#include <stdlib.h>
#include <string.h>

int mp_slots_create(int ranks, int experts, int per_rank, struct mp_slots *slots,
                    struct mp_error *error) {
    *slots = (struct mp_slots){.ranks = ranks, .experts = experts, .per_rank = per_rank};
    if (ranks < 1 || experts < 1 || per_rank < 1 || per_rank > INT32_MAX / ranks)
        return mp_fail(error, MP_EINVAL, "no slots: %d on each of %d ranks, for %d experts",
                       per_rank, ranks, experts);
    size_t all = (size_t)ranks * (size_t)per_rank, e = (size_t)experts;
    slots->expert = malloc(all * sizeof *slots->expert);
    slots->begin = calloc(e + 1, sizeof *slots->begin);
    slots->rank = malloc(all * sizeof *slots->rank);
    slots->group_begin = calloc(e + 1, sizeof *slots->group_begin);
    slots->group = malloc(all * sizeof *slots->group);
    slots->next = malloc((e + 1) * sizeof *slots->next);
    slots->turn = malloc(e * sizeof *slots->turn);
    if (!slots->expert || !slots->begin || !slots->rank || !slots->group_begin || !slots->group ||
        !slots->next || !slots->turn) {
        mp_slots_destroy(slots);
        return mp_fail(error, MP_ENOMEM, "no memory for %zu slots", all);
    }
    for (size_t index = 0; index < all; index++)
        slots->expert[index] = -1;
    return MP_OK;
}

void mp_slots_destroy(struct mp_slots *slots) {
    if (!slots)
        return;
    free(slots->expert);
    free(slots->begin);
    free(slots->rank);
    free(slots->group_begin);
    free(slots->group);
    free(slots->next);
    free(slots->turn);
    *slots = (struct mp_slots){0};
}

/* The groups of one expert from its slots; returns the end of all groups. */
static int32_t group_expert(struct mp_slots *slots, int expert, int ranks_per_node, int32_t end) {
    int32_t first = end, holders = 0;

    for (int32_t slot = slots->begin[expert]; slot < slots->begin[expert + 1];) {
        int32_t rank = slots->rank[slot], each = 1;
        while (slot + each < slots->begin[expert + 1] && slots->rank[slot + each] == rank)
            each++;
        bool begins =
            end == first || slots->group[end - 1].each != each ||
            (ranks_per_node > 0 && rank / ranks_per_node != slots->rank[slot - 1] / ranks_per_node);
        if (begins)
            slots->group[end++] = (struct mp_slot_group){slot, holders, 0, each};
        slots->group[end - 1].holders++;
        holders++;
        slot += each;
    }
    return end;
}

void mp_slots_index(struct mp_slots *slots, int ranks_per_node) {
    int32_t all = slots->ranks * slots->per_rank, end = 0;

    memset(slots->begin, 0, ((size_t)slots->experts + 1) * sizeof *slots->begin);
    for (int32_t index = 0; index < all; index++)
        if (slots->expert[index] >= 0)
            slots->begin[slots->expert[index] + 1]++;
    for (int expert = 0; expert < slots->experts; expert++)
        slots->begin[expert + 1] += slots->begin[expert];
    memcpy(slots->next, slots->begin, (size_t)slots->experts * sizeof *slots->next);
    for (int32_t index = 0; index < all; index++)
        if (slots->expert[index] >= 0)
            slots->rank[slots->next[slots->expert[index]]++] = index / slots->per_rank;
    for (int expert = 0; expert < slots->experts; expert++) {
        slots->group_begin[expert] = end;
        end = group_expert(slots, expert, ranks_per_node, end);
    }
    slots->group_begin[slots->experts] = end;
}

int mp_slots_homes(const struct mp_slots *slots, struct mp_placement *home,
                   struct mp_error *error) {
    memset(home->holder, 0, (size_t)home->experts * (size_t)home->words * sizeof *home->holder);
    for (int expert = 0; expert < slots->experts; expert++) {
        int32_t begin = slots->begin[expert], end = slots->begin[expert + 1];
        if (begin == end)
            return mp_fail(error, MP_EPLAN, "expert %d has none of %d slots", expert,
                           slots->ranks * slots->per_rank);
        for (int32_t slot = begin; slot < end; slot++)
            mp_placement_add(home, expert, slots->rank[slot]);
        if (!mp_placement_holds(home, expert, home->owner[expert]))
            home->owner[expert] = slots->rank[begin];
    }
    return MP_OK;
}

/* A stretch of slots that routes are spread over: groups first .. last - 1 of an expert, `slots`
 * slots from `slot` on.  Every slot gets `each`, and those at positions start .. start + more - 1
 * (mod slots) one more. */
struct stretch {
    int32_t first, last, slot, slots;
    uint32_t each;
    int32_t start, more;
};

/* Where the next change between "one more" and "none" lies behind position `at`, and which of them
 * holds at `at`. */
static int32_t next_change(const struct stretch *stretch, int32_t at, uint32_t *extra) {
    int32_t end = stretch->start + stretch->more, wrapped = end - stretch->slots;

    *extra = 1;
    if (at < wrapped)
        return wrapped;
    if (at >= stretch->start && at < end)
        return end < stretch->slots ? end : stretch->slots;
    *extra = 0;
    return at < stretch->start ? stretch->start : stretch->slots;
}

/* Routes of the `slots` slots from position `at` on, which a change may lie between. */
static uint32_t routes_of(const struct stretch *stretch, int32_t at, int32_t slots) {
    uint32_t routes = stretch->each * (uint32_t)slots, extra;

    for (int32_t end = at + slots; at < end;) {
        int32_t change = next_change(stretch, at, &extra);
        if (change > end)
            change = end;
        routes += extra * (uint32_t)(change - at);
        at = change;
    }
    return routes;
}

static int give_group(struct mp_plan *plan, const struct stretch *stretch,
                      const struct mp_slot_group *group, int32_t first_holder,
                      struct mp_error *error) {
    int32_t at = group->slot - stretch->slot, end = at + group->holders * group->each;
    int32_t holder = first_holder + group->holder;
    int code = MP_OK;

    while (at < end && !code) {
        uint32_t extra;
        int32_t change = next_change(stretch, at, &extra);
        int32_t run = ((change < end ? change : end) - at) / group->each;
        if (run == 0) {
            run = 1;
            code =
                mp_plan_dispatch_run(plan, holder, 1, routes_of(stretch, at, group->each), error);
        } else {
            code = mp_plan_dispatch_run(plan, holder, run,
                                        (stretch->each + extra) * (uint32_t)group->each, error);
        }
        holder += run;
        at += run * group->each;
    }
    return code;
}

static int give(struct mp_plan *plan, const struct mp_slots *slots, int expert, uint32_t routes,
                struct stretch stretch, struct mp_error *error) {
    stretch.each = routes / (uint32_t)stretch.slots;
    stretch.more = (int32_t)(routes % (uint32_t)stretch.slots);
    int code = MP_OK;
    for (int32_t group = stretch.first; group < stretch.last && !code; group++)
        code = give_group(plan, &stretch, &slots->group[group], plan->holder_begin[expert], error);
    return code;
}

static struct stretch all_slots(const struct mp_slots *slots, int expert, int64_t start) {
    int32_t n = mp_slots_of(slots, expert);
    return (struct stretch){.first = slots->group_begin[expert],
                            .last = slots->group_begin[expert + 1],
                            .slot = slots->begin[expert],
                            .slots = n,
                            .start = (int32_t)(start % n)};
}

/* The slots of the node that ends before rank `node_end`, or all if it has none; slots->next[e] is
 * the expert's first group that no earlier node has. */
static struct stretch node_slots(const struct mp_slots *slots, int expert, int node_end) {
    struct stretch stretch = {.first = slots->next[expert], .last = slots->next[expert]};

    while (stretch.last < slots->group_begin[expert + 1] &&
           slots->rank[slots->group[stretch.last].slot] < node_end) {
        const struct mp_slot_group *group = &slots->group[stretch.last++];
        stretch.slots += group->holders * group->each;
    }
    if (stretch.slots == 0)
        return all_slots(slots, expert, 0);
    stretch.slot = slots->group[stretch.first].slot;
    return stretch;
}

/* Leaves the groups of a node behind. */
static void leave_node(struct mp_slots *slots, int node_end) {
    for (int expert = 0; expert < slots->experts; expert++)
        while (slots->next[expert] < slots->group_begin[expert + 1] &&
               slots->rank[slots->group[slots->next[expert]].slot] < node_end)
            slots->next[expert]++;
}

/* Routes of a source that the expert's capacity still has room for, and whose turn comes first. */
static uint32_t in_turn(struct mp_slots *slots, const struct mp_plan *plan, int expert,
                        uint32_t routes, int64_t *turn) {
    int64_t room =
        plan->capacity[expert] < 0 ? routes : plan->capacity[expert] - slots->turn[expert];

    *turn = slots->turn[expert];
    if (room < (int64_t)routes)
        routes = room > 0 ? (uint32_t)room : 0;
    slots->turn[expert] += routes;
    return routes;
}

static int dispatch_source(struct mp_plan *plan, const struct mp_load *load, struct mp_slots *slots,
                           enum mp_spread spread, int source, struct mp_error *error) {
    const struct mp_topology *topology = &plan->topology;
    int node_end = mp_topology_node_end(topology, mp_topology_node(topology, source));
    const uint32_t *row = load->count + (long)source * load->experts;
    int code = MP_OK;

    for (int expert = 0; expert < load->experts && !code; expert++) {
        uint32_t routes = row[expert];
        struct stretch stretch = {0};
        int64_t turn = source;
        if (spread == MP_SPREAD_TURN)
            routes = in_turn(slots, plan, expert, routes, &turn);
        if (routes > 0 && spread == MP_SPREAD_NODE)
            stretch = node_slots(slots, expert, node_end);
        else if (routes > 0)
            stretch = all_slots(slots, expert, turn);
        if (routes > 0)
            code = give(plan, slots, expert, routes, stretch, error);
        mp_plan_dispatch_end_pair(plan);
    }
    if (spread == MP_SPREAD_NODE && source + 1 == node_end)
        leave_node(slots, node_end);
    return code;
}

/* Groups count holders as the plan lists them. */
static int check_holders(const struct mp_plan *plan, const struct mp_slots *slots,
                         struct mp_error *error) {
    for (int expert = 0; expert < slots->experts; expert++) {
        int32_t at = plan->holder_begin[expert], end = plan->holder_begin[expert + 1];
        bool same = true;
        for (int32_t slot = slots->begin[expert]; slot < slots->begin[expert + 1] && same; slot++)
            if (slot == slots->begin[expert] || slots->rank[slot] != slots->rank[slot - 1])
                same = at < end && plan->holder[at++] == slots->rank[slot];
        if (!same || at != end)
            return mp_fail(error, MP_EPLAN,
                           "iteration %lld, layer %d: the holders of expert %d are not the ranks "
                           "with a slot of it",
                           (long long)plan->iteration, plan->layer, expert);
    }
    return MP_OK;
}

int mp_plan_dispatch_slots(struct mp_plan *plan, const struct mp_load *load, struct mp_slots *slots,
                           enum mp_spread spread, struct mp_error *error) {
    int code = mp_plan_dispatch_begin(plan, error);
    if (!code)
        code = check_holders(plan, slots, error);
    if (spread == MP_SPREAD_NODE)
        memcpy(slots->next, slots->group_begin, (size_t)slots->experts * sizeof *slots->next);
    memset(slots->turn, 0, (size_t)slots->experts * sizeof *slots->turn);
    for (int source = 0; source < load->ranks && !code; source++)
        code = dispatch_source(plan, load, slots, spread, source, error);
    return code;
}
