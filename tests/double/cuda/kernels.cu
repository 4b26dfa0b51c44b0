#include <cub/cub.cuh>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels.h"
#include "reference/device/cuda/mma.cuh"

namespace {

constexpr unsigned ALL = 0xffffffffu;

template <typename... Parameters, typename... Arguments>
cudaError_t launch(cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(Parameters...),
                   Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

__device__ __forceinline__ int index_of_thread() {
    return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

__global__ void number(int *out) {
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned at = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
    out[at] = static_cast<int>(at);
}

__global__ void __launch_bounds__(256) add(int count, int value, int *__restrict__ out) {
    int i = index_of_thread();
    if (i < count)
        out[i] += value;
}

__global__ void add_to(int count, int value, const int *__restrict__ in, int *__restrict__ out) {
    int i = index_of_thread();
    if (i < count)
        out[i] = __ldg(in + i) + value;
}

template <typename T>
__global__ void exchange(exchanged how, int lane, int width, const T *in, T *out) {
    int i = index_of_thread();
    T value = in[i];
    if (how == BY_LANE)
        value = __shfl_sync(ALL, value, lane, width);
    else if (how == BY_XOR)
        value = __shfl_xor_sync(ALL, value, lane, width);
    else if (how == UPWARDS)
        value = __shfl_up_sync(ALL, value, static_cast<unsigned>(lane), width);
    else
        value = __shfl_down_sync(ALL, value, static_cast<unsigned>(lane), width);
    out[i] = value;
}

__global__ void votes(const int *in, unsigned *out) {
    int i = index_of_thread();
    out[4 * i] = __ballot_sync(ALL, in[i] > 0);
    out[4 * i + 1] = static_cast<unsigned>(__any_sync(ALL, in[i] > 0));
    out[4 * i + 2] = static_cast<unsigned>(__all_sync(ALL, in[i] > 0));
    out[4 * i + 3] = __match_any_sync(ALL, in[i]);
}

__global__ void half_sums(const int *in, int *out) {
    int i = index_of_thread(), lane = i % 32;
    unsigned mask = lane < 16 ? 0xffffu : 0xffff0000u;
    int sum = in[i];
    for (int distance = 8; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(mask, sum, distance);
    __syncwarp(mask);
    out[i] = sum;
}

__global__ void block_sums(const float *in, float *out) {
    __shared__ float part[8];
    float sum = in[index_of_thread()];
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(ALL, sum, distance);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (int i = 0; i < 8; i++)
            sum += part[i];
        out[blockIdx.x] = sum;
    }
    __syncthreads();
}

__global__ void reverse(int barrier, int *values) {
    __shared__ int kept[192];
    int i = index_of_thread();
    kept[threadIdx.x] = values[i];
    if (barrier)
        __syncthreads();
    values[i] = kept[191 - threadIdx.x];
}

__global__ void barrier_votes(const int *in, int *out) {
    int value = in[index_of_thread()];
    int count = __syncthreads_count(value > 0);
    int any = __syncthreads_or(value > 0);
    int all = __syncthreads_and(value > 0);
    out[4 * index_of_thread()] = count;
    out[4 * index_of_thread() + 1] = any;
    out[4 * index_of_thread() + 2] = all;
    out[4 * index_of_thread() + 3] = value;
}

__global__ void make_tally(int count, const int *in, tally *to) {
    int i = index_of_thread();
    if (i >= count)
        return;
    atomicAdd(&to->counts[in[i] & 15], 1u);
    atomicMax(&to->largest, in[i]);
    atomicMin(&to->smallest, in[i]);
    atomicAdd(&to->sum, 1.0f);
    atomicAdd(&to->total, static_cast<unsigned long long>(i));
    if (atomicCAS(&to->flag, 0u, 7u) == 0u)
        atomicExch(&to->once, to->once + 1);
}

__global__ void compute(int count, const float *in, mathematics *out) {
    int i = index_of_thread();
    if (i >= count)
        return;
    float x = in[i];
    unsigned bits = __float_as_uint(x);
    mathematics result = {};
    result.reciprocal_root = rsqrtf(fabsf(x));
    result.exponential = __expf(x);
    result.logarithm = __logf(fabsf(x));
    result.least = min(x, 0.5f);
    result.most = fmaxf(x, 0.5f);
    result.ones = __popc(bits);
    result.first = __ffs(static_cast<int>(bits));
    result.leading = __clz(static_cast<int>(bits));
    result.rounded = __float2int_rn(x);
    result.reversed = __brev(bits);
    result.high = __umulhi(bits, 0x10001u);
    result.bfloat = __bfloat16_as_ushort(__float2bfloat16_rn(x));
    result.back = __bfloat162float(__float2bfloat16(x));
    out[i] = result;
}

__global__ void sum_many(many of, int *out) {
    int sum = 0;
    for (int number : of.number)
        sum += number;
    out[0] = sum;
}

__global__ void warp_product(int turned, const uint16_t *a, const uint16_t *b, float *c) {
    __shared__ __align__(16) uint16_t left[16][16], right[16][16];
    const int lane = static_cast<int>(threadIdx.x), row = lane / 2, half = lane % 2 * 8;
    mp::copy_async_16(&left[row][half], a + lane * 8, true);
    mp::copy_async_16(&right[row][half], b + lane * 8, true);
    mp::copy_async_commit();
    mp::copy_async_wait<0>();
    __syncthreads();
    uint32_t of_a[4], of_b[4];
    mp::ldmatrix_x4(of_a, mp::address_of(&left[lane % 16][lane / 16 * 8]));
    if (turned) /* rows of memory are columns */
        mp::ldmatrix_x4(of_b, mp::address_of(&right[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]));
    else
        mp::ldmatrix_x4_trans(of_b, mp::address_of(&right[lane % 16][lane / 16 * 8]));
    for (int n = 0; n < 2; n++) {
        float sums[4];
        const uint32_t columns[2] = {of_b[n * 2], of_b[n * 2 + 1]};
        float *upper = c + lane / 4 * 16 + n * 8 + lane % 4 * 2, *lower = upper + 8 * 16;
        sums[0] = upper[0];
        sums[1] = upper[1];
        sums[2] = lower[0];
        sums[3] = lower[1];
        mp::mma_m16n8k16(sums, of_a, columns);
        upper[0] = sums[0];
        upper[1] = sums[1];
        lower[0] = sums[2];
        lower[1] = sums[3];
    }
}

__global__ void copies(const float *in, float *out) {
    __shared__ __align__(16) float kept[3][COPYING_THREADS][4];
    const int i = static_cast<int>(threadIdx.x), other = COPYING_THREADS - 1 - i;
    const auto write = [&](int part, int copy) {
        __syncthreads();
        for (int n = 0; n < 4; n++)
            out[(part * COPYING_THREADS + i) * 4 + n] = kept[copy][other][n];
        __syncthreads();
    };
    for (int n = 0; n < 4; n++)
        kept[0][i][n] = kept[1][i][n] = kept[2][i][n] = 7;
    __syncthreads();
    mp::copy_async_16(kept[0][i], in + i * 4, true);
    mp::copy_async_commit();
    for (int n = 0; n < 4; n++)
        mp::copy_async_4(&kept[1][i][n], in + (COPYING_THREADS + i) * 4 + n, true);
    mp::copy_async_16(kept[2][i], in + i * 4, false);
    mp::copy_async_commit();
    write(0, 0);
    mp::copy_async_wait<1>();
    write(1, 0);
    mp::copy_async_wait<0>();
    write(2, 1);
    write(3, 2);
}

__global__ void be_mistaken(mistake of, int *out) {
    unsigned i = threadIdx.x;
    int value = static_cast<int>(i);
    if (of == SOME_END_BEFORE_BARRIER) {
        if (i < 40)
            return;
        __syncthreads();
    } else if (of == SOME_AT_ANOTHER_BARRIER) {
        if (i < 40)
            __syncthreads();
        else
            __syncthreads();
    } else if (of == SOME_END_BEFORE_SHUFFLE) {
        if (i == 40)
            return;
        value = __shfl_xor_sync(ALL, value, 1);
    } else if (of == SOME_AT_ANOTHER_SHUFFLE) {
        if (i % 2)
            value = __shfl_xor_sync(ALL, value, 1);
        else
            value = __shfl_down_sync(ALL, value, 1);
    } else if (of == BARRIER_AND_SHUFFLE) {
        if (i % 2)
            value = __shfl_xor_sync(ALL, value, 1);
        else
            __syncthreads();
    } else if (of == MASKS_THAT_DIFFER) {
        value = __shfl_sync(i % 2 ? ALL : 0x55555555u, value, 0);
    } else if (of == LANE_NOT_IN_MASK) {
        value = __shfl_sync(0x0000ffffu, value, 0);
    } else if (of == SOME_AT_ANOTHER_INSTRUCTION) {
        __shared__ __align__(16) uint32_t rows[32][4];
        uint32_t fragment[4] = {};
        const mp::shared_address row = mp::address_of(rows[i % 32]);
        rows[i % 32][0] = i;
        i % 2 ? mp::ldmatrix_x4(fragment, row) : mp::ldmatrix_x4_trans(fragment, row);
        value = static_cast<int>(fragment[0]);
    } else if (of == FRAGMENT_NOT_ALIGNED) {
        __shared__ __align__(16) uint32_t rows[34][4];
        uint32_t fragment[4] = {};
        rows[i % 32][0] = i;
        mp::ldmatrix_x4(fragment, mp::address_of(&rows[i % 32][2]));
        value = static_cast<int>(fragment[0]);
    } else if (of == COPY_NOT_ALIGNED) {
        __shared__ __align__(16) int row[8];
        mp::copy_async_16(row + 1, out, true);
        value = row[1];
    } else if (of == COPY_NOT_WAITED_FOR) {
        __shared__ __align__(16) int rows[64][4];
        mp::copy_async_16(rows[i], out + i / 4 * 4, true);
        mp::copy_async_commit();
        value = rows[i][0];
    } else if (of == WIDTH_OF_THREE) {
        value = __shfl_sync(ALL, value, 0, 3);
    } else if (i == 50) {
        __trap();
    }
    out[i] = value;
}

__global__ void overrun(int count, int *memory) {
    if (threadIdx.x == 0)
        memory[count] = 1;
}

template <typename Key>
cudaError_t sort(cudaStream_t stream, void *storage, size_t *bytes, const Key *keys_in,
                 Key *keys_out, const int *values_in, int *values_out, int count, int begin_bit,
                 int end_bit, int descending) {
    if (!values_in && descending)
        return cub::DeviceRadixSort::SortKeysDescending(storage, *bytes, keys_in, keys_out, count,
                                                        begin_bit, end_bit, stream);
    if (!values_in)
        return cub::DeviceRadixSort::SortKeys(storage, *bytes, keys_in, keys_out, count, begin_bit,
                                              end_bit, stream);
    if (descending)
        return cub::DeviceRadixSort::SortPairsDescending(storage, *bytes, keys_in, keys_out,
                                                         values_in, values_out, count, begin_bit,
                                                         end_bit, stream);
    return cub::DeviceRadixSort::SortPairs(storage, *bytes, keys_in, keys_out, values_in,
                                           values_out, count, begin_bit, end_bit, stream);
}

} // namespace

cudaError_t launch_number(cudaStream_t stream, int *out) {
    return launch(stream, dim3(3, 2, 2), dim3(4, 3, 2), number, out);
}

cudaError_t launch_add(cudaStream_t stream, int count, int value, int *out) {
    return launch(stream, dim3((count + 255) / 256), dim3(256), add, count, value, out);
}

cudaError_t launch_add_to(cudaStream_t stream, int count, int value, const int *in, int *out) {
    return launch(stream, dim3((count + 255) / 256), dim3(256), add_to, count, value, in, out);
}

cudaError_t launch_exchange_int(cudaStream_t stream, exchanged how, int warps, int lane, int width,
                                const int *in, int *out) {
    return launch(stream, dim3(warps / 2), dim3(64), exchange<int>, how, lane, width, in, out);
}

cudaError_t launch_exchange_double(cudaStream_t stream, exchanged how, int warps, int lane,
                                   int width, const double *in, double *out) {
    return launch(stream, dim3(warps / 2), dim3(64), exchange<double>, how, lane, width, in, out);
}

cudaError_t launch_votes(cudaStream_t stream, int warps, const int *in, unsigned *out) {
    return launch(stream, dim3(warps), dim3(32), votes, in, out);
}

cudaError_t launch_half_sums(cudaStream_t stream, int warps, const int *in, int *out) {
    return launch(stream, dim3(1), dim3(32 * warps), half_sums, in, out);
}

cudaError_t launch_block_sums(cudaStream_t stream, int blocks, const float *in, float *out) {
    return launch(stream, dim3(blocks), dim3(256), block_sums, in, out);
}

cudaError_t launch_reverse(cudaStream_t stream, int blocks, int barrier, int *values) {
    return launch(stream, dim3(blocks), dim3(192), reverse, barrier, values);
}

cudaError_t launch_barrier_votes(cudaStream_t stream, int blocks, int threads, const int *in,
                                 int *out) {
    return launch(stream, dim3(blocks), dim3(threads), barrier_votes, in, out);
}

cudaError_t launch_tally(cudaStream_t stream, int count, const int *in, tally *to) {
    return launch(stream, dim3((count + 127) / 128), dim3(128), make_tally, count, in, to);
}

cudaError_t launch_mathematics(cudaStream_t stream, int count, const float *in, mathematics *out) {
    return launch(stream, dim3((count + 127) / 128), dim3(128), compute, count, in, out);
}

cudaError_t launch_many(cudaStream_t stream, many of, int *out) {
    return launch(stream, dim3(1), dim3(1), sum_many, of, out);
}

cudaError_t launch_warp_product(cudaStream_t stream, int turned, const uint16_t *a,
                                const uint16_t *b, float *c) {
    return launch(stream, dim3(1), dim3(32), warp_product, turned, a, b, c);
}

cudaError_t launch_copies(cudaStream_t stream, const float *in, float *out) {
    return launch(stream, dim3(1), dim3(COPYING_THREADS), copies, in, out);
}

cudaError_t launch_mistake(cudaStream_t stream, mistake of, int *out) {
    return launch(stream, dim3(2), dim3(64), be_mistaken, of, out);
}

cudaError_t launch_overrun(cudaStream_t stream, int count, int *memory) {
    return launch(stream, dim3(1), dim3(32), overrun, count, memory);
}

cudaError_t sort_ints(cudaStream_t stream, void *storage, size_t *bytes, const int *keys_in,
                      int *keys_out, const int *values_in, int *values_out, int count,
                      int begin_bit, int end_bit, int descending) {
    return sort(stream, storage, bytes, keys_in, keys_out, values_in, values_out, count, begin_bit,
                end_bit, descending);
}

cudaError_t sort_floats(cudaStream_t stream, void *storage, size_t *bytes, const float *keys_in,
                        float *keys_out, const int *values_in, int *values_out, int count,
                        int begin_bit, int end_bit, int descending) {
    return sort(stream, storage, bytes, keys_in, keys_out, values_in, values_out, count, begin_bit,
                end_bit, descending);
}

cudaError_t sort_unsigned_long(cudaStream_t stream, void *storage, size_t *bytes,
                               const uint64_t *keys_in, uint64_t *keys_out, const int *values_in,
                               int *values_out, int count, int begin_bit, int end_bit,
                               int descending) {
    return sort(stream, storage, bytes, keys_in, keys_out, values_in, values_out, count, begin_bit,
                end_bit, descending);
}
