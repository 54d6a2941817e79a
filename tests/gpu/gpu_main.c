/* gpu_main.c - the main of every GPU test: takes the device from the command line, "cuda" if none is given, and leaves with 77 and the
 * reason where there is no such GPU; then runs the test file's own main, which the build calls test_main.
 * --probe [device]: only say whether there is one. */
#include "kernels/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int test_main(void);

enum { EXIT_SKIPPED = 77 };

int main(int argc, char **argv)
{
    const bool  probe = argc > 1 && !strcmp(argv[1], "--probe");
    const char *device = argc > 1 + probe ? argv[1 + probe] : "cuda";
    Backend    *be = NULL;
    Status s = backend_open(device, NULL, &be);
    if (s.code == STATUS_OK) {
        BackendInfo info;
        backend_describe(be, &info);
        printf("%s: %s, %s\n", device, info.name, info.library);
        backend_close(be);
    } else {
        printf("skipped: %s\n", s.text);
        return s.code == STATUS_UNSUPPORTED ? EXIT_SKIPPED : EXIT_FAILURE;
    }
    if (probe)
        return EXIT_SUCCESS;
    fflush(stdout);
    if (setenv("BATCHMARK_TEST_DEVICE", device, 1))
        return EXIT_FAILURE;
    return test_main();
}
