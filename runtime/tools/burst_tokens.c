/* burst_tokens.c: writes a token file, from integers in text or from the bytes of a file.
 *
 *     burst-tokens [--bytes] [--width 2|4] INPUT OUTPUT        (- is standard input)
 *
 * The file: "BURSTTOK", version 1 and bytes a token (uint32 each), number of tokens (uint64), then the tokens; all
 * little-endian. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Job {
    const char *input, *output;
    bool bytes;
    int width; /* bytes a token */
    uint64_t count;
} Job;

static int usage(void)
{
    fprintf(stderr, "usage: burst-tokens [--bytes] [--width 2|4] INPUT OUTPUT\n"
                    "Writes a token file from decimal integers separated by space (or with --bytes from bytes).\n");
    return 2;
}

static bool put(FILE *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        if (putc((int)(value >> (8 * i) & 0xff), out) == EOF)
            return false;
    return true;
}

static bool put_header(FILE *out, const Job *j)
{
    return fwrite("BURSTTOK", 1, 8, out) == 8 && put(out, 1, 4) && put(out, (uint64_t)j->width, 4) && put(out, j->count, 8);
}

/* 1: a token, 0: the end, -1: something else. */
static int next_token(FILE *in, bool bytes, uint64_t *token)
{
    if (!bytes) {
        int read = fscanf(in, "%" SCNu64, token);
        return read == 1 ? 1 : feof(in) ? 0 : -1;
    }
    int byte = getc(in);
    *token = (uint64_t)byte;
    return byte != EOF;
}

static int copy(FILE *in, FILE *out, Job *j)
{
    uint64_t token;
    int more;
    if (!put_header(out, j))
        return -1;
    for (; (more = next_token(in, j->bytes, &token)) > 0; j->count++) {
        if (token >> (8 * j->width)) {
            fprintf(stderr, "burst-tokens: token %" PRIu64 " is %" PRIu64 ", more than %d bytes hold\n", j->count, token, j->width);
            return 1;
        }
        if (!put(out, token, j->width))
            return -1;
    }
    if (more < 0) {
        fprintf(stderr, "burst-tokens: %s: no number after token %" PRIu64 "\n", j->input, j->count);
        return 1;
    }
    return ferror(in) || fseek(out, 0, SEEK_SET) != 0 || !put_header(out, j) ? -1 : 0;
}

static int convert(Job *j)
{
    FILE *in = strcmp(j->input, "-") == 0 ? stdin : fopen(j->input, "rb");
    FILE *out = in ? fopen(j->output, "wb") : NULL;
    int status = in && out ? copy(in, out, j) : -1;
    if (out && fclose(out) != 0 && status == 0)
        status = -1;
    if (status < 0)
        fprintf(stderr, "burst-tokens: %s: %s\n", in ? j->output : j->input, strerror(errno));
    if (out && status != 0)
        unlink(j->output);
    if (in && in != stdin)
        fclose(in);
    return status ? 1 : 0;
}

int main(int argc, char **argv)
{
    Job j = {.width = 4};
    int i = 1;
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        if (strcmp(argv[i], "--bytes") == 0)
            j.bytes = true;
        else if (strcmp(argv[i], "--width") == 0 && i + 1 < argc)
            j.width = atoi(argv[++i]);
        else
            return usage();
    }
    if (argc - i != 2 || (j.width != 2 && j.width != 4))
        return usage();
    j.input = argv[i];
    j.output = argv[i + 1];
    return convert(&j);
}
