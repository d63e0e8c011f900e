// Where the last tokens of a sequence stand in it before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pagewheel {

/// Follows a sequence that grows. A token costs time in proportion to the places where the last two
/// tokens stood before, not to the length of the sequence.
///
/// A copy shares what was read until seal(), and copies 8 to 24 bytes for each token since.
class Repetitions {
public:
    struct Place {
        uint32_t next;    ///< index of the token that followed
        uint32_t length;  ///< so many tokens before it are the last ones of the sequence
    };

    /// Looks for places of at least `shortest` tokens, one or more, and may give some of two.
    explicit Repetitions(size_t shortest);

    /// Reads the first `end` of the tokens, but for those that were read before.
    void read(const std::vector<int64_t>& tokens, size_t end);
    /// Has later copies share what was read.
    void seal();
    /// The latest first. Each is as long as it can be.
    const std::vector<Place>& places() const { return m_places; }

private:
    static constexpr uint32_t none = UINT32_MAX;
    /// Of the tokens from `begin` on. A gram is one token, or two neighbours.
    struct Links {
        uint32_t begin = 0;
        std::vector<uint32_t> before;  // by token: where the gram that ends with it ended before
        std::vector<uint32_t> latest;  // a hash table of the latest ends of all grams
        size_t num_grams = 0;

        uint32_t end() const { return begin + uint32_t(before.size()); }
    };

    /// The slot of the table for the gram that ends with token `i`.
    size_t find_slot(const Links& links, const std::vector<int64_t>& tokens, uint32_t i) const;
    void grow_table(const std::vector<int64_t>& tokens);
    void link(const std::vector<int64_t>& tokens, uint32_t i);
    uint32_t before(uint32_t i) const;
    /// Finds the places anew, or from those of the token before.
    void find_places(const std::vector<int64_t>& tokens);
    void advance_places(uint32_t i);

    uint32_t m_gram;
    std::array<uint64_t, 2> m_factors;  // of the tables' hashes
    std::shared_ptr<const Links> m_sealed;
    Links m_own;
    std::vector<Place> m_places, m_next_places;  // the second is kept for its memory
};

}  // namespace pagewheel
