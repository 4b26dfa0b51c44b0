/* The machine: see cli.h. */
#include "harness/cli/cli.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "reference/device/device.h"

static void read_processor(char *name, size_t size) {
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(name, size, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10) != 0)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(name, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    if (file)
        fclose(file);
}

void cli_machine_read(struct cli_machine *machine) {
    cpu_set_t cores;
    read_processor(machine->processor, sizeof machine->processor);
    machine->cores = sched_getaffinity(0, sizeof cores, &cores) ? (int)sysconf(_SC_NPROCESSORS_ONLN)
                                                                : CPU_COUNT(&cores);
    machine->memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

int cli_machine_compute(char *text, size_t size, struct mp_error *error) {
    const struct mp_device_limits limits = {
        .attention = {1, 8, 1, 8}, .experts = 1, .width = 8, .tokens = 8};
    struct mp_device *device = NULL;
    MP_TRY(mp_device_cpu_create(1, &limits, &device, error));
    mp_device_describe(device, text, size);
    mp_device_destroy(device);
    return MP_OK;
}
