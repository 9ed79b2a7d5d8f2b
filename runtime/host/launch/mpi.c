/* mpi.c: launch under mpirun, and messages between hosts. Ranks of one host share memory as without a
 * launcher. Each message is a header with its bytes and number, so that a wrong size is reported and not
 * truncated, and the data in pieces of at most 1 GiB (MPI counts in int). */
#ifdef BURST_MPI
#include "base/plural.h"
#include "core/context.h"
#include "core/signals.h"
#include "host/launch/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 256, PIECE = 1 << 30, GRACE_US = 300000, NAP_US = 200 };

typedef struct Parcel {
    uint64_t header[2]; /* bytes, sequence */
    float *landing;     /* of a receive that adds */
    MPI_Request *request; /* of the header, then the pieces */
    int requests, room;
} Parcel;

static int mpi_failed(BurstCtx *c, const Op *op, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    return burst_fail(c, BURST_E_PEER, "message %llu of rank %d %s rank %d on channel %d: %s",
                      (unsigned long long)op->sequence, c->rank, op->lane->sending ? "to" : "from",
                      op->lane->peer, op->lane->channel, text);
}

static Parcel *parcel_of(Op *op, int requests)
{
    Parcel *p = op->remote ? op->remote : (op->remote = calloc(1, sizeof *p));
    if (p && p->room < requests) {
        MPI_Request *grown = realloc(p->request, (size_t)requests * sizeof *grown);
        if (!grown)
            return NULL;
        p->request = grown;
        p->room = requests;
    }
    if (p)
        p->requests = requests;
    return p;
}

static void parcel_release(Op *op)
{
    Parcel *p = op->remote;
    free(p->landing);
    free(p->request);
    free(p);
    op->remote = NULL;
}

static int post_piece(const Op *op, void *data, int bytes, int tag, MPI_Request *request)
{
    return op->lane->sending ? MPI_Isend(data, bytes, MPI_BYTE, op->lane->peer, tag, MPI_COMM_WORLD, request)
                             : MPI_Irecv(data, bytes, MPI_BYTE, op->lane->peer, tag, MPI_COMM_WORLD, request);
}

static int remote_start(BurstCtx *c, Op *op)
{
    int pieces = (int)((op->bytes + PIECE - 1) / PIECE), tag = 2 * op->lane->channel;
    Parcel *p = parcel_of(op, 1 + pieces);
    if (!p || (op->add && !(p->landing = realloc(p->landing, op->bytes + 1))))
        return burst_fail(c, BURST_E_MEMORY, "out of memory for a message of %llu bytes",
                          (unsigned long long)op->bytes);
    char *data = op->add ? (char *)p->landing : op->data;
    p->header[0] = op->bytes;
    p->header[1] = op->sequence;
    int code = post_piece(op, p->header, sizeof p->header, tag, &p->request[0]);
    for (int i = 0; i < pieces && code == MPI_SUCCESS; i++) {
        uint64_t at = (uint64_t)i * PIECE, left = op->bytes - at;
        code = post_piece(op, data + at, (int)(left < PIECE ? left : PIECE), tag + 1, &p->request[1 + i]);
    }
    return code == MPI_SUCCESS ? BURST_OK : mpi_failed(c, op, code);
}

static int check_header(BurstCtx *c, const Op *op, const Parcel *p)
{
    if (op->lane->sending || (p->header[0] == op->bytes && p->header[1] == op->sequence))
        return BURST_OK;
    return message_mismatch(c, op, p->header[0]);
}

static void add_landed(const Op *op, const Parcel *p)
{
    float *to = op->data;
    for (uint64_t i = 0; i < op->bytes / sizeof *to; i++)
        to[i] += p->landing[i];
}

/* The header comes first: pieces may be tested only if its bytes are as expected. */
static int remote_test(BurstCtx *c, Op *op, bool *done)
{
    Parcel *p = op->remote;
    int flag = 0, code = MPI_Test(&p->request[0], &flag, MPI_STATUS_IGNORE);
    *done = false;
    if (code == MPI_SUCCESS && flag) {
        BURST_TRY(check_header(c, op, p));
        code = MPI_Testall(p->requests, p->request, &flag, MPI_STATUSES_IGNORE);
    }
    if (code != MPI_SUCCESS)
        return mpi_failed(c, op, code);
    *done = flag;
    if (*done && op->add)
        add_landed(op, p);
    return BURST_OK;
}

static const Remote over_mpi = {.start = remote_start, .test = remote_test, .release = parcel_release};

/* ---- launch ---- */
static void finalize(void)
{
    int done = 0;
    MPI_Finalized(&done);
    if (!done)
        MPI_Finalize();
}

static void initialize(void)
{
    int done = 0;
    MPI_Initialized(&done);
    if (done)
        return;
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    atexit(finalize);
    catch_termination();
}

/* The first rank of the host makes the region, and the others open its descriptor through /proc. If any of
 * them may not (separate containers), returns false on all. */
static bool share(MPI_Comm host, Region *r, size_t arena_bytes)
{
    int locals, local, ok = 1, all;
    long name[2] = {0, -1};
    MPI_Comm_size(host, &locals);
    MPI_Comm_rank(host, &local);
    *r = (Region){.fd = -1};
    if (local == 0) {
        ok = region_make(r, locals, arena_bytes) == 0;
        name[0] = getpid();
        name[1] = r->fd;
    }
    MPI_Bcast(name, 2, MPI_LONG, 0, host);
    if (local != 0 && name[1] >= 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%ld/fd/%ld", name[0], name[1]);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        ok = fd >= 0 && region_join(r, fd, locals, arena_bytes) == 0;
    }
    MPI_Allreduce(&ok, &all, 1, MPI_INT, MPI_MIN, host);
    if (!all)
        region_free(r);
    return all;
}

/* local_of[rank]: index in the communicator of this host, -1 elsewhere. */
static int *find_locals(MPI_Comm host, int world)
{
    MPI_Group all, here;
    int *rank = malloc((size_t)world * sizeof *rank), *local = malloc((size_t)world * sizeof *local);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Comm_group(host, &here);
    for (int i = 0; rank && local && i < world; i++)
        rank[i] = i;
    if (rank && local)
        MPI_Group_translate_ranks(all, world, rank, here, local);
    for (int i = 0; rank && local && i < world; i++)
        if (local[i] == MPI_UNDEFINED)
            local[i] = -1;
    MPI_Group_free(&all);
    MPI_Group_free(&here);
    free(rank);
    return local;
}

/* Ends the whole job. The rank of this host that failed first reports; the others give it time. */
static void end_all(const Region *r, int status, bool first)
{
    if (first)
        say_line("%s", region_head(r)->text);
    else
        usleep(GRACE_US);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, exit_code(status));
}

static int run_here(const Job *job, MPI_Comm host, Region *r)
{
    int rank, *local_of = find_locals(host, job->plan->world);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!local_of) {
        fprintf(stderr, "burst: rank %d is out of memory for the list of ranks\n", rank);
        MPI_Abort(MPI_COMM_WORLD, exit_code(BURST_E_MEMORY));
        return exit_code(BURST_E_MEMORY);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    bool first = false;
    int status = rank_run(job, r, rank, local_of, &over_mpi, &first);
    if (status != BURST_OK)
        end_all(r, status, first);
    MPI_Barrier(MPI_COMM_WORLD); /* no arena may be freed before all have read from it */
    free(local_of);
    return exit_code(status);
}

/* MPI_Wait with a deadline: a rank may never arrive. */
static bool await_all(MPI_Request *request, double deadline)
{
    int done = 0;
    while (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done && burst_seconds() < deadline)
        usleep(NAP_US);
    return done;
}

/* On rank 0, which reports the difference. */
static int compare_all(const Job *job, char *all, int size)
{
    char text[ERROR_TEXT];
    const int status = identities_equal(all, size, text, sizeof text)
                           ? identity_plan_fits(job, size, text, sizeof text)
                           : BURST_E_USAGE;
    if (status != BURST_OK)
        say_line("%s", text);
    return status;
}

/* Whether all ranks run the same plan. Called before anything else is allocated, since the plan's sizes may
 * differ. */
static int meet(const Job *job, int rank, int size)
{
    const double deadline = burst_seconds() + job->timeout;
    Identity *mine = malloc(sizeof *mine);
    char *all = rank == 0 ? malloc((size_t)size * IDENTITY_TEXT) : NULL;
    MPI_Request request;
    int status = BURST_E_MEMORY;
    if (mine && (all || rank > 0)) {
        identity_make(mine, job);
        MPI_Igather(mine->text, IDENTITY_TEXT, MPI_BYTE, all, IDENTITY_TEXT, MPI_BYTE, 0, MPI_COMM_WORLD,
                    &request);
        bool met = await_all(&request, deadline);
        status = met && rank == 0 ? compare_all(job, all, size) : BURST_OK;
        if (met)
            MPI_Ibcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
        if (met && await_all(&request, deadline))
            return free(mine), free(all), status;
        say_line("rank %d timed out waiting for all %d rank%s to start, after %.3g s (see --timeout)", rank,
                 size, plural(size), job->timeout);
        status = BURST_E_PEER;
    } else {
        say_line("rank %d is out of memory for a list of %d rank%s", rank, size, plural(size));
    }
    MPI_Abort(MPI_COMM_WORLD, exit_code(status));
    return status;
}

int mpi_job_run(const Job *job)
{
    int rank, size, code = exit_code(BURST_E_MEMORY);
    MPI_Comm host;
    Region r;
    initialize();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int status = meet(job, rank, size);
    if (status != BURST_OK)
        return exit_code(status);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
    if (share(host, &r, job->plan->arena_bytes)) {
        code = run_here(job, host, &r);
    } else if (share(MPI_COMM_SELF, &r, job->plan->arena_bytes)) {
        if (rank == 0)
            fprintf(stderr,
                    "burst: ranks of one host cannot share memory here; using MPI for all messages\n");
        code = run_here(job, MPI_COMM_SELF, &r);
    } else {
        say_line("rank %d cannot allocate %zu bytes of shared memory: %s", rank, job->plan->arena_bytes,
                 strerror(errno));
        MPI_Abort(MPI_COMM_WORLD, code);
    }
    region_free(&r);
    MPI_Comm_free(&host);
    return code;
}
#else
typedef int burst_built_without_mpi; /* ISO C requires a declaration in every file */
#endif
