/* main.c: the main of an emitted program: options, launch, and the training loop of one rank. */
#include "app/options.h"
#include "app/infer.h"
#include "app/outputs.h"
#include "base/blas.h"
#include "base/escape.h"
#include "checkpoint/checkpoint.h"
#include "core/context.h"
#include "core/region.h"
#include "core/signals.h"
#include "core/weights.h"
#include "data/data.h"
#include "files/files.h"
#include "files/output.h"
#include "host/launch/job.h"
#include "host/launch/place.h"
#include "report/evaluate.h"
#include "report/progress.h"
#include "safetensors/safetensors.h"
#include "timeline/timeline.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Run { const Options *o; } Run;

static int check_finite(BurstCtx *c, const BurstStep *r, int64_t step)
{
    if (isfinite(r->loss))
        return BURST_OK;
    return burst_fail(c, BURST_E_NUMERIC, "the loss of step %lld is %s", (long long)step,
                      isnan(r->loss) ? "not a number" : "infinite");
}

static bool checkpoint_due(const Options *o, int64_t done)
{
    return o->checkpoint && (done == o->steps || (o->every > 0 && done % o->every == 0));
}

/* Copies a device's weights to the host's, which are written. */
static int bring(BurstCtx *c, const BurstPlan *p, void *state, BurstWeights *w)
{
    return p->save ? p->save(c, state, w) : BURST_OK;
}

/* The outputs of a run. */
typedef struct Watch { Progress show; Timeline timeline; Folder folder; Export *export; } Watch;

/* ---- before the first step ---- */

/* A run that trains nothing only reads; otherwise the folder is locked before anything is read from it. */
static int open_folder(BurstCtx *c, const BurstPlan *p, const Options *o, BurstWeights *w, Folder *f,
                       int64_t *done)
{
    if (o->checkpoint && o->steps > 0)
        BURST_TRY(checkpoint_open(c, p, o->checkpoint, f));
    if (o->resume)
        BURST_TRY(checkpoint_read(c, p, w, o->checkpoint, o->resume_file, done));
    if (o->steps > 0 && *done > o->steps)
        return burst_fail(c, BURST_E_USAGE,
                          "this run resumes after step %lld, but --steps %lld ends earlier; use --steps %lld "
                          "or more, an earlier checkpoint (--resume FILE), or --steps 0 to skip training",
                          (long long)*done, (long long)o->steps, (long long)*done);
    return o->fresh || (o->resume && !o->resume_file) ? BURST_OK : checkpoint_begins(c, f, *done);
}

/* The number of checkpoints that the run writes. */
static int64_t writes_after(const Options *o, int64_t done)
{
    if (!o->checkpoint || done >= o->steps)
        return 0;
    return o->every > 0 ? (o->steps - 1) / o->every - done / o->every + 1 : 1;
}

/* All outputs reserve space together, as they need it at the end. */
static int try_outputs(BurstCtx *c, const BurstPlan *p, const Options *o, Watch *watch, int64_t done)
{
    int status = checkpoint_try(c, p, &watch->folder, done, writes_after(o, done), o->keep);
    if (status == BURST_OK && o->export_dir)
        status = all_agree(c, export_open(c, p, o->export_dir, o->weights, o->export_dtype, ST_SHARD_BYTES,
                                          done > 0, &watch->export));
    checkpoint_tried(c, &watch->folder);
    return status;
}

/* Weights from the newest checkpoint, else from a folder, else from the seed. */
static int begin(BurstCtx *c, const BurstPlan *p, const Options *o, BurstWeights *w, Watch *watch,
                 int64_t *done)
{
    BURST_TRY(outputs_compare(c, o));
    BURST_TRY(weights_take(c, p, w));
    BURST_TRY(open_folder(c, p, o, w, &watch->folder, done));
    if (*done < o->steps && !p->lengths)
        BURST_TRY(data_ready(c, p));
    BURST_TRY(evaluate_ready(c, p, o, *done));
    BURST_TRY(try_outputs(c, p, o, watch, *done));
    burst_doing(c, "initializing weights");
    if (*done)
        return BURST_OK;
    if (o->weights)
        return folder_read(c, p, w, o->weights, o->plan_masks, o->plan_rope);
    weights_fill(c, p, w);
    return BURST_OK;
}

/* Files of earlier runs do not change until every rank can begin. */
static int start(BurstCtx *c, const BurstPlan *p, const Options *o, Watch *watch, void *state,
                 BurstWeights *w, int64_t done)
{
    BURST_TRY(timeline_open(&watch->timeline, c, o, done));
    burst_doing(c, "allocating buffers");
    BURST_TRY(p->start(c, state, w));
    BURST_TRY(progress_open(&watch->show, c, p, o, done));
    BURST_TRY(burst_barrier(c, (BurstGroup){0, 1, c->world}));
    if (o->fresh)
        BURST_TRY(checkpoint_set_aside(c, &watch->folder, done));
    return progress_begin(&watch->show, c, o, done);
}

/* ---- what must not be lost ---- */

/* The first failure, kept while something else is tried. */
typedef struct Failure { int status; bool others; char doing[DOING_TEXT], text[ERROR_TEXT]; } Failure;

static Failure failure_of(const BurstCtx *c, int status)
{
    Failure f = {.status = status, .others = c->others_failed};
    memcpy(f.doing, c->slot->doing, sizeof f.doing);
    memcpy(f.text, c->error, sizeof f.text);
    return f;
}

static int restore_failure(BurstCtx *c, const Failure *f)
{
    c->others_failed = f->others;
    burst_doing(c, f->doing);
    return burst_fail(c, f->status, "%s", f->text);
}

/* Saves the state in a new folder that has space, and reports the original failure with that folder's name.
 * Only after a write failure that all ranks know about can they do so. */
static int rescue(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, int64_t done, int status)
{
    const char *temporary = getenv("TMPDIR"), *base[] = {".", temporary && *temporary ? temporary : "/tmp"};
    char path[PATH_MAX];
    Folder f;
    const Failure first = failure_of(c, status);
    for (size_t i = 0; i < sizeof base / sizeof *base; i++) {
        int saved = checkpoint_elsewhere(c, base[i], path, sizeof path, &f);
        if (saved == BURST_OK && (saved = checkpoint_write(c, p, w, &f, done, INT64_MAX)) != BURST_OK &&
            c->rank == 0)
            rmdir(path);
        if (saved != BURST_E_IO)
            break;
    }
    return restore_failure(c, &first);
}

static int save(BurstCtx *c, const BurstPlan *p, const Options *o, Folder *f, void *state, BurstWeights *w,
                int64_t done)
{
    BURST_TRY(bring(c, p, state, w));
    int status = checkpoint_write(c, p, w, f, done, o->keep);
    return status == BURST_E_IO ? rescue(c, p, w, done, status) : status;
}

/* kept: the state has been saved, or was not changed since it was read. */
static int export_weights(BurstCtx *c, const BurstPlan *p, const Options *o, Export *e, void *state,
                          BurstWeights *w, bool kept)
{
    if (!e)
        return BURST_OK;
    BURST_TRY(bring(c, p, state, w));
    int status = export_write(c, p, w, e);
    /* known to all ranks, which continue */
    const bool known = status == BURST_E_IO || status == BURST_E_USAGE;
    if (known && !kept && !export_is_whole(e))
        return rescue(c, p, w, o->steps, BURST_E_IO);
    BURST_TRY(status);
    if (c->rank == 0 && !o->quiet)
        print_shown(stdout, "wrote the weights to %s as %s", o->export_dir,
                    o->export_dtype == BURST_F32 ? "F32" : "BF16"),
            putchar('\n');
    return output_printed(c);
}

/* ---- training ---- */

/* Reports a step. The ranks do not wait for rank 0 to write it. */
static int report(BurstCtx *c, const BurstPlan *p, const Options *o, Watch *watch, int64_t step,
                  const BurstStep *result, double seconds)
{
    const int said = progress_step(&watch->show, c, p, o, step, result, seconds);
    if (said != BURST_OK && said != BURST_E_IO)
        return said;
    const int traced = timeline_end(&watch->timeline, c, p, o, step);
    return said != BURST_OK ? said : traced;
}

/* *at: steps done. A line that cannot be written ends the run, but only after saving what is due. */
static int train(BurstCtx *c, const BurstPlan *p, const Options *o, Watch *watch, void *state,
                 BurstWeights *w, int64_t *at)
{
    bool owed = o->evaluate;
    if (!owed)
        BURST_TRY(evaluate_owed(c, o, &watch->show, *at, &owed));
    if (owed)
        BURST_TRY(evaluate(c, p, o, &watch->show, state, w, *at));
    for (int64_t done = *at; done < o->steps; done++) {
        BurstStep result = {0};
        BURST_TRY(heed_termination(c));
        BURST_TRY(timeline_begin(&watch->timeline, c, done));
        double begin = burst_seconds();
        atomic_store(&c->slot->step, done + 1);
        burst_doing(c, "step");
        BURST_TRY(p->step(c, state, w, done, &result));
        BURST_TRY(check_finite(c, &result, done + 1));
        const int said = report(c, p, o, watch, done, &result, burst_seconds() - begin);
        if (said != BURST_OK && said != BURST_E_IO)
            return said;
        *at = done + 1;
        if (checkpoint_due(o, done + 1))
            BURST_TRY(save(c, p, o, &watch->folder, state, w, done + 1));
        BURST_TRY(said);
        if (evaluate_due(o, done + 1))
            BURST_TRY(evaluate(c, p, o, &watch->show, state, w, done + 1));
    }
    return BURST_OK;
}

/* After the last step the weights are exported even if its line or its checkpoint could not be written. */
static int train_and_export(BurstCtx *c, const BurstPlan *p, const Options *o, Watch *watch, void *state,
                            BurstWeights *w, int64_t began)
{
    int64_t done = began;
    const int status = train(c, p, o, watch, state, w, &done);
    const bool kept = began >= o->steps || (o->checkpoint && status == BURST_OK);
    if (status == BURST_OK)
        return export_weights(c, p, o, watch->export, state, w, kept);
    if (status != BURST_E_IO || done < o->steps)
        return status;
    const Failure first = failure_of(c, status);
    (void)export_weights(c, p, o, watch->export, state, w, kept);
    return restore_failure(c, &first);
}

static int run_with(BurstCtx *c, const BurstPlan *p, const Options *o, void *state)
{
    BurstWeights w;
    Watch watch = {.show.metrics.fd = -1, .folder.lock = -1};
    int64_t done = 0;
    int status = begin(c, p, o, &w, &watch, &done);
    if (status == BURST_OK && p->lengths)
        return infer(c, p, o, state, &w);
    if (status == BURST_OK)
        status = start(c, p, o, &watch, state, &w, done);
    if (status == BURST_OK)
        status = train_and_export(c, p, o, &watch, state, &w, done);
    checkpoint_close(&watch.folder);
    status = timeline_close(&watch.timeline, status);
    export_close(c, watch.export);
    return progress_close(&watch.show, c, status);
}

static int run_rank(BurstCtx *c, const BurstPlan *p, void *arg)
{
    const Run *run = arg;
    void *state = calloc(1, p->state_bytes ? p->state_bytes : 1);
    if (!state)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the program's %zu bytes of state",
                          p->state_bytes);
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
    t.data = o->files;
    t.data_files = o->file_count;
    t.evaluate = o->evaluation;
    t.evaluate_every = o->evaluate_every;
    t.evaluate_steps = o->evaluate_steps;
    return t;
}

/* A run that evaluates and does not train takes only the memory of that. */
static BurstPlan with_sizes(const BurstPlan *p, const Options *o)
{
    BurstPlan q = *p;
    if (o->steps > 0 || !o->evaluate || p->alone.arena_bytes == 0)
        return q;
    q.evaluates_alone = true;
    q.arena_bytes = p->alone.arena_bytes;
    q.offloaded_bytes = p->alone.offloaded_bytes;
    q.predicted_memory = p->alone.predicted_memory;
    return q;
}

/* Prints the help or the version. */
static int say(const BurstPlan *p, const Options *o, const char *program)
{
    if (o->help)
        options_help(p, program);
    if (o->version)
        print_shown(stdout, "%s, runtime interface %d", p->source, p->abi), putchar('\n');
    int reason = output_flush(stdout);
    if (!reason)
        return 0;
    say_line("cannot write to standard output: %s", strerror(reason));
    return exit_code(BURST_E_IO);
}

int burst_main(const BurstPlan *p, int argc, char **argv)
{
    Options o;
    char text[512];
    const int rank = place_rank();
    if (!burst_blas_fits(0, text, sizeof text)) {
        say_line("%s", text);
        _exit(exit_code(BURST_E_MEMORY)); /* exit() would wait for OpenBLAS */
    }
    int status = options_read(&o, p, argc, argv, text, sizeof text);
    if (status != BURST_OK) {
        say_line("%s", text); /* by every rank: mpirun kills the others as soon as one has failed */
        return exit_code(status);
    }
    if (o.help || o.version)
        return rank == 0 ? say(p, &o, argc > 0 ? argv[0] : "program") : 0;
    signal(SIGXFSZ, SIG_IGN); /* a file too large for this user is an error like a full disk */
    signal(SIGPIPE, SIG_IGN); /* so is a pipe without a reader */
    if ((o.transport && setenv("BURST_TRANSPORT", o.transport, 1) != 0) ||
        (o.share_gpus && setenv("BURST_SHARE_GPUS", "1", 1) != 0)) {
        fprintf(stderr, "burst: out of memory for an environment variable\n");
        return exit_code(BURST_E_MEMORY);
    }
    BurstTrain t = with_options(p, &o);
    const BurstPlan sized = with_sizes(p, &o);
    Run run = {&o};
    return job_run(&(Job){.plan = &sized,
                          .train = &t,
                          .timeout = o.timeout,
                          .body = run_rank,
                          .arg = &run,
                          .identify = identify});
}
