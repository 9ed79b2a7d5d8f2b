/* case.c: a plan's library against dense attention in float64, with threads as ranks.
 *
 * case PLAN.so CASE BYTES CALLS: CASE is a text: ranks, documents, cu_seqlens, seed, scale, whether there are
 * sinks, a softcap, then for each mask as many rows of 0 and 1 as there are tokens, and for each mask a
 * selection: top, keys of a block, what represents it, heads that share a choice, a window of the
 * mask; with top also as many rows of the pairs that may be chosen, which the rows before lack. BYTES: the
 * workspace that the plan's text predicts. CALLS: how often each mask attends, forward and backward. Prints
 * the worst relative error (L2) of each result (of dsinks, whose terms cancel, relative to these), and fails
 * where a call allocates, the workspace is not as predicted or is written outside of, or rows move elsewhere
 * than they say.
 */
#include "burst.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_RANKS = 16 };
#define CHECK(ok, ...) \
    do { \
        if (!(ok)) { \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, "\n"); \
            exit(1); \
        } \
    } while (0)

/* ---- what calls may not do ---- */

static _Thread_local bool calling;
static _Thread_local long allocations;
#ifndef __SANITIZE_ADDRESS__
extern void *__libc_malloc(size_t bytes), *__libc_calloc(size_t n, size_t bytes),
    *__libc_realloc(void *at, size_t bytes), *__libc_memalign(size_t align, size_t bytes);
void *malloc(size_t bytes)
{
    allocations += calling;
    return __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes)
{
    allocations += calling;
    return __libc_calloc(n, bytes);
}
void *realloc(void *at, size_t bytes)
{
    allocations += calling;
    return __libc_realloc(at, bytes);
}
void *aligned_alloc(size_t align, size_t bytes)
{
    allocations += calling;
    return __libc_memalign(align, bytes);
}
int posix_memalign(void **at, size_t align, size_t bytes)
{
    allocations += calling;
    *at = __libc_memalign(align, bytes);
    return *at ? 0 : ENOMEM;
}
#endif

/* Memory that ends at a page which nobody may touch. */
static char *guarded(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (bytes + page - 1) / page * page;
    char *at = mmap(NULL, all + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED && mprotect(at + all, page, PROT_NONE) == 0, "mmap");
    memset(at, 0x5a, all);
    return at + all - bytes;
}

/* ---- the case ---- */

typedef struct Case {
    int ranks, documents, tokens, heads, kv_heads, head_dim, value_dim, masks, sinks;
    int32_t *cu, *table; /* table: [tokens] "last_of", NULL: no mask reads it */
    unsigned seed;
    float scale;
    double softcap;
    unsigned char *keep; /* [masks][tokens][tokens] */
    float *q, *k, *v, *d_o, *d_lse, *sink;
    struct Chosen {
        int top, block, key, each, window;
        unsigned char *open; /* [tokens][tokens] */
        unsigned char *chosen; /* [heads][tiles][blocks] */
    } *select;                 /* [masks] */
    double *o, *lse, *dq, *dk, *dv, *dsink, *dsink_terms; /* of one mask; terms: the sum of their sizes */
} Case;

static float *random_rows(size_t n, unsigned *seed)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        double sum = -6;
        for (int j = 0; j < 12; j++) {
            *seed = *seed * 1664525u + 1013904223u;
            sum += (double)(*seed >> 8) / (1 << 24);
        }
        x[i] = (float)sum;
    }
    return x;
}

/* ---- selections: by their definition (docs/language.md) ---- */

enum { TILE = 128, MEAN_KEY = 0, LIMITS, FIRST_KEY, MAX_KEY };

static double block_score(const Case *c, const struct Chosen *s, int h, int tile, int b)
{
    const int d = c->head_dim, kv = h / (c->heads / c->kv_heads), begin = b * s->block,
              end = begin + s->block < c->tokens ? begin + s->block : c->tokens;
    const float *q = c->q + ((size_t)tile * TILE * (size_t)c->heads + (size_t)h) * (size_t)d;
    double most = -INFINITY, mean = 0, limits = 0, first = 0;
    for (int j = begin; j < end; j++) {
        double dot = 0;
        for (int x = 0; x < d; x++)
            dot += (double)q[x] *
                   c->k[((size_t)j * (size_t)c->kv_heads + (size_t)kv) * (size_t)d + (size_t)x];
        most = fmax(most, dot), mean += dot / (end - begin), first = j == begin ? dot : first;
    }
    for (int x = 0; x < d && s->key == LIMITS; x++) {
        double best = -INFINITY;
        for (int j = begin; j < end; j++)
            best = fmax(best,
                        (double)q[x] *
                            c->k[((size_t)j * (size_t)c->kv_heads + (size_t)kv) * (size_t)d + (size_t)x]);
        limits += best;
    }
    const double of[] = {mean, limits, first, most};
    return of[s->key];
}

static bool may_choose(const Case *c, const struct Chosen *s, int tile, int b)
{
    const int begin = b * s->block, end = begin + s->block < c->tokens ? begin + s->block : c->tokens;
    for (int i = tile * TILE; i < (tile + 1) * TILE && i < c->tokens && end - 1 <= tile * TILE; i++)
        if (memchr(s->open + (size_t)i * (size_t)c->tokens + begin, 1, (size_t)(end - begin)))
            return true;
    return false;
}

/* The best of those left, again and again; of equal ones the lowest. */
static void choose_blocks(const Case *c, struct Chosen *s, int first, int tile, int tiles, int blocks)
{
    double *score = malloc((size_t)blocks * sizeof *score);
    for (int b = 0; b < blocks; b++) {
        score[b] = may_choose(c, s, tile, b) ? 0 : -INFINITY;
        for (int h = first; h < first + s->each; h++)
            score[b] += block_score(c, s, h, tile, b);
    }
    for (int i = 0; i < s->top; i++) {
        int best = 0;
        for (int b = 1; b < blocks; b++)
            best = score[b] > score[best] ? b : best;
        for (int h = first; h < first + s->each && score[best] > -INFINITY; h++)
            s->chosen[((size_t)h * (size_t)tiles + (size_t)tile) * (size_t)blocks + (size_t)best] = 1;
        score[best] = -INFINITY;
    }
    free(score);
}

static void choose(const Case *c)
{
    for (int m = 0; m < c->masks; m++) {
        struct Chosen *s = &c->select[m];
        if (!s->top)
            continue;
        const int tiles = (c->tokens + TILE - 1) / TILE, blocks = (c->tokens + s->block - 1) / s->block;
        const int each[] = {1, c->heads / c->kv_heads, c->heads};
        s->each = each[s->each];
        s->chosen = calloc((size_t)(c->heads * tiles * blocks), 1);
        for (int h = 0; h < c->heads; h += s->each)
            for (int t = 0; t < tiles; t++)
                choose_blocks(c, s, h, t, tiles, blocks);
    }
}

static bool is_kept(const Case *c, int mask, int h, int i, int j)
{
    const size_t T = (size_t)c->tokens, at = (size_t)i * T + (size_t)j;
    const struct Chosen *s = &c->select[mask];
    if (c->keep[(size_t)mask * T * T + at])
        return true;
    if (!s->top || !s->open[at] || i - j >= s->window)
        return false;
    const int tiles = (c->tokens + TILE - 1) / TILE, blocks = (c->tokens + s->block - 1) / s->block;
    return s->chosen[(h * tiles + i / TILE) * blocks + j / s->block];
}

/* One head's row: its scores' probabilities, o and lse; then the gradients. */
static void dense_row(const Case *c, int mask, int h, int i, double *p, double *dp)
{
    const int d = c->head_dim, e = c->value_dim, kv = h / (c->heads / c->kv_heads), T = c->tokens;
    const float *q = c->q + ((size_t)i * c->heads + h) * d, *d_o = c->d_o + ((size_t)i * c->heads + h) * e;
    const double scale = c->scale != 0 ? (double)c->scale : 1 / sqrt(d);
    double most = c->sinks ? c->sink[h] : -INFINITY, sum = 0, keys = 0,
           *o = c->o + ((size_t)i * c->heads + h) * e;
    double *slope = dp + T;
    for (int j = 0; j < T; j++) {
        const float *k = c->k + ((size_t)j * c->kv_heads + kv) * d;
        double s = 0;
        const bool keep = is_kept(c, mask, h, i, j);
        for (int x = 0; x < d && keep; x++)
            s += (double)q[x] * k[x];
        s *= scale;
        slope[j] = 1;
        if (c->softcap > 0) {
            const double t = tanh(s / c->softcap);
            s = c->softcap * t;
            slope[j] = 1 - t * t;
        }
        p[j] = keep ? s : -INFINITY;
        most = fmax(most, p[j]);
    }
    for (int j = 0; j < T; j++)
        keys += p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - most);
    sum = keys + (c->sinks ? exp(c->sink[h] - most) : 0);
    c->lse[(size_t)h * T + i] = keys > 0 ? most + log(keys) : -INFINITY;
    memset(o, 0, (size_t)e * sizeof *o);
    double row = 0;
    for (int j = 0; j < T; j++) {
        const float *v = c->v + ((size_t)j * c->kv_heads + kv) * e;
        double *dv = c->dv + ((size_t)j * c->kv_heads + kv) * e;
        const double of_keys = keys > 0 ? p[j] / keys : 0;
        p[j] = keys > 0 ? p[j] / sum : 0;
        dp[j] = 0;
        for (int x = 0; x < e && p[j] > 0; x++) {
            o[x] += p[j] * v[x];
            dv[x] += p[j] * d_o[x];
            dp[j] += (double)d_o[x] * v[x];
        }
        row += p[j] * dp[j];
        slope[T + j] = of_keys;
    }
    if (c->sinks) {
        const double term = (keys > 0 ? 1 - keys / sum : 1) * row;
        c->dsink[h] -= term;
        c->dsink_terms[h] += fabs(term);
    }
    for (int j = 0; j < T; j++) {
        const double ds = (p[j] * (dp[j] - row) + slope[T + j] * c->d_lse[(size_t)h * T + i]) * slope[j] *
                          scale;
        const float *k = c->k + ((size_t)j * c->kv_heads + kv) * d;
        for (int x = 0; x < d && ds != 0; x++) {
            c->dq[((size_t)i * c->heads + h) * d + x] += ds * k[x];
            c->dk[((size_t)j * c->kv_heads + kv) * d + x] += ds * q[x];
        }
    }
}

static void dense(const Case *c, int mask)
{
    double *p = calloc((size_t)(5 * c->tokens), sizeof *p);
    memset(c->dq, 0, (size_t)(c->tokens * c->heads * c->head_dim) * sizeof *c->dq);
    memset(c->dk, 0, (size_t)(c->tokens * c->kv_heads * c->head_dim) * sizeof *c->dk);
    memset(c->dv, 0, (size_t)(c->tokens * c->kv_heads * c->value_dim) * sizeof *c->dv);
    memset(c->dsink, 0, (size_t)c->heads * sizeof *c->dsink);
    memset(c->dsink_terms, 0, (size_t)c->heads * sizeof *c->dsink_terms);
    for (int h = 0; h < c->heads; h++)
        for (int i = 0; i < c->tokens; i++)
            dense_row(c, mask, h, i, p, p + c->tokens);
    free(p);
}

static void read_pairs(FILE *f, const char *path, size_t n, unsigned char *to)
{
    for (size_t i = 0; i < n; i++) {
        char x;
        CHECK(fscanf(f, " %c", &x) == 1, "%s", path);
        to[i] = x == '1';
    }
}

static void read_selection(const Case *c, struct Chosen *s, FILE *f, const char *path)
{
    const size_t n = (size_t)c->tokens * (size_t)c->tokens;
    CHECK(fscanf(f, "%d %d %d %d %d", &s->top, &s->block, &s->key, &s->each, &s->window) == 5, "%s", path);
    s->open = s->top ? malloc(n) : NULL;
    if (s->top)
        read_pairs(f, path, n, s->open);
}

static void read_case(Case *c, const char *path)
{
    FILE *f = fopen(path, "r");
    CHECK(f, "cannot read %s", path);
    CHECK(fscanf(f, "%d %d %u %f %d %lf", &c->ranks, &c->documents, &c->seed, &c->scale, &c->sinks,
                 &c->softcap) == 6,
          "%s", path);
    c->cu = malloc((size_t)(c->documents + 1) * sizeof *c->cu);
    for (int i = 0; i <= c->documents; i++)
        CHECK(fscanf(f, "%d", &c->cu[i]) == 1, "%s", path);
    c->tokens = c->cu[c->documents];
    int given;
    CHECK(fscanf(f, "%d %d", &given, &c->masks) == 2, "%s", path);
    c->table = given ? malloc((size_t)c->tokens * sizeof *c->table) : NULL;
    for (int i = 0; given && i < c->tokens; i++)
        CHECK(fscanf(f, "%d", &c->table[i]) == 1, "%s", path);
    const size_t n = (size_t)c->masks * (size_t)c->tokens * (size_t)c->tokens;
    c->keep = malloc(n);
    read_pairs(f, path, n, c->keep);
    c->select = calloc((size_t)c->masks, sizeof *c->select);
    for (int m = 0; m < c->masks; m++)
        read_selection(c, &c->select[m], f, path);
    fclose(f);
}

static void fill_case(Case *c, const BurstInfo *info)
{
    const size_t n = (size_t)c->tokens;
    unsigned seed = c->seed;
    c->heads = info->heads, c->kv_heads = info->kv_heads;
    c->head_dim = info->head_dim, c->value_dim = info->value_dim;
    CHECK(info->tokens == c->tokens && info->masks == c->masks, "another plan");
    const size_t wide = n * (size_t)(c->heads * c->head_dim),
                 narrow = n * (size_t)(c->kv_heads * c->head_dim),
                 values = n * (size_t)(c->kv_heads * c->value_dim),
                 output = n * (size_t)(c->heads * c->value_dim);
    c->q = random_rows(wide, &seed), c->k = random_rows(narrow, &seed), c->v = random_rows(values, &seed);
    c->d_o = random_rows(output, &seed), c->d_lse = random_rows(n * (size_t)c->heads, &seed);
    c->sink = random_rows((size_t)c->heads, &seed);
    c->o = calloc(output, sizeof(double)), c->dq = calloc(wide, sizeof(double));
    c->dk = calloc(narrow, sizeof(double)), c->dv = calloc(values, sizeof(double));
    c->lse = calloc(n * (size_t)c->heads, sizeof(double));
    c->dsink = calloc((size_t)c->heads, sizeof(double));
    c->dsink_terms = calloc((size_t)c->heads, sizeof(double));
    choose(c);
}

/* ---- ranks ---- */

typedef struct Rank {
    int rank;
    pthread_t thread;
    BurstPlan *plan;
    BurstBatch *batch;
    char *workspace;
    float *row[8], *lse, *d_lse, *dsink;
} Rank;
static Case the_case;
static const char *plan_path;
static size_t predicted;
static int calls;
static pthread_barrier_t meet;
static const void *shared[MOST_RANKS];
static Rank ranks[MOST_RANKS];
/* of all tokens, at rank 0 */
static double worst[6];

static int all_gather(void *context, const void *in, void *out, size_t bytes)
{
    const Rank *r = context;
    shared[r->rank] = in;
    pthread_barrier_wait(&meet);
    for (int i = 0; i < the_case.ranks; i++)
        memcpy((char *)out + (size_t)i * bytes, shared[i], bytes);
    pthread_barrier_wait(&meet);
    return 0;
}

static void must(const Rank *r, int status)
{
    CHECK(status == BURST_SUCCESS, "rank %d: %d: %s", r->rank, status, burst_error(r->plan));
}

static double error_of(const float *x, const double *y, size_t n)
{
    double difference = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        CHECK(!isinf(y[i]) || y[i] == (double)x[i], "[%zu] is %g instead of %g", i, (double)x[i], y[i]);
        CHECK(!isnan(x[i]), "[%zu] is not a number", i);
        difference += isinf(y[i]) ? 0 : ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        all += isinf(y[i]) ? 0 : y[i] * y[i];
    }
    return all > 0 ? sqrt(difference / all) : sqrt(difference);
}

static size_t rows_of(const Rank *r, BurstLayout layout)
{
    return (size_t)burst_batch_rows(r->batch, layout, NULL, NULL);
}

/* Rows to contiguous ones and back are the same rows, and there those that it says. */
static void check_moves(const Rank *r, const float *x, size_t bytes)
{
    const size_t n = rows_of(r, BURST_CONTIGUOUS), own = rows_of(r, BURST_BALANCED);
    char *there = malloc(n * bytes + 1), *back = malloc(own * bytes + 1),
         *all = malloc((size_t)the_case.tokens * bytes);
    int32_t *row = malloc((n + own) * sizeof *row + 1), *position = malloc((n + 1) * sizeof *position);
    char *direct = malloc(own * bytes + 1);
    must(r, burst_move(r->batch, BURST_REPLICATED, BURST_BALANCED, x, back, bytes, NULL));
    must(r, burst_move(r->batch, BURST_BALANCED, BURST_CONTIGUOUS, back, there, bytes, NULL));
    burst_batch_rows(r->batch, BURST_CONTIGUOUS, row, position);
    for (size_t i = 0; i < n; i++) {
        int d = 0;
        while (the_case.cu[d + 1] <= row[i])
            d++;
        CHECK(position[i] == row[i] - the_case.cu[d], "position of token %d is %d", row[i], position[i]);
        CHECK(memcmp(there + i * bytes, (const char *)x + (size_t)row[i] * bytes, bytes) == 0,
              "rank %d: row %zu is not token %d", r->rank, i, row[i]);
    }
    memset(back, 0, own * bytes);
    must(r, burst_move(r->batch, BURST_CONTIGUOUS, BURST_BALANCED, there, back, bytes, NULL));
    burst_batch_rows(r->batch, BURST_BALANCED, row, NULL);
    for (size_t i = 0; i < own; i++)
        CHECK(memcmp(back + i * bytes, (const char *)x + (size_t)row[i] * bytes, bytes) == 0,
              "rank %d: row %zu came back as another", r->rank, i);
    must(r, burst_move(r->batch, BURST_CONTIGUOUS, BURST_REPLICATED, there, all, bytes, NULL));
    CHECK(memcmp(all, x, (size_t)the_case.tokens * bytes) == 0, "contiguous rows are not all rows");
    free(there), free(back), free(all), free(row), free(position), free(direct);
}

/* Of this rank's rows, all: [heads][tokens] as lse has them. */
static void gather_heads(const Rank *r, const float *own, float *all)
{
    const size_t n = rows_of(r, BURST_BALANCED), T = (size_t)the_case.tokens;
    for (int h = 0; h < the_case.heads; h++)
        must(r, burst_move(r->batch, BURST_BALANCED, BURST_REPLICATED, own + (size_t)h * n,
                           all + (size_t)h * T, sizeof *all, NULL));
}

static void compare(const Rank *r, int index, const float *own, const double *expected, size_t width)
{
    float *all = malloc((size_t)the_case.tokens * width * sizeof *all);
    must(r, burst_move(r->batch, BURST_BALANCED, BURST_REPLICATED, own, all, width * sizeof *all, NULL));
    const double error = error_of(all, expected, (size_t)the_case.tokens * width);
    if (r->rank == 0)
        worst[index] = fmax(worst[index], error);
    free(all);
}

static void attend(Rank *r, int mask)
{
    const Case *c = &the_case;
    float *const *x = r->row;
    const float *sinks = c->sinks ? c->sink : NULL;
    calling = true;
    const int forward = burst_attention_forward(r->batch, mask, x[0], x[1], x[2], sinks, c->scale, x[4],
                                                r->lse, r->workspace, NULL);
    memset(r->workspace, 0xff, 64);
    const int backward = burst_attention_backward(r->batch, mask, x[0], x[1], x[2], sinks, c->scale, x[4],
                                                  r->lse, x[3], r->d_lse, x[5], x[6], x[7],
                                                  c->sinks ? r->dsink : NULL, r->workspace, NULL);
    calling = false;
    must(r, forward);
    must(r, backward);
    CHECK(allocations == 0, "calls of attention allocate: %ld times", allocations);
}

static void run_mask(Rank *r, int mask)
{
    const Case *c = &the_case;
    const size_t wide = (size_t)(c->heads * c->head_dim), narrow = (size_t)(c->kv_heads * c->head_dim);
    const size_t output = (size_t)(c->heads * c->value_dim), values = (size_t)(c->kv_heads * c->value_dim);
    for (int i = 0; i < calls; i++)
        attend(r, mask);
    if (r->rank == 0)
        dense(c, mask);
    pthread_barrier_wait(&meet);
    compare(r, 0, r->row[4], c->o, output);
    compare(r, 2, r->row[5], c->dq, wide);
    compare(r, 3, r->row[6], c->dk, narrow);
    compare(r, 4, r->row[7], c->dv, values);
    float *lse = malloc((size_t)(c->heads * c->tokens) * sizeof *lse);
    gather_heads(r, r->lse, lse);
    const double error = error_of(lse, c->lse, (size_t)(c->heads * c->tokens));
    pthread_barrier_wait(&meet);
    if (r->rank == 0) {
        double sum = 0, all = 0;
        worst[1] = fmax(worst[1], error);
        for (int h = 0; h < c->heads && c->sinks; h++) {
            double is = 0;
            for (int i = 0; i < c->ranks; i++)
                is += (double)ranks[i].dsink[h];
            sum += (is - c->dsink[h]) * (is - c->dsink[h]), all += c->dsink_terms[h] * c->dsink_terms[h];
        }
        worst[5] = fmax(worst[5], all > 0 ? sqrt(sum / all) : sqrt(sum));
    }
    pthread_barrier_wait(&meet);
    free(lse);
}

static void take_rows(Rank *r, const Case *c)
{
    const size_t n = rows_of(r, BURST_BALANCED);
    const float *from[] = {c->q, c->k, c->v, c->d_o};
    const int heads = c->heads, keys = c->kv_heads, d = c->head_dim, e = c->value_dim;
    const int width[] = {heads * d, keys * d, keys * e, heads * e, heads * e, heads * d, keys * d, keys * e};
    for (int i = 0; i < 8; i++) {
        const size_t bytes = (size_t)width[i] * sizeof(float);
        r->row[i] = (float *)(void *)guarded(n * bytes);
        if (i < 4)
            must(r, burst_move(r->batch, BURST_REPLICATED, BURST_BALANCED, from[i], r->row[i], bytes, NULL));
    }
    r->lse = (float *)(void *)guarded(n * (size_t)c->heads * sizeof(float));
    r->d_lse = malloc(n * (size_t)c->heads * sizeof(float) + 1);
    r->dsink = malloc((size_t)c->heads * sizeof(float));
    for (int h = 0; h < c->heads; h++)
        must(r,
             burst_move(r->batch, BURST_REPLICATED, BURST_BALANCED, c->d_lse + (size_t)h * (size_t)c->tokens,
                        r->d_lse + (size_t)h * n, sizeof(float), NULL));
}

static void *run_rank(void *argument)
{
    Rank *r = argument;
    const BurstGroup group = {r->rank, the_case.ranks, all_gather, r};
    CHECK(burst_plan_open(plan_path, &group, &r->plan) == BURST_SUCCESS, "rank %d: %s", r->rank,
          burst_error(NULL));
    const size_t bytes = burst_plan_bytes(r->plan, BURST_WORKSPACE);
    CHECK(bytes == predicted, "rank %d: %zu bytes of workspace instead of %zu", r->rank, bytes, predicted);
    if (r->rank == 0)
        fill_case(&the_case, burst_plan_info(r->plan));
    pthread_barrier_wait(&meet);
    const int32_t *tables[4] = {0};
    const BurstInfo *info = burst_plan_info(r->plan);
    for (int t = 0; t < info->tables; t++)
        tables[t] = strcmp(info->table_name[t], "last_of") ? NULL : the_case.table;
    must(r, burst_batch_make(r->plan, the_case.cu, the_case.documents, tables, &r->batch));
    must(r, burst_batch_load(r->batch, NULL, NULL));
    r->workspace = guarded(bytes);
    take_rows(r, &the_case);
    check_moves(r, the_case.k, (size_t)(the_case.kv_heads * the_case.head_dim) * sizeof(float));
    for (int m = 0; m < the_case.masks; m++)
        run_mask(r, m);
    burst_batch_close(r->batch);
    burst_plan_close(r->plan);
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc == 5, "usage: case PLAN.so CASE BYTES CALLS");
    plan_path = argv[1], predicted = strtoull(argv[3], NULL, 10), calls = atoi(argv[4]);
    read_case(&the_case, argv[2]);
    CHECK(the_case.ranks <= MOST_RANKS, "too many ranks");
    pthread_barrier_init(&meet, NULL, (unsigned)the_case.ranks);
    for (int i = 0; i < the_case.ranks; i++) {
        ranks[i].rank = i;
        CHECK(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]) == 0, "pthread_create");
    }
    for (int i = 0; i < the_case.ranks; i++)
        pthread_join(ranks[i].thread, NULL);
    printf("%.3g %.3g %.3g %.3g %.3g %.3g\n", worst[0], worst[1], worst[2], worst[3], worst[4], worst[5]);
    return 0;
}
