#include "pipelines/stream.hpp"

#include <utility>

namespace pagewheel {

OutputStreamer* as_output_streamer(const StreamerVariant& streamer) {
    const auto* given = std::get_if<std::shared_ptr<StreamerBase>>(&streamer);
    return given ? dynamic_cast<OutputStreamer*>(given->get()) : nullptr;
}

std::string echoed(const Tokenizer& tokenizer, const std::vector<int64_t>& prompt,
                   const std::vector<int64_t>& generated) {
    std::vector<int64_t> both = prompt;
    both.insert(both.end(), generated.begin(), generated.end());
    const std::string all = tokenizer.decode(both), own = tokenizer.decode(generated);
    const bool fits =
        all.size() >= own.size() && all.compare(all.size() - own.size(), own.size(), own) == 0;
    return fits ? all.substr(0, all.size() - own.size()) : tokenizer.decode(prompt);
}

Stream::Stream(const StreamerVariant& streamer, const Tokenizer& tokenizer,
               const GeneratedPrompt& generated, size_t index)
    : m_streamer(streamer), m_tokenizer(tokenizer), m_index(index), m_state(generated.state) {
    if (generated.echo) m_prompt = generated.prompt;
}

void Stream::write_news() {
    if (m_is_over) return;
    GenerationHandle handle(m_state);
    switch (write(handle)) {
        case StreamingStatus::RUNNING:
            break;
        case StreamingStatus::STOP:
            handle.stop(GenerationFinishReason::STOP);
            break;
        case StreamingStatus::TOOL_CALL_STOP:
            handle.stop(GenerationFinishReason::TOOL_CALL);
            break;
        case StreamingStatus::CANCEL:
            handle.cancel();
            break;
    }
}

StreamingStatus Stream::write(GenerationHandle& handle) {
    if (OutputStreamer* streamer = as_output_streamer(m_streamer))
        return write_outputs(handle, *streamer);
    const auto* callback = std::get_if<TextStreamer::Callback>(&m_streamer);
    const GenerationOutputs outputs = handle.read_available(/*with_text=*/callback != nullptr);
    if (outputs.empty()) return StreamingStatus::RUNNING;
    const GenerationOutput& output = outputs.at(0);
    std::vector<int64_t> tokens = std::exchange(m_prompt, {});
    if (callback) {
        const std::string before =
            tokens.empty() ? "" : echoed(m_tokenizer, tokens, output.generated_ids);
        const std::string text = before + output.text;
        return text.empty() ? StreamingStatus::RUNNING : (*callback)(text);
    }
    tokens.insert(tokens.end(), output.generated_ids.begin(), output.generated_ids.end());
    return tokens.empty() ? StreamingStatus::RUNNING
                          : std::get<std::shared_ptr<StreamerBase>>(m_streamer)->write(tokens);
}

StreamingStatus Stream::write_outputs(GenerationHandle& handle, OutputStreamer& streamer) {
    for (auto& [sequence, output] : handle.read_available(/*with_text=*/true)) {
        const StreamingStatus wish =
            streamer.write_output({m_index, size_t(sequence), std::move(output)});
        if (wish == StreamingStatus::RUNNING) continue;
        m_is_over = true;
        return wish;
    }
    return StreamingStatus::RUNNING;
}

}  // namespace pagewheel
