#include "harness/suite/processes.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FAMILY_LIMIT = 1 << 16 };

enum { CLOCK_STEP_NS = 2000000000 }; /* that a wall clock may have made */

struct process {
    pid_t pid, parent;
};

struct status {
    char state;
    pid_t parent;
    unsigned long long began; /* clock ticks since the machine's start */
};

/* Reads "pid (name) state parent ... began ..."; the name may hold blanks and brackets. */
static bool read_status(const char *pid, struct status *status) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false; /* it has ended meanwhile */
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = '\0';
    const char *bracket = strrchr(line, ')');
    return bracket &&
           sscanf(bracket + 1,
                  " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                  &status->state, &status->parent, &status->began) == 3;
}

static int list_processes(struct process list[], int limit) {
    DIR *folder = opendir("/proc");
    struct status status;
    int count = 0;
    for (struct dirent *entry; folder && count < limit && (entry = readdir(folder));)
        if (isdigit((unsigned char)entry->d_name[0]) && read_status(entry->d_name, &status))
            list[count++] = (struct process){(pid_t)atoi(entry->d_name), status.parent};
    if (folder)
        closedir(folder);
    return count;
}

/* Moves root's descendants to the front of the list; returns how many they are.  Parents come
 * before children, so one pass over the growing front finds them all. */
static int gather_family(pid_t root, struct process list[], int count) {
    int family = 0;
    for (int next = -1; next < family; next++) {
        pid_t parent = next < 0 ? root : list[next].pid;
        for (int i = family; i < count; i++) {
            if (list[i].parent != parent)
                continue;
            struct process found = list[i];
            list[i] = list[family];
            list[family++] = found;
        }
    }
    return family;
}

/* Root's descendants at the front of a list of `*count` processes; NULL: none, or no memory. */
static struct process *find_family(pid_t root, int *family, int *count) {
    struct process *list = malloc(FAMILY_LIMIT * sizeof *list);
    *count = list ? list_processes(list, FAMILY_LIMIT) : 0;
    *family = list ? gather_family(root, list, *count) : 0;
    return list;
}

int mp_processes_signal(pid_t root, int signal, bool with_root) {
    int family, count, reached = 0;
    struct process *list = find_family(root, &family, &count);
    if (with_root || family == 0)
        reached += !kill(root, signal);
    for (int i = 0; i < family; i++)
        reached += !kill(list[i].pid, signal);
    free(list);
    return reached;
}

static void hold(struct mp_processes *processes, pid_t pid, bool is_leaf) {
    int handle = (int)syscall(SYS_pidfd_open, pid, 0);
    if (handle < 0)
        return; /* it has ended, or there are no handles */
    processes->handle[processes->count++] = handle;
    processes->leaves += is_leaf;
}

void mp_processes_hold(pid_t root, bool with_root, struct mp_processes *processes) {
    int family, count;
    struct process *list = find_family(root, &family, &count);
    *processes = (struct mp_processes){.handle = malloc(((size_t)family + 1) * sizeof(int))};
    if (processes->handle && (with_root || family == 0))
        hold(processes, root, family == 0);
    for (int i = 0; processes->handle && i < family; i++) {
        bool is_leaf = true;
        for (int k = 0; k < family && is_leaf; k++)
            is_leaf = list[k].parent != list[i].pid;
        hold(processes, list[i].pid, is_leaf);
    }
    free(list);
}

void mp_processes_send(const struct mp_processes *processes, int signal) {
    for (int i = 0; i < processes->count; i++)
        syscall(SYS_pidfd_send_signal, processes->handle[i], signal, NULL, 0);
}

void mp_processes_release(struct mp_processes *processes) {
    for (int i = 0; i < processes->count; i++)
        close(processes->handle[i]);
    free(processes->handle);
    *processes = (struct mp_processes){.handle = NULL};
}

static int64_t read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool mp_processes_runs_since(pid_t pid, int64_t realtime_ns) {
    char name[24];
    struct status status;
    snprintf(name, sizeof name, "%ld", (long)pid);
    if (!read_status(name, &status) || status.state == 'Z')
        return false;
    int64_t machine_start_ns = read_clock(CLOCK_REALTIME) - read_clock(CLOCK_BOOTTIME);
    double began_ns = 1e9 * (double)status.began / (double)sysconf(_SC_CLK_TCK);
    return machine_start_ns + (int64_t)began_ns < realtime_ns + CLOCK_STEP_NS;
}
