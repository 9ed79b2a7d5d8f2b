/* probe_attention.c: a device's attention rates, from what a program measured (measure.h).
 *
 * The rates are fitted so that the simulation gives the measured times, each by the case that depends on it
 * most. */
#include "tools/measure.h"

#include <math.h>

enum { ROUNDS = 24, DIRECTIONS = 2 };

typedef struct Fit {
    const ProbeCases *cases;
    Device device;
    AttentionRate row[MEASURE_MOST * DIRECTIONS];
    AttentionWork work[MEASURE_MOST][DIRECTIONS];
    double measured[MEASURE_MOST][DIRECTIONS]; /* FLOP/s of the tiles' pairs */
    int at[MEASURE_MOST][DIRECTIONS];          /* index of the row; PROBE_LONG */
} Fit;

static double *rate_at(Fit *f, int i, int direction)
{
    double *own = direction ? &f->device.attention_backward : &f->device.attention_forward;
    return f->at[i][direction] == PROBE_LONG ? own : &f->row[f->at[i][direction]].rate;
}

static double rate_now(const Fit *f, int i, int direction)
{
    return attention_rate(&f->device, direction, f->cases->at[i].head_dim, f->work[i][direction]);
}

/* Work and rate of each case as the simulation counts it. Rows have falling keys, as cases do. */
static void start_fit(Arena *a, const Program *p, const Measured *m, Fit *f)
{
    Piece piece;
    const PosSet all = pos_run(&piece, 0, p->sequence);
    for (int i = 0; i < f->cases->n; i++) {
        const ProbeCase *c = &f->cases->at[i];
        const PairWork w = mask_work(mask_map(a, p, p->layer_mask[i], 64, 64), &all, &all);
        for (int b = 0; b < DIRECTIONS; b++) {
            AttentionWork x = attention_work(p, b, w, p->sequence, p->sequence);
            x.partial *= attention_predicate(p, p->layer_mask[i], c->head_dim);
            f->work[i][b] = x;
            f->measured[i][b] = (b ? 10 : 4) * x.pairs * c->head_dim * f->cases->heads /
                                m->attention[i].seconds[b];
            f->at[i][b] = c->kind == PROBE_LONG ? PROBE_LONG : f->device.rates++;
            *rate_at(f, i, b) = f->measured[i][b];
            if (f->at[i][b] == PROBE_LONG)
                continue;
            AttentionRate *r = &f->row[f->at[i][b]];
            r->kind = (AttentionKind)c->kind, r->backward = b;
            if (r->kind == ATTENTION_HEAD_DIM)
                r->value = c->head_dim;
            else if (r->kind == ATTENTION_KEYS)
                r->value = llround(x.pairs / x.rows);
        }
    }
    f->device.rate = f->row;
}

/* No rate may exceed that of long rows of full tiles, except those of other head_dims. */
static void fit_rates(Fit *f)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < f->cases->n; i++)
            for (int b = 0; b < DIRECTIONS; b++) {
                double *rate = rate_at(f, i, b),
                       most = b ? f->device.attention_backward : f->device.attention_forward;
                *rate *= f->measured[i][b] / rate_now(f, i, b);
                if (f->at[i][b] != PROBE_LONG && f->cases->at[i].kind != ATTENTION_HEAD_DIM)
                    *rate = fmin(*rate, most);
            }
}

static void print_rates(const Fit *f, Text *out)
{
    static const char *const direction[] = {"forward", "backward"}, *const kind[] = {
#define X(id, name) name,
        ATTENTION_KINDS(X)
#undef X
    };
    const double unit = f->cases->unit;
    const char *name = f->cases->unit_name;
    text_printf(out, "  attention forward %.1f %s; attention backward %.1f %s;\n",
                f->device.attention_forward / unit, name, f->device.attention_backward / unit, name);
    for (int i = 0; i < f->device.rates; i++) {
        const AttentionRate *r = &f->row[i];
        text_printf(out, "%sattention %s %s", i % 2 ? " " : "  ", direction[r->backward], kind[r->kind]);
        if (r->value)
            text_printf(out, " %lld", (long long)r->value);
        text_printf(out, " %.1f %s;%s", r->rate / unit, name, i % 2 ? "\n" : "");
    }
}

void probe_print_rates(Arena *a, const Program *p, const ProbeCases *c, const Measured *m, Text *out)
{
    Fit f = {.cases = c};
    start_fit(a, p, m, &f);
    fit_rates(&f);
    print_rates(&f, out);
}

void probe_print_cases(const ProbeCases *c, const Measured *m, Text *out)
{
    text_printf(out, "# attention, %d tokens, %d heads (%d of keys): %s of unmasked pairs\n", c->tokens,
                c->heads, c->kv_heads, c->unit_name);
    for (int i = 0; i < c->n; i++) {
        const MeasuredAttention *x = &m->attention[i];
        const double flops = 4 / c->unit * x->pairs * c->at[i].head_dim * c->heads;
        text_printf(out, "#   %-32s head_dim %3d  forward %5.1f  backward %5.1f\n", c->at[i].mask,
                    c->at[i].head_dim, flops / x->seconds[0], 2.5 * flops / x->seconds[1]);
    }
}

/* ---- measuring ---- */

const Program *probe_program(Arena *a, Diags *d, const char *share, const ProbeCases *c, const char *arch,
                             int gpus)
{
    const char *masks[MEASURE_MOST];
    for (int i = 0; i < c->n; i++)
        masks[i] = c->at[i].mask;
    const MeasureModel m = {masks, c->n, c->heads, c->kv_heads, c->at[0].head_dim, gpus, c->tokens, arch};
    return measure_program(a, d, share, &m);
}

MeasureJob probe_job(Arena *a, const Program *p, const char *share, const ProbeCases *c)
{
    MeasureCase *at = NEW_ARRAY(a, MeasureCase, c->n);
    for (int i = 0; i < c->n; i++)
        at[i] = (MeasureCase){p->layer_mask[i], c->at[i].head_dim, c->at[i].head_dim,
                              c->tokens,        c->heads,          c->kv_heads};
    return (MeasureJob){p, share, true, c->seconds, c->n, at};
}
