/* proof/pruned.c: proves that a pruned schedule (prune.c) is complete, by replaying every rank in absolute
 * chunks.
 *
 * Every live computing finds its chunks, every live transfer has something to move and is expected at the
 * other end, no copy travels unused, and at the end each owner has the gradients of all its live pairs.
 * Partial sums are counted in pairs here; that none is added twice is proved on the whole trace
 * (proof/proofs.c).
 *
 * If transfers carry ranges of tiles, the replay tracks which tiles of each chunk are here. A pair's own
 * tiles must be among them, and a sum that is sent must carry exactly the tiles that were added to. Each run
 * of a copy must begin and end with a tile that is read here or sent on, and if no gap can have been closed
 * (burst_join), every tile must be. The mask is asked once more that a pair has no work for other tiles. */
#include "proof/internal.h"

#include <string.h>

enum { TABLE_SAMPLES = 4 };

/* Uses of a copy's tiles. ends: the ends of its runs (1 << 2 * run: the first, 2 << 2 * run: the last) that
 * something here reads or sends on. runs: the runs of all these uses, capped above a copy's. tiles: their
 * join. */
typedef struct CopyUse { uint8_t ends, runs; BurstTileRanges tiles; } CopyUse;

typedef struct Replay {
    Arena *arena;
    const Schedule *s;
    Live live;
    int ranks, chunks; /* chunks of keys, absolute, numbered as in attention.h */
    const uint8_t *pair; /* [query chunk][chunk] */
    const BurstPairTiles *of_pair; /* likewise; NULL: whole chunks */
    /* [rank][chunk] tiles of a copy that are here; tiles of a sum that were added to */
    BurstTileRanges *tiles[TENSOR_COUNT];
    CopyUse *use[TENSOR_COUNT];    /* [rank][chunk] of a copy that arrived */
    int *sum[TENSOR_COUNT];    /* [rank][chunk] live pairs in the partial sum here, arrivals included */
    uint8_t *copy[TENSOR_COUNT]; /* [rank][chunk] */
} Replay;
enum { COPY_HERE = 1, COPY_CAME = 2 }; /* came: from another rank */

static size_t cell(const Replay *z, int rank, int chunk)
{
    return (size_t)rank * (size_t)z->chunks + (size_t)chunk;
}

static BurstTileRanges tiles_of(const Replay *z, int q, int k, int side)
{
    return z->of_pair ? z->of_pair[cell(z, q, k)].side[side] : burst_all_tiles();
}

static bool contains(BurstTileRanges all, BurstTileRanges part)
{
    int in = 0;
    for (int i = 0; i < burst_ranges_count(&part); i++) {
        while (in < burst_ranges_count(&all) && all.at[in].hi < part.at[i].hi)
            in++;
        if (in == burst_ranges_count(&all) || all.at[in].lo > part.at[i].lo)
            return false;
    }
    return true;
}

/* Marks tiles of a copy as read or sent on. */
static void use_tiles(Replay *z, TensorId t, size_t at, BurstTileRanges by)
{
    const BurstTileRanges *here = &z->tiles[t][at];
    CopyUse *use = &z->use[t][at];
    use->tiles = burst_join(use->tiles, by);
    for (int j = 0; j < burst_ranges_count(&by); j++) {
        use->runs += use->runs <= BURST_RANGES;
        for (int i = 0; i < burst_ranges_count(here); i++)
            use->ends |= (uint8_t)((here->at[i].lo == by.at[j].lo) << 2 * i |
                                   (here->at[i].hi == by.at[j].hi) << (2 * i + 1));
    }
}

/* Whether everything that arrived of a copy was used; checked when it is dropped. */
static bool was_needed(const Replay *z, TensorId t, size_t at)
{
    const BurstTileRanges *here = &z->tiles[t][at];
    const CopyUse *use = &z->use[t][at];
    const unsigned all = (1u << 2 * burst_ranges_count(here)) - 1;
    return use->ends == all && (use->runs > BURST_RANGES || contains(use->tiles, *here));
}

/* Whether the transfer's tiles are here and, for a sum, are all that is here. */
static bool carries(Replay *z, TensorId t, int rank, int chunk, BurstTileRanges moved)
{
    const size_t at = cell(z, rank, chunk);
    BurstTileRanges *here = &z->tiles[t][at];
    const bool in = burst_has_tiles(moved) && contains(*here, moved);
    if (!tensor_accumulates(t)) {
        use_tiles(z, t, at, moved);
        return in;
    }
    const bool all = contains(moved, *here);
    *here = (BurstTileRanges){0};
    return in && all;
}

static BurstTileRanges *arriving_tiles(const Replay *z, const Instance *i, int to)
{
    return &z->live.tiles[(size_t)(i - z->s->trace.at) * (size_t)z->ranks + (size_t)to];
}

/* Replays one instance at one rank; chunks here are absolute. Returns false if something needed is
 * missing. */
static bool replay_send(Replay *z, const Instance *i, int rank, uint8_t bits, int *moving)
{
    const Choice *c = z->s->choice;
    TensorId t = i->node->ref[0].tensor;
    int chunk = rel_add(c, rank, i->chunk[0]), to = rel_add(c, rank, i->hop);
    bool sum = tensor_accumulates(t);
    uint8_t there = z->live.op[(size_t)(i - z->s->trace.at) * (size_t)z->ranks + (size_t)to];
    *moving = 0;
    if (!(bits & BURST_LIVE_SEND) != !(there & BURST_LIVE_RECV))
        return false;
    if (!(bits & BURST_LIVE_SEND))
        return !sum || z->sum[t][cell(z, rank, chunk)] == 0;
    *moving = sum ? z->sum[t][cell(z, rank, chunk)] : z->copy[t][cell(z, rank, chunk)];
    if (sum)
        z->sum[t][cell(z, rank, chunk)] = 0;
    return *moving != 0 && carries(z, t, rank, chunk, *arriving_tiles(z, i, to));
}

/* Replaces an earlier copy, which must have been used whole. */
static bool arrive(Replay *z, TensorId t, size_t at, BurstTileRanges tiles)
{
    const bool needed = !(z->copy[t][at] & COPY_CAME) || was_needed(z, t, at);
    z->copy[t][at] = COPY_HERE | COPY_CAME;
    z->tiles[t][at] = tiles;
    z->use[t][at] = (CopyUse){0};
    return needed;
}

static bool replay_transfer(Replay *z, const Instance *i, const uint8_t *bits)
{
    const Choice *c = z->s->choice;
    TensorId t = i->node->ref[0].tensor;
    int *moving = NEW_ARRAY(z->arena, int, z->ranks);
    for (int r = 0; r < z->ranks; r++)
        if (!replay_send(z, i, r, bits[r], &moving[r]))
            return false;
    for (int r = 0; r < z->ranks; r++) {
        const int to = rel_add(c, r, i->hop);
        size_t at = cell(z, to, rel_add(c, r, i->chunk[0]));
        if (!moving[r])
            continue;
        if (!tensor_accumulates(t) && !arrive(z, t, at, *arriving_tiles(z, i, to)))
            return false;
        if (!tensor_accumulates(t))
            continue;
        z->tiles[t][at] = burst_join(z->tiles[t][at], *arriving_tiles(z, i, to));
        z->sum[t][at] += moving[r];
    }
    return true;
}

/* A live pair at a rank reads a side's chunk and adds to its sum; keys have none in forward. */
static bool replay_side(Replay *z, int rank, int q, int k, int side)
{
    static const TensorId copies[BURST_SIDES] = {T_Q, T_KV};
    const TensorId sums[BURST_SIDES] = {z->s->backward ? T_DQ : T_O, T_DKV};
    const TensorId copy = copies[side], sum = sums[side];
    const size_t at = cell(z, rank, side == BURST_OF_QUERIES ? q : k);
    const BurstTileRanges tiles = tiles_of(z, q, k, side);
    z->sum[sum][at]++;
    z->tiles[sum][at] = burst_join(z->tiles[sum][at], tiles);
    use_tiles(z, copy, at, tiles);
    return z->copy[copy][at] && contains(z->tiles[copy][at], tiles);
}

static bool replay_compute(Replay *z, const Instance *i, const uint8_t *bits)
{
    for (int r = 0; r < z->ranks; r++) {
        int q = rel_add(z->s->choice, r, i->chunk[0]), k = rel_add(z->s->choice, r, i->chunk[1]);
        bool wanted = z->pair[cell(z, q, k)];
        if (wanted != !!(bits[r] & BURST_LIVE_COMPUTE))
            return false;
        if (!wanted)
            continue;
        for (int side = 0; side < BURST_SIDES; side++)
            if (!replay_side(z, r, q, k, side))
                return false;
    }
    return true;
}

static bool replay_instance(Replay *z, const Instance *i, const uint8_t *bits)
{
    if (i->node->kind == N_EXCHANGE)
        /* exchanges run at all ranks, whatever the mask leaves, and replace a rank's own chunk in place */
        return true;
    return i->node->kind == N_COMPUTE ? replay_compute(z, i, bits) : replay_transfer(z, i, bits);
}

/* Whether each owner has the sums of all live pairs of its chunks. */
static bool sums_are_at_owners(const Replay *z)
{
    const TensorId queries = z->s->backward ? T_DQ : T_O;
    for (int k = 0; k < z->chunks; k++) {
        int column = 0;
        for (int q = 0; q < z->ranks; q++)
            column += z->pair[cell(z, q, k)];
        if (z->s->backward && z->sum[T_DKV][cell(z, k % z->ranks, k)] != column)
            return false;
    }
    for (int q = 0; q < z->ranks; q++) {
        int row = 0;
        for (int k = 0; k < z->chunks; k++)
            row += z->pair[cell(z, q, k)];
        if (z->sum[queries][cell(z, q, q)] != row)
            return false;
    }
    return true;
}

/* Whether every copy was used. Nobody waits for an unused copy, so its slot could be filled while it
 * arrives. */
static bool copies_were_needed(const Replay *z)
{
    const size_t square = (size_t)z->ranks * (size_t)z->chunks;
    for (int t = 0; t < TENSOR_COUNT; t++)
        for (size_t at = 0; at < square; at++)
            if (z->copy[t][at] & COPY_CAME && !was_needed(z, (TensorId)t, at))
                return false;
    return true;
}

static const Instance *replay_pruned(Replay *z)
{
    for (int i = 0; i < z->s->trace.n; i++) {
        const Instance *x = &z->s->trace.at[i];
        if (!replay_instance(z, x, z->live.op + (size_t)i * (size_t)z->ranks))
            return x;
    }
    return sums_are_at_owners(z) && copies_were_needed(z) ? NULL : &z->s->trace.at[z->s->trace.n - 1];
}

/* taken: the tiles that the schedule was pruned by; needed: the same, computed here. */
static bool verify_mask(Arena *a, Diags *d, const Schedule *s, const uint8_t *pair,
                        const BurstPairTiles *taken, const BurstPairTiles *needed, const char *mask)
{
    pair = choice_pairs(a, s->choice, s->backward, pair);
    return verify_live(a, d, s, prune(a, s, pair, taken), pair, needed, mask);
}

bool verify_pruned(Arena *a, Diags *d, const Schedule *s, const uint8_t *pair, const char *mask)
{
    return verify_mask(a, d, s, pair, NULL, NULL, mask);
}

/* pair: in choice_pairs' order. */
bool verify_live(Arena *a, Diags *d, const Schedule *s, Live live, const uint8_t *pair,
                 const BurstPairTiles *tiles, const char *mask)
{
    Replay z = {.arena = a,
                .s = s,
                .live = live,
                .ranks = s->choice->ranks,
                .chunks = choice_chunks(s->choice),
                .pair = pair,
                .of_pair = tiles};
    size_t square = (size_t)z.ranks * (size_t)z.chunks;
    for (int t = 0; t < TENSOR_COUNT; t++) {
        z.sum[t] = NEW_ARRAY(a, int, square);
        z.copy[t] = NEW_ARRAY(a, uint8_t, square);
        z.tiles[t] = NEW_ARRAY(a, BurstTileRanges, square);
        z.use[t] = tensor_accumulates((TensorId)t) ? NULL : NEW_ARRAY(a, CopyUse, square);
        for (int k = 0; k < z.chunks; k++)
            z.copy[t][cell(&z, k % z.ranks, k)] = COPY_HERE;
        for (int k = 0; k < z.chunks && !tensor_accumulates((TensorId)t); k++)
            z.tiles[t][cell(&z, k % z.ranks, k)] = burst_all_tiles();
    }
    const Instance *bad = replay_pruned(&z);
    if (bad)
        diag_error(d, stmt_place(bad->node->stmt),
                   "proof %d (%s) fails: the schedule is incomplete after pruning for mask `%s`",
                   PROOF_MESSAGES, proof_names[PROOF_MESSAGES], mask);
    return !bad;
}

/* "0 to 3, 7 to 9" */
static const char *tiles_text(Arena *a, BurstTileRanges r)
{
    const char *text = "";
    for (int i = 0; i < burst_ranges_count(&r); i++)
        text = arena_printf(a, "%s%s%d to %d", text, i ? ", " : "", r.at[i].lo, r.at[i].hi - 1);
    return text;
}

/* Whether each pair's work lies within the tiles taken for its queries and keys. */
static bool verify_tiles(Arena *a, Diags *d, const Draft *t, const Schedule *s, int mask,
                         const BurstPairTiles *tiles)
{
    const int chunks = choice_chunks(&t->choice);
    for (int i = 0; tiles && i < t->choice.ranks * chunks * BURST_SIDES; i++) {
        const int pair = i / BURST_SIDES, side = i % BURST_SIDES, q = pair / chunks, k = pair % chunks;
        const BurstTileRanges taken = tiles[pair].side[side];
        if (!burst_has_tiles(taken) || burst_is_whole(taken) ||
            pair_tiles_suffice(t->counts[mask], q, k, side, taken))
            continue;
        diag_error(d, phase_of(s->choice, s->backward)->span,
                   "proof %d (%s) fails: mask `%s` requires more of %s for %s than tiles %s, which are sent "
                   "there",
                   PROOF_MESSAGES, proof_names[PROOF_MESSAGES], t->program->masks[mask].text,
                   side == BURST_OF_QUERIES ? chunk_name(a, s, T_Q, q) : chunk_name(a, s, T_KV, k),
                   side == BURST_OF_QUERIES ? chunk_name(a, s, T_KV, k) : chunk_name(a, s, T_Q, q),
                   tiles_text(a, taken));
        return false;
    }
    return true;
}

/* Whether a pass or a return moves chunks of that side, or their sums, to another rank. */
static bool travels(const Schedule *s, int side)
{
    static const TensorId of[BURST_SIDES][3] = {{T_Q, T_O, T_DQ}, {T_KV, T_DKV, T_DKV}};
    for (int i = 0; i < s->trace.n; i++)
        for (int n = 0; n < countof(of[side]); n++)
            if (s->trace.at[i].node->kind != N_COMPUTE && s->trace.at[i].node->ref[0].tensor == of[side][n])
                return true;
    return false;
}

/* [pair] the tiles with work; all for a side whose chunks do not travel. NULL: chunks travel whole. */
static const BurstPairTiles *needed_tiles(Arena *a, const Schedule *s, PairCounts *counts)
{
    const int chunks = choice_chunks(s->choice), pairs = s->choice->ranks * chunks;
    const uint8_t *live = pair_live(counts);
    BurstPairTiles *tiles = NEW_ARRAY(a, BurstPairTiles, pairs);
    for (int side = 0; side < BURST_SIDES; side++) {
        const bool moves = travels(s, side);
        for (int i = 0; i < pairs; i++)
            if (live[i])
                tiles[i].side[side] = moves ? pair_tiles(counts, i / chunks, i % chunks, side)
                                            : burst_all_tiles();
    }
    return s->choice->ranges ? tiles : NULL;
}

/* Tables change at run time, so samples are tried in addition to the worst case. */
bool verify_masks(Arena *a, Diags *d, const Draft *t, const Schedule *s)
{
    size_t square = (size_t)t->choice.ranks * (size_t)choice_chunks(&t->choice);
    uint64_t seed = 1;
    uint8_t *pair = NEW_ARRAY(a, uint8_t, square);
    for (int m = 0; m < t->program->mask_count; m++) {
        if (attentions_schedule(&t->attention, m, s->backward) != s)
            continue;
        const char *text = t->program->masks[m].text;
        const BurstPairTiles *taken = schedule_tiles(a, s, t->counts[m]),
                             *needed = needed_tiles(a, s, t->counts[m]);
        memcpy(pair, pair_live(t->counts[m]), square);
        if (!verify_tiles(a, d, t, s, m, taken) || !verify_mask(a, d, s, pair, taken, needed, text))
            return false;
        for (int k = 0; k < TABLE_SAMPLES && t->program->table_count; k++) {
            for (size_t i = 0; i < square; i++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                pair[i] = pair[i] && seed >> 62;
            }
            if (!verify_mask(a, d, s, pair, taken, needed, text))
                return false;
        }
    }
    return true;
}
