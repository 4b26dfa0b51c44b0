#include <stdlib.h>

#include "harness/recordings/kineto_model.h"

/* ---- order ---- */

static int compare_hosts(const void *left, const void *right) {
    const struct kineto_host *a = left, *b = right;
    return MP_ORDER(a->thread, b->thread) ?: MP_ORDER(a->start_ns, b->start_ns)
           ?: MP_ORDER(b->end_ns, a->end_ns)
           ?: MP_ORDER(a->category, b->category); /* annotations are around operators */
}

static int compare_devices(const void *left, const void *right) {
    const struct kineto_device *a = left, *b = right;
    return MP_ORDER(a->device, b->device) ?: MP_ORDER(a->stream, b->stream)
           ?: MP_ORDER(a->start_ns, b->start_ns);
}

/* ---- what lies in what ---- */

struct stack {
    int32_t *event;
    size_t depth;
};
MP_END(stack, struct stack, free(it->event))

/* Places an event that begins now: what has ended is taken off. */
static void place(struct kineto_model *model, struct stack *stack, int32_t index) {
    struct kineto_host *event = &model->host[index];
    while (stack->depth > 0 &&
           model->host[stack->event[stack->depth - 1]].end_ns <= event->start_ns)
        stack->depth--;
    event->around = event->evaluation = event->issue = KINETO_NONE;
    event->level = 0;
    if (stack->depth == 0)
        return;
    const int32_t outer_index = stack->event[stack->depth - 1];
    const struct kineto_host *outer = &model->host[outer_index];
    const bool is_range = kineto_is_range(model, outer);
    event->around = is_range ? outer_index : outer->around;
    event->level = (uint16_t)(outer->level + (is_range && outer->level < UINT16_MAX));
    event->evaluation =
        kineto_name_of(model, outer->name)->is_evaluation ? outer_index : outer->evaluation;
}

/* linear has matmul inside, and that mm. */
static bool lies_in_product(const struct kineto_model *model, const struct stack *stack) {
    return MP_ANY(i, stack->depth,
                  kineto_name_of(model, model->host[stack->event[i]].name)->is_product);
}

/* Tells the ranges around a product how many rows it had. */
static int count_rows(struct kineto_model *model, const struct kineto_host *event,
                      struct mp_error *error) {
    const struct kineto_extra own = model->extra[event->extra];
    for (int32_t at = event->around; at != KINETO_NONE; at = model->host[at].around) {
        struct kineto_host *range = &model->host[at];
        const struct kineto_extra first = {.rows = own.rows, .width = own.width};
        if (range->extra == KINETO_NONE) {
            MP_TRY(kineto_add_extra(model, &first, &range->extra, error));
        } else if (model->extra[range->extra].width == own.width) {
            model->extra[range->extra].rows += own.rows;
        }
    }
    return MP_OK;
}

static int nest(struct kineto_model *model, struct mp_error *error) {
    MP_AUTO(stack) struct stack stack = {0};
    for (size_t i = 0; i < model->hosts; i++) {
        if (i == 0 || model->host[i].thread != model->host[i - 1].thread)
            stack.depth = 0;
        place(model, &stack, (int32_t)i);
        const struct kineto_host *event = &model->host[i];
        if (event->extra != KINETO_NONE && kineto_name_of(model, event->name)->is_product &&
            !lies_in_product(model, &stack))
            MP_TRY(count_rows(model, event, error));
        MP_TRY(MP_APPEND(stack.event, stack.depth, error, (int32_t)i));
    }
    return MP_OK;
}

/* ---- what began what ---- */

MP_COMPARE(compare_keys, struct kineto_key,
           MP_ORDER(a->number, b->number) ?: MP_ORDER(a->start_ns, b->start_ns))

/* The last of a number that begins before `before_ns`; NULL: none. */
static const struct kineto_key *last_key(const struct kineto_key key[], size_t keys,
                                         uint64_t number, int64_t before_ns) {
    const size_t end = MP_BISECT(i, keys,
                                 key[i].number < number ||
                                     (key[i].number == number && key[i].start_ns < before_ns));
    return end > 0 && key[end - 1].number == number ? &key[end - 1] : NULL;
}

/* The GPU's work by correlation with its call, or else by the operator's external id. */
static int find_launches(struct kineto_model *model, struct mp_error *error) {
    const uint64_t of_operator = UINT64_C(1) << 32; /* numbers of another kind */
    MP_AUTO(memory) struct kineto_key *key = NULL;
    size_t keys = 0;
    MP_TRY(MP_NEW(key, model->hosts + 1, error));
    for (size_t i = 0; model->devices > 0 && i < model->hosts; i++) {
        const struct kineto_host *event = &model->host[i];
        if (event->category == KINETO_CALL && event->correlation)
            key[keys++] = (struct kineto_key){event->correlation, event->start_ns, (int32_t)i};
        else if (event->category == KINETO_OPERATOR && event->external)
            key[keys++] =
                (struct kineto_key){of_operator | event->external, event->start_ns, (int32_t)i};
    }
    MP_SORT(key, keys, compare_keys);
    for (size_t i = 0; i < model->devices; i++) {
        struct kineto_device *work = &model->device[i];
        const struct kineto_key *found =
            work->correlation ? last_key(key, keys, work->correlation, INT64_MAX) : NULL;
        if (!found && work->external)
            found = last_key(key, keys, of_operator | work->external, INT64_MAX);
        work->launch = found ? found->event : KINETO_NONE;
    }
    return MP_OK;
}

static int find_forwards(struct kineto_model *model, struct mp_error *error) {
    for (size_t i = 0; i < model->hosts; i++) {
        const struct kineto_host *event = &model->host[i];
        if (event->category != KINETO_OPERATOR || event->sequence == KINETO_NO_SEQUENCE ||
            event->evaluation != KINETO_NONE || kineto_name_of(model, event->name)->is_evaluation)
            continue;
        MP_TRY(MP_APPEND(model->forward, model->forwards, error,
                         (struct kineto_key){event->sequence, event->start_ns, (int32_t)i}));
    }
    MP_SORT(model->forward, model->forwards, compare_keys);
    return MP_OK;
}

/* The last that has the number and began before made the node. */
int32_t kineto_forward_operator(const struct kineto_model *model, int32_t evaluation) {
    const struct kineto_host *backward = &model->host[evaluation];
    const struct kineto_key *found =
        last_key(model->forward, model->forwards, backward->sequence, backward->start_ns);
    return found ? found->event : KINETO_NONE;
}

int32_t kineto_forward_range(const struct kineto_model *model, int32_t evaluation) {
    const int32_t forward = kineto_forward_operator(model, evaluation);
    return forward == KINETO_NONE || kineto_is_range(model, &model->host[forward])
               ? forward
               : model->host[forward].around;
}

int32_t kineto_counterpart(const struct kineto_model *model, int32_t range) {
    const struct kineto_host *own = &model->host[range];
    const int32_t forward =
        own->evaluation == KINETO_NONE || !kineto_name_of(model, own->name)->is_nccl
            ? KINETO_NONE
            : kineto_forward_operator(model, own->evaluation);
    if (forward == KINETO_NONE)
        return KINETO_NONE;
    const struct kineto_host *within = &model->host[forward];
    for (size_t i = (size_t)forward + 1; i < model->hosts; i++) {
        const struct kineto_host *event = &model->host[i];
        if (event->thread != within->thread || event->start_ns >= within->end_ns)
            break;
        if (event->name == own->name)
            return (int32_t)i;
    }
    return KINETO_NONE;
}

/* ---- operations that threads wait for ---- */

MP_COMPARE(by_start, struct kineto_key,
           MP_ORDER(a->start_ns, b->start_ns) ?: MP_ORDER(a->event, b->event))

static size_t collect(const struct kineto_model *model, enum kineto_function function, bool issues,
                      struct kineto_key key[]) {
    size_t keys = 0;
    for (size_t i = 0; i < model->hosts; i++) {
        const struct kineto_name *name = kineto_name_of(model, model->host[i].name);
        if (name->function == function && (issues ? name->is_issue : name->is_gloo))
            key[keys++] = (struct kineto_key){function, model->host[i].start_ns, (int32_t)i};
    }
    MP_SORT(key, keys, by_start);
    return keys;
}

/* Until when the thread of an event did nothing after it; INT64_MAX: it had nothing more to do. */
static int64_t next_start(const struct kineto_model *model, int32_t event) {
    size_t next = (size_t)event + 1;
    while (next < model->hosts && model->host[next].thread == model->host[event].thread &&
           model->host[next].start_ns < model->host[event].end_ns)
        next++;
    return next < model->hosts && model->host[next].thread == model->host[event].thread
               ? model->host[next].start_ns
               : INT64_MAX;
}

/* The call of the thread of `issue` that waited until then for what was asked for there (functional
 * collectives: _c10d_functional::wait_tensor); KINETO_NONE: none. */
static int32_t waiting_call(const struct kineto_model *model, int32_t issue, int64_t until_ns) {
    for (size_t i = (size_t)issue + 1; i < model->hosts; i++) {
        const struct kineto_host *event = &model->host[i];
        if (event->thread != model->host[issue].thread || event->start_ns >= until_ns)
            break;
        if (event->end_ns >= until_ns && kineto_name_of(model, event->name)->is_wait)
            return (int32_t)i;
    }
    return KINETO_NONE;
}

/* Until when an operation was under way beside nothing that counts, where it was over by
 * `until_ns`, before the thread of `issue` came to wait for it, in the next call that waits;
 * INT64_MIN: there is none before the thread asks for another. */
static int64_t over_early(const struct kineto_model *model, int32_t issue, int64_t until_ns) {
    const struct kineto_host *call = &model->host[issue];
    int64_t end_ns = until_ns;
    for (size_t i = (size_t)issue + 1; i < model->hosts; i++) {
        const struct kineto_host *event = &model->host[i];
        const struct kineto_name *name = kineto_name_of(model, event->name);
        if (event->thread != call->thread || (name->is_issue && event->start_ns >= call->end_ns))
            break;
        if (name->is_wait && event->start_ns >= until_ns)
            return end_ns;
        if (name->rule && event->start_ns >= call->end_ns && event->start_ns < end_ns)
            end_ns = event->start_ns;
    }
    return INT64_MIN;
}

static int add_wait(struct kineto_model *model, int32_t issue, int32_t operation,
                    struct mp_error *error) {
    int32_t from = issue;
    int64_t until_ns = model->host[operation].end_ns;
    if (next_start(model, issue) < until_ns) {
        from = waiting_call(model, issue, until_ns);
        if (from == KINETO_NONE) {
            from = issue;
            until_ns = over_early(model, issue, until_ns);
        }
    }
    if (until_ns == INT64_MIN)
        return MP_OK; /* the thread went on meanwhile */
    MP_TRY(MP_GROW(model->wait, model->waits, error));
    const int64_t own_ns = model->host[from].end_ns;
    model->wait[model->waits++] = (struct kineto_wait){
        issue, from, until_ns > own_ns ? until_ns : own_ns, model->host[operation].name};
    return MP_OK;
}

static bool has_gloo(const struct kineto_model *model, enum kineto_function function) {
    return MP_ANY(i, model->name_count,
                  model->name[i].is_gloo && model->name[i].function == function);
}

/* Each operation belongs to the first call for one of its function that has none yet. */
static int find_waits_of(struct kineto_model *model, enum kineto_function function,
                         struct kineto_key issue[], struct kineto_key operation[],
                         struct mp_error *error) {
    const size_t operations = collect(model, function, false, operation);
    const size_t issues = operations ? collect(model, function, true, issue) : 0;
    for (size_t i = 0, next = 0; i < operations && next < issues; i++) {
        if (issue[next].start_ns > operation[i].start_ns)
            continue; /* of a call before the recording */
        model->host[operation[i].event].issue = issue[next].event;
        MP_TRY(add_wait(model, issue[next++].event, operation[i].event, error));
    }
    return MP_OK;
}

MP_COMPARE(compare_waits, struct kineto_wait, MP_ORDER(a->issue, b->issue))

static int find_waits(struct kineto_model *model, struct mp_error *error) {
    MP_AUTO(memory) struct kineto_key *issue = NULL;
    MP_AUTO(memory) struct kineto_key *operation = NULL;
    MP_TRY(MP_NEW(issue, model->hosts + 1, error));
    MP_TRY(MP_NEW(operation, model->hosts + 1, error));
    for (int function = 0; function < KINETO_FUNCTIONS; function++)
        if (has_gloo(model, (enum kineto_function)function))
            MP_TRY(find_waits_of(model, (enum kineto_function)function, issue, operation, error));
    MP_SORT(model->wait, model->waits, compare_waits);
    return MP_OK;
}

size_t kineto_first_wait(const struct kineto_model *model, int32_t issue) {
    return MP_BISECT(i, model->waits, model->wait[i].issue < issue);
}

int kineto_nest(struct kineto_model *model, struct mp_error *error) {
    MP_SORT(model->host, model->hosts, compare_hosts);
    MP_SORT(model->device, model->devices, compare_devices);
    MP_TRY(nest(model, error));
    MP_TRY(find_launches(model, error));
    MP_TRY(find_forwards(model, error));
    return find_waits(model, error);
}
