#include "pagewheel/perf_metrics.hpp"

#include <algorithm>
#include <cmath>

namespace pagewheel {
namespace {

/// Mean and standard deviation of microseconds, in milliseconds.
MeanStdPair statistics(const std::vector<float>& samples) {
    if (samples.empty()) return {};
    double sum = 0, squares = 0;
    for (float sample : samples) sum += sample;
    const double mean = sum / double(samples.size());
    for (float sample : samples) squares += (sample - mean) * (sample - mean);
    return {float(mean / 1000), float(std::sqrt(squares / double(samples.size())) / 1000)};
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
    to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

MeanStdPair PerfMetrics::get_ttft() const {
    return statistics(raw_metrics.m_times_to_first_token);
}
MeanStdPair PerfMetrics::get_tpot() const {
    return statistics(raw_metrics.m_durations);
}
MeanStdPair PerfMetrics::get_ipot() const {
    return statistics(raw_metrics.token_infer_durations);
}
MeanStdPair PerfMetrics::get_generate_duration() const {
    return statistics(raw_metrics.generate_durations);
}
MeanStdPair PerfMetrics::get_inference_duration() const {
    return statistics(raw_metrics.inference_durations);
}
MeanStdPair PerfMetrics::get_tokenization_duration() const {
    return statistics(raw_metrics.tokenization_durations);
}
MeanStdPair PerfMetrics::get_detokenization_duration() const {
    return statistics(raw_metrics.detokenization_durations);
}
MeanStdPair PerfMetrics::get_chat_template_duration() const {
    return statistics(raw_metrics.chat_template_durations);
}
MeanStdPair PerfMetrics::get_sampling_duration() const {
    return statistics(raw_metrics.sampling_durations);
}

MeanStdPair PerfMetrics::get_queue_duration() const {
    return statistics(raw_metrics.queue_durations);
}

SummaryStats PerfMetrics::get_grammar_compile_time() const {
    const std::vector<float>& times = raw_metrics.grammar_compile_times;
    if (times.empty()) return {};
    const auto [min, max] = std::minmax_element(times.begin(), times.end());
    const MeanStdPair pair = statistics(times);
    return {pair.mean, pair.std, *min / 1000, *max / 1000};
}

MeanStdPair PerfMetrics::get_throughput() const {
    const MeanStdPair tpot = get_tpot();
    if (tpot.mean <= 0) return {};
    return {1000.0f / tpot.mean, tpot.std * 1000.0f / (tpot.mean * tpot.mean)};
}

PerfMetrics& PerfMetrics::operator+=(const PerfMetrics& other) {
    RawPerfMetrics& raw = raw_metrics;
    append(raw.generate_durations, other.raw_metrics.generate_durations);
    append(raw.tokenization_durations, other.raw_metrics.tokenization_durations);
    append(raw.detokenization_durations, other.raw_metrics.detokenization_durations);
    append(raw.chat_template_durations, other.raw_metrics.chat_template_durations);
    append(raw.m_times_to_first_token, other.raw_metrics.m_times_to_first_token);
    append(raw.m_new_token_times, other.raw_metrics.m_new_token_times);
    append(raw.token_infer_durations, other.raw_metrics.token_infer_durations);
    append(raw.m_batch_sizes, other.raw_metrics.m_batch_sizes);
    append(raw.m_durations, other.raw_metrics.m_durations);
    append(raw.inference_durations, other.raw_metrics.inference_durations);
    append(raw.sampling_durations, other.raw_metrics.sampling_durations);
    append(raw.queue_durations, other.raw_metrics.queue_durations);
    append(raw.grammar_compile_times, other.raw_metrics.grammar_compile_times);
    grammar_compiler_init_times.insert(other.grammar_compiler_init_times.begin(),
                                       other.grammar_compiler_init_times.end());
    load_time = load_time == 0 ? other.load_time : load_time;
    num_generated_tokens += other.num_generated_tokens;
    num_input_tokens += other.num_input_tokens;
    num_prefix_cache_hit_tokens += other.num_prefix_cache_hit_tokens;
    return *this;
}

PerfMetrics PerfMetrics::operator+(const PerfMetrics& other) const {
    PerfMetrics sum = *this;
    sum += other;
    return sum;
}

}  // namespace pagewheel
