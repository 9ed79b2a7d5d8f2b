/* case.c: see case.h. */
#include "case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;

void draw_from(uint64_t first)
{
    seed = first;
}

int draw(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static bool causal(int64_t q, int64_t k, const void *ctx)
{
    (void)ctx;
    return k <= q;
}

/* Multi-head latent attention: as many heads as key heads. */
static void make_latent(Model *m)
{
    m->shared = 2;
    m->head_dim = m->shared + 1 + draw(3);
    m->value_dim = 1 + draw(5);
    m->heads = m->kv_heads;
    m->latent = 3 + draw(4);
    m->query_latent = draw(2) ? 2 + draw(5) : 0;
    m->rope.rotary = -m->shared;
}

/* Two kinds of layers in some cases, which have blocks and units of their own. Their parts are the same.
 * Nothing is drawn, so that the other cases stay as they are. */
static void make_kinds(Arena *a, Model *m)
{
    const int by = m->hidden + m->vocab;
    if (m->layers < 2 || by % 3)
        return;
    int *kind = NEW_ARRAY(a, int, m->layers);
    m->kinds = 2;
    for (int l = 1; l < m->layers; l++)
        kind[l] = l == m->layers - 1 || (by >> l & 1);
    m->layer_kind = kind;
}

static Program random_program(Arena *a, bool cuda, bool split)
{
    const int tensor = split ? 2 + draw(3) : 1, kv_heads = 1 + draw(2), head_dim = 2 * (1 + draw(2));
    Program p = {.target = &targets[cuda ? TARGET_CUDA : TARGET_C],
                 .cluster = {.nodes = 1, .world = tensor * (1 + draw(split ? 2 : 4))}};
    p.layout.tensor.value = tensor;
    /* all of them, or some */
    const int same = tensor == 4 ? 2 : tensor, copies = split && kv_heads == 1 && draw(2) ? same : 1;
    p.layout.data.value = p.cluster.world / tensor;
    p.train.batch = p.layout.data.value * (1 + draw(2));
    p.model = (Model){.layers = 1 + draw(split ? 2 : 4),
                      .hidden = 4 + draw(5),
                      .heads = kv_heads * (1 + draw(2)),
                      .kv_heads = kv_heads,
                      .head_dim = head_dim,
                      .value_dim = head_dim,
                      .ffn = 3 + draw(6),
                      .vocab = 5 + draw(4),
                      .norm_eps = 1e-5,
                      .rope.theta = 100,
                      .tied = draw(2),
                      .qkv_bias = draw(3) == 0,
                      .sinks = draw(2)};
    p.model.qk_norm = !p.model.qkv_bias && draw(2);
    const bool latent = copies == 1 && !p.model.qkv_bias && !p.model.qk_norm && draw(2);
    p.sequence = 4 + draw(6);
    const int chunks = copies == 1 && p.sequence % 3 == 0 && p.model.layers < 4 ? 2 + draw(2) : 1,
              fewer = chunks > 1 && kv_heads > 1 ? 1 + draw(chunks - 1) : 0, group = p.model.heads / kv_heads;
    p.layout.head_chunks.value = chunks;
    /* so far of a chunk of a rank's */
    p.model.heads = group * (kv_heads * chunks - fewer) * tensor;
    p.model.kv_heads = (kv_heads * chunks - fewer) * tensor / copies;
    p.model.ffn *= tensor;
    p.model.layer.qk_norm_all = split && p.model.qk_norm && chunks == 1 && p.model.hidden % 2;
    p.model.layer.qk_norm_rotated = p.model.qk_norm && !p.model.layer.qk_norm_all && p.model.hidden % 2 == 0;
    if (latent)
        make_latent(&p.model);
    make_kinds(a, &p.model);
    return p;
}

static void draw_batch(Case *c)
{
    const int64_t rows = c->n * c->sequences;
    c->token = NEW_ARRAY(c->arena, int32_t, rows);
    c->label = NEW_ARRAY(c->arena, int32_t, rows);
    c->label_weight = NEW_ARRAY(c->arena, double, rows);
    for (int64_t i = 0; i < rows; i++) {
        c->token[i] = draw(c->shape.vocab);
        c->label[i] = draw(c->shape.vocab);
        c->label_weight[i] = (1 + draw(4)) / 2.0; /* none is 0: all rows count, so that mutants show */
    }
}

int64_t unit_elements(const Case *c, int unit)
{
    const Unit *u = step_unit(c->step, unit);
    int64_t all = 0;
    for (int i = 0; i < u->tensors; i++)
        all += u->tensor[i].rows * u->tensor[i].cols * u->tensor[i].parts;
    return all;
}

static double *unit_flat(const Case *c, double *flat, int unit)
{
    int64_t at = 0;
    for (int u = 0; u < unit; u++)
        at += unit_elements(c, u);
    return flat + at;
}

/* The oracle's weights lie unit by unit too, in the same order. */
static void reference(Case *c)
{
    Tensor64 *t = NEW_ARRAY(c->arena, Tensor64, tensor64_count(&c->shape));
    const int64_t all = tensor64_table(&c->shape, t);
    Mask64 *mask = NEW_ARRAY(c->arena, Mask64, c->shape.layers);
    for (int l = 0; l < c->shape.layers; l++)
        mask[l].keep = causal;
    c->flat = NEW_ARRAY(c->arena, double, all);
    c->wanted = NEW_ARRAY(c->arena, double, all);
    for (int64_t i = 0; i < all; i++)
        c->flat[i] = (draw(2001) - 1000) / 1000.0;
    for (int i = 0; i < c->sequences; i++) {
        const Batch64 b = {c->n, c->token + i * c->n, c->label + i * c->n, c->label_weight + i * c->n, mask};
        c->loss += model64_sequence(&c->shape, c->flat, &b, c->scale, c->wanted);
    }
}

/* Each value in upper or not, and of those in lower or not; x is in both. What rotation may overwrite
 * cannot be saved. */
static Saving random_saving(Arena *a, int layers)
{
    static const char *const names[] = {"h1",          "rstd1",     "q_raw",      "rstd_q",   "q",
                                        "k_raw",       "rstd_k",    "k",          "v",        "o",
                                        "lse",         "x_mid",     "h2",         "rstd2",    "gate_up",
                                        "ffn",         "q_low",     "rstd_q_low", "q_latent", "kv_low",
                                        "rstd_kv_low", "kv_latent", "k_own",      "k_shared"};
    Saving s = {" x ", " x ", draw(layers + 1)};
    for (int i = 0; i < countof(names); i++) {
        const int both = draw(3);
        s.upper = both ? arena_printf(a, "%s%s ", s.upper, names[i]) : s.upper;
        s.lower = both == 1 ? arena_printf(a, "%s%s ", s.lower, names[i]) : s.lower;
    }
    return s;
}

/* Nothing, all that layers save, or some of it; other rules of recomputation meet others each time round. */
static const char *staged(int i)
{
    const char *const sets[] = {NULL, saved_most(), " x q o gate_up "};
    return sets[(i + i / (RECOMPUTES + 2)) % countof(sets)];
}

/* Less than all ranks, and as many in each group, of which the ranks that split layers are in one; 0:
 * none. */
static int random_part(int world, int tensor)
{
    const int part = 1 + draw(world);
    return part < world && world % part == 0 && part % tensor == 0 ? part : 0;
}

static Choice random_choice(Arena *a, const Program *p, int i)
{
    const int rule = i % (RECOMPUTES + 2);
    const int tensor = program_tensor(p) > 1 ? program_tensor(p) : 0;
    Choice c = {.data = (int)p->layout.data.value, .tensor = tensor, .ranks = 1};
    c.head_chunks = (int)p->layout.head_chunks.value;
    const bool heads = c.head_chunks > 1;
    c.ffn_chunks = draw(2) ? 1 + draw(4) : 1;
    c.token_chunks = draw(2) ? 1 + draw(4) : 1;
    c.sharding = (Sharding)draw(SHARDINGS);
    const bool no_tail = heads && rule % RECOMPUTES == RECOMPUTE_TAIL;
    c.saving = saving_by(no_tail ? RECOMPUTE_FULL : (Recompute)(rule % RECOMPUTES), (1 + draw(9)) / 10.0);
    c.within = draw(2) ? random_part(p->cluster.world, program_tensor(p)) : 0;
    if (rule >= RECOMPUTES)
        c.saving = random_saving(a, p->model.layers);
    if (rule == RECOMPUTE_FULL && p->model.layers > 2 && draw(3))
        c.saving.group = 2 + draw(p->model.layers - 2);
    c.chunk_queries = i % 2 && !heads && !choice_keeps_tail(&c);
    if (c.chunk_queries && c.token_chunks == 1)
        c.token_chunks = 2 + (tensor ? i / 2 % 3 : draw(3)); /* else queries would be whole in most cases */
    c.chunk_keys = c.chunk_queries && i / 2 % 2;
    c.latents = p->model.latent && !heads && !c.chunk_queries && !choice_keeps_tail(&c) && i % 4 < 3;
    c.offload = staged(i);
    c.offload_layers = p->model.layers > 2 && i % 5 < 2 ? 1 + draw(p->model.layers - 2) : 0;
    c.fetch_chunks = !c.offload_layers && choice_chunks_queries(&c) && c.offload && i % 4 == 1 &&
                     saving_group(c.saving) == 1;
    const OptimizerPlace off = i % 2 ? OPTIMIZER_FETCHED : OPTIMIZER_ON_HOST;
    c.optimizer = i / 3 % 2 ? off : OPTIMIZER_ON_DEVICE;
    c.overlap = tensor && draw(3);
    c.bf16_gradients = i / 6 % 2;
    return c;
}

/* All pairs of chunks, or those that causal leaves. */
static const uint64_t *chunk_pairs(Case *c, const Partition *part)
{
    const int chunks = c->choice.token_chunks > 1 ? chunk_count(part->max_tokens, c->choice.token_chunks) : 1;
    uint64_t *pairs = NEW_ARRAY(c->arena, uint64_t, chunks);
    for (int i = 0; i < chunks; i++)
        pairs[i] = (UINT64_C(2) << i) - 1;
    return choice_chunks_keys(&c->choice) && c->n % 2 ? pairs : NULL;
}

StepInput step_input(Case *c)
{
    const Partition *part = partition_make(c->arena, PART_CONTIGUOUS, 0, c->n, 1);
    const bool keys = choice_chunks_keys(&c->choice);
    const Shape shape = shape_of(&c->program, &c->choice);
    return (StepInput){
        .program = &c->program,
        .choice = &c->choice,
        .partition = part,
        .units = units_make(c->arena, &c->program, &shape, c->choice.within, false),
        .pairs = chunk_pairs(c, part),
        .attention = keys ? 1024 : 0,
        .keys = choice_chunks_queries(&c->choice) && !keys ? 4096 : 0,
    };
}

void set_layout(Case *c, Choice choice)
{
    c->choice = choice;
    c->program.layer_mask = NEW_ARRAY(c->arena, int, c->program.model.layers);
    const StepInput in = step_input(c);
    c->step = step_make_watched(c->arena, &in, NULL, NULL);
    c->flow = step_flow(c->arena, c->step);
    step_pack(c->arena, c->flow, 4, (MemoryBudget){0});
}

const Flow *placed_by_layer(Case *c)
{
    step_place_by_layer(c->step, true);
    Flow *f = step_flow(c->arena, c->step);
    step_pack(c->arena, f, 4, (MemoryBudget){0});
    return f;
}

Case *make_case(bool cuda, int i)
{
    return make_split_case(cuda, i, false);
}

Case *make_split_case(bool cuda, int i, bool split)
{
    Arena *a = arena_new();
    Case *c = NEW(a, Case);
    c->arena = a;
    c->program = random_program(c->arena, cuda, split);
    const Model *m = &c->program.model;
    c->shape = (Shape64){m->layers,
                         m->hidden,
                         m->heads,
                         m->kv_heads,
                         m->head_dim,
                         m->ffn,
                         m->vocab,
                         m->norm_eps,
                         m->rope.theta,
                         m->tied,
                         .qkv_bias = m->qkv_bias,
                         .qk_norm = m->qk_norm,
                         .qk_norm_all = m->layer.qk_norm_all,
                         .qk_norm_rotated = m->layer.qk_norm_rotated,
                         .sinks = m->sinks,
                         .latent = m->latent,
                         .query_latent = m->query_latent,
                         .shared = m->shared,
                         .value_dim = m->value_dim};
    c->n = c->program.sequence;
    c->sequences = (int)(c->program.train.batch / c->program.layout.data.value);
    c->scale = 0.25;
    draw_batch(c);
    set_layout(c, random_choice(a, &c->program, i));
    reference(c);
    const int units = step_units(c->step);
    c->param = NEW_ARRAY(a, double *, units);
    c->grad = NEW_ARRAY(a, double *, units);
    for (int u = 0; u < units; u++) {
        c->param[u] = unit_flat(c, c->flat, u);
        c->grad[u] = NEW_ARRAY(a, double, unit_elements(c, u));
    }
    return c;
}

void want_last(Case *c)
{
    for (int u = 0; u < step_units(c->step); u++)
        memcpy(unit_flat(c, c->wanted, u), c->grad[u], (size_t)unit_elements(c, u) * sizeof(double));
}

static Run run_of(const Case *c, const Flow *f, bool weights, bool copies)
{
    return (Run){.flow = f,
                 .tokens = c->n,
                 .sequences = c->sequences,
                 .token = c->token,
                 .label = c->label,
                 .label_weight = c->label_weight,
                 .scale = c->scale,
                 .param = c->param,
                 .grad = c->grad,
                 .late = {[STREAM_WEIGHTS] = weights,
                          [STREAM_COPIES] = copies,
                          [STREAM_DOWNLOADS] = copies,
                          [STREAM_TENSOR] = copies}};
}

double evaluation_error(Case *c, const Flow *f)
{
    double worst = 0;
    for (int late = 0; late < 2; late++) { /* each stream early and late */
        Run r = run_of(c, f, late, !late);
        const bool ran = step_run(&r);
        const double error = fabs(r.loss - c->loss) / (fabs(c->loss) + 1e-30);
        worst = fmax(worst, !ran || isnan(error) ? 1e300 : error);
    }
    return worst;
}

/* Relative L2 of loss and all gradients; 1e300 where a number is none, or the run was lost. */
static double error_once(Case *c, const Flow *f, bool weights, bool copies)
{
    Run r = run_of(c, f, weights, copies);
    double off = 0, size = 0;
    for (int u = 0; u < step_units(c->step); u++)
        memset(c->grad[u], 0, (size_t)unit_elements(c, u) * sizeof(double));
    if (!step_run(&r))
        return 1e300;
    for (int u = 0; u < step_units(c->step); u++) {
        const double *wanted = unit_flat(c, c->wanted, u);
        for (int64_t i = 0; i < unit_elements(c, u); i++) {
            off += (c->grad[u][i] - wanted[i]) * (c->grad[u][i] - wanted[i]);
            size += wanted[i] * wanted[i];
        }
    }
    off += (r.loss - c->loss) * (r.loss - c->loss);
    const double error = sqrt(off / (size + 1e-30));
    return isnan(error) ? 1e300 : error;
}

double error_of(Case *c, const Flow *f)
{
    /* each stream early and late */
    return fmax(error_once(c, f, false, true), error_once(c, f, true, false));
}

bool is_wrong(Case *c, const Flow *f)
{
    return error_once(c, f, false, true) >= 1e-9 || error_once(c, f, true, false) >= 1e-9;
}
