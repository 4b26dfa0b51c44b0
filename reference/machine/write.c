/* A machine as a cluster file. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "reference/base/whole_file.h"
#include "reference/machine/machine.h"

enum { TEXT_SIZE = 512 };

void mp_machine_processor(char *name, size_t size) {
    MP_AUTO(file) FILE *file = fopen("/proc/cpuinfo", "re");
    char line[512];
    snprintf(name, size, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10) != 0)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(name, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        return;
    }
}

/* What a double-quoted scalar of YAML can't have stays out. */
static void clean(const char *text, char *to, size_t size) {
    size_t length = 0;
    for (; *text && length + 1 < size; text++)
        if (*text >= ' ' && *text <= '~' && *text != '"' && *text != '\\')
            to[length++] = *text;
    to[length] = '\0';
}

static void write_origin(const struct mp_machine *machine, const char *processor, char *origin) {
    char date[32];
    time_t now = time(NULL);
    struct tm today;
    localtime_r(&now, &today);
    strftime(date, sizeof date, "%Y-%m-%d", &today);
    int length =
        snprintf(origin, TEXT_SIZE, "measured by moeperf calibrate on %s, %.200s, %d rank%s", date,
                 processor, machine->ranks, machine->ranks == 1 ? "" : "s");
    if (machine->threads > 1)
        length += snprintf(origin + length, TEXT_SIZE - (size_t)length, " of %d threads",
                           machine->threads);
    if (machine->shares_cores)
        snprintf(origin + length, TEXT_SIZE - (size_t)length, " that share cores");
}

static void put(FILE *file, int indent, const char *name, double value, const char *origin) {
    fprintf(file, "%*s%s: {value: %.6g, source: \"%s\"}\n", indent, "", name, value, origin);
}

static void put_list(FILE *file, const char *name, const double values[], int count) {
    fprintf(file, "%s[", name);
    for (int i = 0; i < count; i++)
        fprintf(file, "%s%.4g", i ? ", " : "", values[i]);
    fputs("]\n", file);
}

static void put_device(FILE *file, const struct mp_machine *machine, const char *processor,
                       const char *origin) {
    fprintf(file, "device:\n  name: \"%.200s\"\n  peak: # the fastest product that was measured\n",
            processor);
    put(file, 4, "fp32", machine->peak, origin);
    fprintf(file,
            "  memory: {value: %.6g, source: \"the system's figure, divided by the ranks\"}\n",
            machine->memory);
    put(file, 2, "memory-bandwidth", machine->memory_bandwidth, origin);
    put(file, 2, "launch", machine->launch, origin);
    put(file, 2, "elementwise", machine->elementwise, origin);
    put(file, 2, "update", machine->update, origin);
    put(file, 2, "attention", machine->attention, origin);
    if (machine->ranks > 1)
        put(file, 2, "overlap", machine->overlap, origin);
    fputs("  efficiency:\n", file);
    put_list(file, "    tokens: ", machine->tokens, machine->rows);
    put_list(file, "    width: ", machine->width, machine->columns);
    for (int direction = 0; direction < 2; direction++) {
        fputs(direction ? "    backward:\n" : "    share:\n", file);
        for (int i = 0; i < machine->rows; i++)
            put_list(file, "      - ", machine->share[direction][i], machine->columns);
    }
    fprintf(file, "    source: \"%s\"\n", origin);
}

/* The sizes behind the line, for people. */
static void put_transfers(FILE *file, const struct mp_machine *machine) {
    fputs("    # B to and from a rank, s one way between two, s in an exchange of all, s by the "
          "line\n",
          file);
    for (int i = 0; i < machine->transfers; i++) {
        const struct mp_machine_transfer *at = &machine->transfer[i];
        fprintf(file, "    # %10.0f  %.3e  %.3e  %.3e\n", at->bytes, at->one_way, at->exchange,
                machine->latency + at->bytes / machine->bandwidth);
    }
}

static void put_levels(FILE *file, const struct mp_machine *machine, const char *origin) {
    fputs("levels:\n  self:\n", file);
    put(file, 4, "bandwidth", machine->copy_bandwidth, origin);
    put(file, 4, "latency", machine->copy_latency, origin);
    if (machine->ranks == 1)
        return;
    fputs("  node:\n", file);
    put_transfers(file, machine);
    put(file, 4, "bandwidth", machine->bandwidth, origin);
    put(file, 4, "latency", machine->latency, origin);
    fputs("    ports: {value: 1, assumed: \"a process copies by itself\"}\n"
          "    sharing: {value: fixed, assumed: \"a process copies by itself\"}\n",
          file);
}

int mp_machine_write(const struct mp_machine *machine, const char *processor, const char *path,
                     struct mp_error *error) {
    char name[256], origin[TEXT_SIZE];
    struct mp_whole_file file;
    MP_TRY(mp_whole_file_open(&file, path, error));
    clean(processor, name, sizeof name);
    write_origin(machine, name, origin);
    fprintf(file.stream,
            "description: \"%.200s, as %d rank%s%s\"\n"
            "nodes: {value: 1, source: \"%s\"}\n"
            "ranks-per-node: {value: %d, source: \"%s\"}\n",
            name, machine->ranks, machine->ranks == 1 ? "" : "s",
            machine->shares_cores ? " that share cores" : "", origin, machine->ranks, origin);
    put_device(file.stream, machine, name, origin);
    put_levels(file.stream, machine, origin);
    return mp_whole_file_close(&file, MP_OK, error);
}
