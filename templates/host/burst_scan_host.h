/* burst_scan_host.h: maps and rows of pieces of recurrent layers between ranks, on the host. */
#ifndef BURST_SCAN_HOST_H
#define BURST_SCAN_HOST_H

#include "burst_scan.h"

#ifdef PLAN_SCAN_MAP
static inline int plan_share_maps(BurstCtx *c, PlanState *s, float *maps)
{
    BurstReq request[2][PLAN_GROUP] = {0};
    for (int i = 1; i < PLAN_GROUP; i++) {
        const int to = (s->me + i) % PLAN_GROUP, from = (s->me + PLAN_GROUP - i) % PLAN_GROUP;
        BURST_TRY(burst_send(c, 0, plan_peer(s, to), maps + s->me * PLAN_MAPS,
                             (size_t)plan_maps_of(s, s->me) * sizeof *maps, &request[0][to]));
        BURST_TRY(burst_recv(c, 0, plan_peer(s, from), maps + from * PLAN_MAPS,
                             (size_t)plan_maps_of(s, from) * sizeof *maps, &request[1][from]));
    }
    for (int i = 0; i < 2 * PLAN_GROUP; i++)
        BURST_TRY(burst_wait(c, &request[i % 2][i / 2]));
    return BURST_OK;
}
#endif

static inline int plan_pass_rows(BurstCtx *c, PlanState *s, int by, const float *out, float *in)
{
    const size_t bytes = PLAN_HALO * sizeof *out;
    BurstReq sent[PLAN_SCAN_PIECES] = {0}, taken[PLAN_SCAN_PIECES] = {0};
    for (int i = 0; i < s->pieces.count; i++) {
        const BurstSequencePiece *to = plan_next_piece(s, i, by), *from = plan_next_piece(s, i, -by);
        float *own = in + (int64_t)i * PLAN_HALO;
        if (to && to->chunk != s->me)
            BURST_TRY(
                burst_send(c, 0, plan_peer(s, to->chunk), out + (int64_t)i * PLAN_HALO, bytes, &sent[i]));
        if (from && from->chunk != s->me)
            BURST_TRY(burst_recv(c, 0, plan_peer(s, from->chunk), own, bytes, &taken[i]));
        else if (from)
            memcpy(own, out + (int64_t)from->index * PLAN_HALO, bytes);
        else
            memset(own, 0, bytes);
    }
    for (int i = 0; i < s->pieces.count; i++) {
        BURST_TRY(burst_wait(c, &sent[i]));
        BURST_TRY(burst_wait(c, &taken[i]));
    }
    return BURST_OK;
}

#endif
