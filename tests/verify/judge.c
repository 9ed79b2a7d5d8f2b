/* judge.c: what burstc's passes say of schedules that come on standard input, each a line of sizes, 0 and
 * length, then the text:
 *
 *     2 3 0 512
 *     schedule ...
 *
 * Of each a line for the text if it is refused, else one for each direction that it has: "accepted", or
 * the first error. The plan of an accepted one (slots, waits) is run by executor.c on up to MOST_RANKS
 * ranks, whose verdict is then the line. */
#include "tools/tools.h"
#include "executor.h"
#include "cases.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 12, MOST_TEXT = 1 << 16 };
static const char path[] = "judged.sched";

/* The message of the first error, without its place. */
static void say(const char *what, const char *messages)
{
    const char *error = strstr(messages, "error: ");
    const char *text = error ? error + strlen("error: ") : messages;
    printf("%s: line %d: %.*s\n", what, error_line(messages), (int)strcspn(text, "\n"), text);
}

static void judge_direction(const SchedText *t, RankShape shape, int phase)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    Schedule *s = plan_phase(a, d, t, shape, phase);
    if (!s || !verify_schedule(a, d, s)) {
        say(phase_name(phase), printed(a, d));
    } else {
        const Outcome o = s->choice->ranks <= MOST_RANKS ? execute(a, s, NULL, NULL)
                                                         : (Outcome){.right = true};
        printf("%s: %s%s\n", phase_name(phase),
               o.right ? "accepted" : "accepted, but its plan is wrong: ", o.right ? "" : o.why);
    }
    arena_free(a);
}

static void judge(RankShape shape, bool uses)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    const SchedText *t = parse_schedule(a, d, uses ? STOCK_DIR : NULL, path);
    if (!t)
        say("text", printed(a, d));
    for (int phase = 0; t && phase < PHASES; phase++)
        if (has_phase(t, phase))
            judge_direction(t, shape, phase);
    puts(".");
    arena_free(a);
}

/* *uses: whether it may use another one. */
static bool copy_text(size_t length, bool *uses)
{
    static char text[MOST_TEXT];
    FILE *f = length < sizeof text && fread(text, 1, length, stdin) == length ? fopen(path, "w") : NULL;
    text[f ? length : 0] = 0;
    *uses = strstr(text, "use ");
    return f && fwrite(text, 1, length, f) == length && fclose(f) == 0;
}

int main(void)
{
    int size[MOST_SIZES], n = 0, given;
    size_t length;
    bool uses;
    while (scanf("%d", &given) == 1) {
        memset(size, 0, sizeof size);
        for (n = 0; given && n < MOST_SIZES; n++) {
            size[n] = given;
            if (scanf("%d", &given) != 1)
                return EXIT_FAILURE;
        }
        if (given || scanf("%zu", &length) != 1 || getchar() != '\n' || !copy_text(length, &uses))
            return EXIT_FAILURE;
        judge((RankShape){size[0], size[1], size[2], size[3]}, uses);
        fflush(stdout);
    }
    return EXIT_SUCCESS;
}
