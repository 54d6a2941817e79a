/* options.h - every option of the program, once: parsing, --help and the record's echo come from one table. */
#ifndef BATCHMARK_BENCH_OPTIONS_H
#define BATCHMARK_BENCH_OPTIONS_H

#include "../nets/nets.h"
#include "schedule.h"

#include <jansson.h>
#include <stdio.h>

typedef enum Command {
    COMMAND_BENCH, COMMAND_TRAIN, COMMAND_PLAN, COMMAND_INFO, COMMAND_CLAIMS, COMMAND_REPORT, COMMAND_SERVE, COMMAND_COUNT
} Command;

extern const char *const command_names[COMMAND_COUNT];

enum { AXIS_MAX = 16 };

/* One axis of a sweep: the values given, in order; count 0 = not given. Choices are stored as their index. */
typedef struct Axis { int64_t value[AXIS_MAX]; int count; } Axis;

typedef struct Options {
    Command command;
    /* what runs where */
    const char *device, *layout;
    int64_t threads, autotune, graphs;                     /* the latter two: 1 = on */
    /* the net */
    const char *net;
    Axis    size, batch, amp, accum;
    double  width;
    int64_t classes, stem, depth, stem_stride;             /* 0: the net's own */
    int64_t layers, hidden, heads, vocab, head, tokens;    /* of bert; 0: its own */
    bool    zero_gamma;
    int64_t optimizer;                                     /* index, or -1: the net's own */
    double  momentum, weight_decay, dropout, beta1, beta2; /* NaN: the net's own */
    double  clip;
    /* data and training */
    const char *data, *data_dir, *vocab_file;
    int64_t limit, epochs, loaders, seed, schedule, padding, lr_scaling, base_batch;
    double  label_noise, lr, warmup, target_acc, max_seconds;
    bool    no_augment;
    /* measuring */
    const char *preset, *out;
    bool    resume, no_profile, no_peaks, trace, primitives;
    double  cell_seconds, precision;
    int64_t mem_limit;
    /* planning */
    const char *gpu;                                       /* a name of gpus.h, or NULL */
    bool    max_batch;
    double  reserve;                                       /* percent */
    /* finding faults */
    bool    print_graph, check_nan, poison, no_planner;
    /* output */
    bool    json, quiet, help, version, no_report, no_png;
    /* words after the options: claim ids, a record */
    const char *words[AXIS_MAX];
    int     word_count;
} Options;

/* Reads argv[1..] (the command first). argv must outlive the options. STATUS_USAGE with what was wrong and what would be
 * right. --help and no command at all set help. */
Status options_parse(int argc, char **argv, Options *out);

/* The help of one command, or of the program if it is COMMAND_COUNT. */
void options_help(FILE *to, Command command);

/* {"batch": [1, 2], "amp": ["off"], ...}: every option of the command with its value, for the record. */
Status options_echo(const Options *o, json_t **out);

/* The one value of an axis that a command takes only one of. */
Status axis_single(const Axis *axis, const char *name, int64_t *value);

/* "2 GiB", "512MiB", "1500000" -> bytes; false if it is none of these. */
bool parse_bytes(const char *text, int64_t *bytes);

/* "2.54 GiB" into text. */
const char *format_bytes(double bytes, char *text, size_t size);

#endif
