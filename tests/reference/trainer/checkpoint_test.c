/* Checkpoints of one rank against everything that may stand in the way: kills, full disks, folders
 * that are something else. */
#include "reference/trainer/checkpoint.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/errors.h"
#include "tests/golden/small_trainer.h"
#include "tests/harness/folder.h"

enum { SEQUENCES = 2, SEQUENCE = 8, TOKENS = SEQUENCES * SEQUENCE };
static uint64_t random_state;

static void create_under(struct small_trainer *small, const char *system) {
    small_trainer_create(small, formatted("layers=2 width=16 heads=2 experts=4 sequence=8 batch=2 "
                                          "system=%s expert-width=24 check-plans=no",
                                          system));
}

static void create(struct small_trainer *small) {
    create_under(small, "fssdp");
}

static int begin(void **state) {
    static struct small_trainer small;
    create(&small);
    *state = &small;
    return 0;
}

static int end(void **state) {
    small_trainer_destroy(*state);
    return 0;
}

#define SMALL_TEST(function)                                                                       \
    TEST_TAKING(function, struct small_trainer *small, begin, end, 1, #function, NULL)

static double step(struct small_trainer *small) {
    int32_t token[TOKENS], target[TOKENS];
    struct mp_trainer_result result;
    for (int i = 0; i < TOKENS; i++) {
        token[i] = (int32_t)((small->trainer->iteration * 7 + i * i) % 256);
        target[i] = (token[i] * 3 + 1) % 256;
    }
    assert_works(mp_trainer_step_on(small->trainer, token, target, &result, &error));
    return result.loss;
}

/* Saves one checkpoint after another until it is killed; tells through shared memory how many. */
static void save_for_ever(struct small_trainer *small, const char *folder, _Atomic int *saved) {
    struct mp_error error = {0};
    while (!error.code) {
        small->trainer->iteration++;
        if (!mp_trainer_save(small->trainer, folder, &error))
            atomic_fetch_add(saved, 1);
    }
    fprintf(stderr, "%s\n", error.text);
    _exit(1);
}

SMALL_TEST(a_kill_leaves_a_whole_checkpoint) {
    enum { KILLS = 30 };
    int later = 0;
    _Atomic int *saved =
        mmap(NULL, sizeof *saved, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(saved != MAP_FAILED);
    struct mp_error error = {0};
    for (int i = 0; i < KILLS; i++) {
        assert_int_equal(mp_trainer_save(small->trainer, "killed", &error), MP_OK);
        int64_t least = mp_trainer_iteration(small->trainer);
        atomic_store(saved, 0);
        pid_t child = fork();
        if (child == 0)
            save_for_ever(small, "killed", saved);
        /* A slow machine may not save in that while at all: every other kill waits for it. */
        while (i % 2 && atomic_load(saved) == 0 && waitpid(child, NULL, WNOHANG) == 0)
            usleep(200);
        usleep((useconds_t)test_random_int(&random_state, 1000, 60000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(end_of_process(child), SIGKILL); /* it was saving until then */
        if (mp_trainer_restore(small->trainer, "killed", &error))
            fail_msg("kill %d: %s", i, error.text);
        assert_true(mp_trainer_iteration(small->trainer) >= least + atomic_load(saved));
        later += mp_trainer_iteration(small->trainer) > least;
    }
    print_message("%d of %d kills left a later checkpoint\n", later, KILLS);
    assert_true(later >= KILLS / 2);
    munmap((void *)saved, sizeof *saved);
}

/* A disk that gets full at some byte of the new checkpoint leaves the old one as it was. */
TEST(a_full_disk_leaves_the_previous_checkpoint) {
    AUTO(small_trainer) struct small_trainer small, other;
    create(&small);
    create(&other);
    step(&small);
    assert_works(mp_trainer_save(small.trainer, "full", &error));
    double expected = step(&small);
    static const rlim_t sizes[] = {0, 10, 100, 1000, 10000, 20000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        limit_files(sizes[i]);
        assert_fails(mp_trainer_save(small.trainer, "full", &error), MP_ENOSPACE, "full.partial/",
                     "File too large");
        limit_files(RLIM_INFINITY);
        assert_works(mp_trainer_restore(other.trainer, "full", &error));
        assert_int_equal(mp_trainer_iteration(other.trainer), 1);
        assert_true(step(&other) == expected);
    }
}

/* What another run is writing is its own, as long as it lives. */
SMALL_TEST(two_runs_do_not_write_one_checkpoint) {
    step(small);
    assert_int_equal(mkdir("busy.partial", 0777), 0);
    write_file("busy.partial/dense.bin", "of the other run");
    int other = open("busy.partial", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(other, LOCK_EX), 0);
    assert_sentence(mp_trainer_save(small->trainer, "busy", &error), MP_EIO,
                    "checkpoint busy.partial: another run is writing it");
    AUTO(text) char *text = read_file("busy.partial/dense.bin");
    assert_string_equal(text, "of the other run");
    close(other); /* it was killed */
    for (int i = 0; i < 2; i++) {
        assert_works(mp_trainer_save(small->trainer, "busy", &error));
        assert_int_equal(count_entries(".", "busy"), 1);
    }
}

SMALL_TEST(names_with_slashes_are_folders) {
    for (int i = 0; i < 2; i++) { /* the second replaces the first */
        step(small);
        assert_works(mp_trainer_save(small->trainer, "slashed//", &error));
        assert_int_equal(access("slashed/checkpoint.yaml", R_OK), 0);
        assert_int_not_equal(access("slashed.partial", F_OK), 0);
        assert_int_not_equal(access("slashed.old", F_OK), 0);
        assert_works(mp_trainer_restore(small->trainer, "slashed/", &error));
        assert_int_equal(mp_trainer_iteration(small->trainer), i + 1);
    }
}

/* The folder behind a link is written, whether it is empty or has a checkpoint; the link stays. */
SMALL_TEST(links_to_folders_are_followed) {
    struct stat status;
    static const char *const names[] = {"link", "link/", "behind/.", "behind/below/.."};
    assert_int_equal(mkdir("behind", 0777) | symlink("behind", "link"), 0);
    for (int i = 0; i < 4; i++) {
        step(small);
        if (i == 3)
            assert_int_equal(mkdir("behind/below", 0777), 0);
        assert_works(mp_trainer_save(small->trainer, names[i], &error));
        assert_int_equal(lstat("link", &status), 0);
        assert_true(S_ISLNK(status.st_mode));
        assert_int_equal(access("behind/checkpoint.yaml", R_OK), 0);
        assert_int_not_equal(access("behind.partial", F_OK), 0);
        assert_int_not_equal(access("link.partial", F_OK), 0);
        assert_works(mp_trainer_restore(small->trainer, "link", &error));
        assert_int_equal(mp_trainer_iteration(small->trainer), i + 1);
    }
}

SMALL_TEST(others_folders_are_left_alone) {
    assert_int_equal(mkdir("precious", 0777) | mkdir("vacant", 0777), 0);
    write_file("precious/thesis.tex", "years of work");
    write_file("plain", "a file");
    assert_int_equal(symlink("nowhere", "dangling") | symlink("plain", "to-a-file"), 0);
    static const struct {
        const char *folder;
        int code;
        const char *message;
    } cases[] = {
        {"precious", MP_EINVAL, "checkpoint precious: the folder holds something else"},
        {"precious/", MP_EINVAL, "holds something else"},
        {"plain", MP_EINVAL, "checkpoint plain: it is a file"},
        {"dangling", MP_EINVAL, "checkpoint dangling: it leads nowhere: No such file"},
        {"to-a-file", MP_EINVAL, "it is a file"},
        {"no/such", MP_EIO, "checkpoint no/such: no: No such file"},
        {"vacant", MP_OK, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(mp_trainer_save(small->trainer, cases[i].folder, &error), cases[i].code,
                     cases[i].message);
    }
    AUTO(text) char *kept = read_file("precious/thesis.tex");
    assert_string_equal(kept, "years of work");
}

/* A shard whose checksum is right may still not belong here. */
SMALL_TEST(shards_that_do_not_belong_are_refused) {
    uint32_t floats = (uint32_t)mp_trainer_model(small->trainer)->experts.chunk;
    AUTO(allocated) float *zeros = calloc(floats, sizeof *zeros);
    static const struct {
        int entries, fewer_floats;
        int32_t index[16];
        const char *message;
    } cases[] = {
        {1, 0, {0, 1}, "expert 0 of layer 0 is there 0 times, not 1"},
        {8,
         0,
         {0, 0, 0, 1, 0, 2, 0, 3, 1, 0, 1, 1, 1, 2, 1, 2},
         "expert 2 of layer 1 is there 2 times, not 1"},
        {1, 0, {2, 0}, "expert 0 of layer 2"},
        {1, 0, {0, -1}, "expert -1 of layer 0"},
        {1, 1, {0, 0}, "767 floats"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mp_shard_writer writer;
        assert_works(mp_trainer_save(small->trainer, "strange", &error));
        assert_works(mp_shard_create("strange/experts-0000.bin", cases[i].entries, cases[i].index,
                                     floats - (uint32_t)cases[i].fewer_floats, &writer, &error));
        for (int b = 0; b < 3 * cases[i].entries; b++)
            assert_works(mp_shard_append(&writer, zeros, &error));
        assert_works(mp_shard_finish(&writer, MP_OK, &error));
        assert_fails(mp_trainer_restore(small->trainer, "strange", &error), MP_EFORMAT,
                     cases[i].message);
        step(small); /* the model is as it was */
    }
}

/* Puts `to` in place of `from` in the description of a checkpoint. */
static void redescribe(const char *path, const char *from, const char *to) {
    AUTO(text) char *text = read_file(path);
    char *at = strstr(text, from);
    assert_non_null(at);
    write_file(path, formatted("%.*s%s%s", (int)(at - text), text, to, at + strlen(from)));
}

/* What is at `at` of a buffer (0 .. 2) of an expert, counted over layers. */
static float value(int expert, int buffer, size_t at) {
    return (float)((expert * 3 + buffer) * 10000 + (int)at);
}

/* Slices of ranks by which experts don't divide: the last one is filled up, with what is nobody's.
 * One rank puts them together, be it that it keeps experts whole or as its only slice. */
TEST(slices_of_other_ranks_are_put_together) {
    enum { OTHERS = 5, ALL = 2 * 4 };
    static const char *const systems[] = {"fssdp", "swiftmoe"};
    static const int32_t index[] = {0, 0, 0, 1, 0, 2, 0, 3, 1, 0, 1, 1, 1, 2, 1, 3};
    for (int s = 0; s < 2; s++) {
        AUTO(small_trainer) struct small_trainer small;
        create_under(&small, systems[s]);
        const struct mp_experts *experts = &mp_trainer_model(small.trainer)->experts;
        size_t floats = experts->chunk / OTHERS + 1;
        AUTO(allocated) float *slice = malloc(floats * sizeof *slice);
        assert_works(mp_trainer_save(small.trainer, "slices", &error));
        redescribe("slices/checkpoint.yaml", "ranks: 1", "ranks: 5");
        redescribe("slices/checkpoint.yaml", s ? "slices: 1" : "slices: 0", "slices: 5");
        for (size_t r = 0; r < OTHERS; r++) {
            struct mp_shard_writer writer;
            assert_works(mp_shard_create(formatted("slices/experts-%04zu.bin", r), ALL, index,
                                         (uint32_t)floats, &writer, &error));
            for (int b = 0; b < 3 * ALL; b++) {
                for (size_t i = 0; i < floats; i++)
                    slice[i] = value(b / 3, b % 3, r * floats + i);
                assert_works(mp_shard_append(&writer, slice, &error));
            }
            assert_works(mp_shard_finish(&writer, MP_OK, &error));
        }
        assert_works(mp_trainer_restore(small.trainer, "slices", &error));
        for (int b = 0; b < 3 * ALL; b++) {
            float *buffer[3];
            assert_true(mp_experts_state(experts, b / 3 / 4, b / 3 % 4, buffer));
            for (size_t i = 0; i < experts->chunk; i++)
                assert_true(buffer[b % 3][i] == value(b / 3, b % 3, i));
        }
    }
}

SMALL_TEST(damaged_descriptions_are_refused) {
    step(small);
    static const struct {
        const char *from, *to;
        int code;
        const char *message;
    } cases[] = {
        {"format: 2", "format: 1", MP_EVERSION, "format is 1 there and 2 here"},
        {"width: 16", "width: many", MP_EFORMAT, "width should be a number"},
        {"ranks: 1", "ranks: 0", MP_EFORMAT, "system, options or ranks missing"},
        {"system: ", "sistem: ", MP_EFORMAT, "system, options or ranks missing"},
        {"options: ", "option: ", MP_EFORMAT, "system, options or ranks missing"},
        {"slices: 0", "slices: 2", MP_EFORMAT, "2 slices by 1 ranks"},
        {"iteration: ", "iterations: ", MP_EFORMAT, "iteration should be a number"},
        {"iteration: ", "iteration: -", MP_EFORMAT, "iteration should be a number of at least 0"},
        {"updates: ", "updates: 99999999999999999999", MP_EFORMAT, "updates should be a number"},
        {"ranks: 1", "ranks: 4294967297", MP_EFORMAT, "system, options or ranks missing"},
        {"ranks: 1", "ranks: 2", MP_ENOTFOUND, "experts-0001.bin"},
        {"layers: 2", "layers: 3", MP_EINVAL, "layers is 3 there and 2 here"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_works(mp_trainer_save(small->trainer, "described", &error));
        redescribe("described/checkpoint.yaml", cases[i].from, cases[i].to);
        assert_fails(mp_trainer_restore(small->trainer, "described", &error), cases[i].code,
                     cases[i].message);
    }
}

/* Homes that other versions wrote are read: per layer four owners, then four words of holders. */
SMALL_TEST(homes_lie_as_they_are_documented) {
    struct mp_shard shard;
    assert_works(mp_trainer_save(small->trainer, "homes", &error));
    assert_works(mp_shard_open("homes/homes.bin", &shard, &error));
    assert_int_equal(shard.layer_expert[0], 2 * 4 * (sizeof(int32_t) + sizeof(uint64_t)));
    const char *at = (const char *)shard.memory;
    for (int l = 0; l < 2; l++) {
        const int32_t owner[4] = {0};
        const uint64_t holders[4] = {1, 1, 1, 1}; /* rank 0 */
        assert_memory_equal(at, owner, sizeof owner);
        assert_memory_equal(at + sizeof owner, holders, sizeof holders);
        at += sizeof owner + sizeof holders;
    }
    mp_shard_close(&shard);
}

/* The lines of a description may be in any order, as in files of before. */
SMALL_TEST(descriptions_are_read_in_any_order) {
    char turned[2000] = "";
    step(small);
    assert_works(mp_trainer_save(small->trainer, "turned", &error));
    char *text = read_file("turned/checkpoint.yaml");
    for (char *end = text + strlen(text) - 1, *line; end > text; end = line - 1) {
        *end = '\0';
        line = strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text;
        strcat(strcat(turned, line), "\n");
        if (line == text)
            break;
    }
    free(text);
    assert_int_equal(strncmp(turned, "options: ", 9), 0);
    write_file("turned/checkpoint.yaml", turned);
    step(small);
    assert_works(mp_trainer_restore(small->trainer, "turned", &error));
    assert_int_equal(mp_trainer_iteration(small->trainer), 1);
    assert_int_equal(small->trainer->updates, 1);
}

TEST_SEED(random_state);
TEST_GROUP(enter_folder, leave_folder);
