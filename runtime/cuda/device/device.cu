/* device.cu: chooses a rank's device, and checks whether the plan can run there.
 *
 * Each rank has a device of its own, unless BURST_SHARE_GPUS allows sharing: then a plan for many devices
 * runs slowly on few, so that its results can be checked before the machines exist. */
#include "cuda/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_MAJOR = 8, HOST_TEXT = 256 };

static double gib(size_t bytes)
{
    return (double)bytes / (1 << 30);
}

static int read_share(BurstGpu *g)
{
    const char *text = getenv("BURST_SHARE_GPUS");
    g->may_share = text && strcmp(text, "1") == 0;
    if (!text || g->may_share || strcmp(text, "0") == 0)
        return BURST_OK;
    return burst_fail(g->ctx, BURST_E_USAGE, "BURST_SHARE_GPUS is '%s', expected 0 or 1", text);
}

static int no_such_device(BurstGpu *g, int count)
{
    const int locals = host_locals(g->ctx), wanted = host_device(g->ctx);
    if (host_launched(g->ctx))
        return burst_fail(g->ctx, BURST_E_DEVICE,
                          "rank %d has local rank %d, but %d CUDA device%s visible to it; use --share-gpus "
                          "to let ranks share GPUs",
                          g->rank, wanted, count, count == 1 ? " is" : "s are");
    return burst_fail(g->ctx, BURST_E_DEVICE,
                      "%d rank%s on this host need%s one CUDA device each, found %d; use --share-gpus to let "
                      "ranks share GPUs",
                      locals, plural(locals), locals == 1 ? "s" : "", count);
}

/* Among the visible devices, the one with the rank's index on its host, as the launcher counts. A launcher
 * that shows each process its own device shows one. */
static int choose(BurstGpu *g)
{
    int count = 0, wanted = host_device(g->ctx);
    /* Streams share hardware queues, 8 by default: a stream that waits for a peer would block others. */
    if (setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) != 0)
        return burst_fail(g->ctx, BURST_E_MEMORY, "out of memory for an environment variable");
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaErrorInsufficientDriver || e == cudaErrorNoDevice || (e == cudaSuccess && count == 0))
        return burst_fail(g->ctx, BURST_E_DEVICE, "no CUDA device found: %s", cudaGetErrorString(e));
    CUDA_TRY(g, e);
    if ((count == 1 && host_launched(g->ctx)) || g->may_share)
        wanted %= count;
    if (wanted >= count || (!g->may_share && !host_launched(g->ctx) && host_locals(g->ctx) > count))
        return no_such_device(g, count);
    g->device = wanted;
    CUDA_TRY(g, cudaSetDevice(g->device));
    return BURST_OK;
}

static uint64_t hash_text(const char *text)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (; text && *text; text++)
        h = (h ^ (uint8_t)*text) * 0x100000001b3u;
    return h;
}

/* All ranks share, or none does. */
static int agree_to_share(BurstGpu *g)
{
    double say_yes = g->may_share;
    BURST_TRY(burst_allreduce(g->ctx, BurstGroup{0, 1, g->world}, &say_yes, 1));
    if (say_yes == 0 || say_yes == g->world)
        return BURST_OK;
    return burst_fail(g->ctx, BURST_E_USAGE,
                      "BURST_SHARE_GPUS is 1 on %.0f of %d ranks; set it to the same value on all ranks",
                      say_yes, g->world);
}

/* Two ranks on one device would need its memory twice, and NCCL refuses it with an obscure message: it tells
 * ranks apart by host name and device. */
static int claim(BurstGpu *g)
{
    cudaDeviceProp p;
    uint64_t halves[2];
    int other = -1, same = -1;
    CUDA_TRY(g, cudaGetDeviceProperties(&p, g->device));
    static_assert(sizeof p.uuid == sizeof halves, "a number of 128 bits");
    memcpy(halves, &p.uuid, sizeof halves);
    g->host = hash_text(getenv("NCCL_HOSTID"));
    BURST_TRY(host_claim(g->ctx, halves[0] ^ halves[1], &other));
    if (other >= 0 && !g->may_share)
        return burst_fail(
            g->ctx, BURST_E_DEVICE,
            "ranks %d and %d use the same CUDA device (%s); give each rank its own, or use --share-gpus",
            other, g->rank, p.name);
    if (!g->may_share)
        return BURST_OK;
    BURST_TRY(burst_barrier(g->ctx, BurstGroup{0, 1, g->world})); /* all have looked */
    BURST_TRY(host_claim(g->ctx, halves[0] ^ halves[1] ^ g->host, &same));
    g->twice = same >= 0;
    if (other >= 0 && g->rank == 0)
        fprintf(stderr, "burst: ranks share GPUs: results are correct, timings are not meaningful\n");
    return BURST_OK;
}

static int check(BurstGpu *g)
{
    cudaDeviceProp p;
    size_t available = 0, total = 0, needed = g->bytes + BURST_GPU_OWN_BYTES;
    CUDA_TRY(g, cudaGetDeviceProperties(&p, g->device));
    g->overlaps = p.major >= 9;
    if (p.major < LEAST_MAJOR)
        return burst_fail(g->ctx, BURST_E_DEVICE,
                          "device %d (%s) has compute capability %d.%d, but %d.0 or higher is required",
                          g->device, p.name, p.major, p.minor, LEAST_MAJOR);
    CUDA_TRY(g, cudaMemGetInfo(&available, &total));
    if (available < needed)
        return burst_fail(g->ctx, BURST_E_MEMORY,
                          "device %d (%s) has %.2f of %.2f GiB free, but the plan needs %.2f GiB", g->device,
                          p.name, gib(available), gib(total), gib(needed));
    return BURST_OK;
}

int gpu_take_device(BurstGpu *g)
{
    BURST_TRY(read_share(g));
    BURST_TRY(agree_to_share(g));
    BURST_TRY(choose(g));
    BURST_TRY(claim(g));
    return check(g);
}

int gpu_name_host(BurstGpu *g)
{
    char name[HOST_TEXT];
    if (!g->twice)
        return BURST_OK;
    snprintf(name, sizeof name, "burst-shared-%016llx-%d", (unsigned long long)g->host, g->rank);
    if (setenv("NCCL_HOSTID", name, 1) != 0)
        return burst_fail(g->ctx, BURST_E_MEMORY, "out of memory for an environment variable");
    return BURST_OK;
}
