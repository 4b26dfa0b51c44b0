/* Random loads and random legal plans, for tests of planners and of the law. */
#pragma once

#include "reference/plan/plan_check.h"
#include "tests/errors.h"

TEST_END(load, struct mp_load, mp_load_destroy(it))
TEST_END(plan, struct mp_plan, mp_plan_destroy(it))

static struct mp_arena placements; /* of the program, until it ends */

__attribute__((destructor)) static void release_placements(void) {
    mp_arena_release(&placements);
}

static inline struct mp_placement placement_of(int ranks, int experts) {
    struct mp_placement placement;
    mp_placement_take(&placements, ranks, experts, &placement);
    assert_false(placements.lacking);
    return placement;
}

/* Fills a load: most experts cold, some hot, some without routes, and not the same on all ranks. */
static inline void random_load(uint64_t *random, struct mp_load *load) {
    for (int expert = 0; expert < load->experts; expert++) {
        int heat = test_random_int(random, 0, 9);
        int most = heat == 0 ? 0 : heat < 7 ? 20 : heat < 9 ? 200 : 3000;
        for (int source = 0; source < load->ranks; source++)
            load->count[(long)source * load->experts + expert] =
                (uint32_t)test_random_int(random, 0, most);
    }
}

static inline struct mp_topology random_topology(uint64_t *random, int most_ranks) {
    struct mp_topology topology;
    topology.ranks = test_random_int(random, 1, most_ranks);
    topology.ranks_per_node = test_random_int(random, 1, topology.ranks + 1);
    return topology;
}

/* The plain policy but for its optimizer. */
static inline const struct mp_policy *policy_with(enum mp_optimizer_split optimizer) {
    static struct mp_policy policy[MP_OPTIMIZER_SPLITS];
    policy[optimizer] = mp_policy_plain;
    policy[optimizer].optimizer = optimizer;
    return &policy[optimizer];
}

/* Starts a plan whose homes are owners alone. */
static inline void begin_owned(struct mp_plan *plan, int64_t iteration, int layer,
                               const int32_t owner[]) {
    struct mp_placement home = placement_of(plan->topology.ranks, plan->experts);
    mp_placement_set_owners(&home, owner);
    assert_works(mp_plan_begin(plan, iteration, layer, &home, &error));
}

/* [ranks] routes that each rank computes; and where asked for, those of its own that are computed
 * elsewhere, and those of others that it computes. */
static inline void rank_routes(const struct mp_plan *plan, int64_t computed[], int64_t sent[],
                               int64_t received[]) {
    for (int rank = 0; rank < plan->topology.ranks; rank++) {
        computed[rank] = 0;
        if (sent)
            sent[rank] = received[rank] = 0;
    }
    for (int source = 0; source < plan->topology.ranks; source++) {
        const int64_t *begin = plan->part_begin + (int64_t)source * plan->experts;
        for (int64_t i = begin[0]; i < begin[plan->experts]; i++)
            for (int32_t at = 0; at < plan->part[i].run; at++) {
                int holder = plan->holder[plan->part[i].first + at];
                computed[holder] += plan->part[i].count;
                if (sent && holder != source) {
                    sent[source] += plan->part[i].count;
                    received[holder] += plan->part[i].count;
                }
            }
    }
}

/* A plan and what it was made for.  Stays where it is, as its plan points to its policy. */
struct example {
    struct mp_policy policy;
    struct mp_plan plan;
    struct mp_load load;
    struct mp_plan_law law;
};

static inline void random_copies(uint64_t *random, struct mp_plan *plan) {
    int copies = test_random_int(random, 0, 2 * plan->experts);

    for (; copies > 0; copies--) {
        int expert = test_random_int(random, 0, plan->experts - 1);
        int rank = test_random_int(random, 0, plan->topology.ranks - 1);
        enum mp_stage stage =
            test_random_int(random, 0, 1) ? MP_STAGE_BEFORE_GATE : MP_STAGE_AFTER_GATE;
        if (!mp_placement_holds(&plan->during, expert, rank))
            assert_works(mp_plan_add_copy(plan, expert, rank, stage, &error));
    }
}

/* Splits `left` routes at random over the holders of the pair's expert, in runs of any length. */
static inline void random_parts(uint64_t *random, struct mp_plan *plan, int expert, int64_t left) {
    int32_t at = plan->holder_begin[expert], last = plan->holder_begin[expert + 1] - 1;

    if (plan->padding > 0) {
        at = test_random_int(random, at, last);
        assert_works(mp_plan_dispatch_part(plan, plan->holder[at], (uint32_t)left, &error));
        return;
    }
    while (at < last) {
        int run = test_random_int(random, 1, last - at);
        int count = test_random_int(random, 0, (int)left / run);
        assert_works(mp_plan_dispatch_run(plan, at, run, (uint32_t)count, &error));
        left -= (int64_t)count * run;
        at += run;
    }
    assert_works(mp_plan_dispatch_run(plan, last, 1, (uint32_t)left, &error));
}

/* Keeps as many routes as the plan's capacities allow. */
static inline void random_dispatch(uint64_t *random, struct example *example) {
    struct mp_plan *plan = &example->plan;
    AUTO(allocated) int64_t *room = calloc((size_t)plan->experts, sizeof *room);

    for (int expert = 0; expert < plan->experts; expert++)
        room[expert] = plan->capacity[expert] >= 0 ? plan->capacity[expert] : INT64_MAX;
    assert_works(mp_plan_dispatch_begin(plan, &error));
    for (int source = 0; source < plan->topology.ranks; source++) {
        for (int expert = 0; expert < plan->experts; expert++) {
            int64_t left = mp_load_at(&example->load, source, expert);
            if (plan->source_capacity >= 0 && left > plan->source_capacity)
                left = plan->source_capacity;
            if (left > room[expert])
                left = room[expert];
            room[expert] -= left;
            random_parts(random, plan, expert, left);
            mp_plan_dispatch_end_pair(plan);
        }
    }
}

static inline void random_capacities(uint64_t *random, struct mp_plan *plan) {
    if (test_random_int(random, 0, 2) > 0)
        plan->source_capacity = test_random_int(random, 0, 200);
    for (int expert = 0; expert < plan->experts; expert++)
        plan->capacity[expert] =
            test_random_int(random, 0, 2) > 0 ? test_random_int(random, 0, 4000) : -1;
}

/* A load and an empty plan for it. */
static inline void empty_example(uint64_t *random, bool drops, struct example *example) {
    struct mp_topology topology = random_topology(random, 130);
    int experts = test_random_int(random, 1, 40);

    *example = (struct example){.law = {.drops_routes = drops, .extra_copies_limit = -1}};
    assert_works(mp_load_create(topology.ranks, experts, &example->load, &error));
    random_load(random, &example->load);
    assert_works(mp_plan_create(&topology, experts, test_random_int(random, 1, 1 << 20),
                                &example->plan, &error));
    example->plan.gradient_bytes *= test_random_int(random, 1, 2);
    example->policy = mp_policy_plain;
    example->plan.policy = &example->policy;
}

/* Random owners; some experts get further holders. */
static inline void random_homes(uint64_t *random, bool company, struct mp_placement *home) {
    AUTO(allocated) int32_t *owner = malloc((size_t)home->experts * sizeof *owner);

    for (int expert = 0; expert < home->experts; expert++)
        owner[expert] = test_random_int(random, 0, home->ranks - 1);
    mp_placement_set_owners(home, owner);
    for (int expert = 0; company && expert < home->experts; expert++)
        for (int more = test_random_int(random, -3, 9); more > 0; more--)
            mp_placement_add(home, expert, test_random_int(random, 0, home->ranks - 1));
}

/* As many holders of every expert. */
static inline void random_even_homes(uint64_t *random, struct mp_placement *home) {
    int holders = test_random_int(random, 1, home->ranks);
    random_homes(random, false, home);
    for (int expert = 0; expert < home->experts; expert++)
        while (mp_placement_copies(home, expert) < holders)
            mp_placement_add(home, expert, test_random_int(random, 0, home->ranks - 1));
}

/* Homes that an optimizer allows. */
static inline void random_homes_for(uint64_t *random, enum mp_optimizer_split optimizer,
                                    struct mp_placement *home) {
    if (optimizer == MP_OPTIMIZER_REPLICA_SLICES || optimizer == MP_OPTIMIZER_REPLICA_SLICES_OF_SUM)
        random_even_homes(random, home);
    else
        random_homes(random, optimizer != MP_OPTIMIZER_OWNER, home);
}

/* Padded rows for the largest pair, or tokens in groups, or neither. */
static inline void random_exchange(uint64_t *random, struct example *example) {
    struct mp_plan *plan = &example->plan;
    int64_t largest = 1, pairs = (int64_t)plan->topology.ranks * plan->experts;

    for (int64_t pair = 0; pair < pairs; pair++)
        if (example->load.count[pair] > largest)
            largest = example->load.count[pair];
    if (plan->source_capacity > 0 && plan->source_capacity < largest)
        largest = plan->source_capacity;
    switch (test_random_int(random, 0, 2)) {
    case 0:
        plan->padding = largest + test_random_int(random, 0, 1);
        break;
    case 1:
        plan->exchange = MP_EXCHANGE_PIPELINED;
        do
            plan->group_size = test_random_int(random, 1, plan->topology.ranks);
        while (plan->topology.ranks % plan->group_size != 0);
        break;
    default:
        break;
    }
    if (plan->exchange == MP_EXCHANGE_FLAT && test_random_int(random, 0, 1))
        plan->degree = test_random_int(random, 2, MP_MOST_DEGREE);
    example->law.padding_limit = plan->padding;
}

/* Begins it with homes that its optimizer allows, and copies. */
static inline void begin_example(uint64_t *random, bool drops, struct example *example) {
    struct mp_plan *plan = &example->plan;
    struct mp_placement home = placement_of(plan->topology.ranks, plan->experts);
    random_homes_for(random, example->policy.optimizer, &home);
    assert_works(mp_plan_begin(plan, test_random_int(random, 0, 1000),
                               test_random_int(random, 0, 23), &home, &error));
    if (drops)
        random_capacities(random, plan);
    if (!mp_optimizer_sliced(example->policy.optimizer))
        random_copies(random, plan);
}

/* A random legal plan of whole experts, as FSSDP makes them; destroy with destroy_example. */
static inline void random_example(uint64_t *random, bool drops, struct example *example) {
    empty_example(random, drops, example);
    begin_example(random, drops, example);
    random_dispatch(random, example);
}

/* The same of any kind: any optimizer, any exchange. */
static inline void random_kind_of_example(uint64_t *random, bool drops, struct example *example) {
    enum mp_optimizer_split optimizer =
        (enum mp_optimizer_split)test_random_int(random, 0, MP_OPTIMIZER_SPLITS - 1);

    empty_example(random, drops, example);
    example->policy.optimizer = optimizer;
    example->policy.gather_before_gate =
        mp_optimizer_sliced(optimizer) && test_random_int(random, 0, 1);
    example->policy.offload = test_random_int(random, 0, 1);
    example->policy.rematerialise = test_random_int(random, 0, 1);
    begin_example(random, drops, example);
    random_exchange(random, example);
    random_dispatch(random, example);
}

static inline void destroy_example(struct example *example) {
    mp_plan_destroy(&example->plan);
    mp_load_destroy(&example->load);
}

TEST_END(example, struct example, destroy_example(it))

/* A plan of 8 bytes an expert, whose homes are owners alone, and a load of no routes. */
static inline void owned_example(struct mp_topology topology, int experts, const int32_t owner[],
                                 struct example *example) {
    *example = (struct example){.law = {.extra_copies_limit = -1}, .policy = mp_policy_plain};
    assert_works(mp_load_create(topology.ranks, experts, &example->load, &error));
    assert_works(mp_plan_create(&topology, experts, 8, &example->plan, &error));
    example->plan.policy = &example->policy;
    begin_owned(&example->plan, 0, 0, owner);
}

/* The loads of V-FSSDP-6: 4 ranks, 8 experts. */
static const uint32_t GOLDEN_COUNT[4][8] = {{13, 1, 7, 0, 3, 1, 5, 2},
                                            {9, 2, 8, 1, 2, 1, 6, 2},
                                            {10, 1, 8, 1, 2, 1, 5, 2},
                                            {8, 2, 7, 0, 3, 1, 4, 2}};
static const int32_t GOLDEN_OWNER[8] = {0, 0, 1, 1, 2, 2, 3, 3};
static const struct mp_topology GOLDEN_TOPOLOGY = {4, 2};

static inline void golden_load(struct mp_load *load) {
    assert_works(mp_load_create(4, 8, load, &error));
    for (int cell = 0; cell < 32; cell++)
        load->count[cell] = GOLDEN_COUNT[cell / 8][cell % 8];
}

/* Whether the copy comes after the gate. */
static inline bool fetched_late(const struct mp_plan *plan, int expert, int rank) {
    for (int i = 0; i < plan->fetch.count; i++)
        if (plan->fetch.item[i].expert == expert && plan->fetch.item[i].to == rank)
            return plan->fetch.item[i].stage == MP_STAGE_AFTER_GATE;
    return false;
}
