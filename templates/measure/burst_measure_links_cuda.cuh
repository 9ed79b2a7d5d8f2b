/* burst_measure_links_cuda.cuh: rates of transfers, alone and while computing: PCIe and the links between
 * ranks. Part of burst_measure_cuda.cuh. */
/* Seconds of each of `count` transfers on the channel's stream. beside: while products run; they take
 * longer than the transfers. */
template <class Call>
static int measure_transfers(Measure *m, int count, bool beside, double *seconds, Call call)
{
    for (int i = 0; i < (beside ? 4 : 0); i++)
        BURST_TRY(measure_products(m));
    return measure_time(m, burst_gpu_channel(m->g, 0), count, seconds, call);
}

static int measure_upload(Measure *m, const void *host)
{
    MEASURE_CUDA(
        cudaMemcpyAsync(m->hop_in, host, MEASURE_HOP, cudaMemcpyHostToDevice, burst_gpu_channel(m->g, 0)));
    return BURST_OK;
}

/* pcie ALONE BESIDE: pinned memory to the device, every rank at once. */
static int measure_pcie(Measure *m)
{
    void *host;
    double seconds[2] = {0, 0};
    MEASURE_CUDA(cudaMallocHost(&host, MEASURE_HOP));
    memset(host, 1, MEASURE_HOP);
    for (int beside = 0; beside < 2; beside++)
        BURST_TRY(measure_transfers(m, 4, beside, &seconds[beside], [&] { return measure_upload(m, host); }));
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

/* link TRANSPORT ALONE BESIDE LATENCY: a ring of hops, every rank at once. */
static int measure_link(Measure *m, const char *name)
{
    double alone = 0, beside = 0, small = 0;
    const BurstGroup all = {0, 1, burst_world(m->c)};
    BURST_TRY(measure_transfers(m, 2, false, &alone, [&] { return measure_hop(m, MEASURE_HOP); }));
    BURST_TRY(burst_barrier(m->c, all));
    BURST_TRY(measure_transfers(m, 8, false, &alone, [&] { return measure_hop(m, MEASURE_HOP); }));
    BURST_TRY(burst_barrier(m->c, all));
    BURST_TRY(measure_transfers(m, 8, true, &beside, [&] { return measure_hop(m, MEASURE_HOP); }));
    BURST_TRY(burst_barrier(m->c, all));
    BURST_TRY(measure_transfers(m, 32, false, &small, [&] { return measure_hop(m, MEASURE_SMALL_HOP); }));
    BURST_TRY(burst_barrier(m->c, all));
    if (burst_rank(m->c) == 0)
        printf("link %s %.6g %.6g %.6g\n", name, MEASURE_HOP / alone, MEASURE_HOP / beside, small);
    return BURST_OK;
}

static int measure_links(Measure *m)
{
    static const char *const transports[] = {"auto", "nccl"};
    BURST_TRY(measure_link(m, transports[0]));
    burst_gpu_close(m->g);
    m->g = NULL;
    setenv("BURST_TRANSPORT", transports[1], 1);
    BURST_TRY(measure_open(m));
    return measure_link(m, transports[1]);
}
