// Planar YCbCr, as a JPEG decoder leaves it, to interleaved R, G, B: libjpeg-turbo's triangle upsampling
// (jdsample.c) and fixed-point conversion (jdcolor.c), bit for bit, so that it does not matter who decoded.
// Whoever launches has checked that every index stays inside its plane (worker/src/gpu/ycc.rs).

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// Both chroma planes have one pitch and one size.
struct Planes {
    const u8 *luma;
    u64 luma_pitch;
    const u8 *cb;
    const u8 *cr;
    u64 chroma_pitch;
    u32 chroma_width;
    u32 chroma_height;
};

static __device__ __forceinline__ u32 code(int value)
{
    return static_cast<u32>(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Pixels that a thread makes: a whole word of luma, three of R, G and B.
enum { RUN = 4 };

// Chroma of RUN pixels from column `x` on, `x` a multiple of RUN. COLUMNS and ROWS are what one sample covers;
// COLUMNS is 0 without chroma.
template <u32 COLUMNS, u32 ROWS>
static __device__ __forceinline__ void chroma(
    const u8 *__restrict__ plane, const Planes &planes, u32 x, u32 y, int *__restrict__ run)
{
    if (COLUMNS == 0) {
        for (u32 at = 0; at < RUN; ++at)
            run[at] = 128;
        return;
    }
    const u32 last = planes.chroma_width - 1;
    const u32 row = y / ROWS;
    const u32 beside = y & 1 ? (row + 1 < planes.chroma_height ? row + 1 : row) : (row > 0 ? row - 1 : 0);
    const u8 *near = plane + row * planes.chroma_pitch;
    const u8 *far = plane + (ROWS == 2 ? beside : row) * planes.chroma_pitch;
    if (COLUMNS == 1) {
        const int bias = y & 1 ? 2 : 1;
        for (u32 at = 0; at < RUN; ++at) {
            const u32 column = x + at < last ? x + at : last;
            run[at] = ROWS == 1 ? near[column] : (3 * near[column] + far[column] + bias) >> 2;
        }
    } else if (planes.chroma_width <= 2) {
        // libjpeg repeats samples where a row has too few to be interpolated.
        for (u32 at = 0; at < RUN; ++at)
            run[at] = near[(x + at) / 2 < last ? (x + at) / 2 : last];
    } else {
        const int left = ROWS == 2 ? 8 : 1, right = ROWS == 2 ? 7 : 2, shift = ROWS == 2 ? 4 : 2;
        int sums[RUN / 2 + 2];
        for (u32 at = 0; at < RUN / 2 + 2; ++at) {
            const u32 column = x / 2 + at;
            const u32 clamped = column == 0 ? 0 : column - 1 < last ? column - 1 : last;
            sums[at] = ROWS == 2 ? 3 * near[clamped] + far[clamped] : near[clamped];
        }
        for (u32 at = 0; at < RUN / 2; ++at) {
            run[2 * at] = (3 * sums[at + 1] + sums[at] + left) >> shift;
            run[2 * at + 1] = (3 * sums[at + 1] + sums[at + 2] + right) >> shift;
        }
    }
}

// Luma rows and target rows begin at multiples of 4 and their pitches are such, too.
template <u32 COLUMNS, u32 ROWS>
static __device__ __forceinline__ void convert(
    const Planes &planes, u8 *__restrict__ target, u64 pitch, u32 width, u32 height)
{
    const u32 x = (blockIdx.x * blockDim.x + threadIdx.x) * RUN;
    const u32 y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int cb[RUN], cr[RUN];
    chroma<COLUMNS, ROWS>(planes.cb, planes, x, y, cb);
    chroma<COLUMNS, ROWS>(planes.cr, planes, x, y, cr);
    const u8 *luma = planes.luma + y * planes.luma_pitch + x;
    // The pitch is a multiple of 4, so that the word lies inside its row's memory.
    const u32 word = *reinterpret_cast<const u32 *>(luma);
    u32 bytes[3 * RUN];
    for (u32 at = 0; at < RUN; ++at) {
        const int light = static_cast<int>(word >> (8 * at) & 255), b = cb[at] - 128, r = cr[at] - 128;
        bytes[3 * at] = code(light + ((91881 * r + 32768) >> 16));
        bytes[3 * at + 1] = code(light + ((-22554 * b + 32768 - 46802 * r) >> 16));
        bytes[3 * at + 2] = code(light + ((116130 * b + 32768) >> 16));
    }
    u8 *to = target + y * pitch + 3 * static_cast<u64>(x);
    if (x + RUN <= width) {
        u32 *words = reinterpret_cast<u32 *>(to);
        for (u32 at = 0; at < 3; ++at)
            words[at] = bytes[4 * at] | bytes[4 * at + 1] << 8 | bytes[4 * at + 2] << 16 | bytes[4 * at + 3] << 24;
    } else {
        for (u32 at = 0; at < 3 * (width - x); ++at)
            to[at] = static_cast<u8>(bytes[at]);
    }
}

#define CONVERT(NAME, COLUMNS, ROWS)                                                                             \
    extern "C" __global__ void NAME(                                                                             \
        const u8 *__restrict__ luma, u64 luma_pitch, const u8 *__restrict__ cb, const u8 *__restrict__ cr,       \
        u64 chroma_pitch, u32 chroma_width, u32 chroma_height, u8 *__restrict__ target, u64 pitch, u32 width,    \
        u32 height)                                                                                              \
    {                                                                                                            \
        const Planes planes = {luma, luma_pitch, cb, cr, chroma_pitch, chroma_width, chroma_height};             \
        convert<COLUMNS, ROWS>(planes, target, pitch, width, height);                                            \
    }

// Gray: R, G and B are luma.
CONVERT(ycc_gray, 0, 1)
CONVERT(ycc_full, 1, 1)
CONVERT(ycc_columns, 2, 1)
CONVERT(ycc_rows, 1, 2)
CONVERT(ycc_both, 2, 2)
