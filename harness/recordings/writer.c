#include "harness/recordings/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/record/clocks.h"
#include "harness/record/devices.h"
#include "profiler/record/name_table.h"
#include "profiler/record/spool_writer.h"
#include "reference/base/arena.h"
#include "reference/base/digest.h"

enum {
    RANKS_LIMIT = 65536,
    FIELDS_LIMIT = 32,
    SCHEMAS_LIMIT = 64,
    FIELD_BYTES = sizeof(struct mp_schema_entry) + SPOOL_NAME_LIMIT + 1,
    TYPE_INT64 = 17, /* NVTX's number */
    SCHEMA_STATIC = 1
};

struct kept {
    struct mp_collective is;
    uint32_t function; /* in the recording's table */
    bool synchronises, is_counted;
};

struct mp_recording_process {
    struct mp_recording *recording;
    int rank, number;
    char source[256];
    struct mp_spool_record header;
    int64_t wall_minus_clock_ns;
    struct spool_writer spool, device; /* batch NULL: not open */
    bool has_device;
    struct name_table names, domains, device_names;
    uint8_t fields[SCHEMAS_LIMIT]; /* by schema - 1 */
    int schemas;
    struct kept *collective; /* [collectives], written when all are known */
    size_t collectives;
    int64_t first_ns; /* INT64_MAX: nothing yet */
    int64_t ranges, activities;
    char cut[512], note[1024];
};

struct mp_recording {
    char folder[PATH_MAX - 32], collector[41];
    struct mp_recording_process **process;
    int processes;
    struct name_table functions; /* of collectives, the same for all processes */
};

/* ---- files ---- */

static void path_of(const struct mp_recording_process *process, const char *ending,
                    char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%s/%d%s", process->recording->folder, process->number, ending);
}

/* Writes what says who the process was; its clocks are filled in at the end. */
static int open_file(struct mp_recording_process *process, const char *ending,
                     struct spool_writer *writer, struct mp_error *error) {
    char path[PATH_MAX];
    path_of(process, ending, path);
    MP_TRY(spool_writer_create(writer, path, error));
    return spool_writer_add(writer, &process->header, error);
}

static int add_text(struct spool_writer *writer, const char *name, const char *value,
                    struct mp_error *error) {
    const struct mp_spool_record record = {.type = MP_SPOOL_TEXT, .as.text = {name, value}};
    return spool_writer_add(writer, &record, error);
}

static int open_device(struct mp_recording_process *process, struct mp_error *error) {
    const struct mp_recording *recording = process->recording;
    const struct mp_spool_record stream = {.type = MP_SPOOL_STREAM,
                                           .as.stream.name = recording->collector},
                                 /* The GPU's times are on the process's clock already. */
        timer = {.type = MP_SPOOL_TIMER, .as.timer.samples = 1};
    char status[SPOOL_NAME_LIMIT + 1];
    if (process->has_device)
        return MP_OK;
    MP_TRY(open_file(process, MP_DEVICE_ENDING, &process->device, error));
    process->has_device = true;
    MP_TRY(spool_writer_add(&process->device, &stream, error));
    snprintf(status, sizeof status, "%s.status", recording->collector);
    MP_TRY(add_text(&process->device, status, "on", error));
    return spool_writer_add(&process->device, &timer, error);
}

static int patch(const char *path, const struct mp_spool_record *header, struct mp_error *error) {
    _Alignas(SPOOL_UNIT) uint8_t bytes[sizeof(struct spool_head) + sizeof header->as.header];
    spool_encode(header, bytes);
    ((struct spool_head *)(void *)bytes)->check = spool_check(bytes);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    bool written = file >= 0 && pwrite(file, bytes, sizeof bytes, 0) == sizeof bytes;
    int number = errno;
    if (file >= 0)
        close(file);
    return written ? MP_OK : mp_fail(error, MP_EIO, "%s: %s", path, strerror(number));
}

/* ---- names ---- */

/* Names of ranges have even ids, domains odd ones: one file's ids are for both. */
enum { ID_STEP = 2 };

static int name_id(struct mp_recording_process *process, bool on_device, enum mp_name_kind kind,
                   const char *text, uint32_t *id, struct mp_error *error) {
    const bool is_domain = kind == MP_NAME_DOMAIN;
    struct name_table *table = on_device   ? &process->device_names
                               : is_domain ? &process->domains
                                           : &process->names;
    bool is_new = false;
    *id = 0;
    if (!text || !*text)
        return MP_OK;
    const uint32_t number = name_table_number(table, text, &is_new);
    if (!number)
        return mp_no_memory(error);
    *id = on_device ? number : number * ID_STEP + is_domain;
    const struct mp_spool_record name = {.type = MP_SPOOL_NAME,
                                         .as.name = {.id = *id, .kind = kind, .text = text}};
    return is_new ? spool_writer_add(on_device ? &process->device : &process->spool, &name, error)
                  : MP_OK;
}

int mp_recording_name(struct mp_recording_process *process, enum mp_name_kind kind,
                      const char *domain, uint32_t number, const char *name,
                      struct mp_error *error) {
    struct mp_spool_record record = {.type = MP_SPOOL_NAME,
                                     .as.name = {.kind = kind, .number = number, .text = name}};
    MP_TRY(name_id(process, false, MP_NAME_DOMAIN, domain, &record.as.name.domain, error));
    return spool_writer_add(&process->spool, &record, error);
}

/* ---- processes ---- */

int mp_recording_create(const char *folder, const char *collector, struct mp_recording **recording,
                        struct mp_error *error) {
    struct mp_recording *made;
    MP_TRY(MP_NEW(made, 1, error));
    snprintf(made->folder, sizeof made->folder, "%s", folder);
    snprintf(made->collector, sizeof made->collector, "%s", collector);
    *recording = made;
    return MP_OK;
}

void mp_recording_destroy(struct mp_recording *recording) {
    if (!recording)
        return;
    for (int i = 0; i < recording->processes; i++) {
        struct mp_recording_process *process = recording->process[i];
        char path[PATH_MAX];
        if (process->spool.batch)
            spool_writer_close(&process->spool, NULL);
        if (process->device.batch)
            spool_writer_close(&process->device, NULL);
        path_of(process, ".spool", path);
        unlink(path);
        path_of(process, MP_DEVICE_ENDING, path);
        unlink(path);
        name_table_free(&process->names);
        name_table_free(&process->domains);
        name_table_free(&process->device_names);
        free(process->collective);
        free(process);
    }
    name_table_free(&recording->functions);
    free(recording->process);
    free(recording);
}

static int check_rank(const struct mp_recording *recording, const struct mp_recorded_process *about,
                      struct mp_error *error) {
    if (about->rank < 0 || about->rank >= RANKS_LIMIT)
        return mp_fail(error, MP_EINVAL, "%s: rank %d; 0 to %d are right", about->source,
                       about->rank, RANKS_LIMIT - 1);
    for (int i = 0; i < recording->processes; i++)
        if (recording->process[i]->rank == about->rank)
            return mp_fail(error, MP_EINVAL,
                           "%s: rank %d, which %s has recorded already; one file per rank is right",
                           about->source, about->rank, recording->process[i]->source);
    return MP_OK;
}

int mp_recording_process(struct mp_recording *recording, const struct mp_recorded_process *about,
                         struct mp_recording_process **process, struct mp_error *error) {
    MP_TRY(check_rank(recording, about, error));
    MP_TRY(MP_GROW(recording->process, recording->processes, error));
    struct mp_recording_process *made;
    MP_TRY(MP_NEW(made, 1, error));
    made->recording = recording;
    made->rank = about->rank;
    made->number = recording->processes;
    made->first_ns = INT64_MAX;
    made->wall_minus_clock_ns = about->wall_minus_clock_ns;
    snprintf(made->source, sizeof made->source, "%s", about->source);
    made->header = (struct mp_spool_record){
        .type = MP_SPOOL_HEADER,
        .as.header = {.magic = SPOOL_MAGIC,
                      .version = MP_SPOOL_VERSION,
                      .rank = about->rank,
                      .ranks = about->ranks > about->rank ? about->ranks : about->rank + 1,
                      .node = about->node,
                      .pid = about->pid}};
    snprintf(made->header.as.header.host, sizeof made->header.as.header.host, "%s",
             about->host ? about->host : "");
    int code = open_file(made, ".spool", &made->spool, error);
    if (code) {
        free(made);
        return code;
    }
    recording->process[recording->processes++] = made;
    *process = made;
    return MP_OK;
}

int mp_recording_free_rank(const struct mp_recording *recording) {
    int rank = 0;
    while (MP_ANY(i, recording->processes, recording->process[i]->rank == rank))
        rank++;
    return rank;
}

void mp_recording_note(struct mp_recording_process *process, const char *sentence) {
    size_t length = strlen(process->note);
    snprintf(process->note + length, sizeof process->note - length, "%s%s", length > 0 ? "; " : "",
             sentence);
}

void mp_recording_cut(struct mp_recording_process *process, const char *sentence) {
    if (!process->cut[0])
        snprintf(process->cut, sizeof process->cut, "%s", sentence);
}

int mp_recording_text(struct mp_recording_process *process, const char *name, const char *value,
                      struct mp_error *error) {
    return add_text(&process->spool, name, value, error);
}

/* ---- ranges ---- */

int mp_recording_fields(struct mp_recording_process *process, const char *domain,
                        const char *const name[], int fields, uint64_t *schema,
                        struct mp_error *error) {
    uint8_t entries[FIELDS_LIMIT * FIELD_BYTES], *at = entries;
    size_t left = sizeof entries;
    if (fields < 1 || fields > FIELDS_LIMIT || process->schemas == SCHEMAS_LIMIT)
        return mp_fail(error, MP_ELIMIT, "%s: %d fields of a range in schema %d; at most %d in %d",
                       process->source, fields, process->schemas + 1, FIELDS_LIMIT, SCHEMAS_LIMIT);
    for (int i = 0; i < fields; i++) {
        char cut[SPOOL_NAME_LIMIT + 1];
        snprintf(cut, sizeof cut, "%s", name[i]);
        mp_schema_put_entry(&at, &left,
                            &(struct mp_schema_entry){.type = TYPE_INT64,
                                                      .offset = (uint64_t)i * sizeof(int64_t),
                                                      .name = cut});
    }
    struct mp_spool_record record = {.type = MP_SPOOL_SCHEMA,
                                     .as.schema = {.id = (uint64_t)process->schemas + 1,
                                                   .type = SCHEMA_STATIC,
                                                   .bytes = (uint64_t)fields * sizeof(int64_t),
                                                   .entries = (uint32_t)fields,
                                                   .name = "",
                                                   .entry = entries,
                                                   .entry_bytes = sizeof entries - left}};
    MP_TRY(name_id(process, false, MP_NAME_DOMAIN, domain, &record.as.schema.domain, error));
    process->fields[process->schemas++] = (uint8_t)fields;
    *schema = record.as.schema.id;
    return spool_writer_add(&process->spool, &record, error);
}

int mp_recording_range(struct mp_recording_process *process, const struct mp_recorded_range *range,
                       struct mp_error *error) {
    struct {
        struct spool_blob_head head;
        int64_t field[FIELDS_LIMIT];
    } blob = {.head = {.schema = range->schema}};
    struct mp_spool_record record = {.type = MP_SPOOL_RANGE,
                                     .as.range = {.is = {.start_ns = range->start_ns,
                                                         .end_ns = range->end_ns,
                                                         .value = range->value,
                                                         .thread = range->thread,
                                                         .end_thread = range->thread,
                                                         .kind = range->kind,
                                                         .value_type = range->value_type,
                                                         .level = range->level,
                                                         .category = range->category,
                                                         .traits = range->traits},
                                                  .payload = (const uint8_t *)&blob}};
    struct mp_range *is = &record.as.range.is;
    if (range->schema > 0 && range->schema <= (uint64_t)process->schemas) {
        blob.head.size = process->fields[range->schema - 1] * (uint32_t)sizeof(int64_t);
        memcpy(blob.field, range->field, blob.head.size);
        record.as.range.payload_bytes = sizeof blob.head + blob.head.size;
        is->payloads = 1;
    }
    MP_TRY(name_id(process, false, MP_NAME_STRING, range->name, &is->name, error));
    MP_TRY(name_id(process, false, MP_NAME_DOMAIN, range->domain, &is->domain, error));
    if (range->start_ns < process->first_ns)
        process->first_ns = range->start_ns;
    process->ranges++;
    return spool_writer_add(&process->spool, &record, error);
}

/* ---- the GPU's work, and what ranks do together ---- */

int mp_recording_activity(struct mp_recording_process *process, const struct mp_activity *activity,
                          const char *name, struct mp_error *error) {
    struct mp_spool_record record = {.type = MP_SPOOL_ACTIVITY, .as.activity = *activity};
    MP_TRY(open_device(process, error));
    MP_TRY(name_id(process, true, MP_NAME_STRING, name, &record.as.activity.name, error));
    process->activities++;
    return spool_writer_add(&process->device, &record, error);
}

int mp_recording_collective(struct mp_recording_process *process,
                            const struct mp_recorded_collective *collective,
                            struct mp_error *error) {
    struct mp_recording *recording = process->recording;
    bool is_new;
    MP_TRY(MP_GROW(process->collective, process->collectives, error));
    struct kept *kept = &process->collective[process->collectives];
    *kept = (struct kept){.is = collective->is};
    kept->function = name_table_number(&recording->functions, collective->function, &is_new);
    kept->synchronises = !kept->is.is_pair && meeting_synchronises(collective->function);
    if (!kept->function)
        return mp_no_memory(error);
    MP_TRY(open_device(process, error));
    MP_TRY(name_id(process, true, MP_NAME_STRING, collective->function, &kept->is.function, error));
    MP_TRY(name_id(process, true, MP_NAME_STRING, collective->datatype, &kept->is.datatype, error));
    process->collectives++;
    return MP_OK;
}

uint64_t mp_recording_communicator(const char *name, const char *members) {
    uint64_t hash = mp_digest(mp_digest(MP_DIGEST, name), members ? members : "");
    return hash ? hash : 1;
}

/* ---- the end ---- */

static int compare_kept(const void *left, const void *right) {
    const struct kept *a = left, *b = right;
    return MP_ORDER(a->is.communicator, b->is.communicator) ?: MP_ORDER(a->function, b->function)
           ?: MP_ORDER(a->is.start_ns, b->is.start_ns);
}

/* Puts a process's collectives in order, and counts those without a number. */
static void count_collectives(struct mp_recording_process *process) {
    uint64_t sequence = 0;
    MP_SORT(process->collective, process->collectives, compare_kept);
    for (size_t i = 0; i < process->collectives; i++) {
        struct kept *kept = &process->collective[i], *before = i > 0 ? kept - 1 : NULL;
        if (!before || before->is.communicator != kept->is.communicator ||
            before->function != kept->function)
            sequence = 0;
        sequence++;
        kept->is_counted = kept->is.sequence == 0 && !kept->is.is_pair;
        if (kept->is_counted)
            kept->is.sequence = sequence;
    }
}

MP_COMPARE(compare_communicators, struct kept, MP_ORDER(a->is.communicator, b->is.communicator))

static int32_t members_of(const struct mp_recording *recording, const struct kept *kept) {
    int32_t members = 0;
    for (int p = 0; p < recording->processes; p++) {
        const struct mp_recording_process *process = recording->process[p];
        members +=
            process->collectives > 0 && bsearch(kept, process->collective, process->collectives,
                                                sizeof *kept, compare_communicators) != NULL;
    }
    return members;
}

/* Communicators of which nobody has said how many ranks they have: those that were in them, or,
 * where files are missing and so may be members, all. */
static void count_members(struct mp_recording *recording) {
    for (int p = 0; p < recording->processes; p++) {
        struct mp_recording_process *own = recording->process[p];
        const struct kept *counted = NULL;
        for (size_t i = 0; i < own->collectives; i++) {
            struct kept *kept = &own->collective[i];
            if (kept->is.ranks > 0)
                continue;
            if (own->header.as.header.ranks > recording->processes)
                kept->is.ranks = own->header.as.header.ranks;
            else if (counted && compare_communicators(counted, kept) == 0)
                kept->is.ranks = counted->is.ranks;
            else
                kept->is.ranks = members_of(recording, kept);
            counted = kept;
        }
    }
}

static int compare_ranks(const void *left, const void *right) {
    const struct mp_recording_process *const *a = left, *const *b = right;
    return MP_ORDER((*a)->rank, (*b)->rank);
}

static void fill_meetings(const struct mp_recording_process *process, struct mp_arena *memory,
                          struct meeting_clock *clock) {
    struct meeting *meeting;
    MP_TAKE(memory, meeting, process->collectives + 1);
    for (size_t i = 0; meeting && i < process->collectives; i++) {
        const struct kept *kept = &process->collective[i];
        if (kept->synchronises && kept->is.timer_end > 0 && !(kept->is_counted && process->cut[0]))
            meeting[clock->meetings++] = (struct meeting){.communicator = kept->is.communicator,
                                                          .sequence = kept->is.sequence,
                                                          .function = kept->function,
                                                          .start_ns = (int64_t)kept->is.timer_start,
                                                          .end_ns = (int64_t)kept->is.timer_end};
    }
    meetings_order(meeting, clock->meetings);
    clock->meeting = meeting;
}

static int align(const struct mp_recording *recording, struct mp_arena *memory,
                 struct meeting_clock clock[], struct mp_error *error) {
    for (int p = 0; p < recording->processes; p++) {
        const char *host = recording->process[p]->header.as.header.host;
        clock[p].on_first_host =
            *host && !strcmp(host, recording->process[0]->header.as.header.host);
        fill_meetings(recording->process[p], memory, &clock[p]);
    }
    return !memory->lacking && meeting_clocks_align(clock, recording->processes)
               ? MP_OK
               : mp_no_memory(error);
}

/* Numbers that were counted and can't be right say nothing: some operations were not recorded. */
static void forget_counts(struct mp_recording_process *process) {
    for (size_t i = 0; i < process->collectives; i++)
        if (process->collective[i].is_counted)
            process->collective[i].is.sequence = 0;
}

/* When it began: on the first process's wall clock where its own clock was put beside that one's.
 */
static void fill_clocks(struct mp_recording_process *process, const struct meeting_clock *clock,
                        const struct mp_recording_process *first) {
    int64_t *wall_ns = &process->header.as.header.realtime_ns,
            *clock_ns = &process->header.as.header.monotonic_ns;
    *clock_ns = process->first_ns == INT64_MAX ? 0 : process->first_ns;
    const struct clock_fit fit = clock_fit_samples(clock->sample, clock->samples);
    const int64_t there_ns = clock->samples > 0 ? clock_fit_apply(&fit, *clock_ns) : *clock_ns;
    if (__builtin_add_overflow(there_ns,
                               clock->samples > 0 ? first->wall_minus_clock_ns
                                                  : process->wall_minus_clock_ns,
                               wall_ns))
        *wall_ns = there_ns;
}

static int finish_process(struct mp_recording_process *process, const struct meeting_clock *clock,
                          struct mp_error *error) {
    char path[PATH_MAX];
    const char *reason = process->cut[0] ? process->cut : process->note;
    const struct mp_spool_record end = {.type = MP_SPOOL_END,
                                        .as.end = {.status =
                                                       process->cut[0] ? MP_EINTERRUPTED : MP_OK,
                                                   .reason = reason}},
                                 device_end = {.type = MP_SPOOL_END, .as.end.reason = ""};
    for (size_t i = 0; i < process->collectives; i++) {
        const struct mp_spool_record collective = {.type = MP_SPOOL_COLLECTIVE,
                                                   .as.collective = process->collective[i].is};
        MP_TRY(spool_writer_add(&process->device, &collective, error));
    }
    MP_TRY(clock_samples_write(clock->sample, clock->samples, &process->spool, error));
    MP_TRY(spool_writer_add(&process->spool, &end, error));
    MP_TRY(process->has_device ? spool_writer_add(&process->device, &device_end, error) : MP_OK);
    MP_TRY(spool_writer_close(&process->spool, error));
    path_of(process, ".spool", path);
    MP_TRY(patch(path, &process->header, error));
    if (!process->has_device)
        return MP_OK;
    MP_TRY(spool_writer_close(&process->device, error));
    path_of(process, MP_DEVICE_ENDING, path);
    return patch(path, &process->header, error);
}

int mp_recording_finish(struct mp_recording *recording, struct mp_recording_summary *summary,
                        struct mp_error *error) {
    struct mp_arena memory = {0};
    struct meeting_clock *clock;
    *summary = (struct mp_recording_summary){.processes = recording->processes};
    MP_TAKE(&memory, clock, recording->processes + 1);
    MP_TRY(mp_arena_check(&memory, error));
    MP_SORT(recording->process, recording->processes, compare_ranks);
    for (int p = 0; p < recording->processes; p++)
        count_collectives(recording->process[p]);
    count_members(recording);
    int code = align(recording, &memory, clock, error);
    summary->clocks = meeting_clocks_summarise(clock, recording->processes);
    for (int p = 0; p < recording->processes; p++) {
        struct mp_recording_process *process = recording->process[p];
        summary->ranges += process->ranges;
        summary->cut = process->cut[0] ? process->cut : summary->cut;
        summary->activities += process->activities;
        summary->collectives += (int64_t)process->collectives;
        fill_clocks(process, &clock[p], recording->process[0]);
        if (process->cut[0] || (clock[p].mismatched && !clock[p].aligned))
            forget_counts(process);
        if (!code)
            code = finish_process(process, &clock[p], error);
    }
    mp_arena_release(&memory);
    return code;
}
