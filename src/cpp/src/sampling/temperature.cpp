#include "sampling/temperature.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pagewheel {

Temperature::Temperature(const GenerationConfig& config)
    : m_middle(double(config.temperature)),
      m_range(double(config.dynatemp_range)),
      m_exponent(double(config.dynatemp_exponent)) {}

double Temperature::inverse(const LogitsMaxima& row, Isa isa) const {
    const double temperature = m_range > 0 && row.size() > 1 ? dynamic(row, isa) : m_middle;
    return std::min(1 / temperature, double(std::numeric_limits<float>::max()));
}

/// llama.cpp's, but of all tokens, for like a fixed temperature it comes before the filters: from
/// m_middle - m_range, where one token has all probability, to m_middle + m_range, where all have
/// the same, by the entropy's share of the greatest one.
double Temperature::dynamic(const LogitsMaxima& row, Isa isa) const {
    Candidates all(row, 1.0, isa);
    const double share = std::clamp(all.entropy() / std::log(double(row.size())), 0.0, 1.0);
    const double least = std::max(0.0, m_middle - m_range);
    return least + (m_middle + m_range - least) * std::pow(share, m_exponent);
}

}  // namespace pagewheel
