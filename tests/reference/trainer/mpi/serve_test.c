/* Serving: a step behind cached tokens gives the logits of one prefill of all of them; every system
 * gives those of one rank, wherever its experts are, and keeps nothing that only training needs. */
#include "reference/base/random.h"
#include "tests/reference/trainer/mpi/trainers.h"

enum { BATCH = 8, POSITIONS = 17, STEPS = 6, SETTINGS = 16 };
static const double TOLERANCE = 1e-5;

/* Token `place` of a sequence in a step's text. */
static int32_t token_at(int64_t iteration, int sequence, int place) {
    uint64_t at = (uint64_t)((iteration * BATCH + sequence) * (POSITIONS + 1) + place);
    return (int32_t)mp_random_below(seed, 1, at, 256);
}

/* Tokens [first, first + count) of this rank's sequences, all of them behind the first text's. */
static void take_tokens(const struct mp_trainer *trainer, int64_t iteration, int first, int count,
                        int32_t *token) {
    for (int b = 0; b < trainer->batch.sequences; b++)
        for (int i = 0; i < count; i++)
            token[b * count + i] =
                token_at(iteration, trainer->comm->rank * trainer->batch.sequences + b, first + i);
}

/* Logits of this rank's sequences after each step, in the order of all: [steps][BATCH][V]. */
static void serve(struct mp_trainer *trainer, int steps, float *logits) {
    struct mp_model *model = mp_trainer_model(trainer);
    int32_t token[BATCH * POSITIONS], target[BATCH];
    int context = trainer->job.context, each = mp_job_step_tokens(&trainer->job);
    size_t own = (size_t)trainer->batch.sequences * MP_VOCABULARY;
    struct mp_error error = {0};
    take_tokens(trainer, 0, 0, context, token);
    must(mp_trainer_fill_on(trainer, token, &error), &error);
    for (int i = 0; i < steps; i++) {
        struct mp_trainer_result result;
        take_tokens(trainer, i, context, each, token);
        take_tokens(trainer, i, context + each, 1, target);
        must(mp_trainer_step_on(trainer, token, target, &result, &error), &error);
        mp_model_logits(model);
        memcpy(logits +
                   ((size_t)i * BATCH + (size_t)(trainer->comm->rank * trainer->batch.sequences)) *
                       MP_VOCABULARY,
               model->logits, own * sizeof *logits);
    }
}

static void compare(const struct mp_trainer *trainer, const char *what, int steps,
                    const float *logits, const float *expected) {
    size_t each = (size_t)trainer->batch.sequences * MP_VOCABULARY;
    for (int i = 0; i < steps; i++)
        for (size_t k = 0; k < each; k++) {
            size_t at =
                ((size_t)i * (size_t)trainer->comm->ranks + (size_t)trainer->comm->rank) * each + k;
            if (fabs((double)logits[at] - (double)expected[at]) <= TOLERANCE)
                continue;
            print_error("%s, step %d, rank %d, logit %zu: %.9g, should be %.9g\n", what, i,
                        trainer->comm->rank, k, (double)logits[at], (double)expected[at]);
            mp_comm_abort(world, 1);
        }
}

/* With all experts of every token no rounding decides anything. */
TEST(cached_tokens_are_as_good_as_new) {
    static const char *const cuts[][3] = {{"mode=prefill", "sequence=12", "context=0"},
                                          {"mode=decode", "sequence=99", "context=11"},
                                          {"mode=prefill", "sequence=4", "context=8"},
                                          {"mode=prefill", "sequence=5", "context=7"},
                                          {"mode=prefill", "sequence=9", "context=3"}};
    static float whole[BATCH * MP_VOCABULARY], cut[BATCH * MP_VOCABULARY];
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const char *settings[] = {"system=ep", "gate=softmax", "top-k=all", cuts[i][0],
                                  cuts[i][1],  cuts[i][2],     NULL};
        struct mp_trainer *trainer = create_trainer(world, NULL, settings);
        serve(trainer, 1, i ? cut : whole);
        compare(trainer, cuts[i][1], 1, i ? cut : whole, whole);
        mp_trainer_destroy(trainer);
    }
    /* Logits do depend on the first token, and on the order of the others. */
    float least = whole[0], most = whole[0];
    for (int i = 0; i < MP_VOCABULARY; i++) {
        least = fminf(least, whole[i]);
        most = fmaxf(most, whole[i]);
    }
    assert_true(world->rank > 0 || most - least > 1000 * (float)TOLERANCE);
}

/* Trains, saves, and gives the logits of all places of the first text: [BATCH / ranks][16][V]. */
static void train(const char *folder, float *logits) {
    enum { SEQUENCE = 16 };
    const char *settings[] = {"system=ep", "gate=softmax", "top-k=all", "sequence=16", NULL};
    struct mp_trainer *trainer = create_trainer(world, NULL, settings);
    struct mp_model *model = mp_trainer_model(trainer);
    struct mp_trainer_result result;
    struct mp_error error = {0};
    int32_t token[BATCH * SEQUENCE], target[BATCH * SEQUENCE];
    take_tokens(trainer, 0, 0, SEQUENCE, token);
    take_tokens(trainer, 0, 1, SEQUENCE, target);
    for (int i = 0; i < 3; i++)
        must(mp_trainer_step_on(trainer, token, target, &result, &error), &error);
    must(mp_trainer_save(trainer, folder, &error), &error);
    must(mp_trainer_forward(trainer, token, target, &error), &error);
    mp_model_logits(model);
    memcpy(logits, model->logits, (size_t)model->tokens * MP_VOCABULARY * sizeof *model->logits);
    mp_trainer_destroy(trainer);
}

/* Of a checkpoint with more positions than are served, whole experts and their slices. */
TEST(a_checkpoint_is_served_as_it_was_trained) {
    static float trained[BATCH * 16 * MP_VOCABULARY], served[BATCH * MP_VOCABULARY];
    static float expected[BATCH * MP_VOCABULARY];
    char folder[64];
    struct mp_error error = {0};
    name_file(folder, "serve");
    train(folder, trained);
    for (int i = 0; i < 2; i++) {
        const char *settings[] = {i ? "system=swiftmoe" : "system=fssdp",
                                  i ? "options.capacity-factor=0" : "options.memory=2",
                                  "gate=softmax",
                                  "top-k=all",
                                  "mode=prefill",
                                  "sequence=4",
                                  "context=8",
                                  NULL};
        struct mp_trainer *trainer = create_trainer(world, NULL, settings);
        must(mp_trainer_restore(trainer, folder, &error), &error);
        assert_int_equal(mp_trainer_iteration(trainer), 0);
        serve(trainer, 1, served);
        for (int b = 0; b < trainer->batch.sequences; b++)
            memcpy(expected + (size_t)(world->rank * trainer->batch.sequences + b) * MP_VOCABULARY,
                   trained + (size_t)(b * 16 + 11) * MP_VOCABULARY,
                   MP_VOCABULARY * sizeof *expected);
        compare(trainer, settings[0], 1, served, expected);
        mp_trainer_destroy(trainer);
    }
    /* Positions that it has not can't be served. */
    const char *longer[] = {"system=ep",   "gate=softmax", "top-k=all",
                            "mode=decode", "context=16",   NULL};
    struct mp_trainer *trainer = create_trainer(world, NULL, longer);
    assert_int_equal(mp_trainer_restore(trainer, folder, &error), MP_EINVAL);
    assert_non_null(strstr(error.text, "sequence is 16 there and 17 here"));
    mp_trainer_destroy(trainer);
    must(mp_comm_barrier(world, &error), &error);
    if (world->rank == 0) {
        char command[128];
        snprintf(command, sizeof command, "rm -r %s", folder);
        assert_int_equal(system(command), 0);
    }
}

/* What each system needs to drop nothing and to do what it is there for in so few steps. */
enum { ACTS_NOT, COPIES, COPIES_IN_NODES, MOVES };
static const struct {
    const char *system, *options[5];
    int acts; /* what must be met, on several ranks */
} acting[] = {
    {"deepspeed", {"options.drop-tokens=no", "options.zero=1"}, ACTS_NOT},
    {"deepspeed",
     {"options.drop-tokens=no", "options.zero=1", "options.expert-parallel=1",
      "options.multi-rank-bucket-allreduce=no", "options.offload-optimizer=yes"},
     ACTS_NOT},
    {"eplb", {"options.interval=2"}, MOVES},
    {"fastermoe",
     {"options.policy=released-fixed", "options.group-size=1", "options.bandwidth=1e15",
      "options.expert-flops=1e6"},
     COPIES},
    {"flexmoe", {"options.slots=6", "options.interval=1", "options.moves=exposed"}, MOVES},
    {"flexmoe", {"options.slots=6", "options.interval=1"}, MOVES},
    {"flexmoe", {"options.slots=6", "options.interval=1", "options.offload-optimizer=yes"}, MOVES},
    {"fssdp", {"options.memory=4", "options.overlap=all", "options.reshard-interval=2"}, COPIES},
    {"fssdp", {"options.rematerialise=yes", "options.overlap=all"}, COPIES},
    {"harmoeny", {"options.least=1"}, COPIES},
    {"hetumoe", {"options.capacity-factor=16"}, ACTS_NOT},
    {"hiermoe", {"options.interval=2"}, ACTS_NOT},
    {"hiermoe", {"options.hierarchy=2", "options.depth=2"}, ACTS_NOT},
    {"laer", {"options.slots=5", "options.prefetch=2", "options.rematerialise=no"}, COPIES},
    {"llep", {"options.smallest-gemm=1", "options.threshold=1"}, COPIES},
    {"moonep", {NULL}, COPIES},
    {"nodewise", {"options.cover=all"}, ACTS_NOT},
    {"smartmoe", {"options.interval=2"}, ACTS_NOT},
    {"swiftmoe", {"options.capacity-factor=0"}, MOVES},
    {"tutel", {"options.capacity-factor=0"}, ACTS_NOT},
    {"tutel", {"options.capacity-factor=0", "options.r=0"}, COPIES},
    {"ultraep", {"options.least-quota=1"}, COPIES_IN_NODES},
};

/* A system's case number `turn`, or its defaults; false: it has no more. */
static bool settings_of(const char *system, int turn, int *found, const char *settings[]) {
    int count = 0, seen = 0;
    *found = -1;
    for (size_t i = 0; i < sizeof acting / sizeof *acting && *found < 0; i++)
        if (strcmp(acting[i].system, system) == 0 && seen++ == turn)
            *found = (int)i;
    for (int o = 0; *found >= 0 && o < 5 && acting[*found].options[o]; o++)
        settings[count++] = acting[*found].options[o];
    settings[count] = NULL;
    return *found >= 0 || (turn == 0 && seen == 0);
}

static void nothing_of_training_is_left(const struct mp_trainer *trainer) {
    const struct mp_model *model = &trainer->model;
    const struct mp_trainer_totals *totals = &trainer->totals;
    assert_null(model->dense.gradient);
    assert_null(model->dense.first);
    assert_null(model->dense.second);
    assert_null(model->experts.gradient);
    assert_null(model->experts.first);
    assert_null(model->experts.second);
    assert_null(model->experts.copy_gradient);
    assert_null(model->experts.host_gradient);
    assert_null(model->dx);
    assert_int_equal(totals->bytes[MP_STAGE_BACKWARD_PREFETCH], 0);
    assert_int_equal(totals->bytes[MP_STAGE_BACKWARD_REDUCE], 0);
    assert_int_equal(totals->copies[MP_STAGE_BACKWARD_PREFETCH], 0);
    assert_int_equal(totals->dropped, 0);
    assert_int_equal(trainer->planner.move.state, 0);
}

struct mode {
    const char *settings[3];
    struct choices choices;
    float *logits; /* [STEPS][BATCH][V] of one rank */
    bool known;
};

/* Of one rank, on every rank. */
static void know(struct mode *mode) {
    const char *settings[] = {"system=ep",       "ranks-per-node=all", mode->settings[0],
                              mode->settings[1], mode->settings[2],    NULL};
    size_t bytes = (size_t)STEPS * BATCH * MP_VOCABULARY * sizeof *mode->logits;
    struct mp_comm *self;
    mode->logits = malloc(bytes);
    assert_non_null(mode->logits);
    if (world->rank == 0) {
        assert_int_equal(mp_comm_self_create(&self, NULL), MP_OK);
        noted = &mode->choices;
        struct mp_trainer *trainer = create_trainer(self, NULL, settings);
        serve(trainer, STEPS, mode->logits);
        noted = NULL;
        mp_trainer_destroy(trainer);
        mp_comm_destroy(self);
    }
    assert_int_equal(mp_comm_broadcast(world, mode->logits, bytes, 0, NULL), MP_OK);
    share_choices(&mode->choices);
}

/* Of all systems that move experts: the few tokens of one may have even loads. */
static int64_t moves_met;

static void run_case(const struct mode *mode, const char *system, int found, int nodes,
                     const char *const options[]) {
    static float logits[STEPS * BATCH * MP_VOCABULARY];
    char name[64], declared[32];
    const char *settings[SETTINGS] = {name, "ranks-per-node=all", declared};
    int count = 3;
    snprintf(name, sizeof name, "system=%s", system);
    snprintf(declared, sizeof declared, "nodes=%d", nodes);
    for (int i = 0; i < 3; i++)
        settings[count++] = mode->settings[i];
    for (int i = 0; options[i]; i++)
        settings[count++] = options[i];
    followed = &mode->choices;
    struct mp_trainer *trainer = create_trainer(world, NULL, settings);
    serve(trainer, STEPS, logits);
    followed = NULL;
    compare(trainer, name, STEPS, logits, mode->logits);
    nothing_of_training_is_left(trainer);
    const struct mp_trainer_totals *totals = mp_trainer_totals(trainer);
    int acts = found >= 0 && world->ranks > 1 ? acting[found].acts : ACTS_NOT;
    bool copies = acts == COPIES || (acts == COPIES_IN_NODES && nodes < world->ranks);
    assert_true(!copies ||
                totals->bytes[MP_STAGE_BEFORE_GATE] + totals->bytes[MP_STAGE_AFTER_GATE] > 0);
    moves_met += acts == MOVES ? totals->moves : 0;
    mp_trainer_destroy(trainer);
}

/* One, two or four declared nodes in turn, as far as there are ranks for them. */
static int nodes_of(int turn) {
    int nodes = 1 << turn % 3;
    return nodes < world->ranks ? nodes : world->ranks;
}

TEST(all_systems_serve_as_one_rank) {
    struct mode modes[] = {{.settings = {"mode=decode", "context=5", "layers=3"}},
                           {.settings = {"mode=prefill", "sequence=4", "context=3"}}};
    struct mp_systems systems = {0};
    struct mp_error error = {0};
    must(mp_systems_register_all(&systems, &error), &error);
    for (int m = 0; m < 2; m++) {
        know(&modes[m]);
        for (int s = 0; s < systems.count; s++) {
            const char *name = systems.item[s]->name, *options[SETTINGS] = {NULL};
            for (int turn = 0, found; settings_of(name, turn, &found, options); turn++)
                run_case(&modes[m], name, found, nodes_of(s + turn + m), options);
        }
        forget_choices(&modes[m].choices);
        free(modes[m].logits);
    }
    assert_true(world->ranks == 1 || moves_met > 0);
}

int main(void) {
    return run_on_all_ranks();
}
