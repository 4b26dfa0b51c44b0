#include "harness/predict/timeline.h"

#include <math.h>
#include <string.h>

static const unsigned ALL_LEVELS = ~0U;

static inline double larger(double a, double b) {
    return a > b ? a : b;
}

static inline double smaller(double a, double b) {
    return a < b ? a : b;
}

int mp_timeline_create(struct mp_network *network, int ranks, double overlap, int background,
                       const struct mp_predict_sink *sink, struct mp_timeline *timeline,
                       struct mp_error *error) {
    *timeline = (struct mp_timeline){
        .network = network, .ranks = ranks, .overlap = overlap, .capacity = background};
    struct mp_arena *memory = &timeline->memory;
    if (sink)
        timeline->sink = *sink;
    MP_TAKE_EACH(memory, ranks, timeline->clock, timeline->waited, timeline->moved, timeline->port,
                 timeline->ready, timeline->mark, timeline->mark_waited, timeline->owed);
    MP_TAKE_EACH(memory, ranks, timeline->next, timeline->exchanged, timeline->first_taken,
                 timeline->taken_count);
    MP_TAKE(memory, timeline->taken, (size_t)ranks * MP_MOST_TAKEN);
    MP_TAKE(memory, timeline->background, background);
    for (int i = 0; timeline->background && i < background; i++) {
        struct mp_background *one = &timeline->background[i];
        MP_TAKE_EACH(memory, ranks, one->remaining, one->others, one->level, one->finish,
                     one->received);
    }
    int code = mp_arena_check(memory, error);
    if (code)
        mp_timeline_destroy(timeline);
    return code;
}

void mp_timeline_destroy(struct mp_timeline *timeline) {
    mp_arena_release(&timeline->memory);
    *timeline = (struct mp_timeline){0};
}

void mp_timeline_begin(struct mp_timeline *timeline, int64_t iteration, int64_t number) {
    size_t size = (size_t)timeline->ranks * sizeof(double);
    timeline->iteration = iteration;
    timeline->number = number;
    timeline->issued = 0;
    timeline->sums = (struct mp_time_sums){0};
    memset(timeline->clock, 0, size);
    memset(timeline->waited, 0, size);
    memset(timeline->exchanged, 0, size);
    memset(timeline->moved, 0, size);
    memset(timeline->taken_count, 0, (size_t)timeline->ranks * sizeof *timeline->taken_count);
    memset(timeline->port, 0, size);
    memset(timeline->owed, 0, size);
    memset(timeline->next, 0, (size_t)timeline->ranks * sizeof *timeline->next);
}

/* ---- spans ---- */

static int64_t nanoseconds(double seconds) {
    return (int64_t)(seconds * 1e9 + 0.5);
}

static void emit(const struct mp_timeline *timeline, int rank, enum mp_predict_stream stream,
                 struct mp_scheduled_phase activity, double start, double end,
                 struct mp_span span) {
    span.start_ns = timeline->origin_ns + nanoseconds(start);
    span.end_ns = timeline->origin_ns + nanoseconds(end);
    span.cpu_ns = -1;
    span.iteration = (int32_t)timeline->number;
    span.layer = (int16_t)activity.layer;
    span.phase = (uint8_t)activity.phase;
    span.direction = (uint8_t)activity.direction & 3;
    timeline->sink.span(timeline->sink.context, rank, stream, &span);
}

static void emit_comm(const struct mp_timeline *timeline, int rank,
                      struct mp_scheduled_phase activity, double start, double end, double bytes) {
    if (timeline->sink.span && end > start)
        emit(timeline, rank, MP_STREAM_COMM, activity, start, end,
             (struct mp_span){.tokens = -1, .flops = -1, .bytes = (int64_t)(bytes + 0.5)});
}

void mp_timeline_mark(struct mp_timeline *timeline) {
    size_t size = (size_t)timeline->ranks * sizeof(double);
    memcpy(timeline->mark, timeline->clock, size);
    memcpy(timeline->mark_waited, timeline->waited, size);
}

/* The delay that the job asks for. */
static void inject(struct mp_timeline *timeline, struct mp_scheduled_phase activity) {
    const struct mp_inject *inject = &timeline->inject;
    if (!(inject->seconds > 0) || inject->phase != (int)activity.phase ||
        timeline->iteration % inject->every != 0 ||
        (inject->layer != MP_ALL && inject->layer != activity.layer))
        return;
    timeline->clock[inject->rank] += inject->seconds;
    if (mp_inject_delays_transfers(inject->phase))
        timeline->waited[inject->rank] += inject->seconds;
    timeline->sums.serial += inject->seconds;
}

double mp_timeline_spent(struct mp_timeline *timeline, struct mp_scheduled_phase activity,
                         const int64_t tokens[], const double bytes[], double flops) {
    double spent = 0, waited = 0;
    inject(timeline, activity);
    for (int r = 0; r < timeline->ranks; r++) {
        spent += timeline->clock[r] - timeline->mark[r];
        waited += timeline->waited[r] - timeline->mark_waited[r];
    }
    timeline->sums.spent[activity.phase] += spent;
    timeline->sums.waited[activity.phase] += waited;
    for (int r = 0; timeline->sink.span && r < timeline->ranks; r++) {
        double wait = timeline->waited[r] - timeline->mark_waited[r];
        struct mp_span span = {.wait_ns = nanoseconds(wait),
                               .tokens = tokens ? tokens[r] : -1,
                               .bytes = bytes ? (int64_t)(bytes[r] + 0.5) : -1,
                               .flops = -1};
        if (tokens && flops >= 0)
            span.flops = (int64_t)(flops * (double)tokens[r] + 0.5);
        emit(timeline, r, MP_STREAM_COMPUTE, activity, timeline->mark[r], timeline->clock[r], span);
    }
    return spent;
}

/* ---- background ---- */

static struct mp_background *operation(const struct mp_timeline *timeline, int64_t number) {
    return &timeline->background[number % timeline->capacity];
}

static void finish(struct mp_timeline *timeline, int rank, struct mp_background *background,
                   double start, double end) {
    emit_comm(timeline, rank, background->activity, start, end, background->received[rank]);
    background->remaining[rank] = 0;
    background->finish[rank] = end;
    timeline->moved[rank] = end;
    timeline->next[rank]++;
}

/* The operation, up to number `last`, that is next on a rank's stream: it has a part in it; NULL:
 * none. */
static struct mp_background *next_of(struct mp_timeline *timeline, int rank, int64_t last) {
    for (; timeline->next[rank] <= last; timeline->next[rank]++) {
        struct mp_background *background = operation(timeline, timeline->next[rank]);
        if (background->remaining[rank] > 0)
            return background;
    }
    return NULL;
}

/* The first exchange that the background has not passed, by then; NULL: none. */
static const struct mp_taken *taken_at(struct mp_timeline *timeline, int rank, double time) {
    int *first = &timeline->first_taken[rank], *count = &timeline->taken_count[rank];
    const struct mp_taken *ring = timeline->taken + rank * MP_MOST_TAKEN;
    for (; *count > 0 && ring[*first].end <= time; --*count)
        *first = (*first + 1) % MP_MOST_TAKEN;
    return *count > 0 ? &ring[*first] : NULL;
}

/* How long an operation can move, from some time on, before things change, and when they do. */
struct piece {
    double able, end;
    bool beside; /* an exchange */
};

static struct piece piece_at(struct mp_timeline *timeline, int rank,
                             const struct mp_background *background, double time) {
    const struct mp_taken *taken = taken_at(timeline, rank, time);
    double needs = background->remaining[rank];
    struct piece piece = {.end = INFINITY};
    if (taken)
        piece.end = taken->start > time ? taken->start : taken->end;
    piece.beside = taken && taken->start <= time;
    if (piece.beside) {
        bool has_gates = taken->levels >> background->level[rank] & 1;
        needs = has_gates ? 0 : larger(0, needs - background->others[rank]);
    }
    piece.able = smaller(needs, piece.end - time);
    return piece;
}

/* Moves it for at most so long. */
static void move(struct mp_timeline *timeline, int rank, struct mp_background *background,
                 const struct piece *piece, double start, double seconds) {
    double *remaining = &background->remaining[rank], *others = &background->others[rank];
    if (piece->able >= *remaining && seconds >= *remaining) {
        finish(timeline, rank, background, start, start + *remaining);
        return;
    }
    double moved = smaller(piece->able, seconds);
    emit_comm(timeline, rank, background->activity, start, start + moved, 0);
    *remaining -= moved;
    *others = piece->beside ? *others : larger(0, *others - moved);
    timeline->moved[rank] = smaller(piece->end, start + seconds);
}

/* Background operations up to number `last` move on a rank until `until`. */
static void move_on(struct mp_timeline *timeline, int rank, int64_t last, double until) {
    struct mp_background *background;
    while ((background = next_of(timeline, rank, last))) {
        double start = larger(timeline->moved[rank], background->begin);
        if (start >= until)
            return;
        const struct piece piece = piece_at(timeline, rank, background, start);
        move(timeline, rank, background, &piece, start, until - start);
    }
}

/* Ranks wait until then. */
static void go_on_at(struct mp_timeline *timeline, const double time[]) {
    for (int r = 0; r < timeline->ranks; r++) {
        timeline->waited[r] += larger(0, time[r] - timeline->clock[r]);
        timeline->clock[r] = larger(time[r], timeline->clock[r]);
    }
}

static bool is_expert_transfer(enum mp_phase phase) {
    return phase == MP_PHASE_FETCH || phase == MP_PHASE_REDUCE;
}

int64_t mp_timeline_start(struct mp_timeline *timeline, struct mp_scheduled_phase activity,
                          const struct mp_carriage *carriage) {
    struct mp_background *background = operation(timeline, timeline->issued);
    double begin = 0, longest = 0, sum = 0;
    for (int r = 0; r < timeline->ranks; r++) {
        /* What had this place. */
        move_on(timeline, r, timeline->issued - timeline->capacity, INFINITY);
        double seconds = carriage->seconds[r];
        background->remaining[r] = seconds;
        background->others[r] = smaller(carriage->others[r], seconds);
        background->level[r] = carriage->level ? carriage->level[r] : 0;
        background->finish[r] = 0;
        background->received[r] = carriage->received ? carriage->received[r] : 0;
        timeline->port[r] += smaller(carriage->alone[r], seconds);
        sum += seconds;
        longest = larger(longest, seconds);
        if (seconds > 0)
            begin = larger(begin, timeline->clock[r]);
    }
    background->activity = activity;
    background->begin = begin;
    timeline->sums.serial += longest;
    if (is_expert_transfer(activity.phase))
        timeline->sums.transfers += sum;
    return timeline->issued++;
}

void mp_timeline_wait(struct mp_timeline *timeline, int64_t number) {
    const struct mp_background *background = operation(timeline, number);
    for (int r = 0; r < timeline->ranks; r++) {
        if (background->remaining[r] > 0)
            move_on(timeline, r, number, INFINITY);
        timeline->ready[r] = background->finish[r];
    }
    go_on_at(timeline, timeline->ready);
}

/* ---- own work ---- */

/* When `work` seconds of own work are done that begin at the rank's clock, with a background
 * operation taking its share of the processor while it moves. */
static double shared_work(struct mp_timeline *timeline, int rank, double work) {
    double time = timeline->clock[rank], overlap = timeline->overlap;
    const int64_t last = timeline->issued - 1;
    struct mp_background *background;
    move_on(timeline, rank, last, time);
    while (work > 0 && (background = next_of(timeline, rank, last))) {
        double start = larger(larger(timeline->moved[rank], background->begin), time);
        if (start >= time + work)
            break;
        work -= start - time;
        time = start;
        const struct piece piece = piece_at(timeline, rank, background, time);
        if (work < piece.able * overlap) {
            move(timeline, rank, background, &piece, time, work / overlap);
            return time + work / overlap;
        }
        work -= piece.able * overlap;
        time += piece.able;
        move(timeline, rank, background, &piece, start, INFINITY);
    }
    return time + work;
}

/* Whether anything of the background can be on its way. */
static bool alone_at_work(const struct mp_timeline *timeline) {
    if (!(timeline->overlap < 1))
        return true;
    for (int r = 0; r < timeline->ranks; r++)
        if (timeline->next[r] < timeline->issued)
            return false;
    return true;
}

void mp_timeline_work(struct mp_timeline *timeline, double seconds) {
    double longest = seconds;
    if (alone_at_work(timeline)) {
        for (int r = 0; r < timeline->ranks; r++)
            timeline->clock[r] += seconds;
    } else {
        for (int r = 0; r < timeline->ranks; r++) {
            double end = shared_work(timeline, r, seconds);
            longest = larger(longest, end - timeline->clock[r]);
            timeline->clock[r] = end;
        }
    }
    timeline->sums.serial += longest;
}

void mp_timeline_work_each(struct mp_timeline *timeline, const double seconds[]) {
    double longest = 0;
    bool alone = alone_at_work(timeline);
    for (int r = 0; r < timeline->ranks; r++) {
        double end = alone ? timeline->clock[r] + seconds[r] : shared_work(timeline, r, seconds[r]);
        longest = larger(longest, end - timeline->clock[r]);
        timeline->clock[r] = end;
    }
    timeline->sums.serial += longest;
}

/* ---- exchanges ---- */

/* When ranks come to an exchange, and it can start there: earlier ones are done. */
static void take_turn(struct mp_timeline *timeline, const double start[], double ready[]) {
    for (int r = 0; r < timeline->ranks; r++) {
        move_on(timeline, r, timeline->issued - 1, start[r]);
        ready[r] = larger(start[r], timeline->exchanged[r]);
    }
}

/* An exchange has a rank's gates until it ends.  With too many of them on their way, the background
 * has passed the earliest. */
static void take_gates(struct mp_timeline *timeline, int rank, double start, double end,
                       unsigned levels) {
    struct mp_taken *ring = timeline->taken + rank * MP_MOST_TAKEN;
    int first = timeline->first_taken[rank];
    if (timeline->taken_count[rank] == MP_MOST_TAKEN) {
        double passed = ring[first].end;
        move_on(timeline, rank, timeline->issued - 1, passed);
        timeline->moved[rank] = larger(timeline->moved[rank], passed);
        taken_at(timeline, rank, passed);
        first = timeline->first_taken[rank];
    }
    ring[(first + timeline->taken_count[rank]++) % MP_MOST_TAKEN] =
        (struct mp_taken){start, end, levels};
    timeline->exchanged[rank] = end;
}

/* What an exchange means for gates.  How much longer each rank's part takes because
 * others come late is added to what it is owed: as far as its own gates are not busy, and until the
 * last one has come. */
static void count_exchange(struct mp_timeline *timeline, const double *restrict ready,
                           const double *restrict done, const double *restrict alone) {
    double *restrict owed = timeline->owed, *restrict port = timeline->port;
    double latest = 0, longest = 0;
    for (int r = 0; r < timeline->ranks; r++) {
        latest = larger(latest, ready[r]);
        longest = larger(longest, done[r] - ready[r]);
    }
    timeline->sums.serial += longest;
    for (int r = 0; r < timeline->ranks; r++) {
        double taken = done[r] - ready[r];
        owed[r] += larger(0, smaller(taken - alone[r], latest - ready[r]));
        port[r] += smaller(alone[r], taken);
    }
}

void mp_timeline_wait_until(struct mp_timeline *timeline, const double time[]) {
    double late = 0;
    for (int r = 0; r < timeline->ranks; r++) {
        double waiting = larger(0, time[r] - timeline->clock[r]);
        double owed = smaller(waiting, timeline->owed[r]);
        timeline->owed[r] -= owed;
        late += owed;
    }
    timeline->sums.late += late;
    go_on_at(timeline, time);
}

void mp_timeline_forget_late(struct mp_timeline *timeline) {
    memset(timeline->owed, 0, (size_t)timeline->ranks * sizeof(double));
}

void mp_timeline_exchange_start(struct mp_timeline *timeline, struct mp_scheduled_phase activity,
                                struct mp_traffic *const traffic[], int rounds, bool back,
                                const double alone[], const double received[], const double start[],
                                double done[]) {
    double *ready = timeline->ready;
    take_turn(timeline, start, ready);
    for (int round = 0; round < rounds; round++)
        mp_network_exchange(timeline->network, traffic[round], back, round ? done : ready, done);
    count_exchange(timeline, ready, done, alone);
    for (int r = 0; r < timeline->ranks; r++) {
        if (timeline->sink.span)
            emit_comm(timeline, r, activity, ready[r], done[r], received ? received[r] : 0);
        if (!(done[r] > ready[r]))
            continue;
        unsigned levels = 0;
        for (int round = 0; round < rounds; round++)
            levels |= mp_traffic_levels(traffic[round], r);
        take_gates(timeline, r, larger(ready[r], done[r] - alone[r]), done[r], levels);
    }
}

void mp_timeline_together(struct mp_timeline *timeline, struct mp_scheduled_phase activity,
                          double seconds) {
    double latest = 0, late = 0, *start = timeline->ready;
    for (int r = 0; r < timeline->ranks; r++)
        latest = larger(latest, larger(timeline->clock[r], timeline->exchanged[r]));
    for (int r = 0; r < timeline->ranks; r++) {
        late += latest - timeline->clock[r];
        start[r] = latest;
    }
    take_turn(timeline, start, start);
    for (int r = 0; r < timeline->ranks; r++) {
        emit_comm(timeline, r, activity, latest, latest + seconds, 0);
        take_gates(timeline, r, latest, latest + seconds, ALL_LEVELS);
        start[r] = latest + seconds;
        timeline->port[r] += seconds;
    }
    timeline->sums.late += late;
    timeline->sums.serial += seconds;
    go_on_at(timeline, start);
}

double mp_timeline_end(struct mp_timeline *timeline, int64_t tokens) {
    double end = 0;
    for (int r = 0; r < timeline->ranks; r++)
        end = larger(end, timeline->clock[r]);
    for (int r = 0; timeline->sink.span && r < timeline->ranks; r++)
        emit(timeline, r, MP_STREAM_COMPUTE,
             (struct mp_scheduled_phase){MP_PHASE_ITERATION, MP_NO_DIRECTION, -1, MP_ALL_STEPS,
                                         MP_ALL_PRODUCTS},
             0, end,
             (struct mp_span){.wait_ns = nanoseconds(timeline->waited[r]),
                              .tokens = tokens,
                              .bytes = -1,
                              .flops = -1});
    timeline->origin_ns += nanoseconds(end);
    return end;
}
