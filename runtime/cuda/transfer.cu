/* transfer.cu: hops, all-to-all pieces, and the weights' gather and reduce-scatter, by NCCL on streams of their own. */
#include "burst_sizes.h"
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
static size_t bytes_of(const BurstPiece &p)
{
    return p.width * p.rows;
}

static int copy_rows(BurstGpu *g, cudaStream_t stream, const void *from, size_t from_pitch, void *to, size_t to_pitch,
                     const BurstPiece &p)
{
    if (p.rows <= 1 || (from_pitch == p.width && to_pitch == p.width))
        CUDA_TRY(g, cudaMemcpyAsync(to, from, bytes_of(p), cudaMemcpyDeviceToDevice, stream));
    else
        CUDA_TRY(g, cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, p.width, p.rows, cudaMemcpyDeviceToDevice, stream));
    return BURST_OK;
}

/* The next piece of this rank itself, from i; count where there is none. */
static int next_own(BurstGpu *g, const BurstPiece *p, int count, int i)
{
    while (i < count && p[i].peer != g->rank)
        i++;
    return i;
}

/* What a rank sends to itself: copies, for which NCCL would take multiprocessors. */
static int copy_own(BurstGpu *g, cudaStream_t stream, const BurstPiece *send, int sends, const BurstPiece *receive, int receives)
{
    int i = next_own(g, send, sends, 0), j = next_own(g, receive, receives, 0);
    for (; i < sends && j < receives; i = next_own(g, send, sends, i + 1), j = next_own(g, receive, receives, j + 1)) {
        if (send[i].width != receive[j].width || send[i].rows != receive[j].rows)
            return burst_fail(g->ctx, BURST_E_PLAN, "rank %d sends itself %zu rows of %zu bytes and expects %zu of %zu", g->rank,
                              send[i].rows, send[i].width, receive[j].rows, receive[j].width);
        if (bytes_of(send[i]) && send[i].data != receive[j].data)
            BURST_TRY(copy_rows(g, stream, send[i].data, send[i].pitch, receive[j].data, receive[j].pitch, send[i]));
    }
    if (i < sends || j < receives)
        return burst_fail(g->ctx, BURST_E_PLAN, "rank %d does not send itself as many pieces as it expects", g->rank);
    return BURST_OK;
}

static int check_pieces(BurstGpu *g, int channel, const BurstPiece *p, int count)
{
    if (channel < 0 || channel >= g->channels)
        return burst_fail(g->ctx, BURST_E_PLAN, "the device was opened with %d channels, and channel %d is used", g->channels, channel);
    for (int i = 0; i < count; i++) {
        if (p[i].peer < 0 || p[i].peer >= g->world)
            return burst_fail(g->ctx, BURST_E_PLAN, "rank %d has no peer %d in a world of %d", g->rank, p[i].peer, g->world);
        if (p[i].rows > 1 && p[i].pitch < p[i].width)
            return burst_fail(g->ctx, BURST_E_PLAN, "rows of %zu bytes that are %zu apart", p[i].width, p[i].pitch);
    }
    return BURST_OK;
}

static int greet_all(BurstGpu *g, int channel, const BurstPiece *p, int count, int direction)
{
    for (int i = 0; i < count; i++)
        if (bytes_of(p[i]))
            BURST_TRY(greet(g, channel, p[i].peer, direction));
    return BURST_OK;
}

/* ---- by NCCL ---- */
/* Packing memory, used from its begin in the order of the pieces. */
typedef struct Packing { char *at; size_t bytes, used; } Packing;

/* Where NCCL reads or writes the piece: in place, or the next part of the packing memory. */
static int place_of(BurstGpu *g, const BurstPiece &p, Packing *packing, char **at)
{
    const size_t needed = (size_t)burst_gpu_packing((int64_t)p.width, (int64_t)p.rows, (int64_t)p.pitch);
    *at = needed ? packing->at + packing->used : (char *)p.data;
    if (needed > packing->bytes - packing->used)
        return burst_fail(g->ctx, BURST_E_PLAN, "an exchange has %zu bytes of packing memory, and needs %zu more", packing->bytes,
                          needed - (packing->bytes - packing->used));
    packing->used += needed;
    return BURST_OK;
}

static bool by_nccl(const BurstGpu *g, const BurstPiece &p)
{
    return p.peer != g->rank && bytes_of(p) > 0;
}

static int nccl_send(BurstGpu *g, int channel, const BurstPiece *p, int count, Packing packing)
{
    char *at;
    for (int i = 0; i < count; i++)
        if (by_nccl(g, p[i])) {
            BURST_TRY(place_of(g, p[i], &packing, &at));
            NCCL_TRY(g, ncclSend(at, bytes_of(p[i]), ncclInt8, p[i].peer, g->comm[channel], g->channel[channel]));
        }
    return BURST_OK;
}

static int nccl_receive(BurstGpu *g, int channel, const BurstPiece *p, int count, Packing packing)
{
    char *at;
    for (int i = 0; i < count; i++)
        if (by_nccl(g, p[i])) {
            BURST_TRY(place_of(g, p[i], &packing, &at));
            NCCL_TRY(g, ncclRecv(at, bytes_of(p[i]), ncclInt8, p[i].peer, g->comm[channel], g->channel[channel]));
        }
    return BURST_OK;
}

/* Packs (or, where out, unpacks) what is not contiguous; *packing is left behind it. */
static int pack(BurstGpu *g, cudaStream_t stream, const BurstPiece *p, int count, bool out, Packing *packing)
{
    for (int i = 0; i < count; i++) {
        char *at;
        if (!by_nccl(g, p[i]))
            continue;
        BURST_TRY(place_of(g, p[i], packing, &at));
        if (at == p[i].data)
            continue;
        if (out)
            BURST_TRY(copy_rows(g, stream, at, p[i].width, p[i].data, p[i].pitch, p[i]));
        else
            BURST_TRY(copy_rows(g, stream, p[i].data, p[i].pitch, at, p[i].width, p[i]));
    }
    return BURST_OK;
}

static bool any_by_nccl(const BurstGpu *g, const BurstPiece *p, int count)
{
    for (int i = 0; i < count; i++)
        if (by_nccl(g, p[i]))
            return true;
    return false;
}

/* Sends are packed at the begin of the packing memory, receives behind them. */
static int move_by_nccl(BurstGpu *g, int channel, const BurstPiece *send, int sends, const BurstPiece *receive, int receives,
                        Packing packing)
{
    if (!any_by_nccl(g, send, sends) && !any_by_nccl(g, receive, receives))
        return BURST_OK;
    const Packing sent = packing;
    BURST_TRY(pack(g, g->channel[channel], send, sends, false, &packing));
    NCCL_TRY(g, ncclGroupStart());
    const int status = nccl_send(g, channel, send, sends, sent);
    const int both = status == BURST_OK ? nccl_receive(g, channel, receive, receives, packing) : status;
    NCCL_TRY(g, ncclGroupEnd());
    BURST_TRY(both);
    return pack(g, g->channel[channel], receive, receives, true, &packing);
}

/* ---- hops and exchanges ---- */
static size_t all_bytes(const BurstPiece *p, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += bytes_of(p[i]);
    return bytes;
}

static int move_pieces(BurstGpu *g, int channel, const BurstPiece *send, int sends, const BurstPiece *receive, int receives,
                       Packing packing)
{
    BURST_TRY(check_pieces(g, channel, send, sends));
    BURST_TRY(check_pieces(g, channel, receive, receives));
    BURST_TRY(greet_all(g, channel, send, sends, SENDING));
    BURST_TRY(greet_all(g, channel, receive, receives, RECEIVING));
    BURST_TRY(meet(g));
    gpu_part_bytes(g, channel, all_bytes(send, sends), all_bytes(receive, receives));
    BURST_TRY(move_by_nccl(g, channel, send, sends, receive, receives, packing));
    return copy_own(g, g->channel[channel], send, sends, receive, receives);
}

static int pieces_of(BurstGpu *g, const BurstBuffer *b, int count, int peer, BurstPiece *p)
{
    if (count > BURST_GPU_BUFFERS)
        return burst_fail(g->ctx, BURST_E_PLAN, "a hop of %d buffers, and at most %d are possible", count, BURST_GPU_BUFFERS);
    for (int i = 0; i < count; i++)
        p[i] = BurstPiece{peer, b[i].data, b[i].bytes, 1, b[i].bytes, b[i].lands, b[i].bytes};
    return BURST_OK;
}

int burst_gpu_hop(BurstGpu *g, int channel, const BurstBuffer *send, int sends, int to, const BurstBuffer *receive,
                  int receives, int from)
{
    BurstPiece out[BURST_GPU_BUFFERS], in[BURST_GPU_BUFFERS];
    BURST_TRY(pieces_of(g, send, sends, to, out));
    BURST_TRY(pieces_of(g, receive, receives, from, in));
    return move_pieces(g, channel, out, sends, in, receives, Packing{NULL, 0, 0});
}

int burst_gpu_exchange(BurstGpu *g, int channel, const BurstPiece *send, int sends, const BurstPiece *receive, int receives,
                       void *packing, size_t packing_bytes)
{
    return move_pieces(g, channel, send, sends, receive, receives, Packing{(char *)packing, packing_bytes, 0});
}

/* ---- weights ---- */
int burst_gpu_gather(BurstGpu *g, const BurstBf16 *shard, int64_t elements, BurstBf16 *full)
{
    if (g->world > 1) {
        BURST_TRY(meet_all(g, SENDING));
        NCCL_TRY(g, ncclAllGather(shard, full, (size_t)elements, ncclBfloat16, g->comm[g->channels], g->weights));
        return BURST_OK;
    }
    if (full != shard)
        CUDA_TRY(g, cudaMemcpyAsync(full, shard, (size_t)elements * sizeof *shard, cudaMemcpyDeviceToDevice, g->weights));
    return BURST_OK;
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
