#include "text/json_value.hpp"

#include <vector>

#include "base/check.hpp"

namespace pagewheel {

using json = nlohmann::ordered_json;

const json& JsonContainer::Impl::value() const {
    check_argument(m_root->contains(m_place), "JSON has nothing at ", m_place.to_string());
    return m_root->at(m_place);
}

json& JsonContainer::Impl::place() const {
    if (m_root->contains(m_place)) return m_root->at(m_place);
    const auto parent = m_place.parent_pointer();
    check_argument(m_root->contains(parent), "JSON has nothing at ", parent.to_string());
    json& object = m_root->at(parent);
    check_argument(object.is_object() || object.is_null(), "JSON at '", parent.to_string(), "' is ",
                   object.type_name(), ", which has no member ", m_place.back(),
                   " to set; allowed: object");
    return object[m_place.back()];
}

namespace {

template <class T>
json json_of(const T& value) {
    return value;
}
json json_of(const JsonContainer& value) {
    return value.impl().value();
}
json json_of(const ov::Any& value) {
    return json_of_any(value);
}
json json_of(const ov::AnyMap& map) {
    json object = json::object();
    for (const auto& [key, value] : map) object[key] = json_of_any(value);
    return object;
}

/// Sets `out` if the value is a list of T.
template <class T>
bool take_list(const ov::Any& value, json& out) {
    if (!value.is<std::vector<T>>()) return false;
    out = json::array();
    for (const auto& element : value.as<std::vector<T>>()) out.push_back(json_of(T(element)));
    return true;
}

/// Sets `out` if the value is a T, or a list of them.
template <class T>
bool take(const ov::Any& value, json& out) {
    if (!value.is<T>()) return take_list<T>(value, out);
    out = json_of(value.as<T>());
    return true;
}

template <class... Types>
bool take_any(const ov::Any& value, json& out) {
    return (take<Types>(value, out) || ...);
}

}  // namespace

json json_of_any(const ov::Any& value) {
    json out;
    if (value.empty() || value.is<std::nullptr_t>()) return out;
    const bool taken = take_any<std::string, bool, int, int64_t, unsigned, size_t, float, double,
                                JsonContainer, ov::AnyMap>(value, out) ||
                       take_list<ov::Any>(value, out);
    check_argument(taken, "a value has type ", value.type_info().name(),
                   ", which JSON has not; allowed: text, bool, numbers, JsonContainer, ov::AnyMap "
                   "and std::vector of them");
    return out;
}

}  // namespace pagewheel
