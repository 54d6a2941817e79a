/* text_samples.c - documents to samples: passages of a chapter, whole glosses, the classes of glosses. */
#include "source.h"
#include "text_source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES_MOST = 10 };

/* Room for [CLS] and [SEP] is left. */
static int64_t most_ordinary(const TextSet *set)
{
    return set->seq - 2;
}

/* ---- passages ---- */

typedef struct SampleList {
    Sample *item;
    int64_t count, capacity;
} SampleList;

static Status add_sample(SampleList *list, int64_t first, int64_t length, int32_t label)
{
    TRY(grow_array((void **)&list->item, list->count, &list->capacity, sizeof *list->item));
    list->item[list->count++] = (Sample){ first, (int32_t)length, label };
    return status_ok();
}

/* The lists become the set's, whatever `status` says about filling them. */
static Status hand_over(TextSet *set, const SampleList list[SPLIT_COUNT], Status status)
{
    for (int split = 0; split < SPLIT_COUNT; split++) {
        set->samples[split] = list[split].item;
        set->count[split] = list[split].count;
    }
    TRY(status);
    for (int split = 0; split < SPLIT_COUNT; split++)
        if (set->count[split] == 0)
            return status_error(STATUS_INPUT, "%s: %" PRId64 " documents leave no %s sample; the files hold too little",
                                set->name, set->corpus.documents, split == SPLIT_TRAIN ? "training" : "test");
    return status_ok();
}

static bool is_token(const Vocab *vocab, int32_t id, const char *text)
{
    return strcmp(strings_get(&vocab->entries, id), text) == 0;
}

static bool ends_sentence(const Vocab *vocab, int32_t id)
{
    return is_token(vocab, id, ".") || is_token(vocab, id, "?") || is_token(vocab, id, "!") || is_token(vocab, id, ";");
}

/* How many of the `left` tokens make the next passage: all that fit, or up to the last end of a sentence in the second
 * half of those that fit, or else up to the last word that fits whole. */
static int64_t passage_length(const TextSet *set, int64_t first, int64_t left)
{
    const Vocab *vocab = &set->corpus.vocab;
    const int32_t *id = set->corpus.tokens.id + first;
    int64_t most = most_ordinary(set);
    if (left <= most)
        return left;
    for (int64_t n = most; n > most / 2; n--)
        if (ends_sentence(vocab, id[n - 1]))
            return n;
    for (int64_t n = most; n > most / 2; n--)
        if (strncmp(strings_get(&vocab->entries, id[n]), "##", 2) != 0)
            return n;
    return most;
}

Status text_cut_passages(TextSet *set)
{
    const Corpus *corpus = &set->corpus;
    SampleList list[SPLIT_COUNT] = { { NULL, 0, 0 }, { NULL, 0, 0 } };
    Status status = status_ok();
    int64_t at = 0;
    for (int64_t d = 0; d < corpus->documents && status.code == STATUS_OK; d++) {
        while (at < corpus->end[d] && status.code == STATUS_OK) {
            int64_t length = passage_length(set, at, corpus->end[d] - at);
            status = add_sample(&list[corpus->test[d] ? SPLIT_TEST : SPLIT_TRAIN], at, length, -1);
            at += length;
        }
    }
    return hand_over(set, list, status);
}

/* ---- classes ---- */

/* The ten files with the most glosses (the first of equals), in the order of their numbers; class_of[file] or -1. */
static void choose_files(TextSet *set, int32_t class_of[WORDNET_FILES])
{
    int64_t times[WORDNET_FILES] = { 0 };
    bool chosen[WORDNET_FILES] = { false };
    for (int64_t d = 0; d < set->corpus.documents; d++)
        times[set->corpus.label[d]]++;
    for (int k = 0; k < CLASSES_MOST; k++) {
        int best = -1;
        for (int f = 0; f < WORDNET_FILES; f++)
            if (!chosen[f] && times[f] > 0 && (best < 0 || times[f] > times[best]))
                best = f;
        if (best >= 0)
            chosen[best] = true;
    }
    for (int32_t f = 0; f < WORDNET_FILES; f++) {
        class_of[f] = chosen[f] ? (int32_t)set->classes : -1;
        if (chosen[f])
            set->class_file[set->classes++] = f;
    }
}

Status text_choose_classes(TextSet *set)
{
    const Corpus *corpus = &set->corpus;
    int32_t class_of[WORDNET_FILES];
    choose_files(set, class_of);
    if (set->classes < 2)
        return status_error(STATUS_INPUT, "%s: all glosses of data.noun are of one lexicographer file", set->name);
    SampleList list[SPLIT_COUNT] = { { NULL, 0, 0 }, { NULL, 0, 0 } };
    Status status = status_ok();
    for (int64_t d = 0, at = 0; d < corpus->documents && status.code == STATUS_OK; at = corpus->end[d++]) {
        int64_t length = corpus->end[d] - at;
        if (class_of[corpus->label[d]] >= 0 && length > 0)
            status = add_sample(&list[corpus->test[d] ? SPLIT_TEST : SPLIT_TRAIN], at,
                                length < most_ordinary(set) ? length : most_ordinary(set), class_of[corpus->label[d]]);
    }
    return hand_over(set, list, status);
}

/* ---- limit ---- */

Status text_limit(TextSet *set, int64_t limit)
{
    for (int split = 0; split < SPLIT_COUNT; split++) {
        int64_t count = set->count[split];
        if (limit == 0 || limit >= count)
            continue;
        set->count[split] = limit;
        if (set->generator)
            continue; /* its samples are random already */
        int64_t *pick = malloc((size_t)count * sizeof *pick);
        Sample *kept = malloc((size_t)limit * sizeof *kept);
        if (pick && kept) {
            for (int64_t i = 0; i < count; i++)
                pick[i] = i;
            dataset_shuffle(pick, count, limit, set->seed, STREAM_TEXT_LIMIT + (uint64_t)split);
            for (int64_t i = 0; i < limit; i++)
                kept[i] = set->samples[split][pick[i]];
        }
        free(pick);
        if (!pick || !kept) {
            free(kept);
            return status_error(STATUS_OOM, "%s: no memory to choose samples", set->name);
        }
        free(set->samples[split]);
        set->samples[split] = kept;
    }
    return status_ok();
}
