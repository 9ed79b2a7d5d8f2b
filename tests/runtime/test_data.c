/* test_data.c: token files, the order of windows, and what each rank gets, against a reader of a few
 * lines. */
#include "check.h"
#include "mini.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { SEQUENCE = 24, WINDOWS = 11, TOKENS = SEQUENCE * WINDOWS + 5, READS = 3 * WINDOWS, SEPARATOR = 3 };
enum { TABLES = 4 };

static char *directory;
static uint32_t original[TOKENS];

static char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void put(FILE *f, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        fputc((int)(value >> 8 * i & 255), f);
}

/* width 1: bytes without a header. promised: the count in the header. */
static char *write_tokens(const char *name, int width, uint64_t promised)
{
    char *path = path_of(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    if (width > 1) {
        fputs("BURSTTOK", f);
        put(f, 1, 4);
        put(f, (uint64_t)width, 4);
        put(f, promised, 8);
    }
    for (uint64_t i = 0; i < TOKENS && i < promised; i++)
        put(f, original[i], width);
    assert_int_equal(fclose(f), 0);
    return path;
}

static int set_up(void **unused)
{
    (void)unused;
    Random r = {5};
    directory = temporary_directory();
    for (int i = 0; i < TOKENS; i++)
        original[i] = (uint32_t)random_below(&r, MINI_VOCAB);
    return 0;
}

static int tear_down(void **unused)
{
    (void)unused;
    remove_directory(directory);
    return 0;
}

/* What all ranks together read, by read number and position. */
typedef struct Seen {
    int32_t token[READS][SEQUENCE], label[READS][SEQUENCE], table[READS][TABLES][SEQUENCE];
    float weight[READS][SEQUENCE];
    int times[READS][SEQUENCE];
} Seen;

static int read_all(BurstCtx *c, const BurstPlan *p, void *arg)
{
    Seen *s = arg;
    BurstBatch b;
    int chunk = burst_rank(c) % p->group;
    for (int n = 0; n < READS; n++) {
        BURST_TRY(burst_batch_read(c, p, n / p->train.batch, n % p->train.batch, &b));
        for (int64_t i = 0; i < p->tokens_of(chunk); i++) {
            int64_t at = p->position(chunk, i);
            s->token[n][at] = b.token[i];
            s->label[n][at] = b.label[i];
            s->weight[n][at] = b.weight[i];
            __atomic_add_fetch(&s->times[n][at], 1, __ATOMIC_RELAXED);
        }
        for (int t = 0; t < p->table_count && chunk == n % p->group; t++)
            memcpy(s->table[n][t], b.tables.table[t], sizeof s->table[n][t]);
    }
    return BURST_OK;
}

/* One file, read as raw numbers of so many bytes where that is not 0; path NULL: random tokens. */
static void read_from(BurstPlan *p, const char *path, int raw)
{
    static BurstDataFile file;
    file = (BurstDataFile){path, raw, 1};
    p->train.data = &file;
    p->train.data_files = path != NULL;
}

static BurstPlan plan_for(int world, int data, int partition, int64_t separator, const char *path)
{
    Mini m = {.world = world,
              .data = data,
              .partition = partition,
              .sequence = SEQUENCE,
              .batch = 2,
              .steps = 1,
              .separator = separator,
              .documents = true};
    static const char *const tables[TABLES] = {"position", "doc", "last", "first"};
    BurstPlan p = *mini_plan(&m);
    read_from(&p, path, 0);
    p.tables = tables;
    p.table_count = TABLES;
    return p;
}

static Seen *read_with(const BurstPlan *p)
{
    Seen *s = shared_memory(sizeof *s);
    Outcome o = run_job(p, "20", read_all, s);
    assert_string_equal(o.text, "");
    assert_int_equal(o.code, 0);
    return s;
}

/* The window of the original that this is; every window's tokens differ from the others' (seeded so). */
static int window_of(const int32_t *token)
{
    for (int w = 0; w < WINDOWS; w++) {
        int same = 0;
        while (same < SEQUENCE && (uint32_t)token[same] == original[w * SEQUENCE + same])
            same++;
        if (same == SEQUENCE)
            return w;
    }
    return -1;
}

static void check_window(const Seen *s, int n, int w, int data, int64_t separator)
{
    int document = 0, begin = 0, last;
    for (int i = 0; i < SEQUENCE; i++) {
        for (last = i; last < SEQUENCE - 1 && original[w * SEQUENCE + last] != separator; last++)
            ;
        const uint32_t *token = &original[w * SEQUENCE + i];
        bool ends = separator >= 0 && token[0] == separator;
        assert_int_equal(s->label[n][i], ends ? -1 : (int32_t)token[1]);
        assert_true(s->weight[n][i] == (ends ? 0.0f : 1.0f));
        const int32_t expected[TABLES] = {i - begin, document, last, begin};
        for (int t = 0; t < TABLES; t++)
            assert_int_equal(s->table[n][t][i], expected[t]);
        assert_int_equal(s->times[n][i], data);
        document += ends;
        begin = ends ? i + 1 : begin;
    }
}

/* Each epoch reads each window once. order: the windows as they came. */
static void check_epochs(const Seen *s, int data, int64_t separator, int *order)
{
    for (int epoch = 0; epoch < READS / WINDOWS; epoch++) {
        int times[WINDOWS] = {0};
        for (int i = 0; i < WINDOWS; i++) {
            int n = epoch * WINDOWS + i, w = order[n] = window_of(s->token[n]);
            assert_in_range(w, 0, WINDOWS - 1);
            assert_int_equal(times[w]++, 0);
            check_window(s, n, w, data, separator);
        }
    }
}

static void all_partitions_read_the_same(void **unused)
{
    (void)unused;
    static const int shapes[][2] = {{1, 1}, {2, 1}, {3, 1}, {4, 2}, {6, 2}};
    int first[READS], order[READS];
    char *path = write_tokens("two", 2, TOKENS);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int partition = 0; partition < MINI_PARTITIONS; partition++) {
            BurstPlan p = plan_for(shapes[i][0], shapes[i][1], partition, SEPARATOR, path);
            check_epochs(read_with(&p), p.data, SEPARATOR, i + (size_t)partition ? order : first);
            if (i + (size_t)partition)
                assert_memory_equal(order, first, sizeof first);
        }
}

static void widths_read_the_same(void **unused)
{
    (void)unused;
    int order[3][READS];
    static const int width[3] = {1, 2, 4};
    for (int i = 0; i < 3; i++) {
        BurstPlan p = plan_for(2, 1, MINI_STRIPED, -1, write_tokens("any", width[i], TOKENS));
        check_epochs(read_with(&p), 1, -1, order[i]);
        assert_memory_equal(order[i], order[0], sizeof order[0]);
    }
}

/* Epochs and seeds differ in their order, and no order is the file's. */
static void orders_differ(void **unused)
{
    (void)unused;
    int order[2][READS], in_file_order[WINDOWS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    char *path = write_tokens("four", 4, TOKENS);
    for (int i = 0; i < 2; i++) {
        BurstPlan p = plan_for(1, 1, MINI_CONTIGUOUS, -1, path);
        p.train.seed += i;
        check_epochs(read_with(&p), 1, -1, order[i]);
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    assert_memory_not_equal(order[0], order[0] + WINDOWS, sizeof in_file_order);
    assert_memory_not_equal(order[0] + WINDOWS, order[0] + 2 * WINDOWS, sizeof in_file_order);
    assert_memory_not_equal(order[0], in_file_order, sizeof in_file_order);
}

static void random_tokens(void **unused)
{
    (void)unused;
    BurstPlan four = plan_for(4, 1, MINI_ZIGZAG, -1, NULL);
    Seen *s = read_with(&four);
    BurstPlan one = plan_for(1, 1, MINI_CONTIGUOUS, -1, NULL);
    Seen *t = read_with(&one);
    assert_memory_equal(s->token, t->token, sizeof s->token);
    assert_memory_equal(s->label, t->label, sizeof s->label);
    int count[MINI_VOCAB] = {0};
    for (int n = 0; n < READS; n++)
        for (int i = 0; i < SEQUENCE; i++) {
            assert_in_range(s->token[n][i], 0, MINI_VOCAB - 1);
            count[s->token[n][i]]++;
            if (i + 1 < SEQUENCE)
                assert_int_equal(s->label[n][i], s->token[n][i + 1]);
        }
    for (int v = 0; v < MINI_VOCAB; v++) /* 792 draws of 23: 34 each, standard deviation 5.7 */
        assert_in_range(count[v], 34 - 29, 34 + 29);
    assert_memory_not_equal(s->token[0], s->token[1], sizeof s->token[0]);
}

/* ---- files that must be refused ---- */
static void expect_refusal(const BurstPlan *p, const char *text)
{
    Outcome o = run_job(p, "20", read_all, shared_memory(sizeof(Seen)));
    if (!strstr(o.text, text))
        print_error("expected '%s' in: %s\n", text, o.text);
    assert_non_null(strstr(o.text, text));
    assert_int_equal(o.code, 1);
}

/* Labels some tokens ahead, across the borders of ranks and of the window, and none behind the end of a
 * document. */
static void labels_ahead(void **unused)
{
    (void)unused;
    const int64_t separator = SEPARATOR;
    for (int world = 1; world <= 4; world += 3)
        for (int64_t ahead = 2; ahead <= 6; ahead += 2) {
            BurstPlan p = plan_for(world, 1, ahead == 4 ? MINI_STRIPED : MINI_ZIGZAG, separator,
                                   write_tokens("ahead", 2, TOKENS));
            p.train.predict = ahead;
            Seen *s = read_with(&p);
            for (int n = 0; n < READS; n++)
                for (int i = 0, w = window_of(s->token[n]); i < SEQUENCE; i++) {
                    const uint32_t *token = &original[w * SEQUENCE + i];
                    bool ends = false;
                    for (int j = 0; j < ahead; j++)
                        ends |= token[j] == separator;
                    assert_int_equal(s->label[n][i], ends ? -1 : (int32_t)token[ahead]);
                    assert_true(s->weight[n][i] == (ends ? 0.0f : 1.0f));
                }
        }
    BurstPlan p = plan_for(2, 1, MINI_CONTIGUOUS, -1, write_tokens("ahead", 2, SEQUENCE + 2));
    p.train.predict = 3;
    expect_refusal(&p, "has 26 tokens, expected at least 24 + 3");
}

static void refused_files(void **unused)
{
    (void)unused;
    BurstPlan p = plan_for(2, 1, MINI_CONTIGUOUS, -1, path_of("missing"));
    expect_refusal(&p, "missing': No such file or directory");
    read_from(&p, write_tokens("cut", 2, TOKENS + 1), 0);
    expect_refusal(&p, "its header gives 270 tokens, found 269");
    read_from(&p, write_tokens("short", 2, SEQUENCE), 0);
    expect_refusal(&p, "has 24 tokens, expected at least 24 + 1");
    read_from(&p, write_tokens("odd", 3, TOKENS), 0);
    expect_refusal(&p, "with 3 bytes per token");
    uint32_t usual = original[100];
    original[100] = MINI_VOCAB;
    read_from(&p, write_tokens("large", 4, TOKENS), 0);
    original[100] = usual;
    expect_refusal(&p, "token 100 is 23, but the vocabulary has 23 tokens");
    assert_int_equal(truncate(p.train.data->path, 0), 0);
    expect_refusal(&p, "is empty");
    static const char *const other[TABLES] = {"doc", "first", "language", "last"};
    p.tables = other;
    p.train.data_files = 0;
    expect_refusal(&p, "a mask reads the table 'language', which random tokens do not have; made from tokens "
                       "are only doc first last position");
}

/* ---- files of bytes, and of other formats ---- */
typedef struct Foreign { const char *name, *begin; size_t n; const char *text; } Foreign;
#define F(name, begin, text) {name, begin, sizeof begin - 1, text}
static const Foreign foreign[] = {
    F("a.parquet", "PAR1\x15\4\x15",
      "like a Parquet file: tokenize its text with `burst tokens FILE --tokenizer FOLDER -o OUT` of the "
      "Python package"),
    F("a.arrow", "ARROW1\0\0", "like an Arrow file"),
    F("a.jsonl", "{\"text\": \"once\"}\n{\"text\": \"upon\"}\n", "like JSON: tokenize its text"),
    F("list", " [1, 2, 3]", "like JSON"),
    F("n.bin", "\5\0\7\0",
      "like binary data, such as ids of 2 or 4 bytes: if it has ids of 2 or 4 bytes, read it with `--raw 2`"),
    F("m.index", "MMIDIDX\0\0\1\0\0\0", "like the index of a Megatron-LM data set (.idx): name it NAME.idx"),
    F("a.safetensors", "\2\0\0\0\0\0\0\0{}", "like model weights (safetensors)"),
    F("a.gguf", "GGUF\3\0\0\0", "like model weights (GGUF)"),
    F("a.gz", "\x1f\x8b\x08\0", "like a gzip file: unpack it first"),
    F("a.zst", "\x28\xb5\x2f\xfd\4", "like a zstd file: unpack it first"),
    F("a.npz", "PK\3\4\x14\0", "like a zip archive"),
    F("ids", "15 1023 7\n", "like token ids as text: convert it with burst-tokens IN OUT"),
    F("text", "Once upon a time, b\xc3\xa4r.\n", "like plain text: tokenize its text"),
    F("x", "", "like "),
};
#undef F

static char *write_foreign(const Foreign *f, int64_t bytes)
{
    char *path = path_of(f->name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int64_t i = 0; i < bytes; i++) /* as the beginning goes on */
        fputc(f->n ? f->begin[i < (int64_t)f->n || f->begin[0] >= ' ' ? i % (int64_t)f->n : (int64_t)f->n - 1]
                   : (int)(i % 256),
              file);
    assert_int_equal(fclose(file), 0);
    return path;
}

static int read_one(BurstCtx *c, const BurstPlan *p, void *arg)
{
    BurstBatch b;
    (void)arg;
    return burst_batch_read(c, p, 0, 0, &b);
}

static void expect_read(const BurstPlan *p, int code, const char *text)
{
    Outcome o = run_job(p, "20", read_one, NULL);
    if (!strstr(o.text, text) || o.code != code)
        print_error("expected %d, '%s' in: %d, %s\n", code, text, o.code, o.text);
    assert_non_null(strstr(o.text, text));
    assert_int_equal(o.code, code);
}

/* Above 256 tokens only by a word of their own; up to it as ever. */
static void foreign_files(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        for (int64_t bytes = SEQUENCE + 2; bytes <= 3 * 4096; bytes += 3 * 4096 - SEQUENCE - 2) {
            BurstPlan p = plan_for(1, 1, MINI_CONTIGUOUS, -1, write_foreign(&foreign[i], bytes));
            p.vocab = 257;
            expect_read(&p, 1, foreign[i].text);
            expect_read(&p, 1, "is not a token file; it looks");
            read_from(&p, p.train.data->path, 1);
            expect_read(&p, 0, "");
            read_from(&p, p.train.data->path, 0);
            p.vocab = 256;
            expect_read(&p, 0, "");
        }
    BurstPlan p = plan_for(1, 1, MINI_CONTIGUOUS, -1, write_tokens("two", 2, TOKENS));
    p.vocab = 257;
    expect_read(&p, 0, "");
    read_from(&p, p.train.data->path, 1);
    expect_read(&p, 1, "is a token file, but is to be read as bytes");
}

/* ---- the tool that writes token files ---- */
static void tool_writes_what_is_read(void **unused)
{
    (void)unused;
    char text[256], binary[256];
    snprintf(text, sizeof text, "%s", path_of("text"));
    FILE *f = fopen(text, "w");
    for (int i = 0; i < TOKENS; i++)
        fprintf(f, "%u%c", original[i], i % 7 ? ' ' : '\n');
    fclose(f);
    for (int width = 2; width <= 4; width += 2) {
        Outcome o = run_command("$BURST_TOKENS --width %d %s %s/made", width, text, directory);
        assert_int_equal(o.code, 0);
        snprintf(binary, sizeof binary, "%s", write_tokens("expected", width, TOKENS));
        o = run_command("cmp %s/made %s", directory, binary);
        assert_string_equal(o.text, "");
        assert_int_equal(o.code, 0);
    }
    assert_int_equal(run_command("echo 65 66 | $BURST_TOKENS --width 2 - %s/a && printf AB | $BURST_TOKENS "
                                 "--bytes --width 2 - %s/b && cmp %s/a %s/b",
                                 directory, directory, directory, directory)
                         .code,
                     0);
    Outcome o = run_command("echo 1 2 x | $BURST_TOKENS - %s/c; test ! -e %s/c", directory, directory);
    assert_non_null(strstr(o.text, "token 2 is 'x'"));
    assert_int_equal(o.code, 0);
    o = run_command("echo 1 65536 | $BURST_TOKENS --width 2 - %s/c", directory);
    assert_non_null(strstr(o.text, "token 1 is 65536, which does not fit in 2 bytes"));
    assert_int_equal(o.code, 1);
    assert_int_equal(run_command("$BURST_TOKENS --width 3 a b").code, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_partitions_read_the_same), cmocka_unit_test(widths_read_the_same),
        cmocka_unit_test(orders_differ),                cmocka_unit_test(random_tokens),
        cmocka_unit_test(labels_ahead),
        cmocka_unit_test(refused_files),                cmocka_unit_test(foreign_files),
        cmocka_unit_test(tool_writes_what_is_read),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
