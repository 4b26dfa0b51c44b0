/* Spools: see spools.h. */
#include "harness/suite/spools.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reference/base/arena.h"

void mp_spools_destroy(struct mp_spools *spools) {
    for (int i = 0; i < spools->count; i++)
        free(spools->path[i]);
    free(spools->path);
    *spools = (struct mp_spools){NULL, 0};
}

int mp_spools_list(const char *folder, struct mp_spools *spools, struct mp_error *error) {
    DIR *stream = opendir(folder);
    int code = MP_OK;
    *spools = (struct mp_spools){NULL, 0};
    for (struct dirent *entry; stream && !code && (entry = readdir(stream));) {
        if (entry->d_name[0] == '.')
            continue;
        if (!MP_ROOM(spools->path, spools->count) ||
            asprintf(&spools->path[spools->count], "%s/%s", folder, entry->d_name) < 0)
            code = mp_fail(error, MP_ENOMEM, "no memory for the names of %s", folder);
        else
            spools->count++;
    }
    if (stream)
        closedir(stream);
    return code;
}

bool mp_spools_hold_anything(const struct mp_spools *spools) {
    struct stat status;
    for (int i = 0; i < spools->count; i++)
        if (!stat(spools->path[i], &status) && status.st_size > 0)
            return true;
    return false;
}

void mp_spools_remove(const struct mp_spools *spools, const char *folder) {
    for (int i = 0; i < spools->count; i++)
        unlink(spools->path[i]);
    rmdir(folder);
}
