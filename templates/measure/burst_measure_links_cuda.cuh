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
        cudaMemcpyAsync(m->hop_in, host, MEASURE_HOP, cudaMemcpyHostToDevice, burst_gpu_channel(m->g, 0)));
    return BURST_OK;
}

/* pcie ALONE BESIDE: pinned memory to the device, every rank at once; the slowest rank's. */
static int measure_pcie(Measure *m)
{
    void *host;
    double seconds[2] = {0, 0};
    MEASURE_CUDA(cudaMallocHost(&host, MEASURE_HOP));
    memset(host, 1, MEASURE_HOP);
    for (int beside = 0; beside < 2; beside++)
        BURST_TRY(measure_transfers(m, burst_gpu_channel(m->g, 0), 4, beside, &seconds[beside],
                                    [&] { return measure_upload(m, host); }));
    for (double &each : seconds)
        BURST_TRY(measure_slowest(m, &each, NULL));
    MEASURE_CUDA(cudaFreeHost(host));
    if (burst_rank(m->c) == 0)
        printf("pcie %.6g %.6g\n", MEASURE_HOP / seconds[0], MEASURE_HOP / seconds[1]);
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

/* reduction ALONE BESIDE: what a rank sends of a reduction of 256 MiB of gradients; the slowest rank's. */
static int measure_reduction(Measure *m)
{
    const int world = burst_world(m->c);
    const int64_t part = (int64_t)(MEASURE_HOP / sizeof(float)) / world;
    const auto reduce = [&] {
        return burst_gpu_reduce(m->g, 0, (float *)m->hop_out, part, (float *)m->hop_in, false);
    };
    double seconds[2] = {0, 0};
    BURST_TRY(measure_transfers(m, burst_gpu_weights(m->g), 2, false, seconds, reduce));
    for (int beside = 0; beside < 2; beside++) {
        BURST_TRY(burst_barrier(m->c, BurstGroup{0, 1, world}));
        BURST_TRY(measure_transfers(m, burst_gpu_weights(m->g), 8, beside, &seconds[beside], reduce));
        BURST_TRY(measure_slowest(m, &seconds[beside], NULL));
    }
    const double sent = (double)sizeof(float) * (double)part * (world - 1);
    if (burst_rank(m->c) == 0)
        printf("reduction %.6g %.6g\n", sent / seconds[0], sent / seconds[1]);
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
