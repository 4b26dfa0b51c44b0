/* Our trainer and PyTorch on the same parameters and tokens: logits, losses, every gradient, and
 * every parameter after ten AdamW steps agree to 1e-4 (of the tensor's largest element). */
#include "tests/errors.h"
#include "tests/golden/golden.h"
#include "tests/golden/small_trainer.h"

static const double TOLERANCE = 1e-4;

struct comparison {
    const char *name; /* of the file */
    const char *gate; /* and its options */
    struct mp_golden *golden;
    struct small_trainer small;
    int layers, experts, width, expert_width, batch, sequence, steps;
};

static int setting(struct comparison *c, const char *name) {
    const int32_t *value = mp_golden_int32(c->golden, formatted("settings.%s", name), 1);
    assert_non_null(value);
    return *value;
}

static double number(struct comparison *c, const char *name) {
    const float *value = mp_golden_float(c->golden, formatted("settings.%s", name), 1);
    assert_non_null(value);
    return (double)*value;
}

/* Adds "expert-width=24" for expert_width. */
static void add(char settings[MOST_SETTINGS], const char *name, double value) {
    size_t at = strlen(settings);
    for (; *name; name++)
        settings[at++] = *name == '_' ? '-' : *name;
    snprintf(settings + at, MOST_SETTINGS - at, "=%.9g ", value);
}

/* The largest difference relative to the tensor's largest element must stay below the tolerance. */
static void assert_same(const char *name, const float *ours, const float *theirs, size_t elements) {
    double largest = 0, difference = 0;
    assert_non_null(theirs);
    for (size_t i = 0; i < elements; i++) {
        assert_true(isfinite(ours[i]));
        largest = fmax(largest, fabs((double)theirs[i]));
        difference = fmax(difference, fabs((double)ours[i] - (double)theirs[i]));
    }
    if (!(difference <= TOLERANCE * (largest > 0 ? largest : 1))) {
        print_error("%s differs by %.3g, its largest element is %.3g\n", name, difference, largest);
        fail();
    }
}

/* Calls `visit` for every parameter of the model with its buffer (which: 0 parameters,
 * 1 gradients) and name. */
static void each_tensor(struct comparison *c, int which, const char *prefix,
                        void (*visit)(const char *, float *, const float *, size_t)) {
    struct mp_dense *dense = &mp_trainer_model(c->small.trainer)->dense;
    float *buffer = which ? dense->gradient : dense->parameter;
    char name[96];
    for (int i = 0; i < dense->tensors; i++) {
        const struct mp_tensor *tensor = &dense->tensor[i];
        snprintf(name, sizeof name, "%s%s", prefix, tensor->name);
        visit(name, buffer + tensor->offset, mp_golden_float(c->golden, name, tensor->count),
              tensor->count);
    }
    size_t half = (size_t)c->width * (size_t)c->expert_width;
    for (int l = 0; l < c->layers; l++)
        for (int e = 0; e < c->experts; e++)
            for (int w = 0; w < 2; w++) {
                snprintf(name, sizeof name, "%slayer.%d.expert.%d.w%d", prefix, l, e, w + 1);
                visit(name, small_trainer_expert(&c->small, which, l, e) + (w ? half : 0),
                      mp_golden_float(c->golden, name, half), half);
            }
}

static void take(const char *name, float *ours, const float *theirs, size_t elements) {
    if (!theirs)
        fail_msg("no tensor %s", name);
    memcpy(ours, theirs, elements * sizeof *ours);
}

static void compare(const char *name, float *ours, const float *theirs, size_t elements) {
    assert_same(name, ours, theirs, elements);
}

static int open_comparison(void **state) {
    struct comparison *c = *state;
    static const char *const counts[] = {"layers",       "width",    "heads", "experts",
                                         "expert_width", "sequence", "batch"};
    static const char *const numbers[] = {"learning_rate", "beta1",        "beta2",
                                          "epsilon",       "weight_decay", "auxiliary_weight"};
    char settings[MOST_SETTINGS] = "";
    assert_works(
        mp_golden_open(formatted("%s/%s", MOEPERF_GOLDEN_FOLDER, c->name), &c->golden, &error));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        add(settings, counts[i], setting(c, counts[i]));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        add(settings, numbers[i], number(c, numbers[i]));
    add(settings, "top_k", setting(c, "choices"));
    small_trainer_create(&c->small, formatted("%s %s", settings, c->gate));
    c->layers = setting(c, "layers");
    c->experts = setting(c, "experts");
    c->width = setting(c, "width");
    c->expert_width = setting(c, "expert_width");
    c->batch = setting(c, "batch");
    c->sequence = setting(c, "sequence");
    c->steps = setting(c, "steps");
    each_tensor(c, 0, "", take);
    return 0;
}

static int close_comparison(void **state) {
    struct comparison *c = *state;
    small_trainer_destroy(&c->small);
    mp_golden_close(c->golden);
    return 0;
}

static const int32_t *batch(struct comparison *c, const char *name, int step) {
    size_t tokens = (size_t)c->batch * (size_t)c->sequence;
    const int32_t *all = mp_golden_int32(c->golden, name, tokens * (size_t)c->steps);
    assert_non_null(all);
    return all + (size_t)step * tokens;
}

static void compare_logits(struct comparison *c) {
    struct mp_model *model = mp_trainer_model(c->small.trainer);
    size_t elements = (size_t)model->tokens * MP_VOCABULARY;
    assert_works(mp_trainer_forward(c->small.trainer, batch(c, "tokens", 0), batch(c, "targets", 0),
                                    &error));
    mp_model_logits(model);
    assert_same("logits", model->logits, mp_golden_float(c->golden, "logits", elements), elements);
}

static struct comparison comparisons[] = {
    {.name = "gshard.bin", .gate = "gate=gshard"},
    {.name = "switch.bin", .gate = "gate=switch"},
    {.name = "softmax.bin", .gate = "gate=softmax"},
    {.name = "shared.bin", .gate = "gate=softmax shared-experts=2"},
    {.name = "z_loss.bin", .gate = "gate=switch gate-options.z-loss=0.02"},
    {.name = "gshard_random.bin", .gate = "gate=gshard gate-options.second=random"},
    {.name = "gshard.bin", .gate = "gate=tamoe"}, /* one rank has nothing that is far */
    {.name = "sequence.bin", .gate = "gate=softmax gate-options.balance-over=sequence"},
    {.name = "dts.bin", .gate = "gate=dts gate-options.last-temperature=0.5 gate-options.anneal=8"},
    {.name = "base.bin", .gate = "gate=base gate-options.accuracy=1e-5"},
    {.name = "expertchoice.bin", .gate = "gate=expertchoice"},
    {.name = "hash.bin", .gate = "gate=hash gate-options.seed=1"},
    {.name = "ktop1.bin", .gate = "gate=ktop1"},
    {.name = "sam.bin",
     .gate = "gate=sam gate-options.groups=2 gate-options.alignment-weight=0.05"},
    {.name = "sigmoid.bin",
     .gate = "gate=sigmoid gate-options.groups=4 gate-options.groups-kept=2 "
             "gate-options.bias-rate=0.01 gate-options.scale=2.5"},
};

TEST_EACH_WITH(ten_steps_agree, comparisons, c, open_comparison, close_comparison) {
    const float *losses = mp_golden_float(c->golden, "losses", (size_t)c->steps);
    const float *auxiliary =
        mp_golden_float(c->golden, "auxiliary_losses", (size_t)c->steps * (size_t)c->layers);
    const float *other =
        mp_golden_float(c->golden, "other_losses", (size_t)c->steps * (size_t)c->layers);
    const float *weight = mp_golden_float(c->golden, "settings.auxiliary_weight", 1);
    assert_true(losses && auxiliary && weight && c->steps == 10);
    compare_logits(c);
    for (int i = 0; i < c->steps; i++) {
        struct mp_trainer_result result;
        assert_works(mp_trainer_step_on(c->small.trainer, batch(c, "tokens", i),
                                        batch(c, "targets", i), &result, &error));
        double expected = 0;
        for (int l = 0; l < c->layers; l++)
            expected += (double)*weight * (double)auxiliary[i * c->layers + l] +
                        (other ? (double)other[i * c->layers + l] : 0);
        assert_all_close(TOLERANCE, result.loss, losses[i], result.auxiliary_loss, expected);
        if (i == 0)
            each_tensor(c, 1, "gradient.", compare);
    }
    each_tensor(c, 0, "after10.", compare);
}
