/* Mutants of the text of .sched files: a line dropped, written twice, swapped with the next, or a word of
 * it changed. Each is parsed and planned again: slots and waits follow the new text. What is accepted, the
 * executor finds right.
 *
 * test_verify_text FOLDER also writes there the texts whose every phase is accepted on every shape.
 * accepted.test runs some of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/tools.h"
#include "cases.h"
#include "executor.h"

#include <stdlib.h>
#include <string.h>

typedef struct Words { const char *from, *to; } Words;
static const Words words[] = {
    {"r + 1", "r - 1"},
    {"r + 1", "r + 2"},
    {"r - s", "r + s"},
    {"r - s", "r - s - 1"},
    {"r - s", "r - s + 1"},
    {"r - s", "r"},
    {"n + 1", "n - 1"},
    {"n + 1", "n + 2"},
    {"n - o", "n + o"},
    {"n - o", "n"},
    {"n - o", "n - o - 1"},
    {"n + 1", "n"},
    {"l + 1", "l - 1"},
    {"l + 1", "l + 2"},
    {"l - i", "l + i"},
    {"l - i", "l"},
    {"l - i", "l - i - 1"},
    {"l + 1", "l"},
    {"G - 1", "G - 2"},
    {"G - 1", "G"},
    {"N - 1", "N - 2"},
    {"N - 1", "N"},
    {"W - 1", "W - 2"},
    {"W - 1", "W"},
    {"s > 0", "s > 1"},
    {"s > 0", "s >= 0"},
    {"o > 0", "o > 1"},
    {"i > 0", "i > 1"},
    {"i > 0", "i >= 0"},
    {"or i", "and i"},
    {"W > 1", "W > 2"},
    {"0 ..", "1 .."},
    {"o > 0", "o >= 0"},
    {" < ", " <= "},
    {"pass KV", "pass Q"},
    {"pass Q", "pass KV"},
    {"pass dQ", "pass dKV"},
    {"pass dKV", "pass dQ"},
    {"return dQ", "return dKV"},
    {"return dKV", "return dQ"},
    {"(n, l", "(n + 1, l"},
    {"Q[r] with", "Q[r - s] with"},
    {"KV[r];", "KV[r - s];"},
    {"n, l] with", "n - o, l] with"},
    {"KV[n, l];", "KV[n, l - i];"},
    {", l] to (n + 1, l)", ", l] to (n + 1, l + 1)"},
    {"l + 1] to", "l] to"},
    {"heads", "tokens"},
    {"Q, KV", "Q"},
    {"dQ, dKV", "dQ"},
    {"o + 1", "o - 1"},
    {"o - x", "o + x"},
    {"o - x", "o"},
    {"i - y", "i - y - 1"},
    {"x > 0", "x >= 0"},
    {"I > 1", "I > 2"},
    {"a + 1", "a - 1"},
    {"b - y", "b"},
    {"b + 1", "b + 2"},
    {"b + 1", "b"},
    {"c - z", "c + z"},
    {"c + 1", "c"},
    {"C - 1", "C - 2"},
    {"y > 0", "y > 1"},
    {"or C", "and C"},
    {"x > 0 or y", "y > 0 or y"},
    {"B > 1", "B > 2"},
    {"- j]", "+ j]"},
    {"2 ^ k)", "2 ^ k + 1)"},
    {"2 ^ k < G", "2 ^ k <= G"},
    {"G - 2 ^ k", "G"},
    {"20 - k", "19 - k"},
    {"/ 2", "/ 4"},
    {"].0", "].1"},
    {"].1", "].0"},
    {"].0", "]"},
    {"].1", "]"},
    {"pieces 2", "pieces 3"},
    {"pieces 2", "pieces 1"},
    {"r + s].1", "r - s].1"},
    {"mirrors keys", "mirrors queries"},
    {"mirrors queries", "mirrors keys"},
    {"KV[o - s,", "KV[o + s,"},
    {"use ring", "use near"},
    {"use ring", "use gather"},
    {"over (i)", "over (o)"},
    {" with KV[o - s, i]", ""},
    {"with KV[o - s, i]", "with KV[o - s, i + 1]"},
    {"with KV", "with Q[o, i - 1], KV"},
};
typedef struct Counts {
    int texts, no_schedule, plans, not_planned, accepted, harmful, rejected[7], faults;
} Counts;

static void fault(Counts *n, const Schedule *s, int phase, const char *line, const char *what,
                  const char *text)
{
    const Choice *c = s->choice;
    if (n->faults++ < 20)
        print_message("%s %s, %d x %d: %s\n  after the change: %s\n%s\n", c->schedule->name,
                      phase_name(phase), c->size[0], c->size[1], what, line, text);
}

static void try_plan(Counts *n, const SchedText *t, RankShape shape, int phase, const char *line)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    Schedule *s = plan_phase(a, d, t, shape, phase);
    n->plans++;
    if (!s) {
        const char *text = printed(a, d);
        n->not_planned++;
        n->faults += !strstr(text, ": error: ") || error_line(text) == 0;
    } else if (verify_schedule(a, d, s)) {
        Outcome o = execute(a, s, NULL, NULL);
        n->accepted++;
        n->harmful += !o.right;
        if (!o.right)
            fault(n, s, phase, line, "accepted, but", o.why);
    } else {
        const char *text = printed(a, d), *proof = strstr(text, ": error: proof ");
        int number = proof ? atoi(proof + strlen(": error: proof ")) : 0;
        n->rejected[number >= 1 && number <= 6 ? number : 0]++;
        if (number < 1 || number > 6 || error_line(text) == 0)
            fault(n, s, phase, line, "refused without a proof's number and a line", text);
    }
    arena_free(a);
}

static const char *kept; /* the folder, or NULL */

/* The schedule's name becomes the file's, so that each can be added to the shipped ones. */
static void keep(Arena *a, const Text *text, const SchedText *t, int number)
{
    const char *name = arena_printf(a, "%s_%d", t->name, number), *at = strstr(text->at, "\nschedule ");
    size_t before = (size_t)(at - text->at) + strlen("\nschedule ");
    Text renamed = {0};
    text_add_n(&renamed, text->at, before);
    text_add(&renamed, name);
    text_add(&renamed, text->at + before + strlen(t->name));
    assert_int_equal(text_write_file(&renamed, arena_printf(a, "%s/%s.sched", kept, name)), 0);
    text_free(&renamed);
}

static void try_text(Counts *n, const Text *text, const RankShape *shapes, int count, const char *line)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    const char *path = "mutant.sched";
    assert_int_equal(text_write_file(text, path), 0);
    const SchedText *t = parse_schedule(a, d, STOCK_DIR, path);
    int rejected = n->plans - n->accepted;
    n->texts++;
    n->no_schedule += !t;
    for (int i = 0; t && i < count; i++)
        for (int phase = 0; phase < PHASES; phase++)
            if (has_phase(t, phase))
                try_plan(n, t, shapes[i], phase, line);
    if (kept && t && n->plans - n->accepted == rejected)
        keep(a, text, t, n->texts);
    arena_free(a);
}

/* ---- lines ---- */

typedef struct Line { const char *at; size_t n; } Line;
typedef Vec(Line) Lines;

static Lines lines_of(Arena *a, const char *text)
{
    Lines all = {0};
    for (const char *end; *text; text = end) {
        end = strchr(text, '\n');
        end = end ? end + 1 : text + strlen(text);
        *vec_push(a, &all) = (Line){text, (size_t)(end - text)};
    }
    return all;
}

/* A statement of one line: as many braces close as open. */
static bool is_whole(Line l)
{
    int depth = 0;
    for (size_t i = 0; i < l.n; i++)
        depth += (l.at[i] == '{') - (l.at[i] == '}');
    return depth == 0 && memchr(l.at, ';', l.n) && l.at[0] == ' ';
}

typedef struct Edit {
    const Lines *lines;
    const RankShape *shapes;
    int count;
    Counts *counts;
} Edit;

/* The lines with `n` of them from `at` on replaced. */
static void replaced(const Edit *e, int at, int n, const char *by)
{
    Text t = {0};
    for (int i = 0; i < e->lines->n; i++) {
        if (i == at)
            text_add(&t, by);
        if (i < at || i >= at + n)
            text_add_n(&t, e->lines->at[i].at, e->lines->at[i].n);
    }
    try_text(e->counts, &t, e->shapes, e->count, by);
    text_free(&t);
}

static void change_words(const Edit *e, Arena *a, int at)
{
    Line l = e->lines->at[at];
    const char *line = arena_copy(a, l.at, l.n);
    for (int w = 0; w < countof(words); w++) {
        size_t n = strlen(words[w].from);
        for (const char *hit = strstr(line, words[w].from); hit; hit = strstr(hit + 1, words[w].from))
            replaced(e, at, 1, arena_printf(a, "%.*s%s%s", (int)(hit - line), line, words[w].to, hit + n));
    }
}

/* `if ... { pass ...; }` without its condition. */
static void drop_condition(const Edit *e, Arena *a, int at)
{
    Line l = e->lines->at[at];
    const char *line = arena_copy(a, l.at, l.n), *open = strchr(line, '{'), *close = strrchr(line, '}');
    if (open && close && strncmp(line + strspn(line, " "), "if ", 3) == 0)
        replaced(e, at, 1, arena_printf(a, "%.*s\n", (int)(close - open - 1), open + 1));
}

static void change_line(const Edit *e, Arena *a, int at)
{
    Line l = e->lines->at[at];
    if (l.at[0] == '#')
        return;
    change_words(e, a, at);
    if (!is_whole(l))
        return;
    replaced(e, at, 1, "");
    replaced(e, at, 1, arena_printf(a, "%.*s%.*s", (int)l.n, l.at, (int)l.n, l.at));
    drop_condition(e, a, at);
    Line next = at + 1 < e->lines->n ? e->lines->at[at + 1] : (Line){"", 0};
    if (next.n && is_whole(next))
        replaced(e, at, 2, arena_printf(a, "%.*s%.*s", (int)next.n, next.at, (int)l.n, l.at));
}

/* Schedules that a test here names. */
static const char *checked[32];
static int checked_count;

static void check_texts(const char *name, const RankShape *shapes, int count)
{
    assert_true(checked_count < countof(checked));
    checked[checked_count++] = name;
    Arena *a = arena_new();
    Counts n = {0};
    const SchedText *t = case_schedule(a, name);
    Lines lines = lines_of(a, t->source->text);
    Edit e = {&lines, shapes, count, &n};
    replaced(&e, 0, 0, ""); /* unchanged */
    assert_int_equal(n.accepted, n.plans);
    int right = n.plans;
    for (int i = 0; i < lines.n; i++)
        change_line(&e, a, i);
    print_message(
        "  %-8s %d texts, %d of them no schedule; %d plans, %d refused when planned, %d accepted; by proof",
        name, n.texts, n.no_schedule, n.plans, n.not_planned, n.accepted);
    for (int p = 1; p <= 6; p++)
        print_message(" %d", n.rejected[p]);
    print_message("\n");
    arena_free(a);
    assert_int_equal(n.faults, 0);
    assert_true(n.rejected[1] + n.rejected[2] + n.rejected[3] > right);
}

static void ring(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{1, 1}, {1, 2}, {1, 4}, {1, 5}};
    check_texts("ring", shapes, countof(shapes));
}

static void burst(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{2, 3}, {3, 2}, {1, 4}, {3, 1}, {3, 3}};
    check_texts("burst", shapes, countof(shapes));
}

static void late(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{1, 3}, {1, 5}};
    check_texts("late", shapes, countof(shapes));
}

static void derived(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{2, 3}, {3, 2}, {1, 4}};
    check_texts("derived", shapes, countof(shapes));
}

static void ulysses(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{1, 4}};
    check_texts("ulysses", shapes, countof(shapes));
}

static void more_coordinates(void **state)
{
    (void)state;
    static const RankShape two[] = {{2, 3}, {3, 2}}, three[] = {{2, 2, 2}, {1, 3, 2}, {3, 1, 2}};
    static const RankShape one[] = {{1, 1}, {1, 2}, {1, 4}, {1, 5}};
    check_texts("near", one, countof(one));
    check_texts("doubling", one, countof(one));
    check_texts("biring", one, countof(one));
    check_texts("bidirectional", one, countof(one));
    check_texts("gather", one, countof(one));
    check_texts("mesh", two, countof(two));
    check_texts("double_ring", two, countof(two));
    check_texts("stride", two, countof(two));
    check_texts("three_level", three, countof(three));
}

/* The last: those that no test above names. */
static void all_others(void **state)
{
    (void)state;
    each_shipped(checked, checked_count, check_texts);
}

int main(int argc, char **argv)
{
    kept = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring),
        cmocka_unit_test(burst),
        cmocka_unit_test(late),
        cmocka_unit_test(derived),
        cmocka_unit_test(ulysses),
        cmocka_unit_test(more_coordinates),
        cmocka_unit_test(all_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
