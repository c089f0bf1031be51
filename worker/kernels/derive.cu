// The kernels behind worker/src/gpu: resampling in the fixed point of fast_image_resize, so that both devices give
// the same bytes, and the step that turns, normalises and lays out. No floating point: elements come from a table.
// Whoever launches has checked that every index stays inside its buffer (worker/src/gpu/kernels.rs).

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

static __device__ __forceinline__ u8 code(int sum, u32 precision)
{
    const int value = sum >> precision;
    return static_cast<u8>(value < 0 ? 0 : value > 255 ? 255 : value);
}

// One byte of one target row a thread: neighbouring threads read neighbouring bytes of each source row.
extern "C" __global__ void vertical(
    const u8 *__restrict__ source, u64 pitch, u8 *__restrict__ target, u32 width, u32 height,
    const uint2 *__restrict__ bounds, const short *__restrict__ weights, u32 window, u32 precision)
{
    const u32 x = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    const uint2 bound = bounds[y];
    const u8 *at = source + bound.x * pitch + x;
    const short *weight = weights + static_cast<u64>(y) * window;
    int sum = 1 << (precision - 1);
    for (u32 tap = 0; tap < bound.y; ++tap, at += pitch)
        sum += static_cast<int>(*at) * weight[tap];
    target[static_cast<u64>(y) * width + x] = code(sum, precision);
}

// One target pixel a thread. `first` is the source column that `source` begins with.
template <u32 CHANNELS>
static __device__ __forceinline__ void along(
    const u8 *__restrict__ source, u64 pitch, u32 first, u8 *__restrict__ target, u32 width, u32 height,
    const uint2 *__restrict__ bounds, const short *__restrict__ weights, u32 window, u32 precision)
{
    const u32 x = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    const uint2 bound = bounds[x];
    const u8 *at = source + y * pitch + static_cast<u64>(bound.x - first) * CHANNELS;
    const short *weight = weights + static_cast<u64>(x) * window;
    int sums[CHANNELS];
    for (u32 channel = 0; channel < CHANNELS; ++channel)
        sums[channel] = 1 << (precision - 1);
    for (u32 tap = 0; tap < bound.y; ++tap, at += CHANNELS)
        for (u32 channel = 0; channel < CHANNELS; ++channel)
            sums[channel] += static_cast<int>(at[channel]) * weight[tap];
    u8 *to = target + (static_cast<u64>(y) * width + x) * CHANNELS;
    for (u32 channel = 0; channel < CHANNELS; ++channel)
        to[channel] = code(sums[channel], precision);
}

#define ALONG(NAME, CHANNELS)                                                                                    \
    extern "C" __global__ void NAME(                                                                             \
        const u8 *__restrict__ source, u64 pitch, u32 first, u8 *__restrict__ target, u32 width, u32 height,     \
        const uint2 *__restrict__ bounds, const short *__restrict__ weights, u32 window, u32 precision)          \
    {                                                                                                            \
        along<CHANNELS>(source, pitch, first, target, width, height, bounds, weights, window, precision);        \
    }

ALONG(horizontal_1, 1)
ALONG(horizontal_3, 3)

// Orientation bits, as Orientation of worker/src/orientation.rs names them.
enum { SWAPS_AXES = 1, MIRRORS_X = 2, MIRRORS_Y = 4 };

// One upright pixel a thread: finds where it is stored, and writes what its codes become.
template <typename ELEMENT>
static __device__ __forceinline__ void put(
    const u8 *__restrict__ stored, u32 turn, u32 channels, u32 planar, const ELEMENT *__restrict__ table,
    ELEMENT *__restrict__ tensor, u32 width, u32 height)
{
    const u32 x = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    const u64 from_x = turn & MIRRORS_X ? width - 1 - x : x;
    const u64 from_y = turn & MIRRORS_Y ? height - 1 - y : y;
    const u64 at = turn & SWAPS_AXES ? from_x * height + from_y : from_y * width + from_x;
    const u64 place = static_cast<u64>(y) * width + x;
    const u64 area = static_cast<u64>(width) * height;
    for (u32 channel = 0; channel < channels; ++channel) {
        const ELEMENT element = table[channel * 256 + stored[at * channels + channel]];
        tensor[planar ? channel * area + place : place * channels + channel] = element;
    }
}

#define PUT(NAME, ELEMENT)                                                                                       \
    extern "C" __global__ void NAME(                                                                             \
        const u8 *__restrict__ stored, u32 turn, u32 channels, u32 planar, const ELEMENT *__restrict__ table,    \
        ELEMENT *__restrict__ tensor, u32 width, u32 height)                                                     \
    {                                                                                                            \
        put<ELEMENT>(stored, turn, channels, planar, table, tensor, width, height);                              \
    }

PUT(put_8, u8)
PUT(put_16, u16)
PUT(put_32, u32)
