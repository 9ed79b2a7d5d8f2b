/* handshake.h: how two ranks that connect find out that both are of the same job.
 *
 * Caller and callee each send a nonce and prove with an HMAC over both that they hold the job's key; the
 * callee goes first, and the caller's proof covers who it is. What was recorded proves nothing again. All
 * of them are polled together, each with a deadline of its own, and nothing is read but the message that
 * is due: a silent or slow stranger holds up nobody. */
#ifndef BURST_HANDSHAKE_H
#define BURST_HANDSHAKE_H

#include "host/net/socket.h"

#include <poll.h>

enum { HOST_NAME = 64, KEY_BYTES = 32 /* keys, nonces and proofs: HMAC-SHA256 (RFC 2104), by libsodium */ };

/* Who a rank is. On the wire, as the structures below: without padding. */
typedef struct Hello {
    /* of the process, at random: a rank that calls again is not another process of the same rank */
    uint64_t instance;
    uint64_t host;
    int32_t rank, to, local, zero; /* to: the rank that it means to call */
    char name[HOST_NAME];
} Hello;
typedef struct Call { uint64_t magic; uint8_t nonce[KEY_BYTES]; } Call;
typedef struct Proof { uint8_t nonce[KEY_BYTES], mac[KEY_BYTES]; } Proof;
typedef struct Entry { Hello hello; uint8_t mac[KEY_BYTES]; } Entry;

typedef struct Handshake {
    int fd, stage, to;
    int reason;      /* errno of the last failed attempt */
    size_t done;     /* bytes of the message that is due */
    double deadline; /* of a dial without a connection: when it is tried again */
    double pause;    /* before the next try */
    Address at;
    uint8_t caller_nonce[KEY_BYTES], callee_nonce[KEY_BYTES];
    union { Call call; Proof proof; Entry entry; uint64_t welcome; } in;
} Handshake;

typedef struct Handshakes {
    uint8_t key[KEY_BYTES];
    Hello mine;
    const int *listener;
    int listeners;
    bool first_only;  /* of all dials, the first that is proven is enough */
    Handshake *dial, *caller;
    int dials, callers, room; /* room: for callers; the oldest goes where there is none */
    struct pollfd *poll;
    int refused;      /* callers that did not prove the key, */
    Address stranger; /* and the last of them */
    bool impostor;    /* somebody that was dialled did not prove the key: */
    Address impostor_at;
} Handshakes;

typedef struct Connected {
    int fd;     /* whoever takes the result owns it */
    bool dialled;
    int rank;   /* as dialled, or as the caller proved */
    Address at; /* of the other end */
    Hello hello; /* of a caller */
} Connected;

/* A key from another one, for one purpose. */
void derive_key(uint8_t key[KEY_BYTES], const void *from, size_t bytes, const char *purpose,
                const void *data, size_t data_bytes);
bool random_bytes(void *data, size_t bytes);

/* False: no memory. dials, room: the most at once; listeners may follow later. */
bool handshakes_open(Handshakes *g, const uint8_t key[KEY_BYTES], const Hello *mine, int listeners,
                     int dials, int room);
/* Connects to this address, again and again until the rank there has proven the key. */
void handshakes_dial(Handshakes *g, const Address *at, int to);
/* The next connection of which both ends have proven the key. False past the deadline (ETIMEDOUT), or with
 * another reason. */
bool handshakes_next(Handshakes *g, double deadline, Connected *out);
void handshakes_close(Handshakes *g);
#endif
