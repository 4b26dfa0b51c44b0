/* LayerNorm over rows; the variance is taken around the mean, not from the squares' sum.
 *
 * A row is read once and stays in registers: by a warp, or by a block where it is long.  Elements
 * moved per element of x, none twice: 2 forward, 4 backward; gain, bias and the sums of their
 * gradients stay in the caches.
 *
 * Backward, a fixed number of blocks walk over the rows and keep their sums for dgain and dbias in
 * registers, too.  Each block leaves its own in scratch memory; a second kernel adds them in a
 * fixed order, so that results are the same every time on one kind of GPU.
 *
 * Rows that are not whole accesses of 16 bytes, or too long, take kernels that loop over the row,
 * one element a thread at a time; all but their first pass find it in the caches. */
#include "reference/device/cuda/kernel.cuh"

namespace {

constexpr float EPSILON = 1e-5f;
/* Most blocks with sums of their own, of backward_in_registers and sum_columns. */
constexpr int MOST_PARTS = 640, MOST_LOOP_PARTS = 128;
constexpr int LONGEST_BACKWARD = 8192; /* row in registers */
constexpr int LOOP_THREADS = 256;

/* Sums over THREADS threads that share a row, the same in each of them. */
template <int THREADS> __device__ __forceinline__ float row_sum(float value) {
    if constexpr (THREADS == mp::WARP)
        return mp::warp_sum(value);
    else
        return mp::block_sum<THREADS>(value);
}

/* Threads of a block whose rows have THREADS threads each: 4 warps with a row of their own, or one
 * row. */
template <int THREADS> constexpr int FORWARD_BLOCK = THREADS == mp::WARP ? 4 * mp::WARP : THREADS;

/* THREADS threads hold a row of up to THREADS * ELEMENTS elements. */
template <typename T, int THREADS, int ELEMENTS>
__global__ void __launch_bounds__(FORWARD_BLOCK<THREADS>)
    forward_in_registers(int rows, int width, const T *__restrict__ x,
                         const float *__restrict__ gain, const float *__restrict__ bias,
                         T *__restrict__ y, float *__restrict__ mean, float *__restrict__ rstd) {
    constexpr int COUNT = mp::ACCESS_ELEMENTS<T>, ACCESSES = ELEMENTS / COUNT;
    int lane = threadIdx.x % THREADS;
    int64_t row = (int64_t)blockIdx.x * (FORWARD_BLOCK<THREADS> / THREADS) + threadIdx.x / THREADS;
    if (row >= rows) /* whole warps */
        return;
    const T *from = x + row * width;
    float value[ACCESSES][COUNT] = {};
#pragma unroll
    for (int a = 0; a < ACCESSES; a++) {
        int column = (a * THREADS + lane) * COUNT;
        if (column < width)
            mp::load(from + column, value[a]);
    }
    float sum = 0, squares = 0;
#pragma unroll
    for (int a = 0; a < ACCESSES; a++)
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            sum += value[a][i];
    float center = row_sum<THREADS>(sum) / (float)width;
#pragma unroll
    for (int a = 0; a < ACCESSES; a++) {
        bool inside = (a * THREADS + lane) * COUNT < width;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            value[a][i] = inside ? value[a][i] - center : 0.0f;
            squares += value[a][i] * value[a][i];
        }
    }
    float scale = 1.0f / sqrtf(row_sum<THREADS>(squares) / (float)width + EPSILON);
    T *to = y + row * width;
#pragma unroll
    for (int a = 0; a < ACCESSES; a++) {
        int column = (a * THREADS + lane) * COUNT;
        if (column >= width)
            continue;
        float factor[COUNT], offset[COUNT];
        mp::load(gain + column, factor);
        mp::load(bias + column, offset);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            value[a][i] = value[a][i] * scale * factor[i] + offset[i];
        mp::store(to + column, value[a]);
    }
    if (lane == 0) {
        mean[row] = center;
        rstd[row] = scale;
    }
}

/* A block per row. */
template <typename T>
__global__ void __launch_bounds__(LOOP_THREADS)
    forward_in_loops(int width, const T *__restrict__ x, const float *__restrict__ gain,
                     const float *__restrict__ bias, T *__restrict__ y, float *__restrict__ mean,
                     float *__restrict__ rstd) {
    int64_t row = blockIdx.x;
    const T *from = x + row * width;
    T *to = y + row * width;
    float sum = 0, squares = 0;
#pragma unroll 8
    for (int column = threadIdx.x; column < width; column += LOOP_THREADS)
        sum += mp::to_float(from[column]);
    float center = mp::block_sum<LOOP_THREADS>(sum) / (float)width;
#pragma unroll 8
    for (int column = threadIdx.x; column < width; column += LOOP_THREADS) {
        float distance = mp::to_float(from[column]) - center;
        squares += distance * distance;
    }
    float scale = 1.0f / sqrtf(mp::block_sum<LOOP_THREADS>(squares) / (float)width + EPSILON);
#pragma unroll 8
    for (int column = threadIdx.x; column < width; column += LOOP_THREADS) {
        float normal = (mp::to_float(from[column]) - center) * scale;
        to[column] = mp::from_float<T>(normal * gain[column] + bias[column]);
    }
    if (threadIdx.x == 0) {
        mean[row] = center;
        rstd[row] = scale;
    }
}

/* With h = (x - mean) rstd and d = dy gain:  dx += rstd (d - mean(d) - h mean(d h)). */

/* A thread holds so many elements of each row: more, and it would need so many registers beside
 * its sums that an SM had fewer bytes in flight, not more. */
constexpr int BACKWARD_ELEMENTS = 8;

/* Threads of a block, and blocks that an SM has room for: with 80 registers a thread, which lets
 * the compiler have all loads of a round under way at once; 64 where blocks are so large that there
 * would be one instead of two. */
template <int THREADS> constexpr int BACKWARD_BLOCK = THREADS > 256 ? THREADS : 256;
template <int THREADS> constexpr int BACKWARD_RESIDENT = THREADS > 256 ? 1024 / THREADS : 3;

/* Both sums over the THREADS threads that share a row, the same in each of them.  `turn`
 * alternates between calls: one barrier is enough, since whoever writes to a turn's half again has
 * passed the other turn's barrier, behind which nobody reads it any more. */
template <int THREADS, int BLOCK>
__device__ __forceinline__ void row_sums(float (&part)[2][2][BLOCK / mp::WARP], int turn,
                                         float &first, float &second) {
    first = mp::warp_sum(first);
    second = mp::warp_sum(second);
    if constexpr (THREADS > mp::WARP) {
        constexpr int WARPS = THREADS / mp::WARP; /* of a row */
        int warp = threadIdx.x / mp::WARP;
        if (threadIdx.x % mp::WARP == 0) {
            part[turn][0][warp] = first;
            part[turn][1][warp] = second;
        }
        __syncthreads();
        int begin = warp / WARPS * WARPS;
        first = second = 0;
#pragma unroll
        for (int i = 0; i < WARPS; i++) {
            first += part[turn][0][begin + i];
            second += part[turn][1][begin + i];
        }
    }
}

/* Adds up what the block's groups of THREADS threads hold for the columns, group by group, and
 * writes the first `width` sums to `part`.  All threads of the block call it. */
template <int THREADS, int BLOCK, int ACCESSES, int COUNT>
__device__ __forceinline__ void write_part(const float (&sum)[ACCESSES][COUNT], int width,
                                           float *__restrict__ part) {
    constexpr int GROUPS = BLOCK / THREADS;
    constexpr int COLUMNS = THREADS * ACCESSES * COUNT;
    __shared__ float total[GROUPS > 1 ? COLUMNS : 1];
    int group = threadIdx.x / THREADS, lane = threadIdx.x % THREADS;
    for (int turn = 0; turn < GROUPS; turn++) {
        if (group == turn) {
#pragma unroll
            for (int a = 0; a < ACCESSES; a++)
#pragma unroll
                for (int i = 0; i < COUNT; i++) {
                    int column = (a * THREADS + lane) * COUNT + i;
                    float before = turn > 0 ? total[column] : 0.0f;
                    if (turn + 1 < GROUPS)
                        total[column] = before + sum[a][i];
                    else if (column < width)
                        part[column] = before + sum[a][i];
                }
        }
        __syncthreads();
    }
}

/* THREADS threads hold a row, and each of a block's groups of so many takes every so-manieth row.
 * part [blocks][2][width]: sums for dgain and dbias. */
template <typename T, int THREADS>
__global__ void __launch_bounds__(BACKWARD_BLOCK<THREADS>, BACKWARD_RESIDENT<THREADS>)
    backward_in_registers(int rows, int width, const T *__restrict__ x,
                          const float *__restrict__ gain, const float *__restrict__ mean,
                          const float *__restrict__ rstd, const T *__restrict__ dy,
                          T *__restrict__ dx, float *__restrict__ part) {
    constexpr int COUNT = mp::ACCESS_ELEMENTS<T>;
    constexpr int ACCESSES = BACKWARD_ELEMENTS / COUNT;
    constexpr int BLOCK = BACKWARD_BLOCK<THREADS>, GROUPS = BLOCK / THREADS;
    using access = mp::vector<T, COUNT>;
    __shared__ float sums[2][2][BLOCK / mp::WARP];
    int lane = threadIdx.x % THREADS, turn = 0;
    float inverse_width = 1.0f / (float)width;
    float gain_sum[ACCESSES][COUNT] = {}, bias_sum[ACCESSES][COUNT] = {};

    /* Every thread of the block goes round equally often.  Those without a row or columns read what
     * others read, too, and leave it: loads that nothing depends on are all under way at once. */
    for (int64_t first = (int64_t)blockIdx.x * GROUPS; first < rows;
         first += (int64_t)gridDim.x * GROUPS, turn ^= 1) {
        int64_t row = first + threadIdx.x / THREADS;
        bool present = row < rows;
        row = present ? row : rows - 1;
        float center = mean[row], scale = rstd[row];
        int64_t at = row * width;
        access values[ACCESSES], gradients[ACCESSES], residuals[ACCESSES];
#pragma unroll
        for (int a = 0; a < ACCESSES; a++) {
            int column = (a * THREADS + lane) * COUNT;
            column = column < width ? column : width - COUNT;
            values[a] = *reinterpret_cast<const access *>(x + at + column);
            gradients[a] = *reinterpret_cast<const access *>(dy + at + column);
            residuals[a] = *reinterpret_cast<const access *>(dx + at + column);
        }
        float sum = 0, product = 0;
#pragma unroll
        for (int a = 0; a < ACCESSES; a++) {
            int column = (a * THREADS + lane) * COUNT;
            float factor[COUNT];
            bool mine = present && column < width;
            mp::load(gain + (column < width ? column : width - COUNT), factor);
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                float normal = (mp::to_float(values[a].value[i]) - center) * scale;
                float gradient = mine ? mp::to_float(gradients[a].value[i]) : 0.0f;
                float d = gradient * factor[i];
                gain_sum[a][i] += gradient * normal;
                bias_sum[a][i] += gradient;
                sum += d;
                product += d * normal;
            }
        }
        row_sums<THREADS, BLOCK>(sums, turn, sum, product);
        sum *= inverse_width;
        product *= inverse_width;
#pragma unroll
        for (int a = 0; a < ACCESSES; a++) {
            int column = (a * THREADS + lane) * COUNT;
            if (!present || column >= width)
                continue;
            float factor[COUNT], result[COUNT];
            mp::load(gain + column, factor);
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                float normal = (mp::to_float(values[a].value[i]) - center) * scale;
                float d = mp::to_float(gradients[a].value[i]) * factor[i];
                result[i] =
                    mp::to_float(residuals[a].value[i]) + scale * (d - sum - normal * product);
            }
            mp::store(dx + at + column, result);
        }
    }
    float *mine = part + (int64_t)blockIdx.x * 2 * width;
    write_part<THREADS, BLOCK>(gain_sum, width, mine);
    write_part<THREADS, BLOCK>(bias_sum, width, mine + width);
}

/* dx, a block per row. */
template <typename T>
__global__ void __launch_bounds__(LOOP_THREADS)
    backward_in_loops(int width, const T *__restrict__ x, const float *__restrict__ gain,
                      const float *__restrict__ mean, const float *__restrict__ rstd,
                      const T *__restrict__ dy, T *__restrict__ dx) {
    int64_t row = blockIdx.x, at = row * width;
    float center = mean[row], scale = rstd[row], sum = 0, product = 0;
#pragma unroll 4
    for (int column = threadIdx.x; column < width; column += LOOP_THREADS) {
        float normal = (mp::to_float(x[at + column]) - center) * scale;
        float d = mp::to_float(dy[at + column]) * gain[column];
        sum += d;
        product += d * normal;
    }
    sum = mp::block_sum<LOOP_THREADS>(sum) / (float)width;
    product = mp::block_sum<LOOP_THREADS>(product) / (float)width;
#pragma unroll 4
    for (int column = threadIdx.x; column < width; column += LOOP_THREADS) {
        float normal = (mp::to_float(x[at + column]) - center) * scale;
        float d = mp::to_float(dy[at + column]) * gain[column];
        float residual = mp::to_float(dx[at + column]);
        dx[at + column] = mp::from_float<T>(residual + scale * (d - sum - normal * product));
    }
}

/* Sums for dgain and dbias of every parts-th row: a thread per column and part.
 * part [parts][2][width]. */
template <typename T>
__global__ void __launch_bounds__(LOOP_THREADS)
    sum_columns(int rows, int width, int parts, const T *__restrict__ x,
                const float *__restrict__ mean, const float *__restrict__ rstd,
                const T *__restrict__ dy, float *__restrict__ part) {
    int tiles = (width + LOOP_THREADS - 1) / LOOP_THREADS;
    int column = blockIdx.x % tiles * LOOP_THREADS + threadIdx.x, mine = blockIdx.x / tiles;
    if (column >= width)
        return;
    float gain_sum = 0, bias_sum = 0;
#pragma unroll 4
    for (int64_t row = mine; row < rows; row += parts) {
        float gradient = mp::to_float(dy[row * width + column]);
        gain_sum += gradient * (mp::to_float(x[row * width + column]) - mean[row]) * rstd[row];
        bias_sum += gradient;
    }
    part[((int64_t)mine * 2 + 0) * width + column] = gain_sum;
    part[((int64_t)mine * 2 + 1) * width + column] = bias_sum;
}

/* dgain and dbias, the sums over the parts: a block per 32 columns of both together.  Each of its
 * warps adds up every 32nd part, and then one warp those sums. */
__global__ void __launch_bounds__(mp::WARP *mp::WARP)
    sum_parts(int width, int parts, const float *__restrict__ part, float *__restrict__ dgain,
              float *__restrict__ dbias) {
    __shared__ float sums[mp::WARP][mp::WARP];
    int lane = threadIdx.x % mp::WARP, warp = threadIdx.x / mp::WARP;
    int64_t column = (int64_t)blockIdx.x * mp::WARP + lane;
    float sum = 0;
    if (column < 2 * (int64_t)width) {
#pragma unroll 8
        for (int p = warp; p < parts; p += mp::WARP)
            sum += part[(int64_t)p * 2 * width + column];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= 2 * (int64_t)width)
        return;
    float total = 0;
#pragma unroll
    for (int i = 0; i < mp::WARP; i++)
        total += sums[i][lane];
    if (column < width)
        dgain[column] = total;
    else
        dbias[column - width] = total;
}

/* Whether rows can be read in accesses of 16 bytes. */
template <typename T, typename... Pointers> bool whole_accesses(int width, Pointers... pointers) {
    return width % mp::ACCESS_ELEMENTS<T> == 0 && mp::are_aligned(mp::ACCESS_BYTES, pointers...);
}

template <typename T> struct forward {
    static constexpr int MOST = 64 / (int)sizeof(T); /* elements of a thread */
    struct mp_cuda *cuda;
    mp_stream stream;
    int rows, width;
    const T *x;
    const float *gain, *bias;
    T *y;
    float *mean, *rstd;

    /* By as many threads as the row wants: so many, or more with the most elements each. */
    template <int THREADS, int ELEMENTS> void in_registers() const {
        constexpr int BLOCK = FORWARD_BLOCK<THREADS>, AT_ONCE = BLOCK / THREADS;
        if constexpr (ELEMENTS == MOST && THREADS < 1024)
            if (width > THREADS * ELEMENTS)
                return in_registers<2 * THREADS, ELEMENTS>();
        mp::launch(cuda, "layer norm", stream, mp::pieces_of(rows, AT_ONCE), BLOCK,
                   forward_in_registers<T, THREADS, ELEMENTS>, rows, width, x, gain, bias, y, mean,
                   rstd);
    }

    void queue() const {
        if (!whole_accesses<T>(width, x, gain, bias, y) || width > 1024 * MOST)
            mp::launch(cuda, "layer norm", stream, rows, LOOP_THREADS, forward_in_loops<T>, width,
                       x, gain, bias, y, mean, rstd);
        else if (width <= 32 * MOST / 4)
            in_registers<32, MOST / 4>();
        else if (width <= 32 * MOST / 2)
            in_registers<32, MOST / 2>();
        else
            in_registers<32, MOST>();
    }
};

template <typename T> struct backward {
    struct mp_cuda *cuda;
    mp_stream stream;
    int rows, width;
    const T *x;
    const float *gain, *mean, *rstd;
    const T *dy;
    T *dx;
    float *part;

    /* The same; returns how many parts there are. */
    template <int THREADS> int in_registers() const {
        constexpr int BLOCK = BACKWARD_BLOCK<THREADS>, AT_ONCE = BLOCK / THREADS;
        if constexpr (THREADS < 1024)
            if (width > THREADS * BACKWARD_ELEMENTS)
                return in_registers<2 * THREADS>();
        int64_t parts = mp::pieces_of(rows, AT_ONCE);
        int64_t resident = (int64_t)cuda->multiprocessors * BACKWARD_RESIDENT<THREADS>;
        parts = parts < resident ? parts : resident;
        parts = parts < MOST_PARTS ? parts : MOST_PARTS;
        mp::launch(cuda, "gradient of layer norm", stream, parts, BLOCK,
                   backward_in_registers<T, THREADS>, rows, width, x, gain, mean, rstd, dy, dx,
                   part);
        return (int)parts;
    }

    int in_loops() const {
        enum { ROWS_OF_PART = 64 };
        int64_t parts = mp::pieces_of(rows, ROWS_OF_PART);
        parts = parts < MOST_LOOP_PARTS ? parts : MOST_LOOP_PARTS;
        int64_t tiles = mp::pieces_of(width, LOOP_THREADS);
        mp::launch(cuda, "gradient of layer norm", stream, parts * tiles, LOOP_THREADS,
                   sum_columns<T>, rows, width, (int)parts, x, mean, rstd, dy, part);
        mp::launch(cuda, "gradient of layer norm", stream, rows, LOOP_THREADS, backward_in_loops<T>,
                   width, x, gain, mean, rstd, dy, dx);
        return (int)parts;
    }

    int queue() const {
        static_assert(LONGEST_BACKWARD == 1024 * BACKWARD_ELEMENTS, "the largest block holds it");
        if (!whole_accesses<T>(width, x, gain, dy, dx) || width > LONGEST_BACKWARD)
            return in_loops();
        return in_registers<32>();
    }
};

bool within_limits(struct mp_cuda *cuda, int width) {
    if (width <= cuda->limits.width)
        return true;
    mp_cuda_refuse(cuda, MP_ELIMIT,
                   "layer norm of width %d: the device was created for widths up to %d", width,
                   cuda->limits.width);
    return false;
}

void layer_norm_forward(struct mp_device *device, mp_stream stream, int rows, int width,
                        const void *x, const float *gain, const float *bias, void *y, float *mean,
                        float *rstd) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    if (!within_limits(cuda, width))
        return;
    mp::by_element(cuda, [&](auto element) {
        using T = decltype(element);
        forward<T>{
            cuda, stream, rows, width, static_cast<const T *>(x), gain, bias, static_cast<T *>(y),
            mean, rstd}
            .queue();
    });
}

void layer_norm_backward(struct mp_device *device, mp_stream stream, int rows, int width,
                         const void *x, const float *gain, const float *mean, const float *rstd,
                         const void *dy, void *dx, float *dgain, float *dbias) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    if (!within_limits(cuda, width))
        return;
    float *part = static_cast<float *>(cuda->scratch);
    mp::by_element(cuda, [&](auto element) {
        using T = decltype(element);
        int parts = backward<T>{cuda,
                                stream,
                                rows,
                                width,
                                static_cast<const T *>(x),
                                gain,
                                mean,
                                rstd,
                                static_cast<const T *>(dy),
                                static_cast<T *>(dx),
                                part}
                        .queue();
        mp::launch(cuda, "gradient of layer norm", stream,
                   mp::pieces_of(2 * (int64_t)width, mp::WARP), mp::WARP * mp::WARP, sum_parts,
                   width, parts, part, dgain, dbias);
    });
}

} // namespace

void mp_cuda_install_layer_norm(struct mp_device_operations *operations) {
    operations->layer_norm_forward = layer_norm_forward;
    operations->layer_norm_backward = layer_norm_backward;
}

size_t mp_cuda_scratch_layer_norm(const struct mp_device_limits *limits, enum mp_element element) {
    size_t width = (size_t)limits->width;
    size_t in_registers = MOST_PARTS * (width < LONGEST_BACKWARD ? width : LONGEST_BACKWARD);
    size_t in_loops = MOST_LOOP_PARTS * width;
    (void)element;
    return (in_registers > in_loops ? in_registers : in_loops) * 2 * sizeof(float);
}
