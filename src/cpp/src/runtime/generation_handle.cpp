#include "pagewheel/generation_handle.hpp"

#include <stdexcept>
#include <utility>

#include "runtime/request.hpp"

namespace pagewheel {

GenerationHandle::GenerationHandle(std::shared_ptr<State> state) : m_state(std::move(state)) {}

GenerationStatus GenerationHandle::get_status() const {
    const std::lock_guard lock(m_state->mutex);
    return m_state->status;
}

bool GenerationHandle::can_read() const {
    const std::lock_guard lock(m_state->mutex);
    for (size_t i = 0; i < m_state->outputs.size(); ++i)
        if (m_state->num_read[i] < m_state->outputs[i].generated_ids.size()) return true;
    return false;
}

GenerationOutputs GenerationHandle::read() {
    const std::lock_guard lock(m_state->mutex);
    if (!m_state->error.empty()) throw std::runtime_error(m_state->error);
    GenerationOutputs fresh;
    for (size_t i = 0; i < m_state->outputs.size(); ++i) {
        const GenerationOutput& all = m_state->outputs[i];
        const size_t begin = std::exchange(m_state->num_read[i], all.generated_ids.size());
        if (begin == all.generated_ids.size()) continue;
        GenerationOutput& output = fresh[i];
        output.generated_ids.assign(all.generated_ids.begin() + begin, all.generated_ids.end());
        output.generated_log_probs.assign(all.generated_log_probs.begin() + begin,
                                          all.generated_log_probs.end());
        output.score = all.score;
        output.finish_reason = all.finish_reason;
    }
    return fresh;
}

std::vector<GenerationOutput> GenerationHandle::read_all() const {
    const std::lock_guard lock(m_state->mutex);
    if (!m_state->error.empty()) throw std::runtime_error(m_state->error);
    return m_state->outputs;
}

void GenerationHandle::stop() {
    m_state->stop_wanted = true;
}
void GenerationHandle::cancel() {
    m_state->cancel_wanted = true;
}

PerfMetrics GenerationHandle::get_perf_metrics() const {
    const std::lock_guard lock(m_state->mutex);
    return m_state->metrics;
}

}  // namespace pagewheel
