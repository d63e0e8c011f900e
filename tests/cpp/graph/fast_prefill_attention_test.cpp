// Which layers' attention has queries for logits indices alone, by who owns caches.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "graph/passes.hpp"
#include "openvino/opsets/opset13.hpp"
#include "ops/paged_attention.hpp"
#include "support/named_parameter.hpp"

namespace pagewheel {
namespace {

using namespace ov::opset13;
using Output = ov::Output<ov::Node>;

constexpr int64_t hidden = 32, kv_width = 16, inner = 48, vocabulary = 20;

/// What a layer is like.
struct LayerKind {
    int cache;              ///< whose cache it reads: its own number, or that of an earlier layer
    bool parallel = false;  ///< its MLP reads what attention reads
};

/// A decoder whose attention is pagewheel's, with weights of 1.
class Decoder {
public:
    explicit Decoder(const std::vector<LayerKind>& layers) {
        const Output ids = input("input_ids", ov::element::i64, {-1});
        m_tables = input("batch_tables", ov::element::i32, {-1});
        Output x = std::make_shared<Gather>(constant({vocabulary, hidden}),
                                            std::make_shared<Unsqueeze>(ids, integers({1})),
                                            integers({0}));
        x = std::make_shared<Reshape>(x, integers({-1, 1, hidden}), false);
        for (size_t i = 0; i < layers.size(); ++i) x = layer(x, int(i), layers[i]);
        add_result("logits", linear(x, vocabulary));
    }

    void add_result(const std::string& name, const Output& value) {
        m_results.push_back(std::make_shared<Result>(value));
        m_results.back()->set_friendly_name(name);
        m_results.back()->output(0).set_names({name});
    }
    /// What layer i's attention gives.
    Output attended(size_t i) const { return m_attention[i]; }

    FastPrefillReport skip(const FastPrefillOptions& options = {}) {
        m_model = std::make_shared<ov::Model>(m_results, m_inputs);
        gather_logits(m_model);
        return skip_unread_rows(m_model, options);
    }

    // ---- After skip()

    /// By layer, whether its attention has queries for logits indices.
    std::vector<bool> asked() const {
        std::vector<bool> asked;
        for (const auto& node : m_attention) asked.push_back(node->attributes().logits_indices);
        return asked;
    }
    size_t num_readers(const std::string& name) const {
        for (const auto& parameter : m_model->get_parameters())
            if (parameter->get_friendly_name() == name)
                return parameter->output(0).get_target_inputs().size();
        return 0;
    }

private:
    static Output integers(const std::vector<int64_t>& values) {
        return Constant::create(ov::element::i64, {values.size()}, values);
    }
    static Output constant(const ov::Shape& shape) {
        return Constant::create(ov::element::f32, shape,
                                std::vector<float>(ov::shape_size(shape), 1));
    }
    static Output linear(const Output& x, int64_t outputs) {
        const auto k = size_t(x.get_partial_shape()[2].get_length());
        return std::make_shared<MatMul>(x, constant({size_t(outputs), k}), false, true);
    }
    static Output norm(const Output& x) {
        const auto square = std::make_shared<Multiply>(x, x);
        const auto mean = std::make_shared<ReduceMean>(square, integers({-1}), true);
        return std::make_shared<Divide>(x, std::make_shared<Sqrt>(mean));
    }
    static Output flat(const Output& x, int64_t width) {
        return std::make_shared<Reshape>(x, integers({-1, width}), false);
    }

    Output input(const std::string& name, const ov::element::Type& type,
                 const ov::PartialShape& shape) {
        return m_inputs.emplace_back(named_parameter(name, type, shape));
    }

    Output layer(const Output& x, int number, const LayerKind& kind) {
        const Output normed = norm(x);
        const Output attended = linear(attention(normed, number, kind.cache), hidden);
        const auto mlp = [](const Output& read) {
            return linear(std::make_shared<Relu>(linear(read, inner)), hidden);
        };
        const Output sum = std::make_shared<Add>(x, attended);
        return std::make_shared<Add>(sum, mlp(kind.parallel ? normed : norm(sum)));
    }

    Output attention(const Output& normed, int number, int cache) {
        const bool writes = cache == number;
        if (writes) {
            const std::string name = std::to_string(cache);
            m_caches[cache] = {flat(linear(normed, kv_width), kv_width),
                               flat(linear(normed, kv_width), kv_width),
                               input("key_cache." + name, ov::element::u8, {-1, 1, 16, 20}),
                               input("value_cache." + name, ov::element::u8, {-1, 1, 16, 20})};
        }
        ov::OutputVector inputs{flat(linear(normed, hidden), hidden)};
        inputs.insert(inputs.end(), m_caches[cache].begin(), m_caches[cache].end());
        inputs.push_back(m_tables);
        PagedAttention::Attributes attributes;
        attributes.config.layout = {kernels::CacheFormat::u8, 16, 1, 16, 16};
        attributes.config.heads = 2;
        attributes.config.write_kv_cache = writes;
        attributes.layer = size_t(cache);
        m_attention.push_back(std::make_shared<PagedAttention>(inputs, attributes));
        return std::make_shared<Reshape>(m_attention.back(), integers({-1, 1, hidden}), false);
    }

    Output m_tables;
    std::map<int, ov::OutputVector> m_caches;
    std::vector<std::shared_ptr<PagedAttention>> m_attention;
    ov::ParameterVector m_inputs;
    ov::ResultVector m_results;
    std::shared_ptr<ov::Model> m_model;
};

/// Multiply-adds of a token in a layer, and those of its keys and values.
constexpr double keys_values = 2 * hidden * kv_width;
constexpr double without_keys_values = 2 * hidden * hidden + 2 * hidden * inner;

TEST(FastPrefillAttention, TheLastLayerThatWritesAndAllBehindItHaveQueriesForLogits) {
    const std::map<std::vector<int>, std::vector<bool>> expected{
        {{0}, {true}},
        {{0, 1, 2}, {false, false, true}},
        {{0, 0}, {true, true}},
        {{0, 0, 2}, {false, false, true}},          // an owner after a reader
        {{0, 1, 0, 1}, {false, true, true, true}},  // half of them read
        {{0, 1, 0, 1, 4}, {false, false, false, false, true}},
        {{0, 0, 2, 2, 4, 4}, {false, false, false, false, true, true}},  // every other layer
    };
    for (const auto& [caches, asked] : expected) {
        std::vector<LayerKind> layers;
        double all = 0, skipped = 0;
        for (size_t i = 0; i < caches.size(); ++i) {
            layers.push_back({caches[i]});
            all += without_keys_values + (caches[i] == int(i) ? keys_values : 0);
            if (asked[i]) skipped += without_keys_values;
        }
        Decoder decoder(layers);
        const FastPrefillReport report = decoder.skip();
        const std::string text = testing::PrintToString(caches);
        EXPECT_EQ(decoder.asked(), asked) << text;
        const auto count = size_t(std::count(asked.begin(), asked.end(), true));
        EXPECT_EQ(report.num_layers, count) << text;
        EXPECT_EQ(report.num_attentions, count) << text;
        EXPECT_EQ(report.num_native_attentions, count) << text;
        EXPECT_DOUBLE_EQ(report.work_skipped, skipped / all) << text;
        EXPECT_TRUE(report.why.empty()) << text;
        EXPECT_FALSE(report.failed) << text;
    }
}

TEST(FastPrefillAttention, OfParallelBlocksOnlyKeysAndValuesAreOfAllTokens) {
    Decoder decoder({{0, true}, {1, true}});
    const FastPrefillReport report = decoder.skip();
    EXPECT_EQ(decoder.asked(), (std::vector<bool>{false, true}));
    EXPECT_DOUBLE_EQ(report.work_skipped,
                     without_keys_values / (2 * without_keys_values + 2 * keys_values));
    // Of the hidden state; its norm, which keys and values read too, is computed anew.
    EXPECT_EQ(decoder.num_readers("sampled_tokens_indices"), 1u);
}

TEST(FastPrefillAttention, ObservedAttentionHasRowsOfItsOwnAndLogitsAreGatheredOfThese) {
    Decoder decoder({{0}, {1}});
    decoder.skip({true});
    EXPECT_EQ(decoder.asked(), (std::vector<bool>{false, true}));
    EXPECT_EQ(decoder.num_readers("logits_indices"), 1u);
    EXPECT_EQ(decoder.num_readers("sampled_tokens_indices"), 1u);
}

TEST(FastPrefillAttention, AnotherOutputKeepsWhatItIsComputedFromAndIsNamed) {
    Decoder decoder({{0}, {1}});
    decoder.add_result("attention_of_the_last", decoder.attended(1));
    const FastPrefillReport report = decoder.skip();
    EXPECT_EQ(decoder.asked(), (std::vector<bool>{false, false}));
    EXPECT_GT(report.work_skipped, 0);  // behind the attention
    ASSERT_EQ(report.why.size(), 1u);
    EXPECT_EQ(report.why[0],
              "the output attention_of_the_last is of all tokens, and what it is computed from");
}

/// What is not as OpenVINO says it is: takes no gathered rows.
class StubbornRelu : public ov::op::Op {
public:
    OPENVINO_OP("Relu", "test")

    StubbornRelu() = default;
    explicit StubbornRelu(const Output& x) : Op({x}) { constructor_validate_and_infer_types(); }
    void validate_and_infer_types() override {
        const std::string& source = get_input_node_ptr(0)->get_friendly_name();
        NODE_VALIDATION_CHECK(this, source.find(".gathered") == std::string::npos,
                              "rows were gathered");
        set_output_type(0, get_input_element_type(0), get_input_partial_shape(0));
    }
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override {
        return std::make_shared<StubbornRelu>(inputs.at(0));
    }
};

TEST(FastPrefillAttention, AModelThatCannotHaveFewerRowsStaysAsItIs) {
    const auto ids = std::make_shared<Parameter>(ov::element::i64, ov::PartialShape{-1, 1});
    ids->set_friendly_name("input_ids");
    ids->output(0).set_names({"input_ids"});
    const auto table = Constant::create(ov::element::f32, {20, 8}, std::vector<float>(160, 1));
    const auto embedded =
        std::make_shared<Gather>(table, ids, Constant::create(ov::element::i64, {}, {0}));
    const auto kept = std::make_shared<Result>(embedded);
    kept->output(0).set_names({"kept"});
    const auto logits = std::make_shared<Result>(
        std::make_shared<MatMul>(std::make_shared<StubbornRelu>(embedded), table, false, true));
    logits->output(0).set_names({"logits"});
    auto model =
        std::make_shared<ov::Model>(ov::ResultVector{logits, kept}, ov::ParameterVector{ids});
    gather_logits(model);
    const size_t num_nodes = model->get_ops().size();
    const FastPrefillReport report = skip_unread_rows(model, {});
    EXPECT_TRUE(report.failed);
    ASSERT_EQ(report.why.size(), 1u);
    EXPECT_NE(report.why[0].find("rows were gathered"), std::string::npos) << report.why[0];
    EXPECT_EQ(report.work_skipped, 0);
    EXPECT_EQ(model->get_ops().size(), num_nodes);
    for (const auto& node : model->get_ordered_ops()) node->validate_and_infer_types();
}

}  // namespace
}  // namespace pagewheel
