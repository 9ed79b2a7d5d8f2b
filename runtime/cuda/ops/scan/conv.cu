/* conv.cu: depthwise causal convolution with silu, and its gradients. A thread has eight channels and walks
 * down a strip of rows, with the rows before in registers. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

enum { THREADS = 64, STRIP = 32, TAPS = BURST_MOST_KERNEL, BLOCKS = BURST_GPU_CONV_BLOCKS };

typedef struct ConvArgs {
    int channels, pieces, first[BURST_MOST_PIECES + 1], from[2];
    float scale[3]; /* of a channel's inputs: burst_conv_scale */
    bool silu;
    const int32_t *place;
    const BurstBf16 *x, *halo, *w, *bias, *dy;
    BurstBf16 *y, *dx, *d_halo;
    double *partial; /* [BLOCKS][channels][TAPS + 1]: of w, then of the bias */
} ConvArgs;

/* A row that may lie before the piece, in its halo; zeros where there is none. */
template <int KERNEL>
static __device__ __forceinline__ void load_row(const ConvArgs &a, int piece, int row, int channel,
                                                float f[VEC])
{
    const int first = a.first[piece], before = KERNEL - 1 + row - first;
    if (row >= first && row < a.first[piece + 1])
        load(a.x + (int64_t)row * a.channels + channel, f);
    else if (row < first && a.halo)
        load(a.halo + ((int64_t)piece * (KERNEL - 1) + before) * a.channels + channel, f);
    else
        for (int i = 0; i < VEC; i++)
            f[i] = 0;
}

static __device__ __forceinline__ float scale_of(const ConvArgs &a, int channel)
{
    return a.scale[(channel >= a.from[0]) + (channel >= a.from[1])];
}

/* w: with the scales of inputs */
template <int KERNEL> struct Window {
    float row[KERNEL][VEC], w[KERNEL][VEC], bias[VEC];

    __device__ Window(const ConvArgs &a, int piece, int row0, int channel)
    {
        for (int i = 0; i < VEC; i++) {
            bias[i] = a.bias ? __bfloat162float(a.bias[channel + i]) : 0;
            for (int j = 0; j < KERNEL; j++)
                w[j][i] = scale_of(a, channel + i) *
                          __bfloat162float(a.w[(int64_t)(channel + i) * KERNEL + j]);
        }
        for (int j = 1; j < KERNEL; j++)
            load_row<KERNEL>(a, piece, row0 - KERNEL + j, channel, row[j]);
    }

    /* Takes the next row in; the sums at it. place: of that row. */
    __device__ void next(const ConvArgs &a, int piece, int at, int channel, int place, float sum[VEC])
    {
#pragma unroll
        for (int j = 0; j + 1 < KERNEL; j++)
#pragma unroll
            for (int i = 0; i < VEC; i++)
                row[j][i] = row[j + 1][i];
        load_row<KERNEL>(a, piece, at, channel, row[KERNEL - 1]);
#pragma unroll
        for (int i = 0; i < VEC; i++)
            sum[i] = bias[i];
#pragma unroll
        for (int j = 0; j < KERNEL; j++)
#pragma unroll
            for (int i = 0; i < VEC; i++)
                sum[i] += place >= KERNEL - 1 - j ? w[j][i] * row[j][i] : 0;
    }
};

template <int KERNEL>
static __global__ void __launch_bounds__(THREADS) conv_kernel(const __grid_constant__ ConvArgs a)
{
    const int piece = blockIdx.z, channel = VEC * (blockIdx.y * THREADS + threadIdx.x);
    const int begin = a.first[piece] + blockIdx.x * STRIP, end = min(begin + STRIP, a.first[piece + 1]);
    if (channel >= a.channels || begin >= end)
        return;
    Window<KERNEL> window(a, piece, begin, channel);
    for (int row = begin; row < end; row++) {
        float sum[VEC];
        window.next(a, piece, row, channel, a.place[row], sum);
        for (int i = 0; i < VEC; i++)
            sum[i] = a.silu ? sum[i] / (1 + __expf(-sum[i])) : sum[i];
        store(a.y + (int64_t)row * a.channels + channel, sum);
    }
}

/* The gradients of the last KERNEL rows' sums, and their places; the row that leaves is complete. */
template <int KERNEL> struct Slopes {
    float row[KERNEL][VEC];
    int place[KERNEL];

    __device__ void next(const float d[VEC], int at)
    {
#pragma unroll
        for (int j = 0; j + 1 < KERNEL; j++) {
            place[j] = place[j + 1];
#pragma unroll
            for (int i = 0; i < VEC; i++)
                row[j][i] = row[j + 1][i];
        }
        place[KERNEL - 1] = at;
        for (int i = 0; i < VEC; i++)
            row[KERNEL - 1][i] = d[i];
    }

    __device__ void sum(const Window<KERNEL> &window, float dx[VEC]) const
    {
#pragma unroll
        for (int i = 0; i < VEC; i++) {
            dx[i] = 0;
#pragma unroll
            for (int j = 0; j < KERNEL; j++)
                dx[i] += place[j] >= j ? window.w[KERNEL - 1 - j][i] * row[j][i] : 0;
        }
    }
};

/* The gradient of the sums of a row, 0 after the piece's end; adds to those of the weights where it is the
 * strip's own. */
template <int KERNEL>
static __device__ __forceinline__ void slopes_of(const ConvArgs &a, const Window<KERNEL> &window, int row,
                                                 int end, bool own, int channel, int place, float d[VEC],
                                                 float dw[KERNEL + 1][VEC])
{
    float dy[VEC];
    if (row >= end) {
        for (int i = 0; i < VEC; i++)
            d[i] = 0;
        return;
    }
    load(a.dy + (int64_t)row * a.channels + channel, dy);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
        const float s = 1 / (1 + __expf(-d[i]));
        d[i] = a.silu ? dy[i] * s * (1 + d[i] * (1 - s)) : dy[i];
        dw[KERNEL][i] += own ? d[i] : 0;
#pragma unroll
        for (int j = 0; j < KERNEL; j++)
            dw[j][i] += own && place >= KERNEL - 1 - j ? d[i] * window.row[j][i] : 0;
    }
}

template <int KERNEL>
static __device__ void strip_back(const ConvArgs &a, int piece, int begin, int channel,
                                  float dw[KERNEL + 1][VEC])
{
    const int first = a.first[piece], end = a.first[piece + 1];
    Window<KERNEL> window(a, piece, begin, channel);
    Slopes<KERNEL> slopes = {};
    for (int row = begin; row < begin + STRIP + KERNEL - 1; row++) {
        const int place = row < end ? a.place[row] : 0, done = row - (KERNEL - 1);
        float d[VEC];
        window.next(a, piece, row, channel, place, d);
        slopes_of<KERNEL>(a, window, row, end, row < begin + STRIP, channel, place, d, dw);
        slopes.next(d, place);
        if (done >= begin && done < end) {
            slopes.sum(window, d);
            store(a.dx + (int64_t)done * a.channels + channel, d);
        } else if (done < first && begin == first && a.d_halo) {
            slopes.sum(window, d);
            store(a.d_halo + ((int64_t)piece * (KERNEL - 1) + KERNEL - 1 + done - first) * a.channels +
                      channel,
                  d);
        }
    }
}

template <int KERNEL>
static __global__ void __launch_bounds__(THREADS) conv_back_kernel(const __grid_constant__ ConvArgs a)
{
    const int channel = VEC * (blockIdx.y * THREADS + threadIdx.x);
    float dw[KERNEL + 1][VEC] = {};
    if (channel >= a.channels)
        return;
    for (int piece = 0; piece < a.pieces; piece++)
        for (int strip = blockIdx.x; a.first[piece] + strip * STRIP < a.first[piece + 1]; strip += BLOCKS)
            strip_back<KERNEL>(a, piece, a.first[piece] + strip * STRIP, channel, dw);
    for (int i = 0; i < VEC; i++)
        for (int j = 0; j <= KERNEL; j++)
            a.partial[((int64_t)blockIdx.x * a.channels + channel + i) * (TAPS + 1) + j] =
                (double)dw[j][i] * (j < KERNEL ? scale_of(a, channel + i) : 1);
}

/* dw and db += the blocks' parts, in order; a thread a channel. */
static __global__ void __launch_bounds__(THREADS)
    conv_weights_kernel(int channels, int kernel, const double *partial, float *dw, float *db)
{
    const int channel = blockIdx.x * THREADS + threadIdx.x;
    for (int j = 0; j <= kernel && channel < channels; j++) {
        double sum = 0;
        for (int block = 0; block < BLOCKS; block++)
            sum += partial[((int64_t)block * channels + channel) * (TAPS + 1) + j];
        if (j < kernel)
            dw[channel * kernel + j] += (float)sum;
        else if (db)
            db[channel] += (float)sum;
    }
}

static ConvArgs conv_args(const BurstConv *c, const BurstPieces *p)
{
    ConvArgs a = {};
    a.channels = c->channels, a.silu = c->silu != 0, a.pieces = p->count;
    a.from[0] = c->from[0], a.from[1] = c->from[1];
    for (int i = 0; i < 3; i++)
        a.scale[i] = c->scale[0] > 0 ? (float)c->scale[i] : 1;
    for (int i = 0; i <= p->count; i++)
        a.first[i] = (int)p->first[i];
    return a;
}

static int conv_fits(BurstGpu *g, const char *name, const BurstConv *c, const BurstPieces *p,
                     uintptr_t addresses)
{
    BURST_TRY(gpu_aligned(g, name, c->channels, addresses));
    if (c->kernel >= 2 && c->kernel <= BURST_MOST_KERNEL && p->count <= BURST_MOST_PIECES)
        return BURST_OK;
    return burst_fail(g->ctx, BURST_E_PLAN, "%s: kernel %d, %d pieces; 2 up to %d, at most %d pieces", name,
                      c->kernel, p->count, BURST_MOST_KERNEL, BURST_MOST_PIECES);
}

static unsigned channel_blocks(const BurstConv *c)
{
    return (unsigned)((c->channels / VEC + THREADS - 1) / THREADS);
}

int burst_op_conv(BurstGpu *g, int64_t n, const BurstConv *c, const BurstPieces *p, const int32_t *place,
                  const BurstBf16 *x, const BurstBf16 *halo, const BurstBf16 *w, const BurstBf16 *bias,
                  BurstBf16 *y)
{
    ConvArgs a = conv_args(c, p);
    BURST_TRY(conv_fits(g, "conv", c, p, address(x) | address(halo) | address(y)));
    if (n == 0)
        return BURST_OK;
    a.place = place, a.x = x, a.halo = halo, a.w = w, a.bias = bias, a.y = y;
    const dim3 blocks((unsigned)((n + STRIP - 1) / STRIP), channel_blocks(c), (unsigned)p->count);
    switch (c->kernel) {
    case 2: conv_kernel<2><<<blocks, THREADS, 0, g->compute>>>(a); break;
    case 3: conv_kernel<3><<<blocks, THREADS, 0, g->compute>>>(a); break;
    default: conv_kernel<4><<<blocks, THREADS, 0, g->compute>>>(a);
    }
    return gpu_launched(g, "conv");
}

int burst_op_conv_back(BurstGpu *g, int64_t n, const BurstConv *c, const BurstPieces *p, const int32_t *place,
                       const BurstBf16 *x, const BurstBf16 *halo, const BurstBf16 *w, const BurstBf16 *bias,
                       const BurstBf16 *dy, BurstBf16 *dx, BurstBf16 *d_halo, float *dw, float *db,
                       void *scratch)
{
    ConvArgs a = conv_args(c, p);
    BURST_TRY(conv_fits(g, "conv_back", c, p,
                        address(x) | address(halo) | address(dy) | address(dx) | address(d_halo)));
    if (n == 0)
        return BURST_OK;
    a.place = place, a.x = x, a.halo = halo, a.w = w, a.bias = bias, a.dy = dy, a.dx = dx, a.d_halo = d_halo;
    a.partial = (double *)scratch;
    const dim3 blocks(BLOCKS, channel_blocks(c));
    switch (c->kernel) {
    case 2: conv_back_kernel<2><<<blocks, THREADS, 0, g->compute>>>(a); break;
    case 3: conv_back_kernel<3><<<blocks, THREADS, 0, g->compute>>>(a); break;
    default: conv_back_kernel<4><<<blocks, THREADS, 0, g->compute>>>(a);
    }
    conv_weights_kernel<<<(unsigned)((c->channels + THREADS - 1) / THREADS), THREADS, 0, g->compute>>>(
        c->channels, c->kernel, a.partial, dw, db);
    return gpu_launched(g, "conv_back");
}

/* ---- the last rows of pieces: a block a row ---- */

static __global__ void __launch_bounds__(THREADS)
    tails_kernel(const __grid_constant__ ConvArgs a, int rows, bool back, const BurstBf16 *from,
                 BurstBf16 *to)
{
    const int piece = blockIdx.x / rows, at = a.first[piece + 1] - rows + blockIdx.x % rows;
    const int64_t in_tails = (int64_t)blockIdx.x * a.channels, in_x = (int64_t)at * a.channels;
    for (int i = VEC * threadIdx.x; i < a.channels; i += VEC * THREADS) {
        float f[VEC], sum[VEC] = {};
        load(from + (back ? in_tails : in_x) + i, f);
        if (back)
            load(to + in_x + i, sum);
        for (int j = 0; j < VEC; j++)
            f[j] += sum[j];
        store(to + (back ? in_x : in_tails) + i, f);
    }
}

static int tails(BurstGpu *g, const char *name, const BurstConv *c, const BurstPieces *p, bool back,
                 const BurstBf16 *from, BurstBf16 *to)
{
    const int rows = c->kernel - 1;
    BURST_TRY(conv_fits(g, name, c, p, address(from) | address(to)));
    if (p->count == 0)
        return BURST_OK;
    tails_kernel<<<(unsigned)(p->count * rows), THREADS, 0, g->compute>>>(conv_args(c, p), rows, back, from,
                                                                          to);
    return gpu_launched(g, name);
}

int burst_op_conv_tails(BurstGpu *g, const BurstConv *c, const BurstPieces *p, const BurstBf16 *x,
                        BurstBf16 *out)
{
    return tails(g, "conv_tails", c, p, false, x, out);
}

int burst_op_conv_tails_back(BurstGpu *g, const BurstConv *c, const BurstPieces *p, const BurstBf16 *d_tails,
                             BurstBf16 *dx)
{
    return tails(g, "conv_tails_back", c, p, true, d_tails, dx);
}
