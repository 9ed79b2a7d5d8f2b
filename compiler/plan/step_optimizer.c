/* step_optimizer.c: the optimizer on the host (ZeRO-Offload, arXiv 2101.06840).
 *
 * Parameters and moments lie in the host's memory alone. A unit's gradients are downloaded when they are complete, in the step's last
 * sequence, while the unit after it computes: no more than two units' are on the device then. When all are there, since clipping needs
 * the norm of all of them, the host's cores update one unit after the other, and each is uploaded, as products read it, while the next
 * one is updated. Downloads and uploads run on the stream of copies, one after the other; a download begins after what the weights'
 * stream was given before it, which reduces the gradients.
 */
#include "step.h"

static int add_on_host(Step *s, const char *name, ValueKind kind, Element e)
{
    return step_add_value(s, (Value){.name = name, .kind = kind, .dim = {DIM_SHARD}, .element = e, .index = INDEX_UNIT, .host = true, .gradient = -1});
}

static Op copy_of(OpKind k, int from, int to)
{
    Op o = op_make(k);
    o.when = WHEN_LAST;
    op_read(&o, from, 0);
    op_write(&o, to, 0, false);
    return o;
}

static Op wait_for(int value, int next)
{
    Op o = op_make(OP_WAIT);
    o.when = WHEN_LAST;
    op_read(&o, value, next);
    return o;
}

/* Compute waits for the download of the visit before, so that its gradients' memory is free. */
static void download(Step *s, Block *b, int grad, int host)
{
    if (b != &s->block[BLOCK_HEAD])
        *vec_push(s->arena, &b->ops) = wait_for(host, -1);
    *vec_push(s->arena, &b->ops) = copy_of(OP_DOWNLOAD, grad, host);
}

void step_optimizer(Step *s)
{
    if (!s->host_optimizer)
        return;
    const int grad = step_value(s, "grad_shard"), param = step_value(s, step_param(s));
    const int host = add_on_host(s, "grad_host", VALUE_SHARD, s->values.at[grad].element), new = add_on_host(s, "param_new", VALUE_WEIGHT, EL_ACTIVATION);
    for (int i = 0; i < s->values.n; i++)
        s->values.at[i].host |= s->values.at[i].kind == VALUE_STATE;
    for (int b = BLOCK_HEAD; b <= BLOCK_EMBED_BACK; b++)
        if (s->block[b].ops.n)
            download(s, &s->block[b], grad, host);
    s->block[BLOCK_OPTIMIZER].ops.n = 0;
    *vec_push(s->arena, &s->block[BLOCK_OPTIMIZER].ops) = copy_of(OP_OPTIMIZER, host, new);
    *vec_push(s->arena, &s->block[BLOCK_OPTIMIZER].ops) = copy_of(OP_UPLOAD, new, param);
    *vec_push(s->arena, &s->block[BLOCK_DONE].ops) = wait_for(param, 0);
}
