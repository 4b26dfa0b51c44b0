/* Hosts: the machines of a host file, and copies of folders between their local disks and this
 * one's, under the same path on all of them. */
#ifndef MOEPERF_HARNESS_SUITE_HOSTS_H
#define MOEPERF_HARNESS_SUITE_HOSTS_H

#include "reference/base/error.h"

enum { MP_HOST_SIZE = 256 };

struct mp_hosts {
    const char *file;           /* borrowed */
    const char *copy;           /* template (command.h), borrowed; NULL: they share their folders */
    char (*name)[MP_HOST_SIZE]; /* [count], owned: each once, without this one */
    int count;
};

/* Reads a host file as Open MPI has it: a host's name is a line's first word, '#' begins a comment.
 * file NULL: no hosts.  Errors: MP_ENOTFOUND (the file), MP_EINVAL (no host in it; a `copy` without
 * file, {from} or {to}), MP_ELIMIT (a name of 256 bytes), MP_ENOMEM.  Destroy it in any case. */
int mp_hosts_read(const char *file, const char *copy, struct mp_hosts *hosts,
                  struct mp_error *error);
void mp_hosts_destroy(struct mp_hosts *hosts); /* accepts a zeroed one */

/* Copies a folder of this host, an absolute path, to where it lies on all others (FOLDER to
 * HOST:PARENT), or theirs to here (HOST:FOLDER to PARENT), where files of one host stay beside
 * those of another: the copies run all at once.  Where folders are shared, nothing is done. Errors:
 * MP_EINVAL (no absolute path), MP_EIO (a copy ended with another status than 0: the first such).
 */
int mp_hosts_spread(const struct mp_hosts *hosts, const char *folder, struct mp_error *error);
int mp_hosts_gather(const struct mp_hosts *hosts, const char *folder, struct mp_error *error);

#endif
