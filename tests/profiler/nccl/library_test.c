/* The shared object as NCCL finds it. */
#include "tests/profiler/device/companion.h"

#include <dlfcn.h>

#include "profiler/nccl/plugin.h"

TEST(it_exports_both_versions_and_nothing_else) {
    void *library = dlopen(NCCL_COLLECTOR, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    const struct nccl_profiler *five = dlsym(library, "ncclProfiler_v5");
    const struct nccl_profiler *six = dlsym(library, "ncclProfiler_v6");
    assert_non_null(five);
    assert_non_null(six);
    assert_string_equal(five->name, "moeperf");
    assert_null(dlsym(library, "mp_recorder_create"));
    void *context = NULL;
    int mask = 0;
    six->init(&context, 5, &mask, "", 1, 2, 0, NULL);
    assert_non_null(context);
    six->finalize(context);
    assert_int_equal(dlclose(library), 0); /* NCCL does so, too */
    assert_string_equal(companion_read()->status, "on");
}

/* A program that ends without finalize, as many do: the library's own end records what there is. */
TEST(a_program_that_just_ends_leaves_its_records) {
    pid_t child = fork();
    if (child == 0) {
        void *library = dlopen(NCCL_COLLECTOR, RTLD_NOW), *context = NULL, *handle;
        struct nccl_profiler *nccl = library ? dlsym(library, "ncclProfiler_v5") : NULL;
        struct nccl_event event = {.type = NCCL_EVENT_COLLECTIVE,
                                   .collective = {.function = "Broadcast", .channels = 1}};
        int mask;
        if (!nccl)
            _exit(1);
        nccl->init(&context, 5, &mask, "", 1, 2, 0, NULL);
        nccl->start_event(context, &handle, &event);
        exit(0);
    }
    assert_int_equal(end_of_process(child), 0);
    const struct companion_contents *contents = companion_read();
    assert_int_equal(contents->collectives, 1);
    assert_true(contents->ended);
}

/* The leak check at a child's exit looks for threads that fork has left behind, and may never end.
 */
static _Noreturn void end_child(int status) {
#if defined(__SANITIZE_ADDRESS__)
    _exit(status);
#else
    exit(status);
#endif
}

/* Its children end in the middle of everything, and must neither hang nor write. */
TEST(children_of_a_recorded_program_end) {
    void *library = dlopen(NCCL_COLLECTOR, RTLD_NOW | RTLD_LOCAL), *context = NULL, *handle;
    assert_non_null(library);
    const struct nccl_profiler *nccl = dlsym(library, "ncclProfiler_v5");
    int mask;
    nccl->init(&context, 5, &mask, "", 1, 2, 0, NULL);
    for (uint64_t i = 0; i < 20; i++) {
        struct nccl_event event = {
            .type = NCCL_EVENT_COLLECTIVE,
            .collective = {.sequence = i, .function = "Broadcast", .channels = 0}};
        nccl->start_event(context, &handle, &event);
        pid_t child = fork();
        if (child == 0) {
            nccl->stop_event(handle);
            nccl->start_event(context, &handle, &event);
            end_child(handle != NULL);
        }
        assert_int_equal(end_of_process(child), 0);
        nccl->stop_event(handle);
    }
    nccl->finalize(context);
    dlclose(library);
    const struct companion_contents *contents = companion_read();
    assert_numbers(contents->files, 1, contents->collectives, 20, contents->unread, 0);
}

/* The real library without a GPU does not get as far as a communicator; the program runs on. */
TEST(nccl_itself_runs_on_with_it) {
#ifndef NCCL_LIBRARY
    skip("libnccl.so was not found when moeperf was built");
#else
    pid_t child = fork();
    if (child == 0) {
        setenv("NCCL_PROFILER_PLUGIN", NCCL_COLLECTOR, 1);
        void *library = dlopen(NCCL_LIBRARY, RTLD_NOW);
        int (*version)(int *) = library ? (int (*)(int *))dlsym(library, "ncclGetVersion") : NULL;
        int (*all)(void **, int, const int *) =
            library ? (int (*)(void **, int, const int *))dlsym(library, "ncclCommInitAll") : NULL;
        int number = 0, device = 0;
        void *communicator = NULL;
        if (!version || !all || version(&number) != 0 || number < 20000)
            _exit(1);
        all(&communicator, 1, &device);
        exit(0);
    }
    assert_int_equal(end_of_process(child), 0);
    const struct companion_contents *contents = companion_read();
    print_message("NCCL %s\n",
                  contents->files ? "has loaded the plug-in" : "ended before its plug-ins: no GPU");
    if (contents->files)
        assert_string_equal(contents->status, "on");
#endif
}

TEST_GROUP(companion_setup, companion_teardown);
