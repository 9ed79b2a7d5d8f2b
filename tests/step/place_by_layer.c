/* place_by_layer.c: linked into a burstc of its own, in place of the choice that step_place makes: each
 * layer has its own places, however little that saves. So programs small enough for every test have them
 * too. */
#include "tools/tools.h"

Flow *__real_step_place(Arena *a, Step *s, int64_t align, MemoryBudget fits, MemoryBudget most);
Flow *__wrap_step_place(Arena *a, Step *s, int64_t align, MemoryBudget fits, MemoryBudget most);

Flow *__wrap_step_place(Arena *a, Step *s, int64_t align, MemoryBudget fits, MemoryBudget most)
{
    Flow *f = __real_step_place(a, s, align, fits, most);
    if (f->unpacked || s->by_layer)
        return f;
    step_place_by_layer(s, true);
    f = step_flow(a, s);
    step_pack(a, f, align, fits);
    return f;
}
