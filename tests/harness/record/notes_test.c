/* What happened to a recording is in its run, and said: descriptors that the program closed, an end
 * that never came. */
#include <fcntl.h>

#include "profiler/device/companion.h"
#include "profiler/record/spool.h"
#include "tests/harness/record/kept.h"
#include "tests/records.h"

enum { FIRST = 3, LAST = 900, ACTIVITIES = 100 };
static const char precious[] = "precious";

static struct mp_recorder *record_rank(const char *spools, int rank) {
    struct mp_recorder *recorder = NULL;
    struct mp_record_thread *thread = NULL;
    char path[200];
    snprintf(path, sizeof path, "%s/%d.spool", spools, rank);
    const struct mp_recorder_config config = {.path = path, .rank = rank, .ranks = rank + 1};
    const struct mp_range range = {.start_ns = RUNS_T0, .end_ns = RUNS_T0 + 1000, .name = 1};
    if (mp_recorder_create(&config, &recorder, NULL) ||
        mp_recorder_thread(recorder, "nvtx", &thread, NULL))
        _exit(1);
    put_name(thread, 1, MP_NAME_STRING, "step");
    put_range(thread, range);
    mp_recorder_flush(recorder, NULL);
    return recorder;
}

/* The numbers of all that it has open become a file of the program's own. */
static void take_all_numbers(const char *path) {
    for (int number = FIRST; number <= LAST; number++)
        close(number);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(file, precious, sizeof precious - 1) != sizeof precious - 1)
        _exit(2);
    for (int number = FIRST; number <= LAST; number++)
        dup2(file, number);
}

/* Rank 0, with both collectors of GPU work; and rank 1, which ends without a word. */
static void be_the_program(const char *spools, const char *own_file) {
    static const char *const collectors[] = {"cupti", "nccl"};
    const struct mp_activity kernel = {
        .start_ns = RUNS_T0, .end_ns = RUNS_T0 + 1, .kind = MP_ACTIVITY_KERNEL};
    struct mp_companion companion[2];
    setenv("MOEPERF_DEVICE_SPOOLS", spools, 1);
    record_rank(spools, 1);
    struct mp_recorder *recorder = record_rank(spools, 0);
    for (int i = 0; i < 2; i++) {
        if (mp_companion_open(&companion[i], collectors[i], NULL))
            _exit(3);
        mp_companion_status(&companion[i], collectors[i], "on");
    }
    take_all_numbers(own_file);
    for (int i = 0; i < 2; i++) {
        for (int a = 0; a < ACTIVITIES; a++)
            put_activity(companion[i].thread, kernel);
        mp_companion_close(&companion[i]);
    }
    mp_recorder_finish(&recorder, MP_OK, NULL, NULL);
    _exit(0);
}

RUNS_TEST_ALONE(what_happened_to_a_recording_is_said) {
    static const char closed[] = "the program closed the descriptor of its recording (1 time); the "
                                 "file was opened again, and nothing is missing";
    char spools[SPOOLS_SIZE], own_file[100], said[4000] = "", content[64];
    make_spools(folder, spools);
    snprintf(own_file, sizeof own_file, "%s/own", folder->path);
    pid_t child = fork();
    if (child == 0)
        be_the_program(spools, own_file);
    assert_int_equal(end_of_process(child), 0);

    int file = open(own_file, O_RDONLY);
    assert_int_equal(read(file, content, sizeof content), sizeof precious - 1);
    assert_memory_equal(content, precious, sizeof precious - 1);
    close(file);
    unlink(own_file);

    const struct mp_record_run run = {.spools = spools};
    assert_works(keep_run(folder, run, NULL, said, sizeof said, &error));
    assert_rows(folder->store,
                "SELECT count(*), sum(status = 'on') FROM device_spool WHERE complete", "2|2");
    assert_contains(said, formatted("rank 0: %s\n", closed),
                    "rank 1: its recording stops without an end, as after a kill or "
                    "_exit: what was not written by then is missing\n");
    for (int i = 0; i < 2; i++)
        assert_contains(said, formatted("%s: %s\n", i ? "nccl" : "cupti", closed));
    assert_rows(folder->store, "SELECT status, reason LIKE '%closed%' FROM rank WHERE rank = 0",
                "complete|1");
    assert_rows(folder->store, "SELECT group_concat(name) FROM v_fact WHERE value LIKE '%closed%'",
                "cupti.note,nccl.note");
}
