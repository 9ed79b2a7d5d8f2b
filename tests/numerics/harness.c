/* harness.c: the main of an emitted program under test: attention forward and backward under every mask of
 * the plan, on all ranks, against the oracle's answers (expected.h).
 *
 *     program ANSWERS [--tolerance X] [--masks N] [--spoil OUTPUT] [--bf16] [--sent] [--verbose]
 *
 * Each rank gives the plan only the tokens that it owns and compares the rows that come back; the errors
 * are summed over the ranks of a data group, each of which has the whole sequence, and the worst group's
 * count. Prints one line for each case that fails and a last line "cases N failed F worst o=... dv=...".
 * Exits with 0, with 1 where a case is off by more than the tolerance, with 2 on usage. --spoil adds 1e-4
 * of its size to an output before it is compared, so that a test of this test sees it fail. --masks: the
 * plan has the first N masks only. --bf16: outputs but lse are rounded to bf16 before they are compared,
 * as a layer goes on with them. --sent: one line for each case with the bytes that all ranks together
 * sent, forward and backward.
 */
#include "burst_rt.h"
#include "expected.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

extern const BurstPlan burst_plan;

#define X(name, of_keys, vector) #name,
static const char *const out_name[] = {OUTPUTS(X)};
#undef X

typedef struct Options {
    const Expected *e;
    double tolerance;
    int masks; /* of the plan: the first that many of the oracle's */
    int spoil; /* an output, or -1 */
    bool bf16, sent, verbose;
} Options;

/* What one rank holds. */
typedef struct Rank {
    BurstCtx *c;
    const BurstPlan *p;
    const Options *o;
    void *state;
    int64_t n, *position;
    float *in[IN_COUNT], *out[OUT_COUNT];
    double worst[OUT_COUNT], sent[2]; /* sent: bytes, by direction */
    int failed;
} Rank;

/* Rows of an array of the whole sequence that this rank owns: heads, numbers a token and head. */
typedef struct Rows { int heads, width; } Rows;
static Rows in_rows(const Expected *e, int in)
{
    return (Rows){in == IN_k || in == IN_v ? e->kv_heads : e->heads, e->head_dim};
}

static Rows out_rows(const Expected *e, int out)
{
#define X(name, of_keys, vector) {of_keys ? e->kv_heads : e->heads, vector ? e->head_dim : 1},
    const Rows rows[] = {OUTPUTS(X)};
#undef X
    return rows[out];
}

static float *take(Rank *r, Rows rows)
{
    return burst_take(r->c, (size_t)rows.heads * (size_t)(r->n > 0 ? r->n : 1) * (size_t)rows.width *
                                sizeof(float));
}

/* What take will ask for on the largest rank, over what the plan has counted. */
static size_t arena_extra(const BurstPlan *p, const Expected *e)
{
    size_t extra = 0, tokens = (size_t)p->max_tokens + 16;
    for (int i = 0; i < IN_COUNT; i++)
        extra += (size_t)in_rows(e, i).heads * (size_t)in_rows(e, i).width * tokens * sizeof(float) + 64;
    for (int i = 0; i < OUT_COUNT; i++)
        extra += (size_t)out_rows(e, i).heads * (size_t)out_rows(e, i).width * tokens * sizeof(float) + 64;
    return extra;
}

static int fill_inputs(Rank *r)
{
    const Expected *e = r->o->e;
    for (int i = 0; i < IN_COUNT; i++) {
        Rows rows = in_rows(e, i);
        const float *all = expected_at(e, e->in[i]);
        size_t d = (size_t)rows.width;
        if (!(r->in[i] = take(r, rows)))
            return BURST_E_MEMORY;
        for (int h = 0; h < rows.heads; h++)
            for (int64_t t = 0; t < r->n; t++)
                memcpy(r->in[i] + ((size_t)(h * r->n + t)) * d, all + (size_t)(h * e->n + r->position[t]) * d,
                       d * sizeof(float));
    }
    return BURST_OK;
}

/* Weights exist because starting a plan needs them; attention alone reads none. */
static int open_rank(Rank *r)
{
    static BurstWeights w;
    int chunk = burst_rank(r->c) % r->p->group;
    r->n = r->p->tokens_of(chunk);
    r->position = calloc((size_t)r->n + 1, sizeof *r->position);
    r->state = calloc(1, r->p->state_bytes);
    if (!r->position || !r->state)
        return burst_fail(r->c, BURST_E_MEMORY, "harness: out of memory");
    for (int64_t i = 0; i < r->n; i++)
        r->position[i] = r->p->position(chunk, i);
    BURST_TRY(burst_weights_make(r->c, r->p, &w));
    BURST_TRY(r->p->start(r->c, r->state, &w));
    for (int i = 0; i < OUT_COUNT; i++)
        if (!(r->out[i] = take(r, out_rows(r->o->e, i))))
            return BURST_E_MEMORY;
    return fill_inputs(r);
}

/* Something that is in nobody's answer, so that what attention does not write is seen. */
static void poison(Rank *r)
{
    for (int i = 0; i < OUT_COUNT; i++) {
        Rows rows = out_rows(r->o->e, i);
        for (int64_t j = 0; j < rows.heads * r->n * rows.width; j++)
            r->out[i][j] = 1e6f;
    }
}

static int attend(Rank *r, const ExpectedCase *c)
{
    const Expected *e = r->o->e;
    BurstTables tables = {{0}};
    for (int t = 0; t < r->p->table_count; t++)
        tables.table[t] = (const int32_t *)expected_at(e, e->table) + c->table * e->n;
    float *const *in = r->in, *const *out = r->out;
    poison(r);
    const uint64_t before = burst_sent_bytes(r->c);
    BURST_TRY(r->p->attention_forward(r->c, r->state, c->mask, &tables, in[IN_q], in[IN_k], in[IN_v],
                                      out[OUT_o], out[OUT_lse]));
    const uint64_t forward = burst_sent_bytes(r->c);
    BURST_TRY(r->p->attention_backward(r->c, r->state, c->mask, &tables, in[IN_q], in[IN_k], in[IN_v],
                                       out[OUT_o], out[OUT_lse], in[IN_d_o], out[OUT_dq], out[OUT_dk],
                                       out[OUT_dv]));
    r->sent[0] = (double)(forward - before);
    r->sent[1] = (double)(burst_sent_bytes(r->c) - forward);
    return BURST_OK;
}

static int report_sent(Rank *r, const ExpectedCase *c)
{
    BURST_TRY(burst_allreduce(r->c, (BurstGroup){0, 1, r->p->world}, r->sent, 2));
    if (burst_rank(r->c) == 0)
        printf("sent mask %d table %d forward %.0f backward %.0f\n", c->mask, c->table, r->sent[0],
               r->sent[1]);
    return BURST_OK;
}

/* The squared error of this rank's rows. Infinities must be the same; a NaN makes it NaN, but for one in
 * the answer: that case does not judge it. */
static double squared_error(const Rank *r, const ExpectedCase *c, int out)
{
    const Expected *e = r->o->e;
    Rows rows = out_rows(e, out);
    const double *all = expected_at(e, c->out[out]);
    double sum = 0;
    for (int h = 0; h < rows.heads; h++)
        for (int64_t t = 0; t < r->n; t++)
            for (int i = 0; i < rows.width; i++) {
                double is = r->out[out][(h * r->n + t) * rows.width + i];
                double should = all[(h * e->n + r->position[t]) * rows.width + i];
                if (!isnan(should) && !(isinf(is) && is == should))
                    sum += (is - should) * (is - should);
            }
    return sum;
}

static void spoil(Rank *r)
{
    int out = r->o->spoil;
    if (out < 0)
        return;
    Rows rows = out_rows(r->o->e, out);
    for (int64_t j = 0; j < rows.heads * r->n * rows.width; j++)
        r->out[out][j] *= 1.0001f;
}

/* To nearest, ties to even; infinities stay, a NaN may become one: it fails either way. */
static void round_outputs(Rank *r)
{
    for (int out = 0; out < OUT_COUNT && r->o->bf16; out++) {
        Rows rows = out_rows(r->o->e, out);
        for (int64_t j = 0; out != OUT_lse && j < rows.heads * r->n * rows.width; j++) {
            uint32_t bits;
            memcpy(&bits, &r->out[out][j], sizeof bits);
            bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
            memcpy(&r->out[out][j], &bits, sizeof bits);
        }
    }
}

/* The greater one; NaN is greater than all. */
static double worse(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

/* The worst data group's squared errors: all ranks get the same. */
static int squared_errors(Rank *r, const ExpectedCase *c, double worst[OUT_COUNT])
{
    for (int group = 0; group < r->p->data; group++) {
        double error[OUT_COUNT] = {0};
        for (int i = 0; i < OUT_COUNT && burst_rank(r->c) / r->p->group == group; i++)
            error[i] = squared_error(r, c, i);
        BURST_TRY(burst_allreduce(r->c, (BurstGroup){0, 1, r->p->world}, error, OUT_COUNT));
        for (int i = 0; i < OUT_COUNT; i++)
            worst[i] = worse(worst[i], error[i]);
    }
    return BURST_OK;
}

/* A NaN or an infinity fails. */
static int judge(Rank *r, const ExpectedCase *c)
{
    double error[OUT_COUNT] = {0}, worst = 0;
    BURST_TRY(squared_errors(r, c, error));
    for (int i = 0; i < OUT_COUNT; i++) {
        error[i] = sqrt(error[i]) / (c->scale[i] > 0 ? c->scale[i] : 1);
        worst = worse(worst, error[i]);
        r->worst[i] = worse(r->worst[i], error[i]);
    }
    bool fails = !(worst <= r->o->tolerance);
    r->failed += fails;
    if ((fails || r->o->verbose) && burst_rank(r->c) == 0) {
        printf("%s mask %d table %d", fails ? "FAILED" : "ok", c->mask, c->table);
        for (int i = 0; i < OUT_COUNT; i++)
            printf(" %s=%.2e", out_name[i], error[i]);
        printf("\n");
    }
    return BURST_OK;
}

/* Rank 0 speaks before any rank ends, since the first failure ends them all. */
static int report(const Rank *r)
{
    if (burst_rank(r->c) == 0) {
        printf("cases %d failed %d worst", r->o->e->cases, r->failed);
        for (int i = 0; i < OUT_COUNT; i++)
            printf(" %s=%.3e", out_name[i], r->worst[i]);
        printf("\n");
        fflush(stdout);
    }
    BURST_TRY(burst_barrier(r->c, (BurstGroup){0, 1, r->p->world}));
    return r->failed ? burst_fail(r->c, BURST_E_NUMERIC, "%d of %d cases are off", r->failed, r->o->e->cases)
                     : BURST_OK;
}

static int run_cases(BurstCtx *c, const BurstPlan *p, void *arg)
{
    Rank r = {.c = c, .p = p, .o = arg};
    const Expected *e = r.o->e;
    const ExpectedCase *cases = expected_at(e, e->case_at);
    BURST_TRY(open_rank(&r));
    for (int i = 0; i < e->cases && cases[i].mask < r.o->masks; i++) {
        bool again = i > 0 && cases[i].mask == cases[i - 1].mask && cases[i].table == cases[i - 1].table;
        if (!again) { /* else another part of the same answer */
            BURST_TRY(attend(&r, &cases[i]));
            BURST_TRY(r.o->sent ? report_sent(&r, &cases[i]) : BURST_OK);
            round_outputs(&r);
            spoil(&r);
        }
        BURST_TRY(judge(&r, &cases[i]));
    }
    free(r.position), free(r.state);
    return report(&r);
}

static const Expected *map_answers(const char *path)
{
    struct stat s;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &s) != 0 || s.st_size < (off_t)sizeof(Expected))
        return NULL;
    const Expected *e = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return e != MAP_FAILED && e->magic == EXPECTED_MAGIC && e->bytes == (uint64_t)s.st_size ? e : NULL;
}

static bool fits(const BurstPlan *p, const Expected *e)
{
    return p->sequence == e->n && p->heads == e->heads && p->kv_heads == e->kv_heads &&
           p->head_dim == e->head_dim;
}

static int output_named(const char *name)
{
    for (int i = 0; i < OUT_COUNT; i++)
        if (strcmp(name, out_name[i]) == 0)
            return i;
    return -1;
}

static Options read_options(int argc, char **argv)
{
    Options o = {.e = argc > 1 ? map_answers(argv[1]) : NULL,
                 .tolerance = 3e-6,
                 .masks = INT_MAX,
                 .spoil = -1};
    for (int i = 2; i < argc; i++) {
        o.verbose |= strcmp(argv[i], "--verbose") == 0;
        o.bf16 |= strcmp(argv[i], "--bf16") == 0;
        o.sent |= strcmp(argv[i], "--sent") == 0;
        if (i + 1 < argc && strcmp(argv[i], "--tolerance") == 0)
            o.tolerance = atof(argv[i + 1]);
        if (i + 1 < argc && strcmp(argv[i], "--masks") == 0)
            o.masks = atoi(argv[i + 1]);
        if (i + 1 < argc && strcmp(argv[i], "--spoil") == 0)
            o.spoil = output_named(argv[i + 1]);
    }
    return o;
}

int main(int argc, char **argv)
{
    Options o = read_options(argc, argv);
    if (!o.e || !fits(&burst_plan, o.e)) {
        fprintf(stderr, "harness: no answers, or for another shape than the plan's\n");
        return 2;
    }
    BurstPlan p = burst_plan;
    p.arena_bytes += arena_extra(&p, o.e);
    return burst_launch(&p, argc, argv, run_cases, &o);
}
