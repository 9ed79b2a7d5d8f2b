/* settings/partition.c: `partition`: which tokens of a sequence a rank has. */
#include "layout/layout.h"

#include "burst_sizes.h"

static int64_t block_of(const Program *p, int ranks)
{
    const bool given = p->layout.block.given && p->layout.partition.value == PART_BLOCKS;
    const int64_t unit = selection_unit(p), least = unit > BURST_TILE ? unit : BURST_TILE;
    const int64_t block = given ? p->layout.block.value : least * ranks;
    return block < p->sequence ? block : p->sequence;
}

enum { USUAL_RUN = 1 << 10 };

/* Run length of a balanced partition: the layout's, or the longest up to 1Ki that divides a rank's
 * tokens. */
static int64_t run_of(const Program *p, int ranks)
{
    int64_t run = USUAL_RUN;
    if (p->layout.block.given && p->layout.partition.value == PART_BALANCED)
        return p->layout.block.value;
    while (run > BURST_TILE && p->sequence % (run * ranks) != 0)
        run /= 2;
    return run;
}

Choice choice_in(const Program *p, const Choice *c, PartitionKind kind)
{
    Choice other = *c;
    other.partition = kind;
    other.block = kind == PART_BALANCED ? run_of(p, c->ranks) : block_of(p, c->ranks);
    return other;
}

static int count(const Program *p)
{
    (void)p;
    return PART_KINDS;
}

static const char *why_not_balanced(Arena *a, const Program *p, const Choice *c)
{
    if (!p->table_count)
        return "partition balanced needs a mask that reads a per-token table, such as document; other masks "
               "leave the same work in every batch";
    if (c->block % BURST_TILE != 0)
        return arena_printf(a, "runs of partition balanced must be a multiple of %d tokens", BURST_TILE);
    if (p->sequence % (c->block * c->ranks) != 0)
        return arena_printf(
            a, "partition balanced(%lld) over %d ranks needs a sequence of a multiple of %lld tokens",
            (long long)c->block, c->ranks, (long long)(c->block * c->ranks));
    return NULL;
}

/* Tokens of the shortest run, of all lengths in a program that infers. */
static int64_t least_run(Arena *a, const Program *p, const Choice *c, const Partition *of)
{
    int64_t least = partition_least_run(of);
    for (int i = 0; i < p->infer.lengths; i++) {
        const int64_t run = partition_least_run(
            partition_shared(a, c->partition, c->block, p->infer.length[i], c->ranks, c->share));
        least = run < least ? run : least;
    }
    return least;
}

/* Recurrent layers scan the pieces of a rank, runs of its tokens, in place. */
static const char *why_not_scan(Arena *a, const Program *p, const Choice *c)
{
    if (!p->model.scan.columns || c->ranks == 1 || p->library)
        return NULL;
    if (c->partition == PART_STRIPED)
        return "partition striped leaves ranks no runs of tokens that 'scan' could follow; use contiguous, "
               "zigzag "
               "or blocks";
    const Partition *of = partition_shared(a, c->partition, c->block, p->sequence, c->ranks, c->share);
    const int most = partition_batch_runs(p, of), halo = p->model.scan_kernel - 1;
    const char *name = partition_text(a, c->partition, c->block);
    if (most > BURST_MOST_PIECES)
        return arena_printf(a, "partition %s gives a rank %d runs of tokens, and 'scan' supports at most %d",
                            name, most, BURST_MOST_PIECES);
    if (p->target->device_memory && most * c->ranks > BURST_GPU_FOLDED_PIECES)
        return arena_printf(a,
                            "partition %s has up to %d runs of tokens on %d ranks, and 'scan' supports at "
                            "most %d in %s programs",
                            name, most * c->ranks, c->ranks, BURST_GPU_FOLDED_PIECES, p->target->language);
    const int64_t least = least_run(a, p, c, of);
    if (least < halo)
        return arena_printf(
            a,
            "partition %s over %d ranks has a run of %lld tokens, and 'conv' of the scan needs "
            "runs of at least %d",
            name, c->ranks, (long long)least, halo);
    return NULL;
}

static bool tries_scan(const Program *p, const Choice *c)
{
    Arena *a = arena_new();
    const bool works = !why_not_scan(a, p, c);
    arena_free(a);
    return works;
}

/* Whether a balanced partition can be tried: it can be compared with fixed ones only by drawn batches. */
static bool tries_balanced(const Program *p, const Choice *c)
{
    Arena *a = arena_new();
    const bool works = mask_draws(p) && !why_not_balanced(a, p, c);
    arena_free(a);
    return works;
}

/* If open, a balanced partition is tried if document lengths are known and keys travel. Only values that
 * differ are tried: one rank has one partition, and so have all-to-all schedules without rings, whose ranks
 * attend the whole sequence. With pieces, those of contiguous and zigzag chunks are needed by different
 * ranks, those of a striped chunk by all ranks alike. Striped rarely wins then, and is not tried if many
 * chunks had to be counted. */
static bool take(const Program *p, Choice *c, int n)
{
    enum { FEW_PIECES = 64 }; /* of all ranks */
    /* all partitions are the same for one rank */
    *c = choice_in(p, c, c->ranks == 1 ? PART_CONTIGUOUS : (PartitionKind)n);
    const bool alike = choice_pieces(c) > 1 && choice_chunks(c) > FEW_PIECES && n != PART_CONTIGUOUS &&
                       n != PART_ZIGZAG && !p->layout.schedule;
    if (p->layout.partition.is_auto)
        return tries_scan(p, c) &&
               (n != PART_BALANCED || (c->travel == TRAVEL_KEYS && tries_balanced(p, c))) &&
               ((!alike && (choice_rows(c, false) > 1 || choice_rows(c, true) > 1)) || n == PART_CONTIGUOUS);
    return p->layout.partition.value == n;
}

const char *partition_text(Arena *a, PartitionKind kind, int64_t block)
{
    static const struct { int shift; const char *text; } units[] = {{20, "Mi"}, {10, "Ki"}, {0, ""}};
    int i = 0;
    if (kind != PART_BLOCKS && kind != PART_BALANCED)
        return partition_names[kind];
    while (block % (1 << units[i].shift))
        i++;
    return arena_printf(a, "%s(%lld%s)", partition_names[kind], (long long)(block >> units[i].shift),
                        units[i].text);
}

Choice choice_on(const Program *p, const Choice *c) { return choice_in(p, c, c->partition); }

static const char *text(Arena *a, const Choice *c) { return partition_text(a, c->partition, c->block); }

static const char *idle(Arena *a, const Program *p, const Choice *c)
{
    (void)a;
    return c->ranks == 1 && p->layout.partition.value != PART_CONTIGUOUS ? idle_on_one_rank : NULL;
}

/* A device's kernels look up 16 tokens of a tile together, so each piece of a rank's keys begins with a whole
 * tile. */
static const char *pieces_why_not(Arena *a, const Program *p, const Choice *c, const Partition *part,
                                  int64_t unit)
{
    const int pieces = choice_pieces(c);
    for (int r = 0; r < part->ranks && p->target->device_memory && pieces > 1; r++)
        if (part->of[r].tokens % (unit * pieces))
            return arena_printf(
                a,
                "on GPUs a selection needs whole tiles of %lld tokens in each of the %d pieces of a rank's "
                "keys; use a schedule without `pieces`, or a multiple of %lld tokens a rank",
                (long long)unit, pieces, (long long)unit * pieces);
    return NULL;
}

/* Selections need whole tiles and blocks on each rank. */
static const char *tiles_why_not(Arena *a, const Program *p, const Choice *c)
{
    if (!p->model.selects || c->ranks == 1)
        return NULL;
    if (c->partition == PART_STRIPED || c->partition == PART_BALANCED) /* that deals tiles of 64 */
        return arena_printf(a, "partition %s cuts the tiles of a selection; use zigzag, contiguous or blocks",
                            partition_names[c->partition]);
    const int64_t unit = selection_unit(p);
    const Partition *part = partition_shared(a, c->partition, c->block, p->sequence, c->ranks, c->share);
    if (partition_has_whole(part, unit))
        return pieces_why_not(a, p, c, part, unit);
    const int64_t ranks = c->ranks * (c->partition == PART_ZIGZAG ? 2 : 1);
    if (c->partition == PART_BLOCKS)
        return arena_printf(
            a,
            "selections need whole tiles of %lld tokens on each rank, which partition %s over %d "
            "ranks cuts; use zigzag or contiguous, or blocks of a multiple of %lld tokens",
            (long long)unit, partition_text(a, c->partition, c->block), c->ranks,
            (long long)(unit * c->ranks));
    return arena_printf(
        a,
        "selections need whole tiles of %lld tokens on each rank, which partition %s over %d ranks "
        "cuts; use a sequence of a multiple of %lld tokens, or another partition",
        (long long)unit, partition_text(a, c->partition, c->block), c->ranks, (long long)(unit * ranks));
}

static const char *why_not(Arena *a, const Program *p, const Choice *c)
{
    const char *scan = why_not_scan(a, p, c), *tiles = scan ? scan : tiles_why_not(a, p, c);
    if (tiles || c->partition != PART_BALANCED)
        return tiles;
    const char *text = why_not_balanced(a, p, c);
    if (text)
        return text;
    return c->shares == SHARES_EQUAL
               ? NULL
               : "partition balanced gives every rank as many tokens; set `shares equal`";
}

const SettingRecord setting_partition = {
    .form = &(const SettingForm){.name = "partition", .at = offsetof(Layout, partition)},
    .column = 13,
    .count = count,
    .take = take,
    .why_not = why_not,
    .text = text,
    .idle = {{offsetof(Layout, partition), idle}},
};
