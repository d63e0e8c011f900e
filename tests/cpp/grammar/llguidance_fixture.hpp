// The library itself, where it is linked or PAGEWHEEL_TEST_LLGUIDANCE names it. The one of the
// Python package needs Python's functions: PAGEWHEEL_TEST_LIBPYTHON names the library that has
// them.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "grammar/grammar_compiler.hpp"
#include "grammar/llguidance_api.hpp"

namespace pagewheel {

/// One token per byte, then "<|end|>" and "<|tool|>", which are special.
inline GrammarVocabulary byte_vocabulary() {
    GrammarVocabulary vocabulary;
    for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, char(byte));
    vocabulary.tokens.insert(vocabulary.tokens.end(), {"<|end|>", "<|tool|>"});
    vocabulary.special_tokens = {256, 257};
    vocabulary.end_token = 256;
    vocabulary.tokenize = [](const std::string& text) {
        std::vector<int64_t> tokens;
        for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
        return tokens;
    };
    return vocabulary;
}

class Llguidance : public testing::Test {
protected:
    using Config = StructuredOutputConfig;

    void SetUp() override {
        const char* python = std::getenv("PAGEWHEEL_TEST_LIBPYTHON");
        if (python && !dlopen(python, RTLD_NOW | RTLD_GLOBAL)) FAIL() << dlerror();
        if (const char* path = std::getenv("PAGEWHEEL_TEST_LLGUIDANCE"))
            llguidance::set_library(path);
        try {
            llguidance::load();
        } catch (const Error& error) {
            GTEST_SKIP() << error.what();
        }
    }

    static Config regex(const std::string& text) {
        Config config;
        config.regex = text;
        return config;
    }
    static bool accepts(GrammarMatcher& matcher, const std::string& text) {
        for (const char c : text)
            if (!matcher.accept(static_cast<unsigned char>(c))) return false;
        return true;
    }
    static bool allows(GrammarMatcher& matcher, int64_t token) {
        std::vector<uint32_t> mask(matcher.mask_words());
        matcher.compute_mask(mask.data());
        return (mask[size_t(token) / 32] >> (token % 32) & 1) != 0;
    }

    GrammarCompiler compiler{byte_vocabulary()};
};

}  // namespace pagewheel
