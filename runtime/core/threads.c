/* threads.c: work of one rank on its share of the host's cores, by threads that stay: an optimizer step
 * asks for them once a unit. */
#include "core/context.h"

#include <pthread.h>
#include <stdlib.h>

enum { MOST = 32 };

typedef struct Worker { struct Pool *pool; int part; pthread_t thread; } Worker;
typedef struct Pool Pool;
struct Pool {
    pthread_mutex_t lock;
    pthread_cond_t begun, done;
    Parts *run; /* of the job that is under way */
    const void *what;
    int parts, left, job; /* job: how many there were; left: parts of this one that workers have not done */
    bool ends;
    int threads; /* that were made, the caller aside */
    Worker worker[MOST];
};

static void work_on(Pool *p, int part)
{
    p->run(p->what, part, p->parts);
    pthread_mutex_lock(&p->lock);
    if (--p->left == 0)
        pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->lock);
}

static void *work(void *argument)
{
    const Worker *w = argument;
    Pool *p = w->pool;
    for (int job = 0;;) {
        pthread_mutex_lock(&p->lock);
        while (p->job == job && !p->ends)
            pthread_cond_wait(&p->begun, &p->lock);
        job = p->job;
        const bool ends = p->ends;
        pthread_mutex_unlock(&p->lock);
        if (ends)
            return NULL;
        work_on(p, w->part);
    }
}

/* As many as can be made; NULL: there is no memory, and the caller does all. */
static Pool *pool_make(int parts)
{
    Pool *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->begun, NULL);
    pthread_cond_init(&p->done, NULL);
    for (bool made = true; made && p->threads < parts - 1; p->threads += made) {
        Worker *w = &p->worker[p->threads];
        *w = (Worker){.pool = p, .part = p->threads + 1};
        made = pthread_create(&w->thread, NULL, work, w) == 0;
    }
    return p;
}

void pool_close(BurstCtx *c)
{
    Pool *p = c->pool;
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->ends = true;
    pthread_cond_broadcast(&p->begun);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->threads; i++)
        pthread_join(p->worker[i].thread, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->begun);
    pthread_mutex_destroy(&p->lock);
    free(p);
    c->pool = NULL;
}

void in_parts(BurstCtx *c, Parts *run, const void *what)
{
    const int threads = host_threads(c), parts = threads < MOST ? threads : MOST;
    if (!c->pool && parts > 1)
        c->pool = pool_make(parts);
    Pool *p = c->pool;
    if (!p || !p->threads) {
        run(what, 0, 1);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->run = run, p->what = what, p->parts = p->left = p->threads + 1;
    p->job++;
    pthread_cond_broadcast(&p->begun);
    pthread_mutex_unlock(&p->lock);
    work_on(p, 0);
    pthread_mutex_lock(&p->lock);
    while (p->left)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
