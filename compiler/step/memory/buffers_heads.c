/* step/memory/buffers_heads.c: head parallelism: the heads that each rank attends, and their buffers.
 *
 * A share has the chunks of all ranks along the exchanged coordinate, with some of the heads. On a device
 * its blocks are strided at one end of an exchange, and NCCL moves them through packing memory.
 * templates/cuda/burst_heads_cuda.cuh has the layout of each array. */
#include "step/memory/internal.h"

#include "burst_sizes.h"

#include <string.h>

enum { BF16 = 2, FP32 = 4 };

Share share_of(Heads all, int shares, int i)
{
    const int64_t first = (int64_t)all.heads * i / shares, end = (int64_t)all.heads * (i + 1) / shares;
    const int group = all.heads / all.kv_heads;
    const int64_t kv_end = end > first ? (end - 1) / group + 1 : first / group;
    return (Share){.heads = (int)(end - first),
                   .kv_heads = (int)(kv_end - first / group),
                   .again = first % group != 0};
}

static int64_t greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Tokens of the rank's chunk and of those of the ranks that share heads with it. */
static int64_t row_tokens(const Choice *c, const Partition *part, int shares, int rank)
{
    int64_t tokens = 0;
    for (int i = 0; i < shares; i++)
        tokens += part->of[shares == 1 ? rank : choice_member(c, rank, i)].tokens;
    return tokens;
}

/* A chunk with fewer heads may have more key heads that ranks share. */
static void add_row_heads(RowSizes *h, Heads chunk)
{
    int again = 0;
    for (int i = 0; i < h->shares; i++) {
        const Share of = share_of(chunk, h->shares, i);
        h->heads = of.heads > h->heads ? of.heads : h->heads;
        h->kv_heads = of.kv_heads > h->kv_heads ? of.kv_heads : h->kv_heads;
        again += of.again;
    }
    h->again = again > h->again ? again : h->again;
}

RowSizes row_sizes(const Shape *s, const Choice *c, const Partition *part, bool backward)
{
    RowSizes h = {.shares = choice_shares(c, backward)};
    for (int i = 0; i <= (s->short_chunks > 0); i++)
        add_row_heads(&h, shape_chunk(s, i));
    for (int r = 0; r < c->ranks; r++)
        h.tokens = greater(h.tokens, row_tokens(c, part, h.shares, r));
    return h;
}

RowSizes most_rows(const MemoryMaker *m)
{
    RowSizes h = m->of[0];
    h.tokens = greater(h.tokens, m->of[1].tokens);
    h.again = m->of[1].again > h.again ? m->of[1].again : h.again;
    return h;
}

/* ---- a rank's share ---- */

/* Of the direction that exchanges; if both do, they are equal. */
static RowSizes share_rows(const MemoryMaker *m)
{
    return m->of[choice_by_heads(m->choice, true)];
}

typedef struct ShareRow {
    const char *name, *type, *shape;
    int64_t elements;
    unsigned directions;
    bool keys;
} ShareRow;

static void add_rows(MemoryMaker *m, const ShareRow *row, int n)
{
    for (int i = 0; i < n; i++) {
        const size_t size = strcmp(row[i].type, "float") == 0 ? FP32 : BF16;
        if (row[i].keys && m->queries && !m->key_tokens)
            keep_keys(m, row[i].name, row[i].type, size, row[i].shape, row[i].elements);
        else if (row[i].directions)
            add_scratch(m, row[i].directions, row[i].name, row[i].type, size, 1, row[i].shape,
                        row[i].elements);
    }
}

/* The ones among these directions that exchange. */
static unsigned exchanged(const MemoryMaker *m, unsigned directions)
{
    for (int i = 0; i < 2; i++)
        if (!choice_by_heads(m->choice, i))
            directions &= ~(1u << i);
    return directions;
}

static void add_host_shares(MemoryMaker *m)
{
    const RowSizes h = share_rows(m);
    const Model *d = &m->program->model;
    const int64_t rows = (m->queries ? m->queries : h.tokens) * h.heads,
                  key_rows = keys_at_a_time(m, h.tokens) * h.kv_heads, n = keys_at_a_time(m, m->n);
    const int64_t q = rows * d->head_dim, o = rows * d->value_dim, k = key_rows * d->head_dim,
                  v = key_rows * d->value_dim,
                  widest = d->head_dim > d->value_dim ? d->head_dim : d->value_dim;
    const unsigned both = exchanged(m, BOTH), forward = exchanged(m, FORWARD),
                   backward = exchanged(m, BACKWARD);
    const ShareRow row[] = {
        {"xq", "float", "[tokens of all that share heads][heads of a share][head_dim]", q, both},
        {"xk", "float", "[tokens of all][key heads of a share][head_dim]", k, both, true},
        {"xv", "float", "[tokens of all][key heads of a share][head_dim]", v, both, true},
        {"xlse", "float", "[tokens of all][heads of a share]", rows, both},
        {"xo", "float", "[tokens of all][heads of a share][head_dim]", o, forward},
        {"xdelta", "float", "[tokens of all][heads of a share]", rows, backward},
        {"xdo", "float", "[tokens of all][heads of a share][head_dim]", o, backward},
        {"xdq", "float", "[tokens of all][heads of a share][head_dim]", q, backward},
        {"xdk", "float", "[tokens of all][key heads of a share][head_dim]", k, backward, true},
        {"xdv", "float", "[tokens of all][key heads of a share][head_dim]", v, backward, true},
        {"xsum", "float", "[key heads of a share][tokens][head_dim]", backward ? n * h.kv_heads * widest : 1,
         backward ? backward : forward},
    };
    add_rows(m, row, countof(row));
}

/* Query heads of a share in one of the pieces in which they are exchanged. */
static int64_t heads_in_piece(int64_t heads, int pieces, int piece)
{
    return heads * (piece + 1) / pieces - heads * piece / pieces;
}

/* Packing memory of one rank for the largest exchange of Q, O or dQ, of a piece of the query heads, and of KV
 * or dKV, of a chunk of heads. */
typedef struct Packing { int64_t q, kv; } Packing;
static Packing packing_of(const MemoryMaker *m, Heads all_heads, const Partition *part, int me, int pieces,
                          int piece)
{
    const Model *d = &m->program->model;
    const int64_t width[] = {d->head_dim, d->value_dim}; /* of Q and K; of V and O */
    const Choice *c = m->choice;
    const int shares = share_rows(m).shares, lane = rel_coord(c, me, c->schedule->exchanged);
    const int64_t n = part->of[me].tokens, sequence = row_tokens(c, part, shares, me);
    const int64_t queries = m->queries ? m->queries / shares : n, all = m->queries ? m->queries : sequence;
    const Share mine = share_of(all_heads, shares, lane);
    Packing in = {0}, out = {0};
    for (int i = 0; i < shares; i++) {
        const Share share = share_of(all_heads, shares, i);
        const int64_t tokens = part->of[choice_member(c, me, i)].tokens;
        const int64_t its = m->queries ? queries : tokens, sent = heads_in_piece(share.heads, pieces, piece),
                      got = heads_in_piece(mine.heads, pieces, piece);
        if (i == lane)
            continue;
        /* backward's Q, with dO and two rows of statistics, is at least as large as forward's Q or O */
        for (int k = 0; k < countof(width); k++) {
            const int64_t vector = width[k] * BF16, gradient = width[k] * FP32;
            in.q += burst_gpu_packing(sent * vector, queries, all_heads.heads * vector);
            in.q += burst_gpu_packing(got * vector, its, mine.heads * vector);
            in.kv += burst_gpu_packing(share.kv_heads * vector, m->key_tokens ? queries : n,
                                       all_heads.kv_heads * vector);
            out.kv += burst_gpu_packing((m->key_tokens ? queries : tokens) * gradient,
                                        mine.kv_heads - mine.again, keys_at_a_time(m, sequence) * gradient);
        }
        in.q += 2 * burst_gpu_packing(its * FP32, got, all * FP32);
        out.q += burst_gpu_packing(its * d->head_dim * FP32, got, all * d->head_dim * FP32);
    }
    return (Packing){greater(in.q, out.q), greater(in.kv, out.kv)};
}

static void add_packing(MemoryMaker *m, const Partition *part)
{
    Packing p = {1, 1};
    const int pieces = m->choice->head_pieces > 1 ? m->choice->head_pieces : 1,
              chunks = 1 + (m->draft->shape.short_chunks > 0);
    for (int i = 0; i < m->choice->ranks * chunks * pieces; i++) {
        const Heads heads = shape_chunk(&m->draft->shape, i / pieces >= m->choice->ranks);
        const Packing of = packing_of(m, heads, part, i / pieces % m->choice->ranks, pieces, i % pieces);
        p.q = greater(p.q, of.q);
        p.kv = greater(p.kv, of.kv);
    }
    add_scratch(m, BOTH, "pack_q", "char", 1, 1, "rows that NCCL sends and receives of Q, O, dQ", p.q);
    add_scratch(m, BOTH, "pack_kv", "char", 1, 1, "the same of KV, dKV", p.kv);
}

static void add_device_shares(MemoryMaker *m, const Partition *part)
{
    const RowSizes h = share_rows(m);
    const int64_t rows = (m->queries ? m->queries : h.tokens) * h.heads,
                  kv_rows = keys_at_a_time(m, h.tokens) * h.kv_heads, width = m->program->model.head_dim,
                  values = m->program->model.value_dim;
    const int64_t own = m->key_tokens / h.shares * m->draft->shape.chunk.kv_heads;
    const unsigned both = exchanged(m, BOTH), backward = exchanged(m, BACKWARD);
    const ShareRow row[] = {
        {"xq", "BurstBf16", "[tokens of all that share heads][heads of a share][head_dim]", rows * width,
         both},
        {"xo", "BurstBf16", "[tokens of all][heads of a share][head_dim]; in backward dO", rows * values,
         both},
        {"xk", "BurstBf16", "[tokens of all][key heads of a share][head_dim]", kv_rows * width, both, true},
        {"xv", "BurstBf16", "[tokens of all][key heads of a share][head_dim]", kv_rows * values, both, true},
        {"xlse", "float", "[heads of a share][tokens of all]", rows, both},
        {"xdelta", "float", "[heads of a share][tokens of all]", rows, backward},
        {"xdq", "float", "[heads of a share][tokens of all][head_dim]", rows * width, backward},
        {"xdk", "float", "[key heads of a share][tokens of all][head_dim]", kv_rows * width, backward, true},
        {"xdv", "float", "[key heads of a share][tokens of all][head_dim]", kv_rows * values, backward, true},
        {"xsum", "float", "dk, dv [key heads that ranks share][tokens][head_dim]",
         greater(1, h.again * m->n * (width + values)), backward ? backward : both},
        {"own_dk", "float", "[key heads][tokens][head_dim], of a chunk of keys: what is added to its sums",
         own * width, m->key_tokens ? backward : 0},
        {"own_dv", "float", "[key heads][tokens][head_dim]", own * values, m->key_tokens ? backward : 0},
    };
    add_packing(m, part);
    add_rows(m, row, countof(row));
}

void add_shares(MemoryMaker *m, const Partition *part)
{
    if (m->program->target->device_memory)
        add_device_shares(m, part);
    else
        add_host_shares(m);
}
