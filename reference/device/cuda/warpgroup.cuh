/* Instructions of compute capability 9.0 that CUDA C++ has no functions for: products by a
 * warpgroup (four warps, the first of which has a number that 4 divides), copies of tiles between
 * global and shared memory that one thread starts, barriers in shared memory that count their
 * bytes.  Names and layouts are those of the PTX ISA (wgmma, cp.async.bulk.tensor, mbarrier).
 *
 * Tiles lie in shared memory as copies with a swizzle of 128 bytes leave them: lines of 128 bytes,
 * of which eight are a pattern of 1024 bytes, with the 16-byte piece p of line l at place
 * p ^ (l % 8).  A pattern begins at a multiple of 1024 bytes. */
#ifndef MOEPERF_REFERENCE_DEVICE_CUDA_WARPGROUP_CUH
#define MOEPERF_REFERENCE_DEVICE_CUDA_WARPGROUP_CUH

#include <cuda.h>
#include <stdint.h>

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
/* To global memory, but for what is outside of the matrix.  Threads that wrote the tile make it
 * known first; the same thread ends a group of such copies, and waits until all have been read. */
__device__ __forceinline__ void tile_is_written() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void store_tile(const CUtensorMap *map, int column, int row,
                                           uint32_t from) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
            map),
        "r"(column), "r"(row), "r"(from)
        : "memory");
}
__device__ __forceinline__ void end_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ __forceinline__ void wait_until_stores_have_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* Writes four matrices of 8 x 8 elements of 2 bytes; of register r, lane l has the elements
 * (l / 4, l % 4 * 2) and the next of matrix r, and its address is that of row l % 8 of matrix l
 * / 8. */
__device__ __forceinline__ void store_matrices(uint32_t row, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

} // namespace warpgroup
} // namespace mp

#endif
