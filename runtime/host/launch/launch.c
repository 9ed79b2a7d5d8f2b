/* launch.c: without a launcher, one process starts all ranks and watches them; the first failure ends the
 * others. */
#include "base/blas.h"
#include "base/plural.h"
#include "core/context.h"
#include "core/signals.h"
#include "host/launch/identity.h"
#include "host/launch/place.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE = 256, GRACE_MS = 500 }; /* time for the other ranks to end by themselves after a failure */

typedef struct Child { pid_t pid; int watch; } Child; /* watch: pidfd, -1 once it has ended */
typedef struct Crew {
    Region *r;
    Signals signals;
    Child *child;
    int started, *local_of;
} Crew;

static int usage_error(const char *text)
{
    say_line("%s", text);
    return exit_code(BURST_E_USAGE);
}

/* Runs a forked rank. It dies with the launcher, even if that was killed before prctl. */
static void child_main(const Job *job, Crew *crew, int rank, pid_t launcher)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher)
        _exit(1);
    signals_release(&crew->signals);
    bool first;
    int status = rank_run(job, crew->r, rank, crew->local_of, NULL, &first);
    if (first && is_stopped(launcher)) /* it reports when it continues */
        region_say(crew->r);
    fflush(NULL);
    _exit(exit_code(status));
}

static void describe_end(int status, char *text, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(text, size, "killed by signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, size, "ended early with exit code %d", WEXITSTATUS(status));
}

/* Handles the end of a child. Any end but success fails the job; the first reason is kept. */
static void reap(Region *r, Child *child, int rank)
{
    int status = 0;
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(child->watch);
    child->watch = -1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && atomic_load(&region_slot(r, rank)->ended))
        return;
    char who[LINE], how[LINE], text[3 * LINE];
    describe_rank(r, rank, rank, who, sizeof who);
    describe_end(status, how, sizeof how);
    snprintf(text, sizeof text, "lost %s: %s", who, how);
    region_fail(r, BURST_E_PEER, text);
}

static void end_by_signal(Crew *crew)
{
    char where[LINE], what[SIGNAL_TEXT], text[2 * LINE];
    if (!signals_read(&crew->signals))
        return;
    describe_rank(crew->r, 0, 0, where, sizeof where);
    signal_text(crew->signals.told, what, sizeof what);
    snprintf(text, sizeof text, "stopped by %s, at %s%s", what, where,
             atomic_load(&region_head(crew->r)->saved_at) ? "" : "; this run has written no checkpoint");
    region_fail(crew->r, BURST_E_PEER, text);
}

/* Reads signals first: one sent to all processes of a terminal also ends ranks. */
static int await_ends(Crew *crew, int timeout_ms)
{
    const int started = crew->started;
    struct pollfd *fds = calloc((size_t)started + 1, sizeof *fds);
    int left = 0;
    for (int i = 0; fds && i < started; i++)
        fds[i] = (struct pollfd){.fd = crew->child[i].watch, .events = POLLIN};
    if (fds)
        fds[started] = (struct pollfd){.fd = crew->signals.fd, .events = POLLIN};
    if (fds && poll(fds, (nfds_t)started + 1, timeout_ms) > 0) {
        end_by_signal(crew);
        for (int i = 0; i < started; i++)
            if (fds[i].revents)
                reap(crew->r, &crew->child[i], i);
    }
    free(fds);
    for (int i = 0; i < started; i++)
        left += crew->child[i].watch >= 0;
    return left;
}

static void supervise(Crew *crew)
{
    int left = crew->started;
    double failed_at = 0;
    bool killed = false;
    while (left > 0) {
        bool failed = atomic_load(&region_head(crew->r)->state) != RUNNING;
        if (failed && failed_at == 0)
            failed_at = burst_seconds();
        if (failed && !killed && burst_seconds() - failed_at > GRACE_MS * 1e-3) {
            for (int i = 0; i < crew->started; i++)
                if (crew->child[i].watch >= 0)
                    kill(crew->child[i].pid, SIGKILL);
            killed = true;
        }
        left = await_ends(crew, failed && !killed ? 50 : 1000);
    }
}

static int start_rank(const Job *job, Crew *crew, int rank)
{
    Region *r = crew->r;
    Child *child = &crew->child[rank];
    pid_t launcher = getpid();
    *child = (Child){.pid = fork(), .watch = -1};
    if (child->pid == 0)
        child_main(job, crew, rank, launcher);
    if (child->pid > 0)
        child->watch = (int)syscall(SYS_pidfd_open, child->pid, 0);
    if (child->watch >= 0)
        return 0;
    char text[LINE];
    snprintf(text, sizeof text, "cannot start rank %d: %s", rank, strerror(errno));
    region_fail(r, BURST_E_MEMORY, text);
    if (child->pid > 0) {
        kill(child->pid, SIGKILL);
        waitpid(child->pid, NULL, 0);
    }
    return -1;
}

static int run_children(const Job *job, Crew *crew)
{
    const int world = job->plan->world;
    fflush(NULL); /* else every child would write the buffered text again */
    for (int i = 0; i < world; i++)
        crew->local_of[i] = i;
    while (crew->started < world && start_rank(job, crew, crew->started) == 0)
        crew->started++;
    supervise(crew);
    Head *h = region_head(crew->r);
    if (atomic_load(&h->state) == RUNNING)
        return BURST_OK;
    region_say(crew->r);
    return h->code;
}

static int run_crew(const Job *job, Region *r)
{
    const size_t world = (size_t)job->plan->world;
    Crew crew = {.r = r,
                 .child = calloc(world, sizeof *crew.child),
                 .local_of = calloc(world, sizeof *crew.local_of)};
    int status = BURST_E_MEMORY;
    if (crew.child && crew.local_of && signals_hold(&crew.signals)) {
        status = run_children(job, &crew);
        signals_release(&crew.signals);
    } else {
        say_line("cannot start %zu rank%s: %s", world, plural((long long)world), strerror(errno));
    }
    free(crew.child);
    free(crew.local_of);
    signals_follow(&crew.signals);
    return exit_code(status);
}

static int run_alone(const Job *job)
{
    const BurstPlan *p = job->plan;
    size_t machine, bytes = p->arena_bytes * (size_t)p->world;
    char text[ERROR_TEXT];
    Region r;
    const int status = identity_plan_fits(job, p->world, text, sizeof text);
    if (status != BURST_OK) {
        say_line("%s", text);
        return exit_code(status);
    }
    if (!memory_suffices(bytes, &machine)) {
        say_line("%d rank%s of %.2f GiB each need%s %.2f GiB of memory, but this machine has %.2f GiB free",
                 p->world, plural(p->world), (double)p->arena_bytes / (1 << 30), p->world == 1 ? "s" : "",
                 (double)bytes / (1 << 30), (double)machine / (1 << 30));
        return exit_code(BURST_E_MEMORY);
    }
    if (region_make(&r, p->world, p->arena_bytes) != 0) {
        say_line("cannot allocate %.2f GiB of shared memory: %s", (double)bytes / (1 << 30), strerror(errno));
        fflush(NULL);
        _exit(exit_code(BURST_E_MEMORY)); /* an exit may wait for OpenBLAS (host.h) */
    }
    int code = run_crew(job, &r);
    region_free(&r);
    return code;
}

/* A descriptor that the caller has closed would be reused by the next file or memory that is opened, and
 * output would be written into it. Opens placeholders in the wrong direction, so that writing fails as it
 * does on a closed descriptor. */
static void keep_standard_descriptors(void)
{
    static const int mode[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", mode[fd]) < 0)
            return; /* there is no way to report it */
}

int job_run(const Job *job)
{
    Place place;
    char text[ERROR_TEXT];
    Job placed = *job;
    keep_standard_descriptors();
    burst_blas_setup();
    if (place_find(&place, text, sizeof text) != BURST_OK)
        return usage_error(text);
    placed.place = &place;
    if (place.launcher == ALONE)
        return run_alone(&placed);
#ifdef BURST_MPI
    if (place.launcher == BY_MPI)
        return mpi_job_run(&placed);
#endif
    return rendezvous_job_run(&placed);
}

int burst_launch(const BurstPlan *p, int argc, char **argv,
                 int (*body)(BurstCtx *c, const BurstPlan *p, void *arg), void *arg)
{
    Job job = {.plan = p, .train = &p->train, .timeout = default_timeout(), .body = body, .arg = arg};
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--timeout") == 0 && !parse_seconds(argv[i + 1], &job.timeout))
            return usage_error("--timeout requires a number of seconds");
    return job_run(&job);
}
