/* transfer.cu: hops, all-to-all pieces, and the weights' gather and reduce-scatter, by NCCL on streams of their own. */
#include "gpu.h"

enum { SENDING = 1, RECEIVING = 2, GREETING_CHANNEL = 15 }; /* of the host's messages: free for this */

/* ---- meeting ---- */
/* NCCL connects two ranks at their first message, and waits for the other's call with nobody watching. So both meet on
 * the host before, where a lost or late rank is noticed: once for each pair, channel and direction. */
static int greet(BurstGpu *g, int channel, int peer, int direction)
{
    uint8_t *met = &g->met[channel * g->world + peer];
    if (peer == g->rank || (*met & direction))
        return BURST_OK;
    *met |= (uint8_t)direction;
    BurstReq *r = &g->greeting[g->greetings++];
    return direction == SENDING ? burst_send(g->ctx, GREETING_CHANNEL, peer, NULL, 0, r)
                                : burst_recv(g->ctx, GREETING_CHANNEL, peer, NULL, 0, r);
}

static int meet(BurstGpu *g)
{
    for (; g->greetings > 0; g->greetings--)
        BURST_TRY(burst_wait(g->ctx, &g->greeting[g->greetings - 1]));
    return BURST_OK;
}

/* The same for a collective of the weights; direction tells gather and reduce apart. */
static int meet_all(BurstGpu *g, int direction)
{
    uint8_t *met = &g->met[g->channels * g->world];
    if (*met & direction)
        return BURST_OK;
    *met |= (uint8_t)direction;
    return burst_barrier(g->ctx, BurstGroup{0, 1, g->world});
}

/* ---- pieces ---- */
/* What a rank sends to itself: a copy, for which NCCL would take multiprocessors. */
static int copy_own(BurstGpu *g, cudaStream_t stream, const BurstBuffer *from, const BurstBuffer *to)
{
    if (from->bytes != to->bytes)
        return burst_fail(g->ctx, BURST_E_PLAN, "rank %d sends itself %zu bytes and expects %zu", g->rank, from->bytes, to->bytes);
    if (from->data != to->data && from->bytes)
        CUDA_TRY(g, cudaMemcpyAsync(to->data, from->data, from->bytes, cudaMemcpyDeviceToDevice, stream));
    return BURST_OK;
}

static int check_peer(BurstGpu *g, int channel, int peer)
{
    if (channel < 0 || channel >= g->channels)
        return burst_fail(g->ctx, BURST_E_PLAN, "the device was opened with %d channels, and channel %d is used", g->channels, channel);
    if (peer < 0 || peer >= g->world)
        return burst_fail(g->ctx, BURST_E_PLAN, "rank %d has no peer %d in a world of %d", g->rank, peer, g->world);
    return BURST_OK;
}

static int hop_to_self(BurstGpu *g, cudaStream_t stream, const BurstBuffer *send, int sends, const BurstBuffer *receive, int receives)
{
    if (sends != receives)
        return burst_fail(g->ctx, BURST_E_PLAN, "rank %d sends itself %d buffers and expects %d", g->rank, sends, receives);
    for (int i = 0; i < sends; i++)
        BURST_TRY(copy_own(g, stream, &send[i], &receive[i]));
    return BURST_OK;
}

int burst_gpu_hop(BurstGpu *g, int channel, const BurstBuffer *send, int sends, int to, const BurstBuffer *receive,
                  int receives, int from)
{
    if (sends)
        BURST_TRY(check_peer(g, channel, to));
    if (receives)
        BURST_TRY(check_peer(g, channel, from));
    if (sends + receives == 0)
        return BURST_OK;
    if (sends && receives && to == g->rank && from == g->rank)
        return hop_to_self(g, g->channel[channel], send, sends, receive, receives);
    if (sends)
        BURST_TRY(greet(g, channel, to, SENDING));
    if (receives)
        BURST_TRY(greet(g, channel, from, RECEIVING));
    BURST_TRY(meet(g));
    NCCL_TRY(g, ncclGroupStart());
    for (int i = 0; i < sends; i++)
        NCCL_TRY(g, ncclSend(send[i].data, send[i].bytes, ncclInt8, to, g->comm[channel], g->channel[channel]));
    for (int i = 0; i < receives; i++)
        NCCL_TRY(g, ncclRecv(receive[i].data, receive[i].bytes, ncclInt8, from, g->comm[channel], g->channel[channel]));
    NCCL_TRY(g, ncclGroupEnd());
    return BURST_OK;
}

static int exchange_others(BurstGpu *g, int channel, int count, const int *peers, const BurstBuffer *sends,
                           const BurstBuffer *receives)
{
    NCCL_TRY(g, ncclGroupStart());
    for (int i = 0; i < count; i++) {
        if (peers[i] == g->rank)
            continue;
        if (sends[i].bytes)
            NCCL_TRY(g, ncclSend(sends[i].data, sends[i].bytes, ncclInt8, peers[i], g->comm[channel], g->channel[channel]));
        if (receives[i].bytes)
            NCCL_TRY(g, ncclRecv(receives[i].data, receives[i].bytes, ncclInt8, peers[i], g->comm[channel], g->channel[channel]));
    }
    NCCL_TRY(g, ncclGroupEnd());
    return BURST_OK;
}

int burst_gpu_exchange(BurstGpu *g, int channel, int count, const int *peers, const BurstBuffer *sends,
                       const BurstBuffer *receives)
{
    for (int i = 0; i < count; i++) {
        BURST_TRY(check_peer(g, channel, peers[i]));
        if (sends[i].bytes)
            BURST_TRY(greet(g, channel, peers[i], SENDING));
        if (receives[i].bytes)
            BURST_TRY(greet(g, channel, peers[i], RECEIVING));
    }
    BURST_TRY(meet(g));
    if (g->world > 1)
        BURST_TRY(exchange_others(g, channel, count, peers, sends, receives));
    for (int i = 0; i < count; i++)
        if (peers[i] == g->rank)
            BURST_TRY(copy_own(g, g->channel[channel], &sends[i], &receives[i]));
    return BURST_OK;
}

/* ---- weights ---- */
int burst_gpu_gather(BurstGpu *g, const BurstBf16 *shard, int64_t elements, BurstBf16 *full)
{
    if (g->world > 1) {
        BURST_TRY(meet_all(g, SENDING));
        NCCL_TRY(g, ncclAllGather(shard, full, (size_t)elements, ncclBfloat16, g->comm[g->channels], g->weights));
        return BURST_OK;
    }
    BurstBuffer from = {(void *)shard, (size_t)elements * sizeof *shard}, to = {full, (size_t)elements * sizeof *full};
    return copy_own(g, g->weights, &from, &to);
}

/* NCCL's sum comes first and is then added as a whole: shard may already hold other sequences' gradients. */
int burst_gpu_reduce(BurstGpu *g, const float *full, int64_t elements, float *shard, float *scratch)
{
    if (g->world == 1)
        return gpu_add(g, g->weights, elements, full, shard);
    BURST_TRY(meet_all(g, RECEIVING));
    NCCL_TRY(g, ncclReduceScatter(full, scratch, (size_t)elements, ncclFloat, ncclSum, g->comm[g->channels], g->weights));
    return gpu_add(g, g->weights, elements, scratch, shard);
}
