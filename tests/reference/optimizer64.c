/* optimizer64.c: global-norm clipping, AdamW and the learning rate in float64. */
#include "model64.h"

#include <math.h>

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

double update64(const Train64 *t, int64_t step, int tensors, const Tensor64 *tensor, double *w, double *grad,
                double *m, double *v)
{
    double norm = norm_of(tensors, tensor, grad), lr = learning_rate64(t, step);
    double shrink = t->clip > 0 && norm > t->clip ? t->clip / norm : 1;
    double fix1 = 1 - pow(t->beta1, (double)step + 1), fix2 = 1 - pow(t->beta2, (double)step + 1);
    for (int i = 0; i < tensors; i++) {
        double decay = tensor[i].decays ? t->decay : 0;
        int64_t end = tensor[i].offset + tensor[i].rows * tensor[i].cols;
        for (int64_t j = tensor[i].offset; j < end; j++) {
            double g = grad[j] * shrink;
            m[j] = t->beta1 * m[j] + (1 - t->beta1) * g;
            v[j] = t->beta2 * v[j] + (1 - t->beta2) * g * g;
            w[j] -= lr * (m[j] / fix1 / (sqrt(v[j] / fix2) + t->eps) + decay * w[j]);
        }
    }
    return norm;
}
