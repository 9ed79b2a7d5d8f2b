/* test_hmac.c: SHA-256 and HMAC-SHA256 against NIST's and RFC 4231's vectors, and pieces against wholes. */
#include "host/net/hmac.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void expect_hex(const uint8_t digest[SHA256_BYTES], const char *hex)
{
    char text[2 * SHA256_BYTES + 1];
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, hex);
}

static void digest_of(const char *text, size_t bytes, size_t piece, uint8_t digest[SHA256_BYTES])
{
    Sha256 s;
    sha256_begin(&s);
    for (size_t at = 0; at < bytes; at += piece)
        sha256_add(&s, text + at, bytes - at < piece ? bytes - at : piece);
    sha256_end(&s, digest);
}

static void digests(void **unused)
{
    (void)unused;
    static const char *const vectors[][2] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmno"
         "pqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    uint8_t digest[SHA256_BYTES];
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        for (size_t piece = 1; piece < 80; piece += 13) {
            digest_of(vectors[i][0], strlen(vectors[i][0]), piece, digest);
            expect_hex(digest, vectors[i][1]);
        }
    char *million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    digest_of(million, 1000000, 977, digest);
    free(million);
    expect_hex(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
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
        uint8_t mac[SHA256_BYTES];
        Hmac h;
        size_t keyed = spell(vectors[i].key, key), bytes = spell(vectors[i].data, data);
        hmac_begin(&h, key, keyed);
        hmac_add(&h, data, bytes / 3);
        hmac_add(&h, data + bytes / 3, bytes - bytes / 3);
        hmac_end(&h, mac);
        expect_hex(mac, vectors[i].mac);
    }
}

static void comparison(void **unused)
{
    (void)unused;
    uint8_t a[SHA256_BYTES] = {0}, b[SHA256_BYTES] = {0};
    assert_true(mac_equal(a, b));
    for (int i = 0; i < 8 * SHA256_BYTES; i++) {
        b[i / 8] = (uint8_t)(1 << i % 8);
        assert_false(mac_equal(a, b));
        b[i / 8] = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(digests), cmocka_unit_test(macs),
                                       cmocka_unit_test(comparison)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
