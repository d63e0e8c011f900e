// The tables of a batch in vectors, and packed as attention reads them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/batch_tables.hpp"

namespace pagewheel {

struct LayerTableValues {
    std::vector<int32_t> block_indices, rotated_block_indices, rotation_deltas;
    std::vector<float> rotation_trig_lut;
    size_t num_scores = 0, num_queries = 0;
};

/// Sections of a batch; sizes and contents are the test's to get right or wrong.
struct TableValues {
    std::vector<int32_t> past_lens, subsequence_begins{0}, block_indices_begins{0}, score_windows;
    std::vector<int32_t> logits_past_lens, logits_begins;
    std::vector<int32_t> state_sources, state_targets, state_splits;
    std::vector<LayerTableValues> layers = std::vector<LayerTableValues>(1);

    /// Another sequence, in these blocks of layer 0.
    void add(size_t past, size_t fresh, const std::vector<int32_t>& blocks) {
        std::vector<int32_t>& indices = layers[0].block_indices;
        past_lens.push_back(int32_t(past));
        subsequence_begins.push_back(subsequence_begins.back() + int32_t(fresh));
        indices.insert(indices.end(), blocks.begin(), blocks.end());
        block_indices_begins.push_back(int32_t(indices.size()));
    }

    /// The last asked[s] of each sequence's new tokens are its logits indices.
    void ask(const std::vector<size_t>& asked) {
        logits_past_lens.clear();
        logits_begins = {0};
        for (size_t s = 0; s < asked.size(); ++s) {
            const int32_t fresh = subsequence_begins[s + 1] - subsequence_begins[s];
            logits_past_lens.push_back(past_lens[s] + fresh - int32_t(asked[s]));
            logits_begins.push_back(logits_begins.back() + int32_t(asked[s]));
        }
    }

    size_t num_words() const {
        size_t words = kernels::BatchTablesLayout::num_directory_words(layers.size()) +
                       past_lens.size() + subsequence_begins.size() + block_indices_begins.size() +
                       score_windows.size() + logits_past_lens.size() + logits_begins.size() +
                       state_sources.size() + state_targets.size() + state_splits.size();
        for (const LayerTableValues& layer : layers)
            words += layer.block_indices.size() + layer.rotated_block_indices.size() +
                     layer.rotation_deltas.size() + layer.rotation_trig_lut.size() +
                     layer.num_scores + layer.num_queries;
        return words;
    }

    /// Into num_words() words. Scores are not touched.
    void pack(int32_t* words) const {
        using Layout = kernels::BatchTablesLayout;
        kernels::BatchTablesWriter writer(words, layers.size());
        const auto add = [&](size_t section, const auto& values) {
            if (!values.empty())
                std::memcpy(writer.add(section, values.size()), values.data(), 4 * values.size());
        };
        add(Layout::past_lens, past_lens);
        add(Layout::subsequence_begins, subsequence_begins);
        add(Layout::block_indices_begins, block_indices_begins);
        add(Layout::score_windows, score_windows);
        add(Layout::logits_past_lens, logits_past_lens);
        add(Layout::logits_begins, logits_begins);
        add(Layout::state_sources, state_sources);
        add(Layout::state_targets, state_targets);
        add(Layout::state_splits, state_splits);
        for (size_t l = 0; l < layers.size(); ++l) {
            add(Layout::index_of(l, Layout::block_indices), layers[l].block_indices);
            add(Layout::index_of(l, Layout::rotated_block_indices),
                layers[l].rotated_block_indices);
            add(Layout::index_of(l, Layout::rotation_deltas), layers[l].rotation_deltas);
            add(Layout::index_of(l, Layout::rotation_trig_lut), layers[l].rotation_trig_lut);
        }
        writer.begin_scores();
        for (size_t l = 0; l < layers.size(); ++l) {
            writer.add(Layout::index_of(l, Layout::scores), layers[l].num_scores);
            writer.add(Layout::index_of(l, Layout::queries), layers[l].num_queries);
        }
    }
};

}  // namespace pagewheel
