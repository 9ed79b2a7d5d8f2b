/* test_scan.c: recurrent layers in chunks, pieces and chains of pieces against the token loop in float64 and
 * its adjoint, written from the recurrence; 300 random layers. */
#include "burst_step.h"
#include "burst_sizes.h"
#include "kernel_test.h"

#include <stdio.h>

enum { CASES = 300, MOST_RANKS = 4, MOST_PARTS = 4 };
static const double TOLERANCE = 3e-6;

/* A whole sequence; what it begins with and ends in are NULL where pieces are chained. */
typedef struct Sequence {
    BurstScan s;
    int64_t n;
    int32_t *place;
    float *x, *beta, *decay, *skip, *before, *d_o, *d_after;
} Sequence;

typedef struct Results {
    double *o, *after, *dx, *d_beta, *d_decay, *d_skip, *d_before;
    double *terms; /* [3]: sums of squares of the terms that d_beta, d_decay and d_skip are sums of */
} Results;

/* A number of these three may be almost 0 by cancellation: relative to the norm of their terms. */
static void assert_sum(int64_t n, const float *got, const double *want, double terms, const char *name)
{
    double difference = 0;
    for (int64_t i = 0; i < n; i++)
        difference += (got[i] - want[i]) * (got[i] - want[i]);
    if (!(difference <= TOLERANCE * TOLERANCE * terms))
        fail_msg("%s: error %.3g of its terms' norm, allowed %.3g", name, sqrt(difference / terms),
                 TOLERANCE);
}

static void assert_sums(int64_t gates, int heads, const float *d_beta, const float *d_decay,
                        const float *d_skip, const Results *want)
{
    assert_sum(gates, d_beta, want->d_beta, want->terms[0], "d_beta");
    assert_sum(gates, d_decay, want->d_decay, want->terms[1], "d_decay");
    if (d_skip)
        assert_sum(heads, d_skip, want->d_skip, want->terms[2], "d_skip");
}

static int below(Random *r, int n) { return (int)(random_bits(r) % (uint32_t)n); }
static float uniform(Random *r) { return (float)(random_bits(r) >> 8) / (1 << 24); }

/* ---- the token loop ---- */

/* One token of one head: its vectors, and the states that it meets. */
typedef struct Token {
    const float *x_q, *x_k, *v;
    double *q, *k, *w, beta, q_by, k_by;
} Token;

static double by_length(const BurstScan *s, const float *x, double scale)
{
    double square = BURST_SCAN_EPS;
    for (int i = 0; i < s->key_dim && s->normalize; i++)
        square += (double)x[i] * x[i];
    return s->normalize ? scale / sqrt(square) : scale;
}

static Token token_at(const Sequence *a, int64_t t, int head, double *room)
{
    const BurstScan *s = &a->s;
    const float *x = a->x + t * s->columns;
    const int key_head = head * s->key_heads / s->heads;
    Token k = {.x_q = x + s->q + key_head * s->key_dim,
               .x_k = x + s->k + key_head * s->key_dim,
               .v = x + s->v + head * s->value_dim,
               .q = room,
               .k = room + s->key_dim,
               .w = room + 2 * s->key_dim,
               .beta = a->beta[t * s->heads + head]};
    k.q_by = by_length(s, k.x_q, s->scale), k.k_by = by_length(s, k.x_k, 1);
    for (int i = 0; i < s->key_dim; i++)
        k.q[i] = k.q_by * k.x_q[i], k.k[i] = k.k_by * k.x_k[i];
    return k;
}

/* faded = e^a S; after = faded + k w^T with w = beta (v - faded^T k), or beta v. */
static void step(const Sequence *a, const Token *k, double decay, const double *from, double *faded,
                 double *after)
{
    const int key = a->s.key_dim, value = a->s.value_dim;
    for (int i = 0; i < key * value; i++)
        faded[i] = from ? exp(decay) * from[i] : 0;
    for (int j = 0; j < value; j++) {
        double read = 0;
        for (int i = 0; i < key && a->s.read; i++)
            read += faded[i * value + j] * k->k[i];
        k->w[j] = k->beta * (k->v[j] - read);
        for (int i = 0; i < key; i++)
            after[i * value + j] = faded[i * value + j] + k->k[i] * k->w[j];
    }
}

/* dx += the gradient by x of d . (by x), with by = scale / |x|. */
static void length_back(const BurstScan *s, const float *x, double scale, double by, const double *d,
                        double *dx)
{
    double along = 0;
    for (int i = 0; i < s->key_dim && s->normalize; i++)
        along += d[i] * x[i] * by * by / (scale * scale);
    for (int i = 0; i < s->key_dim; i++)
        dx[i] += by * (d[i] - along * x[i]);
}

/* One token's adjoint; d is the gradient of the state after it and becomes that of the state before it. */
static void step_back(const Sequence *a, const Token *k, int64_t t, int head, const double *faded,
                      const double *after, double *d, const Results *r)
{
    const BurstScan *s = &a->s;
    const int key = s->key_dim, value = s->value_dim, key_head = head * s->key_heads / s->heads;
    const float *d_o = a->d_o + (t * s->heads + head) * value;
    const int64_t gate = t * s->heads + head;
    double *dx = r->dx + t * s->columns, *dv = dx + s->v + head * value;
    double *dq = zero_doubles(key), *dk = zero_doubles(key), *dw = zero_doubles(value), fade = 0;
    for (int i = 0; i < key; i++)
        for (int j = 0; j < value; j++) {
            dq[i] += after[i * value + j] * d_o[j];
            d[i * value + j] += k->q[i] * d_o[j];
            dk[i] += d[i * value + j] * k->w[j];
            dw[j] += d[i * value + j] * k->k[i];
        }
    for (int j = 0; j < value; j++) {
        double read = 0;
        for (int i = 0; i < key && s->read; i++) {
            read += faded[i * value + j] * k->k[i];
            dk[i] -= k->beta * dw[j] * faded[i * value + j];
            d[i * value + j] -= k->beta * dw[j] * k->k[i];
        }
        r->d_beta[gate] += dw[j] * (k->v[j] - read);
        dv[j] += k->beta * dw[j] + (a->skip ? a->skip[head] * d_o[j] : 0);
        r->d_skip[head] += d_o[j] * k->v[j];
        r->terms[0] += pow(dw[j] * (k->v[j] - read), 2);
        r->terms[2] += pow(d_o[j] * k->v[j], 2);
    }
    for (int i = 0; i < key * value; i++) {
        fade += d[i] * faded[i];
        r->terms[1] += pow(d[i] * faded[i], 2);
        d[i] = a->place[t] == 0 ? 0 : exp(a->decay[gate]) * d[i];
    }
    r->d_decay[gate] = a->place[t] == 0 ? 0 : fade;
    length_back(s, k->x_q, s->scale, k->q_by, dq, dx + s->q + key_head * key);
    length_back(s, k->x_k, 1, k->k_by, dk, dx + s->k + key_head * key);
    free(dq), free(dk), free(dw);
}

static void loop_head(const Sequence *a, int head, const Results *r)
{
    const BurstScan *s = &a->s;
    const int64_t each = (int64_t)s->key_dim * s->value_dim;
    double *states = zero_doubles((a->n + 1) * each), *faded = zero_doubles(each),
           *unused = zero_doubles(each);
    double *room = zero_doubles(2 * s->key_dim + s->value_dim), *d = zero_doubles(each);
    for (int64_t i = 0; i < each && a->before; i++)
        states[i] = a->before[head * each + i];
    for (int64_t t = 0; t < a->n; t++) {
        const Token k = token_at(a, t, head, room);
        double *after = states + (t + 1) * each, *o = r->o + (t * s->heads + head) * s->value_dim;
        step(a, &k, a->decay[t * s->heads + head], a->place[t] ? after - each : NULL, faded, after);
        for (int j = 0; j < s->value_dim; j++) {
            o[j] = a->skip ? (double)a->skip[head] * k.v[j] : 0;
            for (int i = 0; i < s->key_dim; i++)
                o[j] += after[i * s->value_dim + j] * k.q[i];
        }
    }
    for (int64_t i = 0; i < each; i++) {
        r->after[head * each + i] = states[a->n * each + i];
        d[i] = a->d_after ? a->d_after[head * each + i] : 0;
    }
    for (int64_t t = a->n - 1; t >= 0; t--) {
        const Token k = token_at(a, t, head, room);
        const double *after = states + (t + 1) * each;
        step(a, &k, a->decay[t * s->heads + head], a->place[t] ? after - each : NULL, faded, unused);
        step_back(a, &k, t, head, faded, after, d, r);
    }
    memcpy(r->d_before + head * each, d, (size_t)each * sizeof *d);
    free(states), free(faded), free(unused), free(room), free(d);
}

static Results loop(const Sequence *a)
{
    const BurstScan *s = &a->s;
    const int64_t gates = a->n * s->heads, state = burst_scan_state(s);
    Results r = {zero_doubles(gates * s->value_dim),
                 zero_doubles(state),
                 zero_doubles(a->n * s->columns),
                 zero_doubles(gates),
                 zero_doubles(gates),
                 zero_doubles(s->heads),
                 zero_doubles(state),
                 zero_doubles(3)};
    for (int head = 0; head < s->heads; head++)
        loop_head(a, head, &r);
    return r;
}

static void free_results(Results *r)
{
    free(r->o), free(r->after), free(r->dx), free(r->d_beta), free(r->d_decay), free(r->d_skip),
        free(r->d_before), free(r->terms);
}

/* ---- drawn sequences ---- */

static BurstScan draw_scan(Random *r)
{
    static const int dims[] = {2, 3, 8, 16, 24, 40};
    BurstScan s = {.key_heads = 1 + below(r, 2),
                   .key_dim = dims[below(r, 6)],
                   .value_dim = dims[below(r, 6)]};
    s.heads = s.key_heads * (1 + below(r, 3));
    s.read = below(r, 3) ? BURST_SCAN_READ_KEY : BURST_SCAN_READ_NONE;
    s.normalize = s.read || below(r, 2);
    s.scale = 1 / sqrt(s.key_dim);
    const int keys = s.key_heads * s.key_dim, values = s.heads * s.value_dim, gap = below(r, 3);
    s.columns = 2 * keys + values + gap;
    if (below(r, 2))
        s.q = 0, s.k = keys, s.v = 2 * keys + gap;
    else
        s.v = 0, s.k = values, s.q = values + keys;
    return s;
}

/* Documents of 1, 2, 3, 31 and drawn lengths. continued: the first goes on from before. */
static int32_t *draw_places(Random *r, int64_t n, bool continued)
{
    static const int lengths[] = {1, 2, 3, 31, 64, 0, 0, 0};
    int32_t *place = malloc((size_t)n * sizeof *place), at = continued ? 1 + below(r, 9) : 0;
    const bool one = below(r, 3) == 0;
    int64_t left = one ? n : 1 + below(r, (int)n);
    for (int64_t t = 0; t < n; t++, at++, left--) {
        if (left == 0) {
            const int length = lengths[below(r, 8)];
            left = length ? length : 1 + below(r, (int)n), at = 0;
        }
        place[t] = at;
    }
    return place;
}

static Sequence draw(Random *r, bool continued)
{
    Sequence a = {.s = draw_scan(r), .n = 1 + below(r, below(r, 2) ? 20 : 300)};
    const int64_t gates = a.n * a.s.heads, state = burst_scan_state(&a.s);
    a.place = draw_places(r, a.n, continued);
    a.x = random_array(r, a.n * a.s.columns), a.d_o = random_array(r, gates * a.s.value_dim);
    a.beta = random_array(r, gates), a.decay = random_array(r, gates);
    const float fast = below(r, 4) ? 0.2f : 30;
    for (int64_t i = 0; i < gates; i++) {
        a.beta[i] = (a.s.read ? 1.9f : 0.1f) * uniform(r);
        a.decay[i] = below(r, 8) ? -fast * uniform(r) : 0;
    }
    a.skip = below(r, 2) ? random_array(r, a.s.heads) : NULL;
    a.before = continued ? random_array(r, state) : NULL;
    a.d_after = continued ? random_array(r, state) : NULL;
    return a;
}

static void free_sequence(Sequence *a)
{
    free(a->place), free(a->x), free(a->beta), free(a->decay), free(a->skip), free(a->before), free(a->d_o);
    free(a->d_after);
}

/* ---- pieces of several ranks ---- */

typedef struct Part {
    int64_t n, first[MOST_PARTS + 1];
    BurstPieces p;
    BurstFold f;
    int32_t number[MOST_PARTS], *place;
    float *x, *beta, *decay, *d_o; /* its rows */
    float *before, *d_after, *o, *dx, *d_beta, *d_decay, *scratch;
} Part;

/* Rows of pieces to or from a rank's own. */
static void copy_rows(const Part *k, const int64_t *border, int64_t width, const float *whole, float *own,
                      float *back)
{
    for (int i = 0; i < k->p.count; i++)
        for (int64_t j = 0; j < (k->first[i + 1] - k->first[i]) * width; j++) {
            const int64_t mine = k->first[i] * width + j, all = border[k->number[i]] * width + j;
            if (whole)
                own[mine] = whole[all];
            else
                back[all] = own[mine];
        }
}

/* Ascending borders of `count` pieces, none empty. */
static int draw_borders(Random *r, int64_t n, int count, int64_t *border)
{
    int pieces = 0;
    border[0] = 0;
    for (int i = 1; i < count; i++) {
        const int64_t at = below(r, 3) ? n * i / count : below(r, (int)n);
        if (at > border[pieces] && at < n)
            border[++pieces] = at;
    }
    border[++pieces] = n;
    return pieces;
}

static void take_part(const Sequence *a, const int64_t *border, Part *k)
{
    const BurstScan *s = &a->s;
    const int64_t state = burst_scan_state(s);
    for (int i = 0; i < k->p.count; i++)
        k->first[i + 1] = k->first[i] + border[k->number[i] + 1] - border[k->number[i]];
    k->n = k->first[k->p.count];
    k->p.first = k->first;
    k->f.number = k->number;
    k->f.pieces = k->p.count;
    k->place = malloc((size_t)k->n * sizeof *k->place);
    for (int i = 0; i < k->p.count; i++)
        memcpy(k->place + k->first[i], a->place + border[k->number[i]],
               (size_t)(k->first[i + 1] - k->first[i]) * sizeof *k->place);
    k->x = zero_floats(k->n * s->columns), k->beta = zero_floats(k->n * s->heads);
    k->decay = zero_floats(k->n * s->heads), k->d_o = zero_floats(k->n * s->heads * s->value_dim);
    copy_rows(k, border, s->columns, a->x, k->x, NULL),
        copy_rows(k, border, s->heads, a->beta, k->beta, NULL);
    copy_rows(k, border, s->heads, a->decay, k->decay, NULL);
    copy_rows(k, border, s->heads * s->value_dim, a->d_o, k->d_o, NULL);
    k->before = zero_floats(k->p.count * state), k->d_after = zero_floats(k->p.count * state);
    k->o = zero_floats(k->n * s->heads * s->value_dim), k->dx = zero_floats(k->n * s->columns);
    k->d_beta = zero_floats(k->n * s->heads), k->d_decay = zero_floats(k->n * s->heads);
    k->scratch = zero_floats(burst_scan_floats(s, k->n));
}

static void free_part(Part *k)
{
    free(k->place), free(k->x), free(k->beta), free(k->decay), free(k->d_o), free(k->before),
        free(k->d_after);
    free(k->o), free(k->dx), free(k->d_beta), free(k->d_decay), free(k->scratch);
}

/* Pieces dealt to ranks; a rank's maps follow each other, as a gather leaves them. */
static int deal(Random *r, int pieces, int ranks, Part *part, int32_t *slot)
{
    int at = 0;
    for (int i = 0; i < pieces; i++) {
        int to = below(r, ranks);
        if (i < 2 * ranks && below(r, 2)) /* zigzag */
            to = i < ranks ? i : 2 * ranks - 1 - i;
        while (part[to].p.count == MOST_PARTS)
            to = (to + 1) % ranks;
        part[to].number[part[to].p.count++] = i;
    }
    for (int rank = 0; rank < ranks; rank++)
        for (int i = 0; i < part[rank].p.count; i++)
            slot[part[rank].number[i]] = at++;
    return at;
}

static void check_chain(Random *r, Sequence *a)
{
    const BurstScan *s = &a->s;
    const int ranks = 1 + below(r, MOST_RANKS), wanted = 1 + below(r, ranks * MOST_PARTS);
    int64_t border[MOST_RANKS * MOST_PARTS + 1], map = burst_scan_map(s), gates = a->n * s->heads;
    int32_t slot[MOST_RANKS * MOST_PARTS];
    Part part[MOST_RANKS] = {0};
    const int pieces = draw_borders(r, a->n, wanted, border);
    deal(r, pieces, ranks, part, slot);
    float *maps = random_array(r, pieces * map), *o = zero_floats(gates * s->value_dim),
          *dx = zero_floats(a->n * s->columns), *d_beta = zero_floats(gates), *d_decay = zero_floats(gates),
          *d_skip = zero_floats(s->heads);
    int at[MOST_RANKS + 1] = {0};
    for (int i = 0; i < ranks; i++) {
        Part *k = part + i;
        k->f.total = pieces, k->f.slot = slot;
        at[i + 1] = at[i] + k->p.count;
        take_part(a, border, k);
        burst_op_scan_map(NULL, k->n, s, &k->p, k->place, k->x, k->beta, k->decay, maps + at[i] * map,
                          k->scratch);
    }
    for (int i = 0; i < ranks; i++) {
        Part *k = part + i;
        burst_op_scan_fold(NULL, s, &k->f, maps, k->before, k->scratch);
        for (int64_t j = 0; j < k->p.count * burst_scan_state(s); j++) /* not to be read */
            if (k->place[k->first[j / burst_scan_state(s)]] == 0)
                k->before[j] = NAN;
        burst_op_scan(NULL, k->n, s, &k->p, k->place, k->x, k->beta, k->decay, a->skip, k->before, k->o, NULL,
                      k->scratch);
        copy_rows(k, border, s->heads * s->value_dim, NULL, k->o, o);
    }
    for (int i = 0; i < ranks; i++)
        burst_op_scan_map_back(NULL, part[i].n, s, &part[i].p, part[i].place, part[i].x, part[i].beta,
                               part[i].decay, part[i].d_o, maps + at[i] * map, part[i].scratch);
    for (int i = 0; i < ranks; i++) {
        Part *k = part + i;
        burst_op_scan_fold_back(NULL, s, &k->f, maps, k->d_after, k->scratch);
        burst_op_scan_back(NULL, k->n, s, &k->p, k->place, k->x, k->beta, k->decay, a->skip, k->before,
                           k->d_o, k->d_after, k->dx, k->d_beta, k->d_decay, d_skip, NULL, k->scratch);
        copy_rows(k, border, s->columns, NULL, k->dx, dx),
            copy_rows(k, border, s->heads, NULL, k->d_beta, d_beta);
        copy_rows(k, border, s->heads, NULL, k->d_decay, d_decay);
        free_part(k);
    }
    Results want = loop(a);
    assert_close(gates * s->value_dim, o, want.o, TOLERANCE);
    assert_close(a->n * s->columns, dx, want.dx, TOLERANCE);
    assert_sums(gates, s->heads, d_beta, d_decay, a->skip ? d_skip : NULL, &want);
    free(maps), free(o), free(dx), free(d_beta), free(d_decay), free(d_skip);
    free_results(&want);
}

/* One piece that goes on from a state and into another. */
static void check_piece(Random *r, Sequence *a)
{
    const BurstScan *s = &a->s;
    const int64_t first[2] = {0, a->n}, gates = a->n * s->heads, state = burst_scan_state(s);
    const BurstPieces p = {1, first};
    float *o = random_array(r, gates * s->value_dim), *after = random_array(r, state),
          *dx = random_array(r, a->n * s->columns), *d_beta = random_array(r, gates),
          *d_decay = random_array(r, gates), *d_skip = zero_floats(s->heads),
          *d_before = random_array(r, state), *scratch = random_array(r, burst_scan_floats(s, a->n));
    burst_op_scan(NULL, a->n, s, &p, a->place, a->x, a->beta, a->decay, a->skip, a->before, o, after,
                  scratch);
    burst_op_scan_back(NULL, a->n, s, &p, a->place, a->x, a->beta, a->decay, a->skip, a->before, a->d_o,
                       a->d_after, dx, d_beta, d_decay, d_skip, d_before, scratch);
    Results want = loop(a);
    assert_close(gates * s->value_dim, o, want.o, TOLERANCE);
    assert_close(state, after, want.after, TOLERANCE);
    assert_close(a->n * s->columns, dx, want.dx, TOLERANCE);
    assert_sums(gates, s->heads, d_beta, d_decay, a->skip ? d_skip : NULL, &want);
    assert_close(state, d_before, want.d_before, TOLERANCE);
    free(o), free(after), free(dx), free(d_beta), free(d_decay), free(d_skip), free(d_before), free(scratch);
    free_results(&want);
}

static void random_scans(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        Random r = {(uint64_t)i * 7919 + 1};
        const bool continued = i % 3 == 0;
        Sequence a = draw(&r, continued);
        printf("case %d: n %ld heads %d/%d dims %d %d read %d normalize %d%s\n", i, (long)a.n, a.s.heads,
               a.s.key_heads, a.s.key_dim, a.s.value_dim, a.s.read, a.s.normalize,
               continued ? " continued" : "");
        if (continued)
            check_piece(&r, &a);
        else
            check_chain(&r, &a);
        free_sequence(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_scans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
