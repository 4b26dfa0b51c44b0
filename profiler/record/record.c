#include "profiler/record/record.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler/record/format.h"
#include "profiler/record/line.h"
#include "profiler/record/spool_file.h"

enum { CACHE_LINE = 64, DEFAULT_BUFFER_SPANS = 16384 };

struct span_record {
    struct spool_head head;
    struct mp_span span;
};
_Static_assert(sizeof(struct span_record) == 72, "SPAN");

struct mp_record_thread {
    struct spool_line line;
    size_t capacity;
    _Atomic int64_t spans;
    struct mp_recorder *recorder;
    uint8_t stream;
};

struct mp_recorder {
    pthread_mutex_t lock; /* guards file, error and the registration of threads */
    struct spool_file file;
    struct mp_error error; /* the first failure of any thread */
    size_t buffer_bytes;
    _Atomic int threads; /* grows after its entry is filled in */
    struct mp_record_thread *thread[SPOOL_STREAMS];
};

const char *mp_phase_name(enum mp_phase phase) {
    static const char *const names[MP_PHASES] = {
        [MP_PHASE_ITERATION] = "iteration", [MP_PHASE_DATA] = "data",
        [MP_PHASE_EMBED] = "embed",         [MP_PHASE_ATTENTION] = "attention",
        [MP_PHASE_GATE] = "gate",           [MP_PHASE_PLAN] = "plan",
        [MP_PHASE_FETCH] = "fetch",         [MP_PHASE_DISPATCH] = "dispatch",
        [MP_PHASE_EXPERT] = "expert",       [MP_PHASE_COMBINE] = "combine",
        [MP_PHASE_REDUCE] = "reduce",       [MP_PHASE_ALLREDUCE] = "allreduce",
        [MP_PHASE_OPTIMIZER] = "optimizer", [MP_PHASE_MOVE] = "move",
        [MP_PHASE_HEAD] = "head",           [MP_PHASE_WAIT] = "wait",
        [MP_PHASE_VALIDATE] = "validate",   [MP_PHASE_CHECKPOINT] = "checkpoint",
        [MP_PHASE_SHARED] = "shared",       [MP_PHASE_SEND] = "send",
        [MP_PHASE_RECV] = "recv",           [MP_PHASE_COLLECT] = "collect",
        [MP_PHASE_WEIGHTS] = "weights",
    };
    return (unsigned)phase < MP_PHASES ? names[phase] : "?";
}

enum mp_phase mp_phase_find(const char *name, size_t length) {
    for (int phase = 0; phase < MP_PHASES; phase++) {
        const char *known = mp_phase_name((enum mp_phase)phase);
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return (enum mp_phase)phase;
    }
    return MP_PHASES;
}

/* ---- buffers ---- */

/* Appends what `thread` has buffered to the spool; the lock is held.  After a failed write the
 * records are given up, so that the thread can go on within its buffer. */
static void drain(struct mp_record_thread *thread) {
    struct mp_recorder *recorder = thread->recorder;
    uint8_t *records;
    size_t size = spool_line_waiting(&thread->line, &records);
    if (size == 0)
        return;
    spool_file_append(&recorder->file, records, size, &recorder->error);
    spool_line_drained(&thread->line, size);
}

void mp_record_scratch_clear(struct mp_record_thread *thread) {
    spool_line_clear(&thread->line);
}

static __attribute__((noinline, cold)) void drain_full(struct mp_record_thread *thread) {
    if (!thread->recorder) {
        mp_record_scratch_clear(thread);
        return;
    }
    pthread_mutex_lock(&thread->recorder->lock);
    drain(thread);
    pthread_mutex_unlock(&thread->recorder->lock);
}

/* Room for a record of `size` bytes, at most SPOOL_RECORD_LIMIT, to be published. */
static inline void *reserve(struct mp_record_thread *thread, size_t size) {
    if (spool_line_used(&thread->line) + size > thread->capacity)
        drain_full(thread);
    return spool_line_place(&thread->line);
}

static size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

void mp_record_add(struct mp_record_thread *thread, const struct mp_spool_record *record) {
    const size_t size = spool_encoded_size(record);
    spool_encode(record, reserve(thread, size));
    spool_line_publish(&thread->line, size);
}

/* ---- creation, registration, end ---- */

static int create_file(struct spool_file *file, const struct mp_recorder_config *config,
                       struct mp_error *error) {
    MP_TRY(spool_file_create(file, config->path, error));
    int code = spool_file_write_header(file, config->rank, config->ranks, config->node, error);
    if (code) { /* the file is ours and useless: a second attempt should not stumble over it */
        unlink(config->path);
        spool_file_close(file, NULL);
    }
    return code;
}

int mp_recorder_create(const struct mp_recorder_config *config, struct mp_recorder **recorder,
                       struct mp_error *error) {
    if (config->rank < 0 || config->rank >= config->ranks)
        return mp_fail(error, MP_EINVAL, "%s: rank %d is outside 0 .. %d", config->path,
                       config->rank, config->ranks - 1);
    if (config->buffer_spans < 0)
        return mp_fail(error, MP_EINVAL, "%s: a buffer of %d spans", config->path,
                       config->buffer_spans);

    struct mp_recorder *created;
    MP_TRY(MP_NEW(created, 1, error));
    int code = create_file(&created->file, config, error);
    if (code) {
        free(created);
        return code;
    }
    size_t spans = config->buffer_spans > 0 ? (size_t)config->buffer_spans : DEFAULT_BUFFER_SPANS;
    size_t bytes = spans * sizeof(struct span_record);
    if (bytes < SPOOL_RECORD_LIMIT)
        bytes = SPOOL_RECORD_LIMIT;
    created->buffer_bytes = round_up(bytes, CACHE_LINE);
    pthread_mutex_init(&created->lock, NULL);
    *recorder = created;
    return MP_OK;
}

void mp_record_scratch_destroy(struct mp_record_thread *thread) {
    if (thread)
        free(thread->line.buffer);
    free(thread);
}

/* For a recorder; NULL: a scratch thread. */
static struct mp_record_thread *thread_create(struct mp_recorder *recorder, size_t capacity) {
    struct mp_record_thread *thread = aligned_alloc(CACHE_LINE, sizeof *thread);
    if (!thread)
        return NULL;
    *thread = (struct mp_record_thread){.capacity = capacity, .recorder = recorder};
    thread->line.buffer = aligned_alloc(CACHE_LINE, thread->capacity);
    if (!thread->line.buffer) {
        mp_record_scratch_destroy(thread);
        return NULL;
    }
    memset(thread->line.buffer, 0, thread->capacity); /* touches every page before the first span */
    return thread;
}

int mp_record_scratch_create(struct mp_record_thread **thread, struct mp_error *error) {
    *thread = thread_create(NULL, round_up(SPOOL_RECORD_LIMIT, CACHE_LINE));
    return *thread ? MP_OK : mp_no_memory(error);
}

int mp_recorder_thread(struct mp_recorder *recorder, const char *stream,
                       struct mp_record_thread **thread, struct mp_error *error) {
    if (!*stream || strlen(stream) > SPOOL_NAME_LIMIT)
        return mp_fail(error, MP_EINVAL, "stream name \"%.60s\": 1 to %d bytes are needed", stream,
                       SPOOL_NAME_LIMIT);
    struct mp_record_thread *created = thread_create(recorder, recorder->buffer_bytes);
    if (!created)
        return mp_fail(error, MP_ENOMEM,
                       "%s: no memory for the %zu bytes that stream \"%s\" buffers",
                       recorder->file.path, recorder->buffer_bytes, stream);

    pthread_mutex_lock(&recorder->lock);
    int number = atomic_load_explicit(&recorder->threads, memory_order_relaxed);
    if (number < SPOOL_STREAMS) {
        created->stream = (uint8_t)number;
        /* In its own buffer, so that it comes before the thread's spans in the file. */
        mp_record_add(created, &(struct mp_spool_record){.type = MP_SPOOL_STREAM,
                                                         .as.stream = {number, 0, stream}});
        recorder->thread[number] = created;
        atomic_store_explicit(&recorder->threads, number + 1, memory_order_release);
    }
    pthread_mutex_unlock(&recorder->lock);

    if (number >= SPOOL_STREAMS) {
        mp_record_scratch_destroy(created);
        return mp_fail(error, MP_ELIMIT, "%s: stream \"%s\" is one more than the %d a spool holds",
                       recorder->file.path, stream, SPOOL_STREAMS);
    }
    *thread = created;
    return MP_OK;
}

/* Drains all threads; the lock is held. */
static int drain_all(struct mp_recorder *recorder, struct mp_error *error) {
    int threads = atomic_load_explicit(&recorder->threads, memory_order_relaxed);
    for (int i = 0; i < threads; i++)
        drain(recorder->thread[i]);
    if (recorder->error.code)
        return mp_fail(error, recorder->error.code, "%s", recorder->error.text);
    return MP_OK;
}

int mp_recorder_flush(struct mp_recorder *recorder, struct mp_error *error) {
    pthread_mutex_lock(&recorder->lock);
    int code = drain_all(recorder, error);
    pthread_mutex_unlock(&recorder->lock);
    return code;
}

static void write_end(struct mp_recorder *recorder, int status, const char *reason) {
    _Alignas(SPOOL_UNIT) uint8_t record[2048];
    char text[sizeof record - 64] = "", note[256];
    if (!*reason && spool_file_note(&recorder->file, note, sizeof note) > 0)
        reason = note;
    memcpy(text, reason, spool_cut(reason, sizeof text - 1));
    size_t size = spool_encode(
        &(struct mp_spool_record){.type = MP_SPOOL_END, .as.end = {status, 0, text}}, record);
    spool_file_append(&recorder->file, record, size, &recorder->error);
}

int mp_recorder_finish(struct mp_recorder **recorder, int status, const char *reason,
                       struct mp_error *error) {
    struct mp_recorder *finished = *recorder;
    if (!finished)
        return MP_OK;
    *recorder = NULL;
    drain_all(finished, NULL);
    write_end(finished, status, reason ? reason : "");
    spool_file_close(&finished->file, &finished->error);

    int code = finished->error.code;
    if (code)
        mp_fail(error, code, "%s", finished->error.text);
    for (int i = 0; i < finished->threads; i++)
        mp_record_scratch_destroy(finished->thread[i]);
    pthread_mutex_destroy(&finished->lock);
    free(finished);
    return code;
}

void mp_recorder_totals(const struct mp_recorder *recorder, int64_t *bytes, int64_t *spans) {
    int threads = atomic_load_explicit(&recorder->threads, memory_order_acquire);
    *bytes = atomic_load_explicit(&recorder->file.bytes, memory_order_relaxed);
    *spans = 0;
    for (int i = 0; i < threads; i++)
        *spans += atomic_load_explicit(&recorder->thread[i]->spans, memory_order_relaxed);
}

/* ---- records ---- */

void mp_record_span(struct mp_record_thread *thread, const struct mp_span *span) {
    if (!thread)
        return;
    int64_t end_ns = span->end_ns ? span->end_ns : mp_clock_ns();
    struct span_record *record = reserve(thread, sizeof *record);
    record->head = (struct spool_head){.type = MP_SPOOL_SPAN, .size = sizeof *record / SPOOL_UNIT};
    record->span = *span;
    record->span.end_ns = end_ns;
    record->span.stream = thread->stream & (SPOOL_STREAMS - 1);
    spool_line_publish(&thread->line, sizeof *record);
    int64_t spans = atomic_load_explicit(&thread->spans, memory_order_relaxed);
    atomic_store_explicit(&thread->spans, spans + 1, memory_order_relaxed);
}

/* A load that no record can hold is a failure of the run's recording, told at the next flush. */
static void refuse_load(struct mp_record_thread *thread, int layer, int experts) {
    struct mp_recorder *recorder = thread->recorder;
    pthread_mutex_lock(&recorder->lock);
    mp_fail(&recorder->error, MP_ELIMIT,
            "%s: the load of layer %d has %d experts, a record 0 .. %d", recorder->file.path, layer,
            experts, SPOOL_EXPERTS);
    pthread_mutex_unlock(&recorder->lock);
}

void mp_record_load(struct mp_record_thread *thread, int64_t iteration, int layer, int experts,
                    const uint32_t routes[], const uint32_t dropped[]) {
    if (!thread)
        return;
    if (experts < 0 || experts > SPOOL_EXPERTS) {
        refuse_load(thread, layer, experts);
        return;
    }
    const struct mp_spool_record record = {.type = MP_SPOOL_LOAD,
                                           .as.load = {.iteration = iteration,
                                                       .layer = layer,
                                                       .experts = experts,
                                                       .has_dropped = dropped != NULL,
                                                       .routes = routes,
                                                       .dropped = dropped}};
    mp_record_add(thread, &record);
}

void mp_record_choices(struct mp_record_thread *thread, int64_t iteration, int layer, int experts,
                       int top_k, int64_t choices, const int32_t expert[]) {
    enum { MOST = 1 << 16 }; /* of a record */
    size_t width = experts <= INT16_MAX ? sizeof(int16_t) : sizeof(int32_t);
    for (int64_t first = 0; thread && first < choices; first += MOST) {
        size_t count = (size_t)(choices - first < MOST ? choices - first : MOST);
        const struct mp_spool_record record = {.type = MP_SPOOL_CHOICES,
                                               .as.choices = {.iteration = iteration,
                                                              .first = first,
                                                              .layer = layer,
                                                              .top_k = top_k,
                                                              .count = (int32_t)count,
                                                              .width = (int32_t)width}};
        const size_t size = spool_encoded_size(&record);
        uint8_t *place = reserve(thread, size);
        spool_encode(&record, place);
        uint8_t *at = place + sizeof(struct spool_head) + SPOOL_CHOICES_FIXED;
        for (size_t i = 0; i < count; i++, at += width) /* little-endian hosts: the lower bytes */
            memcpy(at, &expert[(size_t)first + i], width);
        spool_line_publish(&thread->line, size);
    }
}

void mp_record_number(struct mp_record_thread *thread, int64_t iteration, int layer,
                      const char *name, double value) {
    if (thread)
        mp_record_add(thread, &(struct mp_spool_record){.type = MP_SPOOL_NUMBER,
                                                        .as.number = {.iteration = iteration,
                                                                      .value = value,
                                                                      .layer = layer,
                                                                      .name = name}});
}

void mp_record_text(struct mp_record_thread *thread, const char *name, const char *value) {
    if (thread)
        mp_record_add(thread, &(struct mp_spool_record){.type = MP_SPOOL_TEXT,
                                                        .as.text = {.name = name, .value = value}});
}

void mp_record_clock(struct mp_record_thread *thread, int64_t at_ns, int64_t offset_ns,
                     int64_t error_ns) {
    if (thread)
        mp_record_add(thread, &(struct mp_spool_record){.type = MP_SPOOL_CLOCK,
                                                        .as.clock = {at_ns, offset_ns, error_ns}});
}
