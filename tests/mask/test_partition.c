/* test_partition.c: every token on exactly one rank, in closed form and in emitted C. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tools/tools.h"
#include "compile_text.h"
#include "random_expr.h"
#include "positions.h"

static int64_t before(const Partition *p, int64_t rank)
{
    return p->before ? p->before[rank] : rank;
}

/* The rank with share number i of all. */
static int sharer(const Partition *p, int64_t i)
{
    int r = 0;
    while (i >= before(p, r + 1))
        r++;
    return r;
}

/* Which rank owns a position: the definitions, token by token. */
static int owner(const Partition *p, int64_t position)
{
    const int64_t n = p->sequence, all = before(p, p->ranks);
    int64_t begin = 0, length = n, b = all;
    while (p->kind == PART_BLOCKS && b < p->block)
        b += all;
    if (p->kind == PART_BALANCED) /* before the first batch */
        b = p->block * all;
    if (p->kind == PART_STRIPED && position < n / b * b)
        return sharer(p, position % all);
    if (p->kind == PART_STRIPED && !p->before)
        return (int)(position % all);
    if (p->kind == PART_ZIGZAG) {
        for (int64_t i = 0; i < 2 * all; i++)
            if (position >= i * n / (2 * all) && position < (i + 1) * n / (2 * all))
                return sharer(p, i < all ? i : 2 * all - 1 - i);
        return -1;
    }
    if (p->kind != PART_CONTIGUOUS)
        begin = position / b * b, length = n - begin < b ? n - begin : b;
    for (int64_t r = 0; r < p->ranks; r++)
        if (position - begin >= before(p, r) * length / all &&
            position - begin < before(p, r + 1) * length / all)
            return (int)r;
    return -1;
}

static void check_rank(const Partition *p, int r, uint8_t *seen)
{
    const PosSet *s = &p->of[r];
    int64_t counted = 0, last = -1;
    for (int i = 0; i < s->npieces; i++) {
        assert_true(s->pieces[i].count >= 1 && s->pieces[i].run >= 1 &&
                    s->pieces[i].run <= s->pieces[i].stride);
        counted += s->pieces[i].run * s->pieces[i].count;
    }
    assert_true(s->npieces <= 2);
    assert_int_equal(counted, s->tokens);
    for (int64_t i = 0; i < s->tokens; i++) {
        const int64_t at = pos_at(s, i);
        assert_in_range(at, 0, p->sequence - 1);
        assert_int_equal(owner(p, at), r);
        assert_int_equal(seen[at]++, 0);
        assert_true(at > last); /* local order follows the sequence */
        last = at;
    }
}

/* Pieces that recurrent layers scan: each position is in one, a row of its rank, and pieces follow each
 * other. */
static void check_pieces(const Partition *p)
{
    const int most = partition_most_runs(p);
    BurstSequencePiece *piece = xmalloc(sizeof *piece * (size_t)(p->ranks * most + 1));
    int64_t position = 0, least = p->sequence;
    int count = 0, longest = 0;
    for (int r = 0, first = 0; r < p->ranks; r++, first = count) {
        for (int64_t i = 0; i < p->of[r].tokens; i++)
            assert_true((count = burst_scan_add(piece, count, first, most, r, i, pos_at(&p->of[r], i))) > 0);
        longest = count - first > longest ? count - first : longest;
    }
    assert_int_equal(longest, most);
    burst_scan_sort(piece, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(piece[i].position, position);
        for (int64_t k = 0; k < piece[i].rows; k++, position++)
            assert_int_equal(pos_at(&p->of[piece[i].chunk], piece[i].row + k), position);
        least = piece[i].rows < least ? piece[i].rows : least;
    }
    assert_int_equal(position, p->sequence);
    assert_true(partition_least_run(p) <= least);
    free(piece);
}

static void check_partition(const Partition *p)
{
    uint8_t *seen = xmalloc((size_t)p->sequence);
    const int64_t all = before(p, p->ranks);
    const int cuts = p->kind == PART_ZIGZAG ? 2 : 1; /* each rounds to whole tokens once */
    int64_t total = 0, most = 0, least = INT64_MAX;
    memset(seen, 0, (size_t)p->sequence);
    for (int r = 0; r < p->ranks; r++) {
        check_rank(p, r, seen);
        total += p->of[r].tokens;
        most = p->of[r].tokens > most ? p->of[r].tokens : most;
        least = p->of[r].tokens < least ? p->of[r].tokens : least;
        const int64_t share = (before(p, r + 1) - before(p, r)) * p->sequence,
                      off = p->of[r].tokens * all - share;
        assert_true((off < 0 ? -off : off) <= cuts * all);
    }
    assert_int_equal(total, p->sequence);
    assert_int_equal(most, p->max_tokens);
    if (!p->before)
        assert_true(most - least <= cuts);
    free(seen);
}

static const int *random_shares(Rx *r, int ranks)
{
    int *share = NEW_ARRAY(r->arena, int, ranks);
    const int most = (int)rx_between(r, 1, 9);
    for (int i = 0; i < ranks; i++)
        share[i] = (int)rx_between(r, 1, most);
    return share;
}

static void every_token_has_one_rank(void **state)
{
    (void)state;
    Rx r = {.arena = arena_new(), .state = 21};
    for (int i = 0; i < 4000; i++) {
        const PartitionKind kind = (PartitionKind)(i % PART_KINDS);
        const int64_t n = rx_between(&r, 1, rx_one_in(&r, 4) ? 12 : 400),
                      block = rx_between(&r, 1, rx_one_in(&r, 4) ? 500 : 40);
        const int ranks = (int)rx_between(&r, 1, 40);
        const int *share = rx_one_in(&r, 2) ? random_shares(&r, ranks) : NULL;
        const Partition *p = partition_shared(r.arena, kind, block, n, ranks, share);
        assert_int_equal(p->kind, kind);
        check_partition(p);
        check_pieces(p);
    }
    arena_free(r.arena);
}

/* Shares of a rank's tokens are its local order cut in parts, token by token. */
static void shares_follow_each_other(void **state)
{
    (void)state;
    Rx r = {.arena = arena_new(), .state = 23};
    for (int i = 0; i < 4000; i++) {
        const int ranks = (int)rx_between(&r, 1, 6), shares = (int)rx_between(&r, 1, 9);
        const Partition *p = partition_shared(r.arena, (PartitionKind)(i % PART_KINDS), rx_between(&r, 1, 60),
                                              rx_between(&r, 1, 300), ranks,
                                              rx_one_in(&r, 2) ? random_shares(&r, ranks) : NULL);
        const PosSet *s = &p->of[rx_between(&r, 0, ranks - 1)];
        int64_t before = 0;
        for (int part = 0; part < shares; part++) {
            const PosSet share = pos_share(r.arena, s, part, shares);
            assert_int_equal(share.tokens, s->tokens * (part + 1) / shares - s->tokens * part / shares);
            for (int64_t j = 0; j < share.tokens; j++)
                assert_int_equal(pos_at(&share, j), pos_at(s, before + j));
            before += share.tokens;
        }
        assert_int_equal(before, s->tokens);
    }
    arena_free(r.arena);
}

static void hulls_are_exact(void **state)
{
    (void)state;
    Rx r = {.arena = arena_new(), .state = 22};
    for (int i = 0; i < 20000; i++) {
        const int64_t n = rx_between(&r, 20, 300);
        const int ranks = (int)rx_between(&r, 1, 6);
        const Partition *p = partition_shared(r.arena, (PartitionKind)(i % PART_KINDS), rx_between(&r, 1, 60),
                                              n, ranks, rx_one_in(&r, 2) ? random_shares(&r, ranks) : NULL);
        const PosSet *s = &p->of[rx_between(&r, 0, p->ranks - 1)];
        if (!s->tokens)
            continue;
        const int64_t first = rx_between(&r, 0, s->tokens - 1), count = rx_between(&r, 1, s->tokens - first);
        int64_t lo = INT64_MAX, hi = -1, got_lo, got_hi;
        for (int64_t j = first; j < first + count; j++) {
            lo = pos_at(s, j) < lo ? pos_at(s, j) : lo;
            hi = pos_at(s, j) > hi ? pos_at(s, j) : hi;
        }
        pos_hull(s, first, count, &got_lo, &got_hi);
        assert_int_equal(got_lo, lo);
        assert_int_equal(got_hi, hi);
    }
    /* Pieces out of order, as no partition makes them. */
    const Piece pieces[] = {{50, 2, 5, 3}, {7, 4, 4, 1}};
    const PosSet s = {.tokens = 10, .npieces = 2, .pieces = pieces};
    int64_t lo, hi;
    pos_hull(&s, 5, 3, &lo, &hi);
    assert_int_equal(lo, 7);
    assert_int_equal(hi, 61);
    assert_int_equal(pos_at(&s, 3), 56);
    assert_int_equal(pos_at(&s, 6), 7);
    arena_free(r.arena);
}

static void check_emitted(const Partition *p)
{
    Text c = {0};
    text_add(&c, "#include <stdint.h>\n");
    partition_emit_c(p, NULL, &c);
    text_add(&c, "int64_t tokens_of(int c);\nint64_t position_of(int c, int64_t i);\n"
                 "int64_t tokens_of(int c) { return plan_tokens(c); }\n"
                 "int64_t position_of(int c, int64_t i) { return plan_position(c, i); }\n");
    void *so = compile_text(c.at, "emitted_partition", "-O1 -Wall -Wextra -Werror");
    int64_t (*tokens)(int), (*position)(int, int64_t);
    *(void **)&tokens = dlsym(so, "tokens_of");
    *(void **)&position = dlsym(so, "position_of");
    for (int r = 0; r < p->ranks; r++) {
        assert_int_equal(tokens(r), p->of[r].tokens);
        for (int64_t i = 0; i < p->of[r].tokens; i++)
            assert_int_equal(position(r, i), pos_at(&p->of[r], i));
    }
    dlclose(so);
    text_free(&c);
}

static void emitted_c_agrees(void **state)
{
    (void)state;
    Arena *a = arena_new();
    for (PartitionKind kind = 0; kind < PART_KINDS; kind++) {
        check_emitted(partition_make(a, kind, 10, 1000, 8));
        check_emitted(partition_make(a, kind, 64, 997, 7));
        check_emitted(partition_make(a, kind, 3, 5, 9)); /* ranks without a token */
        check_emitted(partition_make(a, kind, 4096, 257, 1));
        check_emitted(partition_shared(a, kind, 64, 997, 5, (const int[]){3, 3, 1, 1, 2}));
        /* striped: less than a turn */
        check_emitted(partition_shared(a, kind, 10, 1000, 2, (const int[]){1000, 1}));
    }
    arena_free(a);
}

/* Tokens in proportion, as near as whole tokens allow. */
static void tokens_are_in_proportion(void **state)
{
    (void)state;
    Arena *a = arena_new();
    static const int share[] = {3, 3, 1, 1, 2};
    for (PartitionKind kind = 0; kind < PART_KINDS; kind++) {
        const Partition *p = partition_shared(a, kind, 1000, 100000, 5, share);
        for (int r = 0; r < p->ranks; r++)
            assert_int_equal(p->of[r].tokens, 10000 * share[r]);
    }
    arena_free(a);
}

/* Neither unused functions nor the size of the plan may show. */
static void emitted_c_is_quiet_and_short(void **state)
{
    (void)state;
    Arena *a = arena_new();
    int two_kinds[4096];
    for (int r = 0; r < 4096; r++)
        two_kinds[r] = r < 2048 ? 7 : 3;
    for (PartitionKind kind = 0; kind < PART_KINDS; kind++) {
        Text small = {0}, large = {0};
        text_add(&small, "#include <stdint.h>\n");
        partition_emit_c(partition_make(a, kind, 16, 64, 2), NULL, &small);
        partition_emit_c(partition_make(a, kind, INT64_C(1) << 20, INT64_C(1) << 40, 4096), NULL, &large);
        assert_true(large.n < small.n + 200);
        large.n = 0;
        partition_emit_c(partition_shared(a, kind, INT64_C(1) << 20, INT64_C(1) << 40, 4096, two_kinds), NULL,
                         &large);
        assert_true(large.n < small.n + 1400);
        dlclose(compile_text(small.at, "unused_partition", "-Wall -Wextra -Werror"));
        text_free(&small);
        text_free(&large);
    }
    arena_free(a);
}

static void printed_form_is_stable(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Text t = {0};
    print_partition(partition_make(a, PART_ZIGZAG, 0, 10, 2), &t);
    print_partition(partition_make(a, PART_BLOCKS, 4, 10, 2), &t);
    assert_string_equal(t.at,
                        "burst-partition 1\nkind zigzag\nranks 2\nsequence 10\nmax_tokens 5\n"
                        "rank 0 tokens 5 [start 0 run 2] [start 7 run 3]\nrank 1 tokens 5 [start 2 run 5]\n"
                        "burst-partition 1\nkind blocks(4)\nranks 2\nsequence 10\nmax_tokens 5\n"
                        "rank 0 tokens 5 [start 0 run 2 stride 4 count 2] [start 8 run 1]\n"
                        "rank 1 tokens 5 [start 2 run 2 stride 4 count 2] [start 9 run 1]\n");
    text_free(&t);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_has_one_rank), cmocka_unit_test(hulls_are_exact),
        cmocka_unit_test(shares_follow_each_other),
        cmocka_unit_test(tokens_are_in_proportion),
        cmocka_unit_test(emitted_c_agrees),         cmocka_unit_test(emitted_c_is_quiet_and_short),
        cmocka_unit_test(printed_form_is_stable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
