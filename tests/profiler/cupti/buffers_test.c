/* Buffers from many threads at once, as CUPTI's own threads ask for them and bring them back. */
#include "tests/profiler/cupti/records.h"

#include <pthread.h>
#include <stdatomic.h>

#include "profiler/cupti/buffers.h"

enum { THREADS = 4, ROUNDS = 40, KERNELS = 20 };

static atomic_int correlation;
static atomic_long polls;

static void poll(struct cupti_totals *totals) {
    polls++;
    totals->dropped += 3; /* as if CUPTI had said so */
}

static void *fill(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        uint8_t *bytes[2];
        size_t size, most = 1;
        for (int b = 0; b < 2; b++) { /* two out at a time: they must differ */
            cupti_buffer_hand_out(&bytes[b], &size, &most);
            assert_non_null(bytes[b]);
            assert_int_equal((uintptr_t)bytes[b] % 8, 0);
            assert_int_equal(size, CUPTI_BUFFER_BYTES);
            assert_int_equal(most, 0);
        }
        assert_ptr_not_equal(bytes[0], bytes[1]);
        for (int b = 0; b < 2; b++) {
            static _Thread_local struct records records;
            records.size = 0;
            for (int k = 0; k < KERNELS; k++)
                records_kernel(&records, "kernel", 10, 20,
                               (uint32_t)atomic_fetch_add(&correlation, 1));
            memcpy(bytes[b], records.bytes, records.size);
            cupti_buffer_take_back(bytes[b], records.size);
        }
    }
    return unused;
}

/* Whatever the order, every record comes through once. */
TEST(every_record_comes_through_once) {
    enum { ALL = THREADS * ROUNDS * 2 * KERNELS };
    static bool seen[ALL];
    static struct cupti_totals totals;
    static struct mp_companion companion;
    struct mp_error error = {0};
    pthread_t thread[THREADS];
    assert_int_equal(mp_companion_open(&companion, "cupti", &error), MP_OK);
    assert_int_equal(cupti_buffers_start(&companion, &totals, poll, &error), MP_OK);
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, fill, NULL), 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    while (polls < 1) { /* it polls a few times a second, also when nothing comes */
        struct timespec moment = {.tv_nsec = 20000000};
        nanosleep(&moment, NULL);
    }
    cupti_buffers_stop();
    uint8_t *late;
    size_t size, most;
    cupti_buffer_hand_out(&late, &size, &most);
    cupti_buffer_take_back(late, 0); /* after the end: no harm */
    cupti_buffer_take_back(NULL, 0);
    cupti_record_totals(&companion, &totals);
    mp_companion_close(&companion);
    assert_numbers(totals.records, ALL, totals.dropped, 3 * polls);

    AUTO(files) glob_t found = files_with(companion_folder, ".device");
    assert_int_equal(found.gl_pathc, 1);
    AUTO(spool) struct mp_spool_reader *reader = open_spool(found.gl_pathv[0]);
    struct mp_spool_record record;
    while (next_of(reader, MP_SPOOL_ACTIVITY, &record)) {
        assert_in_range(record.as.activity.correlation, 0, ALL - 1);
        assert_false(seen[record.as.activity.correlation]);
        seen[record.as.activity.correlation] = true;
    }
    for (int i = 0; i < ALL; i++)
        assert_true(seen[i]);
}

TEST_GROUP(companion_setup, companion_teardown);
