/* place.c: finds this process's rank in the environment of mpirun, torchrun or srun. The first that matches
 * counts:
 * 1. torchrun, always the innermost: TORCHELASTIC_RUN_ID
 * 2. mpirun, if the runtime was built with MPI. srun sets PMI's variables too, and it is unknown which MPI
 * can use them: if they number the processes as srun's own variables do, it is srun
 * 3. RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, set by hand or by another launcher
 * 4. srun, for a step of more than one task
 * Without any of them the program starts all ranks itself. It also does so inside a batch script, whose
 * environment mentions tasks although it is none, and as the only task of a step. */
#include "host/launch/place.h"

#include "base/mix.h"
#include "core/context.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS = RENDEZVOUS_PORTS, LAST_PORT = 65535, SLURM_PORTS = 20000, SLURM_PORT_RANGE = 10000 };
/* Steps that the user's srun did not create: batch script, interactive shell, extern. */
static const long long slurm_own_steps = 0xfffffff0;

typedef struct Reader { char *text; size_t size; } Reader; /* buffer for an error's text */

__attribute__((format(printf, 2, 3))) static int unusable(const Reader *r, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(r->text, r->size, format, ap);
    va_end(ap);
    return BURST_E_USAGE;
}

/* Returns NULL for an empty variable too. */
static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static int read_number(const Reader *r, const char *name, long long least, long long most, long long *value)
{
    const char *text = variable(name);
    char *end;
    errno = 0;
    *value = text ? strtoll(text, &end, 10) : 0;
    if (!text)
        return unusable(r, "%s is not set", name);
    if (end == text || *end || errno || *value < least || *value > most)
        return unusable(r, "%s is '%s', expected a number from %lld to %lld", name, text, least, most);
    return BURST_OK;
}

static uint64_t token_of(const char *text, uint64_t number)
{
    uint64_t h = mix64(number + 0x9e3779b97f4a7c15u);
    for (; text && *text; text++)
        h = mix64(h ^ (unsigned char)*text);
    return h;
}

/* BURST_PORT overrides the launcher's port. */
static int choose_port(Place *p, const Reader *r, int port)
{
    long long wanted;
    p->port = port;
    p->ports = PORTS;
    if (!variable("BURST_PORT"))
        return BURST_OK;
    BURST_TRY(read_number(r, "BURST_PORT", 1, LAST_PORT, &wanted));
    p->port = (int)wanted;
    p->ports = 1;
    return BURST_OK;
}

/* Refuses short secrets, which could be guessed from one recorded handshake. */
static int read_secret(Place *p, const Reader *r)
{
    const char *text = variable("BURST_SECRET");
    p->secret = text ? text : "";
    return !text || strlen(text) >= LEAST_SECRET ? BURST_OK
                                                 : unusable(r,
                                                            "BURST_SECRET has %zu characters, expected at "
                                                            "least %d (create one with openssl rand -hex 32)",
                                                            strlen(text), LEAST_SECRET);
}

static int set_master(Place *p, const Reader *r, const char *name, const char *text)
{
    if (!text)
        return unusable(r, "%s is not set; set it to the address of rank 0's host", name);
    if (strlen(text) >= sizeof p->master)
        return unusable(r, "%s is longer than %zu characters", name, sizeof p->master - 1);
    snprintf(p->master, sizeof p->master, "%s", text);
    return BURST_OK;
}

/* ---- torchrun ---- */
static const char *const torch_names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK"};

/* The variables that identify this process must be set together or not at all. MASTER_ADDR and MASTER_PORT
 * alone do not identify it: scripts export them for every process. */
static int torch_half_set(const Reader *r, bool *set)
{
    const char *have = NULL;
    for (size_t i = 0; i < sizeof torch_names / sizeof *torch_names && !have; i++)
        have = variable(torch_names[i]) ? torch_names[i] : NULL;
    *set = have != NULL;
    for (size_t i = 0; i < 2 && have; i++)
        if (!variable(torch_names[i]))
            return unusable(
                r,
                "%s is set (to '%s') but %s is not; set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for "
                "every rank, or unset them all to let the program start the ranks",
                have, variable(have), torch_names[i]);
    return BURST_OK;
}

/* torchrun's own store uses MASTER_PORT itself. */
static int torch_master(Place *p, const Reader *r)
{
    long long port;
    BURST_TRY(set_master(p, r, "MASTER_ADDR", variable("MASTER_ADDR")));
    BURST_TRY(read_number(r, "MASTER_PORT", 1, LAST_PORT, &port));
    p->token = token_of(variable("TORCHELASTIC_RUN_ID"), (uint64_t)port);
    BURST_TRY(read_secret(p, r));
    return choose_port(p, r, (int)(port + PORTS <= LAST_PORT ? port + 1 : port - PORTS));
}

static int torch_locals(Place *p, const Reader *r)
{
    long long locals;
    if (!variable("LOCAL_WORLD_SIZE"))
        return BURST_OK;
    BURST_TRY(read_number(r, "LOCAL_WORLD_SIZE", 1, p->world, &locals));
    if (p->local >= locals)
        return unusable(r, "LOCAL_RANK is %d, but must be less than LOCAL_WORLD_SIZE (%lld)", p->local,
                        locals);
    p->one_host = locals == p->world;
    return BURST_OK;
}

static int torch_place(Place *p, const Reader *r)
{
    long long world, rank, local = -1;
    BURST_TRY(read_number(r, "WORLD_SIZE", 1, INT32_MAX, &world));
    BURST_TRY(read_number(r, "RANK", 0, world - 1, &rank));
    if (variable("LOCAL_RANK"))
        BURST_TRY(read_number(r, "LOCAL_RANK", 0, world - 1, &local));
    *p = (Place){
        .launcher = BY_TORCHRUN, .rank = (int)rank, .world = (int)world, .local = (int)local, .secret = ""};
    BURST_TRY(torch_locals(p, r));
    return world > 1 ? torch_master(p, r) : BURST_OK;
}

/* ---- srun ---- */
static bool name_character(int c)
{
    return isalnum(c) || c == '-' || c == '.' || c == '_' || c == ':';
}

bool place_first_node(const char *list, char *name, size_t size)
{
    size_t n = 0;
    bool inside = false, passed = false; /* brackets; past their first entry */
    for (const char *at = list; *at && (inside || *at != ','); at++) {
        if (*at == '[' || *at == ']') {
            if (inside == (*at == '['))
                return false;
            inside = !inside;
            passed = false;
        } else if (inside && (passed || *at == '-' || *at == ',')) {
            passed = true;
        } else if (!name_character((unsigned char)*at) || n + 1 >= size) {
            return false;
        } else {
            name[n++] = *at;
        }
    }
    if (n < size)
        name[n] = 0;
    return n > 0 && !inside;
}

static long long slurm_tasks(void)
{
    const char *text = variable("SLURM_STEP_NUM_TASKS");
    if (!text)
        text = variable("SLURM_NTASKS");
    return text ? atoll(text) : 1;
}

static bool under_slurm(void)
{
    const char *step = variable("SLURM_STEP_ID");
    return step && variable("SLURM_PROCID") && atoll(step) < slurm_own_steps && slurm_tasks() > 1;
}

static int slurm_place(Place *p, const Reader *r)
{
    long long rank, local, job, step, nodes, world = slurm_tasks();
    const char *list = variable("SLURM_STEP_NODELIST"), *master = variable("MASTER_ADDR");
    char first[MASTER_TEXT];
    BURST_TRY(read_number(r, "SLURM_PROCID", 0, world - 1, &rank));
    BURST_TRY(read_number(r, "SLURM_LOCALID", 0, world - 1, &local));
    BURST_TRY(read_number(r, "SLURM_JOB_ID", 0, INT64_MAX, &job));
    BURST_TRY(read_number(r, "SLURM_STEP_ID", 0, INT64_MAX, &step));
    if (world > INT32_MAX)
        return unusable(r, "the Slurm step has too many tasks: %lld", world);
    if (!master && (!list || !place_first_node(list, first, sizeof first)))
        return unusable(r,
                        "SLURM_STEP_NODELIST is '%s', expected a list of nodes; or set MASTER_ADDR to the "
                        "address of rank 0's host",
                        list ? list : "");
    *p = (Place){.launcher = BY_SLURM,
                 .rank = (int)rank,
                 .world = (int)world,
                 .local = (int)local,
                 .secret = "",
                 .token = token_of("slurm", hash3((uint64_t)job, (uint64_t)step, 0))};
    if (variable("SLURM_STEP_NUM_NODES")) {
        BURST_TRY(read_number(r, "SLURM_STEP_NUM_NODES", 1, world, &nodes));
        p->one_host = nodes == 1;
    }
    BURST_TRY(read_secret(p, r));
    BURST_TRY(set_master(p, r, "MASTER_ADDR", master ? master : first));
    return choose_port(p, r, SLURM_PORTS + (int)(p->token % (SLURM_PORT_RANGE / PORTS)) * PORTS);
}

/* ---- all ---- */
static bool says(const char *name, long long number)
{
    const char *text = variable(name);
    return !text || atoll(text) == number;
}

/* Also for a step of one task. mpirun inside a step sets its own numbers, or starts the same processes. */
static bool pmi_is_srun(void)
{
    const char *step = variable("SLURM_STEP_ID"), *rank = variable("SLURM_PROCID");
    return step && rank && atoll(step) < slurm_own_steps && !variable("OMPI_COMM_WORLD_SIZE") &&
           says("PMI_RANK", atoll(rank)) && says("PMIX_RANK", atoll(rank)) && says("PMI_SIZE", slurm_tasks());
}

static bool mpi_place(Place *p)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                           {"PMI_SIZE", "PMI_RANK"},
                                           {"PMIX_RANK", "PMIX_RANK"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i][0])) {
            const char *text = getenv(names[i][1]);
            *p = (Place){.launcher = BY_MPI, .rank = text ? atoi(text) : 0, .local = -1};
            return true;
        }
    return false;
}

int place_find(Place *p, char *text, size_t size)
{
    const Reader r = {text, size};
    bool by_torch = false;
    *p = (Place){.launcher = ALONE, .local = -1};
    bool by_mpi = !variable("TORCHELASTIC_RUN_ID") && !pmi_is_srun() && mpi_place(p);
#ifdef BURST_MPI
    if (by_mpi)
        return BURST_OK;
#endif
    BURST_TRY(torch_half_set(&r, &by_torch));
    if (by_torch)
        return torch_place(p, &r);
    if (under_slurm())
        return slurm_place(p, &r);
    return !by_mpi ? BURST_OK
                   : unusable(&r, "started by mpirun, but the runtime was built without MPI; start the "
                                  "program directly, or with torchrun or srun");
}

int place_rank(void)
{
    Place p;
    char text[ERROR_TEXT];
    return place_find(&p, text, sizeof text) == BURST_OK ? p.rank : 0;
}
