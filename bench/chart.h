/* chart.h - one chart as data (series of points, or stacked bars), and drawing it with gnuplot.
 *
 * A chart becomes four files in one folder: NAME.dat (the numbers), NAME.gp (the script, which needs only the other
 * files of that folder, style.gp among them: `gnuplot NAME.gp` there draws it again), NAME.svg and NAME.png.
 *
 * A Chart starts with chart_start and, like a Text, remembers a failed allocation until it is drawn. A point whose y is
 * not finite is a gap in the line, never a zero. A chart with more than eight looks (or sixteen bars) is drawn as
 * several, named NAME, NAME-2 and so on, so that a legend stays readable. */
#ifndef BATCHMARK_BENCH_CHART_H
#define BATCHMARK_BENCH_CHART_H

#include "text.h"

typedef enum SeriesStyle {
    SERIES_LINE,   /* a solid line */
    SERIES_DASHED, /* a thin dashed line: a plan or a model, not a measurement */
    SERIES_LIMIT,  /* a thin black line: a bound */
    SERIES_POINTS,
    SERIES_BOTH,   /* line and points */
    SERIES_SPREAD, /* line, points, and a bar from low to high */
    SERIES_BAR     /* one layer of stacked bars: from low to high at the bar with number x */
} SeriesStyle;

typedef enum AxisScale { AXIS_LINEAR, AXIS_LOG2, AXIS_LOG10 } AxisScale;

typedef struct Point { double x, y, low, high; } Point;

typedef struct Series {
    char        name[96]; /* "": not in the legend */
    SeriesStyle style;
    int         look; /* colour, dash and point; series that belong together share it */
    Point      *points;
    size_t      count, capacity;
} Series;

typedef struct Tick { double x; char label[48]; } Tick;
typedef struct Mark { double x; int look; } Mark; /* a configuration without a value, or an update that was skipped: a cross at the bottom */

typedef struct Chart {
    char      name[160];    /* file name without ending */
    char      section[96];  /* where on the page: see charts.h */
    char      title[224], subtitle[176]; /* subtitle: a second line, or "" */
    char      x_label[96], y_label[96]; /* with the unit */
    char      dashed_meaning[64];       /* the legend's word for dashed lines of any colour, or "" */
    AxisScale x_scale, y_scale;
    bool      from_zero;    /* a linear y axis starts at 0 */
    bool      bars;
    bool      wide_key;     /* the legend of stacked bars under the chart instead of beside it */
    Series   *series;
    size_t    series_count, series_capacity;
    Tick     *ticks;        /* none: gnuplot chooses (linear) or 1-2-5 (logarithmic) */
    size_t    tick_count, tick_capacity;
    Mark     *marks;
    size_t    mark_count, mark_capacity;
    bool      marks_skips;  /* the marks are skipped updates */
    Text      note;         /* sentences under the chart */
    bool      failed;       /* an allocation failed */
} Chart;

/* A chart of linear axes; section, name and title are cut to fit. */
void chart_start(Chart *c, const char *section, const char *name, const char *title, const char *x_label,
                 const char *y_label);
void chart_add_series(Chart *c, const char *name, SeriesStyle style, int look);
void chart_add_point(Chart *c, double x, double y); /* to the series added last */
void chart_add_spread(Chart *c, double x, double y, double low, double high);
void chart_add_tick(Chart *c, double x, const char *label);
void chart_add_mark(Chart *c, double x, int look);

/* Whether any series has a finite point that its axes can show. */
bool chart_has_points(const Chart *c);
void chart_free(Chart *c);

/* The charts that were made, in order, for the page. */
typedef struct DrawnChart {
    char name[176], section[96], title[420];
    bool drawn;
} DrawnChart;

typedef struct ChartSetup {
    const char *gnuplot;    /* the program */
    const char *folder;     /* exists; style.gp is in it */
    bool        enabled;    /* false: write .dat and .gp only */
    bool        png;
    DrawnChart *list;       /* grows; free() at the end */
    size_t      count, capacity;
    Status      first_error; /* of gnuplot; drawing goes on with the next chart */
} ChartSetup;

/* Whether this gnuplot can draw SVG. STATUS_BACKEND names the package to install. */
Status gnuplot_check(const char *gnuplot);

/* Whether PNGs would show their text: gnuplot has pngcairo and fontconfig finds a font file. Without any font pngcairo
 * draws a chart without a single letter and reports success. STATUS_BACKEND says what is missing. */
Status gnuplot_check_png(const char *gnuplot, const char *fc_match);

/* Write the files of a chart and draw it; a chart without points makes nothing. gnuplot's failures go to
 * setup->first_error; returned are only those that make going on pointless: STATUS_IO, STATUS_OOM. */
Status chart_draw(const Chart *c, ChartSetup *setup);

#endif
