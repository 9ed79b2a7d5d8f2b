/* layout/table.c: what a layout decides, a row each: which values there are to try, why one does not work,
 * how it is written.
 *
 * The search goes through the rows in their order; --explain, the emitted header, the forms and the notes
 * of a refusal print them. A new choice is a field of Choice and a row here.
 */
#include "layout/layout.h"

#include "burst_rt.h"

#include <string.h>

/* ---- data: how many groups of ranks have sequences of their own ---- */

static int count_data(const Program *p)
{
    return p->cluster.world / program_tensor(p);
}

/* From the most groups on: small ones are judged quickly. Left open: what divides the ranks and the batch,
 * where no rank is left without a token. */
static bool take_data(const Program *p, Choice *c, int n)
{
    const int world = count_data(p), data = world - n;
    c->data = data;
    c->tensor = p->tensor;
    c->ranks = world / data;
    if (!p->layout.data.is_auto)
        return p->layout.data.value == data;
    return world % data == 0 && p->train.batch % data == 0 && c->ranks * choice_tensor(c) <= p->sequence;
}

static const char *data_text(Arena *a, const Choice *c)
{
    return arena_printf(a, "%d", c->data);
}

/* ---- tensor: over how many ranks each layer's weights are split ---- */

static const char *tensor_text(Arena *a, const Choice *c)
{
    return c->tensor ? arena_printf(a, "%d", c->tensor) : NULL;
}

/* ---- schedule ---- */

static int count_schedules(const Program *p)
{
    return p->schedule_count;
}

/* Of equal ones the first wins: no pieces, then fewer coordinates, and of those the ring, which every
 * reader knows. Those with pieces also take longest to simulate, which ends early once a faster one is
 * known. */
enum { SCHEDULE_ORDERS = 4 * (MAX_COORDS + 1) };

static int schedule_order(const SchedText *t)
{
    return (t->pieces > 1 ? SCHEDULE_ORDERS / 2 : 0) + 2 * t->coords + (strcmp(t->name, "ring") != 0);
}

static const SchedText *schedule_at(const Program *p, int n)
{
    for (int order = 0; order < SCHEDULE_ORDERS; order++)
        for (int i = 0; i < p->schedule_count; i++)
            if (schedule_order(p->schedules[i]) == order && n-- == 0)
                return p->schedules[i];
    return NULL;
}

/* Left open, of schedules with pieces those with few enough chunks: pairs of chunks to count and to
 * simulate grow with their square. */
static bool take_schedule(const Program *p, Choice *c, int n)
{
    enum { MOST_CHUNKS = 512 };
    c->schedule = schedule_at(p, n);
    const bool named = p->layout.schedule && strcmp(p->layout.schedule, c->schedule->name) == 0;
    const bool tried = !p->layout.schedule && (choice_pieces(c) == 1 || choice_chunks(c) <= MOST_CHUNKS);
    return (named || tried) && coords_wanted(p, c->schedule);
}

const char *schedule_text(Arena *a, const Choice *c)
{
    return c->of_mask ? by_mask_text(a, c, schedule_text) : c->schedule->name;
}

/* ---- context, heads: how the ranks of a group share a sequence ---- */

/* Also where one direction alone exchanges. */
int choice_heads(const Choice *c)
{
    const int x = c->schedule->exchanged;
    return x < 0 || !c->coords ? 1 : c->size[x];
}

static int context_of(const Choice *c)
{
    return c->ranks / choice_heads(c);
}

/* Where both are given, the one that asks for more says it. */
static const char *axis_why_not(Arena *a, const char *name, const Setting *asked, const Setting *other,
                                int value)
{
    const bool differs = !asked->is_auto && asked->value != value && (asked->value > value || other->is_auto);
    return differs ? arena_printf(a,
                                  "the schedule cannot use `%s %lld` of "
                                  "the layout",
                                  name, (long long)asked->value)
                   : NULL;
}

/* The sizes of the schedule's coordinates; where there are none, why_not says so. */
static bool take_context(const Program *p, Choice *c, int n)
{
    c->coords = 0;
    return coords_take(p, c, n) || n == 0;
}

static const char *context_why_not(Arena *a, const Program *p, const Choice *c)
{
    const char *axis = axis_why_not(a, "context", &p->layout.context, &p->layout.heads, context_of(c));
    return axis ? axis : coords_why_not(a, p, c);
}

static const char *heads_why_not(Arena *a, const Program *p, const Choice *c)
{
    const char *axis = axis_why_not(a, "heads", &p->layout.heads, &p->layout.context, choice_heads(c));
    return axis || choice_heads(c) <= p->model.heads
               ? axis
               : arena_printf(a, "%d ranks cannot share %d head%s; use at most %d rank%s or a ring schedule",
                              choice_heads(c), p->model.heads, plural(p->model.heads), p->model.heads,
                              plural(p->model.heads));
}

/* "16 x 4": the sizes of the coordinates, but for the exchanged one, which `heads` is of. */
static const char *context_text(Arena *a, const Choice *c)
{
    const char *text = NULL;
    for (int i = 0; i < c->coords && layers_share_sizes(c); i++)
        if (i != c->schedule->exchanged)
            text = text ? arena_printf(a, "%s x %d", text, c->size[i]) : arena_printf(a, "%d", c->size[i]);
    return text ? text : arena_printf(a, "%d", context_of(c));
}

static const char *heads_text(Arena *a, const Choice *c)
{
    return arena_printf(a, "%d", choice_heads(c));
}

/* ---- partition ---- */

static int64_t block_of(const Program *p, int ranks)
{
    const int64_t block = p->layout.block.given ? p->layout.block.value : (int64_t)BURST_TILE * ranks;
    return block < p->sequence ? block : p->sequence;
}

static int count_partitions(const Program *p)
{
    (void)p;
    return PART_KINDS;
}

/* Left open, only what can differ is tried: one rank has one partition, and so have all-to-all schedules
 * without rings, whose ranks attend the whole sequence. Pieces of contiguous chunks and of zigzag ones are
 * needed by other ranks each; those of a striped chunk by all alike. */
static bool take_partition(const Program *p, Choice *c, int n)
{
    c->partition = c->ranks == 1 ? PART_CONTIGUOUS : (PartitionKind)n; /* one rank has one */
    c->block = block_of(p, c->ranks);
    const bool alike = choice_pieces(c) > 1 && n != PART_CONTIGUOUS && n != PART_ZIGZAG &&
                       !p->layout.schedule;
    if (p->layout.partition.is_auto)
        return (!alike && (choice_rows(c, false) > 1 || choice_rows(c, true) > 1)) || n == PART_CONTIGUOUS;
    return p->layout.partition.value == n;
}

const char *partition_text(Arena *a, PartitionKind kind, int64_t block)
{
    const int shift = block % (1 << 20) == 0 ? 20 : block % (1 << 10) == 0 ? 10 : 0;
    return kind != PART_BLOCKS
               ? partition_names[kind]
               : arena_printf(a, "%s(%lld%s)", partition_names[kind], (long long)(block >> shift),
                              shift == 20 ? "Mi"
                              : shift     ? "Ki"
                                          : "");
}

Choice choice_on(const Program *p, const Choice *c)
{
    Choice other = *c;
    other.block = block_of(p, c->ranks);
    return other;
}

static const char *choice_partition_text(Arena *a, const Choice *c)
{
    return partition_text(a, c->partition, c->block);
}

/* ---- shares ---- */

static int count_shares(const Program *p)
{
    (void)p;
    return SHARES_KINDS;
}

/* Left open, by the speed of ranks that differ; an all-to-all shares out attention by heads, and only the
 * rest by tokens. */
static bool take_shares(const Program *p, Choice *c, int n)
{
    const Setting *given = &p->layout.shares;
    c->shares = c->ranks == 1 ? SHARES_EQUAL : (SharesKind)n;
    if (!given->is_auto)
        return given->value == n;
    return n == SHARES_EQUAL ||
           (n != SHARES_GIVEN && (n == SHARES_REST || !choice_exchanges(c)) && shares_differ(p, c));
}

static const char *choice_shares_text(Arena *a, const Choice *c)
{
    (void)a;
    return c->shares_text;
}

static bool always(const Program *p)
{
    (void)p;
    return true;
}

/* ---- offload: what lies in the host's memory ---- */

static bool offload_open(const Program *p)
{
    return p->layout.offload.is_auto;
}

/* Parameters, moments and gradients of the ranks of a node. */
static bool optimizer_fits_host(const Program *p)
{
    Arena *a = arena_new();
    const Units u = units_make(a, p, 0);
    double bytes = 0;
    for (int i = 0; i < u.n; i++)
        bytes += 16 * (double)u.at[i].repeat * (double)u.at[i].shard;
    arena_free(a);
    return bytes * cluster_most_ranks(&p->cluster) <= p->cluster.host_memory;
}

static int most_staged(const Program *p)
{
    return p->model.layers > 1 ? MOST_STAGED : 0;
}

static int count_offloads(const Program *p)
{
    return offload_open(p) ? most_staged(p) + 1 + optimizer_fits_host(p) : 1;
}

/* By need: none, then more and more of the values that layers save, at last the optimizer too. */
static bool take_offload(const Program *p, Choice *c, int n)
{
    const int most = most_staged(p);
    const Layout *l = &p->layout;
    c->staged = offload_open(p) ? (n < most ? n : most) : most ? (int)l->offload.value : 0;
    c->offload = most ? l->offloaded : NULL;
    c->staged_layers = l->staged_layers.value < p->model.layers && (c->staged || c->offload)
                           ? (int)l->staged_layers.value
                           : 0;
    c->optimizer = (offload_open(p) ? n > most : p->layout.host_optimizer) ? OPTIMIZER_ON_HOST
                                                                           : OPTIMIZER_ON_DEVICE;
    return true;
}

/* None, all activations, the optimizer, both. */
static bool other_offload(const Program *p, Choice *c, int n)
{
    const int ways = most_staged(p) ? 2 : 1; /* to stage activations */
    c->staged = n % ways ? MOST_STAGED : 0;
    c->offload = NULL;
    c->staged_layers = 0;
    c->fetch_chunks = c->fetch_chunks && c->staged;
    c->optimizer = n / ways == 0 ? OPTIMIZER_ON_DEVICE : c->optimizer ? c->optimizer : OPTIMIZER_ON_HOST;
    return n < 2 * ways;
}

static const char *staged_text(Arena *a, const Choice *c)
{
    const char *list = NULL,
               *layers = c->staged_layers ? arena_printf(a, ", layers %d", c->staged_layers) : "";
    if (!c->offload || !*c->offload)
        return c->staged ? arena_printf(a, "activations%s", layers) : NULL;
    for (const char *at = c->offload + 1; *at; at += strcspn(at, " ") + 1)
        list = arena_printf(a, "%s%s%.*s", list ? list : "", list ? ", " : "", (int)strcspn(at, " "), at);
    return list ? arena_printf(a, "activations(%s)%s", list, layers) : NULL;
}

static const char *offload_text(Arena *a, const Choice *c)
{
    const char *staged = staged_text(a, c);
    return !c->optimizer ? staged : staged ? arena_printf(a, "%s, optimizer", staged) : "optimizer";
}

/* Values by their names, where it is decided what layers save. */
static const char *offload_why_not(Arena *a, const Program *p, const Choice *c)
{
    const Saving v = saving_of(c);
    if (!c->offload || c->staged || c->spared)
        return NULL;
    const Partition one = {.max_tokens = 1};
    const char *can = offload_at(a, p, &one, units_make(a, p, 0), v, c->staged_layers, MOST_STAGED);
    for (const char *at = c->offload + 1; *at; at += strcspn(at, " ") + 1) {
        const char *name = arena_copy(a, at, strcspn(at, " "));
        if (!saves(can, name))
            return arena_printf(a,
                                "'%s' cannot be offloaded: backward with `recompute %s` does not read it "
                                "unchanged; it reads%.*s",
                                name, saving_text(a, v), (int)strlen(can) - 1, can);
    }
    return NULL;
}

/* ---- update: where what lies in the host's memory is updated ---- */

static int count_updates(const Program *p)
{
    return p->layout.host_optimizer && p->layout.update.is_auto ? countof(update_names) : 1;
}

/* Of update_names; false: nothing lies there, or there is no such name. */
static bool other_update(const Program *p, Choice *c, int n)
{
    (void)p;
    if (c->optimizer == OPTIMIZER_ON_DEVICE || n >= countof(update_names))
        return false;
    c->optimizer = n ? OPTIMIZER_FETCHED : OPTIMIZER_ON_HOST;
    return true;
}

static bool take_update(const Program *p, Choice *c, int n)
{
    other_update(p, c, p->layout.update.is_auto ? n : (int)p->layout.update.value);
    return true;
}

static const char *update_text(Arena *a, const Choice *c)
{
    (void)a;
    return c->optimizer ? update_names[c->optimizer == OPTIMIZER_FETCHED] : NULL;
}

/* ---- weights ---- */

/* What a rank holds whole: sharded over all ranks, then over those of a node. */
int sharding_count(const Program *p)
{
    (void)p;
    return 2 * SHARDINGS;
}

/* Over which ranks the n-th group of the row's values shards: all, then, where several nodes have as many
 * ranks each, those of a node, if `within node` is accepted there; or those that the layout says. -1:
 * there are not so many. */
static int64_t within_at(const Program *p, int n)
{
    const int node = cluster_node_ranks(&p->cluster), world = p->cluster.world;
    if (p->layout.within.given)
        return n ? -1 : p->layout.within.value < world ? p->layout.within.value : 0;
    return n == 0                                                                                       ? 0
           : n == 1 && node > 1 && node < world && cluster_shards(&p->cluster, program_tensor(p), node) ? node
                                                                                                        : -1;
}

/* One rank alone shards nothing, and without a second sequence zero1 is zero2, and no_sync zero3. */
static bool sharding_differs(const Program *p, const Choice *c)
{
    return c->sharding == SHARDING_ZERO3 ||
           (p->cluster.world > 1 && (c->sharding == SHARDING_ZERO2 || p->train.batch > c->data));
}

bool sharding_take(const Program *p, Choice *c, int n)
{
    const int64_t within = within_at(p, n / SHARDINGS);
    const bool is_auto = p->layout.weights.is_auto;
    c->sharding = (Sharding)(n % SHARDINGS);
    c->within = (int)within;
    return within >= 0 && (n < SHARDINGS || is_auto) &&
           (is_auto ? sharding_differs(p, c) : p->layout.weights.value == n % SHARDINGS);
}

static bool other_sharding(const Program *p, Choice *c, int n)
{
    const int kinds = p->cluster.world == 1 ? 1 : p->train.batch > c->data ? SHARDINGS : SHARDING_ZERO1;
    const int64_t within = within_at(p, n / kinds);
    c->sharding = (Sharding)(n % kinds);
    c->within = (int)within;
    return within >= 0;
}

static bool weights_open(const Program *p)
{
    return p->layout.weights.is_auto;
}

static const char *weights_text(Arena *a, const Choice *c)
{
    return c->within ? arena_printf(a, "%s within %d", sharding_names[c->sharding], c->within)
                     : sharding_names[c->sharding];
}

/* ---- ranges: ranges.c decides where the layout does not ---- */

static const char *ranges_why_not(Arena *a, const Program *p, const Choice *c)
{
    const bool asked = p->layout.ranges.given && !p->layout.ranges.is_auto && p->layout.ranges.value &&
                       c->ranks > 1;
    if (asked && choice_chunks_keys(c))
        return "`ranges yes` cannot be combined with `token chunks` with `keys`; remove `ranges` or use "
               "`token chunks` with `attention`";
    return !asked || !choice_exchanges(c)
               ? NULL
               : arena_printf(a,
                              "`ranges yes` cannot be combined with schedule '%s', which exchanges heads; "
                              "use a schedule without `exchange` or remove `ranges`",
                              c->schedule->name);
}

static const char *ranges_text(Arena *a, const Choice *c)
{
    (void)a;
    return c->ranges ? yes_no[1] : c->whole ? yes_no[0] : NULL;
}

/* ---- overlap: of what tensor ranks do among them with products ---- */

static int count_overlaps(const Program *p)
{
    return p->tensor && p->layout.overlap.is_auto ? 2 : 1;
}

static bool take_overlap(const Program *p, Choice *c, int n)
{
    c->overlap = p->tensor && (p->layout.overlap.is_auto ? n == 0 : p->layout.overlap.value);
    return true;
}

static const char *overlap_text(Arena *a, const Choice *c)
{
    (void)a;
    return c->tensor ? yes_no[c->overlap] : NULL;
}

/* ---- gradients: of weights, as they are kept ---- */

static int count_gradients(const Program *p)
{
    (void)p;
    return 1;
}

static bool take_gradients(const Program *p, Choice *c, int n)
{
    (void)n;
    c->bf16_gradients = p->layout.gradients.value;
    return true;
}

static const char *gradients_text(Arena *a, const Choice *c)
{
    (void)a;
    return c->bf16_gradients ? gradient_names[1] : NULL;
}

/* ---- the table ---- */

const Dimension dimensions[DIMENSIONS] = {
    {.name = "data",
     .column = 5,
     .if_several = true,
     .count = count_data,
     .take = take_data,
     .text = data_text},
    {.name = "schedule",
     .column = 11,
     .count = count_schedules,
     .take = take_schedule,
     .why_not = layers_why_not,
     .text = schedule_text},
    {.name = "context",
     .column = 9,
     .if_several = true,
     .count = coords_most,
     .take = take_context,
     .why_not = context_why_not,
     .text = context_text},
    {.name = "heads", .why_not = heads_why_not, .text = heads_text},
    {.name = "tensor", .column = 6, .if_several = true, .text = tensor_text},
    {.name = "placement",
     .column = 16,
     .if_several = true,
     .count = placement_count,
     .take = placement_take,
     .why_not = placement_why_not,
     .text = placement_text},
    {.name = "travel",
     .column = 8,
     .count = travel_count,
     .take = travel_take,
     .other = travel_other,
     .why_not = travel_why_not,
     .text = travel_text},
    {.name = "partition",
     .column = 13,
     .count = count_partitions,
     .take = take_partition,
     .text = choice_partition_text},
    {.name = "shares",
     .column = 20,
     .if_several = true,
     .count = count_shares,
     .take = take_shares,
     .why_not = shares_why_not,
     .text = choice_shares_text},
    {.name = "ffn chunks",
     .column = 10,
     .if_several = true,
     .by_need = true,
     .count = ffn_chunks_count,
     .take = ffn_chunks_take,
     .other = ffn_chunks_other,
     .fits_each = ffn_chunks_open,
     .text = ffn_chunks_text},
    {.name = "recompute",
     .column = 9,
     .by_need = true,
     .other_way = saving_other_way,
     .count = saving_count,
     .take = saving_take,
     .other = saving_other,
     .fits_each = always,
     .why_not = saving_why_not,
     .text = saving_choice_text},
    {.name = "offload",
     .column = 26,
     .if_several = true,
     .by_need = true,
     .need_first = true,
     .takes_host = true,
     .count = count_offloads,
     .take = take_offload,
     .other = other_offload,
     .fits_each = offload_open,
     .why_not = offload_why_not,
     .text = offload_text},
    {.name = "head chunks",
     .column = 11,
     .if_several = true,
     .by_need = true,
     .count = head_chunks_count,
     .take = head_chunks_take,
     .other = head_chunks_other,
     .fits_each = head_chunks_open,
     .why_not = head_chunks_why_not,
     .text = head_chunks_text},
    {.name = "token chunks",
     .column = 13,
     .if_several = true,
     .by_need = true,
     .other_way = token_chunks_other_way,
     .other_needs_less = true,
     .count = token_chunks_count,
     .take = token_chunks_take,
     .other = token_chunks_other,
     .fits_each = token_chunks_open,
     .why_not = token_chunks_why_not,
     .text = token_chunks_text},
    {.name = "fetch",
     .column = 6,
     .if_several = true,
     .by_need = true,
     .count = fetch_count,
     .take = fetch_take,
     .other = fetch_other,
     .fits_each = fetch_open,
     .why_not = fetch_why_not,
     .text = fetch_text},
    {.name = "loss tile",
     .column = 9,
     .if_several = true,
     .by_need = true,
     .need_first = true,
     .count = loss_tile_count,
     .take = loss_tile_take,
     .other = loss_tile_other,
     .fits_each = loss_tile_open,
     .text = loss_tile_text},
    {.name = "weights",
     .column = 15,
     .if_several = true,
     .count = sharding_count,
     .take = sharding_take,
     .other = other_sharding,
     .fits_each = weights_open,
     .text = weights_text},
    {.name = "overlap",
     .column = 8,
     .if_several = true,
     .count = count_overlaps,
     .take = take_overlap,
     .text = overlap_text},
    {.name = "gradients", .count = count_gradients, .take = take_gradients, .text = gradients_text},
    {.name = "update",
     .column = 6,
     .if_several = true,
     .count = count_updates,
     .take = take_update,
     .other = other_update,
     .text = update_text},
    {.name = "ranges", .why_not = ranges_why_not, .text = ranges_text},
};

const char *choice_why_not(Arena *a, const Program *p, const Choice *c)
{
    const char *reason = NULL;
    for (int i = 0; i < DIMENSIONS && !reason; i++)
        reason = dimensions[i].why_not ? dimensions[i].why_not(a, p, c) : NULL;
    return reason;
}

const char *choice_text(Arena *a, const Choice *c)
{
    const char *all = "layout {";
    for (int i = 0; i < DIMENSIONS; i++) {
        const char *text = dimensions[i].text(a, c);
        all = text ? arena_printf(a, "%s %s %s;", all, dimensions[i].name, text) : all;
    }
    return arena_printf(a, "%s }", all);
}
