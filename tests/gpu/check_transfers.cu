/* check_transfers.cu: hops, exchange, gather and reduce between all ranks, ordered by marks; host copies. */
#include "check.h"

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

static BurstBuffer buffer(float *at)
{
    return BurstBuffer{at, COUNT * sizeof *at};
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
    BurstBuffer out[2] = {buffer(up(k, pattern(me, 0))), buffer(up(k, pattern(me, 1)))}, in[2] = {buffer(first), buffer(second)};
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
    if (world == 1 || (me > 0 && me < last))
        return;
    float *at = me == 0 ? up(k, pattern(0, 2)) : empty(k);
    const BurstBuffer b = buffer(at);
    MUST(k, burst_gpu_sync(k->g));
    MUST(k, burst_gpu_hop(k->g, 1, &b, me == 0, last, &b, me == last, 0));
    MUST(k, burst_gpu_sync(k->g));
    compare(k, "hop, one way", down(k, at, COUNT), exact(pattern(0, 2)), 0);
}

/* Piece i of a rank goes to rank i, the own one too. */
static void check_exchange(Check *k, int world)
{
    const int me = burst_rank(k->c);
    std::vector<BurstBuffer> out, in;
    std::vector<int> peers;
    for (int i = 0; i < world; i++) {
        peers.push_back(i);
        out.push_back(buffer(up(k, pattern(me, 3 + i))));
        in.push_back(buffer(empty(k)));
    }
    MUST(k, burst_gpu_sync(k->g));
    MUST(k, burst_gpu_exchange(k->g, 1, world, peers.data(), out.data(), in.data()));
    MUST(k, burst_gpu_sync(k->g));
    for (int i = 0; i < world; i++)
        compare(k, "exchange", down(k, (float *)in[i].data, COUNT), exact(pattern(i, 3 + me)), 0);
}

static void check_gather(Check *k, int world)
{
    const int me = burst_rank(k->c);
    BurstBf16 *shard = up_bf16(k, pattern(me, 6)), *full = (BurstBf16 *)poisoned(k, (size_t)world * COUNT * sizeof *full);
    Doubles want;
    for (int i = 0; i < world; i++)
        for (float f : pattern(i, 6))
            want.push_back(to_bf16(f));
    MUST(k, burst_gpu_sync(k->g));
    MUST(k, burst_gpu_gather(k->g, shard, COUNT, full));
    MUST(k, burst_gpu_sync(k->g));
    compare(k, "gather", down_bf16(k, full, want.size()), want, 0);
}

/* Rank i's full is pattern(i, 7), pattern(i, 8) and so on; the sum over ranks is added to pattern(me, 9). */
static void check_reduce(Check *k, int world)
{
    const int me = burst_rank(k->c);
    Floats full;
    Doubles want = exact(pattern(me, 9));
    for (int piece = 0; piece < world; piece++)
        for (float f : pattern(me, 7 + piece))
            full.push_back(f);
    for (int i = 0; i < world; i++) {
        const Floats theirs = pattern(i, 7 + me);
        for (size_t j = 0; j < COUNT; j++)
            want[j] += theirs[j];
    }
    float *shard = up(k, pattern(me, 9)), *from = up(k, full), *scratch = empty(k);
    MUST(k, burst_gpu_sync(k->g));
    MUST(k, burst_gpu_reduce(k->g, from, COUNT, shard, scratch));
    MUST(k, burst_gpu_sync(k->g));
    compare(k, "reduce", down(k, shard, COUNT), want, FP32);
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
    check_gather(k, world);
    check_reduce(k, world);
}
