/* Another collector that follows the ranges of each thread, as CUPTI's does. */
#include "tests/profiler/record/samples.h"

#include <dlfcn.h>
#include <pthread.h>

#include <nvtx3/nvToolsExt.h>

enum {
    DEEPEST = 128,
    RANGES = 300,
    ROUNDS = 10,
    STEPS = 100 /* so never as deep */,
    PATIENCE = 5000
};

static _Thread_local int64_t stack[DEEPEST];
static _Thread_local int depth;
static int64_t told[RANGES]; /* of the first thread, in order */
static int count;

static int push(int64_t start_ns) {
    assert_true(depth < DEEPEST);
    if (depth > 0)
        assert_true(start_ns >= stack[depth - 1]);
    stack[depth++] = start_ns;
    if (count < RANGES)
        told[count++] = start_ns;
    return 0;
}

static int pop(void) {
    return depth > 0 ? --depth, 0 : -1;
}

/* Pushes and pops at random, in two domains that do not nest with each other. */
static void annotate(uint64_t *random, nvtxDomainHandle_t domain) {
    int open[2] = {0, 0};
    const nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                              .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                              .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                              .message = {.ascii = "in a domain"}};
    for (int i = 0; i < STEPS; i++) {
        int which = test_random_int(random, 0, 1);
        if (test_random(random) & 1) {
            int level =
                which ? nvtxDomainRangePushEx(domain, &attributes) : nvtxRangePushA("plain");
            assert_int_equal(level, open[which]++);
        } else if (open[which] > 0) {
            assert_int_equal(which ? nvtxDomainRangePop(domain) : nvtxRangePop(), --open[which]);
        }
        assert_true(depth >= open[0] + open[1]); /* what a range inside still hides is not popped */
        if (open[0] + open[1] == 0)
            assert_int_equal(depth, 0);
    }
    while (open[0]-- > 0)
        nvtxRangePop();
    while (open[1]-- > 0)
        nvtxDomainRangePop(domain);
    assert_int_equal(depth, 0);
}

/* How many starts that were told are by now starts of ranges in the spool. */
static int starts_in(const char *path) {
    AUTO(spool) struct mp_spool_reader *reader = open_spool(path);
    struct mp_spool_record record;
    bool is_there[RANGES] = {false};
    int found = 0;
    while (next_of(reader, MP_SPOOL_RANGE, &record))
        for (int i = 0; i < count; i++)
            if (record.as.range.is.start_ns == told[i])
                is_there[i] = true;
    for (int i = 0; i < count; i++)
        found += is_there[i];
    return found;
}

TEST_RANDOM(threads_tell_where_they_are) {
    setenv("NVTX_INJECTION64_PATH", COLLECTOR, 1);
    setenv("MOEPERF_NVTX_SPOOLS", sample_folder, 1);
    setenv("MOEPERF_NVTX_FLUSH_MS", "20", 1);
    nvtxDomainHandle_t domain = nvtxDomainCreateA("second");
    nvtxRangePushA("open already when somebody begins to follow");
    void *library = dlopen(COLLECTOR, RTLD_NOW | RTLD_NOLOAD); /* NVTX has loaded it */
    assert_non_null(library);
    void (*follow)(int (*)(int64_t), int (*)(void)) =
        (void (*)(int (*)(int64_t), int (*)(void)))dlsym(library, "mp_nvtx_follow");
    assert_non_null(follow);
    follow(push, pop);
    nvtxRangePop();
    assert_int_equal(depth, 0);
    for (int round = 0; round < ROUNDS; round++)
        annotate(random, domain);
    follow(NULL, NULL);
    int before = count;
    nvtxRangePushA("nobody follows");
    nvtxRangePop();
    assert_int_equal(count, before);

    AUTO(files) glob_t found = files_with(sample_folder, ".spool");
    assert_int_equal(found.gl_pathc, 1);
    const char *path = found.gl_pathv[0];
    assert_true(count > 50);
    /* The collector writes every 20 ms, whenever its thread gets a core. */
    const struct timespec moment = {.tv_nsec = 20000000};
    for (int tries = 0; tries < PATIENCE && starts_in(path) < count; tries++)
        nanosleep(&moment, NULL);
    assert_int_equal(starts_in(path), count);
    unlink(path);
}

TEST_GROUP(make_folder, remove_folder);
