#include "reference/base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "reference/base/random.h"

enum { LINKS_MOST = 40, NAMES_TRIED = 100, NAME_KEPT = 200, REMEMBERED = 32 };

/* ---- those that are open, for the handler of a signal ---- */

static char *_Atomic remembered[REMEMBERED];

/* More than there is room for stay where they are when a signal comes. */
static void change_remembered(char *from, char *to) {
    for (int i = 0; i < REMEMBERED; i++) {
        char *expected = from;
        if (atomic_compare_exchange_strong(&remembered[i], &expected, to))
            return;
    }
}

void mp_whole_files_abandon(void) {
    int number = errno;
    for (int i = 0; i < REMEMBERED; i++) {
        const char *name = atomic_load(&remembered[i]);
        if (name)
            unlink(name);
    }
    errno = number;
}

/* ---- where it goes ---- */

/* The folder of a path: everything up to its last slash, or ".". */
static const char *folder_of(const char *path, char folder[PATH_MAX]) {
    snprintf(folder, PATH_MAX, "%s", path);
    return dirname(folder);
}

/* Puts the path that a link leads to in its place.  0: it is no link; -1: errno. */
static int follow(char path[PATH_MAX]) {
    char link[PATH_MAX], folder[PATH_MAX], next[PATH_MAX];
    ssize_t length = readlink(path, link, sizeof link - 1);
    if (length < 0)
        return 0;
    link[length] = '\0';
    int used = *link == '/' ? snprintf(next, sizeof next, "%s", link)
                            : snprintf(next, sizeof next, "%s/%s", folder_of(path, folder), link);
    if (used >= (int)sizeof next) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(path, next);
    return 1;
}

/* The same file's path if its folder is one of /proc, which a link leads to; else it stays. */
static bool is_of_proc(char path[PATH_MAX]) {
    char folder[PATH_MAX], real[PATH_MAX], whole[2 * PATH_MAX];
    const char *name = strrchr(path, '/');
    if (!name || !realpath(folder_of(path, folder), real) || strncmp(real, "/proc/", 6) != 0)
        return false;
    if (snprintf(whole, sizeof whole, "%s%s", real, name) < PATH_MAX)
        strcpy(path, whole);
    return true;
}

/* Follows the links at the end of a path.  `is_descriptor`: to an open file of a process, which is
 * no path though it looks like one.  False with errno. */
static bool resolve(const char *path, char target[PATH_MAX], bool *is_descriptor) {
    int followed = 1;
    *is_descriptor = false;
    size_t length = strlen(path);
    if (length == 0 || length >= PATH_MAX) {
        errno = length ? ENAMETOOLONG : ENOENT;
        return false;
    }
    strcpy(target, path);
    for (int links = 0; links < LINKS_MOST && followed > 0; links++) {
        *is_descriptor = is_of_proc(target);
        followed = *is_descriptor ? 0 : follow(target);
    }
    if (followed > 0)
        errno = ELOOP;
    return followed == 0;
}

/* ---- opening ---- */

int mp_whole_file_fail(const struct mp_whole_file *file, struct mp_error *error) {
    bool is_full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return mp_fail(error, is_full ? MP_ENOSPACE : MP_EIO, "can't write %s: %s", file->path,
                   strerror(errno));
}

/* A descriptor of this process is used as it is: opened again, what is a file behind it would be
 * written from its beginning, over what else the program says there. */
static int open_directly(const char *target, bool is_descriptor) {
    char own[64];
    int used = snprintf(own, sizeof own, "/proc/%ld/fd/", (long)getpid());
    return is_descriptor && !strncmp(target, own, (size_t)used)
               ? fcntl(atoi(target + used), F_DUPFD_CLOEXEC, 0)
               : open(target, O_WRONLY | O_CLOEXEC);
}

/* Creates a file that was not there.  No handler comes between that and remembering it. */
static int create(char *path) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    int number = errno;
    if (descriptor >= 0)
        change_remembered(NULL, path);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = number;
    return descriptor;
}

/* The same with a name that nobody has. */
static int open_partial(struct mp_whole_file *file) {
    char folder[PATH_MAX], name[PATH_MAX];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    snprintf(name, sizeof name, "%s", file->target);
    for (uint64_t i = 0; i < NAMES_TRIED; i++) {
        free(file->partial);
        if (asprintf(&file->partial, "%s/%.*s.%016" PRIx64 ".partial",
                     folder_of(file->target, folder), NAME_KEPT, basename(name),
                     mp_random_bits(seed, (uint64_t)getpid(), i)) < 0) {
            file->partial = NULL;
            return -1;
        }
        int descriptor = create(file->partial);
        if (descriptor >= 0)
            return descriptor;
        if (errno != EEXIST)
            break;
    }
    free(file->partial); /* somebody else's */
    file->partial = NULL;
    return -1;
}

static void release(struct mp_whole_file *file) {
    free(file->path);
    free(file->target);
    free(file->partial);
    *file = (struct mp_whole_file){.stream = NULL};
}

/* A file of SQLite begins so. */
static bool is_sqlite(const char *path) {
    static const char magic[] = "SQLite format 3";
    char head[sizeof magic] = "";
    MP_AUTO(file) FILE *file = fopen(path, "re");
    return file && fread(head, 1, sizeof head, file) == sizeof head && !strcmp(head, magic);
}

static int open_target(struct mp_whole_file *file, bool is_descriptor, struct mp_error *error) {
    struct stat status;
    bool is_there = !stat(file->target, &status);
    if (is_there && S_ISDIR(status.st_mode))
        return mp_fail(error, MP_EINVAL, "%s is there and no file", file->path);
    if (is_there && S_ISREG(status.st_mode) && is_sqlite(file->target))
        return mp_fail(error, MP_EINVAL,
                       "%s is a database, which nothing replaces: give another name", file->path);
    if (!is_there && file->target[strlen(file->target) - 1] == '/') {
        errno = EISDIR;
        return mp_whole_file_fail(file, error);
    }
    bool is_direct = is_descriptor || (is_there && !S_ISREG(status.st_mode));
    int descriptor = is_direct ? open_directly(file->target, is_descriptor) : open_partial(file);
    if (descriptor < 0)
        return mp_whole_file_fail(file, error);
    file->stream = fdopen(descriptor, "w");
    if (!file->stream)
        close(descriptor);
    return file->stream ? MP_OK : mp_whole_file_fail(file, error);
}

int mp_whole_file_open(struct mp_whole_file *file, const char *path, struct mp_error *error) {
    char target[PATH_MAX];
    bool is_descriptor;
    *file = (struct mp_whole_file){.path = strdup(path)};
    if (!file->path)
        return mp_no_memory(error);
    int code = resolve(path, target, &is_descriptor) ? MP_OK : mp_whole_file_fail(file, error);
    file->target = code ? NULL : strdup(target);
    if (!code && !file->target)
        code = mp_no_memory(error);
    if (!code)
        code = open_target(file, is_descriptor, error);
    return code ? mp_whole_file_close(file, code, error) : MP_OK;
}

int mp_whole_file_try(const char *path, struct mp_error *error) {
    struct mp_whole_file file;
    struct stat status;
    if (!stat(path, &status) && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
        return MP_OK;
    MP_TRY(mp_whole_file_open(&file, path, error));
    mp_whole_file_close(&file, MP_EIO, NULL);
    return MP_OK;
}

/* ---- the end ---- */

/* Everything that was printed, for good.  What can't be replaced need not be a disk. */
static bool is_kept(const struct mp_whole_file *file) {
    errno = 0;
    if (!fflush(file->stream) && !ferror(file->stream))
        return !file->partial || !fsync(fileno(file->stream));
    errno = errno ? errno : EIO; /* it failed before */
    return false;
}

int mp_whole_file_close(struct mp_whole_file *file, int code, struct mp_error *error) {
    if (file->stream) {
        if (!code && !is_kept(file))
            code = mp_whole_file_fail(file, error);
        if (fclose(file->stream) && !code)
            code = mp_whole_file_fail(file, error);
        if (!code && file->partial && rename(file->partial, file->target))
            code = mp_whole_file_fail(file, error);
    }
    if (file->partial) {
        if (code)
            unlink(file->partial);
        change_remembered(file->partial, NULL);
    }
    release(file);
    return code;
}
