/* lost_operation.c: linked into a burstc of its own, in place of the pass `waits`: after it forward's first
 * norm no longer writes what is read of it. What burstc says of a fault of its own is tested with that. */
#include "tools/tools.h"

void __real_step_waits(Step *s);
void __wrap_step_waits(Step *s);

void __wrap_step_waits(Step *s)
{
    __real_step_waits(s);
    Block *b = &s->block[BLOCK_FORWARD];
    Op *norm = &b->ops.at[op_first(b, OP_NORM)];
    Value other = s->values.at[norm->write[0].value];
    other.name = "lost";
    norm->write[0].value = step_add_value(s, other);
}
