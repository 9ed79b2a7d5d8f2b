/* check.c: what the tests need to look at jobs from outside. */
#include "check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

BurstPlan bare_plan(int world, size_t arena_bytes)
{
    return (BurstPlan){.abi = BURST_RT_ABI,
                       .source = "bare plan",
                       .world = world,
                       .data = 1,
                       .group = world,
                       .nodes = 1,
                       .arena_bytes = arena_bytes};
}

static void read_all(FILE *f, char *text, size_t size)
{
    rewind(f);
    text[fread(text, 1, size - 1, f)] = 0;
}

Outcome run_job(const BurstPlan *p, const char *timeout, Body body, void *arg)
{
    Outcome out = {0};
    FILE *caught = tmpfile();
    int usual = dup(STDERR_FILENO);
    if (!caught || usual < 0 || dup2(fileno(caught), STDERR_FILENO) < 0)
        abort();
    char *argv[] = {"test", "--timeout", (char *)timeout, NULL};
    double begin = burst_seconds();
    out.code = burst_launch(p, timeout ? 3 : 1, argv, body, arg);
    out.seconds = burst_seconds() - begin;
    fflush(stderr);
    dup2(usual, STDERR_FILENO);
    close(usual);
    read_all(caught, out.text, sizeof out.text);
    fclose(caught);
    return out;
}

Outcome run_command(const char *format, ...)
{
    char command[4096] = "{ ";
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(command + 2, sizeof command - 16, format, ap);
    va_end(ap);
    if (n >= (int)sizeof command - 16)
        abort();
    strcat(command, "; } 2>&1");
    Outcome out = {0};
    double begin = burst_seconds();
    FILE *f = popen(command, "r");
    if (!f)
        abort();
    out.text[fread(out.text, 1, sizeof out.text - 1, f)] = 0;
    while (fgetc(f) != EOF)
        ;
    int status = pclose(f);
    out.seconds = burst_seconds() - begin;
    out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return out;
}

double scaled_timeout(double seconds)
{
    double minute = 0, now = 0;
    FILE *f = fopen("/proc/loadavg", "r");
    if (!f || fscanf(f, "%lf %*f %*f %lf/", &minute, &now) != 2)
        abort();
    fclose(f);
    return seconds * fmax(1, 4 * fmax(minute, now) / (double)sysconf(_SC_NPROCESSORS_ONLN));
}

void *shared_memory(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        abort();
    return at;
}

char *temporary_directory(void)
{
    char name[] = "/tmp/burst-test.XXXXXX", *made = mkdtemp(name) ? strdup(name) : NULL;
    if (!made)
        abort();
    return made;
}

void remove_directory(char *path)
{
    Outcome gone = run_command("rm -rf '%s'", path);
    if (gone.code != 0)
        abort();
    free(path);
}

uint64_t random_next(Random *r)
{
    uint64_t x = r->state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

int random_below(Random *r, int bound)
{
    return (int)(random_next(r) % (uint64_t)bound);
}

float random_float(Random *r)
{
    return (float)((double)(random_next(r) >> 11) * 0x1p-52 - 1);
}
