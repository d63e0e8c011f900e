// Regions of pagewheel's operations beside the same operations as nodes of their own.
#include "graph/passes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "model/openvino_core.hpp"
#include "openvino/op/add.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/relu.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/result.hpp"
#include "openvino/op/transpose.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/properties.hpp"
#include "ops/paged_attention.hpp"
#include "ops/quantized_linear.hpp"
#include "pagewheel/errors.hpp"
#include "support/named_parameter.hpp"
#include "support/packed_tables.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Constant;
using ov::op::v0::Parameter;
using Output = ov::Output<ov::Node>;

constexpr size_t hidden = 64, heads = 4, kv_heads = 2, head_size = 16, block_size = 16,
                 num_blocks = 12;

SharedWeights random_weights(std::mt19937& random, size_t n, size_t k) {
    std::vector<uint8_t> values(n * k / 2);
    for (uint8_t& v : values) v = uint8_t(random());
    std::vector<float> scales(n * (k / 32));
    for (float& s : scales) s = 0.01f + 0.01f * float(random() % 100) / 100;
    const std::vector<float> zeros(scales.size(), 8.0f);
    kernels::LinearWeights weights;
    weights.n = n;
    weights.k = k;
    weights.group = 32;
    weights.values = values.data();
    weights.scales = scales.data();
    weights.zero_points = zeros.data();
    return std::make_shared<kernels::PackedLinear>(weights);
}

Output reshaped(const Output& x, const std::vector<int64_t>& shape) {
    return std::make_shared<ov::op::v1::Reshape>(
        x, Constant::create(ov::element::i64, {shape.size()}, shape), false);
}

/// A graph under construction. Streams are f32 [tokens, 1, 64].
class Graph {
public:
    explicit Graph(unsigned seed) : m_random(seed) {}

    std::mt19937& random() { return m_random; }

    Output input(const std::string& name, size_t width = hidden) {
        return parameter(name, ov::element::f32, {-1, 1, int64_t(width)});
    }

    std::shared_ptr<QuantizedLinear> linear(const Output& x, const std::vector<size_t>& widths,
                                            const ov::OutputVector& residuals = {}) {
        QuantizedLinear::Attributes attributes;
        const auto k = size_t(x.get_partial_shape()[2].get_length());
        for (const size_t n : widths) attributes.weights.push_back(random_weights(m_random, n, k));
        attributes.residual = !residuals.empty();
        attributes.norm = norm(k);
        ov::OutputVector inputs{x};
        inputs.insert(inputs.end(), residuals.begin(), residuals.end());
        return named(std::make_shared<QuantizedLinear>(inputs, attributes), "linear");
    }

    Output mlp(const Output& x, const Output& residual) {
        GatedMlp::Attributes attributes;
        attributes.gate = random_weights(m_random, 96, hidden);
        attributes.up = random_weights(m_random, 96, hidden);
        attributes.down = random_weights(m_random, hidden, 96);
        attributes.norm = norm(hidden);
        attributes.residual = true;
        return named(std::make_shared<GatedMlp>(ov::OutputVector{x, residual}, attributes), "mlp");
    }

    /// Of a projection's three outputs, which are looked at as [tokens, width] in several ways.
    Output attention(const std::shared_ptr<QuantizedLinear>& qkv) {
        kernels::AttentionConfig config;
        config.layout = {kernels::CacheFormat::u8, block_size, kv_heads, head_size, head_size};
        config.heads = heads;
        config.scale = 0.25f;
        PagedAttention::Attributes attributes;
        attributes.config = config;
        const auto flat = [](const Output& x, int64_t width) { return reshaped(x, {-1, width}); };
        const Output by_head = reshaped(qkv->output(2), {-1, 1, kv_heads, head_size});
        const Output value = std::make_shared<ov::op::v1::Transpose>(
            by_head, Constant::create(ov::element::i64, {4}, {0, 2, 1, 3}));
        const std::string layer = std::to_string(m_num_layers++);
        const auto cache = [&](const std::string& name, size_t bytes) {
            return parameter(name + layer, ov::element::u8,
                             {-1, kv_heads, block_size, int64_t(bytes)});
        };
        if (!m_tables.get_node()) m_tables = parameter("tables", ov::element::i32, {-1});
        const ov::OutputVector inputs{
            flat(qkv->output(0), heads * head_size),
            flat(qkv->output(1), kv_heads * head_size),
            flat(value, kv_heads * head_size),
            cache("key_cache.", config.layout.key_block_bytes() / (kv_heads * block_size)),
            cache("value_cache.", config.layout.value_block_bytes() / (kv_heads * block_size)),
            m_tables};
        const auto node = named(std::make_shared<PagedAttention>(inputs, attributes), "attention");
        return reshaped(node, {-1, 1, heads * head_size});
    }

    /// A layer as models have it.
    Output layer(const Output& x) {
        const auto qkv = linear(x, {heads * head_size, kv_heads * head_size, kv_heads * head_size});
        const Output sum = linear(attention(qkv), {hidden}, {x})->output(0);
        return mlp(sum, sum);
    }

    std::shared_ptr<ov::Model> model(const ov::OutputVector& outputs) {
        ov::ResultVector results;
        for (const Output& output : outputs)
            results.push_back(std::make_shared<ov::op::v0::Result>(output));
        return std::make_shared<ov::Model>(results, m_parameters);
    }

private:
    Output parameter(const std::string& name, const ov::element::Type& type,
                     const ov::PartialShape& shape) {
        return m_parameters.emplace_back(named_parameter(name, type, shape));
    }

    RmsNorm norm(size_t k) {
        if (m_random() % 2 == 0) return {};
        std::vector<float> gamma(k);
        for (float& g : gamma) g = 0.5f + float(m_random() % 100) / 100;
        return {std::make_shared<const std::vector<float>>(gamma), 1e-5f};
    }

    template <class Node>
    std::shared_ptr<Node> named(const std::shared_ptr<Node>& node, const std::string& kind) {
        node->set_friendly_name(kind + "." + std::to_string(m_num_nodes++));
        return node;
    }

    std::mt19937 m_random;
    ov::ParameterVector m_parameters;
    Output m_tables;
    size_t m_num_layers = 0, m_num_nodes = 0;
};

/// Sequences of so many new tokens behind so many in the cache.
struct Batch {
    std::vector<int32_t> past, fresh;

    size_t tokens() const { return size_t(std::accumulate(fresh.begin(), fresh.end(), 0)); }
    ov::Tensor tables() const {
        TableValues values;
        int32_t block = 0;
        for (size_t i = 0; i < past.size(); ++i) {
            const int32_t held = (past[i] + fresh[i] + int32_t(block_size) - 1) / block_size;
            std::vector<int32_t> blocks(size_t(held), 0);
            std::iota(blocks.begin(), blocks.end(), block);
            block += held;
            values.add(size_t(past[i]), size_t(fresh[i]), blocks);
        }
        ov::Tensor tables(ov::element::i32, {values.num_words()});
        values.pack(tables.data<int32_t>());
        return tables;
    }
};

const std::vector<Batch> batches{{{0}, {1}}, {{20}, {1}}, {{0}, {40}}, {{7, 0, 30}, {1, 13, 1}}};

/// One request with memory of its own, the same in each for the same seed.
class Request {
public:
    explicit Request(ov::CompiledModel model, const NativeRegions& regions = {})
        : m_model(std::move(model)),
          m_request(m_model.create_infer_request()),
          m_directory(regions.caches) {}

    std::vector<std::vector<float>> run(const Batch& batch, unsigned seed) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        for (const auto& input : m_model.inputs()) {
            const ov::PartialShape& shape = input.get_partial_shape();
            if (input.get_element_type() == ov::element::f32) {
                ov::Tensor x(ov::element::f32, {batch.tokens(), 1, size_t(shape[2].get_length())});
                for (size_t i = 0; i < x.get_size(); ++i) x.data<float>()[i] = normal(random);
                m_request.set_tensor(input, x);
            } else if (input.get_names().count("cache_directory") != 0) {
                m_caches.clear();
                for (const CacheInput& cache : m_directory)
                    m_caches.push_back(zeros(cache.block_shape));
                m_request.set_tensor(input, make_cache_directory(m_caches));
            } else if (input.get_element_type() == ov::element::u8) {
                m_request.set_tensor(input,
                                     zeros({kv_heads, block_size, size_t(shape[3].get_length())}));
            } else {
                m_request.set_tensor(input, batch.tables());
            }
        }
        m_request.start_async();
        m_request.wait();
        std::vector<std::vector<float>> outputs;
        for (const auto& output : m_model.outputs()) {
            const ov::Tensor tensor = m_request.get_tensor(output);
            const auto* values = tensor.data<const float>();
            outputs.emplace_back(values, values + tensor.get_size());
        }
        return outputs;
    }

private:
    static ov::Tensor zeros(ov::Shape shape) {
        shape.insert(shape.begin(), num_blocks);
        ov::Tensor cache(ov::element::u8, shape);
        std::memset(cache.data(), 0, cache.get_byte_size());
        return cache;
    }

    ov::CompiledModel m_model;
    ov::InferRequest m_request;
    std::vector<CacheInput> m_directory;
    std::vector<ov::Tensor> m_caches;
};

ov::CompiledModel compiled(const std::shared_ptr<ov::Model>& model, int32_t streams = 1) {
    ov::Core& core = openvino_core();
    return core.compile_model(model, "CPU", ov::hint::inference_precision(ov::element::f32),
                              ov::num_streams(streams));
}

size_t count(const ov::Model& model, const std::string& type) {
    size_t found = 0;
    for (const auto& node : model.get_ops()) found += node->get_type_name() == type;
    return found;
}

size_t count_steps(const NativeRegions& regions) {
    size_t steps = 0;
    for (const auto& plan : regions.plans) steps += plan->description().steps.size();
    return steps;
}

void expect_same(const std::shared_ptr<ov::Model>& parts, const std::shared_ptr<ov::Model>& whole,
                 const NativeRegions& regions, const std::string& what) {
    Request expected(compiled(parts)), got(compiled(whole), regions);
    for (size_t i = 0; i < batches.size(); ++i) {
        const auto a = expected.run(batches[i], unsigned(i)), b = got.run(batches[i], unsigned(i));
        ASSERT_EQ(a.size(), b.size()) << what;
        for (size_t o = 0; o < a.size(); ++o)
            ASSERT_EQ(a[o], b[o]) << what << ", batch " << i << ", output " << o;
    }
}

TEST(NativeRegion, LayersBecomeOneNodeThatGivesTheSameBits) {
    Graph graph(1);
    Output x = graph.input("x");
    for (int i = 0; i < 3; ++i) x = graph.layer(x);
    const auto model = graph.model({x});
    const auto parts = model->clone();
    const NativeRegions regions = form_native_regions(model);
    ASSERT_EQ(regions.plans.size(), 1u);
    EXPECT_EQ(regions.plans[0]->description().steps.size(), 12u);
    EXPECT_EQ(regions.plans[0]->description().outputs.size(), 1u);
    EXPECT_EQ(regions.caches.size(), 6u);
    EXPECT_EQ(model->inputs().size(), 3u) << "x, tables and cache_directory";
    EXPECT_EQ(count(*model, "NativeRegion"), 1u);
    EXPECT_EQ(count(*model, "QuantizedLinear") + count(*model, "GatedMlp") +
                  count(*model, "PagedAttention") + count(*model, "Transpose"),
              0u);
    expect_same(parts, model, regions, "three layers");
}

TEST(NativeRegion, RandomGraphsGiveTheSameBits) {
    size_t found = 0, inside = 0, outputs = 0;
    for (unsigned seed = 0; seed < 12; ++seed) {
        Graph graph(seed);
        std::mt19937& random = graph.random();
        ov::OutputVector streams{graph.input("a"), graph.input("b")};
        const auto any = [&] { return streams[random() % streams.size()]; };
        for (int i = 0; i < 14; ++i) {
            switch (random() % 6) {
                case 0:
                    streams.push_back(std::make_shared<ov::op::v0::Relu>(any()));
                    break;
                case 1:
                    streams.push_back(std::make_shared<ov::op::v1::Add>(any(), any()));
                    break;
                case 2:
                    for (const auto& output : graph.linear(any(), {hidden, hidden})->outputs())
                        streams.push_back(output);
                    break;
                case 3:
                    streams.push_back(graph.linear(any(), {hidden}, {any()})->output(0));
                    break;
                case 4:
                    streams.push_back(graph.mlp(any(), any()));
                    break;
                default:
                    streams.push_back(graph.layer(any()));
            }
        }
        // The last streams, and some that are read inside as well.
        ov::OutputVector results(streams.end() - 2, streams.end());
        for (int i = 0; i < 2; ++i) results.push_back(any());
        const auto model = graph.model(results);
        const auto parts = model->clone();
        const NativeRegions regions = form_native_regions(model);
        found += regions.plans.size();
        inside += count_steps(regions);
        for (const auto& plan : regions.plans) outputs += plan->description().outputs.size();
        expect_same(parts, model, regions, "seed " + std::to_string(seed));
    }
    EXPECT_GT(found, 12u);
    EXPECT_GT(inside, 4 * found);
    EXPECT_GT(outputs, found);
}

TEST(NativeRegion, ADetourThroughAStrangerCutsTheRegion) {
    Graph graph(2);
    const Output x = graph.input("x");
    const Output first = graph.linear(x, {hidden})->output(0);
    const Output stranger = std::make_shared<ov::op::v0::Relu>(first);
    const Output second = graph.linear(first, {hidden})->output(0);
    const Output third = graph.linear(second, {hidden}, {stranger})->output(0);
    const Output fourth = graph.linear(third, {hidden})->output(0);
    const auto model = graph.model({fourth});
    const auto parts = model->clone();
    const NativeRegions regions = form_native_regions(model);
    ASSERT_EQ(regions.plans.size(), 2u);
    EXPECT_EQ(count_steps(regions), 4u);
    EXPECT_EQ(regions.plans[0]->description().outputs.size(), 2u);
    expect_same(parts, model, regions, "detour");
}

TEST(NativeRegion, ATransposeThatMovesStaysBetween) {
    Graph graph(3);
    const Output x = graph.input("x");
    const Output first = graph.linear(x, {hidden})->output(0);
    const Output mixed = std::make_shared<ov::op::v1::Transpose>(
        reshaped(first, {-1, 4, 16}), Constant::create(ov::element::i64, {3}, {0, 2, 1}));
    const Output second = graph.linear(reshaped(mixed, {-1, 1, hidden}), {hidden})->output(0);
    const auto model = graph.model({second});
    EXPECT_TRUE(form_native_regions(model).plans.empty());
    EXPECT_EQ(count(*model, "QuantizedLinear"), 2u);
}

TEST(NativeRegion, OneNodeAloneAndOtherWidthsStay) {
    Graph graph(4);
    const Output x = graph.input("x");
    const Output first = graph.linear(x, {2 * hidden})->output(0);
    // Each row is looked at as two.
    const Output second = graph.linear(reshaped(first, {-1, 1, hidden}), {hidden})->output(0);
    const auto model = graph.model({second});
    EXPECT_TRUE(form_native_regions(model).plans.empty());
}

TEST(NativeRegion, RequestsOfSeveralStreamsRunAtOnce) {
    Graph graph(5);
    Output x = graph.input("x");
    for (int i = 0; i < 2; ++i) x = graph.layer(x);
    const auto model = graph.model({x});
    Request alone(compiled(model->clone()));
    std::vector<std::vector<std::vector<float>>> expected;
    for (const Batch& batch : batches) expected.push_back(alone.run(batch, 9));
    const NativeRegions regions = form_native_regions(model);
    ASSERT_EQ(regions.plans.size(), 1u);
    const ov::CompiledModel two = compiled(model, 2), another = compiled(model);
    std::vector<std::thread> threads;
    for (const auto* of : {&two, &two, &another})
        threads.emplace_back([&, of] {
            Request request(*of, regions);
            for (size_t round = 0; round < 40; ++round) {
                const size_t i = round % batches.size();
                ASSERT_EQ(request.run(batches[i], 9), expected[i]) << "round " << round;
            }
        });
    for (std::thread& thread : threads) thread.join();
}

TEST(NativeRegion, AnErrorNamesTheOperationInside) {
    Graph graph(6);
    Output x = graph.input("x");
    for (int i = 0; i < 2; ++i) x = graph.layer(x);
    const auto model = graph.model({x});
    const NativeRegions regions = form_native_regions(model);
    ASSERT_EQ(regions.plans.size(), 1u);
    Request request(compiled(model), regions);
    try {
        request.run({{200}, {1}}, 0);
        FAIL() << "blocks beyond the pool were taken";
    } catch (const std::exception& error) {
        EXPECT_NE(std::string(error.what()).find("attention.1: block_indices[12] is 12"),
                  std::string::npos)
            << error.what();
    }
    EXPECT_EQ(request.run(batches[0], 0)[0].size(), hidden);
}

TEST(NativeRegion, ItsProfileHasTheTimeOfEachOperation) {
    Graph graph(7);
    const auto model = graph.model({graph.layer(graph.input("x"))});
    const NativeRegions regions = form_native_regions(model);
    ASSERT_EQ(regions.plans.size(), 1u);
    Request request(compiled(model), regions);
    request.run(batches[0], 0);
    RegionProfile& profile = regions.plans[0]->profile();
    EXPECT_TRUE(profile.means().empty());
    profile.switch_on();
    request.run(batches[2], 0);
    const auto means = profile.means();
    ASSERT_EQ(means.size(), 4u);
    for (const auto mean : means) EXPECT_GT(mean.count(), 0);
}

TEST(NativeRegion, CachesThatOthersReadStayInputs) {
    Graph graph(8);
    const Output x = graph.layer(graph.input("x"));
    auto model = graph.model({x});
    const ov::ParameterVector parameters = model->get_parameters();  // the model goes meanwhile
    for (const auto& parameter : parameters)
        if (parameter->get_friendly_name() == "key_cache.0") model = graph.model({x, parameter});
    const NativeRegions regions = form_native_regions(model);
    ASSERT_EQ(regions.caches.size(), 1u);
    EXPECT_EQ(regions.caches[0].name, "value_cache.0");
    EXPECT_EQ(model->inputs().size(), 4u);
}

TEST(NativeRegion, ADirectoryThatDoesNotFitIsRefused) {
    const std::vector<CacheInput> caches{{"key_cache.0", ov::element::u8, {2, 16, 8}},
                                         {"value_cache.0", ov::element::u8, {2, 16, 8}}};
    const std::vector<ov::Tensor> memory(2, ov::Tensor(ov::element::u8, {5, 2, 16, 8}));
    CacheDirectory directory;
    const auto& tensors = directory.read(caches, make_cache_directory(memory));
    ASSERT_EQ(tensors.size(), 2u);
    EXPECT_EQ(tensors[1].get_shape(), memory[1].get_shape());
    EXPECT_EQ(tensors[1].data(), memory[1].data());
    const auto refusal = [&](const ov::Tensor& tensor) -> std::string {
        try {
            directory.read(caches, tensor);
        } catch (const InvalidArgument& error) {
            return error.what();
        }
        return "nothing was refused";
    };
    EXPECT_EQ(refusal(make_cache_directory({memory[0]})),
              "the cache directory is u8 [1,16], expected u8 [2,16]");
    ov::Tensor empty(ov::element::u8, {2, cache_entry_bytes});
    std::memset(empty.data(), 0, empty.get_byte_size());
    EXPECT_EQ(refusal(empty), "the cache directory has no key_cache.0");
}

}  // namespace
}  // namespace pagewheel
