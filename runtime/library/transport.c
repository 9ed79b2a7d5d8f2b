/* runtime/library/transport.c: messages between the ranks of a plan inside another program (library.h). */
#include "library/library.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAGIC = 0x42424c31, STRETCHES = 64, POLL_MS = 100, FAREWELL_MS = 1000, LISTED = 255 };
/* Ranks with GPUs arrive at a call within some microseconds of each other; sleeping takes longer. */
static const double SPIN_SECONDS = 2e-4;
enum { M_DATA, M_CALL, M_FAILED, M_GOODBYE, M_KINDS };

/* ---- functions of a context that the emitted text calls ---- */

int burst_rank(const BurstCtx *c) { return c->rank; }
int burst_world(const BurstCtx *c) { return c->world; }
void burst_doing(BurstCtx *c, const char *operation) { c->doing = operation; }
void burst_part(BurstCtx *c, int part, int a, int b) { (void)c, (void)part, (void)a, (void)b; }

double burst_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int burst_fail(BurstCtx *c, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->error, sizeof c->error, fmt, ap);
    va_end(ap);
    return code;
}

void *burst_take(BurstCtx *c, size_t bytes)
{
    const size_t rounded = (bytes + 63) / 64 * 64;
    if (rounded < bytes || rounded > c->arena_bytes - c->used) {
        burst_fail(c, BURST_E_MEMORY, "the plan reserved %zu bytes for a batch, but %zu more were requested",
                   c->arena_bytes, bytes);
        return NULL;
    }
    c->used += rounded;
    return c->arena + c->used - rounded;
}

/* ---- a message's memory ---- */

/* The contiguous memory that holds byte `at` of the message, up to its end. */
static struct iovec stretch_at(const Message *m, uint64_t at)
{
    if (m->row) {
        const uint64_t first = at / m->row_bytes, rows = m->bytes / m->row_bytes, skip = at % m->row_bytes;
        uint64_t n = 1;
        while (first + n < rows && m->row[first + n] == m->row[first] + (int64_t)n)
            n++;
        return (struct iovec){m->base + (size_t)m->row[first] * m->row_bytes + skip, n * m->row_bytes - skip};
    }
    const BurstStrip *s = m->strip;
    while (at >= s->rows * s->bytes)
        at -= s->rows * s->bytes, s++;
    if (s->bytes == s->pitch)
        return (struct iovec){(char *)s->data + at, s->rows * s->bytes - at};
    return (struct iovec){(char *)s->data + at / s->bytes * s->pitch + at % s->bytes,
                          s->bytes - at % s->bytes};
}

static int stretches(const Message *m, struct iovec out[STRETCHES])
{
    int n = 0;
    for (uint64_t at = m->moved; at < m->bytes && n < STRETCHES; at += out[n++].iov_len)
        out[n] = stretch_at(m, at);
    return n;
}

/* ---- queues ---- */

static Message *message_take(BurstCtx *c)
{
    Message *m = c->free;
    if (!m) {
        burst_fail(c, BURST_E_PLAN, "more messages are under way than the plan has");
        return NULL;
    }
    c->free = m->next;
    *m = (Message){0};
    return m;
}

static void message_free(BurstCtx *c, Message *m)
{
    m->next = c->free;
    c->free = m;
}

static void append(Message **first, Message **last, Message *m)
{
    *(*first ? &(*last)->next : first) = m;
    *last = m;
}

static Message *finish(Message **first)
{
    Message *m = *first;
    *first = m->next;
    m->done = true;
    return m;
}

/* ---- sending ---- */

static bool would_block(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/* Returns the bytes sent; -1: the socket is full or closed. */
static ssize_t put(int fd, struct iovec *part, int parts)
{
    const struct msghdr m = {.msg_iov = part, .msg_iovlen = (size_t)parts};
    return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Sends the first message's frame, then its data; true: complete. The reader detects a closed peer. */
static bool send_some(Peer *p)
{
    Message *m = p->out;
    if (!p->sending) {
        p->sent = (Frame){MAGIC, m->kind, m->channel, 0, m->bytes};
        p->sent_bytes = 0;
        p->sending = true;
    }
    while (p->sent_bytes < sizeof p->sent || m->moved < m->bytes) {
        struct iovec part[1 + STRETCHES];
        const size_t head = sizeof p->sent - p->sent_bytes;
        part[0] = (struct iovec){(char *)&p->sent + p->sent_bytes, head};
        const ssize_t n = put(p->fd, part, 1 + stretches(m, part + 1));
        p->deaf = n < 0 && !would_block();
        if (n < 0)
            return false;
        const size_t of_head = (size_t)n < head ? (size_t)n : head;
        p->sent_bytes += of_head;
        m->moved += (size_t)n - of_head;
    }
    p->sending = false;
    return true;
}

static bool send_on(Peer *p)
{
    bool moved = false;
    while (p->fd >= 0 && p->out && send_some(p)) {
        finish(&p->out);
        moved = true;
    }
    return moved;
}

/* ---- calls ---- */

static const char *const call_names[] = {
    [CALL_FORWARD] = "attention forward", [CALL_BACKWARD] = "attention backward", [CALL_MOVE] = "move"};

static void describe(const Call *k, char *text, size_t size)
{
    static const char *const layout[] = {"balanced", "contiguous", "replicated"};
    const char *name = call_names[k->what % 3u];
    if (k->what == CALL_MOVE)
        snprintf(text, size, "%s of rows of %llu bytes from %s to %s", name, (unsigned long long)k->row_bytes,
                 layout[k->from % 3u], layout[k->to % 3u]);
    else
        snprintf(text, size, "%s with mask %d, scale %g, %s sinks", name, k->mask, (double)k->scale,
                 k->with & 1 ? "with" : "without");
}

/* Whether the other rank makes the same call. */
static int compare_calls(BurstCtx *c, int rank)
{
    const Call *own = &c->call, *other = &c->peer[rank].call;
    char mine[160], theirs[160];
    c->peer[rank].ahead = false;
    if (memcmp(own, other, sizeof *own) == 0)
        return BURST_OK;
    describe(own, mine, sizeof mine);
    describe(other, theirs, sizeof theirs);
    if (own->batch != other->batch && strcmp(mine, theirs) == 0)
        return burst_fail(c, BURST_E_PEER,
                          "ranks %d and %d call %s with different batches: cu_seqlens and tables must be the "
                          "same on all ranks",
                          c->rank, rank, mine);
    return burst_fail(c, BURST_E_PEER, "in call %llu of the plan rank %d calls %s, but rank %d calls %s",
                      (unsigned long long)own->number, c->rank, mine, rank, theirs);
}

static int take_call(BurstCtx *c, int rank)
{
    Peer *p = &c->peer[rank];
    p->calls++;
    p->ahead = p->calls > c->call.number;
    return p->ahead ? BURST_OK : compare_calls(c, rank);
}

/* ---- receiving ---- */

static int lost(BurstCtx *c, int rank)
{
    return burst_fail(c, BURST_E_PEER,
                      c->peer[rank].ended ? "rank %d has closed the plan, but rank %d is in %s"
                                          : "rank %d was lost: its process ended, or its "
                                            "connection to rank %d, in %s",
                      rank, c->rank, c->doing);
}

static int garbled(BurstCtx *c, int rank)
{
    return burst_fail(c, BURST_E_PEER, "corrupt message from rank %d", rank);
}

/* Where the frame's bytes are stored; they may not exceed the space there. */
static int open_frame(BurstCtx *c, int rank)
{
    const Peer *p = &c->peer[rank];
    const Frame *f = &p->got;
    if (f->magic != MAGIC || f->kind >= M_KINDS)
        return garbled(c, rank);
    if (f->kind == M_DATA)
        return BURST_OK;
    static const size_t most_bytes[M_KINDS] = {
        [M_CALL] = sizeof p->call, [M_FAILED] = sizeof p->text - 1, [M_GOODBYE] = 0};
    const size_t most = most_bytes[f->kind];
    return f->bytes <= most && (f->kind != M_CALL || f->bytes == most) ? BURST_OK : garbled(c, rank);
}

static int check_message(BurstCtx *c, int rank)
{
    const Frame *f = &c->peer[rank].got;
    const Message *m = c->peer[rank].in;
    if (f->bytes == m->bytes && (f->channel == m->channel))
        return BURST_OK;
    return burst_fail(c, BURST_E_PEER,
                      "rank %d sent %llu bytes on channel %u to rank %d, which expects %llu on channel %u",
                      rank, (unsigned long long)f->bytes, f->channel, c->rank, (unsigned long long)m->bytes,
                      m->channel);
}

static int close_frame(BurstCtx *c, int rank)
{
    Peer *p = &c->peer[rank];
    p->got_bytes = 0;
    switch (p->got.kind) {
    case M_DATA: finish(&p->in); return BURST_OK;
    case M_CALL: return take_call(c, rank);
    case M_GOODBYE: p->ended = true; return BURST_OK;
    default: p->text[p->got.bytes] = 0; return burst_fail(c, BURST_E_PEER, "%s", p->text);
    }
}

/* Memory for the next bytes; 0: none yet. */
static int landing(Peer *p, struct iovec part[STRETCHES])
{
    const size_t text = p->got_bytes - sizeof p->got;
    if (p->got_bytes < sizeof p->got)
        part[0] = (struct iovec){(char *)&p->got + p->got_bytes, sizeof p->got - p->got_bytes};
    else if (p->got.kind == M_DATA)
        return p->in ? stretches(p->in, part) : 0;
    else
        part[0] = (struct iovec){(p->got.kind == M_CALL ? (char *)&p->call : p->text) + text,
                                 p->got.bytes - text};
    return 1;
}

/* Whether reading must pause: the next message has no receive yet, or belongs to a later call. */
static bool stalled(const Peer *p)
{
    return p->fd < 0 || p->ahead || (p->got_bytes >= sizeof p->got && p->got.kind == M_DATA && !p->in);
}

static bool frame_complete(const Peer *p)
{
    return p->got_bytes >= sizeof p->got &&
           (p->got.kind == M_DATA ? p->in && p->in->moved == p->in->bytes
                                  : p->got_bytes == sizeof p->got + p->got.bytes);
}

static int close_peer(BurstCtx *c, int rank)
{
    close(c->peer[rank].fd);
    c->peer[rank].fd = -1;
    return c->peer[rank].ended ? BURST_OK : lost(c, rank);
}

/* Handles the n bytes read: completes a frame's header or a message. */
static int took(BurstCtx *c, int rank, size_t n)
{
    Peer *p = &c->peer[rank];
    const bool head = p->got_bytes < sizeof p->got;
    if (!head && p->got.kind == M_DATA)
        p->in->moved += n;
    else
        p->got_bytes += n;
    if (head && p->got_bytes == sizeof p->got)
        BURST_TRY(open_frame(c, rank));
    return BURST_OK;
}

static int receive_on(BurstCtx *c, int rank, bool *moved)
{
    Peer *p = &c->peer[rank];
    while (!stalled(p)) {
        struct iovec part[STRETCHES];
        if (p->got_bytes >= sizeof p->got && p->got.kind == M_DATA && p->in->moved == 0)
            BURST_TRY(check_message(c, rank));
        if (!frame_complete(p)) {
            struct msghdr m = {.msg_iov = part};
            m.msg_iovlen = (size_t)landing(p, part);
            const ssize_t n = recvmsg(p->fd, &m, MSG_DONTWAIT);
            if (n < 0 && would_block())
                return BURST_OK;
            if (n <= 0)
                return close_peer(c, rank);
            *moved = true;
            BURST_TRY(took(c, rank, (size_t)n));
        }
        if (frame_complete(p))
            BURST_TRY(close_frame(c, rank));
    }
    return BURST_OK;
}

/* ---- waiting ---- */

static int progress(BurstCtx *c, bool *moved)
{
    for (int r = 0; r < c->world; r++) {
        if (r == c->rank)
            continue;
        BURST_TRY(receive_on(c, r, moved));
        *moved |= send_on(&c->peer[r]);
    }
    return BURST_OK;
}

/* Sleeps until a connection is ready, or for a while. */
static void sleep_on(BurstCtx *c, int milliseconds, bool reads)
{
    int n = 0;
    for (int r = 0; r < c->world; r++) {
        const Peer *p = &c->peer[r];
        const short events = (short)((reads && !stalled(p) ? POLLIN : 0) | (p->out ? POLLOUT : 0));
        if (r != c->rank && p->fd >= 0 && events)
            c->poll[n++] = (struct pollfd){.fd = p->fd, .events = events};
    }
    poll(c->poll, (nfds_t)n, milliseconds);
}

/* Fails if the peer that `done` waits for is gone. */
static int wait_until(BurstCtx *c, bool (*done)(const BurstCtx *c, const void *what, int *peer),
                      const void *what)
{
    const double spin = c->device ? SPIN_SECONDS : 0;
    double begin = burst_seconds();
    int peer = -1;
    while (!done(c, what, &peer)) {
        bool moved = false;
        BURST_TRY(progress(c, &moved));
        if (moved) {
            begin = burst_seconds();
            continue;
        }
        if (c->peer[peer].fd < 0)
            return lost(c, peer);
        const double waited = burst_seconds() - begin;
        if (waited < spin)
            continue;
        if (waited > c->timeout)
            return burst_fail(c, BURST_E_PEER, "rank %d waits for rank %d in %s since %.0f s (BURST_TIMEOUT)",
                              c->rank, peer, c->doing, c->timeout);
        sleep_on(c, POLL_MS, true);
    }
    return BURST_OK;
}

static bool message_done(const BurstCtx *c, const void *what, int *peer)
{
    const Message *m = what;
    (void)c;
    *peer = m->peer;
    return m->done;
}

int burst_wait(BurstCtx *c, BurstReq *req)
{
    if (!req->kind)
        return BURST_OK;
    BURST_TRY(wait_until(c, message_done, req->impl));
    message_free(c, req->impl);
    req->kind = 0;
    return BURST_OK;
}

/* ---- posting ---- */

static int post(BurstCtx *c, bool sends, int channel, int peer, Message from, BurstReq *req)
{
    Message *m = message_take(c);
    if (!m)
        return BURST_E_PLAN;
    *m = from;
    m->peer = peer;
    m->channel = (uint32_t)channel;
    *req = (BurstReq){1, m};
    Peer *p = &c->peer[peer];
    if (sends) {
        append(&p->out, &p->out_last, m);
        send_on(p);
    } else {
        append(&p->in, &p->in_last, m);
    }
    return BURST_OK;
}

static int post_strips(BurstCtx *c, bool sends, int channel, int peer, const BurstStrip *strip, int strips,
                       BurstReq *req)
{
    Message m = {.strips = strips};
    for (int i = 0; i < strips; i++) {
        m.strip[i] = strip[i];
        m.bytes += strip[i].rows * strip[i].bytes;
    }
    return post(c, sends, channel, peer, m, req);
}

int burst_send_rows(BurstCtx *c, int channel, int peer, const BurstStrip *strip, int strips, BurstReq *req)
{
    return post_strips(c, true, channel, peer, strip, strips, req);
}

int burst_recv_rows(BurstCtx *c, int channel, int peer, const BurstStrip *strip, int strips, BurstReq *req)
{
    return post_strips(c, false, channel, peer, strip, strips, req);
}

int burst_send(BurstCtx *c, int channel, int peer, const void *data, size_t bytes, BurstReq *req)
{
    const BurstStrip all = {(void *)(uintptr_t)data, 1, bytes, bytes};
    return post_strips(c, true, channel, peer, &all, 1, req);
}

int burst_recv(BurstCtx *c, int channel, int peer, void *data, size_t bytes, BurstReq *req)
{
    const BurstStrip all = {data, 1, bytes, bytes};
    return post_strips(c, false, channel, peer, &all, 1, req);
}

static int post_listed(BurstCtx *c, bool sends, int peer, const void *base, const int32_t *row, int64_t rows,
                       size_t bytes, BurstReq *req)
{
    const Message m = {.row = row,
                       .base = (char *)(uintptr_t)base,
                       .row_bytes = bytes,
                       .bytes = (uint64_t)rows * bytes};
    return post(c, sends, LISTED, peer, m, req);
}

int send_listed(BurstCtx *c, int peer, const void *base, const int32_t *row, int64_t rows, size_t bytes,
                BurstReq *req)
{
    return post_listed(c, true, peer, base, row, rows, bytes, req);
}

int receive_listed(BurstCtx *c, int peer, void *base, const int32_t *row, int64_t rows, size_t bytes,
                   BurstReq *req)
{
    return post_listed(c, false, peer, base, row, rows, bytes, req);
}

/* ---- the begin and end of calls ---- */

static int post_text(BurstCtx *c, int peer, uint32_t kind, void *text, size_t bytes)
{
    BurstReq req;
    return post(c, true, 0, peer,
                (Message){.kind = kind, .strips = 1, .strip = {{text, 1, bytes, bytes}}, .bytes = bytes},
                &req);
}

int call_begin(BurstCtx *c, const Call *call)
{
    const uint64_t number = c->call.number + 1;
    c->call = *call;
    c->call.number = number;
    c->doing = call_names[call->what];
    if (c->broken)
        return c->broken;
    for (int r = 0; r < c->world; r++)
        if (r != c->rank)
            BURST_TRY(post_text(c, r, M_CALL, &c->call, sizeof c->call));
    for (int r = 0; r < c->world; r++)
        if (c->peer[r].ahead)
            BURST_TRY(compare_calls(c, r));
    return BURST_OK;
}

static bool all_called(const BurstCtx *c, const void *what, int *peer)
{
    (void)what;
    for (int r = 0; r < c->world; r++) {
        *peer = r;
        if (r != c->rank && (c->peer[r].calls < c->call.number || c->peer[r].out))
            return false;
    }
    return true;
}

/* Drops queued messages that have not started. */
static void drop_queues(BurstCtx *c, Peer *p)
{
    Message *rest = p->out && p->sending ? p->out->next : p->out;
    if (p->sending)
        p->out->next = NULL, p->out_last = p->out;
    else
        p->out = NULL;
    for (Message *next; rest; rest = next) {
        next = rest->next;
        message_free(c, rest);
    }
    p->in = NULL;
}

static bool any_to_send(const BurstCtx *c)
{
    for (int r = 0; r < c->world; r++)
        if (r != c->rank && c->peer[r].fd >= 0 && !c->peer[r].deaf && c->peer[r].out)
            return true;
    return false;
}

/* Sends a last message to all others, as far as their sockets accept it. */
static void tell_all(BurstCtx *c, uint32_t kind, char *text, size_t bytes)
{
    const double end = burst_seconds() + FAREWELL_MS / 1e3;
    for (int r = 0; r < c->world; r++) {
        if (r == c->rank || c->peer[r].fd < 0)
            continue;
        drop_queues(c, &c->peer[r]);
        if (post_text(c, r, kind, text, bytes) != BURST_OK)
            return;
    }
    while (any_to_send(c) && burst_seconds() < end) {
        sleep_on(c, POLL_MS, false);
        for (int r = 0; r < c->world; r++)
            if (r != c->rank)
                send_on(&c->peer[r]);
    }
    for (int r = 0; r < c->world; r++)
        if (r != c->rank && c->peer[r].fd >= 0)
            shutdown(c->peer[r].fd, SHUT_WR);
}

/* Returns the call's own messages to the free list. */
static void forget_calls(BurstCtx *c)
{
    c->free = NULL;
    for (Message *m = c->message; m->peer != -1; m++)
        message_free(c, m);
}

int call_agreed(BurstCtx *c) { return wait_until(c, all_called, NULL); }

int call_end(BurstCtx *c, int status)
{
    if (c->broken)
        return c->broken;
    if (status == BURST_OK)
        status = call_agreed(c);
    if (status != BURST_OK) {
        c->broken = status;
        tell_all(c, M_FAILED, c->error, strlen(c->error));
    } else {
        forget_calls(c);
    }
    return status;
}

/* ---- open and close ---- */

static double default_timeout(void)
{
    const char *text = getenv("BURST_TIMEOUT");
    char *end = NULL;
    const double seconds = text ? strtod(text, &end) : 0;
    return text && end != text && !*end && seconds > 0 ? seconds : 300;
}

int transport_open(BurstCtx *c, int rank, int world, int messages)
{
    c->rank = rank;
    c->world = world;
    c->owner = getpid();
    c->timeout = default_timeout();
    c->doing = "opening";
    messages += 4 * world; /* calls, and rows of burst_move */
    c->peer = calloc((size_t)world, sizeof *c->peer);
    c->poll = calloc((size_t)world, sizeof *c->poll);
    c->message = calloc((size_t)messages + 1, sizeof *c->message);
    if (!c->peer || !c->poll || !c->message)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for %d messages", messages);
    for (int r = 0; r < world; r++)
        c->peer[r].fd = -1;
    c->message[messages].peer = -1; /* terminates the list */
    forget_calls(c);
    return BURST_OK;
}

bool is_forked(const BurstCtx *c) { return c->owner != getpid(); }

void transport_close(BurstCtx *c)
{
    if (c->peer && !c->broken && !is_forked(c))
        tell_all(c, M_GOODBYE, c->error, 0);
    for (int r = 0; c->peer && r < c->world; r++)
        if (c->peer[r].fd >= 0)
            close(c->peer[r].fd);
    free(c->peer);
    free(c->poll);
    free(c->message);
}
