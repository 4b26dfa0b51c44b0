/* Where this process runs its part of a job: its rank, its device and its transport.
 *
 * Ranks are known from who started the process: mpirun and srun (MPI), torchrun or whoever sets
 * RANK and WORLD_SIZE (a meeting by files, comm.h), or nobody, which is one rank.  A GPU is the one
 * of the process's place on its host, as the launcher numbers it. */
#pragma once

#include "reference/comm/comm.h"
#include "reference/trainer/job.h"

struct mp_place {
    struct mp_comm *comm;      /* of the job's transport; owned */
    struct mp_comm *bootstrap; /* what it met over, or NULL; owned */
    struct mp_device *device;  /* a GPU; NULL: the trainer makes its own on the processor; owned */
    bool over_nccl;            /* comm is NCCL's */
    bool failed_alike;         /* all ranks know of the failure that the last call told of */
};

/* The ranks, over MPI or alone, for what needs no GPU (and no job). */
int mp_place_connect(struct mp_place *place, struct mp_error *error);

/* All of it for a job; collective.  Errors: those of the back ends (device.h, comm.h), each one
 * sentence; MP_EINVAL when there are other ranks than the job wants (place->failed_alike) or fewer
 * GPUs on a host than ranks that each need their own; MP_ENOTFOUND when this was built without
 * MPI and somebody started it under MPI. */
int mp_place_create(const struct mp_job *job, const char *job_name, struct mp_place *place,
                    struct mp_error *error);
void mp_place_destroy(struct mp_place *place); /* accepts a zeroed one */

/* A remark on the place that is no error, such as GPUs of different types; "" if there is none. */
const char *mp_place_remark(const struct mp_place *place);

/* This process's rank as its launcher calls it, before any rank has met another; 0 if nobody
 * launched it. */
int mp_place_launched_rank(void);
