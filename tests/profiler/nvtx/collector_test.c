/* libmoeperf-nvtx.so in programs that know nothing of it (annotated.c), and what their spools say.
 */
#include <fcntl.h>

#include "tests/profiler/nvtx/spools.h"

/* With a variable of the environment. */
static int play_with(const char *variable, const char *value, const char *scene, int number) {
    char program[] = ANNOTATED, name[32], digits[16];
    snprintf(name, sizeof name, "%s", scene);
    snprintf(digits, sizeof digits, "%d", number);
    char *arguments[] = {program, name, digits, NULL};
    return run_program(arguments, variable, value);
}

static int play(const char *scene, int number) {
    return play_with(NULL, NULL, scene, number);
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

/* ---- tests ---- */

TEST(plain_calls_are_ranges_of_the_default_domain) {
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
    assert_int_equal(count_of(&spool[0], "nvtx-ranges"), 5);
    assert_int_equal(count_of(&spool[0], "nvtx-left-open"), 0);
}

TEST(domains_of_one_name_are_one) {
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
        assert_numbers(range->category, 7, range->color, 0xFF112233);
        assert_numbers(range->value_type, MP_VALUE_I64, (int64_t)range->value, -42);
    }
    assert_string_equal(spool[0].text[domain], "twice");
    assert_int_equal(spool[0].kind[domain], MP_NAME_DOMAIN);
}

TEST(payloads_come_with_their_schema) {
    assert_int_equal(play("payloads", 5), 0);
    assert_int_equal(spools, 1);
    assert_int_equal(spool[0].schemas, 1);
    assert_int_equal(how_many(&spool[0], "experts"), 10);
    assert_int_equal(how_many(&spool[0], "iteration"), 5);
    assert_int_equal(spool[0].payload_bytes, 10 * (16 + 32));
}

TEST(what_the_program_gets_wrong_is_counted) {
    assert_int_equal(play("wrong", 3), 0);
    assert_int_equal(spools, 1);
    assert_int_equal(count_of(&spool[0], "nvtx-unmatched-ends"), 4);
    assert_int_equal(count_of(&spool[0], "nvtx-left-open"), 3);
    assert_int_equal(find(&spool[0], "left open")->end_ns, 0);
    assert_int_equal(find(&spool[0], "left open, inner")->level, 1);
    assert_int_equal(find(&spool[0], "never ended")->kind, MP_RANGE_STARTED);
}

TEST(names_are_any_bytes) {
    char every[256];
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

TEST(threads_of_three_objects_start_together) {
    for (int round = 0; round < 5; round++) {
        assert_int_equal(play("threads", 3000), 0);
        assert_int_equal(spools, 1);
        assert_int_equal(how_many(&spool[0], "of a thread"), 16 * 3000);
        assert_int_equal(how_many(&spool[0], "of the first object"), 16 * 3000);
        assert_int_equal(how_many(&spool[0], "of the second object"), 16 * 3000);
        assert_int_equal(count_of(&spool[0], "nvtx-lost"), 0);
    }
}

TEST(threads_may_come_and_go) {
    assert_int_equal(play("generations", 300), 0);
    assert_int_equal(spool[0].ranges, 300 * 30);
}

TEST(ranges_may_end_on_another_thread) {
    assert_int_equal(play("crossing", 100), 0);
    assert_int_equal(how_many(&spool[0], "crossing"), 100);
    for (int i = 0; i < 100; i++) {
        assert_int_not_equal(spool[0].range[i].thread, spool[0].range[i].end_thread);
        assert_true(spool[0].range[i].end_ns >= spool[0].range[i].start_ns);
    }
    assert_int_equal(count_of(&spool[0], "nvtx-unmatched-ends"), 0);
}

/* Hundreds at a time, ended in another order than they began, by threads that share the work. */
TEST(ranges_in_flight_are_not_mixed_up) {
    enum { ROUNDS = 20, ALL = 4 * 256 * ROUNDS };
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
    assert_int_equal(count_of(&spool[0], "nvtx-unmatched-ends"), 0);
    assert_int_equal(count_of(&spool[0], "nvtx-lost"), 0);
    assert_int_equal(count_of(&spool[0], "nvtx-left-open"), 0);
}

TEST(children_have_spools_of_their_own) {
    assert_int_equal(play("forks", 3), 0);
    assert_int_equal(spools, 4);
    int children = 0, parents = 0;
    for (int i = 0; i < 4; i++) {
        children += how_many(&spool[i], "child");
        parents += how_many(&spool[i], "parent");
        assert_true(spool[i].ended);
        assert_int_equal(spool[i].ranges, 1);
        /* What the parent has open is not the child's to report. */
        assert_int_equal(count_of(&spool[i], "nvtx-left-open"), 0);
    }
    assert_int_equal(children, 3);
    assert_int_equal(parents, 1);
}

TEST(a_kill_leaves_what_was_written) {
    int status = play("killed", 1000);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(spools, 1);
    assert_int_equal(how_many(&spool[0], "before the kill"), 1000);
    assert_false(spool[0].ended);
}

TEST(too_deep_ranges_are_counted) {
    assert_int_equal(play("deep", 200), 0);
    assert_int_equal(how_many(&spool[0], "deep") + count_of(&spool[0], "nvtx-lost"), 200);
    assert_true(how_many(&spool[0], "deep") >= 100);
    assert_int_equal(count_of(&spool[0], "nvtx-unmatched-ends"), 1);
}

TEST(ranks_are_found_in_the_environment) {
    unsetenv("OMPI_COMM_WORLD_RANK");
    assert_int_equal(play_with("RANK", "5", "plain", 1), 0);
    assert_int_equal(spool[0].rank, 5);
    assert_int_equal(play_with("OMPI_COMM_WORLD_RANK", "3", "plain", 1), 0);
    assert_int_equal(spool[0].rank, 3);
    assert_int_equal(play_with("RANK", "many", "plain", 1), 0);
    assert_int_equal(spool[0].rank, -1);
}

/* Without a folder for spools the collector takes nothing, and the program runs on. */
TEST(without_a_folder_it_is_off) {
    int status = play_with("MOEPERF_NVTX_SPOOLS", "", "status", 7);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    assert_int_equal(spools, 0);
    status = play_with("MOEPERF_NVTX_SPOOLS", "/nonexistent/folder", "status", 7);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    assert_int_equal(spools, 0);
}

/* Everything again without the thread that writes: at the end, and when buffers are full. */
TEST(without_a_writing_thread_nothing_is_missing) {
    assert_int_equal(play_with("MOEPERF_NVTX_FLUSH_MS", "0", "threads", 3000), 0);
    assert_int_equal(spool[0].ranges, 16 * 3 * 3000);
}

/* The next tool gets every call with the handles that it gave out itself. */
TEST(the_next_tool_is_called_too) {
    char log[400], line[256];
    int own = 0, foreign = 0;
    snprintf(log, sizeof log, "%s/next.log", folder);
    setenv("OTHER_TOOL_LOG", log, 1);
    assert_int_equal(play_with("MOEPERF_NVTX_NEXT", NEXT_TOOL, "threads", 1), 0);
    unsetenv("OTHER_TOOL_LOG");
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
TEST(nccl_is_recorded) {
    char program[] = NCCL_CLIENT;
    char *arguments[] = {program, NULL};
    int status = run_program(arguments, NULL, NULL);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip("libnccl.so.2 can't be loaded");
    assert_int_equal(status, 0);
    assert_int_equal(spools, 1);
    assert_int_equal(how_many(&spool[0], "ncclAllReduce"), 3);
    assert_int_equal(how_many(&spool[0], "ncclSend"), 1);
    assert_int_equal(how_many(&spool[0], "ncclCommInitRank"), 1);
    assert_true(spool[0].schemas >= 2);
    assert_true(spool[0].payload_bytes > 0);
    assert_int_equal(count_of(&spool[0], "nvtx-left-open"), 0);
    assert_int_equal(count_of(&spool[0], "nvtx-unmatched-ends"), 0);
    for (int i = 0; i < spool[0].ranges; i++) {
        assert_string_equal(spool[0].text[spool[0].range[i].domain], "NCCL");
        assert_int_equal(spool[0].range[i].level, 0); /* none stayed open around the next */
    }
}

TEST_GROUP(make_folder, remove_folder);
