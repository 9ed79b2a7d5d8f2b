/* safetensors/rope.c: the rotary embedding in config.json: rope_theta, and the scaling of its frequencies,
 * in rope_scaling of older files and rope_parameters of newer ones. */
#include "safetensors/safetensors.h"

#include "families/frequency.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *rope_part_name(const Family *f)
{
    return f->part_field ? f->part_field : "partial_rotary_factor";
}

const char *rope_theta_name(const Family *f) { return f->theta_field ? f->theta_field : "rope_theta"; }

static const char *const blocks[] = {"rope_scaling", "rope_parameters"};
enum { BLOCKS = sizeof blocks / sizeof *blocks };

/* BURST_ROPE_KINDS: an unknown name. For families with longrope only, su is its first name. */
static int kind_of(const Family *family, const json_t *block)
{
    const json_t *type = json_object_get(block, "rope_type");
    type = type ? type : json_object_get(block, "type");
    int kind = 0;
    if (family->original && json_is_string(type) && strcmp(json_string_value(type), "su") == 0)
        return BURST_ROPE_LONGROPE;
    if (family->mrope && json_is_string(type) && strcmp(json_string_value(type), "mrope") == 0)
        return BURST_ROPE_DEFAULT;
    while (type && kind < BURST_ROPE_KINDS &&
           (!json_is_string(type) || strcmp(json_string_value(type), rope_kinds[kind].name) != 0))
        kind++;
    if (family->original && kind != BURST_ROPE_DEFAULT && kind != BURST_ROPE_LONGROPE)
        return BURST_ROPE_KINDS;
    if (family->scaled_queries && kind != BURST_ROPE_YARN)
        return BURST_ROPE_KINDS;
    return kind;
}

/* yarn: the whole ratio of the two amplitudes that DeepSeek's models give. */
static double amplitude(double factor, double scale)
{
    return factor > 1 ? 0.1 * scale * log(factor) + 1 : 1;
}

static double yarn_attention(const json_t *block, double factor)
{
    const double scale = json_number_value(json_object_get(block, "mscale")),
                 all = json_number_value(json_object_get(block, "mscale_all_dim"));
    return scale != 0 && all != 0 ? amplitude(factor, scale) / amplitude(factor, all)
                                  : rope_yarn_attention(factor);
}

/* Used if a block has no length of its own and the kind reads no other. */
static const json_t *number_there(const json_t *config, const json_t *block, int kind, const RopeField *f)
{
    const json_t *there = json_object_get(block, f->json),
                 *outer = json_object_get(config, "original_max_position_embeddings");
    const bool length = f->at == offsetof(BurstRope, original);
    if (length && kind == BURST_ROPE_LONGROPE && given(outer) && !given(there))
        return outer;
    if (length && (!given(there) || kind == BURST_ROPE_DYNAMIC))
        return json_object_get(config, "max_position_embeddings");
    return there;
}

static bool is_read(const Family *family, const RopeField *f)
{
    return f->at != offsetof(BurstRope, query_beta) || family->scaled_queries;
}

static bool known_in(const Family *family, const json_t *block, int kind)
{
    static const char *const any[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
    static const char *const longrope[] = {"short_factor", "long_factor", "factor"};
    static const char *const yarn[] = {"mscale", "mscale_all_dim", "max_position_embeddings", "attn_factor"};
    size_t found = 0;
    for (size_t i = 0; i < sizeof any / sizeof *any; i++)
        found += json_object_get(block, any[i]) != NULL;
    for (size_t i = 0; kind == BURST_ROPE_YARN && i < sizeof yarn / sizeof *yarn; i++)
        found += json_object_get(block, yarn[i]) != NULL;
    for (size_t i = 0; kind == BURST_ROPE_LONGROPE && i < sizeof longrope / sizeof *longrope; i++)
        found += json_object_get(block, longrope[i]) != NULL;
    for (const RopeField *f = rope_kinds[kind].field; f->name; f++)
        found += json_object_get(block, f->json) != NULL && is_read(family, f);
    if (family->mrope)
        found += (json_object_get(block, "mrope_section") != NULL) +
                 (json_object_get(block, "mrope_interleaved") != NULL);
    return json_object_size(block) == found;
}

/* Returns their number; 0: not a list of factors. */
static int take_factors(const json_t *list, double *factor)
{
    const size_t count = json_array_size(list);
    bool right = count > 0 && count <= BURST_ROPE_PAIRS;
    for (size_t i = 0; right && i < count; i++) {
        factor[i] = json_number_value(json_array_get(list, i));
        right = factor[i] >= 1e-6 && factor[i] <= 1e6;
    }
    return right ? (int)count : 0;
}

/* Reads longrope's lists, and its amplitude, which follows from the ratio of lengths if the block has
 * none. */
static bool take_longrope(const json_t *config, const json_t *block, BurstRopeFactors *factors, BurstRope *r)
{
    const json_t *factor = json_object_get(block, "factor"),
                 *most = json_object_get(config, "max_position_embeddings");
    const double longer = given(factor) ? json_number_value(factor) : json_number_value(most) / r->original;
    const bool said = given(json_object_get(block, "attention_factor"));
    factors->count = take_factors(json_object_get(block, "short_factor"), factors->short_factor);
    r->factors = factors;
    if (!said)
        r->attention = rope_long_attention(longer, r->original);
    return factors->count > 0 && (said || longer > 0) &&
           factors->count == take_factors(json_object_get(block, "long_factor"), factors->long_factor);
}

/* A field that longrope derives from others. */
static bool is_implied(int kind, const RopeField *f)
{
    return kind == BURST_ROPE_LONGROPE && f->at == offsetof(BurstRope, attention);
}

/* Without original_max_position_embeddings outside the block, longrope has the family's value. */
static bool take_original(const Family *family, const json_t *config, BurstRope *r)
{
    const json_t *outer = json_object_get(config, "original_max_position_embeddings");
    if (r->kind != BURST_ROPE_LONGROPE || !family->original || given(outer))
        return true;
    return r->original == family->original;
}

/* -1, which no field may have: the value has another type. */
static double number_of(const RopeField *f, const json_t *value)
{
    if (f->negated) /* null means false, as in transformers */
        return json_is_boolean(value) || json_is_null(value) ? !json_is_true(value) : -1;
    return json_is_number(value) ? json_number_value(value) : -1;
}

/* Reads a block: all its entries must be known, and the kind's numbers present. parts: it may have
 * partial_rotary_factor. */
static bool take_block(const Family *family, const json_t *config, const json_t *block, bool parts,
                       BurstRopeFactors *factors, BurstRope *r)
{
    const int kind = kind_of(family, block);
    const json_t *part = json_object_get(block, "partial_rotary_factor");
    if (!json_is_object(block) || kind == BURST_ROPE_KINDS || !known_in(family, block, kind) ||
        (given(part) && !parts && json_number_value(part) != 1))
        return false;
    r->kind = kind;
    for (const RopeField *f = rope_kinds[kind].field; f->name; f++) {
        const json_t *there = number_there(config, block, kind, f);
        const bool said = f->negated ? there != NULL : given(there);
        *rope_number(r, f) = said ? number_of(f, there) : f->absent;
        if (said && !(rope_value(r, f) >= f->lo && rope_value(r, f) <= f->hi))
            return false;
        if (!said && f->absent == 0 && !f->option && !is_implied(kind, f))
            return false;
    }
    const json_t *outer = json_object_get(config, "original_max_position_embeddings");
    /* the two contradict each other */
    if (given(outer) && r->original > 0 && json_number_value(outer) != r->original)
        return false;
    if (kind == BURST_ROPE_YARN && r->attention < 0)
        r->attention = yarn_attention(block, r->factor);
    return take_original(family, config, r) &&
           (kind != BURST_ROPE_LONGROPE || take_longrope(config, block, factors, r));
}

double rope_score_scale(const json_t *config, const HfModel *m)
{
    double all = 0;
    for (int i = 0; i < BLOCKS; i++)
        all += json_number_value(json_object_get(json_object_get(config, blocks[i]), "mscale_all_dim"));
    const double scale = amplitude(m->rope.factor, all);
    return m->rope.kind == BURST_ROPE_YARN && all != 0 ? scale * scale / sqrt((double)m->head_dim) : 0;
}

bool rope_write_score_scale(json_t *config, const HfModel *m)
{
    const double scale = sqrt(m->scale[BURST_SCALE_ATTENTION] * sqrt((double)m->head_dim));
    json_t *block = json_object_get(config, "rope_scaling");
    if (!m->family->parts.layer.latent || m->rope.kind != BURST_ROPE_YARN || scale == 0 ||
        m->rope.factor <= 1)
        return true;
    return json_object_set_new(block, "mscale_all_dim",
                               json_real((scale - 1) / (0.1 * log(m->rope.factor)))) == 0;
}

static const char *kinds_computed(const Family *f)
{
    if (f->scaled_queries)
        return "only the type yarn is computed of this family, on whole heads";
    if (f->original)
        return "only the types default and longrope are computed of this family";
    return "only the types default, linear, llama3, yarn, dynamic and longrope on whole heads are computed";
}

/* *theta: set to the last of the fields that give it. */
static void read_block(Misfits *m, const json_t *config, const char *name, const json_t **theta, bool parts,
                       HfModel *there)
{
    char text[VALUE_TEXT], other[VALUE_TEXT];
    const json_t *block = json_object_get(config, name), *inner = json_object_get(block, "rope_theta");
    value_text(block, text);
    value_text(*theta, other);
    if (!take_block(there->family, config, block, parts, &there->factors, &there->rope))
        misfit(m, "%s is %s; %s", name, text, kinds_computed(there->family));
    else if (given(*theta) && given(inner) && json_number_value(*theta) != json_number_value(inner))
        misfit(m, "rope_theta is %s, but %s is %s", other, name, text);
    *theta = given(inner) ? inner : *theta;
}

/* Returns the block's name; NULL: there is none. */
static const char *read_blocks(Misfits *m, const json_t *config, const json_t **theta, HfModel *there)
{
    const bool parts = there->family->part > 0;
    const char *name = NULL;
    int filled = 0;
    for (int i = 0; i < BLOCKS; i++) {
        const json_t *block = json_object_get(config, blocks[i]);
        if (!given(block) || (json_is_object(block) && json_object_size(block) == 0))
            continue;
        if (filled++ == 0)
            there->rope = (BurstRope){.theta = there->rope.theta};
        read_block(m, config, blocks[i], theta, parts, there);
        name = blocks[i];
    }
    if (filled > 1) /* transformers uses one of them and ignores the other */
        misfit(m, "rope_scaling and rope_parameters are both there; remove one of them");
    return name;
}

static void compare(Misfits *m, const char *block, const json_t *config, const json_t *theta,
                    const HfModel *plan, const HfModel *there)
{
    char text[VALUE_TEXT], other[ROPE_TEXT], planned[VALUE_TEXT];
    BurstRope seen = there->rope;
    json_t *value = json_real(plan->rope.theta), *absent = json_real(there->rope.theta);
    value_text(theta ? theta : absent, text);
    value_text(value, planned);
    seen.theta = plan->rope.theta;
    seen.interleaved = plan->rope.interleaved; /* given by model_type */
    rope_text(&plan->rope, other, sizeof other);
    if (!there->family->layer_ropes && !same_value(value, theta ? theta : absent))
        misfit_rope(m, "%s is %s%s, expected %s", rope_theta_name(there->family), text,
                    theta ? "" : " (by default)", planned);
    value_text(block ? json_object_get(config, block) : NULL, text);
    if (!there->family->layer_ropes && seen.rotary != plan->rope.rotary)
        misfit(m, "%s turns %d elements of a head, expected %d", rope_part_name(there->family),
               burst_rope_rotary(&seen, (int)there->head_dim),
               burst_rope_rotary(&plan->rope, (int)plan->head_dim));
    else if (!there->family->layer_ropes && !rope_same(&seen, &plan->rope))
        misfit_rope(m, "%s is %s, expected rope %s", block ? block : "rope_scaling", text, other);
    json_decref(value);
    json_decref(absent);
}

/* Reads the number of rotated elements of a head, and how they are paired. */
static void read_part(Misfits *m, const json_t *config, const char *block, HfModel *there)
{
    const json_t *inner = block ? json_object_get(json_object_get(config, block), "partial_rotary_factor")
                                : NULL,
                 *part = given(inner) ? inner : json_object_get(config, rope_part_name(there->family));
    const json_t *elements = json_object_get(config, there->family->turns_field);
    const bool counted = there->family->turns_field && given(elements) && !given(part) && there->head_dim > 0;
    const double absent = counted ? json_number_value(elements) / (double)there->head_dim
                                  : there->family->part,
                 share = given(part) ? json_number_value(part) : absent;
    const int64_t turns = (int64_t)((double)there->head_dim * share);
    char text[VALUE_TEXT];
    there->rope.interleaved = there->family->interleaved;
    if (there->family->parts.layer.latent)
        there->rope.rotary = (int)-there->shared;
    if (there->family->part == 0 || !there->head_dim)
        return;
    value_text(counted ? elements : part, text);
    if (!(share > 0 && share <= 1) || turns < 2 || turns % 2)
        misfit(m, "%s is %s; only one that turns an even number of elements is computed",
               counted ? there->family->turns_field : rope_part_name(there->family), text);
    else
        there->rope.rotary = turns < there->head_dim ? (int)turns : 0;
}

/* Reads a block per type of layer, as newer files have. */
static void read_type(Misfits *m, const Family *family, const json_t *config, const char *type,
                      BurstRopeFactors *factors, BurstRope *r)
{
    const json_t *types = json_object_get(config, "rope_parameters");
    const json_t *block = json_object_get(types, type), *theta = json_object_get(block, "rope_theta");
    char text[VALUE_TEXT];
    value_text(block, text);
    r->theta = given(theta) ? json_number_value(theta) : r->theta;
    if ((given(block) && !take_block(family, config, block, false, factors, r)) || !(r->theta >= 1))
        misfit(m, "%s of rope_parameters is %s; %s", type, text, kinds_computed(family));
}

/* transformers reads only these two blocks. */
static void check_types(Misfits *m, const Family *family, const json_t *config)
{
    const json_t *types = json_object_get(config, "rope_parameters");
    const char *name;
    json_t *value;
    char text[VALUE_TEXT];
    value_text(types, text);
    if (!json_is_object(types))
        misfit(m, "rope_parameters is %s, expected a block for each type of layer", text);
    json_object_foreach((json_t *)types, name, value) if (strcmp(name, "full_attention") != 0 &&
                                                          strcmp(name, "sliding_attention") != 0)
        misfit(m,
               "rope_parameters has %s; of a %s transformers reads only its blocks full_attention and "
               "sliding_attention",
               name, family->type);
    if (json_object_size(json_object_get(config, "rope_scaling")) > 0)
        misfit(m, "rope_scaling and rope_parameters are both there; remove one of them");
}

static bool read_types(Misfits *m, const json_t *config, HfModel *there)
{
    const Family *family = there->family;
    const json_t *types = json_object_get(config, "rope_parameters"),
                 *theta = json_object_get(config, rope_theta_name(family)),
                 *local = family->local_theta_field ? json_object_get(config, family->local_theta_field)
                                                    : NULL;
    there->local_rope = (BurstRope){.theta = given(local) ? json_number_value(local) : family->local_theta};
    if (family->layer_ropes != ROPES_BY_TYPE || !given(types) ||
        (json_is_object(types) && json_object_size(types) == 0))
        return false;
    check_types(m, family, config);
    there->rope = (BurstRope){.theta = given(theta) ? json_number_value(theta) : family->rope.theta};
    read_type(m, there->family, config, "full_attention", &there->factors, &there->rope);
    read_type(m, there->family, config, "sliding_attention", &there->local_factors, &there->local_rope);
    return true;
}

/* A copy of the fields in which a base that `alpha` stretches is the base itself; else NULL. */
static json_t *without_alpha(const json_t *config, const HfModel *there)
{
    const double d = (double)there->head_dim, absent = there->family->rope.theta;
    for (int i = 0; i < BLOCKS && there->family->ntk_alpha && d > 2; i++) {
        const json_t *block = json_object_get(config, blocks[i]), *alpha = json_object_get(block, "alpha"),
                     *inner = json_object_get(block, "rope_theta"),
                     *theta = given(inner) ? inner : json_object_get(config, rope_theta_name(there->family));
        if (kind_of(there->family, block) != BURST_ROPE_DYNAMIC || !(json_number_value(alpha) > 0))
            continue;
        const double base = given(theta) ? json_number_value(theta) : absent;
        json_t *plain = json_copy((json_t *)config), *value = json_object();
        json_object_set_new(value, "rope_theta",
                            json_real(base * pow(json_number_value(alpha), d / (d - 2))));
        json_object_set_new(plain, blocks[i], value);
        json_object_del(plain, rope_theta_name(there->family));
        return plain;
    }
    return NULL;
}

static void read_rope(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there)
{
    if (read_types(m, config, there))
        return;
    const json_t *theta = json_object_get(config, rope_theta_name(there->family));
    const int before = m->count;
    char text[VALUE_TEXT];
    there->rope = there->family->rope;
    const char *block = read_blocks(m, config, &theta, there);
    theta = given(theta) ? theta : NULL;
    if (theta && !block && there->family->rope.kind &&
        json_number_value(theta) != there->family->rope.theta) {
        value_text(theta, text);
        misfit(m, "%s is %s, which transformers does not read of a %s without rope_parameters; set it there",
               rope_theta_name(there->family), text, there->family->type);
    }
    read_part(m, config, block, there);
    const bool read = m->count == before;
    there->rope.theta = theta ? json_number_value(theta) : there->family->rope.theta;
    if (plan) {
        there->rope.length = plan->rope.length;
        if (!read) /* reported already; avoids errors that follow from it */
            there->rope.kind = plan->rope.kind;
        HfModel known = *there;
        if (!read)
            known.rope = plan->rope, known.rope.theta = there->rope.theta;
        compare(m, block, config, theta, plan, &known);
        return;
    }
    value_text(theta, text);
    if (theta && !(json_is_number(theta) && there->rope.theta >= 1))
        misfit(m, "%s is %s; only a number from 1 on is computed", rope_theta_name(there->family), text);
}

void rope_read(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there)
{
    json_t *plain = without_alpha(config, there);
    read_rope(m, plain ? plain : config, plan, there);
    json_decref(plain);
}

void rope_check_length(Misfits *m, const BurstPlan *p, const json_t *config, const HfModel *there)
{
    const double most = json_number_value(json_object_get(config, "max_position_embeddings")),
                 times = (double)p->sequence / most;
    const HfModel plan = model_of(p);
    BurstRope seen = there->rope, scaled = seen;
    char text[ROPE_TEXT];
    seen.rotary = plan.rope.rotary, seen.interleaved = plan.rope.interleaved;
    if (!(most >= 1) || times <= 1 || seen.theta == 0 || !rope_same(&seen, &plan.rope) ||
        seen.kind == BURST_ROPE_DYNAMIC || seen.kind == BURST_ROPE_LONGROPE)
        return;
    if (seen.kind == BURST_ROPE_DEFAULT)
        snprintf(text, sizeof text, "%.15g yarn { factor %.9g; original %.15g; }", seen.theta, ceil(times),
                 most);
    if (there->family->original) /* it has no scaling but longrope */
        snprintf(text, sizeof text, "%.15g;", seen.theta * ceil(times));
    scaled.factor *= ceil(times);
    if (seen.kind != BURST_ROPE_DEFAULT)
        rope_text(&scaled, text, sizeof text);
    misfit_of(m, MISFIT_LENGTH,
              "sequence is %lld, %.3g times max_position_embeddings (%.15g), and RoPE is not scaled for it; "
              "write `rope %s`, and train with --plan-rope",
              (long long)p->sequence, times, most, text);
}

/* The lists of longrope. */
static bool write_factors(json_t *block, const BurstRope *r)
{
    json_t *lists[] = {json_array(), json_array()};
    for (int i = 0; r->factors && i < r->factors->count; i++) {
        json_array_append_new(lists[0], json_real(r->factors->short_factor[i]));
        json_array_append_new(lists[1], json_real(r->factors->long_factor[i]));
    }
    bool made = !r->factors || (json_object_set(block, "short_factor", lists[0]) == 0 &&
                                json_object_set(block, "long_factor", lists[1]) == 0);
    json_decref(lists[0]);
    json_decref(lists[1]);
    return made;
}

static bool is_length(const RopeField *f) { return f->at == offsetof(BurstRope, original); }

static json_t *json_of(const RopeField *f, double x)
{
    if (f->negated)
        return json_boolean(x == 0);
    return is_length(f) && x == floor(x) ? json_integer((json_int_t)x) : json_real(x);
}

/* Writes the kind's numbers, except dynamic's length, which transformers reads from
 * max_position_embeddings. */
static bool write_numbers(json_t *config, json_t *block, const BurstRope *r)
{
    bool made = true;
    for (const RopeField *f = rope_kinds[r->kind].field; made && f->name; f++) {
        const bool outer = is_length(f) && r->kind == BURST_ROPE_DYNAMIC;
        if (f->option && rope_value(r, f) == 0)
            continue;
        made = json_object_set_new(outer ? config : block, outer ? "max_position_embeddings" : f->json,
                                   json_of(f, rope_value(r, f))) == 0;
    }
    return made && write_factors(block, r);
}

static bool write_type(json_t *config, json_t *types, const char *type, const BurstRope *r)
{
    json_t *block = json_pack("{s:s, s:f}", "rope_type", rope_kinds[r->kind].name, "rope_theta", r->theta);
    const bool made = write_numbers(config, block, r);
    return json_object_set_new(types, type, block) == 0 && made;
}

bool rope_write_types(json_t *config, const BurstRope *full, const BurstRope *sliding)
{
    json_t *types = json_object();
    const bool made = write_type(config, types, "full_attention", full) &&
                      write_type(config, types, "sliding_attention", sliding);
    return json_object_set_new(config, "rope_parameters", types) == 0 && made;
}

/* longrope: writes the length that determines the amplitude if no attention_factor is read, as in MiniCPM's
 * code; never lowers max_position_embeddings. */
static bool write_length(json_t *config, const BurstRope *r)
{
    const double most = pow(r->original, r->attention * r->attention), whole = round(most),
                 there = json_number_value(json_object_get(config, "max_position_embeddings"));
    if (r->kind != BURST_ROPE_LONGROPE || fabs(most - whole) > 1e-6 * whole)
        return true;
    if (whole <= there || whole > 0x1p40)
        return true;
    return json_object_set_new(config, "max_position_embeddings", json_integer((json_int_t)whole)) == 0;
}

bool rope_write(json_t *config, const Family *family, const BurstRope *r, double part)
{
    bool made = json_object_set_new(config, rope_theta_name(family), json_real(r->theta)) == 0;
    /* described by the absence of a block */
    const bool plain = r->kind == BURST_ROPE_DEFAULT && !family->rope.kind;
    json_t *block = plain ? json_null() : json_pack("{s:s}", "rope_type", rope_kinds[r->kind].name);
    made = made && write_numbers(config, block, r) && write_length(config, r);
    if (made && r->kind == BURST_ROPE_LONGROPE && family->original)
        made = json_object_set_new(config, "original_max_position_embeddings",
                                   json_integer((json_int_t)r->original)) == 0;
    if (made && part > 0)
        made = json_object_set_new(config, rope_part_name(family), json_real(part)) == 0;
    if (made && family->scaled_queries) /* which must be there */
        made = json_object_set_new(block, "llama_4_scaling_beta", json_real(r->query_beta)) == 0;
    return json_object_set_new(config, "rope_scaling", block) == 0 && made;
}
