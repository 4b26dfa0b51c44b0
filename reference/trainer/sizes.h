/* Sizes: what a job's model has and sends, and the setting that planners are told of.  The same in
 * training, in predictions and in what-ifs. */
#pragma once

#include "reference/plan/planner.h"
#include "reference/trainer/job.h"

/* What the numbers of a model are kept in. */
struct mp_element_sizes {
    int expert_matrices; /* of width x expert-width: 2, or 3 gated (SwiGLU) */
    double element;      /* of activations, rows, and parameters as products read them, B */
    double gradient;     /* of a parameter's gradient, B */
    double optimizer;    /* kept of a parameter beside its element, B: a copy in fp32 where the
                            element is smaller, moments */
};
/* Of training with elements of so many bytes: gradients, both moments and the parameters themselves
 * are fp32. */
struct mp_element_sizes mp_training_elements(size_t element);
/* Bytes of an element of the job's precision. */
size_t mp_job_element_bytes(const struct mp_job *job);

/* Of one token, or one expert of plans (a shard, if experts are cut); B but for the first.  Serving
 * has neither gradients nor an optimizer. */
struct mp_sizes {
    double expert_parameters; /* number of them */
    double row;               /* a token's, one direction */
    double expert;            /* parameters as they are fetched and read */
    double expert_gradient;
    double expert_state;       /* what the optimizer keeps */
    struct mp_move_bytes move; /* the elements are made anew from a copy in fp32 */
};
void mp_job_sizes(const struct mp_job *job, const struct mp_element_sizes *elements,
                  struct mp_sizes *sizes);

/* What planners are told of a plan for one of the batch's `micro_batches`, but for the figures,
 * which are 0: measured (or worked out) by the caller, then mp_job_given_figures. */
void mp_job_setting(const struct mp_job *job, const struct mp_sizes *sizes,
                    const struct mp_topology *topology, int micro_batches,
                    struct mp_setting *setting);
/* Figures that the job gives stand in the place of measured ones. */
void mp_job_given_figures(const struct mp_job *job, const struct mp_sizes *sizes,
                          struct mp_setting *setting);
/* Figures such as any machine may have, where they are 0, for who can't measure; experts' seconds
 * go with those of their routes. */
void mp_job_usual_figures(struct mp_setting *setting);

/* Forward operations of one route through its expert, a multiply and an add being two. */
static inline double mp_sizes_route_flops(const struct mp_sizes *sizes) {
    return 2 * sizes->expert_parameters;
}
