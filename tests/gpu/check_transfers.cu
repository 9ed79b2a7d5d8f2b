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
