/* attentions.c: the schedules of a choice: one for all layers, or one for the layers of each mask that has
 * another.
 *
 * What layers have in common are positions, pieces of keys, and who has which chunk. They attend one after
 * the other, and each ends with what travels for it: so all use the same streams, and their slots the same
 * memory.
 */
#include "attention/attention.h"

#include <string.h>

/* Which of the attentions it is; how many there are where it is another one. */
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

/* Its slots have their names from it, so that they differ from those of other layers. */
static bool make_attention(Arena *a, Diags *d, Attention *to, const Choice *c, bool named)
{
    int channels = 0;
    *(to->choice = NEW(a, Choice)) = *c;
    for (int backward = 0; backward < 2; backward++) {
        Schedule *s = schedule_make(a, d, to->choice, backward, channels);
        if (!s)
            return false;
        s->name = named ? attention_name(a, c) : NULL;
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
        if (of[m] == t.n && !make_attention(a, d, &at[t.n++], &c, choice->of_mask))
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

int attentions_operations(const Attentions *t)
{
    int most = 0;
    for (int i = 0; i < 2 * t->n; i++)
        most = t->at[i / 2].way[i % 2]->trace.n > most ? t->at[i / 2].way[i % 2]->trace.n : most;
    return most;
}
