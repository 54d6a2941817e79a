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
#include "source.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

typedef struct Names {
    char  **item;
    int64_t count, capacity;
} Names;

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

static Status no_memory(void)
{
    return status_error(STATUS_OOM, "folder: no memory for the list of images");
}

/* ---- lists of names ---- */

static void names_free(Names *names)
{
    for (int64_t i = 0; i < names->count; i++)
        free(names->item[i]);
    free(names->item);
    *names = (Names){ NULL, 0, 0 };
}

/* Takes over `name`, which came from malloc; frees it where it cannot. */
static Status names_take(Names *names, char *name)
{
    if (name && names->count == names->capacity) {
        int64_t capacity = names->capacity ? 2 * names->capacity : 16;
        char **item = realloc(names->item, (size_t)capacity * sizeof *item);
        if (!item) {
            free(name);
            return no_memory();
        }
        names->item = item;
        names->capacity = capacity;
    }
    if (!name)
        return no_memory();
    names->item[names->count++] = name;
    return status_ok();
}

static char *copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* ---- directories ---- */

static bool is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool has_image_suffix(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 || strcasecmp(dot, ".png") == 0);
}

/* *is_one: is dir/name a directory? (Through symbolic links.) */
static Status ask_directory(const char *dir, const char *name, bool *is_one)
{
    char *path = dataset_join_path(dir, name, NULL);
    if (!path)
        return no_memory();
    *is_one = is_directory(path);
    free(path);
    return status_ok();
}

static Status list_entries(DIR *handle, const char *dir, bool directories, Names *out)
{
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(handle);
        if (!entry && errno != 0)
            return dataset_file_error(dir, errno);
        if (!entry)
            return status_ok();
        bool wanted = entry->d_name[0] != '.';
        if (wanted && directories)
            TRY(ask_directory(dir, entry->d_name, &wanted));
        else if (wanted)
            wanted = has_image_suffix(entry->d_name);
        if (wanted)
            TRY(names_take(out, copy_text(entry->d_name)));
    }
}

/* The sorted names of the directories, or of the image files, in dir. The caller frees *out, on failure too. */
static Status list_directory(const char *dir, bool directories, Names *out)
{
    DIR *handle = opendir(dir);
    if (!handle)
        return errno == ENOMEM ? no_memory() : dataset_file_error(dir, errno);
    Status status = list_entries(handle, dir, directories, out);
    closedir(handle);
    if (status.code == STATUS_OK && out->count > 1)
        qsort(out->item, (size_t)out->count, sizeof *out->item, compare_names);
    return status;
}

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
        return no_memory();
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
            return no_memory();
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
    int64_t tests = n < 2 ? 0 : n < 10 ? 1 : n / 10;
    int64_t *order = malloc((size_t)n * sizeof *order);
    bool *is_test = calloc((size_t)n, sizeof *is_test);
    Status status = order && is_test ? status_ok() : no_memory();
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

/* Which layout is it? Sets the two roots; *two tells train + val/test from a flat tree. */
static Status find_layout(const char *dir, Folder *folder, bool *two)
{
    bool train = false, val = false, test = false;
    TRY(ask_directory(dir, "train", &train));
    TRY(ask_directory(dir, "val", &val));
    TRY(ask_directory(dir, "test", &test));
    if (train != (val || test))
        return status_error(STATUS_INPUT, "%s: holds '%s' but no '%s'", dataset_shown_path(dir),
                            train ? "train" : val ? "val" : "test", train ? "val' or 'test" : "train");
    *two = train;
    Images *split = folder->split;
    split[SPLIT_TRAIN].root = train ? dataset_join_path(dir, "train", NULL) : copy_text(dir);
    split[SPLIT_TEST].root = train ? dataset_join_path(dir, val ? "val" : "test", NULL) : copy_text(dir);
    return split[SPLIT_TRAIN].root && split[SPLIT_TEST].root ? status_ok() : no_memory();
}

/* ---- the source ---- */

static Status folder_open(const DatasetConfig *config, void **out, int64_t count[SPLIT_COUNT], int64_t *classes,
                          char *origin, size_t origin_bytes)
{
    if (!config->dir || !*config->dir)
        return status_error(STATUS_USAGE, "folder: needs the directory that holds the images: --data-dir DIR");
    struct stat info;
    if (stat(config->dir, &info) != 0)
        return dataset_file_error(config->dir, errno);
    if (!S_ISDIR(info.st_mode))
        return dataset_file_error(config->dir, ENOTDIR);

    Folder *folder = calloc(1, sizeof *folder);
    if (!folder)
        return no_memory();
    *out = folder;
    bool two = false;
    TRY(find_layout(config->dir, folder, &two));
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
    .flip_keeps_label = true, /* what photographs show; pictures of text or road signs are not this suite's case */
    .stats_samples = 256,
    .stats_size = 224,
    .open = folder_open,
    .close = folder_close,
    .class_name = folder_class_name,
    .read = folder_read,
};
