/* step/memory/buffers.c: a rank's memory outside of the step's arena, and attention's buffers in its
 * scratch.
 *
 * step_pack gives the step's values their offsets. Buffers here live as long as the program, or are in
 * attention's scratch: slots of travelling chunks, shares of heads, tile lists. The scratch is a value of
 * the step, and rows give the offsets of its buffers. The emitter prints a field and an offset for each row,
 * so both count the same memory. */
#include "step/memory/internal.h"

#include "burst_attend.h"
#include "burst_sizes.h"

#include <math.h>
#include <string.h>

/* ---- rows ---- */

static size_t round_up(size_t bytes, size_t align) { return (bytes + align - 1) / align * align; }

void add_buffers(MemoryMaker *m, const char *name, const char *type, size_t size, int copies,
                 const char *shape, int64_t elements)
{
    size_t bytes = round_up((size_t)elements * size, m->on_device ? DEVICE_ALIGN : HOST_ALIGN) *
                   (size_t)copies;
    *vec_push(m->arena, &m->rows) = (Buffer){.name = name,
                                             .type = type,
                                             .shape = shape,
                                             .elements = elements,
                                             .copies = copies,
                                             .bytes = bytes,
                                             .device = m->on_device,
                                             .at = -1};
    *(m->on_device ? &m->device : &m->host) += bytes;
}

static void add_array(MemoryMaker *m, const char *name, const char *type, size_t size, int copies,
                      const char *shape, int64_t elements)
{
    add_buffers(m, name, type, size, copies, shape, elements);
    m->rows.at[m->rows.n - 1].array = true;
}

/* Buffers of both directions come first; those of one direction share memory with the other's. */
void add_scratch(MemoryMaker *m, unsigned directions, const char *name, const char *type, size_t size,
                 int copies, const char *shape, int64_t elements)
{
    const size_t bytes = round_up((size_t)elements * size, (size_t)m->program->target->align) *
                         (size_t)copies;
    const int64_t at = directions == BACKWARD ? m->scratch[1] : m->scratch[0];
    *vec_push(m->arena, &m->rows) = (Buffer){.name = name,
                                             .type = type,
                                             .shape = shape,
                                             .elements = elements,
                                             .copies = copies,
                                             .bytes = bytes,
                                             .device = m->program->target->device_memory,
                                             .at = at,
                                             .directions = directions};
    for (int i = 0; i < 2; i++)
        m->scratch[i] += directions >> i & 1 ? (int64_t)bytes : 0;
}

void keep_keys(MemoryMaker *m, const char *name, const char *type, size_t size, const char *shape,
               int64_t elements)
{
    const size_t bytes = round_up((size_t)elements * size, (size_t)m->program->target->align);
    *vec_push(m->arena, &m->rows) = (Buffer){.name = name,
                                             .type = type,
                                             .shape = shape,
                                             .elements = elements,
                                             .copies = 1,
                                             .bytes = bytes,
                                             .device = m->program->target->device_memory,
                                             .at = m->keys,
                                             .keys = true,
                                             .directions = BOTH};
    m->keys += (int64_t)bytes;
}

int64_t keys_at_a_time(const MemoryMaker *m, int64_t all) { return m->key_tokens ? m->key_tokens : all; }

static int64_t tiles_of(int64_t tokens) { return (tokens + BURST_TILE - 1) / BURST_TILE; }

static void add_chunks(MemoryMaker *m)
{
    int64_t ranks = m->choice->ranks, chunks = choice_chunks(m->choice), tokens = m->program->sequence;
    int64_t tiles = tokens / BURST_TILE + ranks + (chunks > ranks ? tokens / BURST_TILE + chunks : 0);
    if (m->program->target->device_memory)
        add_buffers(m, "positions32", "int32_t", sizeof(int32_t), 1, "[sequence], for the device", tokens);
    add_buffers(m, "positions", "int64_t", sizeof(int64_t), 1, "[sequence], chunk by chunk", tokens);
    if (m->program->model.rope_table && !m->program->target->device_memory)
        add_buffers(m, "turns", "int64_t", sizeof(int64_t), 1, "[tokens], by which RoPE turns", m->n);
    const bool recurs = m->program->model.place_table ||
                        (m->program->infer.lengths && m->program->model.scan.columns);
    if (recurs && !m->program->target->device_memory)
        add_buffers(m, "places", "int32_t", sizeof(int32_t), 1, "[tokens], in their documents", m->n);
    add_buffers(m, "sides", "BurstSide", sizeof(BurstSide), 1, "[tiles of all chunks]", tiles);
    if (m->queries && !m->program->target->device_memory)
        add_buffers(m, "query_sides", "BurstSide", sizeof(BurstSide), 1, "[tiles of a chunk of queries]",
                    m->of[0].shares * tiles_of(m->queries / m->of[0].shares));
    if (m->key_tokens && !m->program->target->device_memory)
        add_buffers(m, "key_sides", "BurstSide", sizeof(BurstSide), 1, "[ranks][tiles of a chunk of keys]",
                    ranks * tiles_of(m->key_tokens / m->of[0].shares));
    add_array(m, "pair_live", "uint8_t", 1, m->program->mask_count, "[query chunk][key chunk]",
              ranks * chunks);
    if (m->choice->ranges)
        add_array(m, "pair_tiles", "BurstPairTiles", sizeof(BurstPairTiles), m->program->mask_count,
                  "[query chunk][key chunk], tiles of both", ranks * chunks);
    if (choice_exchanges(m->choice))
        add_buffers(m, "row_live", "uint8_t", 1, 1, "[query chunk][key chunk], of all that share heads",
                    ranks * ranks);
}

/* How many tokens choose each expert, and corrections of routers. */
static void add_loads(MemoryMaker *m)
{
    const BurstExperts *e = &m->program->model.experts;
    const bool device = m->program->target->device_memory;
    m->on_device = device;
    if (step_counts(m->program))
        add_buffers(m, "counts", "double", sizeof(double), 1,
                    "[layers][experts] choices; of a sequence [2 * experts + 1] for its balance",
                    (int64_t)(m->program->model.layers + 2) * e->experts + 1);
    if (e->correction && device)
        add_buffers(m, "corrections", "float", sizeof(float), 1, "[layers][experts]",
                    (int64_t)m->program->model.layers * e->experts);
    m->on_device = false;
}

/* Allocated by burst_live_make, which defines the layout. */
static void add_live(MemoryMaker *m)
{
    const int64_t ops = attentions_operations(&m->draft->attention);
    add_buffers(m, "live", NULL, 3, 2 * m->program->mask_count, "[operations], for each mask and direction",
                ops);
    if (m->choice->ranges)
        add_buffers(m, "live_tiles", NULL, 2 * sizeof(BurstTileRanges), 2 * m->program->mask_count,
                    "[operations], what is sent and received", ops);
}

static void add_pools_of(MemoryMaker *m, const Attention *attention)
{
    for (int i = 0; i < 2; i++) {
        for (int p = 0; p < attention->way[i]->pools; p++) {
            const Pool *pool = &attention->way[i]->pool[p];
            const int pieces = tensor_pieces(m->choice, pool->tensor);
            const bool keys = pool->tensor == T_KV || pool->tensor == T_DKV;
            const int64_t tokens = keys ? keys_at_a_time(m, m->of[i].tokens) : m->of[i].tokens;
            int64_t bytes = travel_bytes(&m->program->model, m->program->target, pool->tensor, i,
                                         m->choice->latents, m->of[i].heads, m->of[i].kv_heads) *
                            ((tokens + pieces - 1) / pieces);
            add_scratch(m, i ? BACKWARD : FORWARD, pool->name, "char", 1, pool->slots,
                        "slots of a travelling chunk", bytes);
            m->rows.at[m->rows.n - 1].pool = pool;
        }
    }
}

/* No two attentions run at a time, so their slots share memory. */
static void add_pools(MemoryMaker *m)
{
    int64_t most[2] = {m->scratch[0], m->scratch[1]};
    const int64_t begin[2] = {most[0], most[1]};
    for (int k = 0; k < m->draft->attention.n; k++) {
        memcpy(m->scratch, begin, sizeof begin);
        add_pools_of(m, &m->draft->attention.at[k]);
        for (int i = 0; i < 2; i++)
            most[i] = m->scratch[i] > most[i] ? m->scratch[i] : most[i];
    }
    memcpy(m->scratch, most, sizeof most);
}

/* A rank's own keys and their gradients, one piece after the other: by heads, a piece's tokens are not
 * contiguous. A device has keys by tokens. */
static void add_pieces(MemoryMaker *m, unsigned directions, const char *k, const char *v)
{
    const Model *d = &m->program->model;
    const struct {
        const char *name;
        int width;
    } row[] = {{k, d->head_dim}, {v, d->value_dim}};
    for (int i = 0; i < countof(row) && choice_pieces(m->choice) > 1; i++)
        add_scratch(m, directions, row[i].name, "float", sizeof(float), 1,
                    "[pieces][key heads][tokens][head_dim], at home",
                    m->n * m->draft->shape.chunk.kv_heads * row[i].width);
}

/* If keys and values travel as latents: those of one chunk, rebuilt from what arrived, and their gradients;
 * and the rank's own shared gradients of all heads. On the device activations are bf16, and the step's
 * operations round gradients. */
void add_latents(MemoryMaker *m)
{
    const Model *d = &m->program->model;
    const bool device = m->program->target->device_memory;
    const int64_t rows = m->n * m->draft->shape.chunk.kv_heads, own = d->head_dim - d->shared;
    const struct {
        unsigned directions;
        bool act, device;
        const char *name, *shape;
        int64_t elements;
    } row[] = {
        {BOTH, true, false, "own_shared", "[tokens][shared], of this rank's keys", m->n * d->shared},
        {BOTH, true, false, "latent_k", "of key heads, of another rank's chunk", rows * d->head_dim},
        {BOTH, true, false, "latent_v", "of key heads, of that chunk", rows * d->value_dim},
        {BOTH, true, true, "latent_own", "of key heads, what they do not share of that chunk", rows * own},
        {BACKWARD, true, true, "latent_round", "[tokens][latent + shared], gradients of that chunk",
         m->n * (d->latent + d->shared)},
        {BACKWARD, false, false, "latent_dk", "of key heads, of that chunk", rows * d->head_dim},
        {BACKWARD, false, false, "latent_dv", "of key heads, of that chunk", rows * d->value_dim},
        {BACKWARD, false, false, "own_d_shared", "[tokens][shared], what comes home", m->n * d->shared},
        {BACKWARD, false, true, "own_d_latent", "[tokens][latent], what comes home", m->n * d->latent},
    };
    for (int i = 0; i < countof(row); i++) {
        const bool bf16 = row[i].act && device;
        if (device || !row[i].device)
            add_scratch(m, row[i].directions, row[i].name, bf16 ? "BurstBf16" : "float", bf16 ? 2 : 4, 1,
                        row[i].shape, row[i].elements);
    }
}

/* ---- attention on the host ---- */

static void add_host_attention(MemoryMaker *m, const Partition *part)
{
    const Model *d = &m->program->model;
    add_scratch(m, BOTH, "attend_scratch", "float", sizeof(float), 1, "tiles of attention",
                burst_attend_floats(d->head_dim > d->value_dim ? d->head_dim : d->value_dim));
    if (choice_exchanges(m->choice))
        add_shares(m, part);
    if (m->choice->latents)
        add_latents(m);
    add_scratch(m, FORWARD, "lse_rest", "float", sizeof(float), 1,
                "[heads][tokens], what rounding took from lse",
                (m->queries ? m->queries : m->of[0].tokens) * m->of[0].heads);
    add_pools(m);
}

/* ---- a library's calls ---- */

typedef struct RowsCopy {
    unsigned directions;
    const char *name, *type;
    int size;
    bool keys;
    enum { OF_HEAD, OF_VALUE, WIDER, ONE } width; /* WIDER: the wider of both */
} RowsCopy;
/* The host attends rows by heads, and the caller's are by tokens. */
static const RowsCopy host_rows[] = {{BOTH, "rows_q", "float", 4, false},
                                     {BOTH, "rows_k", "float", 4, true},
                                     {BOTH, "rows_v", "float", 4, true, OF_VALUE},
                                     {FORWARD, "rows_o", "float", 4, false, OF_VALUE},
                                     {BACKWARD, "rows_do", "float", 4, false, OF_VALUE},
                                     {BACKWARD, "rows_dq", "float", 4, false, WIDER},
                                     {BACKWARD, "rows_dk", "float", 4, true},
                                     {BACKWARD, "rows_dv", "float", 4, true, OF_VALUE},
                                     {BACKWARD, "rows_delta", "float", 4, false, ONE}};
/* A device sums gradients in fp32, and with sinks has a separate d_o. */
static const RowsCopy device_rows[] = {{BACKWARD, "rows_do", "BurstBf16", 2, false, OF_VALUE},
                                       {BACKWARD, "rows_dq", "float", 4, false},
                                       {BACKWARD, "rows_dk", "float", 4, true},
                                       {BACKWARD, "rows_dv", "float", 4, true, OF_VALUE},
                                       {BACKWARD, "rows_delta", "float", 4, false, ONE},
                                       {BACKWARD, "rows_sink", "float", 4, false, ONE}};

static void add_rows(MemoryMaker *m, unsigned directions)
{
    const bool device = m->program->target->device_memory;
    const RowsCopy *row = device ? device_rows : host_rows;
    const Model *d = &m->program->model;
    const int width[] = {d->head_dim, d->value_dim, d->head_dim > d->value_dim ? d->head_dim : d->value_dim,
                         1};
    for (int i = 0; i < (device ? countof(device_rows) : countof(host_rows)); i++) {
        const char *shape = row[i].keys ? "of key heads" : "of heads";
        if (row[i].directions == directions)
            add_scratch(m, directions, row[i].name, row[i].type, (size_t)row[i].size, 1,
                        row[i].width == ONE ? "[heads][tokens]" : shape,
                        m->n * (row[i].keys ? d->kv_heads : d->heads) * width[row[i].width]);
    }
}

/* Lists of a selection, and the scratch in which ranks choose: backward chooses what forward has chosen. */
static void add_choice(MemoryMaker *m)
{
    const Program *p = m->program;
    int64_t most = 0;
    for (int i = 0; i < p->selection_count; i++) {
        const Selection *s = &p->selections[i];
        const int64_t words = select_tiles(p, s) * select_words(m->draft->shape.rank, s);
        most = words > most ? words : most;
    }
    if (!p->model.selects)
        return;
    add_scratch(m, BOTH, "select_lists", "int32_t", sizeof(int32_t), 1, "[tiles][lists][top]", most);
    add_scratch(m, BOTH, "select_scratch", "char", 1, 1, "bytes",
                select_scratch(p, &m->draft->shape, m->choice->ranks, m->n));
}

/* ---- all buffers ---- */

/* The runtime's token, label, weight and table arrays of one sequence. */
static void add_batch(MemoryMaker *m)
{
    if (m->program->infer.lengths && m->program->target->device_memory)
        add_buffers(m, "logits", "float", sizeof(float), 1, "[vocab], of the last token",
                    m->program->model.vocab);
    add_buffers(m, "batch", NULL, sizeof(int32_t), 3, "[tokens], tokens, labels, weights", m->own);
    if (m->program->table_count)
        add_buffers(m, "tables", NULL, sizeof(int32_t), m->program->table_count, "[sequence]",
                    m->program->sequence);
}

/* Of one kind: parameters, a moment or gradients. */
static size_t weight_bytes(const Units *units)
{
    size_t bytes = 0;
    for (int i = 0; i < units->n; i++)
        bytes += (size_t)units->at[i].repeat *
                 round_up((size_t)units->at[i].shard * sizeof(float), HOST_ALIGN);
    return bytes;
}

/* A device's program also has parameters, moments and gradients on the host, or parameters alone if it
 * infers; with an offloaded optimizer, its values include the gradients. */
static size_t mirror_bytes(const Program *p, const Units *units, bool optimizer)
{
    const size_t trained = optimizer ? 3 : 4;
    return (p->infer.lengths ? 1 : trained) * weight_bytes(units);
}

/* Groups with communicators, as runtime/cuda/device/open.cu makes them: ranks that share the weights, those
 * that share what tensor ranks split, those with replicas, tensor ranks, and those of them with the same key
 * heads. */
static int rank_groups(const Program *p, const Choice *c, const Shape *s)
{
    const int ranks = c->within ? c->within : p->cluster.world;
    return (ranks > 1) + (ranks < p->cluster.world) + (s->tensor > 1 ? 1 + (ranks > s->tensor) : 0) +
           (s->key_copies > 1 && s->key_copies < s->tensor);
}

/* Bytes for NCCL that a program which computes forward alone does not need. */
static size_t unconnected_bytes(const Draft *d)
{
    const Program *p = d->program;
    return p->target->device_memory
               ? (size_t)burst_gpu_unconnected_bytes(p->cluster.nodes, rank_groups(p, &d->choice, &d->shape),
                                                     d->shape.tensor)
               : 0;
}

Memory memory_make(Arena *a, const Draft *d)
{
    const Program *p = d->program;
    const Choice *c = d->attention.at[0].choice;
    const Partition *part = d->partition;
    MemoryMaker m = {.arena = a, .program = p, .choice = c, .draft = d, .n = part->max_tokens};
    m.own = (m.n + d->shape.tensor - 1) / d->shape.tensor;
    for (int i = 0; i < 2; i++)
        m.of[i] = row_sizes(&d->shape, c, part, i);
    m.queries = choice_chunks_queries(c) ? m.of[0].shares * tokens_in_chunk(m.n, c->token_chunks) : 0;
    m.key_tokens = choice_chunks_keys(c) ? m.queries : 0;
    add_chunks(&m);
    add_loads(&m);
    add_live(&m);
    if (!p->library)
        add_batch(&m);
    else
        add_rows(&m, BOTH);
    if (p->library)
        add_choice(&m);
    if (!p->target->device_memory)
        add_pieces(&m, BOTH, "piece_k", "piece_v");
    if (p->target->device_memory)
        add_device(&m, part);
    else
        add_host_attention(&m, part);
    if (p->library) {
        add_rows(&m, FORWARD);
        add_rows(&m, BACKWARD);
    }
    add_pieces(&m, BACKWARD, "piece_dk", "piece_dv");
    if (p->target->device_memory)
        add_pools(&m);
    const int channels = attentions_channels(&d->attention) ? attentions_channels(&d->attention) : 1;
    const size_t beside = (size_t)burst_gpu_beside_bytes(p->cluster.nodes, rank_groups(p, c, &d->shape),
                                                         channels),
                 unconnected = p->infer.lengths ? unconnected_bytes(d) : 0;
    return (Memory){.n = m.rows.n,
                    .at = m.rows.at,
                    .host = m.host,
                    .total = p->target->device_memory ? m.device : m.host,
                    .scratch = m.scratch[0] > m.scratch[1] ? m.scratch[0] : m.scratch[1],
                    .keys = m.keys,
                    .beside = p->target->device_memory ? beside - unconnected : 0};
}

void memory_add_step(Memory *m, const Program *p, const Flow *f, Units units)
{
    m->flow = f;
    if (p->library) { /* memory of a call; the step's values have no offsets */
        m->total += (size_t)m->scratch;
        m->host += p->target->device_memory ? 0 : (size_t)m->scratch;
        return;
    }
    m->total += (size_t)f->packed;
    const bool device = p->target->device_memory;
    m->host += device ? mirror_bytes(p, &units, f->step->choice.optimizer) : (size_t)(f->packed + f->host);
    m->offloaded = (size_t)(f->host - (device ? f->host_state : 0)); /* the mirror includes the state */
}

/* Of buffers that forward uses; those of one direction lie one after the other. */
static int64_t forward_scratch(const Memory *m)
{
    int64_t end = 0;
    for (int i = 0; i < m->n; i++) {
        const Buffer *b = &m->at[i];
        const bool of_forward = b->at >= 0 && !b->keys && (b->directions & FORWARD);
        if (of_forward && b->at + (int64_t)b->bytes > end)
            end = b->at + (int64_t)b->bytes;
    }
    return end;
}

/* Host memory that a program without its step's values and its mirror of weights has. */
AloneMemory memory_alone(Arena *a, const Draft *d)
{
    const Memory *m = &d->memory;
    const Program *p = d->program;
    const bool device = p->target->device_memory, optimizer = m->flow && m->flow->step->choice.optimizer;
    if (p->library || !m->flow || m->flow->step->forward)
        return (AloneMemory){0};
    const int64_t scratch = forward_scratch(m);
    const Flow *all = m->flow, *f = flow_alone(a, all, scratch);
    const size_t mirror = device ? mirror_bytes(p, &d->units, optimizer) : (size_t)(all->packed + all->host),
                 kept = device ? weight_bytes(&d->units) : (size_t)(f->packed + f->host);
    return (AloneMemory){.flow = f,
                         .scratch = scratch,
                         .total = m->total - (size_t)all->packed + (size_t)f->packed,
                         .host = m->host - mirror + kept,
                         .offloaded = (size_t)f->host,
                         .beside = m->beside - unconnected_bytes(d)};
}

const char *memory_alone_text(Arena *a, const Draft *d)
{
    const AloneMemory m = memory_alone(a, d);
    return m.flow ? arena_printf(a, "to evaluate alone (--steps 0 --evaluate) a rank needs %s\n",
                                 bytes_text(a, (double)(m.total + m.beside), 2))
                  : "";
}

MemoryBudget memory_budget(const Draft *t)
{
    const Cluster *c = &t->program->cluster;
    const Memory *m = &t->memory;
    const double device = (double)m->total + (double)m->beside,
                 mirror = t->choice.optimizer ? 0 : (double)mirror_bytes(t->program, &t->units, false),
                 /* an offloaded optimizer's state is among the flow's values */
        host = (double)m->host + mirror;
    return (MemoryBudget){(int64_t)fmax(0, cluster_least_memory(c)->memory - device),
                          t->program->target->device_memory
                              ? (int64_t)fmax(0, c->host_memory / cluster_most_ranks(c) - host)
                              : 0};
}

/* Measured (docs/runtime.md). On GPUs it is not device memory, where libraries are counted. */
const char *memory_uncounted(const Program *p)
{
    return p->target->device_memory ? NULL
                                    : "each process takes 7 to 20 MiB more, which is not predicted: "
                                      "OpenBLAS, MPI and other libraries";
}
