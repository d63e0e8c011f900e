#include "pagewheel/json_container.hpp"

#include <utility>
#include <vector>

#include "base/check.hpp"
#include "model/json_file.hpp"
#include "text/json_value.hpp"

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

namespace {

using json = nlohmann::ordered_json;

template <class T>
std::optional<T> value_if(bool is_it, const json& value) {
    return is_it ? std::optional<T>(value.get<T>()) : std::nullopt;
}

template <class T>
T checked(const std::optional<T>& value, const char* type, const json& json) {
    check_argument(value.has_value(), "JSON is ", json.type_name(), "; asked for ", type);
    return *value;
}

}  // namespace

JsonContainer::JsonContainer(std::unique_ptr<Impl> impl) : m_impl(std::move(impl)) {}
JsonContainer::JsonContainer() : m_impl(std::make_unique<Impl>(json::object())) {}
JsonContainer::JsonContainer(std::initializer_list<std::pair<std::string, ov::Any>> members)
    : JsonContainer() {
    json& object = m_impl->place();
    for (const auto& [key, value] : members) object[key] = json_of_any(value);
}
JsonContainer::JsonContainer(const ov::AnyMap& members)
    : m_impl(std::make_unique<Impl>(json_of_any(ov::Any(members)))) {}
JsonContainer::JsonContainer(const JsonContainer& other)
    : m_impl(std::make_unique<Impl>(other.m_impl->value())) {}
JsonContainer::JsonContainer(JsonContainer&& other) noexcept = default;
JsonContainer& JsonContainer::operator=(const JsonContainer& other) {
    json value = other.m_impl->value();  // which may be a part of what changes
    if (!m_impl) m_impl = std::make_unique<Impl>(nullptr);
    m_impl->place() = std::move(value);
    return *this;
}
JsonContainer& JsonContainer::operator=(JsonContainer&& other) {
    return *this = std::as_const(other);
}
JsonContainer::~JsonContainer() = default;

JsonContainer JsonContainer::of_scalar(const Scalar& value) {
    return JsonContainer(
        std::visit([](const auto& each) { return std::make_unique<Impl>(json(each)); }, value));
}
JsonContainer JsonContainer::object() {
    return JsonContainer();
}
JsonContainer JsonContainer::array() {
    return JsonContainer(std::make_unique<Impl>(json::array()));
}
JsonContainer JsonContainer::from_json_string(const std::string& text) {
    json value = parse_ordered_json(text, "a text");
    check_argument(!value.is_discarded(), "a text is not JSON: ", text);
    return JsonContainer(std::make_unique<Impl>(std::move(value)));
}
std::string JsonContainer::to_json_string(int indent) const {
    return json_text(m_impl->value(), indent);
}

JsonContainer JsonContainer::share() const {
    return JsonContainer(std::make_unique<Impl>(*m_impl));
}
JsonContainer JsonContainer::operator[](const std::string& key) const {
    return JsonContainer(std::make_unique<Impl>(m_impl->at(key)));
}
JsonContainer JsonContainer::operator[](size_t index) const {
    const json& array = m_impl->value();
    check_argument(array.is_array() && index < array.size(), "JSON is ", array.type_name(),
                   " of size ", array.size(), "; it has no element ", index);
    return JsonContainer(std::make_unique<Impl>(m_impl->at(index)));
}

JsonContainer& JsonContainer::push_back(const JsonContainer& value) {
    json element = value.m_impl->value();
    json& array = m_impl->place();
    if (array.is_null() || (array.is_object() && array.empty())) array = json::array();
    check_argument(array.is_array(), "push_back() to JSON that is ", array.type_name(),
                   "; allowed: array");
    array.push_back(std::move(element));
    return *this;
}
bool JsonContainer::contains(const std::string& key) const {
    return m_impl->value().contains(key);
}
void JsonContainer::erase(const std::string& key) const {
    check_argument(contains(key), "JSON has no member '", key, "' to erase");
    m_impl->place().erase(key);
}
void JsonContainer::erase(size_t index) const {
    json& array = m_impl->place();
    check_argument(array.is_array() && index < array.size(), "JSON is ", array.type_name(),
                   " of size ", array.size(), "; it has no element ", index, " to erase");
    array.erase(index);
}
void JsonContainer::clear() const {
    m_impl->place().clear();
}
size_t JsonContainer::size() const {
    return m_impl->value().size();
}
bool JsonContainer::empty() const {
    return m_impl->value().empty();
}
JsonContainer& JsonContainer::to_empty_object() {
    m_impl->place() = json::object();
    return *this;
}
JsonContainer& JsonContainer::to_empty_array() {
    m_impl->place() = json::array();
    return *this;
}
JsonContainer& JsonContainer::concatenate(const JsonContainer& other) {
    const json added = other.m_impl->value();
    json& value = m_impl->place();
    check_argument(value.type() == added.type() && value.is_structured(), "JSON that is ",
                   value.type_name(), " and JSON that is ", added.type_name(),
                   " cannot be joined; allowed: two objects, two arrays");
    if (value.is_object())
        value.update(added);
    else
        value.insert(value.end(), added.begin(), added.end());
    return *this;
}

bool JsonContainer::is_number_integer() const {
    return m_impl->value().is_number_integer();
}
bool JsonContainer::is_number_float() const {
    return m_impl->value().is_number_float();
}
std::string JsonContainer::type_name() const {
    return m_impl->value().type_name();
}

std::optional<bool> JsonContainer::as_bool() const {
    return value_if<bool>(is_boolean(), m_impl->value());
}
std::optional<int64_t> JsonContainer::as_int() const {
    return value_if<int64_t>(is_number_integer(), m_impl->value());
}
std::optional<double> JsonContainer::as_double() const {
    return value_if<double>(is_number(), m_impl->value());
}
std::optional<std::string> JsonContainer::as_string() const {
    return value_if<std::string>(is_string(), m_impl->value());
}
bool JsonContainer::get_bool() const {
    return checked(as_bool(), "boolean", m_impl->value());
}
int64_t JsonContainer::get_int() const {
    return checked(as_int(), "integer", m_impl->value());
}
double JsonContainer::get_double() const {
    return checked(as_double(), "number", m_impl->value());
}
std::string JsonContainer::get_string() const {
    return checked(as_string(), "string", m_impl->value());
}

bool JsonContainer::operator==(const JsonContainer& other) const {
    return m_impl->value() == other.m_impl->value();
}

}  // namespace pagewheel
