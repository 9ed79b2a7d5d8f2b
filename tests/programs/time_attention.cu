/* time_attention.cu: the main of an emitted CUDA program: how long attention of one layer takes, forward and backward.
 *
 *     nvcc -DPLAN_SOURCE='"plan.cu"' time_attention.cu ...      plan.cu: what burstc wrote
 *     program [--repeat N]
 *
 * The program is included rather than linked, so that attention runs on what is on the device already. Prints one line of
 * JSON: seconds of forward and backward, of the slowest rank, medians; and the same with all transfers left out, where
 * computing goes on with what its buffers happened to hold: what is over that is what transfers cost.
 */
#include "burst_gpu.h"

/* Stands before every transfer of the plan's text. */
static bool time_silent;
template <class... A> static int time_hop(A... a)
{
    return time_silent ? BURST_OK : burst_gpu_hop(a...);
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

/* Numbers of a normal distribution, about: the sum of four bytes of a hash. Zeros would draw less power than real data. */
static __global__ void time_fill_kernel(int64_t count, uint32_t seed, BurstBf16 *x)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
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
    time_fill_kernel<<<1024, 256, 0, burst_gpu_compute(t->s->gpu)>>>((int64_t)heads * PLAN_HEAD_DIM * t->s->n, seed, x);
    PLAN_CUDA(cudaGetLastError());
    return BURST_OK;
}

static int attend(Timer *t, Direction d)
{
    PlanState *s = t->s;
    if (d == FORWARD)
        return plan_attention(t->c, s, 0, s->q[0], s->k[0], s->v[0], s->o[0], s->lse[0]);
    return plan_attention_back(t->c, s, 0, s->q[0], s->k[0], s->v[0], s->o[0], s->lse[0], s->d_o, s->dq, s->dk, s->dv);
}

/* All ranks begin together; the slowest one's time comes back on every rank. */
static int time_once(Timer *t, Direction d, double *seconds)
{
    BurstCtx *c = t->c;
    cudaStream_t compute = burst_gpu_compute(t->s->gpu);
    double all[PLAN_WORLD] = {0};
    float ms = 0;
    BURST_TRY(burst_gpu_sync(t->s->gpu));
    BURST_TRY(burst_barrier(c, BurstGroup{0, 1, PLAN_WORLD}));
    PLAN_CUDA(cudaEventRecord(t->begin, compute));
    BURST_TRY(attend(t, d));
    PLAN_CUDA(cudaEventRecord(t->end, compute));
    BURST_TRY(burst_gpu_sync(t->s->gpu));
    PLAN_CUDA(cudaEventElapsedTime(&ms, t->begin, t->end));
    all[burst_rank(c)] = 1e-3 * ms;
    BURST_TRY(burst_allreduce(c, BurstGroup{0, 1, PLAN_WORLD}, all, PLAN_WORLD));
    for (int i = 0; i < PLAN_WORLD; i++)
        *seconds = i == 0 || all[i] > *seconds ? all[i] : *seconds;
    return BURST_OK;
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

static int prepare(Timer *t)
{
    BurstCtx *c = t->c;
    PLAN_CUDA(cudaEventCreate(&t->begin));
    PLAN_CUDA(cudaEventCreate(&t->end));
    BURST_TRY(fill(t, PLAN_HEADS, 1 + 4 * (uint32_t)burst_rank(c), t->s->q[0]));
    BURST_TRY(fill(t, PLAN_KV_HEADS, 2 + 4 * (uint32_t)burst_rank(c), t->s->k[0]));
    BURST_TRY(fill(t, PLAN_KV_HEADS, 3 + 4 * (uint32_t)burst_rank(c), t->s->v[0]));
    return fill(t, PLAN_HEADS, 4 + 4 * (uint32_t)burst_rank(c), t->s->d_o);
}

static int body(BurstCtx *c, const BurstPlan *p, void *arg)
{
    static BurstWeights w;
    Timer t = {c, (PlanState *)calloc(1, p->state_bytes), NULL, NULL, *(int *)arg};
    double with[2], without[2];
    if (!t.s)
        return burst_fail(c, BURST_E_MEMORY, "no memory for the plan's state");
    BURST_TRY(burst_weights_make(c, p, &w));
    BURST_TRY(p->start(c, t.s, &w));
    BURST_TRY(prepare(&t));
    BURST_TRY(time_both(&t, with));
    without[FORWARD] = with[FORWARD];
    without[BACKWARD] = with[BACKWARD];
    time_silent = true;
    if (PLAN_WORLD > 1)
        BURST_TRY(time_both(&t, without));
    if (burst_rank(c) == 0)
        printf("{\"forward\": %.9f, \"backward\": %.9f, \"forward_silent\": %.9f, \"backward_silent\": %.9f, \"repeat\": %d}\n",
               with[FORWARD], with[BACKWARD], without[FORWARD], without[BACKWARD], t.repeat);
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
