/* Gradients against finite differences: along a random direction of every parameter tensor, the
 * loss changes as the gradient says.  The routing is replayed, because a gate that changes its mind
 * makes the loss jump; the gate's own gradient then flows through the weights, the auxiliary loss
 * stays in with the firsts that are given. */
#include "reference/base/random.h"
#include "tests/errors.h"
#include "tests/golden/small_trainer.h"

enum { TOKENS = 4 * 16 };

static int32_t token[TOKENS], target[TOKENS];

static double total_loss(struct small_trainer *small) {
    struct mp_trainer *trainer = small->trainer;
    struct mp_model *model = mp_trainer_model(trainer);
    assert_works(mp_trainer_forward(trainer, token, target, &error));
    mp_model_head(model, 0, false);
    double loss = mp_model_loss_sum(model, trainer->batch.loss) / TOKENS;
    for (int l = 0; l < trainer->job.layers; l++)
        loss += trainer->counts.loss[l];
    return loss;
}

/* Whether the loss has the slope in a direction, from so far to so far. */
static bool has_slope(struct small_trainer *small, float *parameter, const float direction[],
                      size_t count, double from, double to, double slope, double *measured) {
    double loss[2];
    AUTO(allocated) float *kept = malloc(count * sizeof *kept);
    assert_non_null(kept);
    memcpy(kept, parameter, count * sizeof *kept);
    for (int end = 0; end < 2; end++) {
        float by = (float)(end ? to : from);
        for (size_t i = 0; i < count; i++)
            parameter[i] = kept[i] + by * direction[i];
        loss[end] = total_loss(small);
    }
    memcpy(parameter, kept, count * sizeof *kept);
    *measured = (loss[1] - loss[0]) / (to - from);
    return fabs(*measured - slope) <= 0.02 * fabs(slope) + 4e-6 / (to - from);
}

/* (loss(p + h d) - loss(p - h d)) / 2h against gradient . d, with d along the gradient mixed with
 * noise, so that the derivative is large enough to be seen in fp32. */
static void check_direction(struct small_trainer *small, const char *name, float *parameter,
                            const float *gradient, size_t count, uint64_t seed) {
    AUTO(allocated) float *direction = malloc(count * sizeof *direction);
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
         * Where it meets a kink of a gate's loss, a smaller one does not, or one of its sides. */
        const double step = fmin(1e-3 / fabs(slope), 0.05), less = step / 8;
        const double ends[][2] = {{0, less}, {-less, 0}, {-less, less}, {-step, step}};
        double measured = NAN;
        int tries = 4;
        while (tries > 0 && !has_slope(small, parameter, direction, count, ends[tries - 1][0],
                                       ends[tries - 1][1], slope, &measured))
            tries--;
        if (tries == 0) {
            print_error("%s: gradient says %.6g, differences %.6g (step %.3g)\n", name, slope,
                        measured, less);
            fail();
        }
    }
}

static const struct gate {
    const char *name, *settings; /* the share: of routes on the first of all experts */
} gates[] = {
    {"BASE", "gate=base experts=4 skew-share=0.4"},
    {"BASE, weights of 1", "gate=base experts=4 skew-share=0.4 gate-options.weights=one"},
    {"expert choice", "gate=expertchoice experts=8 skew-share=0.2 top-k=4"},
    {"loss by sequence", "gate=gshard experts=4 skew-share=0.4 gate-options.balance-over=sequence"},
    {"loss by sequence, k top-1",
     "gate=ktop1 experts=8 skew-share=0.2 top-k=2 gate-options.balance-over=sequence"},
    {"dense to sparse",
     "gate=dts experts=8 skew-share=0.2 top-k=4 gate-options.first-temperature=0.7"},
    {"router z-loss", "gate=gshard experts=4 skew-share=0.4 gate-options.z-loss=0.2"},
    {"shared experts", "gate=gshard experts=4 skew-share=0.4 shared-experts=2"},
    {"experts in shards", "gate=softmax experts=4 skew-share=0.3 top-k=3 expert-shards=3"},
    {"hash", "gate=hash experts=4 skew-share=0.4"},
    {"SAM top-3 of 8", "gate=sam experts=8 skew-share=0.2 top-k=3 gate-options.alignment-weight=1"},
    {"sigmoid top-4 of 8", "gate=sigmoid experts=8 skew-share=0.2 top-k=4 gate-options.scale=2.5"},
    {"GShard top-2", "gate=gshard experts=4 skew-share=0.4"},
    {"Switch top-1", "gate=switch experts=4 skew-share=0.4"},
    {"softmax top-6 of 8", "gate=softmax experts=8 skew-share=0.15 top-k=6"},
    {"softmax top-4 of 8, as they are",
     "gate=softmax experts=8 skew-share=0.2 top-k=4 renormalise=no"},
    {"softmax, all of 4", "gate=softmax experts=4 skew-share=0.25 top-k=all renormalise=yes"},
    /* What is dropped has no part in it; weights are divided by the sum over survivors, or not. */
    {"drops, GShard top-2",
     "gate=gshard experts=4 skew-share=0.5 system=deepspeed options.capacity-factor=0.6"},
    {"drops, softmax top-4 of 8",
     "gate=softmax experts=8 skew-share=0.2 top-k=4 renormalise=no system=deepspeed "
     "options.capacity-factor=0.6 options.policy=position"},
    {"drops, GShard top-2, before them",
     "gate=gshard experts=4 skew-share=0.5 system=tutel options.capacity-factor=0.6"},
    {"drops, softmax top-4 of 8, as they are",
     "gate=softmax experts=8 skew-share=0.2 top-k=4 renormalise=no system=tutel "
     "options.capacity-factor=0.6"},
};

TEST_EACH(gradients_are_slopes, gates, gate) {
    uint64_t seed = test_seed();
    AUTO(small_trainer) struct small_trainer small;
    small_trainer_create(&small, formatted("layers=2 width=16 heads=2 sequence=16 batch=4 "
                                           "expert-width=24 auxiliary-weight=0.5 routing=skewed "
                                           "skew-experts=1 learning-rate=0 %s",
                                           gate->settings));
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
    assert_works(mp_trainer_step_on(small.trainer, token, target, &result, &error));
    assert_int_equal(mp_trainer_totals(small.trainer)->dropped > 0,
                     strncmp(gate->name, "drops", 5) == 0);
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
}
