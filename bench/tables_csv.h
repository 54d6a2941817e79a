/* tables_csv.h - the flat CSV files of a whole record. */
#ifndef BATCHMARK_BENCH_TABLES_CSV_H
#define BATCHMARK_BENCH_TABLES_CSV_H

#include "record_view.h"

/* Write cells.csv, samples.csv, ops.csv, trainings.csv, epochs.csv and curves.csv into folder. */
Status tables_write_csv(const json_t *record, const char *folder);

#endif
