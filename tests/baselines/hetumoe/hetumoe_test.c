/* HetuMoE: its defaults, capacities, drops and padded rows, what its released slots leave, who
 * leads, and what it refuses. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"

static struct mp_setting setting_with(int ranks, int ranks_per_node, int top_k, int tokens) {
    return setting_of(formatted("layers=2 experts=4 ranks=%d ranks-per-node=%d top-k=%d tokens=%d",
                                ranks, ranks_per_node, top_k, tokens));
}

/* One layer's plan of a load in which every source sends the expert of its number 9 routes. */
static void plan_nine_each(const struct mp_setting *setting, const char *text,
                           struct rehearsal *rehearsal) {
    rehearsal_open(rehearsal, &mp_system_hetumoe, setting, text);
    struct mp_load *load = rehearsal->load;
    for (int s = 0; s < load->ranks; s++)
        load->count[s * load->experts + s % load->experts] = 9;
    rehearsal_plan(rehearsal, 1, load);
}

/* k ceil(10/4 * 1.0) = 6 for two choices, 3 for one; with factor 1.3 2 * ceil(3.25). */
static const struct {
    int top_k;
    const char *factor;
    int64_t capacity;
} capacities[] = {{2, "1.0", 6}, {1, "1.0", 3}, {2, "1.3", 8}, {2, "8", 40}};

TEST_ROWS(plans_have_capacity_padding_and_order, capacities, c) {
    const struct mp_setting setting = setting_with(4, 2, c->top_k, 10);
    AUTO(rehearsal) struct rehearsal rehearsal;
    plan_nine_each(&setting, formatted("capacity-factor=%s", c->factor), &rehearsal);
    const struct mp_plan *plan = rehearsal.planner.plan;
    int64_t kept = c->capacity < 9 ? c->capacity : 9;
    assert_numbers(plan->padding, c->capacity, plan->source_capacity, c->capacity);
    assert_int_equal(plan->policy->route_order, MP_ROUTES_BY_CHOICE);
    assert_false(plan->policy->renormalise_survivors || plan->policy->one_hot);
    for (int s = 0; s < 4; s++)
        for (int e = 0; e < 4; e++)
            assert_int_equal(mp_plan_routes_to(plan, s, e, e), s == e ? kept : 0);
}

static const struct {
    int ranks_per_node;
    const char *exchange;
    int job;
    enum mp_exchange_kind kind;
} leaders[] = {
    {2, "leader", MP_EXCHANGE_FLAT, MP_EXCHANGE_LEADER},
    {3, "leader", MP_EXCHANGE_TWO_LEVEL, MP_EXCHANGE_LEADER}, /* the last node is smaller */
    {4, "leader", MP_EXCHANGE_FLAT, MP_EXCHANGE_FLAT},        /* one node */
    {1, "leader", MP_EXCHANGE_FLAT, MP_EXCHANGE_FLAT},        /* all lead themselves */
    {2, "flat", MP_EXCHANGE_FLAT, MP_EXCHANGE_FLAT},
    {2, "flat", MP_EXCHANGE_TWO_LEVEL, MP_EXCHANGE_TWO_LEVEL},
};

TEST_ROWS(leaders_lead_where_there_are_nodes_to_lead, leaders, c) {
    struct mp_setting setting = setting_with(4, c->ranks_per_node, 2, 10);
    AUTO(rehearsal) struct rehearsal rehearsal;
    setting.exchange = c->job;
    plan_nine_each(&setting, formatted("exchange=%s", c->exchange), &rehearsal);
    assert_int_equal(rehearsal.planner.plan->exchange, c->kind);
}

/* Slots that have a token, one by one: 0 .. first - 1 and second .. 2 second - 1. */
static int released_rows(int first, int second, int capacity) {
    int rows = 0;
    for (int slot = 0; slot < capacity; slot++)
        rows += slot < first || (slot >= second && slot < 2 * second);
    return rows;
}

TEST_RANDOM(released_slots_leave_rows_with_a_token) {
    for (int round = 0; round < 60; round++) {
        struct mp_setting setting = setting_with(2, 2, 2, test_random_int(random, 1, 40));
        AUTO(rehearsal) struct rehearsal rehearsal;
        setting.choices_apart = round % 10 == 9;
        rehearsal_open(&rehearsal, &mp_system_hetumoe, &setting, "slots=as-released");
        struct mp_load *load = rehearsal.load;
        bool known = round % 10 < 8, overlaid = !setting.choices_apart;
        if (known)
            assert_works(mp_load_give_first(load, &error));
        for (int i = 0; i < 8; i++) {
            load->count[i] = (uint32_t)test_random_int(random, 0, 40);
            if (known)
                load->first[i] = (uint32_t)test_random_int(random, 0, (int)load->count[i]);
        }
        rehearsal_plan(&rehearsal, 1, load); /* and its law */
        const struct mp_plan *plan = rehearsal.planner.plan;
        int capacity = (int)plan->padding;
        assert_int_equal(plan->policy->overlaid, overlaid);
        for (int i = 0; i < 8; i++) {
            int routes = (int)load->count[i], first = known ? (int)load->first[i] : 0;
            assert_int_equal(mp_plan_routes_to(plan, i / 4, i % 4, i % 4 / 2),
                             known && overlaid   ? released_rows(first, routes - first, capacity)
                             : routes < capacity ? routes
                                                 : capacity);
        }
    }
}

static const struct refusal refusals[] = {
    {"experts=4 tokens=10", "capacity-factor=0",
     "hetumoe needs a capacity of 1 to 2147483647 routes of a rank for an expert, not 0: 10 "
     "tokens, top-2, 4 experts, capacity factor 0"},
    {"experts=4 top-k=3", "slots=as-released",
     "hetumoe's slots as-released are those of a layer that takes one or two choices of a token, "
     "not top-3; slots: intended takes any"},
    {"experts=6 top-k=3", "", "hetumoe"},
};

TEST_ROWS(refuses_what_it_can_not_do, refusals, c) {
    assert_refusal(&mp_system_hetumoe, c);
}
