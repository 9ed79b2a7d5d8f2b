/* mismatch.c: ranks that do not call the same end with an error that says so, all of them and soon. What goes
 * on around them (strangers that connect, signals, forks) is none of theirs.
 *
 * mismatch PLAN.so OTHER.so: plans of RANKS ranks with two masks that read doc; threads are ranks.
 */
#include "burst.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 3, ODD = 1 }; /* ODD: the rank that does something else */
enum { STRANGERS_MOST = 66, FILES = 256 }; /* at each port: more than a rank reads from at once */
static const double soon = 1;

/* What the odd rank does instead, what its own error says, and what the others' do. */
typedef enum What {
    SAME,
    MASK,
    LENGTHS,
    DIRECTION,
    WIDTH,
    LAYOUT,
    NO_MASK,
    NO_ARRAY,
    CLOSES,
    SCALE,
    NEGATIVE,
    ABORTS,
    STRANGERS,
    SIGNALS,
    FORKS,
    WHATS
} What;
static const struct {
    const char *name, *own, *others;
} expected[WHATS] = {
    [SAME] = {"the same", "", ""},
    [MASK] = {"another mask", "mask 1", "mask 1"},
    [LENGTHS] = {"other lengths", "different batches", "different batches"},
    [DIRECTION] = {"backward", "backward", "backward"},
    [WIDTH] = {"wider rows", "rows of 8 bytes", "rows of 8 bytes"},
    [LAYOUT] = {"another layout", "contiguous", "contiguous"},
    [NO_MASK] = {"a mask that does not exist", "mask 7", "mask 7"},
    [NO_ARRAY] = {"no queries", "rank 1: an array is NULL", "rank 1: an array is NULL"},
    [CLOSES] = {"it closes the plan", "", "rank 1 has closed the plan"},
    [ABORTS] = {"it gives up", "rank 1: no rows", "rank 1: no rows"},
    [SCALE] = {"another scale", "scale 0.5", "scale 0.5"},
    [NEGATIVE] = {"a negative scale", "rank 1: the scale -0.25", "rank 1: the scale -0.25"},
    [STRANGERS] = {"strangers connect and say nothing", "", ""},
    [SIGNALS] = {"signals come while ranks connect", "", ""},
    [FORKS] = {"a fork closes the plan", "", ""},
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *path[2];
static pthread_barrier_t meet;
static const void *shared[RANKS];
static What what;
static bool goes_well(void) { return what == SAME || what >= STRANGERS; }
typedef struct Rank {
    int rank, status, gathers;
    char error[600];
    double seconds;
} Rank;

/* To a socket of this process, if it listens. */
static void send_strangers(int listener)
{
    struct sockaddr_in to;
    int listens = 0;
    socklen_t n = sizeof listens, size = sizeof to;
    if (getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) != 0 || !listens ||
        getsockname(listener, (struct sockaddr *)&to, &size) != 0)
        return;
    for (int i = 0; i < STRANGERS_MOST; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)!connect(fd, (const struct sockaddr *)&to, sizeof to);
        (void)!write(fd, "GET /", (size_t)(i % 5));
    }
}

static void nothing(int number) { (void)number; }

static void send_signals(long microseconds)
{
    const struct sigaction a = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    const struct itimerval often = {{0, microseconds}, {0, microseconds}};
    sigaction(SIGALRM, &a, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
}

/* While the others wait to be called, the odd rank is busy with something else. */
static void happen_while_they_connect(void)
{
    for (int fd = 3; fd < FILES && what == STRANGERS; fd++)
        send_strangers(fd);
    if (what == SIGNALS)
        send_signals(10000);
    for (double end = seconds() + soon / 5; (what == STRANGERS || what == SIGNALS) && seconds() < end;)
        usleep(10000); /* or until a signal comes */
    send_signals(0);
}

static int all_gather(void *context, const void *in, void *out, size_t bytes)
{
    const Rank *r = context;
    shared[r->rank] = in;
    pthread_barrier_wait(&meet);
    for (int i = 0; i < RANKS; i++)
        memcpy((char *)out + (size_t)i * bytes, shared[i], bytes);
    pthread_barrier_wait(&meet);
    if (++((Rank *)context)->gathers == 2 && r->rank == ODD)
        happen_while_they_connect();
    return 0;
}

static void require(bool ok, const char *name, const Rank *r)
{
    if (ok)
        return;
    fprintf(stderr, "%s: rank %d: status %d after %.2f s: %s\n", name, r->rank, r->status, r->seconds,
            r->error);
    exit(1);
}

static int call(BurstPlan *plan, BurstBatch *batch, bool odd, char *workspace)
{
    const BurstInfo *info = burst_plan_info(plan);
    const size_t n = (size_t)info->tokens * (size_t)info->heads * (size_t)info->head_dim + 1;
    float *x = calloc(8 * n, sizeof *x);
    const float *q = odd && what == NO_ARRAY ? NULL : x;
    const int others[WHATS] = {[MASK] = 1, [NO_MASK] = 7}, mask = odd ? others[what] : 0;
    const float scales[WHATS] = {[SCALE] = 0.5f, [NEGATIVE] = -0.25f}, scale = odd ? scales[what] : 0;
    int status = BURST_PEERS;
    if (odd && what == ABORTS)
        burst_plan_abort(plan, "no rows");
    else if (what == WIDTH || what == LAYOUT)
        status = burst_move(batch, BURST_BALANCED,
                            odd && what == LAYOUT ? BURST_CONTIGUOUS : BURST_REPLICATED, x, x + n,
                            odd && what == WIDTH ? 8 : 4, NULL);
    else if (odd && what == DIRECTION)
        status = burst_attention_backward(batch, 0, x, x, x, NULL, 0, x, x, x, NULL, x + n, x + 2 * n,
                                          x + 3 * n, NULL, workspace, NULL);
    else
        status = burst_attention_forward(batch, mask, q, x, x, NULL, scale, x + n, x + 2 * n, workspace,
                                         NULL);
    free(x);
    return status;
}

/* As an exit handler of a worker does; its calls are refused, and the others hear of neither. */
static void close_in_fork(BurstPlan *plan, BurstBatch *batch, char *workspace)
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        const bool refused = call(plan, batch, false, workspace) == BURST_BAD_ARGUMENT &&
                             strstr(burst_error(plan), "forked");
        burst_plan_abort(plan, "a fork's reason");
        burst_batch_close(batch);
        burst_plan_close(plan);
        _exit(refused ? 0 : 1);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "%s: its call was not refused\n", expected[what].name);
        exit(1);
    }
}

static void *run_rank(void *argument)
{
    Rank *r = argument;
    const BurstGroup group = {r->rank, RANKS, all_gather, r};
    const bool odd = r->rank == ODD;
    BurstPlan *plan;
    BurstBatch *batch;
    const double opened = seconds();
    r->status = burst_plan_open(path[0], &group, &plan);
    r->seconds = seconds() - opened;
    snprintf(r->error, sizeof r->error, "%s", burst_error(NULL));
    require(r->status == BURST_SUCCESS && r->seconds < 10 * soon, expected[what].name, r);
    const int32_t tokens = (int32_t)burst_plan_info(plan)->tokens;
    const int32_t cu[] = {0, odd && what == LENGTHS ? 20 : 30, tokens};
    r->status = burst_batch_make(plan, cu, 2, NULL, &batch);
    require(r->status == BURST_SUCCESS, "batch", r);
    char *workspace = aligned_alloc(64, (burst_plan_bytes(plan, BURST_WORKSPACE) + 63) / 64 * 64);
    if (odd && what == FORKS)
        close_in_fork(plan, batch, workspace);
    const double begin = seconds();
    r->status = odd && what == CLOSES ? BURST_SUCCESS : call(plan, batch, odd, workspace);
    r->seconds = seconds() - begin;
    snprintf(r->error, sizeof r->error, "%s", burst_error(plan));
    if (!goes_well() && !(odd && what == CLOSES))
        require(call(plan, batch, false, workspace) == r->status, "the plan goes on", r);
    burst_batch_close(batch);
    burst_plan_close(plan);
    free(workspace);
    return NULL;
}

static void run_all(void *(*body)(void *), Rank rank[RANKS])
{
    pthread_t thread[RANKS];
    pthread_barrier_init(&meet, NULL, RANKS);
    for (int i = 0; i < RANKS; i++) {
        rank[i] = (Rank){.rank = i};
        if (pthread_create(&thread[i], NULL, body, &rank[i]) != 0)
            exit(2);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&meet);
}

static void check(const Rank *r)
{
    const bool fails = !goes_well() && !(r->rank == ODD && what == CLOSES);
    const char *text = r->rank == ODD ? expected[what].own : expected[what].others;
    const bool own = r->rank == ODD && r->status == BURST_BAD_ARGUMENT &&
                     (what == NO_ARRAY || what == NO_MASK || what == NEGATIVE);
    require(own || r->status == (fails ? BURST_PEERS : BURST_SUCCESS), expected[what].name, r);
    require(!fails || strstr(r->error, text), expected[what].name, r);
    require(r->seconds < soon, expected[what].name, r);
}

/* Rank ODD has another plan; then none has one of this many ranks. */
static void *open_other(void *argument)
{
    Rank *r = argument;
    const BurstGroup group = {r->rank, RANKS, all_gather, r};
    BurstPlan *plan;
    r->status = burst_plan_open(path[r->rank == ODD], &group, &plan);
    snprintf(r->error, sizeof r->error, "%s", burst_error(NULL));
    require(!plan, "another plan", r);
    return NULL;
}

/* What has no plan, or no batch, says so. */
static void pass_nulls(void)
{
    BurstBatch *batch = NULL;
    Rank none = {.status = burst_batch_make(NULL, NULL, 0, NULL, &batch)};
    snprintf(none.error, sizeof none.error, "%s", burst_error(NULL));
    require(none.status == BURST_BAD_ARGUMENT && strstr(none.error, "plan is NULL"), "no plan", &none);
    none.status = burst_attention_forward(NULL, 0, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL);
    snprintf(none.error, sizeof none.error, "%s", burst_error(NULL));
    require(none.status == BURST_BAD_ARGUMENT && strstr(none.error, "batch is NULL"), "no batch", &none);
    const bool refused = burst_batch_load(NULL, NULL, NULL) == BURST_BAD_ARGUMENT &&
                         burst_batch_rows(NULL, BURST_BALANCED, NULL, NULL) == BURST_BAD_ARGUMENT &&
                         burst_attention_backward(NULL, 0, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL,
                                                  NULL, NULL, NULL, NULL, NULL, NULL) == BURST_BAD_ARGUMENT &&
                         burst_move(NULL, BURST_BALANCED, BURST_REPLICATED, NULL, NULL, 4, NULL) ==
                             BURST_BAD_ARGUMENT;
    require(refused && !burst_plan_info(NULL) && burst_plan_bytes(NULL, BURST_WORKSPACE) == 0, "NULL", &none);
    burst_plan_abort(NULL, NULL);
    burst_plan_close(NULL);
    burst_batch_close(NULL);
    printf("%-28s %s\n", "no plan", none.error);
}

int main(int argc, char **argv)
{
    Rank rank[RANKS];
    if (argc != 3)
        return 2;
    path[0] = argv[1], path[1] = argv[2];
    for (what = SAME; what < WHATS; what++) {
        run_all(run_rank, rank);
        for (int i = 0; i < RANKS; i++)
            check(&rank[i]);
        printf("%-28s %s\n", expected[what].name, rank[0].error);
    }
    run_all(open_other, rank);
    for (int i = 0; i < RANKS; i++)
        require(rank[i].status != BURST_SUCCESS && strstr(rank[i].error, "different plans"), "another plan",
                &rank[i]);
    printf("%-28s %s\n", "another plan", rank[0].error);
    const BurstGroup two = {0, 1, NULL, NULL};
    BurstPlan *plan;
    Rank alone = {.status = burst_plan_open(path[0], &two, &plan)};
    snprintf(alone.error, sizeof alone.error, "%s", burst_error(NULL));
    require(alone.status == BURST_BAD_ARGUMENT && strstr(alone.error, "for 3 ranks"), "one rank", &alone);
    printf("%-28s %s\n", "one rank", alone.error);
    pass_nulls();
    return 0;
}
