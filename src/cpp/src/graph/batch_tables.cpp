#include "graph/batch_tables.hpp"

#include <vector>

#include "graph/port_names.hpp"
#include "openvino/op/parameter.hpp"
#include "ops/attention_tables.hpp"

namespace pagewheel {

using ov::op::v0::Parameter;

void take_packed_tables(const std::shared_ptr<ov::Model>& model) {
    std::shared_ptr<AttentionTables> packed;
    for (const auto& node : model->get_ops()) {
        const auto found = ov::as_type_ptr<AttentionTables>(node);
        if (found && packed) return;
        if (found) packed = found;
    }
    if (!packed) return;
    std::vector<std::shared_ptr<Parameter>> sources;
    for (const auto& input : packed->input_values()) {
        const auto source = ov::as_type_ptr<Parameter>(input.get_node_shared_ptr());
        if (!source) return;
        // All or none: what the engine fills is either these inputs or the one in their place.
        for (const auto& reader : source->output(0).get_target_inputs())
            if (reader.get_node() != packed.get()) return;
        sources.push_back(source);
    }
    const auto tables = std::make_shared<Parameter>(ov::element::i32, ov::PartialShape{-1});
    tables->set_friendly_name(ports::batch_tables);
    tables->output(0).set_names({ports::batch_tables});
    packed->output(0).replace(tables->output(0));
    tables->output(0).set_names({ports::batch_tables});
    model->add_parameters({tables});
    for (const auto& source : sources) model->remove_parameter(source);
    model->validate_nodes_and_infer_types();
}

}  // namespace pagewheel
