/* ranks.cc: transfer.cu and peer_move.cu on all ranks of a world in one process, without a GPU.
 *
 * Each rank is a thread that queues what a program would; CUDA and NCCL are played by queues of
 * operations. Then all queues run, one operation at a time, in random orders that respect nothing but what
 * the runtime has asked for: so a missing wait shows as wrong numbers, and a circle of waits as a dead
 * end. Streams that share a hardware queue hold each other up as they may on a device; with one queue a
 * rank everything runs in the order of the calls.
 *
 *     ranks [ready | arrived | place | apart]
 *
 * With an argument something is spoilt, and success is that it is noticed: the waits of one kind, or how
 * rank 0 lays its memory out, which shows at the first message (apart), and in a world where nobody looks
 * then (place) stops the streams. */
#include "cuda/move/peer_move.cu"
#include "cuda/move/transfer.cu"
#include "../gpu/traffic.h"

#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>

enum { ROUNDS = 24, CHANNELS = TRAFFIC_CHANNELS, GATHERED = 1000 };
static constexpr size_t MEMORY = (size_t)4 << 20;

/* ---- the world ---- */
struct Group { /* of NCCL: sends that others take, receives */
    struct Message { const char *data; size_t bytes; bool done; };
    struct End { int peer; char *data; size_t bytes; std::shared_ptr<Message> message; };
    std::vector<End> send, receive;
    bool started = false;
};
enum Outcome { BLOCKED, MOVED, DONE };
typedef std::function<Outcome()> Op;
struct CUstream_st { int rank, number; };
struct ncclComm { int rank, channel; BurstGroup ranks; };
typedef std::deque<Op> Queue;

static struct World {
    int shards; /* ranks that share the weights */
    int tensor; /* of these, neighbours that split layers */
    int ranks, queues; /* queues: of the hardware, a rank; streams are dealt out to them */
    std::vector<std::vector<Queue>> queue;
    /* NCCL's: from, to, channel */
    std::map<std::vector<int>, std::deque<std::shared_ptr<Group::Message>>> letters;
    std::map<std::pair<int, int>, std::deque<Landing>> greetings;
    std::mutex lock;
    std::condition_variable posted;
    std::mt19937 random;
    std::string spoil, wrong;
    bool without_greeting;
} world;
static thread_local std::shared_ptr<Group> open_group;
static thread_local ncclComm_t group_comm;
static thread_local cudaStream_t group_stream;

static void wrong(const std::string &text)
{
    std::lock_guard<std::mutex> hold(world.lock);
    if (world.wrong.empty())
        world.wrong = text;
}

static void queue_op(cudaStream_t s, Op op)
{
    std::vector<Queue> &q = world.queue[(size_t)s->rank];
    q[(size_t)s->number % q.size()].push_back(std::move(op));
}

static void queue_run(cudaStream_t s, std::function<void()> run)
{
    queue_op(s, [run] { run(); return DONE; });
}

/* ---- Muon, which is not tried here ---- */
int muon_matrices(BurstCtx *, int, MuonMatrix *, int *) { abort(); }
MuonPart muon_part(const BurstCtx *, int, int, const MuonMatrix *) { abort(); }
int burst_gpu_mark(BurstGpu *, cudaStream_t, BurstMark *) { abort(); }
int burst_gpu_after(BurstGpu *, cudaStream_t, const BurstMark *) { abort(); }

/* ---- CUDA ---- */
extern "C" cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                                       cudaStream_t s)
{
    queue_run(s, [=] { memmove(to, from, bytes); });
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *bytes,
                                            size_t count, cudaMemcpyAttributes *, size_t *, size_t,
                                            cudaStream_t s)
{
    for (size_t i = 0; i < count; i++)
        cudaMemcpyAsync(to[i], from[i], bytes[i], cudaMemcpyDeviceToDevice, s);
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                         size_t width, size_t rows, cudaMemcpyKind, cudaStream_t s)
{
    queue_run(s, [=] {
        for (size_t i = 0; i < rows; i++)
            memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    });
    return width <= to_pitch && width <= from_pitch ? cudaSuccess : cudaErrorInvalidPitchValue;
}

static bool spoilt(CUdeviceptr flag)
{
    const bool arrived = flag / sizeof(uint64_t) % KINDS == ARRIVED;
    return world.spoil == (arrived ? "arrived" : "ready");
}

static CUresult flag_ops(CUstream s, unsigned count, CUstreamBatchMemOpParams *ops, unsigned)
{
    for (unsigned i = 0; i < count; i++) {
        volatile uint64_t *flag = (uint64_t *)ops[i].writeValue.address;
        const uint64_t value = ops[i].writeValue.value64;
        if (ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_64)
            queue_run(s, [=] { *flag = value; });
        else if (!spoilt(ops[i].waitValue.address))
            queue_op(s, [=] { return *flag == value ? DONE : BLOCKED; });
    }
    return CUDA_SUCCESS;
}

extern "C" const char *cudaGetErrorString(cudaError_t) { return "an error"; }
extern "C" cudaError_t cudaGetLastError(void) { return cudaSuccess; }

/* ---- NCCL ---- */
extern "C" ncclResult_t ncclGroupStart(void)
{
    open_group = std::make_shared<Group>();
    return ncclSuccess;
}

static ncclResult_t add_end(std::vector<Group::End> &ends, const void *data, size_t bytes, int peer,
                            ncclComm_t comm, cudaStream_t s)
{
    ends.push_back(Group::End{peer, (char *)data, bytes, nullptr});
    group_comm = comm;
    group_stream = s;
    return ncclSuccess;
}

extern "C" ncclResult_t ncclSend(const void *data, size_t bytes, ncclDataType_t, int peer, ncclComm_t comm,
                                 cudaStream_t s)
{
    return add_end(open_group->send, data, bytes, peer, comm, s);
}

extern "C" ncclResult_t ncclRecv(void *data, size_t bytes, ncclDataType_t, int peer, ncclComm_t comm,
                                 cudaStream_t s)
{
    return add_end(open_group->receive, data, bytes, peer, comm, s);
}

static void post_group(Group *g, int rank, int channel)
{
    for (Group::End &e : g->send) {
        e.message = std::make_shared<Group::Message>(Group::Message{e.data, e.bytes, false});
        world.letters[{rank, e.peer, channel}].push_back(e.message);
    }
    g->started = true;
}

static Outcome step_group(Group *g, int rank, int channel)
{
    if (!g->started) {
        post_group(g, rank, channel);
        return MOVED;
    }
    for (Group::End &e : g->receive) {
        auto &letters = world.letters[{e.peer, rank, channel}];
        if (e.message || letters.empty())
            continue;
        e.message = letters.front();
        letters.pop_front();
        if (e.message->bytes != e.bytes)
            wrong("NCCL: sizes differ");
        else
            memcpy(e.data, e.message->data, e.bytes);
        e.message->done = true;
        return MOVED;
    }
    for (const Group::End &e : g->receive)
        if (!e.message)
            return BLOCKED;
    for (const Group::End &e : g->send)
        if (!e.message->done)
            return BLOCKED;
    return DONE;
}

extern "C" ncclResult_t ncclGroupEnd(void)
{
    std::shared_ptr<Group> g = open_group;
    const int rank = group_comm->rank, channel = group_comm->channel;
    queue_op(group_stream, [=] { return step_group(g.get(), rank, channel); });
    return ncclSuccess;
}

extern "C" ncclResult_t ncclAllGather(const void *shard, void *full, size_t count, ncclDataType_t,
                                      ncclComm_t comm, cudaStream_t s)
{
    const size_t bytes = count * sizeof(BurstBf16);
    ncclGroupStart();
    for (int i = 0; i < comm->ranks.count; i++) {
        char *place = (char *)full + (size_t)i * bytes;
        const int rank = comm->ranks.first + i * comm->ranks.stride;
        if (rank == comm->rank) {
            cudaMemcpyAsync(place, shard, bytes, cudaMemcpyDeviceToDevice, s);
            continue;
        }
        add_end(open_group->send, shard, bytes, rank, comm, s);
        add_end(open_group->receive, place, bytes, rank, comm, s);
    }
    return ncclGroupEnd();
}

extern "C" ncclResult_t ncclReduceScatter(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                                          ncclComm_t, cudaStream_t)
{
    return ncclInvalidUsage;
}

extern "C" ncclResult_t ncclAllReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                      cudaStream_t)
{
    return ncclInvalidUsage;
}

/* ---- the host's runtime ---- */
struct BurstCtx {
    int rank, local;
    Landing shared[PEERS_MOST];
    std::string error;
};
int host_local(const BurstCtx *c) { return c->local; }
void *host_shared(BurstCtx *c) { return c->shared; }
int burst_barrier(BurstCtx *, BurstGroup) { return BURST_OK; }
BurstGroup burst_shard_group(const BurstCtx *c)
{
    return BurstGroup{c->rank / world.shards * world.shards, 1, world.shards};
}
BurstGroup burst_replica_group(const BurstCtx *c)
{
    return BurstGroup{c->rank % world.shards, world.shards, world.ranks / world.shards};
}
BurstGroup burst_tensor_group(const BurstCtx *c)
{
    return BurstGroup{c->rank / world.tensor * world.tensor, 1, world.tensor};
}
BurstGroup burst_unit_group(const BurstCtx *c, int unit)
{
    const BurstGroup all = burst_shard_group(c);
    return unit ? BurstGroup{all.first + c->rank % world.tensor, world.tensor, all.count / world.tensor}
                : all;
}
const BurstUnit *burst_unit(const BurstPlan *, int) { abort(); }
const BurstPlan *host_plan(const BurstCtx *) { abort(); }
HostPart host_part(const BurstCtx *, const BurstUnit *, const BurstTensor *) { abort(); }
int gpu_add(BurstGpu *, cudaStream_t, int64_t, const float *, float *) { return BURST_E_PLAN; }
int gpu_add_activations(BurstGpu *, cudaStream_t, int64_t, const BurstBf16 *, const BurstBf16 *, BurstBf16 *)
{
    return BURST_E_PLAN;
}
int gpu_add_rounded(BurstGpu *, cudaStream_t, int64_t, const float *, bool, BurstBf16 *)
{
    return BURST_E_PLAN;
}
int gpu_widen(BurstGpu *, cudaStream_t, int64_t, const BurstBf16 *, float *) { return BURST_E_PLAN; }
void gpu_part_bytes(BurstGpu *, int, size_t, size_t) {}
int gpu_cuda_failed(BurstGpu *g, cudaError_t, const char *call)
{
    return burst_fail(g->ctx, BURST_E_PLAN, "CUDA: %s", call);
}
int gpu_nccl_failed(BurstGpu *g, ncclResult_t, const char *call)
{
    return burst_fail(g->ctx, BURST_E_PLAN, "NCCL: %s", call);
}

int burst_fail(BurstCtx *c, int code, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    c->error = text;
    return code;
}

/* Copied when it is sent: nobody takes from the sender's memory here. */
int burst_send(BurstCtx *c, int, int peer, const void *data, size_t bytes, BurstReq *r)
{
    std::lock_guard<std::mutex> hold(world.lock);
    Landing l = {};
    if (bytes)
        memcpy(&l, data, bytes);
    world.greetings[{c->rank, peer}].push_back(l);
    world.posted.notify_all();
    *r = BurstReq{};
    return BURST_OK;
}

struct Letter { int peer; void *data; size_t bytes; }; /* that a rank waits for */

int burst_recv(BurstCtx *, int, int peer, void *data, size_t bytes, BurstReq *r)
{
    *r = BurstReq{2, new Letter{peer, data, bytes}};
    return BURST_OK;
}

int burst_wait(BurstCtx *c, BurstReq *r)
{
    if (r->kind != 2)
        return BURST_OK;
    const std::unique_ptr<Letter> letter(static_cast<Letter *>(r->impl));
    r->kind = 0;
    std::unique_lock<std::mutex> hold(world.lock);
    auto &letters = world.greetings[{letter->peer, c->rank}];
    if (!world.posted.wait_for(hold, std::chrono::seconds(60), [&] { return !letters.empty(); }))
        return burst_fail(c, BURST_E_PEER, "nobody greets");
    if (letter->bytes)
        memcpy(letter->data, &letters.front(), letter->bytes);
    letters.pop_front();
    return BURST_OK;
}

/* ---- one rank ---- */
struct Rank {
    BurstCtx ctx = {};
    BurstGpu gpu = {};
    std::vector<uint64_t> memory; /* whole flags */
    std::vector<cudaStream_t> stream;
    std::vector<std::unique_ptr<CUstream_st>> streams;
    std::vector<std::unique_ptr<ncclComm>> comms;
    std::vector<ncclComm_t> comm;
    std::vector<uint8_t> met;
    std::vector<Greeting> greeting;
    std::vector<const Peer *> peer_of;
    std::vector<uint32_t> messages;
    std::vector<uint64_t> expected;
    std::vector<BurstPiece> pieces;
};

static char *take(Rank *r, size_t bytes)
{
    char *at = r->gpu.memory + r->gpu.used;
    r->gpu.used += (bytes + 255) / 256 * 256;
    if (r->gpu.used > r->gpu.bytes)
        abort();
    return at;
}

static float *up(Rank *r, const Floats &x)
{
    float *at = (float *)take(r, x.size() * sizeof(float));
    memcpy(at, x.data(), x.size() * sizeof(float));
    return at;
}

static void open_rank(Rank *r, int rank, int ranks, int hosts)
{
    BurstGpu *g = &r->gpu;
    const int on_host = (ranks + hosts - 1) / hosts;
    r->ctx.rank = rank, r->ctx.local = rank % on_host;
    g->ctx = &r->ctx, g->rank = rank, g->world = ranks, g->channels = CHANNELS, g->bytes = MEMORY;
    r->memory.assign((gpu_flags_at(g) + FLAG_BYTES) / sizeof(uint64_t), 0);
    g->memory = (char *)r->memory.data();
    for (int i = 0; i < CHANNELS + 2; i++) {
        r->streams.push_back(std::make_unique<CUstream_st>(CUstream_st{rank, i}));
        r->comms.push_back(std::make_unique<ncclComm>(ncclComm{rank, i, BurstGroup{0, 1, ranks}}));
        r->stream.push_back(r->streams.back().get());
        r->comm.push_back(r->comms.back().get());
    }
    g->channel = r->stream.data(), g->weights = r->stream[CHANNELS],
    g->compute = g->tensor = r->stream[CHANNELS + 1], g->comm = r->comm.data();
    r->met.assign((size_t)((CHANNELS + 2) * ranks), world.without_greeting ? SENDING | RECEIVING : 0);
    r->greeting.resize((size_t)ranks * 2), r->peer_of.resize((size_t)ranks),
        r->pieces.resize((size_t)ranks * 2);
    r->messages.resize((CHANNELS + 2) * PEERS_MOST * 2), r->expected.resize((CHANNELS + 2) * PEERS_MOST);
    g->met = r->met.data(), g->greeting = r->greeting.data(), g->peer_of = r->peer_of.data(),
    g->pieces = r->pieces.data();
    g->messages = r->messages.data(), g->expected = r->expected.data(), g->flag_ops = flag_ops;
}

static void connect(std::vector<Rank> &all, int hosts)
{
    const int ranks = (int)all.size(), on_host = (ranks + hosts - 1) / hosts;
    for (Rank &r : all) {
        BurstGpu *g = &r.gpu;
        const int first = g->rank / on_host * on_host,
                  last = first + on_host < ranks ? first + on_host : ranks;
        for (int i = 1; i < last - first; i++) {
            const int rank = first + (g->rank - first + i) % (last - first);
            g->peer[g->peers] = Peer{rank, rank - first, all[(size_t)rank].gpu.memory};
            g->peer_of[rank] = &g->peer[g->peers++];
        }
        g->all_peers = hosts == 1;
        const BurstGroup ranks[GPU_GROUPS] = {burst_shard_group(&r.ctx), burst_unit_group(&r.ctx, 1),
                                              burst_replica_group(&r.ctx), burst_tensor_group(&r.ctx),
                                              BurstGroup{g->rank, 1, 1}};
        for (int i = 0; i < GPU_GROUPS; i++) {
            const int end = ranks[i].first + (ranks[i].count - 1) * ranks[i].stride;
            r.comms.push_back(std::make_unique<ncclComm>(ncclComm{g->rank, CHANNELS + i, ranks[i]}));
            g->group[i] = Members{ranks[i], r.comms.back().get(), ranks[i].first / on_host == end / on_host,
                                  0};
        }
    }
}

/* ---- what the ranks do ---- */
struct Results {
    float *slot[CHANNELS][2];
    std::vector<float *> in;
    BurstBf16 *first, *full;
    BurstBf16 *own, *all, *split; /* of tensor ranks, computed with before and after; of a split unit */
};

static void count_up(cudaStream_t s, float *x, int n)
{
    queue_run(s, [=] {
        for (int i = 0; i < n; i++)
            x[i] += 1;
    });
}

static int hops(Rank *r, Results *out)
{
    const int me = r->gpu.rank, ranks = r->gpu.world;
    for (int round = 0; round < ROUNDS; round++)
        for (int channel = 0; channel < CHANNELS; channel++) {
            const int length = hop_length(channel, round, ranks);
            BurstBuffer send[PARTS], receive[PARTS];
            buffers_of(out->slot[channel], channel, round, send, receive);
            BURST_TRY(burst_gpu_hop(&r->gpu, channel, send, PARTS, (me + length) % ranks, receive, PARTS,
                                    (me + ranks - length) % ranks));
            for (int p = 0; p < PARTS; p++)
                count_up(r->gpu.channel[channel], (float *)receive[p].data, part_of(channel, round, p).count);
        }
    return BURST_OK;
}

static int exchange(Rank *r, Results *out)
{
    const int ranks = r->gpu.world;
    const size_t packing_bytes = (size_t)(4 * ranks * PIECE) * sizeof(float);
    std::vector<float *> from;
    std::vector<BurstPiece> send, receive;
    for (int i = 0; i < ranks; i++) {
        out->in.push_back(up(r, Floats(PIECE, 2.0f)));
        from.push_back(up(r, piece_memory(r->gpu.rank, i, false)));
    }
    char *packing = take(r, packing_bytes);
    pieces_of_rank(r->gpu.rank, ranks, from, out->in, &send, &receive);
    return burst_gpu_exchange(&r->gpu, 1, send.data(), (int)send.size(), receive.data(), (int)receive.size(),
                              packing, packing_bytes);
}

static BurstBf16 shard_number(int rank, int i, int time)
{
    return __ushort_as_bfloat16((uint16_t)(1 + rank * 4096 + i * 4 + time));
}

/* Twice into the same memory, with what came first copied away in between. */
static int gathers(Rank *r, Results *out)
{
    const size_t bytes = (size_t)r->gpu.world * GATHERED * sizeof(BurstBf16);
    out->full = (BurstBf16 *)take(r, bytes), out->first = (BurstBf16 *)take(r, bytes),
    out->split = (BurstBf16 *)take(r, bytes);
    out->own = (BurstBf16 *)take(r, GATHERED * sizeof(BurstBf16)), out->all = (BurstBf16 *)take(r, bytes);
    for (int time = 0; time < 2; time++) {
        BurstBf16 *shard = (BurstBf16 *)take(r, GATHERED * sizeof *shard);
        for (int i = 0; i < GATHERED; i++)
            shard[i] = shard_number(r->gpu.rank, i, time);
        BURST_TRY(burst_gpu_gather(&r->gpu, 0, shard, GATHERED, out->full));
        if (time == 0)
            cudaMemcpyAsync(out->first, out->full, bytes, cudaMemcpyDeviceToDevice, r->gpu.weights);
        if (time == 1)
            BURST_TRY(burst_gpu_gather(&r->gpu, 1, shard, GATHERED, out->split));
    }
    return BURST_OK;
}

/* Twice into the same memory: what is gathered becomes the next own, so that a gather that does not wait
 * for its stream, or a stream that does not wait for a gather, is wrong. */
static int tensor_gathers(Rank *r, Results *out)
{
    const size_t bytes = GATHERED * sizeof(BurstBf16);
    const int turn = r->gpu.rank % world.tensor, next = (turn + 1) % world.tensor;
    BurstBf16 *own = out->own, *all = out->all;
    for (int i = 0; i < GATHERED; i++)
        own[i] = shard_number(r->gpu.rank, i, 2);
    for (int time = 0; time < 2; time++) {
        BURST_TRY(burst_gpu_tensor_gather(&r->gpu, GATHERED, own, all));
        if (time == 0)
            cudaMemcpyAsync(own, all + next * GATHERED, bytes, cudaMemcpyDeviceToDevice, r->gpu.compute);
    }
    return BURST_OK;
}

static int queue_all(Rank *r, Results *out)
{
    for (int channel = 0; channel < CHANNELS; channel++) {
        const Slots first = first_slots(channel, r->gpu.world);
        for (int i = 0; i < 2; i++)
            out->slot[channel][i] = up(r, first[(size_t)(r->gpu.rank * 2 + i)]);
    }
    if (world.spoil == "apart" || world.spoil == "place")
        take(r, r->gpu.rank == 0 ? 4096 : 1);
    BURST_TRY(gathers(r, out));
    BURST_TRY(tensor_gathers(r, out));
    BURST_TRY(exchange(r, out));
    return hops(r, out);
}

/* ---- running ---- */
static void run_queues(void)
{
    std::vector<Queue *> all;
    for (auto &rank : world.queue)
        for (Queue &q : rank)
            all.push_back(&q);
    for (bool moved = true; moved;) {
        moved = false;
        if (world.random() % 8 == 0)
            std::shuffle(all.begin(), all.end(), world.random);
        for (size_t i = 0; i < all.size() && !moved; i++) {
            if (all[i]->empty())
                continue;
            const Outcome o = all[i]->front()();
            moved = o != BLOCKED;
            if (o == DONE)
                all[i]->pop_front();
        }
    }
    for (Queue *q : all)
        if (!q->empty())
            wrong("a dead end");
}

static void check_rank(const Rank &r, const Results &is, const std::vector<Slots> &model)
{
    const int me = r.gpu.rank, ranks = r.gpu.world;
    for (int channel = 0; channel < CHANNELS; channel++)
        for (int i = 0; i < 2; i++)
            if (memcmp(is.slot[channel][i], model[(size_t)channel][(size_t)(me * 2 + i)].data(),
                       SLOT * sizeof(float)) != 0)
                wrong("a sequence of hops");
    for (int i = 0; i < ranks; i++)
        if (memcmp(is.in[(size_t)i], piece_memory(i, me, true).data(), PIECE * sizeof(float)) != 0)
            wrong("an exchange");
    for (int i = 0; i < world.shards * GATHERED; i++)
        for (int time = 0; time < 2; time++) {
            const BurstBf16 should = shard_number(me / world.shards * world.shards + i / GATHERED,
                                                  i % GATHERED, time);
            if (memcmp(time ? &is.full[i] : &is.first[i], &should, sizeof should) != 0)
                wrong("a gather");
        }
    const int shards = me / world.shards * world.shards, tensor = me / world.tensor * world.tensor;
    for (int i = 0; i < world.shards / world.tensor * GATHERED; i++) {
        const BurstBf16 should = shard_number(shards + me % world.tensor + i / GATHERED * world.tensor,
                                              i % GATHERED, 1);
        if (memcmp(&is.split[i], &should, sizeof should) != 0)
            wrong("a gather of a split unit");
    }
    for (int i = 0; i < world.tensor * GATHERED; i++) {
        const BurstBf16 should = shard_number(tensor + (i / GATHERED + 1) % world.tensor, i % GATHERED, 2);
        if (memcmp(&is.all[i], &should, sizeof should) != 0)
            wrong("a gather of tensor ranks");
    }
}

static void run_world(int ranks, int hosts, int queues, unsigned seed, const std::vector<Slots> &model)
{
    world.ranks = ranks;
    /* a host's, every other time */
    world.shards = ranks % hosts == 0 && hosts < ranks && seed % 2 ? ranks / hosts : ranks;
    world.tensor = world.shards % 2 == 0 && seed > 0 ? 2 : 1;
    world.queue.assign((size_t)ranks, std::vector<Queue>((size_t)queues));
    world.letters.clear();
    world.greetings.clear();
    world.random.seed(seed);
    std::vector<Rank> all((size_t)ranks);
    std::vector<Results> results((size_t)ranks);
    std::vector<std::thread> threads;
    for (int i = 0; i < ranks; i++)
        open_rank(&all[(size_t)i], i, ranks, hosts);
    connect(all, hosts);
    for (int i = 0; i < ranks; i++)
        threads.emplace_back([&, i] {
            if (queue_all(&all[(size_t)i], &results[(size_t)i]) != BURST_OK)
                wrong(all[(size_t)i].ctx.error);
        });
    for (std::thread &t : threads)
        t.join();
    if (world.wrong.empty())
        run_queues();
    if (world.wrong.empty())
        for (int i = 0; i < ranks; i++)
            check_rank(all[(size_t)i], results[(size_t)i], model);
}

/* Every number of queues a rank, and one host, several, and as many as there are ranks. */
static void run_all(int ranks)
{
    std::vector<Slots> model;
    for (int channel = 0; channel < CHANNELS; channel++) {
        model.push_back(first_slots(channel, ranks));
        for (int round = 0; round < ROUNDS; round++)
            model_round(model.back(), channel, round, ranks);
    }
    for (int hosts : {1, 2, ranks})
        for (int queues : {1, 2, CHANNELS + 2})
            for (unsigned seed = 0; seed < 3 && world.wrong.empty(); seed++) {
                run_world(ranks, hosts, queues, seed, model);
                if (!world.wrong.empty())
                    printf("%d ranks on %d hosts, %d queues, order %u: %s\n", ranks, hosts, queues, seed,
                           world.wrong.c_str());
            }
}

/* What is said when the spoilt thing is noticed. */
static const char *const noticed[][2] = {{"ready", "a "},
                                         {"arrived", "a "},
                                         {"apart", "of its device memory, but it expects"},
                                         {"place", "a dead end"}};

int main(int argc, char **argv)
{
    const char *expected = "";
    world.spoil = argc > 1 ? argv[1] : "";
    world.without_greeting = world.spoil == "place";
    for (int ranks : {2, 3, 4, 5})
        run_all(ranks);
    for (auto &row : noticed)
        if (world.spoil == row[0])
            expected = row[1];
    const bool right = *expected ? world.wrong.find(expected) != std::string::npos
                                 : world.spoil.empty() && world.wrong.empty();
    printf("%s: %s\n", *expected ? "the mistake is noticed" : "all orders are right", right ? "yes" : "NO");
    return !right;
}
