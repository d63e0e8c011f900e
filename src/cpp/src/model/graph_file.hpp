// The graphs of a model: openvino_*.xml with their constants in the .bin beside them, or both in
// memory.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "openvino/core/attribute_visitor.hpp"
#include "openvino/core/model.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/tensor.hpp"

namespace pagewheel {

/// Throws InvalidArgument for a file that is no OpenVINO IR: OpenVINO would try its readers
/// of other formats on it.
std::shared_ptr<ov::Model> read_graph(ov::Core& core, const std::filesystem::path& xml);

/// A graph that is in no file, as that of an encrypted model.
struct GraphBuffers {
    std::string xml;
    ov::Tensor weights;  ///< u8, what the .bin would hold; the graph goes on using it
};

/// Reads a graph in memory; errors call it `name`.
std::shared_ptr<ov::Model> read_graph(ov::Core& core, const GraphBuffers& buffers,
                                      const std::filesystem::path& name);

/// An attribute of an operation, which must be a bool or a double there; none if it has no such.
template <class T>
std::optional<T> find_attribute(ov::Node& node, const std::string& name) {
    struct Reader final : ov::AttributeVisitor {
        explicit Reader(const std::string& wanted) : wanted(wanted) {}
        void on_adapter(const std::string&, ov::ValueAccessor<void>&) override {}
        void on_adapter(const std::string& found_name, ov::ValueAccessor<T>& adapter) override {
            if (found_name == wanted) found = adapter.get();
        }
        const std::string& wanted;
        std::optional<T> found;
    };
    Reader reader(name);
    node.visit_attributes(reader);
    return reader.found;
}

}  // namespace pagewheel
