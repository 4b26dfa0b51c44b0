/* The payload extension: schemas, enumerations, and events that carry nothing but payloads. */
#include <string.h>

#include "profiler/nvtx/callbacks.h"
#include "profiler/record/format.h"

enum { SCHEMA_PAYLOAD_BYTES = 8192, ANY_ENUM_BYTES = 8 };

_Atomic intptr_t mp_nvtx_next_payload[MP_NVTX_PAYLOAD_SLOTS];
static _Atomic uint64_t next_schema = UINT64_C(1) << 32; /* above the ids that programs choose */

static intptr_t next_of(int id) {
    return atomic_load_explicit(&mp_nvtx_next_payload[id], memory_order_relaxed);
}

/* ---- schemas ---- */

/* The payload of a SCHEMA record while it grows; too long a one is cut after a whole entry. */
struct writing {
    uint8_t bytes[SCHEMA_PAYLOAD_BYTES];
    size_t size;
};

static bool write_bytes(struct writing *writing, const void *bytes, size_t size) {
    if (size > sizeof writing->bytes - writing->size)
        return false;
    memcpy(writing->bytes + writing->size, bytes, size);
    writing->size += size;
    return true;
}

static bool write_text(struct writing *writing, const char *text) {
    return write_bytes(writing, text ? text : "", text ? strlen(text) + 1 : 1);
}

static bool write_entry(struct writing *writing, const struct mp_schema_entry *entry) {
    const uint64_t fixed[] = {entry->flags, entry->type, entry->count, entry->offset};
    size_t before = writing->size;
    if (write_bytes(writing, fixed, sizeof fixed) && write_text(writing, entry->name))
        return true;
    writing->size = before;
    return false;
}

static void record(struct writing *writing, const struct spool_schema_payload *fixed) {
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    memcpy(writing->bytes, fixed, sizeof *fixed);
    if (!thread)
        return;
    mp_nvtx_record_schema(thread, writing->bytes, writing->size);
    mp_nvtx_leave(thread);
}

static uint64_t on_schema_register(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t *attr) {
    if (!attr)
        return 0;
    const uint64_t mask = attr->fieldMask;
    struct spool_schema_payload fixed = {.domain = mp_nvtx_handle_id(domain)};
    struct writing writing = {.size = sizeof fixed};
    intptr_t next = next_of(NVTX3EXT_CBID_nvtxPayloadSchemaRegister);
    if (next)
        fixed.id = ((uint64_t(*)(nvtxDomainHandle_t, const nvtxPayloadSchemaAttr_t *))next)(
            mp_nvtx_next_handle(domain), attr);
    if (mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID && attr->schemaId)
        fixed.id = attr->schemaId;
    if (!fixed.id)
        fixed.id = atomic_fetch_add(&next_schema, 1);
    if (mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE)
        fixed.type = (uint32_t)attr->type;
    if (mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE)
        fixed.bytes = attr->payloadStaticSize;
    if (mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ALIGNMENT)
        fixed.pack = (uint32_t)attr->packAlign;
    if (!write_text(&writing, mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME ? attr->name : NULL))
        return fixed.id;
    const bool has_entries = mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES &&
                             mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES;
    for (size_t i = 0; has_entries && attr->entries && i < attr->numEntries; i++) {
        const nvtxPayloadSchemaEntry_t *entry = &attr->entries[i];
        if (!write_entry(&writing, &(struct mp_schema_entry){entry->flags, entry->type,
                                                             entry->arrayOrUnionDetail,
                                                             entry->offset, entry->name}))
            break;
        fixed.entries++;
    }
    record(&writing, &fixed);
    return fixed.id;
}

static uint64_t on_enum_register(nvtxDomainHandle_t domain, const nvtxPayloadEnumAttr_t *attr) {
    if (!attr)
        return 0;
    const uint64_t mask = attr->fieldMask;
    struct spool_schema_payload fixed = {
        .domain = mp_nvtx_handle_id(domain), .type = MP_SCHEMA_ENUM, .bytes = ANY_ENUM_BYTES};
    struct writing writing = {.size = sizeof fixed};
    intptr_t next = next_of(NVTX3EXT_CBID_nvtxPayloadEnumRegister);
    if (next)
        fixed.id = ((uint64_t(*)(nvtxDomainHandle_t, const nvtxPayloadEnumAttr_t *))next)(
            mp_nvtx_next_handle(domain), attr);
    if (mask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_SCHEMA_ID && attr->schemaId)
        fixed.id = attr->schemaId;
    if (!fixed.id)
        fixed.id = atomic_fetch_add(&next_schema, 1);
    if (mask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_SIZE)
        fixed.bytes = attr->sizeOfEnum;
    if (!write_text(&writing, mask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_NAME ? attr->name : NULL))
        return fixed.id;
    const bool has_entries = mask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_ENTRIES &&
                             mask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_NUM_ENTRIES;
    for (size_t i = 0; has_entries && attr->entries && i < attr->numEntries; i++) {
        if (!write_entry(&writing, &(struct mp_schema_entry){.count = attr->entries[i].value,
                                                             .name = attr->entries[i].name}))
            break;
        fixed.entries++;
    }
    record(&writing, &fixed);
    return fixed.id;
}

/* ---- events ---- */

static void on_mark_payload(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload,
                            size_t count) {
    struct mp_nvtx_open open;
    intptr_t next = next_of(NVTX3EXT_CBID_nvtxMarkPayload);
    if (next)
        ((void (*)(nvtxDomainHandle_t, const nvtxPayloadData_t *, size_t))next)(
            mp_nvtx_next_handle(domain), payload, count);
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    if (!thread)
        return;
    open.payload_bytes = 0;
    mp_nvtx_fill(thread, &open, MP_RANGE_MARK, domain, NULL);
    mp_nvtx_fill_payloads(thread, &open, payload, count);
    open.range.start_ns = open.range.end_ns = mp_clock_ns();
    mp_nvtx_record(thread, &open);
    mp_nvtx_leave(thread);
}

static int on_push_payload(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload,
                           size_t count) {
    intptr_t next = next_of(NVTX3EXT_CBID_nvtxRangePushPayload);
    if (next)
        ((int (*)(nvtxDomainHandle_t, const nvtxPayloadData_t *, size_t))next)(
            mp_nvtx_next_handle(domain), payload, count);
    struct mp_nvtx_thread *thread;
    struct mp_nvtx_open *open = mp_nvtx_begin_push(&thread);
    if (!open)
        return NVTX_NO_PUSH_POP_TRACKING;
    mp_nvtx_fill(thread, open, MP_RANGE_PUSHED, domain, NULL);
    mp_nvtx_fill_payloads(thread, open, payload, count);
    return mp_nvtx_end_push(thread, open);
}

static int on_pop_payload(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload,
                          size_t count) {
    int64_t end_ns = mp_clock_ns();
    int level = -1;
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    struct mp_nvtx_open *open =
        thread ? mp_nvtx_innermost(thread, mp_nvtx_handle_id(domain)) : NULL;
    if (open) {
        mp_nvtx_fill_payloads(thread, open, payload, count);
        level = mp_nvtx_pop(thread, open, end_ns);
    }
    if (thread)
        mp_nvtx_leave(thread);
    intptr_t next = next_of(NVTX3EXT_CBID_nvtxRangePopPayload);
    if (__builtin_expect(next != 0, 0))
        ((int (*)(nvtxDomainHandle_t, const nvtxPayloadData_t *, size_t))next)(
            mp_nvtx_next_handle(domain), payload, count);
    return level;
}

static nvtxRangeId_t on_start_payload(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload,
                                      size_t count) {
    uint64_t id = 0, next_id = 0;
    intptr_t next = next_of(NVTX3EXT_CBID_nvtxRangeStartPayload);
    if (next)
        next_id = ((nvtxRangeId_t(*)(nvtxDomainHandle_t, const nvtxPayloadData_t *, size_t))next)(
            mp_nvtx_next_handle(domain), payload, count);
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    struct mp_nvtx_open *open = thread ? mp_nvtx_start(thread, &id) : NULL;
    if (open) {
        mp_nvtx_fill(thread, open, MP_RANGE_STARTED, domain, NULL);
        mp_nvtx_fill_payloads(thread, open, payload, count);
        open->range.start_ns = mp_clock_ns();
        mp_nvtx_started(id, next_id);
    }
    if (thread)
        mp_nvtx_leave(thread);
    return id;
}

static void on_end_payload(nvtxDomainHandle_t domain, nvtxRangeId_t id,
                           const nvtxPayloadData_t *payload, size_t count) {
    int64_t end_ns = mp_clock_ns();
    uint64_t next_id = 0;
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    struct mp_nvtx_open *open = thread ? mp_nvtx_end(thread, id, &next_id) : NULL;
    if (open) {
        mp_nvtx_fill_payloads(thread, open, payload, count);
        mp_nvtx_ended(thread, id, open, end_ns);
    }
    if (thread)
        mp_nvtx_leave(thread);
    intptr_t next = next_of(NVTX3EXT_CBID_nvtxRangeEndPayload);
    if (next)
        ((void (*)(nvtxDomainHandle_t, nvtxRangeId_t, const nvtxPayloadData_t *, size_t))next)(
            mp_nvtx_next_handle(domain), next_id, payload, count);
}

static uint8_t on_is_enabled(nvtxDomainHandle_t domain) {
    (void)domain;
    return 1;
}

static uint64_t on_scope_register(nvtxDomainHandle_t domain, const nvtxScopeAttr_t *attr) {
    intptr_t next = next_of(NVTX3EXT_CBID_nvtxScopeRegister);
    if (next)
        return ((uint64_t(*)(nvtxDomainHandle_t, const nvtxScopeAttr_t *))next)(
            mp_nvtx_next_handle(domain), attr);
    return atomic_fetch_add(&next_schema, 1); /* scopes are not recorded: any id will do */
}

const intptr_t mp_nvtx_payload_callbacks[MP_NVTX_PAYLOAD_SLOTS] = {
    [NVTX3EXT_CBID_nvtxPayloadSchemaRegister] = (intptr_t)on_schema_register,
    [NVTX3EXT_CBID_nvtxPayloadEnumRegister] = (intptr_t)on_enum_register,
    [NVTX3EXT_CBID_nvtxMarkPayload] = (intptr_t)on_mark_payload,
    [NVTX3EXT_CBID_nvtxRangePushPayload] = (intptr_t)on_push_payload,
    [NVTX3EXT_CBID_nvtxRangePopPayload] = (intptr_t)on_pop_payload,
    [NVTX3EXT_CBID_nvtxRangeStartPayload] = (intptr_t)on_start_payload,
    [NVTX3EXT_CBID_nvtxRangeEndPayload] = (intptr_t)on_end_payload,
    [NVTX3EXT_CBID_nvtxDomainIsEnabled] = (intptr_t)on_is_enabled,
    [NVTX3EXT_CBID_nvtxScopeRegister] = (intptr_t)on_scope_register,
};
