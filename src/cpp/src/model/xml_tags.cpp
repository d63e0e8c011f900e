#include "model/xml_tags.hpp"

#include <algorithm>

namespace pagewheel {
namespace {

constexpr std::string_view space = " \t\r\n";
constexpr std::string_view after_a_name = " \t\r\n=/<>\"'";

// What is no element and can hold anything that looks like one, with its end.
constexpr std::pair<std::string_view, std::string_view> opaque[] = {
    {"<!--", "-->"}, {"<![CDATA[", "]]>"}, {"<?", "?>"}};

}  // namespace

std::optional<std::string_view> XmlTag::attribute(std::string_view wanted) const {
    for (const auto& [key, value] : attributes)
        if (key == wanted) return value;
    return {};
}

XmlTags::XmlTags(std::string_view text) : m_text(text) {
    skip("\xEF\xBB\xBF");  // UTF-8's mark of byte order
}

std::optional<XmlTag> XmlTags::next() {
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

bool XmlTags::skip_to_tag() {
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

void XmlTags::skip_space() {
    m_at = std::min(m_text.find_first_not_of(space, m_at), m_text.size());
}

bool XmlTags::skip(std::string_view expected) {
    if (m_text.compare(m_at, expected.size(), expected) != 0) return false;
    m_at += expected.size();
    return true;
}

std::string_view XmlTags::read_name() {
    const size_t end = std::min(m_text.find_first_of(after_a_name, m_at), m_text.size());
    const std::string_view name = m_text.substr(m_at, end - m_at);
    m_at = end;
    return name;
}

bool XmlTags::read_attributes(XmlTag& tag) {
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

std::optional<XmlTag> XmlTags::fail() {
    m_is_good = false;
    return {};
}

}  // namespace pagewheel
