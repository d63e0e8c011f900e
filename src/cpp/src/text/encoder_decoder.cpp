// A tokenizer's two halves: text to token ids, and back.
#include <algorithm>
#include <limits>

#include "base/check.hpp"
#include "text/tokenizer_impl.hpp"
#include "text/utf8.hpp"

namespace pagewheel {
namespace {

// Tokens that a text is padded to: beyond any context, and no matter of memory.
constexpr size_t most_padding = size_t(1) << 24;

// Texts of a run: a run costs as much as hundreds of short texts, and nobody else encodes
// meanwhile.
constexpr size_t most_at_once = 256;

ov::Tensor string_tensor(const std::string* texts, size_t count) {
    ov::Tensor tensor(ov::element::string, {count});
    std::copy_n(texts, count, tensor.data<std::string>());
    return tensor;
}

std::optional<size_t> find_mask(const ov::Model& model) {
    for (size_t i = 0; i < model.outputs().size(); ++i)
        if (model.output(i).get_names().count("attention_mask") != 0) return i;
    return std::nullopt;
}

std::vector<int64_t> to_ids(const ov::Tensor& tensor) {
    const auto copy = [&](const auto* data) {
        return std::vector<int64_t>(data, data + tensor.get_size());
    };
    return tensor.get_element_type() == ov::element::i32 ? copy(tensor.data<const int32_t>())
                                                         : copy(tensor.data<const int64_t>());
}

}  // namespace

Encoder::Encoder(ov::Core& core, const std::shared_ptr<ov::Model>& model,
                 const TokenizerFiles& files, const ov::AnyMap& properties)
    : m_core(core),
      m_inputs(model->inputs().size()),
      m_mask(find_mask(*model)),
      m_max_length(files.max_length),
      m_padding_side(files.padding_side),
      m_pad(files.pad.id) {
    m_graph = std::make_shared<StringGraph>([model] { return model->clone(); }, properties);
    const auto plain = model->clone();
    m_plain_graph = disable_added_tokens(plain)
                        ? std::make_shared<StringGraph>([plain] { return plain; }, properties)
                        : m_graph;
    // A pipeline constructs its tokenizer beside compiling the model: what every prompt needs is
    // best compiled now.
    m_plain_graph->compile(m_core);
}

std::vector<int64_t> Encoder::encode(const std::vector<std::string>& text,
                                     bool add_special_tokens) {
    if (text.size() == 2 && !add_special_tokens) {
        // A graph of pairs has special tokens that cannot be told from the text's.
        std::vector<int64_t> ids = encode(std::vector{text[0]}, false);
        const std::vector<int64_t> second = encode(std::vector{text[1]}, false);
        ids.insert(ids.end(), second.begin(), second.end());
        return ids;
    }
    std::vector<ov::Tensor> inputs;
    for (const std::string& each : text) {
        check_utf8(each, {"text", "the text to encode"});
        inputs.push_back(string_tensor(&each, 1));
    }
    if (text.size() == 1 && text.front().empty() && !add_special_tokens) return {};
    // No second text is an empty list of them.
    if (inputs.size() < m_inputs) inputs.emplace_back(ov::element::string, ov::Shape{0});
    const auto& graph = add_special_tokens ? m_graph : m_plain_graph;
    return to_ids(graph->run(m_core, inputs));
}

std::vector<std::vector<int64_t>> Encoder::encode_all(const std::vector<std::string>& texts,
                                                      bool add_special_tokens) {
    std::vector<std::vector<int64_t>> rows;
    if (!m_mask || m_inputs != 1 || std::count(texts.begin(), texts.end(), "") > 0) {
        for (const std::string& text : texts)
            rows.push_back(encode(std::vector{text}, add_special_tokens));
        return rows;
    }
    const auto& graph = add_special_tokens ? m_graph : m_plain_graph;
    for (size_t begin = 0; begin < texts.size(); begin += most_at_once) {
        const size_t count = std::min(most_at_once, texts.size() - begin);
        for (size_t i = begin; i < begin + count; ++i)
            check_utf8(texts[i], {"text", "the text to encode"});
        const auto found = graph->run(m_core, {string_tensor(&texts[begin], count)}, {0, *m_mask});
        const std::vector<int64_t> ids = to_ids(found[0]), mask = to_ids(found[1]);
        const size_t width = ids.size() / count;
        for (size_t i = 0; i < count; ++i) {
            std::vector<int64_t>& row = rows.emplace_back();
            for (size_t k = i * width; k < (i + 1) * width; ++k)
                if (mask[k] != 0) row.push_back(ids[k]);
        }
    }
    return rows;
}

TokenizedInputs Encoder::pad(std::vector<std::vector<int64_t>> rows,
                             const EncodeOptions& options) const {
    const std::string& side = options.padding_side.value_or(m_padding_side);
    const bool left = side == "left";
    check_argument(left || side == "right", ParameterName("padding_side"), " is '", side,
                   "'; allowed are 'left' and 'right'");
    const size_t own_limit = m_max_length > 0 ? m_max_length : std::numeric_limits<size_t>::max();
    const size_t limit = options.max_length.value_or(own_limit);
    check_argument(!options.pad_to_max_length || options.max_length || m_max_length > 0,
                   ParameterName("pad_to_max_length"),
                   " is true; max_length must be set, as tokenizer_config.json "
                   "has no model_max_length");
    check_argument(!options.pad_to_max_length || limit <= most_padding, ParameterName("max_length"),
                   " is ", limit, " and pad_to_max_length is true; allowed: up to ", most_padding);
    size_t width = options.pad_to_max_length ? limit : 0;
    for (std::vector<int64_t>& row : rows) {
        if (options.truncation && row.size() > limit) row.resize(limit);
        width = std::max(width, row.size());
    }
    TokenizedInputs batch{ov::Tensor(ov::element::i64, {rows.size(), width}),
                          ov::Tensor(ov::element::i64, {rows.size(), width})};
    std::fill_n(batch.input_ids.data<int64_t>(), rows.size() * width, std::max<int64_t>(m_pad, 0));
    std::fill_n(batch.attention_mask.data<int64_t>(), rows.size() * width, 0);
    for (size_t i = 0; i < rows.size(); ++i) {
        const size_t begin = i * width + (left ? width - rows[i].size() : 0);
        std::copy(rows[i].begin(), rows[i].end(), batch.input_ids.data<int64_t>() + begin);
        std::fill_n(batch.attention_mask.data<int64_t>() + begin, rows[i].size(), 1);
    }
    return batch;
}

Decoder::Decoder(ov::Core& core, const std::shared_ptr<ov::Model>& model,
                 const ov::AnyMap& properties)
    : m_core(core),
      m_tables(read_detokenizer_tables(model)),
      m_takes_i64(model->input().get_element_type() == ov::element::i64),
      m_is_special(m_tables.vocabulary.size()) {
    for (int32_t id : m_tables.special_tokens)
        if (size_t(id) < m_is_special.size()) m_is_special[size_t(id)] = true;
    const auto graph = [&](bool skip) {
        const auto build = [model, skip] {
            auto clone = model->clone();
            set_skip_special_tokens(clone, skip);
            return clone;
        };
        return std::make_shared<StringGraph>(build, properties);
    };
    m_graph = graph(true);
    m_verbatim_graph = graph(false);
    if (!m_tables.joins_bytes) m_graph->compile(m_core);
}

std::string Decoder::decode(std::vector<int64_t> tokens, bool skip_special_tokens) {
    const auto is_unknown = [&](int64_t token) { return !has_token(token); };
    tokens.erase(std::remove_if(tokens.begin(), tokens.end(), is_unknown), tokens.end());
    if (tokens.empty()) return {};
    // The bytes may be no UTF-8: openvino-tokenizers passes surrogates, for one.
    return replace_invalid_utf8(m_tables.joins_bytes ? join_bytes(tokens, skip_special_tokens)
                                                     : run_graph(tokens, skip_special_tokens));
}

bool Decoder::has_token(int64_t id) const {
    const size_t size = vocabulary().size();
    return id >= 0 && (size == 0 || size_t(id) < size);
}

std::string Decoder::join_bytes(const std::vector<int64_t>& tokens,
                                bool skip_special_tokens) const {
    std::string bytes;
    for (int64_t token : tokens)
        if (!skip_special_tokens || !m_is_special[size_t(token)])
            bytes += vocabulary()[size_t(token)];
    if (m_tables.strips_first_space && !bytes.empty() && bytes.front() == ' ') bytes.erase(0, 1);
    return bytes;
}

std::string Decoder::run_graph(const std::vector<int64_t>& tokens, bool skip_special_tokens) {
    ov::Tensor input(m_takes_i64 ? ov::element::i64 : ov::element::i32, {1, tokens.size()});
    if (m_takes_i64)
        std::copy(tokens.begin(), tokens.end(), input.data<int64_t>());
    else
        std::copy(tokens.begin(), tokens.end(), input.data<int32_t>());
    const auto& graph = skip_special_tokens ? m_graph : m_verbatim_graph;
    return graph->run(m_core, {input}).data<const std::string>()[0];
}

}  // namespace pagewheel
