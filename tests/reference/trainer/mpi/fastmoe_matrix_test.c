/* The shapes of FastMoE's own tests of its smart schedule and of shadowing (faster_schedule,
 * faster_shadow, faster_gate): 8 ranks, top-2, a width of 256 instead of 1024, with which most of
 * the time would go into what no exchange touches.  The pipelined exchange, with and without
 * shadows, gives what the flat one without shadows gives: output, gradient of the input and every
 * weight gradient of every expert, besides the loss and all other gradients.  The topology-aware
 * gate keeps to its limit. */
#include "baselines/fastermoe/fastermoe.h"
#include "tests/reference/trainer/mpi/trainers.h"

/* Sums are taken in another order: parts of a largest value. */
static const double TOLERANCE = 2e-5;

enum shadows { NO_SHADOWS, SHADOWS_AT_RANDOM, SHADOWS_BY_POLICY };
struct shape {
    int tokens, experts; /* of a rank */
};

/* What an iteration leaves behind on this rank. */
struct snapshot {
    double loss;
    float *output, *input_gradient; /* [N][D] */
    float *dense;                   /* [dense.count] gradients of all other parameters */
    float *expert;                  /* [experts of this rank][chunk] gradients */
    int64_t *routes;                /* [experts of this rank], of all ranks */
    size_t cells, dense_count, chunk;
    int experts;
    int64_t copies;
};

static float *copy_of(const float *from, size_t count) {
    float *copy = malloc(count * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, from, count * sizeof *copy);
    return copy;
}

static void take_snapshot(struct mp_trainer *trainer, double loss, int experts,
                          struct snapshot *snapshot) {
    const struct mp_model *model = mp_trainer_model(trainer);
    size_t cells = (size_t)model->tokens * (size_t)model->shape.width;
    size_t chunk = model->experts.chunk;

    *snapshot =
        (struct snapshot){.loss = loss,
                          .cells = cells,
                          .dense_count = model->dense.count,
                          .chunk = chunk,
                          .experts = experts,
                          .output = copy_of(model->state[1].x, cells),
                          .input_gradient = copy_of(model->dx, cells),
                          .dense = copy_of(model->dense.gradient, model->dense.count),
                          .expert = calloc((size_t)experts * chunk, sizeof(float)),
                          .copies = mp_trainer_totals(trainer)->copies[MP_STAGE_AFTER_GATE]};
    snapshot->routes = calloc((size_t)experts, sizeof *snapshot->routes);
    assert_non_null(snapshot->expert);
    assert_non_null(snapshot->routes);
    for (int e = 0; e < experts; e++) {
        int global = world->rank * experts + e, slot = model->experts.slot[global];
        assert_true(slot >= 0);
        memcpy(snapshot->expert + (size_t)e * chunk, model->experts.gradient + (size_t)slot * chunk,
               chunk * sizeof(float));
        for (int source = 0; source < world->ranks; source++)
            snapshot->routes[e] += mp_load_at(&trainer->load[0], source, global);
    }
}

static void destroy_snapshot(struct snapshot *snapshot) {
    free(snapshot->output);
    free(snapshot->input_gradient);
    free(snapshot->dense);
    free(snapshot->expert);
    free(snapshot->routes);
}

/* Others may be waiting for this rank: a difference ends all of them. */
static void check_close(const char *what, const float *actual, const float *expected, size_t count,
                        bool zero) {
    double largest = 0, worst = 0;

    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)actual[i] - (double)expected[i]);
        largest = fmax(largest, fabs((double)expected[i]));
        worst = difference <= worst ? worst : difference; /* NaN is the worst */
    }
    if ((largest > 0) != zero && worst <= TOLERANCE * largest)
        return;
    print_error("rank %d: %s differs by %.3g where the largest is %.3g\n", world->rank, what, worst,
                largest);
    mp_comm_abort(world, 1);
}

/* ---- a system with chosen shadows: fastermoe without its selection ---- */
static int chosen_group_size;
static bool chosen[64]; /* experts that are shadowed */

static int chosen_after_gate(void *self, const struct mp_load *load, struct mp_plan *plan,
                             struct mp_error *error) {
    (void)self;
    plan->exchange = MP_EXCHANGE_PIPELINED;
    plan->group_size = chosen_group_size;
    for (int expert = 0; expert < plan->experts; expert++)
        for (int rank = 0; rank < plan->topology.ranks; rank++) {
            if (!chosen[expert] || rank == plan->during.owner[expert])
                continue;
            int code = mp_plan_add_copy(plan, expert, rank, MP_STAGE_AFTER_GATE, error);
            if (code)
                return code;
        }
    return mp_plan_dispatch_nearest(plan, load, error);
}

/* The last expert, as in the source, and others by chance. */
static void choose_shadows(int experts, int group_size) {
    chosen_group_size = group_size;
    for (int expert = 0; expert < experts; expert++)
        chosen[expert] = expert == experts - 1 ||
                         mp_random_below(seed, (uint64_t)group_size, (uint64_t)expert, 3) == 0;
}

/* On the shape's tokens, of few of which an expert costs as much: the policy copies. */
static struct mp_trainer *create_shape(const struct shape *shape, const char *options) {
    return create_trainer(
        world, NULL,
        formatted("layers=1 width=256 heads=8 sequence=16 gate=gshard expert-width=16 "
                  "bandwidth=1e6 system=fastermoe batch=%d experts=%d %s",
                  world->ranks * shape->tokens / 16, world->ranks * shape->experts, options));
}

static void run(const struct shape *shape, int group_size, enum shadows shadows,
                struct snapshot *snapshot) {
    struct mp_system own = mp_system_fastermoe;
    char options[128];
    snprintf(options, sizeof options,
             "options.group-size=%d options.smart-schedule=%s options.shadows=%s",
             group_size > 0 ? group_size : 1, group_size > 0 ? "yes" : "no",
             shadows == NO_SHADOWS ? "0" : "all");
    struct mp_trainer *trainer = create_shape(shape, options);
    if (shadows == SHADOWS_AT_RANDOM) {
        choose_shadows(world->ranks * shape->experts, group_size);
        own.after_gate = chosen_after_gate;
        trainer->planner.system = &own;
    }
    double loss = random_step(trainer, MP_VOCABULARY).loss;
    take_snapshot(trainer, loss, shape->experts, snapshot);
    mp_trainer_destroy(trainer);
}

static void check_same(const struct snapshot *actual, const struct snapshot *expected,
                       enum shadows shadows) {
    assert_close(actual->loss, expected->loss, 1e-6);
    check_close("the output", actual->output, expected->output, expected->cells, false);
    check_close("the gradient of the input", actual->input_gradient, expected->input_gradient,
                expected->cells, false);
    check_close("a gradient outside the experts", actual->dense, expected->dense,
                expected->dense_count, false);
    for (int e = 0; e < expected->experts; e++) {
        size_t at = (size_t)e * expected->chunk;
        check_close("a gradient of an expert", actual->expert + at, expected->expert + at,
                    expected->chunk, expected->routes[e] == 0);
    }
    assert_int_equal(actual->copies > 0, shadows != NO_SHADOWS);
}

static void pipelined_is_flat(const struct shape *shape, int group_size, enum shadows shadows,
                              const struct snapshot *expected) {
    struct snapshot actual;

    run(shape, group_size, shadows, &actual);
    if (world->rank == 0)
        print_message("  %d tokens, %d experts per rank, groups of %d: %lld copies\n",
                      shape->tokens, shape->experts, group_size, (long long)actual.copies);
    check_same(&actual, expected, shadows);
    destroy_snapshot(&actual);
}

TEST(faster_schedule) {
    static const struct shape shapes[] = {{16, 1}, {16, 4}};
    for (int i = 0; i < 2; i++) {
        struct snapshot expected;
        run(&shapes[i], 0, NO_SHADOWS, &expected);
        for (int group_size = 1; group_size <= 4; group_size *= 2)
            pipelined_is_flat(&shapes[i], group_size, NO_SHADOWS, &expected);
        destroy_snapshot(&expected);
    }
}

/* The larger shape has each kind of shadows with some of the groups: it takes long. */
TEST(faster_shadow) {
    static const struct shape shapes[] = {{16, 1}, {512, 1}};
    for (int i = 0; i < 2; i++) {
        struct snapshot expected;
        run(&shapes[i], 0, NO_SHADOWS, &expected);
        for (int group_size = 1; group_size <= 4; group_size *= 2) {
            if (i == 0 || group_size != 2)
                pipelined_is_flat(&shapes[i], group_size, SHADOWS_AT_RANDOM, &expected);
            if (i == 0 || group_size == 2)
                pipelined_is_flat(&shapes[i], group_size, SHADOWS_BY_POLICY, &expected);
        }
        destroy_snapshot(&expected);
    }
}

/* Tokens of this rank whose first choice is outside its node; every choice is an expert. */
static int count_outgoing(const struct mp_trainer *trainer, int experts_per_node) {
    const struct mp_model *model = &trainer->model;
    const int32_t *choice = model->state[0].choice;
    int own = world->rank / trainer->setting.topology.ranks_per_node, outgoing = 0;

    for (int t = 0; t < model->tokens; t++) {
        for (int j = 0; j < 2; j++)
            assert_in_range(choice[2 * t + j], 0, model->shape.experts - 1);
        assert_int_not_equal(choice[2 * t], choice[2 * t + 1]);
        outgoing += choice[2 * t] / experts_per_node != own;
    }
    return outgoing;
}

/* 0.2 of 16 tokens are 3; with all ranks in one node no token leaves it. */
TEST(faster_gate) {
    static const struct shape shapes[] = {{16, 1}, {16, 4}};
    for (int i = 0; i < 2; i++)
        for (int ranks = 2; ranks <= 8; ranks *= 2) {
            char options[128];
            snprintf(options, sizeof options,
                     "ranks-per-node=%d options.topology-gate=yes options.outgoing-fraction=0.2",
                     ranks);
            struct mp_trainer *trainer = create_shape(&shapes[i], options);
            random_step(trainer, MP_VOCABULARY);
            int outgoing = count_outgoing(trainer, ranks * shapes[i].experts);
            assert_in_range(outgoing, 0, ranks == world->ranks ? 0 : 3);
            mp_trainer_destroy(trainer);
        }
}
