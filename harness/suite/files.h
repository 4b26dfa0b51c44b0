/* Files of a folder: spools that ranks recorded into, tables and notes beside them. */
#pragma once

#include <stdbool.h>

#include "reference/base/error.h"

struct mp_files {
    char **path; /* [count], owned */
    int count;
};

/* Lists by name what is in a folder and does not begin with a dot; with an `ending` only what is
 * longer than that and ends so.  Errors: MP_EIO (the folder can't be read),
 * MP_ELIMIT, MP_ENOMEM; mp_files_free in any case. */
int mp_files_list(const char *folder, const char *ending, struct mp_files *files,
                  struct mp_error *error);
/* Adds one.  MP_ENOMEM. */
int mp_files_add(struct mp_files *files, const char *path, struct mp_error *error);
void mp_files_free(struct mp_files *files); /* accepts a zeroed one */
MP_END(files, struct mp_files, mp_files_free(it))

/* The path without its folder. */
const char *mp_file_name(const char *path);

/* Whether any of them has a byte. */
bool mp_files_hold_anything(const struct mp_files *files);

/* Deletes the files; folders stay. */
void mp_files_remove(const struct mp_files *files);
