/* checkpoint/file.c: the contents and layout of a checkpoint file. */
#include "checkpoint/checkpoint.h"

#include "core/context.h"
#include "data/data.h"
#include "families/families.h"
#include "files/json.h"
#include "safetensors/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *model_facts(const BurstPlan *p)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "layers", p->layers, "hidden", p->hidden, "heads",
                     p->heads, "kv_heads", p->kv_heads, "head_dim", p->head_dim, "ffn", p->ffn, "vocab",
                     p->vocab);
}

static json_t *unit_facts(const BurstPlan *p)
{
    json_t *units = json_array();
    for (int i = 0, unit = 0; units && unit < burst_whole_count(p); unit += p->units[i++].repeat)
        json_array_append_new(units, json_pack("{s:s, s:I, s:i}", "name", p->units[i].name, "elements",
                                               (json_int_t)burst_whole_elements(p, unit), "repeat",
                                               p->units[i].repeat));
    return units;
}

static json_t *scale_facts(const BurstPlan *p)
{
    static const char *const names[] = {
#define X(id, name, constant) name,
        BURST_SCALE_ROWS(X)
#undef X
    };
    json_t *scales = json_object();
    for (int i = 0; scales && i < BURST_SCALES; i++)
        if (p->scale[i] > 0)
            json_object_set_new(scales, names[i], json_real(p->scale[i]));
    return scales;
}

/* The parts of layers that differ from a Llama's, and RoPE by layer if it differs. */
static json_t *layer_facts(const BurstPlan *p)
{
    static const char *const words[][7] = {
#define X(member, name, ...) {name, __VA_ARGS__},
        BURST_LAYER_FIELDS(X)
#undef X
    };
    const int values[] = {
#define X(member, name, ...) p->layer.member,
        BURST_LAYER_FIELDS(X)
#undef X
    };
    char text[ROPE_TEXT];
    json_t *facts = json_object(), *ropes = json_array();
    for (size_t i = 0; facts && i < sizeof values / sizeof *values; i++)
        if (values[i])
            json_object_set_new(facts, words[i][0], json_string(words[i][1 + values[i]]));
    for (int l = 0; ropes && p->ropes && l < p->layers; l++) {
        rope_text(&p->ropes[p->layer_rope[l]], text, sizeof text);
        json_array_append_new(ropes, json_string(text));
    }
    if (p->ropes)
        json_object_set(facts, "rope", ropes);
    json_decref(ropes);
    if (p->rope.rotary)
        json_object_set_new(facts, "rotary", json_integer(abs(p->rope.rotary)));
    const struct {
        const char *name;
        int value;
    } latents[] = {{"value_dim", p->value_dim}, {"latent", p->latent}, {"query_latent", p->query_latent}};
    for (size_t i = 0; facts && i < sizeof latents / sizeof *latents; i++)
        if (latents[i].value)
            json_object_set_new(facts, latents[i].name, json_integer(latents[i].value));
    if (p->layer.scan)
        json_object_set_new(facts, "scan",
                            json_pack("[i, i, i, i]", p->scan.heads, p->scan.key_heads, p->scan.key_dim,
                                      p->scan.value_dim));
    if (p->rope.interleaved)
        json_object_set_new(facts, "rotary_interleaved", json_true());
    return facts;
}

static json_t *data_facts(const BurstTrain *t)
{
    char *text = NULL;
    size_t n = 0;
    FILE *to = t->data_files ? open_memstream(&text, &n) : NULL;
    if (!to)
        return json_null();
    data_print(to, t);
    json_t *facts = fclose(to) == 0 ? json_text(text) : json_null();
    free(text);
    return facts;
}

static const char *const schedule_names[] = {
#define X(id, name) [BURST_SCHEDULE_##id] = name,
    BURST_SCHEDULE_ROWS(X)
#undef X
};

static const char *const optimizer_names[] = {
#define X(id, name) [BURST_OPTIMIZER_##id] = name,
    BURST_OPTIMIZER_ROWS(X)
#undef X
};

/* Facts that a resumed run may have changed: differences are reported, and a different optimizer is an
 * error. */
static json_t *train_facts(const BurstPlan *p, const BurstTrain *t)
{
    char rope[ROPE_TEXT];
    rope_text(&p->rope, rope, sizeof rope);
    return json_pack(
        "{s:I, s:I, s:I, s:o, s:b, s:I, s:I, s:I, s:I, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
        "s:f, s:f, s:s, s:f, s:o, s:o, s:o, s:s, s:f}",
        "sequence", (json_int_t)p->sequence, "batch", (json_int_t)t->batch, "seed", (json_int_t)t->seed,
        "data", data_facts(t), "packed", t->packed, "separator", (json_int_t)t->separator, "predict",
        (json_int_t)(t->predict ? t->predict : 1), "steps", (json_int_t)t->steps, "warmup",
        (json_int_t)t->warmup, "schedule", schedule_names[t->schedule], "decay_steps",
        (json_int_t)t->decay_steps, "lr", t->lr, "lr_end", t->lr_end, "beta1", t->beta1, "beta2", t->beta2,
        "eps", t->eps, "decay", t->decay, "clip", t->clip, "norm_eps", p->norm_eps, "rope_theta",
        p->rope.theta, "rope", rope, "softcap", p->softcap, "scales", scale_facts(p), "layer", layer_facts(p),
        "masks", masks_of(p), "optimizer", optimizer_names[t->optimizer], "momentum", t->momentum);
}

json_t *checkpoint_facts(const BurstPlan *p, const BurstTrain *t, int64_t done)
{
    json_t *facts = train_facts(p, t);
    json_t *more = json_pack("{s:o, s:o, s:I, s:o, s:i}", "model", model_facts(p), "units", unit_facts(p),
                             "step", (json_int_t)done, "source", json_text(p->source), "world", p->world);
    if (!facts || !more || json_object_update(facts, more) != 0) {
        json_decref(facts);
        facts = NULL;
    }
    json_decref(more);
    return facts;
}

static void put32(char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (char)(value >> (8 * i));
}

static bool make_header(Layout *l, const BurstPlan *p, const BurstTrain *t, int64_t done)
{
    json_t *facts = checkpoint_facts(p, t, done);
    char *text = facts ? json_dumps(facts, JSON_SORT_KEYS | JSON_INDENT(1)) : NULL;
    size_t n = text ? strlen(text) : 0;
    l->data_at = (off_t)((CHECKPOINT_PREFIX + n + CHECKPOINT_PAGE - 1) / CHECKPOINT_PAGE * CHECKPOINT_PAGE);
    l->header = text ? calloc(1, (size_t)l->data_at) : NULL;
    if (l->header) {
        memcpy(l->header, CHECKPOINT_MAGIC, 8);
        put32(l->header + 8, CHECKPOINT_VERSION);
        put32(l->header + 12, (uint32_t)n);
        memcpy(l->header + CHECKPOINT_PREFIX, text, n);
    }
    free(text);
    json_decref(facts);
    return l->header != NULL;
}

int layout_at(BurstCtx *c, const BurstPlan *p, off_t data_at, Layout *l)
{
    l->data_at = data_at;
    l->sections = CHECKPOINT_KINDS * burst_whole_count(p);
    l->section_at = calloc((size_t)l->sections + 1, sizeof *l->section_at);
    if (!l->section_at)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the checkpoint's section table");
    l->section_at[0] = data_at;
    for (int s = 0; s < l->sections; s++)
        l->section_at[s + 1] = l->section_at[s] + (off_t)(burst_whole_elements(p, s / CHECKPOINT_KINDS) *
                                                          (int64_t)sizeof(float));
    l->footer_at = l->section_at[l->sections];
    l->end = l->footer_at + 4 * (l->sections + 1) + 8;
    return BURST_OK;
}

/* Paths may have other names on other ranks' hosts: rank 0's header is used. */
int layout_make(BurstCtx *c, const BurstPlan *p, int64_t done, Layout *l)
{
    *l = (Layout){0};
    if (c->rank == 0 && !make_header(l, p, c->train, done))
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the checkpoint header");
    double at = (double)l->data_at;
    int status = burst_allreduce(c, (BurstGroup){0, 1, c->world}, &at, 1);
    if (status == BURST_OK)
        status = layout_at(c, p, (off_t)at, l);
    if (status != BURST_OK)
        layout_free(l);
    return status;
}

off_t layout_room(const Layout *l, int world)
{
    return l->end + (off_t)world * l->sections * (off_t)sizeof(uint32_t);
}

void layout_free(Layout *l)
{
    free(l->header);
    free(l->section_at);
    *l = (Layout){0};
}
