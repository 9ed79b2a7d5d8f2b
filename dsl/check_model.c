/* check_model.c: a model file: the model and the sequence; for a library, its attention. */
#include "check.h"

#include "families/families.h"
#include "families/frequency.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- a model file ---- */
static void take_import(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    (void)to;
    import_file(c, s, ".burst", check_declarations);
}

static void take_table(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    (void)to;
    declare_table(c, s);
}

/* Warns about `sequence 2K;`, which is 2000 tokens. */
static void warn_decimal(Checker *c, const Ast *s)
{
    static const char factors[] = "KMGT";
    const Ast *n = s->args.first;
    if (!n || n->kind != A_NUMBER || n->number.bad || c->in->sequence)
        return;
    const char *text = arena_copy(c->arena, n->span.src->text + n->span.begin, n->span.end - n->span.begin);
    const char *factor = strchr(factors, text[strlen(text) - 1]);
    if (!factor)
        return;
    const double ratio = pow(1.024, (double)(factor - factors + 1));
    diag_warn(c->diags, WARN_DECIMAL_LENGTH, n->span, "'%s' is %.0f tokens; did you mean '%si', %.0f tokens?",
              text, n->number.value, text, n->number.value * ratio);
    diag_fixit(c->diags, n->span, arena_printf(c->arena, "%si", text));
}

/* Reads `sequence` at once, since a block after its values may be another setting's. An error in the number
 * affects nothing else. */
static void take_sequence(Checker *c, const Ast *s, const Field *f, void *to)
{
    take_once(c, s, f, to);
    warn_decimal(c, s);
    int before = diags_errors(c->diags), mended = c->mended;
    take_int64(c, s, f, &c->program->sequence);
    c->program->sequence = c->in->sequence ? c->in->sequence : c->program->sequence;
    c->program->sequence_span = s->span;
    c->mended = mended + diags_errors(c->diags) - before;
}

static const Field file_fields[] = {
    {"import", take_import, 0, FIELD_REPEATS},
    {"table", take_table, 0, FIELD_REPEATS},
    {"model", take_once, offsetof(Checker, model), FIELD_BLOCK},
    {"attention", take_once, offsetof(Checker, attention), FIELD_BLOCK},
    {"indexer", take_once, offsetof(Checker, indexer), FIELD_BLOCK},
    {"sequence", take_sequence, offsetof(Checker, sequence), 0, UNIT_NONE, 1, 0x1p40},
    {"layout", take_once, offsetof(Checker, layout), FIELD_BLOCK},
    {"train", take_once, offsetof(Checker, train), FIELD_BLOCK},
    {"infer", take_once, offsetof(Checker, infer), FIELD_BLOCK},
};

bool is_model_file(AstList items) { return has_setting(items, file_fields, countof(file_fields)); }

static void declare(Checker *c, Ast *s)
{
    if (s->kind == A_MASK || s->kind == A_SELECT)
        declare_mask(c, s);
    else
        diag_error(c->diags, s->name_span,
                   "a schedule is not allowed in a model file; write it in a "
                   "separate .sched file");
}

void check_declarations(Checker *c, AstList items)
{
    take_file(c, items, declare, file_fields, countof(file_fields), "a model file");
}

/* ---- the model ---- */
/* `ACTIVATION WIDTH`, up to the end of the statement. */
static bool cursor_ffn(Cursor *u, const Field *f, int *activation, int *columns)
{
    static const char *const kinds[] = {
#define X(id, name) name,
        BURST_ACTIVATION_ROWS(X)
#undef X
    };
    int64_t width;
    const int kind = cursor_choice(u, kinds, countof(kinds));
    if (kind < 0 || !cursor_whole(u, (int64_t)f->lo, (int64_t)f->hi, &width) || !cursor_end(u))
        return false;
    *activation = kind;
    *columns = (int)width;
    return true;
}

bool take_ffn(Checker *c, const Ast *s, const Field *f, int *activation, int *columns)
{
    Cursor u = cursor_of(c, s);
    return cursor_ffn(&u, f, activation, columns);
}

static void take_norm(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const kinds[] = {"rmsnorm", "layernorm"};
    Model *m = to;
    Cursor u = cursor_of(c, s);
    const int kind = cursor_choice(&u, kinds, countof(kinds));
    if (kind >= 0 && cursor_number(&u, UNIT_NONE, f->lo, f->hi, &m->norm_eps) && cursor_end(&u))
        m->layer.norm = kind;
}

static void take_norms(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const places[] = {"before", "after", "both"};
    (void)f;
    take_word(c, s, places, countof(places), &((Model *)to)->layer.norms);
}

static void take_parallel(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const words[] = {"no", "yes", "two_norms"};
    (void)f;
    take_word(c, s, words, countof(words), &((Model *)to)->layer.parallel);
}

void take_part(Checker *c, const Ast *s, const Field *f, void *to)
{
    bool yes = false;
    take_yes_no(c, s, f, &yes);
    *(int *)to = yes;
}

/* `rope layers 3, 7 .. 11: none;` */
typedef struct RopeLayers {
    int64_t first, last;
    BurstRope rope;
    Span span;
} RopeLayers;
/* The layers that have a part; given false: those that nothing else is given for. */
typedef struct LayerRange {
    int64_t first, last;
    Span span;
} LayerRange;
typedef struct PartLayers {
    bool given;
    Vec(LayerRange) ranges;
} PartLayers;
typedef struct ModelFields {
    Model m;
    Vec(RopeLayers) ropes;
    PartLayers ffn_layers, moe_layers, scan_layers;
    PartLayers no_network, no_mixer;
    int rotary;
    bool interleaved, alone; /* alone: only attention, for a library */
    Span head_dim, qk_norm, rope, family, value_dim, latent, query_latent, ffn;
} ModelFields;

static void take_qk_norm(Checker *c, const Ast *s, const Field *f, void *to)
{
    ModelFields *m = to;
    static const char *const words[] = {"no", "yes", "all", "rotated"};
    (void)f;
    Cursor u = cursor_of(c, s);
    const int word = cursor_choice(&u, words, countof(words));
    m->m.qk_norm = word > 0;
    m->m.layer.qk_norm_all = word == 2;
    m->m.layer.qk_norm_rotated = word == 3;
    cursor_end(&u);
}

static void take_family(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    ModelFields *m = to;
    const char **names = NEW_ARRAY(c->arena, const char *, family_count);
    for (int i = 0; i < family_count; i++)
        names[i] = families[i].type;
    Cursor u = cursor_of(c, s);
    const int row = cursor_choice(&u, names, family_count);
    if (cursor_end(&u))
        m->m.family = families[row].type;
}

/* Checks that the family's folders have a field for each scale, or one fixed value. */
static void check_scales(Checker *c, const ModelFields *f, const Family *family)
{
    static const char *const names[] = {
#define X(id, name, constant) name,
        BURST_SCALE_ROWS(X)
#undef X
    };
    for (int i = 0; i < BURST_SCALES; i++) {
        const ScaleField *field = family_scale(family, i);
        const double root = sqrt(f->m.hidden), scale = f->m.scale[i];
        /* set by yarn's block */
        const bool by_rope = family->parts.layer.latent && i == BURST_SCALE_ATTENTION &&
                             f->m.rope.kind == BURST_ROPE_YARN;
        if (!field && scale > 0 && !by_rope)
            diag_error(c->diags, f->family, "the family %s has no '%s'", family->type, names[i]);
        else if (field && field->form == SCALE_ROOT_HIDDEN && fabs(scale - root) > 1e-6 * root)
            diag_error(c->diags, f->family, "the family %s needs '%s %.15g'", family->type, names[i], root);
    }
}

/* Reports each part of the model's layers that differs from the family's. */
static void check_layer(Checker *c, const ModelFields *f, const Family *family)
{
    const LayerParts model = {f->m.qkv_bias, f->m.qk_norm, f->m.layer}, needed = family_parts(family, &model);
#define X(member, name, ...) \
    if (needed.member != model.member) \
        diag_error(c->diags, f->family, "the family %s needs '%s %s'", family->type, name, \
                   ((const char *const[]){__VA_ARGS__})[needed.member]);
#define LAYER(member, ...) X(layer.member, __VA_ARGS__)
    BURST_LAYER_FIELDS(LAYER)
    X(qkv_bias, "qkv_bias", "no", "yes")
    if (needed.layer.qk_norm_all == model.layer.qk_norm_all &&
        needed.layer.qk_norm_rotated == model.layer.qk_norm_rotated)
        X(qk_norm, "qk_norm", "no", "yes")
#undef LAYER
#undef X
}

/* Scales of one part of a layer. */
static void check_part_scales(Checker *c, const Model *m)
{
    static const struct {
        int scale;
        enum { OF_ALL, OF_SCAN, OF_FFN } of;
        bool out; /* of what is added to the layer's input */
    } row[] = {
        {BURST_SCALE_ATTENTION_OUT, OF_ALL, true}, {BURST_SCALE_SCAN_OUT, OF_SCAN, true},
        {BURST_SCALE_FFN_OUT, OF_FFN, true},       {BURST_SCALE_FFN_GATE, OF_FFN, false},
        {BURST_SCALE_SCAN_GATE, OF_SCAN, false},   {BURST_SCALE_SCAN_VALUE, OF_SCAN, false},
        {BURST_SCALE_SCAN_KEY, OF_SCAN, false},    {BURST_SCALE_SCAN_QUERY, OF_SCAN, false},
        {BURST_SCALE_SCAN_STEP, OF_SCAN, false},
    };
    static const char *const names[] = {
#define X(id, name, constant) name,
        BURST_SCALE_ROWS(X)
#undef X
    };
    for (int i = 0; i < countof(row); i++) {
        const char *name = names[row[i].scale];
        if (m->scale[row[i].scale] <= 0)
            continue;
        if (row[i].of == OF_SCAN && !m->scan.heads)
            diag_error(c->diags, c->model->span, "'%s' requires 'scan' with 'heads'", name);
        if (row[i].of == OF_FFN && m->layer.experts)
            diag_error(c->diags, c->model->span, "'%s' cannot be combined with 'moe'", name);
        if (row[i].scale == BURST_SCALE_FFN_GATE && m->layer.activation > BURST_ACTIVATION_GEGLU_TANH)
            diag_error(c->diags, c->model->span,
                       "'%s' requires an activation with a gate, such as ffn swiglu", name);
        if (row[i].out && (m->layer.norms || m->layer.scan_norms > 1 || m->layer.parallel))
            diag_error(c->diags, c->model->span, "'%s' requires 'norms before', without 'parallel'", name);
        if (row[i].out && m->scale[BURST_SCALE_RESIDUAL] > 0)
            diag_error(c->diags, c->model->span, "'%s' cannot be combined with 'residual_scale'", name);
    }
}

/* Reports parts that the step does not support. */
static void check_parts(Checker *c, const ModelFields *f)
{
    check_part_scales(c, &f->m);
    const BurstLayer *l = &f->m.layer;
    if (f->m.experts.everywhere && l->activation != BURST_ACTIVATION_SWIGLU)
        diag_error(c->diags, f->m.experts_span,
                   "'everywhere yes' requires 'ffn swiglu' in layers without experts");
    if (l->parallel && l->norms != BURST_NORMS_BEFORE)
        diag_error(c->diags, c->model->span, "'parallel' requires 'norms before'");
    if (l->head_bias && f->m.tied)
        diag_error(c->diags, c->model->span,
                   "'head_bias yes' requires 'tied no': the bias lies behind the head");
    if (l->norm_bias && (l->norm != BURST_NORM_LAYER || l->norms != BURST_NORMS_BEFORE))
        diag_error(c->diags, c->model->span, "'norm_bias yes' requires 'norm layernorm' and 'norms before'");
}

/* A number of `moe` that a family has as its folders' fields say it (of), or as `is` has it. */
typedef struct ExpertPart {
    const char *name;
    size_t at;
    bool real;
    size_t of; /* in ExpertFields; 0: no field says it */
} ExpertPart;
#define PART(member) #member, offsetof(BurstExperts, member), false
#define REAL(member) #member, offsetof(BurstExperts, member), true
#define OF(member) offsetof(ExpertFields, member)
static const ExpertPart expert_parts[] = {
    {PART(score), 0},
    {REAL(eps), 0},
    {REAL(least), 0},
    {REAL(scale), OF(scale)},
    {PART(shared), OF(shared)},
    {PART(shared_gate), OF(shared)},
    {PART(groups), OF(groups)},
    {PART(group_score), OF(groups)},
    {PART(correction), 0},
    {PART(router_bias), 0},
    {PART(bias), 0},
    {REAL(alpha), OF(alpha)},
    {REAL(offset), 0},
    {REAL(limit), OF(limit)},
    {PART(everywhere), 0},
};
#undef PART
#undef REAL
#undef OF
enum { EXPERT_PARTS = countof(expert_parts) };

static double expert_number(const BurstExperts *m, const ExpertPart *p)
{
    const char *at = (const char *)m + p->at;
    return p->real ? *(const double *)at : *(const int *)at;
}

/* Whether folders of the family may have another number of it: eps only adds to a sum, a gate needs an
 * expert, what groups are chosen by needs groups. */
static bool is_free(const BurstExperts *m, const ExpertFields *x, const ExpertPart *p)
{
    if (p->at == offsetof(BurstExperts, eps) || p->at == offsetof(BurstExperts, least))
        return !m->normalize;
    if (p->at == offsetof(BurstExperts, shared_gate))
        return !m->shared;
    if (p->at == offsetof(BurstExperts, group_score))
        return !m->groups;
    return p->of && *(const char *const *)(const void *)((const char *)x + p->of);
}

/* What the family has where no field says another: of the shared expert so many experts' columns. */
static double family_number(const BurstExperts *m, const ExpertFields *x, const ExpertPart *p)
{
    const bool columns = p->at == offsetof(BurstExperts, shared);
    return columns ? (double)x->absent_shared * m->width : expert_number(&x->is, p);
}

static void check_expert_part(Checker *c, const ModelFields *f, const Family *family, const ExpertPart *p)
{
    const bool one = strcmp(p->name, "scale") == 0 || strcmp(p->name, "alpha") == 0;
    const double own = family_number(&f->m.experts, family->moe, p), needs = one && own <= 0 ? 1 : own,
                 has = expert_number(&f->m.experts, p);
    if (is_free(&f->m.experts, family->moe, p) || (has <= needs && has >= needs))
        return;
    if (own <= 0)
        diag_error(c->diags, f->family, "the family %s has no '%s' of that value; remove it", family->type,
                   p->name);
    else if (p->at == offsetof(BurstExperts, score))
        diag_error(c->diags, f->family, "the family %s needs 'score sigmoid'", family->type);
    else if (p->at == offsetof(BurstExperts, group_score))
        diag_error(c->diags, f->family, "the family %s needs 'group_score two'", family->type);
    else if (p->real || p->at == offsetof(BurstExperts, shared))
        diag_error(c->diags, f->family, "the family %s needs '%s %.9g'", family->type, p->name, own);
    else
        diag_error(c->diags, f->family, "the family %s needs '%s yes'", family->type, p->name);
}

/* Whether layers without experts come before all others. */
static bool is_dense_first(const Model *m)
{
    bool sparse = false, first = true;
    for (int l = 0; l < m->layers; l++) {
        const bool experts = m->kind[m->layer_kind[l]].experts;
        first &= experts || !sparse;
        sparse |= experts;
    }
    return first;
}

static const char *const activations[] = {
#define X(id, name) name,
    BURST_ACTIVATION_ROWS(X)
#undef X
};

static void check_family_experts(Checker *c, const ModelFields *f, const Family *family)
{
    const BurstExperts *m = &f->m.experts;
    if (family->dense && f->m.layer.experts == BURST_EXPERTS_SOME) {
        if (family->dense != DENSE_LISTED && family->dense != DENSE_SINGLE && !is_dense_first(&f->m))
            diag_error(c->diags, f->family,
                       "the family %s has 'ffn' in its first layers, 'moe' in all others", family->type);
    } else if (family->dense) {
        /* 'ffn' in all layers, or 'moe' */
    } else if (family->moe && f->m.layer.experts == BURST_EXPERTS_SOME)
        diag_error(c->diags, f->family, "the family %s has 'moe' in all layers", family->type);
    else if (family->parts.layer.experts != f->m.layer.experts)
        diag_error(c->diags, f->family,
                   family->moe ? "the family %s needs 'moe'" : "the family %s has 'ffn', and no 'moe'",
                   family->type);
    if (!family->moe || !m->experts)
        return;
    if (m->activation != family->moe->is.activation)
        diag_error(c->diags, f->family, "the family %s needs experts with 'ffn %s'", family->type,
                   activations[family->moe->is.activation]);
    if (!family->moe->normalize && m->normalize != family->moe->absent_normalize)
        diag_error(c->diags, f->family, "the family %s needs 'normalize %s'", family->type,
                   m->normalize ? "no" : "yes");
    if (family->moe->shared_counts && m->shared % m->width)
        diag_error(c->diags, f->family,
                   "the family %s needs a shared expert as wide as whole experts: a multiple of %d",
                   family->type, m->width);
    for (int i = 0; i < EXPERT_PARTS; i++)
        check_expert_part(c, f, family, &expert_parts[i]);
}

static bool has_scan_eps(const Model *m, const ScanFields *x)
{
    const double is = m->scan_eps > 0 ? m->scan_eps : m->norm_eps,
                 needs = x->norm_eps > 0 ? x->norm_eps : m->norm_eps;
    return is >= needs && is <= needs;
}

static void check_family_scan(Checker *c, const ModelFields *f, const Family *family)
{
    const ScanFields *x = family->scan;
    const LayerParts model = {f->m.qkv_bias, f->m.qk_norm, f->m.layer};
    const struct {
        bool wrong;
        const char *needs;
    } row[] = {
        {(f->m.scan.heads > 0) != (x->heads != NULL), x->heads ? "heads N" : "conv N alone"},
        {f->m.scan.read != x->read, x->read ? "read k" : "read none"},
        {f->m.scan_skip != x->skip, x->skip ? "skip yes" : "skip no"},
        {f->m.scan_bias != x->bias, x->bias ? "conv N bias" : "conv N"},
        {f->m.scan_gate_before != x->before && !f->m.layer.scan_plain,
         x->before ? "gate silu before norm" : "gate silu after norm"},
        {f->m.scan.read && !x->doubles && f->m.scan.beta_most > 1, "beta_most 1"},
        {f->m.scan.read && x->doubles && f->m.scan.beta_most > 1 && f->m.scan.beta_most < 2,
         "beta_most 1 or 2"},
        {f->m.layer.scan_norms != family->parts.layer.scan_norms,
         family->parts.layer.scan_norms ? "norms before" : "norms as in other layers"},
        {f->m.layer.scan_attends != family->parts.layer.scan_attends,
         family->parts.layer.scan_attends ? "attention yes" : "attention no"},
        {f->m.layer.scan_plain && !family_parts(family, &model).layer.scan_plain, "a norm"},
        {!has_scan_eps(&f->m, x), x->norm_eps > 0 ? "norm_eps 1e-5" : "norm_eps as in the model"},
    };
    for (int i = 0; i < countof(row); i++)
        if (row[i].wrong)
            diag_error(c->diags, f->family, "the family %s needs '%s' in its scan", family->type,
                       row[i].needs);
}

static bool turns_somewhere(const Model *m)
{
    bool turns = !m->ropes;
    for (int l = 0; l < m->layers && m->ropes; l++)
        turns |= m->rope_of[m->layer_rope[l]].theta > 0 && model_attends(m, l);
    return turns;
}

/* Checks that the layers are those of the family's folders. */
static void check_family(Checker *c, const ModelFields *f)
{
    const Family *family = family_named(f->m.family);
    if (family)
        check_scales(c, f, family);
    if (family && f->m.ropes && family->layer_ropes == ROPES_ALIKE)
        diag_error(c->diags, f->family, "the family %s has one 'rope' in all layers", family->type);
    if (family && family->layer_ropes == ROPES_NONE && turns_somewhere(&f->m))
        diag_error(c->diags, f->family, "the family %s has no rope; add rope layers 0 .. %d: none",
                   family->type, f->m.layers - 1);
    if (family && family->parts.layer.latent != f->m.layer.latent)
        diag_error(c->diags, f->family,
                   family->parts.layer.latent ? "the family %s needs 'latent'"
                                              : "the family %s has no 'latent'",
                   family->type);
    if (family)
        check_family_experts(c, f, family);
    if (family && family->scan && f->m.layer.scan)
        check_family_scan(c, f, family);
    if (family && family->parts.layer.scan != f->m.layer.scan && !(family->scan && family->scan->optional))
        diag_error(c->diags, f->family,
                   family->scan ? "the family %s needs 'scan' in some layers" : "the family %s has no 'scan'",
                   family->type);
    if (family && family->parts.layer.scan_attends && f->m.kinds > 1)
        diag_error(c->diags, f->family, "the family %s needs 'scan' in all layers", family->type);
    if (family && (family->network != NULL) != (f->m.layer.single != 0))
        diag_error(c->diags, f->family,
                   family->network ? "the family %s has one part a layer; name those without the other by "
                                     "'mixer layers ...: none' and 'ffn layers ...: none'"
                                   : "the family %s has both parts in each layer; remove 'none'",
                   family->type);
    if (family && family->untied && f->m.tied)
        diag_error(c->diags, f->family, "the family %s needs 'tied no'", family->type);
    if (family && f->m.rope.rotary > 0 && family->part == 0)
        diag_error(c->diags, f->family, "the family %s turns whole heads; remove 'rotary'", family->type);
    if (family && f->m.rope.query_beta > 0 && !family->scaled_queries)
        diag_error(c->diags, f->family, "the family %s has no 'query_beta'", family->type);
    if (family && f->m.rope.kind != BURST_ROPE_YARN && family->scaled_queries)
        diag_error(c->diags, f->family, "the family %s needs 'rope' of the kind yarn", family->type);
    if (family && f->interleaved != family->interleaved)
        diag_error(c->diags, f->family, "the family %s needs 'rotary_interleaved %s'", family->type,
                   family->interleaved ? "yes" : "no");
    if (family && family->all_heads &&
        (f->m.kv_heads != f->m.heads || f->m.head_dim * f->m.heads != f->m.hidden))
        diag_error(c->diags, f->family,
                   "the family %s needs 'kv_heads' equal to 'heads', and 'head_dim' equal to hidden / heads",
                   family->type);
    if (family)
        check_layer(c, f, family);
}

/* `layers 0 .. 2, 5:`, if the statement begins with it. Returns false after an error. */
static bool take_part_layers(Cursor *u, PartLayers *to)
{
    to->given = cursor_try(u, "layers");
    if (!to->given)
        return true;
    do {
        LayerRange x = {0};
        if (!cursor_layers(u, &x.first, &x.last, &x.span))
            return false;
        *vec_push(u->c->arena, &to->ranges) = x;
    } while (cursor_try(u, ","));
    return cursor_word(u, ":");
}

/* `layers 1, 3: none;`, of either part. */
static void take_none(Checker *c, Cursor *u, const PartLayers *of, Span at, PartLayers *to)
{
    if (!cursor_end(u))
        return;
    if (!of->given)
        diag_error(c->diags, at, "'none' needs the layers that it is for, such as layers 1, 3: none");
    else if (to->given)
        diag_error(c->diags, at, "layers with 'none' are given twice; name them in one statement");
    else
        *to = *of;
}

/* `ffn relu2 4096;`, and of layers without a network `ffn layers 0, 2: none;` */
static void take_model_ffn(Checker *c, const Ast *s, const Field *f, void *to)
{
    ModelFields *m = to;
    Cursor u = cursor_of(c, s);
    PartLayers of = {0};
    if (!take_part_layers(&u, &of)) {
        m->ffn = s->span, m->ffn_layers = of; /* one error is enough */
        return;
    }
    if (cursor_try(&u, "none")) {
        take_none(c, &u, &of, s->span, &m->no_network);
        return;
    }
    if (m->ffn.src)
        diag_error(c->diags, s->name_span,
                   "'ffn' is given twice; only layers without one, such as "
                   "ffn layers 0: none, have another statement");
    m->ffn = s->span;
    m->ffn_layers = of;
    cursor_ffn(&u, f, &m->m.layer.activation, &m->m.ffn);
}

/* `mixer layers 1, 3: none;` */
static void take_mixer(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    ModelFields *m = to;
    Cursor u = cursor_of(c, s);
    PartLayers of = {0};
    if (take_part_layers(&u, &of) && cursor_word(&u, "none"))
        take_none(c, &u, &of, s->span, &m->no_mixer);
}

static void take_model_experts(Checker *c, const Ast *s, const Field *f, void *to)
{
    ModelFields *m = to;
    Cursor u = cursor_of(c, s);
    if (take_part_layers(&u, &m->moe_layers) && cursor_end(&u))
        take_experts(c, s, f, &m->m.experts);
}

static void take_read(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const reads[] = {
#define X(id, name) name,
        BURST_SCAN_READ_ROWS(X)
#undef X
    };
    (void)f;
    take_word(c, s, reads, countof(reads), &((Model *)to)->scan.read);
}

/* `4` or `4 bias` */
static void take_conv(Checker *c, const Ast *s, const Field *f, void *to)
{
    Model *m = to;
    int64_t kernel;
    Cursor u = cursor_of(c, s);
    if (!cursor_whole(&u, (int64_t)f->lo, (int64_t)f->hi, &kernel))
        return;
    m->scan_bias = cursor_try(&u, "bias");
    if (cursor_end(&u))
        m->scan_kernel = (int)kernel;
}

/* `norm none;`: outputs have their gate alone */
static void take_scan_norm(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Cursor u = cursor_of(c, s);
    if (cursor_word(&u, "none") && cursor_end(&u))
        ((Model *)to)->layer.scan_plain = 1;
}

/* `silu before norm` or `silu after norm` */
static void take_gate(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const orders[] = {"after", "before"};
    (void)f;
    Model *m = to;
    Cursor u = cursor_of(c, s);
    const int order = cursor_word(&u, "silu") ? cursor_choice(&u, orders, countof(orders)) : -1;
    if (order >= 0 && cursor_word(&u, "norm") && cursor_end(&u))
        m->scan_gate_before = order;
}

/* `norms before;` of layers with a scan, where others have them elsewhere */
static void take_scan_norms(Checker *c, const Ast *s, const Field *f, void *to)
{
    Model *m = to, taken = {.layer.norms = -1};
    take_norms(c, s, f, &taken);
    m->layer.scan_norms = taken.layer.norms + 1;
}

#define AT(member) offsetof(Model, member)
static const Field scan_fields[] = {
    {"heads", take_int, AT(scan.heads), 0, UNIT_NONE, 1, 1 << 16},
    {"key_heads", take_int, AT(scan.key_heads), 0, UNIT_NONE, 1, 1 << 16},
    {"key_dim", take_int, AT(scan.key_dim), 0, UNIT_NONE, 1, 256},
    {"value_dim", take_int, AT(scan.value_dim), 0, UNIT_NONE, 1, 4096},
    {"read", take_read, 0, 0},
    {"conv", take_conv, 0, FIELD_REQUIRED, UNIT_NONE, 2, BURST_MOST_KERNEL},
    {"gate", take_gate, 0, 0},
    {"skip", take_yes_no, AT(scan_skip), 0},
    {"beta_most", take_double, AT(scan.beta_most), 0, UNIT_NONE, 1, 2},
    {"norms", take_scan_norms, 0, 0},
    {"norm", take_scan_norm, 0, 0},
    {"norm_eps", take_double, AT(scan_eps), 0, UNIT_NONE, 1e-12, 1},
    {"attention", take_part, AT(layer.scan_attends), 0},
    {"step_least", take_double, AT(scan.step_least), 0, UNIT_NONE, 0, 1e6},
    {"step_most", take_double, AT(scan.step_most), 0, UNIT_NONE, 1e-6, BURST_MOST_STEP},
};
#undef AT

/* `scan layers 0 .. 2: { heads 32; key_heads 16; key_dim 128; value_dim 128; conv 4; }` */
static void take_scan(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    ModelFields *m = to;
    Cursor u = cursor_of(c, s);
    m->m.scan.read = BURST_SCAN_READ_KEY;
    if (take_part_layers(&u, &m->scan_layers) && cursor_end(&u))
        take_fields(c, s->body, scan_fields, countof(scan_fields), &m->m, "'scan'", s->span);
}

static void take_layer_rope(Cursor *u, const Ast *s, const Field *f, ModelFields *m)
{
    const int from = m->ropes.n;
    BurstRope rope = {0};
    do {
        RopeLayers x = {0};
        if (!cursor_layers(u, &x.first, &x.last, &x.span))
            return;
        *vec_push(u->c->arena, &m->ropes) = x;
    } while (cursor_try(u, ","));
    if (!cursor_word(u, ":"))
        return;
    if (cursor_try(u, "none"))
        cursor_end(u);
    else if (!cursor_rope(u, s, f, &rope))
        return;
    for (int i = from; i < m->ropes.n; i++)
        m->ropes.at[i].rope = rope;
}

static void take_model_rope(Checker *c, const Ast *s, const Field *f, void *to)
{
    ModelFields *m = to;
    Cursor u = cursor_of(c, s);
    if (cursor_try(&u, "layers")) {
        take_layer_rope(&u, s, f, m);
        return;
    }
    if (m->rope.src)
        duplicate(c, s, m->rope, "'rope'");
    m->rope = s->span;
    cursor_rope(&u, s, f, &m->m.rope);
}

#define AT(member) offsetof(ModelFields, m.member)
#define SPAN(member) offsetof(ModelFields, member)
static const Field model_fields[] = {
    {"family", take_family, 0, 0, .span = SPAN(family)},
    {"layers", take_int, AT(layers), FIELD_REQUIRED, UNIT_NONE, 1, 100000},
    {"hidden", take_int, AT(hidden), FIELD_REQUIRED, UNIT_NONE, 1, 1 << 24},
    {"heads", take_int, AT(heads), FIELD_REQUIRED, UNIT_NONE, 1, 1 << 16, .span = SPAN(m.heads_span)},
    {"kv_heads", take_int, AT(kv_heads), 0, UNIT_NONE, 1, 1 << 16, .span = SPAN(m.kv_heads_span)},
    {"head_dim", take_int, AT(head_dim), 0, UNIT_NONE, 1, 4096, .span = SPAN(head_dim)},
    {"value_dim", take_int, AT(value_dim), 0, UNIT_NONE, 1, 4096, .span = SPAN(value_dim)},
    {"latent", take_int, AT(latent), 0, UNIT_NONE, 1, 1 << 20, .span = SPAN(latent)},
    {"query_latent", take_int, AT(query_latent), 0, UNIT_NONE, 1, 1 << 20, .span = SPAN(query_latent)},
    {"ffn", take_model_ffn, 0, FIELD_REPEATS, UNIT_NONE, 1, 1 << 24},
    {"mixer", take_mixer, 0, 0},
    {"moe", take_model_experts, 0, FIELD_BLOCK, .span = SPAN(m.experts_span)},
    {"scan", take_scan, 0, FIELD_BLOCK, .span = SPAN(m.scan_span)},
    {"norm", take_norm, 0, 0, UNIT_NONE, 1e-12, 1},
    {"rope", take_model_rope, 0, FIELD_MAY_BLOCK | FIELD_REPEATS, UNIT_NONE, 1, 1e15},
    {"rotary", take_int, offsetof(ModelFields, rotary), 0, UNIT_NONE, 2, 4096, .span = SPAN(m.rotary_span)},
    {"rotary_interleaved", take_yes_no, offsetof(ModelFields, interleaved), 0},
    {"vocab", take_int, AT(vocab), FIELD_REQUIRED, UNIT_NONE, 2, 1 << 26},
    {"tied", take_yes_no, AT(tied), 0},
    {"qkv_bias", take_yes_no, AT(qkv_bias), 0},
    {"qk_norm", take_qk_norm, 0, 0, .span = SPAN(qk_norm)},
    {"norms", take_norms, 0, 0},
    {"parallel", take_parallel, 0, 0},
    {"norm_bias", take_part, AT(layer.norm_bias), 0},
    {"o_bias", take_part, AT(layer.o_bias), 0},
    {"mlp_bias", take_part, AT(layer.mlp_bias), 0},
    {"head_bias", take_part, AT(layer.head_bias), 0},
    {"attention_gate", take_part, AT(layer.attention_gate), 0},
#define X(id, name, constant) {name, take_double, AT(scale[BURST_SCALE_##id]), 0, UNIT_NONE, 1e-6, 1e6},
    BURST_SCALE_ROWS(X)
#undef X
};
#undef SPAN
#undef AT
/* Fields of attention for a library: model name { heads 32; kv_heads 8; head_dim 128; } */
static const char *const attention_names[] = {"heads", "head_dim", "value_dim", "kv_heads", "layers"};
enum { ATTENTION_REQUIRED = 2 }; /* the first so many are required */

static bool is_attention_alone(AstList body)
{
    static const Field others[] = {{.name = "hidden"}, {.name = "ffn"}, {.name = "vocab"}};
    static const Field heads[] = {{.name = "heads"}};
    return has_setting(body, heads, countof(heads)) && !has_setting(body, others, countof(others));
}

static void take_attention_model(Checker *c, ModelFields *f)
{
    Field field[countof(attention_names)];
    for (int i = 0; i < countof(attention_names); i++)
        for (int k = 0; k < countof(model_fields); k++)
            if (strcmp(model_fields[k].name, attention_names[i]) == 0) {
                field[i] = model_fields[k];
                field[i].flags = i < ATTENTION_REQUIRED ? FIELD_REQUIRED : 0;
            }
    f->m.layers = 1;
    take_fields(c, c->model->body, field, countof(field), f, "a model of attention alone", c->model->span);
    f->m.hidden = f->m.heads * f->m.head_dim;
    f->alone = true;
    c->program->library = true;
}

/* ---- kinds of layers ---- */

enum { NO_PART, FFN_PART, MOE_PART, LACKS_PART, PARTS_OF }; /* a layer's feed-forward network */

static const char *const network_names[] = {"", "ffn", "moe", "none"};

/* Sets the part of the layers that it is given for. */
static void give_part(Checker *c, const ModelFields *f, const PartLayers *of, int part, int *layer)
{
    for (int i = 0; i < of->ranges.n; i++) {
        const LayerRange *x = &of->ranges.at[i];
        if (x->last >= f->m.layers)
            diag_error(c->diags, x->span, "layer %lld does not exist: the model has %d, numbered from 0",
                       (long long)x->last, f->m.layers);
        for (int64_t l = x->first; l <= x->last && l < f->m.layers; l++) {
            if (layer[l] != NO_PART) {
                diag_error(c->diags, x->span,
                           "layer %lld has '%s' already; a layer has one of 'ffn' and 'moe'", (long long)l,
                           network_names[layer[l]]);
                break; /* one message per range */
            }
            layer[l] = part;
        }
    }
}

/* Where layers differ in it. rest: of layers that nothing is given for. Returns each layer's. */
static int *networks_of_layers(Checker *c, const ModelFields *f, int rest)
{
    const Model *m = &f->m;
    int *layer = NEW_ARRAY(c->arena, int, m->layers + 1), lacking = -1, count[PARTS_OF] = {0};
    give_part(c, f, &f->ffn_layers, FFN_PART, layer);
    give_part(c, f, &f->moe_layers, MOE_PART, layer);
    give_part(c, f, &f->no_network, LACKS_PART, layer);
    for (int l = m->layers - 1; l >= 0; l--) {
        layer[l] = layer[l] == NO_PART ? rest : layer[l];
        lacking = layer[l] == NO_PART ? l : lacking;
        count[layer[l]]++;
    }
    const int others = count[MOE_PART] ? MOE_PART : LACKS_PART, most = count[FFN_PART] ? FFN_PART : others;
    const bool unused = (f->ffn.src && !count[FFN_PART]) || (m->experts_span.src && !count[MOE_PART]);
    if (lacking >= 0 && diags_errors(c->diags) == 0)
        diag_error(c->diags, c->model->span,
                   "layer %d has no feed-forward network; 'ffn' or 'moe' without 'layers' is for all others",
                   lacking);
    else if (unused && diags_errors(c->diags) == 0)
        diag_error(c->diags, count[FFN_PART] ? m->experts_span : f->ffn, "no layer has '%s': all have '%s'",
                   count[FFN_PART] ? "moe" : "ffn", network_names[most]);
    return layer;
}

/* One of the two in each layer, or none. Returns each layer's; NULL: all have the same. */
static int *check_feed_forward(Checker *c, const ModelFields *f)
{
    const bool ffn = f->ffn.src, moe = f->m.experts_span.src;
    if (f->alone)
        return NULL;
    if (ffn && moe && !f->ffn_layers.given && !f->moe_layers.given) {
        diag_error(c->diags, f->ffn,
                   "'ffn' and 'moe' are both for all layers; remove one, or name the layers of one, such as "
                   "ffn layers 0: swiglu 8192");
    } else if (ffn && moe) {
        const int rest = f->moe_layers.given ? FFN_PART : MOE_PART;
        return networks_of_layers(c, f, f->ffn_layers.given && f->moe_layers.given ? NO_PART : rest);
    } else if ((ffn || moe) && f->no_network.given) {
        const bool some = f->ffn_layers.given || f->moe_layers.given;
        const int rest = ffn ? FFN_PART : MOE_PART;
        return networks_of_layers(c, f, some ? NO_PART : rest);
    } else if (!ffn && !moe) {
        diag_error(c->diags, c->model->span,
                   "the model requires 'ffn', such as ffn swiglu 8192, or 'moe' for experts");
    } else if (f->ffn_layers.given || f->moe_layers.given) {
        diag_error(c->diags, ffn ? f->ffn : f->m.experts_span,
                   "'%s' of some layers requires '%s' for the others", ffn ? "ffn" : "moe",
                   ffn ? "moe" : "ffn");
    }
    return NULL;
}

/* Marks layers; returns how many of them were not marked. */
static int mark_layers(Checker *c, const ModelFields *f, const PartLayers *of, bool *mark)
{
    int count = 0;
    for (int i = 0; i < of->ranges.n; i++) {
        const LayerRange *x = &of->ranges.at[i];
        if (x->last >= f->m.layers)
            diag_error(c->diags, x->span, "layer %lld does not exist: the model has %d, numbered from 0",
                       (long long)x->last, f->m.layers);
        for (int64_t l = x->first; l <= x->last && l < f->m.layers; l++) {
            count += !mark[l];
            mark[l] = true;
        }
    }
    return count;
}

/* Whether each layer has a scan; NULL: none has. */
static bool *layers_with_scans(Checker *c, const ModelFields *f)
{
    bool *scans = NEW_ARRAY(c->arena, bool, f->m.layers + 1);
    if (!f->m.scan_span.src)
        return NULL;
    const int count = mark_layers(c, f, &f->scan_layers, scans);
    for (int l = 0; l < f->m.layers && !f->scan_layers.given; l++)
        scans[l] = true;
    const bool all = !f->scan_layers.given || count == f->m.layers;
    if (diags_errors(c->diags) == 0 && all && !f->m.layer.scan_attends)
        diag_error(
            c->diags, f->m.scan_span,
            "at least one layer must have attention; name the layers with a scan, such as scan layers 0 "
            ".. %d: { ... }, or write 'attention yes' in it for layers with both",
            f->m.layers > 1 ? f->m.layers - 2 : 0);
    return scans;
}

/* Layers with one part alone: no two of the same part, and each has the other. */
static void check_single(Checker *c, const ModelFields *f, const bool *scans, const bool *bare,
                         const int *network)
{
    int attends = 0, wrong = -1;
    bool twice = false;
    for (int l = f->m.layers - 1; l >= 0; l--) {
        const bool lacks = network && network[l] == LACKS_PART, both = scans && scans[l] && bare[l];
        attends += !bare[l] && !(scans && scans[l] && !f->m.layer.scan_attends);
        wrong = (bare[l] && lacks) || both ? l : wrong;
        twice = wrong == l ? both : twice;
    }
    if (diags_errors(c->diags) > 0)
        return;
    if (wrong >= 0)
        diag_error(c->diags, c->model->span,
                   twice ? "layer %d has 'scan', and no mixer by 'mixer layers ...: none'"
                         : "layer %d has neither a mixer nor a feed-forward network",
                   wrong);
    else if (!attends)
        diag_error(c->diags, c->model->span, "at least one layer must have attention");
    else if (f->m.layer.parallel)
        diag_error(c->diags, c->model->span, "'parallel' needs both parts in all layers, without 'none'");
}

void check_kind(Checker *c, Model *m, const KindParts *x, int *kind)
{
    int k = 0;
    while (k < m->kinds && !model_same_kind(&m->kind[k], x))
        k++;
    if (k == LAYER_KINDS) {
        diag_error(c->diags, c->model->span, "layers of more than %d kinds are not supported", LAYER_KINDS);
        return;
    }
    if (k == m->kinds)
        m->kind[m->kinds++] = *x;
    *kind = k;
}

/* Kinds of layers, in the order in which they first come. */
static void finish_kinds(Checker *c, ModelFields *f)
{
    Model *m = &f->m;
    const int *network = check_feed_forward(c, f);
    const bool *scans = layers_with_scans(c, f);
    bool *bare = NEW_ARRAY(c->arena, bool, m->layers + 1);
    int *kind = NEW_ARRAY(c->arena, int, m->layers + 1);
    mark_layers(c, f, &f->no_mixer, bare);
    if (!f->ffn.src && !burst_activation_gates(m->experts.activation))
        m->layer.activation = m->experts.activation;
    m->layer.single = f->no_mixer.given || f->no_network.given;
    if (m->layer.single)
        check_single(c, f, scans, bare, network);
    for (int l = 0; l < m->layers && (network || scans || m->layer.single); l++) {
        const KindParts x = {.experts = network ? network[l] == MOE_PART : m->experts.experts > 0,
                             .scan = scans && scans[l],
                             .no_mixer = bare[l],
                             .no_network = network && network[l] == LACKS_PART};
        check_kind(c, m, &x, &kind[l]);
    }
    m->layer_kind = m->kinds > 1 ? kind : NULL;
}

/* Numbers that the other form of a scan has. */
static void check_scan_gates(Checker *c, const Model *m)
{
    const BurstScan *s = &m->scan;
    const bool delta = s->read == BURST_SCAN_READ_KEY;
    if (delta && (s->step_least > 0 || s->step_most > 0))
        diag_error(c->diags, m->scan_span, "'%s' requires 'read none': with 'read k' a token has no step",
                   s->step_least > 0 ? "step_least" : "step_most");
    if (!delta && s->beta_most > 0)
        diag_error(c->diags, m->scan_span,
                   "'beta_most' requires 'read k': with 'read none' a token has a step");
    if (s->step_most > 0 && s->step_least > s->step_most)
        diag_error(c->diags, m->scan_span, "'step_least' is more than 'step_most'");
}

static void check_scan_model(Checker *c, Model *m)
{
    if (m->layer.norm != BURST_NORM_RMS)
        diag_error(c->diags, m->scan_span, "'scan' requires 'norm rmsnorm'");
    if (m->layer.parallel)
        diag_error(c->diags, m->scan_span, "'scan' cannot be combined with 'parallel'");
    if (m->layer.scan_plain && (m->scan_eps > 0 || m->scan_gate_before))
        diag_error(c->diags, m->scan_span, "'norm none' leaves no norm for '%s'",
                   m->scan_eps > 0 ? "norm_eps" : "gate silu before norm");
    if (m->layer.scan_attends && (m->layer.norms || m->layer.scan_norms > 1))
        diag_error(c->diags, m->scan_span, "'attention yes' in 'scan' requires 'norms before'");
    if (m->layer.scan_attends && m->scale[BURST_SCALE_RESIDUAL] > 0)
        diag_error(c->diags, m->scan_span,
                   "'attention yes' in 'scan' cannot be combined with 'residual_scale'; use "
                   "'attention_out_scale', 'scan_out_scale' and 'ffn_out_scale'");
    m->layer.scan = 1;
    m->layer.scan_norms = m->layer.scan_norms == m->layer.norms + 1 ? 0 : m->layer.scan_norms;
    m->layer.scan_eps = m->scan_eps > 0 && (m->scan_eps > m->norm_eps || m->scan_eps < m->norm_eps);
    m->scan_eps = m->layer.scan_eps ? m->scan_eps : 0;
}

/* Without heads there are no states: the convolution is of as many columns as the model has. */
static void finish_short_scan(Checker *c, Model *m)
{
    BurstScan *s = &m->scan;
    const bool states = s->key_heads || s->key_dim || s->value_dim || !s->read || m->scan_gate_before ||
                        m->scan_skip || s->beta_most > 0 || s->step_least > 0 || s->step_most > 0 ||
                        m->scan_eps > 0 || m->layer.scan_plain || m->layer.scan_attends;
    if (states)
        diag_error(c->diags, m->scan_span,
                   "a 'scan' with states needs 'heads'; without, it has 'conv' alone: a gated convolution");
    *s = (BurstScan){.columns = m->hidden};
    check_scan_model(c, m);
}

/* Fields that follow from the others. */
static void finish_scan(Checker *c, ModelFields *f)
{
    Model *m = &f->m;
    BurstScan *s = &m->scan;
    if (!m->scan_kernel)
        return;
    if (!s->heads) {
        finish_short_scan(c, m);
        return;
    }
    if (!s->key_dim || !s->value_dim)
        diag_error(c->diags, m->scan_span, "'scan' with 'heads' needs '%s'",
                   s->key_dim ? "value_dim" : "key_dim");
    s->key_heads = s->key_heads ? s->key_heads : s->heads;
    if (s->heads % s->key_heads)
        diag_error(c->diags, m->scan_span, "%d heads of a scan cannot be divided evenly among %d key_heads",
                   s->heads, s->key_heads);
    const int64_t keys = (int64_t)s->key_heads * s->key_dim, values = (int64_t)s->heads * s->value_dim;
    if (2 * keys + values > INT_MAX)
        diag_error(c->diags, m->scan_span, "heads times dimensions of the scan are too large");
    const bool delta = s->read == BURST_SCAN_READ_KEY;
    s->normalize = delta;
    s->scale = delta ? 1 / sqrt(s->key_dim) : 1;
    s->columns = (int)(2 * keys + values);
    s->q = 0, s->k = (int)keys, s->v = (int)(2 * keys);
    if (!delta) /* as Mamba-2 has them: values, keys, queries */
        s->v = 0, s->k = (int)values, s->q = (int)(values + keys);
    check_scan_gates(c, m);
    s->beta_most = s->beta_most > 0 ? s->beta_most : 1;
    s->step_most = s->step_most > 0 ? s->step_most : BURST_MOST_STEP;
    check_scan_model(c, m);
}

static void check_heads(Checker *c, ModelFields *f)
{
    Model *m = &f->m;
    if (!m->heads || !m->hidden)
        return;
    if (!m->kv_heads)
        m->kv_heads = m->heads;
    if (m->heads % m->kv_heads != 0) {
        diag_error(c->diags, m->kv_heads_span,
                   "%d head%s cannot be divided evenly among "
                   "%d kv_heads",
                   m->heads, plural(m->heads), m->kv_heads);
        diag_note(c->diags, m->heads_span, "kv_heads must divide the %d head%s given here", m->heads,
                  plural(m->heads));
    }
    if (!f->head_dim.src && m->hidden % m->heads != 0)
        diag_error(c->diags, m->heads_span, "hidden %d is not a multiple of heads %d; set head_dim",
                   m->hidden, m->heads);
    if (!f->head_dim.src)
        m->head_dim = m->hidden / m->heads;
    m->head_dim_span = f->head_dim.src ? f->head_dim : m->heads_span;
    if (m->head_dim % 2 != 0 && !f->alone)
        diag_error(c->diags, m->head_dim_span, "head_dim %d must be even: rotary embeddings rotate pairs",
                   m->head_dim);
    if ((int64_t)m->heads * m->head_dim > INT_MAX)
        diag_error(c->diags, m->heads_span, "heads times head_dim is too large");
}

/* Multi-head latent attention: checks the settings that it requires, and the parts that the step does not
 * support with it. */
static void check_latent(Checker *c, ModelFields *f)
{
    Model *m = &f->m;
    const struct {
        bool wrong;
        const char *text;
    } row[] = {
        {!f->head_dim.src, "'latent' requires 'head_dim': all elements of a query, those that turn included"},
        {f->rotary <= 0 || f->rotary >= m->head_dim,
         "'latent' requires 'rotary' below head_dim: the last elements of a key, which turn and are the same "
         "for all heads"},
        {m->kv_heads != m->heads, "'latent' requires as many 'kv_heads' as 'heads'"},
        {m->qkv_bias, "'latent' cannot be combined with 'qkv_bias'"},
        {m->qk_norm, "'latent' cannot be combined with 'qk_norm': latents have norms of their own"},
        {m->layer.norm != BURST_NORM_RMS, "'latent' requires 'norm rmsnorm'"},
        {m->layer.attention_gate, "'latent' cannot be combined with 'attention_gate'"},
    };
    if (!m->latent && (m->query_latent || (m->value_dim && !f->alone)))
        diag_error(c->diags, m->query_latent ? f->query_latent : f->value_dim,
                   "'%s' requires 'latent': without one values are as wide as keys",
                   m->query_latent ? "query_latent" : "value_dim");
    for (int i = 0; m->latent && i < countof(row); i++)
        if (row[i].wrong)
            diag_error(c->diags, f->latent, "%s", row[i].text);
    m->value_dim = m->value_dim ? m->value_dim : m->head_dim;
    m->shared = m->latent ? f->rotary : 0;
    m->layer.latent = m->latent > 0;
    m->layer.experts = m->experts.experts > 0 ? BURST_EXPERTS_ALL : BURST_EXPERTS_NO;
    for (int k = 1; k < m->kinds; k++)
        if (m->kind[k].experts != m->kind[0].experts)
            m->layer.experts = BURST_EXPERTS_SOME;
    m->latent_span = f->latent;
    if ((int64_t)m->heads * m->value_dim > INT_MAX)
        diag_error(c->diags, m->heads_span, "heads times value_dim is too large");
}

/* The rotated part of a head is the same in all layers. */
static void finish_rope(Checker *c, const ModelFields *f, BurstRope *r, Span at)
{
    const bool by_length = r->kind == BURST_ROPE_DYNAMIC || r->kind == BURST_ROPE_LONGROPE;
    r->length = by_length ? (double)c->program->sequence : 0;
    r->rotary = f->rotary == f->m.head_dim ? 0 : f->rotary;
    if (f->m.latent)
        r->rotary = -f->rotary;
    r->interleaved = f->interleaved;
    check_rope(c, r, burst_rope_rotary(r, f->m.head_dim), at);
}

/* Its index in rope_of; adds a row if there is no equal one. */
static int rope_row(Model *m, BurstRope *rows, const BurstRope *r)
{
    int i = 0;
    while (i < m->ropes && !rope_same(&rows[i], r))
        i++;
    if (i == m->ropes)
        rows[m->ropes++] = *r;
    return i;
}

/* One rope for all layers, or each layer's. */
static void finish_ropes(Checker *c, ModelFields *f)
{
    Model *m = &f->m;
    if (f->rotary % 2 || f->rotary > m->head_dim)
        diag_error(c->diags, m->rotary_span, "rotary %d must be even, and at most head_dim %d", f->rotary,
                   m->head_dim);
    finish_rope(c, f, &m->rope, f->rope);
    BurstRope *rows = NEW_ARRAY(c->arena, BurstRope, f->ropes.n + 1);
    int *layer = NEW_ARRAY(c->arena, int, m->layers);
    Span *by = NEW_ARRAY(c->arena, Span, m->layers);
    rope_row(m, rows, &m->rope);
    for (int i = 0; i < f->ropes.n; i++) {
        RopeLayers *x = &f->ropes.at[i];
        finish_rope(c, f, &x->rope, x->span);
        if (x->last >= m->layers && m->layers)
            diag_error(c->diags, x->span, "layer %lld does not exist: the model has %d, numbered from 0",
                       (long long)x->last, m->layers);
        for (int64_t l = x->first; l <= x->last && l < m->layers; l++) {
            if (by[l].src)
                diag_error(c->diags, x->span, "the rope of layer %lld is set twice", (long long)l);
            by[l] = x->span;
            layer[l] = rope_row(m, rows, &x->rope);
        }
    }
    for (int i = 0; m->ropes > 1 && i < m->ropes; i++)
        if (rows[i].query_beta > 0)
            diag_error(c->diags, f->rope, "'query_beta' requires the same 'rope' in all layers");
    m->rope_of = rows;
    m->layer_rope = layer;
    m->ropes = m->ropes > 1 ? m->ropes : 0;
}

void finish_model(Checker *c)
{
    if (!c->sequence && !c->infer)
        diag_error(c->diags, (Span){0},
                   "'%s' does not set the sequence length, such as "
                   "sequence 64Ki;",
                   c->in->model_path);
    if (!c->model) {
        diag_error(c->diags, (Span){0}, "'%s' does not define a model, such as model small { layers 2; ... }",
                   c->in->model_path);
        return;
    }
    ModelFields f = {.m = {.norm_eps = 1e-5, .rope = {.theta = 10000}}};
    f.m.name = block_name(c, c->model);
    if (is_attention_alone(c->model->body))
        take_attention_model(c, &f);
    else
        take_fields(c, c->model->body, model_fields, countof(model_fields), &f, "the model", c->model->span);
    c->program->library |= c->in->library;
    if (c->program->sequence == 1 && !c->program->library && !c->infer) {
        diag_error(c->diags, c->program->sequence_span,
                   "'sequence' must be at least 2 in a model that trains: a token predicts the next one");
        c->program->sequence = 0; /* one error is enough */
    }
    finish_kinds(c, &f);
    finish_scan(c, &f);
    check_heads(c, &f);
    check_latent(c, &f);
    finish_ropes(c, &f);
    finish_indexer(c, &f.m);
    check_family(c, &f);
    check_parts(c, &f);
    c->program->model = f.m;
}

/* ---- a library: attention for another program ---- */
/* The smallest values for everything but attention, so that attention determines the choice. */
enum { REST = 64 };

static const struct {
    size_t at;
    const char *name;
} unused[] = {{offsetof(Layout, weights), "weights"},
              {offsetof(Layout, token_chunks), "token chunks"},
              {offsetof(Layout, offload), "offload"},
              {offsetof(Layout, loss_tile), "loss tile"}};

static void warn_unused(Checker *c, Span at, const char *name)
{
    if (at.src)
        diag_warn(c->diags, WARN_UNUSED_SETTING, at, "`%s` has no effect: a library has attention alone",
                  name);
}

/* Data-parallel groups and tensor ranks are the caller's business. */
static void check_one(Checker *c, Setting *s, const char *name, const char *why)
{
    if (s->given && !s->is_auto && s->value != 1)
        diag_error(c->diags, s->span, "`%s %lld` is not planned for a library: %s; use `%s 1`", name,
                   (long long)s->value, why, name);
    *s = (Setting){.value = 1, .given = s->given, .span = s->span};
}

void settle_library_layout(Checker *c, Layout *l)
{
    if (!c->program->library)
        return;
    check_one(c, &l->data, "data", "its ranks share each sequence");
    check_one(c, &l->tensor, "tensor", "each of its ranks has all heads of its tokens");
    warn_unused(c, l->saving_span, "recompute");
    for (int i = 0; i < countof(unused); i++)
        warn_unused(c, setting_at(l, unused[i].at)->span, unused[i].name);
    for (int i = 0; setting_forms[i]; i++)
        if (setting_forms[i] != &form_ranges)
            warn_unused(c, setting_at(l, setting_forms[i]->at)->span, setting_forms[i]->name);
    const Layout read = *l;
    *l = (Layout){.data = l->data,
                  .tensor = l->tensor,
                  .context = l->context,
                  .heads = l->heads,
                  .sizes = l->sizes,
                  .partition = l->partition,
                  .block = l->block,
                  .shares = l->shares,
                  .given_shares = l->given_shares,
                  .travel = l->travel,
                  .ranges = l->ranges,
                  .placement = l->placement,
                  .placement_names = l->placement_names,
                  .schedule = l->schedule,
                  .schedule_span = l->schedule_span,
                  .of_mask = l->of_mask,
                  .span = l->span,
                  .ffn_chunks = {.value = 1},
                  .head_chunks = {.value = 1},
                  .token_chunks = {.value = 1},
                  .weights = {.value = SHARDING_ZERO3},
                  .loss_tile = {.value = LEAST_LOSS_TILE},
                  .saving = saving_by(RECOMPUTE_NONE, 0)};
    memcpy(l->placement_name, read.placement_name, sizeof l->placement_name);
}

/* One layer for each mask, with attention and the least of everything else. */
void settle_library(Checker *c)
{
    Program *p = c->program;
    if (!p->library)
        return;
    Model *m = &p->model;
    int *layer_mask = NEW_ARRAY(c->arena, int, p->mask_count + 1);
    m->selects = false;
    for (int i = 0; i < p->mask_count; i++) {
        layer_mask[i] = i;
        m->selects |= p->masks[i].selection > 0;
    }
    p->layer_mask = layer_mask;
    m->layers = p->mask_count;
    m->hidden = m->ffn = m->vocab = REST;
    m->family = NULL;
    m->sinks = m->tied = m->qkv_bias = m->qk_norm = false;
    m->latent = m->query_latent = m->shared = 0;
    m->layer = (BurstLayer){0};
    m->experts = (BurstExperts){0};
    m->scan = (BurstScan){0};
    m->indexer = (BurstIndexer){0};
    m->kinds = 0, m->layer_kind = NULL;
    m->rope.rotary = 0;
    p->train.batch = 1;
    p->train.data = p->train.evaluate = NULL;
    p->train.data_files = 0;
    p->train.weights = p->train.checkpoint = p->train.export_dir = NULL;
}
