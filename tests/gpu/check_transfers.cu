/* check_transfers.cu: hops, exchange, gather and reduce between all ranks, ordered by marks; long sequences of hops on many
 * channels; host copies. The transport is BURST_TRANSPORT's. */
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
/* Rank a sends rank b some of its rows, more or fewer for each pair, and perhaps none; wide: rows of the piece are a part of
 * wider rows at the sender, at the receiver, at both or at neither. */
enum { WIDTH = 96, PITCH = 160, MOST_ROWS = 37 }; /* floats */
typedef struct Shape { int rows; bool wide_there, wide_here; } Shape;

static Shape shape_of(int from, int to)
{
    return Shape{(from * 7 + to * 11) % 5 == 4 ? 0 : 5 + (from * 13 + to * 5) % (MOST_ROWS - 5), (from + to) % 2 == 1, (from + 2 * to) % 3 == 1};
}

static float element(int from, int to, int row, int column)
{
    return (float)((from * 16 + to) * MOST_ROWS * WIDTH + row * WIDTH + column);
}

/* A piece's memory as the sender has it: what lies between the rows is 1. */
static Floats piece_at_sender(int from, int to)
{
    const Shape s = shape_of(from, to);
    Floats x(MOST_ROWS * PITCH, 1.0f);
    for (int i = 0; i < s.rows; i++)
        for (int j = 0; j < WIDTH; j++)
            x[(size_t)(i * (s.wide_there ? PITCH : WIDTH) + j)] = element(from, to, i, j);
    return x;
}

/* And as the receiver has it afterwards, where memory was 2 before. */
static Doubles piece_at_receiver(int from, int to)
{
    const Shape s = shape_of(from, to);
    Doubles x(MOST_ROWS * PITCH, 2.0);
    for (int i = 0; i < s.rows; i++)
        for (int j = 0; j < WIDTH; j++)
            x[(size_t)(i * (s.wide_here ? PITCH : WIDTH) + j)] = element(from, to, i, j);
    return x;
}

static BurstPiece piece(int peer, float *data, int rows, bool wide, float *lands, bool wide_there)
{
    const size_t one = sizeof(float);
    return BurstPiece{peer, data, WIDTH * one, (size_t)rows, (wide ? PITCH : WIDTH) * one, lands, (wide_there ? PITCH : WIDTH) * one};
}

/* in[i] is where the piece of rank i lands, at every rank. Each goes in two parts, so that their order matters. */
static void check_exchange(Check *k, int world)
{
    const int me = burst_rank(k->c);
    std::vector<float *> from(world), in(world);
    std::vector<BurstPiece> send, receive;
    const size_t packing_bytes = (size_t)world * 4 * MOST_ROWS * PITCH * sizeof(float);
    void *packing = poisoned(k, packing_bytes);
    for (int i = 0; i < world; i++)
        in[i] = up(k, Floats(MOST_ROWS * PITCH, 2.0f)), from[i] = up(k, piece_at_sender(me, i));
    for (int i = 0; i < world; i++) {
        const Shape out = shape_of(me, i), back = shape_of(i, me);
        for (int part = 0; part < 2; part++) {
            const int first = part ? out.rows / 3 : 0, rows = part ? out.rows - first : out.rows / 3;
            send.push_back(piece(i, from[i] + first * (out.wide_there ? PITCH : WIDTH), rows, out.wide_there,
                                 in[me] + first * (out.wide_here ? PITCH : WIDTH), out.wide_here));
            const int begin = part ? back.rows / 3 : 0, count = part ? back.rows - begin : back.rows / 3;
            receive.push_back(piece(i, in[i] + begin * (back.wide_here ? PITCH : WIDTH), count, back.wide_here, NULL, false));
        }
    }
    MUST(k, burst_gpu_sync(k->g));
    MUST(k, burst_gpu_exchange(k->g, 1, send.data(), (int)send.size(), receive.data(), (int)receive.size(), packing, packing_bytes));
    MUST(k, burst_gpu_sync(k->g));
    for (int i = 0; i < world; i++)
        compare(k, "exchange", down(k, in[i], MOST_ROWS * PITCH), piece_at_receiver(i, me), 0);
}

/* ---- sequences of hops ---- */
/* On each channel numbers go round and round through two slots a rank, other ones in each round, from and to other places,
 * and each arrival is counted up by one: whoever reads too early or writes too early leaves a wrong number behind. Nothing
 * waits in between; streams are held up here and there so that ranks run apart. The host does the same to its model. */
enum { ROUNDS = 120, SLOT = 40000, PARTS = 2 };
typedef struct Part { int from, to, count; } Part; /* elements of the sender's and the receiver's slot */
typedef std::vector<Floats> Slots;                 /* [rank * 2 + slot] */

static Part part_of(int channel, int round, int part)
{
    const int half = SLOT / 2, count = 1 + (round * 7919 + channel * 104729 + part * 15485863) % (half / 2);
    return Part{part * half + (round * 31 + channel) % (half / 2), (1 - part) * half + (round * 17 + part) % (half / 2), count};
}

static int hop_length(int channel, int round, int world)
{
    return 1 + (channel + round / 3) % (world - 1);
}

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

static float first_number(int rank, int channel, int slot, int i)
{
    return (float)(((rank * 4 + channel) * 2 + slot) * SLOT + i);
}

static void model_round(Slots &s, int channel, int round, int world)
{
    const int from = round % 2, to = 1 - from, length = hop_length(channel, round, world);
    for (int rank = 0; rank < world; rank++)
        for (int p = 0; p < PARTS; p++) {
            const Part part = part_of(channel, round, p);
            const Floats &out = s[(size_t)(rank * 2 + from)];
            Floats &in = s[(size_t)((rank + length) % world * 2 + to)];
            for (int i = 0; i < part.count; i++)
                in[(size_t)(part.to + i)] = out[(size_t)(part.from + i)] + 1;
        }
}

static void queue_round(Check *k, float *const slot[2], int channel, int round, int world)
{
    const int me = burst_rank(k->c), length = hop_length(channel, round, world);
    const cudaStream_t stream = burst_gpu_channel(k->g, channel);
    float *from = slot[round % 2], *to = slot[1 - round % 2];
    BurstBuffer out[PARTS], in[PARTS];
    for (int p = 0; p < PARTS; p++) {
        const Part part = part_of(channel, round, p);
        out[p] = BurstBuffer{from + part.from, (size_t)part.count * sizeof(float), to + part.to};
        in[p] = BurstBuffer{to + part.to, (size_t)part.count * sizeof(float), NULL};
    }
    if ((round + channel) % 5 == me % 5)
        hold_kernel<<<1, 1, 0, stream>>>(300000);
    MUST(k, burst_gpu_hop(k->g, channel, out, PARTS, (me + length) % world, in, PARTS, (me + world - length) % world));
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
    std::vector<Slots> model((size_t)CHECK_CHANNELS, Slots((size_t)world * 2, Floats(SLOT)));
    for (int channel = 0; channel < CHECK_CHANNELS; channel++) {
        for (int at = 0; at < world * 2; at++)
            for (int i = 0; i < SLOT; i++)
                model[(size_t)channel][(size_t)at][(size_t)i] = first_number(at / 2, channel, at % 2, i);
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
            compare(k, "sequence of hops", down(k, slot[channel][i], SLOT), exact(model[(size_t)channel][(size_t)(me * 2 + i)]), 0);
}

/* Twice into the same memory, with what came first copied away in between; nothing waits. */
static void check_gather(Check *k, int world)
{
    const int me = burst_rank(k->c);
    const size_t count = (size_t)world * COUNT;
    BurstBf16 *shard[2] = {up_bf16(k, pattern(me, 6)), up_bf16(k, pattern(me, 5))};
    BurstBf16 *full = (BurstBf16 *)poisoned(k, count * sizeof *full), *first = (BurstBf16 *)poisoned(k, count * sizeof *first);
    Doubles want[2];
    for (int i = 0; i < 2 * world; i++)
        for (float f : pattern(i % world, i < world ? 6 : 5))
            want[i / world].push_back(to_bf16(f));
    MUST(k, burst_gpu_sync(k->g));
    MUST(k, burst_gpu_gather(k->g, shard[0], COUNT, full));
    hold_kernel<<<1, 1, 0, burst_gpu_weights(k->g)>>>(1000000 * me);
    cudaMemcpyAsync(first, full, count * sizeof *full, cudaMemcpyDeviceToDevice, burst_gpu_weights(k->g));
    MUST(k, burst_gpu_gather(k->g, shard[1], COUNT, full));
    MUST(k, burst_gpu_sync(k->g));
    compare(k, "gather", down_bf16(k, first, count), want[0], 0);
    compare(k, "gather again", down_bf16(k, full, count), want[1], 0);
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
    check_sequences(k, world);
    check_gather(k, world);
    check_reduce(k, world);
}
