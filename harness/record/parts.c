#include "harness/record/parts.h"

#include <dirent.h>
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

/* ---- folders beside a database ---- */

void mp_parts_remove_folder(const char *folder) {
    struct dirent **entry;
    char path[MP_PATH_SIZE];
    int count = scandir(folder, &entry, NULL, NULL);
    for (int i = 0; i < count; i++) {
        if (snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name) < (int)sizeof path)
            unlink(path); /* a folder stays, "." and ".." among them */
        free(entry[i]);
    }
    if (count >= 0)
        free(entry);
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
    int code = mp_path_create_parent(database, error);
    if (code)
        return code;
    if (snprintf(prefix, sizeof prefix, "%s.%s", database, host) >= MP_PATH_SIZE ||
        snprintf(folder, MP_PATH_SIZE, "%s-%d.%s", prefix, (int)getpid(), kind) >= PATH_MAX - 64)
        return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", database);
    remove_dead(prefix, kind);
    if (mkdir(folder, 0700))
        return mp_fail(error, errno == ENOSPC ? MP_ENOSPACE : MP_EIO,
                       "%s: can't make it, for what is read: %s", folder, strerror(errno));
    return MP_OK;
}

/* ---- parts ---- */

static bool ends_with(const char *name, const char *ending) {
    const size_t length = strlen(name), size = strlen(ending);
    return length > size && strcmp(name + length - size, ending) == 0;
}

static int is_spool(const struct dirent *entry) {
    return ends_with(entry->d_name, ".spool") || ends_with(entry->d_name, MP_DEVICE_ENDING);
}

static int is_recorded(const struct dirent *entry) {
    return is_spool(entry) || ends_with(entry->d_name, ".csv");
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static void free_entries(struct dirent **entry, int count) {
    for (int i = 0; i < count; i++)
        free(entry[i]);
    if (count >= 0)
        free(entry);
}

bool mp_parts_has_spool(const char *folder) {
    struct dirent **entry;
    int count = scandir(folder, &entry, is_spool, NULL);
    free_entries(entry, count);
    return count > 0;
}

/* The files of one part, if it is one. */
static int link_part(const char *folder, const char *into, int *parts, struct mp_error *error) {
    struct dirent **entry;
    int count = scandir(folder, &entry, is_recorded, alphasort), code = MP_OK;
    for (int i = 0; i < count && !code; i++) {
        char path[MP_PATH_SIZE], link[MP_PATH_SIZE], whole[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name) >= MP_PATH_SIZE ||
            snprintf(link, sizeof link, "%s/%d-%s", into, *parts, entry[i]->d_name) >= MP_PATH_SIZE)
            code = mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", folder);
        else if (!realpath(path, whole) || symlink(whole, link))
            code = mp_fail(error, MP_EIO, "%s: can't be linked into %s: %s", path, into,
                           strerror(errno));
    }
    *parts += count > 0;
    free_entries(entry, count);
    return code;
}

static int link_folder(const char *folder, const char *into, int *parts, struct mp_error *error) {
    struct dirent **entry;
    const int before = *parts, count = scandir(folder, &entry, is_visible, alphasort);
    if (count < 0)
        return mp_fail(error, MP_ENOTFOUND, "%s: %s", folder, strerror(errno));
    int code = link_part(folder, into, parts, error);
    for (int i = 0; i < count && !code; i++) {
        char path[MP_PATH_SIZE];
        struct stat status;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name) < MP_PATH_SIZE &&
            !stat(path, &status) && S_ISDIR(status.st_mode))
            code = link_part(path, into, parts, error);
    }
    free_entries(entry, count);
    if (!code && *parts == before)
        code = mp_fail(error, MP_ENOTFOUND,
                       "%s: neither it nor a folder in it has a spool (*.spool, *%s), as moeperf "
                       "record leaves them",
                       folder, MP_DEVICE_ENDING);
    return code;
}

int mp_parts_link(const char *const folder[], int folders, const char *into,
                  struct mp_error *error) {
    int parts = 0, code = MP_OK;
    for (int i = 0; i < folders && !code; i++)
        code = link_folder(folder[i], into, &parts, error);
    return code;
}
