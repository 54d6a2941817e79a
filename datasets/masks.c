/* masks.c - the set "masks": the user's own pictures with a mask of class indices for each.
 *
 * Two layouts:
 *   DIR/train/images/<stem>.jpg|.jpeg|.png with DIR/train/masks/<stem>.png, and the same under DIR/val (or DIR/test,
 *   where there is no val);
 *   DIR/images and DIR/masks: a seeded choice of a tenth of the pictures, at least one, becomes the test split.
 * Every picture needs a mask of its size; masks without a picture are passed over.
 *
 * A mask is a grey or palette PNG whose values are class indices, 0 = background; MASK_IGNORE (255) = no class. How many
 * classes there are is for the user to say (DatasetConfig.classes), because looking through all masks of a large folder
 * takes too long, and a class that only the last mask holds would be missed by looking at the first.
 * With two classes there is another common code, 0 and 255. The folder uses it if its first masks (CODE_SAMPLES of
 * them, and more while all are empty) hold nothing but 0 and 255; then 255 is the foreground and no pixel is ignored. */
#include "image.h"
#include "listing.h"
#include "source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_CLASSES = 2, CODE_SAMPLES = 32, NO_CLASS = -1, NAME_BYTES = 16 };

typedef struct Pairs {
    char *images, *masks; /* directories */
    Names names;          /* of the pictures */
} Pairs;

typedef struct Masks {
    Pairs   split[SPLIT_COUNT];
    int64_t classes;
    int16_t class_of[256]; /* of a mask's value; NO_CLASS = an error */
    bool    black_white;   /* the code is 0 and 255 */
    char    class_names[256][NAME_BYTES];
} Masks;

/* ---- pairs of files ---- */

/* "DIR/<stem>.png" of "<stem>.jpg", to be freed; NULL without memory. */
static char *mask_path(const Pairs *pairs, const char *image)
{
    const char *dot = strrchr(image, '.');
    size_t dir = strlen(pairs->masks), stem = (size_t)(dot - image);
    char *path = malloc(dir + stem + 6);
    if (path)
        snprintf(path, dir + stem + 6, "%s/%.*s.png", pairs->masks, (int)stem, image);
    return path;
}

static int compare_key(const void *key, const void *item)
{
    return strcmp(key, *(char *const *)item);
}

/* `masks` are the sorted names in pairs->masks. */
static Status check_every_mask(const Pairs *pairs, const Names *masks)
{
    for (int64_t i = 0; i < pairs->names.count; i++) {
        char *path = mask_path(pairs, pairs->names.item[i]);
        if (!path)
            return listing_no_memory();
        const char *name = path + strlen(pairs->masks) + 1;
        bool found = masks->count > 0 && bsearch(name, masks->item, (size_t)masks->count, sizeof *masks->item, compare_key);
        Status status = found ? status_ok()
                              : status_error(STATUS_INPUT, "%s: missing; it is the mask of %.100s", dataset_shown_path(path),
                                             pairs->names.item[i]);
        free(path);
        TRY(status);
    }
    return status_ok();
}

/* Lists root/images and checks that root/masks goes with it. */
static Status list_pairs(const char *root, Pairs *pairs)
{
    pairs->images = dataset_join_path(root, "images", NULL);
    pairs->masks = dataset_join_path(root, "masks", NULL);
    if (!pairs->images || !pairs->masks)
        return listing_no_memory();
    TRY(list_directory(pairs->images, false, &pairs->names));
    if (pairs->names.count == 0)
        return status_error(STATUS_INPUT, "%s: no images (.jpg, .jpeg or .png)", dataset_shown_path(pairs->images));
    Names masks = { NULL, 0, 0 };
    Status status = list_directory(pairs->masks, false, &masks);
    if (status.code == STATUS_OK)
        status = check_every_mask(pairs, &masks);
    names_free(&masks);
    return status;
}

/* Moves a seeded tenth of the training pairs to the test split; both keep their sorted order. */
static Status split_off_test(Masks *set, const char *root, uint64_t seed)
{
    Pairs *train = &set->split[SPLIT_TRAIN], *test = &set->split[SPLIT_TEST];
    int64_t n = train->names.count, tests = list_test_share(n);
    if (tests == 0)
        return status_error(STATUS_INPUT, "%s: one image, which leaves none for the test split", dataset_shown_path(train->images));
    test->images = dataset_join_path(root, "images", NULL);
    test->masks = dataset_join_path(root, "masks", NULL);
    int64_t *order = malloc((size_t)n * sizeof *order);
    bool *is_test = calloc((size_t)n, sizeof *is_test);
    Status status = test->images && test->masks && order && is_test ? status_ok() : listing_no_memory();
    if (status.code == STATUS_OK) {
        for (int64_t i = 0; i < n; i++)
            order[i] = i;
        dataset_shuffle(order, n, tests, seed, STREAM_MASKS);
        for (int64_t i = 0; i < tests; i++)
            is_test[order[i]] = true;
        int64_t kept = 0;
        for (int64_t i = 0; i < n; i++) {
            char *name = train->names.item[i];
            if (!is_test[i])
                train->names.item[kept++] = name;
            else if (status.code == STATUS_OK)
                status = names_take(&test->names, name);
            else
                free(name);
        }
        train->names.count = kept;
    }
    free(is_test);
    free(order);
    return status;
}

static Status list_splits(const DatasetConfig *config, Masks *set)
{
    char *roots[SPLIT_COUNT] = { NULL, NULL };
    bool two = false;
    Status status = list_split_roots(config->dir, roots, &two);
    if (status.code == STATUS_OK)
        status = list_pairs(roots[SPLIT_TRAIN], &set->split[SPLIT_TRAIN]);
    if (status.code == STATUS_OK)
        status = two ? list_pairs(roots[SPLIT_TEST], &set->split[SPLIT_TEST])
                     : split_off_test(set, roots[SPLIT_TRAIN], config->seed);
    for (int split = 0; split < SPLIT_COUNT; split++)
        free(roots[split]);
    return status;
}

/* ---- the code of the masks ---- */

/* Sets *grey where the mask holds a value from 1 to 254, *white where it holds 255. */
static Status look_at_mask(const Pairs *pairs, int64_t index, bool *grey, bool *white)
{
    char *path = mask_path(pairs, pairs->names.item[index]);
    if (!path)
        return listing_no_memory();
    Image mask;
    Status status = image_decode_mask(path, &mask);
    free(path);
    TRY(status);
    for (int64_t i = 0; i < mask.height * mask.width; i++) {
        *white = *white || mask.pixels[i] == 255;
        *grey = *grey || (mask.pixels[i] != 0 && mask.pixels[i] != 255);
    }
    free(mask.pixels);
    return status;
}

static Status settle_code(Masks *set)
{
    const Pairs *train = &set->split[SPLIT_TRAIN];
    bool grey = false, white = false;
    for (int64_t i = 0; set->classes == 2 && i < train->names.count && !grey && (i < CODE_SAMPLES || !white); i++)
        TRY(look_at_mask(train, i, &grey, &white));
    set->black_white = white && !grey;
    for (int value = 0; value < 256; value++)
        set->class_of[value] = (int16_t)(value < set->classes ? value : NO_CLASS);
    if (set->black_white)
        set->class_of[1] = NO_CLASS;
    set->class_of[255] = set->black_white ? 1 : MASK_IGNORE;
    return status_ok();
}

static Status refuse_value(const Masks *set, const char *path, int value, int64_t row, int64_t column)
{
    const char *shown = dataset_shown_path(path);
    if (set->black_white)
        return status_error(STATUS_INPUT, "%s: value %d at row %" PRId64 ", column %" PRId64
                            ", but the folder's first masks hold only 0 and 255", shown, value, row, column);
    return status_error(STATUS_INPUT, "%s: class %d at row %" PRId64 ", column %" PRId64 ", expected 0..%" PRId64
                        " or %d (ignore)", shown, value, row, column, set->classes - 1, MASK_IGNORE);
}

/* Values to classes, in place. */
static Status translate(const Masks *set, const char *path, Image *mask)
{
    for (int64_t i = 0; i < mask->height * mask->width; i++) {
        int value = mask->pixels[i];
        if (set->class_of[value] == NO_CLASS)
            return refuse_value(set, path, value, i / mask->width, i % mask->width);
        mask->pixels[i] = (uint8_t)set->class_of[value];
    }
    return status_ok();
}

/* ---- the source ---- */

static Status masks_open(const DatasetConfig *config, void **out, int64_t count[SPLIT_COUNT], int64_t *classes,
                         char *origin, size_t origin_bytes)
{
    if (!config->dir || !*config->dir)
        return status_error(STATUS_USAGE, "masks: needs the directory that holds images/ and masks/: --data-dir DIR");
    Masks *set = calloc(1, sizeof *set);
    if (!set)
        return listing_no_memory();
    *out = set;
    set->classes = config->classes ? config->classes : DEFAULT_CLASSES;
    snprintf(set->class_names[0], NAME_BYTES, "background");
    for (int64_t i = 1; i < set->classes; i++)
        snprintf(set->class_names[i], NAME_BYTES, "class %d", (int)i);
    if (set->classes == 2)
        snprintf(set->class_names[1], NAME_BYTES, "foreground");
    TRY(list_splits(config, set));
    TRY(settle_code(set));
    for (int split = 0; split < SPLIT_COUNT; split++)
        count[split] = set->split[split].names.count;
    *classes = set->classes;
    snprintf(origin, origin_bytes, "%s%s", dataset_shown_path(config->dir), set->black_white ? ", masks of 0 and 255" : "");
    return status_ok();
}

static void masks_close(void *state)
{
    Masks *set = state;
    if (!set)
        return;
    for (int split = 0; split < SPLIT_COUNT; split++) {
        names_free(&set->split[split].names);
        free(set->split[split].images);
        free(set->split[split].masks);
    }
    free(set);
}

static const char *masks_class_name(const void *state, int64_t label)
{
    const Masks *set = state;
    return set->class_names[label];
}

/* Decodes both at their full size, so that they can be compared and are cut alike. */
static Status read_pair(const Masks *set, const char *image_path, const char *mask_file, int64_t size, uint8_t *pixels,
                        uint8_t *out)
{
    Image image = { 0, 0, NULL }, mask = { 0, 0, NULL };
    Status status;
    TRY_GOTO(status, image_decode(image_path, IMAGE_WHOLE, &image), done);
    TRY_GOTO(status, image_decode_mask(mask_file, &mask), done);
    if (image.width != mask.width || image.height != mask.height)
        status = status_error(STATUS_INPUT, "%s: %" PRId64 " x %" PRId64 " pixels, but its image has %" PRId64 " x %" PRId64,
                              dataset_shown_path(mask_file), mask.width, mask.height, image.width, image.height);
    else
        status = translate(set, mask_file, &mask);
    TRY_GOTO(status, status, done);
    image_resize_mask(mask.pixels, mask.height, mask.width, size, out);
    status = image_resize_square(image.pixels, image.height, image.width, 3, size, pixels);
done:
    free(mask.pixels);
    free(image.pixels);
    return status;
}

static Status masks_read(const void *state, Split split, int64_t index, int64_t size, uint8_t *pixels, uint8_t *mask)
{
    const Masks *set = state;
    const Pairs *pairs = &set->split[split];
    char *image_path = dataset_join_path(pairs->images, pairs->names.item[index], NULL);
    char *mask_file = mask_path(pairs, pairs->names.item[index]);
    Status status = image_path && mask_file ? read_pair(set, image_path, mask_file, size, pixels, mask) : listing_no_memory();
    free(mask_file);
    free(image_path);
    return status;
}

const Source source_masks = {
    .name = "masks",
    .takes_classes = true,
    .flip_keeps_truth = true, /* as for the pictures of "folder" */
    .stats_samples = 256,
    .stats_size = 224,
    .open = masks_open,
    .close = masks_close,
    .class_name = masks_class_name,
    .read_mask = masks_read,
};
