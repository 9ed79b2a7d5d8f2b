/* mask/documents.c: counts masks that keep the pairs of a document whose distance q - k is in an interval, as
 * causal ones in documents do.
 *
 * A chunk is a list of spans in the order of its positions: its tiles, and its runs of tokens of one
 * document. The keys' spans that a span of queries sees in part or in full are then runs of that list, whose
 * ends only advance from one span of queries to the next. So a pair of chunks is counted exactly, in about as
 * many steps as it has spans. */
#include "mask/internal.h"

enum { LEAST_RUN = 64, MOST_CHUNKS = 1 << 12, SPAN_WORK = 4 };

/* ---- the mask ---- */

/* q - k + c < 0, or k - q + c < 0. */
static bool is_distance(const MaskNode *n, MaskWithin *w)
{
    const BurstForm *f = &n->affine;
    if (n->op != MN_AFFINE || f->lo != f->hi || f->a != -f->b || (f->a != 1 && f->a != -1))
        return false;
    if (f->a == 1)
        w->most = burst_min(w->most, burst_minus(-1, f->lo));
    else
        w->least = burst_max(w->least, burst_plus(f->lo, 1));
    return true;
}

static bool numbers_documents(const MaskNode *n)
{
    const BurstTableKind kind = n->documents ? n->documents->kind : BURST_TABLE_GIVEN;
    return kind == BURST_TABLE_DOC || kind == BURST_TABLE_FIRST || kind == BURST_TABLE_LAST;
}

static bool is_table(const MaskNode *n) { return n->op == MN_TABLE_Q || n->op == MN_TABLE_K; }

/* The same table of q and of k, less each other. */
static bool is_same_document(const MaskNode *n, MaskWithin *w)
{
    if (n->op != MN_SUB || !is_table(n->x) || !is_table(n->y) || n->x->op == n->y->op ||
        !numbers_documents(n->x) || n->x->documents != n->y->documents ||
        (w->documents && w->documents->begin != n->x->documents->begin))
        return false;
    w->documents = n->x->documents;
    return true;
}

static bool add_conditions(const MaskNode *n, MaskWithin *w)
{
    switch (n->op) {
    case MN_AND: return add_conditions(n->x, w) && add_conditions(n->y, w);
    case MN_NEGATIVE: return is_distance(n->x, w);
    case MN_ZERO: return is_same_document(n->x, w);
    default: return false;
    }
}

bool mask_is_within(const MaskNode *n, int64_t sequence, MaskWithin *w)
{
    *w = (MaskWithin){.least = -sequence, .most = sequence};
    if (sequence > INT32_MAX || !add_conditions(n, w) || !w->documents)
        return false;
    w->least = burst_min(w->least, sequence);
    w->most = burst_max(w->most, -sequence);
    return true;
}

/* ---- chunks as spans ---- */

static bool is_line(const Piece *p) { return p->count == 1 || p->run == 1; }

static int64_t stride_of(const Piece *p) { return p->run == 1 && p->count > 1 ? p->stride : 1; }

/* The distance of tokens in all runs of several; 0: pieces differ, are not in order, or have short runs. */
static int64_t common_stride(const PosSet *s)
{
    int64_t stride = 0;
    for (int i = 0; i < s->npieces; i++) {
        const Piece *p = &s->pieces[i];
        const bool alone = p->run * p->count == 1, first = !stride && !alone;
        stride = first ? stride_of(p) : stride;
        if ((i && p->start <= mask_piece_last(p - 1)) || (!alone && stride_of(p) != stride) ||
            (!is_line(p) && p->run < LEAST_RUN))
            return 0;
    }
    return stride ? stride : 1;
}

static void add_span(MaskChunks *c, int64_t lo, int64_t hi, int32_t first, int32_t last)
{
    c->span[c->spans++] = (MaskSpan){(int32_t)lo, (int32_t)hi, first, last};
}

static void add_tiles(MaskChunks *c, const MaskDocuments *d, MaskSide s)
{
    const MaskRange all = mask_range_make(s.set, s.tile, 0, s.set->tokens);
    for (int64_t at = 0; at < s.set->tokens; at += s.tile) {
        const MaskRange r = mask_range_part(&all, at, burst_min(s.tile, s.set->tokens - at));
        add_span(c, r.lo, r.hi, mask_documents_index(d, r.lo), mask_documents_index(d, r.hi));
    }
}

/* Cuts n positions, stride apart, between documents. */
static void add_line(MaskChunks *c, const MaskDocuments *d, int64_t start, int64_t stride, int64_t n)
{
    for (int64_t at = 0, next; at < n; at = next) {
        const int64_t lo = start + at * stride;
        const int32_t document = mask_documents_index(d, lo);
        next = burst_min(n, at + (d->begin[document + 1] - lo + stride - 1) / stride);
        add_span(c, lo, start + (next - 1) * stride, document, document);
    }
}

static void add_runs(MaskChunks *c, const MaskDocuments *d, const PosSet *s)
{
    for (const Piece *p = s->pieces; p < s->pieces + s->npieces; p++) {
        const int64_t lines = is_line(p) ? 1 : p->count, tokens = p->run * p->count / lines;
        for (int64_t i = 0; i < lines; i++)
            add_line(c, d, p->start + i * p->stride, stride_of(p), tokens);
    }
}

/* At most so many spans of runs. */
static int64_t most_runs(const MaskDocuments *d, const PosSet *s)
{
    int64_t n = 0;
    for (const Piece *p = s->pieces; p < s->pieces + s->npieces; p++)
        n += (is_line(p) ? 1 : p->count) + mask_documents_index(d, mask_piece_last(p)) -
             mask_documents_index(d, p->start);
    return n;
}

static int key_of(MaskChunks *c, MaskSide s)
{
    c->key.n = 0;
    *(int64_t *)vec_push(c->arena, &c->key) = s.tile;
    for (const Piece *p = s.set->pieces; p < s.set->pieces + s.set->npieces; p++) {
        const int64_t words[] = {p->start, p->run, p->stride, p->count};
        for (int i = 0; i < countof(words); i++)
            *(int64_t *)vec_push(c->arena, &c->key) = words[i];
    }
    return c->key.n;
}

/* Forgets all chunks if they are too many, or leave no space for so many more spans. */
static void make_room(MaskChunks *c, int64_t spans)
{
    if (!c->span)
        c->span = NEW_ARRAY(c->arena, MaskSpan, c->most);
    if (c->spans + spans <= c->most && c->chunk.n < MOST_CHUNKS)
        return;
    mask_memory_forget(&c->known);
    c->chunk.n = c->spans = 0;
    c->forgotten++;
}

static bool find_chunk(MaskChunks *c, const MaskDocuments *d, MaskSide s, MaskChunk *found)
{
    const int words = key_of(c, s);
    const MaskCount *known = mask_memory_find(&c->known, c->key.at, words);
    if (known) {
        *found = c->chunk.at[known->full];
        return found->stride > 0;
    }
    const int64_t spans = (s.set->tokens + s.tile - 1) / s.tile + most_runs(d, s.set);
    *found = (MaskChunk){.stride = 2 * spans <= c->most ? common_stride(s.set) : 0};
    make_room(c, found->stride ? spans : 0);
    if (found->stride) {
        found->tile = c->spans;
        add_tiles(c, d, s);
        found->run = c->spans;
        add_runs(c, d, s.set);
        found->tiles = found->run - found->tile;
        found->runs = c->spans - found->run;
    }
    mask_memory_add(&c->known, c->key.at, words, (MaskCount){.full = c->chunk.n});
    *vec_push(c->arena, &c->chunk) = *found;
    return found->stride > 0;
}

/* ---- pairs of chunks ---- */

/* Spans of keys that a span of queries sees, from live to live_end, and in full. */
typedef struct Reach {
    int live, live_end, full, full_end;
} Reach;

/* The first span from which a token is at `position` or later, in document `first` or later. */
static int first_span(const MaskSpan *s, int n, int64_t position, int32_t first)
{
    int low = 0, high = n;
    while (low < high) {
        const int mid = (low + high) / 2;
        if (s[mid].hi < position || s[mid].last < first)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void advance(Reach *r, const MaskWithin *w, const MaskSpan *q, const MaskSpan *k, int n)
{
    while (r->live < n && (k[r->live].hi < q->lo - w->most || k[r->live].last < q->first))
        r->live++;
    while (r->live_end < n && k[r->live_end].lo <= q->hi - w->least && k[r->live_end].first <= q->last)
        r->live_end++;
    while (r->full < n && (k[r->full].lo < q->hi - w->most || k[r->full].first < q->first))
        r->full++;
    while (r->full_end < n && k[r->full_end].hi <= q->lo - w->least && k[r->full_end].last <= q->last)
        r->full_end++;
}

/* The ends for one span: no span in full if it has several documents. */
static Reach reached(Reach r, const MaskSpan *q)
{
    if (q->first != q->last || r.full_end < r.full)
        r.full = r.full_end = r.live;
    if (r.live_end < r.live)
        r.live_end = r.live;
    return r;
}

/* Spans of queries and of keys. */
typedef struct Spans {
    const MaskSpan *q, *k;
    int nq, nk;
} Spans;

/* Returns the first span of queries that may see a key. *r begins at the first span of keys that these or
 * later queries may see. */
static int begin_at(const MaskWithin *w, Spans s, Reach *r)
{
    const int first = first_span(s.q, s.nq, s.k->lo + w->least, s.k->first);
    const int begin = first < s.nq ? first_span(s.k, s.nk, s.q[first].lo - w->most, s.q[first].first) : s.nk;
    *r = (Reach){begin, begin, begin, begin};
    return first;
}

static MaskCount count_tiles(const MaskWithin *w, Spans s)
{
    Reach ends;
    MaskCount n = {0};
    for (int i = begin_at(w, s, &ends); i < s.nq && ends.live < s.nk; i++) {
        advance(&ends, w, &s.q[i], s.k, s.nk);
        const Reach r = reached(ends, &s.q[i]);
        n.full += r.full_end - r.full;
        n.partial += r.live_end - r.live - (r.full_end - r.full);
    }
    return n;
}

/* Pairs (i, j) with i - j <= e, of i < n and j < m. */
static int64_t steps_within(int64_t n, int64_t m, int64_t e)
{
    const int64_t whole = burst_max(0, burst_min(n, e + 1)), from = burst_max(1, -e),
                  to = burst_min(m - 1, n - 1 - e), rows = to - from + 1;
    return whole * m + (rows > 0 ? rows * m - (from + to) * rows / 2 : 0);
}

/* Two runs, and the distances of their tokens. */
typedef struct Runs {
    const MaskSpan *q, *k;
    int64_t nq, nk, stride_q, stride_k;
} Runs;

static int64_t run_tokens(const MaskSpan *s, int64_t stride)
{
    return stride == 1 ? s->hi - s->lo + 1 : (s->hi - s->lo) / stride + 1;
}

/* Pairs with q - k <= most. */
static int64_t pairs_upto(const Runs *r, int64_t most)
{
    const int64_t rest = most - (r->q->lo - r->k->lo);
    if (r->q->hi - r->k->lo <= most)
        return r->nq * r->nk;
    if (r->q->lo - r->k->hi > most)
        return 0;
    if (r->stride_q == r->stride_k)
        return steps_within(r->nq, r->nk, burst_floor_div(rest, r->stride_q));
    return mask_line_below(r->stride_q, r->nq, -r->stride_k, r->nk, -rest - 1);
}

/* Pairs of a run of queries with runs [from, end) of keys. */
static int64_t pairs_between(const MaskWithin *w, Runs r, const MaskSpan *k, int64_t from, int64_t end)
{
    int64_t pairs = 0;
    for (int64_t j = from; j < end && w->least <= w->most; j++) {
        r.k = &k[j];
        r.nk = run_tokens(r.k, r.stride_k);
        pairs += pairs_upto(&r, w->most) - pairs_upto(&r, w->least - 1);
    }
    return pairs;
}

/* The runs of two chunks. */
static int64_t count_pairs(const MaskWithin *w, const MaskChunk *a, const MaskChunk *b, Spans s)
{
    Reach ends;
    int64_t pairs = 0;
    for (int i = begin_at(w, s, &ends); i < s.nq && ends.live < s.nk; i++) {
        advance(&ends, w, &s.q[i], s.k, s.nk);
        const Reach x = reached(ends, &s.q[i]);
        const Runs r = {.q = &s.q[i],
                        .nq = run_tokens(&s.q[i], a->stride),
                        .stride_q = a->stride,
                        .stride_k = b->stride};
        for (int j = x.full; j < x.full_end; j++)
            pairs += r.nq * run_tokens(&s.k[j], b->stride);
        pairs += pairs_between(w, r, s.k, x.live, burst_min(x.full, x.live_end)) +
                 pairs_between(w, r, s.k, burst_max(x.full_end, x.live), x.live_end);
    }
    return pairs;
}

/* Positions lo to hi. */
typedef struct Hull {
    int64_t lo, hi;
} Hull;

enum { FEW_HULLS = 4 };

/* Hulls of a chunk such that each tile is inside of one: of its pieces, if these are whole tiles. */
static int hulls_of(MaskSide s, Hull hull[FEW_HULLS])
{
    int n = 0;
    int64_t tokens = 0;
    for (const Piece *p = s.set->pieces; p < s.set->pieces + s.set->npieces; p++) {
        const bool begins = n == 0 || (tokens % s.tile == 0 && n < FEW_HULLS);
        Hull *h = &hull[begins ? n : n - 1];
        *h = begins ? (Hull){p->start, mask_piece_last(p)}
                    : (Hull){burst_min(h->lo, p->start), burst_max(h->hi, mask_piece_last(p))};
        n += begins;
        tokens += p->run * p->count;
    }
    return n;
}

static bool hulls_apart(const MaskWithin *w, Hull q, Hull k)
{
    const MaskDocuments *d = w->documents;
    return q.lo - k.hi > w->most || q.hi - k.lo < w->least ||
           mask_documents_index(d, q.lo) > mask_documents_index(d, k.hi) ||
           mask_documents_index(d, q.hi) < mask_documents_index(d, k.lo);
}

/* Whether their hulls show that no tile of one chunk sees one of the other. Most pairs of chunks are apart,
 * and need no spans. */
static bool are_apart(const MaskWithin *w, MaskSide q, MaskSide k)
{
    Hull a[FEW_HULLS], b[FEW_HULLS];
    const int n = hulls_of(q, a), m = hulls_of(k, b);
    bool apart = true;
    for (int i = 0; i < n * m && apart; i++)
        apart = hulls_apart(w, a[i / m], b[i % m]);
    return apart;
}

MaskChunks mask_chunks(Arena *a, int64_t sequence, int tile)
{
    /* LEAST, MOST: spans; between these, as many as SEQUENCES sequences have tiles */
    enum { LEAST = 1 << 12, MOST = 1 << 17, SEQUENCES = 4 };
    const int64_t most = burst_max(LEAST, burst_min(MOST, SEQUENCES * (sequence / tile)));
    return (MaskChunks){.arena = a, .known.arena = a, .most = (int)most};
}

bool mask_count_within(MaskChunks *c, const MaskWithin *w, MaskSide q, MaskSide k, MaskCount *pairs,
                       MaskCount *tiles, int64_t *work)
{
    MaskChunk a, b;
    *pairs = *tiles = (MaskCount){0};
    *work += SPAN_WORK;
    if (are_apart(w, q, k))
        return true;
    bool found = find_chunk(c, w->documents, q, &a);
    const int forgotten = c->forgotten;
    found = found && find_chunk(c, w->documents, k, &b);
    if (c->forgotten > forgotten) /* there is room for both now */
        found = found && find_chunk(c, w->documents, q, &a);
    if (!found)
        return false;
    const MaskSpan *span = c->span;
    const Spans all = {span + a.tile, span + b.tile, a.tiles, b.tiles},
                runs = {span + a.run, span + b.run, a.runs, b.runs};
    *tiles = count_tiles(w, all);
    pairs->full = count_pairs(w, &a, &b, runs);
    *work += SPAN_WORK * (a.tiles + b.tiles + a.runs + b.runs);
    return true;
}
