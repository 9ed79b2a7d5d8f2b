/* verify.c: proves a draft correct; the only maker of a Plan.
 *
 * The trace is replayed on an abstract rank in relative coordinates (plan.h), which stands for every rank: slots hold
 * named chunks, a read of a slot demands that its arrival was waited for and that nothing was put there since, a fill
 * demands that readers and sends were waited for, and partial sums are sets of the pairs that were added.
 *
 * Why no wait can be part of a cycle, also when a send blocks until its receive is posted: all ranks run the same
 * operations in the same order, operation i of one rank meets operation i of another, and every wait is for an operation
 * before it. Take the rank that is furthest behind: what it waits for lies before its own place, and the peers are
 * at least as far, so they have posted their side; it can go on.
 *
 * What a mask leaves is replayed for every rank of up to PRUNED_RANKS (verify_pruned.c); beyond, the rule is the same.
 */
#include "verify.h"

#include <string.h>

const char *const proof_names[] = {
#define X(id, number, name) [number] = name,
    PROOFS(X)
#undef X
};
enum { PRUNED_RANKS = 256 };

struct Plan { Draft draft; };

/* ---- the abstract rank ---- */

typedef struct Pairs { uint64_t *bits; } Pairs; /* set of relative pairs kv - q */
typedef struct Slot { int content; bool used, read; } Slot; /* content: number of the fill, 0 never */
typedef struct Held { bool here; int pool, slot, content; } Held; /* pool < 0: home */
typedef struct Arrived { int pool, slot, content; Pairs sum; const Instance *from; } Arrived;

typedef struct Machine {
    Arena *arena;
    Diags *diags;
    const Schedule *s;
    const Choice *choice;
    const Instance *now;
    size_t words;             /* of a Pairs */
    Slot **slot;              /* [pool][slot] */
    int *uses;                /* [pool] */
    int fills;
    Held *held[TENSOR_COUNT]; /* [chunk] copies, and partial sums computed here */
    Pairs *own[TENSOR_COUNT]; /* [chunk] pairs in the partial sum computed here (home: in all) */
    Vec(Arrived) *arrived[TENSOR_COUNT]; /* [chunk] */
    const Instance **computed; /* [kv - q] where the pair was computed */
    bool heads[TENSOR_COUNT];  /* after an exchange: all tokens, some heads */
    bool whole_done;
    bool failed;
} Machine;

static void __attribute__((format(printf, 3, 4))) reject(Machine *m, Proof proof, const char *fmt, ...)
{
    Text t = {0};
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(&t, fmt, ap);
    va_end(ap);
    const Instance *i = m->now;
    Span at = i ? i->node->stmt->span : m->choice->schedule->span;
    diag_error(m->diags, at, "proof %d (%s) fails: %s", proof, proof_names[proof], t.at);
    if (i)
        diag_note(m->diags, at, "at every rank, in `%s`", instance_text(m->arena, m->s, i));
    text_free(&t);
    m->failed = true;
}

static bool has_pair(Pairs p, int d)
{
    return p.bits && (p.bits[d / 64] >> (d % 64) & 1);
}

static void add_pair(Machine *m, Pairs *p, int d)
{
    if (!p->bits)
        p->bits = NEW_ARRAY(m->arena, uint64_t, m->words);
    p->bits[d / 64] |= (uint64_t)1 << (d % 64);
}

static bool is_empty(const Machine *m, Pairs p)
{
    for (size_t w = 0; p.bits && w < m->words; w++)
        if (p.bits[w])
            return false;
    return true;
}

/* Adds b to a; a pair in both would be counted twice. */
static void add_sum(Machine *m, TensorId t, Pairs *a, Pairs b)
{
    for (int d = 0; d < m->choice->ranks && !m->failed; d++) {
        if (!has_pair(b, d))
            continue;
        if (has_pair(*a, d))
            reject(m, PROOF_SUMS, "a gradient is added to %s twice", tensor_name(t));
        add_pair(m, a, d);
    }
}

/* ---- slots ---- */

/* The chunk must be where it was put, and its arrival waited for. */
static void check_read(Machine *m, TensorId t, int chunk, unsigned wait, Proof missing)
{
    const Held *h = &m->held[t][chunk];
    if (!h->here) {
        reject(m, missing, "it reads a chunk of %s that is not here", tensor_name(t));
        return;
    }
    if (h->pool < 0)
        return;
    if (m->slot[h->pool][h->slot].content != h->content)
        reject(m, PROOF_SLOTS, "it reads %s from slot %s[%d], which a later chunk has overwritten", tensor_name(t),
               m->s->pool[h->pool].name, h->slot);
    else if (wait && !(m->now->node->waits & wait))
        reject(m, PROOF_SLOTS, "it reads %s from slot %s[%d] without waiting for its arrival", tensor_name(t),
               m->s->pool[h->pool].name, h->slot);
    m->slot[h->pool][h->slot].read = true;
}

/* The next slot of the pool gets new content; whoever read or sent the old one must have been waited for. */
static Held fill_slot(Machine *m, TensorId t, int pool)
{
    const Pool *p = &m->s->pool[pool];
    int k = m->uses[pool]++ % p->slots;
    if (p->tensor != t)
        reject(m, PROOF_SLOTS, "it fills slot %s[%d], which has the size of %s, with %s", p->name, k, tensor_name(p->tensor),
               tensor_name(t));
    Slot *slot = &m->slot[pool][k];
    if (slot->used && !(m->now->node->waits & WAIT_FREE))
        reject(m, PROOF_SLOTS, "it fills slot %s[%d] without waiting until its last content is read and sent", p->name, k);
    else if (slot->used && !slot->read)
        reject(m, PROOF_SLOTS, "it fills slot %s[%d], whose last content may be on its way still: nothing reads it", p->name, k);
    *slot = (Slot){.content = ++m->fills, .used = true};
    return (Held){true, pool, k, m->fills};
}

/* The send of one operation may be under way while what it receives lands: not in the same slot. */
static void check_apart(Machine *m, Held sent, Held filled)
{
    if (!m->failed && sent.here && sent.pool == filled.pool && sent.slot == filled.slot)
        reject(m, PROOF_SLOTS, "it fills slot %s[%d] while it sends what is there", m->s->pool[sent.pool].name, sent.slot);
}

/* ---- operations ---- */

static void arrive_copy(Machine *m, TensorId t, int chunk)
{
    Held *h = &m->held[t][chunk];
    bool again = h->here && (h->pool < 0 || m->slot[h->pool][h->slot].content == h->content);
    if (again)
        reject(m, PROOF_MESSAGES, "the chunk of %s that it sends is already there", tensor_name(t));
    *h = fill_slot(m, t, m->now->node->pool);
}

static void run_copy(Machine *m)
{
    const Instance *i = m->now;
    TensorId t = i->node->ref[0].tensor;
    Held sent = m->held[t][i->chunk[0]];
    int there = rel_sub(m->choice, i->chunk[0], i->hop);
    check_read(m, t, i->chunk[0], WAIT_ARRIVED, PROOF_MESSAGES);
    if (m->failed)
        return;
    arrive_copy(m, t, there);
    check_apart(m, sent, m->held[t][there]);
}

/* Own partial sum and what arrived for the chunk, together; both are then empty. */
static Pairs take_sum(Machine *m, TensorId t, int chunk)
{
    Pairs sum = {0};
    add_sum(m, t, &sum, m->own[t][chunk]);
    for (int j = 0; j < m->arrived[t][chunk].n && !m->failed; j++) {
        const Arrived *a = &m->arrived[t][chunk].at[j];
        if (m->slot[a->pool][a->slot].content != a->content)
            reject(m, PROOF_SLOTS, "the sum that arrived in slot %s[%d] was overwritten before it was added",
                   m->s->pool[a->pool].name, a->slot);
        else if (m->now && !(m->now->node->waits & WAIT_MERGED))
            reject(m, PROOF_SLOTS, "it sends %s without waiting for the partial sum that arrives for it", tensor_name(t));
        m->slot[a->pool][a->slot].read = true;
        add_sum(m, t, &sum, a->sum);
    }
    m->arrived[t][chunk].n = 0;
    m->own[t][chunk] = (Pairs){0};
    return sum;
}

static void run_sum(Machine *m)
{
    const Instance *i = m->now;
    TensorId t = i->node->ref[0].tensor;
    int chunk = i->chunk[0], there = rel_sub(m->choice, chunk, i->hop);
    if (!m->held[t][chunk].here && m->arrived[t][chunk].n)
        m->held[t][chunk] = fill_slot(m, t, m->s->partial_pool[t]); /* what arrived is added to a sum of its own */
    Held sent = m->held[t][chunk];
    if (sent.here && chunk != 0) {
        check_read(m, t, chunk, 0, PROOF_MESSAGES);
        if (!m->failed && !(i->node->waits & WAIT_COMPUTED))
            reject(m, PROOF_SLOTS, "it sends %s without waiting for the computing that adds to it", tensor_name(t));
        m->held[t][chunk].here = false;
    }
    if (m->failed)
        return;
    Pairs sum = take_sum(m, t, chunk);
    if (!m->failed && is_empty(m, sum))
        reject(m, PROOF_MESSAGES, "there is no partial sum of %s here to send", tensor_name(t));
    if (m->failed)
        return;
    Held h = fill_slot(m, t, i->node->pool);
    check_apart(m, sent, h);
    *vec_push(m->arena, &m->arrived[t][there]) = (Arrived){h.pool, h.slot, h.content, sum, i};
}

static void add_gradient(Machine *m, TensorId t, int chunk, int pair)
{
    Held *h = &m->held[t][chunk];
    if (!h->here) {
        if (m->s->partial_pool[t] < 0) {
            reject(m, PROOF_SUMS, "nothing brings this partial sum of %s home", tensor_name(t));
            return;
        }
        *h = fill_slot(m, t, m->s->partial_pool[t]);
    }
    check_read(m, t, chunk, 0, PROOF_SUMS);
    add_pair(m, &m->own[t][chunk], pair);
}

static void run_whole(Machine *m)
{
    if (!m->heads[T_Q] || !m->heads[T_KV])
        reject(m, PROOF_PAIRS, "it attends whole tensors that no exchange has brought here");
    else if (m->whole_done)
        reject(m, PROOF_PAIRS, "all pairs are computed a second time");
    m->whole_done = true;
    m->heads[T_O] = m->heads[T_DQ] = m->heads[T_DKV] = true;
}

static void run_compute(Machine *m)
{
    const Instance *i = m->now;
    if (i->node->ref[0].whole) {
        run_whole(m);
        return;
    }
    if (m->heads[T_Q] || m->heads[T_KV]) {
        reject(m, PROOF_PAIRS, "it names a chunk of tensors that an exchange has laid out by heads");
        return;
    }
    int pair = rel_sub(m->choice, i->chunk[1], i->chunk[0]);
    if (m->computed[pair]) {
        reject(m, PROOF_PAIRS, "this pair was computed before");
        diag_note(m->diags, m->computed[pair]->node->stmt->span, "first here, in `%s`",
                  instance_text(m->arena, m->s, m->computed[pair]));
        return;
    }
    m->computed[pair] = i;
    check_read(m, T_Q, i->chunk[0], WAIT_ARRIVED_Q, PROOF_PAIRS);
    if (!m->failed)
        check_read(m, T_KV, i->chunk[1], WAIT_ARRIVED_KV, PROOF_PAIRS);
    if (!m->failed && m->s->backward)
        add_gradient(m, T_DQ, i->chunk[0], pair);
    if (!m->failed && m->s->backward)
        add_gradient(m, T_DKV, i->chunk[1], pair);
}

static void run_exchange(Machine *m)
{
    const Node *n = m->now->node;
    TensorId t = n->ref[0].tensor;
    if (m->heads[t] == n->stmt->tokens_to_heads)
        reject(m, PROOF_MESSAGES, "%s is laid out by %s already", tensor_name(t), m->heads[t] ? "heads" : "tokens");
    m->heads[t] = n->stmt->tokens_to_heads;
}

static void run_instance(Machine *m)
{
    const Node *n = m->now->node;
    if (n->kind == N_COMPUTE)
        run_compute(m);
    else if (n->kind == N_EXCHANGE)
        run_exchange(m);
    else if (tensor_accumulates(n->ref[0].tensor))
        run_sum(m);
    else
        run_copy(m);
}

/* ---- the end ---- */

static const char *pair_text(Machine *m, int d)
{
    Instance i = {.node = NULL};
    const Trace *t = &m->s->trace;
    for (int j = 0; j < t->n && !i.node; j++)
        if (t->at[j].node->kind == N_COMPUTE)
            i.node = t->at[j].node;
    if (!i.node)
        return "any pair";
    i.chunk[1] = d;
    Text text = {0};
    instance_print(m->s, &i, &text);
    char *copy = arena_copy(m->arena, text.at, text.n);
    text_free(&text);
    return copy;
}

static void check_pairs(Machine *m)
{
    if (m->whole_done)
        return;
    for (int d = 0; d < m->choice->ranks; d++)
        if (!m->computed[d]) {
            reject(m, PROOF_PAIRS, "no rank computes the pair of `%s`", pair_text(m, d));
            return;
        }
}

static void check_home(Machine *m, TensorId t)
{
    Pairs home = take_sum(m, t, 0);
    for (int d = 0; d < m->choice->ranks && !m->failed; d++)
        if (!has_pair(home, d))
            reject(m, PROOF_SUMS, "the part of %s that comes from `%s` never reaches its owner", tensor_name(t), pair_text(m, d));
    for (int c = 1; c < m->choice->ranks && !m->failed; c++)
        if (m->arrived[t][c].n || !is_empty(m, m->own[t][c]))
            reject(m, PROOF_SUMS, "a partial sum of %s is left at a rank that does not own it", tensor_name(t));
}

static void check_end(Machine *m)
{
    static const TensorId result[2][2] = {{T_O, T_O}, {T_DQ, T_DKV}};
    m->now = NULL;
    check_pairs(m);
    for (int j = 0; j < 2 && !m->failed; j++) {
        TensorId t = result[m->s->backward][j];
        if (m->whole_done && m->heads[t])
            reject(m, PROOF_SUMS, "%s is never exchanged back to its owners", tensor_name(t));
        else if (!m->whole_done && m->s->backward)
            check_home(m, t);
    }
}

/* ---- set-up ---- */

static Machine machine_make(Arena *a, Diags *d, const Schedule *s)
{
    Machine m = {.arena = a, .diags = d, .s = s, .choice = s->choice};
    size_t ranks = (size_t)s->choice->ranks;
    m.words = (ranks + 63) / 64;
    m.computed = NEW_ARRAY(a, const Instance *, ranks);
    m.uses = NEW_ARRAY(a, int, s->pools ? s->pools : 1);
    m.slot = NEW_ARRAY(a, Slot *, s->pools ? s->pools : 1);
    for (int p = 0; p < s->pools; p++)
        m.slot[p] = NEW_ARRAY(a, Slot, s->pool[p].slots);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        m.held[t] = NEW_ARRAY(a, Held, ranks);
        m.held[t][0] = (Held){.here = true, .pool = -1};
        m.own[t] = NEW_ARRAY(a, Pairs, ranks);
        m.arrived[t] = arena_alloc(a, sizeof(*m.arrived[t]) * ranks);
    }
    return m;
}

static bool streams_apart(Machine *m, const Node *n, const Node **owner)
{
    for (; n && !m->failed; n = n->next) {
        if (n->channel >= 0 && owner[n->channel]) {
            Instance i = {.node = n};
            m->now = &i;
            reject(m, PROOF_LINKS, "it shares stream %d with another transfer that may be under way", n->channel);
            diag_note(m->diags, owner[n->channel]->stmt->span, "the other one");
            m->now = NULL;
        } else if (n->channel >= 0) {
            owner[n->channel] = n;
        }
        streams_apart(m, n->body, owner);
    }
    return !m->failed;
}

bool verify_schedule(Arena *a, Diags *d, const Schedule *s)
{
    Machine m = machine_make(a, d, s);
    const Node **owner = NEW_ARRAY(a, const Node *, s->channels + 1);
    if (!streams_apart(&m, s->body, owner))
        return false;
    for (int i = 0; i < s->trace.n && !m.failed; i++) {
        m.now = &s->trace.at[i];
        run_instance(&m);
    }
    if (!m.failed)
        check_end(&m);
    return !m.failed;
}

/* ---- proof 5: links ---- */

static bool check_hop(Arena *a, Diags *d, const Draft *t, const Schedule *s, const Instance *i, int hop)
{
    const Cluster *c = &t->program->cluster;
    for (int r = 0; r < t->choice.data * t->choice.ranks; r++) {
        int first = r / t->choice.ranks * t->choice.ranks;
        int peer = first + rel_add(&t->choice, r - first, hop);
        if (cluster_node_of(c, r) == cluster_node_of(c, peer))
            continue;
        const NodeGroup *group[2] = {cluster_group_of(c, r), cluster_group_of(c, peer)};
        for (int g = 0; g < 2; g++) {
            if (group[g]->nics > 0 && group[g]->nic)
                continue;
            diag_error(d, i->node->stmt->span, "proof %d (%s) fails: rank %d sends to rank %d on another node, and %s has no nics",
                       PROOF_LINKS, proof_names[PROOF_LINKS], r, peer, g ? "that node" : "its node");
            diag_note(d, group[g]->span, "add `nics 1 of hdr;` to this node");
            (void)a;
            (void)s;
            return false;
        }
    }
    return true;
}

static bool check_links(Arena *a, Diags *d, const Draft *t, const Schedule *s)
{
    bool *seen = NEW_ARRAY(a, bool, t->choice.ranks);
    for (int i = 0; i < s->trace.n; i++) {
        const Instance *x = &s->trace.at[i];
        if (x->node->kind == N_COMPUTE)
            continue;
        bool all = x->node->kind == N_EXCHANGE;
        for (int hop = all ? 1 : x->hop; hop < (all ? t->choice.ranks : x->hop + 1); hop++) {
            if (!seen[hop] && !check_hop(a, d, t, s, x, hop))
                return false;
            seen[hop] = true;
        }
    }
    return true;
}

/* ---- proof 6 ---- */

static const Device *least_memory(const Cluster *c)
{
    const Device *least = c->groups[0].device;
    for (int g = 1; g < c->group_count; g++)
        if (c->groups[g].device->memory < least->memory)
            least = c->groups[g].device;
    return least;
}

bool memory_fits(const Draft *t)
{
    return (double)(t->memory.total + t->memory.beside) <= least_memory(&t->program->cluster)->memory;
}

static bool check_memory(Diags *d, const Draft *t)
{
    const Device *least = least_memory(&t->program->cluster);
    if (memory_fits(t))
        return true;
    Span at = t->program->layout.span.src ? t->program->layout.span : t->program->sequence_span;
    diag_error(d, at, "proof %d (%s) fails: a rank needs %.2f GiB and a %s has %.2f GiB", PROOF_MEMORY,
               proof_names[PROOF_MEMORY], (double)(t->memory.total + t->memory.beside) / (1 << 30), least->name, least->memory / (1 << 30));
    diag_note(d, least->span, "the memory of '%s'", least->name);
    if (t->memory.beside)
        diag_note(d, (Span){0}, "beside the plan: CUDA's context, NCCL, workspace, %.3f GiB", (double)t->memory.beside / (1 << 30));
    for (int i = 0; i < t->memory.n; i++)
        if ((double)t->memory.at[i].bytes > 0.05 * (double)t->memory.total)
            diag_note(d, (Span){0}, "alive at the peak: %s %s, %.3f GiB", t->memory.at[i].name, t->memory.at[i].shape,
                      (double)t->memory.at[i].bytes / (1 << 30));
    static const char *const less[RECOMPUTES] = {
        [RECOMPUTE_NONE] = "`recompute selective` keeps only the input and attention's output of each layer, `recompute full` "
                           "only the input; ",
        [RECOMPUTE_SELECTIVE] = "`recompute full` keeps only the input of each layer; ",
        [RECOMPUTE_FULL] = ""};
    diag_note(d, at, "%smore context ranks or a shorter sequence need less", less[t->choice.recompute]);
    return false;
}

const Plan *verify(Arena *a, Diags *d, const Draft *t)
{
    const Schedule *both[2] = {t->forward, t->backward};
    for (int i = 0; i < 2; i++) {
        if (!verify_schedule(a, d, both[i]) || !check_links(a, d, t, both[i]))
            return NULL;
        if (t->choice.ranks <= PRUNED_RANKS && !verify_masks(a, d, t, both[i]))
            return NULL;
    }
    if (!check_memory(d, t))
        return NULL;
    Plan *p = NEW(a, Plan);
    p->draft = *t;
    return p;
}

const Draft *plan_draft(const Plan *p)
{
    return &p->draft;
}

int64_t plan_pairs(const Plan *p, int mask, int rank)
{
    const Draft *t = &p->draft;
    Piece all = {0, t->program->sequence, t->program->sequence, 1};
    PosSet keys = {t->program->sequence, 1, &all};
    return mask_work(t->maps[mask], &t->partition->of[rank % t->choice.ranks], &keys).pairs;
}

void print_plan(const Plan *p, Text *out)
{
    const Draft *t = &p->draft;
    text_printf(out, "burst-plan 1\n%s, %s travel in backward, %s, %d data x %d ranks, recompute %s\n",
                t->choice.schedule->name, travel_names[t->choice.travel], partition_names[t->choice.partition],
                t->choice.data, t->choice.ranks, recompute_names[t->choice.recompute]);
#define X(id, number, name) text_printf(out, "proof %d: %s: holds\n", number, name);
    PROOFS(X)
#undef X
    text_printf(out, "memory of a rank: %zu bytes\n", t->memory.total);
    for (int i = 0; i < t->memory.n; i++)
        text_printf(out, "  %-16s %-34s %14zu\n", t->memory.at[i].name, t->memory.at[i].shape, t->memory.at[i].bytes);
}
