/* options.c - the option table and what reads it. To add an option: one member of Options, one row here. */
#include "options.h"

#include "../kernels/gpus.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const command_names[COMMAND_COUNT] = { "bench", "train", "plan", "info", "claims", "report", "serve" };

static const char *const amp_choices[] = { "off", "bf16", "fp16", "tf32", NULL };
static const char *const net_choices[] = { "resnet50", "unet", "bert", NULL };
static const char *const head_choices[] = { "masked", "all", "classify", NULL };
static const char *const optim_choices[] = { "sgd", "adamw", "lamb", "lars", NULL };
static const char *const padding_choices[] = { "fixed", "dynamic", "budget", NULL };
static const char *const stem_choices[] = { "standard", "small", NULL };
static const char *const preset_choices[] = { "smoke", "quick", "full", NULL };
static const char *const switch_choices[] = { "off", "on", NULL };
static const char *const layout_choices[] = { "auto", "blocked", "nhwc", NULL };

static const char *const command_help[COMMAND_COUNT] = {
    [COMMAND_BENCH]  = "sweep batch size, precision and accumulation; write record, tables, charts and report",
    [COMMAND_TRAIN]  = "train one net on one data set and evaluate it",
    [COMMAND_PLAN]   = "memory by category, without running anything",
    [COMMAND_INFO]   = "what this machine and this build are, and their measured peaks",
    [COMMAND_CLAIMS] = "list the claims, or run some: batchmark claims A1 B2",
    [COMMAND_REPORT] = "tables, charts and report again from a stored record: batchmark report results/<run>",
    [COMMAND_SERVE]  = "time steps on demand for bench/peers; a line protocol on stdin",
};

typedef enum OptionType {
    TYPE_FLAG, TYPE_INT, TYPE_REAL, TYPE_TEXT, TYPE_BYTES,
    TYPE_CHOICE,       /* int64_t: index into choices; -1 = not given and without an initial value */
    TYPE_NAME,         /* const char *: one of choices */
    TYPE_AXIS_INT, TYPE_AXIS_CHOICE
} OptionType;

enum {
    BENCH = 1 << COMMAND_BENCH, TRAIN = 1 << COMMAND_TRAIN, PLAN = 1 << COMMAND_PLAN, INFO = 1 << COMMAND_INFO,
    CLAIMS = 1 << COMMAND_CLAIMS, REPORT = 1 << COMMAND_REPORT, SERVE = 1 << COMMAND_SERVE,
    RUNS = BENCH | TRAIN | CLAIMS, NET = BENCH | TRAIN | PLAN | SERVE, ALL = (1 << COMMAND_COUNT) - 1
};

typedef struct OptionSpec {
    const char *name;
    OptionType  type;
    size_t      offset;
    int         commands;
    double      low, high;
    const char *const *choices;
    const char *initial;      /* parsed like the user's own text; NULL = not given: 0, for TYPE_REAL NaN, for TYPE_CHOICE -1 */
    const char *help;
} OptionSpec;

#define AT(member) offsetof(Options, member)

static const OptionSpec specs[] = {
    { "device", TYPE_TEXT, AT(device), ALL & ~REPORT, 0, 0, NULL, "auto", "auto, cpu, cuda or cuda:N; auto is a GPU if there is one that works" },
    { "threads", TYPE_INT, AT(threads), ALL & ~REPORT, 0, 4096, NULL, "0", "CPU threads; 0 = every core this process may use" },
    { "layout", TYPE_NAME, AT(layout), ALL & ~REPORT, 0, 0, layout_choices, "auto", "layout of activations on CPUs, for experiments" },
    { "autotune", TYPE_CHOICE, AT(autotune), RUNS | INFO | SERVE, 0, 0, switch_choices, "on", "GPUs: time each library's proposals for an op and keep the fastest; off takes the first" },
    { "graphs", TYPE_CHOICE, AT(graphs), RUNS | SERVE, 0, 0, switch_choices, "on", "GPUs: record the step once and replay it, which saves the time of launching" },

    { "net", TYPE_NAME, AT(net), NET, 0, 0, net_choices, NULL, "net to run, resnet50 if not given; a preset runs only what it has for this one" },
    { "size", TYPE_AXIS_INT, AT(size), NET, 8, 4096, NULL, NULL, "images: height = width in pixels; bert: longest sequence in tokens" },
    { "batch", TYPE_AXIS_INT, AT(batch), NET, 1, 65536, NULL, NULL, "samples in a micro-batch" },
    { "amp", TYPE_AXIS_CHOICE, AT(amp), NET, 0, 0, amp_choices, NULL, "mixed precision; fp16 has a dynamic loss scale; tf32 is fp32 with products of TF32, on GPUs that have it" },
    { "accum", TYPE_AXIS_INT, AT(accum), NET, 1, 65536, NULL, NULL, "micro-batches in one update" },
    { "width", TYPE_REAL, AT(width), NET, 0.01, 16, NULL, "1", "resnet50, unet: multiplier of every layer's channels" },
    { "classes", TYPE_INT, AT(classes), BENCH | PLAN | SERVE | TRAIN, 1, 100000, NULL, NULL, "classes of the output; unet 1: BCE + soft Dice; train takes them from the data" },
    { "stem", TYPE_CHOICE, AT(stem), NET, 0, 0, stem_choices, "standard", "resnet50: standard is 7x7/2 and max pool, small 3x3/1 for small images" },
    { "depth", TYPE_INT, AT(depth), NET, 1, 8, NULL, NULL, "unet: levels of pooling, 4 if not given" },
    { "stem-stride", TYPE_INT, AT(stem_stride), NET, 1, 2, NULL, NULL, "unet: 2 halves every feature map" },
    { "layers", TYPE_INT, AT(layers), NET, 1, 128, NULL, NULL, "bert: encoder layers, 12 if not given" },
    { "hidden", TYPE_INT, AT(hidden), NET, 1, 16384, NULL, NULL, "bert: features of a token, 768 if not given" },
    { "heads", TYPE_INT, AT(heads), NET, 1, 256, NULL, NULL, "bert: attention heads, 12 if not given" },
    { "vocab-size", TYPE_INT, AT(vocab), NET, 2, 1000000, NULL, NULL, "bert: entries of the vocabulary, 30522 if not given" },
    { "head", TYPE_CHOICE, AT(head), NET, 0, 0, head_choices, "masked", "bert: masked LM on target tokens, on all tokens, or classification" },
    { "tokens", TYPE_INT, AT(tokens), NET, 8, 16777216, NULL, NULL, "bert: rows of tokens in a micro-batch, for --padding budget; batch x size if not given" },
    { "dropout", TYPE_REAL, AT(dropout), NET, 0, 0.99, NULL, NULL, "bert: 0.1 if not given" },
    { "zero-gamma", TYPE_FLAG, AT(zero_gamma), TRAIN, 0, 0, NULL, NULL, "resnet50: start the last batch norm of each block at 0" },
    { "optimizer", TYPE_CHOICE, AT(optimizer), NET, 0, 0, optim_choices, NULL, "sgd if not given, for bert adamw" },
    { "momentum", TYPE_REAL, AT(momentum), NET, 0, 0.9999, NULL, NULL, "sgd, lars: 0.9 if not given" },
    { "beta1", TYPE_REAL, AT(beta1), TRAIN, 0, 0.9999, NULL, NULL, "adamw, lamb: 0.9 if not given" },
    { "beta2", TYPE_REAL, AT(beta2), TRAIN, 0, 0.99999, NULL, NULL, "adamw, lamb: 0.999 if not given" },
    { "weight-decay", TYPE_REAL, AT(weight_decay), TRAIN, 0, 1, NULL, NULL, "not for norms and biases; 0.0001 if not given, for bert 0.01" },
    { "clip", TYPE_REAL, AT(clip), TRAIN, 0, 1e9, NULL, "0", "largest norm of all gradients together; 0 = no clipping" },

    { "data", TYPE_TEXT, AT(data), TRAIN, 0, 0, NULL, NULL, "data set: fashion-mnist, folder, shapes; mri, masks, ellipses, vessels; bible, glosses, text, gloss-classes, copy" },
    { "data-dir", TYPE_TEXT, AT(data_dir), TRAIN, 0, 0, NULL, NULL, "where its files are, if not in the usual place" },
    { "vocab", TYPE_TEXT, AT(vocab_file), TRAIN, 0, 0, NULL, NULL, "bert: a WordPiece vocab.txt; without it one is built from the text" },
    { "padding", TYPE_CHOICE, AT(padding), TRAIN, 0, 0, padding_choices, "fixed", "bert: how sequences lie in a batch; budget packs them into --tokens rows" },
    { "limit", TYPE_INT, AT(limit), TRAIN, 0, 1e9, NULL, "0", "use only so many samples of each split; 0 = all" },
    { "label-noise", TYPE_REAL, AT(label_noise), TRAIN, 0, 1, NULL, "0", "share of labels drawn at random (shapes only)" },
    { "epochs", TYPE_INT, AT(epochs), TRAIN, 1, 100000, NULL, "1", "passes over the training split" },
    { "lr", TYPE_REAL, AT(lr), TRAIN, 0, 1000, NULL, "0", "learning rate; 0 = by the optimizer: sgd 0.1 x effective batch / 256, lars ten times that, adamw 0.0003, lamb 0.002" },
    { "lr-scaling", TYPE_CHOICE, AT(lr_scaling), TRAIN, 0, 0, rate_rule_names, "none", "how a given --lr follows the effective batch: --lr x (batch / --base-batch), or its square root" },
    { "base-batch", TYPE_INT, AT(base_batch), TRAIN, 1, 1e9, NULL, "256", "the effective batch that --lr was chosen for" },
    { "schedule", TYPE_CHOICE, AT(schedule), TRAIN, 0, 0, schedule_names, "cosine", "of the learning rate after the warm-up" },
    { "warmup", TYPE_REAL, AT(warmup), TRAIN, 0, 1000, NULL, "0.25", "epochs of linear warm-up" },
    { "loaders", TYPE_INT, AT(loaders), TRAIN, 0, 256, NULL, "1", "loader threads; 0 = load inside the step" },
    { "no-augment", TYPE_FLAG, AT(no_augment), TRAIN, 0, 0, NULL, NULL, "no random crop and flip" },
    { "target-acc", TYPE_REAL, AT(target_acc), TRAIN, 0, 100, NULL, "0", "stop at this test accuracy (with masks: Dice) in percent; 0 = run all epochs" },
    { "max-seconds", TYPE_REAL, AT(max_seconds), TRAIN, 0, 1e9, NULL, "0", "stop after so long; 0 = never" },
    { "seed", TYPE_INT, AT(seed), RUNS | SERVE, 0, 9e15, NULL, "1", "of weights, order and augmentation" },

    { "preset", TYPE_NAME, AT(preset), BENCH | CLAIMS, 0, 0, preset_choices, NULL, "how much to run: smoke (a minute), quick (15 minutes on two cores), full" },
    { "out", TYPE_TEXT, AT(out), RUNS | REPORT, 0, 0, NULL, NULL, "folder of the record; default results/<time>-<host>" },
    { "resume", TYPE_FLAG, AT(resume), BENCH | CLAIMS, 0, 0, NULL, NULL, "go on with the record in --out" },
    { "cell-seconds", TYPE_REAL, AT(cell_seconds), BENCH | CLAIMS, 0.001, 86400, NULL, NULL, "longest sampling of one cell" },
    { "precision", TYPE_REAL, AT(precision), BENCH | CLAIMS, 0.0001, 1, NULL, "0.01", "sample until the standard error is under this share of the mean" },
    { "no-profile", TYPE_FLAG, AT(no_profile), BENCH, 0, 0, NULL, NULL, "no profiled steps after the timed ones" },
    { "primitives", TYPE_FLAG, AT(primitives), BENCH, 0, 0, NULL, NULL, "also time every op of the step alone, caches cold, and compare the sum" },
    { "no-peaks", TYPE_FLAG, AT(no_peaks), BENCH | CLAIMS, 0, 0, NULL, NULL, "do not measure this machine's peaks: no floors" },
    { "trace", TYPE_FLAG, AT(trace), BENCH, 0, 0, NULL, NULL, "write a Chrome trace of the profiled steps" },
    { "mem-limit", TYPE_BYTES, AT(mem_limit), BENCH | TRAIN | PLAN | CLAIMS | SERVE, 1, 9e15, NULL, NULL, "capacity to respect, such as 16GiB; default this machine's memory" },
    { "gpu", TYPE_TEXT, AT(gpu), PLAN, 0, 0, NULL, NULL, "plan for this GPU, which need not be here, such as h100-80g; its memory is the limit" },
    { "max-batch", TYPE_FLAG, AT(max_batch), PLAN, 0, 0, NULL, NULL, "answer the largest batch that fits" },
    { "reserve", TYPE_REAL, AT(reserve), PLAN, 0, 90, NULL, "0", "percent of the memory to leave free; the article keeps 20" },

    { "print-graph", TYPE_FLAG, AT(print_graph), PLAN, 0, 0, NULL, NULL, "print every node with its shapes" },
    { "check-nan", TYPE_FLAG, AT(check_nan), TRAIN | BENCH, 0, 0, NULL, NULL, "name the first tensor that is not finite" },
    { "poison", TYPE_FLAG, AT(poison), TRAIN | BENCH, 0, 0, NULL, NULL, "fill freed memory with NaN, to show reads of stale values" },
    { "no-planner", TYPE_FLAG, AT(no_planner), TRAIN | BENCH | PLAN, 0, 0, NULL, NULL, "every tensor in memory of its own" },

    { "no-report", TYPE_FLAG, AT(no_report), BENCH | CLAIMS | TRAIN, 0, 0, NULL, NULL, "record only: no tables, charts and report" },
    { "no-png", TYPE_FLAG, AT(no_png), BENCH | CLAIMS | TRAIN | REPORT, 0, 0, NULL, NULL, "charts as SVG only" },
    { "json", TYPE_FLAG, AT(json), ALL, 0, 0, NULL, NULL, "one JSON document on stdout, messages on stderr" },
    { "quiet", TYPE_FLAG, AT(quiet), ALL, 0, 0, NULL, NULL, "no progress line" },
    { "help", TYPE_FLAG, AT(help), ALL, 0, 0, NULL, NULL, "this text" },
};

static void *slot(Options *o, const OptionSpec *spec) { return (char *)o + spec->offset; }
static const void *slot_const(const Options *o, const OptionSpec *spec) { return (const char *)o + spec->offset; }

bool parse_bytes(const char *text, int64_t *bytes)
{
    static const struct { const char *suffix; double factor; } units[] = {
        { "", 1 }, { "B", 1 }, { "KiB", 1024.0 }, { "MiB", 1048576.0 }, { "GiB", 1073741824.0 }, { "TiB", 1099511627776.0 },
        { "K", 1024.0 }, { "M", 1048576.0 }, { "G", 1073741824.0 }, { "kB", 1e3 }, { "MB", 1e6 }, { "GB", 1e9 }, { "TB", 1e12 },
    };
    char *end;
    double x = strtod(text, &end);
    if (end == text || !isfinite(x) || x < 0)
        return false;
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < COUNT_OF(units); i++)
        if (!strcmp(end, units[i].suffix) && x * units[i].factor < 9e15) {
            *bytes = (int64_t)(x * units[i].factor);
            return true;
        }
    return false;
}

const char *format_bytes(double bytes, char *text, size_t size)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    int u = 0;
    while (bytes >= 1024 && u < 4) {
        bytes /= 1024;
        u++;
    }
    snprintf(text, size, u && bytes < 100 ? "%.2f %s" : "%.0f %s", bytes, units[u]);
    return text;
}

static bool parse_int(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    *value = v;
    return end != text && !*end && !errno;
}

static bool parse_real(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && isfinite(*value);
}

static int find_choice(const char *const *choices, const char *text)
{
    for (int i = 0; choices[i]; i++)
        if (!strcmp(choices[i], text))
            return i;
    return -1;
}

static const char *join_choices(const char *const *choices, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; choices[i] && n < size; i++) {
        int m = snprintf(text + n, size - n, "%s%s", i ? ", " : "", choices[i]);
        n += m > 0 ? (size_t)m : 0;
    }
    return text;
}

static Status bad_number(const OptionSpec *spec, const char *text, const char *kind)
{
    return status_error(STATUS_USAGE, "--%s '%s': must be %s from %.10g to %.10g", spec->name, text, kind, spec->low, spec->high);
}

static Status bad_choice(const OptionSpec *spec, const char *text)
{
    char list[160];
    return status_error(STATUS_USAGE, "--%s '%s': must be one of %s", spec->name, text, join_choices(spec->choices, list, sizeof list));
}

static Status parse_axis(const OptionSpec *spec, const char *text, Axis *axis)
{
    axis->count = 0;
    for (const char *p = text;; p++) {
        char item[32];
        size_t n = strcspn(p, ",");
        if (n == 0 || n >= sizeof item)
            return status_error(STATUS_USAGE, "--%s '%s': must be values separated by commas, such as 1,2,4", spec->name, text);
        if (axis->count == AXIS_MAX)
            return status_error(STATUS_USAGE, "--%s '%s': at most %d values", spec->name, text, AXIS_MAX);
        memcpy(item, p, n);
        item[n] = '\0';
        int64_t v;
        if (spec->type == TYPE_AXIS_CHOICE) {
            v = find_choice(spec->choices, item);
            if (v < 0)
                return bad_choice(spec, item);
        } else if (!parse_int(item, &v) || (double)v < spec->low || (double)v > spec->high) {
            return bad_number(spec, item, "a whole number");
        }
        for (int i = 0; i < axis->count; i++)
            if (axis->value[i] == v)
                return status_error(STATUS_USAGE, "--%s '%s': %s stands there twice", spec->name, text, item);
        axis->value[axis->count++] = v;
        p += n;
        if (!*p)
            return status_ok();
    }
}

static Status parse_value(const OptionSpec *spec, const char *text, Options *o)
{
    void *to = slot(o, spec);
    switch (spec->type) {
    case TYPE_FLAG:
        *(bool *)to = true;
        return status_ok();
    case TYPE_INT:
        if (!parse_int(text, to) || (double)*(int64_t *)to < spec->low || (double)*(int64_t *)to > spec->high)
            return bad_number(spec, text, "a whole number");
        return status_ok();
    case TYPE_REAL:
        if (!parse_real(text, to) || *(double *)to < spec->low || *(double *)to > spec->high)
            return bad_number(spec, text, "a number");
        return status_ok();
    case TYPE_BYTES:
        if (!parse_bytes(text, to) || *(int64_t *)to < 1)
            return status_error(STATUS_USAGE, "--%s '%s': must be a size such as 16GiB, 16GB, 512MiB or 1500000", spec->name, text);
        return status_ok();
    case TYPE_TEXT:
        if (!*text)
            return status_error(STATUS_USAGE, "--%s needs a value, it is empty", spec->name);
        *(const char **)to = text;
        return status_ok();
    case TYPE_CHOICE:
    case TYPE_NAME: {
        int i = find_choice(spec->choices, text);
        if (i < 0)
            return bad_choice(spec, text);
        if (spec->type == TYPE_CHOICE)
            *(int64_t *)to = i;
        else
            *(const char **)to = spec->choices[i];
        return status_ok();
    }
    case TYPE_AXIS_INT:
    case TYPE_AXIS_CHOICE:
        return parse_axis(spec, text, to);
    }
    return status_ok();
}

static const OptionSpec *find_option(const char *name, size_t length)
{
    for (size_t i = 0; i < COUNT_OF(specs); i++)
        if (strlen(specs[i].name) == length && !strncmp(specs[i].name, name, length))
            return &specs[i];
    return NULL;
}

/* One "--name value" or "--name=value" at argv[*i]. */
static Status parse_option(int argc, char **argv, int *i, Options *o)
{
    const char *name = argv[*i] + 2;
    size_t length = strcspn(name, "=");
    const OptionSpec *spec = find_option(name, length);
    const char *command = command_names[o->command];
    if (!spec)
        return status_error(STATUS_USAGE, "unknown option --%.*s: 'batchmark %s --help' lists them", (int)length, name, command);
    if (!(spec->commands & (1 << o->command)))
        return status_error(STATUS_USAGE, "--%s is not an option of 'batchmark %s': see its --help", spec->name, command);
    const char *value = name[length] ? name + length + 1 : NULL;
    if (spec->type == TYPE_FLAG) {
        if (value)
            return status_error(STATUS_USAGE, "--%s takes no value", spec->name);
        return parse_value(spec, "", o);
    }
    if (!value) {
        if (*i + 1 >= argc)
            return status_error(STATUS_USAGE, "--%s needs a value", spec->name);
        value = argv[++*i];
    }
    return parse_value(spec, value, o);
}

Status options_parse(int argc, char **argv, Options *out)
{
    memset(out, 0, sizeof *out);
    out->command = COMMAND_COUNT;
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        out->version = true;
        return status_ok();
    }
    for (size_t i = 0; i < COUNT_OF(specs); i++)
        if (specs[i].initial)
            TRY(parse_value(&specs[i], specs[i].initial, out));
        else if (specs[i].type == TYPE_REAL)
            *(double *)slot(out, &specs[i]) = NAN;
        else if (specs[i].type == TYPE_CHOICE)
            *(int64_t *)slot(out, &specs[i]) = -1;
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "help") || !strcmp(argv[1], "-h")) {
        out->help = true;
        return status_ok();
    }
    for (int c = 0; c < COMMAND_COUNT; c++)
        if (!strcmp(argv[1], command_names[c]))
            out->command = (Command)c;
    if (out->command == COMMAND_COUNT)
        return status_error(STATUS_USAGE, "unknown command '%s': use bench, train, plan, info, claims, report or serve", argv[1]);
    for (int i = 2; i < argc; i++) {
        if (!strncmp(argv[i], "--", 2) && argv[i][2]) {
            TRY(parse_option(argc, argv, &i, out));
        } else if (argv[i][0] == '-' && argv[i][1]) {
            return status_error(STATUS_USAGE, "unknown option %s: options are written --name value", argv[i]);
        } else if (out->command != COMMAND_CLAIMS && out->command != COMMAND_REPORT) {
            return status_error(STATUS_USAGE, "'batchmark %s' takes no word '%s': options are written --name value", argv[1], argv[i]);
        } else if (out->word_count == AXIS_MAX) {
            return status_error(STATUS_USAGE, "too many words: at most %d", AXIS_MAX);
        } else {
            out->words[out->word_count++] = argv[i];
        }
    }
    if (out->gpu && !gpu_find(out->gpu)) {
        char list[320];
        return status_error(STATUS_USAGE, "--gpu '%s': must be one of %s", out->gpu, gpu_names(list, sizeof list));
    }
    if (out->resume && !out->out)
        return status_error(STATUS_USAGE, "--resume needs --out with the folder of the record to go on with");
    return status_ok();
}

static const char *type_hint(const OptionSpec *spec, char *text, size_t size)
{
    switch (spec->type) {
    case TYPE_FLAG:        text[0] = '\0'; return text;
    case TYPE_CHOICE:
    case TYPE_NAME:
    case TYPE_AXIS_CHOICE: return join_choices(spec->choices, text, size);
    case TYPE_AXIS_INT:    snprintf(text, size, "N[,N...]"); return text;
    case TYPE_INT:         snprintf(text, size, "N"); return text;
    case TYPE_REAL:        snprintf(text, size, "X"); return text;
    case TYPE_BYTES:       snprintf(text, size, "BYTES"); return text;
    case TYPE_TEXT:        snprintf(text, size, "TEXT"); return text;
    }
    return text;
}

enum { HELP_WIDTH = 100, HELP_COLUMN = 39 };

/* An option and what it does, the latter broken at spaces and indented. */
static void print_option(FILE *to, const OptionSpec *s)
{
    char hint[96], left[128], text[256];
    snprintf(left, sizeof left, "--%s %s", s->name, type_hint(s, hint, sizeof hint));
    snprintf(text, sizeof text, "%s%s%s%s", s->help, s->initial ? " [" : "", s->initial ? s->initial : "", s->initial ? "]" : "");
    int column = fprintf(to, "  %-*s", HELP_COLUMN - 3, left);
    for (const char *word = text; *word; word += strspn(word, " ")) {
        const int length = (int)strcspn(word, " ");
        if (column + 1 + length > HELP_WIDTH)
            column = fprintf(to, "\n%*s", HELP_COLUMN - 1, "") - 1;
        column += fprintf(to, " %.*s", length, word);
        word += length;
    }
    fputc('\n', to);
}

void options_help(FILE *to, Command command)
{
    if (command == COMMAND_COUNT) {
        fprintf(to, "batchmark measures what batch size, mixed precision and gradient accumulation do to training.\n\n"
                    "usage: batchmark COMMAND [--option value ...]\n\n");
        for (int c = 0; c < COMMAND_COUNT; c++)
            fprintf(to, "  %-8s %s\n", command_names[c], command_help[c]);
        fprintf(to, "\n'batchmark COMMAND --help' lists the options of one.\n"
                    "Exit codes: 0 all ran, 1 failed, 2 wrong usage, 3 partial (some cells out of memory, skipped or interrupted).\n");
        return;
    }
    fprintf(to, "batchmark %s: %s\n\n", command_names[command], command_help[command]);
    for (size_t i = 0; i < COUNT_OF(specs); i++)
        if (specs[i].commands & (1 << command))
            print_option(to, &specs[i]);
    if (command == COMMAND_BENCH)
        fprintf(to, "\nAxes take several values (--batch 1,2,4). Without axes the preset decides what runs.\n"
                    "All --benchmark_* flags of Google Benchmark work too: --benchmark_filter=REGEX, --benchmark_list_tests, ...\n");
}

static json_t *echo_value(const OptionSpec *s, const Options *o)
{
    const void *at = slot_const(o, s);
    switch (s->type) {
    case TYPE_FLAG:   return json_boolean(*(const bool *)at);
    case TYPE_INT:    return json_integer(*(const int64_t *)at);
    case TYPE_BYTES:  return *(const int64_t *)at ? json_integer(*(const int64_t *)at) : json_null();
    case TYPE_REAL:   return isnan(*(const double *)at) ? json_null() : json_real(*(const double *)at);
    case TYPE_CHOICE: return *(const int64_t *)at < 0 ? json_null() : json_string(s->choices[*(const int64_t *)at]);
    case TYPE_TEXT:
    case TYPE_NAME:   return *(const char *const *)at ? json_string(*(const char *const *)at) : json_null();
    default: break;
    }
    const Axis *axis = at;
    json_t *list = json_array();
    for (int i = 0; list && i < axis->count; i++) {
        json_t *item = s->type == TYPE_AXIS_INT ? json_integer(axis->value[i]) : json_string(s->choices[axis->value[i]]);
        if (json_array_append_new(list, item)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

Status options_echo(const Options *o, json_t **out)
{
    json_t *echo = json_object();
    for (size_t i = 0; echo && i < COUNT_OF(specs); i++)
        if ((specs[i].commands & (1 << o->command)) && json_object_set_new(echo, specs[i].name, echo_value(&specs[i], o))) {
            json_decref(echo);
            echo = NULL;
        }
    *out = echo;
    return echo ? status_ok() : status_error(STATUS_OOM, "out of memory for the record's options");
}

Status axis_single(const Axis *axis, const char *name, int64_t *value)
{
    if (axis->count > 1)
        return status_error(STATUS_USAGE, "--%s: this command takes one value, %d were given", name, axis->count);
    if (axis->count == 1)
        *value = axis->value[0];
    return status_ok();
}
