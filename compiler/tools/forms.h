/* forms.h: the forms of --emit that are printed from a plan. */
#ifndef FORMS_H
#define FORMS_H

#include "tools/pictures/pictures.h"

/* draw: prints a picture; NULL: there is only text. of_draft: also printed if a proof refuses the plan. */
typedef struct Form {
    const char *name;
    void (*print)(const Found *f, Text *out);
    DrawForm *draw;
    bool of_draft;
} Form;
const Form *find_form(const char *name); /* NULL: none */
const char *form_name(int i); /* NULL: no more */

#endif
