/* launches.c: whether a direction of attention has launches for several chunks of keys, or one for each; and
 * in how many pieces ranks exchange and attend the heads that they share.
 *
 * A launch for several waits until all their keys are there. One for each passes outputs through memory, and
 * sums that come home while others are computed hold these up. Which takes longer depends on what the masks
 * leave to transfer, so both are simulated: with the plan, or with drawn batches where masks read drawn
 * tables. */
#include "cost/cost.h"

enum { DRAWN = 2 };

static double seconds_of(Arena *a, const Draft *d, bool backward)
{
    const Program *p = d->program;
    double *mask = NEW_ARRAY(a, double, p->mask_count), sum = 0;
    for (int m = 0; m < p->mask_count; m++) {
        const AttentionInput in = cost_load(a, d, cost_simulated_ranks(d), m, backward, NULL);
        mask[m] = attention_simulate(a, &in).seconds;
    }
    for (int layer = 0; layer < p->model.layers; layer++)
        sum += model_attends(&p->model, layer) ? mask[p->layer_mask[layer]] : 0;
    return sum;
}

static double seconds_drawn(const Draft *d, bool backward)
{
    double sum = 0;
    for (int i = 0; i < (mask_draws(d->program) ? DRAWN : 1); i++) {
        Arena *a = arena_new();
        const Draft drawn = mask_draws(d->program) ? cost_drawn(a, d, i) : *d;
        sum += seconds_of(a, &drawn, backward);
        arena_free(a);
    }
    return sum;
}

/* Slots of forward for chunks of keys, or for pieces of them. */
static int key_slots(const Draft *d)
{
    const Schedule *s = d->attention.at->way[0];
    int slots = 0;
    for (int i = 0; i < s->pools; i++)
        slots += s->pool[i].tensor == T_KV ? s->pool[i].slots : 0;
    return slots;
}

/* Whether the keys that are kept until their launch take no more memory than the output in fp32, which one
 * launch saves. */
static bool keys_are_short(const Draft *d, const Draft *each)
{
    const Model *m = &d->program->model;
    const double keys = (double)m->kv_heads * (m->head_dim + m->value_dim) *
                        d->program->target->activation_bytes / choice_pieces(&d->choice),
                 output = (double)m->heads * m->value_dim * sizeof(float);
    return (key_slots(d) - key_slots(each)) * keys <= output;
}

/* Whether a launch for each chunk is wanted. */
static bool wants_each(const Draft *d, bool backward)
{
    static const double tie = 2e-2;
    Arena *a = arena_new();
    Draft each = *d;
    each.choice.each_chunk[backward] = true;
    each.attention = attentions_make(a, diags_new(a), d->program, &each.choice);
    const bool wants = (!backward && !keys_are_short(d, &each)) ||
                       seconds_drawn(&each, backward) < seconds_drawn(d, backward) * (1 - tie);
    arena_free(a);
    return wants;
}

void launches_wanted(const Draft *d, bool each[2])
{
    for (int backward = 0; backward < 2; backward++)
        each[backward] = attentions_at_once(&d->attention, backward) && wants_each(d, backward);
}

/* ---- pieces of query heads ---- */

/* Each rank attends one pair, whose heads copy engines move: transfers by NCCL would wait for launches. With
 * deterministic gradients the order of their sums is that of one launch. */
static bool can_have_pieces(const Draft *d)
{
    const Program *p = d->program;
    const Choice *c = &d->choice;
    const int node = cluster_node_ranks(&p->cluster), ranks = c->ranks * choice_tensor(c);
    return p->target->device_memory && choice_by_heads(c, false) && choice_by_heads(c, true) &&
           choice_rows(c, false) == 1 && choice_rows(c, true) == 1 && choice_pieces(c) == 1 && !c->of_mask &&
           !c->latents && c->token_chunks < 2 && !p->train.deterministic && !c->placed && node >= ranks &&
           node % ranks == 0;
}

static double seconds_in_pieces(const Draft *d, int pieces)
{
    Draft with = *d;
    with.choice.head_pieces = pieces;
    return seconds_drawn(&with, false) + seconds_drawn(&with, true);
}

int head_pieces_wanted(const Draft *d)
{
    enum { MOST = 4 };
    static const double tie = 2e-2;
    int best = 1;
    if (!can_have_pieces(d))
        return best;
    double least = seconds_in_pieces(d, 1);
    for (int pieces = 2; pieces <= MOST && d->shape.chunk.heads / d->choice.ranks >= pieces; pieces *= 2) {
        const double seconds = seconds_in_pieces(d, pieces);
        best = seconds < least * (1 - tie) ? pieces : best;
        least = seconds < least * (1 - tie) ? seconds : least;
    }
    return best;
}
