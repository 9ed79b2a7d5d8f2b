/* proof/pieces.c: recurrent layers whose sequence several ranks share (part of proof 1). Each position has
 * one piece, which follows the piece that ends just before it; a rank folds exactly the pieces before each of
 * its own, in order; rows before a piece arrive from the piece before it, in the order in which they are
 * sent. Every convolution and every scan of the step begins with what its pieces were sent. What is of
 * another document is left out by the positions in documents, whose zeros make a piece's map forget
 * (runtime/host/ops/scan/map.c). */
#include "proof/internal.h"

typedef struct Pieces {
    int count, most;
    BurstSequencePiece *at;
} Pieces;

static bool __attribute__((format(printf, 3, 4))) reject(Diags *d, const Draft *t, const char *fmt, ...)
{
    va_list ap;
    Text text = {0};
    va_start(ap, fmt);
    text_vprintf(&text, fmt, ap);
    va_end(ap);
    diag_error(d, t->program->model.scan_span, "proof %d (%s) fails: recurrent layers: %s", PROOF_PAIRS,
               proof_names[PROOF_PAIRS], text.at);
    text_free(&text);
    return false;
}

/* As programs find them. */
static Pieces find_pieces(Arena *a, const Partition *p)
{
    Pieces x = {.most = partition_most_runs(p)};
    x.at = NEW_ARRAY(a, BurstSequencePiece, p->ranks * x.most + 1);
    for (int rank = 0; rank < p->ranks && x.count >= 0; rank++) {
        const int first = x.count;
        int64_t row = 0;
        for (const Piece *s = p->of[rank].pieces; s < p->of[rank].pieces + p->of[rank].npieces; s++)
            for (int64_t i = 0; i < pos_piece_tokens(s) && x.count >= 0; i++)
                x.count = burst_scan_add(x.at, x.count, first, x.most, rank, row++,
                                         s->start + i / s->run * s->stride + i % s->run);
    }
    if (x.count > 0)
        burst_scan_sort(x.at, x.count);
    return x;
}

/* The pieces are the sequence from its first position to its last. */
static bool check_order(Diags *d, const Draft *t, const Pieces *x)
{
    int64_t position = 0;
    for (int i = 0; i < x->count; i++) {
        if (x->at[i].position != position)
            return reject(d, t, "piece %d begins at position %lld, and the one before it ends at %lld", i,
                          (long long)x->at[i].position, (long long)position);
        position += x->at[i].rows;
    }
    return position == t->program->sequence || reject(d, t, "pieces have %lld of %lld positions",
                                                      (long long)position, (long long)t->program->sequence);
}

/* The rows of a rank are its pieces in order, without a gap, so that ranks send and receive in the order of
 * the sequence. */
static bool check_rank(Arena *a, Diags *d, const Draft *t, const Pieces *x)
{
    int64_t *rows = NEW_ARRAY(a, int64_t, t->partition->ranks);
    int *pieces = NEW_ARRAY(a, int, t->partition->ranks);
    for (int i = 0; i < x->count; i++) {
        const BurstSequencePiece *p = &x->at[i];
        if (p->row != rows[p->chunk] || p->index != pieces[p->chunk])
            return reject(d, t, "rank %d has piece %d of the sequence before an earlier one", p->chunk, i);
        rows[p->chunk] += p->rows;
        pieces[p->chunk]++;
    }
    for (int rank = 0; rank < t->partition->ranks; rank++)
        if (rows[rank] != t->partition->of[rank].tokens || pieces[rank] > t->memory.flow->step->pieces)
            return reject(d, t, "rank %d has %d pieces with %lld of its %lld tokens, and room for %d", rank,
                          pieces[rank], (long long)rows[rank], (long long)t->partition->of[rank].tokens,
                          t->memory.flow->step->pieces);
    return true;
}

/* The rows before a piece are the last of the piece before it. */
static bool check_halos(Diags *d, const Draft *t, const Pieces *x)
{
    for (int i = 0; i < x->count; i++)
        if (x->at[i].rows < t->program->model.scan_kernel - 1)
            return reject(d, t, "piece %d has %lld rows, and the next one needs %d before it", i,
                          (long long)x->at[i].rows, t->program->model.scan_kernel - 1);
    return true;
}

/* A partition for each batch deals as many tiles to every rank, in the order of the sequence
 * (balance_positions): so a rank has at most as many pieces as tiles, none shorter. What each
 * batch's pieces are, programs find by the same functions (plan_find_pieces). */
static bool check_dealt(Diags *d, const Draft *t)
{
    const Partition *p = t->partition;
    const int64_t tile = partition_tile(t->program, p);
    const int pieces = t->memory.flow->step->pieces, halo = t->program->model.scan_kernel - 1;
    if (p->sequence != p->max_tokens * p->ranks || p->max_tokens % tile)
        return reject(d, t, "tiles of %lld tokens are not as many on each of %d ranks", (long long)tile,
                      p->ranks);
    if (pieces < p->max_tokens / tile)
        return reject(d, t, "a rank has up to %lld pieces in a batch, and room for %d",
                      (long long)(p->max_tokens / tile), pieces);
    return tile >= halo ||
           reject(d, t, "tiles have %lld rows, and the next one needs %d before it", (long long)tile, halo);
}

/* Operations that read what is before their pieces, what makes it of the same inputs, and how many these are.
 */
static const struct {
    OpKind whole, back, of_pieces, maker;
    int inputs;
} forms[] = {{OP_CONV, OP_CONV_BACK, OP_CONV_PIECES, OP_HALO, 1},
             {OP_SCAN, OP_SCAN_BACK, OP_SCAN_PIECES, OP_STATES, 3}};

/* The maker stands before it in the block, with the same inputs. */
static bool is_made(const Block *b, const Op *o, OpKind maker, int inputs)
{
    for (const Op *m = b->ops.at; m < o; m++) {
        bool same = m->kind == maker && m->write[0].value == o->read[inputs].value;
        for (int i = 0; i < inputs; i++)
            same &= m->read[i].value == o->read[i].value;
        if (same)
            return true;
    }
    return false;
}

static bool check_op(Diags *d, const Draft *t, int block, const Op *o)
{
    const Block *b = &t->memory.flow->step->block[block];
    for (int i = 0; i < countof(forms); i++) {
        if (o->kind == forms[i].whole || o->kind == forms[i].back)
            return reject(d, t, "%s begins each piece with nothing", op_name(o->kind));
        if (o->kind == forms[i].of_pieces && block < BLOCK_FORWARD + step_kinds(t->memory.flow->step) &&
            !is_made(b, o, forms[i].maker, forms[i].inputs))
            return reject(d, t, "%s reads what no %s of its inputs made", op_name(o->kind),
                          op_name(forms[i].maker));
    }
    return true;
}

static bool check_ops(Diags *d, const Draft *t)
{
    const Step *s = t->memory.flow->step;
    for (int block = 0; block < STEP_BLOCKS; block++)
        for (const Op *o = s->block[block].ops.at; o < s->block[block].ops.at + s->block[block].ops.n; o++)
            if (!check_op(d, t, block, o))
                return false;
    return true;
}

bool verify_pieces(Arena *a, Diags *d, const Draft *t)
{
    const Step *s = t->memory.flow->step;
    if (!t->program->model.scan.columns || t->choice.ranks == 1 || t->program->library)
        return true;
    const Pieces x = find_pieces(a, t->partition);
    if (x.count < 0 || !s->pieces)
        return reject(d, t, "a rank has more pieces than the step");
    if (t->partition->kind == PART_BALANCED && !check_dealt(d, t))
        return false;
    return check_order(d, t, &x) && check_rank(a, d, t, &x) && check_halos(d, t, &x) && check_ops(d, t);
}
