// A compiled model that has some inputs and passes them through, for tests of what fills them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "openvino/op/add.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/runtime/core.hpp"

namespace pagewheel {

/// Inputs have names and numbers of dimensions.
struct InputsModel {
    using Inputs = std::vector<std::pair<const char*, size_t>>;

    ov::CompiledModel compiled;
    ov::InferRequest request;

    InputsModel(const Inputs& i64, const Inputs& i32) {
        ov::ParameterVector parameters;
        ov::OutputVector results;
        const auto add = [&](const Inputs& inputs, const ov::element::Type& type) {
            for (const auto& [name, rank] : inputs) {
                parameters.push_back(std::make_shared<ov::op::v0::Parameter>(
                    type, ov::PartialShape(std::vector<ov::Dimension>(rank))));
                parameters.back()->output(0).set_names({name});
                const auto one = ov::op::v0::Constant::create(type, {}, {1});
                results.push_back(std::make_shared<ov::op::v1::Add>(parameters.back(), one));
            }
        };
        add(i64, ov::element::i64);
        add(i32, ov::element::i32);
        compiled =
            ov::Core().compile_model(std::make_shared<ov::Model>(results, parameters), "CPU");
        request = compiled.create_infer_request();
    }

    template <class T>
    std::vector<T> read(const std::string& name) {
        const ov::Tensor tensor = request.get_tensor(name);
        return {tensor.data<const T>(), tensor.data<const T>() + tensor.get_size()};
    }
};

}  // namespace pagewheel
