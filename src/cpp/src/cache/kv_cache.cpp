#include "cache/kv_cache.hpp"

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.hpp"
#include "openvino/runtime/remote_context.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

using Parts = std::vector<ReservedMemory>;

/// Copies the parts of a block, or of a state, one after another.
void read_parts(const std::vector<CachePort>& ports, const Parts& memory, int32_t id, char* bytes) {
    for (size_t i = 0; i < ports.size(); ++i) {
        const size_t count = ports[i].block_bytes();
        std::memcpy(bytes, static_cast<char*>(memory[i].data()) + size_t(id) * count, count);
        bytes += count;
    }
}

void write_parts(const std::vector<CachePort>& ports, const Parts& memory, int32_t id,
                 const char* bytes) {
    for (size_t i = 0; i < ports.size(); ++i) {
        const size_t count = ports[i].block_bytes();
        std::memcpy(static_cast<char*>(memory[i].data()) + size_t(id) * count, bytes, count);
        bytes += count;
    }
}

}  // namespace

ReservedMemory::ReservedMemory(size_t bytes) : m_data(nullptr, Unmap{bytes}) {
    if (bytes == 0) return;
    void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
        throw Error(
            concat("cannot reserve ", bytes, " bytes of address space: ", std::strerror(errno)));
    m_data.reset(data);
}

void ReservedMemory::Unmap::operator()(void* data) const {
    munmap(data, bytes);
}

void ReservedMemory::give_back(size_t begin, size_t end) {
    const auto page = size_t(sysconf(_SC_PAGE_SIZE));
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
    if (begin < end) madvise(static_cast<char*>(data()) + begin, end - begin, MADV_DONTNEED);
}

KvCache::KvCache(const CacheGeometry& geometry, size_t num_blocks, const ov::CompiledModel& model,
                 bool on_cpu)
    : m_geometry(geometry) {
    for (const CachePort& port : geometry.ports) {
        const ov::Shape shape = port.shape(num_blocks);
        if (on_cpu) {
            m_memory.emplace_back(port.block_bytes() * num_blocks);
            m_tensors.emplace_back(port.type, shape, m_memory.back().data());
        } else {
            m_tensors.push_back(model.get_context().create_tensor(port.type, shape));
        }
    }
    check_invariant(on_cpu || geometry.states.empty(), "states are kept on CPU only");
    for (const CachePort& port : geometry.states) {
        const ov::Shape shape = port.shape(num_blocks / geometry.blocks_per_state());
        m_state_memory.emplace_back(port.block_bytes() * shape[0]);
        m_states.emplace_back(port.type, shape, m_state_memory.back().data());
    }
}

void KvCache::bind(ov::InferRequest& request) const {
    std::vector<ov::Tensor> directory;
    const auto bind_port = [&](const CachePort& port, const ov::Tensor& tensor) {
        if (!port.in_directory) return request.set_input_tensor(port.index, tensor);
        directory.resize(std::max(directory.size(), port.index + 1));
        directory[port.index] = tensor;
    };
    for (size_t i = 0; i < m_tensors.size(); ++i) bind_port(m_geometry.ports[i], m_tensors[i]);
    for (size_t i = 0; i < m_states.size(); ++i) bind_port(m_geometry.states[i], m_states[i]);
    if (!directory.empty())
        request.set_input_tensor(m_geometry.directory_index, make_cache_directory(directory));
}

void KvCache::copy_block(BlockId from, BlockId to) {
    for (size_t i = 0; i < m_tensors.size(); ++i) {
        if (!m_memory.empty()) {
            const size_t bytes = m_geometry.ports[i].block_bytes();
            auto* base = static_cast<char*>(m_memory[i].data());
            std::memcpy(base + size_t(to) * bytes, base + size_t(from) * bytes, bytes);
            continue;
        }
        const auto block = [&](BlockId id) {
            ov::Coordinate begin(m_tensors[i].get_shape().size(), 0), end(m_tensors[i].get_shape());
            begin[0] = size_t(id);
            end[0] = size_t(id) + 1;
            return ov::Tensor(m_tensors[i], begin, end);
        };
        block(from).copy_to(block(to));
    }
}

void KvCache::check_readable() const {
    check_argument(!m_memory.empty() || !m_state_memory.empty(),
                   "blocks of the KV cache can be saved and loaded on CPU only");
}

void KvCache::read_block(BlockId block, char* bytes) const {
    check_readable();
    read_parts(m_geometry.ports, m_memory, block, bytes);
}

void KvCache::write_block(BlockId block, const char* bytes) {
    check_readable();
    write_parts(m_geometry.ports, m_memory, block, bytes);
}

void KvCache::read_state(StateId state, char* bytes) const {
    read_parts(m_geometry.states, m_state_memory, state, bytes);
}

void KvCache::write_state(StateId state, const char* bytes) {
    write_parts(m_geometry.states, m_state_memory, state, bytes);
}

void KvCache::give_back(const BlockRange& blocks) {
    for (size_t i = 0; i < m_memory.size(); ++i) {
        const size_t bytes = m_geometry.ports[i].block_bytes();
        m_memory[i].give_back(size_t(blocks.begin) * bytes, size_t(blocks.end) * bytes);
    }
}

void KvCache::give_back_states(const BlockRange& states) {
    for (size_t i = 0; i < m_state_memory.size(); ++i) {
        const size_t bytes = m_geometry.states[i].block_bytes();
        m_state_memory[i].give_back(size_t(states.begin) * bytes, size_t(states.end) * bytes);
    }
}

}  // namespace pagewheel
