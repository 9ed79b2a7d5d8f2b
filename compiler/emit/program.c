/* emit/program.c: the program's text: constants, the plan, then masks, partition and the data for the
 * runtime.
 *
 * Text that is the same in all plans is in headers (templates/), which the program includes. */
#include "burst_attend.h"
#include "emit/internal.h"
#include "burst_plan.h"
#include "burst_sizes.h"
#include "ir/kernels.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- lines ---- */

void emit_line(Emit *e, const char *fmt, ...)
{
    Text t = {0};
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(&t, fmt, ap);
    va_end(ap);
    if (t.n && t.at[0] == '}')
        e->indent--;
    if (t.n)
        text_printf(e->out, "%*s%s", 4 * e->indent, "", t.at);
    text_add(e->out, "\n");
    if (t.n && t.at[t.n - 1] == '{')
        e->indent++;
    text_free(&t);
}

/* ---- constants ---- */

/* Parts of the text that differ between targets. */
typedef struct Language {
    const char *step;             /* header of a step's operations */
    const char *attention;        /* header of slots, transfers and computing */
    const char *layer;            /* header of the step's other functions */
    const char *library; /* header of a library's calls */
    const char *host_masks;       /* namespace of the host's masks: "plan_host::" */
    const char *field, *field_end; /* a field of burst_plan: C++17 has no designated initialisers */
    const char *values, *values_end;
} Language;
static const Language languages[TARGETS] = {
    [TARGET_C] = {"burst_step.h", "burst_rings_host.h", "burst_layer_host.h", "burst_library_host.h", "",
                  "    .%s = ", ",\n", "const BurstPlan burst_plan = {\n", "};\n"},
    [TARGET_CUDA] =
        {"burst_step_cuda.h", "burst_rings_cuda.cuh", "burst_layer_cuda.cuh", "burst_library_cuda.cuh",
         "plan_host::", "    p.%s = ", ";\n",
         "static BurstPlan plan_values(void)\n{\n    BurstPlan p;\n    memset(&p, 0, sizeof p);\n",
         "    return p;\n}\n\nconst BurstPlan burst_plan = plan_values();\n"},
};

static const Language *language(const Emit *e)
{
    return &languages[e->draft->program->target - targets];
}

static bool device(const Emit *e)
{
    return e->draft->program->target->device_memory;
}

static bool exchanges(const Emit *e)
{
    return choice_exchanges(&e->draft->choice);
}

static void add_constant(Emit *e, const char *name, int64_t value, const char *comment)
{
    if (value > INT32_MAX)
        text_printf(e->out, "#define %s INT64_C(%" PRId64 ")", name, value);
    else
        text_printf(e->out, "#define %s %" PRId64, name, value);
    text_printf(e->out, comment ? " /* %s */\n" : "\n", comment);
}

/* The shorter of two forms that reads back as x. */
static const char *real_text(Emit *e, double x)
{
    const char *text = arena_printf(e->arena, "%.15g", x);
    return strtod(text, NULL) == x ? text : arena_printf(e->arena, "%.17g", x);
}

static int64_t elements_of(const Emit *e, const char *buffer)
{
    const Memory *m = &e->draft->memory;
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->at[i].name, buffer) == 0)
            return m->at[i].elements;
    return 0;
}

/* step: part of everything but attention. */
typedef struct Constant {
    const char *name;
    int64_t value;
    const char *comment;
    bool step;
} Constant;

static void add_constants(Emit *e, const Constant *row, int n)
{
    for (int i = 0; i < n; i++)
        if (!row[i].step || !e->draft->program->library)
            add_constant(e, row[i].name, row[i].value, row[i].comment);
}

static int travelling_sides(const Draft *d)
{
    int sides = 0;
    for (int i = 0; i < 2 * d->program->mask_count; i++)
        sides |= schedule_sides(attentions_schedule(&d->attention, i / 2, i % 2));
    return sides;
}

static void emit_group(Emit *e)
{
    const Choice *c = &e->draft->choice;
    const Constant row[] = {
        {"PLAN_WORLD", e->draft->program->cluster.world, "ranks"},
        {"PLAN_NODES", e->draft->program->cluster.nodes, NULL},
        {"PLAN_DATA", c->data, "data-parallel groups"},
        {"PLAN_GROUP", c->ranks, "ranks that share a sequence"},
    };
    add_constants(e, row, countof(row));
    if (c->partition == PART_BALANCED)
        add_constant(e, "PLAN_BALANCED", c->block, "tokens of a run; each batch assigns runs to chunks");
    if (c->tensor)
        add_constant(e, "PLAN_TENSOR", c->tensor, "tensor-parallel ranks; heads and ffn are one rank's");
    if (e->draft->shape.key_copies > 1)
        add_constant(e, "PLAN_KEY_COPIES", e->draft->shape.key_copies,
                     "tensor ranks that have the same key heads");
    if (choice_pieces(c) > 1)
        add_constant(e, "PLAN_PIECES", choice_pieces(c),
                     "pieces of a rank's keys: piece p of rank r is chunk p * PLAN_GROUP + r");
    if (attentions_in_groups(&e->draft->attention))
        add_constant(e, "PLAN_IN_GROUPS", 1, "forward has launches for several chunks of other ranks' keys");
    else if (attentions_at_once(&e->draft->attention, false))
        add_constant(e, "PLAN_AT_ONCE", 1, "forward computes once all keys of its queries have arrived");
    if (attentions_at_once(&e->draft->attention, true))
        add_constant(e, "PLAN_GRADS_AT_ONCE", 1, "backward has launches for consecutive chunks");
    if (choice_chunks_queries(c))
        add_constant(e, "PLAN_QUERY_CHUNKS", chunk_count(e->draft->partition->max_tokens, c->token_chunks),
                     "chunks of a rank's tokens; attention has the queries of one at a time");
    if (choice_chunks_keys(c))
        add_constant(e, "PLAN_KEY_CHUNKS", 1, "and the keys of one at a time, which are in host memory"),
            add_constant(e, "PLAN_KEY_TOKENS",
                         tokens_in_chunk(e->draft->partition->max_tokens, c->token_chunks),
                         "most keys of a chunk");
    if (c->ranges)
        add_constant(e, "PLAN_RANGES", travelling_sides(e->draft),
                     "transfers carry the tiles that are read further along, or were added to: 1: "
                     "queries, 2: keys");
    if (c->within)
        add_constant(e, "PLAN_SHARD_RANKS", c->within,
                     "ranks that share the weights; other such groups have replicas");
    emit_coordinates(e);
    if (e->draft->attention.n > 1)
        add_constant(e, "PLAN_ATTENTIONS", e->draft->attention.n,
                     "schedules of attention; a layer's mask chooses");
}

/* Ranks that share heads; the most heads that any of them has. */
static void emit_shares(Emit *e)
{
    const Choice *c = &e->draft->choice;
    const bool by_heads[2] = {choice_by_heads(c, false), choice_by_heads(c, true)};
    const RowSizes h = row_sizes(&e->draft->shape, c, e->draft->partition, by_heads[1]);
    const Constant row[] = {
        {"PLAN_SHARES", h.shares, "ranks that share the heads"},
        {"PLAN_SHARE_STRIDE", c->stride[c->schedule->exchanged], "distance between neighbours of these"},
        {"PLAN_SHARE_HEADS", h.heads, "most query heads of a rank"},
        {"PLAN_SHARE_KV_HEADS", h.kv_heads, NULL},
        {"PLAN_ROW_TOKENS", h.tokens, "most tokens of the ranks that share heads"},
        {"PLAN_FORWARD_BY_HEADS", by_heads[0], NULL},
        {"PLAN_BACKWARD_BY_HEADS", by_heads[1], NULL},
        {"PLAN_FORWARD_POOLS", e->draft->attention.at[0].way[0]->pools, "the later pools are backward's"},
    };
    add_constants(e, row, countof(row));
    if (device(e))
        emit_output_rows(e);
    if (c->head_pieces > 1)
        add_constant(e, "PLAN_HEAD_PIECES", c->head_pieces,
                     "in which query heads are exchanged and attended, so that transfers overlap computing");
}

static const BurstRope *rope_of(const Model *m, int row) { return row ? &m->rope_of[row] : &m->rope; }

/* Members in the order of BurstRope. */
static void emit_rope(Emit *e, const BurstRope *r, int row)
{
    static const char *const kind[] = {
#define X(id, name) "BURST_ROPE_" #id,
        BURST_ROPE_ROWS(X)
#undef X
    };
    const double more[] = {r->factor, r->original, r->low, r->high, r->attention, r->length};
    text_printf(e->out, "{%s, %s", real_text(e, r->theta), kind[r->kind]);
    for (int i = 0; i < countof(more); i++)
        text_printf(e->out, ", %s", real_text(e, more[i]));
    text_printf(e->out, ", %d, %d, ", r->rotary, r->interleaved);
    if (r->factors)
        text_printf(e->out, "&plan_rope_factors[%d]", row);
    else
        text_add(e->out, "NULL");
    text_printf(e->out, ", %s, %s}", real_text(e, r->query_beta), real_text(e, r->untruncated));
}

static void emit_factors(Emit *e, const double *factor, int count)
{
    for (int i = 0; i < count; i++)
        text_printf(e->out, "%s%s%s", i ? "," : "{", i % 8 ? " " : "\n      ", real_text(e, factor[i]));
    text_add(e->out, "}");
}

/* For longrope, by rope; nothing if no rope has factors. */
static void emit_rope_factors(Emit *e, const Model *m)
{
    static const BurstRopeFactors none = {.count = 1, .short_factor = {1}, .long_factor = {1}};
    const int ropes = m->ropes > 1 ? m->ropes : 1;
    bool any = false;
    for (int i = 0; i < ropes; i++)
        any = any || rope_of(m, i)->factors;
    if (!any)
        return;
    text_add(e->out, "static const BurstRopeFactors plan_rope_factors[] = {");
    for (int i = 0; i < ropes; i++) {
        const BurstRopeFactors *f = rope_of(m, i)->factors ? rope_of(m, i)->factors : &none;
        text_printf(e->out, "%s\n    {%d, ", i ? "," : "", f->count);
        emit_factors(e, f->short_factor, f->count);
        text_add(e->out, ",\n     ");
        emit_factors(e, f->long_factor, f->count);
        text_add(e->out, "}");
    }
    text_add(e->out, "};\n");
}

/* If queries alone are scaled. */
static void emit_key_rope(Emit *e, const BurstRope *r)
{
    BurstRope keys = *r;
    if (r->query_beta == 0)
        return;
    keys.query_beta = 0;
    text_add(e->out, "static const BurstRope plan_key_rope = ");
    emit_rope(e, &keys, 0);
    text_add(e->out, ";\n");
}

/* One for all layers, or one per layer. */
static void emit_ropes(Emit *e, const Model *m)
{
    emit_rope_factors(e, m);
    text_add(e->out, "#define PLAN_ROPE ");
    emit_rope(e, &m->rope, 0);
    if (m->ropes < 2) {
        text_add(e->out, "\nstatic const BurstRope plan_rope = PLAN_ROPE;\n");
        emit_key_rope(e, &m->rope);
        return;
    }
    text_add(e->out, "\nstatic const BurstRope plan_ropes[] = {PLAN_ROPE");
    for (int i = 1; i < m->ropes; i++) {
        text_add(e->out, ",\n                                       ");
        emit_rope(e, &m->rope_of[i], i);
    }
    text_add(e->out, "};\nstatic const int plan_layer_rope[PLAN_LAYERS] = {");
    for (int i = 0; i < m->layers; i++)
        text_printf(e->out, "%s%s%d", i ? "," : "", i % 32 ? " " : "\n    ", m->layer_rope[i]);
    text_add(e->out, "};\n");
}

/* Sizes of an indexer, and what its heads turn by: the layers' rope, of so many elements. */
static void emit_indexer(Emit *e, const Model *m)
{
    const BurstIndexer *x = &m->indexer;
    BurstRope rope = m->rope;
    if (!x->heads)
        return;
    add_constant(e, "PLAN_INDEX_HEADS", x->heads, "of the indexer");
    add_constant(e, "PLAN_INDEX_KV_HEADS", x->kv_heads, "of the indexer");
    add_constant(e, "PLAN_INDEX_DIM", x->dim, "of its heads");
    rope.rotary = x->rotary == x->dim ? 0 : x->rotary;
    rope.theta = x->rotary ? rope.theta : 0;
    rope.query_beta = 0; /* a query's factor changes no order */
    text_add(e->out, "static const BurstRope plan_index_rope = ");
    emit_rope(e, &rope, 0);
    text_add(e->out, ";\n");
}

static const struct {
    const char *name, *constant, *field;
} scales[BURST_SCALES] = {
#define X(id, name, constant) {name, constant, "scale[BURST_SCALE_" #id "]"},
    BURST_SCALE_ROWS(X)
#undef X
};

static const char *const activations[] = {
#define X(id, name) "BURST_ACTIVATION_" #id,
    BURST_ACTIVATION_ROWS(X)
#undef X
};

static void emit_scales(Emit *e, const Model *m)
{
    if (m->layer.activation)
        text_printf(e->out, "#define PLAN_ACTIVATION %s\n", activations[m->layer.activation]);
    for (int i = 0; i < BURST_SCALES; i++)
        if (m->scale[i] > 0)
            text_printf(e->out, "#define %s %s\n", scales[i].constant, real_text(e, m->scale[i]));
}

/* Multi-head latent attention. */
static void emit_latents(Emit *e, const Model *m, bool travel)
{
    if (m->value_dim != m->head_dim)
        add_constant(e, "PLAN_VALUE_DIM", m->value_dim, "elements of a head's values and output");
    if (!m->latent)
        return;
    add_constant(e, "PLAN_LATENT", m->latent, "elements of a token's latent for keys and values");
    add_constant(e, "PLAN_SHARED", m->shared, "elements of a token's keys that all heads share");
    if (m->query_latent)
        add_constant(e, "PLAN_QUERY_LATENT", m->query_latent, "elements of the latent of its queries");
    if (travel)
        add_constant(e, "PLAN_LATENTS", 1, "keys and values travel as latents");
    if (e->draft->program->infer.lengths && step_keeps_latents(e->draft->memory.flow->step))
        add_constant(e, "PLAN_KEEPS_LATENTS", 1, "a cache has latents");
}

/* Groups of a layer's experts, each a unit of weights. */
static void emit_expert_groups(Emit *e, const BurstExperts *m)
{
    const int groups = e->draft->units.groups, each = m->experts / groups;
    text_printf(e->out,
                "#define PLAN_EXPERT_GROUPS %d /* units of weights that a layer's experts are in */\n",
                groups);
    text_add(e->out, "static const BurstExperts plan_experts_of[PLAN_EXPERT_GROUPS] = {");
    for (int g = 0; g < groups; g++)
        text_printf(e->out, "\n    PLAN_EXPERTS_OF_LAYER(PLAN_EXPERT_WIDTH, %d, %d, %d),", each, g * each,
                    expert_rows(&e->draft->program->model, &e->draft->shape));
    text_add(e->out, "\n};\n");
}

/* Experts, which each token chooses. */
static void emit_experts(Emit *e, const BurstExperts *m)
{
    const int groups = e->draft->units.groups;
    static const char *const score[] = {
#define X(id, name) "BURST_SCORE_" #id,
        BURST_SCORE_ROWS(X)
#undef X
    };
    if (!m->experts)
        return;
    add_constant(e, "PLAN_EXPERTS", m->experts, "of each layer");
    add_constant(e, "PLAN_TOP", m->top, "experts that a token chooses");
    add_constant(e, "PLAN_EXPERT_WIDTH", m->width / e->draft->shape.tensor,
                 e->draft->choice.tensor ? "a rank's columns of an expert's gate and up"
                                         : "columns of an expert's gate and up");
    if (step_counts(e->draft->program))
        text_add(e->out, "#define PLAN_LOADS\nenum { PLAN_BALANCE_COUNTS = 2 * PLAN_EXPERTS + 1 };\n");
    if (m->balance > 0)
        text_add(e->out, "#define PLAN_BALANCE\n");
    if (m->correction)
        text_add(e->out, "#define PLAN_CORRECTION\n");
    if (m->shared)
        add_constant(e, "PLAN_SHARED_FFN", m->shared / e->draft->shape.tensor,
                     "a rank's columns of the shared expert's gate and up");
    text_printf(e->out, "#define PLAN_EXPERTS_OF_LAYER(width%s) {%s, PLAN_TOP, width, %s, %s, %d, %s, %s, ",
                groups ? ", experts, first, rows" : "", groups ? "experts" : "PLAN_EXPERTS",
                activations[m->activation], score[m->score], m->normalize, real_text(e, m->eps),
                real_text(e, m->scale));
    text_printf(e->out, "%d, %d, %d, %d, %d, %d, %d, %d, %s, %s, %s, %s, %s, %s, %d, %s}\n", m->shared,
                m->shared_gate, m->correction, m->groups, m->top_groups, m->group_score, m->router_bias,
                m->bias, real_text(e, m->least), real_text(e, m->alpha), real_text(e, m->offset),
                real_text(e, m->limit), real_text(e, m->rate), real_text(e, m->balance), m->everywhere,
                groups ? "first, rows" : "0, 0");
    text_printf(e->out,
                "static const BurstExperts plan_experts = PLAN_EXPERTS_OF_LAYER(PLAN_EXPERT_WIDTH%s);\n",
                groups ? ", PLAN_EXPERTS, 0, 0" : "");
    if (groups)
        emit_expert_groups(e, m);
}

static const char *scale_or_one(const Model *m, int scale)
{
    return m->scale[scale] > 0 ? scales[scale].constant : "1";
}

/* States of recurrent layers, their gates and their norm. */
static void emit_scan_states(Emit *e, const Model *m, const BurstScan *s)
{
    add_constant(e, "PLAN_SCAN_HEADS", s->heads, "of values and states of recurrent layers");
    add_constant(e, "PLAN_SCAN_KEY_HEADS", s->key_heads, "of their queries and keys");
    add_constant(e, "PLAN_SCAN_KEY_DIM", s->key_dim, NULL);
    add_constant(e, "PLAN_SCAN_VALUE_DIM", s->value_dim, NULL);
    add_constant(e, "PLAN_SCAN_GATES", (s->read ? 2 : 1) * s->heads, "of its gates");
    text_printf(
        e->out,
        "#define PLAN_SCAN_OF(ranks) {PLAN_SCAN_HEADS * ranks, PLAN_SCAN_KEY_HEADS * ranks, "
        "PLAN_SCAN_KEY_DIM, "
        "\\\n                            PLAN_SCAN_VALUE_DIM, %d, %d, %s, PLAN_SCAN_COLUMNS * ranks, \\\n"
        "                            %d * ranks, %d * ranks, %d * ranks, %s, %s, %s, %s}\n"
        "static const BurstScan plan_scan = PLAN_SCAN_OF(1);\n",
        s->read, s->normalize, real_text(e, s->scale), s->q, s->k, s->v, real_text(e, s->beta_most),
        real_text(e, s->step_least), real_text(e, s->step_most), scale_or_one(m, BURST_SCALE_SCAN_STEP));
    if (m->layer.scan_plain)
        return;
    text_printf(e->out,
                "static const BurstGatedNorm plan_scan_norm = {%s, %d, %d, BURST_GATE_SILU, %s, %s};\n",
                s->read ? "PLAN_SCAN_HEADS, PLAN_SCAN_VALUE_DIM"
                        : "PLAN_SCAN_KEY_HEADS, PLAN_SCAN_HEADS * PLAN_SCAN_VALUE_DIM / PLAN_SCAN_KEY_HEADS",
                s->read ? 1 : 0, m->scan_gate_before,
                m->scan_eps > 0 ? real_text(e, m->scan_eps) : "PLAN_NORM_EPS",
                scale_or_one(m, BURST_SCALE_SCAN_GATE));
}

/* Scales of values, keys and queries, in the order of their columns. */
static void emit_conv_scales(Emit *e, const Model *m, const BurstScan *s)
{
    const int parts[2][3] = {{BURST_SCALE_SCAN_QUERY, BURST_SCALE_SCAN_KEY, BURST_SCALE_SCAN_VALUE},
                             {BURST_SCALE_SCAN_VALUE, BURST_SCALE_SCAN_KEY, BURST_SCALE_SCAN_QUERY}};
    const int *part = parts[s->v == 0];
    text_printf(e->out, ", {%d, %d}, {", s->k, s->v == 0 ? s->q : s->v);
    for (int i = 0; i < 3; i++)
        text_printf(e->out, "%s%s", i ? ", " : "", scale_or_one(m, part[i]));
    text_add(e->out, "}");
}

/* Layers with a scan in place of attention. */
static void emit_scan_layers(Emit *e, const Model *m)
{
    const BurstScan scan = scan_of_rank(m, e->draft->shape.tensor);
    const int pieces = partition_scan_pieces(e->draft->program, e->draft->partition);
    if (!scan.columns)
        return;
    add_constant(e, "PLAN_SCAN_COLUMNS", scan.columns,
                 scan.heads ? "of a token's queries, keys and values"
                            : "of a convolution in place of attention");
    if (scan.heads)
        emit_scan_states(e, m, &scan);
    if (m->place_table)
        add_constant(e, "PLAN_PLACE_TABLE", m->place_table - 1, "positions in documents, where they restart");
    add_constant(e, "PLAN_SCAN_KERNEL", m->scan_kernel, "rows of their convolution");
    if (pieces)
        add_constant(e, "PLAN_SCAN_PIECES", pieces, "most runs of a rank's tokens, which it scans in place");
    if (pieces && scan.heads)
        add_constant(e, "PLAN_SCAN_MAP", burst_scan_map(&scan), "floats of a piece's map");
    text_printf(e->out, "static const BurstConv plan_conv = {PLAN_SCAN_COLUMNS, PLAN_SCAN_KERNEL, %d",
                scan.heads > 0);
    emit_conv_scales(e, m, &scan);
    text_add(e->out, "};\n");
}

/* The host's caches are by heads, but for latents; a device's by tokens. */
static void emit_cache_rows(Emit *e, const Step *step)
{
    if (step->program->target->device_memory || step_keeps_latents(step))
        return;
    text_add(e->out, "static const int64_t plan_cache_rows[] = {");
    for (int m = 0; m < step->program->mask_count; m++)
        text_printf(e->out, "%s%" PRId64, m ? ", " : "", step_cache_rows(step, m));
    text_add(e->out, "}; /* by mask: tokens of a rank whose keys and values are kept */\n");
}

/* Experts of each rank. */
static int64_t slice_experts(const Units *u, int experts)
{
    const int ranks = u->at[units_layer(0)].ranks;
    return (experts + ranks - 1) / ranks;
}

/* Of prompts. */
static void emit_lengths(Emit *e)
{
    const Infer *n = &e->draft->program->infer;
    const int experts = e->draft->program->model.experts.experts;
    if (!n->lengths)
        return;
    if (e->draft->units.slices)
        add_constant(e, "PLAN_SLICES", units_token_rows(&e->draft->units),
                     "a rank's rows of the vocabulary; later tokens are multiplied by slices of weights");
    if (experts && units_slice_experts(&e->draft->units))
        add_constant(e, "PLAN_SLICE_EXPERTS", slice_experts(&e->draft->units, experts),
                     "a rank's experts of a layer");
    const Step *step = e->draft->memory.flow->step;
    add_constant(e, "PLAN_INFER", 1, "prompts are continued");
    if (e->splits)
        add_constant(e, "PLAN_SPLIT_PRODUCTS", cost_split_rows(e->draft),
                     "rows of a further token's products, or a multiple, of which ranks each compute a part");
    add_constant(e, "PLAN_NEW_TOKENS", n->tokens - 1, "most that a prompt's cache takes after it");
    text_add(e->out, "static const int64_t plan_reach[] = {");
    for (int m = 0; m < e->draft->program->mask_count; m++)
        text_printf(e->out, "%s%" PRId64, m ? ", " : "", step->reach ? step->reach[m] : 0);
    text_add(e->out, "}; /* by mask: of keys so far before a token and more, none is seen; 0: of all */\n");
    emit_cache_rows(e, step);
    text_add(e->out, "static const int64_t plan_lengths[] = {");
    for (int i = 0; i < n->lengths; i++)
        text_printf(e->out, "%s%" PRId64, i ? ", " : "", n->length[i]);
    text_printf(e->out,
                "}; /* of prompts: each is proved */\n"
                "static int plan_length = %d; /* the running prompt's */\n",
                n->lengths - 1);
}

static void emit_sizes(Emit *e)
{
    const Model *m = &e->draft->program->model;
    const Shape *s = &e->draft->shape;
    const Constant row[] = {
        {"PLAN_SEQUENCE", e->draft->program->sequence, "tokens"},
        {"PLAN_TOKENS", e->draft->partition->max_tokens, "most tokens of a rank"},
        {"PLAN_BATCH", e->draft->program->train.batch, "sequences per step", true},
        {"PLAN_LAYERS", m->layers, NULL, true},
        {"PLAN_HIDDEN", m->hidden, NULL, true},
        {"PLAN_HEADS", s->chunk.heads, NULL},
        {"PLAN_KV_HEADS", s->chunk.kv_heads, NULL},
        {"PLAN_HEAD_DIM", m->head_dim, NULL},
        {"PLAN_FFN", s->ffn, NULL, true},
        {"PLAN_VOCAB", m->vocab, NULL, true},
        {"PLAN_LOSS_TILE", choice_loss_tile(e->draft->program, &e->draft->choice),
         "tokens whose logits exist at a time", true},
        {"PLAN_MASKS", e->draft->program->mask_count, NULL},
        {"PLAN_TABLES", e->draft->program->table_count, "per-token tables"},
        {"PLAN_ALIGN", e->draft->program->target->align, "bytes; alignment of values in an arena"},
    };
    add_constants(e, row, countof(row));
    const int group = saving_group(saving_of(&e->draft->choice));
    if (group > 1 && !e->draft->program->library)
        add_constant(e, "PLAN_GROUP_LAYERS", group, "layers of a group; the first saves its input");
    emit_lengths(e);
    emit_head_chunks(e);
    emit_latents(e, m, e->draft->choice.latents);
    if (m->selects)
        add_constant(e, "PLAN_SELECTIONS", e->draft->program->selection_count, "of the masks");
    if (m->selects && device(e))
        add_constant(e, "PLAN_LISTS_INTS", elements_of(e, "lists"), "ints of the lists of a launch");
    emit_indexer(e, m);
    if (!e->draft->program->library) {
        text_printf(e->out, "#define PLAN_NORM_EPS %s\n", real_text(e, m->norm_eps));
        emit_ropes(e, m);
        emit_scales(e, m);
        emit_experts(e, &m->experts);
        emit_scan_layers(e, m);
    }
    if (m->rope_table)
        add_constant(e, "PLAN_ROPE_TABLE", m->rope_table - 1, "by whose values RoPE rotates");
    if (m->softcap > 0)
        text_printf(e->out, "#define PLAN_SOFTCAP ((float)%.9g) /* of scores */\n", m->softcap);
    if (device(e) && e->draft->program->train.deterministic)
        text_add(e->out,
                 "#define PLAN_DETERMINISTIC 1 /* additions to dQ have the same order on every run */\n");
    if (e->draft->choice.optimizer)
        add_constant(e, "PLAN_HOST_OPTIMIZER", 1, "parameters and moments are in host memory");
    if (e->draft->program->train.optimizer == BURST_OPTIMIZER_MUON && !e->draft->program->library)
        add_constant(e, "PLAN_MUON", 1, "layers' matrices are updated by Muon, everything else by AdamW");
    if (e->draft->choice.optimizer == OPTIMIZER_FETCHED)
        add_constant(e, "PLAN_DEVICE_UPDATE", 1, "the device updates them, one unit at a time");
    if (e->draft->choice.optimizer == OPTIMIZER_ON_HOST && e->draft->choice.bf16_gradients)
        add_constant(e, "PLAN_BF16_GRADIENTS", 1, "a unit's gradients are copied in the activations' format");
    if (device(e) && e->draft->program->library) {
        add_constant(e, "PLAN_KEPT", e->draft->choice.ranks * choice_pieces(&e->draft->choice),
                     "launches of a call whose lists a batch may keep");
        add_constant(e, "PLAN_KEPT_INTS", elements_of(e, "kept_lists"), "ints of these lists");
    }
    if (exchanges(e))
        emit_shares(e);
    if (device(e) && exchanges(e)) {
        add_constant(e, "PLAN_PACK_Q", elements_of(e, "pack_q"), "bytes");
        add_constant(e, "PLAN_PACK_KV", elements_of(e, "pack_kv"), "bytes");
    }
    if (device(e) && !e->draft->program->library)
        text_printf(e->out, "#define PLAN_DEVICE_BYTES ((size_t)%zu) /* weights, activations, slots */\n",
                    e->draft->memory.total);
    if (device(e) && e->alone.flow)
        text_printf(e->out,
                    "#define PLAN_ALONE_DEVICE_BYTES ((size_t)%zu) /* of a run that only evaluates */\n",
                    e->alone.total);
}

/* Whether outputs travel: not if a ring has one rank and never passes any. */
static bool outputs_travel(const Draft *d)
{
    for (int i = 0; i < d->attention.n; i++)
        for (int p = 0; p < d->attention.at[i].way[0]->pools; p++)
            if (d->attention.at[i].way[0]->pool[p].tensor == T_O &&
                d->attention.at[i].way[0]->pool[p].slots > 0)
                return true;
    return false;
}

/* Returns the slots of the largest pool. */
static int emit_pools(Emit *e, const Schedule *s)
{
    int most = 1;
    for (int p = 0; p < s->pools; p++) {
        const Pool *pool = &s->pool[p];
        text_printf(e->out, "    PLAN_POOL_%s, /* %s %s, %d slot%s */\n", pool->name,
                    s->backward ? "backward" : "forward", tensor_name(pool->tensor), pool->slots,
                    plural(pool->slots));
        most = pool->slots > most ? pool->slots : most;
    }
    return most;
}

static void emit_pool_names(Emit *e)
{
    const int channels = attentions_channels(&e->draft->attention);
    int most = 1;
    text_add(e->out, "\n/* Pools of slots for travelling chunks, by tensor and direction of travel; back_: "
                     "backward's. */\nenum {\n");
    for (int i = 0; i < 2 * e->draft->attention.n; i++) {
        const int slots = emit_pools(e, e->draft->attention.at[i / 2].way[i % 2]);
        most = slots > most ? slots : most;
    }
    text_printf(
        e->out,
        "    PLAN_POOLS,\n    PLAN_MAX_SLOTS = %d,\n    PLAN_CHANNELS = %d, /* streams of transfers */\n",
        most, channels ? channels : 1);
    if (device(e))
        text_printf(e->out, "    PLAN_OUTPUTS_TRAVEL = %d, /* partial outputs are merged at their owner */\n",
                    outputs_travel(e->draft));
    text_add(e->out, "};\n");
}

/* ---- buffers ---- */

/* A rank's memory other than its weights: the step's arena, and buffers inside and outside of it. */
static void emit_buffers(Emit *e)
{
    text_add(e->out, "\ntypedef struct PlanBuffers {\n");
    if (!e->draft->program->library)
        text_add(e->out, "    char *arena; /* the step's values */\n");
    if (emit_stages(e))
        text_add(e->out, "    char *host; /* the step's values in host memory */\n");
    for (int i = 0; i < e->draft->memory.n; i++) {
        const Buffer *b = &e->draft->memory.at[i];
        if (!b->type || b->pool)
            continue;
        text_printf(e->out, "    %s *%s", b->type, b->name);
        if (b->array)
            text_printf(e->out, "[%d]", b->copies);
        text_printf(e->out, "; /* %s */\n", b->shape);
    }
    text_add(e->out, "} PlanBuffers;\n");
}

static void emit_take(Emit *e, const char *field, const char *index, const char *type, const char *call,
                      const char *bytes)
{
    emit_line(e, "if (!(s->buffer.%s%s = (%s *)%s, %s)))", field, index, type, call, bytes);
    emit_line(e, "    return BURST_E_MEMORY;");
}

static const char *bytes_of(Emit *e, const Buffer *b)
{
    return arena_printf(e->arena, "(size_t)%" PRId64 " * sizeof(%s)", b->elements, b->type);
}

static const char *take_call(bool device)
{
    return device ? "burst_gpu_take(s->exec" : "burst_take(c";
}

static void emit_buffer(Emit *e, const Buffer *b)
{
    if (b->at >= 0 && !emit_scratch_moves(e) && !e->draft->program->library)
        emit_in_scratch(e, b);
    else if (b->at >= 0)
        return;
    else if (b->array)
        for (int i = 0; i < b->copies; i++)
            emit_take(e, b->name, arena_printf(e->arena, "[%d]", i), b->type, take_call(b->device),
                      bytes_of(e, b));
    else if (b->type)
        emit_take(e, b->name, "", b->type, take_call(b->device), bytes_of(e, b));
}

static void emit_live(Emit *e)
{
    const int ops = attentions_operations(&e->draft->attention);
    text_printf(e->out, "    for (int m = 0; m < PLAN_MASKS; m++) {\n"
                        "        BURST_TRY(burst_live_make(c, %d, &s->live[m][0]));\n"
                        "        BURST_TRY(burst_live_make(c, %d, &s->live[m][1]));\n    }\n", ops, ops);
    if (e->draft->choice.ranges)
        text_add(e->out, "    for (int i = 0; i < 2 * PLAN_MASKS; i++)\n        "
                         "BURST_TRY(burst_live_make_ranges(c, &s->live[i / 2][i % 2]));\n");
}

/* Host memory of the step's values; a run that only evaluates may need none. */
static void emit_staged(Emit *e)
{
    const bool none = e->alone.flow && e->alone.flow->host == e->alone.flow->host_state;
    if (!emit_stages(e))
        return;
    if (none)
        emit_line(e, "if (!s->alone) {");
    emit_take(e, "host", "", "char", device(e) ? "burst_gpu_take_host(s->exec" : "burst_take(c",
              e->alone.flow && !none ? "s->alone ? PLAN_ALONE_HOST_BYTES : PLAN_HOST_ARENA_BYTES"
                                     : "PLAN_HOST_ARENA_BYTES");
    if (none)
        emit_line(e, "}");
}

/* Allocates each buffer, and sets the optimizer's shards. */
static void emit_alloc(Emit *e)
{
    emit_line(e, "static int plan_alloc(BurstCtx *c, PlanState *s)");
    emit_line(e, "{");
    emit_take(e, "arena", "", "char", take_call(device(e)),
              e->alone.flow ? "s->alone ? PLAN_ALONE_BYTES : PLAN_ARENA_BYTES" : "PLAN_ARENA_BYTES");
    emit_staged(e);
    for (int i = 0; i < e->draft->memory.n; i++)
        emit_buffer(e, &e->draft->memory.at[i]);
    if (emit_scratch_moves(e))
        emit_line(e, "plan_scratch(s, 0);");
    emit_shards(e);
    emit_live(e);
    emit_line(e, "return BURST_OK;");
    emit_line(e, "}");
    emit_line(e, "%s", "");
}

/* ---- data for the runtime ---- */

/* Where files have the tensor: in the unit of a whole layer. */
static int64_t whole_offset(const Unit *whole, const UnitTensor *t)
{
    int64_t at = 0;
    for (const UnitTensor *x = whole->tensor; strcmp(x->name, t->name) != 0; x++)
        at += x->rows * x->cols * x->parts;
    return at;
}

static void emit_unit(Emit *e, const Unit *u, const Unit *whole, const char *name)
{
    static const char *const first[] = {
#define X(id, init_std) #init_std,
        FIRSTS(X)
#undef X
    };
    static const char *const split[2][3] = {
        {[SPLIT_NONE] = ", BURST_WHOLE", [SPLIT_ROWS] = ", BURST_BY_ROWS", [SPLIT_COLS] = ", BURST_BY_COLS"},
        {[SPLIT_NONE] = ", BURST_WHOLE",
         [SPLIT_ROWS] = ", BURST_BY_KEY_ROWS",
         [SPLIT_COLS] = ", BURST_BY_KEY_COLS"}};
    const int tensor = e->draft->shape.tensor;
    text_printf(e->out, "static const BurstTensor plan_%s[] = {\n", name);
    for (int i = 0; i < u->tensors; i++) {
        const UnitTensor *t = &u->tensor[i];
        const int64_t rows = t->rows * (t->split == SPLIT_ROWS ? t->parts : 1),
                      cols = t->cols * (t->split == SPLIT_COLS ? t->parts : 1);
        text_printf(e->out, "    {\"%s\", %" PRId64 ", %" PRId64 ", INT64_C(%" PRId64 "), %s%s},\n", t->name,
                    rows, cols, whole_offset(whole, t), first[t->first],
                    t->sections ? ", BURST_BY_SECTIONS" : split[t->parts < tensor][t->split]);
    }
    text_add(e->out, "};\n");
}

static int64_t whole_elements(const Unit *u)
{
    int64_t all = 0;
    for (int i = 0; i < u->tensors; i++)
        all += u->tensor[i].rows * u->tensor[i].cols * u->tensor[i].parts;
    return all;
}

/* The table of a row of Units. kind: of the layers, if it is of experts. */
static const char *tensors_text(Emit *e, int row, int kind)
{
    const Units *all = &e->draft->units;
    const char *of_kind = kind < 0 ? "" : model_kind_name(&e->draft->program->model, kind);
    if (row == 0)
        return "embedding";
    if (row == all->head)
        return "head_tensors";
    if (row > all->head)
        return arena_printf(e->arena, "%s_tensors%s%s", all->at[row].name, *of_kind ? "_" : "", of_kind);
    return all->head > 2 ? arena_printf(e->arena, "%s_tensors", all->at[row].name) : "layer_tensors";
}

/* Of a unit: the kind of its layer; -1: it is of none. */
static int kind_of_unit(const Model *m, int unit)
{
    if (unit == 0 || unit == m->layers + 1)
        return -1;
    return model_kind(m, unit < m->layers + 1 ? unit - 1 : (unit - m->layers - 2) % m->layers);
}

static int count_units(const Emit *e)
{
    return e->draft->program->model.layers * (1 + e->draft->units.groups) + 2;
}

/* The unit after those that are one row with this one: neighbours of one kind. */
static int next_row(const Emit *e, int unit)
{
    const Model *m = &e->draft->program->model;
    const Unit *row = units_of(&e->draft->units, m, unit);
    int next = unit + 1;
    while (next < count_units(e) && units_of(&e->draft->units, m, next) == row &&
           kind_of_unit(m, next) == kind_of_unit(m, unit))
        next++;
    return next;
}

static int unit_rows(const Emit *e)
{
    int rows = 0;
    for (int unit = 0; unit < count_units(e); unit = next_row(e, unit))
        rows++;
    return rows;
}

/* Tensors of each group of experts, for each kind of layers that has them. */
static void emit_groups(Emit *e, const Units *whole)
{
    const Units *all = &e->draft->units;
    const Model *m = &e->draft->program->model;
    for (int row = all->head + 1; row <= all->head + all->groups; row++)
        for (int k = 0; k < model_kinds(m); k++)
            if (model_with_kind(m, k).experts.experts)
                emit_unit(e, &all->at[row], &whole->at[units_layer(k)], tensors_text(e, row, k));
}

/* Each row of units: elements that all ranks have, and each tensor's slice. */
static void emit_slices(Emit *e)
{
    const Model *m = &e->draft->program->model;
    Text rows = {0};
    for (int unit = 0, n = 0; unit < count_units(e); unit = next_row(e, unit), n++) {
        const Unit *u = units_of(&e->draft->units, m, unit);
        text_printf(e->out, "static const int64_t plan_slices_%d[] = {", n);
        for (int i = 0; i < u->tensors; i++)
            text_printf(e->out, "%s%" PRId64, i ? ", " : "", u->tensor[i].slice);
        text_add(e->out, "};\n");
        text_printf(&rows, "    {INT64_C(%" PRId64 "), plan_slices_%d},\n", u->whole, n);
    }
    text_add(e->out, "static const BurstSlices plan_slices[] = {\n");
    text_add_n(e->out, rows.at, rows.n);
    text_add(e->out, "};\n");
    text_free(&rows);
}

static void emit_units(Emit *e)
{
    const Units *all = &e->draft->units;
    const Model *m = &e->draft->program->model;
    Shape shape = e->draft->shape;
    shape.expert_groups = 0;
    const Units whole = units_make(e->arena, e->draft->program, &shape, e->draft->choice.within, false);
    for (int i = 0; i <= all->head; i++)
        emit_unit(e, &all->at[i], &whole.at[i], tensors_text(e, i, 0));
    emit_groups(e, &whole);
    text_add(e->out, "static const BurstUnit plan_units[] = {\n");
    for (int unit = 0, next; unit < count_units(e); unit = next) {
        const Unit *u = units_of(all, m, unit);
        const char *table = tensors_text(e, (int)(u - all->at), kind_of_unit(m, unit));
        next = next_row(e, unit);
        text_printf(e->out, "    {\"%s\", INT64_C(%" PRId64 "), INT64_C(%" PRId64 "), %d, %s%s, %d},\n",
                    u->full_name, whole_elements(u), u->shard, u->tensors, u->tensors ? "plan_" : "NULL",
                    u->tensors ? table : "", next - unit);
    }
    text_add(e->out, "};\n");
    if (all->slices)
        emit_slices(e);
    if (!e->draft->program->table_count)
        return;
    text_add(e->out, "static const char *const plan_tables[] = {");
    for (int i = 0; i < e->draft->program->table_count; i++)
        text_printf(e->out, "%s\"%s\"", i ? ", " : "", e->draft->program->tables[i].name);
    text_add(e->out, "};\n");
}

/* One field of burst_plan: a designated initialiser in C, an assignment in C++17, which has none. */
static void add_field(Emit *e, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void add_field(Emit *e, const char *name, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    text_printf(e->out, language(e)->field, name);
    text_vprintf(e->out, fmt, ap);
    text_add(e->out, language(e)->field_end);
    va_end(ap);
}

static const char *quoted(Emit *e, const char *text)
{
    if (!text)
        return "NULL";
    Text t = {0};
    mask_quote(text, &t);
    return text_keep(e->arena, &t);
}

static void add_train_files(Emit *e, const Train *t)
{
    if (t->data_files) {
        add_field(e, "train.data", "plan_data");
        add_field(e, "train.data_files", "%d", t->data_files);
    }
    if (t->packed)
        add_field(e, "train.packed", "1");
    if (t->evaluate) {
        add_field(e, "train.evaluate", "&plan_evaluation");
        add_field(e, "train.evaluate_every", "%" PRId64, t->evaluate_every);
        add_field(e, "train.evaluate_steps", "%" PRId64, t->evaluate_steps);
    }
}

static void add_train_values(Emit *e, const Program *p)
{
    const Train *t = &p->train;
    const struct { const char *name; const char *value;
    } path[] = {{"train.checkpoint", t->checkpoint},
                {"train.weights", t->weights},
                {"train.export_dir", t->export_dir}};
    for (int i = 0; i < countof(path); i++)
        add_field(e, path[i].name, "%s", quoted(e, path[i].value));
    const struct { const char *name; int64_t value;
    } whole[] = {{"train.separator", t->separator},
                 {"train.steps", t->steps},
                 {"train.batch", t->batch},
                 {"train.seed", t->seed},
                 {"train.checkpoint_every", t->checkpoint_every},
                 {"train.warmup", t->warmup},
                 {"train.schedule", t->schedule},
                 {"train.export_dtype", t->export_f32 ? BURST_F32 : BURST_BF16},
                 {"tied", p->model.tied}};
    for (int i = 0; i < countof(whole); i++)
        add_field(e, whole[i].name, "%" PRId64, whole[i].value);
    const struct { const char *name; double value;
    } real[] = {{"train.lr", t->lr},       {"train.lr_end", t->lr_end}, {"train.beta1", t->beta1},
                {"train.beta2", t->beta2}, {"train.eps", t->adam_eps},  {"train.decay", t->decay},
                {"train.clip", t->clip}};
    for (int i = 0; i < countof(real); i++)
        add_field(e, real[i].name, "%s", real_text(e, real[i].value));
    add_train_files(e, t);
    if (t->predict > 1)
        add_field(e, "train.predict", "%" PRId64, t->predict);
    if (t->decay_steps)
        add_field(e, "train.decay_steps", "%" PRId64, t->decay_steps);
    if (t->optimizer) {
        add_field(e, "train.optimizer", "%d", t->optimizer);
        add_field(e, "train.momentum", "%s", real_text(e, t->momentum));
    }
}

static void add_model_values(Emit *e, const Program *p)
{
    const char *parts = e->draft->choice.tensor ? " * PLAN_TENSOR" : "";
    if (p->model.family)
        add_field(e, "family", "\"%s\"", p->model.family);
    if (p->model.ropes > 1) {
        add_field(e, "ropes", "plan_ropes");
        add_field(e, "layer_rope", "plan_layer_rope");
    }
    if (p->model.latent) {
        add_field(e, "layer.latent", "1");
        add_field(e, "value_dim", "%d", p->model.value_dim);
        add_field(e, "latent", "PLAN_LATENT");
        add_field(e, "query_latent", "%d", p->model.query_latent);
    }
    if (p->model.experts.experts)
        add_field(e, "layer.experts", "%d", p->model.layer.experts),
            add_field(e, "experts", "PLAN_EXPERTS_OF_LAYER(PLAN_EXPERT_WIDTH%s%s)", parts,
                      e->draft->units.groups ? ", PLAN_EXPERTS, 0, 0" : "");
    if (e->draft->units.groups)
        add_field(e, "expert_groups", "PLAN_EXPERT_GROUPS");
    if (p->model.indexer.heads) {
        const BurstIndexer *x = &p->model.indexer;
        add_field(e, "layer.indexer", "1");
        add_field(e, "indexer.heads", "PLAN_INDEX_HEADS");
        add_field(e, "indexer.kv_heads", "PLAN_INDEX_KV_HEADS");
        add_field(e, "indexer.dim", "PLAN_INDEX_DIM");
        add_field(e, "indexer.rotary", "%d", x->rotary);
        add_field(e, "indexer.norm", "%d", x->norm);
    }
    if (p->model.scan.columns)
        add_field(e, "layer.scan", "1");
    if (p->model.layer.single)
        add_field(e, "layer.single", "1");
    if (p->model.layer.scan_norms)
        add_field(e, "layer.scan_norms", "%d", p->model.layer.scan_norms);
    if (p->model.layer.scan_eps)
        add_field(e, "layer.scan_eps", "1");
    if (p->model.layer.scan_plain)
        add_field(e, "layer.scan_plain", "1");
    if (p->model.layer.scan_attends)
        add_field(e, "layer.scan_attends", "1");
    if (p->model.scan.heads)
        add_field(e, "scan", "PLAN_SCAN_OF(%s)", e->draft->choice.tensor ? "PLAN_TENSOR" : "1");
    if (p->model.softcap > 0)
        add_field(e, "softcap", "PLAN_SOFTCAP");
#define X(member, name, ...) \
    if (p->model.layer.member) \
        add_field(e, "layer." #member, "%d", p->model.layer.member);
    BURST_LAYER_FIELDS(X)
#undef X
    for (int i = 0; i < BURST_SCALES; i++)
        if (p->model.scale[i] > 0)
            add_field(e, scales[i].field, "%s", scales[i].constant);
}

/* 0: none */
static void add_predictions(Emit *e, bool timed)
{
    add_field(e, "predicted_seconds", "%.6g",
              timed && isfinite(e->found->cost.step) ? e->found->cost.step : 0.0);
    add_field(e, "flops", "%.10g", e->found->cost.flops);
    add_field(e, "peak_flops", "%.6g", timed ? e->found->cost.peak : 0.0); /* 0: unknown */
    add_field(e, "matmul_flops", "%.6g", timed ? e->found->cost.matmul : 0.0);
    add_field(e, "predicted_memory", "%zu",
              device(e) ? e->draft->memory.total + e->draft->memory.beside : e->draft->memory.host);
    if (timed)
        add_field(e, "predicted_rows", "plan_predicted_rows");
    if (e->forecast)
        add_field(e, "forecast", "&plan_forecast");
}

static void add_plan_values(Emit *e)
{
    const Program *p = e->draft->program;
    if (p->table_count) {
        add_field(e, "tables", "plan_tables");
        add_field(e, "table_count", "%d", p->table_count);
    }
    add_train_values(e, p);
    add_model_values(e, p);
    add_predictions(e, cost_is_of_program(p));
    add_field(e, "channel_names", "plan_channel_names");
    add_field(e, "channels", "PLAN_CHANNELS");
    add_field(e, "link_bandwidth", "%.10g", p->cluster.link_bandwidth);
    add_field(e, "nic_bandwidth", "%.10g", cluster_slowest_nic(&p->cluster));
    add_field(e, "on_gpu", device(e) ? "true" : "false");
    add_field(e, "arena_bytes", "%zu", e->draft->memory.host);
    if (device(e) && e->draft->memory.offloaded)
        add_field(e, "offloaded_bytes", "%zu", e->draft->memory.offloaded);
    const bool mirror = device(e) && !e->draft->choice.optimizer; /* the whole state */
    if (e->alone.flow) {
        add_field(e, "alone.arena_bytes", "%zu", e->alone.host);
        add_field(e, "alone.predicted_memory", "%zu",
                  device(e) ? e->alone.total + e->alone.beside : e->alone.host);
        add_field(e, "alone.offloaded_bytes", "%zu", device(e) ? e->alone.offloaded : 0);
    }
    add_field(e, "places_gradients", mirror ? "false" : "true");
}

static void add_plan_constants(Emit *e)
{
    const struct {
        const char *name, *value;
        bool split, heads, keys;
    } row[] = {{"abi", "BURST_RT_ABI"},
               {"world", "PLAN_WORLD"},
               {"data", "PLAN_DATA"},
               {"group", "PLAN_GROUP"},
               {"nodes", "PLAN_NODES"},
               {"sequence", "PLAN_SEQUENCE"},
               {"max_tokens", "PLAN_TOKENS"},
               {"layers", "PLAN_LAYERS"},
               {"hidden", "PLAN_HIDDEN"},
               {"heads", "PLAN_HEADS", true, true},
               {"kv_heads", "PLAN_KV_HEADS", true, true, true},
               {"head_dim", "PLAN_HEAD_DIM"},
               {"ffn", "PLAN_FFN", true},
               {"vocab", "PLAN_VOCAB"},
               {"norm_eps", "PLAN_NORM_EPS"},
               {"rope", "PLAN_ROPE"},
               {"masks", "plan_masks"},
               {"layer_mask", "plan_layer_mask"},
               {"units", "plan_units"},
               {"unit_rows", arena_printf(e->arena, "%d", unit_rows(e))},
               {"tokens_of", "plan_tokens"},
               {"position", "plan_position"},
               {"chunk_of", "plan_chunk_of"},
               {"state_bytes", "sizeof(PlanState)"},
               {"start", "plan_start"},
               {"save", "plan_save"}},
      train[] = {{"step", "plan_step"},
                 {"evaluate", "plan_evaluate"},
                 {"sequence_step", "plan_sequence_step"},
                 {"attention_forward", "plan_attention_forward"},
                 {"attention_backward", "plan_attention_backward"}},
      infer[] = {{"lengths", "plan_lengths"},
                 {"length_count", "(int)(sizeof plan_lengths / sizeof *plan_lengths)"},
                 {"new_tokens", "PLAN_NEW_TOKENS + 1"},
                 {"prompt", "plan_prompt"},
                 {"token", "plan_token"},
                 {"logits", "plan_logits"}};
    const bool infers = e->draft->program->infer.lengths > 0;
    for (int i = 0; i < countof(row); i++)
        add_field(e, row[i].name, "%s%s%s",
                  row[i].heads && e->draft->shape.head_chunks > 1 ? all_heads_text(row[i].keys)
                                                                  : row[i].value,
                  row[i].split && e->draft->choice.tensor ? " * PLAN_TENSOR" : "",
                  row[i].keys && e->draft->shape.key_copies > 1 ? " / PLAN_KEY_COPIES" : "");
    for (int i = 0; i < countof(train) && !infers; i++)
        add_field(e, train[i].name, "%s", train[i].value);
    for (int i = 0; i < countof(infer) && infers; i++)
        add_field(e, infer[i].name, "%s", infer[i].value);
    if (e->draft->units.slices)
        add_field(e, "slices", "plan_slices");
    if (e->draft->choice.within)
        add_field(e, "shard_ranks", "PLAN_SHARD_RANKS");
    if (e->draft->choice.tensor)
        add_field(e, "tensor", "PLAN_TENSOR");
    if (e->draft->choice.partition == PART_BALANCED)
        add_field(e, "balanced", "PLAN_BALANCED");
}

/* FNV-1a of the preceding text without the header and its paths, so that programs compiled in different
 * folders have the same plan. */
static uint64_t hash_emitted(const Emit *e)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = e->hashed_from; i < e->out->n; i++)
        h = (h ^ (unsigned char)e->out->at[i]) * UINT64_C(0x100000001b3);
    return h;
}

static void emit_data_file(Emit *e, const BurstDataFile *f)
{
    text_printf(e->out, "{%s, %d, %s}", quoted(e, f->path), f->raw, real_text(e, f->share));
}

static void emit_train_files(Emit *e, const Train *t)
{
    if (t->data_files)
        text_add(e->out, "/* path, bytes per token if the file has no header, share of the sequences */\n"
                         "static const BurstDataFile plan_data[] = {");
    for (int i = 0; i < t->data_files; i++) {
        text_add(e->out, i ? ",\n                                           " : "");
        emit_data_file(e, &t->data[i]);
    }
    text_add(e->out, t->data_files ? "};\n" : "");
    if (!t->evaluate)
        return;
    text_add(e->out, "static const BurstDataFile plan_evaluation = ");
    emit_data_file(e, t->evaluate);
    text_add(e->out, ";\n");
}

static void emit_plan(Emit *e)
{
    const Program *p = e->draft->program;
    emit_train_files(e, &p->train);
    text_printf(e->out, "\n%s", language(e)->values);
    add_plan_constants(e);
    add_plan_values(e);
    add_field(e, "text_hash", "UINT64_C(0x%016" PRIx64 ")", hash_emitted(e));
    add_field(e, "source", "%s", quoted(e, arena_printf(e->arena, "%s %s", p->topo_path, p->model_path)));
    text_add(e->out, language(e)->values_end);
    text_add(
        e->out,
        "\n#ifndef PLAN_NO_MAIN /* tests link this file as a library */\n"
        "int main(int argc, char **argv)\n{\n    return burst_main(&burst_plan, argc, argv);\n}\n#endif\n");
}

/* ---- masks ---- */

/* The mask of each layer, and the text of each mask. */
static void emit_layer_masks(Emit *e)
{
    const Program *p = e->draft->program;
    for (int m = 0; m < p->mask_count; m++) {
        text_printf(e->out, m ? " * mask %d: " : "\n/* mask %d: ", m);
        mask_comment(p->masks[m].text, e->out);
        text_add(e->out, m == p->mask_count - 1 ? " */\n" : "\n");
    }
    if (p->library)
        return;
    text_add(e->out, "static const int plan_layer_mask[PLAN_LAYERS] = {");
    for (int l = 0; l < p->model.layers; l++)
        text_printf(e->out, "%s%d,", l % 24 ? " " : "\n    ", p->layer_mask[l]);
    text_add(e->out, "\n};\n");
}

/* A selection, after the mask of the pairs that it may choose among. */
static void emit_selection(Emit *e, int i)
{
    static const char *const queries[] =
        {
#define X(id, name) "BURST_SELECT_" #id,
            BURST_SELECT_QUERIES(X)},
                             *const keys[] = {BURST_SELECT_KEYS(X)},
                             *const heads[] = {BURST_SELECT_HEADS(X)
#undef X
                             };
    const Program *p = e->draft->program;
    const Selection *s = &p->selections[i];
    const int open = p->mask_count + i;
    const Program with = mask_with_open(e->arena, p, i);
    mask_emit_c(&with, open, e->out);
    text_printf(e->out,
                "static const BurstSelection plan_selection%d = {\n    .top = %d,\n    .query = %s,\n"
                "    .key = %s,\n    .heads = %s,\n    .block = %" PRId64 ",\n    .queries = %" PRId64 ",\n",
                i, (int)s->top, queries[s->query], keys[s->key], heads[s->heads], s->block, s->queries);
    text_printf(e->out,
                "    .noncausal = %s,\n    .indexer = %s,\n    .documents = %d,\n    .by_position = %s,\n"
                "    .open = &plan_mask%d,\n};\n\n",
                s->noncausal ? "true" : "false", s->indexer ? "true" : "false", s->documents,
                s->by_position ? "true" : "false", open);
}

/* For the host, which finds live pairs and transfers; a device's kernels have their own. */
static void emit_host_masks(Emit *e)
{
    const Program *p = e->draft->program;
    if (device(e))
        text_add(e->out, "/* The masks on the host, which finds live pairs and transfers; the kernels have "
                         "their own. */\n"
                         "#pragma push_macro(\"BURST_MASK_DATA\")\n#undef BURST_MASK_DATA\n#define "
                         "BURST_MASK_DATA static const\n"
                         "namespace plan_host {\n");
    for (int i = 0; i < p->selection_count; i++)
        emit_selection(e, i);
    for (int m = 0; m < p->mask_count; m++)
        mask_emit_c(p, m, e->out);
    if (device(e))
        text_add(e->out, "} /* namespace plan_host */\n#pragma pop_macro(\"BURST_MASK_DATA\")\n\n");
    text_add(e->out, "const BurstMask *const plan_masks[PLAN_MASKS] = {");
    for (int m = 0; m < p->mask_count; m++)
        text_printf(e->out, "%s&%splan_mask%d", m ? ", " : "", language(e)->host_masks, m);
    text_add(e->out, "};\n\n");
}

/* The masks for kernels, the kernels, and their launches. */
static void emit_kernels(Emit *e)
{
    const Program *p = e->draft->program;
    const Kernels k = kernels_of(p);
    for (int m = 0; m < p->mask_count; m++)
        mask_emit_cuda(p, m, e->out);
    for (int i = 0; i < p->selection_count; i++) {
        const Program with = mask_with_open(e->arena, p, i);
        mask_emit_cuda(&with, p->mask_count + i, e->out);
    }
    text_add(e->out, "#define PLAN_KERNEL_MASKS ");
    for (int m = 0; m < p->mask_count; m++)
        text_printf(e->out, "%sPlanMask%d", m ? ", " : "", m);
    if (p->selection_count)
        text_add(e->out, "\n/* what the selection of each may choose among; of one without, itself */\n"
                         "#define PLAN_OPEN_MASKS ");
    for (int m = 0; m < p->mask_count && p->selection_count; m++) {
        const int selection = p->masks[m].selection;
        text_printf(e->out, "%sPlanMask%d", m ? ", " : "", selection ? p->mask_count + selection - 1 : m);
    }
    text_printf(e->out, "\n#include \"%s\"\n", k.forward);
    if (!p->infer.lengths)
        text_printf(e->out, "#include \"%s\"\n", k.backward);
    text_add(e->out, "#include \"burst_pairs_cuda.cuh\"\n\n");
}

/* ---- the program ---- */

static void emit_header(Emit *e, const char *command)
{
    const bool library = e->draft->program->library;
    text_add(e->out, "/* Generated by burstc " BURSTC_VERSION
                     ". Edit the .topo and .burst inputs and rerun the command.\n * command: ");
    mask_comment(command, e->out);
    text_add(e->out, "\n");
    text_printf(e->out, " * %s\n", library ? library_layout(e) : choice_text(e->arena, &e->draft->choice));
    if (library)
        emit_library_sizes(e);
    else
        emit_predicted(e);
    text_add(e->out,
             " * The same command with --print-build prints how to compile it. Text that all plans share is "
             "in the headers.\n */\n");
    if (device(e))
        kernels_define(e->draft->program, e->out);
    if (library)
        text_add(e->out, "#define PLAN_LIBRARY 1 /* only attention, for many batches */\n");
    text_printf(e->out, "#include \"%s\"\n\n", language(e)->step);
    text_printf(
        e->out,
        "#if BURST_RT_ABI != %d\n#error this program was generated for another runtime: regenerate it "
        "with burstc\n#endif\n\n",
        BURST_RT_ABI);
}

/* The plan: attention of a layer, the layers, one sequence. */
static void emit_plan_of_step(Emit *e)
{
    text_printf(e->out, "#include \"%s\"\n\n/* ---- attention of one layer ---- */\n\n",
                language(e)->attention);
    emit_attentions(e);
    text_add(e->out, "/* ---- a step ---- */\n");
    emit_tensors(e);
    emit_places(e);
    emit_layer_masks(e);
    emit_layer_kinds(e);
    emit_key_chunks(e);
    text_printf(e->out, "\n#include \"%s\"\n\n", language(e)->layer);
    if (emit_scratch_moves(e))
        emit_scratch(e);
    emit_step_blocks(e);
    emit_step_sequence(e);
}

static void emit_pairs(Emit *e)
{
    text_add(e->out, "/* ---- a rank's tokens and pairs ---- */\n\n");
    placement_emit_c(e->arena, &e->draft->choice, e->out);
    partition_emit_c(e->draft->partition,
                     e->draft->program->infer.lengths ? "plan_lengths[plan_length]" : NULL, e->out);
    emit_host_masks(e);
    if (device(e))
        emit_kernels(e);
    emit_traces(e);
}

static void emit_rest(Emit *e)
{
    emit_pairs(e);
    text_add(e->out, "/* ---- memory, and data for the runtime ---- */\n\n");
    emit_alloc(e);
    emit_units(e);
    emit_watching(e);
    emit_plan(e);
    emit_forecast(e);
}

/* The common begin of a program and a library, up to attention. */
static Emit emit_begin(Arena *a, const Found *f, const char *command, Text *out)
{
    const Draft *draft = plan_draft(f->plan);
    Emit e = {.arena = a, .found = f, .draft = draft, .out = out, .alone = memory_alone(a, draft)};
    e.splits = draft->program->infer.lengths && cost_token_splits(draft);
    emit_header(&e, command);
    e.hashed_from = out->n;
    emit_group(&e);
    emit_sizes(&e);
    emit_pool_names(&e);
    emit_buffers(&e);
    text_add(out, "\n");
    return e;
}

void emit_program(Arena *a, const Found *f, const char *command, Text *out)
{
    Emit e = emit_begin(a, f, command, out);
    emit_plan_of_step(&e);
    emit_rest(&e);
}

/* ---- a library ---- */

static void emit_names(Emit *e, const char *what, int n, const char *const *name)
{
    text_printf(e->out, "static const char *const plan_%s[] = {", what);
    for (int i = 0; i < n; i++)
        text_printf(e->out, "%s%s", i ? ", " : "", quoted(e, name[i]));
    text_add(e->out, n ? "};\n" : "NULL};\n");
}

static void emit_library_names(Emit *e)
{
    const Program *p = e->draft->program;
    const char **mask = NEW_ARRAY(e->arena, const char *, p->mask_count + 1),
               **table = NEW_ARRAY(e->arena, const char *, p->table_count + 1);
    for (int i = 0; i < p->mask_count; i++)
        mask[i] = p->masks[i].text;
    for (int i = 0; i < p->table_count; i++)
        table[i] = p->tables[i].name;
    emit_names(e, "mask_names", p->mask_count, mask);
    emit_names(e, "table_names", p->table_count, table);
}

/* Arrays of a batch on the device, one after the other. */
static void emit_batch_memory(Emit *e)
{
    size_t at = 0;
    emit_line(e, "static void plan_alloc_device(PlanState *s, char *at)");
    emit_line(e, "{");
    for (int i = 0; i < e->draft->memory.n; i++) {
        const Buffer *b = &e->draft->memory.at[i];
        if (!b->device || b->at >= 0)
            continue;
        emit_line(e, "s->buffer.%s = (%s *)(void *)(at + %zu);", b->name, b->type, at);
        at += b->bytes;
    }
    emit_line(e, "}");
    emit_line(e, "%s", "");
}

/* Arrays of a batch, and a call's buffers. */
static void emit_library_memory(Emit *e)
{
    emit_line(e, "static int plan_alloc(BurstCtx *c, PlanState *s)");
    emit_line(e, "{");
    for (int i = 0; i < e->draft->memory.n; i++)
        if (!e->draft->memory.at[i].device)
            emit_buffer(e, &e->draft->memory.at[i]);
    emit_live(e);
    emit_line(e, "return BURST_OK;");
    emit_line(e, "}");
    emit_line(e, "%s", "");
    if (device(e))
        emit_batch_memory(e);
    emit_line(e, "static void plan_scratch(void *state, char *at)");
    emit_line(e, "{");
    emit_line(e, "PlanState *s = (PlanState *)state;");
    for (int i = 0; i < e->draft->memory.n; i++)
        if (e->draft->memory.at[i].at >= 0)
            emit_in_scratch(e, &e->draft->memory.at[i]);
    emit_line(e, "}");
    emit_line(e, "%s", "");
}

void emit_library(Arena *a, const Found *f, const char *command, Text *out)
{
    Emit e = emit_begin(a, f, command, out);
    text_printf(out, "#include \"%s\"\n\n", language(&e)->attention);
    emit_attentions(&e);
    emit_layer_masks(&e);
    text_printf(out, "\n#include \"%s\"\n\n", language(&e)->library);
    emit_pairs(&e);
    text_add(out, "/* ---- memory, and data for the runtime ---- */\n\n");
    emit_library_memory(&e);
    emit_library_names(&e);
    emit_library_table(&e, quoted(&e, library_layout(&e)), hash_emitted(&e));
}
