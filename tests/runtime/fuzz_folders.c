/* fuzz_folders.c: folders of weights that are almost right: config.json of published models, an index,
 * headers of safetensors, each with a few changes drawn from a seed. Whatever they hold, import and the
 * comparison with a plan end in a model or in messages without control characters; built with sanitizers.
 *
 *     fuzz_folders PUBLISHED.json FOLDERS [SEED]
 */
#include "core/context.h"
#include "safetensors/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_MOST = 1 << 16, DEEPEST = 4000, SEEDS_MOST = 128 };

static uint64_t state;
static BurstCtx ctx;
static json_t *seeds[SEEDS_MOST];
static int seed_count;
static long models, refused;

static uint32_t draw(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) % below);
}

/* ---- changes of a text ---- */

typedef struct Bytes {
    size_t n;
    char at[TEXT_MOST];
} Bytes;

static void put(Bytes *b, size_t at, const char *text, size_t n)
{
    if (b->n + n > sizeof b->at)
        return;
    memmove(b->at + at + n, b->at + at, b->n - at);
    memcpy(b->at + at, text, n);
    b->n += n;
}

static void nest(Bytes *b, size_t at)
{
    char deep[DEEPEST];
    const size_t n = 1 + draw(DEEPEST);
    memset(deep, draw(2) ? '[' : '{', n);
    put(b, at, deep, n);
}

static void change_bytes(Bytes *b)
{
    static const char *const words[] = {
        "1e400",
        "-1",
        "1e308",
        "18446744073709551616",
        "9223372036854775807",
        "0.0",
        "null",
        "true",
        "[]",
        "{}",
        "\"",
        "\\",
        "\\u0000",
        "\xff\xfe",
        ",",
        "}",
        "]",
        "-0",
        "1e-320",
        "2147483648",
        "\"x\":1,",
        "\\ud800",
        "NaN",
        "\0",
    };
    const size_t at = draw((uint32_t)b->n + 1), word = draw(sizeof words / sizeof *words);
    switch (draw(6)) {
    case 0: b->n = at; break;
    case 1: nest(b, at); break;
    case 2: put(b, at, words[word], strlen(words[word])); break;
    case 3:
        if (at < b->n)
            memmove(b->at + at, b->at + at + 1, --b->n - at);
        break;
    default:
        if (at < b->n)
            b->at[at] ^= (char)(1 << draw(8));
    }
}

/* ---- changes of a value ---- */

static json_t *any_value(void)
{
    static const char *const texts[] = {
        "0",
        "-1",
        "1",
        "2",
        "3",
        "7.5",
        "1e-300",
        "1e300",
        "2147483647",
        "2147483648",
        "9223372036854775807",
        "-9223372036854775808",
        "null",
        "true",
        "false",
        "\"\"",
        "\"silu\"",
        "\"sliding_attention\"",
        "[]",
        "{}",
        "[null]",
        "[[1]]",
        "[\"full_attention\"]",
        "{\"rope_type\":\"yarn\",\"factor\":8,\"original_max_position_embeddings\":4096}",
        "{\"rope_type\":\"llama3\",\"factor\":0}",
        "{\"full_attention\":{\"rope_theta\":1},\"sliding_attention\":7}",
        "{\"rope_type\":\"dynamic\",\"factor\":2}",
        "{\"type\":[]}",
        "{\"rope_type\":\"linear\",\"factor\":4,\"partial_rotary_factor\":0.5}",
        "1e6",
        "0.001",
        "64",
        "4096",
        "131072",
        "\"\\u0000\"",
    };
    const size_t i = draw(sizeof texts / sizeof *texts);
    return json_loads(texts[i], JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

static const char *any_key(json_t *object)
{
    uint32_t i = json_object_size(object) ? draw((uint32_t)json_object_size(object)) : 0;
    void *at = json_object_iter(object);
    for (; at && i > 0; i--)
        at = json_object_iter_next(object, at);
    return at ? json_object_iter_key(at) : NULL;
}

static void change_value(json_t *config)
{
    json_t *other = seeds[draw((uint32_t)seed_count)];
    const char *here = any_key(config), *there = any_key(other);
    const uint32_t kind = draw(4);
    if (kind == 0 && there)
        json_object_set(config, there, json_object_get(other, there));
    else if (kind == 1 && here)
        json_object_del(config, here);
    else if (kind == 2 && there)
        json_object_set_new(config, there, any_value());
    else if (here)
        json_object_set_new(config, here, any_value());
}

/* ---- files ---- */

static void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) {
        perror(path);
        exit(2);
    }
}

static void take_text(Bytes *b, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);
    b->n = text ? strlen(text) : 0;
    b->n = b->n < sizeof b->at ? b->n : sizeof b->at;
    if (text)
        memcpy(b->at, text, b->n);
    free(text);
}

static void write_changed(const char *path, const json_t *value, bool changed)
{
    static Bytes b;
    take_text(&b, value);
    for (uint32_t n = changed ? draw(4) : 0; n > 0; n--)
        change_bytes(&b);
    write_file(path, b.at, b.n);
}

/* The tensors of a plan, in one file; header and length changed. */
static void write_weights(const char *path, const BurstPlan *p, const Family *family)
{
    static Bytes b;
    json_t *header = json_object();
    int64_t at = 0;
    for (int u = 0; u < burst_unit_count(p); u++)
        for (int t = 0; t < burst_unit(p, u)->tensors; t++) {
            const Naming naming = naming_of(family, 0);
            const StPlace place = tensor_place(p, &naming, u, &burst_unit(p, u)->tensor[t]);
            const int64_t bytes = 2 * place.shape[0] * (place.dims == 2 ? place.shape[1] : 1);
            json_t *shape = place.dims == 2
                                ? json_pack("[I,I]", (json_int_t)place.shape[0], (json_int_t)place.shape[1])
                                : json_pack("[I]", (json_int_t)place.shape[0]);
            json_object_set_new(header, place.name,
                                json_pack("{s:s,s:o,s:[I,I]}", "dtype", "BF16", "shape", shape,
                                          "data_offsets", (json_int_t)at, (json_int_t)(at + bytes)));
            at += bytes;
        }
    const char *one = any_key(header);
    if (draw(2) && one)
        json_object_set_new(json_object_get(header, one), draw(2) ? "shape" : "data_offsets", any_value());
    take_text(&b, header);
    for (uint32_t n = draw(3); n > 0; n--)
        change_bytes(&b);
    uint64_t length = b.n;
    length ^= draw(8) ? 0 : UINT64_C(1) << draw(64);
    b.n = b.n < sizeof b.at - 8 ? b.n : sizeof b.at - 8;
    put(&b, 0, (const char *)&length, 8);
    write_file(path, b.at, b.n);
    if (truncate(path, (off_t)b.n + at + (draw(6) ? 0 : (off_t)draw(9) - 4)) != 0)
        exit(2);
    json_decref(header);
}

/* ---- what must hold ---- */

static void require(bool holds, const char *what, const char *text)
{
    if (holds)
        return;
    fprintf(stderr, "%s: %s\n", what, text);
    abort();
}

static void check_text(void *to, const char *text)
{
    int *count = to;
    ++*count;
    require(*text, "an empty message", text);
    for (const char *c = text; *c; c++)
        require((unsigned char)*c >= 0x20 && *c != 0x7f, "a control character", text);
}

static int messages(const Misfits *m)
{
    int told = 0;
    for (int kind = MISFIT_MODEL; kind <= MISFIT_LENGTH; kind++)
        misfits_tell(m, (MisfitKind)kind, check_text, &told);
    require(m->count == 0 || told > 0, "misfits without a message", "");
    return told;
}

static void check_failure(int status)
{
    int n = 0;
    if (status != BURST_OK)
        check_text(&n, burst_error(&ctx));
}

static void import_it(void)
{
    char *text = NULL;
    size_t n = 0;
    bool written;
    Misfits m = {0};
    FILE *out = open_memstream(&text, &n);
    const int status = folder_import(&ctx, "folder", out, &m, &written);
    fclose(out);
    check_failure(status);
    const bool is_model = messages(&m) == 0 && status == BURST_OK;
    require(!is_model || (written && n > 0), "neither a model nor a message", text);
    models += is_model;
    refused += !is_model;
    misfits_close(&m);
    free(text);
}

static void compare_with(const BurstPlan *p)
{
    HfFolder f = {.path = "folder"};
    Misfits m = {0};
    const int status = folder_open(&ctx, p, &f, &m);
    check_failure(status);
    messages(&m);
    folder_close(&f);
    check_failure(misfits_end(&ctx, &m, "folder", status));
}

/* ---- plans ---- */

static const BurstTensor embed[] = {{"model.embed_tokens.weight", 8, 4, 0, 0.02f}};
static const BurstTensor layer[] = {{"input_layernorm.weight", 1, 4, 0, 0},
                                    {"self_attn.q_proj.weight", 4, 4, 4, 0.02f},
                                    {"self_attn.k_proj.weight", 4, 4, 20, 0.02f},
                                    {"self_attn.v_proj.weight", 4, 4, 36, 0.02f},
                                    {"mlp.gate_proj.weight", 6, 4, 52, 0.02f},
                                    {"mlp.up_proj.weight", 6, 4, 76, 0.02f}};
static const BurstTensor head[] = {{"model.norm.weight", 1, 4, 0, 0}, {"lm_head.weight", 8, 4, 4, 0.02f}};

/* What a published config.json says, so that what is changed in it is what differs; tensors are small. */
static BurstPlan plan_of(const json_t *config, BurstUnit units[3])
{
    Misfits m = {0};
    static HfModel there; /* the plan's RoPE points into it */
    there = (HfModel){0};
    model_read(&m, config, NULL, &there);
    misfits_close(&m);
    units[0] = (BurstUnit){"model.embed_tokens", 32, 32, 1, embed, 1};
    units[1] = (BurstUnit){"model.layers.%d", 100, 100, 6, layer, (int)there.layers};
    units[2] = (BurstUnit){"head", 36, 36, there.tied ? 1 : 2, head, 1};
    BurstPlan p = {.sequence = 4096,
                   .layers = (int)there.layers,
                   .hidden = (int)there.hidden,
                   .heads = (int)there.heads,
                   .kv_heads = (int)there.kv_heads,
                   .head_dim = (int)there.head_dim,
                   .value_dim = (int)there.value_dim,
                   .latent = (int)there.latent,
                   .query_latent = (int)there.query_latent,
                   .ffn = (int)there.ffn,
                   .vocab = (int)there.vocab,
                   .tied = there.tied,
                   .family = there.family->type,
                   .norm_eps = there.norm_eps,
                   .rope = there.rope,
                   .layer = there.parts.layer,
                   .units = units,
                   .unit_rows = 3};
    memcpy(p.scale, there.scale, sizeof p.scale);
    return p;
}

static void write_folder(const json_t *seed, const BurstPlan *p)
{
    json_t *config = json_deep_copy(seed);
    const Family *family = family_named(p->family);
    const bool indexed = draw(3) == 0;
    for (uint32_t n = draw(3); n > 0; n--)
        change_value(config);
    write_changed("folder/config.json", config, draw(2));
    unlink("folder/model.safetensors");
    write_weights(indexed ? "folder/a.safetensors" : "folder/model.safetensors", p, family);
    json_t *index = json_pack("{s:{s:s,s:s,s:s}}", "weight_map", "model.norm.weight", "a.safetensors",
                              "lm_head.weight", "b.safetensors", "model.embed_tokens.weight",
                              draw(2) ? "a.safetensors" : "../c.safetensors");
    write_changed("folder/model.safetensors.index.json", index, draw(2));
    json_decref(index);
    json_decref(config);
}

static void read_seeds(const char *path)
{
    const char *name;
    json_t *value, *all = json_load_file(path, 0, NULL);
    require(json_is_object(all), "no seeds in", path);
    json_object_foreach(all, name, value) if (seed_count < SEEDS_MOST)
        seeds[seed_count++] = json_incref(value);
    json_decref(all);
}

static void clear(const char *place)
{
    static const char *const files[] = {"config.json", "model.safetensors", "a.safetensors",
                                        "model.safetensors.index.json"};
    char path[256];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "folder/%s", files[i]);
        unlink(path);
    }
    require(rmdir("folder") == 0 && rmdir(place) == 0, "cannot remove", place);
}

int main(int argc, char **argv)
{
    char place[] = "/tmp/burst_fuzz_XXXXXX";
    if (argc < 3)
        return 2;
    read_seeds(argv[1]);
    state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    if (!mkdtemp(place) || chdir(place) != 0 || mkdir("folder", 0700) != 0)
        return 2;
    ctx.rank = -1;
    for (long i = 0, n = atol(argv[2]); i < n; i++) {
        BurstUnit units[3];
        const json_t *seed = seeds[i % seed_count];
        const BurstPlan p = plan_of(seed, units);
        write_folder(seed, &p);
        import_it();
        if (p.kv_heads > 0) /* a plan has some; published layers of other kinds may have none */
            compare_with(&p);
    }
    for (int i = 0; i < seed_count; i++)
        json_decref(seeds[i]);
    printf("%ld models, %ld refused\n", models, refused);
    require(models > 0 && refused > 0, "only one outcome", "");
    clear(place);
    return 0;
}
