/* fuzz_sword.c - arbitrary bytes as a SWORD module: the index first, its length in the first byte, then the blocks. And
 * as the text of a block that is packed properly, so that the OSIS behind zlib's checksum is reached too; and as a
 * WordNet file. */
#include "fuzz.h"

#include "datasets/text_source.h"

#include <stdlib.h>
#include <zlib.h>

static void check(const Documents *d, const Status *status)
{
    fuzz_accepted(status);
    for (int64_t i = 0; i < d->count; i++)
        CHECK(documents_start(d, i) < d->end[i] && d->end[i] <= d->length);
}

static void read_module(const char *index, size_t index_length, const char *data, size_t data_length)
{
    FileBytes first = { (char[]){ "ot.bzs" }, malloc(index_length + 1), index_length };
    FileBytes second = { (char[]){ "ot.bzz" }, malloc(data_length + 1), data_length };
    CHECK(first.bytes && second.bytes);
    memcpy(first.bytes, index, index_length);
    memcpy(second.bytes, data, data_length);
    Documents d;
    memset(&d, 0, sizeof d);
    Status status = sword_read(&first, &second, &d);
    check(&d, &status);
    documents_free(&d);
    free(first.bytes);
    free(second.bytes);
}

static void read_packed(const uint8_t *bytes, size_t length)
{
    uLongf packed = compressBound(length);
    Bytef *data = malloc(packed);
    CHECK(data && compress(data, &packed, bytes, length) == Z_OK);
    char index[12] = { 0 };
    for (int i = 0; i < 4; i++) {
        index[4 + i] = (char)(packed >> 8 * i & 0xFF);
        index[8 + i] = (char)(length >> 8 * i & 0xFF);
    }
    read_module(index, sizeof index, (const char *)data, packed);
    free(data);
}

static void read_glosses(const uint8_t *bytes, size_t length)
{
    FileBytes file = { (char[]){ "data.noun" }, malloc(length + 1), length };
    CHECK(file.bytes);
    memcpy(file.bytes, bytes, length);
    Documents d;
    memset(&d, 0, sizeof d);
    Status status = wordnet_read(&file, &d);
    check(&d, &status);
    documents_free(&d);
    free(file.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (length < 1 || length > 1 << 16)
        return 0;
    size_t index = 12u * (bytes[0] & 3u) + (bytes[0] >> 7);
    const char *rest = (const char *)bytes + 1;
    length--;
    index = index < length ? index : length;
    read_module(rest, index, rest + index, length - index);
    read_packed(bytes + 1, length);
    read_glosses(bytes + 1, length);
    return 0;
}
