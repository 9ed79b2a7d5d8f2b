/* safetensors/names.c: which tensor of a folder holds a plan's, and where in it. */
#include "safetensors/safetensors.h"

#include <stdio.h>
#include <string.h>

int burst_unit_count(const BurstPlan *p)
{
    int count = 0;
    for (int i = 0; i < p->unit_rows; i++)
        count += p->units[i].repeat;
    return count;
}

const BurstUnit *burst_unit(const BurstPlan *p, int unit)
{
    const BurstUnit *row = p->units;
    for (; unit >= row->repeat; row++)
        unit -= row->repeat;
    return row;
}

static bool has_parts(const BurstPlan *p, int whole)
{
    return p->expert_groups && whole > 0 && whole <= p->layers;
}

int burst_whole_unit(const BurstPlan *p, int unit)
{
    return p->expert_groups && unit > p->layers + 1 ? 1 + (unit - p->layers - 2) % p->layers : unit;
}

int burst_whole_count(const BurstPlan *p) { return p->expert_groups ? p->layers + 2 : burst_unit_count(p); }

int burst_part_of_whole(const BurstPlan *p, int whole, int n)
{
    if (n == 0)
        return whole;
    return has_parts(p, whole) && n <= p->expert_groups ? p->layers + 1 + (n - 1) * p->layers + whole : -1;
}

int64_t burst_whole_elements(const BurstPlan *p, int whole)
{
    int64_t elements = 0;
    for (int n = 0; burst_part_of_whole(p, whole, n) >= 0; n++)
        elements += burst_unit(p, burst_part_of_whole(p, whole, n))->elements;
    return elements;
}

/* ---- tensors that a folder has in several ---- */

static const SplitTensor *split_of(const Family *f, const BurstTensor *t)
{
    for (const SplitTensor *s = f->splits; s && s->name; s++)
        if (strcmp(s->name, t->name) == 0)
            return s;
    return NULL;
}

/* Rows of a scan's queries, keys or values; or of three parts as equal as can be, the last the least, which
 * transformers makes of tensors that it joined. */
static int64_t rows_of_part(const BurstScan *s, bool equal, int part)
{
    const int64_t keys = (int64_t)s->key_heads * s->key_dim, each = (s->columns + 2) / 3;
    if (equal)
        return part < 2 ? each : s->columns - 2 * each;
    return part < 2 ? keys : s->columns - 2 * keys;
}

int folder_pieces(const BurstPlan *p, const Naming *n, const BurstTensor *t, TensorPiece piece[FUSED_PARTS])
{
    const SplitTensor *split = split_of(n->family, t);
    int64_t first = 0;
    piece[0] = (TensorPiece){*t, 0};
    for (int i = 0; split && i < FUSED_PARTS; i++) {
        piece[i] = (TensorPiece){*t, first};
        piece[i].tensor.name = split->part[i];
        piece[i].tensor.rows = rows_of_part(&p->scan, n->straight && split->joined, i);
        first += piece[i].tensor.rows * t->cols;
    }
    return split ? FUSED_PARTS : 1;
}

bool piece_run(const TensorPiece *x, const BurstRun *r, BurstRun *part)
{
    const int64_t end = x->first + x->tensor.rows * x->tensor.cols,
                  from = r->from > x->first ? r->from : x->first,
                  last = r->from + r->count < end ? r->from + r->count : end;
    *part = (BurstRun){r->at + from - r->from, from - x->first, last - from};
    return last > from;
}

Naming naming_of(const Family *f, int way)
{
    static const struct { const char *prefix, *head; } ways[NAMINGS] = {
        {NULL, NULL},
        {"model.language_model.", NULL},
        {"language_model.model.", "language_model." ST_HEAD},
    };
    return (Naming){f, ways[way % NAMINGS].prefix, ways[way % NAMINGS].head, way >= NAMINGS};
}

/* With the beginning that the folder has. */
static void set_prefix(const Naming *n, char name[ST_NAME])
{
    static const char usual[] = "model.";
    char rest[ST_NAME];
    if (!n->prefix || strncmp(name, usual, sizeof usual - 1) != 0)
        return;
    memcpy(rest, name, sizeof rest);
    snprintf(name, ST_NAME, "%s%.*s", n->prefix, ST_NAME - 32, rest + sizeof usual - 1);
}

static void full_name(const BurstPlan *p, const Naming *n, int unit, const char *tensor, char name[ST_NAME])
{
    const Family *f = n->family;
    const BurstUnit *row = burst_unit(p, unit);
    const int layer = burst_whole_unit(p, unit) - 1;
    const char *number = strstr(row->name, "%d");
    if (number && f->layers)
        snprintf(name, ST_NAME, "%s.%d.%s", f->layers, layer, tensor);
    else if (number)
        snprintf(name, ST_NAME, "%.*s%d%s.%s", (int)(number - row->name), row->name, layer, number + 2,
                 tensor);
    else
        snprintf(name, ST_NAME, "%s", n->head && strcmp(tensor, ST_HEAD) == 0 ? n->head : tensor);
    set_prefix(n, name);
}

/* 0: the unit has none. */
static int64_t elements_of(const BurstUnit *u, const char *tensor)
{
    for (int i = 0; i < u->tensors; i++)
        if (strcmp(u->tensor[i].name, tensor) == 0)
            return u->tensor[i].rows * u->tensor[i].cols;
    return 0;
}

float tensor_shift(const Family *f, const BurstTensor *t)
{
    const bool of_scan = strncmp(t->name, "linear_attn.", 12) == 0; /* which has its weights as they are */
    return f->norms_less_one && !of_scan && strstr(t->name, "norm.weight") ? -1 : 0;
}

enum { TENSOR_NAME = 128 }; /* of a tensor within its unit */

/* "%d" of a name as the expert's number. */
static void experts_name(const char *name, int expert, char out[TENSOR_NAME])
{
    const char *number = strstr(name, "%d");
    if (number)
        snprintf(out, TENSOR_NAME, "%.*s%d%s", (int)(number - name), name, expert, number + 2);
    else
        snprintf(out, TENSOR_NAME, "%s", name);
}

/* The tensors of a folder that hold a plan's by other names, or several of them. */
static const FusedTensor *table_of(const Naming *n)
{
    return n->straight && n->family->packed ? n->family->packed : n->family->fused;
}

/* Where the part lies among all parts of its tensor, or of its expert's; *all: the elements of these, *parts:
 * how many there are. */
static int64_t part_first(const BurstUnit *u, const FusedTensor *fused, int part, int expert, int64_t *all,
                          int *parts)
{
    char name[TENSOR_NAME];
    int64_t first = 0;
    *all = *parts = 0;
    for (int i = 0; i < FUSED_PARTS && fused->part[i]; i++, ++*parts) {
        experts_name(fused->part[i], expert, name);
        first = i == part ? *all : first;
        *all += elements_of(u, name);
    }
    return first;
}

/* Rows and columns of parts that lie across their tensor, or take turns in it. */
static void set_turns(StPlace *p, const FusedTensor *fused, bool transposed, const BurstTensor *t,
                      int64_t all, int parts)
{
    const bool vector = p->dims == 1;
    const int64_t row = vector ? 1 : t->cols, rows = all / row, apart = fused->alternate ? parts : 1;
    p->first = fused->alternate ? p->part : p->first / row;
    p->run = row;
    p->stride = transposed ? apart : apart * row;
    p->step = transposed ? rows : 1;
    p->first *= transposed ? 1 : row;
    if (transposed)
        p->shape[0] = row, p->shape[1] = rows;
}

/* Rows of one key head in each part of a scan's tensor: of queries, keys and values, or all alike. */
static int rows_of_head(const BurstScan *s, int64_t rows, int64_t each[ST_SECTIONS])
{
    each[0] = rows / s->key_heads;
    if (rows != s->columns)
        return 1;
    each[0] = each[1] = s->key_dim;
    each[2] = (int64_t)s->heads / s->key_heads * s->value_dim;
    return 3;
}

/* Parts of a tensor in which the rows of a key head follow each other. */
static void set_sections(StPlace *p, const BurstPlan *plan, const BurstUnit *u, const FusedTensor *fused,
                         const BurstTensor *t, int64_t all)
{
    const int64_t heads = plan->scan.key_heads, stride = all / heads;
    int64_t first = 0, begin = 0, each[ST_SECTIONS];
    for (int i = 0; i < p->part; i++)
        first += elements_of(u, fused->part[i]) / heads;
    p->sections = rows_of_head(&plan->scan, t->rows, each);
    for (int i = 0; i < p->sections; i++) {
        p->section[i] = (StSection){begin, first, each[i] * t->cols, stride};
        begin += each[i] * t->cols * heads;
        first += each[i] * t->cols;
    }
}

StPlace tensor_place(const BurstPlan *p, const Naming *n, int unit, const BurstTensor *t)
{
    const BurstUnit *u = burst_unit(p, unit);
    const bool vector = t->init_std <= 0;
    const int64_t own = t->rows * t->cols;
    const int expert = tensor_expert(t->name);
    StPlace place = {.dims = vector ? 1 : 2, .shape = {vector ? own : t->rows, t->cols}};
    const FusedTensor *fused = family_fused(table_of(n), t->name, &place.part);
    char name[TENSOR_NAME];
    experts_name(fused ? fused->name : t->name, expert, name);
    full_name(p, n, unit, name, place.name);
    place.run = place.stride = own;
    place.step = 1;
    if (!fused)
        return place;
    int64_t all;
    int parts;
    place.first = part_first(u, fused, place.part, expert, &all, &parts);
    all = all ? all : own; /* a piece of the unit's */
    const int heads = fused->by_queries ? p->heads : p->kv_heads;
    if (fused->by_heads || fused->by_queries) {
        place.first /= heads;
        place.run = own / heads;
        place.stride = all / heads;
    }
    if (fused->by_scan)
        set_sections(&place, p, u, fused, t, all);
    place.shape[0] = vector ? all : all / t->cols;
    if (fused->row)
        place.dims = 2, place.shape[0] = 1, place.shape[1] = all;
    if (fused->channels)
        place.dims = 3, place.shape[1] = 1, place.shape[2] = t->cols;
    const bool transposed = fused->transposed && !n->straight;
    if (transposed || fused->alternate)
        set_turns(&place, fused, transposed, t, all, parts);
    if (!fused->by_experts)
        return place;
    const int64_t shape[] = {p->experts.experts, place.shape[0], place.shape[1]};
    memcpy(place.shape, shape, sizeof shape);
    place.dims++;
    place.first += expert * all;
    place.part += expert; /* whatever is not the first */
    return place;
}

int64_t element_at(const StPlace *place, int64_t element, int64_t *count)
{
    for (int i = place->sections - 1; i >= 0; i--) {
        const StSection *s = &place->section[i];
        if (element < s->begin)
            continue;
        const int64_t at = element - s->begin, left = s->run - at % s->run;
        *count = *count < left ? *count : left;
        return s->first + at / s->run * s->stride + at % s->run;
    }
    const int64_t run = element / place->run, left = place->step > 1 ? 1 : (run + 1) * place->run - element;
    *count = *count < left ? *count : left;
    return place->first + run * place->stride + element % place->run * place->step;
}

const char *head_name(const Naming *n)
{
    int part;
    const FusedTensor *fused = family_fused(table_of(n), ST_HEAD, &part);
    if (n->head)
        return n->head;
    return fused ? fused->name : ST_HEAD;
}
