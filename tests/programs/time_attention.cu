/* time_attention.cu: the main of an emitted CUDA program: how long attention of one layer takes, forward
 * and backward.
 *
 *     nvcc -DPLAN_SOURCE='"plan.cu"' time_attention.cu ...      plan.cu: what burstc wrote
 *     program [--repeat N]
 *
 * Where masks read tables and the plan has data, these are of the data's first sequence. The program is
 * included rather than linked, so that attention runs on what is on the device already.
 * Prints one line of JSON: seconds of forward and backward, of the slowest rank, medians; and the same
 * with all transfers left out, where computing goes on with what its buffers happened to hold: what is
 * over that is what transfers cost. Then the rates of the hops by themselves, bytes a second and rank: the
 * same ones once more, one after the other with nothing computed, those inside nodes and those between
 * nodes apart; 0 where there are none.
 */
#include "burst_gpu.h"

enum { INSIDE, BETWEEN, KINDS, HOPS_MOST = 512 };
typedef struct TimeHop {
    BurstGpu *gpu;
    int channel, sends, to, receives, from;
    BurstBuffer out[BURST_GPU_BUFFERS], in[BURST_GPU_BUFFERS];
} TimeHop;
static TimeHop time_hops[HOPS_MOST]; /* of one direction, once they are recorded */
static int time_hop_count;

/* They stand before every transfer of the plan's text. */
static bool time_silent, time_recording;
static int time_hop(BurstGpu *g, int channel, const BurstBuffer *out, int sends, int to,
                    const BurstBuffer *in, int receives, int from)
{
    if (time_recording && time_hop_count < HOPS_MOST) {
        TimeHop *h = &time_hops[time_hop_count];
        h->gpu = g, h->channel = channel, h->sends = sends, h->to = to, h->receives = receives,
        h->from = from;
        for (int i = 0; i < sends; i++)
            h->out[i] = out[i];
        for (int i = 0; i < receives; i++)
            h->in[i] = in[i];
    }
    time_hop_count += time_recording;
    return time_silent ? BURST_OK : burst_gpu_hop(g, channel, out, sends, to, in, receives, from);
}
template <class... A> static int time_exchange(A... a)
{
    return time_silent ? BURST_OK : burst_gpu_exchange(a...);
}
#define burst_gpu_hop time_hop
#define burst_gpu_exchange time_exchange
#define PLAN_NO_MAIN
#include PLAN_SOURCE

#include <stdio.h>
#include <stdlib.h>

enum { WARM = 2, MOST = 50 };
static const double LONG = 1; /* seconds: a repetition that takes longer needs no more warming up */
typedef enum Direction { FORWARD, BACKWARD } Direction;
typedef struct Timer { BurstCtx *c; PlanState *s; cudaEvent_t begin, end; int repeat; } Timer;

/* Numbers of a normal distribution, about: the sum of four bytes of a hash. Zeros would draw less power
 * than real data. */
static __global__ void time_fill_kernel(int64_t count, uint32_t seed, BurstBf16 *x)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 0x9e3779b1u + seed + (uint32_t)(i >> 32);
        h = (h ^ (h >> 16)) * 0x85ebca6bu;
        h = (h ^ (h >> 13)) * 0xc2b2ae35u;
        h ^= h >> 16;
        const int sum = (int)(h & 255) + (int)(h >> 8 & 255) + (int)(h >> 16 & 255) + (int)(h >> 24);
        x[i] = __float2bfloat16(((float)sum - 510) / 148);
    }
}

static int fill(Timer *t, int heads, uint32_t seed, BurstBf16 *x)
{
    BurstCtx *c = t->c;
    time_fill_kernel<<<1024, 256, 0, burst_gpu_compute(t->s->exec)>>>((int64_t)heads * PLAN_HEAD_DIM *
                                                                          t->s->n,
                                                                      seed, x);
    PLAN_CUDA(cudaGetLastError());
    return BURST_OK;
}

static int attend(Timer *t, Direction d)
{
    PlanState *s = t->s;
    BurstBf16 *q = plan_act(s, PLAN_AT_Q(0)), *k = plan_act(s, PLAN_AT_K(0)), *v = plan_act(s, PLAN_AT_V(0));
    float *lse = plan_floats(s, PLAN_AT_LSE(0));
    if (d == FORWARD)
        return plan_attention(t->c, s, 0, q, k, v, plan_act(s, PLAN_AT_O(0)), lse);
    return plan_attention_back(t->c, s, 0, q, k, v, lse, plan_act(s, PLAN_AT_D_O(0)),
                               plan_floats(s, PLAN_AT_DELTA), plan_floats(s, PLAN_AT_D_Q(0)),
                               plan_floats(s, PLAN_AT_D_K(0)), plan_floats(s, PLAN_AT_D_V(0)));
}

/* The greatest of all ranks' values, on every rank. */
static int greatest(BurstCtx *c, double value, double *most)
{
    double all[PLAN_WORLD] = {0};
    all[burst_rank(c)] = value;
    BURST_TRY(burst_allreduce(c, BurstGroup{0, 1, PLAN_WORLD}, all, PLAN_WORLD));
    *most = all[0];
    for (int i = 1; i < PLAN_WORLD; i++)
        *most = all[i] > *most ? all[i] : *most;
    return BURST_OK;
}

/* All ranks begin together; the slowest one's time comes back on every rank. */
static int time_once(Timer *t, Direction d, double *seconds)
{
    BurstCtx *c = t->c;
    cudaStream_t compute = burst_gpu_compute(t->s->exec);
    float ms = 0;
    BURST_TRY(burst_gpu_sync(t->s->exec));
    BURST_TRY(burst_barrier(c, BurstGroup{0, 1, PLAN_WORLD}));
    PLAN_CUDA(cudaEventRecord(t->begin, compute));
    BURST_TRY(attend(t, d));
    PLAN_CUDA(cudaEventRecord(t->end, compute));
    BURST_TRY(burst_gpu_sync(t->s->exec));
    PLAN_CUDA(cudaEventElapsedTime(&ms, t->begin, t->end));
    return greatest(c, 1e-3 * ms, seconds);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int time_median(Timer *t, Direction d, double *median)
{
    double all[MOST], seconds = 0;
    for (int i = 0; i < WARM && seconds < LONG; i++)
        BURST_TRY(time_once(t, d, &seconds));
    for (int i = 0; i < t->repeat; i++)
        BURST_TRY(time_once(t, d, &all[i]));
    qsort(all, (size_t)t->repeat, sizeof *all, by_size);
    *median = all[t->repeat / 2];
    return BURST_OK;
}

static int time_both(Timer *t, double out[2])
{
    BURST_TRY(time_median(t, FORWARD, &out[FORWARD]));
    return time_median(t, BACKWARD, &out[BACKWARD]);
}

/* ---- hops by themselves ---- */
static int record(Timer *t, Direction d)
{
    double seconds;
    time_hop_count = 0;
    time_recording = true;
    const int status = time_once(t, d, &seconds);
    time_recording = false;
    BURST_TRY(status);
    if (time_hop_count > HOPS_MOST)
        return burst_fail(t->c, BURST_E_PLAN, "%d hops, and room for %d", time_hop_count, HOPS_MOST);
    return BURST_OK;
}

static bool is_kind(const BurstPlan *p, int rank, int other, int kind)
{
    const int node = PLAN_WORLD / (p->nodes > 0 ? p->nodes : 1);
    return (rank / node == other / node) == (kind == INSIDE);
}

/* All recorded hops of a kind, one after the other, whatever their channels: through sockets two at once
 * get more than one, and a schedule that sends sums behind copies has one at a time. What this rank sends
 * in them. */
static int replay(Timer *t, const BurstPlan *p, int kind, double *bytes, double *seconds)
{
    const int me = burst_rank(t->c);
    *bytes = 0;
    BURST_TRY(burst_gpu_sync(t->s->exec));
    BURST_TRY(burst_barrier(t->c, BurstGroup{0, 1, PLAN_WORLD}));
    const double begin = burst_seconds();
    for (int i = 0; i < time_hop_count; i++) {
        const TimeHop *h = &time_hops[i];
        const int sends = h->sends && is_kind(p, me, h->to, kind) ? h->sends : 0;
        const int receives = h->receives && is_kind(p, me, h->from, kind) ? h->receives : 0;
        if (sends || receives) {
            BURST_TRY(burst_gpu_hop(h->gpu, h->channel, h->out, sends, h->to, h->in, receives, h->from));
            BURST_TRY(burst_gpu_sync(t->s->exec));
        }
        for (int k = 0; k < sends; k++)
            *bytes += (double)h->out[k].bytes;
    }
    BURST_TRY(burst_gpu_sync(t->s->exec));
    *seconds = burst_seconds() - begin;
    BURST_TRY(greatest(t->c, *bytes, bytes));
    return greatest(t->c, *seconds, seconds);
}

static int find_rates(Timer *t, const BurstPlan *p, Direction d, double rate[KINDS])
{
    BURST_TRY(record(t, d));
    for (int kind = 0; kind < KINDS; kind++) {
        double all[MOST], bytes = 0, warm;
        BURST_TRY(replay(t, p, kind, &bytes, &warm));
        for (int i = 0; i < t->repeat; i++)
            BURST_TRY(replay(t, p, kind, &bytes, &all[i]));
        qsort(all, (size_t)t->repeat, sizeof *all, by_size);
        rate[kind] = bytes / all[t->repeat / 2];
    }
    return BURST_OK;
}

static int prepare(Timer *t)
{
    BurstCtx *c = t->c;
    PlanState *s = t->s; /* named as the places of values expect */
    PLAN_CUDA(cudaEventCreate(&t->begin));
    PLAN_CUDA(cudaEventCreate(&t->end));
    BURST_TRY(fill(t, PLAN_HEADS, 1 + 4 * (uint32_t)burst_rank(c), plan_act(s, PLAN_AT_Q(0))));
    BURST_TRY(fill(t, PLAN_KV_HEADS, 2 + 4 * (uint32_t)burst_rank(c), plan_act(s, PLAN_AT_K(0))));
    BURST_TRY(fill(t, PLAN_KV_HEADS, 3 + 4 * (uint32_t)burst_rank(c), plan_act(s, PLAN_AT_V(0))));
    return fill(t, PLAN_HEADS, 4 + 4 * (uint32_t)burst_rank(c), plan_act(s, PLAN_AT_D_O(0)));
}

/* The first sequence that the plan trains on: what its masks leave, and which tokens this rank has. */
static int take_batch(Timer *t, const BurstPlan *p)
{
#if PLAN_TABLES > 0
    BurstBatch b;
    if (p->train.data_files) {
        BURST_TRY(burst_batch_read(t->c, p, 0, 0, &b));
        BURST_TRY(plan_live(t->c, t->s, &b.tables));
    }
#else
    (void)t, (void)p;
#endif
    return BURST_OK;
}

static int body(BurstCtx *c, const BurstPlan *p, void *arg)
{
    static BurstWeights w;
    Timer t = {c, (PlanState *)calloc(1, p->state_bytes), NULL, NULL, *(int *)arg};
    double with[2], without[2], rate[2][KINDS] = {};
    if (!t.s)
        return burst_fail(c, BURST_E_MEMORY, "no memory for the plan's state");
    BURST_TRY(burst_weights_make(c, p, &w));
    BURST_TRY(p->start(c, t.s, &w));
    BURST_TRY(prepare(&t));
    BURST_TRY(take_batch(&t, p));
    if (p->nodes > 1) /* connections between nodes reach their rate only after a while: once for nothing */
        BURST_TRY(time_both(&t, with));
    BURST_TRY(time_both(&t, with));
    without[FORWARD] = with[FORWARD];
    without[BACKWARD] = with[BACKWARD];
    if (PLAN_WORLD > 1) {
        BURST_TRY(find_rates(&t, p, FORWARD, rate[FORWARD]));
        BURST_TRY(find_rates(&t, p, BACKWARD, rate[BACKWARD]));
        time_silent = true;
        BURST_TRY(time_both(&t, without));
    }
    if (burst_rank(c) == 0)
        printf("{\"forward\": %.9f, \"backward\": %.9f, \"forward_silent\": %.9f, \"backward_silent\": %.9f, "
               "\"repeat\": %d, "
               "\"forward_rates\": [%.6g, %.6g], \"backward_rates\": [%.6g, %.6g]}\n",
               with[FORWARD], with[BACKWARD], without[FORWARD], without[BACKWARD], t.repeat,
               rate[FORWARD][INSIDE], rate[FORWARD][BETWEEN], rate[BACKWARD][INSIDE],
               rate[BACKWARD][BETWEEN]);
    fflush(stdout);
    return burst_barrier(c, BurstGroup{0, 1, PLAN_WORLD});
}

int main(int argc, char **argv)
{
    int repeat = 5;
    if (argc == 3 && strcmp(argv[1], "--repeat") == 0)
        repeat = atoi(argv[2]);
    if (repeat < 1 || repeat > MOST || argc == 2 || argc > 3) {
        fprintf(stderr, "usage: %s [--repeat N], N from 1 to %d\n", argv[0], MOST);
        return 2;
    }
    return burst_launch(&burst_plan, 1, argv, body, &repeat);
}
