/* ranges.c: bytes of attention's transfers that carry ranges of tiles.
 *
 * A transfer of queries or keys carries a few runs of tiles that include all tiles read further along its
 * path; one of outputs or gradients, runs that include all tiles that were added to (prune.c). Both ends
 * compute the runs by the same rule, so emitted programs contain no tables of them. */
#include "cost/cost.h"

#include <math.h>
#include <string.h>

/* Seconds of attention, forward and backward, in all layers; of those, computing of the rank that computes
 * most, which ranges do not change. */
typedef struct Seconds {
    double all, computing;
} Seconds;

/* Keeps the times with the loads, in `result`. */
static Seconds attention_seconds(Arena *result, const Program *p, AttentionLoads *l)
{
    Seconds sum = {0}, *mask = NEW_ARRAY(result, Seconds, p->mask_count);
    const AttentionInput **all = NEW_ARRAY(result, const AttentionInput *, 2 * p->mask_count);
    l->time = arena_alloc(result, sizeof *l->time * (size_t)p->mask_count);
    for (int i = 0; i < 2 * p->mask_count; i++)
        all[i] = &l->of[i / 2][i % 2];
    attention_simulate_all(result, 2 * p->mask_count, all, l->time[0]);
    for (int i = 0; i < 2 * p->mask_count; i++) {
        const AttentionInput *in = all[i];
        const AttentionTime t = l->time[i / 2][i % 2];
        double most = 0;
        for (int r = 0; r < in->ranks; r++)
            most = fmax(most, t.busy[r]);
        mask[i / 2].all += t.seconds;
        mask[i / 2].computing += most;
    }
    for (int layer = 0; layer < p->model.layers; layer++) {
        if (!model_attends(&p->model, layer))
            continue;
        sum.all += mask[p->layer_mask[layer]].all;
        sum.computing += mask[p->layer_mask[layer]].computing;
    }
    return sum;
}

/* Whether attention takes less time with ranges. Every rank then holds a table of them, and a host copies
 * partial chunks row by row, so whole chunks win within `tie`. *whole becomes the loads without ranges. */
static bool are_faster(Arena *a, const Draft *d, AttentionLoads *l, AttentionLoads *whole, bool *save)
{
    static const double tie = 2e-3;
    *save = loads_saved(d, l) > 0;
    *whole = (AttentionLoads){.of = arena_alloc(a, sizeof *l->of * (size_t)d->program->mask_count),
                              .pairs = l->pairs};
    memcpy(whole->of, l->of, sizeof *l->of * (size_t)d->program->mask_count);
    loads_make_whole(d, whole);
    if (!*save)
        return false;
    const Seconds without = attention_seconds(a, d->program, whole);
    return without.computing < without.all * (1 - tie) &&
           attention_seconds(a, d->program, l).all < without.all * (1 - tie);
}

/* The same for a drawn batch: a plan's documents may have any length, so that it knows of no ranges. */
static bool are_faster_drawn(const Draft *d)
{
    if (!mask_draws(d->program))
        return false;
    Arena *a = arena_new();
    const Draft drawn = cost_drawn(a, d, 0);
    AttentionLoads l = cost_loads(a, &drawn), whole;
    bool save;
    const bool faster = are_faster(a, &drawn, &l, &whole, &save);
    arena_free(a);
    return faster;
}

static bool are_worth_it(Arena *a, const Draft *d, AttentionLoads **found, bool *save)
{
    AttentionLoads *l = found ? *found : NULL, *whole = NEW(a, AttentionLoads);
    if (!l) {
        l = NEW(a, AttentionLoads);
        *l = cost_loads(a, d);
    }
    const bool wanted = are_faster(a, d, l, whole, save) || are_faster_drawn(d);
    l->other = whole;
    whole->other = l;
    if (found)
        *found = wanted ? l : whole;
    return wanted;
}

static bool may_have_ranges(const Choice *c)
{
    return c->ranks > 1 && !choice_exchanges(c) && !choice_chunks_keys(c) && !c->latents;
}

bool ranges_open(const Draft *d)
{
    return may_have_ranges(&d->choice) && d->program->layout.ranges.is_auto;
}

bool ranges_wanted(Arena *a, const Draft *d, AttentionLoads **loads, bool *save)
{
    *save = false;
    if (ranges_open(d))
        return are_worth_it(a, d, loads, save);
    return may_have_ranges(&d->choice) && d->program->layout.ranges.value != 0;
}

static int64_t chunk_tokens(const Draft *d, TensorId t, int chunk)
{
    const int pieces = tensor_pieces(&d->choice, t), piece = chunk_piece(&d->choice, chunk);
    const int64_t n = d->partition->of[chunk % d->choice.ranks].tokens;
    return pos_cut(n, piece + 1, pieces) - pos_cut(n, piece, pieces);
}

static void add_transfer(const Draft *d, const Schedule *s, const Instance *i, const BurstTileRanges *arrives,
                         Sent *sum)
{
    const Choice *c = s->choice;
    const Heads h = d->shape.chunk;
    const TensorId t = i->node->ref[0].tensor;
    const int64_t token = travel_bytes(&d->program->model, d->program->target, t, s->backward, c->latents,
                                       h.heads, h.kv_heads);
    for (int to = 0; to < c->ranks; to++) {
        const int64_t tokens = chunk_tokens(d, t, rel_add(c, to, rel_sub(c, i->chunk[0], i->hop)));
        sum->bytes += token * burst_ranges_tokens(arrives[to], tokens);
        sum->whole += burst_has_tiles(arrives[to]) ? token * tokens : 0;
    }
}

Sent ranges_sent(Arena *a, const Draft *d, int mask, bool backward)
{
    const Schedule *s = attentions_schedule(&d->attention, mask, backward);
    const Live live = prune(a, s, pair_live(d->counts[mask]), schedule_tiles(a, s, d->counts[mask]));
    Sent sum = {0};
    for (int at = 0; at < s->trace.n; at++)
        if (s->trace.at[at].node->kind != N_COMPUTE)
            add_transfer(d, s, &s->trace.at[at], &live.tiles[(size_t)at * (size_t)live.ranks], &sum);
    return sum;
}

void print_ranges(const Draft *d, Text *out)
{
    Arena *a = arena_new();
    for (int m = 0; m < d->program->mask_count && d->choice.ranges && d->choice.ranks <= PRUNED_RANKS; m++)
        for (int backward = 0; backward < 2; backward++) {
            const Sent sent = ranges_sent(a, d, m, backward);
            const int runs = choice_chunks_queries(&d->choice)
                                 ? chunk_count(d->partition->max_tokens, d->choice.token_chunks)
                                 : 1;
            text_printf(out, "%s of a layer under mask `%s` sends %lld bytes, whole chunks would be %lld\n",
                        backward ? "backward" : "forward", d->program->masks[m].text,
                        runs * (long long)sent.bytes, runs * (long long)sent.whole);
        }
    arena_free(a);
}
