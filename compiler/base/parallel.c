/* parallel.c: threads for one call, which end with it. */
#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct Tasks {
    void (*run)(void *context, int i);
    void *context;
    int n;
    atomic_int next;
} Tasks;

/* Whether this thread runs a task already: then all cores have work. */
static _Thread_local bool within;

static int cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

static void *work(void *of)
{
    Tasks *t = of;
    within = true;
    for (int i = atomic_fetch_add(&t->next, 1); i < t->n; i = atomic_fetch_add(&t->next, 1))
        t->run(t->context, i);
    within = false;
    return NULL;
}

/* Returns the number of threads that were created. The caller's thread handles all signals. */
static int start(Tasks *t, pthread_t *thread, int most)
{
    sigset_t all, before;
    int n = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (n < most && pthread_create(&thread[n], NULL, work, t) == 0)
        n++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n;
}

void parallel(int n, void (*run)(void *context, int i), void *context)
{
    enum { MOST_THREADS = 15 };
    const int free_cores = (within || n < 2 ? 1 : cores()) - 1, others = n - 1;
    const int wanted = free_cores < others ? free_cores : others;
    pthread_t thread[MOST_THREADS];
    const bool was_within = within;
    Tasks t = {run, context, n, 0};
    const int threads = start(&t, thread, wanted < MOST_THREADS ? wanted : MOST_THREADS);
    work(&t);
    within = was_within;
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
}
