/* burst_tokens.c: writes a token file from decimal integers separated by space, from raw integers (--raw),
 * from bytes (--bytes), or with documents of drawn lengths (--draw). The output is replaced atomically.
 *
 * The format: "BURSTTOK", version 1 (uint32), bytes per token 2 or 4 (uint32), number of tokens (uint64),
 * then the tokens; all little-endian. */
#include "base/escape.h"
#include "base/nearest.h"
#include "base/output_file.h"
#include "data/burst_tokens_draw.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORD = 64, USAGE = 2, LIST_MOST = 256 << 20 /* bytes of a file of lengths */ };
typedef enum Form { DECIMAL, BYTES, RAW } Form;

typedef struct Job {
    const char *input, *output;
    Form form;
    int raw;    /* bytes per raw token */
    int width;  /* bytes per written token */
    uint64_t count;
    char word[WORD]; /* the last decimal word */
    bool cut;        /* it has more characters */
    const char *draw, *seed, *documents, *vocabulary; /* as given; NULL: not given */
    Drawing drawing;
    Lengths read; /* from a file of lengths */
} Job;

static void help(FILE *out)
{
    fprintf(
        out,
        "usage: burst-tokens [--bytes | --raw 2|4] [--width 2|4] INPUT OUTPUT\n"
        "       burst-tokens --draw SET --documents N [--seed S] [--lengths | --vocab V --width 2|4] OUTPUT\n"
        "Writes a token file. INPUT ('-': standard input) holds decimal integers separated by white space,\n"
        "  --bytes        bytes, one token each, or\n"
        "  --raw 2|4      little-endian integers of 2 or 4 bytes.\n"
        "  --width 2|4    bytes per token in OUTPUT (default 4)\n"
        "  --draw SET     documents of random tokens, with lengths of set A, B, C, D or tail, or of a file\n"
        "                 with a length a line, and after it how many documents have it\n"
        "  --documents N  how many\n"
        "  --seed S       other numbers give other documents (default 1)\n"
        "  --vocab V      tokens are below V (default 256)\n"
        "  --lengths      OUTPUT is a text with the length of each document instead\n"
        "  --help, -h     prints this\n");
}

static int usage(const char *wrong, const char *what)
{
    print_shown(stderr, "burst-tokens: %s%s", wrong, what);
    fputs("\nburst-tokens --help lists the options\n", stderr);
    return USAGE;
}

__attribute__((format(printf, 1, 2))) static int failed(const char *format, ...)
{
    char text[4096 + 256];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    escape_shown(text, sizeof text);
    fprintf(stderr, "burst-tokens: %s\n", text);
    return 1;
}

static int cannot(const char *what, const char *path, int reason)
{
    return failed("cannot %s '%s': %s", what, path, strerror(reason));
}

/* ---- reading ---- */

/* Returns NULL with errno; EINVAL: a device, which may be endless. */
static FILE *open_input(const char *path)
{
    struct stat st;
    FILE *in = fopen(path, "rb");
    if (!in || fstat(fileno(in), &st) != 0 || !(S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)) ||
        isatty(fileno(in)))
        return in;
    fclose(in);
    errno = EINVAL;
    return NULL;
}

typedef enum Next { END, TOKEN, WRONG } Next;

/* Reads the characters up to the next space, at most WORD. Returns false at the end. */
static bool next_word(FILE *in, Job *j)
{
    size_t n = 0;
    int c = getc(in);
    while (c != EOF && isspace(c))
        c = getc(in);
    const bool found = c != EOF;
    for (; c != EOF && !isspace(c) && n < WORD - 1; c = getc(in))
        j->word[n++] = c ? (char)c : '?'; /* a zero byte would end the text */
    j->cut = c != EOF && !isspace(c);
    j->word[n] = 0;
    return found;
}

static Next next_decimal(FILE *in, Job *j, uint64_t *token)
{
    if (!next_word(in, j))
        return END;
    if (j->cut || strspn(j->word, "0123456789") != strlen(j->word)) {
        failed("%s: token %" PRIu64 " is '%s%s', expected a whole number in decimal", j->input, j->count,
               j->word, j->cut ? "..." : "");
        return WRONG;
    }
    errno = 0;
    *token = strtoull(j->word, NULL, 10); /* UINT64_MAX on overflow, which is too wide as well */
    return TOKEN;
}

static Next next_raw(FILE *in, Job *j, int bytes, uint64_t *token)
{
    unsigned char raw[4];
    const size_t n = fread(raw, 1, (size_t)bytes, in);
    *token = 0;
    for (int i = (int)n; i-- > 0;)
        *token = *token << 8 | raw[i];
    if (n == 0 || ferror(in))
        return END;
    if (n == (size_t)bytes)
        return TOKEN;
    failed("%s ends within token %" PRIu64 ": its size is not a multiple of %d bytes", j->input, j->count,
           bytes);
    return WRONG;
}

static Next next_token(FILE *in, Job *j, uint64_t *token)
{
    if (j->form == DECIMAL)
        return next_decimal(in, j, token);
    return next_raw(in, j, j->form == RAW ? j->raw : 1, token);
}

static int too_wide(const Job *j, uint64_t token)
{
    char number[WORD];
    snprintf(number, sizeof number, "%" PRIu64, token);
    return failed("%s: token %" PRIu64 " is %s, which does not fit in %d bytes", j->input, j->count,
                  j->form == DECIMAL ? j->word : number, j->width);
}

/* ---- writing ---- */

static void put(FILE *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        putc((int)(value >> (8 * i) & 0xff), out);
}

static void put_header(FILE *out, const Job *j)
{
    fwrite("BURSTTOK", 1, 8, out);
    put(out, 1, 4);
    put(out, (uint64_t)j->width, 4);
    put(out, j->count, 8);
}

/* Copies and counts the tokens. */
static int copy_tokens(FILE *in, FILE *out, Job *j)
{
    uint64_t token;
    Next next;
    for (; (next = next_token(in, j, &token)) == TOKEN; j->count++) {
        if (token >> (8 * j->width))
            return too_wide(j, token);
        put(out, token, j->width);
    }
    if (ferror(in))
        return cannot("read", j->input, errno);
    return next == WRONG;
}

static int copy_file(FILE *from, FILE *to)
{
    char block[1 << 16];
    rewind(from);
    for (size_t n; (n = fread(block, 1, sizeof block, from)) > 0;)
        fwrite(block, 1, n, to);
    return ferror(from) ? errno : 0;
}

/* Uses a temporary file: the header comes first, and a stream cannot seek back. */
static int stream(FILE *in, FILE *out, Job *j)
{
    FILE *tokens = tmpfile();
    if (!tokens)
        return failed("cannot create a temporary file: %s", strerror(errno));
    int status = copy_tokens(in, tokens, j), reason = status ? 0 : output_flush(tokens);
    if (status == 0 && reason == 0) {
        put_header(out, j);
        reason = copy_file(tokens, out);
    }
    fclose(tokens);
    return reason ? cannot("write", j->output, reason) : status;
}

static int fill(FILE *in, FILE *out, Job *j)
{
    put_header(out, j);
    int status = copy_tokens(in, out, j), reason = status ? 0 : output_flush(out);
    if (status == 0 && reason == 0 && fseek(out, 0, SEEK_SET) != 0)
        reason = errno;
    if (reason)
        return cannot("write", j->output, reason);
    put_header(out, j);
    return status;
}

/* ---- files ---- */

/* Under any name. A device may be both. */
static int check_input(const struct stat *from, const Job *j)
{
    struct stat to;
    if (stat(j->output, &to) != 0 || !S_ISREG(to.st_mode) || from->st_dev != to.st_dev ||
        from->st_ino != to.st_ino)
        return 0;
    return failed("cannot write '%s': it is the input", j->output);
}

static int convert(FILE *in, Job *j)
{
    OutputFile out;
    struct stat from;
    if (fstat(fileno(in), &from) == 0 && check_input(&from, j) != 0)
        return 1;
    if (output_open(&out, j->output) != 0)
        return failed("cannot write '%s': %s", j->output, output_reason(errno));
    const int status = out.part ? fill(in, out.file, j) : stream(in, out.file, j);
    if (output_close(&out, status == 0) != 0)
        return cannot("write", j->output, errno);
    return status;
}

/* ---- drawn documents ---- */

static int write_drawn(const Job *j)
{
    OutputFile out;
    struct stat from;
    if (stat(j->draw, &from) == 0 && check_input(&from, j) != 0) /* a file of lengths */
        return 1;
    if (output_open(&out, j->output) != 0)
        return failed("cannot write '%s': %s", j->output, output_reason(errno));
    drawing_write(&j->drawing, out.file);
    const int reason = output_flush(out.file);
    if (output_close(&out, reason == 0) != 0 || reason)
        return cannot("write", j->output, reason ? reason : errno);
    return 0;
}

/* Reads the whole file. Returns NULL with errno. */
static char *read_text(const char *path, size_t *bytes)
{
    FILE *in = open_input(path);
    char *text = NULL;
    size_t room = 0;
    *bytes = 0;
    while (in && *bytes <= LIST_MOST) {
        if (*bytes == room) {
            char *more = realloc(text, room = 2 * room + (1 << 16));
            if (!more)
                break;
            text = more;
        }
        const size_t n = fread(text + *bytes, 1, room - *bytes, in);
        *bytes += n;
        if (n == 0)
            break;
    }
    const bool whole = in && feof(in) && !ferror(in);
    const int reason = *bytes > LIST_MOST ? EFBIG : errno;
    if (in)
        fclose(in);
    if (!whole)
        free(text);
    errno = reason;
    return whole ? text : NULL;
}

static int read_lengths(Job *j)
{
    size_t bytes;
    int64_t line;
    char why[LENGTHS_WHY];
    char *text = read_text(j->draw, &bytes);
    if (!text)
        return failed("cannot read '%s': %s; --draw takes a file of lengths, or A, B, C, D or tail", j->draw,
                      errno == EINVAL ? "it is a device" : strerror(errno));
    const bool read = !lengths_read(&j->read, text, bytes, &line, why);
    free(text);
    if (!read)
        return failed("%s:%" PRId64 ": %s", j->draw, line, why);
    j->drawing.lengths = &j->read;
    return 0;
}

static int draw(Job *j)
{
    j->drawing.width = j->width;
    j->drawing.lengths = lengths_named(j->draw);
    int status = j->drawing.lengths ? 0 : read_lengths(j);
    if (status == 0)
        status = write_drawn(j);
    lengths_free(&j->read);
    return status;
}

/* ---- options ---- */

static int once(const char *name, const char *value, const char **to)
{
    if (*to)
        return usage(name, " was given twice");
    *to = value;
    return value ? 0 : usage(name, " requires a value");
}

/* Reads an option's whole number; value NULL: keeps the default. */
static int read_count(const char *name, const char *value, int64_t least, int64_t most, int64_t *to)
{
    char *end = NULL, text[WORD];
    if (!value)
        return 0;
    errno = 0;
    const long long n = strtoll(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end || errno || n < least || n > most) {
        snprintf(text, sizeof text, " must be from %" PRId64 " to %" PRId64, least, most);
        return usage(name, text);
    }
    *to = n;
    return 0;
}

/* Options that cannot be combined with --draw, or that require it. */
static int check_drawing(Job *j)
{
    const bool draws = j->draw != NULL;
    int64_t seed = 1;
    j->drawing.vocabulary = 256;
    if (!draws && (j->seed || j->documents || j->vocabulary || j->drawing.listing))
        return usage("--documents, --seed, --vocab and --lengths require --draw", "");
    if (draws && !j->documents)
        return usage("--draw requires --documents", "");
    if (draws && (j->raw || j->form == BYTES))
        return usage("--draw cannot be combined with ", j->raw ? "--raw" : "--bytes");
    if (j->drawing.listing && (j->vocabulary || j->width))
        return usage("--lengths cannot be combined with ", j->width ? "--width" : "--vocab");
    int status = read_count("--documents", j->documents, 1, INT64_C(1) << 30, &j->drawing.documents);
    if (status == 0)
        status = read_count("--seed", j->seed, 0, INT64_MAX, &seed);
    if (status == 0)
        status = read_count("--vocab", j->vocabulary, 1, j->width == 2 ? 65536 : INT64_C(1) << 31,
                            &j->drawing.vocabulary);
    j->drawing.seed = (uint64_t)seed;
    return status;
}

static int read_width(const char *name, const char *value, int *to)
{
    if (*to)
        return usage(name, " was given twice");
    if (!value || (strcmp(value, "2") != 0 && strcmp(value, "4") != 0))
        return usage(name, " must be 2 or 4");
    *to = value[0] - '0';
    return 0;
}

static int unknown_option(const char *option)
{
    static const char *const names[] = {"--bytes",     "--raw",  "--width", "--draw",
                                        "--documents", "--seed", "--vocab", "--lengths"};
    const char *near = nearest_name(option, names, (int)(sizeof names / sizeof *names));
    char text[4096];
    snprintf(text, sizeof text, "%s%s%s%s", option, near ? "; did you mean " : "", near ? near : "",
             near ? "?" : "");
    return usage("unknown option ", text);
}

/* The option at *i, and its value. */
static int read_option(char **argv, int *i, Job *j)
{
    const char *name = argv[*i], *value = argv[*i + 1]; /* NULL after the last */
    if (strcmp(name, "--bytes") == 0) {
        j->form = BYTES;
        return 0;
    }
    if (strcmp(name, "--lengths") == 0) {
        j->drawing.listing = true;
        return 0;
    }
    *i += value != NULL;
    if (strcmp(name, "--raw") == 0)
        return read_width(name, value, &j->raw);
    if (strcmp(name, "--width") == 0)
        return read_width(name, value, &j->width);
    if (strcmp(name, "--draw") == 0)
        return once(name, value, &j->draw);
    if (strcmp(name, "--documents") == 0)
        return once(name, value, &j->documents);
    if (strcmp(name, "--seed") == 0)
        return once(name, value, &j->seed);
    if (strcmp(name, "--vocab") == 0)
        return once(name, value, &j->vocabulary);
    return unknown_option(name);
}

static int read_options(int argc, char **argv, Job *j)
{
    const char *operand[2] = {NULL, NULL};
    int status = 0, operands = 0;
    for (int i = 1; i < argc && status == 0; i++)
        if (strncmp(argv[i], "--", 2) == 0)
            status = read_option(argv, &i, j);
        else if (operands++ < 2)
            operand[operands - 1] = argv[i];
    if (status == 0)
        status = check_drawing(j);
    if (status != 0)
        return status;
    if (operands != (j->draw ? 1 : 2))
        return usage(j->draw ? "expected an output" : "expected an input and an output", "");
    if (j->raw && j->form == BYTES)
        return usage("--bytes cannot be combined with --raw", "");
    j->form = j->raw ? RAW : j->form;
    j->width = j->width ? j->width : 4;
    j->input = operand[0];
    j->output = operand[operands - 1];
    return 0;
}

int main(int argc, char **argv)
{
    Job j = {0};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help(stdout);
            return fflush(stdout) == 0 ? 0 : 1;
        }
    int status = read_options(argc, argv, &j);
    if (status != 0)
        return status;
    if (j.draw)
        return draw(&j);
    FILE *in = strcmp(j.input, "-") == 0 ? stdin : open_input(j.input);
    if (!in)
        return errno == EINVAL ? failed("cannot read '%s': it is a device", j.input)
                               : cannot("read", j.input, errno);
    status = convert(in, &j);
    if (in != stdin)
        fclose(in);
    return status;
}
