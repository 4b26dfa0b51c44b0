/* Single iterations of one rank: parameters move as AdamW says, with the job's settings and the
 * steps taken so far, wherever in the step it comes, and clocks that are to stand still do. */
#include "profiler/record/record.h"
#include "tests/errors.h"
#include "tests/golden/small_trainer.h"
#include "tests/reference/trainer/updates.h"

enum { LAYERS = 2, EXPERTS = 4, TOKENS = 2 * 8, STEPS = 3 };

static const double LEARNING_RATE = 0.02, BETA1 = 0.6, BETA2 = 0.9, EPSILON = 1e-3, DECAY = 0.3;

static void create_with(struct small_trainer *small, const char *settings) {
    small_trainer_create(small, formatted("layers=2 width=16 heads=2 experts=4 sequence=8 batch=2 "
                                          "expert-width=24 beta1=0.6 beta2=0.9 epsilon=1e-3 "
                                          "learning-rate=0.02 weight-decay=0.3 %s",
                                          settings));
}
static void create(struct small_trainer *small) {
    create_with(small, "");
}

/* ---- AdamW, in double ---- */

/* Parameters of one kind, what they should be, and their moments so far. */
struct followed {
    const float *parameter, *gradient, *first, *second;
    double *expected; /* [count], then the first and the second moments */
    size_t count;
    bool decays;
};

static struct followed follow(const float *parameter, const float *gradient, const float *first,
                              const float *second, size_t count, bool decays) {
    struct followed followed = {.parameter = parameter,
                                .gradient = gradient,
                                .first = first,
                                .second = second,
                                .count = count,
                                .decays = decays};
    followed.expected = calloc(3 * count, sizeof *followed.expected);
    assert_non_null(followed.expected);
    for (size_t i = 0; i < count; i++)
        followed.expected[i] = (double)parameter[i];
    return followed;
}

static void check_step(const struct followed *followed, int step) {
    double *expected = followed->expected, *first = expected + followed->count;
    double *second = first + followed->count, moved = 0;
    for (size_t i = 0; i < followed->count; i++) {
        double gradient = (double)followed->gradient[i];
        first[i] = BETA1 * first[i] + (1 - BETA1) * gradient;
        second[i] = BETA2 * second[i] + (1 - BETA2) * gradient * gradient;
        double mean = first[i] / (1 - pow(BETA1, step)),
               square = second[i] / (1 - pow(BETA2, step));
        double change = LEARNING_RATE * mean / (sqrt(square) + EPSILON);
        expected[i] -= change + (followed->decays ? LEARNING_RATE * DECAY * expected[i] : 0);
        moved = fmax(moved, fabs(change));
        assert_within((double)followed->parameter[i], expected[i], 1e-5);
        assert_within((double)followed->first[i], first[i], 1e-6);
        assert_within((double)followed->second[i], second[i], 1e-6);
    }
    assert_true(moved > 1e-4); /* every tensor has a gradient */
}

static void draw_tokens(uint64_t *random, int32_t token[TOKENS], int32_t target[TOKENS]) {
    for (int i = 0; i < TOKENS; i++) {
        token[i] = test_random_int(random, 0, 255);
        target[i] = test_random_int(random, 0, 255);
    }
}

TEST_RANDOM(parameters_move_as_adamw_says) {
    AUTO(small_trainer) struct small_trainer small;
    struct followed followed[64];
    int count = 0;
    create(&small);
    const struct mp_dense *dense = &small.trainer->model.dense;
    const struct mp_experts *experts = &small.trainer->model.experts;
    for (int i = 0; i < dense->tensors; i++) {
        size_t at = dense->tensor[i].offset;
        followed[count++] =
            follow(dense->parameter + at, dense->gradient + at, dense->first + at,
                   dense->second + at, dense->tensor[i].count, dense->tensor[i].decays);
    }
    for (int i = 0; i < LAYERS * EXPERTS; i++) {
        float *state_of[3];
        mp_experts_state(experts, i / EXPERTS, i % EXPERTS, state_of);
        followed[count++] =
            follow(state_of[0], small_trainer_expert(&small, 1, i / EXPERTS, i % EXPERTS),
                   state_of[1], state_of[2], experts->chunk, true);
    }
    for (int step = 1; step <= STEPS; step++) {
        int32_t token[TOKENS], target[TOKENS];
        struct mp_trainer_result result;
        draw_tokens(random, token, target);
        assert_works(mp_trainer_step_on(small.trainer, token, target, &result, &error));
        for (int i = 0; i < count; i++)
            check_step(&followed[i], step);
    }
    const struct mp_trainer_totals *totals = mp_trainer_totals(small.trainer);
    assert_numbers(totals->routes, STEPS * LAYERS * TOKENS * 2, totals->dropped, 0);
    assert_int_equal(totals->moves, 0);
    while (count > 0)
        free(followed[--count].expected);
}

/* ---- updates in backward ---- */

/* Settings, and whether a rank alone can update experts where their gradients are made. */
static const struct {
    const char *settings;
    bool can;
} jobs[] = {{"", true},
            {"weights-behind=yes", true},
            {"exchange-degree=2", false},
            {"system=flexmoe options.offload-optimizer=yes", false},
            {"system=swiftmoe options.capacity-factor=0", false}};
/* Parameters and moments are those of updates behind backward, to the last bit. */
TEST_RANDOM_TURNS(updates_may_come_early, (int)(sizeof jobs / sizeof *jobs), turn) {
    AUTO(small_trainer) struct small_trainer late, early;
    static struct mp_device_operations operations;
    create_with(&late, jobs[turn].settings);
    create_with(&early, jobs[turn].settings);
    operations = *early.trainer->device->operations;
    update_in_backward(&operations);
    early.trainer->device->operations = &operations;
    grouped_updates = 0;
    for (int step = 1; step <= STEPS; step++) {
        int32_t token[TOKENS], target[TOKENS];
        struct mp_trainer_result result[2];
        draw_tokens(random, token, target);
        assert_works(mp_trainer_step_on(late.trainer, token, target, &result[0], &error));
        assert_works(mp_trainer_step_on(early.trainer, token, target, &result[1], &error));
        assert_true(result[0].loss == result[1].loss);
    }
    assert_int_equal(grouped_updates, jobs[turn].can ? 2 * STEPS * LAYERS : 0);
    for (int i = 0; i < LAYERS * EXPERTS; i++) {
        float *state[2][3];
        mp_experts_state(&late.trainer->model.experts, i / EXPERTS, i % EXPERTS, state[0]);
        mp_experts_state(&early.trainer->model.experts, i / EXPERTS, i % EXPERTS, state[1]);
        for (int k = 0; k < 3; k++)
            assert_memory_equal(state[0][k], state[1][k],
                                late.trainer->model.experts.chunk * sizeof(float));
    }
}

/* ---- transfers that cost nothing ---- */

static void work_for(int64_t nanoseconds) {
    int64_t start = mp_clock_thread_cpu_ns();
    while (mp_clock_thread_cpu_ns() - start < nanoseconds)
        ;
}

/* Neither clock goes on in a pause, nor is anything sent or waited for; two pauses add up. */
TEST(pauses_leave_no_trace) {
    enum { PAUSES = 2, NANOSECONDS = 1000000 };
    AUTO(small_trainer) struct small_trainer small;
    create(&small);
    struct mp_trainer *trainer = small.trainer;
    trainer->spans.pauses = true;
    trainer->comm->waited_ns = 700;
    trainer->comm->sent_bytes = 800;
    for (int i = 1; i <= PAUSES; i++) {
        assert_works(mp_spans_pause(&trainer->spans, &error));
        work_for(NANOSECONDS);
        trainer->comm->waited_ns += 70;
        trainer->comm->sent_bytes += 80;
        assert_works(mp_spans_resume(&trainer->spans, &error));
        assert_numbers(trainer->comm->waited_ns, 700, trainer->comm->sent_bytes, 800);
        assert_true(trainer->spans.pause.cpu_ns >= (int64_t)i * NANOSECONDS);
        assert_true(trainer->spans.paused_ns >= (int64_t)i * NANOSECONDS);
    }
    int64_t cpu_ns = trainer->spans.pause.cpu_ns, paused_ns = trainer->spans.paused_ns;
    assert_true(cpu_ns <= mp_clock_thread_cpu_ns()); /* what was spent, not when */
    assert_true(mp_spans_now(&trainer->spans) <= mp_clock_ns() - paused_ns);
    trainer->spans.pauses = false;
    assert_works(mp_spans_pause(&trainer->spans, &error));
    trainer->comm->waited_ns += 70;
    assert_works(mp_spans_resume(&trainer->spans, &error));
    assert_numbers(trainer->comm->waited_ns, 770, trainer->spans.pause.cpu_ns, cpu_ns);
    assert_int_equal(trainer->spans.paused_ns, paused_ns);
}
