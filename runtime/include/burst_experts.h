/* burst_experts.h: a feed-forward layer whose experts each token chooses (mixture of experts, arXiv 1701.06538).
 *
 * logits = x w_router^T; scores of a token are the softmax over all experts, or the sigmoid of each; it chooses
 * the `top` experts with the largest scores, of equal ones the lower number first. An expert's weight is its
 * score, divided by the sum over the chosen plus `eps` where `normalize` says so, times `scale`; the layer's
 * output is the sum of the chosen experts' outputs, each times its weight.
 */
#ifndef BURST_EXPERTS_H
#define BURST_EXPERTS_H

#define BURST_SCORE_ROWS(X) X(SOFTMAX, "softmax") X(SIGMOID, "sigmoid")
enum {
#define X(id, name) BURST_SCORE_##id,
    BURST_SCORE_ROWS(X)
#undef X
        BURST_SCORES
};
enum { BURST_MOST_EXPERTS = 1024 };
typedef struct BurstExperts {
    int experts;    /* 0: the layer has none: a dense feed-forward */
    int top;        /* that a token chooses */
    int width;      /* columns of an expert's gate and up */
    int activation; /* BURST_ACTIVATION_..., with a gate */
    int score;      /* BURST_SCORE_... */
    int normalize;
    double eps, scale;
} BurstExperts;

#endif
