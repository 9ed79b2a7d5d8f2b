/* check_offload.c: the setting `offload`: saved values and the optimizer in host memory. */
#include "check.h"

#include <string.h>

/* Values that layers keep for backward whatever they save. */
static const char *kept_names(const Checker *c)
{
    return c->program->model.layer.experts ? " choice route " : " ";
}

static const char *kept_list(const Checker *c)
{
    return c->program->model.layer.experts ? ", choice, route" : "";
}

/* activations, or activations(x, o): all saved values, or these. */
static void take_offloaded(Checker *c, const Ast *value, Layout *l)
{
    const bool all = value->kind == A_NAME;
    l->offload.value = all ? OFFLOAD_ALL : 0;
    for (const Ast *name = all ? NULL : value->args.first; name; name = name->next) {
        const char *set = l->offloaded ? l->offloaded : " ";
        if (name->kind != A_NAME ||
            !(has_value(c, name->text, (int)strlen(name->text)) || saves(kept_names(c), name->text)))
            diag_error(c->diags, name->span, "expected the name of a value that a layer can save: x, %s%s",
                       savable_names(c), kept_list(c));
        else if (saves(set, name->text))
            diag_error(c->diags, name->span, "'%s' is offloaded twice", name->text);
        else
            l->offloaded = arena_printf(c->arena, "%s%s ", set, name->text);
    }
}

static bool is_word(const Ast *value, AstKind kind, const char *word)
{
    return value && value->kind == kind && strcmp(value->text, word) == 0;
}

static bool is_later(Checker *c, const Ast *value)
{
    static const char *const later[] = {"chunks", "outputs"};
    for (int i = 0; i < countof(later); i++)
        if (is_word(value, A_NAME, later[i]) || is_word(value, A_CALL, later[i])) {
            not_planned(c, value->span, arena_printf(c->arena, "offload %s", later[i]),
                        "offload activations, optimizer, auto or none");
            return true;
        }
    return false;
}

/* Takes activations, activations(x, o) or optimizer. Returns false for anything else. */
static bool take_item(Checker *c, const Ast *value, Layout *l)
{
    const bool activations = is_word(value, A_NAME, "activations") || is_word(value, A_CALL, "activations"),
               optimizer = is_word(value, A_NAME, "optimizer");
    if ((activations && (l->offload.value || l->offloaded)) || (optimizer && l->host_optimizer))
        diag_error(c->diags, value->span, "'%s' stands twice", value->text);
    else if (activations)
        take_offloaded(c, value, l);
    l->host_optimizer |= optimizer;
    return activations || optimizer;
}

void take_offload(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const names[] = {"activations", "activations(x, o)", "optimizer", "none", "auto"};
    (void)f;
    Layout *l = to;
    Cursor u = cursor_of(c, s);
    l->offload = (Setting){.given = true, .span = s->span};
    for (bool first = true; first || cursor_try(&u, ","); first = false) {
        if (is_later(c, u.at))
            return;
        if (!first && is_word(u.at, A_NAME, "layers")) {
            l->offload_layers = (Setting){.given = true, .span = u.at->span};
            u.at = u.at->next;
            l->offload_layers.span = span_join(l->offload_layers.span,
                                               u.at ? u.at->span : l->offload_layers.span);
            cursor_whole(&u, 1, 100000, &l->offload_layers.value);
            continue;
        }
        if (take_item(c, u.at, l)) {
            u.at = u.at->next;
            continue;
        }
        const int word = cursor_choice(&u, names, first ? countof(names) : 3);
        l->offload.is_auto |= word == 4;
        if (word >= 3)
            break; /* none and auto stand alone */
    }
    cursor_end(&u);
}

/* What offloading layers save: layers from `from` on save more. */
static const char *saved_where_offloaded(const Layout *l)
{
    return l->offload_layers.given && l->saving.from >= l->offload_layers.value ? l->saving.lower
                                                                                : l->saving.upper;
}

void check_offload(Checker *c, const Layout *l)
{
    const char *saved = saved_where_offloaded(l);
    for (const char *at = l->offloaded && saved ? l->offloaded + 1 : ""; *at; at += strcspn(at, " ") + 1) {
        const char *name = arena_copy(c->arena, at, strcspn(at, " "));
        if (!saves(saved, name) && !saves(kept_names(c), name))
            diag_error(
                c->diags, word_in(l->offload.span, name),
                "'%s' cannot be offloaded: no layer that offloads activations saves it; use one of the "
                "values that are saved:%.*s",
                name, (int)strlen(saved) - 1, saved);
    }
}
