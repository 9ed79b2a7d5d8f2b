/* runtime/library/library.h: a plan inside another program: what open.c, calls.c and transport.c share.
 *
 * burst_rt.h and burst.h use some names for different things: here the runtime's are renamed. */
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

#include <netinet/in.h>
#include <poll.h>
#include <sys/types.h>

/* The calls of burst.h as the table of a plan, which plan.so exports as `burst_library`: loader.c finds it.
 * BurstPlan and BurstBatch begin with its address. */
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

/* ---- transport.c: messages between ranks over one connection for each two ----
 *
 * All ranks run the same operations in the same order, so what two of them send each other is received in the
 * order in which it was sent: a connection is a sequence of messages. Each call begins with a message that
 * says what is called, and ranks that call something else end with an error that says so. */
/* Rows of memory: strips of equal rows, or rows of a list. */
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
/* What a rank calls. */
typedef struct Call {
    uint64_t number, batch; /* batch: a hash of all that it was made of */
    uint32_t what, from, to;
    int32_t mask;
    uint64_t row_bytes;
    float scale;
    uint32_t with; /* 1: sinks, 2: d_lse */
} Call;
enum { CALL_FORWARD, CALL_BACKWARD, CALL_MOVE };
typedef struct Peer {
    int fd;
    bool deaf;         /* nothing can be sent to it any more */
    bool ended, ahead; /* it said goodbye; its next call, `call`, has begun before ours */
    Message *out, *out_last, *in, *in_last;
    Frame sent, got;
    size_t sent_bytes, got_bytes; /* of the frames under way: header and text; of a message's data: moved */
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
    char *arena;                  /* of the batch that is being made */
    size_t used, arena_bytes;
    const char *doing;
    double timeout;
    Peer *peer;                   /* [world] */
    struct pollfd *poll;          /* [world] */
    Message *message, *free;      /* all there are; those that are not in use */
    Call call;
    void *device;
    const BurstGroup *group;      /* while a plan is opened */
};

/* fd[world]: connected, -1 at the own rank; the context owns them from here on. */
int transport_open(BurstCtx *c, int rank, int world, int messages);
/* In a process that was forked only descriptors are closed: the plan goes on in the one that opened it. */
void transport_close(BurstCtx *c);
bool is_forked(const BurstCtx *c);
int call_begin(BurstCtx *c, const Call *call);
int call_agreed(BurstCtx *c); /* waits until all ranks have begun the same call */
/* Once all is done, or has failed: the others learn what. */
int call_end(BurstCtx *c, int status);
/* Rows of a list: row[i] of `base`, so many of them. */
int send_listed(BurstCtx *c, int peer, const void *base, const int32_t *row, int64_t rows, size_t bytes,
                BurstReq *req);
int receive_listed(BurstCtx *c, int peer, void *base, const int32_t *row, int64_t rows, size_t bytes,
                   BurstReq *req);

/* ---- connect.c ---- */
/* Connects each two ranks; what any rank brings as an error (text, empty: none) is that of all. */
/* Whether what all ranks have done by themselves went well; collective, while a plan is opened. */
int agree(BurstCtx *c, int status);
int connect_ranks(BurstCtx *c, const BurstGroup *group, uint64_t identity);

#endif
