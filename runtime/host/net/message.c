/* message.c: messages between ranks. On one host the sender publishes the offset of its data in the shared
 * region; the receiver copies them from there (one copy) and acknowledges. Between hosts a Remote carries
 * them. Every blocking wait makes progress on all posted messages, so the order in which a rank waits for
 * its peers cannot cause a deadlock. */
#include "core/context.h"
#include "core/region.h"
#include "host/net/messages.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { IDLE = 0, SEND = 1, RECEIVE = 2 };
enum { SLEEP_US = 100000 };
/* A message between hosts rings no bell and makes progress only when polled; MPI over TCP only on every
 * eighth poll. */
enum { POLL_US = 50, POLLS = 64, POLLS_A_SLEEP = 8 };

int messages_open(BurstCtx *c)
{
    size_t lanes = (size_t)c->world * BURST_CHANNELS;
    for (int sending = 0; sending < 2; sending++) {
        Lane *lane = c->lane[sending] = calloc(lanes, sizeof *lane);
        if (!lane)
            return burst_fail(c, BURST_E_MEMORY, "out of memory for %zu message queues", lanes);
        for (size_t i = 0; i < lanes; i++) {
            int peer = (int)(i / BURST_CHANNELS), channel = (int)(i % BURST_CHANNELS),
                there = c->local_of[peer];
            int receiver = sending ? there : c->local, sender = sending ? c->local : there;
            lane[i] = (Lane){.sending = sending, .peer = peer, .channel = channel,
                             .ring = there < 0 ? NULL : region_ring(c->region, receiver, sender, channel)};
        }
    }
    c->gather_reqs = calloc((size_t)c->world * (GATHERS_MAX + 1), sizeof *c->gather_reqs);
    return c->gather_reqs ? BURST_OK
                          : burst_fail(c, BURST_E_MEMORY, "out of memory for the requests of an all-gather");
}

static void op_free(BurstCtx *c, Op *op)
{
    op->next = c->free_ops;
    c->free_ops = op;
}

void messages_close(BurstCtx *c)
{
    for (Lane *l = c->active; l; l = l->next_active)
        for (Op *op = l->head, *next; op; op = next) {
            next = op->next;
            op_free(c, op);
        }
    for (Op *op = c->free_ops, *next; op; op = next) {
        next = op->next;
        if (op->remote)
            c->remote->release(op);
        free(op);
    }
    free(c->lane[0]);
    free(c->lane[1]);
    free(c->gather_reqs);
    c->active = NULL;
    c->free_ops = NULL;
}

static Op *op_take(BurstCtx *c)
{
    Op *op = c->free_ops;
    if (!op)
        return calloc(1, sizeof *op);
    c->free_ops = op->next;
    *op = (Op){.remote = op->remote};
    return op;
}

static void append(BurstCtx *c, Lane *l, Op *op)
{
    op->lane = l;
    op->sequence = l->posted++;
    if (l->head)
        l->tail->next = op;
    else
        l->head = op;
    l->tail = op;
    if (!l->unpublished)
        l->unpublished = op;
    if (!l->active) {
        l->active = true;
        l->next_active = c->active;
        c->active = l;
    }
    c->remote_active += l->ring == NULL;
}

static void finish_head(BurstCtx *c, Lane *l)
{
    Op *op = l->head;
    l->head = op->next;
    if (l->unpublished == op)
        l->unpublished = l->head;
    op->done = true;
    c->remote_active -= l->ring == NULL;
    if (op->detached)
        op_free(c, op);
}

/* ---- one host ---- */
static bool publish(BurstCtx *c, Lane *l)
{
    bool any = false;
    for (Op *op; (op = l->unpublished) != NULL; l->unpublished = op->next, any = true) {
        if (op->sequence - atomic_load_explicit(&l->ring->consumed, memory_order_acquire) >= RING_SLOTS)
            break;
        uint64_t offset = op->bytes ? (uint64_t)((char *)op->data - c->region->base) : 0;
        l->ring->desc[op->sequence % RING_SLOTS] = (Desc){offset, op->bytes, op->sequence};
        atomic_store_explicit(&l->ring->published, op->sequence + 1, memory_order_release);
    }
    if (any)
        slot_ring(region_slot(c->region, c->local_of[l->peer]));
    return any;
}

static int send_on(BurstCtx *c, Lane *l, bool *moved)
{
    uint64_t consumed = atomic_load_explicit(&l->ring->consumed, memory_order_acquire);
    while (l->head && l->head != l->unpublished && l->head->sequence < consumed) {
        finish_head(c, l);
        *moved = true;
    }
    *moved |= publish(c, l);
    return BURST_OK;
}

static void deliver(const Op *op, const char *from)
{
    if (!op->add) {
        if (op->bytes)
            memcpy(op->data, from, op->bytes);
        return;
    }
    float *to = op->data;
    const float *add = (const float *)from;
    for (uint64_t i = 0; i < op->bytes / sizeof *to; i++)
        to[i] += add[i];
}

int message_mismatch(BurstCtx *c, const Op *op, uint64_t sent)
{
    const Lane *l = op->lane;
    return burst_fail(c, BURST_E_PEER,
                      "rank %d sent %llu bytes to rank %d on channel %d (message %llu), but it expects %llu",
                      l->peer, (unsigned long long)sent, c->rank, l->channel,
                      (unsigned long long)op->sequence, (unsigned long long)op->bytes);
}

static int receive_on(BurstCtx *c, Lane *l, bool *moved)
{
    bool any = false;
    while (l->head && atomic_load_explicit(&l->ring->published, memory_order_acquire) > l->head->sequence) {
        Desc d = l->ring->desc[l->head->sequence % RING_SLOTS];
        if (d.bytes != l->head->bytes)
            return message_mismatch(c, l->head, d.bytes);
        deliver(l->head, c->region->base + d.offset);
        atomic_store_explicit(&l->ring->consumed, d.sequence + 1, memory_order_release);
        finish_head(c, l);
        any = true;
    }
    if (any)
        slot_ring(region_slot(c->region, c->local_of[l->peer]));
    *moved |= any;
    return BURST_OK;
}

/* ---- between hosts ---- */
static int remote_on(BurstCtx *c, Lane *l, bool *moved)
{
    bool done = true;
    const uint64_t before = c->remote_bytes;
    while (l->head && done) {
        BURST_TRY(c->remote->test(c, l->head, &done));
        if (done)
            finish_head(c, l);
        *moved |= done;
    }
    *moved |= c->remote_bytes != before;
    return BURST_OK;
}

static int move_on(BurstCtx *c, Lane *l, bool *moved)
{
    if (!l->ring)
        return remote_on(c, l, moved);
    return l->sending ? send_on(c, l, moved) : receive_on(c, l, moved);
}

/* Makes progress on all lanes and removes empty ones from the list. */
static int progress(BurstCtx *c, bool *moved)
{
    for (Lane **at = &c->active; *at;) {
        Lane *l = *at;
        BURST_TRY(move_on(c, l, moved));
        if (!l->head) {
            l->active = false;
            *at = l->next_active;
        } else {
            at = &l->next_active;
        }
    }
    return BURST_OK;
}

static int pause_for(BurstCtx *c, Watchdog *v, const Op *op, uint32_t bell)
{
    if (v->spins++ < c->spins && !c->remote_active) {
        cpu_relax();
        return BURST_OK;
    }
    BURST_TRY(watchdog_check(c, v, op));
    if (!c->remote_active)
        slot_sleep(c->slot, bell, SLEEP_US);
    else if (v->spins < POLLS || v->spins % POLLS_A_SLEEP)
        sched_yield();
    else
        slot_sleep(c->slot, bell, POLL_US);
    return BURST_OK;
}

/* op NULL: waits until nothing is in flight. */
static int wait_for(BurstCtx *c, const Op *op)
{
    Watchdog v = {0};
    while (op ? !op->done : c->active != NULL) {
        uint32_t bell = atomic_load(&c->slot->bell);
        bool moved = false;
        BURST_TRY(progress(c, &moved));
        if (moved) /* restart the count; the wait may be over */
            v = (Watchdog){.begin = v.begin > 0 ? awake_seconds() : 0, .spins = v.spins};
        else
            BURST_TRY(pause_for(c, &v, op ? op : c->active->head, bell));
    }
    if (v.begin > 0)
        atomic_store(&c->slot->waits_for, 0);
    return BURST_OK;
}

static int check_peer(BurstCtx *c, int channel, int peer)
{
    if (peer < 0 || peer >= c->world || peer == c->rank)
        return burst_fail(c, BURST_E_PLAN, "rank %d addresses rank %d, but the world size is %d", c->rank,
                          peer, c->world);
    if (channel < 0 || channel >= BURST_CHANNELS)
        return burst_fail(c, BURST_E_PLAN, "channel %d does not exist", channel);
    return BURST_OK;
}

static bool in_region(const Region *r, const void *data, size_t bytes)
{
    const char *at = data;
    return bytes == 0 ||
           (at >= r->base && at < r->base + r->bytes && bytes <= (size_t)(r->base + r->bytes - at));
}

static int post(BurstCtx *c, Op request, int kind, int channel, int peer, BurstReq *req)
{
    BURST_TRY(check_peer(c, channel, peer));
    Lane *l = &c->lane[kind == SEND][peer * BURST_CHANNELS + channel];
    if (kind == SEND && l->ring && !in_region(c->region, request.data, request.bytes))
        return burst_fail(c, BURST_E_PLAN,
                          "rank %d sends %llu bytes to rank %d on channel %d from outside its arena", c->rank,
                          (unsigned long long)request.bytes, peer, channel);
    Op *op = op_take(c);
    if (!op)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for a message");
    op->data = request.data;
    op->bytes = request.bytes;
    op->add = request.add;
    c->sent += kind == SEND && channel < CHANNEL_GATHER ? op->bytes : 0;
    append(c, l, op);
    *req = (BurstReq){kind, op};
    if (!l->ring)
        return c->remote->start(c, op);
    if (kind == SEND)
        publish(c, l);
    return BURST_OK;
}

int burst_send(BurstCtx *c, int channel, int peer, const void *data, size_t bytes, BurstReq *req)
{
    return post(c, (Op){.data = (void *)data, .bytes = bytes}, SEND, channel, peer, req);
}

int burst_recv(BurstCtx *c, int channel, int peer, void *data, size_t bytes, BurstReq *req)
{
    return post(c, (Op){.data = data, .bytes = bytes}, RECEIVE, channel, peer, req);
}

/* One message per row. A lane completes in order, so the last message stands for all. */
static int post_rows(BurstCtx *c, int kind, int channel, int peer, const BurstStrip *strip, int strips,
                     BurstReq *req)
{
    bool posted = false;
    for (const BurstStrip *s = strip; s < strip + strips; s++)
        for (size_t i = 0; i < s->rows; i++, posted = true) {
            if (posted)
                request_detach(c, req);
            BURST_TRY(post(c, (Op){.data = (char *)s->data + i * s->pitch, .bytes = s->bytes}, kind, channel,
                           peer, req));
        }
    return BURST_OK;
}

int burst_send_rows(BurstCtx *c, int channel, int peer, const BurstStrip *strip, int strips, BurstReq *req)
{
    return post_rows(c, SEND, channel, peer, strip, strips, req);
}

int burst_recv_rows(BurstCtx *c, int channel, int peer, const BurstStrip *strip, int strips, BurstReq *req)
{
    return post_rows(c, RECEIVE, channel, peer, strip, strips, req);
}

uint64_t burst_sent_bytes(const BurstCtx *c)
{
    return c->sent;
}

int receive_adding(BurstCtx *c, int channel, int peer, float *data, size_t bytes, BurstReq *req)
{
    return post(c, (Op){.data = data, .bytes = bytes, .add = true}, RECEIVE, channel, peer, req);
}

/* A traced wait interrupts the part that the rank computes, and is shown in the row of the message's
 * channel. */
static int wait_shown(BurstCtx *c, const Op *op)
{
    const int channel = op->lane->channel,
              lane = channel < CHANNEL_GATHER ? BURST_LANE_CHANNEL + channel : BURST_LANE_WEIGHTS;
    const BurstSpan cut = c->watching->open[BURST_LANE_COMPUTE];
    spans_switch(c->watching, BURST_LANE_COMPUTE, burst_seconds(), BURST_P_IDLE, 0, 0);
    spans_switch(c->watching, lane, burst_seconds(), BURST_P_WAIT_RANK, op->lane->peer, 0);
    c->watching->open[lane].bytes = (int64_t)op->bytes;
    int status = wait_for(c, op);
    spans_switch(c->watching, lane, burst_seconds(), BURST_P_IDLE, 0, 0);
    spans_switch(c->watching, BURST_LANE_COMPUTE, burst_seconds(), cut.part, cut.a, cut.b);
    return status;
}

int burst_wait(BurstCtx *c, BurstReq *req)
{
    if (req->kind == IDLE)
        return BURST_OK;
    Op *op = req->impl;
    BURST_TRY(c->watching && !op->done ? wait_shown(c, op) : wait_for(c, op));
    op_free(c, op);
    req->kind = IDLE;
    return BURST_OK;
}

void request_detach(BurstCtx *c, BurstReq *req)
{
    if (req->kind == IDLE)
        return;
    Op *op = req->impl;
    if (op->done)
        op_free(c, op);
    else
        op->detached = true;
    req->kind = IDLE;
}

int messages_drain(BurstCtx *c)
{
    burst_doing(c, "ending");
    return wait_for(c, NULL);
}
