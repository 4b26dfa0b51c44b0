/* The payload extension: schemas, enumerations, and events that carry nothing but payloads. */
#include <string.h>

#include "profiler/nvtx/callbacks.h"
#include "profiler/record/format.h"

enum { SCHEMA_PAYLOAD_BYTES = 8192, ANY_ENUM_BYTES = 8 };

_Atomic intptr_t mp_nvtx_next_payload[MP_NVTX_PAYLOAD_SLOTS];
static _Atomic uint64_t next_schema = UINT64_C(1) << 32; /* above the ids that programs choose */

/* Functions of slots. */
typedef uint64_t register_schema(nvtxDomainHandle_t, const nvtxPayloadSchemaAttr_t *);
typedef uint64_t register_enum(nvtxDomainHandle_t, const nvtxPayloadEnumAttr_t *);
typedef uint64_t register_scope(nvtxDomainHandle_t, const nvtxScopeAttr_t *);
typedef void mark_payload(nvtxDomainHandle_t, const nvtxPayloadData_t *, size_t);
typedef int push_payload(nvtxDomainHandle_t, const nvtxPayloadData_t *, size_t);
typedef nvtxRangeId_t start_payload(nvtxDomainHandle_t, const nvtxPayloadData_t *, size_t);
typedef void end_payload(nvtxDomainHandle_t, nvtxRangeId_t, const nvtxPayloadData_t *, size_t);

/* The next tool's; NULL: it has none. */
#define NEXT(type, name)                                                                           \
    ((type *)atomic_load_explicit(&mp_nvtx_next_payload[NVTX3EXT_CBID_nvtx##name],                 \
                                  memory_order_relaxed))

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

/* What schema and enumeration begin with: the id that the program chose, or the next tool, or we;
 * and the name. */
static bool begin(struct writing *writing, struct spool_schema_payload *fixed, uint64_t chosen,
                  const char *name) {
    fixed->id = chosen ? chosen : fixed->id ? fixed->id : atomic_fetch_add(&next_schema, 1);
    writing->size = sizeof *fixed;
    return write_text(writing, name);
}

static uint64_t on_schema_register(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t *attr) {
    if (!attr)
        return 0;
    const uint64_t mask = attr->fieldMask;
    struct spool_schema_payload fixed = {.domain = mp_nvtx_handle_id(domain)};
    struct writing writing;
    fixed.id = ASK(NEXT(register_schema, PayloadSchemaRegister), mp_nvtx_next_handle(domain), attr);
    if (mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE)
        fixed.type = (uint32_t)attr->type;
    if (mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE)
        fixed.bytes = attr->payloadStaticSize;
    if (mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ALIGNMENT)
        fixed.pack = (uint32_t)attr->packAlign;
    if (!begin(&writing, &fixed,
               mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID ? attr->schemaId : 0,
               mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME ? attr->name : NULL))
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
    struct writing writing;
    fixed.id = ASK(NEXT(register_enum, PayloadEnumRegister), mp_nvtx_next_handle(domain), attr);
    if (mask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_SIZE)
        fixed.bytes = attr->sizeOfEnum;
    if (!begin(&writing, &fixed, mask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_SCHEMA_ID ? attr->schemaId : 0,
               mask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_NAME ? attr->name : NULL))
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
    TELL(NEXT(mark_payload, MarkPayload), mp_nvtx_next_handle(domain), payload, count);
    event_mark(&(struct mp_nvtx_event){.domain = domain, .payload = payload, .payloads = count});
}

static int on_push_payload(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload,
                           size_t count) {
    TELL(NEXT(push_payload, RangePushPayload), mp_nvtx_next_handle(domain), payload, count);
    return event_push(
        &(struct mp_nvtx_event){.domain = domain, .payload = payload, .payloads = count});
}

static int on_pop_payload(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload,
                          size_t count) {
    int level = event_pop(domain, payload, count);
    TELL(NEXT(push_payload, RangePopPayload), mp_nvtx_next_handle(domain), payload, count);
    return level;
}

static nvtxRangeId_t on_start_payload(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload,
                                      size_t count) {
    uint64_t next_id =
        ASK(NEXT(start_payload, RangeStartPayload), mp_nvtx_next_handle(domain), payload, count);
    return event_start(
        &(struct mp_nvtx_event){.domain = domain, .payload = payload, .payloads = count}, next_id);
}

static void on_end_payload(nvtxDomainHandle_t domain, nvtxRangeId_t id,
                           const nvtxPayloadData_t *payload, size_t count) {
    uint64_t next_id = event_end(id, payload, count);
    TELL(NEXT(end_payload, RangeEndPayload), mp_nvtx_next_handle(domain), next_id, payload, count);
}

static uint8_t on_is_enabled(nvtxDomainHandle_t domain) {
    (void)domain;
    return 1;
}

static uint64_t on_scope_register(nvtxDomainHandle_t domain, const nvtxScopeAttr_t *attr) {
    uint64_t id = ASK(NEXT(register_scope, ScopeRegister), mp_nvtx_next_handle(domain), attr);
    return id ? id : atomic_fetch_add(&next_schema, 1); /* scopes are not recorded: any will do */
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
