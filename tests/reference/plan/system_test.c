/* Registration: what a system claims must agree with what it has. */
#include "tests/reference/plan/plan_support.h"

#include "reference/plan/system.h"

static int create(UNUSED void *self, UNUSED const struct mp_setting *setting,
                  UNUSED const void *options, UNUSED struct mp_error *error) {
    return MP_OK;
}
static void initial_owners(UNUSED const void *self, int32_t owner[]) {
    for (int index = 0; index < 6; index++) /* 2 layers of 3 experts */
        owner[index] = index == 5 ? 3 : index % 3;
}
static int copies_limit(UNUSED const void *self) {
    return 1;
}
static int before_gate(UNUSED void *self, struct mp_plan *plan, struct mp_error *error) {
    return mp_plan_add_copy(plan, 2, 0, MP_STAGE_BEFORE_GATE, error);
}
static int after_gate(UNUSED void *self, const struct mp_load *load, struct mp_plan *plan,
                      struct mp_error *error) {
    return mp_plan_dispatch_to_owner(plan, load, error);
}
static int after_step(UNUSED void *self, UNUSED int64_t iteration,
                      UNUSED const struct mp_load load[], UNUSED const struct mp_placement home[],
                      UNUSED struct mp_rehome *change, UNUSED struct mp_error *error) {
    return MP_OK;
}
static void initial_holders(UNUSED const void *self, struct mp_placement home[]) {
    mp_placement_add(&home[0], 1, 2);
    mp_placement_add(&home[1], 0, 1);
}
static void policy(UNUSED const void *self, struct mp_policy *policy) {
    policy->optimizer = MP_OPTIMIZER_REPLICATED;
}
static size_t save(UNUSED const void *self, UNUSED void *buffer, UNUSED size_t size) {
    return 0;
}
static const void *found(const void *self) {
    return self;
}
static int load(UNUSED void *self, UNUSED const void *buffer, UNUSED size_t size,
                UNUSED struct mp_error *error) {
    return MP_OK;
}

static const struct mp_option OPTIONS[] = {
    {"degree", MP_OPTION_INT, 0, "", "1", 0, 9, NULL, "a number"},
    {0},
};

static const struct mp_system COMPLETE = {
    .abi = MP_SYSTEM_ABI,
    .name = "complete",
    .title = "a system for tests",
    .source = "none",
    .models = "everything",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_MOVES_OWNERS | MP_SYSTEM_PLANS_BEFORE_GATE,
    .options = OPTIONS,
    .options_size = sizeof(int),
    .size = 1,
    .create = create,
    .initial_owners = initial_owners,
    .initial_holders = initial_holders,
    .policy = policy,
    .copies_limit = copies_limit,
    .before_gate = before_gate,
    .after_gate = after_gate,
    .after_step = after_step,
    .save = save,
    .load = load,
};

TEST(complete_and_plain_systems_register) {
    struct mp_systems systems = {0};
    struct mp_system plain = {.abi = MP_SYSTEM_ABI,
                              .name = "plain-2",
                              .title = "t",
                              .source = "s",
                              .models = "m",
                              .size = 1,
                              .create = create,
                              .after_gate = after_gate};
    assert_works(mp_systems_register(&systems, &COMPLETE, &error));
    assert_works(mp_systems_register(&systems, &plain, &error));
    assert_ptr_equal(mp_systems_find(&systems, "plain-2", NULL), &plain);
    assert_sentence(mp_systems_register(&systems, &COMPLETE, &error), MP_EINVAL,
                    "system complete is there already");
}

/* Each takes one thing away from a complete system. */
#define WITHOUT(name, statement, code, sentence)                                                   \
    TEST(incomplete_by_##name) {                                                                   \
        struct mp_system system = COMPLETE;                                                        \
        struct mp_systems systems = {0};                                                           \
        statement;                                                                                 \
        assert_fails(mp_systems_register(&systems, &system, &error), code, sentence);              \
        assert_int_equal(systems.count, 0);                                                        \
    }
WITHOUT(abi, system.abi++, MP_EVERSION, "system complete was made for ABI 6, this is ABI 5")
WITHOUT(name, system.name = "Two Words", MP_EINVAL,
        "system \"Two Words\": the name is not one word")
WITHOUT(no_name, system.name = NULL, MP_EINVAL, "system \"\": the name is not one word")
WITHOUT(title, system.title = "", MP_EINVAL, "system complete: the title is empty")
WITHOUT(source, system.source = NULL, MP_EINVAL, "system complete: the source is empty")
WITHOUT(models, system.models = "", MP_EINVAL,
        "system complete: it does not say what of its source is modelled")
WITHOUT(capability, system.capabilities |= MP_SYSTEM_CAPABILITIES + 1, MP_EINVAL,
        "system complete: it claims a capability that does not exist")
WITHOUT(create, system.create = NULL, MP_EINVAL,
        "system complete: create and the size of its struct are required")
WITHOUT(size, system.size = 0, MP_EINVAL,
        "system complete: create and the size of its struct are required")
WITHOUT(copies, system.copies_limit = NULL;
        system.initial_holders = NULL, MP_EINVAL, "system complete: replicates needs copies_limit")
WITHOUT(holders_flag, system.capabilities &= ~(unsigned)MP_SYSTEM_REPLICATES, MP_EINVAL,
        "system complete: initial_holders needs replicates")
WITHOUT(optimizer, system.policy = NULL, MP_EINVAL,
        "system complete: initial_holders needs replicates and opti")
WITHOUT(before, system.before_gate = NULL, MP_EINVAL,
        "system complete: plans-before-gate needs before_gate")
WITHOUT(before_flag, system.capabilities &= ~(unsigned)MP_SYSTEM_PLANS_BEFORE_GATE, MP_EINVAL,
        "system complete: before_gate needs plans-before-gate")
WITHOUT(after, system.after_gate = NULL, MP_EINVAL, "system complete: after_gate is required")
WITHOUT(step, system.after_step = NULL, MP_EINVAL, "system complete: moves-owners needs after_step")
WITHOUT(save, system.save = NULL, MP_EINVAL, "system complete: save and load come together")
WITHOUT(load, system.load = NULL, MP_EINVAL, "system complete: save and load come together")
WITHOUT(found, system.found = found, MP_EINVAL, "system complete: facts and found come together")
WITHOUT(options, system.options = NULL, MP_EINVAL,
        "system complete: an option table and the size of its struct")
WITHOUT(options_size, system.options_size = 2, MP_EINVAL,
        "option \"degree\" of system complete: the field lies outside")

TEST(the_registry_has_a_limit) {
    struct mp_system many[MP_SYSTEMS_LIMIT + 1];
    char name[MP_SYSTEMS_LIMIT + 1][16];
    struct mp_systems systems = {0};
    for (int index = 0; index <= MP_SYSTEMS_LIMIT; index++) {
        many[index] = COMPLETE;
        snprintf(name[index], sizeof name[index], "system-%d", index);
        many[index].name = name[index];
        if (index < MP_SYSTEMS_LIMIT)
            assert_works(mp_systems_register(&systems, &many[index], &error));
    }
    assert_fails(mp_systems_register(&systems, &many[MP_SYSTEMS_LIMIT], &error), MP_ELIMIT,
                 "system-64");
}

TEST(unknown_names_get_help) {
    struct mp_systems systems = {0};
    struct mp_error near = {0}, far = {0}, none = {0};
    assert_null(mp_systems_find(&systems, "complete", &none));
    assert_string_equal(none.text, "unknown system \"complete\"; known are none");
    assert_int_equal(mp_systems_register(&systems, &COMPLETE, NULL), MP_OK);
    assert_null(mp_systems_find(&systems, "compelte", &near));
    assert_int_equal(near.code, MP_ENOTFOUND);
    assert_string_equal(near.text, "unknown system \"compelte\"; did you mean \"complete\"?");
    assert_null(mp_systems_find(&systems, "x", &far));
    assert_string_equal(far.text, "unknown system \"x\"; known are complete");
}

TEST(every_capability_has_a_name) {
    for (unsigned bit = 1; bit <= MP_SYSTEM_CAPABILITIES; bit <<= 1)
        assert_non_null(mp_system_capability_name(bit));
    assert_string_equal(mp_system_capability_name(MP_SYSTEM_MOVES_OWNERS), "moves-owners");
    assert_null(mp_system_capability_name(MP_SYSTEM_CAPABILITIES + 1));
}

TEST(plans_begin_with_the_systems_homes) {
    static const int owner[2][3] = {{0, 1, 2}, {0, 1, 3}};
    struct mp_system plain = COMPLETE;
    struct mp_topology topology = {4, 2};
    struct mp_placement home[2];
    struct mp_policy own;
    struct mp_plan plan;
    assert_works(mp_plan_create(&topology, 3, 8, &plan, &error));
    for (int layer = 0; layer < 2; layer++)
        home[layer] = placement_of(4, 3);
    assert_works(mp_system_initial_homes(&COMPLETE, NULL, 2, home, &error));
    for (int layer = 0; layer < 2; layer++)
        for (int expert = 0; expert < 3; expert++) {
            bool company = expert == 1 - layer;
            assert_int_equal(home[layer].owner[expert], owner[layer][expert]);
            assert_int_equal(mp_placement_copies(&home[layer], expert), 1 + company);
            assert_true(!company || mp_placement_holds(&home[layer], expert, 2 - layer));
        }
    mp_system_policy(&COMPLETE, NULL, &(const struct mp_setting){0}, &own);
    plan.policy = &own;
    assert_works(mp_system_begin_plan(&COMPLETE, NULL, 6, 1, &home[1], &plan, &error));
    assert_true(plan.iteration == 6 && plan.layer == 1);
    assert_int_equal(own.optimizer, MP_OPTIMIZER_REPLICATED);
    assert_numbers(plan.share.count, 1, plan.fetch.count, 1);
    plain.optimizer = MP_OPTIMIZER_SLICES;
    mp_system_policy(&plain, NULL, &(const struct mp_setting){.forward_only = true}, &own);
    assert_true(own.optimizer == MP_OPTIMIZER_REPLICATED && own.forward_only);
    plain.policy = NULL;
    mp_system_policy(&plain, NULL, &(const struct mp_setting){0}, &own);
    assert_true(own.optimizer == MP_OPTIMIZER_SLICES && !own.forward_only);
    assert_true(own.outgoing_limit == -1 && own.outside_cost == 1);
    plan.policy = &mp_policy_plain;
    plain.initial_holders = NULL;
    plain.before_gate = NULL;
    assert_works(mp_system_initial_homes(&plain, NULL, 2, home, &error));
    assert_int_equal(mp_placement_copies(&home[1], 0), 1);
    assert_works(mp_system_begin_plan(&plain, NULL, 7, 1, &home[1], &plan, &error));
    assert_int_equal(plan.share.count + plan.fetch.count, 0);
    mp_plan_destroy(&plan);
}

static int copy_after_gate(void *self, const struct mp_load *load, struct mp_plan *plan,
                           struct mp_error *error) {
    int code = mp_plan_add_copy(plan, 1, 3, MP_STAGE_AFTER_GATE, error);
    return code ? code : after_gate(self, load, plan, error);
}

static int copy_too_late(void *self, const struct mp_load *load, struct mp_plan *plan,
                         struct mp_error *error) {
    int code = mp_plan_add_copy(plan, 1, 3, MP_STAGE_BEFORE_GATE, error);
    return code ? code : after_gate(self, load, plan, error);
}

/* Both halves of a layer's plan, with or without the capability. */
static int plan_layer(struct mp_system system, bool declared, const struct mp_placement *home,
                      struct mp_error *said) {
    struct mp_topology topology = {4, 2};
    AUTO(plan) struct mp_plan plan;
    AUTO(load) struct mp_load load;
    if (!declared)
        system.capabilities &= ~(unsigned)MP_SYSTEM_REPLICATES;
    struct mp_policy own;
    mp_system_policy(&system, NULL, &(const struct mp_setting){0}, &own);
    assert_works(mp_plan_create(&topology, 3, 8, &plan, &error));
    plan.policy = &own;
    assert_works(mp_load_create(4, 3, &load, &error));
    int code = mp_system_begin_plan(&system, NULL, 6, 1, home, &plan, said);
    if (!code)
        code = mp_system_end_plan(&system, NULL, &load, &plan, said);
    return code;
}

static void assert_has_to_be_declared(struct mp_system system, const struct mp_placement *home,
                                      const char *where) {
    assert_sentence(
        plan_layer(system, false, home, &error), MP_EPLAN,
        formatted(
            "system complete: iteration 6, layer 1: expert %s, and the system does not declare "
            "that it copies or replicates: add MP_SYSTEM_REPLICATES to .capabilities of its "
            "descriptor, mp_system_complete",
            where));
    assert_works(plan_layer(system, true, home, &error));
}

TEST(copies_and_replicas_are_declared) {
    static const int32_t owner[3] = {0, 1, 3};
    struct mp_system copies_before = COMPLETE, copies_after, replicates;
    copies_before.initial_holders = NULL;
    copies_before.policy = NULL;
    copies_after = replicates = copies_before;
    copies_after.after_gate = copy_after_gate;
    copies_after.before_gate = replicates.before_gate = NULL;
    replicates.policy = policy;
    struct mp_placement home = placement_of(4, 3);
    mp_placement_set_owners(&home, owner);
    assert_works(plan_layer(replicates, false, &home, &error));
    assert_has_to_be_declared(copies_before, &home, "2 is on rank 0 beside its owner, rank 3");
    assert_has_to_be_declared(copies_after, &home, "1 is on rank 3 beside its owner, rank 1");
    struct mp_system too_late = copies_after;
    too_late.after_gate = copy_too_late;
    assert_sentence(plan_layer(too_late, true, &home, &error), MP_EPLAN,
                    "system complete: iteration 6, layer 1: after the gate a copy of expert 1 is "
                    "added that should be there before it; MP_STAGE_AFTER_GATE is right");
    mp_placement_add(&home, 0, 2);
    assert_has_to_be_declared(replicates, &home, "0 is on rank 2 beside its owner, rank 0");
}
