/* host/ops/scan/scan.c: a recurrent layer and its gradients, by heads, pieces and chunks. */
#include "host/ops/scan/chunk.h"
#include "burst_step.h"
#include "host/ops/vec.h"

/* A piece's state of a head, which may be missing. */
static const float *state_at(const BurstScan *s, const float *states, int piece, int head)
{
    return states ? states + ((int64_t)piece * s->heads + head) * s->key_dim * s->value_dim : NULL;
}

/* The state before a piece, which a document's first token does not need. */
static const float *state_before(const BurstScan *s, const BurstPieces *p, const int32_t *place,
                                 const float *before, int piece, int head)
{
    return place[p->first[piece]] ? state_at(s, before, piece, head) : NULL;
}

/* Between such an array and the chunk's wider rows. */
static void load_state(Chunk *c, const float *from)
{
    const int value = c->s->value_dim, wide = chunk_wide(c);
    for (int i = 0; i < c->s->key_dim; i++)
        for (int j = 0; j < value; j++)
            c->state[i * wide + j] = from ? from[i * value + j] : 0;
}

static void store_state(const Chunk *c, const float *to)
{
    const int value = c->s->value_dim, wide = chunk_wide(c);
    for (int i = 0; to && i < c->s->key_dim; i++)
        memcpy((float *)to + i * value, c->state + i * wide, (size_t)value * sizeof *to);
}

/* o = qt S + b written (+ skip v), with S before the chunk. */
static void output(const Chunk *c, const ScanRows *r, int64_t row, int head, const float *skip,
                   const float *before, float *o)
{
    const BurstScan *s = c->s;
    const int key = s->key_dim, value = s->value_dim, wide = chunk_wide(c), pitch = s->heads * value;
    float *to = o + row * pitch + head * value;
    scan_product(c->rows, value, key, 1, (ScanMatrix){c->qt, key, 0}, (ScanMatrix){before, value, 0}, 0, to,
                 pitch);
    scan_product(c->rows, value, c->rows, 1, (ScanMatrix){c->b, c->rows, 0},
                 (ScanMatrix){c->written, wide, 0}, 1, to, pitch);
    for (int i = 0; skip && i < c->rows; i++)
        for (int j = 0; j < value; j++)
            to[i * pitch + j] += skip[head] * r->x[(row + i) * s->columns + s->v + head * value + j];
}

int burst_op_scan(BurstExec *e, int64_t n, const BurstScan *s, const BurstPieces *p, const int32_t *place,
                  const BurstAct *x, const float *beta, const float *decay, const BurstAct *skip,
                  const float *before, BurstAct *o, float *after, void *scratch)
{
    const ScanRows r = {place, x, beta, decay};
    Chunk c = chunk_at(s, scratch);
    (void)e, (void)n;
    for (int at = 0; at < p->count * s->heads; at++) {
        const int piece = at / s->heads, head = at % s->heads;
        const int64_t end = p->first[piece + 1];
        load_state(&c, state_before(s, p, place, before, piece, head));
        for (int64_t row = p->first[piece]; row < end; row += BURST_SCAN_CHUNK) {
            store_state(&c, c.states);
            chunk_load(&c, &r, row, chunk_rows(row, end), head);
            chunk_advance(&c, s->value_dim);
            output(&c, &r, row, head, skip, c.states, o);
        }
        store_state(&c, state_at(s, after, piece, head));
    }
    return BURST_OK;
}

/* ---- gradients ---- */

static void scale_rows(int rows, int width, const float *by, float sign, float *x)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < width; j++)
            x[i * width + j] *= sign * by[i];
}

/* d_a and d_b, and the gradient of each token's decay by what stands before it and is read at it or later. */
static void gradients_of_pairs(Chunk *c)
{
    const int value = c->s->value_dim, wide = chunk_wide(c), rows = c->rows;
    const ScanMatrix written = {c->written, wide, 1};
    double below[BURST_SCAN_CHUNK] = {0}; /* a column's sum from this row on */
    scan_product(rows, rows, value, 1, (ScanMatrix){c->d_o, wide, 0}, written, 0, c->d_b, rows);
    scan_product(rows, rows, value, -1, (ScanMatrix){c->d_written, wide, 0}, written, 0, c->d_a, rows);
    for (int i = rows - 1; i >= 0; i--) {
        float *d_a = c->d_a + i * rows, *d_b = c->d_b + i * rows;
        c->pairs[i] = 0;
        for (int j = 0; j < rows; j++) {
            const int at = i * rows + j;
            below[j] += (double)(d_a[j] * c->a[at]) + (double)(d_b[j] * c->b[at]);
            c->pairs[i] += j < i ? below[j] : 0;
            d_b[j] *= c->between[at];
            d_a[j] *= i == j || !c->s->read ? 0 : c->between[at];
        }
    }
}

/* dq, dr, d_onto (of onto k by itself) and dk (of the rest). The state's gradient after the chunk is in
 * c->state. */
static void gradients_of_keys(Chunk *c, const float *before)
{
    const int key = c->s->key_dim, value = c->s->value_dim, wide = chunk_wide(c), rows = c->rows;
    const ScanMatrix k = {c->k, key, 0}, before_t = {before, value, 1};
    scan_product(rows, key, value, 1, (ScanMatrix){c->d_o, wide, 0}, before_t, 0, c->dq, key);
    scale_rows(rows, key, c->into, 1, c->dq);
    scan_product(rows, key, value, 1, (ScanMatrix){c->d_written, wide, 0}, before_t, 0, c->dr, key);
    scale_rows(rows, key, c->into, -1, c->dr);
    for (int i = 0; i < rows; i++) {
        const double read = c->s->read ? vec_dot(key, c->k + i * key, c->dr + i * key) : 0;
        c->entry[i] = vec_dot(key, c->q + i * key, c->dq + i * key) + (double)c->beta[i] * read;
    }
    scan_product(rows, key, rows, 1, (ScanMatrix){c->d_b, rows, 0}, k, 1, c->dq, key);
    scan_product(rows, key, rows, 1, (ScanMatrix){c->d_a, rows, 0}, k, 1, c->dr, key);
    scan_product(rows, key, value, 1, (ScanMatrix){c->written, wide, 0}, (ScanMatrix){c->state, wide, 1}, 0,
                 c->d_onto, key);
    scale_rows(rows, key, c->onto, 1, c->d_onto);
    scan_product(rows, key, rows, 1, (ScanMatrix){c->d_b, rows, 1}, (ScanMatrix){c->q, key, 0}, 0, c->dk,
                 key);
    scale_rows(rows, rows, c->beta, 1, c->d_a);
    scan_product(rows, key, rows, 1, (ScanMatrix){c->d_a, rows, 1}, k, 1, c->dk, key);
}

/* A token's decay acts between tokens, from the state before the chunk to later tokens, and from what is
 * earlier to the state after it. That of a document's first token acts on nothing. */
static void gradients_of_decays(const Chunk *c, int64_t row, int head, const float *before, float *d_decay)
{
    const int key = c->s->key_dim, value = c->s->value_dim, wide = chunk_wide(c);
    const bool whole = c->entered == c->rows;
    double later = 0, earlier = 0, sum[BURST_SCAN_CHUNK];
    for (int i = 0; i < key && whole; i++)
        earlier += (double)c->end * vec_dot(value, before + i * value, c->state + i * wide);
    for (int i = c->rows - 1; i >= 0; i--) {
        later += c->entry[i];
        sum[i] = c->pairs[i] + later;
    }
    for (int i = c->leaves; i < c->rows; i++) {
        sum[i] += i > c->leaves || whole ? earlier : 0;
        earlier += vec_dot(key, c->k + i * key, c->d_onto + i * key);
    }
    for (int i = 0; i < c->rows; i++)
        d_decay[(row + i) * c->s->heads + head] = (float)sum[i];
}

/* dv, d_beta, and the sums over heads of the gradients of what queries and keys became. */
static void gradients_of_rows(const Chunk *c, const ScanRows *r, int64_t row, int head, const float *skip,
                              float *dx, float *d_beta)
{
    const BurstScan *s = c->s;
    const int key = s->key_dim, value = s->value_dim, wide = chunk_wide(c);
    const int key_head = head / (s->heads / s->key_heads);
    for (int i = 0; i < c->rows; i++) {
        const float *v = r->x + (row + i) * s->columns + s->v + head * value, *d_u = c->d_written + i * wide;
        float *to = dx + (row + i) * s->columns, *dv = to + s->v + head * value;
        float *dq = to + s->q + key_head * key, *dk = to + s->k + key_head * key;
        double sum = vec_dot(value, v, d_u);
        for (int j = 0; j < value; j++)
            dv[j] = c->beta[i] * d_u[j] + (skip ? skip[head] * c->d_o[i * wide + j] : 0);
        for (int j = 0; j < key; j++) {
            const float read = s->read ? c->dr[i * key + j] : 0;
            sum += (double)read * (double)c->k[i * key + j];
            dq[j] += c->dq[i * key + j];
            dk[j] += c->dk[i * key + j] + c->d_onto[i * key + j] + c->beta[i] * read;
        }
        d_beta[(row + i) * s->heads + head] = (float)sum;
    }
}

/* The gradient of x from that of by x / |x|, in place. */
static void normalize_back(const BurstScan *s, const float *x, double by, float *d)
{
    const double square = s->normalize ? 1 / (vec_dot(s->key_dim, x, x) + BURST_SCAN_EPS) : 1;
    const float scale = (float)(by * sqrt(square)),
                along = s->normalize ? (float)(square * vec_dot(s->key_dim, x, d)) : 0;
    for (int i = 0; i < s->key_dim; i++)
        d[i] = scale * (d[i] - along * x[i]);
}

/* The states before each chunk of a piece; returns after the last, with that chunk loaded. */
static void forward_states(Chunk *c, const ScanRows *r, int64_t first, int64_t end, int head)
{
    const int64_t each = (int64_t)c->s->key_dim * c->s->value_dim;
    for (int64_t row = first, i = 0; row < end; row += BURST_SCAN_CHUNK, i++) {
        store_state(c, c->states + i * each);
        chunk_load(c, r, row, chunk_rows(row, end), head);
        chunk_advance(c, c->s->value_dim);
    }
}

/* One chunk, with the state's gradient after it in c->state, which becomes the one before it. */
static void chunk_back(Chunk *c, const ScanRows *r, int64_t row, int rows, int head, const float *before,
                       const float *skip, const float *d_o, float *kept, float *dx, float *d_beta,
                       float *d_decay)
{
    const size_t state = (size_t)(c->s->key_dim * chunk_wide(c)) * sizeof *kept;
    chunk_load(c, r, row, rows, head);
    chunk_load_gradient(c, d_o, row, head);
    memcpy(kept, c->state, state);
    load_state(c, before);
    chunk_advance(c, c->s->value_dim); /* written */
    memcpy(c->state, kept, state);
    chunk_retreat(c, c->s->value_dim); /* d_written */
    float *const before_chunk = c->state;
    c->state = kept;
    gradients_of_pairs(c);
    gradients_of_keys(c, before);
    gradients_of_decays(c, row, head, before, d_decay);
    gradients_of_rows(c, r, row, head, skip, dx, d_beta);
    c->state = before_chunk;
}

static void skip_back(const BurstScan *s, int64_t n, const float *x, const float *d_o, float *d_skip)
{
    for (int head = 0; head < s->heads; head++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += vec_dot(s->value_dim, x + i * s->columns + s->v + head * s->value_dim,
                           d_o + (i * s->heads + head) * s->value_dim);
        d_skip[head] += (float)sum;
    }
}

int burst_op_scan_back(BurstExec *e, int64_t n, const BurstScan *s, const BurstPieces *p,
                       const int32_t *place, const BurstAct *x, const float *beta, const float *decay,
                       const BurstAct *skip, const float *before, const BurstAct *d_o, const float *d_after,
                       BurstAct *dx, float *d_beta, float *d_decay, float *d_skip, float *d_before,
                       void *scratch)
{
    const ScanRows r = {place, x, beta, decay};
    const int64_t each = (int64_t)s->key_dim * s->value_dim;
    Chunk c = chunk_at(s, scratch);
    float *const kept = c.states; /* the state's gradient after a chunk */
    c.states += s->key_dim * chunk_wide(&c);
    (void)e;
    memset(dx, 0, (size_t)(n * s->columns) * sizeof *dx);
    for (int at = 0; at < p->count * s->heads; at++) {
        const int piece = at / s->heads, head = at % s->heads;
        const int64_t first = p->first[piece], end = p->first[piece + 1];
        load_state(&c, state_before(s, p, place, before, piece, head));
        forward_states(&c, &r, first, end, head);
        load_state(&c, state_at(s, d_after, piece, head));
        for (int64_t i = chunks_of(end - first) - 1; i >= 0; i--) {
            const int64_t row = first + i * BURST_SCAN_CHUNK;
            chunk_back(&c, &r, row, chunk_rows(row, end), head, c.states + i * each, skip, d_o, kept, dx,
                       d_beta, d_decay);
        }
        store_state(&c, state_at(s, d_before, piece, head));
    }
    if (skip)
        skip_back(s, n, x, d_o, d_skip);
    for (int64_t i = 0; i < n * s->key_heads; i++) {
        const int64_t q = i / s->key_heads * s->columns + s->q + i % s->key_heads * s->key_dim,
                      k = q - s->q + s->k;
        normalize_back(s, x + q, s->scale, dx + q);
        normalize_back(s, x + k, 1, dx + k);
    }
    return BURST_OK;
}
