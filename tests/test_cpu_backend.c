/* test_cpu_backend.c - what the CPU backend owes beyond right numbers (test_ops_cpu.c, test_conv_cpu.c): options and
 * description, layouts and their ids, memory, failed allocations, and that oneDNN runs neither reference loops nor reorders
 * in a step. */
#include "../kernels/cpu/capacity.h"
#include "../kernels/backend.h"
#include "fault_alloc.h"
#include "scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* AddressSanitizer's own name: lets an allocation that is too large return NULL, as the C library's does. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

static Backend *open_cpu(const char *layout)
{
    Backend *be;
    Status   s = backend_open("cpu", &(BackendOptions){ .threads = 2, .layout = layout }, &be);
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
    return be;
}

static void check(Status s)
{
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
}

static bool has_bf16(Backend *be)
{
    BackendInfo info;
    backend_describe(be, &info);
    return info.fast_bf16;
}

/* ---- options, description, memory */

static void wrong_options_are_refused_by_name(void **state)
{
    (void)state;
    Backend *be;
    Status   s = backend_open("cpu", &(BackendOptions){ .layout = "nchw" }, &be);
    assert_int_equal(s.code, STATUS_USAGE);
    assert_non_null(strstr(s.text, "nchw"));
    assert_non_null(strstr(s.text, "blocked"));
    assert_null(be);
    s = backend_open("cpu", &(BackendOptions){ .threads = -1 }, &be);
    assert_int_equal(s.code, STATUS_USAGE);
    assert_null(be);
}

static void description_is_filled_in(void **state)
{
    (void)state;
    Backend    *be = open_cpu(NULL);
    BackendInfo info;
    backend_describe(be, &info);
    assert_true(info.name[0] != '\0');
    assert_memory_equal(info.library, "oneDNN ", 7);
    assert_int_equal(info.threads, 2);
    assert_true(info.memory_bytes > (size_t)64 << 20);
    assert_true(info.memory_bytes <= (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE));
    assert_true(info.fast_bf16 == (info.bf16_reason[0] == '\0'));
    backend_close(be);
    check(backend_open("cpu", NULL, &be)); /* no options: all cores */
    backend_describe(be, &info);
    assert_true(info.threads >= 1);
    backend_close(be);
}

static void limits_are_read_from_control_group_files(void **folder)
{
    static const struct { const char *text; size_t limit; } files[] = {
        { "max\n", SIZE_MAX }, { "1073741824\n", 1073741824u }, { "", SIZE_MAX }, { "-1\n", SIZE_MAX },
        { "99999999999999999999999999\n", SIZE_MAX },
    };
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        const char *path = scratch_path(*folder, "limit");
        scratch_write(path, files[i].text, strlen(files[i].text));
        assert_int_equal(capacity_limit_in(path), files[i].limit);
    }
    assert_int_equal(capacity_limit_in(scratch_path(*folder, "missing")), SIZE_MAX);
}

static void memory_is_aligned_and_its_lack_is_an_error(void **state)
{
    (void)state;
    Backend *be = open_cpu(NULL);
    static const size_t sizes[] = { 0, 1, 100, 4 << 20, (4 << 20) + 1 };
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *p;
        check(backend_alloc(be, sizes[i], &p));
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 1, sizes[i]);
        backend_free(be, p);
    }
    static const size_t too_much[] = { SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 60 };
    for (size_t i = 0; i < COUNT_OF(too_much); i++) {
        void *p;
        assert_int_equal(backend_alloc(be, too_much[i], &p).code, STATUS_OOM);
        assert_null(p);
    }
    backend_free(be, NULL);
    backend_close(be);
}

/* ---- layouts */

/* Fills with bytes that differ from element to element, moves in and out, and compares. */
static void check_round_trip(Backend *be, const Tensor *t)
{
    const size_t bytes = tensor_bytes(t), physical = backend_bytes(be, t);
    uint8_t *host = malloc(bytes), *back = calloc(1, bytes);
    void    *device;
    assert_non_null(host);
    assert_non_null(back);
    assert_true(physical >= bytes);
    check(backend_alloc(be, physical, &device));
    for (size_t i = 0; i < bytes; i++)
        host[i] = (uint8_t)(rng_block(5, 0, i).word[0] % 255 + 1); /* never 0 */
    memset(device, 0xFF, physical);
    check(backend_upload(be, t, device, host));
    size_t zeros = 0;
    for (size_t i = 0; i < physical; i++)
        zeros += ((uint8_t *)device)[i] == 0;
    assert_int_equal(zeros, physical - bytes); /* padding is 0 and nothing else is */
    check(backend_download(be, t, device, back));
    assert_memory_equal(host, back, bytes);
    backend_free(be, device);
    free(host);
    free(back);
}

/* A convolution of (n,h,w,c) to k channels, and its gradients. */
static OpDesc conv_op(OpKind kind, Dtype t, int64_t n, int64_t h, int64_t c, int64_t k, int r, int stride, int pad)
{
    const int64_t p = (h + 2 * pad - r) / stride + 1;
    OpDesc op = { .kind = kind, .n_in = 2, .attr = { .kernel = r, .stride = stride, .pad = pad, .in_h = h, .in_w = h } };
    Tensor x = tensor_act(t, n, h, h, c), y = tensor_act(t, n, p, p, k), w = tensor_4d(t, k, r, r, c);
    op.in[0] = kind == OP_conv2d_dgrad ? y : x;
    op.in[1] = kind == OP_conv2d_wgrad ? y : w;
    check(op_infer(&op));
    return op;
}

/* The weights slot with the layout that the kernel asks for. */
static Tensor wanted_weights(Backend *be, const OpDesc *op)
{
    OpNeeds needs;
    check(backend_query(be, op, &needs));
    Tensor w = op->kind == OP_conv2d_wgrad ? op->out[0] : op->in[1];
    w.layout = op->kind == OP_conv2d_wgrad ? needs.out_layout[0] : needs.in_layout[1];
    assert_true(w.layout != LAYOUT_ANY);
    return w;
}

static const OpKind conv_kinds[] = { OP_conv2d, OP_conv2d_dgrad, OP_conv2d_wgrad };
static const struct { int64_t h, c, k; int r, stride, pad; } small_convs[] = {
    { 14, 64, 128, 3, 1, 1 }, { 14, 64, 128, 1, 2, 0 }, { 33, 3, 64, 7, 2, 3 }, { 9, 40, 24, 3, 2, 1 }, { 9, 10, 7, 1, 1, 0 },
};
static const char *const layouts[] = { "auto", "blocked", "nhwc" };

static void every_layout_survives_a_round_trip(void **state)
{
    (void)state;
    for (size_t l = 0; l < COUNT_OF(layouts); l++) {
        Backend *be = open_cpu(layouts[l]);
        for (int t = DTYPE_F32; t <= (has_bf16(be) ? DTYPE_BF16 : DTYPE_F32); t++) {
            static const int64_t channels[] = { 1, 3, 16, 40, 64 };
            for (size_t i = 0; i < COUNT_OF(channels); i++) {
                Tensor act = tensor_act((Dtype)t, 2, 5, 7, channels[i]);
                check_round_trip(be, &act);
                assert_int_equal(backend_bytes(be, &act), tensor_bytes(&act));
            }
            for (size_t i = 0; i < COUNT_OF(small_convs); i++)
                for (size_t k = 0; k < COUNT_OF(conv_kinds); k++) {
                    OpDesc op = conv_op(conv_kinds[k], (Dtype)t, 2, small_convs[i].h, small_convs[i].c, small_convs[i].k,
                                        small_convs[i].r, small_convs[i].stride, small_convs[i].pad);
                    Tensor w = wanted_weights(be, &op);
                    check_round_trip(be, &w);
                }
        }
        Tensor labels = tensor_1d(DTYPE_I32, 11), image = tensor_4d(DTYPE_U8, 2, 5, 7, 3);
        check_round_trip(be, &labels);
        check_round_trip(be, &image);
        backend_close(be);
    }
}

static void bits_cannot_be_moved(void **state)
{
    (void)state;
    Backend *be = open_cpu(NULL);
    Tensor   mask = tensor_act(DTYPE_BIT, 1, 2, 2, 16);
    uint8_t  bytes[8] = { 0 };
    assert_int_equal(backend_upload(be, &mask, bytes, bytes).code, STATUS_USAGE);
    assert_int_equal(backend_download(be, &mask, bytes, bytes).code, STATUS_USAGE);
    backend_close(be);
}

static void equal_layouts_have_one_id(void **state)
{
    (void)state;
    Backend *be = open_cpu(NULL);
    for (size_t k = 0; k < COUNT_OF(conv_kinds); k++) {
        OpDesc op = conv_op(conv_kinds[k], DTYPE_F32, 2, 14, 64, 128, 3, 1, 1), other = op;
        Tensor first = wanted_weights(be, &op);
        for (int i = 0; i < 3; i++) {
            Tensor again = wanted_weights(be, &other);
            assert_int_equal(first.layout, again.layout);
        }
        OpDesc wide = conv_op(conv_kinds[k], DTYPE_F32, 2, 14, 64, 256, 3, 1, 1);
        Tensor w = wanted_weights(be, &wide);
        if (w.layout != LAYOUT_PLAIN) /* another shape is another layout */
            assert_int_not_equal(w.layout, first.layout);
    }
    backend_close(be);
}

/* ---- repack */

static void *run_repack(Backend *be, OpDesc *op, const void *from)
{
    void *to, *state = NULL;
    const Kernel *kernel = be->vtable->kernels[OP_repack];
    check(backend_alloc(be, backend_bytes(be, &op->out[0]), &to));
    check(kernel->prepare(be, op, &state));
    void *buf[2] = { (void *)(uintptr_t)from, to };
    check(kernel->run(be, op, state, buf, NULL));
    kernel->release(state);
    return to;
}

/* From the gradient's layout, in which the optimiser keeps the weights, to what forward and backward want. */
static void repack_gives_what_upload_gives(void **state)
{
    (void)state;
    for (size_t l = 0; l < COUNT_OF(layouts); l++) {
        Backend *be = open_cpu(layouts[l]);
        for (size_t i = 0; i < 2 * COUNT_OF(small_convs); i++) {
            const size_t c = i / 2;
            const Dtype  t = i % 2 && has_bf16(be) ? DTYPE_BF16 : DTYPE_F32;
#define CONV(kind) conv_op(kind, t, 2, small_convs[c].h, small_convs[c].c, small_convs[c].k, small_convs[c].r, small_convs[c].stride, small_convs[c].pad)
            OpDesc wgrad = CONV(OP_conv2d_wgrad);
            Tensor master = wanted_weights(be, &wgrad);
            const int64_t n = tensor_count(&master);
            float *host = malloc((size_t)n * sizeof *host);
            void  *typed = malloc((size_t)n * sizeof *host), *device;
            assert_non_null(host);
            assert_non_null(typed);
            for (int64_t e = 0; e < n; e++) {
                host[e] = (float)rng_normal(3, 0, (uint64_t)e);
                if (t == DTYPE_F32)
                    ((float *)typed)[e] = host[e];
                else
                    ((uint16_t *)typed)[e] = bf16_from_f32(host[e]);
            }
            check(backend_alloc(be, backend_bytes(be, &master), &device));
            check(backend_upload(be, &master, device, host));
            for (size_t k = 0; k < 2; k++) {
                OpDesc user = CONV(conv_kinds[k]);
#undef CONV
                OpDesc op = { .kind = OP_repack, .n_in = 1, .n_out = 1 };
                op.in[0] = master;
                op.out[0] = wanted_weights(be, &user);
                void *got = run_repack(be, &op, device), *want;
                check(backend_alloc(be, backend_bytes(be, &op.out[0]), &want));
                check(backend_upload(be, &op.out[0], want, typed));
                assert_memory_equal(got, want, backend_bytes(be, &op.out[0]));
                backend_free(be, got);
                backend_free(be, want);
            }
            backend_free(be, device);
            free(host);
            free(typed);
        }
        backend_close(be);
    }
}

/* ---- batch norm and values that are not finite (tests/CASES.md D9) */

static void statistics_that_are_not_finite_change_nothing(void **state)
{
    (void)state;
    enum { ROWS = 2 * 3 * 3, CHANNELS = 16 };
    Backend *be = open_cpu("nhwc");
    OpDesc op = { .kind = OP_batchnorm, .n_in = 5, .attr = { .eps = 1e-5f, .momentum = 0.1f } };
    op.in[0] = tensor_act(DTYPE_F32, 2, 3, 3, CHANNELS);
    for (int i = 1; i < 5; i++)
        op.in[i] = tensor_1d(DTYPE_F32, CHANNELS);
    check(op_infer(&op));
    OpNeeds needs;
    check(backend_query(be, &op, &needs));
    void *scratch;
    check(backend_alloc(be, needs.scratch, &scratch));
    float x[ROWS * CHANNELS], y[ROWS * CHANNELS], vector[6][CHANNELS];
    for (int i = 0; i < ROWS * CHANNELS; i++)
        x[i] = (float)rng_normal(1, 0, (uint64_t)i);
    for (int c = 0; c < CHANNELS; c++) {
        vector[0][c] = 1;    /* gamma */
        vector[1][c] = 0;    /* beta */
        vector[2][c] = 0.25f; /* running mean and variance */
        vector[3][c] = 2;
    }
    x[5] = INFINITY;
    x[CHANNELS + 6] = NAN;
    x[7] = 1e30f; /* finite, but its square is not */
    void *buf[] = { x, vector[0], vector[1], vector[2], vector[3], y, vector[4], vector[5] };
    check(be->vtable->kernels[OP_batchnorm]->run(be, &op, NULL, buf, scratch));
    for (int c = 0; c < CHANNELS; c++) {
        assert_true(isfinite(vector[2][c]) && isfinite(vector[3][c]));
        if (c >= 5 && c <= 7) {
            assert_true(vector[2][c] == 0.25f && vector[3][c] == 2.0f);
        } else {
            assert_true(vector[2][c] != 0.25f && vector[3][c] != 2.0f);
        }
    }
    backend_free(be, scratch);
    backend_close(be);
}

/* ---- allocations that fail */

static Status open_and_prepare(void *context)
{
    const Dtype t = *(const Dtype *)context;
    Backend *be;
    TRY(backend_open("cpu", &(BackendOptions){ .threads = 2 }, &be));
    Status status = status_ok();
    for (size_t k = 0; k < COUNT_OF(conv_kinds) && status.code == STATUS_OK; k++) {
        OpDesc  op = conv_op(conv_kinds[k], t, 1, 8, 16, 32, 3, 1, 1);
        OpNeeds needs;
        void   *prepared = NULL;
        status = backend_query(be, &op, &needs);
        if (status.code != STATUS_OK)
            break;
        op.in[1].layout = needs.in_layout[1] == LAYOUT_ANY ? op.in[1].layout : needs.in_layout[1];
        const Kernel *kernel = be->vtable->kernels[op.kind];
        status = kernel->prepare(be, &op, &prepared);
        if (status.code == STATUS_OK)
            kernel->release(prepared);
    }
    backend_close(be);
    return status;
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    Dtype t = DTYPE_F32;
    assert_true(fault_alloc_sweep(open_and_prepare, &t) > 4);
}

/* ---- what oneDNN runs */

/* The distinct convolutions of ResNet-50 at 224: input size, channels in and out, kernel, stride, padding. */
static const struct { int64_t h, c, k; int r, stride, pad; } resnet_convs[] = {
    { 224, 3, 64, 7, 2, 3 },   { 56, 64, 64, 1, 1, 0 },    { 56, 256, 64, 1, 1, 0 },   { 56, 64, 64, 3, 1, 1 },
    { 56, 64, 256, 1, 1, 0 },  { 56, 256, 128, 1, 1, 0 },  { 56, 128, 128, 3, 2, 1 },  { 28, 128, 512, 1, 1, 0 },
    { 56, 256, 512, 1, 2, 0 }, { 28, 512, 128, 1, 1, 0 },  { 28, 128, 128, 3, 1, 1 },  { 28, 512, 256, 1, 1, 0 },
    { 28, 256, 256, 3, 2, 1 }, { 14, 256, 1024, 1, 1, 0 }, { 28, 512, 1024, 1, 2, 0 }, { 14, 1024, 256, 1, 1, 0 },
    { 14, 256, 256, 3, 1, 1 }, { 14, 1024, 512, 1, 1, 0 }, { 14, 512, 512, 3, 2, 1 },  { 7, 512, 2048, 1, 1, 0 },
    { 14, 1024, 2048, 1, 2, 0 }, { 7, 2048, 512, 1, 1, 0 }, { 7, 512, 512, 3, 1, 1 },
};

static Status run_once(Backend *be, OpDesc *op)
{
    OpNeeds needs;
    void   *buf[3], *scratch = NULL, *prepared = NULL;
    TRY(backend_query(be, op, &needs));
    for (int i = 0; i < 2; i++)
        op->in[i].layout = needs.in_layout[i] == LAYOUT_ANY ? op->in[i].layout : needs.in_layout[i];
    op->out[0].layout = needs.out_layout[0] == LAYOUT_ANY ? op->out[0].layout : needs.out_layout[0];
    for (int i = 0; i < 3; i++) {
        const Tensor *t = i < 2 ? &op->in[i] : &op->out[0];
        TRY(backend_alloc(be, backend_bytes(be, t), &buf[i]));
        memset(buf[i], 0, backend_bytes(be, t));
    }
    TRY(backend_alloc(be, needs.scratch, &scratch));
    const Kernel *kernel = be->vtable->kernels[op->kind];
    TRY(kernel->prepare(be, op, &prepared));
    TRY(kernel->run(be, op, prepared, buf, scratch));
    kernel->release(prepared);
    backend_free(be, scratch);
    for (int i = 0; i < 3; i++)
        backend_free(be, buf[i]);
    return status_ok();
}

/* The child: with DNNL_VERBOSE=1, oneDNN prints a line for each primitive it runs. */
static int run_resnet_convs(const char *layout)
{
    Backend *be;
    if (backend_open("cpu", &(BackendOptions){ .threads = 2, .layout = layout }, &be).code != STATUS_OK)
        return 1;
    for (int t = DTYPE_F32; t <= (has_bf16(be) ? DTYPE_BF16 : DTYPE_F32); t++)
        for (size_t i = 0; i < COUNT_OF(resnet_convs); i++)
            for (size_t k = 0; k < COUNT_OF(conv_kinds); k++) {
                if (i == 0 && conv_kinds[k] == OP_conv2d_dgrad) /* nobody asks for the image's gradient */
                    continue;
                OpDesc op = conv_op(conv_kinds[k], (Dtype)t, 1, resnet_convs[i].h, resnet_convs[i].c, resnet_convs[i].k,
                                    resnet_convs[i].r, resnet_convs[i].stride, resnet_convs[i].pad);
                Status s = run_once(be, &op);
                if (s.code != STATUS_OK) {
                    printf("%s\n", s.text);
                    return 1;
                }
            }
    backend_close(be);
    return 0;
}

static void onednn_runs_no_reference_code_and_no_reorder(void **state)
{
    (void)state;
    char self[512], command[640], line[2048];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = '\0';
    Backend    *be = open_cpu(NULL);
    BackendInfo info;
    backend_describe(be, &info);
    backend_close(be);
    for (size_t l = 0; l < COUNT_OF(layouts); l++) {
        if (!strcmp(layouts[l], "blocked") && !strstr(info.isa, "avx512_core"))
            continue; /* an experiment that oneDNN has no fast kernels for */
        snprintf(command, sizeof command, "DNNL_VERBOSE=1 '%s' --resnet-convs %s", self, layouts[l]);
        FILE *child = popen(command, "r");
        assert_non_null(child);
        int convolutions = 0, bad = 0;
        while (fgets(line, sizeof line, child)) {
            convolutions += strstr(line, ",exec,") && strstr(line, ",convolution,");
            if (strstr(line, ",ref") || strstr(line, ",reorder,")) {
                bad++;
                print_error("%s: %s", layouts[l], line);
            }
        }
        assert_int_equal(pclose(child), 0);
        assert_true(convolutions >= (int)(3 * COUNT_OF(resnet_convs) - 1)); /* f32 at least */
        assert_int_equal(bad, 0);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--resnet-convs"))
        return run_resnet_convs(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_options_are_refused_by_name),
        cmocka_unit_test(description_is_filled_in),
        cmocka_unit_test_setup_teardown(limits_are_read_from_control_group_files, scratch_setup, scratch_teardown),
        cmocka_unit_test(memory_is_aligned_and_its_lack_is_an_error),
        cmocka_unit_test(every_layout_survives_a_round_trip),
        cmocka_unit_test(bits_cannot_be_moved),
        cmocka_unit_test(equal_layouts_have_one_id),
        cmocka_unit_test(repack_gives_what_upload_gives),
        cmocka_unit_test(statistics_that_are_not_finite_change_nothing),
        cmocka_unit_test(every_failed_allocation_is_an_error),
        cmocka_unit_test(onednn_runs_no_reference_code_and_no_reorder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
