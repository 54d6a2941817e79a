/* report.c - the order of the work: read the record, write tables, draw charts, compose the page, convert it. */
#include "record.h"
#include "report.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "charts.h"
#include "html.h"
#include "page.h"
#include "tables.h"

#ifndef BATCHMARK_PLOTS_FOLDER
#error "CMake defines BATCHMARK_PLOTS_FOLDER, the folder of style.gp and report.css"
#endif

typedef struct Folders { char charts[PATH_BYTES], tables[PATH_BYTES]; } Folders;

static Status make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return status_error(STATUS_IO, "cannot make the folder %s: %s", path, strerror(errno));
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return status_error(STATUS_IO, "%s is not a folder", path);
    return status_ok();
}

static Status make_folders(const char *out, Folders *f)
{
    TRY(make_folder(out));
    TRY(path_join(f->charts, sizeof f->charts, out, "charts"));
    TRY(path_join(f->tables, sizeof f->tables, out, "tables"));
    TRY(make_folder(f->charts));
    return make_folder(f->tables);
}

static ReportOptions with_defaults(const ReportOptions *given)
{
    ReportOptions o = given ? *given : (ReportOptions){ 0 };
    o.gnuplot = o.gnuplot ? o.gnuplot : "gnuplot";
    o.cmark = o.cmark ? o.cmark : "cmark-gfm";
    o.fc_match = o.fc_match ? o.fc_match : "fc-match";
    o.plots_folder = o.plots_folder ? o.plots_folder : BATCHMARK_PLOTS_FOLDER;
    return o;
}

static Status copy_file(const char *from_folder, const char *name, const char *to_folder)
{
    char path[PATH_BYTES];
    Text t = { 0 };
    Status s = path_join(path, sizeof path, from_folder, name);
    if (s.code == STATUS_OK)
        s = text_read_file(&t, path);
    if (s.code == STATUS_OK)
        s = text_write_file(&t, to_folder, name);
    text_free(&t);
    return s;
}

/* Find out once what gnuplot can do, instead of failing once a chart. */
static void prepare_drawing(const ReportOptions *o, const char *folder, ChartSetup *setup)
{
    *setup = (ChartSetup){ .gnuplot = o->gnuplot, .folder = folder, .enabled = true, .png = !o->no_png };
    setup->first_error = gnuplot_check(o->gnuplot);
    if (setup->first_error.code != STATUS_OK) {
        setup->enabled = false;
        return;
    }
    if (setup->png) {
        Status s = gnuplot_check_png(o->gnuplot, o->fc_match);
        if (s.code != STATUS_OK) {
            log_warn("charts as SVG only, no PNG: %s", s.text);
            setup->png = false;
        }
    }
}

static Status write_page(const PageInput *in, const ReportOptions *o, const char *out_folder)
{
    Text md = { 0 }, css = { 0 }, html = { 0 }, title = { 0 };
    char path[PATH_BYTES];
    page_write(&md, in);
    page_title(&title, in->record);
    Status s = text_write_file(&md, out_folder, "report.md");
    if (s.code == STATUS_OK)
        s = path_join(path, sizeof path, o->plots_folder, "report.css");
    if (s.code == STATUS_OK)
        s = text_read_file(&css, path);
    if (s.code == STATUS_OK)
        s = html_from_markdown(o->cmark, out_folder, text_bytes(&title), &css, &html);
    html.failed = html.failed || title.failed;
    if (s.code == STATUS_OK)
        s = text_write_file(&html, out_folder, "report.html");
    text_free(&md);
    text_free(&css);
    text_free(&html);
    text_free(&title);
    return s;
}

static Status write_all(const json_t *record, const Groups *cells, const Groups *trainings, const char *record_path,
                        const char *out_folder, const ReportOptions *o)
{
    Folders folders;
    TRY(make_folders(out_folder, &folders));
    TRY(copy_file(o->plots_folder, "style.gp", folders.charts));
    TRY(tables_write(record, cells, trainings, folders.tables));
    ChartSetup setup;
    prepare_drawing(o, folders.charts, &setup);
    Status s = charts_draw(record, cells, trainings, &setup);
    if (s.code == STATUS_OK) {
        const PageInput in = { record, cells, trainings, setup.list, setup.count,
                               setup.first_error.code == STATUS_OK ? NULL : setup.first_error.text, record_path };
        s = write_page(&in, o, out_folder);
    }
    free(setup.list);
    return s.code == STATUS_OK ? setup.first_error : s;
}

static Status report_in_c_locale(const char *record_path, const char *out_folder, const ReportOptions *o)
{
    json_t *record = NULL;
    Groups cells = { 0 }, trainings = { 0 };
    TRY(record_load(record_path, &record));
    Status s = groups_of_cells(record, &cells);
    if (s.code == STATUS_OK)
        s = groups_of_trainings(record, &trainings);
    if (s.code == STATUS_OK)
        s = write_all(record, &cells, &trainings, record_path, out_folder, o);
    groups_free(&cells);
    groups_free(&trainings);
    json_decref(record);
    return s;
}

Status report_write(const char *record_path, const char *out_folder, const ReportOptions *options)
{
    ReportOptions o = with_defaults(options);
    /* numbers are read and written with '.', whatever the process's locale; only this thread is changed */
    locale_t c_numbers = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (c_numbers == (locale_t)0)
        return status_error(STATUS_OOM, "out of memory while preparing the report");
    locale_t before = uselocale(c_numbers);
    Status s = report_in_c_locale(record_path, out_folder, &o);
    uselocale(before);
    freelocale(c_numbers);
    if (s.code == STATUS_OK && !o.quiet)
        log_info("report: %s/report.html", out_folder);
    return s;
}
