/* identity.c: what must be equal on all ranks (identity.h). */
#include "host/launch/identity.h"

#include "base/mix.h"
#include "base/plural.h"
#include "core/weights.h"
#include "host/launch/place.h"
#include "host/net/socket.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 48, VALUE = 400, SHOWN = 80, RANKS_NAMED = 8 };

uint64_t hash_bytes(uint64_t h, const void *data, size_t bytes)
{
    for (const unsigned char *at = data, *end = at + bytes; at < end; at++)
        h = mix64(h ^ *at);
    return mix64(h + bytes);
}

/* ---- lines ---- */
static void add_line(Identity *id, const char *name, const char *value)
{
    const size_t room = sizeof id->text - id->used;
    const int n = snprintf(id->text + id->used, room, "%s\t%s\n", name, value);
    if ((size_t)n < room) {
        id->used += (size_t)n;
        return;
    }
    /* Not reached with today's tables. A value without space still counts in the hash. */
    uint64_t last = hash_bytes(hash_bytes(0, id->text, sizeof id->text), value, strlen(value));
    memcpy(id->text + sizeof id->text - sizeof last, &last, sizeof last);
}

void identity_add(Identity *id, const char *name, const char *format, ...)
{
    char value[VALUE], shown[SHOWN + 24];
    va_list ap;
    va_start(ap, format);
    vsnprintf(value, sizeof value, format, ap);
    va_end(ap);
    escape_text(value, sizeof value);
    if (strlen(value) <= SHOWN) {
        add_line(id, name, value);
        return;
    }
    snprintf(shown, sizeof shown, "%.*s... (%016llx)", SHOWN, value,
             (unsigned long long)hash_bytes(0, value, strlen(value)));
    add_line(id, name, shown);
}

/* ---- the plan ---- */
enum { INT, INT64, SIZE, REAL, FLAG };
typedef struct Field { const char *name; int kind; size_t at; } Field;
/* clang-format off: one row per line */
#define PLAN(name, kind, field) {name, kind, offsetof(BurstPlan, field)},
static const Field fields[] = {
    PLAN("number of ranks", INT, world) PLAN("number of data groups", INT, data)
        PLAN("ranks per group", INT, group) PLAN("ranks that shard the weights", INT,
                                                 shard_ranks) PLAN("number of tensor ranks", INT, tensor)
            PLAN("sequence", INT64, sequence) PLAN("layers", INT, layers) PLAN("hidden", INT, hidden)
                PLAN("heads", INT, heads) PLAN("kv_heads", INT, kv_heads) PLAN("head_dim", INT, head_dim)
                    PLAN("ffn", INT, ffn) PLAN("vocab", INT, vocab) PLAN("tied", INT, tied)
                        PLAN("norm_eps", REAL, norm_eps) PLAN("rope_theta", REAL,
                                                              rope.theta) PLAN("softcap", REAL, softcap)
#define X(id, name, constant) PLAN(name, REAL, scale[BURST_SCALE_##id])
                            BURST_SCALE_ROWS(X)
#undef X
                                PLAN("separator", INT64,
                                     train.separator) PLAN("predict", INT64,
                                                           train.predict) PLAN("batch", INT64, train.batch)
                                    PLAN("lr", REAL, train.lr) PLAN("last lr", REAL, train.lr_end)
                                        PLAN("learning-rate schedule", INT, train.schedule)
                                        PLAN("decay steps", INT64, train.decay_steps)
                                        PLAN("packed", INT, train.packed)
                                        PLAN("warmup", INT64, train.warmup)
                                            PLAN("beta1", REAL, train.beta1) PLAN("beta2", REAL, train.beta2)
                                                PLAN("eps of AdamW", REAL, train.eps)
                                                    PLAN("optimizer", INT, train.optimizer)
                                                    PLAN("momentum", REAL, train.momentum)
                                                    PLAN("decay", REAL, train.decay)
                                                        PLAN("clip", REAL, train.clip)
                                                            PLAN("export dtype", INT, train.export_dtype)
                                                                PLAN("target (1: CUDA)", FLAG, on_gpu)};
static const Field sizes[] = { /* derived from other fields, which explain a difference better */
    PLAN("number of tables", INT, table_count)
    PLAN("number of channels", INT, channels)
    PLAN("tokens per rank", INT64, max_tokens)
    PLAN("arena (bytes)", SIZE, arena_bytes)
};
#undef PLAN
/* clang-format on */

static void add_field(Identity *id, const Field *f, const BurstPlan *p)
{
    const void *at = (const char *)p + f->at;
    switch (f->kind) {
    case INT:
        identity_add(id, f->name, "%d", *(const int *)at);
        break;
    case INT64:
        identity_add(id, f->name, "%lld", (long long)*(const int64_t *)at);
        break;
    case SIZE:
        identity_add(id, f->name, "%zu", *(const size_t *)at);
        break;
    case REAL:
        identity_add(id, f->name, "%.15g", *(const double *)at);
        break;
    default:
        identity_add(id, f->name, "%d", *(const bool *)at);
    }
}

static void add_fields(Identity *id, const BurstPlan *p, const Field *table, size_t count)
{
    for (size_t i = 0; i < count; i++)
        add_field(id, &table[i], p);
}

/* Adds the first layer's text only: most plans have the same in all layers. */
static void add_masks(Identity *id, const BurstPlan *p)
{
    uint64_t h = 1;
    if (!p->masks || !p->layer_mask)
        return identity_add(id, "mask", "unknown");
    for (int l = 0; l < p->layers; l++) {
        const char *text = p->masks[p->layer_mask[l]]->text;
        h = hash_bytes(h, text, strlen(text));
    }
    identity_add(id, "mask", "%.64s (all layers: %016llx)", p->masks[p->layer_mask[0]]->text,
                 (unsigned long long)h);
}

static void add_environment(Identity *id)
{
    /* options of the command line are set here too */
    static const char *const names[] = {"BURST_TRANSPORT", "BURST_SHARE_GPUS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        identity_add(id, names[i], "%s", text ? text : "not set");
    }
}

void identity_make(Identity *id, const Job *job)
{
    const BurstPlan *p = job->plan;
    memset(id, 0, sizeof *id);
    identity_add(id, "runtime", "%s", burst_runtime_sources);
    identity_add(id, "runtime interface", "%d", p->abi);
    if (p->abi != BURST_RT_ABI) /* other fields lie elsewhere */
        return;
    add_fields(id, p, fields, sizeof fields / sizeof *fields);
    add_masks(id, p);
    add_fields(id, p, sizes, sizeof sizes / sizeof *sizes);
    add_environment(id);
    if (job->identify)
        job->identify(id, job->arg);
    identity_add(id, "plan", "%016llx", (unsigned long long)p->text_hash);
}

static int world_differs(const Job *job, int started, char *text, size_t size)
{
    const BurstPlan *p = job->plan;
    const int launcher = job->place->launcher;
    if (launcher == BY_MPI)
        snprintf(
            text, size,
            "the plan (%s) has %d rank%s, but mpirun started %d; use mpirun -n %d, or regenerate the program",
            p->source, p->world, plural(p->world), started, p->world);
    else
        snprintf(text, size,
                 "%s is %d, but the plan (%s) has %d rank%s; start as many (%s%d), or regenerate the program",
                 launcher == BY_SLURM ? "the number of the step's tasks (SLURM_NTASKS)" : "WORLD_SIZE",
                 started, p->source, p->world, plural(p->world),
                 launcher == BY_SLURM ? "srun -n " : "torchrun --nproc-per-node times --nnodes: ", p->world);
    return BURST_E_USAGE;
}

int identity_plan_fits(const Job *job, int started, char *text, size_t size)
{
    const BurstPlan *p = job->plan;
    if (p->abi != BURST_RT_ABI)
        snprintf(
            text, size,
            "%s was compiled for runtime interface %d, but this runtime has %d; regenerate it with burstc",
            p->source, p->abi, BURST_RT_ABI);
    else if (p->world < 1 || p->group < 1 || p->data < 1 || p->data * p->group * plan_tensor(p) != p->world)
        snprintf(text, size, "invalid plan: %d data group%s of %d rank%s do not match the world size of %d",
                 p->data, plural(p->data), p->group * plan_tensor(p), plural(p->group * plan_tensor(p)),
                 p->world);
    else if (p->shard_ranks < 0 ||
             (p->shard_ranks && (p->world % p->shard_ranks || p->shard_ranks % plan_tensor(p))))
        snprintf(text, size,
                 "invalid plan: weight-sharding groups of %d rank%s do not match the world size of %d",
                 p->shard_ranks, plural(p->shard_ranks), p->world);
    else
        return started == p->world ? BURST_OK : world_differs(job, started, text, size);
    return BURST_E_PLAN;
}

/* ---- comparing ---- */
static size_t line_length(const char *at)
{
    return strcspn(at, "\n");
}

/* Index of the first line that differs, and its start in both; -1: none. */
static int first_difference(const char **a, const char **b)
{
    for (int line = 0; **a || **b; line++) {
        const size_t n = line_length(*a);
        if (n != line_length(*b) || memcmp(*a, *b, n) != 0)
            return line;
        *a += n + (*a)[n] / '\n';
        *b += n + (*b)[n] / '\n';
    }
    return -1;
}

/* Splits "seed\t5\n" into "seed" and "5". Escapes text from another host for the terminal. */
static void split_line(const char *at, char name[NAME], char *value, size_t size)
{
    const int n = (int)line_length(at), named = (int)strcspn(at, "\t\n");
    snprintf(name, NAME, "%.*s", named, at);
    snprintf(value, size, "%.*s", named < n ? n - named - 1 : 0, named < n ? at + named + 1 : "");
    escape_text(name, NAME);
    escape_text(value, size);
}

static int difference_of(const char *all, int rank, const char **zero, const char **other)
{
    *zero = all;
    *other = all + (size_t)rank * IDENTITY_TEXT;
    return first_difference(zero, other);
}

/* Writes "ranks 1, 2 and 5" for those that differ in this line; returns their number. */
static int name_ranks(const char *all, int world, int line, char *text, size_t size)
{
    const char *zero, *other;
    int last = 0, count = 0, named = 0;
    for (int i = 1; i < world; i++)
        if (difference_of(all, i, &zero, &other) == line)
            last = i, count++;
    size_t used = (size_t)snprintf(text, size, count > 1 ? "ranks " : "rank ");
    for (int i = 1; i < world && used < size; i++) {
        if (difference_of(all, i, &zero, &other) != line)
            continue;
        if (named++ == RANKS_NAMED && i != last) {
            snprintf(text + used, size - used, " and %d more", count - RANKS_NAMED);
            break;
        }
        const char *between = i == last ? " and " : ", ";
        used += (size_t)snprintf(text + used, size - used, "%s%d", named == 1 ? "" : between, i);
    }
    return count;
}

bool identities_equal(char *all, int world, char *text, size_t size)
{
    char ranks[16 * RANKS_NAMED], name[NAME], mine[VALUE], theirs[VALUE];
    const char *zero, *other;
    int line = -1, first = 0;
    for (int i = 0; i < world; i++)
        all[(size_t)(i + 1) * IDENTITY_TEXT - 1] = 0;
    for (int i = 1; i < world; i++) {
        const int its = difference_of(all, i, &zero, &other);
        if (its >= 0 && (line < 0 || its < line))
            line = its, first = i;
    }
    if (line < 0)
        return true;
    difference_of(all, first, &zero, &other);
    split_line(zero, name, mine, sizeof mine);
    split_line(other, name, theirs, sizeof theirs);
    if (name_ranks(all, world, line, ranks, sizeof ranks) == 1)
        snprintf(text, size, "%s has a different %s: %s, rank 0 has %s", ranks, name, theirs, mine);
    else
        snprintf(text, size, "%s have a different %s: rank %d has %s, rank 0 has %s", ranks, name, first,
                 theirs, mine);
    return false;
}
