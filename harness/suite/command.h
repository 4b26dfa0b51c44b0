/* Command: the words that start a job's ranks, from a template.
 *
 * A template is split at blanks; in its words {ranks} and {program} are replaced, and the word
 * {arguments} becomes the arguments themselves.  Every launcher that takes a number of processes
 * and a program fits: "srun -n {ranks} {program} {arguments}". */
#pragma once

#include <stdbool.h>

#include "reference/base/error.h"

/* The same on the hosts of a file, as Open MPI reads it; to be filled in by printf. */
#define MP_COMMAND_HOSTS_TEMPLATE                                                                  \
    "mpirun --hostfile %s --bind-to none -x OMP_NUM_THREADS -n {ranks} {program} {arguments}"

/* Ranks are not bound to cores: two suites at a time would be bound to the same ones, and a rank
 * with several threads would have one core for all. */
#define MP_COMMAND_TEMPLATE "mpirun --oversubscribe --bind-to none -n {ranks} {program} {arguments}"

struct mp_command {
    char **word; /* ends with NULL, owned */
    int count;
    bool has_launcher; /* word[0] starts ranks; false: it is the only rank itself */
};

/* `template` NULL: mpirun, or for one rank the plain program.  `arguments` end with NULL.
 * Errors: MP_EINVAL (template without {program} or {arguments}, or with an unknown {word}),
 * MP_ENOMEM. */
int mp_command_create(const char *template, int ranks, const char *program,
                      const char *const arguments[], struct mp_command *command,
                      struct mp_error *error);
void mp_command_destroy(struct mp_command *command); /* accepts a zeroed one */
MP_END(command, struct mp_command, mp_command_destroy(it))

/* The command as one line that a shell would split into the same words; free it.  NULL without
 * memory. */
char *mp_command_text(const struct mp_command *command);

/* Hosts: the machines of a host file, and copies of folders between their local disks and this
 * one's, under the same path on all of them. */

enum { MP_HOST_SIZE = 256 };

struct mp_hosts {
    const char *file;           /* borrowed */
    const char *copy;           /* "scp -qr {from} {to}", borrowed; NULL: they share folders */
    char (*name)[MP_HOST_SIZE]; /* [count], owned: each once, without this one */
    int count;
};

/* Reads a host file as Open MPI has it: a host's name is a line's first word, '#' begins a comment.
 * file NULL: no hosts.  Errors: MP_ENOTFOUND (the file), MP_EINVAL (no host in it; a `copy` without
 * file, {from} or {to}), MP_ELIMIT (a name of 256 bytes), MP_ENOMEM.  Destroy it in any case. */
int mp_hosts_read(const char *file, const char *copy, struct mp_hosts *hosts,
                  struct mp_error *error);
void mp_hosts_destroy(struct mp_hosts *hosts); /* accepts a zeroed one */
MP_END(hosts, struct mp_hosts, mp_hosts_destroy(it))

/* Copies a folder of this host, an absolute path, to where it lies on all others (FOLDER to
 * HOST:PARENT), or theirs to here (HOST:FOLDER to PARENT), where files of one host stay beside
 * those of another: the copies run all at once.  Where folders are shared, nothing is done. Errors:
 * MP_EINVAL (no absolute path), MP_EIO (a copy ended with another status than 0: the first such).
 */
int mp_hosts_spread(const struct mp_hosts *hosts, const char *folder, struct mp_error *error);
int mp_hosts_gather(const struct mp_hosts *hosts, const char *folder, struct mp_error *error);
