/* host/ops/loss.c: LM head and cross entropy fused over tiles of tokens; forward and backward in one pass
 * (BurstEngine, 3.3).
 *
 * A tile's logits are in scratch and are replaced by their gradients in place, so each product is computed
 * once. */
#include "burst_step.h"
#include "burst_sizes.h"
#include "host/ops/vec.h"

static const float LOG2E = 1.44269504088896340736f;

static float greatest(int n, const float *x)
{
    float top = x[0];
    int i = 0;
    if (n >= VEC) {
        Vec tops = vec_load(x);
        for (; i + VEC <= n; i += VEC)
            tops = vec_max(tops, vec_load(x + i));
        for (int lane = 0; lane < VEC; lane++)
            top = tops[lane] > top ? tops[lane] : top;
    }
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

/* x = exp(x - top); returns the sum, in double across vectors, so that a large vocabulary loses no
 * digits. */
static double exponentials(int n, float top, float *x)
{
    VecDouble low = {0}, high = {0};
    int i = 0;
    for (; i + VEC <= n; i += VEC) {
        vec_store(x + i, vec_exp2((vec_load(x + i) - top) * LOG2E));
        low += vec_load_doubles(x + i);
        high += vec_load_doubles(x + i + VEC_DOUBLES);
    }
    double total = vec_total(low, high);
    for (; i < n; i++) {
        x[i] = expf(x[i] - top);
        total += (double)x[i];
    }
    return total;
}

/* x = cap tanh(x / cap). */
static void cap_logits(int n, float cap, float *x)
{
    int i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(x + i, vec_tanh(vec_load(x + i) / cap) * cap);
    for (; i < n; i++)
        x[i] = cap * tanhf(x[i] / cap);
}

/* Returns the sum of exp(x - top) and keeps x, which the gradients of capped logits need. */
static double exponentials_apart(int n, float top, const float *x)
{
    enum { BLOCK = 256 };
    float piece[BLOCK];
    double total = 0;
    for (int i = 0; i < n; i += BLOCK) {
        const int count = n - i < BLOCK ? n - i : BLOCK;
        memcpy(piece, x + i, (size_t)count * sizeof *piece);
        total += exponentials(count, top, piece);
    }
    return total;
}

/* token_loss with capped logits: each gradient has the cap's slope, 1 - (y / cap)^2 with y = cap tanh(x /
 * cap). */
static double capped_loss(int vocab, int32_t label, float weight, double scale, float cap, float *logit)
{
    cap_logits(vocab, cap, logit);
    const float top = greatest(vocab, logit), at_label = logit[label];
    const double sum = exponentials_apart(vocab, top, logit), factor = scale * weight;
    const float share = (float)(factor / sum), label_share = expf(at_label - top);
    int i = 0;
    for (; i + VEC <= vocab; i += VEC) {
        const Vec y = vec_load(logit + i), part = y / cap;
        vec_store(logit + i, share * vec_exp2((y - top) * LOG2E) * (1.0f - part) * (1.0f + part));
    }
    for (; i < vocab; i++) {
        const float part = logit[i] / cap;
        logit[i] = share * expf(logit[i] - top) * (1 - part) * (1 + part);
    }
    const double part = (double)at_label / cap;
    logit[label] = (float)(factor * (label_share / sum - 1) * (1 - part) * (1 + part));
    return weight * (log(sum) - ((double)at_label - top));
}

/* Replaces one token's logits by scale * weight * (softmax - onehot); returns weight * (lse -
 * logit[label]). */
static double token_loss(int vocab, int32_t label, float weight, double scale, double softcap, float *logit)
{
    if (label < 0 || weight == 0) {
        memset(logit, 0, (size_t)vocab * sizeof *logit);
        return 0;
    }
    if (softcap > 0)
        return capped_loss(vocab, label, weight, scale, (float)softcap, logit);
    float top = greatest(vocab, logit);
    double hit = (double)logit[label] - top;
    double sum = exponentials(vocab, top, logit), factor = scale * weight;
    float share = (float)(factor / sum);
    /* computed for the label before scaling: near 1 the difference would lose its digits afterwards */
    float at_label = (float)(factor * (logit[label] / sum - 1));
    for (int i = 0; i < vocab; i++)
        logit[i] *= share;
    logit[label] = at_label;
    return weight * (log(sum) - hit);
}

static bool any_counts(int64_t n, const int32_t *label, const float *weight)
{
    for (int64_t i = 0; i < n; i++)
        if (label[i] >= 0 && weight[i] != 0)
            return true;
    return false;
}

/* dw += beside. The rounding error stays in beside, so dw's error does not grow with the number of
 * additions. */
static void add_separate(int64_t count, float *separate, float *dw)
{
    for (int64_t i = 0; i < count; i++) {
        const float before = dw[i], sum = before + separate[i], added = sum - before;
        separate[i] = (before - (sum - added)) + (separate[i] - added);
        dw[i] = sum;
    }
}

static void add_bias(int64_t tokens, int vocab, float scale, const float *bias, float *logits)
{
    for (int64_t i = 0; i < tokens; i++)
        for (int j = 0; j < vocab; j++)
            logits[i * vocab + j] += scale * bias[j];
}

/* The gradients are not read afterwards. */
static int bias_back(BurstExec *e, int64_t tokens, int vocab, double scale, float *gradients, float *d_bias)
{
    if (scale != 1)
        BURST_TRY(burst_op_scale(e, tokens, vocab, scale, gradients, NULL, gradients));
    return burst_op_bias_back(e, tokens, vocab, gradients, d_bias);
}

int burst_op_loss_head(BurstExec *e, int64_t n, int hidden, int vocab, int64_t tile, int tensors,
                       double softcap, double bias_scale, const BurstAct *x, const BurstAct *w,
                       const int32_t *label, const float *weight, double scale, double *loss,
                       BurstAct *dx, float *dw, void *scratch)
{
    enum { TOGETHER = 64 }; /* tiles that are summed separately before they are added to dw */
    const int64_t weights = (int64_t)vocab * hidden;
    const bool biased = tensors > 1;
    float *logits = (float *)scratch, *separate = burst_loss_beside(n, tile) ? logits + tile * vocab : NULL;
    int summed = 0;
    if (separate)
        memset(separate, 0, (size_t)weights * sizeof *separate);
    for (int64_t i = 0; i < n; i += tile) {
        int64_t tokens = n - i < tile ? n - i : tile;
        const float *xi = x + i * hidden;
        float *dxi = dx + i * hidden;
        if (!any_counts(tokens, label + i, weight + i)) {
            memset(dxi, 0, (size_t)(tokens * hidden) * sizeof *dxi);
            continue;
        }
        BURST_TRY(burst_op_linear(e, tokens, hidden, vocab, 1, xi, w, NULL, logits));
        if (biased)
            add_bias(tokens, vocab, (float)bias_scale, w + weights, logits);
        for (int64_t t = 0; t < tokens; t++)
            *loss += token_loss(vocab, label[i + t], weight[i + t], scale, softcap, logits + t * vocab);
        BURST_TRY(burst_op_linear_dx(e, tokens, hidden, vocab, 1, logits, w, dxi, false));
        BURST_TRY(burst_op_linear_dw(e, tokens, hidden, vocab, 1, logits, xi, separate ? separate : dw));
        if (biased)
            BURST_TRY(bias_back(e, tokens, vocab, bias_scale, logits, dw + weights));
        if (separate && ++summed % TOGETHER == 0)
            add_separate(weights, separate, dw);
    }
    if (separate)
        add_separate(weights, separate, dw);
    return BURST_OK;
}

int burst_op_loss(BurstExec *e, int64_t n, int hidden, int vocab, int64_t tile, const BurstAct *x,
                  const BurstAct *w, const int32_t *label, const float *weight, double scale, double *loss,
                  BurstAct *dx, float *dw, void *scratch)
{
    return burst_op_loss_head(e, n, hidden, vocab, tile, 1, 0, 1, x, w, label, weight, scale, loss, dx, dw,
                              scratch);
}

/* weight * (lse - logit[label]) of one token, as token_loss has it; overwrites its logits. */
static double token_entropy(int vocab, int32_t label, float weight, double softcap, float *logit)
{
    if (label < 0 || weight == 0)
        return 0;
    if (softcap > 0)
        cap_logits(vocab, (float)softcap, logit);
    const float top = greatest(vocab, logit);
    const double hit = (double)logit[label] - top;
    return weight * (log(exponentials(vocab, top, logit)) - hit);
}

int burst_op_evaluate(BurstExec *e, int64_t n, int hidden, int vocab, int64_t tile, int tensors,
                      double softcap, double bias_scale, const BurstAct *x, const BurstAct *w,
                      const int32_t *label, const float *weight, double *loss, void *scratch)
{
    float *logits = (float *)scratch;
    for (int64_t i = 0; i < n; i += tile) {
        const int64_t tokens = n - i < tile ? n - i : tile;
        if (!any_counts(tokens, label + i, weight + i))
            continue;
        BURST_TRY(burst_op_linear(e, tokens, hidden, vocab, 1, x + i * hidden, w, NULL, logits));
        if (tensors > 1)
            add_bias(tokens, vocab, (float)bias_scale, w + (int64_t)vocab * hidden, logits);
        for (int64_t t = 0; t < tokens; t++)
            *loss += token_entropy(vocab, label[i + t], weight[i + t], softcap, logits + t * vocab);
    }
    return BURST_OK;
}

int burst_op_head_logits(BurstExec *e, int hidden, int first, int rows, const BurstAct *x, const BurstAct *w,
                         float *logits)
{
    return burst_op_linear(e, 1, hidden, rows, 1, x, w + (int64_t)first * hidden, NULL, logits + first);
}

int burst_op_head_greatest(BurstExec *e, int vocab, double softcap, double bias_scale, const BurstAct *bias,
                           int32_t *next, float *logits)
{
    (void)e;
    if (bias)
        add_bias(1, vocab, (float)bias_scale, bias, logits);
    if (softcap > 0)
        cap_logits(vocab, (float)softcap, logits);
    *next = 0;
    for (int i = 1; i < vocab; i++)
        *next = logits[i] > logits[*next] ? i : *next;
    return BURST_OK;
}

int burst_op_next(BurstExec *e, int64_t row, int hidden, int vocab, double softcap, double bias_scale,
                  const BurstAct *x, const BurstAct *w, const BurstAct *bias, int32_t *next, void *scratch)
{
    if (row < 0)
        return BURST_OK;
    BURST_TRY(burst_op_head_logits(e, hidden, 0, vocab, x + row * hidden, w, (float *)scratch));
    return burst_op_head_greatest(e, vocab, softcap, bias_scale, bias, next, (float *)scratch);
}
