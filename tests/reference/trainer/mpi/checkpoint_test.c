/* Checkpoints over ranks and systems: training goes on as if it had never stopped, bit for bit
 * under the same ranks and system, and within rounding under others; whatever is wrong with a
 * checkpoint, every rank says so and none waits. */
#include "tests/harness/folder.h"
#include "tests/reference/trainer/mpi/trainers.h"

enum { ITERATIONS = 10, SAVED_AT = 5, TEXT = 4096 };
static struct choices choices; /* of one rank's gates */
static unsigned char byte[TEXT];
static const struct mp_text text = {.byte = byte, .size = TEXT, .training = TEXT};

#define EP "system=ep"
#define FSSDP                                                                                      \
    "system=fssdp options.window=3 options.overlap=2 options.memory=2 options.reshard-interval=2 " \
    "options.rematerialise=yes"
#define DEEPSPEED "system=deepspeed options.expert-parallel=1 options.drop-tokens=no"
#define FLEXMOE "system=flexmoe options.interval=2"
#define SWIFTMOE "system=swiftmoe options.capacity-factor=0"
#define OFFLOADED " options.offload-optimizer=yes"
#define ZERO DEEPSPEED " options.zero=1"
#define ZERO_OFFLOADED ZERO " options.multi-rank-bucket-allreduce=no" OFFLOADED
#define EPLB "system=eplb options.interval=2"
#define LAER "system=laer"
#define SHARDS_FSSDP                                                                               \
    "system=fssdp expert-shards=4 options.window=3 options.overlap=2 options.memory=2 "            \
    "options.reshard-interval=2"

/* Steps until the trainer's iteration is `end`; loss[iteration]. */
static void train(struct mp_trainer *trainer, int end, double loss[ITERATIONS]) {
    while (mp_trainer_iteration(trainer) < end) {
        struct mp_trainer_result result;
        must(mp_trainer_step(trainer, &result, &error));
        loss[result.iteration] = result.loss;
    }
}

static void note_choices_of_one_rank(void) {
    double loss[ITERATIONS];
    if (world->rank == 0) {
        noted = &choices;
        struct mp_trainer *trainer = create_trainer(alone, &text, EP);
        train(trainer, ITERATIONS, loss);
        mp_trainer_destroy(trainer);
        noted = NULL;
    }
    share_choices(&choices);
}

static int enter(void **state) {
    int code = world->rank == 0 ? enter_folder(state) : 0;
    must(mp_comm_broadcast(world, test_folder, sizeof test_folder, 0, &error));
    random_text(byte, TEXT);
    note_choices_of_one_rank();
    return code || chdir(test_folder);
}

static int leave(void **state) {
    forget_choices(&choices);
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
static struct planned save_and_go_on(struct mp_comm *comm, const char *settings, bool moves,
                                     double loss[ITERATIONS]) {
    AUTO(trainer) struct mp_trainer *trainer = create_trainer(comm, &text, settings);
    train(trainer, SAVED_AT, loss);
    must(mp_trainer_save(trainer, "saved", &error));
    struct planned before = planned_by(trainer);
    train(trainer, ITERATIONS, loss);
    /* Homes are not the first ones; two ranks may have room for all experts and move none. */
    if (comm->ranks > 2 && moves)
        assert_true(mp_trainer_totals(trainer)->moves > 0);
    struct planned after = planned_by(trainer);
    for (int i = 0; i <= MP_STAGES; i++)
        after.number[i] -= before.number[i];
    return after;
}

static struct planned restore_and_go_on(struct mp_comm *comm, const char *settings,
                                        double loss[ITERATIONS]) {
    AUTO(trainer) struct mp_trainer *trainer = create_trainer(comm, &text, settings);
    must(mp_trainer_restore(trainer, "saved", &error));
    assert_int_equal(mp_trainer_iteration(trainer), SAVED_AT);
    train(trainer, ITERATIONS, loss);
    struct planned planned = planned_by(trainer);
    return planned;
}

static const struct kept {
    const char *name, *settings;
    bool stays; /* homes are never others */
} kept[] = {
    {"ep", EP, true},
    {"fssdp", FSSDP, false},
    {"fssdp, switch,",
     "system=fssdp gate=switch options.window=2 options.overlap=1 options.memory=1 "
     "options.reshard-interval=2",
     false},
    {"a gate's bias", "system=ep gate=sigmoid top-k=2 gate-options.bias-rate=0.05", true},
    /* Replicas that come and go, experts in slices that are put together after a step or before a
     * gate, and experts that change places. */
    {"flexmoe", FLEXMOE, false},
    {"eplb", EPLB, false},
    {"swiftmoe", SWIFTMOE, false},
    {"laer", LAER, false},
    {"laer, kept until backward,", "system=laer options.rematerialise=no", false},
    {"smartmoe", "system=smartmoe options.interval=2", false},
    {"deepspeed", DEEPSPEED, true},
    /* Slices of replicas, with state in host memory and without. */
    {"zero", ZERO, true},
    {"zero with offload", ZERO_OFFLOADED, true},
    {"swiftmoe with offload", SWIFTMOE OFFLOADED, false},
    {"flexmoe with offload", FLEXMOE OFFLOADED, false},
    {"shards", SHARDS_FSSDP, false},
};

TEST_EACH(goes_on_bit_for_bit, kept, c) {
    double expected[ITERATIONS], loss[ITERATIONS];
    struct planned unbroken = save_and_go_on(world, c->settings, !c->stays, expected);
    struct planned restored = restore_and_go_on(world, c->settings, loss);
    assert_memory_equal(&restored, &unbroken, sizeof unbroken); /* the load window came along */
    for (int i = SAVED_AT; i < ITERATIONS; i++)
        if (loss[i] != expected[i])
            fail_msg("iteration %d: loss %.17g, without a stop %.17g", i, loss[i], expected[i]);
    assert_true(expected[ITERATIONS - 1] < expected[0]); /* it learns */
}

/* Within rounding. */
static void assert_goes_on(const double loss[], const double expected[]) {
    double worst = 0;
    for (int i = SAVED_AT; i < ITERATIONS; i++) {
        double difference = fabs(loss[i] / expected[i] - 1);
        worst = fmax(worst, difference);
        if (!(difference <= 1e-5))
            fail_msg("iteration %d: loss %.9g, without a stop %.9g", i, loss[i], expected[i]);
    }
    if (world->rank == 0)
        print_message("  largest relative difference %.2g\n", worst);
}

/* Experts cut into shards, which owners have, or all ranks or replicas in slices. */
#define SHARDS2 "system=ep expert-shards=2"
#define SHARDS3_LAER "system=laer expert-shards=3"
#define SHARDS2_ZERO ZERO " expert-shards=2"

static const struct change {
    const char *name;
    bool from_one, to_one; /* ranks: one, or all */
    const char *from, *to;
} changes[] = {
    {"ep to fssdp", false, false, EP, FSSDP},
    {"fssdp to ep", false, false, FSSDP, EP},
    {"fssdp to one rank", false, true, FSSDP, FSSDP},
    {"fssdp from one rank", true, false, FSSDP, FSSDP},
    {"ep to fssdp on one rank", false, true, EP, FSSDP},
    {"fssdp on one rank to ep", true, false, FSSDP, EP},
    {"whole experts in host memory to slices", false, false, FLEXMOE OFFLOADED, ZERO_OFFLOADED},
    {"slices of replicas to slices of all", false, false, ZERO, LAER},
    {"slices of all to slices of replicas", false, false, SWIFTMOE, ZERO_OFFLOADED},
    {"slices of replicas to one rank", false, true, ZERO_OFFLOADED, EP},
    {"replicas of all experts to one rank", false, true, DEEPSPEED, LAER},
    {"one rank to replicas of all experts", true, false, SWIFTMOE, DEEPSPEED},
    {"whole experts to slices", false, false, EP, SWIFTMOE},
    {"slices to whole experts", false, false, SWIFTMOE, EP},
    {"slices to slices of one rank", false, true, SWIFTMOE, LAER},
    {"slices of one rank to replicas", true, false, LAER, FLEXMOE},
    {"laer to swiftmoe", false, false, LAER, SWIFTMOE},
    {"replicas to owners", false, false, FLEXMOE, FSSDP},
    {"replicas to slices", false, false, EPLB, LAER},
    {"one rank to replicas", true, false, FSSDP, EPLB},
    {"whole experts to slices of shards", false, false, EP, SHARDS3_LAER},
    {"slices of shards to other shards", false, false, SHARDS3_LAER, SHARDS2},
    {"shards to whole experts of one rank", false, true, SHARDS2, EP},
    {"slices of one rank to shards", true, false, ZERO, SHARDS2},
    {"slices to slices of other shards", false, false, SHARDS2_ZERO, SHARDS3_LAER},
    {"shards with copies to slices of others", false, false, SHARDS_FSSDP, SHARDS2_ZERO},
};

TEST_EACH(goes_on_under_others, changes, change) {
    double expected[ITERATIONS], loss[ITERATIONS];
    followed = &choices;
    if (!change->from_one)
        save_and_go_on(world, change->from, false, expected);
    else if (world->rank == 0)
        save_and_go_on(alone, change->from, false, expected);
    must(mp_comm_broadcast(world, expected, sizeof expected, 0, &error));
    if (!change->to_one)
        restore_and_go_on(world, change->to, loss);
    else if (world->rank == 0)
        restore_and_go_on(alone, change->to, loss);
    followed = NULL;
    must(mp_comm_broadcast(world, loss, sizeof loss, 0, &error));
    assert_goes_on(loss, expected);
}

/* Slots, sizes of groups and states of another kind: initial homes, and the curve goes on. */
static const struct {
    const char *name, *always, *before, *after;
} options[] = {
    {"flexmoe, more slots", "flexmoe options.interval=2", "slots=5", "slots=6"},
    {"flexmoe, fewer slots", "flexmoe options.interval=2", "slots=8", "slots=4"},
    {"swiftmoe, fewer slots", "swiftmoe options.capacity-factor=0", "slots=6", "slots=4"},
    {"swiftmoe, all slots", "swiftmoe options.capacity-factor=0", "slots=4", "slots=all"},
    {"laer, fewer slots", "laer options.layout=planned", "slots=6", "slots=4"},
    {"laer, again", "laer options.slots=5", "rematerialise=no", "rematerialise=yes"},
    {"laer, static", "laer options.slots=4", "layout=planned", "layout=static"},
    {"eplb, fewer replicas", "eplb options.interval=2", "replicas=all", "replicas=8"},
    {"eplb, longer window", "eplb options.interval=2", "window=3", "window=5"},
    {"deepspeed, larger groups", "deepspeed options.drop-tokens=no", "expert-parallel=1",
     "expert-parallel=auto"},
    {"deepspeed, smaller groups", "deepspeed options.drop-tokens=no", "expert-parallel=auto",
     "expert-parallel=1"},
    {"fssdp, longer window", "fssdp options.reshard-interval=2", "window=2", "window=4"},
    {"smartmoe, longer history", "smartmoe options.interval=2", "history=2", "history=5"},
};

TEST_EACH(other_options_start_from_initial_homes, options, c) {
    double expected[ITERATIONS], loss[ITERATIONS];
    if (world->ranks == 1) /* which has slots for all experts or refuses the job */
        return;
    followed = &choices;
    save_and_go_on(world, formatted("system=%s options.%s", c->always, c->before), false, expected);
    restore_and_go_on(world, formatted("system=%s options.%s", c->always, c->after), loss);
    followed = NULL;
    assert_goes_on(loss, expected);
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
    save_and_go_on(world, FSSDP, true, loss);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO(trainer)
        struct mp_trainer *trainer =
            create_trainer(world, &text, formatted("system=fssdp %s", cases[i].setting));
        assert_refused(trainer, MP_EINVAL, cases[i].message);
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
    AUTO(trainer) struct mp_trainer *trainer = create_trainer(world, &text, FSSDP);
    double expected[ITERATIONS], loss[ITERATIONS];
    char last[64], path[128];
    save_and_go_on(world, FSSDP, true, expected);
    snprintf(last, sizeof last, "experts-%04d.bin", world->ranks - 1);
    const char *const files[] = {"experts-0000.bin", last,         "homes.bin",
                                 "dense.bin",        "system.bin", "checkpoint.yaml"};
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "saved/%s", files[i]);
        if (world->rank == 0)
            assert_int_equal(rename(path, "aside"), 0);
        must(mp_comm_barrier(world, &error));
        assert_refused(trainer, MP_ENOTFOUND, path);
        must(mp_comm_barrier(world, &error));
        if (world->rank == 0)
            assert_int_equal(rename("aside", path), 0);
        if (i == 5)
            break;
        if (world->rank == 0)
            flip(path);
        must(mp_comm_barrier(world, &error));
        assert_refused(trainer, MP_EFORMAT, "its checksum is wrong");
        must(mp_comm_barrier(world, &error));
        if (world->rank == 0)
            flip(path);
    }
    must(mp_comm_barrier(world, &error));
    /* The same trainers take the whole checkpoint and go on. */
    must(mp_trainer_restore(trainer, "saved", &error));
    train(trainer, ITERATIONS, loss);
    assert_memory_equal(loss + SAVED_AT, expected + SAVED_AT,
                        (ITERATIONS - SAVED_AT) * sizeof *loss);
}

/* The last rank can't write its shard, as on a full disk: all know, and the previous checkpoint
 * stays. */
TEST(one_rank_that_can_not_save_fails_all) {
    struct mp_error error = {0};
    double expected[ITERATIONS], loss[ITERATIONS];
    bool last = world->rank == world->ranks - 1;
    save_and_go_on(world, EP, false, expected);
    struct mp_trainer *trainer = create_trainer(world, &text, EP);
    limit_files(last ? 1000 : RLIM_INFINITY);
    int code = mp_trainer_save(trainer, "saved", &error);
    limit_files(RLIM_INFINITY);
    assert_int_equal(code, MP_ENOSPACE);
    assert_contains(error.text, last ? "File too large" : "another rank failed");
    mp_trainer_destroy(trainer);
    restore_and_go_on(world, EP, loss);
    assert_memory_equal(loss + SAVED_AT, expected + SAVED_AT,
                        (ITERATIONS - SAVED_AT) * sizeof *loss);
}

TEST_GROUP(enter, leave);
