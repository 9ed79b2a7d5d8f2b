/* mask/effort.c: bounds the work spent on a mask before its counts become estimates.
 *
 * All counts of one mask, for any number of partitions, draw on one budget, and each takes only a fraction
 * of the rest. So compile time is bounded and the budget never runs out entirely. A count that is given
 * up wastes its work, so `trust` lowers the next allowance. */
#include "mask/internal.h"

#include <math.h>

/* Total work, scaled up for long sequences. Each partition gets a third of the rest. */
enum { SMALL_TOKENS = 16 << 10, MOST_SCALE = 8, WORK = 1 << 28, PARTITIONS = 3, SAMPLING = 1 << 27 };
enum { FREE_WORK = 1 << 11, LEAST_DRAWS = 32, LEAST_WORK = 1 << 15, MOST_DRAWS = 1 << 24 };

MaskEffort mask_effort(int64_t sequence, double part)
{
    const double scale = part * fmin(fmax((double)sequence / SMALL_TOKENS, 1), MOST_SCALE);
    MaskEffort e = {.later = WORK * scale,
                    .reward = WORK * scale / 2,
                    .sampling_later = SAMPLING * scale,
                    .draws = 0x1p21 * scale};
    mask_effort_begin(&e);
    return e;
}

void mask_effort_begin(MaskEffort *e)
{
    const double all = e->left + e->later, sampling = e->sampling + e->sampling_later;
    e->left = all / PARTITIONS;
    e->later = all - e->left;
    e->sampling = sampling / PARTITIONS;
    e->sampling_later = sampling - e->sampling;
}

/* The allowance of a pair of chunks: its share of the sequence plus a constant, since pairs differ in
 * difficulty. */
int64_t mask_effort_for(const MaskEffort *e, double share, double trust)
{
    return (int64_t)(trust * e->left * (share + 1.0 / 32));
}

bool mask_effort_spend(MaskEffort *e, double *trust, int64_t allowed, int64_t unspent)
{
    const double least_trust = 0x1p-10, work = (double)(allowed - unspent);
    if (unspent < 0)
        *trust = fmax(*trust / 2, least_trust);
    else if (allowed)
        *trust = fmin(*trust * (1 + fmax(work, 0) / (double)allowed), 1);
    e->left = fmax(e->left - fmax(work - FREE_WORK, 0), 0);
    e->taken += work;
    return work > FREE_WORK;
}

void mask_effort_take(MaskEffort *e, int64_t work)
{
    e->left -= fmin((double)work, e->left);
    e->taken += (double)work;
}

/* Number of samples: few for a mask that is expensive to evaluate, 0 if the budget does not cover the
 * minimum. */
int mask_effort_draws(MaskEffort *e, double share, int64_t work)
{
    const int64_t least = burst_max(burst_min(LEAST_DRAWS, LEAST_WORK / work), 2);
    const double wanted = share * fmin(e->draws, e->sampling / 3 / (double)work);
    const int64_t n = burst_max(least, (int64_t)fmin(wanted, MOST_DRAWS));
    if (e->sampling < (double)(n * work))
        return 0;
    e->sampling -= (double)(n * work);
    return (int)n;
}
