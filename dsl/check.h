/* check.h: shared by the files of the checker. Only dsl/ includes it. */
#ifndef BURST_CHECK_H
#define BURST_CHECK_H

#include "ast.h"

/* A declared device or link: the defaults of a cluster. */
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
    bool broken; /* already reported: uses report nothing more */
    bool used;   /* by a layer */
} MaskDecl; /* of a mask, or of a selection, whose ast is an A_SELECT */
typedef struct TableDecl {
    Table table;
    bool stock;
    int number; /* index in Program.tables; -1: not used yet */
} TableDecl;
/* A model or cluster file that was read. It is open while its declarations are followed; importing it then
 * is a cycle. */
typedef struct LoadedFile {
    uint64_t device, inode;
    const char *path;
    bool open;
    Span import;
    AstList items;
} LoadedFile;

/* A pattern file, read once for all masks; NULL: an error was reported. */
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
void *name_find(const NameMap *m, const char *name); /* NULL: not found */
/* The name must not be in the map yet, and the value must not be NULL. */
void name_add(Arena *a, NameMap *m, const char *name, void *value);

/* `near for window(4Ki)`. mask NULL: all other layers. schedule NULL: a travel, or auto. */
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
    bool stock; /* the current file is a stock file */
    /* fields of the current block: a word after a forgotten ';' may be one of them */
    const struct Field *fields;
    int field_count;
    const Ast *cut; /* that word, in the current setting */
    int mended; /* errors in files that were corrected while reading */
    Vec(LoadedFile *) files;
    Vec(DeviceDecl *) devices;
    Vec(NicDecl *) nics;
    Vec(MaskDecl *) masks;
    Vec(TableDecl *) tables;
    NameMap mask_names[2]; /* the user's; stock ones: MaskDecl */
    NameMap open_calls;    /* calls with parameters left open: Typed */
    NameMap used_mask_names; /* index in used_masks */
    NameMap patterns;      /* by path: LoadedPattern */
    Vec(Table) used_tables;
    Vec(Mask) used_masks;
    Vec(Selection *) used_selections;
    Vec(const SchedText *) schedules; /* stock ones first */
    int stock_schedules;
    Vec(LayerEntry) layer_entries; /* entries of `schedule` and `travel` for masks */
    int mask_work, mask_depth; /* work and depth of the current inlining, and work of all; bounded */
    int all_mask_work;         /* and so is the work for all */
    bool mask_too_large;
    Span mask_at;
    const Ast *cluster, *host, *model, *sequence, *attention, *indexer, *layout, *train, *infer;
} Checker;

/* ---- check_fields.c: blocks of settings, by tables ---- */
/* Reads the values of a setting from left to right. After a reported failure it reports nothing more. */
typedef struct Cursor {
    Checker *c;
    const Ast *setting, *at;
    Span behind;
    const char *what; /* the next number in messages; NULL: the setting's words */
    bool failed;
} Cursor;
Cursor cursor_of(Checker *c, const Ast *setting);
bool cursor_whole(Cursor *u, int64_t lo, int64_t hi, int64_t *out);
bool cursor_number(Cursor *u, UnitKind unit, double lo, double hi, double *out);
const Ast *cursor_name(Cursor *u, const char *what);   /* any word; NULL after an error */
const Ast *cursor_string(Cursor *u, const char *what);
bool cursor_word(Cursor *u, const char *word);         /* requires this word */
bool cursor_try(Cursor *u, const char *word);          /* takes the word or punctuation if it is there */
int cursor_choice(Cursor *u, const char *const *names, int n); /* index; -1 after an error */
/* the next value of any kind, which must exist */
const Ast *cursor_next(Cursor *u);
bool cursor_end(Cursor *u);                            /* false if anything failed or more values follow */

typedef struct Field Field;
typedef void TakeField(Checker *c, const Ast *setting, const Field *f, void *to);
typedef enum FieldFlags {
    FIELD_REQUIRED = 1,
    FIELD_BLOCK = 2,
    FIELD_REPEATS = 4,
    FIELD_MAY_BLOCK = 8 /* the block is optional */
} FieldFlags;
struct Field {
    const char *name;
    TakeField *take;
    size_t offset; /* in the structure `to` */
    int flags;
    UnitKind unit;
    double lo, hi;
    const SettingForm *form; /* for a setting of the layout that has one */
    const char *full;        /* the setting's full name, such as "token chunks"; NULL: name */
    size_t span; /* offset in the structure of the setting's Span; 0: none */
};
/* Passes every setting of the list to its field. what: the list's name in messages ("the model"). at:
 * location of errors about missing settings. */
void take_fields(Checker *c, AstList settings, const Field *fields, int n, void *to, const char *what,
                 Span at);
/* for int, int64_t, double, bool, const Ast * (may be set in one file only) */
TakeField take_int, take_int64, take_double, take_yes_no, take_once;
/* One of so many words, as its number. */
void take_word(Checker *c, const Ast *setting, const char *const *words, int n, int *to);
const char *block_name(Checker *c, const Ast *setting); /* "x" of `device x {`; NULL after an error */
/* Reports an unknown word with the nearest name. */
void unknown_word(Checker *c, Span at, const char *word, const char *const *names, int n, const char *kind);
/* The same for short lists, which are shown if no name is near. */
void unknown_of(Checker *c, Span at, const char *word, const char *const *names, int n, const char *kind);
/* words/foreign.c: what to write instead of another framework's word, or the block that it belongs to. what:
 * the current block, named as for take_fields. NULL: unknown. */
const char *foreign_mask(const char *word); /* stock mask for another framework's name; NULL: none */
const char *foreign_answer(Checker *c, const char *word, const char *what);
/* Reports something that a later version will support. use: what to write instead. */
void not_planned(Checker *c, Span at, const char *what, const char *use);
/* whether a layer of the model has this value, which can be saved */
bool has_value(const Checker *c, const char *name, int n);
const char *savable_names(Checker *c); /* all of these except x, as a list for messages */
/* check_offload.c: `offload activations(x, o);`; check_offload checks, with the whole layout, that every
 * layer saves the named values. */
void take_offload(Checker *c, const Ast *s, const Field *f, void *to);
void check_offload(Checker *c, const Layout *l);
void duplicate(Checker *c, const Ast *second, Span first, const char *what); /* reports "what is set twice" */
Span word_in(Span setting, const char *word); /* location of the word in the setting's text */

/* check_model.c: yes or no as an int. */
TakeField take_part;
/* `ffn swiglu 768`; false after an error. */
bool take_ffn(Checker *c, const Ast *s, const Field *f, int *activation, int *columns);
/* check_experts.c: `moe { ... }`, a BurstExperts. */
void take_experts(Checker *c, const Ast *s, const Field *f, void *to);

/* ---- check_range.c: ranges of operations ---- */
#define RANGE_BOUND (INT64_C(1) << 62) /* all values of masks and indices stay within +- this */
typedef struct Range {
    __int128 lo, hi;
} Range;
/* operands must be within the bound; divisors constant and positive */
Range range_of(ExprOp op, Range a, Range b);

/* ---- check_*.c ---- */
bool is_plain_file(const char *path);
void add_input(Checker *c, const char *path); /* records a file that was read */
/* The path relative to the text's file, unless it is absolute. */
const char *path_beside(Arena *a, Span at, const char *path);
void import_file(Checker *c, const Ast *setting, const char *extension, void (*declare)(Checker *, AstList));
bool is_cluster_file(AstList items); /* by its settings */
bool is_model_file(AstList items);
/* whether a setting occurs that only such a file has */
bool has_setting(AstList items, const Field *fields, int n);
/* Takes the settings of a file by their fields; `declare` gets masks and schedules. */
void take_file(Checker *c, AstList items, void (*declare)(Checker *c, Ast *s), const Field *fields, int n,
               const char *where);
void check_topology(Checker *c, AstList items); /* of one file */
void finish_topology(Checker *c); /* fills Program.cluster */
void check_declarations(Checker *c, AstList items); /* of one model file */
/* check_rope.c: checks a BurstRope against the heads. at: the setting. */
/* Reads the base and its scaling, after `rope` or after layers. Returns false after an error. */
bool cursor_rope(Cursor *u, const Ast *s, const Field *f, BurstRope *r);
/* Reads one number, or first .. last. Returns false after an error. */
bool cursor_layers(Cursor *u, int64_t *first, int64_t *last, Span *span);
void check_rope(Checker *c, const BurstRope *r, int rotary, Span at);
void finish_model(Checker *c); /* fills Program.model and sequence */
void finish_layout(Checker *c);
/* checks the factors of the world size and what depends on them; skipped for `tensor auto` */
void check_ranks(Checker *c, Layout *l);
TakeField take_placement; /* Layout */
void check_placement(Checker *c, const Layout *l); /* against the schedules */
TakeField take_schedule, take_travel; /* Layout, for all layers or for those of some masks */
void finish_layers(Checker *c); /* fills Layout.of_mask, once layers have their masks */
/* Returns false after an error, also if context has other sizes. */
bool find_schedule(Checker *c, const Layout *l, const char *name, Span at);
TakeField take_shares; /* Layout */
void check_shares(Checker *c, const Layout *l, int world); /* against the cluster */
/* checks that ranks, heads and ffn divide by it */
void check_tensor(Checker *c, const Layout *l, int world);
/* check_model.c */
void settle_library_layout(Checker *c, Layout *l);
void settle_library(Checker *c);
/* checks the target's kernels and `within` against the split */
void check_tensor_target(Checker *c);
/* checks that the ranks that share the weights form groups; 0: those of a node */
void check_within(Checker *c, Layout *l);
void check_tokens(Checker *c, int64_t group); /* checks that so many ranks can share a sequence */
void finish_train(Checker *c);
void begin_infer(Checker *c); /* fills Program.infer, and sequence */
void settle_infer_layout(Checker *c, Layout *l); /* settings of backward and the optimizer are refused */
void check_infer(Checker *c); /* what the model or the target has no form for yet */
void check_batch(Checker *c, Train *t); /* checks against the layout's data, or derives it */
void declare_mask(Checker *c, const Ast *mask);
void declare_table(Checker *c, const Ast *setting);
void check_mask_declarations(Checker *c);
int parameter_index(const MaskDecl *decl, const char *name); /* -1: none */
/* words/selection.c: the parts of a selection that are words: its score, who shares it, its tiles. Returns
 * false after an error. */
bool selection_words(Checker *c, const Ast *ast, Selection *s);
/* Checks the sizes and conditions, which are constant, and fills what follows from them. at: the declaration.
 */
bool selection_sizes(Checker *c, const Ast *ast, Selection *s);
bool selection_is_static(Checker *c, const Expr *condition, Span at, const char *clause);
/* words/indexer.c: the block `indexer NAME { ... }`; and, when layers have their masks, which of them have
 * it: those are a kind of their own where others lack it. */
void finish_indexer(Checker *c, Model *m);
void settle_indexer(Checker *c);
void check_indexer(Checker *c); /* against the limits of kernels */
/* check_model.c: the number of a layer's kind, a new one if none is the same. */
void check_kind(Checker *c, Model *m, const KindParts *x, int *kind);
int64_t selection_candidates(const Program *p, const Selection *s); /* blocks that the last tile may choose */
int selection_of(Checker *c, const Expr *mask, Span at); /* counted from 1; 0: none; -1 after an error */
void check_selections(Checker *c); /* refuses what the target has no operations of */
MaskDecl *find_mask(const Checker *c, const char *name, bool from_stock);
TableDecl *find_table(const Checker *c, const char *name);
bool of_prompt(const Checker *c, BurstTableKind kind); /* whether a prompt itself gives the table's values */
MaskDecl *const *masks_by_calls(Checker *c); /* all declarations; each follows those that it calls */
const Pattern *load_pattern(Checker *c, const Ast *a);
int use_table_named(Checker *c, const Ast *name); /* index in used_tables; -1 after an error */
int use_mask(Checker *c, const Ast *call); /* index in used_masks; -1 after an error */
void finish_attention(Checker *c); /* fills Program.masks, tables, layer_mask */
const SchedText *check_schedule(Checker *c, const Source *s, AstList items); /* NULL after errors */
/* Reads, checks and adds a schedule to the list, where it hides a stock schedule of the same name. Returns
 * NULL after errors. */
const SchedText *load_schedule(Checker *c, const char *path, Span at);

#endif
