/* libmoeperf-nvtx.so in programs that know nothing of it (annotated.c), and what their spools say.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "profiler/record/spool.h"

enum { SPOOLS = 8, NAMES = 4096, RANGES = 200000, COUNTS = 16 };

/* What one spool holds. */
struct content {
    int pid, rank;
    bool ended;
    int ranges, names, schemas;
    struct mp_range *range; /* [RANGES] */
    int payload_bytes;      /* of all ranges */
    int twins;              /* ranges with two payloads of the same bytes */
    char *text[NAMES];      /* by id */
    int kind[NAMES];
    struct {
        char name[48];
        double value;
    } count[COUNTS];
    int counts;
};

static char folder[64];
static struct content spool[SPOOLS];
static int spools;

static void clear(void) {
    for (int i = 0; i < spools; i++) {
        for (int n = 0; n < NAMES; n++)
            free(spool[i].text[n]);
        free(spool[i].range);
    }
    memset(spool, 0, sizeof spool);
    spools = 0;
}

static bool has_twins(const struct mp_spool_record *record) {
    struct mp_range_payload first, second;
    const uint8_t *at = record->as.range.payload;
    size_t left = record->as.range.payload_bytes;
    return record->as.range.is.payloads == 2 && mp_range_next_payload(&at, &left, &first) &&
           mp_range_next_payload(&at, &left, &second) && first.schema == second.schema &&
           first.size == second.size && !memcmp(first.bytes, second.bytes, first.size);
}

static void keep(struct content *content, const struct mp_spool_record *record) {
    switch (record->type) {
    case MP_SPOOL_NAME:
        assert_true(record->as.name.id > 0 && record->as.name.id < NAMES);
        assert_null(content->text[record->as.name.id]);
        content->text[record->as.name.id] = strdup(record->as.name.text);
        content->kind[record->as.name.id] = (int)record->as.name.kind;
        content->names++;
        break;
    case MP_SPOOL_RANGE:
        assert_true(content->ranges < RANGES);
        content->range[content->ranges++] = record->as.range.is;
        content->payload_bytes += (int)record->as.range.payload_bytes;
        content->twins += has_twins(record);
        /* A name stands before what refers to it. */
        if (record->as.range.is.name)
            assert_non_null(content->text[record->as.range.is.name]);
        if (record->as.range.is.domain)
            assert_non_null(content->text[record->as.range.is.domain]);
        break;
    case MP_SPOOL_SCHEMA:
        content->schemas++;
        break;
    case MP_SPOOL_NUMBER:
        assert_true(content->counts < COUNTS);
        snprintf(content->count[content->counts].name, 48, "%s", record->as.number.name);
        content->count[content->counts++].value = record->as.number.value;
        break;
    case MP_SPOOL_END:
        content->ended = true;
        break;
    default:
        fail_msg("a record of type %d", (int)record->type);
    }
}

static void read_spool(const char *path, struct content *content) {
    struct mp_spool_reader *reader;
    struct mp_spool_record record;
    struct mp_error error = {0};
    content->range = malloc(RANGES * sizeof *content->range);
    assert_int_equal(mp_spool_open(path, &reader, &error), MP_OK);
    content->pid = mp_spool_header(reader)->pid;
    content->rank = mp_spool_header(reader)->rank;
    while (mp_spool_next(reader, &record, &error) == 1)
        keep(content, &record);
    assert_int_equal(error.code, MP_OK);
    assert_int_equal(mp_spool_unread(reader), 0);
    mp_spool_close(reader);
}

/* Reads all spools and removes them. */
static void collect(void) {
    struct dirent *entry;
    DIR *listing = opendir(folder);
    clear();
    while ((entry = readdir(listing))) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strstr(entry->d_name, ".spool")) {
            assert_true(spools < SPOOLS);
            read_spool(path, &spool[spools++]);
            unlink(path);
        }
    }
    closedir(listing);
}

/* Runs a program under the collector; returns its wait status. */
static int run_program(char *const arguments[], const char *variable, const char *value) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("NVTX_INJECTION64_PATH", COLLECTOR, 1);
        setenv("MOEPERF_NVTX_SPOOLS", folder, 1);
        if (variable)
            setenv(variable, value, 1);
        execv(arguments[0], arguments);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    collect();
    return status;
}

static int play(const char *scene, int number) {
    char program[] = ANNOTATED, name[32], digits[16];
    snprintf(name, sizeof name, "%s", scene);
    snprintf(digits, sizeof digits, "%d", number);
    char *arguments[] = {program, name, digits, NULL};
    return run_program(arguments, NULL, NULL);
}

static double count_of(const struct content *content, const char *name) {
    for (int i = 0; i < content->counts; i++)
        if (!strcmp(content->count[i].name, name))
            return content->count[i].value;
    fail_msg("no count %s", name);
    return -1;
}

static const char *name_of(const struct content *content, const struct mp_range *range) {
    return range->name ? content->text[range->name] : "";
}

/* The only range of this name. */
static const struct mp_range *find(const struct content *content, const char *name) {
    const struct mp_range *found = NULL;
    for (int i = 0; i < content->ranges; i++)
        if (!strcmp(name_of(content, &content->range[i]), name)) {
            assert_null(found);
            found = &content->range[i];
        }
    assert_non_null(found);
    return found;
}

static int how_many(const struct content *content, const char *name) {
    int found = 0;
    for (int i = 0; i < content->ranges; i++)
        found += !strcmp(name_of(content, &content->range[i]), name);
    return found;
}

/* ---- tests ---- */

static void plain_calls_are_ranges_of_the_default_domain(void **state) {
    (void)state;
    assert_int_equal(play("plain", 0), 0);
    assert_int_equal(spools, 1);
    const struct mp_range *outer = find(&spool[0], "outer"), *inner = find(&spool[0], "inner"),
                          *mark = find(&spool[0], "a mark"), *longer = find(&spool[0], "long"),
                          *wide = find(&spool[0], "wide \u00e9\U0001F600");
    assert_int_equal(outer->level, 0);
    assert_int_equal(inner->level, 1);
    assert_true(outer->start_ns <= inner->start_ns && inner->end_ns <= outer->end_ns);
    assert_true(inner->end_ns - inner->start_ns >= 100000);
    assert_true(outer->end_ns - outer->start_ns >= 300000);
    assert_int_equal(mark->kind, MP_RANGE_MARK);
    assert_true(mark->start_ns == mark->end_ns && mark->start_ns >= outer->end_ns);
    assert_int_equal(longer->kind, MP_RANGE_STARTED);
    assert_true(longer->start_ns <= wide->start_ns && wide->end_ns <= longer->end_ns);
    assert_int_equal(outer->domain, 0);
    assert_true(spool[0].ended);
    assert_int_equal((int)count_of(&spool[0], "nvtx-ranges"), 5);
    assert_int_equal((int)count_of(&spool[0], "nvtx-left-open"), 0);
}

static void domains_of_one_name_are_one(void **state) {
    (void)state;
    assert_int_equal(play("domains", 0), 0);
    assert_int_equal(spools, 1);
    assert_int_equal(spool[0].ranges, 3);
    assert_int_equal(how_many(&spool[0], "in a domain"), 3);
    uint32_t domain = 0;
    for (int i = 0; i < 3; i++) {
        const struct mp_range *range = &spool[0].range[i];
        if (range->domain)
            assert_true(domain == 0 || domain == range->domain);
        domain = range->domain ? range->domain : domain;
        assert_int_equal(range->category, 7);
        assert_int_equal(range->color, 0xFF112233);
        assert_int_equal(range->value_type, MP_VALUE_I64);
        assert_int_equal((int64_t)range->value, -42);
    }
    assert_string_equal(spool[0].text[domain], "twice");
    assert_int_equal(spool[0].kind[domain], MP_NAME_DOMAIN);
}

static void payloads_come_with_their_schema(void **state) {
    (void)state;
    assert_int_equal(play("payloads", 5), 0);
    assert_int_equal(spools, 1);
    assert_int_equal(spool[0].schemas, 1);
    assert_int_equal(how_many(&spool[0], "experts"), 10);
    assert_int_equal(how_many(&spool[0], "iteration"), 5);
    assert_int_equal(spool[0].payload_bytes, 10 * (16 + 32));
}

static void what_the_program_gets_wrong_is_counted(void **state) {
    (void)state;
    assert_int_equal(play("wrong", 3), 0);
    assert_int_equal(spools, 1);
    assert_int_equal((int)count_of(&spool[0], "nvtx-unmatched-ends"), 4);
    assert_int_equal((int)count_of(&spool[0], "nvtx-left-open"), 3);
    assert_int_equal(find(&spool[0], "left open")->end_ns, 0);
    assert_int_equal(find(&spool[0], "left open, inner")->level, 1);
    assert_int_equal(find(&spool[0], "never ended")->kind, MP_RANGE_STARTED);
}

static void names_are_any_bytes(void **state) {
    char every[256];
    (void)state;
    for (int i = 0; i < 255; i++)
        every[i] = (char)(i + 1);
    every[255] = '\0';
    assert_int_equal(play("bytes", 3000), 0);
    find(&spool[0], every);
    find(&spool[0], "<script>alert('\"')</script>");
    find(&spool[0], "");
    find(&spool[0], "name 0"); /* out of a buffer that had another text each time */
    find(&spool[0], "name 2999");
    assert_int_equal(spool[0].ranges, 3003);
}

static void threads_of_three_objects_start_together(void **state) {
    (void)state;
    for (int round = 0; round < 5; round++) {
        assert_int_equal(play("threads", 3000), 0);
        assert_int_equal(spools, 1);
        assert_int_equal(how_many(&spool[0], "of a thread"), 16 * 3000);
        assert_int_equal(how_many(&spool[0], "of the first object"), 16 * 3000);
        assert_int_equal(how_many(&spool[0], "of the second object"), 16 * 3000);
        assert_int_equal((int)count_of(&spool[0], "nvtx-lost"), 0);
    }
}

static void threads_may_come_and_go(void **state) {
    (void)state;
    assert_int_equal(play("generations", 300), 0);
    assert_int_equal(spool[0].ranges, 300 * 30);
}

static void ranges_may_end_on_another_thread(void **state) {
    (void)state;
    assert_int_equal(play("crossing", 100), 0);
    assert_int_equal(how_many(&spool[0], "crossing"), 100);
    for (int i = 0; i < 100; i++) {
        assert_int_not_equal(spool[0].range[i].thread, spool[0].range[i].end_thread);
        assert_true(spool[0].range[i].end_ns >= spool[0].range[i].start_ns);
    }
    assert_int_equal((int)count_of(&spool[0], "nvtx-unmatched-ends"), 0);
}

/* Hundreds at a time, ended in another order than they began, by threads that share the work. */
static void ranges_in_flight_are_not_mixed_up(void **state) {
    enum { ROUNDS = 20, ALL = 4 * 256 * ROUNDS };
    (void)state;
    assert_int_equal(play("handed", ROUNDS), 0);
    assert_int_equal(spools, 1);
    assert_int_equal(how_many(&spool[0], "handed over"), ALL);
    assert_int_equal(spool[0].twins, ALL);
    for (int i = 0; i < ALL; i++) {
        const struct mp_range *range = &spool[0].range[i];
        assert_int_equal(range->kind, MP_RANGE_STARTED);
        assert_int_not_equal(range->thread, range->end_thread);
        assert_true(range->start_ns <= range->end_ns);
    }
    assert_int_equal((int)count_of(&spool[0], "nvtx-unmatched-ends"), 0);
    assert_int_equal((int)count_of(&spool[0], "nvtx-lost"), 0);
    assert_int_equal((int)count_of(&spool[0], "nvtx-left-open"), 0);
}

static void children_have_spools_of_their_own(void **state) {
    (void)state;
    assert_int_equal(play("forks", 3), 0);
    assert_int_equal(spools, 4);
    int children = 0, parents = 0;
    for (int i = 0; i < 4; i++) {
        children += how_many(&spool[i], "child");
        parents += how_many(&spool[i], "parent");
        assert_true(spool[i].ended);
        assert_int_equal(spool[i].ranges, 1);
        /* What the parent has open is not the child's to report. */
        assert_int_equal((int)count_of(&spool[i], "nvtx-left-open"), 0);
    }
    assert_int_equal(children, 3);
    assert_int_equal(parents, 1);
}

static void a_kill_leaves_what_was_written(void **state) {
    (void)state;
    int status = play("killed", 1000);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(spools, 1);
    assert_int_equal(how_many(&spool[0], "before the kill"), 1000);
    assert_false(spool[0].ended);
}

static void too_deep_ranges_are_counted(void **state) {
    (void)state;
    assert_int_equal(play("deep", 200), 0);
    assert_int_equal(how_many(&spool[0], "deep") + (int)count_of(&spool[0], "nvtx-lost"), 200);
    assert_true(how_many(&spool[0], "deep") >= 100);
    assert_int_equal((int)count_of(&spool[0], "nvtx-unmatched-ends"), 1);
}

static void ranks_are_found_in_the_environment(void **state) {
    char program[] = ANNOTATED, scene[] = "plain";
    char *arguments[] = {program, scene, NULL};
    (void)state;
    unsetenv("OMPI_COMM_WORLD_RANK");
    assert_int_equal(run_program(arguments, "RANK", "5"), 0);
    assert_int_equal(spool[0].rank, 5);
    assert_int_equal(run_program(arguments, "OMPI_COMM_WORLD_RANK", "3"), 0);
    assert_int_equal(spool[0].rank, 3);
    assert_int_equal(run_program(arguments, "RANK", "many"), 0);
    assert_int_equal(spool[0].rank, -1);
}

/* Without a folder for spools the collector takes nothing, and the program runs on. */
static void without_a_folder_it_is_off(void **state) {
    char program[] = ANNOTATED, scene[] = "status", number[] = "7";
    char *arguments[] = {program, scene, number, NULL};
    (void)state;
    int status = run_program(arguments, "MOEPERF_NVTX_SPOOLS", "");
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    assert_int_equal(spools, 0);
    status = run_program(arguments, "MOEPERF_NVTX_SPOOLS", "/nonexistent/folder");
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    assert_int_equal(spools, 0);
}

/* Everything again without the thread that writes: at the end, and when buffers are full. */
static void without_a_writing_thread_nothing_is_missing(void **state) {
    char program[] = ANNOTATED, scene[] = "threads", number[] = "3000";
    char *arguments[] = {program, scene, number, NULL};
    (void)state;
    assert_int_equal(run_program(arguments, "MOEPERF_NVTX_FLUSH_MS", "0"), 0);
    assert_int_equal(spool[0].ranges, 16 * 3 * 3000);
}

/* The next tool gets every call with the handles that it gave out itself. */
static void the_next_tool_is_called_too(void **state) {
    char program[] = ANNOTATED, scene[] = "crossing", number[] = "1", log[PATH_MAX], line[256];
    char *arguments[] = {program, scene, number, NULL};
    int own = 0, foreign = 0;
    (void)state;
    snprintf(log, sizeof log, "%s/next.log", folder);
    setenv("OTHER_TOOL_LOG", log, 1);
    strcpy(scene, "threads");
    int status = run_program(arguments, "MOEPERF_NVTX_NEXT", NEXT_TOOL);
    unsetenv("OTHER_TOOL_LOG");
    assert_int_equal(status, 0);
    assert_int_equal(spool[0].ranges, 16 * 3);
    FILE *file = fopen(log, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        own += !strcmp(line, "push own own\n");
        foreign += strstr(line, "foreign") != NULL;
    }
    fclose(file);
    unlink(log);
    assert_int_equal(own, 16 * 2);
    assert_int_equal(foreign, 0);
}

/* The real library, called so that all its functions fail: they have annotated themselves first. */
static void nccl_is_recorded(void **state) {
    (void)state;
    char program[] = NCCL_CLIENT;
    char *arguments[] = {program, NULL};
    int status = run_program(arguments, NULL, NULL);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: libnccl.so.2 can't be loaded\n");
        skip();
    }
    assert_int_equal(status, 0);
    assert_int_equal(spools, 1);
    assert_int_equal(how_many(&spool[0], "ncclAllReduce"), 3);
    assert_int_equal(how_many(&spool[0], "ncclSend"), 1);
    assert_int_equal(how_many(&spool[0], "ncclCommInitRank"), 1);
    assert_true(spool[0].schemas >= 2);
    assert_true(spool[0].payload_bytes > 0);
    assert_int_equal((int)count_of(&spool[0], "nvtx-left-open"), 0);
    assert_int_equal((int)count_of(&spool[0], "nvtx-unmatched-ends"), 0);
    for (int i = 0; i < spool[0].ranges; i++) {
        assert_string_equal(spool[0].text[spool[0].range[i].domain], "NCCL");
        assert_int_equal(spool[0].range[i].level, 0); /* none stayed open around the next */
    }
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/nvtx_collector_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    clear();
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_calls_are_ranges_of_the_default_domain),
        cmocka_unit_test(domains_of_one_name_are_one),
        cmocka_unit_test(payloads_come_with_their_schema),
        cmocka_unit_test(what_the_program_gets_wrong_is_counted),
        cmocka_unit_test(names_are_any_bytes),
        cmocka_unit_test(threads_of_three_objects_start_together),
        cmocka_unit_test(threads_may_come_and_go),
        cmocka_unit_test(ranges_may_end_on_another_thread),
        cmocka_unit_test(ranges_in_flight_are_not_mixed_up),
        cmocka_unit_test(children_have_spools_of_their_own),
        cmocka_unit_test(a_kill_leaves_what_was_written),
        cmocka_unit_test(too_deep_ranges_are_counted),
        cmocka_unit_test(ranks_are_found_in_the_environment),
        cmocka_unit_test(without_a_folder_it_is_off),
        cmocka_unit_test(without_a_writing_thread_nothing_is_missing),
        cmocka_unit_test(the_next_tool_is_called_too),
        cmocka_unit_test(nccl_is_recorded),
    };
    return cmocka_run_group_tests_name("collector", tests, make_folder, remove_folder);
}
