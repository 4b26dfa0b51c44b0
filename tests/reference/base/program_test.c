/* Integer programs: held against all solutions of small ones, their limits, and what happens
 * without a solver. */
#include "reference/base/program.h"

#include <fcntl.h>

#include "tests/errors.h"
#include "tests/reference/base/solver.h"

/* Items with values and weights in several dimensions, each taken or not. */
enum { MOST_ITEMS = 40, DIMENSIONS = 2 };
struct knapsack {
    int items, value[MOST_ITEMS], weight[DIMENSIONS][MOST_ITEMS], room[DIMENSIONS];
};

static void random_knapsack(uint64_t *random, int items, struct knapsack *knapsack) {
    *knapsack = (struct knapsack){.items = items};
    for (int i = 0; i < items; i++) {
        knapsack->value[i] = test_random_int(random, 1, 100);
        for (int d = 0; d < DIMENSIONS; d++) {
            knapsack->weight[d][i] = test_random_int(random, 0, 100);
            knapsack->room[d] += knapsack->weight[d][i];
        }
    }
    for (int d = 0; d < DIMENSIONS; d++)
        knapsack->room[d] /= 2;
}

/* The value of what is left behind, which is to be least; -1: too heavy. */
static int left_behind(const struct knapsack *knapsack, const double taken[]) {
    int left = 0, weight[DIMENSIONS] = {0};
    for (int i = 0; i < knapsack->items; i++) {
        left += taken[i] > 0.5 ? 0 : knapsack->value[i];
        for (int d = 0; d < DIMENSIONS; d++)
            weight[d] += taken[i] > 0.5 ? knapsack->weight[d][i] : 0;
    }
    for (int d = 0; d < DIMENSIONS; d++)
        if (weight[d] > knapsack->room[d])
            return -1;
    return left;
}

/* Columns are what is left, which costs its value: x = 1 - taken. */
static struct mp_program_result solve(const struct knapsack *knapsack,
                                      const struct mp_program_limits *limits, bool starts,
                                      double taken[]) {
    struct mp_program *program;
    struct mp_program_result result;
    double left[MOST_ITEMS];
    assert_works(mp_program_create(&program, &error));
    for (int i = 0; i < knapsack->items; i++) {
        left[i] = 1 - taken[i];
        assert_int_equal(mp_program_column(program, 0, 1, knapsack->value[i], true), i);
    }
    for (int d = 0; d < DIMENSIONS; d++) {
        int all = 0;
        for (int i = 0; i < knapsack->items; i++)
            all += knapsack->weight[d][i];
        mp_program_row(program, all - knapsack->room[d], MP_PROGRAM_NONE);
        for (int i = 0; i < knapsack->items; i++)
            mp_program_term(program, i, knapsack->weight[d][i]);
    }
    assert_works(mp_program_solve(program, limits, starts, left, &result, &error));
    for (int i = 0; i < knapsack->items; i++)
        taken[i] = 1 - left[i];
    mp_program_destroy(program);
    return result;
}

TEST_RANDOM(solutions_are_the_best_of_all) {
    const struct mp_program_limits limits = {0, 100000, 0}, wide = {0.5, 100000, 0};
    struct knapsack knapsack;
    need_solver();
    for (int round = 0; round < 30; round++) {
        int best = INT32_MAX;
        double taken[MOST_ITEMS];
        random_knapsack(random, test_random_int(random, 1, 10), &knapsack);
        for (int set = 0; set < 1 << knapsack.items; set++) {
            for (int i = 0; i < knapsack.items; i++)
                taken[i] = set >> i & 1;
            int left = left_behind(&knapsack, taken);
            best = left >= 0 && left < best ? left : best;
        }
        struct mp_program_result result = solve(&knapsack, &limits, false, taken);
        assert_int_equal(result.status, MP_PROGRAM_SOLVED);
        assert_all_close(1e-6, result.objective, best, result.bound, best);
        assert_int_equal(left_behind(&knapsack, taken), best);
        result = solve(&knapsack, &wide, true, taken); /* nothing worse than it begins with */
        assert_all_close(1e-6, result.objective, best, left_behind(&knapsack, taken), best);
    }
}

/* The root alone leaves a gap, in which the best lies; the same program has the same solution; and
 * nothing is printed. */
TEST(limits_leave_a_gap) {
    const struct mp_program_limits root = {0, 0, 0}, wide = {0.5, 100000, 0}, all = {0, 1000000, 0};
    struct knapsack knapsack;
    uint64_t random = 11;
    char printed[16];
    int pipes[2], output = dup(STDOUT_FILENO), limited = 0;
    need_solver();
    assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
    fflush(stdout);
    dup2(pipes[1], STDOUT_FILENO);
    for (int round = 0; round < 5; round++) {
        double few[MOST_ITEMS] = {0}, again[MOST_ITEMS] = {0}, best[MOST_ITEMS] = {0};
        random_knapsack(&random, MOST_ITEMS, &knapsack);
        struct mp_program_result first = solve(&knapsack, &root, true, few);
        struct mp_program_result second = solve(&knapsack, &root, true, again);
        struct mp_program_result exact = solve(&knapsack, &all, false, best);
        assert_int_equal(exact.status, MP_PROGRAM_SOLVED);
        assert_memory_equal(few, again, sizeof few);
        assert_memory_equal(&first, &second, sizeof first);
        assert_true(first.bound <= exact.objective + 1e-6);
        assert_true(first.objective >= exact.objective - 1e-6);
        assert_close(first.objective, left_behind(&knapsack, few), 1e-6);
        assert_close(first.gap, (first.objective - first.bound) / first.objective, 1e-12);
        limited += first.status == MP_PROGRAM_LIMITED && first.gap > 0;
        struct mp_program_result enough = solve(&knapsack, &wide, true, best);
        assert_int_equal(enough.status, MP_PROGRAM_SOLVED);
        assert_true(enough.gap <= 0.5);
        assert_close(enough.objective, exact.objective, 1e-6); /* as it began with that */
    }
    fflush(stdout);
    dup2(output, STDOUT_FILENO);
    close(output);
    assert_true(read(pipes[0], printed, sizeof printed) < 0);
    close(pipes[0]);
    close(pipes[1]);
    assert_true(limited > 0);
}

static struct mp_program *make_line(double low, double high, double least) {
    struct mp_program *program;
    assert_works(mp_program_create(&program, &error));
    assert_int_equal(mp_program_column(program, low, high, 1, false), 0);
    mp_program_row(program, least, MP_PROGRAM_NONE);
    mp_program_term(program, 0, 2);
    return program;
}

TEST(programs_without_a_solution) {
    const struct mp_program_limits limits = {0, 10, 0}, wrong = {-1, 0, 0};
    const struct {
        double low, high, least;
        enum mp_program_status status;
    } row[] = {{0, 10, 5, MP_PROGRAM_SOLVED},
               {0, 10, 21, MP_PROGRAM_INFEASIBLE},
               {-MP_PROGRAM_NONE, 10, -MP_PROGRAM_NONE, MP_PROGRAM_UNBOUNDED}};
    need_solver();
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double value;
        struct mp_program_result result;
        struct mp_program *program = make_line(row[i].low, row[i].high, row[i].least);
        assert_works(mp_program_solve(program, &limits, false, &value, &result, &error));
        assert_int_equal(result.status, row[i].status);
        if (row[i].status == MP_PROGRAM_SOLVED) {
            assert_close(value, 2.5, 1e-9);
            assert_close(result.objective, 2.5, 1e-9);
        }
        mp_program_destroy(program);
    }
    double value;
    struct mp_program_result result;
    struct mp_program *program = make_line(0, 1, 1);
    assert_fails(mp_program_solve(program, &wrong, false, &value, &result, &error), MP_EINVAL, "");
    mp_program_term(program, 1, 1);
    assert_fails(mp_program_solve(program, &limits, false, &value, &result, &error), MP_EINVAL, "");
    mp_program_destroy(program);
    mp_program_destroy(NULL);
}

TEST(without_a_solver_a_sentence_says_what_to_install) {
    struct mp_program *program;
    struct mp_error error = {0}, other = {0};
    char text[64];
    setenv("MOEPERF_CBC_LIBRARY", "libno-solver.so", 1);
    assert_int_equal(mp_program_create(&program, &error), MP_ENOTFOUND);
    assert_null(program);
    assert_contains(error.text, "install coinor-libcbc-dev");
    setenv("MOEPERF_CBC_LIBRARY", "libm.so.6", 1);
    assert_int_equal(mp_program_solver(text, sizeof text, &other), MP_ENOTFOUND);
    assert_string_equal(other.text,
                        "libm.so.6 has no function Cbc_getVersion; it takes CBC 2.9 or later");
    unsetenv("MOEPERF_CBC_LIBRARY");
}
