/* Whole file: a file that has all that was written to it, or is not there.
 *
 * It is written beside its place under a name of its own, NAME.XXXXXXXXXXXXXXXX.partial, that no
 * other writer has and no link leads away from, and takes its name at the end, when the disk has
 * all of it.  Until then, and after any failure, what was there stays as it was.  Of several
 * writers of one file the last to end wins.  The umask says who may read it.
 *
 * A link at the path is followed: the file behind it is replaced, and the link stays.  What is
 * there and no regular file (a pipe, /dev/null, a terminal) can't be replaced and is written to
 * directly; so are /dev/stdout and /dev/fd/N, which go on where the program's own output is.  A
 * database of SQLite is not replaced: somebody has mistaken --db for an output. */
#pragma once

#include <stdio.h>

#include "reference/base/error.h"

struct mp_whole_file {
    FILE *stream;  /* to write to; NULL: it is not open */
    char *path;    /* as it was given, owned */
    char *target;  /* the path behind links, owned */
    char *partial; /* its name until the end, owned; NULL: it is written directly */
};

/* Errors: MP_EINVAL (a folder is there, or a database), MP_EIO, MP_ENOSPACE, MP_ENOMEM; then
 * nothing is to be closed, and closing does no harm. */
int mp_whole_file_open(struct mp_whole_file *file, const char *path, struct mp_error *error);

/* The same, and nothing is left: whether a file can be written where that takes long.  Devices and
 * pipes are not tried. */
int mp_whole_file_try(const char *path, struct mp_error *error);

/* Says that writing failed, by errno: MP_ENOSPACE for a full disk, a quota and a limit of sizes,
 * else MP_EIO. */
int mp_whole_file_fail(const struct mp_whole_file *file, struct mp_error *error);

/* With `code` MP_OK, and if everything could be written: on the disk, and under its name.  Else it
 * is removed.  Frees what belongs to it.  Returns `code`, or what went wrong here. */
int mp_whole_file_close(struct mp_whole_file *file, int code, struct mp_error *error);
MP_END(whole_file, struct mp_whole_file, mp_whole_file_close(it, MP_EIO, NULL)) /* unless closed */

/* Removes what is open now, for a program that a signal ends; may be called in its handler. */
void mp_whole_files_abandon(void);
