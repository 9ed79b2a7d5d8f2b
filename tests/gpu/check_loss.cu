/* check_loss.cu: the fused head and loss over two tiles, with tokens that do not count and a vocabulary of
 * odd size, and the next token; with a bias of the head and a softcap of logits, and without. */
#include "check.h"

#include <math.h>
#include <string.h>

enum { N = 4300, HIDDEN = 64, VOCAB = 1003, TILE = 4096 };
static const double loss_scale = 1.0 / 4000, BIAS_SCALE = 0.75;

typedef struct Case {
    bool biased;
    double softcap;
} Case;
typedef struct Reference {
    double loss;
    Doubles dx, dw, d_bias;
} Reference;

static void token_reference(const Case &c, const Floats &x, const Floats &w, const Floats &bias, int label,
                            double weight, size_t token, Reference *r)
{
    Doubles logit(VOCAB);
    double top = -INFINITY, sum = 0;
    for (int v = 0; v < VOCAB; v++) {
        for (int j = 0; j < HIDDEN; j++)
            logit[v] += (double)w[(size_t)v * HIDDEN + j] * x[token * HIDDEN + j];
        logit[v] += c.biased ? BIAS_SCALE * bias[v] : 0;
        logit[v] = c.softcap > 0 ? c.softcap * tanh(logit[v] / c.softcap) : logit[v];
        top = fmax(top, logit[v]);
    }
    for (double l : logit)
        sum += exp(l - top);
    r->loss += weight * (log(sum) + top - logit[label]);
    for (int v = 0; v < VOCAB; v++) {
        const double part = c.softcap > 0 ? logit[v] / c.softcap : 0;
        const double d = loss_scale * weight * (exp(logit[v] - top) / sum - (v == label)) * (1 - part * part);
        r->d_bias[v] += BIAS_SCALE * d;
        for (int j = 0; j < HIDDEN; j++) {
            r->dx[token * HIDDEN + j] += d * w[(size_t)v * HIDDEN + j];
            r->dw[(size_t)v * HIDDEN + j] += d * x[token * HIDDEN + j];
        }
    }
}

typedef struct Result {
    double loss, alone; /* alone: without gradients */
    Floats dx, dw, d_bias;
} Result;

static Result on_device(Check *k, const Case &c, const Floats &x, const Floats &w, const Floats &bias,
                        const std::vector<int32_t> &label, const Floats &weight, const Floats &dw0)
{
    Result r;
    double *sum = (double *)up(k, Floats(2)); /* zero */
    BurstBf16 *dx = (BurstBf16 *)poisoned(k, x.size() * sizeof *dx);
    Floats both = w, sums = dw0; /* the bias follows the matrix */
    both.insert(both.end(), bias.begin(), bias.end());
    sums.resize(both.size());
    float *dw = up(k, sums);
    void *scratch = poisoned(k, (size_t)burst_gpu_loss_bytes(TILE, VOCAB));
    MUST(k,
         burst_op_loss_head(k->g, N, HIDDEN, VOCAB, TILE, c.biased ? 2 : 1, c.softcap, BIAS_SCALE,
                            up_bf16(k, x), up_bf16(k, both), up(k, label), up(k, weight), loss_scale, sum,
                            dx, dw, scratch));
    MUST(k, burst_gpu_download(k->g, sum, sizeof r.loss, &r.loss));
    double *alone = (double *)up(k, Floats(2));
    MUST(k, burst_op_evaluate(k->g, N, HIDDEN, VOCAB, TILE, c.biased ? 2 : 1, c.softcap, BIAS_SCALE,
                              up_bf16(k, x), up_bf16(k, both), up(k, label), up(k, weight), alone, scratch));
    MUST(k, burst_gpu_download(k->g, alone, sizeof r.alone, &r.alone));
    r.dx = down_bf16(k, dx, x.size());
    r.dw = down(k, dw, w.size());
    r.d_bias = down(k, dw + w.size(), VOCAB);
    return r;
}

static bool same_bits(const Result &a, const Result &b)
{
    return a.loss == b.loss && memcmp(a.dx.data(), b.dx.data(), a.dx.size() * sizeof(float)) == 0 &&
           memcmp(a.dw.data(), b.dw.data(), a.dw.size() * sizeof(float)) == 0 &&
           memcmp(a.d_bias.data(), b.d_bias.data(), VOCAB * sizeof(float)) == 0;
}

static void check_case(Check *k, const Case &c)
{
    const Floats x = random_bf16(N * HIDDEN, 71, 2), w = random_bf16(VOCAB * HIDDEN, 72, 0.5),
                 dw0 = random_floats(VOCAB * HIDDEN, 75, 1e-2), bias = random_bf16(VOCAB, 76, 1);
    std::vector<int32_t> label = random_ints(N, 73, VOCAB);
    Floats weight = random_floats(N, 74, 0.5);
    Reference want = {0, Doubles(x.size()), Doubles(dw0.begin(), dw0.end()), Doubles(VOCAB)};
    for (size_t i = 0; i < N; i++) {
        weight[i] = i % 7 == 3 ? 0 : fabsf(weight[i]) + 0.5f;
        label[i] = i % 5 == 1 ? -1 : label[i];
        if (weight[i] != 0 && label[i] >= 0)
            token_reference(c, x, w, bias, label[i], weight[i], i, &want);
    }
    const Result got = on_device(k, c, x, w, bias, label, weight, dw0),
                 again = on_device(k, c, x, w, bias, label, weight, dw0);
    compare(k, "loss", Floats{(float)got.loss}, Doubles{want.loss}, 1e-6);
    compare(k, "loss alone", Floats{(float)got.alone}, Doubles{want.loss}, 1e-6);
    compare(k, "loss, dx", got.dx, want.dx, 4e-3); /* logits' gradients are rounded, then dx */
    compare(k, "loss, dw", got.dw, want.dw, BF16);
    if (c.biased)
        compare(k, "loss, d_bias", got.d_bias, want.d_bias, BF16);
    expect(k, "loss, same bits", same_bits(got, again));
}

/* The last token's logits, and the greatest of them, of which another word has the same before it. */
static void check_next(Check *k, const Case &c)
{
    enum { ROWS = 3, FIRST = 5, EQUAL = 900 };
    const Floats x = random_bf16(ROWS * HIDDEN, 81, 1), bias = random_bf16(VOCAB, 83, 0.1);
    Floats w = random_bf16(VOCAB * HIDDEN, 82, 0.1), both;
    for (int j = 0; j < HIDDEN; j++)
        w[FIRST * HIDDEN + j] = w[EQUAL * HIDDEN + j] = x[(ROWS - 1) * HIDDEN + j] > 0 ? 0.25f : -0.25f;
    both = w;
    both.insert(both.end(), bias.begin(), bias.end());
    both[both.size() - VOCAB + FIRST] = both[both.size() - VOCAB + EQUAL];
    Doubles logit(VOCAB);
    for (int v = 0; v < VOCAB; v++) {
        for (int j = 0; j < HIDDEN; j++)
            logit[v] += (double)w[(size_t)v * HIDDEN + j] * x[(ROWS - 1) * HIDDEN + j];
        logit[v] += c.biased ? BIAS_SCALE * both[both.size() - VOCAB + v] : 0;
        logit[v] = c.softcap > 0 ? c.softcap * tanh(logit[v] / c.softcap) : logit[v];
    }
    float *scratch = (float *)poisoned(k, (size_t)burst_gpu_next_bytes(VOCAB));
    int32_t *found = up(k, std::vector<int32_t>{-1, -1}), next = -1;
    for (int row : {ROWS - 1, -1}) { /* the second does nothing */
        const BurstBf16 *head = up_bf16(k, both);
        MUST(k, burst_op_next(k->g, row, HIDDEN, VOCAB, c.softcap, BIAS_SCALE, up_bf16(k, x), head,
                              c.biased ? head + VOCAB * HIDDEN : NULL, found, scratch));
        MUST(k, burst_gpu_download(k->g, found, sizeof next, &next));
        expect(k, "next token", next == FIRST);
    }
    compare(k, "next token, logits", down(k, scratch, VOCAB), logit, 1e-5);
    enum { CUT = VOCAB / 3 / 8 * 8 };
    const BurstBf16 *last = up_bf16(k, x) + (ROWS - 1) * HIDDEN, *head = up_bf16(k, both);
    float *parts = (float *)poisoned(k, (size_t)burst_gpu_next_bytes(VOCAB));
    MUST(k, burst_op_head_logits(k->g, HIDDEN, CUT, VOCAB - CUT, last, head, parts));
    MUST(k, burst_op_head_logits(k->g, HIDDEN, 0, CUT, last, head, parts));
    MUST(k, burst_op_head_greatest(k->g, VOCAB, c.softcap, BIAS_SCALE,
                                   c.biased ? head + VOCAB * HIDDEN : NULL, found, parts));
    MUST(k, burst_gpu_download(k->g, found, sizeof next, &next));
    expect(k, "next token, in parts", next == FIRST);
    compare(k, "next token, logits in parts", down(k, parts, VOCAB), logit, 1e-5);
}

void check_loss(Check *k)
{
    for (const Case &c : {Case{false, 0}, Case{true, 0}, Case{false, 3}, Case{true, 3}}) {
        check_case(k, c);
        check_next(k, c);
    }
}
