/* The functions that NVTX's slots point to; for the files of this folder. */
#ifndef MOEPERF_PROFILER_NVTX_CALLBACKS_H
#define MOEPERF_PROFILER_NVTX_CALLBACKS_H

#define NVTX_NO_IMPL /* types only: a collector that emits ranges itself hangs for ever */
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include "profiler/nvtx/names.h"
#include "profiler/nvtx/threads.h"

enum { NVTX_PAYLOAD_SLOTS = NVTX3EXT_CBID_nvtxScopeRegister + 1 };

/* One slot of a module. */
struct nvtx_callback {
    unsigned id;
    NvtxFunctionPointer function;
};

/* End with id 0. */
extern const struct nvtx_callback nvtx_core_callbacks[], nvtx_core2_callbacks[];
extern const intptr_t nvtx_payload_callbacks[NVTX_PAYLOAD_SLOTS]; /* by id; 0: not taken */

/* What the next tool has put into the slots, NULL: nothing; called through. */
extern _Atomic(NvtxFunctionPointer) nvtx_next_core[NVTX_CBID_CORE_SIZE],
    nvtx_next_core2[NVTX_CBID_CORE2_SIZE];
extern _Atomic intptr_t nvtx_next_payload[NVTX_PAYLOAD_SLOTS];

static inline NvtxFunctionPointer nvtx_next(_Atomic(NvtxFunctionPointer) *slot) {
    return atomic_load_explicit(slot, memory_order_relaxed);
}

/* The next tool's handle for one of ours; NULL for any other pointer. */
static inline void *nvtx_next_handle(const void *ours) {
    uint32_t id = nvtx_handle_id(ours);
    return id ? atomic_load_explicit(&nvtx_names_get(id)->next_handle, memory_order_relaxed) : NULL;
}

/* What every push begins and ends with.  NULL: nothing is recorded, and the thread has left. */
static inline struct nvtx_open *nvtx_begin_push(struct nvtx_thread **thread) {
    *thread = nvtx_enter();
    struct nvtx_open *open = *thread ? nvtx_push(*thread) : NULL;
    if (*thread && !open)
        nvtx_leave(*thread);
    return open;
}

static inline int nvtx_end_push(struct nvtx_thread *thread, struct nvtx_open *open) {
    int level = nvtx_pushed(thread);
    open->range.start_ns = mp_clock_ns();
    nvtx_tell_push(open->range.start_ns);
    nvtx_leave(thread);
    return level;
}

/* Copies what an event says into an open range of the thread. */
void nvtx_fill(struct nvtx_thread *thread, struct nvtx_open *open, enum mp_range_kind kind,
               nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes);
void nvtx_fill_named(struct nvtx_thread *thread, struct nvtx_open *open, enum mp_range_kind kind,
                     uint32_t domain, uint32_t name);
void nvtx_fill_payloads(struct nvtx_thread *thread, struct nvtx_open *open,
                        const nvtxPayloadData_t *payload, size_t count);

/* UTF-8 of a wide string, cut where NVTX_WIDE_BYTES end. */
enum { NVTX_WIDE_BYTES = 4096 };
const char *nvtx_narrow(const wchar_t *wide, char text[NVTX_WIDE_BYTES]);

/* The attributes as the next tool has to get them: with its own string handle. */
const nvtxEventAttributes_t *nvtx_for_next(const nvtxEventAttributes_t *attributes,
                                           nvtxEventAttributes_t *copy);

#endif
