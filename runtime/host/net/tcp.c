/* tcp.c: messages between hosts over TCP, one connection per pair of ranks.
 *
 * A message is sent in segments with headers, so that messages of several channels and both directions
 * interleave. The receiver grants as many messages on a channel as it has posted receives (GRANT). A message
 * is sent only to a posted receive, so it is read into its destination, and one without a receive never
 * blocks others. Small messages may precede their grant, RING_SLOTS per channel, and are buffered until
 * their receive is posted; a peer can therefore make this rank buffer at most RING_SLOTS * SMALL bytes per
 * channel. Every header is checked against what its sender may send at that point.
 *
 * A rank that ends normally sends BYE and waits for the others'. A connection closed without BYE means a
 * lost rank. Errors are recorded where they occur and reported by look(), which every wait calls. */
#include "host/net/tcp.h"

#include "host/net/socket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SEGMENT = 256 << 10, SMALL = 4096, MAGIC = 0x42525354, WAIT_MS = 20, FRAMES_A_TURN = 256 };
static const double look_every = 1e-3; /* seconds */

enum { F_DATA, F_GRANT, F_STEP, F_BYE, F_FAILED, F_KINDS };
/* sent over the wire; all ranks of a job have the same byte order (checked by the handshake's magic) */
typedef struct Frame {
    uint32_t magic, kind, channel, length; /* length: bytes after this header */
    uint64_t sequence; /* DATA: of the message; GRANT: receives posted so far; FAILED: the negated status */
    uint64_t bytes, at; /* of the message; offset of this segment in it */
    int64_t step;      /* of the sender */
} Frame;

typedef struct Parcel { uint64_t moved; bool complete; } Parcel; /* progress of an op */
typedef struct Early { uint64_t bytes; char data[]; } Early; /* a message that arrived before its receive */

typedef struct Conn {
    int fd, peer; /* fd -1: none, or closed */
    bool ended, lost; /* it sent BYE; it closed without BYE */
    int64_t step; /* the peer's step in its last message */
    /* outgoing */
    Frame out;
    const char *payload;
    size_t out_left; /* of header and payload: 0 between frames */
    Op *out_op;
    bool bye_due, bye_said;
    int turn; /* channel that may send next */
    /* by the peer to this rank; by this rank to the peer */
    uint64_t granted[BURST_CHANNELS], told[BURST_CHANNELS];
    int64_t told_step;
    /* incoming */
    Frame in;
    size_t in_done; /* of header and payload */
    char *into;
    Op *in_op;
    uint64_t begun[BURST_CHANNELS]; /* messages that have begun to arrive */
    Early *early[BURST_CHANNELS][RING_SLOTS]; /* at sequence % RING_SLOTS */
    bool in_early;
    float *landing; /* [SEGMENT] bytes: floats to be added */
    char failure[ERROR_TEXT]; /* the text of FAILED */
    int failure_status;
} Conn;

typedef struct Mesh {
    Remote remote; /* first: the context points to it */
    int world;
    Conn *conn;    /* [world] */
    struct pollfd *poll;
    double looked;
    int64_t step;  /* last sent to all peers */
} Mesh;

static Mesh *mesh_of(const BurstCtx *c)
{
    return c->remote->state;
}

static Lane *lane_of(const BurstCtx *c, const Conn *k, bool sending, int channel)
{
    return &c->lane[sending][k->peer * BURST_CHANNELS + channel];
}

static void conn_close(Conn *k)
{
    if (k->fd >= 0)
        close(k->fd);
    k->fd = -1;
    k->lost = !k->ended;
}

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* ---- sending ---- */
static void put(Conn *k, const BurstCtx *c, Frame f, const void *payload)
{
    f.magic = MAGIC;
    f.step = k->told_step = mesh_of(c)->step;
    k->out = f;
    k->payload = payload;
    k->out_left = sizeof f + f.length;
}

/* Whether the message has a receive, or is small and not too far ahead of it. */
static bool may_send(const Conn *k, const Op *op, int channel)
{
    return op && (op->sequence < k->granted[channel] ||
                  (op->bytes <= SMALL && op->sequence < k->granted[channel] + RING_SLOTS));
}

static bool put_data(Conn *k, BurstCtx *c)
{
    for (int i = 0; i < BURST_CHANNELS; i++) {
        int channel = (k->turn + i) % BURST_CHANNELS;
        Op *op = lane_of(c, k, true, channel)->unpublished;
        if (!may_send(k, op, channel))
            continue;
        uint64_t at = ((Parcel *)op->remote)->moved, left = op->bytes - at;
        put(k, c,
            (Frame){.kind = F_DATA,
                    .channel = (uint32_t)channel,
                    .length = left < SEGMENT ? (uint32_t)left : SEGMENT,
                    .sequence = op->sequence,
                    .bytes = op->bytes,
                    .at = at},
            (const char *)op->data + at);
        k->out_op = op;
        k->turn = channel + 1;
        return true;
    }
    return false;
}

static bool put_grant(Conn *k, BurstCtx *c)
{
    for (int channel = 0; channel < BURST_CHANNELS; channel++) {
        uint64_t posted = lane_of(c, k, false, channel)->posted;
        if (posted == k->told[channel])
            continue;
        k->told[channel] = posted;
        put(k, c, (Frame){.kind = F_GRANT, .channel = (uint32_t)channel, .sequence = posted}, NULL);
        return true;
    }
    return false;
}

/* Queues the next frame, by urgency; BYE comes last. A peer that has ended gets no more frames. */
static bool put_next(Conn *k, BurstCtx *c)
{
    if (!k->ended && (put_grant(k, c) || put_data(k, c)))
        return true;
    if (!k->ended && k->told_step != mesh_of(c)->step) {
        put(k, c, (Frame){.kind = F_STEP}, NULL);
        return true;
    }
    if (!k->bye_due || k->bye_said)
        return false;
    put(k, c, (Frame){.kind = F_BYE}, NULL);
    return k->bye_said = true;
}

static void sent_frame(Conn *k)
{
    Op *op = k->out_op;
    k->out_op = NULL;
    if (!op)
        return;
    Parcel *p = op->remote;
    p->moved += k->out.length;
    p->complete = p->moved == op->bytes;
    if (p->complete)
        op->lane->unpublished = op->next;
}

/* Writes the rest of the frame: 1 all, 0 the socket is full, -1 it is closed. */
static int write_frame(Conn *k)
{
    size_t done = sizeof k->out + k->out.length - k->out_left,
           head = done < sizeof k->out ? sizeof k->out - done : 0;
    size_t skip = head ? 0 : done - sizeof k->out; /* offset in the payload */
    struct iovec part[2] = {{(char *)&k->out + done, head}, {(char *)k->payload + skip, k->out_left - head}};
    struct msghdr m = {.msg_iov = head ? part : part + 1,
                       .msg_iovlen = head && k->out_left > head ? 2 : 1};
    ssize_t n = sendmsg(k->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return would_block() ? 0 : -1;
    k->out_left -= (size_t)n;
    return k->out_left == 0;
}

/* After a failed write, reads what the peer sent before it closed; only reading detects the end. */
static void conn_write(Conn *k, BurstCtx *c)
{
    while (k->fd >= 0 && (k->out_left || put_next(k, c))) {
        size_t before = k->out_left;
        int whole = write_frame(k);
        c->remote_bytes += before - k->out_left;
        if (whole != 1)
            return;
        sent_frame(k);
    }
}

/* ---- receiving ---- */
static int garbled(const Conn *k, BurstCtx *c)
{
    const Frame *f = &k->in;
    return burst_fail(
        c, BURST_E_PEER,
        "corrupt packet from rank %d: kind %u, channel %u, message %llu, %u of %llu bytes at %llu", k->peer,
        f->kind, f->channel, (unsigned long long)f->sequence, f->length, (unsigned long long)f->bytes,
        (unsigned long long)f->at);
}

static Early **early_of(Conn *k, int channel, uint64_t sequence)
{
    return &k->early[channel][sequence % RING_SLOTS];
}

static int keep(Conn *k, BurstCtx *c)
{
    Early *e = malloc(sizeof *e + k->in.bytes);
    if (!e)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for a message of %llu bytes",
                          (unsigned long long)k->in.bytes);
    e->bytes = k->in.bytes;
    *early_of(k, (int)k->in.channel, k->in.sequence) = e;
    k->in_early = true;
    k->into = e->data;
    return BURST_OK;
}

static int land(Conn *k, BurstCtx *c, Op *op)
{
    Parcel *p = op->remote;
    if (op->bytes != k->in.bytes)
        return message_mismatch(c, op, k->in.bytes);
    if (p->moved != k->in.at || k->in.length > op->bytes - p->moved ||
        (op->add && k->in.length % sizeof(float)))
        return garbled(k, c);
    if (op->add && !k->landing && !(k->landing = malloc(SEGMENT)))
        return burst_fail(c, BURST_E_MEMORY, "out of memory for a segment of %d bytes", SEGMENT);
    k->in_op = op;
    k->into = op->add ? (char *)k->landing : (char *)op->data + p->moved;
    return BURST_OK;
}

/* Messages of a channel must arrive in order and from their beginning, and only empty ones may have no
 * bytes. */
static bool in_order(const Conn *k)
{
    const Frame *f = &k->in;
    const uint64_t begun = k->begun[f->channel];
    return f->at == 0 ? f->sequence == begun && (f->length > 0) == (f->bytes > 0)
                      : f->sequence + 1 == begun && f->length > 0;
}

static int open_data(Conn *k, BurstCtx *c)
{
    const Frame *f = &k->in;
    const Lane *l = lane_of(c, k, false, (int)f->channel);
    if (!in_order(k))
        return garbled(k, c);
    k->begun[f->channel] += f->at == 0;
    if (l->unpublished && l->unpublished->sequence == f->sequence)
        return land(k, c, l->unpublished);
    const bool ahead = f->at == 0 && f->sequence >= l->posted && f->sequence - l->posted < RING_SLOTS;
    return ahead && f->length == f->bytes && f->bytes <= SMALL ? keep(k, c) : garbled(k, c);
}

/* The number of granted receives must not fall. */
static bool is_grant(const Conn *k)
{
    return k->in.sequence >= k->granted[k->in.channel] && k->in.sequence < UINT64_MAX - RING_SLOTS;
}

static bool is_failure(const Frame *f)
{
    return f->sequence > 0 && f->sequence <= -(int64_t)BURST_E_DEVICE && f->length < ERROR_TEXT;
}

/* After a complete header: chooses where its payload goes. */
static int open_frame(Conn *k, BurstCtx *c)
{
    const Frame *f = &k->in;
    k->step = f->step;
    k->into = k->failure;
    if (f->magic != MAGIC || f->kind >= F_KINDS || f->channel >= BURST_CHANNELS || f->length > SEGMENT)
        return garbled(k, c);
    if (f->kind == F_DATA)
        return open_data(k, c);
    if (f->kind == F_FAILED)
        return is_failure(f) && !k->failure_status ? BURST_OK : garbled(k, c);
    return f->length == 0 && (f->kind != F_GRANT || is_grant(k)) ? BURST_OK : garbled(k, c);
}

static void received(Op *op, const float *landing, size_t bytes)
{
    Parcel *p = op->remote;
    float *to = op->data;
    for (size_t i = 0; landing && i < bytes / sizeof *to; i++)
        to[p->moved / sizeof *to + i] += landing[i];
    p->moved += bytes;
    p->complete = p->moved == op->bytes;
    if (p->complete)
        op->lane->unpublished = op->next;
}

static void close_frame(Conn *k)
{
    const Frame *f = &k->in;
    if (k->in_op)
        received(k->in_op, k->in_op->add ? k->landing : NULL, f->length);
    if (f->kind == F_GRANT)
        k->granted[f->channel] = f->sequence;
    if (f->kind == F_BYE)
        k->ended = true;
    if (f->kind == F_FAILED) {
        k->failure_status = -(int)f->sequence;
        escape_text(k->failure, sizeof k->failure);
    }
    k->in_op = NULL;
    k->in_early = false;
    k->in_done = 0;
}

/* Reads until nothing is pending, for a limited time, so that one busy peer does not starve the others. */
static int conn_read(Conn *k, BurstCtx *c)
{
    for (int frames = 0; k->fd >= 0 && frames < FRAMES_A_TURN;) {
        bool head = k->in_done < sizeof k->in;
        size_t at = head ? k->in_done : k->in_done - sizeof k->in, end = head ? sizeof k->in : k->in.length;
        ssize_t n = recv(k->fd, (head ? (char *)&k->in : k->into) + at, end - at, MSG_DONTWAIT);
        if (n < 0 && would_block())
            return BURST_OK;
        if (n <= 0) {
            conn_close(k);
            return BURST_OK;
        }
        k->in_done += (size_t)n;
        c->remote_bytes += (uint64_t)n;
        if (head && k->in_done == sizeof k->in)
            BURST_TRY(open_frame(k, c));
        if (k->in_done >= sizeof k->in && k->in_done == sizeof k->in + k->in.length) {
            close_frame(k);
            frames++;
        }
    }
    return BURST_OK;
}

/* Alternates reading and writing, since each may enable the other. */
static int move_on(Conn *k, BurstCtx *c)
{
    BURST_TRY(conn_read(k, c));
    conn_write(k, c);
    return BURST_OK;
}

/* ---- Remote ---- */
static void tell_step(Mesh *m, BurstCtx *c)
{
    int64_t step = atomic_load(&c->slot->step);
    if (step == m->step)
        return;
    m->step = step;
    for (int i = 0; i < m->world; i++)
        conn_write(&m->conn[i], c);
}

/* Copies data that arrived before this receive; the rest of a partly received message goes directly to
 * it. */
static int unpack(Conn *k, BurstCtx *c, Op *op)
{
    const int channel = op->lane->channel;
    Early **at = early_of(k, channel, op->sequence), *e = *at;
    if (!e)
        return BURST_OK;
    if (e->bytes != op->bytes)
        return message_mismatch(c, op, e->bytes);
    if (k->in_early && k->in.channel == (uint32_t)channel && k->in.sequence == op->sequence) {
        BURST_TRY(land(k, c, op));
        memcpy(k->into, e->data, k->in_done - sizeof k->in);
        k->in_early = false;
    } else {
        if (!op->add && e->bytes)
            memcpy(op->data, e->data, e->bytes);
        received(op, op->add ? (const float *)e->data : NULL, e->bytes);
    }
    *at = NULL;
    free(e);
    return BURST_OK;
}

static int start(BurstCtx *c, Op *op)
{
    Mesh *m = mesh_of(c);
    Conn *k = &m->conn[op->lane->peer];
    Parcel *p = op->remote ? op->remote : (op->remote = calloc(1, sizeof *p));
    if (!p)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for a message");
    *p = (Parcel){0};
    if (!op->lane->sending && op->lane->unpublished == op)
        BURST_TRY(unpack(k, c, op));
    tell_step(m, c);
    conn_write(k, c);
    return BURST_OK;
}

static int test(BurstCtx *c, Op *op, bool *done)
{
    BURST_TRY(move_on(&mesh_of(c)->conn[op->lane->peer], c));
    *done = ((Parcel *)op->remote)->complete;
    return BURST_OK;
}

static void release(Op *op)
{
    free(op->remote);
    op->remote = NULL;
}

/* Why the job cannot continue: an error reported by another host's rank, or a lost one. */
static int check_conns(const Mesh *m, BurstCtx *c)
{
    for (int i = 0; i < m->world; i++) {
        c->relayed = m->conn[i].failure_status != 0;
        if (c->relayed)
            return burst_fail(c, m->conn[i].failure_status, "on another host: %s", m->conn[i].failure);
    }
    for (int i = 0; i < m->world; i++)
        if (m->conn[i].lost)
            return burst_fail(c, BURST_E_PEER,
                              "lost rank %d, step %lld (on another host): its connection was closed", i,
                              (long long)m->conn[i].step);
    return BURST_OK;
}

static struct pollfd awaited(const Conn *k)
{
    return (struct pollfd){.fd = k->fd, .events = (short)(POLLIN | (k->out_left ? POLLOUT : 0))};
}

static int look(BurstCtx *c)
{
    Mesh *m = mesh_of(c);
    double now = burst_seconds();
    if (now - m->looked < look_every)
        return BURST_OK;
    m->looked = now;
    tell_step(m, c);
    for (int i = 0; i < m->world; i++)
        m->poll[i] = awaited(&m->conn[i]);
    if (poll(m->poll, (nfds_t)m->world, 0) > 0)
        for (int i = 0; i < m->world; i++)
            if (m->poll[i].revents)
                BURST_TRY(move_on(&m->conn[i], c));
    return check_conns(m, c);
}

static bool ended(const BurstCtx *c, int peer)
{
    return mesh_of(c)->conn[peer].ended;
}

static bool parted(const Conn *k)
{
    return k->peer < 0 || (k->ended && k->bye_said && !k->out_left);
}

/* Waits for the others' BYE: closing at once could discard data that they have not read. */
static int finish(BurstCtx *c)
{
    Mesh *m = mesh_of(c);
    Watchdog v = {0};
    for (int i = 0; i < m->world; i++) {
        m->conn[i].bye_due = true;
        conn_write(&m->conn[i], c);
    }
    for (int i = 0; i < m->world; i++)
        for (Conn *k = &m->conn[i]; !parted(k);) {
            struct pollfd p = awaited(k);
            poll(&p, 1, WAIT_MS);
            BURST_TRY(move_on(k, c));
            BURST_TRY(watchdog_look(c, &v));
        }
    return BURST_OK;
}

/* ---- the mesh ---- */
const Remote *tcp_open(int world, const int *socket)
{
    Mesh *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    *m = (Mesh){.world = world,
                .conn = calloc((size_t)world, sizeof *m->conn),
                .poll = calloc((size_t)world, sizeof *m->poll)};
    m->remote = (Remote){.start = start, .test = test, .release = release, .look = look, .ended = ended,
                         .finish = finish, .state = m};
    if (!m->conn || !m->poll) {
        free(m->conn);
        free(m->poll);
        free(m);
        return NULL;
    }
    for (int i = 0; i < world; i++)
        m->conn[i] = (Conn){.fd = socket[i], .peer = socket[i] < 0 ? -1 : i};
    return &m->remote;
}

void tcp_close(const Remote *remote)
{
    Mesh *m = remote->state;
    for (int i = 0; i < m->world; i++) {
        Conn *k = &m->conn[i];
        for (int e = 0; e < BURST_CHANNELS * RING_SLOTS; e++)
            free(k->early[e / RING_SLOTS][e % RING_SLOTS]);
        free(k->landing);
        if (k->fd >= 0)
            close(k->fd);
    }
    free(m->conn);
    free(m->poll);
    free(m);
}

/* Sends nothing in the middle of a frame, and no error that came from another host, which has told all
 * itself. The context no longer exists. */
void tcp_tell_failure(const Remote *remote, int status, const char *text)
{
    Mesh *m = remote->state;
    for (int i = 0; i < m->world; i++)
        if (m->conn[i].failure_status)
            return;
    Frame f = {.magic = MAGIC,
               .kind = F_FAILED,
               .length = (uint32_t)strlen(text),
               .sequence = (uint64_t)-status,
               .step = m->step};
    for (int i = 0; i < m->world; i++) {
        Conn *k = &m->conn[i];
        if (k->fd < 0 || k->out_left)
            continue;
        k->out = f;
        k->payload = text;
        k->out_left = sizeof f + f.length;
        write_frame(k);
    }
}
