/* Drops by hand: tokens choose, and whoever finds an expert full is turned away. */
#include "tests/baselines/rehearsal.h"

#include "baselines/systems.h"

enum { TOKENS = 4, CHOICES = 2 };

struct tokens {
    int tokens, top_k;
    int choice[TOKENS][CHOICES];         /* expert, first choice first */
    double probability[TOKENS][CHOICES]; /* of it */
};

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

/* A plan for what the gate of one rank chose. */
static const struct mp_plan *plan_gate(struct rehearsal *rehearsal, const char *options) {
    const struct mp_setting setting = setting_of("experts=4 ranks=1 tokens=4");
    rehearsal_open(rehearsal, &mp_system_deepspeed, &setting, options);
    for (int route = 0; route < 8; route++)
        rehearsal->load->count[GATE.choice[route / 2][route % 2]]++;
    rehearsal_plan(rehearsal, 0, rehearsal->load);
    return rehearsal->planner.plan;
}

TEST_ROWS(golden_drops_and_weights, GOLDEN, row) {
    AUTO(rehearsal) struct rehearsal rehearsal;
    double weight[4][2];
    const struct mp_plan *plan =
        plan_gate(&rehearsal, formatted("policy=%s min-capacity=0", row->policy));
    assert_int_equal(plan->source_capacity, 2);
    carry_out(plan, &GATE, weight);
    assert_true(weight[row->dropped_token][row->dropped_choice] == 0);
    for (int token = 0; token < 4; token++)
        for (int k = 0; k < 2; k++)
            assert_close(weight[token][k], row->weight[token][k], 1e-12);
}

/* The slots of V-GATE-4's last line: a route's slot is how many of its expert asked before. */
TEST(second_choices_queue_behind_all_first_ones) {
    static const int SLOT[4][2] = {{0, 0}, {1, 1}, {0, 0}, {2, 1}};
    AUTO(rehearsal) struct rehearsal rehearsal;
    struct route route[8];
    int asked[4] = {0};
    const struct mp_plan *plan = plan_gate(&rehearsal, NULL);
    assert_int_equal(plan->policy->route_order, MP_ROUTES_BY_CHOICE);
    order_routes(&GATE, plan->policy->route_order, route);
    for (int at = 0; at < 8; at++)
        assert_int_equal(asked[GATE.choice[route[at].token][route[at].k]]++,
                         SLOT[route[at].token][route[at].k]);
}
