/* check_calls.c: which masks a mask calls. A mask is checked after those that it calls, so that each is
 * checked once and no chain of calls is expanded; recursion is reported here. */
#include "check.h"

#include <string.h>

enum { MOST_NOTES = 8 };

typedef struct Call { MaskDecl *to; Span at; } Call;
/* A mask whose calls are being followed. */
typedef struct Visit { MaskDecl *decl; Span from; Vec(Call) calls; int next; } Visit;
typedef struct Order { Checker *c; Vec(Visit) open; Vec(MaskDecl *) done; } Order;

static void find_calls(Order *o, Visit *v, const Ast *a)
{
    MaskDecl *to = NULL;
    if (a->kind == A_CALL || (a->kind == A_NAME && parameter_index(v->decl, a->text) < 0))
        to = find_mask(o->c, a->text, v->decl->stock);
    if (to)
        *(Call *)vec_push(o->c->arena, &v->calls) = (Call){to, a->span};
    for (const Ast *b = a->args.first; b; b = b->next)
        find_calls(o, v, b);
}

static void enter(Order *o, MaskDecl *decl, Span from)
{
    Visit *v = vec_push(o->c->arena, &o->open);
    *v = (Visit){.decl = decl, .from = from};
    decl->state = MASK_OPEN;
    for (const Ast *part = decl->ast->more.first; part; part = part->next)
        find_calls(o, v, part);
}

static void report_cycle(Order *o, const Call *call)
{
    int i = o->open.n - 1;
    diag_error(o->c->diags, call->at, "mask '%s' calls itself", call->to->name);
    o->open.at[i].decl->broken = true;
    for (int notes = MOST_NOTES; notes && o->open.at[i].decl != call->to; notes--, i--)
        diag_note(o->c->diags, o->open.at[i].from, "'%s' is called here", o->open.at[i].decl->name);
}

static void visit(Order *o, MaskDecl *decl)
{
    if (decl->state == MASK_NEW)
        enter(o, decl, (Span){0});
    while (o->open.n) {
        Visit *v = &o->open.at[o->open.n - 1];
        const Call *call = v->next < v->calls.n ? &v->calls.at[v->next++] : NULL;
        if (!call) {
            v->decl->state = MASK_DONE;
            *vec_push(o->c->arena, &o->done) = v->decl;
            o->open.n--;
        } else if (call->to->state == MASK_OPEN) {
            report_cycle(o, call);
        } else if (call->to->state == MASK_NEW) {
            enter(o, call->to, call->at);
        }
    }
}

MaskDecl *const *masks_by_calls(Checker *c)
{
    Order o = {.c = c};
    for (int i = 0; i < c->masks.n; i++)
        visit(&o, c->masks.at[i]);
    return o.done.at;
}
