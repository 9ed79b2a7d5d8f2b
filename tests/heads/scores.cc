/* scores.cc: the scores of cuda_scores.cuh by products of tensor cores, on a CPU (warps.h),
 * against float64: random queries and keys, any candidates. Prints a line a case; ends with 1 after a score
 * that is off by more than fp32 rounds, a block that is no candidate and has one, or a missing one. */
#include "warps.h"

#include "cuda_scores.cuh"

using namespace burst;

struct Case {
    int tokens, block, dim, heads, kv_heads, kind;
};
static const Case cases[] = {{1900, 16, 32, 4, 2, BURST_SELECT_OF_KV},
                             {2048, 16, 16, 6, 1, BURST_SELECT_OF_KV},
                             {1900, 48, 64, 12, 3, BURST_SELECT_OF_HEAD},
                             {1300, 32, 32, 12, 3, BURST_SELECT_OF_ALL},
                             {700, 32, 128, 3, 3, BURST_SELECT_OF_KV},
                             {6000, 64, 16, 8, 1, BURST_SELECT_OF_KV}};
static const double ROUNDS = 1e-6; /* of the sum of the terms' sizes: 128 additions of fp32 */

struct Data {
    Case of;
    int blocks, tiles, words, group, each;
    std::vector<float> q;      /* [tiles][heads][dim], bf16 */
    std::vector<uint16_t> k;   /* [blocks][kv_heads][block][dim] */
    std::vector<uint32_t> open, rows;
    std::vector<int32_t> position;
};

static float drawn() { return wide(rounded((float)(rand() % 2001 - 1000) / 500)); }

static Data data_of(const Case &c)
{
    const int blocks = (c.tokens + c.block - 1) / c.block, tiles = (c.tokens + 127) / 128,
              lists = burst_select_lists(c.kind, c.heads, c.kv_heads);
    Data x = {c,  blocks, tiles, (blocks + 31) / 32, c.heads / c.kv_heads, c.heads / lists, {}, {},
              {}, {},     {}};
    for (int i = 0; i < tiles * c.heads * c.dim; i++)
        x.q.push_back(drawn());
    for (int i = 0; i < blocks * c.kv_heads * c.block * c.dim; i++)
        x.k.push_back(rounded(drawn()));
    for (int i = 0; i < c.tokens; i++)
        x.position.push_back(i);
    x.open.resize((size_t)(tiles * x.words));
    for (int t = 0; t < tiles; t++)
        for (int b = 0; (b + 1) * c.block <= t * 128; b++)
            x.open[(size_t)(t * x.words + b / 32)] |= (uint32_t)(rand() % 8 != 0) << b % 32;
    return x;
}

/* A head's greatest product with the block's keys; size: that of its terms. */
static double greatest(const Data &x, int tile, int head, int block, double *size)
{
    const Case &c = x.of;
    double best = -INFINITY;
    for (int i = 0; i < c.block; i++) {
        double sum = 0, terms = 0;
        for (int d = 0; d < c.dim; d++) {
            const size_t key = (size_t)((block * c.kv_heads + head / x.group) * c.block + i);
            const double term = (double)x.q[(size_t)((tile * c.heads + head) * c.dim + d)] *
                                wide(x.k[key * (size_t)c.dim + (size_t)d]);
            sum += term, terms += fabs(term);
        }
        best = max(best, sum), *size = max(*size, terms);
    }
    return best;
}

static bool is_right(const Data &x, int tile, int list, int block, uint32_t rank)
{
    double score = 0, size = 0;
    if (!(x.open[(size_t)(tile * x.words + block / 32)] >> block % 32 & 1))
        return rank == 0;
    for (int head = list * x.each; head < (list + 1) * x.each; head++) {
        double terms = 0;
        score += greatest(x, tile, head, block, &terms), size += terms;
    }
    const float found = __uint_as_float(rank >> 31 ? rank & 0x7fffffff : ~rank);
    return rank && fabs(found - score) <= ROUNDS * size;
}

/* All tiles and lists in one launch, each block of its threads after the other; shared memory begins as NaN.
 */
static int wrong_scores(const Case &c)
{
    Data x = data_of(c);
    const int lists = c.heads / x.each;
    BurstChoose s = {};
    s.how.block = c.block, s.how.queries = 128, s.how.key = BURST_SELECT_MAX_KEY,
    s.how.query = BURST_SELECT_FIRST_QUERY;
    s.q_heads = c.heads, s.kv_heads = c.kv_heads, s.lists = lists, s.sequence = c.tokens;
    x.rows.resize((size_t)(x.tiles * lists * x.blocks), 0xdeadbeef);
    const BurstScoring scoring = {x.q.data(),    (const float *)x.k.data(),
                                  x.open.data(), x.rows.data(),
                                  NULL,          c.dim,
                                  x.blocks,      x.words,
                                  x.each,        lists};
    const ScoreRows rows = {0, x.tiles, 0, lists, burst_score_heads(s, x.each)};
    const int at_once = SCORE_ROWS / rows.heads, groups_of_tiles = (x.tiles + at_once - 1) / at_once;
    for (blockIdx.y = 0; blockIdx.y < (unsigned)(groups_of_tiles * lists); blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < (unsigned)((x.blocks + SCORE_BLOCKS - 1) / SCORE_BLOCKS);
             blockIdx.x++) {
            memset(select_shared, 0xff, sizeof select_shared);
            run_block([&] { burst_select_products_kernel(s, {c.tokens, x.position.data()}, scoring, rows); });
        }
    int wrong = 0;
    for (int i = 0; i < x.tiles * lists * x.blocks; i++)
        wrong += !is_right(x, i / x.blocks / lists, i / x.blocks % lists, i % x.blocks, x.rows[(size_t)i]);
    printf("%d tokens, blocks of %d, %d/%d heads of %d: %d of %d wrong\n", c.tokens, c.block, c.heads,
           c.kv_heads, c.dim, wrong, x.tiles * lists * x.blocks);
    return wrong;
}

int main()
{
    int wrong = 0;
    for (const Case &c : cases)
        wrong += wrong_scores(c);
    return wrong != 0;
}
