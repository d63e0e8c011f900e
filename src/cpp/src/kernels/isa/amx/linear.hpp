// Linear layers in bf16 over tile registers, for any class of tiles (kernels/tiles.hpp) and any V
// of 16 lanes with to_bf16().
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/bf16_kernels.hpp"
#include "kernels/quantized_linear_tile.hpp"
#include "kernels/simd/math.hpp"
#include "kernels/tiles.hpp"

namespace pagewheel::kernels::amx {

constexpr size_t tile_size = TileConfig::most_rows;  // rows, and columns in f32

/// What a block is cut into. K-blocks of a range: those of two weight tiles, 40 KB, stay in a
/// core's L1 cache while the rows stream past. Rows of a block: a range of 256, 320 KB, stays in L2
/// while weight tiles pass, and so do the sums of a group of pairs of weight tiles between two
/// ranges, 512 KB.
constexpr size_t most_range = 20, most_block_rows = 256, most_group = 16;

/// With one pair of row tiles a weight is used once. It is unpacked so many k-blocks before its
/// products, into a ring of tiles that stay in L1: a tile that was stored a moment ago is waited
/// for.
constexpr size_t ring = 8, ring_ahead = 4, ring_step = 2;

/// The last block of a call takes up to 31 rows more, lest these be a block alone.
constexpr size_t most_row_pairs = most_block_rows / (2 * tile_size) + 1;

/// Products of two tiles of rows with two tiles of weights: [row tile][weight tile].
struct PairSums {
    float of[2][2][tile_size][tile_size];
};

struct BlockScratch {
    PairSums sums[most_group * most_row_pairs];
    uint16_t weights[2][2 * most_range * tile_block];
};

/// A block of rows times pairs of weight tiles: two neighbours, or a tile of the gate and that of
/// `up`. 32 rows by two weight tiles are summed in four tile registers.
///
/// The tiles' unit works beside the vectors', so two things that need no tiles are done between the
/// products of a pair, a little after each step of k: the next pair is unpacked, and the sums
/// before are added to the residual, or become SwiGLU, and go to their rows. Both read what was
/// written some time ago, because a load of bytes that the other unit has just stored waits.
///
/// Sums are stored to memory of their own. Stored to the output at its stride they take twice as
/// long as the products, where that is some KB.
template <class V, class Tiles>
class BlockProduct {
    static_assert(V::lanes == tile_size);

public:
    BlockProduct(const LinearKernels& kernels, const Bf16Block& block)
        : m_kernels(kernels),
          m_block(block),
          m_scratch(*static_cast<BlockScratch*>(block.scratch)),
          m_is_plain_gate(block.function && is_plain(*block.function)),
          m_pairs(block.up ? block.end - block.begin : (block.end - block.begin + 1) / 2),
          m_row_pairs((block.row_count + 2 * tile_size - 1) / (2 * tile_size)),
          m_ranges((block.weights->k_blocks() + most_range - 1) / most_range) {
        const size_t groups = m_ranges == 1 ? 1 : (m_pairs + most_group - 1) / most_group;
        m_group = (m_pairs + groups - 1) / groups;
    }

    void run() {
        m_tiles.configure();
        m_row_pairs == 1 ? run_row_pair() : run_row_pairs();
        finish_rest();
    }

private:
    void run_row_pairs() {
        begin_unpacking({}, m_scratch.weights[0]);
        unpack_rest();
        size_t buffer = 0;
        for (Step step; step.pair < m_pairs; buffer ^= 1) {
            const Step next = after(step);
            begin_unpacking(next, m_scratch.weights[buffer ^ 1]);
            multiply(step, m_scratch.weights[buffer]);
            unpack_rest();
            step = next;
        }
    }

    /// Multiplies over all of k at once, because no weight is read again.
    void run_row_pair() {
        const size_t k_blocks = m_block.weights->k_blocks();
        for (size_t i = 0; i < ring_ahead; i += ring_step) unpack_step();
        for (size_t pair = 0, place = 0; pair < m_pairs; ++pair) {
            PairProduct product;
            product.rows = m_block.rows.at(0, 0);
            product.weights = m_scratch.weights[0];
            product.next_weight_tile = ring * tile_block;
            product.place = place;
            product.mask = ring - 1;
            product.k_blocks = k_blocks;
            product.sums = &m_scratch.sums[pair % 2];
            size_t done = 0;
            multiply_tiles(product, 0, pair, [&] {
                if (done++ % ring_step == 0) unpack_step();
            });
            place += (k_blocks + ring_step - 1) / ring_step * ring_step;
        }
    }

    /// A range of k of a pair of weight tiles. All ranges of a group of pairs come before the next
    /// group.
    struct Step {
        size_t group = 0, range = 0, pair = 0;
    };
    /// Weights that are on their way.
    struct Unpacking {
        const PackedLinear* weights[2] = {};
        size_t tiles[2] = {};
        size_t begin = 0, size = 0;   // k-blocks of each
        size_t done = 0, blocks = 0;  // of both
        uint16_t* out = nullptr;
    };
    /// What is unpacked into the ring next.
    struct RingPlace {
        size_t pair = 0, k_block = 0, place = 0;
    };
    /// Sums that are on their way to their rows.
    struct Finishing {
        PairSums* sums = nullptr;
        size_t pair = 0, row = 0;  // the first row in the block
        size_t done = 0, rows = 0;
    };

    size_t range_begin(size_t range) const {
        return m_block.weights->k_blocks() * range / m_ranges;
    }
    size_t range_size(size_t range) const { return range_begin(range + 1) - range_begin(range); }

    Step after(Step step) const {
        const size_t end = std::min(step.group + m_group, m_pairs);
        if (++step.pair < end) return step;
        if (++step.range < m_ranges) return {step.group, step.range, step.group};
        return {end, 0, end};
    }

    /// Tiles of a pair: 2, but 1 of the last of an odd number.
    size_t tiles_of(size_t pair) const {
        return m_block.up || m_block.begin + 2 * pair + 1 < m_block.end ? 2 : 1;
    }

    // ---- Between the products

    void begin_unpacking(Step step, uint16_t* out) {
        m_unpacking = {};
        if (step.pair >= m_pairs) return;
        const size_t first = m_block.begin + (m_block.up ? step.pair : 2 * step.pair);
        m_unpacking.weights[0] = m_block.weights;
        m_unpacking.weights[1] = m_block.up ? m_block.up : m_block.weights;
        m_unpacking.tiles[0] = first;
        m_unpacking.tiles[1] = m_block.up ? first : first + 1;
        m_unpacking.begin = range_begin(step.range);
        m_unpacking.size = range_size(step.range);
        m_unpacking.blocks = tiles_of(step.pair) * m_unpacking.size;
        m_unpacking.out = out;
    }
    void unpack_block() {
        Unpacking& u = m_unpacking;
        const size_t which = u.done >= u.size, c = u.begin + u.done - which * u.size;
        m_kernels.bf16.unpack(*u.weights[which], u.tiles[which], c, c + 1,
                              u.out + u.done++ * tile_block);
    }
    void unpack_rest() {
        while (m_unpacking.done < m_unpacking.blocks) unpack_block();
    }

    /// Unpacks the next k-blocks of both tiles, in the order of run_row_pair().
    void unpack_step() {
        RingPlace& next = m_next;
        if (next.pair >= m_pairs) return;
        const size_t k_blocks = m_block.weights->k_blocks();
        const size_t first = m_block.begin + (m_block.up ? next.pair : 2 * next.pair);
        const size_t begin = next.k_block, end = std::min(begin + ring_step, k_blocks);
        uint16_t* out = m_scratch.weights[0] + next.place % ring * tile_block;
        m_kernels.bf16.unpack(*m_block.weights, first, begin, end, out);
        if (tiles_of(next.pair) == 2)
            m_kernels.bf16.unpack(m_block.up ? *m_block.up : *m_block.weights,
                                  m_block.up ? first : first + 1, begin, end,
                                  out + ring * tile_block);
        next.place += ring_step;
        next.k_block = end < k_blocks ? end : 0;
        next.pair += end == k_blocks;
    }

    void finish_row() {
        const size_t r = m_finishing.done++, row = m_finishing.row + r;
        float* left = m_finishing.sums->of[r / tile_size][0][r % tile_size];
        float* right = m_finishing.sums->of[r / tile_size][1][r % tile_size];
        if (m_block.up) {
            const size_t tile = m_block.begin + m_finishing.pair;
            if (!m_is_plain_gate) prepare(tile * tile_size, left, right);
            const auto gate = V::load(left);
            return store_inner(V::mul(simd::gated<V>(gate, gate), V::load(right)), row, tile);
        }
        const size_t tile = m_block.begin + 2 * m_finishing.pair;
        store_output(left, row, tile);
        if (tile + 1 < m_block.end) store_output(right, row, tile + 1);
    }
    void finish_rest() {
        while (m_finishing.done < m_finishing.rows) finish_row();
    }

    void store_output(const float* sums, size_t row, size_t tile) const {
        const size_t n = m_block.weights->n(), column = tile * tile_size;
        const size_t at = row * m_block.stride + column - m_block.begin * tile_size;
        if (column + tile_size <= n) return add_residual<tile_size>(sums, at, tile_size);
        add_residual<0>(sums, at, n - column);
    }
    /// `whole`: the number of columns if all exist. The compiler makes vectors of that.
    template <size_t whole>
    void add_residual(const float* sums, size_t at, size_t some) const {
        const size_t columns = whole ? whole : some;
        float total[tile_size];
        std::memcpy(total, sums, sizeof total);
        if (m_block.residual)
            for (size_t i = 0; i < columns; ++i) total[i] += m_block.residual[at + i];
        std::memcpy(m_block.output + at, total, columns * sizeof(float));
        // Fetches the next pair's lines, which are written after all rows of this pair.
        __builtin_prefetch(m_block.output + at + 2 * tile_size, 1, 2);
        if (m_block.residual) __builtin_prefetch(m_block.residual + at + 2 * tile_size, 0, 2);
    }

    [[gnu::noinline]] void prepare(size_t column, float* gate, float* up) const {
        const size_t columns = std::min(tile_size, m_block.weights->n() - column);
        prepare_gate(*m_block.function, column, columns, gate, up);
    }

    /// Half of a k-block, and zeros for the other half where that does not exist.
    void store_inner(typename V::F values, size_t row, size_t tile) const {
        uint16_t* to = m_block.inner.at(row, tile / 2) + tile % 2 * tile_size;
        V::store_halves(to, V::to_bf16(values), tile_size);
        if (tile % 2 == 0 && tile + 1 == m_block.weights->tiles())
            V::store_halves(to + tile_size, V::to_bf16(V::zero()), tile_size);
    }

    // ---- The products

    struct PairProduct {
        const uint16_t* rows;
        const uint16_t* weights;  // k-block c of the first tile at place (place + c) & mask
        size_t next_weight_tile;
        size_t place = 0, mask = ~size_t(0);
        size_t k_blocks;
        bool adds = false;  // to what `sums` has
        PairSums* sums;
    };

    void multiply(const Step& step, const uint16_t* weights) {
        const size_t begin = range_begin(step.range), size = range_size(step.range);
        const size_t steps = m_row_pairs * size;
        Unpacking& u = m_unpacking;
        size_t done = 0;
        // What the next step takes is ready with the last product.
        const auto between = [&] {
            for (++done; u.done < u.blocks && u.done * steps < done * u.blocks;) unpack_block();
        };
        for (size_t r = 0; r < m_row_pairs; ++r) {
            PairProduct product;
            product.rows = m_block.rows.at(2 * tile_size * r, begin);
            product.weights = weights;
            product.next_weight_tile = size * tile_block;
            product.k_blocks = size;
            product.adds = step.range > 0;
            // With one range the sums of the products before are still on their way.
            product.sums = m_ranges == 1
                               ? &m_scratch.sums[m_products++ % 2]
                               : &m_scratch.sums[(step.pair - step.group) * m_row_pairs + r];
            multiply_tiles(product, r, step.pair, between, step.range + 1 == m_ranges);
        }
    }

    /// Row pair `r` times a pair of weight tiles. Calls between() after each k-block; the rows of
    /// the products before are finished then too. `ends`: these sums are finished next.
    template <class Between>
    void multiply_tiles(const PairProduct& product, size_t r, size_t pair, const Between& between,
                        bool ends = true) {
        const size_t row = 2 * tile_size * r;
        const bool two_row_tiles = row + tile_size < m_block.row_count;
        const bool two_weight_tiles = tiles_of(pair) == 2;
        if (two_row_tiles)
            two_weight_tiles ? multiply_pair<true, true>(product, between)
                             : multiply_pair<true, false>(product, between);
        else
            two_weight_tiles ? multiply_pair<false, true>(product, between)
                             : multiply_pair<false, false>(product, between);
        finish_rest();
        if (ends)
            m_finishing = {product.sums, pair, row, 0,
                           std::min(2 * tile_size, m_block.row_count - row)};
    }

    template <bool two_row_tiles, bool two_weight_tiles, class Between>
    [[gnu::noinline]] void multiply_pair(const PairProduct& p, const Between& between) {
        constexpr size_t row_bytes = TileConfig::most_row_bytes;
        for_sums<two_row_tiles, two_weight_tiles>([&](auto t) {
            if (p.adds)
                m_tiles.template load<t>(p.sums->of[t / 2][t % 2], row_bytes);
            else
                m_tiles.template zero<t>();
        });
        const uint16_t* x = p.rows;
        const size_t next_row_tile = m_block.rows.tile_stride;
        const size_t at_once = (2 * tile_size + p.k_blocks - 1) / p.k_blocks;
        for (size_t c = 0; c < p.k_blocks; ++c, x += tile_size * row_block) {
            const uint16_t* w = p.weights + ((p.place + c) & p.mask) * tile_block;
            m_tiles.template load_streamed<4>(x, row_bytes);
            m_tiles.template load<6>(w, row_bytes);
            m_tiles.template dpbf16<0, 4, 6>();
            if constexpr (two_weight_tiles) {
                m_tiles.template load<7>(w + p.next_weight_tile, row_bytes);
                m_tiles.template dpbf16<1, 4, 7>();
            }
            if constexpr (two_row_tiles) {
                m_tiles.template load_streamed<5>(x + next_row_tile, row_bytes);
                m_tiles.template dpbf16<2, 5, 6>();
            }
            if constexpr (two_row_tiles && two_weight_tiles) m_tiles.template dpbf16<3, 5, 7>();
            between();
            for (size_t i = c > 0 ? 0 : at_once; i < at_once; ++i) {
                if (m_finishing.done == m_finishing.rows) break;
                finish_row();
            }
        }
        for_sums<two_row_tiles, two_weight_tiles>(
            [&](auto t) { m_tiles.template store<t>(p.sums->of[t / 2][t % 2], row_bytes); });
    }

    template <bool two_row_tiles, bool two_weight_tiles, class Body>
    static void for_sums(const Body& body) {
        body(std::integral_constant<int, 0>());
        if constexpr (two_weight_tiles) body(std::integral_constant<int, 1>());
        if constexpr (two_row_tiles) body(std::integral_constant<int, 2>());
        if constexpr (two_row_tiles && two_weight_tiles) body(std::integral_constant<int, 3>());
    }

    const LinearKernels& m_kernels;
    const Bf16Block& m_block;
    BlockScratch& m_scratch;
    const bool m_is_plain_gate;
    size_t m_pairs, m_row_pairs, m_ranges, m_group = 0;
    size_t m_products = 0;
    Unpacking m_unpacking;
    RingPlace m_next;
    Finishing m_finishing;
    Tiles m_tiles;
};

template <class V, class Tiles>
void run_block(const LinearKernels& kernels, const Bf16Block& block) {
    BlockProduct<V, Tiles>(kernels, block).run();
}

/// `others` with products on tiles. Unpacking beside the products is nearly hidden by 256 rows of a
/// thread's own. Where a thread would have fewer than 128 rows, threads share what they unpack.
template <class V, class Tiles>
Bf16Kernels bf16_kernels(Bf16Kernels others) {
    others.tile_rows = tile_size;
    others.item_tiles = 16;
    others.most_rows = most_block_rows;
    others.least_own_rows = 128;
    others.range_k_blocks = 0;
    others.scratch_bytes = sizeof(BlockScratch);
    others.run = run_block<V, Tiles>;
    others.multiply = nullptr;
    return others;
}

}  // namespace pagewheel::kernels::amx
