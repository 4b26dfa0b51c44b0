/* HetuMoE's slots as released, through the trainer: V-GATE-5, and a layer's forward and backward
 * against sums in double precision over rows that are overwritten as the released kernels do, each
 * source's by its own choices.  (Differences of the loss would not do: an overwritten token has no
 * part in the row whose gradient it gets.)  As intended, and with experts for each choice, rows are
 * of one token; the same sums hold. */
#include "tests/reference/model/gelu.h"
#include "tests/reference/trainer/mpi/trainers.h"

enum { D = 32, F = 48, MOST_TOKENS = 8 * 16, MOST_EXPERTS = 2 * 8, MOST_CAPACITY = 256 };

/* ---- Watching a step ---- */

/* What stands in for a device's operations while the trainer works, and what came by. */
static struct {
    struct mp_device_operations operations, plain;
    const struct mp_model *model;
    int32_t choice[2 * MOST_TOKENS]; /* that all gates make */
    float dout[MOST_TOKENS * D], dtokens[MOST_TOKENS * D], dweight[2 * MOST_TOKENS];
} watched;

static void gate_forward(struct mp_device *device, mp_stream stream, int tokens, int experts,
                         int top_k, const struct mp_gate_rule *rule, const float *logits,
                         const float *bias, UNUSED const int32_t *forced, float *probability,
                         float *kept, int32_t *choice, float *weight) {
    watched.plain.gate_forward(device, stream, tokens, experts, top_k, rule, logits, bias,
                               watched.choice, probability, kept, choice, weight);
}

static void combine_backward(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                             int width, const void *in, const int32_t *position,
                             const float *weight, const void *dout, bool shared, void *din,
                             float *dweight) {
    memcpy(watched.dout, dout, (size_t)(tokens * D) * sizeof *watched.dout);
    watched.plain.combine_backward(device, stream, tokens, top_k, width, in, position, weight, dout,
                                   shared, din, dweight);
}

/* Before it adds its own, tokens have what their rows gave them. */
static void gate_backward(struct mp_device *device, mp_stream stream, int tokens, int experts,
                          int top_k, const struct mp_gate_rule *rule, const float *probability,
                          const float *kept, const int32_t *choice, const int32_t *position,
                          const float *weight, const float *dweight, const float *auxiliary,
                          void *dlogits) {
    memcpy(watched.dtokens, watched.model->dnormed, (size_t)(tokens * D) * sizeof(float));
    memcpy(watched.dweight, dweight, (size_t)(tokens * top_k) * sizeof *dweight);
    watched.plain.gate_backward(device, stream, tokens, experts, top_k, rule, probability, kept,
                                choice, position, weight, dweight, auxiliary, dlogits);
}

static void watch(struct mp_trainer *trainer) {
    watched.plain = watched.operations = *trainer->device->operations;
    watched.operations.gate_forward = gate_forward;
    watched.operations.combine_backward = combine_backward;
    watched.operations.gate_backward = gate_backward;
    watched.model = &trainer->model;
    trainer->device->operations = &watched.operations;
}

static void step(struct mp_trainer *trainer, uint64_t *random) {
    int32_t token[MOST_TOKENS], target[MOST_TOKENS];
    struct mp_trainer_result result;
    for (int i = 0; i < MOST_TOKENS; i++) {
        token[i] = test_random_int(random, 0, 255);
        target[i] = test_random_int(random, 0, 255);
    }
    must(mp_trainer_step_on(trainer, token, target, &result, &error));
}

/* ---- The layer by its definition ---- */

enum base { BY_FIRSTS, BY_SECONDS }; /* where second choices begin: as intended, as released */

struct layer {
    enum base base;
    int tokens, experts, shards, hidden, capacity;
    const int32_t *choice;
    const float *x, *weight, *dout;
    /* [shards][experts]; parameters, of all ranks, are [D][hidden] and [hidden][D]. */
    double (*parameter)[2 * D * F], (*gradient)[2 * D * F];
    double out[MOST_TOKENS * D], dtokens[MOST_TOKENS * D], dweight[2 * MOST_TOKENS];
    int slot[2 * MOST_TOKENS], row[MOST_EXPERTS][MOST_CAPACITY]; /* a row's token, or -1 */
    int lost[MOST_EXPERTS], overwritten; /* routes taken whose token no row has; some of these */
};

static int slot_of(const struct layer *layer, int route) {
    int slot = 0, second = route % 2;
    for (int i = 0; i < 2 * layer->tokens; i++) {
        if (layer->choice[i] != layer->choice[route])
            continue;
        slot += i % 2 == second && i < route;
        slot += second && i % 2 == (layer->base == BY_SECONDS);
    }
    return slot;
}

static bool reads(const struct layer *layer, int route, int expert, int slot) {
    return layer->choice[route] == expert && layer->slot[route] == slot;
}

/* A row through one shard, and its gradient `dy` back to `drow`; adds to both. */
static void forward_row(const struct layer *layer, int shard, int expert, const float *x,
                        double active[F], double slope[F], double y[D]) {
    const double *one = layer->parameter[shard * layer->experts + expert];
    const double *two = one + D * layer->hidden;
    for (int f = 0; f < layer->hidden; f++) {
        double sum = 0;
        for (int d = 0; d < D; d++)
            sum += (double)x[d] * one[d * layer->hidden + f];
        active[f] = gelu(sum);
        slope[f] = gelu_slope(sum);
        for (int d = 0; d < D; d++)
            y[d] += active[f] * two[f * D + d];
    }
}

static void backward_row(struct layer *layer, int shard, int expert, const float *x,
                         const double active[F], const double slope[F], const double dy[D],
                         double drow[D]) {
    const double *one = layer->parameter[shard * layer->experts + expert];
    double *gradient = layer->gradient[shard * layer->experts + expert];
    int hidden = layer->hidden;
    for (int f = 0; f < hidden; f++) {
        double sum = 0;
        for (int d = 0; d < D; d++) {
            sum += dy[d] * one[D * hidden + f * D + d];
            gradient[D * hidden + f * D + d] += active[f] * dy[d];
        }
        sum *= slope[f];
        for (int d = 0; d < D; d++) {
            gradient[d * hidden + f] += (double)x[d] * sum;
            drow[d] += one[d * hidden + f] * sum;
        }
    }
}

/* One row: computed once, for all routes that read it. */
static void do_row(struct layer *layer, int expert, int slot) {
    const float *x = layer->x + (size_t)layer->row[expert][slot] * D;
    double active[2][F], slope[2][F], y[D] = {0}, dy[D] = {0}, drow[D] = {0};
    for (int s = 0; s < layer->shards; s++)
        forward_row(layer, s, expert, x, active[s], slope[s], y);
    for (int i = 0; i < 2 * layer->tokens; i++)
        for (int d = 0; d < D && reads(layer, i, expert, slot); d++) {
            layer->out[i / 2 * D + d] += (double)layer->weight[i] * y[d];
            layer->dweight[i] += y[d] * (double)layer->dout[i / 2 * D + d];
            dy[d] += (double)layer->weight[i] * (double)layer->dout[i / 2 * D + d];
        }
    for (int s = 0; s < layer->shards; s++)
        backward_row(layer, s, expert, x, active[s], slope[s], dy, drow);
    for (int i = 0; i < 2 * layer->tokens; i++)
        for (int d = 0; d < D && reads(layer, i, expert, slot); d++)
            layer->dtokens[i / 2 * D + d] += drow[d];
}

/* First choices write their rows, then second ones. */
static void do_layer(struct layer *layer) {
    memset(layer->row, 0xff, sizeof layer->row);
    for (int second = 0; second < 2; second++)
        for (int i = second; i < 2 * layer->tokens; i += 2) {
            int expert = layer->choice[i];
            if (expert < 0)
                continue;
            layer->slot[i] = slot_of(layer, i);
            int *row = &layer->row[expert][layer->slot[i]];
            layer->lost[expert] += layer->slot[i] >= layer->capacity || *row >= 0;
            layer->overwritten += layer->slot[i] < layer->capacity && *row >= 0;
            *row = i / 2;
        }
    for (int e = 0; e < layer->experts; e++)
        for (int slot = 0; slot < layer->capacity; slot++)
            if (layer->row[e][slot] >= 0)
                do_row(layer, e, slot);
}

/* ---- Comparing ---- */

/* More of the first choices have low numbers, more of the second ones high ones; some second ones
 * are not taken.  `apart`: of prototypes. */
static void choose(uint64_t *random, int tokens, int experts, bool apart) {
    for (int t = 0; t < tokens; t++) {
        int half = apart ? experts / 2 : experts, first, second;
        first = test_random_int(random, 0, test_random_int(random, 0, half - 1));
        do
            second = experts - 1 - test_random_int(random, 0, test_random_int(random, 0, half - 1));
        while (second == first);
        bool left = !apart && test_random_int(random, 0, 5) == 0;
        watched.choice[2 * t] = first;
        watched.choice[2 * t + 1] = left ? -1 - second : second;
    }
}

static void assert_sums(const char *what, const float *actual, const double *expected,
                        size_t count) {
    double largest = 1e-9;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(expected[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)actual[i] - expected[i]) <= 2e-5 * largest)) {
            print_error("rank %d of %d, %s: number %zu is %.9g, expected %.9g\n", world->rank,
                        world->ranks, what, i, (double)actual[i], expected[i]);
            mp_comm_abort(world, 1);
        }
}

/* The parameters of all ranks, which a learning rate of 0 leaves as they are. */
static void gather_experts(struct mp_trainer *trainer, struct layer *layer) {
    struct mp_model *model = &trainer->model;
    const struct mp_plan *plan = &trainer->planner.plan[0];
    layer->parameter = calloc((size_t)plan->experts, sizeof *layer->parameter);
    layer->gradient = calloc((size_t)plan->experts, sizeof *layer->gradient);
    assert_non_null(layer->parameter);
    assert_non_null(layer->gradient);
    must(mp_experts_locate(&model->experts, plan, model->parameter, model->gradient, &error));
    for (int e = 0; e < plan->experts; e++)
        for (int i = 0; i < 2 * D * layer->hidden && plan->during.owner[e] == world->rank; i++)
            layer->parameter[e][i] = (double)((const float *)model->parameter[e])[i];
    must(mp_comm_sum(world, *layer->parameter, plan->experts * 2 * D * F, &error));
}

static void compare_experts(struct mp_trainer *trainer, struct layer *layer) {
    const struct mp_plan *plan = &trainer->planner.plan[0];
    must(mp_comm_sum(world, *layer->gradient, plan->experts * 2 * D * F, &error));
    for (int e = 0; e < plan->experts; e++)
        if (plan->during.owner[e] == world->rank)
            assert_sums("gradient of an expert", trainer->model.gradient[e], layer->gradient[e],
                        (size_t)(2 * D * layer->hidden));
}

/* A rank that is wrong ends all of them; the others are on their way to the next sum. */
static void must_be(const char *what, int64_t actual, int64_t expected) {
    if (actual == expected)
        return;
    print_error("rank %d of %d: %lld %s, expected %lld\n", world->rank, world->ranks,
                (long long)actual, what, (long long)expected);
    mp_comm_abort(world, 1);
}

/* Of one rank, and of all: routes are lost of every shard alike. */
static void compare_losses(const struct mp_trainer *trainer, const struct layer *layer) {
    const struct mp_routing *routing = &trainer->model.state[0].routing;
    double lost = 0;
    for (int e = 0; e < routing->experts; e++) {
        must_be("routes dropped here", routing->dropped[e], layer->lost[e % layer->experts]);
        lost += layer->lost[e % layer->experts];
    }
    must(mp_comm_sum(world, &lost, 1, &error));
    must_be("routes dropped", trainer->facts[0].routes_dropped, (int64_t)lost);
}

static void compare(struct mp_trainer *trainer, struct layer *layer) {
    const struct mp_block_state *state = trainer->model.state;
    size_t values = (size_t)(layer->tokens * D);
    do_layer(layer);
    for (size_t i = 0; i < values; i++)
        layer->out[i] += (double)((const float *)state->middle)[i];
    assert_sums("output", state[1].x, layer->out, values);
    assert_sums("gradient of weights", watched.dweight, layer->dweight, 2 * (size_t)layer->tokens);
    assert_sums("gradient of tokens", watched.dtokens, layer->dtokens, values);
    compare_experts(trainer, layer);
    compare_losses(trainer, layer);
}

struct layer_case {
    const char *settings;
    double factor;
    enum base base;
};

/* Several steps; returns routes of all ranks whose row is another token's. */
static int64_t run(const struct layer_case *c, uint64_t *random) {
    struct mp_trainer *trainer = create_trainer(
        world, NULL,
        formatted("system=hetumoe layers=1 learning-rate=0 options.capacity-factor=%g %s",
                  c->factor, c->settings));
    struct mp_model *model = &trainer->model;
    struct layer *layer = malloc(sizeof *layer);
    double overwritten = 0;
    assert_non_null(layer);
    watch(trainer);
    for (int round = 0; round < 3; round++) {
        choose(random, model->tokens, model->shape.experts, c->base == BY_FIRSTS);
        step(trainer, random);
        int shards = mp_model_shards(&model->shape);
        *layer = (struct layer){
            .base = c->base,
            .tokens = model->tokens,
            .experts = model->shape.experts,
            .shards = shards,
            .hidden = F / shards,
            .capacity = 2 * (int)ceil((double)model->tokens / model->shape.experts * c->factor),
            .choice = watched.choice,
            .x = model->state[0].normed2,
            .weight = model->state[0].weight,
            .dout = watched.dout};
        gather_experts(trainer, layer);
        compare(trainer, layer);
        overwritten += layer->overwritten;
        free(layer->parameter);
        free(layer->gradient);
    }
    must(mp_comm_sum(world, &overwritten, 1, &error));
    free(layer);
    mp_trainer_destroy(trainer);
    return (int64_t)overwritten;
}

/* ---- Tests ---- */

#define RELEASED "options.slots=as-released "

static const struct layer_case overwriting[] = {
    {RELEASED "gate=gshard", 1, BY_SECONDS},
    {RELEASED "gate=gshard", 0.5, BY_SECONDS},
    {RELEASED "gate=softmax renormalise=no options.exchange=flat", 4, BY_SECONDS},
    {RELEASED "gate=gshard exchange-degree=3 options.exchange=flat", 1, BY_SECONDS},
    {RELEASED "gate=gshard options.expert-parallel=1", 1.5, BY_SECONDS},
    {RELEASED "gate=gshard expert-shards=2", 1, BY_SECONDS},
};

TEST_ROWS(released_slots_are_overwritten, overwriting, c) {
    uint64_t random = seed + (uint64_t)world->rank;
    assert_true(run(c, &random) > 0);
}

static const struct layer_case keeping[] = {
    {"options.slots=intended gate=gshard", 1, BY_FIRSTS},
    {RELEASED "gate=ktop1", 1, BY_FIRSTS},
};

TEST_ROWS(other_rows_are_of_one_token, keeping, c) {
    uint64_t random = seed + (uint64_t)world->rank;
    assert_int_equal(run(c, &random), 0);
}

/* V-GATE-5: firsts 0 0 1 and seconds 1 1 0 have slots 0 1 0 and 2 3 1; slot 1 of expert 0 is that
 * of tokens 1 and 2, and has token 2; slot 1 of expert 1 is empty. */
TEST(gate_5_has_its_slots) {
    static const int32_t choice[] = {0, 1, 0, 1, 1, 0}, slot[] = {0, 2, 1, 3, 0, 1};
    static const int32_t token[2][4] = {{0, 2, -1, -1}, {2, -1, 0, 1}};
    /* A sequence on each rank. */
    AUTO(trainer)
    struct mp_trainer *trainer = create_trainer(world, NULL,
                                                formatted("system=hetumoe " RELEASED
                                                          "layers=1 experts=2 sequence=3 batch=%d",
                                                          world->ranks));
    const struct mp_block_state *layer = &trainer->model.state[0];
    const struct mp_routing *routing = &layer->routing;
    uint64_t random = seed;
    watch(trainer);
    memcpy(watched.choice, choice, sizeof choice);
    step(trainer, &random);
    for (int i = 0; i < 6; i++)
        assert_int_equal(layer->position[i],
                         routing->part_row[routing->part_begin[choice[i]]] + slot[i]);
    for (int e = 0; e < 2; e++)
        assert_memory_equal(trainer->model.row_token + routing->part_row[routing->part_begin[e]],
                            token[e], sizeof token[e]);
    assert_true(routing->dropped[0] == 1 && routing->dropped[1] == 0);
}
