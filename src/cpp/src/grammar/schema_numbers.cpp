#include "grammar/json_schema.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include "base/check.hpp"
#include "pagewheel/grammar_matcher.hpp"

namespace pagewheel {
namespace {

using nlohmann::json;

constexpr double two_to_53 = 9007199254740992.0;
constexpr double two_to_63 = 9223372036854775808.0;
constexpr size_t max_levels = 100;  // what walks a value calls itself for each
constexpr uint64_t greatest_integer = std::numeric_limits<int64_t>::max();

/// A number without rounding, alike for all ways to write it: digits, the first and the last of
/// which are no zeros, times ten to the exponent.
std::string canonical(std::string_view text) {
    const std::string_view whole = text.substr(0, std::min(text.find_first_of("eE"), text.size()));
    const size_t point = std::min(whole.find('.'), whole.size());
    std::string digits;
    for (const char c : whole)
        if (c >= '0' && c <= '9' && (c != '0' || !digits.empty())) digits += c;
    int64_t exponent = 0;
    if (whole.size() < text.size()) {
        std::string_view given = text.substr(whole.size() + 1);
        if (!given.empty() && given[0] == '+') given.remove_prefix(1);
        // No double has a greater exponent: any other number will do.
        constexpr int64_t most = std::numeric_limits<int32_t>::max();
        const auto read = std::from_chars(given.data(), given.data() + given.size(), exponent);
        exponent = read.ec == std::errc() ? std::clamp(exponent, -most, most) : most;
    }
    if (point < whole.size()) exponent -= int64_t(whole.size() - point - 1);
    while (!digits.empty() && digits.back() == '0') {
        digits.pop_back();
        ++exponent;
    }
    const bool is_negative = !text.empty() && text[0] == '-';
    return concat(is_negative ? "-" : "", digits, 'e', digits.empty() ? 0 : exponent);
}

/// As llguidance writes a double: the fewest digits that read as the same.
std::string shortest_text(double value) {
    char text[64];
    const auto end =
        std::to_chars(text, text + sizeof(text), value, std::chars_format::scientific).ptr;
    return {text, end};
}

class SchemaReader final : public nlohmann::json_sax<json> {
public:
    json take() { return std::move(m_root); }
    const std::string& error() const { return m_error; }
    bool is_too_deep() const { return m_is_too_deep; }

    bool null() override { return put(nullptr); }
    bool boolean(bool value) override { return put(value); }
    bool number_integer(int64_t value) override { return put(value); }
    bool number_unsigned(uint64_t value) override { return put(value); }
    bool number_float(double value, const std::string& text) override {
        if (canonical(text) == canonical(shortest_text(value))) return put(value);
        return put(json::binary({text.begin(), text.end()}));
    }
    bool string(std::string& value) override { return put(std::move(value)); }
    bool binary(json::binary_t& value) override { return put(std::move(value)); }
    bool start_object(size_t /*size*/) override { return open(json::object()); }
    bool start_array(size_t /*size*/) override { return open(json::array()); }
    bool key(std::string& value) override {
        m_key = std::move(value);
        return true;
    }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool parse_error(size_t /*position*/, const std::string& /*token*/,
                     const json::exception& error) override {
        const std::string message = error.what();  // "[json.exception.parse_error.101] parse..."
        const size_t begin = message.find("] ");
        m_error = begin == std::string::npos ? message : message.substr(begin + 2);
        return false;
    }

private:
    bool put(json value) {
        add(std::move(value));
        return true;
    }
    bool open(json container) {
        if (m_open.size() == max_levels) {
            m_error = concat("a JSON schema of more than ", max_levels, " levels");
            m_is_too_deep = true;
            return false;
        }
        m_open.push_back(&add(std::move(container)));
        return true;
    }
    bool close() {
        m_open.pop_back();
        return true;
    }
    json& add(json value) {
        if (m_open.empty()) return m_root = std::move(value);
        json& parent = *m_open.back();
        if (parent.is_object()) return parent[m_key] = std::move(value);
        parent.push_back(std::move(value));
        return parent.back();
    }

    json m_root;
    std::vector<json*> m_open;  // their addresses stay: nothing is added to a container above
    std::string m_key;
    std::string m_error;
    bool m_is_too_deep = false;
};

std::string text_of(const json& number) {
    if (number.is_binary()) return {number.get_binary().begin(), number.get_binary().end()};
    return number.is_number_float() ? shortest_text(number.get<double>()) : number.dump();
}

double double_of(const json& number) {
    if (!number.is_binary()) return number.get<double>();
    const std::string text = text_of(number);
    double value = 0;  // stays where the number is too small for a double
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

bool has_only_integers(const json& schema) {
    const auto type = schema.find("type");
    if (type == schema.end()) return false;
    if (!type->is_array()) return *type == "integer";
    const auto has = [&](const char* name) {
        return std::find(type->begin(), type->end(), name) != type->end();
    };
    return has("integer") && !has("number");
}

/// Whether a whole number's upper bound is beyond those of 64 bits, at which llguidance ends
/// ranges.
bool is_above_integers(const json& number, const std::string& name, const json& schema) {
    const bool may_be_equal = name == "maximum";
    if (!may_be_equal && name != "exclusiveMaximum") return false;
    const uint64_t least = greatest_integer + (may_be_equal ? 0 : 1);
    return has_only_integers(schema) &&
           (double_of(number) > two_to_63 ||
            (number.is_number_unsigned() && number.get<uint64_t>() >= least));
}

/// Whether llguidance keeps the value of a keyword in an object of the schema. Its bounds and
/// constants are doubles and its whole numbers have 64 bits. Beyond them it takes others, or ends
/// the process (version 1.9.1).
bool is_kept(const json& number, const std::string& name, const json& schema) {
    const double value = double_of(number);
    if (std::abs(value) < two_to_53) return !number.is_binary();
    if (is_above_integers(number, name, schema)) return true;
    if (name.rfind("exclusive", 0) == 0) return false;  // llguidance adds 1 to the double
    if (std::abs(value) >= two_to_63) return false;
    const std::string exact = canonical(text_of(number));
    return exact == canonical(shortest_text(value)) &&
           exact == canonical(std::to_string(int64_t(value)));
}

/// Calls visit for each number within a value.
void for_each_number(const json& value, const std::function<void(const json&)>& visit) {
    if (value.is_number() || value.is_binary()) visit(value);
    if (value.is_structured())
        for (const json& each : value) for_each_number(each, visit);
}

/// Refuses numbers of keywords that restrict values.
struct NumberCheck {
    const char* whose;
    bool (*is_kept)(const json& number, const std::string& name, const json& schema);

    void check_number(const json& number, const std::string& name, const json& schema,
                      const SchemaPlace& place) const {
        if (is_kept(number, name, schema)) return;
        throw GrammarError(concat(whose, ": the number ", text_of(number).substr(0, 60),
                                  " cannot be kept exactly; at ", place.pointer()));
    }

    void check(const json& schema, const SchemaPlace& place = {}) const {
        if (schema.is_array())
            for (size_t i = 0; i < schema.size(); ++i) check(schema[i], {&place, nullptr, i});
        if (!schema.is_object()) return;
        for (const auto& [key, value] : schema.items()) {
            const std::string& name = key;
            const SchemaPlace inner{&place, &name};
            const auto is = [&](const char* each) { return name == each; };
            const bool is_bound = is("minimum") || is("maximum") || is("exclusiveMinimum") ||
                                  is("exclusiveMaximum") || is("multipleOf");
            if (is("const") || is("enum") || (is_bound && !value.is_structured()))
                for_each_number(value,
                                [&](const json& each) { check_number(each, name, schema, inner); });
            else
                check(value, inner);
        }
    }
};

}  // namespace

json parse_schema(const std::string& text) {
    SchemaReader reader;
    if (!json::sax_parse(text, &reader))
        throw GrammarError((reader.is_too_deep() ? "" : "JSON schema is no JSON: ") +
                           reader.error());
    return reader.take();
}

void check_numbers(const json& schema) {
    NumberCheck{"JSON schema", &is_kept}.check(schema);
}

void check_parsed_numbers(const std::string& tools) {
    const auto is_parsed = [](const json& number, const std::string&, const json&) {
        return !number.is_binary();
    };
    NumberCheck{"tools", is_parsed}.check(parse_schema(tools));
}

void check_lark_numbers(const std::string& lark) {
    const std::string mark = "%json";
    for (size_t at = lark.find(mark); at != std::string::npos; at = lark.find(mark, at + 1)) {
        SchemaReader reader;
        const auto begin = lark.begin() + ptrdiff_t(at + mark.size());
        // What is no JSON is refused by llguidance, with its line.
        if (json::sax_parse(begin, lark.end(), &reader, json::input_format_t::json, false))
            check_numbers(reader.take());
        else if (reader.is_too_deep())
            throw GrammarError(reader.error());
    }
}

std::string SchemaPlace::pointer() const {
    std::vector<const SchemaPlace*> path;
    for (const SchemaPlace* place = this; place->parent; place = place->parent)
        path.push_back(place);
    std::string text;
    for (size_t i = path.size(); i-- > 0;) {
        text += '/';
        if (!path[i]->key) text += std::to_string(path[i]->index);
        for (const char c : path[i]->key ? std::string_view(*path[i]->key) : std::string_view())
            if (c == '~' || c == '/')
                text += c == '~' ? "~0" : "~1";
            else
                text += c;
    }
    return text;
}

}  // namespace pagewheel
