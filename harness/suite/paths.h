/* Paths: where the programs, the ready-made suites and clusters and the default text are.
 *
 * Everything is found from the running executable: what is installed lies in bin, lib and
 * share/moeperf of one folder, wherever that is.  A build's folder has links in the same places, so
 * that nothing asks where the source tree is. */
#ifndef MOEPERF_HARNESS_SUITE_PATHS_H
#define MOEPERF_HARNESS_SUITE_PATHS_H

#include <stdbool.h>
#include <stddef.h>

#include "reference/base/error.h"

enum { MP_PATH_SIZE = 4096 };

/* `name` beside the running executable.  MP_ENOTFOUND names the path that was tried. */
int mp_path_program(const char *name, char path[MP_PATH_SIZE], struct mp_error *error);

/* The shared object `name` beside the running executable, else in ../lib; it need not be
 * executable. MP_ENOTFOUND names both folders and how to get it. */
int mp_path_library(const char *name, char path[MP_PATH_SIZE], struct mp_error *error);

/* `name` in the folders of $PATH, as the shell finds it; false if it is not there. */
bool mp_path_search(const char *name, char path[MP_PATH_SIZE]);

/* Folder of the ready-made suites: ../share/moeperf/suites from the executable. */
int mp_path_suites(char path[MP_PATH_SIZE], struct mp_error *error);

/* A suite's file: `name` itself if it ends in .yaml, else <suites>/<name>.yaml.  MP_ENOTFOUND with
 * the nearest known name. */
int mp_path_suite(const char *name, char path[MP_PATH_SIZE], struct mp_error *error);

/* Names of the ready-made suites, sorted, ending with NULL; mp_path_names_destroy. */
int mp_path_suite_names(char ***names, struct mp_error *error);
void mp_path_names_destroy(char **names); /* accepts NULL */

/* The same for clusters: ../share/moeperf/clusters. */
int mp_path_clusters(char path[MP_PATH_SIZE], struct mp_error *error);
int mp_path_cluster(const char *name, char path[MP_PATH_SIZE], struct mp_error *error);
int mp_path_cluster_names(char ***names, struct mp_error *error);

/* The same for rules files (harness/record/rules.h): ../share/moeperf/rules. */
int mp_path_rules(const char *name, char path[MP_PATH_SIZE], struct mp_error *error);
int mp_path_rules_names(char ***names, struct mp_error *error);

/* The same for pages of the manual, NAME.md: ../share/moeperf/manual. */
int mp_path_manual(const char *name, char path[MP_PATH_SIZE], struct mp_error *error);
int mp_path_manual_names(char ***names, struct mp_error *error);

/* The default text: $MOEPERF_TEXT, else out/text/corpus here, else ../share/moeperf/text from the
 * executable.  MP_ENOTFOUND says which program prepares it. */
int mp_path_default_text(char path[MP_PATH_SIZE], struct mp_error *error);

/* Creates a folder and those above it.  MP_EIO, MP_ENOSPACE. */
int mp_path_create_folder(const char *path, struct mp_error *error);
/* The same for the folder that the file `path` will lie in. */
int mp_path_create_parent(const char *path, struct mp_error *error);

#endif
