/* text.c - the part of a TextSet that all sets share: look-up by name, checks of the config, files and cache; and the
 * generator "copy".
 *
 * copy: "[CLS] s [SEP] s [SEP]" with a segment s of uniform random tokens. A masked token can be known from its twin
 * unless that is masked or replaced too (13.5 % of them), or guessed where it was left as it was; without looking at
 * the other half nothing can be known. */
#include "text.h"

#include "source.h"
#include "text_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { COPY_TRAIN = 20000, COPY_TEST = 2000, VOCAB_SIZE_USUAL = 30522, FILES_MOST = 8 };

/* ---- the sets ---- */

typedef struct Package {
    const char *files[4];
    const char *usual_dir, *apt, *title;
} Package;

static const Package bible = {
    { "ot.bzs", "ot.bzz", "nt.bzs", "nt.bzz" },
    "/usr/share/sword/modules/texts/ztext/engWEB2015eb", "sword-text-web", "World English Bible",
};
static const Package wordnet = {
    { "data.noun", "data.verb", "data.adj", "data.adv" }, "/usr/share/wordnet", "wordnet-base", "WordNet glosses",
};

typedef struct Kind {
    const char    *name;
    const Package *package[2]; /* both NULL: the generator */
    int            files;      /* of each package */
    bool           classes;
    const char    *split;      /* how, for text_describe */
} Kind;

static const Kind kinds[] = {
    { "bible", { &bible, NULL }, 4, false, "chapter" },
    { "glosses", { &wordnet, NULL }, 4, false, "gloss" },
    { "text", { &bible, &wordnet }, 4, false, "chapter and gloss" },
    { "gloss-classes", { &wordnet, NULL }, 1, true, "gloss" },
    { "copy", { NULL, NULL }, 0, false, "random stream" },
};

const char *text_names(void)
{
    return "bible, glosses, text, gloss-classes, copy";
}

static Status check_config(const TextConfig *config, const Kind **out)
{
    const char *name = config->name ? config->name : "";
    const Kind *kind = NULL;
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0)
            kind = &kinds[i];
    if (!kind)
        return status_error(STATUS_USAGE, "text set '%.100s' is unknown; there are: %s", name, text_names());
    if (config->seq < TEXT_SEQ_MIN || config->seq > TEXT_SEQ_MAX)
        return status_error(STATUS_USAGE, "%s: sequence length %" PRId64 " is outside %d..%d", name, config->seq,
                            TEXT_SEQ_MIN, TEXT_SEQ_MAX);
    if (config->vocab_size != 0 && (config->vocab_size < VOCAB_SIZE_MIN || config->vocab_size > VOCAB_SIZE_MAX))
        return status_error(STATUS_USAGE, "%s: vocabulary size %" PRId64 " is outside %d..%d", name,
                            config->vocab_size, VOCAB_SIZE_MIN, VOCAB_SIZE_MAX);
    if (config->limit < 0)
        return status_error(STATUS_USAGE, "%s: limit %" PRId64 " is negative; 0 means all samples", name,
                            config->limit);
    if (config->classify && !kind->classes)
        return status_error(STATUS_USAGE, "%s has no classes; gloss-classes has", name);
    if (!kind->package[0] && (config->dir || config->vocab))
        return status_error(STATUS_USAGE, "%s is generated and reads no %s ('%s' was given)", name,
                            config->dir ? "directory" : "vocabulary",
                            dataset_shown_path(config->dir ? config->dir : config->vocab));
    *out = kind;
    return status_ok();
}

/* ---- sets from files ---- */

typedef struct Files {
    FileBytes file[FILES_MOST], vocab;
    int       count;
} Files;

static void files_free(Files *files)
{
    for (int i = 0; i < files->count; i++)
        file_free(&files->file[i]);
    file_free(&files->vocab);
}

static Status read_files(const Kind *kind, const TextConfig *config, Files *out)
{
    memset(out, 0, sizeof *out);
    for (int p = 0; p < 2 && kind->package[p]; p++) {
        const Package *package = kind->package[p];
        const char *dir = config->dir ? config->dir : package->usual_dir;
        for (int i = 0; i < kind->files; i++) {
            Status status = file_read(dir, package->files[i], &out->file[out->count++]);
            if (status.code == STATUS_INPUT && !config->dir && access(dir, F_OK) != 0)
                return status_error(STATUS_INPUT, "%s: %s is missing: apt install %s, or name the files' folder with "
                                    "--data-dir", kind->name, dir, package->apt);
            TRY(status);
        }
    }
    return config->vocab ? file_read(config->vocab, NULL, &out->vocab) : status_ok();
}

static void make_key(const Kind *kind, const TextConfig *config, int64_t vocab_size, const Files *files, CacheKey *key)
{
    uint32_t crc = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < files->count; i++) {
        uint64_t length = files->file[i].length;
        crc = (uint32_t)crc32_z(crc, (const Bytef *)&length, sizeof length);
        crc = (uint32_t)crc32_z(crc, (const Bytef *)files->file[i].bytes, files->file[i].length);
        bytes += length;
    }
    memset(key, 0, sizeof *key);
    key->source_bytes = bytes;
    key->source_crc = crc;
    key->vocab_size = vocab_size;
    if (config->vocab)
        key->vocab_crc = (uint32_t)crc32_z(1, (const Bytef *)files->vocab.bytes, files->vocab.length);
    cache_locate(kind->name, config->dir ? config->dir : "", key);
}

static Status parse_files(const Kind *kind, const Files *files, Documents *out)
{
    const FileBytes *file = files->file;
    for (int p = 0; p < 2 && kind->package[p]; p++, file += kind->files) {
        for (int i = 0; kind->package[p] == &bible && i < kind->files; i += 2)
            TRY(sword_read(&file[i], &file[i + 1], out));
        for (int i = 0; kind->package[p] == &wordnet && i < kind->files; i++)
            TRY(wordnet_read(&file[i], out));
    }
    return status_ok();
}

static Status load_corpus(const Kind *kind, const TextConfig *config, const Files *files, Corpus *out)
{
    int64_t size = config->vocab_size || config->vocab ? config->vocab_size : VOCAB_SIZE_USUAL;
    CacheKey key;
    make_key(kind, config, size, files, &key);
    bool found;
    TRY(cache_load(&key, out, &found));
    if (found)
        return status_ok();
    Documents documents;
    memset(&documents, 0, sizeof documents);
    Status status = parse_files(kind, files, &documents);
    if (status.code == STATUS_OK)
        status = corpus_build(&documents, config->vocab ? &files->vocab : NULL, size, out);
    documents_free(&documents);
    TRY(status);
    return cache_save(&key, out);
}

static Status open_files(const Kind *kind, const TextConfig *config, TextSet *set)
{
    Files files;
    Status status = read_files(kind, config, &files);
    if (status.code == STATUS_OK)
        status = load_corpus(kind, config, &files, &set->corpus);
    files_free(&files);
    TRY(status);
    return kind->classes ? text_choose_classes(set) : text_cut_passages(set);
}

/* ---- the generator ---- */

static Status open_copy(const TextConfig *config, TextSet *set)
{
    int64_t size = config->vocab_size ? config->vocab_size : VOCAB_SIZE_USUAL;
    set->generator = true;
    set->count[SPLIT_TRAIN] = COPY_TRAIN;
    set->count[SPLIT_TEST] = COPY_TEST;
    Strings lines; /* the entries of a vocab.txt, which vocab_parse then reads */
    memset(&lines, 0, sizeof lines);
    Status status = vocab_add_specials(size, &lines);
    for (int64_t id = lines.count; id < size && status.code == STATUS_OK; id++) {
        char name[32];
        int length = snprintf(name, sizeof name, "t%" PRId64, id);
        int64_t number;
        status = strings_add(&lines, name, (size_t)length, &number);
    }
    for (int64_t i = 0; i < lines.count && status.code == STATUS_OK; i++)
        lines.bytes[lines.start[i + 1] - 1] = '\n';
    if (status.code == STATUS_OK)
        status = vocab_parse(lines.bytes, lines.length, "copy", size, &set->corpus.vocab);
    strings_free(&lines);
    return status;
}

/* Tokens of a segment: uniform between a quarter of the most that fit twice and that. */
static int64_t copy_segment(const TextSet *set, Split split, int64_t index)
{
    int64_t most = (set->seq - 3) / 2, least = most < 4 ? 1 : most / 4;
    uint64_t counter = (uint64_t)index * TEXT_SEQ_MAX + TEXT_SEQ_MAX - 1;
    return least + rng_below(set->seed, STREAM_TEXT_COPY + (uint64_t)split, counter, most - least + 1);
}

static void copy_read(const TextSet *set, Split split, int64_t index, int32_t *tokens, int32_t *types)
{
    const Vocab *vocab = &set->corpus.vocab;
    int64_t n = copy_segment(set, split, index);
    tokens[0] = vocab->cls;
    tokens[n + 1] = tokens[2 * n + 2] = vocab->sep;
    for (int64_t i = 0; i < n; i++) {
        int64_t pick = rng_below(set->seed, STREAM_TEXT_COPY + (uint64_t)split, (uint64_t)(index * TEXT_SEQ_MAX + i),
                                 vocab->ordinaries);
        tokens[1 + i] = tokens[n + 2 + i] = vocab->ordinary[pick];
    }
    for (int64_t i = 0; i < 2 * n + 3; i++)
        types[i] = i > n + 1;
}

/* ---- opening and asking ---- */

static void describe(const Kind *kind, const TextConfig *config, TextSet *set)
{
    char from[400] = "generated";
    if (kind->package[0])
        snprintf(from, sizeof from, "%s%s%s%s%.300s%s", kind->package[0]->title, kind->package[1] ? " + " : "",
                 kind->package[1] ? kind->package[1]->title : "", config->dir ? " (" : "",
                 config->dir ? dataset_shown_path(config->dir) : "", config->dir ? ")" : "");
    int64_t tokens = 0;
    for (int64_t i = 0; i < set->count[SPLIT_TRAIN]; i++)
        tokens += text_length(set, SPLIT_TRAIN, i);
    char classes[32] = "";
    if (set->classes)
        snprintf(classes, sizeof classes, ", %" PRId64 " classes", set->classes);
    snprintf(set->description, sizeof set->description,
             "%s: %s, %" PRId64 " train + %" PRId64 " test sequences%s, mean length %.1f of at most %" PRId64 " tokens, "
             "%s vocabulary of %" PRId64 " entries (%" PRId64 " in use), split by %s%s",
             kind->name, from, set->count[SPLIT_TRAIN], set->count[SPLIT_TEST], classes,
             (double)tokens / (double)set->count[SPLIT_TRAIN], set->seq, config->vocab ? "given" : "own",
             set->corpus.vocab.entries.count, set->corpus.vocab.ordinaries, kind->split,
             set->generator ? "" : " (hash of its text)");
}

Status text_open(const TextConfig *config, TextSet **out)
{
    *out = NULL;
    const Kind *kind = NULL;
    TRY(check_config(config, &kind));
    TextSet *set = calloc(1, sizeof *set);
    if (!set)
        return status_error(STATUS_OOM, "%s: no memory for the text set", kind->name);
    set->name = kind->name;
    set->seq = config->seq;
    set->seed = config->seed;
    Status status;
    TRY_GOTO(status, kind->package[0] ? open_files(kind, config, set) : open_copy(config, set), fail);
    TRY_GOTO(status, text_limit(set, config->limit), fail);
    describe(kind, config, set);
    *out = set;
    return status_ok();
fail:
    text_close(set);
    return status;
}

void text_close(TextSet *set)
{
    if (!set)
        return;
    corpus_free(&set->corpus);
    for (int split = 0; split < SPLIT_COUNT; split++)
        free(set->samples[split]);
    free(set);
}

int64_t text_count(const TextSet *set, Split split)
{
    CHECK(split >= 0 && split < SPLIT_COUNT);
    return set->count[split];
}

int64_t text_classes(const TextSet *set)
{
    return set->classes;
}

const char *text_class_name(const TextSet *set, int64_t label)
{
    CHECK(label >= 0 && label < set->classes);
    return wordnet_file_name(set->class_file[label]);
}

int64_t text_vocab_size(const TextSet *set)
{
    return set->corpus.vocab.entries.count;
}

const char *text_token(const TextSet *set, int64_t id)
{
    CHECK(id >= 0 && id < set->corpus.vocab.entries.count);
    return strings_get(&set->corpus.vocab.entries, id);
}

const char *text_describe(const TextSet *set)
{
    return set->description;
}

int64_t text_length(const TextSet *set, Split split, int64_t index)
{
    CHECK(split >= 0 && split < SPLIT_COUNT && index >= 0 && index < set->count[split]);
    return set->generator ? 2 * copy_segment(set, split, index) + 3 : set->samples[split][index].length + 2;
}

int32_t text_read(const TextSet *set, Split split, int64_t index, int32_t *tokens, int32_t *types)
{
    CHECK(split >= 0 && split < SPLIT_COUNT && index >= 0 && index < set->count[split]);
    if (set->generator) {
        copy_read(set, split, index, tokens, types);
        return -1;
    }
    const Sample *sample = &set->samples[split][index];
    size_t bytes = (size_t)sample->length * sizeof *tokens;
    tokens[0] = set->corpus.vocab.cls;
    memcpy(tokens + 1, set->corpus.tokens.id + sample->first, bytes);
    tokens[sample->length + 1] = set->corpus.vocab.sep;
    memset(types, 0, bytes + 2 * sizeof *types);
    return sample->label;
}
