/* traffic.h: what the transfers' tests send, and a model of what must be there afterwards; on a GPU and
 * without one. */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include "burst_gpu.h"

#include <vector>

typedef std::vector<float> Floats;

/* ---- sequences of hops ---- */
/* On each channel numbers go round and round through two slots a rank, other ones in each round, from and
 * to other places, and each arrival is counted up by one: whoever reads too early or writes too early
 * leaves a wrong number behind. */
enum { SLOT = 40000, PARTS = 2, TRAFFIC_CHANNELS = 4 };
typedef struct Part { int from, to, count; } Part; /* elements of the sender's and the receiver's slot */
typedef std::vector<Floats> Slots;                 /* [rank * 2 + slot] */

static inline Part part_of(int channel, int round, int part)
{
    const int half = SLOT / 2, count = 1 + (round * 7919 + channel * 104729 + part * 15485863) % (half / 2);
    return Part{part * half + (round * 31 + channel) % (half / 2),
                (1 - part) * half + (round * 17 + part) % (half / 2), count};
}

static inline int hop_length(int channel, int round, int world)
{
    return 1 + (channel + round / 3) % (world - 1);
}

static inline float first_number(int rank, int channel, int slot, int i)
{
    return (float)(((rank * TRAFFIC_CHANNELS + channel) * 2 + slot) * SLOT + i);
}

static inline Slots first_slots(int channel, int world)
{
    Slots s((size_t)world * 2, Floats(SLOT));
    for (int at = 0; at < world * 2; at++)
        for (int i = 0; i < SLOT; i++)
            s[(size_t)at][(size_t)i] = first_number(at / 2, channel, at % 2, i);
    return s;
}

/* What the round does to the slots of all ranks. */
static inline void model_round(Slots &s, int channel, int round, int world)
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

/* The round's buffers of any rank: what it sends from slot[round % 2] and receives into the other. */
static inline void buffers_of(float *const slot[2], int channel, int round, BurstBuffer out[PARTS],
                              BurstBuffer in[PARTS])
{
    float *from = slot[round % 2], *to = slot[1 - round % 2];
    for (int p = 0; p < PARTS; p++) {
        const Part part = part_of(channel, round, p);
        out[p] = BurstBuffer{from + part.from, (size_t)part.count * sizeof(float), to + part.to};
        in[p] = BurstBuffer{to + part.to, (size_t)part.count * sizeof(float), NULL};
    }
}

/* ---- all-to-all ---- */
/* Rank a sends rank b some of its rows, more or fewer for each pair, and perhaps none; rows of the piece
 * may be a part of wider rows at the sender, at the receiver, at both or at neither. */
enum { WIDTH = 96, PITCH = 160, MOST_ROWS = 37, PIECE = MOST_ROWS * PITCH }; /* floats */
/* at the sender, at the receiver */
typedef struct PieceShape { int rows, pitch_there, pitch_here; } PieceShape;

static inline PieceShape shape_of(int from, int to)
{
    return PieceShape{(from * 7 + to * 11) % 5 == 4 ? 0 : 5 + (from * 13 + to * 5) % (MOST_ROWS - 5),
                      (from + to) % 2 == 1 ? PITCH : WIDTH, (from + 2 * to) % 3 == 1 ? PITCH : WIDTH};
}

/* A piece's memory at its sender (what lies between the rows is 1), or at its receiver afterwards (2
 * before). */
static inline Floats piece_memory(int from, int to, bool receiver)
{
    const PieceShape s = shape_of(from, to);
    Floats x(PIECE, receiver ? 2.0f : 1.0f);
    for (int i = 0; i < s.rows; i++)
        for (int j = 0; j < WIDTH; j++)
            x[(size_t)(i * (receiver ? s.pitch_here : s.pitch_there) + j)] =
                (float)(((from * 16 + to) * MOST_ROWS + i) * WIDTH + j);
    return x;
}

/* from[i]: what goes to rank i; in[i]: where the piece of rank i lands, at every rank. Each goes in two
 * parts, so that their order matters. */
static inline void pieces_of_rank(int me, int world, const std::vector<float *> &from,
                                  const std::vector<float *> &in, std::vector<BurstPiece> *send,
                                  std::vector<BurstPiece> *receive)
{
    const size_t one = sizeof(float);
    for (int i = 0; i < world; i++) {
        const PieceShape s = shape_of(me, i), r = shape_of(i, me);
        for (int part = 0; part < 2; part++) {
            const int first = part ? s.rows / 3 : 0, rows = part ? s.rows - first : s.rows / 3;
            const int begin = part ? r.rows / 3 : 0, count = part ? r.rows - begin : r.rows / 3;
            send->push_back(BurstPiece{i, from[(size_t)i] + first * s.pitch_there, WIDTH * one, (size_t)rows,
                                       (size_t)s.pitch_there * one, in[(size_t)me] + first * s.pitch_here,
                                       (size_t)s.pitch_here * one});
            receive->push_back(BurstPiece{i, in[(size_t)i] + begin * r.pitch_here, WIDTH * one, (size_t)count,
                                          (size_t)r.pitch_here * one, NULL, 0});
        }
    }
}
#endif
