/* step/scan_pieces.c: recurrent layers whose sequence several ranks share. Each rank scans its pieces
 * in place: before the convolution the last rows of each piece are sent to the rank of the next, and before
 * the scan the maps of all pieces are gathered and folded to the state before each (docs/architecture.md).
 * Both results are kept, so that recomputation exchanges nothing. */
#include "step/step.h"

static const Value values[] = {
    {.name = "scan_halo", .kind = VALUE_ACTIVATION, .dim = {DIM_HALO, DIM_SCAN_COLUMNS}, .kept = true},
    {.name = "scan_before",
     .kind = VALUE_ACTIVATION,
     .dim = {DIM_SCAN_PIECES, DIM_SCAN_STATE},
     .element = EL_FLOAT,
     .kept = true},
};

/* The operation becomes one of pieces, which reads another value, made of its inputs just before it. */
static void split_op(Step *s, Block *b, OpKind whole, OpKind of_pieces, OpKind maker, const char *value)
{
    const int at = op_first(b, whole), made = step_value(s, value);
    Op *o = &b->ops.at[at], make = op_make(maker);
    o->kind = of_pieces;
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        op_read(&make, o->read[i].value, o->read[i].next);
    op_write(&make, made, 0, false);
    op_read(o, made, 0);
    op_insert(s, b, at, make);
}

void step_pieces(Step *s)
{
    if (!s->pieces)
        return;
    /* a convolution without states has no other value than its rows */
    for (int i = 0; i < (s->program->model.scan.heads ? countof(values) : 1); i++) {
        Value v = values[i];
        v.index = INDEX_LAYER;
        v.gradient = -1;
        step_add_value(s, v);
    }
    for (int k = 0; k < step_kinds(s); k++) {
        Block *b = &s->block[BLOCK_FORWARD + k];
        if (op_in_block(b, OP_CONV))
            split_op(s, b, OP_CONV, OP_CONV_PIECES, OP_HALO, "scan_halo");
        if (op_in_block(b, OP_SCAN))
            split_op(s, b, OP_SCAN, OP_SCAN_PIECES, OP_STATES, "scan_before");
    }
}
