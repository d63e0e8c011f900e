// The graphs of a model: openvino_*.xml with their constants in the .bin beside them, or both in
// memory.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "openvino/core/model.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/tensor.hpp"

namespace pagewheel {

/// Views into the text. Attributes are as they are written, their entities too.
struct XmlTag {
    enum class Kind { opens, closes, is_empty };

    Kind kind;
    std::string_view name;
    std::vector<std::pair<std::string_view, std::string_view>> attributes;

    /// The value of the first attribute of this name, which is the one that the parser gives.
    std::optional<std::string_view> attribute(std::string_view name) const;
};

/// Goes once over a text, which must outlive it.
class XmlTags {
public:
    explicit XmlTags(std::string_view text);
    /// Comments, declarations and CDATA are skipped. Nothing at the end of the text, and for ever
    /// after what is no tag.
    std::optional<XmlTag> next();
    /// Whether all up to here could be read.
    bool is_good() const { return m_is_good; }

private:
    bool skip_to_tag();
    void skip_space();
    bool skip(std::string_view expected);
    std::string_view read_name();
    bool read_attributes(XmlTag& tag);
    std::optional<XmlTag> fail();

    std::string_view m_text;
    size_t m_at = 0;
    bool m_is_good = true;
};

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

}  // namespace pagewheel
