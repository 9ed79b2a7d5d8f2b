/* check_topo.c: clusters, devices and network cards. */
#include "check.h"

#include <ctype.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

static const double KB = 1e3, GB = 1e9, GIB = 0x1p30;

/* ---- devices ---- */
static void take_arch(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    Device *d = to;
    Cursor u = cursor_of(c, s);
    const Ast *name = cursor_name(&u, "cpu or an architecture such as sm_90a");
    if (!cursor_end(&u))
        return;
    const char *t = name->text;
    size_t digits = strncmp(t, "sm_", 3) == 0 ? strspn(t + 3, "0123456789") : 0;
    bool sm = digits >= 2 && digits <= 3 &&
              (t[3 + digits] == 0 || (islower((unsigned char)t[3 + digits]) && !t[4 + digits]));
    if (!sm && strcmp(t, "cpu") != 0)
        diag_error(c->diags, name->span,
                   "'arch' must be cpu or an architecture such as sm_80 or sm_90a, not "
                   "'%s'",
                   t);
    d->arch = t;
    d->target = &targets[strcmp(t, "cpu") == 0 ? TARGET_C : TARGET_CUDA];
}

typedef struct DeviceFields {
    DeviceDecl decl;
    const char *matmul_type;
    Span matmul_span, forward, backward;
    Vec(AttentionRate) rates;
} DeviceFields;

static void take_matmul(Checker *c, const Ast *s, const Field *f, void *to)
{
    const char *const types[] = {targets[TARGET_CUDA].matmul_type, targets[TARGET_C].matmul_type};
    DeviceFields *d = to;
    Cursor u = cursor_of(c, s);
    const int type = cursor_choice(&u, types, countof(types));
    d->matmul_type = type < 0 ? NULL : types[type];
    d->matmul_span = s->span;
    cursor_number(&u, f->unit, f->lo, f->hi, &d->decl.device.matmul);
    cursor_end(&u);
}

/* Adds a rate, sorted by falling value. A second one of the same kind and value is an error. */
static void add_rate(Checker *c, const Ast *s, DeviceFields *d, AttentionRate r)
{
    int at = 0;
    for (; at < d->rates.n; at++) {
        const AttentionRate *x = &d->rates.at[at];
        if (x->kind == r.kind && x->value == r.value && x->backward == r.backward) {
            duplicate(c, s, x->span, "the rate of this kind of attention");
            return;
        }
        if (x->value < r.value)
            break;
    }
    vec_push(c->arena, &d->rates);
    memmove(&d->rates.at[at + 1], &d->rates.at[at], sizeof r * (size_t)(d->rates.n - 1 - at));
    d->rates.at[at] = r;
}

/* Reads `head_dim 64`, `keys 1Ki`, `partial`. Returns false for anything else, or after an error. */
static bool take_kind(Cursor *u, AttentionRate *r)
{
    static const char *const kinds[] = {
#define X(id, name) name,
        ATTENTION_KINDS(X)
#undef X
    };
    for (int i = 0; i < ATTENTION_KIND_COUNT; i++) {
        if (!cursor_try(u, kinds[i]))
            continue;
        r->kind = (AttentionKind)i;
        return i == ATTENTION_PARTIAL || cursor_whole(u, 1, INT64_C(1) << 40, &r->value);
    }
    return false;
}

static void take_attention_rate(Checker *c, const Ast *s, const Field *f, void *to)
{
    static const char *const directions[] = {"forward", "backward"};
    DeviceFields *d = to;
    Cursor u = cursor_of(c, s);
    int direction = cursor_choice(&u, directions, 2);
    AttentionRate r = {.backward = direction == 1, .span = s->name_span};
    const bool special = direction >= 0 && take_kind(&u, &r);
    if (!cursor_number(&u, f->unit, f->lo, f->hi, &r.rate) || !cursor_end(&u))
        return;
    Span *first = direction ? &d->backward : &d->forward;
    if (special)
        add_rate(c, s, d, r);
    else if (first->src)
        duplicate(c, s, *first, arena_printf(c->arena, "'attention %s'", directions[direction]));
    else {
        *first = s->name_span;
        *(direction ? &d->decl.device.attention_backward : &d->decl.device.attention_forward) = r.rate;
    }
}

static void take_measured(Checker *c, const Ast *s, const Field *f, void *to)
{
    bool measured = true;
    take_yes_no(c, s, f, &measured);
    ((DeviceFields *)to)->decl.device.unmeasured = !measured;
}

#define AT(member) offsetof(DeviceFields, member)
static const Field device_fields[] = {
    {"arch", take_arch, AT(decl.device), FIELD_REQUIRED},
    {"memory", take_double, AT(decl.device.memory), FIELD_REQUIRED, UNIT_BYTES, 1e6, 1e15},
    {"hbm", take_double, AT(decl.device.hbm), 0, UNIT_RATE, 1e6, 1e16},
    {"passes", take_double, AT(decl.device.passes), 0, UNIT_RATE, 1e6, 1e16},
    {"norms", take_double, AT(decl.device.norms), 0, UNIT_RATE, 1e6, 1e16},
    {"matmul", take_matmul, 0, FIELD_REQUIRED, UNIT_FLOPS, 1e6, 1e18},
    {"experts", take_double, AT(decl.device.experts), 0, UNIT_FLOPS, 1e6, 1e18},
    {"peak", take_double, AT(decl.device.peak), 0, UNIT_FLOPS, 1e6, 1e18},
    {"attention", take_attention_rate, 0, FIELD_REPEATS, UNIT_FLOPS, 1e6, 1e18},
    {"link", take_double, AT(decl.link), 0, UNIT_RATE, 1e6, 1e15},
    {"measured", take_measured, 0, 0},
};
#undef AT

/* The number in sm_90a. */
static int generation(const Device *d)
{
    return atoi(d->arch + strcspn(d->arch, "0123456789"));
}

/* The stock device with short-row rates and the nearest architecture; NULL: of another target. */
static const Device *nearest_stock(const Checker *c, const Device *d)
{
    const Device *nearest = NULL;
    for (int i = 0; i < c->devices.n; i++) {
        const Device *x = &c->devices.at[i]->device;
        if (!c->devices.at[i]->stock || x->target != d->target || !x->rates)
            continue;
        const int far = abs(generation(x) - generation(d));
        if (!nearest || far < abs(generation(nearest) - generation(d)))
            nearest = x;
    }
    return nearest;
}

/* User-defined devices without short-row rates use the nearest stock device's, scaled: the cost of a row's
 * begin and end is the kernels', not the chip's. */
static void take_shape(Checker *c, Device *d)
{
    const bool measured = c->stock && !d->unmeasured;
    const Device *like = measured || d->rates ? NULL : nearest_stock(c, d);
    if (!like)
        return;
    AttentionRate *rate = NEW_ARRAY(c->arena, AttentionRate, like->rates);
    for (int i = 0; i < like->rates; i++) {
        const bool backward = like->rate[i].backward;
        rate[i] = like->rate[i];
        rate[i].rate *= backward ? d->attention_backward / like->attention_backward
                                 : d->attention_forward / like->attention_forward;
    }
    d->rate = rate;
    d->rates = like->rates;
}

/* Defaults of a device: the fractions of the matrix rate that attention kernels reach today, and common
 * memory and links of its kind. */
static void device_defaults(Checker *c, DeviceFields *f)
{
    Device *d = &f->decl.device;
    const Target *t = d->target;
    if (!d->arch)
        return;
    if (f->matmul_type && strcmp(f->matmul_type, t->matmul_type) != 0)
        diag_error(c->diags, f->matmul_span, "a %s device requires its matmul rate in %s", t->device,
                   t->matmul_type);
    if (d->peak && d->peak < d->matmul)
        diag_error(c->diags, f->matmul_span,
                   "a matmul rate of %g TFLOP/s exceeds the device's peak of %g; 'peak' is that of the data "
                   "sheet (dense, without sparsity)",
                   d->matmul * 1e-12, d->peak * 1e-12);
    if (!d->peak)
        d->peak = d->matmul;
    if (!d->experts)
        d->experts = d->matmul * t->experts_share;
    if (!d->attention_forward)
        d->attention_forward = d->matmul * t->attention_share[0];
    if (!d->attention_backward)
        d->attention_backward = d->matmul * t->attention_share[1];
    if (!d->hbm)
        d->hbm = t->memory_rate;
    if (!d->passes)
        d->passes = d->hbm * t->passes_share;
    if (!d->norms)
        d->norms = d->passes;
    d->rate = f->rates.at;
    d->rates = f->rates.n;
    take_shape(c, d);
    if (!f->decl.link)
        f->decl.link = t->link_rate;
}

static void take_device(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    (void)to;
    DeviceFields d = {.decl.device = {.target = &targets[TARGET_CUDA], .span = s->span},
                      .decl.stock = c->stock};
    d.decl.device.name = block_name(c, s);
    take_fields(c, s->body, device_fields, countof(device_fields), &d, "the device", s->span);
    device_defaults(c, &d);
    if (!d.decl.device.name)
        return;
    for (int i = 0; i < c->devices.n; i++) {
        const DeviceDecl *other = c->devices.at[i];
        if (strcmp(other->device.name, d.decl.device.name) == 0 && other->stock == c->stock) {
            duplicate(c, s, other->device.span, arena_printf(c->arena, "device '%s'", d.decl.device.name));
            return;
        }
    }
    *vec_push(c->arena, &c->devices) = memcpy(NEW(c->arena, DeviceDecl), &d.decl, sizeof d.decl);
}

/* ---- network cards ---- */
static const Field nic_fields[] = {
    {"bandwidth", take_double, offsetof(Nic, bandwidth), FIELD_REQUIRED, UNIT_RATE, 1e3, 1e15},
    {"latency", take_double, offsetof(Nic, latency), 0, UNIT_TIME, 0, 1e9},
};

static void take_nic(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    (void)to;
    Nic nic = {.latency = 5 * KB, .span = s->span, .name = block_name(c, s)};
    take_fields(c, s->body, nic_fields, countof(nic_fields), &nic, "the nic", s->span);
    if (!nic.name)
        return;
    for (int i = 0; i < c->nics.n; i++) {
        const NicDecl *other = c->nics.at[i];
        if (strcmp(other->nic.name, nic.name) == 0 && other->stock == c->stock) {
            duplicate(c, s, other->nic.span, arena_printf(c->arena, "nic '%s'", nic.name));
            return;
        }
    }
    NicDecl *decl = *vec_push(c->arena, &c->nics) = NEW(c->arena, NicDecl);
    *decl = (NicDecl){nic, c->stock};
}

static void take_import(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    (void)to;
    import_file(c, s, ".topo", check_topology);
}

static const Field topology_fields[] = {
    {"import", take_import, 0, FIELD_REPEATS},
    {"cluster", take_once, offsetof(Checker, cluster), FIELD_BLOCK},
    {"device", take_device, 0, FIELD_BLOCK | FIELD_REPEATS},
    {"nic", take_nic, 0, FIELD_BLOCK | FIELD_REPEATS},
    {"host", take_once, offsetof(Checker, host), FIELD_BLOCK},
};

bool is_cluster_file(AstList items)
{
    return has_setting(items, topology_fields, countof(topology_fields));
}

static void refuse_declaration(Checker *c, Ast *s)
{
    const char *what = s->kind == A_SELECT ? "selection" : "schedule";
    diag_error(c->diags, s->name_span, "a %s is not allowed in a cluster file",
               s->kind == A_MASK ? "mask" : what);
}

void check_topology(Checker *c, AstList items)
{
    take_file(c, items, refuse_declaration, topology_fields, countof(topology_fields), "a cluster file");
}

/* ---- the cluster ---- */
/* The user's declaration hides a stock one of the same name. */
#define FIND_DECL(list, field, word)                                                     \
    ({                                                                                   \
        typeof((list).at[0]) found_ = NULL;                                              \
        for (int i_ = 0; i_ < (list).n; i_++)                                            \
            if (strcmp((list).at[i_]->field.name, word) == 0 && (!found_ || found_->stock)) \
                found_ = (list).at[i_];                                                  \
        found_;                                                                          \
    })

static const DeviceDecl *find_device(Checker *c, const Ast *name)
{
    const DeviceDecl *d = FIND_DECL(c->devices, device, name->text);
    if (d)
        return d;
    const char **names = NEW_ARRAY(c->arena, const char *, c->devices.n);
    for (int i = 0; i < c->devices.n; i++)
        names[i] = c->devices.at[i]->device.name;
    unknown_of(c, name->span, name->text, names, c->devices.n, "device");
    return NULL;
}

static const NicDecl *find_nic(Checker *c, const Ast *name)
{
    const NicDecl *n = FIND_DECL(c->nics, nic, name->text);
    if (n)
        return n;
    const char **names = NEW_ARRAY(c->arena, const char *, c->nics.n);
    for (int i = 0; i < c->nics.n; i++)
        names[i] = c->nics.at[i]->nic.name;
    unknown_of(c, name->span, name->text, names, c->nics.n, "nic");
    return NULL;
}

typedef struct ClusterFields {
    Cluster cluster;
    Vec(NodeGroup) groups;
    double link; /* slowest of its devices, if the cluster does not give a link */
    Span link_span, nodes_span;
    bool nics_missing;
} ClusterFields;
typedef struct GroupFields { NodeGroup group; double link; Span devices; bool nic_given; } GroupFields;

/* "4 of h200"; in_turn: whether words for that may follow */
static const Ast *count_of(Checker *c, const Ast *s, const Field *f, int *count, bool *in_turn)
{
    Cursor u = cursor_of(c, s);
    int64_t n = 0;
    cursor_whole(&u, (int64_t)f->lo, (int64_t)f->hi, &n);
    cursor_word(&u, "of");
    const Ast *name = cursor_name(&u, "the name of the devices or nics");
    *count = (int)n;
    if (in_turn)
        *in_turn = cursor_try(&u, "in") && cursor_word(&u, "turn");
    cursor_end(&u);
    return name;
}

static void take_gpus(Checker *c, const Ast *s, const Field *f, void *to)
{
    GroupFields *g = to;
    if (g->devices.src) {
        duplicate(c, s, g->devices, "the kind of device of this group");
        diag_note(c->diags, g->devices, "use another 'nodes' for nodes with other devices");
        return;
    }
    g->devices = s->name_span;
    const Ast *name = count_of(c, s, f, &g->group.gpus, NULL);
    const DeviceDecl *d = name ? find_device(c, name) : NULL;
    if (!d)
        return;
    g->group.device = &d->device;
    g->link = d->link;
    if (d->device.unmeasured)
        diag_warn(c->diags, WARN_UNMEASURED_DEVICE, name->span,
                  "the rates of '%s' were never measured: they are its data sheet's, scaled by what other "
                  "devices reach; `burstc probe` measures those of a machine",
                  name->text);
}

static void take_nics(Checker *c, const Ast *s, const Field *f, void *to)
{
    GroupFields *g = to;
    const Ast *name = count_of(c, s, f, &g->group.nics, &g->group.nics_in_turn);
    const NicDecl *n = name ? find_nic(c, name) : NULL;
    g->nic_given = true;
    if (n)
        g->group.nic = &n->nic;
}

static const Field group_fields[] = {
    {"gpus", take_gpus, 0, 0, UNIT_NONE, 1, 1024},
    {"cpus", take_gpus, 0, 0, UNIT_NONE, 1, 1024},
    {"nics", take_nics, 0, 0, UNIT_NONE, 1, 1024},
};

static void take_nodes(Checker *c, const Ast *s, const Field *f, void *to)
{
    ClusterFields *k = to;
    GroupFields g = {.group.span = s->span, .group.nics = 1};
    int64_t nodes = 0;
    Cursor u = cursor_of(c, s);
    cursor_whole(&u, (int64_t)f->lo, (int64_t)f->hi, &nodes);
    cursor_end(&u);
    g.group.nodes = (int)nodes;
    take_fields(c, s->body, group_fields, countof(group_fields), &g, "a group of nodes", s->span);
    if (!g.devices.src)
        diag_error(c->diags, s->span, "a group of nodes requires 'gpus' or 'cpus', such as gpus 4 of h200");
    if (!g.nic_given)
        g.group.nic = &FIND_DECL(c->nics, nic, "ethernet10")->nic;
    k->nics_missing |= !g.nic_given;
    k->nodes_span = s->span;
    if (!g.group.device || !g.group.nic || !nodes)
        return;
    if (!k->link || g.link < k->link)
        k->link = g.link;
    *vec_push(c->arena, &k->groups) = g.group;
}

/* `117 GB/s`, `117 GB/s alone 290 GB/s`, `117 GB/s alone 290 GB/s taking 0.2` */
static void take_sums(Checker *c, const Ast *s, const Field *f, void *to)
{
    Cluster *k = to;
    Cursor u = cursor_of(c, s);
    cursor_number(&u, f->unit, f->lo, f->hi, &k->link_sums);
    if (cursor_try(&u, "alone"))
        cursor_number(&u, f->unit, f->lo, f->hi, &k->link_sums_alone);
    if (cursor_try(&u, "taking"))
        cursor_number(&u, UNIT_NONE, 0, 0.9, &k->link_sums_taking);
    cursor_end(&u);
}

static const Field link_fields[] = {
    {"bandwidth", take_double, offsetof(Cluster, link_bandwidth), FIELD_REQUIRED, UNIT_RATE, 1e3, 1e15},
    {"latency", take_double, offsetof(Cluster, link_latency), 0, UNIT_TIME, 0, 1e9},
    {"sums", take_sums, 0, 0, UNIT_RATE, 1e3, 1e15},
};
static const Field fabric_fields[] = {
    {"oversubscription", take_double, offsetof(Cluster, oversubscription), 0, UNIT_NONE, 1, 1000},
};
/* `55 GB/s`, `55 GB/s both 45 GB/s`, `55 GB/s shared by 2` */
static void take_pcie(Checker *c, const Ast *s, const Field *f, void *to)
{
    enum { MOST = 1024 };
    Cluster *k = to;
    Cursor u = cursor_of(c, s);
    cursor_number(&u, f->unit, f->lo, f->hi, &k->pcie);
    if (cursor_try(&u, "both"))
        cursor_number(&u, f->unit, f->lo, f->hi, &k->pcie_both);
    if (cursor_try(&u, "shared") && cursor_word(&u, "by"))
        cursor_whole(&u, 1, MOST, &k->pcie_shared);
    cursor_end(&u);
}

static const Field host_fields[] = {
    {"memory", take_double, offsetof(Cluster, host_memory), 0, UNIT_BYTES, 1e6, 1e16},
    {"pcie", take_pcie, 0, 0, UNIT_RATE, 1e6, 1e15},
    {"bandwidth", take_double, offsetof(Cluster, host_bandwidth), 0, UNIT_RATE, 1e6, 1e15},
    {"cores", take_int, offsetof(Cluster, host_cores), 0, UNIT_NONE, 1, 65536},
};

static void take_link(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    ClusterFields *k = to;
    block_name(c, s);
    k->link_span = s->span;
    take_fields(c, s->body, link_fields, countof(link_fields), &k->cluster, "the link", s->span);
}

static void take_fabric(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    ClusterFields *k = to;
    Cursor u = cursor_of(c, s);
    cursor_end(&u);
    take_fields(c, s->body, fabric_fields, countof(fabric_fields), &k->cluster, "the fabric", s->span);
}

/* ---- levels above the node ---- */
/* `400 Gb/s x 8` */
static void take_uplink(Checker *c, const Ast *s, const Field *f, void *to)
{
    double *uplink = to;
    int64_t count = 1;
    Cursor u = cursor_of(c, s);
    cursor_number(&u, f->unit, f->lo, f->hi, uplink);
    if (cursor_try(&u, "x") && cursor_whole(&u, 1, 1 << 20, &count))
        *uplink *= (double)count;
    cursor_end(&u);
}

static const Field level_fields[] = {
    {"nodes", take_int, offsetof(Level, nodes), FIELD_REQUIRED, UNIT_NONE, 1, 65536},
    {"uplink", take_uplink, offsetof(Level, uplink), 0, UNIT_RATE, 1e3, 1e15},
    {"oversubscription", take_double, offsetof(Level, oversubscription), 0, UNIT_NONE, 1, 1000},
    {"latency", take_double, offsetof(Level, latency), 0, UNIT_TIME, 0, 1e9},
};

static bool fits_inside(Checker *c, const Cluster *k, const Level *l)
{
    const Level *inner = k->levels ? &k->level[k->levels - 1] : NULL;
    for (int i = 0; i < k->levels; i++)
        if (strcmp(k->level[i].name, l->name) == 0) {
            diag_error(c->diags, l->span, "level '%s' is defined twice", l->name);
            diag_note(c->diags, k->level[i].span, "here");
            return false;
        }
    if (k->levels == MAX_LEVELS)
        diag_error(c->diags, l->span, "more than %d levels above the node are not supported", MAX_LEVELS);
    else if (inner && (l->nodes % inner->nodes || l->nodes == inner->nodes))
        diag_error(c->diags, l->span,
                   "a %s of %d node%s does not consist of two or more whole '%s' levels of %d nodes; list "
                   "levels from the node outwards; this one could have %d nodes",
                   l->name, l->nodes, plural(l->nodes), inner->name, inner->nodes,
                   (l->nodes / inner->nodes + 1) * inner->nodes);
    else
        return true;
    return false;
}

static void take_level(Checker *c, const Ast *s, const Field *f, void *to)
{
    (void)f;
    ClusterFields *k = to;
    Level l = {.oversubscription = 1, .latency = KB, .name = block_name(c, s), .span = s->span};
    take_fields(c, s->body, level_fields, countof(level_fields), &l, "the level", s->span);
    if (l.name && l.nodes && fits_inside(c, &k->cluster, &l))
        k->cluster.level[k->cluster.levels++] = l;
}

static const Field cluster_fields[] = {
    {"nodes", take_nodes, 0, FIELD_REQUIRED | FIELD_BLOCK | FIELD_REPEATS, UNIT_NONE, 1, 65536},
    {"link", take_link, 0, FIELD_BLOCK},
    {"fabric", take_fabric, 0, FIELD_BLOCK},
    {"level", take_level, 0, FIELD_BLOCK | FIELD_REPEATS},
};

static void total_up(Checker *c, ClusterFields *k)
{
    Cluster *cluster = &k->cluster;
    int64_t nodes = 0, world = 0;
    bool mixed = false;
    for (int i = 0; i < k->groups.n; i++) {
        const NodeGroup *g = &k->groups.at[i];
        nodes += g->nodes;
        world += (int64_t)g->nodes * g->gpus;
        mixed = mixed || g->device->target != k->groups.at[0].device->target;
    }
    if (world > 1 << 20)
        diag_error(c->diags, cluster->span, "the cluster has %lld ranks; more than %d are not supported",
                   (long long)world, 1 << 20);
    if (mixed)
        diag_error(c->diags, cluster->span,
                   "the cluster mixes CPUs and GPUs; a program runs on one kind of device");
    if (nodes > 1 && k->nics_missing)
        diag_error(c->diags, k->nodes_span, "a cluster of %lld nodes requires 'nics', such as nics 4 of hdr",
                   (long long)nodes);
    cluster->nodes = (int)nodes;
    cluster->world = (int)world;
    cluster->groups = k->groups.at;
    cluster->group_count = k->groups.n;
    cluster->target = k->groups.n ? k->groups.at[0].device->target : NULL;
    if (!k->link_span.src)
        cluster->link_bandwidth = k->link;
}

void finish_topology(Checker *c)
{
    if (!c->cluster) {
        diag_error(c->diags, (Span){0}, "'%s' does not define a cluster", c->in->topo_path);
        return;
    }
    ClusterFields k = {.cluster = {.name = block_name(c, c->cluster),
                                   .link_latency = 2 * KB,
                                   .oversubscription = 1,
                                   .pcie = 25 * GB,
                                   .host_cores = 64,
                                   .span = c->cluster->span}};
    take_fields(c, c->cluster->body, cluster_fields, countof(cluster_fields), &k, "the cluster",
                c->cluster->span);
    if (c->host)
        take_fields(c, c->host->body, host_fields, countof(host_fields), &k.cluster, "the host",
                    c->host->span);
    k.cluster.host_assumed = !k.cluster.host_memory;
    if (k.cluster.host_assumed)
        k.cluster.host_memory = 512 * GIB;
    total_up(c, &k);
    c->program->cluster = k.cluster;
}
