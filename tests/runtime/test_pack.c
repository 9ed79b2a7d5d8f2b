/* test_pack.c: packing of documents and shares of files, against what must hold of them, counted one by one.
 */
#include "check.h"
#include "data/mix.h"
#include "data/pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Sequences of best fit, decreasing, that are not full; lengths: of pieces, of which none is longer than a
 * sequence. By looking at all sequences each time. */
static int64_t not_full(int64_t *length, int64_t n, int64_t sequence)
{
    int64_t *room = calloc((size_t)n + 1, sizeof *room), bins = 0, open = 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t longest = k, best = -1;
        for (int64_t i = k; i < n; i++)
            longest = length[i] > length[longest] ? i : longest;
        const int64_t piece = length[longest];
        length[longest] = length[k];
        for (int64_t b = 0; b < bins; b++)
            if (room[b] >= piece && (best < 0 || room[b] < room[best]))
                best = b;
        if (best < 0)
            room[best = bins++] = sequence;
        room[best] -= piece;
    }
    for (int64_t b = 0; b < bins; b++)
        open += room[b] > 0;
    free(room);
    return open;
}

/* Every token in one sequence, one sequence alone not full, and as few documents cut as best fit leaves
 * sequences open. */
static void check_packed(const Packed *p, const int64_t *first, int64_t documents, int64_t sequence)
{
    const int64_t tokens = first[documents];
    uint8_t *seen = calloc((size_t)tokens, 1);
    int64_t *length = calloc((size_t)(documents + tokens / sequence + 1), sizeof *length), pieces = 0,
            open = 0;
    for (int64_t d = 0; d < documents; d++)
        for (int64_t at = first[d]; at < first[d + 1]; at += sequence)
            length[pieces++] = first[d + 1] - at < sequence ? first[d + 1] - at : sequence;
    assert_int_equal(p->sequences, (tokens + sequence - 1) / sequence);
    for (int64_t s = 0; s < p->sequences; s++) {
        int64_t used = 0;
        for (int64_t i = p->first[s]; i < p->first[s + 1]; i++) {
            assert_true(p->piece[i].length > 0);
            for (int64_t at = p->piece[i].begin; at < p->piece[i].begin + p->piece[i].length; at++)
                assert_int_equal(seen[at]++, 0);
            used += p->piece[i].length;
        }
        assert_true(used <= sequence);
        open += used < sequence;
    }
    assert_true(open <= 1);
    for (int64_t at = 0; at < tokens; at++)
        assert_int_equal(seen[at], 1);
    assert_true(p->first[p->sequences] - pieces <= not_full(length, pieces, sequence));
    free(seen);
    free(length);
}

static void packed_sequences(void **unused)
{
    (void)unused;
    Random r = {11};
    for (int run = 0; run < 600; run++) {
        const int64_t sequence = 1 + random_below(&r, run % 3 ? 40 : 300);
        const int64_t documents = 1 + random_below(&r, 60);
        int64_t first[61] = {0};
        for (int64_t d = 0; d < documents; d++) /* some of one token, some longer than a sequence */
            first[d + 1] = first[d] + 1 + random_below(&r, (int)(d % 4 ? sequence : 3 * sequence));
        Packed p = {0}, again = {0};
        assert_true(packed_make(&p, first, documents, sequence) &&
                    packed_make(&again, first, documents, sequence));
        check_packed(&p, first, documents, sequence);
        assert_memory_equal(p.first, again.first, sizeof *p.first * (size_t)(p.sequences + 1));
        assert_memory_equal(p.piece, again.piece, sizeof *p.piece * (size_t)p.first[p.sequences]);
        packed_free(&p);
        packed_free(&again);
    }
}

/* Documents that fit exactly are not cut at all. */
static void whole_documents(void **unused)
{
    (void)unused;
    static const int64_t first[] = {0, 3, 10, 15, 18, 21, 30}; /* 3, 7, 5, 3, 3, 9 of 10, 10 and 10 */
    Packed p = {0};
    assert_true(packed_make(&p, first, 6, 10));
    assert_int_equal(p.sequences, 3);
    assert_int_equal(p.first[3] <= 8, 1);
    packed_free(&p);
    static const int64_t fits[] = {0, 4, 10, 13, 20, 30};
    assert_true(packed_make(&p, fits, 5, 10));
    assert_int_equal(p.sequences, 3);
    assert_int_equal(p.first[3], 5);
    packed_free(&p);
}

/* Of any number of sequences from the first, each file has its share within one. */
static void shares_of_files(void **unused)
{
    (void)unused;
    static Mix m;
    Random r = {5};
    for (int run = 0; run < 40; run++) {
        const int files = run ? 1 + random_below(&r, run % 2 ? 4 : BURST_DATA_FILES) : 1;
        double share[BURST_DATA_FILES], all = 0;
        int64_t taken[BURST_DATA_FILES] = {0};
        for (int f = 0; f < files; f++)
            all += share[f] = 1 + (double)random_below(&r, 100);
        mix_make(&m, share, files);
        for (int64_t n = 0; n < MIX_SLOTS + 1000; n++) {
            int64_t index;
            const int f = mix_at(&m, n, &index);
            assert_in_range(f, 0, files - 1);
            assert_int_equal(index, taken[f]++);
            for (int g = 0; n < MIX_SLOTS && g < files; g++)
                if (taken[g] < share[g] / all * (double)(n + 1) - 1 ||
                    taken[g] > share[g] / all * (double)(n + 1) + 1)
                    fail_msg("file %d of %d has %lld of %lld sequences, its share is %g", g, files,
                             (long long)taken[g], (long long)n + 1, share[g] / all);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(packed_sequences), cmocka_unit_test(whole_documents),
                                       cmocka_unit_test(shares_of_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
