/* traces.c: see traces.h. */
#include "traces.h"
#include "burst_int.h"

#include <string.h>

enum { OUTER, INNER, SUM_OUTER, SUM_INNER, COMPUTE, HOME, NODES_USED };

typedef struct Tracer { Arena *arena; Choice *choice; Node *node; Vec(Instance) out; } Tracer;

static int at(const Tracer *t, int n, int l)
{
    const Choice *c = t->choice;
    const int inner = c->coords > 1 ? (int)burst_floor_mod(l, c->size[1]) : 0;
    return (int)burst_floor_mod(n, c->size[0]) * c->stride[0] + inner;
}

static void add(Tracer *t, int node, int chunk, int other)
{
    Instance *i = vec_push(t->arena, &t->out);
    *i = (Instance){.node = &t->node[node],
                    .chunk = {chunk, node == COMPUTE ? other : 0},
                    .hop = node == COMPUTE ? 0 : other};
}

/* Nodes in a list; pools and channels as the compiler numbers them. */
static void make_nodes(Tracer *t, Direction direction)
{
    TensorId copy = direction == BACKWARD_QUERIES ? T_Q : T_KV,
             sum = direction == BACKWARD_QUERIES ? T_DQ : T_DKV;
    static const Stmt nowhere = {0}; /* no destination: slots take their names from it */
    static const NodeKind kind[NODES_USED] = {N_PASS, N_PASS, N_PASS, N_PASS, N_COMPUTE, N_RETURN};
    const TensorId tensor[NODES_USED] = {copy, copy, sum, sum, T_Q, sum};
    t->node = NEW_ARRAY(t->arena, Node, NODES_USED);
    for (int i = 0; i < NODES_USED; i++) {
        bool unused = direction == FORWARD && (i == SUM_OUTER || i == SUM_INNER || i == HOME);
        t->node[i] = (Node){.stmt = &nowhere,
                            .kind = unused ? N_LOOP : kind[i],
                            .channel = i == COMPUTE ? -1 : i,
                            .pool = -1,
                            .next = i + 1 < NODES_USED ? &t->node[i + 1] : NULL};
        t->node[i].ref[0].tensor = tensor[i];
    }
}

static void window(Tracer *t, Direction direction, int o, int nodes, int lanes)
{
    if (o < nodes - 1)
        add(t, OUTER, at(t, -o, 0), at(t, 1, 0));
    for (int i = 0; i < lanes; i++) {
        int chunk = at(t, -o, -i);
        if (i < lanes - 1)
            add(t, INNER, chunk, at(t, 0, 1));
        add(t, COMPUTE, direction == BACKWARD_QUERIES ? chunk : 0, direction == BACKWARD_QUERIES ? 0 : chunk);
        if (direction != FORWARD && i < lanes - 1 && (o > 0 || i > 0))
            add(t, SUM_INNER, chunk, at(t, 0, 1));
    }
    if (direction != FORWARD && o < nodes - 1 && (o > 0 || lanes > 1))
        add(t, SUM_OUTER, at(t, -o, 1), at(t, 1, 0));
}

Schedule *ring_trace(Arena *a, int nodes, int lanes, Direction direction)
{
    Choice *c = NEW(a, Choice);
    *c = (Choice){.data = 1,
                  .ranks = nodes * (lanes ? lanes : 1),
                  .travel = direction == BACKWARD_QUERIES ? TRAVEL_QUERIES : TRAVEL_KEYS};
    choice_set_sizes(c, lanes ? 2 : 1, (const int[]){nodes, lanes});
    Tracer t = {.arena = a, .choice = c};
    make_nodes(&t, direction);
    for (int o = 0; o < nodes; o++)
        window(&t, direction, o, nodes, lanes ? lanes : 1);
    int home = at(&t, 1, 1); /* the last window's last chunk */
    if (direction != FORWARD && home)
        add(&t, HOME, home, home);
    Schedule *s = NEW(a, Schedule);
    *s = (Schedule){.choice = c, .backward = direction != FORWARD, .body = t.node, .channels = NODES_USED,
                    .trace = {t.out.n, t.out.at}};
    schedule_slots(a, s);
    return s;
}

void cluster_fill(TestCluster *c, int nodes, int gpus, int nics, bool cpu)
{
    const Target *target = &targets[cpu ? TARGET_C : TARGET_CUDA];
    c->device = (Device){.name = "test",
                         .arch = cpu ? "cpu" : "sm_80",
                         .target = target,
                         .memory = 80e9,
                         .hbm = 1e18,
                         .matmul = 1e12,
                         .attention_forward = 1e12,
                         .attention_backward = 1e12};
    c->nic = (Nic){.name = "nic", .bandwidth = 1e8};
    c->group = (NodeGroup){.nodes = nodes, .gpus = gpus, .nics = nics, .device = &c->device, .nic = &c->nic};
    c->cluster = (Cluster){.name = "test",
                           .target = target,
                           .groups = &c->group,
                           .group_count = 1,
                           .nodes = nodes,
                           .world = nodes * gpus,
                           .link_bandwidth = 1e9,
                           .oversubscription = 1,
                           .host_cores = 64};
}

AttentionInput even_input(Arena *a, const Cluster *c, const Schedule *s, double seconds,
                          const double bytes[TENSOR_COUNT])
{
    int ranks = s->choice->ranks, *rank = NEW_ARRAY(a, int, ranks);
    size_t cells = (size_t)s->trace.n * (size_t)ranks;
    AttentionInput in = {.cluster = c,
                         .schedule = s,
                         .ranks = ranks,
                         .rank = rank,
                         .size = {s->choice->size[0], s->choice->size[1]},
                         .stride = {s->choice->stride[0], s->choice->stride[1]},
                         .seconds = NEW_ARRAY(a, double, cells),
                         .bytes = NEW_ARRAY(a, double, cells),
                         .received = NEW_ARRAY(a, double, cells)};
    for (int r = 0; r < ranks; r++)
        rank[r] = r;
    for (size_t i = 0; i < cells; i++) {
        const Node *n = s->trace.at[i / (size_t)ranks].node;
        if (n->kind == N_COMPUTE)
            in.seconds[i] = seconds;
        else
            in.bytes[i] = bytes[n->ref[0].tensor];
    }
    return in;
}

double even_time(const Cluster *c, const Schedule *s, double seconds, const double bytes[TENSOR_COUNT])
{
    Arena *a = arena_new();
    AttentionInput in = even_input(a, c, s, seconds, bytes);
    double time = attention_simulate(a, &in).seconds;
    arena_free(a);
    return time;
}
