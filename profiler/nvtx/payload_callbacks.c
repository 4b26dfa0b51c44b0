/* The payload extension: schemas, enumerations, and events that carry nothing but payloads. */
#include "profiler/nvtx/callbacks.h"

enum { ENTRIES_BYTES = 8192, ANY_ENUM_BYTES = 8 };

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

/* A SCHEMA record while it grows; too long a one is cut after a whole entry. */
struct schema {
    struct mp_spool_record record;
    uint8_t entries[ENTRIES_BYTES], *at;
    size_t left;
};

static void begin(struct schema *schema, nvtxDomainHandle_t domain, uint32_t type, uint64_t bytes) {
    schema->record = (struct mp_spool_record){
        .type = MP_SPOOL_SCHEMA,
        .as.schema = {.domain = mp_nvtx_handle_id(domain), .type = type, .bytes = bytes}};
    schema->at = schema->entries;
    schema->left = sizeof schema->entries;
}

static bool add_entry(struct schema *schema, struct mp_schema_entry entry) {
    entry.name = entry.name ? entry.name : "";
    const bool added = mp_schema_put_entry(&schema->at, &schema->left, &entry);
    schema->record.as.schema.entries += added;
    return added;
}

/* Records it by the id that the program chose, or the next tool, or we, which is returned. */
static uint64_t record(struct schema *schema, uint64_t chosen, uint64_t next_id, const char *name) {
    const uint64_t id = chosen ? chosen : next_id ? next_id : atomic_fetch_add(&next_schema, 1);
    struct mp_nvtx_thread *thread = mp_nvtx_enter();
    schema->record.as.schema.id = id;
    schema->record.as.schema.name = name ? name : "";
    schema->record.as.schema.entry = schema->entries;
    schema->record.as.schema.entry_bytes = sizeof schema->entries - schema->left;
    if (thread) {
        mp_nvtx_record_schema(thread, &schema->record);
        mp_nvtx_leave(thread);
    }
    return id;
}

static uint64_t on_schema_register(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t *attr) {
    if (!attr)
        return 0;
    const uint64_t mask = attr->fieldMask;
    struct schema schema;
    begin(&schema, domain, mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE ? (uint32_t)attr->type : 0,
          mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE ? attr->payloadStaticSize : 0);
    if (mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ALIGNMENT)
        schema.record.as.schema.pack = (uint32_t)attr->packAlign;
    const bool has_entries = mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES &&
                             mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES;
    for (size_t i = 0; has_entries && attr->entries && i < attr->numEntries; i++) {
        const nvtxPayloadSchemaEntry_t *entry = &attr->entries[i];
        if (!add_entry(&schema, (struct mp_schema_entry){entry->flags, entry->type,
                                                         entry->arrayOrUnionDetail, entry->offset,
                                                         entry->name}))
            break;
    }
    return record(
        &schema, mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID ? attr->schemaId : 0,
        ASK(NEXT(register_schema, PayloadSchemaRegister), mp_nvtx_next_handle(domain), attr),
        mask & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME ? attr->name : NULL);
}

static uint64_t on_enum_register(nvtxDomainHandle_t domain, const nvtxPayloadEnumAttr_t *attr) {
    if (!attr)
        return 0;
    const uint64_t mask = attr->fieldMask;
    struct schema schema;
    begin(&schema, domain, MP_SCHEMA_ENUM,
          mask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_SIZE ? attr->sizeOfEnum : ANY_ENUM_BYTES);
    const bool has_entries = mask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_ENTRIES &&
                             mask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_NUM_ENTRIES;
    for (size_t i = 0; has_entries && attr->entries && i < attr->numEntries; i++)
        if (!add_entry(&schema, (struct mp_schema_entry){.count = attr->entries[i].value,
                                                         .name = attr->entries[i].name}))
            break;
    return record(&schema, mask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_SCHEMA_ID ? attr->schemaId : 0,
                  ASK(NEXT(register_enum, PayloadEnumRegister), mp_nvtx_next_handle(domain), attr),
                  mask & NVTX_PAYLOAD_ENUM_ATTR_FIELD_NAME ? attr->name : NULL);
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
