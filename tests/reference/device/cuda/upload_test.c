/* The ring of small host arrays: what an operation uploads is what its kernels find, however far
 * the host is ahead of the stream. */
#include "reference/device/cuda/cuda.h"
#include "tests/reference/device/cuda/cuda_support.h"

enum { RING = 4 << 20, MOST = RING / 4 };

/* The back end is linked into this test, since the library shows nothing of the ring. */
static struct mp_cuda *open_cuda(void) {
    struct mp_cuda_settings settings = {.rank = 2, .element = MP_FLOAT32};
    struct mp_error error = {0};
    struct mp_device *device = NULL;
    if (mp_cuda_open(&settings, &test_limits, &device, &error))
        fail_msg("%s", error.text);
    return mp_cuda_of(device);
}

/* Fills `array` and uploads it; the host overwrites it at once.  Its last TAIL bytes go to `tail`.
 */
enum { TAIL = 64 };

static const uint8_t *upload(struct mp_cuda *cuda, uint8_t *array, size_t bytes, uint8_t *tail) {
    memset(array, test_random_int(&random_state, 0, 255), bytes);
    for (size_t i = bytes - TAIL; i < bytes; i++)
        array[i] = (uint8_t)test_random(&random_state);
    memcpy(tail, array + bytes - TAIL, TAIL);
    const uint8_t *uploaded = mp_cuda_upload(cuda, cuda->stream, array, bytes);
    assert_non_null(uploaded);
    assert_int_equal((uintptr_t)uploaded % 16, 0);
    memset(array, 0xEE, bytes);
    return uploaded;
}

/* Operations with three arrays each, small and large ones, several rings of them; what reads an
 * operation's arrays is queued behind all three. */
static void check_uploads(int delay_us, int operations, int least, int most) {
    enum { ARRAYS = 3 };
    size_t tails = (size_t)operations * ARRAYS * TAIL;
    uint8_t *array = malloc(MOST), *expected = malloc(tails), *got = malloc(tails);
    assert_non_null(array);
    assert_non_null(expected);
    assert_non_null(got);
    cuda_double_set_delay(delay_us);
    struct mp_cuda *cuda = open_cuda();
    struct mp_device *device = &cuda->device;
    uint8_t *kept = device->operations->allocate(device, tails);
    size_t at = 0;
    for (int i = 0; i < operations; i++) {
        const uint8_t *end[ARRAYS];
        for (int j = 0; j < ARRAYS; j++) {
            size_t bytes = (size_t)test_random_int(&random_state, least, most);
            end[j] = upload(cuda, array, bytes, expected + at + (size_t)j * TAIL) + bytes - TAIL;
        }
        for (int j = 0; j < ARRAYS; j++, at += TAIL)
            device->operations->copy(device, NULL, kept + at, end[j], TAIL);
    }
    device->operations->copy_to_host(device, NULL, got, kept, tails);
    assert_memory_equal(got, expected, tails);
    device->operations->release(device, kept);
    close_device(device);
    cuda_double_set_delay(0);
    free(array);
    free(expected);
    free(got);
}

static void uploads_are_what_kernels_find(void **state) {
    (void)state;
    check_uploads(0, 400, TAIL, RING / 8);
    check_uploads(0, 3000, TAIL, 5000);
}

static void a_stream_behind_is_waited_for(void **state) {
    (void)state;
    check_uploads(2000, 60, TAIL, RING / 8);
}

/* The end of a half is met exactly: what comes next is in the other half, and waits for it. */
static void halves_may_be_filled_exactly(void **state) {
    (void)state;
    check_uploads(2000, 60, RING / 8, RING / 8);
}

static void too_large_an_array_is_refused(void **state) {
    struct mp_error error = {0};
    (void)state;
    uint8_t *array = calloc(1, MOST + 1);
    assert_non_null(array);
    struct mp_cuda *cuda = open_cuda();
    assert_non_null(mp_cuda_upload(cuda, cuda->stream, array, 0));
    assert_null(mp_cuda_upload(cuda, cuda->stream, array, MOST + 1));
    assert_int_equal(mp_device_check(&cuda->device, &error), MP_ELIMIT);
    assert_non_null(strstr(error.text, "rank 2, GPU 0"));
    assert_non_null(strstr(error.text, "1048577"));
    mp_device_destroy(&cuda->device);
    free(array);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uploads_are_what_kernels_find),
        cmocka_unit_test(a_stream_behind_is_waited_for),
        cmocka_unit_test(halves_may_be_filled_exactly),
        cmocka_unit_test(too_large_an_array_is_refused),
    };
    random_state = test_seed();
    return cmocka_run_group_tests_name("cuda upload", tests, NULL, NULL);
}
