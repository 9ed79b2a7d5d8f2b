/* gradients.c: the main of an emitted program under test: gradients of every weight, and the loss, of two
 * sequences a data group, against the float64 oracle with the same weights.
 *
 *     program [--spoil | --bf16 | --small | --documents 1,2,31] MASK ...     the masks' texts, one a layer
 * (numerics/test_masks.h)
 *
 * Prints "loss E worst E TENSOR tensors N sent N" with relative errors, and what attention of all ranks sent,
 * in bytes (0 on GPUs); exits with 1 where one is over the tolerance: of fp32, or of bf16 where the program
 * is one of GPUs: weights are then rounded to bf16 before, and a gradient may be off by more where rounding
 * of the oracle's own results to bf16 gives nearly as much. --bf16: gradients are kept in bf16, and rounded
 * there twice at most: they are off by that, and by no less. --small: shapes so small that whole gradients
 * nearly cancel, and are off by what the values above them round: one below a hundredth of the gradient of
 * all weights is judged against that hundredth.
 * A main that is linked with records of a program's choices of experts (programs/choices.cu), or of the lists
 * of its selections (programs/lists.c), gives them to the oracle, and asks that nearly all are its own.
 * --documents: lengths of the first documents; what is left is another. Else they have random lengths.
 * --spoil tells the oracle that every sequence has one ignored label fewer: it must fail.
 */
#include "test_masks.h"
#include "whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const BurstPlan burst_plan;

enum { TURNS = 2 }; /* sequences a data group: gradients are added up */
static const double tolerance[] = {1e-5, 3e-2}; /* on the host, on GPUs */
/* The same of models with scans on the host: half a unit in the last place of fp32 in the weights alone
 * changes gradients of four such layers by 1e-5 to 1.7e-4 in float64. */
static const double scan_tolerance = 1e-4;
/* On GPUs, beyond what rounding of results to bf16 alone does to a gradient. */
static const double rounding = 1.5;
/* Of choices that the oracle is given, those that are its own too, at least. */
static const double agreement = 0.99;
/* the same of blocks that selections choose: their scores are products of rounded queries and keys */
static const double alike_blocks = 0.9;
/* Where a program's choices were recorded: [turns][layers with experts][tokens][top], of one rank. */
__attribute__((weak)) const int32_t *recorded_choices(int64_t *count);
/* Where lists of selections were recorded: [turns][layers with a selection][tiles][lists][top]. */
__attribute__((weak)) const int32_t *recorded_lists(int64_t *count);
/* Of two scores of experts: what rounding of fp32 may put in another order; and of a value and a bound where
 * a slope jumps: on its other side. */
static const double close = 2e-6;
static const double rounded_least = 5e-4, rounded_most = 5e-3;

typedef struct Options { const TestMask **mask; bool spoil, bf16, small; } Options;
static const char *documents; /* lengths; NULL: random ones */

/* splitmix64 of (stream, index), in [0, 1). */
static double uniform(uint64_t stream, uint64_t i)
{
    uint64_t z = stream * 0x9E3779B97F4A7C15u + (i + 1) * 0xD1B54A32D192ED03u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

/* Documents of the given lengths, one after the other, and one of what is left. */
static void set_documents(int64_t n, int32_t *doc)
{
    const char *at = documents;
    int32_t number = 0;
    for (int64_t i = 0; i < n; number++) {
        const int64_t length = *at ? strtol(at, (char **)&at, 10) : n;
        at += *at == ',';
        for (const int64_t end = i + length; i < n && i < end; i++)
            doc[i] = number;
    }
}

/* A pure function of the sequence's number. */
static void fill_sequence(int64_t n, int vocab, uint64_t number, Sequence *s)
{
    s->counted = 0;
    int32_t doc = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)i;
        s->token[i] = (int32_t)(uniform(4 * number, at) * vocab);
        s->label[i] = uniform(4 * number + 1, at) < 0.2 ? -1 : (int32_t)(uniform(4 * number, at + 1) * vocab);
        s->weight[i] = uniform(4 * number + 2, at) < 0.3 ? 0.5 : 1;
        s->weight[i] = uniform(4 * number + 2, at) < 0.15 ? 0 : s->weight[i];
        s->doc[i] = doc += uniform(4 * number + 3, at) < 0.1;
        s->counted += s->label[i] >= 0 && s->weight[i] != 0;
    }
    if (documents)
        set_documents(n, s->doc);
}

static float bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* First weights are small, which leaves attention nearly uniform: make them count, norms other than one and
 * biases other than zero, of each expert others: what all experts add has no gradient of the choice. bf16
 * needs scores of which several count: peaked ones change by more than its errors (with biases of keys near
 * one, torch's own bf16 misses their gradient by 4e-2 to 6e-2). */
static void stir_weights(BurstCtx *c, const BurstPlan *p, BurstWeights *w)
{
    for (int u = 0; u < w->units; u++) {
        const BurstUnit *unit = burst_unit(p, u);
        for (const BurstTensor *t = unit->tensor; t < unit->tensor + unit->tensors; t++) {
            const float middle = t->init_std < 0 ? 0 : 1;
            for (BurstRun r = {0}; burst_next_run(p, burst_rank(c), unit, t, &r);)
                for (int64_t i = 0; i < r.count; i++) {
                    float *at = &w->param[u][r.at + i];
                    const float wider = *at * (p->on_gpu ? 3 : 12);
                    *at = t->init_std <= 0
                              ? middle + 0.2f * (float)sin((double)(r.from + i + 7 * (t - unit->tensor)))
                              : wider;
                    *at = p->on_gpu ? bf16_of(*at) : *at;
                }
        }
    }
}

/* The table by which RoPE turns, where the plan has one: it begins anew in each document. */
static int32_t *positions_of(const BurstPlan *p, const int32_t *doc)
{
    bool has = false;
    for (int t = 0; t < p->table_count; t++)
        has = has || strcmp(p->tables[t], "position") == 0;
    int32_t *position = has ? calloc((size_t)p->sequence, sizeof *position) : NULL;
    for (int64_t i = 1; position && i < p->sequence; i++)
        position[i] = doc[i] == doc[i - 1] ? position[i - 1] + 1 : 0;
    return position;
}

/* Of a sequence, [layers][tokens in their order][top]; NULL: none were recorded. The caller frees. */
static int32_t *choices_of(const Whole *x, int turn)
{
    const BurstPlan *p = x->p;
    const int64_t of_layer = p->sequence * p->experts.top;
    int64_t count = 0, each = 0;
    for (int l = 0; x->dense && l < p->layers; l++)
        each += x->dense[l] ? 0 : of_layer;
    const int32_t *all = recorded_choices && p->experts.experts ? recorded_choices(&count) : NULL;
    if (!all || p->world != 1)
        return NULL;
    int32_t *choice = calloc((size_t)(p->layers * of_layer), sizeof *choice);
    if (!choice || count != TURNS * each)
        fprintf(stderr, "%lld choices were recorded, and %lld made\n", (long long)count,
                (long long)(TURNS * each)),
            exit(1);
    const int32_t *from = all + turn * each;
    for (int l = 0; l < p->layers; l++)
        for (int64_t i = 0; !x->dense[l] && i < p->sequence; i++, from += p->experts.top)
            memcpy(choice + l * of_layer + p->position(0, i) * p->experts.top, from,
                   sizeof *choice * (size_t)p->experts.top);
    return choice;
}

/* Numbers in a layer's recorded lists of a sequence. */
static int64_t lists_size(const Whole *x, const Select64 *s)
{
    const int of[] = {x->shape.heads, x->shape.kv_heads, 1};
    return s ? (x->p->sequence + 127) / 128 * of[s->heads] * s->top : 0;
}

/* Those of a layer; NULL: none were recorded. */
static const int32_t *lists_of(const Whole *x, const Options *o, int turn, int layer)
{
    int64_t count = 0, each = 0, before = 0;
    const int32_t *all = recorded_lists ? recorded_lists(&count) : NULL;
    for (int i = 0; i < x->p->layers; i++) {
        before += i < layer ? lists_size(x, o->mask[i]->select) : 0;
        each += lists_size(x, o->mask[i]->select);
    }
    if (!all)
        return NULL;
    if (count != TURNS * each || x->p->data != 1)
        fprintf(stderr, "%lld numbers of lists were recorded, and %lld made\n", (long long)count,
                (long long)(TURNS * each)),
            exit(1);
    return all + turn * each + before;
}

static void oracle(const Whole *x, const Options *o, const double *w, double scale, double *loss,
                   double *grad)
{
    Mask64 mask[x->p->layers];
    MaskView view[x->p->layers];
    Sequence s = sequence_new(x->p->sequence);
    for (int i = 0; i < TURNS * x->p->data; i++) {
        fill_sequence(x->p->sequence, x->p->vocab, (uint64_t)i, &s);
        for (int layer = 0; layer < x->p->layers; layer++) {
            view[layer] = (MaskView){o->mask[layer], s.doc};
            mask[layer] = (Mask64){mask_view_keep, &view[layer], view[layer].mask->select, view[layer].doc,
                                   lists_of(x, o, i, layer)};
        }
        for (int64_t t = 0; o->spoil && t < x->p->sequence; t++)
            if (s.label[t] < 0) {
                s.label[t] = 0, s.weight[t] = 1;
                break;
            }
        int32_t *choice = choices_of(x, i);
        Batch64 b = {x->p->sequence, s.token, s.label, s.weight, mask, choice};
        Shape64 shape = x->shape;
        int32_t *position = positions_of(x->p, s.doc);
        shape.position = x->p->layer.scan ? NULL : position;
        shape.place = position;
        *loss += model64_sequence(&shape, w, &b, scale, grad);
        free(position), free(choice);
    }
    sequence_free(&s);
}

/* What this rank sees of a sequence; the arrays are [tokens of the rank]. */
typedef struct Local { int32_t *token, *label; float *weight; } Local;

/* As many as have the same chunk and a lower number. */
static int group_of(const BurstPlan *p, int rank)
{
    int group = 0;
    for (int r = 0; r < rank; r++)
        group += p->chunk_of(r) == p->chunk_of(rank);
    return group / (p->tensor ? p->tensor : 1);
}

static int run_plan(Whole *x, void *state, BurstWeights *w, double scale, double *loss)
{
    const BurstPlan *p = x->p;
    int group = group_of(p, burst_rank(x->c)), chunk = p->chunk_of(burst_rank(x->c));
    const BurstOwn own = burst_own_tokens(p, burst_rank(x->c), p->tokens_of(chunk));
    const int64_t n = own.tokens;
    Sequence s = sequence_new(p->sequence);
    Local l = {calloc((size_t)n + 1, sizeof(int32_t)), calloc((size_t)n + 1, sizeof(int32_t)),
               calloc((size_t)n + 1, sizeof(float))};
    int status = l.token && l.label && l.weight ? BURST_OK : BURST_E_MEMORY;
    for (int turn = 0; turn < TURNS && status == BURST_OK; turn++) {
        fill_sequence(p->sequence, p->vocab, (uint64_t)(turn * p->data + group), &s);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = p->position(chunk, own.first + i);
            l.token[i] = s.token[at], l.label[i] = s.label[at], l.weight[i] = (float)s.weight[at];
        }
        BurstBatch b = {l.token, l.label, l.weight, {{0}}};
        int32_t *position = positions_of(p, s.doc);
        for (int t = 0; t < p->table_count; t++)
            b.tables.table[t] = strcmp(p->tables[t], "position") == 0 ? position : s.doc;
        double sum = 0;
        status = p->sequence_step(x->c, state, w, &b, scale, &sum);
        *loss += sum;
        free(position);
    }
    free(l.token), free(l.label), free(l.weight);
    sequence_free(&s);
    return status;
}

static double square(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

/* least: the smallest square that the error is relative to. */
static double relative(const double *is, const double *should, int64_t n, double least)
{
    double error = 0, size = fmax(square(should, n), least);
    for (int64_t i = 0; i < n; i++)
        error += (is[i] - should[i]) * (is[i] - should[i]);
    return sqrt(error / (size > 0 ? size : 1));
}

static double tolerance_of(const BurstPlan *p)
{
    return p->layer.scan && !p->on_gpu ? scan_tolerance : tolerance[p->on_gpu];
}

/* What a program computed, and what is right. */
typedef struct Result {
    const double *weights, *grad; /* of all tensors */
    double *right;
    double loss, right_loss;
    double scale, sent; /* of the loss's gradient; bytes */
} Result;

static double error_of(const Tensor64 *t, const double *is, const double *should, double least)
{
    return relative(is + t->offset, should + t->offset, t->rows * t->cols, least);
}

/* Whether no gradient over the tolerance is off by more than ROUNDING times what the oracle's own is off
 * where it rounds results to bf16. Sums over all tokens may nearly cancel, such as a bias's. */
static bool is_rounding(const Whole *x, const Options *o, const Result *r)
{
    double *rounded = new64(x->count), loss = 0, most = 0;
    bool all = true;
    rounds64 = true;
    oracle(x, o, r->weights, r->scale, &loss, rounded);
    rounds64 = false;
    for (int i = 0; i < x->tensors; i++) {
        const double alone = error_of(&x->tensor[i], rounded, r->right, 0);
        all &= error_of(&x->tensor[i], r->grad, r->right, 0) <= fmax(tolerance_of(x->p), rounding * alone);
        most = fmax(most, alone);
    }
    printf("rounding to bf16 alone: %.2e at most\n", most);
    free(rounded);
    return all;
}

static bool is_good(const Whole *x, const Options *o, const Result *r, double worst)
{
    if (o->bf16)
        return worst >= rounded_least && worst <= rounded_most;
    return worst <= tolerance_of(x->p) || (x->p->on_gpu && !o->small && is_rounding(x, o, r));
}

/* Of the program's gradients, relative to the right ones. */
typedef struct Errors {
    double worst, all; /* all: the sum of squares over tensors */
    const char *where;
    int sides; /* values that were taken to be on the other side of a bound */
} Errors;

static Errors errors_of(const Whole *x, const Options *o, const double *is, const double *right)
{
    const double least = o->small ? 1e-4 * square(right, x->count) : 0;
    Errors e = {0, 0, "-"};
    for (int i = 0; i < x->tensors; i++) {
        const double error = error_of(&x->tensor[i], is, right, least);
        e.all += error * error;
        if (!(error <= e.worst))
            e.worst = error, e.where = x->tensor[i].name;
    }
    return e;
}

/* Of values so close to a bound where a slope jumps that fp32 may be on its other side, those are taken to be
 * there which bring the right gradients nearer to the program's; what is left is judged as ever. */
static Errors take_sides(const Whole *x, const Options *o, const Result *r, Errors e)
{
    const int found = kinks64.found < KINKS64 ? kinks64.found : KINKS64;
    double *other = new64(x->count), loss;
    for (int i = 0; i < found && e.worst > tolerance_of(x->p); i++) {
        memset(other, 0, sizeof *other * (size_t)x->count);
        kinks64.found = 0, kinks64.other[i] = true, loss = 0;
        oracle(x, o, r->weights, r->scale, &loss, other);
        Errors then = errors_of(x, o, r->grad, other);
        then.sides = e.sides + 1;
        kinks64.other[i] = then.all < e.all;
        if (kinks64.other[i])
            memcpy(r->right, other, sizeof *other * (size_t)x->count), e = then;
    }
    free(other);
    return e;
}

static int judge(const Whole *x, const Options *o, const Result *r)
{
    const double loss_error = relative(&r->loss, &r->right_loss, 1, 0);
    Errors e = errors_of(x, o, r->grad, r->right);
    if (e.worst > tolerance_of(x->p) && kinks64.found)
        e = take_sides(x, o, r, e);
    printf("loss %.2e worst %.2e %s tensors %d sent %.0f\n", loss_error, e.worst, e.where, x->tensors,
           r->sent);
    if (e.sides)
        printf("values within %.0e of a bound: %d, beyond it by rounding: %d\n", close, kinks64.found,
               e.sides);
    if (select64_given) {
        const double own = (double)select64_agreed / (double)select64_given;
        printf("blocks as the oracle's: %.4f\n", own);
        if (own < alike_blocks)
            return burst_fail(x->c, BURST_E_NUMERIC, "%.4f of the chosen blocks are the oracle's", own);
    }
    if (recorded_choices && x->shape.experts) {
        int chosen = 0;
        for (int l = 0; l < x->p->layers; l++)
            chosen += !x->dense[l];
        const double all = TURNS * (double)(chosen * x->p->sequence * x->shape.top);
        printf("choices as the oracle's: %.4f\n", (double)x->agreed / all);
        if ((double)x->agreed / all < agreement)
            return burst_fail(x->c, BURST_E_NUMERIC, "%.4f of the choices are the oracle's",
                              (double)x->agreed / all);
    } else if (x->gap < close) {
        printf("scores of experts %.1e apart: fp32 may choose another, and the loss alone is compared\n",
               x->gap);
        return loss_error <= tolerance[x->p->on_gpu] ? BURST_OK : BURST_E_NUMERIC;
    }
    if (loss_error <= tolerance[x->p->on_gpu] && is_good(x, o, r, e.worst))
        return BURST_OK;
    return burst_fail(x->c, BURST_E_NUMERIC, "loss %.9g is off by %.2e, the gradient of %s by %.2e", r->loss,
                      loss_error, e.where, e.worst);
}

static double counted_tokens(const BurstPlan *p)
{
    double counted = 0;
    Sequence s = sequence_new(p->sequence);
    for (int i = 0; i < TURNS * p->data; i++) {
        fill_sequence(p->sequence, p->vocab, (uint64_t)i, &s);
        counted += s.counted;
    }
    sequence_free(&s);
    return counted;
}

static int compare(Whole *x, const Options *o, void *state, BurstWeights *w)
{
    /* weights, gradients, right gradients */
    double *at[3] = {new64(x->count), new64(x->count), new64(x->count)};
    const double counted = counted_tokens(x->p), scale = counted > 0 ? 1 / counted : 0;
    double loss = 0, right_loss = 0;
    BURST_TRY(whole_weights(x, w->param, at[0]));
    BURST_TRY(run_plan(x, state, w, scale, &loss));
    double sum[2] = {loss, (double)burst_sent_bytes(x->c)};
    BURST_TRY(burst_allreduce(x->c, (BurstGroup){0, 1, x->p->world}, sum, 2));
    BURST_TRY(x->p->save ? x->p->save(x->c, state, w) : BURST_OK);
    if (!w->grad[0])
        return burst_fail(x->c, BURST_E_USAGE,
                          "with `update device` gradients stay on the device; use `update host`");
    BURST_TRY(whole_weights(x, w->grad, at[1]));
    int status = BURST_OK;
    if (burst_rank(x->c) == 0) {
        kinks64.near = x->p->on_gpu ? 0 : close;
        oracle(x, o, at[0], scale, &right_loss, at[2]);
        status = judge(x, o, &(Result){at[0], at[1], at[2], sum[0], right_loss, scale, sum[1]});
    }
    free(at[0]), free(at[1]), free(at[2]);
    return status;
}

static int body(BurstCtx *c, const BurstPlan *p, void *arg)
{
    BurstWeights w;
    Whole x;
    void *state = calloc(1, p->state_bytes + 1);
    if (!state)
        return burst_fail(c, BURST_E_MEMORY, "no memory");
    BURST_TRY(whole_open(&x, c, p));
    BURST_TRY(burst_weights_make(c, p, &w));
    stir_weights(c, p, &w);
    BURST_TRY(p->start(c, state, &w));
    BURST_TRY(compare(&x, arg, state, &w));
    whole_close(&x);
    free(state);
    return BURST_OK;
}

int main(int argc, char **argv)
{
    const char *option = argc > 1 ? argv[1] : "";
    Options o = {calloc((size_t)argc, sizeof *o.mask), strcmp(option, "--spoil") == 0,
                 strcmp(option, "--bf16") == 0, strcmp(option, "--small") == 0};
    documents = strcmp(option, "--documents") == 0 && argc > 2 ? argv[2] : NULL;
    int first = 1 + (o.spoil || o.bf16 || o.small) + (documents ? 2 : 0), layers = argc - first;
    for (int i = 0; i < layers; i++)
        if (!(o.mask[i] = test_mask_named(argv[first + i])))
            return 2;
    if (layers != burst_plan.layers) {
        fprintf(stderr, "usage: %s [--spoil | --bf16 | --small | --documents N,N] MASK ... (%d layers)\n",
                argv[0], burst_plan.layers);
        return 2;
    }
    BurstPlan p = burst_plan;
    p.arena_bytes += whole_arena(&p);
    int code = burst_launch(&p, 1, argv, body, &o);
    free(o.mask);
    return code;
}
