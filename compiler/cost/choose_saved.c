/* cost/choose_saved.c: chooses what layers save if not everything fits: most time saved per byte first.
 *
 * Starting at `full`, each stage adds the outputs of one forward operation to what a layer saves: among
 * those that `none` saves, the ones with the most recomputation seconds per byte. Where no operation's
 * outputs save any seconds, a stage has the outputs of two operations, one of which reads the other's. The
 * byte budget goes to whole stages in all layers; what is left goes to the next stage in the last layers,
 * whose values live from forward to the peak anyway, since their backward begins there.
 *
 * Where layers are of several kinds, times and bytes of an output are those of all layers that have it. */
#include "cost/cost.h"

#include <string.h>

typedef struct Stage {
    const char *set;
    double bytes[LAYER_KINDS]; /* of a layer of each kind */
} Stage;
typedef Vec(Stage) StageList;
typedef struct Stages {
    Step *step;
    const double *seconds[LAYER_KINDS]; /* of forward's operations */
    StageList at;
} Stages;
struct SavedStages {
    const Model *model;
    StageList at;
};

/* Adds the size of a value to that of the layers that have it. */
static void add_bytes(const Stages *t, int value, double bytes[LAYER_KINDS])
{
    for (int k = 0; k < step_kinds(t->step); k++)
        bytes[k] += step_has_value(t->step, k, value)
                        ? (double)step_bytes(t->step, &t->step->values.at[value], 1)
                        : 0;
}

static double all_layers(const Model *m, const double of[LAYER_KINDS])
{
    double sum = 0;
    for (int k = 0; k < model_kinds(m); k++)
        sum += of[k] * model_layers_of(m, k);
    return sum;
}

/* The outputs that `none` saves and the set does not, each followed by a space. bytes: their size. */
static const char *outputs(const Stages *t, const Op *o, const char *set, double bytes[LAYER_KINDS])
{
    const char *names = "";
    memset(bytes, 0, sizeof *bytes * LAYER_KINDS);
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++) {
        const Value *v = &t->step->values.at[o->write[i].value];
        if (!saves(saved_most(), v->name) || saves(set, v->name))
            continue;
        names = arena_printf(t->step->arena, "%s%s ", names, v->name);
        add_bytes(t, o->write[i].value, bytes);
    }
    return names;
}

/* Seconds that backward of a layer of the kind spends on recomputing. */
static double recompute_kind(const Stages *t, int kind, const char *set)
{
    const Block *forward = &t->step->block[BLOCK_FORWARD + kind];
    Block b = {0};
    double seconds = 0;
    make_again(t->step, kind, &t->step->block[BLOCK_BACKWARD + kind], set, &b);
    for (int i = 0; i < b.ops.n; i++)
        for (int j = 0; b.ops.at[i].again && j < forward->ops.n; j++)
            if (forward->ops.at[j].write[0].value == b.ops.at[i].write[0].value)
                seconds += t->seconds[kind][j];
    return seconds;
}

/* All layers'. */
static double recompute_seconds(const Stages *t, const char *set)
{
    double seconds[LAYER_KINDS] = {0};
    for (int k = 0; k < step_kinds(t->step); k++)
        seconds[k] = recompute_kind(t, k, set);
    return all_layers(&t->step->program->model, seconds);
}

/* The operation before `o` that writes what it reads first; NULL: none in the block. */
static const Op *maker_of(const Block *b, const Op *o)
{
    for (const Op *x = b->ops.at; x < o; x++)
        for (int i = 0; i < OP_WRITES && x->write[i].value >= 0; i++)
            if (x->write[i].value == o->read[0].value)
                return x;
    return NULL;
}

/* maker: with the outputs of this operation too; NULL: alone. */
static void try_outputs(const Stages *t, const Op *o, const Op *maker, const Stage *last, double now,
                        Stage *best, double *most)
{
    Stage s = *last;
    double bytes[LAYER_KINDS], others[LAYER_KINDS] = {0};
    const char *more = outputs(t, o, last->set, bytes),
               *also = maker ? outputs(t, maker, last->set, others) : "";
    for (int k = 0; k < LAYER_KINDS; k++)
        bytes[k] += others[k];
    more = arena_printf(t->step->arena, "%s%s", more, also);
    s.set = arena_printf(t->step->arena, "%s%s", last->set, more);
    const Model *m = &t->step->program->model;
    const double spared = *more ? (now - recompute_seconds(t, s.set)) / all_layers(m, bytes) : 0;
    if (spared <= *most)
        return;
    for (int k = 0; k < LAYER_KINDS; k++)
        s.bytes[k] += bytes[k];
    *most = spared, *best = s;
}

/* Adds the outputs that save most time per byte. Returns false if none saves any. */
static bool next_stage(Stages *t)
{
    const Stage last = t->at.at[t->at.n - 1];
    const double now = recompute_seconds(t, last.set);
    Stage best = {0};
    double most = 0;
    /* alone; then, where none saves any, with what it is made of: a norm whose output is only moved */
    for (int pairs = 0; pairs < 2 && !best.set; pairs++)
        for (int k = 0; k < step_kinds(t->step); k++) {
            const Block *forward = &t->step->block[BLOCK_FORWARD + k];
            for (const Op *o = forward->ops.at; o < forward->ops.at + forward->ops.n; o++)
                try_outputs(t, o, pairs ? maker_of(forward, o) : NULL, &last, now, &best, &most);
        }
    if (best.set)
        *vec_push(t->step->arena, &t->at) = best;
    return best.set;
}

/* Seconds of each forward operation of a layer of the kind on rank 0. attended: for one head. */
static double *forward_seconds(const Step *s, int kind, AttentionWork attended)
{
    const Block *b = &s->block[BLOCK_FORWARD + kind];
    const RankKind rank = rank_kind_of(&s->program->cluster, 0, (double)s->all_tokens);
    const Program *p = s->program;
    const double attention = 4 * attended.pairs * s->shape.chunk.heads *
                             attention_columns(p, rank.device, false) /
                             (attention_rate(rank.device, false, p->model.head_dim, attended) * rank.share);
    double *seconds = NEW_ARRAY(s->arena, double, b->ops.n);
    for (int i = 0; i < b->ops.n; i++)
        seconds[i] = b->ops.at[i].kind != OP_ATTENTION
                         ? work_seconds(rank, op_work(s, &b->ops.at[i], BLOCK_FORWARD + kind, 1, false))
                         : attention;
    return seconds;
}

static Saving saving_of_bytes(const SavedStages *t, double bytes)
{
    const Model *m = t->model;
    const int layers = m->layers;
    int i = 0, more = 0;
    while (i + 1 < t->at.n && all_layers(m, t->at.at[i + 1].bytes) <= bytes)
        i++;
    const Stage *now = &t->at.at[i];
    double left = bytes - all_layers(m, now->bytes);
    for (int l = layers - 1; i + 1 < t->at.n && l >= 0; l--, more++) {
        left -= now[1].bytes[model_kind(m, l)] - now->bytes[model_kind(m, l)];
        if (left < 0)
            break;
    }
    return more ? (Saving){now->set, now[1].set, layers - more} : (Saving){now->set, now->set, 0};
}

const SavedStages *saved_stages(Arena *a, const Program *p, const Shape *shape, const Partition *part,
                                Units units, AttentionWork attended)
{
    Arena *own = arena_new();
    Stages t = {.step = step_model(own, p, shape, part, units)};
    step_tensor(t.step);
    step_backward(t.step);
    for (int k = 0; k < step_kinds(t.step); k++)
        t.seconds[k] = forward_seconds(t.step, k, attended);
    *vec_push(own, &t.at) = (Stage){.set = saved_least()};
    while (next_stage(&t))
        ;
    SavedStages *kept = NEW(a, SavedStages);
    kept->model = &p->model;
    for (int i = 0; i < t.at.n; i++) {
        Stage *stage = vec_push(a, &kept->at);
        *stage = t.at.at[i];
        stage->set = arena_printf(a, "%s", stage->set);
    }
    arena_free(own);
    return kept;
}

Saving saving_in(Arena *a, const SavedStages *s, double share)
{
    const double all = all_layers(s->model, s->at.at[s->at.n - 1].bytes);
    const Saving v = saving_of_bytes(s, all * share);
    return (Saving){arena_printf(a, "%s", v.lower), arena_printf(a, "%s", v.upper), v.from};
}

Saving saving_at(Arena *a, const Program *p, const Shape *shape, const Partition *part, Units units,
                 AttentionWork attended, double share)
{
    return saving_in(a, saved_stages(a, p, shape, part, units, attended), share);
}
