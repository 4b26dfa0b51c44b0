/* Threads record into lines of complete records (profiler/record/line.h).  They come and go, their
 * number has no limit, and the process may fork or end at any moment. */
#include "profiler/nvtx/threads.h"

#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "profiler/nvtx/names.h"
#include "profiler/record/format.h"
#include "reference/base/median.h"

enum {
    BUFFER_BYTES = 1 << 18,
    SCHEMA_BYTES = 1 << 14, /* longest SCHEMA record */
    MEASURED_LOOPS = 63,
    MEASURED_PAIRS = 32,
    LAST_WAIT_MS = 2000, /* for the lock, at exit */
    LAST_CALLS_MS = 100, /* that calls may take which are under way at exit */
    NOTE_BYTES = 640
};
static const uint32_t closed_place = UINT32_MAX; /* as the domain of a range that was popped */

static _Thread_local struct mp_nvtx_thread *own __attribute__((tls_model("initial-exec")));

static struct {
    pthread_mutex_t lock; /* guards file, threads, names_written; only held in sections */
    struct spool_file file;
    bool open, finished;
    struct mp_nvtx_thread *threads;
    int thread_count, search_at; /* when so many are in use, ended threads are looked for */
    uint32_t names_written;
    int flush_ms;
    bool writing; /* the writing thread runs */
    sem_t wake;
    _Atomic bool asked;             /* somebody has woken it */
    struct mp_nvtx_thread *forker;  /* in a child: the thread that forked, until it records */
    struct mp_nvtx_section forking; /* of the thread that forks, from before to after */
    int64_t forked_ns;              /* when this process began as a copy; 0: it did not */
    struct mp_nvtx_thread
        *measured;           /* by the writing thread, before it begins; then it is a spare */
    _Atomic int64_t pair_ns; /* cost of a range, measured; 0: not */
    _Atomic int64_t interrupting, unknown_handles; /* calls */
} session = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Nothing is recorded (any more). */
static _Atomic bool off;

/* ---- into the spool; the lock is held ---- */

static bool append(uint8_t *records, size_t size) {
    return size == 0 || !spool_file_append(&session.file, records, size, NULL);
}

/* What could not be written is tried again with what comes next: ranges refer to it. */
static void write_names(uint32_t count) {
    _Alignas(SPOOL_UNIT) static uint8_t batch[1 << 15];
    size_t filled = 0;
    uint32_t next = session.names_written;
    while (next < count) {
        const struct mp_nvtx_name *name = mp_nvtx_names_get(next + 1);
        const struct mp_spool_record record = {
            .type = MP_SPOOL_NAME,
            .as.name = {name->id, name->kind, name->domain, name->number, name->text}};
        if (filled + spool_encoded_size(&record) > sizeof batch) {
            if (!append(batch, filled))
                return;
            session.names_written = next;
            filled = 0;
        }
        filled += spool_encode(&record, batch + filled);
        next++;
    }
    if (append(batch, filled))
        session.names_written = next;
}

/* Names first: those that the records up to `head` refer to are there by now. */
static void drain(struct mp_nvtx_thread *thread) {
    uint8_t *records;
    size_t size = spool_line_waiting(&thread->line, &records);
    if (size == 0)
        return;
    write_names(mp_nvtx_names_count());
    append(records, size);
    spool_line_drained(&thread->line, size);
}

static void drain_all(void) {
    for (struct mp_nvtx_thread *thread = session.threads; thread; thread = thread->next)
        drain(thread);
}

static __attribute__((noinline, cold)) void drain_full(struct mp_nvtx_thread *thread) {
    struct mp_nvtx_section section;
    section_enter(&section);
    pthread_mutex_lock(&session.lock);
    drain(thread);
    pthread_mutex_unlock(&session.lock);
    section_leave(&section);
}

/* ---- the owner's side ---- */

static __attribute__((noinline, cold)) void ask_for_writing(void) {
    if (session.writing && !atomic_exchange(&session.asked, true))
        sem_post(&session.wake);
}

static inline uint8_t *reserve(struct mp_nvtx_thread *thread, size_t size) {
    size_t used = spool_line_used(&thread->line);
    if (__builtin_expect(used + size > BUFFER_BYTES, 0))
        drain_full(thread);
    else if (__builtin_expect(used + size > BUFFER_BYTES / 2 && used <= BUFFER_BYTES / 2, 0))
        ask_for_writing();
    return spool_line_place(&thread->line);
}

static inline size_t put_range(uint8_t *record, const struct mp_nvtx_open *open) {
    size_t payload = sizeof open->range + open->payload_bytes;
    struct spool_head *head = (void *)record;
    size_t size = sizeof *head + payload; /* both are whole units */
    *head = (struct spool_head){.type = MP_SPOOL_RANGE, .size = (uint16_t)(size / SPOOL_UNIT)};
    memcpy(record + sizeof *head, &open->range, sizeof open->range);
    if (open->payload_bytes)
        memcpy(record + sizeof *head + sizeof open->range, open->payload, open->payload_bytes);
    return size;
}

void mp_nvtx_record(struct mp_nvtx_thread *thread, const struct mp_nvtx_open *open) {
    size_t size = sizeof(struct spool_head) + sizeof open->range + open->payload_bytes;
    spool_line_publish(&thread->line, put_range(reserve(thread, size), open));
    count_one(thread, MP_NVTX_COUNT_RANGES);
}

struct mp_nvtx_open *mp_nvtx_push(struct mp_nvtx_thread *thread) {
    int depth = atomic_load_explicit(&thread->depth, memory_order_relaxed);
    if (__builtin_expect(depth == MP_NVTX_DEPTH, 0)) {
        thread->beyond++;
        count_one(thread, MP_NVTX_COUNT_LOST);
        return NULL;
    }
    struct mp_nvtx_open *open = &thread->stack[depth];
    open->payload_bytes = 0;
    return open;
}

int mp_nvtx_pushed(struct mp_nvtx_thread *thread) {
    int depth = atomic_load_explicit(&thread->depth, memory_order_relaxed);
    struct mp_range *range = &thread->stack[depth].range;
    int around = depth - 1;
    while (around >= 0 && thread->stack[around].range.domain != range->domain)
        around--;
    range->level = around < 0 ? 0 : (uint16_t)(thread->stack[around].range.level + 1);
    atomic_store_explicit(&thread->depth, depth + 1, memory_order_release);
    return range->level;
}

struct mp_nvtx_open *mp_nvtx_innermost(struct mp_nvtx_thread *thread, uint32_t domain) {
    int at = atomic_load_explicit(&thread->depth, memory_order_relaxed) - 1;
    if (__builtin_expect(thread->beyond > 0, 0)) {
        thread->beyond--;
        return NULL;
    }
    while (at >= 0 && thread->stack[at].range.domain != domain)
        at--;
    if (at >= 0)
        return &thread->stack[at];
    count_one(thread, MP_NVTX_COUNT_UNMATCHED);
    return NULL;
}

int mp_nvtx_pop(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open, int64_t end_ns) {
    int level = open->range.level;
    const int before = atomic_load_explicit(&thread->depth, memory_order_relaxed);
    int depth = before;
    open->range.end_ns = end_ns;
    mp_nvtx_record(thread, open);
    open->range.domain = closed_place;
    while (depth > 0 && thread->stack[depth - 1].range.domain == closed_place)
        depth--;
    atomic_store_explicit(&thread->depth, depth, memory_order_release);
    mp_nvtx_tell_pop(before - depth);
    return level;
}

void mp_nvtx_add_payload(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open, uint64_t schema,
                         const void *bytes, size_t size) {
    const size_t room = sizeof open->payload - open->payload_bytes;
    const size_t padded = (size + SPOOL_UNIT - 1) / SPOOL_UNIT * SPOOL_UNIT;
    const struct spool_blob_head head = {.schema = schema, .size = (uint32_t)size};
    if (!bytes || size > sizeof open->payload || sizeof head + padded > room) {
        count_one(thread, MP_NVTX_COUNT_PAYLOADS);
        return;
    }
    uint8_t *at = open->payload + open->payload_bytes;
    memcpy(at, &head, sizeof head);
    memset(at + sizeof head + size, 0, padded - size);
    memcpy(at + sizeof head, bytes, size);
    open->payload_bytes += (uint32_t)(sizeof head + padded);
    open->range.payloads++;
}

void mp_nvtx_record_schema(struct mp_nvtx_thread *thread, const struct mp_spool_record *schema) {
    const size_t size = spool_encoded_size(schema);
    if (size > SCHEMA_BYTES) {
        count_one(thread, MP_NVTX_COUNT_PAYLOADS);
        return;
    }
    spool_encode(schema, reserve(thread, size));
    spool_line_publish(&thread->line, size);
}

uint32_t mp_nvtx_name_of(struct mp_nvtx_thread *thread, const char *text) {
    size_t slot = ((uintptr_t)text >> 3 ^ (uintptr_t)text) % MP_NVTX_CACHE;
    struct mp_nvtx_name *name = thread->cache[slot];
    if (name && !strcmp(name->text, text))
        return name->id;
    name = mp_nvtx_name_find(MP_NAME_STRING, 0, 0, text);
    if (!name)
        return 0;
    thread->cache[slot] = name;
    return name->id;
}

/* ---- the writing thread ---- */

/* A signal handler may have interrupted malloc: of the kernel's memory, for good. */
static struct mp_nvtx_thread *create_thread(void) {
    size_t own_bytes = (sizeof(struct mp_nvtx_thread) + 63) / 64 * 64;
    char *mapped = mmap(NULL, own_bytes + BUFFER_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return NULL;
    struct mp_nvtx_thread *thread = (void *)mapped;
    thread->line.buffer = (uint8_t *)mapped + own_bytes;
    memset(thread->line.buffer, 0, BUFFER_BYTES); /* touches every page before the first range */
    return thread;
}

/* What a range costs here: the median of loops over empty ones, into a buffer nobody reads. */
static void measure(struct mp_nvtx_thread *thread) {
    int64_t loop_ns[MEASURED_LOOPS];
    for (int loop = 0; loop < MEASURED_LOOPS; loop++) {
        int64_t start_ns = mp_clock_ns();
        for (int i = 0; i < MEASURED_PAIRS; i++) {
            struct mp_nvtx_open *open = mp_nvtx_push(thread);
            open->range = (struct mp_range){.start_ns = mp_clock_ns()};
            mp_nvtx_pushed(thread);
            mp_nvtx_pop(thread, mp_nvtx_innermost(thread, 0), mp_clock_ns());
        }
        loop_ns[loop] = mp_clock_ns() - start_ns;
        spool_line_clear(&thread->line); /* the buffer starts over */
    }
    mp_sort_integers(loop_ns, MEASURED_LOOPS);
    atomic_store(&session.pair_ns, loop_ns[MEASURED_LOOPS / 2] / MEASURED_PAIRS);
}

/* As if nobody had used it; also after a fork in the middle of measuring. */
static void clear_thread(struct mp_nvtx_thread *thread) {
    spool_line_clear(&thread->line);
    atomic_store(&thread->depth, 0);
    thread->beyond = 0;
    memset(thread->count, 0, sizeof thread->count);
}

/* The lock is held. */
static void add_thread(struct mp_nvtx_thread *thread) {
    thread->next = session.threads;
    session.threads = thread;
    session.thread_count++;
}

/* The thread that was measured is the first that the program's threads can have. */
static void measure_spare(void) {
    if (!session.measured)
        return;
    measure(session.measured);
    clear_thread(session.measured);
    pthread_mutex_lock(&session.lock);
    add_thread(session.measured);
    session.measured = NULL;
    pthread_mutex_unlock(&session.lock);
}

/* Allocates nothing: a fork may come at any moment, and the child must not find a lock held.  Runs
 * at the program's own priority: a nicer thread gets no core on a busy machine, so that a killed
 * program would lose seconds of ranges, and its threads would wait for the lock that it holds. */
static void *write_often(void *unused) {
    measure_spare();
    for (;;) {
        struct timespec until = mp_clock_after(session.flush_ms);
        sem_clockwait(&session.wake, CLOCK_MONOTONIC, &until);
        atomic_store(&session.asked, false);
        pthread_mutex_lock(&session.lock);
        bool finished = session.finished;
        if (session.open && !finished)
            drain_all();
        pthread_mutex_unlock(&session.lock);
        if (finished)
            return unused;
    }
}

/* The lock is held; the thread begins with the section's signals blocked, as the program's are not
 * for it. */
static void start_writing(void) {
    pthread_t writer;
    if (session.writing || session.flush_ms <= 0)
        return;
    if (session.measured)
        clear_thread(session.measured);
    else
        session.measured = create_thread();
    session.writing = !pthread_create(&writer, NULL, write_often, NULL);
    if (session.writing)
        pthread_detach(writer);
}

/* ---- beginning and end of threads and processes ---- */

/* The lock is held.  false: there is no spool, and won't be. */
static bool make_ready(void) {
    if (session.open || session.finished)
        return session.open;
    if (!session_open_spool(&session.file)) {
        session.finished = true;
        atomic_store(&off, true);
        return false;
    }
    session.open = true;
    start_writing();
    return true;
}

void mp_nvtx_prepare(void) {
    struct mp_nvtx_section section;
    section_enter(&section);
    pthread_mutex_lock(&session.lock);
    if (!session.finished)
        start_writing();
    pthread_mutex_unlock(&session.lock);
    section_leave(&section);
}

static bool is_ours(const struct mp_nvtx_open *open) {
    return open->range.domain != closed_place && open->range.start_ns >= session.forked_ns;
}

static void write_open(struct mp_nvtx_thread *thread, struct mp_nvtx_open *open) {
    _Alignas(SPOOL_UNIT) uint8_t record[sizeof *open + sizeof(struct spool_head)];
    open->range.end_ns = 0;
    if (open->payload_bytes > sizeof open->payload)
        return; /* its thread is at this moment busy with it */
    append(record, put_range(record, open));
    count_one(thread, MP_NVTX_COUNT_OPEN);
}

/* The lock is held, and the thread records no more. */
static void write_stack(struct mp_nvtx_thread *thread) {
    int depth = atomic_load_explicit(&thread->depth, memory_order_acquire);
    for (int i = 0; i < depth; i++)
        if (is_ours(&thread->stack[i]))
            write_open(thread, &thread->stack[i]);
}

/* The lock is held, and the thread has ended. */
static void end_thread(struct mp_nvtx_thread *thread) {
    drain(thread);
    write_names(mp_nvtx_names_count());
    write_stack(thread);
    atomic_store(&thread->depth, 0);
    thread->beyond = 0;
    thread->used = false;
}

/* The lock is held.  A state whose thread has ended; NULL: none has been found.  A key's destructor
 * would tell at once, but setting a key may allocate.  The system is asked only when twice as many
 * are in use as were left the last time. */
static struct mp_nvtx_thread *find_ended(uint32_t id) {
    struct mp_nvtx_thread *found = NULL;
    int left = 0;
    for (struct mp_nvtx_thread *thread = session.threads; thread; thread = thread->next) {
        const bool had_this_id = thread->used && thread->id == id; /* it is another thread's now */
        if (had_this_id || (thread->used && session.thread_count >= session.search_at &&
                            tgkill(getpid(), (pid_t)thread->id, 0) && errno == ESRCH))
            end_thread(thread);
        if (!thread->used)
            found = thread;
        left += thread->used;
    }
    if (session.thread_count >= session.search_at)
        session.search_at = 2 * left + 8;
    return found;
}

/* The lock is held. */
static struct mp_nvtx_thread *find_thread(uint32_t id) {
    struct mp_nvtx_thread *thread = find_ended(id);
    if (thread)
        return thread;
    thread = create_thread();
    if (thread)
        add_thread(thread);
    return thread;
}

static __attribute__((noinline, cold)) struct mp_nvtx_thread *attach(void) {
    struct mp_nvtx_section section;
    struct mp_nvtx_thread *thread = NULL;
    const uint32_t id = (uint32_t)gettid();
    section_enter(&section);
    pthread_mutex_lock(&session.lock);
    if (make_ready())
        thread = session.forker ? session.forker : find_thread(id);
    session.forker = NULL;
    if (thread) {
        thread->id = id;
        thread->used = true;
        atomic_store(&thread->busy, true);
    }
    own = thread;
    pthread_mutex_unlock(&session.lock);
    section_leave(&section);
    return thread;
}

static __attribute__((noinline, cold)) struct mp_nvtx_thread *send_away(void) {
    if (!atomic_load(&off))
        atomic_fetch_add(&session.interrupting, 1);
    return NULL;
}

struct mp_nvtx_thread *mp_nvtx_enter(void) {
    struct mp_nvtx_thread *thread = own;
    if (__builtin_expect(!thread, 0))
        return atomic_load_explicit(&off, memory_order_relaxed) ? NULL : attach();
    if (__builtin_expect(atomic_load_explicit(&thread->busy, memory_order_relaxed), 0))
        return send_away();
    atomic_store_explicit(&thread->busy, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* finish sees to it that other threads see it */
    if (__builtin_expect(atomic_load_explicit(&off, memory_order_relaxed), 0)) {
        mp_nvtx_leave(thread);
        return NULL;
    }
    return thread;
}

void mp_nvtx_unknown_handle(void) {
    atomic_fetch_add_explicit(&session.unknown_handles, 1, memory_order_relaxed);
}

/* ---- the end ---- */

static void write_number(const char *name, double value) {
    _Alignas(SPOOL_UNIT) uint8_t bytes[128];
    const struct mp_spool_record record = {
        .type = MP_SPOOL_NUMBER,
        .as.number = {.iteration = -1, .value = value, .layer = -1, .name = name}};
    append(bytes, spool_encode(&record, bytes));
}

static void write_counts(void) {
    static const char *const names[MP_NVTX_COUNTS] = {
        [MP_NVTX_COUNT_RANGES] = "nvtx-ranges",
        [MP_NVTX_COUNT_UNMATCHED] = "nvtx-unmatched-ends",
        [MP_NVTX_COUNT_OPEN] = "nvtx-left-open",
        [MP_NVTX_COUNT_LOST] = "nvtx-lost",
        [MP_NVTX_COUNT_PAYLOADS] = "nvtx-payloads-left-out"};
    int64_t sum[MP_NVTX_COUNTS] = {0};
    for (struct mp_nvtx_thread *thread = session.threads; thread; thread = thread->next)
        for (int i = 0; i < MP_NVTX_COUNTS; i++)
            sum[i] += atomic_load_explicit(&thread->count[i], memory_order_relaxed);
    for (int i = 0; i < MP_NVTX_COUNTS; i++)
        write_number(names[i], (double)sum[i]);
    write_number("nvtx-nameless", (double)mp_nvtx_names_refused());
    write_number("nvtx-interrupting", (double)atomic_load(&session.interrupting));
    write_number("nvtx-unknown-handles", (double)atomic_load(&session.unknown_handles));
    write_number("nvtx-unwritten", (double)session.file.lost);
    int64_t pair_ns = atomic_load(&session.pair_ns);
    if (pair_ns > 0)
        write_number("nvtx-pair-ns", (double)pair_ns);
}

static size_t add_note(char note[NOTE_BYTES], size_t length, int64_t count, const char *format) {
    if (count <= 0 || length + 2 >= NOTE_BYTES)
        return length;
    if (length > 0)
        length += (size_t)snprintf(note + length, NOTE_BYTES - length, "; ");
    int added = snprintf(note + length, NOTE_BYTES - length, format, (long long)count);
    return length + (size_t)added < NOTE_BYTES ? length + (size_t)added : NOTE_BYTES - 1;
}

/* What a reader of the run has to know besides the counts: why something is missing. */
static void write_end(void) {
    _Alignas(SPOOL_UNIT) uint8_t bytes[NOTE_BYTES + 64];
    char note[NOTE_BYTES];
    const struct mp_spool_record record = {.type = MP_SPOOL_END, .as.end = {MP_OK, 0, note}};
    size_t length = spool_file_note(&session.file, note, sizeof note);
    length = add_note(note, length, mp_nvtx_names_refused(),
                      "%lld names were too many and were left out: a process keeps 100000 of "
                      "together 16 MiB");
    length = add_note(note, length, atomic_load(&session.interrupting),
                      "%lld calls came from signal handlers that had interrupted the collector, "
                      "and were not recorded");
    add_note(note, length, atomic_load(&session.unknown_handles),
             "%lld calls had a handle of a domain or string that nobody had given out, "
             "and were recorded without it");
    append(bytes, spool_encode(&record, bytes));
}

/* The lock is held.  A call that never ended keeps its thread's ranges: its own, if a signal
 * handler that it was interrupted by ends the process. */
static void write_open_ranges(void) {
    struct mp_nvtx_open open;
    for (struct mp_nvtx_thread *thread = session.threads; thread; thread = thread->next) {
        if (!atomic_load_explicit(&thread->busy, memory_order_acquire))
            write_stack(thread);
        else
            for (int i = atomic_load(&thread->depth); i > 0; i--)
                count_one(thread, MP_NVTX_COUNT_LOST);
    }
    for (int i = 0; i < MP_NVTX_STARTED; i++)
        if (started_take(i, &open) && is_ours(&open))
            write_open(session.threads, &open);
}

static const struct timespec millisecond = {.tv_nsec = 1000000};

static bool lock_in_time(void) {
    for (int ms = 0; pthread_mutex_trylock(&session.lock); ms++) {
        if (ms == LAST_WAIT_MS)
            return false;
        nanosleep(&millisecond, NULL);
    }
    return true;
}

/* Turns all further calls away and waits for those that are under way, so that what threads have
 * open stands still.  A call says that it is busy, then looks whether it is wanted; a barrier in
 * between would cost more than all else in it.  A millisecond here does as well: by then every
 * processor has made visible what it had stored.  false: the lock is not to be had. */
static bool quiesce(void) {
    bool busy = true;
    atomic_store(&off, true);
    if (!lock_in_time())
        return false;
    for (int ms = 0; session.open && !session.finished && busy && ms < LAST_CALLS_MS; ms++) {
        pthread_mutex_unlock(&session.lock);
        nanosleep(&millisecond, NULL);
        if (!lock_in_time())
            return false;
        busy = false;
        for (struct mp_nvtx_thread *thread = session.threads; thread; thread = thread->next)
            busy |= thread != own && atomic_load_explicit(&thread->busy, memory_order_acquire);
    }
    return true;
}

__attribute__((destructor)) static void finish(void) {
    struct mp_nvtx_section section;
    section_enter(&section);
    if (quiesce()) {
        if (session.open && !session.finished) {
            drain_all();
            write_names(mp_nvtx_names_count()); /* also of what nothing has referred to yet */
            write_open_ranges();
            write_counts();
            write_end();
            spool_file_close(&session.file, NULL);
            session.file.failed = true;
        }
        session.finished = true;
        pthread_mutex_unlock(&session.lock);
    }
    section_leave(&section);
}

static void before_fork(void) {
    struct mp_nvtx_section section;
    section_enter(&section);
    mp_nvtx_names_lock();
    pthread_mutex_lock(&session.lock);
    session.forking = section;
}

static void after_fork(void) {
    const struct mp_nvtx_section section = session.forking;
    pthread_mutex_unlock(&session.lock);
    mp_nvtx_names_unlock();
    section_leave(&section);
}

/* The child has the calling thread alone.  What is buffered is the parent's to write; the child's
 * first range makes a spool of its own. */
static void after_fork_in_child(void) {
    const bool ended = session.open && session.finished;
    if (session.open && !session.finished)
        spool_file_close(&session.file, NULL);
    session.open = false;
    session.finished = ended;
    session.writing = false;
    session.names_written = 0;
    session.forked_ns = mp_clock_ns();
    atomic_store(&session.asked, false);
    atomic_store(&session.interrupting, 0);
    atomic_store(&session.unknown_handles, 0);
    mp_nvtx_names_count_anew();
    sem_init(&session.wake, 0, 0);
    for (struct mp_nvtx_thread *thread = session.threads; thread; thread = thread->next) {
        spool_line_clear(&thread->line);
        memset(thread->count, 0, sizeof thread->count);
        if (thread == own)
            continue; /* what it has pushed, it may pop */
        thread->used = false;
        atomic_store(&thread->busy, false);
        atomic_store(&thread->depth, 0);
    }
    session.forker = own;
    own = NULL;
    after_fork();
}

/* Under the lock, so that whoever opens the spool sees it and all that the caller has settled: NVTX
 * lets other threads call as soon as they see a function, without a barrier. */
void threads_start(int flush_ms) {
    struct mp_nvtx_section section;
    section_enter(&section);
    pthread_mutex_lock(&session.lock);
    session.flush_ms = flush_ms < 0 ? 0 : flush_ms;
    sem_init(&session.wake, 0, 0);
    pthread_mutex_unlock(&session.lock);
    section_leave(&section);
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}
