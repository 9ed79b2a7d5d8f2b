/* check_train.c: training. The batch and the number of groups that share it must fit. */
#include "check.h"

#include <limits.h>

typedef struct TrainFields {
    Train t;
    Span warmup, steps, cosine, separator;
    double lr_end;
} TrainFields;

/* `data "tokens.bin";` `data "text.txt" bytes;` */
static void take_data(Checker *c, const Ast *s, const Field *f, void *to)
{
    Train *t = &((TrainFields *)to)->t;
    (void)f;
    Cursor u = cursor_of(c, s);
    const Ast *path = cursor_string(&u, "a file in quotes, such as \"tokens.bin\"");
    t->bytes = cursor_try(&u, "bytes");
    if (cursor_end(&u))
        t->data = path->text;
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
    if (cursor_number(&u, f->unit, f->lo, f->hi, &t->beta1) &&
        cursor_number(&u, f->unit, f->lo, f->hi, &t->beta2))
        cursor_end(&u);
}

/* `cosine to 3e-5;` */
static void take_cosine(Checker *c, const Ast *s, const Field *f, void *to)
{
    TrainFields *t = to;
    Cursor u = cursor_of(c, s);
    t->cosine = s->span;
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
    if (cursor_kind(&u, kinds, countof(kinds)) && cursor_end(&u))
        take_fields(c, s->body, optimizer_fields, countof(optimizer_fields), to, "the optimizer", s->span);
}

static void take_batch(Checker *c, const Ast *s, const Field *f, void *to)
{
    Train *t = &((TrainFields *)to)->t;
    t->batch_span = s->span;
    take_int64(c, s, f, &t->batch);
}

static void take_steps(Checker *c, const Ast *s, const Field *f, void *to)
{
    TrainFields *t = to;
    t->steps = s->span;
    take_int64(c, s, f, &t->t.steps);
}

static void take_separator(Checker *c, const Ast *s, const Field *f, void *to)
{
    TrainFields *t = to;
    t->separator = s->span;
    take_int64(c, s, f, &t->t.separator);
}

static void take_deterministic(Checker *c, const Ast *s, const Field *f, void *to)
{
    Train *t = &((TrainFields *)to)->t;
    t->deterministic_span = s->span;
    take_yes_no(c, s, f, &t->deterministic);
}

static const Field train_fields[] = {
    {"data", take_data, 0, 0},
    {"separator", take_separator, 0, 0, UNIT_NONE, 0, INT32_MAX},
    {"predict", take_int64, AT(predict), 0, UNIT_NONE, 1, 64},
    {"steps", take_steps, 0, 0, UNIT_NONE, 1, 1e15},
    {"batch", take_batch, 0, 0, UNIT_NONE, 1, 1 << 30},
    {"optimizer", take_optimizer, 0, FIELD_BLOCK},
    {"checkpoint", take_checkpoint, 0, 0, UNIT_NONE, 1, 1e15},
    {"weights", take_weights, 0, 0},
    {"export", take_export, 0, 0},
    {"seed", take_int64, AT(seed), 0, UNIT_NONE, 0, 9e15},
    {"deterministic", take_deterministic, 0, 0},
};
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

/* Without a batch each group has one sequence, and without either there is one group. */
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

static void check_train(Checker *c, TrainFields *f)
{
    Train *t = &f->t;
    check_batch(c, t);
    if (t->warmup > t->steps)
        diag_error(c->diags, f->warmup, "warmup %lld exceeds the %lld step%s of training",
                   (long long)t->warmup, (long long)t->steps, plural(t->steps));
    else if (t->cosine && t->steps <= (t->warmup > 1 ? t->warmup : 1))
        diag_warn(c->diags, WARN_UNUSED_COSINE, f->cosine,
                  "`cosine` has no effect: the learning rate reaches its peak at the last step, %lld",
                  (long long)t->steps);
    t->lr_end = t->cosine ? f->lr_end : t->lr;
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
