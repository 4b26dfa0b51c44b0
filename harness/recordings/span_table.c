/* Span tables: CSV with one span per line, of all ranks together or in several files. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/record/mapping.h"
#include "harness/recordings/recordings.h"
#include "harness/workload/input.h"
#include "reference/base/arena.h"

enum { COLUMNS_LIMIT = 64, RANKS_LIMIT = 65536 };

/* Spans that say their phase are those of this domain's rules (harness/rules/moeperf.yaml). */
#define PHASES_DOMAIN "moeperf"

enum column {
    COLUMN_RANK,
    COLUMN_NAME,
    COLUMN_START,
    COLUMN_END,
    COLUMN_PHASE,
    COLUMN_STREAM,
    COLUMN_THREAD,
    COLUMN_DIRECTION,
    COLUMN_HOST,
    COLUMN_WAIT,
    COLUMN_ITERATION,
    COLUMN_LAYER,
    COLUMN_TOKENS,
    COLUMN_BYTES,
    COLUMNS
};
static const char *const column_names[COLUMNS] = {
    "rank",      "name", "start", "end",       "phase", "stream", "thread",
    "direction", "host", "wait",  "iteration", "layer", "tokens", "bytes"};

/* A range's fields, as the rules know them. */
enum field { FIELD_ITERATION, FIELD_LAYER, FIELD_DIRECTION, FIELD_TOKENS, FIELD_BYTES, FIELD_WAIT };
static const char *const field_names[] = {"iteration", "layer", "direction",
                                          "tokens",    "bytes", "wait_ns"};
enum { FIELDS = MP_LENGTH(field_names) };

/* From where to where a rank's iteration went, where no span says so. */
struct extent {
    int64_t iteration, start_ns, end_ns;
};

struct rank {
    struct mp_recording_process *process; /* NULL: not seen */
    uint64_t schema, phases_schema;
    struct extent *extent; /* [extents] in the order in which they began to be seen */
    size_t extents;
    bool has_iterations; /* spans of that phase */
};

struct table {
    const char *path;
    struct mp_input *input;
    struct mp_recording *recording;
    int place[COLUMNS];      /* of a column in a line; -1: there is none */
    double unit_ns[COLUMNS]; /* of times */
    int columns;             /* of the header */
    struct rank *rank;       /* [ranks] by number */
    uint32_t ranks;
    char *field[COLUMNS_LIMIT]; /* in the input's line; NULL: there is none */
    int fields;
};

/* ---- lines ---- */

static int wrong(const struct table *table, struct mp_error *error, const char *what,
                 const char *value, const char *right) {
    return mp_fail(error, MP_EFORMAT, "%s:%lld: %s '%.40s'; %s", table->path,
                   (long long)mp_input_line_number(table->input), what, value, right);
}

/* The next line's fields; none: the file has ended. */
static int next_line(struct table *table, struct mp_error *error) {
    char *from;
    table->fields = 0;
    MP_TRY(mp_input_line(table->input, &from, error));
    bool more = from;
    for (char *to = from; more && table->fields < COLUMNS_LIMIT; from += more) {
        bool quoted = *from == '"';
        table->field[table->fields++] = to;
        from += quoted;
        while (*from && (quoted || *from != ',')) {
            if (quoted && *from == '"' && from[1] != '"') {
                quoted = false;
                from++;
                continue;
            }
            from += quoted && *from == '"'; /* two of them stand for one */
            *to++ = *from++;
        }
        more = *from == ',';
        *to++ = '\0';
    }
    return MP_OK;
}

/* Columns in any order, times with a unit: start_ns, start_us, start_ms; start or start_s: seconds.
 */
static int read_header(struct table *table, struct mp_error *error) {
    static const struct {
        const char *ending;
        double ns;
    } units[] = {{"", 1e9}, {"_s", 1e9}, {"_ms", 1e6}, {"_us", 1e3}, {"_ns", 1}};
    for (int c = 0; c < COLUMNS; c++)
        table->place[c] = -1;
    MP_TRY(next_line(table, error));
    if (table->fields == 0)
        return mp_fail(error, MP_EFORMAT, "%s: is empty", table->path);
    table->columns = table->fields;
    for (int f = 0; f < table->fields; f++)
        for (int c = 0; c < COLUMNS; c++) {
            const size_t length = strlen(column_names[c]);
            const bool is_time = c == COLUMN_START || c == COLUMN_END || c == COLUMN_WAIT;
            if (strncmp(table->field[f], column_names[c], length) != 0)
                continue;
            for (size_t u = 0; u < (is_time ? MP_LENGTH(units) : 1); u++)
                if (!strcmp(table->field[f] + length, units[u].ending)) {
                    table->place[c] = f;
                    table->unit_ns[c] = units[u].ns;
                }
        }
    for (int c = COLUMN_RANK; c <= COLUMN_END; c++)
        if (table->place[c] < 0 && !(c == COLUMN_NAME && table->place[COLUMN_PHASE] >= 0))
            return mp_fail(error, MP_EFORMAT,
                           "%s: no column %s; rank, name (or phase), start and end are needed",
                           table->path, column_names[c]);
    return MP_OK;
}

static const char *text_of(const struct table *table, enum column column) {
    const int place = table->place[column];
    return place >= 0 && place < table->fields ? table->field[place] : "";
}

/* A whole number; -1 for an empty one. */
static int whole_of(const struct table *table, enum column column, int64_t *value,
                    struct mp_error *error) {
    const char *text = text_of(table, column);
    char *end;
    *value = -1;
    if (!*text)
        return MP_OK;
    errno = 0;
    const double number = strtod(text, &end); /* 3.0, of tools that know no whole numbers */
    if (*end || errno || !(number >= -1 && number < 9e15) || number != floor(number))
        return wrong(table, error, column_names[column], text,
                     "a whole number, or nothing, is right");
    *value = (int64_t)number;
    return MP_OK;
}

static int time_of(const struct table *table, enum column column, int64_t *ns,
                   struct mp_error *error) {
    const char *text = text_of(table, column);
    char *end;
    errno = 0;
    if (table->unit_ns[column] == 1) { /* exactly, also beyond 2^53 */
        *ns = strtoll(text, &end, 10);
        if (*text && !*end && !errno && llabs(*ns) < INT64_MAX / 4)
            return MP_OK;
    }
    const double number = strtod(text, &end) * table->unit_ns[column];
    if (!*text || *end || !(fabs(number) < 2e18))
        return wrong(table, error, column_names[column], text, "a time is right");
    *ns = llround(number);
    return MP_OK;
}

/* ---- spans ---- */

static int find_rank(struct table *table, int64_t number, struct rank **rank,
                     struct mp_error *error) {
    if (number < 0 || number >= RANKS_LIMIT)
        return wrong(table, error, "rank", text_of(table, COLUMN_RANK), "0 to 65535 are right");
    MP_TRY(MP_REACH(table->rank, table->ranks, (uint32_t)number, RANKS_LIMIT, error));
    *rank = &table->rank[number];
    if ((*rank)->process)
        return MP_OK;
    const struct mp_recorded_process about = {
        .rank = (int)number, .host = text_of(table, COLUMN_HOST), .source = table->path};
    MP_TRY(mp_recording_process(table->recording, &about, &(*rank)->process, error));
    MP_TRY(
        mp_recording_fields((*rank)->process, NULL, field_names, FIELDS, &(*rank)->schema, error));
    return mp_recording_fields((*rank)->process, PHASES_DOMAIN, field_names, FIELDS,
                               &(*rank)->phases_schema, error);
}

/* Spans follow each other mostly: the last iteration is looked at first. */
static int extend(struct rank *rank, int64_t iteration, int64_t start_ns, int64_t end_ns,
                  struct mp_error *error) {
    size_t at = rank->extents;
    while (at > 0 && rank->extent[at - 1].iteration != iteration)
        at--;
    if (at > 0) {
        struct extent *extent = &rank->extent[at - 1];
        extent->start_ns = start_ns < extent->start_ns ? start_ns : extent->start_ns;
        extent->end_ns = end_ns > extent->end_ns ? end_ns : extent->end_ns;
        return MP_OK;
    }
    return MP_APPEND(rank->extent, rank->extents, error,
                     (struct extent){iteration, start_ns, end_ns});
}

static int fill_direction(const struct table *table, int64_t *direction, struct mp_error *error) {
    static const char *const known[][2] = {{"forward", "0"}, {"backward", "1"}, {"", "-1"}};
    const char *text = text_of(table, COLUMN_DIRECTION);
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, known[i][0]) || !strcmp(text, known[i][1])) {
            *direction = i < 2 ? i : -1;
            return MP_OK;
        }
    return wrong(table, error, "direction", text, "forward, backward or nothing is right");
}

static int fill_fields(const struct table *table, enum mp_phase phase, int64_t duration_ns,
                       int64_t field[FIELDS], struct mp_error *error) {
    static const enum column columns[] = {[FIELD_ITERATION] = COLUMN_ITERATION,
                                          [FIELD_LAYER] = COLUMN_LAYER,
                                          [FIELD_TOKENS] = COLUMN_TOKENS,
                                          [FIELD_BYTES] = COLUMN_BYTES};
    MP_TRY(fill_direction(table, &field[FIELD_DIRECTION], error));
    for (int f = 0; f <= FIELD_BYTES; f++)
        if (f != FIELD_DIRECTION)
            MP_TRY(whole_of(table, columns[f], &field[f], error));
    if (field[FIELD_LAYER] > INT16_MAX) /* a span's layer is no larger */
        return wrong(table, error, "layer", text_of(table, COLUMN_LAYER), "0 to 32767 are right");
    /* Ranks wait for each other in exchanges, where no column says how long. */
    field[FIELD_WAIT] =
        table->place[COLUMN_WAIT] < 0 && mp_mapping_of_exchange(phase) ? duration_ns : 0;
    return *text_of(table, COLUMN_WAIT) ? time_of(table, COLUMN_WAIT, &field[FIELD_WAIT], error)
                                        : MP_OK;
}

static int write_iterations(const struct rank *rank, struct mp_error *error) {
    for (size_t i = 0; !rank->has_iterations && i < rank->extents; i++) {
        const int64_t field[FIELDS] = {rank->extent[i].iteration, -1, -1, -1, -1, 0};
        const struct mp_recorded_range range = {.start_ns = rank->extent[i].start_ns,
                                                .end_ns = rank->extent[i].end_ns,
                                                .name = mp_phase_name(MP_PHASE_ITERATION),
                                                .domain = PHASES_DOMAIN,
                                                .schema = rank->phases_schema,
                                                .field = field};
        MP_TRY(mp_recording_range(rank->process, &range, error));
    }
    return MP_OK;
}

static int take_span(struct table *table, struct mp_error *error) {
    const char *phase_name = text_of(table, COLUMN_PHASE), *stream = text_of(table, COLUMN_STREAM);
    const enum mp_phase phase = mp_phase_find(phase_name, strlen(phase_name));
    const bool in_flight = !strcmp(stream, "comm");
    int64_t number, thread = 0, field[FIELDS];
    struct mp_recorded_range range = {0};
    struct rank *rank = NULL;
    char name[64];
    if (*phase_name && phase == MP_PHASES)
        return wrong(table, error, "phase", phase_name,
                     "those are right that moeperf show rules lists, or nothing");
    MP_TRY(whole_of(table, COLUMN_RANK, &number, error));
    MP_TRY(time_of(table, COLUMN_START, &range.start_ns, error));
    MP_TRY(time_of(table, COLUMN_END, &range.end_ns, error));
    if (range.end_ns < range.start_ns)
        return wrong(table, error, "end", text_of(table, COLUMN_END), "it is before the start");
    MP_TRY(fill_fields(table, phase, range.end_ns - range.start_ns, field, error));
    MP_TRY(whole_of(table, COLUMN_THREAD, &thread, error));
    MP_TRY(find_rank(table, number, &rank, error));
    snprintf(name, sizeof name, "%s%s", in_flight ? "comm " : "", phase_name);
    range.name = *phase_name ? name : text_of(table, COLUMN_NAME);
    range.domain = *phase_name ? PHASES_DOMAIN : NULL;
    range.schema = *phase_name ? rank->phases_schema : rank->schema;
    range.thread = thread > 0 && thread <= UINT32_MAX ? (uint32_t)thread : 0;
    range.field = field;
    rank->has_iterations = rank->has_iterations || phase == MP_PHASE_ITERATION;
    MP_TRY(mp_recording_range(rank->process, &range, error));
    return field[FIELD_ITERATION] < 0
               ? MP_OK
               : extend(rank, field[FIELD_ITERATION], range.start_ns, range.end_ns, error);
}

/* ---- all of it ---- */

static int cut_all(const struct table *table, const char *where) {
    char sentence[sizeof((struct mp_error *)0)->text + 40];
    snprintf(sentence, sizeof sentence, "%s: what is before that is here", where);
    for (uint32_t r = 0; r < table->ranks; r++)
        if (table->rank[r].process)
            mp_recording_cut(table->rank[r].process, sentence);
    return MP_OK;
}

/* A last line that is not whole is what a cut leaves; any other is somebody's mistake. */
static int read_lines(struct table *table, struct mp_error *error) {
    for (;;) {
        struct mp_error torn = {0};
        int code = next_line(table, &torn);
        if (code && table->ranks > 0 && code != MP_ENOMEM)
            return cut_all(table, torn.text);
        if (!code && table->fields == 0)
            break;
        if (!code && table->fields == 1 && !*table->field[0])
            continue;
        if (!code)
            code = table->fields == table->columns ? take_span(table, &torn) : MP_EFORMAT;
        if (!code)
            continue;
        if (!torn.code)
            wrong(table, &torn, "a line beginning with", table->field[0],
                  "as many fields as in the header are right");
        if (code != MP_EFORMAT || mp_input_line_ended(table->input) || table->ranks == 0)
            return mp_fail(error, code, "%s", torn.text);
        snprintf(torn.text, sizeof torn.text, "%.600s ends in line %lld (which is not whole)",
                 table->path, (long long)mp_input_line_number(table->input));
        return cut_all(table, torn.text);
    }
    return table->ranks > 0 ? MP_OK
                            : mp_fail(error, MP_EFORMAT, "%s: no span is in it", table->path);
}

static void end_table(struct table *table) {
    for (uint32_t r = 0; r < table->ranks; r++)
        free(table->rank[r].extent);
    free(table->rank);
    mp_input_destroy(table->input);
}
MP_END(table, struct table, end_table(it))

static int read_table(const char *path, const struct mp_rules *rules,
                      struct mp_recording *recording, struct mp_error *error) {
    MP_AUTO(table) struct table table = {.path = path, .recording = recording};
    (void)rules;
    MP_TRY(mp_input_open(table.path, &table.input, error));
    MP_TRY(read_header(&table, error));
    MP_TRY(read_lines(&table, error));
    for (uint32_t r = 0; r < table.ranks; r++)
        if (table.rank[r].process)
            MP_TRY(write_iterations(&table.rank[r], error));
    return MP_OK;
}

/* By its header: that of loads has ranks, too, but no times. */
static bool recognises(const char *path, const char *head, size_t size) {
    char line[1024] = ",";
    (void)path;
    const size_t mark = size >= 3 && !memcmp(head, "\xef\xbb\xbf", 3) ? 3 : 0;
    size_t length = 1;
    for (; length < sizeof line - 2 && mark + length <= size &&
           !strchr("\r\n", head[mark + length - 1]);
         length++)
        line[length] = head[mark + length - 1];
    return strstr(line, ",rank") && strstr(line, ",start") && strstr(line, ",end");
}

const struct mp_recording_format mp_recording_spans = {
    "spans", "CSV: rank, name or phase, start, end, and what else is known of a span", recognises,
    read_table};
