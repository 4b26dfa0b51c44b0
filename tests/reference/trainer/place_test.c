/* Where a process runs: what launchers tell it, which GPU is its own, and what is said when ranks
 * or GPUs are too few.  GPUs are the double's. */
#include "reference/trainer/place.h"

#include "tests/errors.h"
#include "tests/reference/trainer/settings.h"

static const char *const variables[] = {"OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMIX_RANK",
                                        "PMI_RANK",
                                        "MPI_LOCALRANKID",
                                        "SLURM_LOCALID",
                                        "LOCAL_RANK",
                                        "RANK",
                                        "WORLD_SIZE"};

TEST_STEP(be_launched_by_nobody) {
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    return 0;
}

/* The first that is set counts. */
TEST_WITH(launchers_say_the_rank, be_launched_by_nobody, NULL) {
    static const char *const names[] = {"RANK", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"};
    assert_int_equal(mp_place_launched_rank(), 0);
    for (int i = 0; i < 4; i++) {
        setenv(names[i], formatted("%d", 3 + i), 1);
        assert_int_equal(mp_place_launched_rank(), 3 + i);
    }
}

static struct mp_job_file file;

static struct mp_job *job_of(const char *device, int ranks) {
    mp_job_file_destroy(&file);
    assert_works(
        create_job(&file, formatted("system=ep device=%s ranks=%d", device, ranks), NULL, &error));
    return &file.job;
}

static void refused(const struct mp_job *job, int code, bool alike, const char *words) {
    struct mp_place place = {0};
    struct mp_error error = {0};
    assert_int_equal(mp_place_create(job, "some.yaml", &place, &error), code);
    if (!strstr(error.text, words))
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
    assert_int_equal(place.failed_alike, alike);
    mp_place_destroy(&place);
}

TEST_WITH(a_processor_is_one_rank, be_launched_by_nobody, NULL) {
    struct mp_place place = {0};
    assert_works(mp_place_create(job_of("cpu", 1), "some.yaml", &place, &error));
    assert_int_equal(place.comm->ranks, 1);
    assert_null(place.device);
    assert_string_equal(mp_place_remark(&place), "");
    mp_place_destroy(&place);
    assert_null(place.comm);
    refused(job_of("cpu", 3), MP_EINVAL, true,
            "some.yaml: the job has 3 ranks, but 1 process was started; use mpirun -n 3");
}

static void need_gpus(void) {
    if (!getenv("MOEPERF_CUDA_LIBRARY"))
        skip("there is no double of CUDA");
}

/* The GPU of a process is that of its number on its host; with few of them they are shared, but
 * not over NCCL. */
TEST_WITH(gpus_are_numbered_on_a_host, be_launched_by_nobody, NULL) {
    struct mp_place place = {0};
    need_gpus();
    setenv("MOEPERF_DOUBLE_NAMES", "First,Second", 1);
    for (int local = 0; local < 4; local++) {
        char number[8], text[256];
        snprintf(number, sizeof number, "%d", local);
        setenv("LOCAL_RANK", number, 1);
        assert_works(mp_place_create(job_of("cuda", 1), "some.yaml", &place, &error));
        mp_device_describe(place.device, text, sizeof text);
        assert_contains(text, local % 2 ? "Second" : "First");
        assert_int_equal(place.comm->ranks, 1);
        assert_string_equal(mp_place_remark(&place), "");
        mp_place_destroy(&place);
    }
    unsetenv("LOCAL_RANK");
    refused(job_of("cuda", 4), MP_EINVAL, true,
            "some.yaml: the job has 4 ranks, but 1 process was started; use WORLD_SIZE = 4");
    setenv("WORLD_SIZE", "2", 1);
    refused(job_of("cuda", 1), MP_EINVAL, true,
            "the job has 1 rank, but 2 processes were started; use WORLD_SIZE = 1");
    setenv("WORLD_SIZE", "4", 1);
    setenv("RANK", "3", 1);
    refused(job_of("cuda", 4), MP_EINVAL, false,
            "rank 3 is number 3 on its host, which has 2 GPUs (First)");
    refused(job_of("cuda", 4), MP_EINVAL, false, "start at most 2 ranks a host");
    setenv("LOCAL_RANK", "2", 1);
    refused(job_of("cuda", 4), MP_EINVAL, false, "rank 3 is number 2 on its host");
    setenv("SLURM_LOCALID", "5", 1);
    refused(job_of("cuda", 4), MP_EINVAL, false, "rank 3 is number 5 on its host");
}

TEST_STEP(clean_up) {
    mp_job_file_destroy(&file);
    return 0;
}

TEST_GROUP(NULL, clean_up);
