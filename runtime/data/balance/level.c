/* level.c: the rank with most work exchanges the last tiles of one of its runs for as many first tiles of a
 * run of one of the lightest, as long as that helps. Of exchanges that move about as much work, it takes the
 * one whose cuts are crossed by the fewest keys.
 */
#include "data/balance/internal.h"

enum {
    PARTNERS = 3, /* of the lightest ranks */
    NEAR = 512    /* a rank may have one of so many parts more than the mean */
};

typedef struct Exchange {
    int partner, out, in; /* rank; runs */
    int tiles;
    int64_t gain, cost;
} Exchange;

/* Far more gain, or about as much for less. */
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

/* The lightest ranks, ascending; how many there are in `of`. */
static int lightest_ranks(const Balance *b, int *of)
{
    int n = 0;
    for (int r = 0; r < b->ranks; r++) {
        int at = n < PARTNERS ? n++ : n;
        for (; at > 0 && b->load[of[at - 1]] > b->load[r]; at--)
            if (at < PARTNERS)
                of[at] = of[at - 1];
        if (at < PARTNERS)
            of[at] = r;
    }
    return n;
}

static int busiest_rank(const Balance *b)
{
    int most = 0;
    for (int r = 1; r < b->ranks; r++)
        if (b->load[r] > b->load[most])
            most = r;
    return most;
}

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
    b->load[from] -= x->gain;
    b->load[x->partner] += x->gain;
}

void balance_level(Balance *b)
{
    const int64_t mean = b->upto[b->tiles] / b->ranks;
    for (int left = BALANCE_EXCHANGES * b->ranks; left > 0; left--) {
        const int from = busiest_rank(b);
        if (b->load[from] <= mean + mean / NEAR)
            return;
        int partner[PARTNERS];
        Exchange best = {.partner = -1};
        for (int i = 0, n = lightest_ranks(b, partner); i < n; i++)
            try_partner(b, from, partner[i], mean, &best);
        if (best.partner < 0)
            return;
        exchange(b, from, &best);
    }
}
