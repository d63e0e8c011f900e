#include "ops/cache_directory.hpp"

#include <cstring>

#include "base/check.hpp"

namespace pagewheel {
namespace {

struct Entry {
    uint64_t address = 0, blocks = 0;
};
static_assert(sizeof(Entry) == cache_entry_bytes);

}  // namespace

ov::Tensor make_cache_directory(const std::vector<ov::Tensor>& caches) {
    ov::Tensor directory(ov::element::u8, {caches.size(), sizeof(Entry)});
    auto* bytes = directory.data<uint8_t>();
    for (const ov::Tensor& cache : caches) {
        const Entry entry{uint64_t(reinterpret_cast<uintptr_t>(cache.data())),
                          cache.get_shape().at(0)};
        std::memcpy(bytes, &entry, sizeof(entry));
        bytes += sizeof(entry);
    }
    return directory;
}

const std::vector<ov::Tensor>& CacheDirectory::read(const std::vector<CacheInput>& caches,
                                                    const ov::Tensor& directory) {
    const size_t size = caches.size() * sizeof(Entry);
    check_argument(
        directory.get_element_type() == ov::element::u8 && directory.get_byte_size() == size,
        "the cache directory is ", directory.get_element_type(), " ", directory.get_shape(),
        ", expected u8 [", caches.size(), ",", sizeof(Entry), "]");
    const auto* bytes = directory.data<const uint8_t>();
    if (m_tensors.size() == caches.size() && std::memcmp(m_bytes.data(), bytes, size) == 0)
        return m_tensors;
    m_tensors.clear();
    for (size_t i = 0; i < caches.size(); ++i) {
        Entry entry;
        std::memcpy(&entry, bytes + i * sizeof(Entry), sizeof(Entry));
        check_argument(entry.address != 0 && entry.blocks != 0, "the cache directory has no ",
                       caches[i].name);
        ov::Shape shape{size_t(entry.blocks)};
        shape.insert(shape.end(), caches[i].block_shape.begin(), caches[i].block_shape.end());
        m_tensors.emplace_back(caches[i].type, shape,
                               reinterpret_cast<void*>(uintptr_t(entry.address)));
    }
    m_bytes.assign(bytes, bytes + size);
    return m_tensors;
}

}  // namespace pagewheel
