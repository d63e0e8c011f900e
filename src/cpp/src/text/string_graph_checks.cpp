#include "text/string_graph.hpp"

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "base/check.hpp"
#include "openvino/op/add.hpp"
#include "openvino/op/range.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Constant;

/// No vocabulary's tokens are a tenth of this. openvino-tokenizers' tree of a vocabulary is as deep
/// as its longest token, and is destroyed by a function that calls itself.
constexpr int64_t max_string_bytes = 16'384;

void check_table(const StringTable& table, const std::string& name) {
    const auto begin = table.begins->cast_vector<int32_t>(),
               end = table.ends->cast_vector<int32_t>();
    const size_t size = table.bytes->get_byte_size();
    check_file(begin.size() == end.size(), name, " has a table of ", begin.size(),
               " strings that begin and ", end.size(), " that end");
    for (size_t i = 0; i < begin.size(); ++i)
        check_file(0 <= begin[i] && begin[i] <= end[i] && size_t(end[i]) <= size &&
                       end[i] - begin[i] <= max_string_bytes,
                   name, ": string ", i, " of a table goes from ", begin[i], " to ", end[i],
                   "; allowed: in order, within ", size, " bytes, at most ", max_string_bytes,
                   " long");
}

/// Operations that look up a number for each string of the table at this input; the numbers follow.
const std::map<std::string, size_t> numbered_tables{{"UnigramTokenizer", 5}, {"VocabEncoder", 3}};

void check_numbers(const ov::Node& node, const std::string& name) {
    const auto found = numbered_tables.find(node.get_type_name());
    if (found == numbered_tables.end() || node.get_input_size() < found->second + 4) return;
    const StringTable table(node, found->second);
    const auto numbers = constant_input(node, found->second + 3);
    if (!table || !numbers) return;
    check_file(ov::shape_size(numbers->get_shape()) == table.size(), name, " has ", table.size(),
               " strings and numbers for ", ov::shape_size(numbers->get_shape()));
}

/// SentencePiece's normalisation: the size of a tree, u32, the tree, and texts that end with 0. The
/// tree is a double array (Aoe, 1989): unit i leads to i ^ offset ^ byte for each byte, and a leaf,
/// by its highest bit, to the text at its lower bits.
void check_normalisation(const Constant& table, const std::string& name) {
    const auto* data = static_cast<const char*>(table.get_data_ptr());
    const size_t bytes = table.get_byte_size();
    uint32_t tree_bytes = 0;
    const bool has_size = bytes >= sizeof(tree_bytes);
    if (has_size) std::memcpy(&tree_bytes, data, sizeof(tree_bytes));
    check_file(has_size && tree_bytes % 4 == 0 && tree_bytes < bytes - sizeof(tree_bytes), name,
               ": the normalisation of ", bytes, " bytes has a tree of ", tree_bytes);
    const size_t units = tree_bytes / 4, texts = bytes - sizeof(tree_bytes) - tree_bytes;
    check_file(units > 0 && data[bytes - 1] == 0, name,
               ": the normalisation's tree is empty, or its texts have no end");
    for (size_t i = 0; i < units; ++i) {
        uint32_t unit = 0;
        std::memcpy(&unit, data + sizeof(tree_bytes) + 4 * i, sizeof(unit));
        const size_t offset = size_t(unit >> 10) << ((unit & (1u << 9)) >> 6);
        const bool is_leaf = (unit >> 31) != 0;
        const bool is_inside = is_leaf ? (unit & 0x7FFFFFFF) < texts : ((i ^ offset) | 255) < units;
        check_file(is_inside, name, ": unit ", i, " of the normalisation's tree leads out of it");
    }
}

bool may_be(const ov::Output<ov::Node>& output, int64_t value) {
    const auto constant = ov::as_type_ptr<Constant>(output.get_node_shared_ptr());
    return !constant || constant->cast_vector<int64_t>() == std::vector<int64_t>{value};
}

/// Where every row of a ragged table is one string, begins are a Range of 0 to n and ends one of 1
/// to n + 1: with other numbers, rows lead out of the table. What is computed otherwise is not
/// seen.
void check_rows(const ov::Node& node, const std::string& name) {
    if (node.get_input_size() < 2) return;
    const auto begins = ov::as_type_ptr<ov::op::v4::Range>(node.get_input_node_shared_ptr(0)),
               ends = ov::as_type_ptr<ov::op::v4::Range>(node.get_input_node_shared_ptr(1));
    if (!begins || !ends) return;
    const auto one_more = ov::as_type_ptr<ov::op::v1::Add>(ends->get_input_node_shared_ptr(1));
    check_file(may_be(begins->input_value(0), 0) && may_be(begins->input_value(2), 1) &&
                   may_be(ends->input_value(0), 1) && may_be(ends->input_value(2), 1) &&
                   (!one_more || may_be(one_more->input_value(1), 1)),
               name, ": its rows must begin at 0, 1, 2... and end at 1, 2, 3...");
}

/// CombineSegments' inputs in threes: where runs of ids begin and end, and the ids. Those of
/// constants are added tokens.
void check_segments(const ov::Node& node, const std::string& name) {
    for (size_t i = 0; i + 2 < node.get_input_size(); i += 3) {
        const auto begins = constant_input(node, i), ends = constant_input(node, i + 1),
                   ids = constant_input(node, i + 2);
        if (!begins || !ends || !ids) continue;
        const auto begin = begins->cast_vector<int64_t>(), end = ends->cast_vector<int64_t>();
        const auto count = int64_t(ov::shape_size(ids->get_shape()));
        bool is_inside = begin.size() == end.size();
        for (size_t j = 0; is_inside && j < begin.size(); ++j)
            is_inside = 0 <= begin[j] && begin[j] <= end[j] && end[j] <= count;
        check_file(is_inside, name, ": added tokens must lie within their list of ", count);
    }
}

void check_node(const ov::Node& node, const std::string& name) {
    check_rows(node, name);
    if (std::string(node.get_type_name()) == "CombineSegments") check_segments(node, name);
    for (size_t i = 0; i + 2 < node.get_input_size(); ++i)
        if (const StringTable table(node, i); table) check_table(table, name);
    check_numbers(node, name);
    if (std::string(node.get_type_name()) != "CharsMapNormalization") return;
    const auto table = constant_input(node, node.get_input_size() - 1);
    if (table && table->get_element_type() == ov::element::u8) check_normalisation(*table, name);
}

}  // namespace

std::shared_ptr<Constant> constant_input(const ov::Node& node, size_t index) {
    return ov::as_type_ptr<Constant>(node.get_input_node_shared_ptr(index));
}

StringTable::StringTable(const ov::Node& node, size_t first)
    : begins(constant_input(node, first)),
      ends(constant_input(node, first + 1)),
      bytes(constant_input(node, first + 2)) {
    using namespace ov::element;
    if (!begins || !ends || !bytes || begins->get_element_type() != i32 ||
        ends->get_element_type() != i32 || bytes->get_element_type() != u8)
        begins = nullptr;
}

void check_string_graph(const ov::Model& graph, const std::string& where) {
    for (const auto& node : graph.get_ordered_ops())
        check_node(*node, concat(where, ": ", node->get_friendly_name()));
}

}  // namespace pagewheel
