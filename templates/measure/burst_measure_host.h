/* burst_measure_host.h: the rates of one core of this machine, for `burstc probe` and `burstc bench`.
 *
 * The text that includes this (compiler/tools/measure.c) has the masks and has defined
 *   MEASURE_CASES(X)   X(head_dim, value_dim, mask, tokens, heads, kv_heads): a chunk attends to itself
 *   MEASURE_MACHINE    1: passes and copies as well
 *   MEASURE_SECONDS    processor time of the rounds
 *   MEASURE_EXPERT_FLOATS   of scratch for products of experts' matrices, a column of the model
 * Calls are timed in turn, round by round, as in a step, where each call finds the caches as the others left
 * them. Forward clears its sums, backward computes delta first. Times are processor times: other programs on
 * the core count only as far as they take caches and memory. For probe the best time counts, and the largest
 * spread is printed; for bench medians count. One figure a line, in seconds, bytes/s and FLOP/s, which
 * compiler/tools/measure.c reads. Product: for probe forward and both gradients of a small layer, for bench
 * 2048 x 2048 x 2048, the yardstick of docs/performance.md.
 */
#include "burst_measure_times.h"
#include "burst_step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef PLAN_SOFTCAP
#define PLAN_SOFTCAP 0
#endif

enum { MEASURE_ROUNDS = MEASURE_MACHINE ? 64 : 9, MEASURE_LEAST_ROUNDS = 3, MEASURE_DOCUMENTS = 7 };
/* The product's tokens, columns in and out; passes and norms have the same tokens. */
enum {
    MEASURE_N = MEASURE_MACHINE ? 256 : 2048,
    MEASURE_HIDDEN = MEASURE_MACHINE ? 512 : 2048,
    MEASURE_FFN = MEASURE_MACHINE ? 1536 : 2048
};
enum { MEASURE_HEAD_DIM = 64, MEASURE_COPY = 64 << 20 }; /* bytes: larger than the caches */
/* Of probe, experts of the product's tokens and columns in. */
enum { MEASURE_EXPERTS = 8, MEASURE_TOP = 2, MEASURE_WIDTH = 256, MEASURE_ROWS = MEASURE_N * MEASURE_TOP };
static const BurstExperts measure_layer = {
    .experts = MEASURE_EXPERTS, .top = MEASURE_TOP, .width = MEASURE_WIDTH, .scale = 1, .alpha = 1};

typedef struct MeasureCase {
    int d, e, tokens, heads, kv_heads;
    const BurstMask *mask;
} MeasureCase;
#define MEASURE_CASE(D, E, MASK, n, h, hk) {D, E, n, h, hk, &MASK},
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

typedef struct MeasureTimes {
    int n;
    double at[MEASURE_ROUNDS];
} MeasureTimes;
typedef struct MeasureAttention {
    BurstAttend attend;
    BurstChunk chunk;
    BurstTables tables;
    double pairs, tiles;
    MeasureTimes times[2];
} MeasureAttention;
typedef struct Measure {
    MeasureAttention attention[MEASURE_CASE_COUNT];
    float *floats; /* of the largest case; reused for each */
    float *x, *w, *dw;        /* of the product */
    float *gate_up, *y, *d_gate_up;
    float *scale, *d_scale, *rstd;
    /* gate and up, then down of all experts; gradients of the former; of rows: gate and up, what is between
     * and out */
    float *expert_w, *expert_dw, *rows_up, *rows_down, *rows_out, *scratch;
    int32_t *choice, *slot, *row, first[MEASURE_EXPERTS + 1];
    int64_t *position;
    char *from, *to;
    bool warm;
    MeasureTimes product, experts, passes, norms, copy;
} Measure;

/* Processor seconds of the process: the total of all threads, if products use several. */
static double measure_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The first round, which fills the caches, does not count. */
static void measure_add(const Measure *m, MeasureTimes *t, double start)
{
    const double took = measure_now() - start;
    if (m->warm)
        t->at[t->n++] = took;
}

static double measure_figure(MeasureTimes *t)
{
    return (MEASURE_MACHINE ? measure_best : measure_median)(t->n, t->at);
}

/* ---- products, passes and copies ---- */
static void measure_product(Measure *m)
{
    const double start = measure_now();
    burst_op_linear(NULL, MEASURE_N, MEASURE_HIDDEN, MEASURE_FFN, 1, m->x, m->w, NULL, m->y);
    if (MEASURE_MACHINE) {
        burst_op_linear_dx(NULL, MEASURE_N, MEASURE_HIDDEN, MEASURE_FFN, 1, m->gate_up, m->w, m->d_gate_up,
                           false);
        burst_op_linear_dw(NULL, MEASURE_N, MEASURE_HIDDEN, MEASURE_FFN, 1, m->gate_up, m->x, m->dw);
    }
    measure_add(m, &m->product, start);
}

/* Forward and both gradients of the two products of experts' matrices. */
static void measure_experts(Measure *m)
{
    const BurstExperts *of = &measure_layer;
    const float *down = m->expert_w + (int64_t)MEASURE_EXPERTS * 2 * MEASURE_WIDTH * MEASURE_HIDDEN;
    const int n = MEASURE_N, h = MEASURE_HIDDEN;
    const double start = measure_now();
    burst_op_experts_up(NULL, n, of, h, m->x, m->row, m->first, m->expert_w, m->rows_up, m->scratch);
    burst_op_experts_down(NULL, n, of, h, m->rows_down, m->first, down, m->rows_out);
    burst_op_experts_down_dw(NULL, n, of, h, m->x, m->rows_down, m->row, m->first, m->expert_dw, m->scratch);
    burst_op_experts_down_dx(NULL, n, of, h, m->x, m->row, m->first, down, m->rows_down, m->scratch);
    burst_op_experts_up_dw(NULL, n, of, h, m->rows_up, m->x, m->row, m->first, m->expert_dw, m->scratch);
    burst_op_experts_up_dx(NULL, n, of, h, m->rows_up, m->first, m->expert_w, m->rows_out);
    measure_add(m, &m->experts, start);
}

static const double measure_experts_flops = 18.0 * MEASURE_ROWS * MEASURE_WIDTH * MEASURE_HIDDEN;

/* Two experts a token, so that each is chosen by as many. */
static int measure_take_experts(BurstCtx *c, Measure *m)
{
    const int64_t matrix = (int64_t)MEASURE_WIDTH * MEASURE_HIDDEN, ints = MEASURE_ROWS * sizeof(int32_t);
    m->expert_w = measure_floats(3 * MEASURE_EXPERTS * matrix);
    m->expert_dw = measure_floats(2 * MEASURE_EXPERTS * matrix);
    m->rows_up = measure_floats((int64_t)MEASURE_ROWS * 2 * MEASURE_WIDTH);
    m->rows_down = measure_floats((int64_t)MEASURE_ROWS * MEASURE_WIDTH);
    m->rows_out = measure_floats((int64_t)MEASURE_ROWS * MEASURE_HIDDEN);
    m->scratch = measure_floats((int64_t)MEASURE_HIDDEN * MEASURE_EXPERT_FLOATS);
    m->choice = (int32_t *)malloc((size_t)ints);
    m->slot = (int32_t *)malloc((size_t)ints);
    m->row = (int32_t *)malloc((size_t)ints);
    if (!m->expert_w || !m->expert_dw || !m->rows_up || !m->rows_down || !m->rows_out || !m->scratch ||
        !m->choice || !m->slot || !m->row)
        return burst_fail(c, BURST_E_MEMORY, "no memory for experts");
    for (int i = 0; i < MEASURE_ROWS; i++)
        m->choice[i] = (i / 2 + 3 * (i % 2)) % MEASURE_EXPERTS;
    return burst_op_arrange(NULL, MEASURE_N, &measure_layer, m->choice, m->slot, m->row, m->first, NULL);
}

/* Bytes of rows of `hidden` and `ffn` floats read and written, as the step's operations count them. */
static const double measure_norm_bytes = 4.0 * MEASURE_N * 10 * MEASURE_HIDDEN,
                    measure_pass_bytes = 4.0 * MEASURE_N * 8 * MEASURE_FFN;

static void measure_passes(Measure *m)
{
    const double start = measure_now();
    burst_op_swiglu(NULL, MEASURE_N, MEASURE_FFN, m->gate_up, m->y);
    burst_op_swiglu_back(NULL, MEASURE_N, MEASURE_FFN, m->gate_up, m->y, m->d_gate_up);
    measure_add(m, &m->passes, start);
}

static void measure_norms(Measure *m)
{
    const int n = MEASURE_N, h = MEASURE_HIDDEN, d = MEASURE_HEAD_DIM;
    const BurstRope rope = {.theta = 5e5};
    const double start = measure_now();
    burst_op_rmsnorm(NULL, n, h, 1e-5, m->x, m->scale, m->y, m->rstd);
    burst_op_rope(NULL, n, h / d, d, &rope, m->position, m->y, m->d_gate_up);
    burst_op_rope_back(NULL, n, h / d, d, &rope, m->position, m->d_gate_up, m->y);
    burst_op_rmsnorm_back(NULL, n, h, m->x, m->rstd, m->y, m->scale, m->d_gate_up, true, m->d_scale, NULL);
    measure_add(m, &m->norms, start);
}

static void measure_copy(Measure *m)
{
    const double start = measure_now();
    memcpy(m->to, m->from, MEASURE_COPY);
    measure_add(m, &m->copy, start);
    m->from[0] = (char)(m->to[MEASURE_COPY - 1] + 1); /* so that the copy is not optimized away */
}

/* Products and passes use their floats in turn, as in a step. */
static int measure_take(BurstCtx *c, Measure *m)
{
    const int64_t rows = (int64_t)MEASURE_N * MEASURE_HIDDEN, wide = (int64_t)MEASURE_N * MEASURE_FFN,
                  weights = (int64_t)MEASURE_HIDDEN * MEASURE_FFN;
    const struct {
        float **at;
        int64_t count;
    } all[] = {{&m->x, rows},
               {&m->w, weights},
               {&m->dw, weights},
               {&m->gate_up, 2 * wide},
               {&m->y, wide},
               {&m->d_gate_up, 2 * wide},
               {&m->scale, MEASURE_HIDDEN},
               {&m->d_scale, MEASURE_HIDDEN},
               {&m->rstd, MEASURE_N}};
    bool taken = true;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        taken = taken && (*all[i].at = measure_floats(all[i].count));
    m->position = (int64_t *)malloc(MEASURE_N * sizeof *m->position);
    m->from = (char *)malloc(MEASURE_COPY);
    m->to = (char *)malloc(MEASURE_COPY);
    if (!taken || !m->position || !m->from || !m->to)
        return burst_fail(c, BURST_E_MEMORY, "no memory for a matrix product and a copy");
    for (int i = 0; i < MEASURE_N; i++)
        m->position[i] = i;
    if (MEASURE_MACHINE)
        memset(m->from, 1, MEASURE_COPY), memset(m->to, 2, MEASURE_COPY);
    return BURST_OK;
}

/* ---- attention ---- */

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

/* Lays out the arrays; floats NULL: only counts them. */
static int64_t measure_carve(BurstAttend *a, int64_t n, float *floats)
{
    const int64_t rows = a->q_heads * n, q = rows * a->head_dim, o = rows * a->value_dim,
                  key = a->kv_heads * n * a->head_dim, value = a->kv_heads * n * a->value_dim;
    const struct {
        const float **at;
        int64_t count;
    } in[] = {{&a->q, q}, {&a->k, key}, {&a->v, value}, {&a->d_o, o}};
    const struct {
        float **at;
        int64_t count;
    } out[] = {{&a->o, o},      {&a->dq, q},     {&a->dk, key},
               {&a->dv, value}, {&a->lse, rows}, {&a->lse_rest, rows}};
    float *at = floats;
    for (size_t i = 0; floats && i < sizeof in / sizeof in[0]; at += in[i++].count)
        *in[i].at = at;
    for (size_t i = 0; floats && i < sizeof out / sizeof out[0]; at += out[i++].count)
        *out[i].at = at;
    if (floats)
        a->delta = at, a->scratch = at + rows;
    return 2 * (q + o + key + value) + 3 * rows +
           burst_attend_scratch(a->head_dim > a->value_dim ? a->head_dim : a->value_dim);
}

static int measure_prepare(BurstCtx *c, const MeasureCase *k, MeasureAttention *x)
{
    const int64_t n = k->tokens;
    int64_t *position = (int64_t *)malloc((size_t)n * sizeof *position);
    BurstSide *side = (BurstSide *)malloc((size_t)(n / BURST_TILE + 1) * sizeof *side);
    int32_t *document = measure_documents(n);
    if (!position || !side || !document)
        return burst_fail(c, BURST_E_MEMORY, "no memory for %lld tokens", (long long)n);
    for (int64_t t = 0; t < n; t++)
        position[t] = t;
    x->tables = (BurstTables){.table = {document, document, document, document}};
    burst_sides(position, n, &x->tables, BURST_MAX_TABLES, side);
    x->chunk = (BurstChunk){n, position, side, (int)((n + BURST_TILE - 1) / BURST_TILE)};
    x->attend = (BurstAttend){.head_dim = k->d,
                              .value_dim = k->e,
                              .q_heads = k->heads,
                              .kv_heads = k->kv_heads,
                              .group = k->heads / k->kv_heads,
                              .scale = (float)(1 / sqrt(k->d)),
                              .softcap = PLAN_SOFTCAP,
                              .mask = k->mask,
                              .tables = &x->tables,
                              .qc = &x->chunk,
                              .kc = &x->chunk};
    x->pairs = measure_pairs(k, &x->tables, position);
    x->tiles = measure_tiles(k, &x->chunk);
    return BURST_OK;
}

/* All cases reuse the same floats. */
static int measure_attentions(BurstCtx *c, Measure *m)
{
    int64_t most = 0;
    for (int i = 0; i < MEASURE_CASE_COUNT; i++) {
        MeasureAttention *x = &m->attention[i];
        BURST_TRY(measure_prepare(c, &measure_cases[i], x));
        const int64_t floats = measure_carve(&x->attend, x->chunk.tokens, NULL);
        most = floats > most ? floats : most;
    }
    m->floats = measure_floats(most);
    if (!m->floats)
        return burst_fail(c, BURST_E_MEMORY, "no memory for attention: %.2f GiB",
                          4.0 * (double)most / (1 << 30));
    for (int i = 0; i < MEASURE_CASE_COUNT; i++)
        measure_carve(&m->attention[i].attend, m->attention[i].chunk.tokens, m->floats);
    return BURST_OK;
}

static void measure_attention(Measure *m, MeasureAttention *x)
{
    const BurstAttend *a = &x->attend;
    const int64_t rows = a->q_heads * x->chunk.tokens, keys = a->kv_heads * x->chunk.tokens;
    double start = measure_now();
    burst_attend_start(a);
    burst_attend_forward(a);
    measure_add(m, &x->times[0], start);
    start = measure_now();
    memset(a->dq, 0, (size_t)(rows * a->head_dim) * sizeof *a->dq);
    memset(a->dk, 0, (size_t)(keys * a->head_dim) * sizeof *a->dk);
    memset(a->dv, 0, (size_t)(keys * a->value_dim) * sizeof *a->dv);
    burst_attend_delta(rows, a->value_dim, a->o, a->d_o, (float *)a->delta);
    burst_attend_backward(a);
    measure_add(m, &x->times[1], start);
}

/* ---- rounds ---- */
static void measure_round(Measure *m)
{
    if (MEASURE_MACHINE || m->product.n < MEASURE_LEAST_ROUNDS)
        measure_product(m);
    for (int i = 0; i < MEASURE_CASE_COUNT; i++)
        measure_attention(m, &m->attention[i]);
    if (!MEASURE_MACHINE)
        return;
    measure_experts(m);
    measure_passes(m);
    measure_norms(m);
    measure_copy(m);
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
    printf("burst-measure 1\ngpus 1\ndevice %.0f %s\n",
           (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE), name);
}

/* Prints attention NUMBER PAIRS, then for both directions seconds, tiles, and no cycles. */
static void measure_print(Measure *m)
{
    printf("product %.6g\n", 2.0 * (MEASURE_MACHINE ? 3 : 1) * MEASURE_N * MEASURE_HIDDEN * MEASURE_FFN /
                                 measure_figure(&m->product));
    for (int i = 0; i < MEASURE_CASE_COUNT; i++) {
        MeasureAttention *x = &m->attention[i];
        printf("attention %d %.0f %.9g %.0f 0 %.9g %.0f 0\n", i, x->pairs, measure_figure(&x->times[0]),
               x->tiles, measure_figure(&x->times[1]), x->tiles);
    }
}

static void measure_print_machine(Measure *m)
{
    double spread = measure_spread(m->product.n, m->product.at);
    MeasureTimes *other[] = {&m->experts, &m->passes, &m->norms, &m->copy};
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        spread = fmax(spread, measure_spread(other[i]->n, other[i]->at));
    for (int i = 0; i < 2 * MEASURE_CASE_COUNT; i++) {
        MeasureTimes *t = &m->attention[i / 2].times[i % 2];
        spread = fmax(spread, measure_spread(t->n, t->at));
    }
    printf("passes %.6g\nnorms %.6g\ncopy %.6g\nexperts %.6g\nspread %.6g\n",
           measure_pass_bytes / measure_figure(&m->passes), measure_norm_bytes / measure_figure(&m->norms),
           2.0 * MEASURE_COPY / measure_figure(&m->copy), measure_experts_flops / measure_figure(&m->experts),
           spread);
}

static int measure_body(BurstCtx *c, const BurstPlan *p, void *argument)
{
    static Measure m;
    (void)p, (void)argument;
    measure_device();
    BURST_TRY(measure_take(c, &m));
    if (MEASURE_MACHINE)
        BURST_TRY(measure_take_experts(c, &m));
    BURST_TRY(measure_attentions(c, &m));
    measure_round(&m);
    m.warm = true;
    const double begin = measure_now();
    for (int i = 0;
         i < MEASURE_ROUNDS && (i < MEASURE_LEAST_ROUNDS || measure_now() - begin < (double)MEASURE_SECONDS);
         i++)
        measure_round(&m);
    measure_print(&m);
    if (MEASURE_MACHINE)
        measure_print_machine(&m);
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
