/* memory.c: the units of parameters and every buffer of a rank on the host.
 *
 * Buffers live as long as the program, so the peak is their sum. The emitters print one field and one burst_take a row,
 * so what is counted here is what is taken there. memory_gpu.c adds what a rank has on its device.
 */
#include "memory.h"

#include "burst_rt.h"
#include "burst_sizes.h"

/* ---- units ---- */

typedef struct UnitMaker { Arena *arena; Vec(UnitTensor) tensors; int64_t offset; } UnitMaker;

static void add_tensor(UnitMaker *m, const char *name, int64_t rows, int64_t cols, bool ones)
{
    *vec_push(m->arena, &m->tensors) = (UnitTensor){name, rows, cols, m->offset, ones};
    m->offset += rows * cols;
}

static Unit finish_unit(UnitMaker *m, const Program *p, const char *name, int repeat)
{
    int world = p->cluster.world;
    Unit u = {name, repeat, m->offset, (m->offset + world - 1) / world, m->tensors.n, m->tensors.at};
    *m = (UnitMaker){.arena = m->arena};
    return u;
}

Units units_make(Arena *a, const Program *p)
{
    const Model *d = &p->model;
    int64_t q = (int64_t)d->heads * d->head_dim, kv = (int64_t)d->kv_heads * d->head_dim;
    Unit *u = NEW_ARRAY(a, Unit, 3);
    UnitMaker m = {.arena = a};
    add_tensor(&m, "model.embed_tokens.weight", d->vocab, d->hidden, false);
    u[0] = finish_unit(&m, p, "embedding", 1);
    add_tensor(&m, "input_layernorm.weight", 1, d->hidden, true);
    add_tensor(&m, "self_attn.q_proj.weight", q, d->hidden, false);
    add_tensor(&m, "self_attn.k_proj.weight", kv, d->hidden, false);
    add_tensor(&m, "self_attn.v_proj.weight", kv, d->hidden, false);
    add_tensor(&m, "self_attn.o_proj.weight", d->hidden, q, false);
    add_tensor(&m, "post_attention_layernorm.weight", 1, d->hidden, true);
    add_tensor(&m, "mlp.gate_proj.weight", d->ffn, d->hidden, false);
    add_tensor(&m, "mlp.up_proj.weight", d->ffn, d->hidden, false);
    add_tensor(&m, "mlp.down_proj.weight", d->hidden, d->ffn, false);
    u[1] = finish_unit(&m, p, "layer", d->layers);
    add_tensor(&m, "model.norm.weight", 1, d->hidden, true);
    if (!d->tied)
        add_tensor(&m, "lm_head.weight", d->vocab, d->hidden, false);
    u[2] = finish_unit(&m, p, "head", 1);
    return (Units){3, u};
}

/* ---- buffers ---- */

static size_t round_up(size_t bytes, size_t align)
{
    return (bytes + align - 1) / align * align;
}

void add_buffers(MemoryMaker *m, const char *name, const char *type, size_t size, int copies, const char *shape, int64_t elements)
{
    size_t bytes = round_up((size_t)elements * size, m->on_device ? DEVICE_ALIGN : HOST_ALIGN) * (size_t)copies;
    *vec_push(m->arena, &m->rows) = (Buffer){.name = name, .type = type, .shape = shape, .elements = elements, .copies = copies,
                                             .bytes = bytes, .device = m->on_device};
    *(m->on_device ? &m->device : &m->host) += bytes;
}

static void add_floats(MemoryMaker *m, const char *name, const char *shape, int64_t elements)
{
    add_buffers(m, name, "float", sizeof(float), 1, shape, elements);
}

void add_array(MemoryMaker *m, const char *name, const char *type, size_t size, int copies, const char *shape,
                      int64_t elements)
{
    add_buffers(m, name, type, size, copies, shape, elements);
    m->rows.at[m->rows.n - 1].array = true;
}

static void add_kept(MemoryMaker *m, int kept, const char *name, const char *shape, int64_t elements)
{
    add_array(m, name, "float", sizeof(float), kept, shape, elements);
}

/* Full recomputation keeps x alone of each layer; selective checkpoint++ (LoongTrain, arXiv 2406.18485) attention's output
 * and statistics too, so that neither attention nor its transfers are repeated. */
Kept kept_layers(const Program *p, const Choice *c)
{
    static const struct { bool attention, rest; } keeps[RECOMPUTES] = {
        [RECOMPUTE_NONE] = {true, true}, [RECOMPUTE_SELECTIVE] = {true, false}, [RECOMPUTE_FULL] = {false, false}};
    const int layers = p->model.layers;
    return (Kept){keeps[c->recompute].attention ? layers : 1, keeps[c->recompute].rest ? layers : 1};
}

/* What forward leaves for backward: a copy a layer, or one that recomputation fills again. */
static void add_activations(MemoryMaker *m)
{
    const Model *d = &m->program->model;
    const int kept = kept_layers(m->program, m->choice).rest, kept_o = kept_layers(m->program, m->choice).attention;
    add_kept(m, d->layers + 1, "x", "[tokens][hidden], input of each layer", m->n * d->hidden);
    add_kept(m, kept, "rstd1", "[tokens]", m->n);
    add_kept(m, kept, "q", "[heads][tokens][head_dim]", m->n * m->q);
    add_kept(m, kept, "k", "[kv_heads][tokens][head_dim]", m->n * m->kv);
    add_kept(m, kept, "v", "[kv_heads][tokens][head_dim]", m->n * m->kv);
    add_kept(m, kept_o, "o", "[heads][tokens][head_dim]", m->n * m->q);
    add_kept(m, kept_o, "lse", "[heads][tokens]", m->n * d->heads);
    add_kept(m, kept, "x_mid", "[tokens][hidden], after attention", m->n * d->hidden);
    add_kept(m, kept, "rstd2", "[tokens]", m->n);
    add_kept(m, kept, "gate", "[tokens][ffn]", m->n * d->ffn);
    add_kept(m, kept, "up", "[tokens][ffn]", m->n * d->ffn);
}

static void add_temporaries(MemoryMaker *m)
{
    const Model *d = &m->program->model;
    int64_t wide = m->q > d->ffn ? m->q : d->ffn;
    add_floats(m, "h", "[tokens][hidden], normalised", m->n * d->hidden);
    add_floats(m, "rstd", "[tokens], final norm", m->n);
    add_floats(m, "t", "[tokens][max(heads * head_dim, ffn)]", m->n * wide);
    add_floats(m, "t2", "[tokens][max(heads * head_dim, ffn)]", m->n * wide);
    add_floats(m, "dx", "[tokens][hidden]", m->n * d->hidden);
    add_floats(m, "dh", "[tokens][hidden]", m->n * d->hidden);
    add_floats(m, "d_gate", "[tokens][ffn]", m->n * d->ffn);
    add_floats(m, "d_up", "[tokens][ffn]", m->n * d->ffn);
    add_floats(m, "d_o", "[heads][tokens][head_dim]", m->n * m->q);
    add_floats(m, "delta", "[heads][tokens]", m->n * d->heads);
    add_floats(m, "dq", "[heads][tokens][head_dim]", m->n * m->q);
    add_floats(m, "dk", "[kv_heads][tokens][head_dim]", m->n * m->kv);
    add_floats(m, "dv", "[kv_heads][tokens][head_dim]", m->n * m->kv);
    add_floats(m, "attend_scratch", "tiles of attention", burst_attend_floats(d->head_dim));
    add_floats(m, "loss_scratch", "[tile][vocab]", burst_loss_floats(d->vocab));
}

static void add_weights(MemoryMaker *m, Units units)
{
    int64_t most = 0;
    for (int i = 0; i < units.n; i++)
        most = units.at[i].shard > most ? units.at[i].shard : most;
    most *= m->program->cluster.world;
    add_array(m, "weight", "float", sizeof(float), 2, "[largest unit], gathered", most);
    if (m->program->model.tied)
        add_floats(m, "tied", "[vocab][hidden], gathered for the head", units.at[0].shard * m->program->cluster.world);
    add_floats(m, "grad", "[largest unit]", most);
}

static void add_chunks(MemoryMaker *m)
{
    int64_t ranks = m->choice->ranks, tokens = m->program->sequence;
    if (m->program->cuda)
        add_buffers(m, "positions32", "int32_t", sizeof(int32_t), 1, "[sequence], for the device", tokens);
    add_buffers(m, "positions", "int64_t", sizeof(int64_t), 1, "[sequence], chunk by chunk", tokens);
    add_buffers(m, "sides", "BurstSide", sizeof(BurstSide), 1, "[tiles of all chunks]", tokens / BURST_TILE + ranks);
    add_array(m, "pair_live", "uint8_t", 1, m->program->mask_count, "[query chunk][key chunk]", ranks * ranks);
}

/* Taken by burst_live_make, which owns the layout. */
static void add_live(MemoryMaker *m)
{
    int64_t ops = 0;
    for (int i = 0; i < 2; i++)
        ops = m->schedule[i]->trace.n > ops ? m->schedule[i]->trace.n : ops;
    if (!m->choice->schedule->exchanges)
        add_buffers(m, "live", NULL, 3, 2 * m->program->mask_count, "[operations], for each mask and direction", ops);
}

void add_pools(MemoryMaker *m)
{
    for (int i = 0; i < 2; i++) {
        for (int p = 0; p < m->schedule[i]->pools; p++) {
            const Pool *pool = &m->schedule[i]->pool[p];
            int64_t bytes = travel_bytes(m->program, pool->tensor) * m->n;
            add_buffers(m, pool->name, "char", 1, pool->slots, "slots of a travelling chunk", bytes);
            m->rows.at[m->rows.n - 1].pool = pool;
        }
    }
}

/* Head parallelism: all tokens of a share of the heads. Shares differ by one head; key heads that two shares read are
 * held by both. */
static void add_exchanged(MemoryMaker *m)
{
    const Model *d = &m->program->model;
    int64_t ranks = m->choice->ranks, group = d->heads / d->kv_heads, tokens = m->program->sequence;
    int64_t heads = (d->heads + ranks - 1) / ranks;
    int64_t kv_heads = (heads + group - 2) / group + 1;
    kv_heads = kv_heads < d->kv_heads ? kv_heads : d->kv_heads;
    static const char *const wide[] = {"xq", "xo", "xdo", "xdq"}, *const narrow[] = {"xk", "xv", "xdk", "xdv"};
    for (int i = 0; i < countof(wide); i++)
        add_floats(m, wide[i], "[sequence][heads of a share][head_dim]", tokens * heads * d->head_dim);
    for (int i = 0; i < countof(narrow); i++)
        add_floats(m, narrow[i], "[sequence][key heads of a share][head_dim]", tokens * kv_heads * d->head_dim);
    add_floats(m, "xlse", "[sequence][heads of a share]", tokens * heads);
    add_floats(m, "xdelta", "[sequence][heads of a share]", tokens * heads);
    add_floats(m, "xsum", "[key heads of a share][tokens][head_dim]", m->n * kv_heads * d->head_dim);
}

/* Parameters, gradients and both moments of a rank's shards. */
static size_t weights_bytes(const Units *units)
{
    size_t bytes = 0;
    for (int i = 0; i < units->n; i++)
        bytes += 4 * (size_t)units->at[i].repeat * round_up((size_t)units->at[i].shard * sizeof(float), HOST_ALIGN);
    return bytes;
}

/* The runtime's token, label, weight and table arrays of one sequence. */
static void add_batch(MemoryMaker *m)
{
    add_buffers(m, "batch", NULL, sizeof(int32_t), 3, "[tokens], tokens, labels, weights", m->n);
    if (m->program->table_count)
        add_buffers(m, "tables", NULL, sizeof(int32_t), m->program->table_count, "[sequence]", m->program->sequence);
}

static void add_host_step(MemoryMaker *m, Units units)
{
    add_weights(m, units);
    add_activations(m);
    add_temporaries(m);
    if (m->choice->schedule->exchanges)
        add_exchanged(m);
    else
        add_pools(m);
}

Memory memory_make(Arena *a, const Program *p, const Choice *c, const Partition *part, const Schedule *forward,
                   const Schedule *backward, Units units)
{
    MemoryMaker m = {.arena = a, .program = p, .choice = c, .schedule = {forward, backward}, .n = part->max_tokens};
    m.q = (int64_t)p->model.heads * p->model.head_dim;
    m.kv = (int64_t)p->model.kv_heads * p->model.head_dim;
    if (!p->cuda)
        add_host_step(&m, units);
    add_chunks(&m);
    add_live(&m);
    add_batch(&m);
    size_t weights = weights_bytes(&units), device_weights = 0;
    if (p->cuda)
        device_weights = add_device(&m, part, units);
    Memory out = {.n = m.rows.n, .at = m.rows.at, .host = m.host + weights};
    out.weights = p->cuda ? device_weights : weights;
    out.total = p->cuda ? m.device + device_weights : out.host;
    const int channels = backward->channels ? backward->channels : 1;
    out.beside = p->cuda ? (size_t)burst_gpu_beside_bytes(p->cluster.nodes, p->cluster.world, channels) : 0;
    return out;
}
