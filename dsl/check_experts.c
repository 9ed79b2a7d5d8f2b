/* check_experts.c: `moe { experts 128; top 8; ffn swiglu 768; ... }`: experts that each token chooses. */
#include "check.h"

#include <string.h>

static void take_expert_ffn(Checker *c, const Ast *s, const Field *f, void *to)
{
    BurstExperts *m = to;
    take_ffn(c, s, f, &m->activation, &m->width);
}

static void take_score(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const words[] = {
#define X(id, name) name,
        BURST_SCORE_ROWS(X)
#undef X
    };
    (void)f;
    take_word(c, s, words, countof(words), &((BurstExperts *)to)->score);
}

static void take_group_score(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const words[] = {
#define X(id, name) name,
        BURST_GROUP_ROWS(X)
#undef X
    };
    (void)f;
    take_word(c, s, words, countof(words), &((BurstExperts *)to)->group_score);
}

/* `yes`, `no`, or by how much it moves after each step. */
static void take_correction(Checker *c, const Ast *s, const Field *f, void *to)
{
    BurstExperts *m = to;
    Cursor u = cursor_of(c, s);
    if (!u.at || u.at->kind != A_NUMBER) {
        take_part(c, s, f, &m->correction);
        return;
    }
    m->correction = cursor_number(&u, UNIT_NONE, 1e-12, 1e6, &m->rate) && cursor_end(&u);
}

#define AT(member) offsetof(BurstExperts, member)
static const Field fields[] = {
    {"experts", take_int, AT(experts), FIELD_REQUIRED, UNIT_NONE, 2, BURST_MOST_EXPERTS},
    {"top", take_int, AT(top), FIELD_REQUIRED, UNIT_NONE, 1, BURST_MOST_EXPERTS},
    {"ffn", take_expert_ffn, 0, FIELD_REQUIRED, UNIT_NONE, 1, 1 << 24},
    {"score", take_score, 0, 0},
    {"normalize", take_part, AT(normalize), 0},
    {"eps", take_double, AT(eps), 0, UNIT_NONE, 1e-30, 1},
    {"scale", take_double, AT(scale), 0, UNIT_NONE, 1e-6, 1e6},
    {"shared", take_int, AT(shared), 0, UNIT_NONE, 1, 1 << 24},
    {"shared_gate", take_part, AT(shared_gate), 0},
    {"least", take_double, AT(least), 0, UNIT_NONE, 1e-30, 1},
    {"groups", take_int, AT(groups), 0, UNIT_NONE, 1, BURST_MOST_EXPERTS},
    {"top_groups", take_int, AT(top_groups), 0, UNIT_NONE, 1, BURST_MOST_EXPERTS},
    {"group_score", take_group_score, 0, 0},
    {"correction", take_correction, 0, 0},
    {"router_bias", take_part, AT(router_bias), 0},
    {"bias", take_part, AT(bias), 0},
    {"alpha", take_double, AT(alpha), 0, UNIT_NONE, 1e-6, 1e6},
    {"offset", take_double, AT(offset), 0, UNIT_NONE, -1e6, 1e6},
    {"everywhere", take_part, AT(everywhere), 0},
    {"limit", take_double, AT(limit), 0, UNIT_NONE, 1e-6, 1e6},
    {"balance", take_double, AT(balance), 0, UNIT_NONE, 1e-12, 1e6},
};
#undef AT

/* Groups of equally many experts, of which those that a token may choose from have enough. */
static void check_groups(Checker *c, const Ast *s, const BurstExperts *m)
{
    const int each = m->groups ? m->experts / m->groups : m->experts;
    if (!m->groups != !m->top_groups)
        diag_error(c->diags, s->span,
                   "'groups' and 'top_groups' require each other: experts are chosen among those of the best "
                   "groups");
    else if (m->groups && m->experts % m->groups)
        diag_error(c->diags, s->span, "%d experts cannot be divided evenly among %d groups", m->experts,
                   m->groups);
    else if (m->top_groups > m->groups)
        diag_error(c->diags, s->span, "'top_groups' is %d, but there are %d groups", m->top_groups,
                   m->groups);
    else if (m->groups && m->top > m->top_groups * each)
        diag_error(c->diags, s->span, "'top' is %d, but 'top_groups %d' leaves %d expert%s to choose from",
                   m->top, m->top_groups, m->top_groups * each, plural(m->top_groups * each));
    else if (m->group_score == BURST_GROUP_TWO && each < 2)
        diag_error(c->diags, s->span, "'group_score two' requires groups of at least 2 experts");
}

/* A setting that has no effect, or none that is computed, without another. */
static void check_needs(Checker *c, const Ast *s, const BurstExperts *m)
{
    const bool swiglu = m->activation == BURST_ACTIVATION_SWIGLU,
               gates = burst_activation_gates(m->activation),
               plain = m->alpha >= 1 && m->alpha <= 1 && m->limit <= 0 && m->offset >= 0 && m->offset <= 0;
    const struct {
        bool wrong;
        const char *text;
    } row[] = {
        {m->eps > 0 && !m->normalize, "'eps' requires 'normalize yes': it is added to the sum of the scores"},
        {m->least > 0 && !m->normalize, "'least' requires 'normalize yes': it bounds the sum of the scores"},
        {m->group_score && !m->groups, "'group_score' requires 'groups'"},
        {m->shared && !swiglu && gates, "'shared' requires 'ffn swiglu', or an activation without a gate: "
                                        "the shared expert is computed with "
                                        "it"},
        {m->bias && !gates, "'bias' requires an activation with a gate: swiglu, geglu or geglu_tanh"},
        {m->shared && !plain && !m->everywhere,
         "'shared' with 'alpha', 'offset' or 'limit' requires 'everywhere yes': the shared expert and layers "
         "without experts have them too"},
        {m->everywhere && plain, "'everywhere' requires 'alpha', 'offset' or 'limit'"},
        {m->shared_gate && !m->shared, "'shared_gate' requires 'shared', the columns of the shared expert"},
        {!swiglu && !plain, "'alpha', 'offset' and 'limit' require 'ffn swiglu'"},
    };
    for (int i = 0; i < countof(row); i++)
        if (row[i].wrong)
            diag_error(c->diags, s->span, "%s", row[i].text);
}

void take_experts(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    BurstExperts m = {.scale = 1, .alpha = 1};
    const int before = diags_errors(c->diags);
    take_fields(c, s->body, fields, countof(fields), &m, "'moe'", s->span);
    if (diags_errors(c->diags) > before)
        return;
    if (m.top > m.experts)
        diag_error(c->diags, s->span,
                   "'top' is %d, but there are %d experts; a token chooses each at most once", m.top,
                   m.experts);
    check_groups(c, s, &m);
    check_needs(c, s, &m);
    *(BurstExperts *)to = m;
}
