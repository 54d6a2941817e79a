/* claims.c - the table of all claims, looking one up, and the entry of one in the record.
 *
 * Statements are in the suite's own words; figures are the articles'. A = the article on GPU memory and batch size, B = the
 * article on batch size as the core hyper-parameter. A claim without a function says what has to exist first. */
#include "claims.h"

#include "../isolate.h"
#include "entry.h"

#include <string.h>
#include <strings.h>

const Claim claims[CLAIM_COUNT] = {
    { .id = "A1", .title = "Memory is a straight line over the batch",
      .statement = "Used memory is the model plus batch times the intermediates of one sample; the real largest batch is smaller "
                   "than this formula's, because the framework, temporaries and caches take memory too: keep 20 % of the card in reserve.",
      .source_figures = "a card of 24 GB, a model of 4 GB, 0.2 GB a sample: (24 - 4) / 0.2 = 100",
      .formulas = { "used memory = model + batch x intermediates per sample",
                    "largest batch = (card memory - model memory) / memory per sample" },
      .run = claim_a1_memory_line },
    { .id = "A2", .title = "Larger batches, shorter epochs, in the end lower accuracy",
      .statement = "Larger batches shorten an epoch; past a critical size the accuracy falls.",
      .source_figures = "ResNet-50 on ImageNet: batch 32, 64, 128 take 58, 32, 19 minutes an epoch and reach 76.2, 76.5, 76.1 % top-1",
      .waits_for = "trainings of one recipe at several batch sizes with several seeds each, and confidence intervals over them" },
    { .id = "A3", .title = "Small batches: noisy loss, starved device",
      .statement = "Small batches make the loss oscillate and make loading the data the bottleneck, so that utilisation falls.",
      .waits_for = "the variance of loss and gradient over micro-batches, and trainings with 0, 1 and more loader threads" },
    { .id = "A4", .title = "Accumulation: the large batch in the small batch's memory",
      .statement = "Adding up the gradients of k micro-batches before an update reaches the result of the k times larger batch "
                   "with the memory of the small one.",
      .source_figures = "code only: an update every k micro-batches",
      .run = claim_a4_accumulation },
    { .id = "A5", .title = "Mixed precision saves memory and time",
      .statement = "Mixed precision with a loss scaler saves memory and time.",
      .source_figures = "code only",
      .run = claim_a5_mixed_precision },
    { .id = "A6", .title = "Dynamic batches by memory need",
      .statement = "With samples of different size, sorting by memory need and pairing the largest with the smallest evens out memory.",
      .source_figures = "code only: first and last of a sorted window form a pair",
      .waits_for = "a data set of images of mixed sizes, and batches that are padded to their largest sample" },
    { .id = "A7", .title = "Fragmentation and releasing the cache",
      .statement = "Long training fragments memory: release the allocator's cache every 1000 iterations and use a memory pool.",
      .source_figures = "every 1000 iterations",
      .waits_for = "a caching allocator to compare with the planned arena over a long random sequence of batch shapes" },
    { .id = "A8", .title = "Case study: UNet at 2048 x 2048 on 16 GB",
      .statement = "A UNet on 2048 x 2048 images fits a 16 GB card by batch 2, accumulation, mixed precision, smaller input files "
                   "and a first convolution of stride 2, gaining speed and Dice at each stage.",
      .source_figures = "initial 15.8 GB, 1.2 it/s, Dice 0.82; accumulation 4 (effective batch 8): 15.8 GB, 1.1 it/s, 0.83; "
                        "mixed precision and data: 9.2 GB, 2.3 it/s, 0.84; all: 12 GB, 1.8 it/s, 0.85; JPEG instead of PNG: 30 % less a sample",
      .waits_for = "the UNet, and a segmentation data set with Dice as its measure" },
    { .id = "B1", .title = "Four times the batch",
      .statement = "Going from batch 256 to 1024 a step takes only a little longer, more epochs are needed, and accuracy drops.",
      .source_figures = "ResNet-50 on ImageNet: step time +30 %, epochs to the same accuracy x 1.8, top-1 -0.4 %",
      .waits_for = "trainings to a target accuracy at b and 4 b, with and without scaled learning rate and warm-up" },
    { .id = "B2", .title = "What memory is used for",
      .statement = "Total memory is parameters plus batch times activations plus the optimiser's state; Adam's state is two to three "
                   "times the parameters.",
      .source_figures = "Adam: 2-3 times the parameters",
      .formulas = { "total memory = parameters + batch x activations + optimiser state" },
      .run = claim_b2_memory_kinds },
    { .id = "B3", .title = "Small batches generalise better",
      .statement = "Small batches regularise implicitly and end in flat minima, large ones in sharp minima that generalise worse.",
      .waits_for = "the sharpness measure of Keskar et al. (L-BFGS-B around a trained net), and trainings with several seeds" },
    { .id = "B4", .title = "Utilisation against batch",
      .statement = "Utilisation is a concave function of the batch: past a threshold time no longer falls, and swapping may set in.",
      .source_figures = "BERT on a V100 by DLProf: batch 8: 45 %, 32: 72 %, 128: 89 % (peak)",
      .waits_for = "BERT, the busy share of a GPU (CUDA backend), and a device model of the V100" },
    { .id = "B5", .title = "Details of accumulation",
      .statement = "The number of samples should be divisible by k; the learning rate is multiplied by k; batch norm sees only the "
                   "micro-batch, so use synchronised batch norm.",
      .source_figures = "learning rate x 4 for k = 4",
      .formulas = { "learning rate = base learning rate x accumulation steps" },
      .run = claim_b5_accumulation_details },
    { .id = "B6", .title = "Choosing the batch automatically",
      .statement = "The batch can be chosen by predicting memory, by growing it during training, by the variance of the gradient, or "
                   "by halving it when memory runs out.",
      .source_figures = "start at 64, halve on out of memory",
      .waits_for = "the batch finder and a batch that changes during training" },
    { .id = "B7", .title = "Data, model and pipeline parallelism",
      .statement = "Several devices are used by splitting the data, the layers or the pipeline; a DeepSpeed file configures it.",
      .source_figures = "train_batch_size 1024, accumulation 8, AdamW at 6e-5, fp16",
      .waits_for = "several ranks (MPI or NCCL), AdamW, and reading a DeepSpeed configuration" },
    { .id = "B8", .title = "Batch by image size",
      .statement = "The recommended batch falls as the image grows.",
      .source_figures = "224 pixels: 32-256; 384: 16-64; 512: 8-32",
      .waits_for = "a sweep over image size times batch up to 512 pixels and batch 256, for given card sizes" },
    { .id = "B9", .title = "Mosaic augmentation and small batches",
      .statement = "With mosaic augmentation small batches beat large ones, since variety inside one batch matters more.",
      .source_figures = "batch 8-16",
      .waits_for = "mosaic augmentation, and trainings with and without it" },
    { .id = "B10", .title = "Transformers: count tokens",
      .statement = "For transformers count tokens, not samples; dynamic padding changes the memory that is needed.",
      .source_figures = "BERT-base: batch 32, accumulation 2, gradient norm 1.0, learning rate 3e-5",
      .waits_for = "BERT, and a text data set with padded and token-budget batches" },
    { .id = "B11", .title = "Audio: long clips, small batches",
      .statement = "Long clips need small batches, but too small a batch leaves incomplete pieces of spectrogram.",
      .source_figures = "16 kHz, 15 s, height 128, 24 GB: batch 8-32",
      .waits_for = "a data set of spectrograms and a net that takes their shape" },
    { .id = "B12", .title = "Four troubles and their remedies",
      .statement = "Out of memory: accumulate or use mixed precision. NaN: the learning rate does not fit the batch. Oscillation: "
                   "a larger batch or accumulation. Speed drops: the batch is past the knee.",
      .source_figures = "four rows of a table",
      .waits_for = "a doctor command that recognises each trouble in a record and applies the remedy" },
    { .id = "B13", .title = "Reading a profile",
      .statement = "Much time in copies means the loader limits; much time in kernels means computing limits, so raise the batch; "
                   "memory that moves means allocations should be steadier.",
      .source_figures = "three rows of a table",
      .waits_for = "CUPTI's kernel and copy times (CUDA backend), and runs that provoke each of the three" },
    { .id = "B14", .title = "Several machines",
      .statement = "The total batch is the product of batch per device, devices and accumulation steps; the learning rate is scaled "
                   "and batch norm synchronised.",
      .source_figures = "batch 64 per device",
      .formulas = { "total batch = batch per device x devices x accumulation steps" },
      .waits_for = "several ranks (MPI), and batch norm synchronised between them" },
    { .id = "B15", .title = "Binary search for the largest batch",
      .statement = "A binary search between 1 and 1024 finds the largest batch that fits.",
      .source_figures = "at most 0.9 of the memory; the article's loop returns one too many for every even true maximum below 1024",
      .waits_for = "the batch finder, and a fake device whose true maximum is known, to run both searches on" },
    { .id = "B16", .title = "Rules of thumb",
      .statement = "Start with 32 or 64; vision nets are stable from 32 to 256, language models need dynamic batches, recommenders "
                   "use very large ones.",
      .source_figures = "vision: 32-256",
      .run = claim_b16_rules_of_thumb },
};

const Claim *claim_find(const char *id)
{
    for (int i = 0; i < CLAIM_COUNT; i++)
        if (!strcasecmp(id, claims[i].id))
            return &claims[i];
    return NULL;
}

/* ---- the entry ---- */

static json_t *text_or_null(const char *text) { return text ? json_string(text) : json_null(); }

/* The entry before anything ran. NULL if out of memory. */
static json_t *blank_entry(const Claim *claim)
{
    json_t *formulas = json_array();
    for (size_t i = 0; i < COUNT_OF(claim->formulas) && claim->formulas[i]; i++)
        if (json_array_append_new(formulas, json_string(claim->formulas[i]))) {
            json_decref(formulas);
            return NULL;
        }
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:n,s:o,s:o,s:[],s:[],s:o}", "id", claim->id, "title", claim->title, "statement",
                     claim->statement, "verdict", verdict_names[VERDICT_NOT_RUN], "summary", "", "tolerance", "waits_for",
                     text_or_null(claim->waits_for), "source_figures", text_or_null(claim->source_figures), "tables", "charts",
                     "formulas", formulas);
}

typedef struct ClaimTask { const Claim *claim; const ClaimContext *context; } ClaimTask;

static Status claim_task(void *context, json_t **result)
{
    const ClaimTask *task = context;
    json_t *entry = blank_entry(task->claim);
    if (!entry)
        return status_error(STATUS_OOM, "out of memory for the entry of claim %s", task->claim->id);
    Status status = task->claim->run(task->context, entry);
    if (status.code == STATUS_OK)
        *result = entry;
    else
        json_decref(entry);
    return status;
}

Status claim_entry(const Claim *claim, const ClaimContext *context, json_t **entry)
{
    *entry = NULL;
    if (claim->run) {
        ClaimTask task = { claim, context };
        Status status = isolate_run(claim_task, &task, entry);
        if (status.code == STATUS_OK || status.code == STATUS_INTERRUPTED)
            return status;
        *entry = blank_entry(claim);
        if (*entry && entry_conclude(*entry, VERDICT_NOT_RUN, NULL, "%s", status.text).code != STATUS_OK) {
            json_decref(*entry);
            *entry = NULL;
        }
    } else {
        *entry = blank_entry(claim);
    }
    return *entry ? status_ok() : status_error(STATUS_OOM, "out of memory for the entry of claim %s", claim->id);
}
