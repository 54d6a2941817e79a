/* fuzz_record.c - results/<run>/record.json as the report reads it: the checks, and the view on what passed them. */
#include "fuzz.h"

#include "bench/record.h"
#include "bench/record_view.h"

static void look_at_groups(Status (*make)(const json_t *, Groups *), const json_t *root)
{
    Groups groups;
    Status status = make(root, &groups);
    if (!fuzz_accepted(&status))
        return;
    for (size_t i = 0; i < groups.count; i++) {
        const Group *g = &groups.groups[i];
        CHECK(g->count > 0 && strlen(g->title) < sizeof g->title && !strchr(g->slug, '/'));
        for (size_t k = 0; k < g->count; k++) {
            char series[SERIES_TEXT_BYTES];
            cell_series_name(g->items[k], series);
            CHECK(strlen(series) < sizeof series);
            CHECK(cell_same_series(g->items[0], g->items[0]));
            (void)cell_floor_percent(g->items[k]);
            (void)record_count(g->items[k], "step_seconds.samples");
        }
    }
    groups_free(&groups);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FILE *stream = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
    if (!stream)
        return 0;
    json_t *root = NULL;
    Status status = record_read(stream, "record.json", &root);
    fclose(stream);
    CHECK((status.code == STATUS_OK) == (root != NULL));
    if (fuzz_accepted(&status)) {
        look_at_groups(groups_of_cells, root);
        look_at_groups(groups_of_trainings, root);
    }
    json_decref(root);
    return 0;
}
