#include "graph/share_constants.hpp"

#include <map>
#include <string>
#include <tuple>

#include "openvino/op/constant.hpp"

namespace pagewheel {

size_t share_constants(const std::shared_ptr<ov::Model>& model) {
    using ov::op::v0::Constant;
    constexpr size_t largest = 16;
    std::map<std::tuple<std::string, ov::Shape, std::string>, std::shared_ptr<Constant>> first;
    size_t unused = 0;
    for (const auto& node : model->get_ordered_ops()) {
        const auto constant = ov::as_type_ptr<Constant>(node);
        if (!constant || ov::shape_size(constant->get_shape()) > largest) continue;
        const ov::element::Type type = constant->get_element_type();
        if (type != ov::element::f32 && type != ov::element::i32 && type != ov::element::i64)
            continue;
        std::string bytes(static_cast<const char*>(constant->get_data_ptr()),
                          constant->get_byte_size());
        const auto [place, is_new] = first.try_emplace(
            {type.get_type_name(), constant->get_shape(), std::move(bytes)}, constant);
        if (is_new) continue;
        for (ov::Input<ov::Node> reader : constant->output(0).get_target_inputs())
            reader.replace_source_output(place->second);
        ++unused;
    }
    return unused;
}

}  // namespace pagewheel
