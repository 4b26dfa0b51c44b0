/* Routes: the order in which they are served, their places in the send buffer, and choices under a
 * limit.
 *
 * Places follow from counts: how many routes of an expert come before one.  Blocks count theirs,
 * the counts are summed over the blocks before, and within a block routes are counted in order, so
 * that nothing depends on which thread is faster.  The least that has to be moved, in bytes per
 * route: 8 for route_positions without an order (choice read, position written) and 4 per row;
 * what is sorted is read and written once per digit. */
#include "reference/device/cuda/expert_row.cuh"

namespace mp {

constexpr int ROUTE_THREADS = 256;
constexpr int ROUTE_WARPS = ROUTE_THREADS / WARP;
constexpr int LANE_ROUTES = 4; /* routes of a thread where blocks count */
constexpr int BLOCK_ROUTES = ROUTE_THREADS * LANE_ROUTES;

static int64_t route_blocks(int64_t items) {
    return pieces_of(items, ROUTE_THREADS);
}

/* ---- Sorting ---- */

/* Scratch memory of sorting: arrays for as many items as the limits allow, then what the library
 * wants.  SORT_PIECES counts the arrays, `inside` twice and `outgoing` as one. */
constexpr size_t SORT_PIECES = 7;
struct sorting {
    uint32_t *key, *sorted_key;
    int32_t *item, *sorted_item;
    int32_t *inside;    /* [items][2] choices among inside experts */
    uint32_t *outgoing; /* tokens whose first choice is outside */
    void *temporary;
    size_t temporary_bytes;
};

static size_t sorting_piece(const struct mp_device_limits *limits) {
    return part_bytes(((size_t)limits->tokens + 1) * sizeof(int32_t));
}

static struct sorting sorting_of(const struct mp_cuda *cuda) {
    const size_t piece = sorting_piece(&cuda->limits);
    char *at = static_cast<char *>(cuda->scratch);
    struct sorting sorting;
    sorting.key = reinterpret_cast<uint32_t *>(at);
    sorting.sorted_key = reinterpret_cast<uint32_t *>(at + piece);
    sorting.item = reinterpret_cast<int32_t *>(at + 2 * piece);
    sorting.sorted_item = reinterpret_cast<int32_t *>(at + 3 * piece);
    sorting.outgoing = reinterpret_cast<uint32_t *>(at + 4 * piece);
    sorting.inside = reinterpret_cast<int32_t *>(at + 5 * piece);
    sorting.temporary = at + SORT_PIECES * piece;
    sorting.temporary_bytes = cuda->scratch_bytes - SORT_PIECES * piece;
    return sorting;
}

/* Ascending and stable. */
static void sort_items(struct mp_cuda *cuda, mp_stream stream, const char *doing, int count,
                       struct sorting *sorting, int32_t *sorted) {
    if (count > 0)
        mp_cuda_sort(cuda, doing, stream, count, sorting->key, sorting->sorted_key, sorting->item,
                     sorted, sorting->temporary, sorting->temporary_bytes);
}

/* Unsigned keys in the falling order of floats. */
__device__ __forceinline__ uint32_t falling_key(float value) {
    return ~rising_key(value);
}

/* `probability` NULL: at random. */
__global__ void __launch_bounds__(ROUTE_THREADS)
    route_keys_kernel(int64_t routes, int top_k, int experts, const float *probability,
                      const int32_t *choice, uint64_t seed, uint32_t *key, int32_t *item) {
    const int64_t i = (int64_t)blockIdx.x * ROUTE_THREADS + threadIdx.x;
    if (i >= routes)
        return;
    if (probability)
        key[i] = falling_key(probability[i / top_k * experts + expert_of(choice[i])]);
    else
        key[i] = (uint32_t)(mixed(seed + (uint64_t)i * SPLITMIX_STEP) >> 32);
    item[i] = (int32_t)i;
}

/* All first choices, then all second ones, ...; with a top_k of 1 the routes as they are. */
__global__ void __launch_bounds__(ROUTE_THREADS)
    order_by_choice_kernel(int64_t tokens, int top_k, int32_t *order) {
    const int64_t i = (int64_t)blockIdx.x * ROUTE_THREADS + threadIdx.x;
    if (i < tokens * top_k)
        order[i] = (int32_t)(i % tokens * top_k + i / tokens);
}

static bool fits(struct mp_cuda *cuda, const char *what, int64_t routes) {
    if (routes > cuda->limits.tokens)
        mp_cuda_refuse(cuda, MP_ELIMIT, "%s of %lld routes: the device was created for up to %d",
                       what, (long long)routes, cuda->limits.tokens);
    return routes <= cuda->limits.tokens;
}

static void sort_routes(struct mp_device *device, mp_stream stream, int tokens, int top_k,
                        int experts, enum mp_route_sort sort, const float *probability,
                        const int32_t *choice, uint64_t seed, int32_t *order) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    const int64_t routes = (int64_t)tokens * top_k;
    if (sort == MP_SORT_BY_CHOICE) {
        launch(cuda, "sorting routes", stream, route_blocks(routes), ROUTE_THREADS,
               order_by_choice_kernel, tokens, top_k, order);
        return;
    }
    if (!fits(cuda, "sorting", routes)) { /* what is read as an index is one */
        launch(cuda, "sorting routes", stream, route_blocks(routes), ROUTE_THREADS,
               order_by_choice_kernel, routes, 1, order);
        return;
    }
    struct sorting sorting = sorting_of(cuda);
    const bool at_random = sort == MP_SORT_AT_RANDOM;
    launch(cuda, "sorting routes", stream, route_blocks(routes), ROUTE_THREADS, route_keys_kernel,
           routes, top_k, experts, at_random ? nullptr : probability, choice, seed, sorting.key,
           sorting.item);
    sort_items(cuda, stream, "sorting routes", (int)routes, &sorting, order);
}

/* ---- Positions ---- */

struct positions {
    int routes, top_k, experts, blocks;
    const int32_t *choice, *order;
    /* Parts: in `part_end` counts are replaced by how many routes of the expert its parts up to and
     * with this one take. */
    const int *part_begin, *part_row;
    int *part_end;
    int32_t *before; /* [blocks][experts] routes of a block, then of all blocks before */
    int32_t *position, *row_token;
};

__device__ __forceinline__ int32_t route_at(const positions &a, int64_t place) {
    return a.order ? a.order[place] : (int32_t)place;
}

__global__ void __launch_bounds__(ROUTE_THREADS) count_routes_kernel(const positions a) {
    __shared__ int32_t count[MOST_EXPERTS];
    for (int e = (int)threadIdx.x; e < a.experts; e += ROUTE_THREADS)
        count[e] = 0;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < LANE_ROUTES; r++) {
        const int64_t place = (int64_t)blockIdx.x * BLOCK_ROUTES + r * ROUTE_THREADS + threadIdx.x;
        const int32_t expert = place < a.routes ? a.choice[route_at(a, place)] : -1;
        if (expert >= 0)
            atomicAdd(&count[expert], 1);
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < a.experts; e += ROUTE_THREADS)
        a.before[(int64_t)blockIdx.x * a.experts + e] = count[e];
}

/* 32 experts per block, the blocks of routes in 16 slices. */
constexpr int SCAN_SLICES = 16;

__device__ __forceinline__ void scan_blocks(const positions &a) {
    __shared__ int32_t part[SCAN_SLICES][WARP];
    const int lane = (int)threadIdx.x % WARP, slice = (int)threadIdx.x / WARP;
    const int expert = (int)blockIdx.x * WARP + lane;
    const int length = (a.blocks + SCAN_SLICES - 1) / SCAN_SLICES;
    const int begin = slice * length;
    const int end = begin + length < a.blocks ? begin + length : a.blocks;
    int32_t *before = a.before + expert;
    int32_t sum = 0;
    if (expert < a.experts) {
#pragma unroll 4
        for (int b = begin; b < end; b++)
            sum += before[(int64_t)b * a.experts];
    }
    part[slice][lane] = sum;
    __syncthreads();
    sum = 0;
    for (int s = 0; s < slice; s++)
        sum += part[s][lane];
    if (expert < a.experts) {
#pragma unroll 4
        for (int b = begin; b < end; b++) {
            const int32_t here = before[(int64_t)b * a.experts];
            before[(int64_t)b * a.experts] = sum;
            sum += here;
        }
    }
}

/* No expert has more routes than an int counts: what is beyond need not be told apart. */
__device__ __forceinline__ uint32_t held_sum(uint32_t a, uint32_t b) {
    return a + b < INT32_MAX ? a + b : INT32_MAX;
}

/* By one warp. */
__device__ __forceinline__ void scan_parts(const positions &a, int expert) {
    const int lane = (int)threadIdx.x % WARP;
    const int begin = expert < a.experts ? a.part_begin[expert] : 0;
    const int end = expert < a.experts ? a.part_begin[expert + 1] : 0;
    uint32_t carried = 0;
    for (int first = begin; first < end; first += WARP) {
        uint32_t sum = first + lane < end ? (uint32_t)a.part_end[first + lane] : 0;
#pragma unroll
        for (int distance = 1; distance < WARP; distance *= 2) {
            const uint32_t other = __shfl_up_sync(ALL_LANES, sum, distance);
            if (lane >= distance)
                sum = held_sum(sum, other);
        }
        sum = held_sum(sum, carried);
        if (first + lane < end)
            a.part_end[first + lane] = (int)sum;
        carried = __shfl_sync(ALL_LANES, sum, WARP - 1);
    }
}

__global__ void __launch_bounds__(WARP *SCAN_SLICES) scan_routes_kernel(const positions a) {
    scan_blocks(a);
    for (int e = (int)threadIdx.x / WARP; e < WARP; e += SCAN_SLICES)
        scan_parts(a, (int)blockIdx.x * WARP + e);
}

/* Row of route number `rank` of an expert, or -1. */
__device__ __forceinline__ int32_t row_of_rank(const positions &a, int expert, int rank) {
    const int begin = a.part_begin[expert], end = a.part_begin[expert + 1];
    int low = begin, high = end; /* the first part that ends behind `rank` is in low .. high */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (a.part_end[middle] > rank)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == end)
        return -1;
    return a.part_row[low] + rank - (low > begin ? a.part_end[low - 1] : 0);
}

/* Each warp has neighbouring routes and counts them in order; `expert` -1 is none.  `count` is the
 * warp's own. */
__device__ __forceinline__ int rank_in_warp(int expert, uint16_t *count) {
    const int lane = (int)threadIdx.x % WARP;
    const unsigned same = __match_any_sync(ALL_LANES, expert);
    const int before = __popc(same & ((1u << lane) - 1));
    const int counted = expert < 0 ? 0 : count[expert];
    __syncwarp();
    if (expert >= 0 && before == 0)
        count[expert] = (uint16_t)(counted + __popc(same));
    __syncwarp();
    return counted + before;
}

__global__ void __launch_bounds__(ROUTE_THREADS) place_routes_kernel(const positions a) {
    __shared__ uint16_t count[ROUTE_WARPS][MOST_EXPERTS];
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    for (int e = lane; e < a.experts; e += WARP)
        count[warp][e] = 0;
    __syncwarp();
    const int64_t first = (int64_t)blockIdx.x * BLOCK_ROUTES + warp * LANE_ROUTES * WARP + lane;
    int32_t route[LANE_ROUTES], expert[LANE_ROUTES];
    int rank[LANE_ROUTES];
#pragma unroll
    for (int r = 0; r < LANE_ROUTES; r++) {
        route[r] = first + r * WARP < a.routes ? route_at(a, first + r * WARP) : -1;
        expert[r] = route[r] < 0 ? -1 : a.choice[route[r]];
    }
#pragma unroll
    for (int r = 0; r < LANE_ROUTES; r++)
        rank[r] = rank_in_warp(expert[r], count[warp]);

    __syncthreads();
    for (int e = (int)threadIdx.x; e < a.experts; e += ROUTE_THREADS) {
        int sum = 0;
        for (int w = 0; w < ROUTE_WARPS; w++) {
            const int here = count[w][e];
            count[w][e] = (uint16_t)sum;
            sum += here;
        }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < LANE_ROUTES; r++) {
        if (route[r] < 0)
            continue;
        if (expert[r] < 0) {
            a.position[route[r]] = -1;
            continue;
        }
        rank[r] += count[warp][expert[r]] + a.before[(int64_t)blockIdx.x * a.experts + expert[r]];
        const int32_t row = row_of_rank(a, expert[r], rank[r]);
        a.position[route[r]] = row;
        if (row >= 0)
            a.row_token[row] = route[r] / a.top_k;
    }
}

/* The parts in device memory; false, and a failure kept, if there are too many of them. */
static bool upload_parts(struct mp_cuda *cuda, cudaStream_t stream, const int *part_begin,
                         const int *part_count, const int *part_row, struct positions *a) {
    const size_t begins = (size_t)a->experts + 1, parts = (size_t)part_begin[a->experts];
    const void *const host[] = {part_begin, part_count, part_row};
    const size_t bytes[] = {begins * sizeof(int), parts * sizeof(int), parts * sizeof(int)};
    int *const uploaded = static_cast<int *>(mp_cuda_upload(cuda, stream, 3, host, bytes));
    if (!uploaded)
        return false;
    a->part_begin = uploaded;
    a->part_end = uploaded + begins;
    a->part_row = a->part_end + parts;
    return true;
}

static bool can_place(struct mp_cuda *cuda, int64_t routes, int experts) {
    const int most = cuda->limits.experts < MOST_EXPERTS ? cuda->limits.experts : MOST_EXPERTS;
    if (experts > most)
        mp_cuda_refuse(cuda, MP_ELIMIT,
                       "route positions of %d experts: the device was created for up to %d",
                       experts, most);
    return experts <= most && fits(cuda, "positions", routes);
}

static void route_positions(struct mp_device *device, mp_stream stream, int routes, int top_k,
                            int experts, const int32_t *choice, const int32_t *order,
                            const int *part_begin, const int *part_count, const int *part_row,
                            int rows, int32_t *position, int32_t *row_token) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    const cudaStream_t native = mp_cuda_stream(cuda, stream);
    if (rows > 0)
        mp_cuda_note(cuda, "route positions",
                     cudaMemsetAsync(row_token, 0xff, (size_t)rows * sizeof *row_token, native));
    if (routes == 0)
        return;
    struct positions a = {};
    a.routes = routes;
    a.top_k = top_k;
    a.experts = experts;
    a.blocks = (int)pieces_of(routes, BLOCK_ROUTES);
    a.choice = choice;
    a.order = order;
    a.before = static_cast<int32_t *>(cuda->scratch);
    a.position = position;
    a.row_token = row_token;
    if (!can_place(cuda, routes, experts) ||
        !upload_parts(cuda, native, part_begin, part_count, part_row, &a)) {
        /* What is read as an index is one. */
        mp_cuda_note(cuda, "route positions",
                     cudaMemsetAsync(position, 0xff, (size_t)routes * sizeof *position, native));
        return;
    }
    launch(cuda, "route positions", stream, a.blocks, ROUTE_THREADS, count_routes_kernel, a);
    launch(cuda, "route positions", stream, pieces_of(experts, WARP), WARP * SCAN_SLICES,
           scan_routes_kernel, a);
    launch(cuda, "route positions", stream, a.blocks, ROUTE_THREADS, place_routes_kernel, a);
}

/* ---- Choices under a limit ---- */

struct limited {
    int tokens, experts, limit;
    bool possible;
    uint32_t inside[MOST_EXPERTS / 32]; /* one bit per expert */
    const float *logits;
    int32_t *choice;
    struct sorting sorting;
};

__device__ __forceinline__ bool is_inside(const limited &a, int expert) {
    return a.inside[expert / 32] >> expert % 32 & 1;
}

/* The two largest; where there are fewer than two, expert 0 stands in: choices are indices. */
template <class Layout>
__device__ __forceinline__ void two_largest(uint32_t (&key)[Layout::VALUES], candidate (&best)[2]) {
    best[0] = largest<Layout>(key);
    leave_out<Layout>(best[0].expert, key);
    best[1] = largest<Layout>(key);
#pragma unroll
    for (int j = 0; j < 2; j++)
        best[j].expert = best[j].key ? best[j].expert : 0;
}

/* Leaves the plain choices, those among inside experts, and a key of every token; 0xffffffff, which
 * is no number's, where the first choice is inside. */
template <class Layout>
__global__ void __launch_bounds__(ROUTE_THREADS) limit_keys_kernel(const limited a) {
    const int64_t token =
        (int64_t)blockIdx.x * (ROUTE_THREADS / Layout::LANES) + threadIdx.x / Layout::LANES;
    const int experts = token < a.tokens ? a.experts : 0;
    float value[Layout::VALUES];
    uint32_t key[Layout::VALUES];
    candidate all[2], inside[2];
    load_row<Layout>(a.logits + token * a.experts, experts, 0, value);
#pragma unroll
    for (int i = 0; i < Layout::VALUES; i++)
        key[i] = Layout::expert(i) < experts ? rising_key(value[i]) : 0;
    two_largest<Layout>(key, all);
#pragma unroll
    for (int i = 0; i < Layout::VALUES; i++)
        key[i] = Layout::expert(i) < experts && is_inside(a, Layout::expert(i))
                     ? rising_key(value[i])
                     : 0;
    two_largest<Layout>(key, inside);

    const bool writes = token < a.tokens && Layout::lane() == 0;
    const bool leaves = writes && !is_inside(a, all[0].expert);
    const unsigned leaving = __ballot_sync(ALL_LANES, leaves);
    if (writes) {
        a.choice[2 * token] = all[0].expert;
        a.choice[2 * token + 1] = all[1].expert;
    }
    if (!a.possible)
        return;
    if (writes) {
        a.sorting.inside[2 * token] = inside[0].expert;
        a.sorting.inside[2 * token + 1] = inside[1].expert;
        a.sorting.key[token] = leaves ? ~all[0].key : 0xffffffffu;
        a.sorting.item[token] = (int32_t)token;
    }
    if (threadIdx.x % WARP == 0 && leaving)
        atomicAdd(a.sorting.outgoing, (uint32_t)__popc(leaving));
}

/* Tokens as sorted, of which the first `limit` keep their first choice, in the second place. */
__global__ void __launch_bounds__(ROUTE_THREADS) limit_choices_kernel(const limited a) {
    const int64_t i = (int64_t)blockIdx.x * ROUTE_THREADS + threadIdx.x;
    if (i >= a.tokens || *a.sorting.outgoing <= (uint32_t)a.limit)
        return;
    const int64_t token = a.sorting.sorted_item[i];
    const int32_t first = a.choice[2 * token];
    a.choice[2 * token] = a.sorting.inside[2 * token];
    a.choice[2 * token + 1] = i < a.limit ? first : a.sorting.inside[2 * token + 1];
}

static bool may_limit(struct mp_cuda *cuda, int tokens, int insiders, int limit) {
    if (insiders < 2 || limit < 0) {
        mp_cuda_refuse(
            cuda, MP_EINVAL,
            "gate: %d experts inside and at most %d tokens outside; 2 and 0 are the least",
            insiders, limit);
        return false;
    }
    return fits(cuda, "limiting the choices", tokens);
}

/* Choices are indices: where the limit is impossible they are the plain ones. */
static void limit_choices(struct mp_device *device, mp_stream stream, int tokens, int experts,
                          const float *logits, const bool inside[], int limit, int32_t *choice) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    const cudaStream_t native = mp_cuda_stream(cuda, stream);
    if (experts > MOST_EXPERTS) {
        mp_cuda_refuse(cuda, MP_ELIMIT, "gate: a limit on choices among %d experts (at most %d)",
                       experts, MOST_EXPERTS);
        mp_cuda_note(cuda, "limiting the choices",
                     cudaMemsetAsync(choice, 0, 2 * (size_t)tokens * sizeof *choice, native));
        return;
    }
    struct limited a = {};
    int insiders = 0;
    for (int e = 0; e < experts; e++) {
        a.inside[e / 32] |= (uint32_t)inside[e] << e % 32;
        insiders += inside[e];
    }
    a.tokens = tokens;
    a.experts = experts;
    a.limit = limit;
    a.possible = may_limit(cuda, tokens, insiders, limit);
    a.logits = logits;
    a.choice = choice;
    a.sorting = sorting_of(cuda);
    if (a.possible)
        mp_cuda_note(cuda, "limiting the choices",
                     cudaMemsetAsync(a.sorting.outgoing, 0, sizeof *a.sorting.outgoing, native));
    by_row(experts, are_aligned(ACCESS_BYTES, logits), [&](auto layout) {
        using Layout = decltype(layout);
        launch(cuda, "limiting the choices", stream,
               pieces_of(tokens, ROUTE_THREADS / Layout::LANES), ROUTE_THREADS,
               limit_keys_kernel<Layout>, a);
    });
    if (!a.possible)
        return;
    sort_items(cuda, stream, "limiting the choices", tokens, &a.sorting, a.sorting.sorted_item);
    launch(cuda, "limiting the choices", stream, route_blocks(tokens), ROUTE_THREADS,
           limit_choices_kernel, a);
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

} // namespace mp

size_t mp_cuda_scratch_routes(const struct mp_device_limits *limits, enum mp_element element) {
    (void)element;
    const size_t blocks = (size_t)mp::pieces_of(limits->tokens, mp::BLOCK_ROUTES);
    const size_t sorting = mp::part_bytes(mp_cuda_sorting_bytes(limits->tokens));
    return mp::larger(mp::SORT_PIECES * mp::sorting_piece(limits) + sorting,
                      blocks * (size_t)limits->experts * sizeof(int32_t));
}

void mp_cuda_install_routes(struct mp_device_operations *operations) {
    operations->sort_routes = mp::sort_routes;
    operations->route_positions = mp::route_positions;
    operations->limit_choices = mp::limit_choices;
}
