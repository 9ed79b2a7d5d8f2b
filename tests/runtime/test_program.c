/* test_program.c: burst_main as users meet it: options, metrics, checkpoints, failures; on the miniature
 * plan. */
#include "check.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

enum { MOST_STEPS = 64 };

static char *directory;

static int set_up(void **unused)
{
    (void)unused;
    directory = temporary_directory();
    return 0;
}

static int tear_down(void **unused)
{
    (void)unused;
    remove_directory(directory);
    return 0;
}

static void expect(Outcome o, int code, const char *text)
{
    if (o.code != code || !strstr(o.text, text))
        print_error("expected code %d and '%s'; code %d in %.2f s: %s\n", code, text, o.code, o.seconds,
                    o.text);
    assert_int_equal(o.code, code);
    assert_non_null(strstr(o.text, text));
}

/* The metrics file: one object a line. Returns the lines; loss[] by step, from 1. */
static int read_losses(const char *name, double *loss)
{
    char path[256];
    json_t *line;
    int lines = 0;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (; (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)) != NULL; lines++) {
        json_int_t step = json_integer_value(json_object_get(line, "step"));
        assert_in_range(step, 1, MOST_STEPS - 1);
        loss[step] = json_number_value(json_object_get(line, "loss"));
        assert_true(json_number_value(json_object_get(line, "tokens")) > 0);
        assert_true(json_number_value(json_object_get(line, "tokens_per_second")) > 0);
        assert_true(json_number_value(json_object_get(line, "seconds")) > 0);
        assert_true(json_number_value(json_object_get(line, "norm")) > 0);
        assert_true(json_number_value(json_object_get(line, "lr")) > 0);
        assert_true(json_number_value(json_object_get(line, "predicted")) == 0.001);
        json_decref(line);
    }
    fclose(f);
    return lines;
}

static void train(const char *mini, const char *options, const char *metrics)
{
    expect(run_command("cd %s && MINI='%s' $MINI_MAIN --quiet --metrics %s %s", directory, mini, metrics,
                       options),
           0, "");
}

static double relative(double a, double b)
{
    return fabs(a - b) / fabs(b);
}

/* ---- options ---- */
static void options(void **unused)
{
    (void)unused;
    expect(run_command("$MINI_MAIN --help"), 0, "resume from the newest valid checkpoint");
    expect(run_command("$MINI_MAIN -h"), 0, "resume from the newest valid checkpoint");
    char version[64];
    snprintf(version, sizeof version, "mini, runtime interface %d\n", BURST_RT_ABI);
    expect(run_command("$MINI_MAIN --version"), 0, version);
    static const char *const wrong[][2] = {
        {"--stops 3", "unknown option '--stops'; did you mean '--steps'? See --help"},
        {"--steps=3", "unknown option '--steps=3'; write the value as a word of its own: --steps 3"},
        {"--lr 1e-3", "unknown option '--lr'; the model sets it: `train { optimizer adamw { lr 3e-4; } }`"},
        {"--epochs 3", "unknown option '--epochs'; use --steps N"},
        {"--save-dir a", "unknown option '--save-dir'; use --checkpoint DIR, and --export DIR"},
        {"3", "unknown option '3'"},
        {"--steps", "--steps requires a value: N"},
        {"--steps -1", "--steps is '-1', expected a whole number of at least 0"},
        {"--steps 3x", "is '3x', expected"},
        {"--timeout -1", "is '-1', expected a positive number of seconds"},
        {"--data ''", "--data is '', expected a path"},
        {"--resume", "--resume requires a FILE"},
        {"--every -2", "is '-2', expected"},
        {"--transport shm", "--transport is 'shm', expected auto|nccl|peer"},
        {"--transport pee", "is 'pee', expected"},
        {"--transport ''", "is '', expected"},
        {"--transport nccl", "this program runs on CPUs"},
        {"--share-gpus", "this program runs on CPUs"},
        {"--trace", "--trace requires a value: FILE"},
        {"--trace-steps 0", "is '0', expected a whole number of at least 1"},
        {"--data a --data b", "--data was given twice"},
        {"--steps 1 --quiet --steps 1", "--steps was given twice"},
        {"--resume a --resume", "--resume was given twice"},
        {"--bytes", "--bytes requires --data FILE"},
        {"--every 3", "--every requires --checkpoint DIR"},
        {"--keep 3", "--keep requires --checkpoint DIR"},
        {"--trace-steps 2", "--trace-steps requires --trace FILE"},
        {"--fresh", "--fresh requires --checkpoint DIR"},
        {"--export-dtype f32", "--export-dtype requires --export DIR"},
        {"--quiet --progress 2", "--quiet cannot be combined with --progress"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect(run_command("$MINI_MAIN %s", wrong[i][0]), 2, wrong[i][1]);
    Outcome o = run_command("$MINI_MAIN --steps 3 --quiet");
    assert_string_equal(o.text, "");
    expect(run_command("$MINI_MAIN --steps 3 --progress 1"), 0, "step 2/3  loss ");
    expect(run_command("$MINI_MAIN --steps 3 --metrics /nowhere/m"), 1,
           "cannot write '/nowhere/m': No such file");
    expect(run_command("$MINI_MAIN --steps 3 --data /nowhere/d"), 1,
           "cannot read '/nowhere/d': No such file");
    expect(run_command("$MINI_MAIN --steps 3 --checkpoint /nowhere/d"), 1,
           "cannot create the directory '/nowhere/d': No such file");
    expect(run_command("PMI_SIZE=2 PMI_RANK=0 $MINI_MAIN --steps x"), 2, "is 'x', expected");
}

/* A plan without a prediction; what it says of itself are its waits. */
static void traces(void **unused)
{
    (void)unused;
    expect(run_command("cd %s && MINI='3 1 0 4 30 -1' $MINI_MAIN --steps 4 --trace t --trace-steps 2",
                       directory),
           0, "traced 2 steps from step 2 on, to t");
    char path[256];
    snprintf(path, sizeof path, "%s/t", directory);
    json_t *trace = json_load_file(path, 0, NULL), *event;
    size_t i;
    int steps = 0, waits = 0;
    assert_non_null(trace);
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
        const char *name = json_string_value(json_object_get(event, "name"));
        steps += strcmp(name, "step 2") == 0 || strcmp(name, "step 3") == 0;
        waits += strncmp(name, "wait for rank ", 14) == 0;
    }
    assert_int_equal(steps, 2);
    assert_true(waits > 2);
    json_decref(trace);
    expect(run_command("$MINI_MAIN --steps 3 --trace /nowhere/t"), 1,
           "cannot write '/nowhere/t': No such file");
    expect(run_command("cd %s && MINI='4 1 0 4 50 -1' MINI_FAULT='exit 2 3' $MINI_MAIN --quiet --trace u "
                       "--trace-steps 9; "
                       "test \"$(echo u*)\" = 'u*' && echo clean",
                       directory),
           0, "clean");
}

/* ---- training ---- */
static void losses_ignore_the_layout(void **unused)
{
    (void)unused;
    static const char *const shapes[] = {"2 1 1 4 30 -1", "4 1 2 4 30 -1", "4 2 1 4 30 -1", "8 1 0 4 30 -1",
                                         "3 1 2 4 30 -1"};
    double one[MOST_STEPS], other[MOST_STEPS];
    train("1 1 0 4 30 -1", "", "one");
    assert_int_equal(read_losses("one", one), 30);
    assert_true(one[30] < one[1] - 0.1); /* it learns the frequencies */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        train(shapes[i], "", "other");
        assert_int_equal(read_losses("other", other), 30);
        for (int step = 1; step <= 30; step++)
            assert_true(relative(other[step], one[step]) < 1e-5);
    }
}

static void runs_repeat_bit_by_bit(void **unused)
{
    (void)unused;
    double first[MOST_STEPS] = {0}, again[MOST_STEPS] = {0};
    train("5 1 1 4 20 2", "", "first");
    train("5 1 1 4 20 2", "", "again");
    assert_int_equal(read_losses("first", first), 20);
    read_losses("again", again);
    assert_memory_equal(first, again, sizeof first);
    train("5 1 1 4 20 2", "--seed 4", "again");
    read_losses("again", again);
    assert_true(first[1] != again[1]);
}

/* More than all that the devices can do is said to be a wrong figure, once. */
static void too_fast(void **unused)
{
    (void)unused;
    const char *said = "the matmul rate in the .topo file is too low";
    Outcome o = run_command("MINI='2 1 0 4 8 -1' MINI_PEAK=1 $MINI_MAIN");
    expect(o, 0, said);
    assert_null(strstr(strstr(o.text, said) + 1, said));
    o = run_command("MINI='2 1 0 4 8 -1' MINI_PEAK=1e15 $MINI_MAIN");
    expect(o, 0, "% MFU");
    assert_null(strstr(o.text, said));
}

/* ---- failures ---- */
static void expect_failure(const char *fault, const char *options, const char *text)
{
    Outcome o = run_command("MINI='4 1 0 4 50 -1' MINI_FAULT='%s' $MINI_MAIN --quiet %s", fault, options);
    expect(o, 1, text);
    assert_true(o.seconds < scaled_timeout(3)); /* and not at the time-out of 300 s */
}

static void failures(void **unused)
{
    (void)unused;
    expect_failure("kill 2 20", "", "lost rank 2, step 20 (step): killed by signal 9");
    expect_failure("exit 0 3", "", "lost rank 0, step 3 (step): ended early with exit code 0");
    expect_failure("hang 3 5", "--timeout 0.5", "all wait for rank 3, step 5 (step)");
    expect_failure("stop 1 5", "--timeout 0.5", "all wait for rank 1, step 5 (step)");
    expect_failure("nan 0 7", "", "the loss of step 7 is not a number");
    Outcome o = run_command("MINI='4 1 0 4 50 -1' MINI_FAULT='nan 0 7' $MINI_MAIN --progress 1");
    expect(o, 1, "step 6/50  loss"); /* lines and messages count steps alike */
    expect(o, 1, "step 7 (the update): the loss of step 7 is not a number");
    o = run_command("BURST_TIMEOUT=soon $MINI_MAIN --steps 1 --quiet");
    expect(o, 0, "BURST_TIMEOUT is 'soon', expected a number of seconds");
    o = run_command("MINI='4 1 0 4 50 -1' MINI_FAULT='hang 3 5' BURST_TIMEOUT=0.3 $MINI_MAIN --quiet");
    expect(o, 1, "all wait for rank 3");
}

/* ---- checkpoints ---- */
static bool there(const char *name)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return stat(path, &st) == 0;
}

static void newest_are_kept(void **unused)
{
    (void)unused;
    train("3 1 0 4 10 -1", "--checkpoint kept --every 3", "m");
    assert_false(there("kept/step-00000006.burst"));
    assert_true(there("kept/step-00000009.burst") && there("kept/step-00000010.burst"));
    /* with .lock; no part of a file is left */
    expect(run_command("ls -A %s/kept | wc -l", directory), 0, "3\n");
    train("3 1 0 4 10 -1", "--checkpoint four --every 3 --keep 4", "m");
    expect(run_command("ls %s/four | wc -l", directory), 0, "4\n");
    train("3 1 0 4 10 -1", "--checkpoint last --every 0", "m");
    expect(run_command("ls -A %s/last", directory), 0, ".lock\nstep-00000010.burst\n");
}

/* Interrupted after 12 of 30 steps and resumed on another world: as if never interrupted. */
static void resumes_on_any_world(void **unused)
{
    (void)unused;
    static const struct { const char *before, *after; double tolerance; } cases[] = {
        {"4 1 0 4 30 2", "4 1 0 4 30 2", 0},    {"4 1 0 4 30 2", "1 1 0 4 30 2", 1e-5},
        {"1 1 0 4 30 2", "8 2 0 4 30 2", 1e-5}, {"8 1 1 4 30 2", "3 1 2 4 30 2", 1e-5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double whole[MOST_STEPS], parts[MOST_STEPS];
        expect(run_command("rm -rf %s/ck", directory), 0, "");
        train(cases[i].before, "", "whole");
        train(cases[i].before, "--steps 12 --checkpoint ck --every 5", "parts");
        train(cases[i].after, "--resume --checkpoint ck", "parts");
        assert_int_equal(read_losses("whole", whole), 30);
        assert_int_equal(read_losses("parts", parts), 30);
        for (int step = 1; step <= 30; step++)
            assert_true(relative(parts[step], whole[step]) <= cases[i].tolerance);
    }
}

static Outcome resume(const char *how)
{
    return run_command("cd %s && MINI='2 1 0 4 12 -1' $MINI_MAIN --progress 1 %s", directory, how);
}

/* Writes checkpoints of steps 5 and 10 into "ck", then spoils some with a shell command. */
static void spoil(const char *command)
{
    expect(run_command("rm -rf %s/ck", directory), 0, "");
    train("3 1 0 4 30 -1", "--steps 10 --checkpoint ck --every 5", "m");
    expect(run_command("cd %s/ck && %s", directory, command), 0, "");
}

#define FLIP(at) "printf '\\377' | dd of=step-00000010.burst bs=1 conv=notrunc status=none seek=" at
#define NEWEST "step-00000010.burst"

static void damaged_files_are_passed_over(void **unused)
{
    (void)unused;
    static const char *const cases[][2] = {
        {"truncate -s -1 " NEWEST, "the file is truncated"},
        {"truncate -s 5000 " NEWEST, "the file is truncated"},
        {"truncate -s 10 " NEWEST, "it is not a checkpoint of this version"},
        {"truncate -s 0 " NEWEST, "it is not a checkpoint of this version"},
        {FLIP("3"), "it is not a checkpoint of this version"},
        {FLIP("20"), "its header"},
        {FLIP("4000"), "its header does not match its checksum"},
        {FLIP("4097"), "its data does not match its checksum"}, /* section 0: rank 0 looks */
        {FLIP("4700"), "its data does not match its checksum"}, /* section 1: rank 1 looks */
        {FLIP("5201"), "its data does not match its checksum"}, /* section 2: rank 0 again */
        {FLIP("5753"), "its data does not match its checksum"}, /* section 3 of one of 6 elements */
        {FLIP("7550"), "its data does not match its checksum"}, /* the end of the last one */
        {FLIP("7555"), "its data does not match its checksum"}, /* the checksum of section 0 itself */
        {"chmod 000 " NEWEST " && rm " NEWEST " && mkdir " NEWEST, "it is not a regular file"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spoil(cases[i][0]);
        Outcome o = resume("--resume --checkpoint ck");
        expect(o, 0, cases[i][1]);
        expect(o, 0, "ignoring 'ck/step-00000010.burst'");
        expect(o, 0, "resumed after step 5\n");
    }
    spoil("for f in *; do truncate -s -1 $f; done");
    expect(resume("--resume --checkpoint ck"), 1, "no valid checkpoint in 'ck'");
}

static void resuming_from_a_file(void **unused)
{
    (void)unused;
    spoil("true");
    expect(resume("--resume ck/step-00000005.burst"), 0, "resumed after step 5\n");
    expect(resume("--resume --checkpoint empty"), 0, "no checkpoint in 'empty'; starting from step 0");
    expect(resume("--resume ck/step-00000007.burst"), 1,
           "cannot resume from 'ck/step-00000007.burst': No such file");
    expect(run_command("cd %s && MINI_FFN=9 $MINI_MAIN --resume ck/step-00000005.burst", directory), 2,
           "'ck/step-00000005.burst' belongs to a different model: ffn is 6, expected 9");
    spoil("truncate -s -1 " NEWEST);
    expect(resume("--resume ck/step-00000010.burst"), 1,
           "cannot resume from 'ck/step-00000010.burst': the file is truncated");
    /* going back: the newer ones would win over the new ones */
    spoil("true");
    static const char back[] = "--resume ck/step-00000005.burst --checkpoint ck --every 1 --keep 1 --steps 7";
    expect(resume(back), 2,
           "'ck' has checkpoints later than step 5, where this run starts (up to step 10); use --fresh to "
           "move them");
    expect(run_command("cd %s && MINI='2 1 0 4 12 -1' $MINI_MAIN --fresh %s", directory, back), 0,
           "resumed after step 5\n");
    expect(run_command("cd %s/ck && echo *.burst earlier-1/*", directory), 0,
           "step-00000007.burst earlier-1/step-00000010.burst\n");
}

/* Killed in the middle of training, over and over: the directory always holds a whole checkpoint. */
static void killed_and_resumed(void **unused)
{
    (void)unused;
    double whole[MOST_STEPS], parts[MOST_STEPS];
    train("3 1 0 4 24 -1", "", "whole");
    expect(run_command("rm -rf %s/ck", directory), 0, "");
    for (int round = 0; round < 4; round++)
        expect(run_command(
                   "cd %s && MINI='3 1 0 4 24 -1' MINI_FAULT='kill %d %d' $MINI_MAIN --quiet --metrics parts "
                   "--checkpoint ck --every 2 --resume",
                   directory, round % 3, 5 * round + 4),
               1, "killed by signal 9");
    train("3 1 0 4 24 -1", "--checkpoint ck --resume", "parts");
    read_losses("whole", whole);
    read_losses("parts", parts);
    assert_true(whole[24] == parts[24]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options),
        cmocka_unit_test(traces),
        cmocka_unit_test(losses_ignore_the_layout),
        cmocka_unit_test(runs_repeat_bit_by_bit),
        cmocka_unit_test(too_fast), cmocka_unit_test(failures),
        cmocka_unit_test(newest_are_kept),
        cmocka_unit_test(resumes_on_any_world),
        cmocka_unit_test(damaged_files_are_passed_over),
        cmocka_unit_test(resuming_from_a_file),
        cmocka_unit_test(killed_and_resumed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
