/* test_attention.c: host attention against a dense float64 oracle, over masks, shapes, head groups and key
 * splits. */
#include "burst_rt.h"
#include "dot64.h"
#include "kernel_test.h"

#include <stdio.h>

/* ---- masks: a predicate for the oracle, and sound tile and row functions for the kernel ---- */
typedef bool (*Predicate)(int64_t q, int64_t k, const int32_t *doc);
enum { WINDOW = 37, DOCUMENT = 45 };

static bool full_keeps(int64_t q, int64_t k, const int32_t *doc) { return (void)q, (void)k, (void)doc, true; }
static bool causal_keeps(int64_t q, int64_t k, const int32_t *doc) { return (void)doc, k <= q; }
static bool window_keeps(int64_t q, int64_t k, const int32_t *doc)
{
    return (void)doc, k <= q && q - k < WINDOW;
}
static bool document_keeps(int64_t q, int64_t k, const int32_t *doc) { return k <= q && doc[q] == doc[k]; }
static bool random_keeps(int64_t q, int64_t k, const int32_t *doc)
{
    (void)doc;
    uint64_t h = (uint64_t)(q * 1000003 + k) * UINT64_C(0x9e3779b97f4a7c15);
    return (h >> 40) % 3 == 0;
}
/* Every third query sees nothing. */
static bool gaps_keeps(int64_t q, int64_t k, const int32_t *doc) { return (void)doc, q % 3 != 1 && k <= q; }
static bool alone_keeps(int64_t q, int64_t k, const int32_t *doc) { return (void)doc, k == q; }

static int full_tile(const BurstSide *q, const BurstSide *k) { return (void)q, (void)k, BURST_FULL; }
static int unknown_tile(const BurstSide *q, const BurstSide *k) { return (void)q, (void)k, BURST_PARTIAL; }
static int causal_tile(const BurstSide *q, const BurstSide *k)
{
    if (k->lo > q->hi)
        return BURST_EMPTY;
    return k->hi <= q->lo ? BURST_FULL : BURST_PARTIAL;
}
static int gaps_tile(const BurstSide *q, const BurstSide *k)
{
    return k->lo > q->hi ? BURST_EMPTY : BURST_PARTIAL;
}
static int window_tile(const BurstSide *q, const BurstSide *k)
{
    if (q->lo - k->hi >= WINDOW)
        return BURST_EMPTY;
    int causal = causal_tile(q, k);
    return causal == BURST_FULL && q->hi - k->lo >= WINDOW ? BURST_PARTIAL : causal;
}
static int document_tile(const BurstSide *q, const BurstSide *k)
{
    if (q->table_lo[0] > k->table_hi[0] || k->table_lo[0] > q->table_hi[0])
        return BURST_EMPTY;
    bool one = q->table_lo[0] == q->table_hi[0] && k->table_lo[0] == k->table_hi[0];
    int causal = causal_tile(q, k);
    return causal == BURST_FULL && !one ? BURST_PARTIAL : causal;
}

#define MASKS(X) \
    X(full, full_tile) X(causal, causal_tile) X(window, window_tile) X(document, document_tile) \
    X(random, unknown_tile) X(gaps, gaps_tile) X(alone, unknown_tile)
#define ROW(name, tile)                                                                                  \
    static void name##_row(int64_t q, const int64_t *k, int n, const BurstTables *t, uint8_t *keep)      \
    {                                                                                                    \
        for (int j = 0; j < n; j++)                                                                      \
            keep[j] = name##_keeps(q, k[j], t->table[0]);                                                \
    }
MASKS(ROW)
#define ENTRY(name, tile) {{#name, tile, name##_row}, name##_keeps},
static const struct { BurstMask mask; Predicate keeps; } masks[] = {MASKS(ENTRY)};
/* Of MASK_COUNT gradients are compared with float64; those of ALONE are 0. */
enum { FULL, CAUSAL, WINDOWED, DOCUMENTS, RANDOM, GAPS, ALONE, MASK_COUNT = ALONE };

/* ---- chunks ---- */
enum { MAX_POSITION = 1 << 20 };
static int32_t document_of[MAX_POSITION];
static const BurstTables tables = {{document_of}};

static int make_documents(void **state)
{
    (void)state;
    for (int i = 0; i < MAX_POSITION; i++)
        document_of[i] = i / DOCUMENT;
    return 0;
}

static BurstChunk make_chunk(int64_t tokens, int64_t first, int64_t stride)
{
    int tiles = (int)((tokens + BURST_TILE - 1) / BURST_TILE);
    int64_t *position = malloc((size_t)tokens * sizeof *position + 1);
    BurstSide *side = malloc((size_t)tiles * sizeof *side + 1);
    assert_non_null(position);
    assert_non_null(side);
    for (int64_t i = 0; i < tokens; i++)
        position[i] = first + i * stride;
    burst_sides(position, tokens, &tables, 1, side);
    return (BurstChunk){tokens, position, side, tiles};
}

static void free_chunk(BurstChunk *c)
{
    free((void *)c->position);
    free((void *)c->side);
}

/* ---- a case: queries of one chunk against several key chunks, with inputs, results and the oracle's
 * results ---- */
enum { MAX_SPLITS = 8 };
typedef struct Shape {
    int d, q_heads, kv_heads, q_head0, kv_head0, group;
    int mask;
    int64_t queries, keys; /* keys of each split */
    int splits;
    int64_t q_first, q_stride, k_first, k_stride, k_step; /* split i begins at k_first + i * k_step */
    float sharpen;         /* factor of the scale; 0 stands for 1 */
    float softcap;         /* of scores; 0: none */
    /* score of the first key, beside which the others' are about 0; 0: scores as they come */
    float sink;
    int e; /* elements of values and outputs; 0: d */
} Shape;
typedef struct Case {
    Shape shape;
    BurstChunk qc, kc[MAX_SPLITS];
    float *q, *d_o, *k[MAX_SPLITS], *v[MAX_SPLITS];
    float *o, *lse, *lse_rest, *delta, *dq, *dk[MAX_SPLITS], *dv[MAX_SPLITS], *scratch;
    double *want_o, *want_lse, *want_dq, *want_dk[MAX_SPLITS], *want_dv[MAX_SPLITS];
    /* sums of squares of the delta part of dQ, dK: what cancels where a row has one key */
    double dq_terms, dk_terms;
} Case;

static int64_t q_floats(const Shape *s) { return s->q_heads * s->queries * s->d; }
static int64_t k_floats(const Shape *s) { return s->kv_heads * s->keys * s->d; }
static int value_dim(const Shape *s) { return s->e ? s->e : s->d; }
static int64_t o_floats(const Shape *s) { return s->q_heads * s->queries * value_dim(s); }
static int64_t v_floats(const Shape *s) { return s->kv_heads * s->keys * value_dim(s); }

static void make_case(Case *c, const Shape *s)
{
    Random r = {(uint64_t)(s->d * 31 + s->queries * 7 + s->keys + s->mask)};
    *c = (Case){.shape = *s, .qc = make_chunk(s->queries, s->q_first, s->q_stride)};
    c->q = random_array(&r, q_floats(s));
    c->d_o = random_array(&r, o_floats(s));
    c->o = random_array(&r, o_floats(s)); /* what burst_attend_start must clear */
    c->lse = random_array(&r, s->q_heads * s->queries);
    c->lse_rest = random_array(&r, s->q_heads * s->queries);
    c->delta = zero_floats(s->q_heads * s->queries);
    c->dq = zero_floats(q_floats(s));
    c->scratch = random_array(&r, burst_attend_scratch(s->d > value_dim(s) ? s->d : value_dim(s)));
    c->want_o = zero_doubles(o_floats(s));
    c->want_lse = zero_doubles(s->q_heads * s->queries);
    c->want_dq = zero_doubles(q_floats(s));
    for (int i = 0; i < s->splits; i++) {
        c->kc[i] = make_chunk(s->keys, s->k_first + i * s->k_step, s->k_stride);
        c->k[i] = random_array(&r, k_floats(s));
        c->v[i] = random_array(&r, v_floats(s));
        c->dk[i] = zero_floats(k_floats(s));
        c->dv[i] = zero_floats(v_floats(s));
        c->want_dk[i] = zero_doubles(k_floats(s));
        c->want_dv[i] = zero_doubles(v_floats(s));
    }
}

/* Attention sinks: the first key has a score of s.sink in every row, and the others together weigh as much
 * by their values. dO has a mean, so that the sink's gradients do not cancel by chance. */
static void make_sink(Case *c)
{
    const Shape *s = &c->shape;
    for (int64_t i = 0; i < q_floats(s); i++)
        c->q[i] = i % s->d == 0 ? sqrtf((float)s->d) : 0.03f * c->q[i], c->d_o[i] += 1;
    for (int split = 0; split < s->splits; split++)
        for (int64_t i = 0; i < k_floats(s); i++) {
            bool first = split == 0 && i / s->d % s->keys == 0;
            if (first || i % s->d == 0)
                c->k[split][i] = first && i % s->d == 0 ? s->sink : 0;
            if (!first)
                c->v[split][i] = (1 + c->v[split][i]) * expf(s->sink) / (float)(s->splits * s->keys);
        }
}

static void free_case(Case *c)
{
    free_chunk(&c->qc);
    free(c->q), free(c->d_o), free(c->o), free(c->lse), free(c->lse_rest), free(c->delta), free(c->dq),
        free(c->scratch);
    free(c->want_o), free(c->want_lse), free(c->want_dq);
    for (int i = 0; i < c->shape.splits; i++) {
        free_chunk(&c->kc[i]);
        free(c->k[i]), free(c->v[i]), free(c->dk[i]), free(c->dv[i]), free(c->want_dk[i]),
            free(c->want_dv[i]);
    }
}

static float scale_of(const Shape *s)
{
    return (s->sharpen ? s->sharpen : 1) / sqrtf((float)s->d);
}

static BurstAttend attend_of(const Case *c, int split)
{
    const Shape *s = &c->shape;
    return (BurstAttend){.head_dim = s->d,
                         .value_dim = s->e,
                         .q_heads = s->q_heads,
                         .kv_heads = s->kv_heads,
                         .q_head0 = s->q_head0,
                         .kv_head0 = s->kv_head0,
                         .group = s->group,
                         .scale = scale_of(s),
                         .softcap = s->softcap,
                         .mask = &masks[s->mask].mask,
                         .tables = &tables,
                         .qc = &c->qc,
                         .kc = &c->kc[split],
                         .q = c->q,
                         .k = c->k[split],
                         .v = c->v[split],
                         .o = c->o,
                         .lse = c->lse,
                         .lse_rest = c->lse_rest,
                         .d_o = c->d_o,
                         .delta = c->delta,
                         .dq = c->dq,
                         .dk = c->dk[split],
                         .dv = c->dv[split],
                         .scratch = c->scratch};
}

static void run_forward(const Case *c)
{
    BurstAttend a = attend_of(c, 0);
    burst_attend_start(&a);
    for (int i = 0; i < c->shape.splits; i++) {
        a = attend_of(c, i);
        burst_attend_forward(&a);
    }
}

static void run_backward(const Case *c)
{
    burst_attend_delta(c->shape.q_heads * c->shape.queries, value_dim(&c->shape), c->o, c->d_o, c->delta);
    for (int i = 0; i < c->shape.splits; i++) {
        BurstAttend a = attend_of(c, i);
        burst_attend_backward(&a);
    }
}

/* ---- the oracle: one query row against all keys, two passes, float64 ---- */
static void add_scaled(int n, double *restrict y, double by, const float *restrict x)
{
    for (int i = 0; i < n; i++)
        y[i] += by * x[i];
}

/* A score, and by *slope what its cap multiplies gradients with. */
static double score_of(const Shape *s, const float *q, const float *k, double *slope)
{
    const double score = scale_of(s) * dot64_of_floats(s->d, q, k),
                 part = s->softcap ? tanh(score / s->softcap) : 0;
    *slope = 1 - part * part;
    return s->softcap ? s->softcap * part : score;
}

/* Probabilities of one row, [splits][keys]; returns its lse. */
static double row_probabilities(const Case *c, int h, int64_t i, int64_t kv, double *p)
{
    const Shape *s = &c->shape;
    double top = -INFINITY, sum = 0, slope;
    for (int64_t j = 0; j < s->splits * s->keys; j++) {
        int split = (int)(j / s->keys);
        int64_t key = j % s->keys;
        bool keep = masks[s->mask].keeps(c->qc.position[i], c->kc[split].position[key], document_of);
        const float *k = c->k[split] + (kv * s->keys + key) * s->d;
        p[j] = keep ? score_of(s, c->q + (h * s->queries + i) * s->d, k, &slope) : -INFINITY;
        top = fmax(top, p[j]);
    }
    for (int64_t j = 0; j < s->splits * s->keys; j++) {
        p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - top);
        sum += p[j];
    }
    for (int64_t j = 0; j < s->splits * s->keys && sum > 0; j++)
        p[j] /= sum;
    return sum > 0 ? top + log(sum) : -INFINITY;
}

/* p and d_p: of a row. Delta is their product: exactly d_p where the row has one key. */
static void oracle_row(Case *c, int h, int64_t i, double *p, double *d_p)
{
    const Shape *s = &c->shape;
    int64_t kv = (s->q_head0 + h) / s->group - s->kv_head0, row = h * s->queries + i;
    const int e = value_dim(s);
    const float *q = c->q + row * s->d, *d_o = c->d_o + row * e;
    double *o = c->want_o + row * e, delta = 0;
    c->want_lse[row] = row_probabilities(c, h, i, kv, p);
    for (int64_t j = 0; j < s->splits * s->keys; j++) {
        if (p[j] == 0)
            continue; /* would add zeros */
        const float *v = c->v[j / s->keys] + (kv * s->keys + j % s->keys) * e;
        add_scaled(e, o, p[j], v);
        d_p[j] = dot64_of_floats(e, d_o, v);
        delta += p[j] * d_p[j];
    }
    for (int64_t j = 0; j < s->splits * s->keys; j++) {
        const int64_t split = j / s->keys, key = kv * s->keys + j % s->keys, at = key * s->d;
        if (p[j] == 0)
            continue;
        const float *k = c->k[split] + at;
        double slope;
        score_of(s, q, k, &slope);
        double ds = p[j] * (d_p[j] - delta) * scale_of(s) * slope;
        add_scaled(e, c->want_dv[split] + key * e, p[j], d_o);
        add_scaled(s->d, c->want_dk[split] + at, ds, q);
        add_scaled(s->d, c->want_dq + row * s->d, ds, k);
        c->dq_terms += pow(p[j] * delta * scale_of(s), 2) * dot64_of_floats(s->d, k, k);
        c->dk_terms += pow(p[j] * delta * scale_of(s), 2) * dot64_of_floats(s->d, q, q);
    }
}

static void run_oracle(Case *c)
{
    const int64_t keys = c->shape.splits * c->shape.keys;
    double *p = zero_doubles(2 * keys);
    for (int h = 0; h < c->shape.q_heads; h++)
        for (int64_t i = 0; i < c->shape.queries; i++)
            oracle_row(c, h, i, p, p + keys);
    free(p);
}

/* Rows without a key are exact; lse of the others is compared as numbers. */
static void check_lse(const Case *c, double tolerance)
{
    const Shape *s = &c->shape;
    for (int64_t row = 0; row < s->q_heads * s->queries; row++) {
        if (c->want_lse[row] != -INFINITY) {
            if (!(fabs(c->lse[row] - c->want_lse[row]) <= tolerance * fmax(1, fabs(c->want_lse[row]))))
                fail_msg("lse of row %d: %g, not %g", (int)row, c->lse[row], c->want_lse[row]);
            continue;
        }
        assert_true(c->lse[row] == -INFINITY);
        for (int t = 0; t < value_dim(s); t++)
            assert_true(c->o[row * value_dim(s) + t] == 0);
        for (int t = 0; t < s->d; t++)
            assert_true(c->dq[row * s->d + t] == 0);
    }
}

static void check_case(const Shape *s, double tolerance)
{
    Case c;
    make_case(&c, s);
    if (s->sink)
        make_sink(&c);
    run_oracle(&c);
    run_forward(&c);
    run_backward(&c);
    check_lse(&c, tolerance);
    assert_close(o_floats(s), c.o, c.want_o, tolerance);
    assert_close_terms(q_floats(s), c.dq, c.want_dq, sqrt(c.dq_terms), tolerance);
    for (int i = 0; i < s->splits; i++) {
        /* judged by itself: its gradients are e^17 times the others' */
        int64_t sink = s->sink && i == 0 ? s->d : 0;
        assert_close(sink, c.dk[i], c.want_dk[i], tolerance);
        assert_close(sink, c.dv[i], c.want_dv[i], tolerance);
        assert_close_terms(k_floats(s) - sink, c.dk[i] + sink, c.want_dk[i] + sink, sqrt(c.dk_terms),
                           tolerance);
        assert_close(v_floats(s) - sink, c.dv[i] + sink, c.want_dv[i] + sink, tolerance);
    }
    free_case(&c);
}

/* ---- tests ---- */
static const int dims[] = {8, 20, 32, 64, 96, 128};
static const int64_t lengths[] = {0, 1, 63, 64, 65, 129, 200};
enum { DIMS = sizeof dims / sizeof *dims, LENGTHS = sizeof lengths / sizeof *lengths };

/* One pair of chunks, queries one chunk later than some of the keys. A single row's error is one draw of
 * what many rows average: it may be twice theirs. */
static void pairs_of_all_lengths(void **state)
{
    (void)state;
    int turn = 0;
    for (int i = 0; i < LENGTHS; i++)
        for (int j = 0; j < LENGTHS; j++)
            for (int d = 0; d < DIMS; d++) {
                Shape s = {.d = dims[d],
                           .q_heads = 1,
                           .kv_heads = 1,
                           .group = 1,
                           .mask = turn++ % MASK_COUNT,
                           .queries = lengths[i],
                           .keys = lengths[j],
                           .splits = 1,
                           .q_first = 20,
                           .q_stride = 1,
                           .k_stride = 1};
                check_case(&s, s.queries == 1 ? 2e-6 : 1e-6);
            }
}

static void every_mask_and_dim(void **state)
{
    (void)state;
    for (int m = 0; m < MASK_COUNT; m++)
        for (int d = 0; d < DIMS; d++) {
            Shape s = {.d = dims[d],
                       .q_heads = 2,
                       .kv_heads = 1,
                       .group = 2,
                       .mask = m,
                       .queries = 130,
                       .keys = 150,
                       .splits = 1,
                       .q_stride = 1,
                       .k_stride = 1};
            check_case(&s, 1e-6);
        }
}

/* Values narrower and wider than keys (multi-head latent attention), of one chunk and folded from several. */
static void values_of_other_widths(void **state)
{
    (void)state;
    static const int widths[][2] = {{96, 64}, {192, 128}, {20, 10}, {64, 96}, {8, 33}, {128, 1}};
    for (int m = 0; m < MASK_COUNT; m++)
        for (int i = 0; i < (int)(sizeof widths / sizeof *widths); i++) {
            Shape s = {.d = widths[i][0],
                       .e = widths[i][1],
                       .q_heads = 4,
                       .kv_heads = 2,
                       .group = 2,
                       .mask = m,
                       .queries = 130,
                       .keys = 75,
                       .splits = 1 + i % 3,
                       .q_stride = 1,
                       .k_stride = 1,
                       .k_step = 75};
            check_case(&s, 1e-6);
        }
}

/* Rank 2 of a ring of 4, striped and contiguous; keys arrive own first, then from the ranks before. */
static void ring_order(void **state)
{
    (void)state;
    for (int m = 0; m < MASK_COUNT; m++) {
        Shape contiguous = {.d = 64,
                            .q_heads = 2,
                            .kv_heads = 2,
                            .group = 1,
                            .mask = m,
                            .queries = 100,
                            .keys = 100,
                            .splits = 3,
                            .q_first = 200,
                            .q_stride = 1,
                            .k_first = 200,
                            .k_stride = 1,
                            .k_step = -100};
        Shape striped = contiguous;
        striped.q_first = striped.k_first = 2;
        striped.q_stride = striped.k_stride = 4;
        striped.k_step = -1;
        check_case(&contiguous, 1e-5);
        check_case(&striped, 1e-5);
    }
}

static void eight_folds(void **state)
{
    (void)state;
    for (int m = 0; m < MASK_COUNT; m++) {
        Shape s = {.d = 128,
                   .q_heads = 1,
                   .kv_heads = 1,
                   .group = 1,
                   .mask = m,
                   .queries = 96,
                   .keys = 96,
                   .splits = 8,
                   .q_first = 7,
                   .q_stride = 8,
                   .k_first = 7,
                   .k_stride = 8,
                   .k_step = -1};
        check_case(&s, 1e-5);
    }
}

/* Heads of one rank need not begin or end where a group does. */
static void grouped_heads(void **state)
{
    (void)state;
    const struct { int group, q_heads, q_head0, kv_heads, kv_head0;
    } heads[] = {
        {1, 5, 0, 5, 0},  {4, 8, 0, 2, 0}, {8, 8, 0, 1, 0}, {4, 5, 3, 2, 0},
        {8, 7, 14, 2, 1}, {4, 3, 9, 1, 2}, {1, 3, 6, 4, 5},
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (int d = 16; d <= 64; d += 48) {
            Shape s = {.d = d,
                       .q_heads = heads[i].q_heads,
                       .kv_heads = heads[i].kv_heads,
                       .q_head0 = heads[i].q_head0,
                       .kv_head0 = heads[i].kv_head0,
                       .group = heads[i].group,
                       .mask = (int)i % MASK_COUNT,
                       .queries = 70,
                       .keys = 90,
                       .splits = 2,
                       .q_first = 60,
                       .q_stride = 1,
                       .k_stride = 1,
                       .k_step = 90};
            check_case(&s, 2e-6);
        }
}

/* Logits of several hundred: only the greatest keys count, and nothing overflows. */
static void sharp_softmax(void **state)
{
    (void)state;
    for (int m = 0; m < MASK_COUNT; m++) {
        Shape s = {.d = 64,
                   .q_heads = 1,
                   .kv_heads = 1,
                   .group = 1,
                   .mask = m,
                   .queries = 100,
                   .keys = 100,
                   .splits = 2,
                   .q_first = 100,
                   .q_stride = 1,
                   .k_stride = 1,
                   .k_step = 100,
                   .sharpen = 100};
        check_case(&s, 3e-4);
    }
}

/* Caps from where they cut nearly every score off to where they cut none, over two folds, with heads that
 * share keys. */
static void capped_scores(void **state)
{
    (void)state;
    const struct { float softcap, sharpen; } caps[] = {{0.5f, 1}, {2, 1}, {30, 1}, {50, 20}, {1000, 1}};
    for (int m = 0; m < MASK_COUNT; m++)
        for (size_t i = 0; i < sizeof caps / sizeof *caps; i++)
            for (int d = 0; d < DIMS; d++) {
                Shape s = {.d = dims[d],
                           .q_heads = 2,
                           .kv_heads = 1,
                           .group = 2,
                           .mask = m,
                           .queries = 70,
                           .keys = 90,
                           .splits = 2,
                           .q_first = 60,
                           .q_stride = 1,
                           .k_stride = 1,
                           .k_step = 90,
                           .softcap = caps[i].softcap,
                           .sharpen = caps[i].sharpen};
                check_case(&s, 3e-6 * fmax(1, caps[i].sharpen));
            }
}

/* Scores so far apart that the greatest is all: of any magnitude, it is found, and nothing overflows. */
static void huge_scores(void **state)
{
    (void)state;
    for (float scale = 1e5f; fabsf(scale) < 1e34f; scale *= -37) {
        Shape s = {.d = 8,
                   .q_heads = 1,
                   .kv_heads = 1,
                   .group = 1,
                   .mask = FULL,
                   .queries = 1,
                   .keys = 200,
                   .splits = 1,
                   .q_stride = 1,
                   .k_stride = 1};
        Case c;
        make_case(&c, &s);
        for (int64_t i = 0; i < k_floats(&s); i++) /* the greatest is key 199, or key 0 */
            c.k[0][i] = i % s.d == 0 ? (1 + (float)(i / s.d) / 200) * scale : 0;
        c.q[0] = 3;
        run_forward(&c);
        float *want = c.v[0] + (scale > 0 ? 199 * s.d : 0),
              score = 3 * c.k[0][scale > 0 ? 199 * s.d : 0] * scale_of(&s);
        for (int t = 0; t < s.d; t++)
            assert_true(fabsf(c.o[t] - want[t]) <= 1e-6f * fabsf(want[t]));
        assert_true(fabsf(c.lse[0] - score) <= 1e-6f * fabsf(score));
        free_case(&c);
    }
}

/* One high score among very many low ones: no sum over keys or queries loses what is small, at any length. */
static void peaked_rows(void **state)
{
    (void)state;
    const struct { int d, heads; int64_t queries, keys; int splits; } sizes[] = {
        {64, 1, 64, 1 << 10, 1}, {64, 1, 16, 1 << 16, 1}, {64, 1, 16, 1 << 13, 8}, {8, 1, 32, 1 << 18, 1},
        {64, 1, 1 << 16, 16, 1}, {64, 4, 1 << 14, 16, 1}, {8, 1, 1 << 18, 32, 1},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        Shape s = {.d = sizes[i].d,
                   .q_heads = sizes[i].heads,
                   .kv_heads = 1,
                   .group = sizes[i].heads,
                   .mask = FULL,
                   .queries = sizes[i].queries,
                   .keys = sizes[i].keys,
                   .splits = sizes[i].splits,
                   .q_stride = 1,
                   .k_stride = 1,
                   .k_step = sizes[i].keys,
                   .sink = 17};
        check_case(&s, 3e-6);
    }
}

/* ---- rows of one key ---- */

/* Where a row sees one key, dQ is exactly 0, and dK where all its rows do: of any length, over any number of
 * folds, under a cap, with scores of any size. */
static void rows_of_one_key(void **state)
{
    (void)state;
    const float sharpen[] = {1, 30, 1000};
    for (int d = 0; d < DIMS; d++)
        for (int variant = 0; variant < 6; variant++) {
            Shape s = {.d = dims[d],
                       .e = variant == 3 ? 33 : 0,
                       .q_heads = 4,
                       .kv_heads = 2,
                       .group = 2,
                       .mask = ALONE,
                       .queries = 130,
                       .keys = 65,
                       .splits = 3,
                       .q_first = 30,
                       .q_stride = 1,
                       .k_stride = 1,
                       .k_step = 65,
                       .softcap = variant == 4 ? 3 : 0,
                       .sharpen = sharpen[variant % 3]};
            Case c;
            make_case(&c, &s);
            run_forward(&c);
            run_backward(&c);
            run_oracle(&c);
            assert_close(o_floats(&s), c.o, c.want_o, 0);
            for (int64_t i = 0; i < q_floats(&s); i++)
                assert_true(c.dq[i] == 0);
            for (int i = 0; i < s.splits; i++)
                assert_close(v_floats(&s), c.dv[i], c.want_dv[i], 1e-6 * sharpen[variant % 3]);
            for (int i = 0; i < s.splits; i++)
                for (int64_t j = 0; j < k_floats(&s); j++)
                    assert_true(c.dk[i][j] == 0);
            free_case(&c);
        }
}

/* So are dQ of the first row of a causal mask and of each document's, and all of a chunk of one key. */
static void first_rows(void **state)
{
    (void)state;
    const int of[] = {CAUSAL, DOCUMENTS, FULL};
    for (int mask = 0; mask < 3; mask++) {
        Shape s = {.d = 20,
                   .q_heads = 2,
                   .kv_heads = 1,
                   .group = 2,
                   .mask = of[mask],
                   .queries = 200,
                   .keys = mask == 2 ? 1 : 200,
                   .splits = 1,
                   .q_stride = 1,
                   .k_stride = 1};
        Case c;
        make_case(&c, &s);
        run_forward(&c);
        run_backward(&c);
        for (int64_t i = 0; i < q_floats(&s); i++) {
            const int64_t row = i / s.d % s.queries;
            const bool first = mask == 2 || row == 0 || (mask == 1 && row % DOCUMENT == 0);
            assert_true((c.dq[i] == 0) == first);
        }
        free_case(&c);
    }
}

/* ---- what is not finite ---- */
/* Of which input a token is NaN, or so large that scores overflow: to +inf, or all scores of it to -inf. */
enum { IN_Q, IN_K, IN_V, IN_DO, KEY_ABOVE, KEY_BELOW, INPUTS };

static bool pair_seen(const Case *c, int64_t i, int64_t j)
{
    const int64_t split = j / c->shape.keys, key = j % c->shape.keys;
    return masks[c->shape.mask].keeps(c->qc.position[i], c->kc[split].position[key], document_of);
}

/* The token of an input; keys are counted over all splits. */
static void spoil(Case *c, int input, int64_t token)
{
    const Shape *s = &c->shape;
    const int e = value_dim(s);
    float *const key = c->k[token / s->keys] + token % s->keys * s->d;
    for (int t = 0; t < e && (input == IN_V || input == IN_DO); t++)
        *(input == IN_V ? c->v[token / s->keys] + token % s->keys * e + t : c->d_o + token * e + t) = NAN;
    for (int t = 0; t < s->d; t++) {
        if (input == IN_Q || input == IN_K)
            *(input == IN_Q ? c->q + token * s->d + t : key + t) = NAN;
        if (input >= KEY_ABOVE)
            key[t] = (t == 0) * (input == KEY_ABOVE ? 3e38f : -3e38f);
    }
}

/* Whether row i has what is not finite forward; and in its gradients. */
static bool row_spoilt(const Case *c, int input, int64_t token, int64_t i, bool gradient)
{
    const Shape *s = &c->shape;
    int64_t seen = 0;
    for (int64_t j = 0; j < s->splits * s->keys; j++)
        seen += pair_seen(c, i, j);
    if (input == IN_Q || input == IN_DO)
        return i == token && seen && (gradient || input == IN_Q);
    if (input == KEY_BELOW)
        return seen == 1 && pair_seen(c, i, token);
    return pair_seen(c, i, token);
}

/* Whether some of the gradient of key j is not finite: a spoilt row sees it. dV is P dO, which a value does
 * not reach. */
static bool key_spoilt(const Case *c, int input, int64_t token, int64_t j, bool value)
{
    for (int64_t i = 0; i < c->shape.queries; i++)
        if (pair_seen(c, i, j) && row_spoilt(c, input, token, i, true) && !(value && input == IN_V))
            return true;
    return false;
}

/* `spoilt`: no element is a number; else as in the case that nothing is wrong with, if that is to be. */
static void check_spoilt(bool spoilt, bool same, int n, const float *got, const float *want, const char *name,
                         int64_t token)
{
    double difference = 0, norm = 0;
    for (int t = 0; t < n; t++) {
        if (spoilt ? isfinite(got[t]) : !isfinite(got[t]))
            fail_msg("%s of %d: %g", name, (int)token, got[t]);
        difference += pow((double)got[t] - want[t], 2), norm += pow(want[t], 2);
    }
    if (!spoilt && same && !(sqrt(difference) <= 1e-5 * sqrt(norm) + 1e-6))
        fail_msg("%s of %d is %g off", name, (int)token, sqrt(difference));
}

static void check_rows(const Case *c, const Case *clean, int input, int64_t token)
{
    const Shape *s = &c->shape;
    const int e = value_dim(s);
    for (int64_t i = 0; i < s->queries; i++) {
        const bool spoilt = row_spoilt(c, input, token, i, false);
        const bool same = input < KEY_ABOVE || !pair_seen(c, i, token);
        check_spoilt(spoilt, same, e, c->o + i * e, clean->o + i * e, "o", i);
        assert_true(isnan(c->lse[i]) == (spoilt && input != IN_V));
        check_spoilt(row_spoilt(c, input, token, i, true), same, s->d, c->dq + i * s->d, clean->dq + i * s->d,
                     "dq", i);
    }
}

static void check_keys(const Case *c, const Case *clean, int input, int64_t token)
{
    const Shape *s = &c->shape;
    const int e = value_dim(s);
    for (int64_t j = 0; j < s->splits * s->keys; j++) {
        const int64_t split = j / s->keys, at = j % s->keys;
        check_spoilt(key_spoilt(c, input, token, j, false), input < KEY_ABOVE, s->d, c->dk[split] + at * s->d,
                     clean->dk[split] + at * s->d, "dk", j);
        check_spoilt(key_spoilt(c, input, token, j, true), input < KEY_ABOVE, e, c->dv[split] + at * e,
                     clean->dv[split] + at * e, "dv", j);
    }
}

/* What is not finite reaches the rows and gradients that exact arithmetic takes it to, and no other. */
static void check_not_finite(const Shape *s, int input, int64_t token)
{
    Case clean, c;
    make_case(&clean, s), make_case(&c, s);
    for (int64_t i = 0; i < q_floats(s); i += s->d) /* the same sign, so that all scores of a key overflow */
        clean.q[i] = c.q[i] = 10 + fabsf(c.q[i]);
    spoil(&c, input, token);
    run_forward(&clean), run_backward(&clean);
    run_forward(&c), run_backward(&c);
    check_rows(&c, &clean, input, token);
    check_keys(&c, &clean, input, token);
    free_case(&clean), free_case(&c);
}

static void not_finite(void **state)
{
    (void)state;
    const int all[] = {FULL, CAUSAL, DOCUMENTS, GAPS, ALONE, WINDOWED};
    for (int i = 0; i < (int)(sizeof all / sizeof *all) * INPUTS * 6; i++) {
        const int input = i % INPUTS, variant = i / INPUTS % 3;
        Shape s = {.d = variant ? 20 : 64,
                   .e = variant == 2 ? 33 : 0,
                   .q_heads = 1,
                   .kv_heads = 1,
                   .group = 1,
                   .mask = all[i / INPUTS / 6],
                   .queries = 140,
                   .keys = 70,
                   .splits = 2,
                   .q_stride = 1,
                   .k_stride = 1,
                   .k_step = 70,
                   .softcap = i / INPUTS / 3 % 2 && input < KEY_ABOVE ? 30 : 0};
        check_not_finite(&s, input, (i * 37) % 140);
    }
}

/* Outputs of which one is NaN merge to NaN, whichever it is; of which one saw no key, to the other. */
static void merged_outputs(void **state)
{
    (void)state;
    const float lse[] = {NAN, -INFINITY, 2};
    for (int in = 0; in < 3; in++)
        for (int own = 0; own < 3; own++) {
            float o_in[2] = {in ? 3 : NAN, 0.7f}, o[2] = {own ? 1 : NAN, 5}, rest_in = 0, rest = 0;
            float l_in = lse[in], l = lse[own];
            const bool none = in == 1 && own == 1, nan = in == 0 || own == 0;
            burst_attend_merge(1, 2, o_in, &l_in, &rest_in, o, &l, &rest);
            assert_true(isnan(l) == nan && (l == -INFINITY) == none);
            assert_true(isnan(o[0]) == nan);
            if (own == 1 && in == 2)
                assert_memory_equal(o, o_in, sizeof o);
        }
}

/* Keys of the future: the pair is empty and every bit of the state stays. */
static void empty_pairs_change_nothing(void **state)
{
    (void)state;
    Shape s = {.d = 32,
               .q_heads = 2,
               .kv_heads = 2,
               .group = 1,
               .mask = CAUSAL,
               .queries = 100,
               .keys = 100,
               .splits = 2,
               .q_stride = 1,
               .k_stride = 1,
               .k_step = 100};
    Case c;
    make_case(&c, &s);
    BurstAttend past = attend_of(&c, 0), future = attend_of(&c, 1);
    burst_attend_start(&past);
    burst_attend_forward(&past);
    float *o = copy_array(c.o, q_floats(&s)), *lse = copy_array(c.lse, s.q_heads * s.queries);
    burst_attend_forward(&future);
    assert_memory_equal(o, c.o, (size_t)q_floats(&s) * sizeof *o);
    assert_memory_equal(lse, c.lse, (size_t)(s.q_heads * s.queries) * sizeof *lse);
    burst_attend_backward(&future);
    for (int64_t i = 0; i < q_floats(&s); i++)
        assert_true(c.dq[i] == 0 && c.dk[1][i] == 0 && c.dv[1][i] == 0);
    free(o), free(lse);
    free_case(&c);
}

/* lse = -inf says that a row saw no key anywhere, whatever this pair's mask says. */
static void rows_without_lse_contribute_nothing(void **state)
{
    (void)state;
    Shape s = {.d = 32,
               .q_heads = 1,
               .kv_heads = 1,
               .group = 1,
               .mask = FULL,
               .queries = 70,
               .keys = 70,
               .splits = 1,
               .q_stride = 1,
               .k_stride = 1};
    Case c;
    make_case(&c, &s);
    run_forward(&c);
    for (int64_t i = 0; i < s.queries; i++)
        c.lse[i] = -INFINITY;
    run_backward(&c);
    for (int64_t i = 0; i < q_floats(&s); i++)
        assert_true(c.dq[i] == 0 && c.dk[0][i] == 0 && c.dv[0][i] == 0);
    free_case(&c);
}

static void gradients_are_added(void **state)
{
    (void)state;
    Shape s = {.d = 20,
               .q_heads = 2,
               .kv_heads = 1,
               .group = 2,
               .mask = CAUSAL,
               .queries = 80,
               .keys = 80,
               .splits = 1,
               .q_stride = 1,
               .k_stride = 1};
    Case c;
    make_case(&c, &s);
    run_oracle(&c);
    run_forward(&c);
    for (int64_t i = 0; i < q_floats(&s); i++)
        c.want_dq[i] += c.dq[i] = 1;
    for (int64_t i = 0; i < k_floats(&s); i++) {
        c.want_dk[0][i] += c.dk[0][i] = 2;
        c.want_dv[0][i] += c.dv[0][i] = 3;
    }
    run_backward(&c);
    assert_close(q_floats(&s), c.dq, c.want_dq, 1e-6);
    assert_close(k_floats(&s), c.dk[0], c.want_dk[0], 1e-6);
    assert_close(k_floats(&s), c.dv[0], c.want_dv[0], 1e-6);
    free_case(&c);
}

static void same_bits_again(void **state)
{
    (void)state;
    Shape s = {.d = 64,
               .q_heads = 6,
               .kv_heads = 2,
               .group = 3,
               .mask = RANDOM,
               .queries = 129,
               .keys = 129,
               .splits = 2,
               .q_stride = 1,
               .k_stride = 1,
               .k_step = 1};
    Case a, b;
    make_case(&a, &s);
    make_case(&b, &s);
    run_forward(&a), run_backward(&a);
    /* NaN: what was there plays no part */
    memset(b.scratch, 0xff, (size_t)burst_attend_scratch(s.d) * sizeof *b.scratch);
    run_forward(&b), run_backward(&b);
    assert_memory_equal(a.o, b.o, (size_t)q_floats(&s) * sizeof *a.o);
    assert_memory_equal(a.dq, b.dq, (size_t)q_floats(&s) * sizeof *a.dq);
    assert_memory_equal(a.dk[1], b.dk[1], (size_t)k_floats(&s) * sizeof *a.dk[1]);
    assert_memory_equal(a.dv[1], b.dv[1], (size_t)k_floats(&s) * sizeof *a.dv[1]);
    free_case(&a), free_case(&b);
}

static void delta_is_a_row_sum(void **state)
{
    (void)state;
    Random r = {5};
    for (int d = 1; d <= 40; d += 13) {
        float *o = random_array(&r, 7 * d), *d_o = random_array(&r, 7 * d), *delta = random_array(&r, 7);
        double want[7];
        for (int i = 0; i < 7; i++)
            want[i] = dot64_of_floats(d, o + i * d, d_o + i * d);
        burst_attend_delta(7, d, o, d_o, delta);
        assert_close(7, delta, want, 1e-7);
        free(o), free(d_o), free(delta);
    }
}

/* Bounds by brute force, on positions that neither begin nor end at a tile's extreme. */
static void sides_bound_their_tile(void **state)
{
    (void)state;
    enum { N = 150 };
    int64_t position[N];
    static int32_t second[MAX_POSITION];
    BurstSide side[3];
    for (int i = 0; i < N; i++)
        position[i] = i * 77 % 1009;
    for (int i = 0; i < MAX_POSITION; i++)
        second[i] = 50 - i * 31 % 101;
    BurstTables both = {{document_of, second}};
    burst_sides(position, N, &both, 2, side);
    for (int i = 0; i < N; i += BURST_TILE) {
        BurstSide want = {.lo = INT64_MAX,
                          .hi = INT64_MIN,
                          .table_lo = {INT32_MAX, INT32_MAX},
                          .table_hi = {INT32_MIN, INT32_MIN}};
        for (int j = i; j < N && j < i + BURST_TILE; j++) {
            int64_t p = position[j];
            want.lo = p < want.lo ? p : want.lo;
            want.hi = p > want.hi ? p : want.hi;
            for (int t = 0; t < 2; t++) {
                int32_t value = both.table[t][p];
                want.table_lo[t] = value < want.table_lo[t] ? value : want.table_lo[t];
                want.table_hi[t] = value > want.table_hi[t] ? value : want.table_hi[t];
            }
        }
        const BurstSide *got = &side[i / BURST_TILE];
        assert_int_equal(got->lo, want.lo);
        assert_int_equal(got->hi, want.hi);
        for (int t = 0; t < 2; t++) {
            assert_int_equal(got->table_lo[t], want.table_lo[t]);
            assert_int_equal(got->table_hi[t], want.table_hi[t]);
        }
    }
}

/* Sides of a tile's tokens before its widest gap and behind it, where that is wider than a tile. */
static int sides_of(const BurstChunk *c, int tile, BurstSide side[2])
{
    const int64_t begin = (int64_t)tile * BURST_TILE,
                  end = begin + BURST_TILE < c->tokens ? begin + BURST_TILE : c->tokens;
    int64_t cut = end;
    for (int64_t i = begin + 1; i < end; i++)
        if (c->position[i] - c->position[i - 1] >
            (cut < end ? c->position[cut] - c->position[cut - 1] : BURST_TILE))
            cut = i;
    side[0] = side[1] = c->side[tile];
    side[0].lo = c->position[begin], side[0].hi = c->position[cut - 1];
    if (cut < end)
        side[1].lo = c->position[cut], side[1].hi = c->position[end - 1];
    return 1 + (cut < end);
}

static bool tile_live(const BurstMask *m, const BurstChunk *q, int q_tile, const BurstChunk *k, int k_tile)
{
    BurstSide a[2], b[2];
    bool live = false;
    const int parts = sides_of(q, q_tile, a), others = sides_of(k, k_tile, b);
    for (int i = 0; i < parts; i++)
        for (int j = 0; j < others; j++)
            live |= m->tile(&a[i], &b[j]) != BURST_EMPTY;
    return live;
}

static bool any_tile_live(const BurstMask *m, const BurstChunk *q, const BurstChunk *k)
{
    bool live = false;
    for (int i = 0; i < q->tiles; i++)
        for (int j = 0; j < k->tiles; j++)
            live |= tile_live(m, q, i, k, j);
    return live;
}

/* Two distant pieces (as in zigzag), so that the bounds of the whole say nothing about what lies between. */
static BurstChunk make_pieces(Random *r)
{
    int64_t tokens = random_bits(r) % 400, stride = 1 + random_bits(r) % 3, first = random_bits(r) % 1200;
    int64_t piece = 1 + random_bits(r) % (3 * BURST_TILE), jump = random_bits(r) % 1200;
    BurstChunk c = make_chunk(tokens, first, stride);
    int64_t *position = (int64_t *)c.position;
    for (int64_t i = piece; i < tokens; i++)
        position[i] += jump;
    burst_sides(position, tokens, &tables, 1, (BurstSide *)c.side);
    return c;
}

static void live_pairs_are_those_with_a_live_tile(void **state)
{
    (void)state;
    Random r = {11};
    int seen[2] = {0};
    for (int i = 0; i < 6000; i++) {
        BurstChunk q = make_pieces(&r), k = make_pieces(&r);
        const BurstMask *m = &masks[i % MASK_COUNT].mask;
        bool want = any_tile_live(m, &q, &k);
        assert_int_equal(burst_pair_live(m, &q, &k), want);
        seen[want]++;
        free_chunk(&q), free_chunk(&k);
    }
    assert_true(seen[false] > 500 && seen[true] > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_of_all_lengths),
        cmocka_unit_test(every_mask_and_dim),
        cmocka_unit_test(values_of_other_widths),
        cmocka_unit_test(ring_order),
        cmocka_unit_test(eight_folds),
        cmocka_unit_test(grouped_heads),
        cmocka_unit_test(sharp_softmax),
        cmocka_unit_test(capped_scores),
        cmocka_unit_test(huge_scores),
        cmocka_unit_test(peaked_rows),
        cmocka_unit_test(rows_of_one_key),
        cmocka_unit_test(first_rows),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(merged_outputs),
        cmocka_unit_test(empty_pairs_change_nothing),
        cmocka_unit_test(rows_without_lse_contribute_nothing),
        cmocka_unit_test(gradients_are_added),
        cmocka_unit_test(same_bits_again),
        cmocka_unit_test(delta_is_a_row_sum),
        cmocka_unit_test(sides_bound_their_tile),
        cmocka_unit_test(live_pairs_are_those_with_a_live_tile),
    };
    return cmocka_run_group_tests(tests, make_documents, NULL);
}
