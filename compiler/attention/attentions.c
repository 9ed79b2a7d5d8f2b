/* attentions.c: the schedules of a choice: one for all layers, or one for each mask that has its own.
 *
 * All layers share positions, pieces of keys, and owners of chunks. They attend one after the other, and
 * each waits for its transfers at its end: so all use the same streams, and their slots share memory. */
#include "attention/attention.h"

#include "burst_kernels.h"
#include "ir/kernels.h"

#include <string.h>

/* The index of the choice's attention; t->n if it is not there yet. */
static int find_attention(const Attentions *t, const Choice *c)
{
    int i = 0;
    while (i < t->n && (t->at[i].choice->schedule != c->schedule || t->at[i].choice->travel != c->travel))
        i++;
    return i;
}

const char *attention_name(Arena *a, const Choice *c)
{
    return arena_printf(a, "%s_%s", c->schedule->name, travel_names[c->travel]);
}

/* ---- launches over all pairs ---- */

/* Whether launches can take several chunks of keys: queries and outputs do not move, the kernels take several
 * chunks, and copy engines move the keys. Between nodes NCCL does, whose kernels would have to wait for the
 * launch, which has all multiprocessors. */
static bool can_join_launches(const Program *p, const Schedule *s)
{
    const Choice *c = s->choice;
    const int node = cluster_node_ranks(&p->cluster), ranks = c->ranks * choice_tensor(c);
    for (int i = 0; i < s->trace.n; i++) {
        const Instance *at = &s->trace.at[i];
        const bool transfers = at->node->kind == N_PASS || at->node->kind == N_RETURN;
        const TensorId t = at->node->ref[0].tensor;
        if (at->node->kind == N_EXCHANGE || (transfers && t != T_KV && t != T_DKV) ||
            (at->node->kind == N_COMPUTE && at->chunk[0] != 0))
            return false;
    }
    return p->target->device_memory && kernels_of(p).form == 90 && c->ranks > 1 && !c->latents &&
           !c->of_mask && c->token_chunks < 2 && !choice_exchanges(c) && !c->placed && node >= ranks &&
           node % ranks == 0;
}

static bool meets_others(const Schedule *s, int at)
{
    const Instance *i = &s->trace.at[at];
    return i->node->kind == N_COMPUTE && !chunk_is_own(s->choice, i->chunk[1]);
}

/* Whether two pairs with other ranks' keys follow each other with no transfer between. */
static bool meets_in_a_row(const Schedule *s)
{
    for (int at = 1; at < s->trace.n; at++)
        if (meets_others(s, at) && meets_others(s, at - 1))
            return true;
    return false;
}

/* Whether several sums are sent to their owner. Added on the way, they would hold up what it computes. */
static bool sums_come_home(const Schedule *s)
{
    int home = 0;
    for (int i = 0; i < s->trace.n; i++) {
        const Instance *at = &s->trace.at[i];
        home += at->node->kind == N_PASS && at->node->ref[0].tensor == T_DKV &&
                chunk_is_own(s->choice, rel_sub(s->choice, at->chunk[0], at->hop));
    }
    return home > 1;
}

bool schedule_begins_launch(const Schedule *s, int at, RankLaunch *l)
{
    const int run = s->run ? s->run[at] : at;
    const bool begins = l->run != run || l->pairs == BURST_MOST_CHUNKS;
    if (begins)
        *l = (RankLaunch){.run = run};
    l->pairs++;
    return begins;
}

/* Forward, computing with other ranks' keys is one run; in backward a transfer, or computing with the rank's
 * own keys, ends a run. */
static const int *find_runs(Arena *a, const Schedule *s)
{
    int *run = NEW_ARRAY(a, int, s->trace.n), first = -1;
    for (int at = 0; at < s->trace.n; at++) {
        const bool joins = meets_others(s, at);
        if (joins)
            first = first < 0 ? at : first;
        else if (s->backward)
            first = -1;
        run[at] = joins ? first : at;
    }
    return run;
}

static void join_launches(Arena *a, const Program *p, Schedule *s)
{
    const bool many = choice_chunks(s->choice) > BURST_MOST_CHUNKS;
    if (s->choice->each_chunk[s->backward] || !can_join_launches(p, s))
        return;
    s->at_once = !many && (!s->backward || meets_in_a_row(s) || sums_come_home(s));
    s->in_groups = many && (!s->backward || meets_in_a_row(s));
    if (s->at_once || s->in_groups)
        s->run = find_runs(a, s);
}

/* named: slots are named after the attention, to differ from those of other layers. */
static bool make_attention(Arena *a, Diags *d, const Program *p, Attention *to, const Choice *c, bool named)
{
    int channels = 0;
    *(to->choice = NEW(a, Choice)) = *c;
    for (int backward = 0; backward < 2; backward++) {
        Schedule *s = schedule_make(a, d, to->choice, backward, channels);
        if (!s)
            return false;
        s->name = named ? attention_name(a, c) : NULL;
        join_launches(a, p, s);
        schedule_slots(a, s);
        channels = s->channels;
        to->way[backward] = s;
    }
    return true;
}

Attentions attentions_make(Arena *a, Diags *d, const Program *p, const Choice *choice)
{
    Attention *at = NEW_ARRAY(a, Attention, p->mask_count);
    int *of = NEW_ARRAY(a, int, p->mask_count);
    Attentions t = {0, at, of};
    for (int m = 0; m < p->mask_count; m++) {
        const Choice c = choice_of_mask(choice, m);
        of[m] = find_attention(&t, &c);
        if (of[m] == t.n && !make_attention(a, d, p, &at[t.n++], &c, choice->of_mask))
            return (Attentions){0};
    }
    return t;
}

void attentions_decide(const Attentions *t, const Program *p, const Choice *choice)
{
    for (int m = 0; m < p->mask_count; m++)
        *t->at[t->of_mask[m]].choice = choice_of_mask(choice, m);
}

const Schedule *attentions_schedule(const Attentions *t, int mask, bool backward)
{
    return t->at[t->of_mask[mask]].way[backward];
}

int attentions_channels(const Attentions *t)
{
    int most = 0;
    for (int i = 0; i < t->n; i++)
        most = t->at[i].way[1]->channels > most ? t->at[i].way[1]->channels : most;
    return most;
}

int attentions_at_once(const Attentions *t, bool backward)
{
    const Schedule *s = t->at->way[backward];
    const int chunks = choice_chunks(t->at->choice), most = BURST_MOST_CHUNKS;
    if (!s->run)
        return 0;
    return chunks < most ? chunks : most;
}

bool attentions_in_groups(const Attentions *t) { return t->at->way[0]->in_groups; }

int attentions_operations(const Attentions *t)
{
    int most = 0;
    for (int i = 0; i < 2 * t->n; i++)
        most = t->at[i / 2].way[i % 2]->trace.n > most ? t->at[i / 2].way[i % 2]->trace.n : most;
    return most;
}
