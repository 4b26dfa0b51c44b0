/* The functions that NVTX's slots point to; for the files of this folder. */
#ifndef MOEPERF_PROFILER_NVTX_CALLBACKS_H
#define MOEPERF_PROFILER_NVTX_CALLBACKS_H

#define NVTX_NO_IMPL /* types only: a collector that emits ranges itself hangs for ever */
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include "profiler/nvtx/names.h"
#include "profiler/nvtx/threads.h"

enum { MP_NVTX_PAYLOAD_SLOTS = NVTX3EXT_CBID_nvtxScopeRegister + 1 };

/* One slot of a module. */
struct mp_nvtx_callback {
    unsigned id;
    NvtxFunctionPointer function;
};

/* End with id 0. */
extern const struct mp_nvtx_callback mp_nvtx_core_callbacks[], mp_nvtx_core2_callbacks[];
extern const intptr_t mp_nvtx_payload_callbacks[MP_NVTX_PAYLOAD_SLOTS]; /* by id; 0: not taken */

/* What the next tool has put into the slots, NULL: nothing; called through. */
extern _Atomic(NvtxFunctionPointer) mp_nvtx_next_core[NVTX_CBID_CORE_SIZE],
    mp_nvtx_next_core2[NVTX_CBID_CORE2_SIZE];
extern _Atomic intptr_t mp_nvtx_next_payload[MP_NVTX_PAYLOAD_SLOTS];

static inline NvtxFunctionPointer mp_nvtx_next(_Atomic(NvtxFunctionPointer) *slot) {
    return atomic_load_explicit(slot, memory_order_relaxed);
}

/* The next tool's handle for one of ours; NULL for any other pointer. */
static inline void *mp_nvtx_next_handle(const void *ours) {
    uint32_t id = mp_nvtx_handle_id(ours);
    return id ? atomic_load_explicit(&mp_nvtx_names_get(id)->next_handle, memory_order_relaxed)
              : NULL;
}

/* What every push begins and ends with.  NULL: nothing is recorded, and the thread has left. */
static inline struct mp_nvtx_open *mp_nvtx_begin_push(struct mp_nvtx_thread **thread) {
    *thread = mp_nvtx_enter();
    struct mp_nvtx_open *open = *thread ? mp_nvtx_push(*thread) : NULL;
    if (*thread && !open)
        mp_nvtx_leave(*thread);
    return open;
}

static inline int mp_nvtx_end_push(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open) {
    int level = mp_nvtx_pushed(thread);
    open->range.start_ns = mp_clock_ns();
    mp_nvtx_tell_push(open->range.start_ns);
    mp_nvtx_leave(thread);
    return level;
}

/* Copies what an event says into an open range of the thread. */
void mp_nvtx_fill(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open, enum mp_range_kind kind,
                  nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes);
void mp_nvtx_fill_named(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open,
                        enum mp_range_kind kind, uint32_t domain, uint32_t name);
void mp_nvtx_fill_payloads(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open,
                           const nvtxPayloadData_t *payload, size_t count);

/* UTF-8 of a wide string, cut where MP_NVTX_WIDE_BYTES end. */
enum { MP_NVTX_WIDE_BYTES = 4096 };
const char *mp_nvtx_narrow(const wchar_t *wide, char text[MP_NVTX_WIDE_BYTES]);

/* The attributes as the next tool has to get them: with its own string handle. */
const nvtxEventAttributes_t *mp_nvtx_for_next(const nvtxEventAttributes_t *attributes,
                                              nvtxEventAttributes_t *copy);

#endif
