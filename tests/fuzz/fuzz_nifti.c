/* fuzz_nifti.c - NIfTI-1 files, plain and packed by gzip. */
#include "fuzz.h"

#include "datasets/nifti.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Volume volume;
    Status status = nifti_parse("fuzz.nii", &(Bytes){ (uint8_t *)(uintptr_t)data, size }, &volume);
    CHECK((status.code == STATUS_OK) == (volume.voxels != NULL));
    if (fuzz_accepted(&status))
        for (int64_t i = 0; i < volume.dim[0] * volume.dim[1] * volume.dim[2]; i++)
            CHECK(isfinite(volume.voxels[i]));
    free(volume.voxels);
    return 0;
}
