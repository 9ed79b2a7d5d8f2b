/* burst_measure_host.h: what one core of this machine reaches, for `burstc bench`.
 *
 * The text that includes this (compiler/tools/measure.c) has the masks and has defined
 *   MEASURE_CASES(X)   X(head_dim, mask, tokens, heads, kv_heads): attention of one chunk with itself
 *   MEASURE_SECONDS    that the rounds take
 * The yardstick is cblas_sgemm of 2048 x 2048 x 2048 in the same run. Backward is without delta. Medians, printed one figure a line,
 * in seconds and FLOP/s, which compiler/tools/measure.c reads.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef PLAN_SOFTCAP
#define PLAN_SOFTCAP 0
#endif

enum { MEASURE_ROUNDS = 9, MEASURE_LEAST_ROUNDS = 3, MEASURE_PRODUCT = 2048, MEASURE_DOCUMENTS = 7, MEASURE_ROW_MAJOR = 101, MEASURE_NO_TRANS = 111 };
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                 float *c, int ldc);

typedef struct MeasureCase { int d, tokens, heads, kv_heads; const BurstMask *mask; } MeasureCase;
#define MEASURE_CASE(D, MASK, n, h, hk) {D, n, h, hk, &MASK},
static const MeasureCase measure_cases[] = {MEASURE_CASES(MEASURE_CASE)};
enum { MEASURE_CASE_COUNT = sizeof measure_cases / sizeof measure_cases[0] };

static float *measure_floats(int64_t n)
{
    float *x = (float *)aligned_alloc(64, ((size_t)n * sizeof *x + 63) / 64 * 64);
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; x && i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(state >> 40) / (1 << 23) - 1;
    }
    return x;
}

static int measure_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct MeasureTimes { int n; double at[MEASURE_ROUNDS]; } MeasureTimes;

static double measure_median(MeasureTimes *t)
{
    qsort(t->at, (size_t)t->n, sizeof *t->at, measure_by_size);
    return t->at[t->n / 2];
}

/* At least some rounds, and until so many seconds are over. */
static bool measure_more(const MeasureTimes *t, double begin)
{
    return t->n < MEASURE_LEAST_ROUNDS || (t->n < MEASURE_ROUNDS && burst_seconds() - begin < (double)MEASURE_SECONDS / MEASURE_CASE_COUNT);
}

static int measure_product(BurstCtx *c)
{
    const int n = MEASURE_PRODUCT;
    float *a = measure_floats((int64_t)n * n), *b = measure_floats((int64_t)n * n), *out = measure_floats((int64_t)n * n);
    MeasureTimes t = {0};
    if (!a || !b || !out)
        return burst_fail(c, BURST_E_MEMORY, "no memory for a matrix product");
    for (int i = 0; i <= MEASURE_LEAST_ROUNDS; i++) {
        const double start = burst_seconds();
        cblas_sgemm(MEASURE_ROW_MAJOR, MEASURE_NO_TRANS, MEASURE_NO_TRANS, n, n, n, 1, a, n, b, n, 0, out, n);
        if (i)
            t.at[t.n++] = burst_seconds() - start;
    }
    printf("product %.6g\n", 2.0 * n * n * n / measure_median(&t));
    free(a), free(b), free(out);
    return BURST_OK;
}

/* Positions, and the documents of tables: lengths in turn. */
static int32_t *measure_documents(int64_t n)
{
    static const int lengths[MEASURE_DOCUMENTS] = {1024, 128, 64, 1500, 375, 512, 493};
    int32_t *document = (int32_t *)malloc((size_t)n * sizeof *document);
    int number = 0, left = lengths[0];
    for (int64_t i = 0; document && i < n; i++) {
        document[i] = number;
        if (--left == 0)
            left = lengths[++number % MEASURE_DOCUMENTS];
    }
    return document;
}

static double measure_pairs(const MeasureCase *k, const BurstTables *tables, const int64_t *position)
{
    int64_t pairs = 0;
    uint8_t keep[BURST_TILE];
    for (int64_t q = 0; q < k->tokens; q++)
        for (int64_t first = 0; first < k->tokens; first += BURST_TILE) {
            const int n = (int)(k->tokens - first < BURST_TILE ? k->tokens - first : BURST_TILE);
            k->mask->row(q, position + first, n, tables, keep);
            for (int j = 0; j < n; j++)
                pairs += keep[j];
        }
    return (double)pairs;
}

static double measure_tiles(const MeasureCase *k, const BurstChunk *c)
{
    double tiles = 0;
    for (int q = 0; q < c->tiles; q++)
        for (int j = 0; j < c->tiles; j++)
            tiles += k->mask->tile(&c->side[q], &c->side[j]) != BURST_EMPTY;
    return tiles;
}

static double measure_direction(const BurstAttend *a, void (*run)(const BurstAttend *))
{
    MeasureTimes t = {0};
    for (const double begin = burst_seconds(); measure_more(&t, begin);) {
        if (run == burst_attend_forward)
            burst_attend_start(a);
        const double start = burst_seconds();
        run(a);
        t.at[t.n++] = burst_seconds() - start;
    }
    return measure_median(&t);
}

/* The floats of a case; NULL: no memory. */
static float *measure_take(BurstAttend *a, int64_t n)
{
    const int64_t q = a->q_heads * n * a->head_dim, kv = a->kv_heads * n * a->head_dim, rows = a->q_heads * n;
    float *all = measure_floats(4 * q + 4 * kv + 3 * rows + burst_attend_scratch(a->head_dim)), *at = all;
    const struct { const float **at; int64_t count; } in[] = {{&a->q, q}, {&a->k, kv}, {&a->v, kv}, {&a->d_o, q}, {&a->delta, rows}};
    const struct { float **at; int64_t count; } out[] = {{&a->o, q}, {&a->dq, q}, {&a->dk, kv}, {&a->dv, kv}, {&a->lse, rows}, {&a->lse_rest, rows}};
    for (size_t i = 0; all && i < sizeof in / sizeof in[0]; at += in[i++].count)
        *in[i].at = at;
    for (size_t i = 0; all && i < sizeof out / sizeof out[0]; at += out[i++].count)
        *out[i].at = at;
    a->scratch = at;
    return all;
}

/* attention NUMBER PAIRS, then of both directions seconds, tiles, and no cycles. */
static int measure_case(BurstCtx *c, int i)
{
    const MeasureCase *k = &measure_cases[i];
    const int64_t n = k->tokens;
    int64_t *position = (int64_t *)malloc((size_t)n * sizeof *position);
    BurstSide *side = (BurstSide *)malloc((size_t)(n / BURST_TILE + 1) * sizeof *side);
    int32_t *document = measure_documents(n);
    if (!position || !side || !document)
        return burst_fail(c, BURST_E_MEMORY, "no memory for %lld tokens", (long long)n);
    for (int64_t t = 0; t < n; t++)
        position[t] = t;
    const BurstTables tables = {{document, document, document, document}};
    burst_sides(position, n, &tables, BURST_MAX_TABLES, side);
    const BurstChunk chunk = {n, position, side, (int)((n + BURST_TILE - 1) / BURST_TILE)};
    BurstAttend a = {.head_dim = k->d, .q_heads = k->heads, .kv_heads = k->kv_heads, .group = k->heads / k->kv_heads,
                     .scale = (float)(1 / sqrt(k->d)), .softcap = PLAN_SOFTCAP, .mask = k->mask, .tables = &tables, .qc = &chunk, .kc = &chunk};
    float *all = measure_take(&a, n);
    if (!all)
        return burst_fail(c, BURST_E_MEMORY, "no memory for %d heads of %lld tokens", k->heads, (long long)n);
    const double forward = measure_direction(&a, burst_attend_forward), backward = measure_direction(&a, burst_attend_backward);
    const double tiles = measure_tiles(k, &chunk);
    printf("attention %d %.0f %.9g %.0f 0 %.9g %.0f 0\n", i, measure_pairs(k, &tables, position), forward, tiles, backward, tiles);
    free(all), free(position), free(side), free(document);
    return BURST_OK;
}

static void measure_device(void)
{
    char line[256], name[256] = "this machine's processor";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %255[^\n]", name) == 1)
            break;
    if (f)
        fclose(f);
    printf("burst-measure 1\ngpus 1\ndevice %.0f %s\n", (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE), name);
}

static int measure_body(BurstCtx *c, const BurstPlan *p, void *argument)
{
    (void)p, (void)argument;
    measure_device();
    BURST_TRY(measure_product(c));
    for (int i = 0; i < MEASURE_CASE_COUNT; i++)
        BURST_TRY(measure_case(c, i));
    printf("end\n");
    fflush(stdout);
    return BURST_OK;
}

int main(int argc, char **argv)
{
    BurstPlan p = {.abi = BURST_RT_ABI, .source = "burstc", .world = 1, .data = 1, .group = 1, .nodes = 1};
    p.arena_bytes = burst_weights_bytes(&p) + 4096;
    return burst_launch(&p, argc, argv, measure_body, NULL);
}
