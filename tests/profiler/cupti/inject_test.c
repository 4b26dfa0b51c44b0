/* The library as CUDA loads it, into programs of which this is one. */
#include "tests/profiler/device/companion.h"

#include <dlfcn.h>
#include <sys/wait.h>

typedef int (*entry)(void);
typedef int (*push)(int64_t);

/* POSIX gives functions as void *. */
static void *find(void *library, const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol)
        fail_msg("%s is not exported", name);
    return symbol;
}

/* Whether this machine has a driver that CUDA can use: then what cannot be done is untrue. */
static bool has_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    return init && init(0) == 0;
}

/* Runs `part` in a process of its own, which must end by itself with status 0. */
static void in_a_process(void (*part)(void)) {
    pid_t child = fork();
    if (child == 0) {
        part();
        exit(0);
    }
    assert_int_equal(end_of_process(child), 0);
}

static void use_the_initialiser(void) {
    void *library = dlopen(CUPTI_COLLECTOR, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        exit(2);
    entry initialise = (entry)find(library, "InitializeInjection");
    for (int times = 0; times < 2; times++)
        if (initialise() != 1)
            exit(3);
    int pushed = ((push)find(library, "mp_cupti_push"))(17);
    if (pushed != ((entry)find(library, "mp_cupti_pop"))())
        exit(4);
    if (fork() == 0) /* a child of a program that is being recorded */
        exit(initialise() != 1);
    int status = 1;
    wait(&status);
    if (status)
        exit(5);
}

TEST(without_a_driver_the_program_runs_on) {
    if (has_driver())
        skip("this machine has a CUDA driver");
    in_a_process(use_the_initialiser);
    const struct companion_contents *contents = companion_read();
    assert_int_equal(contents->files, 1);
    assert_true(contents->ended);
    assert_contains(contents->status, "no usable CUDA driver", "CUPTI_ERROR_");
}

TEST(without_a_folder_nothing_is_written) {
    unsetenv("MOEPERF_DEVICE_SPOOLS");
    in_a_process(use_the_initialiser);
    setenv("MOEPERF_DEVICE_SPOOLS", companion_folder, 1);
    assert_int_equal(companion_read()->files, 0);
}

static void call_cuda(void) {
#ifdef CUDART
    int devices = -1;
    void *runtime = dlopen(CUDART, RTLD_NOW);
    int (*count)(int *) = runtime ? (int (*)(int *))dlsym(runtime, "cudaGetDeviceCount") : NULL;
    if (!count)
        exit(2);
    count(&devices); /* fails without a driver, and must come back */
#endif
}

/* CUDA itself looks at the variable when its driver starts; without one it never gets that far. */
TEST(a_cuda_program_with_the_variable_runs_on) {
#ifndef CUDART
    skip("libcudart.so was not found when moeperf was built");
#endif
    setenv("CUDA_INJECTION64_PATH", CUPTI_COLLECTOR, 1);
    in_a_process(call_cuda);
    unsetenv("CUDA_INJECTION64_PATH");
    const struct companion_contents *contents = companion_read();
    if (contents->files)
        assert_string_equal(contents->status, "on");
}

TEST(nothing_else_is_exported) {
    static const char *const hidden[] = {"mp_fail", "mp_recorder_create", "cupti_parse",
                                         "mp_companion_open"};
    void *library = dlopen(CUPTI_COLLECTOR, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        assert_null(dlsym(library, hidden[i]));
    dlclose(library);
}

TEST_GROUP(companion_setup, companion_teardown);
