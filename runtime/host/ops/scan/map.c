/* host/ops/scan/map.c: pieces of a recurrent layer's sequence as maps of its state, and the chain of them.
 * M is found as the state that identity becomes where nothing is written. */
#include "host/ops/scan/chunk.h"
#include "burst_step.h"

/* A piece's map in an array of them, and a head's E and M in it. */
static float *map_at(const BurstScan *s, float *maps, int64_t piece)
{
    return maps + piece * burst_scan_map(s);
}
static int64_t e_at(const BurstScan *s, int head) { return (int64_t)head * s->key_dim * s->value_dim; }
static int64_t m_at(const BurstScan *s, int head)
{
    return burst_scan_state(s) + (int64_t)head * s->key_dim * (s->read ? s->key_dim : 1);
}

/* E = 0, M = identity. */
static void load_identity(Chunk *c)
{
    const int wide = chunk_wide(c);
    memset(c->state, 0, (size_t)(c->s->key_dim * wide) * sizeof *c->state);
    for (int i = 0; i < c->s->key_dim; i++)
        c->state[i * wide + c->s->value_dim + i] = 1;
}

/* M is transposed in backward; whole: the decay of the whole piece. */
static void store_map(const Chunk *c, int head, bool transposed, float whole, float *map)
{
    const BurstScan *s = c->s;
    const int key = s->key_dim, value = s->value_dim, wide = chunk_wide(c);
    float *e = map + e_at(s, head), *m = map + m_at(s, head);
    for (int i = 0; i < key; i++) {
        memcpy(e + i * value, c->state + i * wide, (size_t)value * sizeof *e);
        for (int j = 0; s->read && j < key; j++)
            m[transposed ? j * key + i : i * key + j] = c->state[i * wide + value + j];
        if (!s->read)
            m[i] = whole;
    }
}

int burst_op_scan_map(BurstExec *e, int64_t n, const BurstScan *s, const BurstPieces *p, const int32_t *place,
                      const BurstAct *x, const float *beta, const float *decay, float *maps, void *scratch)
{
    const ScanRows r = {place, x, beta, decay};
    Chunk c = chunk_at(s, scratch);
    const int columns = s->read ? chunk_wide(&c) : s->value_dim;
    (void)e, (void)n;
    for (int at = 0; at < p->count * s->heads; at++) {
        const int piece = at / s->heads, head = at % s->heads;
        const int64_t end = p->first[piece + 1];
        float whole = 1;
        load_identity(&c);
        for (int64_t row = p->first[piece]; row < end; row += BURST_SCAN_CHUNK) {
            chunk_load(&c, &r, row, chunk_rows(row, end), head);
            chunk_advance(&c, columns);
            whole *= c.end;
        }
        store_map(&c, head, false, whole, map_at(s, maps, piece));
    }
    return BURST_OK;
}

int burst_op_scan_map_back(BurstExec *e, int64_t n, const BurstScan *s, const BurstPieces *p,
                           const int32_t *place, const BurstAct *x, const float *beta, const float *decay,
                           const BurstAct *d_o, float *maps, void *scratch)
{
    const ScanRows r = {place, x, beta, decay};
    Chunk c = chunk_at(s, scratch);
    const int columns = s->read ? chunk_wide(&c) : s->value_dim;
    (void)e, (void)n;
    for (int at = 0; at < p->count * s->heads; at++) {
        const int piece = at / s->heads, head = at % s->heads;
        const int64_t first = p->first[piece], end = p->first[piece + 1];
        float whole = 1;
        load_identity(&c);
        for (int64_t i = chunks_of(end - first) - 1; i >= 0; i--) {
            const int64_t row = first + i * BURST_SCAN_CHUNK;
            chunk_load(&c, &r, row, chunk_rows(row, end), head);
            chunk_load_gradient(&c, d_o, row, head);
            chunk_retreat(&c, columns);
            whole *= c.end;
        }
        store_map(&c, head, true, whole, map_at(s, maps, piece));
    }
    return BURST_OK;
}

/* A head's state becomes E + M state, or E + M^T state. A piece with a document's first token has M = 0 and
 * takes nothing from before it, not even what is not a number. */
static void apply(const BurstScan *s, const float *map, bool transposed, int head, float *state,
                  float *scratch)
{
    const int key = s->key_dim, value = s->value_dim;
    const float *m = map + m_at(s, head);
    bool zero = true;
    for (int i = 0; i < key * (s->read ? key : 1) && zero; i++)
        zero = m[i] == 0;
    memcpy(scratch, map + e_at(s, head), (size_t)(key * value) * sizeof *scratch);
    if (!zero && s->read)
        scan_product(key, value, key, 1, (ScanMatrix){m, key, transposed}, (ScanMatrix){state, value, 0}, 1,
                     scratch, value);
    for (int i = 0; i < key * value && !zero && !s->read; i++)
        scratch[i] += m[i / value] * state[i];
    memcpy(state, scratch, (size_t)(key * value) * sizeof *scratch);
}

/* The state of piece `from` or, where that is none, 0, taken along the pieces [begin, end) in order, or in
 * reverse in backward. */
static void chain(const BurstScan *s, const BurstFold *f, const float *maps, bool back, int begin, int end,
                  const float *from, float *to, float *scratch)
{
    const size_t state = (size_t)burst_scan_state(s) * sizeof *to;
    if (from)
        memcpy(to, from, state);
    else
        memset(to, 0, state);
    for (int i = 0; i < end - begin; i++) {
        const float *map = maps + f->slot[back ? end - 1 - i : begin + i] * burst_scan_map(s);
        for (int head = 0; head < s->heads; head++)
            apply(s, map, back, head, to + e_at(s, head), scratch);
    }
}

int burst_op_scan_fold(BurstExec *e, const BurstScan *s, const BurstFold *f, const float *maps, float *before,
                       void *scratch)
{
    const int64_t state = burst_scan_state(s);
    (void)e;
    for (int i = 0; i < f->pieces; i++)
        chain(s, f, maps, false, i > 0 ? f->number[i - 1] : 0, f->number[i],
              i > 0 ? before + (i - 1) * state : NULL, before + i * state, scratch);
    return BURST_OK;
}

int burst_op_scan_fold_back(BurstExec *e, const BurstScan *s, const BurstFold *f, const float *maps,
                            float *d_after, void *scratch)
{
    const int64_t state = burst_scan_state(s);
    const int last = f->pieces - 1;
    (void)e;
    for (int i = last; i >= 0; i--)
        chain(s, f, maps, true, f->number[i] + 1, i < last ? f->number[i + 1] + 1 : f->total,
              i < last ? d_after + (i + 1) * state : NULL, d_after + i * state, scratch);
    return BURST_OK;
}
