/* cost/sim.c: an event simulation of tasks that wait for each other, and of transfers that share resources.
 *
 * A task begins when all its predecessors have ended, and takes its fixed seconds; a transfer then moves its
 * bytes. Active transfers share each resource equally, in proportion to their weights. A transfer's rate is
 * the minimum over its resources. Bandwidth that a transfer slowed elsewhere does not use is not given to
 * others. That is slightly pessimistic where transfers over different paths meet, and exact for rings, where
 * all transfers of a step are equal. */
#include "cost/cost.h"

#include <math.h>

enum { WAITING, RUNNING, MOVING, DONE };
typedef struct Edge { int task, next; } Edge;
typedef struct Resource { double capacity, weight; /* of all users */ Vec(int) users; } Resource;
struct Sim {
    Arena *arena;
    Vec(Task) tasks;
    Vec(Edge) edges; /* of a task: its successors */
    int resources;
    Resource *resource;
    int *heap, heaped; /* tasks by (when, number) */
    double now;
};

Sim *sim_new(Arena *a, int resources, const double *capacity)
{
    Sim *s = NEW(a, Sim);
    s->arena = a;
    s->resources = resources;
    s->resource = NEW_ARRAY(a, Resource, resources);
    for (int i = 0; i < resources; i++)
        s->resource[i].capacity = capacity[i];
    return s;
}

int sim_task(Sim *s, Task t)
{
    t.cause = t.edge = t.place = -1;
    t.waits = 0;
    t.state = WAITING;
    t.weight = t.weight > 0 ? t.weight : 1;
    *vec_append(s->arena, &s->tasks) = t;
    return s->tasks.n - 1;
}

void sim_after(Sim *s, int task, int before)
{
    if (before < 0)
        return;
    Task *b = &s->tasks.at[before];
    *vec_append(s->arena, &s->edges) = (Edge){task, b->edge};
    b->edge = s->edges.n - 1;
    s->tasks.at[task].waits++;
}

int sim_tasks(const Sim *s)
{
    return s->tasks.n;
}

const Task *sim_at(const Sim *s, int task)
{
    return &s->tasks.at[task];
}

/* ---- heap of next events ---- */

static bool earlier(const Sim *s, int x, int y)
{
    double a = s->tasks.at[x].when, b = s->tasks.at[y].when;
    return a < b || (a == b && x < y);
}

static void put(Sim *s, int place, int task)
{
    s->heap[place] = task;
    s->tasks.at[task].place = place;
}

static void sift_up(Sim *s, int place)
{
    int task = s->heap[place];
    for (; place > 0 && earlier(s, task, s->heap[(place - 1) / 2]); place = (place - 1) / 2)
        put(s, place, s->heap[(place - 1) / 2]);
    put(s, place, task);
}

static void sift_down(Sim *s, int place)
{
    int task = s->heap[place];
    for (int child; (child = 2 * place + 1) < s->heaped; place = child) {
        if (child + 1 < s->heaped && earlier(s, s->heap[child + 1], s->heap[child]))
            child++;
        if (!earlier(s, s->heap[child], task))
            break;
        put(s, place, s->heap[child]);
    }
    put(s, place, task);
}

static void schedule_at(Sim *s, int task, double when)
{
    Task *t = &s->tasks.at[task];
    t->when = when;
    if (t->place < 0)
        put(s, s->heaped++, task);
    sift_up(s, t->place);
    sift_down(s, t->place);
}

static int pop(Sim *s)
{
    int first = s->heap[0], last = s->heap[--s->heaped];
    s->tasks.at[first].place = -1;
    if (s->heaped) {
        put(s, 0, last);
        sift_down(s, 0);
    }
    return first;
}

/* ---- transfers ---- */

static void set_rate(Sim *s, int task)
{
    Task *t = &s->tasks.at[task];
    double rate = INFINITY;
    for (int i = 0; i < t->resources; i++) {
        const Resource *r = &s->resource[t->resource[i]];
        rate = fmin(rate, t->weight * r->capacity / r->weight);
    }
    if (rate == t->rate)
        return; /* its end does not change */
    t->remaining -= t->rate * (s->now - t->since);
    t->since = s->now;
    t->rate = rate;
    schedule_at(s, task, s->now + fmax(t->remaining, 0) / rate);
}

static void set_rates(Sim *s, const Task *t)
{
    for (int i = 0; i < t->resources; i++)
        for (int u = 0; u < s->resource[t->resource[i]].users.n; u++)
            set_rate(s, s->resource[t->resource[i]].users.at[u]);
}

static void start_moving(Sim *s, int task)
{
    Task *t = &s->tasks.at[task];
    t->state = MOVING;
    t->remaining = t->bytes;
    t->since = s->now;
    t->rate = 0;
    for (int i = 0; i < t->resources; i++) {
        Resource *r = &s->resource[t->resource[i]];
        t->slot[i] = r->users.n;
        r->weight += t->weight;
        *vec_push(s->arena, &r->users) = task;
    }
    set_rates(s, t);
}

static void stop_moving(Sim *s, const Task *t)
{
    for (int i = 0; i < t->resources; i++) {
        Resource *r = &s->resource[t->resource[i]];
        int last = r->users.at[--r->users.n];
        r->weight = r->users.n ? r->weight - t->weight : 0; /* whole numbers, so the sum is exact */
        r->users.at[t->slot[i]] = last;
        Task *moved = &s->tasks.at[last];
        for (int j = 0; j < moved->resources; j++)
            if (moved->resource[j] == t->resource[i])
                moved->slot[j] = t->slot[i];
    }
    set_rates(s, t);
}

/* ---- events ---- */

static void begin(Sim *s, int task)
{
    Task *t = &s->tasks.at[task];
    t->state = RUNNING;
    t->begin = s->now;
    schedule_at(s, task, s->now + t->seconds);
}

static void finish(Sim *s, int task)
{
    Task *t = &s->tasks.at[task];
    bool moved = t->state == MOVING;
    t->state = DONE;
    t->end = s->now;
    if (moved)
        stop_moving(s, t);
    for (int e = t->edge; e >= 0; e = s->edges.at[e].next) {
        Task *next = &s->tasks.at[s->edges.at[e].task];
        if (--next->waits == 0) {
            next->cause = task;
            begin(s, s->edges.at[e].task);
        }
    }
}

double sim_moving(const Sim *s)
{
    double most = 0, *seconds = NEW_ARRAY(s->arena, double, s->resources);
    for (int i = 0; i < s->tasks.n; i++) {
        const Task *t = &s->tasks.at[i];
        for (int k = 0; k < t->resources; k++)
            seconds[t->resource[k]] += t->bytes / s->resource[t->resource[k]].capacity;
    }
    for (int i = 0; i < s->resources; i++)
        most = fmax(most, seconds[i]);
    return most;
}

double sim_run(Sim *s)
{
    s->heap = NEW_ARRAY(s->arena, int, s->tasks.n + 1);
    for (int i = 0; i < s->tasks.n; i++)
        if (s->tasks.at[i].waits == 0)
            begin(s, i);
    int done = 0;
    while (s->heaped) {
        int task = pop(s);
        s->now = s->tasks.at[task].when;
        if (s->tasks.at[task].state == RUNNING && s->tasks.at[task].bytes > 0) {
            start_moving(s, task);
        } else {
            finish(s, task);
            done++;
        }
    }
    return done == s->tasks.n ? s->now : INFINITY;
}
