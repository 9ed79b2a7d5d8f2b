/* test_balance.c: partitions made for each batch, judged by what shares nothing with the planner but the
 * masks' meaning: work pair by pair and tile by tile, keys that ranks receive run by run.
 *
 * Lengths of documents are drawn from four published tables, log-uniformly between their quantiles: A:
 * production (WLB-LLM), B: ProLong, C: Wikipedia, D: MagiAttention's.
 */
#include "data/balance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

/* ---- lengths ---- */

typedef struct Lengths {
    const char *name;
    int n;
    double p[12], tokens[12];
} Lengths;
static const Lengths sets[] = {
    {"A", 6, {0, .5, .9, .99, .999, 1}, {400, 3227, 5784, 26070, 119836, 124913}},
    {"B", 6, {0, .5, .9, .99, .999, 1}, {64, 1914, 6051, 16273, 47500, 340149}},
    {"C", 6, {0, .5, .9, .99, .999, 1}, {32, 347, 2112, 10921, 37367, 1.8e6}},
    {"D",
     12,
     {0, .186, .468, .714, .871, .944, .9745, .9874, .9959, .9973, .999, 1},
     {32, 200, 500, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 196608}},
};
enum { SETS = sizeof sets / sizeof *sets, DRAWN = 20 };

static uint64_t state;

static double uniform(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state >> 11) / 9007199254740992.0;
}

static int64_t draw_length(const Lengths *l)
{
    const double u = uniform();
    int k = 1;
    while (k < l->n - 1 && u > l->p[k])
        k++;
    const double part = (u - l->p[k - 1]) / (l->p[k] - l->p[k - 1]);
    return (int64_t)(l->tokens[k - 1] * pow(l->tokens[k] / l->tokens[k - 1], part));
}

/* ---- masks ---- */

static int and3(int x, int y) { return x < y ? x : y; }

static int causal(const BurstSide *q, const BurstSide *k)
{
    if (k->hi <= q->lo)
        return BURST_FULL;
    return k->lo > q->hi ? BURST_EMPTY : BURST_PARTIAL;
}

static int same_document(const BurstSide *q, const BurstSide *k)
{
    if (q->table_lo[0] > k->table_hi[0] || k->table_lo[0] > q->table_hi[0])
        return BURST_EMPTY;
    return q->table_lo[0] == q->table_hi[0] && k->table_lo[0] == k->table_hi[0] ? BURST_FULL : BURST_PARTIAL;
}

static int document_tile(const BurstSide *q, const BurstSide *k)
{
    return and3(causal(q, k), same_document(q, k));
}

enum { WINDOW = 1000 };
static int window_tile(const BurstSide *q, const BurstSide *k)
{
    if (q->hi - k->lo < WINDOW)
        return document_tile(q, k);
    return q->lo - k->hi >= WINDOW ? BURST_EMPTY : and3(document_tile(q, k), BURST_PARTIAL);
}

/* As the tiles, of one pair. */
static bool document_pair(const int32_t *doc, int64_t q, int64_t k) { return k <= q && doc[q] == doc[k]; }

static bool window_pair(const int32_t *doc, int64_t q, int64_t k)
{
    return document_pair(doc, q, k) && q - k < WINDOW;
}

static const BurstMask masks[] = {{"document", document_tile, NULL}, {"window", window_tile, NULL}};
static bool (*const pairs[])(const int32_t *doc, int64_t q, int64_t k) = {document_pair, window_pair};

/* ---- a plan and a batch ---- */

typedef struct Case {
    BurstPlan plan;
    const BurstMask *mask[2];
    int layer_mask[3];
    int32_t *doc;
    int64_t longest;
    Balance *balance;
    BurstTables tables;
    int64_t *position;
} Case;

/* Layers 0 and 1 have the first mask, layer 2 the second. */
static void open_case(Case *c, int ranks, int64_t tokens, int64_t run, bool windows)
{
    static const char *const names[] = {"doc"};
    *c = (Case){.mask = {&masks[0], &masks[1]}, .layer_mask = {0, 0, 1}};
    c->plan = (BurstPlan){.group = ranks,
                          .sequence = ranks * tokens,
                          .max_tokens = tokens,
                          .balanced = run,
                          .layers = windows ? 3 : 2,
                          .masks = c->mask,
                          .layer_mask = c->layer_mask,
                          .tables = names,
                          .table_count = 1};
    c->doc = calloc((size_t)c->plan.sequence, sizeof *c->doc);
    c->position = calloc((size_t)c->plan.sequence, sizeof *c->position);
    c->tables.table[0] = c->doc;
    c->balance = balance_open(&c->plan);
    assert_true(c->doc && c->position && c->balance);
}

static void close_case(Case *c)
{
    balance_close(c->balance);
    free(c->doc);
    free(c->position);
}

static void draw_documents(Case *c, const Lengths *l)
{
    const int64_t n = c->plan.sequence;
    c->longest = 0;
    int32_t number = 0;
    for (int64_t at = 0; at < n; number++) {
        const int64_t drawn = draw_length(l), least = drawn < 1 ? 1 : drawn,
                      length = least < n - at ? least : n - at;
        c->longest = length > c->longest ? length : c->longest;
        for (int64_t i = 0; i < length; i++)
            c->doc[at++] = number;
    }
}

static void make(Case *c)
{
    balance_count(c->balance, &c->tables, c->plan.table_count);
    balance_assign(c->balance);
    assert_true(balance_positions(c->balance, c->position));
}

/* Every token once; each chunk's in ascending order. */
static void expect_permutation(const Case *c)
{
    const int64_t n = c->plan.sequence, each = c->plan.max_tokens;
    uint8_t *seen = calloc((size_t)n, 1);
    assert_non_null(seen);
    for (int64_t i = 0; i < n; i++) {
        assert_in_range(c->position[i], 0, n - 1);
        assert_int_equal(seen[c->position[i]]++, 0);
        assert_true(i % each == 0 || c->position[i] > c->position[i - 1]);
    }
    free(seen);
}

/* ---- judges ---- */

typedef struct Judged {
    double balance, received;
} Judged;

/* Documents alone: work of a tile of queries is the tiles of keys from its first token's document on.
 * received: of all keys, what a rank needs and has not, the mean over ranks. */
static Judged judge_documents(const Case *c)
{
    const int64_t n = c->plan.sequence, each = c->plan.max_tokens, tiles = n / BURST_TILE;
    int64_t *first = calloc((size_t)n, sizeof *first);
    uint8_t *has = malloc((size_t)tiles);
    assert_true(first && has);
    for (int64_t i = 1; i < n; i++)
        first[i] = c->doc[i] == c->doc[i - 1] ? first[i - 1] : i;
    double most = 0, all = 0, received = 0;
    for (int r = 0; r < c->plan.group; r++) {
        double work = 0;
        memset(has, 0, (size_t)tiles);
        const int64_t *mine = c->position + r * each;
        for (int64_t i = 0; i < each; i += BURST_TILE) {
            const int64_t tile = mine[i] / BURST_TILE, from = first[mine[i]] / BURST_TILE;
            work += (double)(tile - from + 1);
            memset(has + from, 1, (size_t)(tile - from + 1));
        }
        for (int64_t i = 0; i < each; i += BURST_TILE)
            has[mine[i] / BURST_TILE] = 0;
        for (int64_t t = 0; t < tiles; t++)
            received += has[t];
        all += work;
        most = work > most ? work : most;
    }
    free(first);
    free(has);
    return (Judged){most / (all / c->plan.group), received / (double)tiles / c->plan.group};
}

typedef struct Sum {
    int n;
    double most, received;
} Sum;

static void add(Sum *s, Judged j)
{
    s->n++;
    s->most = j.balance > s->most ? j.balance : s->most;
    s->received += j.received;
}

static void balances_drawn_batches(void **unused)
{
    (void)unused;
    /* Set C has documents of up to 1.8 Mi tokens: one of a quarter of the sequence or more is in most batches
     * of 32 and 64 ranks, and whoever has its last tokens needs all of its keys. */
    static const struct {
        int ranks;
        int64_t tokens;
        double received[SETS];
    } sizes[] = {{8, 32 << 10, {0.15, 0.15, 0.15, 0.15}},
                 {32, 16 << 10, {0.10, 0.10, 0.12, 0.10}},
                 {64, 16 << 10, {0.10, 0.10, 0.15, 0.10}}};
    for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++)
        for (int s = 0; s < SETS; s++) {
            Sum usual = {0}, long_ones = {0};
            for (int i = 0; i < DRAWN; i++) {
                Case c;
                state = (uint64_t)(1000 * s + i + 17);
                open_case(&c, sizes[z].ranks, sizes[z].tokens, 1024, false);
                draw_documents(&c, &sets[s]);
                make(&c);
                expect_permutation(&c);
                const bool is_long = 2 * c.longest > c.plan.sequence;
                const Judged j = judge_documents(&c);
                add(is_long ? &long_ones : &usual, j);
                if (j.balance > (is_long ? 1.10 : 1.05))
                    fail_msg("set %s, %d ranks, batch %d: the slowest rank has %.3f of the mean",
                             sets[s].name, sizes[z].ranks, i, j.balance);
                close_case(&c);
            }
            printf(
                "set %s, %2d ranks of %2lldKi: slowest at most %.3f of the mean; received %.3f of all keys; "
                "in %d batches with one document over half: %.3f, %.3f\n",
                sets[s].name, sizes[z].ranks, (long long)sizes[z].tokens >> 10, usual.most,
                usual.received / usual.n, long_ones.n, long_ones.most,
                long_ones.n ? long_ones.received / long_ones.n : 0);
            assert_true(usual.received / usual.n <= sizes[z].received[s]);
        }
}

/* Work of every run against all pairs: 2 layers of documents, 1 of windows in them. */
static void counts_as_pair_by_pair(void **unused)
{
    (void)unused;
    for (int i = 0; i < 20; i++) {
        Case c;
        state = (uint64_t)(i + 5);
        open_case(&c, 1 + i % 4, 64 * (1 + i % 7) * 4, i % 2 ? 64 : 256, true);
        draw_documents(&c, &(Lengths){"small", 2, {0, 1}, {1, 40 << i % 7}});
        make(&c);
        expect_permutation(&c);
        const int64_t run = c.plan.balanced, n = c.plan.sequence;
        for (int64_t r = 0; r < n / run; r++) {
            int64_t work = 0;
            for (int m = 0; m < 2; m++)
                for (int64_t q0 = r * run; q0 < (r + 1) * run; q0 += BURST_TILE)
                    for (int64_t k0 = 0; k0 < n; k0 += BURST_TILE) {
                        bool any = false;
                        for (int64_t q = q0; q < q0 + BURST_TILE && !any; q++)
                            for (int64_t k = k0; k < k0 + BURST_TILE && !any; k++)
                                any = pairs[m](c.doc, q, k);
                        work += any ? 2 - m : 0;
                    }
            assert_int_equal(work, c.balance->work[r]);
        }
        close_case(&c);
    }
}

/* One document, documents of one token, one longer than half, a run a rank, one rank: every token has one
 * owner, and where all have as much work as the next, nobody receives anything. */
static void no_batch_breaks_it(void **unused)
{
    (void)unused;
    for (int i = 0; i < 1000; i++) {
        Case c;
        state = (uint64_t)(i + 99);
        const int64_t run = 64 << (int)(uniform() * 3), each = run * (1 + (int)(uniform() * 6));
        open_case(&c, 1 + (int)(uniform() * 40), each, run, i % 2);
        const double longest = pow((double)c.plan.sequence, uniform() * 1.2);
        draw_documents(&c, &(Lengths){"any", 2, {0, 1}, {1, longest}});
        for (int64_t t = 0; t < c.plan.sequence && i % 10 < 3; t++) {
            /* separators that are wherever they want; documents of one token; one document */
            const int32_t anywhere = (int32_t)(uniform() * 3) - 1, number[] = {anywhere, (int32_t)t, 0};
            c.doc[t] = number[i % 10];
        }
        make(&c);
        expect_permutation(&c);
        for (int64_t t = 0; t < c.plan.sequence && i % 10 == 1; t++)
            assert_int_equal(c.position[t], t);
        close_case(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(balances_drawn_batches),
                                       cmocka_unit_test(counts_as_pair_by_pair),
                                       cmocka_unit_test(no_batch_breaks_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
