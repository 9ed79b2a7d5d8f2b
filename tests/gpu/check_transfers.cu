/* check_transfers.cu: hops, exchange, gather and reduce between all ranks, ordered by marks; long
 * sequences of hops on many channels; host copies. The transport is BURST_TRANSPORT's. */
#include "check.h"
#include "traffic.h"

#include <math.h>

enum { COUNT = 3001 };

/* What rank sends as its i-th buffer. */
static Floats pattern(int rank, int i)
{
    return random_floats(COUNT, 1000u + 10u * (unsigned)rank + (unsigned)i, 1);
}

static Doubles exact(const Floats &x)
{
    return Doubles(x.begin(), x.end());
}

static BurstBuffer buffer(float *at, float *lands)
{
    return BurstBuffer{at, COUNT * sizeof *at, lands};
}

static float *empty(Check *k)
{
    return (float *)poisoned(k, COUNT * sizeof(float));
}

/* The hop must see what the compute stream queued before the mark, and the download what the hop received. */
static void check_hop(Check *k, int world)
{
    const int me = burst_rank(k->c), to = (me + 1) % world, from = (me + world - 1) % world;
    BurstMark filled = {}, arrived = {}, never = {};
    float *first = empty(k), *second = empty(k);
    BurstBuffer out[2] = {buffer(up(k, pattern(me, 0)), first), buffer(up(k, pattern(me, 1)), second)};
    BurstBuffer in[2] = {buffer(first, NULL), buffer(second, NULL)};
    MUST(k, burst_gpu_mark(k->g, burst_gpu_compute(k->g), &filled));
    MUST(k, burst_gpu_after(k->g, burst_gpu_channel(k->g, 0), &filled));
    MUST(k, burst_gpu_after(k->g, burst_gpu_channel(k->g, 0), &never));
    MUST(k, burst_gpu_hop(k->g, 0, out, 2, to, in, 2, from));
    MUST(k, burst_gpu_mark(k->g, burst_gpu_channel(k->g, 0), &arrived));
    MUST(k, burst_gpu_after(k->g, burst_gpu_compute(k->g), &arrived));
    compare(k, "hop, first buffer", down(k, first, COUNT), exact(pattern(from, 0)), 0);
    compare(k, "hop, second buffer", down(k, second, COUNT), exact(pattern(from, 1)), 0);
}

/* Only the first rank sends, only the last receives. */
static void check_one_way(Check *k, int world)
{
    const int me = burst_rank(k->c), last = world - 1;
    float *at = me == 0 ? up(k, pattern(0, 2)) : empty(k); /* taken by all: memory is laid out alike */
    if (world == 1 || (me > 0 && me < last))
        return;
    const BurstBuffer b = buffer(at, me == 0 ? at : NULL);
    MUST(k, burst_gpu_sync(k->g));
    MUST(k, burst_gpu_hop(k->g, 1, &b, me == 0, last, &b, me == last, 0));
    MUST(k, burst_gpu_sync(k->g));
    compare(k, "hop, one way", down(k, at, COUNT), exact(pattern(0, 2)), 0);
}

/* ---- all-to-all ---- */
static void check_exchange(Check *k, int world)
{
    const int me = burst_rank(k->c);
    std::vector<float *> from(world), in(world);
    std::vector<BurstPiece> send, receive;
    const size_t packing_bytes = (size_t)world * 4 * PIECE * sizeof(float);
    void *packing = poisoned(k, packing_bytes);
    for (int i = 0; i < world; i++) {
        in[i] = up(k, Floats(PIECE, 2.0f));
        from[i] = up(k, piece_memory(me, i, false));
    }
    pieces_of_rank(me, world, from, in, &send, &receive);
    MUST(k, burst_gpu_sync(k->g));
    MUST(k, burst_gpu_exchange(k->g, 1, send.data(), (int)send.size(), receive.data(), (int)receive.size(),
                               packing, packing_bytes));
    MUST(k, burst_gpu_sync(k->g));
    for (int i = 0; i < world; i++)
        compare(k, "exchange", down(k, in[i], PIECE), exact(piece_memory(i, me, true)), 0);
}

/* ---- sequences of hops ---- */
/* Nothing waits in between; streams are held up here and there so that ranks run apart. The host does the
 * same to its model. */
enum { ROUNDS = 120 };

static __global__ void count_up_kernel(float *x, int n)
{
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x))
        x[i] += 1;
}

static __global__ void hold_kernel(long long ticks)
{
    for (const long long begin = clock64(); clock64() - begin < ticks;)
        ;
}

static void queue_round(Check *k, float *const slot[2], int channel, int round, int world)
{
    const int me = burst_rank(k->c), length = hop_length(channel, round, world);
    const cudaStream_t stream = burst_gpu_channel(k->g, channel);
    BurstBuffer out[PARTS], in[PARTS];
    buffers_of(slot, channel, round, out, in);
    if ((round + channel) % 5 == me % 5)
        hold_kernel<<<1, 1, 0, stream>>>(300000);
    MUST(k, burst_gpu_hop(k->g, channel, out, PARTS, (me + length) % world, in, PARTS,
                          (me + world - length) % world));
    for (int p = 0; p < PARTS; p++)
        count_up_kernel<<<4, 256, 0, stream>>>((float *)in[p].data, part_of(channel, round, p).count);
    if (cudaGetLastError() != cudaSuccess)
        MUST(k, burst_fail(k->c, BURST_E_PLAN, "a launch failed"));
}

static void check_sequences(Check *k, int world)
{
    const int me = burst_rank(k->c);
    if (world == 1)
        return;
    float *slot[CHECK_CHANNELS][2];
    std::vector<Slots> model;
    for (int channel = 0; channel < CHECK_CHANNELS; channel++) {
        model.push_back(first_slots(channel, world));
        for (int i = 0; i < 2; i++)
            slot[channel][i] = up(k, model[(size_t)channel][(size_t)(me * 2 + i)]);
    }
    MUST(k, burst_gpu_sync(k->g));
    for (int round = 0; round < ROUNDS; round++)
        for (int channel = 0; channel < CHECK_CHANNELS; channel++) {
            queue_round(k, slot[channel], channel, round, world);
            model_round(model[(size_t)channel], channel, round, world);
        }
    MUST(k, burst_gpu_sync(k->g));
    for (int channel = 0; channel < CHECK_CHANNELS; channel++)
        for (int i = 0; i < 2; i++)
            compare(k, "sequence of hops", down(k, slot[channel][i], SLOT),
                    exact(model[(size_t)channel][(size_t)(me * 2 + i)]), 0);
}

/* Twice into the same memory, with what came first copied away in between; nothing waits. */
static void check_gather(Check *k, int world)
{
    const int me = burst_rank(k->c);
    const size_t count = (size_t)world * COUNT;
    BurstBf16 *shard[2] = {up_bf16(k, pattern(me, 6)), up_bf16(k, pattern(me, 5))};
    BurstBf16 *full = (BurstBf16 *)poisoned(k, count * sizeof *full),
              *first = (BurstBf16 *)poisoned(k, count * sizeof *first);
    Doubles want[2];
    for (int i = 0; i < 2 * world; i++)
        for (float f : pattern(i % world, i < world ? 6 : 5))
            want[i / world].push_back(to_bf16(f));
    MUST(k, burst_gpu_sync(k->g));
    MUST(k, burst_gpu_gather(k->g, 0, shard[0], COUNT, full));
    hold_kernel<<<1, 1, 0, burst_gpu_weights(k->g)>>>(1000000 * me);
    cudaMemcpyAsync(first, full, count * sizeof *full, cudaMemcpyDeviceToDevice, burst_gpu_weights(k->g));
    MUST(k, burst_gpu_gather(k->g, 0, shard[1], COUNT, full));
    MUST(k, burst_gpu_sync(k->g));
    compare(k, "gather", down_bf16(k, first, count), want[0], 0);
    compare(k, "gather again", down_bf16(k, full, count), want[1], 0);
}

/* Some rounds of a part of `count` elements into the same memory, each copied away by ranks that are late in
 * turn; the last two are recorded and run twice. */
static void check_one_shot(Check *k, int world, int count)
{
    enum { GATHERS = 9 };
    const int me = burst_rank(k->c);
    const cudaStream_t stream = burst_gpu_compute(k->g);
    const size_t all = (size_t)world * (size_t)count;
    BurstBf16 *shard[2], *full = (BurstBf16 *)poisoned(k, all * sizeof *full), *kept[GATHERS];
    bool records = false;
    Doubles want[2];
    if (!burst_gpu_gathers_one_shot(k->g, 0))
        return;
    for (int i = 0; i < 2; i++)
        shard[i] = up_bf16(k, pattern(me, 10 + i));
    for (int i = 0; i < 2 * world; i++) {
        const Floats theirs = pattern(i % world, 10 + i / world);
        for (int j = 0; j < count; j++)
            want[i / world].push_back(to_bf16(theirs[(size_t)j]));
    }
    for (BurstBf16 *&each : kept)
        each = (BurstBf16 *)poisoned(k, all * sizeof *each);
    MUST(k, burst_gpu_sync(k->g));
    for (int i = 0; i < GATHERS; i++) {
        if (i == GATHERS - 2)
            MUST(k, burst_gpu_graph_begin(k->g, &records));
        MUST(k, burst_gpu_gather_one_shot(k->g, 0, shard[i % 2], count, full));
        hold_kernel<<<1, 1, 0, stream>>>(i % world == me ? 1000000 : 0);
        cudaMemcpyAsync(kept[i], full, all * sizeof *full, cudaMemcpyDeviceToDevice, stream);
    }
    if (records) {
        MUST(k, burst_gpu_graph_end(k->g));
        MUST(k, burst_gpu_graph_run(k->g));
        MUST(k, burst_gpu_graph_run(k->g));
        MUST(k, burst_gpu_graph_drop(k->g));
    }
    MUST(k, burst_gpu_sync(k->g));
    for (int i = 0; i < GATHERS; i++)
        compare(k, "one-shot gather", down_bf16(k, kept[i], all), want[i % 2], 0);
}

/* Each element is the sum rounded to bf16 once: at most half a unit of its last place away, and what sums
 * in fp32 lose. */
static bool rounded_once(const Floats &got, const Doubles &want)
{
    bool once = true;
    for (size_t i = 0; i < want.size(); i++)
        once &= fabs(got[i] - want[i]) <= ldexp(1, ilogb(want[i]) - 8) + FP32;
    return once;
}

/* Rank i's full is pattern(i, 7), pattern(i, 8) and so on; the sum over ranks replaces what is kept, or is
 * added to it. */
static void check_reduce(Check *k, int world, bool add)
{
    const int me = burst_rank(k->c);
    Floats full, before = pattern(me, 9), before_rounded;
    Doubles sum(COUNT), want, want_rounded;
    for (int piece = 0; piece < world; piece++)
        for (float f : pattern(me, 7 + piece))
            full.push_back(f);
    for (int i = 0; i < world; i++) {
        const Floats theirs = pattern(i, 7 + me);
        for (size_t j = 0; j < COUNT; j++)
            sum[j] += theirs[j];
    }
    for (size_t j = 0; j < COUNT; j++) {
        before_rounded.push_back(to_bf16(before[j]));
        want.push_back(sum[j] + (add ? before[j] : 0));
        want_rounded.push_back(sum[j] + (add ? before_rounded[j] : 0));
    }
    float *shard = up(k, before), *from = up(k, full), *from_again = up(k, full);
    BurstBf16 *rounded = up_bf16(k, before);
    MUST(k, burst_gpu_sync(k->g));
    MUST(k, burst_gpu_reduce(k->g, 0, from, COUNT, shard, add));
    MUST(k, burst_gpu_reduce_bf16(k->g, 0, from_again, COUNT, rounded, add));
    MUST(k, burst_gpu_sync(k->g));
    compare(k, add ? "reduce, add" : "reduce", down(k, shard, COUNT), want, FP32);
    expect(k, add ? "reduce to bf16, add" : "reduce to bf16",
           rounded_once(down_bf16(k, rounded, COUNT), want_rounded));
}

/* More than all staging memory, and not a multiple of a slot. */
void check_copies(Check *k)
{
    const size_t count = (40u << 20) / sizeof(float) + 3;
    const Floats x = random_floats(count, 91, 1);
    compare(k, "upload and download", down(k, up(k, x), count), exact(x), 0);
}

void check_transfers(Check *k)
{
    const int world = burst_world(k->c);
    check_hop(k, world);
    check_one_way(k, world);
    check_exchange(k, world);
    check_sequences(k, world);
    check_gather(k, world);
    check_one_shot(k, world, COUNT / 8 * 8);
    check_one_shot(k, world, COUNT);
    check_reduce(k, world, false);
    check_reduce(k, world, true);
}
