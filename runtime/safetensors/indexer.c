/* safetensors/indexer.c: see safetensors.h. */
#include "safetensors/safetensors.h"

#include "burst_attend.h"

#include <stdio.h>
#include <string.h>

bool plan_has_indexer(const BurstPlan *p, int layer)
{
    const BurstUnit *u = burst_unit(p, 1 + layer);
    for (int t = 0; t < u->tensors; t++)
        if (strcmp(u->tensor[t].name, BURST_INDEXER_TENSORS "q_proj.weight") == 0)
            return true;
    return false;
}

bool config_has_indexer(const Family *f, const json_t *config, int layer)
{
    const json_t *types = json_object_get(config, "layer_types");
    bool has = false;
    for (size_t i = 0; f->index && i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        has |= type && (layer < 0 || (size_t)layer == i) && strcmp(type, f->index->type) == 0;
    }
    return has;
}

void plan_index_blocks(const BurstPlan *p, HfModel *m)
{
    long long n = 0, block = 0, local = 1;
    for (int l = 0; l < p->layers && p->indexer.heads && !block; l++) {
        const BurstMask *mask = p->masks ? p->masks[p->layer_mask[l]] : NULL;
        if (!mask || !mask->selection || !plan_has_indexer(p, l))
            continue;
        n = mask->selection->top, block = mask->selection->block;
        if (sscanf(mask->text, "msa(%lld, %lld, %lld)", &n, &block, &local) != 3)
            local = 1;
    }
    m->index_block = block, m->index_top = n + local, m->index_local = local;
}

static json_int_t number(const json_t *config, const char *name, int absent)
{
    const json_t *value = json_object_get(config, name);
    return given(value) ? json_integer_value(value) : absent;
}

void index_mask(const Family *f, const json_t *config, char text[MASK_TEXT])
{
    const IndexFields *x = f->index;
    const json_int_t local = number(config, x->local, x->absent_local);
    snprintf(text, MASK_TEXT, "msa(%lld, %lld, %lld)",
             (long long)(number(config, x->top, x->absent_top) - local),
             (long long)number(config, x->block, x->absent_block), (long long)local);
}

void index_text(FILE *out, const HfModel *m)
{
    const int turns = m->rope.rotary ? m->rope.rotary : (int)m->head_dim;
    if (!m->parts.layer.indexer)
        return;
    fprintf(out,
            "indexer ix { heads %lld; dim %lld; norm rmsnorm; rotary %d; from hidden; train frozen; }\n"
            "# Tiles of 128 queries choose together, by their first; a model of transformers chooses for "
            "each query.\n"
            "select msa(n, b, l) = top n of k / b by ix(first Q, max K) for kv_head per 128 queries\n"
            "  where causal always q / b - k / b < l;\n",
            (long long)m->index_heads, (long long)m->index_dim, turns);
}

void index_check(Misfits *m, const HfModel *there)
{
    enum { TILE = 128 };
    const IndexFields *x = there->family->index;
    const int64_t turns = there->rope.rotary ? there->rope.rotary : there->head_dim;
    if (!x || !there->parts.layer.indexer)
        return;
    if (there->index_block != TILE)
        misfit(m, "%s is %lld; only %d, the queries that choose together, is computed", x->block,
               (long long)there->index_block, TILE);
    if (there->index_top <= there->index_local)
        misfit(m, "%s is %lld; only a number above %s, which is %lld, is computed", x->top,
               (long long)there->index_top, x->local, (long long)there->index_local);
    if (there->index_dim < turns)
        misfit(m, "%s is %lld; only a number from %lld on, the elements of a head that turn, is computed",
               x->dim, (long long)there->index_dim, (long long)turns);
    if (there->kv_heads && there->index_heads % there->kv_heads)
        misfit(m, "%s is %lld; only a multiple of num_key_value_heads, which is %lld, is computed", x->heads,
               (long long)there->index_heads, (long long)there->kv_heads);
}
