/* Buffers as CUPTI fills them, written by hand: packed records, one after the other. */
#pragma once

#include "profiler/cupti/versions.h"
#include "tests/profiler/device/companion.h"

struct records {
    _Alignas(64) uint8_t bytes[1 << 16];
    size_t size;
};

/* Room for one record, all zeros but its kind. */
static inline void *records_add(struct records *records, CUpti_ActivityKind kind, size_t size) {
    uint8_t *record = records->bytes + records->size;
    assert_true(records->size + size <= sizeof records->bytes);
    memset(record, 0, size);
    records->size += size;
    *(CUpti_ActivityKind *)(void *)record = kind;
    return record;
}

static inline cupti_kernel *records_kernel(struct records *records, const char *name,
                                           uint64_t start, uint64_t end, uint32_t correlation) {
    cupti_kernel *kernel =
        records_add(records, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, sizeof *kernel);
    kernel->name = name;
    kernel->start = start;
    kernel->end = end;
    kernel->correlationId = correlation;
    return kernel;
}

static inline CUpti_ActivityAPI *records_call(struct records *records, uint32_t callback,
                                              uint32_t thread, uint64_t start, uint64_t end,
                                              uint32_t correlation) {
    CUpti_ActivityAPI *call = records_add(records, CUPTI_ACTIVITY_KIND_RUNTIME, sizeof *call);
    call->cbid = callback;
    call->threadId = thread;
    call->start = start;
    call->end = end;
    call->correlationId = correlation;
    return call;
}

static inline void records_link(struct records *records, uint64_t external, uint32_t correlation) {
    CUpti_ActivityExternalCorrelation *link =
        records_add(records, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, sizeof *link);
    link->externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    link->externalId = external;
    link->correlationId = correlation;
}
