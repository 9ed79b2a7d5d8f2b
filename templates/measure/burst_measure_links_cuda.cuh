/* burst_measure_links_cuda.cuh: rates of transfers, alone and while computing: PCIe and the links between
 * ranks. Part of burst_measure_cuda.cuh. */
/* Seconds of each of `count` transfers on the stream. beside: while products run; they take
 * longer than the transfers. */
template <class Call>
static int measure_transfers(Measure *m, cudaStream_t stream, int count, bool beside, double *seconds,
                             Call call)
{
    for (int i = 0; i < (beside ? 4 : 0); i++)
        BURST_TRY(measure_products(m));
    return measure_time(m, stream, count, seconds, call);
}

static int measure_upload(Measure *m, const void *host)
{
    MEASURE_CUDA(
        cudaMemcpyAsync(m->hop_in, host, MEASURE_HOP, cudaMemcpyHostToDevice, burst_gpu_copies(m->g)));
    return BURST_OK;
}

static int measure_download(Measure *m, void *host)
{
    MEASURE_CUDA(
        cudaMemcpyAsync(host, m->hop_out, MEASURE_HOP, cudaMemcpyDeviceToHost, burst_gpu_downloads(m->g)));
    return BURST_OK;
}

/* Seconds of a copy each way, at once, while products run. */
static int measure_both_ways(Measure *m, const void *from, void *to, double *seconds)
{
    enum { COPIES = 8 };
    const cudaStream_t up = burst_gpu_copies(m->g), down = burst_gpu_downloads(m->g);
    float ms = 0;
    for (int i = 0; i < 6; i++)
        BURST_TRY(measure_products(m));
    MEASURE_CUDA(cudaEventRecord(m->begin, up));
    MEASURE_CUDA(cudaStreamWaitEvent(down, m->begin, 0));
    for (int i = 0; i < COPIES; i++) {
        BURST_TRY(measure_upload(m, from));
        BURST_TRY(measure_download(m, to));
    }
    MEASURE_CUDA(cudaEventRecord(m->end, down));
    MEASURE_CUDA(cudaStreamWaitEvent(up, m->end, 0));
    MEASURE_CUDA(cudaEventRecord(m->end, up));
    BURST_TRY(burst_gpu_sync(m->g));
    MEASURE_CUDA(cudaEventElapsedTime(&ms, m->begin, m->end));
    *seconds = 1e-3 * ms / COPIES;
    return BURST_OK;
}

/* pcie ALONE UP DOWN BOTH: pinned memory, every rank at once, the slowest rank's: to the device alone; while
 * products run to it, from it, and each way at once. */
static int measure_pcie(Measure *m)
{
    enum { WAYS = 4, COPIES = 4 };
    const BurstGroup all = {0, 1, burst_world(m->c)};
    void *from, *to;
    double seconds[WAYS];
    MEASURE_CUDA(cudaMallocHost(&from, MEASURE_HOP));
    MEASURE_CUDA(cudaMallocHost(&to, MEASURE_HOP));
    memset(from, 1, MEASURE_HOP);
    memset(to, 1, MEASURE_HOP);
    const cudaStream_t up = burst_gpu_copies(m->g), down = burst_gpu_downloads(m->g);
    const auto upload = [&] { return measure_upload(m, from); };
    BURST_TRY(burst_barrier(m->c, all));
    BURST_TRY(measure_transfers(m, up, COPIES, false, &seconds[0], upload));
    BURST_TRY(burst_barrier(m->c, all));
    BURST_TRY(measure_transfers(m, up, COPIES, true, &seconds[1], upload));
    BURST_TRY(burst_barrier(m->c, all));
    BURST_TRY(
        measure_transfers(m, down, COPIES, true, &seconds[2], [&] { return measure_download(m, to); }));
    BURST_TRY(burst_barrier(m->c, all));
    BURST_TRY(measure_both_ways(m, from, to, &seconds[3]));
    MEASURE_CUDA(cudaFreeHost(from));
    MEASURE_CUDA(cudaFreeHost(to));
    for (double &each : seconds)
        BURST_TRY(measure_slowest(m, &each, NULL));
    if (burst_rank(m->c) == 0)
        printf("pcie %.6g %.6g %.6g %.6g\n", MEASURE_HOP / seconds[0], MEASURE_HOP / seconds[1],
               MEASURE_HOP / seconds[2], MEASURE_HOP / seconds[3]);
    return BURST_OK;
}

static int measure_hop(Measure *m, size_t bytes)
{
    const int world = burst_world(m->c), me = burst_rank(m->c);
    const BurstBuffer out = {m->hop_out, bytes, m->hop_in}, in = {m->hop_in, bytes, NULL};
    return burst_gpu_hop(m->g, 0, &out, 1, (me + 1) % world, &in, 1, (me + world - 1) % world);
}

/* link TRANSPORT ALONE BESIDE LATENCY: a ring of hops, every rank at once; the slowest rank's. */
static int measure_link(Measure *m, const char *name)
{
    double alone = 0, beside = 0, small = 0, *const times[] = {&alone, &beside, &small};
    const BurstGroup all = {0, 1, burst_world(m->c)};
    const cudaStream_t stream = burst_gpu_channel(m->g, 0);
    const auto hop = [&] { return measure_hop(m, MEASURE_HOP); };
    const auto small_hop = [&] { return measure_hop(m, MEASURE_SMALL_HOP); };
    BURST_TRY(measure_transfers(m, stream, 2, false, &alone, hop));
    BURST_TRY(burst_barrier(m->c, all));
    BURST_TRY(measure_transfers(m, stream, 8, false, &alone, hop));
    BURST_TRY(burst_barrier(m->c, all));
    BURST_TRY(measure_transfers(m, stream, 8, true, &beside, hop));
    BURST_TRY(burst_barrier(m->c, all));
    BURST_TRY(measure_transfers(m, stream, 32, false, &small, small_hop));
    for (double *each : times)
        BURST_TRY(measure_slowest(m, each, NULL));
    if (burst_rank(m->c) == 0)
        printf("link %s %.6g %.6g %.6g\n", name, MEASURE_HOP / alone, MEASURE_HOP / beside, small);
    return BURST_OK;
}

/* Reductions of a layer's gradients, as in a step: one waits for products' blocks to end before it has its
 * multiprocessors, which would be most of a small one's time. */
static int measure_reduce(Measure *m)
{
    const int64_t part = (int64_t)(MEASURE_GRADIENTS / sizeof(float)) / burst_world(m->c);
    return burst_gpu_reduce(m->g, 0, m->gradients, part, m->gradients + burst_rank(m->c) * part, false);
}

/* Seconds of products beside so many reductions, which take longer than they. */
static int measure_slowed(Measure *m, int reductions, double *seconds)
{
    for (int i = 0; i < reductions; i++)
        BURST_TRY(measure_reduce(m));
    return measure_time(m, burst_gpu_compute(m->g), 2, seconds, [&] { return measure_products(m); });
}

/* reduction ALONE BESIDE SLOWED: what a rank sends of a reduction, alone and while products run, and how many
 * times as long products take meanwhile; the slowest rank's. */
static int measure_reduction(Measure *m)
{
    enum { ALONE, BESIDE, PRODUCTS, SLOWED, TIMES, REDUCTIONS = 64 };
    const int world = burst_world(m->c);
    const BurstGroup all = {0, 1, world};
    const cudaStream_t stream = burst_gpu_weights(m->g);
    const auto reduce = [&] { return measure_reduce(m); };
    double seconds[TIMES] = {};
    BURST_TRY(measure_transfers(m, stream, 2, false, &seconds[ALONE], reduce));
    BURST_TRY(burst_barrier(m->c, all));
    BURST_TRY(measure_transfers(m, stream, 8, false, &seconds[ALONE], reduce));
    BURST_TRY(burst_barrier(m->c, all));
    BURST_TRY(measure_transfers(m, stream, 8, true, &seconds[BESIDE], reduce));
    for (int i = 0; i < 2; i++) {
        BURST_TRY(burst_barrier(m->c, all));
        BURST_TRY(measure_slowed(m, i * REDUCTIONS, &seconds[PRODUCTS + i]));
    }
    for (double &each : seconds)
        BURST_TRY(measure_slowest(m, &each, NULL));
    const double sent = (double)MEASURE_GRADIENTS * (world - 1) / world;
    if (burst_rank(m->c) == 0)
        printf("reduction %.6g %.6g %.4f\n", sent / seconds[ALONE], sent / seconds[BESIDE],
               seconds[SLOWED] / seconds[PRODUCTS]);
    return BURST_OK;
}

static int measure_links(Measure *m)
{
    static const char *const transports[] = {"auto", "nccl"};
    BURST_TRY(measure_reduction(m));
    BURST_TRY(measure_link(m, transports[0]));
    burst_gpu_close(m->g);
    m->g = NULL;
    setenv("BURST_TRANSPORT", transports[1], 1);
    BURST_TRY(measure_open(m));
    return measure_link(m, transports[1]);
}
