#include "cache/prefix_file.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

// The file: magic, description, then nodes, parents before children. A node is: its parent (the
// number of a node before it, or -1 and a key), its tokens, its block's bytes, a checksum of all
// that. A node without tokens is the end. Version 2 is that of models with states: checkpoints
// follow in the same form, with a state in the place of a block. Integers are in the byte order of
// the machine.
constexpr char magic[] = "pagewheel prefixes 1\n", magic_with_states[] = "pagewheel prefixes 2\n";
static_assert(sizeof magic == sizeof magic_with_states);
constexpr uint64_t longest_text = 1 << 16;

class Writer {
public:
    explicit Writer(const std::filesystem::path& path)
        : m_file(path, std::ios::binary | std::ios::trunc) {}
    void bytes(const void* data, size_t count) {
        m_file.write(static_cast<const char*>(data), std::streamsize(count));
        m_checksum.add(data, count);
    }
    template <class T>
    void number(T value) {
        bytes(&value, sizeof value);
    }
    void text(const std::string& text) {
        number(uint64_t(text.size()));
        bytes(text.data(), text.size());
    }
    void checksum() { number(m_checksum.value()); }
    bool close() {
        m_file.close();
        return m_file.good();
    }

private:
    std::ofstream m_file;
    Checksum m_checksum;
};

class Reader {
public:
    explicit Reader(const std::filesystem::path& path)
        : m_path(path), m_file(path, std::ios::binary) {
        check(m_file.is_open(), "it cannot be opened");
    }
    void check(bool ok, const char* what) const {
        if (!ok) throw Error(concat("the prefix cache cannot be loaded from ", m_path, ": ", what));
    }
    void bytes(void* data, size_t count) {
        m_file.read(static_cast<char*>(data), std::streamsize(count));
        check(size_t(m_file.gcount()) == count, "it ends too early");
        m_checksum.add(data, count);
    }
    template <class T>
    T number() {
        T value;
        bytes(&value, sizeof value);
        return value;
    }
    std::string text() {
        const auto size = number<uint64_t>();
        check(size <= longest_text, "it is damaged");
        std::string text(size, 0);
        bytes(text.data(), size);
        return text;
    }
    void checksum() {
        const uint64_t expected = m_checksum.value();
        check(number<uint64_t>() == expected, "it is damaged");
    }

private:
    std::filesystem::path m_path;
    std::ifstream m_file;
    Checksum m_checksum;
};

/// A block of the tree, or a checkpoint, that may be saved. Pointers are the tree's own.
struct Node {
    const PrefixKey* key;
    NodeId parent;
    int32_t id;  // of the block or state
    const std::vector<int64_t>* tokens;

    /// How many bytes it has in the file.
    uint64_t num_bytes(size_t block_bytes) const {
        const uint64_t head = parent < 0 ? 2 * sizeof(uint64_t) + key->salt.size() : 0;
        return 3 * sizeof(uint64_t) + head + tokens->size() * sizeof(int64_t) + block_bytes;
    }
};

std::vector<Node> nodes_of(const PrefixTree& tree, const PrefixSelection& selection) {
    std::vector<Node> nodes;
    tree.visit([&](const PrefixKey& key, NodeId parent, BlockId block,
                   const std::vector<int64_t>& tokens) {
        if (!selection.salts || selection.salts->count(key.salt) != 0)
            nodes.push_back({&key, parent, block, &tokens});
    });
    return nodes;
}

/// The nodes that were used last and take `room` bytes at most, in their order.
std::vector<Node> most_recent(const std::vector<Node>& nodes, const PrefixTree& tree,
                              size_t block_bytes, uint64_t room) {
    std::vector<size_t> order(nodes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return tree.last_use(nodes[a].id) > tree.last_use(nodes[b].id);
    });
    std::vector<bool> fits(nodes.size());
    for (const size_t i : order) {
        const uint64_t bytes = nodes[i].num_bytes(block_bytes);
        if (bytes > room) break;
        room -= bytes;
        fits[i] = true;
    }
    std::vector<Node> chosen;
    std::set<NodeId> blocks;
    for (size_t i = 0; i < nodes.size(); ++i) {
        // A child is of no use without its parent, though it may have been used later.
        if (!fits[i] || (nodes[i].parent >= 0 && blocks.count(nodes[i].parent) == 0)) continue;
        blocks.insert(nodes[i].id);
        chosen.push_back(nodes[i]);
    }
    return chosen;
}

/// What of a model with states is worth saving: checkpoints, those used last first, and the blocks
/// up to them. The rest of `nodes` is removed.
std::vector<Node> choose_checkpoints(std::vector<Node>& nodes, const PrefixTree& tree,
                                     const BlockMemory& cache, uint64_t room) {
    std::map<NodeId, size_t> places;  // of the nodes, by block
    for (size_t i = 0; i < nodes.size(); ++i) places[nodes[i].id] = i;
    std::vector<std::pair<Node, size_t>> found;  // each with the place of its last block
    tree.checkpoints().visit([&](NodeId parent, const std::vector<int64_t>& tokens, StateId state) {
        const auto last = std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) {
            return node.parent == parent && node.tokens->size() >= tokens.size() &&
                   std::equal(tokens.begin(), tokens.end(), node.tokens->begin());
        });
        if (last != nodes.end())
            found.push_back({{last->key, parent, state, &tokens}, size_t(last - nodes.begin())});
    });
    std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
        return tree.last_use(nodes[a.second].id) > tree.last_use(nodes[b.second].id);
    });
    std::vector<bool> is_chosen(nodes.size());
    std::vector<Node> checkpoints;
    for (const auto& [checkpoint, last] : found) {
        std::vector<size_t> path;
        uint64_t bytes = checkpoint.num_bytes(cache.state_bytes());
        for (size_t at = last; !is_chosen[at]; at = places.at(nodes[at].parent)) {
            path.push_back(at);
            bytes += nodes[at].num_bytes(cache.block_bytes());
            if (nodes[at].parent < 0) break;
        }
        if (bytes > room) continue;
        room -= bytes;
        for (const size_t at : path) is_chosen[at] = true;
        checkpoints.push_back(checkpoint);
    }
    std::vector<Node> chosen;
    for (size_t i = 0; i < nodes.size(); ++i)
        if (is_chosen[i]) chosen.push_back(nodes[i]);
    nodes = std::move(chosen);
    return checkpoints;
}

void write_node(Writer& file, const Node& node, const std::map<NodeId, int64_t>& numbers,
                const std::vector<char>& content) {
    file.number(uint64_t(node.tokens->size()));
    file.number(node.parent < 0 ? int64_t(-1) : numbers.at(node.parent));
    if (node.parent < 0) {
        file.text(node.key->salt);
        file.number(node.key->adapter);
    }
    file.bytes(node.tokens->data(), node.tokens->size() * sizeof(int64_t));
    file.bytes(content.data(), content.size());
    file.checksum();
}

void write_end(Writer& file) {
    file.number(uint64_t(0));
    file.checksum();
}

/// What is read of a node or a checkpoint, but for the content.
struct Record {
    int64_t parent = -1;
    PrefixKey key;  // where there is no parent
    std::vector<int64_t> tokens;
};

/// False at the end. Parents are less than `num_nodes`.
bool read_record(Reader& file, size_t block_size, size_t num_nodes, Record& record,
                 std::vector<char>& content) {
    const auto count = file.number<uint64_t>();
    if (count == 0) {
        file.checksum();
        return false;
    }
    record.parent = file.number<int64_t>();
    file.check(count <= block_size && record.parent >= -1 && record.parent < int64_t(num_nodes),
               "it is damaged");
    if (record.parent < 0) {
        record.key.salt = file.text();
        record.key.adapter = file.number<uint64_t>();
    }
    record.tokens.resize(count);
    file.bytes(record.tokens.data(), count * sizeof(int64_t));
    file.bytes(content.data(), content.size());
    file.checksum();
    return true;
}

}  // namespace

void save_prefixes(const std::filesystem::path& path, const std::string& description,
                   const PrefixTree& tree, const BlockMemory& cache,
                   const PrefixSelection& selection) {
    const bool has_states = cache.state_bytes() > 0;
    std::vector<Node> nodes = nodes_of(tree, selection), checkpoints;
    uint64_t room = std::numeric_limits<uint64_t>::max();
    if (selection.max_bytes > 0) {
        const uint64_t frame = sizeof magic + description.size() + 5 * sizeof(uint64_t);
        room = selection.max_bytes - std::min(selection.max_bytes, frame);
        if (!has_states) nodes = most_recent(nodes, tree, cache.block_bytes(), room);
    }
    if (has_states) checkpoints = choose_checkpoints(nodes, tree, cache, room);
    const std::filesystem::path unfinished = path.string() + ".unfinished";
    Writer file(unfinished);
    file.bytes(has_states ? magic_with_states : magic, sizeof magic);
    file.text(description);
    std::vector<char> content(cache.block_bytes());
    std::map<NodeId, int64_t> numbers;
    for (const Node& node : nodes) {
        cache.read_block(node.id, content.data());
        write_node(file, node, numbers, content);
        numbers.emplace(node.id, int64_t(numbers.size()));
    }
    write_end(file);
    content.resize(cache.state_bytes());
    for (const Node& checkpoint : checkpoints) {
        cache.read_state(checkpoint.id, content.data());
        write_node(file, checkpoint, numbers, content);
    }
    if (has_states) write_end(file);
    std::error_code error;
    const bool complete = file.close();
    if (complete) std::filesystem::rename(unfinished, path, error);
    if (!complete || error) {
        std::filesystem::remove(unfinished, error);
        throw Error(concat("the prefix cache cannot be saved to ", path));
    }
}

size_t load_prefixes(const std::filesystem::path& path, const std::string& description,
                     BlockStore& store, BlockMemory& cache) {
    Reader file(path);
    const bool has_states = cache.state_bytes() > 0;
    char start[sizeof magic];
    file.bytes(start, sizeof start);
    const bool is_either = std::memcmp(start, magic, sizeof magic) == 0 ||
                           std::memcmp(start, magic_with_states, sizeof magic) == 0;
    file.check(is_either, "it is no such file");
    const std::string own = file.text();
    check_argument(own == description, "the prefix cache in ", path,
                   " belongs to another model or cache format. It was saved with\n", own,
                   "and this pipeline has\n", description);
    file.check(std::memcmp(start, has_states ? magic_with_states : magic, sizeof magic) == 0,
               "it is damaged");
    PrefixTree& tree = store.tree();
    const size_t block_size = tree.block_size();
    std::vector<char> content(cache.block_bytes());
    std::vector<BlockId> blocks;  // by the file's numbers; -1: left out, and all below it
    std::vector<size_t> ends;     // by the file's numbers: tokens up to the node's last
    std::vector<BlockId> taken;
    Record record;
    size_t num_tokens = 0;
    const auto parent_of = [&](const Record& each) {
        return each.parent < 0 ? tree.root(each.key) : blocks[size_t(each.parent)];
    };
    const auto begin_of = [&](const Record& each) {
        return each.parent < 0 ? 0 : ends[size_t(each.parent)];
    };
    const auto add_node = [&] {
        const size_t count = record.tokens.size();
        blocks.push_back(-1);
        ends.push_back(begin_of(record) + count);
        const bool has_parent = record.parent < 0 || blocks[size_t(record.parent)] >= 0;
        if (store.pool().num_free() == 0 || !has_parent) return;
        const BlockId own_block = store.take();
        taken.push_back(own_block);
        cache.write_block(own_block, content.data());
        const BlockId block =
            tree.insert(parent_of(record), record.tokens.data(), count, own_block);
        if (block == own_block) num_tokens += count;
        // Nothing lies below a node that is not full; it may be another's longer one.
        if (count == block_size) blocks.back() = block;
    };
    const auto add_checkpoint = [&] {
        const bool has_parent = record.parent < 0 || blocks[size_t(record.parent)] >= 0;
        if (!has_parent || store.pool().num_free() < store.blocks_per_state() ||
            tree.checkpoints().size() >= store.max_checkpoints())
            return;
        const StateId state = store.take_state();
        cache.write_state(state, content.data());
        store.keep_checkpoint(parent_of(record), record.tokens.data(), record.tokens.size(), state,
                              begin_of(record) + record.tokens.size());
        store.release_state(state);
    };
    const auto let_go = [&] {
        for (auto block = taken.rbegin(); block != taken.rend(); ++block) store.release(*block);
    };
    try {
        while (read_record(file, block_size, blocks.size(), record, content)) add_node();
        content.resize(cache.state_bytes());
        while (has_states && read_record(file, block_size, blocks.size(), record, content))
            add_checkpoint();
    } catch (...) {
        let_go();
        throw;
    }
    let_go();
    return num_tokens;
}

}  // namespace pagewheel
