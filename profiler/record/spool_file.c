#include "profiler/record/spool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
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

int spool_file_create(struct spool_file *file, const char *path, struct mp_error *error) {
    *file = (struct spool_file){.descriptor = -1};
    file->path = strdup(path);
    if (!file->path)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for the spool", path);
    do {
        file->descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (file->descriptor < 0 && errno == EINTR);
    if (file->descriptor >= 0)
        return MP_OK;

    int number = errno;
    free(file->path);
    file->path = NULL;
    if (number == EEXIST)
        return mp_fail(error, MP_EINVAL,
                       "%s: a file of this name exists, and a spool never overwrites one", path);
    return mp_fail(error, code_of_errno(number), "%s: cannot create the spool: %s", path,
                   strerror(number));
}

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

int spool_file_append(struct spool_file *file, uint8_t *records, size_t size,
                      struct mp_error *error) {
    if (file->failed)
        return MP_OK;
    for (size_t at = 0; at < size;) {
        struct spool_head *head = (void *)(records + at);
        head->check = spool_check(head);
        at += (size_t)head->size * SPOOL_UNIT;
    }

    int number;
    size_t written = write_without_signal(file->descriptor, records, size, &number);
    int64_t before = atomic_load_explicit(&file->bytes, memory_order_relaxed);
    if (written == size) {
        atomic_store_explicit(&file->bytes, before + (int64_t)size, memory_order_relaxed);
        return MP_OK;
    }
    size_t whole = whole_records(records, written);
    int64_t kept = before + (int64_t)whole;
    int torn = ftruncate(file->descriptor, kept);
    atomic_store_explicit(&file->bytes, kept, memory_order_relaxed);
    file->failed = true;
    return mp_fail(error, code_of_errno(number),
                   "%s: cannot append %zu bytes of records: %s; the spool ends after %lld bytes%s",
                   file->path, size - whole, strerror(number), (long long)kept,
                   torn ? " and a torn record" : "");
}

int spool_file_write_header(struct spool_file *file, int rank, int ranks, int node,
                            struct mp_error *error) {
    struct {
        struct spool_head head;
        struct spool_header_payload payload;
    } record = {.payload = {.version = MP_SPOOL_VERSION,
                            .rank = rank,
                            .ranks = ranks,
                            .node = node,
                            .pid = (int32_t)getpid()}};
    struct timespec realtime;
    memcpy(record.payload.magic, SPOOL_MAGIC, sizeof record.payload.magic);
    gethostname(record.payload.host, sizeof record.payload.host - 1);
    clock_gettime(CLOCK_REALTIME, &realtime);
    record.payload.realtime_ns = (int64_t)realtime.tv_sec * 1000000000 + realtime.tv_nsec;
    record.payload.monotonic_ns = mp_clock_ns();
    record.head.type = MP_SPOOL_HEADER;
    record.head.size = sizeof record / SPOOL_UNIT;
    return spool_file_append(file, (uint8_t *)&record, sizeof record, error);
}

int spool_file_close(struct spool_file *file, struct mp_error *error) {
    int code = MP_OK;
    /* Not repeated on EINTR: the descriptor is gone then, and may be another thread's by now. */
    if (file->descriptor >= 0 && close(file->descriptor) != 0 && errno != EINTR)
        code = mp_fail(error, code_of_errno(errno), "%s: cannot close the spool: %s", file->path,
                       strerror(errno));
    file->descriptor = -1;
    free(file->path);
    file->path = NULL;
    return code;
}
