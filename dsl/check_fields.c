/* check_fields.c: settings ("name values;") against tables of fields: units, ranges, unknown, missing and double ones.
 */
#include "check.h"

#include <math.h>
#include <string.h>

Cursor cursor_of(Checker *c, const Ast *setting)
{
    Span name = setting->name_span;
    return (Cursor){.c = c, .setting = setting, .at = setting->args.first, .behind = {name.src, name.end, name.end}};
}

static const Ast *advance(Cursor *u)
{
    const Ast *taken = u->at;
    u->behind = (Span){taken->span.src, taken->span.end, taken->span.end};
    u->at = taken->next;
    return taken;
}

/* Where the next value stands or should stand. */
static Span here(const Cursor *u)
{
    return u->at ? u->at->span : u->setting->name_span;
}

static bool fail(Cursor *u)
{
    u->failed = true;
    return false;
}

static bool needs(Cursor *u, const char *what)
{
    if (!u->failed)
        diag_error(u->c->diags, here(u), "'%s' needs %s", u->setting->text, what);
    return fail(u);
}

bool cursor_try(Cursor *u, const char *word)
{
    bool there =
        !u->failed && u->at && (u->at->kind == A_NAME || u->at->kind == A_PUNCT) && strcmp(u->at->text, word) == 0;
    if (there)
        advance(u);
    return there;
}

bool cursor_word(Cursor *u, const char *word)
{
    if (cursor_try(u, word))
        return true;
    return needs(u, arena_printf(u->c->arena, "'%s' here", word));
}

const Ast *cursor_name(Cursor *u, const char *what)
{
    if (u->failed || !u->at || u->at->kind != A_NAME) {
        needs(u, what);
        return NULL;
    }
    return advance(u);
}

/* Paths: kept as bytes, but without a newline (the lexer's strings end there) and without NUL (reported by it). */
const Ast *cursor_string(Cursor *u, const char *what)
{
    if (u->failed || !u->at || u->at->kind != A_STRING) {
        needs(u, what);
        return NULL;
    }
    if (u->at->len == 0) {
        diag_error(u->c->diags, u->at->span, "'%s' needs %s, not an empty string", u->setting->text, what);
        fail(u);
        return NULL;
    }
    return advance(u);
}

static bool wrong_unit(Cursor *u, const Ast *number, UnitKind unit)
{
    Arena *a = u->c->arena;
    const Ast *next = number->next;
    const char *wanted = arena_printf(a, "%s, such as %s", unit_what[unit], unit_examples[unit]);
    if (number->number.unit == UNIT_NONE && next && next->kind == A_NAME)
        diag_error(u->c->diags, next->span, "unknown unit '%s'; '%s' needs %s", next->text, u->setting->text, wanted);
    else if (number->number.unit == UNIT_NONE)
        diag_error(u->c->diags, number->span, "missing unit; '%s' needs %s", u->setting->text, wanted);
    else
        diag_error(u->c->diags, number->span, "wrong unit; '%s' needs %s, not %s", u->setting->text, wanted,
                   unit_what[number->number.unit]);
    return fail(u);
}

/* The next number, with its sign, in the right unit. */
static const Ast *take_number(Cursor *u, UnitKind unit, bool *negative)
{
    *negative = cursor_try(u, "-");
    if (u->failed || !u->at || u->at->kind != A_NUMBER) {
        needs(u, arena_printf(u->c->arena, "%s, such as %s", unit_what[unit], unit_examples[unit]));
        return NULL;
    }
    if (u->at->number.bad) {
        fail(u);
        return NULL;
    }
    if (u->at->number.unit != unit) {
        wrong_unit(u, u->at, unit);
        return NULL;
    }
    return advance(u);
}

bool cursor_whole(Cursor *u, int64_t lo, int64_t hi, int64_t *out)
{
    bool negative;
    const Ast *n = take_number(u, UNIT_NONE, &negative);
    if (!n)
        return false;
    int64_t value = negative ? -n->number.whole : n->number.whole;
    if (!n->number.is_whole) {
        diag_error(u->c->diags, n->span, "'%s' needs a whole number", u->setting->text);
        return fail(u);
    }
    if (value < lo || value > hi) {
        diag_error(u->c->diags, n->span, "'%s' must be from %lld to %lld", u->setting->text, (long long)lo,
                   (long long)hi);
        return fail(u);
    }
    *out = value;
    return true;
}

bool cursor_number(Cursor *u, UnitKind unit, double lo, double hi, double *out)
{
    static const char *const base[UNIT_KIND_COUNT] = {"", " bytes", " bytes/s", " FLOP/s", " ns"};
    bool negative;
    const Ast *n = take_number(u, unit, &negative);
    if (!n)
        return false;
    double value = negative ? -n->number.value : n->number.value;
    if (!(value >= lo && value <= hi)) {
        diag_error(u->c->diags, n->span, "'%s' must be from %g to %g%s", u->setting->text, lo, hi, base[unit]);
        return fail(u);
    }
    *out = value;
    return true;
}

static const char *joined(Arena *a, const char *const *names, int n)
{
    const char *text = "";
    for (int i = 0; i < n; i++)
        text = arena_printf(a, "%s%s%s", text, i == 0 ? "" : i == n - 1 ? " or " : ", ", names[i]);
    return text;
}

int cursor_choice(Cursor *u, const char *const *names, int n)
{
    const char *all = joined(u->c->arena, names, n);
    const Ast *word = cursor_name(u, all);
    if (!word)
        return -1;
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], word->text) == 0)
            return i;
    const char *near = nearest_name(word->text, names, n);
    diag_error(u->c->diags, word->span, "'%s' cannot be '%s'; it is %s", u->setting->text, word->text, all);
    if (near)
        diag_fixit(u->c->diags, word->span, near);
    fail(u);
    return -1;
}

bool cursor_end(Cursor *u)
{
    if (u->failed)
        return false;
    if (!u->at)
        return true;
    if (u->at->kind == A_NAME) {
        diag_error(u->c->diags, u->behind, "expected ';' here, before '%s'", u->at->text);
        diag_fixit(u->c->diags, u->behind, ";");
    } else {
        diag_error(u->c->diags, u->at->span, "'%s' takes no further value", u->setting->text);
    }
    return fail(u);
}

void unknown_word(Checker *c, Span at, const char *word, const char *const *names, int n, const char *kind)
{
    const char *near = nearest_name(word, names, n);
    if (!near) {
        diag_error(c->diags, at, "unknown %s '%s'", kind, word);
        return;
    }
    diag_error(c->diags, at, "unknown %s '%s'; did you mean '%s'?", kind, word, near);
    diag_fixit(c->diags, at, near);
}

void not_planned(Checker *c, Span at, const char *what, const char *use)
{
    diag_error(c->diags, at, "`%s` is not planned by this version of burstc; use %s", what, use);
}

void duplicate(Checker *c, const Ast *second, Span first, const char *what)
{
    diag_error(c->diags, second->name_span, "%s is set twice", what);
    diag_note(c->diags, first, "first here");
}

static const Field *find_field(Checker *c, const Ast *s, const Field *fields, int n, const char *what)
{
    const char **names = NEW_ARRAY(c->arena, const char *, n);
    for (int i = 0; i < n; i++) {
        if (strcmp(fields[i].name, s->text) == 0)
            return &fields[i];
        names[i] = fields[i].name;
    }
    unknown_word(c, s->name_span, s->text, names, n, arena_printf(c->arena, "setting of %s:", what));
    if (!nearest_name(s->text, names, n))
        diag_note(c->diags, (Span){0}, "%s has %s", what, joined(c->arena, names, n));
    return NULL;
}

static bool block_as_field(Checker *c, const Ast *s, const Field *f)
{
    if (s->has_body == ((f->flags & FIELD_BLOCK) != 0))
        return true;
    diag_error(c->diags, s->span, s->has_body ? "'%s' takes no block; end it with ';'" : "'%s' needs a block { ... }",
               s->text);
    return false;
}

void take_fields(Checker *c, AstList settings, const Field *fields, int n, void *to, const char *what, Span at)
{
    Span *first = NEW_ARRAY(c->arena, Span, n);
    int before = diags_errors(c->diags);
    for (const Ast *s = settings.first; s; s = s->next) {
        const Field *f = find_field(c, s, fields, n, what);
        if (!f || !block_as_field(c, s, f))
            continue;
        Span *seen = &first[f - fields];
        if (seen->src && !(f->flags & FIELD_REPEATS)) {
            duplicate(c, s, *seen, arena_printf(c->arena, "'%s'", s->text));
            continue;
        }
        *seen = s->name_span;
        f->take(c, s, f, (char *)to + f->offset);
    }
    bool clean = diags_errors(c->diags) == before; /* else what is missing may be what was misspelled */
    for (int i = 0; i < n; i++)
        if (clean && (fields[i].flags & FIELD_REQUIRED) && !first[i].src)
            diag_error(c->diags, at, "%s needs '%s'", what, fields[i].name);
}

void take_int64(Checker *c, const Ast *setting, const Field *f, void *to)
{
    Cursor u = cursor_of(c, setting);
    cursor_whole(&u, (int64_t)f->lo, (int64_t)f->hi, to);
    cursor_end(&u);
}

void take_int(Checker *c, const Ast *setting, const Field *f, void *to)
{
    int64_t value = *(int *)to;
    take_int64(c, setting, f, &value);
    *(int *)to = (int)value;
}

void take_double(Checker *c, const Ast *setting, const Field *f, void *to)
{
    Cursor u = cursor_of(c, setting);
    cursor_number(&u, f->unit, f->lo, f->hi, to);
    cursor_end(&u);
}

void take_once(Checker *c, const Ast *setting, const Field *f, void *to)
{
    const Ast **slot = to;
    if (c->stock)
        diag_error(c->diags, setting->span, "'%s' does not belong in a stock file", f->name);
    else if (*slot)
        duplicate(c, setting, (*slot)->name_span, arena_printf(c->arena, "'%s'", f->name));
    else
        *slot = setting;
}

const char *block_name(Checker *c, const Ast *setting)
{
    Cursor u = cursor_of(c, setting);
    const Ast *name = cursor_name(&u, "a name");
    return cursor_end(&u) ? name->text : NULL;
}
