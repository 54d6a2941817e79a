/* fuzz_idx.c - gzipped IDX files, as bytes of such a file or (first byte odd) as what is packed in one: a fuzzer that does
 * not know gzip's checksum would seldom come past it. */
#include "fuzz.h"

#include "datasets/idx.h"

#include <stdlib.h>
#include <zlib.h>

static void read_both_kinds(const uint8_t *file, size_t bytes)
{
    for (int kind = 0; kind < 2; kind++) {
        uint8_t *data = NULL;
        int64_t count = 0;
        Status status = idx_read_memory("fuzz.gz", file, bytes, kind ? MAGIC_LABELS : MAGIC_IMAGES, &data, &count);
        if (fuzz_accepted(&status)) {
            unsigned sum = 0;
            for (int64_t i = 0; i < count * (kind ? 1 : 28 * 28); i++)
                sum += data[i];
            CHECK(count > 0 && sum <= 255u * (unsigned)count * 28 * 28);
        }
        free(data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 2 == 0) {
        read_both_kinds(data + 1, size - 1);
        return 0;
    }
    z_stream z;
    memset(&z, 0, sizeof z);
    CHECK(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK); /* + 16: gzip */
    size_t room = deflateBound(&z, size);
    uint8_t *packed = malloc(room);
    CHECK(packed);
    z.next_in = (Bytef *)(uintptr_t)(data + 1);
    z.avail_in = (unsigned)(size - 1);
    z.next_out = packed;
    z.avail_out = (unsigned)room;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    read_both_kinds(packed, z.total_out);
    deflateEnd(&z);
    free(packed);
    return 0;
}
