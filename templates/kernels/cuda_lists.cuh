/* cuda_lists.cuh: makes the attention kernels' lists of tiles (BurstTileLists) on the device: the hull of
 * each tile's tokens, the tiles of the other side that hold an unmasked pair with it, and the order of
 * work. cuda_attention.cuh includes it at its end. */
#ifndef CUDA_LISTS_CUH
#define CUDA_LISTS_CUH

/* One side of a launch: tiles of `tile` tokens of its chunks, one after the other; chunk c has begin[c] ..
 * begin[c + 1] - 1. The mask judges each of a tile's `parts` separately. there: the tiles of each chunk that
 * arrived; no token outside has an unmasked pair, even if a hull says so. */
typedef struct BurstTiled {
    int chunks, tile, parts, begin[BURST_MOST_CHUNKS + 1];
    BurstTokens tokens[BURST_MOST_CHUNKS];
    BurstTileRanges there[BURST_MOST_CHUNKS];
} BurstTiled;

static BURST_MAYBE_UNUSED __host__ __device__ __forceinline__ int burst_parts(const BurstTiled &side)
{
    return side.begin[side.chunks] * side.parts;
}

static __device__ __forceinline__ int burst_chunk_at(const BurstTiled &side, int at)
{
    int chunk = 0;
    while (at >= side.begin[chunk + 1])
        chunk++;
    return chunk;
}

/* Whether some part of the tile arrived. */
static __device__ __forceinline__ bool burst_is_there(const BurstTiled &side, int chunk, int at)
{
    const int begin = (at - side.begin[chunk]) * side.tile, end = begin + side.tile;
    bool there = false;
    for (int i = 0; i < BURST_RANGES; i++) {
        const BurstTileRange r = side.there[chunk].at[i];
        there |= r.lo < r.hi && r.lo * BURST_TILE < end &&
                 (r.hi == BURST_ALL_TILES || r.hi * BURST_TILE > begin);
    }
    return there;
}

/* Whether the tile has fewer tokens than others. */
static __device__ __forceinline__ bool burst_is_short(const BurstTiled &side, int chunk, int at)
{
    return (at - side.begin[chunk] + 1) * side.tile > side.tokens[chunk].n;
}

/* The first token of a part's second hull: the one after its widest gap in positions, if that is wider than
 * the part; else `last`. Strided tokens have gaps everywhere, and no hull of theirs would be narrower. */
static __device__ __forceinline__ int burst_split(const int32_t *position, int first, int last, int size,
                                                  int lane)
{
    unsigned widest = 0;
    int at = last;
    for (int i = first + 1 + lane; i < last; i += 32) {
        const unsigned gap = (unsigned)abs(position[i] - position[i - 1]);
        at = gap > widest ? i : at;
        widest = max(widest, gap);
    }
    const unsigned most = __reduce_max_sync(0xffffffffu, widest);
    return __reduce_min_sync(0xffffffffu, most > (unsigned)size && widest == most ? at : last);
}

static __device__ __forceinline__ void burst_hull(const BurstTokens &tokens, int first, int last, int lane,
                                                  BurstSide *side)
{
    int32_t lo[1 + BURST_MAX_TABLES], hi[1 + BURST_MAX_TABLES];
    for (int v = 0; v <= BURST_MAX_TABLES; v++) {
        const int32_t *value = v ? tokens.table[v - 1] : tokens.position;
        int32_t low = INT32_MAX, high = INT32_MIN;
        for (int i = first + lane; value && i < last; i += 32)
            low = min(low, value[i]), high = max(high, value[i]);
        lo[v] = __reduce_min_sync(0xffffffffu, low), hi[v] = __reduce_max_sync(0xffffffffu, high);
    }
    if (lane)
        return;
    side->lo = lo[0], side->hi = hi[0];
    for (int t = 0; t < BURST_MAX_TABLES; t++)
        side->table_lo[t] = lo[1 + t], side->table_hi[t] = hi[1 + t];
}

/* side[BURST_HULLS * i], side[BURST_HULLS * i + 1]: hulls of the tokens of part i before and after its widest
 * gap, for the tiles of q, then of k; one warp per part. A hull without tokens has lo > hi. */
static __global__ void burst_sides_kernel(const __grid_constant__ BurstTiled q,
                                          const __grid_constant__ BurstTiled k, BurstSide *side)
{
    const int number = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = (int)threadIdx.x % 32,
              queries = burst_parts(q);
    if (number >= queries + burst_parts(k))
        return;
    const BurstTiled &of = number < queries ? q : k;
    const int part = number < queries ? number : number - queries, at = part / of.parts,
              chunk = burst_chunk_at(of, at);
    const BurstTokens &tokens = of.tokens[chunk];
    const int size = of.tile / of.parts, first = (at - of.begin[chunk]) * of.tile + part % of.parts * size,
              last = min(tokens.n, first + size);
    const int split = burst_split(tokens.position, first, last, size, lane);
    for (int hull = 0; hull < BURST_HULLS; hull++)
        burst_hull(tokens, hull ? split : first, hull ? last : split, lane,
                   &side[BURST_HULLS * number + hull]);
}

/* Pairs of tiles and blocks that are looked up for a tile of the lists; more are partial. */
enum { BURST_MOST_LOOKED = 32 };

/* MASK::tile with the tile's selection, which is looked up where it decides. */
template <class MASK>
static __device__ __forceinline__ int burst_hull_cover(const BurstSide *q, const BurstSide *k,
                                                       const BurstChosen &chosen, int list)
{
    using S = BurstSelects<MASK>;
    if constexpr (!S::YES)
        return MASK::tile(q, k);
    BurstSide keys = *k;
    keys.table_lo[BURST_SELECT_TABLE] = 0, keys.table_hi[BURST_SELECT_TABLE] = 1;
    const int open = MASK::tile(q, &keys);
    const int tile = (int)(q->lo / S::QUERIES), tiles = (int)(q->hi / S::QUERIES) - tile + 1,
              block = (int)(k->lo / S::KEYS), blocks = (int)(k->hi / S::KEYS) - block + 1;
    if (open != BURST_PARTIAL || (int64_t)tiles * blocks > BURST_MOST_LOOKED)
        return open;
    int least = 1, most = 0;
    for (int i = 0; i < tiles * blocks; i++) {
        const int has = burst::chosen_has(chosen, list, tile + i / blocks, block + i % blocks);
        least = min(least, has), most = max(most, has);
    }
    keys.table_lo[BURST_SELECT_TABLE] = least, keys.table_hi[BURST_SELECT_TABLE] = most;
    return MASK::tile(q, &keys);
}

/* What a part sees of a tile of the other side, by the hulls of both. */
template <class MASK>
static __device__ __forceinline__ int burst_cover(const BurstSide *own, const BurstSide *other, bool own_is_q,
                                                  const BurstChosen &chosen, int list)
{
    bool some = false, all = true;
#pragma unroll 1
    for (int i = 0; i < BURST_HULLS * BURST_HULLS; i++) {
        const BurstSide *x = &own[i / BURST_HULLS], *y = &other[i % BURST_HULLS];
        if (x->lo > x->hi || y->lo > y->hi)
            continue;
        const int cover = burst_hull_cover<MASK>(own_is_q ? x : y, own_is_q ? y : x, chosen, list);
        some |= cover != BURST_EMPTY, all &= cover == BURST_FULL;
    }
    if (!some)
        return BURST_EMPTY;
    return all ? BURST_FULL : BURST_PARTIAL;
}

/* What the tile's parts see of a tile of the other side, two bits each as in an entry; 0: nothing. */
template <class MASK>
static __device__ __forceinline__ unsigned burst_covers(const BurstSide *own, int parts,
                                                        const BurstSide *other, bool own_is_q, bool is_short,
                                                        const BurstChosen &chosen, int list)
{
    unsigned covers = 0;
    for (int p = 0; p < parts; p++) {
        const int cover = burst_cover<MASK>(own + BURST_HULLS * p, other, own_is_q, chosen, list);
        unsigned bits = cover == BURST_PARTIAL || is_short ? 3u : 1u;
        if (cover == BURST_EMPTY)
            bits = 0;
        covers |= bits << 2 * p;
    }
    return covers;
}

/* A set of the lists, which has its own order, count and list. */
static BURST_MAYBE_UNUSED __host__ __device__ __forceinline__ BurstTileLists
burst_lists_set(BurstTileLists lists, int set)
{
    const int64_t rows = (int64_t)set * lists.rows;
    lists.order += rows, lists.count += rows, lists.list += rows * lists.stride;
    return lists;
}

/* One warp per list, one row of blocks per set. own_is_q: rows are query tiles. A short tile of keys is
 * partial, since its last columns are no keys. */
template <class MASK>
static __global__ void burst_lists_kernel(const __grid_constant__ BurstTiled own,
                                          const __grid_constant__ BurstTiled other, const BurstSide *own_side,
                                          const BurstSide *other_side, bool own_is_q, BurstTileLists all)
{
    const int row = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = (int)threadIdx.x % 32;
    if (row >= all.rows)
        return;
    const BurstTileLists lists = burst_lists_set(all, (int)blockIdx.y);
    const int bands = 1 << all.band_bits, list = (int)blockIdx.y / bands, band = (int)blockIdx.y % bands;
    const int64_t others = other.begin[other.chunks];
    const int lo = (int)(others * band / bands), hi = (int)(others * (band + 1) / bands);
    const int row_chunk = burst_chunk_at(own, row);
    const bool row_is_short = !own_is_q && burst_is_short(own, row_chunk, row),
               row_is_there = burst_is_there(own, row_chunk, row);
    const unsigned whole = 0x15u >> (6 - 2 * own.parts);
    int count = 0;
    for (int chunk = 0; chunk < other.chunks; chunk++)
        for (int first = max(other.begin[chunk], lo); first < min(other.begin[chunk + 1], hi); first += 32) {
            const int at = first + lane;
            unsigned covers = 0;
            if (at < min(other.begin[chunk + 1], hi) && row_is_there && burst_is_there(other, chunk, at))
                covers = burst_covers<MASK>(own_side + BURST_HULLS * row * own.parts, own.parts,
                                            other_side + BURST_HULLS * at, own_is_q,
                                            row_is_short || (own_is_q && burst_is_short(other, chunk, at)),
                                            lists.chosen, list);
            const unsigned found = __ballot_sync(0xffffffffu, covers != 0);
            if (covers)
                lists.list[(int64_t)row * lists.stride + count + __popc(found & ((1u << lane) - 1))] =
                    (int)((BURST_FORM == 80 ? 0 : covers << 26 | (unsigned)chunk << 23) |
                          (unsigned)(at - other.begin[chunk]) << 1 | (covers != whole));
            count += __popc(found);
        }
    if (lane == 0)
        lists.count[row] = count;
}

/* Turns at a query tile: the last key tile is first. With causal masks it also arrives first. */
template <class MASK>
static __global__ void burst_turns_kernel(const __grid_constant__ BurstTiled own, const BurstSide *keys,
                                          const BurstSide *queries, BurstTileLists lists)
{
    const int at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int turn = 0;
    for (int row = lists.rows - 1; row >= 0 && at < lists.stride; row--)
        if (burst_is_there(own, burst_chunk_at(own, row), row) &&
            burst_covers<MASK>(keys + BURST_HULLS * row * own.parts, own.parts, queries + BURST_HULLS * at,
                               false, false, lists.chosen, 0))
            lists.turn[(int64_t)row * lists.stride + at] = turn++;
}

/* Lists in two parts (burst_lists_place): the same lists with the order of the second part, whose rows see
 * chunks of keys from `home` on. */
static BURST_MAYBE_UNUSED __host__ __device__ __forceinline__ BurstTileLists burst_lists_rest(
    BurstTileLists lists)
{
    lists.order += (int64_t)lists.sets * lists.rows, lists.taken += 4;
    return lists;
}

static __device__ __forceinline__ bool burst_is_rest(const BurstTileLists &lists, int row, int home)
{
    const int count = home ? lists.count[row] : 0;
    return count && burst::entry_chunk(lists.list[(int64_t)row * lists.stride + count - 1]) >= home;
}

/* order[i] = the i-th longest of a part, equal ones in ascending order. With turns, the last tile comes
 * first, so that a tile waits only for one that started before it. home: rows of the first part see only so
 * many chunks of keys; 0: there is one part. With two parts all rows are live. */
static __global__ void burst_order_kernel(BurstTileLists all, int home)
{
    const int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (row >= all.rows)
        return;
    const BurstTileLists lists = burst_lists_set(all, (int)blockIdx.y);
    const int mine = lists.count[row];
    const bool rest = burst_is_rest(lists, row, home);
    const BurstTileLists of = rest ? burst_lists_rest(lists) : lists;
    int before = 0, live = 0, others = 0;
    int64_t entries = 0;
    for (int i = 0; i < lists.rows; i++) {
        const int count = lists.count[i];
        if (burst_is_rest(lists, i, home) != rest) {
            others++;
            continue;
        }
        before += count > mine || (count == mine && i < row);
        live += home || count > 0;
        entries += count;
    }
    if (before == 0) {
        atomicAdd(&of.taken[1], entries < INT32_MAX ? (int32_t)entries : INT32_MAX);
        atomicAdd(&of.taken[2], live);
    }
    if (home && before == 0 && others == 0)
        (rest ? lists : burst_lists_rest(lists)).order[0] = {0, 0, 0, 0};
    of.order[lists.turn ? lists.rows - 1 - row : before] = {row, mine,
                                                            mine ? lists.list[(int64_t)row * lists.stride]
                                                                 : 0,
                                                            live};
}

/* value[i] = table[position[i]] for the n tokens of a chunk: table values of a batch, in local order. */
static __global__ void burst_gather_table_kernel(int n, const int32_t *position, const int32_t *table,
                                                 int32_t *value)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        value[i] = table[position[i]];
}

static BURST_MAYBE_UNUSED int burst_tiles(int n, int tile) { return (n + tile - 1) / tile; }

/* Ints of the lists of one launch, or of two with a part of the rows each: order, count, list and taken;
 * with turns of so many heads, turn and added too. Sets of lists need as many of all but the latter, each
 * with the tiles of a band as the others. */
static BURST_MAYBE_UNUSED size_t burst_lists_ints(int own_tiles, int other_tiles, int turns, int parts)
{
    const size_t own = (size_t)own_tiles, other = (size_t)other_tiles, orders = (size_t)parts;
    return own * (orders * sizeof(BurstTileList) / 4 + 1 + other) + 4 * orders +
           (turns ? (own + (size_t)turns) * other : 0);
}

/* memory: aligned to 16 bytes. */
static BURST_MAYBE_UNUSED BurstTileLists burst_lists_place(int own_tiles, int other_tiles, bool turns,
                                                           int parts, int32_t *memory)
{
    const size_t pairs = (size_t)own_tiles * (size_t)other_tiles,
                 orders = (size_t)parts * (size_t)own_tiles * (sizeof(BurstTileList) / 4);
    int32_t *const count = memory + orders, *const list = count + own_tiles;
    int32_t *const taken = list + pairs, *const turn = turns ? taken + 4 * parts : NULL;
    BurstTileLists l = {own_tiles,
                        other_tiles,
                        0,
                        0,
                        1,
                        (BurstTileList *)memory,
                        count,
                        list,
                        taken,
                        turn,
                        turns ? turn + pairs : NULL,
                        {}};
    return l;
}

/* Sets of lists (BurstTileLists) without turns; how: chosen, heads and band_bits. */
static BURST_MAYBE_UNUSED BurstTileLists burst_lists_place_sets(int own_tiles, int other_tiles, int sets,
                                                                int parts, BurstTileLists how,
                                                                int32_t *memory)
{
    BurstTileLists l = burst_lists_place(own_tiles * sets, burst_tiles(other_tiles, 1 << how.band_bits),
                                         false, parts, memory);
    l.rows = own_tiles, l.sets = sets;
    l.heads = how.heads, l.band_bits = how.band_bits, l.chosen = how.chosen;
    return l;
}

static BURST_MAYBE_UNUSED BurstTiled burst_tiled(const BurstTokens *tokens, const BurstTileRanges *there,
                                                 int chunks, int tile, int parts)
{
    BurstTiled side;
    memset(&side, 0, sizeof side);
    side.chunks = chunks, side.tile = tile, side.parts = parts;
    for (int c = 0; c < chunks; c++) {
        side.tokens[c] = tokens[c];
        side.there[c] = there ? there[c] : burst_all_tiles();
        side.begin[c + 1] = side.begin[c] + burst_tiles(tokens[c].n, tile);
    }
    return side;
}

/* Sides needed to make lists, for a mask with such keys (BURST_KEYS_*): hulls of parts of own tiles of `tile`
 * tokens, and of tiles of the other side. */
static BURST_MAYBE_UNUSED int burst_lists_sides(int own_tiles, int keys, int tile, int other_tiles)
{
    return BURST_HULLS * (own_tiles * burst_tile_parts(BURST_FORM, keys, tile) + other_tiles);
}

/* Makes the lists of some chunks of queries with some of keys. there: for each chunk of keys; NULL: all.
 * home: see burst_order_kernel. sides: burst_lists_sides entries; reusable once the stream is done. */
template <class MASK>
static cudaError_t burst_make_lists(const BurstTokens *q, int queries, const BurstTokens *k, int keys,
                                    const BurstTileRanges *there, int tile_q, int tile_k, bool rows_are_q,
                                    int home, BurstSide *sides, BurstTileLists lists, cudaStream_t stream)
{
    const BurstTiled side_q = burst_tiled(q, NULL, queries, tile_q,
                                          rows_are_q ? burst_tile_parts(BURST_FORM, MASK::KEYS, tile_q) : 1);
    const BurstTiled side_k =
        burst_tiled(k, there, keys, tile_k,
                    rows_are_q ? 1 : burst_tile_parts(BURST_FORM, MASK::KEYS_BACKWARD, tile_k));
    const int tiles_q = side_q.begin[queries], parts = burst_parts(side_q) + burst_parts(side_k);
    BurstSide *const of_k = sides + BURST_HULLS * burst_parts(side_q);
    if (!lists.rows)
        return cudaSuccess;
    const unsigned sets = (unsigned)lists.sets;
    const cudaError_t e = cudaMemsetAsync(lists.taken, 0, (home ? 8 : 4) * sizeof *lists.taken, stream);
    if (e != cudaSuccess)
        return e;
    burst_sides_kernel<<<(parts + 3) / 4, 128, 0, stream>>>(side_q, side_k, sides);
    burst_lists_kernel<MASK>
        <<<dim3((lists.rows + 3) / 4, sets), 128, 0, stream>>>(rows_are_q ? side_q : side_k,
                                                               rows_are_q ? side_k : side_q,
                                                               rows_are_q ? sides : of_k,
                                                               rows_are_q ? of_k : sides, rows_are_q, lists);
    burst_order_kernel<<<dim3((lists.rows + 127) / 128, sets), 128, 0, stream>>>(lists, home);
    if (lists.turn && tiles_q)
        burst_turns_kernel<MASK><<<(tiles_q + 127) / 128, 128, 0, stream>>>(side_k, of_k, sides, lists);
    return cudaGetLastError();
}

/* Heads (of `bytes` of rows each) to process at a time; see burst::place_of. */
static BURST_MAYBE_UNUSED int burst_section(int heads, double bytes)
{
    const double cache = 32e6;
    const int fit = bytes * heads <= cache ? heads : (int)(cache / bytes);
    return fit < 1 ? 1 : fit;
}

#endif
