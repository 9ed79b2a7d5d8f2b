/* ir/cluster.h: the target of a program and the cluster that runs it. */
#ifndef BURST_IR_CLUSTER_H
#define BURST_IR_CLUSTER_H

#include "base/base.h"

/* ---- target.c: targets. Passes read fields of the row; none asks which row it is ---- */
typedef struct Target {
    const char *name;             /* the value of --emit, "cuda" */
    const char *language, *device; /* for messages: "CUDA", "GPU" */
    const char *suffix;           /* of a file with the program's text */
    struct {
        /* the environment variable that names the compiler, and the default */
        const char *variable, *compiler;
        const char *flags;               /* '@' stands for the devices' architecture, "90a" */
        /* flags that link the runtime: the file that holds them, and the flags if it does not exist */
        const char *link_file, *link;
        /* for attention as a library: additional flags, and its own link_file and link */
        const char *library_flags, *library_file, *library_link;
    } build;
    /* head dimensions with an attention kernel: multiples of step; 0: any */
    struct { int least, most, step; } head_dim;
    /* bytes of an element of activations and gathered weights; all else is fp32 */
    int activation_bytes;
    int align; /* of values in a rank's arena */
    bool device_memory; /* a rank's buffers are on its device, besides an arena on the host */
    bool one_layout;              /* tokens and heads have one layout, and rotation works in place */
    bool copies_at_wait;          /* the rank that waits for a transfer copies it, in its own time */
    bool shares_cores;            /* the devices of a node share its cores */
    double least_kernel;          /* seconds of the shortest kernel */
    double recorded_kernel;       /* seconds that each kernel of a recorded list adds to what it reads */
    const char *matmul_type;      /* the type that devices state their matrix rate in */
    /* forward, backward: share of the matrix rate, for devices that state no rate */
    double attention_share[2];
    double experts_share; /* the same of products of experts' matrices */
    double memory_rate, link_rate; /* bytes/s, for devices that state none */
    /* share of hbm that passes over activations reach, for devices that state no rate */
    double passes_share;
} Target;
enum { TARGET_C, TARGET_CUDA, TARGETS }; /* for the table and tests */
extern const Target targets[TARGETS];
const Target *target_named(const char *name);      /* NULL: none */
const Target *target_of_suffix(const char *path);  /* NULL: none */

/* ---- the cluster, in base units ---- */
/* A rate of attention under other conditions than long rows of full tiles: another head_dim, this many keys
 * a query (backward: queries a key), or partial tiles. */
#define ATTENTION_KINDS(X) X(HEAD_DIM, "head_dim") X(KEYS, "keys") X(PARTIAL, "partial")
typedef enum AttentionKind {
#define X(id, name) ATTENTION_##id,
    ATTENTION_KINDS(X)
#undef X
    ATTENTION_KIND_COUNT
} AttentionKind;
typedef struct AttentionRate {
    AttentionKind kind;
    bool backward;
    int64_t value;
    double rate;
    Span span;
} AttentionRate;
typedef struct Device {
    const char *name, *arch;
    const Target *target; /* the target that runs on it */
    /* bytes; bytes/s; bytes/s of passes over activations, and of norms and rotation */
    double memory, hbm, passes, norms;
    /* FLOP/s; those of attention over the pairs of tiles that are not empty */
    double matmul, attention_forward, attention_backward;
    double experts; /* FLOP/s of products of experts' matrices, by whole tiles of rows */
    double peak; /* FLOP/s of the data sheet, the denominator of MFU; matmul if not given */
    const AttentionRate *rate; /* [rates], by falling value */
    int rates;
    bool unmeasured; /* the rates are data-sheet figures, scaled by what other devices reach */
    Span span;
} Device;
typedef struct Nic { const char *name; double bandwidth, latency; Span span; } Nic; /* bytes/s, ns */
typedef struct NodeGroup {
    int nodes, gpus, nics;
    const Device *device;
    const Nic *nic;
    bool nics_in_turn; /* with fewer cards than devices: device i uses card i % nics, not i * nics / gpus */
    Span span;
} NodeGroup;
/* Nodes under a common switch, such as a rack: traffic that leaves it shares its uplinks. */
typedef struct Level {
    const char *name;
    int nodes;               /* nodes of one unit, a multiple of the units inside it */
    /* bytes/s out of one unit and into it; 0: the sum of its nodes' cards */
    double uplink;
    double oversubscription; /* divides the uplink */
    double latency;          /* ns, of a message that leaves a unit */
    Span span;
} Level;
enum { MAX_LEVELS = 6 };
typedef struct Cluster {
    const char *name;
    const Target *target; /* simulated on its devices; NULL: none */
    const NodeGroup *groups;
    int group_count;
    int nodes, world; /* totals */
    double link_bandwidth, link_latency; /* inside a node, per device and direction: bytes/s, ns */
    double link_sums; /* bytes/s of a reduction that overlaps computing; 0: link_bandwidth */
    double link_sums_alone; /* and while nothing is computed; 0: link_sums */
    double link_sums_taking; /* share of a device's rate that it takes from computing */
    double oversubscription;
    Level level[MAX_LEVELS]; /* above the nodes, innermost first */
    int levels;
    double host_memory, pcie; /* bytes per node; bytes/s */
    bool host_assumed;        /* the text does not give the host's memory */
    double pcie_both;         /* bytes/s each way while copies go both ways; 0: not given */
    int64_t pcie_shared;      /* this many devices of a node share `pcie`; 0: each has its own */
    double host_bandwidth;    /* of a node's memory, bytes/s; 0: not given */
    int host_cores;
    Span span;
} Cluster;
int cluster_most_ranks(const Cluster *c); /* of any node */
/* How many times as long copies take while others go the other way. */
double cluster_both_ways(const Cluster *c);
/* Bytes/s of a rank's share of its host's memory. Default: 5 GB/s per core, at most 200 GB/s. */
double cluster_host_rate(const Cluster *c);
double cluster_pcie(const Cluster *c); /* of one device while all of its node copy: bytes/s */
int cluster_node_of(const Cluster *c, int rank); /* global node index */
int cluster_place_of(const Cluster *c, int rank); /* its index in its node */
const NodeGroup *cluster_group_of(const Cluster *c, int rank);
/* levels that a message between two nodes crosses, innermost first */
int cluster_crossed(const Cluster *c, int node, int other);
/* number of units (racks, say); the last may hold fewer nodes */
int cluster_units(const Cluster *c, int level);
/* bytes/s of one unit, each direction; 0: not known */
double cluster_uplink(const Cluster *c, int level, int unit);
const Device *cluster_least_memory(const Cluster *c); /* the device with the least memory */
/* bytes/s of a card; 0: there is none, or its rate is not given */
double cluster_slowest_nic(const Cluster *c);
int cluster_node_ranks(const Cluster *c); /* ranks of each node; 0: nodes differ */
/* Whether groups of `ranks` consecutive ranks can share the weights of layers that `tensor` ranks split.
 * They must be whole nodes or parts of one: only then are a ring's links known. */
bool cluster_shards(const Cluster *c, int tensor, int64_t ranks);

#endif
