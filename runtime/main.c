/* main.c: the main of an emitted program: options, launch, and the training loop of one rank. */
#include "checkpoint.h"
#include "host/place.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "safetensors.h"
#include "timeline.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Run { const Options *o; } Run;

static int check_finite(BurstCtx *c, const BurstStep *r, int64_t step)
{
    if (isfinite(r->loss))
        return BURST_OK;
    return burst_fail(c, BURST_E_NUMERIC, "the loss of step %lld is %s", (long long)step, isnan(r->loss) ? "not a number" : "infinite");
}

static bool checkpoint_due(const Options *o, int64_t done)
{
    return o->checkpoint && (done == o->steps || (o->every > 0 && done % o->every == 0));
}

static int save(BurstCtx *c, const BurstPlan *p, const Options *o, Folder *f, void *state, BurstWeights *w, int64_t done)
{
    if (p->save)
        BURST_TRY(p->save(c, state, w));
    return checkpoint_write(c, p, w, f, done, o->keep);
}

/* A folder that cannot be written fails before the training, not after it. */
static int check_export(BurstCtx *c, const Options *o)
{
    return o->export_dir && c->rank == 0 ? folder_free(c, o->export_dir) : BURST_OK;
}

static int export_weights(BurstCtx *c, const BurstPlan *p, const Options *o, void *state, BurstWeights *w)
{
    if (!o->export_dir)
        return BURST_OK;
    if (p->save)
        BURST_TRY(p->save(c, state, w));
    BURST_TRY(folder_write(c, p, w, o->export_dir, o->export_dtype, ST_SHARD_BYTES));
    if (c->rank == 0 && !o->quiet)
        printf("wrote %s: weights as %s\n", o->export_dir, o->export_dtype == BURST_F32 ? "F32" : "BF16");
    return output_printed(c);
}

/* The folder is this run's before anything is read from it; a run that trains nothing only reads. */
static int open_folder(BurstCtx *c, const BurstPlan *p, const Options *o, BurstWeights *w, Folder *f, int64_t *done)
{
    if (o->checkpoint && o->steps > 0)
        BURST_TRY(checkpoint_open(c, p, o->checkpoint, f));
    if (o->resume)
        BURST_TRY(checkpoint_read(c, p, w, o->checkpoint, o->resume_file, done));
    return o->fresh || (o->resume && !o->resume_file) ? BURST_OK : checkpoint_begins(c, f, *done);
}

/* Weights from the newest checkpoint, else from a folder, else from the seed. */
static int begin(BurstCtx *c, const BurstPlan *p, const Options *o, BurstWeights *w, Folder *f, int64_t *done)
{
    BURST_TRY(weights_take(c, p, w));
    BURST_TRY(open_folder(c, p, o, w, f, done));
    burst_doing(c, "making the weights");
    if (*done)
        return BURST_OK;
    if (o->weights)
        return folder_read(c, p, w, o->weights);
    weights_fill(c, p, w);
    return BURST_OK;
}

/* What a run writes to. */
typedef struct Watch { Progress *show; Timeline *timeline; Folder *folder; } Watch;

/* done: steps behind us. */
static int train(BurstCtx *c, const BurstPlan *p, const Options *o, Watch watch, void *state, BurstWeights *w, int64_t done)
{
    for (; done < o->steps; done++) {
        BurstStep result = {0};
        BURST_TRY(heed_termination(c));
        BURST_TRY(timeline_begin(watch.timeline, c, done));
        double begin = burst_seconds();
        atomic_store(&c->slot->step, done);
        burst_doing(c, "step");
        BURST_TRY(p->step(c, state, w, done, &result));
        BURST_TRY(check_finite(c, &result, done));
        BURST_TRY(progress_step(watch.show, c, p, o, done, &result, burst_seconds() - begin));
        BURST_TRY(timeline_end(watch.timeline, c, p, o, done));
        if (checkpoint_due(o, done + 1))
            BURST_TRY(save(c, p, o, watch.folder, state, w, done + 1));
    }
    return BURST_OK;
}

static int start_and_train(BurstCtx *c, const BurstPlan *p, const Options *o, Watch watch, void *state, BurstWeights *w,
                           int64_t done)
{
    burst_doing(c, "making the buffers");
    BURST_TRY(p->start(c, state, w));
    BURST_TRY(progress_open(watch.show, c, p, o, done));
    if (o->fresh)
        BURST_TRY(checkpoint_set_aside(c, watch.folder, done));
    return train(c, p, o, watch, state, w, done);
}

static int run_with(BurstCtx *c, const BurstPlan *p, const Options *o, void *state)
{
    BurstWeights w;
    Progress show = {0};
    Timeline timeline = {0};
    Folder folder = {.lock = -1};
    int64_t done = 0;
    BURST_TRY(check_export(c, o));
    int status = begin(c, p, o, &w, &folder, &done);
    if (status == BURST_OK)
        status = timeline_open(&timeline, c, o, done);
    if (status == BURST_OK)
        status = start_and_train(c, p, o, (Watch){&show, &timeline, &folder}, state, &w, done);
    checkpoint_close(&folder);
    status = timeline_close(&timeline, status);
    if (status == BURST_OK)
        status = export_weights(c, p, o, state, &w);
    return progress_close(&show, c, status);
}

static int run_rank(BurstCtx *c, const BurstPlan *p, void *arg)
{
    const Run *run = arg;
    void *state = calloc(1, p->state_bytes ? p->state_bytes : 1);
    if (!state)
        return burst_fail(c, BURST_E_MEMORY, "no memory for the program's %zu bytes of state", p->state_bytes);
    int status = run_with(c, p, run->o, state);
    free(state);
    return status;
}

static void identify(struct Identity *id, const void *arg)
{
    options_identify(id, ((const Run *)arg)->o);
}

static BurstTrain with_options(const BurstPlan *p, const Options *o)
{
    BurstTrain t = p->train;
    t.seed = o->seed;
    t.data = o->data;
    t.bytes = o->bytes;
    return t;
}

/* The help, or the version. */
static int say(const BurstPlan *p, const Options *o, const char *program)
{
    if (o->help)
        options_help(p, program);
    if (o->version)
        printf("%s, runtime interface %d\n", p->source, p->abi);
    int reason = output_flush(stdout);
    if (!reason)
        return 0;
    fprintf(stderr, "burst: cannot write to standard output: %s\n", strerror(reason));
    return exit_code(BURST_E_IO);
}

int burst_main(const BurstPlan *p, int argc, char **argv)
{
    Options o;
    char text[512];
    const int rank = place_rank();
    int status = options_read(&o, p, argc, argv, text, sizeof text);
    if (status != BURST_OK) {
        fprintf(stderr, "burst: %s\n", text); /* by every rank: mpirun kills the others as soon as one has failed */
        return exit_code(status);
    }
    if (o.help || o.version)
        return rank == 0 ? say(p, &o, argc > 0 ? argv[0] : "program") : 0;
    signal(SIGXFSZ, SIG_IGN); /* a file too large for this user is an error like a full disk */
    if ((o.transport && setenv("BURST_TRANSPORT", o.transport, 1) != 0) ||
        (o.share_gpus && setenv("BURST_SHARE_GPUS", "1", 1) != 0)) {
        fprintf(stderr, "burst: no memory for an environment variable\n");
        return exit_code(BURST_E_MEMORY);
    }
    BurstTrain t = with_options(p, &o);
    Run run = {&o};
    return job_run(&(Job){.plan = p, .train = &t, .timeout = o.timeout, .body = run_rank, .arg = &run, .identify = identify});
}
