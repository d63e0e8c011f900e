#include "model/graph_file.hpp"

#include <string>

#include "check.hpp"
#include "model/text_file.hpp"

namespace pagewheel {
namespace {

/// Where `text` goes on after white space, declarations and comments.
size_t skip_prologue(const std::string& text) {
    size_t at = text.rfind("\xEF\xBB\xBF", 0) == 0 ? 3 : 0;
    for (;;) {
        at = text.find_first_not_of(" \t\r\n", at);
        if (at == std::string::npos) return text.size();
        const bool comment = text.compare(at, 4, "<!--") == 0;
        if (!comment && text.compare(at, 2, "<?") != 0) return at;
        const char* end = comment ? "-->" : "?>";
        at = text.find(end, at);
        if (at == std::string::npos) return text.size();
        at += std::char_traits<char>::length(end);
    }
}

/// Whether each ReadValue and Assign names its variable: OpenVINO's reader takes that for granted.
bool variables_are_named(const std::string& text) {
    for (const char* type : {"type=\"ReadValue\"", "type=\"Assign\""})
        for (size_t at = text.find(type); at != std::string::npos; at = text.find(type, at + 1)) {
            const size_t name = text.find("variable_id=\"", at), end = text.find("</layer>", at);
            if (name == std::string::npos || name > end) return false;
        }
    return true;
}

}  // namespace

std::shared_ptr<ov::Model> read_graph(ov::Core& core, const std::filesystem::path& xml) {
    const std::string text = read_text(xml);
    check_argument(text.compare(skip_prologue(text), 4, "<net") == 0, xml,
                   " is no OpenVINO graph: it must begin with <net>");
    check_argument(variables_are_named(text), xml,
                   " is damaged: a ReadValue or Assign has no variable_id");
    const auto constants = std::filesystem::path(xml).replace_extension(".bin");
    if (std::filesystem::exists(constants)) check_is_file(constants);
    return core.read_model(xml.string());
}

}  // namespace pagewheel
