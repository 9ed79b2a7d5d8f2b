/* check_shares.c: the setting `shares`: one for each rank that shares a sequence, or for each device of the
 * cluster. */
#include "check.h"

#include <string.h>

/* Reads `3`, or for a device's ranks `h100 3`. */
static GivenShare take_share(Cursor *u, bool named)
{
    const Span at = u->at ? u->at->span : u->setting->span;
    const Ast *device = named ? cursor_name(u, "the name of a device and its share, such as h100 3") : NULL;
    int64_t share = 1;
    cursor_whole(u, 1, MOST_SHARE, &share);
    return (GivenShare){device ? device->text : NULL, (int)share, at};
}

void take_shares(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Layout *l = to;
    Cursor u = cursor_of(c, s);
    const bool open = cursor_try(&u, "auto"), equal = !open && cursor_try(&u, "equal");
    const bool named = u.at && u.at->kind == A_NAME;
    Vec(GivenShare) given = {0};
    l->shares = (Setting){.is_auto = open,
                          .given = true,
                          .span = s->span,
                          .value = equal || open ? SHARES_EQUAL : SHARES_GIVEN};
    if (!equal && !open)
        do
            *vec_push(c->arena, &given) = take_share(&u, named);
        while (cursor_try(&u, ","));
    if (cursor_end(&u))
        l->given_shares = (GivenShares){given.n, given.at};
    else
        l->shares.is_auto = true;
}

static const char **cluster_devices(Checker *c, int *n)
{
    const Cluster *k = &c->program->cluster;
    const char **names = NEW_ARRAY(c->arena, const char *, k->group_count + 1);
    *n = 0;
    for (int g = 0; g < k->group_count; g++) {
        int i = 0;
        while (i < *n && strcmp(names[i], k->groups[g].device->name) != 0)
            i++;
        names[i] = k->groups[g].device->name;
        *n += i == *n;
    }
    return names;
}

/* Checks that every device of the cluster has one share, and no other has. */
static void check_device_shares(Checker *c, const Layout *l)
{
    const GivenShares *given = &l->given_shares;
    int n;
    const char **names = cluster_devices(c, &n);
    bool *seen = NEW_ARRAY(c->arena, bool, n);
    for (int i = 0; i < given->n; i++) {
        int known = 0;
        while (known < n && strcmp(names[known], given->at[i].device) != 0)
            known++;
        if (known == n)
            unknown_of(c, given->at[i].span, given->at[i].device, names, n, "device of the cluster");
        else if (seen[known])
            diag_error(c->diags, given->at[i].span, "'%s' is given two shares", names[known]);
        else
            seen[known] = true;
    }
    for (int i = 0; i < n; i++)
        if (!seen[i])
            diag_error(c->diags, l->shares.span,
                       "'shares' omits device '%s'; give each device of the cluster a share", names[i]);
}

/* Checks that each rank that shares a sequence has one share. */
static void check_rank_shares(Checker *c, const Layout *l, int world)
{
    const int n = l->given_shares.n;
    const int64_t ranks = l->data.is_auto ? n : world / l->data.value;
    const int64_t of = n == ranks ? world : ranks;
    if (n != ranks || world % n != 0)
        diag_error(c->diags, l->shares.span,
                   "'shares' has %d share%s, but %lld rank%s share%s a sequence; give one to each rank or to "
                   "each device of the cluster",
                   n, plural(n), (long long)of, plural(of), of == 1 ? "s" : "");
}

void check_shares(Checker *c, const Layout *l, int world)
{
    if (l->given_shares.n && l->given_shares.at[0].device)
        check_device_shares(c, l);
    else if (l->given_shares.n)
        check_rank_shares(c, l, world);
}
