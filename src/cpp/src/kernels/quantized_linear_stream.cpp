#include "kernels/quantized_linear_stream.hpp"

#include <algorithm>
#include <functional>

#include "kernels/quantized_linear_parts.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

/// Rows so few that each thread quantises all of them for itself instead of waiting for another.
constexpr size_t max_own_rows = 2;

bool overlaps(const LinearInput& input, size_t k, const float* output, size_t n) {
    const std::less<const float*> before;
    return before(input.x, output + input.rows * n) && before(output, input.x + input.rows * k);
}

/// The rows of a call: the calling thread's own copy, or one for all threads. An input that is
/// written over is quantised before anyone goes on.
class FewRows {
public:
    FewRows(const LinearKernels& kernels, const LinearInput& input, const LinearOutput* outputs,
            size_t count, size_t k, QuantizedRows& shared)
        : m_kernels(kernels),
          m_input(input),
          m_k(k),
          m_shared(shared),
          m_own(input.rows <= max_own_rows &&
                std::none_of(outputs, outputs + count, [&](const LinearOutput& one) {
                    return overlaps(input, k, one.output, one.weights->n());
                })) {
        if (!m_own) shared.resize(input.rows, k, streamed_form(input));
    }
    void quantize_own() const {
        if (!m_own) return;
        own_rows().resize(m_input.rows, m_k, streamed_form(m_input));
        quantize_rows(m_kernels, m_input, m_k, 0, own_rows().block(0));
    }
    size_t shared_rows() const { return m_own ? 0 : m_input.rows; }
    void quantize_shared(size_t row) const {
        quantize_rows(m_kernels, m_input, m_k, row, m_shared.row(row));
    }
    QuantizedRows& rows() const { return m_own ? own_rows() : m_shared; }

private:
    static QuantizedRows& own_rows() {
        static thread_local QuantizedRows rows;
        return rows;
    }

    const LinearKernels& m_kernels;
    const LinearInput& m_input;
    size_t m_k;
    QuantizedRows& m_shared;
    bool m_own;
};

/// One tile times all rows: after the first block it lies in the L1 or L2 cache.
void run_tile_of_all(const LinearKernels& kernels, const LinearOutput& matrix, size_t tile,
                     QuantizedRows& rows) {
    for (size_t b = 0; b < rows.blocks(); ++b) run_tile(kernels, matrix, tile, rows, b);
}

}  // namespace

void stream_linear(const LinearKernels& kernels, const LinearInput& input,
                   const LinearOutput* outputs, size_t count, const RotaryAngles& angles) {
    static thread_local QuantizedRows shared;
    const FewRows few(kernels, input, outputs, count, outputs[0].weights->k(), shared);
    size_t tiles = 0;
    for (size_t i = 0; i < count; ++i) tiles += outputs[i].weights->tiles();
    run_phases(EachThread{[&] { few.quantize_own(); }},
               Phase{few.shared_rows(), [&](size_t row) { few.quantize_shared(row); }},
               StreamPhase{tiles,
                           [&](size_t i) {
                               const LinearOutput* matrix = outputs;
                               for (; i >= matrix->weights->tiles(); ++matrix)
                                   i -= matrix->weights->tiles();
                               run_tile_of_all(kernels, *matrix, i, few.rows());
                           }},
               Phase{size_t(angles.size > 0),
                     [&](size_t) { rotate_rows(kernels, outputs, count, 0, input.rows, angles); }});
}

void stream_mlp(const LinearKernels& kernels, const LinearInput& input, const GatedMlp& mlp) {
    static thread_local QuantizedRows shared, own_inner;
    QuantizedRows& inner = own_inner;
    inner.resize(input.rows, mlp.down->k(), streamed_form(input));
    const LinearOutput last{mlp.down, mlp.output, mlp.residual};
    const FewRows few(kernels, input, &last, 1, mlp.gate->k(), shared);
    const size_t tiles = mlp.gate->tiles();
    run_phases(EachThread{[&] { few.quantize_own(); }},
               Phase{few.shared_rows(), [&](size_t row) { few.quantize_shared(row); }},
               StreamPhase{(tiles + tiles_per_k_block - 1) / tiles_per_k_block,
                           [&](size_t i) {
                               const size_t begin = i * tiles_per_k_block;
                               const size_t end = std::min(begin + tiles_per_k_block, tiles);
                               for (size_t b = 0; b < inner.blocks(); ++b)
                                   run_gated_item(kernels, mlp, few.rows(), begin, end, b, inner);
                           }},
               StreamPhase{mlp.down->tiles(),
                           [&](size_t i) { run_tile_of_all(kernels, last, i, inner); }});
}

}  // namespace pagewheel::kernels
