/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_kernels: what the device does for libhvd: moving pieces of memory, many tensors in one launch,
 * scaled and converted on the way. kernels.h has the parameters; cuda_kernels.c names the kernels;
 * tests/gpu compares them with core/coll/reduce.
 *
 * The arithmetic is that of core/coll/reduce.h, bit for bit (but for payloads of NaN): 16-bit
 * floats are computed in float32 and rounded once, integers wrap, scaled ones are clamped. Compiled
 * with
 * --fmad=false for that.
 *
 * Whole vectors of 16 bytes where both sides are aligned so, else element by element, and byte by
 * byte where even the elements are not aligned.
 */
#include "core/backend/kernels/kernels.h"

/* cuda_kernels.c asserts the same sizes on the host. */
static_assert(sizeof(kernel_move) == 48 + 28 * KERNEL_PIECES, "as the host sees it");

/* ---- types ----------------------------------------------------------------------------------- */

struct f16 {
    uint16_t bits;
};

struct bf16 {
    uint16_t bits;
};

struct truth { /* bool: one byte, 0 or not 0 */
    uint8_t bits;
};

/* wide: the type in which an element is computed. floating: the type is scaled in whole vectors; integers are scaled one by one, which needs less code and is rare. */
template <typename T> struct as {
    typedef T wide;
    static const bool floating = (T)0.5 != (T)0;
    static __device__ T widen(T x)
    {
        return x;
    }
    static __device__ T narrow(T x)
    {
        return x;
    }
};

template <> struct as<f16> {
    typedef float wide;
    static const bool floating = true;
    static __device__ float widen(f16 x)
    {
        float f;
        asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits));
        return f;
    }
    static __device__ f16 narrow(float f)
    {
        f16 x;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x.bits) : "f"(f));
        return x;
    }
};

template <> struct as<bf16> {
    typedef float wide;
    static const bool floating = true;
    static __device__ float widen(bf16 x)
    {
        return __uint_as_float((uint32_t)x.bits << 16);
    }
    static __device__ bf16 narrow(float f)
    {
        uint32_t bits = __float_as_uint(f);
        bf16 x;
        x.bits = (uint16_t)(f != f ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        return x;
    }
};

template <> struct as<truth> {
    typedef uint8_t wide;
    static const bool floating = false;
    static __device__ uint8_t widen(truth x)
    {
        return x.bits != 0;
    }
    static __device__ truth narrow(uint8_t x)
    {
        truth t;
        t.bits = x;
        return t;
    }
};

/* ---- scaling --------------------------------------------------------------------------------- */

template <typename T> struct limits {
    static const bool is_signed = (T)-1 < (T)0;
    static const T high = is_signed ? (T)(((uint64_t)1 << (8 * sizeof(T) - 1)) - 1) : (T) ~(T)0;
    static const T low = is_signed ? (T)(-(int64_t)high - 1) : (T)0;
};

template <typename T> static __device__ T times(T x, double factor)
{
    double y = (double)x * factor;
    return y != y                         ? (T)0
           : y <= (double)limits<T>::low  ? limits<T>::low
           : y >= (double)limits<T>::high ? limits<T>::high
                                          : (T)y;
}

template <> __device__ float times(float x, double factor)
{
    return x * (float)factor;
}

template <> __device__ double times(double x, double factor)
{
    return x * factor;
}

template <typename T> static __device__ T over(T x, int64_t divisor)
{
    return (T)((int64_t)x / divisor);
}

template <> __device__ float over(float x, int64_t divisor)
{
    return x / (float)divisor;
}

template <> __device__ double over(double x, int64_t divisor)
{
    return x / (double)divisor;
}

template <typename W> static __device__ W before(W x, const kernel_change &c)
{
    return c.flags & KERNEL_PRESCALE ? times(x, c.prescale) : x;
}

template <typename W> static __device__ W after(W x, const kernel_change &c)
{
    if (c.flags & KERNEL_DIVIDE)
        x = over(x, c.divisor);
    return c.flags & KERNEL_POSTSCALE ? times(x, c.postscale) : x;
}

/* ---- memory ---------------------------------------------------------------------------------- */

template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) pack {
    T v[N];
};

static __device__ bool aligned(const void *p, unsigned bytes)
{
    return ((uintptr_t)p & (bytes - 1)) == 0;
}

template <typename T> static __device__ T load(const void *p)
{
    if (aligned(p, sizeof(T)))
        return *(const T *)p;
    T x;
    for (unsigned i = 0; i < sizeof(T); i++)
        ((unsigned char *)&x)[i] = ((const unsigned char *)p)[i];
    return x;
}

template <typename T> static __device__ void store(void *p, T x)
{
    if (aligned(p, sizeof(T))) {
        *(T *)p = x;
        return;
    }
    for (unsigned i = 0; i < sizeof(T); i++)
        ((unsigned char *)p)[i] = ((const unsigned char *)&x)[i];
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* Returns the last piece whose first chunk is not after `chunk`: the piece that has this chunk. */
static __device__ uint32_t piece_of(const kernel_move &m, uint32_t chunk)
{
    uint32_t low = 0, high = m.pieces;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (m.first[middle] <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

template <typename A, typename B> static __device__ B changed(A x, const kernel_change &c)
{
    if constexpr (!as<A>::floating && sizeof(B) < sizeof(A)) /* narrower integers are cut first: the sum has wrapped */
        return after(before((B)x, c), c);
    else
        return as<B>::narrow(after(before(as<A>::widen(x), c), c));
}

/* One block moves the whole vectors. Returns the number of elements moved. Several loads are in flight before the first store. */
template <typename A, typename B>
static __device__ uint32_t move_vectors(const char *from, char *to, uint32_t n,
                                        const kernel_change &c)
{
    const int N = 16 / (sizeof(A) < sizeof(B) ? sizeof(A) : sizeof(B));
    const int AHEAD = N > 4 ? 2 : 4;
    uint32_t vectors = aligned(from, 16) && aligned(to, 16) ? n / N : 0;
    for (uint32_t at = threadIdx.x; at < vectors; at += AHEAD * KERNEL_THREADS) {
        pack<A, N> in[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (at + k * KERNEL_THREADS < vectors)
                in[k] = ((const pack<A, N> *)from)[at + k * KERNEL_THREADS];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            pack<B, N> out;
#pragma unroll
            for (int i = 0; i < N; i++)
                out.v[i] = changed<A, B>(in[k].v[i], c);
            if (at + k * KERNEL_THREADS < vectors)
                ((pack<B, N> *)to)[at + k * KERNEL_THREADS] = out;
        }
    }
    return vectors * N;
}

/* One block moves n elements. */
template <typename A, typename B>
static __device__ void move_run(const char *from, char *to, uint32_t n, const kernel_change &c)
{
    uint32_t i = 0;
    if constexpr (as<A>::floating)
        i = move_vectors<A, B>(from, to, n, c);
#pragma unroll 1
    for (i += threadIdx.x; i < n; i += KERNEL_THREADS)
        store<B>(to + i * sizeof(B), changed<A, B>(load<A>(from + i * sizeof(A)), c));
}

template <typename A, typename B> static __device__ void move_all(const kernel_move &m)
{
    for (uint32_t chunk = blockIdx.x; chunk < m.chunks; chunk += gridDim.x) {
        uint32_t p = piece_of(m, chunk);
        uint64_t at = (uint64_t)(chunk - m.first[p]) * m.chunk, left = m.count[p] - at;
        move_run<A, B>((const char *)m.from[p] + at * sizeof(A), (char *)m.to[p] + at * sizeof(B),
                       left < m.chunk ? (uint32_t)left : m.chunk, m.change);
    }
}

/* Copies bytes in words of type W. from and to must be aligned for W. */
template <typename W> static __device__ void move_words(const char *from, char *to, uint32_t bytes)
{
    const int AHEAD = 4;
    uint32_t words = bytes / sizeof(W);
    for (uint32_t at = threadIdx.x; at < words; at += AHEAD * KERNEL_THREADS) {
        W word[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (at + k * KERNEL_THREADS < words)
                word[k] = ((const W *)from)[at + k * KERNEL_THREADS];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (at + k * KERNEL_THREADS < words)
                ((W *)to)[at + k * KERNEL_THREADS] = word[k];
    }
#pragma unroll 1
    for (uint32_t i = words * sizeof(W) + threadIdx.x; i < bytes; i += KERNEL_THREADS)
        to[i] = from[i];
}

extern "C" __global__ void __launch_bounds__(KERNEL_THREADS)
    hvd_move_bytes(const __grid_constant__ kernel_move m)
{
    for (uint32_t chunk = blockIdx.x; chunk < m.chunks; chunk += gridDim.x) {
        uint32_t p = piece_of(m, chunk);
        uint64_t at = (uint64_t)(chunk - m.first[p]) * m.chunk, left = m.count[p] - at;
        const char *from = (const char *)m.from[p] + at;
        char *to = (char *)m.to[p] + at;
        uint32_t bytes = left < m.chunk ? (uint32_t)left : m.chunk;
        uintptr_t both = (uintptr_t)from | (uintptr_t)to;
        if ((both & 15) == 0)
            move_words<uint4>(from, to, bytes);
        else if ((both & 7) == 0)
            move_words<uint64_t>(from, to, bytes);
        else if ((both & 3) == 0)
            move_words<uint32_t>(from, to, bytes);
        else if ((both & 1) == 0)
            move_words<uint16_t>(from, to, bytes);
        else
            move_words<uint8_t>(from, to, bytes);
    }
}

#define MOVE(name, A, B)                                                                           \
    extern "C" __global__ void __launch_bounds__(KERNEL_THREADS)                                   \
        hvd_move_##name(const __grid_constant__ kernel_move m)                                     \
    {                                                                                              \
        move_all<A, B>(m);                                                                         \
    }

MOVE(uint8, uint8_t, uint8_t)
MOVE(int8, int8_t, int8_t)
MOVE(uint16, uint16_t, uint16_t)
MOVE(int16, int16_t, int16_t)
MOVE(int32, int32_t, int32_t)
MOVE(int64, int64_t, int64_t)
MOVE(float16, f16, f16)
MOVE(float32, float, float)
MOVE(float64, double, double)
MOVE(bool, truth, truth)
MOVE(bfloat16, bf16, bf16)
MOVE(float32_float16, float, f16)
MOVE(float16_float32, f16, float)
MOVE(float32_bfloat16, float, bf16)
MOVE(bfloat16_float32, bf16, float)
MOVE(int16_int32, int16_t, int32_t)
MOVE(int32_int16, int32_t, int16_t)
MOVE(uint16_int32, uint16_t, int32_t)
MOVE(int32_uint16, int32_t, uint16_t)
