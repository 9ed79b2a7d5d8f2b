/* level.c: the rank with most work exchanges the last tiles of one of its runs for as many first tiles of a
 * run of one of the lightest ranks, as long as that helps. Among exchanges that move about as much work, it
 * takes the one whose cuts the fewest keys cross. */
#include "data/balance/internal.h"

#include <string.h>

enum {
    PARTNERS = 3, /* of the lightest ranks */
    NEAR = 512    /* a rank may exceed the mean by one of so many parts */
};

typedef struct Exchange {
    int partner, out, in; /* rank; runs */
    int tiles;
    int64_t gain, cost;
} Exchange;

/* Whether it gains much more, or about as much at lower cost. */
static bool is_better(const Exchange *x, const Exchange *best)
{
    if (2 * x->gain > 3 * best->gain)
        return true;
    return 3 * x->gain > 2 * best->gain && x->cost < best->cost;
}

static int64_t gain_of(const Balance *b, const BalanceRun *out, const BalanceRun *in, int tiles)
{
    return work_of(b, out->end - tiles, out->end) - work_of(b, in->begin, in->begin + tiles);
}

static void try_runs(const Balance *b, Exchange x, int64_t wanted, Exchange *best)
{
    const BalanceRun *out = &b->run[x.out], *in = &b->run[x.in];
    const int have = tiles_of(b, x.out), come = tiles_of(b, x.in);
    int lo = 0, hi = have < come ? have : come;
    while (lo < hi) {
        const int n = (lo + hi + 1) / 2;
        if (gain_of(b, out, in, n) <= wanted)
            lo = n;
        else
            hi = n - 1;
    }
    x.tiles = lo, x.gain = gain_of(b, out, in, lo);
    if (3 * x.gain <= 2 * best->gain) /* too little gain at any cost */
        return;
    x.cost = (lo < have ? cut_cost(b, out->end - lo) : 0) + (lo < come ? cut_cost(b, in->begin + lo) : 0);
    if (x.gain > 0 && is_better(&x, best))
        *best = x;
}

static void try_partner(const Balance *b, int from, int partner, int64_t mean, Exchange *best)
{
    const int64_t excess = b->load[from] - mean, room = mean - b->load[partner],
                  wanted = excess < room ? excess : room;
    if (wanted <= 0)
        return;
    for (int out = b->held[from]; out >= 0; out = b->run[out].next)
        for (int in = b->held[partner]; in >= 0; in = b->run[in].next)
            try_runs(b, (Exchange){.partner = partner, .out = out, .in = in}, wanted, best);
}

/* ---- ranks sorted by work, equal ones by number ---- */

static int place_of(const Balance *b, int ranks, int rank)
{
    int lo = 0, hi = ranks;
    while (lo < hi) {
        const int middle = (lo + hi) / 2, other = b->order[middle];
        if (b->load[other] < b->load[rank] || (b->load[other] == b->load[rank] && other < rank))
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* Inserts the rank among so many sorted ones. */
static void put_in_order(Balance *b, int ranks, int rank)
{
    int *at = b->order + place_of(b, ranks, rank);
    memmove(at + 1, at, sizeof *at * (size_t)(b->order + ranks - at));
    *at = rank;
}

static void add_load(Balance *b, int rank, int64_t more)
{
    int *at = b->order + place_of(b, b->ranks, rank);
    memmove(at, at + 1, sizeof *at * (size_t)(b->order + b->ranks - at - 1));
    b->load[rank] += more;
    put_in_order(b, b->ranks - 1, rank);
}

static int busiest_rank(const Balance *b)
{
    int at = b->ranks - 1;
    while (at > 0 && b->load[b->order[at - 1]] == b->load[b->order[at]])
        at--;
    return b->order[at];
}

/* ---- exchanges ---- */

static void hold(Balance *b, int rank, int run)
{
    b->run[run].next = b->held[rank];
    b->held[rank] = run;
}

static void release(Balance *b, int rank, int run)
{
    int *at = &b->held[rank];
    while (*at != run)
        at = &b->run[*at].next;
    *at = b->run[run].next;
}

static void exchange(Balance *b, int from, const Exchange *x)
{
    const int rest = tiles_of(b, x->out) - x->tiles;
    int out = x->out, in = x->in;
    if (rest > 0)
        out = balance_split(b, out, rest);
    else
        release(b, from, out);
    release(b, x->partner, in);
    if (tiles_of(b, in) > x->tiles)
        hold(b, x->partner, balance_split(b, in, x->tiles));
    hold(b, x->partner, out);
    hold(b, from, in);
    add_load(b, from, -x->gain);
    add_load(b, x->partner, x->gain);
}

void balance_level(Balance *b)
{
    const int64_t mean = b->upto[b->tiles] / b->ranks;
    for (int r = 0; r < b->ranks; r++)
        put_in_order(b, r, r);
    for (int left = BALANCE_EXCHANGES * b->ranks; left > 0; left--) {
        const int from = busiest_rank(b);
        if (b->load[from] <= mean + mean / NEAR)
            return;
        Exchange best = {.partner = -1};
        for (int i = 0; i < PARTNERS && i < b->ranks; i++)
            try_partner(b, from, b->order[i], mean, &best);
        if (best.partner < 0)
            return;
        exchange(b, from, &best);
    }
}
