/* GELU, tanh form.  With w = 2 sqrt(2/pi) (x + 0.044715 x^3) it is x / (1 + e^-w): one exponential,
 * one division, and no cancellation for negative x.
 *
 * Elements moved per element, none twice: 2 forward, 3 backward, 4 backward with the value.  At two
 * bytes an element, an H100 has about 40 instructions for each before they cost more than memory;
 * hence the quick division, good to two units in the last place like the exponential. */
#include "reference/device/cuda/map.cuh"

namespace {

/* w = SLOPE x + CUBIC x^3; the exponent of two is -w log2(e). */
constexpr float SLOPE = 1.5957691216f, CUBIC = SLOPE * 0.044715f, LOG2_E = 1.44269504f;

/* Beyond +-9.9 the function is 0 or x and its derivative 0 or 1 to all digits, while e^-w would
 * soon overflow.  NaN stays NaN. */
__device__ __forceinline__ float bounded(float x) {
    x = x < -9.9f ? -9.9f : x;
    return x > 9.9f ? 9.9f : x;
}

/* e^-w, for a bounded x. */
__device__ __forceinline__ float closing(float x) {
    return exp2f(x * (-SLOPE * LOG2_E - CUBIC * LOG2_E * (x * x)));
}

template <typename T> struct value_of {
    static constexpr int COUNT = mp::ACCESS_ELEMENTS<T>, DEPTH = 4;
    template <int C> struct values { mp::vector<T, C> x; };
    const T *x;
    T *y;

    template <int C> __device__ void read(size_t at, values<C> &v) const {
        mp::fetch(x + at, v.x);
    }
    template <int C> __device__ void write(size_t at, const values<C> &v) const {
        float value[C];
        mp::unpack(v.x, value);
#pragma unroll
        for (int i = 0; i < C; i++)
            value[i] = __fdividef(value[i], 1.0f + closing(bounded(value[i])));
        mp::store(y + at, value);
    }
};

/* With e = e^-w and s = 1 / (1 + e): gelu = x s, gelu' = s + x s (1 - s) w', and 1 - s = e s. */
__device__ __forceinline__ float derivative(float x, float e, float s) {
    return s + x * (SLOPE + 3.0f * CUBIC * (x * x)) * (e * s * s);
}

template <typename T, bool VALUE> struct gradient_of {
    static constexpr int COUNT = mp::ACCESS_ELEMENTS<T>, DEPTH = 2;
    template <int C> struct values { mp::vector<T, C> x, dy; };
    const T *x, *dy;
    T *dx, *y;

    template <int C> __device__ void read(size_t at, values<C> &v) const {
        mp::fetch(x + at, v.x);
        mp::fetch(dy + at, v.dy);
    }
    template <int C> __device__ void write(size_t at, const values<C> &v) const {
        float value[C], gradient[C];
        mp::unpack(v.x, value);
        mp::unpack(v.dy, gradient);
#pragma unroll
        for (int i = 0; i < C; i++) {
            float b = bounded(value[i]);
            float e = closing(b);
            float s = __fdividef(1.0f, 1.0f + e);
            gradient[i] *= derivative(b, e, s);
            value[i] *= s;
        }
        mp::store(dx + at, gradient);
        if (VALUE)
            mp::store(y + at, value);
    }
};

void gelu_forward(struct mp_device *device, mp_stream stream, size_t count, const void *x,
                  void *y) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    mp::by_element(cuda, [&](auto element) {
        using T = decltype(element);
        const T *from = static_cast<const T *>(x);
        T *to = static_cast<T *>(y);
        mp::map(cuda, "GELU", stream, count, value_of<T>{from, to}, from, to);
    });
}

template <typename T, bool VALUE>
void queue_backward(struct mp_cuda *cuda, mp_stream stream, size_t count, const T *x, const T *dy,
                    T *dx, T *y) {
    mp::map(cuda, "gradient of GELU", stream, count, gradient_of<T, VALUE>{x, dy, dx, y}, x, dy, dx,
            y);
}

void gelu_backward(struct mp_device *device, mp_stream stream, size_t count, const void *x,
                   const void *dy, void *dx, void *y) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    mp::by_element(cuda, [&](auto element) {
        using T = decltype(element);
        (y ? queue_backward<T, true>
           : queue_backward<T, false>)(cuda, stream, count, static_cast<const T *>(x),
                                       static_cast<const T *>(dy), static_cast<T *>(dx),
                                       static_cast<T *>(y));
    });
}

} // namespace

void mp_cuda_install_gelu(struct mp_device_operations *operations) {
    operations->gelu_forward = gelu_forward;
    operations->gelu_backward = gelu_backward;
}
