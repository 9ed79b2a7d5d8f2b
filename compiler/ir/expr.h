/* ir/expr.h: expressions of masks and schedule indices, built by dsl/check_mask.c and dsl/sched. */
#ifndef BURST_IR_EXPR_H
#define BURST_IR_EXPR_H

#include "base/base.h"
#include "burst_mask.h"

/* Functions of two or more numbers, applied from left to right. A row is all that the compiler needs: it
 * uses burst_NAME, burst_NAME32 and burst_form_NAME (its bounds) from burst_mask.h. */
#define EXPR_FUNCTIONS(X) X(MIN, min) X(MAX, max) X(BITAND, bitand) X(BITOR, bitor) X(BITXOR, bitxor)
/* id; in .burst and .sched: text, shape, precedence; in C: text, shape */
#define EXPR_FUNCTION_OP(id, name) EXPR_OP(id, #name, CALL, 7, "burst_" #name, CALL)
#define EXPR_OPS \
    EXPR_OP(CONST, "", OWN, 7, "", OWN) \
    EXPR_OP(Q, "q", WORD, 7, "", OWN) \
    EXPR_OP(K, "k", WORD, 7, "", OWN) \
    EXPR_OP(VAR, "", OWN, 7, "", OWN) \
    EXPR_OP(TABLE_Q, "", OWN, 7, "", OWN) \
    EXPR_OP(TABLE_K, "", OWN, 7, "", OWN) \
    EXPR_OP(ADD, "+", INFIX, 5, "+", INFIX) \
    EXPR_OP(SUB, "-", INFIX, 5, "-", INFIX) \
    EXPR_OP(MUL, "*", INFIX, 6, "*", INFIX) \
    EXPR_OP(DIV, "/", INFIX, 6, "burst_floor_div", CALL) \
    EXPR_OP(MOD, "mod", INFIX, 6, "burst_floor_mod", CALL) \
    EXPR_OP(POW, "^", INFIX, 7, "", OWN) \
    EXPR_FUNCTIONS(EXPR_FUNCTION_OP) \
    EXPR_OP(ABS, "abs", CALL, 7, "burst_abs", CALL) \
    EXPR_OP(HASH, "hash", CALL, 7, "burst_hash", CALL) \
    EXPR_OP(PATTERN, "file", OWN, 7, "", OWN) \
    EXPR_OP(SELECTED, "select", OWN, 7, "", OWN) \
    EXPR_OP(LT, "<", INFIX, 4, "<", INFIX) \
    EXPR_OP(LE, "<=", INFIX, 4, "<=", INFIX) \
    EXPR_OP(GT, ">", INFIX, 4, ">", INFIX) \
    EXPR_OP(GE, ">=", INFIX, 4, ">=", INFIX) \
    EXPR_OP(EQ, "==", INFIX, 4, "==", INFIX) \
    EXPR_OP(NE, "!=", INFIX, 4, "!=", INFIX) \
    EXPR_OP(AND, "and", INFIX, 2, "&&", INFIX) \
    EXPR_OP(OR, "or", INFIX, 1, "||", INFIX) \
    EXPR_OP(NOT, "not", PREFIX, 3, "!", PREFIX) \
    EXPR_OP(TRUE, "true", WORD, 7, "1", WORD) \
    EXPR_OP(FALSE, "false", WORD, 7, "0", WORD)
#define EXPR_OP(id, text, shape, strength, c, c_shape) E_##id,
typedef enum ExprOp { EXPR_OPS EXPR_OP_COUNT } ExprOp;
#undef EXPR_OP
/* OWN: the writer's `own` prints it. */
typedef enum ExprShape { SHAPE_OWN, SHAPE_WORD, SHAPE_INFIX, SHAPE_PREFIX, SHAPE_CALL } ExprShape;
typedef struct ExprOpText { const char *text; ExprShape shape; } ExprOpText;
typedef struct ExprOpRow { int strength; ExprOpText burst, c; } ExprOpRow;
extern const ExprOpRow expr_ops[EXPR_OP_COUNT];
typedef struct ExprFunction {
    int64_t (*value)(int64_t, int64_t);
    BurstForm (*form)(BurstForm, BurstForm, const BurstSide *q, const BurstSide *k);
} ExprFunction;
const ExprFunction *expr_function(ExprOp op); /* its row of EXPR_FUNCTIONS; NULL: not a function */
/* A 0/1 pattern read from a file. Bit (row, col): the block is kept. Outside, nothing is kept. */
typedef struct Pattern {
    const char *path;
    int64_t rows, cols;
    const uint8_t *bits;  /* rows * cols bytes 0/1 */
    /* (rows + 1) * (cols + 1): number of ones before row and col, modulo 2^32; NULL: not summed */
    const uint32_t *sums;
} Pattern;
/* Arithmetic is on int64; '/' and mod are floored, with a positive constant divisor (checked). Masks use Q,
 * K and TABLE_*, not VAR, and every intermediate value is proved to stay within +-2^62 on the sequence
 * (checked). Schedules use VAR only, and POW with base 2. */
typedef struct Expr {
    ExprOp op;
    int64_t value; /* CONST: the number; VAR: the variable; TABLE_*: the table; else 0 */
    const struct Expr *a, *b;
    const Pattern *pattern; /* PATTERN: at (a, b) */
    const struct Selection *selection; /* SELECTED: `a` is the condition of a drawn selection */
    Span span;
} Expr;
/* Evaluates on scalars. var may be NULL for masks. table[t][position] gives table values (NULL if there are
 * none). */
int64_t expr_eval(const Expr *e, int64_t q, int64_t k, const int64_t *var, const int32_t *const *table);
bool expr_compares(ExprOp op);

/* ---- expressions as text, in .burst or in C ---- */
/* FEWEST: as precedence requires. OPERANDS: around infix operators inside others, except in a chain of one
 * associative operator. ALL: around each. */
typedef enum Brackets { BRACKETS_FEWEST, BRACKETS_OPERANDS, BRACKETS_ALL } Brackets;
typedef struct ExprWriter {
    bool c;
    Brackets brackets;
    const char *suffix;     /* of functions in C: "32"; NULL: none */
    const char *(*before)(const Expr *e); /* text before an infix operator's first operand; NULL: nothing */
    void (*own)(const struct ExprWriter *w, const Expr *e); /* writes expressions of SHAPE_OWN */
    const void *with;       /* argument of `own` */
    Text *out;
} ExprWriter;
void expr_write(const ExprWriter *w, const Expr *e);
/* in brackets if it needs them as an operand of an infix operator */
void expr_write_operand(const ExprWriter *w, const Expr *e);

#endif
