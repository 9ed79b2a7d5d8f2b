/* words/mistakes.c: finds what was most likely meant by a text that does not parse. */
#include "words/mistakes.h"

#include <ctype.h>
#include <string.h>

typedef struct Word {
    const char *word, *ours;
} Word;
/* Statements of schedules in other words. */
static const Word statements[] = {
    {"send", "pass"},         {"recv", "pass"},
    {"receive", "pass"},      {"transfer", "pass"},
    {"isend", "pass"},        {"irecv", "pass"},
    {"shift", "pass"},        {"rotate", "pass"},
    {"compute", "attend"},    {"attention", "attend"},
    {"attn", "attend"},       {"gradient", "grad"},
    {"allgather", "gather"},  {"all_gather", "gather"},
    {"reduce", "scatter"},    {"reduce_scatter", "scatter"},
    {"alltoall", "exchange"}, {"all_to_all", "exchange"},
    {"all2all", "exchange"},  {"loop", "for"},
    {"while", "for"},         {"repeat", "for"},
    {"fwd", "forward"},       {"bwd", "backward"},
    {"assert", "require"},
};
static const char *const keywords[] = {"schedule", "forward", "backward", "for",      "if",     "attend",
                                       "grad",     "pass",    "return",   "exchange", "gather", "scatter",
                                       "use",      "require", "stage",    "fetch",    "over",   "pieces",
                                       "with",     "to",      "in",       "of",       "mirrors"};

static bool is_letter(char c) { return c == '_' || isalnum((unsigned char)c); }

/* Skips blanks and comments. */
static uint32_t next_token(const Source *s, uint32_t at, uint32_t end)
{
    while (at < end && (isspace((unsigned char)s->text[at]) || s->text[at] == '#'))
        at += s->text[at] == '#' ? (uint32_t)strcspn(s->text + at, "\n") : 1;
    return at;
}

/* The begin of the statement at a position. */
static uint32_t statement_begin(const Source *s, uint32_t at)
{
    uint32_t begin = 0;
    for (uint32_t i = next_token(s, 0, at); i < at; i = next_token(s, i + 1, at))
        if (strchr(";{}", s->text[i]))
            begin = i + 1;
    return next_token(s, begin, at);
}

static Span word_at(const Source *s, uint32_t at)
{
    uint32_t end = at;
    while (end < s->len && is_letter(s->text[end]))
        end++;
    return (Span){s, at, end};
}

static bool is_keyword(const char *word)
{
    for (int i = 0; i < countof(keywords); i++)
        if (strcmp(keywords[i], word) == 0)
            return true;
    return false;
}

/* A misspelt word of a schedule. */
static Mistake misspelt(Arena *a, const Source *s, Span at)
{
    const char *word = arena_copy(a, s->text + at.begin, at.end - at.begin), *ours = NULL;
    if (!*word || !isalpha((unsigned char)*word) || is_keyword(word))
        return (Mistake){0};
    for (int i = 0; i < countof(statements); i++)
        if (strcmp(statements[i].word, word) == 0)
            ours = statements[i].ours;
    ours = ours ? ours : nearest_name(word, keywords, countof(keywords));
    if (!ours)
        return (Mistake){0};
    return (Mistake){at, arena_printf(a, "unexpected '%s'; did you mean '%s'?", word, ours), ours};
}

static Mistake in_schedule(Arena *a, const Source *s, Span first, Span at)
{
    const Mistake m = misspelt(a, s, first);
    return m.text ? m : misspelt(a, s, word_at(s, at.begin));
}

/* Whether the file has a schedule, or would with its first word spelt right. */
static bool is_schedule(const Source *s)
{
    static const char *const schedule[] = {"schedule"};
    const Span first = word_at(s, next_token(s, 0, (uint32_t)s->len));
    char word[16] = "";
    const size_t n = first.end - first.begin;
    memcpy(word, s->text + first.begin, n < sizeof word ? n : 0);
    return nearest_name(word, schedule, 1) != NULL || strcmp(word, "schedule") == 0;
}

static Mistake at_equals(Arena *a, Span at, Span first, const char *word)
{
    static const char *const mask[] = {"mask"};
    if (nearest_name(word, mask, 1))
        return (Mistake){first, arena_printf(a, "unknown statement '%s'; did you mean 'mask'?", word),
                         "mask"};
    return (Mistake){at, arena_printf(a, "a setting has no '=': write `%s` and its values, then ';'", word),
                     NULL};
}

static bool is_path(char c) { return is_letter(c) || strchr("./-~", c); }

/* A path without quotes, in which a place is; empty: it is in none. */
static Span path_at(const Source *s, Span at)
{
    uint32_t begin = at.begin, end = at.begin;
    while (begin > 0 && s->text[begin - 1] && is_path(s->text[begin - 1]))
        begin--;
    while (end < s->len && s->text[end] && is_path(s->text[end]))
        end++;
    return (Span){s, begin, end > at.begin + 1 ? end : begin};
}

Mistake mistake_at(Arena *a, const Source *s, Span at)
{
    const uint32_t begin = statement_begin(s, at.begin);
    const Span first = word_at(s, begin);
    const char *word = arena_copy(a, s->text + begin, first.end - begin);
    const char token = at.begin < s->len ? s->text[at.begin] : 0;
    const bool mask = strcmp(word, "mask") == 0;
    if (is_schedule(s))
        return in_schedule(a, s, first, at);
    if (token == '=' && !mask && *word)
        return at_equals(a, at, first, word);
    if (token == '^')
        return (Mistake){at, "'^' is no power here; write the number, such as 64Ki", NULL};
    if (token == '"' && at.begin == begin)
        return (Mistake){at, "the name of a setting has no quotes", NULL};
    const Span path = path_at(s, at);
    if ((token == '.' || token == '/') && !mask && *word && path.end > path.begin && path.begin > first.end)
        return (Mistake){path,
                         arena_printf(a, "a path stands in quotes: \"%.*s\"", (int)(path.end - path.begin),
                                      s->text + path.begin),
                         NULL};
    if (token == '(' && !mask && *word && at.begin > first.end)
        return (Mistake){at, "values of a setting stand one after another, without parentheses", NULL};
    if (isdigit((unsigned char)token) && at.begin == begin)
        return (Mistake){at, "a setting begins with its name, such as `gpus 8 of h100;`", NULL};
    if (mask && memchr(s->text + begin, '(', at.begin - begin) &&
        !memchr(s->text + begin, '=', at.begin - begin))
        return (Mistake){at, "a mask is written `mask name(parameters) = condition;`", NULL};
    return (Mistake){0};
}

/* ---- characters ---- */

const char *foreign_character(const char *text)
{
    static const struct { const char *character, *what; } others[] = {
        {"\xc2\xa0", "a no-break space stands here; write a plain one"},
        {"\xe2\x80\x8b", "a space without width stands here; remove it"},
        {"\xef\xbb\xbf", "a byte order mark stands here; save the file as UTF-8 without it"},
        {"\xe2\x80\x93", "a dash stands here; write '-'"},
        {"\xe2\x80\x94", "a dash stands here; write '-'"},
        {"\xe2\x80\x9c", "a typographic quote stands here; write '\"'"},
        {"\xe2\x80\x9d", "a typographic quote stands here; write '\"'"},
        {"\xe2\x80\x98", "a typographic quote stands here; names have no quotes, paths have '\"'"},
        {"\xe2\x80\x99", "a typographic quote stands here; names have no quotes, paths have '\"'"},
        {"~", "'~' is not expanded; write the whole path, in quotes"},
        {"'", "names have no quotes, paths have '\"'"},
        {"\xef\xbc\x9b", "a full-width ';' stands here; write a plain one"},
    };
    for (int i = 0; i < countof(others); i++)
        if (strncmp(text, others[i].character, strlen(others[i].character)) == 0)
            return others[i].what;
    return NULL;
}

/* ---- blocks ---- */

Span open_block(const Source *s)
{
    enum { DEEPEST = 64 };
    uint32_t open[DEEPEST], at = 0;
    int n = 0;
    for (; at < s->len; at++) {
        at = next_token(s, at, (uint32_t)s->len);
        if (at < s->len && s->text[at] == '"')
            at += 1 + (uint32_t)strcspn(s->text + at + 1, "\"\n");
        else if (at < s->len && s->text[at] == '{' && n < DEEPEST)
            open[n++] = at;
        else if (at < s->len && s->text[at] == '}' && n > 0)
            n--;
    }
    return n ? (Span){s, open[n - 1], open[n - 1] + 1} : (Span){0};
}

/* ---- comments ---- */

bool is_comment_place(const Source *s, uint32_t at)
{
    while (at > 0 && (s->text[at - 1] == ' ' || s->text[at - 1] == '\t'))
        at--;
    return at == 0 || strchr("\n\r;{},", s->text[at - 1]);
}

const char *needless_semicolon(const Source *s, uint32_t last_end)
{
    const char before = last_end ? s->text[last_end - 1] : 0;
    if (before == '}')
        return "a block ends with '}' alone; remove this ';'";
    return before == ';' || before == '{' ? "there is nothing before this ';'; remove it" : NULL;
}
