/* main.cu: the runtime's device functions on one rank or more, against references on the host.
 *
 *     gpu_check [MODE] [RANKS]
 *     MODE: check | transfers | mixed | measure | links | open | stuck | lost | apart | slow | crowd
 *
 * transfers: only these; mixed: with the ranks on two "hosts", so that some use peer memory and some NCCL;
 * links: rates of both transports; open: no more than that. stuck, lost and apart end with an error on
 * purpose: a message that nobody sends, a rank that is killed, ranks whose memory is not laid out alike, a
 * topology that promises too much; crowd has a rank more than the machine has devices. Without a device:
 * 77, but for open, which says so as a program would. */
#include "check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77, COLUMNS = 7, SLEEP = 60 };
static constexpr size_t CHECK_BYTES = (size_t)4 << 30, MEASURE_BYTES = (size_t)16 << 30;

/* Shards of odd sizes that begin in the middle of tensors. */
static const BurstTensor embedding[] = {{"weight", 501, COLUMNS, 0, 0.5f}};
static const BurstTensor layer[] = {{"norm.weight", 1, COLUMNS, 0, 0},
                                    {"weight", 150, COLUMNS, COLUMNS, 0.5f},
                                    {"last.weight", 1, COLUMNS, 151 * COLUMNS, 0}};
static BurstUnit units[] = {{"embedding", 501 * COLUMNS, 0, 1, embedding, 1},
                            {"layer", 152 * COLUMNS, 0, 3, layer, 2}};

/* In a process of its own: CUDA does not survive a fork. */
static int devices(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int count = 0;
        _exit(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static void check(Check *k)
{
    check_copies(k);
    check_products(k);
    check_layer(k);
    check_recurrent(k);
    check_embedding(k);
    check_loss(k);
    check_transfers(k);
    check_optimizer(k);
}

/* A message comes over, then rank 0 waits for another one that the last rank does not send: it is asleep,
 * or dead. */
static int wait_in_vain(Check *k, bool kill_sender)
{
    const int me = burst_rank(k->c), last = burst_world(k->c) - 1;
    void *at = burst_gpu_take(k->g, 1024);
    const BurstBuffer b = {at, 1024, me == last ? at : NULL};
    BURST_TRY(burst_gpu_hop(k->g, 0, &b, me == last, 0, &b, me == 0, last));
    BURST_TRY(burst_gpu_sync(k->g));
    burst_doing(k->c, me == 0 ? "waiting in vain" : "sleeping");
    if (me == last && kill_sender)
        raise(SIGKILL);
    if (me == last)
        sleep(SLEEP);
    BURST_TRY(burst_gpu_hop(k->g, 0, NULL, 0, 0, &b, me == 0, last));
    return burst_gpu_sync(k->g);
}

/* Rank 0 has taken a buffer that the others have not. */
static int disagree(Check *k)
{
    const int me = burst_rank(k->c), world = burst_world(k->c);
    if (me == 0)
        burst_gpu_take(k->g, 4096);
    void *at = burst_gpu_take(k->g, 1024);
    const BurstBuffer out = {at, 1024, at}, in = {at, 1024, NULL};
    BURST_TRY(burst_gpu_hop(k->g, 0, &out, 1, (me + 1) % world, &in, 1, (me + world - 1) % world));
    return burst_gpu_sync(k->g);
}

static int run(Check *k, const char *mode)
{
    if (strcmp(mode, "apart") == 0)
        return disagree(k);
    if (strcmp(mode, "slow") == 0)
        return burst_fail(k->c, BURST_E_PLAN, "the device is open");
    if (strcmp(mode, "open") == 0)
        return BURST_OK;
    if (strcmp(mode, "stuck") == 0 || strcmp(mode, "lost") == 0)
        return wait_in_vain(k, mode[0] == 'l');
    if (strcmp(mode, "measure") == 0)
        measure(k);
    else if (strcmp(mode, "transfers") == 0 || strcmp(mode, "mixed") == 0)
        check_transfers(k);
    else
        check(k);
    return k->failures ? burst_fail(k->c, BURST_E_NUMERIC, "%d comparisons failed", k->failures) : BURST_OK;
}

static int body(BurstCtx *c, const BurstPlan *p, void *argument)
{
    const char *mode = (const char *)argument;
    Check k = {c, p, NULL, 0};
    if (strcmp(mode, "links") == 0) {
        measure_links(c, p);
        return BURST_OK;
    }
    if (strcmp(mode, "mixed") == 0)
        setenv("NCCL_HOSTID", burst_rank(c) < (burst_world(c) + 1) / 2 ? "one" : "other", 1);
    BURST_TRY(
        burst_gpu_open(c, CHECK_CHANNELS, strcmp(mode, "measure") == 0 ? MEASURE_BYTES : CHECK_BYTES, &k.g));
    int status = run(&k, mode);
    burst_gpu_close(k.g);
    return status;
}

static BurstPlan plan_for(int world)
{
    BurstPlan p = {};
    p.abi = BURST_RT_ABI, p.source = "gpu_check", p.world = world, p.data = 1, p.group = world;
    p.units = units, p.unit_rows = 2;
    for (BurstUnit &u : units)
        u.shard = (u.elements + world - 1) / world;
    p.train.steps = 10, p.train.batch = 1, p.train.lr = 1e-2, p.train.beta1 = 0.9, p.train.beta2 = 0.95;
    p.train.eps = 1e-8, p.train.decay = 0.1, p.train.clip = 1;
    p.arena_bytes = burst_weights_bytes(&p) + 4096;
    return p;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "check";
    const int found = devices();
    if (found == 0 && strcmp(mode, "open") != 0) {
        printf("no CUDA device\n");
        return SKIPPED;
    }
    const int most = strcmp(mode, "check") == 0 ? 2 : 4, all = found < most ? found : most;
    const int world = argc > 2 ? atoi(argv[2]) : all;
    BurstPlan p = plan_for(strcmp(mode, "crowd") == 0 ? found + 1 : world);
    if (strcmp(mode, "slow") == 0)
        p.link_bandwidth = 1e15;
    int code = burst_launch(&p, argc, argv, body, (void *)mode);
    printf("%s on %d ranks: %s\n", mode, p.world, code == 0 ? "ok" : "failed");
    return code;
}
