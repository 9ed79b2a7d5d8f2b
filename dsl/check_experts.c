/* check_experts.c: `moe { experts 128; top 8; ffn swiglu 768; ... }`: experts that each token chooses. */
#include "check.h"

static void take_expert_ffn(Checker *c, const Ast *s, const Field *f, void *to)
{
    BurstExperts *m = to;
    if (take_ffn(c, s, f, &m->activation, &m->width) && m->activation > BURST_ACTIVATION_GEGLU_TANH)
        diag_error(c->diags, s->span,
                   "experts require an activation with a gate: swiglu, geglu or geglu_tanh");
}

static void take_score(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const words[] = {
#define X(id, name) name,
        BURST_SCORE_ROWS(X)
#undef X
    };
    (void)f;
    BurstExperts *m = to;
    Cursor u = cursor_of(c, s);
    const int word = cursor_choice(&u, words, countof(words));
    if (word >= 0 && cursor_end(&u))
        m->score = word;
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
};
#undef AT

void take_experts(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    BurstExperts m = {.scale = 1};
    const int before = diags_errors(c->diags);
    take_fields(c, s->body, fields, countof(fields), &m, "'moe'", s->span);
    if (diags_errors(c->diags) > before)
        return;
    if (m.top > m.experts)
        diag_error(c->diags, s->span,
                   "'top' is %d, but there are %d experts; a token chooses each at most once", m.top,
                   m.experts);
    if (m.shared && m.activation != BURST_ACTIVATION_SWIGLU)
        diag_error(c->diags, s->span,
                   "'shared' requires 'ffn swiglu': the shared expert is computed with it");
    if (m.shared_gate && !m.shared)
        diag_error(c->diags, s->span, "'shared_gate' requires 'shared', the columns of the shared expert");
    if (m.eps > 0 && !m.normalize)
        diag_error(c->diags, s->span, "'eps' requires 'normalize yes': it is added to the sum of the scores");
    *(BurstExperts *)to = m;
}
