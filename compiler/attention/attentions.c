/* attentions.c: the schedules of a choice: one for all layers, or one for the layers of each mask that has another.
 *
 * What layers have in common are positions, pieces of keys, and who has which chunk. They attend one after the other, and each ends with
 * what travels for it: so all use the same streams, and their slots the same memory.
 */
#include "ir/burst.h"

#include <string.h>

/* Which of the attentions it is; how many there are where it is another one. */
static int find_attention(const Draft *t, const Choice *c)
{
    int i = 0;
    while (i < t->attentions && (t->attention[i].choice->schedule != c->schedule || t->attention[i].choice->travel != c->travel))
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

bool attentions_make(Arena *a, Diags *d, Draft *t)
{
    const int masks = t->program->mask_count;
    Attention *at = NEW_ARRAY(a, Attention, masks);
    int *of = NEW_ARRAY(a, int, masks);
    t->attention = at;
    t->mask_attention = of;
    for (int m = 0; m < masks; m++) {
        const Choice c = choice_of_mask(&t->choice, m);
        of[m] = find_attention(t, &c);
        if (of[m] == t->attentions && !make_attention(a, d, &at[t->attentions++], &c, t->choice.of_mask)) {
            t->attentions = 0;
            return false;
        }
    }
    return true;
}

void attentions_decide(const Draft *t)
{
    for (int m = 0; m < t->program->mask_count; m++)
        *t->attention[t->mask_attention[m]].choice = choice_of_mask(&t->choice, m);
}

const Schedule *draft_schedule(const Draft *t, int mask, bool backward)
{
    return t->attention[t->mask_attention[mask]].way[backward];
}

int draft_channels(const Draft *t)
{
    int most = 0;
    for (int i = 0; i < t->attentions; i++)
        most = t->attention[i].way[1]->channels > most ? t->attention[i].way[1]->channels : most;
    return most;
}

int draft_operations(const Draft *t)
{
    int most = 0;
    for (int i = 0; i < 2 * t->attentions; i++)
        most = t->attention[i / 2].way[i % 2]->trace.n > most ? t->attention[i / 2].way[i % 2]->trace.n : most;
    return most;
}
