/* Statistics of the gate's choices: routes and probability of every expert.
 *
 * Per token of E experts and K choices 4 E + 4 K bytes are read; what is written does not grow with
 * the tokens.  Every block takes a range of tokens and leaves its sums in scratch memory; a second
 * kernel adds them up.  Both go in an order that the shape alone decides, so that sums of floats
 * repeat. */
#include "reference/device/cuda/expert_row.cuh"

namespace mp {

constexpr int STATISTICS_THREADS = 256;
constexpr int STATISTICS_BLOCKS = 1024;
constexpr int STATISTICS_VALUES = 1 << 18; /* most blocks times experts */
constexpr int STATISTICS_TOKENS = 32;      /* least tokens of a block, but for the last */

struct statistics {
    int tokens, experts, top_k;
    int blocks, block_tokens;
    const float *probability;
    const int32_t *choice;
    uint32_t *block_routes, *block_firsts; /* [blocks][experts] */
    float *block_mass;
    uint32_t *routes, *firsts;
    float *mass;
};

__device__ __forceinline__ void count_routes(const statistics &a, int64_t begin, int64_t end) {
    __shared__ uint32_t routes[MOST_EXPERTS], firsts[MOST_EXPERTS];
    for (int e = (int)threadIdx.x; e < a.experts; e += STATISTICS_THREADS)
        routes[e] = firsts[e] = 0;
    __syncthreads();
    for (int64_t i = begin * a.top_k + threadIdx.x; i < end * a.top_k; i += STATISTICS_THREADS) {
        const int32_t expert = a.choice[i];
        if (expert < 0)
            continue;
        atomicAdd(&routes[expert], 1u);
        if (i % a.top_k == 0)
            atomicAdd(&firsts[expert], 1u);
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < a.experts; e += STATISTICS_THREADS) {
        a.block_routes[(int64_t)blockIdx.x * a.experts + e] = routes[e];
        a.block_firsts[(int64_t)blockIdx.x * a.experts + e] = firsts[e];
    }
}

/* Sums of columns: several rows are read at once where a row has fewer accesses than the block
 * threads; their sums are then folded in halves. */
template <int ACCESS>
__device__ __forceinline__ void sum_columns(const statistics &a, int64_t begin, int64_t end) {
    __shared__ float part[STATISTICS_THREADS][ACCESS];
    const int accesses = a.experts / ACCESS;
    const int columns = accesses < STATISTICS_THREADS ? accesses : STATISTICS_THREADS;
    const int rows = STATISTICS_THREADS / columns;
    const int column = (int)threadIdx.x % columns, row = (int)threadIdx.x / columns;
    for (int first = 0; first < accesses; first += columns) {
        const bool mine = row < rows && first + column < accesses;
        const float *from = a.probability + (int64_t)(first + column) * ACCESS;
        float sum[ACCESS] = {};
        if (mine) {
#pragma unroll 4
            for (int64_t token = begin + row; token < end; token += rows) {
                float value[ACCESS];
                load(from + token * a.experts, value);
#pragma unroll
                for (int c = 0; c < ACCESS; c++)
                    sum[c] += value[c];
            }
        }
#pragma unroll
        for (int c = 0; c < ACCESS; c++)
            part[threadIdx.x][c] = sum[c];
        __syncthreads();
        for (int left = rows; left > 1; left = (left + 1) / 2) {
            const int half = (left + 1) / 2;
            if (row + half < left)
#pragma unroll
                for (int c = 0; c < ACCESS; c++)
                    part[threadIdx.x][c] += part[threadIdx.x + half * columns][c];
            __syncthreads();
        }
        if (mine && row == 0)
            store(a.block_mass + (int64_t)blockIdx.x * a.experts + (first + column) * ACCESS,
                  part[threadIdx.x]);
        __syncthreads();
    }
}

template <int ACCESS>
__global__ void __launch_bounds__(STATISTICS_THREADS) statistics_kernel(const statistics a) {
    const int64_t begin = (int64_t)blockIdx.x * a.block_tokens;
    const int64_t end = begin + a.block_tokens < a.tokens ? begin + a.block_tokens : a.tokens;
    count_routes(a, begin, end);
    sum_columns<ACCESS>(a, begin, end);
}

/* 32 experts per block, their blocks' sums in 16 slices. */
constexpr int TOTAL_SLICES = 16;

__global__ void __launch_bounds__(WARP *TOTAL_SLICES) statistics_total_kernel(const statistics a) {
    __shared__ uint32_t routes[TOTAL_SLICES][WARP], firsts[TOTAL_SLICES][WARP];
    __shared__ float mass[TOTAL_SLICES][WARP];
    const int lane = (int)threadIdx.x % WARP, slice = (int)threadIdx.x / WARP;
    const int expert = (int)blockIdx.x * WARP + lane;
    uint32_t all = 0, first = 0;
    float sum = 0;
    if (expert < a.experts) {
#pragma unroll 4
        for (int b = slice; b < a.blocks; b += TOTAL_SLICES) {
            all += a.block_routes[(int64_t)b * a.experts + expert];
            first += a.block_firsts[(int64_t)b * a.experts + expert];
            sum += a.block_mass[(int64_t)b * a.experts + expert];
        }
    }
    routes[slice][lane] = all;
    firsts[slice][lane] = first;
    mass[slice][lane] = sum;
    __syncthreads();
    if (slice > 0 || expert >= a.experts)
        return;
    for (int s = 1; s < TOTAL_SLICES; s++) {
        all += routes[s][lane];
        first += firsts[s][lane];
        sum += mass[s][lane];
    }
    a.routes[expert] = all;
    a.firsts[expert] = first;
    a.mass[expert] = sum;
}

static void gate_statistics(struct mp_device *device, mp_stream stream, int tokens, int experts,
                            int top_k, const float *probability, const int32_t *choice,
                            uint32_t *routes, uint32_t *firsts, float *mass) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    if (!can_choose(cuda, experts, top_k))
        return;
    int blocks = STATISTICS_VALUES / experts;
    blocks = blocks < STATISTICS_BLOCKS ? blocks : STATISTICS_BLOCKS;
    int block_tokens = (int)pieces_of(tokens, blocks);
    block_tokens = block_tokens > STATISTICS_TOKENS ? block_tokens : STATISTICS_TOKENS;
    blocks = (int)pieces_of(tokens, block_tokens);
    uint32_t *scratch = static_cast<uint32_t *>(cuda->scratch);
    const statistics a = {tokens,
                          experts,
                          top_k,
                          blocks,
                          block_tokens,
                          probability,
                          choice,
                          scratch,
                          scratch + STATISTICS_VALUES,
                          reinterpret_cast<float *>(scratch + 2 * STATISTICS_VALUES),
                          routes,
                          firsts,
                          mass};
    const bool wide = experts % 4 == 0 && are_aligned(ACCESS_BYTES, probability);
    launch(cuda, "gate statistics", stream, blocks, STATISTICS_THREADS,
           wide ? statistics_kernel<4> : statistics_kernel<1>, a);
    launch(cuda, "gate statistics", stream, pieces_of(experts, WARP), WARP * TOTAL_SLICES,
           statistics_total_kernel, a);
}

} // namespace mp

size_t mp_cuda_scratch_gate_statistics(const struct mp_device_limits *limits,
                                       enum mp_element element) {
    (void)limits;
    (void)element;
    return 3 * mp::STATISTICS_VALUES * sizeof(float);
}

void mp_cuda_install_gate_statistics(struct mp_device_operations *operations) {
    operations->gate_statistics = mp::gate_statistics;
}
