/* Drops by hand: tokens choose, and whoever finds an expert full is turned away. */
#include "tests/reference/plan/plan_support.h"

#include "baselines/deepspeed/deepspeed.h"

enum { TOKENS = 4, CHOICES = 2 };

struct tokens {
    int tokens, top_k;
    int choice[TOKENS][CHOICES];         /* expert, first choice first */
    double probability[TOKENS][CHOICES]; /* of it */
};

/* A plan for one layer and what it was made from. */
struct planned {
    struct mp_setting setting;
    struct mp_load load;
    struct mp_placement home;
    struct mp_policy policy;
    struct mp_plan plan;
    void *self;
};

static void set_option(struct mp_deepspeed_options *options, const char *name, const char *text) {
    assert_works(mp_options_set(mp_system_deepspeed.options, options, "system deepspeed", name,
                                text, NULL, &error));
}

/* Counts are what the gates of all sources chose. */
static void make_plan(struct planned *planned, const struct tokens source[],
                      const struct mp_deepspeed_options *options) {
    const struct mp_setting *setting = &planned->setting;
    int ranks = setting->topology.ranks;
    struct mp_plan_law law = {true, 0, mp_system_deepspeed.padding_limit(setting, options)};
    assert_works(mp_load_create(ranks, setting->experts, &planned->load, &error));
    for (int rank = 0; rank < ranks; rank++)
        for (int token = 0; token < source[rank].tokens; token++)
            for (int k = 0; k < setting->top_k; k++)
                planned->load.count[rank * setting->experts + source[rank].choice[token][k]]++;
    assert_works(mp_system_create(&mp_system_deepspeed, setting, options, &planned->self, &error));
    assert_works(mp_placement_create(ranks, setting->experts, &planned->home, &error));
    assert_works(mp_plan_create(&setting->topology, setting->experts, 64, &planned->plan, &error));
    mp_system_policy(&mp_system_deepspeed, planned->self, setting, &planned->policy);
    planned->plan.policy = &planned->policy;
    assert_works(
        mp_system_initial_homes(&mp_system_deepspeed, planned->self, 1, &planned->home, &error));
    assert_works(mp_system_begin_plan(&mp_system_deepspeed, planned->self, 3, 0, &planned->home,
                                      &planned->plan, &error));
    assert_works(
        mp_system_deepspeed.after_gate(planned->self, &planned->load, &planned->plan, &error));
    assert_works(mp_plan_check(&planned->plan, &planned->load, &law, NULL, &error));
}

static void destroy_plan(struct planned *planned) {
    mp_system_destroy(&mp_system_deepspeed, planned->self);
    mp_plan_destroy(&planned->plan);
    mp_placement_destroy(&planned->home);
    mp_load_destroy(&planned->load);
}

/* Routes of one source in the order in which they ask for a place. */
struct route {
    int token, k;
};

static void order_routes(const struct tokens *source, enum mp_route_order order,
                         struct route route[]) {
    int count = source->tokens * source->top_k;
    for (int at = 0; at < count; at++)
        route[at] = order == MP_ROUTES_BY_CHOICE
                        ? (struct route){at % source->tokens, at / source->tokens}
                        : (struct route){at / source->top_k, at % source->top_k};
    for (int at = 1; at < count && order == MP_ROUTES_BY_PROBABILITY; at++)
        for (int place = at; place > 0; place--) { /* stable: ties stay with the earlier token */
            struct route *a = &route[place - 1], *b = &route[place], moved = *b;
            if (source->probability[a->token][a->k] >= source->probability[b->token][b->k])
                break;
            *b = *a;
            *a = moved;
        }
}

/* V-GATE-4: four tokens, four experts, two choices, capacity 2. */
static const struct tokens GATE = {4,
                                   2,
                                   {{0, 1}, {0, 1}, {3, 2}, {0, 2}},
                                   {{0.40, 0.30}, {0.40, 0.35}, {0.40, 0.30}, {0.50, 0.25}}};
struct golden_case {
    const char *policy;
    int dropped_token, dropped_choice;
    double weight[4][2];
};
#define C (0.40 / 0.75)
static const struct golden_case GOLDEN[] = {
    {"position", 3, 0, {{4. / 7, 3. / 7}, {C, 1 - C}, {4. / 7, 3. / 7}, {0, 1}}},
    {"auto", 3, 0, {{4. / 7, 3. / 7}, {C, 1 - C}, {4. / 7, 3. / 7}, {0, 1}}},
    {"probability", 1, 0, {{4. / 7, 3. / 7}, {0, 1}, {4. / 7, 3. / 7}, {2. / 3, 1. / 3}}},
};

/* What the plan says, carried out for its one source by the definitions of plan.h. */
static void carry_out(const struct mp_plan *plan, const struct tokens *source,
                      double weight[4][2]) {
    struct route route[8];
    int64_t left[4];
    for (int expert = 0; expert < 4; expert++)
        left[expert] = mp_plan_routes_to(plan, 0, expert, 0);
    order_routes(source, plan->policy->route_order, route);
    for (int at = 0; at < 8; at++) {
        int token = route[at].token, k = route[at].k;
        bool kept = left[source->choice[token][k]]-- > 0;
        weight[token][k] = kept ? source->probability[token][k] : 0;
    }
    for (int token = 0; token < 4 && plan->policy->renormalise_survivors; token++) {
        double sum = weight[token][0] + weight[token][1];
        weight[token][0] /= sum;
        weight[token][1] /= sum;
    }
}

TEST_ROWS(golden_drops_and_weights, GOLDEN, row) {
    struct planned planned = {
        .setting = {
            .layers = 1, .experts = 4, .top_k = 2, .topology = {1, 1}, .tokens_per_rank = 4}};
    struct mp_deepspeed_options options;
    double weight[4][2];
    assert_int_equal(mp_options_set_defaults(mp_system_deepspeed.options, &options, NULL), 0);
    set_option(&options, "policy", row->policy);
    set_option(&options, "min-capacity", "0");
    make_plan(&planned, &GATE, &options);
    assert_int_equal(planned.plan.source_capacity, 2);
    carry_out(&planned.plan, &GATE, weight);
    assert_true(weight[row->dropped_token][row->dropped_choice] == 0);
    for (int token = 0; token < 4; token++)
        for (int k = 0; k < 2; k++)
            assert_close(weight[token][k], row->weight[token][k], 1e-12);
    destroy_plan(&planned);
}

/* The slots of V-GATE-4's last line: a route's slot is how many of its expert asked before. */
TEST(second_choices_queue_behind_all_first_ones) {
    static const int SLOT[4][2] = {{0, 0}, {1, 1}, {0, 0}, {2, 1}};
    struct planned planned = {
        .setting = {
            .layers = 1, .experts = 4, .top_k = 2, .topology = {1, 1}, .tokens_per_rank = 4}};
    struct mp_deepspeed_options options;
    struct route route[8];
    int asked[4] = {0};
    assert_int_equal(mp_options_set_defaults(mp_system_deepspeed.options, &options, NULL), 0);
    make_plan(&planned, &GATE, &options);
    assert_int_equal(planned.policy.route_order, MP_ROUTES_BY_CHOICE);
    order_routes(&GATE, planned.policy.route_order, route);
    for (int at = 0; at < 8; at++)
        assert_int_equal(asked[GATE.choice[route[at].token][route[at].k]]++,
                         SLOT[route[at].token][route[at].k]);
    destroy_plan(&planned);
}
