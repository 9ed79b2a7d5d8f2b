/* check_text.c: checks the emitted text with libclang, as a C compiler reads it, before it is output.
 *
 * Four rules: clang reports nothing; no status is ignored; every buffer of PlanBuffers is allocated once and
 * used; only the runtime, the text itself and a short list of functions are called. They also hold for the
 * headers that it includes from the runtime's folder. */
#include "emit/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef BURST_LIBCLANG
#include "emit/libclang.h"

/* How each language is parsed: one row per pass over the text. The runtime's include path and, for CUDA, the
 * toolkit's are added. CUDA 13 is newer than clang 19 supports: its version is overridden, and a header that
 * it dropped is provided, empty. */
enum { MAX_FLAGS = 24 };
typedef struct Language {
    const Target *target;
    const char *name;
    bool toolkit;
    const char *flag[MAX_FLAGS];
} Language;
#define CUDA_FLAGS \
    "-x", "cuda", "--cuda-gpu-arch=sm_90a", "-nocudalib", "-Wno-unknown-cuda-version", \
        "-Wno-unknown-attributes", "-Xclang", "-target-sdk-version=12.3", "-std=c++17", "-Wall", "-Wextra"
static const Language languages[] = {
    {&targets[TARGET_C], "C", false, {"-x", "c", "-std=gnu17", "-Wall", "-Wextra"}},
    {&targets[TARGET_CUDA], "CUDA, host", true, {CUDA_FLAGS, "--cuda-host-only"}},
    {&targets[TARGET_CUDA], "CUDA, device", true, {CUDA_FLAGS, "--cuda-device-only"}},
};
static const char dropped_header[] = "texture_fetch_functions.h";

/* Functions that the emitted text may call in addition to burst_rt.h and itself. */
static const char *const allowed_calls[] = {
    "memcpy", "memset", "memmove", "memcmp", "strcmp", "strlen", "snprintf", "fprintf", "printf", "sqrt",
    "sqrtf",  "exp",    "expf",    "log",    "logf",   "fabs",   "fabsf",    "fmin",    "fmax",   "abs",
};
/* Types that are a status in any function. */
static const char *const status_types[] = {"cudaError_t", "ncclResult_t", "cublasStatus_t"};

/* A buffer, which is a field of PlanBuffers, and its uses. */
typedef struct Field {
    CXCursor cursor;
    bool taken, used;
} Field;
typedef struct Header {
    CXFile file;
    const Source *source;
} Header;
typedef struct Check {
    Arena *arena;
    Diags *diags;
    const Language *language;
    const Source *source;  /* in the arena: diagnostics refer to it */
    const char *headers;   /* the headers' folder */
    CXTranslationUnit unit;
    Vec(Header) sources;   /* files that cursors were in */
    Vec(Field) fields;
    bool in_alloc; /* inside plan_alloc..., or plan_scratch */
    int problems;
} Check;
/* The context of the current cursor. */
typedef struct Place {
    Check *check;
    bool dropped, stored;
} Place;

static void walk(Check *c, CXCursor cursor, bool dropped, bool stored);

static char *copy_string(Check *c, CXString s)
{
    const char *text = clang()->getCString(s);
    char *copy = arena_copy(c->arena, text ? text : "", text ? strlen(text) : 0);
    clang()->disposeString(s);
    return copy;
}

/* The source of a file: the text, or a header of its folder; NULL: another file. */
static const Source *source_of(Check *c, CXFile file)
{
    for (int i = 0; i < c->sources.n; i++)
        if (clang()->File_isEqual(file, c->sources.at[i].file))
            return c->sources.at[i].source;
    const char *name = copy_string(c, clang()->getFileName(file));
    const size_t folder = strlen(c->headers);
    size_t n = 0;
    const char *text = strncmp(name, c->headers, folder) == 0 && name[folder] == '/'
                           ? clang()->getFileContents(c->unit, file, &n)
                           : NULL;
    Source *source = text ? NEW(c->arena, Source) : NULL;
    if (source)
        *source = (Source){name, arena_copy(c->arena, text, n), n};
    *vec_push(c->arena, &c->sources) = (Header){file, source};
    return source;
}

static Span span_of(Check *c, CXSourceRange range)
{
    CXFile file = NULL;
    unsigned begin = 0, end = 0;
    clang()->getFileLocation(clang()->getRangeStart(range), &file, NULL, NULL, &begin);
    clang()->getFileLocation(clang()->getRangeEnd(range), NULL, NULL, NULL, &end);
    const Source *source = file ? source_of(c, file) : NULL;
    return source ? (Span){source, begin, end > begin ? end : begin + 1} : (Span){0};
}

static void problem(Check *c, Span at, const char *message)
{
    c->problems++;
    diag_error(c->diags, at, "internal error in burstc, not in your files: emitted text: %s", message);
}

/* ---- rule 1: clang's own diagnostics ---- */
static Span diagnostic_span(Check *c, CXDiagnostic diagnostic)
{
    CXSourceLocation at = clang()->getDiagnosticLocation(diagnostic);
    if (clang()->getDiagnosticNumRanges(diagnostic) > 0) {
        Span span = span_of(c, clang()->getDiagnosticRange(diagnostic, 0));
        if (span.src)
            return span;
    }
    return span_of(c, clang()->getRange(at, at));
}

static void report_diagnostic(Check *c, CXDiagnostic diagnostic)
{
    if (clang()->getDiagnosticSeverity(diagnostic) < CXDiagnostic_Warning)
        return;
    Span at = diagnostic_span(c, diagnostic);
    problem(c, at,
            at.src
                ? copy_string(c, clang()->getDiagnosticSpelling(diagnostic))
                : copy_string(c, clang()->formatDiagnostic(diagnostic, CXDiagnostic_DisplaySourceLocation)));
}

static void report_diagnostics(Check *c)
{
    for (unsigned i = 0, n = clang()->getNumDiagnostics(c->unit); i < n; i++) {
        CXDiagnostic diagnostic = clang()->getDiagnostic(c->unit, i);
        report_diagnostic(c, diagnostic);
        clang()->disposeDiagnostic(diagnostic);
    }
}

/* ---- rules 2 and 4: calls ---- */
static bool in_list(const char *name, const char *const *list, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name, list[i]) == 0)
            return true;
    return false;
}

static bool returns_status(Check *c, CXCursor function, const char *name)
{
    CXType type = clang()->getCursorResultType(function);
    if (in_list(copy_string(c, clang()->getTypeSpelling(type)), status_types, countof(status_types)))
        return true;
    bool ours = strncmp(name, "burst_", 6) == 0 || strncmp(name, "plan_", 5) == 0;
    return ours && clang()->getCanonicalType(type).kind == CXType_Int;
}

static const char *cuda_folder(Arena *a)
{
    const char *path = environment("CUDA_PATH", "/usr/local/cuda");
    return access(arena_printf(a, "%s/include/cuda_runtime.h", path), R_OK) == 0 ? path : NULL;
}

static const char *declaring_path(Check *c, CXCursor function)
{
    CXFile file = NULL;
    clang()->getFileLocation(clang()->getCursorLocation(function), &file, NULL, NULL, NULL);
    return file ? copy_string(c, clang()->getFileName(file)) : "";
}

/* Whether it is declared by the CUDA toolkit (also if its headers are linked into another folder), or by
 * clang's headers for it. */
static bool of_toolkit(Check *c, CXCursor function)
{
    if (!c->language->toolkit)
        return false;
    const char *path = declaring_path(c, function), *name = strstr(path, "/include/");
    if (strstr(path, "/__clang_"))
        return true;
    return name && access(arena_printf(c->arena, "%s%s", cuda_folder(c->arena), name), R_OK) == 0;
}

/* Whether it is declared in the text or in a header of the runtime. */
static bool ours(Check *c, CXCursor function)
{
    const char *path = declaring_path(c, function), *slash = strrchr(path, '/'),
               *base = slash ? slash + 1 : path;
    size_t n = strlen(base);
    return strcmp(path, c->source->name) == 0 || strncmp(base, "burst_", 6) == 0 ||
           (n > 4 && strcmp(base + n - 4, ".cuh") == 0);
}

/* Whether a launch's configuration has a stream, the last of grid, block, shared memory and stream; C++
 * fills in the last two. */
static bool has_stream(CXCursor configuration)
{
    CXCursor stream = clang()->Cursor_getArgument(configuration, 3);
    return !clang()->Range_isNull(clang()->getCursorExtent(stream));
}

static void check_call(Check *c, CXCursor call, bool dropped)
{
    CXCursor function = clang()->getCursorReferenced(call);
    if (clang()->getCursorKind(function) != CXCursor_FunctionDecl)
        return; /* by a pointer: the plan's own entry points */
    const char *name = copy_string(c, clang()->getCursorSpelling(function));
    Span at = span_of(c, clang()->getCursorExtent(call));
    if (dropped && returns_status(c, function, name))
        problem(c, at, arena_printf(c->arena, "the status of '%s' is ignored", name));
    if (strcmp(name, "__cudaPushCallConfiguration") == 0 && !has_stream(call))
        problem(c, at, "this launch names no stream");
    if (!of_toolkit(c, function) && !ours(c, function) &&
        !in_list(name, allowed_calls, countof(allowed_calls)))
        problem(c, at,
                arena_printf(c->arena,
                             "'%s' is not a function of the runtime; the emitted text may not call it",
                             name));
}

/* ---- rule 3: buffers ---- */
/* A pointer to a PlanSlot and the like points into the state itself. */
static bool is_plan_type(Check *c, CXType type)
{
    const char *name = copy_string(c, clang()->getTypeSpelling(type));
    return strncmp(name, "Plan", 4) == 0 || strncmp(name, "struct Plan", 11) == 0;
}

static bool is_buffer(Check *c, CXType type)
{
    type = clang()->getCanonicalType(type);
    while (type.kind == CXType_ConstantArray)
        type = clang()->getCanonicalType(clang()->getArrayElementType(type));
    if (type.kind != CXType_Pointer)
        return false;
    CXType pointee = clang()->getPointeeType(type);
    return clang()->getCanonicalType(pointee).kind != CXType_FunctionProto &&
           !clang()->isConstQualifiedType(pointee) && !is_plan_type(c, pointee);
}

static enum CXChildVisitResult add_field(CXCursor cursor, CXCursor parent, CXClientData data)
{
    (void)parent;
    Check *c = data;
    if (clang()->getCursorKind(cursor) == CXCursor_FieldDecl && is_buffer(c, clang()->getCursorType(cursor)))
        *vec_push(c->arena, &c->fields) = (Field){.cursor = cursor};
    return CXChildVisit_Continue;
}

static enum CXChildVisitResult find_buffers(CXCursor cursor, CXCursor parent, CXClientData data)
{
    (void)parent;
    Check *c = data;
    if (clang()->getCursorKind(cursor) == CXCursor_StructDecl && clang()->isCursorDefinition(cursor) &&
        strcmp(copy_string(c, clang()->getCursorSpelling(cursor)), "PlanBuffers") == 0)
        clang()->visitChildren(cursor, add_field, c);
    return CXChildVisit_Continue;
}

static void note_member(Check *c, CXCursor member, bool stored)
{
    CXCursor field = clang()->getCursorReferenced(member);
    for (int i = 0; i < c->fields.n; i++)
        if (clang()->equalCursors(c->fields.at[i].cursor, field)) {
            c->fields.at[i].taken |= c->in_alloc && stored;
            c->fields.at[i].used |= !c->in_alloc;
        }
}

static void check_fields(Check *c)
{
    for (int i = 0; i < c->fields.n; i++) {
        const Field *f = &c->fields.at[i];
        const char *name = copy_string(c, clang()->getCursorSpelling(f->cursor));
        Span at = span_of(c, clang()->getCursorExtent(f->cursor));
        if (!f->taken)
            problem(c, at, arena_printf(c->arena, "plan_alloc does not take buffer '%s'", name));
        if (!f->used)
            problem(c, at, arena_printf(c->arena, "buffer '%s' is never used after plan_alloc", name));
    }
}

/* ---- the walk, from the top down: tracks whether the cursor's value is dropped or is stored to ---- */
/* The two semicolons in a for's head separate init, condition and increment; libclang does not say which is
 * which. */
static int semicolons_before(Span loop, unsigned offset)
{
    int depth = 0, n = 0;
    for (unsigned i = loop.begin; i < offset && i < loop.end; i++) {
        char ch = loop.src->text[i];
        depth += (ch == '(') - (ch == ')');
        n += ch == ';' && depth == 1;
    }
    return n;
}

/* Whether the statement drops the value of its child; `index` counts from 0. */
static bool child_dropped(Check *c, CXCursor parent, CXCursor child, int index, bool dropped)
{
    switch ((int)clang()->getCursorKind(parent)) {
    case CXCursor_CompoundStmt:
    case CXCursor_LabelStmt:
    case CXCursor_DefaultStmt: return true;
    case CXCursor_CaseStmt:
    case CXCursor_IfStmt:
    case CXCursor_WhileStmt:
    case CXCursor_SwitchStmt: return index > 0;
    case CXCursor_DoStmt: return index == 0;
    case CXCursor_ForStmt: {
        Span loop = span_of(c, clang()->getCursorExtent(parent)),
             at = span_of(c, clang()->getCursorExtent(child));
        return !loop.src || semicolons_before(loop, at.begin) != 1;
    }
    case CXCursor_ParenExpr:
    case CXCursor_UnexposedExpr: return dropped;
    case CXCursor_ConditionalOperator: return index > 0 && dropped;
    case CXCursor_CStyleCastExpr: return dropped || clang()->getCursorType(parent).kind == CXType_Void;
    case CXCursor_BinaryOperator:
        return clang()->getCursorBinaryOperatorKind(parent) == CXBinaryOperator_Comma &&
               (index == 0 || dropped);
    default: return false;
    }
}

static bool child_stored(CXCursor parent, int index, bool stored)
{
    switch ((int)clang()->getCursorKind(parent)) {
    case CXCursor_BinaryOperator:
        return index == 0 && clang()->getCursorBinaryOperatorKind(parent) == CXBinaryOperator_Assign;
    case CXCursor_UnaryOperator: return clang()->getCursorUnaryOperatorKind(parent) == CXUnaryOperator_AddrOf;
    case CXCursor_ArraySubscriptExpr: return index == 0 && stored;
    case CXCursor_ParenExpr:
    case CXCursor_UnexposedExpr: return stored;
    default: return false;
    }
}

typedef struct Children {
    Check *check;
    CXCursor parent;
    int index;
    bool dropped, stored;
} Children;
static enum CXChildVisitResult walk_child(CXCursor cursor, CXCursor parent, CXClientData data)
{
    (void)parent;
    Children *k = data;
    walk(k->check, cursor, child_dropped(k->check, k->parent, cursor, k->index, k->dropped),
         child_stored(k->parent, k->index, k->stored));
    k->index++;
    return CXChildVisit_Continue;
}

static void walk(Check *c, CXCursor cursor, bool dropped, bool stored)
{
    enum CXCursorKind kind = clang()->getCursorKind(cursor);
    if (kind == CXCursor_CallExpr)
        check_call(c, cursor, dropped);
    if (kind == CXCursor_MemberRefExpr)
        note_member(c, cursor, stored);
    Children k = {c, cursor, 0, dropped, stored};
    clang()->visitChildren(cursor, walk_child, &k);
}

static enum CXChildVisitResult walk_declaration(CXCursor cursor, CXCursor parent, CXClientData data)
{
    (void)parent;
    Check *c = data;
    if (!span_of(c, clang()->getCursorExtent(cursor)).src)
        return CXChildVisit_Continue; /* from another folder */
    const char *name = clang()->getCursorKind(cursor) == CXCursor_FunctionDecl
                           ? copy_string(c, clang()->getCursorSpelling(cursor))
                           : "";
    c->in_alloc = strncmp(name, "plan_alloc", 10) == 0 || strcmp(name, "plan_scratch") == 0;
    walk(c, cursor, false, false);
    return CXChildVisit_Continue;
}

static void check_unit(Check *c)
{
    CXCursor top = clang()->getTranslationUnitCursor(c->unit);
    report_diagnostics(c);
    clang()->visitChildren(top, find_buffers, c);
    clang()->visitChildren(top, walk_declaration, c);
    check_fields(c);
}

enum { MORE_FLAGS = 6 };
static int language_flags(Check *c, const Language *language, const char *flag[MAX_FLAGS + MORE_FLAGS])
{
    int flags = 0;
    while (flags < MAX_FLAGS && language->flag[flags]) {
        flag[flags] = language->flag[flags];
        flags++;
    }
    flag[flags++] = arena_printf(c->arena, "-I%s", c->headers);
    if (language->toolkit)
        flag[flags++] = arena_printf(c->arena, "--cuda-path=%s", cuda_folder(c->arena));
    return flags;
}

static bool parse(Check *c, CXIndex index, const char *const *flag, int flags, const char *dropped)
{
    struct CXUnsavedFile files[] = {{c->source->name, c->source->text, c->source->len}, {dropped, "", 0}};
    enum CXErrorCode code = clang()->parseTranslationUnit2(index, c->source->name, flag, flags, files,
                                                           c->language->toolkit ? 2 : 1, 0, &c->unit);
    if (code == CXError_Success)
        *vec_push(c->arena, &c->sources) = (Header){clang()->getFile(c->unit, c->source->name), c->source};
    return code == CXError_Success;
}

/* Collects problems in c.diags. */
static int check_once(Check c, const char *const *flag, int flags, const char *dropped)
{
    CXIndex index = clang()->createIndex(0, 0);
    if (parse(&c, index, flag, flags, dropped)) {
        check_unit(&c);
        clang()->disposeTranslationUnit(c.unit);
    } else {
        problem(&c, (Span){0}, "libclang cannot read it");
    }
    clang()->disposeIndex(index);
    return c.problems;
}

/* Checks with the cached headers. They can only pass a text; problems are reported from a check without
 * them. */
static bool passes(Check c, KeptHeaders kept, const char **flag, int flags, const char *dropped)
{
    flag[flags++] = "-include-pch";
    flag[flags++] = arena_printf(c.arena, "/proc/self/fd/%d",
                                 kept.file); /* the file that was verified */
    flag[flags++] = "-Xclang";
    flag[flags++] = "-fmodules-validate-system-headers"; /* rejects the cache if a header has changed */
    c.diags = diags_new(c.arena);
    return check_once(c, flag, flags, dropped) == 0;
}

static int check_pass(Arena *a, Diags *d, const Source *source, const Language *language,
                      const char *runtime_include)
{
    Check c = {.arena = a, .diags = d, .source = source, .language = language, .headers = runtime_include};
    const char *flag[MAX_FLAGS + MORE_FLAGS],
        *dropped = arena_printf(a, "%s/%s", runtime_include, dropped_header);
    int flags = language_flags(&c, language, flag);
    KeptHeaders kept = {.file = -1};
    if (language->toolkit)
        kept = kept_headers(a, flag, flags, cuda_folder(a), dropped);
    bool tried = kept.file >= 0, passed = tried && passes(c, kept, flag, flags, dropped);
    int problems = passed ? 0 : check_once(c, flag, flags, dropped);
    if (tried)
        kept_headers_close(&kept, !passed && problems == 0);
    return problems;
}

static bool needs_toolkit(const Target *target)
{
    for (int i = 0; i < countof(languages); i++)
        if (languages[i].target == target && languages[i].toolkit)
            return true;
    return false;
}

/* Whether libclang has its own headers, such as stdbool.h, which some systems package separately. */
static bool has_own_headers(void)
{
    static const char text[] = "#include <stdbool.h>\n#include <stddef.h>\n";
    struct CXUnsavedFile file = {"headers.c", text, sizeof text - 1};
    CXIndex index = clang()->createIndex(0, 0);
    CXTranslationUnit unit = NULL;
    bool has = clang()->parseTranslationUnit2(index, "headers.c", NULL, 0, &file, 1, CXTranslationUnit_None,
                                              &unit) == CXError_Success &&
               clang()->getNumDiagnostics(unit) == 0;
    if (unit)
        clang()->disposeTranslationUnit(unit);
    clang()->disposeIndex(index);
    return has;
}

static int check_passes(Arena *a, Diags *d, const Source *source, const char *runtime_include,
                        const Target *target)
{
    int problems = 0;
    for (int i = 0; i < countof(languages); i++)
        if (languages[i].target == target)
            problems += check_pass(a, d, source, &languages[i], runtime_include);
    return problems;
}

/* Why libclang cannot check a text for the target; NULL: it can. Own headers are tested only after a text
 * has failed, since that takes a parse. */
static const char *why_not(Arena *a, const Target *target)
{
    const char *why = libclang_load();
    if (why)
        return arena_printf(a, "libclang cannot be loaded: %s; install it (on Debian, libclang1-19)", why);
    if (needs_toolkit(target) && !cuda_folder(a))
        return "no CUDA toolkit in /usr/local/cuda; set CUDA_PATH to its folder";
    return NULL;
}

int check_emitted_c(Arena *a, Diags *d, const char *name, const Text *text, const char *runtime_include,
                    const Target *target)
{
    const char *why = why_not(a, target);
    Source *source = NEW(a, Source);
    *source = (Source){strcmp(name, "-") ? name : "<stdout>", arena_copy(a, text->at, text->n), text->n};
    if (!why && check_passes(a, diags_new(a), source, runtime_include, target) == 0)
        return 0;
    if (!why && !has_own_headers())
        why = "libclang does not find its own headers; install them (on Debian, libclang-common-19-dev)";
    if (!why)
        return check_passes(a, d, source, runtime_include, target) ? -1 : 0;
    diag_warn(d, WARN_UNCHECKED_TEXT, (Span){0}, "'%s' was not checked: %s", name, why);
    return 0;
}

#else

int check_emitted_c(Arena *a, Diags *d, const char *name, const Text *text, const char *runtime_include,
                    const Target *target)
{
    (void)a, (void)text, (void)runtime_include, (void)target;
    static bool told;
    if (!told)
        diag_warn(d, WARN_UNCHECKED_TEXT, (Span){0},
                  "'%s' was not checked: this burstc was built without libclang", name);
    told = true;
    return 0;
}
#endif
