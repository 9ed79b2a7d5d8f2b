/* streams.h: all GPUs of a world in one process. What a program queues is kept until all ranks have queued
 * everything; then operations run one by one, in a random order that respects nothing but streams, marks
 * and that both ends of a transfer are there. So a wait that is missing shows as wrong numbers, and a wait
 * in a circle as a dead end. */
#pragma once
#include "burst_step_cuda.h"
#include "burst_sizes.h"

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

/* version: the latest queued record; done: the latest that ran. */
struct Event { int version = 0, done = 0; };

/* An exchange under way: pieces that have not moved yet. */
struct Exchange {
    int channel, number;
    std::vector<BurstPiece> send, receive;
    std::vector<bool> sent, received;
    std::vector<char *> send_at, receive_at; /* where they move from and to: their place, or packing memory */
    bool started = false;
};

/* What a group of ranks does together on the stream of that number: done when it is next there on all of
 * them. */
enum Together { GATHER, REDUCE, SCATTER, SUM };
struct Collective {
    Together kind;
    size_t stream;
    BurstGroup ranks;
    int64_t elements;
    const BurstBf16 *part; /* gather: of this rank. Scatter: what is added to its sum, or null */
    BurstBf16 *whole;      /* of all. Scatter: spent */
    float *sum, *shard;    /* reduction: spent, and what it becomes. Sum: the same, or in place */
    bool adds;
    /* scatter: what it becomes. Reduction: instead of shard, where it is kept rounded */
    BurstBf16 *own;
};

struct Op {
    std::function<void()> run = nullptr;
    Event *waits = nullptr;
    int version = 0;
    std::shared_ptr<Exchange> exchange = nullptr;
    std::shared_ptr<Collective> collective = nullptr;
};

struct Stream { std::deque<Op> queue; };

struct BurstGpu {
    int rank;
    std::vector<Stream> stream; /* channels, copies, weights, computing */
    std::vector<int> exchanges; /* queued, by channel */
    std::vector<char> memory;   /* alike on all ranks */
    std::vector<char> host;     /* that values are staged to */
    size_t used;
    std::vector<std::pair<size_t, size_t>> taken; /* guards follow them */
};

enum { GUARD = 512 };
struct World {
    std::vector<std::unique_ptr<BurstGpu>> gpu;
    std::vector<std::unique_ptr<Event>> event;
    std::mt19937 random;
    int tensor = 1, layers = 0; /* ranks that split a layer; layers */
    bool packed;        /* pieces move as by NCCL, else as by copy engines */
    bool without_waits; /* to see that the test notices */
    std::string wrong;  /* the first thing that is */
};
extern World world;

void world_make(int ranks, int channels, size_t bytes);
void world_sum(BurstGpu *g, float *x, int64_t elements); /* over tensor ranks, on the weights' stream */
void world_run();          /* all that was queued */
void world_check_guards(); /* nobody wrote behind a buffer */
