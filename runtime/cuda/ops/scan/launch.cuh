/* launch.cuh: recurrent layers by slabs of chunks, on a stream: what chunks have by themselves (local.cuh),
 * then the chain of their states (chain.cuh); in backward states at the begins of slabs by a first chain,
 * then slabs in reverse: the chain of their states, that of the gradients, and all other gradients
 * (gradients.cuh). */
#ifndef BURST_CUDA_SCAN_LAUNCH_CUH
#define BURST_CUDA_SCAN_LAUNCH_CUH

#include "cuda/ops/scan/chain.cuh"
#include "cuda/ops/scan/gradients.cuh"
#include "cuda/ops/scan/local.cuh"
#include "cuda/ops/scan/scan.h"

/* Scratch, in the order of burst_gpu_scan_bytes. */
typedef struct ScanRoom {
    uint4 *inverse, *between, *inverse_back, *between_back;
    float4 *row;
    Bf16 *states, *d_states, *written, *d_written;
    float *d_skip, *carry, *d_carry, *saved;
} ScanRoom;

static inline char *take_room(char **at, int64_t bytes)
{
    char *const p = *at;
    *at += (bytes + 255) / 256 * 256;
    return p;
}

static inline ScanRoom scan_room(const ScanCall &c)
{
    const BurstScan *s = c.s;
    const int64_t slots = c.p->count * burst_gpu_scan_chunks(c.p->count) * s->heads;
    const int64_t state = (int64_t)s->key_dim * s->value_dim, states = c.p->count * 4 * burst_scan_state(s);
    const int64_t factor = slots * FACTOR * sizeof(uint4), written = slots * CHUNK * s->value_dim * 2;
    char *at = c.scratch;
    ScanRoom r;
    r.inverse = (uint4 *)take_room(&at, factor);
    r.between = (uint4 *)take_room(&at, factor);
    r.inverse_back = (uint4 *)take_room(&at, factor);
    r.between_back = (uint4 *)take_room(&at, factor);
    r.row = (float4 *)take_room(&at, slots * CHUNK * 2 * sizeof(float4));
    r.states = (Bf16 *)take_room(&at, slots * state * 2);
    r.d_states = (Bf16 *)take_room(&at, slots * state * 2);
    r.written = (Bf16 *)take_room(&at, written);
    r.d_written = (Bf16 *)take_room(&at, written);
    r.d_skip = (float *)take_room(&at, slots * 4);
    r.carry = (float *)take_room(&at, states);
    r.d_carry = (float *)take_room(&at, states);
    r.saved = (float *)at;
    return r;
}

static inline int slab_count(const ScanCall &c)
{
    int64_t most = 0;
    for (int i = 0; i < c.p->count; i++) {
        const int64_t chunks = (c.p->first[i + 1] - c.p->first[i] + CHUNK - 1) / CHUNK;
        most = chunks > most ? chunks : most;
    }
    const int64_t each = burst_gpu_scan_chunks(c.p->count);
    return (int)((most + each - 1) / each);
}

static inline ScanArgs scan_args(const ScanCall &c, const ScanRoom &r)
{
    const BurstScan *s = c.s;
    ScanArgs a = {s->heads,
                  s->key_heads,
                  s->value_dim,
                  s->columns,
                  s->q,
                  s->k,
                  s->v,
                  c.p->count,
                  0,
                  (int)burst_gpu_scan_chunks(c.p->count),
                  s->normalize != 0,
                  (float)s->scale,
                  c.place,
                  c.x,
                  c.skip,
                  c.beta,
                  c.decay,
                  r.inverse,
                  r.between,
                  r.inverse_back,
                  r.between_back,
                  r.row,
                  {}};
    for (int i = 0; i <= c.p->count; i++)
        a.first[i] = (int)c.p->first[i];
    return a;
}

static inline StateView states_view(const BurstScan *s, const float *states)
{
    StateView v = {(float *)states, NULL, burst_scan_state(s), 0, false};
    return v;
}

static inline StateView maps_view(const BurstScan *s, float *maps, bool transposed)
{
    StateView v = {maps, maps + burst_scan_state(s), burst_scan_map(s), burst_scan_map(s), transposed};
    return v;
}

/* d_skip += the sums of chunks' parts, in order; a thread a head. */
typedef struct SkipArgs {
    int heads, chunks;
    const float *part;
    float *sum;
} SkipArgs;

static __global__ void __launch_bounds__(WARP) scan_skip_kernel(const __grid_constant__ SkipArgs a)
{
    const int head = blockIdx.x * WARP + threadIdx.x;
    if (head >= a.heads)
        return;
    double sum = 0;
    for (int i = 0; i < a.chunks; i++)
        sum += a.part[i * a.heads + head];
    a.sum[head] += (float)sum;
}

/* M of pieces whose states are not read: the decay of all rows, or 0 where a document begins; a block a head
 * and piece, first for each channel of keys. */
typedef struct DecayArgs {
    ScanArgs a;
    int key_dim;
    float *maps;
    int64_t pitch;
} DecayArgs;
enum { DECAY_THREADS = 256 };

static __global__ void __launch_bounds__(DECAY_THREADS)
    scan_decays_kernel(const __grid_constant__ DecayArgs g)
{
    const int head = blockIdx.x, piece = blockIdx.y;
    float sum = 0, begins = 0;
    for (int row = g.a.first[piece] + threadIdx.x; row < g.a.first[piece + 1]; row += DECAY_THREADS) {
        sum += g.a.decay[(int64_t)row * g.a.heads + head];
        begins += g.a.place[row] == 0;
    }
    sum = block_sum(sum), begins = block_sum(begins);
    for (int i = threadIdx.x; i < g.key_dim; i += DECAY_THREADS)
        g.maps[piece * g.pitch + (int64_t)head * g.key_dim + i] = begins > 0 ? 0 : expf(sum);
}

static inline void scan_decays(const ScanCall &c, float *maps)
{
    const DecayArgs g = {scan_args(c, scan_room(c)), c.s->key_dim, maps + burst_scan_state(c.s),
                         burst_scan_map(c.s)};
    launch(scan_decays_kernel, dim3(c.s->heads, c.p->count), DECAY_THREADS, 0, c.stream, g);
}

template <int KEY, bool READ> struct ScanKernels {
    template <bool BACK> static void local(const ScanCall &c, const ScanArgs &a)
    {
        const dim3 blocks(a.pieces * a.chunks, a.key_heads);
        launch(scan_local_kernel<KEY, READ, BACK>, blocks, LOCAL_THREADS, sizeof(LocalShared<KEY>), c.stream,
               a);
    }

    template <bool OUT, bool KEEP> static void chain(const ScanCall &c, const ChainArgs &g, int columns)
    {
        const dim3 blocks(columns / COLUMNS, g.a.heads, g.a.pieces);
        launch(scan_chain_kernel<KEY, READ, OUT, KEEP>, blocks, CHAIN_THREADS, sizeof(ChainShared<KEY>),
               c.stream, g);
    }

    template <bool KEEP> static void reverse(const ScanCall &c, const ChainArgs &g, int columns)
    {
        const dim3 blocks(columns / COLUMNS, g.a.heads, g.a.pieces);
        launch(scan_reverse_kernel<KEY, READ, KEEP>, blocks, CHAIN_THREADS, sizeof(ChainShared<KEY>),
               c.stream, g);
    }

    template <int VALUES> static void gradients(const ScanCall &c, const GradientArgs &g)
    {
        const dim3 blocks(g.a.pieces * g.a.chunks, g.a.key_heads);
        launch(scan_gradients_kernel<KEY, VALUES, READ>, blocks, Gradients<KEY, VALUES>::THREADS,
               sizeof(GradientShared<KEY, VALUES>), c.stream, g);
    }

    /* Whether gradients take 128 columns of values at a time. */
    static bool wide_values(const ScanCall &c)
    {
        int device = 0, most = 0;
        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        return KEY <= 128 && c.s->value_dim % 128 == 0 && sizeof(GradientShared<KEY, 128>) <= (size_t)most;
    }

    static void forward(const ScanCall &c, const float *before, Bf16 *o, float *after)
    {
        const ScanRoom r = scan_room(c);
        ChainArgs g = {scan_args(c, r),
                       states_view(c.s, before),
                       states_view(c.s, after ? after : r.carry),
                       o,
                       NULL,
                       NULL,
                       NULL};
        for (int slab = 0; slab < slab_count(c); slab++, g.a.begin += g.a.chunks) {
            local<false>(c, g.a);
            chain<true, false>(c, g, c.s->value_dim);
        }
    }

    static void map(const ScanCall &c, float *maps)
    {
        const ScanRoom r = scan_room(c);
        ChainArgs g = {
            scan_args(c, r), states_view(c.s, NULL), maps_view(c.s, maps, false), NULL, NULL, NULL, NULL};
        for (int slab = 0; slab < slab_count(c); slab++, g.a.begin += g.a.chunks) {
            local<false>(c, g.a);
            chain<false, false>(c, g, c.s->value_dim + (READ ? KEY : 0));
        }
    }

    static void map_back(const ScanCall &c, const Bf16 *d_o, float *maps)
    {
        const ScanRoom r = scan_room(c);
        ChainArgs g = {
            scan_args(c, r), states_view(c.s, NULL), maps_view(c.s, maps, true), NULL, d_o, NULL, NULL};
        for (int slab = slab_count(c) - 1; slab >= 0; slab--) {
            g.a.begin = slab * g.a.chunks;
            local<true>(c, g.a);
            reverse<false>(c, g, c.s->value_dim + (READ ? KEY : 0));
        }
    }

    /* The states before slabs, [slabs][pieces]; of a piece without a slab, nothing. */
    static void save_states(const ScanCall &c, const ScanRoom &r, const float *before)
    {
        const int64_t states = c.p->count * burst_scan_state(c.s);
        ChainArgs g = {
            scan_args(c, r), states_view(c.s, before), states_view(c.s, r.carry), NULL, NULL, NULL, NULL};
        for (int slab = 0; slab + 1 < slab_count(c); slab++, g.a.begin += g.a.chunks) {
            local<false>(c, g.a);
            chain<false, false>(c, g, c.s->value_dim);
            cudaMemcpyAsync(r.saved + (slab + 1) * states, r.carry, states * sizeof(float),
                            cudaMemcpyDeviceToDevice, c.stream);
        }
    }

    static void backward(const ScanCall &c, const float *before, const Bf16 *d_o, const float *d_after,
                         Bf16 *dx, float *d_beta, float *d_decay, float *d_skip, float *d_before)
    {
        const ScanRoom r = scan_room(c);
        const int64_t states = c.p->count * burst_scan_state(c.s);
        ChainArgs f = {scan_args(c, r), states_view(c.s, before), {}, NULL, NULL, r.states, r.written};
        ChainArgs b = {f.a,
                       states_view(c.s, d_after),
                       states_view(c.s, d_before ? d_before : r.d_carry),
                       NULL,
                       d_o,
                       r.d_states,
                       r.d_written};
        GradientArgs g = {f.a,         d_o, r.states, r.written, r.d_states,
                          r.d_written, dx,  d_beta,   d_decay,   r.d_skip};
        const int chunks = f.a.pieces * f.a.chunks;
        save_states(c, r, before);
        for (int slab = slab_count(c) - 1; slab >= 0; slab--) {
            f.a.begin = b.a.begin = g.a.begin = slab * f.a.chunks;
            f.carry = states_view(c.s, slab > 0 ? r.saved + slab * states : r.carry);
            local<true>(c, f.a);
            chain<false, true>(c, f, c.s->value_dim);
            reverse<true>(c, b, c.s->value_dim);
            if (c.skip)
                cudaMemsetAsync(r.d_skip, 0, (size_t)chunks * c.s->heads * sizeof(float), c.stream);
            if (wide_values(c))
                gradients<KEY <= 128 ? 128 : 64>(c, g);
            else
                gradients<64>(c, g);
            if (c.skip)
                launch(scan_skip_kernel, dim3((c.s->heads + WARP - 1) / WARP), WARP, 0, c.stream,
                       SkipArgs{c.s->heads, chunks, r.d_skip, d_skip});
        }
    }
};

/* The key_dims that there are kernels for. */
#ifndef SCAN_KEY_DIMS
#define SCAN_KEY_DIMS(X) X(64) X(128) X(256)
#endif
/* Calls f with the kernels of a layer's sizes. */
template <typename F> static inline void scan_dispatch(const BurstScan *s, F f)
{
#define ONE(key) \
    if (s->key_dim == key && s->read) \
        f(ScanKernels<key, true>()); \
    else if (s->key_dim == key) \
        f(ScanKernels<key, false>());
    SCAN_KEY_DIMS(ONE)
#undef ONE
}
#define SCAN_CALL(s, function, ...) scan_dispatch((s), [&](auto kernels) { kernels.function(__VA_ARGS__); })

#endif
