/* check_train.c: training, and `infer` in its place. The number of groups that share the batch must divide
 * it. */
#include "check.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <strings.h>

typedef struct TrainFields {
    Train t;
    Span warmup, steps, schedule, separator, momentum;
    double lr_end, decay_part;
} TrainFields;

/* `"ids.bin" raw 2` `"text.txt" bytes` */
static void take_data_file(Cursor *u, const char *what, BurstDataFile *f)
{
    const Ast *path = cursor_string(u, what);
    int64_t raw = cursor_try(u, "bytes");
    if (cursor_try(u, "raw")) {
        const Ast *width = u->at;
        if (cursor_whole(u, 2, 4, &raw) && raw == 3) {
            diag_error(u->c->diags, width->span, "`raw` must be 2 or 4, the bytes per token");
            u->failed = true;
        }
    }
    *f = (BurstDataFile){path ? path->text : NULL, (int)raw, 1};
}

/* The file's share, if there are several files. */
static void take_share(Cursor *u, BurstDataFile *f)
{
    const Ast *at = u->at;
    const bool given = !u->failed && at &&
                       (at->kind == A_NUMBER || (at->kind == A_PUNCT && *at->text == '-'));
    if (!given || !cursor_number(u, UNIT_NONE, -HUGE_VAL, HUGE_VAL, &f->share) ||
        (f->share >= 1e-6 && f->share <= 1e9))
        return;
    diag_error(u->c->diags, at->span,
               "a file's share must be from 1e-06 to 1e+09; remove a file that is not to be read");
    u->failed = true;
}

/* `data "tokens.bin";` `data "text.txt" bytes;` `data "web.tok" 0.7, "code.tok" 0.3;` */
static void take_data(Checker *c, const Ast *s, const Field *f, void *to)
{
    Train *t = &((TrainFields *)to)->t;
    (void)f;
    Cursor u = cursor_of(c, s);
    BurstDataFile *file = NEW_ARRAY(c->arena, BurstDataFile, BURST_DATA_FILES);
    int n = 0;
    do {
        if (n == BURST_DATA_FILES) {
            diag_error(c->diags, u.at ? u.at->span : s->span, "`data` can have at most %d files",
                       BURST_DATA_FILES);
            return;
        }
        take_data_file(&u, "a file in quotes, such as \"tokens.bin\"", &file[n]);
        take_share(&u, &file[n++]);
    } while (cursor_try(&u, ","));
    if (!u.failed && u.at && u.at->kind == A_STRING) {
        diag_error(c->diags, u.behind, "expected ',' here, between two files");
        diag_fixit(c->diags, u.behind, ",");
        return;
    }
    if (!cursor_end(&u))
        return;
    t->data = file;
    t->data_files = n;
}

/* `packed yes;` */
static void take_packed(Checker *c, const Ast *s, const Field *f, void *to)
{
    take_yes_no(c, s, f, &((TrainFields *)to)->t.packed);
}

/* `evaluate "valid.tok" every 200;` `evaluate "valid.tok" every 200 steps 20;` */
static void take_evaluate(Checker *c, const Ast *s, const Field *f, void *to)
{
    Train *t = &((TrainFields *)to)->t;
    Cursor u = cursor_of(c, s);
    BurstDataFile *file = NEW(c->arena, BurstDataFile);
    take_data_file(&u, "a file in quotes, such as \"valid.tok\" every 200", file);
    cursor_word(&u, "every");
    cursor_whole(&u, (int64_t)f->lo, (int64_t)f->hi, &t->evaluate_every);
    if (cursor_try(&u, "steps"))
        cursor_whole(&u, 1, (int64_t)f->hi, &t->evaluate_steps);
    if (cursor_end(&u))
        t->evaluate = file;
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
    Train *t = &((TrainFields *)to)->t;
    t->weights_span = path ? path->span : s->span;
    if (cursor_end(&u))
        t->weights = path->text;
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
    u.what = "the first of 'betas', of the mean of gradients,";
    if (!cursor_number(&u, f->unit, f->lo, f->hi, &t->beta1))
        return;
    u.what = "the second of 'betas', of the mean of squares,";
    cursor_number(&u, f->unit, f->lo, f->hi, &t->beta2);
    cursor_end(&u);
}

static const char *const schedule_names[] = {
#define X(id, name) [BURST_SCHEDULE_##id] = name,
    BURST_SCHEDULE_ROWS(X)
#undef X
};

/* Only one schedule can be given. */
static bool is_first_schedule(Checker *c, const Ast *s, TrainFields *t)
{
    if (t->schedule.src) {
        diag_error(c->diags, s->span,
                   "`%s` cannot be combined with `%s`; a run has one learning-rate schedule", s->text,
                   schedule_names[t->t.schedule]);
        diag_note(c->diags, t->schedule, "the other one is here");
        return false;
    }
    t->schedule = s->span;
    for (int i = 0; i < countof(schedule_names); i++)
        if (strcmp(s->text, schedule_names[i]) == 0)
            t->t.schedule = i;
    return true;
}

static void take_constant(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Cursor u = cursor_of(c, s);
    if (is_first_schedule(c, s, to))
        cursor_end(&u);
}

/* `cosine to 3e-5;` `linear to 0;` `wsd 0.2 to 0;` */
static void take_lr_schedule(Checker *c, const Ast *s, const Field *f, void *to)
{
    TrainFields *t = to;
    Cursor u = cursor_of(c, s);
    if (!is_first_schedule(c, s, t))
        return;
    u.what = "the share of the steps in which 'wsd' decays";
    if (t->t.schedule == BURST_SCHEDULE_WSD)
        cursor_number(&u, UNIT_NONE, 1e-6, 1, &t->decay_part);
    cursor_word(&u, "to");
    u.what = arena_printf(c->arena, "the last learning rate of '%s'", s->text);
    cursor_number(&u, f->unit, f->lo, f->hi, &t->lr_end);
    cursor_end(&u);
}

#define AT(member) offsetof(TrainFields, t.member)
#define SPAN(member) offsetof(TrainFields, member)
/* a beta of 1 would divide by zero in the bias correction */
static const Field optimizer_fields[] = {
    {"lr", take_double, AT(lr), 0, UNIT_NONE, 1e-12, 100},
    {"betas", take_betas, 0, 0, UNIT_NONE, 0, 0.999999},
    {"eps", take_double, AT(adam_eps), 0, UNIT_NONE, 1e-30, 1},
    {"decay", take_double, AT(decay), 0, UNIT_NONE, 0, 100},
    {"momentum", take_double, AT(momentum), 0, UNIT_NONE, 0, 0.999999, .span = SPAN(momentum)},
    {"clip", take_double, AT(clip), 0, UNIT_NONE, 1e-12, 1e9},
    {"warmup", take_int64, AT(warmup), 0, UNIT_NONE, 0, 1e15, .span = SPAN(warmup)},
    {"constant", take_constant, 0, 0},
    {"cosine", take_lr_schedule, 0, 0, UNIT_NONE, 0, 100},
    {"linear", take_lr_schedule, 0, 0, UNIT_NONE, 0, 100},
    {"wsd", take_lr_schedule, 0, 0, UNIT_NONE, 0, 100},
};

static void take_optimizer(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const kinds[] = {
#define X(id, name) name,
        BURST_OPTIMIZER_ROWS(X)
#undef X
    };
    static const char *const others[] = {"sgd", "adam", "lion", "adafactor"};
    (void)f;
    Train *t = &((TrainFields *)to)->t;
    Cursor u = cursor_of(c, s);
    t->optimizer_span = u.at ? u.at->span : s->span;
    for (int i = 0; u.at && u.at->kind == A_NAME && i < countof(others); i++)
        if (strcasecmp(u.at->text, others[i]) == 0) {
            not_planned(c, t->optimizer_span, arena_printf(c->arena, "optimizer %s", u.at->text),
                        "adamw or muon");
            return;
        }
    t->optimizer = cursor_choice(&u, kinds, countof(kinds));
    if (t->optimizer >= 0 && cursor_end(&u))
        take_fields(c, s->body, optimizer_fields, countof(optimizer_fields), to, "the optimizer", s->span);
}

static const Field train_fields[] = {
    {"data", take_data, 0, 0},
    {"packed", take_packed, 0, 0},
    {"evaluate", take_evaluate, 0, 0, UNIT_NONE, 1, 1e15},
    {"separator", take_int64, AT(separator), 0, UNIT_NONE, 0, INT32_MAX, .span = SPAN(separator)},
    {"predict", take_int64, AT(predict), 0, UNIT_NONE, 1, 64},
    {"steps", take_int64, AT(steps), 0, UNIT_NONE, 1, 1e15, .span = SPAN(steps)},
    {"batch", take_int64, AT(batch), 0, UNIT_NONE, 1, 1 << 30, .span = SPAN(t.batch_span)},
    {"optimizer", take_optimizer, 0, FIELD_BLOCK},
    {"checkpoint", take_checkpoint, 0, 0, UNIT_NONE, 1, 1e15},
    {"weights", take_weights, 0, 0},
    {"export", take_export, 0, 0},
    {"seed", take_int64, AT(seed), 0, UNIT_NONE, 0, 9e15},
    {"deterministic", take_yes_no, AT(deterministic), 0, .span = SPAN(t.deterministic_span)},
};
#undef SPAN
#undef AT

/* The largest number of groups that divides the ranks and the batch. */
static int64_t most_groups(int64_t world, int64_t batch)
{
    while (batch) {
        const int64_t rest = world % batch;
        world = batch;
        batch = rest;
    }
    return world;
}

/* Without a batch each group has one sequence; without data too there is one group. */
void check_batch(Checker *c, Train *t)
{
    const Setting *data = &c->program->layout.data;
    if (!t->batch_span.src)
        t->batch = data->value;
    if (t->batch % data->value != 0) {
        diag_error(c->diags, t->batch_span, "batch %lld is not a multiple of data %lld", (long long)t->batch,
                   (long long)data->value);
        diag_note(c->diags, data->span,
                  data->given ? "batch must be a multiple of the data factor given here"
                              : "data is derived from the ranks per sequence "
                                "given here");
    }
    if (data->is_auto && c->program->cluster.world)
        check_tokens(c, c->program->cluster.world / most_groups(c->program->cluster.world, t->batch));
}

/* Settings of a single optimizer, and locations that Muon's momentum supports. */
static void check_optimizer(Checker *c, const TrainFields *f)
{
    const Train *t = &f->t;
    const Layout *l = &c->program->layout;
    if (t->optimizer != BURST_OPTIMIZER_MUON && f->momentum.src)
        diag_error(c->diags, f->momentum,
                   "`momentum` requires `optimizer muon`; AdamW's is the first of its `betas`");
    if (t->optimizer != BURST_OPTIMIZER_MUON || !l->host_optimizer)
        return;
    diag_error(
        c->diags, l->offload.span,
        "`offload optimizer` cannot be combined with `optimizer muon`, whose matrices are orthogonalised "
        "on the device; remove `optimizer` here, or use `optimizer adamw`");
    diag_note(c->diags, t->optimizer_span, "the optimizer is given here");
}

static void check_train(Checker *c, TrainFields *f)
{
    Train *t = &f->t;
    check_optimizer(c, f);
    check_batch(c, t);
    if (t->warmup > t->steps)
        diag_error(c->diags, f->warmup, "warmup %lld exceeds the %lld step%s of training",
                   (long long)t->warmup, (long long)t->steps, plural(t->steps));
    else if (t->schedule && t->steps <= (t->warmup > 1 ? t->warmup : 1))
        diag_warn(c->diags, WARN_UNUSED_SCHEDULE, f->schedule,
                  "`%s` has no effect: the learning rate reaches its peak at the last step, %lld",
                  schedule_names[t->schedule], (long long)t->steps);
    t->lr_end = t->schedule ? f->lr_end : t->lr;
    if (t->schedule == BURST_SCHEDULE_WSD)
        t->decay_steps = (int64_t)(f->decay_part * (double)t->steps + 0.5);
    if (t->separator >= c->program->model.vocab && c->program->model.vocab)
        diag_error(c->diags, f->separator, "separator %lld is outside the vocabulary of %d tokens",
                   (long long)t->separator, c->program->model.vocab);
}

void finish_train(Checker *c)
{
    TrainFields f = {.t = {.separator = -1,
                           .predict = 1,
                           .steps = 1000,
                           .batch = 1,
                           .seed = 1,
                           .lr = 3e-4,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .decay = 0.1,
                           .clip = 1,
                           .adam_eps = 1e-8,
                           .momentum = 0.95}};
    if (c->train) {
        f.t.span = c->train->span;
        Cursor u = cursor_of(c, c->train);
        cursor_end(&u);
        take_fields(c, c->train->body, train_fields, countof(train_fields), &f, "training", f.t.span);
    }
    if (c->infer)
        f.t.weights = c->program->train.weights, f.t.weights_span = c->program->train.weights_span;
    check_train(c, &f);
    c->program->train = f.t;
}

/* ---- infer ---- */

/* `lengths 1Ki, 16Ki;` */
static void take_lengths(Checker *c, const Ast *s, const Field *f, void *to)
{
    Infer *n = &((Program *)to)->infer;
    Cursor u = cursor_of(c, s);
    do {
        const Ast *at = u.at;
        int64_t length;
        if (!cursor_whole(&u, (int64_t)f->lo, (int64_t)f->hi, &length))
            return;
        if (n->lengths == MOST_LENGTHS || (n->lengths && length <= n->length[n->lengths - 1])) {
            diag_error(c->diags, at->span, "`lengths` are at most %d numbers in rising order", MOST_LENGTHS);
            return;
        }
        n->length[n->lengths++] = length;
    } while (cursor_try(&u, ","));
    cursor_end(&u);
}

static void take_infer_weights(Checker *c, const Ast *s, const Field *f, void *to)
{
    TrainFields t = {.t.weights = NULL};
    take_weights(c, s, f, &t);
    ((Program *)to)->train.weights = t.t.weights;
    ((Program *)to)->train.weights_span = t.t.weights_span;
}

/* `products split;` */
static void take_products(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const words[] = {
        [PRODUCTS_AUTO] = "auto", [PRODUCTS_WHOLE] = "whole", [PRODUCTS_SPLIT] = "split"};
    int found = PRODUCTS_AUTO;
    (void)f;
    take_word(c, s, words, countof(words), &found);
    ((Program *)to)->infer.products = found;
}

static const Field infer_fields[] = {
    {"weights", take_infer_weights, 0, 0},
    {"lengths", take_lengths, 0, FIELD_REQUIRED, UNIT_NONE, 1, 0x1p40},
    {"tokens", take_int64, offsetof(Program, infer.tokens), 0, UNIT_NONE, 1, 1 << 24},
    {"products", take_products, 0, 0},
};

void begin_infer(Checker *c)
{
    Infer *n = &c->program->infer;
    if (!c->infer)
        return;
    Cursor u = cursor_of(c, c->infer);
    *n = (Infer){.tokens = 1, .span = c->infer->span};
    cursor_end(&u);
    take_fields(c, c->infer->body, infer_fields, countof(infer_fields), c->program, "inference", n->span);
    if (c->train)
        diag_error(c->diags, c->train->span,
                   "`train` cannot be combined with `infer`; a program does one of them");
    if (c->sequence)
        diag_error(
            c->diags, c->program->sequence_span,
            "`sequence` cannot be combined with `infer`, whose longest length is the sequence; remove it");
    if (c->in->sequence)
        n->lengths = 1, n->length[0] = c->in->sequence;
    if (!n->lengths)
        n->lengths = 1, n->length[0] = INT64_C(1) << 20; /* after an error */
    c->program->sequence = n->length[n->lengths - 1];
    c->program->sequence_span = n->span;
}

static void not_yet(Checker *c, Span at, const char *what, const char *use)
{
    diag_error(c->diags, at, "%s is not supported by this version of burstc in a program that infers; use %s",
               what, use);
}

static void refuse_in_infer(Checker *c, Span at, const char *name, const char *why)
{
    if (at.src)
        diag_error(c->diags, at, "`%s` has no meaning in a program that infers: %s; remove it", name, why);
}

/* Weights are whole, and a rank's shard of them is what files are read into (zero1); or sharded, and gathered
 * layer by layer for a prompt, as in training (zero3). They do not travel for later tokens: a rank's shard
 * is then its slices of matrices (choice_slices). If left open, the faster one that fits is searched. Chunks
 * of heads have no whole keys to be kept. */
void settle_infer_layout(Checker *c, Layout *l)
{
    static const char backward[] = "it has no backward";
    const bool saves_least = l->saving.upper && !l->saving.group && saving_rule(l->saving) == RECOMPUTE_FULL;
    const bool several = c->program->cluster.world > 1, open = !l->weights.given || l->weights.is_auto,
               other = !open && l->weights.value != SHARDING_ZERO1 && l->weights.value != SHARDING_ZERO3,
               slices = several && !open && l->weights.value == SHARDING_ZERO3 &&
                        c->program->infer.tokens > 1;
    if (!c->infer)
        return;
    const struct {
        Span at;
        const char *name, *why;
    } none[] = {
        {saves_least ? (Span){0} : l->saving_span, "recompute", backward},
        {l->offload.span, "offload", backward},
        {l->update.span, "update", "it has no optimizer"},
        {l->gradients.span, "gradients", backward},
        {l->overlap.value || l->overlap.is_auto ? l->overlap.span : (Span){0}, "overlap", backward},
        {l->fetch.span, "fetch", backward},
        {l->within.given ? l->weights.span : (Span){0}, "weights within", "all ranks share a prompt"},
        {other ? l->weights.span : (Span){0}, "weights",
         "without gradients ranks have all weights, with zero1, or a part of them, with zero3"},
        {l->data.value > 1 ? l->data.span : (Span){0}, "data", "all ranks share a prompt"},
        {l->head_chunks.value > 1 || l->head_chunks.is_auto ? l->head_chunks.span : (Span){0}, "head chunks",
         "the keys of all heads are kept"},
    };
    for (int i = 0; i < countof(none); i++)
        refuse_in_infer(c, none[i].at, none[i].name, none[i].why);
    if (slices && c->program->infer.products == PRODUCTS_WHOLE)
        not_yet(c, l->weights.span, "`weights zero3` with `products whole`", "`products split`");
    if (slices && (l->expert_groups.value > 1 || l->expert_groups.is_auto))
        not_yet(c, l->expert_groups.span, "`experts in` groups with `weights zero3` and several `tokens`",
                "`experts in 1 group`");
    l->data = (Setting){.value = 1, .given = l->data.given, .span = l->data.span};
    l->saving = saving_by(RECOMPUTE_FULL, 0);
    l->offload = l->update = l->gradients = l->overlap = l->fetch = (Setting){0};
    l->head_chunks = (Setting){.value = 1};
    l->weights = (Setting){.value = open ? SHARDING_ZERO3 : l->weights.value, .is_auto = several && open};
    if (l->chunk_keys)
        not_yet(c, l->token_chunks.span, "`token chunks` with `keys`", "`attention`");
    if (l->travel.given && l->travel.value == TRAVEL_LATENTS)
        not_yet(c, l->travel.span, "`travel latents`", "`travel keys`");
    if (l->partition.given && l->partition.value == PART_BALANCED)
        not_yet(c, l->partition.span, "`partition balanced`", "`partition zigzag`");
}

void check_infer(Checker *c)
{
    const Program *p = c->program;
    if (!c->infer)
        return;
    if (p->cluster.world && p->infer.length[0] < p->cluster.world)
        diag_error(c->diags, p->infer.span,
                   "prompts of %lld token%s are too short for %d ranks; use longer `lengths`",
                   (long long)p->infer.length[0], plural(p->infer.length[0]), p->cluster.world);
    if (p->table_count)
        not_yet(c, p->infer.span, "a mask or rope that reads a table other than doc, first and position",
                "a mask such as causal");
    const double reached = p->model.rope.length + (double)p->infer.tokens - 1;
    if (p->model.rope.length > 0 && reached > p->model.rope.original)
        not_yet(c, p->infer.span, "a rope that changes with the length",
                arena_printf(c->arena, "`lengths` and `tokens` of at most its original %.0f in all",
                             p->model.rope.original));
}
