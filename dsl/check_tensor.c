/* check_tensor.c: over how many ranks a layout splits each layer's weights (tensor parallelism with sequence
 * parallelism, Megatron-LM, arXiv 1909.08053 and 2205.05198). */
#include "check.h"

enum { GRANULE = 8 }; /* elements that a device's kernels read at a time */

/* Each rank has whole heads and key heads, and equal parts of the feed-forward network. With more ranks than
 * key heads, equally many ranks share each. */
typedef struct Factor {
    const char *name;
    int64_t value;
    bool shared;
} Factor;

static bool divides(int64_t ranks, Factor f)
{
    return f.value % ranks == 0 || (f.shared && ranks % f.value == 0);
}

enum { FACTORS = 10 };

/* The dimensions that tensor ranks divide, as large as the model has them. For an RMSNorm over all heads
 * ranks add up the squares; a LayerNorm would need the sums of all elements first. */
static void factors_of(const Model *m, int world, Factor f[FACTORS])
{
    const bool layernorm = m->layer.qk_norm_all && m->layer.norm == BURST_NORM_LAYER;
    const Factor all[FACTORS] = {{"ranks of the cluster", world},
                                 {"heads", m->heads},
                                 {"kv_heads", m->kv_heads, true},
                                 {"columns of ffn", m->ffn},
                                 {"columns of an expert", m->experts.width},
                                 {"columns of the shared expert", m->experts.shared},
                                 {"heads of the scan", m->scan.heads},
                                 {"key_heads of the scan", m->scan.key_heads},
                                 {"columns of the convolution", m->scan.heads ? 0 : m->scan.columns},
                                 {"layernorm of all heads", layernorm ? 1 : world}};
    for (int i = 0; i < FACTORS; i++)
        f[i] = all[i];
}

/* The first that so many ranks do not divide; FACTORS: all divide. */
static int undivided(const Factor f[FACTORS], int64_t ranks)
{
    int i = 0;
    while (i < FACTORS && divides(ranks, f[i]))
        i++;
    return i;
}

bool tensor_divides(const Model *m, int world, int64_t ranks)
{
    Factor f[FACTORS];
    factors_of(m, world, f);
    return undivided(f, ranks) == FACTORS;
}

static int64_t largest_divisor(const Factor *s, int n, int64_t most)
{
    for (int64_t d = most;; d--) {
        bool all = true;
        for (int i = 0; i < n; i++)
            all &= divides(d, s[i]);
        if (all)
            return d;
    }
}

void check_tensor(Checker *c, const Layout *l, int world)
{
    Factor f[FACTORS];
    factors_of(&c->program->model, world, f);
    const int64_t tensor = l->tensor.value;
    const int i = undivided(f, tensor);
    if (i < FACTORS)
        diag_error(c->diags, l->tensor.span, "tensor %lld does not divide the %s%lld %s%s; use `tensor %lld`",
                   (long long)tensor, i ? "model's " : "", (long long)f[i].value, f[i].name,
                   f[i].shared ? ", nor is it a multiple of them" : "",
                   (long long)largest_divisor(f, FACTORS, tensor));
}

/* A device's products of experts have tiles of so many columns. */
static void check_expert_columns(Checker *c)
{
    const Program *p = c->program;
    const Setting *tensor = &p->layout.tensor;
    const int least = 128, width = p->model.experts.width;
    if (p->target && p->target->device_memory && width && width / tensor->value < least)
        diag_error(c->diags, tensor->span,
                   "tensor %lld gives each rank %lld columns of an expert; %s programs require %d or more%s",
                   (long long)tensor->value, (long long)(width / tensor->value), p->target->language, least,
                   width < 2 * least ? "; use `tensor 1`"
                                     : arena_printf(c->arena, "; use `tensor %d` or less", width / least));
}

/* A rank's gates of a token are whole vectors of a device. Muon takes matrices of which ranks have whole rows
 * or columns one after the other. */
static void check_scan_gates(Checker *c)
{
    const Program *p = c->program;
    const Setting *tensor = &p->layout.tensor;
    const int64_t heads = p->model.scan.heads / tensor->value, gates = (p->model.scan.read ? 2 : 1) * heads;
    if (!heads)
        return;
    if (p->target && p->target->device_memory && gates % GRANULE)
        diag_error(
            c->diags, tensor->span,
            "tensor %lld gives each rank %lld gates of the scan, which must be a multiple of 8; use `tensor "
            "%lld`",
            (long long)tensor->value, (long long)gates,
            (long long)largest_divisor((Factor[]){{"ranks", p->cluster.world},
                                                  {"key_heads", p->model.scan.key_heads},
                                                  {"eights of gates", gates * tensor->value / GRANULE}},
                                       3, tensor->value));
    if (p->train.optimizer == BURST_OPTIMIZER_MUON)
        diag_error(c->diags, tensor->span,
                   "`tensor %lld` is not supported with 'scan' and `optimizer muon`, which needs the "
                   "matrices of a scan "
                   "in one part each; use `tensor 1` or adamw",
                   (long long)tensor->value);
}

/* A rank has scores of its own heads alone. */
static void check_shared_choices(Checker *c)
{
    const Program *p = c->program;
    const Setting *tensor = &p->layout.tensor;
    for (int i = 0; i < p->selection_count; i++) {
        const Selection *s = &p->selections[i];
        if (s->indexer)
            diag_error(c->diags, tensor->span,
                       "`tensor %lld` is not supported with indexer '%s', whose heads are not split over "
                       "ranks; use `tensor 1`",
                       (long long)tensor->value, s->score);
        else if (s->heads == BURST_SELECT_OF_ALL)
            diag_error(
                c->diags, tensor->span,
                "selection '%s' is `for all heads`, which `tensor` splits over ranks; use `for kv_head` or "
                "`tensor 1`",
                s->text);
        if (s->heads == BURST_SELECT_OF_KV && tensor->value > p->model.kv_heads)
            diag_error(c->diags, tensor->span,
                       "selection '%s' is `for kv_head`, whose query heads `tensor %lld` splits over ranks; "
                       "use `for "
                       "each head` or at most `tensor %d`",
                       s->text, (long long)tensor->value, p->model.kv_heads);
    }
}

void check_tensor_target(Checker *c)
{
    const Program *p = c->program;
    const Setting *tensor = &p->layout.tensor;
    const Model *m = &p->model;
    /* wrong values were reported */
    if (tensor->is_auto || tensor->value < 2 || !p->cluster.world || !m->kv_heads)
        return;
    if (p->target && p->target->device_memory && m->ffn % GRANULE == 0 &&
        m->ffn / tensor->value % GRANULE != 0)
        diag_error(c->diags, tensor->span,
                   "tensor %lld gives each rank %lld columns of ffn, which must be a multiple of 8; use "
                   "`tensor %lld`",
                   (long long)tensor->value, (long long)(m->ffn / tensor->value),
                   (long long)largest_divisor((Factor[]){{"ranks", p->cluster.world},
                                                         {"heads", m->heads},
                                                         {"kv_heads", m->kv_heads, true},
                                                         {"eights of columns", m->ffn / GRANULE}},
                                              4, tensor->value));
    check_expert_columns(c);
    check_scan_gates(c);
    check_shared_choices(c);
    if (p->layout.within.given && cluster_shards(&p->cluster, 1, p->layout.within.value) &&
        !cluster_shards(&p->cluster, (int)tensor->value, p->layout.within.value))
        diag_error(c->diags, p->layout.within.span,
                   "`within %lld` must be a multiple of `tensor %lld`; use `within %lld`",
                   (long long)p->layout.within.value, (long long)tensor->value, (long long)tensor->value);
}

const Program *program_with_tensor(Arena *a, Diags *d, const Program *p, int tensor)
{
    const int before = diags_errors(d);
    Program *with = NEW(a, Program);
    Checker c = {.arena = a, .diags = d, .program = with};
    *with = *p;
    with->layout.tensor.is_auto = false;
    with->layout.tensor.value = tensor;
    check_ranks(&c, &with->layout);
    check_batch(&c, &with->train);
    check_tensor_target(&c);
    return diags_errors(d) == before ? with : NULL;
}

/* ---- the ranks over which a layout shards the weights ---- */

void check_within(Checker *c, Layout *l)
{
    const Cluster *k = &c->program->cluster;
    const int node = cluster_node_ranks(k);
    if (l->within.value == 0)
        l->within.value = node;
    const int64_t ranks = l->within.value;
    if (!ranks) {
        diag_error(
            c->diags, l->within.span,
            "`within node` requires nodes with equal numbers of ranks; give the number of ranks that share "
            "the weights, such as `within 2`");
        return;
    }
    if (cluster_shards(k, 1, ranks))
        return;
    diag_error(
        c->diags, l->within.span,
        "groups of %lld rank%s do not divide a node evenly and are not whole nodes of this cluster of %d "
        "rank%s%s",
        (long long)ranks, plural(ranks), k->world, plural(k->world),
        node ? arena_printf(c->arena, "; use `within node`, which is %d", node) : "");
}
