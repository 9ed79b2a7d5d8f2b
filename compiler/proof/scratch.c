/* proof/scratch.c: attention's scratch (proof 6): its buffers lie inside it, those that one call uses apart
 * from each other; each pool has its slots there, and a slot has room for the largest chunk that travels.
 *
 * A call is one direction of one attention. What both directions use, and the slots of several attentions,
 * may share a place otherwise: no two calls run at a time.
 */
#include "proof/internal.h"

static void __attribute__((format(printf, 2, 3))) reject(Diags *d, const char *fmt, ...)
{
    va_list ap;
    Text t = {0};
    va_start(ap, fmt);
    text_vprintf(&t, fmt, ap);
    va_end(ap);
    diag_error(d, (Span){0}, "proof %d (%s) fails: in attention's scratch %s", PROOF_MEMORY,
               proof_names[PROOF_MEMORY], t.at);
    text_free(&t);
}

static bool is_of(const Schedule *s, const Buffer *b)
{
    return !b->pool || (b->pool >= s->pool && b->pool < s->pool + s->pools);
}

/* Whether a call of the schedule uses the buffer; keys: of those that stay between its calls. */
static bool uses(const Schedule *s, const Buffer *b, bool keys)
{
    return b->at >= 0 && b->keys == keys && (b->directions >> s->backward & 1) && is_of(s, b);
}

static bool check_apart(Diags *d, const Draft *t, const Schedule *s, bool keys)
{
    const Memory *m = &t->memory;
    const int64_t all = keys ? m->keys : m->scratch, align = t->program->target->align;
    for (const Buffer *x = m->at; x < m->at + m->n; x++) {
        if (!uses(s, x, keys))
            continue;
        const int64_t end = x->at + (int64_t)x->bytes;
        if (x->at % align || end > all)
            return reject(d, "%s ends at %lld of %lld bytes, or is not aligned", x->name, (long long)end,
                          (long long)all), false;
        for (const Buffer *y = m->at; y < x; y++)
            if (uses(s, y, keys) && x->at < y->at + (int64_t)y->bytes && y->at < end)
                return reject(d, "%s and %s overlap in %s", y->name, x->name,
                              s->backward ? "backward" : "forward"), false;
    }
    return true;
}

/* Tokens of the largest chunk of the direction: of a rank, or of all that share heads; where the step has a
 * chunk of queries with one of keys at a time, of keys so many. */
static int64_t most_tokens(const Draft *t, const Schedule *s, TensorId tensor)
{
    const Choice *c = s->choice;
    const int shares = choice_shares(c, s->backward);
    int64_t most = 0;
    for (int r = 0; r < c->ranks; r++) {
        int64_t tokens = 0;
        for (int i = 0; i < shares; i++)
            tokens += t->partition->of[shares > 1 ? choice_member(c, r, i) : r].tokens;
        most = tokens > most ? tokens : most;
    }
    const bool keys = tensor == T_KV || tensor == T_DKV;
    return keys && choice_chunks_keys(c)
               ? shares * tokens_in_chunk(t->partition->max_tokens, c->token_chunks)
               : most;
}

static bool check_pool(Diags *d, const Draft *t, const Schedule *s, const Pool *p)
{
    const RowSizes rows = row_sizes(&t->shape, s->choice, t->partition, s->backward);
    const int pieces = tensor_pieces(s->choice, p->tensor);
    const int64_t tokens = (most_tokens(t, s, p->tensor) + pieces - 1) / pieces;
    const int64_t slot = tokens * travel_bytes(&t->program->model, t->program->target, p->tensor, s->backward,
                                               s->choice->latents, rows.heads, rows.kv_heads);
    int found = 0;
    for (const Buffer *b = t->memory.at; b < t->memory.at + t->memory.n; b++) {
        if (b->pool != p)
            continue;
        found++;
        if (b->copies != p->slots || b->elements < slot || (int64_t)b->bytes < b->copies * slot)
            return reject(d, "%s has %d slots of %lld bytes, and needs %d of %lld", p->name, b->copies,
                          (long long)b->elements, p->slots, (long long)slot), false;
    }
    if (found != 1)
        reject(d, "%s has %d places", p->name, found);
    return found == 1;
}

bool verify_scratch(Diags *d, const Draft *t)
{
    for (int i = 0; i < 2 * t->attention.n; i++) {
        const Schedule *s = t->attention.at[i / 2].way[i % 2];
        if (!check_apart(d, t, s, false) || !check_apart(d, t, s, true))
            return false;
        for (int p = 0; p < s->pools; p++)
            if (!check_pool(d, t, s, &s->pool[p]))
                return false;
    }
    return true;
}
