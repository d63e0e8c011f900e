// The pass that puts pagewheel's attention in the place of OpenVINO's.
#include "graph/passes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>

#include "cache/kv_cache.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/properties.hpp"
#include "ops/paged_attention.hpp"
#include "support/attention_graph.hpp"
#include "support/packed_tables.hpp"

namespace pagewheel {
namespace {

constexpr size_t sliding_window_input = 10;

std::vector<size_t> windows_after(const std::shared_ptr<ov::Model>& model,
                                  const NativeAttentionOptions& options) {
    use_native_attention(model, options);
    std::vector<size_t> windows;
    for (const auto& node : model->get_ordered_ops())
        if (const auto attention = ov::as_type_ptr<PagedAttention>(node))
            windows.push_back(attention->attributes().config.sliding_window);
    return windows;
}

/// Two layers whose nodes say `window`, as OpenVINO's pass writes it where it knows the mask.
std::shared_ptr<ov::Model> graph_with_window(int32_t window) {
    auto model = openvino_paged_attention({}, 2, ov::element::f32);
    for (const auto& node : model->get_ordered_ops())
        if (std::string(node->get_type_name()) == "PagedAttentionExtension")
            node->input(sliding_window_input)
                .replace_source_output(
                    ov::op::v0::Constant::create(ov::element::i32, {}, {window}));
    return model;
}

TEST(NativeAttention, TheConfigsSlidingWindowBeatsTheNodes) {
    NativeAttentionOptions options;
    EXPECT_EQ(windows_after(graph_with_window(0), options), (std::vector<size_t>{0, 0}));
    EXPECT_EQ(windows_after(graph_with_window(17), options), (std::vector<size_t>{17, 17}));
    options.sliding_windows = {5, 0};
    // Where OpenVINO's pass missed the mask, and where it found another one.
    EXPECT_EQ(windows_after(graph_with_window(0), options), (std::vector<size_t>{5, 0}));
    EXPECT_EQ(windows_after(graph_with_window(17), options), (std::vector<size_t>{5, 0}));
}

TEST(NativeAttention, ACachesWindowIsTheWidestOfTheLayersThatReadIt) {
    const auto window_of = [](size_t owner, const std::vector<size_t>& readers) {
        CacheLayer layer;
        layer.sliding_window = owner;
        for (const size_t window : readers) layer.widen_window(window);
        return layer.sliding_window;
    };
    EXPECT_EQ(window_of(40, {}), 40u);
    EXPECT_EQ(window_of(40, {16, 64, 32}), 64u);
    EXPECT_EQ(window_of(40, {16, 0, 32}), 0u);  // one sees all
    EXPECT_EQ(window_of(0, {16}), 0u);
}

/// Runs a graph of attention over a prefill chunk and decodes; returns its output.
std::vector<float> run(const std::shared_ptr<ov::Model>& model, const AttentionShape& shape,
                       const ov::AnyMap& properties) {
    ov::Core core;
    auto compiled = core.compile_model(model, "CPU", properties);
    auto request = compiled.create_infer_request();
    const CacheGeometry geometry = read_cache_geometry(compiled);
    KvCache cache(geometry, 8, compiled, true);
    cache.bind(request);
    const auto set = [&](const std::string& name, const ov::Tensor& tensor) {
        for (const auto& input : compiled.inputs())
            if (input.get_names().count(name)) request.set_tensor(name, tensor);
    };
    const auto integers = [&](const std::string& name, const std::vector<int32_t>& values,
                              const ov::Shape& dimensions) {
        ov::Tensor tensor(ov::element::i32, dimensions);
        std::copy(values.begin(), values.end(), tensor.data<int32_t>());
        set(name, tensor);
    };
    const std::vector<int32_t> blocks{5, 2, 7, 0}, block_begins{0, 2, 4};
    integers("block_indices", blocks, {4});
    integers("block_indices_begins", block_begins, {3});

    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> output;
    // Prompts of 40 and 33 tokens, then one token each.
    for (const auto& [past, begins] :
         {std::pair(std::vector<int32_t>{0, 0}, std::vector<int32_t>{0, 40, 73}),
          std::pair(std::vector<int32_t>{40, 33}, std::vector<int32_t>{0, 1, 2})}) {
        const auto tokens = size_t(begins.back());
        for (const auto& [name, heads] : {std::pair("query", shape.heads),
                                          {"key", shape.kv_heads},
                                          {"value", shape.kv_heads}}) {
            ov::Tensor tensor(ov::element::f32, {tokens, heads * shape.head_size});
            for (size_t i = 0; i < tensor.get_size(); ++i) tensor.data<float>()[i] = normal(random);
            set(name, tensor);
        }
        integers("past_lens", past, {2});
        integers("subsequence_begins", begins, {3});
        integers("max_context_len", {past[0] + begins[1]}, {});
        TableValues tables;
        tables.past_lens = past;
        tables.subsequence_begins = begins;
        tables.block_indices_begins = block_begins;
        tables.layers[0].block_indices = blocks;
        std::vector<int32_t> words(tables.num_words());
        tables.pack(words.data());
        integers("batch_tables", words, {words.size()});
        request.start_async();
        request.wait();
        const ov::Tensor result = request.get_output_tensor();
        output.insert(output.end(), result.data<float>(), result.data<float>() + result.get_size());
    }
    return output;
}

/// Runs the pass with one node that it does not serve, as it does not say what the pass must know.
NativeAttentionReport leave_one(const std::shared_ptr<ov::Model>& model,
                                const NativeAttentionOptions& options) {
    constexpr const char* unknown = "num_v_heads";
    std::shared_ptr<ov::Node> odd;
    for (const auto& node : model->get_ordered_ops())
        if (!odd && std::string(node->get_type_name()) == "PagedAttentionExtension") odd = node;
    const ov::Any known = odd->get_rt_info().at(unknown);
    odd->get_rt_info().erase(unknown);
    NativeAttentionReport report = use_native_attention(model, options);
    odd->get_rt_info()[unknown] = known;
    return report;
}

TEST(NativeAttention, ComputesWhatOpenVinosDoes) {
    for (const AttentionShape& shape :
         {AttentionShape{9, 3, 64}, AttentionShape{4, 1, 80}, AttentionShape{5, 5, 48}}) {
        const ov::AnyMap exact{ov::hint::inference_precision(ov::element::f32),
                               ov::hint::kv_cache_precision(ov::element::f32)};
        const auto openvino =
            run(openvino_paged_attention(shape, 2, ov::element::f32), shape, exact);
        for (const bool mixed : {false, true}) {
            const auto model = openvino_paged_attention(shape, 2, ov::element::f32);
            NativeAttentionOptions options;
            options.format = kernels::CacheFormat::f32;
            const auto report =
                mixed ? leave_one(model, options) : use_native_attention(model, options);
            ASSERT_EQ(report.num_replaced, mixed ? 1u : 2u);
            const auto native = run(model, shape, exact);
            ASSERT_EQ(native.size(), openvino.size());
            for (size_t i = 0; i < native.size(); ++i)
                ASSERT_NEAR(native[i], openvino[i], 2e-5) << i;
        }
    }
}

std::set<std::string> input_names(const ov::Model& model) {
    std::set<std::string> names;
    for (const auto& input : model.inputs()) names.insert(input.get_any_name());
    return names;
}

TEST(NativeAttention, InputsThatOnlyOpenVinosReadGo) {
    const std::set<std::string> own{"query",         "key",         "value",
                                    "key_cache.0",   "key_cache.1", "value_cache.0",
                                    "value_cache.1", "batch_tables"};
    const auto whole = openvino_paged_attention({}, 2, ov::element::f32);
    use_native_attention(whole, {});
    EXPECT_EQ(input_names(*whole), own);
    const auto mixed = openvino_paged_attention({}, 2, ov::element::f32);
    leave_one(mixed, {});
    std::set<std::string> both = own;
    both.insert({"past_lens", "subsequence_begins", "block_indices", "block_indices_begins",
                 "max_context_len"});
    EXPECT_EQ(input_names(*mixed), both);
}

TEST(NativeAttention, AModelThatItCannotServeWhollyStaysIfThatIsAskedFor) {
    constexpr size_t token_types_input = 25;
    for (const bool all_or_none : {true, false}) {
        auto model = openvino_paged_attention({}, 2, ov::element::f32);
        const size_t parameters = model->get_parameters().size();
        std::string odd;
        for (const auto& node : model->get_ordered_ops())
            if (std::string(node->get_type_name()) == "PagedAttentionExtension") {
                odd = node->get_friendly_name();
                node->input(token_types_input)
                    .replace_source_output(
                        ov::op::v0::Constant::create(ov::element::i32, {1}, {1}));
                break;
            }
        NativeAttentionOptions options;
        options.all_or_none = all_or_none;
        const auto report = use_native_attention(model, options);
        ASSERT_EQ(report.left.size(), 1u);
        EXPECT_EQ(report.left[0], odd + " stays with OpenVINO: it uses token types");
        EXPECT_EQ(report.num_replaced, all_or_none ? 0u : 1u);
        EXPECT_EQ(model->get_parameters().size() == parameters, all_or_none);
    }
}

}  // namespace
}  // namespace pagewheel
