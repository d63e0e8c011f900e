// The tokenizer. Prints the prompt's ids.
#include <iostream>
#include <string>
#include <vector>

#include "check.hpp"
#include "openvino/genai/tokenizer.hpp"

namespace {

std::vector<int64_t> ids_of(const ov::Tensor& tensor) {
    const auto* ids = tensor.data<int64_t>();
    return {ids, ids + tensor.get_size()};
}

}  // namespace

void tokenize(char* argv[]) {
    const std::string prompt = argv[2];
    ov::genai::Tokenizer tokenizer(argv[1]);

    ov::genai::TokenizedInputs tokens = tokenizer.encode(prompt);
    CHECK((tokens.input_ids.get_shape() == ov::Shape{1, tokens.input_ids.get_size()}));
    CHECK(tokens.attention_mask.get_shape() == tokens.input_ids.get_shape());
    const std::vector<int64_t> ids = ids_of(tokens.input_ids);
    for (int64_t id : ids) std::cout << id << ' ';
    std::cout << '\n';

    const auto plain = tokenizer.encode(prompt, ov::genai::add_special_tokens(false));
    CHECK(plain.input_ids.get_size() <= ids.size());
    const auto padded =
        tokenizer.encode(prompt, ov::genai::pad_to_max_length(true), ov::genai::max_length(40));
    CHECK((padded.input_ids.get_shape() == ov::Shape{1, 40}));
    const auto left = tokenizer.encode({"a", prompt}, {{"padding_side", "left"}});
    CHECK(left.input_ids.get_shape()[0] == 2 && left.attention_mask.data<int64_t>()[0] == 0);
    std::vector<std::string> prompts{prompt, "a"};
    CHECK(tokenizer.encode(prompts).input_ids.get_shape()[0] == 2);
    CHECK(!tokenizer.supports_paired_input());

    CHECK(tokenizer.decode(ids) == prompt);
    CHECK(tokenizer.decode(ids, ov::genai::skip_special_tokens(true)) == prompt);
    const std::vector<std::string> rows = tokenizer.decode(tokens.input_ids);
    CHECK(rows == std::vector<std::string>{prompt});
    const std::vector<std::vector<int64_t>> batch{ids, ids};
    CHECK(tokenizer.decode(batch) == std::vector<std::string>(2, prompt));
    const int64_t eos = tokenizer.get_eos_token_id();
    const std::vector<int64_t> special{eos};
    CHECK(tokenizer.decode(special).empty());
    CHECK(tokenizer.decode(special, ov::AnyMap{{"skip_special_tokens", false}}) ==
          tokenizer.get_eos_token());
    CHECK(tokenizer.get_vocab().at(tokenizer.get_eos_token()) == eos);
    CHECK(tokenizer.get_vocab_vector().at(size_t(eos)) == tokenizer.get_eos_token());
    CHECK(tokenizer.get_bos_token_id() >= -1 && tokenizer.get_pad_token_id() >= 0);

    ov::genai::ChatHistory history{{{"role", "user"}, {"content", prompt}}};
    const std::string chat = tokenizer.apply_chat_template(history, true);
    CHECK(chat.find(prompt) != std::string::npos);
    CHECK(tokenizer.apply_chat_template(history, true, "") == chat);
}
