#include "runtime/cache_description.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/check.hpp"
#include "cache/checksum.hpp"
#include "openvino/core/version.hpp"

namespace pagewheel {
namespace {

Checksum checksum_of_model(const std::filesystem::path& xml) {
    check_argument(std::filesystem::exists(xml), "prefixes of ", xml,
                   " cannot be saved or loaded: no file tells it from others");
    Checksum checksum;
    std::vector<char> piece(size_t(1) << 20);
    for (const char* extension : {".xml", ".bin"}) {
        std::ifstream file(std::filesystem::path(xml).replace_extension(extension),
                           std::ios::binary);
        while (file.read(piece.data(), std::streamsize(piece.size())), file.gcount() > 0)
            checksum.add(piece.data(), size_t(file.gcount()));
    }
    return checksum;
}

}  // namespace

std::string describe_cache(const CompiledGraph& graph) {
    const CacheGeometry& geometry = graph.geometry;
    std::ostringstream text;
    text << "model " << std::hex << checksum_of_model(graph.model_xml).value() << std::dec
         << "\ndevice " << graph.options.device << ", OpenVINO "
         << ov::get_openvino_version().buildNumber << graph.options.cache_properties
         << "\nblocks of " << geometry.block_size << " tokens in " << geometry.ports.size()
         << " caches";
    // Layers are alike for the most part: say a shape where it changes.
    const CachePort* previous = nullptr;
    for (const CachePort& port : geometry.ports) {
        const bool same =
            previous && previous->type == port.type && previous->block_shape == port.block_shape;
        if (!same) text << ", " << port.type << " " << port.block_shape;
        previous = &port;
    }
    return text.str();
}

}  // namespace pagewheel
