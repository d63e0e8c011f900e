// Many requests in one batch, token by token.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "openvino/core/any.hpp"
#include "openvino/runtime/tensor.hpp"
#include "pagewheel/cache_view.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/generation_handle.hpp"
#include "pagewheel/properties.hpp"
#include "pagewheel/results.hpp"
#include "pagewheel/scheduler_config.hpp"
#include "pagewheel/statistics.hpp"
#include "pagewheel/streamer.hpp"
#include "pagewheel/tokenizer.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

class PrefixCache;

/// Continuous batching over a paged KV cache.
///
/// Everything may be called from any thread. Steps are made one at a time: by whoever calls step()
/// or generate(), or, after start(), by a thread of the pipeline's own. A copy is the same
/// pipeline.
///
/// Everything may be called from callbacks too, and the last copy dropped there. Streamers and
/// GenerationHandle::notify_once() run between steps. Eviction policies and logits processors run
/// inside one: what needs another step or its lock (step(), generate(), the prefix cache, to wait
/// for a handle) throws Error there. A child that fork() made has a pipeline's memory
/// but not its threads: what needs them, or a lock, throws Error there, and stop()
/// does nothing.
class PAGEWHEEL_API ContinuousBatchingPipeline {
public:
    /// `model_folder` holds openvino_model.xml and the tokenizer. Or it is a .gguf file or a
    /// Hugging Face folder, which the command `pagewheel` converts (docs/models.md); Error where
    /// there is no such command. `properties` are OpenVINO's for the device (e.g.
    /// {"INFERENCE_PRECISION_HINT", "f32"}, {"KV_CACHE_PRECISION", "f32"}). f32 inference sets
    /// DYNAMIC_QUANTIZATION_GROUP_SIZE to 0 unless it is given. Besides, "attention_backend" is
    /// "native" (pagewheel's own op, CPU only; KV_CACHE_PRECISION is then f32, bf16, f16, u8 or
    /// u4), "openvino" (OpenVINO's) or "auto": native on CPU where it serves every layer and the
    /// properties ask for no cache that only the plugin has; and "linear_backend" is "native"
    /// (pagewheel's own MatMuls of compressed weights, activations rounded, CPU only), "openvino"
    /// or "auto": native on CPU, unless the properties ask for f32 inference or switch dynamic
    /// quantisation off. With it all else is computed in f32. "activation_precision" says what
    /// native ones round to: "int8", "int16", "bf16" (where the processor has it; few rows get
    /// int16) or "auto": int16 for few rows, bf16 or int8 for many. "batch_invariant" (bool,
    /// default false) makes an answer's bits independent of what else is in the batch, of prefill
    /// chunks and of what was cached; long prompts take several times as long. Refused with cache
    /// eviction, f32 inference and layers that stay with OpenVINO. "fast_prefill" (bool, default
    /// true; on CPU) computes of a prompt what the cache does not need for the rows alone whose
    /// logits are asked for: most of the last layer, and layers at the end that read others'
    /// caches. "extensions" (std::vector<std::filesystem::path>) are libraries of operations that
    /// the model may have; the caller answers for it then. Of openvino_genai's properties
    /// "ATTENTION_BACKEND" may be "PA" or "SDPA", which are one here, and "prompt_lookup" true is
    /// SchedulerConfig::speculation "auto". "draft_model" is what properties::draft_model() gives,
    /// or a model's path: a smaller model, or a head of EAGLE-3, which drafts for all requests.
    /// The device "AUTO" is the CPU.
    /// Throws InvalidArgument for a missing file, an unknown device or property.
    ContinuousBatchingPipeline(const std::filesystem::path& model_folder,
                               const SchedulerConfig& scheduler_config,
                               const std::string& device = "CPU",
                               const ov::AnyMap& properties = {});
    ContinuousBatchingPipeline(const std::filesystem::path& model_folder,
                               const Tokenizer& tokenizer, const SchedulerConfig& scheduler_config,
                               const std::string& device = "CPU",
                               const ov::AnyMap& properties = {});
    /// A model that is in no file, as one that was decrypted: `model` is what openvino_model.xml
    /// would hold and `weights`, u8, what the .bin would. Rotating eviction and saved prefixes need
    /// a folder.
    ContinuousBatchingPipeline(const std::string& model, const ov::Tensor& weights,
                               const Tokenizer& tokenizer, const SchedulerConfig& scheduler_config,
                               const std::string& device = "CPU",
                               const ov::AnyMap& properties = {});

    Tokenizer get_tokenizer() const;
    GenerationConfig get_config() const;  ///< The model's defaults.
    PipelineMetrics get_metrics() const;
    PipelineStatistics get_statistics() const;
    /// What the cache holds between two steps, and for whom; of at most `max_sequences` sequences.
    /// `evicted_request` is the one whose kept tokens are told (of its first sequence); without it
    /// that of which most was evicted. Waits for the step under way, as get_prefix_cache()'s calls
    /// do, and throws Error from within it (eviction policies, logits processors).
    CacheView get_cache_view(size_t max_sequences = 256,
                             std::optional<uint64_t> evicted_request = std::nullopt) const;
    PrefixCache get_prefix_cache() const;

    /// Queues a request. Throws InvalidArgument for an empty prompt, one that does not fit
    /// the context or the cache, ids outside the vocabulary, a request_id in use, or a bad config;
    /// QueueFull if max_queue requests wait; PipelineFailed once the pipeline has failed.
    std::shared_ptr<GenerationHandle> add_request(uint64_t request_id,
                                                  const std::vector<int64_t>& prompt,
                                                  const GenerationConfig& config);
    /// i64 [tokens] or [1, tokens].
    std::shared_ptr<GenerationHandle> add_request(uint64_t request_id, const ov::Tensor& prompt,
                                                  const GenerationConfig& config);
    /// Encodes `prompt` as it is, without a chat template.
    std::shared_ptr<GenerationHandle> add_request(uint64_t request_id, const std::string& prompt,
                                                  const GenerationConfig& config);
    /// Takes parameters by name, set in get_config() or in "generation_config".
    std::shared_ptr<GenerationHandle> add_request(uint64_t request_id, const std::string& prompt,
                                                  const ov::AnyMap& properties);
    /// Computes one batch: every running sequence's next token, and prefill chunks.
    void step();
    bool has_non_finished_requests() const;

    /// A thread of the pipeline's own steps from now on, whenever there are requests, until stop()
    /// or the pipeline's end. step() and generate() can be called meanwhile. stop() returns after
    /// the step that is under way; in a callback on that thread, or inside the step, at once.
    void start();
    void stop();
    /// Waits for threads of start() that were stopped by their own callbacks, at most so long. For
    /// the end of a program in which that happens.
    static void wait_for_stopped(std::chrono::milliseconds at_most);

    /// One config for all prompts or one each. An OutputStreamer takes all
    /// sequences, another streamer a single prompt and sequence. If
    /// anything throws, the call's requests are cancelled and the exception passes.
    std::vector<EncodedGenerationResult> generate(const std::vector<std::vector<int64_t>>& prompts,
                                                  const std::vector<GenerationConfig>& configs,
                                                  const StreamerVariant& streamer = {});
    /// Each as add_request() takes it.
    std::vector<EncodedGenerationResult> generate(const std::vector<ov::Tensor>& prompts,
                                                  const std::vector<GenerationConfig>& configs,
                                                  const StreamerVariant& streamer = {});
    std::vector<GenerationResult> generate(const std::vector<std::string>& prompts,
                                           const std::vector<GenerationConfig>& configs,
                                           const StreamerVariant& streamer = {});
    std::vector<GenerationResult> generate(const std::vector<ChatHistory>& histories,
                                           const std::vector<GenerationConfig>& configs,
                                           const StreamerVariant& streamer = {});

    /// Takes parameters by name, and "streamer" (pagewheel/properties.hpp): in a map or one by one.
    /// "generation_config" is one for all prompts, or a std::vector of one each.
    std::vector<GenerationResult> generate(const std::vector<std::string>& prompts,
                                           const ov::AnyMap& properties);
    std::vector<GenerationResult> generate(const std::vector<ChatHistory>& histories,
                                           const ov::AnyMap& properties);
    template <class Prompt, class First, class... Properties>
    IfProperties<std::vector<GenerationResult>, First, Properties...> generate(
        const std::vector<Prompt>& prompts, First&& first, Properties&&... rest) {
        return generate(prompts,
                        ov::AnyMap{std::forward<First>(first), std::forward<Properties>(rest)...});
    }

    /// Between start_chat() and finish_chat() texts, one at a time, are turns of one conversation,
    /// and answers are remembered. A turn that fails or is cancelled is forgotten, and so is one
    /// during which either is called. While one is being generated another throws
    /// Error.
    void start_chat(const std::string& system_message = {});
    void finish_chat();

    /// Called by generate() after every step, on its thread; what it throws cancels the call.
    /// Python uses it for Ctrl-C.
    void set_step_hook(std::function<void()> hook);

    class Impl;  // internal: pipelines/continuous_batching_impl.hpp
private:
    friend class PrefixCache;
    std::shared_ptr<Impl> m_impl;
};

}  // namespace pagewheel
