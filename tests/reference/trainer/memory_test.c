/* Memory that runs out while a trainer is made, or when more rows come than ever: a sentence, and
 * nothing is left behind (the sanitizers look).  The linker leads every allocation of ours through
 * the functions below. */
#include <errno.h>

#include "reference/trainer/internal.h"
#include "tests/code_name.h"
#include "tests/reference/trainer/settings.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **memory, size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t size);

static long granted = -1;            /* allocations until one is refused; -1: all are granted */
static size_t largest = PTRDIFF_MAX; /* bytes that are granted at once */

static bool refused(size_t size) {
    return size > largest || (granted >= 0 && granted-- == 0);
}

void *__wrap_malloc(size_t size) {
    return refused(size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    return refused(count * size) ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size) {
    return refused(size) ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return refused(size) ? NULL : __real_aligned_alloc(alignment, size);
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t size) {
    return refused(size) ? ENOMEM : __real_posix_memalign(memory, alignment, size);
}

static void set_up(struct mp_job_file *file, const char *settings) {
    struct mp_error error = {0};
    if (create_job(file, settings, NULL, &error) ||
        set_job(file,
                "ranks=1 layers=3 width=8 heads=1 experts=4 expert-width=8 batch=2 text=- "
                "threads=1 check-plans=yes bandwidth=1e9 expert-rate=1e9 non-moe-seconds=1e-4",
                NULL, &error))
        fail_msg("%s: %s", settings, error.text);
}

/* Refuses one allocation after the other; how many there are. */
static long refuse_each(const struct mp_job_file *file, struct mp_comm *comm, const char *system) {
    for (long number = 0;; number++) {
        struct mp_trainer *trainer = NULL;
        struct mp_error error = {0};
        granted = number;
        int code = mp_trainer_create(file, comm, NULL, NULL, &trainer, &error);
        long left = granted;
        granted = -1;
        if (!code) {
            mp_trainer_destroy(trainer);
            if (left < 0)
                fail_msg("%s: allocation %ld failed and nobody saw it", system, number);
            return number;
        }
        if (code != MP_ENOMEM || !error.text[0])
            fail_msg("%s: allocation %ld: %s: %s", system, number, mp_code_name(code), error.text);
    }
}

TEST(no_memory_is_said_and_given_back) {
    struct mp_systems systems = {0};
    struct mp_error error = {0};
    struct mp_comm *comm;
    mp_systems_register_all(&systems, &error);
    assert_int_equal(mp_comm_self_create(&comm, &error), MP_OK);
    for (int i = 0; i < systems.count; i++) {
        struct mp_job_file file;
        set_up(&file, formatted("system=%s sequence=4", systems.item[i]->name));
        assert_true(refuse_each(&file, comm, systems.item[i]->name) > 100);
        mp_job_file_destroy(&file);
    }
    mp_comm_destroy(comm);
}

/* One rank sends itself as many rows for each expert as the fullest has routes (a padded exchange
 * that drops nothing): even loads, then three quarters of the tokens to the same two of four
 * experts, which makes half as many again. */
TEST(rows_without_memory_are_told) {
    enum { TOKENS = 2 * 512, ROWS = 3 * TOKENS, SPARE = ROWS / 4, BYTES = 4 * 8 * sizeof(float) };
    static int32_t token[TOKENS];
    struct mp_error error = {0};
    struct mp_comm *comm;
    assert_int_equal(mp_comm_self_create(&comm, &error), MP_OK);
    /* The most bytes at once, the workspace's: of what is wanted, of what is needed, of neither. */
    const size_t grants[] = {(ROWS + SPARE) * BYTES, ROWS * BYTES, ROWS * BYTES - 1};
    for (int i = 0; i < 3; i++) {
        struct mp_trainer *trainer = NULL;
        struct mp_trainer_result result;
        struct mp_job_file file;
        set_up(&file, "system=deepspeed sequence=512 routing=skewed skew-experts=4 "
                      "options.drop-tokens=no");
        assert_int_equal(mp_trainer_create(&file, comm, NULL, NULL, &trainer, &error), MP_OK);
        assert_int_equal(mp_trainer_step_on(trainer, token, token, &result, &error), MP_OK);
        assert_int_equal(mp_trainer_totals(trainer)->row_growths, 0);
        for (int e = 0; e < 4 * trainer->job.layers; e++)
            trainer->forced.loads.count[e] = e % 4 < 2 ? TOKENS / 4 * 3 : TOKENS / 4;
        largest = grants[i];
        int code = mp_trainer_step_on(trainer, token, token, &result, &error);
        largest = PTRDIFF_MAX;
        assert_int_equal(code, i < 2 ? MP_OK : MP_ENOMEM);
        if (i < 2) {
            assert_int_equal(mp_trainer_totals(trainer)->row_growths, 3);
            assert_int_equal(trainer->model.worked.room, i == 0 ? ROWS + SPARE : ROWS);
            assert_int_equal(trainer->model.state[2].worked.room, ROWS + SPARE);
        } else {
            assert_contains(error.text, "iteration 1: layer 0: no memory for 3072 rows to "
                                        "work on and 3072 to send (even loads have 2048 of "
                                        "each): ");
        }
        mp_trainer_destroy(trainer);
        mp_job_file_destroy(&file);
    }
    mp_comm_destroy(comm);
}
