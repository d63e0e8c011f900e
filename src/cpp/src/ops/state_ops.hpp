// Layers that keep a state for each sequence, as OpenVINO operations on the CPU.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "kernels/gated_delta_rule.hpp"
#include "kernels/selective_ssm.hpp"
#include "kernels/short_convolution.hpp"
#include "ops/native_op.hpp"

namespace pagewheel {

/// Computes the new tokens of each sequence after those before, which its state holds, and writes
/// the state. Inputs are checked at every call, and a violation is an error that names both values.
///
/// Its inputs are rows f32 [tokens, width], then the states u8 [states, state bytes], which are
/// written, and batch_tables i32 [words] (kernels::BatchTablesLayout). Rows may be wider than what
/// is read of them.
class StateOp : public NativeOp {
public:
    static constexpr size_t most_rows = 6;
    /// Where in a row each of the inputs begins: one value may be several of them.
    using Offsets = std::array<size_t, most_rows>;

    void validate_and_infer_types() final;
    bool visit_attributes(ov::AttributeVisitor& visitor) final;
    bool keeps_state() const final { return true; }
    void run(const NativeInputs& inputs, float* const* outputs) const final;

    const Offsets& offsets() const { return m_offsets; }

protected:
    using RowViews = std::array<kernels::StridedRows, most_rows>;

    StateOp(const ov::OutputVector& inputs, const Offsets& offsets)
        : NativeOp(inputs), m_offsets(offsets) {}

    /// What is read of each row of an input.
    virtual size_t row_width(size_t input) const = 0;
    virtual size_t state_bytes() const = 0;
    /// Throws InvalidArgument that names the member and what it should be.
    virtual void check_config() const = 0;
    /// Tells nodes of different weights apart, which the runtime would merge.
    virtual const void* config_identity() const = 0;
    /// There is a token, and `tables` were checked.
    virtual void compute(const kernels::BatchTables& tables, const RowViews& rows, uint8_t* states,
                         float* output) const = 0;

private:
    Offsets m_offsets{};
};

/// A StateOp whose kernel has this config. Nodes share their configs.
template <class Derived, class Config>
class ConfiguredStateOp : public StateOp {
public:
    const Config& config() const { return *m_config; }

    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const final {
        return std::make_shared<Derived>(inputs, m_config, offsets());
    }

protected:
    using Base = ConfiguredStateOp;

    ConfiguredStateOp(const ov::OutputVector& inputs, std::shared_ptr<const Config> config,
                      const Offsets& offsets)
        : StateOp(inputs, offsets), m_config(std::move(config)) {}

    size_t state_bytes() const final { return m_config->state_bytes(); }
    void check_config() const final { m_config->check(); }
    const void* config_identity() const final { return m_config.get(); }

    const std::shared_ptr<const Config> m_config;
};

/// Causal depthwise convolution.
class ShortConvolution final
    : public ConfiguredStateOp<ShortConvolution, kernels::ShortConvolutionConfig> {
public:
    OPENVINO_OP("ShortConvolution", "pagewheel")

    ShortConvolution(const ov::OutputVector& inputs,
                     std::shared_ptr<const kernels::ShortConvolutionConfig> config,
                     const Offsets& offsets = {})
        : Base(inputs, std::move(config), offsets) {
        constructor_validate_and_infer_types();
    }

    size_t num_row_inputs() const override { return 1; }
    size_t output_width(size_t) const override { return m_config->channels; }

private:
    size_t row_width(size_t) const override { return m_config->channels; }
    void compute(const kernels::BatchTables& tables, const RowViews& rows, uint8_t* states,
                 float* output) const override;
};

/// The gated delta rule.
class GatedDeltaRule final
    : public ConfiguredStateOp<GatedDeltaRule, kernels::GatedDeltaRuleConfig> {
public:
    OPENVINO_OP("GatedDeltaRule", "pagewheel")

    enum Input : size_t {
        queries,
        keys,
        values,
        decays,
        betas,
        gates,  ///< with norm_weight alone
    };

    GatedDeltaRule(const ov::OutputVector& inputs,
                   std::shared_ptr<const kernels::GatedDeltaRuleConfig> config,
                   const Offsets& offsets = {})
        : Base(inputs, std::move(config), offsets) {
        constructor_validate_and_infer_types();
    }

    size_t num_row_inputs() const override {
        return size_t(gates) + !m_config->norm_weight.empty();
    }
    size_t output_width(size_t) const override { return m_config->value_width(); }

private:
    size_t row_width(size_t input) const override;
    void compute(const kernels::BatchTables& tables, const RowViews& rows, uint8_t* states,
                 float* output) const override;
};

/// Mamba 2's recurrence.
class SelectiveSsm final : public ConfiguredStateOp<SelectiveSsm, kernels::SelectiveSsmConfig> {
public:
    OPENVINO_OP("SelectiveSsm", "pagewheel")

    enum Input : size_t {
        x,
        b,
        c,
        dt,
        gate,  ///< may be missing
    };

    SelectiveSsm(const ov::OutputVector& inputs,
                 std::shared_ptr<const kernels::SelectiveSsmConfig> config,
                 const Offsets& offsets = {})
        : Base(inputs, std::move(config), offsets) {
        constructor_validate_and_infer_types();
    }

    bool has_gate() const { return get_input_size() == gate + 1 + 2; }
    size_t num_row_inputs() const override { return size_t(gate) + has_gate(); }
    size_t output_width(size_t) const override { return row_width(x); }

private:
    size_t row_width(size_t input) const override;
    void compute(const kernels::BatchTables& tables, const RowViews& rows, uint8_t* states,
                 float* output) const override;
};

}  // namespace pagewheel
