#include "graph/paged_attention.hpp"

#include "check.hpp"
#include "openvino/pass/manager.hpp"
#include "openvino/pass/sdpa_to_paged_attention.hpp"
#include "openvino_error.hpp"

namespace pagewheel {
namespace {

bool has_cache_inputs(const ov::Model& model) {
    for (const auto& input : model.inputs())
        for (const std::string& name : input.get_names())
            if (name.rfind("key_cache.", 0) == 0) return true;
    return false;
}

}  // namespace

void apply_paged_attention(const std::shared_ptr<ov::Model>& model) {
    if (has_cache_inputs(*model)) return;
    try {
        ov::pass::Manager manager;
        manager.register_pass<ov::pass::SDPAToPagedAttention>();
        manager.run_passes(model);
    } catch (const ov::Exception& error) {
        throw std::invalid_argument(
            concat("the model's attention cannot be paged: ", reason(error)));
    }
    check_argument(has_cache_inputs(*model),
                   "the model's attention cannot be paged: no attention over states was found");
}

}  // namespace pagewheel
