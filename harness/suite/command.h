/* Command: the words that start a job's ranks, from a template.
 *
 * A template is split at blanks; in its words {ranks} and {program} are replaced, and the word
 * {arguments} becomes the arguments themselves.  Every launcher that takes a number of processes
 * and a program fits: "srun -n {ranks} {program} {arguments}". */
#ifndef MOEPERF_HARNESS_SUITE_COMMAND_H
#define MOEPERF_HARNESS_SUITE_COMMAND_H

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
/* The words that copy a folder, from a template with {from} and {to}: "scp -qr {from} {to}".
 * Errors: as above. */
int mp_command_create_copy(const char *template, const char *from, const char *to,
                           struct mp_command *command, struct mp_error *error);
void mp_command_destroy(struct mp_command *command); /* accepts a zeroed one */

/* The command as one line that a shell would split into the same words; free it.  NULL without
 * memory. */
char *mp_command_text(const struct mp_command *command);

#endif
