/* vocab_train.c - a vocabulary of word pieces from counted words.
 *
 * Every word starts as single characters, all but its first marked "##". Again and again the pair of neighbours that
 * occurs most often becomes one entry, until the vocabulary is full or no pair occurs twice: the merges of byte pair
 * encoding (Sennrich et al. 2016, arXiv 1508.07909) with WordPiece's marks. Schuster & Nakajima 2012 instead merge the
 * pair that raises the likelihood of a unigram model most; the vocabularies are used alike and come out much alike.
 *
 * Counts are kept up to date rather than counted again: a merge visits only the places where its pair is, found
 * through a list for each pair, and changes the counts of the pairs beside them. A heap yields the most frequent pair;
 * its entries may be out of date and are then put right when they come up. Ties go to the older pair, so the result
 * is a function of the words in their order. */
#include "wordpiece.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES_LEAST = 2, NONE = -1 };

/* ---- counting words ---- */

static Status count_word(void *context, Word *word)
{
    WordCounts *counts = context;
    if (word->characters > WORD_MOST)
        return status_ok();
    int64_t before = counts->words.count, i;
    TRY(strings_add(&counts->words, word->bytes, word->length, &i));
    TRY(grow_array((void **)&counts->times, i, &counts->capacity, sizeof *counts->times));
    counts->times[i] = i == before ? 1 : counts->times[i] + 1;
    return status_ok();
}

Status word_counts_add(WordCounts *counts, const char *text, size_t length)
{
    return split_words(text, length, count_word, counts);
}

void word_counts_free(WordCounts *counts)
{
    strings_free(&counts->words);
    free(counts->times);
    memset(counts, 0, sizeof *counts);
}

/* ---- the state of training ---- */

/* Two neighbouring symbols, and the list of places where the left one is (or was). */
typedef struct Pair {
    int32_t left, right;
    int64_t times;        /* occurrences, weighted by the counts of the words */
    int64_t first, last;  /* in Trainer.visit; NONE = empty */
    bool    raised;       /* its count grew in the current merge */
} Pair;

typedef struct Visit { int64_t place, next; } Visit;

typedef struct Candidate { int64_t times, pair; } Candidate;

/* Each word is a chain of places, one a symbol. */
typedef struct Trainer {
    Strings    symbols;   /* with their "##" */
    int32_t   *symbol;    /* (places) number in symbols, NONE where a merge has swallowed it */
    int32_t   *before, *after; /* (places) neighbours in the word, or NONE */
    int64_t   *weight;    /* (places) count of its word */
    int64_t    places;
    Pair      *pair;
    int64_t    pairs, pair_room;
    int32_t   *slot;      /* (slots) hash table of pairs by their symbols */
    int64_t    slots;
    Visit     *visit;
    int64_t    visits, visit_room;
    Candidate *heap;
    int64_t    heap_count, heap_room;
    int64_t   *raised;    /* pairs whose count grew in the current merge */
    int64_t    raised_count, raised_room;
} Trainer;

static void trainer_free(Trainer *t)
{
    strings_free(&t->symbols);
    free(t->symbol);
    free(t->before);
    free(t->after);
    free(t->weight);
    free(t->pair);
    free(t->slot);
    free(t->visit);
    free(t->heap);
    free(t->raised);
}

/* ---- pairs ---- */

static int64_t pair_slot(const Trainer *t, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, mask = (uint64_t)t->slots - 1;
    uint64_t i = (key * UINT64_C(0x9E3779B97F4A7C15) >> 20) & mask;
    while (t->slot[i] >= 0 && (t->pair[t->slot[i]].left != left || t->pair[t->slot[i]].right != right))
        i = (i + 1) & mask;
    return (int64_t)i;
}

static Status grow_slots(Trainer *t)
{
    int64_t slots = t->slots ? 2 * t->slots : 8192;
    int32_t *slot = malloc((size_t)slots * sizeof *slot);
    if (!slot)
        return status_error(STATUS_OOM, "vocabulary: no memory for %" PRId64 " pairs", slots);
    free(t->slot);
    t->slot = slot;
    t->slots = slots;
    memset(slot, 0xFF, (size_t)slots * sizeof *slot);
    for (int64_t p = 0; p < t->pairs; p++)
        slot[pair_slot(t, t->pair[p].left, t->pair[p].right)] = (int32_t)p;
    return status_ok();
}

/* The pair's number; it is made where there is none. */
static Status find_pair(Trainer *t, int32_t left, int32_t right, int64_t *number)
{
    if (2 * (t->pairs + 1) > t->slots)
        TRY(grow_slots(t));
    int64_t slot = pair_slot(t, left, right);
    if (t->slot[slot] < 0) {
        TRY(grow_array((void **)&t->pair, t->pairs, &t->pair_room, sizeof *t->pair));
        t->slot[slot] = (int32_t)t->pairs;
        t->pair[t->pairs++] = (Pair){ left, right, 0, NONE, NONE, false };
    }
    *number = t->slot[slot];
    return status_ok();
}

/* The symbols at this place and the one after it have become neighbours. */
static Status join(Trainer *t, int32_t place)
{
    int64_t number;
    TRY(find_pair(t, t->symbol[place], t->symbol[t->after[place]], &number));
    TRY(grow_array((void **)&t->visit, t->visits, &t->visit_room, sizeof *t->visit));
    Pair *pair = &t->pair[number];
    if (!pair->raised) {
        TRY(grow_array((void **)&t->raised, t->raised_count, &t->raised_room, sizeof *t->raised));
        t->raised[t->raised_count++] = number;
        pair->raised = true;
    }
    t->visit[t->visits] = (Visit){ place, NONE };
    if (pair->first == NONE)
        pair->first = t->visits;
    else
        t->visit[pair->last].next = t->visits;
    pair->last = t->visits++;
    pair->times += t->weight[place];
    return status_ok();
}

/* ... are neighbours no longer. The entry in the pair's list stays and is found out when it is visited. */
static void part(Trainer *t, int32_t place)
{
    int64_t slot = pair_slot(t, t->symbol[place], t->symbol[t->after[place]]);
    t->pair[t->slot[slot]].times -= t->weight[place];
}

/* ---- the heap (Knuth vol. 3, 5.2.3) ---- */

static bool comes_before(const Candidate *a, const Candidate *b)
{
    return a->times != b->times ? a->times > b->times : a->pair < b->pair;
}

static Status heap_push(Trainer *t, int64_t pair)
{
    TRY(grow_array((void **)&t->heap, t->heap_count, &t->heap_room, sizeof *t->heap));
    Candidate item = { t->pair[pair].times, pair };
    int64_t i = t->heap_count++;
    for (; i > 0 && comes_before(&item, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = item;
    return status_ok();
}

static Candidate heap_pop(Trainer *t)
{
    Candidate top = t->heap[0], item = t->heap[--t->heap_count];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < t->heap_count; i = child) {
        if (child + 1 < t->heap_count && comes_before(&t->heap[child + 1], &t->heap[child]))
            child++;
        if (!comes_before(&t->heap[child], &item))
            break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = item;
    return top;
}

static Status push_raised(Trainer *t)
{
    for (int64_t i = 0; i < t->raised_count; i++) {
        t->pair[t->raised[i]].raised = false;
        TRY(heap_push(t, t->raised[i]));
    }
    t->raised_count = 0;
    return status_ok();
}

/* The most frequent pair, NONE where none occurs TIMES_LEAST times. A count that grew has a newer candidate; one
 * that fell is put back. */
static Status best_pair(Trainer *t, int64_t *out)
{
    *out = NONE;
    while (t->heap_count > 0 && *out == NONE) {
        Candidate c = heap_pop(t);
        int64_t times = t->pair[c.pair].times;
        if (times < TIMES_LEAST || times > c.times)
            continue;
        if (times < c.times)
            TRY(heap_push(t, c.pair));
        else
            *out = c.pair;
    }
    return status_ok();
}

/* ---- characters ---- */

typedef struct Letter { int64_t symbol, times; } Letter;

static int compare_letters(const void *a, const void *b)
{
    const Letter *x = a, *y = b;
    if (x->times != y->times)
        return x->times > y->times ? -1 : 1;
    return x->symbol < y->symbol ? -1 : 1;
}

static Status make_places(Trainer *t, const WordCounts *counts)
{
    size_t places = 0;
    for (int64_t w = 0; w < counts->words.count; w++)
        places += strings_length(&counts->words, w); /* bytes: not fewer than characters */
    CHECK(places < INT32_MAX);
    places += 1; /* never an empty block */
    t->symbol = malloc(places * sizeof *t->symbol);
    t->before = malloc(places * sizeof *t->before);
    t->after = malloc(places * sizeof *t->after);
    t->weight = malloc(places * sizeof *t->weight);
    return t->symbol && t->before && t->after && t->weight
               ? status_ok()
               : status_error(STATUS_OOM, "vocabulary: no memory for %zu letters", places);
}

/* Lays every word out as single characters. */
static Status spell_words(Trainer *t, const WordCounts *counts)
{
    TRY(make_places(t, counts));
    for (int64_t w = 0; w < counts->words.count; w++) {
        const char *word = strings_get(&counts->words, w);
        size_t length = strings_length(&counts->words, w);
        for (size_t at = 0; at < length;) {
            size_t from = at;
            utf8_decode(word, length, &at);
            char key[6] = "##";
            size_t mark = from > 0 ? 2 : 0;
            memcpy(key + mark, word + from, at - from);
            int64_t symbol, p = t->places++;
            TRY(strings_add(&t->symbols, key, mark + (at - from), &symbol));
            t->symbol[p] = (int32_t)symbol;
            t->before[p] = from > 0 ? (int32_t)p - 1 : NONE;
            t->after[p] = at < length ? (int32_t)p + 1 : NONE;
            t->weight[p] = counts->times[w];
        }
    }
    return status_ok();
}

/* Enters the characters, most frequent first, as far as there is room; *kept (symbols) tells which. */
static Status enter_letters(const Trainer *t, int64_t size, Strings *entries, bool *kept)
{
    int64_t count = t->symbols.count;
    Letter *letters = calloc((size_t)count + 1, sizeof *letters);
    if (!letters)
        return status_error(STATUS_OOM, "vocabulary: no memory for %" PRId64 " letters", count);
    for (int64_t i = 0; i < count; i++)
        letters[i].symbol = i;
    for (int64_t p = 0; p < t->places; p++)
        letters[t->symbol[p]].times += t->weight[p];
    qsort(letters, (size_t)count, sizeof *letters, compare_letters);
    Status status = status_ok();
    for (int64_t i = 0; i < count && entries->count < size && status.code == STATUS_OK; i++) {
        int64_t s = letters[i].symbol, number;
        kept[s] = true;
        status = strings_add(entries, strings_get(&t->symbols, s), strings_length(&t->symbols, s), &number);
    }
    free(letters);
    return status;
}

/* Neighbours in all words; a character without an entry takes part in no merge. */
static Status join_all(Trainer *t, const bool *kept)
{
    for (int64_t p = 0; p < t->places; p++)
        if (t->after[p] != NONE && kept[t->symbol[p]] && kept[t->symbol[t->after[p]]])
            TRY(join(t, (int32_t)p));
        else if (t->after[p] != NONE) {
            t->before[t->after[p]] = NONE;
            t->after[p] = NONE;
        }
    return push_raised(t);
}

static Status start(Trainer *t, const WordCounts *counts, int64_t size, Strings *entries)
{
    TRY(spell_words(t, counts));
    bool *kept = calloc((size_t)t->symbols.count + 1, sizeof *kept);
    if (!kept)
        return status_error(STATUS_OOM, "vocabulary: no memory for %" PRId64 " letters", t->symbols.count);
    Status status = enter_letters(t, size, entries, kept);
    if (status.code == STATUS_OK)
        status = join_all(t, kept);
    free(kept);
    return status;
}

/* ---- merges ---- */

/* The place takes over its right neighbour and becomes `symbol`. */
static Status merge_at(Trainer *t, int32_t place, int32_t symbol)
{
    int32_t gone = t->after[place], left = t->before[place], right = t->after[gone];
    if (left != NONE)
        part(t, left);
    if (right != NONE)
        part(t, gone);
    t->symbol[place] = symbol;
    t->symbol[gone] = NONE;
    t->after[place] = right;
    if (right != NONE) {
        t->before[right] = place;
        TRY(join(t, place));
    }
    return left != NONE ? join(t, left) : status_ok();
}

/* "un" + "##able" is "unable", "##a" + "##b" is "##ab". */
static Status name_merged(Trainer *t, const Pair *pair, int64_t *symbol)
{
    char name[WORD_BYTES + 2];
    size_t a = strings_length(&t->symbols, pair->left), b = strings_length(&t->symbols, pair->right) - 2;
    CHECK(a + b <= sizeof name);
    memcpy(name, strings_get(&t->symbols, pair->left), a);
    memcpy(name + a, strings_get(&t->symbols, pair->right) + 2, b);
    return strings_add(&t->symbols, name, a + b, symbol);
}

static Status merge_pair(Trainer *t, int64_t number, int64_t *symbol)
{
    Pair pair = t->pair[number];
    TRY(name_merged(t, &pair, symbol));
    for (int64_t v = pair.first; v != NONE; v = t->visit[v].next) {
        int32_t place = (int32_t)t->visit[v].place;
        bool there = t->symbol[place] == pair.left && t->after[place] != NONE &&
                     t->symbol[t->after[place]] == pair.right;
        if (there)
            TRY(merge_at(t, place, (int32_t)*symbol));
    }
    t->pair[number].times = 0;
    t->pair[number].first = t->pair[number].last = NONE;
    return push_raised(t);
}

static Status write_lines(const Strings *entries, char **text, size_t *length)
{
    *text = malloc(entries->length + 1);
    if (!*text)
        return status_error(STATUS_OOM, "vocabulary: no memory for %zu bytes", entries->length);
    *length = entries->length;
    memcpy(*text, entries->bytes, entries->length);
    for (int64_t i = 0; i < entries->count; i++)
        (*text)[entries->start[i + 1] - 1] = '\n';
    return status_ok();
}

static Status train(Trainer *t, const WordCounts *counts, int64_t size, Strings *entries)
{
    TRY(vocab_add_specials(size, entries));
    TRY(start(t, counts, size, entries));
    while (entries->count < size) {
        int64_t pair, symbol, number;
        TRY(best_pair(t, &pair));
        if (pair == NONE)
            break;
        TRY(merge_pair(t, pair, &symbol));
        TRY(strings_add(entries, strings_get(&t->symbols, symbol), strings_length(&t->symbols, symbol), &number));
    }
    return status_ok();
}

Status vocab_train(const WordCounts *counts, int64_t size, char **text, size_t *length)
{
    CHECK(size >= VOCAB_SIZE_MIN && size <= VOCAB_SIZE_MAX);
    Trainer t;
    memset(&t, 0, sizeof t);
    Strings entries;
    memset(&entries, 0, sizeof entries);
    Status status = train(&t, counts, size, &entries);
    if (status.code == STATUS_OK)
        status = write_lines(&entries, text, length);
    strings_free(&entries);
    trainer_free(&t);
    return status;
}
