/* parse.y: one grammar for .topo, .burst and .sched. It only makes Ast nodes; the checker interprets
 * settings. After a syntax error the rest of the statement or block is skipped. */
%define api.pure full
%define api.prefix {burst_yy}
%define api.location.type {Span}
%define parse.error custom
%define parse.lac full
%locations
%expect 0
%parse-param {Parser *p}
%lex-param {Parser *p}

%code requires {
#include "ast.h"
}

%union {
    Ast *node;
    AstList list;
}

%code {
#include "words/mistakes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define YYMALLOC xmalloc
#define YYFREE free
/* The parser's stack bounds nesting: deeper input is a diagnosed error. */
#define YYMAXDEPTH 2000
#define YYLLOC_DEFAULT(current, rhs, n) \
    ((current) = (n) ? span_join(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, n)) \
                     : (Span){YYRHSLOC(rhs, 0).src, YYRHSLOC(rhs, 0).end, YYRHSLOC(rhs, 0).end})

int lexer_scan(BURST_YYSTYPE *val, Span *at, void *lexer);
static int burst_yylex(BURST_YYSTYPE *val, Span *at, Parser *p);
static void burst_yyerror(const Span *at, Parser *p, const char *text);
}

%token MASK "mask" SCHEDULE "schedule" OVER "over" OF "of" PIECES "pieces"
%token FORWARD "forward" BACKWARD "backward"
%token FOR "for" IN "in" IF "if" ATTEND "attend" GRAD "grad" WITH "with" PASS "pass" TO "to" RETURN "return"
%token EXCHANGE "exchange" LATER "statement" COLLECTIVE "gather" USE "use" FILE_ "file" AT "at"
%token AND "and" OR "or" NOT "not" MOD "mod"
%token SELECT "select" TOP "top" BY "by" PER "per" WHERE "where" ALWAYS "always"
%token DOTDOT ".." ARROW "->" BIARROW "<->" LE "<=" GE ">=" EQ "==" NE "!="
%token IDENT "a name"
%token <node> NUMBER "a number" STRING "a string"

%type <node> item setting value punct name title word call mask schedule pieces
%type <node> selection score pooled shared tile always mark
%type <node> coord phase stmt ref expr primary index along
%type <list> items settings values values1 block params names coords phases stmts
%type <list> stmt_block refs words exprs later
%type <list> exchanged over indices alongs bases

%left OR
%left AND
%precedence NOT
%nonassoc '<' '>' LE GE EQ NE '='
%left '+' '-'
%left '*' '/' MOD
%precedence NEGATE
%right '^'

%%

file: items                                 { p->items = $1; }
    ;

items: %empty                               { $$ = ast_list(NULL); }
    | items item                            { $$ = ast_add($1, $2); }
    | items error ';'                       { $$ = $1; yyerrok; }
    | items error '}'                       { $$ = $1; yyerrok; }
    ;

item: setting
    | mask
    | selection
    | schedule
    ;

/* ---- settings: word, values, then ';' or a block ---- */
setting: word values ';'                    { $$ = $1; $$->kind = A_SETTING; $$->args = $2; $$->span = @$; }
    | word values block                     { $$ = $1; $$->kind = A_SETTING; $$->args = $2; $$->body = $3;
                                              $$->has_body = true; $$->span = span_join(@1, @2); }
    ;

block: '{' settings '}'                     { $$ = $2; }
    | '{' settings error '}'                { $$ = $2; yyerrok; }
    ;

settings: %empty                            { $$ = ast_list(NULL); }
    | settings setting                      { $$ = ast_add($1, $2); }
    | settings SCHEDULE values1 ';'         { $$ = ast_add($1, ast_word(p, A_SETTING, @2));
                                              $$.last->args = $3;
                                              $$.last->span = span_join(@2, @4); }
    | settings error ';'                    { $$ = $1; yyerrok; }
    ;

values: %empty                              { $$ = ast_list(NULL); }
    | values1
    ;

values1: value                              { $$ = ast_list($1); }
    | values1 value                         { $$ = ast_add($1, $2); }
    ;

value: NUMBER
    | STRING
    | word
    | FOR                                   { $$ = ast_word(p, A_NAME, @1); }
    | call
    | punct
    ;

punct: ','                                  { $$ = ast_word(p, A_PUNCT, @1); }
    | ':'                                   { $$ = ast_word(p, A_PUNCT, @1); }
    | '-'                                   { $$ = ast_word(p, A_PUNCT, @1); }
    | '/'                                   { $$ = ast_word(p, A_PUNCT, @1); }
    | DOTDOT                                { $$ = ast_word(p, A_PUNCT, @1); }
    ;

/* Most words of the schedule language are ordinary words here ("cosine to 3e-5", "attention forward 600
 * TFLOP/s"). */
word: IDENT                                 { $$ = ast_word(p, A_NAME, @1); }
    | OF                                    { $$ = ast_word(p, A_NAME, @1); }
    | FORWARD                               { $$ = ast_word(p, A_NAME, @1); }
    | BACKWARD                              { $$ = ast_word(p, A_NAME, @1); }
    | TO                                    { $$ = ast_word(p, A_NAME, @1); }
    | IN                                    { $$ = ast_word(p, A_NAME, @1); }
    | AT                                    { $$ = ast_word(p, A_NAME, @1); }
    | FILE_                                 { $$ = ast_word(p, A_NAME, @1); }
    | PASS                                  { $$ = ast_word(p, A_NAME, @1); }
    | PIECES                                { $$ = ast_word(p, A_NAME, @1); }
    | EXCHANGE                              { $$ = ast_word(p, A_NAME, @1); }
    | LATER                                 { $$ = ast_word(p, A_NAME, @1); }
    | COLLECTIVE                            { $$ = ast_word(p, A_NAME, @1); }
    | USE                                   { $$ = ast_word(p, A_NAME, @1); }
    ;

title: name
    | COLLECTIVE                            { $$ = ast_word(p, A_NAME, @1); }
    ;

name: IDENT                                 { $$ = ast_word(p, A_NAME, @1); }
    ;

call: IDENT '(' exprs ')'                   { $$ = ast_word(p, A_CALL, @1); $$->args = $3; $$->span = @$; }
    ;

/* ---- masks ---- */
mask: MASK name params '=' expr ';'         { $$ = $2; $$->kind = A_MASK; $$->args = $3;
                                              $$->more = ast_list($5);
                                              $$->span = span_join(@1, @3); }
    ;

/* ---- selections ---- */
selection: SELECT name params '=' TOP expr OF expr BY score mark shared tile WHERE expr always ';'
                                            { $$ = $2; $$->kind = A_SELECT; $$->args = $3;
                                              $$->more = ast_add(ast_list($6), $8);
                                              $$->more = ast_add(ast_add($$->more, $15), $16);
                                              $$->body = ast_add(ast_add(ast_list($10), $11), $12);
                                              $$->body = ast_add($$->body, $13);
                                              $$->span = span_join(@1, @3); }
    ;

score: IDENT '(' pooled ',' pooled ')'      { $$ = ast_word(p, A_COORD, @1);
                                              $$->args = ast_add(ast_list($3), $5); $$->span = @$; }
    ;

pooled: words                               { $$ = ast_word(p, A_COORD, @$); $$->args = $1; }
    ;

mark: %empty                                { $$ = ast_word(p, A_COORD, @$); }
    | name
    ;

shared: %empty                              { $$ = ast_word(p, A_COORD, @$); }
    | FOR words                             { $$ = ast_word(p, A_COORD, @$); $$->args = $2; }
    ;

tile: PER NUMBER name                       { $$ = ast_word(p, A_COORD, @$);
                                              $$->args = ast_add(ast_list($2), $3); }
    ;

always: %empty                              { $$ = ast_word(p, A_COORD, @$); }
    | ALWAYS expr                           { $$ = $2; }
    ;

params: %empty                              { $$ = ast_list(NULL); }
    | '(' names ')'                         { $$ = $2; }
    | '(' ')'                               { $$ = ast_list(NULL); }
    ;

names: name                                 { $$ = ast_list($1); }
    | names ',' name                        { $$ = ast_add($1, $3); }
    ;

exprs: expr                                 { $$ = ast_list($1); }
    | exprs ',' expr                        { $$ = ast_add($1, $3); }
    ;

expr: primary
    | expr OR expr                          { $$ = ast_op(p, A_BINARY, E_OR, $1, $3, @$); }
    | expr AND expr                         { $$ = ast_op(p, A_BINARY, E_AND, $1, $3, @$); }
    | NOT expr                              { $$ = ast_op(p, A_NOT, E_NOT, $2, NULL, @$); }
    | expr '<' expr                         { $$ = ast_op(p, A_BINARY, E_LT, $1, $3, @$); }
    | expr '>' expr                         { $$ = ast_op(p, A_BINARY, E_GT, $1, $3, @$); }
    | expr LE expr                          { $$ = ast_op(p, A_BINARY, E_LE, $1, $3, @$); }
    | expr GE expr                          { $$ = ast_op(p, A_BINARY, E_GE, $1, $3, @$); }
    | expr '=' expr                         { parser_mends(p, @2, "==", "'=' defines a mask; use '==' to "
                                                                        "compare");
                                              $$ = ast_op(p, A_BINARY, E_EQ, $1, $3, @$); }
    | expr EQ expr                          { $$ = ast_op(p, A_BINARY, E_EQ, $1, $3, @$); }
    | expr NE expr                          { $$ = ast_op(p, A_BINARY, E_NE, $1, $3, @$); }
    | expr '+' expr                         { $$ = ast_op(p, A_BINARY, E_ADD, $1, $3, @$); }
    | expr '-' expr                         { $$ = ast_op(p, A_BINARY, E_SUB, $1, $3, @$); }
    | expr '*' expr                         { $$ = ast_op(p, A_BINARY, E_MUL, $1, $3, @$); }
    | expr '/' expr                         { $$ = ast_op(p, A_BINARY, E_DIV, $1, $3, @$); }
    | expr MOD expr                         { $$ = ast_op(p, A_BINARY, E_MOD, $1, $3, @$); }
    | expr '^' expr                         { $$ = ast_op(p, A_BINARY, E_POW, $1, $3, @$); }
    | '-' expr %prec NEGATE                 { $$ = ast_op(p, A_NEGATE, E_SUB, $2, NULL, @$); }
    ;

primary: NUMBER
    | name
    | call                                  { $$ = $1; ast_bound(p, $$); }
    | IDENT '[' exprs ']'                   { $$ = ast_word(p, A_INDEX, @1); $$->args = $3; $$->span = @$;
                                              ast_bound(p, $$); }
    | '(' expr ')'                          { $$ = $2; }
    | FILE_ STRING AT '(' exprs ')'         { $$ = $2; $$->kind = A_FILE; $$->args = $5; $$->span = @$;
                                              ast_bound(p, $$); }
    ;

/* ---- schedules ---- */
schedule: SCHEDULE title OVER '(' coords ')' pieces '{' phases '}'
                                            { $$ = $2; $$->kind = A_SCHEDULE; $$->args = $5;
                                              $$->more = ast_list($7);
                                              $$->body = $9; $$->has_body = true;
                                              $$->span = span_join(@1, @7); }
    | SCHEDULE error '{' phases '}'         { $$ = ast_word(p, A_SCHEDULE, @1); $$->body = $4;
                                              $$->has_body = true; yyerrok; }
    ;

pieces: %empty                              { $$ = NULL; }
    | PIECES primary                        { $$ = $2; $$->span = @$; }
    ;

coords: coord                               { $$ = ast_list($1); }
    | coords ',' coord                      { $$ = ast_add($1, $3); }
    ;

coord: words OF name                        { $$ = ast_word(p, A_COORD, @$); $$->args = ast_add($1, $3); }
    ;

words: name                                 { $$ = ast_list($1); }
    | words name                            { $$ = ast_add($1, $2); }
    ;

phases: %empty                              { $$ = ast_list(NULL); }
    | phases phase                          { $$ = ast_add($1, $2); }
    | phases name expr ';'                  { $2->kind = A_REQUIRE; $2->args = ast_list($3);
                                              $2->span = span_join(@2, @3);
                                              $$ = ast_add($1, $2); }
    | phases error stmt_block               { $$ = $1; yyerrok; }
    | phases error ';'                      { $$ = $1; yyerrok; }
    ;

phase: FORWARD stmt_block                   { $$ = ast_word(p, A_FORWARD, @1); $$->body = $2;
                                              $$->has_body = true; }
    | BACKWARD stmt_block                   { $$ = ast_word(p, A_BACKWARD, @1); $$->body = $2;
                                              $$->has_body = true; }
    | BACKWARD words stmt_block             { $$ = ast_word(p, A_BACKWARD, @1); $$->args = $2; $$->body = $3;
                                              $$->has_body = true; $$->span = span_join(@1, @2); }
    | FORWARD words ';'                     { $$ = ast_word(p, A_FORWARD, @1); $$->args = $2; $$->span = @$; }
    | BACKWARD words ';'                    { $$ = ast_word(p, A_BACKWARD, @1); $$->args = $2; $$->span = @$;
                                              }
    ;

stmt_block: '{' stmts '}'                   { $$ = $2; }
    | '{' stmts error '}'                   { $$ = $2; yyerrok; }
    ;

stmts: %empty                               { $$ = ast_list(NULL); }
    | stmts stmt                            { $$ = ast_add($1, $2); }
    | stmts error ';'                       { $$ = $1; yyerrok; }
    | stmts error stmt_block                { $$ = $1; yyerrok; }
    ;

stmt: FOR name IN expr DOTDOT expr stmt_block
                                            { $$ = $2; $$->kind = A_FOR; $$->args = ast_add(ast_list($4), $6);
                                              $$->body = $7; $$->has_body = true;
                                              $$->span = span_join(@1, @6); }
    | FOR name IN name stmt_block           { $$ = $2; $$->kind = A_FOR; $$->args = ast_list($4);
                                              $$->body = $5; $$->has_body = true;
                                              $$->span = span_join(@1, @4); }
    | IF expr stmt_block                    { $$ = ast_word(p, A_IF, @1); $$->args = ast_list($2);
                                              $$->body = $3;
                                              $$->has_body = true; $$->span = span_join(@1, @2); }
    | ATTEND ref WITH ref ';'               { $$ = ast_word(p, A_ATTEND, @1); $$->span = @$;
                                              $$->args = ast_add(ast_list($2), $4); }
    | GRAD ref WITH ref ';'                 { $$ = ast_word(p, A_GRAD, @1); $$->span = @$;
                                              $$->args = ast_add(ast_list($2), $4); }
    | PASS refs TO '(' exprs ')' ';'        { $$ = ast_word(p, A_PASS, @1); $$->span = @$;
                                              $$->args = $2; $$->more = $5; }
    | RETURN refs ';'                       { $$ = ast_word(p, A_RETURN, @1); $$->args = $2; $$->span = @$; }
    | EXCHANGE exchanged ARROW name over ';'   { $$ = ast_word(p, A_EXCHANGE, @1); $$->args = $2;
                                              $$->more = ast_concat(ast_list($4), $5); $$->span = @$; }
    | EXCHANGE exchanged OVER name ';'      { $$ = ast_word(p, A_EXCHANGE, @1); $$->args = $2;
                                              $4->kind = A_COORD; $$->more = ast_list($4); $$->span = @$; }
    | EXCHANGE exchanged BIARROW name over ';' { $$ = ast_word(p, A_LATER, @1); $$->args = $2; $$->span = @$;
                                                 }
    | COLLECTIVE refs over ';'              { $$ = ast_word(p, A_COLLECTIVE, @1); $$->args = $2;
                                              $$->more = $3; $$->span = @$; }
    | USE title OVER '(' alongs ')' bases ';' { $$ = $2; $$->kind = A_USE; $$->args = $5; $$->more = $7;
                                                $$->span = @$; }
    | LATER later ';'                       { $$ = ast_word(p, A_LATER, @1); $$->args = $2; $$->span = @$; }
    ;

ref: name
    | IDENT '[' indices ']'                 { $$ = ast_word(p, A_INDEX, @1); $$->args = $3; $$->span = @$; }
    | IDENT '[' indices ']' '.' primary     { $$ = ast_word(p, A_INDEX, @1); $$->args = $3;
                                              $$->more = ast_list($6); $$->span = @$; }
    ;

indices: index                              { $$ = ast_list($1); }
    | indices ',' index                     { $$ = ast_add($1, $3); }
    ;

index: expr
    | '*'                                   { $$ = ast_word(p, A_STAR, @1); }
    ;

alongs: along                               { $$ = ast_list($1); }
    | alongs ',' along                      { $$ = ast_add($1, $3); }
    ;

along: name
    | name OF name                          { $$ = $1; $$->args = ast_list($3); $$->span = @$; }
    ;

bases: %empty                               { $$ = ast_list(NULL); }
    | WITH refs                             { $$ = $2; }
    ;

refs: ref                                   { $$ = ast_list($1); }
    | refs ',' ref                          { $$ = ast_add($1, $3); }
    ;

/* "Q, KV tokens" and "Q KV tokens": the last word is the layout before the arrow. */
exchanged: ref                              { $$ = ast_list($1); }
    | exchanged ref                         { $$ = ast_add($1, $2); }
    | exchanged ',' ref                     { $$ = ast_add($1, $3); }
    ;

over: %empty                                { $$ = ast_list(NULL); }
    | OVER name                             { $$ = ast_list($2); }
    ;

later: refs
    | refs TO name                          { $$ = ast_add($1, $3); }
    | refs OVER name                        { $$ = ast_add($1, $3); }
    ;

%%

static bool is_mended(const Parser *p, uint32_t end)
{
    for (int i = 0; i < p->semicolons; i++)
        if (p->semicolon[i] == end)
            return true;
    return false;
}

/* A token kept back because a forgotten ';' belongs before it. */
typedef struct Held { int token; BURST_YYSTYPE val; Span at; } Held;

/* Reads the next token; reports and skips needless semicolons. */
static Held scan(Parser *p)
{
    Held next = {0};
    const char *needless = "";
    while (needless) {
        next.token = lexer_scan(&next.val, &next.at, p->lexer);
        const bool first = next.token == ';' && !is_mended(p, p->token_end);
        needless = first ? needless_semicolon(p->source, p->token_end) : NULL;
        if (needless)
            parser_mends(p, next.at, NULL, "%s", needless);
    }
    return next;
}

static int burst_yylex(BURST_YYSTYPE *val, Span *at, Parser *p)
{
    Held next = {0}, *held = p->held;
    if (p->again)
        return 0;
    if (held) {
        next = *held;
        p->held = NULL;
    } else {
        next = scan(p);
        if (next.token <= 0)
            next.at = (Span){p->source, (uint32_t)p->source->len, (uint32_t)p->source->len};
        if (is_mended(p, p->token_end)) {
            *(held = NEW(p->arena, Held)) = next;
            p->held = held;
            next = (Held){.token = ';', .at = {p->source, p->token_end, p->token_end}};
        }
    }
    *val = next.val;
    *at = next.at;
    p->last_end = p->token_end;
    p->token_end = at->end;
    return next.token;
}

static void burst_yyerror(const Span *at, Parser *p, const char *text)
{
    (void)text; /* bison calls this only for an exhausted stack; syntax errors are reported below */
    diag_error(p->diags, *at, "nested too deeply");
}

/* Expected tokens in words: a name stands for all words, and lists of more than four are not printed. */
typedef struct Expected { const char *text[5]; int n; bool semicolon, operator; } Expected;

static void expect(Expected *e, const char *text)
{
    for (int i = 0; i < e->n && i < countof(e->text); i++)
        if (strcmp(e->text[i], text) == 0)
            return;
    if (e->n < countof(e->text))
        e->text[e->n] = text;
    e->n++;
}

static Expected expected_tokens(Parser *p, const yypcontext_t *at)
{
    yysymbol_kind_t kinds[YYNTOKENS];
    int n = yypcontext_expected_tokens(at, kinds, YYNTOKENS);
    Expected e = {0};
    bool name = false, number = false, open = false;
    for (int i = 0; i < n; i++) {
        name |= kinds[i] == YYSYMBOL_IDENT;
        number |= kinds[i] == YYSYMBOL_NUMBER;
        open |= strcmp(yysymbol_name(kinds[i]), "'('") == 0;
    }
    for (int i = 0; i < n; i++) {
        const char *text = yysymbol_name(kinds[i]);
        e.operator |= kinds[i] == YYSYMBOL_AND;
        e.semicolon |= strcmp(text, "';'") == 0;
        if (strcmp(text, "'.'") == 0)
            continue; /* a piece is possible after any chunk and rarely meant */
        bool word = text[0] != '\'' && strncmp(text, "a ", 2) != 0;
        if (number && name && open)
            text = "an expression";
        else if (word && name)
            text = "a name";
        else if (word)
            text = arena_printf(p->arena, "'%s'", text);
        expect(&e, text);
    }
    return e;
}

static void expected_text(const Expected *e, Text *out)
{
    for (int i = 0; i < e->n; i++)
        text_printf(out, "%s%s", list_separator(i, e->n, " or "), e->text[i]);
}

/* The unexpected token as in the source, cut to a readable length. */
static void seen_text(Parser *p, Span at, Text *out)
{
    if (at.begin >= p->source->len) {
        text_add(out, "the end of the file");
        return;
    }
    uint32_t len = at.end - at.begin;
    text_add(out, "'");
    text_add_n(out, p->source->text + at.begin, len < 40 ? len : 40);
    text_add(out, len < 40 ? "'" : "...'");
}

static bool is_comparison(yysymbol_kind_t token)
{
    static const char *const operators[] = {"'<'", "'>'", "<=", ">=", "==", "!="};
    for (int i = 0; i < countof(operators); i++)
        if (strcmp(yysymbol_name(token), operators[i]) == 0)
            return true;
    return false;
}

static bool is_keyword(yysymbol_kind_t token)
{
    return token == YYSYMBOL_MASK || token == YYSYMBOL_SCHEDULE || token == YYSYMBOL_FOR ||
           token == YYSYMBOL_IF || token == YYSYMBOL_ATTEND || token == YYSYMBOL_GRAD ||
           token == YYSYMBOL_RETURN;
}

/* Whether a ';' was forgotten: it would be accepted here, and the block or file ends, or a word begins a
 * line or a statement. */
static bool forgot_semicolon(const Parser *p, const Expected *e, yysymbol_kind_t token, Span at)
{
    const char *text = p->source->text;
    bool end = at.begin >= p->source->len || text[at.begin] == '}';
    bool word = !end && (text[at.begin] == '_' || isalpha((unsigned char)text[at.begin]));
    bool line = memchr(text + p->last_end, '\n', at.begin - p->last_end) != NULL;
    return e->semicolon && (e->n == 1 || end || (word && (line || is_keyword(token))));
}

/* Rereads the file with the ';' in place, so that the rest is read as intended; once for each place. */
static bool mend_semicolon(Parser *p)
{
    Span behind = {p->source, p->last_end, p->last_end};
    if (p->semicolons == countof(p->semicolon) || is_mended(p, p->last_end))
        return false;
    p->semicolon[p->semicolons++] = p->last_end;
    p->again = true;
    parser_mends(p, behind, ";", "expected ';' here");
    return true;
}

/* `default causal and q - k < 8;`: a condition where a mask's name is required. */
static bool joins_masks(const Expected *e, yysymbol_kind_t token)
{
    return (token == YYSYMBOL_AND || token == YYSYMBOL_OR || (is_comparison(token) && !e->operator)) &&
           e->semicolon;
}

static int yyreport_syntax_error(const yypcontext_t *context, Parser *p)
{
    Span at = *yypcontext_location(context);
    Expected e = expected_tokens(p, context);
    if (p->again || p->lost || (p->open_string && p->last_end == p->open_string))
        return 0;
    if (joins_masks(&e, yypcontext_token(context))) {
        diag_error(p->diags, at,
                   "a condition requires a name here; write `mask mine = ...;` outside of this block and "
                   "`mine` here");
        return 0;
    }
    /* each message searches the text before it */
    const bool printed = diags_errors(p->diags) < DIAG_MAX_ERRORS;
    const Mistake m = printed ? mistake_at(p->arena, p->source, at) : (Mistake){0};
    if (m.text) {
        diag_error(p->diags, m.at, "%s", m.text);
        if (m.fix)
            diag_fixit(p->diags, m.at, m.fix);
        p->lost = m.fix && strcmp(m.fix, "schedule") == 0;
        return 0;
    }
    if (forgot_semicolon(p, &e, yypcontext_token(context), at) && mend_semicolon(p))
        return 0;
    Text text = {0};
    if (e.operator && is_comparison(yypcontext_token(context))) {
        text_add(&text, "comparisons cannot be chained; write a < b and b < c; unexpected ");
    } else if (e.n && e.n <= 4) {
        text_add(&text, "expected ");
        expected_text(&e, &text);
        text_add(&text, ", saw ");
    } else {
        text_add(&text, "unexpected ");
    }
    seen_text(p, at, &text);
    diag_error(p->diags, at, "%s", text.at);
    text_free(&text);
    const Span open = at.begin >= p->source->len ? open_block(p->source) : (Span){0};
    if (open.src)
        diag_note(p->diags, open, "this block has no '}'");
    return 0;
}

/* Refuses NUL bytes, which the lexer would take for its buffer's end again and again. */
static bool check_text(Diags *d, const Source *s)
{
    const char *nul = s->len ? memchr(s->text, 0, s->len) : NULL;
    const uint32_t at = nul ? (uint32_t)(nul - s->text) : 0;
    const bool wide =
        s->len > 1 && (memcmp(s->text, "\xff\xfe", 2) == 0 || memcmp(s->text, "\xfe\xff", 2) == 0);
    if (s->len > INT32_MAX / 2)
        diag_error(d, (Span){0}, "'%s' is too large for a source file", s->name);
    else if (nul)
        diag_error(d, (Span){s, at, at + 1}, "unexpected NUL byte: %s",
                   wide ? "the file is UTF-16; save it as UTF-8" : "this is not a text file");
    return s->len <= INT32_MAX / 2 && !nul;
}

AstList parse_source(Arena *a, Diags *d, const Source *s, int *mended)
{
    Parser p = {.arena = a, .diags = d, .source = s};
    if (!check_text(d, s))
        return ast_list(NULL);
    do {
        p.again = false;
        p.at = p.token_end = p.last_end = p.open_string = 0;
        p.held = NULL;
        p.selecting = false;
        p.items = ast_list(NULL);
        lexer_open(&p);
        burst_yyparse(&p);
        lexer_close(&p);
    } while (p.again);
    *mended += p.mended;
    return p.items;
}
