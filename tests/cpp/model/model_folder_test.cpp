#include "model/model_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "model/graph_file.hpp"
#include "model/json_file.hpp"
#include "openvino/openvino.hpp"
#include "openvino/opsets/opset13.hpp"
#include "pagewheel/chat_history.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/generation_config.hpp"
#include "text/string_graph.hpp"

namespace pagewheel {
namespace {

namespace fs = std::filesystem;

/// A model folder that has nothing but what a test writes, gone after it.
class TemporaryFolder {
public:
    TemporaryFolder()
        : m_path(fs::temp_directory_path() /
                 ("pagewheel-" + std::to_string(getpid()) + "-" +
                  testing::UnitTest::GetInstance()->current_test_info()->name())) {
        fs::create_directory(m_path);
        write("openvino_model.xml", "<net/>");
    }
    ~TemporaryFolder() { fs::remove_all(m_path); }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    fs::path write(const std::string& name, const std::string& text) const {
        std::ofstream(m_path / name, std::ios::binary) << text;
        return m_path / name;
    }
    ModelConfig config() const { return ModelFolder(m_path).read_config(); }
    const fs::path& path() const { return m_path; }

private:
    fs::path m_path;
};

std::string nested(size_t levels) {
    std::string open, close;
    for (size_t i = 0; i < levels; ++i) {
        open += i % 2 ? R"({"a":)" : "[";
        close.insert(0, 1, i % 2 ? '}' : ']');
    }
    return open + "1" + close;
}

/// What the call throws; empty if it does not.
template <class Call>
std::string refusal(const Call& call) {
    try {
        call();
    } catch (const InvalidArgument& error) {
        return error.what();
    }
    return {};
}

TEST(ModelFolder, RefusesJsonThatIsTooDeepWhereverItIsRead) {
    const TemporaryFolder folder;
    const std::string deep = R"({"chat_format": )" + nested(200'000) + "}";
    for (const char* name : {"config.json", "pagewheel.json", "generation_config.json"}) {
        const fs::path file = folder.write(name, deep);
        const ModelFolder model(folder.path());
        const std::string message = refusal([&] {
            model.read_config();
            if (fs::exists(model.generation_config_json()))
                GenerationConfig config(model.generation_config_json());
        });
        EXPECT_NE(message.find(name), std::string::npos) << message;
        EXPECT_NE(message.find("allowed: 100"), std::string::npos) << message;
        fs::remove(file);
    }
    EXPECT_THROW(ChatHistory(nested(200'000)), InvalidArgument);
    EXPECT_THROW(GenerationConfig().update_from_json(deep), InvalidArgument);
}

TEST(ModelFolder, ReadsJsonOfAsManyLevelsAsAreAllowed) {
    EXPECT_TRUE(parse_json(nested(100), "it").is_array());
    EXPECT_THROW(parse_json(nested(101), "it"), InvalidArgument);
    EXPECT_TRUE(parse_json(std::string("[1"), "it").is_discarded());
}

TEST(ModelFolder, RefusesNumbersThatNoModelHas) {
    const TemporaryFolder folder;
    for (const char* text :
         {R"({"max_position_embeddings": 4294967295})",
          R"({"max_position_embeddings": 9223372036854775808})",
          R"({"max_position_embeddings": -1})", R"({"max_position_embeddings": 1.5})",
          R"({"num_hidden_layers": 1099511627776})",
          R"({"num_hidden_layers": 2, "sliding_window": 1e300})"}) {
        folder.write("config.json", text);
        const std::string message = refusal([&] { folder.config(); });
        EXPECT_NE(message.find("config.json"), std::string::npos) << text << message;
        EXPECT_NE(message.find("allowed: integers from 0 to "), std::string::npos) << text;
    }
    folder.write("config.json", "{}");
    for (const char* text : {R"({"context_length": 4294967296})", R"({"sliding_windows": [-1]})",
                             R"({"sliding_windows": 5})", R"({"rotary": {"dims": 1e300}})",
                             R"({"rotary": {"dims": 2, "layers": [7]}})", R"({"rotary": 3})"}) {
        folder.write("pagewheel.json", text);
        EXPECT_NE(refusal([&] { folder.config(); }).find("pagewheel.json"), std::string::npos)
            << text;
    }
}

TEST(ModelFolder, RefusesWhatANewerVersionWrote) {
    const TemporaryFolder folder;
    const auto refused = [&](const std::string& version) {
        folder.write("pagewheel.json", concat("{\"version\": ", version, "}"));
        return refusal([&] { folder.config(); });
    };
    const auto expect = [](const std::string& message, const std::string& part) {
        EXPECT_NE(message.find("pagewheel.json"), std::string::npos) << message;
        EXPECT_NE(message.find(part), std::string::npos) << message;
    };
    expect(refused("2"), "version is 2; allowed: 1 to 1. A newer pagewheel wrote this folder");
    for (const std::string version : {"0", "-1", "1.5", "\"1\"", "null", "true"})
        expect(refused(version), "version is " + version + "; allowed: integers from 1 to 1");
    EXPECT_LT(refused("\"" + std::string(100'000, 'x') + "\"").size(), 1000u);
}

TEST(ModelFolder, ReadsFoldersOfItsOwnVersionAndOfBeforeThereWereVersions) {
    const TemporaryFolder folder;
    for (const char* text :
         {R"({"version": 1, "context_length": 77})", R"({"format": 4, "context_length": 77})"}) {
        folder.write("pagewheel.json", text);
        EXPECT_EQ(folder.config().max_position_embeddings, 77u) << text;
    }
}

TEST(ModelFolder, ReadsWhatIsMissingOrNullAsNotSaid) {
    const TemporaryFolder folder;
    folder.write("config.json", R"({"max_position_embeddings": null, "num_hidden_layers": 2,
                                    "use_sliding_window": null, "sliding_window": null})");
    const ModelConfig config = folder.config();
    EXPECT_EQ(config.max_position_embeddings, 0u);
    EXPECT_EQ(config.sliding_windows, std::vector<size_t>(2, 0));
}

TEST(ModelFolder, DoesNotMakeFrequenciesOfHeadsWithoutBounds) {
    const TemporaryFolder folder;
    for (const char* text :
         {R"({"model_type": "llama", "head_dim": 1099511627776})",
          R"({"model_type": "llama", "head_dim": 64, "partial_rotary_factor": -1})",
          R"({"model_type": "llama", "head_dim": 64, "partial_rotary_factor": 1e300})",
          R"({"model_type": "llama", "head_dim": 64, "rope_theta": 0})"}) {
        folder.write("config.json", text);
        EXPECT_NE(folder.config().rotary.unsupported, "") << text;
    }
}

TEST(ModelFolder, GivesOpenVinoNothingThatIsNoGraphOfItsOwn) {
    const TemporaryFolder folder;
    ov::Core core;
    for (const char* text : {"", "node { name: \"a\" }", "<?xml version=\"1.0\"?><graph/>",
                             "<!-- <net> --><other/>", "<?xml"}) {
        const fs::path file = folder.write("openvino_model.xml", text);
        EXPECT_NE(refusal([&] { read_graph(core, file); }).find("no OpenVINO graph"),
                  std::string::npos)
            << text;
    }
    EXPECT_NE(refusal([&] { read_graph(core, folder.path()); }), "");
}

/// What OpenVINO writes for a model that keeps one variable.
std::string graph_with_a_variable(const TemporaryFolder& folder) {
    const auto value = std::make_shared<ov::opset13::Parameter>(ov::element::f32, ov::Shape{1});
    const auto variable = std::make_shared<ov::op::util::Variable>(
        ov::op::util::VariableInfo{{1}, ov::element::f32, "kept"});
    const auto read = std::make_shared<ov::opset13::ReadValue>(value, variable);
    const auto assign = std::make_shared<ov::opset13::Assign>(read, variable);
    const auto model = std::make_shared<ov::Model>(ov::OutputVector{read}, ov::SinkVector{assign},
                                                   ov::ParameterVector{value});
    ov::save_model(model, folder.path() / "openvino_model.xml", false);
    return read_text(folder.path() / "openvino_model.xml");
}

/// With all of `from`, which must be there, changed to `to`.
std::string changed(std::string text, const std::string& from, const std::string& to) {
    EXPECT_NE(text.find(from), std::string::npos) << from;
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
    return text;
}

TEST(ModelFolder, RefusesAVariableWithoutANameHoweverItsTypeIsWritten) {
    const TemporaryFolder folder;
    const std::string good = graph_with_a_variable(folder);
    const std::string bad = changed(good, "<data variable_id=\"kept\"", "<data");
    ov::Core core;
    const std::string type = "type=\"ReadValue\"";
    for (const std::string& text :
         {bad, changed(bad, type, "type='ReadValue'"), changed(bad, type, "type = \"ReadValue\""),
          changed(bad, type, "type=\"readVALUE\""), changed(bad, type, "type=\"&#82;eadValue\""),
          changed(bad, type, "a='>' type\n=\n'ReadValue'"),
          changed(good, "<data variable_id", "<data /><data variable_id"),
          changed(good, "<data variable_id", "<!-- <data variable_id='a' /> --><data a"),
          changed(good, "<data variable_id", "<![CDATA[<data variable_id='a' />]]><data a"),
          changed(changed(good, "</layer>", "</layer >"), "variable_id=\"kept\" v", "v")}) {
        const fs::path file = folder.write("openvino_model.xml", text);
        EXPECT_NE(refusal([&] { read_graph(core, file); }).find("is damaged: "), std::string::npos)
            << text;
    }
}

TEST(ModelFolder, ReadsAVariableHoweverItsNameIsWritten) {
    const TemporaryFolder folder;
    const std::string good = graph_with_a_variable(folder);
    ov::Core core;
    for (const std::string& text :
         {good, changed(good, "type=\"ReadValue\"", "type = 'READVALUE'"),
          changed(good, "variable_id=\"kept\"", "variable_id\n=\n'&#107;ept>'"),
          changed(good, "<data", "<!--> <layer type='Assign'> --><data")}) {
        const fs::path file = folder.write("openvino_model.xml", text);
        EXPECT_EQ(read_graph(core, file)->get_variables().size(), 1u) << text;
    }
}

TEST(ModelFolder, RefusesXmlWhoseTagsDoNotEnd) {
    const TemporaryFolder folder;
    ov::Core core;
    for (const char* text : {"<net a", "<net a=", "<net a='", "<net><!--", "<net><a", "<net></",
                             "<net></net", "<net></net></net>", "<net><![CDATA[", "<net =''>"}) {
        const fs::path file = folder.write("openvino_model.xml", text);
        EXPECT_NE(refusal([&] { read_graph(core, file); }), "") << text;
    }
}

TEST(ModelFolder, RefusesAPipeWhereAFileIsExpected) {
    const TemporaryFolder folder;
    ov::Core core;
    const std::string good = graph_with_a_variable(folder);
    const auto with_pipe = [&](const char* name) {
        fs::remove(folder.path() / name);
        EXPECT_EQ(mkfifo((folder.path() / name).c_str(), 0600), 0);
        return refusal([&] { read_graph(core, folder.path() / "openvino_model.xml"); });
    };
    EXPECT_NE(with_pipe("openvino_model.bin").find("openvino_model.bin"), std::string::npos);
    EXPECT_NE(with_pipe("openvino_model.xml").find("openvino_model.xml"), std::string::npos);
}

using ov::opset13::Constant;

/// Stand for openvino-tokenizers' operations, by their names.
struct TakesAnything : public ov::op::Op {
    TakesAnything() = default;
    explicit TakesAnything(const ov::OutputVector& inputs) : Op(inputs) {
        constructor_validate_and_infer_types();
    }
    void validate_and_infer_types() override { set_output_type(0, ov::element::f32, {}); }
};
struct UnigramTokenizer : public TakesAnything {
    OPENVINO_OP("UnigramTokenizer", "extension")
    using TakesAnything::TakesAnything;
    std::shared_ptr<Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override {
        return std::make_shared<UnigramTokenizer>(inputs);
    }
};
struct CombineSegments : public TakesAnything {
    OPENVINO_OP("CombineSegments", "extension")
    using TakesAnything::TakesAnything;
    std::shared_ptr<Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override {
        return std::make_shared<CombineSegments>(inputs);
    }
};
struct CharsMapNormalization : public TakesAnything {
    OPENVINO_OP("CharsMapNormalization", "extension")
    using TakesAnything::TakesAnything;
    std::shared_ptr<Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override {
        return std::make_shared<CharsMapNormalization>(inputs);
    }
};

template <class T>
std::shared_ptr<Constant> constant(ov::element::Type type, const std::vector<T>& values) {
    return Constant::create(type, {values.size()}, values);
}
std::shared_ptr<Constant> integers(const std::vector<int32_t>& values) {
    return constant(ov::element::i32, values);
}

/// What is said about a graph of one node, empty if nothing.
template <class Op>
std::string refusal_of(const ov::OutputVector& inputs) {
    const ov::Model graph(ov::OutputVector{std::make_shared<Op>(inputs)}, ov::ParameterVector{});
    return refusal([&] { check_string_graph(graph, "graph.xml"); });
}

using Table = std::pair<std::vector<int32_t>, std::vector<int32_t>>;

TEST(StringGraph, RefusesStringsOutsideOfTheirBytes) {
    const auto bytes = constant(ov::element::u8, std::vector<uint8_t>(20'000, 'a'));
    const auto check = [&](const Table& table) {
        return refusal_of<CharsMapNormalization>(
            {integers(table.first), integers(table.second), bytes, integers({0})});
    };
    EXPECT_EQ(check({{0, 3, 20'000}, {3, 10, 20'000}}), "");
    constexpr int32_t most = std::numeric_limits<int32_t>::max();
    for (const Table& table : std::vector<Table>{{{0, 3}, {3, 24'000}},
                                                 {{-1, 3}, {3, 10}},
                                                 {{0, 5}, {3, 4}},
                                                 {{0, 5}, {3}},
                                                 {{-most - 1}, {most}},
                                                 {{0}, {20'000}}})
        EXPECT_NE(check(table).find("graph.xml"), std::string::npos);
}

TEST(StringGraph, RefusesTablesWithOtherNumbersThanStrings) {
    const auto check = [](const std::vector<float>& scores) {
        const auto any = integers({0});
        const auto bytes = constant(ov::element::u8, std::vector<uint8_t>{'a', 'b'});
        return refusal_of<UnigramTokenizer>({any, any, any, any, any, integers({0, 1}),
                                             integers({1, 2}), bytes,
                                             constant(ov::element::f32, scores)});
    };
    EXPECT_EQ(check({1, 2}), "");
    EXPECT_NE(check({1}).find("2 strings and numbers for 1"), std::string::npos);
}

TEST(StringGraph, RefusesAddedTokensOutsideOfTheirList) {
    const auto check = [](int32_t begin, int32_t end) {
        return refusal_of<CombineSegments>({integers({begin}), integers({end}), integers({7, 8})});
    };
    EXPECT_EQ(check(0, 2), "");
    EXPECT_EQ(check(0, 0), "");
    for (const auto& [begin, end] : std::vector<std::pair<int, int>>{{0, 3}, {-1, 1}, {2, 1}})
        EXPECT_NE(check(begin, end), "");
}

TEST(StringGraph, RefusesRowsThatLeadOutOfTheirTable) {
    const auto check = [](int64_t first, int64_t step, int64_t more) {
        namespace ops = ov::opset13;
        const auto scalar = [](int64_t value) {
            return Constant::create(ov::element::i64, {}, {value});
        };
        const auto rows = std::make_shared<ops::Parameter>(ov::element::i64, ov::Shape{});
        const auto begins =
            std::make_shared<ops::Range>(scalar(first), rows, scalar(step), ov::element::i32);
        const auto ends = std::make_shared<ops::Range>(
            scalar(1), std::make_shared<ops::Add>(rows, scalar(more)), scalar(1), ov::element::i32);
        const ov::Model graph(ov::OutputVector{std::make_shared<CombineSegments>(
                                  ov::OutputVector{begins, ends, integers({0})})},
                              ov::ParameterVector{rows});
        return refusal([&] { check_string_graph(graph, "graph.xml"); });
    };
    EXPECT_EQ(check(0, 1, 1), "");
    EXPECT_NE(check(-4000, 1, 1), "");
    EXPECT_NE(check(0, 2, 1), "");
    EXPECT_NE(check(0, 1, -1), "");
}

TEST(StringGraph, RefusesANormalisationThatLeadsOutOfItself) {
    // 256 units that lead to each other, the first to a leaf; one text.
    std::vector<uint32_t> words(257);
    words[0] = 256 * 4;
    words[2] = 0x80000001;
    const auto check = [](std::vector<uint32_t> table) {
        std::vector<uint8_t> bytes(4 * table.size() + 3);
        std::memcpy(bytes.data(), table.data(), 4 * table.size());
        bytes[4 * table.size()] = 'a';
        return refusal_of<CharsMapNormalization>({constant(ov::element::u8, bytes)});
    };
    EXPECT_EQ(check(words), "");
    auto far_text = words, far_unit = words, long_tree = words;
    far_text[2] = 0x80000003;
    far_unit[5] = 1u << 20;
    long_tree[0] = 4000;
    for (const auto& table : {far_text, far_unit, long_tree}) EXPECT_NE(check(table), "");
}

}  // namespace
}  // namespace pagewheel
