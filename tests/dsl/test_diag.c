/* test_diag.c: how messages are kept and printed. The golden files cover the rest of their look. */
#include "text.h"

static char *printed(Diags *d)
{
    static char *text; /* static: the stream keeps its address */
    static size_t n;
    FILE *f = open_memstream(&text, &n);
    diags_print(d, f);
    fclose(f);
    return text;
}

static void check_printed(Diags *d, const char *wanted)
{
    char *text = printed(d);
    assert_string_equal(text, wanted);
    free(text);
}

static void errors_show_their_place(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    Source s = {.name = "x.burst", .text = "one\n\ttwo three\r\nfour", .len = 20};
    diag_error(d, (Span){&s, 5, 8}, "bad '%s'", "two");
    diag_fixit(d, (Span){&s, 5, 8}, "2");
    diag_note(d, (Span){&s, 16, 20}, "see here");
    diag_warn(d, WARN_EMPTY_MASK, (Span){0}, "no place");
    assert_int_equal(diags_errors(d), 1);
    check_printed(d, "x.burst:2:2: error: bad 'two'\n        two three\n        ^~~\n        2\n"
                     "x.burst:3:1: note: see here\nfour\n^~~~\n"
                     "burstc: warning: no place [-Wempty-mask]\n");
    assert_int_equal(diags_errors(d), 0);
    check_printed(d, "");
    arena_free(a);
}

static void spans_over_lines_end_with_the_first(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    Source s = {.name = "x", .text = "ab cd\nef", .len = 8};
    diag_error(d, (Span){&s, 3, 8}, "wide");
    diag_error(d, (Span){&s, 8, 8}, "end");
    check_printed(d, "x:1:4: error: wide\nab cd\n   ^~\nx:2:3: error: end\nef\n  ^\n");
    arena_free(a);
}

static void the_same_message_is_said_once(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    Source s = {.name = "x", .text = "ab", .len = 2};
    for (int i = 0; i < 3; i++) {
        diag_error(d, (Span){&s, 0, 1}, "again");
        diag_note(d, (Span){0}, "because");
    }
    diag_error(d, (Span){&s, 1, 2}, "again");
    assert_int_equal(diags_errors(d), 2);
    check_printed(d, "x:1:1: error: again\nab\n^\nburstc: note: because\nx:1:2: error: again\nab\n ^\n");
    arena_free(a);
}

/* What the options make of one warning of each of two names: the errors that it counts as, and what is
 * printed. */
static void check_warned(const char *options, int errors, const char *wanted)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    char *words = arena_copy(a, options, strlen(options)), *save = NULL;
    for (char *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save))
        assert_null(diags_option(d, word));
    diag_warn(d, WARN_EMPTY_MASK, (Span){0}, "one");
    diag_note(d, (Span){0}, "of one");
    diag_warn(d, WARN_EMPTY_ROWS, (Span){0}, "two");
    assert_int_equal(diags_errors(d), errors);
    check_printed(d, wanted);
    arena_free(a);
}

static void warnings_have_names(void **state)
{
    (void)state;
#define ONE "burstc: warning: one [-Wempty-mask]\nburstc: note: of one\n"
#define ONE_FATAL "burstc: error: one [-Werror,-Wempty-mask]\nburstc: note: of one\n"
#define TWO "burstc: warning: two [-Wempty-rows]\n"
#define TWO_FATAL "burstc: error: two [-Werror,-Wempty-rows]\n"
    check_warned("", 0, ONE TWO);
    check_warned("-Wno-empty-mask", 0, TWO);
    check_warned("-Wno-empty-mask -Wempty-mask", 0, ONE TWO);
    check_warned("-Werror", 2, ONE_FATAL TWO_FATAL);
    check_warned("-Werror -Wno-error", 0, ONE TWO);
    check_warned("-Werror=empty-rows", 1, ONE TWO_FATAL);
    check_warned("-Wno-error=empty-rows -Werror", 1, ONE_FATAL TWO);
    check_warned("-Werror -Wno-empty-mask", 1, TWO_FATAL);
    check_warned("-Wno-empty-mask -Werror=empty-mask", 1, ONE_FATAL TWO);
    check_warned("-Wno-empty-mask -Wno-error=empty-mask", 0, TWO);
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    assert_string_equal(diags_option(d, "-Wno-empty-msk"),
                        "unknown warning 'empty-msk' in '-Wno-empty-msk'; did you mean 'empty-mask'?");
    assert_string_equal(diags_option(d, "-Werror=zzz"), "unknown warning 'zzz' in '-Werror=zzz'");
    assert_non_null(diags_option(d, "-W"));
    arena_free(a);
}

/* Reading goes on after a forgotten ';' as if it stood there, but nothing comes of the text. */
static void a_mended_schedule_is_none(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    const char *text = "schedule x over (r of G) { forward { attend Q[r] with KV[r] } backward { grad Q[r] "
                       "with KV[r]; } }\n";
    assert_null(parse_schedule(a, d, NULL, memory_file(a, text)));
    assert_int_equal(diags_errors(d), 1);
    assert_string_equal(diags_first(d), "expected ';' here");
    close_files();
    arena_free(a);
}

static void twenty_errors_are_enough(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    for (int i = 0; i < 30; i++) {
        diag_error(d, (Span){0}, "number %d", i);
        diag_note(d, (Span){0}, "of %d", i);
    }
    assert_int_equal(diags_errors(d), 30);
    char *text = printed(d);
    assert_non_null(
        strstr(text, "error: number 19\nburstc: note: of 19\nburstc: error: too many errors emitted\n"));
    assert_null(strstr(text, "number 20"));
    assert_null(strstr(text, "of 20"));
    free(text);
    arena_free(a);
}

static void control_bytes_are_shown_not_sent(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    Source s = {.name = "x", .text = "a\x1b[31m\xc3\xa4\xff|", .len = 10};
    diag_error(d, (Span){&s, 9, 10}, "escape '%s'", "\x1b[0m");
    check_printed(d, "x:1:10: error: escape '<1B>[0m'\na<1B>[31m\xc3\xa4<FF>|\n              ^\n");
    arena_free(a);
}

static void long_lines_are_cut_around_the_caret(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    char *line = arena_alloc(a, 5001);
    memset(line, 'x', 5000);
    line[3000] = '!';
    Source s = {.name = "x", .text = line, .len = 5000};
    diag_error(d, (Span){&s, 3000, 3001}, "here");
    char *text = printed(d);
    const char *source = strchr(text, '\n') + 1, *carets = strchr(source, '\n') + 1;
    assert_true(carets - source < 130);
    assert_int_equal(strchr(source, '!') - source, strchr(carets, '^') - carets);
    assert_memory_equal(source, "...xxx", 6);
    assert_memory_equal(carets - 5, "x...\n", 5);
    free(text);
    arena_free(a);
}

static void names_that_are_near(void **state)
{
    (void)state;
    static const char *const names[] = {"bandwidth", "latency", "KV", NULL, "lane"};
    assert_string_equal(nearest_name("badnwidth", names, 5), "bandwidth");
    assert_string_equal(nearest_name("latncy", names, 5), "latency");
    assert_string_equal(nearest_name("lanes", names, 5), "lane");
    assert_null(nearest_name("V", names, 5)); /* nothing in common is not near */
    assert_null(nearest_name("memory", names, 5));
    assert_null(nearest_name("", names, 5));
}

static void spans_join(void **state)
{
    (void)state;
    Source s = {.name = "x", .text = "abcdef", .len = 6}, other = s;
    Span j = span_join((Span){&s, 4, 5}, (Span){&s, 1, 2});
    assert_true(j.src == &s && j.begin == 1 && j.end == 5);
    assert_true(span_join((Span){0}, (Span){&s, 1, 2}).src == &s);
    assert_true(span_join((Span){&s, 1, 2}, (Span){&other, 3, 4}).end == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_show_their_place),
        cmocka_unit_test(spans_over_lines_end_with_the_first),
        cmocka_unit_test(the_same_message_is_said_once),
        cmocka_unit_test(warnings_have_names),
        cmocka_unit_test(a_mended_schedule_is_none),
        cmocka_unit_test(twenty_errors_are_enough),
        cmocka_unit_test(control_bytes_are_shown_not_sent),
        cmocka_unit_test(long_lines_are_cut_around_the_caret),
        cmocka_unit_test(names_that_are_near),
        cmocka_unit_test(spans_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
