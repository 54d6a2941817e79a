/* fake_cublaslt.h - a stand-in for cuBLASLt in tests, at the level of its functions: it keeps descriptors, checks every attribute, and
 * computes products on the host from nothing but what it was told. Stricter than the library where that finds mistakes: an algorithm is good
 * only for the product that it was proposed for, workspaces must be 256-byte aligned and are filled with NaN. */
#ifndef BATCHMARK_TESTS_FAKE_CUBLASLT_H
#define BATCHMARK_TESTS_FAKE_CUBLASLT_H

#include "../../kernels/cuda/libs.h"

/* How it behaves, and what it saw. Calls fail by fake_set_fault (fake.h). */
typedef struct FakeCublasLt {
    int    proposals;          /* algorithms that heuristics return, at most what is asked for; 8 */
    int    broken_proposals;   /* so many of the first of these fail when they are run */
    int    fastest;            /* proposal that takes the least time, by the fake runtime's clock */
    bool   no_epilogues;       /* no algorithm for a product with an epilogue */
    int    live;               /* handles, descriptors, layouts and preferences not destroyed */
    int    products;           /* enqueued */
    int    last_algorithm;     /* proposal that the last product used, from 0; -1 = none yet */
    size_t largest_workspace;  /* that a product used */
} FakeCublasLt;

FakeCublasLt *fake_cublaslt(void);
void          fake_cublaslt_reset(void); /* as a program starts, but for what lives */

/* The functions, for fake_set_library. */
const CublasLtApi *fake_cublaslt_api(void);

#endif
