/* charts.h - which charts a record gives, and where on the page they belong.
 *
 * A drawn chart's section is "cells/<group>/<kind>", "trainings/<group>" or "claims/<id>". */
#ifndef BATCHMARK_BENCH_CHARTS_H
#define BATCHMARK_BENCH_CHARTS_H

#include "chart.h"
#include "record_view.h"

/* Draw every chart of a record into setup->folder and list them in setup. Errors as chart_draw. */
Status charts_draw(const json_t *record, const Groups *cells, const Groups *trainings, ChartSetup *setup);

#endif
