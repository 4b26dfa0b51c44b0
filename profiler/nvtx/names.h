/* The process's names: found without a lock, added under one, never removed. */
#ifndef MOEPERF_PROFILER_NVTX_NAMES_H
#define MOEPERF_PROFILER_NVTX_NAMES_H

#include "profiler/nvtx/session.h"

enum { NVTX_NAMES = 100000, NVTX_NAME_BYTES = 4000 };

/* Names so far; those with ids up to it can be read by anyone. */
uint32_t nvtx_names_count(void);
const struct nvtx_name *nvtx_names_get(uint32_t id);

/* Around fork, so that the child finds no lock held by a thread that it does not have. */
void nvtx_names_lock(void);
void nvtx_names_unlock(void);

#endif
