/* pool.c: runs without a rank, by density: floating-point-like values of work per tile, with 5 bits after
 * the leading one. */
#include "data/balance/internal.h"

#include <string.h>

enum { BITS = 5, WORDS = BALANCE_DENSITIES / 64, LOOKS = 16 };

static int highest_bit(uint64_t x) { return 63 - __builtin_clzll(x); }

static int density_of(const Balance *b, int run)
{
    const uint64_t scaled = (uint64_t)(run_work(b, run) * (1 << BITS) / tiles_of(b, run)) | 1;
    const int power = highest_bit(scaled), mask = (1 << BITS) - 1;
    const uint64_t digits = power >= BITS ? scaled >> (power - BITS) : scaled << (BITS - power);
    const int density = power << BITS | (int)(digits & (uint64_t)mask);
    return density < BALANCE_DENSITIES ? density : BALANCE_DENSITIES - 1;
}

void pool_empty(BalancePool *pool)
{
    memset(pool, 0, sizeof *pool);
    for (int i = 0; i < BALANCE_DENSITIES; i++)
        pool->first[i] = -1;
}

static void add_to_tree(BalancePool *pool, int density, int64_t tiles, int64_t work)
{
    pool->all_tiles += tiles;
    for (int i = density + 1; i <= BALANCE_DENSITIES; i += i & -i)
        pool->tiles[i] += tiles, pool->work[i] += work;
}

void pool_put(Balance *b, int run)
{
    BalancePool *pool = &b->pool;
    const int density = density_of(b, run);
    b->run[run].next = pool->first[density];
    pool->first[density] = run;
    pool->filled[density / 64] |= UINT64_C(1) << density % 64;
    add_to_tree(pool, density, tiles_of(b, run), run_work(b, run));
}

int pool_take(Balance *b, int density)
{
    BalancePool *pool = &b->pool;
    const int run = pool->first[density];
    pool->first[density] = b->run[run].next;
    if (pool->first[density] < 0)
        pool->filled[density / 64] &= ~(UINT64_C(1) << density % 64);
    add_to_tree(pool, density, -tiles_of(b, run), -run_work(b, run));
    return run;
}

int pool_down(const BalancePool *pool, int density)
{
    if (density < 0)
        return -1;
    uint64_t bits = pool->filled[density / 64] & ~UINT64_C(0) >> (63 - density % 64);
    int word = density / 64;
    while (!bits && word > 0)
        bits = pool->filled[--word];
    return bits ? 64 * word + highest_bit(bits) : -1;
}

int pool_up(const BalancePool *pool, int density)
{
    if (density >= BALANCE_DENSITIES)
        return -1;
    int word = density / 64;
    uint64_t bits = pool->filled[word] & ~UINT64_C(0) << density % 64;
    while (!bits && word < WORDS - 1)
        bits = pool->filled[++word];
    return bits ? 64 * word + __builtin_ctzll(bits) : -1;
}

/* For a density with more than so many tiles. */
static int64_t part_of_density(const Balance *b, int density, int64_t tiles)
{
    int64_t work = 0, seen = 0, seen_work = 0;
    int run = b->pool.first[density];
    for (int i = 0; i < LOOKS && run >= 0 && tiles > 0; i++, run = b->run[run].next) {
        const int64_t n = tiles_of(b, run) < tiles ? tiles_of(b, run) : tiles;
        work += work_of(b, b->run[run].begin, b->run[run].begin + n);
        seen += tiles_of(b, run), seen_work += run_work(b, run);
        tiles -= n;
    }
    return tiles > 0 ? work + seen_work * tiles / seen : work;
}

int64_t pool_light_work(const Balance *b, int64_t tiles)
{
    const BalancePool *pool = &b->pool;
    int64_t work = 0, left = tiles;
    int at = 0;
    for (int step = BALANCE_DENSITIES; step > 0; step /= 2)
        if (at + step <= BALANCE_DENSITIES && pool->tiles[at + step] <= left) {
            at += step;
            left -= pool->tiles[at];
            work += pool->work[at];
        }
    return left > 0 && at < BALANCE_DENSITIES ? work + part_of_density(b, at, left) : work;
}
