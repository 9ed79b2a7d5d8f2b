/* peer_move.cu: messages between ranks of a host by copy engines, directly into the receiver's memory.
 *
 * Each rank uses one stream, and the host does not wait. For each message the receiver's stream writes
 * `ready` into the sender's memory once the buffer's old content is no longer needed. The sender waits for
 * that, copies, and writes `arrived` into the receiver's memory, which waits for it. Every rank queues first
 * all its `ready`, then its copies, then what NCCL moves, then its waits for `arrived`: each wait is for
 * something that its peer queued in the same or an earlier part of the same call, and calls have the same
 * order on all ranks, so there is no deadlock.
 *
 * Flags are written and awaited by stream memory operations (as in NCCL's own copy-engine collectives),
 * which take no multiprocessor and are ordered after earlier copies, system-wide. A flag contains the
 * message's number and a hash of what it fills, and the wait is for exactly this value: if sender and
 * receiver disagree about the address, the data are not sent, and the watchdog ends the run. A flag is
 * written again only after its reader has read it: the next `ready` follows the wait for `arrived`, and the
 * next `arrived` follows the wait for that `ready`. */
#include "cuda/gpu.h"

enum { READY, ARRIVED, KINDS, SENT = 0, RECEIVED = 1 };

/* ---- destinations of messages ---- */
static uint64_t mixed(uint64_t h, uint64_t x)
{
    x = (h ^ x) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

/* Adds one piece's destination at the receiver; contiguous rows count as one long row. */
static int add_landing(BurstGpu *g, const BurstPiece *p, bool sending, Landing *l)
{
    const char *at = (const char *)(sending ? p->lands : p->data);
    const size_t pitch = sending ? p->lands_pitch : p->pitch, bytes = gpu_piece_bytes(p);
    const bool one = p->rows == 1 || pitch == p->width;
    const size_t extent = one ? bytes : (p->rows - 1) * pitch + p->width;
    if (at < g->memory || extent > g->bytes || (size_t)(at - g->memory) > g->bytes - extent ||
        (!one && pitch < p->width))
        return burst_fail(g->ctx, BURST_E_PLAN,
                          "rank %d %s rank %d %zu bytes outside the plan's device memory", g->rank,
                          sending ? "sends" : "expects from", p->peer, bytes);
    const uint64_t offset = (uint64_t)(at - g->memory);
    if (l->bytes == 0)
        l->offset = offset;
    l->bytes += bytes;
    l->hash = mixed(mixed(mixed(l->hash, offset), one ? bytes : p->width), one ? 1 : p->rows);
    l->hash = mixed(l->hash, one ? 0 : pitch);
    return BURST_OK;
}

int gpu_landing(BurstGpu *g, const BurstPiece *p, int count, int peer, bool sending, Landing *out)
{
    *out = Landing{0, 0, 0};
    for (int i = 0; i < count; i++)
        if (p[i].peer == peer && gpu_piece_bytes(&p[i]) > 0)
            BURST_TRY(add_landing(g, &p[i], sending, out));
    return BURST_OK;
}

/* ---- flags ---- */
/* The flag's address in its reader's memory; `writer`: the writing rank's index on the host. */
static CUdeviceptr flag_at(const BurstGpu *g, const char *memory, int channel, int writer, int kind)
{
    const size_t number = (size_t)((channel * PEERS_MOST + writer) * KINDS + kind);
    return (CUdeviceptr)(memory + gpu_flags_at(g)) + number * sizeof(uint64_t);
}

static uint32_t *count_of(BurstGpu *g, int channel, const Peer *p, int direction)
{
    return &g->messages[(channel * PEERS_MOST + p->local) * 2 + direction];
}

static uint64_t value_of(uint32_t number, const Landing *l)
{
    return (uint64_t)number << 32 | (l->hash & UINT32_MAX);
}

static void add_write(FlagOps *ops, CUdeviceptr at, uint64_t value)
{
    CUstreamBatchMemOpParams *o = &ops->at[ops->count++];
    *o = CUstreamBatchMemOpParams{};
    o->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    o->writeValue.address = at;
    o->writeValue.value64 = value;
    o->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
}

static void add_wait(FlagOps *ops, CUdeviceptr at, uint64_t value)
{
    CUstreamBatchMemOpParams *o = &ops->at[ops->count++];
    *o = CUstreamBatchMemOpParams{};
    o->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    o->waitValue.address = at;
    o->waitValue.value64 = value;
    o->waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
}

int gpu_queue_flag_ops(BurstGpu *g, cudaStream_t stream, FlagOps *ops)
{
    if (ops->count == 0)
        return BURST_OK;
    const CUresult e = g->flag_ops(stream, ops->count, ops->at, 0);
    ops->count = 0;
    if (e == CUDA_SUCCESS)
        return BURST_OK;
    g->broken = true;
    return burst_fail(g->ctx, BURST_E_PLAN,
                      "CUDA device %d: memory operations of a stream failed with error %d", g->device,
                      (int)e);
}

/* ---- moving ---- */
static int push_to(BurstGpu *g, int channel, const Peer *to, const BurstPiece *p, int count)
{
    for (int i = 0; i < count; i++) {
        if (p[i].peer != to->rank || gpu_piece_bytes(&p[i]) == 0)
            continue;
        char *there = to->memory + ((char *)p[i].lands - g->memory);
        BURST_TRY(
            gpu_copy_rows(g, gpu_stream(g, channel), p[i].data, p[i].pitch, there, p[i].lands_pitch, &p[i]));
    }
    return BURST_OK;
}

/* Tells each sending peer that its message may come. */
static int make_ready(BurstGpu *g, int channel, const BurstPiece *receive, int receives, FlagOps *ops)
{
    const int me = host_local(g->ctx);
    for (int i = 0; i < g->peers; i++) {
        const Peer *from = &g->peer[i];
        Landing l;
        BURST_TRY(gpu_landing(g, receive, receives, from->rank, false, &l));
        if (l.bytes == 0)
            continue;
        const uint64_t value = value_of(++*count_of(g, channel, from, RECEIVED), &l);
        g->expected[channel * PEERS_MOST + from->local] = value;
        add_write(ops, flag_at(g, from->memory, channel, me, READY), value);
    }
    return BURST_OK;
}

int gpu_peers_push(BurstGpu *g, int channel, const BurstPiece *send, int sends, const BurstPiece *receive,
                   int receives, FlagOps *ops)
{
    const int me = host_local(g->ctx);
    BURST_TRY(make_ready(g, channel, receive, receives, ops));
    for (int i = 0; i < g->peers; i++) {
        const Peer *to = &g->peer[i];
        Landing l;
        BURST_TRY(gpu_landing(g, send, sends, to->rank, true, &l));
        if (l.bytes == 0)
            continue;
        const uint64_t value = value_of(++*count_of(g, channel, to, SENT), &l);
        add_wait(ops, flag_at(g, g->memory, channel, to->local, READY), value);
        BURST_TRY(gpu_queue_flag_ops(g, gpu_stream(g, channel), ops));
        BURST_TRY(push_to(g, channel, to, send, sends));
        add_write(ops, flag_at(g, to->memory, channel, me, ARRIVED), value);
    }
    return BURST_OK;
}

static bool expects_from(const Peer *from, const BurstPiece *receive, int receives)
{
    for (int i = 0; i < receives; i++)
        if (receive[i].peer == from->rank && gpu_piece_bytes(&receive[i]) > 0)
            return true;
    return false;
}

int gpu_peers_await(BurstGpu *g, int channel, const BurstPiece *receive, int receives, FlagOps *ops)
{
    for (int i = 0; i < g->peers; i++) {
        const int local = g->peer[i].local;
        if (expects_from(&g->peer[i], receive, receives))
            add_wait(ops, flag_at(g, g->memory, channel, local, ARRIVED),
                     g->expected[channel * PEERS_MOST + local]);
    }
    return gpu_queue_flag_ops(g, gpu_stream(g, channel), ops);
}
