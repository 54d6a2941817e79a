/* gnuplot.c - a Chart as .dat and .gp files, and the run of gnuplot that draws them.
 *
 * gnuplot reports success for an empty file, for a chart without letters and for a wrong axis, so nothing it says is
 * believed before the drawn file was looked into. All text goes in as single-quoted strings under `noenhanced`:
 * "resnet50_fp16" stays that and `...` runs nothing. */
#include "chart.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"

enum { LOOKS = 8, BARS = 16 };
enum { WIDTH = 620, HEIGHT = 370, ROW_HEIGHT = 19, TITLE_COLUMNS = 70, NOTE_COLUMNS = 74, GNUPLOT_SECONDS = 60 };

/* The part of a chart that one drawing shows. */
typedef struct Part {
    int    number, of;
    int    look_from, look_to;  /* lines: these looks */
    double bar_from, bar_to;    /* bars: these x */
    char   name[176];
} Part;

typedef struct Range { double low, high; } Range;

static bool in_part(const Chart *c, const Part *part, int look, double x)
{
    return c->bars ? x >= part->bar_from && x < part->bar_to : look >= part->look_from && look < part->look_to;
}

static bool can_show(const Chart *c, const Point *p)
{
    return isfinite(p->x) && isfinite(p->y) && (c->x_scale == AXIS_LINEAR || p->x > 0) &&
           (c->y_scale == AXIS_LINEAR || p->y > 0);
}

static bool series_in_part(const Chart *c, const Part *part, const Series *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (in_part(c, part, s->look, s->points[i].x) && can_show(c, &s->points[i]))
            return true;
    return false;
}

static void widen(Range *r, double x)
{
    if (isfinite(x)) {
        r->low = fmin(r->low, x);
        r->high = fmax(r->high, x);
    }
}

/* What the points of this part span, and the marks on x. A spread's lower end at or below zero has no place on a
 * logarithmic axis: it is clamped when written, and left out here. */
static void measure_ranges(const Chart *c, const Part *part, Range *x, Range *y)
{
    *x = *y = (Range){ INFINITY, -INFINITY };
    for (size_t i = 0; i < c->series_count; i++)
        for (size_t j = 0; j < c->series[i].count; j++) {
            const Point *p = &c->series[i].points[j];
            if (!in_part(c, part, c->series[i].look, p->x) || !can_show(c, p))
                continue;
            widen(x, p->x);
            widen(y, p->y);
            widen(y, p->high);
            if (c->y_scale == AXIS_LINEAR || p->low > 0)
                widen(y, p->low);
        }
    for (size_t i = 0; i < c->mark_count; i++)
        if (in_part(c, part, c->marks[i].look, c->marks[i].x))
            widen(x, c->marks[i].x);
}

/* Room around the data, so that no point sits on the frame. */
static Range pad_range(Range r, AxisScale scale, double share, bool from_zero)
{
    if (scale != AXIS_LINEAR) {
        double factor = r.high > r.low ? pow(r.high / r.low, share) : 2;
        factor = fmax(factor, 1.05);
        return (Range){ r.low / factor, r.high * factor };
    }
    double span = r.high - r.low;
    if (from_zero && r.low >= 0)
        return (Range){ 0, r.high > 0 ? r.high * (1 + share) : 1 };
    if (span <= 0)
        span = fabs(r.high) > 0 ? fabs(r.high) : 1;
    return (Range){ r.low - share * span, r.high + share * span };
}

/* ---- the data file ---- */

static void write_point(Text *t, const Series *s, const Point *p, double floor_y)
{
    if (s->style == SERIES_BAR)
        text_format(t, "%.9g %.17g %.9g %.9g %.17g %.17g\n", p->x, p->high, p->x - 0.38, p->x + 0.38, p->low, p->high);
    else if (s->style == SERIES_SPREAD)
        text_format(t, "%.17g %.17g %.17g %.17g\n", p->x, p->y, fmax(p->low, floor_y), p->high);
    else
        text_format(t, "%.17g %.17g\n", p->x, p->y);
}

/* One block a series, numbered as `index` counts them; inside, one empty line is a gap in the line, and two would
 * start the next block. */
static void write_data(Text *t, const Chart *c, const Part *part, Range y)
{
    text_add(t, "# ");
    text_add_plain(t, c->title);
    text_add(t, *c->subtitle ? ": " : "");
    text_add_plain(t, c->subtitle);
    text_add(t, "\n");
    bool first = true;
    for (size_t i = 0; i < c->series_count; i++) {
        const Series *s = &c->series[i];
        if (!series_in_part(c, part, s))
            continue;
        text_add(t, first ? "# " : "\n\n# ");
        text_add_plain(t, s->name);
        text_add(t, "\n# ");
        text_add_plain(t, c->x_label);
        text_add(t, " | ");
        text_add_plain(t, c->y_label);
        text_add(t, s->style == SERIES_SPREAD ? " | lower end | upper end\n"
                    : s->style == SERIES_BAR ? " (top) | left | right | bottom | top\n" : "\n");
        first = false;
        bool gap = false, any = false;
        for (size_t j = 0; j < s->count; j++) {
            if (!in_part(c, part, s->look, s->points[j].x))
                continue;
            if (!can_show(c, &s->points[j])) {
                gap = true;
                continue;
            }
            if (gap && any)
                text_add(t, "\n");
            write_point(t, s, &s->points[j], c->y_scale == AXIS_LINEAR ? -INFINITY : y.low);
            gap = false;
            any = true;
        }
    }
}

/* ---- the script ---- */

/* A text broken into lines of at most `columns` characters, as a gnuplot expression. Returns the number of lines. */
static int write_wrapped(Text *t, const char *s, size_t columns)
{
    int lines = 0;
    while (*s) {
        while (*s == ' ')
            s++;
        size_t bytes = 0, seen = 0, at_space = 0;
        while (s[bytes] && (seen < columns || ((unsigned char)s[bytes] & 0xc0) == 0x80)) {
            if (s[bytes] == ' ')
                at_space = bytes;
            seen += ((unsigned char)s[bytes] & 0xc0) != 0x80;
            bytes++;
        }
        if (s[bytes] && s[bytes] != ' ' && at_space)
            bytes = at_space;
        Text line = { 0 };
        text_add_bytes(&line, s, bytes);
        if (lines++)
            text_add(t, ".\"\\n\".");
        text_add_gnuplot(t, text_bytes(&line));
        t->failed = t->failed || line.failed;
        text_free(&line);
        s += bytes;
        s += strspn(s, " ");
    }
    if (!lines)
        text_add(t, "''");
    return lines;
}

/* Ticks 1, 2, 5 x 10^n inside a range of a logarithmic axis; powers of ten alone when it spans more than three. */
static void write_log_ticks(Text *t, char axis, Range r)
{
    static const int steps[] = { 1, 2, 5 };
    bool powers_only = r.high / r.low > 2e3;
    text_format(t, "set %ctics (", axis);
    const char *comma = "";
    for (int e = (int)floor(log10(r.low)); e <= (int)ceil(log10(r.high)); e++)
        for (size_t k = 0; k < (powers_only ? 1 : COUNT_OF(steps)); k++) {
            double v = steps[k] * pow(10, e);
            if (v < r.low * 0.999 || v > r.high * 1.001)
                continue;
            text_format(t, "%s'%.6g' %.9g", comma, v, v);
            comma = ", ";
        }
    text_add(t, ")\n");
}

static bool any_log_tick(Range r)
{
    static const int steps[] = { 1, 2, 5 };
    int seen = 0;
    for (int e = (int)floor(log10(r.low)); e <= (int)ceil(log10(r.high)); e++)
        for (size_t k = 0; k < COUNT_OF(steps); k++) {
            double v = steps[k] * pow(10, e);
            seen += v >= r.low * 0.999 && v <= r.high * 1.001;
        }
    return seen >= 2;
}

/* Where on the axis, from 0 to 1. */
static double axis_position(AxisScale scale, Range r, double x)
{
    return scale == AXIS_LINEAR ? (x - r.low) / (r.high - r.low) : log(x / r.low) / log(r.high / r.low);
}

/* The chart's own ticks; on a number axis those that would touch the one before are left without a label. */
static void write_ticks(Text *t, const Chart *c, const Part *part, Range x)
{
    text_add(t, "set xtics (");
    const char *comma = "";
    double last = -1;
    for (size_t i = 0; i < c->tick_count; i++) {
        const Tick *tick = &c->ticks[i];
        if (c->bars ? !in_part(c, part, 0, tick->x) : tick->x < x.low || tick->x > x.high)
            continue;
        double at = axis_position(c->x_scale, x, tick->x);
        bool fits = c->bars || last < 0 || at - last > 0.025 + 0.014 * (double)strlen(tick->label);
        text_add(t, comma);
        text_add_gnuplot(t, fits ? tick->label : "");
        text_format(t, " %.9g", tick->x);
        comma = ", ";
        if (fits)
            last = at;
    }
    text_add(t, ")\n");
}

static size_t characters(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* Columns of a legend under the chart, from its longest name. */
static int key_columns(const Chart *c, const Part *part, int *entries)
{
    size_t longest = 1;
    *entries = 0;
    for (size_t i = 0; i < c->series_count; i++)
        if (*c->series[i].name && series_in_part(c, part, &c->series[i])) {
            longest = characters(c->series[i].name) > longest ? characters(c->series[i].name) : longest;
            ++*entries;
        }
    *entries += *c->dashed_meaning != '\0';
    int columns = (int)(66 / (longest + 8));
    return columns < 1 ? 1 : columns > 4 ? 4 : columns;
}

/* Crosses on the bottom of the frame; those of several lines at one place stand side by side. */
static void write_marks(Text *t, const Chart *c, const Part *part, Range x, int *entries)
{
    bool any = false;
    for (size_t i = 0; i < c->mark_count; i++) {
        const Mark *m = &c->marks[i];
        if (!in_part(c, part, m->look, m->x))
            continue;
        int before = 0, all = 0;
        for (size_t j = 0; j < c->mark_count; j++)
            if (c->marks[j].x == m->x && in_part(c, part, c->marks[j].look, m->x)) {
                all++;
                before += j < i;
            }
        double shift = 0.022 * (before - 0.5 * (all - 1)); /* of the width */
        double at = c->x_scale == AXIS_LINEAR ? m->x + shift * (x.high - x.low) : m->x * pow(x.high / x.low, shift);
        text_format(t, "set label '' at %.9g, graph 0.025 point pointtype 2 pointsize 1.1 linewidth 2 "
                       "linecolor rgb look_colour[%d] front\n", at, m->look % LOOKS + 1);
        any = true;
    }
    if (any)
        ++*entries;
}

static bool has_marks(const Chart *c, const Part *part)
{
    for (size_t i = 0; i < c->mark_count; i++)
        if (in_part(c, part, c->marks[i].look, c->marks[i].x))
            return true;
    return false;
}

static void write_axes(Text *t, const Chart *c, const Part *part, Range x, Range y)
{
    if (c->x_scale != AXIS_LINEAR)
        text_format(t, "set logscale x %d\n", c->x_scale == AXIS_LOG2 ? 2 : 10);
    if (c->y_scale != AXIS_LINEAR)
        text_format(t, "set logscale y %d\n", c->y_scale == AXIS_LOG2 ? 2 : 10);
    text_format(t, "set xrange [%.9g:%.9g]\nset yrange [%.9g:%.9g]\n", x.low, x.high, y.low, y.high);
    text_add(t, "set format x '%g'\nset format y '%g'\n");
    if (c->tick_count)
        write_ticks(t, c, part, x);
    else if (c->x_scale != AXIS_LINEAR && any_log_tick(x))
        write_log_ticks(t, 'x', x);
    if (c->y_scale != AXIS_LINEAR && any_log_tick(y))
        write_log_ticks(t, 'y', y);
    else if (c->y_scale != AXIS_LINEAR) /* less than a factor of two: a linear rule reads better than one tick */
        text_add(t, "unset logscale y\n");
    if (c->bars)
        text_format(t, "set xtics rotate by %d right\nset grid noxtics ytics\n",
                    part->bar_to - part->bar_from > 8 ? 90 : 40);
}

static void write_plot(Text *t, const Chart *c, const Part *part)
{
    text_add(t, "plot ");
    int index = 0;
    for (size_t i = 0; i < c->series_count; i++) {
        const Series *s = &c->series[i];
        if (!series_in_part(c, part, s))
            continue;
        text_add(t, index ? ", \\\n     '' " : "");
        if (!index) {
            char file[200];
            snprintf(file, sizeof file, "%s.dat", part->name);
            text_add_gnuplot(t, file);
            text_add(t, " ");
        }
        int look = s->look % LOOKS + 1;
        static const char *const with[] = {
            [SERIES_LINE] = "using 1:2 with lines linestyle %d",
            [SERIES_DASHED] = "using 1:2 with lines linestyle %d",
            [SERIES_LIMIT] = "using 1:2 with lines linestyle %d",
            [SERIES_POINTS] = "using 1:2 with points linestyle %d",
            [SERIES_BOTH] = "using 1:2 with linespoints linestyle %d",
            [SERIES_SPREAD] = "using 1:2:3:4 with yerrorlines linestyle %d",
            [SERIES_BAR] = "using 1:2:3:4:5:6 with boxxyerror linestyle %d",
        };
        int style = s->style == SERIES_DASHED ? 10 + look : s->style == SERIES_BAR ? 21 + s->look % 10
                    : s->style == SERIES_LIMIT ? 9 : look;
        char words[96];
        const char *format = with[s->style];
        size_t n = strcspn(format, "%");
        snprintf(words, sizeof words, "%.*s%d", (int)n, format, style);
        text_format(t, "index %d %s %s", index, words, *s->name ? "title " : "notitle");
        if (*s->name)
            text_add_gnuplot(t, s->name);
        index++;
    }
    if (*c->dashed_meaning) {
        text_add(t, ", \\\n     keyentry with lines linestyle 19 title ");
        text_add_gnuplot(t, c->dashed_meaning);
    }
    if (has_marks(c, part))
        text_format(t, ", \\\n     keyentry with points pointtype 2 pointsize 1.1 linewidth 2 linecolor rgb '#444444' "
                       "title '%s: see the note'", c->marks_skips ? "skipped" : "no value");
    text_add(t, "\n");
}

static void write_script(Text *t, const Chart *c, const Part *part, Range x, Range y)
{
    Text body = { 0 };
    int entries = 0, columns = key_columns(c, part, &entries);
    write_axes(&body, c, part, x, y);
    write_marks(&body, c, part, x, &entries);
    text_add(&body, "set title ");
    Text title = { 0 };
    text_add_plain(&title, c->title);
    if (part->of > 1)
        text_format(&title, " (%d of %d)", part->number, part->of);
    int rows = write_wrapped(&body, text_bytes(&title), TITLE_COLUMNS) - 1;
    if (*c->subtitle) {
        text_add(&body, ".\"\\n\".");
        rows += write_wrapped(&body, c->subtitle, TITLE_COLUMNS);
    }
    text_add(&body, "\nset ylabel ");
    text_add_gnuplot(&body, c->y_label);
    text_add(&body, "\nset xlabel ");
    text_add_gnuplot(&body, c->x_label);
    if (c->note.length) {
        text_add(&body, ".\"\\n\".");
        rows += write_wrapped(&body, text_bytes(&c->note), NOTE_COLUMNS);
    }
    bool beside = c->bars && !c->wide_key;
    text_add(&body, beside ? "\n" : ".\"\\n \"\n"); /* an empty line: the legend would touch the text */
    rows += !beside;
    if (beside)
        text_add(&body, "set key rmargin top vertical Left reverse invert maxcols 1\n");
    else {
        text_format(&body, "set key maxcols %d\n", columns);
        rows += (entries + columns - 1) / columns;
    }
    int height = HEIGHT + ROW_HEIGHT * rows + (c->bars ? 50 : 0);
    text_format(t, "# Draws %s.svg and %s.png from %s.dat. Run it in this folder: gnuplot %s.gp\n"
                   "if (!exists('out')) out = '%s'\nif (!exists('png')) png = 1\nload 'style.gp'\n"
                   "set terminal svg size %d,%d font chart_font noenhanced background rgb 'white'\nset output out.'.svg'\n",
                part->name, part->name, part->name, part->name, part->name, WIDTH, height);
    text_add(t, text_bytes(&body));
    write_plot(t, c, part);
    text_format(t, "set output\nif (png) {\n    set terminal pngcairo size %d,%d font chart_font_png linewidth 2 "
                   "pointscale 2 noenhanced background rgb 'white'\n    set output out.'.png'\n    replot\n"
                   "    set output\n}\n", 2 * WIDTH, 2 * height);
    t->failed = t->failed || body.failed || title.failed;
    text_free(&title);
    text_free(&body);
}

/* ---- running and judging ---- */

Status gnuplot_check(const char *gnuplot)
{
    const char *const argv[] = { gnuplot, "-d", "-e", "set terminal svg noenhanced", NULL };
    const Child child = { argv, NULL, "gnuplot-nox", GNUPLOT_SECONDS };
    return child_run(&child, NULL, NULL);
}

Status gnuplot_check_png(const char *gnuplot, const char *fc_match)
{
    const char *const terminal_argv[] = { gnuplot, "-d", "-e", "set terminal pngcairo noenhanced", NULL };
    const Child terminal = { terminal_argv, NULL, "gnuplot-nox", GNUPLOT_SECONDS };
    TRY(child_run(&terminal, NULL, NULL));
    const char *const font_argv[] = { fc_match, "-f", "%{file}", "DejaVu Sans", NULL };
    const Child font = { font_argv, NULL, "fontconfig", GNUPLOT_SECONDS };
    Text file = { 0 };
    Status s = child_run(&font, &file, NULL);
    if (s.code == STATUS_OK && file.failed)
        s = status_error(STATUS_OOM, "out of memory while looking for a font");
    else if (s.code == STATUS_OK && (file.length == 0 || access(text_bytes(&file), R_OK) != 0))
        s = status_error(STATUS_BACKEND, "fontconfig finds no font file: apt install fonts-dejavu-core");
    text_free(&file);
    return s;
}

static bool ends_with(const Text *t, const char *end, size_t n, size_t slack)
{
    for (size_t cut = 0; cut <= slack && t->length >= n + cut; cut++)
        if (memcmp(t->bytes + t->length - n - cut, end, n) == 0)
            return true;
    return false;
}

/* A whole SVG that draws at least one plot, or a whole PNG. */
static Status check_drawn(const char *path, const char *shown_name, bool svg)
{
    Text t = { 0 };
    Status s = text_read_file(&t, path);
    if (s.code == STATUS_OK && t.length == 0)
        s = status_error(STATUS_BACKEND, "gnuplot reported success but wrote an empty %s", shown_name);
    else if (s.code == STATUS_OK && svg &&
             (!ends_with(&t, "</svg>", 6, 4) || !strstr(t.bytes, "<svg") || !strstr(t.bytes, "gnuplot_plot_1")))
        s = status_error(STATUS_BACKEND, "gnuplot wrote a cut or empty drawing as %s", shown_name);
    else if (s.code == STATUS_OK && !svg &&
             (t.length < 100 || memcmp(t.bytes, "\x89PNG\r\n\x1a\n", 8) != 0 || !ends_with(&t, "IEND\xae\x42\x60\x82", 8, 0)))
        s = status_error(STATUS_BACKEND, "gnuplot wrote a cut picture as %s", shown_name);
    else if (s.code == STATUS_INPUT)
        s = status_error(STATUS_BACKEND, "gnuplot reported success but wrote no %s", shown_name);
    text_free(&t);
    return s;
}

static Status keep_file(const ChartSetup *setup, const char *stem, const char *name, const char *ending)
{
    char shown[200], temporary[PATH_BYTES], final[PATH_BYTES], file[240];
    snprintf(shown, sizeof shown, "%s%s", name, ending);
    snprintf(file, sizeof file, "%s%s", stem, ending);
    TRY(path_join(temporary, sizeof temporary, setup->folder, file));
    TRY(path_join(final, sizeof final, setup->folder, shown));
    Status s = check_drawn(temporary, shown, strcmp(ending, ".svg") == 0);
    if (s.code == STATUS_OK && rename(temporary, final) != 0)
        s = status_error(STATUS_IO, "cannot write %s: %s", final, strerror(errno));
    if (s.code != STATUS_OK)
        unlink(temporary);
    return s;
}

static Status run_gnuplot(const ChartSetup *setup, const char *name)
{
    char stem[208], variables[280], script[200];
    snprintf(stem, sizeof stem, "%s.%ld.tmp", name, (long)getpid());
    snprintf(variables, sizeof variables, "out='%s'; png=%d", stem, setup->png ? 1 : 0);
    snprintf(script, sizeof script, "%s.gp", name);
    const char *const argv[] = { setup->gnuplot, "-d", "-e", variables, script, NULL };
    const Child child = { argv, setup->folder, "gnuplot-nox", GNUPLOT_SECONDS };
    Text words = { 0 };
    Status s = child_run(&child, NULL, &words);
    const char *warning = strstr(text_bytes(&words), "warning: ");
    if (s.code == STATUS_OK && warning)
        log_warn("gnuplot, chart %s: %.*s", name, (int)strcspn(warning + 9, "\r\n"), warning + 9);
    text_free(&words);
    if (s.code == STATUS_OK)
        s = keep_file(setup, stem, name, ".svg");
    if (s.code == STATUS_OK && setup->png)
        s = keep_file(setup, stem, name, ".png");
    if (s.code != STATUS_OK) {
        static const char *const endings[] = { ".svg", ".png" };
        for (size_t i = 0; i < COUNT_OF(endings); i++) {
            char file[240], path[PATH_BYTES];
            snprintf(file, sizeof file, "%s%s", stem, endings[i]);
            if (path_join(path, sizeof path, setup->folder, file).code == STATUS_OK)
                unlink(path);
        }
    }
    return s.code == STATUS_IO ? s : status_context(s, "chart %s", name);
}

static Status remember(ChartSetup *setup, const Chart *c, const Part *part, bool drawn)
{
    if (setup->count == setup->capacity) {
        size_t capacity = setup->capacity ? 2 * setup->capacity : 32;
        DrawnChart *list = realloc(setup->list, capacity * sizeof *list);
        if (!list)
            return status_error(STATUS_OOM, "out of memory while drawing chart %s", part->name);
        setup->list = list;
        setup->capacity = capacity;
    }
    DrawnChart *d = &setup->list[setup->count++];
    memset(d, 0, sizeof *d);
    text_copy(d->name, sizeof d->name, part->name);
    text_copy(d->section, sizeof d->section, c->section);
    Text title = { 0 };
    text_add(&title, c->title);
    if (*c->subtitle)
        text_format(&title, ": %s", c->subtitle);
    if (part->of > 1)
        text_format(&title, " (%d of %d)", part->number, part->of);
    text_copy(d->title, sizeof d->title, text_bytes(&title));
    bool failed = title.failed;
    text_free(&title);
    d->drawn = drawn;
    return failed ? status_error(STATUS_OOM, "out of memory while drawing chart %s", part->name) : status_ok();
}

static Status draw_part(const Chart *c, ChartSetup *setup, const Part *part)
{
    Range x, y;
    measure_ranges(c, part, &x, &y);
    if (!(y.low <= y.high))
        return status_ok();
    if (c->bars) { /* bars of all parts have one scale */
        const Part whole = { .bar_from = 0, .bar_to = INFINITY };
        Range unused;
        measure_ranges(c, &whole, &unused, &y);
        x = (Range){ part->bar_from - 0.8, fmin(part->bar_to, x.high + 1) - 0.2 };
    } else {
        x = pad_range(x, c->x_scale, 0.04, false);
    }
    y = pad_range(y, c->y_scale, 0.07, c->from_zero);
    Text data = { 0 }, script = { 0 };
    char file[200];
    write_data(&data, c, part, y);
    write_script(&script, c, part, x, y);
    snprintf(file, sizeof file, "%s.dat", part->name);
    Status s = text_write_file(&data, setup->folder, file);
    snprintf(file, sizeof file, "%s.gp", part->name);
    if (s.code == STATUS_OK)
        s = text_write_file(&script, setup->folder, file);
    text_free(&data);
    text_free(&script);
    TRY(s);
    bool drawn = false;
    if (setup->enabled) {
        s = run_gnuplot(setup, part->name);
        if (s.code == STATUS_OOM || s.code == STATUS_IO)
            return s;
        drawn = s.code == STATUS_OK;
        if (!drawn && setup->first_error.code == STATUS_OK)
            setup->first_error = s;
    }
    return remember(setup, c, part, drawn);
}

Status chart_draw(const Chart *c, ChartSetup *setup)
{
    if (c->failed || c->note.failed)
        return status_error(STATUS_OOM, "out of memory while composing chart %s", c->name);
    if (!chart_has_points(c))
        return status_ok();
    int looks = 0;
    double bars = 0;
    for (size_t i = 0; i < c->series_count; i++) {
        looks = c->series[i].look + 1 > looks ? c->series[i].look + 1 : looks;
        for (size_t j = 0; j < c->series[i].count; j++)
            bars = fmax(bars, c->series[i].points[j].x + 1);
    }
    int parts = c->bars ? ((int)bars + BARS - 1) / BARS : (looks + LOOKS - 1) / LOOKS;
    int bars_each = ((int)bars + parts - 1) / parts;
    for (int i = 0; i < parts; i++) {
        Part part = { .number = i + 1, .of = parts, .look_from = i * LOOKS, .look_to = (i + 1) * LOOKS,
                      .bar_from = i * bars_each, .bar_to = (i + 1) * bars_each };
        if (i == 0)
            text_copy(part.name, sizeof part.name, c->name);
        else
            snprintf(part.name, sizeof part.name, "%s-%d", c->name, i + 1);
        TRY(draw_part(c, setup, &part));
    }
    return status_ok();
}
