#include "runtime/json_values.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/check.hpp"

namespace pagewheel {

using nlohmann::json;

namespace {

/// Whether it is an integer, not one by rounding, in a range whose end is 2 ^ bits - 1.
bool is_integer(const json& value, int64_t least, uint64_t most, int bits) {
    if (value.is_number_float()) {
        const double number = value.get<double>();
        return number == std::trunc(number) && number >= double(least) &&
               number < std::ldexp(1.0, bits);
    }
    if (value.is_number_unsigned())
        return value.get<uint64_t>() <= most &&
               (least <= 0 || value.get<uint64_t>() >= uint64_t(least));
    return value.is_number_integer() && value.get<int64_t>() >= least;
}

template <class T>
T to_integer(const json& value, T least) {
    constexpr T most = std::numeric_limits<T>::max();
    check_argument(
        is_integer(value, int64_t(least), uint64_t(most), std::numeric_limits<T>::digits),
        "integers from ", least, " to ", most);
    return value.get<T>();
}

template <class T>
void read_list(const json& value, const char* of_what, std::set<T>& out) {
    check_argument(value.is_array(), "lists of ", of_what);
    std::set<T> values;
    for (const json& each : value) {
        T read;
        read_value(each, read);
        values.insert(std::move(read));
    }
    out = std::move(values);
}

}  // namespace

std::string shown(const json& value) {
    if (value.is_structured() || value.is_discarded()) return value.type_name();
    const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);  // cut at any place
    return text.size() <= 100 ? text : text.substr(0, 100) + "...";
}

void read_value(const json& value, bool& out) {
    check_argument(value.is_boolean(), "true and false");
    out = value.get<bool>();
}

void read_value(const json& value, int& out) {
    out = to_integer(value, std::numeric_limits<int>::min());
}

void read_value(const json& value, size_t& out) {
    out = to_integer<size_t>(value, 0);
}

void read_value(const json& value, int64_t& out) {
    out = to_integer<int64_t>(value, 0);
}

void read_value(const json& value, float& out) {
    constexpr float most = std::numeric_limits<float>::max();
    check_argument(value.is_number() && std::abs(value.get<double>()) <= double(most),
                   "numbers from ", -most, " to ", most);
    out = value.get<float>();
}

void read_value(const json& value, std::optional<float>& out) {
    constexpr float most = std::numeric_limits<float>::max();
    if (value == "inf") {
        out = std::numeric_limits<float>::infinity();
        return;
    }
    const double seconds = value.is_number() ? value.get<double>() : 0;
    check_argument(seconds > 0 && seconds <= double(most), "numbers above 0, up to ", most,
                   ", or \"inf\"");
    out = float(seconds);
}

void read_value(const json& value, std::optional<uint64_t>& out) {
    out = to_integer<uint64_t>(value, 0);
}

void read_value(const json& value, std::string& out) {
    check_argument(value.is_string(), "strings");
    out = value.get<std::string>();
}

void read_value(const json& value, std::set<int64_t>& out) {
    read_list(value, "token ids", out);
}

void read_value(const json& value, std::set<std::string>& out) {
    read_list(value, "strings", out);
}

void read_value(const json& value, TokenBiases& out) {
    constexpr const char* allowed = "objects of numbers by token ids";
    check_argument(value.is_object(), allowed);
    TokenBiases biases;
    for (const auto& [key, bias] : value.items()) {
        int64_t id = 0;
        const char* const end = key.data() + key.size();
        const auto read = std::from_chars(key.data(), end, id);
        check_argument(read.ec == std::errc() && read.ptr == end && id >= 0, allowed);
        using Limits = std::numeric_limits<float>;
        if (bias == "-inf" || bias == "inf")
            biases[id] = bias == "inf" ? Limits::infinity() : -Limits::infinity();
        else if (bias == "nan")
            biases[id] = Limits::quiet_NaN();
        else
            read_value(bias, biases[id]);
    }
    out = std::move(biases);
}

void read_value(const json& value, TokenSequences& out) {
    check_argument(value.is_array(), "lists of lists of token ids");
    TokenSequences sequences;
    for (const json& each : value) {
        check_argument(each.is_array(), "lists of lists of token ids");
        std::vector<int64_t>& sequence = sequences.emplace_back();
        for (const json& id : each) read_value(id, sequence.emplace_back());
    }
    out = std::move(sequences);
}

void read_value(const json& value, StopCriteria& out) {
    static const std::map<std::string, StopCriteria> names{{"EARLY", StopCriteria::EARLY},
                                                           {"HEURISTIC", StopCriteria::HEURISTIC},
                                                           {"NEVER", StopCriteria::NEVER}};
    const auto found = value.is_string() ? names.find(value.get<std::string>()) : names.end();
    check_argument(found != names.end(), "EARLY, HEURISTIC and NEVER");
    out = found->second;
}

}  // namespace pagewheel
