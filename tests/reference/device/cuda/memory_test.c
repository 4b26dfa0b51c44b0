/* Memory of the GPU and page-locked memory, what is counted of it, and copies in the order of their
 * streams. */
#include "tests/reference/device/cuda/cuda_support.h"

TEST_END(device, struct mp_device *, mp_device_destroy(*it))

static uint8_t *random_bytes(size_t count) {
    uint8_t *bytes = malloc(count + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)test_random(&random_state);
    return bytes;
}

/* Arrays come and go in random order; the device counts what is out. */
TEST(memory_is_counted) {
    enum { ARRAYS = 700, STEPS = 5000 };
    static struct {
        void *memory;
        int64_t bytes;
    } array[ARRAYS];
    int64_t used = 0, largest = 0, now, most;
    struct mp_device *device = open_device(MP_FLOAT32);
    const struct mp_device_operations *operations = device->operations;
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
        assert_int_equal(now, used);
        assert_int_equal(most, largest);
    }
    for (int i = 0; i < ARRAYS; i++)
        operations->release(device, array[i].memory); /* NULL too */
    operations->memory_used(device, &now, &most);
    assert_int_equal(now, 0);
    assert_int_equal(most, largest);
    assert_null(operations->allocate(device, (size_t)-5));
    close_device(device);
}

TEST(copies_arrive) {
    enum { BYTES = 10001, STEPS = 40 };
    AUTO(allocated) uint8_t *sent = random_bytes(BYTES), *got = random_bytes(BYTES);
    cuda_double_set_delay(300);
    struct mp_device *device = open_device(MP_FLOAT32);
    const struct mp_device_operations *operations = device->operations;
    uint8_t *first = operations->allocate(device, BYTES);
    uint8_t *second = operations->allocate(device, BYTES);
    uint8_t *locked = operations->host_allocate(device, BYTES);
    assert_non_null(locked);
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
    operations->release(device, first);
    operations->release(device, second);
    operations->host_release(device, locked);
    operations->host_release(device, NULL);
    close_device(device);
    cuda_double_set_delay(0);
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

TEST_SEED(random_state);
