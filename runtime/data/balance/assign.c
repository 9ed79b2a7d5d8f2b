/* assign.c: chooses the owner of each tile.
 *
 * The sequence is cut where no pair crosses, which in packed documents is between them; a component stays
 * whole if it fits. Ranks are filled one after the other, each to its tokens and to the mean of the
 * remaining work. A rank begins with the densest component (most work per tile). If that is too much for one
 * rank, it gets as much of its end as still lets the rest of its tokens hold the lightest runs: the rank
 * with a document's last tokens receives all of it, so few ranks should have them. The rank with its first
 * tokens sends them to all of these, so each of them also gets a slice of its beginning. Components that
 * fill the remaining work follow, from the largest that fits downwards, then part of one, then the lightest
 * runs. Finally ranks exchange parts of runs until all are nearly level (level.c). */
#include "data/balance/internal.h"

#include <string.h>

enum {
    CLOSE = 256, /* a rank is full if it lacks at most one of so many parts of its work */
    TRIES = 8,   /* densities from which components are tried */
    SLICED = 48  /* slices have one of so many parts of a component's work */
};

/* What one rank has so far. */
typedef struct Share {
    int rank;
    int room; /* tiles */
    int64_t work, goal;
} Share;

/* ---- runs ---- */

int balance_split(Balance *b, int run, int tiles)
{
    const int rest = b->runs++;
    b->run[rest] = (BalanceRun){b->run[run].begin + tiles, b->run[run].end, -1};
    b->run[run].end = b->run[run].begin + tiles;
    return rest;
}

/* Fills the pool with components, joining short ones. A cut may cross the tile in which one ends and the
 * next begins. */
static void fill_pool(Balance *b)
{
    BalanceRun *run = b->run;
    int n = 0, begin = 0;
    for (int t = 1; t <= b->tiles; t++) {
        if (cut_cost(b, t) > b->all_layers)
            continue;
        if (n > 0 && t - run[n - 1].begin <= b->joined)
            run[n - 1].end = t;
        else
            run[n++] = (BalanceRun){begin, t, -1};
        begin = t;
    }
    b->runs = n;
    pool_empty(&b->pool);
    while (n > 0) /* so that lists ascend */
        pool_put(b, --n);
    b->open = -1;
}

static void give(Balance *b, Share *s, int run)
{
    b->run[run].next = b->held[s->rank];
    b->held[s->rank] = run;
    s->room -= tiles_of(b, run);
    s->work += run_work(b, run);
}

/* Gives the last tiles of a run to the rank; returns the rest of the run, -1: nothing. */
static int give_end(Balance *b, Share *s, int run, int tiles)
{
    const int rest = tiles_of(b, run) - tiles;
    if (tiles > 0)
        give(b, s, rest > 0 ? balance_split(b, run, rest) : run);
    return rest > 0 ? run : -1;
}

/* ---- parts of a run ---- */

/* The least work of the rank's other tokens if the last tiles of a run are taken: the lightest runs' and, if
 * these are too few, that of the run's own beginning. */
static int64_t rest_work(const Balance *b, const Share *s, int run, int taken)
{
    const int64_t tiles = s->room - taken, own = tiles - b->pool.all_tiles, begin = b->run[run].begin,
                  left = tiles_of(b, run) - taken;
    const int64_t work = pool_light_work(b, tiles);
    return own > 0 ? work + work_of(b, begin, begin + (own < left ? own : left)) : work;
}

/* The most last tiles of a run outside of the pool with which the rank does not exceed its goal. */
static int end_that_fits(const Balance *b, const Share *s, int run)
{
    const int end = b->run[run].end, tiles = tiles_of(b, run);
    int lo = 0, hi = tiles < s->room ? tiles : s->room;
    while (lo < hi) {
        const int n = (lo + hi + 1) / 2;
        if (s->work + work_of(b, end - n, end) + rest_work(b, s, run, n) <= s->goal)
            lo = n;
        else
            hi = n - 1;
    }
    return lo;
}

/* ---- parts of a rank ---- */

/* Less work per tile than the ranks' mean: other ranks can combine it with dense runs. */
static bool is_light(const Balance *b, const Share *s, int run)
{
    return run_work(b, run) * b->share < s->goal * tiles_of(b, run);
}

/* Tiles of a component's beginning that each rank working on it gets, so that all share in sending them:
 * otherwise more ranks would have to receive the whole component. 0: few tiles are read to the end
 * (windows), or one rank has all. */
static int slice_of(const Balance *b, const Share *s, int run)
{
    const int64_t begin = b->run[run].begin, end = b->run[run].end, work = run_work(b, run);
    if (s->goal <= 0 || work <= s->goal || 2 * b->tile[end - 1].below < b->all_layers * (end - begin))
        return 0;
    int64_t lo = 0, hi = end - begin;
    while (lo < hi) {
        const int64_t n = (lo + hi + 1) / 2;
        if (SLICED * work_of(b, begin, begin + n) <= work)
            lo = n;
        else
            hi = n - 1;
    }
    return (int)(lo * s->goal / work);
}

static void give_slice(Balance *b, Share *s)
{
    if (b->slice == 0 || b->slice >= s->room || b->slice >= tiles_of(b, b->open))
        return;
    const int rest = balance_split(b, b->open, b->slice);
    give(b, s, b->open);
    b->open = rest;
}

static void give_densest(Balance *b, Share *s)
{
    if (b->open >= 0 && is_light(b, s, b->open)) {
        pool_put(b, b->open);
        b->open = -1;
    }
    if (b->open < 0) {
        b->open = pool_take(b, pool_densest(&b->pool));
        b->slice = slice_of(b, s, b->open);
    }
    give_slice(b, s);
    const int n = end_that_fits(b, s, b->open);
    b->open = give_end(b, s, b->open, n > 0 ? n : 1);
}

/* Work beyond the lightest run's in as many last tiles of the run as fit. */
static int64_t surplus_of(const Balance *b, const Share *s, int run, int lightest)
{
    const int64_t n = tiles_of(b, run) < s->room ? tiles_of(b, run) : s->room;
    return work_of(b, b->run[run].end - n, b->run[run].end) -
           n * run_work(b, lightest) / tiles_of(b, lightest);
}

/* The lowest density whose runs have more surplus than is missing, if surplus grows with density, as in
 * documents; -1: none. */
static int first_too_dense(const Balance *b, const Share *s, int64_t missing)
{
    const BalancePool *pool = &b->pool;
    const int lightest = pool->first[pool_lightest(pool)];
    int lo = 0, hi = BALANCE_DENSITIES; /* densities below lo have not, densities from hi on have */
    while (lo < hi) {
        const int middle = lo + (hi - lo) / 2, at = pool_up(pool, middle);
        if (at < 0 || at >= hi || surplus_of(b, s, pool->first[at], lightest) > missing)
            hi = middle;
        else
            lo = at + 1;
    }
    return pool_up(pool, lo);
}

static bool give_whole(Balance *b, Share *s, int below)
{
    int density = below < 0 ? BALANCE_DENSITIES : below;
    for (int i = 0; i < TRIES; i++) {
        density = pool_down(&b->pool, density - 1);
        if (density < 0)
            return false;
        if (tiles_of(b, b->pool.first[density]) > s->room)
            continue;
        const int run = pool_take(b, density), n = tiles_of(b, run);
        if (s->work + run_work(b, run) + rest_work(b, s, run, n) <= s->goal + s->goal / (2 * CLOSE)) {
            give(b, s, run);
            return true;
        }
        pool_put(b, run);
    }
    return false;
}

static void give_part(Balance *b, Share *s, int density)
{
    const int run = pool_take(b, density < 0 ? pool_densest(&b->pool) : density),
              left = give_end(b, s, run, end_that_fits(b, s, run));
    if (left >= 0)
        pool_put(b, left);
}

static void give_what_is_missing(Balance *b, Share *s)
{
    while (s->room > 0 && b->pool.all_tiles > 0) {
        const int64_t missing = s->goal - s->work - pool_light_work(b, s->room);
        if (missing <= s->goal / CLOSE)
            return;
        const int density = first_too_dense(b, s, missing);
        if (!give_whole(b, s, density)) {
            give_part(b, s, density);
            return;
        }
    }
}

/* Gives the first tiles of a run to the rank; returns the rest of the run, -1: nothing. */
static int give_begin(Balance *b, Share *s, int run)
{
    const int rest = tiles_of(b, run) > s->room ? balance_split(b, run, s->room) : -1;
    give(b, s, run);
    return rest;
}

static void give_lightest(Balance *b, Share *s)
{
    while (s->room > 0 && b->pool.all_tiles > 0) {
        const int rest = give_begin(b, s, pool_take(b, pool_lightest(&b->pool)));
        if (rest >= 0)
            pool_put(b, rest);
    }
    if (s->room > 0)
        b->open = give_begin(b, s, b->open);
}

void balance_assign(Balance *b)
{
    int64_t left = b->upto[b->tiles];
    fill_pool(b);
    for (int r = 0; r < b->ranks; r++) {
        Share s = {.rank = r, .room = b->share, .goal = left / (b->ranks - r)};
        b->held[r] = -1;
        give_densest(b, &s);
        give_what_is_missing(b, &s);
        give_lightest(b, &s);
        b->load[r] = s.work;
        left -= s.work;
    }
    balance_level(b);
    for (int r = 0; r < b->ranks; r++)
        for (int run = b->held[r]; run >= 0; run = b->run[run].next)
            for (int t = b->run[run].begin; t < b->run[run].end; t++)
                b->owner[t] = r;
}

bool balance_positions(const Balance *b, int64_t *position)
{
    int64_t *next = b->next;
    for (int r = 0; r < b->ranks; r++)
        next[r] = (int64_t)r * b->share;
    for (int64_t i = 0; i < b->tiles; i++) {
        const int r = b->owner[i];
        if (r < 0 || r >= b->ranks || next[r] == (int64_t)(r + 1) * b->share)
            return false;
        int64_t *at = position + next[r]++ * b->size;
        for (int64_t j = 0; j < b->size; j++)
            at[j] = i * b->size + j;
    }
    return true;
}
