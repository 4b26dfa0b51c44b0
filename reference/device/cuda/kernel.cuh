/* What kernels share: element types, 16-byte accesses, sums over warps and blocks, launching.
 *
 * Kernels keep to what the CPU double of the CUDA runtime in tests/double/cuda knows, so that every
 * one of them is tested on machines without a GPU: static shared memory only, launches through
 * cudaLaunchKernelEx (not the triple brackets), all threads of a warp at every shuffle, all threads
 * of a block at every barrier. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "reference/device/cuda/cuda.h"

namespace mp {

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

__device__ __forceinline__ float to_float(float value) {
    return value;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 value) {
    return __bfloat162float(value);
}

template <typename T> __device__ __forceinline__ T from_float(float value);
template <> __device__ __forceinline__ float from_float<float>(float value) {
    return value;
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
    return __float2bfloat16_rn(value);
}

/* COUNT neighbouring elements, read and written as floats in accesses of up to 16 bytes.  The
 * address is a multiple of COUNT elements. */
template <typename T, int COUNT>
struct alignas(sizeof(T) * COUNT < 16 ? sizeof(T) * COUNT : 16) vector {
    T value[COUNT];
};

template <int COUNT, typename T>
__device__ __forceinline__ void load(const T *from, float (&to)[COUNT]) {
    vector<T, COUNT> elements = *reinterpret_cast<const vector<T, COUNT> *>(from);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        to[i] = to_float(elements.value[i]);
}

template <int COUNT, typename T>
__device__ __forceinline__ void store(T *to, const float (&from)[COUNT]) {
    vector<T, COUNT> elements;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        elements.value[i] = from_float<T>(from[i]);
    *reinterpret_cast<vector<T, COUNT> *>(to) = elements;
}

/* The same of what is not read again before other data has passed: it leaves the caches first. */
template <size_t BYTES>
using access = std::conditional_t<
    BYTES == 16, uint4,
    std::conditional_t<BYTES == 8, uint2,
                       std::conditional_t<BYTES == 4, unsigned int, unsigned short>>>;

template <int COUNT, typename T>
__device__ __forceinline__ void load_once(const T *from, float (&to)[COUNT]) {
    T elements[COUNT];
    const auto bits = __ldcs(reinterpret_cast<const access<sizeof elements> *>(from));
    memcpy(elements, &bits, sizeof elements);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        to[i] = to_float(elements[i]);
}

template <int COUNT, typename T>
__device__ __forceinline__ void store_once(T *to, const float (&from)[COUNT]) {
    T elements[COUNT];
    access<sizeof elements> bits;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        elements[i] = from_float<T>(from[i]);
    memcpy(&bits, elements, sizeof bits);
    __stcs(reinterpret_cast<access<sizeof elements> *>(to), bits);
}

/* The largest access of a thread, and how many elements it has. */
constexpr size_t ACCESS_BYTES = 16;
template <typename T> constexpr int ACCESS_ELEMENTS = (int)(ACCESS_BYTES / sizeof(T));

/* So many pieces of `size` have room for `count`. */
inline int64_t pieces_of(int64_t count, int64_t size) {
    return (count + size - 1) / size;
}

/* Bytes of a part of scratch memory behind which another one may begin. */
inline size_t part_bytes(size_t bytes) {
    constexpr size_t ALIGNMENT = 256;
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Whether accesses of so many bytes may begin at all of these addresses. */
template <typename... Pointers> bool are_aligned(size_t bytes, const Pointers *...memory) {
    return ((uintptr_t)memory | ...) % bytes == 0;
}

/* The same sum in every lane. */
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

__device__ __forceinline__ float warp_largest(float value) {
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

/* Both rounded, `low` in the lower half. */
__device__ __forceinline__ uint32_t pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return (uint32_t)__bfloat16_as_ushort(pair.x) | (uint32_t)__bfloat16_as_ushort(pair.y) << 16;
}

/* The same sum in every thread of a block of THREADS threads; ends with a barrier, so that it may
 * be called again at once. */
template <int THREADS> __device__ __forceinline__ float block_sum(float value) {
    static_assert(THREADS % WARP == 0 && THREADS <= WARP * WARP, "whole warps");
    __shared__ float part[THREADS / WARP];
    value = warp_sum(value);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = value;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < THREADS / WARP; i++)
        sum += part[i];
    __syncthreads();
    return sum;
}

/* The same of the largest value. */
template <int THREADS> __device__ __forceinline__ float block_largest(float value) {
    __shared__ float part[THREADS / WARP];
    value = warp_largest(value);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = value;
    __syncthreads();
    float largest = part[0];
#pragma unroll
    for (int i = 1; i < THREADS / WARP; i++)
        largest = fmaxf(largest, part[i]);
    __syncthreads();
    return largest;
}

/* What SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) makes of its state, which it first moves on. */
constexpr uint64_t SPLITMIX_STEP = 0x9e3779b97f4a7c15u;
__device__ __forceinline__ uint64_t mixed(uint64_t state) {
    state += SPLITMIX_STEP;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
    return state ^ (state >> 31);
}

/* Queues `kernel`; a failure is kept in the device under the name `doing`.  No blocks: nothing. */
template <typename... Parameters, typename... Arguments>
void launch(struct mp_cuda *cuda, const char *doing, mp_stream stream, int64_t blocks, int threads,
            void (*kernel)(Parameters...), Arguments... arguments) {
    if (blocks <= 0)
        return;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.stream = mp_cuda_stream(cuda, stream);
    mp_cuda_note(cuda, doing,
                 cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

/* work(T()) with the device's element type as T. */
template <typename Work> void by_element(const struct mp_cuda *cuda, Work work) {
    if (cuda->device.element == MP_FLOAT32)
        work(float());
    else
        work(__nv_bfloat16());
}

} // namespace mp
