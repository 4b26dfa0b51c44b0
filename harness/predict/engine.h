/* Inside of the predictor: the parts that it is made of, each of which says what it does itself. */
#pragma once

#include "harness/predict/holding.h"
#include "harness/predict/timeline.h"
#include "reference/schedule/schedule.h"

enum {
    MP_BYTES_OF_COUNTS = 8, /* of an expert: routes, and first choices among them */
    MP_AGREED_BYTES = 24    /* three doubles: loss, auxiliary loss, whether to stop */
};

/* Seconds in which all ranks meet. */
struct mp_meetings {
    double block_sums, table_sums; /* of non-expert gradients: of a block, of the tables */
    double counts;                 /* every rank's routes, at every rank */
    double transitions;            /* summed; 0 where the system doesn't look at them */
    double agreement;              /* on the loss */
};

/* Sums of an iteration, seconds. */
struct mp_moe_sums {
    double moe;                         /* of all ranks in MoE layers */
    double *layer_moe;                  /* [layers] of it, means over ranks */
    double *experts;                    /* [ranks] in experts */
    double gathering, gathering_waited; /* of all ranks, after the step */
};

/* What is on its way. */
struct mp_on_its_way {
    /* Numbers of background operations, -1: nothing travels.  By kind, for as many layers as may
     * travel together, [layers + 1] of non-expert gradients, [layers] of what is sent ahead. */
    int64_t number[MP_OPERATIONS][MP_MOST_AHEAD + 1], *dense_number, *ahead_number;
    double *arrived;  /* [steps][ranks] when the rows of a step are here; owned */
    double *returned; /* [steps][ranks] and back */
    int steps_limit;  /* that there is room for in both */
};

struct mp_predictor {
    struct mp_arena memory; /* of all tables that stay as large as they are */
    struct mp_job job;
    struct mp_predict_options options;
    struct mp_predict_sink sink;
    int ranks, layers;
    int64_t iteration, called;          /* counted from 0, as planners see it; and as recorded */
    struct mp_costs *costs, *own_costs; /* own: NULL if they are borrowed */
    struct mp_network *network;
    struct mp_planner planner;
    struct mp_schedule schedule;
    struct mp_timeline timeline;
    struct mp_gated_loads loads;
    struct mp_carrier carrier;
    struct mp_predicted_rows rows;
    struct mp_holding holding;
    /* The executor's. */
    struct mp_meetings meetings;
    struct mp_moe_sums sums;
    struct mp_on_its_way way;
    bool passes;     /* the present span has more than starts in it */
    int64_t *tokens; /* [ranks] of a micro-batch, for spans */
    /* [ranks] Working memory: of an exchange, for spans; of own work. */
    double *bytes, *seconds;
};

/* ---- executor.c: what the schedule's verbs mean in model time ---- */

/* The schedule, and what its executor needs of a predictor whose other parts there are.  MP_ENOMEM;
 * to be destroyed all the same. */
int mp_predictor_create_executor(struct mp_predictor *predictor, struct mp_error *error);
void mp_predictor_destroy_executor(struct mp_predictor *predictor);
/* An iteration begins: nothing has been summed. */
void mp_predictor_begin_executor(struct mp_predictor *predictor);
