/* step/verify/replay.c: proofs 7 to 10 of the unrolled step, from its forward blocks alone.
 *
 * The forward blocks define what is to be computed: each operation's outputs have a number (a hash of its
 * kind, tensor, unit and operands' numbers), and an output's gradient has the sum of the numbers of its
 * parts, one for each operation that reads the output. A sum that has a part twice, or not at all, has
 * another number. The unrolled step is then replayed: memory is stretches, each with the record last written
 * there, and every operation must be one of forward, or the backward of one, with that operation's numbers
 * in the memory that it reads, under the names that it reads. Two contents with equal numbers would be
 * missed; with 64 bits that does not happen.
 *
 * The streams of weights, of copies and of tensor ranks may execute what is queued at any time until compute
 * has waited for it, or for something later of that stream. Compute waits only where the list says so, for
 * the last operation of the wait's event. Only copies access host memory. A rank without tokens does not
 * enter loops over its own: nothing is awaited there, and no collective begins. So nothing that may still be
 * in flight is accessed, for any timing, and an operation writes in place only if it is elementwise. If a
 * batch has several sequences, two are replayed: the second adds to the shards. The executor of tests/step
 * checks none of that: it knows two orders of the streams and one sequence, copies operands out, and has no
 * optimizer state.
 *
 * If tensor ranks split layers, the forward blocks are checked first (step/verify/tensor_parallel.c), since
 * all else follows from them, and so are values of adjacent tensors (step/verify/adjacent.c).
 *
 * Assumed: compute's own operations run in order; a queued operation starts after all earlier work of
 * compute; operations are correct inside (attention has proofs of its own); all ranks run this list, so that
 * their collectives meet in one order. */
#include "step/verify/internal.h"

enum { STATES = 3 }; /* parameters, first and second moments */

/* ---- operands ---- */

static Stream stream_of(const Doing *d) { return op_stream(d->at->op->kind); }

/* Whether the host itself computes. */
static bool on_host(const Machine *m, OpKind k)
{
    return k == OP_OPTIMIZER && m->step->choice.optimizer == OPTIMIZER_ON_HOST;
}

/* Computing waits for values on the host and does not access them; an offloaded optimizer accesses only
 * these. */
static void check_memory(Machine *m, const Doing *d, int value)
{
    const OpKind k = d->at->op->kind;
    const bool host = m->step->values.at[value].host;
    if (on_host(m, k) && !host)
        reject(m, STEP_VALUES, "%s lies in the device's memory, and the host updates parameters",
               name_of(m, value));
    else if (host && !op_copies(k) && !on_host(m, k))
        reject(m, STEP_VALUES, "%s lies in the host's memory", name_of(m, value));
}

static Data take(Machine *m, Doing *d, int value, int index)
{
    const Place p = place_at(m, value, index);
    const Record *other = NULL;
    if (m->failed)
        return (Data){.value = value};
    check_memory(m, d, value);
    check_apart(m, p, false, d->at->op->kind);
    const Record *r = held(m, p.item, &other);
    if (r && m->shared[r->value] != m->shared[value])
        other = r, r = NULL;
    if (!r && other)
        reject(m, STEP_VALUES, "it reads %s[%d], and %s lies there", name_of(m, value), index,
               record_text(m, other));
    else if (!r)
        reject(m, STEP_VALUES, "it reads %s[%d], which nothing has written", name_of(m, value), index);
    d->read[d->reads++] = p;
    const bool rows = r && op_takes_rows(m->step, d->at->op, value);
    const uint64_t whole = r ? r->number : 0;
    return (Data){value, index, rows ? rows_number(m, r, d->at, value) : whole, r};
}

static void take_all(Machine *m, Doing *d)
{
    const Op *o = d->at->op;
    d->weight.value = -1;
    for (int i = 0; i < OP_READS && o->read[i].value >= 0 && !m->failed; i++) {
        const int value = o->read[i].value, index = index_of(m, d->at, o->read[i]);
        const ValueKind k = m->step->values.at[value].kind;
        if (k == VALUE_INPUT)
            d->data[d->datas++] = (Data){value, index, taken_number(m, d->at, value, input_number(m, value)),
                                         NULL};
        else if (rule_of(o->kind) && (k == VALUE_WEIGHT || k == VALUE_ROUNDED || k == VALUE_STATE))
            d->weight = take(m, d, value, index);
        else
            d->data[d->datas++] = take(m, d, value, index);
    }
}

/* An operation may write in place only elementwise, and not where it writes another output. */
static void check_own(Machine *m, const Doing *d, Place p, int n)
{
    const int64_t end = p.item->offset + p.item->bytes;
    for (int i = 0; i < d->reads + n; i++) {
        const Place x = i < d->reads ? d->read[i] : d->write[i - d->reads];
        const bool same = i == n && x.item->offset == p.item->offset && x.item->bytes == p.item->bytes;
        if (overlap(x.item->offset, x.item->offset + x.item->bytes, p.item->offset, end) &&
            !(same && (in_place(m, d->at->op->kind) || d->at->op->kind == OP_OPTIMIZER ||
                       d->at->op->kind == OP_ORTHOGONALIZE)))
            reject(m, STEP_VALUES, "it writes %s[%d] where it %s %s[%d]", name_of(m, p.value), p.index,
                   i < d->reads ? "reads" : "writes", name_of(m, x.value), x.index);
    }
}

/* If ranks copy from others' memory when they wait, none may write to its shard of gathered parameters. */
static void check_shards(Machine *m, Place p)
{
    const int param = step_value(m->step, step_param(m->step)),
              unit = p.value == param ? -1 : shard_at(m, p.item);
    if (unit >= 0)
        reject(m, STEP_STREAMS, "it writes %s[%d] where another rank may be copying %s[%d]",
               name_of(m, p.value), p.index, name_of(m, param), unit);
}

static void find_writes(Machine *m, Doing *d)
{
    const Op *o = d->at->op;
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0 && !m->failed; i++) {
        const Place p = place_at(m, o->write[i].value, index_of(m, d->at, o->write[i]));
        if (!m->failed)
            check_memory(m, d, p.value);
        if (!m->failed)
            check_apart(m, p, true, d->at->op->kind);
        if (!m->failed)
            check_own(m, d, p, i);
        if (!m->failed)
            check_shards(m, p);
        d->write[d->writes++] = p;
    }
}

/* Until compute has waited for it, the stream may be using what the operation accesses. */
static void go_under(Machine *m, const Doing *d)
{
    for (int i = 0; i < d->reads + d->writes && stream_of(d) != STREAM_COMPUTE; i++) {
        const Place p = i < d->reads ? d->read[i] : d->write[i - d->reads];
        *vec_push(m->arena, &m->under) =
            (Under){m->now,        p.value,     p.index, p.item->offset, p.item->offset + p.item->bytes,
                    i >= d->reads, stream_of(d)};
    }
}

/* ---- operations with a rule ---- */

/* Whether forward's operation lacks the operand: it has fewer inputs, or an output whose gradient is not
 * needed. */
static bool absent(const Made *x, const char *word)
{
    const int n = word[1] - '0';
    return ((word[0] == 'x' || word[0] == 'd') && n >= x->ins) || (word[0] == 'd' && x->chosen[n]) ||
           (word[0] == 'g' && n > 0 && !x->g[n]);
}

/* The number of correct operands; *bad: the first wrong one, countof a rule's operands if there are too
 * many. */
static int right_operands(const Machine *m, const Doing *d, const Rule *r, const Made *x, int *bad)
{
    int right = 0, words = 0;
    *bad = -1;
    for (const char *word = r->read; *word; word += 2) {
        if (absent(x, word))
            continue;
        const bool same = words < d->datas &&
                          d->data[words].number ==
                              taken_number(m, d->at, d->data[words].value, word_number(m, x, word));
        right += same;
        if (!same && *bad < 0)
            *bad = words;
        words++;
    }
    if (*bad < 0 && words < d->datas)
        *bad = words;
    return right;
}

/* The operation of forward that this one is, or is the backward of; otherwise an error about the nearest
 * one. */
static const Made *find_made(Machine *m, const Doing *d, const Rule *r)
{
    const UnitTensor *tensor = op_tensor(m->step, d->at->op, &m->step->block[d->at->block]);
    const int weights = d->at->op->embedding ? 0 : d->at->unit;
    const bool of_tensor = r->weight || r->sum;
    const Made *nearest = NULL;
    int most = -1, first = -1;
    for (const Made *x = m->made.at + m->made_from[d->at->unit]; x < m->made.at + m->made_to[d->at->unit];
         x++) {
        int bad;
        if (x->op->kind != r->of || tensor != (of_tensor ? x->tensor : NULL) || x->weights != weights ||
            (r->of == OP_SCALE && x->op->scale != d->at->op->scale))
            continue;
        const int right = right_operands(m, d, r, x, &bad);
        if (bad < 0)
            return x;
        if (right > most)
            most = right, nearest = x, first = bad;
    }
    explain(m, d, r, nearest, first);
    return NULL;
}

static void check_weight(Machine *m, const Doing *d, const Rule *r, const Made *x)
{
    const int state = step_value(m->step, step_param(m->step));
    const uint64_t shard = state_number(state, x->weights, false),
                   wanted = m->alone ? shard : number('g', shard, 0);
    const bool weight = r->weight && x->op->weight;
    if ((d->weight.value >= 0) != weight)
        reject(m, STEP_UNITS, weight ? "it names no weights" : "it has no use for weights");
    else if (weight && d->weight.number != wanted)
        reject(m, STEP_UNITS, "%s[%d] does not hold the weights of unit %d: it is %s",
               name_of(m, d->weight.value), d->weight.index, x->weights, record_text(m, d->weight.record));
}

/* Adding requires something to add to; the sum shows whether it was right. */
static Record record_of(Machine *m, const Place *p, uint64_t part, bool adds)
{
    const Record *other, *before = adds ? held(m, p->item, &other) : NULL;
    if (adds && !before)
        reject(m, STEP_GRADIENTS, "it adds to %s[%d], which is not there", name_of(m, p->value), p->index);
    return (Record){part + (before ? before->number : 0), part, before, m->now, p->value, p->item->offset,
                    p->item->offset + p->item->bytes,     -1,   !adds};
}

/* For one chunk's rows, which it adds to or overwrites: the value's other rows do not change. */
static Record record_of_rows(Machine *m, const Place *p, uint64_t part, bool adds, const StepOp *o)
{
    Record r = record_of(m, p, part, adds);
    const Record *other;
    const int chunk = op_row(m->step, o, p->value);
    bool there = !adds;
    for (const Record *x = r.before; x; x = x->before)
        there |= x->chunk < 0 || x->chunk == chunk;
    if (!there)
        reject(m, STEP_GRADIENTS, "it adds to chunk %d of %s[%d], which is not there", chunk,
               name_of(m, p->value), p->index);
    r.chunk = chunk;
    r.anew = !adds;
    r.before = held(m, p->item, &other);
    if (r.before && m->shared[r.before->value] != m->shared[p->value])
        r.before = NULL;
    r.number += r.before && !adds ? r.before->number - rows_number(m, r.before, o, p->value) : 0;
    return r;
}

static void run_rule(Machine *m, Doing *d, const Rule *r)
{
    const Made *x = find_made(m, d, r);
    const char *word = r->write;
    const bool wants_sum = x && r->sum && x->op->weight;
    bool sum = false;
    Record out[OP_WRITES];
    if (x)
        check_weight(m, d, r, x);
    if (d->at->op->kind == OP_SELECT && d->at->op->again)
        reject(m, STEP_VALUES, "it chooses blocks anew, which forward has chosen");
    if (d->at->op->kind == OP_CHOOSE && d->at->op->again) /* rounding may put close scores in another order */
        reject(m, STEP_VALUES, "it chooses experts anew, which forward has chosen");
    for (int i = 0; i < d->writes && !m->failed; i++) {
        const ValueKind k = m->step->values.at[d->write[i].value].kind;
        const bool of_unit = k == VALUE_SUM || k == VALUE_SHARD, scratch = k == VALUE_SCRATCH,
                   beyond = !of_unit && !scratch && !*word;
        const bool rows = op_takes_rows(m->step, d->at->op, d->write[i].value);
        uint64_t part = 0;
        if (of_unit)
            part = part_number(m, x, 'w', 0);
        else if (scratch)
            part = number('t', (uint64_t)m->now, 0);
        else if (!beyond)
            part = word_number(m, x, word);
        if (beyond || (of_unit && (sum || !wants_sum)))
            reject(m, STEP_VALUES, "it does not make %s", name_of(m, d->write[i].value));
        else
            out[i] = rows ? record_of_rows(m, &d->write[i], own_number(m, d->at, d->write[i].value, part),
                                           op_adds(m->step, d->at, i), d->at)
                          : record_of(m, &d->write[i], own_number(m, d->at, d->write[i].value, part),
                                      op_adds(m->step, d->at, i));
        word += of_unit || scratch || beyond ? 0 : 2;
        sum |= of_unit;
    }
    if ((*word && x && !absent(x, word)) || sum != wants_sum)
        reject(m, STEP_VALUES, "it does not write all that it makes");
    if (d->at->op->kind == OP_EVALUATE || d->at->op->kind == OP_NEXT)
        m->losses += chunk_number(1, op_chunk(m->step, d->at), op_chunks(m->step, d->at->op));
    for (int i = 0; i < d->writes && !m->failed; i++) {
        if (one_layout(m, x->op->kind) && out[i].chunk < 0)
            out[i].part = 0, out[i].before = d->data[0].record; /* the same sum elsewhere */
        store(m, out[i]);
    }
    if (!m->failed)
        go_under(m, d);
}

/* ---- units ---- */

static void run_zero(Machine *m, const Doing *d)
{
    const ValueKind k = d->writes == 1 ? m->step->values.at[d->write[0].value].kind : VALUE_SCRATCH;
    if (k != VALUE_SUM && k != VALUE_SHARD)
        reject(m, STEP_UNITS, "it zeroes what is no sum of gradients");
    else
        store(m, record_of(m, &d->write[0], 0, false));
}

static void use_stream(Machine *m, const Doing *d, uint64_t part, bool adds)
{
    if (m->failed)
        return;
    const bool rows = op_takes_rows(m->step, d->at->op, d->write[0].value);
    store(m,
          rows ? record_of_rows(m, &d->write[0], part, adds, d->at) : record_of(m, &d->write[0], part, adds));
    go_under(m, d);
}

/* Weights that stay for all visits are gathered once. */
static void check_gathered_once(Machine *m, const Doing *d, uint64_t gathered)
{
    const Place *p = d->write;
    const Record *other, *r = m->failed ? NULL : held(m, p->item, &other);
    const bool stays = !m->failed && m->step->values.at[p->value].index == INDEX_UNIT;
    if (stays && r && r->value == p->value && r->number == gathered)
        reject(m, STEP_UNITS, "it gathers %s[%d], which is there already", name_of(m, p->value), p->index);
}

static void run_gather(Machine *m, Doing *d)
{
    const Op *o = d->at->op;
    const int unit = o->write[0].next ? unit_at(m, op_visit(m->step, d->at) + 1) : d->at->unit;
    if (!d->datas)
        d->data[d->datas++] = take(m, d, step_value(m->step, "param"), o->embedding ? 0 : unit);
    find_writes(m, d);
    check_arrival(m, d->at);
    check_gathered_once(m, d, number('g', d->data[0].number, 0));
    use_stream(m, d, number('g', d->data[0].number, 0), false);
}

static void run_reduce(Machine *m, Doing *d)
{
    find_writes(m, d);
    const int unit = m->failed ? 0 : d->write[0].index;
    const bool last = d->at->op->when == WHEN_LAST;
    const uint64_t n = d->data[0].number, a = m->sum[0][unit], b = m->sum[1][unit];
    if (n == 0 || (last ? n != m->all[unit] : n != a && n != b && n != a + b))
        reject(m, STEP_UNITS, "%s[%d] is not the gradients of unit %d: %s", name_of(m, d->data[0].value),
               d->data[0].index, unit, sum_fault(m, unit, d->data[0].record));
    use_stream(m, d, n * SUM_FACTOR, d->at->op->adds[0] || (m->sequence > 0 && !last));
    if (!m->failed) /* consumed: not reduced or accumulated any more */
        store(m, (Record){.number = number('r', n, 0),
                          .chunk = -1,
                          .op = m->now,
                          .value = d->read[0].value,
                          .begin = d->read[0].item->offset,
                          .end = d->read[0].item->offset + d->read[0].item->bytes});
}

/* The same content in the other memory. */
static void run_copy(Machine *m, Doing *d)
{
    find_writes(m, d);
    const OpKind k = d->at->op->kind;
    const bool to_host = k == OP_STAGE || k == OP_DOWNLOAD || k == OP_WRITE_BACK;
    if (!m->failed && (d->writes != 1 || m->step->values.at[d->data[0].value].host == to_host ||
                       m->step->values.at[d->write[0].value].host != to_host))
        reject(m, STEP_VALUES,
               to_host ? "it does not copy from the device to the host"
                       : "it does not copy from the host to the device");
    use_stream(m, d, d->data[0].number, d->at->op->adds[0]);
}

static bool is_split(const Machine *m, int unit)
{
    return m->step->shape.tensor > 1 && unit > 0 && unit != m->layers + 1;
}

/* Gradients kept in bf16 are summed in fp32 in other memory, whose content is lost. */
static void take_room(Machine *m, const Doing *d)
{
    const Value *shard = &m->step->values.at[d->data[0].value];
    const Value whole = {.dim = {DIM_SHARD}, .element = EL_FLOAT, .index = INDEX_UNIT};
    const bool needed = shard->element == EL_ACTIVATION,
               there = d->writes == 2 && m->step->values.at[d->write[1].value].kind == VALUE_SUM;
    if (!m->failed && (d->writes != 1 + needed || there != needed ||
                       (needed && d->write[1].item->bytes < step_bytes(m->step, &whole, d->data[0].index))))
        reject(m, STEP_UNITS, "it has no fp32 memory to sum %s[%d] in", name_of(m, d->data[0].value),
               d->data[0].index);
    if (!m->failed && needed)
        store(m, record_of(m, &d->write[1], number('t', (uint64_t)m->now, 0), d->at->op->adds[1]));
}

/* The number of a unit's gradients of all sequences, after their sum over tensor ranks, and over
 * replicas. */
static uint64_t shard_number(const Machine *m, int unit, bool over_tensor, bool over_replicas)
{
    return m->all[unit] * (m->in_place ? 1 : SUM_FACTOR) *
           (over_tensor && is_split(m, unit) ? TENSOR_FACTOR : 1) * (over_replicas ? REPLICA_FACTOR : 1);
}

static void run_tensor_sum(Machine *m, Doing *d)
{
    find_writes(m, d);
    const int unit = m->failed ? 0 : d->write[0].index;
    if (m->sequence < m->sequences - 1)
        reject(m, STEP_UNITS,
               "sequences follow, and their gradients would be added to a sum over tensor ranks");
    if (!is_split(m, unit))
        reject(m, STEP_UNITS, "no ranks split unit %d", unit);
    if (d->read[0].value != d->write[0].value || d->data[0].index != unit ||
        d->data[0].number != shard_number(m, unit, false, false))
        reject(m, STEP_UNITS, "%s[%d] is not all gradients of unit %d, each once",
               name_of(m, d->data[0].value), d->data[0].index, unit);
    take_room(m, d);
    use_stream(m, d, shard_number(m, unit, true, false), d->at->op->adds[0]);
}

static void run_all_reduce(Machine *m, Doing *d)
{
    find_writes(m, d);
    const int unit = m->failed ? 0 : d->write[0].index;
    if (m->sequence < m->sequences - 1)
        reject(m, STEP_UNITS, "sequences follow, and their gradients would be added to a sum over replicas");
    if (!step_replicates(m->step))
        reject(m, STEP_UNITS, "all ranks share the weights: there are no replicas");
    if (d->read[0].value != d->write[0].value || d->data[0].index != unit ||
        d->data[0].number != shard_number(m, unit, true, false))
        reject(m, STEP_UNITS, "%s[%d] is not all gradients of unit %d, each once",
               name_of(m, d->data[0].value), d->data[0].index, unit);
    take_room(m, d);
    use_stream(m, d, shard_number(m, unit, true, true), d->at->op->adds[0]);
}

/* ---- Muon ---- */

static bool by_muon(const Machine *m, int unit)
{
    return m->step->program->train.optimizer == BURST_OPTIMIZER_MUON && !m->step->forward &&
           unit_is_of_layer(m->step, unit);
}

/* State that Muon changes before AdamW updates the unit: momentum, and parameters. */
static uint64_t moved_number(const Machine *m, int value, int unit)
{
    const bool param = value == step_value(m->step, "param"), first = value == step_value(m->step, "m");
    const uint64_t found = state_number(value, unit, false);
    return by_muon(m, unit) && (param || first) ? number(param ? 'U' : 'M', found, 0) : found;
}

/* Momentum's update of a layer; whole at the owners; and of all layers. */
static uint64_t update_number(const Machine *m, int unit)
{
    return number('u', state_number(step_value(m->step, "m"), unit, false),
                  shard_number(m, unit, true, step_replicates(m->step)));
}
static uint64_t matrices_number(const Machine *m)
{
    uint64_t all = 0;
    for (int unit = 1; unit < step_units(m->step); unit++)
        if (unit_is_of_layer(m->step, unit))
            all += number('w', update_number(m, unit), 0);
    return all;
}

/* Changes the state like an operand. */
static void move_state(Machine *m, const char *name, int unit)
{
    const int v = step_value(m->step, name);
    const Place p = place_at(m, v, unit);
    const Record *other, *r = m->failed ? NULL : held(m, p.item, &other);
    if (!m->failed && (!r || r->number != state_number(v, unit, false)))
        reject(m, STEP_UNITS, "%s[%d] is not what the step found", name, unit);
    else if (!m->failed)
        store(m, record_of(m, &p, moved_number(m, v, unit), false));
}

static void run_momentum(Machine *m, Doing *d)
{
    const int unit = d->at->unit;
    if (m->sequence < m->sequences - 1)
        reject(m, STEP_UNITS, "sequences follow, and their gradients are missing");
    if (d->datas != 1 || d->writes != 1 || d->data[0].index != unit || d->write[0].index != unit ||
        d->data[0].number != shard_number(m, unit, true, step_replicates(m->step)))
        reject(m, STEP_UNITS, "the gradients of unit %d are not all in its shard, each once", unit);
    move_state(m, "m", unit);
    if (!m->failed)
        store(m, record_of(m, &d->write[0], update_number(m, unit), d->at->op->adds[0]));
}

/* Other layers' matrices may already be there. */
static void run_to_owners(Machine *m, Doing *d)
{
    const int unit = d->at->unit;
    const Record *other, *before;
    if (d->datas != 1 || d->writes != 1 || d->data[0].number != update_number(m, unit))
        reject(m, STEP_UNITS, "it does not have what momentum adds to unit %d", unit);
    if (m->failed)
        return;
    before = held(m, d->write[0].item, &other);
    const bool adds = before && before->value == d->write[0].value;
    if (adds != (unit > 1) || (adds && !d->at->op->adds[0]))
        reject(m, STEP_UNITS, "the matrices of layers before are not at their owners");
    else
        store(m, record_of(m, &d->write[0], number('w', d->data[0].number, 0), adds));
}

static void run_orthogonalize(Machine *m, Doing *d)
{
    if (d->datas != 1 || d->data[0].number != matrices_number(m))
        reject(m, STEP_UNITS, "not all matrices are at their owners, each once");
    else if (d->writes != 2 || d->write[0].value != d->data[0].value ||
             m->step->values.at[d->write[1].value].kind != VALUE_SCRATCH)
        reject(m, STEP_VALUES, "it does not write all that it makes");
    else
        store(m, record_of(m, &d->write[0], number('x', d->data[0].number, 0), d->at->op->adds[0]));
    if (!m->failed)
        store(m, record_of(m, &d->write[1], number('t', (uint64_t)m->now, 0), d->at->op->adds[1]));
}

static void run_from_owners(Machine *m, Doing *d)
{
    const int unit = d->at->unit;
    if (d->datas != 1 || d->data[0].number != number('x', matrices_number(m), 0))
        reject(m, STEP_UNITS, "the matrices are not orthogonalised");
    else if (d->writes != 1 || d->write[0].index != unit)
        reject(m, STEP_VALUES, "it does not write all that it makes");
    else
        store(m, record_of(m, &d->write[0], number('o', update_number(m, unit), 0), d->at->op->adds[0]));
}

static void run_muon(Machine *m, Doing *d)
{
    const int unit = d->at->unit;
    if (d->datas != 1 || d->writes || d->data[0].number != number('o', update_number(m, unit), 0))
        reject(m, STEP_UNITS, "it does not have the orthogonalised update of unit %d", unit);
    move_state(m, "param", unit);
}

static const char *state_text(const Machine *m, int unit, bool after)
{
    if (after)
        return "the optimizer makes of it once";
    return by_muon(m, unit) ? "Muon leaves of it" : "the step found";
}

/* Parameters, moments and rounded parameters: as the step found them or Muon left them; afterwards, updated.
 * Forward alone leaves all of them. */
static void check_state(Machine *m, int unit, bool after)
{
    for (int v = 0; v < m->step->values.n; v++) {
        const ValueKind k = m->step->values.at[v].kind;
        const Record *other, *r = NULL;
        if (k != VALUE_STATE && (k != VALUE_ROUNDED || !(after || m->step->forward)))
            continue;
        const Place p = place_at(m, v, unit);
        if (!m->failed && (!(r = held(m, p.item, &other)) ||
                           r->number != (after ? state_number(v, unit, true) : moved_number(m, v, unit))))
            reject(m, STEP_UNITS, "%s[%d] is not what %s", name_of(m, v), unit, state_text(m, unit, after));
    }
}

static void fill_state(Machine *m, int unit, bool after)
{
    for (int v = 0; v < m->step->values.n; v++) {
        const ValueKind k = m->step->values.at[v].kind;
        if (k != VALUE_STATE && (k != VALUE_ROUNDED || after))
            continue;
        const Place p = place_at(m, v, unit);
        if (!m->failed)
            store(m, (Record){.number = state_number(v, unit, after),
                              .chunk = -1,
                              .op = m->now,
                              .value = v,
                              .begin = p.item->offset,
                              .end = p.item->offset + p.item->bytes});
    }
}

/* Updates the unit's parameters and moments that were fetched, in order, and the rounded parameters. */
static void update_copies(Machine *m, Doing *d)
{
    const int unit = d->at->unit;
    int n = 0;
    for (int v = 0; v < m->step->values.n && !m->failed; v++) {
        if (m->step->values.at[v].kind != VALUE_STATE)
            continue;
        n++;
        if (n >= d->datas || d->data[n].number != state_number(v, unit, false) || n >= d->writes ||
            d->write[n].value != d->data[n].value || d->write[n].index != unit)
            reject(m, STEP_UNITS, "the copy of %s[%d] is not there to be updated", name_of(m, v), unit);
        else
            store(m, record_of(m, &d->write[n], state_number(v, unit, true), d->at->op->adds[n]));
    }
    if (!m->failed &&
        (n != STATES || d->writes != n + 1 || d->write[0].value != step_value(m->step, step_param(m->step)) ||
         d->write[0].index != unit))
        reject(m, STEP_UNITS, "it does not round the parameters of unit %d", unit);
    else if (!m->failed)
        store(m, record_of(m, &d->write[0], state_number(d->write[0].value, unit, true), d->at->op->adds[0]));
}

static void run_optimizer(Machine *m, Doing *d)
{
    const int unit = d->at->unit, param = step_value(m->step, step_param(m->step));
    if (m->sequence < m->sequences - 1)
        reject(m, STEP_UNITS, "sequences follow, and their gradients are missing");
    if (d->datas != 1 + (m->step->choice.optimizer == OPTIMIZER_FETCHED ? STATES : 0) ||
        d->data[0].index != unit ||
        d->data[0].number != shard_number(m, unit, true, step_replicates(m->step)))
        reject(m, STEP_UNITS, "the gradients of unit %d are not all in its shard, each once", unit);
    if (m->step->choice.optimizer == OPTIMIZER_FETCHED) {
        update_copies(m, d);
        return;
    }
    check_state(m, unit, false);
    fill_state(m, unit, true);
    for (int i = 0; i < d->writes && !m->failed; i++)
        store(m, record_of(m, &d->write[i], state_number(param, unit, true), d->at->op->adds[i]));
}

/* ---- the replay ---- */

/* The embedding's gradients need no weights, so no visit's weights follow the last layer's; and no unit is
 * before the first. */
static bool is_skipped(const Machine *m, const StepOp *o)
{
    if (o->op->kind == OP_WAIT && o->block == BLOCK_OPTIMIZER && o->unit + o->op->read[0].next < 0)
        return true;
    return o->op->kind == OP_GATHER && !o->op->embedding &&
           op_visit(m->step, o) + o->op->write[0].next > step_visits(m->step) - 2;
}

/* Whether it is a layer's input that is not saved because only the first of a group saves it, or the last
 * group's, which is on the device. */
static bool inside_group(const Machine *m, const Value *v, int layer)
{
    const int group = m->step->group;
    return group > 1 && v->index == INDEX_BOUNDARY && (layer % group || layer + group >= m->layers);
}

/* Whether forward of the layer has no operation on what the host's value is a copy of. */
static bool lacks(const Machine *m, const Value *v, int layer)
{
    return v->index == INDEX_LAYER && layer < m->layers &&
           !step_has_value(m->step, model_kind(&m->step->program->model, layer), v->original);
}

/* Copies of layers that do not stage the value, and waits for them. A missing copy is found where it is
 * read. */
static bool is_of_no_layer(const Machine *m, const StepOp *o)
{
    const Operand *both[] = {&o->op->read[0], &o->op->write[0]};
    for (int i = 0; i < 2; i++) {
        const Value *v = both[i]->value < 0 ? NULL : &m->step->values.at[both[i]->value];
        const int layer = o->layer + (v ? both[i]->next : 0);
        if (v && v->host && v->index != INDEX_UNIT &&
            ((layer < v->saved_from && !v->every) || (layer >= m->step->offload_layers && !v->of_last) ||
             inside_group(m, v, layer) || lacks(m, v, layer)))
            return true;
    }
    return false;
}

static bool is_of_queries(const Value *v) { return v->by_heads && dim_of_queries(v->dim[1]); }

/* In a loop for its next turn, or in the loop of the first turns before it. */
static bool comes_ahead(const Step *s, const Op *o)
{
    const LoopDim d = op_in_loop(s, o, LOOP_KEYS) ? LOOP_KEYS : LOOP_TOKENS;
    return op_is_ahead(s, o, d) || s->scopes.at[op_loop(s, o, d)].turns;
}

/* All ranks have equally many chunks of queries, and of heads. */
static void check_loop(Machine *m, const Op *o)
{
    const Stream stream = op_stream(o->kind == OP_WAIT ? o->awaits : o->kind);
    const LoopDim loop = op_dim(m->step, o);
    if (loop == LOOP_TOKENS && !m->step->by_queries && stream != STREAM_COMPUTE)
        reject(m, STEP_STREAMS, "a rank without tokens does not enter the loop that it is in");
    if (o->kind == OP_FETCH && o->scope && !comes_ahead(m->step, o))
        reject(m, STEP_STREAMS, "a chunk comes ahead of what reads it, or with the chunk before");
    if (m->step->by_queries && loop == LOOP_DIMS && o->kind != OP_WAIT && !op_copies(o->kind) &&
        op_touches(m->step, o, is_of_queries))
        reject(m, STEP_VALUES, "queries lie chunk after chunk, and it is not in the loop over their chunks");
}

static void run(Machine *m, int t)
{
    Doing d = {.at = &m->flow->op[t]};
    const OpKind k = d.at->op->kind;
    const Rule *r = rule_of(k);
    m->now = t;
    check_loop(m, d.at->op);
    if (k == OP_WAIT) {
        wait_for(m, d.at);
        return;
    }
    take_all(m, &d);
    if (m->failed)
        return;
    if (k == OP_GATHER && d.datas <= 1) {
        run_gather(m, &d);
        return;
    }
    if (k == OP_REDUCE && d.datas == 1) {
        run_reduce(m, &d);
        return;
    }
    if (k == OP_ALL_REDUCE && d.datas == 1) {
        run_all_reduce(m, &d);
        return;
    }
    if (k == OP_TENSOR_SUM && d.datas == 1) {
        run_tensor_sum(m, &d);
        return;
    }
    if (op_copies(k) && d.datas == 1) {
        run_copy(m, &d);
        return;
    }
    find_writes(m, &d);
    if (m->failed)
        return;
    if (r)
        run_rule(m, &d, r);
    else if (k == OP_ZERO)
        run_zero(m, &d);
    else if (k == OP_OPTIMIZER)
        run_optimizer(m, &d);
    else if (k == OP_MOMENTUM)
        run_momentum(m, &d);
    else if (k == OP_TO_OWNERS)
        run_to_owners(m, &d);
    else if (k == OP_ORTHOGONALIZE)
        run_orthogonalize(m, &d);
    else if (k == OP_FROM_OWNERS)
        run_from_owners(m, &d);
    else if (k == OP_MUON)
        run_muon(m, &d);
    else
        reject(m, STEP_VALUES, "it does not have the operands of its kind");
}

/* What a layer keeps of the last prompt is there for the tokens that follow. */
static void check_cache(Machine *m, const Made *x)
{
    for (int i = 0; i < OUTS && x->op->write[i].value >= 0 && !m->failed; i++) {
        const int v = x->op->write[i].value, layer = x->unit - 1;
        if (m->step->values.at[v].kind != VALUE_CACHE)
            continue;
        const Place p = place_at(m, v, layer);
        const Record *other, *r = m->failed ? NULL : held(m, p.item, &other);
        if (!m->failed && (!r || r->number != x->y[i]))
            reject(m, STEP_VALUES, "%s[%d] is not kept", name_of(m, v), layer);
    }
}

static void run_all(Machine *m)
{
    for (int u = 0; u < m->units; u++)
        if (step_unit(m->step, u)->elements)
            fill_state(m, u, false);
    for (m->sequence = 0; m->sequence < m->sequences; m->sequence++) {
        read_forward(m);
        for (int t = 0; t < m->flow->ops && !m->failed; t++)
            if (!is_skipped(m, &m->flow->op[t]) && !is_of_no_layer(m, &m->flow->op[t]) &&
                op_runs(m->flow->op[t].op, m->sequence, m->sequences))
                run(m, t);
    }
    m->now = -1;
    if (m->step->forward && m->losses != (uint64_t)m->sequences)
        reject(m, STEP_VALUES, "the loss is not computed once for each token");
    if (m->under.n)
        reject(m, STEP_STREAMS, "compute has not waited for %s", op_text(m, m->under.at[m->under.n - 1].op));
    for (int u = 0; u < m->units && !m->failed; u++)
        if (step_unit(m->step, u)->elements)
            check_state(m, u, !m->step->forward);
    for (const Made *x = m->made.at; x < m->made.at + m->made.n && !m->failed; x++)
        if (x->op->kind == OP_CACHE || x->op->kind == OP_CACHE_CONV || x->op->kind == OP_CACHE_SCAN)
            check_cache(m, x);
}

bool step_verify(Arena *a, Diags *d, const Flow *f)
{
    const Program *p = f->step->program;
    const int values = f->step->values.n, units = step_units(f->step), visits = step_visits(f->step),
              most = visits > units ? visits : units;
    Machine m = {.arena = a,
                 .diags = d,
                 .flow = f,
                 .step = f->step,
                 .layers = p->model.layers,
                 .units = units,
                 .span = most > f->step->chunks ? most : f->step->chunks,
                 .now = -1,
                 .sequences = step_sequences(f->step) > 1 ? 2 : 1,
                 .alone = f->step->units.ranks == 1,
                 .in_place = true};
    for (int i = 0; i < values; i++)
        m.in_place &= f->step->values.at[i].kind != VALUE_SUM;
    m.item = NEW_ARRAY(a, const Item *, values *m.span);
    m.shared = NEW_ARRAY(a, int, values);
    m.sum[0] = NEW_ARRAY(a, uint64_t, units);
    m.sum[1] = NEW_ARRAY(a, uint64_t, units);
    m.all = NEW_ARRAY(a, uint64_t, units);
    m.made_from = NEW_ARRAY(a, int, units);
    m.made_to = NEW_ARRAY(a, int, units);
    find_items(&m);
    check_places(&m);
    check_tensor_ranks(&m);
    check_adjacent(&m);
    check_slices(&m);
    if (!m.failed)
        run_all(&m);
    return !m.failed;
}

void print_step_proofs(Text *out)
{
#define X(id, number, name) text_printf(out, "proof %d: %s: holds\n", number, name);
    STEP_PROOFS(X)
#undef X
}
