/* test_graph.c - the builder, its sticky error, the passes, and what ResNet-50 is made of. */
#include "../nets/grad.h"
#include "../nets/layers.h"
#include "../nets/nets.h"
#include "../nets/optim.h"
#include "fault_alloc.h"
#include "tiny_net.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static Net build(NetConfig config)
{
    Net net;
    expect_ok(net_build(&config, &net));
    return net;
}

/* The text that graph_print writes; the caller frees. */
static char *printed(const Graph *g)
{
    char  *text = NULL;
    size_t size = 0;
    FILE  *to = open_memstream(&text, &size);
    assert_non_null(to);
    graph_print(g, to);
    fclose(to);
    return text;
}

static int count_ops(const Graph *g, OpKind kind, Segment segment)
{
    int n = 0;
    for (int i = 0; i < g->node_count; i++)
        n += g->nodes[i].op.kind == kind && g->nodes[i].segment == segment;
    return n;
}

static void resnet50_has_the_published_number_of_parameters(void **state)
{
    (void)state;
    Net net = build(net_config_default(NULL));
    assert_int_equal(graph_param_count(net.graph), 25557032);

    int decaying = 0, others = 0;
    for (int i = 0; i < net.graph->value_count; i++)
        if (net.graph->values[i].is_param)
            *(net.graph->values[i].decay ? &decaying : &others) += 1;
    assert_int_equal(decaying, 53 + 1);   /* convolutions and the last layer */
    assert_int_equal(others, 2 * 53 + 1); /* gammas, betas, the last layer's bias */
    net_destroy(&net);
}

static void resnet50_costs_what_is_published(void **state)
{
    (void)state;
    NetConfig config = net_config_default(NULL);
    config.batch = 1;
    config.train = false;
    config.eval = true;
    Net net = build(config);
    /* 4.09 G multiply-adds in convolutions and fc (torchvision's table), and the normalisations on top. */
    double flops = graph_cost(net.graph, SEG_EVAL).flops;
    assert_true(flops > 2 * 4.09e9 && flops < 2 * 4.09e9 * 1.02);
    assert_true(graph_cost(net.graph, SEG_MICRO).flops == 0);
    net_destroy(&net);
}

static void width_is_rounded_to_multiples_of_16(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    config.width = 0.3; /* 64 -> 19.2 -> 16, 128 -> 38.4 -> 32, 2048 -> 614.4 -> 608 */
    Net net = build(config);
    assert_int_equal(graph_tensor(net.graph, graph_find(net.graph, "conv1.conv.w"))->dim[0], 16);
    assert_int_equal(graph_tensor(net.graph, graph_find(net.graph, "conv3.0.conv1.w"))->dim[0], 32);
    assert_int_equal(graph_tensor(net.graph, graph_find(net.graph, "fc.w"))->dim[1], 608);
    net_destroy(&net);
}

static void the_stride_is_on_the_3x3(void **state)
{
    (void)state;
    Net net = build(net_config_default(NULL));
    for (int i = 0; i < net.graph->node_count; i++) {
        const GraphNode *n = &net.graph->nodes[i];
        if (n->op.kind == OP_conv2d && !strncmp(n->scope, "conv4.0.", 8))
            assert_int_equal(n->op.attr.stride, strstr(n->scope, "conv2") || strstr(n->scope, "project") ? 2 : 1);
    }
    net_destroy(&net);
}

static void the_image_gets_no_gradient(void **state)
{
    (void)state;
    Net net = build(net_config_default(NULL));
    assert_int_equal(count_ops(net.graph, OP_conv2d, SEG_MICRO), 53);
    assert_int_equal(count_ops(net.graph, OP_conv2d_wgrad, SEG_MICRO), 53);
    assert_int_equal(count_ops(net.graph, OP_conv2d_dgrad, SEG_MICRO), 52);
    assert_int_equal(count_ops(net.graph, OP_add, SEG_MICRO), 16); /* one at the fork in front of every block */
    net_destroy(&net);
}

static void gradients_flow_into_every_parameter_once(void **state)
{
    (void)state;
    Net net = build(net_config_default(NULL));
    for (int i = 0; i < net.graph->value_count; i++) {
        if (!net.graph->values[i].is_param)
            continue;
        Value d = grad_of_param(net.graph, (Value){ i });
        int   writers = 0;
        for (int k = 0; k < net.graph->node_count; k++)
            for (int o = 0; o < net.graph->nodes[k].op.n_out; o++)
                writers += net.graph->nodes[k].out[o] == d.id;
        assert_int_equal(writers, 1);
        assert_int_equal(net.graph->values[d.id].kind, MEM_GRAD);
    }
    net_destroy(&net);
}

static void amp_keeps_what_sums_up_in_f32(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    config.amp = AMP_BF16;
    config.eval = true;
    Net net = build(config);
    for (int i = 0; i < net.graph->value_count; i++) {
        const GraphValue *v = &net.graph->values[i];
        if (v->kind == MEM_COPY)
            assert_int_equal(v->tensor.dtype, DTYPE_BF16);
        if (v->kind == MEM_WEIGHT || v->kind == MEM_GRAD || v->kind == MEM_OPTIM)
            assert_int_equal(v->tensor.dtype, DTYPE_F32);
        if (v->kind == MEM_ACT && v->tensor.rank == 4 && v->tensor.dtype != DTYPE_BIT)
            assert_int_equal(v->tensor.dtype, DTYPE_BF16);
        if (v->kind == MEM_ACT && v->tensor.rank == 1) /* statistics of batch norm */
            assert_int_equal(v->tensor.dtype, DTYPE_F32);
    }
    assert_int_equal(graph_tensor(net.graph, net.logits)->dtype, DTYPE_BF16); /* the loss takes it as it is */
    assert_int_equal(graph_tensor(net.graph, net.metrics)->dtype, DTYPE_F32);
    net_destroy(&net);
}

static void evaluation_shares_parameters_and_copies(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    Net train = build(config);
    config.eval = true;
    Net both = build(config);
    assert_int_equal(graph_param_count(both.graph), graph_param_count(train.graph));
    assert_int_equal(count_ops(both.graph, OP_repack, SEG_UPDATE), count_ops(train.graph, OP_repack, SEG_UPDATE));
    assert_int_equal(count_ops(both.graph, OP_batchnorm_infer, SEG_EVAL), 53);
    assert_int_equal(count_ops(both.graph, OP_batchnorm, SEG_EVAL), 0);
    net_destroy(&train);
    net_destroy(&both);
}

static void only_accumulation_zeroes_gradients(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    Net one = build(config);
    config.accumulate = true;
    Net many = build(config);
    assert_int_equal(count_ops(one.graph, OP_zero, SEG_BEGIN), 2);  /* metrics, norm2 */
    assert_int_equal(count_ops(many.graph, OP_zero, SEG_BEGIN), 4); /* and both spans of gradients */
    for (int i = 0; i < many.graph->node_count; i++)
        if (many.graph->nodes[i].op.kind == OP_conv2d_wgrad)
            assert_true(many.graph->nodes[i].op.attr.accumulate && !one.graph->nodes[i].op.attr.accumulate);
    net_destroy(&one);
    net_destroy(&many);
}

static void weight_decay_leaves_batch_norm_alone(void **state)
{
    (void)state;
    Net net = build(tiny_config(2));
    int found = 0;
    for (int i = 0; i < net.graph->node_count; i++) {
        const GraphNode *n = &net.graph->nodes[i];
        if (n->op.kind != OP_sgd)
            continue;
        bool decays = strstr(net.graph->values[n->in[0]].name, "not_decaying") == NULL;
        assert_true(n->op.attr.weight_decay == (decays ? 1e-4f : 0.0f));
        found++;
    }
    assert_int_equal(found, 2);
    net_destroy(&net);
}

static void the_graph_prints_one_line_a_node_and_a_parameter(void **state)
{
    (void)state;
    Net   net = build(net_config_default(NULL));
    char *text = printed(net.graph);
    int   lines = 0, params = 0;
    for (char *c = text; *c; c++)
        lines += *c == '\n';
    for (int i = 0; i < net.graph->value_count; i++)
        params += net.graph->values[i].is_param;
    assert_int_equal(lines, net.graph->node_count + params + 1);
    assert_non_null(strstr(text, "25557032 parameters\n"));
    assert_non_null(strstr(text, "conv3.0.conv2        conv2d f32[8,56,56,128] f32[128,3,3,128] -> f32[8,28,28,128] "
                                 "k3 s2 p1\n"));
    free(text);
    net_destroy(&net);
}

/* ---- errors ---- */

static void the_first_error_stays_and_names_scope_and_op(void **state)
{
    (void)state;
    Graph *g;
    expect_ok(graph_create(&g));
    Value x = graph_value(g, "x", tensor_act(DTYPE_F32, 1, 8, 8, 16), MEM_INPUT);
    graph_scope(g, "conv3.%d", 0);
    Value small = layer_maxpool(g, "pool", x, 3, 2);
    Value sum = graph_emit(g, (OpDesc){ .kind = OP_add }, 2, (Value[]){ x, small });
    assert_int_equal(sum.id, -1);
    int nodes = g->node_count, values = g->value_count;

    /* What follows does nothing and cannot hide the error. */
    graph_scope(g, "later");
    Value y = layer_linear(g, "fc", layer_global_avgpool(g, "mean", layer_conv(g, "conv", sum, 3, 8, 1)), 10);
    graph_fail(g, "another mistake");
    grad_append(g, false);
    assert_int_equal(y.id, -1);
    assert_int_equal(g->node_count, nodes);
    assert_int_equal(g->value_count, values);
    expect_error(graph_status(g), STATUS_USAGE, "conv3.0: add: ");
    expect_error(graph_status(g), STATUS_USAGE, "f32[1,8,8,16] f32[1,4,4,16]");
    graph_destroy(g);
}

static void wrong_use_of_the_builder_is_named(void **state)
{
    (void)state;
    Graph *g;
    expect_ok(graph_create(&g));
    graph_value(g, "x", tensor_1d(DTYPE_F32, 4), MEM_INPUT);
    graph_value(g, "x", tensor_1d(DTYPE_F32, 4), MEM_INPUT);
    expect_error(graph_status(g), STATUS_USAGE, "already a value named 'x'");
    graph_destroy(g);

    expect_ok(graph_create(&g));
    Value act = graph_value(g, "act", tensor_1d(DTYPE_F32, 4), MEM_ACT);
    graph_emit(g, (OpDesc){ .kind = OP_sqnorm }, 1, &act);
    expect_error(graph_status(g), STATUS_USAGE, "read before any node makes it");
    graph_destroy(g);

    expect_ok(graph_create(&g));
    Value in = graph_value(g, "in", tensor_1d(DTYPE_F32, 4), MEM_INPUT);
    Value wrong = graph_value(g, "wrong", tensor_1d(DTYPE_F32, 2), MEM_INPUT);
    graph_append_to(g, (OpDesc){ .kind = OP_sqnorm }, 1, &in, 1, &wrong);
    expect_error(graph_status(g), STATUS_USAGE, "'wrong', is f32[2] but must be f32[1]");
    graph_destroy(g);

    expect_ok(graph_create(&g));
    graph_span(g, "none", 3);
    expect_error(graph_status(g), STATUS_USAGE, "group 3 has no values");
    graph_destroy(g);

    expect_ok(graph_create(&g));
    graph_scope(g, "%080d", 1);
    expect_error(graph_status(g), STATUS_USAGE, "longer than");
    graph_destroy(g);
    graph_destroy(NULL);
}

static void a_parameter_without_gradient_is_refused(void **state)
{
    (void)state;
    Graph *g;
    expect_ok(graph_create(&g));
    Value x = graph_value(g, "x", tensor_2d(DTYPE_F32, 2, 16), MEM_INPUT);
    Value labels = graph_value(g, "labels", tensor_1d(DTYPE_I32, 2), MEM_INPUT);
    Value scale = graph_value(g, "scale", tensor_1d(DTYPE_F32, 1), MEM_INPUT);
    Value metrics = graph_value(g, "metrics", tensor_1d(DTYPE_F32, 4), MEM_INPUT);
    layer_linear(g, "unused", x, 4);
    layer_loss(g, "loss", layer_linear(g, "fc", x, 4), labels, scale, metrics);
    grad_append(g, false);
    expect_error(graph_status(g), STATUS_USAGE, "'unused.w' does not reach the loss");
    graph_destroy(g);
}

static void refused(NetConfig c, const char *word)
{
    Net net;
    expect_error(net_build(&c, &net), STATUS_USAGE, word);
    assert_null(net.graph);
    net_destroy(&net);
}

static void a_configuration_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    NetConfig c;
#define REFUSED(field, value, word) (c = net_config_default(NULL), c.field = (value), refused(c, word))
    REFUSED(net, "alexnet", "no net 'alexnet': use one of resnet50");
    REFUSED(net, NULL, "resnet50");
    REFUSED(batch, 0, "batch is 0");
    REFUSED(batch, -3, "batch is -3: it must be 1 to");
    REFUSED(batch, 70000, "batch is 70000");
    REFUSED(size, 31, "at least 32 pixels");
    REFUSED(size, 9000, "size is 9000");
    REFUSED(channels, 4, "channels is 4");
    REFUSED(classes, 1, "classes is 1");
    REFUSED(width, 0, "width is 0");
    REFUSED(width, NAN, "width is nan");
    REFUSED(optim.momentum, 1, "momentum is 1");
    REFUSED(optim.weight_decay, -1, "weight decay is -1");
    REFUSED(deviation[1], 0, "channel 1");
    REFUSED(train, false, "training, evaluation or both");
#undef REFUSED
    c = tiny_config(1);
    c.size = 7;
    refused(c, "at least 8 pixels");
}

static Status build_and_destroy(void *context)
{
    Net    net;
    Status s = net_build(context, &net);
    net_destroy(&net);
    return s;
}

static void running_out_of_memory_while_building_is_an_error(void **state)
{
    (void)state;
    NetConfig config = tiny_config(2);
    config.amp = AMP_BF16;
    config.accumulate = config.eval = true;
    assert_true(fault_alloc_sweep(build_and_destroy, &config) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet50_has_the_published_number_of_parameters),
        cmocka_unit_test(resnet50_costs_what_is_published),
        cmocka_unit_test(width_is_rounded_to_multiples_of_16),
        cmocka_unit_test(the_stride_is_on_the_3x3),
        cmocka_unit_test(the_image_gets_no_gradient),
        cmocka_unit_test(gradients_flow_into_every_parameter_once),
        cmocka_unit_test(amp_keeps_what_sums_up_in_f32),
        cmocka_unit_test(evaluation_shares_parameters_and_copies),
        cmocka_unit_test(only_accumulation_zeroes_gradients),
        cmocka_unit_test(weight_decay_leaves_batch_norm_alone),
        cmocka_unit_test(the_graph_prints_one_line_a_node_and_a_parameter),
        cmocka_unit_test(the_first_error_stays_and_names_scope_and_op),
        cmocka_unit_test(wrong_use_of_the_builder_is_named),
        cmocka_unit_test(a_parameter_without_gradient_is_refused),
        cmocka_unit_test(a_configuration_that_makes_no_sense_is_refused),
        cmocka_unit_test(running_out_of_memory_while_building_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
