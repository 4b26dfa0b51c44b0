/* moeperf-train where something ends it: signals, kills, full disks; alone and under mpirun.
 * Whatever happens, every completed iteration is in the spools. */
#include <dirent.h>
#include <sys/mount.h>

#include "tests/reference/trainer/program.h"

/* ---- signals ---- */

static struct run start_recorded(int ranks, rlim_t file_limit) {
    clear_spools();
    return start_trainer(ranks, file_limit,
                         ranks ? "job.yaml --set ranks=2 --spool-directory spools --progress"
                               : "job.yaml --spool-directory spools --progress");
}

/* Ends by a signal: all that was done is recorded, and says so. */
static void assert_interrupted(struct run *run, int ranks, int at_least) {
    wait_for_end(run);
    int done = progress();
    char line[64];
    assert_int_equal(run->status, 0);
    snprintf(line, sizeof line, "stopped by a signal after iteration %d", done);
    assert_true(done >= at_least);
    assert_int_equal(own_lines(line), 1);
    for (int r = 0; r < ranks; r++) {
        struct found found = read_spool("spools", r);
        assert_numbers(found.iterations, done, found.status, MP_EINTERRUPTED);
        assert_string_equal(found.reason, line);
        assert_int_equal(found.unread, 0);
    }
}

static const int stopping[] = {SIGINT, SIGTERM};

/* Which signals a thread holds back, or has handlers for: a mask of the line of /proc. */
static unsigned long long signals_of(pid_t pid, const char *thread, const char *line) {
    char text[256];
    unsigned long long mask = 0;
    FILE *status = fopen(formatted("/proc/%d/task/%s/status", (int)pid, thread), "r");
    assert_non_null(status);
    while (fgets(text, sizeof text, status))
        if (!strncmp(text, line, strlen(line)))
            sscanf(text + strlen(line), "%llx", &mask);
    fclose(status);
    return mask;
}

/* No thread that computes is ever interrupted (main.c): one thread waits for signals, all others
 * hold them back. */
static void assert_one_thread_waits(pid_t pid) {
    unsigned long long ends = 1ull << (SIGINT - 1) | 1ull << (SIGTERM - 1);
    int held = 0, waiting = 0;
    DIR *threads = opendir(formatted("/proc/%d/task", (int)pid));
    assert_non_null(threads);
    for (struct dirent *thread; (thread = readdir(threads));) {
        if (thread->d_name[0] == '.')
            continue;
        assert_true((signals_of(pid, thread->d_name, "SigCgt:") & ends) == 0);
        unsigned long long blocked = signals_of(pid, thread->d_name, "SigBlk:") & ends;
        assert_true(blocked == 0 || blocked == ends);
        held += blocked == ends;
        waiting += blocked == 0;
    }
    closedir(threads);
    assert_true(held > 0);
    assert_int_equal(waiting, 1);
}

/* With nothing to keep they end it as they end any program. */
TEST_WITH(signals_end_what_does_not_train, NULL, end_run) {
    for (int i = 0; i < 2; i++) {
        struct run run = start_trainer(0, 0, "--calibrate machine.yaml");
        usleep(300000 * (useconds_t)i);
        kill(run.pid, stopping[i]);
        wait_for_end(&run);
        assert_int_equal(run.status, 128 + stopping[i]);
    }
}

TEST_WITH(signals_end_a_run_after_its_iteration, NULL, end_run) {
    for (int i = 0; i < 2; i++) {
        struct run run = start_recorded(0, 0);
        wait_for_progress(&run, 3);
        assert_one_thread_waits(run.pid);
        kill(run.pid, stopping[i]);
        assert_interrupted(&run, 1, 3);
    }
}

/* One rank is asked, both end after the same iteration. */
TEST_WITH(a_signal_to_one_rank_ends_all, NULL, end_run) {
    for (int i = 0; i < 2; i++) {
        struct run run = start_recorded(2, 0);
        wait_for_progress(&run, 3);
        kill(read_spool("spools", !i).pid, stopping[i]);
        assert_interrupted(&run, 2, 3);
    }
}

/* mpirun itself passes a signal on as SIGTERM, has its own opinion of the exit status, may drop the
 * ranks' last words, and kills them after a second, which a loaded machine may need for more. */
TEST_WITH(a_signal_to_mpirun_ends_all, NULL, end_run) {
    for (int i = 0; i < 2; i++) {
        struct run run = start_recorded(2, 0);
        wait_for_progress(&run, 3);
        kill(run.pid, stopping[i]);
        wait_for_end(&run);
        struct found first = read_spool("spools", 0), second = read_spool("spools", 1);
        assert_true(first.iterations >= progress() && first.iterations >= 3);
        if (first.status == 1 || second.status == 1) {
            print_message("mpirun killed a rank before it had ended by itself\n");
            assert_in_range(second.iterations, first.iterations - 1, first.iterations + 1);
            continue;
        }
        assert_int_equal(first.iterations, second.iterations);
        assert_true(first.status == MP_EINTERRUPTED && second.status == MP_EINTERRUPTED);
    }
}

TEST_WITH(a_killed_rank_ends_the_run_and_loses_nothing, NULL, end_run) {
    for (int victim = 0; victim < 2; victim++) {
        struct run run = start_recorded(2, 0);
        wait_for_progress(&run, 5);
        kill(read_spool("spools", victim).pid, SIGKILL);
        wait_for_end(&run);
        int done = progress();
        assert_int_not_equal(run.status, 0);
        struct found first = read_spool("spools", 0), second = read_spool("spools", 1);
        /* Progress is printed when rank 0 has flushed; rank 1 may have been about to. */
        assert_true(first.iterations >= done);
        assert_true(second.iterations >= done - 1);
        assert_true(first.status != MP_OK && second.status != MP_OK);
    }
}

static int checkpointed(const char *path) {
    AUTO(text) char *text = read_file(path);
    char *at = strstr(text, "iteration: ");
    assert_non_null(at);
    return atoi(at + strlen("iteration: "));
}

/* Slots that follow what was popular are there again after a kill: the curve goes on as if there
 * had been none. */
TEST_WITH(a_killed_run_goes_on_from_its_checkpoint, NULL, end_run) {
    static const char job[] = "job.yaml --progress --spool-directory spools --set ranks=2 "
                              "--set system=swiftmoe --set checkpoint-every=2";
    char words[400];
    snprintf(words, sizeof words, "%s --set checkpoint=kept", job);
    clear_spools();
    struct run run = start_trainer(2, 0, words);
    wait_for_progress(&run, 6);
    kill(read_spool("spools", 1).pid, SIGKILL);
    wait_for_end(&run);
    assert_int_not_equal(run.status, 0);
    int iteration = checkpointed("kept/checkpoint.yaml");
    assert_true(iteration >= 4);
    struct reported last[2] = {0};
    for (int unbroken = 0; unbroken < 2; unbroken++) {
        clear_spools();
        snprintf(words, sizeof words, "%s --set iterations=%d --set checkpoint=later%s", job,
                 iteration + 10, unbroken ? "" : " --set restore=kept");
        run_trainer(2, words, 0);
        read_progress(&last[unbroken], 1);
        assert_int_equal(last[unbroken].done, iteration + 10);
    }
    assert_true(last[0].loss > 0 && last[0].loss == last[1].loss);
    assert_int_equal(checkpointed("later/checkpoint.yaml"), iteration + 10);
}

/* ---- full disks ---- */

static void assert_readable_up_to_the_end(int ranks, const char *folder) {
    int done = progress();
    for (int r = 0; r < ranks; r++) {
        struct found found = read_spool(folder, r);
        /* The other rank may have been a step behind when it was ended. */
        assert_true(found.iterations >= done - 1 && found.iterations > 0);
        if (ranks == 1)
            assert_int_equal(found.unread, 0); /* cut back to the last whole record */
        assert_int_not_equal(found.status, MP_OK);
    }
}

/* A size limit stands for a disk: mpirun's own files would meet it, too, so one rank alone. */
TEST_WITH(a_file_at_its_limit_ends_the_run_with_a_message, NULL, end_run) {
    struct run run = start_recorded(0, 150000);
    wait_for_end(&run);
    assert_int_equal(run.status, 2);
    assert_int_equal(own_lines("File too large; the spool ends after"), 1);
    assert_true(progress() > 3);
    assert_readable_up_to_the_end(1, "spools");
}

TEST_WITH(a_full_disk_ends_the_run_with_a_message, NULL, end_run) {
    for (int ranks = 0; ranks <= 2; ranks += 2) {
        clear_spools();
        if (mount("none", "spools", "tmpfs", 0, "size=400k") != 0)
            skip("no file system may be mounted here: %s", strerror(errno));
        struct run run = start_recorded(ranks, 0);
        for (int ms = 0; !has_ended(&run) && ms < PATIENCE_MS; ms += 10)
            usleep(10000);
        assert_int_equal(system("rm -rf kept && cp -r spools kept"), 0);
        umount2("spools", MNT_DETACH);
        assert_int_equal(run.status, 2);
        assert_in_range(own_lines("No space left on device"), 1, ranks ? 2 : 1);
        assert_readable_up_to_the_end(ranks ? 2 : 1, "kept");
    }
}

TEST_GROUP(enter, leave_folder);
