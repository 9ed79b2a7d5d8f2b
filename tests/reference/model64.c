/* model64.c: loss and gradients of a Llama-family model in float64, layer by layer, everything kept for
 * backward. */
#include "dot64.h"
#include "model64.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the flat vector of weights ---- */

static int value_dim(const Shape64 *s) { return s->value_dim ? s->value_dim : s->head_dim; }
static int own_dim(const Shape64 *s) { return s->head_dim - s->shared; }

/* Whether a layer has attention, alone or beside a scan. */
static bool attends(const Shape64 *s) { return !s->scan.heads || s->scan.beside; }

/* Elements of a row of the norm of queries or keys of so many heads. */
static int norm_width(const Shape64 *s, int heads)
{
    return s->qk_norm_all ? heads * s->head_dim : s->head_dim;
}

static int scan_columns(const Shape64 *s)
{
    return 2 * s->scan.key_heads * s->scan.key_dim + s->scan.heads * s->scan.value_dim;
}

#define LAYER_TENSORS(X) /* id, name, rows, cols, decays, whether the model has it */ \
    X(NORM1, "input_layernorm.weight", s->hidden, 1, false, true) \
    X(QA, "self_attn.q_a_proj.weight", s->query_latent, s->hidden, true, s->query_latent) \
    X(QAN, "self_attn.q_a_layernorm.weight", s->query_latent, 1, false, s->query_latent) \
    X(QBP, "self_attn.q_b_proj.weight", s->heads * s->head_dim, s->query_latent, true, s->query_latent) \
    X(KVA, "self_attn.kv_a_proj.weight", s->latent, s->hidden, true, s->latent) \
    X(KS, "self_attn.k_shared_proj.weight", s->shared, s->hidden, true, s->latent) \
    X(KVN, "self_attn.kv_a_layernorm.weight", s->latent, 1, false, s->latent) \
    X(KBP, "self_attn.k_b_proj.weight", s->kv_heads *own_dim(s), s->latent, true, s->latent) \
    X(VBP, "self_attn.v_b_proj.weight", s->kv_heads *value_dim(s), s->latent, true, s->latent) \
    X(Q, "self_attn.q_proj.weight", s->heads * s->head_dim, s->hidden, true, !s->query_latent && attends(s)) \
    X(QB, "self_attn.q_proj.bias", s->heads * s->head_dim, 1, false, s->qkv_bias) \
    X(QN, "self_attn.q_norm.weight", norm_width(s, s->heads), 1, false, s->qk_norm) \
    X(AGATE, "self_attn.gate_proj.weight", s->heads *value_dim(s), s->hidden, true, \
      s->attention_gate &&attends(s)) \
    X(K, "self_attn.k_proj.weight", s->kv_heads * s->head_dim, s->hidden, true, !s->latent && attends(s)) \
    X(KB, "self_attn.k_proj.bias", s->kv_heads * s->head_dim, 1, false, s->qkv_bias) \
    X(KN, "self_attn.k_norm.weight", norm_width(s, s->kv_heads), 1, false, s->qk_norm) \
    X(V, "self_attn.v_proj.weight", s->kv_heads * s->head_dim, s->hidden, true, !s->latent && attends(s)) \
    X(VB, "self_attn.v_proj.bias", s->kv_heads * s->head_dim, 1, false, s->qkv_bias) \
    X(O, "self_attn.o_proj.weight", s->hidden, s->heads *value_dim(s), true, attends(s)) \
    X(IQ, "self_attn.indexer.q_proj.weight", s->index.heads * s->index.dim, s->hidden, true, s->index.heads) \
    X(IK, "self_attn.indexer.k_proj.weight", s->index.kv_heads * s->index.dim, s->hidden, true, \
      s->index.heads) \
    X(IQN, "self_attn.indexer.q_norm.weight", s->index.dim, 1, false, s->index.norm) \
    X(IKN, "self_attn.indexer.k_norm.weight", s->index.dim, 1, false, s->index.norm) \
    X(SQKV, "linear_attn.in_proj_qkv.weight", scan_columns(s), s->hidden, true, s->scan.heads) \
    X(SZ, "linear_attn.in_proj_z.weight", s->scan.heads * s->scan.value_dim, s->hidden, true, s->scan.heads) \
    X(SB, "linear_attn.in_proj_b.weight", s->scan.heads, s->hidden, true, s->scan.heads && !s->scan.plain) \
    X(SA, "linear_attn.in_proj_a.weight", s->scan.heads, s->hidden, true, s->scan.heads) \
    X(SCONV, "linear_attn.conv1d.weight", scan_columns(s), s->scan.kernel, true, s->scan.heads) \
    X(SBIAS, "linear_attn.conv1d.bias", scan_columns(s), 1, false, s->scan.heads && s->scan.bias) \
    X(SNORM, "linear_attn.norm.weight", s->scan.value_dim *(s->scan.plain ? s->scan.heads : 1), 1, false, \
      s->scan.heads && !s->scan.bare) \
    X(SOUT, "linear_attn.out_proj.weight", s->hidden, s->scan.heads * s->scan.value_dim, true, \
      s->scan.heads) \
    X(SALOG, "linear_attn.A_log", s->scan.heads, 1, false, s->scan.heads) \
    X(SDT, "linear_attn.dt_bias", s->scan.heads, 1, false, s->scan.heads) \
    X(SD, "linear_attn.D", s->scan.heads, 1, false, s->scan.heads && s->scan.skip) \
    X(NORM2, "post_attention_layernorm.weight", s->hidden, 1, false, true) \
    X(GATE, "mlp.gate_proj.weight", s->ffn, s->hidden, true, !s->experts) \
    X(UP, "mlp.up_proj.weight", s->ffn, s->hidden, true, !s->experts) \
    X(DOWN, "mlp.down_proj.weight", s->hidden, s->ffn, true, !s->experts) \
    X(SHARED_GATE, "mlp.shared_expert.gate_proj.weight", s->shared_ffn, s->hidden, true, s->shared_ffn) \
    X(SHARED_UP, "mlp.shared_expert.up_proj.weight", s->shared_ffn, s->hidden, true, s->shared_ffn) \
    X(SHARED_DOWN, "mlp.shared_expert.down_proj.weight", s->hidden, s->shared_ffn, true, s->shared_ffn) \
    X(SHARED_OPEN, "mlp.shared_expert_gate.weight", 1, s->hidden, true, s->shared_gate) \
    X(ROUTER, "mlp.router.weight", s->experts, s->hidden, true, s->experts) \
    X(ROUTER_BIAS, "mlp.router.bias", s->experts, 1, false, s->router_bias) \
    X(CORRECTION, "mlp.router.correction", s->experts, 1, false, s->correction) \
    X(SINKS, "self_attn.sinks", s->heads, 1, false, s->sinks)
enum {
#define X(id, name, rows, cols, decays, there) L_##id,
    LAYER_TENSORS(X)
#undef X
    L_COUNT
};

static int layer_tensors(const Shape64 *s)
{
    int n = (s->expert_bias ? 6 : 3) * s->experts;
#define X(id, name, rows, cols, decays, there) n += (there) ? 1 : 0;
    LAYER_TENSORS(X)
#undef X
    return n;
}

/* Of all layers as this one is. */
static Shape64 shape_of(const Shape64 *s, int layer)
{
    Shape64 of = *s;
    const bool scans = s->scans && s->scans[layer];
    if (!scans)
        of.scan = (Scan64){0};
    else if (!s->scan.beside)
        of.latent = of.query_latent = 0, of.qkv_bias = of.qk_norm = of.sinks = false;
    if (!s->indexed || !s->indexed[layer])
        of.index = (struct Index64){0};
    if (s->dense && s->dense[layer])
        of.experts = of.shared_ffn = of.groups = 0, of.ffn = s->dense_ffn,
        of.shared_gate = of.router_bias = of.correction = of.expert_bias = false;
    return of;
}

/* Of the layers before this one. */
static int tensors_before(const Shape64 *s, int layer)
{
    int n = 0;
    for (int i = 0; i < layer; i++) {
        const Shape64 of = shape_of(s, i);
        n += layer_tensors(&of);
    }
    return n;
}

int tensor64_count(const Shape64 *s) { return 1 + tensors_before(s, s->layers) + 1 + !s->tied; }

static int64_t put(Tensor64 *t, int64_t offset, int64_t rows, int64_t cols, bool decays)
{
    t->rows = rows, t->cols = cols, t->offset = offset, t->decays = decays;
    return offset + rows * cols;
}

int64_t tensor64_table(const Shape64 *whole, Tensor64 *t)
{
    int64_t at = 0;
    snprintf(t->name, sizeof t->name, "model.embed_tokens.weight");
    at = put(t++, at, whole->vocab, whole->hidden, true);
    for (int layer = 0; layer < whole->layers; layer++) {
        const Shape64 of = shape_of(whole, layer), *s = &of;
#define X(id, text, rows, cols, decays, there)                                              \
    if (there) {                                                                            \
        snprintf(t->name, sizeof t->name, "model.layers.%d.%s", layer, text);               \
        at = put(t++, at, rows, cols, decays);                                              \
    }
        LAYER_TENSORS(X)
#undef X
        for (int e = 0, each = s->expert_bias ? 6 : 3; e < each * s->experts; e++) {
            static const char *const part[] = {"gate", "up", "down"};
            const bool down = e % 3 == 2, bias = e % each > 2;
            const int cols = down ? s->ffn : s->hidden;
            snprintf(t->name, sizeof t->name, "model.layers.%d.mlp.experts.%d.%s_proj.%s", layer, e / each,
                     part[e % 3], bias ? "bias" : "weight");
            at = put(t++, at, down ? s->hidden : s->ffn, bias ? 1 : cols, !bias);
        }
    }
    snprintf(t->name, sizeof t->name, "model.norm.weight");
    at = put(t++, at, whole->hidden, 1, false);
    if (!whole->tied) {
        snprintf(t->name, sizeof t->name, "lm_head.weight");
        at = put(t, at, whole->vocab, whole->hidden, true);
    }
    return at;
}

/* ---- pieces: forward writes y; backward adds to dx and dw ---- */

static void linear(int64_t n, int64_t in, int64_t out, const double *x, const double *w, double *y)
{
    for (int64_t t = 0; t < n; t++)
        for (int64_t o = 0; o < out; o++)
            y[t * out + o] = dot64(in, x + t * in, w + o * in);
    round64(n * out, y);
}

static void linear_back(int64_t n, int64_t in, int64_t out, const double *x, const double *w,
                        const double *dy, double *dx, double *dw)
{
    for (int64_t t = 0; t < n; t++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < in; i++) {
                dx[t * in + i] += dy[t * out + o] * w[o * in + i];
                dw[o * in + i] += dy[t * out + o] * x[t * in + i];
            }
    round64(n * in, dx);
}

static double inverse_rms(const double *x, int hidden, double eps)
{
    double sum = 0;
    for (int i = 0; i < hidden; i++)
        sum += x[i] * x[i];
    return 1 / sqrt(sum / hidden + eps);
}

/* n rows of so many columns. */
static void rmsnorm(double eps, int64_t n, int hidden, const double *x, const double *w, double *y)
{
    for (int64_t t = 0; t < n; t++, x += hidden, y += hidden) {
        double r = inverse_rms(x, hidden, eps);
        for (int i = 0; i < hidden; i++)
            y[i] = x[i] * r * w[i];
        round64(hidden, y);
    }
}

static void rmsnorm_back(double eps, int64_t n, int hidden, const double *x, const double *w,
                         const double *dy, double *dx, double *dw)
{
    for (int64_t t = 0; t < n; t++, x += hidden, dy += hidden, dx += hidden) {
        double r = inverse_rms(x, hidden, eps), along = 0;
        for (int i = 0; i < hidden; i++) {
            along += dy[i] * w[i] * x[i];
            dw[i] += dy[i] * x[i] * r;
        }
        for (int i = 0; i < hidden; i++)
            dx[i] += r * dy[i] * w[i] - r * r * r * along / hidden * x[i];
        round64(hidden, dx);
    }
}

/* Rotates the pairs (x[i], x[i + d/2]) of one head by the angle position * theta^(-2i/d); turn -1: back. */
static void rotate(double *x, int d, double theta, double position, double turn)
{
    int half = d / 2;
    for (int i = 0; i < half; i++) {
        double angle = turn * position * pow(theta, -2.0 * i / d);
        double a = x[i], b = x[i + half];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + half] = b * cos(angle) + a * sin(angle);
    }
}

static double position_of(const Shape64 *s, int64_t token)
{
    return (double)(s->position ? s->position[token] : token);
}

/* [n][heads*d] to [heads][n][d]; rotated as the model's, turned NULL: not. */
static void to_heads(int64_t n, int heads, int d, const Shape64 *turned, const double *x, double *y)
{
    for (int64_t t = 0; t < n; t++)
        for (int h = 0; h < heads; h++) {
            double *to = y + (h * n + t) * d;
            memcpy(to, x + (t * heads + h) * d, sizeof(double) * (size_t)d);
            if (turned)
                rotate(to, d, turned->rope_theta, position_of(turned, t), 1);
            round64(d, to);
        }
}

static void from_heads(int64_t n, int heads, int d, const Shape64 *turned, const double *x, double *y)
{
    for (int64_t t = 0; t < n; t++)
        for (int h = 0; h < heads; h++) {
            double *to = y + (t * heads + h) * d;
            memcpy(to, x + (h * n + t) * d, sizeof(double) * (size_t)d);
            if (turned)
                rotate(to, d, turned->rope_theta, position_of(turned, t), -1);
            round64(d, to);
        }
}

static void swiglu(int64_t count, const double *g, const double *u, double *a)
{
    for (int64_t i = 0; i < count; i++)
        a[i] = g[i] / (1 + exp(-g[i])) * u[i];
    round64(count, a);
}

static void swiglu_back(int64_t count, const double *g, const double *u, const double *da, double *dg,
                        double *du)
{
    for (int64_t i = 0; i < count; i++) {
        double sigmoid = 1 / (1 + exp(-g[i]));
        dg[i] = da[i] * u[i] * sigmoid * (1 + g[i] * (1 - sigmoid));
        du[i] = da[i] * g[i] * sigmoid;
    }
    round64(count, dg), round64(count, du);
}

static void add(int64_t count, const double *x, double *y)
{
    for (int64_t i = 0; i < count; i++)
        y[i] += x[i];
}

/* y may be x. */
static void scaled(int64_t count, double scale, const double *x, double *y)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] * (scale > 0 ? scale : 1);
}

static void add_rounded(int64_t count, const double *x, double *y)
{
    add(count, x, y);
    round64(count, y);
}

/* ---- one layer ---- */

#define KEPT(X) /* what forward keeps: name, size */ \
    X(x, n * s->hidden) \
    X(h1, n * s->hidden) X(q, n *nq) X(k, n *nk) X(v, n *nv) X(o, n *no) X(lse, n * s->heads) X(ot, n *no) \
        X(ag, n *no) X(x2, n * s->hidden) X(h2, n * s->hidden) X(g, n * s->ffn) X(u, n * s->ffn) \
            X(a, n * s->ffn)
typedef struct Kept {
#define X(name, size) double *name;
    KEPT(X)
#undef X
} Kept;

static Kept kept_new(const Shape64 *s, int64_t n)
{
    int64_t nq = s->heads * s->head_dim, nk = s->kv_heads * s->head_dim, no = s->heads * value_dim(s),
            nv = s->kv_heads * value_dim(s);
#define X(name, size) .name = new64(size),
    return (Kept){KEPT(X)};
#undef X
}

static void kept_free(Kept *c)
{
#define X(name, size) free(c->name);
    KEPT(X)
#undef X
}

/* Pointers to a layer's tensors in the flat vector (of weights or gradients), first tensor of the table t;
 * NULL: the model has none. */
typedef struct Layer {
    double *at[L_COUNT];
    Experts64 experts;
} Layer;
static Layer layer_of(const Shape64 *s, const Tensor64 *t, const double *flat)
{
    Layer l;
#define X(id, name, rows, cols, decays, there) l.at[L_##id] = (there) ? (double *)flat + (t++)->offset : NULL;
    LAYER_TENSORS(X)
#undef X
    l.experts = (Experts64){l.at[L_ROUTER], l.at[L_ROUTER_BIAS], l.at[L_CORRECTION],
                            s->experts ? (double *)flat + t->offset : NULL, NULL}; /* the layer's last */
    return l;
}

static Attention64 attention_of(const Shape64 *s, int64_t n, Mask64 mask, const Kept *c, const Layer *w,
                                const Layer *dw)
{
    return (Attention64){n,
                         s->heads,
                         s->kv_heads,
                         s->head_dim,
                         mask,
                         c->q,
                         c->k,
                         c->v,
                         s->softcap,
                         w->at[L_SINKS],
                         dw ? dw->at[L_SINKS] : NULL,
                         value_dim(s)};
}

/* A projection of x by the layer's tensor `id`, which its bias and, in the order of LAYER_TENSORS, its
 * norm follow; turned: its heads are rotated. */
typedef struct Projection { int id, bias, norm, heads; const Shape64 *turned; } Projection;

static Projection projection(const Shape64 *s, int id)
{
    static const int bias[] = {[L_Q] = L_QB, [L_K] = L_KB, [L_V] = L_VB},
                     norm[] = {[L_Q] = L_QN, [L_K] = L_KN, [L_V] = -1};
    return (Projection){id, bias[id], norm[id], id == L_Q ? s->heads : s->kv_heads,
                        id == L_V ? NULL : s};
}

static const double *norm_of(const Projection *p, const Layer *w)
{
    return p->norm < 0 ? NULL : w->at[p->norm];
}

/* Turns heads by their tokens, or turns them back. */
static void turn_heads(const Shape64 *s, int64_t n, int heads, double direction, double *x)
{
    for (int64_t i = 0; s->qk_norm_rotated && i < n * heads; i++)
        rotate(x + i * s->head_dim, s->head_dim, s->rope_theta, position_of(s, i / heads), direction);
}

/* Before its norm. */
static double *product(const Shape64 *s, int64_t n, const Projection *p, const double *x, const Layer *w)
{
    const int width = p->heads * s->head_dim;
    double *flat = new64(n * width);
    linear(n, s->hidden, width, x, w->at[p->id], flat);
    for (int64_t t = 0; w->at[p->bias] && t < n; t++)
        add(width, w->at[p->bias], flat + t * width);
    if (p->turned)
        turn_heads(s, n, p->heads, 1, flat);
    return flat;
}

static void project(const Shape64 *s, int64_t n, Projection p, const double *x, const Layer *w, double *y)
{
    double *flat = product(s, n, &p, x, w);
    if (norm_of(&p, w))
        rmsnorm(s->norm_eps, n * p.heads * s->head_dim / norm_width(s, p.heads), norm_width(s, p.heads), flat,
                norm_of(&p, w), flat);
    to_heads(n, p.heads, s->head_dim, s->qk_norm_rotated ? NULL : p.turned, flat, y);
    free(flat);
}

/* ---- multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) ---- */
static const double latent_eps = 1e-6; /* of the norms of latents */

/* Turns, or turns back, the last elements of each head. */
static void turn_last(const Shape64 *s, int64_t n, int heads, double direction, double *x)
{
    for (int64_t i = 0; i < n * heads; i++)
        rotate(x + i * s->head_dim + s->head_dim - s->shared, s->shared, s->rope_theta,
               position_of(s, i / heads), direction);
}

/* The tensors of a latent: its product of x [n][D], its norm. */
typedef struct Low { int down, norm, rank; } Low;
static Low low_of(const Shape64 *s, bool queries)
{
    return queries ? (Low){L_QA, L_QAN, s->query_latent} : (Low){L_KVA, L_KVN, s->latent};
}

static void make_low(const Shape64 *s, int64_t n, Low l, const double *x, const Layer *w, double *raw,
                     double *y)
{
    linear(n, s->hidden, l.rank, x, w->at[l.down], raw);
    rmsnorm(latent_eps, n, l.rank, raw, w->at[l.norm], y);
}

/* dy: of the normed latent. */
static void low_back(const Shape64 *s, int64_t n, Low l, const double *x, const Layer *w, const double *raw,
                     const double *dy, double *dx, const Layer *dw)
{
    double *d_raw = new64(n * l.rank);
    rmsnorm_back(latent_eps, n, l.rank, raw, w->at[l.norm], dy, d_raw, dw->at[l.norm]);
    linear_back(n, s->hidden, l.rank, x, w->at[l.down], d_raw, dx, dw->at[l.down]);
    free(d_raw);
}

/* Queries, keys and values of a layer with latents, by heads. */
static void latent_forward(const Shape64 *s, int64_t n, const Layer *w, Kept *c)
{
    const int own = own_dim(s), nq = s->heads * s->head_dim, nv = s->kv_heads * value_dim(s);
    double *low = new64(n * s->query_latent), *y = new64(n * s->query_latent), *q = new64(n * nq);
    double *kv = new64(n * s->latent), *z = new64(n * s->latent), *k_own = new64(n * s->kv_heads * own),
           *every = new64(n * s->shared), *k = new64(n * s->kv_heads * s->head_dim), *v = new64(n * nv);
    if (s->query_latent)
        make_low(s, n, low_of(s, true), c->h1, w, low, y);
    linear(n, s->query_latent ? s->query_latent : s->hidden, nq, s->query_latent ? y : c->h1,
           w->at[s->query_latent ? L_QBP : L_Q], q);
    turn_last(s, n, s->heads, 1, q);
    to_heads(n, s->heads, s->head_dim, NULL, q, c->q);
    make_low(s, n, low_of(s, false), c->h1, w, kv, z);
    linear(n, s->latent, s->kv_heads * own, z, w->at[L_KBP], k_own);
    linear(n, s->hidden, s->shared, c->h1, w->at[L_KS], every);
    for (int64_t i = 0; i < n * s->kv_heads; i++) {
        memcpy(k + i * s->head_dim, k_own + i * own, sizeof(double) * (size_t)own);
        memcpy(k + i * s->head_dim + own, every + i / s->kv_heads * s->shared,
               sizeof(double) * (size_t)s->shared);
    }
    turn_last(s, n, s->kv_heads, 1, k);
    to_heads(n, s->kv_heads, s->head_dim, NULL, k, c->k);
    linear(n, s->latent, nv, z, w->at[L_VBP], v);
    to_heads(n, s->kv_heads, value_dim(s), NULL, v, c->v);
    free(low), free(y), free(q), free(kv), free(z), free(k_own), free(every), free(k), free(v);
}

/* dq, dk, dv by heads; dh: of the norm's output, added to. */
static void latent_back(const Shape64 *s, int64_t n, const Layer *w, const Layer *dw, const Kept *c,
                        const double *dq, const double *dk, const double *dv, double *dh)
{
    const int own = own_dim(s), nq = s->heads * s->head_dim, nv = s->kv_heads * value_dim(s);
    double *low = new64(n * s->query_latent), *y = new64(n * s->query_latent),
           *dy = new64(n * s->query_latent);
    double *kv = new64(n * s->latent), *z = new64(n * s->latent), *dz = new64(n * s->latent);
    double *q = new64(n * nq), *k = new64(n * s->kv_heads * s->head_dim), *v = new64(n * nv),
           *k_own = new64(n * s->kv_heads * own), *every = new64(n * s->shared);
    from_heads(n, s->heads, s->head_dim, NULL, dq, q);
    turn_last(s, n, s->heads, -1, q);
    if (s->query_latent) {
        make_low(s, n, low_of(s, true), c->h1, w, low, y);
        linear_back(n, s->query_latent, nq, y, w->at[L_QBP], q, dy, dw->at[L_QBP]);
        low_back(s, n, low_of(s, true), c->h1, w, low, dy, dh, dw);
    } else {
        linear_back(n, s->hidden, nq, c->h1, w->at[L_Q], q, dh, dw->at[L_Q]);
    }
    from_heads(n, s->kv_heads, s->head_dim, NULL, dk, k);
    turn_last(s, n, s->kv_heads, -1, k);
    for (int64_t i = 0; i < n * s->kv_heads; i++) {
        memcpy(k_own + i * own, k + i * s->head_dim, sizeof(double) * (size_t)own);
        add(s->shared, k + i * s->head_dim + own, every + i / s->kv_heads * s->shared);
    }
    make_low(s, n, low_of(s, false), c->h1, w, kv, z);
    linear_back(n, s->hidden, s->shared, c->h1, w->at[L_KS], every, dh, dw->at[L_KS]);
    linear_back(n, s->latent, s->kv_heads * own, z, w->at[L_KBP], k_own, dz, dw->at[L_KBP]);
    from_heads(n, s->kv_heads, value_dim(s), NULL, dv, v);
    linear_back(n, s->latent, nv, z, w->at[L_VBP], v, dz, dw->at[L_VBP]);
    low_back(s, n, low_of(s, false), c->h1, w, kv, dz, dh, dw);
    free(low), free(y), free(dy), free(kv), free(z), free(dz);
    free(q), free(k), free(v), free(k_own), free(every);
}

/* The network that every token has beside its experts. */
typedef struct Shared {
    double *g, *u, *a, *y; /* [n][ffn], of a network; y [n][D] */
    double *open;          /* [n] the gate of its output, or ones */
} Shared;

static Shared shared_of(const Shape64 *s, int64_t n, const Layer *w, const double *x)
{
    const int64_t wide = n * s->shared_ffn;
    const Shared c = {new64(wide), new64(wide), new64(wide), new64(n * s->hidden), new64(n)};
    linear(n, s->hidden, s->shared_ffn, x, w->at[L_SHARED_GATE], c.g);
    linear(n, s->hidden, s->shared_ffn, x, w->at[L_SHARED_UP], c.u);
    swiglu(wide, c.g, c.u, c.a);
    linear(n, s->shared_ffn, s->hidden, c.a, w->at[L_SHARED_DOWN], c.y);
    if (s->shared_gate)
        linear(n, s->hidden, 1, x, w->at[L_SHARED_OPEN], c.open);
    for (int64_t t = 0; t < n; t++)
        c.open[t] = s->shared_gate ? 1 / (1 + exp(-c.open[t])) : 1;
    return c;
}

static void shared_free(const Shared *c) { free(c->g), free(c->u), free(c->a), free(c->y), free(c->open); }

static void shared_forward(const Shape64 *s, int64_t n, const Layer *w, const double *x, double *out)
{
    const Shared c = shared_of(s, n, w, x);
    for (int64_t i = 0; i < n * s->hidden; i++)
        out[i] += c.open[i / s->hidden] * c.y[i];
    shared_free(&c);
}

static void shared_back(const Shape64 *s, int64_t n, const Layer *w, const double *x, const double *dy,
                        double *dx, const Layer *dw)
{
    const int64_t wide = n * s->shared_ffn;
    const Shared c = shared_of(s, n, w, x),
                 d = {new64(wide), new64(wide), new64(wide), new64(n * s->hidden), new64(n)};
    for (int64_t i = 0; i < n * s->hidden; i++) {
        const double open = c.open[i / s->hidden];
        d.y[i] = open * dy[i];
        d.open[i / s->hidden] += open * (1 - open) * dy[i] * c.y[i];
    }
    if (s->shared_gate)
        linear_back(n, s->hidden, 1, x, w->at[L_SHARED_OPEN], d.open, dx, dw->at[L_SHARED_OPEN]);
    linear_back(n, s->shared_ffn, s->hidden, c.a, w->at[L_SHARED_DOWN], d.y, d.a, dw->at[L_SHARED_DOWN]);
    swiglu_back(wide, c.g, c.u, d.a, d.g, d.u);
    linear_back(n, s->hidden, s->shared_ffn, x, w->at[L_SHARED_GATE], d.g, dx, dw->at[L_SHARED_GATE]);
    linear_back(n, s->hidden, s->shared_ffn, x, w->at[L_SHARED_UP], d.u, dx, dw->at[L_SHARED_UP]);
    shared_free(&c), shared_free(&d);
}

/* c->x is the layer's input; out [n][D] its output. */
static Scan64Weights scan_weights(const Layer *w)
{
    return (Scan64Weights){w->at[L_SQKV],  w->at[L_SZ],    w->at[L_SB],   w->at[L_SA],
                           w->at[L_SCONV], w->at[L_SNORM], w->at[L_SOUT], w->at[L_SALOG],
                           w->at[L_SDT],   w->at[L_SBIAS], w->at[L_SD]};
}

/* Queries or keys of the indexer, by heads; norm: the number of its weight. */
static double *index_of(const Shape64 *s, int64_t n, int heads, const double *x, const double *w,
                        const double *norm)
{
    const int d = s->index.dim;
    double *flat = new64(n * heads * d), *y = new64(n * heads * d);
    linear(n, s->hidden, heads * d, x, w, flat);
    if (s->index.norm)
        rmsnorm(s->norm_eps, n * heads, d, flat, norm, flat);
    for (int64_t i = 0; i < n * heads; i++)
        rotate(flat + i * d, s->index.rotary, s->rope_theta, position_of(s, i / heads), 1);
    to_heads(n, heads, d, NULL, flat, y);
    free(flat);
    return y;
}

static Score64 index_forward(const Shape64 *s, int64_t n, const Layer *w, const double *x)
{
    const struct Index64 *i = &s->index;
    if (!i->heads)
        return (Score64){0};
    return (Score64){i->heads, i->kv_heads, i->dim, index_of(s, n, i->heads, x, w->at[L_IQ], w->at[L_IQN]),
                     index_of(s, n, i->kv_heads, x, w->at[L_IK], w->at[L_IKN])};
}

static void index_free(const Score64 *x) { free((double *)x->q), free((double *)x->k); }

/* From c->h1 to what is added to the layer's input, in c->x2. */
static void attend(const Shape64 *s, int64_t n, Mask64 mask, const Layer *w, Kept *c)
{
    const int d = value_dim(s);
    if (s->latent) {
        latent_forward(s, n, w, c);
    } else {
        project(s, n, projection(s, L_Q), c->h1, w, c->q);
        project(s, n, projection(s, L_K), c->h1, w, c->k);
        project(s, n, projection(s, L_V), c->h1, w, c->v);
    }
    Attention64 a = attention_of(s, n, mask, c, w, NULL);
    a.score = index_forward(s, n, w, c->h1);
    attention64_forward(&a, c->o, c->lse);
    index_free(&a.score);
    from_heads(n, s->heads, d, NULL, c->o, c->ot);
    if (s->attention_gate) {
        linear(n, s->hidden, s->heads * d, c->h1, w->at[L_AGATE], c->ag);
        for (int64_t i = 0; i < n * s->heads * d; i++)
            c->ot[i] /= 1 + exp(-c->ag[i]);
    }
    linear(n, s->heads * d, s->hidden, c->ot, w->at[L_O], c->x2);
}

static void layer_forward(const Shape64 *s, int64_t n, Mask64 mask, const Layer *w, Kept *c, double *out)
{
    rmsnorm(s->norm_eps, n, s->hidden, c->x, w->at[L_NORM1], c->h1);
    if (attends(s)) {
        attend(s, n, mask, w, c);
        scaled(n * s->hidden, s->attention_out, c->x2, c->x2);
    }
    if (s->scan.heads) {
        const Scan64Weights of = scan_weights(w);
        double *y = new64(n * s->hidden);
        scan64_forward(s, n, c->h1, &of, y);
        scaled(n * s->hidden, s->scan_out, y, y);
        add_rounded(n * s->hidden, y, c->x2);
        free(y);
    }
    add_rounded(n * s->hidden, c->x, c->x2);
    rmsnorm(s->norm_eps, n, s->hidden, c->x2, w->at[L_NORM2], c->h2);
    if (s->experts) {
        memset(out, 0, sizeof *out * (size_t)(n * s->hidden));
        const double gap = experts64_forward(s, n, c->h2, &w->experts, out);
        if (s->gap && gap < *s->gap)
            *s->gap = gap;
        if (s->shared_ffn)
            shared_forward(s, n, w, c->h2, out);
    } else {
        linear(n, s->hidden, s->ffn, c->h2, w->at[L_GATE], c->g);
        linear(n, s->hidden, s->ffn, c->h2, w->at[L_UP], c->u);
        swiglu(n * s->ffn, c->g, c->u, c->a);
        linear(n, s->ffn, s->hidden, c->a, w->at[L_DOWN], out);
    }
    add_rounded(n * s->hidden, c->x2, out);
}

/* dx holds the gradient of the layer's output and becomes that of x2, the middle of the layer. */
static void ffn_back(const Shape64 *s, int64_t n, const Layer *w, const Layer *dw, const Kept *c, double *dx)
{
    double *da = new64(n * s->ffn), *dg = new64(n * s->ffn), *du = new64(n * s->ffn),
           *dh = new64(n * s->hidden);
    if (s->experts) {
        experts64_backward(s, n, c->h2, &w->experts, dx, dh, &dw->experts);
        if (s->shared_ffn)
            shared_back(s, n, w, c->h2, dx, dh, dw);
    } else {
        linear_back(n, s->ffn, s->hidden, c->a, w->at[L_DOWN], dx, da, dw->at[L_DOWN]);
        swiglu_back(n * s->ffn, c->g, c->u, da, dg, du);
        linear_back(n, s->hidden, s->ffn, c->h2, w->at[L_GATE], dg, dh, dw->at[L_GATE]);
        linear_back(n, s->hidden, s->ffn, c->h2, w->at[L_UP], du, dh, dw->at[L_UP]);
    }
    rmsnorm_back(s->norm_eps, n, s->hidden, c->x2, w->at[L_NORM2], dh, dx, dw->at[L_NORM2]);
    free(da), free(dg), free(du), free(dh);
}

static void project_back(const Shape64 *s, int64_t n, Projection p, const double *x, const Layer *w,
                         const double *dy, double *dx, const Layer *dw)
{
    const int width = p.heads * s->head_dim;
    double *flat = new64(n * width);
    from_heads(n, p.heads, s->head_dim, s->qk_norm_rotated ? NULL : p.turned, dy, flat);
    if (norm_of(&p, w)) {
        double *raw = product(s, n, &p, x, w), *d_raw = new64(n * width);
        const int row = norm_width(s, p.heads);
        rmsnorm_back(s->norm_eps, n * width / row, row, raw, norm_of(&p, w), flat, d_raw, dw->at[p.norm]);
        memcpy(flat, d_raw, sizeof(double) * (size_t)(n * width));
        free(raw), free(d_raw);
    }
    if (p.turned)
        turn_heads(s, n, p.heads, -1, flat);
    for (int64_t t = 0; dw->at[p.bias] && t < n; t++)
        add(width, flat + t * width, dw->at[p.bias]);
    linear_back(n, s->hidden, width, x, w->at[p.id], flat, dx, dw->at[p.id]);
    free(flat);
}

/* d holds the gradient of what the gate multiplied, and becomes that of attention's output. */
static void gate_back(const Shape64 *s, int64_t n, const Layer *w, const Layer *dw, const Kept *c, double *d,
                      double *dh)
{
    const int64_t width = s->heads * value_dim(s);
    double *dg = new64(n * width);
    for (int64_t i = 0; i < n * width; i++) {
        const double by = 1 / (1 + exp(-c->ag[i]));
        dg[i] = d[i] * c->ot[i] * (1 - by);
        d[i] *= by;
    }
    linear_back(n, s->hidden, width, c->h1, w->at[L_AGATE], dg, dh, dw->at[L_AGATE]);
    free(dg);
}

/* dy: the gradient of attention's output; adds to dh. */
static void attention_back(const Shape64 *s, int64_t n, Mask64 mask, const Layer *w, const Layer *dw,
                           const Kept *c, const double *dy, double *dh)
{
    const int e = value_dim(s);
    const int64_t nq = n * s->heads * s->head_dim, nk = n * s->kv_heads * s->head_dim, no = n * s->heads * e;
    double *dot = new64(no), *d_o = new64(no), *dq = new64(nq), *dk = new64(nk),
           *dv = new64(n * s->kv_heads * e);
    linear_back(n, s->heads * e, s->hidden, c->ot, w->at[L_O], dy, dot, dw->at[L_O]);
    if (s->attention_gate)
        gate_back(s, n, w, dw, c, dot, dh);
    to_heads(n, s->heads, e, NULL, dot, d_o);
    Attention64 a = attention_of(s, n, mask, c, w, dw);
    a.score = index_forward(s, n, w, c->h1);
    attention64_backward(&a, c->o, d_o, dq, dk, dv);
    index_free(&a.score);
    if (s->latent) {
        latent_back(s, n, w, dw, c, dq, dk, dv, dh);
    } else {
        project_back(s, n, projection(s, L_Q), c->h1, w, dq, dh, dw);
        project_back(s, n, projection(s, L_K), c->h1, w, dk, dh, dw);
        project_back(s, n, projection(s, L_V), c->h1, w, dv, dh, dw);
    }
    free(dot), free(d_o), free(dq), free(dk), free(dv);
}

/* dx holds the gradient of x2 and becomes that of the layer's input. */
static void mixers_back(const Shape64 *s, int64_t n, Mask64 mask, const Layer *w, const Layer *dw,
                        const Kept *c, double *dx)
{
    double *dh = new64(n * s->hidden), *dy = new64(n * s->hidden);
    if (s->scan.heads) {
        const Scan64Weights of = scan_weights(w), d_of = scan_weights(dw);
        scaled(n * s->hidden, s->scan_out, dx, dy);
        scan64_backward(s, n, c->h1, &of, dy, dh, &d_of);
    }
    if (attends(s)) {
        scaled(n * s->hidden, s->attention_out, dx, dy);
        attention_back(s, n, mask, w, dw, c, dy, dh);
    }
    rmsnorm_back(s->norm_eps, n, s->hidden, c->x, w->at[L_NORM1], dh, dx, dw->at[L_NORM1]);
    free(dh), free(dy);
}

/* ---- the ends ---- */

static void embed(const Shape64 *s, const Batch64 *b, const double *table, double *x)
{
    for (int64_t t = 0; t < b->n; t++)
        memcpy(x + t * s->hidden, table + (int64_t)b->token[t] * s->hidden,
               sizeof(double) * (size_t)s->hidden);
}

static void embed_back(const Shape64 *s, const Batch64 *b, const double *dx, double *dtable)
{
    for (int64_t t = 0; t < b->n; t++)
        add(s->hidden, dx + t * s->hidden, dtable + (int64_t)b->token[t] * s->hidden);
}

/* Turns one token's logits into their gradient (softmax minus one at the label); the token's loss comes
 * back. */
static double cross_entropy(double *logit, int vocab, int32_t label)
{
    double max = -INFINITY, sum = 0, at_label = logit[label];
    for (int i = 0; i < vocab; i++)
        max = fmax(max, logit[i]);
    for (int i = 0; i < vocab; i++)
        sum += exp(logit[i] - max);
    for (int i = 0; i < vocab; i++)
        logit[i] = exp(logit[i] - max) / sum;
    logit[label] -= 1;
    return max + log(sum) - at_label;
}

/* x [n][D] is the final norm's output; dx and dw (which may both be NULL) are added to. */
static double head_loss(const Shape64 *s, const Batch64 *b, const double *x, const double *w, double scale,
                        double *dx, double *dw)
{
    double loss = 0, *logit = new64(s->vocab);
    for (int64_t t = 0; t < b->n; t++) {
        if (b->label[t] < 0)
            continue;
        linear(1, s->hidden, s->vocab, x + t * s->hidden, w, logit);
        loss += b->weight[t] * cross_entropy(logit, s->vocab, b->label[t]);
        for (int i = 0; i < s->vocab; i++)
            logit[i] *= scale * b->weight[t];
        if (dw)
            linear_back(1, s->hidden, s->vocab, x + t * s->hidden, w, logit, dx + t * s->hidden, dw);
    }
    free(logit);
    return loss;
}

/* ---- the whole ---- */

typedef struct Run {
    const Shape64 *s;
    const Batch64 *b;
    Tensor64 *tensor; /* the table */
    Kept *kept;       /* [layers] */
    double *last;     /* [n][D] output of the last layer */
} Run;

static const Tensor64 *final_norm(const Run *r) { return r->tensor + 1 + tensors_before(r->s, r->s->layers); }

static const Tensor64 *head(const Run *r)
{
    return r->s->tied ? r->tensor : final_norm(r) + 1;
}

static const int32_t *choices_of(const Run *r, int layer)
{
    return r->b->choice ? r->b->choice + layer * r->b->n * r->s->top : NULL;
}

static void layers_forward(Run *r, const double *w)
{
    const Shape64 *s = r->s;
    int64_t n = r->b->n;
    for (int i = 0; i < s->layers; i++) {
        const Shape64 of = shape_of(s, i);
        r->kept[i] = kept_new(&of, n);
    }
    embed(s, r->b, w + r->tensor->offset, s->layers ? r->kept[0].x : r->last);
    for (int i = 0; i < s->layers; i++) {
        const Shape64 of = shape_of(s, i);
        Layer l = layer_of(&of, r->tensor + 1 + tensors_before(s, i), w);
        l.experts.choice = choices_of(r, i);
        layer_forward(&of, n, r->b->mask[i], &l, &r->kept[i], i + 1 < s->layers ? r->kept[i + 1].x : r->last);
    }
}

/* dx: the gradient of the last layer's output. */
static void layers_back(const Run *r, const double *w, double *dx, double *grad)
{
    for (int i = r->s->layers - 1; i >= 0; i--) {
        const Shape64 of = shape_of(r->s, i);
        const Tensor64 *t = r->tensor + 1 + tensors_before(r->s, i);
        Layer l = layer_of(&of, t, w), dl = layer_of(&of, t, grad);
        l.experts.choice = choices_of(r, i);
        ffn_back(&of, r->b->n, &l, &dl, &r->kept[i], dx);
        mixers_back(&of, r->b->n, r->b->mask[i], &l, &dl, &r->kept[i], dx);
    }
    embed_back(r->s, r->b, dx, grad + r->tensor->offset);
}

static double ends(const Run *r, const double *w, double scale, double *grad)
{
    const Shape64 *s = r->s;
    int64_t n = r->b->n, norm = final_norm(r)->offset;
    double *y = new64(n * s->hidden), *dy = new64(n * s->hidden), *dx = new64(n * s->hidden);
    rmsnorm(s->norm_eps, n, s->hidden, r->last, w + norm, y);
    double loss = head_loss(s, r->b, y, w + head(r)->offset, scale, dy, grad ? grad + head(r)->offset : NULL);
    if (grad) {
        rmsnorm_back(s->norm_eps, n, s->hidden, r->last, w + norm, dy, dx, grad + norm);
        layers_back(r, w, dx, grad);
    }
    free(y), free(dy), free(dx);
    return loss;
}

double model64_sequence(const Shape64 *s, const double *w, const Batch64 *b, double scale, double *grad)
{
    Run r = {s, b, calloc((size_t)tensor64_count(s), sizeof(Tensor64)),
             calloc((size_t)s->layers + 1, sizeof(Kept)), new64(b->n * s->hidden)};
    if (!r.tensor || !r.kept)
        abort();
    tensor64_table(s, r.tensor);
    layers_forward(&r, w);
    double loss = ends(&r, w, scale, grad);
    for (int i = 0; i < s->layers; i++)
        kept_free(&r.kept[i]);
    free(r.tensor), free(r.kept), free(r.last);
    return loss;
}
