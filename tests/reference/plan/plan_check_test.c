/* The law accepts every legal plan and names every way of breaking it. */
#include "tests/reference/plan/plan_support.h"

static uint64_t random_state;

static int below(int count) {
    return test_random_int(&random_state, 0, count - 1);
}

TEST(accepts_random_legal_plans) {
    for (int round = 0; round < 300; round++) {
        AUTO(example) struct example example;
        enum mp_plan_violation violation = MP_PLAN_VIOLATIONS;
        if (round % 3 == 0)
            random_example(&random_state, round % 2, &example);
        else
            random_kind_of_example(&random_state, round % 2, &example);
        assert_works(mp_plan_check(&example.plan, &example.load, &example.law, &violation, &error));
        assert_int_equal(violation, MP_PLAN_LEGAL);
        assert_works(mp_plan_check(&example.plan, NULL, &example.law, NULL, &error));
    }
}

/* Each breaks a legal plan in one way, or returns false if this plan offers no place for it. */
static bool (*breaks[MP_PLAN_VIOLATIONS])(struct example *example);
#define BREAKS(violation)                                                                          \
    static bool break_##violation(struct example *example);                                        \
    __attribute__((constructor)) static void add_##violation(void) {                               \
        breaks[violation] = break_##violation;                                                     \
    }                                                                                              \
    static bool break_##violation(struct example *example)

static int some_rank_without(const struct mp_plan *plan, int expert) {
    int ranks = plan->topology.ranks, start = below(ranks);
    for (int step = 0; step < ranks; step++)
        if (!mp_placement_holds(&plan->during, expert, (start + step) % ranks))
            return (start + step) % ranks;
    return -1;
}

static struct mp_transfer *some(struct mp_transfers *list) {
    return list->count ? &list->item[below(list->count)] : NULL;
}

static bool append(struct mp_transfers *list, struct mp_transfer transfer) {
    assert_works(mp_transfers_add(list, transfer, &error));
    return true;
}

static bool drop_one(struct mp_transfers *list) {
    if (list->count == 0)
        return false;
    *some(list) = list->item[list->count - 1];
    list->count--;
    return true;
}

/* A copy or the sum of a gradient, by the plan's sizes. */
static struct mp_transfer transfer_of(const struct mp_plan *plan, int expert, int from, int to,
                                      enum mp_stage stage) {
    return (struct mp_transfer){.layer = plan->layer,
                                .expert = expert,
                                .from = from,
                                .to = to,
                                .bytes = stage == MP_STAGE_BACKWARD_REDUCE ? plan->gradient_bytes
                                                                           : plan->expert_bytes,
                                .stage = stage};
}

BREAKS(MP_PLAN_SHAPE) {
    switch (below(4)) {
    case 0:
        example->load.experts++;
        return true;
    case 1:
        example->load.ranks++;
        return true;
    case 2:
        example->plan.part_begin[1] = -1;
        return true;
    default:
        example->plan.pair = (int64_t)example->plan.topology.ranks * example->plan.experts - 1;
        return example->plan.pair > 0;
    }
}

BREAKS(MP_PLAN_OWNER_OUT_OF_RANGE) {
    int expert = below(example->plan.experts);
    struct mp_placement *placement = below(2) ? &example->plan.before : &example->plan.during;
    placement->owner[expert] = below(2) ? -1 : example->plan.topology.ranks;
    return true;
}

BREAKS(MP_PLAN_OWNER_NOT_HOLDER) {
    int expert = below(example->plan.experts), owner = example->plan.before.owner[expert];
    mp_placement_remove(&example->plan.before, expert, owner);
    if (below(2))
        mp_placement_remove(&example->plan.during, expert, owner);
    return true;
}

BREAKS(MP_PLAN_OWNER_CHANGED) {
    struct mp_transfer *reduce = some(&example->plan.reduce);
    if (reduce)
        example->plan.during.owner[reduce->expert] = reduce->from;
    return reduce;
}

BREAKS(MP_PLAN_HOLDER_LOST) {
    int expert = below(example->plan.experts), rank = some_rank_without(&example->plan, expert);
    if (rank >= 0)
        mp_placement_add(&example->plan.before, expert, rank);
    return rank >= 0;
}

BREAKS(MP_PLAN_HOLDER_OUT_OF_RANGE) {
    int ranks = example->plan.topology.ranks, words = example->plan.during.words;
    if (ranks % 64 == 0)
        return false;
    mp_placement_add(&example->plan.during, below(example->plan.experts),
                     test_random_int(&random_state, ranks, words * 64 - 1));
    return true;
}

/* Kept where no optimizer updates it. */
BREAKS(MP_PLAN_OWNER_ACCOMPANIED) {
    struct mp_plan *plan = &example->plan;
    int expert = below(plan->experts), rank = some_rank_without(plan, expert);
    if (rank < 0 || plan->policy->optimizer != MP_OPTIMIZER_OWNER)
        return false;
    mp_placement_add(&plan->before, expert, rank);
    mp_placement_add(&plan->during, expert, rank);
    return true;
}

BREAKS(MP_PLAN_HOLDER_UNFED) {
    return drop_one(&example->plan.fetch);
}

BREAKS(MP_PLAN_FETCH_FROM_NON_HOLDER) {
    struct mp_transfer *fetch = some(&example->plan.fetch);
    if (!fetch)
        return false;
    switch (below(4)) {
    case 0: /* from itself, which does not have it yet */
        fetch->from = fetch->to;
        return true;
    case 3: /* from who gets it in the same stage, or later */
        for (int i = 0; i < example->plan.fetch.count; i++) {
            const struct mp_transfer *other = &example->plan.fetch.item[i];
            if (other == fetch || other->expert != fetch->expert ||
                (other->stage == MP_STAGE_BEFORE_GATE && fetch->stage != MP_STAGE_BEFORE_GATE))
                continue;
            fetch->from = other->to;
            return true;
        }
        return false;
    case 1:
        fetch->from = example->plan.topology.ranks;
        return true;
    default:
        fetch->from = some_rank_without(&example->plan, fetch->expert);
        return fetch->from >= 0;
    }
}

BREAKS(MP_PLAN_FETCH_TO_NON_HOLDER) {
    struct mp_plan *plan = &example->plan;
    int expert = below(plan->experts), rank = some_rank_without(plan, expert);
    return rank >= 0 && append(&plan->fetch, transfer_of(plan, expert, plan->during.owner[expert],
                                                         rank, MP_STAGE_AFTER_GATE));
}

BREAKS(MP_PLAN_FETCH_TWICE) {
    struct mp_transfer *fetch = some(&example->plan.fetch);
    return fetch && append(&example->plan.fetch, *fetch);
}

BREAKS(MP_PLAN_REDUCE_MISSING) {
    return drop_one(&example->plan.reduce);
}

BREAKS(MP_PLAN_REDUCE_TWICE) {
    struct mp_transfer *reduce = some(&example->plan.reduce);
    return reduce && append(&example->plan.reduce, *reduce);
}

BREAKS(MP_PLAN_REDUCE_NOT_TO_OWNER) {
    struct mp_transfer *reduce = some(&example->plan.reduce);
    if (reduce)
        reduce->to = below(2) ? reduce->from : example->plan.topology.ranks;
    return reduce;
}

BREAKS(MP_PLAN_REDUCE_FROM_NON_HOLDER) {
    struct mp_plan *plan = &example->plan;
    int expert = below(plan->experts), owner = plan->during.owner[expert];
    int rank = below(2) ? owner : some_rank_without(plan, expert);
    return rank >= 0 &&
           append(&plan->reduce, transfer_of(plan, expert, rank, owner, MP_STAGE_BACKWARD_REDUCE));
}

BREAKS(MP_PLAN_SHARE_WRONG) {
    struct mp_plan *plan = &example->plan;
    struct mp_transfer *share = some(&plan->share);
    int expert = below(plan->experts), owner = plan->before.owner[expert];
    struct mp_transfer other = transfer_of(plan, expert, owner, owner, MP_STAGE_BACKWARD_REDUCE);

    switch (below(6)) {
    case 0:
        return drop_one(&plan->share);
    case 1:
        return share && append(&plan->share, *share);
    case 2: /* another sum than the owner's */
        if (share)
            share->from = share->to;
        return share;
    case 3: /* to one that keeps nothing */
        other.to = some_rank_without(plan, expert);
        return other.to >= 0 && append(&plan->share, other);
    case 4: /* to the owner itself */
        return append(&plan->share, other);
    default: /* to a copy of this iteration */
        if (plan->fetch.count == 0)
            return false;
        other = *some(&plan->fetch);
        other.stage = MP_STAGE_BACKWARD_REDUCE;
        return append(&plan->share, other);
    }
}

/* One replica more than the other experts have, with whatever a replica needs. */
static bool add_replica(struct mp_plan *plan, int expert, int rank) {
    int owner = plan->during.owner[expert];
    struct mp_transfer transfer = transfer_of(plan, expert, rank, owner, MP_STAGE_BACKWARD_REDUCE);

    if (plan->policy->optimizer < MP_OPTIMIZER_REPLICA_SLICES || plan->experts < 2 || rank < 0)
        return false;
    mp_placement_add(&plan->before, expert, rank);
    mp_placement_add(&plan->during, expert, rank);
    if (plan->policy->optimizer == MP_OPTIMIZER_REPLICA_SLICES)
        return true;
    append(&plan->reduce, transfer);
    transfer.from = owner;
    transfer.to = rank;
    return append(&plan->share, transfer);
}

BREAKS(MP_PLAN_SLICES) {
    struct mp_plan *plan = &example->plan;
    int expert = below(plan->experts), owner = plan->during.owner[expert];
    int rank = below(2) ? some_rank_without(plan, expert)
                        : mp_placement_next(&plan->during, expert, owner + 1);
    struct mp_transfer fetch = transfer_of(plan, expert, owner, rank, MP_STAGE_AFTER_GATE);
    struct mp_transfer reduce = transfer_of(plan, expert, rank, owner, MP_STAGE_BACKWARD_REDUCE);

    if (!mp_optimizer_sliced(plan->policy->optimizer))
        return false;
    if (below(3) == 0)
        return add_replica(plan, expert, some_rank_without(plan, expert));
    if (below(3) == 0) {
        example->policy.gather_ahead = below(2) ? -1 : plan->policy->gather_before_gate ? 4 : 1;
        return true;
    }
    if (rank < 0)
        return false;
    if (mp_placement_holds(&plan->during, expert, rank)) /* sums where nobody sums */
        return plan->reduce.count == 0 && plan->policy->optimizer != MP_OPTIMIZER_SLICES_OF_SUM &&
               plan->policy->optimizer != MP_OPTIMIZER_REPLICA_SLICES_OF_SUM &&
               append(&plan->reduce, reduce);
    mp_placement_add(&plan->during, expert, rank); /* a copy of what nobody has whole */
    if (plan->policy->optimizer == MP_OPTIMIZER_SLICES_OF_SUM ||
        plan->policy->optimizer == MP_OPTIMIZER_REPLICA_SLICES_OF_SUM)
        append(&plan->reduce, reduce);
    return append(&plan->fetch, fetch);
}

BREAKS(MP_PLAN_WRONG_STAGE) {
    struct mp_transfer *fetch = some(&example->plan.fetch), *reduce = some(&example->plan.reduce);
    struct mp_transfer *share = some(&example->plan.share);
    switch (below(3)) {
    case 0:
        if (fetch)
            fetch->stage = below(2) ? MP_STAGE_BACKWARD_REDUCE : MP_STAGE_AFTER_STEP;
        if (fetch && below(2) && !mp_plan_keeps(&example->plan, fetch->expert, fetch->to))
            fetch->stage = MP_STAGE_BACKWARD_PREFETCH;
        return fetch;
    case 1:
        if (reduce)
            reduce->stage = below(2) ? MP_STAGE_BEFORE_GATE : MP_STAGE_AFTER_GATE;
        return reduce;
    default:
        if (share)
            share->stage = below(2) ? MP_STAGE_BACKWARD_PREFETCH : MP_STAGE_AFTER_STEP;
        return share;
    }
}

/* One of a plan's lists of transfers. */
static struct mp_transfers *some_list(struct mp_plan *plan) {
    int which = below(3);
    return which == 0 ? &plan->fetch : which == 1 ? &plan->reduce : &plan->share;
}

BREAKS(MP_PLAN_WRONG_BYTES) {
    struct mp_transfer *transfer = some(some_list(&example->plan));
    if (transfer)
        transfer->bytes += below(2) ? 1 : -1;
    return transfer;
}

BREAKS(MP_PLAN_WRONG_LAYER) {
    struct mp_plan *plan = &example->plan;
    struct mp_transfers *list = some_list(plan);
    struct mp_transfer *transfer = some(list);
    if (!transfer)
        return false;
    if (below(2)) {
        transfer->layer++;
        return true;
    }
    struct mp_transfer other = *transfer;
    other.expert = below(2) ? -1 : plan->experts;
    return append(list, other);
}

BREAKS(MP_PLAN_HOLDERS_UNLISTED) {
    struct mp_plan *plan = &example->plan;
    int expert = below(plan->experts), rank = some_rank_without(plan, expert);

    switch (below(4)) {
    case 0: /* a copy that comes after the list */
        if (rank < 0 || mp_optimizer_sliced(plan->policy->optimizer))
            return false;
        assert_works(mp_plan_add_copy(plan, expert, rank, MP_STAGE_AFTER_GATE, &error));
        return true;
    case 1:
        plan->holder[below(plan->holder_begin[plan->experts])]++;
        return true;
    case 2:
        plan->holder_begin[1 + below(plan->experts)]++;
        return true;
    default: /* longer than its memory */
        plan->holder_capacity = plan->holder_begin[plan->experts] - 1;
        return true;
    }
}

/* A pair with routes, or -1; the part is its first. */
static int64_t some_pair(struct example *example, struct mp_dispatch_part **part, int *count) {
    struct mp_plan *plan = &example->plan;
    int64_t pairs = (int64_t)plan->topology.ranks * plan->experts;
    int64_t start = (int64_t)(test_random(&random_state) % (uint64_t)pairs);
    for (int64_t step = 0; step < pairs; step++) {
        int64_t pair = (start + step) % pairs;
        *count = (int)(plan->part_begin[pair + 1] - plan->part_begin[pair]);
        *part = &plan->part[plan->part_begin[pair]];
        if (*count > 0 && (*part)->count > 0)
            return pair;
    }
    return -1;
}

BREAKS(MP_PLAN_ROUTE_TO_NON_HOLDER) {
    struct mp_dispatch_part *part;
    int count;
    int64_t pair = some_pair(example, &part, &count);
    if (pair < 0)
        return false;
    int expert = (int)(pair % example->plan.experts);
    switch (below(4)) {
    case 0: /* the first holder of the next expert */
        part->first = example->plan.holder_begin[expert + 1];
        return true;
    case 1:
        part->first = example->plan.holder_begin[expert] - 1;
        return true;
    case 2: /* on beyond the last holder */
        part->run = example->plan.holder_begin[expert + 1] - part->first + 1 + below(3);
        return true;
    default:
        part->run = -below(2);
        return true;
    }
}

BREAKS(MP_PLAN_ROUTE_TWICE) {
    struct mp_dispatch_part *part;
    int count;
    if (some_pair(example, &part, &count) < 0)
        return false;
    if (count > 1 && below(2))
        part[1].first = part[0].first + below(part[0].run);
    else
        part[below(count)].count++;
    return true;
}

BREAKS(MP_PLAN_ROUTE_LOST) {
    struct mp_dispatch_part *part;
    int count;
    if (some_pair(example, &part, &count) < 0)
        return false;
    part[below(count)].count--;
    return true;
}

/* In a plan without capacities and in one that keeps to them. */
BREAKS(MP_PLAN_DROP_BELOW_CAPACITY) {
    struct mp_plan *plan = &example->plan;
    if (!example->law.drops_routes && below(2))
        plan->source_capacity = 1 << 30;
    for (int expert = 0; !example->law.drops_routes && expert < plan->experts; expert++)
        plan->capacity[expert] = below(2) ? -1 : 1 << 30;
    example->law.drops_routes = true;
    return breaks[MP_PLAN_ROUTE_LOST](example);
}

static int64_t kept_of(const struct mp_plan *plan, int source, int expert) {
    int64_t kept = 0;
    int count;
    const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &count);
    for (int index = 0; index < count; index++)
        kept += (int64_t)part[index].count * part[index].run;
    return kept;
}

BREAKS(MP_PLAN_OVER_CAPACITY) {
    struct mp_plan *plan = &example->plan;
    struct mp_dispatch_part *part;
    int count;
    int64_t pair = some_pair(example, &part, &count), kept = 0;
    if (pair < 0)
        return false;
    int expert = (int)(pair % plan->experts);
    example->law.drops_routes = true;
    for (int source = 0; source < plan->topology.ranks; source++)
        kept += kept_of(plan, source, expert);
    if (below(2))
        plan->capacity[expert] = kept - 1;
    else
        plan->source_capacity = kept_of(plan, (int)(pair / plan->experts), expert) - 1;
    return true;
}

BREAKS(MP_PLAN_PADDING) {
    struct mp_plan *plan = &example->plan;
    int64_t pairs = (int64_t)plan->topology.ranks * plan->experts, largest = 0;
    struct mp_dispatch_part *part;
    int count;

    if (plan->padding ==
        0) { /* in a plan that was not made for it: a pair without a part, or two */
        if (below(2)) {
            example->policy.one_hot = true;
            return plan->part_begin[pairs] > 0;
        }
        for (int64_t pair = 0; pair < pairs; pair++)
            if (plan->part_begin[pair + 1] - plan->part_begin[pair] != 1) {
                plan->padding = example->law.padding_limit = 1 << 30;
                return true;
            }
        return false;
    }
    if (below(2)) {
        example->law.padding_limit = plan->padding - 1;
        return true;
    }
    if (some_pair(example, &part, &count) < 0)
        return false;
    for (int64_t pair = 0; pair < pairs; pair++)
        if (plan->part[plan->part_begin[pair]].count > largest)
            largest = plan->part[plan->part_begin[pair]].count;
    plan->padding = largest - 1;
    return largest > 1;
}

BREAKS(MP_PLAN_EXCHANGE) {
    struct mp_plan *plan = &example->plan;
    if (below(4) == 0) {
        plan->exchange = below(2) ? MP_EXCHANGE_KINDS : (enum mp_exchange_kind) - 1;
        return true;
    }
    plan->exchange = MP_EXCHANGE_PIPELINED;
    if (plan->padding > 0) {
        plan->group_size = 1;
        return true;
    }
    switch (below(4)) {
    case 0:
        plan->group_size = 0;
        return true;
    case 1:
        plan->group_size = -1;
        return true;
    case 2:
        plan->group_size = plan->topology.ranks + 1;
        return true;
    default:
        plan->group_size = plan->topology.ranks - 1;
        return plan->group_size > 1;
    }
}

BREAKS(MP_PLAN_MEMORY) {
    const struct mp_plan *plan = &example->plan;
    bool sliced = mp_optimizer_sliced(plan->policy->optimizer);
    int largest = 0;
    for (int rank = 0; rank < plan->topology.ranks; rank++) {
        int extra = 0;
        for (int expert = 0; expert < plan->experts; expert++)
            extra += mp_placement_holds(&plan->during, expert, rank) &&
                     (sliced || !mp_placement_holds(&plan->before, expert, rank));
        largest = extra > largest ? extra : largest;
    }
    example->law.extra_copies_limit = largest - 1;
    return largest > 0;
}

/* Breaks one fresh plan; false if it offered no place. */
static bool is_caught(enum mp_plan_violation kind) {
    AUTO(example) struct example example;
    struct mp_error error = {0};
    enum mp_plan_violation found;

    bool drops = (kind == MP_PLAN_DROP_BELOW_CAPACITY || kind >= MP_PLAN_OVER_CAPACITY) && below(2);
    random_kind_of_example(&random_state, drops, &example);
    bool broken = breaks[kind](&example);
    if (broken) {
        int code = mp_plan_check(&example.plan, &example.load, &example.law, &found, &error);
        if (code != MP_EPLAN || found != kind)
            fail_msg("a plan broken as %s is called %s: %s", mp_plan_violation_name(kind),
                     mp_plan_violation_name(found), error.text);
        assert_contains(error.text, mp_plan_violation_name(kind), "iteration");
    }
    return broken;
}

TEST(names_every_broken_kind) {
    for (int kind = MP_PLAN_LEGAL + 1; kind < MP_PLAN_VIOLATIONS; kind++) {
        assert_non_null(breaks[kind]);
        int caught = 0;
        for (int attempt = 0; attempt < 400 && caught < 25; attempt++)
            caught += is_caught((enum mp_plan_violation)kind);
        if (caught < 25)
            fail_msg("only %d plans could be broken as %s", caught,
                     mp_plan_violation_name((enum mp_plan_violation)kind));
    }
}

/* Overlaid ones: legal if padded, copied and by choice; and then without one of these. */
TEST(rows_of_two_routes_have_their_law) {
    for (int lacking = 0; lacking < 4; lacking++) {
        struct example example = {0};
        struct mp_plan *plan = &example.plan;
        struct mp_error error = {0};
        enum mp_plan_violation found;
        do {
            destroy_example(&example);
            random_kind_of_example(&random_state, false, &example);
        } while (plan->padding == 0);
        example.policy.overlaid = true;
        plan->padding = lacking == 1 ? 0 : plan->padding;
        example.policy.one_hot = lacking == 2;
        example.policy.route_order = lacking == 3 ? MP_ROUTES_BY_TOKEN : MP_ROUTES_BY_CHOICE;
        int code = mp_plan_check(plan, &example.load, &example.law, &found, &error);
        assert_int_equal(code, lacking ? MP_EPLAN : MP_OK);
        assert_int_equal(found, lacking ? MP_PLAN_PADDING : MP_PLAN_LEGAL);
        destroy_example(&example);
    }
}

TEST(violation_names_differ) {
    for (int a = 0; a < MP_PLAN_VIOLATIONS; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(mp_plan_violation_name((enum mp_plan_violation)a),
                                    mp_plan_violation_name((enum mp_plan_violation)b));
    assert_string_equal(mp_plan_violation_name(MP_PLAN_VIOLATIONS), "unknown");
}

/* 2 experts in 2 shards on 2 ranks: expert 1's shards are 1 and 3. */
TEST(shards_of_an_expert_lose_the_same_routes) {
    static const int32_t owner[] = {0, 0, 1, 1};
    for (int lost = 0; lost < 2; lost++) {
        AUTO(example) struct example example;
        owned_example((struct mp_topology){2, 2}, 4, owner, &example);
        struct mp_plan *plan = &example.plan;
        begin_owned(plan, 3, 1, owner);
        assert_works(mp_plan_dispatch_begin(plan, &error));
        for (int pair = 0; pair < 8; pair++) {
            uint32_t routes = pair % 2 ? 7 : 5;
            routes -= lost && pair == 7; /* source 1's to shard 1 of expert 1 */
            assert_works(mp_plan_dispatch_part(plan, owner[pair % 4], routes, &error));
            mp_plan_dispatch_end_pair(plan);
        }
        assert_sentence(
            mp_plan_check_shards(plan, 2, &error), lost ? MP_EPLAN : MP_OK,
            lost ? "iteration 3, layer 1: rank 1 has 6 routes for shard 1 of expert 1 and "
                   "7 for the first one; routes to all shards of an expert are kept or "
                   "dropped together"
                 : "");
    }
}

TEST(a_fetch_may_be_passed_on) {
    AUTO(example) struct example example;
    owned_example((struct mp_topology){4, 4}, 1, (const int32_t[]){0}, &example);
    struct mp_plan *plan = &example.plan;
    assert_works(mp_plan_add_copy(plan, 0, 2, MP_STAGE_AFTER_GATE, &error));
    assert_works(mp_plan_add_copy(plan, 0, 1, MP_STAGE_BEFORE_GATE, &error));
    plan->fetch.item[0].from = 1; /* listed first, happens second */
    assert_works(mp_plan_check(plan, NULL, &example.law, NULL, &error));
    plan->fetch.item[0].from = 0;
    plan->fetch.item[1].from = 2; /* before the gate, rank 2 does not have it */
    assert_fails(mp_plan_check(plan, NULL, &example.law, NULL, &error), MP_EPLAN,
                 "fetch-from-non-holder");
}

/* Expert 0 of rank 0 was sent ahead to rank 1, and is sent there and to rank 2; then with one thing
 * wrong. */
TEST_TURNS(what_is_sent_ahead_has_its_law, 10, wrong) {
    const char *says = wrong <= 3 || wrong >= 8 ? "wrong-stage"
                       : wrong <= 5             ? "fetch-from-non-holder"
                       : wrong == 6             ? "fetch-twice"
                                                : "memory";
    AUTO(example) struct example example;
    AUTO(example) struct example last;
    const struct mp_topology topology = {4, 4};
    owned_example(topology, 2, (const int32_t[]){0, 3}, &example);
    owned_example(topology, 2, (const int32_t[]){0, 3}, &last);
    struct mp_plan *plan = &example.plan;
    mp_placement_add(&last.plan.before, 0, 1);
    example.policy.updates_early = wrong != 1;
    example.policy.rematerialise = wrong == 2;
    example.law.extra_copies_limit = 1;
    plan->kept = &last.plan.before;
    assert_works(mp_plan_add_copy(plan, 0, 1, MP_STAGE_BEFORE_GATE, &error));
    assert_works(mp_plan_send_ahead(plan, 0, 1, &error));
    assert_works(mp_plan_send_ahead(plan, wrong == 7 ? 1 : 0, wrong == 7 ? 1 : 2, &error));
    if (wrong == 3)
        plan->kept = NULL;
    if (wrong == 4)
        plan->ahead.item[1].from = 1;
    if (wrong == 5)
        plan->ahead.item[1].to = 0;
    if (wrong == 6)
        plan->ahead.item[1].to = 1;
    if (wrong == 8)
        plan->ahead.item[1].stage = MP_STAGE_BEFORE_GATE;
    if (wrong == 9)
        plan->fetch.item[0].stage = MP_STAGE_AFTER_STEP;
    if (wrong)
        assert_fails(mp_plan_check(plan, NULL, &example.law, NULL, &error), MP_EPLAN, says);
    else
        assert_works(mp_plan_check(plan, NULL, &example.law, NULL, &error));
}

/* Sizes of groups inside one another, of 12 ranks. */
TEST(groups_are_inside_one_another) {
    static const struct {
        int size[MP_MOST_LEVELS - 1];
        const char *says; /* NULL: legal */
    } cases[] = {
        {{0}, NULL},
        {{12}, NULL},
        {{5}, NULL}, /* nodes of 5, 5 and 2 ranks */
        {{1}, NULL},
        {{8, 4, 2}, NULL},
        {{12, 3}, NULL},
        {{-1}, "there are no groups of -1 among 12 ranks"},
        {{13}, "there are no groups of 13 among 12 ranks"},
        {{8, 3}, "groups of 3 ranks in groups of 8"},
        {{4, 4}, "groups of 4 ranks in groups of 4"},
        {{4, 8}, "groups of 8 ranks in groups of 4"},
        {{4, 1}, "groups of 1 ranks in groups of 4"},
        {{0, 2}, "groups of 2 ranks in groups of 0"},
        {{8, 0, 2}, "groups of 2 ranks in groups of 0"},
        {{8, 4, 4}, "groups of 4 ranks in groups of 4"},
    };
    static const int32_t owner[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    AUTO(example) struct example example;
    owned_example((struct mp_topology){12, 4}, 12, owner, &example);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum mp_plan_violation violation;
        begin_owned(&example.plan, 0, 0, owner);
        assert_int_equal(example.plan.level_size[0], 0);
        assert_works(mp_plan_dispatch_to_owner(&example.plan, &example.load, &error));
        example.plan.exchange = MP_EXCHANGE_DEDUPLICATED;
        memcpy(example.plan.level_size, cases[i].size, sizeof cases[i].size);
        const char *says = cases[i].says ? cases[i].says : "";
        assert_fails(mp_plan_check(&example.plan, &example.load, &example.law, &violation, &error),
                     *says ? MP_EPLAN : MP_OK, says);
        assert_int_equal(violation, *says ? MP_PLAN_EXCHANGE : MP_PLAN_LEGAL);
        example.plan.exchange = MP_EXCHANGE_FLAT; /* then they say nothing */
        assert_works(mp_plan_check(&example.plan, NULL, &example.law, NULL, &error));
    }
}

TEST_SEED(random_state);
