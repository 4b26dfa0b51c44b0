/* Slices: see time_slices.h, and mp_launch_in_slices in launch.h. */
#include "harness/suite/time_slices.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/suite/child.h"
#include "harness/suite/processes.h"
#include "harness/suite/seconds.h"
#include "reference/base/arena.h"

int mp_slices_read(const char *path, struct mp_store_slice **slice, int *count,
                   struct mp_error *error) {
    int code = MP_OK;
    char line[64];
    FILE *file = fopen(path, "re");
    *slice = NULL;
    *count = 0;
    if (!file && errno != ENOENT)
        return mp_fail(error, MP_EIO, "can't read %s: %s", path, strerror(errno));
    while (file && !code && fgets(line, sizeof line, file)) {
        struct mp_store_slice next;
        char end;
        if (!strchr(line, '\n'))
            break; /* cut off */
        if (!MP_ROOM(*slice, *count))
            code = mp_fail(error, MP_ENOMEM, "no memory for the slices of %s", path);
        if (!code &&
            (sscanf(line, "%" SCNd64 " %" SCNd64 "%c", &next.start_ns, &next.end_ns, &end) != 3 ||
             end != '\n' || next.end_ns < next.start_ns))
            code = mp_fail(error, MP_EFORMAT,
                           "%s, line %d: should be two times in ns, a start and an end", path,
                           *count + 1);
        if (!code)
            (*slice)[(*count)++] = next;
    }
    if (file && fclose(file) && !code)
        code = mp_fail(error, MP_EIO, "can't read %s: %s", path, strerror(errno));
    return code;
}

/* One of the two jobs. */
struct side {
    struct mp_child child;
    struct mp_processes ranks;
    FILE *slices;
    bool has_ended, is_stopped, has_slice;
    double since;  /* s, when it began to run or to be stopped */
    double ran;    /* s in slices after the first, which has the start in it */
    int64_t begun; /* iterations done in the first */
};

static bool begin(const struct mp_launch *job, struct side *side, struct mp_launch_result *result) {
    struct mp_error error = {0};
    *side = (struct side){.has_ended = true, .since = mp_seconds_now()};
    side->slices = job->slices ? fopen(job->slices, "we") : NULL;
    if (job->slices && !side->slices)
        mp_fail(&error, MP_EIO, "can't write %s: %s", job->slices, strerror(errno));
    else
        mp_child_start(job, &side->child, &error);
    side->has_ended = error.code != MP_OK;
    if (side->has_ended) {
        *result = (struct mp_launch_result){.end = MP_LAUNCH_FAILED};
        snprintf(result->reason, sizeof result->reason, "%s", error.text);
    }
    return !side->has_ended;
}

static void attend(struct side *side) {
    double stopped = side->child.stopped;
    if (side->has_ended)
        return;
    if (side->is_stopped) /* being stopped does not count for a time-out, from the beginning */
        side->child.stopped += mp_seconds_now() - side->since;
    side->has_ended = mp_child_attend(&side->child);
    if (side->is_stopped)
        side->child.stopped = stopped;
}

static void attend_both(struct side side[2]) {
    attend(&side[0]);
    attend(&side[1]);
}

/* Waits for output of either side until `until`, at most a tick. */
static void wait_for(const struct side side[2], double until) {
    struct pollfd ready[2 * MP_CHILD_DESCRIPTORS];
    double left = 1e3 * (until - mp_seconds_now());
    bool is_silent = false;
    for (int i = 0; i < 2; i++) {
        if (side[i].has_ended) {
            ready[2 * i] = ready[2 * i + 1] = (struct pollfd){.fd = -1};
            continue;
        }
        mp_child_poll(&side[i].child, ready + 2 * i);
        is_silent = is_silent || (ready[2 * i].fd < 0 && ready[2 * i + 1].fd < 0);
    }
    left = fmin(left, is_silent ? MP_CHILD_TICK_MS / 10.0 : MP_CHILD_TICK_MS);
    poll(ready, 2 * MP_CHILD_DESCRIPTORS, left > 0 ? (int)ceil(left) : 0);
}

static bool is_to_end(const struct side *side) {
    return side->has_ended || side->child.ending != MP_LAUNCH_COMPLETE;
}

/* What it ran from when it was started or continued until now was a slice. */
static void note_slice(const struct side *side, double now) {
    if (!side->slices)
        return;
    fprintf(side->slices, "%" PRId64 " %" PRId64 "\n", (int64_t)(1e9 * side->since),
            (int64_t)(1e9 * now));
    fflush(side->slices);
}

static void stop(struct side *side) {
    double now = mp_seconds_now();
    mp_processes_send(&side->ranks, SIGSTOP);
    note_slice(side, now);
    if (side->has_slice)
        side->ran += now - side->since;
    else
        side->begun = side->child.progress.iteration;
    side->has_slice = true;
    side->is_stopped = true;
    side->since = now;
}

static void go_on(struct side *side) {
    if (!side->is_stopped)
        return;
    mp_processes_send(&side->ranks, SIGCONT);
    side->is_stopped = false;
    double now = mp_seconds_now();
    side->child.stopped += now - side->since;
    side->since = now;
}

/* Runs side[on] until its first iteration is done, and stops it then.  Whether it could be. */
static bool run_first(struct side side[2], int on, const struct mp_launch *job) {
    while (!is_to_end(&side[on]) && side[on].child.progress.iteration == 0) {
        wait_for(side, INFINITY);
        attend_both(side);
    }
    if (is_to_end(&side[on]))
        return false;
    mp_processes_hold(side[on].child.pid, !job->command->has_launcher, &side[on].ranks);
    if (side[on].ranks.leaves < job->ranks)
        return false;
    stop(&side[on]);
    return true;
}

/* Seconds of its own time that an iteration takes, at least; what the trainer says of iterations
 * has the times in it when it was stopped. */
static double pace(const struct side *side) {
    int64_t iterations = side->child.progress.iteration - side->begun;
    return side->ran / (double)(iterations > 1 ? iterations : 1);
}

/* Seconds of the next slice of side[on].  Both do as many iterations in theirs, so that a slower
 * one is not alone for the rest of its time, once the other has ended. */
static double length_of(const struct side side[2], int on, double slice) {
    double own = pace(&side[on]), other = pace(&side[!on]), faster = fmin(own, other);
    if (faster > 0)
        return fmax(slice, MP_SLICE_ITERATIONS * faster) * own / faster;
    return fmax(slice, MP_SLICE_ITERATIONS * fmax(own, other));
}

/* Lets side[on] run for a slice.  Whether neither of the two has ended or is to. */
static bool run_for(struct side side[2], int on, double length) {
    double until = side[on].since + length;
    while (mp_seconds_now() < until) {
        wait_for(side, until);
        attend_both(side);
        if (is_to_end(&side[0]) || is_to_end(&side[1]))
            return false;
    }
    return true;
}

/* One slice of side[on]; false once the two are no longer to take turns. */
static bool run_slice(struct side side[2], int on, double slice) {
    go_on(&side[on]);
    bool goes_on = run_for(side, on, length_of(side, on, slice));
    if (goes_on)
        stop(&side[on]);
    return goes_on;
}

/* side[on] has ended in its slice: that was one, too, and the other has its own before it is
 * alone. */
static void run_last_slice(struct side side[2], int on, double slice) {
    struct side *other = &side[!on];
    if (!side[on].has_ended || is_to_end(other))
        return;
    note_slice(&side[on], mp_seconds_now());
    go_on(other);
    double until = other->since + length_of(side, !on, slice);
    while (!is_to_end(other) && mp_seconds_now() < until) {
        wait_for(side, until);
        attend(other);
    }
    note_slice(other, mp_seconds_now());
    other->since = mp_seconds_now();
}

/* Lets both run to their ends. */
static void run_rest(struct side side[2]) {
    go_on(&side[0]);
    go_on(&side[1]);
    while (!side[0].has_ended || !side[1].has_ended) {
        wait_for(side, INFINITY);
        attend_both(side);
    }
}

static void end(struct side *side) {
    mp_processes_release(&side->ranks);
    if (side->slices)
        fclose(side->slices);
    side->slices = NULL;
}

bool mp_launch_in_slices(const struct mp_launch job[2], double slice,
                         struct mp_launch_result result[2]) {
    struct side side[2] = {{.has_ended = true}, {.has_ended = true}};
    bool is_sliced = false, has_begun[2] = {begin(&job[0], &side[0], &result[0]), false};
    if (has_begun[0] && !(slice > 0 && run_first(side, 0, &job[0])))
        run_rest(side); /* the other one comes after it */
    int signals_before = side[0].child.signals_before;
    if (has_begun[0] && job[0].signals && (int)*job[0].signals > signals_before)
        result[1] = (struct mp_launch_result){.end = MP_LAUNCH_INTERRUPTED,
                                              .reason = "stopped by the user before it began"};
    else
        has_begun[1] = begin(&job[1], &side[1], &result[1]);
    if (has_begun[0] && has_begun[1])
        side[1].child.signals_before = signals_before; /* one that has come meanwhile ends both */
    if (has_begun[1] && !side[0].has_ended)
        is_sliced = run_first(side, 1, &job[1]);
    int on = 0;
    while (is_sliced && run_slice(side, on, slice))
        on = !on;
    if (is_sliced)
        run_last_slice(side, on, slice);
    run_rest(side);
    for (int i = 0; i < 2; i++) {
        end(&side[i]);
        if (has_begun[i])
            mp_child_finish(&side[i].child, &result[i]);
    }
    return is_sliced;
}
