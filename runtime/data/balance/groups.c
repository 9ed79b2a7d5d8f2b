/* groups.c: assigns the sequences of a batch to data groups. */
#include "data/balance/balance.h"

static int most_work_left(const int64_t *work, int sequences, const int *group)
{
    int most = -1;
    for (int i = 0; i < sequences; i++)
        if (group[i] < 0 && (most < 0 || work[i] > work[most]))
            most = i;
    return most;
}

/* The group with least work among those with room. */
static int lightest_group(const int64_t *load, const int *has, int groups, int each)
{
    int least = -1;
    for (int g = 0; g < groups; g++)
        if (has[g] < each && (least < 0 || load[g] < load[least]))
            least = g;
    return least;
}

void balance_groups(const BalanceGroups *of)
{
    const int each = of->sequences / of->groups;
    for (int g = 0; g < of->groups; g++)
        of->load[g] = of->has[g] = 0;
    for (int i = 0; i < of->sequences; i++)
        of->group[i] = -1;
    for (int n = 0; n < of->sequences; n++) {
        const int i = most_work_left(of->work, of->sequences, of->group),
                  g = lightest_group(of->load, of->has, of->groups, each);
        of->group[i] = g;
        of->load[g] += of->work[i];
        of->has[g]++;
    }
    for (int g = 0, at = 0; g < of->groups; g++)
        for (int i = 0; i < of->sequences; i++)
            if (of->group[i] == g)
                of->order[at++] = i;
}
