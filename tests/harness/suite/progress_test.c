/* Progress: never wider than the terminal, quiet without one. */
#include "harness/suite/progress.h"

#include "tests/errors.h"

/* Time passes when a test says so. */
static long passed_ms;
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(UNUSED clockid_t clock, struct timespec *time) {
    *time = (struct timespec){1000 + passed_ms / 1000, passed_ms % 1000 * 1000000};
    return 0;
}

TEST_END(estimate, struct mp_estimate *, mp_estimate_destroy(*it))

/* Columns that a line takes: colour sequences take none. */
static int columns(const char *line) {
    int count = 0;
    for (; *line; line++) {
        if (*line == '\x1b')
            line = strchr(line, 'm');
        else
            count++;
    }
    return count;
}

TEST_RANDOM_TURNS(line_fits_every_width, 2000, trial) {
    char line[1024], name[64];
    int length = test_random_int(random, 0, 60);
    for (int i = 0; i < length; i++) /* also bytes that are no text */
        name[i] = (char)test_random_int(random, 1, 255);
    name[length] = '\0';
    const struct mp_progress_state progress = {
        .job = test_random_int(random, 1, 10000),
        .jobs = test_random_int(random, 1, 10000),
        .name = name,
        .iteration = test_random_int(random, 0, 1000000),
        .iterations = test_random_int(random, 0, 1) * test_random_int(random, 1, 1000000),
        .loss = 20 * test_random_double(random) - 1,
        .ms = 1e6 * test_random_double(random),
        .share = 2 * test_random_double(random) - 0.5,
        .seconds_left = 1e5 * test_random_double(random) - 1e4};
    int width = test_random_int(random, 1, 300);
    mp_progress_format(&progress, width, test_random_int(random, 0, 1), line, sizeof line);
    assert_in_range(columns(line), 0, width - 1);
    for (const char *letter = line; *letter; letter++)
        assert_true((*letter >= ' ' && *letter <= '~') || *letter == '\x1b');
}

TEST(line_says_what_is_known) {
    char line[1024];
    struct mp_progress_state progress = {
        .job = 2, .jobs = 6, .name = "fssdp", .share = 0.5, .seconds_left = -1};
    assert_string_equal(mp_progress_format(&progress, 80, false, line, sizeof line),
                        "[###############...............] job 2 of 6  fssdp  starting");
    progress.iteration = 12;
    progress.iterations = 60;
    progress.loss = 3.2144;
    progress.ms = 204.6;
    progress.seconds_left = 83.2;
    assert_string_equal(mp_progress_format(&progress, 100, false, line, sizeof line),
                        "[###############...............] job 2 of 6  fssdp  iteration 12/60  "
                        "ETA 1:23  loss 3.214  205 ms");
    assert_string_equal(mp_progress_format(&progress, 60, false, line, sizeof line),
                        "job 2 of 6  fssdp  iteration 12/60  ETA 1:23  loss 3.214");
    assert_string_equal(mp_progress_format(&progress, 20, false, line, sizeof line),
                        "job 2 of 6  fssdp");
    progress.seconds_left = 7383.6;
    mp_progress_format(&progress, 120, true, line, sizeof line);
    assert_contains(line, "ETA 2:03:04");
    assert_int_equal(strncmp(line, "[\x1b[32m###############\x1b[0m....", 28), 0);
}

/* Ends a file of what was said. */
static void assert_file(FILE *file, const char *expected) {
    char text[256];
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, expected);
}

TEST(files_get_plain_lines_only) {
    struct mp_progress progress;
    FILE *file = tmpfile();
    mp_progress_begin(&progress, file);
    assert_false(progress.is_terminal);
    assert_false(progress.has_colour);
    const struct mp_progress_state shown = {.job = 1, .jobs = 1, .name = "ep"};
    mp_progress_draw(&progress, &shown);
    mp_progress_say(&progress, MP_TONE_BAD, "%s: failed", "ep");
    mp_progress_end(&progress);
    assert_file(file, "ep: failed\n");
    mp_progress_begin(&progress, NULL); /* and nothing at all when nobody listens */
    mp_progress_say(&progress, MP_TONE_GOOD, "unheard");
}

TEST(estimates_begin_unknown_and_end_whole) {
    AUTO(estimate) struct mp_estimate *estimate;
    double share, left;
    assert_works(mp_estimate_create(2, 2, &estimate, &error));
    mp_estimate_begin_job(estimate);
    mp_estimate_read(estimate, &share, &left);
    assert_true(left < 0);
    assert_close(share, 0, 0);
    mp_estimate_update(estimate, 1, 10);
    passed_ms += 20;
    mp_estimate_update(estimate, 3, 10);
    mp_estimate_read(estimate, &share, &left);
    /* 10 ms an iteration, of which 7 are left, and three jobs as long as this one. */
    assert_close(left, 0.07 + 3 * 0.09, 1e-9);
    assert_close(share, 0.02 / 0.36, 1e-9);
    /* 25 ms, then 5 of each: what is not known yet takes as long as the others, else as last time.
     */
    static const double lefts[] = {0.075, 0.03, 0.005, 0}, spent[] = {0.025, 0.03, 0.035, 0.04};
    for (int turn = 0; turn < 4; turn++) {
        if (turn > 0)
            mp_estimate_begin_job(estimate);
        passed_ms += 5;
        mp_estimate_end_job(estimate);
        mp_estimate_read(estimate, &share, &left);
        assert_close(left, lefts[turn], 1e-9);
        assert_close(share, spent[turn] / (spent[turn] + lefts[turn]), 1e-9);
    }
}

TEST(what_is_said_does_not_act_on_the_terminal) {
    struct mp_progress progress;
    FILE *stream = tmpfile();
    mp_progress_begin(&progress, stream);
    mp_progress_say(&progress, MP_TONE_BAD, "[1/2] %s: failed: %s", "a\x1b]0;b\a\xe2\x80\xae",
                    "c\nd \xc3\xa9");
    assert_file(stream, "[1/2] a?]0;b??: failed: c?d \xc3\xa9\n");
}
