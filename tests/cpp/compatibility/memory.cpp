// Pipelines of a model that is in no file: text and weights.
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "check.hpp"
#include "openvino/genai/continuous_batching_pipeline.hpp"

namespace {

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

ov::Tensor tensor_of(const std::string& bytes) {
    ov::Tensor tensor(ov::element::u8, {bytes.size()});
    bytes.copy(tensor.data<char>(), bytes.size());
    return tensor;
}

}  // namespace

void memory(char* argv[]) {
    const std::string folder = argv[1];
    const ov::genai::Tokenizer tokenizer(read(folder + "/openvino_tokenizer.xml"),
                                         tensor_of(read(folder + "/openvino_tokenizer.bin")),
                                         read(folder + "/openvino_detokenizer.xml"),
                                         tensor_of(read(folder + "/openvino_detokenizer.bin")));
    const std::string model = read(folder + "/openvino_model.xml");
    const ov::Tensor weights = tensor_of(read(folder + "/openvino_model.bin"));
    ov::genai::GenerationConfig config;
    config.max_new_tokens = 6;
    config.apply_chat_template = false;
    config.ignore_eos = true;
    ov::genai::LLMPipeline pipe(model, weights, tokenizer, "CPU", {}, config);
    CHECK(pipe.get_generation_config().max_new_tokens == 6);
    const std::string text = pipe.generate(argv[2]);
    ov::genai::SchedulerConfig scheduler;
    scheduler.num_kv_blocks = 60;
    ov::genai::ContinuousBatchingPipeline batching(model, weights, tokenizer, scheduler, "CPU", {},
                                                   config);
    CHECK(batching.generate(std::vector<std::string>{argv[2]}, {config})[0].m_generation_ids[0] ==
          text);
    std::cout << text << '\n';
}
