/* The ring of small host arrays: what an operation uploads is what its kernels find, however far
 * the host is ahead of the stream. */
#include "reference/device/cuda/cuda.h"
#include "tests/reference/device/cuda/cuda_support.h"

static uint64_t random_state;
TEST_SEED(random_state);

enum { RING = 4 << 20, MOST = RING / 2 };

/* The back end is linked into this test, since the library shows nothing of the ring. */
static struct mp_cuda *open_cuda(void) {
    struct mp_cuda_settings settings = {.rank = 2, .element = MP_FLOAT32};
    struct mp_device *device = NULL;
    assert_works(mp_cuda_open(&settings, &test_limits, &device, &error));
    return mp_cuda_of(device);
}

enum { ARRAYS = 3, TAIL = 64 };

/* Uploads ARRAYS arrays, whose last TAIL bytes go to `expected`; the host overwrites them at once.
 * Then queues copies of those tails, of what the device has got, to `kept`. */
static void upload(struct mp_cuda *cuda, uint8_t *memory, int least, int most, uint8_t *expected,
                   uint8_t *kept) {
    const void *array[ARRAYS];
    size_t bytes[ARRAYS], at = 0;
    for (int i = 0; i < ARRAYS; i++, at += (size_t)most) {
        uint8_t *begin = memory + at;
        array[i] = begin;
        bytes[i] = (size_t)test_random_int(&random_state, least, most);
        for (size_t b = bytes[i] - TAIL; b < bytes[i]; b++)
            begin[b] = (uint8_t)test_random(&random_state);
        memcpy(expected + (size_t)i * TAIL, begin + bytes[i] - TAIL, TAIL);
    }
    const uint8_t *end = mp_cuda_upload(cuda, cuda->stream, ARRAYS, array, bytes);
    assert_non_null(end);
    assert_int_equal((uintptr_t)end % 16, 0);
    memset(memory, 0xEE, at);
    for (size_t i = 0; i < ARRAYS; i++) {
        end += bytes[i];
        cuda->operations.copy(&cuda->device, NULL, kept + i * TAIL, end - TAIL, TAIL);
    }
}

/* Small and large ones, several rings of them. */
static void check_uploads(int delay_us, int uploads, int least, int most) {
    size_t tails = (size_t)uploads * ARRAYS * TAIL;
    AUTO(allocated) uint8_t *memory = calloc(ARRAYS, (size_t)most), *expected = malloc(tails);
    AUTO(allocated) uint8_t *got = malloc(tails);
    assert_true(memory && expected && got);
    cuda_double_set_delay(delay_us);
    struct mp_cuda *cuda = open_cuda();
    struct mp_device *device = &cuda->device;
    uint8_t *kept = device->operations->allocate(device, tails);
    for (size_t at = 0; at < tails; at += (size_t)ARRAYS * TAIL)
        upload(cuda, memory, least, most, expected + at, kept + at);
    device->operations->copy_to_host(device, NULL, got, kept, tails);
    assert_memory_equal(got, expected, tails);
    device->operations->release(device, kept);
    close_device(device);
    cuda_double_set_delay(0);
}

TEST(uploads_are_what_kernels_find) {
    check_uploads(0, 400, TAIL, RING / 8);
    check_uploads(0, 3000, TAIL, 5000);
}

TEST(a_stream_behind_is_waited_for) {
    check_uploads(2000, 60, TAIL, RING / 8);
}

/* The end of a half is met exactly: what comes next is in the other half, and waits for it. */
TEST(halves_may_be_filled_exactly) {
    check_uploads(2000, 30, MOST / 4, MOST / 4);
    check_uploads(2000, 30, MOST / ARRAYS - 1, MOST / ARRAYS);
    check_uploads(2000, 30, MOST / 6 + 6, MOST / 6 + 8); /* two are a little too much */
}

TEST(too_large_an_array_is_refused) {
    AUTO(allocated) uint8_t *array = calloc(1, MOST);
    assert_non_null(array);
    struct mp_cuda *cuda = open_cuda();
    const void *const host[] = {array, array};
    assert_non_null(mp_cuda_upload(cuda, cuda->stream, 1, host, (size_t[]){0}));
    assert_non_null(mp_cuda_upload(cuda, cuda->stream, 2, host, (size_t[]){MOST, 0}));
    assert_null(mp_cuda_upload(cuda, cuda->stream, 2, host, (size_t[]){MOST, 1}));
    assert_fails(mp_device_check(&cuda->device, &error), MP_ELIMIT, "rank 2, GPU 0", "2097153");
    mp_device_destroy(&cuda->device);
}
