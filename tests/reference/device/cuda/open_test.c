/* Creating cuda devices: what can go wrong is one sentence that names rank, GPU and what would
 * help, and leaves nothing behind. */
#include "tests/reference/device/cuda/cuda_support.h"

static uint64_t random_state;
TEST_SEED(random_state);
TEST_END(device, struct mp_device *, mp_device_destroy(*it))

static const struct mp_cuda_settings usual = {.rank = 3, .ordinal = 1, .element = MP_BFLOAT16};

static void assert_nothing_left(void) {
    struct cuda_double_counts counts;
    cuda_double_get_counts(&counts);
    assert_numbers(counts.device_live, 0, counts.host_live, 0, counts.streams, 0, counts.events, 0);
}

/* mp_device_cuda_create fails with the code and a sentence that has all parts, NULL after the last,
 * and no line break. */
static void assert_refused(const struct mp_cuda_settings *settings, int code,
                           const char *const parts[]) {
    struct mp_error error = {0};
    struct mp_device *device = NULL;
    int got = mp_device_cuda_create(settings, &test_limits, &device, &error);
    for (; *parts; parts++)
        if (!strstr(error.text, *parts))
            fail_msg("\"%s\" does not say \"%s\"", error.text, *parts);
    assert_int_equal(got, code);
    assert_int_equal(error.code, code);
    assert_null(device);
    assert_null(strchr(error.text, '\n'));
    assert_nothing_left();
    cuda_double_reset();
}

#define REFUSED(settings, code, ...)                                                               \
    assert_refused((settings), (code), (const char *const[]){__VA_ARGS__, NULL})

/* ---- which GPU ---- */

TEST(no_driver) {
    cuda_double_set_driver(0);
    REFUSED(&usual, MP_ENOTFOUND, "rank 3: ", "no NVIDIA driver", "the cpu device");
}

TEST(old_driver) {
    cuda_double_set_driver(12040);
    REFUSED(&usual, MP_EVERSION, "rank 3: ", "CUDA 12.4", "CUDA 13.0", "newer driver");
}

TEST(no_gpu) {
    cuda_double_set_device_count(0);
    REFUSED(&usual, MP_ENOTFOUND, "rank 3: ", "there is no GPU on this host");
    cuda_double_set_device_count(0);
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    REFUSED(&usual, MP_ENOTFOUND, "CUDA_VISIBLE_DEVICES is \"7\"");
    unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(no_such_gpu) {
    struct mp_cuda_settings settings = usual;
    cuda_double_set_device_count(4);
    settings.ordinal = 4;
    REFUSED(&settings, MP_ENOTFOUND, "rank 3, GPU 4: there is no such GPU: this host has 4");
    settings.ordinal = -1;
    settings.rank = -1;
    REFUSED(&settings, MP_ENOTFOUND, "GPU -1: there is no such GPU");
}

TEST(too_old_for_bf16) {
    struct cuda_double_device gpu;
    cuda_double_get_device(1, &gpu);
    snprintf(gpu.name, sizeof gpu.name, "Tesla T4");
    gpu.capability = 75;
    cuda_double_set_device(1, &gpu);
    REFUSED(&usual, MP_EINVAL, "rank 3, GPU 1 (Tesla T4): ", "7.5", "use fp32");
}

TEST(negative_limits) {
    struct mp_device_limits limits = test_limits;
    struct mp_device *device;
    limits.tokens = -1;
    assert_fails(mp_device_cuda_create(&usual, &limits, &device, &error), MP_EINVAL, "");
}

/* ---- what it needs ---- */

TEST(no_memory) {
    cuda_double_fail_malloc_after(0);
    REFUSED(&usual, MP_ENOMEM, "rank 3, GPU 1 (", "): out of memory: ", "GiB are free of",
            "smaller batch or fewer experts per rank");
    cuda_double_fail_malloc_after(5 << 20); /* the ring fits, the rest does not */
    REFUSED(&usual, MP_ENOMEM, "rank 3, GPU 1 (", "working memory needs 0.1", "GiB are free of");
    cuda_double_fail_host_after(0);
    REFUSED(&usual, MP_ENOMEM, "rank 3, GPU 1 (", "page-locked memory of the host");
}

/* The n-th stream fails, for every n, until none does. */
TEST(streams_fail_one_by_one) {
    for (int n = 0;; n++) {
        struct mp_error error = {0};
        struct mp_device *device = NULL;
        cuda_double_fail_streams_after(n);
        int code = mp_device_cuda_create(&usual, &test_limits, &device, &error);
        cuda_double_fail_streams_after(-1);
        if (code == MP_OK) {
            assert_true(n >= 5);
            close_device(device);
            break;
        }
        assert_contains(error.text, "rank 3, GPU 1 (", "stream");
        assert_nothing_left();
    }
    cuda_double_reset();
}

/* ---- a device that is there ---- */

TEST(two_devices_describe_themselves) {
    struct mp_cuda_settings second = usual;
    struct mp_device *device[2] = {NULL};
    struct cuda_double_device gpu;
    char text[200], expected[400];
    int major, minor;
    second.ordinal = 0;
    second.element = MP_FLOAT32;
    assert_works(mp_device_cuda_create(&usual, &test_limits, &device[0], &error));
    assert_works(mp_device_cuda_create(&second, &test_limits, &device[1], &error));
    assert_numbers(device[0]->element, MP_BFLOAT16, device[1]->element, MP_FLOAT32);
    assert_true(device[0]->deferred);
    assert_string_equal(device[0]->operations->name, "cuda");
    for (int i = 0; i < 2; i++) {
        cuda_double_get_device(1 - i, &gpu);
        mp_device_describe(device[i], text, sizeof text);
        snprintf(expected, sizeof expected, ", %s, driver 13.0", gpu.name);
        assert_int_equal(sscanf(text, "cuBLAS %d.%d.", &major, &minor), 2);
        assert_contains(text, expected);
    }
    mp_device_destroy(device[1]);
    close_device(device[0]);
    cuda_double_reset();
}

/* No operation is NULL but that of a cache, which only processors have, and updates of groups,
 * which take a kernel that the double has not: every family has been installed. */
TEST(the_table_is_full) {
    struct mp_device *device = open_device(MP_FLOAT32);
    const char *bytes = (const char *)device->operations;
    for (size_t at = 0; at + sizeof(void *) <= sizeof *device->operations; at += sizeof(void *)) {
        void *operation;
        memcpy(&operation, bytes + at, sizeof operation);
        bool is_absent = at == offsetof(struct mp_device_operations, attention_cached) ||
                         at == offsetof(struct mp_device_operations, grouped_update) ||
                         at == offsetof(struct mp_device_operations, can_update_grouped);
        if (!operation != is_absent)
            fail_msg("operation %zu of the table is %s", at / sizeof(void *),
                     operation ? "there" : "missing");
    }
    close_device(device);
}

/* A kernel that fails is known when the host next waits, by rank and GPU; the first failure stays,
 * nothing waits for ever, and the device can still be destroyed. */
TEST(a_failing_kernel_is_reported) {
    enum { COUNT = 1000 };
    struct mp_device *device = NULL;
    struct mp_error error = {0}, again = {0};
    mp_event event;
    float host[COUNT];
    assert_int_equal(mp_device_cuda_create(&usual, &test_limits, &device, &error), MP_OK);
    const struct mp_device_operations *operations = device->operations;
    float *array = operations->allocate(device, sizeof host);
    assert_int_equal(operations->event_create(device, &event, &error), MP_OK);
    operations->zero(device, NULL, array, sizeof host);
    operations->stream_synchronize(device, NULL);
    assert_int_equal(mp_device_check(device, &error), MP_OK);

    cuda_double_fail_launch(1, cudaErrorIllegalAddress);
    operations->add(device, NULL, COUNT, array, array, array);
    operations->event_record(device, event, NULL);
    operations->stream_synchronize(device, NULL);
    assert_int_equal(mp_device_check(device, &error), MP_EDEVICE);
    assert_contains(error.text, "rank 3, GPU 1 (", "cudaErrorIllegalAddress",
                    "CUDA_LAUNCH_BLOCKING=1");
    operations->event_synchronize(device, event);
    assert_true(operations->event_done(device, event));
    assert_int_equal(operations->event_time(device, event), -1);
    operations->copy_to_host(device, NULL, host, array, sizeof host);
    assert_int_equal(mp_device_check(device, &again), MP_EDEVICE);
    assert_string_equal(again.text, error.text);
    operations->release(device, array);
    operations->event_destroy(device, event);
    mp_device_destroy(device);
    cuda_double_reset();
}

/* A launch that is refused names the operation. */
TEST(a_refused_launch_is_reported) {
    struct mp_device *device = open_device(MP_FLOAT32);
    float *array = device->operations->allocate(device, 256);
    cuda_double_fail_launch(1, cudaErrorNoKernelImageForDevice);
    device->operations->add(device, NULL, 32, array, array + 32, array + 32);
    assert_fails(mp_device_check(device, &error), MP_EDEVICE, "rank 2, GPU 0 (",
                 "cudaErrorNoKernelImageForDevice", "CMAKE_CUDA_ARCHITECTURES");
    device->operations->release(device, array);
    mp_device_destroy(device);
    cuda_double_reset();
}

/* One more array than fits: NULL, and a sentence with who, how much and what there is.  What is
 * there stays usable, and so does the device once it is released. */
TEST(memory_runs_out) {
    struct cuda_double_counts counts;
    AUTO(device) struct mp_device *device = open_device(MP_FLOAT32);
    const struct mp_device_operations *operations = device->operations;
    cuda_double_get_counts(&counts);
    cuda_double_fail_malloc_after(counts.device_bytes + (10 << 20));
    void *array = operations->allocate(device, 8 << 20);
    assert_non_null(array);
    assert_null(operations->allocate(device, (size_t)3 << 30));
    assert_fails(mp_device_check(device, &error), MP_ENOMEM, "rank 2, GPU 0 (",
                 "): out of memory: another array needs 3.00 GiB, ", " GiB are free of ",
                 "a smaller batch or fewer experts per rank");
    operations->release(device, array);
    array = operations->allocate(device, 9 << 20);
    assert_non_null(array);
    operations->release(device, array);
    cuda_double_fail_malloc_after(-1);
}

TEST(page_locked_memory_runs_out) {
    AUTO(device) struct mp_device *device = open_device(MP_FLOAT32);
    cuda_double_fail_host_after(0);
    assert_null(device->operations->host_allocate(device, 100));
    assert_fails(mp_device_check(device, &error), MP_ENOMEM, "page-locked memory of the host");
    cuda_double_fail_host_after(-1);
}

/* ---- listing ---- */

TEST(gpus_are_listed) {
    enum { THERE = 5, ROOM = 3 };
    struct mp_cuda_gpu gpus[ROOM + 1] = {{.capability = 0}};
    struct cuda_double_device gpu;
    int count = 0;
    cuda_double_set_device_count(THERE);
    for (int i = 0; i < THERE; i++) {
        cuda_double_get_device(i, &gpu);
        snprintf(gpu.name, sizeof gpu.name, "GPU of kind %d", i);
        gpu.capability = 80 + 10 * i;
        gpu.multiprocessors = 100 + 7 * i;
        gpu.memory = (size_t)(i + 1) << 30;
        for (int j = 0; j < 16; j++)
            gpu.uuid[j] = (unsigned char)test_random(&random_state);
        cuda_double_set_device(i, &gpu);
    }
    assert_works(mp_device_cuda_list(gpus, ROOM, &count, &error));
    assert_int_equal(count, THERE);
    for (int i = 0; i < ROOM; i++) {
        cuda_double_get_device(i, &gpu);
        assert_string_equal(gpus[i].name, gpu.name);
        assert_numbers(gpus[i].capability, gpu.capability, gpus[i].processors, gpu.multiprocessors);
        assert_int_equal(gpus[i].memory, gpu.memory);
        assert_memory_equal(gpus[i].uuid, gpu.uuid, 16);
        /* These GPUs are not the driver's, if there is one: it does not know them. */
        assert_int_equal(gpus[i].free_memory, -1);
    }
    assert_int_equal(gpus[ROOM].capability, 0);
    cuda_double_set_device_count(0);
    assert_fails(mp_device_cuda_list(gpus, ROOM, &count, &error), MP_ENOTFOUND, "there is no GPU");
    cuda_double_reset();
}

/* ---- the library ---- */

static void refused_with_library(const char *path, const char *said) {
    AUTO(allocated) char *kept = strdup(getenv("MOEPERF_CUDA_LIBRARY"));
    assert_non_null(kept);
    setenv("MOEPERF_CUDA_LIBRARY", path, 1);
    REFUSED(&usual, MP_ENOTFOUND, "rank 3: ", path, said);
    setenv("MOEPERF_CUDA_LIBRARY", kept, 1);
}

TEST(the_library_is_missing) {
    refused_with_library("/nowhere/libmoeperf-cuda.so", "No such file");
    refused_with_library("libm.so.6", "no cuda device of moeperf: it has no mp_cuda_open");
    refused_with_library(LACKING_LIBRARY, "install the CUDA toolkit");
}

/* The real library, or the lack of it, on a machine with GPUs or without: a list or a sentence. */
TEST(the_real_library_answers) {
    struct mp_cuda_gpu gpu = {.name = ""};
    struct mp_error error = {0};
    int count = 0;
    AUTO(allocated) char *kept = strdup(getenv("MOEPERF_CUDA_LIBRARY"));
    assert_non_null(kept);
    unsetenv("MOEPERF_CUDA_LIBRARY");
    int code = mp_device_cuda_list(&gpu, 1, &count, &error);
    print_message("%s\n", code ? error.text : gpu.name);
    if (code)
        assert_true((code == MP_ENOTFOUND || code == MP_EVERSION) && error.text[0]);
    else
        assert_true(count >= 1 && gpu.name[0] && gpu.memory > 0);
    setenv("MOEPERF_CUDA_LIBRARY", kept, 1);
}
