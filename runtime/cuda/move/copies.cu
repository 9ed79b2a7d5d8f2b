/* copies.cu: pinned host memory for staged values, and the stream of copies. */
#include "cuda/gpu.h"

#include <stdio.h>

static constexpr double GIB = 1 << 30;

/* Bytes; 0: the file does not have the number. */
static size_t number_in(const char *path, const char *format, size_t unit)
{
    char line[256];
    size_t n = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f) && sscanf(line, format, &n) != 1)
        ;
    if (f)
        fclose(f);
    return n * unit;
}

/* The smaller of the machine's available memory and the process's group limit; 0: unknown. */
static size_t available(void)
{
    const size_t machine = number_in("/proc/meminfo", "MemAvailable: %zu kB", 1024);
    const size_t most = number_in("/sys/fs/cgroup/memory.max", "%zu", 1),
                 used = number_in("/sys/fs/cgroup/memory.current", "%zu", 1);
    const size_t cache = number_in("/sys/fs/cgroup/memory.stat", "inactive_file %zu", 1);
    size_t left = 0;
    if (most)
        left = most + cache > used ? most + cache - used : 1;
    return left && (!machine || left < machine) ? left : machine;
}

static void *too_little(BurstGpu *g, size_t bytes, const char *what)
{
    const int ranks = host_locals(g->ctx);
    burst_fail(
        g->ctx, BURST_E_MEMORY,
        "the plan offloads activations to %.2f GiB of pinned host memory per rank, %.2f GiB for the %d ranks "
        "of this host: %s; offload fewer values (`offload`), or correct the host memory in the .topo file",
        (double)bytes / GIB, (double)bytes * ranks / GIB, ranks, what);
    return NULL;
}

/* Every rank of the host checks before any of them allocates. */
void *burst_gpu_take_host(BurstGpu *g, size_t bytes)
{
    char what[128];
    double least = (double)available();
    const size_t ranks = (size_t)host_locals(g->ctx);
    if (burst_barrier(g->ctx, BurstGroup{0, 1, g->world}) != BURST_OK)
        return NULL;
    if (least > 0 && least < (double)bytes * (double)ranks) {
        snprintf(what, sizeof what, "only %.2f GiB are available", least / GIB);
        return too_little(g, bytes, what);
    }
    void *const pages = host_pages(g->ctx, bytes);
    if (!pages)
        return too_little(g, bytes, "mmap fails");
    const cudaError_t e = cudaHostRegister(pages, bytes, cudaHostRegisterDefault);
    if (e != cudaSuccess) {
        cudaGetLastError();
        host_pages_free(pages, bytes);
        snprintf(what, sizeof what, "cudaHostRegister: %s", cudaGetErrorString(e));
        return too_little(g, bytes, what);
    }
    g->staged = pages, g->staged_bytes = bytes;
    return pages;
}

cudaStream_t burst_gpu_copies(BurstGpu *g)
{
    return g->copies;
}

cudaStream_t burst_gpu_downloads(BurstGpu *g)
{
    return g->downloads;
}

int burst_gpu_copy(BurstGpu *g, const void *from, void *to, size_t bytes)
{
    CUDA_TRY(g, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, g->copies));
    return BURST_OK;
}

int burst_gpu_copy_back(BurstGpu *g, const void *from, void *to, size_t bytes)
{
    CUDA_TRY(g, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, g->downloads));
    return BURST_OK;
}

int burst_gpu_pin_weights(BurstGpu *g, const struct BurstPlan *p, const BurstWeights *w)
{
    char *begin = (char *)w->param[0],
         *end = (char *)(w->v[w->units - 1] + burst_unit(p, w->units - 1)->shard);
    const cudaError_t e = cudaHostRegister(begin, (size_t)(end - begin), cudaHostRegisterDefault);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return burst_fail(g->ctx, BURST_E_MEMORY,
                          "cannot pin %.2f GiB of parameters and optimizer state in host memory: %s; use "
                          "`update host`, which pins only gradients",
                          (double)(end - begin) / GIB, cudaGetErrorString(e));
    }
    g->pinned = begin;
    return BURST_OK;
}
