/* The process's names: found without a lock, added under one, never removed.
 *
 * A name may be new in a signal handler that has interrupted malloc, so that names have memory of
 * their own, as much as MP_NVTX_NAMES_MEMORY at most.  What comes when it is full has no name, and
 * is counted.  The lock is held with signals blocked (threads.h), so that no handler meets it held
 * by the thread that it has interrupted. */
#pragma once

#include "profiler/nvtx/session.h"

enum { MP_NVTX_NAME_BYTES = 4000, MP_NVTX_NAMES_MEMORY = 16 << 20 };

/* Names so far; those with ids up to it can be read by anyone. */
uint32_t mp_nvtx_names_count(void);
struct mp_nvtx_name *mp_nvtx_names_get(uint32_t id);

/* How many names were not kept, as no memory or no id was left. */
int64_t mp_nvtx_names_refused(void);

/* Around fork, so that the child finds no lock held by a thread that it does not have; and what the
 * child starts counting with. */
void mp_nvtx_names_lock(void);
void mp_nvtx_names_unlock(void);
void mp_nvtx_names_count_anew(void);
