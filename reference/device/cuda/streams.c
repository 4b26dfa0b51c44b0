/* Streams, events, and the time of events on the host's clock. */
#include "reference/device/cuda/cuda.h"

#include <math.h>

#include "profiler/record/record.h"

/* ---- the clock ----
 *
 * CUDA says how far apart two events are, in float milliseconds: exact to a tenth of a microsecond
 * for seconds, not for hours, and by the GPU's oscillator, which may gain or lose tens of
 * microseconds a second on the host's.  So every second or so there is a new epoch: an event whose
 * time on the host's clock is read from both sides of it.
 *
 * The line through the epochs has no steps: a new epoch starts where the line of the last one ends,
 * goes on at the rate that the two clocks have shown, and what the line is off by is worked in
 * over the next second.  Rate and correction are bounded such that the line rises, so that times
 * order as the events did, and an event's time stays what it is however late it is asked for, as
 * long as its epoch is kept. */

enum {
    RENEW_NS = 1000000000,      /* age of an epoch at which a new one is made */
    CORRECTION_NS = 1000000000, /* over which its correction is spread */
    TRIES = 8,                  /* readings of which the one with the least doubt counts */
    GOOD_DOUBT_NS = 5000,       /* no better one is waited for */
    MOST_DOUBT_NS = 100000      /* a reading with more says nothing: other work was in the way */
};
#define MOST_DRIFT 1e-3

/* A reading of both clocks: `gpu_ns` after the epoch's event it was `host_ns`, give or take
 * `doubt_ns`. */
struct reading {
    double gpu_ns, host_ns, doubt_ns;
};

static double limited(double value, double most) {
    return fmin(fmax(value, -most), most);
}

/* What the epoch's line says for an event `gpu_ns` after its own. */
static double line_at(const struct mp_cuda_epoch *epoch, double gpu_ns) {
    double part = fmin(fmax(gpu_ns / CORRECTION_NS, 0), 1);
    return epoch->rate * gpu_ns + part * epoch->correction;
}

static cudaError_t elapsed(cudaEvent_t from, cudaEvent_t to, double *ns) {
    float milliseconds = 0;
    cudaError_t status = cudaEventElapsedTime(&milliseconds, from, to);
    *ns = 1e6 * (double)milliseconds;
    return status;
}

/* Records `event` on the stream that is always idle, a few times, and keeps the best reading;
 * *last_ns is when it was recorded last. */
static cudaError_t read_clocks(struct mp_cuda *cuda, cudaEvent_t since, cudaEvent_t event,
                               struct reading *best, double *last_ns) {
    *best = (struct reading){.doubt_ns = INFINITY};
    *last_ns = 0;
    for (int i = 0; i < TRIES && best->doubt_ns > GOOD_DOUBT_NS; i++) {
        int64_t before = mp_clock_ns();
        cudaError_t status = cudaEventRecord(event, cuda->clock_stream);
        if (status == cudaSuccess)
            status = cudaEventSynchronize(event);
        int64_t after = mp_clock_ns();
        if (status == cudaSuccess)
            status = elapsed(since, event, last_ns);
        if (status != cudaSuccess)
            return status;
        double doubt = 0.5 * (double)(after - before);
        if (doubt < best->doubt_ns)
            *best = (struct reading){*last_ns, (double)before + doubt, doubt};
    }
    return cudaSuccess;
}

static cudaError_t start_clock(struct mp_cuda *cuda) {
    struct mp_cuda_epoch *epoch = &cuda->epoch[0], *other = &cuda->epoch[1];
    struct reading best;
    double last_ns;
    cudaError_t status = cudaEventRecord(epoch->event, cuda->clock_stream);
    if (status == cudaSuccess)
        status = cudaEventSynchronize(epoch->event);
    if (status == cudaSuccess)
        status = read_clocks(cuda, epoch->event, other->event, &best, &last_ns);
    if (status != cudaSuccess)
        return status;
    epoch->ns = epoch->host_ns = llround(best.host_ns - best.gpu_ns);
    epoch->rate = 1;
    return cudaSuccess;
}

static void renew_epoch(struct mp_cuda *cuda) {
    const struct mp_cuda_epoch *epoch = &cuda->epoch[cuda->epoch_now];
    int next_at = (cuda->epoch_now + 1) % MP_CUDA_EPOCHS;
    struct mp_cuda_epoch *next = &cuda->epoch[next_at];
    struct reading best;
    double last_ns;
    next->rate = 0; /* its event is about to be another one */
    cudaError_t status = read_clocks(cuda, epoch->event, next->event, &best, &last_ns);
    if (!mp_cuda_note(cuda, "reading the GPU's clock", status))
        return;
    if (best.doubt_ns <= MOST_DOUBT_NS) {
        double measured = (best.host_ns - (double)epoch->host_ns) / best.gpu_ns;
        next->rate = 1 + limited((epoch->rate + measured) / 2 - 1, MOST_DRIFT);
        next->host_ns = llround(best.host_ns + next->rate * (last_ns - best.gpu_ns));
    } else {
        next->rate = epoch->rate;
        next->host_ns = epoch->host_ns + llround(epoch->rate * last_ns);
    }
    next->ns = epoch->ns + llround(line_at(epoch, last_ns));
    next->correction = limited((double)(next->host_ns - next->ns), MOST_DRIFT * CORRECTION_NS);
    cuda->epoch_now = next_at;
}

void mp_cuda_keep_time(struct mp_cuda *cuda) {
    if (mp_clock_ns() - cuda->epoch[cuda->epoch_now].host_ns > RENEW_NS)
        renew_epoch(cuda);
}

/* The epoch that the event came in and how long after its beginning: the first one kept if it came
 * before that. */
static cudaError_t find_epoch(const struct mp_cuda *cuda, cudaEvent_t event,
                              const struct mp_cuda_epoch **epoch, double *gpu_ns) {
    cudaError_t status = cudaSuccess;
    *gpu_ns = -1;
    for (int back = 0; back < MP_CUDA_EPOCHS && status == cudaSuccess && *gpu_ns < 0; back++) {
        int at = (cuda->epoch_now - back + MP_CUDA_EPOCHS) % MP_CUDA_EPOCHS;
        if (cuda->epoch[at].rate <= 0)
            break;
        *epoch = &cuda->epoch[at];
        status = elapsed(cuda->epoch[at].event, event, gpu_ns);
    }
    return status;
}

static int64_t event_time(struct mp_device *device, mp_event event) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    const struct mp_cuda_epoch *epoch = &cuda->epoch[cuda->epoch_now];
    double gpu_ns;
    cudaError_t status = find_epoch(cuda, (cudaEvent_t)event, &epoch, &gpu_ns);
    /* Not passed yet, or never recorded: not failures. */
    if (status == cudaErrorNotReady || status == cudaErrorInvalidResourceHandle) {
        cudaGetLastError();
        return -1;
    }
    if (!mp_cuda_note(cuda, "reading the time of an event", status))
        return -1;
    int64_t time = epoch->ns + llround(line_at(epoch, gpu_ns));
    mp_cuda_keep_time(cuda); /* for the next one; this one came before it anyway */
    return time;
}

/* ---- streams ---- */

static int stream_create(struct mp_device *device, int urgency, mp_stream *stream,
                         struct mp_error *error) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    cudaStream_t created = NULL;
    int least = 0, greatest = 0; /* CUDA's numbers fall: 0 .. -5, say */
    cudaError_t status = cudaSetDevice(cuda->ordinal);
    if (status == cudaSuccess)
        status = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (status == cudaSuccess)
        status =
            cudaStreamCreateWithPriority(&created, cudaStreamNonBlocking,
                                         least - urgency > greatest ? least - urgency : greatest);
    if (status != cudaSuccess)
        return mp_cuda_fail(cuda, "creating a stream", status, error);
    *stream = (mp_stream)created;
    return MP_OK;
}

static void stream_destroy(struct mp_device *device, mp_stream stream) {
    if (stream)
        mp_cuda_note(mp_cuda_of(device), "destroying a stream",
                     cudaStreamDestroy((cudaStream_t)stream));
}

static void stream_synchronize(struct mp_device *device, mp_stream stream) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    mp_cuda_note(cuda, "waiting for a stream", cudaStreamSynchronize(mp_cuda_stream(cuda, stream)));
    mp_cuda_keep_time(cuda);
}

static void *native_stream(struct mp_device *device, mp_stream stream) {
    return mp_cuda_stream(mp_cuda_of(device), stream);
}

/* ---- events ---- */

static int event_create(struct mp_device *device, mp_event *event, struct mp_error *error) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    cudaEvent_t created = NULL;
    cudaError_t status = cudaSetDevice(cuda->ordinal);
    if (status == cudaSuccess)
        status = cudaEventCreate(&created);
    if (status != cudaSuccess)
        return mp_cuda_fail(cuda, "creating an event", status, error);
    *event = (mp_event)created;
    return MP_OK;
}

static void event_destroy(struct mp_device *device, mp_event event) {
    if (event)
        mp_cuda_note(mp_cuda_of(device), "destroying an event",
                     cudaEventDestroy((cudaEvent_t)event));
}

static void event_record(struct mp_device *device, mp_event event, mp_stream stream) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    mp_cuda_note(cuda, "recording an event",
                 cudaEventRecord((cudaEvent_t)event, mp_cuda_stream(cuda, stream)));
}

static void stream_wait(struct mp_device *device, mp_stream stream, mp_event event) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    mp_cuda_note(cuda, "making a stream wait",
                 cudaStreamWaitEvent(mp_cuda_stream(cuda, stream), (cudaEvent_t)event, 0));
}

static void event_synchronize(struct mp_device *device, mp_event event) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    mp_cuda_note(cuda, "waiting for an event", cudaEventSynchronize((cudaEvent_t)event));
    mp_cuda_keep_time(cuda);
}

/* After a failure every event is done: nobody waits for what never comes. */
static bool event_done(struct mp_device *device, mp_event event) {
    cudaError_t status = cudaEventQuery((cudaEvent_t)event);
    if (status == cudaErrorNotReady) {
        cudaGetLastError();
        return false;
    }
    mp_cuda_note(mp_cuda_of(device), "asking for an event", status);
    return true;
}

/* ---- creating them ---- */

int mp_cuda_create_streams(struct mp_cuda *cuda, struct mp_error *error) {
    unsigned flags = cudaStreamNonBlocking; /* nothing waits for the default stream */
    cudaError_t status = cudaStreamCreateWithFlags(&cuda->stream, flags);
    if (status == cudaSuccess)
        status = cudaStreamCreateWithFlags(&cuda->clock_stream, flags);
    if (status == cudaSuccess)
        status = cudaEventCreateWithFlags(&cuda->fork, cudaEventDisableTiming);
    for (int i = 0; i < MP_CUDA_SIDE_STREAMS && status == cudaSuccess; i++) {
        status = cudaStreamCreateWithFlags(&cuda->side[i], flags);
        if (status == cudaSuccess)
            status = cudaEventCreateWithFlags(&cuda->join[i], cudaEventDisableTiming);
    }
    for (int i = 0; i < MP_CUDA_EPOCHS && status == cudaSuccess; i++)
        status = cudaEventCreate(&cuda->epoch[i].event);
    if (status == cudaSuccess)
        status = start_clock(cuda);
    return status == cudaSuccess ? MP_OK
                                 : mp_cuda_fail(cuda, "creating streams and events", status, error);
}

static void destroy_stream(cudaStream_t stream) {
    if (!stream)
        return;
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
}

static void destroy_event(cudaEvent_t event) {
    if (event)
        cudaEventDestroy(event);
}

void mp_cuda_destroy_streams(struct mp_cuda *cuda) {
    destroy_stream(cuda->stream);
    destroy_stream(cuda->clock_stream);
    for (int i = 0; i < MP_CUDA_SIDE_STREAMS; i++) {
        destroy_stream(cuda->side[i]);
        destroy_event(cuda->join[i]);
    }
    destroy_event(cuda->fork);
    for (int i = 0; i < MP_CUDA_EPOCHS; i++)
        destroy_event(cuda->epoch[i].event);
}

void mp_cuda_install_streams(struct mp_device_operations *operations) {
    operations->stream_create = stream_create;
    operations->stream_destroy = stream_destroy;
    operations->stream_synchronize = stream_synchronize;
    operations->event_create = event_create;
    operations->event_destroy = event_destroy;
    operations->event_record = event_record;
    operations->stream_wait = stream_wait;
    operations->event_synchronize = event_synchronize;
    operations->event_done = event_done;
    operations->event_time = event_time;
    operations->native_stream = native_stream;
}
