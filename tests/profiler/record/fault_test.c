/* Kills, full disks, interrupted and short writes: what was written whole is read back whole. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/profiler/record/samples.h"

static uint64_t seed;

/* ---- write(2) with faults, in place of the C library's ---- */

static struct {
    bool shortens; /* random writes are short or interrupted */
    int64_t room;  /* bytes until `number`; -1: no end */
    int number;    /* errno when there is no room */
    uint64_t random;
    int takes_over; /* another file's descriptor, which the next write finds in the spool's place;
                       0: none */
    const char *opens; /* the next write finds the spool closed and this file opened since; NULL:
                          no such thing */
    int takes_up;      /* its number */
} faults = {.room = -1};

ssize_t write(int descriptor, const void *bytes, size_t size) {
    if (faults.takes_over > 0)
        dup2(faults.takes_over, descriptor);
    faults.takes_over = 0;
    if (faults.opens) {
        close(descriptor);
        faults.takes_up = open(faults.opens, O_WRONLY | O_APPEND);
    }
    faults.opens = NULL;
    if (faults.shortens && test_random_int(&faults.random, 0, 2) == 0) {
        errno = EINTR;
        return -1;
    }
    if (faults.shortens && size > 1)
        size = (size_t)test_random_int(&faults.random, 1, (int)size);
    if (faults.room >= 0 && (int64_t)size > faults.room)
        size = (size_t)faults.room;
    if (size == 0) {
        errno = faults.number;
        return -1;
    }
    if (faults.room >= 0)
        faults.room -= (int64_t)size;
    return syscall(SYS_write, descriptor, bytes, size);
}

TEST(short_and_interrupted_writes_lose_nothing) {
    enum { SAMPLES = 3000 };
    const char *path = folder_path("short");
    struct mp_record_thread *thread;
    faults.shortens = true;
    faults.random = seed;
    struct mp_recorder *recorder = create_recorder(path, &thread);
    for (int i = 0; i < SAMPLES; i += 100) {
        record_samples(thread, seed, 0, i, i + 100);
        assert_int_equal(mp_recorder_flush(recorder, NULL), MP_OK);
    }
    assert_int_equal(mp_recorder_finish(&recorder, MP_OK, "", NULL), MP_OK);
    faults.shortens = false;

    struct contents contents = read_contents(path, seed);
    assert_numbers(contents.count[0], SAMPLES, contents.ends, 1, contents.unread, 0);
    unlink(path);
}

/* ---- memory ---- */

static int allocations_left = -1; /* before one fails; -1: none fails */

static bool allocation_fails(void) {
    if (allocations_left < 0)
        return false;
    return allocations_left-- == 0;
}

/* In place of the C library's, like write. */
void *aligned_alloc(size_t alignment, size_t size) {
    void *memory = NULL;
    if (allocation_fails() || posix_memalign(&memory, alignment, size) != 0)
        return NULL;
    return memory;
}

TEST(a_failed_allocation_is_reported_and_undone) {
    enum { ALLOCATIONS = 2 }; /* the thread; its buffer */
    const char *path = folder_path("memory");
    for (int nth = 0; nth <= ALLOCATIONS; nth++) {
        struct mp_error error = {0};
        struct mp_recorder *recorder = NULL;
        struct mp_record_thread *thread = NULL;
        struct mp_recorder_config config = {.path = path, .ranks = 1};
        allocations_left = nth;
        int code = mp_recorder_create(&config, &recorder, &error);
        assert_int_equal(code, MP_OK);
        code = mp_recorder_thread(recorder, "0", &thread, &error);
        allocations_left = -1;
        assert_int_equal(code, nth < ALLOCATIONS ? MP_ENOMEM : MP_OK);
        assert_int_equal(!thread, nth < ALLOCATIONS);
        if (code)
            assert_contains(error.text, path);
        assert_int_equal(mp_recorder_finish(&recorder, MP_OK, "", NULL), MP_OK);
        unlink(path);
    }
}

/* ---- disks without room ---- */

/* After a failed write: every call says the same, the file is whole records, and only those. */
static void assert_failed_cleanly(struct mp_recorder *recorder, struct mp_record_thread *thread,
                                  const char *path, int code) {
    struct mp_error first = {0}, second = {0}, last = {0};
    int64_t bytes, spans;
    assert_int_equal(mp_recorder_flush(recorder, &first), code);
    assert_contains(first.text, path);
    record_samples(thread, seed, 0, 0, 5); /* recording goes on, in vain */
    assert_int_equal(mp_recorder_flush(recorder, &second), code);
    assert_string_equal(first.text, second.text);

    char size[32];
    mp_recorder_totals(recorder, &bytes, &spans);
    assert_int_equal(bytes, file_size(path));
    snprintf(size, sizeof size, "%lld bytes", (long long)bytes);
    assert_contains(first.text, size);
    assert_int_equal(mp_recorder_finish(&recorder, MP_OK, "", &last), code);
    assert_string_equal(first.text, last.text);
    assert_int_equal(bytes, file_size(path));
}

/* Records samples with `room` bytes of disk; returns how many bytes it needs when it has enough. */
static int64_t record_in(int64_t room, int number, int code) {
    enum { SAMPLES = 10 };
    const char *path = folder_path("room");
    struct mp_error error = {0};
    struct mp_record_thread *thread = NULL;
    struct mp_recorder *recorder = NULL;
    struct mp_recorder_config config = {.path = path, .ranks = 1};
    int64_t bytes = 0, spans;
    faults.room = room;
    faults.number = number;
    int created = mp_recorder_create(&config, &recorder, &error);
    if (created != MP_OK) { /* no room for the header: no file either */
        assert_int_equal(created, code);
        assert_contains(error.text, path);
        assert_int_not_equal(access(path, F_OK), 0);
        return 0;
    }
    assert_int_equal(mp_recorder_thread(recorder, "0", &thread, NULL), MP_OK);
    record_samples(thread, seed, 0, 0, SAMPLES);
    if (mp_recorder_flush(recorder, NULL) == MP_OK) {
        mp_recorder_totals(recorder, &bytes, &spans);
        faults.room = -1;
        assert_int_equal(mp_recorder_finish(&recorder, MP_OK, "", NULL), MP_OK);
    } else {
        assert_failed_cleanly(recorder, thread, path, code);
        assert_true(file_size(path) <= room);
    }
    struct contents contents = read_contents(path, seed);
    assert_numbers(contents.unread, 0, contents.ends, bytes > 0);
    unlink(path);
    return bytes;
}

TEST(a_full_disk_at_any_byte_keeps_the_records_before_it) {
    int64_t needed = record_in(1 << 20, ENOSPC, MP_ENOSPACE);
    assert_true(needed > 200);
    for (int64_t room = 0; room < needed; room++)
        assert_int_equal(record_in(room, ENOSPC, MP_ENOSPACE), 0);
    assert_int_equal(record_in(needed, ENOSPC, MP_ENOSPACE), needed);
    assert_int_equal(record_in(needed - 1, EDQUOT, MP_ENOSPACE), 0);
    assert_int_equal(record_in(needed - 1, EIO, MP_EIO), 0);
    faults.room = -1;
}

/* The kernel's own limit, which also sends a signal that ends a process by default. */
TEST(the_file_size_limit_is_an_error_and_not_a_signal) {
    const char *path = folder_path("limit");
    uint64_t random = seed;
    struct rlimit before, limit;
    struct mp_record_thread *thread;
    struct mp_recorder *recorder = create_recorder(path, &thread);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)test_random_int(&random, 1000, 50000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    record_samples(thread, seed, 0, 0, 1000);
    int code = mp_recorder_flush(recorder, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);

    assert_int_equal(code, MP_ENOSPACE);
    assert_failed_cleanly(recorder, thread, path, MP_ENOSPACE);
    assert_true(file_size(path) <= (int64_t)limit.rlim_cur);
    struct contents contents = read_contents(path, seed);
    assert_int_equal(contents.unread, 0);
    assert_true(contents.count[0] > 0);
    unlink(path);

    sigset_t pending;
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGXFSZ), 0);
}

/* Makes the test's folder a disk of 64 KiB, for this process alone. */
static bool mount_small_disk(void) {
    int spaces = CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER);
    return unshare(spaces) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", sample_folder, "tmpfs", 0, "size=64k") == 0;
}

/* In a child, where cmocka's jumps must not go: 0 as expected, 1 not, 2 no such disk to be had. */
static int fill_small_disk(void) {
    if (!mount_small_disk())
        return 2;
    struct mp_error error = {0}, second = {0};
    struct mp_recorder *recorder = NULL, *other = NULL;
    struct mp_record_thread *thread = NULL;
    struct mp_recorder_config config = {.path = folder_path("full"), .ranks = 1};
    if (mp_recorder_create(&config, &recorder, NULL) ||
        mp_recorder_thread(recorder, "0", &thread, NULL))
        return 1;
    record_samples(thread, seed, 0, 0, 2000);
    if (mp_recorder_flush(recorder, &error) != MP_ENOSPACE || !strstr(error.text, config.path))
        return 1;
    int64_t bytes, spans;
    mp_recorder_totals(recorder, &bytes, &spans);
    struct stat status;
    if (stat(config.path, &status) || status.st_size != bytes || bytes < 32768)
        return 1;
    if (mp_recorder_finish(&recorder, MP_OK, "", NULL) != MP_ENOSPACE)
        return 1;
    struct contents contents = read_contents(config.path, seed);
    if (contents.unread != 0 || contents.count[0] == 0)
        return 1;

    char rest[65536] = {0}; /* what the torn record left free */
    FILE *filler = fopen(folder_path("filler"), "wb");
    if (filler) {
        fwrite(rest, 1, sizeof rest, filler);
        fclose(filler);
    }
    config.path = folder_path("none");
    return mp_recorder_create(&config, &other, &second) == MP_ENOSPACE ? 0 : 1;
}

static int exit_status(pid_t child) {
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(a_disk_that_is_really_full_is_reported) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(fill_small_disk());
    int result = exit_status(child);
    if (result == 2)
        skip("no private tmpfs to be had here");
    assert_int_equal(result, 0);
}

/* ---- descriptors ---- */

enum { FIRST_OWN = 3, TAKEN = 900, LAST = 1100 };

/* A recording, and beside it a file of somebody else's with some content. */
struct beside {
    char spool[128], other[128];
    struct mp_record_thread *thread;
    struct mp_recorder *recorder;
    int precious;
};

static struct beside begin_beside_precious(void) {
    struct beside own;
    snprintf(own.spool, sizeof own.spool, "%s", folder_path("beside"));
    snprintf(own.other, sizeof own.other, "%s", folder_path("precious"));
    own.recorder = create_recorder(own.spool, &own.thread);
    own.precious = open(own.other, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(own.precious >= 0);
    assert_int_equal(syscall(SYS_write, own.precious, "precious", 8), 8);
    return own;
}

static void assert_precious(const struct beside *own) {
    char content[64];
    assert_int_equal(pread(own->precious, content, sizeof content, 0), 8);
    assert_memory_equal(content, "precious", 8);
    assert_int_equal(close(own->precious), 0);
    unlink(own->other);
}

/* A program that closes all and opens its own: whatever number the spool has, it is the precious
 * file's now, or closed. */
static void take_all_numbers(int precious) {
    for (int number = TAKEN + 1; number <= LAST; number++)
        close(number);
    for (int number = FIRST_OWN; number <= TAKEN; number++)
        if (number != precious)
            assert_int_equal(dup2(precious, number), number);
}

static void give_numbers_back(int precious) {
    for (int number = FIRST_OWN; number <= TAKEN; number++)
        if (number != precious)
            close(number);
}

TEST(a_number_that_is_another_files_is_not_written) {
    enum { ROUNDS = 3, SAMPLES = 200 };
    struct beside own = begin_beside_precious();
    for (int round = 0; round < ROUNDS; round++) {
        take_all_numbers(own.precious);
        record_samples(own.thread, seed, 0, round * SAMPLES, (round + 1) * SAMPLES);
        assert_int_equal(mp_recorder_flush(own.recorder, NULL), MP_OK);
        give_numbers_back(own.precious);
    }
    take_all_numbers(own.precious);
    assert_int_equal(mp_recorder_finish(&own.recorder, MP_OK, NULL, NULL), MP_OK);
    for (int number = FIRST_OWN; number <= TAKEN; number++)
        assert_true(fcntl(number, F_GETFD) >= 0); /* nor was any closed */
    give_numbers_back(own.precious);
    assert_precious(&own);
    struct contents contents = read_contents(own.spool, seed);
    assert_contains(contents.end_reason, "closed the descriptor of its recording (4 times)");
    assert_numbers(contents.count[0], ROUNDS * SAMPLES, contents.unread, 0);
    unlink(own.spool);
}

/* Another thread is faster than the write that its check has allowed, and the write fails: the cut
 * back to whole records is not the other file's. */
TEST(another_file_is_not_cut_back) {
    struct beside own = begin_beside_precious();
    record_samples(own.thread, seed, 0, 0, 10);
    faults.takes_over = own.precious;
    faults.room = 0;
    faults.number = ENOSPC;
    assert_fails(mp_recorder_flush(own.recorder, &error), MP_ENOSPACE, "");
    faults.room = -1;
    assert_int_equal(mp_recorder_finish(&own.recorder, MP_OK, NULL, NULL), MP_ENOSPACE);
    assert_precious(&own);
    unlink(own.spool);
}

/* Another thread is faster than the write that its check has allowed, as far as a program can be
 * that closes all and opens its own: nothing is missing. */
TEST(a_number_that_is_closed_meanwhile_is_opened_again) {
    struct beside own = begin_beside_precious();
    record_samples(own.thread, seed, 0, 0, 10);
    faults.opens = own.other;
    assert_int_equal(mp_recorder_flush(own.recorder, NULL), MP_OK);
    assert_int_equal(mp_recorder_finish(&own.recorder, MP_OK, NULL, NULL), MP_OK);
    assert_int_equal(close(faults.takes_up), 0);
    assert_precious(&own);
    struct contents contents = read_contents(own.spool, seed);
    assert_int_equal(contents.count[0], 10);
    unlink(own.spool);
}

/* No number is left: what comes then is missing, which is said; what comes later is not. */
TEST(a_file_that_cannot_be_opened_again_is_tried_later) {
    enum { SAMPLES = 50 };
    char missing[64];
    size_t size;
    struct rlimit before, limit;
    struct beside own = begin_beside_precious();
    assert_int_equal(mp_recorder_flush(own.recorder, NULL), MP_OK);
    take_all_numbers(own.precious);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = TAKEN + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    record_samples(own.thread, seed, 0, 0, SAMPLES);
    assert_fails(mp_recorder_flush(own.recorder, &error), MP_EIO, strerror(EMFILE));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    record_samples(own.thread, seed, 0, SAMPLES, 2 * SAMPLES);
    assert_int_equal(mp_recorder_finish(&own.recorder, MP_OK, NULL, NULL), MP_EIO);
    give_numbers_back(own.precious);
    assert_precious(&own);
    snprintf(missing, sizeof missing, "again: %d records are missing", SAMPLES);
    AUTO(text) char *bytes = read_bytes(own.spool, &size);
    assert_non_null(memmem(bytes, size, missing, strlen(missing)));
    unlink(own.spool);
}

/* ---- kills ---- */

/* Records until it is killed; tells through shared memory how many samples are flushed. */
static void record_for_ever(const char *path, _Atomic int *flushed) {
    struct mp_record_thread *thread;
    struct mp_recorder *recorder = create_recorder(path, &thread);
    uint64_t random = seed;
    for (int first = 0;;) {
        int last = first + test_random_int(&random, 1, 200);
        record_samples(thread, seed, 0, first, last);
        first = last;
        if (mp_recorder_flush(recorder, NULL) != MP_OK)
            _exit(1);
        atomic_store(flushed, first);
    }
}

TEST(a_killed_process_leaves_everything_flushed) {
    enum { KILLS = 20 };
    uint64_t random = seed;
    _Atomic int *flushed =
        mmap(NULL, sizeof *flushed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(flushed != MAP_FAILED);
    for (int kills = 0; kills < KILLS; kills++) {
        const char *path = folder_path("killed");
        atomic_store(flushed, 0);
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            record_for_ever(path, flushed);
        while (atomic_load(flushed) < 100 && waitpid(child, NULL, WNOHANG) == 0)
            usleep(200);
        usleep((useconds_t)test_random_int(&random, 0, 3000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(end_of_process(child), SIGKILL);

        struct contents contents = read_contents(path, seed);
        assert_true(contents.count[0] >= atomic_load(flushed));
        assert_int_equal(contents.ends, 0);
        unlink(path);
    }
    munmap((void *)flushed, sizeof *flushed);
}

TEST_SEED(seed);
TEST_GROUP(make_folder, remove_folder);
