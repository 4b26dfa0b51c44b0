/* The shapes of FastMoE's own tests of its experts and of its local scatter and gather
 * (fmoe_linear, experts, zero, local_exchange): one rank's expert path against a sum over routes,
 * forward and backward. */
#include "reference/model/block.h"
#include "tests/errors.h"
#include "tests/reference/model/gelu.h"
#include "tests/reference/plan/plan_support.h"

struct shape {
    const char *name;
    int tokens, width, hidden, experts, top_k;
    int only;   /* expert that all tokens go to, or -1 */
    bool drops; /* about a third of the routes is dropped */
};
static const struct shape SHAPES[] = {
    {"fmoe_linear, 4 experts", 4, 16, 32, 4, 2, -1, false},
    {"fmoe_linear, 8 experts", 4, 16, 32, 8, 2, -1, false},
    {"fmoe_linear, 4 experts, top-3", 4, 16, 32, 4, 3, -1, false},
    {"fmoe_linear, 8 experts, top-3", 4, 16, 32, 8, 3, -1, false},
    {"zero", 4, 8, 32, 2, 1, 0, false},
    {"zero, the last expert", 4, 8, 32, 2, 2, 1, false},
    {"local_exchange, 1 expert", 12, 6, 12, 1, 1, -1, true},
    {"local_exchange, 1 expert, top-2", 12, 6, 12, 1, 2, -1, true},
    {"local_exchange, 4 experts", 12, 6, 12, 4, 1, -1, true},
    {"local_exchange, 4 experts, top-2", 12, 6, 12, 4, 2, -1, true},
    {"local_exchange, 8 experts", 12, 6, 12, 8, 1, -1, true},
    {"local_exchange, 8 experts, top-2", 12, 6, 12, 8, 2, -1, true},
};
enum { DRAWS = 10, MOST_ROUTES = 24, MOST_CELLS = 12 * 16, MOST_CHUNK = 2 * 16 * 32, MOST_E = 8 };

static uint64_t random_state;

struct work {
    const struct shape *shape;
    struct mp_device *device;
    struct mp_model model;
    struct mp_plan plan;
    struct mp_load load;
    int cells, chunk;
    float parameter[MOST_E][MOST_CHUNK], gradient[MOST_E][MOST_CHUNK];
    float dy[MOST_CELLS]; /* gradient of the output */
    bool kept[MOST_ROUTES];
    double y[MOST_CELLS], dx[MOST_CELLS], dweight[MOST_ROUTES], dw[MOST_E][MOST_CHUNK];
};

static void fill(float *value, int count) {
    for (int i = 0; i < count; i++)
        value[i] = (float)(2 * test_random_double(&random_state) - 1);
}

static void create_work(const struct shape *shape, struct work *work) {
    const struct mp_topology one = {1, 1};
    const struct mp_model_shape model = {.layers = 1,
                                         .width = shape->width,
                                         .heads = 2,
                                         .experts = shape->experts,
                                         .expert_width = shape->hidden,
                                         .sequence = shape->tokens,
                                         .top_k = shape->top_k};
    int routes = shape->tokens * shape->top_k;
    const struct mp_device_limits limits = {.attention = {1, shape->tokens, 2, shape->width / 2},
                                            .experts = shape->experts,
                                            .width = shape->hidden > shape->width ? shape->hidden
                                                                                  : shape->width,
                                            .tokens = routes};
    *work = (struct work){.shape = shape,
                          .cells = shape->tokens * shape->width,
                          .chunk = 2 * shape->width * shape->hidden};
    assert_works(mp_device_cpu_create(1, &limits, &work->device, &error));
    assert_works(
        mp_model_create(&model, work->device, 1, 1, routes, routes, 1, &work->model, &error));
    assert_works(mp_plan_create(&one, shape->experts, 8, &work->plan, &error));
    assert_works(mp_load_create(1, shape->experts, &work->load, &error));
    for (int e = 0; e < shape->experts; e++) {
        work->model.parameter[e] = work->parameter[e];
        work->model.gradient[e] = work->gradient[e];
    }
}

static void destroy_work(struct work *work) {
    mp_model_destroy(&work->model);
    mp_plan_destroy(&work->plan);
    mp_load_destroy(&work->load);
    mp_device_destroy(work->device);
}

/* Different experts for the choices of a token, where there are as many. */
static void draw_choices(struct work *work) {
    const struct shape *shape = work->shape;
    struct mp_block_state *state = &work->model.state[0];
    memset(work->load.count, 0, (size_t)shape->experts * sizeof *work->load.count);
    for (int t = 0; t < shape->tokens; t++) {
        int first = test_random_int(&random_state, 0, shape->experts - 1);
        for (int j = 0; j < shape->top_k; j++) {
            int expert = shape->only >= 0 ? shape->only : (first + j) % shape->experts;
            state->choice[t * shape->top_k + j] = expert;
            work->load.count[expert]++;
        }
    }
}

/* A plan that keeps the first routes of each expert, and which those are. */
static void plan_routes(struct work *work) {
    const struct shape *shape = work->shape;
    uint32_t kept[MOST_E], seen[MOST_E] = {0};
    assert_works(mp_plan_dispatch_begin(&work->plan, &error));
    for (int e = 0; e < shape->experts; e++) {
        kept[e] = work->load.count[e];
        if (shape->drops)
            kept[e] -= (uint32_t)test_random_int(&random_state, 0, (int)(2 * kept[e] / 3));
        assert_works(mp_plan_dispatch_part(&work->plan, 0, kept[e], &error));
        mp_plan_dispatch_end_pair(&work->plan);
    }
    for (int r = 0; r < shape->tokens * shape->top_k; r++) {
        int expert = work->model.state[0].choice[r];
        work->kept[r] = seen[expert]++ < kept[expert];
    }
}

static void draw(struct work *work) {
    struct mp_block_state *state = &work->model.state[0];
    int routes = work->shape->tokens * work->shape->top_k;
    fill(state->normed2, work->cells);
    fill(state->middle, work->cells);
    fill(state->weight, routes);
    fill(work->dy, work->cells);
    for (int e = 0; e < work->shape->experts; e++) {
        fill(work->parameter[e], work->chunk);
        fill(work->gradient[e], work->chunk); /* to be overwritten */
    }
    draw_choices(work);
    plan_routes(work);
    assert_works(mp_routing_build(&work->plan, &work->load, 0, &state->routing, &error));
    assert_works(mp_model_reserve(&work->model, 0, &error));
    assert_int_equal(state->routing.segments, 1);
}

/* One route through its expert: adds to the output and to all gradients. */
static void add_route(struct work *work, int route) {
    const struct mp_block_state *state = &work->model.state[0];
    int d = work->shape->width, f = work->shape->hidden, token = route / work->shape->top_k;
    int expert = state->choice[route];
    const float *w1 = work->parameter[expert], *w2 = w1 + d * f;
    const float *x = (const float *)state->normed2 + (long)token * d,
                *dy = work->dy + (long)token * d;
    double weight = state->weight[route], *dw1 = work->dw[expert], *dw2 = dw1 + d * f;
    for (int h = 0; h < f; h++) {
        double before = 0, dactive = 0;
        for (int i = 0; i < d; i++)
            before += (double)x[i] * w1[i * f + h];
        double active = gelu(before), slope = gelu_slope(before);
        for (int i = 0; i < d; i++) {
            work->y[token * d + i] += weight * active * w2[h * d + i];
            work->dweight[route] += active * w2[h * d + i] * dy[i];
            dactive += weight * dy[i] * w2[h * d + i];
            dw2[h * d + i] += active * weight * dy[i];
        }
        for (int i = 0; i < d; i++) {
            dw1[i * f + h] += x[i] * dactive * slope;
            work->dx[token * d + i] += dactive * slope * w1[i * f + h];
        }
    }
}

static void sum_over_routes(struct work *work) {
    memset(work->dx, 0, sizeof work->dx);
    memset(work->dw, 0, sizeof work->dw);
    memset(work->dweight, 0, sizeof work->dweight);
    for (int i = 0; i < work->cells; i++)
        work->y[i] = ((const float *)work->model.state[0].middle)[i];
    for (int r = 0; r < work->shape->tokens * work->shape->top_k; r++)
        if (work->kept[r])
            add_route(work, r);
}

/* The exchange of one rank with itself, there and back, as if rows came from others. */
static void travel(const struct work *work, float *to, const float *from) {
    const struct mp_routing *routing = &work->model.state[0].routing;
    memcpy(to, from, (size_t)routing->receive_total * (size_t)work->shape->width * sizeof *to);
}

static void forward_and_backward(struct work *work) {
    struct mp_model *model = &work->model;
    struct mp_block_state *state = &model->state[0];
    state->routing.stays = false;
    mp_model_permute(model, 0, 0);
    travel(work, mp_model_receive_buffer(model, 0, 0), model->send);
    mp_model_experts(model, 0, 0);
    travel(work, state->combine_in, model->received);
    mp_model_combine(model, 0);
    memcpy(model->dx, work->dy, (size_t)work->cells * sizeof *work->dy);
    mp_model_combine_backward(model, 0);
    travel(work, model->received, model->send);
    mp_model_experts_backward(model, 0, 0, MP_ALL_PRODUCTS, false);
    travel(work, model->send, model->received);
}

/* What rounding may change in sums of terms as large as the largest of these. */
static double rounding(const double *value, int count) {
    double largest = 0;
    for (int i = 0; i < count; i++)
        largest = fmax(largest, fabs(value[i]));
    return 1e-5 * largest;
}

static void check(const struct work *work) {
    const struct mp_model *model = &work->model;
    const struct mp_block_state *state = &model->state[0];
    int d = work->shape->width, k = work->shape->top_k;
    const float *sent = model->send, *x = model->state[1].x;
    const double of_y = rounding(work->y, work->cells), of_dx = rounding(work->dx, work->cells);
    const double of_weight = rounding(work->dweight, work->shape->tokens * k);
    for (int i = 0; i < work->cells; i++) {
        double dx = 0;
        for (int r = i / d * k; r < (i / d + 1) * k; r++)
            if (state->position[r] >= 0)
                dx += sent[(long)state->position[r] * d + i % d];
        assert_within((double)x[i], work->y[i], of_y);
        assert_within(dx, work->dx[i], of_dx);
    }
    for (int r = 0; r < work->shape->tokens * k; r++) {
        assert_int_equal(state->position[r] >= 0, work->kept[r]);
        assert_within((double)model->dweight[r], work->dweight[r], of_weight);
    }
    for (int e = 0; e < work->shape->experts; e++) {
        const double of_gradient = rounding(work->dw[e], work->chunk);
        for (int i = 0; i < work->chunk; i++)
            assert_within((double)work->gradient[e][i], work->dw[e][i], of_gradient);
    }
}

TEST_EACH(experts_are_the_sum_over_routes, SHAPES, shape) {
    static struct work work;
    int dropped = 0;
    create_work(shape, &work);
    for (int round = 0; round < DRAWS; round++) {
        draw(&work);
        sum_over_routes(&work);
        forward_and_backward(&work);
        check(&work);
        for (int r = 0; r < shape->tokens * shape->top_k; r++)
            dropped += !work.kept[r];
    }
    assert_int_equal(dropped > 0, shape->drops);
    destroy_work(&work);
}

TEST_SEED(random_state);
