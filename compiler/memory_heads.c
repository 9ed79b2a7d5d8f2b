/* memory_heads.c: head parallelism: which heads each rank attends, and what a rank has on its device for it.
 *
 * A share is the whole sequence with some of the heads. Blocks of it lie in rows apart at one end of an exchange; NCCL moves
 * them through packing memory. templates/burst_heads_cuda.cuh says where each array lies.
 */
#include "memory.h"

#include "burst_sizes.h"

enum { BF16 = 2, FP32 = 4 };

Share share_of(const Model *m, int ranks, int rank)
{
    const int64_t first = (int64_t)m->heads * rank / ranks, end = (int64_t)m->heads * (rank + 1) / ranks;
    const int group = m->heads / m->kv_heads;
    const int64_t kv_end = end > first ? (end - 1) / group + 1 : first / group;
    return (Share){.heads = (int)(end - first), .kv_heads = (int)(kv_end - first / group), .again = first % group != 0};
}

/* The largest share of any rank; again: how many ranks read a key head that a rank before them reads too. */
static Share most(const Model *m, int ranks, int *again)
{
    Share x = {0};
    *again = 0;
    for (int r = 0; r < ranks; r++) {
        Share of = share_of(m, ranks, r);
        x.heads = of.heads > x.heads ? of.heads : x.heads;
        x.kv_heads = of.kv_heads > x.kv_heads ? of.kv_heads : x.kv_heads;
        *again += of.again;
    }
    return x;
}

static int64_t greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Packing memory of one rank for the largest exchange of Q, O or dQ, and of KV or dKV. */
typedef struct Packing { int64_t q, kv; } Packing;
static Packing packing_of(const MemoryMaker *m, const Partition *part, int me)
{
    const Model *d = &m->program->model;
    const int64_t vector = (int64_t)d->head_dim * BF16, gradient = (int64_t)d->head_dim * FP32;
    const int64_t n = part->of[me].tokens, sequence = part->sequence;
    const Share mine = share_of(d, m->choice->ranks, me);
    Packing in = {0}, out = {0};
    for (int r = 0; r < m->choice->ranks; r++) {
        const Share share = share_of(d, m->choice->ranks, r);
        const int64_t tokens = part->of[r].tokens;
        if (r == me)
            continue;
        /* backward's Q, with dO and two rows of statistics: as much as forward's Q or O, and more */
        in.q += 2 * burst_gpu_packing(share.heads * vector, n, d->heads * vector) +
                2 * burst_gpu_packing(tokens * FP32, mine.heads, sequence * FP32);
        in.kv += 2 * burst_gpu_packing(share.kv_heads * vector, n, d->kv_heads * vector);
        out.q += burst_gpu_packing(tokens * gradient, mine.heads, sequence * gradient);
        out.kv += 2 * burst_gpu_packing(tokens * gradient, mine.kv_heads - mine.again, sequence * gradient);
    }
    return (Packing){greater(in.q, out.q), greater(in.kv, out.kv)};
}

static void add_packing(MemoryMaker *m, const Partition *part)
{
    Packing p = {1, 1};
    for (int r = 0; r < m->choice->ranks; r++) {
        const Packing of = packing_of(m, part, r);
        p.q = greater(p.q, of.q);
        p.kv = greater(p.kv, of.kv);
    }
    add_scratch(m, BOTH, "pack_q", "char", 1, 1, "rows that NCCL sends and receives of Q, O, dQ", p.q);
    add_scratch(m, BOTH, "pack_kv", "char", 1, 1, "the same of KV, dKV", p.kv);
}

void add_shares(MemoryMaker *m, const Partition *part)
{
    const Model *d = &m->program->model;
    int again;
    const Share share = most(d, m->choice->ranks, &again);
    const int64_t rows = part->sequence * share.heads, kv_rows = part->sequence * share.kv_heads, width = d->head_dim;
    const struct { const char *name, *type; size_t size; const char *shape; int64_t elements; unsigned directions; } row[] = {
        {"xq", "BurstBf16", BF16, "[sequence][heads of a share][head_dim]", rows * width, BOTH},
        {"xo", "BurstBf16", BF16, "[sequence][heads of a share][head_dim]; in backward dO", rows * width, BOTH},
        {"xk", "BurstBf16", BF16, "[sequence][key heads of a share][head_dim]", kv_rows * width, BOTH},
        {"xv", "BurstBf16", BF16, "[sequence][key heads of a share][head_dim]", kv_rows * width, BOTH},
        {"xlse", "float", FP32, "[heads of a share][sequence]", rows, BOTH},
        {"xdelta", "float", FP32, "[heads of a share][sequence]", rows, BACKWARD},
        {"xdq", "float", FP32, "[heads of a share][sequence][head_dim]", rows * width, BACKWARD},
        {"xdk", "float", FP32, "[key heads of a share][sequence][head_dim]", kv_rows * width, BACKWARD},
        {"xdv", "float", FP32, "[key heads of a share][sequence][head_dim]", kv_rows * width, BACKWARD},
        {"xsum", "float", FP32, "dk, dv [key heads that ranks share][tokens][head_dim]", greater(1, 2 * again * m->n * width), BACKWARD},
    };
    add_packing(m, part);
    for (int i = 0; i < countof(row); i++)
        add_scratch(m, row[i].directions, row[i].name, row[i].type, row[i].size, 1, row[i].shape, row[i].elements);
}
