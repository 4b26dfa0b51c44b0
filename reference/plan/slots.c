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
 * slots from `slot` on, of which the one at position `start` is first to get one more. */
struct stretch {
    int32_t first, last, slot, slots;
    int32_t start;
};

/* Equal shares in up to three sections: slots below end[i] that are in no earlier one get
 * routes[i] each. */
enum { SECTIONS = 3 };
struct shares {
    int32_t end[SECTIONS];
    uint32_t routes[SECTIONS];
    int section;  /* where the next slot lies, unless it is at its end */
    int32_t next; /* the first slot behind those that get one more, mod slots */
};

/* Every slot gets the quotient, and as many from `start` on (mod slots) as remain one more. */
static struct shares share(const struct stretch *stretch, uint32_t routes) {
    uint32_t each = routes / (uint32_t)stretch->slots;
    int32_t start = stretch->start;
    int32_t end = start + (int32_t)(routes - each * (uint32_t)stretch->slots);

    if (end <= stretch->slots)
        return (struct shares){{start, end, stretch->slots},
                               {each, each + 1, each},
                               0,
                               end < stretch->slots ? end : 0};
    end -= stretch->slots;
    return (struct shares){{end, start, stretch->slots}, {each + 1, each, each + 1}, 0, end};
}

/* Routes of one holder, whose slots are those at positions at .. end - 1. */
static uint32_t routes_of(struct shares *shares, int32_t at, int32_t end) {
    uint32_t routes = 0;

    while (at < end) {
        int32_t stop = shares->end[shares->section];
        if (stop <= at) {
            shares->section++;
            continue;
        }
        stop = stop < end ? stop : end;
        routes += shares->routes[shares->section] * (uint32_t)(stop - at);
        at = stop;
    }
    return routes;
}

static int give_group(struct mp_plan *plan, struct shares *shares,
                      const struct mp_slot_group *group, int32_t at, int32_t holder,
                      struct mp_error *error) {
    int32_t each = group->each, end = at + group->holders * each;
    int code = MP_OK;

    while (at < end && !code) {
        int32_t stop = shares->end[shares->section], run = 1;
        uint32_t routes;
        if (stop <= at) {
            shares->section++;
            continue;
        }
        stop = stop < end ? stop : end;
        if (stop - at < each) {
            routes = routes_of(shares, at, at + each);
        } else {
            /* A division takes longer than all the rest. */
            run = each == 1 ? stop - at : each == 2 ? (stop - at) >> 1 : (stop - at) / each;
            routes = shares->routes[shares->section] * (uint32_t)each;
        }
        if (routes > 0)
            code = mp_plan_dispatch_run(plan, holder, run, routes, error);
        holder += run;
        at += run * each;
    }
    return code;
}

static int give(struct mp_plan *plan, const struct mp_slots *slots, int expert,
                const struct stretch *stretch, struct shares *shares, struct mp_error *error) {
    int32_t first_holder = plan->holder_begin[expert];
    int code = MP_OK;

    for (int32_t index = stretch->first; index < stretch->last && !code; index++) {
        const struct mp_slot_group *group = &slots->group[index];
        code = give_group(plan, shares, group, group->slot - stretch->slot,
                          first_holder + group->holder, error);
    }
    return code;
}

static struct stretch all_slots(const struct mp_slots *slots, int expert, int32_t start) {
    return (struct stretch){.first = slots->group_begin[expert],
                            .last = slots->group_begin[expert + 1],
                            .slot = slots->begin[expert],
                            .slots = mp_slots_of(slots, expert),
                            .start = start};
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

/* Routes of a source that the expert's capacity still has room for. */
static uint32_t in_turn(struct mp_slots *slots, const struct mp_plan *plan, int expert,
                        uint32_t routes) {
    int64_t room = plan->capacity[expert] - slots->turn[expert];

    if (plan->capacity[expert] >= 0 && room < (int64_t)routes)
        routes = room > 0 ? (uint32_t)room : 0;
    slots->turn[expert] += routes;
    return routes;
}

/* Spreads routes over all slots; the one whose turn it is, slots->next[expert], comes first. */
static int give_in_turn(struct mp_plan *plan, struct mp_slots *slots, int expert, uint32_t routes,
                        struct mp_error *error) {
    struct stretch stretch = all_slots(slots, expert, slots->next[expert]);
    struct shares shares = share(&stretch, routes);

    slots->next[expert] = shares.next;
    return give(plan, slots, expert, &stretch, &shares, error);
}

static int give_by_source(struct mp_plan *plan, const struct mp_slots *slots, int expert,
                          int source, uint32_t routes, enum mp_spread spread,
                          struct mp_error *error) {
    const struct mp_topology *topology = &plan->topology;
    struct stretch stretch =
        spread == MP_SPREAD_NODE
            ? node_slots(slots, expert,
                         mp_topology_node_end(topology, mp_topology_node(topology, source)))
            : all_slots(slots, expert, source % mp_slots_of(slots, expert));
    struct shares shares = share(&stretch, routes);

    return give(plan, slots, expert, &stretch, &shares, error);
}

static int dispatch_source(struct mp_plan *plan, const struct mp_load *load, struct mp_slots *slots,
                           enum mp_spread spread, int source, struct mp_error *error) {
    const struct mp_topology *topology = &plan->topology;
    int node_end = mp_topology_node_end(topology, mp_topology_node(topology, source));
    const uint32_t *row = load->count + (long)source * load->experts;
    int code = MP_OK;

    for (int expert = 0; expert < load->experts && !code; expert++) {
        uint32_t routes = row[expert];
        if (spread == MP_SPREAD_TURN)
            routes = in_turn(slots, plan, expert, routes);
        if (routes > 0 && spread == MP_SPREAD_TURN)
            code = give_in_turn(plan, slots, expert, routes, error);
        else if (routes > 0)
            code = give_by_source(plan, slots, expert, source, routes, spread, error);
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
    if (spread == MP_SPREAD_TURN)
        memset(slots->next, 0, (size_t)slots->experts * sizeof *slots->next);
    memset(slots->turn, 0, (size_t)slots->experts * sizeof *slots->turn);
    for (int source = 0; source < load->ranks && !code; source++)
        code = dispatch_source(plan, load, slots, spread, source, error);
    return code;
}
