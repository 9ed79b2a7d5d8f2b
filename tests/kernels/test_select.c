/* Selections on the host against brute force in float64: lists of chosen blocks, attention over them, what
 * later tokens may not change, and the same lists however many ranks share the sequence. */
#include "kernel_test.h"

#include "burst_mask.h"
#include "burst_rt.h"
#include "burst_sizes.h"
#include "dot64.h"

#define countof(x) ((int)(sizeof(x) / sizeof((x)[0])))
enum { MOST = 1024, CASES = 300, MOST_RANKS = 4, TILE = 128 };
static const double OUTPUT = 1e-6, GRADIENT = 1e-4;

/* ---- masks of the running case ---- */
static struct Rules {
    int64_t sequence, block;
    int64_t window;      /* of `where`; 0: none */
    int64_t near, sinks; /* of `always` */
    bool later, documents, own;
} rules;
static int32_t document[MOST], place[MOST]; /* number of a token's document; position in it */

static bool where(int64_t q, int64_t k)
{
    return (rules.later || k <= q) && (!rules.window || q - k < rules.window) &&
           (!rules.documents || document[q] == document[k]);
}

static bool always(int64_t q, int64_t k)
{
    return (rules.own && q / TILE == k / TILE) || (q - k >= 0 && q - k < rules.near) || k < rules.sinks;
}

static int cover_of(bool (*keeps)(int64_t, int64_t), const BurstSide *q, const BurstSide *k)
{
    bool some = false, hole = false;
    for (int64_t i = q->lo; i <= q->hi; i++)
        for (int64_t j = k->lo; j <= k->hi; j++)
            *(keeps(i, j) ? &some : &hole) = true;
    if (some && hole)
        return BURST_PARTIAL;
    return some ? BURST_FULL : BURST_EMPTY;
}

static bool is_open(int64_t q, int64_t k) { return where(q, k) && !always(q, k); }
static int open_tile(const BurstSide *q, const BurstSide *k) { return cover_of(is_open, q, k); }
static void open_row(int64_t q, const int64_t *k, int n, const BurstTables *t, uint8_t *keep)
{
    (void)t;
    for (int j = 0; j < n; j++)
        keep[j] = is_open(q, k[j]);
}
static int mask_tile(const BurstSide *q, const BurstSide *k)
{
    return burst_and(cover_of(where, q, k), burst_or(cover_of(always, q, k), burst_selected(k)));
}
static void mask_row(int64_t q, const int64_t *k, int n, const BurstTables *t, uint8_t *keep)
{
    for (int j = 0; j < n; j++)
        keep[j] = where(q, k[j]) && (always(q, k[j]) || t->table[BURST_SELECT_TABLE][k[j] - t->chosen_from]);
}
static int dense_tile(const BurstSide *q, const BurstSide *k) { return cover_of(where, q, k); }
static void dense_row(int64_t q, const int64_t *k, int n, const BurstTables *t, uint8_t *keep)
{
    (void)t;
    for (int j = 0; j < n; j++)
        keep[j] = where(q, k[j]);
}
static const BurstMask open_mask = {.tile = open_tile, .row = open_row},
                       dense_mask = {.tile = dense_tile, .row = dense_row};

/* ---- a case: arrays of the whole sequence [heads][sequence][d] ---- */
typedef struct Case {
    BurstSelection how;
    BurstMask mask;
    int64_t n;
    int q_heads, kv_heads, d, lists;
    int64_t tiles, blocks;
    float *q, *k, *v, *d_o;
    BurstTables tables;
} Case;
/* What a run makes. */
typedef struct Made {
    int32_t *chosen;
    float *o, *lse, *dq, *dk, *dv;
} Made;

static int pick(Random *r, int n) { return (int)(random_bits(r) % (uint32_t)n); }

static void draw_documents(Random *r)
{
    int64_t left = 0;
    for (int64_t i = 0, number = 0, begin = 0; i < MOST; i++) {
        if (left-- == 0)
            left = pick(r, 300), begin = i, number++;
        document[i] = (int32_t)number;
        place[i] = (int32_t)(i - begin);
    }
}

static Case case_of(Random *r, bool any_length)
{
    static const int64_t blocks[] = {16, 32, 48, 64, 128, 192, 256};
    Case c = {.kv_heads = 1 + pick(r, 2), .d = 8 << pick(r, 3)};
    c.q_heads = c.kv_heads * (1 + pick(r, 3));
    c.n = any_length ? 1 + pick(r, MOST) : MOST;
    rules.block = blocks[pick(r, countof(blocks))];
    rules.sequence = c.n;
    rules.window = pick(r, 3) ? 0 : 100 + pick(r, 400);
    rules.later = pick(r, 4) == 0;
    rules.documents = pick(r, 3) == 0;
    rules.own = pick(r, 4) > 0;
    rules.near = pick(r, 2) ? 0 : pick(r, 200);
    rules.sinks = pick(r, 2) ? 0 : pick(r, 100);
    draw_documents(r);
    const bool by_position = pick(r, 2);
    c.tables = (BurstTables){.table = {by_position ? place : document}};
    c.how = (BurstSelection){.top = 1 + pick(r, 6),
                             .query = pick(r, rules.later ? 3 : 2),
                             .key = pick(r, BURST_SELECT_KEY_KINDS),
                             .heads = pick(r, BURST_SELECT_HEAD_KINDS),
                             .block = rules.block,
                             .queries = TILE,
                             .noncausal = rules.later,
                             .documents = rules.documents,
                             .by_position = by_position,
                             .open = &open_mask};
    c.mask = (BurstMask){.tile = mask_tile, .row = mask_row};
    c.lists = burst_select_lists(c.how.heads, c.q_heads, c.kv_heads);
    c.tiles = (c.n + TILE - 1) / TILE, c.blocks = (c.n + rules.block - 1) / rules.block;
    c.q = random_array(r, c.q_heads * c.n * c.d), c.d_o = random_array(r, c.q_heads * c.n * c.d);
    c.k = random_array(r, c.kv_heads * c.n * c.d), c.v = random_array(r, c.kv_heads * c.n * c.d);
    return c;
}

static void free_case(Case *c) { free(c->q), free(c->k), free(c->v), free(c->d_o); }

/* ---- ranks: each has runs of whole tiles and blocks, from both ends ---- */
typedef struct Rank {
    BurstChunk chunk;
    int64_t position[MOST];
    BurstSide side[MOST / BURST_TILE + 1];
} Rank;

static int64_t common(int64_t a, int64_t b)
{
    int64_t n = a;
    while (n % b)
        n += a;
    return n;
}

static void share(const Case *c, int ranks, Rank *rank)
{
    const int64_t unit = common(TILE, c->how.block);
    for (int r = 0; r < ranks; r++) {
        Rank *x = &rank[r];
        x->chunk = (BurstChunk){.position = x->position, .side = x->side};
        for (int64_t i = 0; i < c->n; i++) {
            const int64_t turn = i / unit % (2 * ranks);
            if ((turn < ranks ? turn : 2 * ranks - 1 - turn) == r)
                x->position[x->chunk.tokens++] = i;
        }
        x->chunk.tiles = (int)((x->chunk.tokens + BURST_TILE - 1) / BURST_TILE);
        burst_sides(x->position, x->chunk.tokens, &c->tables, rules.documents, x->side);
    }
}

static float *part_of(const Rank *r, const float *x, int heads, int64_t n, int64_t d)
{
    float *y = zero_floats(heads * r->chunk.tokens * d);
    for (int h = 0; h < heads; h++)
        for (int64_t i = 0; i < r->chunk.tokens; i++)
            memcpy(y + (h * r->chunk.tokens + i) * d, x + (h * n + r->position[i]) * d,
                   (size_t)d * sizeof *y);
    return y;
}

static void put_part(const Rank *r, float *x, int heads, int64_t n, int64_t d, float *y)
{
    for (int h = 0; h < heads; h++)
        for (int64_t i = 0; i < r->chunk.tokens; i++)
            memcpy(x + (h * n + r->position[i]) * d, y + (h * r->chunk.tokens + i) * d,
                   (size_t)d * sizeof *y);
    free(y);
}

/* ---- lists and attention of all ranks ---- */
static BurstSelect select_of(const Case *c)
{
    return (BurstSelect){.how = &c->how,
                         .q_heads = c->q_heads,
                         .kv_heads = c->kv_heads,
                         .head_dim = c->d,
                         .lists = c->lists,
                         .sequence = c->n,
                         .tables = &c->tables,
                         .table_count = rules.documents};
}

static int32_t *choose(const Case *c, int ranks, const Rank *rank)
{
    const BurstSelect s = select_of(c);
    const int64_t key_words = c->kv_heads * burst_select_width(c->how.key, c->how.block, c->d),
                  query_words = c->q_heads * burst_select_query_width(c->how.query, c->d),
                  list_words = c->lists * c->how.top;
    float *keys = zero_floats(c->blocks * key_words), *queries = zero_floats(c->tiles * query_words),
          *own = zero_floats(c->tiles * query_words + c->blocks * key_words);
    int32_t *lists = calloc((size_t)(c->tiles * list_words), 4),
            *all = calloc((size_t)(c->tiles * list_words), 4);
    void *scratch = malloc((size_t)burst_select_scratch(c->blocks, c->how.top));
    assert_true(lists && all && scratch);
    for (int r = 0; r < ranks; r++) {
        float *q = part_of(&rank[r], c->q, c->q_heads, c->n, c->d),
              *k = part_of(&rank[r], c->k, c->kv_heads, c->n, c->d);
        burst_select_keys(&s, &rank[r].chunk, k, own);
        burst_select_place(&rank[r].chunk, c->how.block, key_words, own, key_words, keys);
        burst_select_queries(&s, &rank[r].chunk, q, own);
        burst_select_place(&rank[r].chunk, TILE, query_words, own, query_words, queries);
        free(q), free(k);
    }
    for (int r = 0; r < ranks; r++) {
        burst_select_blocks(&s, &rank[r].chunk, queries, keys, scratch, lists);
        assert_int_equal(burst_select_check(&s, &rank[r].chunk, lists), 0);
        burst_select_place(&rank[r].chunk, TILE, list_words, (float *)(void *)lists, list_words,
                           (float *)(void *)all);
    }
    free(keys), free(queries), free(own), free(lists), free(scratch);
    return all;
}

static Made made_of(const Case *c)
{
    const int64_t q = c->q_heads * c->n, k = c->kv_heads * c->n;
    return (Made){.o = zero_floats(q * c->d),
                  .lse = zero_floats(q),
                  .dq = zero_floats(q * c->d),
                  .dk = zero_floats(k * c->d),
                  .dv = zero_floats(k * c->d)};
}

static void free_made(Made *m)
{
    free(m->chosen), free(m->o), free(m->lse), free(m->dq), free(m->dk), free(m->dv);
}

static void attend(const Case *c, const BurstMask *mask, int ranks, const Rank *rank, Made *m)
{
    float *q[MOST_RANKS], *k[MOST_RANKS], *v[MOST_RANKS], *d_o[MOST_RANKS], *dk[MOST_RANKS], *dv[MOST_RANKS],
        *scratch = zero_floats(burst_attend_scratch(c->d));
    for (int r = 0; r < ranks; r++) {
        const int64_t keys = c->kv_heads * rank[r].chunk.tokens * c->d;
        q[r] = part_of(&rank[r], c->q, c->q_heads, c->n, c->d),
        k[r] = part_of(&rank[r], c->k, c->kv_heads, c->n, c->d);
        v[r] = part_of(&rank[r], c->v, c->kv_heads, c->n, c->d);
        d_o[r] = part_of(&rank[r], c->d_o, c->q_heads, c->n, c->d);
        dk[r] = zero_floats(keys), dv[r] = zero_floats(keys);
    }
    for (int r = 0; r < ranks; r++) {
        const int64_t rows = c->q_heads * rank[r].chunk.tokens;
        BurstAttend a = {.head_dim = c->d,
                         .q_heads = c->q_heads,
                         .kv_heads = c->kv_heads,
                         .group = c->q_heads / c->kv_heads,
                         .scale = 1 / sqrtf((float)c->d),
                         .mask = mask,
                         .tables = &c->tables,
                         .chosen = m->chosen,
                         .chosen_lists = c->lists,
                         .qc = &rank[r].chunk,
                         .q = q[r],
                         .o = zero_floats(rows * c->d),
                         .lse = zero_floats(rows),
                         .lse_rest = zero_floats(rows),
                         .d_o = d_o[r],
                         .dq = zero_floats(rows * c->d),
                         .scratch = scratch};
        float *delta = zero_floats(rows);
        burst_attend_start(&a);
        for (int j = 0; j < ranks; j++) {
            a.kc = &rank[j].chunk, a.k = k[j], a.v = v[j];
            burst_attend_forward(&a);
        }
        burst_attend_delta(rows, c->d, a.o, a.d_o, delta);
        a.delta = delta;
        for (int j = 0; j < ranks; j++) {
            a.kc = &rank[j].chunk, a.k = k[j], a.v = v[j], a.dk = dk[j], a.dv = dv[j];
            burst_attend_backward(&a);
        }
        free(delta), free(a.lse_rest);
        put_part(&rank[r], m->o, c->q_heads, c->n, c->d, a.o);
        put_part(&rank[r], m->lse, c->q_heads, c->n, 1, a.lse);
        put_part(&rank[r], m->dq, c->q_heads, c->n, c->d, a.dq);
    }
    for (int r = 0; r < ranks; r++) {
        put_part(&rank[r], m->dk, c->kv_heads, c->n, c->d, dk[r]);
        put_part(&rank[r], m->dv, c->kv_heads, c->n, c->d, dv[r]);
        free(q[r]), free(k[r]), free(v[r]), free(d_o[r]);
    }
    free(scratch);
}

static Made run(Case *c, int ranks)
{
    static Rank rank[MOST_RANKS];
    memset(rank, 0, sizeof rank);
    Made m = made_of(c);
    share(c, ranks, rank);
    c->mask.selection = &c->how;
    m.chosen = choose(c, ranks, rank);
    attend(c, &c->mask, ranks, rank, &m);
    return m;
}

/* ---- brute force ---- */
static bool same_document(int64_t a, int64_t b) { return !rules.documents || document[a] == document[b]; }

static void mean_of(const Case *c, const float *x, int64_t begin, int64_t end, int64_t of, float *out)
{
    int64_t n = 0;
    double sum[64] = {0};
    for (int64_t i = begin; i < end; i++) {
        if (!same_document(i, of))
            continue;
        n++;
        for (int t = 0; t < c->d; t++)
            sum[t] += (double)x[i * c->d + t];
    }
    for (int t = 0; t < c->d; t++)
        out[t] = (float)(sum[t] / (double)n);
}

/* The greatest product of the query with a key of the block, of those in its last one's document. */
static double want_greatest(const Case *c, const float *query, const float *k, int64_t begin, int64_t end)
{
    double most = -INFINITY;
    for (int64_t i = begin; i < end; i++) {
        double sum = 0;
        for (int t = 0; t < c->d; t++)
            sum += (double)query[t] * (double)k[i * c->d + t];
        if (same_document(i, end - 1) && (isnan(sum) || !(sum <= most)))
            most = isnan(most) ? most : sum;
    }
    return most;
}

static double want_score(const Case *c, int h, int64_t tile, int64_t block)
{
    const float *q = c->q + h * c->n * c->d, *k = c->k + h / (c->q_heads / c->kv_heads) * c->n * c->d;
    const int64_t first = tile * TILE, begin = block * c->how.block,
                  end = burst_min(begin + c->how.block, c->n);
    float query[64], key[64];
    memcpy(query, q + first * c->d, (size_t)c->d * sizeof *query);
    if (c->how.query == BURST_SELECT_OWN_MEAN)
        mean_of(c, q, first, burst_min(first + TILE, c->n), first, query);
    if (c->how.query == BURST_SELECT_PREVIOUS_MEAN && tile > 0 && same_document(first - 1, first))
        mean_of(c, q, first - TILE, first, first, query);
    double sum = 0;
    if (c->how.key == BURST_SELECT_MAX_KEY)
        return want_greatest(c, query, k, begin, end);
    if (c->how.key == BURST_SELECT_MEAN_KEY)
        mean_of(c, k, begin, end, end - 1, key);
    for (int t = 0; t < c->d; t++) {
        int64_t from = begin;
        while (!same_document(from, end - 1))
            from++;
        double best = (double)query[t] * (double)k[from * c->d + t];
        for (int64_t i = from; i < end && c->how.key == BURST_SELECT_LIMITS; i++)
            best = fmax(best, (double)query[t] * (double)k[i * c->d + t]);
        sum += c->how.key == BURST_SELECT_MEAN_KEY ? (double)query[t] * (double)key[t] : best;
    }
    return sum;
}

static bool want_open(const Case *c, int64_t tile, int64_t block)
{
    const int64_t first = tile * TILE, begin = block * c->how.block,
                  end = burst_min(begin + c->how.block, c->n);
    if ((!rules.later && end - 1 > first) || !same_document(end - 1, first))
        return false;
    for (int64_t i = first; i < burst_min(first + TILE, c->n); i++)
        for (int64_t j = begin; j < end; j++)
            if (is_open(i, j))
                return true;
    return false;
}

/* The list of heads first .. end - 1: the best of those left, again and again. */
static void want_list(const Case *c, int first, int end, int64_t tile, int32_t *list)
{
    bool taken[MOST / 16 + 1] = {false};
    double score[MOST / 16 + 1];
    for (int64_t b = 0; b < c->blocks; b++) {
        score[b] = 0;
        taken[b] = !want_open(c, tile, b);
        for (int h = first; h < end && !taken[b]; h++)
            score[b] += want_score(c, h, tile, b);
        score[b] = isnan(score[b]) ? -INFINITY : score[b];
    }
    int n = 0;
    bool kept[MOST / 16 + 1] = {false};
    for (int i = 0; i < c->how.top; i++) {
        int64_t best = -1;
        for (int64_t b = 0; b < c->blocks; b++)
            if (!taken[b] && (best < 0 || score[b] > score[best]))
                best = b;
        if (best >= 0)
            taken[best] = kept[best] = true;
    }
    for (int64_t b = 0; b < c->blocks; b++)
        if (kept[b])
            list[n++] = (int32_t)b;
    while (n < c->how.top)
        list[n++] = -1;
}

static void check_lists(const Case *c, const int32_t *chosen)
{
    const int each = c->q_heads / c->lists;
    int32_t want[16];
    for (int64_t t = 0; t < c->tiles; t++)
        for (int l = 0; l < c->lists; l++) {
            want_list(c, l * each, (l + 1) * each, t, want);
            assert_memory_equal(want, chosen + (t * c->lists + l) * c->how.top, (size_t)c->how.top * 4);
        }
}

static bool keeps(const Case *c, const int32_t *chosen, int h, int64_t q, int64_t k)
{
    const int32_t *list = chosen + (q / TILE * c->lists + h / (c->q_heads / c->lists)) * c->how.top;
    bool has = false;
    for (int i = 0; i < c->how.top; i++)
        has |= list[i] == k / c->how.block;
    return where(q, k) && (always(q, k) || has);
}

static void add_scaled(int n, double *restrict y, double by, const float *restrict x)
{
    for (int i = 0; i < n; i++)
        y[i] += by * (double)x[i];
}

static double worst_error(int64_t n, const float *got, const double *want)
{
    double error = 0, most = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        error = fmax(error, fabs(got[i] - want[i]));
        most = fmax(most, fabs(want[i]));
        if (isnan(got[i]))
            error = INFINITY;
    }
    return error / fmax(most, 1);
}

static void check_attention(const Case *c, const Made *m)
{
    const int64_t q_size = c->q_heads * c->n * c->d, k_size = c->kv_heads * c->n * c->d;
    double *o = zero_doubles(q_size), *dq = zero_doubles(q_size), *dk = zero_doubles(k_size),
           *dv = zero_doubles(k_size), *p = zero_doubles(c->n);
    for (int h = 0; h < c->q_heads; h++) {
        const int64_t kv = h / (c->q_heads / c->kv_heads) * c->n;
        for (int64_t i = 0; i < c->n; i++) {
            const int64_t row = (h * c->n + i) * c->d;
            double sum = 0, most = -INFINITY, delta = 0;
            for (int64_t j = 0; j < c->n; j++) {
                p[j] = keeps(c, m->chosen, h, i, j)
                           ? dot64_of_floats(c->d, c->q + row, c->k + (kv + j) * c->d) / sqrt((double)c->d)
                           : -INFINITY;
                most = fmax(most, p[j]);
            }
            for (int64_t j = 0; j < c->n; j++)
                sum += p[j] = most == -INFINITY ? 0 : exp(p[j] - most);
            for (int64_t j = 0; j < c->n && sum > 0; j++) {
                p[j] /= sum;
                if (p[j] > 0)
                    add_scaled(c->d, o + row, p[j], c->v + (kv + j) * c->d);
            }
            for (int t = 0; t < c->d; t++)
                delta += o[row + t] * (double)c->d_o[row + t];
            for (int64_t j = 0; j < c->n; j++) {
                if (p[j] == 0)
                    continue;
                const int64_t key = (kv + j) * c->d;
                const double d_p = dot64_of_floats(c->d, c->d_o + row, c->v + key),
                             ds = p[j] * (d_p - delta) / sqrt((double)c->d);
                add_scaled(c->d, dv + key, p[j], c->d_o + row);
                add_scaled(c->d, dk + key, ds, c->q + row);
                add_scaled(c->d, dq + row, ds, c->k + key);
            }
        }
    }
    assert_true(worst_error(q_size, m->o, o) < OUTPUT);
    assert_true(worst_error(q_size, m->dq, dq) < GRADIENT);
    assert_true(worst_error(k_size, m->dk, dk) < GRADIENT);
    assert_true(worst_error(k_size, m->dv, dv) < GRADIENT);
    free(o), free(dq), free(dk), free(dv), free(p);
}

/* ---- tests ---- */
static void random_selections(void **state)
{
    (void)state;
    Random r = {1};
    for (int i = 0; i < CASES; i++) {
        Case c = case_of(&r, true);
        Made one = run(&c, 1), some = run(&c, 1 + pick(&r, MOST_RANKS));
        check_lists(&c, one.chosen);
        assert_memory_equal(one.chosen, some.chosen, (size_t)(c.tiles * c.lists * c.how.top) * 4);
        check_attention(&c, i % 2 ? &some : &one);
        free_made(&one), free_made(&some), free_case(&c);
    }
}

static bool same(int64_t n, const float *a, const float *b)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* As many blocks as there are: the mask without a selection, bit for bit. */
static void all_blocks(void **state)
{
    static Rank rank[MOST_RANKS];
    (void)state;
    Random r = {2};
    for (int i = 0; i < 30; i++) {
        Case c = case_of(&r, true);
        const int ranks = 1 + pick(&r, MOST_RANKS);
        const int64_t q = c.q_heads * c.n, k = c.kv_heads * c.n * c.d;
        rules.own = true; /* keys after a tile's first query */
        rules.documents = false, c.how.documents = 0; /* a document may begin in a tile */
        rules.near = TILE % rules.block ? rules.block + TILE
                                        : rules.near; /* and of blocks that it begins in */
        c.how.top = (int)c.blocks;
        Made chosen = run(&c, ranks), dense = made_of(&c);
        memset(rank, 0, sizeof rank);
        share(&c, ranks, rank);
        attend(&c, &dense_mask, ranks, rank, &dense);
        assert_true(same(q * c.d, chosen.o, dense.o) && same(q, chosen.lse, dense.lse));
        assert_true(same(q * c.d, chosen.dq, dense.dq) && same(k, chosen.dk, dense.dk) &&
                    same(k, chosen.dv, dense.dv));
        free_made(&chosen), free_made(&dense), free_case(&c);
    }
}

/* Whatever changes at token t, lists of tiles that begin before it and outputs before it do not. NaN changes
 * how a tile's other sums are computed, so then lists alone are compared. */
static void nothing_leaks(void **state)
{
    (void)state;
    Random r = {3};
    for (int i = 0; i < 60; i++) {
        Case c = case_of(&r, false);
        rules.later = c.how.noncausal = false;
        c.how.query = c.how.query == BURST_SELECT_OWN_MEAN ? BURST_SELECT_FIRST_QUERY : c.how.query;
        const int ranks = i % 3 == 0 ? 1 : 2 * (i % 3);
        Made before = run(&c, ranks);
        const int64_t t = 1 + pick(&r, MOST - 1);
        for (int h = 0; h < c.q_heads; h++)
            for (int x = 0; x < c.d; x++)
                c.q[(h * c.n + t) * c.d + x] = 100 * random_float(&r);
        for (int h = 0; h < c.kv_heads; h++)
            for (int x = 0; x < c.d; x++) {
                c.k[(h * c.n + t) * c.d + x] = i % 2 ? NAN : 100 * random_float(&r);
                c.v[(h * c.n + t) * c.d + x] = 100 * random_float(&r);
            }
        Made after = run(&c, ranks);
        const int64_t tiles = (t + TILE - 1) / TILE;
        assert_memory_equal(before.chosen, after.chosen, (size_t)(tiles * c.lists * c.how.top) * 4);
        for (int h = 0; h < c.q_heads && i % 2 == 0; h++) {
            assert_true(same(t * c.d, before.o + h * c.n * c.d, after.o + h * c.n * c.d));
            assert_true(same(t, before.lse + h * c.n, after.lse + h * c.n));
        }
        free_made(&before), free_made(&after), free_case(&c);
    }
}

static Case plain_case(Random *r)
{
    Case c = case_of(r, false);
    memset(&rules, 0, sizeof rules);
    rules.sequence = c.n, rules.block = c.how.block = 64, rules.own = true;
    c.how.top = 3, c.how.noncausal = false, c.how.documents = 0, c.how.query = BURST_SELECT_FIRST_QUERY;
    c.how.key = BURST_SELECT_MEAN_KEY;
    c.blocks = c.n / 64;
    return c;
}

/* The lowest blocks, rising. */
static void equal_scores(void **state)
{
    (void)state;
    Random r = {4};
    Case c = plain_case(&r);
    for (int64_t i = 0; i < c.kv_heads * c.n * c.d; i++)
        c.k[i] = 0.25f;
    Made m = run(&c, 2);
    for (int64_t t = 0; t < c.tiles; t++)
        for (int l = 0; l < c.lists; l++)
            for (int i = 0; i < 3; i++)
                assert_int_equal(m.chosen[(t * c.lists + l) * 3 + i], i < 2 * t ? i : -1);
    free_made(&m), free_case(&c);
}

/* A block with NaN is chosen last; rows that do not keep it have numbers. */
static void not_a_number(void **state)
{
    (void)state;
    Random r = {5};
    for (int key = 0; key < BURST_SELECT_KEY_KINDS; key++) {
        Case c = plain_case(&r);
        c.how.key = key;
        for (int h = 0; h < c.kv_heads; h++)
            c.k[(h * c.n + 64) * c.d] = NAN; /* the first key of block 1 */
        Made m = run(&c, 1);
        for (int64_t t = 1; t < c.tiles; t++)
            for (int l = 0; l < c.lists; l++)
                assert_true(burst_select_has(m.chosen + (t * c.lists + l) * 3, 3, 1) == (t == 1));
        for (int h = 0; h < c.q_heads; h++)
            for (int64_t i = 2 * TILE * c.d; i < c.n * c.d; i++)
                assert_true(isfinite(m.o[h * c.n * c.d + i]));
        free_made(&m), free_case(&c);
    }
}

/* Rows that keep no key: zero, and no gradient. */
static void empty_rows(void **state)
{
    (void)state;
    Random r = {6};
    Case c = plain_case(&r);
    rules.own = false; /* and of the first tile no block */
    Made m = run(&c, 1);
    for (int h = 0; h < c.q_heads; h++)
        for (int64_t i = 0; i < TILE; i++) {
            assert_true(m.lse[h * c.n + i] == -INFINITY);
            for (int x = 0; x < c.d; x++)
                assert_true(m.o[(h * c.n + i) * c.d + x] == 0 && m.dq[(h * c.n + i) * c.d + x] == 0);
        }
    check_attention(&c, &m);
    free_made(&m), free_case(&c);
}

/* Lists that break a rule are noticed. */
static void wrong_lists(void **state)
{
    (void)state;
    Random r = {7};
    Case c = plain_case(&r);
    static Rank rank[1];
    memset(rank, 0, sizeof rank);
    Made m = run(&c, 1);
    share(&c, 1, rank);
    const BurstSelect s = select_of(&c);
    const int64_t last = (c.tiles - 1) * c.lists * 3;
    static const int32_t wrong[][3] = {{1, 1, 2}, {2, 1, 3}, {-1, 1, 2}, {0, 1, 16}, {0, 1, 14}, {0, 1, -2}};
    assert_int_equal(burst_select_check(&s, &rank[0].chunk, m.chosen), 0);
    for (int i = 0; i < countof(wrong); i++) {
        memcpy(m.chosen + last, wrong[i], sizeof wrong[i]);
        assert_int_equal(burst_select_check(&s, &rank[0].chunk, m.chosen), -1);
    }
    free_made(&m), free_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_selections), cmocka_unit_test(all_blocks),   cmocka_unit_test(nothing_leaks),
        cmocka_unit_test(equal_scores),      cmocka_unit_test(not_a_number), cmocka_unit_test(empty_rows),
        cmocka_unit_test(wrong_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
