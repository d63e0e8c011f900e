// Where a step's time goes: microseconds by node type, by OpenVINO's counters, which count native
// ops too. What is left of the whole lies outside the nodes.
//
//     step_profile MODEL_FOLDER TOKENS PAST [property=value]...
//
// TOKENS new tokens of one sequence behind PAST in the cache; medians of 9 runs.
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "runtime/model_runner.hpp"

namespace {

using namespace pagewheel;

constexpr int rounds = 9;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

struct Line {
    size_t nodes = 0;
    std::vector<double> microseconds;  // of each round, all nodes together
};

std::string kind(const ov::ProfilingInfo& node) {
    return node.node_type + " " + node.exec_type;
}

void profile(ModelRunner& runner, size_t tokens, size_t past) {
    Sequence sequence;
    for (size_t i = 0; i < past + tokens; ++i)
        sequence.tokens.push_back(int64_t(10 + i * 7919 % (runner.vocabulary() - 10)));
    for (size_t i = 0; i * runner.geometry().block_size < past + tokens; ++i)
        sequence.blocks.push_back(BlockId(i));
    Batch batch;
    const auto run = [&](size_t first, size_t count) {
        sequence.num_cached = first;
        batch.clear();
        batch.entries.push_back({&sequence, count, 1, true});
        batch.num_tokens = count;
        runner.run(batch);
    };
    for (size_t first = 0; first < past; first += 512)
        run(first, std::min<size_t>(512, past - first));
    std::map<std::string, Line> lines;
    Line whole;
    for (int round = 0; round < rounds; ++round) {
        run(past, tokens);
        whole.microseconds.push_back(runner.times().infer);
        for (const ov::ProfilingInfo& node : runner.profile()) {
            if (node.status != ov::ProfilingInfo::Status::EXECUTED) continue;
            Line& line = lines[kind(node)];
            line.microseconds.resize(size_t(round) + 1);
            line.microseconds.back() += double(node.real_time.count());
            if (round == 0) ++line.nodes;
        }
    }
    std::vector<std::pair<double, std::string>> sorted;
    double known = 0;
    for (const auto& [name, line] : lines) {
        sorted.emplace_back(median(line.microseconds), name);
        known += sorted.back().first;
    }
    std::sort(sorted.rbegin(), sorted.rend());
    for (const auto& [time, name] : sorted)
        if (time > 0) std::cout << time << "\t" << lines[name].nodes << "\t" << name << "\n";
    const double all = median(whole.microseconds);
    std::cout << all - known << "\t\toutside the nodes\n" << all << "\t\tinfer\n";
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
        ModelRunner runner(ModelFolder(argv[1]), "CPU", properties);
        runner.allocate_cache((tokens + past) / runner.geometry().block_size + 1);
        profile(runner, tokens, past);
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
