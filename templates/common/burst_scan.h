/* burst_scan.h: recurrent layers whose sequence several ranks share. Each rank scans its pieces in
 * place: the maps of all pieces are gathered, and those before a piece give the state that it begins with; of
 * the rows of a convolution, the last of a piece are sent to the rank of the next. */
#ifndef BURST_SCAN_H
#define BURST_SCAN_H

/* Elements of a piece's last rows; of the maps of a chunk's pieces. */
enum { PLAN_HALO = PLAN_SCAN_COLUMNS * (PLAN_SCAN_KERNEL - 1) };
#ifdef PLAN_SCAN_MAP
#define PLAN_MAPS ((int64_t)PLAN_SCAN_PIECES * PLAN_SCAN_MAP)
#endif

/* Of the target, burst_scan_host.h or burst_scan_cuda.cuh. Gathers maps, [chunks][PLAN_SCAN_PIECES], of
 * which this rank has its own; what a rank has of each piece, PLAN_HALO elements, goes to the piece `by`
 * further, +1 or -1, and what arrives nowhere is 0. */
#ifdef PLAN_SCAN_MAP
static inline int plan_share_maps(BurstCtx *c, PlanState *s, float *maps);
#endif
static inline int plan_pass_rows(BurstCtx *c, PlanState *s, int by, const BurstAct *out, BurstAct *in);

/* Finds the pieces of all chunks, in a batch or before the first. */
static inline int plan_find_pieces(BurstCtx *c, PlanState *s)
{
    PlanScan *x = &s->scan;
    int count = 0, own = 0;
    for (int chunk = 0, first = 0; chunk < PLAN_GROUP; first = count, chunk++) {
        for (int64_t i = 0; i < plan_tokens(chunk) && count >= 0; i++)
            count = burst_scan_add(x->piece, count, first, PLAN_SCAN_PIECES, chunk, i,
                                   s->chunk[chunk].position[i]);
        if (count < 0)
            return burst_fail(c, BURST_E_PLAN, "chunk %d has more than %d pieces", chunk, PLAN_SCAN_PIECES);
        x->pieces_of[chunk] = count - first;
    }
    burst_scan_sort(x->piece, count);
    for (int i = 0; i < count; i++) {
        x->slot[i] = x->piece[i].chunk * PLAN_SCAN_PIECES + x->piece[i].index;
        if (x->piece[i].chunk != s->me)
            continue;
        x->rows[own] = x->piece[i].row;
        x->number[own++] = i;
    }
    x->rows[own] = plan_tokens(s->me);
    s->pieces = (BurstPieces){own, x->rows};
    x->fold = (BurstFold){count, own, x->slot, x->number};
    return BURST_OK;
}

/* Whether the running sequence is a token that continues a prompt, which all ranks have. */
static inline bool plan_scan_continues(const PlanState *s)
{
#ifdef PLAN_INFER
    return s->infer.decodes;
#else
    (void)s;
    return false;
#endif
}

#ifdef PLAN_SCAN_MAP
/* ---- the state before each piece ---- */

/* Of a prompt, the state after all pieces is kept. */
static inline int plan_scan_kept(PlanState *s, const float *maps, void *scratch)
{
#ifdef PLAN_INFER
    const int32_t end[] = {s->scan.fold.total};
    const BurstFold all = {s->scan.fold.total, 1, s->scan.slot, end};
    return burst_op_scan_fold(s->exec, &plan_scan, &all, maps, s->infer.state, scratch);
#else
    (void)s, (void)maps, (void)scratch;
    return BURST_OK;
#endif
}

static inline int64_t plan_maps_of(const PlanState *s, int chunk)
{
    return s->scan.pieces_of[chunk] * (int64_t)PLAN_SCAN_MAP;
}

/* before: the state before each of the rank's pieces. */
static inline int plan_scan_states(BurstCtx *c, PlanState *s, const BurstAct *x, const float *beta,
                                   const float *decay, float *before, void *scratch)
{
    float *maps = (float *)scratch, *rest = maps + PLAN_GROUP * PLAN_MAPS;
    if (plan_scan_continues(s))
        return BURST_OK;
    BURST_TRY(burst_op_scan_map(s->exec, s->n, &plan_scan, &s->pieces, s->place, x, beta, decay,
                                maps + s->me * PLAN_MAPS, rest));
    BURST_TRY(plan_share_maps(c, s, maps));
    BURST_TRY(burst_op_scan_fold(s->exec, &plan_scan, &s->scan.fold, maps, before, rest));
    return plan_scan_kept(s, maps, rest);
}

/* after: the gradient of the state after each of them. */
static inline int plan_scan_states_back(BurstCtx *c, PlanState *s, const BurstAct *x, const float *beta,
                                        const float *decay, const BurstAct *d_o, float *after, void *scratch)
{
    float *maps = (float *)scratch, *rest = maps + PLAN_GROUP * PLAN_MAPS;
    BURST_TRY(burst_op_scan_map_back(s->exec, s->n, &plan_scan, &s->pieces, s->place, x, beta, decay, d_o,
                                     maps + s->me * PLAN_MAPS, rest));
    BURST_TRY(plan_share_maps(c, s, maps));
    return burst_op_scan_fold_back(s->exec, &plan_scan, &s->scan.fold, maps, after, rest);
}

#endif

/* ---- the rows before each piece ---- */

/* The piece that follows the rank's i-th, or comes before it; NULL: there is none. */
static inline const BurstSequencePiece *plan_next_piece(const PlanState *s, int i, int by)
{
    const int n = s->scan.number[i] + by;
    return n >= 0 && n < s->scan.fold.total ? &s->scan.piece[n] : NULL;
}

/* halo [pieces][kernel - 1][columns]: the rows before each of the rank's pieces. */
static inline int plan_scan_halo(BurstCtx *c, PlanState *s, const BurstAct *x, BurstAct *halo, void *scratch)
{
    if (plan_scan_continues(s))
        return BURST_OK;
    BURST_TRY(burst_op_conv_tails(s->exec, &plan_conv, &s->pieces, x, (BurstAct *)scratch));
    return plan_pass_rows(c, s, 1, (BurstAct *)scratch, halo);
}

/* dx += what the ranks of later pieces found. */
static inline int plan_scan_halo_back(BurstCtx *c, PlanState *s, const BurstAct *d_halo, BurstAct *dx,
                                      void *scratch)
{
    BURST_TRY(plan_pass_rows(c, s, -1, d_halo, (BurstAct *)scratch));
    return burst_op_conv_tails_back(s->exec, &plan_conv, &s->pieces, (BurstAct *)scratch, dx);
}

#endif
