// Several logits indices, one and none in one batch of a real model: the same logits as without
// fast prefill and as token by token. PAGEWHEEL_TEST_TINY_MODEL names a folder (scripts/run_tests).
#include "runner/model_inputs.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/isa.hpp"
#include "runner/openvino_model.hpp"

namespace pagewheel {
namespace {

using Rows = std::vector<std::vector<float>>;

/// A model and sequences in blocks of their own.
class Runner {
public:
    Runner(const char* backend, bool fast_prefill)
        : m_model(load_model(ModelFolder(std::getenv("PAGEWHEEL_TEST_TINY_MODEL")), "CPU",
                             {{"INFERENCE_PRECISION_HINT", "f32"},
                              {"KV_CACHE_PRECISION", "f32"},
                              {"attention_backend", backend},
                              {"fast_prefill", fast_prefill}})) {
        m_model->allocate_cache(4 * blocks_each);
        for (size_t s = 0; s < 4; ++s) {
            for (size_t i = 0; i < 40; ++i)
                m_sequences[s].tokens.push_back(int64_t(3 + (7 * s + 5 * i) % 60));
            for (size_t b = 0; b < blocks_each; ++b)
                m_sequences[s].blocks.push_back(BlockId(s * blocks_each + b));
        }
    }

    struct Span {
        size_t sequence, num_tokens, num_logits;
    };
    Rows step(const std::vector<Span>& spans) {
        Batch batch;
        for (const Span& span : spans) {
            batch.entries.push_back(
                {&m_sequences[span.sequence], span.num_tokens, span.num_logits, 0});
            batch.num_tokens += span.num_tokens;
        }
        const Logits logits = m_model->run(batch, {});
        for (const Span& span : spans) m_sequences[span.sequence].num_cached += span.num_tokens;
        Rows rows;
        for (size_t i = 0; i < logits.rows; ++i)
            rows.emplace_back(logits.row(i), logits.row(i) + logits.vocabulary);
        return rows;
    }

private:
    static constexpr size_t blocks_each = 3;

    std::unique_ptr<OpenVinoModel> m_model;
    Sequence m_sequences[4];
};

void expect_near(const Rows& rows, const Rows& expected, const std::string& what) {
    ASSERT_EQ(rows.size(), expected.size()) << what;
    for (size_t i = 0; i < rows.size(); ++i)
        for (size_t j = 0; j < rows[i].size(); ++j)
            ASSERT_NEAR(rows[i][j], expected[i][j], 1e-4f) << what << ", row " << i;
}

/// A decode with drafts behind 20 tokens, a chunk in the middle of a prompt, a decode, a prompt
/// with all its logits; nobody who asks; and what all of that left in the cache.
const std::vector<std::vector<Runner::Span>> steps{
    {{0, 20, 0}, {2, 10, 1}}, {{0, 3, 3}, {1, 16, 0}, {2, 1, 1}, {3, 5, 5}}, {{1, 7, 0}},
    {{1, 2, 0}, {0, 1, 0}},   {{0, 1, 1}, {1, 1, 1}, {2, 2, 2}, {3, 1, 1}},
};

TEST(LogitsIndices, AnyNumberOfEachSequenceGivesTheLogitsOfTheWholeBatch) {
    if (!std::getenv("PAGEWHEEL_TEST_TINY_MODEL"))
        GTEST_SKIP() << "PAGEWHEEL_TEST_TINY_MODEL is not set";
    for (const char* backend : {"native", "openvino"}) {
        if (detected_isa() == Isa::scalar && backend == std::string("native")) continue;
        Runner fast(backend, true), slow(backend, false);
        for (size_t i = 0; i < steps.size(); ++i) {
            size_t asked = 0;
            for (const Runner::Span& span : steps[i]) asked += span.num_logits;
            const Rows rows = fast.step(steps[i]);
            EXPECT_EQ(rows.size(), asked);
            expect_near(rows, slow.step(steps[i]), std::string(backend) + " " + std::to_string(i));
        }
    }
}

TEST(LogitsIndices, RowsTogetherGiveWhatTheyGiveOneByOne) {
    if (!std::getenv("PAGEWHEEL_TEST_TINY_MODEL"))
        GTEST_SKIP() << "PAGEWHEEL_TEST_TINY_MODEL is not set";
    for (const char* backend : {"native", "openvino"}) {
        Runner together(backend, true), alone(backend, true);
        for (Runner* runner : {&together, &alone}) runner->step({{0, 20, 0}});
        Rows one_by_one;
        for (int i = 0; i < 4; ++i) one_by_one.push_back(alone.step({{0, 1, 1}})[0]);
        expect_near(together.step({{0, 4, 4}}), one_by_one, backend);
    }
}

}  // namespace
}  // namespace pagewheel
