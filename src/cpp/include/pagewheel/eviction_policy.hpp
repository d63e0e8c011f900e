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
    /// More of the prompt is to be read (evict_during_prefill): nobody knows yet what it asks for.
    bool is_prefilling = false;
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
    /// i64 [num_tokens]: the positions that attention sees the keys at.
    const int64_t* read_at = nullptr;
    /// i32 [num_tokens]: by how many positions it rotates each key back for that.
    const int32_t* rotations = nullptr;
    /// Widths of the keys that read_keys writes: kv heads and head size; of values.
    size_t kv_heads = 0, head_size = 0, value_size = 0;
    /// Writes the keys of tokens [first, last), as they lie in the cache, to out [last - first,
    /// kv_heads, head_size]: rotated to the positions they were written at, or with OpenVINO's
    /// attention to those they have now.
    std::function<void(size_t first, size_t last, float* out)> read_keys;
    /// Writes the values of tokens [first, last) to out [last - first, kv_heads, value_size].
    std::function<void(size_t first, size_t last, float* out)> read_values;

    // What follows is there if observed() asked for queries. Vectors before rotation have their
    // rotated pairs, as complex numbers have real and imaginary parts, at dimensions (i, i +
    // rotary_dims / 2), and what is not rotated behind these. Where a model scales what it rotates
    // (YaRN), they are scaled.
    /// As read_keys, before they were rotated to any position.
    std::function<void(size_t first, size_t last, float* out)> read_keys_before_rotation;
    /// Observed queries that the means are of; 0: there are none.
    size_t num_queries = 0;
    size_t heads = 0;                       ///< of the queries: a multiple of kv_heads
    const float* mean_query = nullptr;      ///< f32 [heads, head_size], before rotation
    const float* mean_amplitude = nullptr;  ///< f32 [heads, rotary_dims / 2], of the pairs
    size_t rotary_dims = 0;                 ///< 0: the layer has no rotary embedding
    /// f64 [rotary_dims / 2], radians by position.
    const double* inverse_frequencies = nullptr;
};

/// Which attention a policy wants to see. Counting a prompt's costs a second reading of the keys; a
/// generated token's is computed anyway.
struct ObservedQueries {
    static constexpr size_t all = size_t(-1);
    size_t prompt = 0;  ///< of the prompt's last queries
    size_t decode = 0;  ///< of the last queries before a decision, while generating
    /// Scores are kept over decisions; else they start from zero after each.
    bool accumulate = false;
    /// The means of these queries are wanted, too; `prompt` is at most 64 then.
    bool queries = false;
};

/// Stateless, or safe to be asked about several sequences in turn.
class PAGEWHEEL_API EvictionPolicy {
public:
    virtual ~EvictionPolicy() = default;
    virtual ObservedQueries observed() const { return {}; }
    /// Appends `count` distinct units of [first_unit, last_unit) to `dropped`, in any order. What
    /// it throws, and a wrong answer, ends the request and no other. Layers with a sliding window
    /// lose first what no query will see again: they ask for the rest alone, or not at all.
    virtual void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) = 0;
};

/// A policy that CacheEvictionConfig::policy may name.
struct EvictionPolicyKind {
    const char* name;
    const char* help;        ///< what goes, and the paper
    const char* parameters;  ///< members of CacheEvictionConfig that only some policies read; or ""
    bool by_attention;       ///< single tokens go by default (EvictionGranularity::AUTO)
    std::shared_ptr<EvictionPolicy> (*make)(const CacheEvictionConfig&);
    /// Throws InvalidArgument for values that this policy cannot work with; nullptr: there
    /// are none. The block size is that of the cache, 0 where it is not known yet.
    void (*check)(const CacheEvictionConfig&, size_t block_size) = nullptr;
};

/// All there are.
PAGEWHEEL_API const std::vector<EvictionPolicyKind>& eviction_policies();

/// The policy a config asks for, or the caller's own. Where units are equal, the older ones go.
PAGEWHEEL_API std::shared_ptr<EvictionPolicy> make_policy(const CacheEvictionConfig& config);

}  // namespace pagewheel
