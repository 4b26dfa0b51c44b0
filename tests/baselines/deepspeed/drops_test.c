/* Drops, recounted: tokens choose, and whoever finds an expert full is turned away, route by route.
 * The plan knows counts only; the recount knows routes only. */
#include "tests/reference/plan/plan_support.h"

#include "baselines/deepspeed/deepspeed.h"

enum { MOST_TOKENS = 200, MOST_CHOICES = 4, MOST_RANKS = 12, MOST_EXPERTS = 64 };

struct tokens {
    int tokens, top_k;
    int choice[MOST_TOKENS][MOST_CHOICES];         /* expert, first choice first */
    double probability[MOST_TOKENS][MOST_CHOICES]; /* of it */
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

static void order_routes(const struct tokens *source, enum mp_route_order order, uint64_t *random,
                         struct route route[]) {
    int count = source->tokens * source->top_k;
    for (int at = 0; at < count; at++)
        route[at] = order == MP_ROUTES_BY_CHOICE
                        ? (struct route){at % source->tokens, at / source->tokens}
                        : (struct route){at / source->top_k, at % source->top_k};
    for (int at = 1; at < count && order == MP_ROUTES_AT_RANDOM; at++) {
        int other = test_random_int(random, 0, at);
        struct route moved = route[at];
        route[at] = route[other];
        route[other] = moved;
    }
    for (int at = 1; at < count && order == MP_ROUTES_BY_PROBABILITY; at++)
        for (int place = at; place > 0; place--) { /* stable: ties stay with the earlier token */
            struct route *a = &route[place - 1], *b = &route[place], moved = *b;
            if (source->probability[a->token][a->k] >= source->probability[b->token][b->k])
                break;
            *b = *a;
            *a = moved;
        }
}

/* Mostly to a few experts; no token twice to one. */
static void choose(uint64_t *random, int experts, struct tokens *source) {
    for (int token = 0; token < source->tokens; token++)
        for (int k = 0; k < source->top_k; k++) {
            bool is_new;
            do {
                int hot = test_random_int(random, 0, 2) > 0 ? experts / 4 + source->top_k : experts;
                int expert = test_random_int(random, 0, (hot < experts ? hot : experts) - 1);
                source->choice[token][k] = expert;
                is_new = true;
                for (int earlier = 0; earlier < k; earlier++)
                    is_new &= source->choice[token][earlier] != expert;
            } while (!is_new);
            source->probability[token][k] = test_random_double(random) / (k + 1);
        }
}

/* The least capacity that all routes of a source would fit into if they were spread evenly, found
 * by counting upwards; experts are a power of two, so that no rounding is in the way. */
static int64_t even_capacity(const struct mp_setting *setting, int64_t least) {
    int64_t capacity = 0;
    while (capacity * setting->experts < setting->tokens_per_rank * setting->top_k)
        capacity++;
    return capacity > least ? capacity : least;
}

/* Routes turned away, and a look at every pair. */
static int64_t recount(uint64_t *random, const struct planned *planned,
                       const struct tokens source[], int64_t capacity) {
    static struct route route[MOST_TOKENS * MOST_CHOICES];
    const struct mp_plan *plan = &planned->plan;
    int64_t dropped = 0;
    for (int rank = 0; rank < plan->topology.ranks; rank++) {
        int64_t taken[MOST_EXPERTS] = {0};
        order_routes(&source[rank], plan->policy->route_order, random, route);
        for (int at = 0; at < source[rank].tokens * source[rank].top_k; at++) {
            int expert = source[rank].choice[route[at].token][route[at].k];
            if (taken[expert] == capacity)
                dropped++;
            else
                taken[expert]++;
        }
        for (int expert = 0; expert < plan->experts; expert++) {
            int64_t kept = 0;
            for (int holder = 0; holder < plan->topology.ranks; holder++)
                kept += mp_plan_routes_to(plan, rank, expert, holder);
            assert_int_equal(kept, taken[expert]);
        }
    }
    return dropped;
}

TEST_RANDOM(drops_are_those_of_a_recount) {
    static struct tokens source[MOST_RANKS];
    static const char *const POLICY[] = {"auto", "position", "probability", "random"};
    int64_t dropped = 0, routes = 0;
    for (int round = 0; round < 200; round++) {
        int experts = 1 << test_random_int(random, 2, 6);
        int group = 1 << test_random_int(random, 0, 2);
        struct planned planned = {
            .setting = {.layers = 1,
                        .experts = experts,
                        .top_k = test_random_int(random, 1, experts < 4 ? experts : 4),
                        .topology = {group * test_random_int(random, 1, MOST_RANKS / group), 2},
                        .tokens_per_rank = test_random_int(random, 1, MOST_TOKENS)}};
        struct mp_deepspeed_options options;
        struct mp_plan_facts facts;
        int64_t least = test_random_int(random, 0, 6);
        assert_int_equal(mp_options_set_defaults(mp_system_deepspeed.options, &options, NULL), 0);
        set_option(&options, "policy", POLICY[round % 4]);
        set_option(&options, "padded", test_random_int(random, 0, 1) ? "yes" : "no");
        options.expert_parallel = group;
        options.min_capacity = (int)least;
        for (int rank = 0; rank < planned.setting.topology.ranks; rank++) {
            source[rank].tokens = (int)planned.setting.tokens_per_rank;
            source[rank].top_k = planned.setting.top_k;
            choose(random, experts, &source[rank]);
        }
        make_plan(&planned, source, &options);
        mp_plan_facts(&planned.plan, &planned.load, &facts);
        assert_int_equal(facts.routes_dropped,
                         recount(random, &planned, source, even_capacity(&planned.setting, least)));
        dropped += facts.routes_dropped;
        routes += facts.routes;
        destroy_plan(&planned);
    }
    print_message("  %lld of %lld routes dropped\n", (long long)dropped, (long long)routes);
    assert_true(dropped > 0 && dropped < routes);
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
    order_routes(source, plan->policy->route_order, NULL, route);
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

TEST(golden_drops_and_weights) {
    for (size_t index = 0; index < sizeof GOLDEN / sizeof *GOLDEN; index++) {
        const struct golden_case *row = &GOLDEN[index];
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
    order_routes(&GATE, planned.policy.route_order, NULL, route);
    for (int at = 0; at < 8; at++)
        assert_int_equal(asked[GATE.choice[route[at].token][route[at].k]]++,
                         SLOT[route[at].token][route[at].k]);
    destroy_plan(&planned);
}
