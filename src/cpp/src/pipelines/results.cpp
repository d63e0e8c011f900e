#include "pagewheel/results.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>

#include "model/json_file.hpp"
#include "pagewheel/parsers.hpp"
#include "pagewheel/perf_metrics.hpp"
#include "pipelines/pipeline_impl.hpp"
#include "text/generated_text.hpp"

namespace pagewheel {

std::string DecodedResults::to_string() const {
    if (texts.size() == 1) return texts.front();
    std::string joined;
    for (size_t i = 0; i < texts.size(); ++i)
        joined += (i == 0 ? "" : "\n") + std::to_string(i < scores.size() ? scores[i] : 0.0f) +
                  ": " + texts[i];
    return joined;
}

std::ostream& operator<<(std::ostream& stream, const DecodedResults& results) {
    return stream << results.to_string();
}

namespace {

/// The output's text with its special tokens, but for the one that ended it.
std::string text_with_special_tokens(const GenerationConfig& config, const Tokenizer& tokenizer,
                                     const StopStrings& stop_strings, std::vector<int64_t> tokens) {
    const bool is_stopped = !tokens.empty() && (config.is_stop_token(tokens.back()) ||
                                                tokens.back() == tokenizer.get_eos_token_id());
    if (is_stopped) tokens.pop_back();
    GeneratedText text(decoders_of(tokenizer, /*skip_special_tokens=*/false), stop_strings);
    std::string result;
    for (const int64_t token : tokens) result += text.append(token);
    return result + text.flush();
}

std::string parsed_output(const GenerationConfig& config, const Tokenizer& tokenizer,
                          const StopStrings& stop_strings, const GenerationOutput& output) {
    const auto needs = [](const auto& parser) { return parser->needs_special_tokens(); };
    const bool with_special_tokens =
        std::any_of(config.parsers.begin(), config.parsers.end(), needs);
    nlohmann::ordered_json message;
    message["content"] =
        with_special_tokens
            ? text_with_special_tokens(config, tokenizer, stop_strings, output.generated_ids)
            : output.text;
    std::string json = json_text(message);
    for (const auto& parser : config.parsers) parser->parse(json);
    return json;
}

}  // namespace

std::vector<std::string> parsed_outputs(const GenerationConfig& config,
                                        const StreamerVariant& streamer, const Tokenizer& tokenizer,
                                        const std::vector<GenerationOutput>& outputs) {
    std::vector<std::string> parsed;
    if (config.parsers.empty()) {
        const auto* given = std::get_if<std::shared_ptr<StreamerBase>>(&streamer);
        const auto* parses =
            given ? dynamic_cast<const TextParserStreamer*>(given->get()) : nullptr;
        if (parses) parsed.push_back(parses->get_parsed_message());
        return parsed;
    }
    const StopStrings stop_strings(config);
    for (const GenerationOutput& output : outputs)
        parsed.push_back(parsed_output(config, tokenizer, stop_strings, output));
    return parsed;
}

MeanStdPair PerfMetrics::statistics(const std::vector<float>& samples) {
    if (samples.empty()) return {};
    double sum = 0, squares = 0;
    for (float sample : samples) sum += sample;
    const double mean = sum / double(samples.size());
    for (float sample : samples) squares += (sample - mean) * (sample - mean);
    return {float(mean / 1000), float(std::sqrt(squares / double(samples.size())) / 1000)};
}

SummaryStats PerfMetrics::get_grammar_compile_time() const {
    const std::vector<float>& times = raw_metrics.grammar_compile_times;
    if (times.empty()) return {};
    const auto [min, max] = std::minmax_element(times.begin(), times.end());
    const MeanStdPair pair = statistics(times);
    return {pair.mean, pair.std, *min / 1000, *max / 1000};
}

MeanStdPair PerfMetrics::throughput(const MeanStdPair& tpot) {
    if (tpot.mean <= 0) return {};
    return {1000.0f / tpot.mean, tpot.std * 1000.0f / (tpot.mean * tpot.mean)};
}

PerfMetrics& PerfMetrics::operator+=(const PerfMetrics& other) {
    using Raw = RawPerfMetrics;
    const Raw& raw = other.raw_metrics;
    for (const auto samples :
         {&Raw::generate_durations, &Raw::tokenization_durations, &Raw::detokenization_durations,
          &Raw::chat_template_durations, &Raw::m_times_to_first_token, &Raw::token_infer_durations,
          &Raw::m_durations, &Raw::inference_durations, &Raw::sampling_durations,
          &Raw::queue_durations, &Raw::grammar_compile_times, &Raw::draft_durations})
        append(raw_metrics.*samples, raw.*samples);
    append(raw_metrics.m_new_token_times, raw.m_new_token_times);
    append(raw_metrics.m_batch_sizes, raw.m_batch_sizes);
    append(raw_metrics.draft_batch_sizes, raw.draft_batch_sizes);
    grammar_compiler_init_times.insert(other.grammar_compiler_init_times.begin(),
                                       other.grammar_compiler_init_times.end());
    load_time = load_time == 0 ? other.load_time : load_time;
    num_generated_tokens += other.num_generated_tokens;
    num_input_tokens += other.num_input_tokens;
    num_prefix_cache_hit_tokens += other.num_prefix_cache_hit_tokens;
    num_drafted_tokens += other.num_drafted_tokens;
    num_accepted_tokens += other.num_accepted_tokens;
    return *this;
}

std::vector<float> SDPerfMetrics::durations(size_t begin, size_t end) const {
    const std::vector<float>& all = raw_metrics.m_durations;
    end = std::min(end, all.size());
    return {all.begin() + ptrdiff_t(std::min(begin, end)), all.begin() + ptrdiff_t(end)};
}

MeanStdPair SDPerfMetrics::get_tpot() const {
    std::vector<float> times;
    const size_t count = std::min(raw_metrics.m_durations.size(), raw_metrics.m_batch_sizes.size());
    for (size_t i = 2; i < count; ++i) {
        const size_t size = raw_metrics.m_batch_sizes[i];
        times.insert(times.end(), size, raw_metrics.m_durations[i] / float(size));
    }
    return statistics(times);
}

SDPerModelsPerfMetrics::SDPerModelsPerfMetrics(const PerfMetrics& call) {
    static_cast<PerfMetrics&>(main_model_metrics) = call;
    RawPerfMetrics& raw = main_model_metrics.raw_metrics;
    const std::vector<double>& times = raw.m_new_token_times;
    raw.m_durations.clear();
    for (size_t i = 0; i < times.size(); ++i)
        raw.m_durations.push_back(i == 0 ? raw.m_times_to_first_token.front()
                                         : float(times[i] - times[i - 1]));
    static_cast<SDPerfMetrics&>(*this) = main_model_metrics;

    RawPerfMetrics& drafting = draft_model_metrics.raw_metrics;
    drafting.m_durations = call.raw_metrics.draft_durations;
    drafting.m_batch_sizes = call.raw_metrics.draft_batch_sizes;
    float sum = 0;
    for (const float duration : drafting.m_durations) sum += duration;
    drafting.inference_durations = drafting.generate_durations = {sum};
    drafting.token_infer_durations = drafting.m_durations;
    if (sum > 0) drafting.m_times_to_first_token = {drafting.m_durations.front()};
    for (const size_t size : drafting.m_batch_sizes)
        draft_model_metrics.num_generated_tokens += size;
    draft_model_metrics.num_input_tokens = call.num_input_tokens;
    draft_model_metrics.load_time = call.load_time;
}

namespace {

float ratio(double part, double whole) {
    return whole > 0 ? float(part / whole) : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

float SDPerModelsPerfMetrics::get_draft_acceptance_rate() const {
    return ratio(double(num_accepted_tokens), double(num_drafted_tokens));
}
float SDPerModelsPerfMetrics::get_draft_processed_to_candidate_ratio() const {
    return ratio(double(get_num_draft_processed_tokens()), double(num_drafted_tokens));
}
float SDPerModelsPerfMetrics::get_draft_to_main_inference_duration_ratio() const {
    return ratio(draft_model_metrics.get_inference_duration().mean,
                 main_model_metrics.get_inference_duration().mean);
}

SDPerModelsPerfMetrics& SDPerModelsPerfMetrics::operator+=(const SDPerModelsPerfMetrics& other) {
    PerfMetrics::operator+=(other);
    main_model_metrics += other.main_model_metrics;
    draft_model_metrics += other.draft_model_metrics;
    return *this;
}

}  // namespace pagewheel
