/* check_layers.c: `schedule` and `travel` of the layout: one for all layers, or `schedule near for
 * window(4Ki), ring;` by their masks. */
#include "check.h"

#include <string.h>

/* Loads a schedule by path, relative to the text's file. */
static const SchedText *load_named_schedule(Checker *c, const Ast *path)
{
    const char *file = path_beside(c->arena, path->span, path->text);
    if (is_plain_file(file))
        return load_schedule(c, file, path->span);
    for (int i = 0; i < c->schedules.n; i++)
        if (strcmp(c->schedules.at[i]->name, path->text) == 0) {
            diag_error(c->diags, path->span, "'%s' is the name of a schedule, not a file; remove the quotes",
                       path->text);
            return NULL;
        }
    diag_error(c->diags, path->span, "cannot read '%s': no such file", file);
    return NULL;
}

/* A name, or a file in quotes; *schedule NULL: auto. */
static bool take_one_schedule(Checker *c, Cursor *u, const char **schedule)
{
    if (u->at && u->at->kind == A_STRING) {
        const SchedText *text = load_named_schedule(c, cursor_string(u, "a file"));
        *schedule = text ? text->name : NULL;
        return text;
    }
    const Ast *name = cursor_name(u, "auto, the name of a schedule, or a file in quotes");
    *schedule = name && strcmp(name->text, "auto") != 0 ? name->text : NULL;
    return name;
}

static bool take_one_travel(Cursor *u, Setting *travel)
{
    const char *names[TRAVEL_WORDS + 1];
    memcpy(names, travel_names, sizeof travel_names);
    names[TRAVEL_WORDS] = "auto";
    const int word = cursor_choice(u, names, TRAVEL_WORDS + 1);
    *travel = (Setting){.value = word == TRAVEL_WORDS ? 0 : word,
                        .is_auto = word == TRAVEL_WORDS,
                        .given = true,
                        .span = u->setting->span};
    return word >= 0;
}

/* Reads `for window(4Ki)`. Returns false after an error. */
static bool take_for(Checker *c, Cursor *u, LayerEntry *x)
{
    if (!cursor_try(u, "for"))
        return true;
    if (!u->at || (u->at->kind != A_NAME && u->at->kind != A_CALL)) {
        diag_error(c->diags, u->at ? u->at->span : u->setting->span,
                   "'for' requires a mask that some layers use, such as window(4Ki)");
        return false;
    }
    x->mask = cursor_next(u);
    return true;
}

/* Reads the entries of a setting. A single entry without a mask is for all layers. */
static bool take_entries(Checker *c, const Ast *s, bool is_travel, LayerEntry *only)
{
    Cursor u = cursor_of(c, s);
    const int first = c->layer_entries.n;
    do {
        LayerEntry x = {.is_travel = is_travel, .span = u.at ? u.at->span : s->span};
        const bool taken = is_travel ? take_one_travel(&u, &x.travel) : take_one_schedule(c, &u, &x.schedule);
        if (!taken || !take_for(c, &u, &x))
            return false;
        *vec_push(c->arena, &c->layer_entries) = x;
    } while (cursor_try(&u, ","));
    if (!cursor_end(&u))
        return false;
    *only = c->layer_entries.at[first];
    if (c->layer_entries.n > first + 1 || only->mask)
        return false;
    c->layer_entries.n = first;
    return true;
}

void take_schedule(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Layout *l = to;
    LayerEntry only;
    l->schedule_span = s->args.first ? s->args.first->span : s->span;
    if (take_entries(c, s, false, &only))
        l->schedule = only.schedule;
}

void take_travel(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    LayerEntry only;
    if (take_entries(c, s, true, &only))
        ((Layout *)to)->travel = only.travel;
}

/* ---- masks of layers ---- */

/* Index of the mask; -1 after an error. */
static int mask_of_layers(Checker *c, const Ast *mask)
{
    const int index = use_mask(c, mask);
    const char *known = "";
    if (index < c->program->mask_count)
        return index;
    for (int m = 0; m < c->program->mask_count; m++)
        known = arena_printf(c->arena, "%s%s%s", known, m ? ", " : "", c->used_masks.at[m].text);
    diag_error(c->diags, mask->span, "no layer uses mask '%s'; layers use %s", c->used_masks.at[index].text,
               known);
    return -1;
}

static void set_layers(const LayerEntry *x, LayerSetting *of)
{
    if (x->is_travel)
        of->travel = x->travel;
    else
        of->schedule = x->schedule, of->schedule_span = x->span;
}

/* The entry's mask; 0: the other layers; -1: after an error, or not to be set in this pass. */
static int entry_mask(Checker *c, const LayerEntry *x, bool others)
{
    if (others != !x->mask || (x->schedule && !find_schedule(c, &c->program->layout, x->schedule, x->span)))
        return -1;
    return others ? 0 : mask_of_layers(c, x->mask);
}

/* Sets the entry for the other layers, or those for masks. */
static void set_entries(Checker *c, LayerSetting *of, bool others)
{
    const int masks = c->program->mask_count;
    Span *by = NEW_ARRAY(c->arena, Span, 2 * masks); /* schedule, travel */
    for (int i = 0; i < c->layer_entries.n; i++) {
        const LayerEntry *x = &c->layer_entries.at[i];
        const int mask = entry_mask(c, x, others);
        Span *before = mask < 0 ? NULL : &by[2 * mask + x->is_travel];
        if (before && before->src)
            diag_error(c->diags, x->span, "%s of %s is set twice", x->is_travel ? "travel" : "the schedule",
                       others ? "the layers without 'for'"
                              : arena_printf(c->arena, "layers with mask '%s'", c->used_masks.at[mask].text));
        else if (before)
            *before = x->span;
        for (int m = 0; m < masks && mask >= 0; m++)
            if (others || m == mask)
                set_layers(x, &of[m]);
    }
}

void finish_layers(Checker *c)
{
    Layout *l = &c->program->layout;
    const int masks = c->program->mask_count;
    if (!c->layer_entries.n || !masks)
        return;
    LayerSetting *of = NEW_ARRAY(c->arena, LayerSetting, masks);
    for (int m = 0; m < masks; m++)
        of[m] = (LayerSetting){l->schedule, l->schedule_span, l->travel};
    set_entries(c, of, true);
    set_entries(c, of, false);
    for (int m = 0; m < masks; m++)
        if (!of[m].travel.is_auto && of[m].travel.value == TRAVEL_LATENTS) {
            diag_error(
                c->diags, of[m].travel.span,
                "`travel latents` requires one `schedule` and one `travel` for all layers; use `travel "
                "keys`, or remove `for`");
            return;
        }
    l->of_mask = of;
    l->schedule = of[0].schedule;
    l->travel = of[0].travel;
}
