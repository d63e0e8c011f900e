// Divides routed experts among all threads: rows sorted by expert, then a grouped product.
#include "kernels/experts.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"
#include "kernels/bf16_linear.hpp"
#include "kernels/kernels.hpp"
#include "kernels/quantized_linear_parts.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

constexpr size_t tile_rows = PackedLinear::tile_rows;

/// A row that an expert multiplies, and what its result is multiplied with.
struct Assignment {
    size_t row;
    float weight;
};

/// The rows that chose one expert: assignments [first, first + count).
struct Group {
    const Expert* expert;
    size_t first, count;
    bool in_bf16;               // in bf16, else quantised
    QuantizedRows rows, inner;  // if not
    PackedRows packed, gated;   // if so
};

/// Tiles [begin, end) of a group's gate and up, times rows [first, first + count).
struct Item {
    size_t group, begin, end, first, count;
};

/// What the threads of a call share, kept from call to call.
struct Call {
    std::vector<size_t> starts;  // of each expert's assignments
    std::vector<Assignment> assignments;
    std::vector<size_t> places;     // of each row's choices among the assignments
    std::vector<size_t> groups_of;  // of each assignment
    std::vector<Group> groups;
    std::vector<Item> items;
    LineBuffer<CacheLine> memory;

    static Call& mine() {
        static thread_local Call call;
        return call;
    }
};

/// A stable counting sort: assignments by expert, and of one expert by row.
void sort_by_expert(const LinearInput& input, const Experts& experts, const Routing& routing,
                    Call& call) {
    const size_t count = input.rows * routing.active, num_experts = experts.experts.size();
    call.starts.assign(num_experts + 1, 0);
    for (size_t i = 0; i < count; ++i) {
        check_argument(routing.chosen[i] < num_experts, "a row chose expert ", routing.chosen[i],
                       " of ", num_experts);
        ++call.starts[routing.chosen[i] + 1];
    }
    for (size_t e = 0; e < num_experts; ++e) call.starts[e + 1] += call.starts[e];
    call.groups.clear();
    call.groups_of.resize(count);
    for (size_t e = 0; e < num_experts; ++e) {
        const size_t first = call.starts[e], size = call.starts[e + 1] - first;
        if (size == 0) continue;
        std::fill_n(call.groups_of.begin() + long(first), size, call.groups.size());
        call.groups.emplace_back();
        Group& group = call.groups.back();
        group.expert = &experts.experts[e];
        group.first = first;
        group.count = size;
    }
    call.assignments.resize(count);
    call.places.resize(count);
    for (size_t i = 0; i < count; ++i) {
        call.places[i] = call.starts[routing.chosen[i]]++;
        call.assignments[call.places[i]] = {i / routing.active, routing.weights[i]};
    }
}

size_t packed_lines(const LinearKernels& kernels, size_t count, size_t k) {
    return packed_numbers(count, k, kernels.bf16.tile_rows) * sizeof(uint16_t) / sizeof(CacheLine);
}

/// Gives each group memory for its rows and for what gate and up give.
void place_rows(const LinearKernels& kernels,
                const std::function<Activations(size_t rows)>& activations, Call& call) {
    size_t lines = 0;
    std::vector<size_t>& starts = call.starts;
    starts.clear();
    for (Group& group : call.groups) {
        const size_t k = group.expert->gate.k(), inner = group.expert->down.k();
        const Activations kind = activations(group.count);
        group.in_bf16 = kind == Activations::bf16;
        if (group.in_bf16) check_bf16(kernels);
        starts.push_back(lines);
        lines += group.in_bf16 ? packed_lines(kernels, group.count, k)
                               : group.rows.set_shape(group.count, k, kind);
        starts.push_back(lines);
        lines += group.in_bf16 ? packed_lines(kernels, group.count, inner)
                               : group.inner.set_shape(group.count, inner, kind);
    }
    CacheLine* memory = call.memory.resize(lines);
    for (size_t g = 0; g < call.groups.size(); ++g) {
        Group& group = call.groups[g];
        group.rows.place(memory + starts[2 * g]);
        group.inner.place(memory + starts[2 * g + 1]);
        if (!group.in_bf16) continue;
        const auto packed_at = [&](size_t start, size_t k) {
            return packed_rows(reinterpret_cast<uint16_t*>(memory + start), k,
                               kernels.bf16.tile_rows);
        };
        group.packed = packed_at(starts[2 * g], group.expert->gate.k());
        group.gated = packed_at(starts[2 * g + 1], group.expert->down.k());
    }
}

/// The most rows of a block in bf16 that are whole tiles of rows.
size_t block_rows(const Bf16Kernels& kernels) {
    return kernels.most_rows / kernels.tile_rows * kernels.tile_rows;
}

void plan_gated(const LinearKernels& kernels, Call& call) {
    call.items.clear();
    for (size_t g = 0; g < call.groups.size(); ++g) {
        const Group& group = call.groups[g];
        const size_t tiles = group.expert->gate.tiles();
        const size_t step = group.in_bf16 ? kernels.bf16.item_tiles : tiles_per_k_block;
        const size_t rows = group.in_bf16 ? block_rows(kernels.bf16) : group.count;
        for (size_t begin = 0; begin < tiles; begin += step)
            for (size_t first = 0; first < group.count; first += rows)
                call.items.push_back({g, begin, std::min(begin + step, tiles), first,
                                      std::min(rows, group.count - first)});
    }
}

/// Copies a row of a block to a row of another.
void copy_row(const QuantizedBlock& from, const QuantizedBlock& to, size_t k_blocks) {
    const size_t bytes = to.value_bytes();
    for (size_t c = 0; c < k_blocks; ++c) {
        const size_t at = c * from.stride, place = c * to.stride;
        std::memcpy(to.values + place * bytes, from.values + at * bytes, bytes);
        to.scales[place] = from.scales[at];
        to.sums[place] = from.sums[at];
        if (to.wide()) to.magic[place] = from.magic[at];
    }
}

/// Puts a row into the groups of its experts. Quantising takes much longer than a copy, so it is
/// done once, or twice where some of the experts take int8 and some int16.
void place_row(const LinearKernels& kernels, const LinearInput& input, size_t k, size_t row,
               size_t active, Call& call) {
    QuantizedBlock quantised[2];  // by whether it is wide
    for (size_t i = row * active; i < (row + 1) * active; ++i) {
        Group& group = call.groups[call.groups_of[call.places[i]]];
        const size_t place = call.places[i] - group.first;
        if (group.in_bf16) {
            pack_row(kernels, input, k, row, group.packed.tile_rows, group.packed.at(place, 0));
            continue;
        }
        const QuantizedBlock to = group.rows.row(place);
        QuantizedBlock& from = quantised[to.wide()];
        if (from.rows > 0) {
            copy_row(from, to, group.expert->gate.k_blocks());
            continue;
        }
        quantize_rows(kernels, input, k, row, to);
        from = to;
    }
}

void run_gated(const LinearKernels& kernels, const Experts& experts, Group& group,
               const Item& item) {
    const Expert& expert = *group.expert;
    GatedMlp mlp;
    mlp.gate = &expert.gate;
    mlp.up = &expert.up;
    mlp.function = experts.function;
    mlp.function.gate_bias = expert.gate_bias.empty() ? nullptr : expert.gate_bias.data();
    mlp.function.up_bias = expert.up_bias.empty() ? nullptr : expert.up_bias.data();
    if (!group.in_bf16) {
        for (size_t b = 0; b < group.rows.blocks(); ++b)
            run_gated_item(kernels, mlp, group.rows, item.begin, item.end, b, group.inner);
        return;
    }
    Bf16Block block = gated_block_of(mlp, group.packed.from(item.first), item.count,
                                     group.gated.from(item.first));
    block.begin = item.begin;
    block.end = item.end;
    run_block(kernels, block);
}

/// Columns [begin * 16, ...) of the output, for which a thread adds up all experts.
class OutputColumns {
public:
    OutputColumns(const LinearKernels& kernels, const std::vector<Assignment>& assignments,
                  size_t n, float* output, size_t begin, size_t end)
        : m_kernels(kernels),
          m_assignments(assignments),
          m_n(n),
          m_output(output + begin * tile_rows),
          m_begin(begin),
          m_end(end),
          m_columns(std::min(end * tile_rows, n) - begin * tile_rows) {}

    void begin(const float* residual, size_t rows) const {
        for (size_t r = 0; r < rows; ++r) {
            float* out = m_output + r * m_n;
            const float* from = residual ? residual + m_begin * tile_rows + r * m_n : nullptr;
            if (!from)
                std::memset(out, 0, m_columns * sizeof(float));
            else if (from != out)
                std::memcpy(out, from, m_columns * sizeof(float));
        }
    }

    void add(Group& group) const {
        if (group.in_bf16) return add_bf16(group);
        alignas(64) static thread_local float sums[max_block_rows * most_columns];
        for (size_t column = 0; column < m_columns; column += most_columns)
            for (size_t b = 0; b < group.inner.blocks(); ++b) {
                const QuantizedBlock block = group.inner.block(b);
                TileOutput products;
                products.output = sums;
                products.stride = most_columns;
                products.columns = std::min(most_columns, m_columns - column);
                multiply_tiles(m_kernels, group.expert->down, m_begin + column / tile_rows, block,
                               products);
                add_weighted(group, group.inner.first(b), block.rows, column, products.columns,
                             sums, most_columns);
            }
    }

private:
    static constexpr size_t most_columns = 2 * tile_rows;  // at a time

    void add_bf16(const Group& group) const {
        static thread_local LineBuffer<float> buffer;
        const size_t step = block_rows(m_kernels.bf16), width = (m_end - m_begin) * tile_rows;
        for (size_t first = 0; first < group.count; first += step) {
            Bf16Block block;
            block.rows = group.gated.from(first);
            block.row_count = std::min(step, group.count - first);
            block.weights = &group.expert->down;
            block.begin = m_begin;
            block.end = m_end;
            block.output = buffer.resize(block.row_count * width);
            block.stride = width;
            run_block(m_kernels, block);
            add_weighted(group, first, block.row_count, 0, m_columns, block.output, width);
        }
    }

    /// Adds `columns` columns from `column` on of the group's rows [first, first + rows).
    void add_weighted(const Group& group, size_t first, size_t rows, size_t column, size_t columns,
                      const float* sums, size_t stride) const {
        const std::vector<float>& biases = group.expert->down_bias;
        const float* bias = biases.empty() ? nullptr : biases.data() + m_begin * tile_rows + column;
        for (size_t r = 0; r < rows; ++r, sums += stride) {
            const Assignment& assignment = m_assignments[group.first + first + r];
            float* out = m_output + assignment.row * m_n + column;
            for (size_t i = 0; i < columns; ++i)
                out[i] += assignment.weight * (bias ? sums[i] + bias[i] : sums[i]);
        }
    }

    const LinearKernels& m_kernels;
    const std::vector<Assignment>& m_assignments;
    size_t m_n;
    float* m_output;
    size_t m_begin, m_end, m_columns;
};

/// Tiles of `down` that an item takes through all experts.
size_t down_step(const LinearKernels& kernels, const std::vector<Group>& groups, size_t tiles) {
    const bool in_bf16 =
        std::any_of(groups.begin(), groups.end(), [](const Group& group) { return group.in_bf16; });
    size_t step = in_bf16 ? kernels.bf16.item_tiles : 2;
    while (step > 2 && tiles < 2 * num_threads() * step) step /= 2;
    return step;
}

}  // namespace

void check_experts(const Experts& experts) {
    check_argument(!experts.experts.empty(), "a layer of no experts");
    const PackedLinear &gate = experts.experts[0].gate, &down = experts.experts[0].down;
    for (const Expert& expert : experts.experts) {
        const auto is_like = [&](const PackedLinear& one, const PackedLinear& other) {
            return one.n() == other.n() && one.k() == other.k() && one.is_bf16() == other.is_bf16();
        };
        const auto fits = [](const std::vector<float>& bias, size_t n) {
            return bias.empty() || bias.size() == n;
        };
        check_argument(is_like(expert.gate, gate) && is_like(expert.up, gate) &&
                           is_like(expert.down, down) && down.k() == gate.n() &&
                           down.is_bf16() == gate.is_bf16() && fits(expert.gate_bias, gate.n()) &&
                           fits(expert.up_bias, gate.n()) && fits(expert.down_bias, down.n()),
                       "experts of other sizes or forms in one layer: must be equal");
    }
}

void routed_experts_by(const LinearKernels& kernels, const LinearInput& input,
                       const Experts& experts, const Routing& routing,
                       const std::function<Activations(size_t rows)>& activations, float* output,
                       const float* residual) {
    if (input.rows == 0) return;
    // Named here, because in the phases below a thread_local would be the running thread's own.
    Call& call = Call::mine();
    sort_by_expert(input, experts, routing, call);
    place_rows(kernels, activations, call);
    plan_gated(kernels, call);
    const size_t k = experts.experts[0].gate.k(), n = experts.experts[0].down.n();
    const size_t tiles = experts.experts[0].down.tiles();
    const size_t step = down_step(kernels, call.groups, tiles);
    run_phases(Phase{input.rows,
                     [&](size_t row) { place_row(kernels, input, k, row, routing.active, call); }},
               StreamPhase{call.items.size(),
                           [&](size_t i) {
                               const Item& item = call.items[i];
                               run_gated(kernels, experts, call.groups[item.group], item);
                           }},
               StreamPhase{(tiles + step - 1) / step, [&](size_t i) {
                               const OutputColumns columns(kernels, call.assignments, n, output,
                                                           i * step,
                                                           std::min((i + 1) * step, tiles));
                               columns.begin(residual, input.rows);
                               for (Group& group : call.groups) columns.add(group);
                           }});
}

void routed_experts(const LinearInput& input, const Experts& experts, const Routing& routing,
                    ActivationPrecision precision, float* output, const float* residual, Isa isa) {
    const Expert& first = experts.experts[0];
    const WeightForm form =
        common_form(common_form(first.gate.form(), first.up.form()), first.down.form());
    routed_experts_by(
        isa.kernels().linear, input, experts, routing,
        [&](size_t rows) {
            return choose_expert_activations(precision, input.rows, rows, form, isa);
        },
        output, residual);
}

}  // namespace pagewheel::kernels
