#include "model/openvino_core.hpp"

#include <atomic>
#include <mutex>
#include <set>
#include <string>

#include "base/process.hpp"

namespace pagewheel {
namespace {

struct ProcessCore {
    const ProcessMark mark;
    ov::Core core;
    std::mutex mutex;  // guards what follows
    std::set<std::string> extensions;
};

ProcessCore& process_core() {
    static std::atomic<ProcessCore*> latest{nullptr};
    ProcessCore* found = latest;
    if (!found) {
        auto* made = new ProcessCore();
        if (latest.compare_exchange_strong(found, made)) return *made;
        delete made;  // another thread was faster; nothing was compiled with it
    }
    // OpenVINO's and our own locks may be held by threads that a child does not have.
    found->mark.check("process's OpenVINO");
    return *found;
}

}  // namespace

ov::Core& openvino_core() {
    return process_core().core;
}

ov::Core& openvino_core_with(const std::filesystem::path& extension) {
    ProcessCore& process = process_core();
    const std::lock_guard lock(process.mutex);
    if (process.extensions.count(extension.string()) == 0) {
        process.core.add_extension(extension.string());
        process.extensions.insert(extension.string());
    }
    return process.core;
}

}  // namespace pagewheel
