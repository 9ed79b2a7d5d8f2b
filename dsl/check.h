/* check.h: what the parts of the checker share. Only dsl/ reads this. */
#ifndef BURST_CHECK_H
#define BURST_CHECK_H

#include "ast.h"

/* A device or link as declared: what a cluster takes from its devices where it says nothing itself. */
typedef struct DeviceDecl {
    Device device;
    double link;
    bool stock;
} DeviceDecl;
typedef struct NicDecl {
    Nic nic;
    bool stock;
} NicDecl;
typedef struct MaskDecl {
    const char *name;
    const Ast *ast;
    bool stock;
    enum { MASK_NEW, MASK_OPEN, MASK_DONE } state; /* of following its calls */
    bool broken; /* already reported: uses of it say nothing more */
    bool used;   /* by a layer */
} MaskDecl;
typedef struct TableDecl {
    Table table;
    bool stock;
    int number; /* in Program.tables, -1: not used yet */
} TableDecl;
/* A model or cluster file that was read; open while its declarations are being followed: importing it
 * again is a cycle.
 */
typedef struct LoadedFile {
    uint64_t device, inode;
    const char *path;
    bool open;
    Span import;
    AstList items;
} LoadedFile;

/* A file is one Pattern however many masks read it; NULL: reported already. */
typedef struct LoadedPattern {
    const Pattern *pattern;
} LoadedPattern;

/* ---- names.c ---- */
typedef struct NamedValue {
    const char *name;
    void *value;
} NamedValue;
typedef struct NameMap {
    NamedValue *entry;
    int n, size;
} NameMap; /* open addressing, a power of two */
void *name_find(const NameMap *m, const char *name); /* NULL: not there */
/* the name is not there yet, the value not NULL */
void name_add(Arena *a, NameMap *m, const char *name, void *value);

/* `near for window(4Ki)`: mask NULL: of the other layers. schedule NULL where travel is given, or auto. */
typedef struct LayerEntry {
    bool is_travel;
    const char *schedule;
    Setting travel;
    const Ast *mask;
    Span span;
} LayerEntry;

typedef struct Checker {
    Arena *arena;
    Diags *diags;
    const FrontEnd *in;
    Program *program;
    bool stock; /* the file being read is a stock file */
    /* of the block whose settings are taken: what a word after a forgotten ';' may be */
    const struct Field *fields;
    int field_count;
    const Ast *cut; /* that word, in the setting just taken */
    int mended; /* errors of files that were read as if they were not there */
    Vec(LoadedFile *) files;
    Vec(DeviceDecl *) devices;
    Vec(NicDecl *) nics;
    Vec(MaskDecl *) masks;
    Vec(TableDecl *) tables;
    NameMap mask_names[2]; /* the user's, stock: MaskDecl */
    NameMap open_calls;    /* calls with parameters left open: Typed */
    NameMap used_mask_names; /* index in used_masks */
    NameMap patterns;      /* by path: LoadedPattern */
    Vec(Table) used_tables;
    Vec(Mask) used_masks;
    Vec(const SchedText *) schedules; /* stock ones first */
    int stock_schedules;
    Vec(LayerEntry) layer_entries; /* of `schedule` and `travel`, where they tell layers apart */
    int mask_work, mask_depth; /* of the mask being inlined: both are bounded, */
    int all_mask_work;         /* and so is the work for all */
    bool mask_too_large;
    Span mask_at;
    const Ast *cluster, *host, *model, *sequence, *attention, *layout, *train;
} Checker;

/* ---- check_fields.c: blocks of settings, by tables ---- */
/* Values of one setting, taken from left to right. After a failure (reported) the rest is silent. */
typedef struct Cursor {
    Checker *c;
    const Ast *setting, *at;
    Span behind;
    const char *what; /* the number that is read next, in messages; NULL: the setting's words */
    bool failed;
} Cursor;
Cursor cursor_of(Checker *c, const Ast *setting);
bool cursor_whole(Cursor *u, int64_t lo, int64_t hi, int64_t *out);
bool cursor_number(Cursor *u, UnitKind unit, double lo, double hi, double *out);
const Ast *cursor_name(Cursor *u, const char *what);   /* any word, NULL after an error */
const Ast *cursor_string(Cursor *u, const char *what);
bool cursor_word(Cursor *u, const char *word);         /* exactly this word, or an error */
bool cursor_try(Cursor *u, const char *word);          /* takes the word or punctuation if it is there */
int cursor_choice(Cursor *u, const char *const *names, int n); /* index, or -1 after an error */
/* the value there, whatever it is; there must be one */
const Ast *cursor_next(Cursor *u);
bool cursor_end(Cursor *u);                            /* false where anything failed or more follows */

typedef struct Field Field;
typedef void TakeField(Checker *c, const Ast *setting, const Field *f, void *to);
typedef enum FieldFlags {
    FIELD_REQUIRED = 1,
    FIELD_BLOCK = 2,
    FIELD_REPEATS = 4,
    FIELD_MAY_BLOCK = 8 /* a block, or none */
} FieldFlags;
struct Field {
    const char *name;
    TakeField *take;
    size_t offset; /* in the structure at `to` */
    int flags;
    UnitKind unit;
    double lo, hi;
    const SettingForm *form; /* of a setting of the layout that has one */
    const char *full;        /* all words of the setting, such as "token chunks"; NULL: the name alone */
    size_t span; /* of the Span in that structure that says where the setting is; 0: none does */
};
/* Hands every setting of the list to its field. what names the list in messages ("the model"); at is
 * blamed for what is missing. */
void take_fields(Checker *c, AstList settings, const Field *fields, int n, void *to, const char *what,
                 Span at);
/* int, int64_t, double, bool, const Ast * (set in one file) */
TakeField take_int, take_int64, take_double, take_yes_no, take_once;
const char *block_name(Checker *c, const Ast *setting); /* "x" of `device x {`; NULL after an error */
/* Reports an unknown word with the nearest of names. */
void unknown_word(Checker *c, Span at, const char *word, const char *const *names, int n, const char *kind);
/* The same for short lists, which it shows where no name is near. */
void unknown_of(Checker *c, Span at, const char *word, const char *const *names, int n, const char *kind);
/* words/foreign.c: what to write instead of another framework's word, or in which block; what: as take_fields
 * names the block that it stands in. NULL: the word is unknown. */
const char *foreign_mask(const char *word); /* the stock mask that others call so; NULL: none */
const char *foreign_answer(Checker *c, const char *word, const char *what);
/* The refusal of what a later version will plan. use: what to write instead. */
void not_planned(Checker *c, Span at, const char *what, const char *use);
/* whether a layer of the model has this one of the values that can be saved */
bool has_value(const Checker *c, const char *name, int n);
const char *savable_names(Checker *c); /* these, but for x, as a list for messages */
/* check_offload.c: `offload activations(x, o);`, and, with the whole layout, whether every layer saves
 * what is named. */
void take_offload(Checker *c, const Ast *s, const Field *f, void *to);
void check_offload(Checker *c, const Layout *l);
void duplicate(Checker *c, const Ast *second, Span first, const char *what); /* "what is set twice" */
Span word_in(Span setting, const char *word); /* where the setting's text names it */

/* ---- check_range.c: what an operation can give ---- */
#define RANGE_BOUND (INT64_C(1) << 62) /* every value of a mask or an index stays within +- this */
typedef struct Range {
    __int128 lo, hi;
} Range;
Range range_of(ExprOp op, Range a, Range b); /* operands within the bound; divisors constant and positive */

/* ---- check_*.c ---- */
bool is_plain_file(const char *path);
void add_input(Checker *c, const char *path); /* a file that was read */
/* A path in a text is relative to the file of the text, unless it is absolute. */
const char *path_beside(Arena *a, Span at, const char *path);
void import_file(Checker *c, const Ast *setting, const char *extension, void (*declare)(Checker *, AstList));
bool is_cluster_file(AstList items); /* by its settings */
bool is_model_file(AstList items);
bool has_setting(AstList items, const Field *fields, int n); /* one that only such a file has */
/* The settings of a file, by their fields; masks and schedules go to `declare`. */
void take_file(Checker *c, AstList items, void (*declare)(Checker *c, Ast *s), const Field *fields, int n,
               const char *where);
void check_topology(Checker *c, AstList items); /* declarations of one file */
void finish_topology(Checker *c); /* Program.cluster */
void check_declarations(Checker *c, AstList items); /* of one model file */
/* check_rope.c: BurstRope, and whether heads can have it. at: of the setting. */
/* The number and what scales it, behind `rope` or behind layers; false: after an error. */
bool cursor_rope(Cursor *u, const Ast *s, const Field *f, BurstRope *r);
/* One number, or first .. last; false after an error. */
bool cursor_layers(Cursor *u, int64_t *first, int64_t *last, Span *span);
void check_rope(Checker *c, const BurstRope *r, int rotary, Span at);
void finish_model(Checker *c); /* Program.model, sequence */
void finish_layout(Checker *c);
/* the factors of the world size, and what else depends on them; of `tensor auto` nothing */
void check_ranks(Checker *c, Layout *l);
TakeField take_placement; /* Layout */
void check_placement(Checker *c, const Layout *l); /* against the schedules */
TakeField take_schedule, take_travel; /* Layout, for all layers or for those of some masks */
void finish_layers(Checker *c); /* Layout.of_mask, once layers have their masks */
/* false: reported; also where context has other sizes */
bool find_schedule(Checker *c, const Layout *l, const char *name, Span at);
TakeField take_shares; /* Layout */
void check_shares(Checker *c, const Layout *l, int world); /* against the cluster */
/* that ranks, heads and ffn can be split over so many */
void check_tensor(Checker *c, const Layout *l, int world);
/* check_model.c */
void settle_library_layout(Checker *c, Layout *l);
void settle_library(Checker *c);
/* what the target's kernels and `within` require of it */
void check_tensor_target(Checker *c);
/* that the ranks that share the weights make groups; 0: those of a node */
void check_within(Checker *c, Layout *l);
void check_tokens(Checker *c, int64_t group); /* that a sequence can be shared by so many ranks */
void finish_train(Checker *c);
void check_batch(Checker *c, Train *t); /* against the layout's data; without one, it is that */
void declare_mask(Checker *c, const Ast *mask);
void declare_table(Checker *c, const Ast *setting);
void check_mask_declarations(Checker *c);
int parameter_index(const MaskDecl *decl, const char *name); /* -1: none */
MaskDecl *find_mask(const Checker *c, const char *name, bool from_stock);
TableDecl *find_table(const Checker *c, const char *name);
MaskDecl *const *masks_by_calls(Checker *c); /* all declarations, those that a mask calls before it */
const Pattern *load_pattern(Checker *c, const Ast *a);
int use_table_named(Checker *c, const Ast *name); /* its index in used_tables, -1 after an error */
int use_mask(Checker *c, const Ast *call); /* its index in used_masks, -1 after an error */
void finish_attention(Checker *c); /* Program.masks, tables, layer_mask */
const SchedText *check_schedule(Checker *c, const Source *s, AstList items); /* NULL after errors */
/* Reads, checks and adds a schedule to the list, where it hides a stock one of its name; NULL after
 * errors. */
const SchedText *load_schedule(Checker *c, const char *path, Span at);

#endif
