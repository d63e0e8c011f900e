// Change logits with a class of one's own, here no letter e: logits_processor MODEL_FOLDER "PROMPT"
#include <algorithm>
#include <iostream>
#include <memory>

#include "pagewheel/llm_pipeline.hpp"
#include "pagewheel/logits_processor.hpp"

/// Bans every token that has the letter. It keeps no state, so threads may share it.
class Without : public pagewheel::LogitsProcessor {
public:
    Without(const pagewheel::Tokenizer& tokenizer, char letter)
        : m_banned(std::make_shared<std::vector<int64_t>>()) {
        const std::vector<std::string> vocabulary = tokenizer.get_vocab_vector();
        for (size_t id = 0; id < vocabulary.size(); ++id)
            if (vocabulary[id].find(letter) != std::string::npos) m_banned->push_back(int64_t(id));
    }
    void process(const pagewheel::LogitsRow& row, const pagewheel::TokenHistory&) override {
        for (const int64_t id : *m_banned) row.ban(id);
    }
    /// Each sequence has one of its own.
    std::unique_ptr<pagewheel::LogitsProcessor> fork() const override {
        return std::make_unique<Without>(*this);
    }
    bool runs_anywhere() const override { return true; }

private:
    std::shared_ptr<std::vector<int64_t>> m_banned;
};

int main(int argc, char** argv) try {
    if (argc != 3) throw std::invalid_argument("usage: logits_processor MODEL_FOLDER PROMPT");
    pagewheel::LLMPipeline pipeline(argv[1], "CPU");
    pagewheel::GenerationConfig config = pipeline.get_generation_config();
    config.max_new_tokens = 40;
    config.logits_processors = {std::make_shared<Without>(pipeline.get_tokenizer(), 'e')};
    const std::string text = pipeline.generate(argv[2], config);
    std::cout << text << '\n'
              << std::count(text.begin(), text.end(), 'e') << " times 'e' in " << text.size()
              << " characters\n";
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
