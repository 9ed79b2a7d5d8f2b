/* step/memory/buffers_gpu.c: a rank's device memory in addition to the step's values, and the bytes per
 * token of travelling chunks on either backend.
 *
 * Activations and gathered weights are bf16; statistics, running outputs and travelling gradients are
 * fp32. */
#include "step/memory/internal.h"

#include "burst_attend.h"
#include "burst_sizes.h"

enum { BF16 = 2, FP32 = 4 };
enum { KEPT_BYTES = 32 << 20 }; /* of lists of a library's batch */
/* Bytes of BurstRunning (templates/kernels/cuda_decode.cuh), and of what layers with one mask keep. */
enum { RUNNING_INTS = 4, KEPT_INTS = 2 };

/* ---- travelling chunks ---- */

/* In backward Q stands for Q, dO, delta and lse; KV and dKV for two tensors each. A part of O has lse as one
 * number, or two on the host. Latents have no heads. */
int64_t travel_bytes(const Model *m, const Target *target, TensorId t, bool backward, bool latents, int heads,
                     int kv_heads)
{
    const int64_t q = (int64_t)heads * m->head_dim, o = (int64_t)heads * m->value_dim,
                  kv = latents ? m->latent + m->shared : (int64_t)kv_heads * (m->head_dim + m->value_dim),
                  copy = target->activation_bytes;
    switch (t) {
    case T_Q: return backward ? (q + o) * copy + 2 * heads * FP32 : q * copy;
    case T_KV: return kv * copy;
    case T_DKV: return kv * FP32;
    case T_DQ:
        return q * FP32;
    default: return (o + heads * (target->device_memory ? 1 : 2)) * FP32;
    }
}

/* ---- rows ---- */

/* The programs that have a buffer. */
enum { OF_TRAINING = 1, OF_INFERENCE = 2, OF_LIBRARY = 4, OF_ALL = 7 };

static unsigned kind_of_program(const Program *p)
{
    if (p->library)
        return OF_LIBRARY;
    return p->infer.lengths ? OF_INFERENCE : OF_TRAINING;
}

static void add_inputs(MemoryMaker *m)
{
    int64_t tables = m->program->table_count, tokens = m->program->sequence;
    const unsigned program = kind_of_program(m->program);
    const struct {
        const char *name, *type;
        size_t size;
        const char *shape;
        int64_t elements;
        unsigned of;
    } row[] = {
        {"device_token", "int32_t", sizeof(int32_t), "[tokens]", m->own, OF_TRAINING | OF_INFERENCE},
        {"device_label", "int32_t", sizeof(int32_t), "[tokens]", m->own, OF_TRAINING},
        {"device_label_weight", "float", sizeof(float), "[tokens]", m->own, OF_TRAINING},
        {"device_loss", "double", sizeof(double), "sum of this rank", 1, OF_TRAINING},
        {"device_running", "int32_t", sizeof(int32_t), "a BurstRunning, [masks] first row and rows",
         RUNNING_INTS + KEPT_INTS * m->program->mask_count, OF_INFERENCE},
        {"device_found", "int32_t", sizeof(int32_t), "the next token", 1, OF_INFERENCE},
        {"device_positions", "int32_t", sizeof(int32_t), "[sequence], chunk by chunk", tokens, OF_ALL},
        {"device_table", "int32_t", sizeof(int32_t), "[sequence], by position; 1 without tables",
         tables ? tokens : 1, OF_ALL},
        {"device_values", "int32_t", sizeof(int32_t), "[tables][sequence], chunk by chunk",
         tables ? tables * tokens : 1, OF_ALL},
    };
    for (int i = 0; i < countof(row); i++)
        if (row[i].of & program)
            add_buffers(m, row[i].name, row[i].type, row[i].size, 1, row[i].shape, row[i].elements);
    if (m->queries && choice_exchanges(m->choice)) {
        add_buffers(m, "chunk_positions", "int32_t", sizeof(int32_t), 1,
                    "[sequence], by chunks of the tokens of all that share heads", tokens);
        add_buffers(m, "chunk_values", "int32_t", sizeof(int32_t), 1, "[tables][sequence], so",
                    tables ? tables * tokens : 1);
    }
}

/* Whether forward computes all pairs of a query in one launch. */
static bool outputs_are_whole(const MemoryMaker *m)
{
    const Attentions *attention = &m->draft->attention;
    return attentions_at_once(attention, false) && !attentions_in_groups(attention);
}

/* Lists that a library's batch keeps, for launches with at most so many ints each. Launches whose lists
 * exceed the limit are so long that making them in each call costs almost nothing. */
static void add_kept(MemoryMaker *m, int64_t ints)
{
    const int64_t most = KEPT_BYTES / (int64_t)sizeof(int32_t),
                  launches = (int64_t)m->program->mask_count * 2 * m->choice->ranks;
    const int64_t needed = launches * ((ints + 63) / 64 * 64);
    m->on_device = true;
    add_buffers(m, "kept_lists", "int32_t", sizeof(int32_t), 1, "lists of launches, as long as there is room",
                needed < most ? needed : most);
    m->on_device = false;
}

/* Lists of live tiles, made before each launch: for a chunk of queries with one chunk of keys, with its
 * pieces, or with several chunks. */
static void add_lists(MemoryMaker *m)
{
    const bool turns = m->program->train.deterministic;
    const int at_once[2] = {attentions_at_once(&m->draft->attention, false),
                            attentions_at_once(&m->draft->attention, true)};
    const KernelLists lists = kernels_lists(m->program, m->queries ? m->queries : most_rows(m).tokens,
                                            keys_at_a_time(m, most_rows(m).tokens), choice_pieces(m->choice),
                                            at_once, outputs_are_whole(m), m->draft->shape.chunk.heads,
                                            turns);
    const char *shape = outputs_are_whole(m) ? "[tiles of one side][tiles of the other + 9], 8"
                                             : "[tiles of one side][tiles of the other + 5], 4";
    if (m->program->selection_count)
        shape = "[lists][tiles of one side][tiles of the other + 9], 8, "
                "as many lists as fit in 64 MiB";
    if (turns)
        shape = "[key tiles][2 * query tiles + 5], 4, [heads][query tiles]";
    add_scratch(m, BOTH, "lists", "int32_t", sizeof(int32_t), 1, shape, lists.ints);
    add_scratch(m, BOTH, "tile_sides", "BurstSide", sizeof(BurstSide), 1, "[tiles of both sides]",
                lists.sides);
    if (m->program->library)
        add_kept(m, lists.one);
}

void add_device(MemoryMaker *m, const Partition *part)
{
    const RowSizes *f = &m->of[0];
    m->on_device = true;
    add_inputs(m);
    m->on_device = false;
    add_lists(m);
    if (choice_exchanges(m->choice))
        add_shares(m, part);
    if (m->choice->latents)
        add_latents(m);
    /* otherwise a single pair or launch gives the output */
    if ((choice_rows(m->choice, false) * choice_pieces(m->choice) > 1 && !outputs_are_whole(m)) ||
        m->key_tokens)
        add_scratch(m, FORWARD, "o_sum", "float", FP32, 1, "[heads][tokens][head_dim], running output",
                    (m->queries ? m->queries : f->tokens) * f->heads * m->program->model.value_dim);
    if (choice_keeps_tail(m->choice))
        add_scratch(m, FORWARD, "lse_rest", "float", FP32, 1,
                    "[heads][tokens], lse of tokens that are attended again", f->tokens * f->heads);
}
