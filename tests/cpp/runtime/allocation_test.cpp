// Steady decode allocates nothing: counts calls of operator new in the whole program.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>
#include <random>
#include <vector>

#include "graph/passes.hpp"
#include "kernels/paged_attention.hpp"
#include "openvino/op/parameter.hpp"
#include "ops/quantized_linear.hpp"
#include "runner/attention_inputs.hpp"
#include "runner/model_inputs.hpp"
#include "sampling/sampler.hpp"
#include "scheduling/scheduler.hpp"
#include "support/inputs_model.hpp"
#include "support/packed_tables.hpp"

// The sanitizers bring an operator new of their own.
#if !defined(__SANITIZE_ADDRESS__)

namespace {
std::atomic<size_t> num_allocations = 0;

void* allocate(size_t size, size_t alignment) {
    ++num_allocations;
    void* p = alignment <= alignof(std::max_align_t)
                  ? std::malloc(size ? size : 1)
                  : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (!p) throw std::bad_alloc();
    return p;
}
}  // namespace

// The array and nothrow forms of the standard library call these.
void* operator new(size_t size) {
    return allocate(size, 1);
}
void* operator new(size_t size, std::align_val_t alignment) {
    return allocate(size, size_t(alignment));
}
void operator delete(void* p) noexcept {
    std::free(p);
}
void operator delete(void* p, size_t) noexcept {
    std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
    std::free(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
    std::free(p);
}

namespace pagewheel::kernels {
namespace {

/// Sequences that decode a token per call, with scores and rotated blocks.
class Decode {
public:
    Decode(CacheFormat format, size_t num_sequences, size_t max_context) {
        m_config.layout = {format, 32, 2, 64, 64};
        m_config.heads = 6;
        m_config.scale = 0.125f;
        m_config.rotary_dims = 64;
        const size_t blocks_each = (max_context + 31) / 32, blocks = blocks_each * num_sequences;
        m_keys.resize(blocks * m_config.layout.key_block_bytes());
        m_values.resize(blocks * m_config.layout.value_block_bytes());
        TableValues tables;
        std::vector<int32_t> held(blocks_each);
        for (size_t s = 0; s < num_sequences; ++s) {
            std::iota(held.begin(), held.end(), int32_t(s * blocks_each));
            tables.add(0, 1, held);
        }
        tables.score_windows.assign(num_sequences, 1);
        LayerTableValues& layer = tables.layers[0];
        for (size_t i = 0; i < blocks; i += 3) layer.rotated_block_indices.push_back(int(i));
        layer.rotation_deltas.assign(layer.rotated_block_indices.size(), 1);
        layer.rotation_trig_lut.assign(2 * 64, 0.5f);
        layer.num_scores = num_sequences * max_context;
        m_words.resize(tables.num_words());
        tables.pack(m_words.data());
        m_num_sequences = num_sequences;
        m_num_blocks = blocks;
        std::mt19937 random(1);
        std::normal_distribution<float> normal;
        for (auto [x, width] :
             {std::pair(&m_query, 6), std::pair(&m_key, 2), std::pair(&m_value, 2)}) {
            x->resize(num_sequences * size_t(width) * 64);
            for (float& v : *x) v = normal(random);
        }
        m_output.resize(m_query.size());
    }

    void step(size_t past) {
        const auto past_lens = size_t(m_words[2 + 2 * BatchTablesLayout::past_lens]);
        std::fill_n(&m_words[past_lens], m_num_sequences, int32_t(past));
        AttentionBatch batch;
        batch.query = m_query.data();
        batch.key = m_key.data();
        batch.value = m_value.data();
        batch.output = m_output.data();
        batch.key_blocks = m_keys.data();
        batch.value_blocks = m_values.data();
        batch.tables = BatchTables(m_words.data(), m_words.size(), 0);
        batch.tables.check({m_num_sequences, m_num_sequences, m_num_blocks, 32, 64});
        paged_attention(m_config, batch, detected_isa());
    }

private:
    AttentionConfig m_config;
    std::vector<uint8_t> m_keys, m_values;
    std::vector<int32_t> m_words;  // the tables
    size_t m_num_sequences, m_num_blocks;
    std::vector<float> m_query, m_key, m_value, m_output;
};

TEST(Allocations, OneThreadAllocatesNothingAfterTheFirstCallOfASize) {
    if (detected_isa() == Isa::scalar) GTEST_SKIP() << "the scalar reference allocates";
    for (CacheFormat format :
         {CacheFormat::f32, CacheFormat::bf16, CacheFormat::u8, CacheFormat::u4}) {
        Decode decode(format, 5, 600);
        tbb::task_arena arena(1);
        arena.execute([&] {
            decode.step(599);
            const size_t before = num_allocations;
            EXPECT_GT(before, 0u);
            for (size_t past = 0; past < 600; past += 7) decode.step(past);
            EXPECT_EQ(num_allocations, before) << cache_format_name(format);
        });
    }
}

// Which thread takes part when is not ours to say, so that a late one may still grow its memory.
TEST(Allocations, ManyThreadsAllocateNoMoreInTenTimesTheCalls) {
    if (detected_isa() == Isa::scalar) GTEST_SKIP() << "the scalar reference allocates";
    Decode decode(CacheFormat::u8, 3, 3000);
    const size_t before = num_allocations;
    for (int i = 0; i < 3000; ++i) decode.step(size_t(2000 + i % 1000));
    EXPECT_LT(num_allocations - before, 300u);
}

}  // namespace
}  // namespace pagewheel::kernels

namespace pagewheel {
namespace {

/// A model with the inputs that describe a batch, which passes them through: with `native` those of
/// pagewheel's attention, else of OpenVINO's; with `has_logits_indices` those of the logits indices
/// too.
ov::CompiledModel batch_model(bool native, bool has_logits_indices) {
    InputsModel::Inputs i64{{"input_ids", 1}, {"position_ids", 1}, {"sampled_tokens_indices", 1}},
        i32;
    if (has_logits_indices) i64.emplace_back("logits_indices", 1);
    if (native) {
        i32.emplace_back("batch_tables", 1);
    } else {
        for (const char* name :
             {"past_lens", "subsequence_begins", "block_indices", "block_indices_begins"})
            i32.emplace_back(name, 1);
        i32.emplace_back("max_context_len", 0);
        if (has_logits_indices)
            for (const char* name : {"logits_past_lens", "logits_subsequence_begins",
                                     "logits_block_indices", "logits_block_indices_begins"})
                i32.emplace_back(name, 1);
    }
    return InputsModel(i64, i32).compiled;
}

/// So many sequences that decode, some of which begin a block in every step.
class DecodingSequences {
public:
    static constexpr size_t block_size = 32, prompt_length = 300, max_tokens = 600;

    DecodingSequences(size_t count, bool enable_prefix_caching)
        : m_scheduler(config(enable_prefix_caching), count * max_tokens / block_size + count,
                      block_size),
          m_sequences(count) {
        for (size_t i = 0; i < count; ++i) {
            Sequence& sequence = m_sequences[i];
            sequence.tokens.reserve(max_tokens);
            sequence.tokens.assign(prompt_length + i % block_size, int64_t(i));
            sequence.prompt_length = sequence.tokens.size();
            m_scheduler.add(sequence);
        }
    }
    ~DecodingSequences() {
        for (Sequence& sequence : m_sequences) m_scheduler.remove(sequence);
    }
    Scheduler& scheduler() { return m_scheduler; }
    void append(const Batch& batch) {
        for (const BatchEntry& entry : batch.entries)
            if (entry.samples()) entry.sequence->tokens.push_back(7);
    }

private:
    static SchedulerConfig config(bool enable_prefix_caching) {
        SchedulerConfig config;
        config.max_num_batched_tokens = 1 << 20;
        config.enable_prefix_caching = enable_prefix_caching;
        return config;
    }

    Scheduler m_scheduler;
    std::vector<Sequence> m_sequences;
};

struct Counts {
    size_t in_fill = 0, in_scheduler = 0, num_blocks = 0;
};

/// Of 200 steps of `count` sequences, but the first ones.
Counts count_steps(const ov::CompiledModel& model, AttentionInputs& attention, size_t count) {
    ov::InferRequest request = ov::CompiledModel(model).create_infer_request();
    TokenInputs tokens(model);
    DecodingSequences sequences(count, false);
    const std::vector<size_t> windows(count, 1);
    Counts counts;
    for (size_t step = 0; step < 200; ++step) {
        const size_t before = num_allocations, held = sequences.scheduler().pool().num_held();
        const Batch& batch = sequences.scheduler().schedule();
        const size_t scheduled = num_allocations;
        tokens.fill(request, batch, windows);
        attention.fill(request, batch, windows);
        const size_t filled = num_allocations;
        sequences.scheduler().advance();
        const size_t advanced = num_allocations;
        if (step > 1) {
            counts.in_fill += filled - scheduled;
            counts.in_scheduler += scheduled - before + advanced - filled;
            counts.num_blocks += sequences.scheduler().pool().num_held() - held;
        }
        request.infer();
        sequences.append(batch);
    }
    return counts;
}

void expect_that_filling_takes_none(bool has_logits_indices) {
    const ov::CompiledModel native = batch_model(true, has_logits_indices),
                            openvino = batch_model(false, has_logits_indices);
    const std::vector<CacheLayer> layers(2);
    constexpr size_t block_size = DecodingSequences::block_size;
    for (size_t count : {1, 32, 256}) {
        OpenVinoAttentionInputs plain(openvino);
        const Counts counts = count_steps(openvino, plain, count);
        // One per step and block table that has grown: ov::ITensor::set_shape() takes a copy.
        const size_t tables = has_logits_indices ? 2 : 1;
        EXPECT_LE(counts.in_fill, tables * std::min<size_t>(counts.num_blocks, 198)) << count;
        EXPECT_GE(counts.num_blocks, 6 * count);
        // A block table that grows.
        EXPECT_LE(counts.in_scheduler, count) << count << " sequences";

        NativeAttentionInputs shared(native, {}, {}, block_size, has_logits_indices);
        EXPECT_EQ(count_steps(native, shared, count).in_fill, 0u) << count << " sequences";
        // Scores outgrow their room once: OpenVINO takes some 36 to bind a tensor.
        NativeAttentionInputs evicting(native, layers, {}, block_size, has_logits_indices);
        EXPECT_LE(count_steps(native, evicting, count).in_fill, 60u) << count << " sequences";
    }
}

TEST(Allocations, FillingABatchOfSteadyDecodeTakesNoneOfOurs) {
    expect_that_filling_takes_none(false);
}

TEST(Allocations, LogitsIndicesTakeNoneOfOurs) {
    expect_that_filling_takes_none(true);
}

// Peaked and flat rows, which filters treat in different ways, with penalties of the history.
TEST(Allocations, DrawingATokenTakesNoneOnceBuffersHaveGrown) {
    GenerationConfig filters;
    filters.do_sample = true;
    filters.rng_seed = 1;
    filters.repetition_penalty = 1.1f;
    filters.logit_bias = {{3, 1.0f}};
    filters.top_p = 0.95f;
    GenerationConfig all = filters;
    all.dynatemp_range = 0.3f;
    all.top_n_sigma = 4;
    all.top_k = 5000;
    all.min_p = 0.001f;
    all.typical_p = 0.9f;
    all.xtc_probability = 0.5f;
    all.mirostat = 2;
    for (const GenerationConfig& config : {GenerationConfig(), filters, all}) {
        Sampler sampler(config, 0, detected_isa());
        std::vector<int64_t> tokens{5};
        tokens.reserve(200);
        std::mt19937 random(1);
        std::normal_distribution<float> normal;
        std::vector<float> rows(2 * 20000), row(20000);
        for (size_t i = 0; i < rows.size(); ++i)
            rows[i] = normal(random) * (i < row.size() ? 1.0f : 6.0f);
        const auto draw = [&](size_t count) {
            for (size_t i = 0; i < count; ++i) {
                std::copy_n(rows.begin() + ptrdiff_t(i % 2 * row.size()), row.size(), row.begin());
                tokens.push_back(sampler.sample({tokens, 1}, row.data(), row.size()).id % 8);
            }
        };
        draw(60);
        const size_t before = num_allocations;
        draw(100);
        EXPECT_EQ(num_allocations, before);
    }
}

TEST(Allocations, ARegionTakesNoneInStepsLikeTheFirst) {
    constexpr size_t width = 64;
    const std::vector<uint8_t> values(width * width / 2, 0x5a);
    const std::vector<float> scales(width * 2, 0.01f), zeros(width * 2, 8.0f);
    const kernels::LinearWeights weights{
        width, width, 32, kernels::WeightType::u4, values.data(), scales.data(), zeros.data()};
    QuantizedLinear::Attributes attributes;
    attributes.weights = {std::make_shared<kernels::PackedLinear>(weights)};
    attributes.norm.gamma = std::make_shared<const std::vector<float>>(width, 1.0f);
    const auto x = std::make_shared<ov::op::v0::Parameter>(ov::element::f32,
                                                           ov::PartialShape{-1, 1, int64_t(width)});
    std::shared_ptr<ov::Node> node = x;
    for (int i = 0; i < 4; ++i)
        node = std::make_shared<QuantizedLinear>(ov::OutputVector{node}, attributes);
    const auto model = std::make_shared<ov::Model>(ov::OutputVector{node}, ov::ParameterVector{x});
    const auto plans = form_native_regions(model).plans;
    ASSERT_EQ(plans.size(), 1u);
    ov::TensorVector inputs{ov::Tensor(ov::element::f32, {3, 1, width})};
    std::fill_n(inputs[0].data<float>(), inputs[0].get_size(), 1.0f);
    ov::TensorVector outputs{ov::Tensor(ov::element::f32, {3, 1, width})};
    tbb::task_arena arena(1);
    arena.execute([&] {
        plans[0]->run(outputs, inputs);
        const size_t before = num_allocations;
        for (int i = 0; i < 100; ++i) plans[0]->run(outputs, inputs);
        EXPECT_EQ(num_allocations, before);
    });
}

}  // namespace
}  // namespace pagewheel

#endif
