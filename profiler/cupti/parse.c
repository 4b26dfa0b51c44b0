#include "profiler/cupti/parse.h"

#include "profiler/cupti/versions.h"
#include "profiler/record/spool.h"

/* Newer CUPTIs only append to the records whose fields are read below (profiler/cupti/inject.c
 * compares versions at start-up, so a shorter record never comes here). */

/* What a record needs besides itself. */
struct parsing {
    struct mp_companion *companion;
    struct mp_activity activity;
};

/* What the records of a device's work have in common. */
#define WORK(record, of_kind)                                                                      \
    .kind = (of_kind), .start_ns = (int64_t)(record)->start, .end_ns = (int64_t)(record)->end,     \
    .graph_node = (record)->graphNodeId, .correlation = (record)->correlationId,                   \
    .device = (record)->deviceId, .context = (record)->contextId, .stream = (record)->streamId
#define COPY(record)                                                                               \
    WORK(record, MP_ACTIVITY_COPY), .value = (record)->bytes, .detail = (record)->copyKind,        \
                                    .source = (record)->srcKind, .target = (record)->dstKind

static void parse_kernel(struct parsing *parsing, const CUpti_Activity *record) {
    const cupti_kernel *kernel = (const void *)record;
    parsing->activity = (struct mp_activity){
        WORK(kernel, MP_ACTIVITY_KERNEL),
        .name = mp_companion_name(parsing->companion, kernel->name),
        .registers = kernel->registersPerThread,
        .grid = {kernel->gridX, kernel->gridY, kernel->gridZ},
        .block = {kernel->blockX, kernel->blockY, kernel->blockZ},
        .static_shared = (uint32_t)kernel->staticSharedMemory,
        .dynamic_shared = (uint32_t)kernel->dynamicSharedMemory,
        .local = kernel->localMemoryPerThread,
        .local_total = kernel->localMemoryTotal_v2,
    };
}

static void parse_copy(struct parsing *parsing, const CUpti_Activity *record) {
    const cupti_copy *copy = (const void *)record;
    parsing->activity = (struct mp_activity){COPY(copy), .result = CUPTI_COPY_COUNT(copy)};
}

static void parse_peer_copy(struct parsing *parsing, const CUpti_Activity *record) {
    const CUpti_ActivityMemcpyPtoP4 *copy = (const void *)record;
    parsing->activity = (struct mp_activity){COPY(copy), .result = 1};
}

static void parse_set(struct parsing *parsing, const CUpti_Activity *record) {
    const CUpti_ActivityMemset4 *set = (const void *)record;
    parsing->activity =
        (struct mp_activity){WORK(set, MP_ACTIVITY_SET), .value = set->bytes, .detail = set->value,
                             .target = (uint8_t)set->memoryKind};
}

static void parse_call(struct parsing *parsing, const CUpti_Activity *record) {
    const CUpti_ActivityAPI *call = (const void *)record;
    const char *name = NULL;
    CUpti_CallbackDomain domain = call->kind == CUPTI_ACTIVITY_KIND_DRIVER
                                      ? CUPTI_CB_DOMAIN_DRIVER_API
                                      : CUPTI_CB_DOMAIN_RUNTIME_API;
    if (cuptiGetCallbackName(domain, call->cbid, &name) != CUPTI_SUCCESS)
        name = NULL;
    parsing->activity = (struct mp_activity){.start_ns = (int64_t)call->start,
                                             .end_ns = (int64_t)call->end,
                                             .correlation = call->correlationId,
                                             .thread = call->threadId,
                                             .detail = call->cbid,
                                             .result = call->returnValue,
                                             .name = mp_companion_name(parsing->companion, name),
                                             .kind = MP_ACTIVITY_CALL};
}

static void parse_link(struct parsing *parsing, const CUpti_Activity *record) {
    const CUpti_ActivityExternalCorrelation *link = (const void *)record;
    parsing->activity = (struct mp_activity){.value = link->externalId,
                                             .correlation = link->correlationId,
                                             .detail = (uint32_t)link->externalKind,
                                             .kind = MP_ACTIVITY_LINK};
}

static void parse_overhead(struct parsing *parsing, const CUpti_Activity *record) {
    const CUpti_ActivityOverhead3 *overhead = (const void *)record;
    parsing->activity = (struct mp_activity){.start_ns = (int64_t)overhead->start,
                                             .end_ns = (int64_t)overhead->end,
                                             .correlation = overhead->correlationId,
                                             .detail = (uint32_t)overhead->overheadKind,
                                             .kind = MP_ACTIVITY_OVERHEAD};
}

static const struct {
    CUpti_ActivityKind kind;
    size_t size; /* of the struct compiled against */
    void (*parse)(struct parsing *parsing, const CUpti_Activity *record);
} parsers[] = {
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, sizeof(cupti_kernel), parse_kernel},
    {CUPTI_ACTIVITY_KIND_MEMCPY, sizeof(cupti_copy), parse_copy},
    {CUPTI_ACTIVITY_KIND_MEMCPY2, sizeof(CUpti_ActivityMemcpyPtoP4), parse_peer_copy},
    {CUPTI_ACTIVITY_KIND_MEMSET, sizeof(CUpti_ActivityMemset4), parse_set},
    {CUPTI_ACTIVITY_KIND_RUNTIME, sizeof(CUpti_ActivityAPI), parse_call},
    {CUPTI_ACTIVITY_KIND_DRIVER, sizeof(CUpti_ActivityAPI), parse_call},
    {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, sizeof(CUpti_ActivityExternalCorrelation),
     parse_link},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, sizeof(CUpti_ActivityOverhead3), parse_overhead},
};
enum { PARSERS = sizeof parsers / sizeof *parsers };

/* CUPTI says 0 where it does not know one of the two: no time, rather than one from the start of
 * the machine. */
static void count(struct mp_activity *activity, struct cupti_totals *totals) {
    totals->records++;
    if (activity->kind == MP_ACTIVITY_LINK)
        return;
    if (activity->start_ns == 0 || activity->end_ns == 0) {
        activity->start_ns = activity->end_ns = 0;
        totals->untimed += activity->kind <= MP_ACTIVITY_SET;
    } else if (activity->kind == MP_ACTIVITY_OVERHEAD) {
        totals->overhead_ns += activity->end_ns - activity->start_ns;
    }
}

/* Returns the size of the record as compiled against; 0: not known. */
static size_t take(struct parsing *parsing, const CUpti_Activity *record,
                   struct cupti_totals *totals) {
    int i = 0;
    while (i < PARSERS && parsers[i].kind != record->kind)
        i++;
    if (i == PARSERS) {
        totals->ignored++;
        return 0;
    }
    parsers[i].parse(parsing, record);
    count(&parsing->activity, totals);
    mp_record_add(
        parsing->companion->thread,
        &(struct mp_spool_record){.type = MP_SPOOL_ACTIVITY, .as.activity = parsing->activity});
    return parsers[i].size;
}

void cupti_parse(struct mp_companion *companion, uint8_t *bytes, size_t valid,
                 struct cupti_totals *totals) {
    struct parsing parsing = {.companion = companion};
    CUpti_Activity *record = NULL;
    CUptiResult result;
    uint32_t version = 0;
    size_t read = 0; /* bytes up to here are recorded */
    bool exact = cuptiGetVersion(&version) == CUPTI_SUCCESS && version == CUPTI_API_VERSION;
    while ((result = cuptiActivityGetNextRecord(bytes, valid, &record)) == CUPTI_SUCCESS) {
        size_t size = take(&parsing, record, totals);
        read = (size_t)((uint8_t *)record - bytes) + size;
        exact = exact && size > 0;
    }
    /* CUPTI does not step over a kind that it does not know, and does not say that the last record
     * is cut off.  Records longer than those compiled against would look as if they were. */
    if (result != CUPTI_ERROR_MAX_LIMIT_REACHED || exact)
        totals->left_bytes += read < valid ? (int64_t)(valid - read) : 0;
}

void cupti_record_totals(const struct mp_companion *companion, const struct cupti_totals *totals) {
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"cupti.records", totals->records}, {"cupti.untimed", totals->untimed},
        {"cupti.dropped", totals->dropped}, {"cupti.left-bytes", totals->left_bytes},
        {"cupti.ignored", totals->ignored}, {"cupti.overhead-ns", totals->overhead_ns},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        mp_record_number(companion->thread, -1, -1, numbers[i].name, (double)numbers[i].value);
}
