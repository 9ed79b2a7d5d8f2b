/* balance.c: the owner of each run of tokens. Runs begin where a contiguous partition has them, which keeps
 * documents together and sends least. Then the rank with most work exchanges one run for a lighter one of
 * another rank, as long as it has more than the mean and a little: each exchange moves as much work as it
 * can for the keys that the two ranks need in addition. Counts of runs stay equal.
 */
#include "data/balance.h"

#include <stdlib.h>
#include <string.h>

enum {
    PARTNERS = 3,  /* of the lightest ranks that an exchange is tried with, beside the two neighbours */
    LOOKS = 8, /* at all ranks, a batch: what runs of this length cannot balance is not looked for again */
    EXCHANGES = 16, /* at most so many a rank */
    GAINS = 3 /* exchanges that gain less than a third of what the best gains are not tried */
};
/* A rank may have 3 % more than the mean: less than ranks differ by anyway. */
static int64_t allowed(int64_t mean) { return mean + mean / 32; }

typedef struct Exchange {
    int partner, out, in; /* the rank; runs that leave and come */
    int64_t keys[2]; /* runs that the two ranks receive then */
    int64_t worth, more; /* more: keys than before */
} Exchange;

/* ---- keys that a rank receives ---- */

static int by_begin(const BalanceSpan *spans, int n, BalanceSpan s)
{
    int at = n;
    while (at > 0 && spans[at - 1].lo > s.lo)
        at--;
    return at;
}

/* Of one mask: runs of keys that the runs of queries need and that are not among them. */
static int64_t received_for(const Balance *b, const BalanceNeed *need, const int *run)
{
    int n = 0;
    for (int i = 0; i < b->each; i++)
        for (int j = 0; j < need[run[i]].n; j++) {
            const BalanceSpan s = need[run[i]].span[j];
            const int at = by_begin(b->spans, n, s);
            memmove(b->spans + at + 1, b->spans + at, sizeof s * (size_t)(n - at));
            b->spans[at] = s;
            n++;
        }
    int64_t runs = 0;
    int own = 0;
    for (int i = 0, end = 0; i < n; i++) {
        const int lo = b->spans[i].lo > end ? b->spans[i].lo : end, hi = b->spans[i].hi;
        if (hi <= lo)
            continue;
        while (own < b->each && run[own] < lo)
            own++;
        for (; own < b->each && run[own] < hi; own++)
            runs--;
        runs += hi - lo;
        end = hi;
    }
    return runs;
}

static int64_t received(const Balance *b, const int *run)
{
    int64_t sum = 0;
    for (int m = 0; m < b->masks; m++)
        sum += b->layers[m] ? b->layers[m] * received_for(b, b->need + (size_t)m * (size_t)b->runs, run) : 0;
    return sum;
}

/* The rank's runs, ascending, with one for another. */
static const int *exchanged(const Balance *b, const int *run, int out, int in, int *to)
{
    int n = 0;
    bool placed = false;
    for (int i = 0; i < b->each; i++) {
        if (!placed && run[i] > in)
            to[n++] = in, placed = true;
        if (run[i] != out)
            to[n++] = run[i];
    }
    if (!placed)
        to[n] = in;
    return to;
}

/* ---- exchanges ---- */

/* Runs of keys that the two ranks would receive; how many more than now. */
static int64_t keys_after(const Balance *b, const BalanceRank *r, const BalanceRank *other, int out, int in,
                          int64_t keys[2])
{
    keys[0] = received(b, exchanged(b, r->run, out, in, b->trial));
    keys[1] = received(b, exchanged(b, other->run, in, out, b->trial));
    return keys[0] + keys[1] - r->keys - other->keys;
}

static int nearest_work(const Balance *b, const BalanceRank *r, int64_t work)
{
    int best = r->run[0];
    for (int i = 1; i < b->each; i++)
        if (llabs(b->work[r->run[i]] - work) < llabs(b->work[best] - work))
            best = r->run[i];
    return best;
}

/* Work that the busier of the two has less, over what is received more; a run of keys for all layers is
 * what an exchange costs anyway. Integers: ranks on unlike processors must agree. */
static int64_t worth_of(const Balance *b, int64_t gain, int64_t more)
{
    return gain * (1 << 16) / (b->all_layers + (more > 0 ? more : 0));
}

/* Work that the busier of the two has less then. */
static int64_t gain_of(const Balance *b, const BalanceRank *r, const BalanceRank *other, int out, int in)
{
    const int64_t moved = b->work[out] - b->work[in], rest = r->work - moved, there = other->work + moved;
    const int64_t busier = rest > there ? rest : there;
    return moved > 0 ? r->work - busier : 0;
}

static void try_exchange(Balance *b, int from, int partner, int out, int in, Exchange *best)
{
    BalanceRank *r = &b->rank[from], *other = &b->rank[partner];
    const int64_t gain = gain_of(b, r, other, out, in);
    if (gain <= 0 || worth_of(b, gain, 0) < best->worth)
        return;
    int64_t keys[2];
    const int64_t more = keys_after(b, r, other, out, in, keys), worth = worth_of(b, gain, more);
    if (worth > best->worth || (worth == best->worth && more < best->more))
        *best = (Exchange){partner, out, in, {keys[0], keys[1]}, worth, more};
}

/* Each run of the one for that of the other which comes nearest to what should move; those that gain least
 * are left out. */
static void try_partner(Balance *b, int from, int partner, int64_t mean, Exchange *best)
{
    const BalanceRank *r = &b->rank[from], *other = &b->rank[partner];
    const int64_t too_much = r->work - mean, room = mean - other->work;
    if (room <= 0)
        return;
    const int64_t wanted = too_much < room ? too_much : room;
    int *in = b->trial + b->each;
    int64_t most = 0;
    for (int i = 0; i < b->each; i++) {
        in[i] = nearest_work(b, other, b->work[r->run[i]] - wanted);
        const int64_t gain = gain_of(b, r, other, r->run[i], in[i]);
        most = gain > most ? gain : most;
    }
    for (int i = 0; i < b->each; i++)
        if (GAINS * gain_of(b, r, other, r->run[i], in[i]) >= most)
            try_exchange(b, from, partner, r->run[i], in[i], best);
}

/* Of the ranks, the lightest; n: how many there are in `of`. */
static int lightest(const Balance *b, int *of)
{
    int n = 0;
    for (int r = 0; r < b->ranks; r++) {
        int at = n < PARTNERS ? n++ : n;
        for (; at > 0 && b->rank[of[at - 1]].work > b->rank[r].work; at--)
            if (at < PARTNERS)
                of[at] = of[at - 1];
        if (at < PARTNERS)
            of[at] = r;
    }
    return n;
}

/* With one of the lightest ranks or a neighbour; where none helps, with any, if looks are left. */
static Exchange best_exchange(Balance *b, int from, int64_t mean, int *looks)
{
    Exchange best = {.partner = -1};
    int partner[PARTNERS + 2], n = lightest(b, partner);
    if (from > 0)
        partner[n++] = from - 1;
    if (from + 1 < b->ranks)
        partner[n++] = from + 1;
    for (int i = 0; i < n; i++)
        if (partner[i] != from)
            try_partner(b, from, partner[i], mean, &best);
    const bool looks_at_all = best.partner < 0 && (*looks)-- > 0;
    for (int r = 0; r < b->ranks && looks_at_all; r++)
        if (r != from)
            try_partner(b, from, r, mean, &best);
    return best;
}

static void exchange(Balance *b, int from, const Exchange *e)
{
    const int rank[2] = {from, e->partner}, out[2] = {e->out, e->in};
    const int64_t moved = b->work[e->out] - b->work[e->in];
    for (int i = 0; i < 2; i++) {
        BalanceRank *r = &b->rank[rank[i]];
        memcpy(r->run, exchanged(b, r->run, out[i], out[!i], b->trial), sizeof *r->run * (size_t)b->each);
        r->work += i ? moved : -moved;
        r->keys = e->keys[i];
    }
}

static int busiest(const Balance *b)
{
    int most = -1;
    for (int r = 0; r < b->ranks; r++)
        if (!b->rank[r].done && (most < 0 || b->rank[r].work > b->rank[most].work))
            most = r;
    return most;
}

static int64_t begin_contiguous(Balance *b)
{
    int64_t all = 0;
    for (int r = 0; r < b->ranks; r++) {
        BalanceRank *k = &b->rank[r];
        *k = (BalanceRank){.run = b->held + (size_t)r * (size_t)b->each};
        for (int i = 0; i < b->each; i++) {
            k->run[i] = r * b->each + i;
            k->work += b->work[k->run[i]];
        }
        k->keys = received(b, k->run);
        all += k->work;
    }
    return (all + b->ranks - 1) / b->ranks;
}

/* A run goes to the owner of the one before or after it, for one of about as much work, where the two ranks
 * receive less then and neither has more than it may. */
static void move_beside(Balance *b, int run, int beside, int64_t most)
{
    if (beside < 0 || beside >= b->runs || b->owner[beside] == b->owner[run])
        return;
    const int from = b->owner[run], to = b->owner[beside];
    BalanceRank *r = &b->rank[from], *other = &b->rank[to];
    const int in = nearest_work(b, other, b->work[run]);
    const int64_t moved = b->work[run] - b->work[in];
    if (r->work - moved > most || other->work + moved > most)
        return;
    int64_t keys[2];
    if (keys_after(b, r, other, run, in, keys) >= 0)
        return;
    exchange(b, from, &(Exchange){to, run, in, {keys[0], keys[1]}, 0, 0});
    b->owner[run] = to, b->owner[in] = from;
}

void balance_assign(Balance *b)
{
    const int64_t mean = begin_contiguous(b);
    int looks = LOOKS;
    for (int left = EXCHANGES * b->ranks; left > 0; left--) {
        const int from = busiest(b);
        if (from < 0 || b->rank[from].work <= allowed(mean))
            break;
        const Exchange e = best_exchange(b, from, mean, &looks);
        if (e.partner < 0) {
            b->rank[from].done = true;
            continue;
        }
        exchange(b, from, &e);
        b->rank[e.partner].done = false;
    }
    for (int r = 0; r < b->ranks; r++)
        for (int i = 0; i < b->each; i++)
            b->owner[b->rank[r].run[i]] = r;
    for (int run = 0; run < b->runs; run++)
        for (int side = -1; side <= 1; side += 2)
            move_beside(b, run, run + side, allowed(mean));
}

bool balance_positions(const Balance *b, int64_t *position)
{
    int64_t *next = b->next;
    for (int r = 0; r < b->ranks; r++)
        next[r] = (int64_t)r * b->each;
    for (int i = 0; i < b->runs; i++) {
        const int r = b->owner[i];
        if (r < 0 || r >= b->ranks || next[r] == (int64_t)(r + 1) * b->each)
            return false;
        int64_t *at = position + next[r]++ * b->run;
        for (int64_t j = 0; j < b->run; j++)
            at[j] = i * b->run + j;
    }
    return true;
}
