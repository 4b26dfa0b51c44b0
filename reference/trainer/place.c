#include "reference/trainer/place.h"

#include <stdlib.h>

#include "reference/trainer/trainer.h"

enum { MOST_GPUS = 64 };

/* What launchers tell a process of its place: Open MPI, PMIx and PMI (srun), torchrun. */
static const char *const rank_names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK",
                                         NULL};
static const char *const local_rank_names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                               "SLURM_LOCALID", "LOCAL_RANK", NULL};
static const char *const mpi_signs[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", NULL};

/* The first of these variables that is set, as a number; `otherwise` if none is. */
static int number_of(const char *const names[], int otherwise) {
    for (int i = 0; names[i]; i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    return otherwise;
}

int mp_place_launched_rank(void) {
    return number_of(rank_names, 0);
}

static bool launched_by_mpi(void) {
    for (int i = 0; mpi_signs[i]; i++)
        if (getenv(mpi_signs[i]))
            return true;
    return false;
}

int mp_place_connect(struct mp_place *place, struct mp_error *error) {
    return launched_by_mpi() ? mp_comm_mpi_create(NULL, &place->comm, error)
                             : mp_comm_self_create(&place->comm, error);
}

/* ---- the GPU ---- */

/* Under NCCL every rank needs a GPU to itself; under MPI ranks share what there is. */
static int choose_gpu(const struct mp_job *job, int rank, struct mp_cuda_gpu *gpu, int *ordinal,
                      struct mp_error *error) {
    struct mp_cuda_gpu gpus[MOST_GPUS];
    int count = 0, local = number_of(local_rank_names, rank);
    int code = mp_device_cuda_list(gpus, MOST_GPUS, &count, error);
    if (code)
        return job->ranks > 1 ? mp_error_prefix(error, "rank %d", rank) : code;
    count = count < MOST_GPUS ? count : MOST_GPUS;
    if (count == 0)
        return mp_fail(error, MP_ENOTFOUND,
                       "rank %d: device cuda needs a GPU and this host has none (or "
                       "CUDA_VISIBLE_DEVICES hides it); moeperf doctor says more",
                       rank);
    if (local >= count && job->ranks > 1 && job->transport != MP_TRANSPORT_MPI)
        return mp_fail(error, MP_EINVAL,
                       "rank %d is number %d on its host, which has %d GPU%s (%s); NCCL needs one "
                       "for each rank: start at most %d rank%s a host, or set transport=mpi, with "
                       "which ranks share GPUs",
                       rank, local, count, count == 1 ? "" : "s", gpus[0].name, count,
                       count == 1 ? "" : "s");
    *ordinal = local % count;
    *gpu = gpus[*ordinal];
    return MP_OK;
}

static int create_device(const struct mp_job *job, int rank, int ordinal, struct mp_device **device,
                         struct mp_error *error) {
    struct mp_device_limits limits;
    mp_trainer_limits(job, &limits);
    const struct mp_cuda_settings settings = {
        .rank = rank,
        .ordinal = ordinal,
        .element = job->precision == MP_PRECISION_BF16 ? MP_BFLOAT16 : MP_FLOAT32,
        .grouped_products = (enum mp_grouped_products)job->grouped_products,
    };
    return mp_device_cuda_create(&settings, &limits, device, error);
}

/* ---- the transport ---- */

static int connect_gpus(const struct mp_job *job, struct mp_place *place, int ordinal,
                        const struct mp_cuda_gpu *gpu, struct mp_error *error) {
    if (job->ranks == 1 && job->transport != MP_TRANSPORT_NCCL)
        return mp_comm_self_create_on(place->device, &place->comm, error);
    if (job->transport == MP_TRANSPORT_MPI)
        return mp_comm_mpi_create(place->device, &place->comm, error);
    const struct mp_nccl_settings settings = {
        .bootstrap = place->bootstrap,
        .ordinal = ordinal,
        .gpu = gpu,
        .gather = job->gather == MP_GATHER_BROADCASTS ? MP_NCCL_BROADCASTS : MP_NCCL_TREES,
    };
    int code = mp_comm_nccl_create(&settings, place->device, &place->comm, error);
    place->over_nccl = !code;
    return code;
}

static int check_ranks(const struct mp_job *job, const char *job_name, int ranks, bool by_mpi,
                       struct mp_place *place, struct mp_error *error) {
    place->failed_alike = ranks != job->ranks;
    if (ranks == job->ranks)
        return MP_OK;
    return mp_fail(
        error, MP_EINVAL, "%s: the job has %d rank%s, but %d process%s started; use %s %d",
        job_name, job->ranks, job->ranks == 1 ? "" : "s", ranks, ranks == 1 ? " was" : "es were",
        by_mpi || job->device == MP_DEVICE_CPU ? "mpirun -n" : "WORLD_SIZE =", job->ranks);
}

static int create_on_gpu(const struct mp_job *job, const char *job_name, struct mp_place *place,
                         struct mp_error *error) {
    struct mp_cuda_gpu gpu;
    static const char *const sizes[] = {"WORLD_SIZE", NULL};
    int ordinal = 0;
    bool by_mpi = launched_by_mpi();
    if (by_mpi)
        MP_TRY(mp_comm_mpi_create(NULL, &place->bootstrap, error));
    int rank = by_mpi ? place->bootstrap->rank : mp_place_launched_rank();
    int ranks = by_mpi ? place->bootstrap->ranks : number_of(sizes, 1);
    MP_TRY(check_ranks(job, job_name, ranks, by_mpi, place, error));
    MP_TRY(choose_gpu(job, rank, &gpu, &ordinal, error));
    MP_TRY(create_device(job, rank, ordinal, &place->device, error));
    return connect_gpus(job, place, ordinal, &gpu, error);
}

int mp_place_create(const struct mp_job *job, const char *job_name, struct mp_place *place,
                    struct mp_error *error) {
    if (job->device == MP_DEVICE_CUDA)
        return create_on_gpu(job, job_name, place, error);
    MP_TRY(mp_place_connect(place, error));
    return check_ranks(job, job_name, place->comm->ranks, launched_by_mpi(), place, error);
}

void mp_place_destroy(struct mp_place *place) {
    mp_comm_destroy(place->comm);
    mp_device_destroy(place->device);
    mp_comm_destroy(place->bootstrap);
    *place = (struct mp_place){0};
}

const char *mp_place_remark(const struct mp_place *place) {
    return place->over_nccl ? mp_comm_nccl_remark(place->comm) : "";
}
