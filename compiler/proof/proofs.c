/* proof/proofs.c: proves a draft correct; the only maker of a Plan.
 *
 * Proofs 1 to 4 are about one direction's trace (replay.c). Pruning is replayed for every rank of up to
 * PRUNED_RANKS (pruned.c); with more ranks the rule is the same. This file has the proofs that need the
 * cluster. */
#include "proof/internal.h"

#include "step/verify/verify.h"

#include <string.h>

const char *const proof_names[] = {
#define X(id, number, name) [number] = name,
    PROOFS(X)
#undef X
};

struct Plan { Draft draft; };

/* ---- proof 5: links ---- */

static bool check_hop(Arena *a, Diags *d, const Draft *t, const Schedule *s, const Instance *i, int hop)
{
    const Cluster *c = &t->program->cluster;
    for (int r = 0; r < t->choice.data * t->choice.ranks; r++) {
        const int data = r / t->choice.ranks, chunk = r % t->choice.ranks,
                  rank = choice_rank(s->choice, data, chunk);
        const int peer = choice_rank(s->choice, data, rel_add(s->choice, chunk, hop));
        if (cluster_node_of(c, rank) == cluster_node_of(c, peer))
            continue;
        const NodeGroup *group[2] = {cluster_group_of(c, rank), cluster_group_of(c, peer)};
        for (int g = 0; g < 2; g++) {
            if (group[g]->nics > 0 && group[g]->nic)
                continue;
            diag_error(d, stmt_place(i->node->stmt),
                       "proof %d (%s) fails: rank %d sends to rank %d on another node, but %s has no nics",
                       PROOF_LINKS, proof_names[PROOF_LINKS], rank, peer, g ? "that node" : "its node");
            diag_note(d, group[g]->span, "add `nics 1 of hdr;` to this node");
            (void)a;
            return false;
        }
    }
    return true;
}

/* No hop can lack a link: every node has NICs, or there is one node. */
static bool links_everywhere(const Cluster *c)
{
    for (int g = 0; g < c->group_count && c->nodes > 1; g++)
        if (c->groups[g].nics == 0 || !c->groups[g].nic)
            return false;
    return true;
}

static bool check_links(Arena *a, Diags *d, const Draft *t, const Schedule *s)
{
    if (links_everywhere(&t->program->cluster))
        return true;
    bool *seen = NEW_ARRAY(a, bool, t->choice.ranks);
    for (int i = 0; i < s->trace.n; i++) {
        const Instance *x = &s->trace.at[i];
        if (x->node->kind == N_COMPUTE)
            continue;
        const int shares = x->node->kind == N_EXCHANGE ? choice_shares(s->choice, s->backward) : 1;
        for (int j = shares > 1; j < shares; j++) {
            const int hop = shares > 1 ? choice_member(s->choice, 0, j) : x->hop;
            if (!seen[hop] && !check_hop(a, d, t, s, x, hop))
                return false;
            seen[hop] = true;
        }
    }
    return true;
}

/* Checks what a program checks of its ranks before it starts them (plan_fits of
 * runtime/host/launch/launch.c). */
static bool check_groups(Diags *d, const Draft *t)
{
    const Choice *c = &t->choice;
    const Cluster *k = &t->program->cluster;
    const int tensor = t->shape.tensor;
    const bool whole = c->data > 0 && c->ranks > 0 && c->data * c->ranks * tensor == k->world;
    if (whole && (!c->within || cluster_shards(k, tensor, c->within)))
        return true;
    if (!whole)
        diag_error(d, t->program->layout.span,
                   "proof %d (%s) fails: %d group%s of %d rank%s with tensor parallelism %d do not add up to "
                   "the cluster's %d rank%s",
                   PROOF_LINKS, proof_names[PROOF_LINKS], c->data, plural(c->data), c->ranks,
                   plural(c->ranks), tensor, k->world, plural(k->world));
    else
        diag_error(d, setting_span(SETTING_WEIGHTS, &t->program->layout),
                   "proof %d (%s) fails: groups of %d rank%s that share the weights must be whole nodes or "
                   "equal parts of a node in this cluster of %d rank%s, and must contain whole groups of %d "
                   "tensor-parallel rank%s",
                   PROOF_LINKS, proof_names[PROOF_LINKS], c->within, plural(c->within), k->world,
                   plural(k->world), tensor, plural(tensor));
    return false;
}

/* ---- proof 6 ---- */

static double host_bytes(const Draft *t)
{
    return (double)t->memory.offloaded + (t->program->target->device_memory ? (double)t->memory.host : 0);
}

double host_needs(const Draft *t) { return host_bytes(t) * cluster_most_ranks(&t->program->cluster); }

/* The node with most ranks if its host memory is too small; NULL: hosts suffice, or nothing is offloaded. */
static const NodeGroup *too_little_host(const Draft *t)
{
    const Cluster *c = &t->program->cluster;
    const NodeGroup *most = &c->groups[0];
    for (int g = 1; g < c->group_count; g++)
        most = c->groups[g].gpus > most->gpus ? &c->groups[g] : most;
    return t->memory.offloaded && host_bytes(t) * most->gpus > c->host_memory ? most : NULL;
}

bool host_fits(const Draft *t) { return !too_little_host(t); }

bool device_fits(const Draft *t)
{
    return (double)(t->memory.total + t->memory.beside) <= cluster_least_memory(&t->program->cluster)->memory;
}

bool memory_fits(const Draft *t) { return device_fits(t) && host_fits(t); }

/* Prints enough digits to show that one number is larger. */
static void report_memory(Arena *a, Diags *d, Span at, double needs, bool or_more, const Device *least)
{
    const char *need, *has;
    int digits = 2;
    do {
        need = bytes_text(a, needs, digits);
        has = bytes_text(a, least->memory, digits);
    } while (strcmp(need, has) == 0 && digits++ < 9);
    diag_error(d, at, "proof %d (%s) fails: a rank needs %s%s, but a %s has %s", PROOF_MEMORY,
               proof_names[PROOF_MEMORY], need, or_more ? " or more" : "", least->name, has);
}

/* Notes each item over 5 % of memory: the step's values at their peak, largest first, then buffers outside
 * of the arena. */
static void note_alive(Arena *a, Diags *d, const Draft *t)
{
    const double least = 0.05 * (double)t->memory.total;
    const Flow *f = t->memory.flow;
    Alive *alive = NEW_ARRAY(a, Alive, f->items);
    const int n = step_alive(f, alive);
    for (int i = 0; i < n; i++)
        if ((double)alive[i].bytes > least)
            diag_note(d, (Span){0}, "alive at the peak: %s, %s", step_value_text(a, f->step, alive[i].value),
                      bytes_text(a, (double)alive[i].bytes, 2));
    for (int i = 0; i < t->memory.n; i++)
        if (t->memory.at[i].at < 0 && (double)t->memory.at[i].bytes > least)
            diag_note(d, (Span){0}, "alive at the peak: %s %s, %s", t->memory.at[i].name,
                      t->memory.at[i].shape, bytes_text(a, (double)t->memory.at[i].bytes, 2));
}

/* Offloaded values; on a device also the host optimizer's parameters and moments. */
static double offloaded_bytes(const Draft *t)
{
    return (double)t->memory.offloaded +
           (t->program->target->device_memory ? (double)t->memory.flow->host_state : 0);
}

/* Checks host memory; the error says what is offloaded, and how much would fit. */
static bool check_host(Arena *a, Diags *d, const Draft *t)
{
    const Cluster *c = &t->program->cluster;
    const NodeGroup *g = too_little_host(t);
    const Span at = t->program->layout.offload.given ? t->program->layout.offload.span
                                                     : t->program->sequence_span;
    if (!g)
        return true;
    const double rest = host_bytes(t) - offloaded_bytes(t), room = c->host_memory / g->gpus - rest;
    diag_error(d, at,
               "proof %d (%s) fails: %d rank%s of a node need %s of host memory, %s of it for offloaded "
               "values, but a host has %s",
               PROOF_MEMORY, proof_names[PROOF_MEMORY], g->gpus, plural(g->gpus),
               bytes_text(a, host_bytes(t) * g->gpus, 2), bytes_text(a, offloaded_bytes(t) * g->gpus, 2),
               bytes_text(a, c->host_memory, 2));
    diag_note(d, c->span, "the memory of a host");
    if (t->program->layout.offload.is_auto)
        diag_note(d, (Span){0}, "without offloading, a rank needs more memory than a %s has",
                  cluster_least_memory(c)->name);
    diag_note(d, (Span){0},
              "%s a rank would fit; offload less (`layers N` offloads only the first N layers) or %s",
              bytes_text(a, room > 0 ? room : 0, 2), saving_fewer());
    return false;
}

static bool check_memory(Arena *a, Diags *d, const Draft *t)
{
    const Device *least = cluster_least_memory(&t->program->cluster);
    if (memory_fits(t) || !check_host(a, d, t))
        return memory_fits(t);
    Span at = t->program->layout.span.src ? t->program->layout.span : t->program->sequence_span;
    report_memory(a, d, at, (double)(t->memory.total + t->memory.beside), t->memory.flow->unpacked, least);
    diag_note(d, least->span, "the memory of '%s'", least->name);
    if (t->memory.beside)
        diag_note(d, (Span){0}, "in addition to the plan: CUDA's context, NCCL and workspace, %s",
                  bytes_text(a, (double)t->memory.beside, 2));
    note_alive(a, d, t);
    diag_note(d, at, "to reduce memory, use more context ranks or a shorter sequence");
    return false;
}

/* Checks that layers of each mask have both directions of their choice, as each direction relies on the
 * slots and streams that the other leaves. */
static bool check_attentions(Arena *a, Diags *d, const Draft *t)
{
    for (int m = 0; m < t->program->mask_count; m++) {
        const Choice wanted = choice_of_mask(&t->choice, m);
        for (int backward = 0; backward < 2; backward++) {
            const Schedule *s = attentions_schedule(&t->attention, m, backward);
            if (s->choice->schedule == wanted.schedule && s->choice->travel == wanted.travel &&
                s->backward == backward && sizes_equal(s->choice, &wanted))
                continue;
            diag_error(d, s->choice->schedule->span,
                       "proof %d (%s) fails: %s of layers with mask `%s` uses %s instead of %s", PROOF_PAIRS,
                       proof_names[PROOF_PAIRS], backward ? "backward" : "forward", t->program->masks[m].text,
                       attention_name(a, s->choice), attention_name(a, &wanted));
            return false;
        }
    }
    return true;
}

bool verify_attention(Arena *a, Diags *d, const Draft *t)
{
    if (!check_groups(d, t) || !check_attentions(a, d, t))
        return false;
    for (int i = 0; i < 2 * t->attention.n; i++) {
        const Schedule *s = t->attention.at[i / 2].way[i % 2];
        if (!verify_schedule(a, d, s) || !check_links(a, d, t, s))
            return false;
        if (t->choice.ranks <= PRUNED_RANKS && !verify_masks(a, d, t, s))
            return false;
    }
    return true;
}

const Plan *verify(Arena *a, Diags *d, const Draft *t)
{
    return verify_attention(a, d, t) ? verify_rest(a, d, t) : NULL;
}

const Plan *verify_rest(Arena *a, Diags *d, const Draft *t)
{
    if (!check_groups(d, t) || !check_attentions(a, d, t) || !verify_pieces(a, d, t) ||
        !verify_scratch(a, d, t) || !check_memory(a, d, t))
        return NULL;
    Plan *p = NEW(a, Plan);
    p->draft = *t;
    return p;
}

/* Of a program that evaluates alone: its list at its own offsets; forward's buffers lie in its scratch. */
static bool verify_alone(Arena *a, Diags *d, const Draft *t)
{
    const AloneMemory alone = memory_alone(a, t);
    const Device *least = cluster_least_memory(&t->program->cluster);
    const double needs = (double)(alone.total + alone.beside);
    bool inside = true;
    for (int i = 0; i < t->memory.n; i++) {
        const Buffer *b = &t->memory.at[i];
        const bool of_forward = b->at >= 0 && !b->keys && (b->directions & 1);
        inside &= !of_forward || b->at + (int64_t)b->bytes <= alone.scratch;
    }
    if (inside && needs <= least->memory)
        return step_verify(a, d, alone.flow);
    if (!inside)
        diag_error(d, t->program->layout.span,
                   "proof %d (%s) fails: a buffer of forward lies outside of evaluation's scratch",
                   PROOF_MEMORY, proof_names[PROOF_MEMORY]);
    else
        report_memory(a, d, t->program->layout.span, needs, false, least);
    return false;
}

bool verify_step(Arena *a, Diags *d, const Draft *t)
{
    const Flow *f = t->memory.flow;
    const bool holds = step_verify(a, d, f) &&
                       (f->step->forward || (step_verify(a, d, flow_evaluation(a, f)) &&
                                             (t->program->library || verify_alone(a, d, t))));
    if (!holds)
        diag_note(d, (Span){0},
                  "`--emit=step` prints the step's list, and `--verify-each` checks it after each pass");
    return holds;
}

const Draft *plan_draft(const Plan *p)
{
    return &p->draft;
}

void print_plan(const Plan *p, Text *out)
{
    const Draft *t = &p->draft;
    Arena *a = arena_new();
    const AloneMemory alone = memory_alone(a, t);
    text_printf(out, "burst-plan 1\n%s\n", choice_text(a, &t->choice));
#define X(id, number, name) text_printf(out, "proof %d: %s: holds\n", number, name);
    PROOFS(X)
#undef X
    print_ranges(t, out);
    text_printf(out, "memory of a rank: %zu bytes\n  %-16s %-34s %14lld\n", t->memory.total, "arena",
                "the step's values, --emit=step", (long long)t->memory.flow->packed);
    if (alone.flow)
        text_printf(out, "  %-16s %-34s %14zu\n", "alone", "of a rank that only evaluates", alone.total);
    for (int i = 0; i < t->memory.n; i++)
        text_printf(out,
                    t->memory.at[i].at < 0 ? "  %-16s %-34s %14zu\n"
                                           : "    %-14s %-34s %14zu in attention's scratch\n",
                    t->memory.at[i].name, t->memory.at[i].shape, t->memory.at[i].bytes);
    arena_free(a);
}
