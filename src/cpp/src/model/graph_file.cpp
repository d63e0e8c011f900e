#include "model/graph_file.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "model/json_file.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

constexpr std::string_view space = " \t\r\n";
constexpr std::string_view after_a_name = " \t\r\n=/<>\"'";

// What is no element and can hold anything that looks like one, with its end.
constexpr std::pair<std::string_view, std::string_view> opaque[] = {
    {"<!--", "-->"}, {"<![CDATA[", "]]>"}, {"<?", "?>"}};

/// Views into the text. Attributes are as they are written, their entities too.
struct XmlTag {
    enum class Kind { opens, closes, is_empty };

    Kind kind;
    std::string_view name;
    std::vector<std::pair<std::string_view, std::string_view>> attributes;

    /// The value of the first attribute of this name, which is the one that the parser gives.
    std::optional<std::string_view> attribute(std::string_view wanted) const {
        for (const auto& [key, value] : attributes)
            if (key == wanted) return value;
        return {};
    }
};

/// Goes once over a text, which must outlive it.
class XmlTags {
public:
    explicit XmlTags(std::string_view text) : m_text(text) {
        skip("\xEF\xBB\xBF");  // UTF-8's mark of byte order
    }
    /// Comments, declarations and CDATA are skipped. Nothing at the end of the text, and for ever
    /// after what is no tag.
    std::optional<XmlTag> next() {
        if (!skip_to_tag()) return {};
        const bool closes = skip("</");
        if (!closes) skip("<");
        XmlTag tag{closes ? XmlTag::Kind::closes : XmlTag::Kind::opens, read_name(), {}};
        if (tag.name.empty()) return fail();
        if (!closes && !read_attributes(tag)) return fail();
        skip_space();
        if (!closes && skip("/")) tag.kind = XmlTag::Kind::is_empty;
        if (!skip(">")) return fail();
        return tag;
    }
    /// Whether all up to here could be read.
    bool is_good() const { return m_is_good; }

private:
    bool skip_to_tag() {
        while (m_is_good) {
            m_at = std::min(m_text.find('<', m_at), m_text.size());
            if (m_at == m_text.size()) return false;
            const auto found = std::find_if(std::begin(opaque), std::end(opaque),
                                            [&](const auto& each) { return skip(each.first); });
            if (found == std::end(opaque)) return true;
            const size_t end = m_text.find(found->second, m_at);
            if (end == std::string_view::npos) fail();
            m_at = end + found->second.size();
        }
        return false;
    }
    void skip_space() { m_at = std::min(m_text.find_first_not_of(space, m_at), m_text.size()); }
    bool skip(std::string_view expected) {
        if (m_text.compare(m_at, expected.size(), expected) != 0) return false;
        m_at += expected.size();
        return true;
    }
    std::string_view read_name() {
        const size_t end = std::min(m_text.find_first_of(after_a_name, m_at), m_text.size());
        const std::string_view name = m_text.substr(m_at, end - m_at);
        m_at = end;
        return name;
    }
    bool read_attributes(XmlTag& tag) {
        for (;;) {
            skip_space();
            const std::string_view name = read_name();
            if (name.empty()) return true;
            skip_space();
            if (!skip("=")) return false;
            skip_space();
            const std::string_view quote = m_text.substr(m_at, 1);
            if (!skip("\"") && !skip("'")) return false;
            const size_t end = m_text.find(quote, m_at);
            if (end == std::string_view::npos) return false;
            tag.attributes.emplace_back(name, m_text.substr(m_at, end - m_at));
            m_at = end + 1;
        }
    }
    std::optional<XmlTag> fail() {
        m_is_good = false;
        return {};
    }

    std::string_view m_text;
    size_t m_at = 0;
    bool m_is_good = true;
};

/// OpenVINO finds an operation's type however its letters are written.
bool is_type(std::string_view text, std::string_view type) {
    return std::equal(text.begin(), text.end(), type.begin(), type.end(), [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) ==
               std::tolower(static_cast<unsigned char>(b));
    });
}

bool is_variable(const XmlTag& tag, const std::filesystem::path& xml) {
    if (tag.name != "layer") return false;
    const std::string_view type = tag.attribute("type").value_or("");
    check_file(type.find('&') == type.npos, xml, " is damaged: a layer's type is '", type, "'");
    return is_type(type, "ReadValue") || is_type(type, "Assign");
}

/// OpenVINO's reader takes for granted that each ReadValue and Assign names its variable, in the
/// first <data> of its layer.
void check_variables(std::string_view text, const std::filesystem::path& xml) {
    constexpr const char* no_name = " is damaged: a ReadValue or Assign has no variable_id";
    std::vector<bool> lacks_name;  // of each open element
    XmlTags tags(text);
    while (const auto tag = tags.next()) {
        if (tag->kind == XmlTag::Kind::closes) {
            check_file(!lacks_name.empty(), xml, " is damaged: </", tag->name, "> ends nothing");
            check_file(!lacks_name.back(), xml, no_name);
            lacks_name.pop_back();
            continue;
        }
        if (tag->name == "data" && !lacks_name.empty() && lacks_name.back()) {
            check_file(tag->attribute("variable_id").has_value(), xml, no_name);
            lacks_name.back() = false;
        }
        lacks_name.push_back(is_variable(*tag, xml));
        if (tag->kind != XmlTag::Kind::is_empty) continue;
        check_file(!lacks_name.back(), xml, no_name);
        lacks_name.pop_back();
    }
    check_file(tags.is_good(), xml, " is damaged: it is no XML");
}

void check_text(const std::string& text, const std::filesystem::path& xml) {
    const auto first = XmlTags(text).next();
    check_file(first && first->name == "net", xml,
               " is no OpenVINO graph: it must begin with <net>");
    check_variables(text, xml);
}

/// core.read_model() of these; errors call the graph `name`.
template <class... Sources>
std::shared_ptr<ov::Model> read_checked(ov::Core& core, const std::filesystem::path& name,
                                        const Sources&... sources) {
    try {
        return core.read_model(sources...);
    } catch (const ov::Exception& error) {
        refuse_argument(ErrorCode::file_invalid, name, " is damaged: ", reason(error));
    }
}

}  // namespace

std::shared_ptr<ov::Model> read_graph(ov::Core& core, const std::filesystem::path& xml) {
    check_text(read_text(xml), xml);
    const auto constants = std::filesystem::path(xml).replace_extension(".bin");
    if (std::filesystem::exists(constants)) check_is_file(constants);
    return read_checked(core, xml, xml.string());
}

std::shared_ptr<ov::Model> read_graph(ov::Core& core, const GraphBuffers& buffers,
                                      const std::filesystem::path& name) {
    check_text(buffers.xml, name);
    check_file(bool(buffers.weights) && buffers.weights.get_element_type() == ov::element::u8,
               "the weights of ", name, " must be a tensor of bytes (u8)");
    return read_checked(core, name, buffers.xml, buffers.weights);
}

}  // namespace pagewheel
