/* safetensors/scales.c: numbers that change what a model computes, as fields of config.json. */
#include "safetensors/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
#define X(id, name, constant) name,
    BURST_SCALE_ROWS(X)
#undef X
};

/* Converts a field's value to a scale and back: each form is its own inverse, except SCALE_INVERSE_ROOT. */
static double scale_of(const ScaleField *f, double value, const HfModel *m)
{
    switch (f->form) {
    case SCALE_INVERSE: return 1 / value;
    case SCALE_INVERSE_ROOT: return 1 / sqrt(value);
    case SCALE_ROOT_HIDDEN: return sqrt((double)m->hidden);
    case SCALE_BY_ROOT_LAYERS: return value / sqrt((double)m->layers);
    case SCALE_BY_HIDDEN: return value / (double)m->hidden;
    case SCALE_BY_ROOT_HEAD: return value / sqrt((double)m->head_dim);
    default: return value;
    }
}

static double field_of(const ScaleField *f, double scale, const HfModel *m)
{
    switch (f->form) {
    case SCALE_INVERSE: return 1 / scale;
    case SCALE_INVERSE_ROOT: return 1 / (scale * scale);
    case SCALE_BY_ROOT_LAYERS: return scale * sqrt((double)m->layers);
    case SCALE_BY_HIDDEN: return scale * (double)m->hidden;
    case SCALE_BY_ROOT_HEAD: return scale * sqrt((double)m->head_dim);
    default: return scale;
    }
}

static bool same(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(b); }

static double power_of(const json_t *config, const ScaleField *f)
{
    const json_t *value = f->times ? json_object_get(config, f->times) : NULL;
    return given(value) ? pow(json_number_value(value), f->power) : 1;
}

/* The field, or its item; NULL: it is not given. */
static const json_t *scale_value(Misfits *m, const json_t *config, const ScaleField *f)
{
    const json_t *value = f->name ? json_object_get(config, f->name) : NULL;
    char text[VALUE_TEXT];
    if (!f->item || !given(value))
        return value;
    value_text(value, text);
    if (json_array_size(value) < (size_t)f->item)
        misfit(m, "%s is %s; only a list of at least %d numbers is computed", f->name, text, f->item);
    return json_array_get(value, (size_t)f->item - 1);
}

static void read_scale(Misfits *m, const json_t *config, const ScaleField *f, HfModel *there)
{
    const json_t *value = scale_value(m, config, f);
    const bool null = f->scale == BURST_SCALE_LOGIT_SOFTCAP || f->form == SCALE_BY_ROOT_LAYERS ||
                      f->form == SCALE_BY_HIDDEN; /* is none of it */
    const bool none = null && value && json_is_null(value);
    const double number = (given(value) ? json_number_value(value) : f->absent) * power_of(config, f);
    char text[VALUE_TEXT];
    value_text(value, text);
    if (given(value) && !(number >= 1e-6 && number <= 1e6))
        misfit(m, "%s is %s%s%s; only a number from 1e-6 to 1e6 is computed", f->name, text,
               f->times ? ", times a power of " : "", f->times ? f->times : "");
    else
        there->scale[f->scale] = none ? 0 : scale_of(f, number, there);
}

static void compare(Misfits *m, const HfModel *plan, const HfModel *there, int i)
{
    const ScaleField *f = family_scale(there->family, i);
    const double here = scale_number(plan->scale, i, (double)plan->head_dim),
                 seen = scale_number(there->scale, i, (double)there->head_dim);
    if (same(seen, here))
        return;
    if (i == BURST_SCALE_ATTENTION && plan->parts.layer.latent) /* yarn sets it */
        misfit_rope(m, "%s is %.9g, and the plan's is %.9g", names[i], seen, here);
    else if (f && f->name)
        misfit(m, "%s is %.9g, and the plan's %s makes it %.9g", f->name, field_of(f, seen, there), names[i],
               field_of(f, here, plan));
    else
        misfit(m, "%s of a %s is %.9g, and the plan's is %.9g", names[i], there->family->type, seen, here);
}

void scales_read(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there)
{
    for (const ScaleField *f = there->family->scales; f->name || f->form; f++)
        read_scale(m, config, f, there);
    for (int i = 0; i < BURST_SCALES; i++) {
        const double none[BURST_SCALES] = {0};
        if (plan)
            compare(m, plan, there, i);
        else if (there->head_dim && same(there->scale[i], scale_number(none, i, (double)there->head_dim)))
            there->scale[i] = 0;
    }
}

bool scales_has_field(const Family *family, const char *name)
{
    for (const ScaleField *f = family->scales; f->name || f->form; f++)
        if ((f->name && strcmp(f->name, name) == 0) || (f->times && strcmp(f->times, name) == 0))
            return true;
    return false;
}

/* transformers accepts only integers for the square of a root and for a fraction of hidden. */
static json_t *number_of(const ScaleField *f, const HfModel *m)
{
    const double value = field_of(f, scale_number(m->scale, f->scale, (double)m->head_dim), m);
    const bool may = f->form == SCALE_INVERSE_ROOT || f->form == SCALE_BY_HIDDEN,
               whole = may && same(round(value), value);
    if (value == 0)
        return json_null();
    return whole ? json_integer((json_int_t)round(value)) : json_real(value);
}

/* Items follow each other, the first begins their list. */
static bool write_item(json_t *config, const ScaleField *f, json_t *number)
{
    const bool made = f->item > 1 || json_object_set_new(config, f->name, json_array()) == 0;
    return made && json_array_append_new(json_object_get(config, f->name), number) == 0;
}

/* A field whose power multiplies another is not written: it is 1. */
bool scales_write(json_t *config, const HfModel *m)
{
    bool made = true;
    for (const ScaleField *f = m->family->scales; made && (f->name || f->form); f++)
        if (f->item)
            made = write_item(config, f, number_of(f, m));
        else if (f->name)
            made = json_object_set_new(config, f->name, number_of(f, m)) == 0;
    return made;
}

void scales_text(FILE *out, const HfModel *m)
{
    for (int i = 0; i < BURST_SCALES; i++)
        if (m->scale[i] > 0)
            fprintf(out, " %s %.15g;", names[i], m->scale[i]);
}
