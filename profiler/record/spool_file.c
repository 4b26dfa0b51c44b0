#include "profiler/record/spool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profiler/record/format.h"

static int code_of_errno(int number) {
    switch (number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return MP_ENOSPACE;
    default:
        return MP_EIO;
    }
}

/* ---- whose descriptor it is ---- */

static bool is_file(const struct spool_file *file, const struct stat *status) {
    return status->st_dev == file->device && status->st_ino == file->inode;
}

static bool is_ours(const struct spool_file *file, int descriptor) {
    struct stat status;
    return descriptor >= 0 && !fstat(descriptor, &status) && is_file(file, &status);
}

/* The same file under a high number.  Between a check and the write after it another thread of the
 * program could close the number and get it again.  open(2) and its like hand out the lowest free
 * number, so that a high one comes back only once all below it are taken, or on purpose (dup2): a
 * program that closes what it does not own and opens files of its own gets low ones, and the write
 * fails.  Nothing closer will do from within a process: a mapping of the file would not need the
 * number, but a disk that fills up or a file that somebody truncates would end the program by a
 * signal, and a thread with descriptors of its own would keep copies of the program's pipes. */
static int raise_descriptor(const struct spool_file *file, int descriptor) {
    enum { HIGHEST = 1024 }; /* higher ones would make the process's table larger */
    struct rlimit limit;
    rlim_t numbers = HIGHEST;
    if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < numbers)
        numbers = limit.rlim_cur;
    int raised = fcntl(descriptor, F_DUPFD_CLOEXEC, (int)(numbers - numbers / 4));
    if (raised < 0)
        return descriptor;
    if (is_ours(file, descriptor))
        close(descriptor);
    return raised;
}

static int open_again(const char *path, int flags) {
    int descriptor;
    do {
        descriptor =
            open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0666);
    } while (descriptor < 0 && errno == EINTR);
    return descriptor;
}

/* false: neither is the descriptor ours nor can the file be opened by its path; errno says why. */
static bool have_descriptor(struct spool_file *file) {
    struct stat status;
    if (is_ours(file, file->descriptor))
        return true;
    file->descriptor = -1;
    if (lstat(file->path, &status))
        return false;
    if (!is_file(file, &status)) {
        errno = ESTALE;
        return false;
    }
    int descriptor = open_again(file->path, 0);
    if (!is_ours(file, descriptor)) { /* one that is somebody else's already is not ours to close */
        errno = descriptor < 0 ? errno : EBADF;
        return false;
    }
    file->descriptor = raise_descriptor(file, descriptor);
    file->reopened++;
    return is_ours(file, file->descriptor);
}

/* The program may change its folder.  false: the path is too long. */
static bool set_path(struct spool_file *file, const char *path) {
    char folder[PATH_MAX] = "";
    const bool is_relative = *path != '/' && getcwd(folder, sizeof folder);
    int length =
        snprintf(file->path, sizeof file->path, "%s%s%s", folder, is_relative ? "/" : "", path);
    return length < (int)sizeof file->path;
}

int spool_file_create(struct spool_file *file, const char *path, struct mp_error *error) {
    struct stat status;
    *file = (struct spool_file){.descriptor = -1};
    if (!set_path(file, path))
        return mp_fail(error, MP_EIO, "%.200s...: the spool's path is too long", path);
    int descriptor = open_again(file->path, O_CREAT | O_EXCL);
    if (descriptor < 0 && errno == EEXIST)
        return mp_fail(error, MP_EINVAL,
                       "%s: a file of this name exists, and a spool never overwrites one", path);
    if (descriptor < 0 || fstat(descriptor, &status))
        return mp_fail(error, code_of_errno(errno), "%s: cannot create the spool: %s", path,
                       strerror(errno));
    file->device = status.st_dev;
    file->inode = status.st_ino;
    file->descriptor = raise_descriptor(file, descriptor);
    return MP_OK;
}

/* ---- records ---- */

/* Writes all bytes, or as many as it can; returns how many, and the errno in `number`. */
static size_t write_bytes(int descriptor, const uint8_t *bytes, size_t size, int *number) {
    size_t written = 0;
    *number = 0;
    while (written < size) {
        ssize_t count = write(descriptor, bytes + written, size - written);
        if (count > 0) {
            written += (size_t)count;
        } else if (count == 0) {
            *number = EIO; /* not allowed for a file; ends a loop that would never end */
            break;
        } else if (errno != EINTR) {
            *number = errno;
            break;
        }
    }
    return written;
}

/* At the file size limit the kernel adds SIGXFSZ to EFBIG, which ends the process before it can
 * say why.  The signal goes to the writing thread, so that it can be held back and taken here,
 * without touching what the program does with signals. */
static size_t write_without_signal(int descriptor, const uint8_t *bytes, size_t size, int *number) {
    sigset_t size_limit, before;
    sigemptyset(&size_limit);
    sigaddset(&size_limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &size_limit, &before);
    size_t written = write_bytes(descriptor, bytes, size, number);
    if (sigismember(&before, SIGXFSZ) == 0) {
        if (*number == EFBIG) {
            const struct timespec at_once = {0, 0};
            while (sigtimedwait(&size_limit, NULL, &at_once) < 0 && errno == EINTR)
                continue;
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return written;
}

/* Bytes of the complete records among the first `available` bytes. */
static size_t whole_records(const uint8_t *records, size_t available) {
    size_t end = 0;
    while (end + sizeof(struct spool_head) <= available) {
        const struct spool_head *head = (const void *)(records + end);
        size_t size = (size_t)head->size * SPOOL_UNIT;
        if (end + size > available)
            break;
        end += size;
    }
    return end;
}

static int lose(struct spool_file *file, const uint8_t *records, size_t size,
                struct mp_error *error) {
    int number = errno;
    for (size_t at = 0; at < size; file->lost++)
        at += (size_t)((const struct spool_head *)(const void *)(records + at))->size * SPOOL_UNIT;
    return mp_fail(error, MP_EIO,
                   "%s: the program has closed the spool's descriptor, and it cannot be opened "
                   "again: %s",
                   file->path, strerror(number));
}

/* Keeps the whole ones of the records of which `written` bytes were written. */
static int fail_writing(struct spool_file *file, const uint8_t *records, size_t written,
                        size_t size, int number, struct mp_error *error) {
    size_t whole = whole_records(records, written);
    int64_t kept = atomic_load_explicit(&file->bytes, memory_order_relaxed) + (int64_t)whole;
    const bool torn = !is_ours(file, file->descriptor) || ftruncate(file->descriptor, kept) != 0;
    atomic_store_explicit(&file->bytes, kept, memory_order_relaxed);
    file->failed = true;
    return mp_fail(error, code_of_errno(number),
                   "%s: cannot append %zu bytes of records: %s; the spool ends after %lld bytes%s",
                   file->path, size - whole, strerror(number), (long long)kept,
                   torn ? " and a torn record" : "");
}

int spool_file_append(struct spool_file *file, uint8_t *records, size_t size,
                      struct mp_error *error) {
    if (file->failed)
        return MP_OK;
    for (size_t at = 0; at < size;) {
        struct spool_head *head = (void *)(records + at);
        head->check = spool_check(head);
        at += (size_t)head->size * SPOOL_UNIT;
    }
    int number = EBADF;
    size_t written = 0;
    if (!have_descriptor(file))
        return lose(file, records, size, error);
    written = write_without_signal(file->descriptor, records, size, &number);
    if (written == 0 && number == EBADF && have_descriptor(file)) /* closed since the check */
        written = write_without_signal(file->descriptor, records, size, &number);
    if (written < size)
        return fail_writing(file, records, written, size, number, error);
    int64_t before = atomic_load_explicit(&file->bytes, memory_order_relaxed);
    atomic_store_explicit(&file->bytes, before + (int64_t)size, memory_order_relaxed);
    return MP_OK;
}

size_t spool_file_note(struct spool_file *file, char *text, size_t size) {
    int length = 0;
    text[0] = '\0';
    have_descriptor(file); /* so that the last time is among those that are counted */
    if (file->lost > 0)
        length = snprintf(text, size,
                          "the program closed the descriptor of its recording, and the file could "
                          "not always be opened again: %lld records are missing",
                          (long long)file->lost);
    else if (file->reopened > 0)
        length = snprintf(text, size,
                          "the program closed the descriptor of its recording (%lld time%s); the "
                          "file was opened again, and nothing is missing",
                          (long long)file->reopened, file->reopened == 1 ? "" : "s");
    return length < (int)size ? (size_t)length : size - 1;
}

int spool_file_write_header(struct spool_file *file, int rank, int ranks, int node,
                            struct mp_error *error) {
    _Alignas(SPOOL_UNIT) uint8_t bytes[sizeof(struct spool_head) + sizeof(struct mp_spool_header)];
    struct mp_spool_record record = {.type = MP_SPOOL_HEADER,
                                     .as.header = {.magic = SPOOL_MAGIC,
                                                   .version = MP_SPOOL_VERSION,
                                                   .rank = rank,
                                                   .ranks = ranks,
                                                   .node = node,
                                                   .pid = (int32_t)getpid()}};
    struct timespec realtime;
    gethostname(record.as.header.host, sizeof record.as.header.host - 1);
    clock_gettime(CLOCK_REALTIME, &realtime);
    record.as.header.realtime_ns = (int64_t)realtime.tv_sec * 1000000000 + realtime.tv_nsec;
    record.as.header.monotonic_ns = mp_clock_ns();
    return spool_file_append(file, bytes, spool_encode(&record, bytes), error);
}

int spool_file_close(struct spool_file *file, struct mp_error *error) {
    int code = MP_OK;
    /* Not repeated on EINTR: the descriptor is gone then, and may be another thread's by now. */
    if (is_ours(file, file->descriptor) && close(file->descriptor) != 0 && errno != EINTR)
        code = mp_fail(error, code_of_errno(errno), "%s: cannot close the spool: %s", file->path,
                       strerror(errno));
    file->descriptor = -1;
    return code;
}
