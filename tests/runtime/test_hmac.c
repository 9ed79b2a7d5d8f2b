/* test_hmac.c: libsodium's HMAC-SHA256, in pieces as the handshake uses it, against RFC 4231's vectors, and
 * keys. */
#include "host/net/handshake.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void expect_hex(const uint8_t digest[KEY_BYTES], const char *hex)
{
    char text[2 * KEY_BYTES + 1];
    for (int i = 0; i < KEY_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, hex);
}

/* A byte repeated, or a text. */
typedef struct Bytes { const char *text; size_t repeat; } Bytes;
typedef struct Vector { Bytes key, data; const char *mac; } Vector;

static size_t spell(Bytes b, char *out)
{
    if (!b.repeat) {
        memcpy(out, b.text, strlen(b.text));
        return strlen(b.text);
    }
    memset(out, *b.text, b.repeat);
    return b.repeat;
}

static void macs(void **unused)
{
    (void)unused;
    static const Vector vectors[] = {
                                      /* RFC 4231, 4.2 to 4.8 without the truncated one */
        {{"\x0b", 20}, {"Hi There", 0}, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {{"Jefe", 0},
         {"what do ya want for nothing?", 0},
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {{"\xaa", 20}, {"\xdd", 50}, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {{"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18"
          "\x19",
          0},
         {"\xcd", 50},
         "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
        {{"\xaa", 131},
         {"Test Using Larger Than Block-Size Key - Hash Key First", 0},
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {{"\xaa", 131},
         {"This is a test using a larger than block-size key and a larger than block-size data. The key "
          "needs to be "
          "hashed before being used by the HMAC algorithm.",
          0},
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        char key[256], data[256];
        uint8_t mac[KEY_BYTES];
        crypto_auth_hmacsha256_state h;
        size_t keyed = spell(vectors[i].key, key), bytes = spell(vectors[i].data, data);
        crypto_auth_hmacsha256_init(&h, (const uint8_t *)key, keyed);
        crypto_auth_hmacsha256_update(&h, (const uint8_t *)data, bytes / 3);
        crypto_auth_hmacsha256_update(&h, (const uint8_t *)data + bytes / 3, bytes - bytes / 3);
        crypto_auth_hmacsha256_final(&h, mac);
        expect_hex(mac, vectors[i].mac);
    }
}

/* derive_key is HMAC-SHA256 of the purpose with its end, and the data: computed with Python's hmac. */
static void keys(void **unused)
{
    (void)unused;
    uint8_t key[KEY_BYTES];
    derive_key(key, "secret", 6, "burst mesh", "\x01\x02\x03", 3);
    expect_hex(key, "3da61d0778a3df5d9e4b0384743133e653998646d27515551dc1b5cec9e3d849");
    derive_key(key, "secret", 6, "burst mesh", "", 0);
    expect_hex(key, "52641e67b545c1130147e22f3df039ff002adebb31337c89f0216bd9f8a2fc1a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(macs), cmocka_unit_test(keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
