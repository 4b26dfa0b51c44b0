/* A folder of its own for every test program, where it works and which it removes. */
#pragma once

#include <dirent.h>

#include "tests/files.h"

static char test_folder[64];

/* Creates the folder and changes into it; use as a group's setup. */
static inline int enter_folder(UNUSED void **state) {
    strcpy(test_folder, "/tmp/moeperf-test-XXXXXX");
    return mkdtemp(test_folder) && !chdir(test_folder) ? 0 : -1;
}

/* Removes it with everything inside; use as a group's teardown. */
static inline int leave_folder(UNUSED void **state) {
    if (chdir("/"))
        return -1;
    return remove_tree(test_folder);
}

static inline void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* A shell script that can be started. */
static inline void write_script(const char *path, const char *text) {
    write_file(path, formatted("#!/bin/sh\n%s", text));
    assert_int_equal(chmod(path, 0755), 0);
}

/* How many entries of the folder have this text in their names: ".partial" for files that are not
 * whole. */
static inline int count_entries(const char *path, const char *text) {
    DIR *folder = opendir(path);
    int count = 0;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        count += strstr(entry->d_name, text) != NULL;
    closedir(folder);
    return count;
}

/* The whole text of a file; "" if it is not there.  Free it. */
static inline char *read_file(const char *path) {
    size_t size;
    return access(path, F_OK) ? strdup("") : read_bytes(path, &size);
}
