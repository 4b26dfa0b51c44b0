/* The device itself: creation, memory, streams, errors, threads. */
#include "profiler/record/record.h"
#include "tests/reference/device/cuda/on_double.h"
#include "tests/reference/device/device_support.h"
#include "tests/reference/device/rules.h"

DEVICE_TEST(bad_limits_are_refused) {
    struct mp_device_limits limits = test_limits;
    struct mp_device *none = NULL;
    assert_fails(mp_device_cpu_create(0, &limits, &none, &error), MP_EINVAL, "0 threads");
    int *const every[] = {&limits.experts, &limits.width, &limits.tokens,
                          &limits.attention.sequence, &limits.attention.head_width};
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        limits = test_limits;
        *every[i] = -1;
        assert_fails(mp_device_cpu_create(1, &limits, &none, &error), MP_EINVAL,
                     "a limit is negative");
    }
    assert_null(none);
    mp_device_destroy(NULL);
}

DEVICE_TEST(it_describes_itself) {
    char text[256];
    mp_device_describe(device, text, sizeof text);
    if (on_cuda(device)) {
        assert_int_equal(strncmp(text, "cuBLAS ", 7), 0);
        assert_true(device->deferred);
        return;
    }
    assert_int_equal(strncmp(text, "oneDNN ", 7), 0);
    assert_contains(text, ((struct mp_cpu *)device)->instruction_set);
    assert_string_equal(device->operations->name, "cpu");
    assert_false(device->deferred);
}

/* Arrays come and go in random order; where the back end counts at all, it counts what is out. */
DEVICE_TEST(memory_comes_and_goes) {
    enum { ARRAYS = 200, STEPS = 2000 };
    struct {
        void *memory;
        int64_t bytes;
    } array[ARRAYS] = {{NULL, 0}};
    const struct mp_device_operations *operations = device->operations;
    int64_t used, largest, now, most;
    operations->memory_used(device, &used, &largest);
    const bool counts = used >= 0;
    assert_true(counts == on_cuda(device));
    for (int step = 0; step < STEPS; step++) {
        int i = test_random_int(&random_state, 0, ARRAYS - 1);
        if (array[i].memory) {
            operations->release(device, array[i].memory);
            array[i].memory = NULL;
            used -= array[i].bytes;
        } else {
            array[i].bytes = test_random_int(&random_state, 0, 3000);
            array[i].memory = operations->allocate(device, (size_t)array[i].bytes);
            assert_non_null(array[i].memory);
            assert_int_equal((uintptr_t)array[i].memory % 64, 0);
            used += array[i].bytes;
        }
        largest = used > largest ? used : largest;
        operations->memory_used(device, &now, &most);
        assert_int_equal(now, counts ? used : -1);
        assert_int_equal(most, counts ? largest : -1);
    }
    for (int i = 0; i < ARRAYS; i++)
        operations->release(device, array[i].memory); /* NULL too */
    assert_null(operations->allocate(device, SIZE_MAX - 8));
}

static uint8_t *random_bytes(size_t count) {
    uint8_t *bytes = new_host(count, 1);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)test_random(&random_state);
    return bytes;
}

/* In the order of their stream, however far that is behind. */
DEVICE_TEST(copies_arrive) {
    enum { BYTES = 10001, STEPS = 40 };
    const struct mp_device_operations *operations = device->operations;
    uint8_t *sent = random_bytes(BYTES), *got = random_bytes(BYTES);
    uint8_t *first = new_on_device(BYTES), *second = new_on_device(BYTES);
    uint8_t *locked = operations->host_allocate(device, BYTES);
    assert_non_null(locked);
    delay_streams(300);
    for (int step = 0; step < STEPS; step++) {
        size_t bytes = (size_t)test_random_int(&random_state, 0, BYTES);
        size_t cleared = (size_t)test_random_int(&random_state, 0, (int)bytes);
        sent[step] ^= 0x55;
        operations->copy_from_host(device, NULL, first, sent, bytes);
        operations->copy(device, NULL, second, first, bytes);
        operations->zero(device, NULL, second, cleared);
        operations->copy(device, NULL, locked, second, bytes); /* to page-locked memory */
        operations->zero(device, NULL, first, bytes);
        operations->copy(device, NULL, first, locked, bytes); /* and from it */
        operations->copy_to_host(device, NULL, got, first, bytes);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(got[i], i < cleared ? 0 : sent[i]);
    }
    delay_streams(0);
    operations->host_release(device, locked);
    operations->host_release(device, NULL);
}

DEVICE_TEST(streams_and_events_exist) {
    const struct mp_device_operations *operations = device->operations;
    mp_stream stream = NULL;
    mp_event event = NULL;
    assert_int_equal(operations->stream_create(device, 0, &stream, NULL), MP_OK);
    assert_int_equal(operations->event_create(device, &event, NULL), MP_OK);
    assert_non_null(stream);
    assert_non_null(event);
    assert_true(operations->event_time(device, event) == -1);
    int64_t before = mp_clock_ns();
    operations->event_record(device, event, stream);
    operations->stream_wait(device, NULL, event);
    operations->event_synchronize(device, event);
    /* A clock of the device's own is compared with ours to as long as it takes to record an event
     * and to see it pass: microseconds, but milliseconds under a tool that looks at every call. */
    int64_t after = mp_clock_ns(), doubt = 100000 + (after - before);
    assert_true(operations->event_done(device, event));
    assert_in_range(operations->event_time(device, event), before - doubt, after + doubt);
    operations->stream_synchronize(device, stream);
    assert_true((operations->native_stream(device, stream) != NULL) == on_cuda(device));
    operations->event_destroy(device, event);
    operations->stream_destroy(device, stream);
}

/* One stream doubles numbers again and again, another takes them when the first one says so. */
DEVICE_TEST(streams_wait_for_events) {
    enum { COUNT = 3000, TURNS = 10 };
    const struct mp_device_operations *operations = device->operations;
    float *given = random_floats(COUNT, 1), *values = copy_floats(given, COUNT);
    float *taken[TURNS];
    mp_stream stream[2];
    mp_event doubled, copied;
    for (int i = 0; i < 2; i++)
        assert_int_equal(operations->stream_create(device, 0, &stream[i], NULL), MP_OK);
    assert_int_equal(operations->event_create(device, &doubled, NULL), MP_OK);
    assert_int_equal(operations->event_create(device, &copied, NULL), MP_OK);
    delay_streams(1000);
    for (int turn = 0; turn < TURNS; turn++) {
        taken[turn] = new_floats(COUNT);
        operations->add(device, stream[0], COUNT, values, values, values);
        operations->event_record(device, doubled, stream[0]);
        operations->stream_wait(device, stream[1], doubled);
        operations->copy(device, stream[1], taken[turn], values, COUNT * sizeof *values);
        operations->event_record(device, copied, stream[1]);
        operations->stream_wait(device, stream[0], copied);
    }
    operations->event_synchronize(device, copied);
    delay_streams(0);
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < COUNT; i++)
            assert_close(taken[turn][i], ldexpf(given[i], turn + 1), 0);
    int64_t last_doubled = operations->event_time(device, doubled);
    assert_true(last_doubled <= operations->event_time(device, copied));
    operations->event_destroy(device, doubled);
    operations->event_destroy(device, copied);
    for (int i = 0; i < 2; i++)
        operations->stream_destroy(device, stream[i]);
}

/* Asks for more than the limits: nothing is written, and the first failure stays. */
DEVICE_TEST(beyond_the_limits_is_an_error) {
    float *one = random_floats(1, 1);
    int32_t *index = new_ints(1);
    struct mp_error error = {0};
    assert_int_equal(mp_device_check(device, &error), MP_OK);
    perform(device, layer_norm_backward, 1, 100000, one, one, one, one, one, one, one, one);
    assert_int_equal(mp_device_check(device, &error), MP_ELIMIT);
    assert_contains(error.text, "100000");

    struct mp_attention_shape shape = {1, 100000, 1, 8};
    perform(device, attention_forward, &shape, one, one, one);
    perform(device, attention_backward, &shape, one, one, one, one, one);
    perform(device, route_positions, 1, 1, 100000, index, NULL, NULL, NULL, NULL, 1, index, index);
    perform(device, gate_forward, 1, 2, 3, SOFTMAX(true), one, NULL, NULL, one, NULL, index, one);
    error = (struct mp_error){0};
    assert_int_equal(mp_device_check(device, &error), MP_ELIMIT);
    assert_contains(error.text, "layer norm");
    device->error = (struct mp_error){0}; /* for the check at the test's end */
}

/* On a GPU no route has a row where routes, experts or parts are too many. */
static void no_rows_beyond_limits(struct mp_device *device, const int32_t *choice,
                                  int32_t *position) {
    enum { PARTS = 1 << 19, ROUTES = 10 };
    int *begin = new_host(1027, sizeof *begin), *count = new_host(PARTS, sizeof *count);
    const struct {
        int routes, experts, parts;
    } too_many[] = {{10000, 3, 3}, {ROUTES, 1025, 3}, {ROUTES, 3, PARTS}};
    for (int i = 0; on_cuda(device) && i < 3; i++) {
        begin[too_many[i].experts] = too_many[i].parts;
        count[0] = count[too_many[i].parts - 1] = 1;
        perform(device, route_positions, too_many[i].routes, 2, too_many[i].experts, choice, NULL,
                begin, count, count, ROUTES, position, position + too_many[i].routes);
        for (int r = 0; r < too_many[i].routes + ROUTES; r++)
            assert_int_equal(position[r], -1);
        assert_int_equal(mp_device_check(device, NULL), MP_ELIMIT);
        device->error = (struct mp_error){0};
        begin[too_many[i].experts] = 0;
    }
}

/* Routes that can't be sorted or limited still get indices that others can use. */
DEVICE_TEST(failures_leave_usable_indices) {
    enum { TOKENS = 5000 }; /* more than the limit */
    float *logits = random_floats(3 * TOKENS, 1);
    int32_t *choice = new_ints(2 * TOKENS), *order = new_ints(2 * TOKENS);
    const bool inside[] = {false, true, false}, both[] = {true, true, false};
    struct mp_error error = {0};
    for (int i = 0; i < 3; i++) {
        perform(device, limit_choices, i == 0 ? TOKENS : 10, 3, logits, i == 1 ? inside : both,
                i == 2 ? -1 : 0, choice);
        for (int t = 0; t < 10; t++) {
            assert_in_range(choice[2 * t], 0, 2);
            assert_in_range(choice[2 * t + 1], 0, 2);
        }
        assert_int_equal(mp_device_check(device, &error), i == 0 ? MP_ELIMIT : MP_EINVAL);
        device->error = error = (struct mp_error){0};
    }
    perform(device, sort_routes, TOKENS, 2, 3, MP_SORT_BY_PROBABILITY, logits, choice, 1, order);
    for (int i = 0; i < 2 * TOKENS; i++)
        assert_int_equal(order[i], i);
    assert_int_equal(mp_device_check(device, &error), MP_ELIMIT);
    assert_contains(error.text, "sorting of 10000 routes");
    device->error = (struct mp_error){0};
    no_rows_beyond_limits(device, choice, new_ints(2 * TOKENS + 10));
}

/* Too many choices, or too many experts for a GPU's rows. */
DEVICE_TEST(impossible_gates_are_refused) {
    const struct {
        int experts, top_k, code;
    } gate[] = {{1, 2, MP_EINVAL}, {20, 17, MP_EINVAL}, {1025, 2, MP_ELIMIT}};
    float *value = random_floats(1025, 1);
    int32_t *index = new_ints(20);
    uint32_t *count = new_counts(1);
    for (int i = 0; on_cuda(device) && i < 4 * 3; i++) {
        int e = gate[i / 4].experts, k = gate[i / 4].top_k;
        if (i % 4 == 0)
            perform(device, gate_forward, 1, e, k, SOFTMAX(true), value, NULL, NULL, value, NULL,
                    index, value);
        else if (i % 4 == 1)
            perform(device, gate_backward, 1, e, k, SOFTMAX(true), value, NULL, index, NULL, value,
                    value, value, value);
        else if (i % 4 == 2)
            perform(device, survivor_weights, 1, e, k, SOFTMAX(true), value, index, index, value);
        else
            perform(device, gate_statistics, 1, e, k, value, index, count, count, value);
        assert_int_equal(mp_device_check(device, NULL), gate[i / 4].code);
        device->error = (struct mp_error){0};
    }
}

static void count_thread(const void *arguments, size_t begin, size_t end) {
    int *items = *(int *const *)arguments;
    for (size_t i = begin; i < end; i++)
        items[i] = mp_cpu_thread() + 1;
}

/* Every item is worked on, by contiguous ranges, by no more threads than the device has, and by
 * all of them when there is enough to do. */
DEVICE_TEST(work_is_shared_out) {
    if (on_cuda(device))
        return;
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

/* There is no GPU of that number: a sentence says so. */
DEVICE_TEST(missing_gpus_are_named) {
    struct mp_cuda_settings settings = {.rank = 3, .ordinal = 1000, .element = MP_FLOAT32};
    struct mp_device *created = NULL;
    if (!on_cuda(device))
        return;
    assert_fails(mp_device_cuda_create(&settings, &test_limits, &created, &error), MP_ENOTFOUND,
                 "1000", "rank 3");
    assert_null(created);
}

DEVICE_TEST(gpus_are_listed) {
    struct mp_cuda_gpu gpu = {.capability = 0};
    int count = 0;
    char text[256];
    if (!on_cuda(device))
        return;
    assert_works(mp_device_cuda_list(&gpu, 1, &count, &error));
    assert_true(count >= 1);
    assert_true(gpu.capability >= 50 && gpu.memory > 0 && gpu.free_memory <= gpu.memory);
    mp_device_describe(device, text, sizeof text);
    assert_contains(text, gpu.name);
}

DEVICE_PROGRAM(.limits = &test_limits);
