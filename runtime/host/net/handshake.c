/* handshake.c: the handshake as a state machine per connection, and one poll loop over all of them. */
#include "host/net/handshake.h"

#include "burst_context.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* the first three are states of a dial */
enum { CONNECTING, AWAITS_PROOF, AWAITS_WELCOME, AWAITS_CALL, AWAITS_HELLO };
enum { MORE, DONE, GONE };
enum { ACCEPTS_A_ROUND = 64 };
/* "BURSTRV3" in little-endian; hosts of another byte order are refused */
static const uint64_t magic = 0x3356525453525542;
/* Seconds: for a caller to prove itself, for a dial, and between two tries. */
static const double caller_limit = 2, dial_limit = 3, least_pause = 0.05, most_pause = 0.2;

_Static_assert(KEY_BYTES == crypto_auth_hmacsha256_BYTES, "a proof is a whole MAC");
_Static_assert(sizeof(Hello) == 96 && sizeof(Call) == 40 && sizeof(Proof) == 64 && sizeof(Entry) == 128,
               "no padding");

/* Of several implementations sodium_init chooses; without it, libsodium takes its portable one. */
typedef crypto_auth_hmacsha256_state Mac;

static void mac_add(Mac *m, const void *data, size_t bytes)
{
    crypto_auth_hmacsha256_update(m, data, bytes);
}

void derive_key(uint8_t key[KEY_BYTES], const void *from, size_t bytes, const char *purpose,
                const void *data, size_t data_bytes)
{
    Mac m;
    crypto_auth_hmacsha256_init(&m, from, bytes);
    mac_add(&m, purpose, strlen(purpose) + 1);
    mac_add(&m, data, data_bytes);
    crypto_auth_hmacsha256_final(&m, key);
}

bool random_bytes(void *data, size_t bytes)
{
    return getrandom(data, bytes, 0) == (ssize_t)bytes;
}

/* hello NULL: the callee's proof. */
static void prove(const Handshakes *g, const Handshake *x, const Hello *hello, uint8_t mac[KEY_BYTES])
{
    const char *role = hello ? "burst caller" : "burst callee";
    Mac m;
    crypto_auth_hmacsha256_init(&m, g->key, sizeof g->key);
    mac_add(&m, role, strlen(role) + 1);
    mac_add(&m, x->caller_nonce, sizeof x->caller_nonce);
    mac_add(&m, x->callee_nonce, sizeof x->callee_nonce);
    if (hello)
        mac_add(&m, hello, sizeof *hello);
    crypto_auth_hmacsha256_final(&m, mac);
}

/* The first bytes of a connection always fit into the socket's buffer. */
static int put(Handshake *x, const void *data, size_t bytes, int stage)
{
    x->stage = stage;
    return send(x->fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes ? MORE : GONE;
}

/* ---- transitions ---- */
static int send_call(Handshakes *g, Handshake *x)
{
    Call mine = {.magic = magic};
    /* a dial to a port without a listener can connect the socket to itself */
    Address self = socket_name(x->fd);
    (void)g;
    if (memcmp(&self, &x->at, sizeof self) == 0 || !socket_same_user(x->fd) ||
        !random_bytes(mine.nonce, sizeof mine.nonce))
        return GONE;
    memcpy(x->caller_nonce, mine.nonce, sizeof x->caller_nonce);
    return put(x, &mine, sizeof mine, AWAITS_PROOF);
}

static int send_proof(Handshakes *g, Handshake *x)
{
    Proof mine;
    if (x->in.call.magic != magic || !random_bytes(mine.nonce, sizeof mine.nonce))
        return GONE;
    memcpy(x->caller_nonce, x->in.call.nonce, sizeof x->caller_nonce);
    memcpy(x->callee_nonce, mine.nonce, sizeof x->callee_nonce);
    prove(g, x, NULL, mine.mac);
    return put(x, &mine, sizeof mine, AWAITS_HELLO);
}

static void hang_up(Handshake *x)
{
    close(x->fd);
    x->fd = -1;
    x->deadline = burst_seconds() + x->pause;
    x->pause = x->pause * 2 < most_pause ? x->pause * 2 : most_pause;
}

static int check_proof(Handshakes *g, Handshake *x)
{
    uint8_t mac[KEY_BYTES];
    Entry mine = {.hello = g->mine};
    memcpy(x->callee_nonce, x->in.proof.nonce, sizeof x->callee_nonce);
    prove(g, x, NULL, mac);
    if (sodium_memcmp(mac, x->in.proof.mac, sizeof mac) != 0) {
        g->impostor = true;
        g->impostor_at = x->at;
        return GONE;
    }
    for (int i = 0; g->first_only && i < g->dials; i++)
        if (&g->dial[i] != x && g->dial[i].fd >= 0)
            hang_up(&g->dial[i]);
    mine.hello.to = x->to;
    prove(g, x, &mine.hello, mine.mac);
    return put(x, &mine, sizeof mine, AWAITS_WELCOME);
}

static int check_hello(Handshakes *g, Handshake *x)
{
    uint8_t mac[KEY_BYTES];
    prove(g, x, &x->in.entry.hello, mac);
    if (sodium_memcmp(mac, x->in.entry.mac, sizeof mac) != 0 || x->in.entry.hello.to != g->mine.rank)
        return GONE;
    return put(x, &magic, sizeof magic, AWAITS_HELLO) == MORE ? DONE : GONE;
}

static int check_welcome(Handshakes *g, Handshake *x)
{
    (void)g;
    return x->in.welcome == magic ? DONE : GONE;
}

static const struct { size_t bytes; int (*then)(Handshakes *g, Handshake *x); } stages[] = {
    [CONNECTING] = {0, send_call},
    [AWAITS_PROOF] = {sizeof(Proof), check_proof},
    [AWAITS_WELCOME] = {sizeof(uint64_t), check_welcome},
    [AWAITS_CALL] = {sizeof(Call), send_proof},
    [AWAITS_HELLO] = {sizeof(Entry), check_hello},
};

/* Why the connection failed, as an errno; 0: n bytes arrived, or it was established. */
static int failure_of(const Handshake *x, size_t bytes, ssize_t n)
{
    if (!bytes)
        return socket_refusal(x->fd);
    if (n == 0)
        return ECONNRESET;
    return n < 0 ? errno : 0;
}

static int step(Handshakes *g, Handshake *x)
{
    size_t bytes = stages[x->stage].bytes;
    ssize_t n = bytes ? recv(x->fd, (char *)&x->in + x->done, bytes - x->done, 0) : 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return MORE;
    x->reason = failure_of(x, bytes, n);
    if (x->reason)
        return GONE;
    x->done += (size_t)n;
    if (x->done < bytes)
        return MORE;
    x->done = 0;
    x->reason = EPROTO; /* the reason if it closes now */
    return stages[x->stage].then(g, x);
}

/* ---- dials ---- */
static void dial(Handshake *x, double now)
{
    x->fd = socket_dial(&x->at);
    x->stage = CONNECTING;
    x->done = 0;
    x->reason = x->fd < 0 ? errno : 0;
    x->deadline = now + (x->fd < 0 ? x->pause : dial_limit);
}

static bool is_chosen(const Handshakes *g)
{
    for (int i = 0; g->first_only && i < g->dials; i++)
        if (g->dial[i].fd >= 0 && g->dial[i].stage == AWAITS_WELCOME)
            return true;
    return false;
}

static void look_at_dials(Handshakes *g, double now)
{
    bool chosen = is_chosen(g);
    for (int i = 0; i < g->dials; i++) {
        Handshake *x = &g->dial[i];
        if (now < x->deadline)
            continue;
        if (x->fd >= 0) {
            hang_up(x);
            x->reason = ETIMEDOUT;
        } else if (!chosen) {
            dial(x, now);
        }
    }
}

void handshakes_dial(Handshakes *g, const Address *at, int to)
{
    g->dial[g->dials++] = (Handshake){.fd = -1, .to = to, .at = *at, .pause = least_pause};
}

/* ---- callers ---- */
static void refuse(Handshakes *g, Handshake *x)
{
    close(x->fd);
    x->fd = -1;
    g->stranger = x->at;
    g->refused++;
}

/* Removes closed connections, keeping the order of arrival. */
static void look_at_callers(Handshakes *g, double now)
{
    int kept = 0;
    for (int i = 0; i < g->callers; i++) {
        if (g->caller[i].fd >= 0 && now >= g->caller[i].deadline)
            refuse(g, &g->caller[i]);
        if (g->caller[i].fd >= 0)
            g->caller[kept++] = g->caller[i];
    }
    g->callers = kept;
}

static void refuse_oldest(Handshakes *g)
{
    if (g->caller[0].fd >= 0)
        refuse(g, &g->caller[0]);
    memmove(g->caller, g->caller + 1, (size_t)--g->callers * sizeof *g->caller);
}

static void take_caller(Handshakes *g, int fd, const Address *from, double now)
{
    if (g->callers == g->room)
        refuse_oldest(g);
    Handshake *x = &g->caller[g->callers++];
    *x = (Handshake){.fd = fd, .stage = AWAITS_CALL, .deadline = now + caller_limit, .at = *from};
    if (!socket_same_user(fd))
        refuse(g, x);
}

/* False if this process cannot accept connections at all. Connections closed in the queue are ignored. */
static bool accept_callers(Handshakes *g, int listener, double now)
{
    for (int i = 0; i < ACCEPTS_A_ROUND; i++) {
        Address from;
        int fd = socket_accept(listener, &from);
        if (fd >= 0) {
            take_caller(g, fd, &from, now);
            continue;
        }
        bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (!full || g->callers == 0)
            return !full;
        refuse_oldest(g);
    }
    return true;
}

/* ---- the poll loop ---- */
static double earliest(const Handshake *x, int count, double then)
{
    for (int i = 0; i < count; i++)
        then = x[i].deadline < then ? x[i].deadline : then;
    return then;
}

static int wait_for_any(Handshakes *g, double now, double deadline)
{
    int n = 0;
    for (int i = 0; i < g->listeners; i++)
        g->poll[n++] = (struct pollfd){.fd = g->listener[i], .events = POLLIN};
    for (int i = 0; i < g->dials; i++)
        g->poll[n++] = (struct pollfd){.fd = g->dial[i].fd,
                                       .events = g->dial[i].stage == CONNECTING ? POLLOUT : POLLIN};
    for (int i = 0; i < g->callers; i++)
        g->poll[n++] = (struct pollfd){.fd = g->caller[i].fd, .events = POLLIN};
    double left = earliest(g->caller, g->callers, earliest(g->dial, g->dials, deadline)) - now;
    return poll(g->poll, (nfds_t)n, socket_patience(left));
}

static void hand_over(Handshake *x, bool dialled, Connected *out)
{
    *out = (Connected){.fd = x->fd,
                       .dialled = dialled,
                       .at = x->at,
                       .rank = dialled ? x->to : x->in.entry.hello.rank,
                       .hello = x->in.entry.hello};
    escape_text(out->hello.name, sizeof out->hello.name);
    x->fd = -1;
}

/* A dial that has succeeded is not repeated. */
static bool step_dials(Handshakes *g, const struct pollfd *seen, Connected *out)
{
    for (int i = 0; i < g->dials; i++) {
        Handshake *x = &g->dial[i];
        int is = seen[i].revents && x->fd == seen[i].fd ? step(g, x) : MORE;
        if (is == GONE)
            hang_up(x);
        if (is != DONE)
            continue;
        hand_over(x, true, out);
        *x = g->dial[--g->dials];
        return true;
    }
    return false;
}

static bool step_callers(Handshakes *g, const struct pollfd *seen, Connected *out)
{
    for (int i = 0; i < g->callers; i++) {
        int is = seen[i].revents ? step(g, &g->caller[i]) : MORE;
        if (is == GONE)
            refuse(g, &g->caller[i]);
        if (is != DONE)
            continue;
        hand_over(&g->caller[i], false, out);
        return true;
    }
    return false;
}

bool handshakes_next(Handshakes *g, double deadline, Connected *out)
{
    for (;;) {
        double now = burst_seconds();
        look_at_dials(g, now);
        look_at_callers(g, now);
        int ready = wait_for_any(g, now, deadline);
        const struct pollfd *dials = g->poll + g->listeners, *callers = dials + g->dials;
        if (ready < 0 && errno != EINTR)
            return false;
        if (ready > 0 && (step_callers(g, callers, out) || step_dials(g, dials, out)))
            return true;
        for (int i = 0; ready > 0 && i < g->listeners; i++)
            if (g->poll[i].revents && !accept_callers(g, g->listener[i], burst_seconds()))
                return false;
        if (now >= deadline) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

bool handshakes_open(Handshakes *g, const uint8_t key[KEY_BYTES], const Hello *mine, int listeners,
                     int dials, int room)
{
    *g = (Handshakes){.mine = *mine, .room = room};
    memcpy(g->key, key, sizeof g->key);
    g->dial = calloc((size_t)dials + 1, sizeof *g->dial);
    g->caller = calloc((size_t)room + 1, sizeof *g->caller);
    g->poll = calloc((size_t)listeners + (size_t)dials + (size_t)room + 1, sizeof *g->poll);
    return g->dial && g->caller && g->poll;
}

static void close_all(Handshake *x, int count)
{
    for (int i = 0; i < count; i++)
        if (x[i].fd >= 0)
            close(x[i].fd);
    free(x);
}

void handshakes_close(Handshakes *g)
{
    close_all(g->dial, g->dials);
    close_all(g->caller, g->callers);
    free(g->poll);
    *g = (Handshakes){0};
}
