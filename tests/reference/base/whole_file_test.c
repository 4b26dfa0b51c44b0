/* Whole files: all of it or nothing, whoever else writes, whatever is there already. */
#include "reference/base/whole_file.h"

#include <fcntl.h>

#include "tests/errors.h"
#include "tests/files.h"
#include "tests/harness/folder.h"

static void assert_opens(struct mp_whole_file *file, const char *path) {
    assert_works(mp_whole_file_open(file, path, &error));
    assert_non_null(file->stream);
}

static void assert_closes(struct mp_whole_file *file) {
    assert_works(mp_whole_file_close(file, MP_OK, &error));
    assert_null(file->stream);
}

static void assert_holds(const char *path, const char *text) {
    AUTO(allocated) char *found = read_file(path);
    assert_string_equal(found, text);
}

static void write_whole(const char *path, const char *text) {
    struct mp_whole_file file;
    assert_opens(&file, path);
    fputs(text, file.stream);
    assert_closes(&file);
    assert_holds(path, text);
}

TEST(it_has_its_name_at_the_end_only) {
    struct mp_whole_file file;
    write_file("old", "before");
    for (int failed = 1; failed >= 0; failed--) {
        assert_opens(&file, "old");
        fputs("after", file.stream);
        fflush(file.stream);
        assert_holds("old", "before");
        assert_int_equal(count_entries(".", ".partial"), 1);
        assert_int_equal(mp_whole_file_close(&file, failed ? MP_EINVAL : MP_OK, NULL),
                         failed ? MP_EINVAL : MP_OK);
        assert_holds("old", failed ? "before" : "after");
        assert_int_equal(count_entries(".", ".partial"), 0);
    }
}

/* Signals are held back only while a name is made, and are as they were afterwards. */
TEST(signals_are_let_through_again) {
    struct mp_whole_file file;
    sigset_t mine, now;
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &mine, NULL);
    assert_opens(&file, "signals");
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int signal = 1; signal < SIGSYS; signal++)
        assert_int_equal(sigismember(&now, signal), signal == SIGUSR2);
    sigemptyset(&mine);
    pthread_sigmask(SIG_SETMASK, &mine, NULL);
    assert_closes(&file);
}

/* Each byte of the result is of one writer, the last to end, and nothing else stays. */
TEST(writers_of_one_file_do_not_meet) {
    enum { WRITERS = 3, ROUNDS = 100 };
    struct mp_whole_file file[WRITERS];
    char expected[ROUNDS + 1] = "";
    for (int w = 0; w < WRITERS; w++)
        assert_opens(&file[w], "shared");
    for (int i = 0; i < ROUNDS; i++)
        for (int w = 0; w < WRITERS; w++)
            fputc('a' + w, file[w].stream);
    for (int w = 0; w < WRITERS; w++) {
        assert_closes(&file[w]);
        memset(expected, 'a' + w, ROUNDS);
        assert_holds("shared", expected);
    }
    assert_int_equal(count_entries(".", "shared"), 1);
}

/* Nor do those of several processes that start in the same moment. */
TEST(processes_take_names_of_their_own) {
    enum { PROCESSES = 8, ROUNDS = 50 };
    pid_t child[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        child[p] = fork();
        for (int i = 0; child[p] == 0 && i < ROUNDS; i++) {
            struct mp_whole_file file;
            if (mp_whole_file_open(&file, "raced", NULL))
                _exit(1);
            fprintf(file.stream, "%d\n%d\n", p, p);
            if (mp_whole_file_close(&file, MP_OK, NULL))
                _exit(2);
        }
        if (child[p] == 0)
            _exit(0);
    }
    for (int p = 0; p < PROCESSES; p++)
        assert_int_equal(end_of_process(child[p]), 0);
    int first = -1, second = -2;
    AUTO(text) char *text = read_file("raced");
    assert_int_equal(sscanf(text, "%d %d", &first, &second), 2);
    assert_int_equal(first, second);
    assert_int_equal(strlen(text), 4);
    assert_int_equal(count_entries(".", "raced"), 1);
}

TEST(the_umask_says_who_may_read_it) {
    static const mode_t masks[] = {0077, 0022, 0002};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        struct stat status;
        mode_t before = umask(masks[i]);
        write_whole("masked", "text");
        umask(before);
        assert_int_equal(stat("masked", &status), 0);
        assert_int_equal(status.st_mode & 0777, 0666 & ~masks[i]);
    }
}

/* A link is a name for what it leads to, there already or not. */
TEST(links_are_followed_and_stay) {
    struct stat status;
    assert_int_equal(mkdir("far", 0777), 0);
    assert_int_equal(symlink("far/link", "first"), 0);
    assert_int_equal(symlink("behind", "far/link"), 0); /* beside it, not beside the first */
    for (int i = 0; i < 2; i++) {
        write_whole("first", i ? "second text" : "first text");
        assert_holds("far/behind", i ? "second text" : "first text");
        assert_int_equal(lstat("first", &status), 0);
        assert_true(S_ISLNK(status.st_mode));
        assert_int_equal(lstat("far/link", &status), 0);
        assert_true(S_ISLNK(status.st_mode));
    }
    assert_int_equal(access("behind", F_OK), -1);
}

/* Somebody knows the names that files had while they were written, and puts links there. */
TEST(links_at_other_names_lead_nowhere) {
    write_file("victim", "untouched");
    assert_int_equal(symlink("victim", "target.partial"), 0);
    write_whole("target", "text");
    assert_holds("victim", "untouched");
}

TEST(names_may_be_as_long_as_names_are) {
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    write_whole(name, "text");
}

TEST(what_cannot_be_written_is_said) {
    const struct {
        const char *path, *words;
        int code;
    } bad[] = {{".", ". is there and no file", MP_EINVAL},
               {"gone/x", "can't write gone/x: No such file or directory", MP_EIO},
               {"", "can't write : No such file or directory", MP_EIO},
               {"runs", "runs is a database, which nothing replaces: give another name", MP_EINVAL},
               {"new/", "can't write new/: Is a directory", MP_EIO},
               {"circle", "can't write circle: Too many levels of symbolic links", MP_EIO},
               {"/dev/fd/999", "can't write /dev/fd/999: Bad file descriptor", MP_EIO}};
    assert_int_equal(symlink("circle", "circle"), 0);
    write_bytes("runs", "SQLite format 3", 16);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mp_whole_file file;
        assert_sentence(mp_whole_file_open(&file, bad[i].path, &error), bad[i].code, bad[i].words);
        assert_null(file.stream);
        assert_int_equal(mp_whole_file_close(&file, bad[i].code, NULL), bad[i].code);
        assert_sentence(mp_whole_file_try(bad[i].path, &error), bad[i].code, bad[i].words);
    }
    assert_works(mp_whole_file_try("new", &error));
    assert_int_equal(access("new", F_OK), -1);
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_works(mp_whole_file_try("pipe", &error));     /* nor waits for a reader */
    assert_int_equal(count_entries(".", ".partial"), 1); /* the link above */
}

TEST(a_full_disk_leaves_what_was_there) {
    static const int bytes[] = {50, 100000}; /* seen when it is closed; seen before */
    write_file("kept", "before");
    for (int i = 0; i < 2; i++) {
        struct mp_whole_file file;
        assert_opens(&file, "kept");
        limit_files(40);
        for (int k = 0; k < bytes[i]; k++)
            fputc('x', file.stream);
        assert_sentence(mp_whole_file_close(&file, MP_OK, &error), MP_ENOSPACE,
                        "can't write kept: File too large");
        limit_files(RLIM_INFINITY);
        assert_holds("kept", "before");
        assert_int_equal(count_entries(".", "kept"), 1);
    }
}

TEST(devices_are_written_directly) {
    struct mp_whole_file file;
    assert_opens(&file, "/dev/full");
    assert_null(file.partial);
    fputs("text", file.stream);
    assert_sentence(mp_whole_file_close(&file, MP_OK, &error), MP_ENOSPACE,
                    "can't write /dev/full: No space left on device");
    assert_opens(&file, "/dev/null");
    assert_closes(&file);
}

/* What a shell makes of `-o /dev/stdout >FILE` and of `-o >(PROGRAM)`. */
TEST(open_descriptors_go_on_where_they_are) {
    struct mp_whole_file file;
    char path[64], read_back[16] = "";
    int plain = open("log", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), ends[2];
    assert_int_equal(write(plain, "before ", 7), 7);
    snprintf(path, sizeof path, "/dev/fd/%d", plain);
    assert_opens(&file, path);
    fputs("text", file.stream);
    assert_closes(&file);
    assert_int_equal(write(plain, " after", 6), 6);
    close(plain);
    assert_holds("log", "before text after");
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    assert_opens(&file, path);
    fputs("through", file.stream);
    assert_closes(&file);
    close(ends[1]);
    assert_int_equal(read(ends[0], read_back, sizeof read_back), 7);
    assert_string_equal(read_back, "through");
    close(ends[0]);
}

TEST(what_is_open_can_be_removed_by_a_handler) {
    struct mp_whole_file ended, open_one, open_other;
    write_whole("ended", "text");
    assert_opens(&ended, "ended");
    assert_closes(&ended);
    assert_opens(&open_one, "one");
    assert_opens(&open_other, "other");
    mp_whole_files_abandon();
    assert_int_equal(count_entries(".", "one") + count_entries(".", "other"), 0);
    assert_int_equal(count_entries(".", "ended"), 1);
    assert_int_equal(mp_whole_file_close(&open_one, MP_OK, NULL), MP_EIO);
    assert_int_equal(mp_whole_file_close(&open_other, MP_EINVAL, NULL), MP_EINVAL);
}

TEST_GROUP(enter_folder, leave_folder);
