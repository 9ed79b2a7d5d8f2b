/* cuda_attention.cuh: shared by the attention kernels: tokens of a chunk, tile lists, and the instructions
 * of sm_80.
 *
 * Positions and table values are stored per token of a chunk, so kernels do not depend on the partition
 * (contiguous, zigzag, striped, blocks). A tile list has, for one tile of a side, the tiles of the other
 * side that hold an unmasked pair. It is made once per mask and pair of chunks; for masks with per-token
 * tables, once per batch. */
#ifndef CUDA_ATTENTION_CUH
#define CUDA_ATTENTION_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <string.h>

#include "burst_kernels.h"
#include "burst_mask.h"
#include "burst_range.h"

/* Scores are PLAN_SOFTCAP tanh(S / PLAN_SOFTCAP) before the mask (Gemma 2, arXiv 2408.00118); 0: no softcap,
 * and no code for it. */
#ifndef PLAN_SOFTCAP
#define PLAN_SOFTCAP 0
#endif

/* `deterministic yes`: sums have the same order on every run, as backward's additions to dQ wait for their
 * turn. 0: no code for it. */
#ifndef PLAN_DETERMINISTIC
#define PLAN_DETERMINISTIC 0
#endif

/* ---- chunks ---- */
/* The tokens of one chunk in local order; device memory. table[t] is NULL where no mask reads table t. */
typedef struct BurstTokens {
    int n;
    const int32_t *position;
    const int32_t *table[BURST_MAX_TABLES];
} BurstTokens;

/* bf16 rows of head_dim elements: row i of head h is at + h * head + i * row, in elements (multiples of 8;
 * `at` is 16-byte aligned). Token-major [n][H][d] has row H * d and head d; head-major [H][n][d] has row d
 * and head n * d. */
typedef struct BurstRows { __nv_bfloat16 *at; int64_t row, head; } BurstRows;

/* A tile and its list: count entries, of which the first is repeated here (0: empty list). live: the number
 * of tiles of this side with entries, which come first in the order. 16 bytes, read at once. */
typedef struct BurstTileList { int32_t tile, count, first, live; } BurstTileList;

/* The blocks of keys that tiles of queries chose: of tile t, for the heads of a launch's list l, those of
 * list + l * top + t * stride, up to `top` rising numbers, then -1. Tiles and blocks are counted over the
 * sequence. */
typedef struct BurstChosen {
    const int32_t *list;
    int64_t stride;
    int top;
} BurstChosen;

/* For each tile r of one side: count[r] entries list[r * stride ...], ascending, each a tile of the other
 * side, of which some part of r (burst_tile_parts) sees something: whether part p sees some of it << (26 + 2
 * p) | not all of it << (27 + 2 p) | its chunk << 23 | its index in the chunk << 1 | whether some part does
 * not see all. The sm_80 form, whose lists have one chunk and one part, has only the last two, since it
 * lacks a register for a mask of bits. order: the tiles of this side, longest list first. rows: tiles of
 * this side; stride: tiles of the other. Both count all chunks, one after the other. */
typedef struct BurstTileLists {
    int rows, stride;
    /* With a selection, `heads` query heads from a multiple of it on share a list (0: all of the launch do),
     * and rows of keys have a list for each of 2^band_bits bands, equal parts of the tiles of queries. sets:
     * lists times bands; set l * bands + b of order, count and list follows the one before it. */
    int heads, band_bits, sets;
    BurstTileList *order; /* [sets][rows] */
    int32_t *count, *list;
    /* [4]: tiles taken by the blocks of a persistent grid, 0 between launches; entries, and tiles with
     * entries, of all sets */
    int32_t *taken;
    /* With PLAN_DETERMINISTIC and rows of keys: the number of rows before row r at query tile i, [r * stride
     * + i], for i in r's list; the number that have added to query tile i of head h, [h * stride + i]. Else
     * NULL. */
    int32_t *turn, *added;
    BurstChosen chosen; /* of a mask with a selection */
} BurstTileLists;

/* Tokens of a tile of form BURST_FORM (burst_kernels.h). A MASK has TABLES: bit t: it reads table t; ALL: no
 * pair is masked; KEYS, KEYS_BACKWARD: BURST_KEYS_* of both directions. With a selection it also has
 * CHOSEN_QUERIES and CHOSEN_KEYS: queries of a tile that chooses, keys of a block; multiples of 16. */
#ifndef BURST_FORM
#define BURST_FORM 80
#endif
/* Shared memory available to a block, and the program's number of tables. */
#ifndef BURST_BLOCK_BYTES
#define BURST_BLOCK_BYTES burst_block_bytes(BURST_FORM)
#endif
#ifndef BURST_TABLES
#define BURST_TABLES 1
#endif
/* The most chunks of queries or of keys in one launch. */
enum {
    BURST_FORWARD_CHUNKS = BURST_FORM == 90 ? BURST_MOST_CHUNKS : 1,
    BURST_BACKWARD_CHUNKS = BURST_FORM == 90 ? BURST_MOST_CHUNKS : 1,
};

/* E: value_dim. */
template <int FORM, int D, int E = D> struct BurstTileShape {
    static constexpr BurstTileSizes SIZES = burst_tile_sizes(FORM, D, E, {BURST_BLOCK_BYTES, BURST_TABLES});
    static constexpr int FORWARD_Q = SIZES.forward_q, FORWARD_K = SIZES.forward_k[BURST_KEYS_USUAL],
                         FORWARD_ROWS = SIZES.forward_rows;
    static constexpr int BACKWARD_Q = SIZES.backward_q, BACKWARD_K = SIZES.backward_k,
                         BACKWARD_STAGES = SIZES.backward_stages;
};
template <int D, class MASK, int E = D> struct BurstTiles {
    using Shape = BurstTileShape<BURST_FORM, D, E>;
    static constexpr int FORWARD_Q = Shape::FORWARD_Q, FORWARD_K = Shape::SIZES.forward_k[MASK::KEYS];
    static constexpr int BACKWARD_Q = Shape::BACKWARD_Q, BACKWARD_K = Shape::BACKWARD_K;
    static constexpr bool FORWARD_BLOCKS = BURST_FORM == 90 && MASK::KEYS == BURST_KEYS_BLOCKS;
    static constexpr bool BACKWARD_BLOCKS = BURST_FORM == 90 && MASK::KEYS_BACKWARD == BURST_KEYS_BLOCKS;
};

template <class MASK, class = void> struct BurstSelects {
    static constexpr bool YES = false;
    static constexpr int QUERIES = 1, KEYS = 1;
};
template <class MASK> struct BurstSelects<MASK, decltype((void)MASK::CHOSEN_KEYS)> {
    static constexpr bool YES = true;
    static constexpr int QUERIES = MASK::CHOSEN_QUERIES, KEYS = MASK::CHOSEN_KEYS;
};

/* The lists that a launch may have: the sm_80 form lacks a register for the number of one. */
enum { BURST_LISTS = BURST_FORM == 90 && !PLAN_DETERMINISTIC ? 1 << 16 : 1 };

/* The list of query head `head` of a launch, whose first one is head0 of all. */
template <class MASK>
static __host__ __device__ __forceinline__ int burst_list_of(const BurstTileLists &lists, int head0, int head)
{
    return BURST_LISTS > 1 && BurstSelects<MASK>::YES && lists.heads
               ? (head0 + head) / lists.heads - head0 / lists.heads
               : 0;
}

/* Sets of the lists of a launch of so many query heads, `each` of which share a list; 0: all do. */
static BURST_MAYBE_UNUSED int burst_sets(int each, int band_bits, int head0, int heads)
{
    return (each ? (head0 + heads - 1) / each - head0 / each + 1 : 1) << band_bits;
}

/* ---- arguments of the kernels ---- */
/* PART: only the rows of tiles in the lists' order. */
enum { BURST_FIRST = 1, BURST_LAST = 2, BURST_PART = 4 };

/* One pair. Lengths are arbitrary. q, k are bf16 rows of D elements, v and out of E; out is written only
 * with BURST_LAST. A launch has every pair of some chunks of queries (q, out, o, lse, q_tokens) with some of
 * keys (k, v, k_tokens); all other fields are the first pair's. */
typedef struct BurstForward {
    BurstRows q, k, v, out;
    /* [q_heads][q_tokens.n][E]: normalised so far. Not read with BURST_FIRST, not written with BURST_LAST */
    float *o;
    /* [q_heads][q_tokens.n]: natural logarithm; -inf if no key was seen. Not read with BURST_FIRST */
    float *lse;
    BurstTokens q_tokens, k_tokens;
    BurstTileLists lists; /* a row per query tile */
    int q_heads, q_head0, kv_head0, group; /* query head h reads key head (q_head0 + h) / group - kv_head0 */
    int flags, section;
    float scale;
} BurstForward;

/* One pair. dq has the kernels' own column order and lacks the factor scale until burst_finish_dq. A launch
 * has every pair of some chunks of queries (q, d_o, lse, delta, dq, q_tokens) with some of keys (k, v, dk,
 * dv, k_tokens); all other fields are the first pair's. */
typedef struct BurstBackward {
    BurstRows q, k, v, d_o;
    const float *lse, *delta; /* [q_heads][q_tokens.n] */
    float *dq;                /* [q_heads][q_tokens.n][D], accumulated */
    float *dk, *dv;           /* [kv_heads][k_tokens.n][D], [E], accumulated; dk is scaled */
    BurstTokens q_tokens, k_tokens;
    BurstTileLists lists; /* a row per key tile */
    /* query head h reads key head (q_head0 + h) / group - kv_head0 */
    int q_heads, kv_heads, q_head0, kv_head0, group;
    /* sm_90a: the least number of works per group; query heads whose rows the L2 cache holds */
    int splits, section;
    float scale;
} BurstBackward;

/* ---- fragments: mma.sync.m16n8k16, a warp's lanes holding rows lane/4 (+8) and columns 2 * (lane%4)
 * (+1) ---- */
namespace burst {

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float max_or_nan(float x, float y)
{
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

static __device__ __forceinline__ uint32_t pack(float low, float high)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&both;
}

static __device__ __forceinline__ void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* A 16 x 16 block as four 8 x 8 ones, in the order of the lanes' addresses: with lanes "down" r0, r1 are
 * the upper and lower rows of the left half, r2, r3 those of the right; with lanes "across" r0, r1 are the
 * upper rows, left and right. HMMA takes registers in consecutive pairs, so the order decides whether they
 * need moving:
 *   A of [m][k] storage: down
 *   A of [k][m] storage: across, transposed
 *   B of [n][k] storage: across, n-tiles (r0, r1) and (r2, r3)
 *   B of [k][n] storage: down, transposed, n-tiles (r0, r1) and (r2, r3) */
static __device__ __forceinline__ void load_block(uint32_t r[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

static __device__ __forceinline__ void load_block_transposed(uint32_t r[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

/* A tile in shared memory: panels of 64 columns, one after the other, each ROWS rows of 128 bytes, the
 * 16-byte chunk c of row r at c ^ (r % 8), so that the eight rows of an 8 x 8 block are in different
 * banks. Tiles are aligned to 1024 bytes. lanes_down and lanes_across are a lane's address for the block
 * at row 0, column 0. block_at is that of the block at (row, column), constant multiples of 16, of the
 * tile that lies `tile` bytes on: four values of base ^ column serve all blocks of all tiles, the rest is
 * in the instruction. moved is for what is not constant. */
static __device__ __forceinline__ uint32_t lanes_down(int lane)
{
    return (uint32_t)((lane & 15) * 128 + (((lane >> 4) ^ (lane & 7)) << 4));
}

static __device__ __forceinline__ uint32_t lanes_across(int lane)
{
    return (uint32_t)(((lane & 7) + (lane >> 4) * 8) * 128 + (((lane >> 3 & 1) ^ (lane & 7)) << 4));
}

template <int ROWS>
static __device__ __forceinline__ uint32_t block_at(uint32_t lane_base, int tile, int row, int column)
{
    return (lane_base ^ (uint32_t)(column % 64 * 2)) +
           (uint32_t)(tile + column / 64 * ROWS * 128 + row * 128);
}

template <int ROWS> static __device__ __forceinline__ uint32_t moved(uint32_t lane_base, int row, int column)
{
    return block_at<ROWS>(lane_base, 0, row, column);
}

/* Keeps later loads after this point: ptxas would otherwise load ahead until registers spill. */
static __device__ __forceinline__ void not_ahead() { __syncwarp(); }

/* Makes the compiler recompute what follows from x instead of keeping it in registers. */
static __device__ __forceinline__ void forget(int &x) { asm volatile("" : "+r"(x)); }

/* Recomputed at each use, so that it occupies no registers between uses. */
static __device__ __forceinline__ int thread_number()
{
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

static __device__ __forceinline__ int block_number()
{
    int block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
}

/* ---- softcap ---- */
/* tanh x with an absolute error of about 2e-7; tanh.approx's is 5e-4, and the cap multiplies it. */
static __device__ __forceinline__ float tanh_fast(float x)
{
    return 1 - __fdividef(2, 1 + exp2_fast(x * 2.88539008f));
}

static constexpr bool CAPPED = PLAN_SOFTCAP > 0;
static constexpr float CAP = CAPPED ? PLAN_SOFTCAP : 1;

/* The factor of scores in registers: capped ones are already scaled. */
static __device__ __forceinline__ float score_scale(float scale) { return CAPPED ? 1 : scale; }

/* Caps raw scores, a few at a time, since their exponentials take registers. */
template <int N> static __device__ __forceinline__ void cap_scores(float *s, float scale)
{
    if constexpr (CAPPED)
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (i % 4 == 0)
                not_ahead();
            s[i] = CAP * tanh_fast(s[i] * scale * (1 / CAP));
        }
}

/* x times the slope of the cap at a score, computed from P and lse (log2): S = ln P + lse. 0 if P is 0. */
static __device__ __forceinline__ float times_slope(float x, float p, float lse)
{
    if constexpr (CAPPED) {
        float log2_p;
        asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2_p) : "f"(p));
        const float t = (log2_p + lse) * (0.693147181f / CAP);
        return p == 0 ? 0 : x * (1 - t * t);
    }
    return x;
}

/* ---- cp.async ---- */
static __device__ __forceinline__ void copy16(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void copy4(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0)
                 : "memory");
}

static __device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int PENDING> static __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* Threads that copy a row of so many columns: a power of two; the last may be idle. */
template <int COLUMNS>
static constexpr int COPY_THREADS = 4 << ((COLUMNS > 32) + (COLUMNS > 64) + (COLUMNS > 128));

/* Starts the copy of rows first .. first + ROWS - 1 of a head. Rows from n on, and columns from D to WIDE,
 * become zeros. */
template <int ROWS, int D, int THREADS, int WIDE = D>
static __device__ __forceinline__ void copy_tile(uint32_t tile, const __nv_bfloat16 *head, int64_t row_stride,
                                                 int first, int n)
{
    constexpr int CHUNKS = COPY_THREADS<WIDE>, STEP = THREADS / CHUNKS;
    const int chunk = (int)threadIdx.x % CHUNKS, row = (int)threadIdx.x / CHUNKS;
    const bool column = D == CHUNKS * 8 || chunk * 8 < D;
    const __nv_bfloat16 *const from = head + (first + row) * row_stride + (column ? chunk * 8 : 0);
    const uint32_t to = tile +
                        (uint32_t)(chunk / 8 * ROWS * 128 + row * 128 + ((chunk % 8 ^ (row & 7)) << 4));
    static_assert(STEP % 8 == 0 && ROWS % STEP == 0, "a thread's rows share their swizzle");
    if (WIDE < CHUNKS * 8 && chunk * 8 >= WIDE)
        return;
    if (first + ROWS <= n) {
#pragma unroll
        for (int r = 0; r < ROWS; r += STEP)
            copy16(to + (uint32_t)(r * 128), from + r * row_stride, column);
    } else {
#pragma unroll 1
        for (int r = 0; r < ROWS; r += STEP) {
            const bool there = first + row + r < n;
            copy16(to + (uint32_t)(r * 128), there ? from + r * row_stride : head, there && column);
        }
    }
}

/* Copies a side's tokens for partial tiles: ints[0 .. TILE) positions, then the values of each table that
 * the mask reads. */
template <int TILE, int THREADS, class MASK>
static __device__ __forceinline__ void copy_tokens(uint32_t ints, const BurstTokens &tokens, int first)
{
    static_assert(TILE <= THREADS, "a thread copies one token");
    const int i = (int)threadIdx.x;
    const bool there = first + i < tokens.n;
    const int at = there ? first + i : 0;
    if (i >= TILE)
        return;
    copy4(ints + (uint32_t)i * 4, tokens.position + at, there);
#pragma unroll
    for (int t = 0; t < BURST_MAX_TABLES; t++)
        if (MASK::TABLES >> t & 1)
            copy4(ints + (uint32_t)((1 + t) * TILE + i) * 4, tokens.table[t] + at, there);
}

/* Loads the table values of token i into registers. */
template <int TILE, class MASK>
static __device__ __forceinline__ void token_values(const int32_t *ints, int i, int32_t *value)
{
#pragma unroll
    for (int t = 0; t < BURST_MAX_TABLES; t++)
        value[t] = MASK::TABLES >> t & 1 ? ints[(1 + t) * TILE + i] : 0;
}

/* Ints of shared memory for one side's tokens: up to the last table that the mask reads. */
template <class MASK> static constexpr int token_ints(int tile)
{
    int tables = 0;
    for (int t = 0; t < BURST_MAX_TABLES; t++)
        if (MASK::TABLES >> t & 1)
            tables = t + 1;
    return tile * (1 + tables);
}

/* ---- sums ---- */
static __device__ __forceinline__ void add_one(float *at, float x)
{
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(at), "f"(x) : "memory");
}

/* at: aligned to 16 bytes. */
static __device__ __forceinline__ void add_four(float *at, float x, float y, float z, float w)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(x), "f"(y), "f"(z), "f"(w)
                 : "memory");
#else
    add_one(at, x), add_one(at + 1, y), add_one(at + 2, z), add_one(at + 3, w);
#endif
}

/* The same without a branch, since products may be running. */
static __device__ __forceinline__ void add_four_if(bool there, float *at, float x, float y, float z, float w)
{
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p red.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n}" ::"l"(
            at),
        "f"(x), "f"(y), "f"(z), "f"(w), "r"((int)there)
        : "memory");
#else
    if (there)
        add_four(at, x, y, z, w);
#endif
}

static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Transposes 4 x 4 among four lanes: lane i gets x[i] of each, in their order. */
static __device__ __forceinline__ void quad_transpose(uint32_t x[4], int lane)
{
#pragma unroll
    for (int step = 1; step < 4; step *= 2)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!(i & step)) {
                const bool high = lane & step;
                const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? x[i] : x[i + step], step);
                if (high)
                    x[i] = got;
                else
                    x[i + step] = got;
            }
}

/* Whether the queries' tile has the keys' block in list l. The rest of a list is -1, the greatest as an
 * unsigned number. */
static __device__ __forceinline__ int chosen_has(const BurstChosen &chosen, int l, int tile, int block)
{
    const int32_t *const list = chosen.list + l * chosen.top + tile * chosen.stride;
    int lo = 0;
    for (int size = chosen.top; size > 0;) {
        const int half = size / 2;
        const bool less = (uint32_t)__ldg(list + lo + half) < (uint32_t)block;
        lo = less ? lo + half + 1 : lo;
        size = less ? size - half - 1 : half;
    }
    return lo < chosen.top && __ldg(list + lo) == block;
}

/* Bit r * GROUPS + g: whether the pairs of row 16 r with columns 16 g to 16 g + 15 are chosen. Sixteen
 * neighbours are in one tile of queries and one block of keys; all of a kernel's tile are if these divide.
 * TURNED: rows are keys. rows, columns: positions, from the first on. */
template <class MASK, int ROWS, int COLUMNS, int B, int GROUPS, bool TURNED>
static __device__ __forceinline__ uint32_t chosen_bits(const BurstChosen &chosen, int list,
                                                       const int32_t *rows, const int32_t *columns)
{
    using S = BurstSelects<MASK>;
    constexpr int ROW = TURNED ? S::KEYS : S::QUERIES, COLUMN = TURNED ? S::QUERIES : S::KEYS;
    constexpr bool WHOLE = ROW % ROWS == 0 && COLUMN % COLUMNS == 0;
    uint32_t bits = 0;
    if constexpr (S::YES) {
#pragma unroll 1
        for (int i = 0; i < (WHOLE ? 1 : B * GROUPS); i++) {
            const int own = rows[i / GROUPS * 16] / ROW, at = columns[i % GROUPS * 16] / COLUMN;
            bits |= (uint32_t)chosen_has(chosen, list, TURNED ? at : own, TURNED ? own : at) << i;
        }
        bits = WHOLE ? 0 - bits : bits;
    }
    return bits;
}

/* Sets whether a key is chosen, in the place of a table's value. */
template <class MASK>
static __device__ __forceinline__ void set_chosen(int32_t *key_value, uint32_t bits, int group)
{
    if constexpr (BurstSelects<MASK>::YES)
        key_value[BURST_SELECT_TABLE] = (int32_t)(bits >> group & 1);
}

/* Sets -inf where the mask drops a pair or there is no key, in the warp's rows of scores from row0 on and
 * columns from column0 on. TURNED: rows are keys and columns queries. keys: their number from the tile's
 * first on. */
template <int ROWS, int COLUMNS, class MASK, bool TURNED, int B, int N>
static __device__ __forceinline__ void mask_blocks(float (&s)[B][N][4], const int32_t *row_ints,
                                                   const int32_t *column_ints, int row0, int column0,
                                                   int lane, int keys, const BurstChosen &chosen)
{
    int32_t row_position[2 * B];
    const uint32_t bits = chosen_bits<MASK, ROWS, COLUMNS, B, N / 2, TURNED>(chosen, 0,
                                                                             row_ints + row0 + lane / 4,
                                                                             column_ints + column0);
#pragma unroll
    for (int i = 0; i < 2 * B; i++)
        row_position[i] = row_ints[row0 + i * 8 + lane / 4];
#pragma unroll
    for (int c = 0; c < N; c++) {
        if (!TURNED)
            not_ahead();
        const int first = column0 + c * 8 + lane % 4 * 2;
        const int2 both = *(const int2 *)(column_ints + first);
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int column = first + e, position = e ? both.y : both.x;
            int32_t row_value[BURST_MAX_TABLES], value[BURST_MAX_TABLES];
            token_values<COLUMNS, MASK>(column_ints, column, value);
#pragma unroll
            for (int i = 0; i < 2 * B; i++) {
                const int row = row0 + i * 8 + lane / 4;
                token_values<ROWS, MASK>(row_ints, row, row_value);
                set_chosen<MASK>(TURNED ? row_value : value, bits, i / 2 * (N / 2) + c / 2);
                const bool keep = ((TURNED ? row : column) < keys) &
                                  ((TURNED ? MASK::keep(position, row_position[i], value, row_value) :
                                             MASK::keep(row_position[i], position, row_value, value)) != 0);
                float &x = s[i / 2][c][i % 2 * 2 + e];
                x = keep ? x : -CUDART_INF_F;
            }
        }
    }
}

/* ---- the (tile, head) of a block ---- */
/* Longest tiles first within a section of heads, which is small enough that its rows stay in the L2
 * cache. */
typedef struct Place { int tile, head; } Place;
static __device__ __forceinline__ Place place_of(int block, int rows, int heads, int section)
{
    const int first = block / (rows * section) * section, in = block - first * rows,
              width = min(section, heads - first);
    return {in / width, first + in % width};
}

/* The same, but the last `late` heads are one section: see late_heads. */
static __device__ __forceinline__ Place place_late(int number, int rows, int heads, int section, int late)
{
    const int rest = number - rows * (heads - late);
    if (rest < 0)
        return place_of(number, rows, heads - late, section);
    return {rest / late, heads - late + rest % late};
}

/* The number of last heads whose lists occupy all blocks of the grid for `factor` times the longest list's
 * time: worked on longest first, they end together. Otherwise a long list of the last head would start when
 * nothing else is left. */
static __device__ __forceinline__ int late_heads(const BurstTileLists &lists, int heads, int factor)
{
    const float longest = (float)lists.order[0].count,
                entries = __fdividef((float)lists.taken[1], (float)lists.sets);
    return min(heads, (int)ceilf(__fdividef((float)(factor * (int)gridDim.x) * longest, fmaxf(entries, 1))));
}

/* One load of 16 bytes. tile_again: recomputed, like thread_number. */
static __device__ __forceinline__ BurstTileList list_of(const BurstTileLists &lists, int at)
{
    const int4 x = *(const int4 *)&lists.order[at];
    BurstTileList l = {x.x, x.y, x.z, x.w};
    return l;
}

static __device__ __forceinline__ int entry_chunk(int entry) { return entry >> 23 & 7; }
static __device__ __forceinline__ int entry_tile(int entry)
{
    return BURST_FORM == 80 ? entry / 2 : (entry & 0x7fffff) >> 1;
}
static __device__ __forceinline__ bool entry_seen(int entry, int part)
{
    return entry >> (26 + 2 * part) & 1;
}
static __device__ __forceinline__ bool entry_masked(int entry, int part)
{
    return entry >> (27 + 2 * part) & 1;
}

static __device__ __forceinline__ int tile_again(const BurstTileLists &lists, int at)
{
    return *(const volatile int32_t *)&lists.order[at].tile;
}

/* Adds scale * x to a row of n-tiles at `at`, the row's first column here. Two n-tiles are 16 columns, STEP
 * columns after the previous two; those from `columns` on are skipped. A lane of four holds two columns of
 * each of two n-tiles; lanes exchange them in pairs, so that each adds four columns of one tile. */
template <int TILES, int STEP = 16>
static __device__ __forceinline__ void add_row(const float (*x)[4], int h, float scale, float *at, int lane,
                                               bool there, int columns = TILES / 2 * STEP)
{
    const bool odd = lane & 1;
#pragma unroll
    for (int j = 0; j < TILES; j += 2) {
        const float give0 = odd ? x[j][h] : x[j + 1][h], give1 = odd ? x[j][h + 1] : x[j + 1][h + 1];
        const float keep0 = odd ? x[j + 1][h] : x[j][h], keep1 = odd ? x[j + 1][h + 1] : x[j][h + 1];
        const float got0 = __shfl_xor_sync(0xffffffffu, give0, 1),
                    got1 = __shfl_xor_sync(0xffffffffu, give1, 1);
        float *const to = at + j / 2 * STEP + odd * 8 + lane % 4 / 2 * 4;
        if (there && j / 2 * STEP < columns)
            add_four(to, scale * (odd ? got0 : keep0), scale * (odd ? got1 : keep1),
                     scale * (odd ? keep0 : got0), scale * (odd ? keep1 : got1));
    }
}

/* Index in a group of 32 columns of dQ of n-tile j, lane c of four, element e. In the sm_80 form the first
 * 16 columns come first, so that a row may end with half a group. The additions of one instruction are
 * contiguous: sm_90 adds four floats per lane, sm_80 one; in the sm_90a form all eight of a lane are. */
template <int D> static constexpr bool LANES_APART = BURST_FORM == 90 && D <= 128;
template <int D> static __device__ __forceinline__ int dq_place(int j, int c, int e)
{
    if (LANES_APART<D>)
        return c * 8 + j * 2 + e;
#if __CUDA_ARCH__ >= 900
    return j / 2 * 16 + c * 4 + j % 2 * 2 + e;
#else
    return (j * 2 + e) * 4 + c;
#endif
}

} // namespace burst

/* ---- before and after backward ---- */
/* delta[h][i] = rowsum(dO * O), 16 rows a warp: the diagonal of O dO^T, computed like backward's dP, so that
 * dP - delta is exactly 0 if O is the value of a row's only key. */
template <int D>
static __global__ void burst_delta_kernel(BurstRows o, BurstRows d_o, int n, int heads, float *delta)
{
    const int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32 * 16,
                  end = (int64_t)heads * n;
    const int lane = (int)threadIdx.x % 32, own = lane / 4;
    const __nv_bfloat16 *from[2][2];
    float sum[2][4] = {};
    if (first >= end)
        return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t row = first + own + half * 8 < end ? first + own + half * 8 : end - 1;
        from[half][0] = o.at + row / n * o.head + row % n * o.row + lane % 4 * 2;
        from[half][1] = d_o.at + row / n * d_o.head + row % n * d_o.row + lane % 4 * 2;
    }
#pragma unroll
    for (int x = 0; x < D; x += 16) {
        uint32_t a[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            a[e] = *(const uint32_t *)(from[e % 2][0] + x + e / 2 * 8);
#pragma unroll
        for (int half = 0; half < 2; half++)
            burst::mma(sum[half], a, *(const uint32_t *)(from[half][1] + x),
                       *(const uint32_t *)(from[half][1] + x + 8));
    }
#pragma unroll
    for (int half = 0; half < 2; half++) /* a lane has columns lane % 4 * 2 and + 1 */
        if (first + own + half * 8 < end && lane % 4 == own / 2)
            delta[first + own + half * 8] = own % 2 ? sum[half][half * 2 + 1] : sum[half][half * 2];
}

/* out = scale * dq, in bf16 and in order; eight columns per thread. */
template <int D>
static __global__ void burst_finish_dq_kernel(const float *dq, int n, int heads, float scale, BurstRows out)
{
    constexpr bool LANES = burst::LANES_APART<D>;
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = at / (D / 8);
    const int x = (int)(at % (D / 8)) * 8, head = (int)(row / n), i = (int)(row % n);
    uint32_t both[4] = {0, 0, 0, 0};
    if (head < heads) {
        const float *const group = dq + row * D + x / 32 * 32;
        const int part = x % 32 / 8;
        if (LANES) {
            const float4 low = *(const float4 *)(group + part * 8),
                         high = *(const float4 *)(group + part * 8 + 4);
            both[0] = burst::pack(low.x * scale, low.y * scale),
            both[1] = burst::pack(low.z * scale, low.w * scale);
            both[2] = burst::pack(high.x * scale, high.y * scale),
            both[3] = burst::pack(high.z * scale, high.w * scale);
        } else
#pragma unroll
            for (int c = 0; c < 4; c++)
                both[c] = burst::pack(group[burst::dq_place<D>(part, c, 0)] * scale,
                                      group[burst::dq_place<D>(part, c, 1)] * scale);
    }
    if (LANES) /* whole warps: a row has a multiple of four threads */
        burst::quad_transpose(both, (int)threadIdx.x % 32);
    if (head < heads)
        *(uint4 *)(out.at + head * out.head + i * out.row + x) = make_uint4(both[0], both[1], both[2],
                                                                            both[3]);
}

template <int D>
static cudaError_t burst_delta(BurstRows o, BurstRows d_o, int n, int heads, float *delta,
                               cudaStream_t stream)
{
    const int64_t threads = ((int64_t)n * heads + 15) / 16 * 32;
    if (threads)
        burst_delta_kernel<D><<<(unsigned)((threads + 255) / 256), 256, 0, stream>>>(o, d_o, n, heads, delta);
    return cudaGetLastError();
}

/* Called after the last pair. */
template <int D>
static cudaError_t burst_finish_dq(const float *dq, int n, int heads, float scale, BurstRows out,
                                   cudaStream_t stream)
{
    const int64_t threads = (int64_t)n * heads * (D / 8);
    if (threads)
        burst_finish_dq_kernel<D>
            <<<(unsigned)((threads + 255) / 256), 256, 0, stream>>>(dq, n, heads, scale, out);
    return cudaGetLastError();
}

#include "cuda_lists.cuh"

#endif
