/* CUPTI's own walker goes over buffers that the test wrote; no driver is needed for that. */
#include "tests/profiler/cupti/records.h"

#include "profiler/cupti/parse.h"

static struct records records;
static struct mp_companion companion;
static struct cupti_totals totals;

TEST_STEP(begin) {
    struct mp_error error = {0};
    records.size = 0;
    totals = (struct cupti_totals){0};
    return mp_companion_open(&companion, "cupti", &error);
}

TEST_STEP(end) {
    mp_companion_close(&companion);
    companion_remove_files();
    return 0;
}

static const struct companion_contents *parse(void) {
    cupti_parse(&companion, records.bytes, records.size, &totals);
    cupti_record_totals(&companion, &totals);
    mp_companion_close(&companion);
    const struct companion_contents *contents = companion_read();
    assert_numbers(contents->files, 1, contents->unread, 0, contents->activities, totals.records);
    return contents;
}

/* Every field with a number of its own. */
TEST_WITH(a_kernel_keeps_all_that_is_known_of_it, begin, end) {
    char name[] = "void gemm<float>(float*)";
    cupti_kernel *kernel = records_kernel(&records, name, 1000, 1700, 42);
    kernel->deviceId = 3;
    kernel->contextId = 4;
    kernel->streamId = 5;
    kernel->gridX = 6;
    kernel->gridY = 7;
    kernel->gridZ = 8;
    kernel->blockX = 9;
    kernel->blockY = 10;
    kernel->blockZ = 11;
    kernel->registersPerThread = 12;
    kernel->staticSharedMemory = 13;
    kernel->dynamicSharedMemory = 14;
    kernel->localMemoryPerThread = 15;
    kernel->localMemoryTotal_v2 = (uint64_t)1 << 40;
    kernel->graphNodeId = (uint64_t)1 << 50;
    const struct mp_activity expected = {.start_ns = 1000,
                                         .end_ns = 1700,
                                         .graph_node = (uint64_t)1 << 50,
                                         .correlation = 42,
                                         .device = 3,
                                         .context = 4,
                                         .stream = 5,
                                         .name = 1,
                                         .kind = MP_ACTIVITY_KERNEL,
                                         .registers = 12,
                                         .grid = {6, 7, 8},
                                         .block = {9, 10, 11},
                                         .static_shared = 13,
                                         .dynamic_shared = 14,
                                         .local = 15,
                                         .local_total = (uint64_t)1 << 40};
    cupti_parse(&companion, records.bytes, records.size, &totals);
    memset(name, 'x', sizeof name - 1); /* CUPTI's memory, which may change once it is parsed */
    records.size = 0;
    const struct companion_contents *contents = parse();
    assert_int_equal(contents->activities, 1);
    assert_memory_equal(&contents->activity[0], &expected, sizeof expected);
    assert_string_equal(contents->names[1], "void gemm<float>(float*)");
}

TEST_WITH(kernels_without_times_are_untimed_and_not_instant, begin, end) {
    records_kernel(&records, "a", 0, 0, 1);
    records_kernel(&records, "b", 500, 0, 2); /* still running at a forced flush */
    records_kernel(&records, "c", 500, 501, 3);
    const struct companion_contents *contents = parse();
    assert_numbers(contents->activities, 3, contents->activity[1].start_ns, 0);
    assert_numbers(contents->activity[1].end_ns, 0, contents->activity[2].end_ns, 501);
    assert_true(number_of(&contents->numbers, "cupti.untimed") == 2);
}

TEST_WITH(copies_sets_and_overheads, begin, end) {
    cupti_copy *copy = records_add(&records, CUPTI_ACTIVITY_KIND_MEMCPY, sizeof *copy);
    *copy = (cupti_copy){.kind = CUPTI_ACTIVITY_KIND_MEMCPY,
                         .copyKind = 1,
                         .srcKind = 2,
                         .dstKind = 3,
                         .bytes = 1 << 20,
                         .start = 10,
                         .end = 30,
                         .correlationId = 7};
    const uint32_t copies = CUPTI_API_VERSION >= 26 ? 4 : 1; /* of a batch */
#if CUPTI_API_VERSION >= 26
    copy->copyCount = copies;
#endif
    CUpti_ActivityMemcpyPtoP4 *peer =
        records_add(&records, CUPTI_ACTIVITY_KIND_MEMCPY2, sizeof *peer);
    peer->copyKind = 10;
    peer->bytes = 77;
    peer->start = 40;
    peer->end = 50;
    CUpti_ActivityMemset4 *set = records_add(&records, CUPTI_ACTIVITY_KIND_MEMSET, sizeof *set);
    set->value = 255;
    set->bytes = 88;
    set->start = 60;
    set->end = 70;
    set->memoryKind = 3;
    CUpti_ActivityOverhead3 *overhead =
        records_add(&records, CUPTI_ACTIVITY_KIND_OVERHEAD, sizeof *overhead);
    overhead->overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH;
    overhead->start = 100;
    overhead->end = 350;
    const struct companion_contents *contents = parse();
    assert_numbers(contents->activities, 4, contents->activity[0].kind, MP_ACTIVITY_COPY);
    assert_numbers(contents->activity[0].value, 1 << 20, contents->activity[0].detail, 1);
    assert_numbers(contents->activity[0].source, 2, contents->activity[0].target, 3);
    assert_int_equal(contents->activity[0].result, copies);
    assert_numbers(contents->activity[1].kind, MP_ACTIVITY_COPY, contents->activity[1].detail, 10);
    assert_numbers(contents->activity[1].value, 77, contents->activity[2].kind, MP_ACTIVITY_SET);
    assert_numbers(contents->activity[2].detail, 255, contents->activity[2].target, 3);
    assert_int_equal(contents->activity[3].kind, MP_ACTIVITY_OVERHEAD);
    assert_true(number_of(&contents->numbers, "cupti.overhead-ns") == 250);
}

/* Two threads' calls, one with an external id, and one graph launch of three kernels. */
TEST_WITH(calls_links_and_graphs_keep_their_correlation, begin, end) {
    const char *launch = NULL;
    uint32_t callback = 211;
    records_link(&records, 123456789, 1);
    records_call(&records, callback, 100, 10, 20, 1);
    records_call(&records, callback, 200, 12, 22, 2);
    records_kernel(&records, "k", 30, 40, 1);
    for (uint64_t node = 1; node <= 3; node++)
        records_kernel(&records, "k", 40 + node, 50 + node, 2)->graphNodeId = node;
    const struct companion_contents *contents = parse();
    assert_numbers(contents->activities, 7, contents->activity[0].kind, MP_ACTIVITY_LINK);
    assert_true(contents->activity[0].value == 123456789);
    assert_numbers(contents->activity[1].thread, 100, contents->activity[2].thread, 200);
    if (cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, callback, &launch) == CUPTI_SUCCESS &&
        launch)
        assert_string_equal(contents->names[contents->activity[1].name], launch);
    else
        assert_int_equal(contents->activity[1].name, 0);
    for (int i = 4; i < 7; i++) {
        assert_int_equal(contents->activity[i].correlation, 2);
        assert_int_equal(contents->activity[i].graph_node, i - 3);
        assert_int_equal(contents->activity[i].name, contents->activity[3].name);
    }
}

/* CUPTI cannot step over what it does not know: the rest is counted, what lay before is kept. */
TEST_WITH(an_unknown_kind_ends_the_buffer_and_is_counted, begin, end) {
    records_kernel(&records, "before", 1, 2, 1);
    records_add(&records, (CUpti_ActivityKind)100000, 64);
    records_kernel(&records, "after", 3, 4, 2);
    const struct companion_contents *contents = parse();
    assert_int_equal(contents->activities, 1);
    assert_true(number_of(&contents->numbers, "cupti.left-bytes") ==
                64 + (int)sizeof(cupti_kernel));
}

#if CUPTI_API_VERSION >= 26
typedef CUpti_ActivitySynchronization2 synchronization;
#else
typedef CUpti_ActivitySynchronization synchronization;
#endif

TEST_WITH(kinds_nobody_asked_for_are_stepped_over, begin, end) {
    records_add(&records, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, sizeof(synchronization));
    records_kernel(&records, "after", 3, 4, 2);
    const struct companion_contents *contents = parse();
    assert_int_equal(contents->activities, 1);
    assert_true(number_of(&contents->numbers, "cupti.ignored") == 1);
    assert_true(number_of(&contents->numbers, "cupti.left-bytes") == 0);
}

TEST_WITH(a_truncated_buffer_gives_its_whole_records, begin, end) {
    uint64_t random = test_seed();
    int cut = test_random_int(&random, 8, (int)sizeof(cupti_kernel) - 1);
    records_kernel(&records, "a", 1, 2, 1);
    records_kernel(&records, "b", 3, 4, 2);
    records_kernel(&records, "c", 5, 6, 3);
    records.size -= sizeof(cupti_kernel) - (size_t)cut;
    const struct companion_contents *contents = parse();
    assert_int_equal(contents->activities, 2);
    assert_true(number_of(&contents->numbers, "cupti.left-bytes") == cut);
}

TEST_WITH(an_empty_buffer_is_no_record, begin, end) {
    const struct companion_contents *contents = parse();
    assert_int_equal(contents->activities, 0);
    assert_true(number_of(&contents->numbers, "cupti.left-bytes") == 0);
}

TEST_GROUP(companion_setup, companion_teardown);
