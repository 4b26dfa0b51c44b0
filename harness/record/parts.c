#include "harness/record/parts.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/record/devices.h"
#include "harness/suite/files.h"

/* ---- folders beside a database ---- */

void mp_parts_remove_folder(const char *folder) {
    MP_AUTO(files) struct mp_files files = {NULL, 0};
    mp_files_list(folder, NULL, &files, NULL);
    mp_files_remove(&files);
    rmdir(folder);
}

/* Of "PREFIX-PID.KIND" those whose process has ended. */
static void remove_dead(const char *prefix, const char *kind) {
    char pattern[2 * MP_PATH_SIZE];
    size_t length = 0;
    glob_t found = {0};
    for (const char *at = prefix; *at; at++) { /* a name may hold anything */
        if (strchr("*?[]\\", *at))
            pattern[length++] = '\\';
        pattern[length++] = *at;
    }
    snprintf(pattern + length, sizeof pattern - length, "-*.%s", kind);
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) {
            char *end;
            long pid = strtol(found.gl_pathv[i] + strlen(prefix) + 1, &end, 10);
            if (pid > 0 && *end == '.' && !strcmp(end + 1, kind) && kill((pid_t)pid, 0) &&
                errno == ESRCH)
                mp_parts_remove_folder(found.gl_pathv[i]);
        }
    globfree(&found);
}

int mp_parts_create_folder(const char *database, const char *kind, char folder[MP_PATH_SIZE],
                           struct mp_error *error) {
    char prefix[MP_PATH_SIZE], host[64] = "";
    gethostname(host, sizeof host - 1);
    MP_TRY(mp_path_create_parent(database, error));
    if (snprintf(prefix, sizeof prefix, "%s.%s", database, host) >= MP_PATH_SIZE ||
        snprintf(folder, MP_PATH_SIZE, "%s-%d.%s", prefix, (int)getpid(), kind) >= PATH_MAX - 64)
        return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", database);
    remove_dead(prefix, kind);
    if (mkdir(folder, 0700))
        return mp_fail_errno(error, "%s: can't make it, for what is read", folder);
    return MP_OK;
}

/* ---- parts ---- */

static const char *const endings[] = {".spool", MP_DEVICE_ENDING, ".csv"};
enum {
    SPOOLS = 2,
    RECORDED = 3
}; /* of the endings: those of spools, and of all that is recorded */

bool mp_parts_has_spool(const char *folder) {
    for (int i = 0; i < SPOOLS; i++) {
        MP_AUTO(files) struct mp_files files = {NULL, 0};
        mp_files_list(folder, endings[i], &files, NULL);
        if (files.count > 0)
            return true;
    }
    return false;
}

/* The files of one part, if it is one. */
static int link_part(const char *folder, const char *into, int *parts, struct mp_error *error) {
    int count = 0;
    for (int e = 0; e < RECORDED; e++) {
        MP_AUTO(files) struct mp_files files = {NULL, 0};
        MP_TRY(mp_files_list(folder, endings[e], &files, error));
        for (int i = 0; i < files.count; i++) {
            char link[MP_PATH_SIZE], whole[PATH_MAX];
            if (snprintf(link, sizeof link, "%s/%d-%s", into, *parts,
                         mp_file_name(files.path[i])) >= MP_PATH_SIZE)
                return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", files.path[i]);
            if (!realpath(files.path[i], whole) || symlink(whole, link))
                return mp_fail_errno(error, "%s: can't be linked into %s", files.path[i], into);
        }
        count += files.count;
    }
    *parts += count > 0;
    return MP_OK;
}

static int link_folder(const char *folder, const char *into, int *parts, struct mp_error *error) {
    MP_AUTO(files) struct mp_files files = {NULL, 0};
    struct stat status;
    const int before = *parts;
    if (access(folder, F_OK))
        return mp_fail(error, MP_ENOTFOUND, "%s: %s", folder, strerror(errno));
    MP_TRY(mp_files_list(folder, NULL, &files, error));
    MP_TRY(link_part(folder, into, parts, error));
    for (int i = 0; i < files.count; i++)
        if (!stat(files.path[i], &status) && S_ISDIR(status.st_mode))
            MP_TRY(link_part(files.path[i], into, parts, error));
    return *parts > before
               ? MP_OK
               : mp_fail(error, MP_ENOTFOUND,
                         "%s: neither it nor a folder in it has a spool (*.spool, *%s), as moeperf "
                         "record leaves them",
                         folder, MP_DEVICE_ENDING);
}

int mp_parts_link(const char *const folder[], int folders, const char *into,
                  struct mp_error *error) {
    int parts = 0;
    for (int i = 0; i < folders; i++)
        MP_TRY(link_folder(folder[i], into, &parts, error));
    return MP_OK;
}
