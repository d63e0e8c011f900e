// Structured output: configs in all their forms, and a text that follows one where llguidance is
// there.
#include <iostream>
#include <memory>
#include <string>

#include "check.hpp"
#include "openvino/genai/llm_pipeline.hpp"

void constrain(char* argv[]) {
    using Output = ov::genai::StructuredOutputConfig;
    const ov::AnyMap members{ov::genai::json_schema(R"({"type": "integer"})")};
    const Output schema(members);
    CHECK(schema.json_schema && !schema.regex);
    schema.validate();
    try {
        Output(ov::AnyMap{{"no_such", 1}});
        CHECK(false);
    } catch (const ov::Exception& error) {
        CHECK(std::string(error.what()).find("no_such") != std::string::npos);
    }

    const auto sum = Output::Regex("[0-9]") + Output::ConstString("!");
    const auto either = sum | Output::JSONSchema(R"({"type": "null"})");
    CHECK(sum->elements.size() == 2 && either->elements.size() == 2);
    ov::genai::StructuralTagsConfig tags;
    tags.structural_tags.push_back({"<f>", R"({"type": "object"})", "</f>"});
    tags.triggers.push_back("<f>");
    Output tagged;
    tagged.structural_tags_config = tags;
    tagged.validate();

    ov::genai::LLMPipeline pipe(argv[1], "CPU");
    ov::genai::GenerationConfig config = pipe.get_generation_config();
    config.max_new_tokens = 6;
    Output compound;
    compound.compound_grammar = sum;
    config.structured_output_config = compound;
    CHECK(config.is_structured_output_generation());
    // The wheel's library has no llguidance linked: a use of it says so.
    try {
        const std::string text = pipe.generate(argv[2], config);
        CHECK(text.size() == 2 && text[0] >= '0' && text[0] <= '9' && text[1] == '!');
        const std::string same = pipe.generate(
            argv[2], ov::genai::structured_output_config(compound), ov::genai::max_new_tokens(6));
        CHECK(same == text);
    } catch (const ov::Exception& error) {
        CHECK(std::string(error.what()).find("llguidance") != std::string::npos);
    }
}
