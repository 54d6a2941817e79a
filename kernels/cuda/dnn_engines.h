/* dnn_engines.h - the ways in which cuDNN can do a graph: one set of candidates for each different graph of a device.
 *
 * A set is made the first time a graph is seen, by dnn_query or dnn_prepare, and belongs to the backend; equal graphs share
 * it, so a layer that comes twenty times is searched, compiled and tuned once. */
#ifndef BATCHMARK_KERNELS_CUDA_DNN_ENGINES_H
#define BATCHMARK_KERNELS_CUDA_DNN_ENGINES_H

#include "choice_cache.h"
#include "dnn_graph.h"

enum { DNN_MOST_CANDIDATES = 11 }; /* dnn_engines.c: 6 and 2, and 3 fallbacks */
#define DNN_WORKSPACE_CAP ((size_t)1 << 30) /* bytes; no plan may ask for more */

typedef struct DnnCandidate {
    DnnDesc config, plan;  /* plan: NULL until dnn_set_finalise */
    Choice  choice;        /* "e62 2=5 13=1": engine, then knob=value; workspace; time once tuned */
    int     engine;
    bool    tensor_cores, rounds_inputs, runtime_compiled, fallback;
} DnnCandidate;

typedef struct DnnSet {
    struct DnnSet *next;
    char           key[CHOICE_KEY_BYTES];
    DnnGraph      *graph;        /* whose descriptors the candidates stand on */
    DnnDesc        graph_desc, device; /* device: when planning, what is set instead of a handle */
    DnnCandidate   candidate[DNN_MOST_CANDIDATES];
    int            count;        /* at least 1, unless only a driver could do it */
    bool           finalised, tuned; /* tuned: candidate[0] is the choice */
    bool           needs_driver; /* planning: cuDNN has nothing for this graph that is compiled already */
} DnnSet;

/* The set of a graph; takes the graph's descriptors if it is new. STATUS_UNSUPPORTED with cuDNN's words if there is no candidate. */
Status dnn_set_find(CudaBackend *be, DnnGraph *g, DnnSet **out);

/* Makes the candidates' plans and drops those of which there is none; at least one is left, the first is the best guess. With a
 * tuning backend all that are worth timing, else one. */
Status dnn_set_finalise(CudaBackend *be, DnnSet *s);

/* Takes candidate i as the choice and forgets the others. */
void dnn_set_choose(CudaBackend *be, DnnSet *s, int i);

/* "cuDNN 9.19.0" */
const char *dnn_version(const CudaBackend *be, char *text, size_t size);

#endif
