// What a JsonContainer holds: a place in a JSON value that others may see too.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "pagewheel/json_container.hpp"

namespace pagewheel {

class JsonContainer::Impl {
public:
    using Json = nlohmann::ordered_json;  // templates show keys in the order they were given

    explicit Impl(Json value) : m_root(std::make_shared<Json>(std::move(value))) {}
    Impl(std::shared_ptr<Json> root, Json::json_pointer place)
        : m_root(std::move(root)), m_place(std::move(place)) {}

    /// Throws InvalidArgument that names the place if nothing is there.
    const Json& value() const;
    /// The value, to be changed; a member of an object, the last step to it, is made.
    Json& place() const;
    Impl at(const std::string& key) const { return {m_root, m_place / key}; }
    Impl at(size_t index) const { return {m_root, m_place / index}; }

private:
    std::shared_ptr<Json> m_root;
    Json::json_pointer m_place;  // of the value in the root
};

/// The value that a property has. Throws InvalidArgument for a type that JSON has not.
nlohmann::ordered_json json_of_any(const ov::Any& value);

}  // namespace pagewheel
