/* mesh.c: a connection for each pair of ranks that share no memory. The higher rank dials; all connect
 * concurrently. */
#include "host/launch/rendezvous.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool apart(const Rendezvous *m, int i)
{
    return i != m->rank && m->local_of[i] < 0;
}

static int count_apart(const Rendezvous *m, int first, int end)
{
    int count = 0;
    for (int i = first; i < end; i++)
        count += apart(m, i);
    return count;
}

/* Listens on the interface that leads to rank 0, only if a rank will call. Rank 0 already listens. */
static bool listen_for_higher(Rendezvous *m, uint16_t *port)
{
    Address at = m->all[m->rank].at, bound = {0};
    *port = 0;
    if (count_apart(m, m->rank + 1, m->world) == 0) {
        close_listeners(m);
        return true;
    }
    if (m->rank == 0)
        return true;
    at.port = 0;
    at.unix_name = at.unix_name ? m->name : 0;
    int fd = socket_listen(&at, m->world + MORE_CALLERS, &bound);
    if (fd < 0 && errno == EADDRNOTAVAIL) { /* rank 0 sees another address, as behind NAT */
        at = (Address){0};
        fd = socket_listen(&at, m->world + MORE_CALLERS, &bound);
    }
    if (fd < 0)
        return rendezvous_fail(m, BURST_E_PEER, "rank %d cannot listen for other ranks: %s", m->rank,
                               strerror(errno));
    m->listener[m->listeners++] = fd;
    *port = bound.port;
    return true;
}

static Address address_of(const Rendezvous *m, int i, uint16_t port)
{
    Address at = m->all[i].at;
    if (i == 0)
        return m->root_at;
    at.unix_name = at.unix_name ? m->name : 0;
    at.port = port;
    return at;
}

/* Whether the caller, which has proven the key and named its rank, is one that calls this rank. */
static bool expected(const Rendezvous *m, const Connected *who)
{
    if (who->dialled)
        return true;
    return who->rank > m->rank && who->rank < m->world && apart(m, who->rank) &&
           who->hello.instance == m->all[who->rank].hello.instance;
}

static bool name_unconnected(Rendezvous *m, const Handshakes *g, int reason)
{
    char where[ADDRESS_TEXT];
    if (g->dials) {
        const Handshake *x = &g->dial[0];
        address_describe(&x->at, where, sizeof where);
        return rendezvous_fail(m, BURST_E_PEER, "rank %d cannot connect to rank %d on %s (%s): %s", m->rank,
                               x->to, m->all[x->to].hello.name, where,
                               strerror(x->reason ? x->reason : reason));
    }
    int missing = m->rank + 1;
    while (missing < m->world - 1 && (!apart(m, missing) || m->mesh[missing] >= 0))
        missing++;
    return rendezvous_fail(m, BURST_E_PEER, "rank %d timed out waiting for rank %d on %s to connect: %s",
                           m->rank, missing, m->all[missing].hello.name, strerror(reason));
}

/* A rank that calls again has lost its first connection. */
static bool connect_all(Rendezvous *m, Handshakes *g)
{
    for (int left = count_apart(m, 0, m->world); left > 0;) {
        Connected who;
        if (!handshakes_next(g, m->deadline, &who))
            return name_unconnected(m, g, errno);
        if (!expected(m, &who)) {
            close(who.fd);
            continue;
        }
        if (m->mesh[who.rank] >= 0)
            close(m->mesh[who.rank]);
        else
            left--;
        m->mesh[who.rank] = who.fd;
    }
    return true;
}

static bool dial_lower(Rendezvous *m, Handshakes *g, const uint16_t *port)
{
    for (int i = 0; i < m->rank; i++) {
        if (!apart(m, i))
            continue;
        if (i > 0 && port[i] == 0)
            return rendezvous_fail(m, BURST_E_PEER, "rank %d does not listen for rank %d", i, m->rank);
        Address at = address_of(m, i, port[i]);
        handshakes_dial(g, &at, i);
    }
    return true;
}

bool connect_mesh(Rendezvous *m)
{
    Handshakes g = {0};
    uint8_t done = 1;
    uint16_t mine, *port = calloc((size_t)m->world, sizeof *port);
    bool ok = port && handshakes_open(&g, m->mesh_key, &m->all[m->rank].hello, ADDRESSES, m->rank,
                                      m->world + MORE_CALLERS);
    if (!ok)
        rendezvous_fail(m, BURST_E_MEMORY, "out of memory for a list of %d connections",
                        m->world + MORE_CALLERS);
    ok = ok && listen_for_higher(m, &mine) && rendezvous_agree(m, &mine, sizeof mine, port);
    g.listener = m->listener;
    g.listeners = m->listeners;
    ok = ok && dial_lower(m, &g, port) && connect_all(m, &g) &&
         rendezvous_agree(m, &done, sizeof done, m->shares); /* nobody starts before all are connected */
    handshakes_close(&g);
    free(port);
    return ok;
}
