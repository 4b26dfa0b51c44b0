/* One pass over arrays of equal length, element by element.
 *
 * A block does one tile and ends; there is a block per tile.  All reads of a thread are under way
 * before its first write, Work::DEPTH times COUNT elements of every input, so that an SM has tens
 * of kilobytes in flight, which memory of 3 to 5 TB/s at well over half a microsecond wants.
 *
 * Work is a struct of pointers and numbers with
 *   COUNT, DEPTH      elements of an access where pointers allow it; accesses per input and thread
 *   values<C>         the inputs of C neighbouring elements, as they lie in memory
 *   read(at, values)  fetches those from element `at` on
 *   write(at, values) works out and writes the results there
 * Outputs may be inputs, at the same place: a thread writes where only it has read. */
#pragma once

#include "reference/device/cuda/kernel.cuh"

namespace mp {

/* Blocks of an SM at least: room for 64 registers, without which the compiler takes the reads one
 * after another to save some. */
constexpr int MAP_THREADS = 256, MAP_RESIDENT = 4;

/* Whether `load` and `store` of COUNT elements may be used at the pointer; NULL is fine. */
template <int COUNT, typename T> bool suits(const T *pointer) {
    return are_aligned(alignof(vector<T, COUNT>), pointer);
}

/* `load` in two halves: inputs that wait for their turn take as many registers as bytes. */
template <int COUNT, typename T>
__device__ __forceinline__ void fetch(const T *from, vector<T, COUNT> &to) {
    to = *reinterpret_cast<const vector<T, COUNT> *>(from);
}

template <int COUNT, typename T>
__device__ __forceinline__ void unpack(const vector<T, COUNT> &from, float (&to)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        to[i] = to_float(from.value[i]);
}

template <int COUNT, typename Work>
__global__ void __launch_bounds__(MAP_THREADS, MAP_RESIDENT)
    map_tile(size_t count, const Work work) {
    constexpr int DEPTH = Work::DEPTH;
    constexpr size_t STEP = (size_t)MAP_THREADS * COUNT, TILE = STEP * DEPTH;
    size_t at = blockIdx.x * TILE + (size_t)threadIdx.x * COUNT;
    if (blockIdx.x * TILE + TILE <= count) {
        typename Work::template values<COUNT> values[DEPTH];
#pragma unroll
        for (int i = 0; i < DEPTH; i++)
            work.read(at + i * STEP, values[i]);
#pragma unroll
        for (int i = 0; i < DEPTH; i++)
            work.write(at + i * STEP, values[i]);
        return;
    }
#pragma unroll 1
    for (size_t begin = at; begin < count; begin += STEP) {
#pragma unroll 1
        for (size_t i = begin; i < begin + COUNT && i < count; i++) {
            typename Work::template values<1> value;
            work.read(i, value);
            work.write(i, value);
        }
    }
}

/* Queues `work`, which has these arrays, on all elements. */
template <typename Work, typename... Arrays>
void map(struct mp_cuda *cuda, const char *doing, mp_stream stream, size_t count, const Work &work,
         const Arrays *...arrays) {
    if ((suits<Work::COUNT>(arrays) && ...)) {
        constexpr size_t TILE = (size_t)MAP_THREADS * Work::COUNT * Work::DEPTH;
        launch(cuda, doing, stream, pieces_of((int64_t)count, TILE), MAP_THREADS,
               map_tile<Work::COUNT, Work>, count, work);
        return;
    }
    constexpr size_t TILE = (size_t)MAP_THREADS * Work::DEPTH;
    launch(cuda, doing, stream, pieces_of((int64_t)count, TILE), MAP_THREADS, map_tile<1, Work>,
           count, work);
}

} // namespace mp
