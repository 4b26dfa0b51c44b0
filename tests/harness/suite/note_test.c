/* A note gives back what was written, whatever the texts hold. */
#include "harness/suite/note.h"
#include "tests/errors.h"
#include "tests/harness/folder.h"

TEST_END(note, struct mp_note, mp_note_destroy(it))

enum { NOTES = 200, MOST_FACTS = 4, TEXT_SIZE = 60 };

/* A text that JSON has to escape, and that may not be there. */
static const char *random_text(uint64_t *random, char text[TEXT_SIZE], bool is_required) {
    int length = test_random_int(random, 0, TEXT_SIZE - 1);
    for (int i = 0; i < length; i++)
        text[i] = (char)test_random_int(random, 1, 127);
    text[length] = '\0';
    return is_required || test_random_int(random, 0, 1) ? text : NULL;
}

static void assert_same(const char *text, const char *other) {
    assert_int_equal(!text, !other);
    if (text)
        assert_string_equal(text, other);
}

TEST_RANDOM(a_note_gives_back_what_was_written) {
    static const char *const names[MOST_FACTS] = {"a", "b.c", "d \"e\"", "f"};
    for (int n = 0; n < NOTES; n++) {
        char text[13 + MOST_FACTS][TEXT_SIZE];
        struct mp_store_fact fact[MOST_FACTS];
        AUTO(note) struct mp_note note;
        for (int i = 0; i < MOST_FACTS; i++)
            fact[i] = (struct mp_store_fact){names[i], random_text(random, text[13 + i], true)};
        const struct mp_store_run run = {.suite = random_text(random, text[0], true),
                                         .job = random_text(random, text[1], true),
                                         .suite_run = random_text(random, text[2], true),
                                         .system = random_text(random, text[3], true),
                                         .executor = random_text(random, text[4], true),
                                         .workload = random_text(random, text[5], true),
                                         .gate = random_text(random, text[6], false),
                                         .model = random_text(random, text[7], false),
                                         .started_at = random_text(random, text[8], true),
                                         .suite_text = random_text(random, text[9], false),
                                         .job_text = random_text(random, text[10], false),
                                         .command = random_text(random, text[11], false),
                                         .setting_key = random_text(random, text[12], false),
                                         .round = test_random_int(random, 0, 1000),
                                         .ranks = test_random_int(random, 1, 100000),
                                         .nodes = test_random_int(random, 1, 1000),
                                         .ranks_per_node = test_random_int(random, 1, 100),
                                         .iterations_wanted =
                                             (int64_t)test_random_int(random, 0, 1 << 30) << 20,
                                         .unattainable = test_random_int(random, 0, 1),
                                         .fact = fact,
                                         .facts = test_random_int(random, 0, MOST_FACTS)};
        assert_works(mp_note_write(&run, "note", &error));
        assert_works(mp_note_read("note", &note, &error));
        const char *const written[] = {run.suite,      run.job,        run.suite_run, run.system,
                                       run.executor,   run.workload,   run.gate,      run.model,
                                       run.started_at, run.suite_text, run.job_text,  run.command,
                                       run.setting_key};
        const struct mp_store_run *read = &note.run;
        const char *const got[] = {
            read->suite,    read->job,     read->suite_run,  read->system,     read->executor,
            read->workload, read->gate,    read->model,      read->started_at, read->suite_text,
            read->job_text, read->command, read->setting_key};
        for (int i = 0; i < 13; i++)
            assert_same(written[i], got[i]);
        assert_int_equal(run.round, read->round);
        assert_int_equal(run.ranks, read->ranks);
        assert_int_equal(run.nodes, read->nodes);
        assert_int_equal(run.ranks_per_node, read->ranks_per_node);
        assert_int_equal(run.iterations_wanted, read->iterations_wanted);
        assert_int_equal(run.unattainable, read->unattainable);
        assert_int_equal(run.facts, read->facts);
        for (int i = 0; i < run.facts; i++) {
            assert_string_equal(run.fact[i].name, read->fact[i].name);
            assert_string_equal(run.fact[i].value, read->fact[i].value);
        }
    }
}

TEST(other_bytes_do_not_stop_a_note) {
    struct mp_note note;
    const struct mp_store_run run = {.suite = "caf\xe9",
                                     .job = "caf\xc3\xa9",
                                     .suite_run = "r",
                                     .system = "ep",
                                     .executor = "measured",
                                     .workload = "text",
                                     .started_at = "then",
                                     .ranks = 1,
                                     .nodes = 1,
                                     .ranks_per_node = 1};
    assert_works(mp_note_write(&run, "note", &error));
    assert_works(mp_note_read("note", &note, &error));
    assert_string_equal(note.run.suite, "caf?");
    assert_string_equal(note.run.job, run.job);
    mp_note_destroy(&note);
    assert_fails(mp_note_write(&run, "gone/note", &error), MP_EIO, "gone/note");
}

TEST(a_held_folder_is_seen) {
    assert_int_equal(mkdir("job", 0777), 0);
    assert_false(mp_note_is_held("job"));
    int held = mp_note_hold("job");
    assert_true(held >= 0);
    assert_true(mp_note_is_held("job"));
    assert_int_equal(mp_note_hold("job"), -1);
    close(held);
    assert_false(mp_note_is_held("job"));
    assert_false(mp_note_is_held("gone"));
    assert_int_equal(mp_note_hold("gone"), -1);
}

TEST_GROUP(enter_folder, leave_folder);
