/* The five functions with descriptors filled by hand, in the orders in which NCCL calls them. */
#include "tests/profiler/device/companion.h"

#include <pthread.h>

#include "profiler/nccl/nccl.h"

enum { SAMPLED_MASK = 0x146, BETWEEN_MASK = 0x100 };

static struct nccl_profiler *const nccl = &ncclProfiler_v5;
static int mask;

static void *communicator(uint64_t hash, int ranks, int rank) {
    void *context = &mask; /* rubbish, to be overwritten */
    assert_int_equal(nccl->init(&context, hash, &mask, "name", 1, ranks, rank, NULL), 0);
    return context;
}

static void *start(void *context, struct nccl_event event) {
    void *handle = &mask;
    assert_int_equal(nccl->start_event(context, &handle, &event), 0);
    return handle;
}

static void *start_group(void *context) {
    return start(context,
                 (struct nccl_event){.type = NCCL_EVENT_GROUP_CALL, .group_call = {.depth = 1}});
}

static void *start_collective(void *context, void *parent, uint64_t sequence, int channels) {
    return start(context, (struct nccl_event){.type = NCCL_EVENT_COLLECTIVE,
                                              .parent = parent,
                                              .rank = 1,
                                              .collective = {.sequence = sequence,
                                                             .function = "AllReduce",
                                                             .count = 1000,
                                                             .root = 0,
                                                             .datatype = "ncclFloat32",
                                                             .channels = (uint8_t)channels,
                                                             .algorithm = "RING",
                                                             .protocol = "LL128"}});
}

static void *start_pair(void *context, void *parent, const char *function, int peer) {
    return start(context, (struct nccl_event){.type = NCCL_EVENT_PAIR,
                                              .parent = parent,
                                              .pair = {.function = function,
                                                       .datatype = "ncclBfloat16",
                                                       .count = 64,
                                                       .peer = peer,
                                                       .channels = 1}});
}

static void *start_channel(void *context, void *parent, int channel, uint64_t timer) {
    return start(context, (struct nccl_event){
                              .type = NCCL_EVENT_KERNEL_CHANNEL,
                              .parent = parent,
                              .kernel_channel = {.channel = (uint8_t)channel, .timer = timer}});
}

static void stop(void *handle) {
    assert_int_equal(nccl->stop_event(handle), 0);
}

static void stop_channel(void *handle, uint64_t timer) {
    union nccl_state state = {.timer = timer};
    assert_int_equal(nccl->record_state(handle, NCCL_STATE_KERNEL_CHANNEL_STOP, &state), 0);
    stop(handle);
}

static const char *name(const struct companion_contents *contents, uint32_t id) {
    assert_true(id < COMPANION_NAMES);
    return contents->names[id];
}

#define AT(member) offsetof(struct nccl_event, member)

/* Sizes and offsets on a 64-bit machine, from NCCL 2.28.9's own structures. */
TEST(the_layout_is_nccls) {
    assert_numbers(AT(type), 0, AT(parent), 8, AT(rank), 16);
    assert_numbers(AT(group_call.graph_captured), 24, AT(group_call.depth), 28);
    assert_numbers(AT(collective.sequence), 24, AT(collective.function), 32);
    assert_numbers(AT(collective.count), 56, AT(collective.root), 64);
    assert_numbers(AT(collective.datatype), 72, AT(collective.channels), 80);
    assert_numbers(AT(collective.warps), 81, AT(collective.algorithm), 88);
    assert_numbers(AT(collective.protocol), 96, AT(collective.parent_group), 104);
    assert_numbers(AT(pair.function), 24, AT(pair.datatype), 40, AT(pair.count), 48);
    assert_numbers(AT(pair.peer), 56, AT(pair.channels), 60, AT(pair.parent_group), 64);
    assert_numbers(AT(proxy_operation.pid), 24, AT(proxy_operation.peer), 32);
    assert_numbers(AT(kernel_channel.channel), 24, AT(kernel_channel.timer), 32);
    assert_int_equal(sizeof(struct nccl_event), 24 + 88); /* version 6's; version 5's is as large */
    assert_int_equal(sizeof(union nccl_state), 8);
    assert_int_equal(sizeof(struct nccl_profiler), 6 * sizeof(void *));
}

TEST(samples_are_checked) {
    static const char *const wrong[] = {"1",  "/",   "0/1",  "2/1",  "1/",
                                        "/1", "a/b", "1/2x", "-1/2", "1/9223372036854775807"};
    int64_t sampled, period;
    assert_true(nccl_parse_sample("3/7", &sampled, &period));
    assert_numbers(sampled, 3, period, 7);
    assert_true(nccl_parse_sample(NULL, &sampled, &period));
    assert_numbers(sampled, 1000, period, 10000);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(nccl_parse_sample(wrong[i], &sampled, &period));
}

/* "Stop" of the collective comes first, then its channels: the end is the last channel's. */
TEST(a_collective_ends_with_its_last_channel) {
    void *context = communicator(77, 4, 1);
    assert_int_equal(mask, SAMPLED_MASK);
    void *group = start_group(context);
    void *call =
        start(context, (struct nccl_event){.type = NCCL_EVENT_COLLECTIVE_CALL, .parent = group});
    void *operation = start_collective(context, call, 9, 2);
    assert_non_null(operation);
    stop(operation);
    stop(call);
    stop(group);
    void *channel[2] = {start_channel(context, operation, 0, 5000),
                        start_channel(context, operation, 1, 4000)};
    stop_channel(channel[1], 9000);
    stop_channel(channel[0], 8000);
    stop_channel(channel[0], 99999); /* once more: it is over, nothing happens */
    nccl->finalize(context);

    const struct companion_contents *contents = companion_read();
    assert_int_equal(contents->files, 1);
    assert_true(contents->ended);
    assert_string_equal(contents->status, "on");
    assert_int_equal(contents->collectives, 1);
    const struct mp_collective *is = &contents->collective[0];
    assert_numbers(is->timer_start, 4000, is->timer_end, 9000, is->communicator, 77);
    assert_numbers(is->sequence, 9, is->group, 1, is->count, 1000, is->ranks, 4, is->rank, 1);
    assert_numbers(is->channels, 2, is->timed_channels, 2, is->is_pair, 0);
    assert_true(is->start_ns > 0 && is->queued_ns >= is->start_ns);
    assert_string_equal(name(contents, is->function), "AllReduce");
    assert_string_equal(name(contents, is->datatype), "ncclFloat32");
    assert_string_equal(name(contents, is->algorithm), "RING");
    assert_string_equal(name(contents, is->protocol), "LL128");
    assert_true(number_of(&contents->numbers, "nccl.operations") == 1);
    assert_true(number_of(&contents->numbers, "nccl.unfinished") == 0);
    assert_true(number_of(&contents->numbers, "nccl.callback-ns") > 0);
    assert_numbers(contents->timers, 1, contents->timer[0].samples, 2);
    /* The later reading of the timer is the smaller difference, unless the clock took longer. */
    assert_true(contents->timer[0].offset_ns <= contents->timer[0].at_ns - 9000);
}

/* Channels before "stop", and a channel's event that ends without a time. */
TEST(order_does_not_matter) {
    void *context = communicator(78, 2, 0);
    void *early = start_collective(context, NULL, 1, 1);
    stop_channel(start_channel(context, early, 0, 100), 300);
    stop(early);
    void *untimed = start_collective(context, NULL, 2, 1);
    stop(start_channel(context, untimed, 0, 400));
    stop(untimed);
    void *without = start_collective(context, NULL, 3, 0); /* no channel will come */
    stop(without);
    nccl->finalize(context);
    const struct companion_contents *contents = companion_read();
    assert_numbers(contents->collectives, 3, contents->collective[0].timer_end, 300);
    assert_numbers(contents->collective[0].group, 0, contents->collective[1].timer_end, 0);
    assert_int_equal(contents->collective[2].timed_channels, 0);
    assert_true(number_of(&contents->numbers, "nccl.unfinished") == 0);
}

/* An all-to-all of 4 ranks: a send and a receive per peer, itself included, in one group. */
TEST(an_all_to_all_is_pairs_of_one_group) {
    void *context = communicator(79, 4, 2), *pair[8];
    stop(start_group(context));
    void *group = start_group(context);
    for (int peer = 0; peer < 4; peer++) {
        void *call =
            start(context, (struct nccl_event){.type = NCCL_EVENT_PAIR_CALL, .parent = group});
        pair[2 * peer] = start_pair(context, call, "Send", peer);
        pair[2 * peer + 1] = start_pair(context, call, "Recv", peer);
    }
    for (int i = 0; i < 8; i++)
        stop(pair[i]);
    stop(group);
    for (int i = 0; i < 8; i++)
        stop_channel(start_channel(context, pair[i], 0, 10 + (uint64_t)i), 50 + (uint64_t)i);
    nccl->finalize(context);
    const struct companion_contents *contents = companion_read();
    assert_int_equal(contents->collectives, 8);
    for (int i = 0; i < 8; i++) {
        const struct mp_collective *is = &contents->collective[i];
        assert_numbers(is->is_pair, 1, is->group, 2, is->peer, i / 2, is->sequence, 0);
        assert_string_equal(name(contents, is->function), i % 2 ? "Recv" : "Send");
        assert_int_equal(is->timer_end, 50 + i);
    }
}

/* Two groups of every five, by changing NCCL's mask. */
TEST(the_mask_samples_groups) {
    setenv("MOEPERF_NCCL_SAMPLE", "2/5", 1);
    void *context = communicator(80, 2, 0);
    for (int i = 0; i < 20; i++) {
        void *group = start_group(context);
        assert_int_equal(mask, i % 5 < 2 ? SAMPLED_MASK : BETWEEN_MASK);
        stop(group);
    }
    nccl->finalize(context);
    unsetenv("MOEPERF_NCCL_SAMPLE");
    assert_true(number_of(&companion_read()->numbers, "nccl.groups") == 20);
}

TEST(what_is_unfinished_is_recorded_and_counted) {
    void *context = communicator(81, 2, 0);
    void *half = start_collective(context, NULL, 1, 2),
         *none = start_collective(context, NULL, 2, 2);
    stop(half);
    stop_channel(start_channel(context, half, 0, 10), 20);
    void *late = start_channel(context, none, 0, 30);
    nccl->finalize(context);
    stop_channel(late, 40); /* after the end of everything */
    stop(none);
    assert_null(start_collective(context, NULL, 3, 1));
    const struct companion_contents *contents = companion_read();
    assert_numbers(contents->collectives, 2, contents->collective[0].timer_end, 20);
    assert_int_equal(contents->collective[0].timed_channels, 1);
    assert_int_equal(contents->collective[1].timer_start, 0);
    assert_true(number_of(&contents->numbers, "nccl.unfinished") == 2);
}

TEST_RANDOM(rubbish_is_tolerated) {
    struct nccl_event event = {.type = NCCL_EVENT_COLLECTIVE};
    void *handle = &mask;
    assert_int_equal(nccl->init(NULL, 1, &mask, NULL, 1, 1, 0, NULL), 0);
    assert_int_equal(nccl->start_event(NULL, &handle, &event), 0);
    assert_null(handle);
    assert_int_equal(nccl->start_event(&event, NULL, &event), 0);
    assert_int_equal(nccl->stop_event(NULL), 0);
    assert_int_equal(nccl->record_state(NULL, NCCL_STATE_KERNEL_CHANNEL_STOP, NULL), 0);
    assert_int_equal(nccl->finalize(NULL), 0);
    assert_int_equal(nccl->finalize(&event), 0);

    void *context = communicator(82, 2, 0);
    for (int i = 0; i < 20000; i++) {
        void *any = (void *)(uintptr_t)(test_random(random) >> test_random_int(random, 0, 60));
        union nccl_state state_of = {.timer = test_random(random)};
        struct nccl_event strange = {.type = 1ull << test_random_int(random, 3, 20),
                                     .parent = any,
                                     .proxy_operation = {.pid = getpid() + 1}};
        nccl->stop_event(any);
        nccl->record_state(any, test_random_int(random, 0, 30), &state_of);
        nccl->start_event(test_random(random) & 1 ? context : any, &handle, &strange);
    }
    nccl->finalize(context);
    const struct companion_contents *contents = companion_read();
    assert_int_equal(contents->collectives, 0);
    assert_true(number_of(&contents->numbers, "nccl.foreign") > 0);
}

/* Off in every way: no event is asked for, and those that come anyway do nothing. */
TEST(a_failed_start_leaves_nothing) {
    setenv("MOEPERF_NCCL_SAMPLE", "nonsense", 1);
    mask = 5;
    assert_null(communicator(83, 2, 0));
    assert_int_equal(mask, 0);
    assert_null(start_collective(NULL, NULL, 1, 1));
    unsetenv("MOEPERF_NCCL_SAMPLE");
    const struct companion_contents *contents = companion_read();
    assert_contains(contents->status, "nonsense");
    unsetenv("MOEPERF_DEVICE_SPOOLS");
    assert_null(communicator(84, 2, 0));
    assert_int_equal(mask, 0);
    setenv("MOEPERF_DEVICE_SPOOLS", companion_folder, 1);
    assert_int_equal(companion_read()->files, 0);
}

TEST(too_many_operations_are_counted) {
    void *context = communicator(85, 2, 0), *first = NULL;
    for (int i = 0; i < NCCL_OPERATIONS; i++) {
        void *handle = start_collective(context, NULL, (uint64_t)i, 1);
        assert_non_null(handle);
        first = first ? first : handle;
    }
    assert_null(start_collective(context, NULL, 0, 1));
    stop(first);
    stop_channel(start_channel(context, first, 0, 1), 2);
    void *again = start_collective(context, NULL, 0, 1); /* its place is free again */
    assert_non_null(again);
    assert_ptr_not_equal(again, first);
    assert_null(start_channel(context, first, 0, 1));
    nccl->finalize(context);
    AUTO(files) glob_t found = files_with(companion_folder, ".device");
    AUTO(spool) struct mp_spool_reader *reader = open_spool(found.gl_pathv[0]);
    struct mp_spool_record record; /* too many for companion_read */
    struct numbers numbers = {0};
    while (next_of(reader, MP_SPOOL_NUMBER, &record))
        keep_number(&numbers, &record);
    assert_true(number_of(&numbers, "nccl.lost") == 1);
    companion_remove_files();
}

enum { THREADS = 4, ROUNDS = 200 };

struct worker {
    void *context, *operation[ROUNDS];
};

/* The proxy thread of a communicator: channels of what another thread has queued. */
static void *proxy(void *argument) {
    struct worker *worker = argument;
    for (int i = 0; i < ROUNDS; i++) {
        void *operation;
        do
            operation = __atomic_load_n(&worker->operation[i], __ATOMIC_ACQUIRE);
        while (!operation);
        void *one = start_channel(worker->context, operation, 0, 1000u * (uint64_t)i + 1);
        void *two = start_channel(worker->context, operation, 1, 1000u * (uint64_t)i + 2);
        stop_channel(one, 1000u * (uint64_t)i + 500);
        stop_channel(two, 1000u * (uint64_t)i + 400);
    }
    return NULL;
}

static void *program(void *argument) {
    struct worker *worker = argument;
    for (int i = 0; i < ROUNDS; i++) {
        void *group = start_group(worker->context);
        void *operation = start_collective(worker->context, group, (uint64_t)i + 1, 2);
        __atomic_store_n(&worker->operation[i], operation, __ATOMIC_RELEASE);
        stop(operation); /* before, between or after its channels */
        stop(group);
    }
    return NULL;
}

TEST(threads_do_not_mix_their_operations) {
    static struct worker worker[THREADS];
    pthread_t thread[2 * THREADS];
    bool seen[THREADS][ROUNDS] = {{false}};
    setenv("MOEPERF_NCCL_SAMPLE", "1/1", 1);
    for (int t = 0; t < THREADS; t++)
        worker[t].context = communicator(100 + (uint64_t)t, THREADS, t);
    for (int t = 0; t < THREADS; t++) {
        assert_int_equal(pthread_create(&thread[2 * t], NULL, proxy, &worker[t]), 0);
        assert_int_equal(pthread_create(&thread[2 * t + 1], NULL, program, &worker[t]), 0);
    }
    for (int t = 0; t < 2 * THREADS; t++)
        pthread_join(thread[t], NULL);
    for (int t = 0; t < THREADS; t++)
        nccl->finalize(worker[t].context);
    unsetenv("MOEPERF_NCCL_SAMPLE");
    const struct companion_contents *contents = companion_read();
    assert_int_equal(contents->collectives, THREADS * ROUNDS);
    for (int i = 0; i < contents->collectives; i++) {
        const struct mp_collective *is = &contents->collective[i];
        uint64_t round = is->sequence - 1;
        assert_in_range(is->communicator, 100, 100 + THREADS - 1);
        assert_numbers(is->group, is->sequence, is->timer_start, 1000 * round + 1);
        assert_int_equal(is->timer_end, 1000 * round + 500);
        assert_false(seen[is->communicator - 100][round]);
        seen[is->communicator - 100][round] = true;
    }
}

TEST_GROUP(companion_setup, companion_teardown);
