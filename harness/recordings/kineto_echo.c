#include <stdlib.h>
#include <string.h>

#include "harness/recordings/kineto_model.h"

enum { LEVELS = 64, KIND_TO_DEVICE = 1, KIND_FROM_DEVICE = 2, KIND_IN_DEVICE = 8, KIND_PEER = 10 };

/* One range in whose name work is done, and since when. */
struct link {
    int32_t range; /* host event */
    bool backward; /* the range was over when the work began */
    int64_t start_ns;
};

/* Echoes of one thread or stream: work for a range that follows work for the same one makes it
 * longer, work for another one ends it. */
struct echoes {
    const struct kineto_model *model;
    struct mp_recording_process *process;
    uint32_t thread;
    bool on_device;
    struct link open[LEVELS]; /* the outermost first */
    int depth;
    int64_t end_ns[LEVELS];
};

/* The ranges around and including `range`, the outermost first; of more than LEVELS the innermost
 * are left out.  Returns how many. */
static int chain_of(const struct kineto_model *model, int32_t range, struct link chain[LEVELS]) {
    int depth = 0, left_out;
    for (int32_t at = range; at != KINETO_NONE; at = model->host[at].around)
        depth++;
    left_out = depth > LEVELS ? depth - LEVELS : 0;
    int place = depth - left_out;
    for (int32_t at = range; at != KINETO_NONE; at = model->host[at].around)
        if (left_out > 0)
            left_out--;
        else
            chain[--place] = (struct link){.range = at};
    return depth < LEVELS ? depth : LEVELS;
}

/* What began at `at_ns` is of the backward pass of all ranges that were over by then. */
static void mark_backward(const struct kineto_model *model, struct link chain[], int depth,
                          int64_t at_ns) {
    for (int i = 0; i < depth; i++)
        chain[i].backward = at_ns < model->host[chain[i].range].start_ns ||
                            at_ns >= model->host[chain[i].range].end_ns;
}

static int write_echo(const struct echoes *echoes, int level, struct mp_error *error) {
    const struct kineto_model *model = echoes->model;
    const struct link *link = &echoes->open[level];
    const struct kineto_host *range = &model->host[link->range];
    const struct mp_recorded_range echo = {
        .start_ns = link->start_ns + model->header.base_ns,
        .end_ns = echoes->end_ns[level] + model->header.base_ns,
        .name = kineto_name_of(model, range->name)->text,
        .thread = echoes->thread,
        .level = (uint16_t)level,
        .value = (uint64_t)(range->start_ns + model->header.base_ns),
        .traits = (uint16_t)(MP_RANGE_ECHO | (link->backward ? MP_RANGE_BACKWARD : 0) |
                             (echoes->on_device ? MP_RANGE_DEVICE : 0))};
    return mp_recording_range(echoes->process, &echo, error);
}

static int close_to(struct echoes *echoes, int depth, struct mp_error *error) {
    while (echoes->depth > depth)
        MP_TRY(write_echo(echoes, --echoes->depth, error));
    return MP_OK;
}

/* Work from start_ns to end_ns in the name of these ranges. */
static int extend(struct echoes *echoes, const struct link chain[], int depth, int64_t start_ns,
                  int64_t end_ns, struct mp_error *error) {
    int common = 0;
    while (common < depth && common < echoes->depth &&
           echoes->open[common].range == chain[common].range &&
           echoes->open[common].backward == chain[common].backward)
        common++;
    MP_TRY(close_to(echoes, common, error));
    for (int i = common; i < depth; i++) {
        echoes->open[i] = chain[i];
        echoes->open[i].start_ns = start_ns;
        echoes->end_ns[i] = end_ns;
    }
    for (int i = 0; i < depth; i++)
        if (end_ns > echoes->end_ns[i])
            echoes->end_ns[i] = end_ns;
    echoes->depth = depth;
    return MP_OK;
}

/* ---- autograd on the host ---- */

/* Ranges that go on while an evaluation does are no echo of it: they have it inside anyway. */
static int backward_chain(const struct kineto_model *model, int32_t evaluation,
                          struct link chain[LEVELS]) {
    int kept = 0, depth = chain_of(model, kineto_forward_range(model, evaluation), chain);
    mark_backward(model, chain, depth, model->host[evaluation].start_ns);
    for (int i = 0; i < depth; i++)
        if (chain[i].backward)
            chain[kept++] = chain[i];
    return kept;
}

static int write_backward(const struct kineto_model *model, struct mp_recording_process *process,
                          struct mp_error *error) {
    struct echoes echoes = {.model = model, .process = process};
    struct link chain[LEVELS];
    uint32_t thread = UINT32_MAX;
    for (size_t i = 0; i < model->hosts; i++) {
        const struct kineto_host *event = &model->host[i];
        if (event->thread != thread) {
            MP_TRY(close_to(&echoes, 0, error));
            thread = event->thread;
            echoes.thread = model->thread[thread].thread;
        }
        if (event->evaluation != KINETO_NONE || !kineto_name_of(model, event->name)->is_evaluation)
            continue;
        const int depth = backward_chain(model, (int32_t)i, chain);
        if (depth > 0)
            MP_TRY(extend(&echoes, chain, depth, event->start_ns, event->end_ns, error));
    }
    return close_to(&echoes, 0, error);
}

/* ---- the GPU's work ---- */

/* Puts what an evaluation itself has annotated behind what its forward operator was in. */
static int add_own(const struct kineto_model *model, int32_t range, struct link chain[LEVELS],
                   int depth) {
    struct link own[LEVELS];
    const int owns = chain_of(model, range, own);
    for (int i = 0; i < owns && depth < LEVELS; i++) {
        if (model->host[own[i].range].evaluation == KINETO_NONE)
            continue; /* around the evaluation */
        const int32_t counterpart = kineto_counterpart(model, own[i].range);
        chain[depth++] =
            (struct link){.range = counterpart == KINETO_NONE ? own[i].range : counterpart,
                          .backward = counterpart != KINETO_NONE};
    }
    return depth;
}

static int device_chain(const struct kineto_model *model, const struct kineto_device *work,
                        struct link chain[LEVELS]) {
    if (work->launch == KINETO_NONE)
        return 0;
    const struct kineto_host *launch = &model->host[work->launch];
    const int32_t forward = launch->evaluation == KINETO_NONE
                                ? KINETO_NONE
                                : kineto_forward_range(model, launch->evaluation);
    const int32_t own = kineto_is_range(model, launch) ? work->launch : launch->around;
    const int depth = chain_of(model, forward == KINETO_NONE ? own : forward, chain);
    mark_backward(model, chain, depth, launch->start_ns);
    return forward == KINETO_NONE ? depth : add_own(model, own, chain, depth);
}

/* The start of the outermost echo that a rule makes a span, 0: none. */
static int64_t span_start(const struct echoes *echoes) {
    const struct kineto_model *model = echoes->model;
    for (int i = 0; i < echoes->depth; i++) {
        const struct kineto_name *name =
            kineto_name_of(model, model->host[echoes->open[i].range].name);
        if (name->rule && name->rule->phase != MP_PHASE_ITERATION)
            return echoes->open[i].start_ns + model->header.base_ns;
    }
    return 0;
}

static uint32_t copy_kind(const char *name) {
    static const struct {
        const char *word;
        uint32_t kind;
    } known[] = {{"HtoD", KIND_TO_DEVICE},
                 {"DtoH", KIND_FROM_DEVICE},
                 {"DtoD", KIND_IN_DEVICE},
                 {"PtoP", KIND_PEER}};
    const size_t found = MP_PLACE(i, MP_LENGTH(known), strstr(name, known[i].word));
    return found < MP_LENGTH(known) ? known[found].kind : 0;
}

static int write_work(const struct kineto_model *model, const struct kineto_device *work,
                      int64_t span_ns, struct mp_recording_process *process,
                      struct mp_error *error) {
    const char *name = kineto_name_of(model, work->name)->text;
    struct mp_activity activity = {.start_ns = work->start_ns + model->header.base_ns,
                                   .end_ns = work->end_ns + model->header.base_ns,
                                   .value = work->bytes,
                                   .correlation = work->correlation,
                                   .device = work->device,
                                   .context = work->context,
                                   .stream = work->stream,
                                   .kind = MP_ACTIVITY_SET};
    if (work->category == KINETO_KERNEL) {
        activity.kind = MP_ACTIVITY_KERNEL;
        activity.registers = work->registers;
        activity.dynamic_shared = work->shared;
        for (int i = 0; i < 3; i++) {
            activity.grid[i] = (int32_t)work->grid[i];
            activity.block[i] = (int32_t)work->block[i];
        }
    } else if (work->category == KINETO_COPY) {
        activity.kind = MP_ACTIVITY_COPY;
        activity.detail = copy_kind(name);
        activity.result = 1;
    }
    MP_TRY(mp_recording_activity(process, &activity, work->category == KINETO_KERNEL ? name : NULL,
                                 error));
    const struct mp_activity link = {
        .value = (uint64_t)span_ns, .correlation = work->correlation, .kind = MP_ACTIVITY_LINK};
    if (span_ns && work->correlation)
        MP_TRY(mp_recording_activity(process, &link, NULL, error));
    return MP_OK;
}

static int write_device(const struct kineto_model *model, struct mp_recording_process *process,
                        struct mp_error *error) {
    struct echoes echoes = {.model = model, .process = process, .on_device = true};
    struct link chain[LEVELS];
    for (size_t i = 0; i < model->devices; i++) {
        const struct kineto_device *work = &model->device[i], *before = i > 0 ? work - 1 : work;
        if (work->device != before->device || work->stream != before->stream)
            MP_TRY(close_to(&echoes, 0, error));
        echoes.thread = work->stream;
        const int depth = device_chain(model, work, chain);
        if (depth > 0)
            MP_TRY(extend(&echoes, chain, depth, work->start_ns, work->end_ns, error));
        MP_TRY(write_work(model, work, depth > 0 ? span_start(&echoes) : 0, process, error));
    }
    return close_to(&echoes, 0, error);
}

int kineto_write_echoes(const struct kineto_model *model, struct mp_recording_process *process,
                        struct mp_error *error) {
    MP_TRY(write_backward(model, process, error));
    return write_device(model, process, error);
}
