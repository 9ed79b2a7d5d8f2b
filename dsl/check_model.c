/* check_model.c: the model, the sequence, the layout and training. */
#include "check.h"

#include <limits.h>
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

static const Field file_fields[] = {
    {"import", take_import, 0, FIELD_REPEATS},
    {"table", take_table, 0, FIELD_REPEATS},
    {"model", take_once, offsetof(Checker, model), FIELD_BLOCK},
    {"attention", take_once, offsetof(Checker, attention), FIELD_BLOCK},
    {"sequence", take_once, offsetof(Checker, sequence), 0},
    {"layout", take_once, offsetof(Checker, layout), FIELD_BLOCK},
    {"train", take_once, offsetof(Checker, train), FIELD_BLOCK},
};

void check_declarations(Checker *c, AstList items)
{
    AstList settings = {0};
    for (Ast *s = items.first, *next; s; s = next) {
        next = s->next;
        s->next = NULL;
        if (s->kind == A_SETTING)
            settings = ast_add(settings, s);
        else if (s->kind == A_MASK)
            declare_mask(c, s);
        else
            diag_error(c->diags, s->name_span, "a schedule belongs in a .sched file of its own");
    }
    take_fields(c, settings, file_fields, countof(file_fields), c, "a model file", (Span){0});
}

/* ---- the model ---- */
/* `ffn swiglu 14336`, `norm rmsnorm 1e-5`: a kind of which one is planned so far, then a number. */
static bool kind_word(Cursor *u, const char *const *kinds, int n)
{
    const Ast *word = u->at;
    int kind = cursor_choice(u, kinds, n);
    if (kind > 0) {
        Arena *a = u->c->arena;
        not_planned(u->c, word->span, arena_printf(a, "%s %s", u->setting->text, kinds[kind]), kinds[0]);
    }
    return kind == 0;
}

static void take_ffn(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const kinds[] = {"swiglu", "gelu", "geglu", "relu"};
    Cursor u = cursor_of(c, s);
    int64_t width;
    if (kind_word(&u, kinds, countof(kinds)) && cursor_whole(&u, (int64_t)f->lo, (int64_t)f->hi, &width) &&
        cursor_end(&u))
        *(int *)to = (int)width;
}

static void take_norm(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const kinds[] = {"rmsnorm", "layernorm"};
    Cursor u = cursor_of(c, s);
    if (kind_word(&u, kinds, countof(kinds)) && cursor_number(&u, UNIT_NONE, f->lo, f->hi, to))
        cursor_end(&u);
}

static void take_yes_no(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const words[] = {"no", "yes"};
    (void)f;
    Cursor u = cursor_of(c, s);
    int word = cursor_choice(&u, words, 2);
    if (cursor_end(&u))
        *(bool *)to = word == 1;
}

static void take_heads(Checker *c, const Ast *s, const Field *f, void *to)
{
    Model *m = to;
    m->heads_span = s->span;
    take_int(c, s, f, &m->heads);
}

static void take_kv_heads(Checker *c, const Ast *s, const Field *f, void *to)
{
    Model *m = to;
    m->kv_heads_span = s->span;
    take_int(c, s, f, &m->kv_heads);
}

typedef struct ModelFields { Model m; Span head_dim; } ModelFields;

static void take_head_dim(Checker *c, const Ast *s, const Field *f, void *to)
{
    ModelFields *m = to;
    m->head_dim = s->span;
    take_int(c, s, f, &m->m.head_dim);
}

#define AT(member) offsetof(ModelFields, m.member)
static const Field model_fields[] = {
    {"layers", take_int, AT(layers), FIELD_REQUIRED, UNIT_NONE, 1, 100000},
    {"hidden", take_int, AT(hidden), FIELD_REQUIRED, UNIT_NONE, 1, 1 << 24},
    {"heads", take_heads, 0, FIELD_REQUIRED, UNIT_NONE, 1, 1 << 16},
    {"kv_heads", take_kv_heads, 0, 0, UNIT_NONE, 1, 1 << 16},
    {"head_dim", take_head_dim, 0, 0, UNIT_NONE, 1, 4096},
    {"ffn", take_ffn, AT(ffn), FIELD_REQUIRED, UNIT_NONE, 1, 1 << 24},
    {"norm", take_norm, AT(norm_eps), 0, UNIT_NONE, 1e-12, 1},
    {"rope", take_double, AT(rope_theta), 0, UNIT_NONE, 1, 1e15},
    {"vocab", take_int, AT(vocab), FIELD_REQUIRED, UNIT_NONE, 2, 1 << 26},
    {"tied", take_yes_no, AT(tied), 0},
};
#undef AT

static void check_heads(Checker *c, ModelFields *f)
{
    Model *m = &f->m;
    if (!m->heads || !m->hidden)
        return;
    if (!m->kv_heads)
        m->kv_heads = m->heads;
    if (m->heads % m->kv_heads != 0) {
        diag_error(c->diags, m->kv_heads_span, "%d heads cannot share %d kv_heads evenly", m->heads, m->kv_heads);
        diag_note(c->diags, m->heads_span, "kv_heads must divide the %d heads given here", m->heads);
    }
    if (!f->head_dim.src && m->hidden % m->heads != 0)
        diag_error(c->diags, m->heads_span, "hidden %d is not a multiple of heads %d; give head_dim", m->hidden,
                   m->heads);
    if (!f->head_dim.src)
        m->head_dim = m->hidden / m->heads;
    m->head_dim_span = f->head_dim.src ? f->head_dim : m->heads_span;
    if (m->head_dim % 2 != 0)
        diag_error(c->diags, m->head_dim_span, "head_dim %d is odd; rotary embedding turns pairs, so it must be even", m->head_dim);
    if ((int64_t)m->heads * m->head_dim > INT_MAX)
        diag_error(c->diags, m->heads_span, "heads times head_dim is too large");
}

static void finish_sequence(Checker *c, Span file)
{
    if (!c->sequence) {
        diag_error(c->diags, file, "'%s' has no sequence, such as sequence 64Ki;", c->in->model_path);
        return;
    }
    Cursor u = cursor_of(c, c->sequence);
    cursor_whole(&u, 2, INT64_C(1) << 40, &c->program->sequence);
    cursor_end(&u);
    c->program->sequence_span = c->sequence->span;
}

void finish_model(Checker *c, Span file)
{
    finish_sequence(c, file);
    if (!c->model) {
        diag_error(c->diags, file, "'%s' has no model, such as model small { layers 2; ... }", c->in->model_path);
        return;
    }
    ModelFields f = {.m = {.norm_eps = 1e-5, .rope_theta = 10000, .span = c->model->span}};
    f.m.name = block_name(c, c->model);
    take_fields(c, c->model->body, model_fields, countof(model_fields), &f, "the model", c->model->span);
    check_heads(c, &f);
    c->program->model = f.m;
}

/* ---- the layout ---- */
/* A factor of the world size. Only context and heads are searched. */
static void take_factor(Checker *c, const Ast *s, const Field *f, void *to)
{
    Setting *setting = to;
    Cursor u = cursor_of(c, s);
    *setting = (Setting){.value = 1, .span = s->span, .given = true, .is_auto = cursor_try(&u, "auto")};
    if (!setting->is_auto)
        cursor_whole(&u, (int64_t)f->lo, (int64_t)f->hi, &setting->value);
    cursor_end(&u);
}

static void take_given_factor(Checker *c, const Ast *s, const Field *f, void *to)
{
    Setting *setting = to;
    take_factor(c, s, f, to);
    if (setting->is_auto)
        not_planned(c, s->span, arena_printf(c->arena, "%s auto", s->text),
                    arena_printf(c->arena, "a number, such as %s 1", s->text));
    setting->is_auto = false;
}

/* A word out of names, or auto. */
static void take_named(Checker *c, const Ast *s, Setting *setting, const char *const *names, int n)
{
    const char **all = NEW_ARRAY(c->arena, const char *, n + 1);
    memcpy(all, names, sizeof *all * (size_t)n);
    all[n] = "auto";
    Cursor u = cursor_of(c, s);
    int word = cursor_choice(&u, all, n + 1);
    *setting = (Setting){.value = word == n ? 0 : word, .is_auto = word == n, .given = true, .span = s->span};
    cursor_end(&u);
}

static void take_travel(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    take_named(c, s, &((Layout *)to)->travel, travel_names, TRAVELS);
}

/* blocks(B): the only value with an argument that is planned. */
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
    if (!call_value(c, s, "blocks", &block)) {
        take_named(c, s, &l->partition, partition_names, PART_KINDS);
        if (!l->partition.is_auto && l->partition.value == PART_BLOCKS)
            diag_error(c->diags, s->span, "'blocks' needs its size in tokens, such as blocks(64)");
        return;
    }
    l->partition = (Setting){.value = PART_BLOCKS, .given = true, .span = s->span};
    l->block = l->partition;
    if (!block)
        return;
    if (!block->number.is_whole || block->number.whole < 1 || block->number.unit != UNIT_NONE)
        diag_error(c->diags, block->span, "the block size must be a positive number of tokens");
    l->block.value = block->number.whole;
}

static void take_recompute(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    static const char *const use = "none, selective, full or auto";
    const Ast *value = s->args.first;
    if (value && value->kind == A_CALL && strcmp(value->text, "tail") == 0)
        not_planned(c, s->span, arena_printf(c->arena, "recompute %s", value->text), use);
    else
        take_named(c, s, &((Layout *)to)->recompute, recompute_names, RECOMPUTES);
}

/* A path in the text is relative to the file that it stands in. */
static const SchedText *load_named_schedule(Checker *c, const Ast *path)
{
    const char *file = path_beside(c->arena, path->span, path->text);
    if (is_plain_file(file))
        return load_schedule(c, file, path->span);
    diag_error(c->diags, path->span, "cannot read '%s'", file);
    return NULL;
}

static void take_schedule(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Layout *l = to;
    Cursor u = cursor_of(c, s);
    l->schedule_span = s->span;
    if (u.at && u.at->kind == A_STRING) {
        const Ast *path = cursor_string(&u, "a file");
        const SchedText *text = cursor_end(&u) ? load_named_schedule(c, path) : NULL;
        if (text)
            l->schedule = text->name;
        return;
    }
    const Ast *name = cursor_name(&u, "auto, the name of a schedule, or a file in quotes");
    if (cursor_end(&u) && strcmp(name->text, "auto") != 0)
        l->schedule = name->text;
}

/* What the language has but only one value of is planned so far: anything else is refused, never ignored. */
typedef struct Planned { const char *setting, *accepted, *others[5]; } Planned;
static const Planned choices[] = {
    {"placement", "auto", {"heads_first", "context_first"}},
    {"weights", "zero3", {"replicated", "zero1", "zero2", "hybrid"}},
    {"loss", "fused", {"full"}},
    {"offload", "none", {"optimizer", "chunks", "outputs"}},
    {"accumulate", "fp32", {"bf16", "fp16"}},
};

static void take_choice(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)to;
    const Planned *choice = choices;
    while (strcmp(choice->setting, f->name) != 0)
        choice++;
    const char *names[7] = {choice->accepted};
    int n = 1;
    for (; n <= 5 && choice->others[n - 1]; n++)
        names[n] = choice->others[n - 1];
    Cursor u = cursor_of(c, s);
    const Ast *value = u.at;
    for (int i = 1; value && i < n; i++)
        if (strcmp(value->text, names[i]) == 0) {
            const char *what = arena_printf(c->arena, "%s %s", s->text, names[i]);
            not_planned(c, value->span, what, arena_printf(c->arena, "%s %s", s->text, choice->accepted));
            return;
        }
    cursor_choice(&u, names, n);
    cursor_end(&u);
}

/* `ffn chunks auto;` */
static void take_ffn_chunks(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    (void)to;
    Cursor u = cursor_of(c, s);
    int64_t chunks = 1;
    const Ast *value;
    if (!cursor_word(&u, "chunks"))
        return;
    value = u.at;
    if (!cursor_try(&u, "auto"))
        cursor_whole(&u, 1, 1 << 20, &chunks);
    if (cursor_end(&u) && chunks != 1)
        not_planned(c, value->span, arena_printf(c->arena, "ffn chunks %lld", (long long)chunks), "ffn chunks auto");
}

#define AT(member) offsetof(Layout, member)
static const Field layout_fields[] = {
    {"data", take_given_factor, AT(data), 0, UNIT_NONE, 1, 1 << 20},
    {"context", take_factor, AT(context), 0, UNIT_NONE, 1, 1 << 20},
    {"heads", take_factor, AT(heads), 0, UNIT_NONE, 1, 1 << 20},
    {"tensor", take_given_factor, AT(tensor), 0, UNIT_NONE, 1, 1 << 20},
    {"placement", take_choice, 0, 0},
    {"partition", take_partition, 0, 0},
    {"schedule", take_schedule, 0, 0},
    {"travel", take_travel, 0, 0},
    {"weights", take_choice, 0, 0},
    {"recompute", take_recompute, 0, 0},
    {"loss", take_choice, 0, 0},
    {"ffn", take_ffn_chunks, 0, 0},
    {"offload", take_choice, 0, 0},
    {"accumulate", take_choice, 0, 0},
};
#undef AT

/* context and heads multiply to the ranks that share a sequence; only one of them may be more than 1 so far. */
static void check_group(Checker *c, const Layout *l, int64_t group)
{
    const Setting *context = &l->context, *heads = &l->heads;
    const Setting *one = !context->is_auto ? context : heads, *other = one == context ? heads : context;
    const char *name = one == context ? "context" : "heads", *other_name = one == context ? "heads" : "context";
    const char *would_do = arena_printf(c->arena, "context %lld or heads %lld", (long long)group, (long long)group);
    if (one->is_auto)
        return;
    if (other->is_auto && group % one->value != 0)
        diag_error(c->diags, one->span, "%s %lld does not divide the %lld ranks that share a sequence; use %s", name,
                   (long long)one->value, (long long)group, would_do);
    else if (!other->is_auto && one->value * other->value != group)
        diag_error(c->diags, span_join(one->span, other->span),
                   "context %lld times heads %lld is not the %lld ranks that share a sequence; use %s",
                   (long long)context->value, (long long)heads->value, (long long)group, would_do);
    else if (one->value > 1 && group / one->value > 1)
        not_planned(c, one->span,
                    arena_printf(c->arena, "%s %lld with %s %lld", name, (long long)one->value, other_name,
                                 (long long)(group / one->value)),
                    would_do);
}

/* The factors of the world size: data, tensor, and the group that shares a sequence. */
static void check_factors(Checker *c, const Layout *l, int world)
{
    if (l->tensor.value > 1)
        not_planned(c, l->tensor.span, arena_printf(c->arena, "tensor %lld", (long long)l->tensor.value), "tensor 1");
    if (world % l->data.value != 0)
        diag_error(c->diags, l->data.span, "data %lld does not divide the %d ranks of the cluster",
                   (long long)l->data.value, world);
    else
        check_group(c, l, world / l->data.value);
}

static void check_layout(Checker *c, const Layout *l)
{
    const Program *p = c->program;
    int world = p->cluster.world;
    if (!world)
        return;
    check_factors(c, l, world);
    if (!l->heads.is_auto && p->model.heads && l->heads.value > p->model.heads)
        diag_error(c->diags, l->heads.span, "heads %lld is more than the model's %d heads; use context for the rest",
                   (long long)l->heads.value, p->model.heads);
    int64_t group = world / l->data.value;
    if (p->sequence && p->sequence < group)
        diag_error(c->diags, p->sequence_span, "a sequence of %lld tokens cannot be shared by %lld ranks",
                   (long long)p->sequence, (long long)group);
    if (l->block.given && p->sequence && l->block.value > p->sequence)
        diag_error(c->diags, l->block.span, "blocks of %lld tokens are longer than the sequence of %lld",
                   (long long)l->block.value, (long long)p->sequence);
}

static void check_schedule_name(Checker *c, const Layout *l)
{
    if (!l->schedule)
        return;
    const char **names = NEW_ARRAY(c->arena, const char *, c->schedules.n + 1);
    for (int i = 0; i < c->schedules.n; i++) {
        names[i] = c->schedules.at[i]->name;
        if (strcmp(names[i], l->schedule) == 0)
            return;
    }
    unknown_word(c, l->schedule_span, l->schedule, names, c->schedules.n, "schedule");
}

void finish_layout(Checker *c)
{
    const Setting automatic = {.is_auto = true}, one = {.value = 1};
    Layout l = {.data = one, .tensor = one, .context = automatic, .heads = automatic, .partition = automatic,
                .travel = automatic, .recompute = automatic};
    if (c->layout) {
        l.span = c->layout->span;
        Cursor u = cursor_of(c, c->layout);
        cursor_end(&u);
        take_fields(c, c->layout->body, layout_fields, countof(layout_fields), &l, "the layout", l.span);
    }
    check_schedule_name(c, &l);
    check_layout(c, &l);
    c->program->layout = l;
}

/* ---- training ---- */
typedef struct TrainFields { Train t; Span batch, warmup, steps; double lr_end; } TrainFields;

static void take_data(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Cursor u = cursor_of(c, s);
    const Ast *path = cursor_string(&u, "a file in quotes, such as \"tokens.bin\"");
    if (cursor_end(&u))
        ((TrainFields *)to)->t.data = path->text;
}

static void take_checkpoint(Checker *c, const Ast *s, const Field *f, void *to)
{
    Train *t = &((TrainFields *)to)->t;
    Cursor u = cursor_of(c, s);
    const Ast *path = cursor_string(&u, "a folder in quotes, such as \"checkpoints\" every 100");
    cursor_word(&u, "every");
    cursor_whole(&u, (int64_t)f->lo, (int64_t)f->hi, &t->checkpoint_every);
    if (cursor_end(&u))
        t->checkpoint = path->text;
}

static void take_weights(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Cursor u = cursor_of(c, s);
    const Ast *path = cursor_string(&u, "a Hugging Face folder in quotes, such as \"Llama-3-8B\"");
    if (cursor_end(&u))
        ((TrainFields *)to)->t.weights = path->text;
}

/* `export "folder";` `export "folder" f32;` */
static void take_export(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const dtypes[] = {"bf16", "f32"};
    Train *t = &((TrainFields *)to)->t;
    (void)f;
    Cursor u = cursor_of(c, s);
    const Ast *path = cursor_string(&u, "a folder in quotes, such as \"trained\"");
    t->export_f32 = u.at && cursor_choice(&u, dtypes, countof(dtypes)) == 1;
    if (cursor_end(&u))
        t->export_dir = path->text;
}

static void take_betas(Checker *c, const Ast *s, const Field *f, void *to)
{
    Train *t = &((TrainFields *)to)->t;
    Cursor u = cursor_of(c, s);
    if (cursor_number(&u, f->unit, f->lo, f->hi, &t->beta1) && cursor_number(&u, f->unit, f->lo, f->hi, &t->beta2))
        cursor_end(&u);
}

/* `cosine to 3e-5;` */
static void take_cosine(Checker *c, const Ast *s, const Field *f, void *to)
{
    TrainFields *t = to;
    Cursor u = cursor_of(c, s);
    cursor_word(&u, "to");
    cursor_number(&u, f->unit, f->lo, f->hi, &t->lr_end);
    t->t.cosine = cursor_end(&u);
}

static void take_warmup(Checker *c, const Ast *s, const Field *f, void *to)
{
    TrainFields *t = to;
    t->warmup = s->span;
    take_int64(c, s, f, &t->t.warmup);
}

#define AT(member) offsetof(TrainFields, t.member)
/* A beta of 1 would divide by zero in the bias correction. */
static const Field optimizer_fields[] = {
    {"lr", take_double, AT(lr), 0, UNIT_NONE, 1e-12, 100},
    {"betas", take_betas, 0, 0, UNIT_NONE, 0, 0.999999},
    {"eps", take_double, AT(adam_eps), 0, UNIT_NONE, 1e-30, 1},
    {"decay", take_double, AT(decay), 0, UNIT_NONE, 0, 100},
    {"clip", take_double, AT(clip), 0, UNIT_NONE, 1e-12, 1e9},
    {"warmup", take_warmup, 0, 0, UNIT_NONE, 0, 1e15},
    {"cosine", take_cosine, 0, 0, UNIT_NONE, 0, 100},
};

static void take_optimizer(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const kinds[] = {"adamw", "sgd", "adam", "lion", "muon"};
    (void)f;
    Cursor u = cursor_of(c, s);
    if (kind_word(&u, kinds, countof(kinds)) && cursor_end(&u))
        take_fields(c, s->body, optimizer_fields, countof(optimizer_fields), to, "the optimizer", s->span);
}

static void take_batch(Checker *c, const Ast *s, const Field *f, void *to)
{
    TrainFields *t = to;
    t->batch = s->span;
    take_int64(c, s, f, &t->t.batch);
}

static void take_steps(Checker *c, const Ast *s, const Field *f, void *to)
{
    TrainFields *t = to;
    t->steps = s->span;
    take_int64(c, s, f, &t->t.steps);
}

static const Field train_fields[] = {
    {"data", take_data, 0, 0},
    {"separator", take_int64, AT(separator), 0, UNIT_NONE, 0, INT32_MAX},
    {"steps", take_steps, 0, 0, UNIT_NONE, 1, 1e15},
    {"batch", take_batch, 0, 0, UNIT_NONE, 1, 1 << 30},
    {"optimizer", take_optimizer, 0, FIELD_BLOCK},
    {"checkpoint", take_checkpoint, 0, 0, UNIT_NONE, 1, 1e15},
    {"weights", take_weights, 0, 0},
    {"export", take_export, 0, 0},
    {"seed", take_int64, AT(seed), 0, UNIT_NONE, 0, 9e15},
};
#undef AT

static void check_train(Checker *c, TrainFields *f)
{
    Train *t = &f->t;
    const Layout *l = &c->program->layout;
    int64_t data = l->data.value;
    if (!f->batch.src)
        t->batch = data;
    if (t->batch % data != 0) {
        diag_error(c->diags, f->batch, "batch %lld cannot be shared evenly by data %lld", (long long)t->batch,
                   (long long)data);
        diag_note(c->diags, l->data.span, "batch must be a multiple of the data factor given here");
    }
    if (t->warmup > t->steps)
        diag_error(c->diags, f->warmup, "warmup %lld is longer than the %lld steps of training", (long long)t->warmup,
                   (long long)t->steps);
    t->lr_end = t->cosine ? f->lr_end : t->lr;
    if (t->separator >= c->program->model.vocab && c->program->model.vocab)
        diag_error(c->diags, c->train->span, "separator %lld is not a token of a vocabulary of %d",
                   (long long)t->separator, c->program->model.vocab);
}

void finish_train(Checker *c)
{
    TrainFields f = {.t = {.separator = -1,
                           .steps = 1000,
                           .batch = 1,
                           .seed = 1,
                           .lr = 3e-4,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .decay = 0.1,
                           .clip = 1,
                           .adam_eps = 1e-8}};
    if (c->train) {
        f.t.span = c->train->span;
        Cursor u = cursor_of(c, c->train);
        cursor_end(&u);
        take_fields(c, c->train->body, train_fields, countof(train_fields), &f, "training", f.t.span);
    }
    check_train(c, &f);
    c->program->train = f.t;
}
