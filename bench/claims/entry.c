/* entry.c - the bodies of entry.h over jansson; every call checks, the first failure stays. */
#include "entry.h"

#include "../record.h"

#include <stdarg.h>

const char *const verdict_names[VERDICT_COUNT] = { "reproduced", "partly", "contradicted", "modelled", "not run" };

static Status out_of_memory(void) { return status_error(STATUS_OOM, "out of memory for the entry of a claim"); }

Status entry_conclude(json_t *entry, Verdict verdict, const char *tolerance, const char *format, ...)
{
    char summary[SUMMARY_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(summary, sizeof summary, format, arguments);
    va_end(arguments);
    bool failed = json_object_set_new(entry, "verdict", json_string(verdict_names[verdict]))
        || json_object_set_new(entry, "summary", json_string(summary))
        || json_object_set_new(entry, "tolerance", tolerance ? json_string(tolerance) : json_null());
    return failed ? out_of_memory() : status_ok();
}

/* Appends and keeps the failure; the reference is taken over. Returns the value, borrowed, or NULL. */
static json_t *append(bool *failed, json_t *list, json_t *value)
{
    if (json_array_append_new(list, value)) { /* also for a NULL list or value */
        *failed = true;
        return NULL;
    }
    return value;
}

/* ---- tables ---- */

void claim_table_begin(ClaimTable *t, const char *title, const ColumnHead *heads, size_t count)
{
    *t = (ClaimTable){ .json = json_pack("{s:s,s:[],s:[],s:[]}", "title", title, "columns", "units", "rows") };
    t->failed = !t->json;
    t->rows = json_object_get(t->json, "rows");
    for (size_t i = 0; i < count; i++) {
        append(&t->failed, json_object_get(t->json, "columns"), json_string(heads[i].name));
        append(&t->failed, json_object_get(t->json, "units"), json_string(heads[i].unit));
    }
}

void claim_table_row(ClaimTable *t) { t->row = append(&t->failed, t->rows, json_array()); }
void claim_table_real(ClaimTable *t, double x) { append(&t->failed, t->row, record_real(x)); }
void claim_table_integer(ClaimTable *t, int64_t x) { append(&t->failed, t->row, json_integer((json_int_t)x)); }
void claim_table_text(ClaimTable *t, const char *text) { append(&t->failed, t->row, text ? json_string(text) : json_null()); }

static Status add(json_t *entry, const char *list, json_t *thing, bool failed)
{
    if (!failed)
        return json_array_append_new(json_object_get(entry, list), thing) ? out_of_memory() : status_ok();
    json_decref(thing);
    return out_of_memory();
}

Status entry_add_table(json_t *entry, ClaimTable *t)
{
    Status status = add(entry, "tables", t->json, t->failed);
    *t = (ClaimTable){ 0 };
    return status;
}

/* ---- charts ---- */

void claim_chart_begin(ClaimChart *c, const char *title, const char *x, const char *y, bool logx, bool logy)
{
    *c = (ClaimChart){ .json = json_pack("{s:s,s:s,s:s,s:b,s:b,s:[]}", "title", title, "x", x, "y", y, "logx", (int)logx, "logy",
                                         (int)logy, "series") };
    c->failed = !c->json;
    c->series = json_object_get(c->json, "series");
}

void claim_chart_series(ClaimChart *c, ChartStyle style, const char *format, ...)
{
    static const char *const styles[] = { "points", "line", "both" };
    char name[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    json_t *series = append(&c->failed, c->series, json_pack("{s:s,s:s,s:[]}", "name", name, "style", styles[style], "points"));
    c->points = json_object_get(series, "points");
}

void claim_chart_point(ClaimChart *c, double x, double y)
{
    append(&c->failed, c->points, json_pack("[o,o]", record_real(x), record_real(y)));
}

Status entry_add_chart(json_t *entry, ClaimChart *c)
{
    Status status = add(entry, "charts", c->json, c->failed);
    *c = (ClaimChart){ 0 };
    return status;
}
