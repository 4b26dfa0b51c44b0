#include "profiler/nvtx/emit.h"

#include <stdio.h>

const struct mp_nvtx_emitter *mp_nvtx_emitter;

#ifdef MOEPERF_NVTX

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

static nvtxDomainHandle_t domain;
static nvtxStringHandle_t names[MP_PHASES + 1], flight_names[MP_PHASES];
static uint64_t schema;

static uint64_t register_schema(void) {
    static const char *const fields[] = {"iteration", "layer", "direction", "tokens", "bytes"};
    enum { FIELDS = sizeof fields / sizeof *fields };
    _Static_assert(sizeof(struct mp_nvtx_payload) == FIELDS * sizeof(int64_t), "one name each");
    nvtxPayloadSchemaEntry_t entries[FIELDS] = {{0}};
    for (int i = 0; i < FIELDS; i++) {
        entries[i].type = NVTX_PAYLOAD_ENTRY_TYPE_INT64;
        entries[i].name = fields[i];
    }
    nvtxPayloadSchemaAttr_t attributes = {0};
    attributes.fieldMask =
        NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
        NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
        NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
    attributes.name = "moeperf span";
    attributes.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
    attributes.entries = entries;
    attributes.numEntries = FIELDS;
    attributes.payloadStaticSize = sizeof(struct mp_nvtx_payload);
    return nvtxPayloadSchemaRegister(domain, &attributes);
}

static nvtxEventAttributes_t named(nvtxStringHandle_t name) {
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .messageType = NVTX_MESSAGE_TYPE_REGISTERED};
    event.message.registered = name;
    return event;
}

static void push(enum mp_phase phase) {
    const nvtxEventAttributes_t event = named(names[phase]);
    nvtxDomainRangePushEx(domain, &event);
}

static void pop(const struct mp_nvtx_payload *payload) {
    const nvtxPayloadData_t data = {schema, sizeof *payload, payload};
    if (schema)
        nvtxRangePopPayload(domain, &data, 1);
    else /* a tool that knows no payloads */
        nvtxDomainRangePop(domain);
}

static uint64_t depart(enum mp_phase phase) {
    const nvtxEventAttributes_t event = named(flight_names[phase]);
    return nvtxDomainRangeStartEx(domain, &event);
}

static void arrive(uint64_t range, const struct mp_nvtx_payload *payload) {
    const nvtxPayloadData_t data = {schema, sizeof *payload, payload};
    if (schema)
        nvtxRangeEndPayload(domain, range, &data, 1);
    else
        nvtxDomainRangeEnd(domain, range);
}

static const struct mp_nvtx_emitter emitter = {push, pop, depart, arrive};

void mp_nvtx_start(void) {
    if (domain)
        return;
    domain = nvtxDomainCreateA(MP_NVTX_DOMAIN); /* NULL when no tool listens */
    if (!domain)
        return;
    for (int phase = 0; phase < MP_PHASES; phase++) {
        char name[64];
        snprintf(name, sizeof name, "comm %s", mp_phase_name((enum mp_phase)phase));
        flight_names[phase] = nvtxDomainRegisterStringA(domain, name);
        names[phase] = nvtxDomainRegisterStringA(domain, mp_phase_name((enum mp_phase)phase));
    }
    names[MP_PHASES] = nvtxDomainRegisterStringA(domain, MP_NVTX_COST);
    schema = register_schema();
    mp_nvtx_emitter = &emitter;
}

int mp_nvtx_headers(void) {
    return NVTX_VERSION;
}

#else

void mp_nvtx_start(void) {}

int mp_nvtx_headers(void) {
    return 0;
}

#endif
