// How a model's rotary embedding rotates keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pagewheel {

/// One rotary embedding: at position p channel pair i rotates by p * inverse_frequencies[i]
/// radians.
struct RotaryKind {
    size_t dims = 0;  ///< the first dimensions of a head that rotate; 0: the layer does not rotate
    bool interleaved = false;                 ///< pairs (2i, 2i + 1) instead of (i, i + dims / 2)
    std::vector<double> inverse_frequencies;  ///< [dims / 2]; empty: not known

    /// Radians by which pair i rotates. The model's graph holds the frequencies in f32.
    double angle(int64_t position, size_t i) const {
        return double(position) * double(float(inverse_frequencies[i]));
    }
};

/// The rotary embeddings of a model, which may differ between layers.
struct RotaryDescription {
    std::vector<RotaryKind> kinds;  ///< empty: nothing is known
    /// Kind of each layer; empty: all layers have kind 0.
    std::vector<size_t> layer_kinds;
    /// Why keys cannot be rotated; empty if they can.
    std::string unsupported = "the model folder does not describe its rotary embedding";

    /// Kind of a layer; 0 for layers the description does not reach.
    size_t kind_of(size_t layer) const {
        return layer < layer_kinds.size() ? layer_kinds[layer] : 0;
    }
};

/// Reads "rotary" of pagewheel.json: {"pairing": "half" | "interleaved", "kinds", "layers"}, where
/// `kinds` are {"dims", "inverse_frequencies"} and `layers` has each layer's index into them, or -1
/// where it does not rotate. Without kinds, "dims" and "inverse_frequencies" beside "pairing" are
/// the only kind. Throws InvalidArgument where the numbers contradict each other.
RotaryDescription read_rotary(const nlohmann::json& rotary);

/// Derives it from another tool's config.json: plain, linear, llama3 and yarn frequencies, partial
/// rotary. Anything else is unsupported, with the reason.
RotaryDescription derive_rotary(const nlohmann::json& config_json);

}  // namespace pagewheel
