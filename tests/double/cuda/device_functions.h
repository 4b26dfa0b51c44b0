/* Double of what CUDA C++ has inside kernels: qualifiers, thread numbers, barriers, shuffles,
 * atomics, mathematics.  Barriers and what lanes exchange remember the line they are called from,
 * by which threads that have parted ways are told. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <type_traits>

#include "exchange.h"
#include "vector_types.h"

#define __global__
#define __device__
#define __host__
/* One block of a stream runs at a time, on the stream's own thread. */
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

/* Thread and block at hand: constants for the code of a kernel.  Plain __thread, and in the
 * program's own block of it: no function is called at each use. */
extern "C" {
extern __thread const uint3 threadIdx __attribute__((tls_model("initial-exec")));
extern __thread const uint3 blockIdx __attribute__((tls_model("initial-exec")));
extern __thread const dim3 blockDim __attribute__((tls_model("initial-exec")));
extern __thread const dim3 gridDim __attribute__((tls_model("initial-exec")));
}
constexpr int warpSize = 32;

#define CUDA_DOUBLE_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(CUDA_DOUBLE_PLACE) {
    cuda_double_barrier(file, line);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, CUDA_DOUBLE_PLACE) {
    cuda_double_exchange(CUDA_DOUBLE_SYNC_WARP, mask, 0, 0, file, line);
}
inline void __trap(CUDA_DOUBLE_PLACE) {
    cuda_double_trap(file, line);
}

namespace cuda_double {

template <typename T>
inline T shuffle(int kind, unsigned mask, T value, int lane, const char *file, int line) {
    unsigned bits = 0;
    static_assert(std::is_arithmetic<T>::value && sizeof(T) == sizeof bits, "numbers of 4 bytes");
    memcpy(&bits, &value, sizeof value);
    bits = (unsigned)cuda_double_exchange(kind, mask, bits, lane, file, line);
    memcpy(&value, &bits, sizeof value);
    return value;
}

} // namespace cuda_double

/* Among all lanes of the warp. */
template <typename T> inline T __shfl_sync(unsigned mask, T value, int lane, CUDA_DOUBLE_PLACE) {
    return cuda_double::shuffle(CUDA_DOUBLE_SHUFFLE, mask, value, lane, file, line);
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane, CUDA_DOUBLE_PLACE) {
    return cuda_double::shuffle(CUDA_DOUBLE_SHUFFLE_XOR, mask, value, lane, file, line);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned distance, CUDA_DOUBLE_PLACE) {
    return cuda_double::shuffle(CUDA_DOUBLE_SHUFFLE_UP, mask, value, (int)distance, file, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, CUDA_DOUBLE_PLACE) {
    return (unsigned)cuda_double_exchange(CUDA_DOUBLE_BALLOT, mask, predicate != 0, 0, file, line);
}
inline unsigned __match_any_sync(unsigned mask, int value, CUDA_DOUBLE_PLACE) {
    return (unsigned)cuda_double_exchange(CUDA_DOUBLE_MATCH_ANY, mask, (unsigned)value, 0, file,
                                          line);
}

/* Accesses that leave the caches first; there are none here. */
template <typename T> inline T __ldcs(const T *from) {
    return *from;
}
template <typename T> inline void __stcs(T *to, T value) {
    *to = value;
}

/* Atomics return what was there before. */
inline int atomicAdd(int *address, int value) {
    return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}
inline unsigned atomicAdd(unsigned *address, unsigned value) {
    return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}

#include "device_math.h"
