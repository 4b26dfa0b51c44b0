/* Spreading routes over slots.
 *
 * A source's routes to an expert fall into at most three sections of neighbouring slots that get
 * equally many each; all else is known before the loop over experts. */
#include <string.h>

#include "reference/plan/slots.h"
#include "reference/plan/split.h"

/* Where the parts of one pair are written. */
struct writer {
    const struct mp_slot_stretch *stretch;
    const struct mp_slot_group *groups; /* that stretch->group counts in */
    const struct mp_slot_group *group;  /* that position `at` lies in */
    const int32_t *group_of;            /* of a slot, in `groups` */
    int32_t at;                         /* the next slot, counted from the stretch's first */
    int32_t first_holder;               /* of the expert, in plan.holder */
    struct mp_dispatch_part *begin, *end;
};

static inline void write_part(struct writer *writer, int32_t holder, int32_t run, uint32_t count) {
    *writer->end++ = (struct mp_dispatch_part){holder, run, count};
}

/* Some of the slots of one holder, which has a part already if others of them have got routes. */
static void write_some(struct writer *writer, int32_t holder, uint32_t count) {
    if (writer->end > writer->begin && writer->end[-1].first == holder)
        writer->end[-1].count += count;
    else
        write_part(writer, holder, 1, count);
}

/* `each` routes to every slot up to position `stop` of a group with several slots on a rank. */
static void give_shared(struct writer *writer, int32_t group_begin, int32_t stop, uint32_t each) {
    int32_t per_rank = writer->group->each, at = writer->at;
    int32_t holder = writer->first_holder + writer->group->holder + (at - group_begin) / per_rank;
    int32_t inside = (at - group_begin) % per_rank;

    if (inside > 0) {
        int32_t rest = per_rank - inside < stop - at ? per_rank - inside : stop - at;
        write_some(writer, holder++, each * (uint32_t)rest);
        at += rest;
    }
    int32_t whole = (stop - at) / per_rank;
    if (whole > 0)
        write_part(writer, holder, whole, each * (uint32_t)per_rank);
    at += whole * per_rank;
    if (at < stop)
        write_some(writer, holder + whole, each * (uint32_t)(stop - at));
}

/* `each` routes to every slot from where the writer is up to position `end`. */
static inline void give(struct writer *writer, int32_t end, uint32_t each) {
    while (writer->at < end) {
        const struct mp_slot_group *group = writer->group;
        int32_t group_begin = group->slot - writer->stretch->slot;
        int32_t group_end = group_begin + group->holders * group->each;
        int32_t stop = end < group_end ? end : group_end;
        int32_t holder = writer->first_holder + group->holder;
        if (writer->at == group_begin && stop == group_end)
            write_part(writer, holder, group->holders, each * (uint32_t)group->each);
        else if (group->each == 1)
            write_part(writer, holder + writer->at - group_begin, stop - writer->at, each);
        else
            give_shared(writer, group_begin, stop, each);
        writer->at = stop;
        writer->group += stop == group_end;
    }
}

/* The same; where there is nothing to give, slots are left out. */
static inline void give_or_skip(struct writer *writer, int32_t end, uint32_t each) {
    if (each > 0) {
        give(writer, end, each);
    } else if (end > writer->at && end < writer->stretch->slots) {
        writer->group = &writer->groups[writer->group_of[writer->stretch->slot + end]];
        writer->at = end;
    }
}

/* The sections of a stretch: slots begin .. end - 1 get `middle` routes each, those on both sides
 * `outside`, one more or one less. */
struct sections {
    int32_t begin, end;
    uint32_t outside, middle;
};

static inline struct sections cut(const struct mp_slot_stretch *stretch, uint32_t routes) {
    uint32_t each = mp_divide(routes, stretch->reciprocal);
    int32_t end = stretch->start + (int32_t)(routes - each * (uint32_t)stretch->slots);
    bool wraps = end > stretch->slots;

    return (struct sections){wraps ? end - stretch->slots : stretch->start,
                             wraps ? stretch->start : end, each + wraps, each + !wraps};
}

static inline int32_t least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static inline int32_t most(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* Writes a part that counts only if `wanted`. */
static inline struct mp_dispatch_part *append(struct mp_dispatch_part *part, int32_t holder,
                                              int32_t run, uint32_t count, bool wanted) {
    *part = (struct mp_dispatch_part){holder, run, count};
    return part + wanted;
}

/* For a band with routes for every slot, without branches that can't be predicted: its first
 * holder; then holders outside, one that the sections meet in, holders in the middle, another that
 * they meet in, holders outside; and its last holder. */
static inline struct mp_dispatch_part *spread_over_band(const struct mp_slot_stretch *stretch,
                                                        const struct sections *sections,
                                                        int32_t holder,
                                                        struct mp_dispatch_part *part) {
    uint32_t step = sections->middle - sections->outside; /* 1 or -1, in unsigned arithmetic */
    int32_t head = stretch->head, tail = stretch->tail, per_rank = stretch->per_rank;
    int32_t tail_begin = stretch->slots - tail;
    int32_t begin = least(most(sections->begin, head), tail_begin) - head;
    int32_t end = least(most(sections->end, head), tail_begin) - head;
    int32_t first = (int32_t)mp_divide((uint32_t)begin, stretch->reciprocal_per_rank);
    int32_t last = (int32_t)mp_divide((uint32_t)end, stretch->reciprocal_per_rank);
    int32_t before = begin - first * per_rank, behind = end - last * per_rank;
    bool apart = first != last;
    bool meets = (apart & (before > 0)) | (!apart & (end > begin));
    bool meets_again = apart & (behind > 0);
    int32_t met = least(per_rank - before, end - begin);
    int32_t middle = first + meets, after = most(last + meets_again, middle);
    uint32_t outside = sections->outside * (uint32_t)per_rank;
    int32_t in_head = least(sections->end, head) - least(sections->begin, head);
    int32_t in_tail = most(sections->end, tail_begin) - most(sections->begin, tail_begin);

    part = append(part, holder, 1, sections->outside * (uint32_t)head + step * (uint32_t)in_head,
                  head > 0);
    holder += head > 0;
    part = append(part, holder, first, outside, first > 0);
    part = append(part, holder + first, 1, outside + step * (uint32_t)met, meets);
    part = append(part, holder + middle, last - middle, sections->middle * (uint32_t)per_rank,
                  last > middle);
    part = append(part, holder + last, 1, outside + step * (uint32_t)behind, meets_again);
    part = append(part, holder + after, stretch->body - after, outside, stretch->body > after);
    return append(part, holder + stretch->body, 1,
                  sections->outside * (uint32_t)tail + step * (uint32_t)in_tail, tail > 0);
}

/* For few holders: one after the other. */
static inline struct mp_dispatch_part *spread_over_few(const struct mp_slot_stretch *stretch,
                                                       const struct sections *sections,
                                                       int32_t holder,
                                                       struct mp_dispatch_part *part) {
    uint32_t step = sections->middle - sections->outside; /* 1 or -1, in unsigned arithmetic */
    int32_t slot = 0, reached = sections->begin;

    for (int32_t index = 0; index < stretch->holders; index++) {
        int32_t end = stretch->end[index];
        int32_t reaches = least(most(end, sections->begin), sections->end);
        uint32_t count =
            sections->outside * (uint32_t)(end - slot) + step * (uint32_t)(reaches - reached);
        part = append(part, holder + index, 1, count, count > 0);
        slot = end;
        reached = reaches;
    }
    return part;
}

/* For any groups: those that get nothing are passed over. */
static struct mp_dispatch_part *spread_over_many(const struct mp_slots *slots,
                                                 const struct mp_slot_stretch *stretch,
                                                 const struct sections *sections,
                                                 int32_t first_holder,
                                                 struct mp_dispatch_part *part) {
    struct writer writer = {.stretch = stretch,
                            .groups = stretch->of_node ? slots->node_group : slots->group,
                            .group_of = slots->group_of,
                            .first_holder = first_holder,
                            .begin = part,
                            .end = part};

    writer.group = &writer.groups[stretch->group];
    give_or_skip(&writer, sections->begin, sections->outside);
    give_or_skip(&writer, sections->end, sections->middle);
    give_or_skip(&writer, stretch->slots, sections->outside);
    return writer.end;
}

/* At most MP_FEW_HOLDERS. */
static bool find_few(const struct mp_slot_group groups[], int32_t count,
                     struct mp_slot_stretch *stretch) {
    int32_t holders = groups[count - 1].holder + groups[count - 1].holders - groups[0].holder;
    int32_t slot = 0, at = 0;

    if (holders > MP_FEW_HOLDERS)
        return false;
    for (int32_t index = 0; index < count; index++)
        for (int32_t holder = 0; holder < groups[index].holders; holder++)
            stretch->end[at++] = slot += groups[index].each;
    stretch->shape = MP_STRETCH_FEW;
    stretch->holders = holders;
    return true;
}

/* A band: holders with equally many slots each, and before and behind them at most one with another
 * number.  What slots in the order of experts always are. */
static void find_band(const struct mp_slot_group groups[], int32_t count,
                      struct mp_slot_stretch *stretch) {
    int32_t first = count > 1 && groups[0].holders == 1, last = first;

    if (count - first > 2 || (count - first == 2 && groups[first + 1].holders > 1))
        return;
    last += count - first == 2;
    stretch->shape = MP_STRETCH_BAND;
    stretch->head = first > 0 ? groups[0].each : 0;
    stretch->tail = last > first ? groups[last].each : 0;
    stretch->body = groups[first].holders;
    stretch->per_rank = groups[first].each;
    stretch->reciprocal_per_rank = mp_reciprocal(groups[first].each);
}

static struct mp_slot_stretch stretch_of(const struct mp_slot_group groups[], int32_t first,
                                         int32_t last, bool of_node) {
    struct mp_slot_stretch stretch = {.slot = groups[first].slot,
                                      .group = first,
                                      .holder = groups[first].holder,
                                      .of_node = of_node};

    for (int32_t index = first; index < last; index++)
        stretch.slots += groups[index].holders * groups[index].each;
    stretch.reciprocal = mp_reciprocal(stretch.slots);
    if (last - first == 1 && groups[first].holders == 1)
        stretch.shape = MP_STRETCH_RANK;
    else if (last - first == 1 && groups[first].each == 1)
        stretch.shape = MP_STRETCH_PLAIN;
    else if (!find_few(groups + first, last - first, &stretch))
        find_band(groups + first, last - first, &stretch);
    return stretch;
}

static void open_stretches(struct mp_slots *slots) {
    for (int expert = 0; expert < slots->experts; expert++)
        slots->stretch[expert] = stretch_of(slots->group, slots->group_begin[expert],
                                            slots->group_begin[expert + 1], false);
}

/* Every expert's stretch becomes its slots of the node that ends before rank `node_end`, or all of
 * them if it has none there; slots->next[e] is its first group that no earlier node has. */
static void enter_node(struct mp_slots *slots, int node_end) {
    for (int expert = 0; expert < slots->experts; expert++) {
        int32_t first = slots->next[expert], last = first,
                end = slots->node_group_begin[expert + 1];
        while (last < end && slots->rank[slots->node_group[last].slot] < node_end)
            last++;
        slots->next[expert] = last;
        if (last > first)
            slots->stretch[expert] = stretch_of(slots->node_group, first, last, true);
        else if (slots->stretch[expert].of_node)
            slots->stretch[expert] = stretch_of(slots->group, slots->group_begin[expert],
                                                slots->group_begin[expert + 1], false);
    }
}

/* Routes of a source that the expert's capacity still has room for. */
static uint32_t in_capacity(struct mp_slots *slots, const struct mp_plan *plan, int expert,
                            uint32_t routes) {
    int64_t room = plan->capacity[expert] - slots->turn[expert];

    if (plan->capacity[expert] >= 0 && room < (int64_t)routes)
        routes = room > 0 ? (uint32_t)room : 0;
    slots->turn[expert] += routes;
    return routes;
}

/* Where the next source starts. */
static inline void turn(struct mp_slot_stretch *stretch, enum mp_spread spread, uint32_t routes) {
    if (spread == MP_SPREAD_NODE)
        return;
    uint32_t each = mp_divide(routes, stretch->reciprocal);
    uint32_t steps = spread == MP_SPREAD_TURN ? routes - each * (uint32_t)stretch->slots : 1;
    stretch->start += (int32_t)steps;
    if (stretch->start >= stretch->slots)
        stretch->start -= stretch->slots;
}

/* The parts of one source, appended at `part`; returns their end. */
static struct mp_dispatch_part *dispatch_source(struct mp_plan *plan, const struct mp_load *load,
                                                struct mp_slots *slots, enum mp_spread spread,
                                                int source, struct mp_dispatch_part *part) {
    const uint32_t *row = load->count + (long)source * load->experts;
    int64_t *row_end = plan->part_begin + (int64_t)source * load->experts + 1;

    for (int expert = 0; expert < load->experts; expert++) {
        struct mp_slot_stretch *stretch = &slots->stretch[expert];
        int32_t holder = plan->holder_begin[expert] + stretch->holder;
        uint32_t routes = row[expert];
        if (spread == MP_SPREAD_TURN)
            routes = in_capacity(slots, plan, expert, routes);
        if (stretch->shape == MP_STRETCH_RANK) {
            *part = (struct mp_dispatch_part){holder, 1, routes};
            part += routes > 0;
        } else if (stretch->shape == MP_STRETCH_PLAIN) {
            part =
                mp_split(part, holder, stretch->slots, stretch->reciprocal, stretch->start, routes);
        } else if (routes > 0) {
            struct sections sections = cut(stretch, routes);
            bool everywhere = routes >= (uint32_t)stretch->slots;
            if (stretch->shape == MP_STRETCH_FEW)
                part = spread_over_few(stretch, &sections, holder, part);
            else if (stretch->shape == MP_STRETCH_BAND && everywhere)
                part = spread_over_band(stretch, &sections, holder, part);
            else
                part =
                    spread_over_many(slots, stretch, &sections, plan->holder_begin[expert], part);
        }
        turn(stretch, spread, routes);
        row_end[expert] = part - plan->part;
    }
    return part;
}

/* The ranks with a slot of an expert are its holders. */
static int check_holders(const struct mp_plan *plan, const struct mp_slots *slots,
                         struct mp_error *error) {
    for (int expert = 0; expert < slots->experts; expert++) {
        int32_t at = plan->holder_begin[expert], end = plan->holder_begin[expert + 1];
        bool same = slots->begin[expert] < slots->begin[expert + 1];
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

/* Most parts of a source: one per group; each of the two places where sections meet takes a holder
 * out of its group, and leaves groups on both sides of it.  Seven of a band are written before it
 * is known how many of them are wanted. */
static int64_t parts_limit(const struct mp_slots *slots) {
    return (int64_t)slots->ranks * slots->per_rank + 4 * (int64_t)slots->experts + 7;
}

int mp_plan_dispatch_slots(struct mp_plan *plan, const struct mp_load *load, struct mp_slots *slots,
                           enum mp_spread spread, struct mp_error *error) {
    const struct mp_topology *topology = &plan->topology;
    int64_t end = 0;

    MP_TRY(mp_plan_dispatch_begin(plan, error));
    MP_TRY(check_holders(plan, slots, error));
    open_stretches(slots);
    memset(slots->turn, 0, (size_t)slots->experts * sizeof *slots->turn);
    memcpy(slots->next, slots->node_group_begin, (size_t)slots->experts * sizeof *slots->next);
    for (int source = 0; source < load->ranks; source++) {
        MP_TRY(mp_plan_reserve_parts(plan, end + parts_limit(slots), error));
        if (spread == MP_SPREAD_NODE && source % topology->ranks_per_node == 0)
            enter_node(slots, mp_topology_node_end(topology, mp_topology_node(topology, source)));
        end = dispatch_source(plan, load, slots, spread, source, plan->part + end) - plan->part;
    }
    plan->pair = (int64_t)load->ranks * load->experts;
    return MP_OK;
}
