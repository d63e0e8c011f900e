// Which operation of pagewheel's takes the place of one of OpenVINO's that keeps states.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>

#include "graph/passes.hpp"
#include "openvino/core/node.hpp"
#include "openvino/op/constant.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {

/// Why a node is left to OpenVINO.
struct NotServed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Throws NotServed if the input is no constant.
std::shared_ptr<ov::op::v0::Constant> constant_at(const ov::Node& node, size_t input);

/// A dimension of an input, which must be of this rank. Throws NotServed if it is not known.
size_t dimension_at(const ov::Node& node, size_t input, size_t rank, size_t dimension);

/// Throws NotServed for a config that its kernel refuses.
template <class Config>
void check_served(const Config& config) {
    try {
        config.check();
    } catch (const InvalidArgument& error) {
        throw NotServed(error.what());
    }
}

/// What is to take the place of a node. States of pagewheel's operations are u8 [states,
/// state_bytes], under the name that OpenVINO's have.
struct StateOperation {
    size_t states_input;  ///< of OpenVINO's node
    size_t state_bytes;   ///< of one sequence
    /// Gives what replaces the node's output.
    std::function<ov::Output<ov::Node>(const ov::Output<ov::Node>& states,
                                       const ov::Output<ov::Node>& batch_tables)>
        make;
};

/// Of PagedSelectiveSSM (selective_ssm.cpp).
StateOperation selective_ssm_operation(const std::shared_ptr<ov::Node>& node,
                                       const NativeAttentionOptions& options);

/// For a node that openvino_keeps_state(). Throws NotServed if pagewheel has none.
StateOperation native_state_operation(const std::shared_ptr<ov::Node>& node,
                                      const NativeAttentionOptions& options);

}  // namespace pagewheel
