/* A planner with a system that writes down what it is asked. */
#include "reference/plan/planner.h"

#include "tests/reference/plan/plan_support.h"

enum { LAYERS = 2, RANKS = 4, EXPERTS = 4 };
enum { EXPERT_BYTES = 100, GRADIENT_BYTES = 150, MOVED = 200, STATE = 900 };

/* What the system under test is to do, and what it was asked. */
static struct {
    struct mp_rehome change; /* next is not read */
    int32_t new_owner;       /* of expert 0 of layer 1, after a step */
    int32_t copy_on;         /* of expert 0, before the gate; -1: no copy */
    int32_t sent_to;         /* expert 0, ahead; -1: to nobody */
    struct mp_policy policy;
    int limit, policies, before, after, destroyed;
    double bandwidth; /* that padding_limit met */
    int code;         /* of create */
} asked;

static int create(UNUSED void *self, UNUSED const struct mp_setting *setting,
                  UNUSED const void *options, struct mp_error *error) {
    return asked.code ? mp_fail(error, asked.code, "no such thing") : MP_OK;
}

static void destroy(UNUSED void *self) {
    asked.destroyed++;
}

/* Rank 3 owns three of layer 0, rank 0 three of layer 1. */
static void initial_owners(UNUSED const void *self, int32_t owner[]) {
    static const int32_t first[LAYERS * EXPERTS] = {0, 3, 3, 3, 0, 0, 0, 3};
    memcpy(owner, first, sizeof first);
}

static void policy(UNUSED const void *self, struct mp_policy *policy) {
    asked.policies++;
    *policy = asked.policy;
}

static int copies_limit(UNUSED const void *self) {
    return asked.limit;
}

static int homes_limit(UNUSED const void *self) {
    return 7;
}

static int64_t padding_limit(const struct mp_setting *setting, UNUSED const void *options) {
    asked.bandwidth += setting->bandwidth + setting->seconds_per_route +
                       setting->seconds_per_expert + setting->non_moe_seconds;
    return setting->tokens_per_rank;
}

static int before_gate(UNUSED void *self, struct mp_plan *plan, struct mp_error *error) {
    asked.before++;
    return asked.copy_on < 0
               ? MP_OK
               : mp_plan_add_copy(plan, 0, asked.copy_on, MP_STAGE_BEFORE_GATE, error);
}

static int after_gate(UNUSED void *self, const struct mp_load *load, struct mp_plan *plan,
                      struct mp_error *error) {
    asked.after++;
    if (asked.sent_to >= 0)
        MP_TRY(mp_plan_send_ahead(plan, 0, asked.sent_to, error));
    return mp_plan_dispatch_to_owner(plan, load, error);
}

static int after_step(UNUSED void *self, int64_t iteration, const struct mp_load load[],
                      const struct mp_placement home[], struct mp_rehome *change,
                      UNUSED struct mp_error *error) {
    assert_int_equal(iteration, 3);
    assert_int_equal(mp_load_at(&load[1], 2, 0), 5);
    for (int layer = 0; layer < LAYERS; layer++)
        assert_true(mp_placement_equal(&home[layer], &change->next[layer]));
    assert_false(change->changed || change->leave_state);
    change->changed = asked.change.changed;
    change->leave_state = asked.change.leave_state;
    change->asynchronous = asked.change.asynchronous;
    int32_t owner[EXPERTS];
    memcpy(owner, home[1].owner, sizeof owner);
    owner[0] = asked.new_owner;
    mp_placement_set_owners(&change->next[1], owner);
    return MP_OK;
}

static const struct mp_system SYSTEM = {
    .abi = MP_SYSTEM_ABI,
    .name = "asked",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_MOVES_OWNERS | MP_SYSTEM_PLANS_BEFORE_GATE,
    .size = 1,
    .create = create,
    .destroy = destroy,
    .initial_owners = initial_owners,
    .policy = policy,
    .copies_limit = copies_limit,
    .padding_limit = padding_limit,
    .before_gate = before_gate,
    .after_gate = after_gate,
    .after_step = after_step,
};

static const struct mp_setting SETTING = {
    .layers = LAYERS,
    .experts = EXPERTS,
    .top_k = 1,
    .topology = {RANKS, 2},
    .micro_batches = 3,
    .tokens_per_rank = 20,
    .expert_bytes = EXPERT_BYTES,
    .route_bytes = 8,
    .bandwidth = 1e9,
    .seconds_per_route = 1,
    .seconds_per_expert = 1,
    .non_moe_seconds = 1,
};

struct drill {
    struct mp_planner planner;
    struct mp_load load[LAYERS];
};

static void begin(struct drill *drill, const struct mp_system *system, bool keeps_plans) {
    const struct mp_planner_config config = {.system = system,
                                             .setting = &SETTING,
                                             .gradient_bytes = keeps_plans ? GRADIENT_BYTES : 0,
                                             .move = {MOVED, STATE},
                                             .keeps_plans = keeps_plans,
                                             .check_plans = true};
    assert_works(mp_planner_create(&config, &drill->planner, &error));
    for (int layer = 0; layer < LAYERS; layer++) {
        assert_works(mp_load_create(RANKS, EXPERTS, &drill->load[layer], &error));
        drill->load[layer].count[2 * EXPERTS] = 5;
    }
}

static void end(struct drill *drill) {
    mp_planner_destroy(&drill->planner);
    for (int layer = 0; layer < LAYERS; layer++)
        mp_load_destroy(&drill->load[layer]);
    assert_int_equal(asked.destroyed, 1);
}

TEST_END(end, struct drill, end(it))

TEST_STEP(reset) {
    memset(&asked, 0, sizeof asked);
    asked.policy = mp_policy_plain;
    asked.copy_on = asked.sent_to = -1;
    asked.limit = 1;
    asked.new_owner = 1;
    return 0;
}

static int step(struct drill *drill, struct mp_error *error) {
    return mp_planner_after_step(&drill->planner, 3, drill->load, error);
}

TEST_WITH(a_run_is_what_its_system_and_first_plan_say, reset, NULL) {
    AUTO(end) struct drill drill;
    struct mp_system drops = SYSTEM;
    drops.capabilities |= MP_SYSTEM_DROPS;
    asked.policy.rematerialise = true;
    asked.limit = 2;
    begin(&drill, &drops, false);
    assert_numbers(asked.policies, 1, asked.before, 1);
    assert_true(drill.planner.policy.rematerialise);
    assert_ptr_equal(drill.planner.plan->policy, &drill.planner.policy);
    assert_true(drill.planner.law.drops_routes);
    assert_numbers(drill.planner.law.extra_copies_limit, 2, drill.planner.law.padding_limit, 20);
    assert_true(asked.bandwidth == 0);
    assert_int_equal(drill.planner.home[0].owner[1], 3);
}

TEST_WITH(ranks_have_room_for_the_homes_that_the_system_says_or_begins_with, reset, NULL) {
    struct drill drill;
    struct mp_system limited = SYSTEM;
    begin(&drill, &SYSTEM, true); /* even shares are of 2 experts */
    assert_int_equal(drill.planner.homes_limit, 4);
    assert_true(drill.planner.moves.capacity >= 4 * RANKS);
    assert_true(drill.planner.plan[1].fetch.capacity >= EXPERTS * (RANKS - 1));
    end(&drill);
    reset(NULL);
    limited.homes_limit = homes_limit;
    begin(&drill, &limited, false);
    assert_int_equal(drill.planner.homes_limit, 7);
    end(&drill);
    reset(NULL);
    asked.policy.optimizer = MP_OPTIMIZER_SLICES;
    asked.limit = 3;
    asked.policy.gather_before_gate = true;
    begin(&drill, &limited, true);
    assert_int_equal(drill.planner.homes_limit, 3);
    assert_true(drill.planner.moves.capacity >= 3 * RANKS * LAYERS);
    assert_true(drill.planner.policy.gather_before_gate);
    end(&drill);
}

static void plan(struct drill *drill, int layer) {
    assert_works(mp_planner_begin_layer(&drill->planner, 3, layer, &error));
    assert_works(mp_planner_end_layer(&drill->planner, layer, &drill->load[layer], &error));
}

TEST_WITH(a_shared_plan_is_made_again_if_another_layer_had_it, reset, NULL) {
    AUTO(end) struct drill drill;
    begin(&drill, &SYSTEM, false);
    plan(&drill, 0);
    plan(&drill, 1);
    assert_int_equal(asked.after, 2);
    assert_works(mp_planner_again(&drill.planner, 3, 1, &drill.load[1], &error));
    assert_int_equal(asked.after, 2);
    assert_works(mp_planner_again(&drill.planner, 3, 0, &drill.load[0], &error));
    assert_int_equal(asked.after, 3);
    const struct mp_plan *made = mp_planner_plan(&drill.planner, 0);
    assert_numbers(made->layer, 0, made->iteration, 3, made->gradient_bytes, EXPERT_BYTES);
    assert_int_equal(mp_plan_routes_to(made, 2, 0, 0), 5);
    /* A plan that has begun is not complete. */
    assert_works(mp_planner_begin_layer(&drill.planner, 3, 0, &error));
    assert_works(mp_planner_again(&drill.planner, 3, 0, &drill.load[0], &error));
    assert_int_equal(asked.after, 4);
}

TEST_WITH(plans_that_are_kept_stay, reset, NULL) {
    AUTO(end) struct drill drill;
    begin(&drill, &SYSTEM, true);
    plan(&drill, 0);
    plan(&drill, 1);
    assert_works(mp_planner_again(&drill.planner, 3, 0, &drill.load[0], &error));
    assert_int_equal(asked.after, 2);
    for (int layer = 0; layer < LAYERS; layer++) {
        assert_int_equal(mp_planner_plan(&drill.planner, layer)->layer, layer);
        assert_int_equal(mp_planner_plan(&drill.planner, layer)->gradient_bytes, GRADIENT_BYTES);
        assert_int_equal(mp_plan_routes_to(mp_planner_plan(&drill.planner, layer), 2, 0, 0), 5);
    }
}

/* What was sent ahead is there in the next iteration, and in no other. */
TEST_WITH(what_is_sent_ahead_is_kept_once, reset, NULL) {
    AUTO(end) struct drill drill;
    asked.policy.updates_early = true;
    asked.new_owner = 0;
    begin(&drill, &SYSTEM, true);
    for (int iteration = 0; iteration < 4; iteration++) {
        asked.sent_to = iteration % 2 ? -1 : 2;
        asked.copy_on = iteration > 0 ? 2 : -1;
        for (int layer = 0; layer < LAYERS; layer++) {
            assert_works(mp_planner_begin_layer(&drill.planner, iteration, layer, &error));
            assert_works(mp_planner_end_layer(&drill.planner, layer, &drill.load[layer], &error));
            const struct mp_transfers *fetch = &mp_planner_plan(&drill.planner, layer)->fetch;
            assert_int_equal(fetch->count, iteration > 0);
            if (iteration > 0)
                assert_int_equal(fetch->item[0].stage,
                                 iteration % 2 ? MP_STAGE_BACKWARD_PREFETCH : MP_STAGE_BEFORE_GATE);
        }
        assert_works(step(&drill, &error));
    }
}

/* Copies of one micro-batch are in the next one's plans, where they were, whoever sent them; not
 * without the policy, and in the next iteration there are none. */
TEST_WITH(copies_stay_for_all_micro_batches, reset, NULL) {
    for (int stays = 0; stays < 2; stays++)
        for (int kept = 0; kept < 2; kept++) {
            AUTO(end) struct drill drill;
            asked.policy.copies_stay = stays;
            asked.destroyed = 0;
            begin(&drill, &SYSTEM, kept);
            for (int m = 0; m < 6; m++) {
                const bool there = stays && m % 3 > 0;
                mp_planner_begin_micro_batch(&drill.planner, m % 3);
                for (int layer = 0; layer < LAYERS; layer++) {
                    asked.copy_on = there ? -1 : 1 + layer;
                    plan(&drill, layer);
                    const struct mp_plan *made = mp_planner_plan(&drill.planner, layer);
                    assert_numbers(made->micro_batch, m % 3, made->fetch.count, 1,
                                   made->reduce.count, 1);
                    assert_int_equal(made->fetch.item[0].to, 1 + layer);
                    assert_int_equal(made->fetch.item[0].stage,
                                     there ? MP_STAGE_BACKWARD_PREFETCH : MP_STAGE_BEFORE_GATE);
                }
                asked.copy_on = there ? -1 : 1;
                assert_works(mp_planner_again(&drill.planner, 3, 0, &drill.load[0], &error));
                assert_int_equal(mp_planner_plan(&drill.planner, 0)->fetch.count, 1);
            }
        }
}

TEST_WITH(no_copies_stay_that_are_freed, reset, NULL) {
    AUTO(end) struct drill drill;
    asked.policy.copies_stay = asked.policy.rematerialise = true;
    begin(&drill, &SYSTEM, false);
    asked.copy_on = 1;
    plan(&drill, 0);
    asked.copy_on = -1;
    mp_planner_begin_micro_batch(&drill.planner, 1);
    assert_works(mp_planner_begin_layer(&drill.planner, 3, 0, &error));
    assert_fails(mp_planner_end_layer(&drill.planner, 0, &drill.load[0], &error), MP_EPLAN, "");
}

TEST_WITH(what_breaks_the_law_is_refused, reset, NULL) {
    AUTO(end) struct drill drill;
    asked.limit = 0;
    begin(&drill, &SYSTEM, false);
    asked.copy_on = 1;
    assert_works(mp_planner_begin_layer(&drill.planner, 3, 0, &error));
    assert_fails(mp_planner_end_layer(&drill.planner, 0, &drill.load[0], &error), MP_EPLAN, "");
    asked.change.changed = false; /* and yet expert 0 gets another owner */
    assert_fails(step(&drill, &error), MP_EPLAN, "");
}

TEST_WITH(homes_change_when_they_are_adopted, reset, NULL) {
    AUTO(end) struct drill drill;
    begin(&drill, &SYSTEM, false);
    asked.change.changed = true;
    for (int i = 0; i < 2; i++) { /* asked again, nothing is left of the first answer */
        assert_works(step(&drill, &error));
        assert_int_equal(drill.planner.moves.count, 1);
        const struct mp_transfer *move = drill.planner.moves.item;
        assert_numbers(move->layer, 1, move->expert, 0, move->from, 0, move->to, 1);
        assert_int_equal(move->bytes, MOVED + STATE);
        assert_int_equal(drill.planner.home[1].owner[0], 0);
    }
    mp_planner_adopt_homes(&drill.planner);
    assert_int_equal(drill.planner.home[1].owner[0], 1);
    assert_false(mp_placement_holds(&drill.planner.home[1], 0, 0));
    asked.change.changed = false;
    assert_works(step(&drill, &error));
    assert_int_equal(drill.planner.moves.count, 0);
    assert_false(drill.planner.change.changed);
}

/* Whoever keeps an expert at the update takes a gradient from a device and gives parameters. */
static void assert_host_bytes(const struct mp_plan *plan, const struct mp_placement *at_update) {
    struct mp_plan offloaded = *plan;
    struct mp_policy policy = *plan->policy;
    struct mp_plan_facts facts;
    int64_t copies = 0;
    for (int e = 0; e < EXPERTS; e++)
        copies += mp_placement_copies(at_update, e);
    policy.offload = true;
    offloaded.policy = &policy;
    mp_plan_facts(&offloaded, NULL, &facts);
    assert_int_equal(facts.bytes_host, copies * (plan->gradient_bytes + plan->expert_bytes));
}

/* Until homes are adopted, the rank to come gets the gradients' sum and computes nothing; and if it
 * did not, the law would say so. */
TEST_WITH(ranks_to_come_get_the_gradients, reset, NULL) {
    AUTO(end) struct drill drill;
    asked.policy.optimizer = MP_OPTIMIZER_REPLICATED;
    begin(&drill, &SYSTEM, false);
    asked.change = (struct mp_rehome){.changed = true, .asynchronous = true};
    assert_works(step(&drill, &error));
    const struct mp_plan *plan = mp_planner_plan(&drill.planner, 1);
    for (int adopted = 0; adopted < 2; adopted++) {
        assert_works(mp_planner_begin_layer(&drill.planner, 4, 1, &error));
        assert_works(mp_planner_end_layer(&drill.planner, 1, &drill.load[1], &error));
        assert_numbers(plan->before.owner[0], adopted, plan->reduce.count, 0);
        assert_int_equal(plan->share.count, !adopted);
        if (!adopted) {
            const struct mp_transfer *share = plan->share.item;
            assert_true(share->layer == 1 && share->expert == 0);
            assert_true(share->from == 0 && share->to == 1 && share->bytes == EXPERT_BYTES);
            assert_int_equal(share->stage, MP_STAGE_BACKWARD_REDUCE);
            assert_int_equal(mp_plan_routes_to(plan, 2, 0, 0), 5);
            mp_planner_plan(&drill.planner, 1)->share.count = 0;
            assert_fails(mp_plan_check(plan, &drill.load[1], &drill.planner.law, NULL, &error),
                         MP_EPLAN, "expert 0 on rank 1 does not get the gradient sum");
            struct mp_placement *next = &drill.planner.change.next[1];
            mp_placement_add(next, 0, 2);
            assert_host_bytes(plan, next);
            mp_placement_remove(next, 0, 2);
        }
        mp_planner_adopt_homes(&drill.planner);
    }
}

/* Rank 0 gets nothing for what it gives; state stays only where experts change places. */
TEST_WITH(state_that_stays_does_not_travel, reset, NULL) {
    struct drill drill;
    begin(&drill, &SYSTEM, false);
    asked.change = (struct mp_rehome){.changed = true, .leave_state = true};
    assert_fails(step(&drill, &error), MP_EPLAN, "optimizer state is left behind");
    drill.planner.check_plans = false;
    assert_works(step(&drill, &error));
    assert_int_equal(drill.planner.moves.item[0].bytes, MOVED);
    end(&drill);
    reset(NULL);
    asked.policy.optimizer = MP_OPTIMIZER_SLICES; /* everybody has a part of everything */
    asked.limit = EXPERTS;
    begin(&drill, &SYSTEM, false);
    asked.change.changed = true;
    assert_works(step(&drill, &error));
    assert_int_equal(drill.planner.moves.item[0].bytes, 0);
    end(&drill);
}

TEST_WITH(a_refusal_leaves_nothing, reset, NULL) {
    struct mp_planner planner;
    const struct mp_planner_config config = {.system = &SYSTEM, .setting = &SETTING};
    asked.code = MP_EINVAL;
    assert_sentence(mp_planner_create(&config, &planner, &error), MP_EREFUSED, "no such thing");
    mp_planner_destroy(&planner);
    assert_int_equal(asked.destroyed, 1);
}
