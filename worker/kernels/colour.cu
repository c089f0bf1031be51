// Pixels to sRGB codes: the tables and the arithmetic of worker/src/colour, operation for operation, so that both
// devices give the same bytes. Floats are added and multiplied by intrinsics, which the compiler never contracts.
// Whoever launches has checked every size (worker/src/gpu/programs.rs); what a table's index can be is bounded by its
// type or by the tables, which worker/src/colour/program.rs writes.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

enum { ENCODE = 1 << 14, WEIGHT_BITS = 15 };

// One picture: where it is read and written, its alpha if any, and over what it is composited.
struct Picture {
    const u8 *source;
    u64 source_pitch;
    u8 *target;
    u64 target_pitch;
    const u8 *alpha;
    u32 width;
    u32 height;
    u32 background;
    u32 side;
    const u8 *tables;
};

static __device__ __forceinline__ u32 over(u32 code, u32 alpha, u32 background)
{
    return (code * alpha + background * (255 - alpha) + 127) / 255;
}

static __device__ __forceinline__ u32 reduced(u32 sample)
{
    return (sample * 255 + 32767) / 65535;
}

static __device__ __forceinline__ u32 encoded(const u8 *__restrict__ encode, float light)
{
    const float top = ENCODE - 1;
    light = light > 0.0f ? light : 0.0f;
    light = light < top ? light : top;
    return encode[__float_as_uint(__fadd_rn(light, 8388608.0f)) & (ENCODE - 1)];
}

// Identity: only the depth is changed.
template <u32 LEVELS>
struct Plain {
    enum { CHANNELS = 3 };
    __device__ explicit Plain(const Picture &) {}
    __device__ uint3 operator()(const u32 *code) const
    {
        if (LEVELS == 256)
            return make_uint3(code[0], code[1], code[2]);
        return make_uint3(reduced(code[0]), reduced(code[1]), reduced(code[2]));
    }
};

// Gray: four bytes a code, R, G and B first.
template <u32 LEVELS>
struct Table {
    enum { CHANNELS = 1 };
    const uchar4 *__restrict__ codes;
    __device__ explicit Table(const Picture &picture) : codes(reinterpret_cast<const uchar4 *>(picture.tables)) {}
    __device__ uint3 operator()(const u32 *code) const
    {
        const uchar4 rgb = codes[code[0]];
        return make_uint3(rgb.x, rgb.y, rgb.z);
    }
};

// (1-C)(1-K).
template <u32 LEVELS>
struct Naive {
    enum { CHANNELS = 4 };
    __device__ explicit Naive(const Picture &) {}
    static __device__ u32 ink(u32 code) { return LEVELS == 256 ? code : reduced(code); }
    __device__ uint3 operator()(const u32 *code) const
    {
        const u32 light = 255 - ink(code[3]);
        return make_uint3(
            ((255 - ink(code[0])) * light + 127) / 255, ((255 - ink(code[1])) * light + 127) / 255,
            ((255 - ink(code[2])) * light + 127) / 255);
    }
};

// Light that each code of each channel adds, then the code of each light.
template <u32 LEVELS>
struct Matrix {
    enum { CHANNELS = 3 };
    const float4 *__restrict__ light;
    const u8 *__restrict__ encode;
    __device__ explicit Matrix(const Picture &picture)
        : light(reinterpret_cast<const float4 *>(picture.tables + ENCODE)), encode(picture.tables)
    {
    }
    __device__ uint3 operator()(const u32 *code) const
    {
        const float4 r = light[code[0]], g = light[LEVELS + code[1]], b = light[2 * LEVELS + code[2]];
        return make_uint3(
            encoded(encode, __fadd_rn(__fadd_rn(r.x, g.x), b.x)), encoded(encode, __fadd_rn(__fadd_rn(r.y, g.y), b.y)),
            encoded(encode, __fadd_rn(__fadd_rn(r.z, g.z), b.z)));
    }
};

// Lookup tables: steps along the axes, nodes between which is mixed, columns from X, Y and Z to light.
template <u32 LEVELS, u32 N>
struct Grid {
    enum { CHANNELS = N };
    const u8 *__restrict__ encode;
    const float4 *__restrict__ columns;
    const u32 *__restrict__ steps;
    const short4 *__restrict__ nodes;
    u32 side;
    __device__ explicit Grid(const Picture &picture)
        : encode(picture.tables), columns(reinterpret_cast<const float4 *>(picture.tables + ENCODE)),
          steps(reinterpret_cast<const u32 *>(picture.tables + ENCODE + 64)),
          nodes(reinterpret_cast<const short4 *>(picture.tables + ENCODE + 64 + 4ull * N * LEVELS)), side(picture.side)
    {
    }
    __device__ void add_one(int3 &sum, u32 at, u32 weight) const
    {
        const short4 node = nodes[at];
        const int scale = static_cast<int>(weight);
        sum.x += node.x * scale;
        sum.y += node.y * scale;
        sum.z += node.z * scale;
    }
    __device__ void add(int3 &sum, u32 at, u32 weight, u32 outer) const
    {
        const u32 upper = (weight * (outer >> 16) + (1u << (WEIGHT_BITS - 1))) >> WEIGHT_BITS;
        add_one(sum, at, weight - upper);
        if (outer != 0)
            add_one(sum, at + (outer & 0xffff), upper);
    }
    static __device__ float root(int sum)
    {
        const float knee = 6.0f / 29.0f, offset = 4.0f / 29.0f, slope = 108.0f / 841.0f;
        const float root = __fmul_rn(__int2float_rn(sum), 1.0f / 536870912.0f);
        return root > knee ? __fmul_rn(__fmul_rn(root, root), root) : __fmul_rn(__fsub_rn(root, offset), slope);
    }
    static __device__ float light(float x, float y, float z, float cx, float cy, float cz)
    {
        return __fadd_rn(__fadd_rn(__fmul_rn(x, cx), __fmul_rn(y, cy)), __fmul_rn(z, cz));
    }
    __device__ uint3 operator()(const u32 *code) const
    {
        u32 keys[N], at = 0, stride = 1;
        for (int axis = N - 1; axis >= 0; --axis) {
            const u32 step = steps[axis * LEVELS + code[axis]];
            at += (step >> 16) * stride;
            keys[axis] = (step & 0xffff) << 16 | stride;
            stride *= side;
        }
        const u32 outer = N == 4 ? keys[0] : 0;
        u32 a = keys[N - 3], b = keys[N - 2], c = keys[N - 1], held;
        held = max(a, b), b = min(a, b), a = held;
        held = max(b, c), c = min(b, c), b = held;
        held = max(a, b), b = min(a, b), a = held;
        int3 sum = make_int3(0, 0, 0);
        add(sum, at, (1u << WEIGHT_BITS) - (a >> 16), outer);
        at += a & 0xffff;
        add(sum, at, (a >> 16) - (b >> 16), outer);
        at += b & 0xffff;
        add(sum, at, (b >> 16) - (c >> 16), outer);
        at += c & 0xffff;
        add(sum, at, c >> 16, outer);
        const float x = root(sum.x), y = root(sum.y), z = root(sum.z);
        const float4 cx = columns[0], cy = columns[1], cz = columns[2];
        return make_uint3(
            encoded(encode, light(x, y, z, cx.x, cy.x, cz.x)), encoded(encode, light(x, y, z, cx.y, cy.y, cz.y)),
            encoded(encode, light(x, y, z, cx.z, cy.z, cz.z)));
    }
};

// One pixel a thread and step: neighbouring threads touch neighbouring bytes, and a thread reads its pixel before it
// writes it, so that 8-bit RGB may be converted in place.
template <typename SAMPLE, typename STEP>
static __device__ __forceinline__ void convert(const Picture &picture)
{
    const STEP step(picture);
    const u32 across = gridDim.x * blockDim.x, down = gridDim.y * blockDim.y;
    for (u32 y = blockIdx.y * blockDim.y + threadIdx.y; y < picture.height; y += down) {
        const SAMPLE *row = reinterpret_cast<const SAMPLE *>(picture.source + y * picture.source_pitch);
        for (u32 x = blockIdx.x * blockDim.x + threadIdx.x; x < picture.width; x += across) {
            u32 code[STEP::CHANNELS];
            for (u32 channel = 0; channel < STEP::CHANNELS; ++channel)
                code[channel] = row[static_cast<u64>(x) * STEP::CHANNELS + channel];
            uint3 rgb = step(code);
            if (picture.alpha) {
                const u32 alpha = picture.alpha[static_cast<u64>(y) * picture.width + x];
                rgb.x = over(rgb.x, alpha, picture.background & 255);
                rgb.y = over(rgb.y, alpha, picture.background >> 8 & 255);
                rgb.z = over(rgb.z, alpha, picture.background >> 16 & 255);
            }
            u8 *to = picture.target + y * picture.target_pitch + 3ull * x;
            to[0] = static_cast<u8>(rgb.x);
            to[1] = static_cast<u8>(rgb.y);
            to[2] = static_cast<u8>(rgb.z);
        }
    }
}

#define CONVERT(NAME, SAMPLE, ...)                                                                               \
    extern "C" __global__ void NAME(const Picture picture)                                                       \
    {                                                                                                            \
        convert<SAMPLE, __VA_ARGS__>(picture);                                                                   \
    }

CONVERT(plain_8, u8, Plain<256>)
CONVERT(plain_16, u16, Plain<65536>)
CONVERT(table_8, u8, Table<256>)
CONVERT(table_16, u16, Table<65536>)
CONVERT(naive_8, u8, Naive<256>)
CONVERT(naive_16, u16, Naive<65536>)
CONVERT(matrix_8, u8, Matrix<256>)
CONVERT(matrix_16, u16, Matrix<65536>)
CONVERT(rgb_grid_8, u8, Grid<256, 3>)
CONVERT(rgb_grid_16, u16, Grid<65536, 3>)
CONVERT(cmyk_grid_8, u8, Grid<256, 4>)
CONVERT(cmyk_grid_16, u16, Grid<65536, 4>)
