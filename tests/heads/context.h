/* context.h: what an emitted program asks of the runtime's context: its rank, memory, and where a failure
 * is said. */
#pragma once
#include "burst_mask.h"
#include "streams.h"

#include <algorithm>

struct BurstCtx {
    int rank;
    std::vector<std::unique_ptr<std::vector<char>>> memory;
};

extern const BurstPlan burst_plan;
const BurstPlan burst_plan = {};

int burst_rank(const BurstCtx *c) { return c->rank; }
BurstOwn burst_own_tokens(const BurstPlan *, int rank, int64_t n)
{
    const int64_t each = (n + world.tensor - 1) / world.tensor,
                  first = std::min(rank % world.tensor * each, n);
    return BurstOwn{first, std::min(each, n - first), each};
}
void burst_doing(BurstCtx *, const char *) {}
void burst_sides(const int64_t *, int64_t, const BurstTables *, int, BurstSide *) {}
int burst_fail(BurstCtx *, int code, const char *fmt, ...)
{
    world.wrong = fmt;
    return code;
}
void *burst_take(BurstCtx *c, size_t bytes)
{
    c->memory.push_back(std::make_unique<std::vector<char>>(bytes));
    return c->memory.back()->data();
}
