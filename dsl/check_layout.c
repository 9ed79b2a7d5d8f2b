/* check_layout.c: the layout: factors of the world size, and choices. */
#include "check.h"

#include <limits.h>
#include <string.h>

/* A factor of the world size. */
static void take_factor(Checker *c, const Ast *s, const Field *f, void *to)
{
    Setting *setting = to;
    Cursor u = cursor_of(c, s);
    *setting = (Setting){.value = 1, .span = s->span, .given = true, .is_auto = cursor_try(&u, "auto")};
    if (!setting->is_auto)
        cursor_whole(&u, (int64_t)f->lo, (int64_t)f->hi, &setting->value);
    cursor_end(&u);
}

/* `context 64`, or sizes of a schedule's coordinates: `context 4 x auto x 2`. */
static void take_context(Checker *c, const Ast *s, const Field *f, void *to)
{
    Layout *l = to;
    Sizes *sizes = &l->sizes;
    Cursor u = cursor_of(c, s);
    l->context = (Setting){.value = 1, .span = s->span, .given = true};
    do {
        int64_t size = 0;
        if (cursor_try(&u, "auto"))
            l->context.is_auto = true;
        else if (cursor_whole(&u, (int64_t)f->lo, (int64_t)f->hi, &size) &&
                 l->context.value <= (int64_t)f->hi)
            l->context.value *= size;
        if (sizes->n < MAX_COORDS)
            sizes->at[sizes->n] = size;
        sizes->n++;
    } while (cursor_try(&u, "x"));
    bool wrong = !cursor_end(&u), many = sizes->n > MAX_COORDS, large = l->context.value > (int64_t)f->hi;
    if (!wrong && many)
        diag_error(c->diags, s->span, "a schedule has at most %d coordinates", MAX_COORDS);
    else if (!wrong && large)
        diag_error(c->diags, s->span, "'context' must be from %lld to %lld", (long long)f->lo,
                   (long long)f->hi);
    l->context.is_auto |= wrong || many || large; /* one error is enough */
    sizes->n = sizes->n == 1 || many ? 0 : sizes->n;
    sizes->span = s->span;
}

/* Reads one of the names, or auto. */
static Cursor choose_named(Checker *c, const Ast *s, Setting *setting, const char *const *names, int n)
{
    const char **all = NEW_ARRAY(c->arena, const char *, n + 1);
    memcpy(all, names, sizeof *all * (size_t)n);
    all[n] = "auto";
    Cursor u = cursor_of(c, s);
    int word = cursor_choice(&u, all, n + 1);
    *setting = (Setting){.value = word == n ? 0 : word, .is_auto = word == n, .given = true, .span = s->span};
    return u;
}

static void take_named(Checker *c, const Ast *s, Setting *setting, const char *const *names, int n)
{
    Cursor u = choose_named(c, s, setting, names, n);
    cursor_end(&u);
}

/* name(N), such as blocks(64). */
static bool call_value(Checker *c, const Ast *s, const char *name, const Ast **argument)
{
    const Ast *call = s->args.first;
    if (!call || call->kind != A_CALL || strcmp(call->text, name) != 0 || call->next)
        return false;
    *argument = call->args.n == 1 && call->args.first->kind == A_NUMBER ? call->args.first : NULL;
    if (!*argument)
        diag_error(c->diags, call->span, "'%s' needs one number, such as %s(64)", name, name);
    return true;
}

static void take_partition(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Layout *l = to;
    const Ast *block;
    const PartitionKind sized[] = {PART_BLOCKS, PART_BALANCED};
    int i = 0;
    while (i < countof(sized) && !call_value(c, s, partition_names[sized[i]], &block))
        i++;
    if (i == countof(sized)) {
        take_named(c, s, &l->partition, partition_names, PART_KINDS);
        for (i = 0; i < countof(sized); i++)
            if (!l->partition.is_auto && l->partition.value == sized[i])
                diag_error(c->diags, s->span, "'%s' requires its size in tokens, such as %s(1Ki)",
                           partition_names[sized[i]], partition_names[sized[i]]);
        return;
    }
    l->partition = (Setting){.value = sized[i], .given = true, .span = s->span};
    l->block = l->partition;
    if (!block)
        return;
    if (!block->number.is_whole || block->number.whole < 1 || block->number.unit != UNIT_NONE)
        diag_error(c->diags, block->span, "the block size must be a positive number of tokens");
    l->block.value = block->number.whole;
}

bool has_value(const Checker *c, const char *name, int n)
{
    const Model *m = &c->program->model;
    const struct {
        bool there;
        const char *names;
    } part[] = {
        {m->qk_norm, " q_raw rstd_q k_raw rstd_k "},
        {m->query_latent > 0, " q_low rstd_q_low "},
        {m->latent > 0, " kv_low rstd_kv_low "},
        {m->layer.experts, " logits expert_gate_up "},
        {m->layer.attention_gate, " attn_gate "},
        {m->scan.columns > 0, " scan_in scan_o "},
        {m->scan.heads > 0, " scan_z scan_gates "},
        {m->scan.heads > 0 && !m->layer.scan_plain, " rstd_scan "},
        {m->experts.shared > 0, " shared_gate_up "},
        {m->experts.shared_gate, " shared_logit "},
        {!m->layer.experts || m->kinds > 1, " gate_up "},
    };
    const char *const of = arena_copy(c->arena, name, (size_t)n);
    bool has = saves(saved_most(), of);
    for (int i = 0; i < countof(part); i++)
        has &= part[i].there || !saves(part[i].names, of);
    return has;
}

const char *savable_names(Checker *c)
{
    const char *names = saved_most(), *list = "";
    for (const char *at = names + 1; *at; at += strcspn(at, " ") + 1)
        if (strncmp(at, "x ", 2) != 0 && has_value(c, at, (int)strcspn(at, " ")))
            list = arena_printf(c->arena, "%s%s%.*s", list, *list ? ", " : "", (int)strcspn(at, " "), at);
    return list;
}

/* A name, or name(20): from layer 20 on. All bounds must be equal, since they split backward into two
 * loops. */
static void take_saved(Checker *c, const Ast *name, Saving *v)
{
    const Ast *bound = name->kind == A_CALL && name->args.n == 1 ? name->args.first : NULL;
    if (name->kind != A_NAME && !(name->kind == A_CALL && bound)) {
        diag_error(c->diags, name->span,
                   "expected a value, alone or with the first layer that saves it, such as gate_up(20)");
    } else if (!has_value(c, name->text, (int)strlen(name->text))) {
        diag_error(c->diags, name->span, "a layer cannot save '%s'; it can save %s", name->text,
                   savable_names(c));
    } else if (saves(v->upper, name->text) && strcmp(name->text, "x") != 0) {
        diag_error(c->diags, name->span, "'%s' is saved twice", name->text);
    } else if (bound && (bound->kind != A_NUMBER || !bound->number.is_whole || bound->number.whole < 1 ||
                         bound->number.whole > 1 << 20)) {
        diag_error(c->diags, bound->span,
                   "expected the number of the first layer that saves '%s', 1 or "
                   "greater",
                   name->text);
    } else if (bound && v->from && bound->number.whole != v->from) {
        diag_error(c->diags, bound->span,
                   "all values of one `save` must start at the same layer; this one starts at %lld, another "
                   "at %d",
                   (long long)bound->number.whole, v->from);
    } else {
        v->from = bound ? (int)bound->number.whole : v->from;
        v->upper = arena_printf(c->arena, "%s%s ", v->upper, name->text);
        v->lower = bound ? v->lower : arena_printf(c->arena, "%s%s ", v->lower, name->text);
    }
}

/* save(o, lse, gate_up(20)). A layer's input is always saved. */
static void take_saving(Checker *c, const Ast *s, const Ast *call, Layout *l)
{
    Cursor u = cursor_of(c, s);
    l->saving = saving_by(RECOMPUTE_FULL, 0);
    for (const Ast *name = call->args.first; name; name = name->next)
        take_saved(c, name, &l->saving);
    u.at = call->next;
    cursor_end(&u);
}

static void take_tail(Checker *c, const Ast *s, Layout *l)
{
    const Ast *share = NULL;
    if (!call_value(c, s, "tail", &share))
        diag_error(c->diags, s->span,
                   "'tail' requires the fraction of a rank's tokens whose attention output is kept, such as "
                   "tail(0.5)");
    else if (share && (share->number.unit != UNIT_NONE ||
                       !(share->number.value >= 0.01 && share->number.value <= 0.99)))
        diag_error(
            c->diags, share->span,
            "expected the fraction of a rank's tokens whose attention output is kept, from 0.01 to 0.99");
    l->saving = saving_by(RECOMPUTE_TAIL, share ? share->number.value : 0.5);
}

/* full(4): the first of four consecutive layers saves its input. */
static void take_group(Checker *c, const Ast *s, Layout *l)
{
    const char *const wanted = "expected the number of consecutive layers of which the first saves its "
                               "input, 2 or greater, such as full(4)";
    const Ast *n = NULL;
    l->saving = saving_by(RECOMPUTE_FULL, 0);
    if (!call_value(c, s, "full", &n))
        diag_error(c->diags, s->span, "%s", wanted);
    else if (n && (n->number.unit != UNIT_NONE || !n->number.is_whole || n->number.whole < 2 ||
                   n->number.whole > 1 << 20))
        diag_error(c->diags, n->span, "%s", wanted);
    else
        l->saving.group = n ? (int)n->number.whole : 0;
}

static void check_layer_groups(Checker *c, const Layout *l)
{
    const int group = l->saving.group, layers = c->program->model.layers;
    if (group && group >= layers)
        diag_error(c->diags, l->saving_span,
                   "`recompute full(%d)` requires a model with more than %d layers, and this one has %d; use "
                   "`recompute full%s`%s",
                   group, group, layers, layers > 2 ? arena_printf(c->arena, "(%d)", layers - 1) : "",
                   layers > 3 ? " or a smaller group" : "");
}

static void take_recompute(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Layout *l = to;
    const Ast *value = s->args.first;
    const bool call = value && value->kind == A_CALL;
    Setting rule = {.is_auto = true};
    l->saving_span = s->span;
    if (value && (call || value->kind == A_NAME) && strcmp(value->text, "tail") == 0) {
        take_tail(c, s, l);
    } else if (call && strcmp(value->text, "full") == 0) {
        take_group(c, s, l);
    } else if (call && strcmp(value->text, "save") == 0) {
        take_saving(c, s, value, l);
    } else {
        take_named(c, s, &rule, recompute_names, RECOMPUTES);
        if (!rule.is_auto && rule.value >= 0)
            l->saving = saving_by((Recompute)rule.value, 0);
    }
}

/* Settings with a single supported value so far: others are refused, never ignored. */
typedef struct Planned {
    const char *setting, *accepted, *others[5];
} Planned;
static const Planned choices[] = {
    {"accumulate", "fp32", {"bf16", "fp16"}},
};

static void take_choice(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)to;
    const Planned *choice = choices;
    while (strcmp(choice->setting, f->name) != 0)
        choice++;
    Cursor u = cursor_of(c, s);
    const Ast *value = u.at;
    for (int i = 0; value && i < countof(choice->others) && choice->others[i]; i++)
        if (strcmp(value->text, choice->others[i]) == 0) {
            const char *what = arena_printf(c->arena, "%s %s", s->text, choice->others[i]);
            not_planned(c, value->span, what, arena_printf(c->arena, "%s %s", s->text, choice->accepted));
            return;
        }
    cursor_choice(&u, &choice->accepted, 1);
    cursor_end(&u);
}

/* `weights zero3 within node;`: value 0 means a node's ranks. */
static void take_weights(Checker *c, const Ast *s, const Field *f, void *to)
{
    Layout *l = to;
    const Ast *value = s->args.first;
    const bool hybrid = value && strcmp(value->text, "hybrid") == 0,
               replicated = value && strcmp(value->text, "replicated") == 0;
    if (hybrid || replicated) {
        not_planned(c, value->span, arena_printf(c->arena, "weights %s", value->text),
                    hybrid ? "weights zero3 within node" : "weights zero1 within 1");
        return;
    }
    Cursor u = choose_named(c, s, &l->weights, sharding_names, SHARDINGS);
    if (l->weights.value >= 0 && cursor_try(&u, "within")) {
        l->within = (Setting){.given = true, .span = u.at ? u.at->span : s->span};
        if (!u.at)
            diag_error(c->diags, s->span,
                       "'within' requires `node` or the number of ranks that share the "
                       "weights");
        else if (!cursor_try(&u, "node"))
            cursor_whole(&u, (int64_t)f->lo, (int64_t)f->hi, &l->within.value);
    }
    cursor_end(&u);
}

static void take_count(Cursor *u, const Ast *s, const Field *f, Setting *setting)
{
    *setting = (Setting){.value = 1, .span = s->span, .given = true, .is_auto = cursor_try(u, "auto")};
    if (!setting->is_auto)
        cursor_whole(u, (int64_t)f->lo, (int64_t)f->hi, &setting->value);
}

/* `loss fused;` `loss tile 512;` */
static void take_loss(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const ways[] = {"fused", "tile"};
    const Ast *value = s->args.first;
    if (value && strcmp(value->text, "full") == 0) {
        not_planned(c, value->span, "loss full", "loss fused");
        return;
    }
    Cursor u = cursor_of(c, s);
    if (cursor_choice(&u, ways, countof(ways)) == 1)
        take_count(&u, s, f, &((Layout *)to)->loss_tile);
    cursor_end(&u);
}

/* `fetch chunks;` `ffn chunks 4;` */
static void take_form(Checker *c, const Ast *s, const Field *f, void *to)
{
    const SettingForm *form = f->form;
    Setting *setting = to;
    Cursor u = cursor_of(c, s);
    for (const char *more = strchr(form->name, ' '); more; more = strchr(more + 1, ' '))
        if (!cursor_word(&u, arena_copy(c->arena, more + 1, strcspn(more + 1, " "))))
            return;
    if (form->words && form->otherwise == OTHERWISE_FIXED)
        *setting = (Setting){.value = cursor_choice(&u, form->words, form->word_count) > 0,
                             .given = true,
                             .span = s->span};
    else if (form->words)
        u = choose_named(c, s, setting, form->words, form->word_count);
    else
        take_count(&u, s, f, setting);
    cursor_end(&u);
}

/* `experts in 4 groups;` */
static void take_expert_groups(Checker *c, const Ast *s, const Field *f, void *to)
{
    Cursor u = cursor_of(c, s);
    if (!cursor_word(&u, "in"))
        return;
    take_count(&u, s, f, to);
    if (cursor_word(&u, "groups"))
        cursor_end(&u);
}

/* The numbers of groups that divide them: "1, 2, 4 or 8". */
static const char *divisors_text(Arena *a, int experts)
{
    const char *text = "";
    int last = 0, n = 0;
    for (int i = 1; i <= experts; i++) {
        if (experts % i)
            continue;
        if (last)
            text = arena_printf(a, "%s%s%d", text, n > 1 ? ", " : "", last);
        last = i, n++;
    }
    return n > 1 ? arena_printf(a, "%s or %d", text, last) : "1";
}

static void check_expert_groups(Checker *c, const Layout *l)
{
    const Setting *groups = &l->expert_groups;
    const int experts = c->program->model.experts.experts;
    if (!groups->given || groups->is_auto || groups->value < 2)
        return;
    if (!experts)
        diag_error(c->diags, groups->span, "the model has no experts; remove `experts in %lld groups`",
                   (long long)groups->value);
    else if (experts % groups->value)
        diag_error(c->diags, groups->span, "%lld groups do not divide %d experts; use %s",
                   (long long)groups->value, experts, divisors_text(c->arena, experts));
}

/* `token chunks 4;` `token chunks auto, attention;` `token chunks 8, keys;` */
static void take_token_chunks(Checker *c, const Ast *s, const Field *f, void *to)
{
    Layout *l = to;
    Cursor u = cursor_of(c, s);
    if (!cursor_word(&u, "chunks"))
        return;
    take_count(&u, s, f, &l->token_chunks);
    const Ast *what = cursor_try(&u, ",") ? cursor_name(&u, "`attention` or `keys`") : NULL;
    l->chunk_keys = what && strcmp(what->text, "keys") == 0;
    l->chunk_queries = l->chunk_keys || (what && strcmp(what->text, "attention") == 0);
    if (what && !l->chunk_queries)
        diag_error(c->diags, what->span,
                   "unknown '%s'; `token chunks` can be followed by `attention` or `keys`", what->text);
    if (!cursor_end(&u) || !l->chunk_queries || l->token_chunks.is_auto)
        return;
    if (l->chunk_keys && l->token_chunks.value > MOST_KEY_CHUNKS)
        diag_error(c->diags, s->span,
                   "`token chunks` with `keys` is limited to %d chunks; use `token chunks %d, keys`",
                   MOST_KEY_CHUNKS, MOST_KEY_CHUNKS);
}

#define AT(member) offsetof(Layout, member)
static const Field own_fields[] = {
    {"data", take_factor, AT(data), 0, UNIT_NONE, 1, 1 << 20},
    {"context", take_context, 0, 0, UNIT_NONE, 1, 1 << 20},
    {"heads", take_factor, AT(heads), 0, UNIT_NONE, 1, 1 << 20},
    {"tensor", take_factor, AT(tensor), 0, UNIT_NONE, 1, 1 << 20},
    {"placement", take_placement, 0, 0},
    {"partition", take_partition, 0, 0},
    {"shares", take_shares, 0, 0},
    {"schedule", take_schedule, 0, 0},
    {"travel", take_travel, 0, 0},
    {"weights", take_weights, 0, 0, UNIT_NONE, 1, 1 << 20},
    {"recompute", take_recompute, 0, 0},
    {"loss", take_loss, 0, 0, UNIT_NONE, LEAST_LOSS_TILE, MOST_LOSS_TILE, .full = "loss tile"},
    {"token", take_token_chunks, 0, 0, UNIT_NONE, 1, 1 << 10, .full = "token chunks"},
    {"experts", take_expert_groups, AT(expert_groups), 0, UNIT_NONE, 1, BURST_MOST_EXPERTS,
     .full = "experts in"},
    {"offload", take_offload, 0, 0},
    {"accumulate", take_choice, 0, 0},
};
#undef AT

/* Concatenates these fields and those of setting forms; returns their number. */
static int layout_fields(Arena *a, const Field **out)
{
    int n = countof(own_fields), forms = 0;
    while (setting_forms[forms])
        forms++;
    Field *field = NEW_ARRAY(a, Field, n + forms);
    memcpy(field, own_fields, sizeof own_fields);
    for (int i = 0; i < forms; i++) {
        const SettingForm *form = setting_forms[i];
        field[n++] = (Field){.name = arena_copy(a, form->name, strcspn(form->name, " ")),
                             .take = take_form,
                             .offset = form->at,
                             .lo = (double)form->least,
                             .hi = (double)form->most,
                             .form = form,
                             .full = form->name};
    }
    *out = field;
    return n;
}

/* context and heads multiply to the ranks that share a sequence. */
static void check_group(Checker *c, const Layout *l, int64_t group)
{
    const Setting *context = &l->context, *heads = &l->heads;
    const Setting *one = !context->is_auto ? context : heads, *other = one == context ? heads : context;
    const char *name = one == context ? "context" : "heads";
    const char *would_do = arena_printf(c->arena, "context %lld or heads %lld", (long long)group,
                                        (long long)group);
    if (one->is_auto)
        return;
    if (other->is_auto && group % one->value != 0)
        diag_error(c->diags, one->span,
                   "%s %lld does not divide the %lld rank%s that share%s a sequence; use %s", name,
                   (long long)one->value, (long long)group, plural(group), group == 1 ? "s" : "", would_do);
    else if (!other->is_auto && one->value * other->value != group)
        diag_error(c->diags, span_join(one->span, other->span),
                   "context %lld times heads %lld is not the %lld rank%s that share%s a sequence; use %s",
                   (long long)context->value, (long long)heads->value, (long long)group, plural(group),
                   group == 1 ? "s" : "", would_do);
}

/* If data is open and context or heads give the ranks that share a sequence, data follows. */
static void derive_data(Layout *l, int world)
{
    const Setting *context = &l->context, *heads = &l->heads;
    const int64_t group = (context->is_auto ? 1 : context->value) * (heads->is_auto ? 1 : heads->value);
    const bool both = !context->is_auto && !heads->is_auto;
    if (l->data.is_auto && (group > 1 || both) && world % group == 0) {
        l->data.is_auto = false;
        l->data.value = world / group;
        l->data.span = context->value > 1 || heads->is_auto ? context->span : heads->span;
    }
}

/* The factors of the world size: data, tensor, and the group that shares a sequence. */
static void check_factors(Checker *c, Layout *l, int world)
{
    const char *of = l->tensor.value > 1
                         ? arena_printf(c->arena, "%d group%s of `tensor %lld`", world, plural(world),
                                        (long long)l->tensor.value)
                         : arena_printf(c->arena, "%d rank%s of the cluster", world, plural(world));
    derive_data(l, world);
    if (world % l->data.value != 0)
        diag_error(c->diags, l->data.span, "data %lld does not divide the %s", (long long)l->data.value, of);
    else
        check_group(c, l, world / l->data.value);
}

void check_tokens(Checker *c, int64_t group)
{
    const Program *p = c->program;
    if (p->sequence && p->sequence < group)
        diag_error(c->diags, p->sequence_span,
                   "a sequence of %lld tokens is too short for %lld ranks; use "
                   "at most one rank for each token",
                   (long long)p->sequence, (long long)group);
}

/* Checks that there are as many sizes as the schedule has coordinates. */
static bool check_sizes(Checker *c, const Layout *l, const SchedText *t)
{
    if (!l->sizes.n || l->sizes.n == t->rings)
        return true;
    diag_error(c->diags, l->sizes.span, "context has %d sizes, but schedule '%s' has %d coordinate%s%s",
               l->sizes.n, t->name, t->rings, plural(t->rings),
               t->rings < t->coords ? " in addition to the one for heads" : "");
    diag_note(c->diags, t->span, "its coordinates");
    return false;
}

static void check_any_sizes(Checker *c, const Layout *l)
{
    for (int i = 0; i < c->schedules.n; i++)
        if (!l->sizes.n || c->schedules.at[i]->rings == l->sizes.n)
            return;
    diag_error(c->diags, l->sizes.span, "context has %d sizes, but no schedule has that many coordinates",
               l->sizes.n);
}

bool find_schedule(Checker *c, const Layout *l, const char *name, Span at)
{
    const char **names = NEW_ARRAY(c->arena, const char *, c->schedules.n + 1);
    for (int i = 0; i < c->schedules.n; i++) {
        names[i] = c->schedules.at[i]->name;
        if (strcmp(names[i], name) == 0)
            return check_sizes(c, l, c->schedules.at[i]);
    }
    unknown_of(c, at, name, names, c->schedules.n, "schedule");
    return false;
}

static void check_schedule_name(Checker *c, const Layout *l)
{
    if (l->schedule)
        find_schedule(c, l, l->schedule, l->schedule_span);
    else
        check_any_sizes(c, l);
}

/* A chunk has whole key heads of a rank with their queries. A rank has at least one, even if ranks outnumber
 * key heads. */
static void check_head_chunks(Checker *c, const Layout *l)
{
    const int64_t all = c->program->model.kv_heads, tensor = l->tensor.value > 1 ? l->tensor.value : 1;
    const int64_t kv_heads = all > tensor ? all / tensor : all > 0;
    if (!l->head_chunks.is_auto && l->head_chunks.value > kv_heads && kv_heads > 0)
        diag_error(c->diags, l->head_chunks.span,
                   "head chunks %lld exceeds the %s %lld kv_heads; use `head chunks %lld`",
                   (long long)l->head_chunks.value, tensor > 1 ? "rank's" : "model's", (long long)kv_heads,
                   (long long)kv_heads);
}

void check_ranks(Checker *c, Layout *l)
{
    const Program *p = c->program;
    int world = p->cluster.world;
    check_head_chunks(c, l);
    if (!world)
        return;
    const int64_t tensor = l->tensor.value;
    if (l->tensor.is_auto) /* checked for each number in turn: search/tensor.c */
        return;
    check_tensor(c, l, world);
    if (world % tensor != 0)
        return;
    world /= (int)tensor;
    check_factors(c, l, world);
    check_shares(c, l, world);
    if (!l->heads.is_auto && p->model.heads && l->heads.value > p->model.heads)
        diag_error(c->diags, l->heads.span,
                   "heads %lld exceeds the model's %d head%s; use `context` for the remaining ranks",
                   (long long)l->heads.value, p->model.heads, plural(p->model.heads));
    if (!l->data.is_auto)
        check_tokens(c, world / l->data.value * tensor);
    if (l->within.given)
        check_within(c, l);
    if (l->block.given && p->sequence && l->block.value > p->sequence)
        diag_error(c->diags, l->block.span, "blocks of %lld token%s are longer than the sequence of %lld",
                   (long long)l->block.value, plural(l->block.value), (long long)p->sequence);
}

void finish_layout(Checker *c)
{
    const Setting automatic = {.is_auto = true}, one = {.value = 1}, open = {.value = 1, .is_auto = true};
    Layout l = {.data = open,
                .tensor = one,
                .context = automatic,
                .heads = automatic,
                .partition = automatic,
                .shares = automatic,
                .travel = automatic,
                .weights = {.value = SHARDING_ZERO3},
                .token_chunks = one};
    settings_otherwise(&l);
    if (c->layout) {
        const Field *fields;
        const int n = layout_fields(c->arena, &fields);
        l.span = c->layout->span;
        Cursor u = cursor_of(c, c->layout);
        cursor_end(&u);
        take_fields(c, c->layout->body, fields, n, &l, "the layout", l.span);
    }
    settle_library_layout(c, &l);
    settle_infer_layout(c, &l);
    if (l.saving.from >= c->program->model.layers && l.saving.from)
        diag_error(
            c->diags, l.saving_span,
            "no layer saves these values: `save` starts at layer %d, but the model has %d layer%s, numbered "
            "from 0",
            l.saving.from, c->program->model.layers, plural(c->program->model.layers));
    check_layer_groups(c, &l);
    check_expert_groups(c, &l);
    check_offload(c, &l);
    check_schedule_name(c, &l);
    check_placement(c, &l);
    check_ranks(c, &l);
    c->program->layout = l;
}
