/* safetensors/scans.c: which layers have a scan, beside attention or in its place, by config.json: a list of
 * types, or the distance of layers with attention. */
#include "safetensors/safetensors.h"

#include <stdio.h>
#include <string.h>

/* Of a convolution without states: whether it and both projections have biases. */
static const char BIASES[] = "conv_bias";

static bool layer_has(const BurstPlan *p, int layer, const char *tensor)
{
    const BurstUnit *u = burst_unit(p, 1 + layer);
    for (int t = 0; t < u->tensors; t++)
        if (strcmp(u->tensor[t].name, tensor) == 0)
            return true;
    return false;
}

bool plan_has_scan(const BurstPlan *p, int layer) { return layer_has(p, layer, "linear_attn.conv1d.weight"); }

bool plan_attends(const BurstPlan *p, int layer) { return layer_has(p, layer, "self_attn.o_proj.weight"); }

bool plan_has_experts(const BurstPlan *p, int layer) { return layer_has(p, layer, "mlp.router.weight"); }

bool plan_has_network(const BurstPlan *p, int layer)
{
    return layer_has(p, layer, "mlp.down_proj.weight") || plan_has_experts(p, layer);
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
    const ScanFields *x = f->scan;
    const json_t *types = json_object_get(config, "layer_types");
    if (given(types)) {
        const char *type = json_string_value(json_array_get(types, (size_t)layer));
        return type && (strcmp(type, x->type) == 0 || (x->also && strcmp(type, x->also) == 0));
    }
    const json_t *attention = x->attention ? json_object_get(config, x->attention) : NULL;
    for (size_t i = 0; i < json_array_size(attention); i++)
        if (json_integer_value(json_array_get(attention, i)) == layer)
            return false;
    const json_t *interval = x->interval ? json_object_get(config, x->interval) : NULL;
    const json_int_t each = given(interval) ? json_integer_value(interval) : x->absent_interval;
    return !x->interval || (each > 0 && (layer + 1) % each != 0);
}

/* Of layers with one part, how many have no experts; 0: none has a dense network, all of them: none has
 * experts. */
static int64_t single_dense(int64_t layers, int64_t sparse, int64_t dense)
{
    if (!sparse)
        return layers;
    return dense ? layers - sparse : 0;
}

static const char *layer_type(const json_t *config, int layer)
{
    const char *type = json_string_value(
        json_array_get(json_object_get(config, "layer_types"), (size_t)layer));
    return type ? type : "";
}

/* A dense network alone, experts alone, either. */
static bool is_dense(const Family *f, const json_t *config, int layer)
{
    return f->network && strcmp(layer_type(config, layer), f->network) == 0;
}

static bool is_sparse(const Family *f, const json_t *config, int layer)
{
    return f->sparse && strcmp(layer_type(config, layer), f->sparse) == 0;
}

static bool is_network(const Family *f, const json_t *config, int layer)
{
    return is_dense(f, config, layer) || is_sparse(f, config, layer);
}

int64_t config_single(const Family *f, const json_t *config, uint64_t dense_at[DENSE_WORDS])
{
    const int64_t layers = (int64_t)json_array_size(json_object_get(config, "layer_types"));
    int64_t sparse = 0, dense = 0;
    for (int64_t l = 0; l < layers && l < DENSE_MOST; l++) {
        sparse += is_sparse(f, config, (int)l);
        dense += is_dense(f, config, (int)l);
        dense_at[l / 64] |= (uint64_t)is_dense(f, config, (int)l) << l % 64;
    }
    return single_dense(layers, sparse, dense);
}

int64_t plan_single(const BurstPlan *p)
{
    int64_t sparse = 0, dense = 0;
    for (int l = 0; l < p->layers; l++) {
        sparse += plan_has_experts(p, l);
        dense += layer_has(p, l, "mlp.down_proj.weight");
    }
    return single_dense(p->layers, sparse, dense);
}

bool config_has_scans(const Family *f, const json_t *config)
{
    const json_int_t layers = json_integer_value(json_object_get(config, "num_hidden_layers"));
    for (int l = 0; f->scan && l < layers; l++)
        if (has_scan(f, config, l))
            return true;
    return false;
}

static void check_interval(Misfits *m, const json_t *config, const Family *f)
{
    const json_t *interval = f->scan->interval ? json_object_get(config, f->scan->interval) : NULL;
    char text[VALUE_TEXT];
    value_text(interval, text);
    if (interval && (!json_is_integer(interval) || json_integer_value(interval) < 1))
        misfit(m, "%s is %s, expected a whole number of at least 1", f->scan->interval, text);
}

/* Infinity is no JSON: transformers writes it as an object. */
static double most_of(const json_t *value)
{
    const char *word = json_string_value(json_object_get(value, "__float__"));
    return word && strcmp(word, "Infinity") == 0 ? BURST_MOST_STEP : json_number_value(value);
}

static void read_least(Misfits *m, const json_t *config, HfModel *there)
{
    const ScanFields *x = there->family->scan;
    const json_t *least = json_object_get(config, x->least);
    char text[VALUE_TEXT];
    value_text(least, text);
    there->step_least = given(least) ? json_number_value(least) : x->absent_least;
    if (given(least) && (!json_is_number(least) || there->step_least < 0))
        misfit(m, "%s is %s; only a number from 0 on is computed", x->least, text);
}

/* The least and the most step, [0, 0.1]. */
static void read_limit(Misfits *m, const json_t *config, HfModel *there)
{
    const char *name = there->family->scan->limit;
    const json_t *limit = name ? json_object_get(config, name) : NULL, *least = json_array_get(limit, 0),
                 *most = json_array_get(limit, 1);
    char text[VALUE_TEXT];
    there->step_most = BURST_MOST_STEP;
    if (there->family->scan->least)
        read_least(m, config, there);
    if (!given(limit))
        return;
    value_text(limit, text);
    there->step_least = json_number_value(least), there->step_most = most_of(most);
    if (json_array_size(limit) != 2 || there->step_least < 0 || there->step_most <= there->step_least)
        misfit(m, "%s is %s; only the least step and the most are computed", name, text);
}

/* A gate after the norm, where there is one. */
static void check_gate_after(Misfits *m, const json_t *config, const HfModel *there)
{
    const char *name = there->family->scan->gate_after;
    const json_t *after = name ? json_object_get(config, name) : NULL;
    if (name && !there->parts.layer.scan_plain && (!after || json_is_true(after)))
        misfit(m, "%s is true; with mamba_rms_norm only false, a gate before the norm, is computed", name);
}

/* The values of all heads, as a field says how many they are. */
static void check_total(Misfits *m, int64_t total, const HfModel *there)
{
    const ScanFields *x = there->family->scan;
    const int64_t values = there->scan_heads * there->scan_value_dim;
    if (total != values)
        misfit(m, "%s is %lld, and %s times %s is %lld", x->total, (long long)total, x->heads, x->value_dim,
               (long long)values);
}

/* The values of all heads are a whole multiple of the model's width. */
static void check_expand(Misfits *m, const json_t *config, const HfModel *there)
{
    const ScanFields *x = there->family->scan;
    const json_t *expand = x->expand ? json_object_get(config, x->expand) : NULL;
    const int64_t times = given(expand) ? json_integer_value(expand) : 2;
    const json_t *total = x->total ? json_object_get(config, x->total) : NULL;
    if (x->total && (!total || given(total)))
        check_total(m, total ? json_integer_value(total) : x->absent_total, there);
    else if (x->expand && times * there->hidden != there->scan_heads * there->scan_value_dim)
        misfit(m, "%s is %lld, and %s times %s is %lld; only %s times hidden_size, %lld, is computed",
               x->expand, (long long)times, x->heads, x->value_dim,
               (long long)(there->scan_heads * there->scan_value_dim), x->expand,
               (long long)(times * there->hidden));
}

/* Whether beta is at most 2. */
static void read_beta(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there)
{
    const char *name = there->family->scan->doubles;
    const json_t *doubles = name ? json_object_get(config, name) : NULL;
    char text[VALUE_TEXT];
    there->beta_most = name && (!doubles || json_is_true(doubles)) ? 2 : 1;
    value_text(doubles, text);
    if (doubles && !json_is_boolean(doubles))
        misfit(m, "%s is %s; only true or false is read", name, text);
    else if (name && plan && (plan->beta_most > 1) != (there->beta_most > 1))
        misfit(m, "%s is %s, expected %s", name, there->beta_most > 1 ? "true" : "false",
               plan->beta_most > 1 ? "true" : "false");
}

void scans_read(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there)
{
    const ScanFields *x = there->family->scan;
    if (!x || !there->parts.layer.scan || (plan && !plan->parts.layer.scan))
        return;
    if (!x->heads && json_is_true(json_object_get(config, BIASES)))
        misfit(m, "%s is true; only false is computed of a %s", BIASES, there->family->type);
    check_interval(m, config, there->family);
    read_limit(m, config, there);
    read_beta(m, config, plan, there);
    there->scan_eps = x->norm_eps;
    check_expand(m, config, there);
    check_gate_after(m, config, there);
    if (plan && x->least && (plan->step_least < there->step_least || plan->step_least > there->step_least))
        misfit(m, "%s is %g, expected %g", x->least, there->step_least, plan->step_least);
    if (plan && x->limit &&
        (plan->step_least < there->step_least || plan->step_least > there->step_least ||
         plan->step_most < there->step_most || plan->step_most > there->step_most))
        misfit(m, "%s is [%g, %g], expected [%g, %g]", x->limit, there->step_least, there->step_most,
               plan->step_least, plan->step_most);
}

bool scans_has_field(const Family *f, const char *name)
{
    const ScanFields *x = f->scan;
    const char *const names[] = {
        x ? x->interval : NULL,         x ? x->expand : NULL, x ? x->limit : NULL,   x ? x->attention : NULL,
        x && !x->heads ? BIASES : NULL, x ? x->least : NULL,  x ? x->doubles : NULL, x ? x->total : NULL,
        x ? x->gate_after : NULL};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i] && strcmp(names[i], name) == 0)
            return true;
    return false;
}

bool scans_write(json_t *config, const HfModel *m)
{
    const ScanFields *x = m->family->scan;
    bool made = true;
    if (!x || !m->parts.layer.scan)
        return true;
    if (x->total)
        made = json_object_set_new(config, x->total,
                                   json_integer((json_int_t)(m->scan_heads * m->scan_value_dim))) == 0;
    else if (x->expand)
        made = json_object_set_new(config, x->expand,
                                   json_integer(
                                       (json_int_t)(m->scan_heads * m->scan_value_dim / m->hidden))) == 0;
    if (x->gate_after)
        made = made && json_object_set_new(config, x->gate_after, json_false()) == 0;
    if (x->doubles)
        made = made && json_object_set_new(config, x->doubles, json_boolean(m->beta_most > 1)) == 0;
    if (x->least)
        made = made && json_object_set_new(config, x->least, json_real(m->step_least)) == 0;
    if (!x->limit)
        return made;
    if (m->step_least > 0 || m->step_most < BURST_MOST_STEP)
        made = made &&
               json_object_set_new(config, x->limit, json_pack("[f, f]", m->step_least, m->step_most)) == 0;
    return made;
}

/* Of layers with one part. */
static void check_single(Misfits *m, const BurstPlan *p, const json_t *config, const Family *f)
{
    const json_t *types = json_object_get(config, "layer_types");
    if (!given(types))
        misfit(m, "config.json has no %s, and no %s", f->types_field, f->pattern_field);
    for (size_t l = 0; l < json_array_size(types); l++) {
        const char *type = layer_type(config, (int)l);
        const bool known = p && (int)l < p->layers;
        if (known && is_sparse(f, config, (int)l) != plan_has_experts(p, (int)l)) {
            misfit(m, "layer %zu is \"%s\" by %s, and has %s in the plan", l, type, f->types_field,
                   is_sparse(f, config, (int)l) ? "no experts" : "experts");
            return;
        }
        if (known && is_network(f, config, (int)l) == !plan_has_network(p, (int)l)) {
            misfit(m, "layer %zu is \"%s\" by %s, and has %s in the plan", l, type, f->types_field,
                   plan_has_network(p, (int)l) ? "a feed-forward network" : "a mixer");
            return;
        }
    }
}

void scans_check(Misfits *m, const BurstPlan *p, const json_t *config, const HfModel *there)
{
    const Family *f = there->family;
    int64_t scans = 0, others = 0;
    if (!f->scan)
        return;
    if (f->network)
        check_single(m, p, config, f);
    for (int64_t l = 0; l < there->layers; l++) {
        scans += has_scan(f, config, (int)l);
        others += is_network(f, config, (int)l);
    }
    if (!p && !f->parts.layer.scan_attends &&
        ((scans == 0 && !f->scan->optional) || scans + others == there->layers))
        misfit(m, "%s layers are of type %s; only a %s with layers of both %s and full_attention is computed",
               scans ? "all" : "no", f->scan->type, f->type, f->scan->type);
    for (int l = 0; p && l < p->layers; l++)
        if (has_scan(f, config, l) != plan_has_scan(p, l)) {
            misfit(m, "layer %d has %s by layer_types%s%s, and %s in the plan", l,
                   plan_has_scan(p, l) ? "attention" : "a scan", f->scan->interval ? " or " : "",
                   f->scan->interval ? f->scan->interval : "", plan_has_scan(p, l) ? "a scan" : "attention");
            return;
        }
}

static bool is_mixer(const Family *f, const json_t *config, int layer)
{
    return !is_network(f, config, layer);
}

/* "  scan layers 0 .. 2, 4": those that are so. */
static void write_layers(FILE *out, const char *before, const HfModel *m, const json_t *config,
                         bool is(const Family *f, const json_t *config, int layer))
{
    for (int from = 0, to; from < m->layers; from = to + 1) {
        for (to = from; to < m->layers && is(m->family, config, to);)
            to++;
        if (to == from)
            continue;
        fprintf(out, to == from + 1 ? "%s%d" : "%s%d .. %d", before, from, to - 1);
        before = ", ";
    }
}

static void write_single(FILE *out, const HfModel *m, const json_t *config)
{
    write_layers(out, "  mixer layers ", m, config, is_network);
    fputs(": none;\n", out);
    write_layers(out, "  ffn layers ", m, config, is_mixer);
    fputs(": none;\n", out);
}

/* `scan layers 0 .. 2, 4 .. 6: { ... }` */
void scans_text(FILE *out, const HfModel *m, const json_t *config)
{
    const ScanFields *x = m->family->scan;
    if (!x || !m->parts.layer.scan)
        return;
    if (m->family->network)
        write_single(out, m, config);
    write_layers(out, "  scan layers ", m, config, has_scan);
    if (!x->heads) {
        fprintf(out, ": {\n    conv %lld;\n  }\n", (long long)m->scan_kernel);
        return;
    }
    fprintf(out, ": {\n    heads %lld; key_heads %lld; key_dim %lld; value_dim %lld; conv %lld%s;",
            (long long)m->scan_heads, (long long)m->scan_key_heads, (long long)m->scan_key_dim,
            (long long)m->scan_value_dim, (long long)m->scan_kernel, x->bias ? " bias" : "");
    const char *gate = x->before ? " gate silu before norm;" : "";
    fprintf(out, "%s%s%s%s", x->read ? "" : " read none;", m->parts.layer.scan_plain ? " norm none;" : gate,
            x->skip ? " skip yes;" : "", m->parts.layer.scan_attends ? " attention yes;" : "");
    if (m->family->parts.layer.scan_norms)
        fputs(" norms before;", out);
    if (m->scan_eps > 0)
        fprintf(out, " norm_eps %.15g;", m->scan_eps);
    if (m->beta_most > 1)
        fprintf(out, " beta_most %.15g;", m->beta_most);
    if (m->step_least > 0)
        fprintf(out, " step_least %.15g;", m->step_least);
    if (m->step_most > 0 && m->step_most < BURST_MOST_STEP)
        fprintf(out, " step_most %.15g;", m->step_most);
    fputs("\n  }\n", out);
}

/* ---- other forms of the list of types ---- */

/* A layer's type by a letter, or by another word. */
static const struct {
    char letter;
    const char *word, *type;
} type_words[] = {
    {'M', "mamba", "linear_attention"},
    {'*', "attention", "full_attention"},
    {'-', "mlp", "mlp"},
    {'E', "moe", "moe"},
};
enum { TYPE_WORDS = sizeof type_words / sizeof *type_words };

/* What is not known stays, for a message. */
static json_t *type_of_letter(char letter)
{
    for (int i = 0; i < TYPE_WORDS; i++)
        if (type_words[i].letter == letter)
            return json_string(type_words[i].type);
    return json_stringn(&letter, 1);
}

static json_t *type_of_word(const json_t *word)
{
    for (int i = 0; i < TYPE_WORDS && json_is_string(word); i++)
        if (strcmp(type_words[i].word, json_string_value(word)) == 0)
            return json_string(type_words[i].type);
    return json_deep_copy(word);
}

json_t *layer_types_read(json_t *config)
{
    const Family *f = family_named(json_string_value(json_object_get(config, "model_type")));
    if (!f || !f->types_field)
        return config;
    const json_t *list = json_object_get(config, f->types_field);
    const char *letter = json_string_value(json_object_get(config, f->pattern_field));
    json_t *types = json_array(), *read = json_deep_copy(config);
    for (size_t i = 0; i < json_array_size(list); i++)
        json_array_append_new(types, type_of_word(json_array_get(list, i)));
    for (; !given(list) && letter && *letter; letter++)
        json_array_append_new(types, type_of_letter(*letter));
    const size_t layers = json_array_size(types);
    if (layers) {
        json_object_set_new(read, "num_hidden_layers", json_integer((json_int_t)layers));
        json_object_set(read, "layer_types", types);
    }
    json_object_del(read, f->types_field);
    json_object_del(read, f->pattern_field);
    json_decref(types);
    json_decref(config);
    return read;
}

bool layer_types_write(json_t *config, const Family *family)
{
    if (!family->types_field)
        return true;
    return json_object_set(config, family->types_field, json_object_get(config, "layer_types")) == 0 &&
           json_object_del(config, "layer_types") == 0 && json_object_del(config, "num_hidden_layers") == 0;
}
