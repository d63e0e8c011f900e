// The gated delta rule with states, as an OpenVINO operation on the CPU.
#pragma once

#include <array>
#include <memory>

#include "kernels/gated_delta_rule.hpp"
#include "ops/native_op.hpp"

namespace pagewheel {

/// Computes the new tokens of each sequence after those before, which its state holds, and writes
/// the state. Inputs are checked at every call, and a violation is an error that names both values.
class GatedDeltaRule : public NativeOp {
public:
    OPENVINO_OP("GatedDeltaRule", "pagewheel")

    /// Rows [tokens, width], f32, and then tensors. What the config leaves out (z) is no input.
    /// Rows may be wider than what is read of them: see offsets.
    enum Input : size_t {
        queries,
        keys,
        values,
        decays,
        betas,
        gates,  ///< with norm_weight alone
    };
    static constexpr size_t most_rows = gates + 1;

    /// Where in a row each of the inputs begins.
    using Offsets = std::array<size_t, most_rows>;

    GatedDeltaRule() = default;
    /// `inputs`: rows, then states u8 [states, state bytes], which are written, and batch_tables
    /// i32 [words] (kernels::BatchTablesLayout).
    GatedDeltaRule(const ov::OutputVector& inputs,
                   std::shared_ptr<const kernels::GatedDeltaRuleConfig> config,
                   const Offsets& offsets);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    size_t num_row_inputs() const override {
        return m_config->norm_weight.empty() ? size_t(gates) : most_rows;
    }
    bool keeps_state() const override { return true; }
    size_t output_width(size_t) const override { return m_config->value_width(); }
    void run(const NativeInputs& inputs, float* const* outputs) const override;

    const kernels::GatedDeltaRuleConfig& config() const { return *m_config; }
    const Offsets& offsets() const { return m_offsets; }

private:
    /// What is read of each row of an input.
    size_t width(size_t input) const;

    std::shared_ptr<const kernels::GatedDeltaRuleConfig> m_config;
    Offsets m_offsets{};
};

}  // namespace pagewheel
