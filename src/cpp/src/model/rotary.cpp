#include "model/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

using nlohmann::json;

constexpr double pi = 3.14159265358979323846;

/// Architectures that rotate half-split pairs of one embedding in all layers, by transformers'
/// names.
const std::set<std::string> known_models = {"llama", "mistral", "qwen2",  "qwen3",
                                            "phi3",  "granite", "gemma2", "smollm3"};

/// Far above any model's; keeps a damaged file from asking for that many frequencies.
constexpr double max_head_size = 65'536;

RotaryKind read_kind(const json& entry, bool interleaved) {
    RotaryKind kind;
    const double dims = entry.value("dims", 0.0);
    check_file(dims >= 0 && dims <= max_head_size, "rotary dims are ", dims, "; allowed: up to ",
               max_head_size);
    kind.dims = size_t(dims);
    kind.interleaved = entry.value("interleaved", interleaved);
    kind.inverse_frequencies = entry.value("inverse_frequencies", std::vector<double>());
    check_file(kind.dims % 2 == 0, "rotary dims are ", kind.dims, "; allowed: even numbers");
    check_file(kind.inverse_frequencies.empty() || kind.inverse_frequencies.size() == kind.dims / 2,
               kind.dims, " rotary dims and ", kind.inverse_frequencies.size(),
               " inverse frequencies; allowed: half as many");
    return kind;
}

/// The wavelength bands of Llama 3.1: high frequencies stay, low ones are divided by `factor`.
void scale_llama3(const json& scaling, std::vector<double>& frequencies) {
    const double factor = scaling.at("factor"), low = scaling.at("low_freq_factor"),
                 high = scaling.at("high_freq_factor"),
                 original = scaling.at("original_max_position_embeddings");
    for (double& f : frequencies) {
        const double wavelength = 2 * pi / f;
        const double smooth = std::clamp((original / wavelength - low) / (high - low), 0.0, 1.0);
        f = (1 - smooth) * f / factor + smooth * f;
    }
}

/// YaRN (Peng et al. 2023, arXiv:2309.00071): divided by `factor` below beta_slow rotations within
/// the original context, kept above beta_fast, blended linearly between.
void scale_yarn(const json& scaling, const json& config, double theta, size_t dims,
                std::vector<double>& frequencies) {
    const double factor = scaling.at("factor");
    const double original = scaling.value("original_max_position_embeddings",
                                          config.value("max_position_embeddings", 0.0));
    const auto channel_of_rotations = [&](double rotations) {
        return double(dims) * std::log(original / (rotations * 2 * pi)) / (2 * std::log(theta));
    };
    double first = channel_of_rotations(scaling.value("beta_fast", 32.0)),
           last = channel_of_rotations(scaling.value("beta_slow", 1.0));
    if (scaling.value("truncate", true)) {
        first = std::floor(first);
        last = std::ceil(last);
    }
    first = std::max(first, 0.0);
    last = std::min(last, double(dims) - 1);
    if (first == last) last += 0.001;
    for (size_t i = 0; i < frequencies.size(); ++i) {
        const double divided = std::clamp((double(i) - first) / (last - first), 0.0, 1.0);
        frequencies[i] = frequencies[i] / factor * divided + frequencies[i] * (1 - divided);
    }
}

RotaryDescription refused(const std::string& reason) {
    RotaryDescription description;
    description.unsupported = reason;
    return description;
}

/// 0 where there is no number, or no positive one.
double number(const json& config, const char* key) {
    const auto value = config.find(key);
    return value != config.end() && value->is_number() ? std::max(value->get<double>(), 0.0) : 0;
}

double head_size_of(const json& config) {
    const double own = number(config, "head_dim"), heads = number(config, "num_attention_heads");
    return own > 0 || heads == 0 ? own : std::floor(number(config, "hidden_size") / heads);
}

}  // namespace

RotaryDescription read_rotary(const json& rotary) try {
    RotaryDescription description;
    const std::string pairing = rotary.value("pairing", std::string("half"));
    check_file(pairing == "half" || pairing == "interleaved", "pairing is '", pairing,
               "'; allowed: half, interleaved");
    const bool interleaved = pairing == "interleaved";
    if (const auto kinds = rotary.find("kinds"); kinds != rotary.end()) {
        for (const json& kind : *kinds) description.kinds.push_back(read_kind(kind, interleaved));
    } else if (rotary.contains("dims")) {
        description.kinds.push_back(read_kind(rotary, interleaved));
    }
    if (description.kinds.empty()) return description;
    const size_t num_kinds = description.kinds.size();
    for (const double kind : rotary.value("layers", std::vector<double>())) {
        check_file(kind < double(num_kinds), "rotary layers have kind ", kind,
                   "; allowed: less than ", num_kinds);
        if (kind < 0 && description.kinds.size() == num_kinds)
            description.kinds.emplace_back();  // that of layers that do not rotate
        description.layer_kinds.push_back(kind < 0 ? num_kinds : size_t(kind));
    }
    description.unsupported.clear();
    for (const RotaryKind& kind : description.kinds)
        if (kind.dims > 0 && kind.inverse_frequencies.empty())
            description.unsupported = "pagewheel.json has no rotary inverse_frequencies";
    if (const auto why = rotary.find("unsupported"); why != rotary.end())
        description.unsupported = why->get<std::string>();
    return description;
} catch (const json::exception& error) {
    refuse_argument(ErrorCode::file_invalid, "rotary: ", error.what());
}

RotaryDescription derive_rotary(const json& config) try {
    const std::string model = config.value("model_type", std::string());
    if (known_models.count(model) == 0)
        return refused(concat("the rotary embedding of model type '", model,
                              "' is not known from config.json; convert the model with pagewheel"));
    const json none = json::object();
    const auto found = config.find("rope_scaling");
    const auto renamed = config.find("rope_parameters");  // transformers 5
    const json& scaling = found != config.end() && found->is_object()       ? *found
                          : renamed != config.end() && renamed->is_object() ? *renamed
                                                                            : none;
    const double theta = scaling.value("rope_theta", config.value("rope_theta", 10000.0));
    const double head_size = head_size_of(config);
    if (head_size == 0) return refused("config.json gives no head size");

    RotaryKind kind;
    const double part =
        scaling.value("partial_rotary_factor", config.value("partial_rotary_factor", 1.0));
    const double dims = head_size * part;
    if (!(dims >= 2 && dims <= max_head_size) || size_t(dims) % 2)
        return refused(concat("config.json gives ", dims, " rotary dimensions"));
    kind.dims = size_t(dims);
    for (size_t i = 0; i < kind.dims / 2; ++i)
        kind.inverse_frequencies.push_back(std::pow(theta, -2.0 * double(i) / double(kind.dims)));

    const std::string type =
        scaling.value("rope_type", scaling.value("type", std::string("default")));
    if (type == "linear") {
        for (double& f : kind.inverse_frequencies) f /= scaling.at("factor").get<double>();
    } else if (type == "llama3") {
        scale_llama3(scaling, kind.inverse_frequencies);
    } else if (type == "yarn") {
        scale_yarn(scaling, config, theta, kind.dims, kind.inverse_frequencies);
    } else if (type != "default") {
        return refused(concat("rotary scaling '", type, "' changes with the length of the text"));
    }
    for (double f : kind.inverse_frequencies)
        if (!std::isfinite(f))
            return refused("config.json gives rotary frequencies without bounds");
    RotaryDescription description;
    description.kinds.push_back(kind);
    description.unsupported.clear();
    return description;
} catch (const json::exception& error) {
    return refused(concat("config.json: ", error.what()));
}

}  // namespace pagewheel
