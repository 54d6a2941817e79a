/* dnn_engines.c - lists and finalises what cuDNN's heuristics propose for a graph; see dnn_engines.h.
 *
 * Which proposals are taken: at most PER_ENGINE of one engine, and few of those that are compiled at run time, since each costs
 * a second or so. Never: engines that round f32 inputs when the backend does not allow TF32, that add up in less than f32, whose
 * sums depend on timing, and transforms whose error grows with the tile (FFT, Winograd above 4x4; Lavin & Gray 2016). Mode
 * FALLBACK gives one more, for when no plan can be made of the others, or a few where the others are all compiled at run time or
 * there are none: mode A knows little but TF32 for f32 tensors. */
#include "dnn_engines.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PROPOSALS = 64, MOST_KNOBS = 32, PER_ENGINE = 3, MOST_PRECOMPILED = 6, MOST_COMPILED = 2, MOST_FALLBACKS = 3 };

const char *dnn_version(const CudaBackend *be, char *text, size_t size)
{
    const size_t v = be->dnn->cudnnGetVersion();
    snprintf(text, size, "cuDNN %zu.%zu.%zu", v / 10000, v % 10000 / 100, v % 100);
    return text;
}

/* ---- reading descriptors */

static Status get(const CudaBackend *be, DnnDesc desc, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room,
                  int64_t *count, void *values)
{
    return cuda_dnn_status(be, be->dnn->cudnnBackendGetAttribute(desc, name, type, room, count, values), "cudnnBackendGetAttribute");
}

/* Notes of an engine as bits. */
static Status get_notes(const CudaBackend *be, DnnDesc engine, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, unsigned *bits)
{
    int     note[16];
    int64_t count = 0;
    *bits = 0;
    TRY(get(be, engine, name, type, (int64_t)COUNT_OF(note), &count, note));
    for (int64_t i = 0; i < count && i < (int64_t)COUNT_OF(note); i++)
        *bits |= 1u << (unsigned)note[i];
    return status_ok();
}

/* Appends " type=value" for each knob. Some engines have none, and some do not tell. */
static Status name_knobs(const CudaBackend *be, DnnDesc config, char *name, size_t size)
{
    DnnDesc knob[MOST_KNOBS] = { NULL };
    int64_t count = 0, one;
    size_t  n = strlen(name);
    Status  status = status_ok();
    for (int i = 0; i < MOST_KNOBS; i++)
        TRY_GOTO(status, dnn_desc_create(be, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knob[i]), out);
    if (be->dnn->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_KNOBS, &count, knob) !=
        CUDNN_STATUS_SUCCESS)
        count = 0;
    for (int i = 0; i < count && i < MOST_KNOBS && n + 1 < size; i++) {
        int     type = -1;
        int64_t value = -1;
        TRY_GOTO(status, get(be, knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one, &type), out);
        TRY_GOTO(status, get(be, knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one, &value), out);
        n += (size_t)snprintf(name + n, size - n, " %d=%lld", type, (long long)value);
    }
out:
    for (int i = 0; i < MOST_KNOBS; i++)
        dnn_desc_destroy(be, &knob[i]);
    return status;
}

#define NOTE(name) (1u << CUDNN_NUMERICAL_NOTE_##name)

static bool has_16_bits(const DnnGraph *g)
{
    for (int i = 0; i < g->tensors; i++)
        if (g->tensor[i].type == CUDNN_DATA_HALF || g->tensor[i].type == CUDNN_DATA_BFLOAT16)
            return true;
    return false;
}

/* Tensor cores multiply f32 only as TF32, also where no note says that inputs are converted. */
static bool rounds_inputs(const DnnGraph *g, unsigned notes)
{
    return (notes & NOTE(DOWN_CONVERT_INPUTS)) || ((notes & NOTE(TENSOR_CORE)) && !has_16_bits(g));
}

static bool is_exact_enough(const CudaBackend *be, const DnnGraph *g, unsigned notes)
{
    if (notes & (NOTE(REDUCED_PRECISION_REDUCTION) | NOTE(NONDETERMINISTIC) | NOTE(FFT) | NOTE(WINOGRAD_TILE_6x6) | NOTE(WINOGRAD_TILE_13x13)))
        return false;
    if ((notes & NOTE(WINOGRAD)) && !(notes & NOTE(WINOGRAD_TILE_4x4)))
        return false;
    return be->tf32 || !rounds_inputs(g, notes);
}

/* What a proposal is; *good is false if its numbers are not what the backend promises. */
static Status read_proposal(const CudaBackend *be, const DnnGraph *g, DnnDesc config, DnnCandidate *c, bool *good)
{
    DnnDesc  engine;
    int64_t  count, index = -1, bytes = 0;
    unsigned numeric, behaviour;
    Status   status;
    TRY(dnn_desc_create(be, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    TRY_GOTO(status, get(be, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine), out);
    TRY_GOTO(status, get(be, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &index), out);
    TRY_GOTO(status, get_notes(be, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, &numeric), out);
    TRY_GOTO(status, get_notes(be, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, &behaviour), out);
    TRY_GOTO(status, get(be, config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes), out);
    *c = (DnnCandidate){ .engine = (int)index, .tensor_cores = numeric & NOTE(TENSOR_CORE), .rounds_inputs = rounds_inputs(g, numeric),
                         .runtime_compiled = behaviour >> CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION & 1,
                         .choice = { .bytes = (size_t)bytes, .us = (double)NAN } };
    *good = is_exact_enough(be, g, numeric) && bytes >= 0 && (size_t)bytes <= DNN_WORKSPACE_CAP;
    snprintf(c->choice.name, sizeof c->choice.name, "e%d", (int)index);
    status = name_knobs(be, config, c->choice.name, sizeof c->choice.name);
out:
    dnn_desc_destroy(be, &engine);
    return status;
}

/* ---- gathering */

static bool is_wanted(const DnnSet *s, const DnnCandidate *c)
{
    int same_engine = 0, same_kind = 0;
    for (int i = 0; i < s->count; i++) {
        same_engine += s->candidate[i].engine == c->engine;
        same_kind += s->candidate[i].runtime_compiled == c->runtime_compiled;
    }
    return same_engine < PER_ENGINE && same_kind < (c->runtime_compiled ? MOST_COMPILED : MOST_PRECOMPILED);
}

/* Fallbacks of engines that are new, first come first: places `first` on are theirs. */
static bool is_wanted_fallback(const DnnSet *s, int first, const DnnCandidate *c)
{
    int most = MOST_FALLBACKS;
    for (int i = 0; i < s->count; i++) {
        if (s->candidate[i].engine == c->engine)
            return false;
        if (i < first && !s->candidate[i].runtime_compiled)
            most = 1;
    }
    return s->count - first < most && s->count < DNN_MOST_CANDIDATES;
}

/* Takes the proposal over if it is wanted; `known` is the only wanted one, unless NULL. first: of the fallbacks, -1 in other modes. */
static void consider(DnnSet *s, int first, DnnCandidate c, DnnDesc *config, const char *known)
{
    c.fallback = first >= 0;
    if (known ? s->count > 0 || strcmp(known, c.choice.name) != 0 : c.fallback ? !is_wanted_fallback(s, first, &c) : !is_wanted(s, &c))
        return;
    c.config = *config;
    s->candidate[s->count++] = c;
    *config = NULL;
}

static Status ask(const CudaBackend *be, const DnnSet *s, cudnnBackendHeurMode_t mode, DnnDesc *heuristics)
{
    TRY(dnn_desc_create(be, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, heuristics));
    TRY(dnn_desc_set(be, *heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &s->graph_desc));
    TRY(dnn_desc_set(be, *heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    if (s->device)
        TRY(dnn_desc_set(be, *heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &s->device));
    return dnn_desc_finish(be, *heuristics, "heuristics");
}

/* The proposals of one mode. That a mode has none is no error. */
static Status gather(const CudaBackend *be, DnnSet *s, cudnnBackendHeurMode_t mode, const char *known)
{
    DnnDesc   heuristics = NULL, config[MOST_PROPOSALS] = { NULL };
    int64_t   count = 0;
    const int first = mode == CUDNN_HEUR_MODE_FALLBACK ? s->count : -1;
    Status    status = ask(be, s, mode, &heuristics);
    if (status.code == STATUS_UNSUPPORTED) {
        status = status_ok();
        goto out;
    }
    if (status.code != STATUS_OK)
        goto out;
    for (int i = 0; i < MOST_PROPOSALS; i++)
        TRY_GOTO(status, dnn_desc_create(be, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i]), out);
    TRY_GOTO(status, get(be, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_PROPOSALS, &count, config), out);
    for (int i = 0; i < count && i < MOST_PROPOSALS; i++) {
        DnnCandidate c;
        bool         good = false;
        TRY_GOTO(status, read_proposal(be, s->graph, config[i], &c, &good), out);
        if (good)
            consider(s, first, c, &config[i], known);
    }
out:
    for (int i = 0; i < MOST_PROPOSALS; i++)
        dnn_desc_destroy(be, &config[i]);
    dnn_desc_destroy(be, &heuristics);
    return status;
}

static Status describe_device(const CudaBackend *be, DnnDesc *out)
{
    TRY(dnn_desc_create(be, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, out));
    TRY(dnn_desc_set(be, *out, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(be->dnn_json), be->dnn_json));
    return dnn_desc_finish(be, *out, "device description");
}

/* ---- finalising one */

static void candidate_free(const CudaBackend *be, DnnCandidate *c)
{
    dnn_desc_destroy(be, &c->plan);
    dnn_desc_destroy(be, &c->config);
}

static Status finalise(const CudaBackend *be, const DnnSet *s, DnnCandidate *c)
{
    int64_t count, bytes = 0;
    TRY(dnn_desc_create(be, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &c->plan));
    TRY(dnn_desc_set(be, c->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->config));
    if (s->device)
        TRY(dnn_desc_set(be, c->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &s->device));
    if (be->dnn_handle)
        TRY(dnn_desc_set(be, c->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &be->dnn_handle));
    TRY(dnn_desc_finish(be, c->plan, c->choice.name));
    TRY(get(be, c->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes));
    if ((size_t)bytes > c->choice.bytes) /* memory was planned with what the configuration said */
        return status_error(STATUS_UNSUPPORTED, "the plan of %s needs %lld bytes of workspace, not %zu", c->choice.name, (long long)bytes,
                            c->choice.bytes);
    return status_ok();
}

static void drop(const CudaBackend *be, DnnSet *s, int i)
{
    candidate_free(be, &s->candidate[i]);
    memmove(&s->candidate[i], &s->candidate[i + 1], (size_t)(s->count - i - 1) * sizeof s->candidate[0]);
    s->count--;
}

/* The choice of an earlier run, if it is still proposed and its plan can be made; else the set stays empty. */
static Status take_known(CudaBackend *be, DnnSet *s, const Choice *known)
{
    TRY(gather(be, s, CUDNN_HEUR_MODE_A, known->name));
    TRY(gather(be, s, CUDNN_HEUR_MODE_FALLBACK, known->name));
    if (s->count == 0)
        return status_ok();
    Status status = finalise(be, s, &s->candidate[0]);
    if (status.code == STATUS_OK) {
        s->candidate[0].choice.us = known->us;
        s->tuned = s->finalised = true;
        return status;
    }
    drop(be, s, 0);
    return status.code == STATUS_OOM ? status : status_ok();
}

/* ---- sets */

static void set_free(const CudaBackend *be, DnnSet *s)
{
    for (int i = 0; i < s->count; i++)
        candidate_free(be, &s->candidate[i]);
    dnn_desc_destroy(be, &s->graph_desc);
    dnn_desc_destroy(be, &s->device);
    dnn_graph_destroy(s->graph);
    free(s);
}

void dnn_sets_destroy(CudaBackend *be)
{
    while (be->dnn_sets) {
        DnnSet *s = be->dnn_sets;
        be->dnn_sets = s->next;
        set_free(be, s);
    }
}

static void make_key(const CudaBackend *be, const DnnGraph *g, char *key, size_t size)
{
    char version[32], what[DNN_NAME_BYTES + 40];
    snprintf(what, sizeof what, "%s%s #%016llx", g->name, be->tf32 ? " tf32" : "", (unsigned long long)g->hash);
    choice_key(be, dnn_version(be, version, sizeof version), what, key, size);
}

static Status search(CudaBackend *be, DnnSet *s)
{
    char   version[32];
    Choice known;
    TRY(dnn_graph_finish(s->graph, &s->graph_desc));
    if (cuda_is_planning(be))
        TRY(describe_device(be, &s->device));
    if (be->tune && choice_cache_find(be->choices, s->key, &known))
        TRY(take_known(be, s, &known));
    if (!s->tuned) {
        TRY(gather(be, s, CUDNN_HEUR_MODE_A, NULL));
        TRY(gather(be, s, CUDNN_HEUR_MODE_FALLBACK, NULL));
    }
    if (s->count > 0)
        return status_ok();
    if (cuda_is_planning(be)) { /* without a driver, cuDNN does not even propose engines that are compiled at run time */
        s->needs_driver = true;
        return status_ok();
    }
    return status_error(STATUS_UNSUPPORTED, "%s: %s has no engine for it on %s", s->graph->name,
                        dnn_version(be, version, sizeof version), be->title);
}

/* The graph's descriptors go into a copy; the graph keeps what a plan needs to know of its tensors. */
static DnnGraph *take_descriptors(DnnGraph *g)
{
    DnnGraph *copy = malloc(sizeof *copy);
    if (!copy)
        return NULL;
    *copy = *g;
    g->ops = g->parts = 0;
    for (int i = 0; i < g->tensors; i++)
        g->tensor[i].desc = NULL;
    return copy;
}

Status dnn_set_find(CudaBackend *be, DnnGraph *g, DnnSet **out)
{
    char key[CHOICE_KEY_BYTES];
    TRY(g->status);
    make_key(be, g, key, sizeof key);
    for (*out = be->dnn_sets; *out; *out = (*out)->next)
        if (strcmp((*out)->key, key) == 0)
            return status_ok();
    DnnSet *s = calloc(1, sizeof *s);
    if (!s)
        return status_error(STATUS_OOM, "no memory for the engines of a graph");
    s->graph = take_descriptors(g);
    if (!s->graph) {
        free(s);
        return status_error(STATUS_OOM, "no memory for the engines of a graph");
    }
    memcpy(s->key, key, sizeof key);
    Status status = search(be, s);
    if (status.code != STATUS_OK) {
        set_free(be, s);
        return status;
    }
    s->next = be->dnn_sets;
    be->dnn_sets = *out = s;
    return status;
}

/* ---- finalising a set */

/* A fallback is worth its time only where the others are compiled at run time or there are none. */
static bool is_done(const CudaBackend *be, const DnnSet *s, int finalised)
{
    bool precompiled = false;
    for (int i = 0; i < finalised; i++)
        precompiled |= !s->candidate[i].runtime_compiled && !s->candidate[i].fallback;
    return finalised > 0 && (!be->tune || (precompiled && s->candidate[finalised].fallback));
}

Status dnn_set_finalise(CudaBackend *be, DnnSet *s)
{
    Status last = status_ok();
    int    i = 0;
    if (s->finalised)
        return status_ok();
    while (i < s->count && !is_done(be, s, i)) {
        Status status = finalise(be, s, &s->candidate[i]);
        if (status.code == STATUS_OOM)
            return status;
        if (status.code == STATUS_OK) {
            i++;
            continue;
        }
        last = status;
        drop(be, s, i);
    }
    while (s->count > i)
        drop(be, s, s->count - 1);
    if (s->count == 0)
        return status_context(last.code == STATUS_OK ? status_error(STATUS_UNSUPPORTED, "no engine without a driver") : last, "%s", s->graph->name);
    s->finalised = true;
    return status_ok();
}

void dnn_set_choose(CudaBackend *be, DnnSet *s, int i)
{
    const DnnCandidate chosen = s->candidate[i];
    for (int k = 0; k < s->count; k++)
        if (k != i)
            candidate_free(be, &s->candidate[k]);
    s->candidate[0] = chosen;
    s->count = 1;
    s->tuned = true;
}
