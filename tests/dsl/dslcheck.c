/* dslcheck.c: runs the front end and the warnings of masks on files given by their endings and prints what
 * is said, for the golden tests.
 *   dslcheck STOCK BASE [--ast] file.topo | file.burst | file.sched ...
 * STOCK is the folder of the stock files; a cluster or model that is not given is base.topo or base.burst
 * of BASE. */
#include "tools/tools.h"

#include <string.h>

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fputs("usage: dslcheck STOCK BASE [--ast] FILE...\n", stderr);
        return 2;
    }
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    const char *base = argv[2];
    const char **schedules = NEW_ARRAY(a, const char *, argc);
    FrontEnd in = {.target = &targets[TARGET_C], .stock_dir = argv[1], .schedule_paths = schedules};
    bool ast = false;
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "--ast") == 0)
            ast = true;
        else if (ends_in(argv[i], ".topo"))
            in.topo_path = argv[i];
        else if (ends_in(argv[i], ".sched"))
            schedules[in.schedule_path_count++] = argv[i];
        else
            in.model_path = argv[i];
    }
    Text out = {0};
    text_add(&out, "");
    if (ast) {
        print_ast(a, d, &in, &out);
    } else {
        in.topo_path = in.topo_path ? in.topo_path : arena_printf(a, "%s/base.topo", base);
        in.model_path = in.model_path ? in.model_path : arena_printf(a, "%s/base.burst", base);
        const Program *p = front_end(a, d, &in);
        if (p)
            mask_warn(d, p);
    }
    int failed = diags_errors(d) > 0;
    fputs(out.at, stdout);
    diags_print(d, stdout);
    text_free(&out);
    arena_free(a);
    return failed;
}
