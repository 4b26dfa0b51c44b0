#include "harness/suite/paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/suite/files.h"
#include "reference/base/arena.h"
#include "reference/base/option.h"

int mp_path_join(char path[MP_PATH_SIZE], const char *folder, const char *name,
                 struct mp_error *error) {
    if (snprintf(path, MP_PATH_SIZE, "%s/%s", folder, name) < MP_PATH_SIZE)
        return MP_OK;
    return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", folder);
}

/* The folder that the running executable lies in, and that one's parent: what is installed is in
 * bin, lib and share/moeperf of one folder, and a build's folder looks the same. */
static int executable_folder(char folder[MP_PATH_SIZE], char parent[MP_PATH_SIZE],
                             struct mp_error *error) {
    ssize_t length = readlink("/proc/self/exe", folder, MP_PATH_SIZE - 1);
    if (length < 1)
        return mp_fail(error, MP_EIO, "/proc/self/exe: %s", strerror(errno));
    folder[length] = '\0';
    *strrchr(folder, '/') = '\0';
    strcpy(parent, folder);
    char *slash = strrchr(parent, '/');
    if (slash)
        *slash = '\0';
    return MP_OK;
}

int mp_path_program(const char *name, char path[MP_PATH_SIZE], struct mp_error *error) {
    char folder[MP_PATH_SIZE], parent[MP_PATH_SIZE];
    MP_TRY(executable_folder(folder, parent, error));
    MP_TRY(mp_path_join(path, folder, name, error));
    if (access(path, X_OK))
        return mp_fail(error, MP_ENOTFOUND,
                       "%s: %s; %s is built together with moeperf and lies beside it", path,
                       strerror(errno), name);
    return MP_OK;
}

int mp_path_library(const char *name, char path[MP_PATH_SIZE], struct mp_error *error) {
    char folder[MP_PATH_SIZE], parent[MP_PATH_SIZE], below[64];
    MP_TRY(executable_folder(folder, parent, error));
    MP_TRY(mp_path_join(path, folder, name, error));
    if (!access(path, R_OK))
        return MP_OK;
    snprintf(below, sizeof below, "lib/%s", name);
    MP_TRY(mp_path_join(path, parent, below, error));
    if (!access(path, R_OK))
        return MP_OK;
    return mp_fail(error, MP_ENOTFOUND,
                   "%s is neither in %.1000s nor in %.1000s/lib: build and install all of moeperf "
                   "(cmake --build build/release --target programs)",
                   name, folder, parent);
}

static bool is_folder(const char *path) {
    struct stat status;
    return !stat(path, &status) && S_ISDIR(status.st_mode);
}

/* What messages call a kind of ready-made file, the folder of them, how their names end, and the
 * command that names them. */
static const struct ready_made {
    const char *noun, *plural, *ending, *listed_by;
} ready_made[] = {[MP_SUITES] = {"suite", "suites", ".yaml", "list suites"},
                  [MP_CLUSTERS] = {"cluster", "clusters", ".yaml", "list clusters"},
                  [MP_RULES] = {"rules file", "rules", ".yaml", "list rules"},
                  [MP_MANUAL] = {"page", "manual", ".md", "help"}};

int mp_path_folder(enum mp_ready_made kind, char path[MP_PATH_SIZE], struct mp_error *error) {
    const char *plural = ready_made[kind].plural;
    char folder[MP_PATH_SIZE], parent[MP_PATH_SIZE], below[64];
    snprintf(below, sizeof below, "share/moeperf/%s", plural);
    MP_TRY(executable_folder(folder, parent, error));
    MP_TRY(mp_path_join(path, parent, below, error));
    if (is_folder(path))
        return MP_OK;
    return mp_fail(error, MP_ENOTFOUND,
                   "no folder of ready-made %s: %.1000s is not there; install all of moeperf",
                   plural, path);
}

int mp_path_names(enum mp_ready_made kind, char ***names, struct mp_error *error) {
    char folder[MP_PATH_SIZE];
    struct mp_files files;
    MP_TRY(mp_path_folder(kind, folder, error));
    int code = mp_files_list(folder, ready_made[kind].ending, &files, error);
    for (int i = 0; i < files.count; i++) {
        const char *name = mp_file_name(files.path[i]);
        const size_t length = strlen(name) - strlen(ready_made[kind].ending);
        memmove(files.path[i], name, length);
        files.path[i][length] = '\0';
    }
    if (!code && !MP_ROOM(files.path, files.count))
        code = mp_no_memory(error);
    if (code) {
        mp_files_free(&files);
        return code;
    }
    files.path[files.count] = NULL;
    *names = files.path;
    return MP_OK;
}

static int fail_unknown(const struct ready_made *kind, const char *name, char *names[],
                        struct mp_error *error) {
    const struct mp_meant meant = mp_meant(name, (const char *const *)names);
    if (!*meant.text && !access(name, F_OK))
        return mp_fail(error, MP_ENOTFOUND,
                       "%.200s: this file's name does not end in %s as a %s's does, and no "
                       "ready-made one is called so (moeperf %s names them)",
                       name, kind->ending, kind->noun, kind->listed_by);
    return mp_fail(error, MP_ENOTFOUND,
                   "no ready-made %s is called \"%.200s\"%s (moeperf %s names them; a file's name "
                   "ends in %s)",
                   kind->noun, name, meant.text, kind->listed_by, kind->ending);
}

int mp_path_file(enum mp_ready_made number, const char *name, char path[MP_PATH_SIZE],
                 struct mp_error *error) {
    const struct ready_made *kind = &ready_made[number];
    size_t length = strlen(name), tail = strlen(kind->ending);
    if (strchr(name, '/') || (length > tail && !strcmp(name + length - tail, kind->ending))) {
        if (length >= MP_PATH_SIZE)
            return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", name);
        memcpy(path, name, length + 1);
        if (access(path, F_OK) && errno == ENOENT)
            return mp_fail(error, MP_ENOTFOUND,
                           "%.500s: No such file or directory (moeperf %s names the "
                           "ready-made ones)",
                           name, kind->listed_by);
        return MP_OK;
    }
    char folder[MP_PATH_SIZE], **names;
    MP_TRY(mp_path_folder(number, folder, error));
    if (snprintf(path, MP_PATH_SIZE, "%s/%s%s", folder, name, kind->ending) >= MP_PATH_SIZE)
        return mp_fail(error, MP_ELIMIT, "%.200s...: the name is too long", name);
    if (!access(path, F_OK))
        return MP_OK;
    MP_TRY(mp_path_names(number, &names, error));
    int code = fail_unknown(kind, name, names, error);
    mp_path_names_destroy(names);
    return code;
}

void mp_path_names_destroy(char **names) {
    for (char **name = names; names && *name; name++)
        free(*name);
    free(names);
}

int mp_path_default_text(char path[MP_PATH_SIZE], struct mp_error *error) {
    const char *chosen = getenv("MOEPERF_TEXT");
    if (chosen && *chosen) {
        snprintf(path, MP_PATH_SIZE, "%s", chosen);
        if (!access(path, R_OK))
            return MP_OK;
        return mp_fail(error, MP_ENOTFOUND, "MOEPERF_TEXT=%.500s: %s", chosen, strerror(errno));
    }
    char folder[MP_PATH_SIZE], parent[MP_PATH_SIZE];
    snprintf(path, MP_PATH_SIZE, "%s", "out/text/corpus");
    if (is_folder(path))
        return MP_OK;
    MP_TRY(executable_folder(folder, parent, error));
    MP_TRY(mp_path_join(path, parent, "share/moeperf/text", error));
    if (is_folder(path))
        return MP_OK;
    return mp_fail(error, MP_ENOTFOUND,
                   "the default text is not there (out/text/corpus): %.1000s/moeperf-text prepares "
                   "it, --text PATH takes another",
                   folder);
}

int mp_path_create_folder(const char *path, struct mp_error *error) {
    char part[MP_PATH_SIZE];
    size_t length = strlen(path);
    if (length >= sizeof part)
        return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", path);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) && errno != EEXIST)
            return mp_fail_errno(error, "can't create the folder %s", part);
    }
    return is_folder(path) ? MP_OK : mp_fail(error, MP_EIO, "%s: is not a folder", path);
}

int mp_path_create_parent(const char *path, struct mp_error *error) {
    char folder[MP_PATH_SIZE];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path || slash - path >= MP_PATH_SIZE)
        return MP_OK;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return mp_path_create_folder(folder, error);
}
