/* Single iterations of one rank: parameters move as AdamW says, with the job's settings and the
 * steps taken so far, and clocks that are to stand still do. */
#include "profiler/record/record.h"
#include "tests/errors.h"
#include "tests/golden/small_trainer.h"

enum { LAYERS = 2, EXPERTS = 4, TOKENS = 2 * 8, STEPS = 3 };

static const double LEARNING_RATE = 0.02, BETA1 = 0.6, BETA2 = 0.9, EPSILON = 1e-3, DECAY = 0.3;

static void create(struct small_trainer *small) {
    small_trainer_create(small, "layers=2 width=16 heads=2 experts=4 sequence=8 batch=2 "
                                "expert-width=24 beta1=0.6 beta2=0.9 epsilon=1e-3 "
                                "learning-rate=0.02 weight-decay=0.3");
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
        for (int i = 0; i < TOKENS; i++) {
            token[i] = test_random_int(random, 0, 255);
            target[i] = test_random_int(random, 0, 255);
        }
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
