/* fuzz.h - what the fuzz targets share: the entry point that libFuzzer calls, and what every refusal must be. */
#ifndef BATCHMARK_TESTS_FUZZ_H
#define BATCHMARK_TESTS_FUZZ_H

#include "kernels/base.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bad bytes are STATUS_INPUT with one line of text; anything else that is not OK is a finding. */
static inline bool fuzz_accepted(const Status *status)
{
    if (status->code == STATUS_OK)
        return true;
    CHECK(status->code == STATUS_INPUT);
    CHECK(status->text[0] != '\0' && !strchr(status->text, '\n'));
    return false;
}

#endif
