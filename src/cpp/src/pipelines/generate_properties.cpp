#include "pipelines/pipeline_impl.hpp"

#include <functional>
#include <utility>

#include "base/check.hpp"
#include "pagewheel/properties.hpp"

namespace pagewheel {
namespace {

/// Sets `out` if the value is a T.
template <class T>
bool take(const ov::Any& value, StreamerVariant& out) {
    if (!value.is<T>()) return false;
    out = value.as<T>();
    return true;
}

StreamerVariant streamer_of(const ov::Any& value) {
    StreamerVariant streamer;
    const bool is_taken = value.empty() || take<TextStreamer::Callback>(value, streamer) ||
                          take<std::shared_ptr<StreamerBase>>(value, streamer) ||
                          take<std::shared_ptr<TextStreamer>>(value, streamer) ||
                          take<std::function<StreamingStatus(std::string)>>(value, streamer) ||
                          take<std::function<bool(std::string)>>(value, streamer) ||
                          take<std::function<void(std::string)>>(value, streamer) ||
                          take<StreamerVariant>(value, streamer);
    check_argument(is_taken, ParameterName("streamer"), " has type ", value.type_info().name(),
                   "; allowed: std::shared_ptr<StreamerBase>, and std::function of a text that "
                   "returns StreamingStatus or bool");
    return streamer;
}

}  // namespace

std::pair<std::string, ov::Any> properties::streamer(const StreamerVariant& streamer) {
    const auto any_of = [](const auto& each) {
        if constexpr (std::is_same_v<decltype(each), const std::monostate&>)
            return ov::Any();
        else
            return ov::Any(each);
    };
    return {"streamer", std::visit(any_of, static_cast<const StreamerVariant::variant&>(streamer))};
}

GenerateProperties read_generate_properties(GenerationConfig config, ov::AnyMap properties) {
    GenerateProperties read;
    const auto streamer = properties.find("streamer");
    if (streamer != properties.end()) {
        read.streamer = streamer_of(streamer->second);
        properties.erase(streamer);
    }
    const auto list = properties.find("generation_config");
    if (list != properties.end() && list->second.is<std::vector<GenerationConfig>>()) {
        read.configs = list->second.as<std::vector<GenerationConfig>>();
        properties.erase(list);
    } else {
        read.configs.push_back(std::move(config));
    }
    for (GenerationConfig& each : read.configs) set_properties(each, properties);
    return read;
}

SchedulerConfig take_scheduler_config(ov::AnyMap& properties, const SchedulerConfig& config) {
    const auto found = properties.find("scheduler_config");
    if (found == properties.end()) return config;
    check_argument(found->second.is<SchedulerConfig>(), ParameterName("scheduler_config"),
                   " has type ", found->second.type_info().name(), "; allowed: SchedulerConfig");
    SchedulerConfig taken = found->second.as<SchedulerConfig>();
    properties.erase(found);
    return taken;
}

}  // namespace pagewheel
