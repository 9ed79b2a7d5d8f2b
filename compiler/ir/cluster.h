/* ir/cluster.h: what a program is written for and runs on. */
#ifndef BURST_IR_CLUSTER_H
#define BURST_IR_CLUSTER_H

#include "base/base.h"

/* ---- target.c: what a program is written for, and what runs it. Passes read a row; none asks which
 * row it is ---- */
typedef struct Target {
    const char *name;             /* of --emit, "cuda" */
    const char *language, *device; /* for messages: "CUDA", "GPU" */
    const char *suffix;           /* of a file with the program's text */
    struct {
        const char *variable, *compiler; /* the environment's name for the compiler, and the usual one */
        const char *flags;               /* '@' stands for the devices' architecture, "90a" */
        /* flags that link the runtime: the file that has them, and where there is none */
        const char *link_file, *link;
        /* of attention as a library: what is added to flags, and the same two */
        const char *library_flags, *library_file, *library_link;
    } build;
    /* that attention kernels are made for: multiples of step; 0: any */
    struct { int least, most, step; } head_dim;
    int activation_bytes;         /* of an element of activations and gathered weights; all else is fp32 */
    int align; /* of values in the arena of a rank */
    bool device_memory; /* a rank's buffers are on its device, in addition to an arena on the host */
    bool one_layout;              /* tokens and heads are one layout, and rotation works in place */
    bool copies_at_wait;          /* a transfer is copied by the rank that waits for it, in its own time */
    bool shares_cores;            /* devices of a node share its cores */
    double least_kernel;          /* seconds of the shortest kernel */
    const char *matmul_type;      /* that devices state their rate in */
    double attention_share[2];    /* forward, backward: of the matrix rate, where a device says nothing */
    double memory_rate, link_rate; /* bytes/s, where a device says nothing */
    double passes_share;          /* of hbm that passes over activations reach, where a device says nothing */
} Target;
enum { TARGET_C, TARGET_CUDA, TARGETS }; /* for the table and tests */
extern const Target targets[TARGETS];
const Target *target_named(const char *name);      /* NULL: none */
const Target *target_of_suffix(const char *path);  /* NULL: none */

/* ---- the cluster, in base units ---- */
/* A rate of attention in addition to those of long rows of full tiles: at another head_dim, with so many keys
 * a query (backward: queries a key), in partial tiles. */
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
    const Target *target; /* what runs on it */
    /* bytes, bytes/s; passes over activations, and those of norms and rotation */
    double memory, hbm, passes, norms;
    /* FLOP/s; attention over the pairs of tiles that are not empty */
    double matmul, attention_forward, attention_backward;
    double peak; /* of its data sheet, FLOP/s, which MFU is a share of; matmul where it is not given */
    const AttentionRate *rate; /* [rates] by falling value */
    int rates;
    bool unmeasured; /* the rates are its data sheet's, scaled by what other devices reach */
    Span span;
} Device;
typedef struct Nic { const char *name; double bandwidth, latency; Span span; } Nic; /* bytes/s, ns */
typedef struct NodeGroup {
    int nodes, gpus, nics;
    const Device *device;
    const Nic *nic;
    bool nics_in_turn; /* of fewer cards than devices: device i has card i % nics, not i * nics / gpus */
    Span span;
} NodeGroup;
/* Nodes under switches of their own, as a rack: what leaves it shares its uplinks. */
typedef struct Level {
    const char *name;
    int nodes;               /* that one holds, a multiple of those of the level inside it */
    /* bytes/s out of one and into it; 0: what the cards of its nodes carry together */
    double uplink;
    double oversubscription; /* divides the uplink */
    double latency;          /* ns, of a message that leaves one */
    Span span;
} Level;
enum { MAX_LEVELS = 6 };
typedef struct Cluster {
    const char *name;
    const Target *target; /* runs on its devices and is simulated; NULL: it has none */
    const NodeGroup *groups;
    int group_count;
    int nodes, world; /* totals */
    double link_bandwidth, link_latency; /* inside a node, per device and direction: bytes/s, ns */
    double link_sums; /* of what a reduction sends beside computing; 0: the bandwidth */
    double oversubscription;
    Level level[MAX_LEVELS]; /* above the nodes, the innermost first */
    int levels;
    double host_memory, pcie; /* bytes a node, bytes/s */
    bool host_assumed;        /* the text does not say how much memory a host has */
    int64_t pcie_shared;      /* so many devices of a node have `pcie` together; 0: each has it */
    double host_bandwidth;    /* of a node's memory: bytes/s; 0: not given */
    int host_cores;
    Span span;
} Cluster;
int cluster_most_ranks(const Cluster *c); /* of a node */
/* Bytes/s of a rank's share of its host's memory. Where the cluster does not say: 5 GB/s a core, at most
 * 200 GB/s. */
double cluster_host_rate(const Cluster *c);
double cluster_pcie(const Cluster *c); /* of a device while all of its node copy: bytes/s */
int cluster_node_of(const Cluster *c, int rank); /* global node index */
int cluster_place_of(const Cluster *c, int rank); /* among the ranks of its node */
const NodeGroup *cluster_group_of(const Cluster *c, int rank);
/* levels that a message between two nodes leaves, the innermost first */
int cluster_crossed(const Cluster *c, int node, int other);
/* how many racks, say, of which the last may hold fewer nodes */
int cluster_units(const Cluster *c, int level);
/* bytes/s of one, each direction; 0: not known */
double cluster_uplink(const Cluster *c, int level, int unit);
const Device *cluster_least_memory(const Cluster *c); /* the device with the least */
/* bytes/s of a card; 0: the cluster has none, or does not say */
double cluster_slowest_nic(const Cluster *c);
int cluster_node_ranks(const Cluster *c); /* of each node; 0: they have different numbers */
/* Whether groups of so many consecutive ranks can share the weights of layers that `tensor` ranks split:
 * whole nodes or parts of one, since only then are a ring's links known. */
bool cluster_shards(const Cluster *c, int tensor, int64_t ranks);

#endif
