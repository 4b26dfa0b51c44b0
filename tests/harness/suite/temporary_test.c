/* A machine without a place for temporary files: said before anything starts, with a way out. */
#include <errno.h>
#include <fcntl.h>

#include "harness/suite/runner.h"
#include "tests/errors.h"
#include "tests/harness/folder.h"

TEST_END(suite, struct mp_suite, mp_suite_destroy(it))

static const char *read_only; /* folder that can't be written: root can write to all others */

/* In place of the C library's. */
int access(const char *path, int mode) {
    if (read_only && (mode & W_OK) && !strcmp(path, read_only)) {
        errno = EROFS;
        return -1;
    }
    return faccessat(AT_FDCWD, path, mode, 0);
}

static const struct mp_system ep = {.abi = MP_SYSTEM_ABI, .name = "ep"};
static const struct mp_systems systems = {.item = {&ep}, .count = 1};

TEST(mpirun_needs_a_temporary_folder) {
    AUTO(suite) struct mp_suite suite;
    struct mp_store *store;
    struct mp_progress progress;
    struct mp_runner_result result;
    write_file("words", "words");
    write_file("suite.yaml", "suite: s\njobs: [{name: two, system: ep, ranks: 2, text: words}]\n");
    write_script("trainer", "echo started >>started\n");
    write_script("mpirun", "echo started >>started\n");
    setenv("PATH", test_folder, 1);
    assert_works(mp_suite_load("suite.yaml", &systems, NULL, &suite, &error));
    assert_works(mp_store_open("results.db", &store, &error));
    mp_progress_begin(&progress, NULL);
    const struct mp_runner runner = {.suite = &suite,
                                     .store = store,
                                     .work = "runs",
                                     .trainer = "./trainer",
                                     .progress = &progress};
    static const char *const folders[] = {"/tmp", "/scratch"};
    for (int i = 0; i < 2; i++) {
        read_only = folders[i];
        if (i > 0)
            setenv("TMPDIR", folders[i], 1);
        else
            unsetenv("TMPDIR");
        assert_sentence(
            mp_runner_run(&runner, &result, &error), MP_EIO,
            formatted("mpirun keeps its files in %s, which can't be written: Read-only file "
                      "system; TMPDIR=FOLDER in the environment names another folder",
                      folders[i]));
        assert_int_equal(access("started", F_OK), -1);
    }
    setenv("TMPDIR", formatted("%s/gone", test_folder), 1); /* mpirun makes it */
    assert_works(mp_runner_run(&runner, &result, &error));
    assert_int_equal(access("started", F_OK), 0);
    mp_store_close(store);
}

static int enter(void **state) {
    unsetenv("TEMP");
    unsetenv("TMP");
    return enter_folder(state);
}

TEST_GROUP(enter, leave_folder);
