/* burst_scan_cuda.cuh: maps and rows of pieces of recurrent layers between ranks, on GPUs: each as one
 * exchange on the first channel, which begins after computing and which computing waits for. */
#ifndef BURST_SCAN_CUDA_CUH
#define BURST_SCAN_CUDA_CUH

#include "burst_scan.h"

static inline int plan_scan_exchange(PlanState *s, const BurstPiece *send, int sends,
                                     const BurstPiece *receive, int receives)
{
    const cudaStream_t compute = burst_gpu_compute(s->exec), stream = burst_gpu_channel(s->exec, 0);
    BurstOrder *o = &s->scan.order;
    BURST_TRY(burst_gpu_mark(s->exec, compute, &o->from));
    BURST_TRY(burst_gpu_after(s->exec, stream, &o->from));
    BURST_TRY(burst_gpu_part(s->exec, stream, BURST_P_PIECES, 0, 0));
    BURST_TRY(burst_gpu_exchange(s->exec, 0, send, sends, receive, receives, NULL, 0));
    BURST_TRY(burst_gpu_part(s->exec, stream, BURST_P_IDLE, 0, 0));
    BURST_TRY(burst_gpu_mark(s->exec, stream, &o->here));
    return burst_gpu_after(s->exec, compute, &o->here);
}

static inline BurstPiece plan_scan_piece(const PlanState *s, int chunk, const void *data, size_t bytes,
                                         void *lands)
{
    const BurstPiece p = {plan_peer(s, chunk), (void *)data, bytes, 1, bytes, lands, bytes};
    return p;
}

#ifdef PLAN_SCAN_MAP
static inline int plan_share_maps(BurstCtx *c, PlanState *s, float *maps)
{
    BurstPiece send[PLAN_GROUP], receive[PLAN_GROUP];
    float *const own = maps + s->me * PLAN_MAPS;
    burst_doing(c, "maps of the pieces of a recurrent layer");
    for (int i = 1; i < PLAN_GROUP; i++) {
        const int to = (s->me + i) % PLAN_GROUP, from = (s->me + PLAN_GROUP - i) % PLAN_GROUP;
        const size_t sent = (size_t)plan_maps_of(s, s->me) * sizeof *maps,
                     got = (size_t)plan_maps_of(s, from) * sizeof *maps;
        send[i - 1] = plan_scan_piece(s, to, own, sent, own);
        receive[i - 1] = plan_scan_piece(s, from, maps + from * PLAN_MAPS, got, NULL);
    }
    return plan_scan_exchange(s, send, PLAN_GROUP - 1, receive, PLAN_GROUP - 1);
}
#endif

/* Between two ranks rows are sent and taken in the order of pieces, which is the same on both. */
static inline int plan_pass_rows(BurstCtx *c, PlanState *s, int by, const BurstAct *out, BurstAct *in)
{
    const size_t bytes = PLAN_HALO * sizeof *out;
    BurstPiece send[PLAN_SCAN_PIECES], receive[PLAN_SCAN_PIECES];
    int sends = 0, receives = 0;
    burst_doing(c, "rows before the pieces of a recurrent layer");
    for (int i = 0; i < s->pieces.count; i++) {
        const BurstSequencePiece *to = plan_next_piece(s, i, by), *from = plan_next_piece(s, i, -by);
        const int64_t at = (int64_t)i * PLAN_HALO;
        if (to)
            send[sends++] = plan_scan_piece(s, to->chunk, out + at, bytes,
                                            in + (int64_t)to->index * PLAN_HALO);
        if (from)
            receive[receives++] = plan_scan_piece(s, from->chunk, in + at, bytes, NULL);
        else
            BURST_TRY(burst_gpu_zero(s->exec, in + at, bytes));
    }
    return plan_scan_exchange(s, send, sends, receive, receives);
}

#endif
