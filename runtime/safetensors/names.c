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

static void full_name(const BurstPlan *p, int unit, const char *tensor, char name[ST_NAME])
{
    const BurstUnit *row = p->units;
    for (; unit >= row->repeat; row++)
        unit -= row->repeat;
    const char *number = strstr(row->name, "%d");
    if (number)
        snprintf(name, ST_NAME, "%.*s%d%s.%s", (int)(number - row->name), row->name, unit, number + 2,
                 tensor);
    else
        snprintf(name, ST_NAME, "%s", tensor);
}

static int64_t rows_of(const BurstUnit *u, const char *tensor)
{
    for (int i = 0; i < u->tensors; i++)
        if (strcmp(u->tensor[i].name, tensor) == 0)
            return u->tensor[i].rows;
    return 0;
}

float tensor_shift(const Family *f, const BurstTensor *t)
{
    return f->norms_less_one && strstr(t->name, "norm.weight") ? -1 : 0;
}

StPlace tensor_place(const BurstPlan *p, const Family *f, int unit, const BurstTensor *t)
{
    const BurstUnit *u = burst_unit(p, unit);
    const bool vector = t->init_std <= 0;
    StPlace place = {.dims = vector ? 1 : 2, .shape = {vector ? t->rows * t->cols : t->rows, t->cols}};
    const FusedTensor *fused = family_fused(f, t->name, &place.part);
    full_name(p, unit, fused ? fused->name : t->name, place.name);
    if (!fused)
        return place;
    place.shape[0] = 0;
    for (int i = 0; i < FUSED_PARTS && fused->part[i]; i++) {
        place.first = i == place.part ? place.shape[0] * t->cols : place.first;
        place.shape[0] += vector ? t->rows * t->cols : rows_of(u, fused->part[i]);
    }
    return place;
}
