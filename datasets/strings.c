/* strings.c - distinct strings with numbers: the entries of a vocabulary, the words of a corpus.
 *
 * One block of bytes, and a hash table of numbers with linear probing (Knuth vol. 3, 6.4, algorithm L), at most half
 * full. Numbers follow the order of adding, so they do not depend on the hash. */
#include "wordpiece.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

Status grow_array(void **array, int64_t count, int64_t *capacity, size_t item_bytes)
{
    if (count < *capacity)
        return status_ok();
    int64_t wanted = *capacity ? 2 * *capacity : 1024;
    void *grown = realloc(*array, (size_t)wanted * item_bytes);
    if (!grown)
        return status_error(STATUS_OOM, "text: no memory for %" PRId64 " items of %zu bytes", wanted, item_bytes);
    *array = grown;
    *capacity = wanted;
    return status_ok();
}

/* Where the string is, or the empty place where it would go. */
static int64_t find_slot(const Strings *s, const char *bytes, size_t length, uint64_t hash)
{
    uint64_t mask = (uint64_t)s->slots - 1, i = (hash ^ hash >> 32) & mask;
    while (s->slot[i] >= 0 && (strings_length(s, s->slot[i]) != length ||
                               memcmp(strings_get(s, s->slot[i]), bytes, length) != 0))
        i = (i + 1) & mask;
    return (int64_t)i;
}

int64_t strings_find(const Strings *s, const char *bytes, size_t length, uint64_t hash)
{
    return s->slots == 0 ? -1 : s->slot[find_slot(s, bytes, length, hash)];
}

static Status rehash(Strings *s)
{
    int64_t slots = s->slots ? 2 * s->slots : 4096;
    int32_t *slot = malloc((size_t)slots * sizeof *slot);
    if (!slot)
        return status_error(STATUS_OOM, "text: no memory for a table of %" PRId64 " strings", slots);
    free(s->slot);
    s->slot = slot;
    s->slots = slots;
    memset(slot, 0xFF, (size_t)slots * sizeof *slot);
    for (int64_t i = 0; i < s->count; i++) {
        size_t length = strings_length(s, i);
        uint64_t hash = strings_hash(STRINGS_HASH, strings_get(s, i), length);
        slot[find_slot(s, strings_get(s, i), length, hash)] = (int32_t)i;
    }
    return status_ok();
}

static Status reserve(Strings *s, size_t length)
{
    if (2 * (s->count + 1) > s->slots)
        TRY(rehash(s));
    int64_t room = s->room;
    TRY(grow_array((void **)&s->start, s->count + 1, &s->room, sizeof *s->start));
    if (room == 0)
        s->start[0] = 0;
    size_t needed = s->length + length + 1;
    if (needed > s->capacity) {
        size_t wanted = needed + s->capacity + 4096;
        char *bytes = realloc(s->bytes, wanted);
        if (!bytes)
            return status_error(STATUS_OOM, "text: no memory for %zu bytes of strings", wanted);
        s->bytes = bytes;
        s->capacity = wanted;
    }
    return status_ok();
}

Status strings_add(Strings *s, const char *bytes, size_t length, int64_t *number)
{
    uint64_t hash = strings_hash(STRINGS_HASH, bytes, length);
    *number = strings_find(s, bytes, length, hash);
    if (*number >= 0)
        return status_ok();
    CHECK(s->count < INT32_MAX);
    TRY(reserve(s, length));
    s->slot[find_slot(s, bytes, length, hash)] = (int32_t)s->count;
    memcpy(s->bytes + s->length, bytes, length);
    s->bytes[s->length + length] = '\0';
    s->length += length + 1;
    *number = s->count++;
    s->start[s->count] = s->length;
    return status_ok();
}

void strings_free(Strings *s)
{
    free(s->bytes);
    free(s->start);
    free(s->slot);
    memset(s, 0, sizeof *s);
}
