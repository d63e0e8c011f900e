// The benchmark's command line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "support/attention_graph.hpp"

namespace pagewheel::benchmark {

struct Options {
    AttentionShape shape;
    std::vector<std::string> formats{"u8", "bf16"};
    std::vector<size_t> contexts{128, 1024, 8192, 32768};
    std::vector<size_t> batches{1, 8, 32};
    std::vector<size_t> prefills{512, 4096};
    size_t layers = 0;  ///< 0: as many as it takes for min_cache_bytes, at most max_layers
    size_t rounds = 11;
    int threads = 0;                 ///< 0: all cores
    size_t rotate_from = 32768;      ///< contexts that are measured with rotation as well
    std::string openvino_precision;  ///< f32 or bf16; empty: bf16, but f32 for an f32 cache
    double memory_gb = 0;            ///< 0: half of what is free
    std::string json;                ///< a file, or none
    bool help = false;
};

/// Throws std::invalid_argument that names the option, its value and what is allowed.
Options parse_options(int count, char** arguments);
const char* usage();

}  // namespace pagewheel::benchmark
