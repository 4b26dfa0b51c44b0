/* Serving: a step behind cached tokens gives the logits of one prefill of all of them; every system
 * gives those of one rank, wherever its experts are, and keeps nothing that only training needs. */
#include "tests/errors.h"
#include "tests/reference/plan/wanderer.h"
#include "tests/reference/trainer/mpi/trainers.h"

enum { BATCH = 8, POSITIONS = 17, STEPS = 6 };
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
    take_tokens(trainer, 0, 0, context, token);
    must(mp_trainer_fill_on(trainer, token, &error));
    for (int i = 0; i < steps; i++) {
        struct mp_trainer_result result;
        take_tokens(trainer, i, context, each, token);
        take_tokens(trainer, i, context + each, 1, target);
        must(mp_trainer_step_on(trainer, token, target, &result, &error));
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
    static const char *const cuts[] = {
        "mode=prefill sequence=12 context=0", "mode=decode sequence=99 context=11",
        "mode=prefill sequence=4 context=8", "mode=prefill sequence=5 context=7",
        "mode=prefill sequence=9 context=3"};
    static float whole[BATCH * MP_VOCABULARY], cut[BATCH * MP_VOCABULARY];
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        AUTO(trainer)
        struct mp_trainer *trainer =
            create_trainer(world, NULL, formatted("system=ep gate=softmax top-k=all %s", cuts[i]));
        serve(trainer, 1, i ? cut : whole);
        compare(trainer, cuts[i], 1, i ? cut : whole, whole);
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
    AUTO(trainer)
    struct mp_trainer *trainer =
        create_trainer(world, NULL, "system=ep gate=softmax top-k=all sequence=16");
    struct mp_model *model = mp_trainer_model(trainer);
    struct mp_trainer_result result;
    int32_t token[BATCH * SEQUENCE], target[BATCH * SEQUENCE];
    take_tokens(trainer, 0, 0, SEQUENCE, token);
    take_tokens(trainer, 0, 1, SEQUENCE, target);
    for (int i = 0; i < 3; i++)
        must(mp_trainer_step_on(trainer, token, target, &result, &error));
    must(mp_trainer_save(trainer, folder, &error));
    must(mp_trainer_forward(trainer, token, target, &error));
    mp_model_logits(model);
    memcpy(logits, model->logits, (size_t)model->tokens * MP_VOCABULARY * sizeof *model->logits);
}

/* Of a checkpoint with more positions than are served, whole experts and their slices. */
TEST(a_checkpoint_is_served_as_it_was_trained) {
    static float trained[BATCH * 16 * MP_VOCABULARY], served[BATCH * MP_VOCABULARY];
    static float expected[BATCH * MP_VOCABULARY];
    char folder[64];
    name_file(folder, "serve");
    train(folder, trained);
    for (int i = 0; i < 2; i++) {
        const char *system =
            i ? "system=swiftmoe options.capacity-factor=0" : "system=fssdp options.memory=2";
        AUTO(trainer)
        struct mp_trainer *trainer = create_trainer(
            world, NULL,
            formatted("%s gate=softmax top-k=all mode=prefill sequence=4 context=8", system));
        must(mp_trainer_restore(trainer, folder, &error));
        assert_int_equal(mp_trainer_iteration(trainer), 0);
        serve(trainer, 1, served);
        for (int b = 0; b < trainer->batch.sequences; b++)
            memcpy(expected + (size_t)(world->rank * trainer->batch.sequences + b) * MP_VOCABULARY,
                   trained + (size_t)(b * 16 + 11) * MP_VOCABULARY,
                   MP_VOCABULARY * sizeof *expected);
        compare(trainer, system, 1, served, expected);
    }
    /* Positions that it has not can't be served. */
    struct mp_trainer *trainer =
        create_trainer(world, NULL, "system=ep gate=softmax top-k=all mode=decode context=16");
    assert_fails(mp_trainer_restore(trainer, folder, &error), MP_EINVAL,
                 "sequence is 16 there and 17 here");
    mp_trainer_destroy(trainer);
    must(mp_comm_barrier(world, &error));
    if (world->rank == 0) {
        assert_int_equal(system(formatted("rm -r %s", folder)), 0);
    }
}

/* What each system needs to drop nothing and to do what it is there for in so few steps. */
enum { ACTS_NOT, COPIES, COPIES_IN_NODES, MOVES };
static const struct {
    const char *settings;
    int acts; /* what must be met, on several ranks */
} acting[] = {
    {"system=deepspeed options.drop-tokens=no options.zero=1", ACTS_NOT},
    {"system=deepspeed options.drop-tokens=no options.zero=1 options.expert-parallel=1 "
     "options.multi-rank-bucket-allreduce=no options.offload-optimizer=yes",
     ACTS_NOT},
    {"system=eplb options.interval=2", MOVES},
    {"system=fastermoe options.policy=released-fixed options.group-size=1 options.bandwidth=1e15 "
     "options.expert-flops=1e6",
     COPIES},
    {"system=flexmoe options.slots=6 options.interval=1 options.moves=exposed", MOVES},
    {"system=flexmoe options.slots=6 options.interval=1", MOVES},
    {"system=flexmoe options.slots=6 options.interval=1 options.offload-optimizer=yes", MOVES},
    {"system=fssdp options.memory=4 options.overlap=all options.reshard-interval=2", COPIES},
    {"system=fssdp options.rematerialise=yes options.overlap=all", COPIES},
    {"system=harmoeny options.least=1", COPIES},
    {"system=hetumoe options.capacity-factor=16", ACTS_NOT},
    {"system=hiermoe options.interval=2", ACTS_NOT},
    {"system=hiermoe options.hierarchy=2 options.depth=2", ACTS_NOT},
    {"system=laer options.slots=5 options.prefetch=2 options.rematerialise=no", COPIES},
    {"system=llep options.smallest-gemm=1 options.threshold=1", COPIES},
    {"system=moonep", COPIES},
    {"system=nodewise options.cover=all", ACTS_NOT},
    {"system=smartmoe options.interval=2", ACTS_NOT},
    {"system=swiftmoe options.capacity-factor=0", MOVES},
    {"system=tutel options.capacity-factor=0", ACTS_NOT},
    {"system=tutel options.capacity-factor=0 options.r=0", COPIES},
    {"system=ultraep options.least-quota=1", COPIES_IN_NODES},
};

/* A system's case number `turn`, or its defaults; NULL: it has no more. */
static const char *settings_of(const char *system, int turn, int *acts) {
    static char defaults[64];
    size_t length = (size_t)snprintf(defaults, sizeof defaults, "system=%s", system);
    int seen = 0;
    *acts = ACTS_NOT;
    for (size_t i = 0; i < sizeof acting / sizeof *acting; i++)
        if (strcspn(acting[i].settings, " ") == length &&
            strncmp(acting[i].settings, defaults, length) == 0 && seen++ == turn) {
            *acts = acting[i].acts;
            return acting[i].settings;
        }
    return turn == 0 && seen == 0 ? defaults : NULL;
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
    assert_numbers(totals->copies[MP_STAGE_BACKWARD_PREFETCH], 0, totals->dropped, 0);
    assert_int_equal(trainer->planner.move.state, 0);
}

struct mode {
    const char *settings;
    struct choices choices;
    float *logits; /* [STEPS][BATCH][V] of one rank */
};

/* Of one rank, on every rank. */
static void know(struct mode *mode) {
    size_t bytes = (size_t)STEPS * BATCH * MP_VOCABULARY * sizeof *mode->logits;
    mode->logits = malloc(bytes);
    assert_non_null(mode->logits);
    if (world->rank == 0) {
        noted = &mode->choices;
        AUTO(trainer)
        struct mp_trainer *trainer = create_trainer(
            alone, NULL, formatted("system=ep ranks-per-node=all %s", mode->settings));
        serve(trainer, STEPS, mode->logits);
        noted = NULL;
    }
    must(mp_comm_broadcast(world, mode->logits, bytes, 0, &error));
    share_choices(&mode->choices);
}

/* Of all systems that move experts: the few tokens of one may have even loads. */
static int64_t moves_met;

static void run_case(const struct mode *mode, const char *settings, int acts, int nodes) {
    static float logits[STEPS * BATCH * MP_VOCABULARY];
    followed = &mode->choices;
    AUTO(trainer)
    struct mp_trainer *trainer = create_trainer(
        world, NULL,
        formatted("%s ranks-per-node=all nodes=%d %s", settings, nodes, mode->settings));
    serve(trainer, STEPS, logits);
    followed = NULL;
    compare(trainer, settings, STEPS, logits, mode->logits);
    nothing_of_training_is_left(trainer);
    const struct mp_trainer_totals *totals = mp_trainer_totals(trainer);
    bool copies =
        world->ranks > 1 && (acts == COPIES || (acts == COPIES_IN_NODES && nodes < world->ranks));
    assert_true(!copies ||
                totals->bytes[MP_STAGE_BEFORE_GATE] + totals->bytes[MP_STAGE_AFTER_GATE] > 0);
    moves_met += acts == MOVES ? totals->moves : 0;
}

/* One, two or four declared nodes in turn, as far as there are ranks for them. */
static int nodes_of(int turn) {
    int nodes = 1 << turn % 3;
    return nodes < world->ranks ? nodes : world->ranks;
}

TEST(all_systems_serve_as_one_rank) {
    struct mode modes[] = {{.settings = "mode=decode context=5 layers=3"},
                           {.settings = "mode=prefill sequence=4 context=3"}};
    struct mp_systems systems = {0};
    uint64_t random = seed;
    further_system = &wanderer;
    must(mp_systems_register_all(&systems, &error));
    for (int m = 0; m < 2; m++) {
        know(&modes[m]);
        for (int s = 0; s < systems.count; s++) {
            const char *name = systems.item[s]->name, *settings;
            for (int turn = 0, acts; (settings = settings_of(name, turn, &acts)); turn++)
                run_case(&modes[m], settings, acts, nodes_of(s + turn + m));
        }
        for (int i = 0; i < 10; i++) {
            char settings[1024];
            run_case(&modes[m], draw_wanderer(&random, settings), ACTS_NOT, nodes_of(i));
        }
        forget_choices(&modes[m].choices);
        free(modes[m].logits);
    }
    assert_true(world->ranks == 1 || moves_met > 0);
}
