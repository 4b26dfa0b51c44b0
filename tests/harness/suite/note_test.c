/* A note gives back what was written, whatever the texts hold. */
#include "harness/suite/keep.h"
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

/* The texts of a run. */
#define TEXT(member) offsetof(struct mp_store_run, member)
static const struct {
    size_t at;
    bool is_required;
} texts[] = {{TEXT(suite), true},       {TEXT(job), true},       {TEXT(suite_run), true},
             {TEXT(system), true},      {TEXT(executor), true},  {TEXT(workload), true},
             {TEXT(gate), false},       {TEXT(model), false},    {TEXT(started_at), true},
             {TEXT(suite_text), false}, {TEXT(job_text), false}, {TEXT(command), false},
             {TEXT(setting_key), false}};
enum { TEXTS = sizeof texts / sizeof *texts };

static const char **text_at(struct mp_store_run *run, int i) {
    return (const char **)((char *)run + texts[i].at);
}

TEST_RANDOM_TURNS(a_note_gives_back_what_was_written, NOTES, n) {
    static const char *const names[MOST_FACTS] = {"a", "b.c", "d \"e\"", "f"};
    char text[TEXTS + MOST_FACTS][TEXT_SIZE];
    struct mp_store_fact fact[MOST_FACTS];
    AUTO(note) struct mp_note note;
    for (int i = 0; i < MOST_FACTS; i++)
        fact[i] = (struct mp_store_fact){names[i], random_text(random, text[TEXTS + i], true)};
    struct mp_store_run run = {.round = test_random_int(random, 0, 1000),
                               .ranks = test_random_int(random, 1, 100000),
                               .nodes = test_random_int(random, 1, 1000),
                               .ranks_per_node = test_random_int(random, 1, 100),
                               .iterations_wanted = (int64_t)test_random_int(random, 0, 1 << 30)
                                                    << 20,
                               .unattainable = test_random_int(random, 0, 1),
                               .fact = fact,
                               .facts = test_random_int(random, 0, MOST_FACTS)};
    for (int i = 0; i < TEXTS; i++)
        *text_at(&run, i) = random_text(random, text[i], texts[i].is_required);
    assert_works(mp_note_write(&run, "note", &error));
    assert_works(mp_note_read("note", &note, &error));
    struct mp_store_run *read = &note.run;
    for (int i = 0; i < TEXTS; i++) {
        const char *written = *text_at(&run, i), *got = *text_at(read, i);
        assert_int_equal(!written, !got);
        assert_string_equal(written ? written : "", got ? got : "");
    }
    assert_numbers(run.round, read->round, run.ranks, read->ranks, run.nodes, read->nodes);
    assert_int_equal(run.ranks_per_node, read->ranks_per_node);
    assert_int_equal(run.iterations_wanted, read->iterations_wanted);
    assert_numbers(run.unattainable, read->unattainable, run.facts, read->facts);
    for (int i = 0; i < run.facts; i++) {
        assert_string_equal(run.fact[i].name, read->fact[i].name);
        assert_string_equal(run.fact[i].value, read->fact[i].value);
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
