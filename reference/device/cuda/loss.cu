/* Softmax cross-entropy over rows of logits.
 *
 * A row of up to 1024 logits is held in the registers of a warp, one of up to 8192 in those of a
 * block of 256 threads: each logit is read once and its gradient written once, 4 + the element's
 * bytes.  Longer rows have blocks of 1024 threads, one to an SM, which hold the first 32768 logits
 * and read the rest once more.  That rest of all rows under way is to be found in the second-level
 * cache, 70 KB of a row of 50304, 9 MB on 132 SMs: it alone is read in the usual way,
 * everything else is read and written as what is not needed again.
 *
 * While a block writes it reads nothing; so that memory does both all the time, it first asks the
 * cache for the row that comes when it and the others under way are done.  What it holds are
 * exponentials from the largest logit of each thread, since the row's own is known too late, and
 * are multiplied by what that is off by.
 *
 * On an H100, rows of 50304 and bf16: 0.83 of a copy's rate with logits held, 0.95 with
 * exponentials, 0.998 with rows asked for, too, and accesses that leave the cache to the rest (0.85
 * without these).
 *
 * The gradient may lie where the logits do: the target's logit is read first, and its gradient,
 * like the loss, written last. */
#include "reference/device/cuda/kernel.cuh"
#include "reference/device/cuda/mma.cuh"

#include <float.h>
#include <math.h>

namespace {

constexpr int WARPS = 4;            /* rows of a block while a warp holds one */
constexpr int KEPT = 8;             /* accesses of a longer row that a thread holds */
constexpr int BLOCK_THREADS = 1024; /* of a multiprocessor, in blocks with longer rows */
constexpr float LOWEST = -FLT_MAX;  /* not -infinity, whose distance from itself is no number */

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
    float value[ACCESSES][COUNT] = {}, largest = LOWEST, sum = 0;
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

/* The columns of a row that starts `at` elements into its matrix: accesses of COUNT elements from
 * `head` to `tail`, and of one before and after, where those are not allowed. */
template <int COUNT> struct row_split {
    int head, tail, width;

    __device__ row_split(int64_t at, int columns) {
        width = columns;
        head = (int)((COUNT - at % COUNT) % COUNT);
        head = head < width ? head : width;
        tail = head + (width - head) / COUNT * COUNT;
    }
};

/* work(column, number<C>()) for all columns but the first KEPT accesses of each of the block's
 * threads. */
template <int COUNT, int THREADS, typename Work>
__device__ __forceinline__ void over_rest(const row_split<COUNT> &split, Work work) {
    int thread = threadIdx.x;
    if (thread < split.head)
        work(thread, number<1>());
#pragma unroll 4
    for (int column = split.head + (KEPT * THREADS + thread) * COUNT; column < split.tail;
         column += THREADS * COUNT)
        work(column, number<COUNT>());
    if (split.tail + thread < split.width)
        work(split.tail + thread, number<1>());
}

/* Has the part of a row that a block is to hold brought into the second-level cache. */
template <int COUNT, int THREADS>
__device__ __forceinline__ void prefetch_kept(const float *row, int vocabulary) {
    constexpr int LINE = 128 / sizeof(float), HELD = KEPT * COUNT * THREADS;
    for (int column = (int)threadIdx.x * LINE; column < HELD && column < vocabulary;
         column += THREADS * LINE)
        mp::prefetch(row + column);
}

/* The largest logit that a thread has seen, and the sum of exponentials of the distances from that,
 * which is corrected whenever there is a larger one. */
struct seen {
    float largest, sum;

    /* Logits become their exponentials; -infinity stands for none. */
    template <int A, int C> __device__ __forceinline__ void add(float (&value)[A][C]) {
        const float before = largest;
#pragma unroll
        for (int a = 0; a < A; a++)
#pragma unroll
            for (int i = 0; i < C; i++)
                largest = fmaxf(largest, value[a][i]);
        sum *= expf(before - largest);
#pragma unroll
        for (int a = 0; a < A; a++)
#pragma unroll
            for (int i = 0; i < C; i++) {
                value[a][i] = expf(value[a][i] - largest);
                sum += value[a][i];
            }
    }
};

/* A block per row; those of so many rows are under way at once. */
template <typename T, int COUNT, int THREADS>
__global__ void __launch_bounds__(THREADS, BLOCK_THREADS / THREADS)
    by_block(int rows, int vocabulary, int under_way, const float *logits,
             const int32_t *__restrict__ targets, float scale, float *__restrict__ loss,
             T *gradient) {
    const int64_t row = blockIdx.x, at = row * vocabulary;
    const float *from = logits + at;
    T *to = gradient + at;
    const row_split<COUNT> split(at, vocabulary);
    const int begin = split.head + (int)threadIdx.x * COUNT, target = targets[row];
    const float logit = from[target];
    float kept[KEPT][COUNT];
#pragma unroll
    for (int a = 0; a < KEPT; a++) {
        int column = begin + a * THREADS * COUNT;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            kept[a][i] = -INFINITY;
        if (column < split.tail)
            mp::load_once(from + column, kept[a]);
    }
    seen own = {LOWEST, 0};
    own.add(kept);
    const float largest_kept = own.largest;
    over_rest<COUNT, THREADS>(split, [&](int column, auto count) {
        float value[1][decltype(count)::VALUE];
        mp::load(from + column, value[0]);
        own.add(value);
    });

    const float largest = mp::block_largest<THREADS>(own.largest);
    const float sum = mp::block_sum<THREADS>(own.sum * expf(own.largest - largest));
    const float factor = scale / sum, factor_kept = expf(largest_kept - largest) * factor;
    if (row + under_way < rows)
        prefetch_kept<COUNT, THREADS>(from + (int64_t)under_way * vocabulary, vocabulary);
#pragma unroll
    for (int a = 0; a < KEPT; a++) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            kept[a][i] *= factor_kept;
        if (begin + a * THREADS * COUNT < split.tail)
            mp::store_once(to + begin + a * THREADS * COUNT, kept[a]);
    }
    over_rest<COUNT, THREADS>(split, [&](int column, auto count) {
        float value[decltype(count)::VALUE];
        mp::load(from + column, value);
#pragma unroll
        for (int i = 0; i < decltype(count)::VALUE; i++)
            value[i] = expf(value[i] - largest) * factor;
        mp::store_once(to + column, value);
    });
    __syncthreads();
    if (threadIdx.x == 0) {
        loss[row] = loss_of(logit, largest, sum);
        to[target] = mp::from_float<T>(expf(logit - largest) * factor - scale);
    }
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
        mp::launch(cuda, "cross-entropy", stream, mp::pieces_of(rows, WARPS), WARPS * mp::WARP,
                   in_registers<T, COUNT, ELEMENTS>, rows, vocabulary, logits, target, scale, loss,
                   gradient);
    }

    template <int COUNT, int THREADS> void by_blocks() const {
        mp::launch(cuda, "cross-entropy", stream, rows, THREADS, by_block<T, COUNT, THREADS>, rows,
                   vocabulary, cuda->multiprocessors * (BLOCK_THREADS / THREADS), logits, target,
                   scale, loss, gradient);
    }

    void queue() const {
        bool aligned =
            mp::are_aligned(mp::ACCESS_BYTES, logits) && mp::are_aligned(4 * sizeof(T), gradient);
        bool whole = aligned && vocabulary % 4 == 0;
        if (vocabulary <= 32 * 8)
            whole ? by_warps<4, 8>() : by_warps<1, 8>();
        else if (vocabulary <= 32 * 32)
            whole ? by_warps<4, 32>() : by_warps<1, 32>();
        else if (vocabulary <= 256 * KEPT * 4)
            aligned ? by_blocks<4, 256>() : by_blocks<1, 256>();
        else
            aligned ? by_blocks<4, BLOCK_THREADS>() : by_blocks<1, BLOCK_THREADS>();
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
