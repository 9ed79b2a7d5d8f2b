/* forms.h: the forms of --emit that are printed from a plan. */
#ifndef FORMS_H
#define FORMS_H

#include "tools/pictures/pictures.h"

/* draw: as a picture; NULL: as text alone. of_draft: also printed where a proof refuses the plan. */
typedef struct Form {
    const char *name;
    void (*print)(const Found *f, Text *out);
    DrawForm *draw;
    bool of_draft;
} Form;
const Form *find_form(const char *name); /* NULL: none */
const char *form_name(int i); /* NULL: there are no more */

#endif
