// What chooses the tokens that leave a sequence's cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "pagewheel/visibility.hpp"

namespace pagewheel {

struct CacheEvictionConfig;

/// One layer of one sequence's cache at the moment of a decision. Tokens are in the order of their
/// positions; views are valid during the call only.
struct EvictionView {
    size_t layer = 0;
    size_t num_tokens = 0;
    /// What may go: units [first_unit, last_unit) of `unit_size` tokens each, unit u being tokens
    /// [u * unit_size, (u + 1) * unit_size). A unit is a block or, with unit_size 1, a token.
    size_t unit_size = 1, first_unit = 0, last_unit = 0;
    /// f32 [num_tokens]: attention received from the observed queries, summed over heads (and
    /// pooled if so configured). Zeros if the policy observes none.
    const float* scores = nullptr;
    /// i32 [num_tokens]: observed queries that could see the token.
    const int32_t* lifetimes = nullptr;
    /// i64 [num_tokens]: the tokens' numbers in the sequence, ascending.
    const int64_t* positions = nullptr;
    /// Widths of the keys that read_keys writes: kv heads and head size.
    size_t kv_heads = 0, head_size = 0;
    /// Writes the keys of tokens [first, last), as they lie in the cache, to out [last - first,
    /// kv_heads, head_size]: rotated to the positions they were written at, or with OpenVINO's
    /// attention to those they have now.
    std::function<void(size_t first, size_t last, float* out)> read_keys;
};

/// Which attention a policy wants to see. Counting a prompt's costs a second reading of the keys; a
/// generated token's is computed anyway.
struct ObservedQueries {
    static constexpr size_t all = size_t(-1);
    size_t prompt = 0;  ///< of the prompt's last queries
    size_t decode = 0;  ///< of the last queries before a decision, while generating
    /// Scores are kept over decisions; else they start from zero after each.
    bool accumulate = false;
};

/// Stateless, or safe to be asked about several sequences in turn.
class PAGEWHEEL_API EvictionPolicy {
public:
    virtual ~EvictionPolicy() = default;
    virtual ObservedQueries observed() const { return {}; }
    /// Appends `count` distinct units of [first_unit, last_unit) to `dropped`, in any order. What
    /// it throws, and a wrong answer, ends the request and no other.
    virtual void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) = 0;
};

/// The policy a config asks for, or the caller's own.
///
///   sum, norm_sum  heavy hitters: least attention goes (H2O, Zhang et al. 2023, arXiv:2306.14048);
///                  norm_sum divides by the number of queries that could see a token
///   snapkv         attention of the last snapkv_window_size queries before each decision
///                  (SnapKV, Li et al. 2024, arXiv:2404.14469)
///   streaming      the oldest go, attention is not looked at (StreamingLLM, Xiao et al. 2023,
///                  arXiv:2309.17453)
///   tova           attention of the last query alone (TOVA, Oren et al. 2024, arXiv:2401.06104)
///   kvcrush        heavy hitters stay, and representatives of the rest (KVCrush, Jha et al. 2025,
///                  arXiv:2503.00022)
///   adaptive_rkv   what carries a share of the attention stays, and of the rest the keys least
///                  like the others (after R-KV, Cai et al. 2025, arXiv:2505.24133)
///   key_norm       keys of the greatest L2 norm go (Devoto et al. 2024, arXiv:2406.11430)
///   key_diff       keys closest to the mean key go (KeyDiff, Park et al. 2025, arXiv:2504.15364)
///
/// Where units are equal, the older ones go.
PAGEWHEEL_API std::shared_ptr<EvictionPolicy> make_policy(const CacheEvictionConfig& config);

}  // namespace pagewheel
