/* The check of emitted text: a good text passes, and each rule rejects texts that break it, at the right
 * line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/tools.h"

#include <stdlib.h>
#include <string.h>

/* What every text opens with; the code of a case is in plan_step, at GOOD's place. */
#define HEAD \
    "#include \"burst_rt.h\"\n" \
    "#include <string.h>\n" \
    "#include <stdlib.h>\n" \
    "typedef struct PlanBuffers { float *q; float *part[2]; int64_t n; } PlanBuffers;\n" \
    "int plan_alloc(BurstCtx *c, PlanBuffers *s);\n" \
    "int plan_alloc(BurstCtx *c, PlanBuffers *s)\n" \
    "{\n" \
    "    s->n = 4;\n" \
    "    if (!(s->q = burst_take(c, 64)))\n        return BURST_E_MEMORY;\n" \
    "    for (int i = 0; i < 2; i++)\n        if (!(s->part[i] = burst_take(c, 64)))\n" \
    "            return BURST_E_MEMORY;\n" \
    "    return BURST_OK;\n" \
    "}\n" \
    "static int plan_twice(int x) { return 2 * x; }\n" \
    "int plan_step(BurstCtx *c, PlanBuffers *s, BurstGroup g, BurstReq *r);\n" \
    "int plan_step(BurstCtx *c, PlanBuffers *s, BurstGroup g, BurstReq *r)\n" \
    "{\n" \
    "    memcpy(s->q, s->part[0], 64);\n" \
    "    BURST_TRY(plan_twice(0));\n"
#define TAIL "    (void)r;\n    return burst_barrier(c, g);\n}\n"

/* Runs the check; the diagnostics as text, "" where there are none. Free with free. */
static char *checked_as(const char *code, bool cuda, int *result)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    Text text = {0};
    text_add(&text, code);
    *result = check_emitted_c(a, d, cuda ? "plan.cu" : "plan.c", &text, RUNTIME_DIR,
                              &targets[cuda ? TARGET_CUDA : TARGET_C]);
    text_free(&text); /* the diagnostics must not need it */
    char *out = NULL;
    size_t n;
    FILE *f = open_memstream(&out, &n);
    diags_print(d, f);
    fclose(f);
    arena_free(a);
    return out;
}

static char *checked(const char *code, int *result)
{
    return checked_as(code, false, result);
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)); p++)
        n++;
    return n;
}

#ifdef BURST_LIBCLANG
static void accepts(const char *code)
{
    int result;
    char *out = checked(code, &result);
    assert_string_equal(out, "");
    assert_int_equal(result, 0);
    free(out);
}

/* Exactly one error, whose text and quoted line are given. */
static void rejects(const char *code, const char *message, const char *line)
{
    int result;
    char *out = checked(code, &result);
    if (result != -1 || count(out, "error:") != 1 || !strstr(out, message) || !strstr(out, line))
        fail_msg("expected one error '%s' at '%s', got %d:\n%s", message, line, result, out);
    free(out);
}

static void good(void **state)
{
    (void)state;
    accepts(HEAD TAIL);
    accepts(HEAD "    for (int i = 0; plan_twice(i) < 4; i++)\n        s->n++;\n" TAIL);
    accepts(HEAD "    int sum = s->n == 2 ? plan_twice(2) : 0;\n    s->n += sum;\n" TAIL);
    accepts(HEAD "    while (burst_wait(c, r) != BURST_OK)\n        s->n--;\n" TAIL);
    accepts(HEAD "    switch (plan_twice(1)) { case 2: s->n = 1; break; default: break; }\n" TAIL);
    accepts(HEAD "    do { s->n--; } while (burst_barrier(c, g) == BURST_OK && s->n);\n" TAIL);
}

static void diagnostics_of_clang(void **state)
{
    (void)state;
    rejects(HEAD "    s->n = nowhere;\n" TAIL, "undeclared identifier 'nowhere'", "    s->n = nowhere;");
    rejects(HEAD "    s->absent = 1;\n" TAIL, "no member named 'absent'", "    s->absent = 1;");
    rejects(HEAD "    int unused;\n" TAIL, "unused variable 'unused'", "    int unused;");
    rejects(HEAD "    s->n = 1\n    s->n = 2;\n" TAIL, "expected ';'", "    s->n = 1");
}

/* Every way of dropping a status. */
static void dropped_statuses(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "    burst_barrier(c, g);",
        "    (void)burst_barrier(c, g);",
        "    if (s->n) burst_barrier(c, g);",
        "    if (s->n) s->n++; else burst_barrier(c, g);",
        "    while (s->n--) burst_barrier(c, g);",
        "    do burst_barrier(c, g); while (s->n--);",
        "    for (int i = 0; i < 2; i++) burst_barrier(c, g);",
        "    for (int i = 0; i < 2; i++, burst_barrier(c, g)) s->n++;",
        "    for (burst_barrier(c, g); s->n; s->n--) s->n--;",
        "    for (;; burst_barrier(c, g)) break;",
        "    s->n = (burst_barrier(c, g), 1);",
        "    s->n++, burst_barrier(c, g);",
        "    s->n ? burst_barrier(c, g) : 0;",
        "    switch (s->n) { case 1: burst_barrier(c, g); break; default: break; }",
        "    switch (s->n) { case 1: break; default: burst_barrier(c, g); }",
        "    { (burst_barrier(c, g)); }",
        "again: burst_barrier(c, g); if (s->n--) goto again;",
    };
    for (int i = 0; i < countof(lines); i++) {
        char code[8192];
        snprintf(code, sizeof code, "%s%s\n%s", HEAD, lines[i], TAIL);
        int result;
        char *out = checked(code, &result);
        if (result != -1 || count(out, "the status of 'burst_barrier' is ignored") != 1 ||
            !strstr(out, lines[i]))
            fail_msg("'%s' gives %d:\n%s", lines[i], result, out);
        free(out);
    }
    rejects(HEAD "    plan_twice(3);\n" TAIL, "the status of 'plan_twice' is ignored", "    plan_twice(3);");
}

static void library_statuses(void **state)
{
    (void)state;
    const char *code = "typedef enum { cudaSuccess } cudaError_t;\n"
                       "cudaError_t cudaThing(void);\n"
                       "void plan_f(void);\n"
                       "void plan_f(void)\n{\n    cudaThing();\n}\n";
    rejects(code, "the status of 'cudaThing' is ignored", "    cudaThing();");
}

static void buffers(void **state)
{
    (void)state;
    const char *head = "#include \"burst_rt.h\"\n"
                       "typedef struct PlanBuffers { float *a, *b; } PlanBuffers;\n"
                       "int plan_alloc(BurstCtx *c, PlanBuffers *s);\n"
                       "int plan_step(PlanBuffers *s);\n";
    const char *starts[] = {"s->a = burst_take(c, 8); s->b = burst_take(c, 8);", "s->a = burst_take(c, 8);",
                            "s->a = burst_take(c, 8); s->b = burst_take(c, 8);",
                            "s->a = burst_take(c, 8); s->a = s->b;"};
    const char *uses[] = {"s->a[0] = s->b[0];", "s->a[0] = s->b[0];", "s->a[0] = 1;", "s->a[0] = s->b[0];"};
    const char *errors[] = {NULL, "plan_alloc does not take buffer 'b'",
                            "buffer 'b' is never used after plan_alloc",
                            "plan_alloc does not take buffer 'b'"};
    for (int i = 0; i < countof(starts); i++) {
        char code[2048];
        snprintf(code, sizeof code,
                 "%sint plan_alloc(BurstCtx *c, PlanBuffers *s)\n{\n    %s\n    return s->a ? BURST_OK : "
                 "BURST_E_MEMORY;\n}\n"
                 "int plan_step(PlanBuffers *s)\n{\n    %s\n    return BURST_OK;\n}\n",
                 head, starts[i], uses[i]);
        if (errors[i])
            rejects(code, errors[i], "typedef struct PlanBuffers");
        else
            accepts(code);
    }
}

static void foreign_calls(void **state)
{
    (void)state;
    rejects(HEAD "    abort();\n" TAIL, "'abort' is not a function of the runtime", "    abort();");
    rejects(HEAD "    s->q = malloc(4);\n" TAIL, "'malloc' is not a function of the runtime",
            "    s->q = malloc(4);");
    accepts(HEAD "    memset(s->q, 0, 4);\n" TAIL);
}

/* The note names the template's own line: the marker counts from the line below it, the last marker wins,
 * and after "template end" there is none. Text inserted at line 71 ends with the marker of line 72. */
/* CUDA is read twice, for the host and for the device, against the toolkit's own headers. */
#define CUDA_TEXT(statement, body) \
    "#include \"burst_gpu.h\"\n" \
    "static __global__ void plan_kernel(float *x) { " body " }\n" \
    "int plan_f(BurstGpu *g, float *x);\n" \
    "int plan_f(BurstGpu *g, float *x)\n{\n" \
    "    " statement "\n" \
    "    return cudaGetLastError() == cudaSuccess ? burst_gpu_zero(g, x, 4) : BURST_E_MEMORY;\n}\n"
#define LAUNCH "plan_kernel<<<1, 32, 0, burst_gpu_compute(g)>>>(x);"

static void cuda_case(const char *code, const char *message)
{
    int result;
    char *out = checked_as(code, true, &result);
    if (strstr(out, "no CUDA toolkit")) {
        free(out);
        skip();
    }
    if (result != (*message ? -1 : 0))
        print_error("expected '%s', said '%s'\n", message, out);
    assert_int_equal(result, *message ? -1 : 0);
    if (*message)
        assert_non_null(strstr(out, message));
    else
        assert_string_equal(out, "");
    free(out);
}

static void cuda_texts(void **state)
{
    (void)state;
    cuda_case(CUDA_TEXT(LAUNCH, "x[threadIdx.x] = 1;"), "");
    cuda_case(CUDA_TEXT("plan_kernel<<<1, 32>>>(x);", "x[0] = 1;"), "this launch names no stream");
    cuda_case(CUDA_TEXT("cudaDeviceSynchronize(); " LAUNCH, "x[0] = 1;"),
              "the status of 'cudaDeviceSynchronize' is ignored");
    cuda_case(CUDA_TEXT("burst_gpu_sync(g); " LAUNCH, "x[0] = 1;"),
              "the status of 'burst_gpu_sync' is ignored");
    cuda_case(CUDA_TEXT(LAUNCH, "x[0] = y;"), "use of undeclared identifier 'y'");
    cuda_case(CUDA_TEXT(LAUNCH, "asm(\"ret;\"); int unused;"), "unused variable");
    cuda_case(CUDA_TEXT("system(\"ls\"); " LAUNCH, "x[0] = 1;"), "'system' is not a function of the runtime");
}

#else
static void unavailable(void **state)
{
    (void)state;
    int result;
    char *first = checked("not C", &result);
    assert_int_equal(result, 0);
    assert_int_equal(count(first, "warning:"), 1);
    char *second = checked("not C", &result);
    assert_string_equal(second, "");
    free(first);
    free(second);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef BURST_LIBCLANG
        cmocka_unit_test(good),
        cmocka_unit_test(diagnostics_of_clang),
        cmocka_unit_test(dropped_statuses),
        cmocka_unit_test(library_statuses),
        cmocka_unit_test(buffers),
        cmocka_unit_test(foreign_calls),
        cmocka_unit_test(cuda_texts),
#else
        cmocka_unit_test(unavailable),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
