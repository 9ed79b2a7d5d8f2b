/* optimizer64.c: global-norm clipping, AdamW, Muon and the learning rate in float64. */
#include "model64.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double learning_rate64(const Train64 *t, int64_t step)
{
    const double number = (double)step + 1, warmup = fmax((double)t->warmup, 1),
                 left = (double)t->steps - warmup;
    if (number <= warmup)
        return t->lr * (t->warmup ? number / warmup : 1);
    if (!t->cosine)
        return t->lr;
    const double turn = cos(M_PI / 2 * fmin((number - warmup) / left, 1));
    return t->lr_end + (t->lr - t->lr_end) * turn * turn;
}

static double norm_of(int tensors, const Tensor64 *tensor, const double *grad)
{
    double sum = 0;
    int64_t count = tensor[tensors - 1].offset + tensor[tensors - 1].rows * tensor[tensors - 1].cols;
    for (int64_t i = 0; i < count; i++)
        sum += grad[i] * grad[i];
    return sqrt(sum);
}

/* Entry by entry: the Gram matrix of the rows, whichever side is longer. */
void orthogonal64(int64_t rows, int64_t cols, double *x)
{
    double *gram = new64(rows * rows), *p = new64(rows * rows), *y = new64(rows * cols), squares = 0;
    for (int64_t i = 0; i < rows * cols; i++)
        squares += x[i] * x[i];
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] /= sqrt(squares) + 1e-7;
    for (int turn = 0; turn < 5; turn++) {
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < rows; j++) {
                gram[i * rows + j] = 0;
                for (int64_t k = 0; k < cols; k++)
                    gram[i * rows + j] += x[i * cols + k] * x[j * cols + k];
            }
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < rows; j++) {
                double square = 0;
                for (int64_t k = 0; k < rows; k++)
                    square += gram[i * rows + k] * gram[k * rows + j];
                p[i * rows + j] = (i == j ? 3.4445 : 0) - 4.7750 * gram[i * rows + j] + 2.0315 * square;
            }
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) {
                y[i * cols + j] = 0;
                for (int64_t k = 0; k < rows; k++)
                    y[i * cols + j] += p[i * rows + k] * x[k * cols + j];
            }
        memcpy(x, y, sizeof *x * (size_t)(rows * cols));
    }
    free(gram);
    free(p);
    free(y);
}

/* grad as clipped. */
static void muon64(const Train64 *t, double lr, const Tensor64 *x, double *w, const double *grad, double *m)
{
    const int64_t count = x->rows * x->cols;
    double *update = new64(count), size = 0.2 * sqrt(fmax((double)x->rows, (double)x->cols));
    for (int64_t i = 0; i < count; i++) {
        m[i] = t->momentum * m[i] + grad[i];
        update[i] = grad[i] + t->momentum * m[i];
    }
    orthogonal64(x->rows, x->cols, update);
    for (int64_t i = 0; i < count; i++)
        w[i] -= lr * (size * update[i] + t->decay * w[i]);
    free(update);
}

static bool by_muon(const Train64 *t, const Tensor64 *x)
{
    return t->muon && strncmp(x->name, "model.layers.", 13) == 0 && x->rows > 1 && x->cols > 1;
}

double update64(const Train64 *t, int64_t step, int tensors, const Tensor64 *tensor, double *w, double *grad,
                double *m, double *v)
{
    double norm = norm_of(tensors, tensor, grad), lr = learning_rate64(t, step);
    double shrink = t->clip > 0 && norm > t->clip ? t->clip / norm : 1;
    double fix1 = 1 - pow(t->beta1, (double)step + 1), fix2 = 1 - pow(t->beta2, (double)step + 1);
    for (int i = 0; i < tensors; i++) {
        double decay = tensor[i].decays ? t->decay : 0;
        int64_t end = tensor[i].offset + tensor[i].rows * tensor[i].cols, begin = tensor[i].offset;
        if (by_muon(t, &tensor[i])) {
            for (int64_t j = begin; j < end; j++)
                grad[j] *= shrink;
            muon64(t, lr, &tensor[i], w + begin, grad + begin, m + begin);
            continue;
        }
        for (int64_t j = tensor[i].offset; j < end; j++) {
            double g = grad[j] * shrink;
            m[j] = t->beta1 * m[j] + (1 - t->beta1) * g;
            v[j] = t->beta2 * v[j] + (1 - t->beta2) * g * g;
            w[j] -= lr * (m[j] / fix1 / (sqrt(v[j] / fix2) + t->eps) + decay * w[j]);
        }
    }
    return norm;
}
