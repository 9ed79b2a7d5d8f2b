/* search/batches.c: the plan's layout in every partition, over drawn batches: what is fixed before batches
 * are known beside what is decided for each. */
#include "search/search.h"

static void add_row(Arena *a, const Choice *c, const CostBatches *b, const char *why_not, bool chosen,
                    Text *out)
{
    text_printf(out, "%-16s ", partition_text(a, c->partition, c->block));
    if (why_not)
        text_printf(out, "- %s\n", why_not);
    else
        text_printf(out, "%10.3f ms %10.3f ms %8.2f balance %9.3f GiB sent%s\n", b->mean * 1e3, b->p95 * 1e3,
                    b->imbalance, b->received / (1 << 30), chosen ? "  chosen" : "");
}

static void add_partition(const Found *f, PartitionKind kind, Text *out)
{
    const Draft *d = plan_draft(f->plan);
    Arena *a = arena_new();
    Choice c = d->choice;
    if (kind == c.partition) {
        add_row(a, &c, &f->cost.batches, NULL, true, out);
    } else {
        c = choice_in(d->program, &c, kind);
        c.spared = c.offload_values = 0; /* its saving and offload say what layers save, and where */
        const Evaluation e = evaluate_choice(a, d->program, &c, NULL);
        const char *why_not = e.why_not || e.fits ? e.why_not : "does not fit";
        const CostBatches b = why_not ? (CostBatches){0} : cost_batches(&e.draft, COST_BATCHES);
        add_row(a, &c, &b, why_not, false, out);
    }
    arena_free(a);
}

const char *search_batches(Arena *a, const Found *f)
{
    Text t = {0};
    if (!f->cost.batches.n || plan_draft(f->plan)->choice.ranks == 1)
        return "";
    text_printf(&t, "%d drawn batches %12s %13s\n", f->cost.batches.n, "mean", "p95");
    for (int kind = 0; kind < PART_KINDS; kind++)
        add_partition(f, (PartitionKind)kind, &t);
    return text_keep(a, &t);
}
