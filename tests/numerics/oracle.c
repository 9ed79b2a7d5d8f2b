/* oracle.c: writes the right answers of attention under every test mask (format: expected.h).
 *
 *     numerics_oracle HEADS KV_HEADS HEAD_DIM TOKENS OUT     answers for one shape
 *     numerics_oracle --peaked HEADS KV_HEADS HEAD_DIM TOKENS OUT     those of peaked.c
 *     numerics_oracle --list     the masks as they stand in a model file, one a line
 */
#include "draws.h"
#include "expected.h"
#include "peaked.h"
#include "test_masks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLES = 3 };

/* ---- inputs ---- */

/* Table 0: documents of some tokens, in order; 1: documents of one to three tokens; 2: numbers in no order
 * at all, which no loader makes but a table may hold. */
static void fill_table(int table, int64_t n, int32_t *doc)
{
    int32_t now = 0;
    for (int64_t i = 0; i < n; i++) {
        double draw = uniform(100 + (uint64_t)table, (uint64_t)i);
        now += i > 0 && draw < (table == 0 ? 0.07 : 0.6);
        doc[i] = table == 2 ? (int32_t)(draw * 6) : now;
    }
}

static int64_t in_count(const Expected *e, int in)
{
    return (in == IN_k || in == IN_v ? e->kv_heads : e->heads) * e->n * e->head_dim;
}

static int64_t out_count(const Expected *e, int out)
{
#define X(name, of_keys, vector) (of_keys ? e->kv_heads : e->heads) * e->n * (vector ? e->head_dim : 1),
    const int64_t count[] = {OUTPUTS(X)};
#undef X
    return count[out];
}

/* ---- the file, laid out in memory first ---- */

static uint64_t place(Expected *e, uint64_t bytes)
{
    uint64_t at = e->bytes;
    e->bytes += (bytes + 7) / 8 * 8;
    return at;
}

static int case_count(void)
{
    int count = 0;
    for (int m = 0; m < test_mask_count; m++)
        count += test_masks[m].documents ? TABLES : 1;
    return count;
}

static Expected layout(const int *shape)
{
    Expected e = {EXPECTED_MAGIC, shape[3],        shape[0], shape[1],
                  shape[2],       test_mask_count, TABLES,   case_count()};
    e.bytes = sizeof e;
    for (int i = 0; i < IN_COUNT; i++)
        e.in[i] = place(&e, (uint64_t)in_count(&e, i) * sizeof(float));
    e.table = place(&e, TABLES * (uint64_t)e.n * sizeof(int32_t));
    e.case_at = place(&e, (uint64_t)e.cases * sizeof(ExpectedCase));
    return e;
}

static void place_cases(Expected *e, ExpectedCase *c)
{
    for (int m = 0; m < test_mask_count; m++)
        for (int t = 0; t < (test_masks[m].documents ? TABLES : 1); t++, c++) {
            *c = (ExpectedCase){.mask = m, .table = t};
            for (int i = 0; i < OUT_COUNT; i++)
                c->out[i] = place(e, (uint64_t)out_count(e, i) * sizeof(double));
        }
}

static double *widened(const Expected *e, int in)
{
    const float *x = expected_at(e, e->in[in]);
    double *y = new64(in_count(e, in));
    for (int64_t i = 0; i < in_count(e, in); i++)
        y[i] = x[i];
    return y;
}

static double norm(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += isfinite(x[i]) ? x[i] * x[i] : 0;
    return sqrt(sum);
}

/* Errors are measured against the norm of the answer, but for an answer that cancels (one key a row makes
 * dQ and dK exactly zero) against 3 % of the norm of its terms' absolute values; lse, a logarithm, against
 * at least one a row. */
static void set_scales(const Expected *e, ExpectedCase *c, const Attention64 *a, const double *d_o)
{
    double *terms[OUT_COUNT];
    for (int i = 0; i < OUT_COUNT; i++)
        terms[i] = new64(out_count(e, i));
    attention64_magnitude(a, expected_at(e, c->out[OUT_o]), d_o, terms[OUT_o], terms[OUT_dq], terms[OUT_dk],
                          terms[OUT_dv]);
    for (int i = 0; i < OUT_COUNT; i++) {
        double least_scale = i == OUT_lse ? sqrt((double)out_count(e, i))
                                          : 0.03 * norm(terms[i], out_count(e, i));
        c->scale[i] = fmax(norm(expected_at(e, c->out[i]), out_count(e, i)), least_scale);
        free(terms[i]);
    }
}

/* A mask, asked once for each pair: every head needs it. */
typedef struct Pairs {
    int64_t n;
    bool *keep; /* [n][n] */
} Pairs;

static bool pairs_keep(int64_t q, int64_t k, const void *pairs)
{
    const Pairs *p = pairs;
    return p->keep[q * p->n + k];
}

static void fill_pairs(Pairs *p, const MaskView *view)
{
    for (int64_t q = 0; q < p->n; q++)
        for (int64_t k = 0; k < p->n; k++)
            p->keep[q * p->n + k] = mask_view_keep(q, k, view);
}

static void solve(Expected *e, double *const *in, double softcap)
{
    ExpectedCase *c = expected_at(e, e->case_at);
    Pairs pairs = {e->n, (bool *)new64((e->n * e->n + 7) / 8)};
    double *p = new64(e->heads * e->n * e->n), *lse = new64(e->heads * e->n);
    for (int i = 0; i < e->cases; i++, c++) {
        MaskView view = {&test_masks[c->mask], (const int32_t *)expected_at(e, e->table) + c->table * e->n};
        fill_pairs(&pairs, &view);
        Attention64 a = {e->n,     e->heads, e->kv_heads, e->head_dim, {pairs_keep, &pairs},
                         in[IN_q], in[IN_k], in[IN_v],    softcap};
        double *out[OUT_COUNT];
        for (int o = 0; o < OUT_COUNT; o++)
            out[o] = expected_at(e, c->out[o]);
        attention64_keep(&a, p, lse);
        attention64_forward(&a, out[OUT_o], out[OUT_lse]);
        attention64_backward(&a, out[OUT_o], in[IN_d_o], out[OUT_dq], out[OUT_dk], out[OUT_dv]);
        set_scales(e, c, &a, in[IN_d_o]);
    }
    free(pairs.keep), free(p), free(lse);
}

static Expected *make(const int *shape, double softcap)
{
    Expected head = layout(shape);
    uint64_t answers = 0;
    for (int i = 0; i < OUT_COUNT; i++)
        answers += (uint64_t)(out_count(&head, i) + 1) * sizeof(double);
    Expected *e = calloc(1, head.bytes + (uint64_t)head.cases * answers);
    if (!e)
        return NULL;
    *e = head;
    place_cases(e, expected_at(e, e->case_at));
    for (int i = 0; i < IN_COUNT; i++)
        for (int64_t j = 0; j < in_count(e, i); j++)
            ((float *)expected_at(e, e->in[i]))[j] = normal((uint64_t)i, (uint64_t)j);
    for (int t = 0; t < TABLES; t++)
        fill_table(t, e->n, (int32_t *)expected_at(e, e->table) + t * e->n);
    double *in[IN_COUNT];
    for (int i = 0; i < IN_COUNT; i++)
        in[i] = widened(e, i);
    solve(e, in, softcap);
    for (int i = 0; i < IN_COUNT; i++)
        free(in[i]);
    return e;
}

static int write_file(const Expected *e, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(e, 1, e->bytes, f) != e->bytes || fclose(f) != 0) {
        perror(path);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int m = 0; m < test_mask_count; m++)
            puts(test_masks[m].text);
        return 0;
    }
    int shape[4];
    bool peaked = argc == 7 && strcmp(argv[1], "--peaked") == 0;
    argc -= peaked, argv += peaked;
    const bool capped = argc == 8 && strcmp(argv[1], "--softcap") == 0;
    const double softcap = capped ? atof(argv[2]) : 0;
    argc -= 2 * capped, argv += 2 * capped;
    for (int i = 0; i < 4; i++)
        if (argc != 6 || (shape[i] = atoi(argv[i + 1])) < 1) {
            fprintf(stderr, "usage: numerics_oracle [--peaked | --softcap X] HEADS KV_HEADS HEAD_DIM TOKENS "
                            "OUT | --list\n");
            return 2;
        }
    Expected *e = peaked ? peaked_make(shape) : make(shape, softcap);
    int code = e ? write_file(e, argv[5]) : 3;
    free(e);
    return code;
}
