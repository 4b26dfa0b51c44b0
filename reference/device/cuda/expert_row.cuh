/* A token's row over all experts, held in the registers of a group of lanes.
 *
 * Up to 1024 values are spread over up to 32 lanes in accesses of 1 or 4, so that a row is read
 * once, whole, however often it is searched afterwards.  Small rows share a warp: that keeps the
 * instructions per byte, and with them the time, below what memory takes.
 *
 * What is searched are keys: unsigned numbers that order as the floats do, -0 and 0 alike.  Key 0
 * belongs to no number and stands for "not there". */
#pragma once

#include "reference/device/cuda/kernel.cuh"

namespace mp {

constexpr int MOST_EXPERTS = 1024;
constexpr int MOST_CHOICES = MP_CHOICES_LIMIT;

/* Whether that many can be chosen; keeps a failure where not. */
inline bool can_choose(struct mp_cuda *cuda, int experts, int top_k) {
    if (top_k < 1 || top_k > MOST_CHOICES || top_k > experts)
        mp_cuda_refuse(cuda, MP_EINVAL, "gate: top %d of %d experts (at most %d)", top_k, experts,
                       MOST_CHOICES);
    else if (experts > MOST_EXPERTS)
        mp_cuda_refuse(cuda, MP_ELIMIT, "gate: %d experts (at most %d)", experts, MOST_EXPERTS);
    else
        return true;
    return false;
}

/* The expert of a choice that may be one that is not taken: mp_choice_expert. */
__device__ __forceinline__ int32_t expert_of(int32_t choice) {
    return choice < 0 ? -1 - choice : choice;
}

/* LANES lanes hold VALUES values each of a row, in accesses of ACCESS neighbours. */
template <int LANES_, int VALUES_, int ACCESS_> struct row_layout {
    static constexpr int LANES = LANES_, VALUES = VALUES_, ACCESS = ACCESS_;
    /* Slots of a lane, if choices 0, 1, ... are dealt to the lanes in turn; no row has more choices
     * than experts. */
    static constexpr int CHOICES = LANES * VALUES < MOST_CHOICES ? LANES * VALUES : MOST_CHOICES;
    static constexpr int SLOTS = (CHOICES + LANES - 1) / LANES;

    static __device__ __forceinline__ int lane() {
        return (int)threadIdx.x % LANES;
    }
    /* Rises with i. */
    static __device__ __forceinline__ int expert(int i) {
        return (i / ACCESS * LANES + lane()) * ACCESS + i % ACCESS;
    }
    /* The lane of the warp that is lane `lane` of this one's group. */
    static __device__ __forceinline__ int in_group(int lane) {
        return (int)threadIdx.x % WARP / LANES * LANES + lane;
    }
};

template <int ACCESS, typename Work> void by_row_of(int experts, Work work) {
    if (experts <= 8)
        work(row_layout<2, 4, ACCESS>());
    else if (experts <= 16)
        work(row_layout<4, 4, ACCESS>());
    else if (experts <= 32)
        work(row_layout<8, 4, ACCESS>());
    else if (experts <= 64)
        work(row_layout<8, 8, ACCESS>());
    else if (experts <= 128)
        work(row_layout<16, 8, ACCESS>());
    else if (experts <= 256)
        work(row_layout<32, 8, ACCESS>());
    else if (experts <= 512)
        work(row_layout<32, 16, ACCESS>());
    else
        work(row_layout<32, 32, ACCESS>());
}

/* work(layout) with the layout for rows of `experts` values; `aligned` says whether every array
 * allows accesses of 4. */
template <typename Work> void by_row(int experts, bool aligned, Work work) {
    if (aligned && experts % 4 == 0)
        by_row_of<4>(experts, work);
    else
        by_row_of<1>(experts, work);
}

template <int LANES> __device__ __forceinline__ float group_sum(float value) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

/* Values from `experts` on are `absent`; with 0 experts nothing is read. */
template <class Layout>
__device__ __forceinline__ void load_row(const float *row, int experts, float absent,
                                         float (&value)[Layout::VALUES]) {
#pragma unroll
    for (int i = 0; i < Layout::VALUES; i += Layout::ACCESS) {
        float part[Layout::ACCESS];
#pragma unroll
        for (int c = 0; c < Layout::ACCESS; c++)
            part[c] = absent;
        if (Layout::expert(i) < experts)
            load(row + Layout::expert(i), part);
#pragma unroll
        for (int c = 0; c < Layout::ACCESS; c++)
            value[i + c] = part[c];
    }
}

template <class Layout, typename T>
__device__ __forceinline__ void store_row(T *row, int experts,
                                          const float (&value)[Layout::VALUES]) {
#pragma unroll
    for (int i = 0; i < Layout::VALUES; i += Layout::ACCESS) {
        float part[Layout::ACCESS];
#pragma unroll
        for (int c = 0; c < Layout::ACCESS; c++)
            part[c] = value[i + c];
        if (Layout::expert(i) < experts)
            store(row + Layout::expert(i), part);
    }
}

/* Positive numbers get the sign bit, negative ones are turned round. */
__device__ __forceinline__ uint32_t rising_key(float value) {
    uint32_t bits = __float_as_uint(value + 0.0f); /* -0 becomes 0 */
    return bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u);
}

__device__ __forceinline__ float value_of_key(uint32_t key) {
    return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

struct candidate {
    uint32_t key;
    int expert;
};

/* Selects, not branches. */
__device__ __forceinline__ void take_if(bool better, candidate other, candidate &best) {
    best.key = better ? other.key : best.key;
    best.expert = better ? other.expert : best.expert;
}

/* The largest key of the group's row, the lowest expert of equal ones; the same in every lane.  Key
 * 0 and expert MOST_EXPERTS when there is none. */
template <class Layout>
__device__ __forceinline__ candidate largest(const uint32_t (&key)[Layout::VALUES]) {
    candidate best = {0, MOST_EXPERTS};
#pragma unroll
    for (int i = 0; i < Layout::VALUES; i++)
        take_if(key[i] > best.key, {key[i], Layout::expert(i)}, best);
#pragma unroll
    for (int distance = Layout::LANES / 2; distance > 0; distance /= 2) {
        const candidate other = {__shfl_xor_sync(ALL_LANES, best.key, distance),
                                 __shfl_xor_sync(ALL_LANES, best.expert, distance)};
        const bool is_equal = other.key == best.key, is_lower = other.expert < best.expert;
        take_if((other.key > best.key) | (is_equal & is_lower), other, best);
    }
    return best;
}

/* `expert` is no candidate any more. */
template <class Layout>
__device__ __forceinline__ void leave_out(int expert, uint32_t (&key)[Layout::VALUES]) {
#pragma unroll
    for (int i = 0; i < Layout::VALUES; i++)
        if (Layout::expert(i) == expert)
            key[i] = 0;
}

/* The largest of `count` values, the lowest index of equal ones, the same in every lane; -1 where
 * all are -INFINITY or no numbers. */
__device__ __forceinline__ int largest_of(const float *value, int count) {
    float best = -INFINITY;
    int at = -1;
    for (int i = (int)threadIdx.x % WARP; i < count; i += WARP)
        if (value[i] > best) {
            best = value[i];
            at = i;
        }
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, best, distance);
        const int place = __shfl_xor_sync(ALL_LANES, at, distance);
        if (place >= 0 && (at < 0 || other > best || (other == best && place < at))) {
            best = other;
            at = place;
        }
    }
    return at;
}

} // namespace mp
