/* emit/library.c: a library's description: its layout, its calls' arguments, and the table for the runtime
 * (burst_library.h). */
#include "emit/internal.h"

#include <inttypes.h>

const char *library_layout(const Emit *e)
{
    static const int acts[] = {SETTING_SCHEDULE, SETTING_CONTEXT,   SETTING_HEADS,  SETTING_PLACEMENT,
                               SETTING_TRAVEL,   SETTING_PARTITION, SETTING_SHARES, SETTING_RANGES};
    const char *text = "";
    for (int i = 0; i < countof(acts); i++) {
        const SettingRecord *s = settings[acts[i]];
        const char *value = s->text ? s->text(e->arena, &e->draft->choice) : NULL;
        if (value)
            text = arena_printf(e->arena, "%s%s %s; ", text, s->form->name, value);
    }
    return arena_printf(e->arena, "layout { %s}", text);
}

/* Bytes of a batch's arrays, each rounded up to 64 bytes. */
static size_t batch_bytes(const Draft *d)
{
    size_t bytes = 0;
    for (int i = 0; i < d->memory.n; i++)
        if (d->memory.at[i].at < 0 && !d->memory.at[i].device)
            bytes += d->memory.at[i].bytes;
    return bytes;
}

static size_t device_bytes(const Draft *d)
{
    size_t bytes = 0;
    for (int i = 0; i < d->memory.n; i++)
        if (d->memory.at[i].at < 0 && d->memory.at[i].device)
            bytes += d->memory.at[i].bytes;
    return bytes;
}

void emit_library_sizes(Emit *e)
{
    const Draft *d = e->draft;
    text_printf(e->out,
                " * a rank: %" PRId64
                " bytes of workspace for a call, %zu for each batch on the host, %zu on "
                "the device\n",
                d->memory.scratch, batch_bytes(d), device_bytes(d));
}

/* The most messages in flight: for each slot and each of the rank's own chunks, its parts on every channel
 * and one that arrives; and an exchange's. */
static int requests(const Draft *d)
{
    const int channels = attentions_channels(&d->attention), ranks = d->choice.ranks;
    int slots = TENSOR_COUNT * (1 + choice_pieces(&d->choice));
    for (int k = 0; k < 2 * d->attention.n; k++)
        for (int p = 0; p < d->attention.at[k / 2].way[k % 2]->pools; p++)
            slots += d->attention.at[k / 2].way[k % 2]->pool[p].slots;
    return slots * 4 * ((channels ? channels : 1) + 1) + 2 * ranks;
}

/* Members in the order of BurstEmitted. */
void emit_library_table(Emit *e, const char *layout, uint64_t hash)
{
    const Draft *d = e->draft;
    const Program *p = d->program;
    const char *const member[] = {
        "BURST_RT_ABI",
        arena_printf(e->arena, "\"%s\", %s", p->target->name, layout),
        arena_printf(e->arena, "UINT64_C(0x%016" PRIx64 ")", hash),
        "PLAN_GROUP, PLAN_ALL_HEADS, PLAN_ALL_KV_HEADS, PLAN_HEAD_DIM, PLAN_VALUE_DIM",
        arena_printf(e->arena, "%d, PLAN_SEQUENCE, PLAN_MASKS, PLAN_TABLES", p->target->activation_bytes),
        "plan_mask_names, plan_table_names",
        arena_printf(e->arena, "sizeof(PlanState), %zu, %" PRId64 ", %zu, %d", batch_bytes(d),
                     d->memory.scratch, device_bytes(d), requests(d)),
        "plan_tokens, plan_position, plan_chunk_of",
        e->draft->program->target->device_memory ? "plan_library_open, plan_library_close" : "NULL, NULL",
        "plan_library_start",
        e->draft->program->target->device_memory ? "plan_library_load" : "NULL",
        "plan_scratch, plan_library_forward, plan_library_backward",
    };
    text_add(e->out, "const BurstEmitted burst_emitted = {\n");
    for (int i = 0; i < countof(member); i++)
        text_printf(e->out, "    %s,\n", member[i]);
    text_add(e->out, "};\n");
}
