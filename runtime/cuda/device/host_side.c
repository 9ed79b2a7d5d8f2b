/* host_side.c: the context's functions for the CUDA runtime: ranks on the host, broadcast, the watchdog of
 * device waits. */
#include "cuda/device/host_side.h"

#include "core/context.h"
#include "core/region.h"
#include "core/weights.h"
#include "host/net/messages.h"

#include <sys/mman.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORD = 4, LINE = 256, NAP_US = 1000 };

/* Each word is a whole number below 2^32, exact in a double; all ranks but the first add zeros. */
int host_broadcast(BurstCtx *c, BurstGroup g, void *bytes, int count)
{
    double values[REDUCE_MAX] = {0};
    char *at = bytes;
    for (int i = 0; i < count / WORD && c->rank == g.first; i++) {
        uint32_t word;
        memcpy(&word, at + i * WORD, WORD);
        values[i] = word;
    }
    BURST_TRY(burst_allreduce(c, g, values, count / WORD));
    for (int i = 0; i < count / WORD; i++) {
        uint32_t word = (uint32_t)values[i];
        memcpy(at + i * WORD, &word, WORD);
    }
    return BURST_OK;
}

int host_local(const BurstCtx *c)
{
    return c->local;
}

int host_device(const BurstCtx *c)
{
    return c->local_rank >= 0 ? c->local_rank : c->local;
}

bool host_launched(const BurstCtx *c)
{
    return c->unwatched;
}

int host_claim(BurstCtx *c, uint64_t device, int *other)
{
    *other = -1;
    atomic_store(&c->slot->device, device);
    BURST_TRY(burst_barrier(c, (BurstGroup){0, 1, c->world}));
    for (int rank = 0; rank < c->world && *other < 0; rank++)
        if (rank != c->rank && c->local_of[rank] >= 0 &&
            atomic_load(&region_slot(c->region, c->local_of[rank])->device) == device)
            *other = rank;
    return BURST_OK;
}

int host_locals(const BurstCtx *c)
{
    return c->region->locals;
}

const struct BurstPlan *host_plan(const BurstCtx *c)
{
    return c->plan;
}

HostPart host_part(const BurstCtx *c, const BurstUnit *u, const BurstTensor *t)
{
    const ElementRange s = tensor_part(c->plan, c->rank, u, t);
    return (HostPart){s.begin, s.end, tensor_is_written(c->plan, c->rank, u, t), tensor_copies(c->plan, t)};
}

BurstGroup host_copies(const BurstCtx *c)
{
    for (int row = 0; row < c->plan->unit_rows; row++)
        for (int i = 0; i < c->plan->units[row].tensors; i++) {
            const BurstGroup same = copies_group(c, &c->plan->units[row].tensor[i]);
            if (same.count > 1 && same.count < plan_tensor(c->plan))
                return same;
        }
    return (BurstGroup){c->rank, 1, 1};
}

void *host_shared(BurstCtx *c)
{
    return c->slot->reduce;
}

/* Posts everything before it waits. req: two per rank of the host. */
static int swap_locals(BurstCtx *c, size_t bytes, char *all, BurstReq *req)
{
    int posted = 0;
    for (int rank = 0; rank < c->world; rank++) {
        if (rank == c->rank || c->local_of[rank] < 0)
            continue;
        BURST_TRY(burst_send(c, HOST_CHANNEL, rank, c->slot->reduce, bytes, &req[posted++]));
        BURST_TRY(burst_recv(c, HOST_CHANNEL, rank, all + (size_t)c->local_of[rank] * bytes, bytes,
                             &req[posted++]));
    }
    for (int i = 0; i < posted; i++)
        BURST_TRY(burst_wait(c, &req[i]));
    return BURST_OK;
}

_Static_assert(sizeof((Slot *)0)->reduce >= HOST_SHARED_BYTES, "what is shared lies there");
int host_share(BurstCtx *c, const void *mine, size_t bytes, void *all)
{
    BurstReq *req = calloc(2 * (size_t)c->region->locals, sizeof *req);
    if (!req)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for %d messages", 2 * c->region->locals);
    memcpy(c->slot->reduce, mine, bytes);
    memcpy((char *)all + (size_t)c->local * bytes, mine, bytes);
    int status = swap_locals(c, bytes, all, req);
    free(req);
    return status;
}

int host_collect(BurstCtx *c, const void *mine, size_t bytes, void *all)
{
    BurstReq req;
    if (c->rank != 0) {
        memcpy(c->slot->reduce, mine, bytes);
        BURST_TRY(burst_send(c, HOST_CHANNEL, 0, c->slot->reduce, bytes, &req));
        return burst_wait(c, &req);
    }
    memcpy(all, mine, bytes);
    for (int rank = 1; rank < c->world; rank++) {
        BURST_TRY(burst_recv(c, HOST_CHANNEL, rank, (char *)all + (size_t)rank * bytes, bytes, &req));
        BURST_TRY(burst_wait(c, &req));
    }
    return BURST_OK;
}

/* Describes what this host's other ranks do: a wait for a device is finally a wait for one of them. */
static void describe_others(const BurstCtx *c, char *text, size_t size)
{
    size_t used = 0;
    for (int rank = 0; rank < c->world && used < size; rank++) {
        if (rank == c->rank || c->local_of[rank] < 0)
            continue;
        char who[LINE];
        describe_rank(c->region, rank, c->local_of[rank], who, sizeof who);
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "; on this host: ", who);
    }
}

int host_watchdog(BurstCtx *c, HostWatchdog *v, const char *what)
{
    Watchdog watchdog = {.begin = v->begin, .checked = v->checked};
    int status = watchdog_look(c, &watchdog);
    *v = (HostWatchdog){watchdog.begin, watchdog.checked};
    BURST_TRY(status);
    if (awake_seconds() - v->begin <= c->timeout)
        return BURST_OK;
    char others[ERROR_TEXT / 2] = "";
    describe_others(c, others, sizeof others);
    return burst_fail(c, BURST_E_PEER, "timed out after %.3g s (see --timeout), waiting for the device: %s%s",
                      c->timeout, what, others);
}

bool host_failure_known(BurstCtx *c, double seconds)
{
    double end = burst_seconds() + seconds;
    Watchdog v = {0};
    int status = watchdog_look(c, &v);
    for (; status == BURST_OK && burst_seconds() < end; status = watchdog_look(c, &v))
        host_nap(NAP_US);
    return status != BURST_OK;
}

bool host_traced(const BurstCtx *c)
{
    return c->spans != NULL;
}

void host_watch(BurstCtx *c, HostDevice d)
{
    c->device = d;
}

void host_nap(long microseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL);
}

/* ---- host memory for device copies ---- */

typedef struct Pages { volatile char *at; size_t bytes; } Pages;

enum { PAGE = 4096 }; /* the smallest page size; a stride of it touches larger pages too */

static void touch_pages(const void *what, int part, int parts)
{
    const Pages *p = what;
    const size_t pages = (p->bytes + PAGE - 1) / PAGE, count = (size_t)parts;
    const size_t first = pages / count * (size_t)part;
    const size_t end = part + 1 == parts ? pages : pages / count * (size_t)(part + 1);
    for (size_t i = first; i < end; i++)
        p->at[i * PAGE] = 0;
}

void *host_pages(BurstCtx *c, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    madvise(at, bytes, MADV_HUGEPAGE); /* without huge pages, small ones are used */
    const Pages p = {at, bytes};
    in_parts(c, touch_pages, &p);
    return at;
}

void host_pages_free(void *at, size_t bytes)
{
    munmap(at, bytes);
}
