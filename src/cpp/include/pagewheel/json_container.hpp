// JSON as a value: messages, tools and extra context of chats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "openvino/core/any.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// A JSON value, or a view of a part of one: operator[] and share() give views, which see later
/// changes and make changes themselves; copy(), and a copy of a variable, is a value of its own.
/// Objects keep the order of their keys. Errors are InvalidArgument. One object, with its views, is
/// one thread's at a time.
class PAGEWHEEL_API JsonContainer {
public:
    using Scalar = std::variant<std::nullptr_t, bool, int64_t, double, std::string>;

    JsonContainer();  ///< An empty object.
    /// From nullptr, a bool, a number or a text.
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T> ||
                                                std::is_same_v<T, std::nullptr_t> ||
                                                std::is_convertible_v<T, std::string>>>
    JsonContainer(const T& value) : JsonContainer(of_scalar(scalar(value))) {}
    /// An object. Values may be what a JsonContainer is made of, JsonContainer, ov::AnyMap, and
    /// std::vector of texts, numbers, ov::AnyMap and JsonContainer.
    JsonContainer(std::initializer_list<std::pair<std::string, ov::Any>> members);
    JsonContainer(const ov::AnyMap& members);
    JsonContainer(const JsonContainer& other);
    JsonContainer(JsonContainer&& other) noexcept;
    /// Assigned to a view, what it views changes. A key that is not there is made.
    JsonContainer& operator=(const JsonContainer& other);
    JsonContainer& operator=(JsonContainer&& other);
    ~JsonContainer();

    static JsonContainer object();
    static JsonContainer array();
    static JsonContainer from_json_string(const std::string& text);
    /// `indent` spaces a level; -1: one line.
    std::string to_json_string(int indent = -1) const;

    JsonContainer copy() const { return *this; }
    JsonContainer share() const;

    JsonContainer operator[](const std::string& key) const;
    JsonContainer operator[](const char* key) const { return (*this)[std::string(key)]; }
    JsonContainer operator[](size_t index) const;
    JsonContainer operator[](int index) const { return (*this)[size_t(index)]; }

    /// To an array, or to what is null or empty, which becomes one.
    JsonContainer& push_back(const JsonContainer& value);
    bool contains(const std::string& key) const;  ///< False for what is no object.
    void erase(const std::string& key) const;
    void erase(size_t index) const;
    void clear() const;
    size_t size() const;
    bool empty() const;
    JsonContainer& to_empty_object();
    JsonContainer& to_empty_array();
    /// Keys of an object, replacing those there are, or elements of an array.
    JsonContainer& concatenate(const JsonContainer& other);

    bool is_null() const { return type_name() == "null"; }
    bool is_boolean() const { return type_name() == "boolean"; }
    bool is_number() const { return type_name() == "number"; }
    bool is_number_integer() const;
    bool is_number_float() const;
    bool is_string() const { return type_name() == "string"; }
    bool is_array() const { return type_name() == "array"; }
    bool is_object() const { return type_name() == "object"; }
    std::string type_name() const;

    // The value, or an error that says what it is.
    bool get_bool() const;
    int64_t get_int() const;
    double get_double() const;
    std::string get_string() const;
    // The value, or nothing where it is of another type.
    std::optional<bool> as_bool() const;
    std::optional<int64_t> as_int() const;
    std::optional<double> as_double() const;
    std::optional<std::string> as_string() const;

    bool operator==(const JsonContainer& other) const;
    bool operator!=(const JsonContainer& other) const { return !(*this == other); }

    class Impl;  // internal: text/json_value.hpp
    explicit JsonContainer(std::unique_ptr<Impl> impl);
    const Impl& impl() const { return *m_impl; }

private:
    template <class T>
    static Scalar scalar(const T& value) {
        if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::nullptr_t>)
            return value;
        else if constexpr (std::is_floating_point_v<T>)
            return double(value);
        else if constexpr (std::is_arithmetic_v<T>)
            return int64_t(value);
        else
            return std::string(value);
    }
    static JsonContainer of_scalar(const Scalar& value);

    std::unique_ptr<Impl> m_impl;
};

}  // namespace pagewheel
