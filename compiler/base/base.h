/* base/base.h: memory of a compile, growing text, diagnostics, shell commands.
 *
 * Units in all headers of the compiler: bytes, bytes/s, FLOP/s, nanoseconds, tokens. Ranges are half open
 * unless a name ends in _last. Each pass reads the previous pass's value and makes a new one in the caller's
 * arena; values do not change afterwards. */
#ifndef BURST_BASE_BASE_H
#define BURST_BASE_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/nearest.h"
#include "base/plural.h"

#define BURSTC_VERSION "0.1.0"
#define countof(a) ((int)(sizeof(a) / sizeof(*(a))))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* ---- arena.c: memory of one compile, freed at once ---- */
typedef struct Arena Arena;
Arena *arena_new(void);
void arena_free(Arena *a);
void arena_join(Arena *to, Arena *from); /* `to` gets all memory of `from`, which is freed */
/* Zeroed, 16-byte aligned, never NULL: without memory it prints "burstc: error: out of memory" and exits
 * with 3. */
void *arena_alloc(Arena *a, size_t bytes);
char *arena_copy(Arena *a, const char *text, size_t len); /* NUL-terminated copy */
char *arena_printf(Arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
size_t arena_bytes(const Arena *a); /* bytes that the arena holds from the system */
/* malloc/realloc for code that cannot use an arena (flex, bison). They fail like arena_alloc. */
void *xmalloc(size_t bytes);
void *xrealloc(void *p, size_t bytes);
/* Reports the lack of memory and exits, also after libc functions that fail with ENOMEM. */
_Noreturn void out_of_memory(void);
#define NEW(arena, T) ((T *)arena_alloc((arena), sizeof(T)))
#define NEW_ARRAY(arena, T, n) ((T *)arena_alloc((arena), sizeof(T) * (size_t)(n)))
/* A growing array of T in an arena: Vec(int) v = {0}; *vec_push(arena, &v) = 3;  v.at[i], v.n */
#define Vec(T) struct { T *at; int n, cap; }
void *vec_grow_(Arena *a, void *at, int n, int *cap, size_t size);
#define vec_push(a, v) \
    ((v)->n < (v)->cap \
         ? (void)0 \
         : (void)((v)->at = vec_grow_((a), (v)->at, (v)->n, &(v)->cap, sizeof(*(v)->at))), \
     &(v)->at[(v)->n++])
/* The same for an array that may be large: it moves when it grows, so nothing may point into it meanwhile,
 * and what is appended is not zeroed. */
void *vec_move_(Arena *a, void *at, int n, int *cap, size_t size);
#define vec_append(a, v) \
    ((v)->n < (v)->cap \
         ? (void)0 \
         : (void)((v)->at = vec_move_((a), (v)->at, (v)->n, &(v)->cap, sizeof(*(v)->at))), \
     &(v)->at[(v)->n++])

/* ---- text.c: growing text, written to files atomically ---- */
/* NUL-terminated once written to; free with text_free */
typedef struct Text { char *at; size_t n, cap; } Text;
void text_printf(Text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void text_vprintf(Text *t, const char *fmt, va_list ap);
void text_add(Text *t, const char *s);
void text_add_n(Text *t, const char *s, size_t n);
void text_free(Text *t);
char *text_keep(Arena *a, Text *t); /* copies it into the arena and frees the text */
/* The separator before the i-th of n names: "", ", " or, before the last, `last`. */
const char *list_separator(int i, int n, const char *last);
/* "1,234.5": with so many digits after the point. */
char *grouped_text(Arena *a, double number, int digits);
/* "393.680 ms"; from a second on "53.986 s", with so many digits. */
char *time_text(Arena *a, double seconds, int digits);
char *bytes_text(Arena *a, double bytes, int digits); /* "1.55 GiB", "64.00 MiB": in a suitable unit */
/* Writes the text to path atomically, as output_file.h says. "-" is standard output. Returns 0, or -1 with
 * errno. */
int text_write_file(const Text *t, const char *path);
/* Reads a whole file into the arena. Returns NULL with errno; EFBIG: more than TEXT_MOST bytes, such as from
 * /dev/zero. */
enum { TEXT_MOST = 256 << 20 };
char *read_file(Arena *a, const char *path, size_t *len);
/* Whether both names are one file, also through hard or symbolic links. */
bool same_file(const char *a, const char *b);
/* The value of an environment variable; `otherwise` if it is unset or empty. */
const char *environment(const char *name, const char *otherwise);

/* ---- diag.c: diagnostics as clang's ---- */
typedef struct Source {
    const char *name; /* as the user wrote it, or as an import found it */
    const char *text; /* NUL-terminated */
    size_t len;
} Source;
typedef struct Span { /* bytes [begin, end) of src; src NULL: no location (command line) */
    const Source *src;
    uint32_t begin, end;
} Span;
enum { DIAG_MAX_ERRORS = 20 };
/* Warnings about what is legal but most likely not meant. Each can be disabled or made an error by name
 * (-Wno-NAME, -Werror=NAME). */
#define WARNINGS(X) /* id, name, subject: for --help and docs/language.md */ \
    X(EMPTY_MASK, "empty-mask", "a mask that keeps no pair of query and key") \
    X(EMPTY_ROWS, "empty-rows", "a mask that leaves a query without a key") \
    X(ONE_DOCUMENT, "one-document", \
      "a mask that reads `doc` where neither the data file nor `separator` ends documents") \
    X(DECIMAL_LENGTH, "decimal-length", "a `sequence` of 2K, 2000 tokens, where 2Ki (2048) may be meant") \
    X(UNMEASURED_DEVICE, "unmeasured-device", "a stock device whose rates were never measured") \
    X(UNUSED_SCHEDULE, "unused-schedule", "a learning-rate schedule where the warm-up takes all steps") \
    X(UNUSED_SETTING, "unused-setting", "a layout setting that has no effect") \
    X(FEW_TOKENS, "few-tokens", "a rank with less than one kernel tile of a sequence") \
    X(MISSING_WEIGHTS, "missing-weights", "a `weights` directory that burstc cannot compare with the model") \
    X(OTHER_MASKS, "other-masks", "a `weights` directory with other masks than the model's") \
    X(OTHER_ROPE, "other-rope", "a `weights` directory with another RoPE than the model's") \
    X(LONG_SEQUENCE, "long-sequence", "a sequence that the `weights` directory's RoPE is not scaled for") \
    X(UNCHECKED_TEXT, "unchecked-text", "an emitted program that could not be checked with libclang")
typedef enum Warning {
#define X(id, name, what) WARN_##id,
    WARNINGS(X)
#undef X
    WARNING_COUNT
} Warning;
typedef struct Diags Diags;
Diags *diags_new(Arena *a);
Diags *diags_like(Arena *a, const Diags *d);  /* empty, with the same options */
void diags_take(Diags *d, const Diags *from); /* appends the messages of `from` */
/* Messages are not capitalised and have no full stop. Arguments that quote input put it in '...'. */
void diag_error(Diags *d, Span at, const char *fmt, ...) PRINTF_LIKE(3, 4);
void diag_warn(Diags *d, Warning w, Span at, const char *fmt, ...) PRINTF_LIKE(4, 5);
/* attached to the last error or warning */
void diag_note(Diags *d, Span at, const char *fmt, ...) PRINTF_LIKE(3, 4);
void diag_fixit(Diags *d, Span at, const char *replacement);              /* printed below the carets */
/* Takes an option: -Wno-NAME, -WNAME, -Werror, -Werror=NAME, -Wno-error, -Wno-error=NAME. A later option
 * overrides. Returns NULL, or what is wrong with it. Warnings that are errors count as errors. */
const char *diags_option(Diags *d, const char *option);
int diags_errors(const Diags *d);
const char *diags_first(const Diags *d); /* text of the first error; "" without one */
/* Prints and clears all messages in the order of reports (up to 20 errors, then "too many errors"). Never
 * exits. */
void diags_print(Diags *d, FILE *out);
/* Line and column, 1-based, of a span's begin. */
void span_line(Span at, int *line, int *column);
Span span_join(Span a, Span b);

/* ---- shell.c ---- */
const char *shell_word(Arena *a, const char *word); /* quoted if necessary */
int run_command(const char *command); /* its exit status, or -1 */

#endif
