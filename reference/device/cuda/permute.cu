/* Moving token rows to the experts' order and back.
 *
 * All of it is bound by memory.  The least that has to be moved, in bytes per row of D elements of
 * size s, K being the routes of a token:
 *   gather_rows, scatter_rows   2 s D + 4           per row
 *   combine_forward             (K + 2) s D + 8 K   per token; one s D less without a residual
 *   combine_backward            (2 K + 1) s D + 12 K; 4 K s D + 12 K with rows that are shared
 *   one_hot, one_hot_gradient   8 K, and a sector of 32 for every route
 * Rows are read and written in accesses of 16 bytes wherever width and addresses allow it. */
#include "reference/device/cuda/kernel.cuh"

#include <type_traits>

namespace mp {

constexpr int PERMUTE_THREADS = 256;

/* ---- Accesses of rows ----
 *
 * Accesses are dealt to threads regardless of where rows end, so that rows of any width keep all
 * threads busy. */

struct row_accesses {
    uint32_t count;      /* of one row */
    uint64_t reciprocal; /* 2^64 / count, rounded down */
};

static struct row_accesses row_accesses_of(int width, int elements) {
    const uint32_t count = (uint32_t)(width / elements);
    return {count, count ? UINT64_MAX / count : 0};
}

struct access_place {
    int64_t row;
    uint32_t column;
};

/* A division, without the long one of 64 bits: the product is too small by 1 at most. */
__device__ __forceinline__ access_place place_of(const row_accesses &accesses, int64_t access) {
    int64_t row = (int64_t)__umul64hi((uint64_t)access, accesses.reciprocal);
    int64_t column = access - row * accesses.count;
    if (column >= accesses.count) {
        row++;
        column -= accesses.count;
    }
    return {row, (uint32_t)column};
}

/* ---- Copies ---- */

constexpr int LANE_UNITS = 4; /* accesses that a thread has under way */
constexpr int BLOCK_UNITS = PERMUTE_THREADS * LANE_UNITS;

struct row_copy {
    int64_t total; /* accesses of all rows */
    struct row_accesses accesses;
    const void *in;
    const int32_t *index;
    void *out;
};

template <typename Unit, bool SCATTER>
__global__ void __launch_bounds__(PERMUTE_THREADS) copy_rows_kernel(const row_copy a) {
    const int64_t first = (int64_t)blockIdx.x * BLOCK_UNITS + threadIdx.x;
    Unit unit[LANE_UNITS];
    int64_t to[LANE_UNITS];
#pragma unroll
    for (int k = 0; k < LANE_UNITS; k++) {
        const int64_t access = first + k * PERMUTE_THREADS;
        unit[k] = {};
        to[k] = -1;
        if (access < a.total) {
            const access_place at = place_of(a.accesses, access);
            const int64_t other = a.index[at.row];
            const int64_t from = SCATTER ? at.row : other;
            if (from >= 0)
                unit[k] = static_cast<const Unit *>(a.in)[from * a.accesses.count + at.column];
            to[k] = (SCATTER ? other : at.row) * a.accesses.count + at.column;
        }
    }
#pragma unroll
    for (int k = 0; k < LANE_UNITS; k++)
        if (to[k] >= 0)
            static_cast<Unit *>(a.out)[to[k]] = unit[k];
}

template <bool SCATTER>
static void copy_rows(struct mp_cuda *cuda, mp_stream stream, const char *doing, int rows,
                      int width, const void *in, const int32_t *index, void *out) {
    const size_t element = mp_cuda_element_bytes(cuda), bytes = (size_t)width * element;
    const auto with_units = [&](auto unit) {
        using Unit = decltype(unit);
        const row_accesses accesses = row_accesses_of(width, (int)(sizeof(Unit) / element));
        const row_copy a = {(int64_t)rows * accesses.count, accesses, in, index, out};
        launch(cuda, doing, stream, pieces_of(a.total, BLOCK_UNITS), PERMUTE_THREADS,
               copy_rows_kernel<Unit, SCATTER>, a);
    };
    const auto fits = [&](size_t unit) { return bytes % unit == 0 && are_aligned(unit, in, out); };
    if (fits(16))
        with_units(vector<uint32_t, 4>());
    else if (fits(4))
        with_units(uint32_t());
    else
        with_units(uint16_t());
}

static void gather_rows(struct mp_device *device, mp_stream stream, int rows, int width,
                        const void *in, const int32_t *index, void *out) {
    copy_rows<false>(mp_cuda_of(device), stream, "gathering rows", rows, width, in, index, out);
}

static void scatter_rows(struct mp_device *device, mp_stream stream, int rows, int width,
                         const void *in, const int32_t *index, void *out) {
    copy_rows<true>(mp_cuda_of(device), stream, "scattering rows", rows, width, in, index, out);
}

/* ---- Combining ---- */

struct combination {
    int tokens, top_k;
    struct row_accesses accesses;
    int lanes; /* backward: threads per token, a power of two up to 32 */
    const void *in;
    const int32_t *position;
    const float *weight;
    const void *residual;
    const void *dout;
    void *out;      /* backward: din */
    int begin, end; /* backward: of a token's routes, those that are handed out */
    float *dweight;
};

static combination combination_of(int tokens, int top_k, int width, int elements, const void *in,
                                  const int32_t *position, const float *weight) {
    combination a = {};
    a.tokens = tokens;
    a.top_k = top_k;
    a.accesses = row_accesses_of(width, elements);
    a.in = in;
    a.position = position;
    a.weight = weight;
    return a;
}

/* Neighbouring elements as they are in memory: converted when they are used, so that those under
 * way take few registers. */
template <typename T, int COUNT>
__device__ __forceinline__ vector<T, COUNT> unit_of(const void *rows, int64_t unit) {
    return static_cast<const vector<T, COUNT> *>(rows)[unit];
}

/* Up to ROUTES neighbouring routes of a token: first unit of their rows, -1 for none. */
template <int ROUTES> struct some_routes {
    int64_t row[ROUTES];
    float weight[ROUTES];
};

template <int ROUTES>
__device__ __forceinline__ some_routes<ROUTES> routes_of(const combination &a, int64_t token,
                                                         int first) {
    some_routes<ROUTES> routes;
#pragma unroll
    for (int j = 0; j < ROUTES; j++) {
        const int64_t route = token * a.top_k + first + j;
        const bool there = token < a.tokens && first + j < a.top_k;
        const int32_t position = there ? a.position[route] : -1;
        routes.row[j] = position < 0 ? -1 : (int64_t)position * a.accesses.count;
        routes.weight[j] = a.weight && position >= 0 ? a.weight[route] : 1.0f;
    }
    return routes;
}

/* A thread per access of the result, which is written once, rounded once; routes are added in the
 * order of j. */
template <typename T, int COUNT, int ROUTES>
__global__ void __launch_bounds__(PERMUTE_THREADS) combine_forward_kernel(const combination a) {
    const int64_t access = (int64_t)blockIdx.x * PERMUTE_THREADS + threadIdx.x;
    const access_place at = place_of(a.accesses, access);
    const int64_t token = at.row;
    if (token >= a.tokens)
        return;

    float sum[COUNT] = {};
    if (a.residual) {
        const vector<T, COUNT> residual = unit_of<T, COUNT>(a.residual, access);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            sum[i] = to_float(residual.value[i]);
    }
#pragma unroll 1
    for (int j = 0; j < a.top_k; j += ROUTES) {
        const some_routes<ROUTES> routes = routes_of<ROUTES>(a, token, j);
        vector<T, COUNT> in[ROUTES] = {};
#pragma unroll
        for (int r = 0; r < ROUTES; r++)
            if (routes.row[r] >= 0)
                in[r] = unit_of<T, COUNT>(a.in, routes.row[r] + at.column);
#pragma unroll
        for (int r = 0; r < ROUTES; r++) {
            if (routes.row[r] < 0)
                continue;
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                sum[i] = fmaf(routes.weight[r], to_float(in[r].value[i]), sum[i]);
        }
    }
    store(static_cast<T *>(a.out) + access * COUNT, sum);
}

/* UNITS accesses of a token, `lanes` apart, of all routes; adds to the routes' products, and to
 * `din` if rows are SHARED.  All are read before any is written: `din` may be `in`. */
template <typename T, int COUNT, int ROUTES, bool SHARED, int UNITS>
__device__ __forceinline__ void scale_units(const combination &a, int64_t token, uint32_t column,
                                            const some_routes<ROUTES> &routes,
                                            float (&product)[ROUTES]) {
    vector<T, COUNT> dout[UNITS] = {}, in[UNITS][ROUTES] = {};
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const uint32_t at = column + u * a.lanes;
        if (at >= a.accesses.count)
            continue;
        dout[u] = unit_of<T, COUNT>(a.dout, token * a.accesses.count + at);
#pragma unroll
        for (int r = 0; r < ROUTES; r++)
            if (routes.row[r] >= 0)
                in[u][r] = unit_of<T, COUNT>(a.in, routes.row[r] + at);
    }
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const uint32_t at = column + u * a.lanes;
#pragma unroll
        for (int r = 0; r < ROUTES; r++) {
            if (at >= a.accesses.count || routes.row[r] < 0)
                continue;
            float scaled[COUNT];
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                const float gradient = to_float(dout[u].value[i]);
                product[r] = fmaf(to_float(in[u][r].value[i]), gradient, product[r]);
                scaled[i] = routes.weight[r] * gradient;
            }
            if constexpr (SHARED) {
                const vector<T, COUNT> before = unit_of<T, COUNT>(a.out, routes.row[r] + at);
#pragma unroll
                for (int i = 0; i < COUNT; i++)
                    scaled[i] += to_float(before.value[i]);
            }
            store(static_cast<T *>(a.out) + (routes.row[r] + at) * COUNT, scaled);
        }
    }
}

/* A group of lanes per token, so that dout is read once for ROUTES routes. */
template <typename T, int COUNT, int ROUTES, bool SHARED>
__global__ void __launch_bounds__(PERMUTE_THREADS) combine_backward_kernel(const combination a) {
    constexpr int UNITS = ROUTES > 2 ? 1 : 2;
    const uint32_t lane = threadIdx.x % a.lanes;
    const int64_t token = (int64_t)blockIdx.x * (PERMUTE_THREADS / a.lanes) + threadIdx.x / a.lanes;
#pragma unroll 1
    for (int j = a.begin; j < a.end; j += ROUTES) {
        const some_routes<ROUTES> routes = routes_of<ROUTES>(a, token, j);
        float product[ROUTES] = {};
        if (token < a.tokens)
            for (uint32_t column = lane; column < a.accesses.count; column += UNITS * a.lanes)
                scale_units<T, COUNT, ROUTES, SHARED, UNITS>(a, token, column, routes, product);
#pragma unroll
        for (int r = 0; r < ROUTES; r++) {
            for (int distance = a.lanes / 2; distance > 0; distance /= 2)
                product[r] += __shfl_xor_sync(ALL_LANES, product[r], distance);
            if (lane == 0 && token < a.tokens && j + r < a.end)
                a.dweight[token * a.top_k + j + r] = product[r];
        }
    }
}

/* work(T(), COUNT, ROUTES): elements, how many of them are one access, routes at once; the last two
 * as types. */
template <typename Work>
static void by_access(const struct mp_cuda *cuda, int width, int top_k, bool aligned, Work work) {
    by_element(cuda, [&](auto element) {
        using T = decltype(element);
        constexpr int WIDE = ACCESS_ELEMENTS<T>;
        const auto with_count = [&](auto count) {
            if (top_k == 1)
                work(element, count, std::integral_constant<int, 1>());
            else if (top_k == 2)
                work(element, count, std::integral_constant<int, 2>());
            else
                work(element, count, std::integral_constant<int, 4>());
        };
        if (aligned && width % WIDE == 0)
            with_count(std::integral_constant<int, WIDE>());
        else
            with_count(std::integral_constant<int, 1>());
    });
}

static void combine_forward(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                            int width, const void *in, const int32_t *position, const float *weight,
                            const void *residual, void *out) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    const bool aligned = are_aligned(ACCESS_BYTES, in, residual, out);
    by_access(cuda, width, top_k, aligned, [&](auto element, auto count, auto routes) {
        using T = decltype(element);
        constexpr int COUNT = decltype(count)::value, ROUTES = decltype(routes)::value;
        combination a = combination_of(tokens, top_k, width, COUNT, in, position, weight);
        a.residual = residual;
        a.out = out;
        const int64_t blocks = pieces_of((int64_t)tokens * a.accesses.count, PERMUTE_THREADS);
        launch(cuda, "combining", stream, blocks, PERMUTE_THREADS,
               combine_forward_kernel<T, COUNT, ROUTES>, a);
    });
}

/* Shared rows one choice after the other: within one, no two groups of lanes meet in a row. */
static void combine_backward(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                             int width, const void *in, const int32_t *position,
                             const float *weight, const void *dout, bool shared, void *din,
                             float *dweight) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    const bool aligned = are_aligned(ACCESS_BYTES, in, dout, din);
    const int at_once = shared ? 1 : top_k;
    by_access(cuda, width, at_once, aligned, [&](auto element, auto count, auto routes) {
        using T = decltype(element);
        constexpr int COUNT = decltype(count)::value, ROUTES = decltype(routes)::value;
        combination a = combination_of(tokens, top_k, width, COUNT, in, position, weight);
        a.lanes = 1;
        while (a.lanes < WARP && (uint32_t)a.lanes < a.accesses.count)
            a.lanes *= 2;
        a.dout = dout;
        a.out = din;
        a.dweight = dweight;
        const int64_t groups = pieces_of(tokens, PERMUTE_THREADS / a.lanes);
        for (; a.begin < top_k; a.begin = a.end) {
            a.end = a.begin + at_once;
            if (!shared)
                launch(cuda, "combining, backward", stream, groups, PERMUTE_THREADS,
                       combine_backward_kernel<T, COUNT, ROUTES, false>, a);
            else if constexpr (ROUTES == 1)
                launch(cuda, "combining, backward", stream, groups, PERMUTE_THREADS,
                       combine_backward_kernel<T, COUNT, 1, true>, a);
        }
    });
}

/* ---- One-hot matrices ---- */

template <typename T>
__global__ void __launch_bounds__(PERMUTE_THREADS)
    one_hot_kernel(int64_t routes, int tokens, int top_k, const int32_t *position,
                   const float *weight, T *matrix) {
    const int64_t i = (int64_t)blockIdx.x * PERMUTE_THREADS + threadIdx.x;
    if (i < routes && position[i] >= 0)
        matrix[(int64_t)position[i] * tokens + i / top_k] = from_float<T>(weight ? weight[i] : 1);
}

__global__ void __launch_bounds__(PERMUTE_THREADS)
    one_hot_gradient_kernel(int64_t routes, int tokens, int top_k, const int32_t *position,
                            const float *dmatrix, float *dweight) {
    const int64_t i = (int64_t)blockIdx.x * PERMUTE_THREADS + threadIdx.x;
    if (i < routes)
        dweight[i] = position[i] < 0 ? 0 : dmatrix[(int64_t)position[i] * tokens + i / top_k];
}

static void one_hot(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                    const int32_t *position, const float *weight, void *matrix) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    const int64_t routes = (int64_t)tokens * top_k;
    by_element(cuda, [&](auto element) {
        using T = decltype(element);
        launch(cuda, "a one-hot matrix", stream, pieces_of(routes, PERMUTE_THREADS),
               PERMUTE_THREADS, one_hot_kernel<T>, routes, tokens, top_k, position, weight,
               static_cast<T *>(matrix));
    });
}

static void one_hot_gradient(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                             const int32_t *position, const float *dmatrix, float *dweight) {
    const int64_t routes = (int64_t)tokens * top_k;
    launch(mp_cuda_of(device), "a one-hot matrix, backward", stream,
           pieces_of(routes, PERMUTE_THREADS), PERMUTE_THREADS, one_hot_gradient_kernel, routes,
           tokens, top_k, position, dmatrix, dweight);
}

} // namespace mp

void mp_cuda_install_permute(struct mp_device_operations *operations) {
    operations->gather_rows = mp::gather_rows;
    operations->scatter_rows = mp::scatter_rows;
    operations->combine_forward = mp::combine_forward;
    operations->combine_backward = mp::combine_backward;
    operations->one_hot = mp::one_hot;
    operations->one_hot_gradient = mp::one_hot_gradient;
}
