/* streams.cc: see streams.h. */
#include "streams.h"

#include <cmath>
#include <cstdarg>

World world;

static void wrong(const std::string &text)
{
    if (world.wrong.empty())
        world.wrong = text;
}

void world_make(int ranks, int channels, size_t bytes)
{
    world.gpu.clear();
    for (int r = 0; r < ranks; r++) {
        auto g = std::make_unique<BurstGpu>();
        g->rank = r;
        g->stream.resize((size_t)channels + 4);
        g->exchanges.resize((size_t)channels);
        g->memory.assign(bytes, (char)0x7f); /* as bf16 and as fp32 about 3e38 */
        g->used = 0;
        world.gpu.push_back(std::move(g));
    }
}

/* ---- the runtime's functions ---- */

void *burst_gpu_take(BurstGpu *g, size_t bytes)
{
    if (g->used + bytes + GUARD > g->memory.size())
        return nullptr;
    char *at = &g->memory[g->used];
    g->taken.push_back({g->used, bytes});
    g->used = (g->used + bytes + GUARD + 255) / 256 * 256;
    return at;
}

cudaStream_t burst_gpu_compute(BurstGpu *g) { return &g->stream.back(); }
cudaStream_t burst_gpu_weights(BurstGpu *g) { return &g->stream[g->stream.size() - 2]; }
cudaStream_t burst_gpu_copies(BurstGpu *g) { return &g->stream[g->stream.size() - 3]; }
cudaStream_t burst_gpu_tensor(BurstGpu *g) { return &g->stream[g->stream.size() - 4]; }
cudaStream_t burst_gpu_channel(BurstGpu *g, int channel) { return &g->stream[(size_t)channel]; }

int burst_gpu_mark(BurstGpu *, cudaStream_t stream, BurstMark *m)
{
    if (!m->set) {
        world.event.push_back(std::make_unique<Event>());
        m->event = world.event.back().get();
        m->set = 1;
    }
    Event *e = m->event;
    const int version = ++e->version;
    stream->queue.push_back(Op{[e, version] { e->done = std::max(e->done, version); }});
    return BURST_OK;
}

int burst_gpu_mark_too(BurstGpu *g, const BurstMark *, BurstMark *m)
{
    return burst_gpu_mark(g, burst_gpu_compute(g), m);
}

int burst_gpu_after(BurstGpu *, cudaStream_t stream, const BurstMark *m)
{
    if (m->set && !world.without_waits)
        stream->queue.push_back(Op{[] {}, m->event, m->event->version});
    return BURST_OK;
}

int burst_gpu_part(BurstGpu *, cudaStream_t, int, int, int) { return BURST_OK; }

void *burst_gpu_take_host(BurstGpu *g, size_t bytes)
{
    g->host.assign(bytes, (char)0x7f);
    return g->host.data();
}

int burst_gpu_copy(BurstGpu *g, const void *from, void *to, size_t bytes)
{
    burst_gpu_copies(g)->queue.push_back(Op{[=] { memcpy(to, from, bytes); }});
    return BURST_OK;
}

static void queue_compute(BurstGpu *g, std::function<void()> run)
{
    g->stream.back().queue.push_back(Op{std::move(run)});
}

int burst_gpu_zero(BurstGpu *g, void *data, size_t bytes)
{
    queue_compute(g, [=] { memset(data, 0, bytes); });
    return BURST_OK;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    stream->queue.push_back(Op{[=] { memset(at, value, bytes); }});
    return cudaSuccess;
}

cudaError_t cudaMemset2DAsync(void *at, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    for (size_t row = 0; row < height; row++)
        cudaMemsetAsync((char *)at + row * pitch, value, width, stream);
    return cudaSuccess;
}

int burst_gpu_add_floats(BurstGpu *, cudaStream_t stream, int64_t count, const float *x, float *y)
{
    stream->queue.push_back(Op{[=] {
        for (int64_t i = 0; i < count; i++)
            y[i] += x[i];
    }});
    return BURST_OK;
}

int burst_gpu_add_rows(BurstGpu *g, cudaStream_t stream, int64_t rows, int64_t count, int64_t pitch,
                       const float *x, float *y)
{
    for (int64_t row = 0; row < rows; row++)
        burst_gpu_add_floats(g, stream, count, x + row * pitch, y + row * pitch);
    return BURST_OK;
}

int burst_gpu_upload(BurstGpu *g, const void *host, size_t bytes, void *device)
{
    std::vector<char> copy((const char *)host, (const char *)host + bytes);
    queue_compute(g, [=] { memcpy(device, copy.data(), bytes); });
    return BURST_OK;
}

int burst_op_delta(BurstGpu *g, int64_t n, int heads, int d, const BurstBf16 *o, const BurstBf16 *d_o,
                    float *delta)
{
    queue_compute(g, [=] {
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < n; i++) {
                double sum = 0;
                for (int64_t x = 0; x < d; x++) {
                    const int64_t at = (i * heads + h) * d + x;
                    sum += (double)__bfloat162float(o[at]) * __bfloat162float(d_o[at]);
                }
                delta[h * n + i] = (float)sum;
            }
    });
    return BURST_OK;
}

int burst_gpu_merge_output(BurstGpu *g, int heads, int64_t tokens, BurstTileRanges, int d, bool first,
                           const float *o_in, const float *lse_in, float *o, float *lse)
{
    queue_compute(g, [=] {
        for (int64_t row = 0; row < heads * tokens; row++) {
            const double from_in = std::exp((double)lse_in[row]),
                         own = first ? 0 : std::exp((double)lse[row]), sum = from_in + own;
            for (int64_t x = row * d; x < (row + 1) * d; x++)
                o[x] = (float)(((from_in > 0 ? from_in * o_in[x] : 0) + (own > 0 ? own * o[x] : 0)) /
                               (sum > 0 ? sum : 1));
            lse[row] = (float)std::log(sum);
        }
    });
    return BURST_OK;
}

/* ---- exchanges ---- */

static bool is_packed(const BurstPiece &p, int rank)
{
    return world.packed && p.peer != rank &&
           burst_gpu_packing((int64_t)p.width, (int64_t)p.rows, (int64_t)p.pitch) > 0;
}

static void place(const std::vector<BurstPiece> &pieces, int rank, char *packing, size_t bytes, size_t *used,
                  std::vector<char *> *at)
{
    for (const BurstPiece &p : pieces) {
        at->push_back(is_packed(p, rank) ? packing + *used : (char *)p.data);
        if (is_packed(p, rank))
            *used += (size_t)burst_gpu_packing((int64_t)p.width, (int64_t)p.rows, (int64_t)p.pitch);
    }
    if (*used > bytes)
        wrong("rank " + std::to_string(rank) + " needs more packing memory than it has");
}

int burst_gpu_exchange(BurstGpu *g, int channel, const BurstPiece *send, int sends, const BurstPiece *receive,
                       int receives, void *packing, size_t packing_bytes)
{
    auto e = std::make_shared<Exchange>();
    size_t used = 0;
    e->channel = channel;
    e->number = g->exchanges[(size_t)channel]++;
    e->send.assign(send, send + sends);
    e->receive.assign(receive, receive + receives);
    e->sent.resize((size_t)sends);
    e->received.resize((size_t)receives);
    place(e->send, g->rank, (char *)packing, packing_bytes, &used, &e->send_at);
    place(e->receive, g->rank, (char *)packing, packing_bytes, &used, &e->receive_at);
    g->stream[(size_t)channel].queue.push_back(Op{nullptr, nullptr, 0, e});
    return BURST_OK;
}

/* A hop is an exchange of one piece a buffer. */
int burst_gpu_hop(BurstGpu *g, int channel, const BurstBuffer *out, int sends, int to, const BurstBuffer *in,
                  int receives, int from)
{
    std::vector<BurstPiece> send, receive;
    for (int i = 0; i < sends; i++)
        send.push_back(
            BurstPiece{to, out[i].data, out[i].bytes, 1, out[i].bytes, out[i].lands, out[i].bytes});
    for (int i = 0; i < receives; i++)
        receive.push_back(BurstPiece{from, in[i].data, in[i].bytes, 1, in[i].bytes, nullptr, 0});
    return burst_gpu_exchange(g, channel, send.data(), sends, receive.data(), receives, nullptr, 0);
}

static void copy_rows(const BurstPiece &p, const char *from, size_t from_pitch, char *to, size_t to_pitch)
{
    for (size_t r = 0; r < p.rows; r++)
        memcpy(to + r * to_pitch, from + r * from_pitch, p.width);
}

static void start(int rank, Exchange *e)
{
    for (size_t i = 0; i < e->send.size(); i++)
        if (is_packed(e->send[i], rank))
            copy_rows(e->send[i], (const char *)e->send[i].data, e->send[i].pitch, e->send_at[i],
                      e->send[i].width);
    e->started = true;
}

static void finish(int rank, Exchange *e)
{
    for (size_t i = 0; i < e->receive.size(); i++)
        if (is_packed(e->receive[i], rank))
            copy_rows(e->receive[i], e->receive_at[i], e->receive[i].width, (char *)e->receive[i].data,
                      e->receive[i].pitch);
}

/* The exchange that the rank's channel stands at, if it is this one and has started. */
static Exchange *partner(int rank, const Exchange *e)
{
    std::deque<Op> &queue = world.gpu[(size_t)rank]->stream[(size_t)e->channel].queue;
    Exchange *x = queue.empty() ? nullptr : queue.front().exchange.get();
    return x && x->number == e->number && x->started ? x : nullptr;
}

static size_t next_of(const std::vector<BurstPiece> &pieces, const std::vector<bool> &moved, int peer)
{
    size_t i = 0;
    while (i < pieces.size() && (moved[i] || pieces[i].peer != peer))
        i++;
    return i;
}

/* Moves the first piece that a rank has left for another; both must mean the same. */
static void move_piece(int from, Exchange *sender, size_t i, int to, Exchange *receiver)
{
    const BurstPiece &p = sender->send[i];
    const size_t j = next_of(receiver->receive, receiver->received, from);
    sender->sent[i] = true;
    if (j == receiver->receive.size()) {
        wrong("rank " + std::to_string(to) + " expects fewer pieces");
        return;
    }
    const BurstPiece &q = receiver->receive[j];
    receiver->received[j] = true;
    const ptrdiff_t lands = (char *)p.lands - world.gpu[(size_t)from]->memory.data();
    if (p.width != q.width || p.rows != q.rows ||
        lands != (char *)q.data - world.gpu[(size_t)to]->memory.data() ||
        (p.rows > 1 && p.lands_pitch != q.pitch))
        wrong("ranks " + std::to_string(from) + " and " + std::to_string(to) + " do not agree on a piece");
    else
        copy_rows(p, sender->send_at[i], is_packed(p, from) ? p.width : p.pitch, receiver->receive_at[j],
                  is_packed(q, to) ? q.width : q.pitch);
}

/* One step of the exchange at the head of a stream: whether there was one. */
static bool step(int rank, Exchange *e)
{
    if (!e->started) {
        start(rank, e);
        return true;
    }
    for (size_t i = 0; i < e->send.size(); i++)
        if (Exchange *peer = e->sent[i] ? nullptr : partner(e->send[i].peer, e)) {
            move_piece(rank, e, i, e->send[i].peer, peer);
            return true;
        }
    return false;
}

static bool ended(const Exchange *e)
{
    for (size_t i = 0; i < e->sent.size(); i++)
        if (!e->sent[i])
            return false;
    for (size_t i = 0; i < e->received.size(); i++)
        if (!e->received[i])
            return false;
    return e->started;
}

/* ---- groups ---- */

static BurstGroup tensor_ranks(int rank)
{
    return BurstGroup{rank / world.tensor * world.tensor, 1, world.tensor};
}

static BurstGroup unit_ranks(int rank, int unit)
{
    const int stride = unit > 0 && unit <= world.layers ? world.tensor : 1;
    return BurstGroup{rank % stride, stride, (int)world.gpu.size() / stride};
}

static int together(BurstGpu *g, Collective c)
{
    g->stream[c.stream].queue.push_back(Op{nullptr, nullptr, 0, nullptr, std::make_shared<Collective>(c)});
    return BURST_OK;
}

static size_t weights_of(BurstGpu *g) { return g->stream.size() - 2; }
static size_t tensor_of(BurstGpu *g) { return g->stream.size() - 4; }

int burst_gpu_gather(BurstGpu *g, int unit, const BurstBf16 *shard, int64_t elements, BurstBf16 *full)
{
    return together(g, {GATHER, weights_of(g), unit_ranks(g->rank, unit), elements, shard, full, nullptr,
                        nullptr, false, nullptr});
}

int burst_gpu_reduce(BurstGpu *g, int unit, float *full, int64_t elements, float *shard, bool add)
{
    return together(g, {REDUCE, weights_of(g), unit_ranks(g->rank, unit), elements, nullptr, nullptr, full,
                        shard, add, nullptr});
}

int burst_gpu_reduce_bf16(BurstGpu *g, int unit, float *full, int64_t elements, BurstBf16 *shard, bool add)
{
    return together(g, {REDUCE, weights_of(g), unit_ranks(g->rank, unit), elements, nullptr, nullptr, full,
                        nullptr, add, shard});
}

int burst_gpu_tensor_gather(BurstGpu *g, int64_t elements, const BurstBf16 *own, BurstBf16 *all)
{
    return together(g, {GATHER, tensor_of(g), tensor_ranks(g->rank), elements, own, all, nullptr, nullptr,
                        false, nullptr});
}

int burst_gpu_tensor_scatter(BurstGpu *g, int64_t elements, BurstBf16 *parts, const BurstBf16 *add,
                             BurstBf16 *own)
{
    return together(g, {SCATTER, tensor_of(g), tensor_ranks(g->rank), elements, add, parts, nullptr, nullptr,
                        false, own});
}

int burst_gpu_tensor_all_reduce(BurstGpu *g, int64_t elements, const float *part, float *all)
{
    return together(g, {SUM, tensor_of(g), tensor_ranks(g->rank), elements, nullptr, nullptr, (float *)part,
                        all, false, nullptr});
}

void world_sum(BurstGpu *g, float *x, int64_t elements)
{
    together(g, {SUM, weights_of(g), tensor_ranks(g->rank), elements, nullptr, nullptr, x, nullptr, false,
                 nullptr});
}

/* What the stream of a rank stands at, if that is one. */
static Collective *collective_of(int rank, size_t stream)
{
    std::deque<Op> &queue = world.gpu[(size_t)rank]->stream[stream].queue;
    return queue.empty() ? nullptr : queue.front().collective.get();
}

static void gather(const std::vector<Collective *> &all, int64_t elements)
{
    for (Collective *to : all)
        for (size_t i = 0; i < all.size(); i++)
            memcpy(to->whole + (int64_t)i * elements, all[i]->part, (size_t)elements * sizeof(BurstBf16));
}

static double value_of(float x) { return x; }
static double value_of(BurstBf16 x) { return __bfloat162float(x); }

/* sums[i]: element i of the sum. */
template <class T>
static std::vector<double> sums(const std::vector<Collective *> &all, T Collective::*of, int64_t from,
                                int64_t elements)
{
    std::vector<double> sum((size_t)elements);
    for (Collective *c : all)
        for (int64_t i = 0; i < elements; i++)
            sum[(size_t)i] += value_of((c->*of)[from + i]);
    return sum;
}

static void reduce(const std::vector<Collective *> &all, int64_t elements)
{
    for (size_t r = 0; r < all.size(); r++) {
        const std::vector<double> sum = sums(all, &Collective::sum, (int64_t)r * elements, elements);
        for (int64_t i = 0; i < elements; i++)
            if (all[r]->own)
                all[r]->own[i] = __float2bfloat16((float)sum[(size_t)i] +
                                                  (all[r]->adds ? __bfloat162float(all[r]->own[i]) : 0));
            else
                all[r]->shard[i] = (float)sum[(size_t)i] + (all[r]->adds ? all[r]->shard[i] : 0);
    }
    for (Collective *c : all)
        memset(c->sum, 0x7f, (size_t)elements * all.size() * sizeof *c->sum);
}

/* The sum is rounded before anything is added to it. */
static void scatter(const std::vector<Collective *> &all, int64_t elements)
{
    std::vector<std::vector<double>> sum;
    for (size_t r = 0; r < all.size(); r++)
        sum.push_back(sums(all, &Collective::whole, (int64_t)r * elements, elements));
    for (size_t r = 0; r < all.size(); r++) {
        memset((void *)all[r]->whole, 0x7f, (size_t)elements * all.size() * sizeof(BurstBf16));
        for (int64_t i = 0; i < elements; i++) {
            const float rounded = __bfloat162float(__float2bfloat16((float)sum[r][(size_t)i]));
            all[r]->own[i] = __float2bfloat16(rounded +
                                              (all[r]->part ? __bfloat162float(all[r]->part[i]) : 0));
        }
    }
}

static void add_up(const std::vector<Collective *> &all, int64_t elements)
{
    const std::vector<double> sum = sums(all, &Collective::sum, 0, elements);
    for (Collective *c : all)
        for (int64_t i = 0; i < elements; i++)
            (c->shard ? c->shard : c->sum)[i] = (float)sum[(size_t)i];
}

/* When all of its ranks stand at it: all of them at once. */
static bool collect(const Collective *first)
{
    static void (*const done[])(const std::vector<Collective *> &, int64_t) = {gather, reduce, scatter,
                                                                               add_up};
    const BurstGroup ranks = first->ranks;
    const size_t stream = first->stream;
    std::vector<Collective *> all;
    for (int i = 0; i < ranks.count; i++) {
        Collective *c = collective_of(ranks.first + i * ranks.stride, stream);
        if (!c || memcmp(&c->ranks, &ranks, sizeof ranks) != 0) /* it stands at one of another group */
            return false;
        if (c->kind != first->kind || c->elements != first->elements) {
            wrong("ranks meet in different collectives");
            return false;
        }
        all.push_back(c);
    }
    done[first->kind](all, first->elements);
    for (int i = 0; i < ranks.count; i++)
        world.gpu[(size_t)(ranks.first + i * ranks.stride)]->stream[stream].queue.pop_front();
    return true;
}

/* ---- running ---- */

static bool advance(BurstGpu *g, Stream *s)
{
    if (s->queue.empty())
        return false;
    Op &op = s->queue.front();
    if (op.waits && op.waits->done < op.version)
        return false;
    if (op.collective)
        return collect(op.collective.get());
    if (op.exchange && !ended(op.exchange.get()))
        return step(g->rank, op.exchange.get());
    if (op.exchange)
        finish(g->rank, op.exchange.get());
    else
        op.run();
    s->queue.pop_front();
    return true;
}

/* Streams in a random order of preference, which changes now and then. */
void world_run()
{
    std::vector<std::pair<BurstGpu *, Stream *>> all;
    for (auto &g : world.gpu)
        for (Stream &s : g->stream)
            all.push_back({g.get(), &s});
    for (bool moved = true; moved;) {
        moved = false;
        if (world.random() % 8 == 0)
            std::shuffle(all.begin(), all.end(), world.random);
        for (size_t i = 0; i < all.size() && !moved; i++)
            moved = advance(all[i].first, all[i].second);
    }
    for (auto &x : all)
        if (!x.second->queue.empty())
            wrong("rank " + std::to_string(x.first->rank) + " waits for ever");
}

void world_check_guards()
{
    for (auto &g : world.gpu)
        for (auto &t : g->taken)
            for (size_t i = 0; i < GUARD; i++)
                if (g->memory[t.first + t.second + i] != (char)0x7f)
                    wrong("a buffer of " + std::to_string(t.second) + " bytes is overrun");
}
