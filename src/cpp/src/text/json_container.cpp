#include "pagewheel/json_container.hpp"

#include <utility>

#include "base/check.hpp"
#include "model/json_file.hpp"
#include "text/json_value.hpp"

namespace pagewheel {
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

bool JsonContainer::is_null() const {
    return m_impl->value().is_null();
}
bool JsonContainer::is_boolean() const {
    return m_impl->value().is_boolean();
}
bool JsonContainer::is_number() const {
    return m_impl->value().is_number();
}
bool JsonContainer::is_number_integer() const {
    return m_impl->value().is_number_integer();
}
bool JsonContainer::is_number_float() const {
    return m_impl->value().is_number_float();
}
bool JsonContainer::is_string() const {
    return m_impl->value().is_string();
}
bool JsonContainer::is_array() const {
    return m_impl->value().is_array();
}
bool JsonContainer::is_object() const {
    return m_impl->value().is_object();
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
