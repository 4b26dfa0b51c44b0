/* What launchers tell their processes, also those that are inside one another. */
#include "profiler/record/launched.h"

#include "tests/support.h"

static const char *const variables[] = {"OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMIX_RANK",
                                        "PMIX_NAMESPACE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MV2_COMM_WORLD_RANK",
                                        "MV2_COMM_WORLD_SIZE",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "TORCHELASTIC_RUN_ID",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_JOB_ID",
                                        "MOEPERF_NVTX_RANK",
                                        "MINE"};

struct launch {
    const char *name, *environment; /* "A=1 B=2" */
    int rank, ranks;
    const char *run;
};

static const struct launch launches[] = {
    {"nobody", "", -1, 0, ""},
    {"mpirun", "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 PMIX_NAMESPACE=77@1", 3, 8, "77@1"},
    {"srun", "SLURM_PROCID=2 SLURM_NTASKS=4 SLURM_JOB_ID=9", 2, 4, "9"},
    {"srun with PMIx", "PMIX_RANK=2 PMIX_NAMESPACE=slurm.9.0 SLURM_PROCID=2 SLURM_NTASKS=4", 2, 4,
     "slurm.9.0"},
    {"torchrun", "RANK=5 WORLD_SIZE=16 TORCHELASTIC_RUN_ID=none", 5, 16, ""},
    {"one torchrun a node, by srun with PMIx",
     "PMIX_RANK=1 PMIX_NAMESPACE=s SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=9 RANK=12 "
     "WORLD_SIZE=16 TORCHELASTIC_RUN_ID=mine",
     12, 16, "mine"},
    {"one torchrun a node, by mpirun",
     "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 RANK=12 WORLD_SIZE=16 TORCHELASTIC_RUN_ID=a",
     12, 16, "a"},
    {"mpirun where somebody has set RANK", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 RANK=7",
     1, 2, ""},
    {"a rank without a world", "RANK=4", 4, 0, ""},
    {"a world too small", "RANK=4 WORLD_SIZE=4", 4, 0, ""},
    {"RANK inside Slurm", "RANK=5 WORLD_SIZE=8 SLURM_PROCID=0 SLURM_NTASKS=2", 5, 8, ""},
    {"no number", "RANK=4x SLURM_PROCID=1 SLURM_NTASKS=2", 1, 2, ""},
    {"a variable that nobody has set", "MOEPERF_NVTX_RANK=MINE RANK=1 WORLD_SIZE=2", -1, 0, ""},
    {"a variable of the user's", "MOEPERF_NVTX_RANK=MINE MINE=6 RANK=1 WORLD_SIZE=2", 6, 0, ""},
};

TEST_EACH(tells, launches, launch) {
    char words[400], *word, *rest = words;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    snprintf(words, sizeof words, "%s", launch->environment);
    while ((word = strsep(&rest, " ")) && *word) {
        char *value = strchr(word, '=');
        *value = '\0';
        setenv(word, value + 1, 1);
    }
    const struct mp_launched launched = mp_launched_read();
    assert_numbers(launched.rank, launch->rank, launched.ranks, launch->ranks);
    assert_string_equal(launched.run, launch->run);
}
