/* Traces of PyTorch's profiler: one file per rank. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/recordings/kineto_model.h"
#include "harness/recordings/recordings.h"

#define GLOO "gloo:"
#define NCCL "nccl:"
/* Ranges of operations that the thread which asked for them waited for. */
#define WAITS_DOMAIN "waits"

/* ---- names ---- */

static const char *const function_names[KINETO_FUNCTIONS] = {
    "all_to_all", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier",
    "gather",     "scatter",    "reduce",     "send",           "recv"};

const char *kineto_function_name(enum kineto_function function) {
    return function_names[function];
}

enum kineto_function kineto_function_of(const char *name) {
    char letters[64];
    size_t length = 0;
    for (; *name && length < sizeof letters - 1; name++)
        if (isalpha((unsigned char)*name))
            letters[length++] = (char)tolower((unsigned char)*name);
    letters[length] = '\0';
    for (int f = 0; f < KINETO_FUNCTIONS; f++) {
        char word[32];
        size_t at = 0;
        for (const char *letter = function_names[f]; *letter; letter++)
            if (*letter != '_')
                word[at++] = *letter;
        word[at] = '\0';
        if (strstr(letters, word))
            return (enum kineto_function)f;
    }
    return KINETO_FUNCTIONS;
}

static bool is_product(const char *name) {
    static const char *const known[] = {"aten::linear", "aten::matmul", "aten::mm", "aten::bmm",
                                        "aten::_grouped_mm"};
    return MP_ANY(i, MP_LENGTH(known), !strcmp(known[i], name));
}

static void describe(const struct kineto_model *model, struct kineto_name *name) {
    static const char evaluation[] = "autograd::engine::evaluate_function";
    struct mp_rule_capture capture;
    name->rule = mp_rules_find(model->rules, name->text, "", &capture);
    name->ends_iterations = mp_rules_end_iteration(model->rules, name->text, "") >= 0;
    name->is_evaluation = !strncmp(name->text, evaluation, sizeof evaluation - 1);
    name->is_gloo = !strncmp(name->text, GLOO, sizeof GLOO - 1);
    name->is_nccl = !strncmp(name->text, NCCL, sizeof NCCL - 1);
    name->is_product = is_product(name->text);
    name->is_wait = strstr(name->text, "wait_tensor") || strstr(name->text, "wrap_tensor");
    name->is_issue = !strncmp(name->text, "c10d::", sizeof "c10d::" - 1);
    name->function = name->is_gloo || name->is_issue || name->is_nccl
                         ? kineto_function_of(name->text)
                         : KINETO_FUNCTIONS;
}

/* The number of a name; 0: no memory. */
static uint32_t name_number(struct kineto_model *model, const char *text) {
    bool is_new;
    const uint32_t number = name_table_number(&model->names, text, &is_new);
    if (!number || !is_new)
        return number;
    const char *copy =
        MP_ROOM(model->name, model->name_count) ? mp_arena_text(&model->texts, text) : NULL;
    if (!copy)
        return 0;
    model->name[model->name_count] = (struct kineto_name){.text = copy};
    describe(model, &model->name[model->name_count++]);
    return number;
}

/* ---- taking events ---- */

/* Index of a thread; UINT32_MAX: no memory. */
static uint32_t thread_index(struct kineto_model *model, uint32_t process, uint32_t thread) {
    const struct kineto_thread *latest =
        model->threads ? &model->thread[model->latest_thread] : NULL;
    if (latest && latest->process == process && latest->thread == thread)
        return model->latest_thread;
    for (size_t i = 0; model->thread && i < model->threads; i++)
        if (model->thread[i].process == process && model->thread[i].thread == thread)
            return model->latest_thread = (uint32_t)i;
    if (!MP_ROOM(model->thread, model->threads))
        return UINT32_MAX;
    model->thread[model->threads] = (struct kineto_thread){process, thread};
    return model->latest_thread = (uint32_t)model->threads++;
}

int kineto_add_extra(struct kineto_model *model, const struct kineto_extra *extra, int32_t *index,
                     struct mp_error *error) {
    MP_TRY(MP_GROW(model->extra, model->extras, error));
    *index = (int32_t)model->extras;
    model->extra[model->extras++] = *extra;
    return MP_OK;
}

/* NCCL's word for a type of torch, or the type itself. */
static const char *datatype_of(const char *type) {
    static const char *const known[][2] = {
        {"float", "ncclFloat32"},       {"double", "ncclFloat64"},
        {"half", "ncclFloat16"},        {"c10::half", "ncclFloat16"},
        {"bfloat16", "ncclBfloat16"},   {"c10::bfloat16", "ncclBfloat16"},
        {"long", "ncclInt64"},          {"long int", "ncclInt64"},
        {"int", "ncclInt32"},           {"byte", "ncclUint8"},
        {"unsigned char", "ncclUint8"}, {"char", "ncclInt8"},
        {"signed char", "ncclInt8"},    {"bool", "ncclUint8"}};
    for (size_t i = 0; i < MP_LENGTH(known); i++)
        if (!strcasecmp(known[i][0], type))
            return known[i][1];
    return type;
}

static int take_host(struct kineto_model *model, const struct kineto_event *event, uint32_t name,
                     struct mp_error *error) {
    const struct kineto_name *known = kineto_name_of(model, name);
    struct kineto_host made = {.start_ns = event->start_ns,
                               .end_ns = event->end_ns,
                               .name = name,
                               .thread = thread_index(model, event->process, event->thread),
                               .correlation = event->correlation,
                               .external = event->external,
                               .sequence = event->sequence,
                               .extra = KINETO_NONE,
                               .category = (uint8_t)event->category};
    if (!MP_ROOM(model->host, model->hosts) || made.thread == UINT32_MAX)
        return mp_no_memory(error);
    if ((known->is_gloo || known->is_product) && event->first_size >= 0) {
        struct kineto_extra extra = {.count = event->first_size, .width = event->first_width};
        extra.rows = extra.width > 0 ? extra.count / extra.width : 0;
        extra.type = name_number(model, datatype_of(event->first_type));
        MP_TRY(extra.type ? kineto_add_extra(model, &extra, &made.extra, error)
                          : mp_no_memory(error));
    }
    model->host[model->hosts++] = made;
    return MP_OK;
}

/* What a kernel of NCCL does; KINETO_NONE in *index where it is none. */
static int take_collective(struct kineto_model *model, const struct kineto_event *event,
                           int32_t *index, struct mp_error *error) {
    *index = KINETO_NONE;
    const bool is_named = event->collective[0] != '\0';
    if (!is_named && strncmp(event->name, "nccl", 4) != 0)
        return MP_OK;
    const enum kineto_function function =
        kineto_function_of(is_named ? event->collective : event->name);
    if (function == KINETO_FUNCTIONS && !is_named)
        return MP_OK;
    struct kineto_extra extra = {
        .communicator =
            event->group[0]
                ? mp_recording_communicator(event->group, event->members[0] ? event->members : NULL)
                : 0,
        .is_named = is_named,
        .count = event->elements_in,
        .group_size = event->group_size,
        .number = event->number,
        .function =
            name_number(model, function == KINETO_FUNCTIONS ? event->collective
                                                            : kineto_function_name(function)),
        .type = event->type[0] ? name_number(model, datatype_of(event->type)) : 0};
    if (!extra.function)
        return mp_no_memory(error);
    return kineto_add_extra(model, &extra, index, error);
}

static int take_device(struct kineto_model *model, const struct kineto_event *event, uint32_t name,
                       struct mp_error *error) {
    struct kineto_device made = {.start_ns = event->start_ns,
                                 .end_ns = event->end_ns,
                                 .bytes = event->bytes,
                                 .name = name,
                                 .correlation = event->correlation,
                                 .external = event->external,
                                 .device = event->process,
                                 .stream = event->thread,
                                 .context = event->context,
                                 .registers = event->registers,
                                 .shared = event->shared,
                                 .collective = KINETO_NONE,
                                 .category = (uint8_t)event->category};
    memcpy(made.grid, event->grid, sizeof made.grid);
    memcpy(made.block, event->block, sizeof made.block);
    MP_TRY(MP_GROW(model->device, model->devices, error));
    int code = event->category == KINETO_KERNEL
                   ? take_collective(model, event, &made.collective, error)
                   : MP_OK;
    model->device[model->devices++] = made;
    return code;
}

static int take(void *context, const struct kineto_event *event, struct mp_error *error) {
    struct kineto_model *model = context;
    if (model->hosts >= INT32_MAX || model->devices >= INT32_MAX)
        return mp_fail(error, MP_ELIMIT, "%s: more than %d events", model->path, INT32_MAX);
    const uint32_t name = name_number(model, event->name);
    if (!name)
        return mp_no_memory(error);
    return event->category >= KINETO_KERNEL ? take_device(model, event, name, error)
                                            : take_host(model, event, name, error);
}

/* ---- ranges ---- */

/* Whether all of it is told as the wait of the thread that asked for it. */
static bool is_waited(const struct kineto_model *model, const struct kineto_host *event) {
    const size_t at = kineto_first_wait(model, event->issue);
    const struct kineto_wait *wait = at < model->waits ? &model->wait[at] : NULL;
    return wait && wait->issue == event->issue && wait->from == wait->issue;
}

/* Its value is the rows of the products in it. */
static void fill_value(const struct kineto_model *model, const struct kineto_host *event,
                       struct mp_recorded_range *range) {
    const struct kineto_extra *extra =
        event->extra == KINETO_NONE ? NULL : &model->extra[event->extra];
    if (!extra || extra->width <= 0)
        return;
    range->value_type = MP_VALUE_I64;
    range->value = (uint64_t)extra->rows;
}

static int write_ranges(const struct kineto_model *model, struct mp_recording_process *process,
                        struct mp_error *error) {
    const int64_t base_ns = model->header.base_ns;
    for (size_t i = 0; i < model->hosts; i++) {
        const struct kineto_host *event = &model->host[i];
        if (!kineto_is_range(model, event) || is_waited(model, event))
            continue;
        struct mp_recorded_range range = {
            .start_ns = event->start_ns + base_ns,
            .end_ns = event->end_ns + base_ns,
            .name = kineto_name_of(model, event->name)->text,
            .thread = model->thread[event->thread].thread,
            .level = event->level,
            .traits = event->evaluation == KINETO_NONE ? 0 : MP_RANGE_BACKWARD};
        const int32_t counterpart = kineto_counterpart(model, (int32_t)i);
        fill_value(model, event, &range);
        if (counterpart != KINETO_NONE) {
            range.traits |= MP_RANGE_ECHO;
            range.value = (uint64_t)(model->host[counterpart].start_ns + base_ns);
        }
        MP_TRY(mp_recording_range(process, &range, error));
    }
    return MP_OK;
}

/* The wait for an operation of this name that the forward operator of an evaluation made; NULL:
 * none.  Waits are in the order of their calls, and those within an operator follow it. */
static const struct kineto_wait *forward_wait(const struct kineto_model *model, int32_t evaluation,
                                              uint32_t name) {
    const int32_t forward = kineto_forward_operator(model, evaluation);
    if (forward == KINETO_NONE)
        return NULL;
    const struct kineto_host *within = &model->host[forward];
    for (size_t i = kineto_first_wait(model, forward); i < model->waits; i++) {
        const struct kineto_host *issue = &model->host[model->wait[i].issue];
        if (issue->thread != within->thread || issue->start_ns >= within->end_ns)
            break;
        if (model->wait[i].name == name)
            return &model->wait[i];
    }
    return NULL;
}

static int write_waits(const struct kineto_model *model, struct mp_recording_process *process,
                       struct mp_error *error) {
    for (size_t i = 0; i < model->waits; i++) {
        const struct kineto_wait *wait = &model->wait[i];
        const struct kineto_host *issue = &model->host[wait->issue],
                                 *from = &model->host[wait->from];
        struct mp_recorded_range range = {.start_ns = from->start_ns + model->header.base_ns,
                                          .end_ns = wait->end_ns + model->header.base_ns,
                                          .name = kineto_name_of(model, wait->name)->text,
                                          .domain = WAITS_DOMAIN,
                                          .thread = model->thread[issue->thread].thread,
                                          .level = from->level};
        if (issue->evaluation != KINETO_NONE) {
            const struct kineto_wait *forward = forward_wait(model, issue->evaluation, wait->name);
            range.traits = MP_RANGE_BACKWARD | (forward ? MP_RANGE_ECHO : 0);
            range.value =
                forward ? (uint64_t)(model->host[forward->from].start_ns + model->header.base_ns)
                        : 0;
        }
        MP_TRY(mp_recording_range(process, &range, error));
    }
    return MP_OK;
}

static int write_calls(const struct kineto_model *model, struct mp_recording_process *process,
                       struct mp_error *error) {
    for (size_t i = 0; i < model->hosts; i++) {
        const struct kineto_host *event = &model->host[i];
        if (event->category != KINETO_CALL)
            continue;
        const struct mp_activity call = {.start_ns = event->start_ns + model->header.base_ns,
                                         .end_ns = event->end_ns + model->header.base_ns,
                                         .correlation = event->correlation,
                                         .thread = model->thread[event->thread].thread,
                                         .kind = MP_ACTIVITY_CALL};
        MP_TRY(
            mp_recording_activity(process, &call, kineto_name_of(model, event->name)->text, error));
    }
    return MP_OK;
}

/* ---- collectives ---- */

static const char *text_of(const struct kineto_model *model, uint32_t name) {
    return name ? kineto_name_of(model, name)->text : NULL;
}

static bool is_pair(const char *function) {
    return function && (!strcmp(function, kineto_function_name(KINETO_SEND)) ||
                        !strcmp(function, kineto_function_name(KINETO_RECV)));
}

/* Of operations of which nobody says in which group they were: where there are several, they can't
 * be compared with those of other ranks. */
static uint64_t only_communicator(const struct kineto_model *model, const char *library) {
    char own[32] = "";
    if (model->header.groups > 1)
        snprintf(own, sizeof own, "%d", model->header.rank);
    return mp_recording_communicator(library, own);
}

/* Ranks of that one, where it can't be compared: more than it has recordings; else counted. */
static int32_t only_ranks(const struct kineto_model *model) {
    return model->header.groups > 1 ? model->header.ranks : 0;
}

/* The kernel of an all-to-all is that of sends and receives: what torch called is around its
 * launch.
 */
static const char *nccl_function(const struct kineto_model *model,
                                 const struct kineto_device *work) {
    const struct kineto_extra *extra = &model->extra[work->collective];
    int32_t at = extra->is_named || work->launch == KINETO_NONE ? KINETO_NONE : work->launch;
    for (; model->host && at != KINETO_NONE; at = model->host[at].around) {
        const struct kineto_name *name = kineto_name_of(model, model->host[at].name);
        if (name->is_nccl && name->function != KINETO_FUNCTIONS)
            return kineto_function_name(name->function);
    }
    return kineto_name_of(model, extra->function)->text;
}

static int write_nccl(const struct kineto_model *model, struct mp_recording_process *process,
                      struct mp_error *error) {
    const int64_t base_ns = model->header.base_ns;
    for (size_t i = 0; i < model->devices; i++) {
        const struct kineto_device *work = &model->device[i];
        if (work->collective == KINETO_NONE)
            continue;
        const struct kineto_extra *extra = &model->extra[work->collective];
        const struct kineto_host *launch =
            work->launch == KINETO_NONE ? NULL : &model->host[work->launch];
        struct mp_recorded_collective made = {
            .is = {.start_ns = (launch ? launch->start_ns : work->start_ns) + base_ns,
                   .queued_ns = (launch ? launch->end_ns : work->start_ns) + base_ns,
                   .timer_start = (uint64_t)(work->start_ns + base_ns),
                   .timer_end = (uint64_t)(work->end_ns + base_ns),
                   .communicator =
                       extra->communicator ? extra->communicator : only_communicator(model, "nccl"),
                   .sequence = extra->number < 0 ? 0 : (uint64_t)extra->number + 1,
                   .count = extra->count < 0 ? 0 : (uint64_t)extra->count,
                   .rank = model->header.rank,
                   .ranks = extra->group_size > 0 && extra->group_size < INT32_MAX
                                ? (int32_t)extra->group_size
                            : extra->communicator ? 0
                                                  : only_ranks(model),
                   .peer = -1},
            .function = nccl_function(model, work),
            .datatype = text_of(model, extra->type)};
        made.is.is_pair = is_pair(made.function);
        MP_TRY(mp_recording_collective(process, &made, error));
    }
    return MP_OK;
}

static int write_gloo(const struct kineto_model *model, struct mp_recording_process *process,
                      struct mp_error *error) {
    const int64_t base_ns = model->header.base_ns;
    for (size_t i = 0; i < model->hosts; i++) {
        const struct kineto_host *event = &model->host[i];
        const struct kineto_name *name = kineto_name_of(model, event->name);
        if (!name->is_gloo || name->function == KINETO_FUNCTIONS)
            continue;
        const struct kineto_host *issue =
            event->issue == KINETO_NONE ? event : &model->host[event->issue];
        const struct kineto_extra *extra =
            event->extra == KINETO_NONE ? NULL : &model->extra[event->extra];
        struct mp_recorded_collective made = {
            .is = {.start_ns = issue->start_ns + base_ns,
                   .queued_ns = issue->end_ns + base_ns,
                   .timer_start = (uint64_t)(event->start_ns + base_ns),
                   .timer_end = (uint64_t)(event->end_ns + base_ns),
                   .communicator = only_communicator(model, "gloo"),
                   .count = extra ? (uint64_t)extra->count : 0,
                   .rank = model->header.rank,
                   .ranks = only_ranks(model),
                   .peer = -1},
            .function = kineto_function_name(name->function),
            .datatype = extra ? text_of(model, extra->type) : NULL};
        made.is.is_pair = is_pair(made.function);
        MP_TRY(mp_recording_collective(process, &made, error));
    }
    return MP_OK;
}

/* ---- whose it is ---- */

/* A number of the file's name between two of '_', '-', '.' and its ends, the first; -1: none.
 * `word` stands before it, and what joins words may between them.  `process` is none, which torch's
 * handler for TensorBoard names a file by. */
static int number_after(const char *name, const char *word, long process) {
    const size_t length = strlen(word);
    for (const char *at = name; *at; at++) {
        const char *digits = at + length;
        char *end;
        if (strncasecmp(at, word, length) != 0)
            continue;
        if (length > 0)
            digits += *digits == '_' || *digits == '-' || *digits == '.';
        else if (at > name && !strchr("_-.", at[-1]))
            continue;
        if (!isdigit((unsigned char)*digits))
            continue;
        const long value = strtol(digits, &end, 10);
        if ((*end == '\0' || strchr("_-.", *end)) && value >= 0 && value < UINT16_MAX &&
            value != process)
            return (int)value;
    }
    return -1;
}

static int rank_of(const struct kineto_model *model) {
    const char *name = strrchr(model->path, '/');
    name = name ? name + 1 : model->path;
    if (model->header.rank >= 0)
        return model->header.rank;
    const long process = model->threads ? (long)model->thread[0].process : -1;
    const int rank = number_after(name, "rank", process);
    return rank >= 0 ? rank : number_after(name, "", process);
}

static int check(struct kineto_model *model, struct mp_error *error) {
    const struct kineto_header *header = &model->header;
    if (!header->has_events || (header->events == 0 && header->damage[0]))
        return mp_fail(error, MP_EFORMAT,
                       "%s: is no trace of PyTorch's profiler, a JSON object with traceEvents%s%s",
                       model->path, header->damage[0] ? ": " : "", header->damage);
    model->header.rank = rank_of(model);
    if (model->header.rank < 0)
        return mp_fail(error, MP_EFORMAT,
                       "%s: nobody says which rank this is: it has no distributedInfo, as of a "
                       "program without torch.distributed; call it rank0.json, say",
                       model->path);
    return MP_OK;
}

/* ---- all of it ---- */

static void end_model(struct kineto_model *model) {
    free(model->name);
    mp_arena_release(&model->texts);
    name_table_free(&model->names);
    free(model->host);
    free(model->device);
    free(model->extra);
    free(model->thread);
    free(model->forward);
    free(model->wait);
}
MP_END(model, struct kineto_model, end_model(it))

static int read_trace(const char *path, const struct mp_rules *rules,
                      struct mp_recording *recording, struct mp_error *error) {
    MP_AUTO(model) struct kineto_model model = {.path = path, .rules = rules};
    struct mp_recording_process *process = NULL;
    MP_TRY(kineto_read(model.path, take, &model, &model.header, error));
    MP_TRY(check(&model, error));
    MP_TRY(kineto_nest(&model, error));
    const struct mp_recorded_process about = {.rank = model.header.rank,
                                              .ranks = model.header.ranks,
                                              .pid =
                                                  model.threads ? (int)model.thread[0].process : 0,
                                              .host = model.header.host,
                                              .source = model.path};
    MP_TRY(mp_recording_process(recording, &about, &process, error));
    if (model.header.damage[0]) {
        char sentence[768];
        snprintf(sentence, sizeof sentence, "%s is damaged %s: what is before that is here",
                 model.path, model.header.damage);
        mp_recording_cut(process, sentence);
    }
    static int (*const writer[])(const struct kineto_model *, struct mp_recording_process *,
                                 struct mp_error *) = {
        write_ranges, write_waits, kineto_write_echoes, write_calls, write_nccl, write_gloo};
    for (size_t i = 0; i < MP_LENGTH(writer); i++)
        MP_TRY(writer[i](&model, process, error));
    return MP_OK;
}

static bool contains(const char *head, size_t size, const char *key) {
    return memmem(head, size, key, strlen(key)) != NULL;
}

static bool recognises(const char *path, const char *head, size_t size) {
    (void)path;
    size_t at = 0;
    while (at < size && isspace((unsigned char)head[at]))
        at++;
    return at < size && head[at] == '{' &&
           (contains(head, size, "\"traceEvents\"") || contains(head, size, "\"schemaVersion\"") ||
            contains(head, size, "\"distributedInfo\""));
}

const struct mp_recording_format mp_recording_pytorch = {
    "pytorch", "JSON of torch.profiler (Kineto), plain or gzipped: one file per rank", recognises,
    read_trace};
