/* Reasons: see reason.h. */
#include "harness/suite/reason.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "reference/base/characters.h"

static const char TRAINER_PREFIX[] = "moeperf-train: ";
static const char MPIRUN_PREFIX[] = "mpirun noticed that process rank ";

struct findings {
    const char *trainer;       /* last line with its prefix, without that; or NULL */
    const char *last, *framed; /* last line outside of mpirun's frames, first one inside; or NULL */
    int rank, signal;          /* that mpirun noticed; -1: none */
};

/* mpirun: "... process rank 1 with PID 4711 on node n exited on signal 9 (Killed)." */
static void note_signal(struct findings *findings, const char *line) {
    const char *signal = strstr(line, " exited on signal ");
    if (!signal || findings->rank >= 0)
        return;
    findings->rank = atoi(line + sizeof MPIRUN_PREFIX - 1);
    findings->signal = atoi(signal + sizeof " exited on signal " - 1);
}

static bool is_frame(const char *line) {
    return strlen(line) >= 40 && !line[strspn(line, "-")];
}

/* mpirun's daemons about themselves: "[node:4711] Set MCA parameter ..." */
static bool is_of_daemon(const char *line) {
    int end = 0;
    sscanf(line, "[%*[^]: ]:%*d] %n", &end);
    return end > 0;
}

/* Splits `tail` into lines in place and notes the telling ones.  mpirun's own words stand between
 * lines of dashes. */
static struct findings search(char *tail) {
    struct findings findings = {.rank = -1};
    bool is_framed = false;
    for (char *line = tail; line;) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        if (is_frame(line))
            is_framed = !is_framed;
        else if (!strncmp(line, TRAINER_PREFIX, sizeof TRAINER_PREFIX - 1))
            findings.trainer = line + sizeof TRAINER_PREFIX - 1;
        else if (!strncmp(line, MPIRUN_PREFIX, sizeof MPIRUN_PREFIX - 1))
            note_signal(&findings, line);
        else if (is_framed && !findings.framed)
            findings.framed = line;
        else if (!is_framed && line[strspn(line, " \t\r")] && !is_of_daemon(line))
            findings.last = line;
        line = next;
    }
    return findings;
}

void mp_reason_find(char *tail, int wait_status, char *reason, size_t size) {
    struct findings findings = search(tail);
    if (findings.rank >= 0)
        snprintf(reason, size, "rank %d was ended by signal %d (%s)", findings.rank,
                 findings.signal, strsignal(findings.signal));
    else if (findings.trainer)
        snprintf(reason, size, "%s", findings.trainer);
    else if (WIFSIGNALED(wait_status))
        snprintf(reason, size, "ended by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else if (findings.last || findings.framed)
        snprintf(reason, size, "exit status %d; its last words: %s", WEXITSTATUS(wait_status),
                 findings.last ? findings.last : findings.framed);
    else
        snprintf(reason, size, "exit status %d without a word", WEXITSTATUS(wait_status));
    mp_clean_text(reason, size, reason);
}
