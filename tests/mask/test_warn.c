/* test_warn.c: warnings of masks that keep nothing, against brute force over every pair: none is wrong,
 * few are missed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "tools/tools.h"
#include "random_expr.h"

enum { SEQUENCE = 40, MASKS = 3000, TABLES = 2, CONTENTS = 3 };

static char *warned(Arena *a, const Program *p)
{
    static char *text; /* static: the stream keeps its address */
    static size_t n;
    FILE *f = open_memstream(&text, &n);
    Diags *d = diags_new(a);
    mask_warn(d, p);
    diags_print(d, f);
    fclose(f);
    return text;
}

static void fill(Rx *r, int32_t table[TABLES][SEQUENCE])
{
    for (int t = 0; t < TABLES; t++)
        for (int i = 0, v = 0; i < SEQUENCE; i++)
            table[t][i] = v += (int)rx_between(r, -1, 2);
}

/* empty[q]: no key of q is kept, whatever of the contents the tables have. */
static int rows_without_keys(Rx *r, const Expr *e, bool empty[SEQUENCE])
{
    int rows = 0;
    for (int q = 0; q < SEQUENCE; q++)
        empty[q] = true;
    for (int c = 0; c < CONTENTS; c++) {
        int32_t values[TABLES][SEQUENCE];
        const int32_t *table[TABLES] = {values[0], values[1]};
        fill(r, values);
        for (int q = 0; q < SEQUENCE; q++)
            for (int k = 0; k < SEQUENCE && empty[q]; k++)
                empty[q] = !expr_eval(e, q, k, NULL, table);
    }
    for (int q = 0; q < SEQUENCE; q++)
        rows += empty[q];
    return rows;
}

static void no_warning_is_wrong(void **state)
{
    (void)state;
    static const Table tables[TABLES] = {{.name = "t0"}, {.name = "t1"}};
    int all = 0, some = 0, said_all = 0, said_some = 0;
    for (int i = 0; i < MASKS; i++) {
        Rx r = {.arena = arena_new(),
                .state = 77 + (uint64_t)i,
                .sequence = SEQUENCE,
                .tables = i % 4 == 0 ? TABLES : 0,
                .hash = true};
        bool empty[SEQUENCE];
        const Expr *e = rx_bool(&r, 3);
        char *text = warned(r.arena, rx_program(r.arena, e, SEQUENCE, tables, TABLES));
        const int rows = rows_without_keys(&r, e, empty);
        const char *row = strstr(text, "leaves query ");
        const bool none = strstr(text, "keeps no pair") != NULL;
        if (none)
            assert_int_equal(rows, SEQUENCE);
        if (row)
            assert_true(empty[atoi(row + strlen("leaves query "))]);
        assert_true(none || row || !*text);
        if (!r.tables) {
            all += rows == SEQUENCE, said_all += none;
            some += rows > 0 && rows < SEQUENCE, said_some += row != NULL;
        }
        free(text);
        arena_free(r.arena);
    }
    print_message("masks that keep nothing: %d of %d said; that leave a query no key: %d of %d\n", said_all,
                  all, said_some, some);
    assert_true(all > 100 && said_all > 0.97 * all);
    assert_true(some > 500 && said_some > 0.97 * some);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_warning_is_wrong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
