/* test_units.c: numbers and units against figures worked out by hand. */
#include "text.h"

#include <math.h>

#include "ast.h"

typedef struct Case { const char *text; UnitKind unit; double value; bool whole; int used; } Case;

static void numbers_read_as_written(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"32", UNIT_NONE, 32, true, 2},
        {"32Ki", UNIT_NONE, 32768, true, 4},
        {"1.5Mi", UNIT_NONE, 1572864, true, 5},
        {"4M", UNIT_NONE, 4000000, true, 2},
        {"128K;", UNIT_NONE, 128000, true, 4},
        {"3e-4", UNIT_NONE, 3e-4, false, 4},
        {"1e6", UNIT_NONE, 1000000, true, 3},
        {"9223372036854775807", UNIT_NONE, 9223372036854775807.0, true, 19},
        {"9223372036854775808", UNIT_NONE, 9223372036854775808.0, false, 19},
        {"8Ti", UNIT_NONE, 8796093022208.0, true, 3},
        {"141 GB", UNIT_BYTES, 141000000000.0, true, 6},
        {"64 GiB", UNIT_BYTES, 68719476736.0, true, 6},
        {"64GiB", UNIT_BYTES, 68719476736.0, true, 5},
        {"450 GB/s", UNIT_RATE, 450000000000.0, true, 8},
        {"200 Gb/s", UNIT_RATE, 25000000000.0, true, 8},
        {"4.8 TB/s", UNIT_RATE, 4.8e12, true, 8},
        {"790 TFLOP/s", UNIT_FLOPS, 7.9e14, true, 11},
        {"2 us", UNIT_TIME, 2000, true, 4},
        {"0.5 ns", UNIT_TIME, 0.5, false, 6},
        {"1 s", UNIT_TIME, 1e9, true, 3},
        {"0..3", UNIT_NONE, 0, true, 1},
        {"4 of", UNIT_NONE, 4, true, 1},
        {"8Ki/s", UNIT_NONE, 8192, true, 3},
        {"3 mod", UNIT_NONE, 3, true, 1},
        {"2\nus", UNIT_NONE, 2, true, 1},
    };
    for (int i = 0; i < countof(cases); i++) {
        Number n;
        bool known;
        size_t used = number_read(cases[i].text, strlen(cases[i].text), &n, &known);
        assert_true(known);
        assert_int_equal(used, cases[i].used);
        assert_int_equal(n.unit, cases[i].unit);
        assert_true(fabs(n.value - cases[i].value) <= 1e-15 * fabs(cases[i].value));
        assert_int_equal(n.is_whole, cases[i].whole);
        if (n.is_whole)
            assert_true((double)n.whole == cases[i].value);
    }
}

static void meaningless_letters_are_seen(void **state)
{
    (void)state;
    static const char *const texts[] = {"32Kx", "1_000", "141GBs", "0x10", "5 G_b"};
    static const int used[] = {4, 5, 6, 4, 1};
    for (int i = 0; i < countof(texts); i++) {
        Number n;
        bool known;
        assert_int_equal(number_read(texts[i], strlen(texts[i]), &n, &known), used[i]);
        assert_int_equal(known, i == 4);
    }
}

static void whole_numbers_do_not_wrap(void **state)
{
    (void)state;
    static const char *const texts[] = {"9223372036854775807Ki", "99999999999999999999999999", "8388608 TiB",
                                        "1e300"};
    for (int i = 0; i < countof(texts); i++) {
        Number n;
        bool known;
        number_read(texts[i], strlen(texts[i]), &n, &known);
        assert_false(n.is_whole);
        assert_true(n.value > 9e18);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_read_as_written),
        cmocka_unit_test(meaningless_letters_are_seen),
        cmocka_unit_test(whole_numbers_do_not_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
