/* hmac.c: SHA-256 as FIPS 180-4 writes it down, and HMAC over it. */
#include "host/net/hmac.h"

#include <string.h>

static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
static const uint32_t round_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static uint32_t read_word(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void write_word(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(x >> (24 - 8 * i));
}

static void expand(const uint8_t *block, uint32_t w[64])
{
    for (int i = 0; i < 16; i++)
        w[i] = read_word(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
               (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
}

/* v: a to h of the standard. */
static void compress(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64], v[8];
    expand(block, w);
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t t = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & v[5]) ^ (~e & v[6])) +
                     round_constant[i] + w[i];
        uint32_t u = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t;
        v[0] = t + u;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void sha256_begin(Sha256 *s)
{
    memcpy(s->state, first, sizeof first);
    s->bytes = 0;
}

void sha256_add(Sha256 *s, const void *data, size_t bytes)
{
    for (const uint8_t *from = data; bytes > 0;) {
        size_t used = s->bytes % SHA256_BLOCK, n = bytes < SHA256_BLOCK - used ? bytes : SHA256_BLOCK - used;
        memcpy(s->block + used, from, n);
        s->bytes += n;
        from += n;
        bytes -= n;
        if (used + n == SHA256_BLOCK)
            compress(s->state, s->block);
    }
}

void sha256_end(Sha256 *s, uint8_t digest[SHA256_BYTES])
{
    static const uint8_t padding[SHA256_BLOCK] = {0x80};
    uint8_t length[8];
    uint64_t bits = s->bytes * 8;
    write_word(length, (uint32_t)(bits >> 32));
    write_word(length + 4, (uint32_t)bits);
    sha256_add(s, padding, 1 + (2 * SHA256_BLOCK - 9 - s->bytes % SHA256_BLOCK) % SHA256_BLOCK);
    sha256_add(s, length, sizeof length);
    for (int i = 0; i < 8; i++)
        write_word(digest + 4 * i, s->state[i]);
}

static void begin_padded(Sha256 *s, const uint8_t key[SHA256_BLOCK], uint8_t with)
{
    uint8_t pad[SHA256_BLOCK];
    for (int i = 0; i < SHA256_BLOCK; i++)
        pad[i] = key[i] ^ with;
    sha256_begin(s);
    sha256_add(s, pad, sizeof pad);
}

void hmac_begin(Hmac *h, const void *key, size_t bytes)
{
    uint8_t whole[SHA256_BLOCK] = {0};
    if (bytes > sizeof whole) {
        sha256_begin(&h->inner);
        sha256_add(&h->inner, key, bytes);
        sha256_end(&h->inner, whole);
    } else if (bytes) {
        memcpy(whole, key, bytes);
    }
    begin_padded(&h->inner, whole, 0x36);
    begin_padded(&h->outer, whole, 0x5c);
}

void hmac_add(Hmac *h, const void *data, size_t bytes)
{
    sha256_add(&h->inner, data, bytes);
}

void hmac_end(Hmac *h, uint8_t mac[SHA256_BYTES])
{
    uint8_t digest[SHA256_BYTES];
    sha256_end(&h->inner, digest);
    sha256_add(&h->outer, digest, sizeof digest);
    sha256_end(&h->outer, mac);
}

bool mac_equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES])
{
    unsigned differ = 0;
    for (int i = 0; i < SHA256_BYTES; i++)
        differ |= (unsigned)(a[i] ^ b[i]);
    return differ == 0;
}
