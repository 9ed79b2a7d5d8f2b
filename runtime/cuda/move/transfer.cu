/* transfer.cu: hops, all-to-all pieces, the weights' gather and reduce-scatter, and tensor ranks'
 * collectives, on streams of their own: by copy engine between ranks with each other's memory
 * (peer_move.cu), by NCCL elsewhere, and as a copy from a rank to itself. */
#include "optimizer/muon.h"
#include "cuda/gpu.h"

#include <string.h>

enum { SENDING = 1, RECEIVING = 2, SUMMING = 4, EXCHANGING = 8 };

/* ---- meeting ---- */
/* The first message between two ranks, for each channel and direction. NCCL connects on it, and waits for
 * the other's call without a watchdog: so both first meet on the host, where a lost or late rank is noticed.
 * Over peer memory they also tell each other what the message fills, which detects memory that is not laid
 * out alike. */
static int greet(BurstGpu *g, int channel, const BurstPiece *p, int count, int peer, int direction)
{
    uint8_t *met = &g->met[channel * g->world + peer];
    if (peer == g->rank || (*met & direction))
        return BURST_OK;
    *met |= (uint8_t)direction;
    Greeting *r = &g->greeting[g->greetings];
    const Peer *near = g->peer_of[peer];
    const size_t bytes = near ? sizeof(Landing) : 0;
    *r = Greeting{};
    r->peer = peer;
    r->compare = direction == RECEIVING && near;
    if (near)
        BURST_TRY(gpu_landing(g, p, count, peer, direction == SENDING, &r->mine));
    g->greetings++;
    if (direction == RECEIVING)
        return burst_recv(g->ctx, HOST_CHANNEL, peer, &r->theirs, bytes, &r->req);
    Landing *sent = near ? (Landing *)host_shared(g->ctx) + (near - g->peer) : NULL;
    if (near)
        *sent = r->mine;
    return burst_send(g->ctx, HOST_CHANNEL, peer, sent, bytes, &r->req);
}
static_assert(PEERS_MOST * sizeof(Landing) <= HOST_SHARED_BYTES, "one for each peer");

static int compare(BurstGpu *g, int channel, const Greeting *r)
{
    if (!r->compare || memcmp(&r->mine, &r->theirs, sizeof r->mine) == 0)
        return BURST_OK;
    return burst_fail(g->ctx, BURST_E_PLAN,
                      "channel %d: rank %d sends rank %d %llu bytes at offset %llu of its device memory, but "
                      "it expects %llu at %llu",
                      channel, r->peer, g->rank, (unsigned long long)r->theirs.bytes,
                      (unsigned long long)r->theirs.offset, (unsigned long long)r->mine.bytes,
                      (unsigned long long)r->mine.offset);
}

static int meet(BurstGpu *g, int channel)
{
    for (; g->greetings > 0; g->greetings--) {
        Greeting *r = &g->greeting[g->greetings - 1];
        BURST_TRY(burst_wait(g->ctx, &r->req));
        BURST_TRY(compare(g, channel, r));
    }
    return BURST_OK;
}

/* The same for a group's collectives; direction distinguishes gather, reduction and sum. */
static int meet_all(BurstGpu *g, int direction, Members *m)
{
    if (m->met & direction)
        return BURST_OK;
    m->met |= (uint8_t)direction;
    return burst_barrier(g->ctx, m->ranks);
}

/* ---- pieces ---- */
int gpu_copy_rows(BurstGpu *g, cudaStream_t stream, const void *from, size_t from_pitch, void *to,
                  size_t to_pitch, const BurstPiece *p)
{
    if (p->rows <= 1 || (from_pitch == p->width && to_pitch == p->width))
        CUDA_TRY(g, cudaMemcpyAsync(to, from, gpu_piece_bytes(p), cudaMemcpyDeviceToDevice, stream));
    else
        CUDA_TRY(g, cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, p->width, p->rows,
                                      cudaMemcpyDeviceToDevice, stream));
    return BURST_OK;
}

/* The index of this rank's next piece to itself, from i on; count if there is none. */
static int next_own(BurstGpu *g, const BurstPiece *p, int count, int i)
{
    while (i < count && p[i].peer != g->rank)
        i++;
    return i;
}

/* Copies what a rank sends to itself. Inside a device copies take multiprocessors, and so wait for a product
 * that occupies all (some 15 ms for 218 MB); cudaMemcpyFlagPreferOverlapWithCompute changes nothing. */
static int copy_own(BurstGpu *g, cudaStream_t stream, const BurstPiece *send, int sends,
                    const BurstPiece *receive, int receives)
{
    int i = next_own(g, send, sends, 0), j = next_own(g, receive, receives, 0);
    for (; i < sends && j < receives;
         i = next_own(g, send, sends, i + 1), j = next_own(g, receive, receives, j + 1)) {
        if (send[i].width != receive[j].width || send[i].rows != receive[j].rows)
            return burst_fail(g->ctx, BURST_E_PLAN,
                              "rank %d sends itself %zu rows of %zu bytes but expects %zu rows of %zu",
                              g->rank, send[i].rows, send[i].width, receive[j].rows, receive[j].width);
        if (gpu_piece_bytes(&send[i]) && send[i].data != receive[j].data)
            BURST_TRY(gpu_copy_rows(g, stream, send[i].data, send[i].pitch, receive[j].data, receive[j].pitch,
                                    &send[i]));
    }
    if (i < sends || j < receives)
        return burst_fail(g->ctx, BURST_E_PLAN,
                          "rank %d sends itself a different number of pieces than it expects", g->rank);
    return BURST_OK;
}

static int check_pieces(BurstGpu *g, const BurstPiece *p, int count)
{
    for (int i = 0; i < count; i++) {
        if (p[i].peer < 0 || p[i].peer >= g->world)
            return burst_fail(g->ctx, BURST_E_PLAN, "rank %d addresses rank %d, but the world size is %d",
                              g->rank, p[i].peer, g->world);
        if (p[i].rows > 1 && p[i].pitch < p[i].width)
            return burst_fail(g->ctx, BURST_E_PLAN, "rows of %zu bytes overlap: their pitch is %zu",
                              p[i].width, p[i].pitch);
    }
    return BURST_OK;
}

static int greet_all(BurstGpu *g, int channel, const BurstPiece *p, int count, int direction)
{
    for (int i = 0; i < count; i++)
        if (gpu_piece_bytes(&p[i]))
            BURST_TRY(greet(g, channel, p, count, p[i].peer, direction));
    return BURST_OK;
}

/* ---- by NCCL ---- */
/* Packing memory, used from its begin in the order of the pieces. */
typedef struct Packing { char *at; size_t bytes, used; } Packing;

/* The address that NCCL reads or writes for the piece: in place, or the next part of the packing memory. */
static int place_of(BurstGpu *g, const BurstPiece &p, Packing *packing, char **at)
{
    const size_t needed = (size_t)burst_gpu_packing((int64_t)p.width, (int64_t)p.rows, (int64_t)p.pitch);
    *at = needed ? packing->at + packing->used : (char *)p.data;
    if (needed > packing->bytes - packing->used)
        return burst_fail(g->ctx, BURST_E_PLAN,
                          "the all-to-all has %zu bytes of packing memory but needs %zu more", packing->bytes,
                          needed - (packing->bytes - packing->used));
    packing->used += needed;
    return BURST_OK;
}

static bool by_nccl(const BurstGpu *g, const BurstPiece &p)
{
    return p.peer != g->rank && !g->peer_of[p.peer] && gpu_piece_bytes(&p) > 0;
}

static int nccl_one(BurstGpu *g, int channel, char *at, size_t bytes, int peer, bool sends)
{
    if (sends)
        NCCL_TRY(g, ncclSend(at, bytes, ncclInt8, peer, g->comm[channel], gpu_stream(g, channel)));
    else
        NCCL_TRY(g, ncclRecv(at, bytes, ncclInt8, peer, g->comm[channel], gpu_stream(g, channel)));
    return BURST_OK;
}

/* Without packing memory, one message per row. */
static int nccl_pieces(BurstGpu *g, int channel, const BurstPiece *p, int count, Packing packing, bool sends)
{
    for (int i = 0; i < count; i++) {
        const size_t messages = packing.at ? 1 : p[i].rows;
        char *at = (char *)p[i].data;
        if (!by_nccl(g, p[i]))
            continue;
        if (packing.at)
            BURST_TRY(place_of(g, p[i], &packing, &at));
        for (size_t row = 0; row < messages; row++)
            BURST_TRY(nccl_one(g, channel, at + row * p[i].pitch, gpu_piece_bytes(&p[i]) / messages,
                               p[i].peer, sends));
    }
    return BURST_OK;
}

/* Packs (with `out`, unpacks) what is not contiguous; *packing is advanced. */
static int pack(BurstGpu *g, cudaStream_t stream, const BurstPiece *p, int count, bool out, Packing *packing)
{
    for (int i = 0; i < count && packing->at; i++) {
        char *at;
        if (!by_nccl(g, p[i]))
            continue;
        BURST_TRY(place_of(g, p[i], packing, &at));
        if (at == p[i].data)
            continue;
        if (out)
            BURST_TRY(gpu_copy_rows(g, stream, at, p[i].width, p[i].data, p[i].pitch, &p[i]));
        else
            BURST_TRY(gpu_copy_rows(g, stream, p[i].data, p[i].pitch, at, p[i].width, &p[i]));
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

/* Sends are packed at the begin of the packing memory, receives after them. */
static int move_by_nccl(BurstGpu *g, int channel, const BurstPiece *send, int sends,
                        const BurstPiece *receive, int receives, Packing packing)
{
    if (!any_by_nccl(g, send, sends) && !any_by_nccl(g, receive, receives))
        return BURST_OK;
    const Packing sent = packing;
    BURST_TRY(pack(g, gpu_stream(g, channel), send, sends, false, &packing));
    NCCL_TRY(g, ncclGroupStart());
    const int status = nccl_pieces(g, channel, send, sends, sent, true);
    const int both = status == BURST_OK ? nccl_pieces(g, channel, receive, receives, packing, false) : status;
    NCCL_TRY(g, ncclGroupEnd());
    BURST_TRY(both);
    return pack(g, gpu_stream(g, channel), receive, receives, true, &packing);
}

/* ---- hops and exchanges ---- */
static size_t all_bytes(const BurstPiece *p, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += gpu_piece_bytes(&p[i]);
    return bytes;
}

static int check_channel(BurstGpu *g, int channel)
{
    if (channel >= 0 && channel < g->channels)
        return BURST_OK;
    return burst_fail(g->ctx, BURST_E_PLAN, "the plan declares %d channels, but channel %d is used",
                      g->channels, channel);
}

/* Peers come first: they are closer and should not wait for transfers between hosts. */
static int move_pieces(BurstGpu *g, int channel, const BurstPiece *send, int sends, const BurstPiece *receive,
                       int receives, Packing packing)
{
    FlagOps ops = {};
    BURST_TRY(check_pieces(g, send, sends));
    BURST_TRY(check_pieces(g, receive, receives));
    BURST_TRY(greet_all(g, channel, send, sends, SENDING));
    BURST_TRY(greet_all(g, channel, receive, receives, RECEIVING));
    BURST_TRY(meet(g, channel));
    if (channel < g->channels)
        gpu_part_bytes(g, channel, all_bytes(send, sends), all_bytes(receive, receives));
    BURST_TRY(gpu_peers_push(g, channel, send, sends, receive, receives, &ops));
    BURST_TRY(gpu_queue_flag_ops(g, gpu_stream(g, channel), &ops));
    BURST_TRY(copy_own(g, gpu_stream(g, channel), send, sends, receive, receives));
    BURST_TRY(move_by_nccl(g, channel, send, sends, receive, receives, packing));
    return gpu_peers_await(g, channel, receive, receives, &ops);
}

static int pieces_of(BurstGpu *g, const BurstBuffer *b, int count, int peer, BurstPiece *p)
{
    if (count > BURST_GPU_BUFFERS)
        return burst_fail(g->ctx, BURST_E_PLAN, "a transfer of %d buffers exceeds the limit of %d", count,
                          BURST_GPU_BUFFERS);
    for (int i = 0; i < count; i++)
        p[i] = BurstPiece{peer, b[i].data, b[i].bytes, 1, b[i].bytes, b[i].lands, b[i].bytes};
    return BURST_OK;
}

int burst_gpu_hop(BurstGpu *g, int channel, const BurstBuffer *send, int sends, int to,
                  const BurstBuffer *receive, int receives, int from)
{
    BurstPiece out[BURST_GPU_BUFFERS], in[BURST_GPU_BUFFERS];
    BURST_TRY(check_channel(g, channel));
    BURST_TRY(pieces_of(g, send, sends, to, out));
    BURST_TRY(pieces_of(g, receive, receives, from, in));
    return move_pieces(g, channel, out, sends, in, receives, Packing{NULL, 0, 0});
}

int burst_gpu_exchange(BurstGpu *g, int channel, const BurstPiece *send, int sends, const BurstPiece *receive,
                       int receives, void *packing, size_t packing_bytes)
{
    BURST_TRY(check_channel(g, channel));
    return move_pieces(g, channel, send, sends, receive, receives,
                       Packing{(char *)packing, packing_bytes, 0});
}

/* ---- groups ---- */
static int member_of(const BurstGpu *g, const Members *m)
{
    return (g->rank - m->ranks.first) / m->ranks.stride;
}

/* The ranks that share the unit's weights. */
Members *gpu_unit_members(BurstGpu *g, int unit)
{
    return &g->group[burst_unit_group(g->ctx, unit).stride > 1 ? GROUP_SPLIT : GROUP_SHARDS];
}

/* Member i's part is at the same offset in every member's whole. */
static int gather_over_peers(BurstGpu *g, int channel, const Members *m, const BurstBf16 *part,
                             int64_t elements, BurstBf16 *whole)
{
    const size_t bytes = (size_t)elements * sizeof *part;
    const int count = m->ranks.count;
    BurstPiece *send = g->pieces, *receive = g->pieces + count;
    for (int i = 0; i < count; i++) {
        const int rank = m->ranks.first + i * m->ranks.stride;
        send[i] = BurstPiece{rank, (void *)part, bytes, 1, bytes, whole + member_of(g, m) * elements, bytes};
        receive[i] = BurstPiece{rank, whole + i * elements, bytes, 1, bytes, NULL, 0};
    }
    return move_pieces(g, channel, send, count, receive, count, Packing{NULL, 0, 0});
}

/* If not all members are peers, NCCL moves everything: its ring sends each part between two nodes only
 * once. */
static int gather(BurstGpu *g, int channel, Members *m, const BurstBf16 *part, int64_t elements,
                  BurstBf16 *whole)
{
    if (m->peers)
        return gather_over_peers(g, channel, m, part, elements, whole);
    BURST_TRY(meet_all(g, SENDING, m));
    NCCL_TRY(g, ncclAllGather(part, whole, (size_t)elements, ncclBfloat16, m->comm, gpu_stream(g, channel)));
    return BURST_OK;
}

/* part: this member's part of the sum; it may be its place in whole. */
static int reduce(BurstGpu *g, int channel, Members *m, const void *whole, int64_t elements, void *part,
                  ncclDataType_t type, size_t size)
{
    if (m->ranks.count > 1) {
        BURST_TRY(meet_all(g, RECEIVING, m));
        NCCL_TRY(g, ncclReduceScatter(whole, part, (size_t)elements, type, ncclSum, m->comm,
                                      gpu_stream(g, channel)));
    } else if (part != whole) {
        CUDA_TRY(g, cudaMemcpyAsync(part, whole, (size_t)elements * size, cudaMemcpyDeviceToDevice,
                                    gpu_stream(g, channel)));
    }
    return BURST_OK;
}

/* all may be part. */
static int sum(BurstGpu *g, int channel, Members *m, const float *part, float *all, int64_t elements)
{
    BURST_TRY(meet_all(g, SUMMING, m));
    NCCL_TRY(g, ncclAllReduce(part, all, (size_t)elements, ncclFloat, ncclSum, m->comm,
                              gpu_stream(g, channel)));
    return BURST_OK;
}

/* ---- weights ---- */
int burst_gpu_gather(BurstGpu *g, int unit, const BurstBf16 *shard, int64_t elements, BurstBf16 *full)
{
    return gather(g, g->channels, gpu_unit_members(g, unit), shard, elements, full);
}

int burst_gpu_gather_slices(BurstGpu *g, const BurstPlan *p, int unit, const BurstBf16 *shard,
                            BurstBf16 *full)
{
    const BurstUnit *u = burst_unit(p, unit);
    Members *m = gpu_unit_members(g, unit);
    const size_t whole = (size_t)burst_slices(p, u)->whole * sizeof *full;
    CUDA_TRY(g, cudaMemcpyAsync(full, shard, whole, cudaMemcpyDeviceToDevice, gpu_stream(g, g->channels)));
    for (BurstSlice x = {}; burst_next_slice(p, u, m->ranks.count, &x);)
        BURST_TRY(gather(g, g->channels, m, shard + x.at, x.elements, full + x.gathered));
    return BURST_OK;
}

/* Gradients that are added to other sequences' are first summed in place, then added as a whole. */
int burst_gpu_reduce(BurstGpu *g, int unit, float *full, int64_t elements, float *shard, bool add)
{
    Members *m = gpu_unit_members(g, unit);
    float *part = add ? full + member_of(g, m) * elements : shard;
    BURST_TRY(reduce(g, g->channels, m, full, elements, part, ncclFloat, sizeof *full));
    return add ? gpu_add(g, g->weights, elements, part, shard) : BURST_OK;
}

int burst_gpu_reduce_bf16(BurstGpu *g, int unit, float *full, int64_t elements, BurstBf16 *shard, bool add)
{
    Members *m = gpu_unit_members(g, unit);
    float *part = full + member_of(g, m) * elements;
    BURST_TRY(reduce(g, g->channels, m, full, elements, part, ncclFloat, sizeof *full));
    return gpu_add_rounded(g, g->weights, elements, part, add, shard);
}

int burst_gpu_all_reduce(BurstGpu *g, float *shard, int64_t elements)
{
    return sum(g, g->channels, &g->group[GROUP_REPLICAS], shard, shard, elements);
}

int burst_gpu_all_reduce_bf16(BurstGpu *g, BurstBf16 *shard, int64_t elements, float *room)
{
    BURST_TRY(gpu_widen(g, g->weights, elements, shard, room));
    BURST_TRY(burst_gpu_all_reduce(g, room, elements));
    return gpu_add_rounded(g, g->weights, elements, room, false, shard);
}

/* ---- tensor ranks ---- */
int burst_gpu_tensor_gather(BurstGpu *g, int64_t elements, const BurstBf16 *own, BurstBf16 *all)
{
    return gather(g, g->channels + 1, &g->group[GROUP_TENSOR], own, elements, all);
}

int burst_gpu_tensor_scatter(BurstGpu *g, int64_t elements, BurstBf16 *parts, const BurstBf16 *add,
                             BurstBf16 *own)
{
    Members *m = &g->group[GROUP_TENSOR];
    BurstBf16 *part = add ? parts + member_of(g, m) * elements : own;
    BURST_TRY(reduce(g, g->channels + 1, m, parts, elements, part, ncclBfloat16, sizeof *parts));
    return add ? gpu_add_activations(g, g->tensor, elements, part, add, own) : BURST_OK;
}

int burst_gpu_tensor_scatter_floats(BurstGpu *g, int64_t elements, float *parts, bool add, float *own)
{
    Members *m = &g->group[GROUP_TENSOR];
    float *part = add ? parts + member_of(g, m) * elements : own;
    BURST_TRY(reduce(g, g->channels + 1, m, parts, elements, part, ncclFloat, sizeof *parts));
    return add ? gpu_add(g, g->tensor, elements, part, own) : BURST_OK;
}

int burst_gpu_tensor_all_reduce(BurstGpu *g, int64_t elements, const float *part, float *all)
{
    return sum(g, g->channels + 1, &g->group[GROUP_TENSOR], part, all, elements);
}

int burst_gpu_tensor_sum(BurstGpu *g, int unit, float *shard)
{
    const BurstUnit *u = burst_unit(host_plan(g->ctx), unit);
    for (int i = 0; i < u->tensors; i++) {
        const HostPart part = host_part(g->ctx, u, &u->tensor[i]);
        Members *same =
            &g->group[part.copies == g->group[GROUP_TENSOR].ranks.count ? GROUP_TENSOR : GROUP_COPIES];
        if (part.copies > 1 && part.end > part.begin)
            BURST_TRY(sum(g, g->channels, same, shard + part.begin, shard + part.begin,
                          part.end - part.begin));
    }
    return BURST_OK;
}

int burst_gpu_tensor_sum_bf16(BurstGpu *g, int unit, BurstBf16 *shard, int64_t elements, float *room)
{
    BURST_TRY(gpu_widen(g, g->weights, elements, shard, room));
    BURST_TRY(burst_gpu_tensor_sum(g, unit, room));
    return gpu_add_rounded(g, g->weights, elements, room, false, shard);
}

/* ---- Muon's matrices ---- */
/* Moves a matrix's part between its owner and a rank that has it. */
static int move_part(BurstGpu *g, const Members *m, const MuonMatrix *x, int member, int unit,
                     BurstBf16 *shard, BurstBf16 *matrices, bool back)
{
    const int rank = m->ranks.first + member, me = member_of(g, m);
    const MuonPart part = muon_part(g->ctx, rank, unit, x);
    const bool sends = back ? me == x->owner : me == member;
    const size_t count = (size_t)part.count;
    if (!count || !(back || part.sends) || (me != x->owner && me != member))
        return BURST_OK;
    BurstBf16 *there = matrices + part.at, *here = shard + part.begin;
    if (x->owner == member)
        CUDA_TRY(g, cudaMemcpyAsync(back ? here : there, back ? there : here, count * sizeof *here,
                                    cudaMemcpyDeviceToDevice, g->weights));
    else if (sends)
        NCCL_TRY(g, ncclSend(back ? there : here, count, ncclBfloat16, back ? member : x->owner, m->comm,
                             g->weights));
    else
        NCCL_TRY(g, ncclRecv(back ? here : there, count, ncclBfloat16, back ? x->owner : member, m->comm,
                             g->weights));
    return BURST_OK;
}

static int move_matrices(BurstGpu *g, const Members *m, int unit, BurstBf16 *shard, BurstBf16 *matrices,
                         bool back)
{
    MuonMatrix matrix[BURST_MUON_MATRICES];
    int n;
    BURST_TRY(muon_matrices(g->ctx, unit, matrix, &n));
    for (int i = 0; i < n; i++)
        for (int member = 0; member < m->ranks.count; member++)
            BURST_TRY(move_part(g, m, &matrix[i], member, unit, shard, matrices, back));
    return BURST_OK;
}

/* On the weights' stream, ordered between earlier and later computing. */
static int exchange(BurstGpu *g, int unit, BurstBf16 *shard, BurstBf16 *matrices, bool back)
{
    Members *m = &g->group[GROUP_SHARDS];
    BURST_TRY(burst_gpu_mark(g, g->compute, &g->order));
    BURST_TRY(burst_gpu_after(g, g->weights, &g->order));
    if (m->ranks.count > 1)
        BURST_TRY(meet_all(g, EXCHANGING, m));
    NCCL_TRY(g, ncclGroupStart());
    const int status = move_matrices(g, m, unit, shard, matrices, back);
    NCCL_TRY(g, ncclGroupEnd());
    BURST_TRY(status);
    BURST_TRY(burst_gpu_mark(g, g->weights, &g->order));
    return burst_gpu_after(g, g->compute, &g->order);
}

int burst_op_to_owners(BurstGpu *g, int unit, BurstBf16 *update, BurstBf16 *matrices)
{
    return exchange(g, unit, update, matrices, false);
}

int burst_op_from_owners(BurstGpu *g, int unit, BurstBf16 *matrices, BurstBf16 *update)
{
    return exchange(g, unit, update, matrices, true);
}
