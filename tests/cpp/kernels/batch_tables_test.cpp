// The tables of a batch: written, read back and checked.
#include "kernels/batch_tables.hpp"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/paged_attention.hpp"
#include "support/packed_tables.hpp"

namespace pagewheel::kernels {
namespace {

using Layout = BatchTablesLayout;

template <class T>
std::vector<std::remove_const_t<T>> values_of(const TableSection<T>& section) {
    return {section.values, section.values + section.size};
}

TEST(BatchTables, AreReadAsTheyWereWritten) {
    TableValues values;
    values.add(3, 2, {7, 8});
    values.add(0, 5, {9});
    values.score_windows = {1, 0};
    values.layers.resize(2);
    values.layers[1] = {{4, 5, 6}, {0, 2}, {10, 11}, {0.5f, -0.25f}, 10};
    std::vector<int32_t> words(values.num_words());
    values.pack(words.data());
    const BatchTables tables(words.data(), words.size(), 1);
    EXPECT_EQ(tables.num_sequences(), 2u);
    EXPECT_EQ(values_of(tables.past_lens), (std::vector<int32_t>{3, 0}));
    EXPECT_EQ(values_of(tables.subsequence_begins), (std::vector<int32_t>{0, 2, 7}));
    EXPECT_EQ(values_of(tables.block_indices_begins), (std::vector<int32_t>{0, 2, 3}));
    EXPECT_EQ(values_of(tables.score_windows), (std::vector<int32_t>{1, 0}));
    EXPECT_EQ(values_of(tables.block_indices), (std::vector<int32_t>{4, 5, 6}));
    EXPECT_EQ(values_of(tables.rotated_block_indices), (std::vector<int32_t>{0, 2}));
    EXPECT_EQ(values_of(tables.rotation_deltas), (std::vector<int32_t>{10, 11}));
    EXPECT_EQ(values_of(tables.rotation_trig_lut), (std::vector<float>{0.5f, -0.25f}));
    EXPECT_EQ(tables.delta_width, 1u);
    EXPECT_EQ(tables.scores.size, 10u);
    EXPECT_TRUE(tables.has_scores());
    const BatchTables first(words.data(), words.size(), 0);
    EXPECT_EQ(values_of(first.block_indices), (std::vector<int32_t>{7, 8, 9}));
    EXPECT_EQ(first.rotated_block_indices.size, 0u);
    EXPECT_FALSE(first.has_scores());
}

TEST(BatchTables, QueriesForTheLogitsIndicesStandBesideWhatIsWritten) {
    TableValues values;
    values.add(3, 2, {7, 8});
    values.add(0, 5, {9});
    values.add(6, 1, {4});
    values.ask({1, 0, 1});
    std::vector<int32_t> words(values.num_words());
    values.pack(words.data());
    const BatchTables asked(words.data(), words.size(), 0, Queries::LOGITS);
    EXPECT_EQ(values_of(asked.past_lens), (std::vector<int32_t>{4, 5, 6}));
    EXPECT_EQ(values_of(asked.subsequence_begins), (std::vector<int32_t>{0, 1, 1, 2}));
    EXPECT_EQ(values_of(asked.written_past_lens), (std::vector<int32_t>{3, 0, 6}));
    EXPECT_EQ(values_of(asked.written_begins), (std::vector<int32_t>{0, 2, 7, 8}));
    asked.check({8, 2, 10, 16, 0});
    asked.check({TableBounds::any, 2, 10, 16, 0});
    EXPECT_THROW(asked.check({7, 2, 10, 16, 0}), std::runtime_error);
    EXPECT_THROW(asked.check({8, 3, 10, 16, 0}), std::runtime_error);

    const BatchTables all(words.data(), words.size(), 0);
    for (const auto& [query, written] : {std::pair(all.past_lens, all.written_past_lens),
                                         std::pair(all.subsequence_begins, all.written_begins)})
        EXPECT_EQ(query.values, written.values);
    EXPECT_EQ(values_of(all.past_lens), (std::vector<int32_t>{3, 0, 6}));
    all.check({8, 8, 10, 16, 0});
    EXPECT_THROW(all.check({TableBounds::any, 2, 10, 16, 0}), std::runtime_error);
}

TEST(BatchTables, OfOneLayerServeAllLayers) {
    TableValues values;
    values.add(3, 2, {7, 8});
    std::vector<int32_t> words(values.num_words());
    values.pack(words.data());
    for (const size_t layer : {0, 1, 100})
        EXPECT_EQ(values_of(BatchTables(words.data(), words.size(), layer).block_indices),
                  (std::vector<int32_t>{7, 8}));
}

TEST(BatchTables, LayersMayHaveTheSameWords) {
    std::vector<int32_t> words(Layout::num_directory_words(2) + 3);
    BatchTablesWriter writer(words.data(), 2);
    const size_t begin = writer.end();
    int32_t* blocks = writer.add(Layout::index_of(0, Layout::block_indices), 3);
    for (int32_t i = 0; i < 3; ++i) blocks[i] = i;
    writer.place(Layout::index_of(1, Layout::block_indices), begin, 3);
    writer.begin_scores();
    for (const size_t layer : {0, 1})
        EXPECT_EQ(BatchTables(words.data(), words.size(), layer).block_indices.values, blocks);
}

TEST(BatchTables, AWriterThatResumesKeepsWhatIsThere) {
    TableValues values;
    values.add(3, 2, {7, 8});
    values.score_windows = {1};
    std::vector<int32_t> words(values.num_words() + 5);
    values.pack(words.data());
    BatchTablesWriter writer = BatchTablesWriter::resume(words.data(), values.num_words());
    writer.begin_scores();
    writer.add(Layout::index_of(0, Layout::scores), 5);
    const BatchTables tables(words.data(), words.size(), 0);
    EXPECT_EQ(values_of(tables.block_indices), (std::vector<int32_t>{7, 8}));
    ASSERT_EQ(tables.scores.size, 5u);
    EXPECT_EQ(static_cast<void*>(tables.scores.values), &words[values.num_words()]);
}

/// Two sequences over eight blocks, one in its prompt, one decoding, in vectors of their own:
/// sanitizers see what leads out of each. The last two sections are of queries for logits indices.
struct SeparateTables {
    Queries queries;
    std::vector<int32_t> integers[9] = {{0, 20}, {0, 5, 6}, {0, 1, 3}, {0, 1},   {3, 1, 4},
                                        {1},     {2},       {3, 20},   {0, 2, 3}};
    std::vector<float> lut = std::vector<float>(4 * 8, 0.5f), scores = std::vector<float>(26);

    size_t num_queries() const { return queries == Queries::ALL ? 6 : 3; }
    size_t num_sections() const { return queries == Queries::ALL ? 7 : 9; }

    BatchTables tables() {
        BatchTables tables;
        TableSection<const int32_t>* sections[] = {
            &tables.written_past_lens, &tables.written_begins, &tables.block_indices_begins,
            &tables.score_windows,     &tables.block_indices,  &tables.rotated_block_indices,
            &tables.rotation_deltas,   &tables.past_lens,      &tables.subsequence_begins};
        for (size_t i = 0; i < 9; ++i) *sections[i] = {integers[i].data(), integers[i].size()};
        tables.queries = queries;
        if (queries == Queries::ALL) {
            tables.past_lens = tables.written_past_lens;
            tables.subsequence_begins = tables.written_begins;
        }
        tables.rotation_trig_lut = {lut.data(), lut.size()};
        tables.scores = {scores.data(), scores.size()};
        if (!integers[5].empty()) tables.delta_width = integers[6].size() / integers[5].size();
        return tables;
    }
};

/// Whether attention over the tables runs; anything but a result and a refusal fails the test.
bool serves(SeparateTables& values, CacheFormat format, bool writes) {
    AttentionConfig config;
    config.layout = {format, 16, 1, 8, 8};
    config.heads = 2;
    config.rotary_dims = 8;
    config.write_kv_cache = writes;
    const size_t queries = values.num_queries();
    std::vector<float> query(queries * 16, 0.5f), key(writes ? 6 * 8 : 0, 0.5f),
        output(queries * 16);
    std::vector<uint8_t> keys(8 * config.layout.key_block_bytes()),
        values_of_blocks(8 * config.layout.value_block_bytes());
    AttentionBatch batch;
    batch.query = query.data();
    batch.key = batch.value = key.data();
    batch.output = output.data();
    batch.key_blocks = keys.data();
    batch.value_blocks = values_of_blocks.data();
    batch.tables = values.tables();
    try {
        batch.tables.check({writes ? 6 : TableBounds::any, queries, 8, 16, 8});
    } catch (const std::runtime_error&) {
        return false;
    }
    paged_attention(config, batch, detected_isa());
    return true;
}

TEST(BatchTables, FuzzedOnesAreServedOrRefusedAndNeverFollowedOutOfBounds) {
    // Sanitizers see what would be read or written outside; here, every case ends.
    const int32_t odd[] = {-2147483647 - 1, -1, 0, 1, 2, 3, 5, 6, 7, 8, 15, 16, 17, 31, 32,
                           2147483647};
    const CacheFormat formats[] = {CacheFormat::f32, CacheFormat::u8, CacheFormat::u4,
                                   CacheFormat::bf16};
    std::mt19937 random(1);
    size_t served = 0, refused = 0;
    for (int i = 0; i < 100000; ++i) {
        SeparateTables tables{random() % 2 ? Queries::ALL : Queries::LOGITS};
        for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
            std::vector<int32_t>& old = tables.integers[random() % tables.num_sections()];
            std::vector<int32_t> values = old;
            const unsigned kind = random() % 8;
            if (kind == 0) values.push_back(odd[random() % 16]);
            if (kind == 1 && !values.empty()) values.pop_back();
            if (kind > 1 && !values.empty()) values[random() % values.size()] = odd[random() % 16];
            old = std::vector<int32_t>(values.begin(), values.end());  // of that capacity
        }
        ++(serves(tables, formats[random() % 4], random() % 2) ? served : refused);
    }
    EXPECT_GT(served, 5000u);
    EXPECT_GT(refused, 50000u);
}

}  // namespace
}  // namespace pagewheel::kernels
