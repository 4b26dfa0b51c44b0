/* What a trainer can't carry out is refused with a sentence, on every rank. */
#include "reference/fssdp/fssdp.h"
#include "tests/reference/trainer/mpi/trainers.h"

static int forgetful_before_gate(void *self, struct mp_plan *plan, struct mp_error *error) {
    int code = mp_system_fssdp.before_gate(self, plan, error);
    plan->rematerialise = false;
    return code;
}

static int step(struct mp_trainer *trainer, struct mp_error *error) {
    enum { MOST = 128 };
    int32_t token[MOST], target[MOST];
    struct mp_trainer_result result;
    int tokens = mp_trainer_model(trainer)->tokens;
    assert_true(tokens <= MOST);
    for (int i = 0; i < tokens; i++) {
        token[i] = (i * 37 + world->rank * 11) % 256;
        target[i] = (token[i] + 1) % 256;
    }
    return mp_trainer_step_on(trainer, token, target, &result, error);
}

/* Copies that were to be freed after forward share their memory with those of other layers.  Up to
 * two layers have their own, and then a plan may keep its copies. */
TEST(copies_without_room_until_backward_are_refused) {
    static const char *const layers[] = {"layers=1", "layers=2", "layers=3", "layers=4"};
    struct mp_system forgetful = mp_system_fssdp;
    forgetful.before_gate = forgetful_before_gate;
    for (int i = 0; i < 4; i++) {
        const char *const settings[] = {layers[i],
                                        "system=fssdp",
                                        "options.overlap=3",
                                        "options.rematerialise=yes",
                                        "sequence=8",
                                        "options.calibrate=no",
                                        NULL};
        struct mp_trainer *trainer = create_trainer(world, NULL, settings);
        struct mp_error error = {0};
        must(step(trainer, &error), &error);
        must(step(trainer, &error), &error);
        int64_t copies = mp_trainer_totals(trainer)->copies[MP_STAGE_BEFORE_GATE];
        assert_int_equal(copies > 0, world->ranks > 1);
        trainer->planner.system = &forgetful;
        bool fits = world->ranks == 1 || i < 2;
        assert_int_equal(step(trainer, &error), fits ? MP_OK : MP_EPLAN);
        if (!fits)
            assert_non_null(strstr(error.text, "the plan keeps copies until backward"));
        mp_trainer_destroy(trainer);
    }
}

TEST(more_rows_than_an_int_counts_are_refused) {
    static const struct {
        const char *batch, *sequence, *validation, *message;
    } cases[] = {
        {"batch=16384", "sequence=65536", "validate-every=0",
         "16384 sequences of 65536 tokens make 2147483648 routes"},
        {"batch=16777216", "sequence=65536", "validate-every=0", "make 2199023255552 routes"},
        {"batch=4096", "sequence=8", "validate-every=1",
         "validation-batches: 1048576 of 4096 sequences"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const settings[] = {
            "system=ep",    "text=-",          "validation-batches=1048576",
            cases[i].batch, cases[i].sequence, cases[i].validation};
        struct mp_systems systems = {0};
        struct mp_job_file file;
        struct mp_error error = {0};
        struct mp_trainer *trainer = NULL;
        assert_int_equal(mp_systems_register_all(&systems, &error), MP_OK);
        assert_int_equal(mp_job_file_create(&file, &error), MP_OK);
        for (size_t s = 0; s < sizeof settings / sizeof *settings; s++)
            assert_int_equal(mp_job_set(&file, settings[s], &systems, &error), MP_OK);
        assert_int_equal(mp_trainer_create(&file, world, NULL, &trainer, &error), MP_ELIMIT);
        assert_non_null(strstr(error.text, cases[i].message));
        assert_null(trainer);
        mp_job_file_destroy(&file);
    }
}

int main(void) {
    return run_on_all_ranks();
}
