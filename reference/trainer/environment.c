#include "reference/trainer/environment.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "reference/trainer/version.h"

/* The value of the first "model name" line of /proc/cpuinfo. */
void mp_environment_processor(char *name, size_t size) {
    char line[512];
    snprintf(name, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10) != 0)
            continue;
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(name, size, "%s", colon + 1 + strspn(colon + 1, " \t"));
        break;
    }
    if (file)
        fclose(file);
}

static void command_line(int argc, char *const argv[], char *text, size_t size) {
    size_t used = 0;
    for (int i = 0; i < argc && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "", argv[i]);
}

void mp_environment_record(struct mp_record_thread *thread, int argc, char *const argv[]) {
    char text[4096];
    struct utsname system;
    cpu_set_t cores;
    mp_environment_processor(text, sizeof text);
    mp_record_text(thread, "environment.cpu", text);
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
        snprintf(text, sizeof text, "%d", CPU_COUNT(&cores));
        mp_record_text(thread, "environment.cores", text);
    }
    snprintf(text, sizeof text, "%lld",
             (long long)sysconf(_SC_PHYS_PAGES) * (long long)sysconf(_SC_PAGESIZE));
    mp_record_text(thread, "environment.memory-bytes", text);
    if (uname(&system) == 0) {
        snprintf(text, sizeof text, "%s %s", system.sysname, system.release);
        mp_record_text(thread, "environment.kernel", text);
        mp_record_text(thread, "environment.host", system.nodename);
    }
    mp_record_text(thread, "environment.compiler", mp_compiler());
    mp_record_text(thread, "environment.revision", mp_revision());
    command_line(argc, argv, text, sizeof text);
    mp_record_text(thread, "environment.command", text);
}
