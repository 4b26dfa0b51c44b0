/* Load prediction: sums over the last iterations, and their way through a checkpoint. */
#include "tests/reference/plan/plan_support.h"

#include <string.h>

#include "reference/fssdp/fssdp.h"

static uint64_t random_state;

enum { LAYERS = 3, EXPERTS = 11, ITERATIONS = 12 };

/* The loads of a run on `ranks` ranks; layers of one iteration lie together. */
struct history {
    struct mp_load load[ITERATIONS][LAYERS];
};

static void create_history(int ranks, struct history *history) {
    struct mp_error error = {0};
    for (int iteration = 0; iteration < ITERATIONS; iteration++)
        for (int layer = 0; layer < LAYERS; layer++) {
            struct mp_load *load = &history->load[iteration][layer];
            assert_ok(mp_load_create(ranks, EXPERTS, load, &error), &error);
            random_load(&random_state, load);
        }
}

static void destroy_history(struct history *history) {
    for (int index = 0; index < ITERATIONS * LAYERS; index++)
        mp_load_destroy(&history->load[index / LAYERS][index % LAYERS]);
}

static void assert_sums(const struct mp_window *window, const struct history *history, int pushed) {
    int first = pushed > window->window ? pushed - window->window : 0;
    for (int layer = 0; layer < LAYERS; layer++)
        for (int expert = 0; expert < EXPERTS; expert++) {
            int64_t sum = 0;
            for (int iteration = first; iteration < pushed; iteration++)
                for (int rank = 0; rank < history->load[0][0].ranks; rank++)
                    sum += mp_load_at(&history->load[iteration][layer], rank, expert);
            assert_int_equal(mp_window_layer(window, layer)[expert], sum);
        }
}

static void sums_cover_the_last_iterations(void **state) {
    (void)state;
    struct history history;
    struct mp_error error = {0};
    create_history(3, &history);
    for (int size = 1; size <= ITERATIONS + 1; size++) {
        struct mp_window window;
        assert_ok(mp_window_create(LAYERS, EXPERTS, size, &window, &error), &error);
        assert_sums(&window, &history, 0);
        for (int iteration = 0; iteration < ITERATIONS; iteration++) {
            mp_window_push(&window, history.load[iteration]);
            assert_sums(&window, &history, iteration + 1);
        }
        mp_window_destroy(&window);
    }
    destroy_history(&history);
}

/* Saved after any number of iterations and restored into a window of any size, it goes on as one
 * that has seen the same last iterations. */
static void a_saved_window_goes_on(void **state) {
    (void)state;
    struct history history;
    struct mp_error error = {0};
    create_history(2, &history);
    for (int saved = 0; saved < ITERATIONS; saved++) {
        struct mp_window window, restored;
        assert_ok(mp_window_create(LAYERS, EXPERTS, 5, &window, &error), &error);
        assert_ok(mp_window_create(LAYERS, EXPERTS, saved % 2 ? 5 : 3, &restored, &error), &error);
        for (int iteration = 0; iteration < saved; iteration++)
            mp_window_push(&window, history.load[iteration]);
        mp_window_push(&restored, history.load[ITERATIONS - 1]); /* forgotten by loading */
        size_t size = mp_window_save(&window, NULL, 0);
        char *bytes = malloc(size);
        assert_int_equal(mp_window_save(&window, bytes, size), size);
        assert_ok(mp_window_load(&restored, bytes, size, &error), &error);
        assert_sums(&restored, &history, saved);
        for (int iteration = saved; iteration < ITERATIONS; iteration++) {
            mp_window_push(&restored, history.load[iteration]);
            assert_sums(&restored, &history, iteration + 1);
        }
        free(bytes);
        mp_window_destroy(&window);
        mp_window_destroy(&restored);
    }
    destroy_history(&history);
}

static void foreign_bytes_are_refused(void **state) {
    (void)state;
    struct history history;
    struct mp_window window, other, empty;
    struct mp_error error = {0};
    create_history(2, &history);
    assert_ok(mp_window_create(LAYERS, EXPERTS, 5, &window, &error), &error);
    assert_ok(mp_window_create(LAYERS, EXPERTS + 1, 5, &other, &error), &error);
    mp_window_push(&window, history.load[0]);
    size_t size = mp_window_save(&window, NULL, 0);
    char *bytes = malloc(size + 8);
    mp_window_save(&window, bytes, size);
    assert_int_equal(mp_window_load(&other, bytes, size, &error), MP_EFORMAT);
    assert_non_null(strstr(error.text, "3 layers with 11 experts, the job has 3 with 12"));
    for (size_t cut = 0; cut < size; cut += cut < 40 ? 1 : 8)
        assert_int_equal(mp_window_load(&window, bytes, cut, NULL), MP_EFORMAT);
    assert_int_equal(mp_window_load(&window, bytes, size + 8, NULL), MP_EFORMAT);
    bytes[3] ^= 1;
    assert_int_equal(mp_window_load(&window, bytes, size, NULL), MP_EFORMAT);
    assert_sums(&window, &history, 1); /* a refusal changes nothing */
    assert_int_equal(mp_window_create(1, 1, 0, &empty, NULL), MP_EINVAL);
    free(bytes);
    mp_window_destroy(&window);
    mp_window_destroy(&other);
    destroy_history(&history);
}

int main(void) {
    random_state = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_cover_the_last_iterations),
        cmocka_unit_test(a_saved_window_goes_on),
        cmocka_unit_test(foreign_bytes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
