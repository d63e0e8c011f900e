#include "kernels/batch_tables.hpp"

#include <algorithm>
#include <vector>

#include "base/check.hpp"

namespace pagewheel::kernels {
namespace {

using Layout = BatchTablesLayout;
using Table = TableSection<const int32_t>;

void check_size(const char* name, const Table& table, size_t expected) {
    check_argument(table.size == expected, name, " has ", table.size, " entries, expected ",
                   expected);
}

void check_last(const char* name, const Table& begins, size_t last) {
    const int32_t is = begins[begins.size - 1];
    check_argument(last == TableBounds::any || is == int64_t(last), name, " ends with ", is,
                   ", expected ", last);
}

/// [0, a, b, ..., last] that grows by at least `least` each.
void check_begins(const char* name, const Table& begins, size_t num_sequences, size_t last,
                  int64_t least) {
    check_size(name, begins, num_sequences + 1);
    check_argument(begins[0] == 0, name, " begins with ", begins[0], ", expected 0");
    for (size_t i = 0; i < num_sequences; ++i) {
        const int64_t expected = begins[i] + least;
        check_argument(begins[i + 1] >= expected, name, "[", i + 1, "] is ", begins[i + 1],
                       ", expected at least ", expected);
    }
    check_last(name, begins, last);
}

/// The rows of sequence i, whose part of `begins` was checked.
int64_t rows_of(const Table& begins, size_t i) {
    return int64_t(begins[i + 1]) - begins[i];
}

/// Returns the sum of the context lengths.
int64_t check_sequences(const BatchTables& tables, const TableBounds& bounds) {
    const Table &past = tables.written_past_lens, &begins = tables.written_begins,
                &blocks = tables.block_indices, &block_begins = tables.block_indices_begins;
    const size_t num_sequences = past.size;
    check_begins("subsequence_begins", begins, num_sequences, bounds.num_tokens, 1);
    check_begins("block_indices_begins", block_begins, num_sequences, blocks.size, 0);
    int64_t contexts = 0;
    for (size_t i = 0; i < num_sequences; ++i) {
        check_argument(past[i] >= 0, "past_lens[", i, "] is ", past[i], ", expected at least 0");
        const int64_t context = past[i] + rows_of(begins, i);
        const int64_t held = rows_of(block_begins, i) * int64_t(bounds.block_size);
        check_argument(context <= held, "sequence ", i, " has a context of ", context,
                       " tokens, its blocks hold ", held);
        contexts += context;
    }
    for (size_t i = 0; i < blocks.size; ++i)
        check_argument(blocks[i] >= 0 && blocks[i] < int64_t(bounds.num_blocks), "block_indices[",
                       i, "] is ", blocks[i], ", expected a block of the pool, less than ",
                       bounds.num_blocks);
    return contexts;
}

/// The queries' rows, and that they are the last ones of each sequence's new tokens.
void check_queries(const BatchTables& tables, const TableBounds& bounds) {
    if (tables.queries == Queries::ALL)
        return check_last("subsequence_begins", tables.subsequence_begins, bounds.num_queries);
    const Table &past = tables.past_lens, &begins = tables.subsequence_begins;
    const size_t num_sequences = tables.written_past_lens.size;
    check_size("logits_past_lens", past, num_sequences);
    check_begins("logits_begins", begins, num_sequences, bounds.num_queries, 0);
    for (size_t i = 0; i < num_sequences; ++i) {
        const int64_t asked = rows_of(begins, i), fresh = rows_of(tables.written_begins, i);
        check_argument(asked <= fresh, "sequence ", i, " has ", asked,
                       " logits indices, expected at most its new tokens, ", fresh);
        const int64_t before = tables.written_past_lens[i] + fresh - asked;
        check_argument(past[i] == before, "logits_past_lens[", i, "] is ", past[i], ", expected ",
                       before);
    }
}

/// Attention that counts must be computed.
void check_window(const BatchTables& tables, size_t i) {
    const int64_t asked = rows_of(tables.subsequence_begins, i),
                  counts =
                      std::min<int64_t>(tables.score_windows[i], rows_of(tables.written_begins, i));
    check_argument(counts <= asked, "score_windows[", i, "] is ", tables.score_windows[i],
                   ", expected at most the sequence's logits indices, ", asked);
}

void check_scores(const BatchTables& tables, int64_t contexts) {
    const Table& windows = tables.score_windows;
    if (windows.size == 0) return;
    check_size("score_windows", windows, tables.num_sequences());
    bool any = false;
    for (size_t i = 0; i < windows.size; ++i) {
        check_argument(windows[i] >= 0, "score_windows[", i, "] is ", windows[i],
                       ", expected at least 0");
        if (tables.queries == Queries::LOGITS) check_window(tables, i);
        any = any || windows[i] > 0;
    }
    const size_t size = tables.scores.size;
    check_argument((size == 0 && !any) || int64_t(size) >= contexts, "scores has ", size,
                   " entries, expected at least ", contexts);
}

void check_observed_queries(const BatchTables& tables, size_t query_size) {
    const size_t size = tables.observed_queries.size;
    if (size == 0) return;
    size_t rows = 0;
    for (size_t i = 0; i < tables.score_windows.size; ++i) rows += tables.num_observed_of(i);
    check_argument(size == rows * query_size, "queries has ", size, " entries, expected ", rows,
                   " rows of ", query_size);
}

void check_rotated_blocks(const BatchTables& tables) {
    const Table& rotated = tables.rotated_block_indices;
    const size_t num_block_indices = tables.block_indices.size;
    for (size_t i = 0; i < rotated.size; ++i) {
        check_argument(rotated[i] >= 0 && rotated[i] < int64_t(num_block_indices),
                       "rotated_block_indices[", i, "] is ", rotated[i], ", expected less than ",
                       num_block_indices);
        check_argument(i == 0 || rotated[i] > rotated[i - 1], "rotated_block_indices[", i, "] is ",
                       rotated[i], ", expected more than ", i == 0 ? -1 : rotated[i - 1]);
    }
}

void check_rotation(const BatchTables& tables, const TableBounds& bounds) {
    const size_t num_rotated = tables.rotated_block_indices.size;
    if (num_rotated == 0) return;
    const Table& deltas = tables.rotation_deltas;
    check_argument(deltas.size == num_rotated || deltas.size == num_rotated * bounds.block_size,
                   "rotation_deltas has ", deltas.size, " entries, expected ", num_rotated, " or ",
                   num_rotated * bounds.block_size);
    const size_t lut_size = tables.rotation_trig_lut.size, dims = bounds.rotary_dims;
    check_argument(dims > 0, "rotated_block_indices has ", num_rotated,
                   " entries, expected none in a layer without rotary dimensions");
    check_argument(lut_size % dims == 0, "rotation_trig_lut has ", lut_size,
                   " entries, expected rows of ", dims);
    check_rotated_blocks(tables);
    const auto rows = int64_t(lut_size / dims);
    // They can be thousands: first whether any is wrong, then which.
    uint32_t largest = 0;
    for (size_t i = 0; i < deltas.size; ++i) largest = std::max(largest, uint32_t(deltas[i]));
    if (int64_t(largest) < rows) return;
    for (size_t i = 0; i < deltas.size; ++i)
        check_argument(deltas[i] >= 0 && deltas[i] < rows, "rotation_deltas has ", deltas[i],
                       ", expected a row of the layer's table, less than ", rows);
}

/// Finds sections by the directory.
class Directory {
public:
    Directory(int32_t* words, size_t num_words) : m_words(words), m_num_words(num_words) {
        check_argument(num_words >= 2, "the tables are ", num_words,
                       " entries, expected at least 2");
        check_argument(words[0] > 0, "the tables have ", words[0], " layers, expected at least 1");
        m_first = Layout::num_directory_words(size_t(words[0]));
        check_argument(num_words >= m_first, "the tables are ", num_words,
                       " entries, expected at least ", m_first);
        check_argument(
            words[1] >= 0 && size_t(words[1]) >= m_first && size_t(words[1]) <= num_words,
            "scores begin at ", words[1], ", expected ", m_first, " to ", num_words);
        m_read_end = size_t(words[1]);
    }

    size_t num_layers() const { return size_t(m_words[0]); }

    template <class T>
    TableSection<const T> to_read(size_t section) const {
        return find<const T>(section, m_first, m_read_end);
    }
    TableSection<float> to_write(size_t section) const {
        return find<float>(section, m_read_end, m_num_words);
    }

private:
    template <class T>
    TableSection<T> find(size_t section, size_t least, size_t end) const {
        const int64_t begin = m_words[2 + 2 * section], size = m_words[3 + 2 * section];
        if (size == 0) return {};
        check_argument(size > 0 && begin >= int64_t(least) && begin + size <= int64_t(end),
                       "section ", section, " has ", size, " entries from ", begin,
                       " on, expected them in ", least, " to ", end);
        return {reinterpret_cast<T*>(m_words + begin), size_t(size)};
    }

    int32_t* m_words;
    size_t m_num_words, m_first = 0, m_read_end = 0;
};

}  // namespace

BatchTables::BatchTables(int32_t* words, size_t num_words, size_t layer, Queries queries)
    : queries(queries) {
    const Directory directory(words, num_words);
    const size_t layers = directory.num_layers();
    check_argument(layers == 1 || layer < layers, "the tables have ", layers,
                   " layers, expected more than ", layer, ", or 1 for all");
    past_lens = written_past_lens = directory.to_read<int32_t>(Layout::past_lens);
    subsequence_begins = written_begins = directory.to_read<int32_t>(Layout::subsequence_begins);
    if (queries == Queries::LOGITS) {
        past_lens = directory.to_read<int32_t>(Layout::logits_past_lens);
        subsequence_begins = directory.to_read<int32_t>(Layout::logits_begins);
    }
    block_indices_begins = directory.to_read<int32_t>(Layout::block_indices_begins);
    score_windows = directory.to_read<int32_t>(Layout::score_windows);
    state_sources = directory.to_read<int32_t>(Layout::state_sources);
    state_targets = directory.to_read<int32_t>(Layout::state_targets);
    state_splits = directory.to_read<int32_t>(Layout::state_splits);
    const auto own = [&](Layout::OfLayer section) {
        return Layout::index_of(layers == 1 ? 0 : layer, section);
    };
    block_indices = directory.to_read<int32_t>(own(Layout::block_indices));
    rotated_block_indices = directory.to_read<int32_t>(own(Layout::rotated_block_indices));
    rotation_deltas = directory.to_read<int32_t>(own(Layout::rotation_deltas));
    rotation_trig_lut = directory.to_read<float>(own(Layout::rotation_trig_lut));
    scores = directory.to_write(own(Layout::scores));
    observed_queries = directory.to_write(own(Layout::queries));
    if (rotated_block_indices.size > 0)
        delta_width = rotation_deltas.size / rotated_block_indices.size;
}

void BatchTables::check(const TableBounds& bounds) const {
    const int64_t contexts = check_sequences(*this, bounds);
    check_queries(*this, bounds);
    check_scores(*this, contexts);
    check_observed_queries(*this, bounds.query_size);
    check_rotation(*this, bounds);
}

void BatchTables::check_states(size_t num_tokens, size_t num_states) const {
    const size_t num_sequences = written_past_lens.size;
    check_begins("subsequence_begins", written_begins, num_sequences, num_tokens, 1);
    check_size("state_sources", state_sources, num_sequences);
    check_size("state_targets", state_targets, num_sequences);
    check_size("state_splits", state_splits, num_sequences);
    static thread_local std::vector<int32_t> written;
    written.assign(state_targets.values, state_targets.values + num_sequences);
    for (size_t i = 0; i < num_sequences; ++i) {
        const int32_t split = state_splits[i], tokens = written_begins[i + 1] - written_begins[i];
        check_argument(split >= 0 && split < tokens && (split == 0 || state_sources[i] >= 0),
                       "state_splits[", i, "] is ", split, " of ", tokens, " tokens after state ",
                       state_sources[i], ", expected 0, or less than all after a state");
        if (split > 0) written.push_back(state_sources[i]);
    }
    std::sort(written.begin(), written.end());
    const auto twice = std::adjacent_find(written.begin(), written.end());
    check_argument(twice == written.end(), "state_targets has ",
                   twice == written.end() ? 0 : *twice,
                   " twice, or split sources, expected a state for each sequence");
    for (size_t i = 0; i < num_sequences; ++i) {
        const int32_t source = state_sources[i], target = state_targets[i];
        check_argument(target >= 0 && target < int64_t(num_states), "state_targets[", i, "] is ",
                       target, ", expected a state, less than ", num_states);
        check_argument(source >= -1 && source < int64_t(num_states), "state_sources[", i, "] is ",
                       source, ", expected -1 or a state, less than ", num_states);
        check_argument(source == target || state_splits[i] > 0 ||
                           !std::binary_search(written.begin(), written.end(), source),
                       "state_sources[", i, "] is ", source, ", which another sequence writes");
    }
}

BatchTablesWriter::BatchTablesWriter(int32_t* words, size_t num_layers)
    : m_words(words), m_end(Layout::num_directory_words(num_layers)) {
    std::fill_n(words, m_end, 0);
    words[0] = int32_t(num_layers);
    words[1] = int32_t(m_end);
}

int32_t* BatchTablesWriter::add(size_t section, size_t size) {
    place(section, m_end, size);
    m_end += size;
    return m_words + m_end - size;
}

void BatchTablesWriter::place(size_t section, size_t begin, size_t size) {
    m_words[2 + 2 * section] = int32_t(begin);
    m_words[3 + 2 * section] = int32_t(size);
}

}  // namespace pagewheel::kernels
