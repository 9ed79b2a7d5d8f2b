/* proof/scratch.c: scratch (part of proof 6). Operations that take scratch write it, and it is as large as
 * they need. Attention's buffers lie inside its scratch, apart from each other if one call uses them, and
 * are large enough for the largest chunk; each pool has all its slots.
 *
 * A call is one direction of one attention. Buffers of different calls may overlap: no two calls run at a
 * time. */
#include "proof/internal.h"

#include "burst_muon.h"
#include "burst_sizes.h"

#include <string.h>

enum { FLOAT_BYTES = 4 };

static void __attribute__((format(printf, 2, 3))) reject(Diags *d, const char *fmt, ...)
{
    va_list ap;
    Text t = {0};
    va_start(ap, fmt);
    text_vprintf(&t, fmt, ap);
    va_end(ap);
    diag_error(d, (Span){0}, "proof %d (%s) fails: %s", PROOF_MEMORY, proof_names[PROOF_MEMORY], t.at);
    text_free(&t);
}

static bool is_of(const Schedule *s, const Buffer *b)
{
    return !b->pool || (b->pool >= s->pool && b->pool < s->pool + s->pools);
}

/* Whether a call of the schedule uses the buffer. keys: buffers that persist between its calls, or the
 * others. */
static bool uses(const Schedule *s, const Buffer *b, bool keys)
{
    return b->at >= 0 && b->keys == keys && (b->directions >> s->backward & 1) && is_of(s, b);
}

static bool check_apart(Diags *d, const Draft *t, const Schedule *s, bool keys)
{
    const Memory *m = &t->memory;
    const int64_t all = keys ? m->keys : m->scratch, align = t->program->target->align;
    for (const Buffer *x = m->at; x < m->at + m->n; x++) {
        if (!uses(s, x, keys))
            continue;
        const int64_t end = x->at + (int64_t)x->bytes;
        if (x->at % align || end > all)
            return reject(d, "%s ends at %lld of %lld bytes of attention's scratch, or is not aligned",
                          x->name, (long long)end, (long long)all),
                   false;
        for (const Buffer *y = m->at; y < x; y++)
            if (uses(s, y, keys) && x->at < y->at + (int64_t)y->bytes && y->at < end)
                return reject(d, "%s and %s overlap in attention's scratch, in %s", y->name, x->name,
                              s->backward ? "backward" : "forward"),
                       false;
    }
    return true;
}

/* Tokens of the largest chunk of the direction: of a rank, or of all ranks that share heads with it. */
static int64_t most_tokens(Arena *a, const Draft *t, const Schedule *s)
{
    const Choice *c = s->choice;
    const bool shared = choice_shares(c, s->backward) > 1;
    int64_t *tokens = NEW_ARRAY(a, int64_t, c->ranks), most = 0;
    for (int r = 0; r < c->ranks; r++) {
        int64_t *of = &tokens[shared ? choice_member(c, r, 0) : r];
        *of += t->partition->of[r].tokens;
        most = *of > most ? *of : most;
    }
    return most;
}

/* The most heads that a rank has of such a chunk, and the most key heads that those read. */
static Heads most_heads(const Draft *t, const Schedule *s)
{
    const int shares = choice_shares(s->choice, s->backward);
    Heads most = {0};
    for (int chunk = 0; chunk <= (t->shape.short_chunks > 0); chunk++)
        for (int i = 0; i < shares; i++) {
            const Heads all = shape_chunk(&t->shape, chunk);
            const int first = all.heads * i / shares, end = all.heads * (i + 1) / shares;
            int read = 0;
            for (int h = first; h < end; h++)
                read += h == first || h % (all.heads / all.kv_heads) == 0;
            most.heads = end - first > most.heads ? end - first : most.heads;
            most.kv_heads = read > most.kv_heads ? read : most.kv_heads;
        }
    return most;
}

/* Tokens of a chunk of queries or keys that attention holds at a time. */
static int64_t tokens_at_a_time(const Draft *t, const Schedule *s, bool keys, int64_t most)
{
    const Choice *c = s->choice;
    const bool chunks = keys ? choice_chunks_keys(c) : choice_chunks_queries(c);
    return chunks ? choice_shares(c, s->backward) * tokens_in_chunk(t->partition->max_tokens, c->token_chunks)
                  : most;
}

/* Bytes of an arrival in a slot of the pool: a piece of a chunk of so many tokens. */
static int64_t slot_bytes(const Draft *t, const Schedule *s, const Pool *p, int64_t most)
{
    const Choice *c = s->choice;
    const Heads heads = most_heads(t, s);
    const int pieces = tensor_pieces(c, p->tensor);
    if (p->tensor == T_KV || p->tensor == T_DKV)
        most = tokens_at_a_time(t, s, true, most);
    return (most + pieces - 1) / pieces *
           travel_bytes(&t->program->model, t->program->target, p->tensor, s->backward, c->latents,
                        heads.heads, heads.kv_heads);
}

static bool check_pool(Diags *d, const Draft *t, const Schedule *s, const Pool *p, int64_t most)
{
    const int64_t slot = slot_bytes(t, s, p, most);
    int found = 0;
    for (const Buffer *b = t->memory.at; b < t->memory.at + t->memory.n; b++) {
        if (b->pool != p)
            continue;
        found++;
        if (!(b->directions >> s->backward & 1))
            return reject(d, "pool %s lies where another direction has its slots", p->name), false;
        if (b->copies != p->slots || b->elements < slot || (int64_t)b->bytes < b->copies * slot)
            return reject(d, "pool %s has %d slots of %lld bytes, and needs %d of %lld", p->name, b->copies,
                          (long long)b->elements, p->slots, (long long)slot),
                   false;
    }
    if (found != 1)
        reject(d, "pool %s has %d places in attention's scratch", p->name, found);
    return found == 1;
}

/* Checks that each copy of a buffer holds its elements, as the program's text declares them. */
static bool check_sizes(Diags *d, const Draft *t)
{
    static const struct {
        const char *type;
        int bytes;
    } sizes[] = {{"float", FLOAT_BYTES}, {"BurstBf16", 2}, {"char", 1}, {"int32_t", 4}, {"int64_t", 8}};
    for (const Buffer *b = t->memory.at; b < t->memory.at + t->memory.n; b++)
        for (int i = 0; i < countof(sizes) && b->type; i++)
            if (strcmp(b->type, sizes[i].type) == 0 &&
                (int64_t)b->bytes < b->copies * b->elements * sizes[i].bytes)
                return reject(d, "%s has %zu bytes for %d times %lld elements of %s", b->name, b->bytes,
                              b->copies, (long long)b->elements, b->type),
                       false;
    return true;
}

/* Checks rows of a chunk, by heads or key heads, each so wide. */
static bool check_rows(Diags *d, const Draft *t, const Schedule *s, int64_t most)
{
    const Model *m = &t->program->model;
    const Heads heads = most_heads(t, s);
    const struct {
        const char *name;
        bool keys;
        int width;
    } rows[] = {{"xq", false, m->head_dim},  {"xk", true, m->head_dim},    {"xv", true, m->value_dim},
                {"xo", false, m->value_dim}, {"xdo", false, m->value_dim}, {"xdq", false, m->head_dim},
                {"xdk", true, m->head_dim},  {"xdv", true, m->value_dim},  {"xlse", false, 1},
                {"xdelta", false, 1},        {"lse_rest", false, 1}};
    for (int i = 0; i < countof(rows); i++)
        for (const Buffer *b = t->memory.at; b < t->memory.at + t->memory.n; b++) {
            const int64_t needs = tokens_at_a_time(t, s, rows[i].keys, most) *
                                  (rows[i].keys ? heads.kv_heads : heads.heads) * rows[i].width;
            if (b->at < 0 || strcmp(b->name, rows[i].name) != 0 || !(b->directions >> s->backward & 1))
                continue;
            if (b->elements < needs)
                return reject(d, "%s has %lld elements, and needs %lld", b->name, (long long)b->elements,
                              (long long)needs),
                       false;
        }
    return true;
}

/* Checks the host's attention tiles. */
static bool check_tiles(Diags *d, const Draft *t)
{
    const Model *m = &t->program->model;
    const int64_t needs = burst_attend_floats(m->head_dim > m->value_dim ? m->head_dim : m->value_dim);
    bool found = t->program->target->device_memory;
    for (const Buffer *b = t->memory.at; b < t->memory.at + t->memory.n; b++)
        found |= strcmp(b->name, "attend_scratch") == 0 && b->elements >= needs;
    if (!found)
        reject(d, "attend_scratch has fewer than %lld elements", (long long)needs);
    return found;
}

/* ---- scratch of operations ---- */

static bool writes(const Op *o, int value)
{
    bool does = false;
    for (int i = 0; i < OP_WRITES && value >= 0; i++)
        does |= o->write[i].value == value;
    return does;
}

/* Elements of the widest norm in backward. */
static int64_t widest_norm(const Step *s)
{
    int64_t most = 0;
    for (int b = 0; b < STEP_BLOCKS; b++)
        for (const Op *o = s->block[b].ops.at; o < s->block[b].ops.at + s->block[b].ops.n; o++) {
            const UnitTensor *t = o->kind == OP_NORM_BACK ? op_tensor(s, o, &s->block[b]) : NULL;
            most = t && t->rows * t->cols > most ? t->rows * t->cols : most;
        }
    return most;
}

/* Muon: elements of the matrices of the rank with most, and scratch of the largest matrix. */
typedef struct MuonRoom {
    int64_t matrices, scratch;
} MuonRoom;
static MuonRoom muon_room(Arena *a, const Draft *t)
{
    const int layers = t->program->model.layers, ranks = t->units.ranks;
    BurstMatrices *of = NEW_ARRAY(a, BurstMatrices, layers);
    MuonRoom most = {0};
    int all = 0;
    for (int l = 0; l < layers; l++) {
        const Unit *layer = units_of(&t->units, &t->program->model, 1 + l);
        BurstMatrix *matrix = NEW_ARRAY(a, BurstMatrix, layer->tensors);
        int n = 0;
        for (const UnitTensor *x = layer->tensor; x < layer->tensor + layer->tensors; x++) {
            if (x->first != FIRST_NORMAL || !burst_muon_takes(x->cols))
                continue;
            const int parts[] = {x->split == SPLIT_ROWS ? x->parts : 1,
                                 x->split == SPLIT_COLS ? x->parts : 1};
            matrix[n] = (BurstMatrix){x->rows * parts[0], x->cols * parts[1]};
            const int64_t scratch = burst_muon_scratch(matrix[n++]);
            most.scratch = scratch > most.scratch ? scratch : most.scratch;
        }
        of[l] = (BurstMatrices){matrix, n};
        all += n;
    }
    int64_t *at = NEW_ARRAY(a, int64_t, all), *load = NEW_ARRAY(a, int64_t, ranks),
            *elements = NEW_ARRAY(a, int64_t, ranks);
    burst_muon_share(of, layers, ranks, NEW_ARRAY(a, int, all), at, load, elements);
    for (int r = 0; r < ranks; r++)
        most.matrices = elements[r] > most.matrices ? elements[r] : most.matrices;
    return most;
}

/* With `read k` all heads have the same. */
static int64_t gated_norm_weights(const BurstScan *s) { return s->value_dim * (s->read ? 1 : s->heads); }

/* Tensor ranks have equally many heads and key heads, and with them columns. */
static BurstScan split_scan(const Model *m, int ranks)
{
    BurstScan s = m->scan;
    s.heads /= ranks;
    s.key_heads /= ranks;
    s.columns /= ranks;
    return s;
}

/* A rank that has fewer pieces than others may work on more chunks at a time. */
static int64_t most_scan_bytes(const Step *s, const BurstScan *m)
{
    int64_t most = 0;
    for (int pieces = 1; pieces == 1 || pieces <= s->pieces; pieces++) {
        const int64_t bytes = burst_gpu_scan_bytes(m, pieces, s->all_tokens);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static int64_t maps_bytes(const Step *s, const BurstScan *m)
{
    return (int64_t)s->choice.ranks * s->pieces * burst_scan_map(m) * FLOAT_BYTES;
}

/* A row of each rank of what is cut to a prompt's last token. */
static int64_t rows_cut(const Draft *t)
{
    const Step *s = t->memory.flow->step;
    int64_t widest = 0;
    for (int b = 0; b < STEP_BLOCKS; b++)
        for (const Op *o = s->block[b].ops.at; o < s->block[b].ops.at + s->block[b].ops.n; o++) {
            const Value *v = o->kind == OP_LAST_TOKEN ? &s->values.at[o->write[0].value] : NULL;
            const int64_t width = v ? model_dim(&t->program->model, &s->shape, s->shape.rank, v->dim[1]) : 0;
            widest = width > widest ? width : widest;
        }
    return s->choice.ranks > 1 ? s->choice.ranks * widest * t->program->target->activation_bytes : 0;
}

/* The scratch of a kind of operation: its value's name, and its bytes. */
static int64_t taken(Arena *a, const Draft *t, OpKind k, const char **name)
{
    const Step *s = t->memory.flow->step;
    const Model *m = &t->program->model;
    const BurstScan scan = split_scan(m, t->choice.tensor ? t->choice.tensor : 1);
    const bool device = t->program->target->device_memory;
    switch (k) {
    case OP_ATTENTION:
    case OP_ATTENTION_BACK:
    case OP_ATTENTION_REST: *name = "attention_scratch"; return t->memory.scratch;
    case OP_EVALUATE:
    case OP_LOSS:
        *name = "loss_scratch";
        return device ? burst_gpu_loss_bytes(s->loss_tile, m->vocab)
                      : burst_loss_floats(s->tokens, s->loss_tile, m->hidden, m->vocab) * FLOAT_BYTES;
    case OP_CACHE:
        *name = "decode_scratch";
        return device && step_keeps_latents(s)
                   ? burst_decode_latent_bytes(s->shape.rank.heads, m->latent, m->shared, s->choice.ranks)
                   : burst_decode_bytes(s->shape.rank.heads, s->shape.rank.kv_heads, m->value_dim,
                                        s->choice.ranks, device);
    case OP_LAST_TOKEN: *name = "row_scratch"; return device ? rows_cut(t) : 0;
    case OP_NEXT:
        *name = "next_scratch";
        return device ? burst_gpu_next_bytes(m->vocab) : m->vocab * FLOAT_BYTES;
    case OP_NORM_BACK:
        *name = "norm_scratch";
        return device ? burst_gpu_norm_doubles((int)widest_norm(s)) * (int64_t)sizeof(double) : 0;
    case OP_EMBED_BACK:
        *name = "embed_scratch";
        return device ? 0 : burst_embed_ints(s->tokens) * (int64_t)sizeof(int32_t);
    case OP_EXPERTS_UP:
    case OP_EXPERTS_UP_DW:
    case OP_EXPERTS_DOWN_DW:
    case OP_EXPERTS_DOWN_DX:
        *name = "experts_scratch";
        return device ? 0 : BURST_EXPERT_ROWS * (int64_t)m->hidden * FLOAT_BYTES;
    case OP_SCAN:
    case OP_SCAN_BACK:
    case OP_SCAN_PIECES:
    case OP_SCAN_PIECES_BACK:
        *name = "scan_scratch";
        return device ? most_scan_bytes(s, &scan) : burst_scan_floats(&scan, s->all_tokens) * FLOAT_BYTES;
    case OP_SELECT:
        *name = "select_scratch";
        return select_scratch(t->program, &s->shape, s->choice.ranks, s->all_tokens);
    case OP_STATES:
    case OP_STATES_BACK:
        *name = "states_scratch";
        return maps_bytes(s, &scan) +
               (device ? most_scan_bytes(s, &scan) : burst_scan_floats(&scan, s->all_tokens) * FLOAT_BYTES);
    case OP_HALO:
    case OP_HALO_BACK:
        *name = "halo_scratch";
        return (int64_t)s->pieces * (m->scan_kernel - 1) * scan.columns *
               t->program->target->activation_bytes;
    case OP_CONV_PIECES_BACK:
    case OP_CONV_BACK:
        *name = "conv_scratch";
        return scan.columns * (device
                                   ? BURST_GPU_CONV_BLOCKS * (BURST_MOST_KERNEL + 1) * (int64_t)sizeof(double)
                                   : FLOAT_BYTES);
    case OP_SCAN_GATES_BACK:
        *name = "gates_scratch";
        return device ? burst_gpu_scan_gates_doubles(scan.heads) * (int64_t)sizeof(double) : 0;
    case OP_GATED_NORM_BACK:
        *name = "gated_norm_scratch";
        return device ? BURST_GPU_NORM_BLOCKS * (int64_t)sizeof(double) * gated_norm_weights(&scan) : 0;
    case OP_ARRANGE:
    case OP_LOGITS_DW:
    case OP_LOGITS_DX:
        *name = "experts_scratch";
        return device ? burst_gpu_experts_bytes(m->experts.experts) : 0;
    case OP_TO_OWNERS:
        *name = "matrices";
        return muon_room(a, t).matrices * t->program->target->activation_bytes;
    case OP_ORTHOGONALIZE:
        *name = "muon_scratch";
        return muon_room(a, t).scratch * t->program->target->activation_bytes;
    default: return 0;
    }
}

static bool check_op(Diags *d, const Step *s, const Op *o, const char *name, int64_t bytes)
{
    const int v = bytes ? step_value(s, name) : -1;
    const bool right = !bytes || (writes(o, v) && s->values.at[v].bytes >= bytes);
    if (!right)
        reject(d, "%s takes %lld bytes of %s, and has %lld", op_name(o->kind), (long long)bytes, name,
               (long long)(writes(o, v) ? s->values.at[v].bytes : 0));
    return right;
}

static bool check_ops(Arena *a, Diags *d, const Draft *t)
{
    const Step *s = t->memory.flow->step;
    for (int b = 0; b < STEP_BLOCKS; b++)
        for (const Op *o = s->block[b].ops.at; o < s->block[b].ops.at + s->block[b].ops.n; o++) {
            const bool keys = o->kind == OP_ATTENTION || o->kind == OP_ATTENTION_BACK;
            const char *name = "";
            const int64_t bytes = taken(a, t, o->kind, &name);
            if (!check_op(d, s, o, name, bytes) ||
                !check_op(d, s, o, "attention_keys", keys ? t->memory.keys : 0))
                return false;
        }
    return true;
}

bool verify_scratch(Arena *a, Diags *d, const Draft *t)
{
    const bool calls = t->program->library; /* these have scratch of their own */
    if (!check_sizes(d, t) || !check_tiles(d, t) || (!calls && !check_ops(a, d, t)))
        return false;
    for (int i = 0; i < 2 * t->attention.n; i++) {
        const Schedule *s = t->attention.at[i / 2].way[i % 2];
        if (!check_apart(d, t, s, false) || !check_apart(d, t, s, true))
            return false;
        const int64_t most = most_tokens(a, t, s);
        if (!check_rows(d, t, s, most))
            return false;
        for (int p = 0; p < s->pools; p++)
            if (!check_pool(d, t, s, &s->pool[p], most))
                return false;
    }
    return true;
}
