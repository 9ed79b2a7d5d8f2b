/* ast.h: what the parser makes and the checker reads: one node type for the three languages. Only dsl/
 * reads this.
 *
 * Settings ("layers 32;", "nodes 2 { ... }") are kept generic, so that an unknown word is a message with
 * the nearest known one and not a syntax error. Masks and schedules have a grammar of their own.
 */
#ifndef BURST_AST_H
#define BURST_AST_H

#include "dsl.h"

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
/* In base units: bytes, bytes/s, FLOP/s, ns. whole is exact where is_whole; bad: already reported. */
typedef struct Number { double value; int64_t whole; bool is_whole, bad; UnitKind unit; } Number;
/* Reads text[0..n): digits with fraction and exponent, then a suffix (Ki, M) or a unit (GiB, Gb/s), blanks
 * between. Returns the bytes that belong to the number; known is false where the letters right after the
 * digits mean nothing. Infinite values are left to the caller. */
size_t number_read(const char *text, size_t n, Number *out, bool *known);
/* a whole number without a unit, however large, that is above the limit */
bool number_is_huge(const Number *n, int64_t limit);
extern const char *const unit_what[UNIT_KIND_COUNT], *const unit_examples[UNIT_KIND_COUNT];

/* ---- nodes ---- */
#define AST_KINDS(X) /* id, name in --emit=ast */ \
    X(NUMBER, "number") X(STRING, "string") X(NAME, "name") X(PUNCT, "punct")                           \
    X(CALL, "call") X(INDEX, "index") X(STAR, "*") X(BINARY, "binary") X(NOT, "not") X(NEGATE, "-") \
    X(FILE, "file") \
    X(SETTING, "setting") X(MASK, "mask") X(SCHEDULE, "schedule") X(COORD, "coordinate")                 \
    X(FORWARD, "forward") X(BACKWARD, "backward") X(FOR, "for") X(IF, "if") X(ATTEND, "attend")          \
    X(GRAD, "grad") X(PASS, "pass") X(RETURN, "return") X(EXCHANGE, "exchange") X(REQUIRE, "require") \
    X(COLLECTIVE, "collective") X(USE, "use") X(LATER, "later")
typedef enum AstKind {
#define X(id, name) A_##id,
    AST_KINDS(X)
#undef X
} AstKind;

typedef struct Ast Ast;
typedef struct AstList { Ast *first, *last; int n; } AstList;
/* text: the word, the string's bytes, the setting's name. The lists by kind:
 *   CALL, INDEX, BINARY, NOT, NEGATE, FILE: args are operands, of an INDEX more its piece;  SETTING: args are
 * values, body its block MASK: args are parameters, more the expression;  SCHEDULE: args are coordinates,
 * more `pieces`, body its phases COORD: args are the words before `of` and the size;  FORWARD, BACKWARD: args
 * are words, body statements, or none: `mirrors` is a word FOR: args are the bounds;  IF: args is the
 * condition;  ATTEND, GRAD: Q and KV;  PASS: args chunks, more coordinates EXCHANGE: args chunks and the word
 * before the arrow, more the word after it and the coordinate; or args chunks alone, more the coordinate as a
 * COORD COLLECTIVE: `gather` or `scatter`, args chunks, more the coordinate USE: text the schedule, args the
 * coordinates, each with the size in its args where one is written, more chunks REQUIRE: its condition in
 * args;  LATER: a statement of a later version, its words in args */
struct Ast {
    AstKind kind;
    ExprOp op; /* BINARY */
    Span span, name_span;
    const char *text;
    size_t len;
    Number number;
    AstList args, more, body;
    bool has_body;
    int depth; /* of the operands below: bounded, so that the checker may recurse */
    Ast *next;
};

/* ---- lexer and parser ---- */
typedef struct Parser {
    Arena *arena;
    Diags *diags;
    const Source *source;
    void *lexer;      /* flex's own state */
    uint32_t at;      /* how far the lexer has read */
    uint32_t open_string; /* end of a string that took the rest of its line: what it lacks then is known */
    int mended;       /* errors after which what was read is as if they were not there */
    uint32_t semicolon[DIAG_MAX_ERRORS]; /* ends of the tokens after which one was forgotten */
    int semicolons;
    struct Held *held;
    bool again;       /* one more was found: the file is reread */
    bool lost;        /* what begins the file is misspelt: what follows is read as something else */
    /* ends of the last token and of the one before it: where a missing ';' belongs */
    uint32_t token_end, last_end;
    AstList items;
} Parser;
/* Parses a file into its items; syntax errors are reported and what could be read is returned. Adds to
 * *mended the errors that the rest did not suffer from: where there are no others, it can be checked. */
AstList parse_source(Arena *a, Diags *d, const Source *s, int *mended);
/* An error whose fix is sure, so that reading goes on with the fix in place. */
void parser_mends(Parser *p, Span at, const char *fix, const char *fmt, ...) PRINTF_LIKE(4, 5);
void lexer_open(Parser *p); /* lex.l */
void lexer_close(Parser *p);

/* ---- ast.c: making nodes ---- */
enum { AST_MAX_DEPTH = 400 };
Ast *ast_new(Parser *p, AstKind kind, Span at);
Ast *ast_word(Parser *p, AstKind kind, Span at); /* its text is what stands at `at` */
Ast *ast_op(Parser *p, AstKind kind, ExprOp op, Ast *a, Ast *b, Span at); /* b may be NULL */
/* sets n's depth from its operands; beyond AST_MAX_DEPTH: an error, and a leaf */
void ast_bound(Parser *p, Ast *n);
AstList ast_list(Ast *first);
AstList ast_add(AstList list, Ast *more);
AstList ast_concat(AstList a, AstList b);
Ast *ast_at(AstList list, int i); /* NULL beyond the end */
void ast_print(const Source *s, AstList items, Text *out); /* one file of --emit=ast */

#endif
