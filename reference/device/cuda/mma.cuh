/* Instructions of compute capability 8.0 that CUDA C++ has no functions for: products of small
 * matrices by a warp, loading their fragments, copies that run beside the thread, prefetching.  All
 * inline PTX of the back end is here and in warpgroup.cuh; names and layouts are those of the PTX
 * ISA (mma.m16n8k16, ldmatrix, cp.async).  The CPU double of CUDA has functions of the same names.
 *
 * Fragments, by lane, with group = lane / 4 and pair = lane % 4 * 2:
 *   left    16 x 16 bf16  [r]: row group + 8 (r % 2), columns pair + 8 (r / 2) and the next
 *   right   16 x 8 bf16   [r]: rows pair + 8 r and the next, column group
 *   sums    16 x 8 fp32   [i]: row group + 8 (i / 2), column pair + i % 2
 * The lower half of a register is what comes first.
 *
 * On older GPUs all of these but prefetch trap: no bf16 device is created there. */
#pragma once

#include <stdint.h>

#ifndef __CUDACC__
#include <warp_matrix.h> /* of the double */
#else

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define MP_PTX(...) asm volatile(__VA_ARGS__)
#define MP_PTX_OF_REGISTERS(...) asm(__VA_ARGS__)
#else
#define MP_PTX(...) __trap()
#define MP_PTX_OF_REGISTERS(...) __trap()
#endif

namespace mp {

/* sums += left * right; all lanes of the warp. */
__device__ __forceinline__ void mma_m16n8k16(float (&sums)[4], const uint32_t (&left)[4],
                                             const uint32_t (&right)[2]) {
    MP_PTX_OF_REGISTERS("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]),
                          "r"(right[1]));
}

/* Of shared memory: one register. */
typedef uint32_t shared_address;

__device__ __forceinline__ shared_address address_of(const void *shared) {
    return (shared_address)__cvta_generic_to_shared(shared);
}

/* Four matrices of 8 x 8 elements of 2 bytes, of which `row`, 16-byte aligned, is row lane % 8 of
 * matrix lane / 8.  Register r gets from matrix r the elements (lane / 4, lane % 4 * 2) and the
 * next of the row, or, of _trans, those with row and column exchanged. */
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&fragment)[4], shared_address row) {
    MP_PTX("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
           : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
           : "r"(row)
           : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&fragment)[4], shared_address row) {
    MP_PTX("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
           : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
           : "r"(row)
           : "memory");
}

/* Begins a copy of 16 bytes from global to shared memory, or of 16 zero bytes where `there` is
 * false.  Both addresses are multiples of 16. */
__device__ __forceinline__ void copy_async_16(void *to, const void *from, bool there) {
    MP_PTX("cp.async.cg.shared.global [%0], [%1], 16, %2;"
           :
           : "r"(address_of(to)), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
           : "memory");
}

/* The same of 4 bytes. */
__device__ __forceinline__ void copy_async_4(void *to, const void *from, bool there) {
    MP_PTX("cp.async.ca.shared.global [%0], [%1], 4, %2;"
           :
           : "r"(address_of(to)), "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0)
           : "memory");
}

/* Makes one group of the copies that this thread has begun since the last. */
__device__ __forceinline__ void copy_async_commit() {
    MP_PTX("cp.async.commit_group;" ::: "memory");
}

/* Until all groups of this thread but the last PENDING are done; other threads see them behind a
 * barrier. */
template <int PENDING> __device__ __forceinline__ void copy_async_wait() {
    MP_PTX("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* threadIdx.x, read anew each time: what a loop computes from it takes no registers between its
 * rounds, as what the compiler moves out of the loop does. */
__device__ __forceinline__ int thread_read_again() {
    int thread = 0;
    MP_PTX("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

/* 2 to the power of x, within 2 units in the last place; below 2^-126 it is 0. */
__device__ __forceinline__ float power_of_two(float x) {
    float result = 0;
    MP_PTX_OF_REGISTERS("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/* Has the line of the second-level cache with this address of global memory read.  Any GPU. */
__device__ __forceinline__ void prefetch(const void *from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from)));
}

} // namespace mp

#undef MP_PTX
#undef MP_PTX_OF_REGISTERS

#endif
