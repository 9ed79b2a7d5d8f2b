/* test_place.c: what the variables of launchers make of a process. */
#include "burst_rt.h"
#include "host/launch/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *const known[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "BURST_PORT",
    "BURST_SECRET",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_LOCALID",
    "SLURM_STEP_NODELIST",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_NODES",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "PMI_SIZE",
    "PMI_RANK",
    "PMIX_RANK",
};

/* "A=1 B=x": nothing else is set. */
static void set_environment(const char *text)
{
    char copy[1024], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        unsetenv(known[i]);
    for (char *one; (one = strtok_r(rest, " ", &rest));) {
        char *value = strchr(one, '=');
        *value = 0;
        setenv(one, value + 1, 1);
    }
}

#define SLURM \
    "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NTASKS=8 " \
    "SLURM_STEP_NODELIST=n[03-05,9],m1 "
#define TORCH "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=head MASTER_PORT=29500 "

typedef struct Good {
    const char *environment;
    int launcher, rank, world, local;
    const char *master;
    int port, ports;
    bool one_host;
} Good;
static const Good good[] = {
    {"", ALONE, 0, 0, -1, "", 0, 0},
    {TORCH, BY_TORCHRUN, 3, 4, 1, "head", 29501, 8},
    {TORCH "TORCHELASTIC_RUN_ID=x PMI_RANK=2 PMI_SIZE=4 OMPI_COMM_WORLD_SIZE=4", BY_TORCHRUN, 3, 4, 1, "head",
     29501, 8},
    {TORCH "LOCAL_WORLD_SIZE=2", BY_TORCHRUN, 3, 4, 1, "head", 29501, 8},
    {TORCH "LOCAL_WORLD_SIZE=4", BY_TORCHRUN, 3, 4, 1, "head", 29501, 8, true},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=65535", BY_TORCHRUN, 0, 2, -1, "::1", 65527, 8},
    {TORCH "BURST_PORT=4000", BY_TORCHRUN, 3, 4, 1, "head", 4000, 1},
    {"RANK=0 WORLD_SIZE=1", BY_TORCHRUN, 0, 1, -1, "", 0, 0},
    {"MASTER_ADDR=head MASTER_PORT=29500", ALONE, 0, 0, -1, "", 0, 0}, /* scripts export these for all */
    {"RANK= WORLD_SIZE=", ALONE, 0, 0, -1, "", 0, 0},
    {SLURM, BY_SLURM, 5, 8, 1, "n03", -1, 8},
    {SLURM "SLURM_STEP_NUM_NODES=2", BY_SLURM, 5, 8, 1, "n03", -1, 8},
    {SLURM "SLURM_STEP_NUM_NODES=1", BY_SLURM, 5, 8, 1, "n03", -1, 8, true},
    {SLURM TORCH, BY_TORCHRUN, 3, 4, 1, "head", 29501, 8},
    {SLURM "SLURM_STEP_NUM_TASKS=6", BY_SLURM, 5, 6, 1, "n03", -1, 8},
    {SLURM "SLURM_STEP_NUM_TASKS=1", ALONE, 0, 0, -1, "", 0, 0},
    {SLURM "MASTER_ADDR=head BURST_PORT=4000", BY_SLURM, 5, 8, 1, "head", 4000, 1},
    {SLURM "SLURM_STEP_ID=4294967291", ALONE, 0, 0, -1, "", 0, 0}, /* batch script */
    {SLURM "SLURM_STEP_ID=4294967290", ALONE, 0, 0, -1, "", 0, 0}, /* interactive */
    {SLURM "PMI_RANK=5 PMI_SIZE=8", BY_SLURM, 5, 8, 1, "n03", -1, 8}, /* --mpi=pmi2 */
    {SLURM "PMIX_RANK=5", BY_SLURM, 5, 8, 1, "n03", -1, 8}, /* --mpi=pmix */
    {SLURM "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 PMI_RANK=0 PMI_SIZE=1", ALONE, 0, 0, -1, "", 0, 0},
    {SLURM "SLURM_STEP_ID=", ALONE, 0, 0, -1, "", 0, 0},
};

static void places(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const Good *g = &good[i];
        Place p;
        char text[1024] = "";
        set_environment(g->environment);
        int status = place_find(&p, text, sizeof text);
        if (status != BURST_OK || p.launcher != g->launcher)
            print_error("%s: %d, launcher %d: %s\n", g->environment, status, p.launcher, text);
        assert_int_equal(status, BURST_OK);
        assert_int_equal(p.launcher, g->launcher);
        assert_int_equal(p.rank, g->rank);
        assert_int_equal(p.world, g->world);
        assert_int_equal(p.local, g->local);
        assert_string_equal(p.master, g->master);
        assert_int_equal(p.ports, g->ports);
        assert_int_equal(p.one_host, g->one_host);
        if (g->port >= 0)
            assert_int_equal(p.port, g->port);
        else
            assert_in_range(p.port, 20000, 29999 - p.ports);
    }
}

typedef struct Bad { const char *environment, *text; } Bad;
static const Bad bad[] = {
    {"RANK=0",
     "RANK is set (to '0') but WORLD_SIZE is not; set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"},
    {"WORLD_SIZE=4", "WORLD_SIZE is set (to '4') but RANK is not"},
    {"LOCAL_RANK=1", "LOCAL_RANK is set (to '1') but RANK is not"},
    {"RANK=0 LOCAL_RANK=0", "RANK is set (to '0') but WORLD_SIZE is not"},
    {"RANK=0 WORLD_SIZE=2", "MASTER_ADDR is not set; set it to the address of rank 0's host"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=head", "MASTER_PORT is not set"},
    {TORCH "MASTER_PORT=0", "MASTER_PORT is '0', expected a number from 1 to 65535"},
    {TORCH "MASTER_PORT=29500x", "MASTER_PORT is '29500x'"},
    {TORCH "BURST_PORT=70000", "BURST_PORT is '70000', expected a number from 1 to 65535"},
    {TORCH "RANK=4", "RANK is '4', expected a number from 0 to 3"},
    {TORCH "RANK=-1", "RANK is '-1'"},
    {TORCH "WORLD_SIZE=0", "WORLD_SIZE is '0'"},
    {TORCH "WORLD_SIZE=99999999999999999999", "WORLD_SIZE is '99999999999999999999'"},
    {TORCH "LOCAL_RANK=4", "LOCAL_RANK is '4', expected a number from 0 to 3"},
    {TORCH "LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK is 2, but must be less than LOCAL_WORLD_SIZE (2)"},
    {TORCH "BURST_SECRET=123456789012345", "BURST_SECRET has 15 characters, expected at least 16"},
    {SLURM "BURST_SECRET=1", "BURST_SECRET has 1 characters, expected at least 16"},
    {SLURM "SLURM_STEP_NUM_NODES=0", "SLURM_STEP_NUM_NODES is '0', expected a number from 1 to 8"},
    {SLURM "SLURM_PROCID=8", "SLURM_PROCID is '8', expected a number from 0 to 7"},
    {SLURM "SLURM_LOCALID=", "SLURM_LOCALID is not set"},
    {SLURM "SLURM_JOB_ID=", "SLURM_JOB_ID is not set"},
    {SLURM "SLURM_STEP_NODELIST=n[1", "SLURM_STEP_NODELIST is 'n[1', expected a list of nodes"},
    {SLURM "SLURM_STEP_NODELIST=$(halt)", "SLURM_STEP_NODELIST is '$(halt)'"},
};

static void places_that_make_no_sense(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Place p;
        char text[1024] = "";
        set_environment(bad[i].environment);
        int status = place_find(&p, text, sizeof text);
        if (!strstr(text, bad[i].text))
            print_error("%s: '%s' is not in '%s'\n", bad[i].environment, bad[i].text, text);
        assert_int_equal(status, BURST_E_USAGE);
        assert_non_null(strstr(text, bad[i].text));
        assert_int_equal(place_rank(), 0);
    }
}

/* All ranks of a job, and no others, hold the same token. */
static void tokens(void **unused)
{
    (void)unused;
    static const char *const jobs[] = {
        TORCH, TORCH "MASTER_PORT=29501", TORCH "TORCHELASTIC_RUN_ID=a", TORCH "TORCHELASTIC_RUN_ID=b",
        SLURM, SLURM "SLURM_STEP_ID=1",   SLURM "SLURM_JOB_ID=78"};
    enum { JOBS = sizeof jobs / sizeof *jobs };
    Place p[JOBS], again;
    char text[1024];
    for (int i = 0; i < JOBS; i++) {
        set_environment(jobs[i]);
        assert_int_equal(place_find(&p[i], text, sizeof text), BURST_OK);
        setenv(p[i].launcher == BY_SLURM ? "SLURM_PROCID" : "RANK", "0", 1);
        assert_int_equal(place_find(&again, text, sizeof text), BURST_OK);
        assert_int_equal(again.rank, 0);
        assert_true(again.token == p[i].token && again.port == p[i].port);
        for (int j = 0; j < i; j++)
            assert_true(p[i].token != p[j].token);
    }
}

static void first_nodes(void **unused)
{
    (void)unused;
    static const char *const lists[][2] = {
        {"host[01-04,7]", "host01"},
        {"a", "a"},
        {"a,b[1-2]", "a"},
        {"n7,n[9-10]", "n7"},
        {"r[1-2]n[03,05]-x.dom", "r1n03-x.dom"},
        {"gpu-a-1.cluster,b", "gpu-a-1.cluster"},
        {"10.0.0.[1,7]", "10.0.0.1"},
        {"[2-3]", "2"},
        {"h[0100-0200]", "h0100"},
        {"", NULL},
        {",a", NULL},
        {"a[", NULL},
        {"a]", NULL},
        {"a[1[2]]", NULL},
        {"a b", NULL},
        {"a;b", NULL},
        {"longer-than-fits[1-2]", NULL},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char name[17];
        bool is_list = place_first_node(lists[i][0], name, sizeof name);
        if (is_list != (lists[i][1] != NULL))
            print_error("%s\n", lists[i][0]);
        assert_int_equal(is_list, lists[i][1] != NULL);
        if (is_list)
            assert_string_equal(name, lists[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places), cmocka_unit_test(places_that_make_no_sense), cmocka_unit_test(tokens),
        cmocka_unit_test(first_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
