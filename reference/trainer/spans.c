#include "profiler/nvtx/emit.h"
#include "reference/base/median.h"
#include "reference/trainer/internal.h"
#include "reference/trainer/numbers.h"

int64_t mp_trainer_now(const struct mp_trainer *trainer) {
    return mp_clock_ns() - trainer->paused_ns;
}

struct mp_mark mp_trainer_mark(const struct mp_trainer *trainer, enum mp_phase phase) {
    mp_nvtx_push(phase);
    struct mp_mark mark = {trainer->compute ? mp_trainer_now(trainer) : 0,
                           trainer->comm->waited_ns,
                           trainer->comm->sent_bytes,
                           trainer->comm->between_bytes,
                           -1,
                           0};
    if (trainer->compute && trainer->stamps) {
        mark.begin = mp_stamps_mark(trainer->stamps, trainer->paused_ns);
        mark.first_wait = mp_stamps_waits(trainer->stamps);
    }
    return mark;
}

static void observe_wait(void *context, mp_stream stream, bool begins) {
    struct mp_trainer *trainer = context;
    if (!trainer->compute || stream != trainer->model.stream)
        return;
    int place = mp_stamps_mark(trainer->stamps, trainer->paused_ns);
    if (begins)
        trainer->wait_begin = place;
    else
        mp_stamps_waited(trainer->stamps, trainer->wait_begin, place);
}

void mp_trainer_observe_waits(struct mp_trainer *trainer) {
    mp_comm_on_wait(trainer->comm, trainer->stamps ? observe_wait : NULL, trainer);
}

/* What has been queued is done before the clocks of this rank stop or a delay begins. */
static void settle(const struct mp_trainer *trainer) {
    if (trainer->device->deferred)
        trainer->device->operations->stream_synchronize(trainer->device, trainer->model.stream);
}

int mp_trainer_pause(struct mp_trainer *trainer, struct mp_error *error) {
    if (!trainer->planner.policy.free_transfers)
        return MP_OK;
    settle(trainer);
    int code = mp_comm_barrier(trainer->comm, error);
    trainer->pause.waited_ns = trainer->comm->waited_ns;
    trainer->pause.sent_bytes = trainer->comm->sent_bytes;
    trainer->pause.between_bytes = trainer->comm->between_bytes;
    trainer->pause.start_ns = mp_clock_ns();
    trainer->pause.start_cpu_ns = mp_clock_thread_cpu_ns();
    return code;
}

int mp_trainer_resume(struct mp_trainer *trainer, struct mp_error *error) {
    if (!trainer->planner.policy.free_transfers)
        return MP_OK;
    settle(trainer);
    int code = mp_comm_barrier(trainer->comm, error);
    trainer->comm->waited_ns = trainer->pause.waited_ns;
    trainer->comm->sent_bytes = trainer->pause.sent_bytes;
    trainer->comm->between_bytes = trainer->pause.between_bytes;
    trainer->pause.cpu_ns += mp_clock_thread_cpu_ns() - trainer->pause.start_cpu_ns;
    trainer->paused_ns += mp_clock_ns() - trainer->pause.start_ns;
    return code;
}

/* The recorder reads the clock itself unless the trainer's stands behind it. */
static int64_t end_of_span(const struct mp_trainer *trainer) {
    return trainer->paused_ns ? mp_trainer_now(trainer) : 0;
}

/* Now, or with stamps once the device says when. */
static void record(struct mp_trainer *trainer, struct mp_record_thread *thread,
                   const struct mp_span *span, int begin, int first_wait) {
    if (trainer->stamps &&
        mp_stamps_keep(trainer->stamps, thread, span, begin,
                       mp_stamps_mark(trainer->stamps, trainer->paused_ns), first_wait))
        return;
    mp_record_span(thread, span);
}

/* The delay that the job asks for (inject.h). */
static void inject(struct mp_trainer *trainer, enum mp_phase phase, int layer) {
    const struct mp_inject *inject = &trainer->inject;
    if (inject->phase != (int)phase || trainer->iteration % inject->every != 0 ||
        (inject->layer != MP_ALL && inject->layer != layer))
        return;
    settle(trainer);
    int64_t start = mp_clock_ns(), length = (int64_t)(inject->seconds * 1e9);
    while (mp_clock_ns() - start < length)
        ;
    if (mp_inject_delays_transfers(phase))
        trainer->comm->waited_ns += mp_clock_ns() - start;
}

void mp_trainer_spent(struct mp_trainer *trainer, struct mp_mark mark, enum mp_phase phase,
                      enum mp_direction direction, int layer, int64_t tokens, int64_t flops) {
    if (trainer->inject.seconds > 0)
        inject(trainer, phase, layer);
    mp_nvtx_pop(&(struct mp_nvtx_payload){trainer->iteration, layer, direction, tokens,
                                          trainer->comm->sent_bytes - mark.sent_bytes});
    if (!trainer->compute)
        return;
    struct mp_span span = {
        .start_ns = mark.start_ns,
        .end_ns = end_of_span(trainer),
        .wait_ns = trainer->comm->waited_ns - mark.waited_ns,
        .cpu_ns = -1,
        .tokens = tokens,
        .bytes = trainer->comm->sent_bytes - mark.sent_bytes,
        .flops = flops,
        .iteration = (int32_t)trainer->iteration,
        .layer = (int16_t)layer,
        .phase = (uint8_t)phase,
        .direction = (uint8_t)direction & 3,
    };
    record(trainer, trainer->compute, &span, mark.begin, mark.first_wait);
}

struct mp_flight mp_trainer_departed(struct mp_trainer *trainer, int64_t start_ns,
                                     enum mp_phase phase) {
    /* Validation is one span, which takes in what lies inside it, but not what lies beside. */
    struct mp_flight flight = {start_ns, trainer->validating ? 0 : mp_nvtx_depart(phase), -1};
    if (trainer->communication && trainer->stamps)
        flight.begin = mp_stamps_mark(trainer->stamps, trainer->paused_ns);
    return flight;
}

void mp_trainer_arrived(struct mp_trainer *trainer, struct mp_flight flight, enum mp_phase phase,
                        enum mp_direction direction, int layer, int64_t bytes) {
    mp_nvtx_arrive(flight.range,
                   &(struct mp_nvtx_payload){trainer->iteration, layer, direction, -1, bytes});
    if (!trainer->communication)
        return;
    struct mp_span span = {
        .start_ns = flight.start_ns,
        .end_ns = end_of_span(trainer),
        .cpu_ns = -1,
        .tokens = -1,
        .bytes = bytes,
        .flops = -1,
        .iteration = (int32_t)trainer->iteration,
        .layer = (int16_t)layer,
        .phase = (uint8_t)phase,
        .direction = (uint8_t)direction & 3,
    };
    record(trainer, trainer->communication, &span, flight.begin,
           trainer->stamps ? mp_stamps_waits(trainer->stamps) : 0);
}

static void count_plan(struct mp_trainer *trainer, const struct mp_plan *plan, bool backward) {
    struct mp_plan_facts *facts = &trainer->facts[plan->layer];
    struct mp_trainer_totals *totals = &trainer->totals;
    bool sliced = mp_optimizer_sliced(plan->policy->optimizer),
         gathers = mp_policy_gathers(plan->policy);
    mp_plan_facts(plan, &trainer->load[plan->layer], facts);
    for (int i = 0; i < plan->fetch.count; i++)
        totals->copies[plan->fetch.item[i].stage]++;
    if (sliced)
        totals->copies[mp_plan_gather_stage(plan)] += facts->copies;
    if (backward && plan->policy->rematerialise)
        totals->copies[MP_STAGE_BACKWARD_PREFETCH] += gathers ? facts->copies : plan->fetch.count;
    for (int stage = 0; stage < MP_STAGES; stage++)
        if (backward || stage != MP_STAGE_BACKWARD_PREFETCH)
            totals->bytes[stage] += facts->bytes[stage];
    totals->replicas += plan->policy->forward_only ? 0 : plan->share.count;
    totals->routes += facts->routes;
    totals->dropped += facts->routes_dropped;
}

void mp_trainer_count_plans(struct mp_trainer *trainer, bool backward) {
    for (int l = 0; l < trainer->job.layers; l++)
        count_plan(trainer, mp_planner_plan(&trainer->planner, l), backward);
}

/* Bytes of experts that moved, and of parameters put together for the next step: at their homes as
 * they are by now. */
static int64_t bytes_after_step(const struct mp_trainer *trainer) {
    const struct mp_planner *planner = &trainer->planner;
    int64_t keepers = trainer->model.experts.keepers, bytes = 0;
    for (int i = 0; i < planner->moves.count; i++)
        bytes += planner->moves.item[i].bytes;
    if (!trainer->schedule.gathered)
        return bytes;
    for (int l = 0; l < trainer->job.layers; l++)
        for (int e = 0; e < trainer->setting.experts; e++)
            bytes += mp_placement_copies(&planner->home[l], e) *
                     (trainer->setting.expert_bytes * (keepers - 1) / keepers);
    return bytes;
}

void mp_trainer_record_plans(struct mp_trainer *trainer) {
    if (!trainer->compute)
        return;
    for (int l = 0; l < trainer->job.layers; l++) {
        const struct mp_load *load = &trainer->load[l];
        mp_trainer_record_choices(trainer, l);
        mp_record_load(trainer->compute, trainer->iteration, l, trainer->job.experts,
                       load->count + (long)trainer->comm->rank * load->experts,
                       trainer->planner.law.drops_routes ? trainer->model.state[l].routing.dropped
                                                         : NULL);
        if (trainer->comm->rank == 0)
            mp_record_named(trainer->compute, trainer->iteration, l, mp_plan_fact_names,
                            &trainer->facts[l]);
    }
    if (trainer->comm->rank != 0)
        return;
    mp_record_number(trainer->compute, trainer->iteration, -1, "moves",
                     trainer->planner.moves.count);
    mp_record_number(trainer->compute, trainer->iteration, -1, "bytes-after-step",
                     (double)bytes_after_step(trainer));
    const void *found = mp_planner_found(&trainer->planner);
    if (found)
        mp_record_named(trainer->compute, trainer->iteration, -1, trainer->planner.system->facts,
                        found);
}

/* ---- what a span costs ---- */

/* Spans per loop: ranges that a tool keeps are to be few. */
enum { MEASURED_LOOPS = 15, MEASURED_SPANS = 512, MEASURED_RANGES = 16, MEASURED_KEPT = 32 };

int mp_trainer_span_cost(struct mp_trainer *trainer, double *cost_ns, struct mp_error *error) {
    struct mp_record_thread *kept = trainer->compute, *scratch = NULL;
    int spans = mp_nvtx_listening ? MEASURED_RANGES : MEASURED_SPANS;
    if (trainer->stamps && spans > MEASURED_KEPT)
        spans = MEASURED_KEPT;
    double loop_ns[MEASURED_LOOPS];
    int code = mp_record_scratch_create(&scratch, error);
    if (code)
        return code;
    trainer->compute = scratch;
    for (int loop = 0; loop < MEASURED_LOOPS; loop++) {
        int64_t start_ns = mp_clock_ns();
        for (int i = 0; i < spans; i++) {
            struct mp_mark mark = mp_trainer_mark(trainer, MP_PHASES);
            mp_trainer_spent(trainer, mark, MP_PHASES, MP_NO_DIRECTION, -1, -1, -1);
        }
        loop_ns[loop] = (double)(mp_clock_ns() - start_ns);
        if (trainer->stamps)
            mp_stamps_clear(trainer->stamps);
        mp_record_scratch_clear(scratch);
    }
    trainer->compute = kept;
    mp_record_scratch_destroy(scratch);
    *cost_ns = mp_median_of(loop_ns, MEASURED_LOOPS) / spans;
    return MP_OK;
}
