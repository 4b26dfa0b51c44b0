/* Instructions of compute capability 9.0 that CUDA C++ has no functions for: products by a
 * warpgroup (four warps, the first of which has a number that 4 divides), copies of tiles between
 * global and shared memory that one thread starts, barriers in shared memory that count their
 * bytes.  Names and layouts are those of the PTX ISA (wgmma, cp.async.bulk.tensor, mbarrier).
 *
 * Tiles lie in shared memory as copies with a swizzle of 128 bytes leave them: lines of 128 bytes,
 * of which eight are a pattern of 1024 bytes, with the 16-byte piece p of line l at place
 * p ^ (l % 8).  A pattern begins at a multiple of 1024 bytes. */
#pragma once

#include <cuda.h>
#include <stdint.h>

#include "reference/device/cuda/cuda.h"

namespace mp {
namespace warpgroup {

constexpr int THREADS = 128;
constexpr int LINE_BYTES = 128, PATTERN_BYTES = 1024;
constexpr int ROWS = 64, COLUMNS = 256, DEPTH = 16; /* of one product */
constexpr int SUMS = ROWS * COLUMNS / THREADS;      /* a thread's share of its result */

/* What a product reads of shared memory: where its first line is, and how far the next eight lines
 * are.  Along lines the next 64 elements, where there are more than 64, are `beside` bytes away. */
__device__ __forceinline__ uint64_t describe(uint32_t address, uint32_t beside) {
    constexpr uint64_t swizzled_by_128_bytes = 1;
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(beside >> 4) << 16 |
           (uint64_t)(PATTERN_BYTES >> 4) << 32 | swizzled_by_128_bytes << 62;
}

/* sums = left * right, or += where `add`: 64 x 16 times 16 x 256 of bf16.  TURNED says that lines
 * are of one k and go along the rows of left or the columns of right, instead of along k.  Thread t
 * has of the result, with warp = t / 32, group = t % 32 / 4 and pair = t % 4 * 2: in sums[4 j + i]
 * row 16 warp + group + 8 (i / 2), column 8 j + pair + i % 2. */
template <bool LEFT_TURNED, bool RIGHT_TURNED>
__device__ __forceinline__ void multiply(float (&sums)[SUMS], uint64_t left, uint64_t right,
                                         bool add) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
        "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
        "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
        "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
        "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
        "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "
        "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, "
        "%120, %121, %122, %123, %124, %125, %126, %127"
        "}, %128, %129, add, 1, 1, %131, %132;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]),
          "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
          "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]),
          "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]), "+f"(sums[24]), "+f"(sums[25]),
          "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]),
          "+f"(sums[31]), "+f"(sums[32]), "+f"(sums[33]), "+f"(sums[34]), "+f"(sums[35]),
          "+f"(sums[36]), "+f"(sums[37]), "+f"(sums[38]), "+f"(sums[39]), "+f"(sums[40]),
          "+f"(sums[41]), "+f"(sums[42]), "+f"(sums[43]), "+f"(sums[44]), "+f"(sums[45]),
          "+f"(sums[46]), "+f"(sums[47]), "+f"(sums[48]), "+f"(sums[49]), "+f"(sums[50]),
          "+f"(sums[51]), "+f"(sums[52]), "+f"(sums[53]), "+f"(sums[54]), "+f"(sums[55]),
          "+f"(sums[56]), "+f"(sums[57]), "+f"(sums[58]), "+f"(sums[59]), "+f"(sums[60]),
          "+f"(sums[61]), "+f"(sums[62]), "+f"(sums[63]), "+f"(sums[64]), "+f"(sums[65]),
          "+f"(sums[66]), "+f"(sums[67]), "+f"(sums[68]), "+f"(sums[69]), "+f"(sums[70]),
          "+f"(sums[71]), "+f"(sums[72]), "+f"(sums[73]), "+f"(sums[74]), "+f"(sums[75]),
          "+f"(sums[76]), "+f"(sums[77]), "+f"(sums[78]), "+f"(sums[79]), "+f"(sums[80]),
          "+f"(sums[81]), "+f"(sums[82]), "+f"(sums[83]), "+f"(sums[84]), "+f"(sums[85]),
          "+f"(sums[86]), "+f"(sums[87]), "+f"(sums[88]), "+f"(sums[89]), "+f"(sums[90]),
          "+f"(sums[91]), "+f"(sums[92]), "+f"(sums[93]), "+f"(sums[94]), "+f"(sums[95]),
          "+f"(sums[96]), "+f"(sums[97]), "+f"(sums[98]), "+f"(sums[99]), "+f"(sums[100]),
          "+f"(sums[101]), "+f"(sums[102]), "+f"(sums[103]), "+f"(sums[104]), "+f"(sums[105]),
          "+f"(sums[106]), "+f"(sums[107]), "+f"(sums[108]), "+f"(sums[109]), "+f"(sums[110]),
          "+f"(sums[111]), "+f"(sums[112]), "+f"(sums[113]), "+f"(sums[114]), "+f"(sums[115]),
          "+f"(sums[116]), "+f"(sums[117]), "+f"(sums[118]), "+f"(sums[119]), "+f"(sums[120]),
          "+f"(sums[121]), "+f"(sums[122]), "+f"(sums[123]), "+f"(sums[124]), "+f"(sums[125]),
          "+f"(sums[126]), "+f"(sums[127])
        : "l"(left), "l"(right), "r"((int)add), "n"((int)LEFT_TURNED), "n"((int)RIGHT_TURNED));
}

/* The same with 64 columns for 256, sums[j][i] for sums[4 j + i]: of left in shared memory, along
 * k, and of left in the registers of each thread, as mma.cuh has a warp's, here the sixteen rows of
 * its own. */
#define MP_SUMS                                                                                    \
    "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]),      \
        "+f"(sums[1][1]), "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]),  \
        "+f"(sums[2][2]), "+f"(sums[2][3]), "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]),  \
        "+f"(sums[3][3]), "+f"(sums[4][0]), "+f"(sums[4][1]), "+f"(sums[4][2]), "+f"(sums[4][3]),  \
        "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]), "+f"(sums[6][0]),  \
        "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]), "+f"(sums[7][0]), "+f"(sums[7][1]),  \
        "+f"(sums[7][2]), "+f"(sums[7][3])
template <bool RIGHT_TURNED>
__device__ __forceinline__ void multiply(float (&sums)[8][4], uint64_t left, uint64_t right,
                                         bool add) {
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, %32, %33, add, 1, 1, 0, %35;\n"
                 "}\n"
                 : MP_SUMS
                 : "l"(left), "l"(right), "r"((int)add), "n"((int)RIGHT_TURNED));
}
template <bool RIGHT_TURNED>
__device__ __forceinline__ void multiply(float (&sums)[8][4], const uint32_t (&left)[4],
                                         uint64_t right, bool add) {
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, {%32, %33, %34, %35}, %36, add, 1, 1, %38;\n"
                 "}\n"
                 : MP_SUMS
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right),
                   "r"((int)add), "n"((int)RIGHT_TURNED));
}
#undef MP_SUMS

/* Before the first product of a chain: what was written to its registers is seen by it. */
__device__ __forceinline__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Makes one group of the products since the last; the second waits until all groups but the last
 * PENDING are done. */
__device__ __forceinline__ void end_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Registers of every thread of this warpgroup from now on, in multiples of 8. */
template <int COUNT> __device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* The warpgroup's number in its block, in a way that tells the compiler that all of a warp have the
 * same: what follows from it takes no registers of threads. */
__device__ __forceinline__ int number() {
    return __shfl_sync(0xffffffff, (int)threadIdx.x / THREADS, 0);
}

/* Until all threads of a warpgroup have come; `barrier` is a number from 1 of its own. */
__device__ __forceinline__ void meet(int barrier) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}

/* ---- Barriers in shared memory, 8 bytes each ---- */

__device__ __forceinline__ void create_barrier(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}
/* After the last one: copies see them, too. */
__device__ __forceinline__ void barriers_are_there() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Arrives, and so many bytes of copies are awaited besides. */
__device__ __forceinline__ void arrive_expecting(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
/* Until the phase of this parity is over; the first one's parity is 0. */
__device__ __forceinline__ void wait_for(uint32_t barrier, int parity) {
    asm volatile("{\n"
                 ".reg .pred over;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
                 "@!over bra again;\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* ---- Copies of tiles ---- */

/* Makes a map that a copy wrote to global memory known to the copies of tiles. */
__device__ __forceinline__ void know_map(const CUtensorMap *map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}
/* From global memory, and its bytes are counted by the barrier.  What is outside of the matrix
 * comes as zeros. */
__device__ __forceinline__ void load_tile(uint32_t to, const CUtensorMap *map, int column, int row,
                                          uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}
/* Of one of several matrices. */
__device__ __forceinline__ void load_tile(uint32_t to, const CUtensorMap *map, int column, int row,
                                          int matrix, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(matrix), "r"(barrier)
                 : "memory");
}
/* Of the stages that copies go to in turn: which comes next, and which of its turns. */
template <int COUNT> struct turn {
    int stage = 0, parity = 0;

    __device__ void next() {
        stage++;
        if (stage == COUNT) {
            stage = 0;
            parity ^= 1;
        }
    }
};

__device__ __forceinline__ uint32_t address_of(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* Shared memory from the first place on at which a pattern may begin. */
template <typename T> __device__ __forceinline__ T *first_pattern(uint8_t *memory) {
    const uint32_t beyond = address_of(memory) % PATTERN_BYTES;
    return reinterpret_cast<T *>(memory + (beyond ? PATTERN_BYTES - beyond : 0));
}

/* ---- On the host ---- */

/* A map of `dimensions` sizes of bf16, the first one along lines, with `stride` bytes between
 * neighbours in each of the others, for copies of boxes with 64 elements along lines. */
inline bool make_map(const struct mp_cuda *cuda, CUtensorMap *map, const void *matrix,
                     int dimensions, const cuuint64_t size[], const cuuint64_t stride[],
                     const cuuint32_t box[]) {
    const cuuint32_t step[] = {1, 1, 1};
    return ((decltype(&cuTensorMapEncodeTiled))cuda->make_map)(
               map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, (cuuint32_t)dimensions,
               const_cast<void *>(matrix), size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* Queues a kernel with so much shared memory, of which more than a launch gives by itself has to be
 * asked for. */
template <typename Kernel, typename... Arguments>
void launch(struct mp_cuda *cuda, const char *doing, mp_stream stream, int blocks, int threads,
            size_t shared_bytes, Kernel *kernel, const Arguments &...arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = mp_cuda_stream(cuda, stream);
    if (mp_cuda_note(cuda, doing,
                     cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          (int)shared_bytes)))
        mp_cuda_note(cuda, doing, cudaLaunchKernelEx(&config, kernel, arguments...));
}

} // namespace warpgroup
} // namespace mp
