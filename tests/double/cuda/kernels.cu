#include <cub/device/device_radix_sort.cuh>
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
    out[index_of_thread()] = index_of_thread();
}

__global__ void __launch_bounds__(256) add(int count, int value, int *__restrict__ out) {
    int i = index_of_thread();
    if (i < count)
        out[i] += value;
}

__global__ void add_to(int count, int value, const int *__restrict__ in, int *__restrict__ out) {
    int i = index_of_thread();
    if (i < count)
        out[i] = in[i] + value;
}

__global__ void reverse(int barrier, int *values) {
    __shared__ int kept[192];
    int i = index_of_thread();
    kept[threadIdx.x] = values[i];
    if (barrier)
        __syncthreads();
    values[i] = kept[191 - threadIdx.x];
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
            value = __shfl_up_sync(ALL, value, 1);
    } else if (of == BARRIER_AND_SHUFFLE) {
        if (i % 2)
            value = __shfl_xor_sync(ALL, value, 1);
        else
            __syncthreads();
    } else if (of == MASKS_THAT_DIFFER) {
        value = __shfl_sync(i % 2 ? ALL : 0x7fffffffu, value, 0);
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
    } else if (of == PREFETCH_ASTRAY) {
        mp::prefetch(out + 64);
    } else if (i == 50) {
        __trap();
    }
    out[i] = value;
}

__global__ void overrun(int count, int *memory) {
    if (threadIdx.x == 0)
        memory[count] = 1;
}

} // namespace

cudaError_t launch_number(cudaStream_t stream, int *out) {
    return launch(stream, dim3(NUMBERED_BLOCKS), dim3(NUMBERED_THREADS / NUMBERED_BLOCKS), number,
                  out);
}

cudaError_t launch_add(cudaStream_t stream, int count, int value, int *out) {
    return launch(stream, dim3((count + 255) / 256), dim3(256), add, count, value, out);
}

cudaError_t launch_add_to(cudaStream_t stream, int count, int value, const int *in, int *out) {
    return launch(stream, dim3((count + 255) / 256), dim3(256), add_to, count, value, in, out);
}

cudaError_t launch_reverse(cudaStream_t stream, int blocks, int barrier, int *values) {
    return launch(stream, dim3(blocks), dim3(192), reverse, barrier, values);
}

cudaError_t launch_mistake(cudaStream_t stream, mistake of, int *out) {
    return launch(stream, dim3(2), dim3(64), be_mistaken, of, out);
}

cudaError_t launch_overrun(cudaStream_t stream, int count, int *memory) {
    return launch(stream, dim3(1), dim3(32), overrun, count, memory);
}

cudaError_t sort_pairs(cudaStream_t stream, void *storage, size_t *bytes, const unsigned *keys_in,
                       unsigned *keys_out, const int *values_in, int *values_out, int count) {
    return cub::DeviceRadixSort::SortPairs(storage, *bytes, keys_in, keys_out, values_in,
                                           values_out, count, 0, 32, stream);
}
