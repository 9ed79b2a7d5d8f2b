/* chain.cuh: the chain of a recurrent layer's chunks, one block per piece, head and COLUMNS columns of the
 * state, which stays in registers in fp32; and the chain of its gradient, in reverse. Columns after the
 * values' are those of M, the map of the state, for which nothing is written. */
#ifndef BURST_CUDA_SCAN_CHAIN_CUH
#define BURST_CUDA_SCAN_CHAIN_CUH

#include "cuda/ops/scan/args.cuh"

/* Two warps have the same rows, each half of the columns: with one warp a scheduler nothing hides latencies.
 */
enum {
    COLUMNS = 32,
    SIDES = 2,
    TILES = COLUMNS / 8 / SIDES,
    CHAIN_THREADS = 128 * SIDES,
    NARROW_ROW = COLUMNS + PAD
};

/* States of pieces, [piece][head][key_dim][value_dim], and their maps' M, [piece][head][key_dim][key_dim];
 * the numbers of floats from one piece to the next. */
typedef struct StateView {
    float *values, *maps;
    int64_t values_pitch, maps_pitch;
    bool transposed; /* M */
} StateView;

typedef struct ChainArgs {
    ScanArgs a;
    StateView in;    /* before a piece, in reverse after it; NULL: 0, and the identity for M */
    StateView carry; /* between slabs, and the result */
    Bf16 *o;
    const Bf16 *d_o;
    /* kept for gradients, of each chunk and head of the slab: the state before it, [key_dim][value_dim], and
     * what it writes, [CHUNK][value_dim]; in reverse their gradients, the state's after it */
    Bf16 *states, *written;
} ChainArgs;

template <int KEY> struct ChainShared {
    Bf16 k[2][CHUNK * (KEY + PAD)], q[2][CHUNK * (KEY + PAD)], v[2][CHUNK * NARROW_ROW];
    float4 row[2][CHUNK * 2];
    Bf16 state[KEY * NARROW_ROW], x[CHUNK * NARROW_ROW], u[CHUNK * NARROW_ROW], scaled[CHUNK * NARROW_ROW];
};

/* A block's part: a piece, a head, columns of the state. */
template <int KEY> struct Chain {
    const ChainArgs &g;
    const ScanArgs &a;
    ChainShared<KEY> *s;
    int piece, head, column, warp, side, lane; /* side: the warp's first column of the block's */
    bool of_values;
    float state[KEY / 64][TILES][4]; /* the warp's KEY / 4 rows */

    __device__ Chain(const ChainArgs &args)
        : g(args), a(args.a), s((ChainShared<KEY> *)shared_memory()), piece(blockIdx.z), head(blockIdx.y),
          column(blockIdx.x * COLUMNS), warp(threadIdx.x / WARP % 4),
          side(threadIdx.x / WARP / 4 * TILES * 8), lane(threadIdx.x % WARP),
          of_values(column < args.a.value_dim)
    {
    }

    __device__ int state_row(int tile, int j) const { return warp * (KEY / 4) + tile * 16 + sum_row(j); }

    __device__ float *state_at(const StateView &view, int row, int at) const
    {
        if (of_values && view.values)
            return view.values + piece * view.values_pitch + ((int64_t)head * KEY + row) * a.value_dim +
                   column + at;
        if (of_values || !view.maps)
            return NULL;
        const int other = column - a.value_dim + at,
                  in_map = view.transposed ? other * KEY + row : row * KEY + other;
        return view.maps + piece * view.maps_pitch + (int64_t)head * KEY * KEY + in_map;
    }

    __device__ void load_state(const StateView &view)
    {
#pragma unroll
        for (int m = 0; m < KEY / 64; m++)
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int row = state_row(m, j), at = side + tile * 8 + sum_column(j);
                    const float *p = state_at(view, row, at);
                    const float missing = !of_values && column - a.value_dim + at == row;
                    state[m][tile][j] = p ? *p : missing;
                }
    }

    __device__ void store_state(const StateView &view) const
    {
#pragma unroll
        for (int m = 0; m < KEY / 64; m++)
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    *state_at(view, state_row(m, j), side + tile * 8 + sum_column(j)) = state[m][tile][j];
    }

    /* Rounded, for products; kept: of this chunk and head, or NULL. */
    __device__ void round_state(Bf16 *kept)
    {
#pragma unroll
        for (int m = 0; m < KEY / 64; m++)
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int j = 0; j < 4; j += 2) {
                    const int row = state_row(m, j), at = side + tile * 8 + sum_column(j);
                    const float low = state[m][tile][j], high = state[m][tile][j + 1];
                    store_pair(s->state + row * NARROW_ROW + at, low, high);
                    if (kept)
                        store_pair(kept + (int64_t)row * a.value_dim + column + at, low, high);
                }
    }

    __device__ int64_t slot(int chunk) const { return chunk_place(a, piece, chunk).slot * a.heads + head; }

    __device__ Bf16 *kept_state(int chunk) const
    {
        return g.states ? g.states + slot(chunk) * KEY * a.value_dim : NULL;
    }

    /* Loads a chunk; `values`: v's rows, or d_o's. */
    __device__ void load(int chunk, bool queries, const Bf16 *values, int64_t pitch)
    {
        const ChunkPlace c = chunk_place(a, piece, chunk);
        const int stage = chunk % 2;
        const Bf16 *x = a.x + c.row * a.columns + head / (a.heads / a.key_heads) * KEY;
        copy_tile<CHAIN_THREADS, KEY, CHUNK>(s->k[stage], KEY + PAD, x + a.k, a.columns, c.rows);
        if (queries)
            copy_tile<CHAIN_THREADS, KEY, CHUNK>(s->q[stage], KEY + PAD, x + a.q, a.columns, c.rows);
        copy_tile<CHAIN_THREADS, COLUMNS, CHUNK>(s->v[stage], NARROW_ROW,
                                                 of_values ? values + c.row * pitch + column : a.x, pitch,
                                                 of_values ? c.rows : 0);
        if (threadIdx.x < 2 * CHUNK)
            copy16(s->row[stage] + threadIdx.x, a.row + slot(chunk) * CHUNK * 2 + threadIdx.x, true);
        copies_commit();
    }

    /* A warp's rows of a factor. begin, end: of the steps that are not 0. */
    __device__ void load_factor(const uint4 *factor, int chunk, int begin, int end,
                                uint4 r[FACTOR_STEPS]) const
    {
        const uint4 *from = factor + slot(chunk) * FACTOR + warp * FACTOR_STEPS * WARP + lane;
#pragma unroll
        for (int step = 0; step < FACTOR_STEPS; step++)
            if (step >= begin && step < end)
                r[step] = from[step * WARP];
    }

    /* c += factor tile */
    __device__ void multiply_factor(float c[TILES][4], const uint4 r[FACTOR_STEPS], int begin, int end,
                                    const Bf16 *tile) const
    {
#pragma unroll
        for (int step = 0; step < FACTOR_STEPS; step++)
            if (step >= begin && step < end) {
                const uint32_t f[4] = {r[step].x, r[step].y, r[step].z, r[step].w};
                multiply<TILES, false>(c, f, tile + step * 16 * NARROW_ROW + side, NARROW_ROW);
            }
    }

    /* state += rows^T tile */
    __device__ void add_to_state(const Bf16 *rows, const Bf16 *tile)
    {
#pragma unroll
        for (int m = 0; m < KEY / 64; m++)
#pragma unroll
            for (int step = 0; step < FACTOR_STEPS; step++) {
                uint32_t r[4];
                load_a_trans(r, rows + step * 16 * (KEY + PAD) + warp * (KEY / 4) + m * 16, KEY + PAD);
                multiply<TILES, false>(state[m], r, tile + step * 16 * NARROW_ROW + side, NARROW_ROW);
            }
    }

    __device__ void fade(float end)
    {
#pragma unroll
        for (int m = 0; m < KEY / 64; m++)
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    state[m][tile][j] *= end;
    }

    /* The warp's rows of a tile: to = by * c, with one factor for each of a lane's two rows. */
    __device__ void store_rows(Bf16 *to, const float c[TILES][4], float by0, float by1) const
    {
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                const float by = j ? by1 : by0;
                store_pair(to + (warp * 16 + sum_row(j)) * NARROW_ROW + side + tile * 8 + sum_column(j),
                           by * c[tile][j], by * c[tile][j + 1]);
            }
    }

    /* The same to rows in global memory that are there. */
    __device__ void store_global(Bf16 *to, int64_t pitch, int rows, const float c[TILES][4]) const
    {
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            const int row = warp * 16 + sum_row(j);
            if (row < rows)
#pragma unroll
                for (int tile = 0; tile < TILES; tile++)
                    store_pair(to + row * pitch + side + tile * 8 + sum_column(j), c[tile][j],
                               c[tile][j + 1]);
        }
    }

    __device__ void store_written(int chunk, const float c[TILES][4]) const
    {
        store_global(g.written + slot(chunk) * CHUNK * a.value_dim + column, a.value_dim, CHUNK, c);
    }
};

/* OUT: o is wanted; KEEP: states and written. */
template <int KEY, bool READ, bool OUT, bool KEEP>
static __global__ void __launch_bounds__(CHAIN_THREADS)
    scan_chain_kernel(const __grid_constant__ ChainArgs args)
{
    Chain<KEY> b(args);
    const ScanArgs &a = args.a;
    ChainShared<KEY> *const s = b.s;
    const int count = slab_chunks(a, b.piece), top = b.warp + 1, first = b.warp * 16;
    if (count <= 0)
        return;
    const Bf16 *values = a.x + a.v + b.head * a.value_dim;
    b.load(0, OUT, values, a.columns);
    if (a.begin > 0)
        b.load_state(args.carry);
    else /* a document's first token does not need what is before it */
        b.load_state(a.place[a.first[b.piece]] ? args.in : StateView{});
    b.round_state(KEEP ? b.kept_state(0) : NULL);
    for (int chunk = 0; chunk < count; chunk++) {
        const int stage = chunk % 2;
        const Bf16 *k = s->k[stage], *q = s->q[stage];
        copies_wait<0>();
        __syncthreads();
        if (chunk + 1 < count)
            b.load(chunk + 1, OUT, values, a.columns);
        uint4 inverse[FACTOR_STEPS], between[FACTOR_STEPS];
        if (READ)
            b.load_factor(a.inverse, chunk, 0, top, inverse);
        if (OUT)
            b.load_factor(a.between, chunk, 0, top, between);
        float x[TILES][4], o[TILES][4];
        clear<TILES>(x);
        clear<TILES>(o);
#pragma unroll 4
        for (int at = 0; at < KEY; at += 16) {
            uint32_t keys[4], queries[4];
            if (READ)
                load_a(keys, k + first * (KEY + PAD) + at, KEY + PAD);
            if (OUT)
                load_a(queries, q + first * (KEY + PAD) + at, KEY + PAD);
#pragma unroll
            for (int tile = 0; tile < TILES && (READ || OUT); tile += 2) {
                uint32_t r[4];
                load_b(r, s->state + at * NARROW_ROW + b.side + tile * 8, NARROW_ROW);
                if (READ) {
                    mma(x[tile], keys, r[0], r[1]);
                    mma(x[tile + 1], keys, r[2], r[3]);
                }
                if (OUT) {
                    mma(o[tile], queries, r[0], r[1]);
                    mma(o[tile + 1], queries, r[2], r[3]);
                }
            }
        }
        const int row = first + b.lane / 4;
        const float4 low = s->row[stage][row * 2], low_by = s->row[stage][row * 2 + 1];
        const float4 high = s->row[stage][row * 2 + 16], high_by = s->row[stage][row * 2 + 17];
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const Bf16 *v = s->v[stage] + row * NARROW_ROW + b.side + tile * 8 + sum_column(0);
            const float2 v0 = load_pair(v), v1 = load_pair(v + 8 * NARROW_ROW);
            const float by0 = READ ? low.y * low_by.y : 0, by1 = READ ? high.y * high_by.y : 0;
            x[tile][0] = low.x * (v0.x - by0 * x[tile][0]);
            x[tile][1] = low.x * (v0.y - by0 * x[tile][1]);
            x[tile][2] = high.x * (v1.x - by1 * x[tile][2]);
            x[tile][3] = high.x * (v1.y - by1 * x[tile][3]);
        }
        if (READ) {
            b.store_rows(s->x, x, 1, 1);
            __syncthreads();
            clear<TILES>(x);
            b.multiply_factor(x, inverse, 0, top, s->x);
        }
        if (KEEP)
            b.store_written(chunk, x);
        if (OUT)
            b.store_rows(s->u, x, 1, 1);
        b.store_rows(s->scaled, x, low.z * low_by.y, high.z * high_by.y);
        __syncthreads();
        if (OUT) {
            const ChunkPlace c = chunk_place(a, b.piece, chunk);
            const float by0 = low.y * low_by.x, by1 = high.y * high_by.x;
            const float skip = a.skip ? __bfloat162float(a.skip[b.head]) : 0;
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                const Bf16 *v = s->v[stage] + row * NARROW_ROW + b.side + tile * 8 + sum_column(0);
                const float2 v0 = load_pair(v), v1 = load_pair(v + 8 * NARROW_ROW);
                o[tile][0] = by0 * o[tile][0] + skip * v0.x;
                o[tile][1] = by0 * o[tile][1] + skip * v0.y;
                o[tile][2] = by1 * o[tile][2] + skip * v1.x;
                o[tile][3] = by1 * o[tile][3] + skip * v1.y;
            }
            b.multiply_factor(o, between, 0, top, s->u);
            const int64_t pitch = (int64_t)a.heads * a.value_dim;
            b.store_global(args.o + c.row * pitch + b.head * a.value_dim + b.column, pitch, c.rows, o);
        }
        b.fade(s->row[stage][1].w);
        b.add_to_state(k, s->scaled);
        b.round_state(KEEP && chunk + 1 < count ? b.kept_state(chunk + 1) : NULL);
    }
    b.store_state(args.carry);
}

template <int KEY, bool READ, bool KEEP>
static __global__ void __launch_bounds__(CHAIN_THREADS)
    scan_reverse_kernel(const __grid_constant__ ChainArgs args)
{
    Chain<KEY> b(args);
    const ScanArgs &a = args.a;
    ChainShared<KEY> *const s = b.s;
    const int count = slab_chunks(a, b.piece), first = b.warp * 16;
    if (count <= 0)
        return;
    const int64_t pitch = (int64_t)a.heads * a.value_dim;
    const Bf16 *values = args.d_o + b.head * a.value_dim;
    b.load(count - 1, b.of_values, values, pitch);
    b.load_state(a.begin + count == piece_chunks(a, b.piece) ? args.in : args.carry);
    b.round_state(KEEP ? b.kept_state(count - 1) : NULL);
    for (int chunk = count - 1; chunk >= 0; chunk--) {
        const int stage = chunk % 2;
        const Bf16 *k = s->k[stage], *q = s->q[stage], *d_o = s->v[stage];
        copies_wait<0>();
        __syncthreads();
        if (chunk > 0)
            b.load(chunk - 1, b.of_values, values, pitch);
        uint4 inverse[FACTOR_STEPS], between[FACTOR_STEPS];
        if (READ)
            b.load_factor(a.inverse_back, chunk, b.warp, FACTOR_STEPS, inverse);
        if (b.of_values)
            b.load_factor(a.between_back, chunk, b.warp, FACTOR_STEPS, between);
        float y[TILES][4];
        clear<TILES>(y);
#pragma unroll 4
        for (int at = 0; at < KEY; at += 16) {
            uint32_t keys[4];
            load_a(keys, k + first * (KEY + PAD) + at, KEY + PAD);
            multiply<TILES, false>(y, keys, s->state + at * NARROW_ROW + b.side, NARROW_ROW);
        }
        const int row = first + b.lane / 4;
        const float4 low = s->row[stage][row * 2], low_by = s->row[stage][row * 2 + 1];
        const float4 high = s->row[stage][row * 2 + 16], high_by = s->row[stage][row * 2 + 17];
        const float onto0 = low.z * low_by.y, onto1 = high.z * high_by.y;
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            y[tile][0] *= onto0, y[tile][1] *= onto0, y[tile][2] *= onto1, y[tile][3] *= onto1;
            const int at = row * NARROW_ROW + b.side + tile * 8 + sum_column(0);
            const float2 d0 = load_pair(d_o + at), d1 = load_pair(d_o + at + 8 * NARROW_ROW);
            const float by0 = low.y * low_by.x, by1 = high.y * high_by.x;
            store_pair(s->u + at, by0 * d0.x, by0 * d0.y);
            store_pair(s->u + at + 8 * NARROW_ROW, by1 * d1.x, by1 * d1.y);
        }
        if (b.of_values)
            b.multiply_factor(y, between, b.warp, FACTOR_STEPS, d_o);
        if (READ) {
            b.store_rows(s->x, y, 1, 1);
            __syncthreads();
            clear<TILES>(y);
            b.multiply_factor(y, inverse, b.warp, FACTOR_STEPS, s->x);
            b.store_rows(s->scaled, y, -low.x * low.y * low_by.y, -high.x * high.y * high_by.y);
        }
        if (KEEP)
            b.store_written(chunk, y);
        __syncthreads();
        b.fade(s->row[stage][1].w);
        if (b.of_values)
            b.add_to_state(q, s->u);
        if (READ)
            b.add_to_state(k, s->scaled);
        b.round_state(KEEP && chunk > 0 ? b.kept_state(chunk - 1) : NULL);
    }
    b.store_state(args.carry);
}

#endif
