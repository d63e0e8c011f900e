#include "attention_runner.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

#include "base/check.hpp"
#include "graph/passes.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/relu.hpp"
#include "openvino/op/result.hpp"
#include "openvino/runtime/properties.hpp"

namespace pagewheel::benchmark {
namespace {

constexpr size_t rotation_rows = 1024;

ov::CompiledModel compile(ov::Core& core, const std::shared_ptr<ov::Model>& model,
                          const RunnerOptions& options, ov::AnyMap properties) {
    properties.emplace(ov::inference_num_threads(options.threads));
    properties.emplace(ov::hint::inference_precision(options.precision));
    return core.compile_model(model, "CPU", properties);
}

/// Normal numbers, as f32 or bf16.
ov::Tensor random_tensor(const ov::element::Type& type, const ov::Shape& shape, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    ov::Tensor tensor(type, shape);
    for (size_t i = 0; i < tensor.get_size(); ++i) {
        if (type == ov::element::bf16)
            tensor.data<ov::bfloat16>()[i] = normal(random);
        else
            tensor.data<float>()[i] = normal(random);
    }
    return tensor;
}

double timed(ov::InferRequest& request) {
    const auto begin = std::chrono::steady_clock::now();
    request.start_async();  // as the engine does: infer() with one thread can swallow an exception
    request.wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

size_t Batch::context_tokens() const {
    return tokens() + std::accumulate(tables.past_lens.begin(), tables.past_lens.end(), size_t{0});
}

void Batch::add(size_t past, size_t fresh, const std::vector<int32_t>& blocks) {
    tables.add(past, fresh, blocks);
    max_context = std::max(max_context, int32_t(past + fresh));
}

AttentionRunner::AttentionRunner(ov::Core& core, Backend backend, const RunnerOptions& options)
    : m_options(options), m_backend(backend) {
    // Each op gets its inputs in the type it computes in, so that neither waits for conversions.
    if (backend == Backend::native) m_options.precision = ov::element::f32;
    const auto model =
        openvino_paged_attention(m_options.shape, m_options.layers, m_options.precision);
    ov::AnyMap properties;
    if (backend == Backend::native) {
        NativeAttentionOptions native;
        native.format = kernels::parse_cache_format(options.format);
        native.rotary = {{{m_options.shape.head_size, false, {}}, 0}};
        const auto report = use_native_attention(model, native);
        check_argument(report.left.empty(), report.left.empty() ? "" : report.left.front());
    } else {
        properties.emplace(ov::hint::kv_cache_precision(ov::element::Type(options.format)));
    }
    m_model = compile(core, model, m_options, properties);
    m_request = m_model.create_infer_request();
    m_geometry = read_cache_geometry(m_model);
}

void AttentionRunner::set(const std::string& name, const std::vector<int32_t>& values,
                          const ov::Shape& shape) {
    ov::Tensor tensor(ov::element::i32, shape);
    std::copy(values.begin(), values.end(), tensor.data<int32_t>());
    m_request.set_tensor(name, tensor);
}

void AttentionRunner::set_activations(size_t tokens) {
    const AttentionShape& shape = m_options.shape;
    const std::pair<const char*, size_t> inputs[] = {
        {"query", shape.heads}, {"key", shape.kv_heads}, {"value", shape.kv_heads}};
    for (const auto& [name, heads] : inputs)
        m_request.set_tensor(
            name, random_tensor(m_options.precision, {tokens, heads * shape.head_size}, *name));
}

void AttentionRunner::fill_cache(size_t num_blocks) {
    m_cache = std::make_unique<KvCache>(m_geometry, num_blocks, m_model, true);
    m_cache->bind(m_request);
    // Bytes of a full block do not depend on its place in a sequence: each is a prompt of its own,
    // which spares attention of thousands of tokens to thousands.
    const size_t at_once = 4096 / block_size();
    for (size_t first = 0; first < num_blocks; first += at_once) {
        Batch batch;
        for (size_t block = first; block < std::min(first + at_once, num_blocks); ++block)
            batch.add(0, block_size(), {int32_t(block)});
        if (first == 0 || first + at_once > num_blocks)
            set_batch(batch);
        else
            set_tables(batch.tables, batch.max_context);
        infer();
    }
}

void AttentionRunner::set_batch(const Batch& batch, bool rotated) {
    set_activations(batch.tokens());
    TableValues tables = batch.tables;
    if (rotated) tables.layers[0] = this->rotated(tables.layers[0]);
    set_tables(tables, batch.max_context);
}

void AttentionRunner::set_tables(const TableValues& tables, int32_t max_context) {
    if (m_backend == Backend::native) {
        std::vector<int32_t> words(tables.num_words());
        tables.pack(words.data());
        set("batch_tables", words, {words.size()});
        return;
    }
    for (const auto& [name, values] :
         {std::pair("past_lens", &tables.past_lens),
          std::pair("subsequence_begins", &tables.subsequence_begins),
          std::pair("block_indices", &tables.layers[0].block_indices),
          std::pair("block_indices_begins", &tables.block_indices_begins)})
        set(name, *values, {values->size()});
    set("max_context_len", {max_context}, {});
}

LayerTableValues AttentionRunner::rotated(LayerTableValues layer) const {
    check_argument(m_backend == Backend::native,
                   "the openvino backend is measured without rotation");
    const size_t blocks = layer.block_indices.size(), dims = m_options.shape.head_size;
    layer.rotated_block_indices.resize(blocks);
    std::iota(layer.rotated_block_indices.begin(), layer.rotated_block_indices.end(), 0);
    layer.rotation_deltas.resize(blocks);
    std::mt19937 random(1);
    for (int32_t& delta : layer.rotation_deltas) delta = int32_t(random() % rotation_rows);
    layer.rotation_trig_lut.resize(rotation_rows * dims);
    for (size_t row = 0; row < rotation_rows; ++row)
        for (size_t i = 0; i < dims / 2; ++i) {
            const double angle = double(row * block_size()) * std::pow(1e5, -2.0 * i / dims);
            layer.rotation_trig_lut[row * dims + i] = float(std::cos(angle));
            layer.rotation_trig_lut[row * dims + dims / 2 + i] = float(std::sin(angle));
        }
    return layer;
}

double AttentionRunner::infer() {
    return timed(m_request);
}

EmptyRunner::EmptyRunner(ov::Core& core, const RunnerOptions& options, size_t tokens) {
    const size_t width = options.shape.heads * options.shape.head_size;
    const auto query = std::make_shared<ov::op::v0::Parameter>(
        ov::element::f32, ov::PartialShape{-1, int64_t(width)});
    const auto result =
        std::make_shared<ov::op::v0::Result>(std::make_shared<ov::op::v0::Relu>(query));
    RunnerOptions f32 = options;
    f32.precision = ov::element::f32;
    auto model = compile(
        core, std::make_shared<ov::Model>(ov::ResultVector{result}, ov::ParameterVector{query}),
        f32, {});
    m_request = model.create_infer_request();
    m_request.set_input_tensor(random_tensor(ov::element::f32, {tokens, width}, 0));
}

double EmptyRunner::infer() {
    return timed(m_request);
}

}  // namespace pagewheel::benchmark
