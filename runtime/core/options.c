/* options.c: the command line of an emitted program, from one table. */
#include "core/options.h"

#include "core/escape.h"
#include "host/launch/identity.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* COUNT: at least 1; NATURAL: at least 0; CHOICE: a|b|c */
enum { COUNT, NATURAL, SECONDS, PATH, FLAG, RESUME, CHOICE };

#define OPTIONS(X)                                                                                                      \
    X("--steps", NATURAL, "N", steps, "end after step N (the learning rate's schedule stays the plan's); 0: no training") \
    X("--data", PATH, "FILE", data, "tokens to train on, a file of burst-tokens; any file where the vocabulary has up to 256") \
    X("--bytes", FLAG, "", bytes, "the data are any file, one token a byte") \
    X("--metrics", PATH, "FILE", metrics, "write one line of JSON a step") \
    X("--checkpoint", PATH, "DIR", checkpoint, "write checkpoints into this directory") \
    X("--every", NATURAL, "N", every, "a checkpoint every N steps (0: only after the last)") \
    X("--keep", COUNT, "N", keep, "keep the newest N checkpoints (2)") \
    X("--resume", RESUME, "[FILE]", resume_file, "go on from the newest whole checkpoint, or from FILE") \
    X("--fresh", FLAG, "", fresh, "move checkpoints beyond where this run begins into a folder of their own") \
    X("--weights", PATH, "DIR", weights, "start from the weights of this Hugging Face folder") \
    X("--plan-masks", FLAG, "", plan_masks, "train with the plan's masks where that folder's config.json has others") \
    X("--export", PATH, "DIR", export_dir, "write the weights as a Hugging Face folder after the last step") \
    X("--export-dtype", CHOICE, "bf16|f32", dtype, "of the exported weights (bf16)") \
    X("--seed", NATURAL, "N", seed, "of the first weights and of the order of the data") \
    X("--timeout", SECONDS, "S", timeout, "give up when a rank waits longer (300; or BURST_TIMEOUT)") \
    X("--transport", CHOICE, "auto|nccl|peer", transport, "from GPU to GPU of one host (auto; or BURST_TRANSPORT)") \
    X("--share-gpus", FLAG, "", share_gpus, "run on fewer GPUs than ranks, slowly, to check a plan (or BURST_SHARE_GPUS=1)") \
    X("--progress", COUNT, "N", progress, "a line every N steps (1; 20 lines in all where the output is no terminal)") \
    X("--trace", PATH, "FILE", trace, "write a timeline of the second step (for Perfetto), and print a table of its parts") \
    X("--trace-steps", COUNT, "N", trace_steps, "trace N steps, from the second on (1)") \
    X("--quiet", FLAG, "", quiet, "no progress lines") \
    X("--help", FLAG, "", help, "this text") \
    X("--version", FLAG, "", version, "what this program was made from")

typedef struct Row { const char *name; int kind; const char *value; size_t at; const char *help; } Row;
static const Row rows[] = {
#define ROW(name, kind, value, field, help) {name, kind, value, offsetof(Options, field), help},
    OPTIONS(ROW)
#undef ROW
};
enum { ROWS = sizeof rows / sizeof *rows };

void options_help(const BurstPlan *p, const char *program)
{
    print_shown(stdout, "%s: trains what %s describes", program, p->source);
    printf(", on %d rank%s. It starts them itself, or takes its place under mpirun -n %d,\n"
           "srun -n %d, or torchrun --no-python.\n\n", p->world, plural(p->world), p->world, p->world);
    for (int i = 0; i < ROWS; i++)
        printf("  %-14s %-14s %s\n", rows[i].name, rows[i].value, rows[i].help);
    printf("\nExit codes: 0 done, 1 failed (the reason is on stderr), 2 usage, 3 no device.\n");
}

static const Row *find_row(const char *name)
{
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

/* Reads one option at argv[*i]; leaves *i at its last word. */
static int read_option(Options *o, bool seen[ROWS], int argc, char **argv, int *i, char *text, size_t size)
{
    const Row *row = find_row(argv[*i]);
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    if (!row)
        return usage(text, size, "unknown option '%s'; --help lists the options", argv[*i]);
    const bool again = seen[row - rows];
    seen[row - rows] = true;
    if (row->kind == FLAG) {
        *(bool *)((char *)o + row->at) = true;
        return BURST_OK;
    }
    if (again)
        return usage(text, size, "%s is given twice", row->name);
    if (row->kind == RESUME) {
        o->resume = true;
        if (!next || next[0] == '-')
            return BURST_OK;
    }
    if (!next)
        return usage(text, size, "%s needs a value: %s", row->name, row->value);
    ++*i;
    if (store(o, row, next))
        return BURST_OK;
    const bool listed = row->kind == CHOICE;
    return usage(text, size, "%s cannot be '%s'%s%s", row->name, next, listed ? ": " : "",
                 listed ? row->value : "");
}

/* An option that has nothing to act on is an error: what it acts on is missing. */
static const struct { const char *option, *needs; size_t at; const char *why; } needs[] = {
#define NEEDS(option, field, needed, why) {option, needed, offsetof(Options, field), why}
    NEEDS("--bytes", data, "--data FILE", ": without any, tokens are random"),
    NEEDS("--every", checkpoint, "--checkpoint DIR", ""),
    NEEDS("--keep", checkpoint, "--checkpoint DIR", ""),
    NEEDS("--fresh", checkpoint, "--checkpoint DIR", ""),
    NEEDS("--plan-masks", weights, "--weights DIR", ""),
    NEEDS("--export-dtype", export_dir, "--export DIR", ""),
    NEEDS("--trace-steps", trace, "--trace FILE", ""),
#undef NEEDS
};

static int check_needs(const Options *o, const bool seen[ROWS], char *text, size_t size)
{
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (seen[find_row(needs[i].option) - rows] && !*(const char *const *)((const char *)o + needs[i].at))
            return usage(text, size, "%s needs %s%s", needs[i].option, needs[i].needs, needs[i].why);
    if (o->quiet && o->progress)
        return usage(text, size,
                     "--quiet prints no progress lines, and --progress says how many: leave one out");
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
                   .data = t->data,
                   .checkpoint = t->checkpoint,
                   .weights = t->weights,
                   .export_dir = t->export_dir};
    bool seen[ROWS] = {false};
    for (int i = 1; i < argc; i++)
        BURST_TRY(read_option(o, seen, argc, argv, &i, text, size));
    BURST_TRY(check_needs(o, seen, text, size));
    if (o->data == t->data)
        o->bytes = o->bytes || t->bytes; /* of the plan's file */
    if (o->transport && !p->on_gpu)
        return usage(
            text, size,
            "--transport says how data go between GPUs, and this program computes on CPUs: leave it out");
    if (o->share_gpus && !p->on_gpu)
        return usage(text, size,
                     "--share-gpus lets ranks share GPUs, and this program computes on CPUs: leave it out");
    if (o->resume && !o->resume_file && !o->checkpoint)
        return usage(text, size, "--resume needs a FILE, or --checkpoint DIR");
    if (o->fresh && o->resume && !o->resume_file)
        return usage(
            text, size,
            "--fresh starts over, and --resume goes on from the newest checkpoint: leave one out, or name a "
            "FILE to go on from");
    if (o->resume && o->weights != t->weights)
        return usage(text, size,
                     "--resume and --weights contradict each other: a checkpoint has weights of its own");
    o->export_dtype = !o->dtype ? t->export_dtype : strcmp(o->dtype, "f32") == 0 ? BURST_F32 : BURST_BF16;
    return BURST_OK;
}

/* What ranks may have of their own: what only one of them writes, when it gives up, and files of which the
 * content counts. */
static bool may_differ(const Row *row)
{
    static const char *const names[] = {"--data",  "--weights",   "--metrics",    "--timeout", "--progress",
                                        "--quiet", "--transport", "--share-gpus", "--help",    "--version"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(row->name, names[i]) == 0)
            return true;
    return false;
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
        identity_add_file(id, "checkpoint to go on from", o->resume_file);
    if (o->data)
        identity_add_file(id, "data file", o->data);
    else
        identity_add(id, "data file", "none: random tokens");
    if (o->weights)
        identity_add_folder(id, "folder of weights", o->weights);
    else
        identity_add(id, "folder of weights", "none");
}
