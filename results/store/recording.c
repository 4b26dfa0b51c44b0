#include "results/store/recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"

/* ---- whose is which ---- */

static void explain(struct recording *recording, const char *reason) {
    snprintf(recording->reason, sizeof recording->reason, "%s", reason);
}

/* Gives a usable file to its rank.  false: `unusable` says why it is none. */
static bool attribute(struct recordings *recordings, const char *path, struct mp_error *unusable) {
    MP_AUTO(spool) struct mp_spool_reader *reader = NULL;
    if (mp_spool_open(path, &reader, unusable))
        return false;
    const struct mp_spool_header header = *mp_spool_header(reader);
    if (header.ranks != recordings->ranks || header.rank < 0 || header.rank >= recordings->ranks) {
        mp_fail(unusable, MP_EFORMAT, "%s: recorded by rank %d of %d, and this run has %d ranks",
                path, header.rank, header.ranks, recordings->ranks);
        return false;
    }
    struct recording *own = &recordings->rank[header.rank];
    if (own->usable) {
        mp_fail(unusable, MP_EFORMAT, "%s: a second recording of rank %d, beside %s", path,
                header.rank, own->path);
        return false;
    }
    own->usable = true;
    own->path = path;
    own->header = header;
    return true;
}

/* Leaves the reason at a rank without a recording: first choice is the file's place. */
static void leave_reason(struct recordings *recordings, int place, const char *reason) {
    for (int i = 0; i < recordings->ranks; i++) {
        struct recording *own = &recordings->rank[((long)place + i) % recordings->ranks];
        if (!own->usable && !own->reason[0]) {
            explain(own, reason);
            return;
        }
    }
    /* Every rank has its recording: a superfluous file, named at the rank of its place. */
    struct recording *own = &recordings->rank[place % recordings->ranks];
    if (own->usable && !own->reason[0])
        explain(own, reason);
}

int recordings_init(struct recordings *recordings, struct mp_store *store, int64_t run_id,
                    int ranks, const char *const paths[], int count, struct mp_error *error) {
    *recordings = (struct recordings){.store = store, .run_id = run_id, .ranks = ranks};
    MP_TRY(MP_NEW(recordings->rank, ranks, error));
    MP_AUTO(memory) struct mp_error *unusable = NULL;
    MP_TRY(MP_NEW(unusable, (size_t)count + 1, error));
    for (int i = 0; i < count; i++)
        attribute(recordings, paths[i], &unusable[i]);
    for (int i = 0; i < count; i++)
        if (unusable[i].code)
            leave_reason(recordings, i, unusable[i].text);
    for (int r = 0; r < recordings->ranks; r++) {
        struct recording *own = &recordings->rank[r];
        if (!own->usable && !own->reason[0])
            explain(own, "no recording was given");
    }
    return MP_OK;
}

void recordings_free(struct recordings *recordings) {
    for (int r = 0; recordings->rank && r < recordings->ranks; r++)
        free(recordings->rank[r].samples);
    free(recordings->rank);
    free(recordings->json[0]);
    free(recordings->json[1]);
    *recordings = (struct recordings){0};
}

/* ---- what is in them ---- */

/* "[1,2,3]"; `text` has room for 12 bytes per count and 3 more. */
static const char *write_counts(const uint32_t counts[], int count, char *text) {
    char *at = text;
    *at++ = '[';
    for (int i = 0; i < count; i++) {
        char digits[10];
        int length = 0;
        uint32_t rest = counts[i];
        do
            digits[length++] = (char)('0' + rest % 10);
        while (rest /= 10);
        if (i > 0)
            *at++ = ',';
        while (length > 0)
            *at++ = digits[--length];
    }
    *at++ = ']';
    *at = '\0';
    return text;
}

static int collect_load(struct recordings *recordings, int rank,
                        const struct mp_spool_record *record, struct mp_error *error) {
    int experts = record->as.load.experts;
    size_t size = (size_t)experts * 12 + 3;
    for (int i = 0; i < 2 && size > recordings->json_size; i++) {
        free(recordings->json[i]);
        recordings->json[i] = malloc(size);
        if (!recordings->json[i])
            return mp_no_memory(error);
    }
    recordings->json_size = size > recordings->json_size ? size : recordings->json_size;

    const char *routes = write_counts(record->as.load.routes, experts, recordings->json[0]);
    const char *dropped = record->as.load.dropped
                              ? write_counts(record->as.load.dropped, experts, recordings->json[1])
                              : NULL;
    MP_TRY(STORE_PUT(recordings->store, "cannot store a load", error,
                     "INSERT OR REPLACE INTO load VALUES (?, ?, ?, ?, ?, ?)", V(recordings->run_id),
                     V(rank), V(record->as.load.iteration), V(record->as.load.layer), V(routes),
                     V(dropped)));
    return summary_add_load(recordings->summary, record, error);
}

static int collect_choices(struct recordings *recordings, int rank,
                           const struct mp_spool_record *record, struct mp_error *error) {
    sqlite3_stmt *insert;
    MP_TRY(store_statement(recordings->store,
                           "INSERT OR REPLACE INTO choice VALUES (?, ?, ?, ?, ?, ?, ?, ?)", &insert,
                           error));
    size_t bytes = (size_t)record->as.choices.count * (size_t)record->as.choices.width;
    const int64_t values[] = {recordings->run_id,           rank,
                              record->as.choices.iteration, record->as.choices.layer,
                              record->as.choices.first,     record->as.choices.top_k,
                              record->as.choices.width};
    store_bind_known(insert, 1, values, MP_LENGTH(values));
    sqlite3_bind_blob64(insert, 8, record->as.choices.expert, bytes, SQLITE_STATIC);
    return store_run(recordings->store, insert, "cannot store tokens' experts", error);
}

static int collect_clock(struct recordings *recordings, int rank,
                         const struct mp_spool_record *record, struct mp_error *error) {
    struct recording *own = &recordings->rank[rank];
    struct clock_sample sample = {record->as.clock.at_ns, record->as.clock.offset_ns,
                                  record->as.clock.error_ns};
    MP_TRY(MP_APPEND(own->samples, own->sample_count, error, sample));
    return STORE_PUT(recordings->store, "cannot store a clock sample", error,
                     "INSERT OR REPLACE INTO clock VALUES (?, ?, ?, ?, ?)", V(recordings->run_id),
                     V(rank), V(sample.at_ns), V(sample.offset_ns), V(sample.error_ns));
}

static int collect_span(struct recordings *recordings, struct recording *own,
                        const struct mp_span *span, struct mp_error *error) {
    if (!own->spans || span->start_ns < own->first_start_ns)
        own->first_start_ns = span->start_ns;
    if (!own->spans || span->end_ns > own->last_end_ns)
        own->last_end_ns = span->end_ns;
    own->spans++;
    own->backward_spans += span->end_ns < span->start_ns;
    return own->stream_ids[span->stream]
               ? MP_OK
               : strings_id(recordings->strings, "?", &own->stream_ids[span->stream], error);
}

static int collect_record(struct recordings *recordings, int rank,
                          const struct mp_spool_record *record, struct mp_error *error) {
    struct recording *own = &recordings->rank[rank];
    switch (record->type) {
    case MP_SPOOL_STREAM:
        own->in_flight[record->as.stream.stream] = strcmp(record->as.stream.name, "comm") == 0;
        return strings_id(recordings->strings, record->as.stream.name,
                          &own->stream_ids[record->as.stream.stream], error);
    case MP_SPOOL_SPAN:
        return collect_span(recordings, own, &record->as.span, error);
    case MP_SPOOL_LOAD:
        return collect_load(recordings, rank, record, error);
    case MP_SPOOL_CHOICES:
        return collect_choices(recordings, rank, record, error);
    case MP_SPOOL_NUMBER:
        MP_TRY(strings_number(recordings->strings, recordings->run_id, rank, record, error));
        return summary_add_number(recordings->summary, record, error);
    case MP_SPOOL_TEXT:
        return STORE_PUT(recordings->store, "cannot store a text", error,
                         "INSERT OR REPLACE INTO fact VALUES (?, ?, ?, ?)", V(recordings->run_id),
                         V(rank), V(record->as.text.name), V(record->as.text.value));
    case MP_SPOOL_CLOCK:
        return collect_clock(recordings, rank, record, error);
    case MP_SPOOL_END:
        own->ended = true;
        own->status = record->as.end.status;
        if (record->as.end.reason[0])
            explain(own, record->as.end.reason);
        return MP_OK;
    case MP_SPOOL_RANGE:
        if (!own->ranges++ || record->as.range.is.start_ns < own->first_range_ns)
            own->first_range_ns = record->as.range.is.start_ns;
        return MP_OK;
    case MP_SPOOL_HEADER: /* read with the file's beginning */
    case MP_SPOOL_NAME:   /* ranges.c reads these */
    case MP_SPOOL_SCHEMA:
    case MP_SPOOL_ACTIVITY: /* device.c reads these */
    case MP_SPOOL_COLLECTIVE:
    case MP_SPOOL_TIMER:
        break;
    }
    return MP_OK;
}

/* An error of the disk ends a recording like a kill does: what was read before counts. */
static int collect_rank(struct recordings *recordings, int rank, struct mp_error *error) {
    struct recording *own = &recordings->rank[rank];
    MP_AUTO(spool) struct mp_spool_reader *reader = NULL;
    struct mp_spool_record record;
    struct mp_error cut = {0};
    int got = mp_spool_open(own->path, &reader, &cut);
    while (reader && (got = mp_spool_next(reader, &record, &cut)) == 1)
        MP_TRY(collect_record(recordings, rank, &record, error));
    if (reader) {
        own->unread_bytes = (int64_t)mp_spool_unread(reader);
        own->digest = mp_spool_digest(reader);
    }
    if (got < 0)
        explain(own, cut.text);
    else if (!own->ended && own->unread_bytes > 0)
        snprintf(own->reason, sizeof own->reason,
                 "its recording stops without an end, as after a kill or _exit: what was not "
                 "written by then is missing; %lld bytes of a last record were left out",
                 (long long)own->unread_bytes);
    else if (!own->ended)
        explain(own, "its recording stops without an end, as after a kill or _exit: what was not "
                     "written by then is missing");
    if (own->backward_spans > 0 && !own->reason[0])
        snprintf(own->reason, sizeof own->reason,
                 "%lld of its spans end before they start, as when a clock jumps back: they are "
                 "there and count as no time",
                 (long long)own->backward_spans);
    return MP_OK;
}

int recordings_collect(struct recordings *recordings, struct mp_error *error) {
    for (int r = 0; r < recordings->ranks; r++)
        if (recordings->rank[r].usable)
            MP_TRY(collect_rank(recordings, r, error));
    return MP_OK;
}

/* ---- clocks ---- */

static int64_t monotonic_minus_wall(const struct recording *recording) {
    int64_t difference;
    return __builtin_sub_overflow(recording->header.monotonic_ns, recording->header.realtime_ns,
                                  &difference)
               ? 0
               : difference;
}

/* Where no range has become a span, the ranges themselves say when the run began. */
static int64_t first_range(const struct recordings *recordings) {
    bool has_ranges = false;
    int64_t first_ns = 0;
    for (int r = 0; r < recordings->ranks; r++) {
        const struct recording *own = &recordings->rank[r];
        int64_t start_ns = clock_fit_apply(&own->fit, own->first_range_ns);
        if (own->usable && own->ranges && (!has_ranges || start_ns < first_ns)) {
            first_ns = start_ns;
            has_ranges = true;
        }
    }
    return first_ns;
}

/* Whether two ranks can't have been in one run: one began, by the wall clocks, long after the other
 * had recorded its last span.  The tolerance is for clocks that were never set. */
static bool lie_apart(const struct recording *earlier, const struct recording *later) {
    const double tolerance_ns = 60e9;
    if (!earlier->spans)
        return false; /* and how long it went on is not known */
    double recorded_ns = (double)earlier->last_end_ns - (double)earlier->header.monotonic_ns;
    double end_ns = (double)earlier->header.realtime_ns + (recorded_ns > 0 ? recorded_ns : 0);
    return (double)later->header.realtime_ns > end_ns + tolerance_ns;
}

/* Explains a recording that is of another time than the reference, and so of another run. */
static bool is_of_another_time(struct recording *own, const struct recording *reference) {
    if (!lie_apart(reference, own) && !lie_apart(own, reference))
        return false;
    double seconds =
        ((double)own->header.realtime_ns - (double)reference->header.realtime_ns) / 1e9;
    if (!own->reason[0])
        snprintf(
            own->reason, sizeof own->reason,
            "its recording began %.0f s %s than that of rank %d and does not overlap it: it is "
            "of another run, or a wall clock is wrong",
            seconds < 0 ? -seconds : seconds, seconds < 0 ? "earlier" : "later",
            reference->header.rank);
    return true;
}

int64_t recordings_align(struct recordings *recordings, bool *comparable) {
    const struct recording *reference = NULL;
    int64_t origin_ns = 0;
    bool has_spans = false;
    *comparable = true;
    for (int r = 0; r < recordings->ranks; r++) {
        struct recording *own = &recordings->rank[r];
        if (!own->usable)
            continue;
        reference = reference ? reference : own;
        own->fit = clock_fit_samples(own->samples, own->sample_count);
        if (own->sample_count > 0 && r > 0) {
            own->clock = "samples";
        } else if (own == reference) {
            own->clock = "reference";
        } else if (strcmp(own->header.host, reference->header.host) == 0) {
            own->clock = "same host";
        } else {
            own->clock = "wall clock";
            __builtin_sub_overflow(monotonic_minus_wall(own), monotonic_minus_wall(reference),
                                   &own->fit.base_ns);
            *comparable = false;
        }
        if (is_of_another_time(own, reference))
            *comparable = false;
        int64_t start_ns = clock_fit_apply(&own->fit, own->first_start_ns);
        if (own->spans && (!has_spans || start_ns < origin_ns))
            origin_ns = start_ns;
        has_spans = has_spans || own->spans;
    }
    return has_spans ? origin_ns : first_range(recordings);
}

/* ---- rows ---- */

static const char *status_of(const struct recording *own) {
    if (!own->usable)
        return "missing";
    if (!own->ended)
        return "cut";
    return own->status == MP_OK             ? "complete"
           : own->status == MP_EINTERRUPTED ? "interrupted"
                                            : "failed";
}

/* The largest error of its clock. */
static int64_t clock_error(const struct recording *own) {
    int64_t error_ns = 0;
    for (int i = 0; i < own->sample_count; i++)
        error_ns = own->samples[i].error_ns > error_ns ? own->samples[i].error_ns : error_ns;
    return error_ns;
}

int recordings_write(struct recordings *recordings, struct mp_error *error) {
    for (int r = 0; r < recordings->ranks; r++) {
        const struct recording *own = &recordings->rank[r];
        const bool usable = own->usable, spans = usable && own->first_span;
        MP_TRY(STORE_PUT(recordings->store, "cannot store a rank", error,
                         "INSERT INTO rank VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                         V(recordings->run_id), V(r), V(status_of(own)),
                         V(own->reason[0] ? own->reason : NULL), store_if(usable, own->header.node),
                         V(usable ? own->header.host : NULL), store_if(usable, own->header.pid),
                         store_if(spans, own->first_span), store_if(spans, own->last_span),
                         V(own->unread_bytes), V(usable ? own->clock : NULL),
                         store_if(usable && own->sample_count > 0, clock_error(own))));
    }
    return MP_OK;
}
