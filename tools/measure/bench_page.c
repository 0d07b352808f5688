/* SPDX-License-Identifier: MIT */
/*
 * The page: tables as text, plots as SVG inside it, no script. The published curves are those of
 * the profiles in the program.
 */
#include <math.h>
#include <string.h>

#include "measure/html.h"
#include "base/parse.h"
#include "sim/profile.h"
#include "measure/bench_show.h"
#include "wire/json.h"

#define WIDTH 400 /* of a plot, in units that are about one pixel on a phone */
#define HEIGHT 290
#define LEFT 46
#define RIGHT 18
#define TOP 10
#define BOTTOM 38
#define POINTS 24
#define SERIES 6
#define OWN 0
#define FORMER 1
#define PUBLISHED 2

static const char *const published[] = { "lexar-300x-8g", "kingston-266x-32g",
					 "sandisk-extreme-usb-16g-usb2", "hdd-5400-laptop" };
_Static_assert(PUBLISHED + ARRAY_SIZE(published) == SERIES, "a place for each curve");

static const char head[] =
	"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	"<meta name=\"color-scheme\" content=\"light dark\">\n"
	"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
	"'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n<title>Benchmark of ";
static const char style[] =
	"</title>\n<style>\n"
	":root { color-scheme: light dark; --bg: #f4f5f7; --card: #fff; --text: #1a1f26; --soft: "
	"#525b68; --line: #d5dae1; --grid: #e6e9ee;\n"
	"\t--c0: #1f6feb; --c1: #b8500a; --c2: #0f766e; --c3: #7e22ce; --c4: #be123c; --c5: "
	"#4d5a00; }\n"
	"@media (prefers-color-scheme: dark) { :root { --bg: #111418; --card: #1a1f25; --text: "
	"#e8ebef; --soft: #a9b3c0; --line: #38414c; --grid: #2a323b;\n"
	"\t--c0: #6ea8fe; --c1: #f5a35c; --c2: #5eead4; --c3: #c4a5fb; --c4: #fda4af; --c5: "
	"#d2e07a; } }\n"
	"* { box-sizing: border-box; }\n"
	"body { margin: 0; background: var(--bg); color: var(--text); font: 16px/1.5 system-ui, "
	"sans-serif; overflow-wrap: anywhere; }\n"
	"main { max-width: 1080px; margin: 0 auto; padding: 16px; }\n"
	"h1 { font-size: 1.5rem; line-height: 1.2; } h2 { font-size: 1.1rem; margin: 0 0 8px; }\n"
	"section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; "
	"padding: 16px; margin: 0 0 16px; }\n"
	".scroll { overflow-x: auto; }\n"
	"table { border-collapse: collapse; font-size: .9375rem; font-variant-numeric: "
	"tabular-nums; overflow-wrap: normal; }\n"
	"th, td { padding: 3px 10px 3px 0; border-bottom: 1px solid var(--grid); text-align: "
	"right; white-space: nowrap; font-weight: 400; }\n"
	"thead th { font-weight: 600; } th:first-child { text-align: left; }\n"
	".head td { text-align: left; white-space: normal; } .head th, footer, .keys { color: "
	"var(--soft); }\n"
	".plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), "
	"1fr)); gap: 0 24px; }\n"
	"svg { display: block; width: 100%; max-width: 560px; height: auto; } svg text { font: "
	"12px system-ui, sans-serif; fill: var(--soft); }\n"
	".g { stroke: var(--grid); } .l { fill: none; stroke-width: 2; } .d { stroke: none; }\n"
	".keys { list-style: none; margin: 4px 0 16px; padding: 0; display: flex; flex-wrap: "
	"wrap; gap: 0 16px; font-size: .875rem; }\n"
	".keys svg { display: inline-block; width: 32px; margin-right: 6px; vertical-align: "
	"middle; }\n";
static const char *const dash[SERIES] = { "", "8 4", "2 3", "6 3", "9 3 2 3", "3 6" };

struct series {
	char name[160]; /* "": none */
	unsigned n;
	double x[POINTS], y[POINTS];
};

struct plot {
	const char *title, *unit;
	bool percent; /* x is the place in the list of percents; otherwise log2 of bytes */
	struct series s[SERIES];
};

static void point(struct series *s, double x, double y)
{
	if (s->n < POINTS && isfinite(x) && isfinite(y) && y > 0) {
		s->x[s->n] = x;
		s->y[s->n++] = y;
	}
}

/* ---- axes ---- */

struct axes {
	double x0, x1, y0, y1; /* y: log10 */
};

static bool find_axes(const struct plot *p, struct axes *ret)
{
	struct axes a = { INFINITY, -INFINITY, INFINITY, -INFINITY };

	for (size_t k = 0; k < SERIES; k++)
		for (unsigned i = 0; i < p->s[k].n; i++) {
			a.x0 = fmin(a.x0, p->s[k].x[i]);
			a.x1 = fmax(a.x1, p->s[k].x[i]);
			a.y0 = fmin(a.y0, log10(p->s[k].y[i]));
			a.y1 = fmax(a.y1, log10(p->s[k].y[i]));
		}
	if (!(a.x1 > a.x0))
		return false;
	a.y0 = floor(a.y0);
	a.y1 = fmax(ceil(a.y1), a.y0 + 1);
	*ret = a;
	return a.y1 - a.y0 <= 12;
}

static double at_x(const struct axes *a, double x)
{
	return LEFT + (WIDTH - LEFT - RIGHT) * (x - a->x0) / (a->x1 - a->x0);
}

static double at_y(const struct axes *a, double y)
{
	return TOP + (HEIGHT - TOP - BOTTOM) * (a->y1 - log10(y)) / (a->y1 - a->y0);
}

static const unsigned percents[] = { 0, 5, 10, 20, 50, 100 };

static void put_axes(FILE *f, const struct plot *p, const struct axes *a)
{
	static const char *const k[] = { "", "K", "M", "G" };

	for (double e = a->y0; e <= a->y1; e++) {
		double y = at_y(a, pow(10, e));

		fprintf(f,
			"<path class=\"g\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
			"text-anchor=\"end\">%g</text>",
			LEFT, y, WIDTH - RIGHT, LEFT - 6, y + 4, pow(10, e));
	}
	for (double x = ceil(a->x0); x <= a->x1; x++) {
		unsigned log2_bytes = (unsigned)x, i = (unsigned)x;

		fprintf(f, "<path class=\"g\" d=\"M%.1f %dV%d\"/>", at_x(a, x), TOP,
			HEIGHT - BOTTOM);
		/* every other size has its name */
		if (!p->percent && log2_bytes % 2)
			continue;
		fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", at_x(a, x),
			HEIGHT - BOTTOM + 16);
		if (p->percent)
			fprintf(f, "%u", i < ARRAY_SIZE(percents) ? percents[i] : 0);
		else
			fprintf(f, "%u%s", 1u << log2_bytes % 10, k[log2_bytes / 10 % 4]);
		fputs("</text>", f);
	}
	fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>",
		(LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4,
		p->percent ? "writes, %" : "size of a request, bytes");
}

static void put_series(FILE *f, const struct series *s, unsigned k, const struct axes *a)
{
	fprintf(f, "<path class=\"l\" style=\"stroke:var(--c%u)\" stroke-dasharray=\"%s\" d=\"", k,
		dash[k]);
	for (unsigned i = 0; i < s->n; i++)
		fprintf(f, "%c%.1f %.1f", i ? 'L' : 'M', at_x(a, s->x[i]), at_y(a, s->y[i]));
	fputs("\"/>", f);
	for (unsigned i = 0; i < s->n && k <= FORMER; i++)
		fprintf(f,
			"<circle class=\"d\" style=\"fill:var(--c%u)\" cx=\"%.1f\" cy=\"%.1f\" "
			"r=\"3.5\"/>",
			k, at_x(a, s->x[i]), at_y(a, s->y[i]));
}

static void put_plot(FILE *f, const struct plot *p)
{
	struct axes a;

	if (!p->s[OWN].n || !find_axes(p, &a))
		return;
	fprintf(f,
		"<div><h2>%s, %s</h2>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" "
		"aria-label=\"%s by %s\">",
		p->title, p->unit, WIDTH, HEIGHT, p->title,
		p->percent ? "share of writes" : "size of a request");
	put_axes(f, p, &a);
	/* the measured one above the others */
	for (unsigned k = SERIES; k-- > 0;)
		if (p->s[k].n)
			put_series(f, &p->s[k], k, &a);
	fputs("</svg>\n<ul class=\"keys\">", f);
	for (unsigned k = 0; k < SERIES; k++) {
		if (!p->s[k].n)
			continue;
		fprintf(f,
			"<li><svg viewBox=\"0 0 32 8\" aria-hidden=\"true\"><path class=\"l\" "
			"style=\"stroke:var(--c%u)\" stroke-dasharray=\"%s\" d=\"M0 4H32\"/></svg>",
			k, dash[k]);
		html_text(f, p->s[k].name);
		fputs("</li>", f);
	}
	fputs("</ul></div>\n", f);
}

/* ---- curves ---- */

static struct json_object *member(struct json_object *o, const char *key)
{
	return json_object_is_type(o, json_type_object) ? json_object_object_get(o, key) : NULL;
}

/* The figure `field` of `part` (NULL: of the row itself) in each row of a table. */
static void measured(struct series *s, const char *name, struct json_object *doc, const char *table,
		     const char *part, const char *field, double scale, bool percent)
{
	size_t n;
	struct json_object *rows = json_object_is_type(doc, json_type_object)
					   ? json_array(doc, table, &n)
					   : NULL;

	snprintf(s->name, sizeof(s->name), "%s", name);
	for (size_t i = 0; rows && i < n; i++) {
		struct json_object *row = json_object_array_get_idx(rows, i),
				   *o = part ? member(row, part) : row;
		uint64_t bytes;

		if (!json_object_is_type(o, json_type_object))
			continue;
		bytes = json_u64(row, "block_bytes");
		point(s, percent ? (double)i : log2((double)(bytes ? bytes : 1)),
		      json_number(o, field) * scale);
	}
}

static void linear_curve(struct series *s, const struct flash_profile *c, bool write)
{
	for (uint64_t size = 4 * KIB; size <= MIB && (!write || c->has_write); size *= 2)
		point(s, log2((double)size),
		      (double)size * 1e3 /
			      (double)(write ? flash_write_ns(c, size) : flash_read_ns(c, size)));
}

static void seek_curve(struct series *s, const struct flash_profile *c)
{
	for (uint64_t size = 512; size <= MIB; size *= 2)
		point(s, log2((double)size),
		      ((double)flash_random_read_ns(c, size) -
		       (double)flash_read_ns(c, MIB) * (double)size / (double)MIB) /
			      1e6);
}

static void mix_curve(struct series *s, const struct flash_profile *c)
{
	double read = (double)flash_random_read_ns(c, 4 * KIB),
	       write = (double)flash_random_write_ns(c, 4 * KIB);

	for (size_t i = 0; i < ARRAY_SIZE(percents) && c->has_write; i++)
		point(s, (double)i, 1e9 / (read + (write - read) * (double)percents[i] / 100));
}

enum { PLOT_READ, PLOT_WRITE, PLOT_SEEK, PLOT_MIX, PLOTS };

static void measured_curves(struct plot *p, unsigned k, const char *name, struct json_object *doc)
{
	measured(&p[PLOT_READ].s[k], name, doc, "linear", "read", "bytes_per_second", 1e-6, false);
	measured(&p[PLOT_WRITE].s[k], name, doc, "linear", "write", "bytes_per_second", 1e-6,
		 false);
	measured(&p[PLOT_SEEK].s[k], name, doc, "seek", NULL, "seek_ns", 1e-6, false);
	measured(&p[PLOT_MIX].s[k], name, doc, "mix", "both", "requests_per_second", 1, true);
}

static void published_curves(struct plot *p)
{
	for (unsigned i = 0; i < ARRAY_SIZE(published); i++) {
		struct flash_profile c;

		if (flash_profile_get(&c, published[i]) < 0)
			continue;
		for (unsigned k = 0; k < PLOTS; k++)
			snprintf(p[k].s[PUBLISHED + i].name, sizeof(p[k].s[0].name), "%s", c.title);
		linear_curve(&p[PLOT_READ].s[PUBLISHED + i], &c, false);
		linear_curve(&p[PLOT_WRITE].s[PUBLISHED + i], &c, true);
		seek_curve(&p[PLOT_SEEK].s[PUBLISHED + i], &c);
		mix_curve(&p[PLOT_MIX].s[PUBLISHED + i], &c);
	}
}

static void put_plots(FILE *f, struct json_object *doc, struct json_object *former)
{
	struct plot *p = calloc(PLOTS, sizeof(*p));

	if (!p)
		return;
	p[PLOT_READ].title = "Linear reads";
	p[PLOT_WRITE].title = "Linear writes";
	p[PLOT_READ].unit = p[PLOT_WRITE].unit = "MB/s";
	p[PLOT_SEEK].title = "Seek";
	p[PLOT_SEEK].unit = "ms";
	p[PLOT_MIX].title = "Mix of reads and writes of 4 KiB";
	p[PLOT_MIX].unit = "requests/s";
	p[PLOT_MIX].percent = true;
	measured_curves(p, OWN, json_text(doc, "target"), doc);
	if (former)
		measured_curves(p, FORMER, "before", former);
	published_curves(p);
	for (unsigned k = 0; k < PLOTS; k++)
		put_plot(f, &p[k]);
	free(p);
}

/* ---- the page ---- */

static void page_line(void *ctx, const char *name, const char *value)
{
	FILE *f = ctx;

	fprintf(f, "<tr><th scope=\"row\">%s</th><td>", name);
	html_name(f, value);
	fputs("</td></tr>\n", f);
}

static void put_grid(FILE *f, const struct bench_grid *g)
{
	fprintf(f, "<section id=\"%s\">\n<h2>", g->key);
	html_text(f, g->title);
	fputs("</h2>\n<div class=\"scroll\" tabindex=\"0\"><table>\n", f);
	for (unsigned r = 0; r < g->rows; r++) {
		fputs(r ? "<tr>" : "<thead><tr>", f);
		for (unsigned c = 0; c < g->columns; c++) {
			const char *tag = r && c ? "td" : "th";

			fprintf(f, "<%s%s>", tag,
				r && c ? ""
				: r    ? " scope=\"row\""
				       : " scope=\"col\"");
			html_text(f, g->cell[r][c]);
			fprintf(f, "</%s>", tag);
		}
		fputs(r ? "</tr>\n" : "</tr></thead>\n", f);
	}
	fputs("</table></div>\n</section>\n", f);
}

static void put_missing(FILE *f, struct json_object *doc)
{
	size_t n;
	struct json_object *list = json_array(doc, "not_measured", &n);

	if (!n)
		return;
	fputs("<section id=\"missing\"><h2>Not measured</h2>\n<ul>", f);
	for (size_t i = 0; i < n; i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		if (!json_object_is_type(o, json_type_object))
			continue;
		fputs("<li>", f);
		html_text(f, json_text(o, "table"));
		fputs(": ", f);
		html_text(f, json_text(o, "why"));
		fputs("</li>", f);
	}
	fputs("</ul></section>\n", f);
}

void bench_page(FILE *f, struct json_object *doc, struct json_object *former)
{
	struct bench_grid *g = malloc(sizeof(*g));
	unsigned state = 0;

	fputs(head, f);
	html_text(f, json_text(doc, "target"));
	fputs(style, f);
	fputs("</style>\n</head>\n<body>\n<main>\n<h1>Benchmark of ", f);
	html_name(f, json_text(doc, "target"));
	fputs("</h1>\n<section id=\"head\"><div class=\"scroll\"><table class=\"head\">\n", f);
	bench_header(doc, page_line, f);
	fputs("</table></div></section>\n", f);
	if (former) {
		fputs("<section id=\"before\"><h2>Before</h2><div class=\"scroll\"><table "
		      "class=\"head\">\n",
		      f);
		bench_header(former, page_line, f);
		fputs("</table></div></section>\n", f);
	}
	fputs("<section id=\"plots\"><div class=\"plots\">\n", f);
	put_plots(f, doc, former);
	fputs("</div></section>\n", f);
	while (g && bench_grid_next(doc, former, &state, g))
		put_grid(f, g);
	free(g);
	put_missing(f, doc);
	fputs("<footer><p>Curves of other cards and disks are published figures, from the flash "
	      "profiles of cowfs. spread: half the interval in which 95 % of such means "
	      "lie.</p></footer>\n</main>\n</body>\n</html>\n",
	      f);
}
