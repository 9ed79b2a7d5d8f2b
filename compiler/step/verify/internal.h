/* step/verify/internal.h: shared by the files of the step's verifier, which step/verify/replay.c
 * explains. */
#ifndef STEP_VERIFY_H
#define STEP_VERIFY_H

#include "step/verify/verify.h"

/* odd: a shard has another number than its sum, and than its sum over replicas */
enum { INS = 4, OUTS = 3, SUM_FACTOR = 0x2545f491, REPLICA_FACTOR = 0x41c64e6d, TENSOR_FACTOR = 0x1b873593 };

/* An operation's effect in the numbers of its forward operation: x0 operand, y0 output, g0 the whole
 * gradient of an output, d0 the part added to an operand's gradient, e0 delta, k0 the kept rows of an
 * output. */
/* weight, sum: if forward's operation has a weight */
typedef struct Rule { OpKind of, kind; const char *read, *write; bool weight, sum; } Rule;

/* An operation of forward; from: the operation that computed the operand, -1: the batch. */
typedef struct Made {
    const Op *op;
    int block, unit, weights; /* the unit of its block; the unit whose weights it may read */
    const UnitTensor *tensor;
    int ins, from[INS], output[INS];
    bool chosen[INS]; /* inputs that are numbers of chosen blocks, without gradients */
    bool trains; /* its outputs reach a loss by operations that have gradients */
    uint64_t x[INS], y[OUTS], g[OUTS];
} Made;

/* One write: before is what it added to; part is what it added. chunk: whose rows it wrote, -1: all; anew:
 * their earlier content is lost. */
typedef struct Record {
    uint64_t number, part;
    const struct Record *before;
    int op, value;
    int64_t begin, end;
    int chunk;
    bool anew;
} Record;
/* Both memories, cut wherever a value's memory begins or ends. A stretch is the cells that one operation
 * wrote: its first cell has a bit, its end, and its record, NULL: not written. */
typedef struct Cells {
    int n;
    int64_t *begin;    /* [n + 1] */
    uint64_t *first;   /* bits */
    int *end;          /* [n] */
    const Record **record; /* [n] */
    /* [n + 1]: the next cell of a shard that another rank may be copying, n: none; NULL: ranks do not */
    int *shard;
    int *unit;         /* [n]: that shard's */
} Cells;
/* memory that a stream may be using */
typedef struct Under {
    int op, value, index;
    int64_t begin, end;
    bool writes;
    Stream stream;
} Under;
typedef struct Place { int value, index; const Item *item; } Place;

typedef struct Machine {
    Arena *arena;
    Diags *diags;
    const Flow *flow;
    const Step *step;
    /* span: most indices of a value; now: the operation, -1: the end, -2: forward as written */
    int layers, units, span, now;
    int sequence, sequences;
    uint64_t losses; /* computed without gradients: sequences, or chunks' parts of them */
    /* one rank has whole units; it adds to its gradient shards, which nothing reduces */
    bool alone, in_place, failed;
    const Item **item;                 /* [values * span] */
    int *shared;                       /* [values]: the value with which it shares memory */
    Vec(Made) made;
    int *made_from, *made_to; /* [units]: the operations of each unit's block */
    /* [units]: of the sequence, the head's separate; of all sequences so far */
    uint64_t *sum[2], *all;
    Cells cells;
    Vec(Under) under;
} Machine;
enum { MOST = OP_READS + 1 }; /* and the parameters that a gather reads implicitly */
typedef struct Data { int value, index; uint64_t number; const Record *record; } Data;
typedef struct Doing {
    const StepOp *at;
    Place read[MOST], write[OP_WRITES];
    int reads, writes, datas;
    Data data[MOST], weight;    /* operands of the rule; the unit's weights, value -1: none */
} Doing;

/* ---- step/verify/reference.c ---- */
uint64_t number(uint64_t kind, uint64_t a, uint64_t b); /* a hash */
uint64_t input_number(const Machine *m, int value);
uint64_t state_number(int value, int unit, bool after);
/* The number of something that an operation computes in addition to forward's outputs; the operation
 * represents all its inputs. */
uint64_t part_number(const Machine *m, const Made *x, char what, int n);
uint64_t word_number(const Machine *m, const Made *x, const char *word); /* of a rule's word */
/* a layout change that does nothing, as a device has one layout */
bool one_layout(const Machine *m, OpKind k);
/* Whether the operand's gradient equals the output's: for an addend, for what a bias is added to, and with
 * one layout. */
bool passes(const Machine *m, const Made *x, int n);
bool adds_to_sum(const Op *o);
/* A chunk's part of a value: all chunks together have all of it, and a chunk of a sum is the sum of its
 * parts' chunks. */
uint64_t chunk_number(uint64_t whole, int chunk, int chunks);
/* of the operation's chunk of a record */
uint64_t rows_number(const Machine *m, const Record *r, const StepOp *o, int value);
/* An operation's part of a value's number: its chunk's, or all; for a chunk of queries with one of keys,
 * their share of the chunk's. */
uint64_t own_number(const Machine *m, const StepOp *o, int value, uint64_t whole);
/* its part of a value */
uint64_t taken_number(const Machine *m, const StepOp *o, int value, uint64_t whole);
const Rule *rule_of(OpKind k); /* NULL: none */
/* Reads the sequence's forward, and the gradients that it needs. */
void read_forward(Machine *m);

/* ---- step/verify/memory.c ---- */
bool overlap(int64_t a, int64_t a_end, int64_t b, int64_t b_end);
/* The record that the whole item holds; NULL with *other: the record in its way, or NULL if it is not
 * written. */
const Record *held(const Machine *m, const Item *i, const Record **other);
void store(Machine *m, Record r);
bool in_place(const Machine *m, OpKind k);
void find_items(Machine *m);
/* The unit whose shard of parameters the item overlaps, if ranks copy from others' memory when they wait;
 * -1: none. */
int shard_at(const Machine *m, const Item *i);
int unit_at(const Machine *m, int visit);
int index_of(const Machine *m, const StepOp *o, Operand x);
Place place_at(Machine *m, int value, int index); /* rejects a value without one */
/* Items are aligned, as large as their values, and within the size that the packing claims. */
void check_places(Machine *m);
/* Compute waits for the last operation of the wait's event, and so for all earlier work of its stream. */
void wait_for(Machine *m, const StepOp *o);
/* a gather begins: no earlier one with its arrival may be in flight */
void check_arrival(Machine *m, const StepOp *o);
void check_apart(Machine *m, Place p, bool writes, OpKind k); /* of such an operation */

/* ---- step/verify/tensor_parallel.c ---- */
/* Checks that each operation of forward has all tokens if it needs them, and that sums whose parts are on
 * several ranks are added up once. */
void check_tensor_ranks(Machine *m);

/* ---- step/verify/adjacent.c ---- */
/* Checks that what several adjacent tensors compute is computed by chunks of the tokens everywhere, or
 * nowhere. */
void check_adjacent(Machine *m);

/* ---- step/verify/slices.c ---- */
void check_slices(Machine *m);

/* ---- step/verify/explain.c ---- */
void __attribute__((format(printf, 3, 4))) reject(Machine *m, StepProof proof, const char *fmt, ...);
const char *name_of(const Machine *m, int value);
const char *op_text(const Machine *m, int t);
const char *record_text(const Machine *m, const Record *r);
const char *sum_fault(const Machine *m, int unit, const Record *r);
/* Reports the first operand that differs from the nearest operation of forward. */
void explain(Machine *m, const Doing *d, const Rule *r, const Made *x, int bad);

#endif
