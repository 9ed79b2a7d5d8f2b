/* handshake.h: by which two ranks that connect verify that both belong to the same job.
 *
 * Caller and callee each send a nonce and prove with an HMAC over both nonces that they hold the job's key.
 * The callee proves first; the caller's proof covers its identity. A recorded handshake cannot be replayed.
 * All handshakes are polled together, each with its own deadline, and only the expected message is read, so
 * a silent or slow stranger delays nobody. */
#ifndef BURST_HANDSHAKE_H
#define BURST_HANDSHAKE_H

#include "host/net/socket.h"

#include <poll.h>

enum { HOST_NAME = 64, KEY_BYTES = 32 /* keys, nonces and proofs: HMAC-SHA256 (RFC 2104), by libsodium */ };

/* Identity of a rank. Sent over the wire without padding, like the structures below. */
typedef struct Hello {
    /* random per process: distinguishes a rank that calls again from another process with its rank */
    uint64_t instance;
    uint64_t host;
    int32_t rank, to, local, zero; /* to: the rank it wants to call */
    char name[HOST_NAME];
} Hello;
typedef struct Call { uint64_t magic; uint8_t nonce[KEY_BYTES]; } Call;
typedef struct Proof { uint8_t nonce[KEY_BYTES], mac[KEY_BYTES]; } Proof;
typedef struct Entry { Hello hello; uint8_t mac[KEY_BYTES]; } Entry;

typedef struct Handshake {
    int fd, stage, to;
    int reason;      /* errno of the last failed attempt */
    size_t done;     /* bytes of the expected message */
    double deadline; /* of a dial without a connection: time of the next try */
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
    bool first_only;  /* one proven dial is enough */
    Handshake *dial, *caller;
    int dials, callers, room; /* room: callers, at most; the oldest is dropped when it is full */
    struct pollfd *poll;
    int refused;      /* number of callers that did not prove the key */
    Address stranger; /* the last of them */
    bool impostor;    /* an address that was dialled did not prove the key */
    Address impostor_at;
} Handshakes;

typedef struct Connected {
    int fd;     /* owned by whoever takes the result */
    bool dialled;
    int rank;   /* as dialled, or as proven by the caller */
    Address at; /* of the other end */
    Hello hello; /* of a caller */
} Connected;

/* Derives a key for one purpose from another key. */
void derive_key(uint8_t key[KEY_BYTES], const void *from, size_t bytes, const char *purpose,
                const void *data, size_t data_bytes);
bool random_bytes(void *data, size_t bytes);

/* False: no memory. dials, room: maximum numbers; listeners may be added later. */
bool handshakes_open(Handshakes *g, const uint8_t key[KEY_BYTES], const Hello *mine, int listeners,
                     int dials, int room);
/* Dials this address until the rank there has proven the key. */
void handshakes_dial(Handshakes *g, const Address *at, int to);
/* Returns the next connection whose ends have both proven the key. False past the deadline (ETIMEDOUT), or
 * for another reason. */
bool handshakes_next(Handshakes *g, double deadline, Connected *out);
void handshakes_close(Handshakes *g);
#endif
