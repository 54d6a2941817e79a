/* tables.h - the numbers of a record as tables: Markdown for people, CSV for programs.
 *
 * Markdown tables carry units in the heading and four digits, an en dash where there is no number. CSV files carry every
 * number of the record with 17 significant digits (it reads back bit-equal), in seconds and bytes, and an empty field
 * where there is none. */
#ifndef BATCHMARK_BENCH_TABLES_H
#define BATCHMARK_BENCH_TABLES_H

#include "record_view.h"

/* Markdown tables of one group of cells. */
void table_speed(Text *t, const Group *g);
void table_memory(Text *t, const Group *g); /* in table_memory_unit */
void table_work(Text *t, const Group *g);

/* What the device recorded in the profiled steps, where any cell of the group has that; and the kernels of one cell. */
bool group_has_device_profile(const Group *g);
void table_device(Text *t, const Group *g);
void table_kernels(Text *t, const json_t *cell);

/* "GiB", or "MiB" where the largest cell of a group needs less than one GiB. */
const char *table_memory_unit(const Group *g);

/* Markdown table of the operations of one cell, slowest first, those of under 0.1 % of the time summed up. */
void table_ops(Text *t, const json_t *cell);

/* Markdown table of one group of trainings. */
void table_trainings(Text *t, const Group *g);

/* What a training is judged by: "accuracy", "masked-LM accuracy" or "Dice", and the member of its epochs that holds it. */
const char *training_score(const json_t *training, const char **member);

/* Markdown, and CSV, of a table that a claim's code put into the record. */
void table_claim(Text *t, const json_t *table);
void table_claim_csv(Text *t, const json_t *table);

/* A number inside a sentence: "12.3 ms", "1.50 GiB"; an en dash when it is not finite. */
void text_add_seconds(Text *t, double seconds);
void text_add_bytes_size(Text *t, double bytes);
void text_add_number(Text *t, double x);

/* Write cells.csv, samples.csv, ops.csv, kernels.csv, trainings.csv, epochs.csv, curves.csv, and claim-<id>-<n>.csv and .md into folder. */
Status tables_write(const json_t *record, const Groups *cells, const Groups *trainings, const char *folder);

#endif
