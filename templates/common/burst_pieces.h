/* burst_pieces.h: pieces of a rank's keys on either target. Piece p of rank r's keys is chunk p * PLAN_GROUP
 * + r: a contiguous part of the tokens in local order. Without pieces a rank's keys are one chunk, as its
 * queries are. */
#ifndef BURST_PIECES_H
#define BURST_PIECES_H

static inline bool plan_of_keys(int tensor)
{
    return tensor == BURST_T_KV || tensor == BURST_T_DKV;
}

static inline int plan_pieces_of(int tensor)
{
    return plan_of_keys(tensor) ? PLAN_PIECES : 1;
}

/* Heads of the tensor in the running attention, and the most in any; latents are for all heads. */
static inline int plan_heads_of(const PlanState *s, int tensor)
{
#ifdef PLAN_LATENTS
    if (plan_of_keys(tensor))
        return 1;
#endif
    return plan_of_keys(tensor) ? s->heads.keys : s->heads.queries;
}

static inline int plan_most_heads(int tensor)
{
#ifdef PLAN_LATENTS
    if (plan_of_keys(tensor))
        return 1;
#endif
    return plan_of_keys(tensor) ? PLAN_KV_HEADS : PLAN_HEADS;
}

/* ---- chunks of keys (`token chunks` with `keys`) ---- */

#ifndef PLAN_KEY_TOKENS
#define PLAN_KEY_TOKENS PLAN_TOKENS /* all */
#endif

/* The first token of a piece, as in compiler/shard/partition.c. */
static inline int64_t plan_piece_begin(int64_t tokens, int piece)
{
    return tokens * piece / PLAN_PIECES;
}

#ifdef PLAN_QUERY_CHUNKS
/* The first query of a chunk of queries, as in the step's loops. */
static inline int64_t plan_query_begin(int64_t tokens, int chunk)
{
    return tokens * chunk / PLAN_QUERY_CHUNKS;
}

static inline int64_t plan_key_rows(int64_t tokens, int chunk)
{
    return plan_query_begin(tokens, chunk + 1) - plan_query_begin(tokens, chunk);
}

/* The ranks whose queries a rank attends: itself, and those that share heads with it. */
#ifdef PLAN_SHARES
#define PLAN_QUERY_RANKS PLAN_SHARES
static inline int plan_member(int rank, int i);
static inline int plan_query_rank(int me, int i) { return plan_member(me, i); }
#else
#define PLAN_QUERY_RANKS 1
static inline int plan_query_rank(int me, int i) { return me + i; }
#endif
#endif

static inline const BurstChunk *plan_chunk_in(const PlanState *s, int tensor, int chunk)
{
    return plan_of_keys(tensor) ? &s->key[chunk] : &s->chunk[chunk];
}

/* This rank's keys in the running attention: all, or a chunk of them. */
static inline int64_t plan_own_keys(const PlanState *s)
{
    return PLAN_PIECES > 1 ? s->n : s->key[s->me].tokens;
}

/* Tokens of the largest chunk of any rank. */
static inline int64_t plan_most_tokens(int tensor)
{
    return plan_of_keys(tensor) ? (PLAN_KEY_TOKENS + PLAN_PIECES - 1) / PLAN_PIECES : PLAN_TOKENS;
}

/* A piece of the rank's own chunk, with all heads. */
static inline PlanSlot *plan_home_slot(PlanState *s, int tensor, int piece)
{
    return piece ? &s->piece[tensor][piece] : &s->home[tensor];
}

/* Sets the chunks of keys of rank r, whose own tokens are known. Their sides begin at *side, which is
 * advanced. */
static inline void plan_key_chunks(PlanState *s, int r, BurstSide **side)
{
    const BurstChunk *all = &s->chunk[r];
    for (int p = 0; p < PLAN_PIECES; p++) {
        BurstChunk *key = &s->key[p * PLAN_GROUP + r];
        const int64_t begin = plan_piece_begin(all->tokens, p);
        *key = *all;
        if (PLAN_PIECES == 1)
            return;
        key->tokens = plan_piece_begin(all->tokens, p + 1) - begin;
        key->position = all->position + begin;
        key->side = *side;
        key->tiles = (int)((key->tokens + BURST_TILE - 1) / BURST_TILE);
        burst_sides(key->position, key->tokens, NULL, 0, *side);
        *side += key->tiles;
    }
}

static int plan_live_fill(BurstCtx *c, PlanState *s, int mask);

/* Finds whether the mask leaves anything of a pair of chunks and, for sides that travel, the live tiles. */
static inline void plan_find_pair(PlanState *s, int mask, int q, int k)
{
    const int pair = q * PLAN_KEYS + k;
    s->buffer.pair_live[mask][pair] = burst_pair_live(plan_masks[mask], &s->chunk[q], &s->key[k]);
#ifdef PLAN_RANGES
    for (int side = 0; side < BURST_SIDES && s->buffer.pair_live[mask][pair]; side++)
        s->buffer.pair_tiles[mask][pair].side[side] = PLAN_RANGES >> side & 1
                                                          ? burst_pair_tiles(plan_masks[mask], &s->chunk[q],
                                                                             &s->key[k], side)
                                                          : burst_all_tiles();
#endif
}

#ifdef PLAN_SCAN_PIECES
static inline int plan_find_pieces(BurstCtx *c, PlanState *s);
#endif

#ifdef PLAN_BALANCED
/* Sets the tokens of chunks in this batch. */
static inline void plan_take_positions(PlanState *s, const int64_t *position)
{
    for (int i = 0; i < PLAN_GROUP; i++)
        memcpy((int64_t *)s->chunk[i].position, position + i * PLAN_TOKENS,
               sizeof *position * (size_t)s->chunk[i].tokens);
}
#endif

/* Sets the chunks for this batch. */
static inline void plan_take_batch(PlanState *s, const BurstTables *tables)
{
#ifdef PLAN_BALANCED
    if (tables && tables->position)
        plan_take_positions(s, tables->position);
#endif
    for (int i = 0; i < PLAN_GROUP && tables; i++)
        burst_sides(s->chunk[i].position, s->chunk[i].tokens, tables, PLAN_TABLES,
                    (BurstSide *)s->chunk[i].side);
    for (int k = 0; k < PLAN_KEYS && tables && PLAN_PIECES > 1; k++)
        burst_sides(s->key[k].position, s->key[k].tokens, tables, PLAN_TABLES, (BurstSide *)s->key[k].side);
}

/* Finds the live pairs of a mask, and from them the live transfers. */
static inline int plan_find_mask(BurstCtx *c, PlanState *s, int mask)
{
    for (int q = 0; q < PLAN_GROUP; q++)
        for (int k = 0; k < PLAN_KEYS; k++)
            plan_find_pair(s, mask, q, k);
    return plan_live_fill(c, s, mask);
}

/* Finds what each mask leaves. With per-token tables this runs for each batch. */
static inline int plan_find_live(BurstCtx *c, PlanState *s, const BurstTables *tables)
{
    plan_take_batch(s, tables);
#if defined PLAN_BALANCED && defined PLAN_SCAN_PIECES
    if (tables && tables->position)
        BURST_TRY(plan_find_pieces(c, s));
#endif
    for (int m = 0; m < PLAN_MASKS; m++)
        BURST_TRY(plan_find_mask(c, s, m));
    return BURST_OK;
}

#endif
