/* words/selection.c: a selection's words and sizes: `top n of k / b by dot(first Q, mean K) for each head per
 * 128 queries where causal always k / b == q / b;`. Its conditions are masks (check_mask.c). */
#include "check.h"

#include <string.h>

enum { TILE = 128, UNIT = 16, MOST_KEYS = 1024 };

/* Words of a list, apart by a blank. */
static const char *words_text(Checker *c, AstList words)
{
    const char *text = "";
    for (const Ast *w = words.first; w; w = w->next)
        text = arena_printf(c->arena, "%s%s%s", text, *text ? " " : "", w->text);
    return text;
}

/* The index of what the words say, among names; -1 after an error. */
static int words_choice(Checker *c, const Ast *a, const char *const *names, int n, const char *what)
{
    const char *text = words_text(c, a->args);
    Text all = {0};
    for (int i = 0; i < n; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    for (int i = 0; i < n; i++)
        text_printf(&all, "%s%s", list_separator(i, n, " or "), names[i]);
    diag_error(c->diags, a->span, "%s cannot be '%s'; expected %s", what, text, all.at);
    text_free(&all);
    return -1;
}

bool selection_words(Checker *c, const Ast *ast, Selection *s)
{
    static const char *const queries[] = {BURST_SELECT_QUERIES(BURST_SELECT_NAME)},
                             *const keys[] = {BURST_SELECT_KEYS(BURST_SELECT_NAME)},
                             *const heads[] = {BURST_SELECT_HEADS(BURST_SELECT_NAME)};
    const Ast *score = ast->body.first, *mark = score->next, *shared = mark->next, *tile = shared->next,
              *per = tile->args.first;
    const char *indexer = c->indexer && c->indexer->args.first ? c->indexer->args.first->text : NULL;
    s->score = score->text;
    s->indexer = indexer && strcmp(score->text, indexer) == 0;
    if (!s->indexer && strcmp(score->text, "dot") != 0) {
        diag_error(c->diags, score->name_span,
                   "the score of a block is a product: write dot(first Q, mean K), or an indexer's name in "
                   "place of dot");
        return false;
    }
    s->query = words_choice(c, score->args.first, queries, countof(queries), "the query of a tile");
    s->key = words_choice(c, score->args.first->next, keys, countof(keys), "the key of a block");
    s->heads = shared->args.n ? words_choice(c, shared, heads, countof(heads), "'for'") : BURST_SELECT_OF_KV;
    s->query_rows = s->query == BURST_SELECT_PREVIOUS_MEAN ? 2 : 1;
    s->for_each = s->heads == BURST_SELECT_OF_HEAD ? 1 : -(s->heads == BURST_SELECT_OF_ALL);
    s->query_span = score->args.first->span;
    s->noncausal = mark->kind == A_NAME;
    s->queries = TILE;
    if (s->noncausal && strcmp(mark->text, "noncausal") != 0) {
        diag_error(c->diags, mark->span, "unexpected '%s'; a score may be followed by 'noncausal'",
                   mark->text);
        return false;
    }
    if (per->number.bad || per->number.unit != UNIT_NONE || per->number.value != TILE ||
        strcmp(per->next->text, "queries") != 0) {
        diag_error(c->diags, tile->span, "blocks are chosen for tiles of %d queries; write per %d queries",
                   TILE, TILE);
        return false;
    }
    return s->query >= 0 && s->key >= 0 && s->heads >= 0;
}

bool selection_sizes(Checker *c, const Ast *ast, Selection *s)
{
    const Ast *top = ast->more.first;
    if (s->top < 1 || s->top > INT16_MAX) {
        diag_error(c->diags, top->span, "a selection keeps 1 to %d blocks, as a constant", INT16_MAX);
        return false;
    }
    if (s->block < UNIT || s->block % UNIT || s->block > (INT64_C(1) << 30)) {
        diag_error(c->diags, top->next->span, "blocks of %lld keys are not supported; use a multiple of %d",
                   (long long)s->block, UNIT);
        return false;
    }
    s->key_rows = burst_select_width(s->key, s->block, 1);
    if (s->key == BURST_SELECT_MAX_KEY && s->block > MOST_KEYS) {
        diag_error(c->diags, top->next->span,
                   "`max K` compares each key of a block: blocks have at most %d keys with it", MOST_KEYS);
        return false;
    }
    if (s->query == BURST_SELECT_OWN_MEAN && !s->noncausal) {
        diag_error(c->diags, s->query_span,
                   "the mean of a tile's own queries shows its first queries later tokens; use `first Q` or "
                   "`previous mean Q`, or write `noncausal` after the score");
        return false;
    }
    return true;
}

static const Expr *find_selected(const Expr *e)
{
    if (!e || e->op == E_SELECTED)
        return e;
    const Expr *found = find_selected(e->a);
    return found ? found : find_selected(e->b);
}

bool selection_is_static(Checker *c, const Expr *condition, Span at, const char *clause)
{
    if (!find_selected(condition))
        return true;
    diag_error(c->diags, at, "'%s' cannot use a selection; write it as a mask of positions and tables",
               clause);
    return false;
}

static bool reads_tables(const Expr *e)
{
    return e && (e->op == E_TABLE_Q || e->op == E_TABLE_K || reads_tables(e->a) || reads_tables(e->b));
}

int64_t selection_candidates(const Program *p, const Selection *s)
{
    const int64_t blocks = (p->sequence + s->block - 1) / s->block,
                  tile = p->sequence > 0 ? (p->sequence - 1) / s->queries * s->queries : 0;
    int64_t n = 0;
    if (reads_tables(s->open))
        return blocks > 0 ? blocks : 1;
    for (int64_t b = 0; b < blocks; b++)
        n += expr_eval(s->open, tile, b * s->block, NULL, NULL) != 0;
    return n > 0 ? n : 1;
}

/* The first selection that the expression reads, and whether it reads another one. */
static const Selection *only_selection(const Expr *e, const Selection *known, bool *several)
{
    if (!e)
        return known;
    if (e->op == E_SELECTED) {
        *several |= known && e->selection != known;
        return e->selection;
    }
    return only_selection(e->b, only_selection(e->a, known, several), several);
}

/* The table of documents that an expression reads, counted from 1; 0: none. */
static int documents_of(const Checker *c, const Expr *e)
{
    if (!e)
        return 0;
    const bool table = e->op == E_TABLE_Q || e->op == E_TABLE_K;
    if (table && c->used_tables.at[e->value].kind != BURST_TABLE_GIVEN)
        return (int)e->value + 1;
    const int found = documents_of(c, e->a);
    return found ? found : documents_of(c, e->b);
}

int selection_of(Checker *c, const Expr *mask, Span at)
{
    bool several = false;
    const Selection *s = only_selection(mask, NULL, &several);
    if (several) {
        diag_error(c->diags, at, "a mask can use one selection; this one uses two");
        return -1;
    }
    for (int i = 0; s && i < c->used_selections.n; i++)
        if (c->used_selections.at[i] == s) {
            Selection *used = c->used_selections.at[i];
            used->documents = documents_of(c, s->where);
            used->by_position = used->documents &&
                                c->used_tables.at[used->documents - 1].kind == BURST_TABLE_POSITION;
            return i + 1;
        }
    return 0;
}

/* An indexer's heads are shared out evenly over the lists of a tile. */
static void check_index_heads(Checker *c, const Selection *s)
{
    const Model *m = &c->program->model;
    const int lists = burst_select_lists(s->heads, m->heads, m->kv_heads);
    static const char *const names[] = {BURST_SELECT_HEADS(BURST_SELECT_NAME)};
    if (s->indexer && m->indexer.heads % lists)
        diag_error(c->diags, s->span,
                   "`for %s` needs %d choices, which the %d head%s of indexer '%s' cannot make evenly; set "
                   "'heads' to a multiple of %d, or write `for all heads`",
                   names[s->heads], lists, m->indexer.heads, plural(m->indexer.heads), s->score, lists);
}

void check_selections(Checker *c)
{
    const Program *p = c->program;
    if (p->selection_count && p->infer.lengths)
        diag_error(c->diags, p->selections[0].span,
                   "selection '%s' is not supported in a program that infers; `--evaluate` of a program that "
                   "trains computes its loss",
                   p->selections[0].text);
    for (int i = 0; p->library && i < p->selection_count; i++)
        if (p->selections[i].indexer)
            diag_error(c->diags, p->selections[i].span,
                       "selection '%s' scores with an indexer, which reads a layer's input; a library has "
                       "queries and keys alone: score with dot",
                       p->selections[i].text);
    for (int i = 0; i < p->selection_count && !p->library; i++)
        check_index_heads(c, &p->selections[i]);
    for (int t = 0; p->selection_count && t < p->all_tables; t++)
        if (t == BURST_SELECT_TABLE)
            diag_error(c->diags, p->selections[0].span,
                       "masks of a model with a selection read at most %d tables", BURST_SELECT_TABLE);
}
