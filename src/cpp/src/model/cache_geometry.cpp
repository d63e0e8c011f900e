#include "model/cache_geometry.hpp"

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "model/port_names.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

enum Kind { KEYS, VALUES, CONVOLUTIONS, GATED_DELTAS, SELECTIVE_SSMS, num_kinds };

/// Where no layer attends, blocks still number a sequence's tokens, but take no memory. So that
/// they are not without end, these tokens count as much as a state does.
constexpr size_t uncached_block_size = 32, uncached_blocks_per_state = 256;

/// Whether a sequence has one of it, and not a block for some of its tokens.
bool is_state(Kind kind) {
    return kind > VALUES;
}

/// Number and kind of a cache of that name.
std::optional<std::pair<int, Kind>> place_of(const std::string& name) {
    const char* prefixes[num_kinds] = {ports::key_cache_prefix, ports::value_cache_prefix,
                                       ports::conv_state_prefix, ports::gated_delta_state_prefix,
                                       ports::selective_ssm_state_prefix};
    for (int i = 0; i < num_kinds; ++i) {
        const std::string prefix = prefixes[i];
        if (name.rfind(prefix, 0) == 0)
            return std::pair(std::stoi(name.substr(prefix.size())), Kind(i));
    }
    return {};
}

CachePort read_port(const ov::Output<const ov::Node>& port, size_t index, size_t rank) {
    const ov::PartialShape shape = port.get_partial_shape();
    const auto fail = [&] {
        throw Error(concat("the cache input ", port.get_any_name(), " has shape ", shape,
                           "; the plugin should have fixed all but its first dimension"),
                    ErrorCode::model_unsupported);
    };
    if (shape.rank().is_dynamic() || shape.size() != rank) fail();
    ov::Shape block;
    for (size_t i = 1; i < shape.size(); ++i) {
        if (shape[i].is_dynamic()) fail();
        block.push_back(size_t(shape[i].get_length()));
    }
    return {false, index, port.get_element_type(), block};
}

}  // namespace

LayerRotary rotary_of_layer(const RotaryDescription& rotary, size_t layer) {
    if (rotary.kinds.empty()) return {};
    const size_t number = rotary.kind_of(layer);
    return {rotary.kinds[number], number};
}

void LayerRotary::unrotate(int64_t position, size_t num_rows, size_t row_size, float* rows) const {
    const size_t half = dims / 2;
    std::vector<double> cosines(half), sines(half);
    for (size_t i = 0; i < half; ++i) {
        cosines[i] = std::cos(angle(position, i));
        sines[i] = std::sin(angle(position, i));
    }
    std::vector<float> turned(dims);
    for (size_t row = 0; row < num_rows; ++row, rows += row_size) {
        for (size_t i = 0; i < half; ++i) {
            const double a = rows[interleaved ? 2 * i : i];
            const double b = rows[interleaved ? 2 * i + 1 : i + half];
            turned[i] = float(a * cosines[i] + b * sines[i]);
            turned[i + half] = float(b * cosines[i] - a * sines[i]);
        }
        std::copy(turned.begin(), turned.end(), rows);
    }
}

size_t CachePort::block_bytes() const {
    return (ov::shape_size(block_shape) * type.bitwidth() + 7) / 8;
}

ov::Shape CachePort::shape(size_t num_blocks) const {
    ov::Shape shape{num_blocks};
    shape.insert(shape.end(), block_shape.begin(), block_shape.end());
    return shape;
}

CacheGeometry read_cache_geometry(const ov::CompiledModel& model,
                                  const std::vector<CacheInput>& directory) {
    std::map<std::pair<int, Kind>, CachePort> ports;
    CacheGeometry geometry;
    for (size_t i = 0; i < model.inputs().size(); ++i) {
        for (const std::string& name : model.inputs()[i].get_names()) {
            if (const auto place = place_of(name))
                ports.emplace(*place,
                              read_port(model.inputs()[i], i, is_state(place->second) ? 2 : 4));
            if (name == ports::cache_directory) geometry.directory_index = i;
        }
    }
    for (size_t i = 0; i < directory.size(); ++i)
        if (const auto place = place_of(directory[i].name))
            ports.emplace(*place, CachePort{true, i, directory[i].type, directory[i].block_shape});
    // Values lie [kv_heads, block_size, ...] on every plugin; keys are transposed on GPU.
    for (const auto& [place, port] : ports)
        if (place.second == VALUES) geometry.block_size = port.block_shape.at(1);
    if (ports.empty()) throw Error("the model has no paged KV cache", ErrorCode::model_unsupported);
    for (auto& [place, port] : ports) {
        const bool state = is_state(place.second);
        (state ? geometry.state_bytes : geometry.block_bytes) += port.block_bytes();
        (state ? geometry.states : geometry.ports).push_back(std::move(port));
    }
    if (geometry.block_size == 0) {
        geometry.block_size = uncached_block_size;
        geometry.block_bytes =
            (geometry.state_bytes + uncached_blocks_per_state - 1) / uncached_blocks_per_state;
    }
    return geometry;
}

}  // namespace pagewheel
