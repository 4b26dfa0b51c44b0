/* Gradients against finite differences: along a random direction of every parameter tensor, the
 * loss changes as the gradient says.  The routing is replayed, because a gate that changes its mind
 * makes the loss jump; the gate's own gradient then flows through the weights, the auxiliary loss
 * stays in with the firsts that are given. */
#include <string.h>

#include "reference/base/random.h"
#include "tests/golden/small_trainer.h"

enum { TOKENS = 4 * 16 };

static int32_t token[TOKENS], target[TOKENS];

static double total_loss(struct small_trainer *small) {
    struct mp_trainer *trainer = small->trainer;
    struct mp_model *model = mp_trainer_model(trainer);
    struct mp_error error = {0};
    if (mp_trainer_forward(trainer, token, target, &error))
        fail_msg("%s", error.text);
    mp_model_head(model, 0, false);
    double loss = mp_model_loss_sum(model, trainer->host_loss) / TOKENS;
    for (int l = 0; l < trainer->job.layers; l++)
        loss += trainer->auxiliary_loss[l];
    return loss;
}

/* Slope of the loss in a direction, from both sides. */
static double difference(struct small_trainer *small, float *parameter, const float direction[],
                         size_t count, double step) {
    double loss[2];
    float *kept = malloc(count * sizeof *kept);
    assert_non_null(kept);
    memcpy(kept, parameter, count * sizeof *kept);
    for (int side = 0; side < 2; side++) {
        float by = (float)(side ? -step : step);
        for (size_t i = 0; i < count; i++)
            parameter[i] = kept[i] + by * direction[i];
        loss[side] = total_loss(small);
    }
    memcpy(parameter, kept, count * sizeof *kept);
    free(kept);
    return (loss[0] - loss[1]) / (2 * step);
}

static bool is_near(double measured, double slope, double step) {
    return fabs(measured - slope) <= 0.02 * fabs(slope) + 2e-6 / step;
}

/* (loss(p + h d) - loss(p - h d)) / 2h against gradient . d, with d along the gradient mixed with
 * noise, so that the derivative is large enough to be seen in fp32. */
static void check_direction(struct small_trainer *small, const char *name, float *parameter,
                            const float *gradient, size_t count, uint64_t seed) {
    float *direction = malloc(count * sizeof *direction);
    assert_non_null(direction);
    double norm = 0, slope = 0;
    for (size_t i = 0; i < count; i++)
        norm += (double)gradient[i] * (double)gradient[i];
    norm = sqrt(norm);
    if (norm > 1e-5) {
        mp_random_normal(seed, 7, (float)(norm / sqrt((double)count)), count, direction);
        double length = 0;
        for (size_t i = 0; i < count; i++) {
            direction[i] += gradient[i];
            length += (double)direction[i] * (double)direction[i];
        }
        for (size_t i = 0; i < count; i++) {
            direction[i] /= (float)sqrt(length);
            slope += (double)direction[i] * (double)gradient[i];
        }
        /* A step that changes the loss by about 2e-3: far above rounding, still nearly straight.
         * Where it meets a kink of a gate's loss, a smaller one does not. */
        double step = fmin(1e-3 / fabs(slope), 0.05);
        double measured = difference(small, parameter, direction, count, step);
        if (!is_near(measured, slope, step)) {
            step /= 8;
            measured = difference(small, parameter, direction, count, step);
        }
        if (!is_near(measured, slope, step)) {
            print_error("%s: gradient says %.6g, differences %.6g (step %.3g)\n", name, slope,
                        measured, step);
            fail();
        }
    }
    free(direction);
}

struct gate {
    const char *name, *experts, *share; /* of all experts, and routes on the first */
    const char *more[2];
};

static void gradients_are_slopes(void **state) {
    const struct gate *gate = *state;
    const char *settings[] = {
        "layers=2",       "width=16",       "heads=2",         gate->experts,
        "sequence=16",    "batch=4",        "expert-width=24", "auxiliary-weight=0.5",
        "routing=skewed", "skew-experts=1", gate->share,       "learning-rate=0",
        gate->name,       gate->more[0],    gate->more[1],     NULL};
    uint64_t seed = test_seed();
    struct small_trainer small;
    small_trainer_create(&small, settings);
    struct mp_model *model = mp_trainer_model(small.trainer);
    /* Larger parameters than a fresh model's: every path carries a visible gradient. */
    mp_random_normal(seed, 1, 0.4f, model->dense.count, model->dense.parameter);
    mp_random_normal(seed, 2, 0.4f, model->experts.chunk * (size_t)model->experts.slots,
                     model->experts.parameter);
    for (int i = 0; i < TOKENS; i++) {
        token[i] = (int32_t)mp_random_below(seed, 3, (uint64_t)i, 16);
        target[i] = (int32_t)mp_random_below(seed, 4, (uint64_t)i, 16);
    }
    struct mp_trainer_result result;
    struct mp_error error = {0};
    assert_int_equal(mp_trainer_step_on(small.trainer, token, target, &result, &error), MP_OK);
    small.trainer->iteration = 0; /* the same replayed choices again */
    assert_close(total_loss(&small), result.loss + result.auxiliary_loss, 1e-5);
    for (int i = 0; i < model->dense.tensors; i++) {
        const struct mp_tensor *tensor = &model->dense.tensor[i];
        check_direction(&small, tensor->name, model->dense.parameter + tensor->offset,
                        model->dense.gradient + tensor->offset, tensor->count, seed);
    }
    for (int l = 0; l < 2; l++)
        for (int e = 0; e < mp_model_plan_experts(&model->shape); e++)
            check_direction(&small, "expert", small_trainer_expert(&small, 0, l, e),
                            small_trainer_expert(&small, 1, l, e), model->experts.chunk, seed);
    small_trainer_destroy(&small);
}

int main(void) {
    static struct gate gshard = {"gate=gshard", "experts=4", "skew-share=0.4", {NULL}};
    static struct gate one = {"gate=switch", "experts=4", "skew-share=0.4", {NULL}};
    static struct gate six = {"gate=softmax", "experts=8", "skew-share=0.15", {"top-k=6"}};
    static struct gate as_they_are = {
        "gate=softmax", "experts=8", "skew-share=0.2", {"top-k=4", "renormalise=no"}};
    static struct gate all = {
        "gate=softmax", "experts=4", "skew-share=0.25", {"top-k=all", "renormalise=yes"}};
    static struct gate z_loss = {
        "gate=gshard", "experts=4", "skew-share=0.4", {"gate-options.z-loss=0.2"}};
    static struct gate shared = {
        "gate=gshard", "experts=4", "skew-share=0.4", {"shared-experts=2"}};
    static struct gate cut = {
        "gate=softmax", "experts=4", "skew-share=0.3", {"top-k=3", "expert-shards=3"}};
    static struct gate hash = {"gate=hash", "experts=4", "skew-share=0.4", {NULL}};
    static struct gate sam = {
        "gate=sam", "experts=8", "skew-share=0.2", {"top-k=3", "gate-options.alignment-weight=1"}};
    static struct gate sigmoid = {
        "gate=sigmoid", "experts=8", "skew-share=0.2", {"top-k=4", "gate-options.scale=2.5"}};
    static struct gate sequence = {
        "gate=gshard", "experts=4", "skew-share=0.4", {"gate-options.balance-over=sequence"}};
    static struct gate in_parts = {"gate=ktop1",
                                   "experts=8",
                                   "skew-share=0.2",
                                   {"top-k=2", "gate-options.balance-over=sequence"}};
    static struct gate dts = {"gate=dts",
                              "experts=8",
                              "skew-share=0.2",
                              {"top-k=4", "gate-options.first-temperature=0.7"}};
    static struct gate base = {"gate=base", "experts=4", "skew-share=0.4", {NULL}};
    static struct gate ones = {
        "gate=base", "experts=4", "skew-share=0.4", {"gate-options.weights=one"}};
    static struct gate choice = {"gate=expertchoice", "experts=8", "skew-share=0.2", {"top-k=4"}};
    const struct CMUnitTest tests[] = {
        {"BASE", gradients_are_slopes, NULL, NULL, &base},
        {"BASE, weights of 1", gradients_are_slopes, NULL, NULL, &ones},
        {"expert choice", gradients_are_slopes, NULL, NULL, &choice},
        {"loss by sequence", gradients_are_slopes, NULL, NULL, &sequence},
        {"loss by sequence, k top-1", gradients_are_slopes, NULL, NULL, &in_parts},
        {"dense to sparse", gradients_are_slopes, NULL, NULL, &dts},
        {"router z-loss", gradients_are_slopes, NULL, NULL, &z_loss},
        {"shared experts", gradients_are_slopes, NULL, NULL, &shared},
        {"experts in shards", gradients_are_slopes, NULL, NULL, &cut},
        {"hash", gradients_are_slopes, NULL, NULL, &hash},
        {"SAM top-3 of 8", gradients_are_slopes, NULL, NULL, &sam},
        {"sigmoid top-4 of 8", gradients_are_slopes, NULL, NULL, &sigmoid},
        {"GShard top-2", gradients_are_slopes, NULL, NULL, &gshard},
        {"Switch top-1", gradients_are_slopes, NULL, NULL, &one},
        {"softmax top-6 of 8", gradients_are_slopes, NULL, NULL, &six},
        {"softmax top-4 of 8, as they are", gradients_are_slopes, NULL, NULL, &as_they_are},
        {"softmax, all of 4", gradients_are_slopes, NULL, NULL, &all},
    };
    return cmocka_run_group_tests_name("finite differences", tests, NULL, NULL);
}
