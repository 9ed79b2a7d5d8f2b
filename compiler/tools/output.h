/* output.h: the request to the compiler, and its destinations. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "tools/tools.h"

enum { EXIT_DIAGNOSED = 1, EXIT_USAGE = 2, EXIT_INTERNAL = 3 };

typedef struct Request {
    const char *topo, *model, *output, *emit;
    const char **schedules;
    int schedule_count;
    bool explain, print_build;
    const char *dump_after; /* a pass over the step's list, or "all" */
    bool verify_each;       /* checks the list after each pass */
    const char *command; /* as typed, for the emitted header */
    const char *share;   /* stock files, templates, headers of the runtime */
    const struct Action *action; /* `burstc fit ...`: main.c; NULL: print the program or a form of it */
} Request;
/* The files of -o: text with the ending of its language, or a binary and its source. Standard output,
 * devices, FIFOs and names with a form's ending get the text; the command that builds it then uses
 * train_plan.c. */
typedef struct Destination { const char *source, *program, *build; bool binary; } Destination;

bool ends_with(const char *text, const char *end);
bool is_stream(const char *path);
/* The int functions below return 0 or an exit status. */
int cannot_write(const char *path, const char *reason);
int write_text(const Text *t, const char *path);
int print_text(const char *text);
Destination destination_of(Arena *a, const Request *o, const Program *p);
int check_output(const Request *o, const char *path);
int check_imported(const Program *p, const char *path);
int check_folder(const char *folder, const char *path); /* for `burstc import` */
int check_destination(const Request *o, const Destination *to, const Program *p);

/* ---- passes.c: --dump-after and --verify-each ---- */
bool pass_exists(const char *name);
const char *pass_names(Arena *a); /* "all, model, ..." */
int print_passes(Arena *a, Diags *d, const Request *o, const Found *f); /* returns 0, or an exit status */

/* ---- pipeline.c ---- */
bool is_picture(const char *path);
/* Runs `burstc CLUSTER MODEL`. */
int compile(Arena *a, Diags *d, Request *o);

#endif
