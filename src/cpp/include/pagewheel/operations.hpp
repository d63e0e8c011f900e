// Which operations of a model run where, and on how many threads.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "openvino/core/any.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

struct OperationCount {
    std::string operation;  ///< type of the node in the graph
    std::string runs_on;    ///< "pagewheel" or "openvino"
    size_t count = 0;
};

/// What of a prompt is computed only for the tokens whose logits are asked for: all that the cache
/// does not depend on.
struct FastPrefill {
    /// Layers whose attention's output is read for the tokens asked for alone.
    size_t layers = 0;
    /// Those of them whose attention has queries for these tokens alone, too. OpenVINO's attention
    /// must have all, where it writes keys.
    size_t attention_nodes = 0;
    /// The share, 0 to 1, of the multiplications by matrices that is left out for a token nobody
    /// asks for. Of experts all count; the vocabulary's matrix does not: it is always left out.
    double work_skipped = 0;
    /// What keeps more from being left out, one sentence each.
    std::vector<std::string> why;
};

struct Operations {
    std::vector<OperationCount> counts;  ///< of what costs time: matrices and attention
    std::vector<std::string> left;       ///< why MatMuls stay with OpenVINO, one sentence each
    std::string linear;                  ///< kernels and activations of pagewheel's; empty: none
    FastPrefill fast_prefill;            ///< all zero if the property fast_prefill is off
};

/// For a pipeline of that folder, device and properties; nothing is compiled. Throws
/// InvalidArgument as the pipeline's constructor does.
PAGEWHEEL_API Operations describe_operations(const std::filesystem::path& model_folder,
                                             const std::string& device = "CPU",
                                             const ov::AnyMap& properties = {});

struct Threads {
    size_t count = 0;
    std::string why;  ///< there are so many
};

/// The threads of a pipeline on "CPU" with these properties. Throws InvalidArgument as the
/// pipeline's constructor does.
PAGEWHEEL_API Threads describe_threads(const std::string& device = "CPU",
                                       const ov::AnyMap& properties = {});

}  // namespace pagewheel
