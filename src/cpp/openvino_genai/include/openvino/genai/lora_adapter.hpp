// LoRA adapters, which pagewheel does not have yet: names, and configs without an adapter.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "openvino/genai/names.hpp"
#include "openvino/runtime/properties.hpp"
#include "openvino/runtime/tensor.hpp"

namespace pagewheel::openvino_genai {

/// None. To load one throws InvalidArgument.
class Adapter {
public:
    Adapter() = default;
    explicit Adapter(const std::filesystem::path& path) {
        refuse_missing("Adapter of " + path.string(), "LoRA");
    }
    explicit Adapter(const ov::Tensor& /*safetensor*/) {
        refuse_missing("Adapter of a tensor", "LoRA");
    }

    explicit operator bool() const { return false; }
    friend bool operator==(const Adapter&, const Adapter&) { return true; }
};

/// Adapters with their weights. As there are none, only the way they would be applied is kept.
class AdapterConfig {
public:
    enum Mode { MODE_AUTO, MODE_DYNAMIC, MODE_STATIC_RANK, MODE_STATIC, MODE_FUSE };
    using Weighted = std::vector<std::pair<Adapter, float>>;

    AdapterConfig(Mode mode = MODE_AUTO) : m_mode(mode) {}
    AdapterConfig(const Adapter& adapter, float alpha, Mode mode = MODE_AUTO) : m_mode(mode) {
        add(adapter, alpha);
    }
    AdapterConfig(const Adapter& adapter, Mode mode = MODE_AUTO) : m_mode(mode) { add(adapter); }
    AdapterConfig(const std::vector<Adapter>& adapters, Mode mode = MODE_AUTO) : m_mode(mode) {
        for (const Adapter& adapter : adapters) add(adapter);
    }
    AdapterConfig(const Weighted& adapters, Mode mode = MODE_AUTO) : m_mode(mode) {
        set_adapters_and_alphas(adapters);
    }

    Mode get_mode() const { return m_mode; }
    void set_mode(Mode mode) { m_mode = mode; }
    const std::optional<std::string>& get_tensor_name_prefix() const { return m_prefix; }
    void set_tensor_name_prefix(const std::optional<std::string>& prefix) { m_prefix = prefix; }
    std::vector<Adapter> get_adapters() const { return {}; }
    Weighted get_adapters_and_alphas() const { return {}; }
    void set_adapters_and_alphas(const Weighted& adapters) {
        for (const auto& [adapter, alpha] : adapters) add(adapter, alpha);
    }
    void update(const AdapterConfig& other) {
        if (other.m_mode != MODE_AUTO) m_mode = other.m_mode;
        if (other.m_prefix) m_prefix = other.m_prefix;
    }

    // These throw InvalidArgument: an Adapter that is none cannot be in a config.
    AdapterConfig& add(const Adapter& /*adapter*/, float /*alpha*/ = 1.0f) { refuse(); }
    AdapterConfig& set_alpha(const Adapter& /*adapter*/, float /*alpha*/) { refuse(); }
    float get_alpha(const Adapter& /*adapter*/) const { refuse(); }
    AdapterConfig& remove(const Adapter& /*adapter*/) { refuse(); }

    explicit operator bool() const { return false; }

private:
    [[noreturn]] static void refuse() { refuse_missing("an adapter in AdapterConfig", "LoRA"); }

    Mode m_mode;
    std::optional<std::string> m_prefix;
};

/// adapters(...): a property of pipelines and of generate().
struct AdaptersProperty : ov::Property<AdapterConfig> {
    constexpr AdaptersProperty() : ov::Property<AdapterConfig>("adapters") {}

    template <class... Arguments>
    std::pair<std::string, ov::Any> operator()(const Arguments&... arguments) const {
        return {name(), ov::Any(AdapterConfig(arguments...))};
    }
    template <class AdapterOrPair>
    std::pair<std::string, ov::Any> operator()(
        std::initializer_list<AdapterOrPair> adapters,
        AdapterConfig::Mode mode = AdapterConfig::MODE_AUTO) const {
        return {name(), ov::Any(AdapterConfig(std::vector<AdapterOrPair>(adapters), mode))};
    }
};
inline constexpr AdaptersProperty adapters;

}  // namespace pagewheel::openvino_genai
