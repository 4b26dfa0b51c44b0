/* Paths: where the programs, the ready-made suites and clusters and the default text are.
 *
 * Everything is found from the running executable: what is installed lies in bin, lib and
 * share/moeperf of one folder, wherever that is.  A build's folder has links in the same places, so
 * that nothing asks where the source tree is. */
#pragma once

#include <stdbool.h>

#include "reference/base/error.h"

enum { MP_PATH_SIZE = 4096 };

/* `name` beside the running executable.  MP_ENOTFOUND names the path that was tried. */
int mp_path_program(const char *name, char path[MP_PATH_SIZE], struct mp_error *error);

/* The shared object `name` beside the running executable, else in ../lib; it need not be
 * executable. MP_ENOTFOUND names both folders and how to get it. */
int mp_path_library(const char *name, char path[MP_PATH_SIZE], struct mp_error *error);

/* `folder`/`name`.  MP_ELIMIT where that is too long. */
int mp_path_join(char path[MP_PATH_SIZE], const char *folder, const char *name,
                 struct mp_error *error);

/* Ready-made files: of suites, clusters, rules (harness/record/rules.h), and the manual's pages. */
enum mp_ready_made { MP_SUITES, MP_CLUSTERS, MP_RULES, MP_MANUAL };
/* Their folder: ../share/moeperf/suites (clusters, rules, manual) from the executable. */
int mp_path_folder(enum mp_ready_made kind, char path[MP_PATH_SIZE], struct mp_error *error);
/* A file: `name` itself if it ends in .yaml (a page's in .md), else the one of this name in the
 * folder.  MP_ENOTFOUND with the nearest known name. */
int mp_path_file(enum mp_ready_made kind, const char *name, char path[MP_PATH_SIZE],
                 struct mp_error *error);
/* Their names, sorted, ending with NULL; mp_path_names_destroy. */
int mp_path_names(enum mp_ready_made kind, char ***names, struct mp_error *error);
void mp_path_names_destroy(char **names); /* accepts NULL */
MP_END(names, char **, mp_path_names_destroy(*it))

/* The default text: $MOEPERF_TEXT, else out/text/corpus here, else ../share/moeperf/text from the
 * executable.  MP_ENOTFOUND says which program prepares it. */
int mp_path_default_text(char path[MP_PATH_SIZE], struct mp_error *error);

/* Creates a folder and those above it.  MP_EIO, MP_ENOSPACE. */
int mp_path_create_folder(const char *path, struct mp_error *error);
/* The same for the folder that the file `path` will lie in. */
int mp_path_create_parent(const char *path, struct mp_error *error);
