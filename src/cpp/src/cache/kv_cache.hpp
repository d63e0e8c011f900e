// The memory behind the blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/block_pool.hpp"
#include "model/cache_geometry.hpp"
#include "openvino/runtime/infer_request.hpp"

namespace pagewheel {

/// A range of zeroed bytes; the system commits memory as it is first written. Move-only.
class ReservedMemory {
public:
    /// Throws Error if the system refuses.
    explicit ReservedMemory(size_t bytes);

    void* data() const { return m_data.get(); }
    size_t size() const { return m_data.get_deleter().bytes; }
    /// Bytes [begin, end) are zero again and cost no memory until they are written, but for parts
    /// of pages at both ends, which stay as they are.
    void give_back(size_t begin, size_t end);

private:
    struct Unmap {
        size_t bytes;
        void operator()(void* data) const;
    };
    std::unique_ptr<void, Unmap> m_data;
};

/// One tensor per cache input: all its blocks, or all its states. On CPU address space, so that
/// blocks cost memory from their first use on; on other devices OpenVINO's own tensors (no such
/// device has run this yet).
class KvCache final : public BlockMemory {
public:
    /// Has states for as many blocks as there are.
    KvCache(const CacheGeometry& geometry, size_t num_blocks, const ov::CompiledModel& model,
            bool on_cpu);

    /// Sets the tensors as inputs; once, they never move.
    void bind(ov::InferRequest& request) const;
    /// The bytes of cache input `port` (an index of the geometry's ports); on CPU only.
    uint8_t* data(size_t port) const { return static_cast<uint8_t*>(m_memory.at(port).data()); }

    size_t block_bytes() const override { return m_geometry.block_bytes; }
    void copy_block(BlockId from, BlockId to) override;
    /// Throws on other devices than CPU, as does write_block().
    void read_block(BlockId block, char* bytes) const override;
    void write_block(BlockId block, const char* bytes) override;
    void give_back(const BlockRange& blocks) override;
    size_t state_bytes() const override { return m_geometry.state_bytes; }
    void read_state(StateId state, char* bytes) const override;
    void write_state(StateId state, const char* bytes) override;
    void give_back_states(const BlockRange& states) override;

private:
    void check_readable() const;

    CacheGeometry m_geometry;
    std::vector<ReservedMemory> m_memory;  // by port; empty where the plugin allocates
    std::vector<ov::Tensor> m_tensors;     // by port
    std::vector<ReservedMemory> m_state_memory;
    std::vector<ov::Tensor> m_states;
};

}  // namespace pagewheel
