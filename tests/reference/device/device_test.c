/* The device itself: creation, memory, streams, errors, threads. */
#include "tests/reference/device/device_support.h"

static void bad_limits_are_refused(void **state) {
    (void)state;
    struct mp_device_limits limits = test_limits;
    struct mp_device *device = NULL;
    struct mp_error error = {0};
    assert_int_equal(mp_device_cpu_create(0, &limits, &device, &error), MP_EINVAL);
    assert_non_null(strstr(error.text, "0 threads"));
    limits.width = -1;
    error = (struct mp_error){0};
    assert_int_equal(mp_device_cpu_create(1, &limits, &device, &error), MP_EINVAL);
    assert_null(device);
    mp_device_destroy(NULL);
}

static void it_describes_itself(struct mp_device *device, const void *c) {
    (void)c;
    char text[64];
    mp_device_describe(device, text, sizeof text);
    assert_int_equal(strncmp(text, "oneDNN ", 7), 0);
    assert_non_null(strstr(text, ((struct mp_cpu *)device)->instruction_set));
    assert_string_equal(device->operations->name, "cpu");
}

static void memory_is_aligned_and_copies(struct mp_device *device, const void *c) {
    (void)c;
    const struct mp_device_operations *operations = device->operations;
    float *host = random_floats(100, 1), back[100];
    float *memory = operations->allocate(device, sizeof back);
    float *other = operations->allocate(device, sizeof back);
    assert_int_equal((uintptr_t)memory % 64, 0);
    assert_int_equal((uintptr_t)other % 64, 0);
    operations->copy_from_host(device, NULL, memory, host, sizeof back);
    operations->copy(device, NULL, other, memory, sizeof back);
    operations->zero(device, NULL, memory, 50 * sizeof *memory);
    operations->copy_to_host(device, NULL, back, other, sizeof back);
    assert_memory_equal(back, host, sizeof back);
    for (int i = 0; i < 100; i++)
        assert_float_equal(memory[i], i < 50 ? 0 : host[i], 0);
    operations->release(device, memory);
    operations->release(device, other);
    operations->release(device, NULL);
    void *empty = operations->allocate(device, 0);
    assert_non_null(empty);
    operations->release(device, empty);
    assert_null(operations->allocate(device, SIZE_MAX - 8));
    free(host);
}

static void streams_and_events_exist(struct mp_device *device, const void *c) {
    (void)c;
    const struct mp_device_operations *operations = device->operations;
    mp_stream stream = NULL;
    mp_event event = NULL;
    assert_int_equal(operations->stream_create(device, &stream, NULL), MP_OK);
    assert_int_equal(operations->event_create(device, &event, NULL), MP_OK);
    assert_non_null(stream);
    assert_non_null(event);
    operations->event_record(device, event, stream);
    operations->stream_wait(device, NULL, event);
    operations->stream_synchronize(device, stream);
    operations->event_destroy(device, event);
    operations->stream_destroy(device, stream);
}

/* Asks for more than the limits: nothing is written, and the first failure stays. */
static void beyond_the_limits_is_an_error(struct mp_device *device, const void *c) {
    (void)c;
    const struct mp_device_operations *operations = device->operations;
    float one = 1;
    int32_t index = 0;
    struct mp_error error = {0};
    assert_int_equal(mp_device_check(device, &error), MP_OK);
    operations->layer_norm_backward(device, NULL, 1, 100000, &one, &one, &one, &one, &one, &one,
                                    &one, &one);
    assert_int_equal(mp_device_check(device, &error), MP_ELIMIT);
    assert_non_null(strstr(error.text, "100000"));

    struct mp_attention_shape shape = {1, 100000, 1, 8};
    operations->attention_forward(device, NULL, &shape, &one, &one, &one);
    operations->attention_backward(device, NULL, &shape, &one, &one, &one, &one, &one);
    operations->route_positions(device, NULL, 1, 1, 100000, &index, NULL, NULL, NULL, NULL, 1,
                                &index, &index);
    operations->gate_forward(device, NULL, 1, 2, 3, true, &one, NULL, &one, &index, &one);
    error = (struct mp_error){0};
    assert_int_equal(mp_device_check(device, &error), MP_ELIMIT);
    assert_non_null(strstr(error.text, "layer norm"));
    device->error = (struct mp_error){0}; /* for the check at the test's end */
}

/* Routes that can't be sorted or limited still get indices that others can use. */
static void failures_leave_usable_indices(struct mp_device *device, const void *c) {
    (void)c;
    enum { TOKENS = 5000 }; /* more than the limit */
    const struct mp_device_operations *operations = device->operations;
    float *logits = random_floats(3 * TOKENS, 1);
    int32_t *choice = new_ints(2 * TOKENS), *order = new_ints(2 * TOKENS);
    const bool inside[] = {false, true, false}, both[] = {true, true, false};
    struct mp_error error = {0};
    for (int i = 0; i < 3; i++) {
        operations->limit_choices(device, NULL, i == 0 ? TOKENS : 10, 3, logits,
                                  i == 1 ? inside : both, i == 2 ? -1 : 0, choice);
        for (int t = 0; t < 10; t++) {
            assert_in_range(choice[2 * t], 0, 2);
            assert_in_range(choice[2 * t + 1], 0, 2);
        }
        assert_int_equal(mp_device_check(device, &error), i == 0 ? MP_ELIMIT : MP_EINVAL);
        device->error = error = (struct mp_error){0};
    }
    operations->sort_routes(device, NULL, TOKENS, 2, 3, MP_SORT_BY_PROBABILITY, logits, choice, 1,
                            order);
    for (int i = 0; i < 2 * TOKENS; i++)
        assert_int_equal(order[i], i);
    assert_int_equal(mp_device_check(device, &error), MP_ELIMIT);
    assert_non_null(strstr(error.text, "sorting of 10000 routes"));
    device->error = (struct mp_error){0};
    free(logits);
    free(choice);
    free(order);
}

static void count_thread(const void *arguments, size_t begin, size_t end, int thread) {
    int *items = *(int *const *)arguments;
    for (size_t i = begin; i < end; i++)
        items[i] = thread + 1;
}

/* Every item is worked on, by contiguous ranges, by no more threads than the device has, and by
 * all of them when there is enough to do. */
static void work_is_shared_out(struct mp_device *device, const void *c) {
    (void)c;
    struct mp_cpu *cpu = mp_cpu_of(device);
    int items[1000] = {0}, *pointer = items;
    mp_cpu_parallel(cpu, 1000, 100, count_thread, &pointer);
    for (int i = 0; i < 1000; i++) {
        assert_in_range(items[i], 1, cpu->threads);
        assert_true(i == 0 || items[i] >= items[i - 1]);
    }
    assert_int_equal(items[999], cpu->threads);
    memset(items, 0, sizeof items);
    mp_cpu_parallel(cpu, 1000, 1001, count_thread, &pointer);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(items[i], 1);
}

static const struct device_test tests[] = {
    {"it describes itself", it_describes_itself, NULL},
    {"memory is aligned and copies", memory_is_aligned_and_copies, NULL},
    {"streams and events exist", streams_and_events_exist, NULL},
    {"beyond the limits is an error", beyond_the_limits_is_an_error, NULL},
    {"failures leave usable indices", failures_leave_usable_indices, NULL},
    {"work is shared out", work_is_shared_out, NULL},
};

int main(void) {
    const struct CMUnitTest plain[] = {cmocka_unit_test(bad_limits_are_refused)};
    int failed = cmocka_run_group_tests_name("device, creation", plain, NULL, NULL);
    return failed + run_device_tests("device", tests, sizeof tests / sizeof *tests);
}
