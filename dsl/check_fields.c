/* check_fields.c: checks settings ("name values;") against tables of fields: units, ranges, unknown, missing
 * and duplicate settings. */
#include "check.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

Cursor cursor_of(Checker *c, const Ast *setting)
{
    Span name = setting->name_span;
    return (Cursor){.c = c,
                    .setting = setting,
                    .at = setting->args.first,
                    .behind = {name.src, name.end, name.end}};
}

const Ast *cursor_next(Cursor *u)
{
    const Ast *taken = u->at;
    u->behind = (Span){taken->span.src, taken->span.end, taken->span.end};
    u->at = taken->next;
    return taken;
}

/* Location of the next value, present or missing. */
static Span here(const Cursor *u) { return u->at ? u->at->span : u->setting->name_span; }

static bool fail(Cursor *u)
{
    u->failed = true;
    return false;
}

/* The setting with the words before a value, since it may have several numbers: `loss tile`, `pcie shared
 * by`. */
static const char *leading_to(const Cursor *u, const Ast *value)
{
    const char *text = u->setting->text;
    for (const Ast *a = u->setting->args.first; a && a != value; a = a->next)
        if (a->kind == A_NAME && strcmp(a->text, "x") != 0 && strcmp(a->text, "auto") != 0)
            text = arena_printf(u->c->arena, "%s %s", text, a->text);
    return text;
}

/* The number as the subject of a message. */
static const char *subject_of(const Cursor *u, const Ast *n)
{
    return u->what ? u->what : arena_printf(u->c->arena, "'%s'", leading_to(u, n));
}

static bool is_punct(const Cursor *u, char c)
{
    return u->at && u->at->kind == A_PUNCT && u->at->text[0] == c && !u->at->text[1];
}

static bool needs(Cursor *u, const char *what)
{
    if (u->at && !u->failed && u->at == u->setting->args.first && u->at->kind == A_PUNCT &&
        *u->at->text == ':')
        diag_error(u->c->diags, u->at->span, "a setting has no ':' after its name; remove it");
    else if (!u->failed && is_punct(u, '-') && u->at->next && u->at->next->kind == A_NUMBER)
        diag_error(u->c->diags, u->at->span, "a range is written with '..', such as 0 .. 3, not with '-'");
    else if (!u->failed && is_punct(u, ','))
        diag_error(u->c->diags, u->at->span, "values of '%s' are separated by spaces, not by ','",
                   leading_to(u, u->at));
    else if (!u->failed)
        diag_error(u->c->diags, here(u), "'%s' requires %s", leading_to(u, u->at), what);
    return fail(u);
}

bool cursor_try(Cursor *u, const char *word)
{
    bool there = !u->failed && u->at && (u->at->kind == A_NAME || u->at->kind == A_PUNCT) &&
                 strcmp(u->at->text, word) == 0;
    if (there)
        cursor_next(u);
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
    return cursor_next(u);
}

/* Paths are kept as bytes. The lexer excludes newlines, which end a string, and reports NUL. */
const Ast *cursor_string(Cursor *u, const char *what)
{
    if (u->failed || !u->at || u->at->kind != A_STRING) {
        needs(u, what);
        return NULL;
    }
    if (u->at->len == 0) {
        diag_error(u->c->diags, u->at->span, "'%s' requires %s, not an empty string", u->setting->text, what);
        fail(u);
        return NULL;
    }
    return cursor_next(u);
}

static bool wrong_unit(Cursor *u, const Ast *number, UnitKind unit)
{
    Arena *a = u->c->arena;
    const Ast *next = number->next;
    const char *name = leading_to(u, number),
               *wanted = arena_printf(a, "%s, such as %s", unit_what[unit], unit_examples[unit]);
    if (number->number.unit == UNIT_NONE && next && next->kind == A_NAME)
        diag_error(u->c->diags, next->span, "unknown unit '%s'; '%s' requires %s", next->text, name, wanted);
    else if (number->number.unit == UNIT_NONE)
        diag_error(u->c->diags, number->span, "missing unit; '%s' requires %s", name, wanted);
    else
        diag_error(u->c->diags, number->span, "wrong unit; '%s' requires %s, not %s", name, wanted,
                   unit_what[number->number.unit]);
    return fail(u);
}

/* Reads the next number, with its sign and unit. */
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
    return cursor_next(u);
}

/* `1,024`, where a single number is expected. */
static bool is_grouped(const Ast *n)
{
    const Ast *comma = n->next, *next = comma ? comma->next : NULL;
    return next && !next->next && comma->kind == A_PUNCT && *comma->text == ',' && next->kind == A_NUMBER &&
           n->span.end == comma->span.begin && comma->span.end == next->span.begin &&
           next->span.end - next->span.begin == 3 && n->span.end - n->span.begin <= 3;
}

bool cursor_whole(Cursor *u, int64_t lo, int64_t hi, int64_t *out)
{
    bool negative;
    const Ast *n = take_number(u, UNIT_NONE, &negative);
    if (!n)
        return false;
    int64_t value = negative ? -n->number.whole : n->number.whole;
    bool huge = number_is_huge(&n->number, INT64_MAX);
    if (!n->number.is_whole && !huge) {
        diag_error(u->c->diags, n->span, "'%s' requires a whole number", leading_to(u, n));
        return fail(u);
    }
    if (is_grouped(n)) {
        diag_error(u->c->diags, n->next->span, "digits are not grouped: write the number without ','");
        return fail(u);
    }
    if (huge || value < lo || value > hi) {
        diag_error(u->c->diags, n->span, "%s must be from %lld to %lld", subject_of(u, n), (long long)lo,
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
        diag_error(u->c->diags, n->span, "%s must be from %g to %g%s", subject_of(u, n), lo, hi, base[unit]);
        return fail(u);
    }
    *out = value;
    return true;
}

static const char *joined(Arena *a, const char *const *names, int n, const char *last)
{
    const char *text = "";
    for (int i = 0; i < n; i++)
        text = arena_printf(a, "%s%s%s", text, list_separator(i, n, last), names[i]);
    return text;
}

/* Truth in other languages, where it is a value; NULL: it is none. */
static const char *yes_or_no(const char *word, const char *const *names, int n)
{
    static const char *const others[][2] = {{"true", "yes"}, {"True", "yes"}, {"on", "yes"},
                                            {"false", "no"}, {"False", "no"}, {"off", "no"}};
    for (int i = 0; i < countof(others); i++)
        for (int k = 0; k < n; k++)
            if (strcmp(word, others[i][0]) == 0 && strcmp(names[k], others[i][1]) == 0)
                return names[k];
    return NULL;
}

int cursor_choice(Cursor *u, const char *const *names, int n)
{
    const char *all = joined(u->c->arena, names, n, " or ");
    const Ast *word = cursor_name(u, all);
    if (!word)
        return -1;
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], word->text) == 0)
            return i;
    const char *near = yes_or_no(word->text, names, n);
    near = near ? near : nearest_name(word->text, names, n);
    diag_error(u->c->diags, word->span,
               "'%s' cannot be '%s'; "
               "expected %s",
               u->setting->text, word->text, all);
    if (near)
        diag_fixit(u->c->diags, word->span, near);
    fail(u);
    return -1;
}

static bool names_field(const Checker *c, const char *word)
{
    for (int i = 0; i < c->field_count; i++)
        if (strcmp(c->fields[i].name, word) == 0)
            return true;
    return false;
}

/* Whether a word after all values is the next setting, after a forgotten ';'. */
static bool begins_setting(const Cursor *u)
{
    const Source *s = u->at->span.src;
    bool line = s == u->behind.src &&
                memchr(s->text + u->behind.end, '\n', u->at->span.begin - u->behind.end) != NULL;
    return names_field(u->c, u->at->text) || (line && u->c->field_count > 0);
}

/* "64 Ki": whether a suffix follows a plain number. */
static bool is_suffix(const Cursor *u)
{
    Number n;
    bool known;
    const char *text = arena_printf(u->c->arena, "1%s", u->at->text);
    bool number = u->behind.begin > 0 && strchr("0123456789", u->behind.src->text[u->behind.begin - 1]);
    return number && u->at->kind == A_NAME && number_read(text, strlen(text), &n, &known) == strlen(text) &&
           known;
}

bool cursor_end(Cursor *u)
{
    if (u->failed)
        return false;
    if (!u->at)
        return true;
    int before = diags_errors(u->c->diags);
    if (u->at->kind == A_NAME && begins_setting(u)) {
        diag_error(u->c->diags, u->behind, "expected ';' here, before '%s'", u->at->text);
        diag_fixit(u->c->diags, u->behind, ";");
        u->c->cut = u->at;
        u->c->mended += diags_errors(u->c->diags) - before;
    } else if (is_suffix(u)) {
        diag_error(u->c->diags, u->at->span, "'%s' must directly follow its number, without a space",
                   u->at->text);
    } else if (is_punct(u, '-') && u->at->span.begin == u->behind.end) {
        diag_error(u->c->diags, u->at->span, "names have letters, digits and '_', no '-'");
    } else if (is_punct(u, ',') && u->at->next && u->at->next->kind == A_NAME &&
               names_field(u->c, u->at->next->text)) {
        diag_error(u->c->diags, u->at->span, "'%s' takes no further value; a setting ends with ';'",
                   u->setting->text);
        diag_fixit(u->c->diags, u->at->span, ";");
    } else if (u->at->kind == A_NAME && u->at->next && u->at->next->kind == A_NUMBER) {
        diag_error(u->c->diags, u->at->span,
                   "'%s' takes no further value; if '%s' is a setting, write ';' before it", u->setting->text,
                   u->at->text);
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

void unknown_of(Checker *c, Span at, const char *word, const char *const *names, int n, const char *kind)
{
    if (nearest_name(word, names, n) || n == 0) {
        unknown_word(c, at, word, names, n, kind);
    } else if (n == 1) {
        diag_error(c->diags, at, "unknown %s '%s'; the only %s is '%s'", kind, word, kind, names[0]);
        diag_fixit(c->diags, at, names[0]);
    } else {
        diag_error(c->diags, at, "unknown %s '%s'; the %ss are %s", kind, word, kind,
                   joined(c->arena, names, n, " and "));
    }
}

void not_planned(Checker *c, Span at, const char *what, const char *use)
{
    diag_error(c->diags, at, "`%s` is not supported by this version of burstc; use %s", what, use);
}

void duplicate(Checker *c, const Ast *second, Span first, const char *what)
{
    diag_error(c->diags, second->name_span, "%s is set twice", what);
    diag_note(c->diags, first, "first here");
}

static bool in_word(char ch) { return ch == '_' || isalnum((unsigned char)ch); }

Span word_in(Span setting, const char *word)
{
    const char *text = setting.src->text;
    const uint32_t n = (uint32_t)strlen(word);
    for (uint32_t i = setting.begin, end; i < setting.end; i = end) {
        end = i + 1;
        if (text[i] == '#')
            end = i + (uint32_t)strcspn(text + i, "\n");
        while (in_word(text[i]) && end < setting.end && in_word(text[end]))
            end++;
        if (end - i == n && strncmp(text + i, word, n) == 0)
            return (Span){setting.src, i, end};
    }
    return setting;
}

/* The setting most likely meant, by all of its words or the first; NULL: none is near. */
static const char *nearest_field(Arena *a, const Field *fields, int n, const char *word)
{
    const char **full = NEW_ARRAY(a, const char *, n), **first = NEW_ARRAY(a, const char *, n);
    for (int i = 0; i < n; i++) {
        first[i] = fields[i].name;
        full[i] = fields[i].full ? fields[i].full : fields[i].name;
    }
    const char *near = nearest_name(word, first, n);
    for (int i = 0; i < n && near; i++)
        if (strcmp(near, first[i]) == 0)
            return full[i];
    return nearest_name(word, full, n);
}

/* The replacement for the misspelt word; a second word of the setting may follow it already. */
static const char *replacement(Arena *a, const Ast *s, const char *near)
{
    const char *second = strchr(near, ' ');
    const Ast *next = s->args.first;
    const bool there = second && next && next->kind == A_NAME && strcmp(next->text, second + 1) == 0;
    return there ? arena_copy(a, near, (size_t)(second - near)) : near;
}

static void unknown_setting(Checker *c, const Ast *s, const Field *fields, int n, const char *what)
{
    const char *answer = foreign_answer(c, s->text, what);
    const char *near = answer ? NULL : nearest_field(c->arena, fields, n, s->text), *all = "";
    if (answer) {
        diag_error(c->diags, s->name_span, "unknown setting of %s: '%s'; %s", what, s->text, answer);
    } else if (near) {
        diag_error(c->diags, s->name_span, "unknown setting of %s: '%s'; did you mean '%s'?", what, s->text,
                   near);
        diag_fixit(c->diags, s->name_span, replacement(c->arena, s, near));
    } else {
        diag_error(c->diags, s->name_span, "unknown setting of %s: '%s'", what, s->text);
        for (int i = 0; i < n; i++)
            all = arena_printf(c->arena, "%s%s%s", all, list_separator(i, n, " and "),
                               fields[i].full ? fields[i].full : fields[i].name);
        diag_note(c->diags, (Span){0}, "%s has %s", what, all);
    }
}

static const Field *find_field(Checker *c, const Ast *s, const Field *fields, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (strcmp(fields[i].name, s->text) == 0)
            return &fields[i];
    unknown_setting(c, s, fields, n, what);
    return NULL;
}

bool has_setting(AstList items, const Field *fields, int n)
{
    for (const Ast *s = items.first; s; s = s->next)
        for (int i = 0; i < n; i++)
            if (s->kind == A_SETTING && strcmp(s->text, fields[i].name) == 0 &&
                strcmp(s->text, "import") != 0)
                return true;
    return false;
}

/* Whether the block belongs to a setting after a forgotten ';': `sequence 1Ki layout { ... }`. */
static bool is_anothers_block(Checker *c, const Ast *s)
{
    for (const Ast *a = s->args.first ? s->args.first->next : NULL; a; a = a->next)
        if (a->kind == A_NAME && names_field(c, a->text))
            return true;
    return false;
}

static const char *block_example(const char *setting)
{
    static const char *const examples[][2] = {{"attention", ", such as attention { default causal; }"},
                                              {"layout", ", such as layout { schedule burst; }"},
                                              {"train", ", such as train { steps 100; }"},
                                              {"infer", ", such as infer { lengths 16Ki; tokens 256; }"},
                                              {"optimizer", ", such as optimizer adamw { lr 3e-4; }"},
                                              {"nodes", ", such as nodes 1 { gpus 8 of h100; }"}};
    for (int i = 0; i < countof(examples); i++)
        if (strcmp(examples[i][0], setting) == 0)
            return examples[i][1];
    return "";
}

static bool block_as_field(Checker *c, const Ast *s, const Field *f)
{
    if ((f->flags & FIELD_MAY_BLOCK) || s->has_body == ((f->flags & FIELD_BLOCK) != 0) ||
        (s->has_body && is_anothers_block(c, s)))
        return true;
    if (s->has_body)
        diag_error(c->diags, s->span, "'%s' takes no block; end it with ';'", s->text);
    else
        diag_error(c->diags, s->span, "'%s' requires a block { ... }%s", s->text, block_example(s->text));
    return false;
}

/* The setting after s: the next one, or one after a forgotten ';' among the values of s. */
static const Ast *following(Checker *c, const Ast *s)
{
    const Ast *word = c->cut;
    if (!word)
        return s->next;
    Ast *rest = NEW(c->arena, Ast);
    *rest = (Ast){.kind = A_SETTING,
                  .span = span_join(word->span, s->args.last->span),
                  .name_span = word->span,
                  .text = word->text,
                  .len = word->len,
                  .args = {word->next, word->next ? s->args.last : NULL, 0},
                  .body = s->body,
                  .has_body = s->has_body,
                  .next = s->next};
    for (const Ast *a = word->next; a; a = a->next)
        rest->args.n++;
    return rest;
}

static void take_field(Checker *c, const Ast *s, const Field *f, Span *seen, void *to)
{
    if (!block_as_field(c, s, f))
        return;
    if (seen->src && !(f->flags & FIELD_REPEATS)) {
        duplicate(c, s, *seen, arena_printf(c->arena, "'%s'", f->full ? f->full : s->text));
        return;
    }
    *seen = s->name_span;
    if (f->span)
        *(Span *)(void *)((char *)to + f->span) = s->span;
    f->take(c, s, f, (char *)to + f->offset);
}

void take_fields(Checker *c, AstList settings, const Field *fields, int n, void *to, const char *what,
                 Span at)
{
    Span *first = NEW_ARRAY(c->arena, Span, n);
    const Field *outer = c->fields;
    const Ast *outer_cut = c->cut;
    int before = diags_errors(c->diags), outer_count = c->field_count;
    c->fields = fields;
    c->field_count = n;
    for (const Ast *s = settings.first; s; s = following(c, s)) {
        c->cut = NULL;
        const Field *f = find_field(c, s, fields, n, what);
        if (f)
            take_field(c, s, f, &first[f - fields], to);
    }
    c->fields = outer;
    c->field_count = outer_count;
    c->cut = outer_cut;
    bool clean = diags_errors(c->diags) ==
                 before; /* otherwise the missing setting may be the misspelt one */
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

void take_word(Checker *c, const Ast *setting, const char *const *words, int n, int *to)
{
    Cursor u = cursor_of(c, setting);
    const int word = cursor_choice(&u, words, n);
    if (word >= 0 && cursor_end(&u))
        *to = word;
}

void take_yes_no(Checker *c, const Ast *setting, const Field *f, void *to)
{
    static const char *const words[] = {"no", "yes"};
    (void)f;
    Cursor u = cursor_of(c, setting);
    int word = cursor_choice(&u, words, 2);
    if (cursor_end(&u))
        *(bool *)to = word == 1;
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
        diag_error(c->diags, setting->span, "'%s' is not allowed in a stock file", f->name);
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

void take_file(Checker *c, AstList items, void (*declare)(Checker *c, Ast *s), const Field *fields, int n,
               const char *where)
{
    AstList settings = {0};
    for (Ast *s = items.first, *next; s; s = next) {
        next = s->next;
        s->next = NULL;
        if (s->kind == A_SETTING)
            settings = ast_add(settings, s);
        else
            declare(c, s);
    }
    take_fields(c, settings, fields, n, c, where, (Span){0});
}
