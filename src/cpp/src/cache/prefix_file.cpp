#include "cache/prefix_file.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
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
// that. A node without tokens is the end. Integers are in the byte order of the machine.
constexpr char magic[] = "pagewheel prefixes 1\n";
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

/// A block of the tree that may be saved. Pointers are the tree's own.
struct Node {
    const PrefixKey* key;
    NodeId parent;
    BlockId block;
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
        return tree.last_use(nodes[a].block) > tree.last_use(nodes[b].block);
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
        blocks.insert(nodes[i].block);
        chosen.push_back(nodes[i]);
    }
    return chosen;
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

}  // namespace

void save_prefixes(const std::filesystem::path& path, const std::string& description,
                   const PrefixTree& tree, const BlockMemory& cache,
                   const PrefixSelection& selection) {
    std::vector<Node> nodes = nodes_of(tree, selection);
    if (selection.max_bytes > 0) {
        const uint64_t frame = sizeof magic + description.size() + 3 * sizeof(uint64_t);
        const uint64_t room = selection.max_bytes - std::min(selection.max_bytes, frame);
        nodes = most_recent(nodes, tree, cache.block_bytes(), room);
    }
    const std::filesystem::path unfinished = path.string() + ".unfinished";
    Writer file(unfinished);
    file.bytes(magic, sizeof magic);
    file.text(description);
    std::vector<char> content(cache.block_bytes());
    std::map<NodeId, int64_t> numbers;
    for (const Node& node : nodes) {
        cache.read_block(node.block, content.data());
        write_node(file, node, numbers, content);
        numbers.emplace(node.block, int64_t(numbers.size()));
    }
    file.number(uint64_t(0));
    file.checksum();
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
    char start[sizeof magic];
    file.bytes(start, sizeof start);
    file.check(std::memcmp(start, magic, sizeof magic) == 0, "it is no such file");
    const std::string own = file.text();
    check_argument(own == description, "the prefix cache in ", path,
                   " belongs to another model or cache format. It was saved with\n", own,
                   "and this pipeline has\n", description);
    PrefixTree& tree = store.tree();
    const size_t block_size = tree.block_size();
    std::vector<char> content(cache.block_bytes());
    std::vector<BlockId> blocks;  // by the file's numbers; -1: left out, and all below it
    std::vector<BlockId> taken;
    std::vector<int64_t> tokens;
    size_t num_tokens = 0;
    const auto read_node = [&] {
        const auto count = file.number<uint64_t>();
        if (count == 0) {
            file.checksum();
            return false;
        }
        const auto parent = file.number<int64_t>();
        file.check(count <= block_size && parent >= -1 && parent < int64_t(blocks.size()),
                   "it is damaged");
        PrefixKey key;
        if (parent < 0) {
            key.salt = file.text();
            key.adapter = file.number<uint64_t>();
        }
        tokens.resize(count);
        file.bytes(tokens.data(), count * sizeof(int64_t));
        file.bytes(content.data(), content.size());
        file.checksum();
        blocks.push_back(-1);
        if (store.pool().num_free() == 0 || (parent >= 0 && blocks[size_t(parent)] < 0))
            return true;
        const BlockId own_block = store.take();
        taken.push_back(own_block);
        cache.write_block(own_block, content.data());
        const NodeId below = parent < 0 ? tree.root(key) : blocks[size_t(parent)];
        const BlockId block = tree.insert(below, tokens.data(), count, own_block);
        if (block == own_block) num_tokens += count;
        // Nothing lies below a node that is not full; it may be another's longer one.
        if (count == block_size) blocks.back() = block;
        return true;
    };
    const auto let_go = [&] {
        for (auto block = taken.rbegin(); block != taken.rend(); ++block) store.release(*block);
    };
    try {
        while (read_node()) {
        }
    } catch (...) {
        let_go();
        throw;
    }
    let_go();
    return num_tokens;
}

}  // namespace pagewheel
