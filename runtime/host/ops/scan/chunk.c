/* host/ops/scan/chunk.c: chunks of a recurrent layer; dense products by BLAS. */
#include "host/ops/scan/chunk.h"
#include "host/ops/vec.h"

#include <cblas.h>

Chunk chunk_at(const BurstScan *s, float *scratch)
{
    const int64_t rows = BURST_SCAN_CHUNK, wide = s->value_dim + s->key_dim;
    Chunk c = {.s = s};
    const struct {
        float **array;
        int64_t floats;
    } parts[] = {{&c.beta, rows},
                 {&c.into, rows},
                 {&c.onto, rows},
                 {&c.q, rows * s->key_dim},
                 {&c.k, rows * s->key_dim},
                 {&c.qt, rows * s->key_dim},
                 {&c.rt, rows * s->key_dim},
                 {&c.kh, rows * s->key_dim},
                 {&c.dq, rows * s->key_dim},
                 {&c.dr, rows * s->key_dim},
                 {&c.dk, rows * s->key_dim},
                 {&c.d_onto, rows * s->key_dim},
                 {&c.u, rows * wide},
                 {&c.written, rows * wide},
                 {&c.d_o, rows * wide},
                 {&c.d_written, rows * wide},
                 {&c.a, rows * rows},
                 {&c.b, rows * rows},
                 {&c.between, rows * rows},
                 {&c.d_a, rows * rows},
                 {&c.d_b, rows * rows},
                 {&c.state, s->key_dim * wide}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].array = scratch;
        scratch += parts[i].floats;
    }
    c.states = scratch;
    return c;
}

void scan_product(int m, int n, int k, float alpha, ScanMatrix a, ScanMatrix b, float beta, float *y,
                  int pitch)
{
    cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
                b.transposed ? CblasTrans : CblasNoTrans, m, n, k, alpha, a.at, a.pitch, b.at, b.pitch, beta,
                y, pitch);
}

/* Decays, from sums in double that restart at documents. */
static void load_decays(Chunk *c, const ScanRows *r, int64_t row, int head)
{
    const int heads = c->s->heads, rows = c->rows;
    double sum[BURST_SCAN_CHUNK], all = 0;
    int begin[BURST_SCAN_CHUNK]; /* of the token's document, in this chunk */
    c->entered = rows;
    c->leaves = 0;
    for (int i = 0; i < rows; i++) {
        if (r->place[row + i] == 0) {
            c->entered = c->entered < i ? c->entered : i;
            c->leaves = i;
            all = 0;
        }
        all += (double)r->decay[(row + i) * heads + head];
        sum[i] = all;
        begin[i] = c->leaves;
        for (int j = 0; j < rows; j++)
            c->between[i * rows + j] = j <= i && j >= begin[i] ? (float)exp(all - sum[j]) : 0;
    }
    for (int i = 0; i < rows; i++) {
        c->beta[i] = r->beta[(row + i) * heads + head];
        c->into[i] = i < c->entered ? (float)exp(sum[i]) : 0;
        c->onto[i] = i >= c->leaves ? (float)exp(all - sum[i]) : 0;
    }
    c->end = c->entered == rows ? (float)exp(all) : 0;
}

/* by * x, divided by x's length where the layer says so. */
static void load_row(const BurstScan *s, const float *x, double by, float *y)
{
    if (s->normalize)
        by /= sqrt(vec_dot(s->key_dim, x, x) + BURST_SCAN_EPS);
    for (int i = 0; i < s->key_dim; i++)
        y[i] = (float)by * x[i];
}

static void load_rows(Chunk *c, const ScanRows *r, int64_t row, int head)
{
    const BurstScan *s = c->s;
    const int key_head = head / (s->heads / s->key_heads), key = s->key_dim, wide = chunk_wide(c);
    for (int i = 0; i < c->rows; i++) {
        const float *x = r->x + (row + i) * s->columns, *v = x + s->v + head * s->value_dim;
        float *q = c->q + i * key, *k = c->k + i * key, *u = c->u + i * wide;
        load_row(s, x + s->q + key_head * key, s->scale, q);
        load_row(s, x + s->k + key_head * key, 1, k);
        for (int j = 0; j < key; j++) {
            c->qt[i * key + j] = c->into[i] * q[j];
            c->rt[i * key + j] = s->read ? c->into[i] * c->beta[i] * k[j] : 0;
            c->kh[i * key + j] = c->onto[i] * k[j];
            u[s->value_dim + j] = 0;
        }
        for (int j = 0; j < s->value_dim; j++)
            u[j] = c->beta[i] * v[j];
    }
}

void chunk_load(Chunk *c, const ScanRows *r, int64_t row, int rows, int head)
{
    const int key = c->s->key_dim;
    c->rows = rows;
    load_decays(c, r, row, head);
    load_rows(c, r, row, head);
    const ScanMatrix keys = {c->k, key, 1};
    scan_product(rows, rows, key, 1, (ScanMatrix){c->q, key, 0}, keys, 0, c->b, rows);
    scan_product(rows, rows, key, 1, (ScanMatrix){c->k, key, 0}, keys, 0, c->a, rows);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < rows; j++) {
            const float by = c->between[i * rows + j];
            c->b[i * rows + j] *= by;
            c->a[i * rows + j] *= c->s->read && i != j ? c->beta[i] * by : 0;
        }
}

void chunk_load_gradient(Chunk *c, const float *d_o, int64_t row, int head)
{
    const int value = c->s->value_dim, wide = chunk_wide(c);
    for (int i = 0; i < c->rows; i++) {
        memcpy(c->d_o + i * wide, d_o + ((row + i) * c->s->heads + head) * value,
               (size_t)value * sizeof *d_o);
        memset(c->d_o + i * wide + value, 0, (size_t)c->s->key_dim * sizeof *d_o);
    }
}

void chunk_advance(Chunk *c, int columns)
{
    const int key = c->s->key_dim, rows = c->rows, wide = chunk_wide(c);
    memcpy(c->written, c->u, (size_t)(rows * wide) * sizeof *c->u);
    if (c->s->read) {
        scan_product(rows, columns, key, -1, (ScanMatrix){c->rt, key, 0}, (ScanMatrix){c->state, wide, 0}, 1,
                     c->written, wide);
        cblas_strsm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, rows, columns, 1, c->a,
                    rows, c->written, wide);
    }
    scan_product(key, columns, rows, 1, (ScanMatrix){c->kh, key, 1}, (ScanMatrix){c->written, wide, 0},
                 c->end, c->state, wide);
}

void chunk_retreat(Chunk *c, int columns)
{
    const int key = c->s->key_dim, rows = c->rows, wide = chunk_wide(c);
    const ScanMatrix d_o = {c->d_o, wide, 0};
    scan_product(rows, columns, rows, 1, (ScanMatrix){c->b, rows, 1}, d_o, 0, c->d_written, wide);
    scan_product(rows, columns, key, 1, (ScanMatrix){c->kh, key, 0}, (ScanMatrix){c->state, wide, 0}, 1,
                 c->d_written, wide);
    scan_product(key, columns, rows, 1, (ScanMatrix){c->qt, key, 1}, d_o, c->end, c->state, wide);
    if (!c->s->read)
        return;
    cblas_strsm(CblasRowMajor, CblasLeft, CblasLower, CblasTrans, CblasUnit, rows, columns, 1, c->a, rows,
                c->d_written, wide);
    scan_product(key, columns, rows, -1, (ScanMatrix){c->rt, key, 1}, (ScanMatrix){c->d_written, wide, 0}, 1,
                 c->state, wide);
}
