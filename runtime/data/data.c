/* data.c: sequences of token files in a seeded order, and this rank's tokens of one. Sequence (step, index)
 * is a function of the seed and the files. */
#include "data/data.h"

#include "base/mix.h"
#include "base/plural.h"
#include "core/context.h"
#include "data/balance/balance.h"
#include "data/mix.h"
#include "data/pack.h"
#include "data/source.h"
#include "burst_tables.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 4 };

/* A file, and how it is cut into sequences. */
typedef struct File {
    Source source;
    Packed packed;     /* first NULL: a sequence has consecutive tokens of the file */
    int64_t sequences; /* per epoch */
    int table[BURST_MAX_TABLES]; /* for each table that masks read: its index in the file; else -1 */
} File;

typedef struct Data {
    File *file; /* [files]; none: random tokens */
    int files;
    Mix *mix;        /* NULL: there is one file */
    bool in_order;   /* each sequence once, in the file's order: for evaluation */
    int64_t n;       /* of this rank */
    int64_t first;   /* this rank's first among all chunks' tokens, chunk by chunk */
    int64_t *position;
    Balance *balance;   /* NULL: chunks have the same tokens in every batch */
    int64_t *positions; /* [sequence] of all chunks' tokens, if balance is set */
    Balance *counter; /* counts the work of sequences that groups divide; NULL: each group has fixed ones */
    BalanceGroups groups;
    int64_t shared; /* step of `order`; -1: none */
    int32_t *token, *label;
    float *weight;
    int32_t *table[BURST_MAX_TABLES]; /* [sequence] each; tables that masks read */
} Data;

/* ---- opening ---- */

static int64_t ahead_of(const BurstCtx *c) { return c->train->predict > 0 ? c->train->predict : 1; }

static int pack(BurstCtx *c, const BurstPlan *p, File *f)
{
    int64_t *first = NULL, documents = 0;
    int status = source_documents(c, &f->source, &first, &documents);
    if (status == BURST_OK && !packed_make(&f->packed, first, documents, p->sequence))
        status = burst_fail(c, BURST_E_MEMORY, "out of memory for packing the %lld documents of '%s'",
                            (long long)documents, f->source.path);
    free(first);
    f->sequences = f->packed.sequences;
    return status;
}

#define NAMED(id, name, value) " " name

static int no_table(BurstCtx *c, const char *table, const char *path)
{
    return burst_fail(
        c, BURST_E_PLAN,
        "a mask reads the table '%s', which %s%s%s not have; made from tokens are only" BURST_DOCUMENT_TABLES(
            NAMED),
        table, path ? "'" : "random tokens do", path ? path : "", path ? "' does" : "");
}

/* Tables that are not computed from documents are columns of the file. */
static int find_tables(BurstCtx *c, const BurstPlan *p, File *f)
{
    for (int t = 0; t < p->table_count; t++) {
        const bool given = burst_table_kind(p->tables[t]) == BURST_TABLE_GIVEN;
        f->table[t] = given ? source_find_table(&f->source, p->tables[t]) : -1;
        if (given && f->table[t] < 0)
            return no_table(c, p->tables[t], f->source.path);
    }
    return BURST_OK;
}

static int open_file(BurstCtx *c, const BurstPlan *p, File *f, const BurstDataFile *from)
{
    BURST_TRY(source_open(c, p, from, &f->source));
    BURST_TRY(find_tables(c, p, f));
    const int64_t count = f->source.count;
    if (c->train->packed && count > 0)
        return pack(c, p, f);
    f->sequences = count < ahead_of(c) ? 0 : (count - ahead_of(c)) / p->sequence;
    if (f->sequences < 1)
        return burst_fail(
            c, BURST_E_IO,
            "'%s' has %lld token%s, expected at least %lld + %lld (sequence + tokens to predict)", from->path,
            (long long)count, plural(count), (long long)p->sequence, (long long)ahead_of(c));
    return BURST_OK;
}

static int open_mix(BurstCtx *c, Data *d, const BurstDataFile *from)
{
    double share[BURST_DATA_FILES];
    if (d->files > BURST_DATA_FILES)
        return burst_fail(c, BURST_E_USAGE, "%d data files, expected at most %d", d->files, BURST_DATA_FILES);
    if (d->files < 2)
        return BURST_OK;
    d->mix = malloc(sizeof *d->mix);
    if (!d->mix)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the data");
    for (int f = 0; f < d->files; f++)
        share[f] = from[f].share;
    mix_make(d->mix, share, d->files);
    for (int f = 0; f < d->files; f++)
        if (!d->mix->slots[f])
            return burst_fail(c, BURST_E_USAGE, "the share of '%s' is less than 1 of %d sequences",
                              from[f].path, MIX_SLOTS);
    return BURST_OK;
}

static int open_files(BurstCtx *c, const BurstPlan *p, Data *d, const BurstDataFile *from, int files)
{
    d->file = calloc((size_t)files + 1, sizeof *d->file);
    if (!d->file)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the data");
    for (; d->files < files; d->files++) {
        const int status = open_file(c, p, &d->file[d->files], &from[d->files]);
        if (status != BURST_OK) {
            d->files++; /* so that it is closed like the others */
            return status;
        }
    }
    return open_mix(c, d, from);
}

static int make_buffers(BurstCtx *c, const BurstPlan *p, Data *d)
{
    int chunk = p->chunk_of ? p->chunk_of(c->rank) : c->rank % p->group;
    const BurstOwn own = burst_own_tokens(p, c->rank, p->tokens_of(chunk));
    size_t n = (size_t)(d->n = own.tokens) + 1; /* may be 0 tokens */
    d->position = calloc(n, sizeof *d->position);
    d->token = calloc(n, sizeof *d->token);
    d->label = calloc(n, sizeof *d->label);
    d->weight = calloc(n, sizeof *d->weight);
    bool made = d->position && d->token && d->label && d->weight;
    for (int t = 0; t < p->table_count; t++)
        made &= (d->table[t] = calloc((size_t)p->sequence, sizeof *d->table[t])) != NULL;
    if (!made)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for a sequence of %lld tokens",
                          (long long)p->sequence);
    if (p->balanced && (!(d->balance = balance_open(p)) ||
                        !(d->positions = calloc((size_t)p->sequence, sizeof *d->positions))))
        return burst_fail(c, BURST_E_MEMORY, "out of memory for balancing a sequence of %lld tokens",
                          (long long)p->sequence);
    d->first = chunk * p->max_tokens + own.first; /* balanced chunks are of equal size */
    for (int64_t i = 0; i < d->n; i++) {
        d->position[i] = p->position(chunk, own.first + i);
        if (d->position[i] < 0 || d->position[i] >= p->sequence)
            return burst_fail(c, BURST_E_PLAN,
                              "token %lld of shard %d has position %lld in a sequence of %lld", (long long)i,
                              chunk, (long long)d->position[i], (long long)p->sequence);
    }
    for (int t = 0; t < p->table_count && !d->files; t++)
        if (burst_table_kind(p->tables[t]) == BURST_TABLE_GIVEN)
            return no_table(c, p->tables[t], NULL);
    return BURST_OK;
}

/* Data groups with several sequences have unequal work if masks read tables. */
static int open_groups(BurstCtx *c, const BurstPlan *p, Data *d)
{
    const size_t sequences = (size_t)c->train->batch, groups = (size_t)p->data;
    d->shared = -1;
    if (p->data < 2 || c->train->batch <= p->data || c->train->batch % p->data || !p->table_count ||
        !p->masks)
        return BURST_OK;
    BalanceGroups *g = &d->groups;
    *g = (BalanceGroups){.sequences = (int)c->train->batch, .groups = p->data};
    g->work = calloc(sequences, sizeof *g->work);
    g->order = calloc(sequences, sizeof *g->order);
    g->group = calloc(sequences, sizeof *g->group);
    g->load = calloc(groups, sizeof *g->load);
    g->has = calloc(groups, sizeof *g->has);
    d->counter = balance_open(p);
    return d->counter && g->work && g->order && g->group && g->load && g->has
               ? BURST_OK
               : burst_fail(c, BURST_E_MEMORY, "out of memory for sharing out the %lld sequences of a batch",
                            (long long)c->train->batch);
}

static int data_open(BurstCtx *c, const BurstPlan *p, const BurstDataFile *from, int files, Data **data)
{
    Data *d = *data = calloc(1, sizeof *d);
    burst_doing(c, "opening the data");
    if (!d)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the data");
    BURST_TRY(open_files(c, p, d, from, files));
    BURST_TRY(make_buffers(c, p, d));
    return open_groups(c, p, d);
}

int data_ready(BurstCtx *c, const BurstPlan *p)
{
    if (c->data)
        return BURST_OK;
    if (c->train->packed && !c->train->data_files)
        return burst_fail(c, BURST_E_USAGE,
                          "the plan packs documents, and random tokens have none; use --data FILE");
    return data_open(c, p, c->train->data, c->train->data_files, &c->data);
}

static void close_one(Data **data)
{
    Data *d = *data;
    if (!d)
        return;
    for (int f = 0; f < d->files; f++) {
        source_close(&d->file[f].source);
        packed_free(&d->file[f].packed);
    }
    free(d->file);
    free(d->mix);
    free(d->position);
    free(d->token);
    free(d->label);
    free(d->weight);
    for (int t = 0; t < BURST_MAX_TABLES; t++)
        free(d->table[t]);
    free(d->positions);
    balance_close(d->balance);
    balance_close(d->counter);
    free(d->groups.work), free(d->groups.order), free(d->groups.group), free(d->groups.load),
        free(d->groups.has);
    free(d);
    *data = NULL;
}

void data_close(BurstCtx *c)
{
    close_one(&c->data);
    close_one(&c->evaluation);
}

void data_print(FILE *to, const BurstTrain *t)
{
    static const char *const raw[] = {"", " bytes", " raw 2", "", " raw 4"};
    for (const BurstDataFile *f = t->data; f < t->data + t->data_files; f++) {
        fprintf(to, "%s%s%s", f > t->data ? ", " : "", f->path, raw[f->raw]);
        if (t->data_files > 1)
            fprintf(to, " %g", f->share);
    }
}

/* ---- evaluation ---- */

int data_evaluation_ready(BurstCtx *c, const BurstPlan *p, int64_t *sequences)
{
    if (!c->evaluation) {
        BURST_TRY(data_open(c, p, c->train->evaluate, 1, &c->evaluation));
        c->evaluation->in_order = true;
    }
    *sequences = c->evaluation->file->sequences;
    return BURST_OK;
}

void data_swap(BurstCtx *c)
{
    struct Data *other = c->data;
    c->data = c->evaluation;
    c->evaluation = other;
}

/* ---- order ---- */
/* A permutation of [0, count) that needs no memory: a Feistel network on the next even number of bits,
 * applied until the result is in range. */
static uint64_t permuted(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t i)
{
    int half = 1;
    while (half < 31 && (uint64_t)1 << (2 * half) < count)
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^ (hash3(seed ^ round << 56, epoch, right) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= count);
    return i;
}

/* Index in the file of the n-th sequence read from it. */
static int64_t sequence_of(const File *f, uint64_t seed, int64_t n)
{
    return (int64_t)permuted(seed, (uint64_t)(n / f->sequences), (uint64_t)f->sequences,
                             (uint64_t)(n % f->sequences));
}

/* ---- one sequence ---- */
typedef struct Window {
    File *file; /* NULL: random tokens */
    const Piece *piece; /* NULL: documents are not packed, and `whole` is the only one */
    int64_t pieces;
    Piece whole;
    bool none; /* after the last sequence of an evaluation: no token counts */
    uint64_t seed, number; /* of random tokens */
    int vocab;
    int64_t ahead, at, first; /* the piece of the last position, and its begin in the sequence */
} Window;

static void take_sequence(const BurstPlan *p, Window *w, int64_t number)
{
    const Packed *packed = &w->file->packed;
    w->whole = (Piece){number * p->sequence, p->sequence};
    w->piece = packed->first ? packed->piece + packed->first[number] : NULL;
    w->pieces = packed->first ? packed->first[number + 1] - packed->first[number] : 1;
}

static Window window_at(const BurstCtx *c, const BurstPlan *p, Data *d, int64_t n)
{
    Window w = {.seed = (uint64_t)c->train->seed,
                .number = (uint64_t)n,
                .vocab = p->vocab,
                .ahead = ahead_of(c)};
    int64_t index = n;
    if (!d->files)
        return w;
    const int f = d->mix ? mix_at(d->mix, n, &index) : 0;
    w.file = &d->file[f];
    w.none = d->in_order && n >= w.file->sequences;
    if (d->in_order)
        take_sequence(p, &w, w.none ? 0 : n);
    else
        take_sequence(p, &w, sequence_of(w.file, w.seed + (uint64_t)f * MIX_SLOTS, index));
    return w;
}

static const Piece *piece_at(const Window *w, int64_t i) { return w->piece ? &w->piece[i] : &w->whole; }

/* The file's token at a position; -1: the sequence has none there. Positions mostly ascend. */
static int64_t place_of(Window *w, int64_t position)
{
    if (position < w->first)
        w->at = w->first = 0;
    while (w->at < w->pieces && position - w->first >= piece_at(w, w->at)->length)
        w->first += piece_at(w, w->at++)->length;
    return w->at < w->pieces ? piece_at(w, w->at)->begin + position - w->first : -1;
}

static uint32_t random_token(const Window *w, int64_t position)
{
    return (uint32_t)(hash3(~w->seed, w->number, (uint64_t)position) % (uint64_t)w->vocab);
}

/* Reads the label of a token of the file, which may be on another rank or after the sequence's end. There is
 * none if its document ends first. */
static int read_label(BurstCtx *c, Window *w, int64_t at, uint32_t token, int32_t *label, float *weight)
{
    Source *s = &w->file->source;
    bool none = w->none;
    for (int64_t ahead = 1; ahead <= w->ahead && !none; ahead++) {
        none = source_ends(s, at + ahead - 1, token) || at + ahead >= s->count;
        if (!none)
            BURST_TRY(source_token(c, s, at + ahead, &token));
    }
    *label = none ? -1 : (int32_t)token;
    *weight = 0;
    return none ? BURST_OK : source_weight(c, s, at + w->ahead, weight);
}

/* Fills up a short sequence; has no labels. */
static int32_t padding(const BurstCtx *c)
{
    return c->train->separator > 0 ? (int32_t)c->train->separator : 0;
}

static int read_one(BurstCtx *c, Window *w, int64_t position, int32_t *token, int32_t *label, float *weight)
{
    uint32_t read;
    const int64_t at = place_of(w, position);
    if (at < 0) {
        *token = padding(c);
        *label = -1;
        *weight = 0;
        return BURST_OK;
    }
    BURST_TRY(source_token(c, &w->file->source, at, &read));
    *token = (int32_t)read;
    return read_label(c, w, at, read, label, weight);
}

static void random_one(const BurstCtx *c, const Window *w, int64_t position, int32_t *token, int32_t *label,
                       float *weight)
{
    const int64_t separator = c->train->separator;
    bool ends = false;
    *token = (int32_t)random_token(w, position);
    for (int64_t ahead = 0; ahead < w->ahead; ahead++)
        ends |= separator >= 0 && random_token(w, position + ahead) == separator;
    *label = ends ? -1 : (int32_t)random_token(w, position + w->ahead);
    *weight = ends ? 0 : 1;
}

static int read_tokens(BurstCtx *c, Window *w)
{
    Data *d = c->data;
    for (int64_t i = 0; i < d->n; i++) {
        if (!w->file)
            random_one(c, w, d->position[i], d->token + i, d->label + i, d->weight + i);
        else
            BURST_TRY(read_one(c, w, d->position[i], d->token + i, d->label + i, d->weight + i));
    }
    return BURST_OK;
}

/* A separator belongs to the document that it ends. Pieces are documents of their own, and padding is
 * one. */
static int ends_document(BurstCtx *c, Window *w, int64_t i, bool *ends)
{
    uint32_t token = 0;
    if (!w->file) {
        *ends = c->train->separator >= 0 && random_token(w, i) == c->train->separator;
        return BURST_OK;
    }
    const int64_t at = place_of(w, i);
    Source *s = &w->file->source;
    if (at >= 0 && !s->document && s->separator >= 0)
        BURST_TRY(source_token(c, s, at, &token));
    *ends = at >= 0 && (source_ends(s, at, token) || i + 1 - w->first == piece_at(w, w->at)->length);
    return BURST_OK;
}

/* Padding gets 0. */
static int read_tables(BurstCtx *c, const BurstPlan *p, Window *w)
{
    Data *d = c->data;
    for (int t = 0; t < p->table_count && w->file; t++)
        for (int64_t i = 0; i < p->sequence && w->file->table[t] >= 0; i++) {
            const int64_t at = place_of(w, i);
            d->table[t][i] = 0;
            if (at >= 0)
                BURST_TRY(source_table(c, &w->file->source, w->file->table[t], at, &d->table[t][i]));
        }
    return BURST_OK;
}

/* Computes the tables of documents. */
static int find_documents(BurstCtx *c, const BurstPlan *p, Window *w)
{
    Data *d = c->data;
    BurstDocument document = {0};
    bool any = false;
    for (int t = 0; t < p->table_count; t++)
        any |= burst_table_kind(p->tables[t]) != BURST_TABLE_GIVEN;
    for (int64_t i = 0; i < p->sequence && any; i++) {
        bool ends = false;
        BURST_TRY(ends_document(c, w, i, &ends));
        if (i + 1 < p->sequence && !ends)
            continue;
        document.end = i + 1;
        for (int t = 0; t < p->table_count; t++)
            if (burst_table_kind(p->tables[t]) != BURST_TABLE_GIVEN)
                burst_document_fill(burst_table_kind(p->tables[t]), &document, d->table[t]);
        document = (BurstDocument){.number = document.number + 1, .begin = i + 1};
    }
    return BURST_OK;
}

/* Assigns this window's tokens to chunks, and so to this rank. */
static int balance(BurstCtx *c, const BurstPlan *p, BurstTables *t)
{
    Data *d = c->data;
    balance_count(d->balance, t, p->table_count);
    balance_assign(d->balance);
    if (!balance_positions(d->balance, d->positions))
        return burst_fail(c, BURST_E_PLAN, "balancing gave the chunks unequal numbers of tokens");
    memcpy(d->position, d->positions + d->first, sizeof *d->position * (size_t)d->n);
    t->position = d->positions;
    return BURST_OK;
}

/* Reads the tables of a sequence of the batch, whichever rank reads it. */
static int read_documents(BurstCtx *c, const BurstPlan *p, Window *w)
{
    BURST_TRY(find_documents(c, p, w));
    return read_tables(c, p, w);
}

/* Assigns the sequences of the step's batch to groups so that work is balanced. Every rank computes the same
 * from the tables of all sequences. */
static int share_out(BurstCtx *c, const BurstPlan *p, int64_t step)
{
    Data *d = c->data;
    if (!d->counter || d->in_order || d->shared == step)
        return BURST_OK;
    for (int i = 0; i < d->groups.sequences; i++) {
        Window w = window_at(c, p, d, step * c->train->batch + i);
        BurstTables t = {0};
        BURST_TRY(read_documents(c, p, &w));
        memcpy(t.table, d->table, sizeof d->table);
        balance_count(d->counter, &t, p->table_count);
        d->groups.work[i] = d->counter->upto[d->counter->tiles];
    }
    balance_groups(&d->groups);
    d->shared = step;
    return BURST_OK;
}

int burst_batch_read(BurstCtx *c, const BurstPlan *p, int64_t step, int64_t index, BurstBatch *out)
{
    BURST_TRY(data_ready(c, p));
    Data *d = c->data;
    BURST_TRY(share_out(c, p, step));
    const int64_t own = d->counter && !d->in_order ? d->groups.order[index] : index;
    Window w = window_at(c, p, d, step * c->train->batch + own);
    *out = (BurstBatch){.token = d->token, .label = d->label, .weight = d->weight};
    BURST_TRY(read_documents(c, p, &w));
    memcpy(out->tables.table, d->table, sizeof d->table);
    if (d->balance)
        BURST_TRY(balance(c, p, &out->tables));
    return read_tokens(c, &w);
}
