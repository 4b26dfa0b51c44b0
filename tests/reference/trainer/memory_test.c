/* Memory that runs out while a trainer is made: a sentence, and nothing is left behind (the
 * sanitizers look).  The linker leads every allocation of ours through the functions below. */
#include <errno.h>

#include "baselines/systems.h"
#include "reference/trainer/internal.h"
#include "tests/support.h"

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

static long granted = -1; /* allocations until one is refused; -1: all are granted */

static bool refused(void) {
    return granted >= 0 && granted-- == 0;
}

void *__wrap_malloc(size_t size) {
    return refused() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    return refused() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size) {
    return refused() ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return refused() ? NULL : __real_aligned_alloc(alignment, size);
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t size) {
    return refused() ? ENOMEM : __real_posix_memalign(memory, alignment, size);
}

static void set_up(struct mp_job_file *file, const char *system) {
    const char *const settings[] = {"ranks=1",         "layers=3",
                                    "width=8",         "heads=1",
                                    "experts=4",       "expert-width=8",
                                    "sequence=4",      "batch=2",
                                    "text=-",          "threads=1",
                                    "check-plans=yes", "bandwidth=1e9",
                                    "expert-rate=1e9", "non-moe-seconds=1e-4"};
    struct mp_systems systems = {0};
    struct mp_error error = {0};
    char name[64];
    snprintf(name, sizeof name, "system=%s", system);
    mp_systems_register_all(&systems, &error);
    mp_job_file_create(file, &error);
    mp_job_set(file, name, &systems, &error);
    for (size_t i = 0; i < sizeof settings / sizeof *settings && !error.code; i++)
        mp_job_set(file, settings[i], &systems, &error);
    if (error.code)
        fail_msg("%s: %s", system, error.text);
}

/* Refuses one allocation after the other; how many there are. */
static long refuse_each(const struct mp_job_file *file, struct mp_comm *comm, const char *system) {
    for (long number = 0;; number++) {
        struct mp_trainer *trainer = NULL;
        struct mp_error error = {0};
        granted = number;
        int code = mp_trainer_create(file, comm, NULL, &trainer, &error);
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

static void no_memory_is_said_and_given_back(void **state) {
    (void)state;
    struct mp_systems systems = {0};
    struct mp_error error = {0};
    struct mp_comm *comm;
    mp_systems_register_all(&systems, &error);
    assert_int_equal(mp_comm_self_create(&comm, &error), MP_OK);
    for (int i = 0; i < systems.count; i++) {
        struct mp_job_file file;
        set_up(&file, systems.item[i]->name);
        assert_true(refuse_each(&file, comm, systems.item[i]->name) > 100);
        mp_job_file_destroy(&file);
    }
    mp_comm_destroy(comm);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_memory_is_said_and_given_back)};
    return cmocka_run_group_tests_name("reference/trainer/memory", tests, NULL, NULL);
}
