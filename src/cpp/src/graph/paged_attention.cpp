#include "graph/paged_attention.hpp"

#include <set>
#include <string>

#include "base/check.hpp"
#include "graph/port_names.hpp"
#include "openvino/pass/manager.hpp"
#include "openvino/pass/sdpa_to_paged_attention.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

bool has_input_beginning(const ov::Model& model, const char* begin) {
    for (const auto& input : model.inputs())
        for (const std::string& name : input.get_names())
            if (name.rfind(begin, 0) == 0) return true;
    return false;
}

bool has_cache_inputs(const ov::Model& model) {
    return has_input_beginning(model, ports::key_cache_prefix);
}

}  // namespace

void check_decoder_inputs(const ov::Model& model) {
    if (has_cache_inputs(model)) return;
    static const std::set<std::string> known{ports::input_ids, ports::attention_mask,
                                             ports::position_ids, ports::beam_idx};
    std::set<std::string> names;
    for (const auto& input : model.inputs()) {
        // An input may have several names.
        std::string name = input.get_names().empty() ? "(no name)" : input.get_any_name();
        for (const std::string& each : input.get_names())
            if (known.count(each) != 0) name = each;
        names.insert(name);
    }
    for (const char* needed : {ports::input_ids, ports::attention_mask})
        check_argument(names.count(needed) != 0, "the model has no input ", needed,
                       "; a text decoder with stateful keys and values is needed");
    for (const std::string& name : names)
        check_argument(known.count(name) != 0, "the model has an input '", name,
                       "' that nothing fills; a text decoder has input_ids, attention_mask, "
                       "position_ids and beam_idx, and keeps keys and values as states");
}

void apply_paged_attention(const std::shared_ptr<ov::Model>& model, const PagingOptions& options) {
    if (has_cache_inputs(*model)) {
        check_argument((!options.per_layer_tables ||
                        has_input_beginning(*model, ports::block_indices_prefix)) &&
                           (!options.scores || has_input_beginning(*model, ports::score_window)),
                       "the model's attention is paged already, without block tables by layer and "
                       "scores");
        return;
    }
    try {
        ov::pass::Manager manager;
        manager.register_pass<ov::pass::SDPAToPagedAttention>(options.per_layer_tables,
                                                              options.scores, options.scores);
        manager.run_passes(model);
    } catch (const ov::Exception& error) {
        throw InvalidArgument(concat("the model's attention cannot be paged: ", reason(error)));
    }
    check_argument(has_cache_inputs(*model),
                   "the model's attention cannot be paged: no attention over states was found");
}

}  // namespace pagewheel
