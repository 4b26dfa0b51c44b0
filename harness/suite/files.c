#include "harness/suite/files.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/suite/paths.h"
#include "reference/base/arena.h"

void mp_files_free(struct mp_files *files) {
    for (int i = 0; i < files->count; i++)
        free(files->path[i]);
    free(files->path);
    *files = (struct mp_files){NULL, 0};
}

const char *mp_file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int mp_files_add(struct mp_files *files, const char *path, struct mp_error *error) {
    char *copy = MP_ROOM(files->path, files->count) ? strdup(path) : NULL;
    if (!copy)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for its name", path);
    files->path[files->count++] = copy;
    return MP_OK;
}

static bool is_listed(const char *name, const char *ending) {
    const size_t length = strlen(name), size = ending ? strlen(ending) : 0;
    return *name != '.' && (!ending || (length > size && !strcmp(name + length - size, ending)));
}

int mp_files_list(const char *folder, const char *ending, struct mp_files *files,
                  struct mp_error *error) {
    struct dirent **entry;
    int all = scandir(folder, &entry, NULL, alphasort), code = MP_OK;
    *files = (struct mp_files){NULL, 0};
    if (all < 0)
        return mp_fail(error, MP_EIO, "%s: %s", folder, strerror(errno));
    for (int i = 0; i < all; i++) {
        char path[MP_PATH_SIZE];
        bool takes = !code && is_listed(entry[i]->d_name, ending);
        if (takes && !(code = mp_path_join(path, folder, entry[i]->d_name, error)))
            code = mp_files_add(files, path, error);
        free(entry[i]);
    }
    free(entry);
    return code;
}

bool mp_files_hold_anything(const struct mp_files *files) {
    struct stat status;
    return MP_ANY(i, files->count, !stat(files->path[i], &status) && status.st_size > 0);
}

void mp_files_remove(const struct mp_files *files) {
    for (int i = 0; i < files->count; i++)
        unlink(files->path[i]);
}
