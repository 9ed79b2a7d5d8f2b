/* region.c: the shared memory of one host's ranks, and the futexes in it. */
#include "core/region.h"

#include "base/blas.h"
#include "core/context.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static void lay_out(Region *r, int locals, size_t arena_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (size_t)locals;
    r->locals = locals;
    r->slot_at = round_up(sizeof(Head), 64);
    r->ring_at = round_up(r->slot_at + n * sizeof(Slot), page);
    r->arena_at = round_up(r->ring_at + n * n * BURST_CHANNELS * sizeof(Ring), page);
    r->arena_bytes = round_up(arena_bytes, page);
    r->bytes = r->arena_at + n * r->arena_bytes;
}

static int map(Region *r)
{
    char text[ERROR_TEXT];
    if (!burst_blas_fits(r->bytes, text, sizeof text)) {
        say_line("%s", text);
        errno = ENOMEM;
        return -1;
    }
    void *at = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
    if (at == MAP_FAILED)
        return -1;
    r->base = at;
    return 0;
}

/* Pages come into being when they are touched: rings that no pair of ranks uses cost nothing. */
int region_make(Region *r, int locals, size_t arena_bytes)
{
    *r = (Region){.fd = memfd_create("burst", MFD_CLOEXEC)};
    lay_out(r, locals, arena_bytes);
    if (r->fd >= 0 && ftruncate(r->fd, (off_t)r->bytes) == 0 && map(r) == 0)
        return 0;
    int reason = errno;
    region_free(r);
    errno = reason;
    return -1;
}

int region_join(Region *r, int fd, int locals, size_t arena_bytes)
{
    *r = (Region){.fd = fd};
    lay_out(r, locals, arena_bytes);
    return map(r);
}

void region_free(Region *r)
{
    if (r->base)
        munmap(r->base, r->bytes);
    if (r->fd >= 0)
        close(r->fd);
    *r = (Region){.fd = -1};
}

bool memory_suffices(size_t bytes, size_t *free_bytes)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    unsigned long long kib = 0;
    bool known = false;
    while (f && !known && fgets(line, sizeof line, f))
        known = sscanf(line, "MemAvailable: %llu kB", &kib) == 1;
    if (f)
        fclose(f);
    *free_bytes = (size_t)kib << 10;
    return !known || bytes <= *free_bytes;
}

Ring *region_ring(const Region *r, int receiver, int sender, int channel)
{
    size_t n = (size_t)r->locals;
    return (Ring *)(r->base + r->ring_at) + ((size_t)receiver * n + (size_t)sender) * BURST_CHANNELS +
           (size_t)channel;
}

static long futex(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

/* bell and asleep are written in opposite orders by ringer and sleeper (sequentially consistent): one sees
 * the other. */
void slot_ring(Slot *s)
{
    atomic_fetch_add(&s->bell, 1);
    if (atomic_load(&s->asleep))
        futex(&s->bell, FUTEX_WAKE, 1, NULL);
}

void slot_sleep(Slot *s, uint32_t bell, long microseconds)
{
    struct timespec t = {.tv_sec = microseconds / 1000000, .tv_nsec = microseconds % 1000000 * 1000};
    atomic_store(&s->asleep, 1);
    if (atomic_load(&s->bell) == bell)
        futex(&s->bell, FUTEX_WAIT, bell, &t);
    atomic_store(&s->asleep, 0);
}

void region_say(Region *r)
{
    Head *h = region_head(r);
    if (atomic_exchange(&h->said, 1) == 0)
        say_line("%s", *h->text ? h->text : "a rank failed without a message");
}

/* Into the text that does not count: somebody may be reading the other. */
void region_saved(Region *r, const char *path)
{
    Head *h = region_head(r);
    const int next = atomic_load(&h->saved_at) == 1;
    snprintf(h->saved[next], SAVED_TEXT, "%s", path);
    atomic_store(&h->saved_at, next + 1);
}

bool region_fail(Region *r, int code, const char *text)
{
    Head *h = region_head(r);
    int running = RUNNING;
    bool first = atomic_compare_exchange_strong(&h->state, &running, FAILING);
    if (first) {
        const int saved = atomic_load(&h->saved_at);
        h->code = code;
        snprintf(h->text, sizeof h->text, "%s%s%s", text, saved ? "; the newest checkpoint is " : "",
                 saved ? h->saved[saved - 1] : "");
        atomic_store(&h->state, FAILED);
    }
    for (int i = 0; i < r->locals; i++)
        slot_ring(region_slot(r, i));
    return first;
}
