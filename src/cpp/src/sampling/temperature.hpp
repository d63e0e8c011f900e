// What logits are divided by before anything is drawn.
#pragma once

#include "kernels/isa.hpp"
#include "pagewheel/generation_config.hpp"
#include "sampling/candidates.hpp"

namespace pagewheel {

/// A config's temperature, which with dynatemp_range follows the entropy of the logits.
class Temperature {
public:
    explicit Temperature(const GenerationConfig& config);

    /// 1 / temperature, as much as a float holds.
    double inverse(const LogitsMaxima& row, Isa isa) const;

private:
    double dynamic(const LogitsMaxima& row, Isa isa) const;

    double m_middle, m_range, m_exponent;
};

}  // namespace pagewheel
