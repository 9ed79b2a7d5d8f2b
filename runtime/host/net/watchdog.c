/* watchdog.c: conditions that end a rank's wait: another rank's failure, a lost peer, and its time limit. */
#include "core/context.h"
#include "core/region.h"
#include "core/signals.h"
#include "host/net/messages.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 256 };
static const double look_every = 0.1; /* seconds between checks of the peers' processes */

static int local_rank(const BurstCtx *c, int local)
{
    for (int rank = 0; rank < c->world; rank++)
        if (c->local_of[rank] == local)
            return rank;
    return -1;
}

/* State of a process of this host: the letter after the name in brackets, 0 if it does not exist. */
static char process_state(pid_t pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' ? name_end[2] : 0;
}

/* Also true if its launcher has not yet collected its status. */
static bool is_gone(pid_t pid)
{
    char state = process_state(pid);
    return (kill(pid, 0) != 0 && errno == ESRCH) || state == 'Z' || state == 'X';
}

bool is_stopped(int pid)
{
    char state = process_state(pid);
    return state == 'T' || state == 't';
}

/* Our launcher sees more, namely how a process ended, but not while it is stopped. */
static bool launcher_watches(const BurstCtx *c)
{
    return !c->unwatched && !is_stopped(getppid());
}

static int look_at_processes(BurstCtx *c)
{
    for (int i = 0; i < c->region->locals; i++) {
        Slot *s = region_slot(c->region, i);
        pid_t pid = atomic_load(&s->pid);
        /* in this order: it may end between the two checks */
        if (pid == 0 || !is_gone(pid) || atomic_load(&s->ended))
            continue;
        char who[LINE];
        describe_rank(c->region, local_rank(c, i), i, who, sizeof who);
        return burst_fail(c, BURST_E_PEER, "lost %s: its process %d has exited", who, (int)pid);
    }
    return BURST_OK;
}

static void describe_wait(const BurstCtx *c, const Op *op, char *text, size_t size)
{
    char peer[LINE];
    const Lane *l = op->lane;
    describe_rank(c->region, l->peer, c->local_of[l->peer], peer, sizeof peer);
    snprintf(text, size, "waiting to %s %llu bytes (channel %d, message %llu) %s %s",
             l->sending ? "send" : "receive", (unsigned long long)op->bytes, l->channel,
             (unsigned long long)op->sequence, l->sending ? "to" : "from", peer);
}

/* Follows who waits for whom, as far as this host can see. Ends at a rank that does not wait or was stopped
 * while it waited, or after world steps, in a circle. */
static int root_of_wait(const BurstCtx *c, int rank, bool *circle)
{
    for (int i = 0; i < c->world; i++) {
        int local = c->local_of[rank];
        int next = local < 0 ? 0 : atomic_load(&region_slot(c->region, local)->waits_for);
        if (next != 0 && is_stopped(atomic_load(&region_slot(c->region, local)->pid)))
            next = 0;
        *circle = next != 0;
        if (next == 0)
            return rank;
        rank = next - 1;
    }
    return rank;
}

static int stuck(BurstCtx *c, const Op *op)
{
    char what[2 * LINE], who[LINE];
    bool circle = false;
    int root = root_of_wait(c, op->lane->peer, &circle);
    describe_wait(c, op, what, sizeof what);
    describe_rank(c->region, root, c->local_of[root], who, sizeof who);
    return burst_fail(c, BURST_E_PEER, "timed out after %.3g s (see --timeout), %s; %s %s", c->timeout, what,
                      circle ? "deadlock: the ranks wait for each other in a cycle with" : "all wait for",
                      who);
}

/* A rank that reads or writes files is not stuck, however long it takes, unless it is stopped. */
static bool may_take_longer(const BurstCtx *c, const Op *op)
{
    bool circle = false;
    const int local = c->local_of[root_of_wait(c, op->lane->peer, &circle)];
    return c->patient && !circle &&
           (local < 0 || !is_stopped(atomic_load(&region_slot(c->region, local)->pid)));
}

static void say_slow(BurstCtx *c, const Op *op)
{
    char who[LINE];
    const int peer = op->lane->peer;
    if (atomic_exchange(&region_head(c->region)->said_slow, 1))
        return;
    describe_rank(c->region, peer, c->local_of[peer], who, sizeof who);
    say_line("rank %d has waited %.3g s for the files of %s, and waits on: storage may be slow, and "
             "--timeout does not count here; this is said once",
             c->rank, c->timeout, who);
}

static bool has_ended(const BurstCtx *c, int peer)
{
    int local = c->local_of[peer];
    if (local < 0)
        return c->remote->ended && c->remote->ended(c, peer);
    return atomic_load(&region_slot(c->region, local)->ended);
}

/* A peer that has ended may have published its last message just before. Only the second look, after another
 * round of progress, counts. */
static int look_at_peer(BurstCtx *c, Watchdog *v, const Op *op)
{
    if (!has_ended(c, op->lane->peer))
        return BURST_OK;
    if (!v->peer_gone) {
        v->peer_gone = true;
        return BURST_OK;
    }
    char what[2 * LINE];
    describe_wait(c, op, what, sizeof what);
    return burst_fail(c, BURST_E_PLAN, "%s, which has already exited", what);
}

/* A process of this host that is gone may be why another host gave up, so it is named first. */
static int look_at_hosts(BurstCtx *c)
{
    int status = c->remote && c->remote->look ? c->remote->look(c) : BURST_OK;
    if (status == BURST_OK)
        return BURST_OK;
    char text[ERROR_TEXT];
    snprintf(text, sizeof text, "%s", c->error);
    int here = look_at_processes(c);
    c->relayed &= here == BURST_OK;
    return here == BURST_OK ? burst_fail(c, status, "%s", text) : here;
}

int watchdog_look(BurstCtx *c, Watchdog *v)
{
    if (atomic_load(&region_head(c->region)->state) != RUNNING) {
        c->echo = true;
        return burst_fail(c, BURST_E_PEER, "another rank failed");
    }
    double now = awake_seconds();
    if (v->begin == 0)
        v->begin = v->checked = now;
    BURST_TRY(look_at_hosts(c));
    if (!termination_told() && now - v->checked <= look_every)
        return BURST_OK;
    v->checked = now;
    if (!launcher_watches(c))
        BURST_TRY(look_at_processes(c));
    return heed_termination(c);
}

int watchdog_check(BurstCtx *c, Watchdog *v, const Op *op)
{
    BURST_TRY(watchdog_look(c, v));
    atomic_store(&c->slot->waits_for, op->lane->peer + 1);
    BURST_TRY(look_at_peer(c, v, op));
    if (awake_seconds() - v->begin <= c->timeout)
        return BURST_OK;
    if (!may_take_longer(c, op))
        return stuck(c, op);
    say_slow(c, op);
    v->begin = awake_seconds();
    return BURST_OK;
}
