/* step/passes/latents.c: latents travel instead of keys and values (`travel latents`; multi-head latent
 * attention, DeepSeek-V2, arXiv 2405.04434).
 *
 * The model's rows do not change: a rank computes its own keys and values, and attends them. In addition,
 * attention reads the latent and the weights of both products, and sends its neighbours the latent and the
 * shared, rotated elements of a key: 576 numbers per token in DeepSeek-V2-Lite instead of 5120. From what
 * arrives it rebuilds keys and values of all heads, once. In backward it converts their gradients to
 * gradients of the latent and the shared elements, which travel on to the owner, and adds to the weights'
 * gradients. At the owner the latent's are the first part of its gradient, and the shared elements' are
 * added to the first head's key gradient, which OP_JOIN_BACK then sums over heads. */
#include "step/step.h"

#include <string.h>

/* The first of two consecutive tensors: of keys' own elements, and of values. */
static const char weights[] = "self_attn.k_b_proj.weight";

static void read_latents(Block *b)
{
    Operand latent = {-1, 0};
    for (int i = 0; i < b->ops.n; i++) {
        Op *o = &b->ops.at[i];
        if (o->kind == OP_LINEAR && !strcmp(o->weight, weights))
            latent = o->read[0]; /* of all tensor ranks, if there are several */
        if (o->kind != OP_ATTENTION)
            continue;
        op_read(o, latent.value, latent.next);
        o->weight = weights;
        o->tensors = 2;
    }
}

void step_latents(Step *s)
{
    for (int k = 0; k < step_kinds(s) && s->choice.latents; k++)
        read_latents(&s->block[BLOCK_FORWARD + k]);
}
