// Divides linear layers in bf16 into groups of panels and parts of the rows for all threads.
#include "kernels/panel_linear.hpp"

#include <algorithm>
#include <vector>

#include "base/check.hpp"
#include "kernels/panel_rows.hpp"
#include "kernels/quantized_linear_parts.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

constexpr size_t outputs_of_panel = PackedLinear::tile_rows;

/// Rows of an item: the most whose sums stay in a core's L2 cache, and the fewest that are worth
/// unpacking weights for once more.
constexpr size_t most_item_rows = 512, least_item_rows = 32;

/// Rows whose gates and ups stay in the L1 cache until they are rounded.
constexpr size_t gated_rows = 32;

/// Panels [begin, end) of a matrix.
struct PanelRun {
    const PackedLinear* weights = nullptr;
    size_t begin = 0, end = 0;

    size_t count() const { return end - begin; }
};

/// Rows [first, first + count) times group `group` of panels.
struct Item {
    size_t group, first, count;
};

/// Panels of a group: fewer than the kernels like where that gives each thread a few groups.
size_t panels_per_group(const PanelKernels& kernels, size_t panels) {
    const auto threads = size_t(tbb::this_task_arena::max_concurrency());
    size_t group = kernels.group_panels;
    while (group > 4 && panels < 4 * threads * group) group /= 2;
    return group;
}

/// All groups times all rows. Items become smaller towards the end, so that threads end together
/// though each item unpacks its group.
void divide(const PanelKernels& kernels, size_t groups, size_t rows, std::vector<Item>& items) {
    const auto threads = size_t(tbb::this_task_arena::max_concurrency());
    const size_t step = 2 * kernels.tile_rows;
    size_t left = groups * rows;
    items.clear();
    for (size_t group = 0; group < groups; ++group)
        for (size_t first = 0, count; first < rows; first += count, left -= count) {
            count = std::clamp(left / (2 * threads), least_item_rows, most_item_rows);
            count = (count + step - 1) / step * step;
            if (rows - first < count + least_item_rows) count = rows - first;
            items.push_back({group, first, count});
        }
}

/// The ranges of k that weights are unpacked in, alike. They depend on k alone, as a row's sums do.
struct Ranges {
    size_t k_blocks, count;

    Ranges(const PanelKernels& kernels, size_t k_blocks)
        : k_blocks(k_blocks),
          count((k_blocks + kernels.range_k_blocks - 1) / kernels.range_k_blocks) {}
    size_t begin(size_t i) const { return k_blocks * i / count; }
    size_t size(size_t i) const { return begin(i + 1) - begin(i); }
};

/// Unpacks range `i` of the runs' panels, one after the other, into the thread's own memory.
const uint16_t* unpack(const PanelKernels& kernels, const PanelRun* runs, size_t count,
                       const Ranges& ranges, size_t i) {
    static thread_local LineBuffer<uint16_t> buffer;
    const size_t range = ranges.size(i) * panel_block;
    size_t panels = 0;
    for (size_t run = 0; run < count; ++run) panels += runs[run].count();
    uint16_t* out = buffer.resize(panels * range);
    for (size_t run = 0; run < count; ++run)
        for (size_t panel = runs[run].begin; panel < runs[run].end; ++panel, out += range)
            kernels.unpack(*runs[run].weights, panel, ranges.begin(i), ranges.begin(i + 1), out);
    return buffer.data();
}

/// Range `i` of k of `count` rows from `first` on, without weights and output.
PanelProduct product_of(PanelRows& rows, size_t first, size_t count, const Ranges& ranges,
                        size_t i) {
    PanelProduct product;
    product.rows = rows.at(first, ranges.begin(i));
    product.tile_stride = rows.tile_stride();
    product.row_count = count;
    product.k_blocks = ranges.size(i);
    return product;
}

/// The sums of a part's rows between ranges.
float* own_sums(size_t size) {
    static thread_local LineBuffer<float> buffer;
    return buffer.resize(size);
}

void pack_rows(const LinearKernels& kernels, const LinearInput& input, size_t k, size_t first,
               PanelRows& rows) {
    static thread_local LineBuffer<float> normed;
    const size_t end = std::min(first + rows.tile_rows(), input.rows);
    for (size_t row = first; row < end; ++row) {
        const float* x = input.x + row * k;
        if (input.gamma) {
            float* norm = normed.resize(k);
            kernels.rms_norm(x, input.gamma, input.epsilon, k, norm);
            x = norm;
        }
        kernels.panels.pack_row(x, k, rows.tile_rows(), rows.at(row, 0));
    }
}

/// Panels [begin, end) of a matrix.
struct LinearGroup {
    const LinearOutput* matrix;
    size_t begin, end;
};

void run_item(const PanelKernels& kernels, const LinearGroup& group, PanelRows& rows, size_t first,
              size_t count) {
    const LinearOutput& matrix = *group.matrix;
    const PanelRun run{matrix.weights, group.begin, group.end};
    const size_t n = matrix.weights->n(), column = group.begin * outputs_of_panel;
    const size_t at = first * n + column, width = run.count() * outputs_of_panel;
    const Ranges ranges(kernels, matrix.weights->k_blocks());
    float* sums = ranges.count > 1 ? own_sums(count * width) : nullptr;
    for (size_t i = 0; i < ranges.count; ++i) {
        PanelProduct product = product_of(rows, first, count, ranges, i);
        product.panels = unpack(kernels, &run, 1, ranges, i);
        product.panel_count = run.count();
        const bool begins = i == 0, ends = i + 1 == ranges.count;
        const float* residual = matrix.residual ? matrix.residual + at : nullptr;
        PanelOutput& output = product.output;
        output.initial = begins ? residual : sums;
        output.initial_stride = begins ? n : width;
        output.output = ends ? matrix.output + at : sums;
        output.output_stride = ends ? n : width;
        output.columns = std::min(width, n - column);
        kernels.multiply(product);
    }
}

/// Panels [begin, end) of the gate and of `up`, whole k-blocks of what `down` takes.
struct GatedGroup {
    const GatedMlp* mlp;
    size_t begin, end;
};

/// SwiGLU of `count` rows of gates and ups side by side, rounded into the rows that `down` takes.
void finish_gated(const LinearKernels& kernels, const GatedGroup& group, float* sums, size_t first,
                  size_t count, PanelRows& inner) {
    const size_t half = (group.end - group.begin) * outputs_of_panel;
    const size_t column = group.begin * outputs_of_panel;
    const size_t columns = std::min(half, group.mlp->gate->n() - column);
    for (size_t r = 0; r < count; ++r, sums += 2 * half) {
        kernels.swiglu(sums, sums + half, columns);
        kernels.panels.pack_row(sums, columns, inner.tile_rows(),
                                inner.at(first + r, column / PackedLinear::k_block));
    }
}

void run_gated_item(const LinearKernels& all, const GatedGroup& group, PanelRows& rows,
                    size_t first, size_t count, PanelRows& inner) {
    const PanelKernels& kernels = all.panels;
    const PanelRun runs[] = {{group.mlp->gate, group.begin, group.end},
                             {group.mlp->up, group.begin, group.end}};
    const size_t panels = 2 * runs[0].count(), width = panels * outputs_of_panel;
    const Ranges ranges(kernels, group.mlp->gate->k_blocks());
    // With one range a few rows are finished at a time, in the same memory.
    const size_t step =
        ranges.count == 1 ? gated_rows / rows.tile_rows() * rows.tile_rows() : count;
    float* sums = own_sums(std::min(step, count) * width);
    for (size_t i = 0; i < ranges.count; ++i) {
        const uint16_t* unpacked = unpack(kernels, runs, 2, ranges, i);
        for (size_t row = 0; row < count; row += step) {
            const size_t some = std::min(step, count - row);
            PanelProduct product = product_of(rows, first + row, some, ranges, i);
            product.panels = unpacked;
            product.panel_count = panels;
            product.output = {sums, i == 0 ? nullptr : sums, width, width, width};
            kernels.multiply(product);
            if (i + 1 == ranges.count) finish_gated(all, group, sums, first + row, some, inner);
        }
    }
}

/// What a call does, piece by piece.
struct Plan {
    std::vector<LinearGroup> groups;
    std::vector<Item> items;
};

void make_plan(const PanelKernels& kernels, const LinearOutput* outputs, size_t count, size_t rows,
               Plan& plan) {
    plan.groups.clear();
    size_t panels = 0;
    for (size_t i = 0; i < count; ++i) panels += outputs[i].weights->tiles();
    const size_t step = panels_per_group(kernels, panels);
    for (size_t i = 0; i < count; ++i)
        for (size_t begin = 0; begin < outputs[i].weights->tiles(); begin += step)
            plan.groups.push_back(
                {&outputs[i], begin, std::min(begin + step, outputs[i].weights->tiles())});
    divide(kernels, plan.groups.size(), rows, plan.items);
}

void run_item(const PanelKernels& kernels, const Plan& plan, size_t i, PanelRows& rows) {
    const Item& item = plan.items[i];
    run_item(kernels, plan.groups[item.group], rows, item.first, item.count);
}

void check_panels(const LinearKernels& kernels) {
    check_argument(kernels.panels.multiply,
                   "activations in bf16: this instruction set has no products of bf16");
}

size_t tiles_of(const PanelKernels& kernels, size_t rows) {
    return (rows + kernels.tile_rows - 1) / kernels.tile_rows;
}

}  // namespace

void panel_linear(const LinearKernels& kernels, const LinearInput& input,
                  const LinearOutput* outputs, size_t count, const RotaryAngles& angles) {
    check_panels(kernels);
    // Named here, because in the phases below a thread_local would be the running thread's own.
    static thread_local PanelRows own_rows;
    static thread_local Plan own_plan;
    PanelRows& rows = own_rows;
    Plan& plan = own_plan;
    const PanelKernels& panels = kernels.panels;
    const size_t k = outputs[0].weights->k(), step = panels.tile_rows;
    const size_t tiles = tiles_of(panels, input.rows);
    rows.resize(input.rows, k, step);
    make_plan(panels, outputs, count, input.rows, plan);
    run_phases(Phase{tiles, [&](size_t t) { pack_rows(kernels, input, k, t * step, rows); }},
               Phase{plan.items.size(), [&](size_t i) { run_item(panels, plan, i, rows); }},
               Phase{angles.size ? tiles : 0, [&](size_t t) {
                         const size_t some = std::min(step, input.rows - t * step);
                         rotate_rows(kernels, outputs, count, t * step, some, angles);
                     }});
}

void panel_mlp(const LinearKernels& kernels, const LinearInput& input, const GatedMlp& mlp) {
    check_panels(kernels);
    static thread_local PanelRows own_rows, own_inner;
    static thread_local Plan own_plan;
    static thread_local std::vector<Item> own_gated_items;
    PanelRows &rows = own_rows, &inner = own_inner;
    Plan& plan = own_plan;
    std::vector<Item>& gated_items = own_gated_items;
    const PanelKernels& panels = kernels.panels;
    const size_t k = mlp.gate->k(), tile_rows = panels.tile_rows;
    rows.resize(input.rows, k, tile_rows);
    inner.resize(input.rows, mlp.down->k(), tile_rows);
    const LinearOutput down{mlp.down, mlp.output, mlp.residual};
    make_plan(panels, &down, 1, input.rows, plan);

    const size_t gates = mlp.gate->tiles();
    const size_t step = panels_per_group(panels, 2 * gates) / 2;
    divide(panels, (gates + step - 1) / step, input.rows, gated_items);
    run_phases(Phase{tiles_of(panels, input.rows),
                     [&](size_t t) { pack_rows(kernels, input, k, t * tile_rows, rows); }},
               Phase{gated_items.size(),
                     [&](size_t i) {
                         const Item& item = gated_items[i];
                         const size_t begin = item.group * step;
                         const GatedGroup group{&mlp, begin, std::min(begin + step, gates)};
                         run_gated_item(kernels, group, rows, item.first, item.count, inner);
                     }},
               Phase{plan.items.size(), [&](size_t i) { run_item(panels, plan, i, inner); }});
}

}  // namespace pagewheel::kernels
