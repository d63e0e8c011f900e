#include "grammar/constant_text.hpp"

namespace pagewheel {

std::vector<ConstantPart> split_at_special_tokens(
    const std::string& text, const std::vector<std::pair<std::string, int64_t>>& special_tokens) {
    std::vector<ConstantPart> parts;
    std::string plain;
    const auto end_plain = [&] {
        if (!plain.empty()) parts.push_back({plain});
        plain.clear();
    };
    for (size_t i = 0; i < text.size();) {
        const std::pair<std::string, int64_t>* longest = nullptr;
        for (const auto& special : special_tokens) {
            const std::string& name = special.first;
            if (name.empty() || text.compare(i, name.size(), name) != 0) continue;
            if (!longest || name.size() > longest->first.size()) longest = &special;
        }
        if (longest) {
            end_plain();
            parts.push_back({longest->first, longest->second});
            i += longest->first.size();
        } else {
            plain += text[i++];
        }
    }
    end_plain();
    if (parts.empty()) parts.push_back({});
    return parts;
}

}  // namespace pagewheel
