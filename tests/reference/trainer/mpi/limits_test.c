/* What a trainer can't carry out is refused with a sentence, on every rank. */
#include "baselines/systems.h"
#include "tests/reference/trainer/mpi/trainers.h"

static const struct {
    const char *name, *settings, *message;
} too_many[] = {
    {"rows than an int counts", "batch=16384 sequence=65536",
     "16384 sequences of 65536 tokens make 2147483648 routes"},
    {"rows than they are in memory", "batch=16777216 sequence=65536", "make 2199023255552 routes"},
    {"rows of validation", "batch=4096 sequence=8 validate-every=1 validation-batches=1048576",
     "validation-batches: 1048576 of 4096 sequences"},
};

TEST_EACH(more_are_refused, too_many, c) {
    struct mp_error error;
    assert_null(try_trainer(world, NULL, formatted("system=ep %s", c->settings), &error));
    assert_int_equal(error.code, MP_ELIMIT);
    assert_contains(error.text, c->message);
}

/* A planner that asks which rank it is. */
static enum { PLANS, HOMES, NOTHING } differs;

static int begin_alike(UNUSED void *self, struct mp_plan *plan, UNUSED struct mp_error *said) {
    plan->degree = 2;
    return MP_OK;
}

static int end_otherwise(UNUSED void *self, const struct mp_load *load, struct mp_plan *plan,
                         struct mp_error *said) {
    plan->degree = differs == PLANS && world->rank == 1 ? 1 : 2;
    return mp_plan_dispatch_to_owner(plan, load, said);
}

static int move_otherwise(UNUSED void *self, UNUSED int64_t iteration,
                          UNUSED const struct mp_load load[], const struct mp_placement home[],
                          struct mp_rehome *change, UNUSED struct mp_error *said) {
    int32_t owner[8], other = differs == HOMES && world->rank == 1 ? 3 : 7;
    memcpy(owner, home[0].owner, sizeof owner);
    owner[0] = home[0].owner[other];
    owner[other] = home[0].owner[0];
    mp_placement_set_owners(&change->next[0], owner);
    change->changed = true;
    return MP_OK;
}

/* Ranks that disagree would wait for each other for ever. */
TEST(ranks_have_to_plan_alike) {
    static const char *const what[] = {[PLANS] = "plans", [HOMES] = "homes"};
    static struct mp_system system;
    system = mp_system_skeleton;
    system.name = "dissenting";
    system.capabilities |= MP_SYSTEM_MOVES_OWNERS;
    system.before_gate = begin_alike;
    system.after_gate = end_otherwise;
    system.after_step = move_otherwise;
    further_system = &system;
    for (differs = PLANS; differs <= NOTHING; differs++) {
        int32_t token[8 * 16] = {0}; /* of one rank: all */
        struct mp_trainer_result result;
        struct mp_error said = {0};
        AUTO(trainer) struct mp_trainer *trainer = create_trainer(world, NULL, "system=dissenting");
        int code = mp_trainer_step_on(trainer, token, token, &result, &said);
        bool is_alike = differs == NOTHING || world->ranks == 1;
        assert_int_equal(code, is_alike ? MP_OK : MP_EPLAN);
        if (!is_alike)
            assert_contains(said.text, formatted("iteration 0: ranks have different %s: a hook of "
                                                 "system dissenting decides",
                                                 what[differs]));
    }
}
