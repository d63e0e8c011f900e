// What a generate() hands to its streamer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pagewheel/streamer.hpp"
#include "pagewheel/tokenizer.hpp"
#include "pipelines/continuous_batching_impl.hpp"

namespace pagewheel {

/// The streamer that tells sequences apart, if it is one.
OutputStreamer* as_output_streamer(const StreamerVariant& streamer);

/// The text of the prompt as it stands before the text of what was generated: with the space
/// between them, if there is one.
std::string echoed(const Tokenizer& tokenizer, const std::vector<int64_t>& prompt,
                   const std::vector<int64_t>& generated);

/// Hands what is new of a request to a streamer. But for an OutputStreamer, before it the prompt if
/// that is echoed.
class Stream {
public:
    /// `index` is the prompt's in its call.
    Stream(const StreamerVariant& streamer, const Tokenizer& tokenizer,
           const GeneratedPrompt& generated, size_t index);

    void write_news();

private:
    /// To whatever it is; what that wishes.
    StreamingStatus write(GenerationHandle& handle);
    StreamingStatus write_outputs(GenerationHandle& handle, OutputStreamer& streamer);

    const StreamerVariant& m_streamer;
    const Tokenizer& m_tokenizer;
    const size_t m_index;
    const std::shared_ptr<GenerationHandle::State> m_state;
    std::vector<int64_t> m_prompt;  // that is still to be echoed
    bool m_is_over = false;         // an OutputStreamer wants no more
};

}  // namespace pagewheel
