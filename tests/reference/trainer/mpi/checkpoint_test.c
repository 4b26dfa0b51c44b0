/* Checkpoints over ranks and systems: training goes on as if it had never stopped, bit for bit
 * under the same ranks and system, and within rounding under others; whatever is wrong with a
 * checkpoint, every rank says so and none waits. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/harness/folder.h"
#include "tests/reference/trainer/mpi/trainers.h"

enum { ITERATIONS = 10, SAVED_AT = 5, TEXT = 4096 };
static struct mp_comm *self;
static struct choices choices; /* of one rank's gates */
static unsigned char byte[TEXT];
static const struct mp_text text = {.byte = byte, .size = TEXT, .training = TEXT};

static const char *const ep[] = {"system=ep", NULL};
static const char *const fssdp[] = {"system=fssdp",
                                    "options.window=3",
                                    "options.overlap=2",
                                    "options.memory=2",
                                    "options.reshard-interval=2",
                                    "options.rematerialise=yes",
                                    NULL};
static const char *const fssdp_switch[] = {"system=fssdp",
                                           "gate=switch",
                                           "options.window=2",
                                           "options.overlap=1",
                                           "options.memory=1",
                                           "options.reshard-interval=2",
                                           NULL};
static const char *const biased[] = {"system=ep", "gate=sigmoid", "top-k=2",
                                     "gate-options.bias-rate=0.05", NULL};

/* Replicas that come and go, experts in slices that are put together after a step or before a gate,
 * and experts that change places. */
static const char *const flexmoe[] = {"system=flexmoe", "options.interval=2", NULL};
static const char *const eplb[] = {"system=eplb", "options.interval=2", NULL};
static const char *const swiftmoe[] = {"system=swiftmoe", "options.capacity-factor=0", NULL};
static const char *const laer[] = {"system=laer", NULL};
static const char *const laer_kept[] = {"system=laer", "options.rematerialise=no", NULL};
static const char *const smartmoe[] = {"system=smartmoe", "options.interval=2", NULL};
static const char *const deepspeed[] = {"system=deepspeed", "options.expert-parallel=1",
                                        "options.drop-tokens=no", NULL};

/* Experts cut into shards, which owners have, or all ranks or replicas in slices. */
static const char *const shards2[] = {"system=ep", "expert-shards=2", NULL};
static const char *const shards3_laer[] = {"system=laer", "expert-shards=3", NULL};
static const char *const shards2_zero[] = {
    "system=deepspeed",       "expert-shards=2", "options.expert-parallel=1",
    "options.drop-tokens=no", "options.zero=1",  NULL};
static const char *const shards4_fssdp[] = {"system=fssdp",
                                            "expert-shards=4",
                                            "options.window=3",
                                            "options.overlap=2",
                                            "options.memory=2",
                                            "options.reshard-interval=2",
                                            NULL};

/* Slices of replicas, with state in host memory and without. */
static const char *const zero[] = {"system=deepspeed", "options.expert-parallel=1",
                                   "options.drop-tokens=no", "options.zero=1", NULL};
static const char *const zero_offload[] = {"system=deepspeed",
                                           "options.expert-parallel=1",
                                           "options.drop-tokens=no",
                                           "options.zero=1",
                                           "options.multi-rank-bucket-allreduce=no",
                                           "options.offload-optimizer=yes",
                                           NULL};
static const char *const swiftmoe_offload[] = {"system=swiftmoe", "options.capacity-factor=0",
                                               "options.offload-optimizer=yes", NULL};
static const char *const flexmoe_offload[] = {"system=flexmoe", "options.interval=2",
                                              "options.offload-optimizer=yes", NULL};

static void make_text(void) {
    uint64_t state = seed;
    for (int i = 0; i < TEXT; i++) /* letters that follow from the last one, with surprises */
        byte[i] = (unsigned char)(i && test_random_int(&state, 0, 3)
                                      ? (byte[i - 1] * 5 + i / 512 + 7) % 32
                                      : test_random_int(&state, 0, 31));
}

/* Steps until the trainer's iteration is `end`; loss[iteration]. */
static void train(struct mp_trainer *trainer, int end, double loss[ITERATIONS]) {
    while (mp_trainer_iteration(trainer) < end) {
        struct mp_trainer_result result;
        struct mp_error error = {0};
        must(mp_trainer_step(trainer, &result, &error), &error);
        loss[result.iteration] = result.loss;
    }
}

static void note_choices_of_one_rank(void) {
    double loss[ITERATIONS];
    if (world->rank == 0) {
        noted = &choices;
        struct mp_trainer *trainer = create_trainer(self, &text, ep);
        train(trainer, ITERATIONS, loss);
        mp_trainer_destroy(trainer);
        noted = NULL;
    }
    share_choices(&choices);
}

static int enter(void **state) {
    struct mp_error error = {0};
    int code = world->rank == 0 ? enter_folder(state) : 0;
    must(mp_comm_broadcast(world, test_folder, sizeof test_folder, 0, &error), &error);
    must(mp_comm_self_create(&self, &error), &error);
    make_text();
    note_choices_of_one_rank();
    return code || chdir(test_folder);
}

static int leave(void **state) {
    forget_choices(&choices);
    mp_comm_destroy(self);
    mp_comm_barrier(world, NULL);
    return world->rank == 0 ? leave_folder(state) : 0;
}

/* What the plans brought and changed: copies of each stage, then owner changes. */
struct planned {
    int64_t number[MP_STAGES + 1];
};
static struct planned planned_by(const struct mp_trainer *trainer) {
    const struct mp_trainer_totals *totals = mp_trainer_totals(trainer);
    struct planned planned = {{0}};
    memcpy(planned.number, totals->copies, sizeof totals->copies);
    planned.number[MP_STAGES] = totals->moves;
    return planned;
}

/* Trains to SAVED_AT, saves, goes on to the end; the curve, and what was planned after saving. */
static struct planned save_and_go_on(struct mp_comm *comm, const char *const settings[],
                                     double loss[ITERATIONS]) {
    struct mp_error error = {0};
    struct mp_trainer *trainer = create_trainer(comm, &text, settings);
    train(trainer, SAVED_AT, loss);
    must(mp_trainer_save(trainer, "saved", &error), &error);
    struct planned before = planned_by(trainer);
    train(trainer, ITERATIONS, loss);
    /* Homes are not the first ones; two ranks may have room for all experts and move none. */
    if (comm->ranks > 2 && settings != ep && settings != biased && settings != deepspeed &&
        settings != zero && settings != zero_offload && settings != shards2 &&
        settings != shards2_zero)
        assert_true(mp_trainer_totals(trainer)->moves > 0);
    struct planned after = planned_by(trainer);
    for (int i = 0; i <= MP_STAGES; i++)
        after.number[i] -= before.number[i];
    mp_trainer_destroy(trainer);
    return after;
}

static struct planned restore_and_go_on(struct mp_comm *comm, const char *const settings[],
                                        double loss[ITERATIONS]) {
    struct mp_error error = {0};
    struct mp_trainer *trainer = create_trainer(comm, &text, settings);
    must(mp_trainer_restore(trainer, "saved", &error), &error);
    assert_int_equal(mp_trainer_iteration(trainer), SAVED_AT);
    train(trainer, ITERATIONS, loss);
    struct planned planned = planned_by(trainer);
    mp_trainer_destroy(trainer);
    return planned;
}

static const struct kept {
    const char *name;
    const char *const *settings;
} kept[] = {
    {"ep", ep},
    {"fssdp", fssdp},
    {"fssdp, switch,", fssdp_switch},
    {"a gate's bias", biased},
    {"flexmoe", flexmoe},
    {"eplb", eplb},
    {"swiftmoe", swiftmoe},
    {"laer", laer},
    {"laer, kept until backward,", laer_kept},
    {"smartmoe", smartmoe},
    {"deepspeed", deepspeed},
    {"zero", zero},
    {"zero with offload", zero_offload},
    {"swiftmoe with offload", swiftmoe_offload},
    {"flexmoe with offload", flexmoe_offload},
    {"shards", shards4_fssdp},
};

TEST_EACH(goes_on_bit_for_bit, kept, c) {
    const char *const *settings = c->settings;
    double expected[ITERATIONS], loss[ITERATIONS];
    struct planned unbroken = save_and_go_on(world, settings, expected);
    struct planned restored = restore_and_go_on(world, settings, loss);
    assert_memory_equal(&restored, &unbroken, sizeof unbroken); /* the load window came along */
    for (int i = SAVED_AT; i < ITERATIONS; i++)
        if (loss[i] != expected[i])
            fail_msg("iteration %d: loss %.17g, without a stop %.17g", i, loss[i], expected[i]);
    assert_true(expected[ITERATIONS - 1] < expected[0]); /* it learns */
}

static const struct change {
    const char *name;
    bool from_one, to_one; /* ranks: one, or all */
    const char *const *from, *const *to;
} changes[] = {
    {"ep to fssdp", false, false, ep, fssdp},
    {"fssdp to ep", false, false, fssdp, ep},
    {"fssdp to one rank", false, true, fssdp, fssdp},
    {"fssdp from one rank", true, false, fssdp, fssdp},
    {"ep to fssdp on one rank", false, true, ep, fssdp},
    {"fssdp on one rank to ep", true, false, fssdp, ep},
    {"whole experts in host memory to slices", false, false, flexmoe_offload, zero_offload},
    {"slices of replicas to slices of all", false, false, zero, laer},
    {"slices of all to slices of replicas", false, false, swiftmoe, zero_offload},
    {"slices of replicas to one rank", false, true, zero_offload, ep},
    {"replicas of all experts to one rank", false, true, deepspeed, laer},
    {"one rank to replicas of all experts", true, false, swiftmoe, deepspeed},
    {"whole experts to slices", false, false, ep, swiftmoe},
    {"slices to whole experts", false, false, swiftmoe, ep},
    {"slices to slices of one rank", false, true, swiftmoe, laer},
    {"slices of one rank to replicas", true, false, laer, flexmoe},
    {"laer to swiftmoe", false, false, laer, swiftmoe},
    {"replicas to owners", false, false, flexmoe, fssdp},
    {"replicas to slices", false, false, eplb, laer},
    {"one rank to replicas", true, false, fssdp, eplb},
    {"whole experts to slices of shards", false, false, ep, shards3_laer},
    {"slices of shards to other shards", false, false, shards3_laer, shards2},
    {"shards to whole experts of one rank", false, true, shards2, ep},
    {"slices of one rank to shards", true, false, zero, shards2},
    {"slices to slices of other shards", false, false, shards2_zero, shards3_laer},
    {"shards with copies to slices of others", false, false, shards4_fssdp, shards2_zero},
};

TEST_EACH(goes_on_under_others, changes, change) {
    double expected[ITERATIONS], loss[ITERATIONS], worst = 0;
    struct mp_error error = {0};
    followed = &choices;
    if (!change->from_one)
        save_and_go_on(world, change->from, expected);
    else if (world->rank == 0)
        save_and_go_on(self, change->from, expected);
    must(mp_comm_broadcast(world, expected, sizeof expected, 0, &error), &error);
    if (!change->to_one)
        restore_and_go_on(world, change->to, loss);
    else if (world->rank == 0)
        restore_and_go_on(self, change->to, loss);
    followed = NULL;
    must(mp_comm_broadcast(world, loss, sizeof loss, 0, &error), &error);
    for (int i = SAVED_AT; i < ITERATIONS; i++) {
        double difference = fabs(loss[i] / expected[i] - 1);
        worst = fmax(worst, difference);
        if (!(difference <= 1e-5))
            fail_msg("iteration %d: loss %.9g, without a stop %.9g", i, loss[i], expected[i]);
    }
    if (world->rank == 0)
        print_message("  largest relative difference %.2g\n", worst);
}

/* Slots, sizes of groups and states of another kind: initial homes, and the curve goes on. */
TEST(other_options_start_from_initial_homes) {
    static const struct {
        const char *system, *before, *after, *always;
    } cases[] = {
        {"flexmoe", "slots=5", "slots=6", "interval=2"},
        {"flexmoe", "slots=8", "slots=4", "interval=2"},
        {"swiftmoe", "slots=6", "slots=4", "capacity-factor=0"},
        {"swiftmoe", "slots=4", "slots=all", "capacity-factor=0"},
        {"laer", "slots=6", "slots=4", "layout=planned"},
        {"laer", "rematerialise=no", "rematerialise=yes", "slots=5"},
        {"laer", "layout=planned", "layout=static", "slots=4"},
        {"eplb", "replicas=all", "replicas=8", "interval=2"},
        {"eplb", "window=3", "window=5", "interval=2"},
        {"deepspeed", "expert-parallel=1", "expert-parallel=auto", "drop-tokens=no"},
        {"deepspeed", "expert-parallel=auto", "expert-parallel=1", "drop-tokens=no"},
        {"fssdp", "window=2", "window=4", "reshard-interval=2"},
        {"smartmoe", "history=2", "history=5", "interval=2"},
    };
    /* One rank has slots for all experts or refuses the job. */
    for (size_t i = 0; world->ranks > 1 && i < sizeof cases / sizeof *cases; i++) {
        char system[40], option[3][60];
        const char *settings[] = {system, option[1], option[0], NULL};
        double expected[ITERATIONS], loss[ITERATIONS];
        struct mp_error error = {0};
        snprintf(system, sizeof system, "system=%s", cases[i].system);
        snprintf(option[0], sizeof *option, "options.%s", cases[i].before);
        snprintf(option[1], sizeof *option, "options.%s", cases[i].always);
        snprintf(option[2], sizeof *option, "options.%s", cases[i].after);
        followed = &choices;
        struct mp_trainer *trainer = create_trainer(world, &text, settings);
        train(trainer, SAVED_AT, expected);
        must(mp_trainer_save(trainer, "saved", &error), &error);
        train(trainer, ITERATIONS, expected);
        mp_trainer_destroy(trainer);
        settings[2] = option[2];
        restore_and_go_on(world, settings, loss);
        followed = NULL;
        for (int step = SAVED_AT; step < ITERATIONS; step++)
            if (!(fabs(loss[step] / expected[step] - 1) <= 1e-5))
                fail_msg("%s, %s to %s: iteration %d: loss %.9g, without a stop %.9g",
                         cases[i].system, cases[i].before, cases[i].after, step, loss[step],
                         expected[step]);
    }
}

/* Every rank fails with this code and sentence (or is told that another one did). */
static void assert_refused(struct mp_trainer *trainer, int code, const char *message) {
    struct mp_error error = {0};
    int got = mp_trainer_restore(trainer, "saved", &error);
    if (got != code || !strstr(error.text, message))
        fail_msg("rank %d: %s: %s", world->rank, mp_code_name(got), error.text);
}

TEST(other_shapes_are_refused) {
    static const struct {
        const char *setting, *message;
    } cases[] = {{"width=64", "width is 32 there and 64 here"},
                 {"layers=3", "layers is 2 there and 3 here"},
                 {"experts=16", "experts is 8 there and 16 here"},
                 {"expert-width=40", "expert-width is 48 there and 40 here"},
                 {"heads=4", "heads is 2 there and 4 here"},
                 {"sequence=8", "sequence is 16 there and 8 here"}};
    double loss[ITERATIONS];
    save_and_go_on(world, fssdp, loss);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const settings[] = {"system=fssdp", cases[i].setting, NULL};
        struct mp_trainer *trainer = create_trainer(world, &text, settings);
        assert_refused(trainer, MP_EINVAL, cases[i].message);
        mp_trainer_destroy(trainer);
    }
}

/* Flips a byte of a file, or takes the file away; the same again undoes it. */
static void flip(const char *path) {
    FILE *file = fopen(path, "rb+");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long at = ftell(file) / 2;
    fseek(file, at, SEEK_SET);
    int old = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(old ^ 0x10, file);
    fclose(file);
}

TEST(broken_checkpoints_are_refused_everywhere) {
    struct mp_error error = {0};
    struct mp_trainer *trainer = create_trainer(world, &text, fssdp);
    double expected[ITERATIONS], loss[ITERATIONS];
    char last[64], path[128];
    save_and_go_on(world, fssdp, expected);
    snprintf(last, sizeof last, "experts-%04d.bin", world->ranks - 1);
    const char *const files[] = {"experts-0000.bin", last,         "homes.bin",
                                 "dense.bin",        "system.bin", "checkpoint.yaml"};
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "saved/%s", files[i]);
        if (world->rank == 0)
            assert_int_equal(rename(path, "aside"), 0);
        must(mp_comm_barrier(world, &error), &error);
        assert_refused(trainer, MP_ENOTFOUND, path);
        must(mp_comm_barrier(world, &error), &error);
        if (world->rank == 0)
            assert_int_equal(rename("aside", path), 0);
        if (i == 5)
            break;
        if (world->rank == 0)
            flip(path);
        must(mp_comm_barrier(world, &error), &error);
        assert_refused(trainer, MP_EFORMAT, "its checksum is wrong");
        must(mp_comm_barrier(world, &error), &error);
        if (world->rank == 0)
            flip(path);
    }
    must(mp_comm_barrier(world, &error), &error);
    /* The same trainers take the whole checkpoint and go on. */
    must(mp_trainer_restore(trainer, "saved", &error), &error);
    train(trainer, ITERATIONS, loss);
    assert_memory_equal(loss + SAVED_AT, expected + SAVED_AT,
                        (ITERATIONS - SAVED_AT) * sizeof *loss);
    mp_trainer_destroy(trainer);
}

/* The last rank can't write its shard, as on a full disk: all know, and the previous checkpoint
 * stays. */
TEST(one_rank_that_can_not_save_fails_all) {
    struct mp_error error = {0};
    double expected[ITERATIONS], loss[ITERATIONS];
    bool last = world->rank == world->ranks - 1;
    struct rlimit before, limit;
    save_and_go_on(world, ep, expected);
    struct mp_trainer *trainer = create_trainer(world, &text, ep);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){1000, before.rlim_max};
    if (last)
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int code = mp_trainer_save(trainer, "saved", &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(code, MP_ENOSPACE);
    assert_non_null(strstr(error.text, last ? "File too large" : "another rank failed"));
    mp_trainer_destroy(trainer);
    restore_and_go_on(world, ep, loss);
    assert_memory_equal(loss + SAVED_AT, expected + SAVED_AT,
                        (ITERATIONS - SAVED_AT) * sizeof *loss);
}

TEST_GROUP(enter, leave);

int main(void) {
    return run_on_all_ranks();
}
