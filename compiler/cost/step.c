/* cost/step.c: one training step in parts: each mask's attention, simulated alone, and the step's list of
 * operations with their times, which cost/stream.c then runs. */
#include "cost/cost.h"

#include "base/parallel.h"
#include "ir/kernels.h"

#include <math.h>
#include <string.h>

/* ---- the operations ---- */

enum { UNIT_KINDS = 3 + LAYER_KINDS, CHUNK_KINDS = 2 };

static int unit_kind(const Step *s, int unit)
{
    if (unit == 0)
        return 0;
    if (unit > s->program->model.layers + 1)
        return UNIT_KINDS - 1; /* a group of experts */
    return unit == s->program->model.layers + 1 ? 1 : 2 + model_kind(&s->program->model, unit - 1);
}

const double *model_seconds(const StepModel *m, const StepOp *o)
{
    const int op = (int)(o->op - m->step->block[o->block].ops.at);
    return &m->seconds[o->block][((op * UNIT_KINDS + unit_kind(m->step, o->unit)) * CHUNK_KINDS +
                                  op_is_short(m->step, o)) *
                                 m->rank_kinds];
}

int model_launches(const StepModel *m, const StepOp *o)
{
    const int op = (int)(o->op - m->step->block[o->block].ops.at);
    return m->launches[o->block][op * UNIT_KINDS + unit_kind(m->step, o->unit)];
}

int model_cells(const StepModel *m, int block)
{
    return m->step->block[block].ops.n * UNIT_KINDS * CHUNK_KINDS * m->rank_kinds;
}

static void rate_block(Arena *a, StepModel *m, int block)
{
    const Block *b = &m->step->block[block];
    const Model *model = &m->step->program->model;
    int units[UNIT_KINDS] = {0, model->layers + 1}; /* one of each kind */
    for (int k = 2; k < UNIT_KINDS; k++)
        units[k] = 1;
    for (int l = 0; l < model->layers; l++) {
        const int of_group = step_group_unit(m->step, l, 1);
        units[2 + model_kind(model, l)] = 1 + l;
        if (m->step->units.groups && step_unit(m->step, of_group)->elements)
            units[UNIT_KINDS - 1] = of_group;
    }
    double *seconds = m->seconds[block] = NEW_ARRAY(a, double, model_cells(m, block));
    int *launches = m->launches[block] = NEW_ARRAY(a, int, b->ops.n *UNIT_KINDS);
    for (int i = 0; i < b->ops.n * UNIT_KINDS; i++)
        *launches++ = op_launches(m->step, &b->ops.at[i / UNIT_KINDS], units[i % UNIT_KINDS]);
    for (int i = 0; i < b->ops.n; i++)
        for (int u = 0; u < UNIT_KINDS * CHUNK_KINDS; u++) {
            const Work w = op_work(m->step, &b->ops.at[i], block, units[u / CHUNK_KINDS], u % CHUNK_KINDS);
            for (int k = 0; k < m->rank_kinds; k++)
                *seconds++ = work_seconds(m->rank_kind[k], w);
        }
}

static int find_kind(const StepModel *m, RankKind k)
{
    int i = 0;
    while (i < m->rank_kinds && !rank_kinds_equal(m->rank_kind[i], k))
        i++;
    return i;
}

bool cost_mixed(const Cluster *c)
{
    for (int g = 1; g < c->group_count; g++)
        if (c->groups[g].device != c->groups[0].device)
            return true;
    return false;
}

/* A device with the mean rates of all ranks. With tokens spread evenly, no shares are faster: the speed at
 * one operation, 1 / (flops / matmul + bytes / passes), is concave in the rates. */
static const Device *mean_device(Arena *a, const Cluster *c)
{
    Device *mean = NEW(a, Device);
    *mean = *c->groups[0].device;
    mean->matmul = mean->passes = mean->norms = mean->experts = 0;
    for (int r = 0; r < c->world; r++) {
        const Device *d = cluster_group_of(c, r)->device;
        const double part = cost_rate_share(c, cluster_group_of(c, r)) / c->world;
        mean->matmul += d->matmul * part;
        mean->passes += d->passes * part;
        mean->norms += d->norms * part;
        mean->experts += d->experts * part;
    }
    return mean;
}

/* With no partition, a cluster of different devices counts as perfectly balanced. */
static bool add_mean_kind(Arena *a, StepModel *m, const Partition *part, int ranks)
{
    if (part || !cost_mixed(m->cluster))
        return false;
    m->rank_kind = NEW(a, RankKind);
    *(RankKind *)m->rank_kind = (RankKind){mean_device(a, m->cluster), 1,
                                           (double)m->program->sequence / ranks};
    m->rank_kinds = 1;
    return true;
}

/* partition NULL: tokens are spread evenly. own: the rank whose parts are reported, as group * ranks +
 * chunk. */
static void add_rank_kinds(Arena *a, StepModel *m, const Choice *c, const Partition *part, int own)
{
    Vec(RankKind) kinds = {0};
    if (add_mean_kind(a, m, part, c->ranks))
        return;
    for (int r = 0; r < m->cluster->world / choice_tensor(c); r++) {
        const double tokens = part ? (double)part->of[r % c->ranks].tokens
                                   : (double)m->program->sequence / c->ranks;
        const RankKind k = rank_kind_of(m->cluster, choice_rank(c, r / c->ranks, r % c->ranks), tokens);
        const int known = find_kind(m, k);
        m->own = r == own ? known : m->own;
        if (known < m->rank_kinds)
            continue;
        *vec_push(a, &kinds) = k;
        m->rank_kind = kinds.at, m->rank_kinds = kinds.n;
    }
}

/* Sequences that one group computes in a step, one after the other. */
static int64_t sequences_of(const Program *p, const Choice *c)
{
    const int64_t groups = p->cluster.world / choice_tensor(c) / c->ranks;
    return (p->train.batch + groups - 1) / groups;
}

static StepModel model_make(Arena *a, const Program *p, const Choice *c, const Partition *part, Units units,
                            const uint64_t *pairs, int own)
{
    Program *simulated = NEW(a, Program);
    *simulated = *p;
    simulated->target = p->cluster.target;
    StepModel m = {.program = simulated, .cluster = &p->cluster, .sequences = sequences_of(p, c)};
    const Partition even = {.max_tokens = (p->sequence + c->ranks - 1) / c->ranks};
    m.step = step_make(a, simulated, c, part ? part : &even, units, pairs, 0, 0);
    m.ops = step_unroll(a, m.step, &m.op);
    add_rank_kinds(a, &m, c, part, own);
    for (int b = 0; b < STEP_BLOCKS; b++)
        rate_block(a, &m, b);
    model_time(a, &m);
    return m;
}

/* Tensor ranks whose work counts: ranks that repeat the work of the same key heads do not. */
static int counted_ranks(const StepModel *m, const Op *o, int block)
{
    const UnitTensor *t = op_tensor(m->step, o, &m->step->block[block]);
    return t && t->split != SPLIT_NONE ? t->parts : m->step->shape.tensor;
}

/* A token's operations; experts' without rows that only fill tiles. */
static double work_flops(Work w) { return w.flops + w.experts; }

/* Over all chunks of heads. */
static double op_flops(const Step *s, const Op *o, int block)
{
    const int chunks = op_in_loop(s, o, LOOP_HEADS) ? s->shape.head_chunks : 1,
              few = op_in_loop(s, o, LOOP_HEADS) ? s->shape.short_chunks : 0;
    return (chunks - few) * work_flops(op_work(s, o, block, 1, false)) +
           few * work_flops(op_work(s, o, block, 1, true));
}

/* FLOPs of one sequence on all ranks, without recomputation. */
static double sequence_flops(const StepModel *m, const StepParts *p)
{
    double flops = 0;
    for (int b = 0; b < STEP_BLOCKS; b++)
        for (int i = 0; i < m->step->block[b].ops.n; i++) {
            const Op *o = &m->step->block[b].ops.at[i];
            flops += o->again ? 0
                              : p->block[b].times / (double)m->sequences * op_flops(m->step, o, b) *
                                    counted_ranks(m, o, b);
        }
    return flops * (double)m->program->sequence;
}

/* ---- attention ---- */

static double total(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* Unmasked pairs of a whole sequence: summed over the ranks if all are simulated. */
static double sequence_pairs(const StepParts *p, const Draft *d, int mask, const double *pairs)
{
    return p->ranks == d->choice.ranks ? total(pairs, p->ranks) : (double)pair_whole(d->counts[mask]).pairs;
}

/* Forward attention of each rank's queries whose outputs are recomputed. */
static AttentionInput rest_input(Arena *a, const Draft *d, int mask, const AttentionInput *forward)
{
    const int64_t kept = tail_tokens(d->choice.saving.tail, d->partition->max_tokens);
    const int n = forward->schedule->trace.n;
    AttentionInput in = *forward;
    in.seconds = NEW_ARRAY(a, double, n * in.ranks);
    in.tile_flops = NEW_ARRAY(a, double, in.ranks);
    for (int r = 0; r < in.ranks; r++) {
        const int64_t tokens = d->partition->of[in.rank[r]].tokens;
        const double share = pair_share_before(d->counts[mask], in.rank[r],
                                               tokens > kept ? tokens - kept : 1);
        in.tile_flops[r] = share * forward->tile_flops[r];
        for (int at = 0; at < n; at++)
            in.seconds[at * in.ranks + r] = share * forward->seconds[at * in.ranks + r];
    }
    return in;
}

/* The share of a rank's attention in one of `parts` parts of its queries, averaged over the ranks that share
 * its heads. */
static double row_share(const Draft *d, int mask, int rank, bool backward, int part, int parts)
{
    const Choice *c = &d->choice;
    const int shares = choice_shares(c, backward);
    double sum = 0;
    for (int i = 0; i < shares; i++)
        sum += pair_shares(d->counts[mask], shares == 1 ? rank : choice_member(c, rank, i), parts)[part] /
               shares;
    return sum;
}

/* The factor by which attention takes longer because ranks meet at every chunk of queries instead of once:
 * keys go round once per chunk, and each time the slowest rank counts. In a zigzag partition one rank's
 * chunk has few keys where another's has many. */
static double chunks_meet(Arena *a, const AttentionInput *in, const Draft *d, int mask, bool backward,
                          int chunks)
{
    enum { MOST_PARTS = 8 };
    const int parts = chunks < MOST_PARTS ? chunks : MOST_PARTS, ops = in->schedule->trace.n;
    double *busy = NEW_ARRAY(a, double, in->ranks), most = 0, met = 0;
    if (choice_rows(&d->choice, backward) == 1)
        return 1;
    for (int r = 0; r < in->ranks; r++) {
        for (int at = 0; at < ops; at++)
            busy[r] += in->seconds[at * in->ranks + r];
        most = busy[r] > most ? busy[r] : most;
    }
    for (int i = 0; i < parts; i++) {
        double slowest = 0;
        for (int r = 0; r < in->ranks; r++) {
            const double seconds = busy[r] * row_share(d, mask, in->rank[r], backward, i, parts);
            slowest = seconds > slowest ? seconds : slowest;
        }
        met += slowest;
    }
    return met > most ? met / most : 1;
}

/* Runs of attention's schedule in a layer: one for each chunk of queries, or for each live pair of a query
 * and a key chunk. */
static int attention_runs(const Draft *d, int mask, int chunks)
{
    const uint64_t *pairs = choice_chunks_keys(&d->choice) ? pair_chunks(d->counts[mask], chunks) : NULL;
    int runs = 0;
    for (int q = 0; q < chunks && pairs; q++)
        for (int k = 0; k < chunks; k++)
            runs += pairs[q] >> k & 1;
    return pairs ? runs : chunks;
}

/* The share of a full transfer that one run moves. Keys go round whole for each chunk of queries, or one
 * chunk of them for each pair. Exchanges move keys with the first chunk of queries and their gradients with
 * the last, or with each pair, and queries once. */
static double moved_share(const Node *n, int chunks, int runs, bool pairs)
{
    const bool keys = n->ref[0].tensor == T_KV || n->ref[0].tensor == T_DKV;
    if (n->kind == N_EXCHANGE)
        return 1.0 / (pairs && keys ? chunks : runs);
    return pairs ? 1.0 / chunks : 1;
}

/* Reduces the input to one run of average length. */
static void share_queries(Arena *a, AttentionInput *in, const Draft *d, int mask, bool backward)
{
    const int chunks = chunk_count(d->partition->max_tokens, d->choice.token_chunks),
              runs = attention_runs(d, mask, chunks);
    const double longer = chunks_meet(a, in, d, mask, backward, chunks);
    for (int r = 0; r < in->ranks; r++)
        in->tile_flops[r] /= runs;
    for (int i = 0; i < in->schedule->trace.n * in->ranks; i++) {
        const double moved = moved_share(in->schedule->trace.at[i / in->ranks].node, chunks, runs,
                                         choice_chunks_keys(&d->choice));
        in->seconds[i] *= longer / runs;
        if (!in->bytes)
            continue;
        in->bytes[i] *= moved;
        in->received[i] *= moved;
    }
}

/* Takes the draft's loads if it has them. The draft is their only user and reads each mask's once, so
 * callers may change them in place. */
static void load_both(Arena *a, const Draft *d, int ranks, int mask, double *pairs, AttentionInput in[2])
{
    if (!d->loads) {
        cost_load_both(a, d, ranks, mask, pairs, in);
        return;
    }
    for (int backward = 0; backward < 2; backward++) {
        in[backward] = d->loads->of[mask][backward];
        in[backward].cluster = &d->program->cluster;
        in[backward].schedule = cost_schedule(a, d, mask, backward);
    }
    if (pairs)
        memcpy(pairs, d->loads->pairs[mask], sizeof *pairs * (size_t)in[0].ranks);
}

static void compute_both(Arena *a, const Draft *d, int ranks, int mask, double *pairs, AttentionInput in[2])
{
    for (int backward = 0; backward < 2; backward++)
        in[backward] = cost_computing(a, d, ranks, mask, backward, backward ? NULL : pairs);
}

/* Attention without waits for transfers. */
static AttentionTime busy_attention(Arena *a, const AttentionInput *in)
{
    AttentionTime t = {.busy = NEW_ARRAY(a, double, in->ranks)};
    for (int at = 0; at < in->schedule->trace.n; at++)
        for (int r = 0; r < in->ranks; r++)
            t.busy[r] += in->seconds[at * in->ranks + r];
    for (int r = 0; r < in->ranks; r++)
        t.seconds = fmax(t.seconds, t.busy[r]);
    return t;
}

/* How well times of attention are known: computing alone; as bounded by attention_moving; simulated. */
typedef enum Known { KNOWN_COMPUTING, KNOWN_LEAST, KNOWN_SIMULATED } Known;

typedef struct Moving {
    const AttentionInput *in; /* [2] */
    double seconds[2];
} Moving;

static void find_moving(void *moving, int backward)
{
    Moving *m = moving;
    m->seconds[backward] = attention_moving(&m->in[backward]);
}

/* Lower bounds. */
static void least_both(Arena *a, const AttentionInput in[2], Known known, AttentionTime time[2])
{
    Moving moving = {.in = in};
    if (known == KNOWN_LEAST)
        parallel(2, find_moving, &moving);
    for (int backward = 0; backward < 2; backward++) {
        time[backward] = busy_attention(a, &in[backward]);
        time[backward].seconds = fmax(time[backward].seconds, moving.seconds[backward]);
    }
}

/* Loads may have been simulated already, when ranges were decided. */
static void time_both(Arena *a, const Draft *d, int mask, const AttentionInput in[2], Known known,
                      AttentionTime time[2])
{
    const bool simulated = d->loads && d->loads->time && !choice_chunks_queries(&d->choice);
    const AttentionInput *both[2] = {&in[0], &in[1]};
    if (known != KNOWN_SIMULATED)
        least_both(a, in, known, time);
    else if (simulated)
        memcpy(time, d->loads->time[mask], 2 * sizeof *time);
    else
        attention_simulate_all(a, 2, both, time);
}

static void attention_time(Arena *a, const StepParts *p, const Draft *d, int mask, LayerKind *l,
                           double *pairs, Known known)
{
    (known == KNOWN_COMPUTING ? compute_both : load_both)(a, d, p->ranks, mask, pairs, l->input);
    for (int backward = 0; backward < 2 && choice_chunks_queries(&d->choice); backward++)
        share_queries(a, &l->input[backward], d, mask, backward);
    time_both(a, d, mask, l->input, known, l->time);
}

/* Adds the recomputed forward of the leading tokens to attention that was simulated for any tail. */
static void add_rest(Arena *a, StepParts *p, const Draft *d, bool transfers)
{
    p->attends = choice_keeps_tail(&d->choice) ? ATTENDS : ATTEND_REST;
    for (int k = 0; k < p->kinds && p->attends == ATTENDS; k++) {
        LayerKind *l = &p->kind[k];
        if (!l->layers)
            continue;
        l->input[ATTEND_REST] = rest_input(a, d, k % d->program->mask_count, &l->input[ATTEND_FORWARD]);
        l->time[ATTEND_REST] = transfers ? attention_simulate(a, &l->input[ATTEND_REST])
                                         : busy_attention(a, &l->input[ATTEND_REST]);
    }
}

/* Attention of short chunks of heads. */
static void short_attention(Arena *a, StepParts *p, const Draft *d, int mask, Known known)
{
    Draft of_few = *d;
    of_few.shape.chunk = shape_chunk(&d->shape, true);
    of_few.loads = NULL;
    attention_time(a, p, &of_few, mask, &p->kind[d->program->mask_count + mask], NULL, known);
}

static void attention_kind(Arena *a, StepParts *p, const Draft *d, int mask, Known known)
{
    LayerKind *l = &p->kind[mask];
    double *pairs = NEW_ARRAY(a, double, p->ranks);
    attention_time(a, p, d, mask, l, pairs, known);
    if (d->shape.short_chunks)
        short_attention(a, p, d, mask, known);
    p->rank = l->input[0].rank;
    p->group = l->input[0].group;
    p->choice = d->attention.at[0].choice;
    for (int r = 0; r < p->ranks; r++)
        p->pairs[r] += l->layers * pairs[r];
    const double all = sequence_pairs(p, d, mask, pairs);
    p->mean_pairs += l->layers * all / d->choice.ranks;
    const double passes = d->program->infer.lengths ? 1 : 3; /* gradients are twice as much as forward */
    p->flops += passes * 4.0 * l->layers * all * model_columns(&d->program->model, false) *
                d->shape.rank.heads * d->shape.tensor;
}

/* Over all layers: each once forward and once backward, or, with step, as often as in a step. */
static double rank_busy(const StepParts *p, int rank, bool step)
{
    double sum = 0;
    for (int k = 0; k < p->kinds; k++)
        for (int b = 0; b < (step ? p->attends : ATTEND_REST) && p->kind[k].layers; b++)
            sum += (step ? p->kind[k].times[b] : p->kind[k].layers) * p->kind[k].time[b].busy[rank];
    return sum;
}

/* Over all tiles that a rank computes in a step, including masked pairs of partial ones. */
static double rank_flops(const StepParts *p, int rank)
{
    double sum = 0;
    for (int k = 0; k < p->kinds; k++)
        for (int b = 0; b < p->attends && p->kind[k].layers; b++)
            sum += p->kind[k].times[b] * p->kind[k].input[b].tile_flops[rank];
    return sum;
}

static void find_busiest(StepParts *p)
{
    for (int r = 1; r < p->ranks; r++)
        p->busiest = rank_busy(p, r, false) > rank_busy(p, p->busiest, false) ? r : p->busiest;
}

/* Attention's rate on a rank relative to the group's first rank. */
static double rank_speed(const StepParts *p, const Cluster *c, int rank)
{
    const Choice *choice = p->choice;
    return cluster_group_of(c, choice_rank(choice, p->group, rank))->device->attention_backward /
           cluster_group_of(c, choice_rank(choice, p->group, 0))->device->attention_backward;
}

static void rate_ranks(Arena *a, StepParts *p, const Draft *d)
{
    const Cluster *c = &d->program->cluster;
    p->speed = NEW_ARRAY(a, double, p->ranks);
    for (int r = 0; r < p->ranks; r++)
        p->speed[r] = rank_speed(p, c, p->rank[r]);
    for (int r = 0; r < d->choice.ranks; r++)
        p->mean_speed += rank_speed(p, c, r);
    p->mean_speed /= d->choice.ranks;
}

/* ---- sums ---- */

double cost_imbalance(const StepParts *p)
{
    const double mean = p->mean_pairs / p->mean_speed;
    double most = mean; /* in a partly simulated group the largest may be elsewhere */
    for (int r = 0; r < p->ranks; r++)
        most = fmax(most, p->pairs[r] / p->speed[r]);
    return mean > 0 ? most / mean : 1;
}

static void sum_busy(StepParts *p, int ranks)
{
    double mean = 0;
    for (int r = 0; r < p->ranks; r++) {
        if (rank_busy(p, r, true) > p->attention_busy)
            p->attention_busy = rank_busy(p, r, true), p->tile_flops = rank_flops(p, r);
        mean += rank_busy(p, r, true) / p->ranks;
    }
    p->mean_attention_busy = p->ranks == ranks ? mean : p->attention_busy / cost_imbalance(p);
}

double parts_compute(const StepParts *p)
{
    double seconds = p->attention_busy;
    for (int b = 0; b < STEP_BLOCKS; b++)
        seconds += p->block[b].seconds + p->block[b].again;
    return seconds;
}

static StepParts parts_make(Arena *a, const Program *p, const Choice *c, int ranks)
{
    StepParts parts = {.ranks = ranks,
                       .attends = choice_keeps_tail(c) ? ATTENDS : ATTEND_REST,
                       .kinds = p->mask_count * (1 + (shape_of(p, c).short_chunks > 0))};
    parts.kind = NEW_ARRAY(a, LayerKind, parts.kinds);
    parts.pairs = NEW_ARRAY(a, double, ranks);
    parts.rows = NEW_ARRAY(a, double, BURST_ROW_COUNT);
    for (int l = 0; l < p->model.layers; l++)
        for (int k = model_attends(&p->model, l) ? p->layer_mask[l] : parts.kinds; k < parts.kinds;
             k += p->mask_count)
            parts.kind[k].layers++;
    return parts;
}

/* With a separate wire for collectives. */
static StepParts run_alone(Arena *a, const StepParts *parts, const StepModel *m)
{
    StepParts p = *parts;
    p.kind = NEW_ARRAY(a, LayerKind, p.kinds);
    p.rows = NEW_ARRAY(a, double, BURST_ROW_COUNT);
    memcpy(p.kind, parts->kind, sizeof *p.kind * (size_t)p.kinds);
    stream_run(a, &p, m, false, NULL);
    return p;
}

/* Other values of `weights` may save their waits and sums. */
static Bound bound_by(const StepParts *alone)
{
    const double step = alone->step - alone->rows[BURST_ROW_OPTIMIZER];
    return (Bound){step, step - alone->weights - alone->taken - alone->rows[BURST_ROW_MERGE], alone->step};
}

static Bound bound_alone(Arena *a, const StepParts *parts, const StepModel *m)
{
    const StepParts alone = run_alone(a, parts, m);
    return bound_by(&alone);
}

/* The computing of a few ranks is a lower bound for all, since the slowest counts. */
enum { FEW_RANKS = 8 };

static StepParts attend_all(Arena *a, const Draft *d, Known known)
{
    const int few = d->choice.ranks < FEW_RANKS ? d->choice.ranks : FEW_RANKS;
    StepParts p = parts_make(a, d->program, &d->choice,
                             known == KNOWN_COMPUTING ? few : cost_simulated_ranks(d));
    for (int k = 0; k < d->program->mask_count; k++)
        if (p.kind[k].layers)
            attention_kind(a, &p, d, k, known);
    find_busiest(&p);
    rate_ranks(a, &p, d);
    return p;
}

StepParts cost_attended(Arena *a, const Draft *d)
{
    return attend_all(a, d, KNOWN_SIMULATED);
}

static double *own_figure(Arena *a, const double *of, int rank)
{
    double *own = NEW(a, double);
    *own = of ? of[rank] : 0;
    return of ? own : NULL;
}

StepParts cost_busiest(Arena *a, const StepParts *attended)
{
    StepParts p = *attended;
    int *rank = NEW(a, int);
    *rank = p.rank[p.busiest];
    p.rank = rank, p.ranks = 1, p.busiest = 0;
    p.pairs = p.speed = p.rows = NULL;
    p.kind = NEW_ARRAY(a, LayerKind, p.kinds);
    for (int k = 0; k < p.kinds; k++) {
        p.kind[k].layers = attended->kind[k].layers;
        for (int i = 0; i < ATTEND_REST && p.kind[k].layers; i++) {
            const AttentionTime *t = &attended->kind[k].time[i];
            p.kind[k].time[i] = (AttentionTime){.seconds = t->seconds,
                                                .busy = own_figure(a, t->busy, attended->busiest),
                                                .passing = own_figure(a, t->passing, attended->busiest),
                                                .link_bytes = t->link_bytes,
                                                .nic_bytes = t->nic_bytes,
                                                .moving = t->moving};
        }
    }
    return p;
}

StepParts cost_attended_least(Arena *a, const Draft *d)
{
    return attend_all(a, d, KNOWN_LEAST);
}

/* Reuses the attention of a draft with the same attention, which may have been freed. */
static StepParts reuse_attention(Arena *a, const Draft *d, const StepParts *attended)
{
    StepParts p = *attended;
    p.choice = d->attention.at[0].choice;
    p.rows = NEW_ARRAY(a, double, BURST_ROW_COUNT);
    p.kind = NEW_ARRAY(a, LayerKind, p.kinds);
    memcpy(p.kind, attended->kind, sizeof *p.kind * (size_t)p.kinds);
    for (int k = 0; k < p.kinds; k++)
        for (int i = 0; i < ATTEND_REST && p.kind[k].layers; i++) {
            p.kind[k].input[i].cluster = &d->program->cluster;
            p.kind[k].input[i].schedule = cost_schedule(a, d, k % d->program->mask_count,
                                                        i == ATTEND_BACKWARD);
        }
    add_rest(a, &p, d, true);
    return p;
}

StepModel *cost_model(Arena *a, const Draft *d)
{
    StepModel *m = NEW(a, StepModel);
    *m = model_make(a, d->program, &d->choice, d->partition, d->units,
                    step_pairs(a, d->program, &d->choice, d->partition, d->counts), 0);
    return m;
}

/* Its own rank is the one that attends most. */
static StepModel model_of(Arena *a, const Draft *d, const StepParts *p)
{
    const int own = p->rank[p->busiest];
    StepModel m = d->model ? *d->model : *cost_model(a, d);
    m.own = find_kind(&m, rank_kind_of(m.cluster, choice_rank(&d->choice, p->group, own),
                                       (double)d->partition->of[own].tokens));
    return m;
}

/* Fills all fields but cost/stream.c's. */
static StepParts begin_parts(Arena *a, const Draft *d)
{
    if (d->attended)
        return reuse_attention(a, d, d->attended);
    StepParts p = cost_attended(a, d);
    add_rest(a, &p, d, true);
    return p;
}

void step_record(Arena *a, const Draft *d, double enough, StepParts *p, Recorder *record)
{
    const Program *program = d->program;
    *p = begin_parts(a, d);
    const StepModel m = model_of(a, d, p);
    for (int b = 0; b < STEP_BLOCKS; b++)
        p->block_name[b] = m.step->block[b].name;
    if (isfinite(enough)) {
        StepParts alone = run_alone(a, p, &m);
        const Bound bound = bound_by(&alone);
        alone.at_least = bound.all > enough;
        if (alone.at_least)
            *p = alone;
        p->any_weights = cost_mixed(m.cluster) ? 0 : bound.any_weights;
    }
    if (!p->at_least)
        stream_run(a, p, &m, true, record);
    p->flops = (double)program->train.batch * (p->flops + sequence_flops(&m, p));
    sum_busy(p, d->choice.ranks);
}

/* Whether another kind with the same device has more tokens: its operations take at least as long. */
static bool outdone(const StepModel *m, int kind)
{
    const RankKind *k = &m->rank_kind[kind];
    bool outdone = false;
    for (int i = 0; i < m->rank_kinds; i++)
        outdone |= m->rank_kind[i].device == k->device && m->rank_kind[i].share == k->share &&
                   m->rank_kind[i].tokens > k->tokens;
    return outdone;
}

/* The model restricted to ranks of one kind. */
static StepModel model_of_kind(Arena *a, const StepModel *m, int kind)
{
    StepModel one = *m;
    one.rank_kind = &m->rank_kind[kind];
    one.rank_kinds = 1;
    one.own = 0;
    for (int b = 0; b < STEP_BLOCKS; b++)
        rate_block(a, &one, b);
    model_time(a, &one);
    return one;
}

/* With other `weights` ranks meet at other operations, and where ranks differ each meeting adds a wait for
 * the slower. So any_weights is the largest bound over single kinds, which wait for no others. */
static Bound bound_of(Arena *a, const StepParts *p, const StepModel *m)
{
    Bound all = bound_alone(a, p, m);
    if (!cost_mixed(m->cluster))
        return all;
    all.any_weights = 0;
    for (int k = 0; k < m->rank_kinds; k++)
        if (!outdone(m, k)) {
            const StepModel one = model_of_kind(a, m, k);
            all.any_weights = fmax(all.any_weights, bound_alone(a, p, &one).any_weights);
        }
    return all;
}

Draft cost_uncopied(const Draft *d)
{
    Draft t = *d;
    t.choice.offload_values = t.choice.offload_layers = t.choice.fetch_chunks = 0;
    t.choice.offload = NULL;
    t.choice.optimizer = OPTIMIZER_ON_DEVICE;
    return t;
}

Bound cost_bound(Arena *a, const Draft *uncopied)
{
    const StepParts p = begin_parts(a, uncopied);
    const StepModel m = model_of(a, uncopied, &p);
    return bound_of(a, &p, &m);
}

Bound cost_bound_computing(Arena *a, const Draft *uncopied)
{
    StepParts p = attend_all(a, uncopied, KNOWN_COMPUTING);
    add_rest(a, &p, uncopied, false);
    const StepModel m = model_of(a, uncopied, &p);
    return bound_of(a, &p, &m);
}

StepParts step_parts(Arena *a, const Draft *d)
{
    StepParts p;
    step_record(a, d, INFINITY, &p, NULL);
    return p;
}

/* ---- a token ---- */

void cost_token(const Program *p, const double *pairs, int rank, double seconds[2])
{
    Arena *a = arena_new();
    const Shape shape = program_shape(p);
    const Choice c = {.data = 1, .tensor = shape.tensor, .ranks = p->cluster.world / shape.tensor};
    const StepModel m = model_make(a, p, &c, NULL, units_make(a, p, &shape, 0, false), NULL, 0);
    const RankKind k = rank_kind_of(&p->cluster, rank, 1);
    seconds[0] = seconds[1] = 0;
    for (int i = 0; i < m.ops; i++) {
        const StepOp *o = &m.op[i];
        const bool backward = o->op->kind == OP_ATTENTION_BACK;
        Work w = op_work(m.step, o->op, o->block, o->unit, op_is_short(m.step, o));
        w.fixed = w.products = w.tiles = 0;
        seconds[1] += work_seconds(k, w);
        if (op_work_kind(o->op->kind) == WORK_ATTENTION)
            seconds[0] += (backward ? 10 : 4) * pairs[p->layer_mask[o->layer]] / (double)p->sequence *
                          attention_columns(p, k.device, backward) * shape.rank.heads /
                          ((backward ? k.device->attention_backward : k.device->attention_forward) * k.share);
    }
    arena_free(a);
}

/* ---- lower bounds ---- */

static AttentionTime even_attention(Arena *a, double flops, double rate)
{
    AttentionTime t = {.seconds = flops / rate, .busy = NEW_ARRAY(a, double, 1)};
    t.busy[0] = t.seconds;
    return t;
}

/* The smallest cost over all values of the row `weights`. */
static double least_weights(Arena *a, const Program *p, const Shape *shape, StepParts parts, const Choice *c,
                            int choices)
{
    double least = INFINITY;
    for (int n = 0; n < choices; n++) {
        StepParts x = parts;
        x.kind = NEW_ARRAY(a, LayerKind, p->mask_count);
        memcpy(x.kind, parts.kind, sizeof *x.kind * (size_t)p->mask_count);
        const Units units = units_make(a, p, shape, c[n].within, choice_slices(p, &c[n]));
        const StepModel m = model_make(a, p, &c[n], NULL, units, NULL, 0);
        stream_run(a, &x, &m, false, NULL);
        least = fmin(least, x.step);
    }
    return least;
}

/* Long rows of full tiles; a measured rate of a head_dim may be higher. */
static double fastest_attention(const Device *d, bool backward, int head_dim)
{
    return fmax(backward ? d->attention_backward : d->attention_forward,
                attention_rate(d, backward, head_dim, (AttentionWork){.pairs = 1}));
}

double cost_least(const Program *p, const double *pairs, const Choice *each, int choices)
{
    Arena *a = arena_new();
    const Choice c = each[0];
    const Shape shape = shape_of(p, &c);
    StepParts parts = parts_make(a, p, &c, 1);
    double rate[2] = {0};
    for (int r = 0; r < p->cluster.world; r++) {
        const NodeGroup *g = cluster_group_of(&p->cluster, r);
        for (int backward = 0; backward < 2; backward++)
            rate[backward] = fmax(rate[backward], fastest_attention(g->device, backward, p->model.head_dim) *
                                                      cost_rate_share(&p->cluster, g));
    }
    for (int k = 0; k < p->mask_count; k++)
        for (int backward = 0; backward < 2; backward++) {
            const double products = pairs[k] / c.ranks * model_columns(&p->model, backward) *
                                    shape.rank.heads;
            parts.kind[k].time[backward] = even_attention(a, (backward ? 10 : 4) * products, rate[backward]);
            parts.kind[k].time[ATTEND_REST] = even_attention(a, 0, rate[0]);
        }
    const double least = least_weights(a, p, &shape, parts, each, choices);
    arena_free(a);
    return least;
}
