/* folder.c - the user's own pictures in an ImageNet-style tree of JPEG and PNG files.
 *
 * Two layouts, where a class is a directory and its name is the class's name:
 *   DIR/train/<class>/<image>  with  DIR/val/<class>/<image>  (or DIR/test, where there is no val);
 *   DIR/<class>/<image>: a seeded choice of a tenth of each class, at least one of two, becomes the test split.
 * Names are sorted bytewise before labels and samples are numbered, so the order that the file system lists them in
 * does not matter. Names that begin with a dot, files without an image suffix and deeper directories are passed over.
 *
 * Opening looks at names, and decodes 256 training images for the channel statistics; the others are decoded when they
 * are read, each time: shorter side to the configured size, then the centre square. */
#include "image.h"
#include "listing.h"
#include "source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The images of one split. */
typedef struct Images {
    char    *root;   /* the directory that holds the class directories */
    Names    names;  /* file name of each sample */
    int32_t *labels; /* (names.capacity) */
} Images;

typedef struct Folder {
    Names  classes;
    Images split[SPLIT_COUNT];
} Folder;

static Status list_classes(const char *root, Names *classes)
{
    TRY(list_directory(root, true, classes));
    if (classes->count == 0)
        return status_error(STATUS_INPUT, "%s: no class directories; expected <class>/<image>.jpg|.jpeg|.png in it",
                            dataset_shown_path(root));
    if (classes->count > INT32_MAX)
        return status_error(STATUS_INPUT, "%s: too many classes", dataset_shown_path(root));
    return status_ok();
}

/* The images of one class, at least one. The caller frees *out, on failure too. */
static Status list_class_images(const char *root, const char *class_name, Names *out)
{
    char *dir = dataset_join_path(root, class_name, NULL);
    if (!dir)
        return listing_no_memory();
    Status status = list_directory(dir, false, out);
    if (status.code == STATUS_OK && out->count == 0)
        status = status_error(STATUS_INPUT, "%s: class without images (.jpg, .jpeg or .png)", dataset_shown_path(dir));
    free(dir);
    return status;
}

/* Appends one sample; takes over `name`. */
static Status images_take(Images *images, char *name, int32_t label)
{
    int64_t capacity = images->names.capacity;
    TRY(names_take(&images->names, name));
    if (images->names.capacity != capacity) {
        int32_t *labels = realloc(images->labels, (size_t)images->names.capacity * sizeof *labels);
        if (!labels)
            return listing_no_memory();
        images->labels = labels;
    }
    if (images->names.count > INT32_MAX)
        return status_error(STATUS_INPUT, "%s: too many images", dataset_shown_path(images->root));
    images->labels[images->names.count - 1] = label;
    return status_ok();
}

/* ---- the two layouts ---- */

static Status scan_split(const Names *classes, Images *images)
{
    for (int64_t c = 0; c < classes->count; c++) {
        Names names = { NULL, 0, 0 };
        Status status = list_class_images(images->root, classes->item[c], &names);
        for (int64_t i = 0; i < names.count && status.code == STATUS_OK; i++) {
            char *name = names.item[i];
            names.item[i] = NULL;
            status = images_take(images, name, (int32_t)c);
        }
        names_free(&names);
        TRY(status);
    }
    return status_ok();
}

static Status check_same_classes(const char *train_root, const Names *train, const char *test_root, const Names *test)
{
    for (int64_t a = 0, b = 0; a < train->count || b < test->count; a++, b++) {
        int order = a == train->count ? 1 : b == test->count ? -1 : strcmp(train->item[a], test->item[b]);
        if (order != 0)
            return status_error(STATUS_INPUT, "class '%.100s' is in %s but not in %s",
                                order < 0 ? train->item[a] : test->item[b],
                                dataset_shown_path(order < 0 ? train_root : test_root),
                                dataset_shown_path(order < 0 ? test_root : train_root));
    }
    return status_ok();
}

static Status scan_two_trees(Folder *folder)
{
    Images *train = &folder->split[SPLIT_TRAIN], *test = &folder->split[SPLIT_TEST];
    Names test_classes = { NULL, 0, 0 };
    Status status;
    TRY_GOTO(status, list_classes(train->root, &folder->classes), out);
    TRY_GOTO(status, list_classes(test->root, &test_classes), out);
    TRY_GOTO(status, check_same_classes(train->root, &folder->classes, test->root, &test_classes), out);
    TRY_GOTO(status, scan_split(&folder->classes, train), out);
    TRY_GOTO(status, scan_split(&folder->classes, test), out);
out:
    names_free(&test_classes);
    return status;
}

/* Deals the images of class c out to the splits: a tenth, at least one of two or more, to the test split. */
static Status deal_class(Folder *folder, Names *names, int32_t c, uint64_t seed)
{
    int64_t n = names->count;
    int64_t tests = list_test_share(n);
    int64_t *order = malloc((size_t)n * sizeof *order);
    bool *is_test = calloc((size_t)n, sizeof *is_test);
    Status status = order && is_test ? status_ok() : listing_no_memory();
    if (status.code == STATUS_OK) {
        for (int64_t i = 0; i < n; i++)
            order[i] = i;
        dataset_shuffle(order, n, tests, seed, STREAM_FOLDER + (uint64_t)c);
        for (int64_t i = 0; i < tests; i++)
            is_test[order[i]] = true;
    }
    for (int64_t i = 0; i < n && status.code == STATUS_OK; i++) {
        char *name = names->item[i];
        names->item[i] = NULL;
        status = images_take(&folder->split[is_test[i] ? SPLIT_TEST : SPLIT_TRAIN], name, c);
    }
    free(is_test);
    free(order);
    return status;
}

static Status scan_one_tree(Folder *folder, uint64_t seed)
{
    const char *root = folder->split[SPLIT_TRAIN].root;
    TRY(list_classes(root, &folder->classes));
    for (int64_t c = 0; c < folder->classes.count; c++) {
        Names names = { NULL, 0, 0 };
        Status status = list_class_images(root, folder->classes.item[c], &names);
        if (status.code == STATUS_OK)
            status = deal_class(folder, &names, (int32_t)c, seed);
        names_free(&names);
        TRY(status);
    }
    if (folder->split[SPLIT_TEST].names.count == 0)
        return status_error(STATUS_INPUT, "%s: every class holds one image, which leaves none for the test split",
                            dataset_shown_path(root));
    return status_ok();
}

/* ---- the source ---- */

static Status folder_open(const DatasetConfig *config, void **out, int64_t count[SPLIT_COUNT], int64_t *classes,
                          char *origin, size_t origin_bytes)
{
    if (!config->dir || !*config->dir)
        return status_error(STATUS_USAGE, "folder: needs the directory that holds the images: --data-dir DIR");
    Folder *folder = calloc(1, sizeof *folder);
    if (!folder)
        return listing_no_memory();
    *out = folder;
    bool two = false;
    char *roots[SPLIT_COUNT] = { NULL, NULL };
    Status layout = list_split_roots(config->dir, roots, &two);
    for (int split = 0; split < SPLIT_COUNT; split++)
        folder->split[split].root = roots[split];
    TRY(layout);
    TRY(two ? scan_two_trees(folder) : scan_one_tree(folder, config->seed));
    for (int split = 0; split < SPLIT_COUNT; split++)
        count[split] = folder->split[split].names.count;
    *classes = folder->classes.count;
    snprintf(origin, origin_bytes, "%s", dataset_shown_path(config->dir));
    return status_ok();
}

static void folder_close(void *state)
{
    Folder *folder = state;
    if (!folder)
        return;
    names_free(&folder->classes);
    for (int split = 0; split < SPLIT_COUNT; split++) {
        names_free(&folder->split[split].names);
        free(folder->split[split].labels);
        free(folder->split[split].root);
    }
    free(folder);
}

static const char *folder_class_name(const void *state, int64_t label)
{
    const Folder *folder = state;
    return folder->classes.item[label];
}

static Status folder_read(const void *state, Split split, int64_t index, int64_t size, uint8_t *pixels,
                          int32_t *label)
{
    const Folder *folder = state;
    const Images *images = &folder->split[split];
    int32_t c = images->labels[index];
    char *path = dataset_join_path(images->root, folder->classes.item[c], images->names.item[index]);
    if (!path)
        return status_error(STATUS_OOM, "folder: no memory for a path");
    Image image = { 0, 0, NULL };
    Status status = image_decode(path, size, &image);
    if (status.code == STATUS_OK)
        status = image_resize_square(image.pixels, image.height, image.width, 3, size, pixels);
    free(image.pixels);
    free(path);
    *label = c;
    return status;
}

const Source source_folder = {
    .name = "folder",
    .generator = false,
    .flip_keeps_truth = true, /* what photographs show; pictures of text or road signs are not this suite's case */
    .stats_samples = 256,
    .stats_size = 224,
    .open = folder_open,
    .close = folder_close,
    .class_name = folder_class_name,
    .read = folder_read,
};
