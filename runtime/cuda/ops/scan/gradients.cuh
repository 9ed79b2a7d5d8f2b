/* gradients.cuh: gradients of a chunk's queries, keys, values, beta and decays, from the state before the
 * chunk, the gradient of the state after it, and what the chains kept. One block a chunk and key head, for
 * all its value heads; each warp has 16 rows and WIDE columns of the gradients of queries and keys. */
#ifndef BURST_CUDA_SCAN_GRADIENTS_CUH
#define BURST_CUDA_SCAN_GRADIENTS_CUH

#include "cuda/ops/scan/args.cuh"

enum { WIDE = 64, WIDE_TILES = WIDE / 8, SQUARE_ROW = CHUNK + PAD };

typedef struct GradientArgs {
    ScanArgs a;
    const Bf16 *d_o, *states, *written, *d_states, *d_written; /* of the slab: chain.cuh */
    Bf16 *dx;
    float *d_beta, *d_decay;
    float *d_skip; /* [chunks of the slab][heads] */
} GradientArgs;

/* Sums of a row that several warps have parts of. */
enum { ENTRY, ONTO, READS, PAIRS, READ_PAIRS, LENGTH, ROW_SUMS };

template <int KEY, int VALUES> struct GradientShared {
    Bf16 q[CHUNK * (KEY + PAD)], k[CHUNK * (KEY + PAD)], state[KEY * (VALUES + PAD)],
        after[KEY * (VALUES + PAD)];
    Bf16 d_o[CHUNK * (VALUES + PAD)], d_written[CHUNK * (VALUES + PAD)], written[CHUNK * (VALUES + PAD)];
    Bf16 d_a[CHUNK * SQUARE_ROW], d_b[CHUNK * SQUARE_ROW];
    float4 row[CHUNK * 2];
    float sum[ROW_SUMS][KEY / WIDE][CHUNK], column[4][CHUNK], beta[CHUNK], skip[CHUNK], through[KEY / 16];
};

template <int KEY, int VALUES> struct Gradients {
    static constexpr int THREADS = KEY / WIDE * 4 * WARP, BLOCKS = KEY / WIDE, PART = CHUNK / BLOCKS;
    static constexpr int ROW = KEY + PAD, VALUE_ROW = VALUES + PAD;
    const GradientArgs &g;
    const ScanArgs &a;
    GradientShared<KEY, VALUES> *s;
    int warp, lane, first, block; /* the warp's rows from `first` on, its columns: the block-th */
    int head;
    ChunkPlace c;

    __device__ Gradients(const GradientArgs &args)
        : g(args), a(args.a), s((GradientShared<KEY, VALUES> *)shared_memory()), warp(threadIdx.x / WARP),
          lane(threadIdx.x % WARP), first(warp % 4 * 16), block(warp / 4), head(0),
          c(chunk_place(args.a, blockIdx.x / args.a.chunks, blockIdx.x % args.a.chunks))
    {
    }

    __device__ int64_t slot() const { return c.slot * a.heads + head; }

    /* Columns of values [at, at + VALUES) of a chunk's arrays. */
    __device__ void copy_values(Bf16 *to, const Bf16 *from, int at)
    {
        copy_tile<THREADS, VALUES, CHUNK>(to, VALUE_ROW, from + slot() * CHUNK * a.value_dim + at,
                                          a.value_dim, CHUNK);
    }

    /* The state before the chunk, and the gradient of the one after it. */
    __device__ void copy_states(int at)
    {
        const int64_t from = slot() * KEY * a.value_dim + at;
        copy_tile<THREADS, VALUES, KEY>(s->state, VALUE_ROW, g.states + from, a.value_dim, KEY);
        copy_tile<THREADS, VALUES, KEY>(s->after, VALUE_ROW, g.d_states + from, a.value_dim, KEY);
    }

    __device__ void copy_d_o(int at)
    {
        const int64_t pitch = (int64_t)a.heads * a.value_dim;
        copy_tile<THREADS, VALUES, CHUNK>(s->d_o, VALUE_ROW, g.d_o + c.row * pitch + head * a.value_dim + at,
                                          pitch, c.rows);
    }

    __device__ void arrive()
    {
        copies_commit();
        copies_wait<0>();
        __syncthreads();
    }

    /* sum [16][8 * TILES] += rows of a tile by rows of another, over VALUES columns */
    template <int TILES>
    __device__ void by_values(float sum[TILES][4], const Bf16 *rows, const Bf16 *others) const
    {
#pragma unroll 4
        for (int at = 0; at < VALUES; at += 16) {
            uint32_t r[4];
            load_a(r, rows + first * VALUE_ROW + at, VALUE_ROW);
            multiply<TILES, true>(sum, r, others + at, VALUE_ROW);
        }
    }

    /* sum [16][WIDE] += a factor's rows, or its transpose's, by rows of q or k */
    template <bool TRANSPOSED>
    __device__ void by_rows(float sum[WIDE_TILES][4], const Bf16 *factor, const Bf16 *rows) const
    {
#pragma unroll
        for (int at = 0; at < CHUNK; at += 16) {
            uint32_t r[4];
            if (TRANSPOSED)
                load_a_trans(r, factor + at * SQUARE_ROW + first, SQUARE_ROW);
            else
                load_a(r, factor + first * SQUARE_ROW + at, SQUARE_ROW);
            multiply<WIDE_TILES, false>(sum, r, rows + at * ROW + block * WIDE, ROW);
        }
    }

    /* The dot products of the warp's rows with rows of q or k, times `by` [row of the lane]. */
    __device__ void dots(int which, const float sum[WIDE_TILES][4], const Bf16 *rows, float by0, float by1)
    {
        float low = 0, high = 0;
        const Bf16 *p = rows + (first + lane / 4) * ROW + block * WIDE + sum_column(0);
#pragma unroll
        for (int tile = 0; tile < WIDE_TILES; tile++) {
            const float2 x = load_pair(p + tile * 8), y = load_pair(p + 8 * ROW + tile * 8);
            low += x.x * sum[tile][0] + x.y * sum[tile][1];
            high += y.x * sum[tile][2] + y.y * sum[tile][3];
        }
        put(which, by0 * low, by1 * high);
    }

    /* A part of the sum of the lane's two rows; all lanes of a row call it. */
    __device__ void put(int which, float low, float high)
    {
        low = row_sum(low), high = row_sum(high);
        if (lane % 4 == 0) {
            s->sum[which][block][first + lane / 4] = low;
            s->sum[which][block][first + lane / 4 + 8] = high;
        }
    }

    __device__ float taken(int which, int row) const
    {
        float x = 0;
#pragma unroll
        for (int i = 0; i < BLOCKS; i++)
            x += s->sum[which][i][row];
        return x;
    }

    /* A warp's rows of values, for dv: all loads before the first is waited for. */
    static constexpr int VALUE_ROWS = CHUNK / (THREADS / WARP), VALUE_WORDS = VALUES / (2 * WARP);
    __device__ int64_t value_at(int row, int at) const
    {
        return (c.row + row) * a.columns + a.v + head * a.value_dim + at + 2 * lane;
    }

    __device__ void load_values(uint32_t v[VALUE_ROWS][VALUE_WORDS], int at) const
    {
#pragma unroll
        for (int i = 0; i < VALUE_ROWS; i++) {
            const int row = warp + i * (THREADS / WARP);
#pragma unroll
            for (int j = 0; j < VALUE_WORDS; j++)
                v[i][j] = row < c.rows ? *(const uint32_t *)(a.x + value_at(row, at + 2 * WARP * j)) : 0;
        }
    }

    /* dv = beta d_written + skip d_o; rows' parts of d_beta and d_skip. */
    __device__ void values(const uint32_t v[VALUE_ROWS][VALUE_WORDS], int at)
    {
        const float skip = a.skip ? __bfloat162float(a.skip[head]) : 0;
#pragma unroll
        for (int i = 0; i < VALUE_ROWS; i++) {
            const int row = warp + i * (THREADS / WARP);
            const float by = s->row[2 * row].x;
            float beta = 0, along = 0;
#pragma unroll
            for (int j = 0; j < VALUE_WORDS; j++) {
                const int in_row = row * VALUE_ROW + 2 * lane + 2 * WARP * j;
                const float2 d_w = load_pair(s->d_written + in_row), d_o = load_pair(s->d_o + in_row);
                const float low = __uint_as_float(v[i][j] << 16),
                            high = __uint_as_float(v[i][j] & 0xffff0000u);
                beta += low * d_w.x + high * d_w.y;
                along += low * d_o.x + high * d_o.y;
                if (row < c.rows)
                    store_pair(g.dx + value_at(row, at + 2 * WARP * j), by * d_w.x + skip * d_o.x,
                               by * d_w.y + skip * d_o.y);
            }
            beta = warp_sum(beta);
            if (a.skip)
                along = warp_sum(along);
            if (lane == 0) {
                s->beta[row] = beta + (at ? s->beta[row] : 0);
                s->skip[row] = along + (at ? s->skip[row] : 0);
            }
        }
    }

    /* A product of gradients becomes that of B, or of A, times decays and lengths, as bf16; sums over rows
     * and columns of the decays' gradients. */
    template <bool READ> __device__ void pairs()
    {
        constexpr int TILES = PART / 8;
        float d_b[TILES][4], d_a[TILES][4], qk[TILES][4], kk[TILES][4], sums[2] = {}, reads[2] = {};
        clear<TILES>(d_b), clear<TILES>(d_a), clear<TILES>(qk), clear<TILES>(kk);
        for (int at = 0; at < a.value_dim; at += VALUES) {
            __syncthreads();
            copy_d_o(at), copy_values(s->d_written, g.d_written, at), copy_values(s->written, g.written, at);
            if (a.value_dim == VALUES)
                copy_states(0);
            uint32_t v[VALUE_ROWS][VALUE_WORDS];
            load_values(v, at);
            arrive();
            by_values<TILES>(d_b, s->d_o, s->written + block * PART * VALUE_ROW);
            if (READ)
                by_values<TILES>(d_a, s->d_written, s->written + block * PART * VALUE_ROW);
            values(v, at);
        }
#pragma unroll 4
        for (int at = 0; at < KEY; at += 16) {
            uint32_t r[4];
            load_a(r, s->q + first * ROW + at, ROW);
            multiply<TILES, true>(qk, r, s->k + block * PART * ROW + at, ROW);
            if (READ) {
                load_a(r, s->k + first * ROW + at, ROW);
                multiply<TILES, true>(kk, r, s->k + block * PART * ROW + at, ROW);
            }
        }
        const float4 low = s->row[2 * (first + lane / 4)], low_by = s->row[2 * (first + lane / 4) + 1];
        const float4 high = s->row[2 * (first + lane / 4) + 16],
                     high_by = s->row[2 * (first + lane / 4) + 17];
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const int column = block * PART + tile * 8;
            float pair[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int i = first + sum_row(e), j = column + sum_column(e);
                const float4 n = e < 2 ? low : high, by = e < 2 ? low_by : high_by;
                const bool seen = j <= i && j >= (int)by.z;
                const float between = __expf(seen ? n.w - s->row[2 * j].w : -INFINITY) * s->row[2 * j + 1].y;
                const float read = READ && j < i ? -between * by.y * d_a[tile][e] : 0;
                d_b[tile][e] *= between * by.x;
                d_a[tile][e] = n.x * read;
                pair[e] = d_b[tile][e] * qk[tile][e] + d_a[tile][e] * kk[tile][e];
                sums[e / 2] += pair[e];
                reads[e / 2] += read * kk[tile][e];
            }
            Bf16 *const to = s->d_b + (first + sum_row(0)) * SQUARE_ROW + column + sum_column(0);
            store_pair(to, d_b[tile][0], d_b[tile][1]);
            store_pair(to + 8 * SQUARE_ROW, d_b[tile][2], d_b[tile][3]);
            store_pair(to + (s->d_a - s->d_b), d_a[tile][0], d_a[tile][1]);
            store_pair(to + (s->d_a - s->d_b) + 8 * SQUARE_ROW, d_a[tile][2], d_a[tile][3]);
            column_sums(pair[0] + pair[2], pair[1] + pair[3], column);
        }
        put(PAIRS, sums[0], sums[1]);
        put(READ_PAIRS, reads[0], reads[1]);
    }

    /* Of two columns of a lane's rows, over the warp's rows. */
    __device__ void column_sums(float low, float high, int column)
    {
#pragma unroll
        for (int m = 4; m < WARP; m *= 2) {
            low += __shfl_xor_sync(0xffffffffu, low, m);
            high += __shfl_xor_sync(0xffffffffu, high, m);
        }
        if (lane < 4) {
            s->column[warp % 4][column + 2 * lane] = low;
            s->column[warp % 4][column + 2 * lane + 1] = high;
        }
    }

    /* The products of the states before and after that the decay of the whole chunk stands between. */
    __device__ float through() const
    {
        float sum = 0;
        for (int i = threadIdx.x; i < KEY * VALUES / VEC; i += THREADS) {
            const int at = i / (VALUES / VEC) * VALUE_ROW + i % (VALUES / VEC) * VEC;
            float x[VEC], y[VEC];
            ::load(s->state + at, x);
            ::load(s->after + at, y);
#pragma unroll
            for (int j = 0; j < VEC; j++)
                sum += x[j] * y[j];
        }
        return sum;
    }

    /* to += by * sum, with one factor for each of the lane's two rows */
    static __device__ void add(float to[WIDE_TILES][4], const float sum[WIDE_TILES][4], float by0, float by1)
    {
#pragma unroll
        for (int tile = 0; tile < WIDE_TILES; tile++) {
            to[tile][0] += by0 * sum[tile][0], to[tile][1] += by0 * sum[tile][1];
            to[tile][2] += by1 * sum[tile][2], to[tile][3] += by1 * sum[tile][3];
        }
    }

    /* Gradients of queries and keys, times their lengths' factors, of a head. */
    template <bool READ> __device__ void keys(float dq[WIDE_TILES][4], float dk[WIDE_TILES][4])
    {
        const bool more = a.value_dim > VALUES;
        const float4 low = s->row[2 * (first + lane / 4)], low_by = s->row[2 * (first + lane / 4) + 1];
        const float4 high = s->row[2 * (first + lane / 4) + 16],
                     high_by = s->row[2 * (first + lane / 4) + 17];
        float entry[WIDE_TILES][4], read[WIDE_TILES][4], whole = 0;
        clear<WIDE_TILES>(entry), clear<WIDE_TILES>(read);
        for (int at = 0; at < a.value_dim; at += VALUES) {
            if (more) {
                __syncthreads();
                copy_d_o(at), copy_values(s->d_written, g.d_written, at), copy_states(at);
                arrive();
            }
            by_values<WIDE_TILES>(entry, s->d_o, s->state + block * WIDE * VALUE_ROW);
            if (READ)
                by_values<WIDE_TILES>(read, s->d_written, s->state + block * WIDE * VALUE_ROW);
            whole += low_by.w != 0 ? through() : 0;
        }
        __syncthreads(); /* d_a and d_b have been written */
        whole = warp_sum(whole);
        if (lane == 0)
            s->through[warp] = low_by.w * whole;
        const float in0 = low.y * low_by.x, in1 = high.y * high_by.x;
        const float read0 = -low.y * low_by.y, read1 = -high.y * high_by.y;
        dots(ENTRY, entry, s->q, in0, in1);
        dots(READS, read, s->k, read0, read1);
        add(dq, entry, in0, in1);
        add(dk, read, low.x * read0, high.x * read1);
        by_rows<false>(dq, s->d_b, s->k);
        by_rows<true>(dk, s->d_b, s->q);
        if (READ) {
            by_rows<false>(dk, s->d_a, s->k);
            by_rows<true>(dk, s->d_a, s->k);
        }
        clear<WIDE_TILES>(entry);
        for (int at = 0; at < a.value_dim; at += VALUES) {
            if (more) {
                __syncthreads();
                copy_values(s->written, g.written, at), copy_states(at);
                arrive();
            }
            by_values<WIDE_TILES>(entry, s->written, s->after + block * WIDE * VALUE_ROW);
        }
        dots(ONTO, entry, s->k, low.z * low_by.y, high.z * high_by.y);
        add(dk, entry, low.z * low_by.y, high.z * high_by.y);
    }

    /* The first warp's: d_beta, d_decay and d_skip of a head, two rows a lane. A token's decay acts on what
     * is read later of what was before it, and on what of that goes on; a document's first token's acts on
     * nothing. */
    __device__ void numbers() const
    {
        float later[2], onto[2], before = 0, skip = 0;
        for (int i = 0; i < THREADS / WARP; i++)
            before += s->through[i];
        for (int i = 0; i < 2; i++) {
            const int row = 2 * lane + i;
            const float beta = s->row[2 * row].x;
            later[i] = taken(ENTRY, row) + beta * taken(READS, row) + taken(PAIRS, row);
            for (int j = 0; j < 4; j++)
                later[i] -= s->column[j][row];
            onto[i] = taken(ONTO, row);
            skip += s->skip[row];
        }
        later[0] += later[1], onto[1] += onto[0];
        float after = later[0], upto = onto[1]; /* sums over this lane's rows and all after, or before */
        for (int m = 1; m < WARP; m *= 2) {
            const float x = __shfl_down_sync(0xffffffffu, after, m), y = __shfl_up_sync(0xffffffffu, upto, m);
            after += lane + m < WARP ? x : 0;
            upto += lane >= m ? y : 0;
        }
        const float sums[2] = {after, after - later[0] + later[1]};
        const float befores[2] = {before + upto - onto[1], before + upto - onto[1] + onto[0]};
        const int last = (int)s->row[2 * c.rows - 1].z;
        for (int i = 0; i < 2; i++) {
            const int row = 2 * lane + i, begin = (int)s->row[2 * row + 1].z;
            const int64_t to = (c.row + row) * a.heads + head;
            if (row >= c.rows)
                continue;
            const bool starts = row > 0 ? begin == row : a.place[c.row] == 0;
            const float passed = begin == last ? befores[i] : 0;
            g.d_decay[to] = starts ? 0 : sums[i] + passed;
            g.d_beta[to] = s->beta[row] + taken(READS, row) + taken(READ_PAIRS, row);
        }
        skip = warp_sum(skip);
        if (lane == 0 && g.d_skip)
            g.d_skip[slot()] = skip;
    }

    /* Back through the lengths: d x = d - x (x . d) / (sum x^2 + eps), where d has the length's factor. */
    __device__ void store(const float d[WIDE_TILES][4], const Bf16 *rows, float square0, float square1,
                          int64_t column)
    {
        __syncthreads();
        dots(LENGTH, d, rows, square0, square1);
        __syncthreads();
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            const int row = first + sum_row(e);
            const float along = a.normalize ? taken(LENGTH, row) : 0;
            const int at = block * WIDE + sum_column(0);
            if (row < c.rows)
#pragma unroll
                for (int tile = 0; tile < WIDE_TILES; tile++) {
                    const float2 x = load_pair(rows + row * ROW + at + tile * 8);
                    store_pair(g.dx + (c.row + row) * a.columns + column + at + tile * 8,
                               d[tile][e] - x.x * along, d[tile][e + 1] - x.y * along);
                }
        }
    }
};

template <int KEY, int VALUES, bool READ>
static __global__ void __launch_bounds__(Gradients<KEY, VALUES>::THREADS)
    scan_gradients_kernel(const __grid_constant__ GradientArgs args)
{
    typedef Gradients<KEY, VALUES> G;
    G b(args);
    const ScanArgs &a = args.a;
    const int group = a.heads / a.key_heads, key_head = blockIdx.y;
    if (b.c.rows <= 0)
        return;
    const Bf16 *x = a.x + b.c.row * a.columns + key_head * KEY;
    copy_tile<G::THREADS, KEY, CHUNK>(b.s->q, G::ROW, x + a.q, a.columns, b.c.rows);
    copy_tile<G::THREADS, KEY, CHUNK>(b.s->k, G::ROW, x + a.k, a.columns, b.c.rows);
    float dq[WIDE_TILES][4], dk[WIDE_TILES][4];
    clear<WIDE_TILES>(dq);
    clear<WIDE_TILES>(dk);
    for (b.head = key_head * group; b.head < (key_head + 1) * group; b.head++) {
        __syncthreads();
        for (int i = threadIdx.x; i < 2 * CHUNK; i += G::THREADS)
            copy16(b.s->row + i, a.row + b.slot() * CHUNK * 2 + i, true);
        b.template pairs<READ>();
        b.template keys<READ>(dq, dk);
        __syncthreads();
        if (b.warp == 0)
            b.numbers();
    }
    const float4 low = b.s->row[2 * (b.first + b.lane / 4) + 1],
                 high = b.s->row[2 * (b.first + b.lane / 4) + 17];
    const float by0 = low.x / a.scale, by1 = high.x / a.scale;
    b.store(dq, b.s->q, by0 * by0, by1 * by1, a.q + key_head * KEY);
    b.store(dk, b.s->k, low.y * low.y, high.y * high.y, a.k + key_head * KEY);
}

#endif
