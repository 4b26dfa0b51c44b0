/* Token and position embedding.
 *
 * Backward adds a token's rows in the order of the tokens, without atomics, and however often one
 * token occurs (a space is every sixth byte of a text) no thread gets more to do than others: token
 * numbers are sorted, with their places, and every block takes equally many of the sorted places.
 * A run of one token that lies within a block's share goes straight into the table; of one that
 * crosses the border of shares each block leaves its sum in scratch memory, and the block where it
 * begins adds those up in a second kernel.
 *
 * Bytes moved: forward, an element written per element (the tables stay in the cache); backward,
 * two elements read per element, one for each table, and little else beside the tables. */
#include "reference/device/cuda/kernel.cuh"

namespace {

constexpr int ROW_THREADS = 256; /* of a block whose threads share out whole rows */
constexpr int RUN_THREADS = 128; /* of a block that walks over sorted places */
constexpr int SHARE = 256;       /* sorted places of a block */
constexpr int DEPTH = 8;         /* rows that a thread reads at once */
constexpr int SEQUENCES = 4;     /* with a row of the position table at once */

/* `lanes` threads, a power of two, share the rows of one position in SEQUENCES neighbouring
 * sequences, and read the position's row once for all of them. */
template <typename T, int COUNT>
__global__ void __launch_bounds__(ROW_THREADS)
    add_rows(int tokens, int sequence, int width, int lanes, const int32_t *__restrict__ token,
             const float *__restrict__ token_table, const float *__restrict__ position_table,
             T *__restrict__ out) {
    int group = (int)(blockIdx.x * (ROW_THREADS / lanes) + threadIdx.x / lanes);
    int64_t position = group % sequence;
    int64_t row = (int64_t)(group / sequence) * SEQUENCES * sequence + position;
    if (row >= tokens)
        return;
    const float *of_token[SEQUENCES];
#pragma unroll
    for (int k = 0; k < SEQUENCES; k++) {
        int64_t other = row + (int64_t)k * sequence;
        of_token[k] = token_table + (int64_t)token[other < tokens ? other : row] * width;
    }
    const float *of_position = position_table + position * width;
    for (int column = (int)(threadIdx.x % lanes) * COUNT; column < width; column += lanes * COUNT) {
        float a[SEQUENCES][COUNT], b[COUNT];
        mp::load(of_position + column, b);
#pragma unroll
        for (int k = 0; k < SEQUENCES; k++)
            mp::load(of_token[k] + column, a[k]);
#pragma unroll
        for (int k = 0; k < SEQUENCES; k++) {
            int64_t other = row + (int64_t)k * sequence;
            if (other >= tokens)
                continue;
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                a[k][i] += b[i];
            mp::store(out + other * width + column, a[k]);
        }
    }
}

/* table[row] += sum */
template <int COUNT>
__device__ __forceinline__ void add_to(float *table, int64_t row, int width, int column,
                                       const float (&sum)[COUNT]) {
    float value[COUNT];
    mp::load(table + row * width + column, value);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        value[i] += sum[i];
    mp::store(table + row * width + column, value);
}

/* dposition_table[p] += dout[p] + dout[p + sequence] + ... */
template <typename T, int COUNT>
__global__ void __launch_bounds__(ROW_THREADS)
    sum_positions(int tokens, int sequence, int width, int lanes, const T *__restrict__ dout,
                  float *__restrict__ dposition_table) {
    int64_t position = (int64_t)blockIdx.x * (ROW_THREADS / lanes) + threadIdx.x / lanes;
    if (position >= sequence || position >= tokens)
        return;
    for (int column = threadIdx.x % lanes * COUNT; column < width; column += lanes * COUNT) {
        float sum[COUNT] = {};
#pragma unroll 4
        for (int64_t row = position; row < tokens; row += sequence) {
            float value[COUNT];
            mp::load(dout + row * width + column, value);
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                sum[i] += value[i];
        }
        add_to(dposition_table, position, width, column, sum);
    }
}

__global__ void __launch_bounds__(ROW_THREADS) count_up(int tokens, int32_t *place) {
    int64_t i = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x;
    if (i < tokens)
        place[i] = (int32_t)i;
}

/* A block's share of the sorted places, and the columns of a thread. */
struct share {
    int64_t index;  /* of the share */
    int begin, end; /* its places */
    int column;     /* first of the thread's */

    template <int COUNT> static __device__ share mine(int tokens, int width) {
        int tiles = (width + RUN_THREADS * COUNT - 1) / (RUN_THREADS * COUNT);
        share s;
        s.index = blockIdx.x / tiles;
        s.begin = (int)(s.index * SHARE);
        s.end = tokens - s.begin < SHARE ? tokens : s.begin + SHARE;
        s.column = (int)(blockIdx.x % tiles * RUN_THREADS + threadIdx.x) * COUNT;
        return s;
    }
};

/* Sums of the runs of a share.  sorted [tokens]: tokens in ascending order; place [tokens]: where
 * each was; part [shares][2][width]: the sum of a run that began before the share, and of one that
 * begins here and goes on behind it. */
template <typename T, int COUNT>
__global__ void __launch_bounds__(RUN_THREADS)
    sum_runs(int tokens, int width, const int32_t *__restrict__ sorted,
             const int32_t *__restrict__ place, const T *__restrict__ dout,
             float *__restrict__ dtoken_table, float *__restrict__ part) {
    __shared__ int32_t token_of[SHARE + 1], row_of[SHARE];
    share s = share::mine<COUNT>(tokens, width);
    int count = s.end - s.begin;
    for (int i = threadIdx.x; i < count; i += RUN_THREADS) {
        token_of[i] = sorted[s.begin + i];
        row_of[i] = place[s.begin + i];
    }
    if (threadIdx.x == 0)
        token_of[count] = s.end < tokens ? sorted[s.end] : -1;
    bool begun = s.begin > 0 && sorted[s.begin - 1] == sorted[s.begin];
    __syncthreads();
    if (s.column >= width)
        return;

    float *of_share = part + s.index * 2 * width;
    float sum[COUNT] = {};
    for (int first = 0; first < count; first += DEPTH) {
        mp::vector<T, COUNT> value[DEPTH];
#pragma unroll
        for (int i = 0; i < DEPTH; i++)
            if (first + i < count)
                value[i] = *reinterpret_cast<const mp::vector<T, COUNT> *>(
                    dout + (int64_t)row_of[first + i] * width + s.column);
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            int at = first + i;
            if (at >= count)
                continue;
#pragma unroll
            for (int c = 0; c < COUNT; c++)
                sum[c] += mp::to_float(value[i].value[c]);
            bool goes_on = token_of[at + 1] == token_of[at];
            if (goes_on && at + 1 < count)
                continue;
            if (begun)
                mp::store(of_share + s.column, sum);
            else if (goes_on)
                mp::store(of_share + width + s.column, sum);
            else
                add_to(dtoken_table, token_of[at], width, s.column, sum);
            begun = false;
#pragma unroll
            for (int c = 0; c < COUNT; c++)
                sum[c] = 0;
        }
    }
}

/* The last share that begins with `token`, given that share `low` does or is the one before. */
__device__ __forceinline__ int64_t last_share(const int32_t *sorted, int tokens, int64_t low,
                                              int32_t token) {
    int64_t high = ((int64_t)tokens + SHARE - 1) / SHARE; /* none beyond */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (sorted[middle * SHARE] == token)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* dtoken_table += the parts of each run that crosses a border, by the block where it begins. */
template <int COUNT>
__global__ void __launch_bounds__(RUN_THREADS)
    join_runs(int tokens, int width, const int32_t *__restrict__ sorted,
              const float *__restrict__ part, float *__restrict__ dtoken_table) {
    share s = share::mine<COUNT>(tokens, width);
    if (s.end >= tokens || s.column >= width)
        return;
    int32_t token = sorted[s.end - 1];
    bool crosses = sorted[s.end] == token;
    bool begun = s.begin > 0 && sorted[s.begin - 1] == token;
    if (!crosses || begun)
        return;
    int64_t last = last_share(sorted, tokens, s.index + 1, token);
    float sum[COUNT];
    mp::load(part + (s.index * 2 + 1) * width + s.column, sum);
#pragma unroll 8
    for (int64_t other = s.index + 1; other <= last; other++) {
        float value[COUNT];
        mp::load(part + other * 2 * width + s.column, value);
#pragma unroll
        for (int c = 0; c < COUNT; c++)
            sum[c] += value[c];
    }
    add_to(dtoken_table, token, width, s.column, sum);
}

/* Where backward has what in scratch memory, in bytes; sorting has what follows. */
struct layout {
    size_t sorted, places, place, part, sorting;
};

struct layout lay_out(size_t tokens, size_t width) {
    size_t numbers = mp::part_bytes(tokens * sizeof(int32_t));
    size_t parts = (size_t)mp::pieces_of((int64_t)tokens, SHARE) * 2 * width * sizeof(float);
    return {0, numbers, 2 * numbers, 3 * numbers, 3 * numbers + mp::part_bytes(parts)};
}

struct scratch {
    int32_t *sorted, *places, *place;
    float *part;
    char *sorting;
    size_t sorting_bytes;
};

struct scratch scratch_for(const struct mp_cuda *cuda, int tokens, int width) {
    struct layout at = lay_out((size_t)tokens, (size_t)width);
    char *memory = static_cast<char *>(cuda->scratch);
    return {reinterpret_cast<int32_t *>(memory + at.sorted),
            reinterpret_cast<int32_t *>(memory + at.places),
            reinterpret_cast<int32_t *>(memory + at.place),
            reinterpret_cast<float *>(memory + at.part),
            memory + at.sorting,
            cuda->scratch_bytes - at.sorting};
}

/* The tokens in ascending order, and where each of them was: first the earlier one of equals. */
bool sort_tokens(struct mp_cuda *cuda, mp_stream stream, int tokens, const int32_t *token,
                 const struct scratch *scratch) {
    mp::launch(cuda, "sorting tokens", stream, mp::pieces_of(tokens, ROW_THREADS), ROW_THREADS,
               count_up, tokens, scratch->places);
    return mp_cuda_sort(cuda, "sorting tokens", stream, tokens,
                        reinterpret_cast<const uint32_t *>(token), /* none is negative */
                        reinterpret_cast<uint32_t *>(scratch->sorted), scratch->places,
                        scratch->place, scratch->sorting, scratch->sorting_bytes);
}

/* Threads that share a row of so many accesses: a power of two. */
int lanes_for(int accesses) {
    int lanes = 1;
    while (lanes < accesses && lanes < ROW_THREADS)
        lanes *= 2;
    return lanes;
}

template <typename T> struct backward {
    struct mp_cuda *cuda;
    mp_stream stream;
    int tokens, sequence, width;
    const int32_t *token;
    const T *dout;
    float *dtoken_table, *dposition_table;

    template <int COUNT> void queue_in() const {
        int lanes = lanes_for((width + COUNT - 1) / COUNT), at_once = ROW_THREADS / lanes;
        mp::launch(cuda, "gradient of positions", stream, mp::pieces_of(sequence, at_once),
                   ROW_THREADS, sum_positions<T, COUNT>, tokens, sequence, width, lanes, dout,
                   dposition_table);
        struct scratch scratch = scratch_for(cuda, tokens, width);
        if (!sort_tokens(cuda, stream, tokens, token, &scratch))
            return;
        int64_t blocks = mp::pieces_of(tokens, SHARE) * mp::pieces_of(width, RUN_THREADS * COUNT);
        mp::launch(cuda, "gradient of tokens", stream, blocks, RUN_THREADS, sum_runs<T, COUNT>,
                   tokens, width, scratch.sorted, scratch.place, dout, dtoken_table, scratch.part);
        mp::launch(cuda, "gradient of tokens", stream, blocks, RUN_THREADS, join_runs<COUNT>,
                   tokens, width, scratch.sorted, scratch.part, dtoken_table);
    }

    void queue() const {
        bool whole = width % mp::ACCESS_ELEMENTS<T> == 0 &&
                     mp::are_aligned(mp::ACCESS_BYTES, dout, dtoken_table, dposition_table);
        whole ? queue_in<mp::ACCESS_ELEMENTS<T>>() : queue_in<1>();
    }
};

template <typename T, int COUNT>
void queue_forward(struct mp_cuda *cuda, mp_stream stream, int tokens, int sequence, int width,
                   const int32_t *token, const float *token_table, const float *position_table,
                   void *out) {
    if (tokens <= 0)
        return;
    int lanes = lanes_for((width + COUNT - 1) / COUNT), at_once = ROW_THREADS / lanes;
    int64_t groups = mp::pieces_of(tokens, (int64_t)SEQUENCES * sequence) * sequence;
    mp::launch(cuda, "embedding", stream, mp::pieces_of(groups, at_once), ROW_THREADS,
               add_rows<T, COUNT>, tokens, sequence, width, lanes, token, token_table,
               position_table, static_cast<T *>(out));
}

void embedding_forward(struct mp_device *device, mp_stream stream, int tokens, int sequence,
                       int width, const int32_t *token, const float *token_table,
                       const float *position_table, void *out) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    bool whole =
        width % 4 == 0 && mp::are_aligned(mp::ACCESS_BYTES, token_table, position_table, out);
    mp::by_element(cuda, [&](auto element) {
        using T = decltype(element);
        (whole ? queue_forward<T, 4> : queue_forward<T, 1>)(cuda, stream, tokens, sequence, width,
                                                            token, token_table, position_table,
                                                            out);
    });
}

void embedding_backward(struct mp_device *device, mp_stream stream, int tokens, int sequence,
                        int width, const int32_t *token, const void *dout, float *dtoken_table,
                        float *dposition_table) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    if (tokens <= 0)
        return;
    if (tokens > cuda->limits.tokens || width > cuda->limits.width) {
        mp_cuda_refuse(cuda, MP_ELIMIT,
                       "gradient of the embedding of %d tokens of width %d: the device was "
                       "created for up to %d and %d",
                       tokens, width, cuda->limits.tokens, cuda->limits.width);
        return;
    }
    mp::by_element(cuda, [&](auto element) {
        using T = decltype(element);
        backward<T>{cuda,
                    stream,
                    tokens,
                    sequence,
                    width,
                    token,
                    static_cast<const T *>(dout),
                    dtoken_table,
                    dposition_table}
            .queue();
    });
}

} // namespace

void mp_cuda_install_embedding(struct mp_device_operations *operations) {
    operations->embedding_forward = embedding_forward;
    operations->embedding_backward = embedding_backward;
}

size_t mp_cuda_scratch_embedding(const struct mp_device_limits *limits, enum mp_element element) {
    (void)element;
    return lay_out((size_t)limits->tokens, (size_t)limits->width).sorting +
           mp_cuda_sorting_bytes(limits->tokens);
}
