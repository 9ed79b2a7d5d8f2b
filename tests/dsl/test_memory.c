/* test_memory.c: the front end when the n-th allocation fails, for every n: it says so and exits with 3,
 * and never crashes. The linker sends malloc and realloc of this program here (--wrap). */
#include "text.h"

#include <fcntl.h>
#include <sys/wait.h>

void *__real_malloc(size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static int64_t left = INT64_MAX; /* allocations until the one that fails */

void *__wrap_malloc(size_t bytes)
{
    return --left == 0 ? NULL : __real_malloc(bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return --left == 0 ? NULL : __real_realloc(old, bytes);
}

static const char *topo_path, *model_path, *schedule_path;

/* One compile with messages and --emit=ast, as the driver does it: 0 without errors, else 1. */
static int compile(void)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    FrontEnd in = {.target = &targets[TARGET_C],
                   .topo_path = topo_path,
                   .model_path = model_path,
                   .stock_dir = DSL_STOCK,
                   .schedule_paths = &schedule_path,
                   .schedule_path_count = 1};
    Text ast = {0};
    int failed = front_end(a, d, &in) == NULL;
    print_ast(a, d, &in, &ast);
    diags_print(d, stderr);
    text_free(&ast);
    arena_free(a);
    return failed;
}

/* Runs compile in a child whose n-th allocation fails; its messages come back in said. */
static int child(int64_t n, char *said, size_t size)
{
    int fd = memfd_create("said", 0), status;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0 && fd >= 0);
    if (pid == 0) {
        dup2(fd, 2);
        left = n;
        _exit(compile());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status)); /* no signal */
    ssize_t got = pread(fd, said, size - 1, 0);
    said[got < 0 ? 0 : got] = 0;
    close(fd);
    return WEXITSTATUS(status);
}

static int sweep(int wanted)
{
    char said[4096];
    for (int64_t n = 1; n < 100000; n++) {
        int code = child(n, said, sizeof said);
        if (code != 3) {
            assert_int_equal(code, wanted);
            return (int)n;
        }
        assert_string_equal(said, "burstc: error: out of memory\n");
    }
    fail_msg("allocations without an end");
    return 0;
}

static void set_files(Arena *a, const char *model)
{
    topo_path = memory_file(
        a,
        "device d { arch cpu; memory 1 GB; matmul fp32 1 TFLOP/s; } cluster c { nodes 1 { cpus 4 of d; } }");
    model_path = memory_file(a, model);
    schedule_path = memory_file(a, "schedule x over (r of G) { forward { attend Q[r] with KV[r]; } backward "
                                   "{ grad Q[r] with KV[r]; } }");
}

static void right_input(void **state)
{
    (void)state;
    Arena *a = arena_new();
    set_files(a, MODEL "sequence 1Ki; mask m(w) = window(w) or k < 3; attention { default m(7); }");
    assert_true(sweep(0) > 20);
    arena_free(a);
}

static void wrong_input(void **state)
{
    (void)state;
    Arena *a = arena_new();
    set_files(a, MODEL
              "sequence 1Ki; mask m = widow(3) and (((((((((((((((((q; layout { dta 1; } mask n = q @ k;");
    assert_true(sweep(1) > 20);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(right_input), cmocka_unit_test(wrong_input)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
