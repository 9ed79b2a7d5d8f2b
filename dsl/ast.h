/* ast.h: the parser's result and the checker's input: one node type for the three languages. Only dsl/
 * includes it.
 *
 * Settings ("layers 32;", "nodes 2 { ... }") are generic, so that an unknown word gives a message with the
 * nearest known one and not a syntax error. Masks and schedules have a grammar of their own. */
#ifndef BURST_AST_H
#define BURST_AST_H

#include "dsl.h"
#include "ir/expr.h"

/* ---- units.c: numbers with units ---- */
#define UNIT_KINDS(X) /* id, what it measures, examples for messages */ \
    X(NONE, "a plain number", "32 or 64Ki")                              \
    X(BYTES, "a size", "80 GB or 64 GiB")                                \
    X(RATE, "a bandwidth", "450 GB/s or 200 Gb/s")                       \
    X(FLOPS, "a compute rate", "790 TFLOP/s")                            \
    X(TIME, "a time", "2 us or 500 ns")
typedef enum UnitKind {
#define X(id, what, examples) UNIT_##id,
    UNIT_KINDS(X)
#undef X
    UNIT_KIND_COUNT
} UnitKind;
/* value and whole are in base units: bytes, bytes/s, FLOP/s, ns. whole is exact if is_whole; bad: already
 * reported. */
typedef struct Number { double value; int64_t whole; bool is_whole, bad; UnitKind unit; } Number;
/* Reads text[0..n): digits with fraction and exponent, then a suffix (Ki, M) or a unit (GiB, Gb/s), with
 * optional blanks between. Returns the number's length in bytes; *known is false if the letters right after
 * the digits are no unit. Infinite values are left to the caller. */
size_t number_read(const char *text, size_t n, Number *out, bool *known);
/* whether it is a whole number without a unit above the limit, even one too large for int64_t */
bool number_is_huge(const Number *n, int64_t limit);
extern const char *const unit_what[UNIT_KIND_COUNT], *const unit_examples[UNIT_KIND_COUNT];

/* ---- nodes ---- */
#define AST_KINDS(X) /* id, name in --emit=ast */ \
    X(NUMBER, "number") \
    X(STRING, "string") X(NAME, "name") X(PUNCT, "punct") X(CALL, "call") X(INDEX, "index") X(STAR, "*") \
        X(BINARY, "binary") X(NOT, "not") X(NEGATE, "-") X(FILE, "file") X(SETTING, "setting") \
            X(MASK, "mask") X(SELECT, "select") X(SCHEDULE, "schedule") X(COORD, "coordinate") \
                X(FORWARD, "forward") X(BACKWARD, "backward") X(FOR, "for") X(IF, "if") X(ATTEND, "attend") \
                    X(GRAD, "grad") X(PASS, "pass") X(RETURN, "return") X(EXCHANGE, "exchange") \
                        X(REQUIRE, "require") X(COLLECTIVE, "collective") X(USE, "use") X(LATER, "later")
typedef enum AstKind {
#define X(id, name) A_##id,
    AST_KINDS(X)
#undef X
} AstKind;

typedef struct Ast Ast;
typedef struct AstList { Ast *first, *last; int n; } AstList;
/* text: the word, the string's bytes, the setting's name. The lists by kind:
 *   SELECT: args are parameters, more `n`, `b`, `where` and `always`, an empty COORD if there is none, body
 * the score, a mark, `for`'s words and `per`'s (COORDs, whose args are words) CALL, INDEX, BINARY, NOT,
 * NEGATE, FILE: args are operands, of an INDEX more its piece;  SETTING: args are values, body its block
 * MASK: args are parameters, more the expression;  SCHEDULE: args are coordinates, more `pieces`, body its
 * phases COORD: args are the words before `of` and the size;  FORWARD, BACKWARD: args are words, body
 * statements, or none: `mirrors` is a word FOR: args are the bounds;  IF: args is the condition;  ATTEND,
 * GRAD: Q and KV;  PASS: args chunks, more coordinates EXCHANGE: args chunks and the word before the arrow,
 * more the word after it and the coordinate; or args chunks alone, more the coordinate as a COORD COLLECTIVE:
 * `gather` or `scatter`, args chunks, more the coordinate USE: text the schedule, args the coordinates, each
 * with the size in its args where one is written, more chunks REQUIRE: its condition in args;  LATER: a
 * statement of a later version, its words in args */
struct Ast {
    AstKind kind;
    ExprOp op; /* BINARY */
    Span span, name_span;
    const char *text;
    size_t len;
    Number number;
    AstList args, more, body;
    bool has_body;
    int depth; /* depth of the operands below, bounded for the checker's recursion */
    Ast *next;
};

/* ---- lexer and parser ---- */
typedef struct Parser {
    Arena *arena;
    Diags *diags;
    const Source *source;
    void *lexer;      /* flex's state */
    uint32_t at;      /* position of the lexer */
    uint32_t open_string; /* end of a string that took the rest of its line: its missing quote was reported */
    int mended;       /* errors that were corrected, so that the rest is read as intended */
    uint32_t semicolon[DIAG_MAX_ERRORS]; /* ends of the tokens that lacked a ';' */
    int semicolons;
    struct Held *held;
    bool again;       /* another missing ';' was found: reread the file */
    bool selecting; /* a selection is being read, whose clauses begin with words of their own */
    bool lost;        /* the file's first word is misspelt, so the rest was misread */
    /* ends of the last two tokens: where a missing ';' belongs */
    uint32_t token_end, last_end;
    AstList items;
} Parser;
/* Parses a file into its items. Reports syntax errors and returns what could be read. Adds corrected errors
 * to *mended: if there are no others, the result can be checked. */
AstList parse_source(Arena *a, Diags *d, const Source *s, int *mended);
/* An error with a certain fix: reading continues as if it were applied. */
void parser_mends(Parser *p, Span at, const char *fix, const char *fmt, ...) PRINTF_LIKE(4, 5);
void lexer_open(Parser *p); /* lex.l */
void lexer_close(Parser *p);

/* ---- ast.c: making nodes ---- */
enum { AST_MAX_DEPTH = 400 };
Ast *ast_new(Parser *p, AstKind kind, Span at);
Ast *ast_word(Parser *p, AstKind kind, Span at); /* its text is the source at `at` */
Ast *ast_op(Parser *p, AstKind kind, ExprOp op, Ast *a, Ast *b, Span at); /* b may be NULL */
/* sets n's depth from its operands; beyond AST_MAX_DEPTH reports an error and makes n a leaf */
void ast_bound(Parser *p, Ast *n);
AstList ast_list(Ast *first);
AstList ast_add(AstList list, Ast *more);
AstList ast_concat(AstList a, AstList b);
Ast *ast_at(AstList list, int i); /* NULL: beyond the end */
void ast_print(const Source *s, AstList items, Text *out); /* one file of --emit=ast */

#endif
