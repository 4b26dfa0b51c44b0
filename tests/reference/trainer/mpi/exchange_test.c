/* What a plan says about the exchange is carried out: pipelined and padded exchanges, and dispatch
 * by one-hot matrices, give the loss and gradients of one rank; those that are dropped are the last
 * in the plan's order, route by route; the gate stays within its limit.  The plans are those of a
 * system that exists for it. */
#include "reference/model/replay.h"
#include "tests/errors.h"
#include "tests/reference/trainer/mpi/trainers.h"

enum { BATCH = 8, SEQUENCE = 16, STEPS = 3 };

/* ---- The system ---- */

/* What all its plans say; fields are the plan's. */
static struct drill {
    int group_size; /* of a pipelined exchange; 0: flat */
    int64_t padding, source_capacity, outgoing_limit;
    enum mp_route_order order;
    bool renormalise, one_hot;
    bool copies; /* of experts 0, 3, 6 .. on odd ranks before, of 1, 4, 7 .. after the gate */
    bool rematerialise;
} drill;

static int drill_create(void *self, const struct mp_setting *setting, UNUSED const void *options,
                        UNUSED struct mp_error *error) {
    memcpy(self, setting, sizeof *setting);
    return MP_OK;
}

static void drill_owners(const void *self, int32_t owner[]) {
    const struct mp_setting *setting = self;
    for (int i = 0; i < setting->layers * setting->experts; i++)
        owner[i] = i % setting->topology.ranks;
}

static int drill_copies(const void *self) {
    return ((const struct mp_setting *)self)->experts;
}

static int64_t drill_padding(UNUSED const struct mp_setting *setting, UNUSED const void *options) {
    return drill.padding;
}

static int add_copies(struct mp_plan *plan, int first, enum mp_stage stage,
                      struct mp_error *error) {
    int code = MP_OK;
    for (int e = first; drill.copies && e < plan->experts; e += 3)
        for (int r = 1; !code && r < plan->topology.ranks; r += 2)
            if (!mp_placement_holds(&plan->during, e, r))
                code = mp_plan_add_copy(plan, e, r, stage, error);
    return code;
}

static void drill_policy(UNUSED const void *self, struct mp_policy *policy) {
    policy->outgoing_limit = drill.outgoing_limit;
    policy->rematerialise = drill.rematerialise;
    policy->one_hot = drill.one_hot;
    policy->route_order = drill.order;
    policy->renormalise_survivors = drill.renormalise;
}

static int drill_before_gate(UNUSED void *self, struct mp_plan *plan, struct mp_error *error) {
    return add_copies(plan, 0, MP_STAGE_BEFORE_GATE, error);
}

static int drill_after_gate(UNUSED void *self, const struct mp_load *load, struct mp_plan *plan,
                            struct mp_error *error) {
    int code = add_copies(plan, 1, MP_STAGE_AFTER_GATE, error);
    if (drill.group_size) {
        plan->exchange = MP_EXCHANGE_PIPELINED;
        plan->group_size = drill.group_size;
    }
    plan->padding = drill.padding;
    plan->source_capacity = drill.source_capacity;
    if (code || (!drill.padding && drill.source_capacity < 0))
        return code ? code : mp_plan_dispatch_nearest(plan, load, error);
    code = mp_plan_dispatch_begin(plan, error);
    for (int i = 0; !code && i < load->ranks * load->experts; i++) {
        int source = i / load->experts, expert = i % load->experts;
        int64_t routes = load->count[i];
        if (drill.source_capacity >= 0 && routes > drill.source_capacity)
            routes = drill.source_capacity;
        int holder =
            mp_placement_holds(&plan->during, expert, source) ? source : plan->during.owner[expert];
        code = mp_plan_dispatch_part(plan, holder, (uint32_t)routes, error);
        mp_plan_dispatch_end_pair(plan);
    }
    return code;
}

static const struct mp_system drill_system = {
    .abi = MP_SYSTEM_ABI,
    .name = "drill",
    .title = "whatever a test wants",
    .source = "this test",
    .models = "Nothing.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_DROPS | MP_SYSTEM_CHANGES_GATE |
                    MP_SYSTEM_PLANS_BEFORE_GATE | MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,
    .size = sizeof(struct mp_setting),
    .create = drill_create,
    .initial_owners = drill_owners,
    .policy = drill_policy,
    .copies_limit = drill_copies,
    .padding_limit = drill_padding,
    .before_gate = drill_before_gate,
    .after_gate = drill_after_gate,
};

static const struct mp_system *further_system = &drill_system;
static const struct drill nothing = {.source_capacity = -1, .outgoing_limit = -1};

/* ---- Running it ---- */

/* What a run leaves behind: losses, and the gradients of the first step. */
struct outcome {
    double loss[STEPS];
    size_t dense_count, chunk;
    float *dense;
    float **expert; /* [L * E]; NULL where this rank is not the owner */
    int experts;
};

static float *copied(const float *from, size_t count) {
    float *to = malloc(count * sizeof *to);
    assert_non_null(to);
    memcpy(to, from, count * sizeof *to);
    return to;
}

static void keep_gradients(struct mp_trainer *trainer, struct outcome *outcome) {
    struct mp_model *model = mp_trainer_model(trainer);
    int experts = model->shape.experts, all = model->shape.layers * experts;
    outcome->dense_count = model->dense.count;
    outcome->dense = copied(model->dense.gradient, model->dense.count);
    outcome->chunk = model->experts.chunk;
    outcome->experts = all;
    outcome->expert = calloc((size_t)all, sizeof *outcome->expert);
    for (int l = 0; l < model->shape.layers; l++) {
        const struct mp_plan *plan = &trainer->planner.plan[l];
        must(mp_experts_locate(&model->experts, plan, model->parameter, model->gradient, &error));
        for (int e = 0; e < experts; e++)
            if (plan->during.owner[e] == trainer->comm->rank)
                outcome->expert[l * experts + e] = copied(model->gradient[e], outcome->chunk);
    }
}

static void release(struct outcome *outcome) {
    for (int i = 0; i < outcome->experts; i++)
        free(outcome->expert[i]);
    free(outcome->expert);
    free(outcome->dense);
}

static void run(struct mp_comm *comm, const char *settings, int steps, struct outcome *outcome) {
    AUTO(trainer) struct mp_trainer *trainer = create_trainer(comm, NULL, settings);
    *outcome = (struct outcome){.dense = NULL};
    for (int i = 0; i < steps; i++) {
        struct mp_trainer_result result = random_step(trainer, MP_VOCABULARY);
        outcome->loss[i] = result.loss + result.auxiliary_loss;
        if (i == 0)
            keep_gradients(trainer, outcome);
    }
}

static void assert_same_floats(const char *what, const float *actual, const float *expected,
                               size_t count) {
    double largest = 1e-9;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)expected[i]));
    for (size_t i = 0; i < count; i++) {
        if (fabs((double)actual[i] - (double)expected[i]) <= 1e-5 * largest)
            continue;
        print_error("rank %d, %s, gradient %zu is %.9g, expected %.9g; the largest is %.3g\n",
                    world->rank, what, i, (double)actual[i], (double)expected[i], largest);
        fail();
    }
}

static void assert_same(const struct outcome *actual, const struct outcome *expected, int steps) {
    for (int i = 0; i < steps; i++)
        assert_close(actual->loss[i], expected->loss[i], 3e-6);
    assert_same_floats("dense", actual->dense, expected->dense, expected->dense_count);
    for (int i = 0; i < actual->experts; i++) {
        if (!actual->expert[i])
            continue;
        assert_same_floats(formatted("expert %d", i), actual->expert[i], expected->expert[i],
                           expected->chunk);
    }
}

static void equals_one_rank(const char *gate) {
    struct drill wanted = drill;
    struct outcome expected, actual;
    AUTO(choices) struct choices choices = {0};
    drill = nothing;
    noted = &choices;
    run(alone, formatted("system=ep %s", gate), STEPS, &expected); /* every rank for itself */
    noted = NULL;
    followed = &choices;
    drill = wanted;
    run(world, formatted("system=drill %s", gate), STEPS, &actual);
    assert_same(&actual, &expected, STEPS);
    release(&actual);
    release(&expected);
}

/* ---- Tests ---- */

TEST(pipelined_exchanges_change_nothing) {
    for (int size = 1; size <= world->ranks; size++) {
        if (world->ranks % size != 0)
            continue;
        for (int i = 0; i < 4; i++) {
            drill = nothing;
            drill.group_size = size;
            drill.copies = i > 0;
            drill.rematerialise = i == 2;
            equals_one_rank(i == 3 ? "gate=switch" : "gate=gshard");
        }
    }
}

/* Memory is laid out for what the first plan says. */
static void refuses_step(struct mp_trainer *trainer, const char *words) {
    int32_t token[BATCH * SEQUENCE] = {0}, target[BATCH * SEQUENCE] = {0};
    struct mp_trainer_result result;
    assert_fails(mp_trainer_step_on(trainer, token, target, &result, &error), MP_EPLAN, words);
}

TEST(another_exchange_in_between_is_refused) {
    AUTO(trainer) struct mp_trainer *trainer = create_trainer(world, NULL, "system=ep");
    trainer->planner.setting.exchange = MP_EXCHANGE_LEADER;
    refuses_step(trainer,
                 "the exchange is leader, in the first plan of the run it was in one round");
}

TEST(padded_exchanges_change_nothing) {
    static const char *const gates[] = {"gate=gshard", "gate=switch"};
    for (int i = 0; i < 4; i++) {
        drill = nothing;
        drill.one_hot = i / 2;
        drill.padding = BATCH * SEQUENCE / world->ranks; /* all tokens of a rank fit every expert */
        equals_one_rank(gates[i % 2]);
    }
}

/* Drops in one layer: they do not depend on how rows travel. */
TEST(exchanges_drop_the_same_routes) {
    static const char settings[] = "system=drill layers=1 gate=gshard";
    for (int i = 0; i < 2 * MP_ROUTE_ORDERS; i++) {
        struct outcome flat, padded, one_hot, pipelined;
        struct drill wanted = nothing;
        wanted.source_capacity = BATCH * SEQUENCE * 2 / world->ranks / 16;
        wanted.order = (enum mp_route_order)(i / 2);
        wanted.renormalise = i % 2;
        drill = wanted;
        run(world, settings, 1, &flat);
        drill.padding = wanted.source_capacity;
        run(world, settings, 1, &padded);
        assert_same(&padded, &flat, 1);
        drill.one_hot = true;
        run(world, settings, 1, &one_hot);
        assert_same(&one_hot, &flat, 1);
        drill = wanted;
        drill.group_size = 1;
        drill.copies = true;
        run(world, settings, 1, &pipelined);
        assert_same(&pipelined, &flat, 1);
        release(&flat);
        release(&padded);
        release(&one_hot);
        release(&pipelined);
    }
}

/* What sorts a route within its expert's; smaller comes first, ties to the earlier route. */
static double sort_key(const struct mp_trainer *trainer, int layer, int route) {
    const struct mp_model *model = &trainer->model;
    const struct mp_block_state *state = &model->state[layer];
    int top_k = model->shape.top_k, token = route / top_k;
    uint64_t draw = mp_model_route_seed((uint64_t)trainer->job.seed, 0, layer, world->rank);
    switch (drill.order) {
    case MP_ROUTES_BY_CHOICE:
        return route % top_k;
    case MP_ROUTES_BY_PROBABILITY:
        return -(double)state->probability[token * model->shape.experts + state->choice[route]];
    case MP_ROUTES_AT_RANDOM:
        draw += ((uint64_t)route + 1) * 0x9e3779b97f4a7c15u;
        draw = (draw ^ (draw >> 30)) * 0xbf58476d1ce4e5b9u;
        draw = (draw ^ (draw >> 27)) * 0x94d049bb133111ebu;
        return (double)((draw ^ (draw >> 31)) >> 32);
    default:
        return 0;
    }
}

static double weight_of(const struct mp_model *model, const struct mp_block_state *state,
                        int route) {
    int top_k = model->shape.top_k, token = route / top_k;
    const float *probability = state->probability + token * model->shape.experts;
    double sum = 0;
    for (int i = token * top_k; i < (token + 1) * top_k; i++)
        if (!drill.renormalise || state->position[i] >= 0)
            sum += probability[state->choice[i]];
    return state->position[route] < 0 && drill.renormalise
               ? 0
               : probability[state->choice[route]] / sum;
}

/* Routes of this rank that must be dropped in a layer, counted in pairs. */
static int check_drops(const struct mp_trainer *trainer, int layer) {
    const struct mp_model *model = &trainer->model;
    const struct mp_block_state *state = &model->state[layer];
    int routes = model->tokens * model->shape.top_k, dropped = 0;
    uint32_t of_expert[64] = {0};
    for (int i = 0; i < routes; i++) {
        double key = sort_key(trainer, layer, i);
        int before = 0;
        for (int other = 0; other < routes; other++) {
            double there = sort_key(trainer, layer, other);
            before += state->choice[other] == state->choice[i] &&
                      (there < key || (there == key && other < i));
        }
        assert_int_equal(state->position[i] < 0, before >= drill.source_capacity);
        of_expert[state->choice[i]] += state->position[i] < 0;
        dropped += state->position[i] < 0;
        assert_close(state->weight[i], weight_of(model, state, i), 1e-6);
    }
    assert_memory_equal(state->routing.dropped, of_expert,
                        (size_t)model->shape.experts * sizeof *of_expert);
    return dropped;
}

static void step_and_check_drops(const char *settings) {
    AUTO(trainer) struct mp_trainer *trainer = create_trainer(world, NULL, settings);
    int dropped = 0;
    random_step(trainer, MP_VOCABULARY);
    for (int l = 0; l < 2; l++)
        dropped += check_drops(trainer, l);
    assert_true(dropped > 0);
}

TEST(the_last_in_order_are_dropped) {
    for (int i = 0; i < 2 * MP_ROUTE_ORDERS; i++) {
        drill = nothing;
        drill.source_capacity = BATCH * SEQUENCE * 2 / world->ranks / 16;
        drill.order = (enum mp_route_order)(i / 2);
        drill.renormalise = i % 2;
        drill.group_size = i % 3 == 0 ? 1 : 0;
        drill.copies = i % 3 == 0;
        step_and_check_drops("system=drill gate=gshard");
    }
}

/* DeepSpeed's own rules for more than two experts per token: the highest probabilities stay unless
 * told otherwise, and survivors are renormalised, whatever the gate does before drops. */
static const struct {
    const char *name, *settings;
    enum mp_route_order order;
} deepspeed_drops[] = {
    {"deepspeed drops by probability", "options.policy=auto", MP_ROUTES_BY_PROBABILITY},
    {"deepspeed drops so anyway", "options.policy=auto renormalise=no", MP_ROUTES_BY_PROBABILITY},
    {"deepspeed drops by token", "options.policy=position", MP_ROUTES_BY_TOKEN},
};

TEST_EACH(many_choices_are_dropped, deepspeed_drops, c) {
    for (int top_k = 4; top_k <= 6; top_k += 2) {
        drill = nothing;
        drill.source_capacity = BATCH * SEQUENCE * top_k / world->ranks / 16;
        drill.order = c->order;
        drill.renormalise = true;
        step_and_check_drops(formatted("system=deepspeed gate=softmax top-k=%d %s "
                                       "options.capacity-factor=0.5 options.min-capacity=1",
                                       top_k, c->settings));
    }
}

/* Tokens with a choice outside their node: in the second place only, and as many as allowed, where
 * the gate alone would send more of them first. */
static void check_limit(const struct mp_trainer *trainer, int layer, int limit) {
    const struct mp_model *model = &trainer->model;
    const struct mp_block_state *state = &model->state[layer];
    const struct mp_plan *plan = &trainer->planner.plan[layer];
    int experts = model->shape.experts, wanted = 0, outgoing[2] = {0};
    bool inside[64];
    for (int e = 0; e < experts; e++) {
        inside[e] = false;
        for (int r = 0; r < world->ranks; r++)
            inside[e] |=
                r / plan->topology.ranks_per_node == world->rank / plan->topology.ranks_per_node &&
                (r == plan->during.owner[e] || (drill.copies && e % 3 == 0 && r % 2));
    }
    for (int t = 0; t < model->tokens; t++) {
        const float *probability = state->probability + t * experts;
        int best = 0;
        for (int e = 1; e < experts; e++)
            best = probability[e] > probability[best] ? e : best;
        wanted += !inside[best];
        for (int j = 0; j < 2; j++)
            outgoing[j] += !inside[state->choice[2 * t + j]];
    }
    if (wanted <= limit) {
        assert_int_equal(outgoing[0], wanted);
    } else {
        assert_numbers(outgoing[0], 0, outgoing[1], limit);
    }
}

TEST(the_gate_stays_within_its_limit) {
    static const int parts[] = {1, 5, 40}; /* of a rank's tokens, how many may leave */
    for (int i = 0; i < 6; i++) {
        int limit = BATCH * SEQUENCE / world->ranks / parts[i % 3];
        drill = nothing;
        drill.outgoing_limit = limit;
        drill.copies = i >= 3;
        AUTO(trainer)
        struct mp_trainer *trainer = create_trainer(world, NULL, "system=drill gate=gshard");
        random_step(trainer, MP_VOCABULARY);
        for (int l = 0; l < 2; l++)
            check_limit(trainer, l, limit);
    }
}

/* Replayed loads keep the limit, too, and are what mp_replay_limit makes of them on every rank. */
TEST(replayed_loads_stay_within_the_limit) {
    for (int limit = 0; limit < 8; limit += 3) {
        bool inside[64];
        uint32_t row[64];
        int changed = 0;
        drill = nothing;
        drill.outgoing_limit = limit;
        AUTO(trainer)
        struct mp_trainer *trainer = create_trainer(
            world, NULL, "system=drill gate=gshard routing=skewed skew-share=0.9 skew-experts=2");
        random_step(trainer, MP_VOCABULARY);
        const struct mp_topology *topology = &trainer->planner.plan[0].topology;
        int experts = trainer->job.experts;
        for (int r = 0; r < world->ranks; r++) {
            for (int e = 0; e < experts; e++) /* owned in turn */
                inside[e] =
                    mp_topology_node(topology, e % world->ranks) == mp_topology_node(topology, r);
            must(mp_job_replay(&trainer->job, r, 2 * trainer->model.tokens, row, &error));
            mp_replay_limit(experts, inside, limit, row);
            for (int e = 0; e < experts; e++)
                for (int l = 0; l < 2; l++)
                    assert_int_equal(mp_load_at(&trainer->load[l], r, e), row[e]);
            must(mp_job_replay(&trainer->job, r, 2 * trainer->model.tokens, row, &error));
            for (int e = 0; e < experts; e++)
                changed += row[e] != mp_load_at(&trainer->load[0], r, e);
        }
        assert_true(changed > 0 || mp_topology_nodes(topology) < 2);
    }
}

TEST(a_limited_top_1_gate_is_refused) {
    drill = nothing;
    drill.outgoing_limit = 3;
    AUTO(trainer)
    struct mp_trainer *trainer = create_trainer(world, NULL, "system=drill gate=switch");
    refuses_step(trainer, "limits outgoing tokens of gate switch, top-1");
}
