/* test_count.c: mask_work and mask_pair_cover against counting every pair and judging every tile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cover.h"
#include "burst_int.h"
#include "random_expr.h"
#include "positions.h"

static PairWork brute_work(const Expr *e, const PosSet *q, const PosSet *k, int tile_q, int tile_k)
{
    PairWork w = {0};
    for (int64_t i = 0; i < q->tokens; i++)
        for (int64_t j = 0; j < k->tokens; j++)
            w.pairs += expr_eval(e, pos_at(q, i), pos_at(k, j), NULL, NULL);
    int64_t tiles = 0;
    for (int64_t i = 0; i < q->tokens; i += tile_q)
        for (int64_t j = 0; j < k->tokens; j += tile_k, tiles++) {
            int64_t box[4];
            pos_hull(q, i, tile_q < q->tokens - i ? tile_q : q->tokens - i, &box[0], &box[1]);
            pos_hull(k, j, tile_k < k->tokens - j ? tile_k : k->tokens - j, &box[2], &box[3]);
            const Cover c = mask_cover(e, box[0], box[1], box[2], box[3]);
            w.tiles_full += c == COVER_FULL;
            w.tiles_partial += c == COVER_PARTIAL;
        }
    w.cover = w.tiles_full == tiles ? COVER_FULL : COVER_PARTIAL;
    if (w.tiles_full + w.tiles_partial == 0)
        w.cover = COVER_EMPTY;
    return w;
}

static void assert_same_work(MaskMap *m, const Expr *e, const PosSet *q, const PosSet *k, int tile_q,
                             int tile_k)
{
    const PairWork got = mask_work(m, q, k), truth = brute_work(e, q, k, tile_q, tile_k);
    if (got.pairs != truth.pairs || got.tiles_full != truth.tiles_full ||
        got.tiles_partial != truth.tiles_partial) {
        Text t = {0};
        rx_print_burst(e, &t);
        print_message("%s\n", t.at);
        text_free(&t);
    }
    assert_int_equal(got.pairs, truth.pairs);
    assert_int_equal(got.tiles_full, truth.tiles_full);
    assert_int_equal(got.tiles_partial, truth.tiles_partial);
    assert_int_equal(got.cover, truth.cover);
    assert_int_equal(mask_pair_cover(m, q, k), truth.cover);
    assert_true(got.pairs_error == 0);
}

/* A few pairs of ranks, so that what one pair has left in the map's memory serves the next. */
static void check_mask(Rx *r, const Expr *e)
{
    const int64_t n = r->sequence;
    const int ranks_q = (int)rx_between(r, 1, 7), ranks_k = (int)rx_between(r, 1, 7);
    const PartitionKind kind_q = (PartitionKind)rx_between(r, 0, PART_KINDS - 1);
    const PartitionKind kind_k = (PartitionKind)rx_between(r, 0, PART_KINDS - 1);
    const Partition *pq = partition_make(r->arena, kind_q, rx_between(r, 1, 40), n, ranks_q);
    const Partition *pk = partition_make(r->arena, kind_k, rx_between(r, 1, 40), n, ranks_k);
    const int tile_q = (int)rx_between(r, 1, 20),
              tile_k = rx_one_in(r, 2) ? tile_q : (int)rx_between(r, 1, 20);
    MaskMap *m = mask_map(r->arena, rx_program(r->arena, e, n, NULL, 0), 0, tile_q, tile_k);
    for (int i = 0; i < 3; i++)
        assert_same_work(m, e, &pq->of[rx_between(r, 0, ranks_q - 1)], &pk->of[rx_between(r, 0, ranks_k - 1)],
                         tile_q, tile_k);
}

static void stock_masks_are_counted_exactly(void **state)
{
    (void)state;
    Rx r = {.arena = arena_new(), .state = 11};
    for (int i = 0; i < 1500; i++) {
        r.sequence = rx_between(&r, 1, 220);
        const RxStock s = (RxStock)rx_between(&r, 0, RX_STOCKS - 1);
        if (!rx_stock_has_table(s))
            check_mask(&r, rx_stock(r.arena, s, rx_between(&r, 1, 40)));
    }
    arena_free(r.arena);
}

static void random_masks_are_counted_exactly(void **state)
{
    (void)state;
    Rx r = {.arena = arena_new(), .state = 12, .hash = true};
    r.pattern = rx_pattern_random(&r, 11, 8);
    for (int i = 0; i < 4000; i++) {
        r.sequence = rx_between(&r, 1, 90);
        check_mask(&r, rx_bool(&r, 3));
    }
    arena_free(r.arena);
}

/* Masks whose open part differs from box to box in one constant only: factors, signs, choices, heights. */
static void alike_boxes_are_told_apart(void **state)
{
    (void)state;
    Rx r = {.arena = arena_new(), .state = 14};
    Arena *a = r.arena;
    for (int i = 0; i < 600; i++) {
        r.sequence = rx_between(&r, 20, 200);
        const Expr *q = rx_make(a, E_Q, NULL, NULL), *k = rx_make(a, E_K, NULL, NULL);
        const Expr *d = rx_number(a, E_CONST, rx_between(&r, 2, 9)),
                   *h = rx_number(a, E_CONST, rx_between(&r, 2, 40));
        const Expr *saw = rx_make(a, E_MOD, rx_one_in(&r, 2) ? q : rx_make(a, E_SUB, q, k), d);
        const Expr *step = rx_make(a, E_SUB, rx_make(a, E_DIV, k, h), rx_number(a, E_CONST, 2));
        static const ExprOp join[] = {E_MUL, E_MUL, E_ADD, E_SUB, E_MIN, E_MAX};
        const Expr *x = rx_make(a, join[rx_between(&r, 0, 5)], saw, step),
                   *y = rx_number(a, E_CONST, rx_between(&r, -6, 12));
        const Expr *e = rx_make(a, rx_one_in(&r, 2) ? E_LT : E_EQ,
                                rx_one_in(&r, 2) ? x : rx_make(a, E_ABS, x, NULL), y);
        check_mask(&r, rx_one_in(&r, 2) ? rx_make(a, E_NOT, e, NULL) : e);
    }
    arena_free(a);
}

/* Enough tokens for the memory to be used at many levels; zigzag against the whole, as the planner asks. */
static void larger_sequences_are_counted_exactly(void **state)
{
    (void)state;
    Rx r = {.arena = arena_new(), .state = 13};
    for (int i = 0; i < 3 * RX_STOCKS; i++) {
        const RxStock s = (RxStock)(i % RX_STOCKS);
        if (rx_stock_has_table(s))
            continue;
        const int64_t n = 1500 + rx_between(&r, 0, 700);
        const Expr *e = rx_stock(r.arena, s, rx_between(&r, 10, 300));
        const Partition *whole = partition_make(r.arena, PART_CONTIGUOUS, 0, n, 1);
        const Partition *part = partition_make(r.arena, (PartitionKind)(i % PART_KINDS), 100, n, 3);
        MaskMap *m = mask_map(r.arena, rx_program(r.arena, e, n, NULL, 0), 0, 16, 16);
        assert_same_work(m, e, &part->of[i % 3], &whole->of[0], 16, 16);
    }
    arena_free(r.arena);
}

/* Closed forms at sizes that nothing could enumerate. */
static void millions_of_tokens_are_counted_exactly(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const int64_t n = 4 << 20, w = 4097, t = n / 64;
    const Partition *all = partition_make(a, PART_CONTIGUOUS, 0, n, 1);
    const PosSet *s = &all->of[0];
    MaskMap *m = mask_map(a, rx_program(a, rx_stock(a, RX_causal, 0), n, NULL, 0), 0, 64, 64);
    PairWork x = mask_work(m, s, s);
    assert_int_equal(x.pairs, n * (n + 1) / 2);
    assert_int_equal(x.tiles_full, t * (t - 1) / 2);
    assert_int_equal(x.tiles_partial, t);
    m = mask_map(a, rx_program(a, rx_stock(a, RX_window, w), n, NULL, 0), 0, 64, 64);
    x = mask_work(m, s, s);
    assert_int_equal(x.pairs, w * (w + 1) / 2 + (n - w) * w);
    m = mask_map(a, rx_program(a, rx_stock(a, RX_block_local, 1000), n, NULL, 0), 0, 64, 64);
    x = mask_work(m, s, s);
    assert_int_equal(x.pairs, n / 1000 * 1000000 + (n % 1000) * (n % 1000));
    assert_true(x.pairs_error == 0);
    arena_free(a);
}

/* Parts add up to the whole, also where hashes are enumerated. */
static void chunks_add_up(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const int64_t n = 1 << 14;
    const Partition *all = partition_make(a, PART_CONTIGUOUS, 0, n, 1),
                    *part = partition_make(a, PART_ZIGZAG, 0, n, 6);
    for (RxStock s = 0; s < RX_STOCKS; s++) {
        const Table doc = {.name = "doc", .kind = BURST_TABLE_DOC, .len_min = 100, .len_max = 900};
        MaskMap *m = mask_map(a, rx_program(a, rx_stock(a, s, 96), n, &doc, 1), 0, 64, 64);
        int64_t pairs = 0;
        for (int q = 0; q < 6; q++)
            for (int k = 0; k < 6; k++)
                pairs += mask_work(m, &part->of[q], &part->of[k]).pairs;
        assert_int_equal(pairs, mask_work(m, &all->of[0], &all->of[0]).pairs);
    }
    arena_free(a);
}

/* Too many random blocks to look at each: the estimates must hold what they state, and be of use. */
static void estimates_state_their_error(void **state)
{
    (void)state;
    enum { CASES = 12 };
    int held = 0;
    for (int64_t modulus = 2; modulus < 2 + CASES; modulus++) {
        Arena *a = arena_new();
        const int64_t n = 320 << 10, b = 64, blocks = n / b;
        const Partition *all = partition_make(a, PART_CONTIGUOUS, 0, n, 1);
        MaskMap *m = mask_map(a, rx_program(a, rx_bigbird(a, b, 2, 3, modulus), n, NULL, 0), 0, 64, 64);
        m->effort.left = 1 << 24;
        const PairWork x = mask_work(m, &all->of[0], &all->of[0]);
        int64_t kept = 0;
        for (int64_t i = 0; i < blocks; i++)
            for (int64_t j = 0; j <= i; j++)
                if (j < 2 || i - j < 3 || burst_hash(i, j) % modulus == 0)
                    kept += i == j ? b * (b + 1) / 2 : b * b;
        assert_true(x.pairs_error > 0 && x.pairs_error < 0.03);
        assert_int_equal(x.cover, COVER_PARTIAL);
        assert_true(fabs((double)(x.pairs - kept)) <= 2 * x.pairs_error * (double)kept);
        held += fabs((double)(x.pairs - kept)) <= x.pairs_error * (double)kept;
        arena_free(a);
    }
    assert_true(held >= CASES - 2); /* stated as two standard deviations */
}

/* ---- tables ---- */
static void unknown_tables_keep_the_most_pairs(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const int64_t n = 1000;
    const Table doc = {.name = "doc"};
    const Partition *part = partition_make(a, PART_CONTIGUOUS, 0, n, 2);
    const Expr *e = rx_stock(a, RX_document, 0);
    MaskMap *m = mask_map(a, rx_program(a, e, n, &doc, 1), 0, 64, 64);
    assert_int_equal(mask_work(m, &part->of[0], &part->of[0]).pairs, 500 * 501 / 2);
    assert_int_equal(mask_work(m, &part->of[1], &part->of[0]).pairs, 500 * 500);
    assert_int_equal(mask_work(m, &part->of[1], &part->of[0]).tiles_full, 0);
    assert_int_equal(mask_pair_cover(m, &part->of[1], &part->of[0]), COVER_PARTIAL);
    assert_int_equal(mask_pair_cover(m, &part->of[0], &part->of[1]), COVER_EMPTY);
    /* Under "not" the most pairs are those of a comparison that never holds. */
    const Expr *other = rx_make(a, E_NOT, e, NULL);
    m = mask_map(a, rx_program(a, other, n, &doc, 1), 0, 64, 64);
    assert_int_equal(mask_work(m, &part->of[0], &part->of[0]).pairs, 500 * 500);
    arena_free(a);
}

static int64_t pairs_of_batch(const Expr *e, const PosSet *q, const PosSet *k, const int32_t *const *table)
{
    int64_t pairs = 0;
    for (int64_t i = 0; i < q->tokens; i++)
        for (int64_t j = 0; j < k->tokens; j++)
            pairs += expr_eval(e, pos_at(q, i), pos_at(k, j), NULL, table);
    return pairs;
}

/* Pairs that the mask, judged for one pair with tables that may be anything, does not rule out. */
static int64_t pairs_not_ruled_out(const Expr *e, const PosSet *q, const PosSet *k)
{
    int64_t pairs = 0;
    for (int64_t i = 0; i < q->tokens; i++)
        for (int64_t j = 0; j < k->tokens; j++) {
            const int64_t at = pos_at(q, i), to = pos_at(k, j);
            pairs += mask_cover(e, at, at, to, to) != COVER_EMPTY;
        }
    return pairs;
}

/* Values that masks compare: positions, small numbers, few documents, anything. */
static const int32_t *random_table(Rx *r)
{
    int32_t *value = NEW_ARRAY(r->arena, int32_t, r->sequence);
    const int64_t lasts[] = {3, 16, r->sequence, 0}, kind = rx_between(r, 0, 3), last = lasts[kind];
    for (int64_t i = 0; i < r->sequence; i++)
        value[i] = (int32_t)(kind == 3 ? rx_between(r, INT32_MIN, INT32_MAX) : rx_between(r, 0, last));
    return value;
}

/* The count is what docs/masks.md states, and no batch has more pairs or belies the cover. */
static void assert_holds_for_batches(Rx *r, const Expr *e, const PosSet *q, const PosSet *k)
{
    static const Table tables[2] = {{.name = "t0"}, {.name = "t1"}};
    MaskMap *m = mask_map(r->arena, rx_program(r->arena, e, r->sequence, tables, 2), 0, 4, 4);
    const PairWork w = mask_work(m, q, k);
    assert_true(w.pairs_error == 0);
    assert_int_equal(w.pairs, pairs_not_ruled_out(e, q, k));
    assert_int_equal(mask_pair_cover(m, q, k), w.cover);
    for (int batch = 0; batch < 4; batch++) {
        const int32_t *const table[2] = {random_table(r), random_table(r)};
        const int64_t pairs = pairs_of_batch(e, q, k, table);
        assert_true(w.pairs >= pairs);
        assert_true(!pairs || w.cover != COVER_EMPTY);
        assert_true(pairs == q->tokens * k->tokens || w.cover != COVER_FULL);
    }
}

static void unknown_tables_bound_every_batch(void **state)
{
    (void)state;
    Rx r = {.arena = arena_new(), .state = 15, .hash = true, .tables = 2};
    for (int i = 0; i < 3000; i++) {
        r.sequence = rx_between(&r, 1, 60);
        const Expr *e = rx_bool(&r, 3);
        const PartitionKind kind = (PartitionKind)rx_between(&r, 0, PART_KINDS - 1);
        const Partition *p = partition_make(r.arena, kind, rx_between(&r, 1, 40), r.sequence, 2);
        assert_holds_for_batches(&r, e, &p->of[rx_between(&r, 0, 1)], &p->of[rx_between(&r, 0, 1)]);
    }
    /* (k == 8) and max(min(doc[q], k), q) == 13: only the pair (13, 8), whatever doc is. */
    Arena *a = r.arena;
    const Expr *q = rx_make(a, E_Q, NULL, NULL), *k = rx_make(a, E_K, NULL, NULL);
    const Expr *value = rx_make(a, E_MAX, rx_make(a, E_MIN, rx_number(a, E_TABLE_Q, 0), k), q);
    const Expr *e = rx_make(a, E_AND, rx_make(a, E_EQ, k, rx_number(a, E_CONST, 8)),
                            rx_make(a, E_EQ, value, rx_number(a, E_CONST, 13)));
    const Partition *all = partition_make(a, PART_CONTIGUOUS, 0, r.sequence = 40, 1);
    assert_int_equal(pairs_not_ruled_out(e, &all->of[0], &all->of[0]), 1);
    assert_holds_for_batches(&r, e, &all->of[0], &all->of[0]);
    arena_free(a);
}

static void drawn_documents_are_for_counts_only(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const int64_t n = 1 << 16, least = 100, most = 300;
    const Table doc = {.name = "doc", .kind = BURST_TABLE_DOC, .len_min = least, .len_max = most};
    const Partition *part = partition_make(a, PART_CONTIGUOUS, 0, n, 8);
    MaskMap *m = mask_map(a, rx_program(a, rx_stock(a, RX_document, 0), n, &doc, 1), 0, 64, 64);
    const PairWork far = mask_work(m, &part->of[7], &part->of[0]);
    assert_int_equal(far.pairs, 0);
    assert_int_equal(far.tiles_full + far.tiles_partial, 0);
    assert_int_equal(far.cover, COVER_PARTIAL); /* another batch may have one long document */
    assert_int_equal(mask_pair_cover(m, &part->of[7], &part->of[0]), COVER_PARTIAL);
    /* Mean of L(L+1)/2 over L uniform, a document every (least + most) / 2 tokens; one sample, so a wide
     * margin. */
    double mean = 0;
    for (int64_t l = least; l <= most; l++)
        mean += (double)(l * (l + 1)) / 2 / (double)(most - least + 1);
    const Partition *all = partition_make(a, PART_CONTIGUOUS, 0, n, 1);
    const PairWork x = mask_work(m, &all->of[0], &all->of[0]);
    const double expected = (double)n / ((double)(least + most) / 2) * mean;
    assert_true(x.pairs_error == 0);
    assert_true(fabs((double)x.pairs / expected - 1) < 0.15);
    assert_int_equal(x.pairs, mask_work(m, &all->of[0], &all->of[0]).pairs);
    arena_free(a);
}

/* Under tables of drawn documents, pairs are those that the values of the tables keep one by one. */
static void drawn_tables_are_what_documents_say(void **state)
{
    (void)state;
    static const char *const name[] = {"doc", "first", "last", "position"};
    Rx r = {.arena = arena_new(), .state = 32, .hash = true, .tables = 4};
    for (int i = 0; i < 2000; i++) {
        r.sequence = rx_between(&r, 1, 300);
        const int64_t least = rx_between(&r, 1, 40), most = least + rx_between(&r, 0, 60);
        Table t[4];
        int32_t *value[4];
        const MaskDocuments *d = NULL;
        for (int j = 0; j < 4; j++) {
            t[j] = (Table){name[j], burst_table_kind(name[j]), least, most};
            value[j] = NEW_ARRAY(r.arena, int32_t, r.sequence);
        }
        d = mask_documents_draw(r.arena, &t[0], r.sequence, 0);
        for (int64_t n = 0; n < d->count; n++)
            for (int64_t at = d->begin[n]; at < burst_min(d->begin[n + 1], r.sequence); at++) {
                assert_true(d->begin[n + 1] - d->begin[n] >= least || n == d->count - 1);
                assert_true(d->begin[n + 1] - d->begin[n] <= most);
                value[0][at] = (int32_t)n, value[1][at] = (int32_t)d->begin[n];
                value[2][at] = (int32_t)d->begin[n + 1] - 1, value[3][at] = (int32_t)(at - d->begin[n]);
            }
        const Expr *e = rx_bool(&r, 3);
        MaskMap *m = mask_map(r.arena, rx_program(r.arena, e, r.sequence, t, 4), 0, 4, 4);
        const PartitionKind kind = (PartitionKind)rx_between(&r, 0, PART_KINDS - 1);
        const Partition *p = partition_make(r.arena, kind, rx_between(&r, 1, 40), r.sequence, 2);
        const PosSet *q = &p->of[rx_between(&r, 0, 1)], *k = &p->of[rx_between(&r, 0, 1)];
        assert_int_equal(mask_work(m, q, k).pairs, pairs_of_batch(e, q, k, (const int32_t *const *)value));
    }
    arena_free(r.arena);
}

static void printing_shows_counts_and_picture(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Text t = {0}, again = {0};
    const Program *p = rx_program(a, rx_stock(a, RX_causal, 0), 4096, NULL, 0);
    print_mask(p, 0, &t);
    print_mask(p, 0, &again);
    assert_string_equal(t.at, again.at);
    assert_int_equal(strncmp(t.at, "burst-mask 1\n", 13), 0);
    assert_non_null(strstr(t.at, "\npairs 8390656\n"));
    assert_non_null(strstr(t.at, "\ntiles_full 2016\n"));
    assert_non_null(strstr(t.at, "\ntiles_partial 64\n"));
    assert_non_null(strstr(t.at, "|+                               |\n|#+                              |\n"));
    text_free(&t);
    text_free(&again);
    arena_free(a);
}

/* ---- which tiles of one side a pair has work for ---- */

/* Boxes of one side of a tile, token by token: where neighbours are further apart than a tile is long,
 * what lies at either side of the first of the widest such gaps. */
typedef struct Boxes { int n; int64_t lo[2], hi[2]; } Boxes;

static Boxes boxes_of(const PosSet *s, int64_t begin)
{
    const int64_t end = burst_min(begin + BURST_TILE, s->tokens);
    int64_t cut = end, widest = BURST_TILE;
    for (int64_t i = begin + 1; i < end; i++)
        if (pos_at(s, i) - pos_at(s, i - 1) > widest)
            cut = i, widest = pos_at(s, i) - pos_at(s, i - 1);
    Boxes b = {.n = 1 + (cut < end)};
    pos_hull(s, begin, cut - begin, &b.lo[0], &b.hi[0]);
    if (cut < end)
        pos_hull(s, cut, end - cut, &b.lo[1], &b.hi[1]);
    return b;
}

static bool boxes_have_work(const Expr *e, const Boxes *q, const Boxes *k)
{
    bool work = false;
    for (int i = 0; i < q->n; i++)
        for (int j = 0; j < k->n; j++)
            work |= mask_cover(e, q->lo[i], q->hi[i], k->lo[j], k->hi[j]) != COVER_EMPTY;
    return work;
}

static bool tile_has_work(const Expr *e, const PosSet *q, const PosSet *k, int side, int64_t tile)
{
    const PosSet *of = side == BURST_OF_QUERIES ? q : k, *other = side == BURST_OF_QUERIES ? k : q;
    const Boxes here = boxes_of(of, tile * BURST_TILE);
    for (int64_t i = 0; i < other->tokens; i += BURST_TILE) {
        const Boxes there = boxes_of(other, i);
        if (boxes_have_work(e, side == BURST_OF_QUERIES ? &here : &there,
                            side == BURST_OF_QUERIES ? &there : &here))
            return true;
    }
    return false;
}

static bool tile_is_in(BurstTileRanges r, int64_t tile)
{
    for (int i = 0; i < BURST_RANGES; i++)
        if (tile >= r.at[i].lo && tile < r.at[i].hi)
            return true;
    return false;
}

/* A run that is shortened by a tile at either end, a tile further on, or missing. */
static void assert_no_less_suffices(MaskMap *m, const PosSet *q, const PosSet *k, int side,
                                    BurstTileRanges right)
{
    for (int i = 0; i < burst_ranges_count(&right); i++) {
        const BurstTileRange run = right.at[i];
        const BurstTileRange wrong[] = {{run.lo + 1, run.hi},
                                        {run.lo, run.hi - 1},
                                        {run.lo + 1, run.hi + 1},
                                        {run.lo - 1, run.hi - 1},
                                        {0, 0}};
        for (int n = 0; n < countof(wrong); n++) {
            BurstTileRanges less = burst_tiles_from(wrong[n].lo, wrong[n].hi);
            for (int other = 0; other < BURST_RANGES; other++)
                less = other == i
                           ? less
                           : burst_join(less, burst_tiles_from(right.at[other].lo, right.at[other].hi));
            if (!tile_is_in(less, run.lo) || !tile_is_in(less, run.hi - 1))
                assert_false(mask_tiles_within(m, q, k, side, less));
        }
    }
}

/* Returns how many runs were found, of those that are looked at tile by tile. */
static int check_ranges(MaskMap *m, const Expr *e, const PosSet *q, const PosSet *k, int side)
{
    const BurstTileRanges found = mask_pair_tiles(m, q, k, side, 1 << 20);
    const PosSet *of = side == BURST_OF_QUERIES ? q : k, *other = side == BURST_OF_QUERIES ? k : q;
    const int64_t tiles = (of->tokens + BURST_TILE - 1) / BURST_TILE;
    const int count = burst_ranges_count(&found);
    int runs = 0;
    for (int64_t tile = 0, before = 0; tile < tiles && other->tokens; tile++) {
        const bool read = tile_has_work(e, q, k, side, tile);
        runs += read && !before;
        before = read;
        assert_true(!read || tile_is_in(found, tile));
    }
    const bool exact = runs <= BURST_RANGES && tiles <= BURST_CELLS;
    if (exact)
        assert_int_equal(count, runs);
    for (int i = 0; i < count; i++)
        assert_true(tile_has_work(e, q, k, side, found.at[i].lo) &&
                    tile_has_work(e, q, k, side, found.at[i].hi - 1));
    assert_true(!count || mask_tiles_within(m, q, k, side, found));
    assert_no_less_suffices(m, q, k, side, found);
    return exact ? count : 0;
}

/* A window, and some keys out of every so many: gaps of several tiles. */
static const Expr *window_and_strips(Rx *r)
{
    Arena *a = r->arena;
    const Expr *q = rx_make(a, E_Q, NULL, NULL), *k = rx_make(a, E_K, NULL, NULL);
    const Expr *near = rx_make(a, E_LT, rx_make(a, E_ABS, rx_make(a, E_SUB, q, k), NULL),
                               rx_number(a, E_CONST, rx_between(r, 1, 300)));
    const Expr *strip = rx_make(a, E_MOD, k, rx_number(a, E_CONST, rx_between(r, 300, 2500)));
    return rx_make(a, E_OR, near, rx_make(a, E_LT, strip, rx_number(a, E_CONST, rx_between(r, 1, 200))));
}

static void ranges_are_what_tiles_read(void **state)
{
    (void)state;
    Rx r = {.arena = arena_new(), .state = 21};
    int of_runs[BURST_RANGES + 1] = {0};
    for (int i = 0; i < 500; i++) {
        const int64_t n = r.sequence = rx_between(&r, 1, 6000);
        const RxStock s = (RxStock)rx_between(&r, 0, RX_STOCKS - 1);
        if (rx_stock_has_table(s))
            continue;
        const int ranks = (int)rx_between(&r, 1, 7);
        const Partition *p = partition_make(r.arena, (PartitionKind)rx_between(&r, 0, PART_BLOCKS),
                                            rx_between(&r, 1, 40), n, ranks);
        const Expr *e = rx_one_in(&r, 2) ? window_and_strips(&r)
                                         : rx_stock(r.arena, s, rx_between(&r, 1, 2000));
        MaskMap *m = mask_map(r.arena, rx_program(r.arena, e, n, NULL, 0), 0, BURST_TILE, BURST_TILE);
        of_runs[check_ranges(m, e, &p->of[rx_between(&r, 0, ranks - 1)], &p->of[rx_between(&r, 0, ranks - 1)],
                             i % BURST_SIDES)]++;
    }
    for (int i = 1; i <= BURST_RANGES; i++)
        assert_true(of_runs[i] > 0);
    arena_free(r.arena);
}

/* Blocks of several lengths under one window: what is known of one pair is said of another at the same
 * distance only if its blocks lie alike. */
static void tiles_known_of_a_pair_are_its_own(void **state)
{
    (void)state;
    enum { TOKENS = 2048 };
    Rx r = {.arena = arena_new(), .state = 23, .sequence = TOKENS};
    Arena *a = r.arena;
    const Expr *q = rx_make(a, E_Q, NULL, NULL), *k = rx_make(a, E_K, NULL, NULL),
               *apart = rx_make(a, E_SUB, q, k);
    for (int i = 0; i < 30; i++) {
        const Expr *e = rx_make(a, E_AND, rx_make(a, E_LE, k, q),
                                rx_make(a, E_LT, apart, rx_number(a, E_CONST, rx_between(&r, 1, 600))));
        MaskMap *m = mask_map(a, rx_program(a, e, TOKENS, NULL, 0), 0, BURST_TILE, BURST_TILE);
        for (int pair = 0; pair < 20; pair++) {
            const int ranks = 2 << rx_between(&r, 0, 2);
            const Partition *p = partition_make(a, PART_BLOCKS, 32 << rx_between(&r, 0, 3), TOKENS, ranks);
            check_ranges(m, e, &p->of[rx_between(&r, 0, ranks - 1)], &p->of[rx_between(&r, 0, ranks - 1)],
                         i % BURST_SIDES);
        }
    }
    arena_free(a);
}

/* Zigzag of runs that are no whole tiles: the tile in which both runs of a rank meet is sent where a
 * window reaches one of them, and not where it lies between them. */
static void tiles_of_two_runs_reach_no_further(void **state)
{
    (void)state;
    enum { TOKENS = 2000, RANKS = 4, WINDOW = 100 };
    Rx r = {.arena = arena_new(), .state = 31, .sequence = TOKENS};
    Arena *a = r.arena;
    const Expr *q = rx_make(a, E_Q, NULL, NULL), *k = rx_make(a, E_K, NULL, NULL),
               *apart = rx_make(a, E_SUB, q, k);
    const Expr *e = rx_make(a, E_AND, rx_make(a, E_LE, k, q),
                            rx_make(a, E_LT, apart, rx_number(a, E_CONST, WINDOW)));
    const Partition *p = partition_make(a, PART_ZIGZAG, 0, TOKENS, RANKS);
    MaskMap *m = mask_map(a, rx_program(a, e, TOKENS, NULL, 0), 0, BURST_TILE, BURST_TILE);
    for (int x = 0; x < RANKS * RANKS; x++) {
        const PosSet *pq = &p->of[x / RANKS], *pk = &p->of[x % RANKS];
        const BurstTileRanges found = mask_pair_tiles(m, pq, pk, BURST_OF_KEYS, 1 << 20);
        bool read[TOKENS / BURST_TILE] = {0};
        for (int64_t i = 0; i < pq->tokens; i++)
            for (int64_t j = 0; j < pk->tokens; j++)
                read[j / BURST_TILE] |= expr_eval(e, pos_at(pq, i), pos_at(pk, j), NULL, NULL) != 0;
        for (int64_t tile = 0; tile * BURST_TILE < pk->tokens; tile++)
            assert_int_equal(tile_is_in(found, tile), read[tile]);
    }
    arena_free(a);
}

/* ---- masks of distances inside documents, which have counts of their own ---- */

/* A conjunction of the same document with bounds on q - k, written in several ways. */
static const Expr *within_documents(Rx *r, int64_t most)
{
    Arena *a = r->arena;
    const Expr *q = rx_make(a, E_Q, NULL, NULL), *k = rx_make(a, E_K, NULL, NULL);
    const int64_t table = rx_between(r, 0, 2);
    const Expr *e = rx_make(a, E_EQ, rx_number(a, E_TABLE_Q, table), rx_number(a, E_TABLE_K, table));
    if (rx_one_in(r, 2))
        e = rx_make(a, E_EQ, rx_number(a, E_TABLE_K, table), rx_number(a, E_TABLE_Q, table));
    for (int64_t n = rx_between(r, 0, 3); n > 0; n--) {
        static const ExprOp compare[] = {E_LT, E_LE, E_GT, E_GE};
        const Expr *far = rx_number(a, E_CONST, rx_between(r, -5, most));
        const Expr *x = rx_make(a, compare[rx_between(r, 0, 3)], rx_make(a, E_SUB, q, k), far);
        e = rx_one_in(r, 2) ? rx_make(a, E_AND, e, x) : rx_make(a, E_AND, x, e);
    }
    return rx_one_in(r, 2) ? rx_make(a, E_AND, rx_make(a, E_LE, k, q), e) : e;
}

static PairWork judged_work(const MaskMap *m, const PosSet *q, const PosSet *k)
{
    PairWork w = {0};
    for (int64_t i = 0; i < q->tokens; i++)
        for (int64_t j = 0; j < k->tokens; j++)
            w.pairs += mask_node_at(m->sampled, pos_at(q, i), pos_at(k, j));
    for (int64_t i = 0; i < q->tokens; i += m->tile_q)
        for (int64_t j = 0; j < k->tokens; j += m->tile_k) {
            BurstSide a = {0}, b = {0};
            pos_hull(q, i, burst_min(m->tile_q, q->tokens - i), &a.lo, &a.hi);
            pos_hull(k, j, burst_min(m->tile_k, k->tokens - j), &b.lo, &b.hi);
            const int cover = mask_node_cover(m->sampled, &a, &b);
            w.tiles_full += cover == BURST_FULL;
            w.tiles_partial += cover == BURST_PARTIAL;
        }
    return w;
}

static const Partition *some_partition(Rx *r)
{
    const PartitionKind kind = (PartitionKind)rx_between(r, 0, PART_KINDS - 1);
    int share[7];
    for (int i = 0; i < 7; i++)
        share[i] = (int)rx_between(r, 1, 3);
    return partition_shared(r->arena, kind, rx_between(r, 1, 400), r->sequence, (int)rx_between(r, 1, 7),
                            rx_one_in(r, 4) ? share : NULL);
}

static const PosSet *some_chunk(Rx *r, const Partition *p)
{
    const PosSet *of = &p->of[rx_between(r, 0, p->ranks - 1)];
    PosSet *part = NEW(r->arena, PosSet);
    *part = pos_share(r->arena, of, (int)rx_between(r, 0, 1), 2);
    return rx_one_in(r, 3) ? part : of;
}

static void documents_are_counted_exactly(void **state)
{
    (void)state;
    Rx r = {.arena = arena_new(), .state = 33};
    for (int i = 0; i < 1500; i++) {
        r.sequence = rx_between(&r, 1, i % 50 ? 300 : 3000);
        const int64_t least = rx_between(&r, 1, 40), most = least + rx_between(&r, 0, 2 * least);
        const Table t[] = {{.name = "doc", .kind = BURST_TABLE_DOC, .len_min = least, .len_max = most},
                           {.name = "first", .kind = BURST_TABLE_FIRST, .len_min = least, .len_max = most},
                           {.name = "last", .kind = BURST_TABLE_LAST, .len_min = least, .len_max = most}};
        const Expr *e = within_documents(&r, 2 * most);
        const int tile_q = (int)rx_between(&r, 1, 20), tile_k = (int)rx_between(&r, 1, 20);
        MaskMap *m = mask_map(r.arena, rx_program(r.arena, e, r.sequence, t, 3), 0, tile_q, tile_k);
        const Partition *p = some_partition(&r), *other = rx_one_in(&r, 3) ? some_partition(&r) : p;
        assert_true(m->by_document);
        for (int n = 0; n < 4; n++) {
            const PosSet *q = some_chunk(&r, p), *k = some_chunk(&r, other);
            const PairWork got = mask_work(m, q, k), truth = judged_work(m, q, k);
            assert_int_equal(got.pairs, truth.pairs);
            assert_int_equal(got.tiles_full, truth.tiles_full);
            assert_int_equal(got.tiles_partial, truth.tiles_partial);
        }
    }
    arena_free(r.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stock_masks_are_counted_exactly),
        cmocka_unit_test(random_masks_are_counted_exactly),
        cmocka_unit_test(alike_boxes_are_told_apart),
        cmocka_unit_test(larger_sequences_are_counted_exactly),
        cmocka_unit_test(millions_of_tokens_are_counted_exactly),
        cmocka_unit_test(chunks_add_up),
        cmocka_unit_test(estimates_state_their_error),
        cmocka_unit_test(unknown_tables_keep_the_most_pairs),
        cmocka_unit_test(unknown_tables_bound_every_batch),
        cmocka_unit_test(drawn_documents_are_for_counts_only),
        cmocka_unit_test(drawn_tables_are_what_documents_say),
        cmocka_unit_test(documents_are_counted_exactly),
        cmocka_unit_test(ranges_are_what_tiles_read),
        cmocka_unit_test(tiles_known_of_a_pair_are_its_own),
        cmocka_unit_test(tiles_of_two_runs_reach_no_further),
        cmocka_unit_test(printing_shows_counts_and_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
