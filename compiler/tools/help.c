/* tools/help.c: a table of commands and a table of options, from which help and completion are printed. */
#include "tools/help.h"

#include "tools/forms.h"
#include "tools/output.h"
#include "tools/tools.h"

#include <string.h>

typedef struct Command {
    const char *name, *takes, *what;
} Command;
static const Command commands[] = {
    {"", "CLUSTER.topo MODEL.burst -o OUTPUT [options]",
     "Writes a verified training program for the cluster and the model."},
    {"explore", "MODEL.burst [CLUSTER.topo] -o PAGE.html [--schedule FILE]",
     "draws the model's masks, the tokens of each rank and the cluster's candidate layouts as one page for a "
     "browser."},
    {"fit", "CLUSTER.topo MODEL.burst [-o TABLE] [--schedule FILE]",
     "reports, for each memory-saving option, the longest sequence that fits and its predicted step time."},
    {"import", "FOLDER [-o MODEL.burst]",
     "writes the model that a Hugging Face folder's config.json describes, or lists everything that a model "
     "cannot express."},
    {"probe", "[cpus | gpus] [NODES [DEVICES]] [-o CLUSTER.topo]",
     "measures this machine's GPUs (with nvcc) or, where there are none, its processors, and writes them as "
     "a "
     "cluster."},
    {"bench", "MODEL.burst|MASK [--tokens N] [--heads N] [--kv_heads N] [--head_dim N] [--peers] [-o TABLE]",
     "measures attention under the masks of a model, or under one mask ('causal and q - k < 100'), on this "
     "machine; with --peers also with PyTorch's kernels."},
    {"help", "[COMMAND]", "prints this, or what one command takes."},
};

/* The argument of an option, for completion. */
typedef enum OptionValue { NOTHING, A_FILE, A_NUMBER, A_FORM, A_PASS } OptionValue;
/* of: the commands that take it, separated by blanks; "-": burstc without a command. */
typedef struct Option {
    const char *of, *name, *written;
    OptionValue value;
    const char *what;
} Option;
static const Option options[] = {
    {" - ", "-o", "-o FILE.c", A_FILE,
     "the program as C for CPUs; '-' is standard output, a device or FIFO is written through"},
    {" - ", "-o", "-o FILE.cu", A_FILE, "the program as CUDA"},
    {" - ", "-o", "-o FILE", A_FILE,
     "the same for the cluster's devices, compiled ($CC or cc, $NVCC or nvcc)"},
    {" - ", "-o", "-o FILE.so, FILE.a", A_FILE, "its attention alone, as a library for other programs"},
    {" - ", "--emit", "--emit=FORM", A_FORM,
     "instead: ast, mask, partition, schedule, step, plan, kernels, cost, memory, trace, c or cuda, or "
     "standard "
     "output; mask, partition, schedule, cost and memory to FILE.svg: as a picture"},
    {" - explore fit ", "--schedule", "--schedule FILE", A_FILE,
     "adds a .sched file; `schedule NAME;` in the layout chooses it"},
    {" - ", "--explain", "--explain", NOTHING, "prints every candidate layout and how much slower it is"},
    {" - ", "--print-build", "--print-build", NOTHING, "prints the command that compiles the program"},
    {" - ", "--dump-after", "--dump-after=PASS", A_PASS,
     "prints the step's list of operations after a pass; 'all': after each"},
    {" - ", "--verify-each", "--verify-each", NOTHING, "checks that list after each pass"},
    {" explore ", "-o", "-o PAGE.html", A_FILE, "the page; '-' is standard output"},
    {" fit bench ", "-o", "-o TABLE", A_FILE, "the table; '-', or without this option, is standard output"},
    {" import ", "-o", "-o MODEL.burst", A_FILE,
     "the model; '-', or without this option, is standard output"},
    {" probe ", "-o", "-o CLUSTER.topo", A_FILE,
     "the cluster; '-', or without this option, is standard output"},
    {" bench ", "--tokens", "--tokens N", A_NUMBER, "tokens of the sequence, such as 32Ki"},
    {" bench ", "--heads", "--heads N", A_NUMBER, "query heads"},
    {" bench ", "--kv_heads", "--kv_heads N", A_NUMBER, "key and value heads"},
    {" bench ", "--head_dim", "--head_dim N", A_NUMBER, "elements of a head"},
    {" bench ", "--peers", "--peers", NOTHING, "measures PyTorch's kernels beside ours"},
    {" - explore fit ", "-W", "-Wno-NAME", NOTHING,
     "turns off a warning; -Werror=NAME makes it an error, -Werror all of them:"},
};
static const struct {
    const char *name, *what;
} warnings[] = {
#define WARNING(id, name, what) {name, what},
    WARNINGS(WARNING)
#undef WARNING
};

/* Whether the option belongs to the command, or to "-". */
static bool takes(const Option *o, const char *command)
{
    const size_t n = strlen(command);
    for (const char *at = o->of; (at = strstr(at, command)); at++)
        if (at[-1] == ' ' && at[n] == ' ')
            return true;
    return false;
}

static bool takes_warnings(const Option *o) { return strcmp(o->name, "-W") == 0; }

static const Command *find_command(const char *name)
{
    for (int i = 1; name && i < countof(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

/* ---- help ---- */
enum { WIDTH = 110, INDENT = 23 };

/* Prints the text's words from `column` on, in lines of WIDTH; further lines begin at `indent`. */
static void put_words(const char *text, int column, int indent, Text *out)
{
    for (const char *word = text; *word;) {
        const int n = (int)strcspn(word, " ");
        const bool first = column <= indent;
        if (!first && column + 1 + n > WIDTH) {
            text_printf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            text_add(out, " ");
            column++;
        }
        text_printf(out, "%.*s", n, word);
        column += n;
        word += n + (word[n] == ' ');
    }
    text_add(out, "\n");
}

static void put_option(const Option *o, Text *out)
{
    text_printf(out, "  %-*s", INDENT - 2, o->written);
    put_words(o->what, INDENT, INDENT, out);
    for (int i = 0; takes_warnings(o) && i < countof(warnings); i++)
        text_printf(out, "    %s: %s\n", warnings[i].name, warnings[i].what);
}

static void put_options(const char *command, Text *out)
{
    for (int i = 0; i < countof(options); i++)
        if (takes(&options[i], command))
            put_option(&options[i], out);
}

static void put_usage(const Command *c, const char *before, Text *out)
{
    text_printf(out, "%sburstc %s%s%s\n", before, c->name, *c->name ? " " : "", c->takes);
}

static void put_all(Text *out)
{
    for (int i = 0; i < countof(commands); i++)
        put_usage(&commands[i], i ? "       " : "usage: ", out);
    text_printf(out, "\n%s\n", commands[0].what);
    put_options("-", out);
    text_add(out, "  --help, -h, --version\n");
    for (int i = 1; i < countof(commands); i++) {
        text_printf(out, "%s", commands[i].name);
        put_words(commands[i].what, (int)strlen(commands[i].name), 0, out);
    }
    text_add(out,
             "Exit status: 0, 1 after an error in the input, 2 after an error in the command, 3 after an "
             "internal error of burstc.\n");
}

static int print(Text *out)
{
    const int status = print_text(out->at);
    text_free(out);
    return status;
}

int help_print(const char *command)
{
    const Command *c = find_command(command);
    Text out = {0};
    if (command && !c) {
        fprintf(stderr, "burstc: error: unknown command '%s'; the commands are", command);
        for (int i = 1; i < countof(commands); i++)
            fprintf(stderr, "%s %s", i > 1 ? "," : "", commands[i].name);
        fputc('\n', stderr);
        return EXIT_USAGE;
    }
    if (!c) {
        put_all(&out);
        return print(&out);
    }
    put_usage(c, "usage: ", &out);
    text_printf(&out, "\n%s", c->name);
    put_words(c->what, (int)strlen(c->name), 0, &out);
    put_options(c->name, &out);
    return print(&out);
}

bool help_asked(int argc, char **argv, const char **command)
{
    const bool named = argc > 1 && strcmp(argv[1], "help") == 0;
    *command = named && argc > 2 ? argv[2] : NULL;
    for (int i = 1; i < argc && !named; i++) {
        if (strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0)
            continue;
        const Command *c = find_command(argv[1]);
        *command = c ? c->name : NULL;
        return true;
    }
    return named;
}

/* ---- the manual page ---- */

static void put_roff(const char *text, Text *out)
{
    for (const char *c = text; *c; c++)
        switch (*c) {
        case '-': text_add(out, "\\-"); break;
        case '\'': text_add(out, "\\(aq"); break;
        case '\\': text_add(out, "\\e"); break;
        default: text_add_n(out, c, 1);
        }
    text_add(out, "\n");
}

static void put_roff_option(const Option *o, Text *out)
{
    text_add(out, ".TP\n.B ");
    put_roff(o->written, out);
    put_roff(o->what, out);
    if (!takes_warnings(o))
        return;
    text_add(out, ".RS\n");
    for (int i = 0; i < countof(warnings); i++) {
        text_printf(out, ".TP\n.B %s\n", warnings[i].name);
        put_roff(warnings[i].what, out);
    }
    text_add(out, ".RE\n");
}

static void put_roff_command(const Command *c, Text *out)
{
    text_add(out, ".SS \"burstc ");
    text_printf(out, "%s%s%s\"\n", c->name, *c->name ? " " : "", c->takes);
    put_roff(c->what, out);
    for (int i = 0; i < countof(options); i++)
        if (takes(&options[i], *c->name ? c->name : "-"))
            put_roff_option(&options[i], out);
}

int help_manual(void)
{
    Text out = {0};
    text_add(&out, ".TH BURSTC 1 \"\" \"burstc " BURSTC_VERSION
                   "\"\n.SH NAME\nburstc \\- compiler of verified programs that "
                   "train Transformers on long sequences\n.SH SYNOPSIS\n.nf\n");
    for (int i = 0; i < countof(commands); i++)
        put_usage(&commands[i], "", &out);
    text_add(&out, ".fi\n.SH COMMANDS\n");
    for (int i = 0; i < countof(commands); i++)
        put_roff_command(&commands[i], &out);
    text_add(&out, ".SS \"every command\"\n.TP\n.B \\-\\-help, \\-h\nprints what the command takes\n"
                   ".TP\n.B \\-\\-version\nprints the version of burstc\n");
    text_add(
        &out,
        ".SH \"EXIT STATUS\"\n0, 1 after an error in the input, 2 after an error in the command, 3 after an "
        "internal error of burstc.\n.SH \"SEE ALSO\"\n"
        ".BR burst (5),\nthe languages of clusters, models and schedules;\n"
        ".BR burst\\-program (1),\nthe options of programs that burstc writes;\n"
        ".BR burst (3),\nattention as a library;\n"
        ".BR burst\\-errors (7),\nthe commonest errors\n");
    return print(&out);
}

/* ---- completion ---- */

static void put_forms(Text *out)
{
    text_add(out, "ast\nc\ncuda\n");
    for (int i = 0; form_name(i); i++)
        text_printf(out, "%s\n", form_name(i));
}

static void put_passes(Text *out)
{
    text_add(out, "all\n");
    for (int i = 0; step_pass_name(i); i++)
        text_printf(out, "%s\n", step_pass_name(i));
}

static void put_warnings(Text *out)
{
    text_add(out, "-Werror\n");
    for (int i = 0; i < countof(warnings); i++)
        text_printf(out, "-Wno-%s\n-Werror=%s\n", warnings[i].name, warnings[i].name);
}

static void put_commands(Text *out)
{
    for (int i = 1; i < countof(commands); i++)
        text_printf(out, "%s\n", commands[i].name);
}

/* Names of a command's options, each once. */
static void put_names(const char *command, Text *out)
{
    for (int i = 0; i < countof(options); i++) {
        bool again = !takes(&options[i], command);
        for (int j = 0; j < i; j++)
            again |= takes(&options[j], command) && strcmp(options[i].name, options[j].name) == 0;
        if (!again)
            text_printf(out, "%s\n", options[i].name);
    }
    text_add(out, "--help\n");
}

static void put_values(OptionValue v, Text *out)
{
    switch (v) {
    case A_FORM: put_forms(out); break;
    case A_PASS: put_passes(out); break;
    case A_FILE: text_add(out, ":*\n"); break;
    case A_NUMBER:
    case NOTHING: break;
    }
}

char *help_options(Arena *a, const char *command)
{
    Text t = {0};
    put_names(command, &t);
    return text_keep(a, &t);
}

char *help_forms(Arena *a)
{
    Text t = {0};
    put_forms(&t);
    return text_keep(a, &t);
}

char *help_passes(Arena *a)
{
    Text t = {0};
    put_passes(&t);
    return text_keep(a, &t);
}

static const Option *find_option(const char *command, const char *name)
{
    for (int i = 0; i < countof(options); i++)
        if (takes(&options[i], command) && strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

int help_complete(int argc, char **argv)
{
    const char *last = argc ? argv[argc - 1] : "", *before = argc > 1 ? argv[argc - 2] : "";
    if (strcmp(last, "=") == 0) /* bash passes it as a separate word */
        last = "";
    else if (strcmp(before, "=") == 0)
        before = argc > 2 ? argv[argc - 3] : "";
    const Command *c = argc > 1 ? find_command(argv[0]) : NULL;
    const char *command = c ? c->name : "-";
    /* zsh passes it in one word */
    const char *value = strncmp(last, "--", 2) == 0 ? strchr(last, '=') : NULL;
    char name[32] = "";
    if (value && value - last < (int)sizeof name)
        memcpy(name, last, (size_t)(value - last));
    const Option *option = find_option(command, value ? name : before);
    Text out = {0};
    text_add(&out, "");
    if (option && option->value != NOTHING)
        put_values(option->value, &out);
    else if (strncmp(last, "-W", 2) == 0 && find_option(command, "-W"))
        put_warnings(&out);
    else if (*last == '-')
        put_names(command, &out);
    else if (argc < 2 || (c && strcmp(c->name, "help") == 0))
        put_commands(&out);
    if (!option && *last != '-' && !(c && strcmp(c->name, "help") == 0))
        text_add(&out, c && strcmp(c->name, "import") == 0 ? ":/\n" : ":*.topo\n:*.burst\n");
    return print(&out);
}
