/* memory_gpu.c: what a rank has on its device, and what a token of a travelling chunk weighs on either backend.
 *
 * Activations and gathered weights are bf16; statistics, running outputs and gradients that travel are fp32.
 */
#include "memory.h"

#include "burst_rt.h"
#include "burst_sizes.h"

enum { BF16 = 2, FP32 = 4 };

/* ---- what travels ---- */

/* Q stands for Q, dO, delta and lse; KV and dKV for two each. */
int64_t travel_bytes(const Program *p, TensorId t)
{
    const Model *d = &p->model;
    int64_t q = (int64_t)d->heads * d->head_dim, kv = (int64_t)d->kv_heads * d->head_dim;
    int64_t copy = p->cuda ? BF16 : FP32;
    switch (t) {
    case T_Q:
        return 2 * q * copy + 2 * d->heads * FP32;
    case T_KV:
        return 2 * kv * copy;
    case T_DKV:
        return 2 * kv * FP32;
    case T_DQ:
        return q * FP32;
    default:
        return q * copy + d->heads * FP32;
    }
}

/* ---- rows ---- */

static void add_bf16(MemoryMaker *m, const char *name, const char *shape, int64_t elements)
{
    add_buffers(m, name, "BurstBf16", BF16, 1, shape, elements);
}

static void add_fp32(MemoryMaker *m, const char *name, const char *shape, int64_t elements)
{
    add_buffers(m, name, "float", FP32, 1, shape, elements);
}

static void keep_bf16(MemoryMaker *m, int kept, const char *name, const char *shape, int64_t elements)
{
    add_array(m, name, "BurstBf16", BF16, kept, shape, elements);
}

static void keep_fp32(MemoryMaker *m, int kept, const char *name, const char *shape, int64_t elements)
{
    add_array(m, name, "float", FP32, kept, shape, elements);
}

static void add_kept(MemoryMaker *m)
{
    const Model *d = &m->program->model;
    const int kept = kept_layers(m->program, m->choice).rest, kept_o = kept_layers(m->program, m->choice).attention;
    keep_bf16(m, d->layers + 1, "x", "[tokens][hidden], input of each layer", m->n * d->hidden);
    keep_fp32(m, kept, "rstd1", "[tokens]", m->n);
    keep_bf16(m, kept, "q", "[tokens][heads][head_dim]", m->n * m->q);
    keep_bf16(m, kept, "k", "[tokens][kv_heads][head_dim]", m->n * m->kv);
    keep_bf16(m, kept, "v", "[tokens][kv_heads][head_dim]", m->n * m->kv);
    keep_bf16(m, kept_o, "o", "[tokens][heads][head_dim]", m->n * m->q);
    keep_fp32(m, kept_o, "lse", "[heads][tokens]", m->n * d->heads);
    keep_bf16(m, kept, "x_mid", "[tokens][hidden], after attention", m->n * d->hidden);
    keep_fp32(m, kept, "rstd2", "[tokens]", m->n);
    keep_bf16(m, kept, "gate_up", "[tokens][2 * ffn]", 2 * m->n * d->ffn);
}

static void add_temporaries(MemoryMaker *m)
{
    const Model *d = &m->program->model;
    int64_t wide = m->q > d->ffn ? m->q : d->ffn;
    add_bf16(m, "h", "[tokens][hidden], normalised", m->n * d->hidden);
    add_fp32(m, "rstd", "[tokens], final norm", m->n);
    add_bf16(m, "t", "[tokens][max(heads * head_dim, ffn)]", m->n * wide);
    add_bf16(m, "t2", "[tokens][max(heads * head_dim, ffn)]", m->n * wide);
    add_bf16(m, "dx", "[tokens][hidden]", m->n * d->hidden);
    add_bf16(m, "dh", "[tokens][hidden]", m->n * d->hidden);
    add_bf16(m, "d_gate_up", "[tokens][2 * ffn]", 2 * m->n * d->ffn);
    add_bf16(m, "d_o", "[tokens][heads][head_dim]", m->n * m->q);
    if (!m->choice->schedule->exchanges)
        add_fp32(m, "o_sum", "[heads][tokens][head_dim], running output", m->n * m->q);
    add_fp32(m, "delta", "[heads][tokens]", m->n * d->heads);
    add_fp32(m, "dq", "[heads][tokens][head_dim]", m->n * m->q);
    add_fp32(m, "dk", "[kv_heads][tokens][head_dim]", m->n * m->kv);
    add_fp32(m, "dv", "[kv_heads][tokens][head_dim]", m->n * m->kv);
}

static size_t shard_bytes(const Unit *u, int64_t size)
{
    return ((size_t)(u->shard * size) + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
}

/* fp32 parameters, gradients and moments, and the bf16 copy that is gathered. */
static size_t device_weights(const Units *units)
{
    size_t bytes = 0;
    for (int i = 0; i < units->n; i++)
        bytes += (size_t)units->at[i].repeat * (4 * shard_bytes(&units->at[i], FP32) + shard_bytes(&units->at[i], BF16));
    return bytes;
}

static void add_units(MemoryMaker *m, Units units)
{
    int64_t most = 0;
    for (int i = 0; i < units.n; i++)
        most = units.at[i].shard > most ? units.at[i].shard : most;
    keep_bf16(m, 2, "weight", "[largest unit], gathered", most * m->program->cluster.world);
    if (m->program->model.tied)
        add_bf16(m, "tied", "[vocab][hidden], gathered for the head", units.at[0].shard * m->program->cluster.world);
    add_fp32(m, "grad", "[largest unit]", most * m->program->cluster.world);
    add_fp32(m, "reduced", "[largest shard]", most);
}

static void add_inputs(MemoryMaker *m)
{
    int64_t tables = m->program->table_count, tokens = m->program->sequence;
    add_buffers(m, "token", "int32_t", sizeof(int32_t), 1, "[tokens]", m->n);
    add_buffers(m, "label", "int32_t", sizeof(int32_t), 1, "[tokens]", m->n);
    add_fp32(m, "label_weight", "[tokens]", m->n);
    add_buffers(m, "loss", "double", sizeof(double), 1, "sum of this rank", 1);
    add_buffers(m, "device_positions", "int32_t", sizeof(int32_t), 1, "[sequence], chunk by chunk", tokens);
    add_buffers(m, "device_table", "int32_t", sizeof(int32_t), 1, "[sequence], by position; 1 without tables", tables ? tokens : 1);
    add_buffers(m, "device_values", "int32_t", sizeof(int32_t), 1, "[tables][sequence], chunk by chunk", tables ? tables * tokens : 1);
}

/* Lists of live tiles of one launch, made before it: of a pair of chunks, or of the whole sequence by itself; the smallest
 * tiles have 64 tokens. */
static void add_lists(MemoryMaker *m)
{
    const int64_t tokens = m->choice->schedule->exchanges ? m->program->sequence : m->n;
    const int64_t small = tokens / 64 + 1, large = tokens / 128 + 1;
    add_buffers(m, "lists", "int32_t", sizeof(int32_t), 1, "[tiles of one side][tiles of the other + 5]", large * (small + 5));
    add_buffers(m, "tile_sides", "BurstSide", sizeof(BurstSide), 1, "[tiles of both sides]", 2 * small);
}

static void add_scratch(MemoryMaker *m)
{
    const Model *d = &m->program->model;
    add_fp32(m, "norm_scratch", "partial sums of a norm's gradient", burst_gpu_norm_floats(d->hidden));
    add_buffers(m, "loss_scratch", "char", 1, 1, "[tile][vocab]", burst_gpu_loss_bytes(d->vocab));
}

size_t add_device(MemoryMaker *m, const Partition *part, Units units)
{
    m->on_device = true;
    add_units(m, units);
    add_kept(m);
    add_temporaries(m);
    add_inputs(m);
    add_lists(m);
    add_scratch(m);
    if (m->choice->schedule->exchanges)
        add_shares(m, part);
    else
        add_pools(m);
    m->on_device = false;
    return device_weights(&units);
}
