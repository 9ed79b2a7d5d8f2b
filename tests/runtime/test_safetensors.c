/* test_safetensors.c: the file format on files made by hand, good and malformed; folders on a plan of a
 * few tensors, whose elements are a formula, for every number of ranks. */
#include "check.h"
#include "core/context.h"
#include "core/weights.h"
#include "safetensors/safetensors.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

enum { MOST = 1 << 18 }; /* bytes of a file made by hand */
static char *directory;
static BurstCtx ctx; /* only errors are kept in it */

static int set_up(void **unused)
{
    (void)unused;
    directory = temporary_directory();
    return chdir(directory);
}

static int tear_down(void **unused)
{
    (void)unused;
    assert_int_equal(chdir("/"), 0);
    remove_directory(directory);
    return 0;
}

static void put_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* Length, header, data. Returns the bytes of the file. */
static size_t join(const char *header, const void *data, size_t bytes, unsigned char file[MOST])
{
    size_t n = strlen(header);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(n >> (8 * i));
    assert_true(8 + n + bytes <= MOST);
    memcpy(file + 8, header, n);
    if (bytes)
        memcpy(file + 8 + n, data, bytes);
    return 8 + n + bytes;
}

static void put_tensors(const char *path, const char *header, const void *data, size_t bytes)
{
    static unsigned char file[MOST];
    put_file(path, file, join(header, data, bytes, file));
}

/* ---- numbers ---- */

static void halves(void **unused)
{
    (void)unused;
    for (int bits = 0; bits < 65536; bits++) {
        int exponent = bits >> 10 & 31, fraction = bits & 1023;
        double value = ldexp(1024 + fraction, exponent - 25);
        if (exponent == 31)
            value = fraction ? (double)NAN : (double)INFINITY;
        else if (exponent == 0)
            value = ldexp(fraction, -24);
        float is_ = from_half((uint16_t)bits);
        const double signed_value = bits & 0x8000 ? -value : value;
        assert_true(isnan(value) ? isnan(is_) : (double)is_ == signed_value);
        assert_int_equal(signbit(is_) != 0, bits >> 15);
    }
}

static double bf16_value(uint16_t bits)
{
    int exponent = bits >> 7 & 255, fraction = bits & 127;
    /* infinity: 2^128 */
    double value = exponent == 0 ? ldexp(fraction, -133) : ldexp(128 + fraction, exponent - 134);
    return bits & 0x8000 ? -value : value;
}

/* No neighbour is nearer, and one that is as near is odd. */
static void bf16_is_nearest(void **unused)
{
    (void)unused;
    Random r = {5};
    for (int i = 0; i < 200000; i++) {
        uint32_t word = (uint32_t)random_next(&r);
        float x;
        if (i % 4 == 0)
            word &= 0xffff8000; /* ties, and numbers that are bf16 already */
        memcpy(&x, &word, sizeof x);
        uint16_t bits = to_bf16(x), magnitude = bits & 0x7fff;
        if (isnan(x)) {
            assert_true(magnitude > 0x7f80);
            continue;
        }
        if (isinf(x)) {
            assert_true(magnitude == 0x7f80 && signbit(x) == (bits & 0x8000 ? signbit(-1.0f) : 0));
            continue;
        }
        double away = fabs(bf16_value(bits) - x);
        for (int step = -1; step <= 1; step += 2) {
            if (magnitude + step < 0 || magnitude + step > 0x7f80)
                continue;
            double other = fabs(bf16_value((uint16_t)((bits & 0x8000) | (magnitude + step))) - x);
            assert_true(away < other || (away == other && bits % 2 == 0));
        }
    }
}

/* ---- one file ---- */

#define ONE_F32 "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

static void good_files(void **unused)
{
    (void)unused;
    /* out of order, padded with blanks; a scalar and an empty tensor; I64 is fine as long as nobody reads
     * it */
    const char *header = "{\"h\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[12,18]},"
                         "\"__metadata__\":{\"format\":\"pt\"},\"e\":{\"dtype\":\"I64\",\"shape\":[0,7],"
                         "\"data_offsets\":[18,18]},"
                         "\"f\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
                         "\"s\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[18,20]},"
                         "\"b\":{\"shape\":[2],\"data_offsets\":[8,12],\"dtype\":\"BF16\"}}    ";
    const unsigned char data[] = {0,    0,    0x80, 0x3f, 0, 0,    0, 0xc0, 0x80, 0x3f,
                                  0x49, 0xc0, 0,    0x3c, 0, 0xc4, 1, 0,    0,    0x41};
    static const struct { const char *name; int count; double value[3]; } wanted[] = {
        {"f", 2, {1, -2}}, {"b", 2, {1, -3.140625}}, {"h", 3, {1, -4, 0x1p-24}}, {"s", 1, {8}}};
    put_tensors("good", header, data, sizeof data);
    StFile f;
    assert_int_equal(safetensors_open(&ctx, "good", &f), BURST_OK);
    assert_int_equal(f.tensors, 5);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const StTensor *t = f.tensor;
        while (strcmp(t->name, wanted[i].name) != 0)
            t++;
        float value[3] = {99, 99, 99};
        assert_int_equal(t->elements, wanted[i].count);
        assert_int_equal(safetensors_read(&ctx, t, 0, t->elements, value), BURST_OK);
        for (int j = 0; j < 3; j++)
            assert_true(value[j] == (j < wanted[i].count ? wanted[i].value[j] : 99));
        assert_int_equal(safetensors_read(&ctx, t, t->elements - 1, 1, value), BURST_OK);
        assert_true(value[0] == wanted[i].value[wanted[i].count - 1]);
        assert_int_equal(safetensors_read(&ctx, t, 1, t->elements, value), BURST_E_PLAN);
    }
    safetensors_close(&f);
    put_tensors("empty", "{}", NULL, 0);
    assert_int_equal(safetensors_open(&ctx, "empty", &f), BURST_OK);
    assert_int_equal(f.tensors, 0);
    safetensors_close(&f);
}

static void expect_bad(const char *path, const char *text)
{
    StFile f;
    ctx.error[0] = 0;
    int status = safetensors_open(&ctx, path, &f);
    if (status != BURST_E_IO || !strstr(ctx.error, text))
        print_error("expected '%s': status %d, '%s'\n", text, status, ctx.error);
    assert_int_equal(status, BURST_E_IO);
    assert_non_null(strstr(ctx.error, text));
    assert_int_equal(f.fd, -1);
}

#define T(dtype, shape, offsets) \
    "{\"a\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void malformed_headers(void **unused)
{
    (void)unused;
    static const struct { const char *header; int bytes; const char *text;
    } cases[] = {
        {"", 0, "is not valid JSON"},
        {"{", 0, "is not valid JSON"},
        {"[]", 0, "not a JSON object of tensors"},
        {"{} x", 0, "is not valid JSON"},
        {"{\"a\":3}", 0, "a must have exactly the fields dtype, shape and data_offsets"},
        {"{\"a\":{}}", 0, "a must have exactly the fields dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8,
         "must have exactly the fields"},
        {"{\"a\\u001b\":{}}", 0, "control characters"},
        {"{\"a\\u0000b\":{}}", 0, "is not valid JSON"},
        {"{" ONE_F32 "," ONE_F32 "}", 8, "duplicate"},
        {T("7", "[2]", "[0,8]"), 8, "must have exactly the fields dtype"},
        {T("\"F32\"", "2", "[0,8]"), 8, "needs a shape of at most 8"},
        {T("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), 8, "needs a shape of at most 8"},
        {T("\"F32\"", "[2.0]", "[0,8]"), 8, "the shape of a must"},
        {T("\"F32\"", "[-2]", "[0,8]"), 8, "the shape of a must"},
        {T("\"F32\"", "[\"2\"]", "[0,8]"), 8, "the shape of a must"},
        {T("\"F32\"", "[4294967296,4294967296]", "[0,8]"), 8, "the shape of a must"},
        /* times 4 is 0 in 64 bits */
        {T("\"F32\"", "[4611686018427387904,1]", "[0,0]"), 0, "does not match its 0 bytes"},
        {T("\"F32\"", "[99999999999999999999]", "[0,8]"), 8, "is not valid JSON"},
        {T("\"F32\"", "[2]", "8"), 8, "data_offsets of a must be"},
        {T("\"F32\"", "[2]", "[0]"), 8, "data_offsets of a must be"},
        {T("\"F32\"", "[2]", "[0,8,8]"), 8, "data_offsets of a must be"},
        {T("\"F32\"", "[2]", "[0,8.0]"), 8, "data_offsets of a must be"},
        {T("\"F32\"", "[2]", "[8,0]"), 8, "data_offsets of a must be"},
        {T("\"F32\"", "[2]", "[-8,0]"), 8, "data_offsets of a must be"},
        {T("\"F32\"", "[2]", "[0,9223372036854775807]"), 8,
         "is truncated: a ends at byte 9223372036854775807 of 8"},
        {T("\"F32\"", "[2]", "[0,8]"), 7, "is truncated: a ends at byte 8 of 7"},
        {T("\"F32\"", "[3]", "[0,8]"), 8, "a is F32 [3], which does not match its 8 bytes"},
        {T("\"BF16\"", "[2]", "[0,8]"), 8, "a is BF16 [2], which does not match its 8 bytes"},
        {T("\"F32\"", "[2]", "[0,8]"), 9, "its last 1 bytes belong to no tensor"},
        {T("\"F32\"", "[2]", "[4,12]"), 12, "the 4 bytes before a belong to no tensor"},
        {"{" ONE_F32 ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12,
         "a and b overlap"},
        {"{" ONE_F32 ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "overlap"},
        {"{" ONE_F32 ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[12,16]}}", 16,
         "the 4 bytes before b"},
    };
    static const char data[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_tensors("bad", cases[i].header, data, (size_t)cases[i].bytes);
        expect_bad("bad", cases[i].text);
    }
}

static void malformed_files(void **unused)
{
    (void)unused;
    unsigned char file[64] = {2, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    for (size_t n = 0; n < 8; n++) {
        put_file("bad", file, n);
        expect_bad("bad", "is not a safetensors file");
    }
    put_file("bad", file, 9);
    expect_bad("bad", "its header gives 2 bytes, the file has 9");
    for (int byte = 1; byte < 8; byte++) {
        file[byte] = 0x80;
        put_file("bad", file, 10);
        expect_bad("bad", "truncated or not a safetensors file: its header gives ");
        file[byte] = 0;
    }
    static char deep[200001];
    memset(deep, '[', sizeof deep - 1);
    put_tensors("bad", deep, NULL, 0);
    expect_bad("bad", "is not valid JSON");
    memcpy(deep, "{\"a\":", 5);
    put_tensors("bad", deep, NULL, 0);
    expect_bad("bad", "is not valid JSON");
    expect_bad("nowhere", "No such file");
    expect_bad(directory, "is not a regular file");
    assert_int_equal(mkfifo("pipe", 0600), 0);
    expect_bad("pipe", "is not a regular file");
}

static void unread_dtypes(void **unused)
{
    (void)unused;
    static const char *const dtypes[] = {"F64", "F8_E4M3", "F4", "float32"};
    static const char data[64];
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char header[200], text[200];
        float value[8];
        StFile f;
        int bytes = strcmp(dtypes[i], "F64") == 0 ? 8 : 1;
        snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%d]}}",
                 dtypes[i], 8 * bytes);
        put_tensors("odd", header, data, 8 * (size_t)bytes);
        assert_int_equal(safetensors_open(&ctx, "odd", &f), BURST_OK);
        assert_int_equal(safetensors_read(&ctx, f.tensor, 0, 0, value), BURST_E_IO);
        snprintf(text, sizeof text, "a is %s, expected F32, BF16 or F16", dtypes[i]);
        assert_non_null(strstr(ctx.error, text));
        safetensors_close(&f);
    }
}

/* Whatever is in a header: refused with a text, or every tensor can be read. */
static void mutated_headers(void **unused)
{
    (void)unused;
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":["
                                 "2,3],\"data_offsets\":[0,24]},"
                                 "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]}}";
    static const char bits[] = "0123456789-.e[]{},:\"\\ \n\x7f\xff";
    enum { N = sizeof header - 1, ROUNDS = 20000, DATA = 32 };
    static const char data[DATA];
    Random r = {7};
    char path[64];
    int accepted = 0, fd = memfd_create("fuzzed", 0); /* no disk: twenty thousand files */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int round = 0; round < ROUNDS; round++) {
        char text[2 * N] = {0};
        StFile f;
        memcpy(text, header, N);
        size_t n = N;
        for (int changes = 1 + random_below(&r, 3); changes-- > 0;) {
            size_t at = (size_t)random_below(&r, (int)n);
            if (random_below(&r, 3) == 0 && n + 1 < sizeof text) /* one more, one less, another */
                memmove(text + at + 1, text + at, n++ - at);
            else if (random_below(&r, 2) == 0 && n > 1)
                memmove(text + at, text + at + 1, --n - at);
            text[at < n ? at : 0] = bits[random_below(&r, (int)sizeof bits - 1)];
        }
        text[n] = 0;
        static unsigned char file[MOST];
        size_t bytes = join(text, data, DATA, file);
        assert_true(ftruncate(fd, 0) == 0 && pwrite(fd, file, bytes, 0) == (ssize_t)bytes);
        ctx.error[0] = 0;
        if (safetensors_open(&ctx, path, &f) != BURST_OK) {
            assert_true(ctx.error[0] != 0);
            continue;
        }
        accepted++;
        for (int i = 0; i < f.tensors; i++) {
            float value[DATA];
            int status = safetensors_read(&ctx, &f.tensor[i], 0,
                                          f.tensor[i].elements <= DATA ? f.tensor[i].elements : 0, value);
            assert_true(status == BURST_OK || strstr(ctx.error, "expected F32, BF16 or F16"));
        }
        safetensors_close(&f);
    }
    close(fd);
    assert_in_range(accepted, 100, ROUNDS / 2); /* names and metadata may be anything */
}

/* ---- folders ---- */

enum { VOCAB = 5, WIDE = 4, LAYERS = 3, NAMES = 2 + 2 * LAYERS + 1 };

static const BurstTensor embedding[] = {{"model.embed_tokens.weight", VOCAB, WIDE, 0, 0.5f}};
static const BurstTensor layer[] = {{"input_layernorm.weight", 1, WIDE, 0, 0},
                                    {"self_attn.o_proj.weight", 7, WIDE, WIDE, 0.5f}};
static const BurstTensor head[] = {{"model.norm.weight", 1, WIDE, 0, 0},
                                   {"lm_head.weight", VOCAB, WIDE, WIDE, 0.5f}};
static int causal_tile(const BurstSide *q, const BurstSide *k)
{
    (void)q, (void)k;
    return BURST_PARTIAL;
}
static const BurstMask causal = {"causal", causal_tile, NULL}, window = {"window(17)", causal_tile, NULL},
                       odd = {"file \"\xff\" at (q, k)", causal_tile, NULL},
                       full = {"full", causal_tile, NULL}, document = {"document", causal_tile, NULL};
static const BurstMask *const masks[] = {&causal, &window, &odd, &full, &document};
static const int windowed_layer[LAYERS] = {0, 1, 2}, causal_layer[LAYERS], full_layer[LAYERS] = {3, 3, 3},
                 odd_layer[LAYERS] = {2, 2, 2}, document_layer[LAYERS] = {4, 1, 4};

typedef struct Shape {
    BurstUnit unit[3];
    BurstPlan plan;
} Shape;

static void shape_for(Shape *s, int world, bool tied)
{
    const int64_t elements[] = {VOCAB * WIDE, 8 * WIDE, tied ? WIDE : WIDE + VOCAB * WIDE};
    s->unit[0] = (BurstUnit){"model.embed_tokens", elements[0], 0, 1, embedding, 1};
    s->unit[1] = (BurstUnit){"model.layers.%d", elements[1], 0, 2, layer, LAYERS};
    s->unit[2] = (BurstUnit){"head", elements[2], 0, tied ? 1 : 2, head, 1};
    for (int i = 0; i < 3; i++)
        s->unit[i].shard = (elements[i] + world - 1) / world;
    s->plan = bare_plan(world, 0);
    s->plan.units = s->unit;
    s->plan.unit_rows = 3;
    s->plan.layers = LAYERS, s->plan.hidden = WIDE, s->plan.heads = 2, s->plan.kv_heads = 1,
    s->plan.head_dim = 6;
    s->plan.ffn = 7, s->plan.vocab = VOCAB, s->plan.tied = tied, s->plan.norm_eps = 1e-5,
    s->plan.rope.theta = 500000;
    s->plan.sequence = 64, s->plan.train.separator = -1;
    s->plan.masks = masks, s->plan.layer_mask = causal_layer;
    s->plan.arena_bytes = burst_weights_bytes(&s->plan);
}

static float element(int unit, int64_t i)
{
    return (float)sin(1 + 0.7 * (double)i + 13 * unit);
}

static float rounded(float x, int dtype)
{
    uint32_t word = (uint32_t)to_bf16(x) << 16;
    if (dtype == BURST_BF16)
        memcpy(&x, &word, sizeof x);
    return x;
}

typedef struct Order { const char *folder; int dtype; int64_t shard_bytes; bool astray; } Order;

static int write_body(BurstCtx *c, const BurstPlan *p, void *arg)
{
    const Order *o = arg;
    BurstWeights w;
    BURST_TRY(weights_take(c, p, &w));
    for (int u = 0; u < w.units; u++)
        for (int64_t i = 0, n = burst_unit(p, u)->shard; i < n; i++)
            w.param[u][i] = burst_rank(c) * n + i < burst_unit(p, u)->elements
                                ? element(u, burst_rank(c) * n + i)
                                : 0;
    if (o->astray && burst_rank(c) == 1 && chdir("elsewhere") != 0)
        return burst_fail(c, BURST_E_IO, "no elsewhere");
    Export *e;
    int status = export_open(c, p, o->folder, NULL, o->dtype, o->shard_bytes, false, &e);
    if (status == BURST_OK)
        status = export_write(c, p, &w, e);
    export_close(c, e);
    return status;
}

/* Every element is the one that was written, and the padding is zero. */
static int read_body(BurstCtx *c, const BurstPlan *p, void *arg)
{
    const Order *o = arg;
    BurstWeights w;
    BURST_TRY(weights_take(c, p, &w));
    BURST_TRY(folder_read(c, p, &w, o->folder, false, false));
    for (int u = 0; u < w.units; u++)
        for (int64_t i = 0, n = burst_unit(p, u)->shard; i < n; i++) {
            int64_t at = burst_rank(c) * n + i;
            CHECK(c,
                  w.param[u][i] == (at < burst_unit(p, u)->elements ? rounded(element(u, at), o->dtype) : 0));
        }
    return BURST_OK;
}

static void expect_job(const Shape *s, Body body, Order o, int code, const char *text)
{
    Outcome out = run_job(&s->plan, "20", body, &o);
    if (out.code != code || !strstr(out.text, text) || (!*text && *out.text))
        print_error("expected code %d and '%s': code %d, %s\n", code, text, out.code, out.text);
    assert_int_equal(out.code, code);
    assert_non_null(strstr(out.text, text));
    assert_true(*text || !*out.text);
}

static void shell(const char *command)
{
    Outcome o = run_command("%s", command);
    if (o.code != 0)
        print_error("%s: %s\n", command, o.text);
    assert_int_equal(o.code, 0);
}

static void any_world_to_any_world(void **unused)
{
    (void)unused;
    static const struct { int from, to, dtype; bool tied; int64_t shard_bytes; int files;
    } cases[] = {{1, 8, BURST_F32, false, ST_SHARD_BYTES, 1}, {8, 1, BURST_F32, false, 300, 3},
                 {3, 5, BURST_BF16, false, 1, NAMES},         {5, 3, BURST_F32, true, 200, 4},
                 {8, 7, BURST_BF16, true, ST_SHARD_BYTES, 1}, {2, 2, BURST_F32, false, 0, NAMES}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Shape s;
        Order o = {"out/", cases[i].dtype, cases[i].shard_bytes, false};
        shell("rm -rf out");
        shape_for(&s, cases[i].from, cases[i].tied);
        expect_job(&s, write_body, o, 0, "");
        Outcome files = run_command(
            "ls -A out/*.safetensors | wc -l; ls -A out | grep -cv safetensors; ls -d out*");
        char wanted[64];
        snprintf(wanted, sizeof wanted, "%d\n1\nout\n", cases[i].files);
        assert_string_equal(files.text, wanted);
        shape_for(&s, cases[i].to, cases[i].tied);
        expect_job(&s, read_body, o, 0, "");
    }
}

/* The bytes of a small file, and the index of two, as the format's own text has them. */
static void bytes_are_the_format(void **unused)
{
    (void)unused;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"burst\":\"export\"},\"model.embed_tokens.weight\":{\"dtype\":"
        "\"F32\",\"shape\":[5,"
        "4],"
        "\"data_offsets\":[0,80]},\"model.layers.0.input_layernorm.weight\":{\"dtype\":\"F32\",\"shape\":[4],"
        "\"data_offsets\":[80,96]}}";
    Shape s;
    unsigned char file[1024], length[8] = {(sizeof header - 1 + 7) / 8 * 8};
    shape_for(&s, 3, true);
    shell("rm -rf out");
    expect_job(&s, write_body, (Order){"out", BURST_F32, 100, false}, 0, "");
    FILE *f = fopen("out/model-00001-of-00007.safetensors", "rb");
    assert_non_null(f);
    size_t n = fread(file, 1, sizeof file, f);
    fclose(f);
    assert_int_equal(n, 8 + length[0] + 96);
    assert_memory_equal(file, length, 8);
    assert_memory_equal(file + 8, header, sizeof header - 1);
    for (int i = 0; i < 24; i++) {
        float x, wanted = i < 20 ? element(0, i) : element(1, i - 20);
        memcpy(&x, file + 8 + length[0] + 4 * i, sizeof x);
        assert_true(x == wanted);
    }
    json_t *index = json_load_file("out/model.safetensors.index.json", 0, NULL);
    json_t *map = json_object_get(index, "weight_map");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
                     4 * (20 + 3 * 32 + 4));
    assert_int_equal(json_object_size(map), 8);
    assert_string_equal(json_string_value(json_object_get(map, "model.layers.0.input_layernorm.weight")),
                        "model-00001-of-00007.safetensors");
    assert_string_equal(json_string_value(json_object_get(map, "model.norm.weight")),
                        "model-00007-of-00007.safetensors");
    json_decref(index);
}

static void config_says_the_plan(void **unused)
{
    (void)unused;
    Shape s;
    shape_for(&s, 1, false);
    s.plan.layer_mask = windowed_layer;
    s.plan.train.separator = 3;
    json_t *is_ = config_make(&s.plan, BURST_F32, NULL);
    json_t *wanted = json_pack("{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:b, s:s, s:b, "
                               "s:b, s:i, s:n, s:s, s:n, s:n, s:i, s:[s,s,s]}",
                               "architectures", "LlamaForCausalLM", "model_type", "llama", "hidden_size", 4,
                               "num_hidden_layers", 3, "num_attention_heads", 2, "num_key_value_heads", 1,
                               "head_dim", 6, "intermediate_size", 7, "vocab_size", 5, "rms_norm_eps", 1e-5,
                               "rope_theta", 500000.0, "tie_word_embeddings", 0, "hidden_act", "silu",
                               "attention_bias", 0, "mlp_bias", 0, "max_position_embeddings", 64,
                               "rope_scaling", "torch_dtype", "float32", "bos_token_id", "pad_token_id",
                               "eos_token_id", 3, "burst_attention", "causal", "window(17)",
                               "file \"\\xff\" at (q, k)");
    assert_non_null(wanted);
    assert_true(json_equal(is_, wanted));
    json_decref(is_);
    json_decref(wanted);
}

/* Fields of masks and of RoPE by type, as the source has them where that means the plan. */
#define TYPES "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\"]"
#define ALL_FULL "\"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\"]"
static void config_keeps_the_types(void **unused)
{
    (void)unused;
    static const BurstRope none[] = {{.theta = 500000}, {.theta = 0}},
                           bases[] = {{.theta = 500000}, {.theta = 10000}},
                           dynamic[] = {
                               {.theta = 500000},
                               {.theta = 500000, .kind = BURST_ROPE_DYNAMIC, .factor = 2, .original = 32}};
    static const int second[LAYERS] = {0, 1, 0}, others[LAYERS] = {1, 0, 1};
    static const struct {
        const char *family, *source;
        const int *mask;
        const BurstRope *ropes;
        const int *rope;
        const char *wanted;
    } cases[] = {
        {"exaone4", "{\"sliding_window\": 100, " TYPES "}", causal_layer, none, second,
         "{\"sliding_window\": 100, " TYPES "}"},
        {"exaone4", NULL, causal_layer, none, second, "{\"sliding_window\": 64, " TYPES "}"},
        {"exaone4", "{\"sliding_window\": 8, " TYPES "}", odd_layer, none, second,
         "{\"sliding_window\": 8, " TYPES "}"},
        {"exaone4", NULL, causal_layer, NULL, NULL, "{\"sliding_window\": null, " ALL_FULL "}"},
        {"cohere2", NULL, causal_layer, none, second, "{\"sliding_window\": 64, " TYPES "}"},
        {"gemma3_text", "{\"sliding_window\": 100, " TYPES "}", causal_layer, bases, others,
         "{\"sliding_window\": 100, " TYPES
         ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\", "
         "\"rope_theta\": 500000.0}, \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": "
         "10000.0}}}"},
        {"olmo3", NULL, causal_layer, dynamic, others,
         "{\"sliding_window\": 64, \"max_position_embeddings\": 32, " TYPES "}"},
        {"ministral", NULL, causal_layer, NULL, NULL, "{\"sliding_window\": 64, " ALL_FULL "}"},
        {"ministral", "{\"sliding_window\": 8, " TYPES "}", causal_layer, NULL, NULL,
         "{\"sliding_window\": 8, " ALL_FULL "}"},
        {"ministral", NULL, document_layer, NULL, NULL,
         "{\"sliding_window\": 17, \"layer_types\": [\"full_attention\", \"sliding_attention\", "
         "\"full_attention\"], "
         "\"burst_attention\": [\"document\", \"window(17)\", \"document\"]}"},
        {"mistral", "{\"sliding_window\": 8}", causal_layer, NULL, NULL, "{\"sliding_window\": null}"},
        {"llama", "{\"is_causal\": false}", full_layer, NULL, NULL, "{\"is_causal\": false}"},
        {"gemma2", "{\"is_causal\": false}", full_layer, NULL, NULL, "{\"is_causal\": false}"},
        {"gemma2", "{\"is_causal\": false, \"sliding_window\": 4096, " TYPES "}", full_layer, NULL, NULL,
         "{\"is_causal\": false, \"sliding_window\": 4096, " TYPES "}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Shape s;
        const char *name;
        json_t *value, *wanted = json_loads(cases[i].wanted, 0, NULL),
                       *source = cases[i].source ? json_loads(cases[i].source, 0, NULL) : NULL;
        shape_for(&s, 1, false);
        s.plan.family = cases[i].family;
        s.plan.layer_mask = cases[i].mask;
        s.plan.ropes = cases[i].ropes, s.plan.layer_rope = cases[i].rope;
        json_t *is_ = config_make(&s.plan, BURST_F32, source);
        assert_non_null(wanted);
        json_object_foreach(wanted, name, value) if (!json_equal(json_object_get(is_, name), value))
            fail_msg("%s, case %zu: %s is another: %s", cases[i].family, i, name,
                     json_dumps(is_, JSON_INDENT(1)));
        json_decref(is_);
        json_decref(wanted);
        json_decref(source);
    }
}

/* What no config.json can say is known before the training. */
static void inexpressible(void **unused)
{
    (void)unused;
    static const BurstRope bases[] = {{.theta = 500000}, {.theta = 10000}};
    static const int second[LAYERS] = {0, 1, 0};
    BurstCtx c = {.rank = -1};
    Shape s;
    shape_for(&s, 1, false);
    assert_int_equal(config_check_export(&c, &s.plan, "out", NULL), BURST_OK);
    s.plan.softcap = 50;
    assert_int_equal(config_check_export(&c, &s.plan, "out", NULL), BURST_E_USAGE);
    assert_non_null(strstr(burst_error(&c),
                           "cannot export to 'out': no config.json of a llama describes this "
                           "model: softcap is 50 in the plan"));
    s.plan.softcap = 0;
    s.plan.family = "smollm3";
    s.plan.ropes = bases, s.plan.layer_rope = second;
    assert_int_equal(config_check_export(&c, &s.plan, "out", NULL), BURST_E_USAGE);
    assert_non_null(strstr(burst_error(&c), "the rope of layer 1 is 500000, and the plan's is 10000"));
}

/* A folder that fits, then one thing in it changed by a shell command. */
static void folders_that_do_not_fit(void **unused)
{
    (void)unused;
    static const struct { const char *command; int code; const char *text;
    } cases[] = {
        {"true", 0, ""},
        {"rm config.json", 1, "'out' cannot be used: it has no config.json, which describes the model"},
        {"echo '{' > config.json", 1, "out/config.json:2:0: "},
        {"echo '[1]' > config.json", 1, "config.json: expected a JSON object"},
        {"sed -i 's/\"hidden_size\": 4/\"hidden_size\": 8/' config.json", 2, "hidden_size is 8, expected 4"},
        {"sed -i '/\"hidden_size\"/d' config.json", 2, "config.json has no hidden_size"},
        {"sed -i 's/\"num_hidden_layers\": 3/\"num_hidden_layers\": 4/' config.json", 2,
         "num_hidden_layers is 4, expected 3"},
        {"sed -i 's/\"num_attention_heads\": 2/\"num_attention_heads\": 4/' config.json", 2,
         "num_attention_heads is 4"},
        {"sed -i '/num_key_value_heads/d' config.json", 2,
         "num_key_value_heads is 2 (by default), expected 1"},
        {"sed -i 's/\"head_dim\": 6/\"head_dim\": null/' config.json", 2,
         "head_dim is 2 (by default), expected 6"},
        {"sed -i 's/\"intermediate_size\": 7/\"intermediate_size\": 7.5/' config.json", 2,
         "intermediate_size is 7.5"},
        {"sed -i 's/\"vocab_size\": 5/\"vocab_size\": \"5\"/' config.json", 2,
         "vocab_size is \"5\", expected 5"},
        {"sed -i 's/1e-5/0.00001/' config.json", 0, ""},
        {"sed -i 's/1e-5/1e-6/' config.json", 2, "rms_norm_eps is 1e-6, expected 1e-5"},
        {"sed -i 's/500000.0/500000/' config.json", 0, ""},
        {"sed -i 's/500000.0/10000/' config.json", 2, "rope_theta is 10000, expected 500000.0"},
        {"sed -i 's/500000.0/\"many\"/' config.json", 2, "rope_theta is \"many\""},
        {"sed -i 's/500000.0/500000.0, \"rope_parameters\": [1]/' config.json", 2,
         "rope_parameters is [1]; only"},
        {"sed -i '/rope_theta/d' config.json", 2, "rope_theta is 10000.0 (by default)"},
        {"sed -i 's/\"rope_theta\": 500000.0/\"rope_parameters\": {\"rope_theta\": 500000, \"rope_type\": "
         "\"default\"}/' config.json",
         0, ""},
        {"sed -i 's/\"rope_theta\": 500000.0/\"rope_parameters\": {\"rope_theta\": 1000}/' config.json", 2,
         "rope_theta is 1000"},
        {"sed -i 's/\"rope_scaling\": null/\"rope_parameters\": {\"rope_theta\": 1000}/' config.json", 2,
         "rope_theta is 500000.0, but "},
        {"sed -i 's/\"rope_scaling\": null/\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}/' "
         "config.json",
         2, "rope_scaling is {"},
        {"sed -i 's/\"rope_scaling\": null/\"rope_scaling\": {\"factor\": 8.0}/' config.json", 2,
         "rope_scaling is {\"factor\":8.0}; only"},
        {"sed -i 's/\"rope_scaling\": null/\"rope_scaling\": {}/' config.json", 0, ""},
        {"sed -i 's/\"rope_scaling\": null/\"rope_parameters\": {\"rope_type\": \"llama3\"}/' config.json", 2,
         "rope_parameters is {"},
        {"sed -i 's/\"rope_scaling\": null/\"rope_scaling\": 2/' config.json", 2, "rope_scaling is 2; only"},
        {"sed -i 's/\"rope_scaling\": null/\"partial_rotary_factor\": 0.5/' config.json", 2,
         "partial_rotary_factor is 0.5"},
        {"sed -i 's/\"rope_scaling\": null/\"quantization_config\": {}/' config.json", 2,
         "quantization_config is {}; only null is supported"},
        {"sed -i 's/\"tie_word_embeddings\": false/\"tie_word_embeddings\": true/' config.json", 2,
         "tie_word_embeddings is true"},
        {"sed -i 's/silu/gelu/' config.json", 2, "hidden_act is \"gelu\", expected \"silu\""},
        {"sed -i 's/\"attention_bias\": false/\"attention_bias\": true/' config.json", 2,
         "attention_bias is true"},
        {"sed -i 's/\"mlp_bias\": false/\"mlp_bias\": true/' config.json", 2, "mlp_bias is true"},
        {"sed -i 's/\"rope_scaling\"/\"attn_logit_softcapping\": 50, \"rope_scaling\"/' config.json", 2,
         "attn_logit_softcapping is 50, which transformers does not read of a llama; remove it"},
        {"sed -i 's/\"rope_scaling\"/\"attn_logit_softcapping\": null, \"rope_scaling\"/' config.json", 0,
         ""},
        {"sed -i 's/\"llama\"/\"gpt2\"/' config.json", 2, "model_type is \"gpt2\"; known are llama, "},
        {"sed -i 's/\"rope_scaling\"/\"burst_attention\": [\"full\"], \"rope_scaling\"/' config.json", 2,
         "burst_attention differs from the plan's masks; use --plan-masks"},
        {"sed -i 's/\"hidden_size\": 4/\"hidden_size\": 8/; s/silu/gelu/' config.json; sed -i "
         "'s/lm_head.weight/lm_tail.weight/' *",
         2,
         "'out' does not match the plan: hidden_size is 8, expected 4; hidden_act is \"gelu\", "
         "expected \"silu\"; "
         /* all in one message */
         "tensor lm_head.weight is missing; tensor lm_tail.weight is not part of the model"},
        {"rm config.json && mkfifo config.json", 1,
         "cannot read 'out/config.json': it is not a regular file"},
        {"rm config.json && ln -s /dev/zero config.json", 1,
         "cannot read 'out/config.json': it is not a regular file"},
        {"rm config.json && mkdir config.json", 1, "cannot read 'out/config.json': it is not a regular file"},
        {"rm *.index.json && mkfifo model.safetensors.index.json", 1,
         "cannot read 'out/model.safetensors.index.json': it is not a regular"},
        {"rm *.index.json && mkfifo model.safetensors", 1,
         "cannot read 'out/model.safetensors': it is not a regular file"},
        {"rm model-00002* && mkfifo model-00002-of-00003.safetensors", 1,
         "model-00002-of-00003.safetensors': it is not a regular file"},
        {"printf '{\"a\": \"\\033[2J' > config.json", 1,
         "out/config.json:1:"}, /* jansson's own words quote the text */
        {"sed -i 's/\"hidden_size\"/\"x\\\\u001b[2J\\\\u202e\": 1, \"hidden_size\"/' config.json", 2,
         "unknown field x\\x1b[2J\\xe2\\x80\\xae"},
        {"sed -i 's/\"llama\"/\"\\\\u009b2J\"/' config.json", 2, "model_type is \"\\xc2\\x9b2J\""},
        {"sed -i 's/model-00001-of-00003/m\\\\u001b[2J\\\\u00e4/' *.index.json", 1,
         "out/m\\x1b[2J\u00e4.safetensors': No such file"},
        {"sed -i 's/lm_head.weight/lm_\\\\u202eh.weight/' *.index.json", 1,
         "lists lm_\\xe2\\x80\\xaeh.weight in model-"},
        {"rm model.safetensors.index.json", 1,
         "'out' cannot be used: it has model-00001-of-00003.safetensors, but model.safetensors.index.json"},
        {"rm *.safetensors *.index.json", 1, "'out' has neither model.safetensors nor"},
        {"rm *.safetensors *.index.json && touch pytorch_model.bin", 1,
         "'out' cannot be used: convert its weights (pytorch_model.bin) first, in Python: transformers."},
        {"echo '{\"peft_type\": \"LORA\", \"base_model_name_or_path\": \"a/b\"}' > adapter_config.json",
         1,
         "'out' cannot be used: it has an adapter (adapter_config.json: LORA of a/b); merge it"},
        {"sed -i 's/model.embed_t/module.mbed_t/' *", 1,
         "'out' cannot be used: its tensors' names (module.mbed_tokens.weight) are those of Distributed"},
        {"echo 'version https://git-lfs.github.com/spec/v1' > model-00002-of-00003.safetensors", 1,
         "'out' cannot be used: 'out/model-00002-of-00003.safetensors' is a git-lfs pointer"},
        {"sed -i 's/\"rope_scaling\"/\"quantization_config\": {\"quant_method\": \"awq\"}, &/' *", 2,
         "'out' cannot be used: config.json says that the weights are quantized (awq), but none of them is"},
        {"sed -i 's/\"rope_scaling\": null/\"limit\": -Infinity/' config.json", 1,
         ": limit is -Infinity, which JSON does not have; write -1e308 instead"},
        {"echo '{}' > model.safetensors.index.json", 1, "has no weight_map"},
        {"echo '{\"weight_map\": {\"a\": 3}}' > model.safetensors.index.json", 1,
         "a is in a file whose name"},
        {"echo '{\"weight_map\": {}}' > model.safetensors.index.json", 1, "lists no tensors"},
        {"sed -i 's/model-00001/..\\/model-00001/' *.index.json", 1,
         "whose name does not end in .safetensors"},
        {"sed -i 's/00001-of-00003.safetensors/00001/' *.index.json", 1,
         "whose name does not end in .safetensors"},
        {"sed -i '0,/00001-of/s/00001-of/00002-of/' *.index.json", 1, "which does not have it"},
        {"sed -i '/layers.1.self_attn/d' *.index.json", 1,
         "model.layers.1.self_attn.o_proj.weight in model-00002-of-00003.safetensors is missing from the "
         "index"},
        {"sed -i 's/lm_head.weight/lm_tail.weight/' *", 2,
         "tensor lm_head.weight is missing; tensor lm_tail.weight is not part of the model"},
        {"sed -i 's/model.layers.1.self_attn/model.layers.9.self_attn/' *", 2,
         "tensor model.layers.1.self_attn.o_proj.weight is missing"},
        {"rm model-00002*", 1, "cannot read 'out/model-00002-of-00003.safetensors'"},
        {"truncate -s -1 model-00002*", 1, "'out/model-00002-of-00003.safetensors' is truncated"},
        {"sed -i 's/\\[7,4\\]/[4,7]/' *.safetensors", 2,
         "self_attn.o_proj.weight is [4, 7], expected [7, 4]"},
        {"sed -i 's/:\\[4\\],/:[2,2],/; s/      *$//' model-00002*", 1, ""},
        {"sed -i 's/F32/I32/' model-00003*", 2, "is I32, expected F32, BF16 or F16"},
    };
    Shape s;
    shape_for(&s, 3, false);
    shell("rm -rf out kept");
    expect_job(&s, write_body, (Order){"kept", BURST_F32, 300, false}, 0, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Outcome o = run_command("rm -rf out && cp -r kept out && cd out && %s", cases[i].command);
        assert_int_equal(o.code, 0);
        Outcome out = run_job(&s.plan, "20", read_body, &(Order){"out", BURST_F32, 0, false});
        if (out.code != cases[i].code || !strstr(out.text, cases[i].text))
            print_error("%s: expected code %d and '%s': code %d, %s\n", cases[i].command, cases[i].code,
                        cases[i].text, out.code, out.text);
        assert_int_equal(out.code, cases[i].code);
        assert_non_null(strstr(out.text, cases[i].text));
        assert_null(strpbrk(out.text, "\x1b\x9b")); /* nothing that a terminal obeys */
        assert_null(strstr(out.text, "\u202e"));
    }
}

/* A file of one tensor beside a folder in one file is seen only through an index. */
static void tensors_besides(void **unused)
{
    (void)unused;
    static const struct { const char *name; bool tied; const char *text;
    } cases[] = {{"model.layers.0.self_attn.rotary_emb.inv_freq", false, ""},
                 /* tests/training/run_configs.py: other values */
                 {"lm_head.weight", true, "lm_head.weight is [2], expected [5, 4]"},
                 {"lm_head.weight", false, "is in both a.safetensors and b.safetensors"},
                 {"model.layers.0.self_attn.q_proj.bias", false,
                  "tensor model.layers.0.self_attn.q_proj.bias is not part of the model"},
                 {"model.layers.0.self_attn.sinks", false,
                  "tensor model.layers.0.self_attn.sinks is not part of the model"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[200], map[4096] = "{\"weight_map\": {";
        static const char data[8];
        Shape s;
        StFile f;
        shape_for(&s, 2, cases[i].tied);
        shell("rm -rf out");
        expect_job(&s, write_body, (Order){"out", BURST_F32, ST_SHARD_BYTES, false}, 0, "");
        shell("mv out/model.safetensors out/a.safetensors");
        snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
                 cases[i].name);
        put_tensors("out/b.safetensors", header, data, sizeof data);
        assert_int_equal(safetensors_open(&ctx, "out/a.safetensors", &f), BURST_OK);
        for (int t = 0; t < f.tensors; t++)
            if (strcmp(f.tensor[t].name, cases[i].name) != 0)
                snprintf(map + strlen(map), sizeof map - strlen(map), "\"%s\": \"a.safetensors\", ",
                         f.tensor[t].name);
        safetensors_close(&f);
        snprintf(map + strlen(map), sizeof map - strlen(map), "\"%s\": \"b.safetensors\"}}", cases[i].name);
        put_file("out/model.safetensors.index.json", map, strlen(map));
        Outcome out = run_job(&s.plan, "20", read_body, &(Order){"out", BURST_F32, 0, false});
        assert_int_equal(out.code == 0, !*cases[i].text);
        if (!strstr(out.text, cases[i].text))
            fail_msg("expected '%s' in: %s", cases[i].text, out.text);
    }
}

static void folders_in_the_way(void **unused)
{
    (void)unused;
    Shape s;
    Order o = {"out", BURST_F32, 300, false};
    shape_for(&s, 3, false);
    shell("rm -rf out out.part && mkdir out");
    expect_job(&s, write_body, o, 0, ""); /* an empty folder is taken */
    expect_job(&s, write_body, o, 2, "cannot export to 'out': the directory is not empty; choose another");
    expect_job(&s, read_body, o, 0, ""); /* and nothing has happened to it */
    expect_job(&s, write_body, (Order){"none/out", BURST_F32, 300, false}, 2,
               "cannot write in 'none': No such file");
    expect_job(&s, write_body, (Order){"out/config.json", BURST_F32, 300, false}, 2,
               "cannot export to 'out/config.json': Not a directory");
    shell("rm -rf out && mkdir out.part && echo x > out.part/model-00001-of-00009.safetensors && echo x > "
          "out.part/.written-by-1");
    expect_job(&s, write_body, o, 0, ""); /* what an interrupted export left */
    expect_job(&s, read_body, o, 0, "");
    shell("rm -rf out && mkdir out.part && echo x > out.part/thesis.tex");
    expect_job(&s, write_body, o, 2,
               "cannot export to 'out': 'out.part' is in the way and has files that no export wrote");
    shell("test -f out.part/thesis.tex && rm -rf out.part");
}

/* Rank 1 sees another file system: without the folder, or with an old one of the same name. */
static void hosts_without_a_common_file_system(void **unused)
{
    (void)unused;
    Shape s;
    shape_for(&s, 3, false);
    Order o = {"out", BURST_F32, ST_SHARD_BYTES, true};
    shell("rm -rf out out.part elsewhere && mkdir elsewhere");
    expect_job(
        &s, write_body, o, 1,
        "but rank 1 cannot see it; with ranks on several hosts, --export requires a shared file system");
    shell("test ! -e out && mkdir elsewhere/out.part && echo x > elsewhere/out.part/model.safetensors");
    expect_job(&s, write_body, o, 1, "rank 1 did not write to 'out.part' of rank 0");
    shell("test ! -e out");
}

/* ---- the program's options ---- */

static void program_options(void **unused)
{
    (void)unused;
    static const struct { const char *options; int code; const char *text;
    } cases[] = {
        {"--steps 3 --export a --export-dtype f32", 0, "wrote the weights to a as F32"},
        {"--steps 3 --export a", 2, "cannot export to 'a': the directory is not empty"},
        {"--steps 0 --weights a --export b --export-dtype f32", 0, "wrote the weights to b as F32"},
        {"--steps 0 --weights a --export c", 0, "wrote the weights to c as BF16"},
        {"--steps 1 --weights c --checkpoint ck", 0, "step 1/1"},
        {"--steps 3 --weights a --resume --checkpoint ck", 2, "--resume cannot be combined with --weights"},
        {"--steps 1 --resume --checkpoint ck --export d", 0, "wrote the weights to d as BF16"},
        {"--steps 3 --plan-masks", 2, "--plan-masks requires --weights DIR"},
        {"--steps 3 --plan-rope", 2, "--plan-rope requires --weights DIR"},
        {"--steps 3 --export-dtype f32", 2, "--export-dtype requires --export DIR"},
        {"--steps 3 --export e --export-dtype f16", 2, "--export-dtype is 'f16', expected bf16|f32"},
        {"--steps 3 --export e --checkpoint e", 2, "--export e is the same directory as --checkpoint e"},
        {"--steps 3 --export nowhere/e", 2, "cannot write in 'nowhere'"},
        {"--steps 3 --weights nowhere", 1, "'nowhere/config.json': No such file"},
    };
    shell("rm -rf a b c d e ck");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Outcome o = run_command("MINI='%d 1 0 4 12 -1' $MINI_MAIN %s", 1 + (int)i % 4, cases[i].options);
        if (o.code != cases[i].code || !strstr(o.text, cases[i].text))
            print_error("%s: expected code %d and '%s': code %d, %s\n", cases[i].options, cases[i].code,
                        cases[i].text, o.code, o.text);
        assert_int_equal(o.code, cases[i].code);
        assert_non_null(strstr(o.text, cases[i].text));
    }
    shell("cmp a/model.safetensors b/model.safetensors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves),
        cmocka_unit_test(bf16_is_nearest),
        cmocka_unit_test(good_files),
        cmocka_unit_test(malformed_headers),
        cmocka_unit_test(malformed_files),
        cmocka_unit_test(unread_dtypes),
        cmocka_unit_test(mutated_headers),
        cmocka_unit_test(any_world_to_any_world),
        cmocka_unit_test(bytes_are_the_format),
        cmocka_unit_test(config_says_the_plan),
        cmocka_unit_test(config_keeps_the_types),
        cmocka_unit_test(inexpressible),
        cmocka_unit_test(folders_that_do_not_fit),
        cmocka_unit_test(tensors_besides),
        cmocka_unit_test(folders_in_the_way),
        cmocka_unit_test(hosts_without_a_common_file_system),
        cmocka_unit_test(program_options),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
