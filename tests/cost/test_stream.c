/* The operations in time: a step worked out by hand, streams against a recurrence of their own, sharing of
 * the wire, and laws that any step keeps. */
#include "case.h"

#include "burst_rt.h"
#include "timeline/forecast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* a100 with hbm at 0.7; hidden 1024 = heads * head_dim, ffn 4096, vocabulary 32000, four ranks on one link
 * each. */
static const double product = 270e12, memory = 0.7 * 2.0e12;
static const double norms = 2 * 1024, table = 1024.0 * 32000,
                    matrices = 4.0 * 1024 * 1024 + 3.0 * 1024 * 4096;

/* Rings over 4 ranks, 3 hops. */
static double ring_seconds(double bytes)
{
    return bytes * 3 / 4 / 300e9 + 3 * 2e-6;
}

/* One layer, 64Ki tokens, ring of four, nothing recomputed but norms and gate times up; t: a rank's
 * tokens, c: bytes of a channel-wide activation of them. Every operation in order, then what shows of
 * collectives: the first gather; what embedding does not hide of the layer's gather, and nothing of the
 * head's and the layer's second; of the layer's reduction and the embedding's, which come last, what
 * zeroing and embedding's backward do not hide. */
static void one_layer_by_hand(void **state)
{
    (void)state;
    Case k = usual;
    k.layers = 1;
    Arena *a = arena_new();
    Draft d = make(a, &k);
    const StepParts p = step_parts(a, &d);
    const double t = 16384, c = t * 1024 * 2, f = 4 * c, token = 4 * t;
    const double embed = (2 * c + token) / memory;
    const double norm = (2 * c + token) / memory, norm_back = (4 * c + token) / memory;
    const double forward = 2 * t * matrices / product +
                           (2 * norm * memory + 2 * 2 * c /* q, k */ + 2 * c /* residual sums */ + 3 * f) /
                               memory;
    const double tile = 4096; /* of the loss: 512 MiB of fp32 logits, in multiples of 128, at most 4096 */
    const double loss = 6 * t * table / product + (4 * c + t * 32000 * (10 + 8 * 1024 / tile)) / memory;
    const double head = norm + loss + (3 * c + token) / memory /* dx from nothing */ +
                        4 * (table + 1024) / memory;
    const double back = 2 * 2 * t * matrices / product +
                        (3 * f + 5 * f /* swiglu again, backward */ + 2 * c /* dh added for k and v */ +
                         3 * 3 * c /* q, k, v: fp32 to bf16 */) /
                            memory +
                        2 * norm + 2 * norm_back + 4 * (matrices + norms) / memory;
    const double embed_back = (5 * c + token + 4 * table) / memory;
    /* 38 bytes, a quarter of a unit each */
    const double update = 9.5 * (matrices + norms + 2 * table + 1024);
    const double shows = ring_seconds(2 * table) + ring_seconds(2 * (matrices + norms)) - embed +
                         fmax(0, ring_seconds(4 * (matrices + norms)) - embed_back) + ring_seconds(4 * table);
    const double attention = p.kind[0].time[0].seconds + p.kind[0].time[1].seconds;
    /* hidden, and before attention */
    assert_true(ring_seconds(2 * table) < forward / 4 &&
                ring_seconds(4 * (table + 1024) + 2 * matrices) < back / 4);
    close_to(p.block[BLOCK_FORWARD].seconds, forward, 1e-6);
    close_to(p.block[BLOCK_HEAD].seconds, head, 1e-6);
    close_to(p.block[BLOCK_BACKWARD].seconds + p.block[BLOCK_BACKWARD].again, back, 1e-6);
    close_to(p.weights, shows, 1e-6);
    close_to(p.step, attention + embed + forward + head + back + embed_back + update / memory + shows, 1e-6);
    arena_free(a);
}

/* The last two reductions of one layer by hand, the layer's and the embedding's: at 150 GB/s while the
 * embedding's backward computes, then at 200, and what they exceed those of 150 GB/s throughout. */
static void sums_alone_by_hand(void **state)
{
    (void)state;
    double step[2], back[2];
    Case k = usual;
    k.layers = 1, k.sums = 150;
    for (int i = 0; i < 2; i++) {
        k.alone = i ? 200 : 0;
        Arena *a = arena_new();
        Draft d = make(a, &k);
        const StepParts p = step_parts(a, &d);
        step[i] = p.step, back[i] = p.block[BLOCK_EMBED_BACK].seconds;
        arena_free(a);
    }
    const double reductions = 4 * (matrices + norms + table) * 3 / 4, latency = 2 * 3 * 2e-6,
                 left = reductions / 150e9 + latency - back[0];
    close_to(back[0], back[1], 1e-12);
    const double layer = 4 * (matrices + norms) * 3 / 4, embed = 4 * table * 3 / 4;
    assert_true(layer / 150e9 > back[0]); /* embedding's backward ends during the layer's */
    const double at_sums = (layer / 150e9 + latency / 2 - back[0]) * (layer / 200e9 + latency / 2) /
                           (layer / 150e9 + latency / 2);
    close_to(step[0] - step[1], left - at_sums - embed / 200e9 - latency / 2, 1e-6);
}

/* Beside the head's reduction backward has three quarters of its rate, and embedding's backward beside the
 * layer's: each takes longer by a quarter of the reduction. Nothing is computed beside the embedding's. */
static void sums_take_from_computing_by_hand(void **state)
{
    (void)state;
    StepParts p[2];
    Arena *a = arena_new();
    Case k = usual;
    k.layers = 1;
    for (int i = 0; i < 2; i++) {
        k.taking = 0.25 * i;
        Draft d = make(a, &k);
        p[i] = step_parts(a, &d);
    }
    const double head = ring_seconds(4 * (table + 1024)), layer = ring_seconds(4 * (matrices + norms));
    assert_true(layer < p[0].block[BLOCK_EMBED_BACK].seconds);
    close_to(p[1].taken, 0.25 * (head + layer), 1e-6);
    close_to(p[1].step - p[0].step, 0.25 * (head + layer), 1e-6);
    close_to(p[1].block[BLOCK_EMBED_BACK].seconds - p[0].block[BLOCK_EMBED_BACK].seconds, 0.25 * layer, 1e-6);
    assert_true(p[0].taken == 0);
    arena_free(a);
}

/* ---- against a recurrence ---- */

typedef struct Two { double now, stream; } Two; /* when computing, and when the wire, is free */

static double later(double x, double y)
{
    return x > y ? x : y;
}

/* A visit: the next unit's gather is queued, this one's waited for after `first` seconds, then computing,
 * then the reduction is queued. */
static void visit(Two *t, double *here, double *next_here, double gather, double first, double seconds,
                  double reduce)
{
    if (gather > 0)
        *next_here = t->stream = later(t->stream, t->now) + gather;
    t->now = later(t->now + first, *here) + seconds - first;
    if (reduce > 0)
        t->stream = later(t->stream, t->now) + reduce;
}

/* One rank a sequence: nothing but collectives is on the wire. */
static double by_recurrence(const StepParts *p, const Case *k, double tokens)
{
    const int layers = k->layers, ranks = k->gpus;
    const double rate = k->link * 1e9, latency = (ranks - 1) * 2e-6, sent = (ranks - 1.0) / ranks / rate,
                 layer = matrices + norms, head = table + 1024;
    const double forward = p->block[BLOCK_FORWARD].seconds / layers + p->kind[0].time[0].seconds;
    const double again = p->kind[0].times[0] > 1.5 * layers ? p->kind[0].time[0].seconds : 0;
    const double backward = (p->block[BLOCK_BACKWARD].seconds + p->block[BLOCK_BACKWARD].again) / layers +
                            p->kind[0].time[1].seconds + again;
    const double g_layer = 2 * layer * sent + latency, g_head = 2 * head * sent + latency,
                 g_embed = 2 * table * sent + latency;
    const double added = k->sums ? fmax(sent, (ranks - 1.0) / ranks / (k->sums * 1e9)) : sent;
    const double r_layer = 4 * layer * added + latency, r_head = 4 * head * added + latency,
                 r_embed = 4 * table * added + latency;
    /* Before weights are read, where gate and up are saved: their product, the zeroing of sums and down's
     * gradient. Elsewhere weights are read first: sums are zeroed just before the first operation that
     * adds to them. */
    const double before = strcmp(k->recompute, "none") == 0 ? (4 * layer + tokens * 3 * 4096 * 2) / memory +
                                                                  tokens * 2 * 1024.0 * 4096 / product
                                                            : 0;
    Two t = {0, g_embed};
    double here = g_embed, next = 0;
    visit(&t, &here, &next, g_layer, 0, p->block[BLOCK_EMBED].seconds, 0);
    for (int l = 0; l < layers; l++) {
        here = next;
        visit(&t, &here, &next, l + 1 < layers ? g_layer : g_head, 0, forward, 0);
    }
    here = next;
    visit(&t, &here, &next, g_layer, 0, p->block[BLOCK_HEAD].seconds, r_head);
    for (int l = layers - 1; l >= 0; l--) {
        here = next;
        visit(&t, &here, &next, l > 0 ? g_layer : 0, before, backward, r_layer);
    }
    visit(&t, &here, &next, 0, 0, p->block[BLOCK_EMBED_BACK].seconds, r_embed);
    return later(t.now, t.stream) + p->block[BLOCK_OPTIMIZER].seconds;
}

static int draw(int first, int last)
{
    return first + rand() % (last - first + 1);
}

static Case random_case(char *sequence, size_t size, bool groups)
{
    static const char *const masks[] = {"full", "causal", "window(1Ki)"}, *const recompute[] = {"none",
                                                                                                "selective",
                                                                                                "full"};
    static const char *const schedules[] = {"ring", "burst", "ulysses"};
    Case k = usual;
    k.gpus = 1 << draw(1, 3), k.layers = draw(1, 6), k.link = 1 << draw(1, 9);
    k.mask = masks[draw(0, 2)], k.recompute = recompute[draw(0, 2)], k.schedule = schedules[draw(0, 2)];
    k.partition = draw(0, 1) ? PART_ZIGZAG : PART_CONTIGUOUS;
    k.travel = strcmp(k.schedule, "ulysses") != 0 && draw(0, 1) ? TRAVEL_QUERIES : TRAVEL_KEYS;
    snprintf(sequence, size, "%dKi", k.gpus << draw(0, 3));
    k.sequence = sequence;
    if (groups)
        k.data = k.gpus;
    else if (draw(0, 1))
        k.nodes = 2, k.gpus = k.gpus < 8 ? k.gpus : 4, k.gbps = 25 << draw(0, 4);
    return k;
}

static void streams_as_a_recurrence(void **state)
{
    (void)state;
    srand(7);
    int shown = 0;
    for (int i = 0; i < 60; i++) {
        char sequence[16];
        Case k = random_case(sequence, sizeof sequence, true);
        k.sums = i % 2 ? draw(1, k.link + 1) : 0;
        Arena *a = arena_new();
        Draft d = make(a, &k);
        const StepParts p = step_parts(a, &d);
        /* units are padded to whole shards */
        close_to(p.step, by_recurrence(&p, &k, (double)d.partition->max_tokens), 1e-4);
        shown += p.weights > 0.2 * p.step;
        arena_free(a);
    }
    assert_true(shown > 10 && shown < 50);
}

/* ---- copies ---- */

/* Three copies of a second each, the third of another kind, then an operation of 1.5 s, then a wait for
 * copies of the first kind: it takes half a second, which ends with the second copy. */
static void waits_for_what_is_listed(void **state)
{
    (void)state;
    Case k = usual;
    k.cuda = true;
    Arena *a = arena_new();
    Draft d = make(a, &k);
    Step *s = step_make(a, d.program, &d.choice, d.partition, d.units, NULL, 0, 0);
    enum { COPIES = 3, OPS = COPIES + 3, SECONDS = 256 };
    const OpKind kinds[COPIES] = {OP_UPLOAD, OP_UPLOAD, OP_FETCH};
    int value[COPIES];
    Block *b = &s->block[BLOCK_FORWARD];
    b->ops.n = 0;
    for (int i = 0; i < OPS; i++) {
        Op o = i == OPS - 2 ? op_wait(OP_UPLOAD) : op_make(i < COPIES ? kinds[i] : OP_NORM);
        if (i < COPIES) {
            value[i] = step_add_value(s, (Value){.name = "copied", .bytes = (int64_t)32e9, .gradient = -1});
            op_read(&o, value[i], 0);
            op_write(&o, value[i], 0, false);
        } else if (i > COPIES)
            op_read(&o, value[1], 0);
        *vec_push(a, &b->ops) = o;
    }
    StepOp op[OPS];
    double seconds[SECONDS], rows[BURST_ROW_COUNT] = {0};
    int launches[SECONDS];
    for (int i = 0; i < OPS; i++)
        op[i] = (StepOp){.op = &b->ops.at[i], .block = BLOCK_FORWARD, .visit = 1, .unit = 1};
    for (int i = 0; i < SECONDS; i++)
        seconds[i] = 1.5, launches[i] = 1;
    const RankKind rank = rank_kind_of(&d.program->cluster, 0, 1);
    StepModel m = {.program = d.program,
                   .cluster = &d.program->cluster,
                   .step = s,
                   .sequences = 1,
                   .ops = OPS,
                   .op = op,
                   .rank_kinds = 1,
                   .rank_kind = &rank,
                   .seconds = {[BLOCK_FORWARD] = seconds},
                   .launches = {[BLOCK_FORWARD] = launches}};
    StepParts p = {.rows = rows};
    model_time(a, &m);
    stream_run(a, &p, &m, false, NULL);
    close_to(p.copies, 0.5, 1e-9);
    close_to(p.step, 3.5, 1e-9);
    for (int i = 0; i < SECONDS; i++)
        launches[i] = 400000; /* of 5 us each, longer than the operation's work */
    p = (StepParts){.rows = rows};
    model_time(a, &m);
    stream_run(a, &p, &m, false, NULL);
    close_to(p.step, 4, 1e-9);
    arena_free(a);
}

/* Parameters and moments of a unit come up while those of the unit before go back, 12 bytes a parameter
 * each way, and the update waits for both: at once each has half of the host's memory, 25 of its 32 GB/s,
 * until the shorter is done. The first comes and the last goes alone. With two GPUs the host's memory has
 * enough for both, and the bus slows both directions. */
static void update_by_hand(int gpus, int both, double at_once)
{
    Case k = usual;
    k.cuda = true, k.optimizer = OPTIMIZER_FETCHED, k.gpus = gpus, k.both = both;
    Arena *a = arena_new();
    Draft d = make(a, &k);
    const StepParts p = step_parts(a, &d);
    const double shard = 12.0 / gpus, layer = shard * (matrices + norms), head = shard * (table + 1024),
                 embed = shard * table;
    const double unit[] = {embed, layer, layer, layer, layer, head};
    double waits = (embed + head) / 32e9;
    for (int u = 1; u < 6; u++)
        waits += fmin(unit[u - 1], unit[u]) / at_once + fabs(unit[u] - unit[u - 1]) / 32e9;
    close_to(p.copies, waits, 1e-4); /* units are padded to whole shards */
    arena_free(a);
}

static void updates_on_the_device_by_hand(void **state)
{
    (void)state;
    update_by_hand(4, 0, 25e9);
    update_by_hand(2, 0, 32e9 / 1.09);
    update_by_hand(2, 12, 12e9); /* as the cluster says */
}

/* ---- sharing of the wire ---- */

static AttentionTime beside(Arena *a, const Draft *d, const Collective *c, int n)
{
    AttentionInput in = cost_load(a, d, d->choice.ranks, 0, false, NULL);
    for (int i = 0; i < in.schedule->trace.n * in.ranks; i++)
        in.seconds[i] = fmin(in.seconds[i], 1e-12); /* transfers alone */
    in.overlapped = c, in.overlaps = n;
    return attention_simulate(a, &in);
}

/* A ring of four whose three hops take h each, and collectives of one and then ten hops: attention has
 * half of every link until the first has moved its hop, at 2 h, and goes on with half of it beside the
 * second: 6 h in all. A short one: half until 1 h, when half a hop of each is done, then all: 3.5 h.
 * Latencies aside. */
static void links_are_shared(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Draft d = make(a, &usual);
    const double hop = 16384 * 8 * 128 * 2 * 2, h = hop / 300e9;
    const Collective two[] = {{hop, h, h, hop, 0}, {10 * hop, 10 * h, 10 * h, 10 * hop, 0}},
                     half = {hop, h / 2, h / 2, hop, 0};
    close_to(beside(a, &d, NULL, 0).seconds, 3 * h, 0.02);
    AttentionTime t = beside(a, &d, two, 2);
    close_to(t.seconds, 6 * h, 0.02);
    close_to(t.overlapped[0].end, 2 * h, 0.02);
    assert_true(t.overlapped[0].left == 0);
    close_to(t.overlapped[1].left, 8 * h, 0.02); /* two of ten hops are done */
    t = beside(a, &d, &half, 1);
    close_to(t.seconds, 3.5 * h, 0.02);
    close_to(t.overlapped[0].end, h, 0.02);
    arena_free(a);
}

/* Between nodes a collective has the NICs of a node as often as the node has ranks: beside one rank's hop
 * of two, two thirds. */
static void nics_are_shared_by_ranks(void **state)
{
    (void)state;
    Case k = usual;
    k.nodes = 2, k.gpus = 2, k.nics = 1, k.gbps = 80; /* 10 GB/s a node */
    Arena *a = arena_new();
    Draft d = make(a, &k);
    const double hop = 16384 * 8 * 128 * 2 * 2, h = hop / 10e9;
    const Collective c = {100 * hop, 100 * h, 100 * h, 100 * hop, 100 * hop};
    close_to(beside(a, &d, NULL, 0).seconds, 3 * h, 0.02);
    close_to(beside(a, &d, &c, 1).seconds, 9 * h, 0.02);
    arena_free(a);
}

/* ---- laws ---- */

/* The timeline: stretches add up to the step, and spans of a stream neither overlap nor leave the step. */
typedef struct Lanes { double end[64], last; } Lanes;

static void add_to_lane(void *arg, const BurstSpan *s)
{
    Lanes *l = arg;
    const bool joins = s->begin >= l->end[s->lane] - 1e-4 * l->last && s->end >= s->begin &&
                       s->end <= l->last * (1 + 1e-3);
    if (!joins && s->lane <= BURST_LANE_WEIGHTS)
        fail_msg("part %d of stream %d: %.9g to %.9g after %.9g, in a step of %.9g", s->part, s->lane,
                 s->begin, s->end, l->end[s->lane], l->last);
    l->end[s->lane] = s->end;
}

static void ends_with_the_step(const BurstForecast *f, double step)
{
    Lanes l = {.last = step};
    close_to(forecast_step(f, add_to_lane, &l), step, 1e-3);
}

static double step_of(const Case *k, StepParts *parts)
{
    Arena *a = arena_new();
    Draft d = make(a, k);
    *parts = step_parts(a, &d);
    const double computing = parts_compute(parts);
    double rows = parts->rows[BURST_ROW_WAIT],
           serial = parts->rows[BURST_ROW_GATHER] + parts->rows[BURST_ROW_REDUCE], most = computing;
    for (int r = 0; r < BURST_ROW_WAIT; r++)
        rows += parts->rows[r];
    for (int b = 0; b < STEP_BLOCKS; b++)
        serial += parts->block[b].seconds + parts->block[b].again;
    for (int b = 0; b < 2; b++)
        serial += parts->kind[0].times[b] * parts->kind[0].time[b].seconds;
    close_to(rows, parts->step, 1e-9);
    ends_with_the_step(cost_forecast(a, &d, ALL_SPANS), parts->step);
    ends_with_the_step(cost_forecast(a, &d, 8), parts->step);
    if (!(parts->step >= most * (1 - 1e-9) && parts->step <= serial * (1 + 1e-9)))
        fail_msg("%s %s: step %.9g is not between %.9g and %.9g", k->schedule, k->mask, parts->step, most,
                 serial);
    const double step = parts->step;
    arena_free(a);
    return step;
}

static void not_shorter(const Case *less, const Case *more, double step, const char *what)
{
    StepParts p;
    const double other = step_of(more, &p);
    if (!(other >= step * (1 - 2e-3)))
        fail_msg("%s: %.9g s, and %.9g s before (%s, %s, %s, %d x %d)", what, other, step, less->schedule,
                 less->mask, less->sequence, less->nodes, less->gpus);
}

/* Parts add up, the step lies between computing alone and everything in turn, and more work or a slower
 * wire is not faster. */
static void laws_at_random(void **state)
{
    (void)state;
    srand(11);
    for (int i = 0; i < 40; i++) {
        char sequence[16];
        const Case k = random_case(sequence, sizeof sequence, draw(0, 3) == 0);
        StepParts p;
        const double step = step_of(&k, &p);
        Case more = k;
        more.layers++;
        not_shorter(&k, &more, step, "another layer");
        more = k, more.link = k.link / 2 ? k.link / 2 : 1;
        not_shorter(&k, &more, step, "slower links");
        more = k, more.sums = k.link / 2 ? k.link / 2 : 1;
        not_shorter(&k, &more, step, "slower sums");
        more = k, more.gbps = (k.gbps ? k.gbps : 200) / 2;
        not_shorter(&k, &more, step, "slower NICs");
        more = k, more.batch = 3 * (k.data ? k.data : 1);
        not_shorter(&k, &more, 2.5 * step, "three sequences"); /* one optimizer */
    }
}

/* Of layers that are alike each costs the same, however many, also where the wire is shared; and few are
 * simulated. */
static void layers_repeat(void **state)
{
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        Case k = usual;
        k.sequence = "8Ki", k.mask = "causal", k.recompute = "full";
        k.link = slow ? 8 : 300;
        double step[3];
        for (int i = 0; i < 3; i++) {
            k.layers = 16 << i;
            Arena *a = arena_new();
            Draft d = make(a, &k);
            const StepParts p = step_parts(a, &d);
            int simulated = 0;
            for (int b = 0; b < 2; b++)
                for (const Contended *c = p.kind[0].contended[b]; c; c = c->next)
                    simulated++;
            printf("%d layers: %d simulated beside collectives\n", k.layers, simulated);
            assert_true(simulated > 0 && simulated < 12);
            step[i] = p.step;
            arena_free(a);
        }
        close_to(step[2] - step[1], 2 * (step[1] - step[0]), 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_layer_by_hand),       cmocka_unit_test(sums_alone_by_hand),
        cmocka_unit_test(sums_take_from_computing_by_hand), cmocka_unit_test(streams_as_a_recurrence),
        cmocka_unit_test(waits_for_what_is_listed), cmocka_unit_test(updates_on_the_device_by_hand),
        cmocka_unit_test(links_are_shared),        cmocka_unit_test(nics_are_shared_by_ranks),
        cmocka_unit_test(laws_at_random),          cmocka_unit_test(layers_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
