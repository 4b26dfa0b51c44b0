/* Files as bytes, folders that go with all that is in them, and how processes end. */
#pragma once

#include <ftw.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/support.h"

/* All bytes of a file that is there, and a zero byte behind them.  Free it. */
static inline char *read_bytes(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s is not there", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    bytes[*size] = '\0';
    fclose(file);
    return bytes;
}

static inline void write_bytes(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Files may grow to so many bytes, as on a disk that is full then; RLIM_INFINITY: without end. */
static inline void limit_files(rlim_t bytes) {
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static inline int remove_entry(const char *path, const struct stat *status, int kind,
                               struct FTW *place) {
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

static inline int remove_tree(const char *path) {
    return nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* How a process that the test started ends: 0, the signal that killed it, or what waitpid says. */
static inline int end_of_process(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}
