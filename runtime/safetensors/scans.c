/* safetensors/scans.c: which layers have a scan in place of attention, by config.json: a list of types, or
 * the distance of layers with attention. */
#include "safetensors/safetensors.h"

#include <stdio.h>
#include <string.h>

bool plan_has_scan(const BurstPlan *p, int layer)
{
    const BurstUnit *u = burst_unit(p, 1 + layer);
    for (int t = 0; t < u->tensors; t++)
        if (strcmp(u->tensor[t].name, "linear_attn.A_log") == 0)
            return true;
    return false;
}

int64_t plan_scan_kernel(const BurstPlan *p)
{
    for (int u = 0; u < p->unit_rows; u++)
        for (int t = 0; t < p->units[u].tensors; t++)
            if (strcmp(p->units[u].tensor[t].name, "linear_attn.conv1d.weight") == 0)
                return p->units[u].tensor[t].cols;
    return 0;
}

static bool has_scan(const Family *f, const json_t *config, int layer)
{
    const json_t *types = json_object_get(config, "layer_types"),
                 *interval = json_object_get(config, f->scan->interval);
    if (given(types)) {
        const char *type = json_string_value(json_array_get(types, (size_t)layer));
        return type && strcmp(type, f->scan->type) == 0;
    }
    const json_int_t each = given(interval) ? json_integer_value(interval) : f->scan->absent_interval;
    return each > 0 && (layer + 1) % each != 0;
}

static void check_interval(Misfits *m, const json_t *config, const Family *f)
{
    const json_t *interval = json_object_get(config, f->scan->interval);
    char text[VALUE_TEXT];
    value_text(interval, text);
    if (interval && (!json_is_integer(interval) || json_integer_value(interval) < 1))
        misfit(m, "%s is %s, expected a whole number of at least 1", f->scan->interval, text);
}

void scans_check(Misfits *m, const BurstPlan *p, const json_t *config, const HfModel *there)
{
    const Family *f = there->family;
    int64_t scans = 0;
    if (!f->scan)
        return;
    check_interval(m, config, f);
    for (int64_t l = 0; l < there->layers; l++)
        scans += has_scan(f, config, (int)l);
    if (!p && (scans == 0 || scans == there->layers))
        misfit(m, "%s layers are of type %s; only a %s with layers of both %s and full_attention is computed",
               scans ? "all" : "no", f->scan->type, f->type, f->scan->type);
    for (int l = 0; p && l < p->layers; l++)
        if (has_scan(f, config, l) != plan_has_scan(p, l)) {
            misfit(m, "layer %d has %s by layer_types or %s, and %s in the plan", l,
                   plan_has_scan(p, l) ? "attention" : "a scan", f->scan->interval,
                   plan_has_scan(p, l) ? "a scan" : "attention");
            return;
        }
}

/* `scan layers 0 .. 2, 4 .. 6: { ... }` */
void scans_text(FILE *out, const HfModel *m, const json_t *config)
{
    const char *before = "  scan layers ";
    if (!m->family->scan)
        return;
    for (int from = 0, to; from < m->layers; from = to + 1) {
        for (to = from; to < m->layers && has_scan(m->family, config, to);)
            to++;
        if (to == from)
            continue;
        fprintf(out, to == from + 1 ? "%s%d" : "%s%d .. %d", before, from, to - 1);
        before = ", ";
    }
    fprintf(out, ": {\n    heads %lld; key_heads %lld; key_dim %lld; value_dim %lld; conv %lld;\n  }\n",
            (long long)m->scan_heads, (long long)m->scan_key_heads, (long long)m->scan_key_dim,
            (long long)m->scan_value_dim, (long long)m->scan_kernel);
}
