/* burst_step.h: the operations of a training step, declared once for both targets, so that both use the same
 * printed step.
 *
 * The host's definitions are in C (runtime/host/ops, runtime/core), in fp32, and run one after the other;
 * only messages are waited for. A device's are in C++ (runtime/cuda): C++ linkage keeps their names apart
 * from the host's in a CUDA program, which links both. burst_step_cuda.h has their types and includes this
 * file.
 *
 * Conventions. Every function returns BURST_OK or a BURST_E_* status, with its text in the context. n:
 * tokens of this rank, of a chunk, or of all tensor ranks. Arrays are row-major: [n][width] by tokens;
 * [heads][n][d] by heads. A device uses the layout by heads for fp32 gradients only. Outputs are
 * overwritten, except with `add` and for gradients of weights (dw, db, d_sink, dtable: +=). Products of one
 * input by several adjacent tensors are adjacent arrays on the host, and side by side in a row on a device.
 * A device computes on its compute stream in order. Gathers, reductions and copies run on streams of their
 * own, after everything queued for computing before them; computing waits for them where an operation below
 * says so. */
#ifndef BURST_STEP_H
#define BURST_STEP_H

#include "burst_plan.h"

#ifndef BURST_STEP_TYPES /* the host's */
#include <string.h>

typedef BurstCtx BurstExec; /* runs operations */
typedef float BurstAct;     /* of activations and gathered weights */
typedef int64_t BurstPosition;
typedef BurstWeights BurstShards;                    /* a rank's parameters, gradients and moments */
typedef BurstGather BurstArrival;                    /* of a gathered unit */
typedef struct BurstOrder {
    int unused;
} BurstOrder; /* positions of streams when an operation was queued */
/* Copies to and from the host's memory: bytes so far in this sequence, and for units in this step. */
typedef struct BurstCopies {
    int64_t staged_bytes, fetched_bytes, down_bytes, up_bytes;
} BurstCopies;
#endif

/* From here on the rank computes this part (BURST_P_*), for --trace. A part that goes on is not cut. */
int burst_op_part(BurstExec *e, int part);
/* Runs an operation of the step as a part of the trace; IDLE: it marks its own parts. */
#define BURST_OP(part, call)                         \
    do {                                             \
        BURST_TRY(burst_op_part(e, BURST_P_##part)); \
        BURST_TRY(call);                             \
    } while (0)
/* x = 0, count elements */
int burst_op_zero(BurstExec *e, float *x, int64_t count);

/* ---- embedding ---- */
/* x[n][hidden] = table[token]; dtable[vocab][hidden] += the rows of dx, those of one token in a fixed order.
 * scratch: burst_embed_ints(n) integers on the host, unused on a device. */
int burst_op_embed(BurstExec *e, int64_t n, int hidden, const int32_t *token, const BurstAct *table,
                   BurstAct *x);
int burst_op_embed_back(BurstExec *e, int64_t n, int hidden, const int32_t *token, const BurstAct *dx,
                        float *dtable, void *scratch);

/* ---- norms (RMSNorm, arXiv 1910.07467; LayerNorm, arXiv 1607.06450, whose bias is burst_op_bias) ---- */
/* y = x * rstd * w, rstd[n] = 1 / sqrt(mean(x^2) + eps); LayerNorm subtracts the mean first. rstd is kept for
 * backward. scratch: burst_gpu_norm_doubles(hidden) doubles on a device, unused on the host. */
int burst_op_rmsnorm(BurstExec *e, int64_t n, int hidden, double eps, const BurstAct *x, const BurstAct *w,
                     BurstAct *y, float *rstd);
int burst_op_rmsnorm_back(BurstExec *e, int64_t n, int hidden, const BurstAct *x, const float *rstd,
                          const BurstAct *dy, const BurstAct *w, BurstAct *dx, bool add, float *dw,
                          void *scratch);
int burst_op_layernorm(BurstExec *e, int64_t n, int hidden, double eps, const BurstAct *x, const BurstAct *w,
                       BurstAct *y, float *rstd);
int burst_op_layernorm_back(BurstExec *e, int64_t n, int hidden, const BurstAct *x, const float *rstd,
                            const BurstAct *dy, const BurstAct *w, BurstAct *dx, bool add, float *dw,
                            void *scratch);
/* The same with 1 + w for w (norms whose weights are stored less one). */
int burst_op_rmsnorm_plus(BurstExec *e, int64_t n, int hidden, double eps, const BurstAct *x,
                          const BurstAct *w, BurstAct *y, float *rstd);
int burst_op_rmsnorm_plus_back(BurstExec *e, int64_t n, int hidden, const BurstAct *x, const float *rstd,
                               const BurstAct *dy, const BurstAct *w, BurstAct *dx, bool add, float *dw,
                               void *scratch);
/* RMSNorm of rows that tensor ranks share, `width` elements each. part[n]: this rank's part of the row's
 * mean of squares; square[n]: its sum over ranks. In backward, d_square[n] is this rank's gradient of
 * square, d_part[n] its sum over ranks, and the gradient of x is the sum of both functions' dx. */
int burst_op_squares(BurstExec *e, int64_t n, int width, int ranks, const BurstAct *x, float *part);
int burst_op_squares_back(BurstExec *e, int64_t n, int width, int ranks, const BurstAct *x,
                          const float *d_part, BurstAct *dx, bool add);
int burst_op_rmsnorm_part(BurstExec *e, int64_t n, int width, double eps, const BurstAct *x,
                          const float *square, const BurstAct *w, BurstAct *y, float *rstd);
int burst_op_rmsnorm_part_back(BurstExec *e, int64_t n, int width, const BurstAct *x, const float *rstd,
                               const BurstAct *dy, const BurstAct *w, BurstAct *dx, bool add, float *d_square,
                               float *dw, void *scratch);

/* ---- products: fp32 by BLAS, or bf16 with fp32 sums by cublasLt ---- */
/* y = x w^T (+ add, which may be NULL), w [tensors][out][in] as Hugging Face stores it; dx (+)= dy w; dw +=
 * dy^T x. */
int burst_op_linear(BurstExec *e, int64_t n, int in, int out, int tensors, const BurstAct *x,
                    const BurstAct *w, const BurstAct *add, BurstAct *y);
int burst_op_linear_dw(BurstExec *e, int64_t n, int in, int out, int tensors, const BurstAct *dy,
                       const BurstAct *x, float *dw);
int burst_op_linear_dx(BurstExec *e, int64_t n, int in, int out, int tensors, const BurstAct *dy,
                       const BurstAct *w, BurstAct *dx, bool add);
/* The same with `in` columns of a matrix whose rows have `row` columns. `add` may be y. */
int burst_op_linear_columns(BurstExec *e, int64_t n, int in, int out, int row, const BurstAct *x,
                            const BurstAct *w, const BurstAct *add, BurstAct *y);
int burst_op_linear_dw_columns(BurstExec *e, int64_t n, int in, int out, int row, const BurstAct *dy,
                               const BurstAct *x, float *dw);
int burst_op_linear_dx_columns(BurstExec *e, int64_t n, int in, int out, int row, const BurstAct *dy,
                               const BurstAct *w, BurstAct *dx, bool add);

/* ---- elementwise ---- */
/* y = x + b, b [width]; db += the sum of dy's rows. */
int burst_op_bias(BurstExec *e, int64_t n, int width, const BurstAct *x, const BurstAct *b, BurstAct *y);
int burst_op_bias_back(BurstExec *e, int64_t n, int width, const BurstAct *dy, float *db);
/* The same for a gate and the gated product, as a product of two tensors lays them out; b, db [2][width]. */
int burst_op_bias_pair(BurstExec *e, int64_t n, int width, const BurstAct *x, const BurstAct *b, BurstAct *y);
int burst_op_bias_pair_back(BurstExec *e, int64_t n, int width, const BurstAct *dy, float *db);
/* y = scale x (+ add, which may be NULL or y); dx = (dx or 0) + scale dy. */
int burst_op_scale(BurstExec *e, int64_t n, int width, double scale, const BurstAct *x, const BurstAct *add,
                   BurstAct *y);
int burst_op_scale_back(BurstExec *e, int64_t n, int width, double scale, const BurstAct *dy, BurstAct *dx,
                        bool add);
/* SwiGLU (arXiv 2002.05202): y = silu(gate) * up; d_gate_up may be gate_up. */
int burst_op_swiglu(BurstExec *e, int64_t n, int ffn, const BurstAct *gate_up, BurstAct *y);
int burst_op_swiglu_back(BurstExec *e, int64_t n, int ffn, const BurstAct *gate_up, const BurstAct *dy,
                         BurstAct *d_gate_up);
/* The same in the form of the experts, with alpha, offset and limit (burst_model.h). */
int burst_op_clamped_swiglu(BurstExec *e, int64_t n, const BurstExperts *m, int ffn, const BurstAct *gate_up,
                            BurstAct *y);
int burst_op_clamped_swiglu_back(BurstExec *e, int64_t n, const BurstExperts *m, int ffn,
                                 const BurstAct *gate_up, const BurstAct *dy, BurstAct *d_gate_up);
/* All activations, kind BURST_ACTIVATION_*: y = f(scale x) * up, with up after the gate, or y = f(scale x)
 * for kinds without a gate. dx may be x. */
int burst_op_activate(BurstExec *e, int kind, double scale, int64_t n, int ffn, const BurstAct *x,
                      BurstAct *y);
int burst_op_activate_back(BurstExec *e, int kind, double scale, int64_t n, int ffn, const BurstAct *x,
                           const BurstAct *dy, BurstAct *dx);

/* y = x times the sigmoid of the token's gate[n]; dx and d_gate are written. */
int burst_op_gate(BurstExec *e, int64_t n, int width, const BurstAct *x, const BurstAct *gate, BurstAct *y);
int burst_op_gate_back(BurstExec *e, int64_t n, int width, const BurstAct *x, const BurstAct *gate,
                       const BurstAct *dy, BurstAct *dx, BurstAct *d_gate);

/* y = x f(scale z) by elements, f by `gate`, BURST_GATE_...; dx may be dy, and dz z. */
int burst_op_gate_elements(BurstExec *e, int gate, double scale, int64_t n, int width, const BurstAct *x,
                           const BurstAct *z, BurstAct *y);
int burst_op_gate_elements_back(BurstExec *e, int gate, double scale, int64_t n, int width, const BurstAct *x,
                                const BurstAct *z, const BurstAct *dy, BurstAct *dx, BurstAct *dz);

/* ---- experts (burst_model.h) ----
 * A choice is a token's k-th expert: choices are numbered token * top + k. Rows are the choices in the order
 * of their experts, those of one expert in the order of their tokens: expert e has rows first[e] up to
 * first[e + 1]. slot[n][top]: the row of a choice; row[n * top]: the choice of a row. Of a group of experts,
 * whose number m->first is the first's, rows are the choices of these alone: slot is -1 for others, row[n *
 * m->rows] is -1 behind the last, and each operation leaves other choices' gradients as they are. Matrices of
 * experts follow each other: up [experts][2 * width][hidden], the gate's columns first; down
 * [experts][hidden][width]. scratch: of products by experts' matrices burst_experts_floats(hidden) floats on
 * the host, unused on a device; of the router and of burst_op_arrange burst_gpu_experts_bytes(experts) bytes
 * on a device, unused on the host. */
/* logits[n][experts] = x w^T, in fp32; dw += d_logits^T x; dx (+)= d_logits w */
int burst_op_logits(BurstExec *e, int64_t n, int hidden, int experts, const BurstAct *x, const BurstAct *w,
                    float *logits);
int burst_op_logits_dw(BurstExec *e, int64_t n, int hidden, int experts, const float *d_logits,
                       const BurstAct *x, float *dw, void *scratch);
int burst_op_logits_dx(BurstExec *e, int64_t n, int hidden, int experts, const float *d_logits,
                       const BurstAct *w, BurstAct *dx, bool add, void *scratch);
/* choice, route [n][top]: the chosen experts and their weights. Backward keeps the choice: d_logits is the
 * gradient of the weights alone. */
int burst_op_choose(BurstExec *e, int64_t n, const BurstExperts *m, const float *logits, int32_t *choice,
                    float *route);
/* The same, choosing by scores plus the correction [experts], which is fp32 on both targets. */
int burst_op_choose_corrected(BurstExec *e, int64_t n, const BurstExperts *m, const float *logits,
                              const float *correction, int32_t *choice, float *route);
int burst_op_choose_back(BurstExec *e, int64_t n, const BurstExperts *m, const float *logits,
                         const int32_t *choice, const float *d_route, float *d_logits);
/* Adds to l->choices of the layer, and to the numbers and sums of its sequence; d_logits += the gradient of
 * the balance loss over all rows of l (transformers' load_balancing_loss_func). Tokens with a label < 0 or no
 * weight do not count. */
int burst_op_count(BurstExec *e, int64_t n, const BurstExperts *m, int layer, const int32_t *choice,
                   const float *logits, const int32_t *label, const float *weight, const BurstLoads *l);
int burst_op_balance(BurstExec *e, int64_t n, const BurstExperts *m, const float *logits,
                     const int32_t *label, const float *weight, const BurstLoads *l);
int burst_op_balance_back(BurstExec *e, int64_t n, const BurstExperts *m, const float *logits,
                          const int32_t *label, const float *weight, const BurstLoads *l, float *d_logits);
int burst_op_arrange(BurstExec *e, int64_t n, const BurstExperts *m, const int32_t *choice, int32_t *slot,
                     int32_t *row, int32_t *first, void *scratch);
/* gate_up[rows][2 * width] = the tokens' x by their experts' matrices; dw += d_gate_up^T x; rows of the
 * gradient of x, which burst_op_experts_sum adds up: y[n][hidden] = (add or 0) + the sum of a token's rows.
 */
int burst_op_experts_up(BurstExec *e, int64_t n, const BurstExperts *m, int hidden, const BurstAct *x,
                        const int32_t *row, const int32_t *first, const BurstAct *w, BurstAct *gate_up,
                        void *scratch);
int burst_op_experts_up_dw(BurstExec *e, int64_t n, const BurstExperts *m, int hidden,
                           const BurstAct *d_gate_up, const BurstAct *x, const int32_t *row,
                           const int32_t *first, float *dw, void *scratch);
int burst_op_experts_up_dx(BurstExec *e, int64_t n, const BurstExperts *m, int hidden,
                           const BurstAct *d_gate_up, const int32_t *first, const BurstAct *w,
                           BurstAct *rows);
int burst_op_experts_sum(BurstExec *e, int64_t n, const BurstExperts *m, int hidden, const BurstAct *rows,
                         const int32_t *slot, const BurstAct *add, BurstAct *y);
/* gate_up[rows][2 * width] = x plus the biases of their experts, b[experts][2 * width]; db += the sums of
 * their rows. */
int burst_op_experts_bias(BurstExec *e, int64_t n, const BurstExperts *m, const BurstAct *x,
                          const int32_t *first, const BurstAct *b, BurstAct *gate_up);
int burst_op_experts_bias_back(BurstExec *e, int64_t n, const BurstExperts *m, const BurstAct *d_gate_up,
                               const int32_t *first, float *db);
/* y[rows][width] = route * f(gate) * up: weighted here, the experts' outputs are not kept for the gradient of
 * route (SonicMoE, arXiv 2512.14080). d_gate_up may be gate_up; d_route is overwritten. */
int burst_op_experts_act(BurstExec *e, int64_t n, const BurstExperts *m, const BurstAct *gate_up,
                         const float *route, const int32_t *row, BurstAct *y);
int burst_op_experts_act_back(BurstExec *e, int64_t n, const BurstExperts *m, const BurstAct *gate_up,
                              const float *route, const int32_t *row, const BurstAct *dy, BurstAct *d_gate_up,
                              float *d_route);
/* rows[rows][hidden] = x by their experts' matrices; in backward dy[n][hidden] is the gradient of their sum.
 */
int burst_op_experts_down(BurstExec *e, int64_t n, const BurstExperts *m, int hidden, const BurstAct *x,
                          const int32_t *first, const BurstAct *w, BurstAct *rows);
/* y[n][hidden] = (add or 0) + the biases of the token's experts, b[experts][hidden], each times its weight;
 * d_route += dy b^T, or without adds = dy b^T for choices among the experts, db += d_y times the weight. add
 * may be y. */
int burst_op_experts_out_bias(BurstExec *e, int64_t n, const BurstExperts *m, int hidden,
                              const int32_t *choice, const float *route, const BurstAct *add,
                              const BurstAct *b, BurstAct *y);
int burst_op_experts_out_bias_back(BurstExec *e, int64_t n, const BurstExperts *m, int hidden, bool adds,
                                   const BurstAct *dy, const int32_t *choice, const float *route,
                                   const BurstAct *b, float *d_route, float *db);
int burst_op_experts_down_dw(BurstExec *e, int64_t n, const BurstExperts *m, int hidden, const BurstAct *dy,
                             const BurstAct *x, const int32_t *row, const int32_t *first, float *dw,
                             void *scratch);
int burst_op_experts_down_dx(BurstExec *e, int64_t n, const BurstExperts *m, int hidden, const BurstAct *dy,
                             const int32_t *row, const int32_t *first, const BurstAct *w, BurstAct *dx,
                             void *scratch);

/* ---- recurrent layers (burst_model.h) ----
 * place[n]: a row's position in its document, 0 at its first token, where states and convolutions restart.
 * x[n][columns]: queries, keys and values of all heads, as the convolution gives them. beta, decay
 * [n][heads]: fp32. States, [pieces][heads][key_dim][value_dim], and maps, [pieces][burst_scan_map], are
 * fp32. scratch: burst_scan_floats(s, n) floats on the host, burst_gpu_scan_bytes(s, n) bytes on a device. */
/* beta and decay = -exp(a_log[heads]) softplus. read k: raw[n][2 * heads] has beta's column, then alpha's:
 * beta = beta_most sigmoid(raw), softplus of alpha + dt_bias[heads]. read none: raw[n][heads]; beta is the
 * step, softplus(raw + dt_bias) within its bounds, and decay -exp(a_log) beta. What dt_bias is added to is
 * first multiplied by step_scale. d_a_log, d_dt_bias +=.
 * scratch: burst_gpu_scan_gates_doubles(heads) doubles on a device. */
int burst_op_scan_gates(BurstExec *e, int64_t n, const BurstScan *s, const BurstAct *raw,
                        const BurstAct *a_log, const BurstAct *dt_bias, float *beta, float *decay);
int burst_op_scan_gates_back(BurstExec *e, int64_t n, const BurstScan *s, const BurstAct *raw,
                             const BurstAct *a_log, const BurstAct *dt_bias, const float *d_beta,
                             const float *d_decay, BurstAct *d_raw, float *d_a_log, float *d_dt_bias,
                             void *scratch);
/* o[n][heads][value_dim]. skip[heads], or NULL: o += skip v. before, after: the state before each piece and
 * after it; before NULL: 0, after NULL: not wanted. A piece that begins a document does not read `before`. */
int burst_op_scan(BurstExec *e, int64_t n, const BurstScan *s, const BurstPieces *p, const int32_t *place,
                  const BurstAct *x, const float *beta, const float *decay, const BurstAct *skip,
                  const float *before, BurstAct *o, float *after, void *scratch);
/* d_after, d_before: the gradients of `after` and `before`; NULL: 0, and not wanted. dx[n][columns], d_beta,
 * d_decay are overwritten; d_skip +=, NULL without a skip. */
int burst_op_scan_back(BurstExec *e, int64_t n, const BurstScan *s, const BurstPieces *p,
                       const int32_t *place, const BurstAct *x, const float *beta, const float *decay,
                       const BurstAct *skip, const float *before, const BurstAct *d_o, const float *d_after,
                       BurstAct *dx, float *d_beta, float *d_decay, float *d_skip, float *d_before,
                       void *scratch);
/* maps[pieces]: the map of each piece, of the state before it to that after it. Where a document begins in
 * the piece M is 0. map_back: M, and in place of E the gradient of `before` where that of `after` is 0. */
int burst_op_scan_map(BurstExec *e, int64_t n, const BurstScan *s, const BurstPieces *p, const int32_t *place,
                      const BurstAct *x, const float *beta, const float *decay, float *maps, void *scratch);
int burst_op_scan_map_back(BurstExec *e, int64_t n, const BurstScan *s, const BurstPieces *p,
                           const int32_t *place, const BurstAct *x, const float *beta, const float *decay,
                           const BurstAct *d_o, float *maps, void *scratch);
/* The states before this rank's pieces, from the maps of all pieces before each; in backward the gradients
 * of those after them, from map_back's maps of all pieces after each. */
int burst_op_scan_fold(BurstExec *e, const BurstScan *s, const BurstFold *f, const float *maps, float *before,
                       void *scratch);
int burst_op_scan_fold_back(BurstExec *e, const BurstScan *s, const BurstFold *f, const float *maps,
                            float *d_after, void *scratch);
/* y[t] = silu(sum over j of w[channel][j] scale[channel] x[t - kernel + 1 + j] + bias), rows of the same
 * document only (burst_conv_scale); w
 * [channels][kernel], bias [channels] or NULL. halo[pieces][kernel - 1][channels]: the rows before each
 * piece; NULL: each piece begins a document. dw, db +=; d_halo is overwritten, NULL without a halo. scratch:
 * channels floats on the host, burst_gpu_conv_doubles(c) doubles on a device. */
int burst_op_conv(BurstExec *e, int64_t n, const BurstConv *c, const BurstPieces *p, const int32_t *place,
                  const BurstAct *x, const BurstAct *halo, const BurstAct *w, const BurstAct *bias,
                  BurstAct *y);
int burst_op_conv_back(BurstExec *e, int64_t n, const BurstConv *c, const BurstPieces *p,
                       const int32_t *place, const BurstAct *x, const BurstAct *halo, const BurstAct *w,
                       const BurstAct *bias, const BurstAct *dy, BurstAct *dx, BurstAct *d_halo, float *dw,
                       float *db, void *scratch);
/* tails[pieces][kernel - 1][channels]: the last rows of each piece, which must have as many; in backward
 * those rows of dx += d_tails. */
int burst_op_conv_tails(BurstExec *e, const BurstConv *c, const BurstPieces *p, const BurstAct *x,
                        BurstAct *tails);
int burst_op_conv_tails_back(BurstExec *e, const BurstConv *c, const BurstPieces *p, const BurstAct *d_tails,
                             BurstAct *dx);
/* x, z, y [n][groups][width]; rstd[n][groups] is kept for backward. dw +=. scratch:
 * burst_gpu_norm_doubles(elements of w) doubles on a device. */
int burst_op_gated_norm(BurstExec *e, int64_t n, const BurstGatedNorm *m, const BurstAct *x,
                        const BurstAct *z, const BurstAct *w, BurstAct *y, float *rstd);
int burst_op_gated_norm_back(BurstExec *e, int64_t n, const BurstGatedNorm *m, const BurstAct *x,
                             const BurstAct *z, const BurstAct *w, const float *rstd, const BurstAct *dy,
                             BurstAct *dx, BurstAct *dz, float *dw, void *scratch);

/* ---- around attention ---- */
/* RoPE (arXiv 2104.09864) at the global positions; y may be x on a device. The host also changes the layout
 * from tokens to heads, and in backward from heads to tokens for fp32 gradients. all: rows per head of the
 * array by heads, of which n are used. */
int burst_op_rope(BurstExec *e, int64_t n, int heads, int d, const BurstRope *rope,
                  const BurstPosition *position, const BurstAct *x, BurstAct *y);
int burst_op_rope_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d, const BurstRope *rope,
                       const BurstPosition *position, const BurstAct *x, BurstAct *y);
int burst_op_rope_back(BurstExec *e, int64_t n, int heads, int d, const BurstRope *rope,
                       const BurstPosition *position, const float *dy, BurstAct *dx);
int burst_op_rope_back_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d, const BurstRope *rope,
                            const BurstPosition *position, const float *dy, BurstAct *dx);
/* The same by tokens on both sides. */
int burst_op_rotate(BurstExec *e, int64_t n, int heads, int d, const BurstRope *rope,
                    const BurstPosition *position, const BurstAct *x, BurstAct *y);
int burst_op_rotate_back(BurstExec *e, int64_t n, int heads, int d, const BurstRope *rope,
                         const BurstPosition *position, const BurstAct *dy, BurstAct *dx);
/* y [n][heads][own + shared]: each head's own elements x [n][heads][own], then the elements that all heads
 * of a token share, every [n][shared] (keys of multi-head latent attention, arXiv 2405.04434). d_every is
 * summed over heads. */
int burst_op_join(BurstExec *e, int64_t n, int heads, int own, int shared, const BurstAct *x,
                  const BurstAct *every, BurstAct *y);
int burst_op_join_back(BurstExec *e, int64_t n, int heads, int own, int shared, const BurstAct *dy,
                       BurstAct *dx, BurstAct *d_every, bool add);
/* Between the two layouts. to_heads exists only on the host: a device has one layout. */
int burst_op_to_heads(BurstExec *e, int64_t n, int heads, int d, const BurstAct *x, BurstAct *y);
int burst_op_to_heads_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d, const BurstAct *x,
                           BurstAct *y);
int burst_op_to_tokens(BurstExec *e, int64_t n, int heads, int d, const float *x, BurstAct *y);
int burst_op_to_tokens_rows(BurstExec *e, int64_t n, int64_t all, int heads, int d, const float *x,
                            BurstAct *y);
/* delta[heads][n] = rowsum(d_o * o), minus d_lse if lse is an output too (FlashAttention-2, section 3.1). */
int burst_op_delta(BurstExec *e, int64_t n, int heads, int d, const BurstAct *o, const BurstAct *d_o,
                   float *delta);
int burst_op_delta_lse(BurstExec *e, int64_t n, int heads, int d, const BurstAct *o, const BurstAct *d_o,
                       const float *d_lse, float *delta);
/* Learned sinks (GPT-OSS, arXiv 2508.10925): each row of head h has an extra column with score sink[h] and
 * no value. out = o * keep, where keep = 1 / (1 + exp(sink - lse)) is the weight of the keys; a row without
 * a key stays 0. d_o = d_out * keep, which may be in place; d_lse = keep (1 - keep) rowsum(d_out * o);
 * d_sink[h] -= the sum of its d_lse. */
int burst_op_sink(BurstExec *e, int64_t n, int heads, int d, const BurstAct *o, const float *lse,
                  const BurstAct *sink, BurstAct *out);
int burst_op_sink_back(BurstExec *e, int64_t n, int heads, int d, const BurstAct *d_out, const BurstAct *o,
                       const float *lse, const BurstAct *sink, BurstAct *d_o, float *d_lse, float *d_sink);

/* ---- head and loss, fused (BurstEngine, section 3.3) ---- */
/* Works in tiles of `tile` tokens: logits x w^T (+ bias), capped by softcap tanh(logit / softcap) if softcap
 * > 0, loss and gradients. Nothing of size n x vocab is stored. *loss += the sum of weight * (lse -
 * logit[label]); dx = and dw += gradients of scale * that sum. Labels < 0 and weights 0 add nothing. tensors
 * 2: the bias follows the matrix in w and dw and is multiplied by bias_scale (if logits are scaled, x
 * already is). scratch: burst_loss_floats floats on the host, burst_gpu_loss_bytes bytes on a device. */
int burst_op_loss(BurstExec *e, int64_t n, int hidden, int vocab, int64_t tile, const BurstAct *x,
                  const BurstAct *w, const int32_t *label, const float *weight, double scale, double *loss,
                  BurstAct *dx, float *dw, void *scratch);
int burst_op_loss_head(BurstExec *e, int64_t n, int hidden, int vocab, int64_t tile, int tensors,
                       double softcap, double bias_scale, const BurstAct *x, const BurstAct *w,
                       const int32_t *label, const float *weight, double scale, double *loss, BurstAct *dx,
                       float *dw, void *scratch);

/* The same loss without gradients: *loss += the sum of weight * (lse - logit[label]). */
int burst_op_evaluate(BurstExec *e, int64_t n, int hidden, int vocab, int64_t tile, int tensors,
                      double softcap, double bias_scale, const BurstAct *x, const BurstAct *w,
                      const int32_t *label, const float *weight, double *loss, void *scratch);

/* Products of x [hidden] with rows first to first + rows - 1 of the head's [vocab][hidden], in their places
 * of logits [vocab]. */
int burst_op_head_logits(BurstExec *e, int hidden, int first, int rows, const BurstAct *x, const BurstAct *w,
                         float *logits);

/* Finishes these products of all rows, which become logits; *next: the token with the greatest, the first of
 * equal ones. bias [vocab], multiplied by bias_scale; NULL: there is none. */
int burst_op_head_greatest(BurstExec *e, int vocab, double softcap, double bias_scale, const BurstAct *bias,
                           int32_t *next, float *logits);

/* Both, of x's row; scratch: [vocab] floats, its logits. row -1: nothing. */
int burst_op_next(BurstExec *e, int64_t row, int hidden, int vocab, double softcap, double bias_scale,
                  const BurstAct *x, const BurstAct *w, const BurstAct *bias, int32_t *next, void *scratch);

/* ---- among tensor ranks (Megatron-LM, arXiv 1909.08053), on the tensor stream ---- */
/* all [ranks * each][width] = the ranks' own [each][width]. The last rank may have fewer tokens; the rest of
 * its rows is undefined. */
int burst_op_tensor_gather(BurstExec *e, int64_t each, int64_t width, const BurstAct *own, BurstAct *all,
                           BurstOrder *o);
/* The same of numbers of 32 bits. */
int burst_op_tensor_gather_words(BurstExec *e, int64_t each, int64_t width, const void *own, void *all,
                                 BurstOrder *o);
/* own = add + the sum over ranks of this rank's rows of parts; add: NULL, own, or an array of its shape.
 * Overwrites parts. */
int burst_op_tensor_scatter(BurstExec *e, int64_t each, int64_t width, BurstAct *parts, const BurstAct *add,
                            BurstAct *own, BurstOrder *o);
/* own = add + that sum of floats; add: NULL, or own. Overwrites parts. */
int burst_op_tensor_scatter_floats(BurstExec *e, int64_t each, int64_t width, float *parts, const float *add,
                                   float *own, BurstOrder *o);
/* all [ranks * each] = the sum over ranks of part, with rows as in tensor_gather. */
int burst_op_tensor_all_reduce(BurstExec *e, int64_t each, int ranks, const float *part, float *all,
                               BurstOrder *o);
int burst_op_tensor_done(BurstExec *e, BurstOrder *o); /* computing waits for those above */

/* ---- weights: ZeRO's gathers and reductions (arXiv 1910.02054), on the weights' stream ---- */
/* Starts a gather; `full` is valid after burst_op_arrived. elements: of a shard */
int burst_op_gather(BurstExec *e, int unit, const BurstAct *shard, int64_t elements, BurstAct *full,
                    BurstArrival *a);
/* The same of a plan with slices. */
int burst_op_gather_slices(BurstExec *e, const BurstPlan *p, int unit, const BurstAct *shard, BurstAct *full,
                           BurstArrival *a);
int burst_op_arrived(BurstExec *e, int unit, BurstArrival *a);
/* shard (+)= this rank's part of the sum of full over the ranks that share the weights; overwrites full.
 * _bf16: the same sum in fp32, rounded for a device's bf16 gradients. */
int burst_op_reduce(BurstExec *e, int unit, float *full, int64_t elements, float *shard, bool add,
                    BurstOrder *o);
int burst_op_reduce_bf16(BurstExec *e, int unit, float *full, int64_t elements, BurstAct *shard, bool add,
                         BurstOrder *o);
/* all_reduce: shard = its sum over the ranks that hold the same one. tensor_sum: sums the part of it that
 * several tensor ranks hold over these. _bf16: in fp32, on a device in room [elements], rounded once. */
int burst_op_all_reduce(BurstExec *e, int unit, float *shard, int64_t elements, BurstOrder *o);
int burst_op_all_reduce_bf16(BurstExec *e, int unit, BurstAct *shard, int64_t elements, BurstOrder *o,
                             float *room);
int burst_op_tensor_sum(BurstExec *e, int unit, float *shard, int64_t elements, BurstOrder *o);
int burst_op_tensor_sum_bf16(BurstExec *e, int unit, BurstAct *shard, int64_t elements, BurstOrder *o,
                             float *room);
int burst_op_reduced(BurstExec *e, BurstOrder *o); /* computing waits for the last reduction */

/* ---- copies to and from the host's memory ---- */
/* A layer's values: staged to the host or fetched from it. Computing waits for all staging, and for the
 * fetches of one layer. */
int burst_op_stage(BurstExec *e, int layer, const void *from, void *to, size_t bytes, BurstCopies *c);
int burst_op_staged(BurstExec *e, BurstCopies *c);
int burst_op_fetch(BurstExec *e, int layer, const void *from, void *to, size_t bytes, BurstCopies *c);
int burst_op_fetched(BurstExec *e, int layer, BurstCopies *c);
/* A unit's gradients to the host, after the reductions queued before; its parameters and moments from the
 * host, and back. */
int burst_op_download(BurstExec *e, int unit, const void *from, void *to, size_t bytes, BurstCopies *c);
int burst_op_downloaded(BurstExec *e, BurstCopies *c); /* computing waits for the last download */
int burst_op_upload(BurstExec *e, int unit, const void *from, void *to, size_t bytes, BurstCopies *c);
int burst_op_uploaded(BurstExec *e, BurstCopies *c); /* computing and gathers wait for the last upload */
int burst_op_unit_fetched(BurstExec *e, BurstCopies *c); /* the update waits for the unit's upload */
int burst_op_write_back(BurstExec *e, int unit, const void *from, void *to, size_t bytes, BurstCopies *c);
int burst_op_written_back(BurstExec *e, BurstCopies *c); /* computing and gathers wait for the last unit */
int burst_op_all_back(BurstExec *e); /* the host waits for all units: checkpoints read them there */

/* ---- the optimizer (AdamW, arXiv 1711.05101; Muon, arXiv 2502.16982) ---- */
/* The global norm of all gradients and the update's numbers for this step: for gradients on the host, and
 * for gradients in the memory that computes. Both wait for the norm. */
int burst_op_norm(BurstExec *e, BurstCtx *c, const BurstPlan *p, const BurstWeights *w, int64_t step,
                  double *norm, BurstAdamW *o);
int burst_op_norm_fetched(BurstExec *e, BurstCtx *c, const BurstPlan *p, const BurstShards *w, int64_t step,
                          double *norm, BurstAdamW *o);
/* Updates a unit in the host's memory, or one that was fetched. o NULL: parameters keep their values. to:
 * receives the parameters as products read them. */
int burst_op_adamw(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, int unit, const BurstAdamW *o,
                   void *to);
int burst_op_adamw_fetched(BurstExec *e, BurstCtx *c, const BurstPlan *p, const BurstShards *w, int unit,
                           const BurstAdamW *o, void *to);
/* Updates all units: clips, applies AdamW, sets gradients to 0, rounds parameters. */
int burst_op_update(BurstExec *e, const BurstPlan *p, BurstShards *w, int64_t step, double *norm);
int burst_op_all_updated(BurstExec *e); /* gathers wait for the updates */
/* Muon on a layer's matrices: momentum's update [shard]; whole matrices sent to their owners; orthogonalised
 * there; their shards sent back and added to the parameters. adamw_rest: the unit's other tensors. */
int burst_op_momentum(BurstExec *e, const BurstShards *w, int unit, const BurstAdamW *o, BurstAct *update);
int burst_op_to_owners(BurstExec *e, int unit, BurstAct *update, BurstAct *matrices);
int burst_op_orthogonalize(BurstExec *e, BurstAct *matrices, void *scratch);
int burst_op_from_owners(BurstExec *e, int unit, BurstAct *matrices, BurstAct *update);
int burst_op_muon(BurstExec *e, const BurstShards *w, int unit, const BurstAdamW *o, BurstAct *update);
int burst_op_adamw_rest(BurstExec *e, const BurstPlan *p, const BurstShards *w, int unit,
                        const BurstAdamW *o);

#endif
