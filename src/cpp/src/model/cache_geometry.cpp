#include "model/cache_geometry.hpp"

#include <map>
#include <string>

#include "check.hpp"

namespace pagewheel {
namespace {

/// The number behind `prefix` in one of the port's names, or -1.
int layer_of(const ov::Output<const ov::Node>& port, const std::string& prefix) {
    for (const std::string& name : port.get_names())
        if (name.rfind(prefix, 0) == 0) return std::stoi(name.substr(prefix.size()));
    return -1;
}

CachePort read_port(const ov::Output<const ov::Node>& port, size_t index) {
    const ov::PartialShape shape = port.get_partial_shape();
    const auto fail = [&] {
        throw std::runtime_error(
            concat("the cache input ", port.get_any_name(), " has shape ", shape,
                   "; the plugin should have fixed all but its first dimension"));
    };
    if (shape.rank().is_dynamic() || shape.size() != 4) fail();
    ov::Shape block;
    for (size_t i = 1; i < shape.size(); ++i) {
        if (shape[i].is_dynamic()) fail();
        block.push_back(size_t(shape[i].get_length()));
    }
    return {index, port.get_element_type(), block};
}

}  // namespace

size_t CachePort::block_bytes() const {
    return (ov::shape_size(block_shape) * type.bitwidth() + 7) / 8;
}

ov::Shape CachePort::shape(size_t num_blocks) const {
    ov::Shape shape{num_blocks};
    shape.insert(shape.end(), block_shape.begin(), block_shape.end());
    return shape;
}

CacheGeometry read_cache_geometry(const ov::CompiledModel& model) {
    std::map<std::pair<int, int>, CachePort> ports;  // by (layer, 0 for keys, 1 for values)
    CacheGeometry geometry;
    for (size_t i = 0; i < model.inputs().size(); ++i) {
        const auto& input = model.inputs()[i];
        if (const int layer = layer_of(input, "key_cache."); layer >= 0)
            ports.emplace(std::pair(layer, 0), read_port(input, i));
        if (const int layer = layer_of(input, "value_cache."); layer >= 0) {
            const CachePort port = read_port(input, i);
            // Values lie [kv_heads, block_size, ...] on every plugin; keys are transposed on GPU.
            geometry.block_size = port.block_shape[1];
            ports.emplace(std::pair(layer, 1), port);
        }
    }
    if (ports.empty() || geometry.block_size == 0)
        throw std::runtime_error("the model has no paged KV cache");
    for (auto& [key, port] : ports) {
        geometry.block_bytes += port.block_bytes();
        geometry.ports.push_back(std::move(port));
    }
    return geometry;
}

}  // namespace pagewheel
