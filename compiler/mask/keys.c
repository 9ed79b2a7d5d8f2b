/* mask/keys.c: which of a form's key tiles forward takes for a mask (BURST_KEYS_* in
 * runtime/include/burst_kernels.h).
 *
 * Long tiles save what each tile costs beside its products, short ones the products of what a tile has
 * masked. A tile that lies in one block of a mask of blocks is full or empty, and takes no predicate.
 */
#include "mask/internal.h"

#include "burst_kernels.h"

unsigned mask_tables(const Expr *e)
{
    if (!e)
        return 0;
    const unsigned own = e->op == E_TABLE_Q || e->op == E_TABLE_K ? 1u << e->value : 0;
    return own | mask_tables(e->a) | mask_tables(e->b);
}

int64_t mask_divisor(int64_t a, int64_t b)
{
    for (a = burst_abs(a), b = burst_abs(b); b;) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* What an argument of a hash divides positions by: 0 where it is the same at all of them, 1 where it may
 * differ between neighbours. */
static int64_t divisor_of(const Expr *e)
{
    if (e->op == E_CONST)
        return 0;
    return e->op == E_DIV && (e->a->op == E_Q || e->a->op == E_K) ? e->b->value : 1;
}

/* Tokens of the blocks that hashes draw; 0: the mask has no hash. */
static int64_t drawn_blocks(const Expr *e)
{
    if (!e)
        return 0;
    return e->op == E_HASH ? mask_divisor(divisor_of(e->a), divisor_of(e->b))
                           : mask_divisor(drawn_blocks(e->a), drawn_blocks(e->b));
}

bool mask_in_blocks(const Program *p, int mask)
{
    return drawn_blocks(p->masks[mask].expr) % (2 * BURST_90_PART) == BURST_90_PART;
}

static bool draws(const Expr *e)
{
    return e && (e->op == E_HASH || draws(e->a) || draws(e->b));
}

/* Whether a query keeps so many keys on average that its lists of tiles are long: from a grid of pairs.
 * Not where tables decide, whose values are not known here, nor where a hash does: most tiles are partial,
 * and fewer keys leave more of them empty. */
static bool is_long(const Expr *e, int64_t sequence)
{
    enum { SIDE = 128 };
    int64_t kept = 0;
    if (mask_tables(e) || draws(e))
        return false;
    for (int64_t i = 0; i < SIDE; i++)
        for (int64_t j = 0; j < SIDE; j++)
            kept += expr_eval(e, sequence * (2 * i + 1) / (2 * SIDE),
                              sequence * (SIDE * j + i) / (SIDE * SIDE), NULL, NULL) != 0;
    return (double)kept / (SIDE * SIDE) * (double)sequence >= BURST_LONG_KEYS;
}

int mask_keys(const Program *p, int mask)
{
    if (mask_in_blocks(p, mask))
        return BURST_KEYS_BLOCKS;
    return is_long(p->masks[mask].expr, p->sequence) ? BURST_KEYS_LONG : BURST_KEYS_USUAL;
}

/* ---- lists of live tiles of one launch ---- */

static int64_t tiles(int64_t tokens, int tile)
{
    return (tokens + tile - 1) / tile;
}

/* As burst_lists_ints in templates/kernels/cuda_attention.cuh. */
static int64_t ints(int64_t own, int64_t other)
{
    return own * (other + 5) + 2;
}

/* Keys of a launch: one chunk, or its pieces, each with a last tile of its own. */
static int64_t key_tiles(int64_t tokens, int pieces, int tile)
{
    return pieces * tiles((tokens + pieces - 1) / pieces, tile);
}

/* The kind of key tiles that makes the longest lists: that of blocks, if a mask is of them. */
static int shortest_keys(const Program *p)
{
    for (int i = 0; i < p->mask_count; i++)
        if (mask_in_blocks(p, i))
            return BURST_KEYS_BLOCKS;
    return BURST_KEYS_USUAL;
}

KernelLists kernels_lists(const Program *p, int64_t queries, int64_t tokens, int pieces, int turns)
{
    const Kernels k = kernels_of(p);
    const BurstTileSizes *t = &k.tile;
    const int keys = shortest_keys(p);
    const int64_t parts[2] = {burst_tile_parts(k.form, keys, t->forward_q),
                              burst_tile_parts(k.form, keys, t->backward_k)};
    const int64_t q[2] = {tiles(queries, t->forward_q), tiles(queries, t->backward_q)};
    const int64_t kv[2] = {key_tiles(tokens, pieces, t->forward_k[keys]),
                           key_tiles(tokens, pieces, t->backward_k)};
    const int64_t forward = ints(q[0], kv[0]),
                  backward = ints(kv[1], q[1]) + (turns ? (kv[1] + turns) * q[1] : 0);
    const int64_t sides[2] = {q[0] * parts[0] + kv[0], q[1] + kv[1] * parts[1]};
    return (KernelLists){.ints = forward > backward ? forward : backward,
                         .sides = sides[0] > sides[1] ? sides[0] : sides[1]};
}
