/* What a training step asks of a GPU: kernels, products, copies and waits of the host, counted by
 * the double of CUDA.  On a GPU each of the first three takes microseconds that nothing hides, and
 * the host gets ahead of the GPU only while it does not wait.  A change may lower a figure, here
 * too; what raises one has to be worth it. */
#include "tests/double/cuda/double.h"
#include "tests/errors.h"
#include "tests/golden/small_trainer.h"

/* Steps so slow that each of them looks after clocks. */
#ifdef __SANITIZE_ADDRESS__
enum { LOOKS_OFTEN = true };
#else
enum { LOOKS_OFTEN = false };
#endif

enum { KERNELS, PRODUCTS, COPIES, BYTES, WAITS, KINDS };
static const char *const kinds[KINDS] = {"kernels", "products", "copies", "bytes copied",
                                         "waits of the host"};

struct step {
    const char *name, *settings; /* besides those of all */
    int64_t most[KINDS];
};

/* Two layers; heads of 64, whose attention is fused in bf16. */
static const char common[] =
    "device=cuda layers=2 width=128 heads=2 experts=8 expert-width=64 sequence=32 batch=2 "
    "routing=skewed skew-share=0.6 gate=gshard iterations=9 auxiliary-weight=0";
enum { TOKENS = 2 * 32 };

static const struct step steps[] = {
    {"bf16", "precision=bf16", {66, 117, 14, 67784, 3}},
    {"bf16, one grouped product",
     "precision=bf16 grouped-products=library",
     {66, 61, 22, 69320, 3}},
    {"fp32", "precision=fp32", {68, 131, 14, 116936, 3}},
    {"bf16, tokens dropped",
     "precision=bf16 system=deepspeed options.capacity-factor=0.5",
     {70, 117, 18, 101064, 3}},
};

static void subtract(const struct cuda_double_counts *after,
                     const struct cuda_double_counts *before, int64_t counted[KINDS]) {
    const int64_t difference[KINDS] = {
        [KERNELS] = after->launches - before->launches,
        [PRODUCTS] = after->products - before->products,
        [COPIES] = after->copies - before->copies,
        [BYTES] = after->copied_bytes - before->copied_bytes,
        [WAITS] = after->synchronisations - before->synchronisations,
    };
    for (int i = 0; i < KINDS; i++)
        counted[i] = difference[i] < counted[i] ? difference[i] : counted[i];
}

/* Buffers have grown to their sizes by the third step; now and then a step also looks after clocks,
 * with waits of its own, so that the least of some counts. */
static void a_step_asks_for_no_more(void **state) {
    enum { WARM = 2, STEPS = 6 };
    const struct step *step = *state;
    struct small_trainer small;
    struct cuda_double_counts before, after;
    struct mp_trainer_result result;
    int32_t token[TOKENS + 1];
    int64_t counted[KINDS];
    for (int i = 0; i <= TOKENS; i++)
        token[i] = i % 7;
    for (int i = 0; i < KINDS; i++)
        counted[i] = INT64_MAX;
    small_trainer_create(&small, formatted("%s %s", common, step->settings));
    for (int i = 0; i < STEPS; i++) {
        cuda_double_get_counts(&before);
        assert_works(mp_trainer_step_on(small.trainer, token, token + 1, &result, &error));
        cuda_double_get_counts(&after);
        if (i >= WARM)
            subtract(&after, &before, counted);
    }
    assert_int_equal(after.allocations, before.allocations);
    small_trainer_destroy(&small);
    for (int i = 0; i < KINDS; i++)
        print_message("%s: %lld\n", kinds[i], (long long)counted[i]);
    for (int i = 0; i < KINDS; i++)
        if (counted[i] > step->most[i] && (i != WAITS || !LOOKS_OFTEN))
            fail_msg("%s in a step: %lld, there were %lld", kinds[i], (long long)counted[i],
                     (long long)step->most[i]);
}

int main(void) {
    enum { COUNT = sizeof steps / sizeof *steps };
    static struct CMUnitTest tests[COUNT];
    for (int i = 0; i < COUNT; i++)
        tests[i] = (struct CMUnitTest){steps[i].name, a_step_asks_for_no_more, NULL, NULL,
                                       (void *)(uintptr_t)&steps[i]};
    return _cmocka_run_group_tests("counts of a step", tests, COUNT, NULL, NULL);
}
