/* import.c: `burstc import FOLDER`: what safetensors/import.c writes, or an error for each thing that no
 * model can say. */
#include "import/import.h"

#include "families/families.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct Told {
    Diags *diags;
    const char *folder;
} Told;

static void tell(void *to, const char *text)
{
    const Told *t = to;
    diag_error(t->diags, (Span){0}, "'%s' cannot be imported: %s", t->folder, text);
}

bool import_folder(Diags *d, const char *folder, Text *out)
{
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    Told told = {d, folder};
    if (!to)
        tell(&told, "no memory");
    else
        folder_import(folder, to, tell, &told);
    if (to && fclose(to) != 0)
        tell(&told, "no memory");
    else if (to)
        text_add_n(out, text, n);
    free(text);
    return diags_errors(d) == 0;
}
