/* The functions that NVTX's slots point to; for the files of this folder. */
#pragma once

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

/* Calls the next tool's function, if it has one; ASK gives what it returns, or 0. */
#define TELL(next, ...)                                                                            \
    do {                                                                                           \
        __typeof__(next) next_ = (next);                                                           \
        if (__builtin_expect(next_ != NULL, 0))                                                    \
            next_(__VA_ARGS__);                                                                    \
    } while (0)
#define ASK(next, ...) ((next) ? (next)(__VA_ARGS__) : 0)

/* The next tool's handle for one of ours; NULL for any other pointer. */
static inline void *mp_nvtx_next_handle(const void *ours) {
    uint32_t id = mp_nvtx_handle_id(ours);
    return id ? atomic_load_explicit(&mp_nvtx_names_get(id)->next_handle, memory_order_relaxed)
              : NULL;
}

/* What a call says of an event: all of it NULL or 0 but what that call has. */
struct mp_nvtx_event {
    nvtxDomainHandle_t domain;
    const nvtxEventAttributes_t *attributes;
    const char *message;
    const wchar_t *wide;
    const nvtxPayloadData_t *payload; /* [payloads] */
    size_t payloads;
};

/* UTF-8 of a wide string, cut where MP_NVTX_WIDE_BYTES end; NULL of NULL. */
enum { MP_NVTX_WIDE_BYTES = 4096 };
const char *mp_nvtx_narrow(const wchar_t *wide, char text[MP_NVTX_WIDE_BYTES]);

uint32_t mp_nvtx_wide_name(struct mp_nvtx_thread *thread, const wchar_t *wide);

/* The attributes as the next tool has to get them: with its own string handle. */
const nvtxEventAttributes_t *mp_nvtx_for_next(const nvtxEventAttributes_t *attributes,
                                              nvtxEventAttributes_t *copy);

/* ---- events, whichever module's call says them ---- */

/* Copies what attributes say into an open range of the thread. */
void mp_nvtx_fill_attributes(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open,
                             const nvtxEventAttributes_t *attributes);

static inline void event_payloads(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open,
                                  const nvtxPayloadData_t *payload, size_t payloads) {
    for (size_t i = 0; payload && i < payloads; i++)
        mp_nvtx_add_payload(thread, open, payload[i].schemaId, payload[i].payload, payload[i].size);
}

static inline void event_fill(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open,
                              enum mp_range_kind kind, const struct mp_nvtx_event *event) {
    open->range = (struct mp_range){.domain = mp_nvtx_handle_id(event->domain),
                                    .thread = thread->id,
                                    .end_thread = thread->id,
                                    .kind = (uint8_t)kind};
    if (event->attributes)
        mp_nvtx_fill_attributes(thread, open, event->attributes);
    if (event->message)
        open->range.name = mp_nvtx_name_of(thread, event->message);
    if (event->wide)
        open->range.name = mp_nvtx_wide_name(thread, event->wide);
    event_payloads(thread, open, event->payload, event->payloads);
}

static inline void event_mark(const struct mp_nvtx_event *event) {
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    struct mp_nvtx_open open;
    if (!thread)
        return;
    open.payload_bytes = 0;
    event_fill(thread, &open, MP_RANGE_MARK, event);
    open.range.start_ns = open.range.end_ns = mp_clock_ns();
    mp_nvtx_record(thread, &open);
    mp_nvtx_leave(thread);
}

/* The level. */
static inline int event_push(const struct mp_nvtx_event *event) {
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    struct mp_nvtx_open *open = thread ? mp_nvtx_push(thread) : NULL;
    int level = NVTX_NO_PUSH_POP_TRACKING;
    if (open) {
        event_fill(thread, open, MP_RANGE_PUSHED, event);
        level = mp_nvtx_pushed(thread);
        open->range.start_ns = mp_clock_ns();
        mp_nvtx_tell_push(open->range.start_ns);
    }
    if (thread)
        mp_nvtx_leave(thread);
    return level;
}

static inline int event_pop(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload,
                            size_t payloads) {
    int64_t end_ns = mp_clock_ns();
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    if (!thread)
        return -1;
    struct mp_nvtx_open *open = mp_nvtx_innermost(thread, mp_nvtx_handle_id(domain));
    if (open)
        event_payloads(thread, open, payload, payloads);
    int level = open ? mp_nvtx_pop(thread, open, end_ns) : -1;
    mp_nvtx_leave(thread);
    return level;
}

/* Our id of a range that the next tool calls `next_id`. */
static inline nvtxRangeId_t event_start(const struct mp_nvtx_event *event, uint64_t next_id) {
    uint64_t id = 0;
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    struct mp_nvtx_open *open = thread ? mp_nvtx_start(thread, &id) : NULL;
    if (open) {
        event_fill(thread, open, MP_RANGE_STARTED, event);
        open->range.start_ns = mp_clock_ns();
        mp_nvtx_started(id, next_id);
    }
    if (thread)
        mp_nvtx_leave(thread);
    return id;
}

/* Returns the next tool's id. */
static inline uint64_t event_end(nvtxRangeId_t id, const nvtxPayloadData_t *payload,
                                 size_t payloads) {
    int64_t end_ns = mp_clock_ns();
    uint64_t next_id = 0;
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    struct mp_nvtx_open *open = thread ? mp_nvtx_end(thread, id, &next_id) : NULL;
    if (open) {
        event_payloads(thread, open, payload, payloads);
        mp_nvtx_ended(thread, id, open, end_ns);
    }
    if (thread)
        mp_nvtx_leave(thread);
    return next_id;
}
