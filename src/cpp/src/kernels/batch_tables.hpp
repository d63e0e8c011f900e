// The tables of a batch: how long its sequences are, where their tokens lie, how they are rotated
// and where scores go. One packed array of words for all layers; what writes and reads it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pagewheel::kernels {

/// How the packed words lie:
///
///     number of layers that have sections of their own; 1: all layers read the same ones
///     where scores begin, which is the end of all that is read
///     begin and size of each section: shared ones, then those of layer after layer
///     the sections in any order, scores last
///
/// Sections of layers may be the same words. Floats are stored as they are. There may be more words
/// than sections take, so that a tensor's shape stays the same from step to step.
///
/// The logits indices are the last few of each sequence's new tokens, none to all of them: what a
/// step computes to the end. Their sections are there if some layer has queries for them alone.
struct BatchTablesLayout {
    enum Shared : size_t {
        past_lens,             ///< [B] tokens in the cache before the call
        subsequence_begins,    ///< [B + 1] into the new tokens
        block_indices_begins,  ///< [B + 1] into block_indices
        score_windows,         ///< [B] last new tokens whose attention counts; or empty
        logits_past_lens,      ///< [B] tokens before the first logits index; or empty
        logits_begins,         ///< [B + 1] into the logits indices; or empty
        state_sources,         ///< [B] state before the new tokens, -1: zeros; or empty
        state_targets,         ///< [B] state that is written; or empty
        state_splits,          ///< [B] new tokens after which the source is written; or empty
        num_shared
    };
    enum OfLayer : size_t {
        block_indices,          ///< [P] block tables, one after the other
        rotated_block_indices,  ///< [n] entries of block_indices, ascending
        rotation_deltas,        ///< [n] or [n, block size] rows of rotation_trig_lut
        rotation_trig_lut,      ///< f32 [rows, rotary dims] cos | sin
        scores,                 ///< f32 [sum of context lengths] or empty; written
        queries,                ///< f32 [observed queries, heads * key size] or empty; written
        num_of_layer
    };

    static constexpr size_t index_of(size_t layer, OfLayer section) {
        return num_shared + layer * num_of_layer + section;
    }
    /// Words before the first section.
    static constexpr size_t num_directory_words(size_t layers) {
        return 2 + 2 * index_of(layers, block_indices);
    }
};

/// A row for each token of the batch, which may be a part of a longer one.
struct StridedRows {
    const float* values = nullptr;
    size_t stride = 0;

    [[gnu::always_inline]] const float* row(size_t i) const { return values + i * stride; }
};

/// A view of a section.
template <class T>
struct TableSection {
    T* values = nullptr;
    size_t size = 0;

    [[gnu::always_inline]] T& operator[](size_t i) const { return values[i]; }
};

/// Which of the new tokens a layer has queries for. Keys and values are written for all of them.
enum class Queries { ALL, LOGITS };

/// What the tables of a call may lead to.
struct TableBounds {
    static constexpr size_t any = SIZE_MAX;

    size_t num_tokens = 0;   ///< keys and values, of all sequences; any: the layer writes none
    size_t num_queries = 0;  ///< of all sequences
    size_t num_blocks = 0;   ///< of the pool
    size_t block_size = 0;
    size_t rotary_dims = 0;
    size_t query_size = 0;  ///< of all heads together
};

/// What one layer reads of a batch's tables: views of the sections, which BatchTablesLayout
/// describes. B sequences with their queries, one after the other: those of sequence s are rows
/// [subsequence_begins[s], subsequence_begins[s + 1]) and stand at positions past_lens[s] and up;
/// its context ends with the last new token, in the blocks
/// block_indices[block_indices_begins[s] .. block_indices_begins[s + 1]).
struct BatchTables {
    TableSection<const int32_t> past_lens, subsequence_begins, block_indices_begins, block_indices;

    // The same of all new tokens, whose keys and values are written. With queries for all, the same
    // words; with queries for the logits indices alone, those end where these end.
    TableSection<const int32_t> written_past_lens, written_begins;
    Queries queries = Queries::ALL;

    // States of the layers that keep some. A source may be the sequence's own target. Where a split
    // is not 0 the source becomes the state after so many new tokens, and the rest goes on from it.
    TableSection<const int32_t> state_sources, state_targets, state_splits;

    // The key of a block (delta_width 1) or token (delta_width block size) with delta e is read as
    // if it had been written e rows lower: LUT row e holds the cosines and sines of e's angles.
    TableSection<const int32_t> rotated_block_indices, rotation_deltas;
    TableSection<const float> rotation_trig_lut;
    size_t delta_width = 1;  ///< deltas per rotated block

    // Attention probability per key, summed over heads and the last score_windows[s] queries of
    // the sequence; contexts concatenated. Zeros, at no cost, for a sequence with window 0.
    TableSection<const int32_t> score_windows;
    TableSection<float> scores;
    // These queries themselves, at most the last most_observed of each sequence.
    static constexpr size_t most_observed = 64;
    static size_t num_observed(size_t window) { return std::min(window, most_observed); }
    TableSection<float> observed_queries;

    BatchTables() = default;
    /// Throws InvalidArgument if the words are no tables, a section leads out of them or
    /// scores would be written over what is read. What is in the sections is not looked at.
    BatchTables(int32_t* words, size_t num_words, size_t layer, Queries queries = Queries::ALL);

    size_t num_sequences() const { return past_lens.size; }
    bool has_scores() const { return scores.size > 0 && score_windows.size > 0; }
    /// Queries of a sequence that observed_queries has room for.
    size_t num_observed_of(size_t sequence) const {
        return std::min(num_observed(size_t(score_windows[sequence])),
                        size_t(subsequence_begins[sequence + 1] - subsequence_begins[sequence]));
    }
    /// Throws InvalidArgument that names the section, what it says and what is allowed. After
    /// it no index leads out of a section or the pool: every sequence has at least one new token
    /// and enough blocks for its context, its logits indices are the last of its new tokens and
    /// hold those whose attention counts, begins and rotated blocks ascend, deltas are rows of the
    /// LUT, scores have room for all contexts, and observed queries, if they are wanted, for all.
    void check(const TableBounds& bounds) const;
    /// The same for a layer that keeps states: new tokens, sources, targets and splits. No sequence
    /// writes a state that another one reads or writes.
    void check_states(size_t num_tokens, size_t num_states) const;
    /// Calls `work(first row, tokens, source, target)`, slots, for the sequence's new tokens: twice
    /// where they are split.
    template <class Work>
    void for_states(size_t sequence, Work&& work) const {
        const auto row = size_t(written_begins[sequence]);
        const auto tokens = size_t(written_begins[sequence + 1]) - row;
        const auto split = size_t(state_splits[sequence]);
        const int32_t source = state_sources[sequence];
        if (split > 0) work(row, split, source, source);
        work(row + split, tokens - split, source, state_targets[sequence]);
    }
};

/// Writes sections one after the other into memory that is large enough for them.
class BatchTablesWriter {
public:
    /// All sections are empty.
    BatchTablesWriter(int32_t* words, size_t num_layers);
    /// Goes on with tables that are there, at word `end`.
    static BatchTablesWriter resume(int32_t* words, size_t end) { return {words, end, {}}; }

    /// A place for `size` words; its contents are the caller's to fill.
    int32_t* add(size_t section, size_t size);
    /// Sections are added from that word on.
    void go_on_at(size_t word) { m_end = word; }
    /// The section is words that are there already.
    void place(size_t section, size_t begin, size_t size);
    /// What is added from here on is written by attention: scores and observed queries.
    void begin_scores() { m_words[1] = int32_t(m_end); }
    size_t end() const { return m_end; }

private:
    struct Resumed {};
    BatchTablesWriter(int32_t* words, size_t end, Resumed) : m_words(words), m_end(end) {}

    int32_t* m_words;
    size_t m_end;
};

}  // namespace pagewheel::kernels
