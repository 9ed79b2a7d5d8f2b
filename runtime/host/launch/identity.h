/* identity.h: what must be equal on all ranks, as named lines of text. Ranks that a launcher started
 * compare them before anything depends on the plan: each may run another program, with other options, on
 * other files. The runtime is the first line: of one runtime all ranks have the same lines in the same
 * order. */
#ifndef BURST_IDENTITY_H
#define BURST_IDENTITY_H

#include "host/launch/job.h"
#include "burst_plan.h"

enum { IDENTITY_TEXT = 8192 }; /* as ranks send it */
typedef struct Identity {
    size_t used;
    char text[IDENTITY_TEXT]; /* "name\tvalue\n" ..., then zeros */
} Identity;

/* The runtime, the plan's values, what the job adds (options and files), and the plan's text. */
void identity_make(Identity *id, const Job *job);
/* A line. Of a long value the begin and a hash are kept. */
void identity_add(Identity *id, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Its size, and a hash of pieces of it: all of a small file, of a large one the begin, the end and pieces
 * between. */
void identity_add_file(Identity *id, const char *name, const char *path);
/* The same over the files of weights in a folder, with their names. */
void identity_add_folder(Identity *id, const char *name, const char *path);
/* all: [world][IDENTITY_TEXT]. Whether they are equal; else text names the first difference and the ranks. */
bool identities_equal(char *all, int world, char *text, size_t size);
/* BURST_OK where the plan can run as it is and the launcher started as many ranks as it has; else text
 * says why not. Ranks of a launcher ask only once their identities are equal: a rank that ended alone
 * would leave the others waiting for it. */
int identity_plan_fits(const Job *job, int started, char *text, size_t size);

uint64_t hash_bytes(uint64_t h, const void *data, size_t bytes);
extern const char burst_runtime_sources[]; /* a hash of them, made by the build */
#endif
