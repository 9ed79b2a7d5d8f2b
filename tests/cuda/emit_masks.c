/* emit_masks.c: emit_masks CLUSTER.topo MASKS.burst STOCK writes to standard output what mask_emit_cuda
 * makes of each layer's mask, and TEST_MASKS, a list of their numbers; of selections also what they may
 * choose among, and TEST_OPEN, a list of these numbers.
 */
#include "tools/tools.h"

#include <string.h>

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    const FrontEnd in = {.target = &targets[TARGET_C],
                         .topo_path = argv[1],
                         .model_path = argv[2],
                         .stock_dir = argv[3]};
    const Program *p = front_end(a, d, &in);
    diags_print(d, stderr);
    if (!p)
        return 1;
    Text out = {0};
    const char *file = strrchr(argv[2], '/');
    text_printf(&out, "/* Made by emit_masks from %s; `ninja cuda_masks_update` makes it anew. */\n",
                file ? file + 1 : argv[2]);
    for (int i = 0; i < p->mask_count; i++)
        mask_emit_cuda(p, i, &out);
    text_add(&out, "#define TEST_MASKS(X)");
    for (int i = 0; i < p->mask_count; i++)
        text_printf(&out, " X(%d)", i);
    text_add(&out, "\n");
    for (int i = 0; i < p->selection_count; i++) {
        const Program with = mask_with_open(a, p, i);
        mask_emit_cuda(&with, p->mask_count + i, &out);
    }
    text_add(&out, p->selection_count ? "#define TEST_OPEN(X)" : "");
    for (int i = 0; i < p->selection_count; i++)
        text_printf(&out, " X(%d)", p->mask_count + i);
    text_add(&out, p->selection_count ? "\n" : "");
    fputs(out.at, stdout);
    text_free(&out);
    arena_free(a);
    return 0;
}
