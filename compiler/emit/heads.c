/* emit/heads.c: widths of operands, with all heads or those of a loop's chunk, and where the chunk begins
 * (burst_head_chunks.h). */
#include "emit/emit_step.h"

#include <inttypes.h>

/* Tokens of loops over chunks, and of attention. */
const char *all_text(const Printer *p) { return p->step->shape.tensor > 1 ? "all" : "n"; }

const char *all_heads_text(bool keys)
{
    return keys ? "PLAN_ALL_KV_HEADS" : "PLAN_ALL_HEADS";
}

/* Number of heads: in a loop over chunks of them the chunk's, otherwise that of all chunks. */
static const char *heads_text(const Printer *p, const Op *o, bool keys)
{
    if (p->step->shape.head_chunks < 2)
        return keys ? "PLAN_KV_HEADS" : "PLAN_HEADS";
    if (!op_in_loop(p->step, o, LOOP_HEADS))
        return all_heads_text(keys);
    return keys ? "s->heads.keys" : "s->heads.queries";
}

static bool is_of_keys(Dim d) { return dim_of_keys(d) || d == DIM_KEY_HEADS || d == DIM_OWN; }

const char *head_width_text(Dim d)
{
    switch (d) {
    case DIM_QUERY:
    case DIM_KEY: return " * PLAN_HEAD_DIM";
    case DIM_OUTPUT:
    case DIM_VALUE: return " * PLAN_VALUE_DIM";
    case DIM_OWN: return " * (PLAN_HEAD_DIM - PLAN_SHARED)";
    case DIM_INDEX_QUERY:
    case DIM_INDEX_KEY: return " * PLAN_INDEX_DIM";
    default: return "";
    }
}

/* At most, of experts. */
static const char *rows_of_token(const Printer *p)
{
    return p->step->units.groups
               ? arena_printf(p->emit->arena, "%d", expert_rows(&p->step->program->model, &p->step->shape))
               : "PLAN_TOP";
}

const char *width_text(const Printer *p, const Op *o, const Value *v, bool heads)
{
    const Dim d = v->dim[0] == DIM_HEADS ? DIM_HEADS : v->dim[1]; /* [heads][tokens] */
    const char *count = heads_text(p, o, is_of_keys(d));
    switch (d) {
    case DIM_ONE:
    case DIM_SHARED_GATE: return "1";
    case DIM_HIDDEN: return "PLAN_HIDDEN";
    case DIM_HEADS:
    case DIM_KEY_HEADS: return count;
    case DIM_QUERY:
    case DIM_KEY:
    case DIM_OUTPUT:
    case DIM_VALUE:
    case DIM_OWN: return heads ? count : arena_printf(p->emit->arena, "%s%s", count, head_width_text(d));
    case DIM_EXPERTS: return "PLAN_EXPERTS";
    case DIM_TOP:
    case DIM_SLOTS: return "PLAN_TOP";
    case DIM_TOP_ROWS: return rows_of_token(p);
    case DIM_TOP_PAIR: return arena_printf(p->emit->arena, "2 * %s * PLAN_EXPERT_WIDTH", rows_of_token(p));
    case DIM_TOP_WIDTH: return arena_printf(p->emit->arena, "%s * PLAN_EXPERT_WIDTH", rows_of_token(p));
    case DIM_TOP_HIDDEN: return arena_printf(p->emit->arena, "%s * PLAN_HIDDEN", rows_of_token(p));
    case DIM_SHARED_FFN:
    case DIM_SHARED_PAIR: return "PLAN_SHARED_FFN";
    case DIM_SCAN_COLUMNS: return "PLAN_SCAN_COLUMNS";
    case DIM_SCAN_VALUES: return "PLAN_SCAN_HEADS * PLAN_SCAN_VALUE_DIM";
    case DIM_SCAN_GATES: return "PLAN_SCAN_GATES";
    case DIM_SCAN_HEADS: return "PLAN_SCAN_HEADS";
    case DIM_SCAN_GROUPS:
        return p->step->program->model.scan.read ? "PLAN_SCAN_HEADS" : "PLAN_SCAN_KEY_HEADS";
    case DIM_SHARED: return "PLAN_SHARED";
    case DIM_LATENT: return "PLAN_LATENT";
    case DIM_QUERY_LATENT: return "PLAN_QUERY_LATENT";
    case DIM_INDEX_HEADS: return "PLAN_INDEX_HEADS";
    case DIM_INDEX_KEY_HEADS: return "PLAN_INDEX_KV_HEADS";
    case DIM_INDEX_QUERY: return heads ? "PLAN_INDEX_HEADS" : "PLAN_INDEX_HEADS * PLAN_INDEX_DIM";
    case DIM_INDEX_KEY: return heads ? "PLAN_INDEX_KV_HEADS" : "PLAN_INDEX_KV_HEADS * PLAN_INDEX_DIM";
    case DIM_INDEX: return "PLAN_INDEX_DIM";
    default: return "PLAN_FFN";
    }
}

/* The begin of the loop's chunk of heads in a value with all chunks' heads. */
const char *heads_begin_text(const Printer *p, const Value *v)
{
    return arena_printf(p->emit->arena, "s->heads.first_%s * %s%s", is_of_keys(v->dim[1]) ? "key" : "query",
                        all_text(p), head_width_text(v->dim[1]));
}

/* Elements before the loop's chunk of heads, as a multiple of key heads. */
const char *heads_weight_text(const Printer *p, const UnitTensor *t)
{
    const int64_t elements = t->heads == SPLIT_ROWS ? t->rows * t->cols : t->cols;
    return arena_printf(p->emit->arena, "s->heads.first_key * INT64_C(%" PRId64 ")",
                        elements / p->step->shape.rank.kv_heads);
}

void emit_head_chunks(Emit *e)
{
    const Shape *s = &e->draft->shape;
    if (s->head_chunks > 1)
        text_printf(e->out,
                    "#define PLAN_HEAD_CHUNKS %d /* chunks of a layer's heads, computed in turn; PLAN_HEADS "
                    "and PLAN_KV_HEADS are those of %s */\n",
                    s->head_chunks, s->short_chunks ? "the largest" : "one");
    if (s->short_chunks)
        text_printf(e->out,
                    "#define PLAN_SHORT_CHUNKS %d /* the last so many have a key head less */\n",
                    s->short_chunks);
}
