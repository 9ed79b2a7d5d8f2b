/* case.h: random programs, their steps, and what the dense float64 model says about them. */
#ifndef STEP_CASE_H
#define STEP_CASE_H

#include "executor.h"
#include "model64.h"

typedef struct Case {
    Arena *arena;
    Program program;
    Choice choice;
    Step *step;
    Flow *flow;
    Shape64 shape;
    int64_t n;
    int sequences;
    int32_t *token, *label;
    double *label_weight;
    double **param, **grad;       /* [units] */
    double *flat, *wanted, scale; /* as model64 has them */
    double loss;
} Case;
void draw_from(uint64_t first); /* another series */
int draw(int n); /* the next of a fixed series of random numbers, below n */
/* A layout that depends on i: every rule of recomputation, and sets of one's own that differ from layer to
 * layer. */
Case *make_case(bool cuda, int i);
/* The same of a layout whose layers several ranks split. */
Case *make_split_case(bool cuda, int i, bool split);
int64_t unit_elements(const Case *c, int unit); /* of all ranks that split it together */
StepInput step_input(Case *c); /* what its step is made of */
void set_layout(Case *c, Choice choice); /* its step made anew */
const Flow *placed_by_layer(Case *c); /* of its step, from now on with places by layer */
void want_last(Case *c); /* later runs are compared with the gradients that the last one computed */
/* Relative L2 of loss and all gradients, in the worse of two orders of the streams; 1e300 where a number
 * is none, or the run was lost. */
double error_of(Case *c, const Flow *f);
/* The relative error of the loss that an evaluation's flow computes, as error_of has it. */
double evaluation_error(Case *c, const Flow *f);
/* that is 1e-9 or more: the second order runs only where the first is right */
bool is_wrong(Case *c, const Flow *f);

#endif
