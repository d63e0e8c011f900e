#include "ops/layer_tables.hpp"

#include <algorithm>

#include "check.hpp"

namespace pagewheel {

LayerTables::LayerTables(const ov::Tensor& packed, size_t layer) {
    const size_t size = packed.get_size();
    check_argument(packed.get_element_type() == ov::element::i32 && size >= 2, "the tables are ",
                   packed.get_element_type(), " of ", size, " entries, expected i32 of at least 2");
    const auto* words = packed.data<const int32_t>();
    check_argument(words[0] > 0 && layer < size_t(words[0]), "the tables have ", words[0],
                   " layers, expected more than ", layer);
    const size_t first = num_directory_words(size_t(words[0]));
    check_argument(size >= first, "the tables are ", size, " entries, expected at least ", first);
    check_argument(words[1] >= 0 && size_t(words[1]) >= first && size_t(words[1]) <= size,
                   "scores begin at ", words[1], ", expected ", first, " to ", size);
    const auto read_end = size_t(words[1]);
    const auto section = [&](size_t index, size_t least, size_t end) -> Section {
        const int64_t begin = words[2 + 2 * index], length = words[3 + 2 * index];
        if (length == 0) return {};
        check_argument(length > 0 && begin >= int64_t(least) && begin + length <= int64_t(end),
                       "section ", index, " has ", length, " entries from ", begin,
                       " on, expected them in ", least, " to ", end);
        return {words + begin, size_t(length)};
    };
    for (size_t i = 0; i < num_shared; ++i) shared[i] = section(i, first, read_end);
    for (const OfLayer i :
         {block_indices, rotated_block_indices, rotation_deltas, rotation_trig_lut})
        own[i] = section(index_of(layer, i), first, read_end);
    own[scores] = section(index_of(layer, scores), read_end, size);
}

LayerTablesWriter::LayerTablesWriter(int32_t* words, size_t num_layers)
    : m_words(words), m_end(LayerTables::num_directory_words(num_layers)) {
    std::fill_n(words, m_end, 0);
    words[0] = int32_t(num_layers);
}

int32_t* LayerTablesWriter::add(size_t section, size_t size) {
    place(section, m_end, size);
    m_end += size;
    return m_words + m_end - size;
}

void LayerTablesWriter::place(size_t section, size_t begin, size_t size) {
    m_words[2 + 2 * section] = int32_t(begin);
    m_words[3 + 2 * section] = int32_t(size);
}

}  // namespace pagewheel
