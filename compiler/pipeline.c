/* pipeline.c: from texts to a program: compile() reads from top to bottom. search/candidate.c has a
 * candidate's passes, step/passes/pipeline.c the passes that make a step. */
#include "base/progress.h"
#include "import/import.h"
#include "tools/forms.h"
#include "tools/output.h"

#include <string.h>

bool is_picture(const char *path) { return path && ends_with(path, ".svg"); }

static int print_form(Arena *a, const Request *o, const Found *f)
{
    Text t = {0};
    const Form *form = find_form(o->emit);
    if (is_picture(o->output))
        form->draw(a, f, &t);
    else
        form->print(f, &t);
    const int status = write_text(&t, o->output ? o->output : "-");
    text_free(&t);
    return status;
}

static int print_tree(Arena *a, Diags *d, const Request *o, const FrontEnd *in)
{
    Text t = {0};
    if (check_imported(front_end_names(a, in), o->output) != 0)
        return EXIT_DIAGNOSED;
    print_ast(a, d, in, &t);
    int status = diags_errors(d) ? EXIT_DIAGNOSED : write_text(&t, o->output ? o->output : "-");
    text_free(&t);
    return status;
}

/* By the output's name; binaries, and forms before the program, use the target of the cluster's devices. */
static const Target *target_asked(const Request *o)
{
    if (o->emit)
        return target_named(o->emit);
    return o->output ? target_of_suffix(o->output) : NULL;
}

/* Prints what was requested in addition to the output. */
static int print_asked(Arena *a, const Request *o, const Destination *t, const Program *p, const Found *f)
{
    int status = 0;
    if (o->explain) {
        const Found all = search_complete(a, f);
        status = print_text(arena_printf(a, "%s%s%s", search_table(a, p, &all),
                                         memory_alone_text(a, plan_draft(f->plan)), search_batches(a, &all)));
    }
    if (status == 0 && o->print_build)
        status = print_text(arena_printf(a, "%s\n", t->build));
    return status;
}

/* Writes the checked program, as C or, through the C compiler, as a binary and its source. */
static int write_program(Arena *a, Diags *d, const Request *o, const Destination *to, const Found *f)
{
    Text t = {0};
    const char *include = arena_printf(a, "%s/include", o->share);
    int status = 0;
    (plan_draft(f->plan)->program->library ? emit_library : emit_program)(a, f, o->command, &t);
    progress_say("checking %s", to->source);
    if (check_emitted_c(a, d, to->source, &t, include, plan_draft(f->plan)->program->target) != 0)
        status = EXIT_INTERNAL;
    if (status == 0 && diags_errors(d) > 0) /* a warning that is an error */
        status = EXIT_DIAGNOSED;
    if (status == 0)
        status = write_text(&t, to->source);
    text_free(&t);
    if (status == 0 && to->binary)
        progress_say("compiling %s", to->source);
    if (status == 0 && to->binary && run_command(to->build) != 0) {
        diag_error(d, (Span){0}, "the C compiler failed: %s", to->build);
        status = EXIT_DIAGNOSED;
    }
    return status;
}

/* Prints what a proof refused, if the form needs no plan, to find the fault. */
static void print_refused(Arena *a, const Request *o, const Found *f)
{
    const Form *form = o->emit && f->refused ? find_form(o->emit) : NULL;
    if (form && form->of_draft && !is_picture(o->output))
        print_form(a, o, f);
}

/* Writes the proved plan, as a form or as the program. */
static int write_found(Arena *a, Diags *d, const Request *o, const Destination *to, const Program *p,
                       const Found *f)
{
    int status = print_passes(a, d, o, f);
    if (status == 0 && !verify_step(a, d, plan_draft(f->plan))) {
        print_refused(a, o, &(Found){.refused = plan_draft(f->plan)});
        return EXIT_INTERNAL;
    }
    double first[MOST_LENGTHS];
    if (status == 0 && !search_lengths(a, d, f->plan, first))
        return EXIT_DIAGNOSED;
    status = status == 0 ? print_asked(a, o, to, p, f) : status;
    if (status != 0 || !o->output)
        return status;
    return o->emit && find_form(o->emit) ? print_form(a, o, f) : write_program(a, d, o, to, f);
}

/* Reads and checks the texts, searches what the layout leaves open among verified candidates, and writes. */
int compile(Arena *a, Diags *d, Request *o)
{
    FrontEnd in = {o->topo,
                   o->model,
                   o->share,
                   o->schedules,
                   o->schedule_count,
                   target_asked(o),
                   .library = !o->emit && is_library(o->output)};
    int status = check_output(o, o->output);
    if (status != 0 || (o->emit && strcmp(o->emit, "ast") == 0))
        return status != 0 ? status : print_tree(a, d, o, &in);

    const Program *p = front_end(a, d, &in);
    if (!p)
        return EXIT_DIAGNOSED;
    mask_warn(d, p);
    if (!mask_check_later(d, p) || !mask_check_selections(d, p))
        return EXIT_DIAGNOSED;
    if (o->emit && !o->output)
        o->output = "-";
    const Destination to = destination_of(a, o, p);
    if (check_destination(o, o->emit && find_form(o->emit) ? NULL : &to, p) != 0 || diags_errors(d) > 0)
        return EXIT_DIAGNOSED;

    weights_check(a, d, p);
    if (diags_errors(d) > 0)
        return EXIT_DIAGNOSED;
    const Found f = search_open(a, d, p);
    if (!f.plan || diags_errors(d) > 0) {
        print_refused(a, o, &f);
        return EXIT_DIAGNOSED;
    }
    return write_found(a, d, o, &to, p, &f);
}
