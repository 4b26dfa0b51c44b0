/* What GPU records refer to: names, the host's calls, the GPU's timer. */
#include "results/store/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"

enum { NAMES_LIMIT = 1 << 20 /* a damaged spool may claim any id */ };

int64_t device_time(const struct device_spool *spool, int64_t own_ns) {
    return clock_bounded(clock_fit_apply(&spool->fit, own_ns)) - spool->origin_ns;
}

/* ---- collecting ---- */

/* One entry per record; those of one correlation id are put together afterwards. */
static int add_call(struct device_spool *spool, const struct mp_activity *activity,
                    struct mp_error *error) {
    MP_TRY(MP_GROW(spool->calls, spool->call_count, error));
    struct device_call *call = &spool->calls[spool->call_count++];
    *call = (struct device_call){.correlation = activity->correlation, .start_ns = INT64_MAX};
    if (activity->kind == MP_ACTIVITY_LINK) {
        call->has_external = true;
        call->external_ns = device_time(spool, (int64_t)activity->value);
        return device_want(spool, call->external_ns, error);
    }
    if (!activity->start_ns)
        return MP_OK;
    call->start_ns = device_time(spool, activity->start_ns);
    return device_want(spool, call->start_ns, error);
}

/* Of a datatype of NCCL's; 0: of none, or of one that it may have got since. */
static int size_of(const char *datatype) {
    static const struct {
        const char *ending;
        int bytes;
    } types[] = {{"Int8", 1},       {"Uint8", 1},   {"Char", 1},     {"Float8e4m3", 1},
                 {"Float8e5m2", 1}, {"Float16", 2}, {"Bfloat16", 2}, {"Half", 2},
                 {"Int32", 4},      {"Uint32", 4},  {"Int", 4},      {"Float32", 4},
                 {"Float", 4},      {"Int64", 8},   {"Uint64", 8},   {"Float64", 8},
                 {"Double", 8}};
    static const char prefix[] = "nccl";
    if (strncmp(datatype, prefix, sizeof prefix - 1) == 0)
        datatype += sizeof prefix - 1;
    const size_t found = MP_PLACE(i, MP_LENGTH(types), !strcmp(datatype, types[i].ending));
    return found < MP_LENGTH(types) ? types[found].bytes : 0;
}

static int add_name(struct device_spool *spool, const struct mp_spool_record *record,
                    struct mp_error *error) {
    uint32_t id = record->as.name.id;
    if (id >= NAMES_LIMIT)
        return MP_OK;
    MP_TRY(MP_REACH(spool->names, spool->name_count, id, NAMES_LIMIT, error));
    spool->names[id].size = size_of(record->as.name.text);
    return strings_id(spool->strings, record->as.name.text, &spool->names[id].string_id, error);
}

static void take_text(struct device_spool *spool, const struct mp_spool_record *record) {
    static const char suffix[] = ".status";
    size_t length = strlen(record->as.text.name);
    if (length >= sizeof suffix &&
        strcmp(record->as.text.name + length - (sizeof suffix - 1), suffix) == 0)
        snprintf(spool->status, sizeof spool->status, "%s", record->as.text.value);
}

static int collect_record(struct device_spool *spool, const struct mp_spool_record *record,
                          struct mp_error *error) {
    switch (record->type) {
    case MP_SPOOL_STREAM: /* a collector's only one has its name */
        snprintf(spool->collector, sizeof spool->collector, "%s", record->as.stream.name);
        return MP_OK;
    case MP_SPOOL_TEXT:
        take_text(spool, record);
        return MP_OK;
    case MP_SPOOL_NAME:
        return add_name(spool, record, error);
    case MP_SPOOL_ACTIVITY:
        return record->as.activity.kind == MP_ACTIVITY_CALL ||
                       record->as.activity.kind == MP_ACTIVITY_LINK
                   ? add_call(spool, &record->as.activity, error)
                   : MP_OK;
    case MP_SPOOL_COLLECTIVE:
        return device_want(spool, device_time(spool, record->as.collective.start_ns), error);
    case MP_SPOOL_TIMER:
        return MP_APPEND(spool->timers, spool->timer_count, error, record->as.timer);
    case MP_SPOOL_END:
        spool->complete = true;
        snprintf(spool->note, sizeof spool->note, "%s", record->as.end.reason);
        return MP_OK;
    default:
        return MP_OK;
    }
}

/* ---- order, and what follows from it ---- */

MP_COMPARE(by_correlation, struct device_call, MP_ORDER(a->correlation, b->correlation))

/* Puts the entries of each correlation id together: driver calls within runtime calls share one. */
static void unite_calls(struct device_spool *spool) {
    int kept = 0;
    for (int i = 0; i < spool->call_count; i++) {
        struct device_call *call = &spool->calls[i];
        struct device_call *last = kept > 0 ? &spool->calls[kept - 1] : NULL;
        if (!last || last->correlation != call->correlation) {
            spool->calls[kept++] = *call;
            continue;
        }
        if (call->start_ns < last->start_ns)
            last->start_ns = call->start_ns;
        if (call->has_external) {
            last->has_external = true;
            last->external_ns = call->external_ns;
        }
    }
    spool->call_count = kept;
}

int64_t device_span_of(struct device_spool *spool, uint32_t correlation) {
    const struct device_call key = {.correlation = correlation};
    enum { NEAR = 4 };
    for (int i = spool->latest_call; i < spool->latest_call + NEAR && i < spool->call_count; i++) {
        if (spool->calls[i].correlation == correlation) {
            spool->latest_call = i;
            return spool->calls[i].span_id;
        }
    }
    const struct device_call *call = spool->call_count > 0
                                         ? bsearch(&key, spool->calls, (size_t)spool->call_count,
                                                   sizeof *spool->calls, by_correlation)
                                         : NULL;
    if (!call)
        return 0;
    spool->latest_call = (int)(call - spool->calls);
    return call->span_id;
}

/* ---- all of it ---- */

int device_collect(struct device_spool *spool, struct mp_error *error) {
    MP_AUTO(spool) struct mp_spool_reader *reader = NULL;
    struct mp_spool_record record;
    MP_TRY(mp_spool_open(spool->path, &reader, error));
    while (mp_spool_next(reader, &record, NULL) == 1)
        MP_TRY(collect_record(spool, &record, error));
    spool->unread_bytes = (int64_t)mp_spool_unread(reader);
    MP_SORT(spool->calls, spool->call_count, by_correlation);
    unite_calls(spool);
    clock_timers_sort(spool->timers, spool->timer_count);
    return MP_OK;
}

void device_free(struct device_spool *spool) {
    free(spool->wanted);
    free(spool->spans);
    free(spool->calls);
    free(spool->timers);
    free(spool->names);
}
