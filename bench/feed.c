/* feed.c - see feed.h. One struct with an image half and a text half, of which one is open. */
#include "feed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUE = 4 };

struct Feed {
    FeedConfig  config;
    NetConfig   net;
    Dataset    *images;
    Loader     *image_train, *image_test;
    TextSet    *text;
    TextLoader *text_train, *text_test;
    int32_t    *first_rows; /* [held + 1][batch]: classification reads the first row of each sequence */
    int64_t     held, next; /* ring of first_rows; the last one is for evaluation */
    int64_t     rows, tokens;
};

const char *feed_default_data(const NetConfig *net)
{
    if (net_is_text(net))
        return "bible";
    return net_loss(net) == LOSS_CLASSES ? "fashion-mnist" : "mri";
}

/* ---- opening ---- */

static Status open_images(Feed *f, NetConfig *net, int64_t accum)
{
    const FeedConfig *c = &f->config;
    DatasetConfig set = { .name = c->data, .dir = c->dir, .size = net->size, .seed = 1, .limit = c->limit, .label_noise = c->label_noise };
    if (net_loss(net) != LOSS_CLASSES && net->classes > 2 && !strcmp(c->data, "masks"))
        set.classes = net->classes;
    TRY(dataset_open(&set, &f->images));
    const bool masks = dataset_task(f->images) == TASK_SEGMENT;
    if (masks != (net_loss(net) != LOSS_CLASSES))
        return status_error(STATUS_USAGE, "%s cannot be trained on '%s': it needs %s", net->net, c->data,
                            masks ? "labels, that set has masks" : "masks, that set has labels");
    if (net->batch > dataset_count(f->images, SPLIT_TRAIN))
        return status_error(STATUS_USAGE, "--batch %" PRId64 " is more than the %" PRId64 " training samples of %s", net->batch,
                            dataset_count(f->images, SPLIT_TRAIN), c->data);
    if (net_loss(net) != LOSS_DICE)
        net->classes = dataset_classes(f->images);
    else if (dataset_classes(f->images) != 2)
        return status_error(STATUS_USAGE, "one logit a pixel tells two classes apart, '%s' has %" PRId64 ": leave --classes out", c->data,
                            dataset_classes(f->images));
    dataset_channel_stats(f->images, net->mean, net->deviation);
    LoaderConfig loader = { .split = SPLIT_TRAIN, .batch = net->batch, .threads = c->loaders, .queue = QUEUE, .seed = c->seed,
                            .shuffle = true, .augment = c->augment, .drop_last = true, .repeat = true, .hold = (int)accum };
    return loader_create(f->images, &loader, &f->image_train);
}

static TextLoaderConfig text_loader_config(const Feed *f, Split split, int64_t hold)
{
    const NetConfig *n = &f->net;
    return (TextLoaderConfig){ .split = split, .batch = n->batch, .policy = f->config.policy, .rows = net_text_rows(n),
                               .targets = n->head == HEAD_MASKED ? net_head_rows(n) : 0, .all_rows = n->head == HEAD_ALL,
                               .threads = f->config.loaders, .queue = QUEUE, .hold = hold, .seed = f->config.seed,
                               .shuffle = split == SPLIT_TRAIN, .repeat = split == SPLIT_TRAIN };
}

static Status open_text(Feed *f, NetConfig *net, int64_t accum)
{
    const FeedConfig *c = &f->config;
    TextConfig set = { .name = c->data, .dir = c->dir, .vocab = c->vocab, .vocab_size = c->vocab ? 0 : net->vocab, .seq = net->size,
                       .seed = 1, .limit = c->limit };
    TRY(text_open(&set, &f->text));
    net->vocab = text_vocab_size(f->text);
    if (text_classes(f->text) > 0) {
        net->head = HEAD_CLASSIFY;
        net->classes = text_classes(f->text);
    } else if (net->head == HEAD_CLASSIFY) {
        return status_error(STATUS_USAGE, "'%s' has no classes: train it with --head masked or all", c->data);
    }
    f->net = *net;
    TextLoaderConfig loader = text_loader_config(f, SPLIT_TRAIN, accum);
    return text_loader_create(f->text, &loader, &f->text_train);
}

Status feed_open(const FeedConfig *config, int64_t accum, NetConfig *net, Feed **out)
{
    *out = NULL;
    Feed *f = calloc(1, sizeof *f);
    if (!f)
        return status_error(STATUS_OOM, "out of memory for the training data");
    Status status;
    f->config = *config;
    f->config.data = config->data ? config->data : feed_default_data(net);
    f->held = accum;
    f->first_rows = malloc((size_t)(accum + 1) * (size_t)net->batch * sizeof *f->first_rows);
    if (!f->first_rows)
        TRY_GOTO(status, status_error(STATUS_OOM, "out of memory for the training data"), fail);
    TRY_GOTO(status, net_is_text(net) ? open_text(f, net, accum) : open_images(f, net, accum), fail);
    f->net = *net;
    *out = f;
    return status_ok();
fail:
    feed_close(f);
    return status;
}

void feed_close(Feed *f)
{
    if (!f)
        return;
    loader_destroy(f->image_train);
    loader_destroy(f->image_test);
    text_loader_destroy(f->text_train);
    text_loader_destroy(f->text_test);
    dataset_close(f->images);
    text_close(f->text);
    free(f->first_rows);
    free(f);
}

const char *feed_describe(const Feed *f)
{
    return f->text ? text_describe(f->text) : dataset_describe(f->images);
}

int64_t feed_batches(const Feed *f)
{
    return f->text ? text_loader_batches(f->text_train) : loader_batches(f->image_train);
}

double feed_wait_seconds(const Feed *f)
{
    return f->text ? text_loader_wait_seconds(f->text_train) : loader_wait_seconds(f->image_train);
}

void feed_rows(const Feed *f, int64_t *rows, int64_t *tokens)
{
    *rows = f->rows;
    *tokens = f->tokens;
}

/* ---- batches ---- */

static MicroBatch image_batch(const Feed *f, const Batch *b)
{
    return (MicroBatch){ .pixels = b->pixels, .labels = b->labels, .mask = b->mask,
                         .counted = net_loss(&f->net) == LOSS_DICE ? b->valid : b->labelled };
}

static MicroBatch text_batch(const Feed *f, const TextBatch *b, int32_t *first_rows)
{
    const int64_t batch = f->net.batch;
    MicroBatch m = { .tokens = b->tokens, .positions = b->positions, .types = b->types, .spans = b->spans,
                     .rows = b->target_rows, .labels = b->target_labels, .counted = b->targets };
    if (f->net.head != HEAD_CLASSIFY)
        return m;
    for (int64_t s = 0; s < batch; s++)
        first_rows[s] = b->spans[2 * s + 1] > 0 ? b->spans[2 * s] : -1;
    m.rows = first_rows;
    m.labels = b->labels;
    m.counted = b->sequences;
    return m;
}

Status feed_next(Feed *f, MicroBatch *batch, int64_t *samples)
{
    if (f->images) {
        const Batch *b;
        TRY(loader_next(f->image_train, &b));
        CHECK(b); /* a repeating loader never ends */
        *batch = image_batch(f, b);
        *samples = b->valid;
        return status_ok();
    }
    const TextBatch *b;
    TRY(text_loader_next(f->text_train, &b));
    CHECK(b);
    *batch = text_batch(f, b, f->first_rows + f->next * f->net.batch);
    *samples = b->sequences;
    f->next = (f->next + 1) % f->held;
    f->rows += f->config.policy == TEXT_BUDGET ? net_text_rows(&f->net) : b->rows_used;
    f->tokens += b->token_count;
    return status_ok();
}

Status feed_eval_begin(Feed *f)
{
    if (f->images) {
        LoaderConfig config = { .split = SPLIT_TEST, .batch = f->net.batch, .threads = f->config.loaders, .queue = QUEUE };
        loader_destroy(f->image_test);
        f->image_test = NULL;
        return loader_create(f->images, &config, &f->image_test);
    }
    TextLoaderConfig config = text_loader_config(f, SPLIT_TEST, 1);
    text_loader_destroy(f->text_test);
    f->text_test = NULL;
    return text_loader_create(f->text, &config, &f->text_test);
}

Status feed_eval_next(Feed *f, MicroBatch *batch, bool *more)
{
    if (f->images) {
        const Batch *b;
        TRY(loader_next(f->image_test, &b));
        *more = b != NULL;
        if (b)
            *batch = image_batch(f, b);
        return status_ok();
    }
    const TextBatch *b;
    TRY(text_loader_next(f->text_test, &b));
    *more = b != NULL;
    if (b)
        *batch = text_batch(f, b, f->first_rows + f->held * f->net.batch);
    return status_ok();
}
