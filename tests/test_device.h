/* test_device.h - which device the tests that fit any are run on: BATCHMARK_TEST_DEVICE, the CPU if it is not set. */
#ifndef BATCHMARK_TESTS_TEST_DEVICE_H
#define BATCHMARK_TESTS_TEST_DEVICE_H

#include <stdlib.h>
#include <string.h>

static inline const char *test_device(void)
{
    const char *name = getenv("BATCHMARK_TEST_DEVICE");
    return name ? name : "cpu";
}

static inline int test_device_is_gpu(void)
{
    return !strncmp(test_device(), "cuda", 4);
}

#endif
