#include "harness/record/processes.h"

#include <stdlib.h>
#include <string.h>

#include "harness/record/devices.h"
#include "harness/suite/files.h"
#include "profiler/record/check.h"
#include "reference/base/arena.h"

/* A meeting and who was there.  Kind 0: collectives; else 1 + the place of a rule. */
struct attended {
    struct meeting is;
    int kind, host;
};

/* Waits of a rule in an iteration. */
struct counter {
    int32_t iteration;
    uint32_t count;
};

struct meetings {
    struct attended *item; /* [count] */
    size_t count;
    struct counter *counter; /* [rules + 1] working memory of add_ranges */
    struct mp_arena memory;
};
MP_END(meetings, struct meetings, (free(it->item), mp_arena_release(&it->memory)))

/* ---- ranges ---- */

static int add_ranges(struct meetings *meetings, const struct record_process *process, int rules,
                      struct mp_error *error) {
    struct mp_mapping_wait wait;
    memset(meetings->counter, 0, ((size_t)rules + 1) * sizeof *meetings->counter);
    for (size_t next = 0; mp_mapping_next_wait(process->mapping, &next, &wait);) {
        struct counter *own = &meetings->counter[wait.rule];
        own->count = own->iteration == wait.iteration ? own->count + 1 : 1;
        own->iteration = wait.iteration;
        const struct attended attended = {
            .is = {.sequence = (uint64_t)((int64_t)wait.iteration + 1) << 32 | own->count,
                   .start_ns = wait.start_ns,
                   .end_ns = wait.end_ns},
            .kind = wait.rule + 1,
            .host = process->host};
        MP_TRY(MP_APPEND(meetings->item, meetings->count, error, attended));
    }
    return MP_OK;
}

/* ---- collectives ---- */

/* What one spool of a collector of GPU work has. */
struct device {
    struct mp_collective *collective; /* function: a hash of the name, 0: does not synchronise */
    uint32_t *name;                   /* [names] hashes by id */
    struct mp_timer *timer;
    int collectives, timers;
    uint32_t names;
};

static void device_free(struct device *device) {
    free(device->collective);
    free(device->name);
    free(device->timer);
}
MP_END(device, struct device, device_free(it))

static int keep_record(struct device *device, const struct mp_spool_record *record) {
    enum { NAMES_LIMIT = 1 << 20 };
    if (record->type == MP_SPOOL_NAME && record->as.name.id < NAMES_LIMIT) {
        MP_TRY(MP_REACH(device->name, device->names, record->as.name.id, NAMES_LIMIT, NULL));
        const char *text = record->as.name.text;
        if (meeting_synchronises(text))
            device->name[record->as.name.id] = spool_crc32(text, strlen(text)) | 1;
    } else if (record->type == MP_SPOOL_TIMER) {
        MP_TRY(MP_APPEND(device->timer, device->timers, NULL, record->as.timer));
    } else if (record->type == MP_SPOOL_COLLECTIVE && !record->as.collective.is_pair &&
               record->as.collective.timer_end && record->as.collective.sequence) {
        MP_TRY(MP_APPEND(device->collective, device->collectives, NULL, record->as.collective));
    }
    return MP_OK;
}

static int add_device(struct meetings *meetings, struct device *device, int host,
                      struct mp_error *error) {
    clock_timers_sort(device->timer, device->timers);
    for (int i = 0; i < device->collectives; i++) {
        const struct mp_collective *is = &device->collective[i];
        const uint32_t function = is->function < device->names ? device->name[is->function] : 0;
        int64_t offset_ns = 0;
        if (!function ||
            !clock_timer_offset(device->timer, device->timers, is->start_ns, &offset_ns))
            continue;
        const struct attended attended = {
            .is = {.communicator = is->communicator,
                   .sequence = is->sequence,
                   .function = function,
                   .start_ns = (int64_t)(is->timer_start + (uint64_t)offset_ns),
                   .end_ns = (int64_t)(is->timer_end + (uint64_t)offset_ns)},
            .host = host};
        MP_TRY(MP_APPEND(meetings->item, meetings->count, error, attended));
    }
    return MP_OK;
}

static int read_device(struct meetings *meetings, const char *path, int part,
                       const struct record_process process[], int count, struct mp_error *error) {
    MP_AUTO(spool) struct mp_spool_reader *reader = NULL;
    struct mp_spool_record record;
    MP_AUTO(device) struct device device = {0};
    if (mp_spool_open(path, &reader, NULL))
        return MP_OK; /* whoever adds its records says why not */
    const struct record_process *own =
        MP_FIND(process, i, count, record_process_is(&process[i], mp_spool_header(reader), part));
    if (!own)
        return MP_OK; /* it is of none of them */
    while (mp_spool_next(reader, &record, NULL) == 1)
        if (keep_record(&device, &record))
            return mp_no_memory(error);
    return add_device(meetings, &device, own->host, error);
}

static int add_collectives(struct meetings *meetings, const struct mp_record_run *run,
                           const struct record_process process[], int count,
                           struct mp_error *error) {
    MP_AUTO(files) struct mp_files files = {NULL, 0};
    MP_TRY(mp_files_list(run->spools, MP_DEVICE_ENDING, &files, error));
    for (int i = 0; i < files.count; i++)
        MP_TRY(read_device(meetings, files.path[i],
                           run->is_merged ? atoi(mp_file_name(files.path[i])) : 0, process, count,
                           error));
    return MP_OK;
}

/* ---- hosts ---- */

/* By kind, host and meeting; of one meeting the one who came last before the others. */
static int compare_attended(const void *left, const void *right) {
    const struct attended *a = left, *b = right;
    return MP_ORDER(a->kind, b->kind) ?: MP_ORDER(a->host, b->host)
           ?: meeting_compare(&a->is, &b->is) ?: MP_ORDER(b->is.start_ns, a->is.start_ns);
}

/* The clocks of hosts by the meetings of one kind, from `*next` on; `room` is for as many. */
static bool try_kind(const struct meetings *all, size_t *next, struct meeting room[],
                     struct meeting_clock clock[], int hosts) {
    const int kind = all->item[*next].kind;
    size_t used = 0;
    for (; *next < all->count && all->item[*next].kind == kind; (*next)++) {
        struct meeting_clock *own = &clock[all->item[*next].host];
        own->meeting = own->meetings > 0 ? own->meeting : &room[used];
        if (own->meetings > 0 &&
            !meeting_compare(&room[used - 1], &all->item[*next].is)) /* of the same host */
            continue;
        room[used++] = all->item[*next].is;
        own->meetings++;
    }
    return meeting_clocks_align(clock, hosts);
}

static int count_aligned(const struct meeting_clock clock[], int hosts) {
    int aligned = 0;
    for (int h = 0; h < hosts; h++)
        aligned += clock[h].aligned;
    return aligned;
}

static void keep_best(const struct meeting_clock tried[], struct meeting_clock best[], int hosts,
                      int kind, int *best_kind) {
    const struct meeting_summary of_tried = meeting_clocks_summarise(tried, hosts),
                                 of_best = meeting_clocks_summarise(best, hosts);
    const int one = count_aligned(tried, hosts), other = count_aligned(best, hosts);
    if (one < other || (one == other && of_tried.error_ns >= of_best.error_ns))
        return;
    memcpy(best, tried, (size_t)hosts * sizeof *best);
    *best_kind = kind;
}

/* Tries each kind; which one counts, or -1. */
static int find_clocks(struct meetings *all, const struct record_process process[], int count,
                       struct meeting_clock best[], int hosts, int *best_kind,
                       struct mp_error *error) {
    struct meeting *room;
    struct meeting_clock *tried;
    MP_TAKE(&all->memory, room, all->count + 1);
    MP_TAKE(&all->memory, tried, hosts);
    MP_TRY(mp_arena_check(&all->memory, error));
    *best_kind = -1;
    MP_SORT(all->item, all->count, compare_attended);
    for (size_t next = 0; next < all->count;) {
        const int kind = all->item[next].kind;
        memset(tried, 0, (size_t)hosts * sizeof *tried);
        for (int i = 0; i < count; i++)
            tried[process[i].host].on_first_host =
                strcmp(process[i].totals->header.host, process[0].totals->header.host) == 0;
        if (!try_kind(all, &next, room, tried, hosts))
            return mp_no_memory(error);
        keep_best(tried, best, hosts, kind, best_kind);
    }
    return MP_OK;
}

/* What the clock of its host is found to be; when it began by the first one's wall clock. */
static void take_clock(struct record_process *process, const struct meeting_clock *clock,
                       const struct mp_spool_header *first, struct meetings_found *found) {
    const struct mp_spool_header *own = &process->totals->header;
    int64_t wall_ns, apart_ns;
    process->samples = clock->samples;
    memcpy(process->sample, clock->sample, sizeof process->sample);
    if (clock->samples == 0)
        return;
    const struct clock_fit fit = clock_fit_samples(clock->sample, clock->samples);
    if (__builtin_sub_overflow(clock_fit_apply(&fit, own->monotonic_ns), first->monotonic_ns,
                               &wall_ns) ||
        __builtin_add_overflow(wall_ns, first->realtime_ns, &wall_ns) ||
        __builtin_sub_overflow(own->realtime_ns, wall_ns, &apart_ns))
        return;
    process->realtime_ns = wall_ns;
    apart_ns = llabs(apart_ns);
    found->wall_apart_ns = apart_ns > found->wall_apart_ns ? apart_ns : found->wall_apart_ns;
}

int record_meetings_align(const struct mp_record_run *run, struct record_process process[],
                          int count, int hosts, struct meetings_found *found,
                          struct mp_error *error) {
    MP_AUTO(meetings) struct meetings all = {0};
    *found = (struct meetings_found){.hosts = hosts};
    if (hosts < 2 || run->importer) /* its spools have their clocks */
        return MP_OK;
    const int rules = run->rules->count;
    struct meeting_clock *clock;
    int kind;
    MP_TAKE(&all.memory, clock, hosts);
    MP_TAKE(&all.memory, all.counter, rules + 1);
    MP_TRY(mp_arena_check(&all.memory, error));
    MP_TRY(add_collectives(&all, run, process, count, error));
    for (int i = 0; i < count; i++)
        MP_TRY(add_ranges(&all, &process[i], rules, error));
    MP_TRY(find_clocks(&all, process, count, clock, hosts, &kind, error));
    for (int i = 0; i < count; i++)
        take_clock(&process[i], &clock[process[i].host], &process[0].totals->header, found);
    found->clocks = meeting_clocks_summarise(clock, hosts);
    found->apart = hosts - (kind < 0 ? 1 : count_aligned(clock, hosts));
    if (kind > 0)
        snprintf(found->kind, sizeof found->kind, "%s", run->rules->rule[kind - 1].name);
    return MP_OK;
}
