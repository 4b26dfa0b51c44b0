/* How ranks meet without MPI: at an address, by files, and what is said when they don't. */
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/reference/comm/nccl/processes.h"

static char folder[] = "/tmp/nccl-meeting-XXXXXX";

/* ---- places ---- */

/* A socket on a free port of this host, which MASTER_PORT then names. */
static int take_port(bool listens) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_ANY)}};
    socklen_t length = sizeof address;
    int taken = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(taken, (struct sockaddr *)&address, length), 0);
    if (listens)
        assert_int_equal(listen(taken, 8), 0);
    assert_int_equal(getsockname(taken, (struct sockaddr *)&address, &length), 0);
    set_number("MASTER_PORT", ntohs(address.sin_port));
    return taken;
}

static void meet_at_address(void) {
    unsetenv("MOEPERF_RENDEZVOUS");
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    close(take_port(false));
}

static void meet_by_files(void) {
    char place[128];
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    snprintf(place, sizeof place, "file:%s/meeting", folder);
    setenv("MOEPERF_RENDEZVOUS", place, 1);
}

static int files_left(void) {
    int count = 0;
    DIR *open = opendir(folder);
    for (struct dirent *entry; (entry = readdir(open));)
        count += entry->d_name[0] != '.';
    closedir(open);
    return count;
}

static void either_place(bool files) {
    if (files)
        meet_by_files();
    else
        meet_at_address();
}

/* ---- bodies ---- */

static void join_and_use(struct rank *me) {
    if (!join(me))
        use(me);
    if (!me->error.code)
        snprintf(me->answer.text, sizeof me->answer.text, "%s", mp_comm_nccl_remark(me->comm));
    leave(me);
}

static void give_up_soon(struct rank *me) {
    me->settings.meeting_s = 1;
    join_and_use(me);
}

static void share_a_gpu(struct rank *me) {
    if (me->rank == me->ranks - 1)
        me->gpu.uuid[0] = 1; /* rank 0's */
    me->settings.ordinal = 0;
    join_and_use(me);
}

static void have_another_gpu(struct rank *me) {
    if (me->rank == 1)
        snprintf(me->gpu.name, sizeof me->gpu.name, "NVIDIA A100");
    join_and_use(me);
}

static void insist_on_equal_gpus(struct rank *me) {
    me->settings.refuse_mixed = true;
    have_another_gpu(me);
}

static void lack_nccl(struct rank *me) {
    if (me->rank == 1)
        setenv("MOEPERF_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
    join_and_use(me);
}

static void have_another_nccl(struct rank *me) {
    if (me->rank == 1)
        setenv("MOEPERF_DOUBLE_NCCL_VERSION", "22105", 1);
    join_and_use(me);
}

static void have_an_old_nccl(struct rank *me) {
    setenv("MOEPERF_DOUBLE_NCCL_VERSION", "21000", 1);
    join_and_use(me);
}

static void fail_to_join(struct rank *me) {
    setenv("MOEPERF_DOUBLE_NCCL_JOIN", "1", 1);
    join_and_use(me);
}

static void think_of_three(struct rank *me) {
    if (me->rank == 1)
        set_number("WORLD_SIZE", 3);
    me->settings.meeting_s = 3;
    join_and_use(me);
}

static void both_be_one(struct rank *me) {
    if (me->rank == 2)
        set_number("RANK", 1);
    me->settings.meeting_s = 3;
    join_and_use(me);
}

/* ---- tests ---- */

static void all_meet(void **state) {
    struct answer answer[MOST_RANKS];
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
        either_place(*state != NULL);
        run_ranks(ranks, join_and_use, answer);
        for (int r = 0; r < ranks; r++) {
            assert_fine(&answer[r]);
            assert_string_equal(answer[r].text, "");
        }
        assert_int_equal(files_left(), 0);
    }
}

/* The first to come waits for the last. */
static void rank_0_may_come_last(void **state) {
    struct process process[3];
    either_place(*state != NULL);
    for (int r = 2; r >= 0; r--) {
        struct timespec pause = {.tv_nsec = 200000000};
        process[r] = start_rank(r, 3, join_and_use);
        nanosleep(&pause, NULL);
    }
    for (int r = 0; r < 3; r++) {
        struct answer answer = hear(process[r]);
        assert_fine(&answer);
    }
}

/* Two of three ranks were killed while they waited for the third. */
static void what_others_left_is_passed_over(void **state) {
    (void)state;
    struct process process[3];
    struct answer answer[3];
    struct timespec pause = {.tv_nsec = 300000000};
    int status;
    meet_by_files();
    for (int r = 0; r < 2; r++)
        process[r] = start_rank(r, 3, join_and_use);
    nanosleep(&pause, NULL);
    for (int r = 0; r < 2; r++) {
        kill(process[r].pid, SIGKILL);
        waitpid(process[r].pid, &status, 0);
        close(process[r].pipe);
    }
    assert_int_equal(files_left(), 2); /* the call and a card */
    /* Rank 1 comes first and answers the old call before rank 0 makes a new one. */
    for (int r = 2; r >= 0; r--) {
        process[r] = start_rank(r, 3, join_and_use);
        nanosleep(&pause, NULL);
    }
    for (int r = 0; r < 3; r++)
        answer[r] = hear(process[r]);
    for (int r = 0; r < 3; r++)
        assert_fine(&answer[r]);
    assert_int_equal(files_left(), 0);
}

/* torchrun's own store listens on MASTER_PORT. */
static void torchrun_keeps_its_port(void **state) {
    (void)state;
    struct answer answer[3];
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    unsetenv("MOEPERF_RENDEZVOUS");
    int taken = take_port(true);
    run_ranks(2, give_up_soon, answer);
    assert_says(&answer[0], MP_ECOMM, "(MASTER_PORT): Address already in use");
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    run_ranks(3, join_and_use, answer);
    for (int r = 0; r < 3; r++)
        assert_fine(&answer[r]);
    setenv("MASTER_PORT", "65535", 1);
    run_ranks(2, join_and_use, answer);
    assert_says(&answer[0], MP_EINVAL,
                "MASTER_PORT=65535 in the environment; it takes a number 1 ");
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    close(taken);
}

static void who_does_not_come_is_named(void **state) {
    bool files = *state != NULL;
    either_place(files);
    struct process zero = start_rank(0, 4, give_up_soon), two = start_rank(2, 4, give_up_soon);
    struct answer answer = hear(zero);
    assert_says(&answer, MP_ECOMM, "of 4 ranks rank 1, 3 did not come");
    assert_says(&answer, MP_ECOMM, files ? "MOEPERF_RENDEZVOUS" : "MASTER_PORT");
    answer = hear(two);
    assert_int_equal(answer.code, MP_ECOMM);
    either_place(files);
    answer = hear(start_rank(1, 2, give_up_soon));
    assert_says(&answer, MP_ECOMM,
                files ? "it waited for 1 s for rank 0 at file"
                      : "for 1 s nobody answered at 127.0.0.1:");
    assert_int_equal(files_left(), 0);
}

static void worlds_of_two_sizes_are_refused(void **state) {
    struct answer answer[2];
    either_place(*state != NULL);
    run_ranks(2, think_of_three, answer);
    assert_says(&answer[0], MP_ECOMM,
                "rank 1 was started as one of 3 ranks (WORLD_SIZE), rank 0 as one of 2");
    assert_int_equal(answer[1].code, MP_ECOMM);
    if (!*state)
        assert_string_equal(answer[1].text, answer[0].text);
}

static void two_ranks_of_one_number_are_refused(void **state) {
    (void)state;
    struct answer answer[3];
    meet_at_address();
    run_ranks(3, both_be_one, answer);
    assert_says(&answer[0], MP_ECOMM, "rank 1 was started twice (RANK)");
    assert_says(&answer[1], MP_ECOMM, "rank 1 was started twice (RANK)");
    assert_says(&answer[2], MP_ECOMM, "rank 1 was started twice (RANK)");
}

static void gpus_are_compared(void **state) {
    (void)state;
    struct answer answer[3];
    meet_by_files();
    run_ranks(3, share_a_gpu, answer);
    for (int r = 0; r < 3; r++)
        assert_says(&answer[r], MP_EINVAL, "ranks 0 and 2 are both on GPU 0 (NVIDIA H200) of host");
    run_ranks(2, have_another_gpu, answer);
    for (int r = 0; r < 2; r++) {
        assert_fine(&answer[r]);
        assert_string_equal(answer[r].text,
                            "GPUs differ: rank 0 has NVIDIA H200, rank 1 has NVIDIA "
                            "A100; the slower ones set the pace");
    }
    run_ranks(2, insist_on_equal_gpus, answer);
    for (int r = 0; r < 2; r++)
        assert_says(&answer[r], MP_EINVAL, "rank 1 has NVIDIA A100");
}

/* Everybody says what is wrong with one of them. */
static void one_without_nccl_is_known_to_all(void **state) {
    struct answer answer[3];
    either_place(*state != NULL);
    run_ranks(3, lack_nccl, answer);
    for (int r = 0; r < 3; r++) {
        assert_says(&answer[r], r == 1 ? MP_ENOTFOUND : MP_ECOMM,
                    "rank 1: NCCL can't be loaded (/nowhere/libnccl.so.2");
        assert_says(&answer[r], answer[r].code, "MOEPERF_NCCL_LIBRARY, or use transport mpi");
    }
    run_ranks(2, have_another_nccl, answer);
    for (int r = 0; r < 2; r++)
        assert_says(&answer[r], MP_EVERSION, "has NCCL 22105");
    answer[0] = hear(start_rank(0, 1, have_an_old_nccl));
    assert_says(&answer[0], MP_EVERSION, "says that it is version 21000 of NCCL; it takes 2.18");
    answer[0] = hear(start_rank(0, 1, fail_to_join));
    assert_says(&answer[0], MP_ECOMM, "rank 0: joining the others: NCCL: unhandled system error");
}

static void ports_that_others_use_are_told(void **state) {
    (void)state;
    meet_at_address();
    int taken = take_port(true);
    struct answer answer = hear(start_rank(0, 2, give_up_soon));
    assert_says(&answer, MP_ECOMM, "rank 0: it can't listen on port ");
    struct process one = start_rank(1, 2, give_up_soon);
    close(accept(taken, NULL, NULL));
    answer = hear(one);
    assert_says(&answer, MP_ECOMM, "went away without an answer");
    close(taken);
    setenv("MASTER_ADDR", "no.such.host.invalid", 1);
    answer = hear(start_rank(1, 2, give_up_soon));
    assert_says(&answer, MP_EINVAL, "MASTER_ADDR=no.such.host.invalid");
}

/* ---- the environment of one process ---- */

struct environment {
    const char *rank, *ranks, *place, *sentence;
};

static const struct environment *given;

static void set_or_not(const char *name, const char *value) {
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void be_told(struct rank *me) {
    unsetenv("MASTER_ADDR");
    set_or_not("RANK", given->rank);
    set_or_not("WORLD_SIZE", given->ranks);
    set_or_not("MOEPERF_RENDEZVOUS", given->place);
    me->rank = 0;
    me->ranks = 1;
    join_and_use(me);
}

static void environments_are_checked(void **state) {
    static const struct environment environments[] = {
        {NULL, NULL, NULL, NULL}, /* a world of one */
        {"0", "1", NULL, NULL},
        {"0", NULL, NULL, "WORLD_SIZE= in the environment"},
        {NULL, "2", "file:/tmp/x", "RANK= in the environment; it takes a number 0 .. 1"},
        {"2", "2", "file:/tmp/x", "RANK=2 in the environment; it takes a number 0 .. 1"},
        {"1x", "2", "file:/tmp/x", "RANK=1x in the environment"},
        {"0", "-3", "file:/tmp/x", "WORLD_SIZE=-3 in the environment"},
        {"0", "2", "tcp://here", "MOEPERF_RENDEZVOUS=tcp://here; it takes file:/PATH"},
        {"0", "2", NULL, "nothing says where the ranks meet"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof environments / sizeof *environments; i++) {
        given = &environments[i];
        struct answer answer = hear(start_rank(0, 1, be_told));
        if (given->sentence)
            assert_says(&answer, MP_EINVAL, given->sentence);
        else
            assert_fine(&answer);
    }
}

static void write_nowhere(struct rank *me) {
    setenv("MOEPERF_RENDEZVOUS", "file:/nowhere/at/all", 1);
    join_and_use(me);
}

static void have_no_gpu(struct rank *me) {
    me->device = queue_device_create(1, 0);
    me->device->deferred = false;
    join_and_use(me);
}

static void places_and_devices_must_exist(void **state) {
    (void)state;
    struct answer answer = hear(start_rank(0, 2, write_nowhere));
    assert_says(&answer, MP_EIO, "/nowhere/at/all.call (MOEPERF_RENDEZVOUS): No such file");
    answer = hear(start_rank(0, 1, have_no_gpu));
    assert_says(&answer, MP_EINVAL, "transport nccl is for the memory of GPUs");
}

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

#define BOTH(test)                                                                                 \
    {#test "_address", test, NULL, NULL, NULL}, {                                                  \
#test "_files", test, NULL, NULL, folder                                                   \
    }

int main(void) {
    const struct CMUnitTest meeting[] = {
        BOTH(all_meet),
        BOTH(rank_0_may_come_last),
        cmocka_unit_test(torchrun_keeps_its_port),
        cmocka_unit_test(what_others_left_is_passed_over),
        BOTH(who_does_not_come_is_named),
        BOTH(worlds_of_two_sizes_are_refused),
        cmocka_unit_test(two_ranks_of_one_number_are_refused),
        cmocka_unit_test(gpus_are_compared),
        BOTH(one_without_nccl_is_known_to_all),
        cmocka_unit_test(ports_that_others_use_are_told),
        cmocka_unit_test(environments_are_checked),
        cmocka_unit_test(places_and_devices_must_exist),
    };
    return cmocka_run_group_tests(meeting, make_folder, remove_folder);
}
