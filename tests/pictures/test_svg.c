/* test_svg.c: text of an input inside a picture, and what a grid's levels are. */
#include "tools/pictures/pictures.h"
#include "../mask/positions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* An escaped text holds none of the characters that markup is made of but its own entities, is valid
 * UTF-8, and of printable text nothing is lost. */
static void escapes(void **state)
{
    (void)state;
    static const struct { const char *text, *escaped;
    } cases[] = {
        {"q < k & \"a\" 'b' >", "q &#60; k &#38; &#34;a&#34; &#39;b&#39; &#62;"},
        {"</text><script>", "&#60;/text&#62;&#60;script&#62;"},
        {"a\nb\tc\x7f", "a&#60;0A&#62;b&#60;09&#62;c&#60;7F&#62;"},
        {"\xff\xc3", "&#60;FF&#62;&#60;C3&#62;"},
        {"\xc2\x85\xef\xbf\xbe", "&#60;C2&#62;&#60;85&#62;&#60;EF&#62;&#60;BF&#62;&#60;BE&#62;"},
        {"gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x98\x80"},
    };
    for (int i = 0; i < countof(cases); i++) {
        Text t = {0};
        svg_escape(cases[i].text, &t);
        assert_string_equal(t.at, cases[i].escaped);
        text_free(&t);
    }
}

static void shortens(void **state)
{
    (void)state;
    Arena *a = arena_new();
    assert_string_equal(svg_short(a, "abcd", 4), "abcd");
    assert_string_equal(svg_short(a, "abcde", 4), "abcd\xe2\x80\xa6 (5 characters)");
    /* no half of a character */
    assert_string_equal(svg_short(a, "abc\xc3\xbc" "de", 4), "abc\xe2\x80\xa6 (7 characters)");
    assert_string_equal(tokens_text(a, 1 << 20), "1Mi");
    assert_string_equal(tokens_text(a, 1536), "1.5Ki");
    assert_string_equal(tokens_text(a, 1000), "1000");
    assert_string_equal(tokens_text(a, (1 << 20) + 1), "1048577");
    arena_free(a);
}

static void levels(void **state)
{
    (void)state;
    assert_int_equal(svg_level(0), 0);
    assert_int_equal(svg_level(1e-12), 1);
    assert_int_equal(svg_level(0.25), 2);
    assert_int_equal(svg_level(1 - 1e-9), SVG_LEVELS - 1);
    assert_int_equal(svg_level(1), SVG_LEVELS);
}

/* Positions before x, against all of them one by one. */
static void counts_before(void **state)
{
    (void)state;
    Arena *a = arena_new();
    for (int kind = 0; kind < PART_KINDS; kind++)
        for (int64_t n = 5; n < 90; n += 7) {
            const Partition *p = partition_make(a, (PartitionKind)kind, 12 < n ? 12 : n, n, 5);
            for (int r = 0; r < 5; r++)
                for (int64_t x = 0, before = 0; x <= n; x++) {
                    assert_int_equal(pos_before(&p->of[r], x), before);
                    for (int64_t i = 0; i < p->of[r].tokens; i++)
                        before += pos_at(&p->of[r], i) == x;
                }
        }
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes),
        cmocka_unit_test(shortens),
        cmocka_unit_test(levels),
        cmocka_unit_test(counts_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
