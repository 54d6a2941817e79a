/* page.c - headline, main chart, results, trainings, claims. The closing part (what is missing, doubts, environment,
 * reproduction) is page_end.c. Headings and sentences stand here as text; everything from the record is escaped. */
#include "page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "page_end.h"
#include "tables.h"

#define EN_DASH "\xe2\x80\x93"

static void add_record_text(Text *t, const json_t *object, const char *path)
{
    text_add_markdown(t, record_string(object, path));
}

/* The ok cell of most samples per second; NULL when there is none. */
static const json_t *best_of_group(const Group *g)
{
    const json_t *best = NULL;
    for (size_t i = 0; i < g->count; i++) {
        double x = record_number(g->items[i], "throughput");
        if (record_ok(g->items[i]) && isfinite(x) && (!best || x > record_number(best, "throughput")))
            best = g->items[i];
    }
    return best;
}

/* Whether an earlier item of the cells, or of the trainings after them, has this net already. */
static bool net_named_before(const json_t *record, const char *net, size_t list, size_t item)
{
    static const char *const lists[] = { "cells", "trainings" };
    for (size_t k = 0; k <= list; k++) {
        const json_t *items = record_array(record, lists[k]);
        for (size_t i = 0; i < (k < list ? json_array_size(items) : item); i++) {
            const char *other = record_string(json_array_get(items, i), "axes.net");
            if (other && strcmp(other, net) == 0)
                return true;
        }
    }
    return false;
}

void page_title(Text *t, const json_t *record)
{
    static const char *const lists[] = { "cells", "trainings" };
    const char *comma = "";
    const char *device = record_string(record, "environment.device.name");
    if (!device)
        device = record_string(record, "environment.cpu.model");
    text_add(t, "batchmark: ");
    for (size_t k = 0; k < COUNT_OF(lists); k++)
        for (size_t i = 0; i < record_count(record, lists[k]); i++) {
            const char *net = record_string(json_array_get(record_array(record, lists[k]), i), "axes.net");
            if (!net || net_named_before(record, net, k, i))
                continue;
            text_add(t, comma);
            text_add_plain(t, net);
            comma = ", ";
        }
    text_add(t, *comma ? " on " : "no net on ");
    text_add_plain(t, device ? device : "an unnamed device");
}

/* ---- charts ---- */

/* Every chart of a section; one that could not be drawn is named with the reason. */
static void add_charts(Text *t, const PageInput *in, const char *section)
{
    for (size_t i = 0; i < in->chart_count; i++) {
        const DrawnChart *c = &in->charts[i];
        if (strcmp(c->section, section) != 0)
            continue;
        if (c->drawn) {
            text_add(t, "![");
            text_add_markdown(t, c->title);
            text_format(t, "](charts/%s.svg)\n\n", c->name);
        } else {
            text_add(t, "*Chart not drawn: ");
            text_add_markdown(t, c->title);
            text_add(t, ". ");
            text_add_markdown(t, in->chart_trouble ? in->chart_trouble : "gnuplot was not run");
            text_format(t, ". Its numbers and script are charts/%s.dat and .gp.*\n\n", c->name);
        }
    }
}

static void add_cell_charts(Text *t, const PageInput *in, size_t group, const char *kind)
{
    char section[96];
    snprintf(section, sizeof section, "cells/%zu/%s", group, kind);
    add_charts(t, in, section);
}

/* ---- headline ---- */

static size_t count_status(const json_t *items, const char *status)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(items); i++)
        n += strcmp(record_string(json_array_get(items, i), "status"), status) == 0;
    return n;
}

static void add_counts(Text *t, const char *what, const json_t *items)
{
    static const struct { const char *status, *words; } kinds[] = {
        { "oom", "out of memory" }, { "skipped", "skipped" }, { "failed", "failed" },
    };
    text_format(t, "- **%s:** %zu measured", what, count_status(items, "ok"));
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (count_status(items, kinds[i].status))
            text_format(t, ", %zu %s", count_status(items, kinds[i].status), kinds[i].words);
    text_add(t, "\n");
}

static void add_verdicts(Text *t, const json_t *claims)
{
    static const char *const verdicts[] = { "reproduced", "partly", "contradicted", "modelled", "not run" };
    const char *comma = "";
    text_add(t, "- **Claims:** ");
    for (size_t i = 0; i < COUNT_OF(verdicts); i++) {
        size_t n = 0;
        for (size_t j = 0; j < json_array_size(claims); j++)
            n += strcmp(record_string(json_array_get(claims, j), "verdict"), verdicts[i]) == 0;
        if (n) {
            text_format(t, "%s%zu %s", comma, n, verdicts[i]);
            comma = ", ";
        }
    }
    text_add(t, "\n");
}

/* The best cell of each group, of the first few when there are many. */
static void add_best(Text *t, const PageInput *in)
{
    enum { MOST = 10 };
    for (size_t i = 0; i < in->cells->count && i < MOST; i++) {
        const json_t *best = best_of_group(&in->cells->groups[i]);
        if (!best)
            continue;
        text_add(t, "- **Best throughput, ");
        text_add_markdown(t, in->cells->groups[i].title);
        text_add(t, ":** ");
        text_add_number(t, record_number(best, "throughput"));
        text_format(t, " %s/s ", sample_word(best));
        if (record_is_text(best)) {
            text_add(t, "(");
            text_add_number(t, cell_tokens_per_second(best));
            text_add(t, " tokens/s) ");
        }
        text_add(t, "with batch ");
        text_add_number(t, record_number(best, "axes.batch"));
        text_add(t, ", ");
        text_add_markdown(t, precision_name(best));
        if (record_number(best, "axes.accum") > 1) {
            text_add(t, ", accumulation ");
            text_add_number(t, record_number(best, "axes.accum"));
        }
        if (isfinite(record_number(best, "memory.measured_peak"))) {
            text_add(t, ", in ");
            text_add_bytes_size(t, record_number(best, "memory.measured_peak"));
            text_add(t, " of memory");
        }
        text_add(t, "\n");
    }
}

static void add_machine(Text *t, const json_t *env)
{
    text_add(t, "- **Machine:** ");
    add_record_text(t, env, "cpu.model");
    text_add(t, ", ");
    text_add_number(t, record_number(env, "cpu.cores"));
    text_add(t, " cores (");
    text_add_number(t, record_number(env, "cpu.threads_used"));
    text_add(t, " threads used), ");
    text_add_bytes_size(t, record_number(env, "memory_bytes"));
    text_add(t, " of memory, ");
    add_record_text(t, env, "os");
    text_add(t, "\n- **Backend:** ");
    add_record_text(t, env, "device.backend");
    if (record_string(env, "libraries.onednn")) {
        text_add(t, ", oneDNN ");
        add_record_text(t, env, "libraries.onednn");
    }
    text_add(t, "\n");
}

static void add_headline(Text *t, const PageInput *in)
{
    const json_t *env = record_get(in->record, "environment");
    Text title = { 0 };
    page_title(&title, in->record);
    text_add(t, "# ");
    text_add_markdown(t, text_bytes(&title));
    t->failed = t->failed || title.failed;
    text_free(&title);
    text_add(t, "\n\n");
    add_best(t, in);
    add_machine(t, env);
    text_add(t, "- **Run:** ");
    add_record_text(t, in->record, "run.id");
    text_add(t, ", started ");
    add_record_text(t, in->record, "run.started");
    if (record_string(in->record, "run.finished")) {
        text_add(t, ", finished ");
        add_record_text(t, in->record, "run.finished");
    } else {
        text_add(t, ", **not finished**: this is what it had measured");
    }
    if (record_string(in->record, "run.preset")) {
        text_add(t, ", preset ");
        add_record_text(t, in->record, "run.preset");
    }
    text_add(t, "\n");
    if (record_count(in->record, "cells"))
        add_counts(t, "Cells", record_array(in->record, "cells"));
    if (record_count(in->record, "trainings"))
        add_counts(t, "Trainings", record_array(in->record, "trainings"));
    if (record_count(in->record, "claims"))
        add_verdicts(t, record_array(in->record, "claims"));
    text_add(t, "\n");
    if (in->chart_trouble) {
        text_add(t, "**Charts are missing:** ");
        text_add_markdown(t, in->chart_trouble);
        text_add(t, "\n\n");
    }
}

/* ---- results ---- */

static bool any_memory(const Group *g)
{
    for (size_t i = 0; i < g->count; i++)
        if (record_get(g->items[i], "memory"))
            return true;
    return false;
}

static void add_ops(Text *t, const PageInput *in, const Group *g, size_t number)
{
    const json_t *cell = best_of_group(g);
    add_cell_charts(t, in, number, "ops");
    add_cell_charts(t, in, number, "split");
    if (!record_count(cell, "profile.ops")) {
        const char *reason = record_string(cell, "profile_reason");
        if (cell) {
            text_add(t, "No profile of the fastest cell: ");
            text_add_markdown(t, reason ? reason : "none was asked for");
            text_add(t, ".\n\n");
        }
        return;
    }
    text_add(t, "The operations of the fastest cell, ");
    text_add_markdown(t, record_string(cell, "name"));
    text_add(t, ", in one step:\n\n");
    table_ops(t, cell);
    if (record_count(cell, "profile.kernels")) {
        text_add(t, "Its kernels, the longest first:\n\n");
        table_kernels(t, cell);
    }
}

static void add_group(Text *t, const PageInput *in, size_t number, bool main_chart_shown)
{
    const Group *g = &in->cells->groups[number];
    text_add(t, "## Results: ");
    text_add_markdown(t, g->title);
    text_add(t, "\n\n### Throughput and step time\n\n");
    if (!main_chart_shown)
        add_cell_charts(t, in, number, "throughput");
    table_speed(t, g);
    add_cell_charts(t, in, number, "step-time");
    if (any_memory(g)) {
        text_format(t, "### Memory (%s)\n\n", table_memory_unit(g));
        add_cell_charts(t, in, number, "memory");
        table_memory(t, g);
        add_cell_charts(t, in, number, "memory-categories");
    }
    text_add(t, "### Work and floor\n\n");
    add_cell_charts(t, in, number, "floor");
    table_work(t, g);
    if (group_has_device_profile(g)) {
        text_add(t, "### On the device\n\n");
        table_device(t, g);
    }
    if (best_of_group(g)) {
        text_add(t, "### Operations\n\n");
        add_ops(t, in, g, number);
    }
}

/* ---- trainings and claims ---- */

static void add_trainings(Text *t, const PageInput *in)
{
    for (size_t i = 0; i < in->trainings->count; i++) {
        char section[96];
        text_add(t, "## Trainings: ");
        text_add_markdown(t, in->trainings->groups[i].title);
        text_add(t, "\n\n");
        snprintf(section, sizeof section, "trainings/%zu", i);
        table_trainings(t, &in->trainings->groups[i]);
        add_charts(t, in, section);
    }
}

static bool claim_ran(const json_t *claim) { return strcmp(record_string(claim, "verdict"), "not run") != 0; }

static void add_claim_overview(Text *t, const json_t *claims)
{
    text_add(t, "| claim | what it says | verdict | in short |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < json_array_size(claims); i++) {
        const json_t *claim = json_array_get(claims, i);
        const char *waits = record_string(claim, "waits_for");
        text_add(t, "| ");
        add_record_text(t, claim, "id");
        text_add(t, " | ");
        add_record_text(t, claim, "statement");
        text_add(t, " | **");
        add_record_text(t, claim, "verdict");
        text_add(t, "** | ");
        if (record_string(claim, "summary") && *record_string(claim, "summary"))
            add_record_text(t, claim, "summary");
        else if (waits)
            text_add(t, "waits for ");
        else
            text_add(t, EN_DASH);
        if (waits && !(record_string(claim, "summary") && *record_string(claim, "summary")))
            text_add_markdown(t, waits);
        text_add(t, " |\n");
    }
    text_add(t, "\n");
}

static void add_labelled(Text *t, const char *label, const json_t *claim, const char *member)
{
    if (!record_string(claim, member))
        return;
    text_format(t, "- **%s:** ", label);
    add_record_text(t, claim, member);
    text_add(t, "\n");
}

static void add_formulas(Text *t, const json_t *claim)
{
    const json_t *formulas = record_array(claim, "formulas");
    if (!json_array_size(formulas))
        return;
    text_add(t, "Formulas:\n\n");
    for (size_t i = 0; i < json_array_size(formulas); i++) {
        text_add(t, "    "); /* indented code: shown exactly as it is */
        text_add_plain(t, json_string_value(json_array_get(formulas, i)));
        text_add(t, "\n");
    }
    text_add(t, "\n");
}

static void add_claim(Text *t, const PageInput *in, const json_t *claim)
{
    char section[96];
    text_add(t, "### ");
    add_record_text(t, claim, "id");
    text_add(t, ": ");
    add_record_text(t, claim, "verdict");
    text_add(t, "\n\n");
    add_labelled(t, "Claim", claim, "statement");
    add_labelled(t, "Here", claim, "summary");
    add_labelled(t, "Figures of the source", claim, "source_figures");
    add_labelled(t, "Tolerance", claim, "tolerance");
    add_labelled(t, "Waits for", claim, "waits_for");
    text_add(t, "\n");
    add_formulas(t, claim);
    snprintf(section, sizeof section, "claims/%.64s", record_string(claim, "id"));
    add_charts(t, in, section);
    const json_t *tables = record_array(claim, "tables");
    for (size_t i = 0; i < json_array_size(tables); i++) {
        const json_t *table = json_array_get(tables, i);
        if (record_string(table, "title")) {
            text_add(t, "**");
            add_record_text(t, table, "title");
            text_add(t, "**\n\n");
        }
        table_claim(t, table);
    }
}

static void add_claims(Text *t, const PageInput *in)
{
    const json_t *claims = record_array(in->record, "claims");
    if (!json_array_size(claims))
        return;
    text_add(t, "## Claims\n\nWhat the two articles on batch size say, and whether it holds on this machine.\n\n");
    add_claim_overview(t, claims);
    for (size_t i = 0; i < json_array_size(claims); i++)
        if (claim_ran(json_array_get(claims, i)))
            add_claim(t, in, json_array_get(claims, i));
}

/* The group whose throughput stands at the top for its net: the net's first that has a value, since a run measures what matters
 * most first. */
static bool is_main_group(const Groups *cells, size_t number)
{
    const char *net = record_string(cells->groups[number].items[0], "axes.net");
    if (!best_of_group(&cells->groups[number]))
        return false;
    for (size_t i = 0; i < number; i++) {
        const char *other = record_string(cells->groups[i].items[0], "axes.net");
        if ((net && other ? strcmp(net, other) == 0 : net == other) && best_of_group(&cells->groups[i]))
            return false;
    }
    return true;
}

void page_write(Text *t, const PageInput *in)
{
    add_headline(t, in);
    if (!in->cells->count && !in->trainings->count)
        text_add(t, "Nothing was measured yet: the record holds no cell and no training.\n\n");
    for (size_t i = 0; i < in->cells->count; i++)
        if (is_main_group(in->cells, i))
            add_cell_charts(t, in, i, "throughput");
    for (size_t i = 0; i < in->cells->count; i++)
        add_group(t, in, i, is_main_group(in->cells, i));
    add_trainings(t, in);
    add_claims(t, in);
    page_write_end(t, in);
}
