/* How ranks meet without MPI: by files, which nobody else can have written, and what is said when
 * they don't. */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <sys/stat.h>

#include "profiler/record/record.h"
#include "reference/comm/nccl/meeting.h"
#include "tests/reference/comm/nccl/processes.h"

enum { NOBODY = 65534 };

static char folder[] = "/tmp/nccl-meeting-XXXXXX";
static char place[128];  /* the folder that the ranks meet in, within that */
static const char *name; /* what its files are called */

/* ---- places ---- */

/* As torchrun starts them; ranks set LOCAL_WORLD_SIZE to their WORLD_SIZE. */
static void meet_on_one_host(void) {
    unsetenv("MOEPERF_RENDEZVOUS");
    setenv("TMPDIR", folder, 1);
    setenv("MASTER_PORT", "29500", 1);
    setenv("TORCHELASTIC_RUN_ID", "run/7", 1);
    snprintf(place, sizeof place, "%s/moeperf-%u", folder, (unsigned)geteuid());
    name = "29500-run_7";
}

static void meet_in_a_given_folder(void) {
    char given[160];
    unsetenv("MASTER_PORT");
    snprintf(place, sizeof place, "%s/given", folder);
    snprintf(given, sizeof given, "file:%s", place);
    setenv("MOEPERF_RENDEZVOUS", given, 1);
    name = "meeting";
}

static const struct {
    const char *name;
    void (*meet)(void);
} places[] = {{"on one host", meet_on_one_host}, {"in a given folder", meet_in_a_given_folder}};

/* The folder itself stays, for the next run. */
static int files_left(void) {
    int count = 0;
    DIR *open = opendir(place);
    for (struct dirent *entry; open && (entry = readdir(open));)
        count += entry->d_name[0] != '.';
    if (open)
        closedir(open);
    return count;
}

static const char *path_of(const char *part) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s.%s", place, name, part);
    return path;
}

static void wait_for_file(const char *part) {
    const struct timespec pause = {.tv_nsec = 1000000};
    while (access(path_of(part), F_OK))
        nanosleep(&pause, NULL);
}

/* ---- files ---- */

/* As meeting_files.c has it: what every file begins with. */
struct head {
    uint32_t magic, version;
    uint64_t call;
};

struct forged {
    struct head head;
    struct mp_card card;
};

static struct head read_call(void) {
    struct head head;
    wait_for_file("call");
    FILE *file = fopen(path_of("call"), "r");
    assert_int_equal(fread(&head, sizeof head, 1, file), 1);
    fclose(file);
    return head;
}

/* In one go, as ranks do, so that none of it is met half made. */
static void put_file(const char *part, const void *memory, size_t bytes, mode_t mode, uid_t owner) {
    char other[160];
    snprintf(other, sizeof other, "%s/other", folder);
    FILE *file = fopen(other, "w");
    assert_int_equal(fwrite(memory, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(other, mode), 0);
    assert_int_equal(chown(other, owner, (gid_t)-1), 0);
    assert_int_equal(rename(other, path_of(part)), 0);
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

static void have_gpus_of_all_kinds(struct rank *me) {
    if (me->rank > 0)
        snprintf(me->gpu.name, sizeof me->gpu.name, me->rank == 1 ? "NVIDIA L40S" : "");
    join_and_use(me);
}

/* Ties this process to one core that it may be tied to: the first one, or the last. */
static void tie(bool last) {
    cpu_set_t all, one;
    int core = last ? CPU_SETSIZE - 1 : 0;
    sched_getaffinity(0, sizeof all, &all);
    while (!CPU_ISSET(core, &all))
        core += last ? -1 : 1;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void say_whether_cores_are_shared(struct rank *me) {
    bool shared = false;
    char text[256];
    if (!join(me))
        mp_comm_describe(me->comm, text, sizeof text, &shared);
    snprintf(me->answer.text, sizeof me->answer.text, shared ? "shared" : "its own");
    leave(me);
}

static void be_on_one_core(struct rank *me) {
    tie(false);
    say_whether_cores_are_shared(me);
}

static void be_on_two_cores(struct rank *me) {
    tie(me->rank == 1);
    say_whether_cores_are_shared(me);
}

static void have_a_small_gpu(struct rank *me) {
    me->gpu.processors = me->rank == 1 ? 20 : 132;
    if (me->rank == 1)
        setenv("MOEPERF_DOUBLE_NCCL_PROCESSORS", "10", 1); /* half is left to computations */
    join_and_use(me);
}

/* What one rank finds in its environment. */
static struct {
    int rank;
    const char *variable, *value;
} found;

static void find(struct rank *me) {
    if (me->rank == found.rank)
        setenv(found.variable, found.value, 1);
    join_and_use(me);
}

typedef void (*rank_body)(struct rank *me);
static rank_body rank_finds(int rank, const char *variable, const char *value) {
    found.rank = rank;
    found.variable = variable;
    found.value = value;
    return find;
}

static void think_of_three(struct rank *me) {
    if (me->rank == 1) {
        set_number("WORLD_SIZE", 3);
        set_number("LOCAL_WORLD_SIZE", 3);
    }
    join_and_use(me);
}

/* Without MPI clock messages go over NCCL.  All ranks read one clock: the true offset is 0. */
static void compare_clocks(struct rank *me) {
    enum { TRIPS = 20 };
    int64_t offset = 1, off_by = -1;
    if (!join(me)) {
        const int64_t begin = mp_clock_ns();
        if (!mp_comm_clock_offset(me->comm, TRIPS, &offset, &off_by, &me->error) &&
            (llabs(offset) > off_by || (me->rank > 0) != (off_by > 0) ||
             off_by > (mp_clock_ns() - begin) / TRIPS / 2 + 1))
            mp_fail(&me->error, MP_EINVAL, "rank %d: offset %lld ns, error %lld ns", me->rank,
                    (long long)offset, (long long)off_by);
    }
    leave(me);
}

/* ---- tests ---- */

TEST(clocks_are_compared_over_nccl) {
    meet_on_one_host();
    assert_all_say(3, compare_clocks, MP_OK, "");
}

/* Of a meeting that succeeds. */
static void assert_all_remark(int ranks, rank_body body, const char *text) {
    struct answer answer[MOST_RANKS];
    run_ranks(ranks, body, answer);
    for (int r = 0; r < ranks; r++) {
        assert_fine(&answer[r]);
        assert_string_equal(answer[r].text, text);
    }
}

TEST_EACH(all_meet, places, where) {
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
        where->meet();
        assert_all_remark(ranks, join_and_use, "");
        assert_int_equal(files_left(), 0);
    }
}

/* The first to come waits for the last. */
TEST_EACH(rank_0_may_come_last, places, where) {
    const struct timespec pause = {.tv_nsec = 30000000};
    struct process process[3];
    where->meet();
    for (int r = 2; r >= 0; r--) {
        process[r] = start_rank(r, 3, join_and_use);
        nanosleep(&pause, NULL);
    }
    for (int r = 0; r < 3; r++) {
        struct answer answer = hear(process[r]);
        assert_fine(&answer);
    }
}

/* Two of three ranks were killed while they waited for the third. */
TEST_EACH(what_others_left_is_passed_over, places, where) {
    struct process process[3];
    struct answer answer[3];
    int status;
    where->meet();
    for (int r = 0; r < 2; r++)
        process[r] = start_rank(r, 3, join_and_use);
    wait_for_file("call");
    wait_for_file("1");
    for (int r = 0; r < 2; r++) {
        kill(process[r].pid, SIGKILL);
        waitpid(process[r].pid, &status, 0);
        close(process[r].pipe);
    }
    struct stat old, now;
    assert_int_equal(stat(path_of("1"), &old), 0);
    /* Rank 1 comes first and answers the old call before rank 0 makes a new one. */
    process[1] = start_rank(1, 3, join_and_use);
    do
        assert_int_equal(stat(path_of("1"), &now), 0);
    while (now.st_ino == old.st_ino);
    process[2] = start_rank(2, 3, join_and_use);
    wait_for_file("2");
    process[0] = start_rank(0, 3, join_and_use);
    for (int r = 0; r < 3; r++)
        answer[r] = hear(process[r]);
    for (int r = 0; r < 3; r++)
        assert_fine(&answer[r]);
    assert_int_equal(files_left(), 0);
}

/* It has called, and ends without an answer. */
TEST(rank_0_that_goes_away_is_told) {
    const struct head call = {MP_MEETING_MAGIC, MP_MEETING_VERSION, 77};
    meet_in_a_given_folder();
    put_file("call", &call, sizeof call, 0600, geteuid());
    struct process one = start_rank(1, 2, join_and_use);
    wait_for_file("1");
    assert_int_equal(remove(path_of("call")), 0);
    struct answer answer = hear(one);
    assert_says(&answer, MP_ECOMM, "rank 1: rank 0 went away while the ranks met");
    assert_int_equal(files_left(), 0);
}

TEST_EACH(who_does_not_come_is_named, places, where) {
    bool is_given = where->meet == meet_in_a_given_folder;
    where->meet();
    struct process zero = start_rank(0, 4, give_up_soon), two = start_rank(2, 4, give_up_soon);
    struct answer answer = hear(zero);
    assert_says(&answer, MP_ECOMM, "of 4 ranks ranks 1, 3 did not come");
    assert_says(&answer, MP_ECOMM, is_given ? "same MOEPERF_RENDEZVOUS" : "same MASTER_PORT");
    assert_says(&answer, MP_ECOMM, place);
    answer = hear(two); /* has rank 0's sentence */
    assert_says(&answer, MP_ECOMM, "of 4 ranks ranks 1, 3 did not come");
    answer = hear(start_rank(1, 2, give_up_soon));
    assert_says(&answer, MP_ECOMM, "rank 1: it waited for 1 s for rank 0 at files ");
    assert_int_equal(files_left(), 0);
}

TEST_EACH(worlds_of_two_sizes_are_refused, places, where) {
    where->meet();
    assert_all_say(2, think_of_three, MP_ECOMM,
                   "rank 1 was started as one of 3 ranks (WORLD_SIZE), rank 0 as one of 2");
    assert_int_equal(files_left(), 0);
}

TEST(two_ranks_of_one_number_are_refused) {
    struct answer answer[3];
    meet_on_one_host();
    run_ranks(3, rank_finds(2, "RANK", "1"), answer);
    assert_says(&answer[0], MP_ECOMM, "rank 1 was started twice (RANK)");
    for (int r = 1; r < 3; r++) /* the card that both show is there once */
        if (!strstr(answer[r].text, "rank 0 went away"))
            assert_says(&answer[r], MP_ECOMM, "rank 1 was started twice (RANK)");
    /* The second of two rank 0 takes the call away from the first. */
    struct process first = start_rank(0, 2, join_and_use);
    wait_for_file("call");
    struct process second = start_rank(0, 2, join_and_use);
    answer[0] = hear(first);
    assert_says(&answer[0], MP_ECOMM, "rank 0 was started twice (RANK), or another run meets");
    kill(second.pid, SIGKILL);
    answer[1] = hear(second);
    remove(path_of("call"));
}

/* ---- what nobody of this run has written ---- */

static void put_card(const struct forged *forged) {
    put_file("1", forged, sizeof *forged, 0600, geteuid());
}

static void put_shorter(const struct forged *forged) {
    put_file("1", forged, sizeof *forged - 1, 0600, geteuid());
}

static void put_longer(const struct forged *forged) {
    struct forged two[2] = {*forged, *forged};
    put_file("1", two, sizeof *two + 1, 0600, geteuid());
}

static void put_writable(const struct forged *forged) {
    put_file("1", forged, sizeof *forged, 0620, geteuid());
}

static void put_foreign(const struct forged *forged) {
    put_file("1", forged, sizeof *forged, 0600, NOBODY);
}

static void put_link(UNUSED const struct forged *forged) {
    assert_int_equal(symlink("/etc/passwd", path_of("1")), 0);
}

static void put_pipe(UNUSED const struct forged *forged) {
    assert_int_equal(mkfifo(path_of("1"), 0600), 0);
}

/* Rank 0 waits until who showed a card has read why it is refused, and taken the card away. */
static struct answer hear_refusal(struct process zero) {
    wait_for_file("refusal");
    assert_int_equal(remove(path_of("1")), 0);
    return hear(zero);
}

/* A card that answers rank 0's call, damaged in one place or put there in a way that ranks don't.
 */
TEST(forged_cards_are_refused) {
    static const struct {
        size_t at; /* of a byte that is another; 0: none */
        void (*put)(const struct forged *forged);
        int code;
        const char *sentence;
        bool as_root;
    } cases[] = {
        {offsetof(struct forged, head.version), put_card, MP_ECOMM, "another version", false},
        {offsetof(struct forged, card.rank), put_card, MP_ECOMM, "card of rank 1 is damaged",
         false},
        {offsetof(struct forged, card.ranks), put_card, MP_ECOMM, "(WORLD_SIZE)", false},
        {0, put_shorter, MP_ECOMM, "1 is damaged, or", false},
        {0, put_longer, MP_ECOMM, "1 is damaged, or", false},
        {0, put_writable, MP_EINVAL, "others may write to", false},
        {0, put_link, MP_EINVAL, "1, by which ranks meet: it is a symbolic link", false},
        {0, put_pipe, MP_EINVAL, "1, by which ranks meet, is no file", false},
        {0, put_foreign, MP_EINVAL, "belongs to user 65534, not to user 0", true},
    };
    meet_in_a_given_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].as_root && geteuid())
            continue;
        struct process zero = start_rank(0, 2, join_and_use);
        struct forged forged = {read_call(), {.rank = 1, .ranks = 2, .nonce = 5}};
        if (cases[i].at)
            ((unsigned char *)&forged)[cases[i].at] ^= 4;
        cases[i].put(&forged);
        struct answer answer = hear_refusal(zero);
        assert_says(&answer, cases[i].code, cases[i].sentence);
        assert_int_equal(files_left(), 0);
    }
}

TEST(texts_without_an_end_are_refused) {
    const struct {
        size_t begin, size;
    } texts[] = {{offsetof(struct mp_card, gpu), sizeof((struct mp_card *)0)->gpu},
                 {offsetof(struct mp_card, host), sizeof((struct mp_card *)0)->host},
                 {offsetof(struct mp_card, failure), sizeof((struct mp_card *)0)->failure}};
    meet_in_a_given_folder();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct process zero = start_rank(0, 2, join_and_use);
        struct forged forged = {read_call(), {.rank = 1, .ranks = 2, .nonce = 5}};
        memset((char *)&forged.card + texts[i].begin, 'x', texts[i].size);
        put_card(&forged);
        struct answer answer = hear_refusal(zero);
        assert_says(&answer, MP_ECOMM, "card of rank 1 is damaged");
    }
}

/* Of another run, of no program of ours, or nothing: rank 1 puts its own in their place. */
TEST(strange_files_are_passed_over) {
    static const char *const parts[] = {"1", "cards", "refusal"};
    meet_in_a_given_folder();
    for (int kind = 0; kind < 3; kind++) {
        struct process zero = start_rank(0, 2, join_and_use);
        struct forged forged = {read_call(), {.rank = 7, .ranks = 9, .nonce = 5}};
        forged.head.call ^= kind == 0;
        forged.head.magic ^= kind == 1;
        for (int i = 0; i < 3; i++)
            put_file(parts[i], &forged, kind == 2 ? 0 : sizeof forged, 0600, geteuid());
        struct answer one = hear(start_rank(1, 2, join_and_use)), answer = hear(zero);
        assert_fine(&one);
        assert_fine(&answer);
        remove(path_of("refusal"));
        assert_int_equal(files_left(), 0);
    }
}

/* One from a time when others could write to the folder leads to a file of the user's. */
TEST(links_are_replaced_and_not_followed) {
    struct stat status;
    struct head victim = {0};
    int patience = 10000;
    const struct timespec pause = {.tv_nsec = 1000000};
    const struct head precious = {1, 2, 3};
    meet_in_a_given_folder();
    assert_true(mkdir(place, 0700) == 0 || errno == EEXIST);
    put_file("victim", &precious, sizeof precious, 0600, geteuid());
    assert_int_equal(symlink("meeting.victim", path_of("call")), 0);
    struct process zero = start_rank(0, 2, join_and_use);
    do {
        nanosleep(&pause, NULL);
        assert_int_equal(lstat(path_of("call"), &status), 0);
    } while (S_ISLNK(status.st_mode) && --patience);
    assert_true(S_ISREG(status.st_mode));
    struct answer one = hear(start_rank(1, 2, join_and_use)), answer = hear(zero);
    assert_fine(&one);
    assert_fine(&answer);
    FILE *file = fopen(path_of("victim"), "r");
    assert_int_equal(fread(&victim, sizeof victim, 1, file), 1);
    fclose(file);
    assert_memory_equal(&victim, &precious, sizeof precious);
    remove(path_of("victim"));
}

/* Cards of all that answer the call, of which one is damaged or another process's. */
TEST(forged_cards_of_all_are_refused) {
    static const char *const sentences[] = {"card of rank 0 is damaged", "was started twice (RANK)",
                                            "cards is damaged, or"};
    meet_in_a_given_folder();
    for (int kind = 0; kind < 3; kind++) {
        struct {
            struct head head;
            struct mp_card card[2];
        } all = {{MP_MEETING_MAGIC, MP_MEETING_VERSION, 77},
                 {{.rank = kind == 0 ? 1 : 0, .ranks = 2, .nonce = 77},
                  {.rank = 1, .ranks = 2, .nonce = 5}}};
        put_file("call", &all.head, sizeof all.head, 0600, geteuid());
        put_file("cards", &all, sizeof all - (kind == 2), 0600, geteuid());
        struct answer answer = hear(start_rank(1, 2, join_and_use));
        assert_says(&answer, MP_ECOMM, sentences[kind]);
        remove(path_of("call"));
        remove(path_of("cards"));
    }
}

TEST_EACH(folders_of_others_are_refused, places, where) {
    where->meet();
    assert_true(mkdir(place, 0700) == 0 || errno == EEXIST);
    for (int who = 0; who < 2; who++) {
        assert_int_equal(chmod(place, who ? 0702 : 0720), 0);
        assert_all_say(2, join_and_use, MP_EINVAL, "others may write to ");
    }
    assert_int_equal(chmod(place, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(place, NOBODY, (gid_t)-1), 0);
        assert_all_say(2, join_and_use, MP_EINVAL, "belongs to user 65534, not to user 0");
    }
    assert_int_equal(rmdir(place), 0);
    assert_int_equal(symlink(folder, place), 0);
    struct answer answer = hear(start_rank(0, 2, join_and_use));
    assert_says(&answer, MP_EINVAL, "where ranks meet, is no folder");
    assert_int_equal(unlink(place), 0);
}

/* What is made is the user's alone, whatever umask there is. */
TEST_EACH(only_the_user_can_read_it, places, where) {
    struct stat status;
    mode_t before = umask(0);
    where->meet();
    rmdir(place);
    struct process zero = start_rank(0, 2, join_and_use), one = start_rank(1, 2, join_and_use);
    umask(before);
    struct answer answers[2] = {hear(zero), hear(one)};
    assert_fine(&answers[0]);
    assert_fine(&answers[1]);
    assert_int_equal(stat(place, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    zero = start_rank(0, 2, join_and_use);
    wait_for_file("call");
    assert_int_equal(stat(path_of("call"), &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    answers[1] = hear(start_rank(1, 2, join_and_use));
    answers[0] = hear(zero);
    assert_fine(&answers[0]);
    assert_fine(&answers[1]);
}

/* ---- what ranks show each other ---- */

TEST(gpus_are_compared) {
    meet_on_one_host();
    assert_all_say(3, share_a_gpu, MP_EINVAL,
                   "ranks 0 and 2 are both on GPU 0 (NVIDIA H200) of host");
    assert_all_remark(2, have_another_gpu,
                      "GPUs differ: rank 0 has NVIDIA H200, rank 1 has NVIDIA A100; the slower "
                      "ones set the pace");
    assert_all_remark(3, have_gpus_of_all_kinds, /* the first two that differ */
                      "GPUs differ: rank 0 has NVIDIA H200, rank 1 has NVIDIA L40S; the slower "
                      "ones set the pace");
    /* NCCL's kernels of both lanes have room on it */
    assert_all_say(3, have_a_small_gpu, MP_OK, "");
}

/* As the cores that all may use together are fewer than the ranks, or not. */
TEST(shared_cores_are_known) {
    cpu_set_t all;
    meet_on_one_host();
    assert_all_remark(2, be_on_one_core, "shared");
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2)
        skip("there is one core");
    assert_all_remark(2, be_on_two_cores, "its own");
}

/* Everybody says what is wrong with one of them. */
TEST_EACH(one_without_nccl_is_known_to_all, places, where) {
    struct answer answer[3];
    where->meet();
    run_ranks(3, rank_finds(1, "MOEPERF_NCCL_LIBRARY", "/nowhere/libnccl.so.2"), answer);
    for (int r = 0; r < 3; r++) {
        assert_says(&answer[r], r == 1 ? MP_ENOTFOUND : MP_ECOMM,
                    "rank 1: NCCL can't be loaded (/nowhere/libnccl.so.2");
        assert_says(&answer[r], answer[r].code, "MOEPERF_NCCL_LIBRARY, or use transport mpi");
    }
    assert_all_say(2, rank_finds(1, "MOEPERF_DOUBLE_NCCL_VERSION", "22105"), MP_EVERSION,
                   "has NCCL 22105");
    assert_all_say(1, rank_finds(0, "MOEPERF_DOUBLE_NCCL_VERSION", "21000"), MP_EVERSION,
                   "says that it is version 21000 of NCCL; it takes 2.18");
    assert_all_say(1, rank_finds(0, "MOEPERF_DOUBLE_NCCL_JOIN", "1"), MP_ECOMM,
                   "rank 0: joining the others: NCCL: unhandled system error");
}

/* ---- the environment of one process ---- */

struct environment {
    const char *rank, *ranks, *local, *port, *place, *sentence;
};

static const struct environment *given;

static void set_or_not(const char *variable, const char *value) {
    if (value)
        setenv(variable, value, 1);
    else
        unsetenv(variable);
}

static void be_told(struct rank *me) {
    set_or_not("RANK", given->rank);
    set_or_not("WORLD_SIZE", given->ranks);
    set_or_not("LOCAL_WORLD_SIZE", given->local);
    set_or_not("MASTER_PORT", given->port);
    set_or_not("MOEPERF_RENDEZVOUS", given->place);
    me->rank = 0;
    me->ranks = 1;
    join_and_use(me);
}

static const char file[] = "file:/tmp/x";
static const struct environment environments[] = {
    {NULL, NULL, NULL, NULL, NULL, NULL}, /* a world of one */
    {"0", "1", NULL, NULL, NULL, NULL},
    {"0", NULL, NULL, NULL, NULL, "WORLD_SIZE= in the environment"},
    {NULL, "2", NULL, NULL, file, "RANK= in the environment; it takes a number 0 .. 1"},
    {"2", "2", NULL, NULL, file, "RANK=2 in the environment; it takes a number 0 .. 1"},
    {"1x", "2", NULL, NULL, file, "RANK=1x in the environment"},
    {"0", "-3", NULL, NULL, file, "WORLD_SIZE=-3 in the environment"},
    {"0", "2", NULL, NULL, "tcp://here", "MOEPERF_RENDEZVOUS=tcp://here; it takes file:/FOLDER"},
    {"0", "2", NULL, NULL, "file:here", "MOEPERF_RENDEZVOUS=file:here; it takes file:/FOLDER"},
    {"0", "2", NULL, "29500", NULL,
     "nothing says where the ranks meet: set MASTER_PORT and "
     "LOCAL_WORLD_SIZE=2 if all are on this host"},
    {"0", "2", "2", NULL, NULL, "MASTER_PORT= in the environment; it takes a number 1 .. 65535"},
    {"0", "2", "2", "99999", NULL, "MASTER_PORT=99999 in the environment"},
    {"0", "2", "3", "29500", NULL, "LOCAL_WORLD_SIZE=3 in the environment"},
    {"3", "16", "8", "29500", NULL,
     "rank 3: 8 of 16 ranks are on this host (LOCAL_WORLD_SIZE); ranks on several hosts need "
     "MOEPERF_RENDEZVOUS=file:/FOLDER on a file system that all share, or mpirun"},
};

TEST_ROWS(environments_are_checked, environments, c) {
    given = c;
    assert_all_say(1, be_told, c->sentence ? MP_EINVAL : MP_OK, c->sentence ? c->sentence : "");
}

static void name_too_much(struct rank *me) {
    char long_place[2048] = "file:/";
    memset(long_place + 6, 'x', sizeof long_place - 7);
    setenv("MOEPERF_RENDEZVOUS", long_place, 1);
    join_and_use(me);
}

static void have_no_gpu(struct rank *me) {
    me->device = queue_device_create(1, 0);
    me->device->deferred = false;
    join_and_use(me);
}

TEST(places_and_devices_must_exist) {
    struct answer answer =
        hear(start_rank(0, 2, rank_finds(0, "MOEPERF_RENDEZVOUS", "file:/nowhere/at/all")));
    assert_says(&answer, MP_EIO, "folder /nowhere/at/all, where ranks meet: No such file");
    answer = hear(start_rank(0, 2, name_too_much));
    assert_says(&answer, MP_EINVAL, "has a name of 2042 bytes; at most 1023 are possible");
    answer = hear(start_rank(0, 1, have_no_gpu));
    assert_says(&answer, MP_EINVAL, "transport nccl is for the memory of GPUs");
}

TEST_STEP(make_folder) {
    return mkdtemp(folder) ? 0 : -1;
}

TEST_STEP(remove_folder) {
    meet_on_one_host();
    rmdir(place);
    meet_in_a_given_folder();
    rmdir(place);
    return rmdir(folder);
}

TEST_GROUP(make_folder, remove_folder);
