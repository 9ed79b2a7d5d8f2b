/* bench_mask.c: how long counting takes: every stock mask at 4Mi tokens, and many chunk pairs. Prints;
 * asserts nothing. */
#include "tools/tools.h"
#include "random_expr.h"

#include <time.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void count_one(RxStock s, int64_t n, int64_t w, PartitionKind kind, int64_t block, int ranks,
                      int64_t len)
{
    Arena *a = arena_new();
    const Table doc = {.name = "doc", .kind = BURST_TABLE_DOC, .len_min = len, .len_max = 3 * len};
    const Program *p = rx_program(a, rx_stock(a, s, w), n, &doc, 1);
    const Partition *part = partition_make(a, kind, block, n, ranks),
                    *all = partition_make(a, PART_CONTIGUOUS, 0, n, 1);
    const double t0 = seconds();
    MaskMap *m = mask_map(a, p, 0, 64, 64);
    const PairWork x = mask_work(m, &part->of[ranks / 3], ranks == 1 ? &part->of[0] : &all->of[0]);
    printf("%-24s w %6lld n %8lld %-10s/%-5d %8.1f ms pairs %16lld full %12lld partial %12lld err %.3g %5.1f "
           "MiB\n",
           rx_stock_name(s), (long long)w, (long long)n, partition_names[kind], ranks, 1e3 * (seconds() - t0),
           (long long)x.pairs, (long long)x.tiles_full, (long long)x.tiles_partial, x.pairs_error,
           (double)arena_bytes(a) / (1 << 20));
    fflush(stdout);
    arena_free(a);
}

static void many_pairs(RxStock s, PartitionKind kind, int64_t block, int ranks)
{
    Arena *a = arena_new();
    const int64_t n = 1 << 20;
    const Program *p = rx_program(a, rx_stock(a, s, 32 << 10), n, (const Table[]){{.name = "doc"}}, 1);
    const Partition *part = partition_make(a, kind, block, n, ranks),
                    *all = partition_make(a, PART_CONTIGUOUS, 0, n, 1);
    MaskMap *m = mask_map(a, p, 0, 64, 64);
    int64_t live = 0, pairs = 0, tiles = 0;
    const double t0 = seconds();
    for (int q = 0; q < ranks; q++)
        for (int k = 0; k < ranks; k++)
            live += mask_pair_cover(m, &part->of[q], &part->of[k]) != COVER_EMPTY;
    const double t1 = seconds();
    for (int q = 0; q < ranks; q++) {
        const PairWork x = mask_work(m, &part->of[q], &all->of[0]);
        pairs += x.pairs, tiles += x.tiles_full + x.tiles_partial;
    }
    printf("%-24s %s over %d ranks: %d x %d covers %.1f ms (%lld live); work of each chunk %.1f ms (pairs "
           "%lld, tiles %lld)\n",
           rx_stock_name(s), partition_names[kind], ranks, ranks, ranks, 1e3 * (t1 - t0), (long long)live,
           1e3 * (seconds() - t1), (long long)pairs, (long long)tiles);
    fflush(stdout);
    arena_free(a);
}

int main(void)
{
    const int64_t n = 4 << 20;
    for (RxStock s = 0; s < RX_STOCKS; s++) {
        count_one(s, n, 2048, PART_CONTIGUOUS, 0, 1, 0);
        count_one(s, n, 1000, PART_CONTIGUOUS, 0, 1, 0);
        count_one(s, n, 2048, PART_ZIGZAG, 0, 8, 0);
        count_one(s, n, 2048, PART_STRIPED, 0, 64, 0);
        count_one(s, n, 1000, PART_STRIPED, 0, 24, 0);
        count_one(s, n, 2048, PART_BLOCKS, 4096, 24, 0);
    }
    count_one(RX_document, n, 2048, PART_CONTIGUOUS, 0, 1, 1000);
    count_one(RX_document, n, 2048, PART_STRIPED, 0, 64, 1000);
    count_one(RX_bigbird, 256 << 10, 64, PART_CONTIGUOUS, 0, 1, 0);
    for (RxStock s = 0; s < RX_STOCKS; s++)
        many_pairs(s, PART_ZIGZAG, 0, 1024);
    many_pairs(RX_window_sink, PART_STRIPED, 0, 1024);
    many_pairs(RX_window_sink, PART_BLOCKS, 8192, 1024);
}
