/* Softmax cross-entropy over rows of logits.
 *
 * A row of up to 1024 logits is held in the registers of a warp: each is read once and its gradient
 * written once, 4 + the element's bytes.  Longer rows take a block, which reads them twice, the
 * second time from the cache if all rows under way fit there.
 *
 * The thread that has the target's logit before it becomes a gradient also writes the loss, so that
 * the gradient may lie where the logits do. */
#include "reference/device/cuda/kernel.cuh"

#include <float.h>

namespace {

constexpr int WARPS = 4;           /* rows of a block while a warp holds one */
constexpr int LOOP_THREADS = 512;  /* of a longer row */
constexpr float LOWEST = -FLT_MAX; /* not -infinity, whose distance from itself is no number */

__device__ __forceinline__ float loss_of(float logit, float largest, float sum) {
    return logf(sum) + (largest - logit);
}

/* A warp per row of up to 32 * ELEMENTS logits; COUNT divides `vocabulary`. */
template <typename T, int COUNT, int ELEMENTS>
__global__ void __launch_bounds__(WARPS *mp::WARP)
    in_registers(int rows, int vocabulary, const float *logits, const int32_t *__restrict__ targets,
                 float scale, float *__restrict__ loss, T *gradient) {
    constexpr int ACCESSES = ELEMENTS / COUNT;
    int lane = threadIdx.x % mp::WARP;
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / mp::WARP;
    if (row >= rows) /* whole warps */
        return;
    int64_t at = row * vocabulary;
    int target = targets[row];
    float value[ACCESSES][COUNT], largest = LOWEST, sum = 0;
#pragma unroll
    for (int a = 0; a < ACCESSES; a++) {
        int column = (a * mp::WARP + lane) * COUNT;
        if (column < vocabulary)
            mp::load(logits + at + column, value[a]);
    }
    bool mine = false;
    float logit = 0;
#pragma unroll
    for (int a = 0; a < ACCESSES; a++)
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            int column = (a * mp::WARP + lane) * COUNT + i;
            if (column == target) {
                mine = true;
                logit = value[a][i];
            }
            if (column < vocabulary)
                largest = fmaxf(largest, value[a][i]);
        }
    largest = mp::warp_largest(largest);
#pragma unroll
    for (int a = 0; a < ACCESSES; a++)
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            int column = (a * mp::WARP + lane) * COUNT + i;
            value[a][i] = column < vocabulary ? expf(value[a][i] - largest) : 0.0f;
            sum += value[a][i];
        }
    sum = mp::warp_sum(sum);
    float factor = scale / sum;
#pragma unroll
    for (int a = 0; a < ACCESSES; a++) {
        int column = (a * mp::WARP + lane) * COUNT;
        if (column >= vocabulary)
            continue;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            value[a][i] = value[a][i] * factor - (column + i == target ? scale : 0.0f);
        mp::store(gradient + at + column, value[a]);
    }
    if (mine)
        loss[row] = loss_of(logit, largest, sum);
}

/* Number of elements, as a type. */
template <int N> struct number { static constexpr int VALUE = N; };

/* work(column, number<C>()) for the columns of a row that starts `at` elements into its matrix, by
 * all threads of the block together: accesses of COUNT elements, and of one before the first and
 * after the last place where those are allowed. */
template <int COUNT, typename Work>
__device__ __forceinline__ void over_row(int64_t at, int width, Work work) {
    int head = (int)((COUNT - at % COUNT) % COUNT);
    head = head < width ? head : width;
    int tail = head + (width - head) / COUNT * COUNT;
    int thread = threadIdx.x;
    if (thread < head)
        work(thread, number<1>());
#pragma unroll 4
    for (int column = head + thread * COUNT; column < tail; column += LOOP_THREADS * COUNT)
        work(column, number<COUNT>());
    if (tail + thread < width)
        work(tail + thread, number<1>());
}

/* Like mp::block_sum. */
__device__ __forceinline__ float block_largest(float value) {
    __shared__ float part[LOOP_THREADS / mp::WARP];
    value = mp::warp_largest(value);
    if (threadIdx.x % mp::WARP == 0)
        part[threadIdx.x / mp::WARP] = value;
    __syncthreads();
    float largest = part[0];
#pragma unroll
    for (int i = 1; i < LOOP_THREADS / mp::WARP; i++)
        largest = fmaxf(largest, part[i]);
    __syncthreads();
    return largest;
}

/* A block per row.  Each thread keeps the largest logit it has seen, and the sum of exponentials of
 * the distances from that, which it corrects whenever there is a larger one. */
template <typename T, int COUNT>
__global__ void __launch_bounds__(LOOP_THREADS)
    in_loops(int vocabulary, const float *logits, const int32_t *__restrict__ targets, float scale,
             float *__restrict__ loss, T *gradient) {
    int64_t row = blockIdx.x, at = row * vocabulary;
    const float *from = logits + at;
    int target = targets[row];
    float largest = LOWEST, sum = 0;
    over_row<COUNT>(at, vocabulary, [&](int column, auto count) {
        constexpr int C = decltype(count)::VALUE;
        float value[C], before = largest;
        mp::load(from + column, value);
#pragma unroll
        for (int i = 0; i < C; i++)
            largest = fmaxf(largest, value[i]);
        sum *= expf(before - largest);
#pragma unroll
        for (int i = 0; i < C; i++)
            sum += expf(value[i] - largest);
    });
    float own = largest;
    largest = block_largest(own);
    sum = mp::block_sum<LOOP_THREADS>(sum * expf(own - largest));
    float factor = scale / sum;
    over_row<COUNT>(at, vocabulary, [&](int column, auto count) {
        constexpr int C = decltype(count)::VALUE;
        float value[C];
        mp::load(from + column, value);
#pragma unroll
        for (int i = 0; i < C; i++) {
            bool hit = column + i == target;
            if (hit)
                loss[row] = loss_of(value[i], largest, sum);
            value[i] = expf(value[i] - largest) * factor - (hit ? scale : 0.0f);
        }
        mp::store(gradient + at + column, value);
    });
}

template <typename T> struct cross_entropy_of {
    struct mp_cuda *cuda;
    mp_stream stream;
    int rows, vocabulary;
    const float *logits;
    const int32_t *target;
    float scale;
    float *loss;
    T *gradient;

    template <int COUNT, int ELEMENTS> void by_warps() const {
        mp::launch(cuda, "cross-entropy", stream, ((int64_t)rows + WARPS - 1) / WARPS,
                   WARPS * mp::WARP, in_registers<T, COUNT, ELEMENTS>, rows, vocabulary, logits,
                   target, scale, loss, gradient);
    }

    template <int COUNT> void by_blocks() const {
        mp::launch(cuda, "cross-entropy", stream, rows, LOOP_THREADS, in_loops<T, COUNT>,
                   vocabulary, logits, target, scale, loss, gradient);
    }

    void queue() const {
        bool aligned = (uintptr_t)logits % 16 == 0 && (uintptr_t)gradient % (4 * sizeof(T)) == 0;
        bool whole = aligned && vocabulary % 4 == 0;
        if (vocabulary <= 32 * 8)
            whole ? by_warps<4, 8>() : by_warps<1, 8>();
        else if (vocabulary <= 32 * 32)
            whole ? by_warps<4, 32>() : by_warps<1, 32>();
        else
            aligned ? by_blocks<4>() : by_blocks<1>();
    }
};

void cross_entropy(struct mp_device *device, mp_stream stream, int rows, int vocabulary,
                   const float *logits, const int32_t *target, float scale, float *loss,
                   void *gradient) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    mp::by_element(cuda, [&](auto element) {
        using T = decltype(element);
        cross_entropy_of<T>{
            cuda, stream, rows, vocabulary, logits, target, scale, loss, static_cast<T *>(gradient)}
            .queue();
    });
}

} // namespace

void mp_cuda_install_loss(struct mp_device_operations *operations) {
    operations->cross_entropy = cross_entropy;
}

size_t mp_cuda_scratch_loss(const struct mp_device_limits *limits, enum mp_element element) {
    (void)limits;
    (void)element;
    return 0;
}
