/* measure_links.cu: rates of hops and all-to-all by both transports, alone and beside a large matrix
 * product, and what the product loses. One table, printed by rank 0, not judged. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

enum { N = 16384, HIDDEN = 4096, FFN = 14336, PRODUCTS = 20, TRANSFERS = 8, ROWS = 4096 };
static constexpr size_t MIB = 1 << 20, MOST = (size_t)1024 * MIB;

typedef struct Bench {
    Check k;
    BurstBf16 *x, *w, *y;
    char *out, *in, *packing;
    size_t bytes; /* of one transfer, a rank */
    bool all_to_all;
} Bench;

static int transfer(Bench *b)
{
    const int world = burst_world(b->k.c), me = burst_rank(b->k.c);
    if (!b->all_to_all) {
        const BurstBuffer out = {b->out, b->bytes, b->in}, in = {b->in, b->bytes, NULL};
        return burst_gpu_hop(b->k.g, 0, &out, 1, (me + 1) % world, &in, 1, (me + world - 1) % world);
    }
    /* as heads are dealt out: rows of all heads become rows of some heads of more tokens */
    std::vector<BurstPiece> send, receive;
    const size_t width = b->bytes / ROWS / (size_t)world, pitch = width * (size_t)world;
    for (int i = 0; i < world; i++) {
        send.push_back(BurstPiece{i, b->out + (size_t)i * width, width, ROWS, pitch,
                                  b->in + (size_t)me * width * ROWS, width});
        receive.push_back(BurstPiece{i, b->in + (size_t)i * width * ROWS, width, ROWS, width, NULL, 0});
    }
    return burst_gpu_exchange(b->k.g, 0, send.data(), world, receive.data(), world, b->packing, MOST);
}

/* Seconds between the two, the mean of all ranks: they count by it, and must come to the same. Waits. */
static double elapsed(Bench *b, cudaEvent_t event[2])
{
    float ms = 0;
    MUST(&b->k, burst_gpu_sync(b->k.g));
    cudaEventElapsedTime(&ms, event[0], event[1]);
    double mean = ms * 1e-3 / burst_world(b->k.c);
    MUST(&b->k, burst_allreduce(b->k.c, BurstGroup{0, 1, burst_world(b->k.c)}, &mean, 1));
    return mean;
}

static void transfers(Bench *b, int count)
{
    for (int i = 0; i < count; i++)
        MUST(&b->k, transfer(b));
}

static void products(Bench *b, int count)
{
    for (int i = 0; i < count; i++)
        MUST(&b->k, burst_op_linear(b->k.g, N, HIDDEN, FFN, 1, b->x, b->w, NULL, b->y));
}

/* Products and `count` transfers at once: seconds of each. Transfers are queued between the products, or a
 * full queue of the one would hold up the other. */
static void together(Bench *b, int count, cudaEvent_t compute[2], cudaEvent_t moving[2], double *product,
                     double *move)
{
    const cudaStream_t c = burst_gpu_compute(b->k.g), m = burst_gpu_channel(b->k.g, 0);
    cudaEventRecord(compute[0], c);
    cudaEventRecord(moving[0], m);
    for (int i = 0; i < PRODUCTS; i++) {
        products(b, 1);
        transfers(b, count * (i + 1) / PRODUCTS - count * i / PRODUCTS);
    }
    cudaEventRecord(compute[1], c);
    cudaEventRecord(moving[1], m);
    *product = elapsed(b, compute);
    *move = elapsed(b, moving);
}

static void row(Bench *b, const char *transport, double alone, cudaEvent_t compute[2], cudaEvent_t moving[2])
{
    const int world = burst_world(b->k.c);
    const double gigabytes = 1e-9 * (double)b->bytes * (b->all_to_all ? (world - 1.0) / world : 1);
    const double tera = 2e-12 * N * HIDDEN * FFN * PRODUCTS;
    double one, product, move, ignored;
    transfers(b, 2);
    MUST(&b->k, burst_gpu_sync(b->k.g));
    cudaEventRecord(moving[0], burst_gpu_channel(b->k.g, 0));
    transfers(b, TRANSFERS);
    cudaEventRecord(moving[1], burst_gpu_channel(b->k.g, 0));
    one = elapsed(b, moving) / TRANSFERS;
    const int inside = (int)(0.5 * alone / one) + 1, outlasting = (int)(2 * alone / one) + 1;
    together(b, inside, compute, moving, &ignored, &move);
    together(b, outlasting, compute, moving, &product, &ignored);
    if (burst_rank(b->k.c) == 0)
        printf("%-9s %-10s %6zu MiB %8.1f %8.1f GB/s %8.1f %8.1f TFLOP/s\n", transport,
               b->all_to_all ? "all-to-all" : "hop", b->bytes / MIB, gigabytes / one,
               gigabytes * inside / move, tera / alone, tera / product);
}

static void rows_of(Bench *b, const char *transport)
{
    static const size_t sizes[] = {1, 8, 64, 256, 1024};
    cudaEvent_t compute[2], moving[2];
    for (int i = 0; i < 2; i++) {
        cudaEventCreate(&compute[i]);
        cudaEventCreate(&moving[i]);
    }
    products(b, 2);
    MUST(&b->k, burst_gpu_sync(b->k.g));
    cudaEventRecord(compute[0], burst_gpu_compute(b->k.g));
    products(b, PRODUCTS);
    cudaEventRecord(compute[1], burst_gpu_compute(b->k.g));
    const double alone = elapsed(b, compute);
    for (int kind = 0; kind < 2; kind++)
        for (size_t size : sizes) {
            b->all_to_all = kind == 1;
            /* rows of whole 16 bytes */
            const size_t unit = b->all_to_all ? (size_t)burst_world(b->k.c) * ROWS * 16 : 1;
            b->bytes = size * MIB / unit * unit;
            if (b->bytes > 0)
                row(b, transport, alone, compute, moving);
        }
    for (int i = 0; i < 2; i++) {
        cudaEventDestroy(compute[i]);
        cudaEventDestroy(moving[i]);
    }
}

static BurstBf16 *numbers(Bench *b, size_t count)
{
    const size_t piece = MIB;
    BurstBf16 *from = up_bf16(&b->k, random_bf16(piece, 1, 0.05)),
              *to = (BurstBf16 *)burst_gpu_take(b->k.g, count * sizeof *to);
    MUST(&b->k, to ? BURST_OK : BURST_E_MEMORY);
    for (size_t at = 0; at < count; at += piece)
        cudaMemcpyAsync(to + at, from, (count - at < piece ? count - at : piece) * sizeof *to,
                        cudaMemcpyDeviceToDevice, burst_gpu_compute(b->k.g));
    return to;
}

void measure_links(BurstCtx *c, const BurstPlan *p)
{
    static const char *const transports[] = {"nccl", "peer"};
    if (burst_rank(c) == 0)
        printf("transport transfer         a rank    alone   beside           product alone, beside a "
               "transfer that outlasts it\n");
    for (const char *transport : transports) {
        Bench b = {};
        b.k = Check{c, p, NULL, 0};
        setenv("BURST_TRANSPORT", transport, 1);
        /* not whole pages: a plan's memory rarely is */
        MUST(&b.k, burst_gpu_open(c, 1, ((size_t)6 << 30) + 1234567, &b.k.g));
        b.x = numbers(&b, (size_t)N * HIDDEN), b.w = numbers(&b, (size_t)HIDDEN * FFN),
        b.y = numbers(&b, (size_t)N * FFN);
        for (char **at : {&b.out, &b.in, &b.packing})
            *at = (char *)burst_gpu_take(b.k.g, MOST);
        MUST(&b.k, b.packing ? burst_gpu_sync(b.k.g) : BURST_E_MEMORY);
        if (burst_world(c) > 1)
            rows_of(&b, transport);
        burst_gpu_close(b.k.g);
    }
}
