#include "model/graph_file.hpp"

#include <fstream>
#include <string>

#include "check.hpp"

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

bool begins_as_graph(const std::filesystem::path& xml) {
    std::ifstream file(xml, std::ios::binary);
    std::string text(4096, '\0');
    file.read(text.data(), std::streamsize(text.size()));
    text.resize(size_t(file.gcount()));
    return text.compare(skip_prologue(text), 4, "<net") == 0;
}

}  // namespace

std::shared_ptr<ov::Model> read_graph(ov::Core& core, const std::filesystem::path& xml) {
    check_argument(std::filesystem::is_regular_file(xml) && begins_as_graph(xml), xml,
                   " is no OpenVINO graph: it must begin with <net>");
    return core.read_model(xml.string());
}

}  // namespace pagewheel
