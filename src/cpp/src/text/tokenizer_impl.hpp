// The implementation behind Tokenizer's handle.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>

#include "openvino/runtime/core.hpp"
#include "pagewheel/tokenizer.hpp"
#include "text/chat_template.hpp"
#include "text/decoder.hpp"
#include "text/encoder.hpp"
#include "text/tokenizer_files.hpp"

namespace pagewheel {

class GrammarCompiler;

class Tokenizer::Impl {
public:
    /// The graphs, and the folder whose other files tell more; empty where there is none.
    struct Source {
        std::shared_ptr<ov::Model> tokenizer, detokenizer;
        std::filesystem::path folder;
    };
    Impl(ov::Core& core, const Source& source, const ov::AnyMap& properties);
    /// Of whatever resolve_model() takes.
    static Source open(ov::Core& core, const std::filesystem::path& path);
    static ov::Core& core();
    static const std::shared_ptr<Impl>& of(const Tokenizer& tokenizer) { return tokenizer.m_impl; }

    Decoder decoder;
    const TokenizerFiles files;
    Encoder encoder;
    ChatTemplate chat;

    std::mutex grammars_mutex;
    std::shared_ptr<GrammarCompiler> grammars;  // made by grammar_compiler()
};

}  // namespace pagewheel
