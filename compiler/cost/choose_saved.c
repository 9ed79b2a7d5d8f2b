/* cost/choose_saved.c: chooses what layers save if not everything fits: most time saved per byte first.
 *
 * Starting at `full`, each stage adds the outputs of one forward operation to what a layer saves: among
 * those that `none` saves, the ones with the most recomputation seconds per byte. The byte budget goes to
 * whole stages in all layers; what is left goes to the next stage in the last layers, whose values live from
 * forward to the peak anyway, since their backward begins there. */
#include "cost/cost.h"

#include <string.h>

typedef struct Stage { const char *set; double bytes; /* of one layer */ } Stage;
typedef struct Stages {
    Step *step;
    const double *seconds; /* of forward's operations */
    Vec(Stage) at;
} Stages;

/* The outputs that `none` saves and the set does not, each followed by a space. bytes: their size. */
static const char *outputs(const Stages *t, const Op *o, const char *set, double *bytes)
{
    const char *names = "";
    *bytes = 0;
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++) {
        const Value *v = &t->step->values.at[o->write[i].value];
        if (!saves(saved_most(), v->name) || saves(set, v->name))
            continue;
        names = arena_printf(t->step->arena, "%s%s ", names, v->name);
        *bytes += (double)step_bytes(t->step, v, 1);
    }
    return names;
}

/* Seconds that a layer's backward spends on recomputing. */
static double recompute_seconds(const Stages *t, const char *set)
{
    const Block *forward = &t->step->block[BLOCK_FORWARD];
    Block b = {0};
    double seconds = 0;
    make_again(t->step, &t->step->block[BLOCK_BACKWARD], set, &b);
    for (int i = 0; i < b.ops.n; i++)
        for (int j = 0; b.ops.at[i].again && j < forward->ops.n; j++)
            if (forward->ops.at[j].write[0].value == b.ops.at[i].write[0].value)
                seconds += t->seconds[j];
    return seconds;
}

/* Adds the outputs that save most time per byte. Returns false if none saves any. */
static bool next_stage(Stages *t)
{
    const Block *forward = &t->step->block[BLOCK_FORWARD];
    const Stage last = t->at.at[t->at.n - 1];
    const double now = recompute_seconds(t, last.set);
    Stage best = {0};
    double most = 0;
    for (int i = 0; i < forward->ops.n; i++) {
        double bytes;
        const char *more = outputs(t, &forward->ops.at[i], last.set, &bytes);
        const char *set = arena_printf(t->step->arena, "%s%s", last.set, more);
        const double spared = *more ? (now - recompute_seconds(t, set)) / bytes : 0;
        if (spared > most)
            most = spared, best = (Stage){set, last.bytes + bytes};
    }
    if (best.set)
        *vec_push(t->step->arena, &t->at) = best;
    return best.set;
}

/* Seconds of each forward operation on rank 0. attended: for one head. */
static double *forward_seconds(const Step *s, AttentionWork attended)
{
    const Block *b = &s->block[BLOCK_FORWARD];
    const RankKind rank = rank_kind_of(&s->program->cluster, 0, (double)s->all_tokens);
    const Program *p = s->program;
    const double attention = 4 * attended.pairs * s->shape.chunk.heads *
                             attention_columns(p, rank.device, false) /
                             (attention_rate(rank.device, false, p->model.head_dim, attended) * rank.share);
    double *seconds = NEW_ARRAY(s->arena, double, b->ops.n);
    for (int i = 0; i < b->ops.n; i++)
        seconds[i] = b->ops.at[i].kind != OP_ATTENTION
                         ? work_seconds(rank, op_work(s, &b->ops.at[i], BLOCK_FORWARD, 1, false))
                         : attention;
    return seconds;
}

static Saving saving_of_bytes(const Stages *t, double bytes)
{
    const int layers = t->step->program->model.layers;
    int i = 0;
    while (i + 1 < t->at.n && t->at.at[i + 1].bytes * layers <= bytes)
        i++;
    const Stage *now = &t->at.at[i];
    const int more = i + 1 < t->at.n ? (int)((bytes - now->bytes * layers) / (now[1].bytes - now->bytes)) : 0;
    return more ? (Saving){now->set, now[1].set, layers - more} : (Saving){now->set, now->set, 0};
}

Saving saving_at(Arena *a, const Program *p, const Shape *shape, const Partition *part, Units units,
                 AttentionWork attended, double share)
{
    Arena *own = arena_new();
    Stages t = {.step = step_model(own, p, shape, part, units)};
    step_tensor(t.step);
    step_backward(t.step);
    t.seconds = forward_seconds(t.step, attended);
    *vec_push(own, &t.at) = (Stage){saved_least(), 0};
    while (next_stage(&t))
        ;
    const Saving v = saving_of_bytes(&t, t.at.at[t.at.n - 1].bytes * p->model.layers * share);
    const Saving kept = {arena_printf(a, "%s", v.lower), arena_printf(a, "%s", v.upper), v.from};
    arena_free(own);
    return kept;
}
