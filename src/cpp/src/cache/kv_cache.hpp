// The memory behind the blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_memory.hpp"
#include "cache/reserved_memory.hpp"
#include "model/cache_geometry.hpp"
#include "openvino/runtime/infer_request.hpp"

namespace pagewheel {

/// One tensor per cache input. On CPU address space, so that blocks cost memory from their first
/// use on; on other devices OpenVINO's own tensors (no such device has run this yet).
class KvCache final : public BlockMemory {
public:
    KvCache(const CacheGeometry& geometry, size_t num_blocks, const ov::CompiledModel& model,
            bool on_cpu);

    /// Sets the tensors as inputs; once, they never move.
    void bind(ov::InferRequest& request) const;
    /// The bytes of cache input `port` (an index of the geometry's ports); on CPU only.
    uint8_t* data(size_t port) const { return static_cast<uint8_t*>(m_memory.at(port).data()); }

    size_t block_bytes() const override { return m_geometry.block_bytes; }
    void copy_block(BlockId from, BlockId to) override;
    /// On CPU only, as is write_block().
    void read_block(BlockId block, char* bytes) const override;
    void write_block(BlockId block, const char* bytes) override;
    void give_back(const BlockRange& blocks) override;

private:
    void check_own_memory() const;

    CacheGeometry m_geometry;
    std::vector<ReservedMemory> m_memory;  // by port; empty where the plugin allocates
    std::vector<ov::Tensor> m_tensors;     // by port
};

}  // namespace pagewheel
