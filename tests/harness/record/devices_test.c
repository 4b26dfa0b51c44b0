/* A program that is recorded loads the collectors as CUDA and NCCL would; what they leave ends up
 * beside its run. */
#include <dlfcn.h>

#include "harness/record/devices.h"
#include "harness/suite/paths.h"
#include "profiler/nccl/plugin.h"
#include "tests/results/devices.h"

/* What NCCL does with the plug-in's name, and CUDA with the injection library's. */
static void be_the_program(const char *folder) {
    mp_devices_offer(folder);
    const char *plugin = getenv("NCCL_PROFILER_PLUGIN"),
               *injected = getenv("CUDA_INJECTION64_PATH");
    void *library = plugin ? dlopen(plugin, RTLD_NOW) : NULL, *context = NULL, *handle = NULL;
    struct nccl_profiler *nccl = library ? dlsym(library, "ncclProfiler_v5") : NULL;
    void *cupti = injected ? dlopen(injected, RTLD_NOW) : NULL;
    int (*initialise)(void) = cupti ? (int (*)(void))dlsym(cupti, "InitializeInjection") : NULL;
    int mask;
    if (!nccl)
        _exit(1);
    if (initialise)
        initialise();
    nccl->init(&context, 7, &mask, "", 1, 1, 0, NULL);
    for (uint64_t i = 1; i <= 3; i++) {
        struct nccl_event event = {
            .type = NCCL_EVENT_COLLECTIVE,
            .collective = {
                .sequence = i, .function = "AllGather", .count = 5, .datatype = "ncclFloat64"}};
        nccl->start_event(context, &handle, &event);
        nccl->stop_event(handle);
    }
    exit(0);
}

static int64_t add_run(struct runs_folder *folder) {
    struct mp_store_run description = runs_description("ep", "skewed");
    int64_t run_id = 0;
    assert_works(mp_store_ingest(folder->store, &description, NULL, 0, &run_id, &error));
    return run_id;
}

RUNS_TEST(what_collectors_left_is_beside_the_run) {
    struct mp_error error = {0};
    char said[2000] = "", path[MP_PATH_SIZE];
    int64_t run_id = add_run(folder);
    pid_t child = fork();
    if (child == 0)
        be_the_program(folder->path);
    assert_int_equal(end_of_process(child), 0);

    for (int again = 0; again < 2; again++) { /* kept at first, then removed; added once */
        FILE *stream = fmemopen(said, sizeof said, "w");
        runs_ok(mp_devices_keep(folder->store, run_id, folder->path, again == 0, stream, &error),
                &error);
        fclose(stream);
        assert_contains(said, "nccl: on in 1 process");
        assert_rows(folder->store, "SELECT function, count(*), sum(bytes) FROM v_collective",
                    "AllGather|3|120");
    }
    bool has_cupti = !mp_path_library("libmoeperf-cupti.so", path, &error);
    assert_int_equal(strstr(said, "cupti: ") != NULL, has_cupti);
    FILE *stream = fmemopen(said, sizeof said, "w");
    error = (struct mp_error){0};
    runs_ok(mp_devices_keep(folder->store, add_run(folder), folder->path, false, stream, &error),
            &error);
    assert_int_equal(ftell(stream), 0); /* nothing is left, and nothing is said */
    fclose(stream);
}

/* Of what a kill left of a collector there is the header alone, which has its rank and no name. */
static void leave_header(struct runs_folder *folder, int rank, int number) {
    struct mp_companion companion;
    uint16_t size[4]; /* the last is the header's, in units of 8 bytes */
    devices_open(folder, "cupti", rank, &companion);
    devices_close(folder, "cupti", &companion, number);
    FILE *file = fopen(devices_paths[devices_files - 1], "r");
    assert_true(file && fread(size, sizeof size, 1, file) == 1);
    fclose(file);
    assert_false(truncate(devices_paths[devices_files - 1], size[3] * 8));
}

/* Removes the spools. */
static void assert_said(struct runs_folder *folder, int64_t run_id, const char *expected) {
    struct mp_error error = {0};
    AUTO(text) char *said = NULL;
    size_t size;
    FILE *stream = open_memstream(&said, &size);
    runs_ok(mp_devices_keep(folder->store, run_id, folder->path, false, stream, &error), &error);
    fclose(stream);
    assert_string_equal(said, expected);
}

RUNS_TEST(collectors_killed_before_their_name_are_told_of_by_rank) {
    struct mp_companion companion;
    leave_header(folder, 1, 0);
    assert_said(folder, devices_run(folder),
                "GPU work of rank 1: off, its collector was killed before it said its name\n");
    int64_t run_id = devices_run(folder);
    devices_open(folder, "nccl", 0, &companion);
    devices_close(folder, "nccl", &companion, 0);
    assert_said(folder, run_id, "nccl: on in 1 process\n");
    leave_header(folder, 1, 0);
    leave_header(folder, 1, 1); /* its second collector, or its second process */
    leave_header(folder, 0, 2);
    assert_said(folder, run_id,
                "nccl: on in 1 process\n"
                "GPU work of ranks 0, 1: off, its collector was killed before it said its name\n");
}

/* Each variable has room for one library, and the user's own goes first. */
RUNS_TEST(what_the_user_has_set_stays) {
    setenv("NCCL_PROFILER_PLUGIN", "none", 1);
    mp_devices_offer(folder->path);
    assert_string_equal(getenv("NCCL_PROFILER_PLUGIN"), "none");
    assert_string_equal(getenv("MOEPERF_DEVICE_SPOOLS"), folder->path);
    unsetenv("NCCL_PROFILER_PLUGIN");
}

RUNS_TEST(a_missing_folder_is_an_error) {
    assert_fails(mp_devices_keep(folder->store, 1, "/nowhere/at/all", false, stdout, &error),
                 MP_EIO, "/nowhere/at/all");
}
