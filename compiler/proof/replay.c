/* proof/replay.c: proofs 1 to 4 of one direction, and that its transfers share no stream.
 *
 * The trace is replayed on an abstract rank in relative coordinates (attention/attention.h), which stands
 * for every rank. Slots hold named chunks. A read of a slot requires that its arrival was waited for and
 * that nothing overwrote it since; a fill requires that readers and sends were waited for; partial sums are
 * sets of the pairs that were added. A direction that exchanges has its chunks by heads: Q and KV after
 * their exchange, sums until theirs. Its ranks are then those of the rank's ring, and its pairs those of
 * their chunks, each with the rank's share of the heads.
 *
 * No wait can be part of a cycle, even if a send blocks until its receive is posted: all ranks run the same
 * operations in the same order, operation i of one rank meets operation i of another, and every wait is for
 * an earlier operation. Take the rank that is furthest behind: what it waits for is earlier than its own
 * operation, and its peers are at least as far, so they have posted their side and it can continue. */
#include "proof/internal.h"

#include <string.h>

/* set of relative pairs kv - q; each piece of kv counts separately */
typedef struct Pairs { uint64_t *bits; } Pairs;
/* content: number of the fill, 0: none; pending: a sum that arrived and is not yet added. */
typedef struct Slot { int content; bool used, pending; } Slot;
/* pool < 0: at its owner */
typedef struct Held { bool here; int pool, slot, content; const Instance *from; } Held;
typedef struct Arrived { int pool, slot; Pairs sum; } Arrived;

typedef struct Machine {
    Arena *arena;
    Diags *diags;
    const Schedule *s;
    const Choice *choice;
    const Instance *now;       /* NULL: the end */
    size_t words;              /* of a Pairs */
    Slot **slot;               /* [pool][slot] */
    int *uses;                 /* [pool] */
    int fills;
    Held *held[TENSOR_COUNT];  /* [chunk] copies, and partial sums computed here */
    Pairs *own[TENSOR_COUNT];  /* [chunk] pairs in the partial sum computed here (at its owner: in all) */
    Vec(Arrived) *arrived[TENSOR_COUNT]; /* [chunk] */
    bool by_heads;             /* the direction exchanges */
    const Instance *exchanged[TENSOR_COUNT]; /* NULL: not yet */
    bool moved[TENSOR_COUNT]; /* a partial sum was ever away from its owner */
    const Instance **computed; /* [kv - q] where the pair was computed */
    bool *read;                /* [trace] copies: whether the arrival was read */
    bool failed;
} Machine;

/* The tensors that a direction computes. */
static const TensorId results[2][2] = {{T_O}, {T_DQ, T_DKV}};

/* Notes the mirrored or mirroring direction that the error is not in. */
static void note_mirrored(Diags *d, const Phase *phase, Span at)
{
    const bool self = at.begin == phase->span.begin && at.src == phase->span.src;
    if (phase->of.src)
        diag_note(d, self ? phase->of : phase->span,
                  self ? "it has the statements of this direction" : "in the direction that mirrors it");
}

static void fail(Machine *m, Span at, Proof proof, const char *fmt, va_list ap)
{
    Text t = {0};
    text_vprintf(&t, fmt, ap);
    diag_error(m->diags, at, "proof %d (%s) fails: %s", proof, proof_names[proof], t.at);
    text_free(&t);
    note_mirrored(m->diags, phase_of(m->choice, m->s->backward), at);
    m->failed = true;
}

/* Reports at the current operation, or after the last one at the direction. */
static void __attribute__((format(printf, 3, 4))) reject(Machine *m, Proof proof, const char *fmt, ...)
{
    const Instance *i = m->now;
    va_list ap;
    va_start(ap, fmt);
    fail(m, i ? stmt_place(i->node->stmt) : phase_of(m->choice, m->s->backward)->span, proof, fmt, ap);
    va_end(ap);
    if (i)
        diag_note(m->diags, i->node->stmt->span, "at every rank, in `%s`", instance_text(m->arena, m->s, i));
}

/* Reports at a statement. */
static void __attribute__((format(printf, 4, 5))) reject_node(Machine *m, const Node *n, Proof proof,
                                                              const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail(m, stmt_place(n->stmt), proof, fmt, ap);
    va_end(ap);
}

/* Notes another operation: "first here, in `attend Q[r] with KV[r], at s = 0`". */
static void note(Machine *m, const Instance *i, const char *before, const char *after)
{
    if (i)
        diag_note(m->diags, i->node->stmt->span, "%s`%s`%s", before, instance_text(m->arena, m->s, i), after);
}

static const char *name_of(Machine *m, TensorId t, int chunk)
{
    return chunk_name(m->arena, m->s, t, chunk);
}

/* ---- sets of pairs ---- */

static bool has_pair(Pairs p, int d)
{
    return p.bits && (p.bits[d / 64] >> (d % 64) & 1);
}

static void add_pair(Machine *m, Pairs *p, int d)
{
    if (!p->bits)
        p->bits = NEW_ARRAY(m->arena, uint64_t, m->words);
    p->bits[d / 64] |= (uint64_t)1 << (d % 64);
}

static bool is_empty(const Machine *m, Pairs p)
{
    for (size_t w = 0; p.bits && w < m->words; w++)
        if (p.bits[w])
            return false;
    return true;
}

/* Adds b to a. A pair in both is an error: it would count twice. */
static void add_sum(Machine *m, TensorId t, Pairs *a, Pairs b)
{
    for (size_t w = 0; b.bits && w < m->words && !m->failed; w++) {
        if (!b.bits[w])
            continue;
        if (!a->bits)
            a->bits = NEW_ARRAY(m->arena, uint64_t, m->words);
        if (a->bits[w] & b.bits[w])
            reject(m, PROOF_SUMS, "a part of %s is added twice", tensor_name(t));
        a->bits[w] |= b.bits[w];
    }
}

/* ---- locations ---- */

/* Whether the operation brings the chunk here, or adds to it. */
static bool brings(const Machine *m, const Instance *i, TensorId t, int chunk)
{
    const Node *n = i->node;
    if (n->kind == N_COMPUTE)
        return ((t == T_O || t == T_DQ) && i->chunk[0] == chunk) || (t == T_DKV && i->chunk[1] == chunk);
    return n->kind != N_EXCHANGE && n->ref[0].tensor == t && rel_sub(m->choice, i->chunk[0], i->hop) == chunk;
}

static void note_later(Machine *m, TensorId t, int chunk)
{
    const Trace *trace = &m->s->trace;
    for (const Instance *i = m->now + 1; i < trace->at + trace->n; i++) {
        if (!brings(m, i, t, chunk))
            continue;
        note(m, i, "",
             tensor_accumulates(t)
                 ? " adds to it, but later"
                 : " brings it, but later: statements run in the order of the text, except that "
                   "a pass of Q or KV goes before the computing of its own block");
        return;
    }
    diag_note(m->diags, m->now->node->stmt->span, "no statement %s %s here",
              tensor_accumulates(t) ? "adds to" : "brings", name_of(m, t, chunk));
}

static void reject_absent(Machine *m, Proof proof, TensorId t, int chunk)
{
    enum { MOST = 4 };
    Text here = {0};
    int n = 0;
    for (int c = 0; c < choice_chunks(m->choice); c++)
        if (m->held[t][c].here && n++ < MOST)
            text_printf(&here, "%s%s", n == 1 ? "" : ", ", name_of(m, t, c));
    if (n > MOST)
        text_printf(&here, " and %d more", n - MOST);
    reject(m, proof, "%s is not here; this rank holds %s", name_of(m, t, chunk), n ? here.at : "none");
    note_later(m, t, chunk);
    text_free(&here);
}

/* Checks the layout: a direction that exchanges has its chunks by heads, Q and KV after their exchange, sums
 * before theirs. */
static bool has_chunks(Machine *m, bool heads, TensorId t, Proof proof)
{
    const bool sum = tensor_accumulates(t);
    if (heads != m->by_heads)
        reject(m, proof, "it takes %s by %s, but chunks are laid out by %s", tensor_name(t),
               heads ? "heads" : "tokens", heads ? "tokens" : "heads");
    else if (m->by_heads && sum && m->exchanged[t])
        reject(m, proof, "%s is laid out by tokens already", tensor_name(t));
    else if (m->by_heads && !sum && !m->exchanged[t])
        reject(m, proof, "%s is laid out by tokens: `exchange %s tokens -> heads;` is missing before it",
               tensor_name(t), tensor_name(t));
    else
        return true;
    note(m, m->exchanged[t], "since ", "");
    return false;
}

/* ---- slots ---- */

static const char *slot_text(Machine *m, const Held *h)
{
    return h->pool < 0 ? "" : arena_printf(m->arena, " from slot %s[%d]", m->s->pool[h->pool].name, h->slot);
}

/* Checks that the chunk is still in its slot, and that its arrival was waited for. */
static void check_read(Machine *m, TensorId t, int chunk, unsigned wait, Proof missing)
{
    const Held *h = &m->held[t][chunk];
    if (!h->here) {
        reject_absent(m, missing, t, chunk);
        return;
    }
    if (h->from && wait && !(m->now->node->waits & wait))
        reject(m, PROOF_SLOTS, "it reads %s%s without waiting for its arrival", name_of(m, t, chunk),
               slot_text(m, h));
    if (h->from)
        m->read[h->from - m->s->trace.at] = true;
    if (h->pool >= 0 && m->slot[h->pool][h->slot].content != h->content)
        reject(m, PROOF_SLOTS, "it reads %s from slot %s[%d], which a later chunk has overwritten",
               name_of(m, t, chunk), m->s->pool[h->pool].name, h->slot);
}

/* Fills the next slot of the pool. Readers and sends of its old content must have been waited for. */
static Held fill_slot(Machine *m, TensorId t, int pool)
{
    const Pool *p = &m->s->pool[pool];
    if (p->slots == 0) {
        reject(m, PROOF_SLOTS, "it fills a slot of %s, which has none", p->name);
        return (Held){0};
    }
    int k = m->uses[pool]++ % p->slots;
    if (p->tensor != t)
        reject(m, PROOF_SLOTS, "it fills slot %s[%d], which has the size of %s, with %s", p->name, k,
               tensor_name(p->tensor), tensor_name(t));
    Slot *slot = &m->slot[pool][k];
    if (slot->used && !(m->now->node->waits & WAIT_FREE))
        reject(m, PROOF_SLOTS,
               "it fills slot %s[%d] without waiting until its previous content is read and "
               "sent",
               p->name, k);
    else if (slot->pending)
        reject(m, PROOF_SLOTS,
               "it fills slot %s[%d] before the partial sum that arrived there "
               "is added",
               p->name, k);
    *slot = (Slot){.content = ++m->fills, .used = true};
    return (Held){true, pool, k, m->fills, m->now};
}

/* An operation's send may be in flight while it receives, so the two must not share a slot. */
static void check_apart(Machine *m, Held sent, Held filled)
{
    if (!m->failed && sent.here && sent.pool == filled.pool && sent.slot == filled.slot)
        reject(m, PROOF_SLOTS, "it fills slot %s[%d] while it sends what is there",
               m->s->pool[sent.pool].name, sent.slot);
}

/* ---- passes ---- */

static void run_copy(Machine *m)
{
    const Instance *i = m->now;
    TensorId t = i->node->ref[0].tensor;
    Held sent = m->held[t][i->chunk[0]];
    int there = rel_sub(m->choice, i->chunk[0], i->hop);
    Held *h = &m->held[t][there];
    if (has_chunks(m, i->node->ref[0].heads, t, PROOF_MESSAGES))
        check_read(m, t, i->chunk[0], WAIT_ARRIVED, PROOF_MESSAGES);
    if (m->failed)
        return;
    if (h->here && (h->pool < 0 || m->slot[h->pool][h->slot].content == h->content))
        reject(m, PROOF_MESSAGES, "%s, which it brings, is already there", name_of(m, t, there));
    *h = fill_slot(m, t, i->node->pool);
    check_apart(m, sent, *h);
}

/* Takes the chunk's own partial sum together with what arrived for it, and empties both. The current
 * operation must wait for these. */
static Pairs take_sum(Machine *m, TensorId t, int chunk, unsigned wait)
{
    Pairs sum = {0};
    add_sum(m, t, &sum, m->own[t][chunk]);
    for (int j = 0; j < m->arrived[t][chunk].n && !m->failed; j++) {
        const Arrived *a = &m->arrived[t][chunk].at[j];
        m->slot[a->pool][a->slot].pending = false;
        if (m->now && !(m->now->node->waits & wait))
            reject(m, PROOF_SLOTS, "it sends %s without waiting for the partial sum that arrives for it",
                   tensor_name(t));
        add_sum(m, t, &sum, a->sum);
    }
    m->arrived[t][chunk].n = 0;
    m->own[t][chunk] = (Pairs){0};
    return sum;
}

/* Starts this rank's partial sum of the chunk, in a slot unless this rank owns it. */
static void touch_sum(Machine *m, TensorId t, int chunk)
{
    Held *h = &m->held[t][chunk];
    if (!h->here && m->s->partial_pool[t] >= 0)
        *h = fill_slot(m, t, m->s->partial_pool[t]);
    m->moved[t] |= !chunk_is_own(m->choice, chunk);
}

static void run_sum(Machine *m)
{
    const Instance *i = m->now;
    TensorId t = i->node->ref[0].tensor;
    int chunk = i->chunk[0], there = rel_sub(m->choice, chunk, i->hop);
    if (!has_chunks(m, i->node->kind == N_RETURN ? m->by_heads : i->node->ref[0].heads, t, PROOF_MESSAGES))
        return;
    for (int home = 0; home < choice_chunks(m->choice) && i->node->waits & WAIT_HOME;
         home += m->choice->ranks)
        m->own[t][home] = take_sum(m, t, home, WAIT_HOME);
    if (m->arrived[t][chunk].n)
        touch_sum(m, t, chunk); /* arrivals are added to a sum of its own */
    Held sent = m->held[t][chunk];
    if (!sent.here && !chunk_is_own(m->choice, chunk) && !is_empty(m, m->own[t][chunk]))
        reject(m, PROOF_SLOTS, "it sends %s, which has no slot here", name_of(m, t, chunk));
    if (sent.here && !chunk_is_own(m->choice, chunk)) {
        check_read(m, t, chunk, 0, PROOF_MESSAGES);
        if (!m->failed && !(i->node->waits & WAIT_COMPUTED))
            reject(m, PROOF_SLOTS, "it sends %s without waiting for the computing that adds to it",
                   tensor_name(t));
        m->held[t][chunk].here = false;
    }
    if (m->failed)
        return;
    Pairs sum = take_sum(m, t, chunk, WAIT_MERGED);
    if (!m->failed && is_empty(m, sum)) {
        reject(m, PROOF_MESSAGES, "nothing has been added to %s here", name_of(m, t, chunk));
        note_later(m, t, chunk);
    }
    if (m->failed)
        return;
    Held h = fill_slot(m, t, i->node->pool);
    check_apart(m, sent, h);
    m->moved[t] |= !chunk_is_own(m->choice, there);
    m->slot[h.pool][h.slot].pending = true;
    *vec_push(m->arena, &m->arrived[t][there]) = (Arrived){h.pool, h.slot, sum};
}

/* ---- computing ---- */

/* Records a computed pair; each may be computed once. */
static void enter_pair(Machine *m, int pair)
{
    const Instance *before = m->computed[pair];
    if (before) {
        reject(m, PROOF_PAIRS, "the pair of %s and %s is computed a second time", name_of(m, T_Q, 0),
               name_of(m, T_KV, pair));
        note(m, before, "first here, in ", "");
    }
    m->computed[pair] = m->now;
}

static void add_result(Machine *m, TensorId t, int chunk, int pair)
{
    if (m->failed)
        return;
    touch_sum(m, t, chunk);
    if (m->held[t][chunk].here)
        check_read(m, t, chunk, 0, PROOF_SUMS);
    add_pair(m, &m->own[t][chunk], pair);
}

static void run_pair(Machine *m)
{
    static const TensorId copies[2] = {T_Q, T_KV};
    const Instance *i = m->now;
    int pair = rel_sub(m->choice, i->chunk[1], i->chunk[0]);
    enter_pair(m, pair);
    for (int side = 0; side < 2 && !m->failed; side++)
        if (has_chunks(m, i->node->ref[side].heads, copies[side], PROOF_PAIRS))
            check_read(m, copies[side], i->chunk[side], side ? WAIT_ARRIVED_KV : WAIT_ARRIVED_Q, PROOF_PAIRS);
    for (int j = 0; j <= m->s->backward && !m->failed; j++)
        has_chunks(m, i->node->ref[j].heads, results[m->s->backward][j], PROOF_PAIRS);
    for (int j = 0; j <= m->s->backward; j++)
        add_result(m, results[m->s->backward][j], i->chunk[j], pair);
}

/* An exchange takes Q and KV before anything reads them, and sums once they are complete; each once.
 * Arrivals for the owner's sum are added before. */
static void run_exchange(Machine *m)
{
    const Node *n = m->now->node;
    TensorId t = n->ref[0].tensor;
    const bool sum = tensor_accumulates(t);
    if (!m->by_heads) {
        reject(m, PROOF_MESSAGES, "it exchanges %s in a direction whose chunks are laid out by tokens",
               tensor_name(t));
    } else if (m->exchanged[t]) {
        reject(m, PROOF_MESSAGES, "%s is laid out by %s already", tensor_name(t), sum ? "tokens" : "heads");
        note(m, m->exchanged[t], "since ", "");
    } else if (n->stmt->tokens_to_heads == sum) {
        reject(m, PROOF_MESSAGES, sum ? "%s is laid out by heads where it is computed so, and by nothing else"
                                      : "%s is laid out by tokens already", tensor_name(t));
    }
    m->exchanged[t] = m->now;
    if (!sum)
        m->held[t][0] = (Held){.here = true, .pool = -1, .from = m->now};
    else if (!m->failed)
        m->own[t][0] = take_sum(m, t, 0, WAIT_MERGED);
}

static void run_instance(Machine *m)
{
    const Node *n = m->now->node;
    if (n->kind == N_COMPUTE)
        run_pair(m);
    else if (n->kind == N_EXCHANGE)
        run_exchange(m);
    else if (tensor_accumulates(n->ref[0].tensor))
        run_sum(m);
    else
        run_copy(m);
}

/* ---- the end ---- */

static const Node *find_node(const Node *n, NodeKind kind, TensorId t)
{
    const Node *found = NULL;
    for (; n && !found; n = n->next)
        found = n->kind == kind && n->ref[0].tensor == t ? n : find_node(n->body, kind, t);
    return found;
}

/* The statement that would compute the pair, written like the direction's other statements. */
static const char *missing_statement(Machine *m, int pair)
{
    const char *verb = m->s->backward ? "grad" : "attend";
    bool queries = false;
    for (int d = 0; d < choice_chunks(m->choice); d++)
        queries |= m->computed[d] && m->computed[d]->chunk[0] != 0;
    return arena_printf(m->arena, "%s %s with %s;", verb,
                        name_of(m, T_Q, queries ? rel_sub(m->choice, 0, pair % m->choice->ranks) : 0),
                        name_of(m, T_KV, queries ? pair - pair % m->choice->ranks : pair));
}

/* By heads, only pairs at the rank's own coordinate of the exchange. */
static bool is_pair(const Machine *m, int d)
{
    return !m->by_heads || rel_coord(m->choice, d, m->choice->schedule->exchanged) == 0;
}

static void check_pairs(Machine *m)
{
    int missing = 0, first = 0;
    for (int d = choice_chunks(m->choice) - 1; d >= 0; d--)
        if (is_pair(m, d) && !m->computed[d]) {
            missing++;
            first = d;
        }
    if (missing)
        reject(m, PROOF_PAIRS, "%d of %d pairs %s never computed: `%s` is missing", missing,
               choice_rows(m->choice, m->s->backward) * choice_pieces(m->choice), missing == 1 ? "is" : "are",
               missing_statement(m, first));
}

/* A return that a mirroring direction lacks is missing in the direction that it mirrors. */
static const char *missing_return(Machine *m, TensorId t)
{
    static const TensorId mirrored[TENSOR_COUNT] = {[T_O] = T_DQ, [T_DQ] = T_DKV, [T_DKV] = T_DQ};
    if (phase_of(m->choice, m->s->backward)->of.src)
        return arena_printf(m->arena, ": `return %s;` is missing in the direction that it mirrors",
                            tensor_name(mirrored[t]));
    return arena_printf(m->arena, ": `return %s;` is missing", tensor_name(t));
}

static void reject_away(Machine *m, TensorId t, int chunk)
{
    const Trace *trace = &m->s->trace;
    bool returned = find_node(m->s->body, N_RETURN, t);
    reject(m, PROOF_SUMS, "a part of %s stays at a rank that does not own it%s", name_of(m, t, chunk),
           returned ? "" : missing_return(m, t));
    for (const Instance *i = trace->at + trace->n - 1; i >= trace->at; i--)
        if (brings(m, i, t, chunk)) {
            note(m, i, "", " adds to it");
            return;
        }
}

static void check_owner(Machine *m, TensorId t)
{
    if (m->by_heads && !m->exchanged[t]) {
        reject(m, PROOF_SUMS, "%s stays laid out by heads: `exchange %s heads -> tokens;` is missing",
               tensor_name(t), tensor_name(t));
        return;
    }
    Pairs home = {0};
    for (int c = 0; c < choice_chunks(m->choice) && !m->failed; c += m->choice->ranks)
        add_sum(m, t, &home, take_sum(m, t, c, 0));
    for (int c = 1; c < choice_chunks(m->choice) && !m->failed; c++)
        if (m->arrived[t][c].n || !is_empty(m, m->own[t][c]))
            reject_away(m, t, c);
    for (int d = 0; d < choice_chunks(m->choice) && !m->failed; d++)
        if (is_pair(m, d) && !has_pair(home, d))
            reject(m, PROOF_SUMS, "a part of %s never reaches its owner", tensor_name(t));
}

/* ---- unused transfers ---- */

/* Every copy that arrives must be read, by computing or by a pass. */
static void check_copies_used(Machine *m)
{
    for (int i = 0; i < m->s->trace.n && !m->failed; i++) {
        const Instance *x = m->now = &m->s->trace.at[i];
        TensorId t = x->node->ref[0].tensor;
        if (m->read[i] || x->node->kind == N_COMPUTE || tensor_accumulates(t))
            continue;
        if (x->node->kind == N_EXCHANGE)
            reject(m, PROOF_MESSAGES, "nothing reads %s as it lays it out", tensor_name(t));
        else
            reject(m, PROOF_MESSAGES, "nothing reads %s, which it brings",
                   name_of(m, t, rel_sub(m->choice, x->chunk[0], x->hop)));
    }
}

/* Passes and returns of sums that never leave their owners do nothing and leave no trace; that is an error
 * except in a ring of one rank. */
static void check_sums_used(Machine *m, const Node *n, const Node **returned)
{
    for (; n && !m->failed; n = n->next) {
        TensorId t = n->ref[0].tensor;
        bool idle = n->kind == N_RETURN ? !m->moved[t] || returned[t]
                                        : n->kind == N_PASS && n->at_owner && !m->moved[t];
        if (idle && choice_rows(m->choice, m->s->backward) > 1) {
            reject_node(m, n, PROOF_MESSAGES, "it has nothing to send: every part of %s is at its owner%s",
                        tensor_name(t), returned[t] ? " already" : "");
            if (returned[t])
                diag_note(m->diags, returned[t]->stmt->span, "since this");
        }
        if (n->kind == N_RETURN)
            returned[t] = n;
        check_sums_used(m, n->body, returned);
    }
}

static void check_end(Machine *m)
{
    const Node *returned[TENSOR_COUNT] = {NULL};
    m->now = NULL;
    check_pairs(m);
    for (int j = 0; j <= m->s->backward && !m->failed; j++)
        check_owner(m, results[m->s->backward][j]);
    if (!m->failed)
        check_copies_used(m);
    if (!m->failed)
        check_sums_used(m, m->s->body, returned);
}

/* ---- set-up ---- */

static Machine machine_make(Arena *a, Diags *d, const Schedule *s)
{
    Machine m = {.arena = a, .diags = d, .s = s, .choice = s->choice};
    size_t chunks = (size_t)choice_chunks(s->choice);
    m.by_heads = choice_by_heads(s->choice, s->backward);
    m.words = (chunks + 63) / 64;
    m.computed = NEW_ARRAY(a, const Instance *, chunks);
    m.read = NEW_ARRAY(a, bool, s->trace.n ? s->trace.n : 1);
    m.uses = NEW_ARRAY(a, int, s->pools ? s->pools : 1);
    m.slot = NEW_ARRAY(a, Slot *, s->pools ? s->pools : 1);
    for (int p = 0; p < s->pools; p++)
        m.slot[p] = NEW_ARRAY(a, Slot, s->pool[p].slots);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        m.held[t] = NEW_ARRAY(a, Held, chunks);
        for (size_t home = 0; home < chunks; home += (size_t)s->choice->ranks)
            m.held[t][home] = (Held){.here = true, .pool = -1};
        m.own[t] = NEW_ARRAY(a, Pairs, chunks);
        m.arrived[t] = arena_alloc(a, sizeof(*m.arrived[t]) * chunks);
    }
    return m;
}

static bool streams_apart(Machine *m, const Node *n, const Node **owner)
{
    for (; n && !m->failed; n = n->next) {
        if (n->channel >= 0 && owner[n->channel]) {
            reject_node(m, n, PROOF_LINKS, "it shares stream %d with another transfer that may be under way",
                        n->channel);
            diag_note(m->diags, owner[n->channel]->stmt->span, "the other transfer");
        } else if (n->channel >= 0) {
            owner[n->channel] = n;
        }
        streams_apart(m, n->body, owner);
    }
    return !m->failed;
}

bool verify_schedule(Arena *a, Diags *d, const Schedule *s)
{
    Machine m = machine_make(a, d, s);
    const Node **owner = NEW_ARRAY(a, const Node *, s->channels + 1);
    if (!streams_apart(&m, s->body, owner))
        return false;
    for (int i = 0; i < s->trace.n && !m.failed; i++) {
        m.now = &s->trace.at[i];
        run_instance(&m);
    }
    if (!m.failed)
        check_end(&m);
    return !m.failed;
}
