/* Workers: tasks that need nothing of each other, carried out by several processes at once.
 *
 * Each process takes the next task that nobody has taken.  A task sees all memory as it was when
 * the workers started; what it leaves behind is what it writes into memory of
 * mp_workers_memory.  Which process carries out which task is chance: a result that is the same
 * every time depends on the task alone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "reference/base/error.h"

struct mp_workers {
    int processes; /* at once, at least 1 */
    void *context;
    void (*work)(void *context, int task);
    /* Told now and then how many tasks are done; false stops all.  NULL: nobody is told. */
    bool (*progress)(void *context, int done);
};

/* Zeroed memory that workers share with whoever starts them; NULL: there is none. */
void *mp_workers_memory(size_t size);
void mp_workers_release(void *memory, size_t size); /* accepts NULL */

/* Carries out the tasks `first` to `end` - 1.  Errors: MP_EINTERRUPTED where progress says so;
 * MP_EIO where no process can be started or one dies; MP_ENOMEM. */
int mp_workers_run(const struct mp_workers *workers, int first, int end, struct mp_error *error);
