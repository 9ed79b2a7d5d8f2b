/* svg.c: a small SVG writer: escaped text and boxes, grids of shaded cells, axes, and panels. */
#include "base/escape.h"
#include "tools/pictures/pictures.h"

#include <math.h>
#include <string.h>

/* Okabe and Ito's colours, which are distinguishable with red-green blindness; shades differ in
 * lightness. */
const char svg_style[] =
    ":root{--bg:#fff;--ink:#1b1f24;--dim:#57606a;--grid:#c9ced4;--p1:#fbe3c4;--p2:#f5bd78;--p3:#e58f2e;--p4:#"
    "b96207;--p5:#0b5fa5;"
    "--h1:#dbe9f6;--h2:#a6cbe8;--h3:#63a6d4;--h4:#2b7bba;--h5:#084a91;--o1:#111;--o2:#fff;--t0:#007d5b;--t1:#"
    "d98a00;--t2:#b4528a;"
    "--t4:#cf4f00}@media(prefers-color-scheme:dark){:root{--bg:#14171b;--ink:#e6e9ec;--dim:#a5adb6;--grid:#"
    "3d444d;--p1:#5c401c;"
    "--p2:#8c5d20;--p3:#c27f28;--p4:#f7b555;--p5:#58abec;--h1:#16304a;--h2:#1d4f7c;--h3:#2f79b8;--h4:#63a8dd;"
    "--h5:#b9dcf8;"
    "--o1:#fff;--o2:#111;--t0:#2fc497;--t1:#f0a92c;--t2:#dd8fbb;--t4:#f5803c}}"
    "svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg .b{font-weight:600;font-size:14px}svg "
    ".d{fill:var(--dim)}"
    "svg .s{font-size:10px}svg .e{text-anchor:end}svg "
    ".m{text-anchor:middle}.tick{fill:var(--grid)}.bg{fill:var(--bg)}"
    ".frame{fill:none;stroke:var(--grid);pointer-events:all}.ex{fill:var(--bg);stroke:var(--grid)}"
    ".p1{fill:var(--p1)}.p2{fill:var(--p2)}.p3{fill:var(--p3)}.p4{fill:var(--p4)}.p5{fill:var(--p5)}.h1{fill:"
    "var(--h1)}"
    ".h2{fill:var(--h2)}.h3{fill:var(--h3)}.h4{fill:var(--h4)}.h5{fill:var(--h5)}.t0{fill:var(--t0)}.t1{fill:"
    "var(--t1)}"
    ".t2,.t3{fill:var(--t2)}.t4{fill:var(--t4)}svg .o1,svg .o2,svg .o3{fill:var(--o1)}svg .o4,svg "
    ".o5{fill:var(--o2)}";

/* ---- text and boxes ---- */

/* XML cannot represent control characters, U+FFFE or U+FFFF. */
static int printable_length(const char *s)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80)
        return u[0] >= 0x20 && u[0] < 0x7f;
    const bool control = u[0] == 0xc2 && u[1] < 0xa0, none = u[0] == 0xef && u[1] == 0xbf && u[2] >= 0xbe;
    return control || none ? 0 : utf8_length(u, strlen(s));
}

void svg_escape(const char *text, Text *out)
{
    for (const char *s = text; *s;) {
        const int n = printable_length(s);
        if (strchr("<>&\"'", *s))
            text_printf(out, "&#%d;", *s);
        else if (n)
            text_add_n(out, s, (size_t)n);
        else
            text_printf(out, "&#60;%02X&#62;", (unsigned char)*s);
        s += n ? n : 1;
    }
}

const char *svg_short(Arena *a, const char *text, int most)
{
    const int n = (int)strlen(text);
    while (n > most && ((unsigned char)text[most] & 0xc0) == 0x80)
        most--;
    return n <= most ? text : arena_printf(a, "%.*s\xe2\x80\xa6 (%d characters)", most, text, n);
}

Panel *panel_new(Arena *a, const char *title, double width, double height)
{
    Panel *p = NEW(a, Panel);
    *p = (Panel){.title = title, .width = width, .height = height};
    svg_text(p, 0, 16, "b", "%s", title);
    return p;
}

void svg_text(Panel *p, double x, double y, const char *class, const char *fmt, ...)
{
    Text t = {0};
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(&t, fmt, ap);
    va_end(ap);
    text_printf(&p->body, "<text x=\"%.6g\" y=\"%.6g\" class=\"%s\">", x, y, class);
    svg_escape(t.at, &p->body);
    text_add(&p->body, "</text>\n");
    text_free(&t);
}

void svg_rect(Panel *p, double x, double y, double w, double h, const char *class, const char *title)
{
    text_printf(&p->body, "<rect x=\"%.6g\" y=\"%.6g\" width=\"%.6g\" height=\"%.6g\" class=\"%s\"", x, y, w,
                h, class);
    text_add(&p->body, title ? "><title>" : "/>\n");
    if (!title)
        return;
    svg_escape(title, &p->body);
    text_add(&p->body, "</title></rect>\n");
}

/* ---- grids ---- */

int svg_level(double share)
{
    if (share <= 0)
        return 0;
    return share >= 1 ? SVG_LEVELS : 1 + (int)(share * (SVG_LEVELS - 1));
}

/* Whether a row has exactly this run of one level. */
static bool has_run(const Grid *g, const uint8_t *cell, int y, int x, int end, int level)
{
    if (y < 0 || y >= g->rows)
        return false;
    const uint8_t *row = cell + (size_t)y * (size_t)g->columns;
    for (int i = x; i < end; i++)
        if (row[i] != level)
            return false;
    return (x == 0 || row[x - 1] != level) && (end == g->columns || row[end] != level);
}

/* Draws all cells of one level as one path. Equal runs in consecutive rows become one box. */
static void add_level(Panel *p, const Grid *g, const uint8_t *cell, int level)
{
    text_printf(&p->body, "<path class=\"%s%d\" d=\"", g->family, level);
    for (int y = 0; y < g->rows; y++)
        for (int x = 0, end, down; x < g->columns; x = end) {
            const uint8_t *row = cell + (size_t)y * (size_t)g->columns;
            for (end = x + 1; end < g->columns && row[end] == row[x];)
                end++;
            if (row[x] != level || has_run(g, cell, y - 1, x, end, level))
                continue;
            for (down = 1; has_run(g, cell, y + down, x, end, level);)
                down++;
            text_printf(&p->body, "M%d %dh%dv%dh-%dz", x, y, end - x, down, end - x);
        }
    text_add(&p->body, "\"/>\n");
}

void svg_grid(Panel *p, Arena *a, Grid g)
{
    uint8_t *cell = NEW_ARRAY(a, uint8_t, g.rows * g.columns);
    for (int i = 0; i < g.rows * g.columns; i++)
        cell[i] = (uint8_t)svg_level(g.share[i]);
    text_printf(&p->body,
                "<g shape-rendering=\"crispEdges\" transform=\"translate(%.6g %.6g) scale(%.9g %.9g)\">\n",
                g.x, g.y, g.w / g.columns, g.h / g.rows);
    for (int level = 1; level <= SVG_LEVELS; level++)
        add_level(p, &g, cell, level);
    text_add(&p->body, "</g>\n");
    svg_rect(p, g.x, g.y, g.w, g.h, "frame", NULL);
}

void svg_keys(Panel *p, double x, double y, double step, const Key *key, int n)
{
    for (int i = 0; i < n; i++) {
        svg_rect(p, x + i * step, y - 9, 10, 10, key[i].class, NULL);
        svg_text(p, x + i * step + 14, y, "s", "%s", key[i].text);
    }
}

/* ---- axes ---- */

const char *tokens_text(Arena *a, int64_t tokens)
{
    const bool mi = tokens >= 1 << 20, exact = tokens >= 1 << 10 && tokens % (mi ? 1 << 14 : 1 << 4) == 0;
    return exact ? arena_printf(a, "%.7g%s", (double)tokens / (mi ? 1 << 20 : 1 << 10), mi ? "Mi" : "Ki")
                 : arena_printf(a, "%lld", (long long)tokens);
}

/* A step with at most five ticks: a power of two for counts, else 1, 2 or 5 times a power of ten. */
static double tick_step(const Axis *x)
{
    if (x->unit == AXIS_ROWS)
        return exp2(ceil(log2(fmax(1, 12 * x->most / x->length))));
    if (x->unit != AXIS_DECIMAL)
        return fmax(1, exp2(ceil(log2(x->most / 5))));
    const double ten = pow(10, floor(log10(x->most / 5))), lead = x->most / 5 / ten;
    for (int step = 1; step <= 5; step += step == 1 ? 1 : 3) /* 1, 2, 5 */
        if (lead <= step)
            return ten * step;
    return ten * 10;
}

static void add_tick(Panel *p, Arena *a, const Axis *x, double value, bool band)
{
    const double part = (value + (band ? 0.5 : 0)) / x->most, at = (x->up ? 1 - part : part) * x->length;
    const bool down = x->down || x->up;
    const char *text = x->unit == AXIS_TOKENS
                           ? tokens_text(a, (int64_t)value)
                           : arena_printf(a, "%.6g",
                                          x->unit == AXIS_ROWS ? x->number[(int)value * x->per_row] : value);
    svg_rect(p, x->x + (down ? -4 : at), x->y + (down ? at : 0), down ? 4 : 1, down ? 1 : 4, "tick", NULL);
    svg_text(p, x->x + (down ? -7 : at), x->y + (down ? at + 4 : 15), down ? "s d e" : "s d m", "%s", text);
}

void svg_axis(Panel *p, Arena *a, Axis x)
{
    const bool band = x.unit == AXIS_COUNT || x.unit == AXIS_ROWS; /* each counted item has a band */
    const bool down = x.down || x.up;
    const double step = x.most > 0 ? tick_step(&x) : 0;
    for (int i = 0; step > 0 && i * step <= (band ? x.most - 1 : x.most * (1 + 1e-9)); i++)
        add_tick(p, a, &x, i * step, band);
    if (down)
        text_printf(&p->body, "<g transform=\"translate(%.6g %.6g) rotate(-90)\">\n", x.x - 44,
                    x.y + x.length / 2);
    svg_text(p, down ? 0 : x.x + x.length / 2, down ? 0 : x.y + 29, "s m", "%s", x.what);
    text_add(&p->body, down ? "</g>\n" : "");
}

/* ---- panels ---- */

static void open_svg(const char *title, double width, double height, const char *space, Text *out)
{
    text_printf(out, "<svg%s viewBox=\"0 0 %.6g %.6g\" width=\"%.6g\" height=\"%.6g\" role=\"img\">\n<title>",
                space, width, height, width, height);
    svg_escape(title, out);
    text_add(out, "</title>\n");
}

static void close_svg(Panel *p, const char *end, Text *out)
{
    text_add_n(out, p->body.at, p->body.n);
    text_add(out, end);
    text_free(&p->body);
}

void svg_inline(Panel *p, Text *out)
{
    open_svg(p->title, p->width, p->height, "", out);
    close_svg(p, "</svg>\n", out);
}

void svg_file(const char *title, Panel *const *panel, int n, Text *out)
{
    enum { EDGE = 16 };
    double width = 0, height = EDGE, y = EDGE;
    for (int i = 0; i < n; i++) {
        width = fmax(width, panel[i]->width + 2 * EDGE);
        height += panel[i]->height + EDGE;
    }
    text_add(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    open_svg(title, width, height, " xmlns=\"http://www.w3.org/2000/svg\"", out);
    text_printf(out, "<style>%s</style>\n<rect class=\"bg\" width=\"100%%\" height=\"100%%\"/>\n", svg_style);
    for (int i = 0; i < n; i++) {
        text_printf(out, "<g transform=\"translate(%d %.6g)\">\n", EDGE, y);
        y += panel[i]->height + EDGE;
        close_svg(panel[i], "</g>\n", out);
    }
    text_add(out, "</svg>\n");
}
