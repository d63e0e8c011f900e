// Where a step's time goes: microseconds by node, layers together, by OpenVINO's counters, and by
// operation inside pagewheel's regions, whose own lines have what is left of them. What is left of
// the whole lies outside the nodes.
//
//     step_profile MODEL_FOLDER TOKENS PAST [property=value]...
//
// TOKENS new tokens of one sequence behind PAST in the cache. The counters are averages over all
// inferences so far, so each line is the mean of those after the first few, which pack the weights.
#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "median.hpp"
#include "runner/openvino_model.hpp"

namespace {

using namespace pagewheel;
using benchmark::median;

struct Line {
    size_t nodes = 0;
    double microseconds = 0;  // of one inference, all nodes together
};

/// The node's name without the number of its layer, and the primitive that OpenVINO runs it with.
std::string kind(const ov::ProfilingInfo& node) {
    std::string name;
    for (const char c : node.node_name)
        if (c < '0' || c > '9') name += c;
    return name + "\t" + node.exec_type;
}

void profile(OpenVinoModel& model, size_t tokens, size_t past) {
    Sequence sequence;
    for (size_t i = 0; i < past + tokens; ++i)
        sequence.tokens.push_back(int64_t(10 + i * 7919 % (model.vocabulary() - 10)));
    for (size_t i = 0; i * model.block_size() < past + tokens; ++i)
        sequence.blocks.push_back(BlockId(i));
    Batch batch;
    size_t inferences = 0;
    const auto run = [&](size_t first, size_t count) {
        sequence.num_cached = first;
        if (model.blocks_per_state() > 0) {
            sequence.state = first > 0 ? StateId(0) : no_state;
            sequence.next_state = StateId(0);
        }
        batch.clear();
        batch.entries.push_back({&sequence, count, 1, 1});
        batch.num_tokens = count;
        model.run(batch, {});
        ++inferences;
    };
    for (size_t first = 0; first < past; first += 512)
        run(first, std::min<size_t>(512, past - first));
    std::map<std::string, Line> lines;
    // Averages times the number of inferences are sums; later sums less earlier ones are what
    // counts.
    const auto add = [&](double sign, size_t counted) {
        for (const ov::ProfilingInfo& node : model.profile()) {
            if (node.status != ov::ProfilingInfo::Status::EXECUTED) continue;
            Line& line = lines[kind(node)];
            line.microseconds +=
                sign * double(node.real_time.count()) * double(inferences) / double(counted);
            if (sign > 0) ++line.nodes;
        }
    };
    const size_t warm_up = tokens < 64 ? 20 : 2, counted = tokens < 64 ? 400 : 12;
    for (size_t i = 0; i < warm_up; ++i) run(past, tokens);
    add(-1, counted);
    std::vector<double> whole;
    for (size_t i = 0; i < counted; ++i) {
        run(past, tokens);
        whole.push_back(model.times().infer);
    }
    add(1, counted);
    std::vector<std::pair<double, std::string>> sorted;
    double known = 0;
    for (const auto& [name, line] : lines) {
        sorted.emplace_back(line.microseconds, name);
        known += line.microseconds;
    }
    std::sort(sorted.rbegin(), sorted.rend());
    for (const auto& [time, name] : sorted)
        if (time > 1)
            std::cout << size_t(time) << "\t" << lines[name].nodes << "\t" << name << "\n";
    const double all = std::accumulate(whole.begin(), whole.end(), 0.0) / double(counted);
    std::cout << long(all - known) << "\t\toutside the nodes\n";
    std::cout << size_t(all) << "\t\tinfer, mean; median " << size_t(median(whole)) << "\n";
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) {
        std::cerr << "usage: step_profile MODEL_FOLDER TOKENS PAST [property=value]...\n";
        return 2;
    }
    try {
        ov::AnyMap properties{{"PERF_COUNT", "YES"}};
        for (int i = 4; i < argc; ++i) {
            const std::string text = argv[i];
            const size_t at = text.find('=');
            properties[text.substr(0, at)] =
                text.substr(at == std::string::npos ? text.size() : at + 1);
        }
        const size_t tokens = std::stoul(argv[2]), past = std::stoul(argv[3]);
        const auto model = load_model(ModelFolder(argv[1]), "CPU", properties);
        model->allocate_cache((tokens + past) / model->block_size() + 1 +
                              model->blocks_per_state());
        profile(*model, tokens, past);
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
