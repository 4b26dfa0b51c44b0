#include "harness/record/suggest.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/nvtx/emit.h"
#include "profiler/nvtx/payload.h"
#include "profiler/record/format.h"
#include "profiler/record/name_table.h"
#include "reference/base/characters.h"

enum {
    IDS_LIMIT = 1 << 22, /* a damaged spool may claim any id */
    USES_LIMIT = 50000,
    ORDERED_LIMIT = 1 << 22, /* ranges whose order is looked at */
    TEMPLATE_BYTES = 900,    /* the rest of a longer name is anything */
    INDICES = 4,             /* numbers in a name; what comes behind is anything */
    DEPTH = 128,
    NO_USE = -1
};

/* A number in a name, over all ranges of a use. */
struct index {
    int64_t first, last, low, high;
    int64_t rises, falls; /* from one range of a process to its next */
    bool is_any;    /* of some name no number, or one that counts neither layers nor iterations */
    bool is_padded; /* of some name it has leading zeros */
    bool after_layer, after_iteration;
};

/* What most have voted for, as Boyer and Moore count a majority. */
struct majority {
    int use;
    int64_t votes;
};

struct use {
    struct mp_name_use is;
    const char *template; /* the pattern with `*` for each index */
    struct index index[INDICES];
    int indices;
    int last_process;
    struct majority parent, before, after;
};

/* A name of the spool that is being read. */
struct known {
    char *text;
    bool looked_up;
    uint32_t domain;
    int use;
    int64_t value[INDICES];
};

struct ordered {
    int64_t start_ns, end_ns;
    uint32_t thread;
    int32_t use;
    bool nests; /* pushed, so that it lies in others or beside them */
};

struct process {
    struct ordered *range; /* by use, then start */
    size_t count;
    int64_t first_ns;
    double seconds;
};

struct naming {
    struct mp_arena *memory;
    struct name_table table; /* of uses, by template and domain */
    struct use *use;         /* [uses] */
    int uses;
    struct process *process;
    int processes;
    int64_t left_out;
};

static void end_naming(struct naming *names) {
    for (int i = 0; i < names->processes; i++)
        free(names->process[i].range);
    free(names->use);
    name_table_free(&names->table);
}
MP_END(naming, struct naming, end_naming(it))

static const char *const field_names[MP_NAME_FIELDS][6] = {
    [MP_NAME_TOKENS] = {"tokens", "num_tokens", "routes", NULL},
    [MP_NAME_BYTES] = {"bytes", "size", "Message size [bytes]", "Bytes", NULL},
    [MP_NAME_LAYER] = {"layer", "layer_id", "layer_idx", NULL},
    [MP_NAME_ITERATION] = {"iteration", "step", NULL},
};

/* ---- a name's template ---- */

/* Whether the letters before `at` end in one of the words, without regard to case. */
static bool stands_behind(const char *name, const char *at, const char *const words[]) {
    while (at > name && strchr(" _.#:=-/[(", at[-1]))
        at--;
    for (int i = 0; words[i]; i++) {
        size_t length = strlen(words[i]), at_most = (size_t)(at - name);
        if (length <= at_most && !strncasecmp(at - length, words[i], length) &&
            (length == at_most || !isalpha((unsigned char)at[-(ptrdiff_t)length - 1])))
            return true;
    }
    return false;
}

static const char *const layer_words[] = {"layer", "layers", "block", "blocks", "h", NULL};
static const char *const iteration_words[] = {"step", "iter", "iteration", "ProfilerStep", NULL};
static const char *const other_words[] = {"seq",  "op_id", "id",  "pid",    "tid", "rank",
                                          "size", "sizes", "gpu", "device", NULL};

/* How long the number at `at` is that tells ranges of one kind apart; 0: there is none. */
static size_t index_length(const char *name, const char *at) {
    size_t length = strspn(at, "0123456789");
    if (at[0] == '0' && at[1] == 'x' && isxdigit((unsigned char)at[2]))
        return 2 + strspn(at + 2, "0123456789abcdefABCDEF");
    const bool touched = at > name && isalpha((unsigned char)at[-1]);
    if (length == 0 || isalpha((unsigned char)at[length]))
        return 0;
    return touched && !stands_behind(name, at, layer_words) &&
                   !stands_behind(name, at, iteration_words)
               ? 0
               : length;
}

static void read_index(const char *name, const char *at, size_t length, struct index *index,
                       int64_t *value) {
    errno = 0;
    *value = at[1] == 'x' ? 0 : strtoll(at, NULL, 10);
    *index = (struct index){.first = *value,
                            .low = *value,
                            .high = *value,
                            .is_any = errno != 0 || (length > 1 && at[1] == 'x') ||
                                      stands_behind(name, at, other_words),
                            .is_padded = length > 1 && *at == '0',
                            .after_layer = stands_behind(name, at, layer_words),
                            .after_iteration = stands_behind(name, at, iteration_words)};
}

/* Writes the template of a name and returns how many indices it has. */
static int make_template(const char *name, char template[TEMPLATE_BYTES + 8],
                         struct index index[INDICES], int64_t value[INDICES]) {
    size_t filled = 0;
    int indices = 0;
    for (const char *at = name; *at;) {
        size_t digits = index_length(name, at);
        uint32_t character;
        if (filled >= TEMPLATE_BYTES || (digits > 0 && indices == INDICES)) {
            template[filled++] = '*';
            break;
        }
        if (digits > 0) {
            read_index(name, at, digits, &index[indices], &value[indices]);
            indices++;
            template[filled++] = '*';
            at += digits;
            continue;
        }
        int bytes = mp_character_decode(at, &character);
        if (bytes == 0) { /* YAML can't say it, a pattern can */
            template[filled++] = '?';
            at++;
            continue;
        }
        if (strchr("*?\\{", *at))
            template[filled++] = '\\';
        memcpy(template + filled, at, (size_t)bytes);
        filled += (size_t)bytes;
        at += bytes;
    }
    template[filled] = '\0';
    return indices;
}

/* ---- uses ---- */

/* Which use a template in a domain is, in `*use`; NO_USE: one too many.  MP_ENOMEM. */
static int find_use(struct naming *names, const char *template, const char *domain, int *use,
                    bool *is_new, struct mp_error *error) {
    char *key; /* nothing that the texts hold can make two of them one */
    if (asprintf(&key, "%zu %s%s", strlen(template), template, domain) < 0)
        return mp_no_memory(error);
    const uint32_t number = name_table_number(&names->table, key, is_new);
    free(key);
    *use = number > USES_LIMIT ? NO_USE : (int)number - 1;
    return number ? MP_OK : mp_no_memory(error);
}

/* Which use a name of the spool is. */
static int look_up(struct naming *names, struct known *known, const char *domain,
                   struct mp_error *error) {
    char template[TEMPLATE_BYTES + 8];
    struct index index[INDICES];
    bool is_new;
    int indices = make_template(known->text, template, index, known->value);
    known->use = NO_USE;
    if (!strcmp(known->text, MP_NVTX_COST) && !strcmp(domain, MP_NVTX_DOMAIN))
        return MP_OK;
    MP_TRY(find_use(names, template, domain, &known->use, &is_new, error));
    if (known->use == NO_USE)
        return MP_OK;
    for (int i = 0; i < indices && !is_new; i++) {
        struct index *same = &names->use[known->use].index[i];
        same->is_any = same->is_any || index[i].is_any;
        same->is_padded = same->is_padded || index[i].is_padded;
    }
    if (!is_new)
        return MP_OK;
    MP_TRY(MP_APPEND(names->use, names->uses, error,
                     (struct use){.template = mp_arena_text(names->memory, template),
                                  .is.sample = mp_arena_text(names->memory, known->text),
                                  .is.domain = mp_arena_text(names->memory, domain),
                                  .last_process = -1,
                                  .parent.use = NO_USE,
                                  .before.use = NO_USE,
                                  .after.use = NO_USE}));
    MP_TRY(mp_arena_check(names->memory, error));
    names->use[known->use].indices = indices;
    memcpy(names->use[known->use].index, index, sizeof index);
    return MP_OK;
}

static void note_indices(struct use *use, const struct known *known, bool is_next) {
    for (int i = 0; i < use->indices; i++) {
        struct index *index = &use->index[i];
        int64_t value = known->value[i];
        index->low = value < index->low ? value : index->low;
        index->high = value > index->high ? value : index->high;
        index->rises += is_next && value > index->last;
        index->falls += is_next && value < index->last;
        index->last = value;
    }
}

static void note_payload(struct mp_name_use *use, const struct mp_schemas *schemas,
                         const struct mp_spool_record *record) {
    int64_t value;
    use->has_value = mp_payload_number(schemas, record, NULL, &value);
    for (int i = 0; i < MP_NAME_FIELDS; i++)
        for (int n = 0; field_names[i][n] && !use->field[i]; n++)
            if (mp_payload_number(schemas, record, field_names[i][n], &value))
                use->field[i] = field_names[i][n];
}

/* ---- reading ---- */

struct reading {
    struct naming *names;
    struct mp_arena texts;
    struct known *known; /* [ids] */
    uint32_t ids;
    struct mp_schemas *schemas;
    struct process *process;
    size_t ordered_limit;
    int64_t first_ns, last_ns;
};

static void end_reading(struct reading *reading) {
    free(reading->known);
    mp_arena_release(&reading->texts);
    mp_schemas_destroy(reading->schemas);
}
MP_END(reading, struct reading, end_reading(it))

static int keep_name(struct reading *reading, const struct mp_spool_record *record,
                     struct mp_error *error) {
    uint32_t id = record->as.name.id;
    if (id >= IDS_LIMIT)
        return MP_OK;
    MP_TRY(MP_REACH(reading->known, reading->ids, id, IDS_LIMIT, error));
    reading->known[id] =
        (struct known){.text = mp_arena_text(&reading->texts, record->as.name.text)};
    return mp_arena_check(&reading->texts, error);
}

static int keep_order(struct reading *reading, const struct mp_range *range, int use,
                      struct mp_error *error) {
    struct process *process = reading->process;
    if (process->count == reading->ordered_limit || range->end_ns < range->start_ns)
        return MP_OK;
    MP_TRY(MP_APPEND(process->range, process->count, error,
                     (struct ordered){.start_ns = range->start_ns,
                                      .end_ns = range->end_ns,
                                      .thread = range->thread,
                                      .use = use,
                                      .nests = range->kind == MP_RANGE_PUSHED}));
    if (process->count == 1 || range->start_ns < reading->first_ns)
        reading->first_ns = range->start_ns;
    if (process->count == 1 || range->end_ns > reading->last_ns)
        reading->last_ns = range->end_ns;
    return MP_OK;
}

static int keep_range(struct reading *reading, const struct mp_spool_record *record,
                      struct mp_error *error) {
    struct naming *names = reading->names;
    const struct mp_range *range = &record->as.range.is;
    const char *domain = "";
    if (range->kind == MP_RANGE_MARK || (range->traits & MP_RANGE_ECHO) ||
        range->name >= reading->ids || !reading->known[range->name].text ||
        !*reading->known[range->name].text)
        return MP_OK;
    struct known *known = &reading->known[range->name];
    if (range->domain < reading->ids && reading->known[range->domain].text)
        domain = reading->known[range->domain].text;
    if (!known->looked_up || known->domain != range->domain)
        MP_TRY(look_up(names, known, domain, error));
    known->looked_up = true;
    known->domain = range->domain;
    if (known->use == NO_USE) {
        names->left_out += names->uses == USES_LIMIT;
        return MP_OK;
    }
    struct use *use = &names->use[known->use];
    const int which = (int)(reading->process - names->process);
    note_indices(use, known, use->last_process == which);
    if (use->is.count++ == 0)
        note_payload(&use->is, reading->schemas, record);
    use->is.processes += use->last_process != which;
    use->last_process = which;
    if (range->end_ns == 0)
        return MP_OK;
    use->is.seconds += ((double)range->end_ns - (double)range->start_ns) / 1e9;
    return keep_order(reading, range, known->use, error);
}

/* Names and schemas may stand behind what refers to them: two rounds. */
static int read_spool(struct reading *reading, const char *path, bool ranges,
                      struct mp_error *error) {
    MP_AUTO(spool) struct mp_spool_reader *reader = NULL;
    struct mp_spool_record record;
    int got;
    MP_TRY(mp_spool_open(path, &reader, error));
    while ((got = mp_spool_next(reader, &record, error)) == 1) {
        if (ranges && record.type == MP_SPOOL_RANGE)
            MP_TRY(keep_range(reading, &record, error));
        else if (!ranges && record.type == MP_SPOOL_NAME)
            MP_TRY(keep_name(reading, &record, error));
        else if (!ranges && record.type == MP_SPOOL_SCHEMA)
            MP_TRY(mp_schemas_add(reading->schemas, &record, error));
    }
    return got;
}

/* ---- order ---- */

static int compare_nesting(const void *left, const void *right) {
    const struct ordered *a = left, *b = right;
    return MP_ORDER(a->thread, b->thread) ?: MP_ORDER(a->start_ns, b->start_ns)
           ?: MP_ORDER(b->end_ns, a->end_ns);
}

MP_COMPARE(compare_uses, struct ordered,
           MP_ORDER(a->use, b->use) ?: MP_ORDER(a->start_ns, b->start_ns))

static void vote(struct majority *majority, int use) {
    if (majority->votes == 0)
        majority->use = use;
    majority->votes += majority->use == use ? 1 : -1;
}

/* What the ranges of each use lie in, and what lies there before and behind them. */
static void find_neighbours(struct naming *names, const struct process *process) {
    const struct ordered *open[DEPTH];
    int before[DEPTH + 1], depth = 0; /* the last one that ended in each that is open */
    before[0] = NO_USE;
    for (size_t i = 0; i < process->count; i++) {
        const struct ordered *range = &process->range[i];
        if (!range->nests)
            continue;
        while (depth > 0 && (open[depth - 1]->thread != range->thread ||
                             open[depth - 1]->end_ns <= range->start_ns))
            depth--;
        int around = depth; /* what calls itself lies in what called it first */
        while (around > 0 && open[around - 1]->use == range->use)
            around--;
        vote(&names->use[range->use].parent, around > 0 ? open[around - 1]->use : NO_USE);
        vote(&names->use[range->use].before, before[depth]);
        if (before[depth] != NO_USE)
            vote(&names->use[before[depth]].after, range->use);
        before[depth] = range->use;
        if (depth < DEPTH) {
            open[depth++] = range;
            before[depth] = NO_USE;
        }
    }
}

static int read_process(struct naming *names, const char *path, size_t ordered_limit,
                        struct mp_error *error) {
    MP_AUTO(reading)
    struct reading reading = {.names = names,
                              .process = &names->process[names->processes++],
                              .ordered_limit = ordered_limit};
    MP_TRY(mp_schemas_create(&reading.schemas, error));
    MP_TRY(read_spool(&reading, path, false, error));
    MP_TRY(read_spool(&reading, path, true, error));
    struct process *process = reading.process;
    if (process->count == 0)
        return MP_OK;
    MP_SORT(process->range, process->count, compare_nesting);
    find_neighbours(names, process);
    MP_SORT(process->range, process->count, compare_uses);
    process->first_ns = reading.first_ns;
    process->seconds = ((double)reading.last_ns - (double)reading.first_ns) / 1e9;
    return MP_OK;
}

/* ---- what all processes do ---- */

/* The ranges of one use in one process. */
struct slice {
    const struct ordered *range;
    size_t count;
};

/* From the slice of the use before to that of this one. */
static void go_on(const struct process *process, int use, struct slice *slice) {
    const struct ordered *end = process->range + process->count;
    slice->range += slice->count;
    for (slice->count = 0; slice->range + slice->count < end; slice->count++)
        if (slice->range[slice->count].use != use)
            break;
}

static void measure_use(const struct naming *names, const struct slice own[],
                        struct mp_name_use *use) {
    use->least = INT64_MAX;
    use->share = 1;
    for (int p = 0; p < names->processes; p++) {
        const struct process *process = &names->process[p];
        const int64_t count = (int64_t)own[p].count;
        double seconds = 0;
        for (int64_t i = 0; i < count; i++)
            seconds += ((double)own[p].range[i].end_ns - (double)own[p].range[i].start_ns) / 1e9;
        double share = process->seconds > 0 ? seconds / process->seconds : 0;
        use->share = share < use->share ? share : use->share;
        use->least = count < use->least ? count : use->least;
        use->most = count > use->most ? count : use->most;
        if (count > 0 && use->first_end == 0)
            use->first_end = ((double)own[p].range[0].end_ns - (double)process->first_ns) / 1e9;
    }
}

/* Whether the spread of ends is small beside that of beginnings, which has to be some of the time:
 * what each process does for itself ends as differently as it begins, or more so. */
static void find_meetings(const struct slice own[], int processes, struct mp_name_use *use) {
    double begins = 0, ends = 0, lasts = 0;
    size_t early = 0;
    for (size_t i = 0; i < own[0].count; i++) {
        int64_t first = INT64_MAX, last = INT64_MIN, first_end = INT64_MAX, last_end = INT64_MIN;
        for (int p = 0; p < processes; p++) {
            const struct ordered *range = &own[p].range[i];
            first = range->start_ns < first ? range->start_ns : first;
            last = range->start_ns > last ? range->start_ns : last;
            first_end = range->end_ns < first_end ? range->end_ns : first_end;
            last_end = range->end_ns > last_end ? range->end_ns : last_end;
        }
        early += first_end < last;
        begins += (double)last - (double)first;
        ends += (double)last_end - (double)first_end;
        lasts += (double)last_end - (double)first;
    }
    use->meets = begins > 0.05 * lasts && ends < 0.25 * begins;
    use->may_meet = begins > 0.05 * lasts && ends < begins && early <= own[0].count / 50;
}

/* ---- patterns ---- */

/* What the number says; NULL: it is always the same.  One that only grows counts iterations if its
 * ranges lie in no others; one that begins anew counts layers. */
static const char *word_of(const struct use *use, const struct index *index) {
    const int64_t changes = index->rises + index->falls;
    const bool is_small = index->low >= 0 && index->high < 1000;
    if (index->is_any)
        return "*";
    if (index->after_layer)
        return "{layer}";
    if (index->after_iteration)
        return "{iteration}";
    if (index->low == index->high)
        return index->is_padded ? "*" : NULL;
    if (index->falls == 0 && use->is.parent < 0)
        return changes >= 2 && changes + use->is.processes >= use->is.count ? "{iteration}" : "*";
    return changes > 0 && is_small ? "{layer}" : "*";
}

/* The template with a word for each index: what it says, its only value, or anything. */
static void make_pattern(struct mp_arena *memory, struct use *use) {
    char *pattern = mp_arena_take(memory, strlen(use->template) + 24 * INDICES + 1, 1);
    size_t filled = 0;
    int which = 0;
    for (const char *at = use->template; pattern && *at; at++) {
        if (*at != '*' || which >= use->indices) {
            pattern[filled++] = *at;
            if (*at == '\\')
                pattern[filled++] = *++at;
            continue;
        }
        const struct index *index = &use->index[which++];
        const char *word = word_of(use, index);
        bool *says = word && !strcmp(word, "{layer}")       ? &use->is.says_layer
                     : word && !strcmp(word, "{iteration}") ? &use->is.says_iteration
                                                            : NULL;
        if (says && *says) /* another number has said it */
            word = "*";
        else if (says)
            *says = true;
        filled += word ? (size_t)sprintf(pattern + filled, "%s", word)
                       : (size_t)sprintf(pattern + filled, "%lld", (long long)index->first);
    }
    use->is.pattern = pattern;
}

int mp_names_read(const char *const paths[], int count, struct mp_arena *memory,
                  struct mp_names *made, struct mp_error *error) {
    MP_AUTO(naming) struct naming names = {.memory = memory};
    MP_TAKE(memory, names.process, count + 1);
    MP_TRY(mp_arena_check(memory, error));
    for (int i = 0; i < count; i++)
        MP_TRY(read_process(&names, paths[i], (size_t)(ORDERED_LIMIT / count), error));
    MP_AUTO(memory) struct slice *own = NULL;
    MP_TRY(MP_NEW(own, (size_t)names.processes + 1, error));
    for (int p = 0; p < names.processes; p++)
        own[p].range = names.process[p].range;
    for (int i = 0; i < names.uses; i++) {
        struct mp_name_use *use = &names.use[i].is;
        for (int p = 0; p < names.processes; p++)
            go_on(&names.process[p], i, &own[p]);
        measure_use(&names, own, use);
        if (names.processes > 1 && use->least > 0 && use->least == use->most)
            find_meetings(own, names.processes, use);
        use->parent = names.use[i].parent.use;
        use->before = names.use[i].before.use;
        use->after = names.use[i].after.use;
        if (use->parent >= 0)
            names.use[use->parent].is.encloses = true;
    }
    struct mp_name_use *list = NULL;
    MP_TAKE(names.memory, list, names.uses + 1);
    for (int i = 0; list && i < names.uses; i++) {
        make_pattern(names.memory, &names.use[i]);
        list[i] = names.use[i].is;
    }
    *made = (struct mp_names){list, names.uses, names.left_out};
    return mp_arena_check(names.memory, error);
}
