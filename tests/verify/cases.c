/* cases.c: schedules of the tests. */
#include "tools/tools.h"
#include "cases.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const SchedText *schedule_file(Arena *a, const char *path)
{
    Diags *d = diags_new(a);
    const SchedText *t = parse_schedule(a, d, STOCK_DIR, path);
    diags_print(d, stdout);
    return t;
}

const SchedText *stock_schedule(Arena *a, const char *name)
{
    return schedule_file(a, arena_printf(a, STOCK_DIR "/schedules/%s.sched", name));
}

const SchedText *case_schedule(Arena *a, const char *name)
{
    const char *own = arena_printf(a, SOURCE_DIR "/%s.sched", name);
    return access(own, R_OK) == 0 ? schedule_file(a, own) : stock_schedule(a, name);
}

static bool is_one_of(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

void each_shipped(const char *const *checked, int count, CheckSchedule *check)
{
    static const RankShape shapes[MAX_COORDS + 1][2] = {
        [1] = {{1, 3}, {1, 4}}, [2] = {{2, 2}, {2, 3}}, [3] = {{2, 2, 2}, {2, 1, 3}}};
    glob_t files = {0};
    if (glob(STOCK_DIR "/schedules/*.sched", 0, NULL, &files) != 0)
        abort();
    for (size_t i = 0; i < files.gl_pathc; i++) {
        Arena *a = arena_new();
        const SchedText *t = schedule_file(a, files.gl_pathv[i]);
        if (!t || !shapes[t->coords][0].size0)
            abort();
        if (!is_one_of(t->name, checked, count))
            check(t->name, shapes[t->coords], t->pieces > 2 ? 1 : 2); /* many pieces have many mutants */
        arena_free(a);
    }
    globfree(&files);
}

bool has_phase(const SchedText *t, int phase)
{
    return phase == 0 ? t->forward != NULL : t->backward[phase - 1] != NULL;
}

const char *phase_name(int phase)
{
    static const char *const name[PHASES] = {"forward", "backward keys", "backward queries"};
    return name[phase];
}

int shape_sizes(RankShape shape, int size[MOST_SIZES])
{
    const int all[MOST_SIZES] = {shape.size0, shape.size1, shape.size2, shape.size3};
    int n = 0;
    while (n < MOST_SIZES && all[n]) {
        size[n] = all[n];
        n++;
    }
    return n;
}

Schedule *plan_phase(Arena *a, Diags *d, const SchedText *t, RankShape shape, int phase)
{
    Choice *c = NEW(a, Choice);
    int given[MOST_SIZES], n = shape_sizes(shape, given), size[MAX_COORDS], ranks = 1;
    *c = (Choice){.data = 1, .schedule = t};
    for (int i = 0; i < t->coords; i++)
        size[i] = 1;
    for (int i = 0; i < n; i++) {
        int at = t->coords - n + i;
        size[at < 0 ? 0 : at] *= given[i];
        ranks *= given[i];
    }
    c->ranks = ranks;
    choice_set_sizes(c, t->coords, size);
    c->travel = phase == 2 ? TRAVEL_QUERIES : TRAVEL_KEYS;
    Schedule *s = schedule_make(a, d, c, phase > 0, 0);
    if (s)
        schedule_slots(a, s);
    return s;
}

const char *printed(Arena *a, Diags *d)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    diags_print(d, f);
    fclose(f);
    char *copy = arena_copy(a, text, n);
    free(text);
    return copy;
}

int error_line(const char *text)
{
    const char *error = strstr(text, ": error: ");
    const char *colon = error;
    while (colon && colon > text && colon[-1] != ':' && colon[-1] != '\n') /* back over the column */
        colon--;
    if (!colon || colon <= text + 1)
        return 0;
    for (colon--; colon > text && colon[-1] != ':' && colon[-1] != '\n'; colon--)
        ;
    return atoi(colon);
}

uint32_t random_below(Random *r, uint32_t n)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 33) % n;
}
