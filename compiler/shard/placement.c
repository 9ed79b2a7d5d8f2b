/* placement.c: which rank of the cluster has which chunk of which group.
 *
 * World ranks are a product of axes: data, and the coordinates by which a group shares its sequence. By
 * default data is outermost and the last coordinate innermost, so that the ranks of a group are consecutive.
 * `placement lane, data, node` names axes from the innermost on: neighbours along the first are ranks of one
 * node. Axes that are not named follow outside, in default order. Tensor ranks are always neighbours, inside
 * all of these. Chunk numbers do not change, so schedules, partitions and proofs do not depend on the
 * placement. */
#include "shard/shard.h"

#include <string.h>

enum { MOST_AXES = MAX_COORDS + 1, MOST_ORDERS = 24 };
/* Axes of more than one rank, innermost first: coordinates, and DATA. */
enum { DATA = -1 };
typedef struct Axes { int n, at[MOST_AXES]; } Axes;

static Axes usual_axes(const Choice *c)
{
    Axes x = {0};
    for (int i = coord_inside(c, -1); i >= 0; i = coord_inside(c, i))
        if (c->size[i] > 1)
            x.at[x.n++] = i;
    for (int i = 0; i < x.n / 2; i++) {
        const int other = x.at[x.n - 1 - i];
        x.at[x.n - 1 - i] = x.at[i];
        x.at[i] = other;
    }
    if (c->data > 1)
        x.at[x.n++] = DATA;
    return x;
}

static void place(Choice *c, const Axes *x)
{
    const Axes usual = usual_axes(c);
    int stride = choice_tensor(c);
    c->placed = memcmp(x, &usual, sizeof usual) != 0;
    c->data_stride = 0;
    memset(c->place, 0, sizeof c->place);
    for (int i = 0; i < x->n && c->placed; i++) {
        *(x->at[i] == DATA ? &c->data_stride : &c->place[x->at[i]]) = stride;
        stride *= x->at[i] == DATA ? c->data : c->size[x->at[i]];
    }
}

int choice_rank(const Choice *c, int group, int chunk)
{
    if (!c->placed)
        return (group * c->ranks + chunk) * choice_tensor(c);
    int rank = group * c->data_stride;
    for (int i = 0; i < c->coords; i++)
        rank += c->size[i] > 1 ? rel_coord(c, chunk, i) * c->place[i] : 0;
    return rank;
}

/* ---- the setting ---- */

static const char *axis_name(const Choice *c, int axis)
{
    if (axis == DATA)
        return "data";
    if (c->coords > 1)
        return c->schedule->way_name[axis];
    return c->schedule->exchanged >= 0 ? "heads" : "context";
}

static bool names_axis(const Choice *c, const char *name, int axis)
{
    const bool all = axis != DATA && strcmp(name, c->schedule->exchanged >= 0 ? "heads" : "context") == 0;
    return all || strcmp(name, axis_name(c, axis)) == 0 ||
           (axis != DATA && strcmp(name, c->schedule->coord_name[axis]) == 0);
}

static void move_axis(Axes *from, int i, Axes *to)
{
    to->at[to->n++] = from->at[i];
    memmove(&from->at[i], &from->at[i + 1], sizeof from->at[0] * (size_t)(from->n - 1 - i));
    from->at[--from->n] = 0;
}

static Axes named_axes(const Program *p, const Choice *c)
{
    Axes left = usual_axes(c), x = {0};
    for (int n = 0; n < p->layout.placement_names; n++)
        for (int i = 0; i < left.n;)
            if (names_axis(c, p->layout.placement_name[n], left.at[i]))
                move_axis(&left, i, &x);
            else
                i++;
    while (left.n)
        move_axis(&left, 0, &x);
    return x;
}

/* The n-th order, the default first. Returns false if there are fewer. */
static bool ordered_axes(const Choice *c, int n, Axes *x)
{
    Axes left = usual_axes(c);
    *x = (Axes){0};
    for (int size = left.n; size; size = left.n) {
        move_axis(&left, n % size, x);
        n /= size;
    }
    return n == 0;
}

int placement_count(const Program *p)
{
    return p->layout.placement.is_auto ? MOST_ORDERS : 1;
}

bool placement_take(const Program *p, Choice *c, int n)
{
    Axes x = named_axes(p, c);
    const bool there = n == 0 || ordered_axes(c, n, &x);
    place(c, &x);
    return there;
}

/* Rejects a name that means nothing to this schedule. context and heads may have one rank. */
const char *placement_why_not(Arena *a, const Program *p, const Choice *c)
{
    for (int n = 0; n < p->layout.placement_names; n++) {
        const char *name = p->layout.placement_name[n];
        bool known = strcmp(name, "data") == 0 || strcmp(name, "context") == 0 || strcmp(name, "heads") == 0;
        for (int i = 0; i < c->coords; i++)
            known |= names_axis(c, name, i);
        if (!known)
            return arena_printf(a, "the schedule has no coordinate '%s' to place", name);
    }
    return NULL;
}

const char *placement_text(Arena *a, const Choice *c)
{
    const char *text = NULL;
    int last = 0;
    for (int n = 0; c->placed && n < c->coords + 1; n++) {
        int next = DATA - 1, least = 0;
        for (int i = DATA; i < c->coords; i++) {
            const int size = i == DATA ? c->data : c->size[i],
                      stride = i == DATA ? c->data_stride : c->place[i];
            if (size > 1 && stride > last && (!least || stride < least))
                next = i, least = stride;
        }
        last = least ? least : last;
        text = least ? arena_printf(a, text ? "%s, %s" : "%s%s", text ? text : "", axis_name(c, next)) : text;
        if (!least)
            break;
    }
    return text;
}

/* ---- as C ---- */

static const char usual_text[] =
    "/* Where ranks are: the chunks of a group follow each other. */\n"
    "static BURST_MAYBE_UNUSED int plan_chunk_of(int rank) { return rank % PLAN_GROUP; }\n"
    "static BURST_MAYBE_UNUSED int plan_group_of(int rank) { return rank / PLAN_GROUP; }\n"
    "static BURST_MAYBE_UNUSED int plan_rank_of(int group, int chunk) { return group * PLAN_GROUP + chunk; "
    "}\n\n";

static const char tensor_text[] =
    "/* Where ranks are: those that split a layer's weights, then the chunks of a group, follow each other. "
    "*/\n"
    "static BURST_MAYBE_UNUSED int plan_chunk_of(int rank) { return rank / PLAN_TENSOR % PLAN_GROUP; }\n"
    "static BURST_MAYBE_UNUSED int plan_group_of(int rank) { return rank / PLAN_TENSOR / PLAN_GROUP; }\n"
    "static BURST_MAYBE_UNUSED int plan_rank_of(int group, int chunk) { return (group * PLAN_GROUP + chunk) "
    "* PLAN_TENSOR; }\n\n";

void placement_emit_c(Arena *a, const Choice *c, Text *out)
{
    if (!c->placed) {
        text_add(out, c->tensor ? tensor_text : usual_text);
        return;
    }
    Text chunk = {0}, rank = {0};
    for (int i = 0; i < c->coords; i++)
        if (c->size[i] > 1) {
            text_printf(&chunk, "%srank / %d %% %d * %d", chunk.n ? " + " : "", c->place[i], c->size[i],
                        c->stride[i]);
            text_printf(&rank, " + chunk / %d %% %d * %d", c->stride[i], c->size[i], c->place[i]);
        }
    const int data = c->data > 1 ? c->data_stride : 1;
    text_printf(out, "/* Where ranks are: placement %s, the innermost first. */\n", placement_text(a, c));
    text_printf(out, "static BURST_MAYBE_UNUSED int plan_chunk_of(int rank) { return %s; }\n", chunk.at);
    text_printf(out,
                "static BURST_MAYBE_UNUSED int plan_group_of(int rank) { return rank / %d %% PLAN_DATA; }\n",
                data);
    text_printf(
        out, "static BURST_MAYBE_UNUSED int plan_rank_of(int group, int chunk) { return group * %d%s; }\n\n",
        data, rank.at);
    text_free(&chunk);
    text_free(&rank);
}
