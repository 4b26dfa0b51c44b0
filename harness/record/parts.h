/* Parts: a recording of which every host, or every process, has left a folder of its own, put
 * together by links; and folders beside a database for what is made on the way into it. */
#pragma once

#include <stdbool.h>

#include "harness/suite/paths.h"

/* Creates "DATABASE.HOST-PID.KIND".  Those that programs of this host left there which were killed
 * are removed.  Errors: MP_EIO, MP_ENOSPACE, MP_ELIMIT. */
int mp_parts_create_folder(const char *database, const char *kind, char folder[MP_PATH_SIZE],
                           struct mp_error *error);

/* Removes a folder and the files in it. */
void mp_parts_remove_folder(const char *folder);

/* Whether there is a spool in the folder itself. */
bool mp_parts_has_spool(const char *folder);

/* Links the spools and tables of each folder and of the folders in it into the folder `into`, as
 * PART-NAME with parts counted from 0.  Nothing in them changes.  Errors: MP_ENOTFOUND (a folder
 * that is not there, or without a spool), MP_EIO. */
int mp_parts_link(const char *const folder[], int folders, const char *into,
                  struct mp_error *error);
