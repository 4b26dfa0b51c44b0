/* Memory of the GPU and page-locked memory, copies, and small host arrays on their way to the
 * GPU. */
#include "reference/device/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

/* Room for one more entry, made before memory is taken for it. */
static bool make_room(struct mp_cuda *cuda) {
    if (cuda->allocation_count < cuda->allocation_room)
        return true;
    size_t room = cuda->allocation_room ? 2 * cuda->allocation_room : 256;
    struct mp_cuda_allocation *grown = realloc(cuda->allocations, room * sizeof *cuda->allocations);
    if (!grown)
        return false;
    cuda->allocations = grown;
    cuda->allocation_room = room;
    return true;
}

/* A thread other than the one that created the device may call these: CUDA keeps the GPU in use
 * per thread. */
static void *allocate(struct mp_device *device, size_t bytes) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    void *memory = NULL;
    if (bytes > PTRDIFF_MAX || !make_room(cuda)) /* a negative size, most likely */
        return NULL;
    cudaError_t status = cudaSetDevice(cuda->ordinal);
    if (status == cudaSuccess)
        status = cudaMalloc(&memory, bytes ? bytes : 1);
    if (status == cudaErrorMemoryAllocation) {
        mp_cuda_fail_memory(cuda, "another array", bytes, &device->error);
        return NULL;
    }
    if (!mp_cuda_note(cuda, "allocating memory", status))
        return NULL;
    cuda->allocations[cuda->allocation_count++] = (struct mp_cuda_allocation){memory, bytes};
    cuda->used += (int64_t)bytes;
    if (cuda->used > cuda->most_used)
        cuda->most_used = cuda->used;
    return memory;
}

static void release(struct mp_device *device, void *memory) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    if (!memory)
        return;
    size_t i = cuda->allocation_count;
    while (i > 0 && cuda->allocations[i - 1].memory != memory) /* the latest goes first, mostly */
        i--;
    if (i > 0) {
        cuda->used -= (int64_t)cuda->allocations[i - 1].bytes;
        cuda->allocations[i - 1] = cuda->allocations[--cuda->allocation_count];
    }
    mp_cuda_note(cuda, "releasing memory", cudaFree(memory));
}

static void *host_allocate(struct mp_device *device, size_t bytes) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    void *memory = NULL;
    cudaError_t status = cudaSetDevice(cuda->ordinal);
    if (bytes > PTRDIFF_MAX)
        return NULL;
    if (status == cudaSuccess)
        status = cudaMallocHost(&memory, bytes ? bytes : 1);
    return mp_cuda_note(cuda, "allocating page-locked memory of the host", status) ? memory : NULL;
}

static void host_release(struct mp_device *device, void *memory) {
    if (memory)
        mp_cuda_note(mp_cuda_of(device), "releasing page-locked memory of the host",
                     cudaFreeHost(memory));
}

static void memory_used(const struct mp_device *device, int64_t *now, int64_t *most) {
    const struct mp_cuda *cuda = (const struct mp_cuda *)device;
    *now = cuda->used;
    *most = cuda->most_used;
}

/* ---- copies ---- */

static void copy_and_wait(struct mp_cuda *cuda, mp_stream stream, void *to, const void *from,
                          size_t bytes, enum cudaMemcpyKind kind, const char *doing) {
    cudaStream_t queue = mp_cuda_stream(cuda, stream);
    if (bytes)
        mp_cuda_note(cuda, doing, cudaMemcpyAsync(to, from, bytes, kind, queue));
    mp_cuda_note(cuda, doing, cudaStreamSynchronize(queue));
    mp_cuda_keep_time(cuda);
}

static void copy_to_host(struct mp_device *device, mp_stream stream, void *host, const void *from,
                         size_t bytes) {
    copy_and_wait(mp_cuda_of(device), stream, host, from, bytes, cudaMemcpyDeviceToHost,
                  "copying to the host");
}

static void copy_from_host(struct mp_device *device, mp_stream stream, void *to, const void *host,
                           size_t bytes) {
    copy_and_wait(mp_cuda_of(device), stream, to, host, bytes, cudaMemcpyHostToDevice,
                  "copying from the host");
}

static void copy(struct mp_device *device, mp_stream stream, void *to, const void *from,
                 size_t bytes) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    if (bytes)
        mp_cuda_note(
            cuda, "copying",
            cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, mp_cuda_stream(cuda, stream)));
}

static void zero(struct mp_device *device, mp_stream stream, void *memory, size_t bytes) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    if (bytes)
        mp_cuda_note(cuda, "clearing memory",
                     cudaMemsetAsync(memory, 0, bytes, mp_cuda_stream(cuda, stream)));
}

/* ---- the ring of small host arrays ---- */

/* Of what is larger than half of it nothing goes; 1024 experts with 128 parts each are 1 MiB. */
enum { RING_BYTES = 4 << 20, RING_ALIGNMENT = 128 };

int mp_cuda_create_ring(struct mp_cuda *cuda, struct mp_error *error) {
    cudaError_t status = cudaMallocHost((void **)&cuda->ring, RING_BYTES);
    if (status != cudaSuccess)
        return mp_cuda_fail(cuda, "4 MiB of page-locked memory of the host", status, error);
    status = cudaMalloc(&cuda->ring_device, RING_BYTES);
    if (status == cudaErrorMemoryAllocation)
        return mp_cuda_fail_memory(cuda, "room for small arrays", RING_BYTES, error);
    for (int half = 0; half < 2 && status == cudaSuccess; half++)
        status = cudaEventCreateWithFlags(&cuda->ring_half[half], cudaEventDisableTiming);
    if (status != cudaSuccess)
        return mp_cuda_fail(cuda, "creating the ring of small arrays", status, error);
    cuda->ring_bytes = RING_BYTES;
    return MP_OK;
}

void mp_cuda_destroy_ring(struct mp_cuda *cuda) {
    for (int half = 0; half < 2; half++)
        if (cuda->ring_half[half])
            cudaEventDestroy(cuda->ring_half[half]);
    if (cuda->ring_device)
        cudaFree(cuda->ring_device);
    if (cuda->ring)
        cudaFreeHost(cuda->ring);
}

/* The half that is left has an event behind the last copy out of it; the half that is entered may
 * be written when the event of its last round has passed, which it has long since unless the host
 * is half a ring ahead.  On the device no more is needed: uploads and what reads them are in the
 * order of one stream, or of several that events have put in order, like all that share scratch
 * memory. */
static bool enter_half(struct mp_cuda *cuda, cudaStream_t stream, int half) {
    const char *doing = "making room for small arrays";
    return mp_cuda_note(cuda, doing, cudaEventRecord(cuda->ring_half[!half], stream)) &&
           mp_cuda_note(cuda, doing, cudaEventSynchronize(cuda->ring_half[half]));
}

void *mp_cuda_upload(struct mp_cuda *cuda, cudaStream_t stream, int count, const void *const host[],
                     const size_t bytes[]) {
    size_t half_bytes = cuda->ring_bytes / 2, all = 0;
    for (int i = 0; i < count; i++)
        all += bytes[i];
    size_t room = (all + RING_ALIGNMENT - 1) / RING_ALIGNMENT * RING_ALIGNMENT;
    if (all > half_bytes) {
        mp_cuda_refuse(cuda, MP_ELIMIT, "small arrays of %zu bytes are larger than %zu", all,
                       half_bytes);
        return NULL;
    }
    /* A full first half is still the first: the second one is entered below. */
    int half = cuda->ring_at > half_bytes;
    if (cuda->ring_at + room > (size_t)(half + 1) * half_bytes) {
        half = !half;
        if (!enter_half(cuda, stream, half))
            return NULL;
        cuda->ring_at = (size_t)half * half_bytes;
    }
    char *from = cuda->ring + cuda->ring_at, *to = (char *)cuda->ring_device + cuda->ring_at;
    for (size_t i = 0, at = 0; i < (size_t)count; at += bytes[i++])
        if (bytes[i])
            memcpy(from + at, host[i], bytes[i]);
    if (all && !mp_cuda_note(cuda, "copying small arrays",
                             cudaMemcpyAsync(to, from, all, cudaMemcpyHostToDevice, stream)))
        return NULL;
    cuda->ring_at += room;
    return to;
}

void mp_cuda_install_memory(struct mp_device_operations *operations) {
    operations->allocate = allocate;
    operations->release = release;
    operations->host_allocate = host_allocate;
    operations->host_release = host_release;
    operations->memory_used = memory_used;
    operations->copy_to_host = copy_to_host;
    operations->copy_from_host = copy_from_host;
    operations->copy = copy;
    operations->zero = zero;
}
