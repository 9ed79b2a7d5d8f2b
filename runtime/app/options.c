/* options.c: the command line of an emitted program, from one table. */
#include "app/options.h"

#include "base/escape.h"
#include "base/nearest.h"
#include "base/plural.h"
#include "data/source.h"
#include "host/launch/identity.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* COUNT: at least 1; NATURAL: at least 0; CHOICE: a|b|c */
enum { COUNT, NATURAL, SECONDS, PATH, FLAG, RESUME, CHOICE };

typedef struct Row { const char *name; int kind; const char *value; size_t at; const char *help; } Row;
#define AT(field) offsetof(Options, field)
static const Row rows[] = {
    {"--steps", NATURAL, "N", AT(steps),
     "stop after step N (the learning-rate schedule does not change); 0: no training"},
    {"--data", PATH, "FILE", AT(data),
     "train on this file: of burst-tokens, .npy, Megatron-LM's .bin; any if the vocabulary has at most 256 "
     "tokens"},
    {"--bytes", FLAG, "", AT(bytes), "read the files of tokens as bytes, one token per byte"},
    {"--raw", CHOICE, "2|4", AT(raw), "read the files of tokens as little-endian numbers of 2 or 4 bytes"},
    {"--evaluate", RESUME, "[FILE]", AT(evaluate_file),
     "evaluate on this file, or the plan's, also before the first step (alone: with --steps 0)"},
    {"--evaluate-every", NATURAL, "N", AT(evaluate_every),
     "evaluate every N steps (0: only before the first step and after the last)"},
    {"--evaluate-steps", NATURAL, "N", AT(evaluate_steps), "evaluate N batches (0: all of the file)"},
    {"--metrics", PATH, "FILE", AT(metrics), "write one line of JSON per step"},
    {"--checkpoint", PATH, "DIR", AT(checkpoint), "write checkpoints to this directory"},
    {"--every", NATURAL, "N", AT(every), "write a checkpoint every N steps (0: only after the last)"},
    {"--keep", COUNT, "N", AT(keep), "keep the newest N checkpoints (default 2)"},
    {"--resume", RESUME, "[FILE]", AT(resume_file), "resume from the newest valid checkpoint, or from FILE"},
    {"--fresh", FLAG, "", AT(fresh), "move checkpoints later than this run's start to a subdirectory"},
    {"--weights", PATH, "DIR", AT(weights), "load initial weights from this Hugging Face directory"},
    {"--plan-masks", FLAG, "", AT(plan_masks),
     "use the plan's masks if that directory's config.json has different ones"},
    {"--plan-rope", FLAG, "", AT(plan_rope),
     "use the plan's RoPE if that directory's config.json has another"},
    {"--export", PATH, "DIR", AT(export_dir),
     "write the weights as a Hugging Face directory after the last step"},
    {"--export-dtype", CHOICE, "bf16|f32", AT(dtype), "data type of the exported weights (default bf16)"},
    {"--seed", NATURAL, "N", AT(seed), "seed of the initial weights and the data order"},
    {"--timeout", SECONDS, "S", AT(timeout),
     "fail when a rank waits longer than S seconds (default 300, or BURST_TIMEOUT)"},
    {"--transport", CHOICE, "auto|nccl|peer", AT(transport),
     "transport between GPUs of one host (default auto, or BURST_TRANSPORT)"},
    {"--share-gpus", FLAG, "", AT(share_gpus),
     "let ranks share GPUs, to check a plan on fewer GPUs; slow (or BURST_SHARE_GPUS=1)"},
    {"--progress", COUNT, "N", AT(progress),
     "print a line every N steps (default 1; 20 lines in total if the output is not a terminal)"},
    {"--trace", PATH, "FILE", AT(trace),
     "write a timeline of the second step (for Perfetto) and print a table of its parts"},
    {"--trace-steps", COUNT, "N", AT(trace_steps), "trace N steps, starting with the second (default 1)"},
    {"--prompts", PATH, "FILE", AT(prompts),
     "read prompts from this file, one object of JSON a line (default: standard input)"},
    {"--tokens", COUNT, "N", AT(new_tokens), "continue a prompt by at most N tokens (default: the plan's)"},
    {"--quiet", FLAG, "", AT(quiet), "print no progress lines"},
    {"--help", FLAG, "", AT(help), "print this help; so does -h"},
    {"--version", FLAG, "", AT(version), "print what this program was generated from"},
};
#undef AT
enum { ROWS = sizeof rows / sizeof *rows };

/* Whether a program that infers has the option, or one that trains. */
static bool is_of(const Row *row, bool infers)
{
    static const char *const both[] = {"--weights",   "--plan-masks", "--plan-rope", "--seed",   "--timeout",
                                       "--transport", "--share-gpus", "--help",      "--version"},
                             *const infer[] = {"--prompts", "--tokens"};
    bool shared = false, own = false;
    for (size_t i = 0; i < sizeof both / sizeof *both; i++)
        shared = shared || strcmp(row->name, both[i]) == 0;
    for (size_t i = 0; i < sizeof infer / sizeof *infer; i++)
        own = own || strcmp(row->name, infer[i]) == 0;
    return shared || own == infers;
}

void options_help(const BurstPlan *p, const char *program)
{
    print_shown(stdout, "%s %s the model of %s", program, p->lengths ? "continues prompts with" : "trains",
                p->source);
    printf("\non %d rank%s. Run it directly to start all ranks, or launch it with mpirun -n %d,\nsrun -n %d, "
           "or torchrun --no-python.\n\n",
           p->world, plural(p->world), p->world, p->world);
    for (int i = 0; i < ROWS; i++)
        if (is_of(&rows[i], p->lengths != NULL))
            printf("  %-17s %-14s %s\n", rows[i].name, rows[i].value, rows[i].help);
    printf("\nExit codes: 0 success, 1 failure (see stderr), 2 usage error, 3 no device.\n");
}

static const Row *find_row(const char *name)
{
    if (strcmp(name, "-h") == 0)
        name = "--help";
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

static bool read_count(const char *text, int64_t least, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return end != text && !*end && !errno && *value >= least;
}

static bool is_choice(const char *text, const char *choices)
{
    const size_t n = strlen(text);
    for (const char *c = choices; c; c = strchr(c, '|'), c += c != NULL)
        if (n && strncmp(c, text, n) == 0 && (c[n] == '|' || !c[n]))
            return true;
    return false;
}

static bool store(Options *o, const Row *row, const char *value)
{
    void *at = (char *)o + row->at;
    switch (row->kind) {
    case COUNT:
    case NATURAL:
        return read_count(value, row->kind == COUNT, at);
    case SECONDS:
        return parse_seconds(value, at);
    case CHOICE:
        *(const char **)at = value;
        return is_choice(value, row->value);
    default:
        *(const char **)at = value;
        return *value != 0;
    }
}

__attribute__((format(printf, 3, 4))) static int usage(char *text, size_t size, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, size, format, ap);
    va_end(ap);
    return BURST_E_USAGE;
}

/* Options of other programs, by how they begin: what this one has. */
static const struct {
    const char *option, *ours;
} foreign[] = {
    {"--lr", "the model sets it: `train { optimizer adamw { lr 3e-4; } }`; compile it again"},
    {"--learning", "the model sets it: `train { optimizer adamw { lr 3e-4; } }`; compile it again"},
    {"--batch", "the model sets it: `train { batch N; }`; compile it again"},
    {"--global-batch", "the model sets it: `train { batch N; }`; compile it again"},
    {"--seq", "the model sets it: `sequence 64Ki;`; compile it again"},
    {"--max-seq", "the model sets it: `sequence 64Ki;`; compile it again"},
    {"--epochs", "use --steps N"},
    {"--max-steps", "use --steps N"},
    {"--save", "use --checkpoint DIR, and --export DIR for a Hugging Face folder"},
    {"--output", "use --checkpoint DIR, and --export DIR for a Hugging Face folder"},
    {"--model", "use --weights DIR"},
    {"--load", "use --weights DIR, or --resume"},
    {"--bf16", "the device decides: bf16 products, fp32 sums on GPUs, fp32 on CPUs"},
    {"--fp16", "the device decides: bf16 products, fp32 sums on GPUs, fp32 on CPUs"},
};

static int unknown(char *text, size_t size, const char *option)
{
    const char *names[ROWS];
    for (int i = 0; i < ROWS; i++)
        names[i] = rows[i].name;
    const char *near = nearest_name(option, names, ROWS), *equals = strchr(option, '=');
    const int named = equals ? (int)(equals - option) : 0;
    for (int i = 0; i < ROWS; i++)
        if (equals && strncmp(rows[i].name, option, (size_t)named) == 0 && !rows[i].name[named])
            return usage(text, size, "unknown option '%s'; write the value as a word of its own: %s %s",
                         option, rows[i].name, equals + 1);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (strncmp(option, foreign[i].option, strlen(foreign[i].option)) == 0)
            return usage(text, size, "unknown option '%s'; %s", option, foreign[i].ours);
    return near ? usage(text, size, "unknown option '%s'; did you mean '%s'? See --help", option, near)
                : usage(text, size, "unknown option '%s'; see --help", option);
}

static const char *expected(const Row *row)
{
    static const char *const kinds[] = {[COUNT] = "a whole number of at least 1",
                                        [NATURAL] = "a whole number of at least 0",
                                        [SECONDS] = "a positive number of seconds",
                                        [PATH] = "a path",
                                        [RESUME] = "a file"};
    return row->kind == CHOICE ? row->value : kinds[row->kind];
}

/* Reads the option at argv[*i]; leaves *i at its last word. */
static int read_option(Options *o, bool seen[ROWS], int argc, char **argv, int *i, char *text, size_t size)
{
    const Row *row = find_row(argv[*i]);
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    if (!row)
        return unknown(text, size, argv[*i]);
    const bool again = seen[row - rows];
    seen[row - rows] = true;
    if (row->kind == FLAG) {
        *(bool *)((char *)o + row->at) = true;
        return BURST_OK;
    }
    if (again)
        return usage(text, size, "%s was given twice", row->name);
    if (row->kind == RESUME) {
        *(strcmp(row->name, "--resume") == 0 ? &o->resume : &o->evaluate) = true;
        if (!next || next[0] == '-')
            return BURST_OK;
    }
    if (!next)
        return usage(text, size, "%s requires a value: %s", row->name, row->value);
    ++*i;
    if (store(o, row, next))
        return BURST_OK;
    return usage(text, size, "%s is '%s', expected %s", row->name, next, expected(row));
}

/* Options that require another option; without it they are an error. */
typedef struct Need {
    const char *option, *needs;
    size_t at;
    const char *why;
} Need;
static const Need needs[] = {
#define NEEDS(option, field, needed, why) {option, needed, offsetof(Options, field), why}
    NEEDS("--evaluate-every", evaluation, "--evaluate FILE", ""),
    NEEDS("--evaluate-steps", evaluation, "--evaluate FILE", ""),
    NEEDS("--every", checkpoint, "--checkpoint DIR", ""),
    NEEDS("--keep", checkpoint, "--checkpoint DIR", ""),
    NEEDS("--fresh", checkpoint, "--checkpoint DIR", ""),
    NEEDS("--plan-masks", weights, "--weights DIR", ""),
    NEEDS("--plan-rope", weights, "--weights DIR", ""),
    NEEDS("--export-dtype", export_dir, "--export DIR", ""),
    NEEDS("--trace-steps", trace, "--trace FILE", ""),
#undef NEEDS
};

/* ---- files of tokens ---- */

/* The plan's files, as bytes or numbers if an option says so. */
static const BurstDataFile *read_as(const BurstDataFile *from, int files, int raw, BurstDataFile *to)
{
    if (!raw)
        return from;
    for (int i = 0; i < files; i++) {
        to[i] = from[i];
        to[i].raw = raw;
    }
    return to;
}

/* --bytes and --raw apply to the files on the command line or, without any, to the plan's data. */
static int find_files(Options *o, const BurstTrain *t, char *text, size_t size)
{
    const int raw = o->raw ? o->raw[0] - '0' : o->bytes;
    const bool named = o->data || o->evaluate_file;
    if (o->bytes && o->raw)
        return usage(text, size, "--bytes cannot be combined with --raw");
    if (raw && !named && !t->data_files)
        return usage(text, size, "%s requires --data FILE; without data, tokens are random",
                     o->bytes ? "--bytes" : "--raw");
    if (o->evaluate && !o->evaluate_file && !t->evaluate)
        return usage(text, size, "--evaluate requires a FILE: the plan has none to evaluate on");
    o->files = read_as(t->data, t->data_files, named ? 0 : raw, o->file_of);
    o->file_count = t->data_files;
    o->evaluation = t->evaluate;
    if (o->data) {
        o->file_of[0] = (BurstDataFile){o->data, raw, 1};
        o->files = o->file_of;
        o->file_count = 1;
    }
    if (o->evaluate_file) {
        o->evaluation_of = (BurstDataFile){o->evaluate_file, raw, 1};
        o->evaluation = &o->evaluation_of;
    }
    return BURST_OK;
}

static int check_needs(const Options *o, const bool seen[ROWS], char *text, size_t size)
{
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (seen[find_row(needs[i].option) - rows] && !*(const char *const *)((const char *)o + needs[i].at))
            return usage(text, size, "%s requires %s%s", needs[i].option, needs[i].needs, needs[i].why);
    if (o->quiet && o->progress)
        return usage(text, size, "--quiet cannot be combined with --progress");
    return BURST_OK;
}

int options_read(Options *o, const BurstPlan *p, int argc, char **argv, char *text, size_t size)
{
    const BurstTrain *t = &p->train;
    *o = (Options){.steps = t->steps,
                   .every = t->checkpoint_every,
                   .seed = t->seed,
                   .keep = 2,
                   .trace_steps = 1,
                   .timeout = default_timeout(),
                   .evaluate_every = t->evaluate_every,
                   .evaluate_steps = t->evaluate_steps,
                   .checkpoint = t->checkpoint,
                   .weights = t->weights,
                   .export_dir = t->export_dir};
    bool seen[ROWS] = {false};
    for (int i = 1; i < argc; i++)
        BURST_TRY(read_option(o, seen, argc, argv, &i, text, size));
    for (int i = 0; i < ROWS; i++)
        if (seen[i] && !is_of(&rows[i], p->lengths != NULL))
            return usage(text, size, "%s applies only to a program that %s; remove it", rows[i].name,
                         p->lengths ? "trains, and this one continues prompts"
                                    : "continues prompts (`infer`)");
    if (o->new_tokens > p->new_tokens)
        return usage(text, size, "--tokens is %lld, and the plan has memory for %lld",
                     (long long)o->new_tokens, (long long)p->new_tokens);
    BURST_TRY(find_files(o, t, text, size));
    BURST_TRY(check_needs(o, seen, text, size));
    if (o->transport && !p->on_gpu)
        return usage(text, size,
                     "--transport applies only to GPU programs, and this program runs on CPUs; remove it");
    if (o->share_gpus && !p->on_gpu)
        return usage(text, size,
                     "--share-gpus applies only to GPU programs, and this program runs on CPUs; remove it");
    if (o->resume && !o->resume_file && !o->checkpoint)
        return usage(text, size, "--resume requires a FILE or --checkpoint DIR");
    if (o->fresh && o->resume && !o->resume_file)
        return usage(
            text, size,
            "--fresh cannot be combined with --resume without a FILE; remove one, or use --resume FILE");
    if (o->resume && o->weights != t->weights)
        return usage(text, size,
                     "--resume cannot be combined with --weights; a checkpoint already contains weights");
    o->export_dtype = t->export_dtype;
    if (o->dtype)
        o->export_dtype = strcmp(o->dtype, "f32") == 0 ? BURST_F32 : BURST_BF16;
    return BURST_OK;
}

/* Options that may differ between ranks: paths that only one rank writes, time limits, and files whose
 * contents are compared. */
static bool may_differ(const Row *row)
{
    static const char *const names[] = {"--data",       "--evaluate", "--weights", "--metrics",
                                        "--timeout",    "--progress", "--quiet",   "--transport",
                                        "--share-gpus", "--help",     "--version"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(row->name, names[i]) == 0)
            return true;
    return false;
}

/* Both files of a Megatron-LM pair. */
static void identify_data(struct Identity *id, const char *name, const BurstDataFile *f)
{
    char bin[PATH_MAX], idx[PATH_MAX];
    const bool pair = !f->raw && source_pair(f->path, bin, idx);
    identity_add_file(id, name, pair ? bin : f->path);
    if (pair)
        identity_add_file(id, "index of the data file", idx);
    identity_add(id, "how the data file is read", "%d, share %.15g", f->raw, f->share);
}

void options_identify(struct Identity *id, const Options *o)
{
    for (const Row *row = rows; row < rows + ROWS; row++) {
        const void *at = (const char *)o + row->at;
        if (may_differ(row))
            continue;
        if (row->kind == COUNT || row->kind == NATURAL)
            identity_add(id, row->name, "%lld", (long long)*(const int64_t *)at);
        else if (row->kind == FLAG)
            identity_add(id, row->name, "%s", *(const bool *)at ? "given" : "not given");
        else
            identity_add(id, row->name, "%s",
                         *(const char *const *)at ? *(const char *const *)at : "not given");
    }
    identity_add(id, "--resume", "%s", o->resume ? "given" : "not given");
    if (o->resume_file)
        identity_add_file(id, "checkpoint to resume from", o->resume_file);
    for (int i = 0; i < o->file_count; i++)
        identify_data(id, "data file", &o->files[i]);
    if (!o->file_count)
        identity_add(id, "data file", "none: random tokens");
    identity_add(id, "--evaluate", "%s", o->evaluate ? "given" : "not given");
    if (o->evaluation)
        identify_data(id, "evaluation file", o->evaluation);
    if (o->weights)
        identity_add_folder(id, "weights directory", o->weights);
    else
        identity_add(id, "weights directory", "none");
}
