/* step/passes/offload_optimizer.c: parameters and moments in host memory (ZeRO-Offload, arXiv 2101.06840).
 *
 * With `update host` the host's cores update them. A unit's gradients are downloaded when they are complete,
 * in the step's last sequence, while the next unit computes: at most two units' gradients are on the device
 * then. When all have arrived, since clipping needs their norm, the host's cores update one unit after the
 * other, and each unit's rounded parameters are uploaded while the next one is updated. Downloads and
 * uploads run on the stream of copies, one after the other; a download begins after the earlier work of the
 * weights' stream, which reduces the gradients.
 *
 * With `update device` the gradients stay on the device, which updates one unit after the other: a unit's
 * parameters and moments are fetched on the stream of copies while the previous unit's are written back on a
 * stream of their own, so that at most two units' are on the device. */
#include "step/step.h"

static int add_on_host(Step *s, const char *name, ValueKind kind, Element e)
{
    return step_add_value(s, (Value){.name = name,
                                     .kind = kind,
                                     .dim = {DIM_SHARD},
                                     .element = e,
                                     .index = INDEX_UNIT,
                                     .host = true,
                                     .gradient = -1});
}

static Op copy_of(OpKind k, int from, int to)
{
    Op o = op_make(k);
    o.when = WHEN_LAST;
    op_read(&o, from, 0);
    op_write(&o, to, 0, false);
    return o;
}

static Op wait_for(OpKind k, int value, int next)
{
    Op o = op_wait(k);
    o.when = WHEN_LAST;
    op_read(&o, value, next);
    return o;
}

/* Makes compute wait for the previous unit's download, so that its gradients' memory is free. */
static void download(Step *s, Block *b, int grad, int host)
{
    const int block = (int)(b - s->block);
    for (int g = step_groups(s, block); g > 0; g--) {
        Op both[] = {wait_for(OP_DOWNLOAD, host, -1), copy_of(OP_DOWNLOAD, grad, host)};
        for (int i = 0; i < countof(both); i++) {
            both[i].group = g;
            op_insert(s, b, step_group_end(s, b, g), both[i]);
        }
    }
    if (b != &s->block[BLOCK_HEAD])
        *vec_push(s->arena, &b->ops) = wait_for(OP_DOWNLOAD, host, -1);
    *vec_push(s->arena, &b->ops) = copy_of(OP_DOWNLOAD, grad, host);
}

/* Makes compute wait until the previous unit is written back while this one is fetched, so that the next
 * one's memory is free. */
static void update_on_device(Step *s)
{
    static const char *const there[] = {"param_fetched", "m_fetched", "v_fetched"};
    Block *b = &s->block[BLOCK_OPTIMIZER];
    Op update = b->ops.at[0], back[countof(there)];
    int n = 0, last = -1;
    b->ops.n = 0;
    for (int i = 0; n < countof(there); i++) {
        if (s->values.at[i].kind != VALUE_STATE)
            continue;
        const int fetched = step_add_value(s, (Value){.name = there[n],
                                                      .kind = VALUE_SHARD,
                                                      .dim = {DIM_SHARD},
                                                      .element = EL_FLOAT,
                                                      .index = INDEX_UNIT,
                                                      .gradient = -1});
        *vec_push(s->arena, &b->ops) = copy_of(OP_UPLOAD, i, fetched);
        back[n++] = copy_of(OP_WRITE_BACK, fetched, i);
        op_read(&update, fetched, 0);
        op_write(&update, fetched, 0, false);
        last = i;
    }
    *vec_push(s->arena, &b->ops) = wait_for(OP_WRITE_BACK, last, -1);
    *vec_push(s->arena, &b->ops) = update;
    for (int i = 0; i < n; i++)
        *vec_push(s->arena, &b->ops) = back[i];
    *vec_push(s->arena, &s->block[BLOCK_DONE].ops) = wait_for(OP_WRITE_BACK, last, 0);
}

static void update_on_host(Step *s)
{
    const int grad = step_value(s, "grad_shard"), param = step_value(s, step_param(s));
    const int host = add_on_host(s, "grad_host", VALUE_SHARD, s->values.at[grad].element),
              new = add_on_host(s, "param_new", VALUE_WEIGHT, EL_ACTIVATION);
    for (int b = BLOCK_HEAD; b <= BLOCK_EMBED_BACK; b++)
        if (s->block[b].ops.n && block_phase(b) != BLOCK_FORWARD_AGAIN)
            download(s, &s->block[b], grad, host);
    s->block[BLOCK_OPTIMIZER].ops.n = 0;
    *vec_push(s->arena, &s->block[BLOCK_OPTIMIZER].ops) = copy_of(OP_OPTIMIZER, host, new);
    *vec_push(s->arena, &s->block[BLOCK_OPTIMIZER].ops) = copy_of(OP_UPLOAD, new, param);
    *vec_push(s->arena, &s->block[BLOCK_DONE].ops) = wait_for(OP_UPLOAD, param, 0);
}

void step_optimizer(Step *s)
{
    if (s->choice.optimizer == OPTIMIZER_ON_DEVICE)
        return;
    for (int i = 0; i < s->values.n; i++)
        s->values.at[i].host |= s->values.at[i].kind == VALUE_STATE;
    (s->choice.optimizer == OPTIMIZER_FETCHED ? update_on_device : update_on_host)(s);
}
