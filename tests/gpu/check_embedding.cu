/* check_embedding.cu: rows of the table, and gradients that several tokens add to. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* More tokens than one sort takes. */
static void check_many(Check *k)
{
    enum { TOKENS = (2 << 20) + 77, ROWS = 997, HIDDEN = 8 };
    const Floats dx = random_bf16((size_t)TOKENS * HIDDEN, 65, 1);
    const std::vector<int32_t> token = random_ints(TOKENS, 66, ROWS);
    Doubles want(ROWS * HIDDEN);
    for (size_t i = 0; i < dx.size(); i++)
        want[(size_t)token[i / HIDDEN] * HIDDEN + i % HIDDEN] += dx[i];
    float *table = up(k, Floats(ROWS * HIDDEN));
    MUST(k, burst_op_embed_back(k->g, TOKENS, HIDDEN, up(k, token), up_bf16(k, dx), table, NULL));
    compare(k, "embed_back of many tokens", down(k, table, want.size()), want, FP32);
}

/* One token is percent of all, and gradients have a mean: each row against float64 by itself. */
static void check_frequent(Check *k, int percent)
{
    enum { TOKENS = 4 << 20, ROWS = 5000, HIDDEN = 8, FREQUENT = 4001 };
    Floats dx = random_bf16((size_t)TOKENS * HIDDEN, 67, 1);
    std::vector<int32_t> token(TOKENS);
    Doubles want(ROWS * HIDDEN);
    for (size_t i = 0; i < dx.size(); i++) {
        dx[i] = to_bf16(dx[i] + 1);
        token[i / HIDDEN] = (int)(i / HIDDEN % 100) < percent ? FREQUENT
                                                              : (int32_t)(i / HIDDEN * 7919 % 3000);
        want[(size_t)token[i / HIDDEN] * HIDDEN + i % HIDDEN] += dx[i];
    }
    float *table = up(k, Floats(ROWS * HIDDEN));
    MUST(k, burst_op_embed_back(k->g, TOKENS, HIDDEN, up(k, token), up_bf16(k, dx), table, NULL));
    const Floats got = down(k, table, want.size());
    double worst = 0;
    for (size_t i = 0; i < want.size(); i++)
        worst = fmax(worst, fabs(got[i] - want[i]) / fmax(fabs(want[i]), 1));
    printf("embed_back of %d tokens, one of them %d %%: relative error %.1e\n", TOKENS, percent, worst);
    expect(k, "embed_back of a frequent token", worst < 1e-5);
}

/* More columns than the workspace has room for at once. */
static void check_wide(Check *k)
{
    enum { TOKENS = 2 << 20, ROWS = 3, HIDDEN = 392, OWN = 4096 }; /* rows of dx repeat after OWN */
    const Floats dx = random_bf16((size_t)OWN * HIDDEN, 68, 1);
    const std::vector<int32_t> token = random_ints(TOKENS, 69, ROWS);
    Doubles want(ROWS * HIDDEN);
    for (size_t i = 0; i < TOKENS; i++)
        for (size_t j = 0; j < HIDDEN; j++)
            want[(size_t)token[i] * HIDDEN + j] += dx[i % OWN * HIDDEN + j];
    const size_t bytes = (size_t)OWN * HIDDEN * sizeof(BurstBf16);
    const BurstBf16 *one = up_bf16(k, dx);
    char *all = (char *)poisoned(k, TOKENS / OWN * bytes);
    for (size_t i = 0; i < TOKENS / OWN; i++)
        expect(k, "copies",
               cudaMemcpyAsync(all + i * bytes, one, bytes, cudaMemcpyDeviceToDevice,
                               burst_gpu_compute(k->g)) == cudaSuccess);
    float *table = up(k, Floats(ROWS * HIDDEN));
    MUST(k, burst_op_embed_back(k->g, TOKENS, HIDDEN, up(k, token), (BurstBf16 *)all, table, NULL));
    compare(k, "embed_back of many columns", down(k, table, want.size()), want, FP32);
}

/* A token's row by slices of the table, of which one has it; and sums of rows. */
static void check_slices(Check *k)
{
    enum { SLICES = 3, ROWS = 24, HIDDEN = 2064 };
    const Floats table = random_bf16(SLICES * ROWS * HIDDEN, 70, 1);
    const BurstBf16 *at = up_bf16(k, table);
    for (int32_t token : std::vector<int32_t>{0, ROWS - 1, ROWS, SLICES * ROWS - 1}) {
        const Floats row(table.begin() + token * HIDDEN, table.begin() + (token + 1) * HIDDEN);
        BurstBf16 *all = (BurstBf16 *)poisoned(k, SLICES * HIDDEN * sizeof *all),
                  *one = (BurstBf16 *)poisoned(k, HIDDEN * sizeof *one);
        const int32_t *number = up(k, std::vector<int32_t>{token});
        for (int i = 0; i < SLICES; i++)
            MUST(k, burst_gpu_embed_slice(k->g, i * ROWS, ROWS, HIDDEN, number, at + i * ROWS * HIDDEN,
                                          all + i * HIDDEN));
        MUST(k, burst_gpu_sum_rows(k->g, SLICES, HIDDEN, all, one));
        compare(k, "embed by slices", down_bf16(k, one, HIDDEN), Doubles(row.begin(), row.end()), 0);
    }
    Doubles sum(HIDDEN);
    for (size_t i = 0; i < table.size(); i++)
        sum[i % HIDDEN] += table[i];
    BurstBf16 *one = (BurstBf16 *)poisoned(k, HIDDEN * sizeof *one);
    MUST(k, burst_gpu_sum_rows(k->g, SLICES * ROWS, HIDDEN, at, one));
    compare(k, "sum of rows", down_bf16(k, one, HIDDEN), sum, BF16);
}

void check_embedding(Check *k)
{
    check_slices(k);
    check_many(k);
    for (int percent : {100, 99, 90})
        check_frequent(k, percent);
    check_wide(k);
    enum { TOKENS = 1000, ROWS = 50, HIDDEN = 2064 }; /* two blocks of columns */
    const Floats table = random_bf16(ROWS * HIDDEN, 61, 1), dx = random_bf16(TOKENS * HIDDEN, 62, 1);
    const Floats before = random_floats(ROWS * HIDDEN, 63, 1);
    const std::vector<int32_t> token = random_ints(TOKENS, 64, ROWS - 1); /* the last row is never used */
    Doubles x(TOKENS * HIDDEN), dtable(before.begin(), before.end());
    for (size_t i = 0; i < x.size(); i++) {
        const size_t row = (size_t)token[i / HIDDEN] * HIDDEN + i % HIDDEN;
        x[i] = table[row];
        dtable[row] += dx[i];
    }
    int32_t *at = up(k, token);
    BurstBf16 *out = (BurstBf16 *)poisoned(k, x.size() * sizeof *out), *d = up_bf16(k, dx);
    MUST(k, burst_op_embed(k->g, TOKENS, HIDDEN, at, up_bf16(k, table), out));
    compare(k, "embed", down_bf16(k, out, x.size()), x, 0);
    float *first = up(k, before), *again = up(k, before);
    MUST(k, burst_op_embed_back(k->g, TOKENS, HIDDEN, at, d, first, NULL));
    MUST(k, burst_op_embed_back(k->g, TOKENS, HIDDEN, at, d, again, NULL));
    const Floats a = down(k, first, before.size()), b = down(k, again, before.size());
    compare(k, "embed_back", a, dtable, FP32);
    expect(k, "embed_back, same bits", memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
}
