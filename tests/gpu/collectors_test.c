/* What one GPU can show of NCCL's transport and of the collectors: a rank that trains by itself
 * over a communicator of its own gets the losses that it gets without, and CUDA and NCCL load what
 * records their work. */
#include "tests/profiler/device/companion.h"
#include "tests/reference/device/cuda/on_double.h"
#include "tests/support.h"

static const char *const job[] = {"text=tests/golden/gpu/text",
                                  "device=cuda",
                                  "system=ep",
                                  "gate=gshard",
                                  "layers=1",
                                  "width=64",
                                  "heads=1",
                                  "experts=4",
                                  "expert-width=64",
                                  "sequence=32",
                                  "batch=2",
                                  "iterations=2",
                                  "bandwidth=1e11",
                                  "expert-rate=1e14",
                                  "non-moe-seconds=1e-3"};
enum { SETTINGS = sizeof job / sizeof *job };

/* A program or collector beside this one. */
static const char *beside(const char *name) {
    static char path[4200];
    ssize_t length = readlink("/proc/self/exe", path, 4096);
    assert_true(length > 0);
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, name);
    return path;
}

/* Skips the case where what the trainer said is that there is nothing to train on. */
static void need_gpu(const char *output) {
    static const char *const missing[] = {"there is no NVIDIA driver here", "there is no GPU"};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        if (strstr(output, missing[i]))
            skip("%s", missing[i]);
}

/* Trains the job over a transport; what it printed, or NULL if there is no NCCL here. */
static char *train(const char *transport) {
    const char *arguments[2 * SETTINGS + 5] = {"moeperf-train", "--progress", "--set"};
    char set[32], path[400];
    int count = 3;
    size_t size;
    snprintf(set, sizeof set, "transport=%s", transport);
    snprintf(path, sizeof path, "%s/output", companion_folder);
    arguments[count++] = set;
    for (int i = 0; i < SETTINGS; i++) {
        arguments[count++] = "--set";
        arguments[count++] = job[i];
    }
    pid_t child = fork();
    if (child == 0) {
        if (!freopen(path, "w", stdout) || dup2(1, 2) < 0)
            _exit(3);
        execv(beside("moeperf-train"), (char *const *)(uintptr_t)arguments);
        _exit(4);
    }
    int status = end_of_process(child);
    char *output = read_bytes(path, &size);
    if (status)
        need_gpu(output);
    if (status && strstr(output, "NCCL can't be loaded")) {
        free(output);
        return NULL;
    }
    if (status)
        fail_msg("moeperf-train over %s ended with status %d: %s", transport, status, output);
    return output;
}

/* "progress 2 2 LOSS MS": the last loss. */
static double last_loss(const char *output) {
    const char *line = strstr(output, "progress 2 2 ");
    if (!line)
        fail_msg("no second iteration: %s", output);
    return strtod(line + strlen("progress 2 2 "), NULL);
}

TEST_WITH(one_rank_trains_over_nccl, companion_setup, companion_teardown) {
    char *alone = train("auto"), *over_nccl = train("nccl");
    double expected = last_loss(alone);
    free(alone);
    if (!over_nccl)
        skip("libnccl.so.2 is not here");
    assert_within(last_loss(over_nccl), expected, 2e-6); /* as it is printed */
    free(over_nccl);
}

struct seen {
    char status[300];
    int kernels, untimed, copies, gates, collectives;
    bool ended;
};

/* What a collector has recorded; false if it has not been loaded. */
static bool look(const char *collector, struct seen *seen) {
    struct mp_spool_record record;
    AUTO(files) glob_t found = files_with(companion_folder, collector);
    *seen = (struct seen){0};
    if (!found.gl_pathc)
        return false;
    AUTO(spool) struct mp_spool_reader *reader = open_spool(found.gl_pathv[0]);
    while (next_record(reader, &record)) {
        const struct mp_activity *activity = &record.as.activity;
        if (record.type == MP_SPOOL_TEXT && strstr(record.as.text.name, ".status"))
            snprintf(seen->status, sizeof seen->status, "%s", record.as.text.value);
        if (record.type == MP_SPOOL_ACTIVITY && activity->kind == MP_ACTIVITY_KERNEL) {
            seen->kernels++;
            seen->untimed += activity->end_ns <= activity->start_ns;
        }
        seen->copies += record.type == MP_SPOOL_ACTIVITY && activity->kind == MP_ACTIVITY_COPY;
        seen->gates +=
            record.type == MP_SPOOL_NAME && strstr(record.as.name.text, "gate_forward") != NULL;
        seen->collectives += record.type == MP_SPOOL_COLLECTIVE;
        seen->ended = seen->ended || record.type == MP_SPOOL_END;
    }
    return true;
}

TEST_WITH(cuda_loads_its_collector, companion_setup, companion_teardown) {
    struct seen seen;
    const char *collector = beside("libmoeperf-cupti.so");
    if (on_double() || access(collector, R_OK))
        skip("the double of CUDA loads no collector, or CUPTI was not found");
    setenv("CUDA_INJECTION64_PATH", collector, 1);
    free(train("auto"));
    unsetenv("CUDA_INJECTION64_PATH");
    if (!look("-cupti-*", &seen))
        fail_msg("CUDA has not loaded libmoeperf-cupti.so");
    print_message("%d kernels, %d copies\n", seen.kernels, seen.copies);
    assert_string_equal(seen.status, "on");
    assert_true(seen.kernels > 50); /* two iterations */
    assert_int_equal(seen.untimed, 0);
    assert_true(seen.copies > 0);
    assert_true(seen.gates > 0);
    assert_true(seen.ended);
}

/* A collective of one rank is a copy, which NCCL tells nobody of: the plug-in is only seen to be
 * taken. */
TEST_WITH(nccl_loads_its_plugin, companion_setup, companion_teardown) {
    struct seen seen;
    if (on_double())
        skip("the double of NCCL loads no plug-in");
    setenv("NCCL_PROFILER_PLUGIN", beside("libmoeperf-nccl.so"), 1);
    AUTO(text) char *output = train("nccl");
    unsetenv("NCCL_PROFILER_PLUGIN");
    if (!output)
        skip("libnccl.so.2 is not here");
    if (!look("-nccl-*", &seen))
        skip("this NCCL takes no such plug-in; it is older than 2.28");
    print_message("%d collectives\n", seen.collectives);
    assert_string_equal(seen.status, "on");
    assert_true(seen.ended);
}
