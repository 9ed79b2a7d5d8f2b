/* infer.c: see infer.h. Rank 0 reads and prints; the others get a prompt's numbers from it. */
#include "app/infer.h"

#include "core/context.h"
#include "core/signals.h"
#include "files/files.h"
#include "files/json.h"
#include "files/output.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The limit of burst_allreduce. */
enum { AT_ONCE = 64 };

typedef struct Prompt {
    int64_t tokens, most; /* of it; most that continue it */
    int64_t stops;
    bool logits, end; /* end: there are no more prompts */
    int32_t *token, *stop; /* [tokens], [stops] */
} Prompt;

typedef struct Reader {
    FILE *file; /* of rank 0; NULL: others */
    const char *name;
    char *line;
    size_t room;
    int64_t lines;
} Reader;

static void prompt_free(Prompt *x)
{
    free(x->token);
    free(x->stop);
    *x = (Prompt){0};
}

/* ---- reading a line ---- */

static int wrong(BurstCtx *c, const Reader *r, const char *what)
{
    return burst_fail(c, BURST_E_IO, "line %lld of '%s' %s", (long long)r->lines, r->name, what);
}

/* An array of tokens of the vocabulary. */
static int read_tokens(BurstCtx *c, const BurstPlan *p, const Reader *r, const json_t *array,
                       const char *name, int32_t **out, int64_t *n)
{
    char text[128];
    *n = (int64_t)json_array_size(array);
    *out = calloc((size_t)*n + 1, sizeof **out);
    if (!*out)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for a prompt");
    for (int64_t i = 0; i < *n; i++) {
        const json_t *x = json_array_get(array, (size_t)i);
        const json_int_t id = json_is_integer(x) ? json_integer_value(x) : -1;
        if (id < 0 || id >= p->vocab) {
            snprintf(text, sizeof text, "has a number in \"%s\" that is no token: they are 0 to %d", name,
                     p->vocab - 1);
            return wrong(c, r, text);
        }
        (*out)[i] = (int32_t)id;
    }
    return BURST_OK;
}

static int check_lengths(BurstCtx *c, const BurstPlan *p, const Options *o, const Reader *r, const Prompt *x)
{
    char text[160];
    const int64_t longest = p->lengths[p->length_count - 1],
                  most = o->new_tokens ? o->new_tokens : p->new_tokens;
    if (x->tokens < 1)
        return wrong(c, r, "has no token in \"prompt\"");
    if (x->tokens > longest)
        snprintf(text, sizeof text, "has a prompt of %lld tokens; the plan's longest has %lld",
                 (long long)x->tokens, (long long)longest);
    else if (x->most < 1 || x->most > most)
        snprintf(text, sizeof text, "has %lld in \"tokens\"; it must be from 1 to %lld", (long long)x->most,
                 (long long)most);
    else
        return BURST_OK;
    return wrong(c, r, text);
}

static int read_object(BurstCtx *c, const BurstPlan *p, const Options *o, const Reader *r, json_t *line,
                       Prompt *x)
{
    const json_t *prompt = json_object_get(line, "prompt"), *most = json_object_get(line, "tokens"),
                 *stop = json_object_get(line, "stop"), *logits = json_object_get(line, "logits");
    static const char *const known[] = {"prompt", "tokens", "stop", "logits"};
    const char *key;
    json_t *value;
    json_object_foreach(line, key, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known = is_known || strcmp(key, known[i]) == 0;
        if (!is_known)
            return wrong(c, r, "has another member than \"prompt\", \"tokens\", \"stop\" and \"logits\"");
    }
    if (!json_is_array(prompt) || (stop && !json_is_array(stop)) || (most && !json_is_integer(most)) ||
        (logits && !json_is_boolean(logits)))
        return wrong(c, r, "is not {\"prompt\": [numbers of tokens], …} (docs/runtime.md)");
    x->most = o->new_tokens ? o->new_tokens : p->new_tokens;
    if (most)
        x->most = json_integer_value(most);
    x->logits = json_is_true(logits);
    BURST_TRY(read_tokens(c, p, r, prompt, "prompt", &x->token, &x->tokens));
    if (stop)
        BURST_TRY(read_tokens(c, p, r, stop, "stop", &x->stop, &x->stops));
    return check_lengths(c, p, o, r, x);
}

/* The next line that is not empty. */
static int read_line(BurstCtx *c, const BurstPlan *p, const Options *o, Reader *r, Prompt *x)
{
    do {
        errno = 0;
        if (getline(&r->line, &r->room, r->file) < 0) {
            x->end = true;
            return errno ? burst_fail(c, BURST_E_IO, "cannot read '%s': %s", r->name, strerror(errno))
                         : BURST_OK;
        }
        r->lines++;
    } while (strspn(r->line, " \t\r\n") == strlen(r->line));
    json_t *line = json_loads(r->line, JSON_REJECT_DUPLICATES, NULL);
    const int status = json_is_object(line) ? read_object(c, p, o, r, line, x)
                                            : wrong(c, r, "is no object of JSON (docs/runtime.md)");
    json_decref(line);
    return status;
}

/* ---- the same on all ranks ---- */

static int share_numbers(BurstCtx *c, int32_t *number, int64_t n)
{
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        const int count = (int)(n - i < AT_ONCE ? n - i : AT_ONCE);
        double value[AT_ONCE] = {0};
        for (int j = 0; j < count && c->rank == 0; j++)
            value[j] = number[i + j];
        BURST_TRY(burst_allreduce(c, (BurstGroup){0, 1, c->world}, value, count));
        for (int j = 0; j < count; j++)
            number[i + j] = (int32_t)value[j];
    }
    return BURST_OK;
}

static int share_prompt(BurstCtx *c, Prompt *x)
{
    double value[] = {(double)x->tokens, (double)x->most, (double)x->stops, x->logits, x->end};
    BURST_TRY(burst_allreduce(c, (BurstGroup){0, 1, c->world}, value, sizeof value / sizeof *value));
    if (c->rank != 0) {
        *x = (Prompt){(int64_t)value[0], (int64_t)value[1], (int64_t)value[2], value[3] > 0, value[4] > 0};
        x->token = calloc((size_t)x->tokens + 1, sizeof *x->token);
        x->stop = calloc((size_t)x->stops + 1, sizeof *x->stop);
    }
    if (!x->end && (!x->token || (x->stops && !x->stop)))
        return burst_fail(c, BURST_E_MEMORY, "out of memory for a prompt");
    BURST_TRY(share_numbers(c, x->token, x->tokens));
    return share_numbers(c, x->stop, x->stops);
}

/* ---- a prompt ---- */

static bool stops(const Prompt *x, int32_t token)
{
    for (int64_t i = 0; i < x->stops; i++)
        if (x->stop[i] == token)
            return true;
    return false;
}

static int print_token(BurstCtx *c, const BurstPlan *p, void *state, const Prompt *x, int64_t number,
                       int32_t token)
{
    float *logits = NULL;
    if (x->logits)
        BURST_TRY(p->logits(c, state, &logits));
    if (c->rank == 0) {
        printf("{\"prompt\": %" PRId64 ", \"token\": %d", number, token);
        for (int i = 0; i < p->vocab && logits; i++)
            printf("%s%.9g", i ? ", " : ", \"logits\": [", (double)logits[i]);
        puts(logits ? "]}" : "}");
        fflush(stdout);
    }
    return output_printed(c);
}

static int length_of(const BurstPlan *p, int64_t tokens)
{
    int length = 0;
    while (p->lengths[length] < tokens)
        length++;
    return length;
}

static int print_end(BurstCtx *c, int64_t number, int64_t tokens, int64_t length, double first, double all)
{
    if (c->rank == 0) {
        printf("{\"prompt\": %" PRId64 ", \"tokens\": %" PRId64 ", \"length\": %" PRId64
               ", \"first_token_seconds\": %.6g, \"token_seconds\": %.6g}\n",
               number, tokens, length, first, tokens > 1 ? (all - first) / (double)(tokens - 1) : 0);
        fflush(stdout);
    }
    return output_printed(c);
}

static int run_prompt(BurstCtx *c, const BurstPlan *p, void *state, const Prompt *x, int32_t *own,
                      int64_t number)
{
    const int length = length_of(p, x->tokens);
    const double begin = burst_seconds();
    int32_t next;
    BURST_TRY(p->prompt(c, state, length, x->token, x->tokens, own, &next));
    const double first = burst_seconds() - begin;
    int64_t n = 1;
    BURST_TRY(print_token(c, p, state, x, number, next));
    for (; n < x->most && !stops(x, next); n++) {
        BURST_TRY(heed_termination(c));
        BURST_TRY(p->token(c, state, next, &next));
        BURST_TRY(print_token(c, p, state, x, number, next));
    }
    return print_end(c, number, n, p->lengths[length], first, burst_seconds() - begin);
}

static int run_all(BurstCtx *c, const BurstPlan *p, const Options *o, void *state, Reader *r, int32_t *own)
{
    for (int64_t number = 0;; number++) {
        Prompt x = {0};
        burst_doing(c, "reading a prompt");
        int status = all_agree(c, c->rank == 0 ? read_line(c, p, o, r, &x) : BURST_OK);
        if (status == BURST_OK)
            status = share_prompt(c, &x);
        const bool end = x.end;
        if (status == BURST_OK && !end)
            status = run_prompt(c, p, state, &x, own, number);
        prompt_free(&x);
        if (status != BURST_OK || end)
            return status;
    }
}

static int open_prompts(BurstCtx *c, const Options *o, Reader *r)
{
    *r = (Reader){.name = o->prompts ? o->prompts : "standard input"};
    if (c->rank == 0)
        r->file = o->prompts ? fopen(o->prompts, "r") : stdin;
    if (c->rank == 0 && !r->file)
        return burst_fail(c, BURST_E_IO, "cannot open '%s': %s", o->prompts, strerror(errno));
    return BURST_OK;
}

int infer(BurstCtx *c, const BurstPlan *p, const Options *o, void *state, BurstWeights *w)
{
    Reader r;
    int32_t *own = burst_take(c, (size_t)burst_own_tokens(p, c->rank, p->max_tokens).each * sizeof *own);
    if (!own)
        return BURST_E_MEMORY;
    burst_doing(c, "allocating buffers");
    BURST_TRY(p->start(c, state, w));
    int status = all_agree(c, open_prompts(c, o, &r));
    if (status == BURST_OK)
        status = run_all(c, p, o, state, &r, own);
    if (r.file && r.file != stdin)
        fclose(r.file);
    free(r.line);
    return status;
}
