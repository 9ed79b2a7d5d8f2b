/* hmac.h: SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), for the handshake of ranks that meet over a
 * network. Small on purpose: an emitted program needs no cryptographic library for three short messages. */
#ifndef BURST_HMAC_H
#define BURST_HMAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK = 64 };

typedef struct Sha256 {
    uint32_t state[8];
    uint64_t bytes; /* hashed so far */
    uint8_t block[SHA256_BLOCK];
} Sha256;
void sha256_begin(Sha256 *s);
void sha256_add(Sha256 *s, const void *data, size_t bytes);
void sha256_end(Sha256 *s, uint8_t digest[SHA256_BYTES]);

typedef struct Hmac { Sha256 inner, outer; } Hmac;
void hmac_begin(Hmac *h, const void *key, size_t bytes);
void hmac_add(Hmac *h, const void *data, size_t bytes);
void hmac_end(Hmac *h, uint8_t mac[SHA256_BYTES]);
/* In a time that does not depend on where they differ. */
bool mac_equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES]);
#endif
