/* runtime/library/library.h: what open.c, calls.c and transport.c share.
 *
 * burst_rt.h and burst.h use some names for different things; the runtime's are renamed here. */
#ifndef BURST_RUNTIME_LIBRARY_H
#define BURST_RUNTIME_LIBRARY_H

#define BurstPlan RtPlan
#define BurstBatch RtBatch
#define BurstGroup RtGroup
#define burst_error rt_error
#include "burst_library.h"
#undef BurstPlan
#undef BurstBatch
#undef BurstGroup
#undef burst_error
#include "burst.h"

#include <poll.h>
#include <sys/types.h>

/* The functions of burst.h as a table, which plan.so exports as `burst_library` for loader.c. BurstPlan and
 * BurstBatch begin with its address. */
struct BurstLibrary {
    int abi;
    int (*open)(const BurstLibrary *self, const BurstGroup *group, BurstPlan **plan, char *error, size_t n);
    void (*close)(BurstPlan *plan);
    void (*abort)(BurstPlan *plan, const char *reason);
    const BurstInfo *(*info)(const BurstPlan *plan);
    size_t (*bytes)(const BurstPlan *plan, BurstSpace space);
    const char *(*error)(const BurstPlan *plan);
    int (*batch_make)(BurstPlan *plan, const int32_t *cu_seqlens, int documents, const int32_t *const *tables,
                      BurstBatch **batch);
    int (*batch_load)(BurstBatch *batch, void *memory, void *stream);
    void (*batch_close)(BurstBatch *batch);
    int64_t (*batch_rows)(const BurstBatch *batch, BurstLayout layout, int32_t *row, int32_t *position);
    int (*forward)(BurstBatch *batch, const BurstAttention *call, void *workspace);
    int (*backward)(BurstBatch *batch, const BurstAttention *call, void *workspace);
    int (*move)(BurstBatch *batch, BurstLayout from, BurstLayout to, const void *in, void *out,
                size_t row_bytes, void *stream);
};

enum { LIBRARY_TEXT = 512 };

/* ---- transport.c: messages between ranks, over one connection per pair ----
 *
 * All ranks run the same operations in the same order, so messages between two ranks are received in the
 * order in which they were sent: a connection is a sequence of messages. Each call begins with a message
 * that names it. Ranks that make different calls end with an error that names both. */
/* Rows of memory: strips of equal rows, or rows selected by a list. */
typedef struct Message {
    struct Message *next;
    uint32_t kind, channel;
    uint64_t bytes, moved;
    int strips;
    BurstStrip strip[BURST_RANGES];
    const int32_t *row; /* NULL: strips */
    char *base;
    size_t row_bytes;
    int peer;
    bool done;
} Message;
typedef struct Frame {
    uint32_t magic, kind, channel, unused;
    uint64_t bytes;
} Frame;
/* A rank's call. */
typedef struct Call {
    uint64_t number, batch; /* batch: a hash of the inputs it was made from */
    uint32_t what, from, to;
    int32_t mask;
    uint64_t row_bytes;
    float scale;
    uint32_t with; /* 1: sinks, 2: d_lse */
} Call;
enum { CALL_FORWARD, CALL_BACKWARD, CALL_MOVE };
typedef struct Peer {
    int fd;
    bool deaf;         /* nothing more can be sent to it */
    bool ended, ahead; /* it said goodbye; it has begun its next call, `call`, before this rank */
    Message *out, *out_last, *in, *in_last;
    Frame sent, got;
    size_t sent_bytes, got_bytes; /* of the current frames: header and text; of a message's data: moved */
    bool sending;
    uint64_t calls;
    Call call;
    char text[LIBRARY_TEXT];      /* of its failure */
} Peer;

struct BurstCtx {
    int rank, world;
    pid_t owner;                  /* the process that opened the plan; a fork has copies of its sockets */
    int broken;                   /* status; 0: none */
    char error[LIBRARY_TEXT];
    char *arena;                  /* of the batch being made */
    size_t used, arena_bytes;
    const char *doing;
    double timeout;
    Peer *peer;                   /* [world] */
    struct pollfd *poll;          /* [world] */
    Message *message, *free;      /* all of them; the unused ones */
    Call call;
    void *device;
    const BurstGroup *group;      /* while a plan is opened */
};

/* fd[world]: connected sockets, -1 for this rank; the context owns them from here on. */
int transport_open(BurstCtx *c, int rank, int world, int messages);
/* In a forked process only closes descriptors: the plan stays open in the process that opened it. */
void transport_close(BurstCtx *c);
bool is_forked(const BurstCtx *c);
int call_begin(BurstCtx *c, const Call *call);
int call_agreed(BurstCtx *c); /* waits until all ranks have begun the same call */
/* Called when all operations have completed or failed; tells the others the status. */
int call_end(BurstCtx *c, int status);
/* Rows of a list: row[i] of `base`, for `rows` of them. */
int send_listed(BurstCtx *c, int peer, const void *base, const int32_t *row, int64_t rows, size_t bytes,
                BurstReq *req);
int receive_listed(BurstCtx *c, int peer, void *base, const int32_t *row, int64_t rows, size_t bytes,
                   BurstReq *req);

/* ---- connect.c ---- */
/* Connects all pairs of ranks; any rank's error (text, empty: none) becomes the error of all. */
/* Whether all ranks' own work succeeded; collective, only while a plan is opened. */
int agree(BurstCtx *c, int status);
int connect_ranks(BurstCtx *c, const BurstGroup *group, uint64_t identity);

#endif
